/*
 * width.c
 *		Width of rows, for the planner.
 *
 * Statistics have the width of columns that were analyzed.  For other columns of variable
 * length the planner takes 32 bytes, and so underestimates the sort of a million values of some
 * kilobytes.  The store knows the size of its values, and this file uses it for such columns.
 * It does so too where statistics are of values that were cut for them (analyze.c).
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "nodes/pathnodes.h"
#include "optimizer/plancat.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "fdw/fdw.h"

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
