/*
 * cost.c
 *		Costs of scans, in the planner's units, where 1.0 (seq_page_cost) is one 8 KB page read
 *		in sequence; and widths of rows.
 *
 * The settings are factors of the planner's own, so that a machine has to be described only
 * once.  Their defaults are the ratios of an NVMe disk.  A 4 KB read that is waited for takes
 * five to ten times as long as one of 64 in flight.  As a value of a batch often waits for
 * fewer, it counts for a fifth.  In reads of 512 kB only the bytes count.
 *
 * Statistics have the width of columns that were analyzed.  For other columns of variable
 * length the planner takes 32 bytes, and so underestimates the sort of a million values of some
 * kilobytes.  The store knows the size of its values, and this file uses it for such columns.
 * It does so too where statistics are of values that were cut for them (analyze.c).
 */
#include "postgres.h"

#include <float.h>
#include <math.h>

#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "nodes/pathnodes.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/plancat.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "fdw/fdw.h"

/* ---- width of rows ---- */

static int32
column_width(Oid relid, Form_pg_attribute att)
{
	int32		known = get_attavgwidth(relid, att->attnum);

	return known > 0 ? known : get_typavgwidth(att->atttypid, att->atttypmod);
}

bool
kv_is_cut_in_samples(Form_pg_attribute att)
{
	return att->atttypid == TEXTOID || att->atttypid == VARCHAROID || att->atttypid == BPCHAROID ||
		att->atttypid == BYTEAOID;
}

/* Is the column stored in the value? */
static bool
is_value(const KvTable *table, int i)
{
	Form_pg_attribute att = TupleDescAttr(table->tupdesc, i);

	return !att->attisdropped && !KV_ATTRIBUTE_IS_VIRTUAL(att) && table->keyindex[i] < 0;
}

/* Is it a column of variable length without statistics? */
static bool
is_unknown(Oid relid, Form_pg_attribute att)
{
	return att->attlen < 0 && get_attavgwidth(relid, att->attnum) <= 0;
}

/*
 * Give each unknown column this width, where that is more than the planner's.  Returns by how
 * much the row grows.
 */
static double
widen_unknown(RelOptInfo *rel, Oid relid, const KvTable *table, int32 each)
{
	double		more = 0;

	for (int i = 0; i < table->tupdesc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(table->tupdesc, i);
		int32		usual;

		if (!is_value(table, i) || !is_unknown(relid, att))
			continue;
		usual = get_typavgwidth(att->atttypid, att->atttypmod);
		if (each <= usual)
			continue;
		rel->attr_widths[att->attnum - rel->min_attr] = each;
		more += each - usual;
	}
	return more;
}

int32
kv_key_width(Oid relid, const KvTable *table)
{
	int32		width = 0;

	for (int i = 0; i < table->nkeys; i++)
		width += column_width(relid, TupleDescAttr(table->tupdesc, table->keys[i].attnum - 1));
	return width;
}

int32
kv_row_width(RelOptInfo *rel, Oid relid, const KvTable *table, double (*value_width) (Oid relid))
{
	double		width = get_relation_data_width(relid, NULL);
	double		known = 0;
	double		rest;
	int			unknown = 0;
	/* the widest of those that may have been cut; where the mean is small, few were */
	Form_pg_attribute cut = NULL;
	int32		cut_to = KV_SAMPLE_WIDTH / 16;

	for (int i = 0; i < table->tupdesc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(table->tupdesc, i);
		int32		mean;

		if (!is_value(table, i))
			continue;
		if (is_unknown(relid, att))
		{
			unknown++;
			continue;
		}
		mean = column_width(relid, att);
		known += mean;
		if (mean > cut_to && kv_is_cut_in_samples(att))
		{
			cut = att;
			cut_to = mean;
		}
	}
	rest = unknown > 0 || cut != NULL ? Min(value_width(relid), MaxAllocSize) - known : 0;
	if (rest > 0 && unknown > 0)
		width += widen_unknown(rel, relid, table, (int32) (rest / unknown));
	else if (rest > 0)
	{
		rel->attr_widths[cut->attnum - rel->min_attr] = cut_to + (int32) rest;
		width += rest;
	}
	return (int32) Min(width, MaxAllocSize);
}

/* ---- costs ---- */

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
