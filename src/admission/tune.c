/*
 * tune.c
 *		Chooses the limit by measurement, where kvfdw.admission_limit is 0, and goes on choosing
 *		as the load changes.
 *
 * climb.c says which limit is measured next, and which is best; this file takes the samples.  A
 * sample lasts kvfdw.admission_sample; before it, the sessions have half as long to adapt to the
 * limit.
 *
 * A measurement begins when many sessions have been busy for some seconds, or on request.  It
 * begins with three points on request, while no limit is in force, and when the load has
 * changed much: twice or half as many sessions are busy, or throughput has changed by half while
 * sessions waited.  Else the limit in force and its neighbours are compared, after ten seconds
 * at first and after twice as long each time that the limit stays, ten minutes at most.  So a
 * limit is kept only while it is not worse than its neighbours.
 *
 * If the load goes away, the measurement is given up and the limit is as it was.
 */
#include "postgres.h"

#include <unistd.h>

#include "lib/stringinfo.h"

#include "clock.h"
#include "admission/internal.h"

#define KV_BUSY_TICKS		5
#define KV_BUSY_PER_CPU		8
#define KV_SLOTS_PER_CPU	2	/* of the smallest limit */
#define KV_CHANGED_TICKS	10	/* so long throughput has been another one */
#define KV_CHANGED			1.5
#define KV_LEAST_REST_US	INT64CONST(10000000)
#define KV_MOST_REST_US		INT64CONST(600000000)
#define KV_TICK_US			1000000

/* While a measurement runs: */
static bool running = false;
static bool counting;			/* how many sessions are busy is measured first */
static bool with_points;
static bool reports;			/* also reports a choice that is as before */
static bool settled;			/* the sessions have adapted: the sample has begun */
static TimestampTz begun;		/* the sample, or the time to adapt */
static uint64 sample_requests;
static double busy_sum;
static int	busy_looks;
static int	first_busy;
static double first_throughput;

/* While none runs: */
static TimestampTz ticked = 0;
static int	busy_ticks = 0;
static int	busy_mean = 0;
static int	changed_ticks = 0;
static TimestampTz ended = 0;	/* the last measurement */
static int64 rest_us = KV_LEAST_REST_US;	/* from then on */

static int
processors(void)
{
	return Max(1, (int) sysconf(_SC_NPROCESSORS_ONLN));
}

static void
show(bool tuning)
{
	LWLockAcquire(&kv_admit->lock, LW_EXCLUSIVE);
	kv_admit->tuning = tuning;
	LWLockRelease(&kv_admit->lock);
}

static void
begin_limit(TimestampTz now)
{
	settled = false;
	begun = now;
	busy_sum = busy_looks = 0;
	kv_queue_set_limit(kv_tune_limit());
}

static void
begin_sample(TimestampTz now)
{
	settled = true;
	begun = now;
	sample_requests = kv_measure_requests();
	kv_measure_begin_sample();
}

static void
begin(TimestampTz now, bool points, bool requested)
{
	running = counting = true;
	with_points = points;
	reports = requested || kv_admit->tuned_at == 0;
	show(true);
	busy_sum = busy_looks = 0;
	kv_queue_set_limit(kv_tune_limit());
	begin_sample(now);
}

/* stays: a measurement without a new limit, so the next one is farther away */
static void
end(bool stays)
{
	running = false;
	ended = kv_clock();
	rest_us = stays ? Min(2 * rest_us, KV_MOST_REST_US) : KV_LEAST_REST_US;
	busy_ticks = changed_ticks = 0;
	kv_queue_set_limit(kv_tune_limit());
	show(false);				/* the view has the limit by now */
}

/* The number of busy sessions is known: begin to climb. */
static void
begin_climb(TimestampTz now, double throughput)
{
	int			least = KV_SLOTS_PER_CPU * processors();

	counting = false;
	first_throughput = throughput;
	first_busy = (int) (busy_sum / busy_looks);
	if (!with_points)
		kv_climb_compare(least, first_busy, kv_admit->chosen);
	else if (!kv_climb_propose(least, first_busy))
	{
		ereport(LOG,
				(errmsg("could not choose an admission limit: %d busy sessions are too few",
						first_busy)));
		end(true);
		return;
	}
	begin_limit(now);
}

static void
report_choice(int former)
{
	StringInfoData text;

	if (!reports && former == kv_admit->chosen)
		return;
	initStringInfo(&text);
	for (int i = 0; i < kv_admit->npoints; i++)
	{
		const KvAdmitPoint *point = &kv_admit->points[i];

		appendStringInfo(&text, "%s%d: %.0f/s (%.2f, %.2f)", i == 0 ? "" : ", ", point->limit,
						 point->throughput, point->unfairness, point->variability);
	}
	ereport(LOG,
			(kv_admit->chosen != 0 ?
			 errmsg("kvfdw has chosen the admission limit %d", kv_admit->chosen) :
			 errmsg("kvfdw has chosen to work without an admission limit"),
			 errdetail("Requests per second, unfairness and variability at each limit, 0 being no "
					   "limit: %s.", text.data)));
	pfree(text.data);
}

/* The climb is over: its place is the limit. */
static void
finish(TimestampTz now)
{
	int			former = kv_admit->chosen;

	LWLockAcquire(&kv_admit->lock, LW_EXCLUSIVE);
	kv_admit->chosen = kv_climb_place();
	kv_admit->chosen_busy = first_busy;
	kv_admit->tuned_at = now;
	kv_admit->npoints = kv_climb_points(kv_admit->points, KV_ADMIT_POINTS,
										&kv_admit->chosen_throughput);
	LWLockRelease(&kv_admit->lock);
	report_choice(former);
	end(!reports && kv_admit->chosen == former);
}

static void
end_sample(TimestampTz now)
{
	KvAdmitPoint sample = {0};
	uint64		requests = kv_measure_requests();
	double		mean_busy = busy_sum / busy_looks;

	if (requests > sample_requests && now > begun)
		sample.throughput = (double) (requests - sample_requests) * 1e6 / (double) (now - begun);
	if (counting)
	{
		begin_climb(now, sample.throughput);
		return;
	}
	/* fewer may be busy because the limit does the sessions good */
	if (mean_busy < first_busy / 2.0 && sample.throughput < first_throughput / 2)
	{
		ereport(LOG,
				(errmsg("could not choose an admission limit: too many sessions became idle")));
		end(true);
		return;
	}
	kv_measure_end_sample(&sample.unfairness, &sample.variability);
	if (kv_climb_take(&sample))
		begin_limit(now);
	else
		finish(now);
}

static void
go_on(TimestampTz now, int busy)
{
	int64		lasts = kv_admission_sample_ms * INT64CONST(1000);

	busy_sum += busy;
	busy_looks++;
	if (now < begun)
		begun = now;
	if (now - begun < (settled ? lasts : lasts / 2))
		return;
	if (settled)
		end_sample(now);
	else
		begin_sample(now);
}

/* Has the load changed so much that the neighbours of the limit do not tell where the best is? */
static bool
has_changed(void)
{
	double		quotient = kv_admit->chosen_throughput > 0 ?
		kv_admit->throughput / kv_admit->chosen_throughput : 1;

	changed_ticks = pg_atomic_read_u32(&kv_admit->nwaiting) > 0 &&
		(quotient > KV_CHANGED || quotient < 1 / KV_CHANGED) ? changed_ticks + 1 : 0;
	return changed_ticks >= KV_CHANGED_TICKS || busy_mean >= 2 * kv_admit->chosen_busy ||
		busy_mean <= kv_admit->chosen_busy / 2;
}

/* May the choice be wrong by now?  Called once a second. */
static void
tick(TimestampTz now, int busy)
{
	bool		many = busy >= KV_BUSY_PER_CPU * processors();
	bool		changed;
	int64		rest;

	busy_ticks = many ? busy_ticks + 1 : 0;
	busy_mean = many ? (busy_mean * (busy_ticks - 1) + busy) / busy_ticks : 0;
	if (busy_ticks < KV_BUSY_TICKS)
		return;
	changed = kv_admit->tuned_at == 0 || has_changed();
	rest = changed && kv_admit->tuned_at != 0 ? KV_LEAST_REST_US : rest_us;
	if (ended == 0 || now < ended || now - ended >= rest)
		begin(now, changed || kv_admit->chosen == 0, false);
}

int
kv_tune_limit(void)
{
	return running && !counting ? kv_climb_limit() : kv_admit->chosen;
}

void
kv_tune_settings(void)
{
	if (running && kv_admission_limit != 0)
		end(false);
}

void
kv_tune_tick(TimestampTz now)
{
	int			busy;

	if (kv_admission_limit != 0)
		return;
	busy = kv_measure_busy();
	if (running)
		go_on(now, busy);
	else if (pg_atomic_exchange_u32(&kv_admit->tune_wanted, 0) != 0)
		begin(now, true, true);
	else if (ticked == 0 || now < ticked || now - ticked >= KV_TICK_US)
	{
		ticked = now;
		tick(now, busy);
	}
}
