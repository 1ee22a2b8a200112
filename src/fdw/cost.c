/*
 * cost.c
 *		Costs of scans, in the planner's units, where 1.0 (seq_page_cost) is one 8 KB page read
 *		in sequence.
 *
 * The settings are factors of the planner's own, so that a machine has to be described only
 * once.  Their defaults are the ratios of an NVMe disk.  A 4 KB read that is waited for takes
 * five to ten times as long as one of 64 in flight.  As a value of a batch often waits for
 * fewer, it counts for a fifth.  In reads of 512 kB only the bytes count.
 */
#include "postgres.h"

#include <float.h>
#include <math.h>

#include "miscadmin.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "utils/guc.h"

#include "fdw/fdw.h"

/* The rows of a range that are read singly before large reads pay. */
#define KV_RANGE_RAMP_ROWS		32.0

/* Bytes of an entry that are sorted in addition to its key. */
#define KV_PLACED_WIDTH			28

/* Counting an entry, in cpu_operator_costs. */
#define KV_COUNT_COST			0.1

static double point_read_cost = 1.0;
static double batched_read_cost = 0.2;
static double range_read_cost = 0.02;
static double seek_cost = 50.0;

void
kv_cost_gucs(void)
{
	DefineCustomRealVariable("kvfdw.point_read_cost",
							 "Sets the planner's cost of reading one value alone, in units of "
							 "random_page_cost.",
							 NULL,
							 &point_read_cost, 1.0, 0, DBL_MAX,
							 PGC_USERSET, GUC_EXPLAIN, NULL, NULL, NULL);
	DefineCustomRealVariable("kvfdw.batched_read_cost",
							 "Sets the planner's cost of reading one of several values at once, "
							 "in units of random_page_cost.",
							 "For IN lists, short ranges, the beginning of long ranges, and "
							 "scattered values.",
							 &batched_read_cost, 0.2, 0, DBL_MAX,
							 PGC_USERSET, GUC_EXPLAIN, NULL, NULL, NULL);
	DefineCustomRealVariable("kvfdw.range_read_cost",
							 "Sets the planner's cost of one value of a long range, in units of "
							 "seq_page_cost.",
							 "The bytes of the value cost seq_page_cost per 8 kB in addition.",
							 &range_read_cost, 0.02, 0, DBL_MAX,
							 PGC_USERSET, GUC_EXPLAIN, NULL, NULL, NULL);
	DefineCustomRealVariable("kvfdw.seek_cost",
							 "Sets the planner's cost of finding a key in the index, in units of "
							 "cpu_operator_cost.",
							 "The comparisons of the search are added.",
							 &seek_cost, 50.0, 0, DBL_MAX,
							 PGC_USERSET, GUC_EXPLAIN, NULL, NULL, NULL);
}

double
kv_entries_scanned(PlannerInfo *root, RelOptInfo *rel, const KvKeyMatch *match)
{
	double		tuples = Max(rel->tuples, 1.0);
	double		scanned;

	if (match->access == KV_ACCESS_POINT)
		scanned = match->nprefixes;
	else if (match->access == KV_ACCESS_RANGE)
		scanned = tuples * clauselist_selectivity(root, match->clauses,
												  rel->relid, JOIN_INNER, NULL);
	else
		scanned = tuples;
	return Min(clamp_row_est(scanned), tuples);
}

/* The cost of finding a key. */
static Cost
cost_of_seek(const RelOptInfo *rel)
{
	return cpu_operator_cost * (seek_cost + ceil(log(Max(rel->tuples, 1.0) + 1) / log(2.0)));
}

/*
 * The cost of reading so many values of a range, the first ones singly.  Scattered values are
 * all read singly, unless the scan is in order of address.
 */
static Cost
cost_of_values(const KvRelInfo *info, double values, double ramp, bool by_address)
{
	double		scattered = info->scattered > 0 && !by_address ? info->scattered : 0;
	Cost		single = random_page_cost * batched_read_cost;
	Cost		bytes = seq_page_cost * info->width / BLCKSZ;

	ramp = Min(ramp, values);
	return ramp * single + (values - ramp) *
		(bytes + scattered * single + (1 - scattered) * seq_page_cost * range_read_cost);
}

/* The cost of sorting so many entries by address. */
static Cost
cost_of_sort(PlannerInfo *root, const KvRelInfo *info, double entries)
{
	Path		sort;

	kv_cost_sort(&sort, root, entries, KV_PLACED_WIDTH + info->key_width);
	return sort.total_cost;
}

void
kv_cost_scan(PlannerInfo *root, RelOptInfo *rel, const KvKeyMatch *match,
			 bool values, bool by_address, List *local, double rows, double sharers,
			 Cost *startup_cost, Cost *total_cost)
{
	Cost		seek = cost_of_seek(rel);
	double		scanned = kv_entries_scanned(root, rel, match);
	Cost		run = seek * match->nprefixes;
	Cost		entries = scanned * cpu_index_tuple_cost / sharers;
	QualCost	qual;

	if (values && scanned <= 1)
		run += random_page_cost * point_read_cost;
	else if (values)
		run += cost_of_values(rel->fdw_private, scanned,
							  match->access == KV_ACCESS_POINT ? scanned :
							  KV_RANGE_RAMP_ROWS * match->nprefixes, by_address);
	cost_qual_eval(&qual, local, root);
	run += scanned * (cpu_tuple_cost + qual.per_tuple) / sharers;

	*startup_cost = qual.startup + seek + rel->reltarget->cost.startup;
	if (by_address)
		*startup_cost += entries + cost_of_sort(root, rel->fdw_private, scanned);
	else
		run += entries;
	*total_cost = *startup_cost + run + rows * rel->reltarget->cost.per_tuple / sharers;
}

void
kv_cost_count(PlannerInfo *root, RelOptInfo *rel, const KvKeyMatch *match,
			  Cost *startup_cost, Cost *total_cost)
{
	double		scanned = kv_entries_scanned(root, rel, match);

	*startup_cost = cost_of_seek(rel) * match->nprefixes + scanned * cpu_operator_cost *
		KV_COUNT_COST;
	*total_cost = *startup_cost + cpu_tuple_cost;
}
