/*
 * measure.c
 *		What the worker measures: throughput, fairness, variability of latency; and the quota
 *		that follows from them.
 *
 * Fairness is about requests of busy sessions: those that executed a request, or waited for
 * one, in the window. With n_i requests per unit of weight:
 *
 *	unfairness	the largest deviation from their mean, as a part of it
 *	Jain		(Σ n_i)² / (number · Σ n_i²); 1 is perfectly even
 *	variability	mean over sessions of standard deviation ÷ mean of the latency
 *
 * Small counts are uneven by chance. So a window lasts until sessions have had 20 requests on
 * average, but 10 s at most.
 *
 * A larger quota spares changes of slots and costs fairness. So the quota is halved when a
 * bound is reached, and raised by one while all metrics are well below. It is never so large
 * that a round through the queue would take more than a second. Of a turn's requests only the
 * first waits in the queue, so a quota of n raises the square of variability by n − 1 above
 * that of one. The quota is not raised to where that alone breaks the bound.
 */
#include "postgres.h"

#include <math.h>

#include "utils/memutils.h"

#include "admission/internal.h"

#define KV_WINDOW_REQUESTS	20
#define KV_WINDOW_US		10000000
#define KV_TICK_US			1000000
#define KV_WELL_BELOW		0.9

/* A member at the beginning of the window. */
typedef struct KvAdmitBefore
{
	int			pid;
	uint64		requests;
	uint64		latencies;
	double		latency_sum;
	double		latency_squares;
} KvAdmitBefore;

static KvAdmitBefore *before = NULL;	/* of the window */
static KvAdmitBefore *sample = NULL;	/* of the tuner's sample */
static TimestampTz window_begun = 0;
static TimestampTz ticked = 0;
static uint64 ticked_requests = 0;

uint64
kv_measure_requests(void)
{
	uint64		sum = 0;

	LWLockAcquire(&kv_admit->lock, LW_SHARED);
	for (int i = 0; i < kv_admit->nroles; i++)
		sum += kv_admit->roles[i].requests;
	for (int i = 0; i < kv_admit->nmembers; i++)
	{
		if (kv_admit->members[i].pid != 0)
			sum += kv_admit->members[i].requests;
	}
	LWLockRelease(&kv_admit->lock);
	return sum;
}

int
kv_measure_busy(void)
{
	int			busy = 0;

	for (int i = 0; i < kv_admit->nmembers; i++)
	{
		if (kv_admit->members[i].pid != 0 && kv_admit->members[i].weight > 0 &&
			GetPGProcByNumber(i)->wait_event_info != WAIT_EVENT_CLIENT_READ)
			busy++;
	}
	return busy;
}

static void
take_members(KvAdmitBefore *all)
{
	for (int i = 0; i < kv_admit->nmembers; i++)
	{
		const KvAdmitMember *member = &kv_admit->members[i];

		all[i].pid = member->pid;
		all[i].requests = member->requests;
		all[i].latencies = member->latencies;
		all[i].latency_sum = member->latency_sum;
		all[i].latency_squares = member->latency_squares;
	}
}

static void
begin_window(TimestampTz now)
{
	window_begun = now;
	take_members(before);
}

/* Sums over the busy sessions of a window. */
typedef struct KvAdmitWindow
{
	int			sessions;
	double		sum;
	double		squares;
	double		least;
	double		most;
	int			varied;			/* sessions with a variation of latency */
	double		variation;
} KvAdmitWindow;

static void
add_session(KvAdmitWindow *window, const KvAdmitMember *member, const KvAdmitBefore *old)
{
	double		n = (double) (member->requests - old->requests) / member->weight;
	double		latencies = (double) (member->latencies - old->latencies);

	window->least = window->sessions == 0 ? n : Min(window->least, n);
	window->most = window->sessions == 0 ? n : Max(window->most, n);
	window->sessions++;
	window->sum += n;
	window->squares += n * n;
	if (latencies >= 2)
	{
		double		mean = (member->latency_sum - old->latency_sum) / latencies;
		double		variance = (member->latency_squares - old->latency_squares) / latencies - mean *
			mean;

		if (mean > 0)
		{
			window->varied++;
			window->variation += sqrt(Max(variance, 0)) / mean;
		}
	}
}

static void
sum_window(KvAdmitWindow *window, const KvAdmitBefore *all)
{
	memset(window, 0, sizeof(*window));
	for (int i = 0; i < kv_admit->nmembers; i++)
	{
		KvAdmitMember *member = &kv_admit->members[i];
		const KvAdmitBefore *old = &all[i];

		if (member->pid == 0 || member->pid != old->pid || member->weight == 0 ||
			member->requests < old->requests)
			continue;
		if (member->requests > old->requests ||
			kv_admit_state(member) == KV_ADMIT_WAITING)
			add_session(window, member, old);
	}
}

static double
mean_of(const KvAdmitWindow *window)
{
	return window->sessions > 0 ? window->sum / window->sessions : 0;
}

static double
unfairness_of(const KvAdmitWindow *window)
{
	double		mean = mean_of(window);

	return mean > 0 ? Max(window->most - mean, mean - window->least) / mean : 0;
}

static double
variability_of(const KvAdmitWindow *window)
{
	return window->varied > 0 ? window->variation / window->varied : 0;
}

void
kv_measure_begin_sample(void)
{
	if (sample == NULL)
		sample = MemoryContextAllocZero(TopMemoryContext,
										kv_admit->nmembers * sizeof(KvAdmitBefore));
	take_members(sample);
}

void
kv_measure_end_sample(double *unfairness, double *variability)
{
	KvAdmitWindow window;

	sum_window(&window, sample);
	*unfairness = mean_of(&window) < KV_WINDOW_REQUESTS ? 0 : unfairness_of(&window);
	*variability = variability_of(&window);
}

/* Is a bound, if there is one, reached?  With part < 1: is the value near the bound? */
static bool
reaches(double value, double bound, double part)
{
	return bound > 0 && value >= part * bound;
}

static void
choose_quota(double unfairness, double variability)
{
	int			quota = pg_atomic_read_u32(&kv_admit->quota);
	int			waiting = pg_atomic_read_u32(&kv_admit->nwaiting);

	if (kv_admission_quota != 0 || waiting == 0)
		return;
	if (reaches(unfairness, kv_admission_unfairness, 1) ||
		reaches(variability, kv_admission_variability, 1))
		quota /= 2;
	else if (!reaches(unfairness, kv_admission_unfairness, KV_WELL_BELOW) &&
			 !reaches(sqrt(variability * variability + 1), kv_admission_variability, 1))
		quota++;
	quota = Min(quota, Min(KV_ADMIT_MAX_QUOTA, (int) (kv_admit->throughput / waiting)));
	pg_atomic_write_u32(&kv_admit->quota, Max(quota, 1));
}

static void
evaluate(TimestampTz now)
{
	KvAdmitWindow window;
	double		unfairness;
	double		variability;
	double		jain = 1;

	sum_window(&window, before);
	if (mean_of(&window) < KV_WINDOW_REQUESTS && now - window_begun < KV_WINDOW_US)
		return;
	unfairness = unfairness_of(&window);
	variability = variability_of(&window);
	if (window.sum > 0)
		jain = window.sum * window.sum / (window.sessions * window.squares);
	LWLockAcquire(&kv_admit->lock, LW_EXCLUSIVE);
	kv_admit->unfairness = unfairness;
	kv_admit->variability = variability;
	kv_admit->jain = jain;
	LWLockRelease(&kv_admit->lock);
	choose_quota(unfairness, variability);
	begin_window(now);
}

void
kv_measure_tick(TimestampTz now)
{
	uint64		requests;

	if (before == NULL)
	{
		before = MemoryContextAllocZero(TopMemoryContext,
										kv_admit->nmembers * sizeof(KvAdmitBefore));
		begin_window(now);
	}
	if (ticked != 0 && now >= ticked && now - ticked < KV_TICK_US)
		return;
	requests = kv_measure_requests();
	if (ticked != 0 && now > ticked && requests >= ticked_requests)
	{
		LWLockAcquire(&kv_admit->lock, LW_EXCLUSIVE);
		kv_admit->throughput = (double) (requests - ticked_requests) * 1e6 /
			(double) (now - ticked);
		LWLockRelease(&kv_admit->lock);
		evaluate(now);
	}
	else
		begin_window(now);		/* the counters were reset, or the clock was */
	ticked = now;
	ticked_requests = requests;
}
