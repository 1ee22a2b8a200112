/*
 * pace.c
 *		How much of the time a compaction takes that nobody waits for, with a clock that the test has.
 *
 * The source is included, with the few functions of the server and of other rooms that it calls.
 */
#include "postgres.h"

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

/* ---- what the server and other rooms have ---- */

TimestampTz
GetCurrentTimestamp(void)
{
	return clock_now;
}

static void
pass_time(int64 us, double part)
{
	clock_now += us;
	calls += rate * part * us / USECS_PER_SEC;
}

int
WaitLatch(Latch *latch, int wakeEvents, long timeout, uint32 wait_event_info)
{
	pass_time(timeout * INT64CONST(1000), 1);
	return 0;
}

void
ResetLatch(Latch *latch)
{
}

int
kv_stat_io(KvIoStats *out, int max)
{
	memset(out, 0, max * sizeof(KvIoStats));
	out[KV_IO_VALUE_READ].calls = (uint64) calls;
	return max;
}

uint32
kv_wait_event(int event)
{
	return 0;
}

void
kv_pass_interrupts(const KvStore *store)
{
}

bool
kv_pass_is_awaited(void)
{
	return awaited;
}

bool
kv_pass_gives_way(void)
{
	return gives_way;
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

/* What part of the time it works, in the second half of so many steps. */
static double
share_of(KvPace *pace, int steps)
{
	TimestampTz since = 0;

	for (int i = 0; i < steps; i++)
	{
		if (i == steps / 2)
			since = clock_now;
		pass_time(STEP_US, beside);
		kv_pace(pace, KV_PACE_STEP);
	}
	return (double) (steps - steps / 2) * STEP_US / (clock_now - since);
}

static double
share_beside(bool orders, double others, double part)
{
	static KvStore store;
	KvPace		pace;

	rate = others;
	beside = part;
	kv_pace_begin(&pace, &store, orders);
	return share_of(&pace, 4000);
}

int
main(void)
{
	double		share;

	left = bound_left = INT64CONST(1) << 30;
	for (int orders = 0; orders <= 1; orders++)
	{
		share = share_beside(orders, 0, 1);
		tell(share > 0.7 && share < 0.82, "where nobody reads or writes it takes four fifths", share);
		share = share_beside(orders, RATE, 1);
		tell(share > 0.2 && share < 0.26, "beside others who do not suffer a quarter", share);
		share = share_beside(orders, RATE, 0.8);
		tell(share > 0.2 && share < 0.26, "… or little", share);
		share = share_beside(orders, RATE, 0);
		tell(share > 0.05 && share < 0.07, "beside others who do nothing while it works a sixteenth, and it goes on", share);
		share = share_beside(orders, RATE, 0.6);
		tell(share > 0.05 && share < 0.07, "and beside those who do much less", share);
	}
	{
		static KvStore store;
		KvPace		pace;

		rate = RATE;
		beside = 0;
		kv_pace_begin(&pace, &store, true);
		(void) share_of(&pace, 4000);
		beside = 1;
		share = share_of(&pace, 4000);
		tell(share > 0.2, "when they do not suffer any more it takes its quarter again", share);
	}
	awaited = true;
	share = share_beside(true, RATE, 0.5);
	tell(share > 0.4 && share < 0.52, "for order it takes half where a store is due", share);
	gives_way = true;
	share = share_beside(true, RATE, 0.5);
	tell(share > 0.95, "and all where it is to give way", share);
	awaited = gives_way = false;
	left = -100;
	bound_left = 100;
	share = share_beside(true, RATE, 0);
	tell(share < 0.07, "not because its own store has come beyond its mark", share);
	share = share_beside(false, RATE, 0);
	tell(share > 0.5 && share < 0.65, "but for the bound the more the nearer that is, whoever suffers", share);
	return failed != 0;
}
