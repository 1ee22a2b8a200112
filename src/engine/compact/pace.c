/*
 * pace.c
 *		How fast a pass goes that nobody waits for.
 *
 * It works a part of the time, and rests between two steps of about a megabyte for the other:
 * four fifths where nobody else has read or written values of late, else a quarter; and the
 * nearer the store has come to its bound, the more, up to all of it; all of it too where another
 * store is to be compacted next.  A rest ends when it comes to that.  So it takes no more than it
 * must, and never falls behind.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

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
#define KV_DUTY_LEAST	0.25

int			kv_compact_rate = 0;

uint64
kv_pace_calls(void)
{
	KvIoStats	kinds[KV_IO_KINDS];

	(void) kv_stat_io(kinds, lengthof(kinds));
	return kinds[KV_IO_VALUE_READ].calls + kinds[KV_IO_VALUE_WRITE].calls;
}

void
kv_pace_begin(KvPace *pace, KvStore *store)
{
	pace->store = store;
	pace->since = pace->looked = GetCurrentTimestamp();
	pace->calls = kv_pace_calls();
	pace->busy = true;
	pace->bytes = 0;
}

/* What part of the time is work. */
static double
duty(const KvPace *pace)
{
	bool		awaited = kv_pass_is_awaited();
	int64		left;
	int64		bound_left;

	kv_space_left(pace->store, &left, &bound_left);
	if (bound_left <= 0 || awaited || kv_space_is_awaited())
		return 1;
	if (!pace->busy)
		return KV_DUTY_ALONE;
	if (left >= 0)
		return KV_DUTY_LEAST;
	return KV_DUTY_LEAST + (1 - KV_DUTY_LEAST) * -left / (bound_left - left);
}

void
kv_pace(KvPace *pace, uint64 bytes)
{
	TimestampTz now;
	int64		worked;

	if (pace->store == NULL)
		return;
	pace->bytes += bytes;
	if (pace->bytes < KV_PACE_STEP)
		return;
	kv_space_beat(pace->store);
	now = GetCurrentTimestamp();
	worked = Max(now - pace->since, 0);
	if (now < pace->looked || now - pace->looked >= KV_PACE_LOOK_MS * INT64CONST(1000))
	{
		uint64		calls = kv_pace_calls();

		pace->busy = calls != pace->calls;
		pace->calls = calls;
		pace->looked = now;
	}
	for (;;)
	{
		int64		rest = Min(worked * (1 / duty(pace) - 1), KV_PACE_LONGEST_MS * INT64CONST(1000));
		int64		rested = GetCurrentTimestamp() - now;

		if (kv_compact_rate > 0)
			rest = Max(rest, (int64) (pace->bytes / kv_compact_rate) - worked);	/* MB/s are bytes/us */
		rest -= rested;
		if (rest <= 0 || rested < 0)
			break;
		kv_pass_interrupts(pace->store);
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 Min(rest / 1000 + 1, KV_PACE_NAP_MS), KV_WAIT_PACE);
		ResetLatch(MyLatch);
	}
	pace->since = GetCurrentTimestamp();
	pace->bytes = 0;
}
