/*
 * width.c
 *		How wide rows are, as the planner is told.
 *
 * Statistics say it of columns that were analyzed.  Of the others the planner takes
 * 32 bytes for one that may have any length, and thinks that to sort a million values of
 * some kilobytes is cheap; but the store knows how many bytes its values have.  So does it where
 * statistics are of values that were cut for them (analyze.c).
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

/* Is it a column whose length only its values say, and no statistics do? */
static bool
is_unknown(Oid relid, Form_pg_attribute att)
{
	return att->attlen < 0 && get_attavgwidth(relid, att->attnum) <= 0;
}

/*
 * What the values' bytes leave for each column that is_unknown, besides what the others have; 0: there is none,
 * or nothing is left.
 */
static int32
unknown_width(Oid relid, const KvTable *table, double value_width)
{
	int			unknown = 0;

	for (int i = 0; i < table->tupdesc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(table->tupdesc, i);

		if (att->attisdropped || KV_ATTRIBUTE_IS_VIRTUAL(att) || table->keyindex[i] >= 0)
			continue;
		if (is_unknown(relid, att))
			unknown++;
		else
			value_width -= column_width(relid, att);
	}
	return unknown > 0 && value_width > 0 ? (int32) Min(value_width / unknown, MaxAllocSize) : 0;
}

bool
kv_is_cut_in_samples(Form_pg_attribute att)
{
	return att->atttypid == TEXTOID || att->atttypid == VARCHAROID || att->atttypid == BPCHAROID || att->atttypid == BYTEAOID;
}

/*
 * The column whose values were cut, if any: the widest of those that may have been.  Where the mean is small, few or
 * none were.
 */
static Form_pg_attribute
cut_column(Oid relid, const KvTable *table)
{
	Form_pg_attribute widest = NULL;
	int32		most = KV_SAMPLE_WIDTH / 16;

	for (int i = 0; i < table->tupdesc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(table->tupdesc, i);
		int32		width;

		if (att->attisdropped || KV_ATTRIBUTE_IS_VIRTUAL(att) || table->keyindex[i] >= 0 || !kv_is_cut_in_samples(att))
			continue;
		width = get_attavgwidth(relid, att->attnum);
		if (width > most)
		{
			most = width;
			widest = att;
		}
	}
	return widest;
}

/* What the values' bytes leave for that column, where there are statistics of all. */
static int32
cut_width(Oid relid, const KvTable *table, double value_width)
{
	for (int i = 0; i < table->tupdesc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(table->tupdesc, i);

		if (!att->attisdropped && !KV_ATTRIBUTE_IS_VIRTUAL(att) && table->keyindex[i] < 0)
			value_width -= column_width(relid, att);
	}
	return (int32) Min(Max(value_width, 0), MaxAllocSize);
}

bool
kv_widths_are_known(Oid relid, const KvTable *table)
{
	return unknown_width(relid, table, MaxAllocSize) == 0 && cut_column(relid, table) == NULL;
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
kv_row_width(RelOptInfo *rel, Oid relid, const KvTable *table, double value_width)
{
	double		width = get_relation_data_width(relid, NULL);
	int32		each = unknown_width(relid, table, value_width);
	Form_pg_attribute cut = each > 0 ? NULL : cut_column(relid, table);

	if (cut != NULL)
	{
		int32		more = cut_width(relid, table, value_width);

		if (more > 0)
			rel->attr_widths[cut->attnum - rel->min_attr] = column_width(relid, cut) + more;
		width += more;
	}

	for (int i = 0; each > 0 && i < table->tupdesc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(table->tupdesc, i);
		int32		usual;

		if (att->attisdropped || KV_ATTRIBUTE_IS_VIRTUAL(att) || table->keyindex[i] >= 0 ||
			!is_unknown(relid, att))
			continue;
		usual = column_width(relid, att);
		if (each <= usual)
			continue;
		rel->attr_widths[att->attnum - rel->min_attr] = each;
		width += each - usual;
	}
	return (int32) Min(width, MaxAllocSize);
}
