/*
 * tune.c
 *		Choosing the limit by measurement, where kvfdw.admission_limit is 0.
 *
 * Throughput is measured at three limits: few slots, four times as many, and
 * without a limit.  The model through them (model.c) names a fourth; it is
 * measured too, and of the limits that were measured the smallest comes into
 * force that is within 2 % of the best.  If throughput without a limit is 3 %
 * better than that, nobody is paused.
 *
 * A measurement is the median of five samples, after a time for the sessions to
 * get used to the limit.  It begins when many sessions have been busy for ten
 * seconds; again when the load has changed so much that the choice may be wrong;
 * or on request.  If the load goes away meanwhile it is given up.
 */
#include "postgres.h"

#include <math.h>
#include <unistd.h>

#include "lib/stringinfo.h"

#include "admission/internal.h"

#define KV_SAMPLES			5
#define KV_BUSY_TICKS		10
#define KV_BUSY_PER_CPU		8
#define KV_QUEUE_TICKS		60	/* so long never empty, and throughput has fallen */
#define KV_FALLEN			(2.0 / 3.0)
#define KV_REST_US			INT64CONST(600000000)	/* between two that nobody asked for */
#define KV_NEAR_BEST		0.98
#define KV_BETTER_WITHOUT	1.03
#define KV_TICK_US			1000000

/* While it runs: */
static KvAdmitPoint points[KV_ADMIT_POINTS];
static int	npoints;
static int	point;				/* which is measured; -1: how many sessions are busy */
static int	nsamples;
static double samples[KV_SAMPLES];
static TimestampTz sample_begun;
static uint64 sample_requests;
static double busy_sum;
static int	busy_looks;
static int	first_busy;
static double first_throughput;

/* While it does not: */
static TimestampTz ticked = 0;
static int	busy_ticks = 0;
static int	busy_mean = 0;
static int	queue_ticks = 0;

static bool running = false;

static int
processors(void)
{
	return Max(1, (int) sysconf(_SC_NPROCESSORS_ONLN));
}

/* The limits to measure for so many busy sessions; false if there is nothing between them. */
static bool
choose_points(int busy)
{
	int			least = 2 * processors();
	int			few = busy < 64 ? Max(busy / 16, least) : Max(8, least);
	int			more = busy < 64 ? Max(busy / 4, 2 * few) : 4 * few;

	points[0].limit = few;
	points[1].limit = more;
	points[2].limit = busy;
	npoints = 3;
	return more < busy;
}

static void
show(bool tuning)
{
	LWLockAcquire(&kv_admit->lock, LW_EXCLUSIVE);
	kv_admit->tuning = tuning;
	LWLockRelease(&kv_admit->lock);
}

/* Of the points all but that without a limit are limits. */
static int
limit_of(int number)
{
	return number == 2 ? 0 : points[number].limit;
}

static void
begin_point(int number, TimestampTz now)
{
	point = number;
	nsamples = -1;				/* the first is for getting used to it */
	sample_begun = now;
	sample_requests = kv_measure_requests();
	busy_sum = busy_looks = 0;
	kv_queue_set_limit(kv_tune_limit());
}

static void
begin(TimestampTz now)
{
	running = true;
	show(true);
	begin_point(-1, now);
}

static void
give_up(void)
{
	running = false;
	busy_ticks = queue_ticks = 0;
	kv_queue_set_limit(kv_tune_limit());
	show(false);				/* the view has the limit by now */
}

static int
compare_samples(const void *a, const void *b)
{
	double		x = *(const double *) a;
	double		y = *(const double *) b;

	return x < y ? -1 : x > y;
}

/* It is known how many sessions are busy. */
static void
begin_points(TimestampTz now, double throughput)
{
	first_throughput = throughput;
	first_busy = (int) (busy_sum / busy_looks);
	if (choose_points(first_busy))
	{
		begin_point(0, now);
		return;
	}
	ereport(LOG,
			(errmsg("kvfdw admission: %d busy sessions are too few to choose a limit", first_busy)));
	give_up();
}

/* All points are measured: which is it? */
static int
best_point(void)
{
	double		best = 0;
	int			choice = 2;

	for (int i = 0; i < npoints; i++)
	{
		if (i != 2)
			best = Max(best, points[i].throughput);
	}
	if (points[2].throughput > KV_BETTER_WITHOUT * best)
		return 2;
	for (int i = 0; i < npoints; i++)
	{
		if (i != 2 && points[i].throughput >= KV_NEAR_BEST * best &&
			(choice == 2 || points[i].limit < points[choice].limit))
			choice = i;
	}
	return choice;
}

static void
finish(TimestampTz now)
{
	int			best = best_point();
	StringInfoData text;

	kv_admit->chosen = limit_of(best);
	kv_admit->chosen_throughput = points[best].throughput;
	kv_admit->chosen_busy = first_busy;
	initStringInfo(&text);
	LWLockAcquire(&kv_admit->lock, LW_EXCLUSIVE);
	kv_admit->tuned_at = now;
	kv_admit->npoints = npoints;
	for (int i = 0; i < npoints; i++)
	{
		kv_admit->points[i].limit = limit_of(i);
		kv_admit->points[i].throughput = points[i].throughput;
	}
	LWLockRelease(&kv_admit->lock);
	for (int i = 0; i < npoints; i++)
		appendStringInfo(&text, "%s%d: %.0f/s", i == 0 ? "" : ", ", limit_of(i), points[i].throughput);
	if (kv_admit->chosen != 0)
		ereport(LOG,
				(errmsg("kvfdw admission: limit %d chosen", kv_admit->chosen),
				 errdetail("Requests at the limits that were tried, 0 being none: %s.", text.data)));
	else
		ereport(LOG,
				(errmsg("kvfdw admission: no limit chosen"),
				 errdetail("Requests at the limits that were tried, 0 being none: %s.", text.data)));
	pfree(text.data);
	give_up();
}

/* The three are measured: the model's, or what lies between, if it is another. */
static bool
add_fourth(void)
{
	int			least = Min(points[0].limit, 2 * processors());
	int			limit = kv_model_peak(points, least, points[2].limit);

	if (limit == 0)
		limit = (int) sqrt((double) points[1].limit * points[2].limit);
	if (limit == points[0].limit || limit == points[1].limit || limit >= points[2].limit)
		return false;
	points[npoints++].limit = limit;
	return true;
}

static void
end_point(TimestampTz now)
{
	qsort(samples, KV_SAMPLES, sizeof(double), compare_samples);
	points[point].throughput = samples[KV_SAMPLES / 2];
	if (point + 1 < npoints || (point == 2 && add_fourth()))
		begin_point(point + 1, now);
	else
		finish(now);
}

static void
go_on(TimestampTz now, int busy)
{
	uint64		requests;
	double		throughput;
	double		mean_busy;

	busy_sum += busy;
	busy_looks++;
	if (now < sample_begun)
		sample_begun = now;
	if (now - sample_begun < kv_admission_sample_ms * INT64CONST(1000))
		return;
	requests = kv_measure_requests();
	throughput = requests < sample_requests ? 0 :
		(double) (requests - sample_requests) * 1e6 / (double) (now - sample_begun);
	mean_busy = busy_sum / busy_looks;
	if (point == -1)
	{
		begin_points(now, throughput);
		return;
	}
	/* fewer may be busy because the limit does them good */
	if (mean_busy < first_busy / 2.0 && throughput < first_throughput / 2)
	{
		ereport(LOG,
				(errmsg("kvfdw admission: choosing a limit is given up, because fewer sessions are busy")));
		give_up();
		return;
	}
	if (nsamples >= 0)
		samples[nsamples] = throughput;
	nsamples++;
	sample_begun = now;
	sample_requests = requests;
	busy_sum = busy_looks = 0;
	if (nsamples == KV_SAMPLES)
		end_point(now);
}

/* May the choice be wrong by now?  Once a second. */
static bool
is_due(TimestampTz now, int busy)
{
	bool		many = busy >= KV_BUSY_PER_CPU * processors();

	busy_ticks = many ? busy_ticks + 1 : 0;
	busy_mean = many ? (busy_mean * (busy_ticks - 1) + busy) / busy_ticks : 0;
	queue_ticks = kv_admit->chosen != 0 && pg_atomic_read_u32(&kv_admit->nwaiting) > 0 &&
		kv_admit->throughput < KV_FALLEN * kv_admit->chosen_throughput ? queue_ticks + 1 : 0;
	if (busy_ticks < KV_BUSY_TICKS)
		return false;
	if (kv_admit->tuned_at == 0)
		return true;
	if (now - kv_admit->tuned_at < KV_REST_US)
		return false;
	return queue_ticks >= KV_QUEUE_TICKS || (kv_admit->chosen == 0 && busy_mean >= 2 * kv_admit->chosen_busy);
}

int
kv_tune_limit(void)
{
	return running && point >= 0 ? limit_of(point) : kv_admit->chosen;
}

void
kv_tune_settings(void)
{
	if (running && kv_admission_limit != 0)
		give_up();
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
		begin(now);
	else if (ticked == 0 || now < ticked || now - ticked >= KV_TICK_US)
	{
		ticked = now;
		if (is_due(now, busy))
			begin(now);
	}
}
