/*
 * keyrange.c
 *		Turns key conditions into keys and key ranges, at execution time.
 *
 * A condition's value is evaluated once per (re)scan and fitted among the values of its column
 * (KvFit): where the types differ, "smallint_key < 1e6" must be all keys and not an overflow
 * error.  The pinned columns give a list of encoded values each; their combinations, walked
 * like an odometer in key order or against it, are the whole keys of a point scan, or the
 * prefixes to which a range of the next column is appended.  So rows are returned in key order
 * for all conditions, and memory grows with the lists, not with the number of combinations.
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "datatype/timestamp.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/date.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "engine/rows.h"
#include "fdw/fdw.h"

#define KV_SHORT_KEY	64		/* bytes of a key and its terminator that fit without growing */

typedef struct KvScanCondition
{
	int			key;
	KvConditionKind kind;
	Oid			valuetype;
	ExprState  *value;			/* NULL: it is in known */
	Datum		known;
	bool		known_isnull;
} KvScanCondition;

/* The values one pinned column may have, encoded, sorted and distinct. */
typedef struct KvColumnValues
{
	KvKey	   *values;
	KvKey		only;			/* where values is, if there is one */
	int			n;
	int			position;
} KvColumnValues;

struct KvKeyRanges
{
	const KvTable *table;
	KvScanCondition *conditions;
	int			nconditions;
	int			npinned;

	/* result of the conditions in this (re)scan */
	KvColumnValues *columns;	/* npinned of them */
	bool		has_lo,
				has_hi;
	StringInfoData lo;			/* bounds of the column after the pinned ones, but not of points: */
	StringInfoData hi;			/* lo is inclusive, hi is exclusive */
	bool		backward;
	bool		exhausted;

	/* the last call's result */
	StringInfoData lo_result;
	StringInfoData hi_result;	/* not used for points */
};

/* The position of another type's value among a column's own values. */
typedef enum KvFit
{
	KV_FIT_BEFORE_ALL,		/* less than every value of the column's type */
	KV_FIT_BELOW,				/* less than *own, with nothing in between */
	KV_FIT_AT,				/* equal to *own */
	KV_FIT_ABOVE,				/* greater than *own, with nothing in between */
	KV_FIT_AFTER_ALL
} KvFit;

static KvFit
fit_integer(Oid typid, int64 value, Datum *own)
{
	int64		min = typid == INT2OID ? PG_INT16_MIN :
		typid == INT4OID ? PG_INT32_MIN : PG_INT64_MIN;
	int64		max = typid == INT2OID ? PG_INT16_MAX :
		typid == INT4OID ? PG_INT32_MAX : PG_INT64_MAX;

	if (value < min)
		return KV_FIT_BEFORE_ALL;
	if (value > max)
		return KV_FIT_AFTER_ALL;
	if (typid == INT2OID)
		*own = Int16GetDatum((int16) value);
	else if (typid == INT4OID)
		*own = Int32GetDatum((int32) value);
	else
		*own = Int64GetDatum(value);
	return KV_FIT_AT;
}

/* float4 among float8 is exact; float8 among float4 falls between two. */
static KvFit
fit_float4(double value, Datum *own)
{
	float		nearest = (float) value;

	*own = Float4GetDatum(nearest);
	if (isnan(value) || (double) nearest == value)
		return KV_FIT_AT;
	return (double) nearest < value ? KV_FIT_ABOVE : KV_FIT_BELOW;
}

static KvFit
fit_timestamp_in_date(Timestamp value, Datum *own)
{
	int64		day;

	if (TIMESTAMP_NOT_FINITE(value))
	{
		*own = DateADTGetDatum(TIMESTAMP_IS_NOEND(value) ? DATEVAL_NOEND : DATEVAL_NOBEGIN);
		return KV_FIT_AT;
	}
	day = value / USECS_PER_DAY;
	if (value < 0 && day * USECS_PER_DAY != value)
		day--;					/* round down, not towards zero */
	*own = DateADTGetDatum((DateADT) day);
	return day * USECS_PER_DAY == value ? KV_FIT_AT : KV_FIT_ABOVE;
}

/* Every finite timestamp is below 'infinity' and above '-infinity'. */
static KvFit
fit_in_timestamp(Timestamp value, int overflow, Datum *own)
{
	if (overflow == 0)
	{
		*own = TimestampGetDatum(value);
		return KV_FIT_AT;
	}
	*own = TimestampGetDatum(overflow > 0 ? DT_NOEND : DT_NOBEGIN);
	return overflow > 0 ? KV_FIT_BELOW : KV_FIT_ABOVE;
}

/*
 * Fit a value of type valuetype among the values of a column.  *own is set unless the result is
 * BEFORE_ALL or AFTER_ALL.  Never an error.  keycond.c admits only the types below; all others
 * are the column's own.
 */
static KvFit
fit_value(const KvKeyColumn *column, Oid valuetype, Datum value, Datum *own)
{
	int			overflow = 0;

	*own = value;
	if (valuetype == column->typid)
		return KV_FIT_AT;

	switch (column->typid)
	{
		case INT2OID:
		case INT4OID:
		case INT8OID:
			return fit_integer(column->typid,
								 valuetype == INT2OID ? DatumGetInt16(value) :
								 valuetype == INT4OID ? DatumGetInt32(value) :
								 DatumGetInt64(value), own);
		case FLOAT4OID:
			return fit_float4(DatumGetFloat8(value), own);
		case FLOAT8OID:
			*own = Float8GetDatum((double) DatumGetFloat4(value));
			return KV_FIT_AT;
		case DATEOID:
			return fit_timestamp_in_date(DatumGetTimestamp(value), own);
		case TIMESTAMPOID:
			{
				Timestamp	moment;

				moment = kv_date_to_timestamp(DatumGetDateADT(value),
													 &overflow);
				return fit_in_timestamp(moment, overflow, own);
			}
		case TIMESTAMPTZOID:
			{
				TimestampTz moment;

				if (valuetype == DATEOID)
					moment = kv_date_to_timestamptz(DatumGetDateADT(value),
														   &overflow);
				else
					moment = kv_timestamp_to_timestamptz(DatumGetTimestamp(value),
																&overflow);
				return fit_in_timestamp(moment, overflow, own);
			}
		default:
			return KV_FIT_AT; /* varchar and text are one */
	}
}

/*
 * Prepare the value of a condition.  Most conditions compare with a constant or a parameter of
 * the statement, which do not change while the plan runs.  Evaluating such a value in the
 * executor would cost as much as finding the row.
 */
static void
prepare_value(KvScanCondition *condition, Expr *expr, PlanState *parent)
{
	ParamListInfo params = parent->state->es_param_list_info;
	Param	   *param = (Param *) expr;

	if (IsA(expr, Const))
	{
		condition->known = ((Const *) expr)->constvalue;
		condition->known_isnull = ((Const *) expr)->constisnull;
	}
	else if (IsA(expr, Param) && param->paramkind == PARAM_EXTERN && params != NULL &&
			 params->paramFetch == NULL && param->paramid > 0 &&
			 param->paramid <= params->numParams &&
			 params->params[param->paramid - 1].ptype == param->paramtype)
	{
		condition->known = params->params[param->paramid - 1].value;
		condition->known_isnull = params->params[param->paramid - 1].isnull;
	}
	else
		condition->value = ExecInitExpr(expr, parent);
}

static Datum
value_of(const KvScanCondition *condition, ExprContext *econtext, bool *isnull)
{
	if (condition->value != NULL)
		return ExecEvalExprSwitchContext(condition->value, econtext, isnull);
	*isnull = condition->known_isnull;
	return condition->known;
}

/* Most keys are short. */
static void
init_buffer(StringInfo buf)
{
	buf->maxlen = KV_SHORT_KEY;
	buf->data = palloc(buf->maxlen);
	resetStringInfo(buf);
}

KvKeyRanges *
kv_ranges_create(const KvTable *table, ForeignScan *plan, PlanState *parent, bool points)
{
	List	   *keys = list_nth(plan->fdw_private, KvScanPrivateKeys);
	List	   *kinds = list_nth(plan->fdw_private, KvScanPrivateKinds);
	List	   *types = list_nth(plan->fdw_private, KvScanPrivateTypes);
	int			npinned = intVal(list_nth(plan->fdw_private, KvScanPrivatePinned));
	int			nconditions = list_length(keys);
	KvKeyRanges *ranges = palloc0(sizeof(KvKeyRanges) + npinned * sizeof(KvColumnValues) +
								  nconditions * sizeof(KvScanCondition));

	ranges->table = table;
	ranges->npinned = npinned;
	ranges->columns = (KvColumnValues *) (ranges + 1);
	ranges->nconditions = nconditions;
	ranges->conditions = (KvScanCondition *) (ranges->columns + npinned);
	for (int i = 0; i < ranges->nconditions; i++)
	{
		KvScanCondition *condition = &ranges->conditions[i];

		condition->key = list_nth_int(keys, i);
		condition->kind = (KvConditionKind) list_nth_int(kinds, i);
		condition->valuetype = list_nth_oid(types, i);
		prepare_value(condition, list_nth(plan->fdw_exprs, i), parent);
	}
	init_buffer(&ranges->lo_result);
	if (!points)
	{
		init_buffer(&ranges->lo);
		init_buffer(&ranges->hi);
		init_buffer(&ranges->hi_result);
	}
	return ranges;
}

static int
compare_bytes(StringInfo left, StringInfo right)
{
	return kv_key_compare((const uint8 *) left->data, left->len,
						  (const uint8 *) right->data, right->len);
}

/* Encode one value of a pinned column into context. */
static KvKey
encode_value(KvKeyRanges *ranges, int key, Datum value, MemoryContext context)
{
	const KvTable *table = ranges->table;
	StringInfo	buf = &ranges->lo_result;
	uint8	   *data;
	KvKey		result;

	resetStringInfo(buf);
	kv_key_encode_column(buf, &table->keys[key], key == table->nkeys - 1, value);
	data = MemoryContextAlloc(context, buf->len + 1);
	memcpy(data, buf->data, buf->len);
	result.data = data;
	result.len = buf->len;
	return result;
}

/* key = value: one value; a second, different one contradicts the first. */
static bool
start_equal(KvKeyRanges *ranges, KvScanCondition *condition, Datum value,
			MemoryContext context)
{
	KvColumnValues *column = &ranges->columns[condition->key];
	Datum		own;
	KvKey		encoded;

	if (fit_value(&ranges->table->keys[condition->key], condition->valuetype,
					value, &own) != KV_FIT_AT)
		return false;

	encoded = encode_value(ranges, condition->key, own, context);
	if (column->n > 0)
		return kv_key_order(&column->values[0], &encoded) == 0;

	column->only = encoded;
	column->values = &column->only;
	column->n = 1;
	return true;
}

/* key = ANY (array): its elements sorted, without NULLs and duplicates. */
static bool
start_any(KvKeyRanges *ranges, KvScanCondition *condition, Datum value,
		  MemoryContext context)
{
	KvColumnValues *column = &ranges->columns[condition->key];
	ArrayType  *array = DatumGetArrayTypeP(value);
	int16		typlen;
	bool		typbyval;
	char		typalign;
	Datum	   *elements;
	bool	   *nulls;
	int			nelements;
	int			ndistinct = 0;

	get_typlenbyvalalign(ARR_ELEMTYPE(array), &typlen, &typbyval, &typalign);
	deconstruct_array(array, ARR_ELEMTYPE(array), typlen, typbyval, typalign,
					  &elements, &nulls, &nelements);

	column->values = MemoryContextAllocHuge(context,
											sizeof(KvKey) * ((Size) nelements + 1));
	for (int i = 0; i < nelements; i++)
	{
		Datum		own;

		CHECK_FOR_INTERRUPTS();
		if (nulls[i] ||
			fit_value(&ranges->table->keys[condition->key],
						condition->valuetype, elements[i], &own) != KV_FIT_AT)
			continue;
		column->values[column->n++] =
			encode_value(ranges, condition->key, own, context);
	}
	qsort(column->values, column->n, sizeof(KvKey), kv_key_order);
	for (int i = 0; i < column->n; i++)
	{
		if (ndistinct == 0 ||
			kv_key_order(&column->values[ndistinct - 1], &column->values[i]) != 0)
			column->values[ndistinct++] = column->values[i];
	}
	column->n = ndistinct;
	return ndistinct > 0;
}

/*
 * Move an encoded column value to just after every key that has it.  Returns
 * false if nothing can come after.
 *
 * In front of another column an encoding is never a prefix of another one, so
 * that is the next prefix.  The last column's encoding may be one ('ab' and
 * 'abc'): there the value is the end of the key, and the next key is one zero
 * byte longer.
 */
static bool
move_after(const KvTable *table, int key, StringInfo buf)
{
	if (key == table->nkeys - 1 && table->key_width == 0)
	{
		appendStringInfoChar(buf, '\0');
		return true;
	}
	return kv_key_successor(buf);
}

/*
 * key <, <=, >, >= value, or the same of a row: tighten the bounds; false if nothing is left.
 * *next is the number of the condition, and is advanced past it.
 */
static bool
start_range(KvKeyRanges *ranges, int *next, ExprContext *econtext)
{
	const KvTable *table = ranges->table;
	StringInfo	buf = &ranges->lo_result;
	KvScanCondition *condition = &ranges->conditions[*next];
	KvScanCondition *last = condition;
	int			key = -1;		/* the last one encoded */
	bool		upper;
	bool		after;
	StringInfo	bound;
	bool	   *has_bound;

	while (last->kind == KV_COND_ROW_PREFIX)
		last++;
	*next = last - ranges->conditions + 1;
	upper = last->kind == KV_COND_LESS || last->kind == KV_COND_LESS_EQUAL;
	after = last->kind == KV_COND_LESS_EQUAL || last->kind == KV_COND_GREATER;

	resetStringInfo(buf);
	for (; condition <= last; condition++)
	{
		const KvKeyColumn *column = &table->keys[condition->key];
		KvFit		fit;
		Datum		value;
		Datum		own;
		bool		isnull;

		value = value_of(condition, econtext, &isnull);
		if (isnull)
		{
			if (key < 0)
				return false;
			after = !upper;
			break;
		}

		fit = fit_value(column, condition->valuetype, value, &own);
		if (fit == KV_FIT_BEFORE_ALL || fit == KV_FIT_AFTER_ALL)
		{
			after = fit == KV_FIT_AFTER_ALL;
			if (key < 0)
				return after == upper;
			break;
		}

		key = condition->key;
		kv_key_encode_column(buf, column, key == table->nkeys - 1, own);
		if (fit != KV_FIT_AT)
		{
			after = fit == KV_FIT_ABOVE;
			break;
		}
	}

	if (after && !move_after(table, key, buf))
		return upper;			/* above the last possible value */

	bound = upper ? &ranges->hi : &ranges->lo;
	Assert(bound->data != NULL);
	has_bound = upper ? &ranges->has_hi : &ranges->has_lo;
	if (!*has_bound ||
		(upper ? compare_bytes(buf, bound) < 0 : compare_bytes(buf, bound) > 0))
	{
		resetStringInfo(bound);
		appendBinaryStringInfo(bound, buf->data, buf->len);
		*has_bound = true;
	}
	return true;
}

/* key = value or key = ANY (array): the values that a pinned column may have. */
static bool
start_pinned(KvKeyRanges *ranges, KvScanCondition *condition,
			 ExprContext *econtext, MemoryContext context)
{
	bool		isnull;
	Datum		value = value_of(condition, econtext, &isnull);

	if (isnull)
		return false;
	if (condition->kind == KV_COND_EQUAL)
		return start_equal(ranges, condition, value, context);
	return start_any(ranges, condition, value, context);
}

bool
kv_ranges_start(KvKeyRanges *ranges, ExprContext *econtext,
				MemoryContext context, bool backward)
{
	int			next = 0;

	ranges->backward = backward;
	ranges->exhausted = false;
	ranges->has_lo = ranges->has_hi = false;
	for (int i = 0; i < ranges->npinned; i++)
		ranges->columns[i].n = 0;

	while (next < ranges->nconditions)
	{
		KvScanCondition *condition = &ranges->conditions[next];

		if (condition->key >= ranges->npinned)
		{
			if (!start_range(ranges, &next, econtext))
				return false;
		}
		else
		{
			if (!start_pinned(ranges, condition, econtext, context))
				return false;
			next++;
		}
	}

	for (int i = 0; i < ranges->npinned; i++)
		ranges->columns[i].position = backward ? ranges->columns[i].n - 1 : 0;
	return true;
}

/* Append the combination that the odometer shows, and advance it to the next one. */
static void
take_prefix(KvKeyRanges *ranges, StringInfo buf)
{
	for (int i = 0; i < ranges->npinned; i++)
	{
		KvColumnValues *column = &ranges->columns[i];

		appendBinaryStringInfo(buf, (const char *) column->values[column->position].data,
							   column->values[column->position].len);
	}

	for (int i = ranges->npinned - 1; i >= 0; i--)
	{
		KvColumnValues *column = &ranges->columns[i];

		column->position += ranges->backward ? -1 : 1;
		if (column->position >= 0 && column->position < column->n)
			return;
		column->position = ranges->backward ? column->n - 1 : 0;
	}
	ranges->exhausted = true;
}

/*
 * Shorten a bound.  No stored key is longer than KV_MAX_KEY, so a longer bound separates the
 * same keys as the first bound after all keys that start as it does.  Returns false if there is
 * none.
 */
static bool
shorten_bound(StringInfo bound)
{
	if (bound->len <= KV_MAX_KEY)
		return true;
	bound->len = KV_MAX_KEY;
	bound->data[bound->len] = '\0';
	return kv_key_successor(bound);
}

bool
kv_ranges_next(KvKeyRanges *ranges, KvKey *lo, KvKey *hi)
{
	while (!ranges->exhausted)
	{
		StringInfo	from = &ranges->lo_result;
		StringInfo	to = &ranges->hi_result;
		bool		has_hi;

		CHECK_FOR_INTERRUPTS();
		resetStringInfo(from);
		resetStringInfo(to);
		take_prefix(ranges, from);
		appendBinaryStringInfo(to, from->data, from->len);

		if (ranges->has_lo)
			appendBinaryStringInfo(from, ranges->lo.data, ranges->lo.len);
		if (ranges->has_hi)
		{
			appendBinaryStringInfo(to, ranges->hi.data, ranges->hi.len);
			has_hi = true;
		}
		else
			has_hi = ranges->npinned > 0 && kv_key_successor(to);

		if (!shorten_bound(from))
			continue;			/* above every possible key */
		if (has_hi && !shorten_bound(to))
			has_hi = false;
		if (has_hi && compare_bytes(from, to) >= 0)
			continue;

		lo->data = from->len > 0 ? (uint8 *) from->data : NULL;
		lo->len = from->len;
		hi->data = has_hi ? (uint8 *) to->data : NULL;
		hi->len = has_hi ? to->len : 0;
		return true;
	}
	return false;
}

int
kv_ranges_next_points(KvKeyRanges *ranges, KvKey *keys, int max)
{
	StringInfo	buf = &ranges->lo_result;
	int			n = 0;
	int			offset = 0;

	resetStringInfo(buf);
	while (n < max && !ranges->exhausted)
	{
		int			start = buf->len;

		take_prefix(ranges, buf);
		if (buf->len - start > KV_MAX_KEY)
		{
			buf->len = start;	/* no stored key is that long */
			continue;
		}
		keys[n++].len = buf->len - start;
	}
	for (int i = 0; i < n; i++)
	{
		keys[i].data = (uint8 *) buf->data + offset;
		offset += keys[i].len;
	}
	return n;
}
