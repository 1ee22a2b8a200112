/*
 * pace.c
 *		The pace of a job that no process waits for.
 *
 * A job works a share of the time, and rests after each step of about a megabyte.  Its share is
 * four fifths if no other process has read or written values recently, else a quarter.  A job for
 * the limit adapts its share to what other processes use of the remaining space.  It is to end when
 * they have used most of that.  So it takes no more than it must, is never late, and keeps an even
 * pace.  A job that hurried at the end would delay other processes, which have a pace of their own,
 * for longer than it hurries.  At the limit, or if another store is to be compacted next, it takes
 * all of the time; a sort job takes half.  A rest ends when this happens.
 *
 * Walks over the index rest, too, and so do the flushes of a job, unless another process waits for
 * them.  Where there are as many sessions as CPUs, a process that occupies a CPU for a tenth of a
 * second delays all of them.
 *
 * The measure is time, not bytes or calls.  While others are busy each step takes longer, and so
 * does the following rest.  So most of the time is theirs, however much they do and whatever
 * resource they need.  If that is not enough, it shows in the rates of their reads and writes.  The
 * job halves its share, down to a sixteenth, if their rate during work is less than three quarters
 * of that during rests.  With its last share a job costs others at most a sixteenth of their rate,
 * and still makes progress.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "engine/base/types.h"
#include "engine/base/wait.h"
#include "engine/compact/internal.h"
#include "engine/io/fault.h"
#include "engine/io/io.h"
#include "engine/maintenance.h"
#include "engine/shard/shard.h"
#include "engine/shard/space.h"

#define KV_PACE_STEP	((uint64) 1024 * 1024)
#define KV_PACE_LOOK_MS 100		/* interval between checks whether others use the device */
#define KV_PACE_NAP_MS	20
#define KV_PACE_LONGEST_MS 1000
#define KV_DUTY_ALONE	0.8
#define KV_DUTY_HURRIES	0.5		/* share of a sort job if another store is to be compacted next */
#define KV_DUTY_BESIDE	0.25
#define KV_DUTY_LEAST	(1.0 / 16)	/* least share, while others suffer */
/* a job is to end when others have used this part of the space that was left */
#define KV_PACE_ROOM	0.75
/*
 * a job that is late by 1/KV_PACE_GAIN of its work takes all of the time; one that is as early
 * takes next to none
 */
#define KV_PACE_GAIN	4
/*
 * least number of others' calls during rests, and an eighth as many during work, for a conclusion
 */
#define KV_PACE_SAMPLE	400
/* others suffer if their rate during work is less than this part of their rate during rests */
#define KV_PACE_SUFFER	0.75

int			kv_compact_rate = 0;

/* The reads and writes of values so far by others than jobs. */
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

/* Adds the calls of others, and the duration, of a part of the time. */
static void
note(KvPaceTimes *times, uint64 calls, uint64 before, int64 us)
{
	/* the statistics may have been reset */
	times->calls += calls - Min(before, calls);
	times->us += Max(us, 0);
}

/* Halves the share if others suffer; otherwise doubles it, up to a quarter. */
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
 * The lateness of the job: the part that should be done, by the space that others have used, minus
 * the part that is done.
 */
static double
lateness(const KvPace *pace, int64 room)
{
	double		used = pace->room <= 0 ? 1 : 1 - (double) room / pace->room;
	double		done = (double) pace->done / Max(pace->expected, 1);

	return used / KV_PACE_ROOM - Min(done, 1);
}

/*
 * Does another process wait for the shard or, during a flush, for the shard's next one?  Redo
 * cannot say that it waits, so it always counts as waiting.
 */
static bool
is_awaited(const KvPace *pace)
{
	return kv_shard_is_awaited(pace->shard) || pace->shard->split.waits > kv_clock() ||
		(pace->flushes && (RecoveryInProgress() || kv_flush_is_awaited(pace->shard)));
}

/* The share of the time for work. */
static double
duty(KvPace *pace)
{
	bool		awaited = kv_job_is_awaited();
	int64		left;
	int64		bound_left;
	double		late;

	kv_space_left(pace->store, &left, &bound_left);
	/* files that previous jobs have emptied are removed */
	pace->room = Max(pace->room, bound_left);
	if (is_awaited(pace) ||
		(pace->aim == KV_JOB_SORTS ? kv_job_gives_way() : bound_left <= 0 || awaited ||
		 kv_space_is_awaited()))
		return 1;				/* a sort job: until it gives way */
	if (!pace->busy)
		return KV_DUTY_ALONE;
	if (awaited)
		return KV_DUTY_HURRIES;
	if (pace->aim == KV_JOB_BOUNDS)
		late = lateness(pace, bound_left) * KV_PACE_GAIN;
	else if (pace->aim != KV_JOB_SORTS && left < 0)
		late = (double) -left / (bound_left - left);	/* the next job is for the limit */
	else
		late = 0;
	late = Max(Min(late, 1), -1);
	return Max(pace->share + late * (late > 0 ? 1 - pace->share : pace->share), KV_DUTY_LEAST);
}

/* A step is done: rests. */
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
			/* MB/s equal bytes/us */
			pause = Max(pause, (int64) (pace->bytes / kv_compact_rate) - worked);
		pause -= rested;
		if (pause <= 0 || rested < 0)
			break;
		if (pace->flushes)
			KV_STOP_POINT("compact_flush_rests");
		kv_job_interrupts(pace->store);
		kv_nap(Min(pause / 1000 + 1, KV_PACE_NAP_MS), KV_WAIT_PACE);
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

	/* kvfdw.compact_rate limits moves only: forget their bytes */
	pace->bytes = 0;
	pace->flushes = true;
	if (moves != NULL)
		kv_shard_rewrite(store, shard_id, moves, &rest);
	else
		kv_shard_empty_logs(store, shard_id, &rest);
	pace->flushes = false;
}
