/*
 * model.c
 *		The number of slots with the highest throughput, from three measurements; and which of
 *		several measured points is to be chosen.
 *
 * AppleS's model: λ(P) = P·λ0 / (P0 + B·P0·(e^(−γ·P0) − e^(−γ·P))·(P − 1)), which passes
 * through (P0, λ0).  With
 *
 *		E(P) = (e^(−γ·P0) − e^(−γ·P))·(P − 1)   and   R(P) = (P·λ0) / (P0·λ(P))
 *
 * the other two points say R − 1 = B·E, so E(P2)/E(P1) must be their quotient of R − 1.
 * E(P2)/E(P1) falls from γ = 0 to γ = ∞, so γ is found by bisection, or there is none.
 */
#include "postgres.h"

#include <math.h>

#include "admission/internal.h"

#define KV_GAMMA_LEAST	1e-7
#define KV_GAMMA_MOST	10.0
#define KV_STEPS		200

#define KV_NEAR_BEST		0.98
#define KV_WORTH_IT			0.9
#define KV_BETTER_WITHOUT	1.03
#define KV_MUCH_BETTER		1.5
#define KV_HARDLY_WORSE		1.25

static double
excess(double gamma, double from, double limit)
{
	return (exp(-gamma * from) - exp(-gamma * limit)) * (limit - 1);
}

static double
quotient(double gamma, const KvAdmitPoint *points)
{
	return excess(gamma, points[0].limit, points[2].limit) /
		excess(gamma, points[0].limit, points[1].limit);
}

static double
throughput_at(double gamma, double b, const KvAdmitPoint *first, double limit)
{
	return limit * first->throughput /
		(first->limit * (1 + b * excess(gamma, first->limit, limit)));
}

int
kv_model_peak(const KvAdmitPoint *points, int least, int most)
{
	double		loss[3];
	double		wanted;
	double		low = KV_GAMMA_LEAST;
	double		high = KV_GAMMA_MOST;
	double		b;
	double		peak = 0;
	int			best = 0;

	for (int i = 1; i < 3; i++)
	{
		if (points[i - 1].limit >= points[i].limit || points[i].throughput <= 0)
			return 0;
		loss[i] = (double) points[i].limit * points[0].throughput /
			(points[0].limit * points[i].throughput) - 1;
		if (loss[i] <= 0)
			return 0;			/* throughput grows faster than the number of slots */
	}
	wanted = loss[2] / loss[1];
	/* up to where e^(−γ·P0) can still be told from 0 */
	high = Min(high, 500.0 / points[0].limit);
	if (!(wanted < quotient(low, points) && wanted > quotient(high, points)))
		return 0;
	for (int i = 0; i < KV_STEPS; i++)
	{
		double		middle = (low + high) / 2;

		if (quotient(middle, points) > wanted)
			low = middle;
		else
			high = middle;
	}
	b = loss[1] / excess(low, points[0].limit, points[1].limit);

	for (int limit = least; limit <= most; limit++)
	{
		double		throughput = throughput_at(low, b, &points[0], limit);

		if (throughput > peak)
		{
			peak = throughput;
			best = limit;
		}
	}
	return best;
}

/* Is a value within the bound, or hardly above that of another limit?  0: no bound. */
static bool
is_bearable(double value, double other, double bound)
{
	return bound == 0 || value <= Max(bound, KV_HARDLY_WORSE * other);
}

static bool
is_as_even(const KvAdmitPoint *point, const KvAdmitPoint *other, double unfairness,
		   double variability)
{
	return is_bearable(point->unfairness, other->unfairness, unfairness) &&
		is_bearable(point->variability, other->variability, variability);
}

/* The smallest limit with nearly the throughput of the best one. */
static int
smallest_near(const KvAdmitPoint *points, int npoints, int best)
{
	int			choice = best;

	for (int i = 0; i < npoints; i++)
	{
		if (points[i].limit != 0 && points[i].limit < points[choice].limit &&
			points[i].throughput >= KV_NEAR_BEST * points[best].throughput)
			choice = i;
	}
	return choice;
}

/* The best of the limits that cost little throughput and are more even than choice; or choice. */
static int
more_even(const KvAdmitPoint *points, int npoints, int best, int choice, double unfairness,
		  double variability)
{
	int			found = -1;

	for (int i = 0; i < npoints; i++)
	{
		if (points[i].limit != 0 && points[i].throughput >= KV_WORTH_IT * points[best].throughput &&
			!is_as_even(&points[choice], &points[i], unfairness, variability) &&
			(found == -1 || points[i].throughput > points[found].throughput))
			found = i;
	}
	return found == -1 ? choice : found;
}

int
kv_model_best(const KvAdmitPoint *points, int npoints, double unfairness, double variability)
{
	int			without = -1;
	int			best = -1;
	int			choice;

	for (int i = 0; i < npoints; i++)
	{
		if (points[i].limit == 0)
			without = i;
		else if (best == -1 || points[i].throughput > points[best].throughput)
			best = i;
	}
	choice = smallest_near(points, npoints, best);
	choice = more_even(points, npoints, best, choice, unfairness, variability);
	if (points[without].throughput > KV_MUCH_BETTER * points[best].throughput)
		return without;
	if (points[without].throughput > KV_BETTER_WITHOUT * points[best].throughput &&
		is_as_even(&points[without], &points[choice], unfairness, variability))
		return without;
	return choice;
}
