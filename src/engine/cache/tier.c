/*
 * tier.c
 *		The second tier: frames that have left the recent ring, in a file on a fast local
 *		device.
 *
 * For servers whose tables lie on slow storage, over a network say, beside a local device
 * that may be lost at any time.  The file is nobody's home: what is in it is in value files,
 * too, and is verified when it is read (I 4).
 *
 *		recent ring ──about to leave──▸ tier writer ──one write──▸ tier ──the hand comes round──▸ gone
 *		                                    └──too late──▸ dropped
 *
 * The writer takes what leaves the ring next, in its order, and frees it there when it is in
 * the file: so it is in one of them, but for a moment.  If the device does not keep up, what
 * leaves meanwhile is dropped; nobody waits for a cache.
 *
 * Places of the file are frames (frame.h).  Before one is written its frame is dropped, so
 * who reads it meanwhile finds the sequence changed and reads the value's own file.
 *
 * Without the file nothing fails: the first error switches the tier off until the next
 * start, with one message.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/ipc.h"
#include "storage/shmem.h"
#include "utils/guc.h"
#include "utils/memutils.h"

#include "engine/base/types.h"
#include "engine/base/wait.h"
#include "engine/base/worker.h"
#include "engine/cache/cache.h"
#include "engine/cache/frame.h"
#include "engine/engine.h"
#include "engine/io/io.h"

#define KV_TIER_NAP_MS	1000

typedef enum KvTierState
{
	KV_TIER_STARTING,
	KV_TIER_ON,
	KV_TIER_OFF
} KvTierState;

typedef struct KvTier
{
	pg_atomic_uint32 state;
	Latch	   *volatile writer_latch;	/* NULL: it does not run */
	pg_atomic_uint64 counters[KV_TIER_COUNTERS];
} KvTier;

static char *tier_path;
static int	tier_size_mb;

static KvTier *tier;
static KvFrameRing ring;

/* ---- shared memory ---- */

static uint32
frame_count(void)
{
	return tier_path == NULL || tier_path[0] == '\0' || kv_recent_memory() == 0 ? 0 :
		(uint32) tier_size_mb * (1024 * 1024 / KV_FRAME_SIZE);
}

#define KV_TIER_SUFFIX	".tier"

/* A file of that name is removed at each start, so it must not be one that somebody needs. */
static bool
check_path(char **path, void **extra, GucSource source)
{
	Size		len = strlen(*path);
	Size		suffix = strlen(KV_TIER_SUFFIX);

	if (len == 0 ||
		(is_absolute_path(*path) && !path_is_prefix_of_path(DataDir, *path) &&
		 len > suffix && strcmp(*path + len - suffix, KV_TIER_SUFFIX) == 0))
		return true;
	GUC_check_errdetail("It must be an absolute path outside of the data directory that ends in \"%s\".",
						KV_TIER_SUFFIX);
	return false;
}

void
kv_tier_gucs(void)
{
	DefineCustomStringVariable("kvfdw.tier_path",
							   "File on a fast local device for what leaves the recent ring.",
							   NULL, &tier_path, "", PGC_POSTMASTER, GUC_SUPERUSER_ONLY,
							   check_path, NULL, NULL);
	DefineCustomIntVariable("kvfdw.tier_size",
							"Size of that file.",
							NULL, &tier_size_mb, 1024, 16, 16 * 1024 * 1024,
							PGC_POSTMASTER, GUC_UNIT_MB, NULL, NULL, NULL);
}

Size
kv_tier_memory(void)
{
	return frame_count() == 0 ? 0 : add_size(MAXALIGN(sizeof(KvTier)), kv_frames_size(frame_count()));
}

void
kv_tier_attach(void)
{
	bool		found;

	if (frame_count() == 0)
		return;
	tier = ShmemInitStruct("kvfdw tier", kv_tier_memory(), &found);
	if (!found)
	{
		memset(tier, 0, sizeof(*tier));
		pg_atomic_init_u32(&tier->state, KV_TIER_STARTING);
		for (int i = 0; i < KV_TIER_COUNTERS; i++)
			pg_atomic_init_u64(&tier->counters[i], 0);
	}
	kv_frames_attach(&ring, (char *) tier + MAXALIGN(sizeof(KvTier)), frame_count(), found);
}

bool
kv_tier_wanted(void)
{
	return frame_count() > 0;
}

void
kv_tier_count(KvTierCounter what, uint64 n)
{
	if (tier != NULL)
		pg_atomic_fetch_add_u64(&tier->counters[what], n);
}

void
kv_tier_wake(void)
{
	if (tier != NULL)
		kv_wake(tier->writer_latch);
}

void
kv_stat_tier(KvTierStats *stats)
{
	memset(stats, 0, sizeof(*stats));
	if (tier == NULL)
		return;
	stats->on = pg_atomic_read_u32(&tier->state) == KV_TIER_ON;
	stats->frames = ring.n;
	stats->frame_size = KV_FRAME_SIZE;
	for (uint32 i = 0; i < ring.n; i++)
		stats->used += ring.frames[i].cache_id != 0;
	stats->hits = pg_atomic_read_u64(&tier->counters[KV_TIER_HITS]);
	stats->entered = pg_atomic_read_u64(&tier->counters[KV_TIER_ENTERED]);
	stats->dropped = pg_atomic_read_u64(&tier->counters[KV_TIER_DROPPED]);
}

void
kv_tier_stats_reset(void)
{
	for (int i = 0; tier != NULL && i < KV_TIER_COUNTERS; i++)
		pg_atomic_write_u64(&tier->counters[i], 0);
}

void
kv_tier_failed(int err)
{
	uint32		on = KV_TIER_ON;

	if (tier == NULL || !pg_atomic_compare_exchange_u32(&tier->state, &on, KV_TIER_OFF))
		return;
	errno = err;
	ereport(LOG,
			(errcode_for_file_access(),
			 errmsg("kvfdw does without its second tier, file \"%s\": %m", tier_path),
			 errdetail("It is off until the server is started again.")));
}

/* ---- reading ---- */

/* This process's descriptor; -1: there is none. */
File
kv_tier_file(void)
{
	static File file = -1;

	if (pg_atomic_read_u32(&tier->state) != KV_TIER_ON)
		return -1;
	if (file < 0)
	{
		file = kv_io_try_open(tier_path, KV_IO_DIRECT | KV_IO_READONLY, KV_IO_TIER_READ);
		if (file < 0)
			kv_tier_failed(errno);
	}
	return file;
}

static bool
find_part(uint32 cache_id, uint64 number, uint32 from, uint32 len, KvTierPart *part)
{
	uint32		blocks = kv_frame_blocks(from, len);
	KvFrame    *frame;

	part->frame = kv_frame_find(&ring, cache_id, number, blocks);
	if (part->frame == KV_NO_FRAME)
		return false;
	frame = &ring.frames[part->frame];
	part->sequence = pg_atomic_read_u64(&frame->sequence);
	pg_read_barrier();
	return part->sequence % 2 == 0 && frame->number == number && frame->cache_id == cache_id &&
		(pg_atomic_read_u32(&frame->valid) & blocks) == blocks;
}

bool
kv_tier_find(uint32 cache_id, KvAddress address, uint32 len, KvTierPlace *place)
{
	uint64		number = address / KV_FRAME_SIZE;
	uint32		from = address % KV_FRAME_SIZE;
	uint32		first = Min(len, KV_FRAME_SIZE - from);

	if (tier == NULL || len == 0 || len - first > KV_FRAME_SIZE ||
		pg_atomic_read_u32(&tier->state) != KV_TIER_ON ||
		!find_part(cache_id, number, from, first, &place->parts[0]))
		return false;
	place->nparts = 1;
	place->offset = (uint64) place->parts[0].frame * KV_FRAME_SIZE + from;
	if (first == len)
		return true;

	/* the rest of it must lie behind that in the file, too */
	place->nparts = 2;
	return find_part(cache_id, number + 1, 0, len - first, &place->parts[1]) &&
		place->parts[1].frame == place->parts[0].frame + 1;
}

bool
kv_tier_still(const KvTierPlace *place)
{
	pg_read_barrier();
	for (int i = 0; i < place->nparts; i++)
	{
		if (pg_atomic_read_u64(&ring.frames[place->parts[i].frame].sequence) !=
			place->parts[i].sequence)
			return false;
	}
	return true;
}

/* ---- the writer ---- */

static File tier_file = -1;

/* Make the file, if this is the first writer since the start, and open it. */
static void
begin_file(void)
{
	int			err = 0;

	if (pg_atomic_read_u32(&tier->state) == KV_TIER_STARTING)
	{
		(void) kv_io_unlink(tier_path);
		err = kv_io_try_make(tier_path, (uint64) ring.n * KV_FRAME_SIZE, KV_IO_TIER_WRITE);
		pg_atomic_write_u32(&tier->state, KV_TIER_ON);
	}
	if (err == 0)
	{
		tier_file = kv_io_try_open(tier_path, KV_IO_DIRECT, KV_IO_TIER_WRITE);
		err = tier_file < 0 ? errno : 0;
	}
	if (err != 0)
		kv_tier_failed(err);
}

/* Free so many places from the hand on, which do not wrap around.  Returns the first. */
static uint32
free_places(uint32 n)
{
	uint32		first;

	LWLockAcquire(&ring.control->lock, LW_EXCLUSIVE);
	if (ring.control->hand + n > ring.n)
		ring.control->hand = 0;
	first = ring.control->hand;
	for (uint32 i = first; i < first + n; i++)
		kv_frame_drop(&ring, i);
	LWLockRelease(&ring.control->lock);
	return first;
}

/* They are in the file, from the hand on: have them found there, and leave the recent ring. */
static void
publish(const KvLeaving *leaving, int n)
{
	for (int i = 0; i < n; i++)
	{
		uint32		frame;

		LWLockAcquire(&ring.control->lock, LW_EXCLUSIVE);
		frame = kv_frame_take(&ring, leaving[i].cache_id, leaving[i].number);
		pg_write_barrier();
		pg_atomic_write_u32(&ring.frames[frame].valid, leaving[i].valid);
		LWLockRelease(&ring.control->lock);
		kv_recent_leave(&leaving[i]);
	}
	kv_tier_count(KV_TIER_ENTERED, n);
}

/* Move what leaves the recent ring next; false: there is nothing. */
static bool
move_frames(char *buffer)
{
	KvLeaving	leaving[KV_LEAVING_FRAMES];
	int			n = kv_recent_oldest(leaving, KV_LEAVING_FRAMES, buffer);
	uint32		first;
	int			err;

	if (n == 0)
		return false;
	first = free_places(n);
	KV_STOP_POINT("tier_before_write");
	err = kv_io_try_write(tier_file, buffer, (Size) n * KV_FRAME_SIZE,
						  (uint64) first * KV_FRAME_SIZE, KV_IO_TIER_WRITE);
	KV_STOP_POINT("tier_written");
	if (err != 0)
		kv_tier_failed(err);
	else
		publish(leaving, n);
	return true;
}

static void
writer_exit(int code, Datum arg)
{
	tier->writer_latch = NULL;
}

void
kv_tier_writer_main(Datum arg)
{
	char	   *buffer;

	kv_worker_begin(NULL);
	before_shmem_exit(writer_exit, (Datum) 0);
	buffer = (char *) TYPEALIGN(KV_BLOCK, MemoryContextAlloc(TopMemoryContext,
															 KV_LEAVING_FRAMES * KV_FRAME_SIZE + KV_BLOCK));

	begin_file();
	tier->writer_latch = MyLatch;
	while (kv_worker_goes_on(NULL))
	{
		bool		some = pg_atomic_read_u32(&tier->state) == KV_TIER_ON && move_frames(buffer);

		if (!some)
			(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
							 KV_TIER_NAP_MS, KV_WAIT_IDLE);
	}
	proc_exit(1);				/* so that the postmaster starts it again, unless it stops itself */
}
