/*
 * pace.c
 *		How much of the time a compaction takes that nobody waits for, with a clock that the test has.
 *
 * The source is included, with the few functions of the server and of other rooms that it calls.
 */
#include "postgres.h"

#include <math.h>

#undef printf
#undef snprintf

#include "engine/compact/pace.c"

#define STEP_US		5000
#define RATE		1000		/* what others do, each second in which nothing is in their way */

struct Latch *MyLatch = NULL;
static int	failed = 0;
static int	tests = 0;
static TimestampTz clock_now = INT64CONST(1000000000);
static int64 left;
static int64 bound_left;
static bool awaited;
static bool gives_way;

/* What others do. */
static double rate;				/* so much a second while it rests … */
static double beside;			/* … and such a part of that while it works */
static double calls;
static double uses;				/* and so many bytes a second of the room up to the bound */

static bool	flush_awaited;
static bool shard_awaited;
static bool recovers;
static KvShard shard;

/* ---- what the server and other rooms have ---- */

TimestampTz
kv_clock(void)
{
	return clock_now;
}

static void
pass_time(int64 us, double part)
{
	clock_now += us;
	bound_left -= uses * us / USECS_PER_SEC;
	calls += rate * part * us / USECS_PER_SEC;
}

void
kv_nap(long ms, uint32 wait_event)
{
	pass_time(ms * INT64CONST(1000), 1);
}

int
kv_stat_io(KvIoStats *out, int max)
{
	memset(out, 0, max * sizeof(KvIoStats));
	out[KV_IO_VALUE_READ].calls = (uint64) calls;
	return max;
}

uint32		kv_wait_pace = 1;

#if PG_VERSION_NUM >= 170000
uint32
WaitEventExtensionNew(const char *name)
{
	return 1;
}
#endif

void
kv_job_interrupts(const KvStore *store)
{
}

bool
kv_job_is_awaited(void)
{
	return awaited;
}

bool
kv_job_gives_way(void)
{
	return gives_way;
}

bool
kv_flush_is_awaited(const KvShard *shard)
{
	return flush_awaited;
}

bool
kv_shard_is_awaited(const KvShard *shard)
{
	return shard_awaited;
}

bool
RecoveryInProgress(void)
{
	return recovers;
}

bool
kv_space_is_awaited(void)
{
	return false;
}

void
kv_space_beat(KvStore *store)
{
}

void
kv_space_left(KvStore *store, int64 *start, int64 *bound)
{
	*start = left;
	*bound = bound_left;
}

/* ---- tests ---- */

static void
tell(bool ok, const char *what, double share)
{
	failed += !ok;
	printf("%sok %d - %s\n", ok ? "" : "not ", ++tests, what);
	if (!ok)
		printf("# share %.3f\n", share);
}

static double flush_share;
static int64 flush_us;

/* What part of the time it works, in the second half of so many steps, of what is moved or of keys that a flush merges. */
static double
share_of(KvPace *pace, const KvFlushRest *rest, int steps)
{
	TimestampTz since = 0;

	for (int i = 0; i < steps; i++)
	{
		if (i == steps / 2)
			since = clock_now;
		pass_time(STEP_US, beside);
		if (rest != NULL)
			rest->merged(rest->arg, KV_PACE_STEP / KV_PACE_KEY);
		else
			kv_pace(pace, KV_PACE_STEP);
	}
	return (double) (steps - steps / 2) * STEP_US / (clock_now - since);
}

void
kv_shard_rewrite(KvStore *store, uint32 shard_id, KvMoves *moves, const KvFlushRest *rest)
{
	TimestampTz since = clock_now;

	flush_share = share_of(NULL, rest, 4000);
	flush_us = clock_now - since;
}

void
kv_shard_empty_logs(KvStore *store, uint32 shard_id, const KvFlushRest *rest)
{
	flush_share = share_of(NULL, rest, 4000);
}

/* … of a flush, with values that were moved and without. */
static double
share_of_flush(KvPace *pace)
{
	KvMoves		moves;
	double		share;

	kv_pace_flush(pace, pace->store, 0, NULL);
	share = flush_share;
	kv_pace_flush(pace, pace->store, 0, &moves);
	return fabs(share - flush_share) < 0.01 ? share : -1;
}

static double
share_beside(KvJobAim aim, double others, double part)
{
	static KvStore store;
	KvPace		pace;

	rate = others;
	beside = part;
	kv_pace_begin(&pace, &store, &shard, aim);
	return share_of(&pace, NULL, 4000);
}

#define ROOM	((int64) 100 << 20)
#define STEPS	1000

/*
 * A pass for the bound, beside others who would use all the room while it works for such a part of the time.  How much they have
 * used when it has ended; *least and *most: the part of the time that it took in each twentieth of its work, but the first.
 */
static double
room_used(double part, double *least, double *most)
{
	static KvStore store;
	KvPace		pace;

	rate = RATE;
	beside = 1;
	bound_left = ROOM;
	kv_pace_begin(&pace, &store, &shard, KV_JOB_BOUNDS);
	kv_pace_expect(&pace, STEPS * KV_PACE_STEP);
	uses = ROOM * part / (STEPS * STEP_US / (double) USECS_PER_SEC);
	*least = 1;
	*most = 0;
	for (int i = 0; i < 20; i++)
	{
		TimestampTz since = clock_now;
		double		share;

		for (int n = 0; n < STEPS / 20; n++)
		{
			pass_time(STEP_US, beside);
			kv_pace(&pace, KV_PACE_STEP);
		}
		share = STEPS / 20 * STEP_US / (double) (clock_now - since);
		*least = i > 0 ? Min(*least, share) : *least;
		*most = i > 0 ? Max(*most, share) : *most;
	}
	uses = 0;
	return 1 - (double) bound_left / ROOM;
}

static void
test_room(double part)
{
	double		least;
	double		most;
	double		used = room_used(part, &least, &most);

	tell(used > 0.6 && used < 0.95, "a pass for the bound ends when others have used most of the room", used);
	tell(most < 2 * least, "at an even pace", most / least);
}

int
main(void)
{
	double		share;

	left = bound_left = INT64CONST(1) << 30;
	for (int i = 0; i < 2; i++)
	{
		KvJobAim	aim = i == 0 ? KV_JOB_SORTS : KV_JOB_LEAVES;

		share = share_beside(aim, 0, 1);
		tell(share > 0.7 && share < 0.82, "where nobody reads or writes it takes four fifths", share);
		share = share_beside(aim, RATE, 1);
		tell(share > 0.2 && share < 0.26, "beside others who do not suffer a quarter", share);
		share = share_beside(aim, RATE, 0.8);
		tell(share > 0.2 && share < 0.26, "… or little", share);
		share = share_beside(aim, RATE, 0);
		tell(share > 0.05 && share < 0.07, "beside others who do nothing while it works a sixteenth, and it goes on", share);
		share = share_beside(aim, RATE, 0.6);
		tell(share > 0.05 && share < 0.07, "and beside those who do much less", share);
	}
	{
		static KvStore store;
		KvPace		pace;

		rate = RATE;
		beside = 0;
		kv_pace_begin(&pace, &store, &shard, KV_JOB_SORTS);
		(void) share_of(&pace, NULL, 4000);
		beside = 1;
		share = share_of(&pace, NULL, 4000);
		tell(share > 0.2, "when they do not suffer any more it takes its quarter again", share);
	}
	awaited = true;
	share = share_beside(KV_JOB_SORTS, RATE, 0.5);
	tell(share > 0.4 && share < 0.52, "for order it takes half where a store is due", share);
	gives_way = true;
	share = share_beside(KV_JOB_SORTS, RATE, 0.5);
	tell(share > 0.95, "and all where it is to give way", share);
	awaited = gives_way = false;
	left = -100;
	bound_left = 100;
	share = share_beside(KV_JOB_SORTS, RATE, 0);
	tell(share < 0.07, "not because its own store has come beyond its mark", share);
	left = bound_left = INT64CONST(1) << 30;
	share = share_beside(KV_JOB_BOUNDS, 0, 1);
	tell(share > 0.7 && share < 0.82, "for the bound, too, four fifths where nobody reads or writes", share);
	share = share_beside(KV_JOB_BOUNDS, RATE, 1);
	tell(share < 0.07, "and hardly anything beside those who use no room", share);
	test_room(0.15);
	test_room(0.3);
	test_room(0.6);
	bound_left = 0;
	share = share_beside(KV_JOB_BOUNDS, RATE, 0);
	tell(share > 0.95, "at the bound it takes all, whoever suffers", share);
	bound_left = INT64CONST(1) << 30;
	{
		static KvStore store;
		KvPace		pace;

		kv_pace_begin(&pace, &store, &shard, KV_JOB_BOUNDS);
		flush_awaited = true;
		share = share_of(&pace, NULL, 4000);
		tell(share < 0.07, "it does not hurry for a freeze where it does none", share);
		share = share_of_flush(&pace);
		tell(share > 0.95, "but in one that is due again", share);
		flush_awaited = false;
		share = share_of_flush(&pace);
		tell(share > 0 && share < 0.07, "and rests in others", share);
		recovers = true;
		share = share_of_flush(&pace);
		tell(share > 0.95, "but on a standby, where redo may come to the shard", share);
		recovers = false;
		share = share_of(&pace, NULL, 4000);
		tell(share < 0.07, "and only in a freeze", share);
	}
	{
		static KvStore store;
		KvPace		pace;

		kv_compact_rate = 1;
		bound_left = 0;
		kv_pace_begin(&pace, &store, &shard, KV_JOB_BOUNDS);
		share = share_of(&pace, NULL, 100);
		tell(share < 0.006, "a limit on what is moved holds at the bound", share);
		share = share_of_flush(&pace);
		tell(share > 0.95, "keys that are merged do not count for it", share);
		kv_pace(&pace, KV_PACE_STEP - 1);
		kv_pace_flush(&pace, &store, 0, &(KvMoves) {0});
		tell(flush_us == 4000 * STEP_US, "nor is anything left to be waited for in a freeze", flush_us);
		kv_compact_rate = 0;
		bound_left = INT64CONST(1) << 30;
	}
	for (int i = 0; i < 2; i++)
	{
		KvJobAim	aim = i == 0 ? KV_JOB_SORTS : KV_JOB_BOUNDS;

		shard_awaited = true;
		share = share_beside(aim, RATE, 0.5);
		tell(share > 0.95, "it hurries where a process waits for the shard", share);
		shard_awaited = false;
		shard.split.waits = INT64CONST(1) << 60;
		share = share_beside(aim, RATE, 0.5);
		tell(share > 0.95, "or a split", share);
		shard.split.waits = 0;
	}
	left = -100;
	bound_left = 100;
	share = share_beside(KV_JOB_LEAVES, RATE, 1);
	tell(share > 0.5 && share < 0.7, "where the bound is near others than passes for it hurry, too", share);

	/* files of passes before this go, and their bytes are room */
	{
		static KvStore store;
		KvPace		pace;

		bound_left = 0;
		kv_pace_begin(&pace, &store, &shard, KV_JOB_BOUNDS);
		kv_pace_expect(&pace, 8000 * KV_PACE_STEP);
		bound_left = ROOM;
		share = share_of(&pace, NULL, 4000);
		tell(share < 0.07, "nor because there was no room when it began", share);
	}
	return failed != 0;
}
