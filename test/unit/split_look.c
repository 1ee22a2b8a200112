/*
 * split_look.c
 *		When the maintainer tries to split shards, over days of a clock that the test has.
 *
 * The source is included, with the few functions of the server and of other rooms that it calls.
 */
#include "postgres.h"

#undef printf
#undef snprintf

#include "engine/split/look.c"

#define SHARDS	4
#define LARGE	(UINT64CONST(2) << 30)

static int	failed = 0;
static int	tests = 0;

static struct
{
	KvDirectory directory;
	dsa_pointer shards[SHARDS];
	KvShard		shard[SHARDS];
	KvShardValueFile value_file;
}			area;
static KvStore store;
static TimestampTz clock_now;

/* Of each shard. */
static uint64 live[SHARDS];
static bool fails[SHARDS];
static bool meets[SHARDS];
static int	attempts[SHARDS];
static bool grows;				/* the keys of all */
static int	cuts;
static TimestampTz attempted[SHARDS];

/* ---- what the server has ---- */

char	   *kv_area_base = (char *) &area;
KvBufferPool *kv_buffer_pool = &(KvBufferPool) {.nunits = 1600};

TimestampTz
kv_clock(void)
{
	return clock_now;
}

bool
TimestampDifferenceExceeds(TimestampTz start, TimestampTz stop, int msec)
{
	return stop - start >= msec * INT64CONST(1000);
}

bool
RecoveryInProgress(void)
{
	return false;
}

bool
LWLockAcquire(LWLock *lock, LWLockMode mode)
{
	return true;
}

void
LWLockRelease(LWLock *lock)
{
}

void
DefineCustomIntVariable(const char *name, const char *short_desc, const char *long_desc, int *valueAddr, int bootValue,
						int minValue, int maxValue, GucContext context, int flags, GucIntCheckHook check_hook,
						GucIntAssignHook assign_hook, GucShowHook show_hook)
{
}

/* ---- what other rooms have ---- */

void
kv_shard_id_gucs(void)
{
}

void
kv_left_free(KvStore *of)
{
}

bool
kv_split_is_possible(KvStore *of)
{
	return true;
}

uint32
kv_shard_from(KvStore *of, uint32 shard_id)
{
	return shard_id < SHARDS ? shard_id : KV_NO_SHARD;
}

bool
kv_shard_is_empty(KvStore *of, uint32 shard_id)
{
	return false;
}

uint64
kv_value_file_live(const KvShard *shard, const KvShardValueFile *value_file)
{
	return live[shard - area.shard];
}

bool
kv_shard_absorb(KvStore *of, uint32 shard_id)
{
	return false;
}

bool
kv_shard_cut(KvStore *of, uint32 shard_id, bool *outgrown)
{
	cuts++;
	*outgrown = true;
	return false;
}

bool
kv_shard_split(KvStore *of, uint32 shard_id, int most)
{
	attempts[shard_id]++;
	attempted[shard_id] = clock_now;
	if (meets[shard_id])
		area.shard[shard_id].split.waits = clock_now + USECS_PER_MINUTE;
	if (fails[shard_id] || meets[shard_id])
		return false;
	area.shard[shard_id].split.waits = 0;
	live[shard_id] = 0;
	area.shard[shard_id].files.frozen_keys = KV_FEW_ENTRIES;
	return true;
}

/* One run, with one key; all that is recent lies behind it if keys grow. */
const KvRunSet *
kv_shard_runs(KvStore *of, uint32 shard_id)
{
	static KvRunSet set = {.nruns = 1};

	return &set;
}

const KvRunHeader *
kv_run_header(KvRun *run)
{
	abort();
}

uint64
kv_run_count(KvRun *run, KvKey low, KvKey high, uint64 most)
{
	abort();
}

void
kv_run_seek_before(KvRun *run, const uint8 *key, int keylen, KvRunCursor *cursor)
{
	cursor->valid = true;
}

void
kv_run_entry(const KvRunCursor *cursor, uint8 keybuf[8], const uint8 **key, int *keylen, KvVersion *version)
{
	memset(keybuf, 0, 8);
	*key = keybuf;
	*keylen = 8;
}

void
kv_run_trust(void)
{
}

double
kv_memtable_rank(const KvMemtable *memtable, KvKey key)
{
	return grows ? 0 : memtable->nitems;
}

/* ---- tests ---- */

static void
begin(void)
{
	memset(&area, 0, sizeof(area));
	memset(&store, 0, sizeof(store));
	memset(live, 0, sizeof(live));
	memset(fails, 0, sizeof(fails));
	memset(meets, 0, sizeof(meets));
	memset(attempts, 0, sizeof(attempts));
	memset(attempted, 0, sizeof(attempted));
	grows = false;
	cuts = 0;
	pg_atomic_init_u32(&store.map.nshards, SHARDS);
	for (int i = 0; i < SHARDS; i++)
	{
		area.directory.shards[i] = (char *) &area.shard[i] - (char *) &area;
		area.shard[i].values.files = (char *) &area.value_file - (char *) &area;
		area.shard[i].values.n = 1;
		area.shard[i].files.frozen_keys = LARGE / KV_BLOCK;
		area.shard[i].values.bytes = LARGE;
	}
	clock_now = INT64CONST(25) * 365 * USECS_PER_DAY;
}

/* The maintainer looks once a second. */
static void
look_for(int minutes)
{
	for (int i = 0; i < minutes * 60; i++)
	{
		clock_now += USECS_PER_SEC;
		(void) kv_split_look(&store);
	}
}

static void
tell(bool ok, const char *what)
{
	failed += !ok;
	printf("%sok %d - %s\n", ok ? "" : "not ", ++tests, what);
	if (!ok)
		printf("# attempts %d %d %d %d\n", attempts[0], attempts[1], attempts[2], attempts[3]);
}

static void
one_fails(void)
{
	int			hour;

	begin();
	live[1] = LARGE;
	fails[1] = true;
	look_for(60);
	hour = attempts[1];
	look_for(23 * 60);
	tell(hour >= 5 && hour <= 6 && attempts[1] - hour >= 20 && attempts[1] - hour <= 25,
		 "a shard whose split fails is tried more and more seldom, up to an hour, beside others");

	live[3] = LARGE;
	look_for(1);
	tell(attempts[3] == 1 && live[3] == 0, "another shard that becomes large is split meanwhile");

	fails[1] = false;
	look_for(65);
	tell(live[1] == 0, "and so it is itself, when nothing is in its way any more");
	live[1] = LARGE;
	fails[1] = true;
	attempts[1] = 0;
	look_for(60);
	tell(attempts[1] == hour, "which is tried as often as at first when it fails again");
}

static void
all_fail(void)
{
	begin();
	for (int i = 0; i < SHARDS; i++)
	{
		live[i] = LARGE;
		fails[i] = true;
	}
	look_for(3);
	tell(attempts[0] + attempts[1] + attempts[2] + attempts[3] == 3, "where all fail, as on a full disk, one is tried in a minute");
	look_for(24 * 60);
	tell(attempts[0] <= 30, "and in the long run each seldom");
}

static void
one_meets_passes(void)
{
	begin();
	live[2] = LARGE;
	meets[2] = true;
	look_for(2);
	meets[2] = false;
	attempts[2] = 0;
	look_for(1);
	tell(attempts[2] == 1 && attempted[2] < clock_now - 50 * USECS_PER_SEC && live[2] == 0,
		 "a shard that a compaction is at is split as soon as that has ended");
}

/* One shard has so many values of so many bytes; the others have nothing. */
static void
has_values(uint64 n, int bytes)
{
	begin();
	for (int i = 0; i < SHARDS; i++)
	{
		live[i] = area.shard[i].values.bytes = i == 0 ? n * bytes : 0;
		area.shard[i].files.frozen_keys = i == 0 ? n : 0;
	}
	look_for(1);
}

static void
entries_count(void)
{
	has_values(10000000, 16);
	tell(attempts[0] == 1, "ten million values of 16 bytes are split, though they have 160 MB");
	has_values(3000000, 16);
	tell(attempts[0] == 0, "three millions are not");
	has_values(250000, 4096);
	tell(attempts[0] == 0, "nor is a gigabyte without its last part of values of 4 kB");
	has_values(263000, 4096);
	tell(attempts[0] == 1, "with that it is");
}

/* Keys of a shard grow too fast for its end. */
static void
one_is_outgrown(void)
{
	begin();
	grows = true;
	area.shard[0].active.nitems = 1000;
	area.shard[0].files.frozen_keys = 100000;
	live[0] = LARGE / 4 + LARGE / 8;
	look_for(60);
	tell(cuts >= 5 && cuts <= 6 && attempts[0] == 0, "a shard whose keys grow too fast to be cut is tried more and more seldom");
	begin();
	grows = true;
	area.shard[0].active.nitems = 1000;
	area.shard[0].files.frozen_keys = 100000;
	live[0] = LARGE - LARGE / 8;
	look_for(1);
	tell(cuts == 1 && attempts[0] == 0, "it is not split when it has grown");
	clock_now += 10 * USECS_PER_MINUTE;
	live[0] = LARGE;
	look_for(1);
	tell(attempts[0] == 1, "unless it has twice the size");
}

int
main(void)
{
	one_is_outgrown();
	entries_count();
	one_fails();
	all_fail();
	one_meets_passes();
	return failed != 0;
}
