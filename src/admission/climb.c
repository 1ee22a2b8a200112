/*
 * climb.c
 *		Finds the limit by samples, one after another; tune.c takes them.
 *
 * A limit is a place on a ladder.  The first place has two slots per processor, each next one
 * √2 times as many.  The last place, from the number of busy sessions on, is no limit.
 *
 *	PROPOSE	three places are measured twice: few slots, two or four times as many, no limit.  The
 *			model through them (model.c) proposes a place.
 *	COMPARE	the place and a neighbour on each side are measured in turn, every second round
 *			backwards.  What counts is the logarithm of a neighbour's throughput ÷ the
 *			place's in the same round: loads and machines change, and a place must not
 *			win because it was measured in a better moment.
 *
 * A neighbour is judged when the mean of its ratios is farther from the border than twice the
 * standard error; after three rounds at least, and six at most.  A better neighbour becomes the
 * place; then only its neighbour on the far side is compared.  The climb is over when no
 * neighbour is left.  A place is left only in one direction, so every climb ends.
 *
 * The border is 1 % more throughput.  It is lower where the place breaks the bounds of
 * unfairness or variability by more than the neighbour does, and higher in the opposite case
 * (kv_model_border).
 *
 * This file looks at nothing but its arguments and settings, so tests can replay loads.
 */
#include "postgres.h"

#include <math.h>

#include "admission/internal.h"

#define KV_PLACES			48
#define KV_PROPOSE_ROUNDS	2
#define KV_LEAST_ROUNDS		3
#define KV_MOST_ROUNDS		6
#define KV_PROPOSE_STRIDE	2	/* places between neighbours: double, or half */
#define KV_COMPARE_STRIDE	1
#define KV_MANY_BUSY		64

/* What was measured at a place. */
typedef struct KvClimbSum
{
	int			samples;
	double		throughput;
	double		unfairness;
	double		variability;
} KvClimbSum;

/* The comparison of a neighbour with the place. */
typedef struct KvClimbPair
{
	int			place;			/* of the neighbour; -1: there is none, or it is not better */
	int			rounds;
	double		sum;			/* of the logarithms, and of their squares */
	double		squares;
	KvClimbSum	ours;
	KvClimbSum	its;
} KvClimbPair;

static struct
{
	bool		proposing;
	int			least;			/* the limit at the first place */
	int			busy;
	int			top;			/* the place without a limit */
	int			place;
	int			stride;
	double		given;			/* logarithm of the throughput that was given up for evenness */
	KvClimbPair pairs[2];		/* below and above */
	int			members[3];		/* the places that are measured in this round, in order */
	KvAdmitPoint samples[3];
	int			nmembers;
	int			step;
	int			rounds;
	KvClimbSum	sums[KV_PLACES];
} climb;

static int
limit_at(int place)
{
	return place >= climb.top ? 0 :
		(int) rint(climb.least * pow(2, place / 2.0));
}

/* The place of a limit; for 0, and for one that no busy session would notice, the last one. */
static int
place_of(int limit)
{
	int			place = 0;

	if (limit == 0 || limit >= climb.busy)
		return climb.top;
	while (place + 1 < climb.top && limit_at(place + 1) <= limit)
		place++;
	return place;
}

static void
begin_climb(int least, int busy)
{
	memset(&climb, 0, sizeof(climb));
	climb.least = least;
	climb.busy = busy;
	climb.top = KV_PLACES - 1;
	for (int place = KV_PLACES - 2; place >= 0; place--)
	{
		if (limit_at(place) >= busy)
			climb.top = place;
	}
}

static void
add_sample(KvClimbSum *sum, const KvAdmitPoint *sample)
{
	sum->samples++;
	sum->throughput += sample->throughput;
	sum->unfairness += sample->unfairness;
	sum->variability += sample->variability;
}

static KvAdmitPoint
mean_at(const KvClimbSum *sum, int place)
{
	int			n = Max(sum->samples, 1);

	return (KvAdmitPoint) {.limit = limit_at(place), .throughput = sum->throughput / n,
		.unfairness = sum->unfairness / n, .variability = sum->variability / n};
}

static void
add_member(int place)
{
	climb.members[climb.nmembers++] = place;
}

static void
begin_pair(KvClimbPair *pair, int place)
{
	memset(pair, 0, sizeof(*pair));
	pair->place = place < 0 || place > climb.top ? -1 : place;
}

/* From the place up or down; never past the ends, which are neighbours as well. */
static int
neighbour(int direction)
{
	int			place = climb.place + direction * climb.stride;

	if (climb.place == (direction < 0 ? 0 : climb.top))
		return -1;
	return Min(Max(place, 0), climb.top);
}

static void
begin_round(void)
{
	climb.nmembers = climb.step = 0;
	if (climb.proposing)
		return;
	if (climb.pairs[0].place >= 0)
		add_member(climb.pairs[0].place);
	add_member(climb.place);
	if (climb.pairs[1].place >= 0)
		add_member(climb.pairs[1].place);
}

static void
begin_compare(int place, int stride)
{
	climb.proposing = false;
	climb.place = place;
	climb.stride = stride;
	climb.rounds = 0;
	begin_pair(&climb.pairs[0], neighbour(-1));
	begin_pair(&climb.pairs[1], neighbour(1));
	begin_round();
}

bool
kv_climb_propose(int least, int busy)
{
	int			few;
	int			more;

	begin_climb(least, busy);
	few = place_of(busy < KV_MANY_BUSY ? busy / 16 : 8);
	more = few + (few + 4 < climb.top ? 4 : 2);
	if (more >= climb.top)
		return false;
	climb.proposing = true;
	begin_round();
	add_member(few);
	add_member(more);
	add_member(climb.top);
	return true;
}

void
kv_climb_compare(int least, int busy, int limit)
{
	begin_climb(least, busy);
	begin_compare(place_of(limit), KV_COMPARE_STRIDE);
}

/* Every second round goes backwards. */
static int
member_of_step(void)
{
	return climb.rounds % 2 == 0 ? climb.step : climb.nmembers - 1 - climb.step;
}

int
kv_climb_limit(void)
{
	return limit_at(climb.members[member_of_step()]);
}

int
kv_climb_place(void)
{
	return limit_at(climb.place);
}

/* The three places are measured: where does the climb begin? */
static int
proposed(void)
{
	KvAdmitPoint points[3];
	int			best;
	int			peak;

	for (int i = 0; i < 3; i++)
		points[i] = mean_at(&climb.sums[climb.members[i]], climb.members[i]);
	best = points[1].throughput > points[0].throughput ? 1 : 0;
	if (log(points[2].throughput / points[best].throughput) >
		kv_model_border(&points[best], &points[2], 0))
		return climb.top;
	points[2].limit = climb.busy;
	peak = kv_model_peak(points, limit_at(0), climb.busy);
	return peak == 0 ? climb.members[best] : Min(place_of(peak), climb.top - 1);
}

static void
add_ratio(KvClimbPair *pair, const KvAdmitPoint *ours, const KvAdmitPoint *its)
{
	double		ratio = log(its->throughput / ours->throughput);

	pair->rounds++;
	pair->sum += ratio;
	pair->squares += ratio * ratio;
	add_sample(&pair->ours, ours);
	add_sample(&pair->its, its);
}

/* Is the neighbour better?  *open: more rounds are needed to tell. */
static bool
judge(const KvClimbPair *pair, bool *open)
{
	KvAdmitPoint ours = mean_at(&pair->ours, climb.place);
	KvAdmitPoint its = mean_at(&pair->its, pair->place);
	double		n = pair->rounds;
	double		mean = pair->sum / n;
	double		variance = Max(pair->squares / n - mean * mean, 0) * n / Max(n - 1, 1);
	double		beyond = mean - kv_model_border(&ours, &its, climb.given);

	*open = pair->rounds < KV_LEAST_ROUNDS ||
		(pair->rounds < KV_MOST_ROUNDS && fabs(beyond) < 2 * sqrt(variance / n));
	return beyond > 0;
}

/* The neighbour in this direction is better: it becomes the place. */
static void
move(int direction)
{
	KvClimbPair *pair = &climb.pairs[direction < 0 ? 0 : 1];

	climb.given = Max(climb.given - pair->sum / pair->rounds, 0);
	climb.place = pair->place;
	begin_pair(&climb.pairs[direction < 0 ? 1 : 0], -1);
	begin_pair(pair, neighbour(direction));
}

static void
end_compare_round(void)
{
	const KvAdmitPoint *ours = NULL;
	double		gain[2] = {-1, -1};

	for (int i = 0; i < climb.nmembers; i++)
	{
		if (climb.members[i] == climb.place)
			ours = &climb.samples[i];
	}
	for (int side = 0; side < 2; side++)
	{
		KvClimbPair *pair = &climb.pairs[side];
		bool		open;

		if (pair->place < 0)
			continue;
		add_ratio(pair, ours, &climb.samples[side == 0 ? 0 : climb.nmembers - 1]);
		if (judge(pair, &open) && !open)
			gain[side] = exp(pair->sum / pair->rounds);
		else if (!open)
			pair->place = -1;
	}
	if (gain[0] > 0 || gain[1] > 0)
		move(gain[0] > gain[1] ? -1 : 1);
}

bool
kv_climb_take(const KvAdmitPoint *sample)
{
	int			member = member_of_step();

	climb.samples[member] = *sample;
	climb.samples[member].throughput = Max(sample->throughput, 1e-3);
	add_sample(&climb.sums[climb.members[member]], &climb.samples[member]);
	if (++climb.step < climb.nmembers)
		return true;
	climb.step = 0;
	climb.rounds++;
	if (!climb.proposing)
	{
		end_compare_round();
		begin_round();
	}
	else if (climb.rounds == KV_PROPOSE_ROUNDS)
		begin_compare(proposed(), KV_PROPOSE_STRIDE);
	return climb.nmembers > 1;
}

int
kv_climb_points(KvAdmitPoint *points, int most, double *throughput)
{
	int			n = 0;

	*throughput = mean_at(&climb.sums[climb.place], climb.place).throughput;
	for (int place = 0; place <= climb.top && n < most; place++)
	{
		if (climb.sums[place].samples > 0)
			points[n++] = mean_at(&climb.sums[place], place);
	}
	return n;
}
