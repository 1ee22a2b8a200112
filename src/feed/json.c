/*
 * json.c
 *		Values as JSON, in one line.
 *
 * Types have the form that to_json() gives them: numbers, booleans, json and arrays as such,
 * times in ISO 8601, everything else as a string.  Values of bytea are hexadecimal, whatever the
 * session's settings.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/date.h"
#include "utils/datetime.h"
#include "utils/fmgrprotos.h"
#include "utils/json.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "feed/feed.h"

/* Larger values of types whose text has an unknown size are left out. */
#define MAX_UNKNOWN		((Size) 100 * 1024 * 1024)

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

void
kv_json_column_init(KvJsonColumn *column, Form_pg_attribute att)
{
	StringInfoData name;
	Oid			output;

	memset(column, 0, sizeof(*column));
	if (att->attisdropped || KV_ATTRIBUTE_IS_VIRTUAL(att))
		return;
	initStringInfo(&name);
	kv_json_string(&name, NameStr(att->attname), strlen(NameStr(att->attname)));
	column->name = name.data;
	column->typid = getBaseType(att->atttypid);
	column->kind = kind_of(column->typid);
	getTypeOutputInfo(column->typid, &output, &column->is_varlena);
	fmgr_info_cxt(output, &column->output, CurrentMemoryContext);
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

static bool
put_json_datum(StringInfo out, Datum json)
{
	const struct varlena *text = PG_DETOAST_DATUM_PACKED(json);

	return put_json(out, VARDATA_ANY(text), VARSIZE_ANY_EXHDR(text));
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

bool
kv_json_value(StringInfo out, KvJsonColumn *column, Datum value)
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
	if (column->kind == KV_JSON_ARRAY)
		return put_json_datum(out, DirectFunctionCall1(array_to_json, value));
	if (column->kind == KV_JSON_ROW)
		return put_json_datum(out, DirectFunctionCall1(row_to_json, value));
	return put_output(out, column, value);
}
