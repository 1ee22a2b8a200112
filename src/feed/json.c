/*
 * json.c
 *		Values as JSON, in one line.
 *
 * Types have the form that to_json() gives them: numbers, booleans, json, arrays and rows as such,
 * times in ISO 8601, everything else as a string.  Values of bytea are hexadecimal, whatever the
 * session's settings.
 *
 * Core's functions for arrays and rows call a cast to json if a type has one.  Any user can make a
 * cast with a function, which would run as the role that decodes.  So they are not used here.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/date.h"
#include "utils/datetime.h"
#include "utils/json.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"
#include "utils/typcache.h"

#include "compat.h"
#include "feed/feed.h"

/* Larger values of types whose text has an unknown size are left out. */
#define MAX_UNKNOWN		((Size) 100 * 1024 * 1024)
#define MAX_SMALL		256		/* bytes of a value that is not measured */

typedef enum KvJsonKind
{
	KV_JSON_BOOL,
	KV_JSON_INT2, KV_JSON_INT4, KV_JSON_INT8,
	KV_JSON_NUMBER,				/* its text is a number, or NaN or infinite */
	KV_JSON_TIME,				/* date, timestamp, timestamptz */
	KV_JSON_BYTEA,
	KV_JSON_TEXT,				/* a varlena with the text itself */
	KV_JSON_JSON,				/* its text is JSON */
	KV_JSON_ARRAY, KV_JSON_ROW,
	KV_JSON_OTHER
} KvJsonKind;

static KvJsonKind
kind_of(Oid typid)
{
	switch (typid)
	{
		case BOOLOID:
			return KV_JSON_BOOL;
		case INT2OID:
			return KV_JSON_INT2;
		case INT4OID:
			return KV_JSON_INT4;
		case INT8OID:
			return KV_JSON_INT8;
		case FLOAT4OID:
		case FLOAT8OID:
		case NUMERICOID:
			return KV_JSON_NUMBER;
		case DATEOID:
		case TIMESTAMPOID:
		case TIMESTAMPTZOID:
			return KV_JSON_TIME;
		case BYTEAOID:
			return KV_JSON_BYTEA;
		case TEXTOID:
		case VARCHAROID:
		case BPCHAROID:
			return KV_JSON_TEXT;
		case JSONOID:
		case JSONBOID:
			return KV_JSON_JSON;
		default:
			if (OidIsValid(get_element_type(typid)))
				return KV_JSON_ARRAY;
			return type_is_rowtype(typid) ? KV_JSON_ROW : KV_JSON_OTHER;
	}
}

static void
set_type(KvJsonColumn *column, Oid typid)
{
	Oid			output;

	column->typid = getBaseType(typid);
	column->kind = kind_of(column->typid);
	getTypeOutputInfo(column->typid, &output, &column->is_varlena);
	fmgr_info_cxt(output, &column->output, CurrentMemoryContext);
}

void
kv_json_column_init(KvJsonColumn *column, Form_pg_attribute att)
{
	StringInfoData name;

	memset(column, 0, sizeof(*column));
	if (att->attisdropped || KV_ATTRIBUTE_IS_VIRTUAL(att))
		return;
	initStringInfo(&name);
	kv_json_string(&name, NameStr(att->attname), strlen(NameStr(att->attname)));
	column->name = name.data;
	set_type(column, att->atttypid);
}

/* ---- strings ---- */

/* The letter after the backslash that stands for a byte; 'u': a number; '\0': none. */
static inline char
escape_of(unsigned char c)
{
	switch (c)
	{
		case '"':
		case '\\':
			return c;
		case '\b':
			return 'b';
		case '\f':
			return 'f';
		case '\n':
			return 'n';
		case '\r':
			return 'r';
		case '\t':
			return 't';
		default:
			return c < ' ' ? 'u' : '\0';
	}
}

void
kv_json_string(StringInfo out, const char *text, Size len)
{
	Size		from = 0;

	appendStringInfoCharMacro(out, '"');
	for (Size i = 0; i < len; i++)
	{
		char		escape = escape_of(text[i]);

		if (likely(escape == '\0'))
			continue;
		appendBinaryStringInfo(out, text + from, i - from);
		from = i + 1;
		if (escape == 'u')
			appendStringInfo(out, "\\u%04x", (unsigned char) text[i]);
		else
		{
			appendStringInfoCharMacro(out, '\\');
			appendStringInfoCharMacro(out, escape);
		}
	}
	appendBinaryStringInfo(out, text + from, len - from);
	appendStringInfoCharMacro(out, '"');
}

static bool
fits(StringInfo out, Size more)
{
	return out->len + more <= KV_JSON_MAX_LINE;
}

/* A string, if it fits.  Only a long one is measured. */
static bool
put_string(StringInfo out, const char *text, Size len)
{
	Size		bytes = len;

	if (!fits(out, 6 * len + 2))
	{
		for (Size i = 0; i < len; i++)
		{
			char		escape = escape_of(text[i]);

			bytes += escape == '\0' ? 0 : escape == 'u' ? 5 : 1;
		}
		if (!fits(out, bytes + 2))
			return false;
		enlargeStringInfo(out, bytes + 2);
	}
	kv_json_string(out, text, len);
	return true;
}

/* Text that is JSON.  Line ends are only between its tokens. */
static bool
put_json(StringInfo out, const char *text, Size len)
{
	int			begin = out->len;

	if (!fits(out, len))
		return false;
	appendBinaryStringInfo(out, text, len);
	for (int i = begin; i < out->len; i++)
	{
		if (out->data[i] == '\n' || out->data[i] == '\r')
			out->data[i] = ' ';
	}
	return true;
}

/* ---- values ---- */

static bool
put_bytea(StringInfo out, Datum value)
{
	const struct varlena *bytes = PG_DETOAST_DATUM_PACKED(value);
	Size		len = VARSIZE_ANY_EXHDR(bytes);

	if (!fits(out, 2 * len + 5))
		return false;
	appendStringInfoString(out, "\"\\\\x");
	enlargeStringInfo(out, 2 * len + 1);
	out->len += hex_encode(VARDATA_ANY(bytes), len, out->data + out->len);
	appendStringInfoCharMacro(out, '"');
	return true;
}

static bool
put_text(StringInfo out, Datum value)
{
	const struct varlena *text = PG_DETOAST_DATUM_PACKED(value);

	return put_string(out, VARDATA_ANY(text), VARSIZE_ANY_EXHDR(text));
}

/* An integer is written to the end of the line, which has room for it. */
static bool
put_integer(StringInfo out, int64 value)
{
	enlargeStringInfo(out, MAXINT8LEN + 1);
	out->len += pg_lltoa(value, out->data + out->len);
	return true;
}

static bool
put_time(StringInfo out, KvJsonColumn *column, Datum value)
{
	char		text[MAXDATELEN + 1];

	JsonEncodeDateTime(text, value, column->typid, NULL);
	return put_string(out, text, strlen(text));
}

/* By the type's output function. */
static bool
put_output(StringInfo out, KvJsonColumn *column, Datum value)
{
	const char *text = OutputFunctionCall(&column->output, value);
	Size		len = strlen(text);

	if (column->kind == KV_JSON_JSON)
		return put_json(out, text, len);
	if (column->kind != KV_JSON_NUMBER || strpbrk(text, "Nn") != NULL)
		return put_string(out, text, len);
	appendBinaryStringInfo(out, text, len);
	return true;
}

/* ---- arrays and rows ---- */

/* How the elements of an array, or the fields of a row, are shown. */
typedef struct KvJsonParts
{
	TupleDesc	desc;			/* of a row */
	KvJsonColumn *columns;		/* of an array one */
	Datum	   *values;			/* of a row, while it is shown */
	bool	   *nulls;
} KvJsonParts;

static bool put_value(StringInfo out, KvJsonColumn *column, Datum value);

static KvJsonParts *
describe_parts(const KvJsonColumn *column)
{
	KvJsonParts *parts = palloc0(sizeof(KvJsonParts));

	if (column->kind == KV_JSON_ARRAY)
	{
		parts->columns = palloc0(sizeof(KvJsonColumn));
		set_type(parts->columns, get_element_type(column->typid));
		return parts;
	}
	parts->desc = lookup_rowtype_tupdesc_copy(column->typid, -1);
	parts->columns = palloc(sizeof(KvJsonColumn) * Max(parts->desc->natts, 1));
	parts->values = palloc(sizeof(Datum) * Max(parts->desc->natts, 1));
	parts->nulls = palloc(sizeof(bool) * Max(parts->desc->natts, 1));
	for (int i = 0; i < parts->desc->natts; i++)
		kv_json_column_init(&parts->columns[i], TupleDescAttr(parts->desc, i));
	return parts;
}

static bool
put_part(StringInfo out, KvJsonColumn *column, Datum value, bool isnull)
{
	if (!fits(out, MAX_SMALL))
		return false;
	if (!isnull)
		return put_value(out, column, value);
	appendStringInfoString(out, "null");
	return true;
}

/* An array, or the part of it that the dimensions tell. */
static bool
put_array(StringInfo out, KvJsonColumn *element, ArrayIterator elements, int ndim, const int *dims)
{
	Datum		value;
	bool		isnull;

	if (!fits(out, MAX_SMALL))
		return false;
	appendStringInfoChar(out, '[');
	for (int i = 0; ndim > 0 && i < dims[0]; i++)
	{
		CHECK_FOR_INTERRUPTS();
		if (i > 0)
			appendStringInfoChar(out, ',');
		if (ndim > 1)
		{
			if (!put_array(out, element, elements, ndim - 1, dims + 1))
				return false;
		}
		else if (!array_iterate(elements, &value, &isnull) ||
				 !put_part(out, element, value, isnull))
			return false;
	}
	appendStringInfoChar(out, ']');
	return true;
}

static bool
put_row(StringInfo out, KvJsonParts *parts, Datum value)
{
	HeapTupleHeader header = DatumGetHeapTupleHeader(value);
	HeapTupleData tuple = {.t_len = HeapTupleHeaderGetDatumLength(header), .t_data = header};
	bool		any = false;

	heap_deform_tuple(&tuple, parts->desc, parts->values, parts->nulls);
	appendStringInfoChar(out, '{');
	for (int i = 0; i < parts->desc->natts; i++)
	{
		KvJsonColumn *column = &parts->columns[i];

		if (column->name == NULL)
			continue;
		if (!fits(out, strlen(column->name) + MAX_SMALL))
			return false;
		if (any)
			appendStringInfoChar(out, ',');
		appendStringInfoString(out, column->name);
		appendStringInfoChar(out, ':');
		if (!put_part(out, column, parts->values[i], parts->nulls[i]))
			return false;
		any = true;
	}
	appendStringInfoChar(out, '}');
	return true;
}

/* The column is of this value, or describes a part of it. */
static bool
put_nested(StringInfo out, KvJsonColumn *column, Datum value)
{
	check_stack_depth();
	if (column->parts == NULL)
		column->parts = describe_parts(column);
	if (column->kind == KV_JSON_ARRAY)
	{
		ArrayType  *array = DatumGetArrayTypeP(value);
		ArrayIterator elements = array_create_iterator(array, 0, NULL);
		bool		done = put_array(out, column->parts->columns, elements, ARR_NDIM(array),
									 ARR_DIMS(array));

		array_free_iterator(elements);
		return done;
	}
	return put_row(out, column->parts, value);
}

static bool
put_value(StringInfo out, KvJsonColumn *column, Datum value)
{
	switch (column->kind)
	{
		case KV_JSON_BOOL:
			appendStringInfoString(out, DatumGetBool(value) ? "true" : "false");
			return true;
		case KV_JSON_INT2:
			return put_integer(out, DatumGetInt16(value));
		case KV_JSON_INT4:
			return put_integer(out, DatumGetInt32(value));
		case KV_JSON_INT8:
			return put_integer(out, DatumGetInt64(value));
		case KV_JSON_TIME:
			return put_time(out, column, value);
		case KV_JSON_BYTEA:
			return put_bytea(out, value);
		case KV_JSON_TEXT:
			return put_text(out, value);
		default:
			break;
	}
	if (column->is_varlena && toast_raw_datum_size(value) > MAX_UNKNOWN)
		return false;
	if (column->kind == KV_JSON_ARRAY || column->kind == KV_JSON_ROW)
		return put_nested(out, column, value);
	return put_output(out, column, value);
}

bool
kv_json_value(StringInfo out, KvJsonColumn *column, Datum value)
{
	KvJsonColumn once;
	int			begin = out->len;

	/* the parts of a value are described for it alone, because their types may be altered */
	if (column->kind == KV_JSON_ARRAY || column->kind == KV_JSON_ROW)
	{
		once = *column;
		column = &once;
	}
	if (put_value(out, column, value))
		return true;
	out->len = begin;
	out->data[begin] = '\0';
	return false;
}
