/*
 * tune.c
 *		Chooses the limit by measurement, where kvfdw.admission_limit is 0.
 *
 * First three points are measured: few slots, four times as many, and no limit.  The model
 * through them (model.c) names a limit.  Two more points are that limit, and one between the
 * three where the model's limit is not.  Then all five are measured and kv_model_best compares
 * them.
 *
 * All points of a stage are measured in turn, in several rounds, every second one backwards.
 * The measure is a point's share of its round: loads and machines change during a measurement,
 * and a point must not win because it was measured in a better moment.  The median of the
 * rounds is taken.  Before each sample, which lasts kvfdw.admission_sample, the sessions have
 * half as long to adapt to the limit.
 *
 * Tuning begins when many sessions have been busy for ten seconds; again when the load has
 * changed so much that the choice may be wrong; or on request.  If the load goes away during
 * the measurement, tuning is given up.
 */
#include "postgres.h"

#include <math.h>
#include <unistd.h>

#include "lib/stringinfo.h"

#include "admission/internal.h"

#define KV_FIRST_ROUNDS		2
#define KV_ROUNDS			5
#define KV_WITHOUT			2	/* the point without a limit */
#define KV_BUSY_TICKS		10
#define KV_BUSY_PER_CPU		8
#define KV_QUEUE_TICKS		60	/* the queue was never empty for so long, and throughput has
								 * fallen */
#define KV_FALLEN			(2.0 / 3.0)
#define KV_REST_US			INT64CONST(600000000) /* between two tunings that were not requested */
#define KV_TICK_US			1000000

/* While tuning runs: */
static KvAdmitPoint points[KV_ADMIT_POINTS];
static int	npoints;
static KvAdmitPoint samples[KV_ROUNDS][KV_ADMIT_POINTS];
static int	rounds;				/* of this stage */
static int	rounds_done;
static int	step;				/* of the round */
static int	point;				/* the measured point; -1: how many sessions are busy */
static bool settled;			/* the sessions have adapted: the sample has begun */
static TimestampTz begun;		/* the step, or its sample */
static uint64 sample_requests;
static double busy_sum;
static int	busy_looks;
static int	first_busy;
static double first_throughput;

/* While tuning does not run: */
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

/* The first points for so many busy sessions; false if there is nothing between the points. */
static bool
choose_points(int busy)
{
	int			least = 2 * processors();
	int			few = busy < 64 ? Max(busy / 16, least) : Max(8, least);
	int			more = busy < 64 ? Max(busy / 4, 2 * few) : 4 * few;

	points[0].limit = few;
	points[1].limit = more;
	points[KV_WITHOUT].limit = 0;
	npoints = 3;
	return more < busy;
}

/* The three points are measured: add the points of the second stage. */
static void
add_points(void)
{
	KvAdmitPoint known[3] = {points[0], points[1], points[KV_WITHOUT]};
	int			few = known[0].limit;
	int			more = known[1].limit;
	int			low = (int) sqrt((double) few * more);
	int			high = (int) sqrt((double) more * first_busy);
	int			peak;

	known[2].limit = first_busy;
	peak = kv_model_peak(known, Min(few, 2 * processors()), first_busy);
	if (peak > more && peak < first_busy)
		high = peak;
	else if (peak > 0 && peak < more && peak != few)
		low = peak;
	if (low != few && low < more)
		points[npoints++].limit = low;
	if (high > more && high < first_busy)
		points[npoints++].limit = high;
}

static void
show(bool tuning)
{
	LWLockAcquire(&kv_admit->lock, LW_EXCLUSIVE);
	kv_admit->tuning = tuning;
	LWLockRelease(&kv_admit->lock);
}

static void
begin_step(TimestampTz now)
{
	point = rounds_done % 2 == 0 ? step : npoints - 1 - step;
	settled = false;
	begun = now;
	busy_sum = busy_looks = 0;
	kv_queue_set_limit(kv_tune_limit());
}

static void
begin_stage(int stage_rounds, TimestampTz now)
{
	rounds = stage_rounds;
	rounds_done = step = 0;
	begin_step(now);
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
begin(TimestampTz now)
{
	running = true;
	show(true);
	point = -1;
	busy_sum = busy_looks = 0;
	kv_queue_set_limit(kv_tune_limit());
	begin_sample(now);
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

/* The number of busy sessions is known: begin the first stage. */
static void
begin_points(TimestampTz now, double throughput)
{
	first_throughput = throughput;
	first_busy = (int) (busy_sum / busy_looks);
	if (choose_points(first_busy))
	{
		begin_stage(KV_FIRST_ROUNDS, now);
		return;
	}
	ereport(LOG,
			(errmsg("could not choose an admission limit: %d busy sessions are too few",
					first_busy)));
	give_up();
}

static double
median(double *values, int n)
{
	qsort(values, n, sizeof(double), compare_samples);
	return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

/* The stage is over: compute the points from their samples. */
static void
sum_up(void)
{
	double		sums[KV_ROUNDS] = {0};
	double		shares[KV_ROUNDS];
	double		unfairness[KV_ROUNDS];
	double		variability[KV_ROUNDS];

	for (int r = 0; r < rounds; r++)
	{
		for (int p = 0; p < npoints; p++)
			sums[r] += samples[r][p].throughput;
	}
	for (int p = 0; p < npoints; p++)
	{
		for (int r = 0; r < rounds; r++)
		{
			shares[r] = sums[r] > 0 ? samples[r][p].throughput / sums[r] : 0;
			unfairness[r] = samples[r][p].unfairness;
			variability[r] = samples[r][p].variability;
		}
		points[p].throughput = median(shares, rounds);
		points[p].unfairness = median(unfairness, rounds);
		points[p].variability = median(variability, rounds);
	}
	for (int p = 0; p < npoints; p++)
		points[p].throughput *= median(sums, rounds);
}

static void
finish(TimestampTz now)
{
	int			best = kv_model_best(points, npoints, kv_admission_unfairness,
									 kv_admission_variability);
	StringInfoData text;

	kv_admit->chosen = points[best].limit;
	kv_admit->chosen_throughput = points[best].throughput;
	kv_admit->chosen_busy = first_busy;
	initStringInfo(&text);
	LWLockAcquire(&kv_admit->lock, LW_EXCLUSIVE);
	kv_admit->tuned_at = now;
	kv_admit->npoints = npoints;
	memcpy(kv_admit->points, points, npoints * sizeof(KvAdmitPoint));
	LWLockRelease(&kv_admit->lock);
	for (int i = 0; i < npoints; i++)
		appendStringInfo(&text, "%s%d: %.0f/s (%.2f, %.2f)", i == 0 ? "" : ", ", points[i].limit,
						 points[i].throughput, points[i].unfairness, points[i].variability);
	ereport(LOG,
			(kv_admit->chosen != 0 ?
			 errmsg("kvfdw has chosen the admission limit %d", kv_admit->chosen) :
			 errmsg("kvfdw has chosen to work without an admission limit"),
			 errdetail("Requests per second, unfairness and variability at each limit, 0 being no "
					   "limit: %s.", text.data)));
	pfree(text.data);
	give_up();
}

static void
next_step(TimestampTz now)
{
	if (++step == npoints)
	{
		step = 0;
		rounds_done++;
	}
	if (rounds_done < rounds)
	{
		begin_step(now);
		return;
	}
	sum_up();
	if (rounds == KV_ROUNDS)
		finish(now);
	else
	{
		add_points();
		begin_stage(KV_ROUNDS, now);
	}
}

static void
end_sample(TimestampTz now)
{
	uint64		requests = kv_measure_requests();
	double		throughput = 0;
	double		mean_busy = busy_sum / busy_looks;

	if (requests > sample_requests && now > begun)
		throughput = (double) (requests - sample_requests) * 1e6 / (double) (now - begun);
	if (point == -1)
	{
		begin_points(now, throughput);
		return;
	}
	/* fewer may be busy because the limit does the sessions good */
	if (mean_busy < first_busy / 2.0 && throughput < first_throughput / 2)
	{
		ereport(LOG,
				(errmsg("could not choose an admission limit: too many sessions became idle")));
		give_up();
		return;
	}
	samples[rounds_done][point].throughput = throughput;
	kv_measure_end_sample(&samples[rounds_done][point].unfairness,
						  &samples[rounds_done][point].variability);
	next_step(now);
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

/* May the choice be wrong by now?  Called once a second. */
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
	return queue_ticks >= KV_QUEUE_TICKS ||
		(kv_admit->chosen == 0 && busy_mean >= 2 * kv_admit->chosen_busy);
}

int
kv_tune_limit(void)
{
	return running && point >= 0 ? points[point].limit : kv_admit->chosen;
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
