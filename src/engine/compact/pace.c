/*
 * pace.c
 *		How fast a job goes that nobody waits for.
 *
 * It works a part of the time, and rests between two steps of about a megabyte for the other:
 * four fifths where nobody else has read or written values of late, else a quarter.  A pass for the
 * bound takes as much less or more of it as others leave or use of the room that there was, and is
 * to have ended when they have used most of that: so it takes no more than it must, never falls
 * behind,
 * and keeps an even pace. One that hurried at the end would have others, who have a pace of their
 * own,
 * wait for longer than it hurries. At the bound it takes all of the time, and where another store
 * is
 * to be compacted next, but half for order.  A rest ends when it comes to that.
 *
 * Walks over the index rest, too, and the flushes of a job, unless another process waits for them:
 * where there are as many sessions as CPUs, who has one of these for a tenth of a second keeps all
 * of them waiting.
 *
 * What is measured is time, not bytes or calls.  Beside others each step takes longer, and the rest
 * behind it as well, so that most of the time is theirs, however much they do and whatever they
 * need of the machine. Where that is not enough, it shows: if they read and write values by less
 * than three quarters as often while it works as while it rests, it works by half as much, down to
 * a sixteenth, until
 * they do not suffer any more. So with its last share it takes a sixteenth of what they have, at
 * most, and goes on all the same.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "engine/base/server.h"
#include "engine/base/types.h"
#include "engine/base/wait.h"
#include "engine/compact/internal.h"
#include "engine/shard/space.h"

#define KV_PACE_STEP	((uint64) 1024 * 1024)
#define KV_PACE_LOOK_MS 100		/* does somebody else use the device? */
#define KV_PACE_NAP_MS	20
#define KV_PACE_LONGEST_MS 1000
#define KV_DUTY_ALONE	0.8
#define KV_DUTY_HURRIES	0.5		/* for order, where another store is to be compacted next */
#define KV_DUTY_BESIDE	0.25
#define KV_DUTY_LEAST	(1.0 / 16)	/* beside others who suffer */
/* a job is to have ended when others have used so much of the room that there was */
#define KV_PACE_ROOM	0.75
/*
 * it takes all of the time when so small a part of its work (1/4) is late, and next to none when it
 * is as early
 */
#define KV_PACE_GAIN	4
/*
 * reads and writes of others in rests, and an eighth as many while it works: of fewer nothing is
 * concluded
 */
#define KV_PACE_SAMPLE	400
/* they suffer if they do less than such a part of what they do in rests */
#define KV_PACE_SUFFER	0.75

int			kv_compact_rate = 0;

/* Reads and writes of values so far that are no job's. */
static uint64
calls_of_others(void)
{
	KvIoStats	kinds[KV_IO_KINDS];

	(void) kv_stat_io(kinds, lengthof(kinds));
	return kinds[KV_IO_VALUE_READ].calls + kinds[KV_IO_VALUE_WRITE].calls;
}

void
kv_pace_begin(KvPace *pace, KvStore *store, KvShard *shard, KvJobAim aim)
{
	int64		left;

	memset(pace, 0, sizeof(*pace));
	pace->store = store;
	pace->shard = shard;
	pace->aim = aim;
	pace->share = KV_DUTY_BESIDE;
	pace->since = pace->looked = kv_clock();
	pace->calls = pace->calls_since = calls_of_others();
	pace->busy = true;
	kv_space_left(store, &left, &pace->room);
}

void
kv_pace_expect(KvPace *pace, uint64 bytes)
{
	pace->expected = pace->done + pace->work + bytes;
}

/* How much others do in a part of the time, and how long that was. */
static void
note(KvPaceTimes *times, uint64 calls, uint64 before, int64 us)
{
	/* somebody may have set them to 0 */
	times->calls += calls - Min(before, calls);
	times->us += Max(us, 0);
}

/* Do others suffer?  Then it takes less of the time, and else more again. */
static void
look_back(KvPace *pace)
{
	const KvPaceTimes *working = &pace->working;
	const KvPaceTimes *resting = &pace->resting;

	if (resting->calls < KV_PACE_SAMPLE ||
		(double) resting->calls * working->us < KV_PACE_SAMPLE / 8 * (double) resting->us)
		return;
	if ((double) working->calls * resting->us < KV_PACE_SUFFER * (double) resting->calls *
		working->us)
		pace->share = Max(pace->share / 2, KV_DUTY_LEAST);
	else
		pace->share = Min(pace->share * 2, KV_DUTY_BESIDE);
	memset(&pace->working, 0, sizeof(pace->working));
	memset(&pace->resting, 0, sizeof(pace->resting));
}

/*
 * How much less of the job is done than there should be, as far as others have used the room that
 * there was.
 */
static double
behind(const KvPace *pace, int64 room)
{
	double		used = pace->room <= 0 ? 1 : 1 - (double) room / pace->room;
	double		done = (double) pace->done / Max(pace->expected, 1);

	return used / KV_PACE_ROOM - Min(done, 1);
}

/*
 * Does another process wait for the shard, or its next flush for this one? Redo has nobody who
 * waits for it.
 */
static bool
is_awaited(const KvPace *pace)
{
	return kv_shard_is_awaited(pace->shard) || pace->shard->split_waits > kv_clock() ||
		(pace->flushes && (RecoveryInProgress() || kv_flush_is_awaited(pace->shard)));
}

/* What part of the time is work. */
static double
duty(KvPace *pace)
{
	bool		awaited = kv_job_is_awaited();
	int64		left;
	int64		bound_left;
	double		late;

	kv_space_left(pace->store, &left, &bound_left);
	pace->room = Max(pace->room, bound_left);	/* what compactions before this have emptied goes */
	if (is_awaited(pace) ||
		(pace->aim == KV_JOB_SORTS ? kv_job_gives_way() : bound_left <= 0 || awaited ||
		 kv_space_is_awaited()))
		return 1;				/* for order: up to where it gives way */
	if (!pace->busy)
		return KV_DUTY_ALONE;
	if (awaited)
		return KV_DUTY_HURRIES;
	if (pace->aim == KV_JOB_BOUNDS)
		late = behind(pace, bound_left) * KV_PACE_GAIN;
	else if (pace->aim != KV_JOB_SORTS && left < 0)
		late = (double) -left / (bound_left - left);	/* what comes next is for the bound */
	else
		late = 0;
	late = Max(Min(late, 1), -1);
	return Max(pace->share + late * (late > 0 ? 1 - pace->share : pace->share), KV_DUTY_LEAST);
}

/* Work for a step is done: rest. */
static void
rest(KvPace *pace)
{
	TimestampTz now;
	int64		worked;
	uint64		calls;

	kv_space_beat(pace->store);
	now = kv_clock();
	worked = Max(now - pace->since, 0);
	calls = calls_of_others();
	note(&pace->working, calls, pace->calls_since, worked);
	if (now - pace->looked >= KV_PACE_LOOK_MS * INT64CONST(1000))
	{
		pace->busy = calls != pace->calls;
		pace->calls = calls;
		pace->looked = now;
	}
	for (;;)
	{
		int64		pause = Min(worked * (1 / duty(pace) - 1),
								KV_PACE_LONGEST_MS * INT64CONST(1000));
		int64		rested = kv_clock() - now;

		if (kv_compact_rate > 0)
			/* MB/s are bytes/us */
			pause = Max(pause, (int64) (pace->bytes / kv_compact_rate) - worked);
		pause -= rested;
		if (pause <= 0 || rested < 0)
			break;
		if (pace->flushes)
			KV_STOP_POINT("compact_flush_rests");
		kv_job_interrupts(pace->store);
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 Min(pause / 1000 + 1, KV_PACE_NAP_MS), KV_WAIT_PACE);
		ResetLatch(MyLatch);
	}
	pace->done += pace->work;
	pace->since = kv_clock();
	pace->calls_since = calls_of_others();
	note(&pace->resting, pace->calls_since, calls, pace->since - now);
	look_back(pace);
	pace->bytes = pace->work = 0;
}

static void
add_work(KvPace *pace, uint64 work)
{
	pace->work += work;
	if (pace->store != NULL && pace->work >= KV_PACE_STEP)
		rest(pace);
}

void
kv_pace(KvPace *pace, uint64 bytes)
{
	pace->bytes += bytes;
	add_work(pace, bytes);
}

void
kv_pace_keys(KvPace *pace, uint64 keys)
{
	add_work(pace, keys * KV_PACE_KEY);
}

static void
merged(void *arg, uint64 keys)
{
	kv_pace_keys(arg, keys);
}

void
kv_pace_flush(KvPace *pace, KvStore *store, uint32 shard_id, KvMoves *moves)
{
	KvFlushRest rest = {merged, pace};

	/* of the limit on what is moved nothing is left to be waited for now */
	pace->bytes = 0;
	pace->flushes = true;
	if (moves != NULL)
		kv_shard_rewrite(store, shard_id, moves, &rest);
	else
		kv_shard_empty_logs(store, shard_id, &rest);
	pace->flushes = false;
}
