/*
 * model.c
 *		The number of slots with the highest throughput, from three measurements; and how much
 *		better another limit must be.
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

#define KV_BETTER			1.01
#define KV_EVENNESS_WORTH	1.05	/* the throughput that evenness may cost */
#define KV_NO_LIMIT_WORTH	1.5		/* as much is lost by a limit at most */
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
is_as_even(const KvAdmitPoint *point, const KvAdmitPoint *other)
{
	return is_bearable(point->unfairness, other->unfairness, kv_admission_unfairness) &&
		is_bearable(point->variability, other->variability, kv_admission_variability);
}

double
kv_model_border(const KvAdmitPoint *place, const KvAdmitPoint *other, double given)
{
	double		worth = log(place->limit == 0 || other->limit == 0 ? KV_NO_LIMIT_WORTH :
							KV_EVENNESS_WORTH);
	bool		to_other = !is_as_even(place, other);
	bool		to_place = !is_as_even(other, place);

	if (to_other && !to_place)
		return Min(given - worth, 0);
	if (to_place && !to_other)
		return worth;
	return log(KV_BETTER);
}
