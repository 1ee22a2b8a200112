/*
 * key.c
 *		The order-preserving key codec.
 *
 * A key is the encodings of its columns, one after the other.  Keys are
 * compared with memcmp, the shorter one first if one is a prefix of the other.
 * That order is SQL order for every column with KvKeyColumn.ordered set; for
 * the others (text under a collation that is not C) only equality agrees.
 *
 * The encoding of one column, by kind (all integers big-endian):
 *
 *	INT2, INT4, INT8, DATE, TIME, TIMESTAMP
 *				the integer with its sign bit flipped: 2, 4 or 8 bytes.
 *				Infinities are the extreme integers
 *	OID			4 bytes
 *	BOOL		1 byte, 0 or 1
 *	FLOAT4, FLOAT8
 *				the IEEE bits, all inverted if negative, else with the sign bit
 *				flipped.  -0.0 is encoded as 0.0, every NaN as all ones
 *	UUID		its 16 bytes
 *	BYTEA, TEXT, BPCHAR
 *				string			if it is the key's last column
 *				escaped END		otherwise: each 0x00 of the string becomes
 *								0x00 0xFF, and END is 0x00 0x01
 *				A BPCHAR loses its trailing blanks first
 *	NUMERIC		0x01			-Infinity
 *				~positive		a negative: its absolute value, every byte
 *								inverted, with END in any position
 *				0x80			zero
 *				positive		weight digit* END, END only if not the last column
 *				0xFE			Infinity
 *				0xFF			NaN
 *		digit	a base-10000 digit plus one, 2 bytes; no zero digit comes first
 *				or last
 *		END		0x00 0x00
 *		weight	the power of 10000 of the first digit: the byte 0xD0 + weight
 *				for -16 to 15; else 0xBF (below) or 0xE0 (above) and then
 *				weight + 32768 in 2 bytes
 *
 * Every encoding that is not in the last position is self-delimiting.
 *
 * Lossy columns are those whose datum cannot be rebuilt from the key exactly:
 * numeric (1.0 and 1.00 are one key), floats (-0.0, NaN payloads), and bpchar
 * without a length.  Their datum is in the value as well (tuple.c).  bpchar(n)
 * is not lossy: its datums are always padded to n characters.
 */
#include "postgres.h"

#include <math.h>

#include "access/table.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "libpq/pqformat.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "port/pg_bswap.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/date.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/numeric.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

/* else it includes ICU's headers, which a server's headers do not contain */
#undef USE_ICU
#include "utils/pg_locale.h"

#include "compat.h"
#include "table/internal.h"
#include "table/table.h"

#define STRING_ESCAPE		0x00
#define STRING_ESCAPED_ZERO 0xFF
#define STRING_END			0x01

#define NUMERIC_KEY_MINUS_INFINITY	0x01
#define NUMERIC_KEY_ZERO			0x80
#define NUMERIC_KEY_WEIGHT_BELOW	0xBF
#define NUMERIC_KEY_WEIGHT_SHORT	0xD0	/* plus weight, -16 to 15 */
#define NUMERIC_KEY_WEIGHT_ABOVE	0xE0
#define NUMERIC_KEY_INFINITY		0xFE
#define NUMERIC_KEY_NAN				0xFF

/* The sign words of numeric's wire format (numeric_send). */
#define NUMERIC_WIRE_POSITIVE		0x0000
#define NUMERIC_WIRE_NEGATIVE		0x4000
#define NUMERIC_WIRE_NAN			0xC000
#define NUMERIC_WIRE_INFINITY		0xD000
#define NUMERIC_WIRE_MINUS_INFINITY 0xF000
#define NUMERIC_WIRE_HEADER			4	/* words: digits, weight, sign, scale */
#define NUMERIC_DIGIT_DECIMALS		4

/* The position of the decoder in a key. */
typedef struct KeyCursor
{
	const KvTable *table;
	const uint8 *start;
	const uint8 *next;
	const uint8 *end;
} KeyCursor;

bool
kv_key_type_supported(Oid typid, KvKeyKind *kind, bool *lossy)
{
	*lossy = false;

	switch (getBaseType(typid))
	{
		case INT2OID:
			*kind = KV_KEY_INT2;
			return true;
		case INT4OID:
			*kind = KV_KEY_INT4;
			return true;
		case INT8OID:
			*kind = KV_KEY_INT8;
			return true;
		case OIDOID:
			*kind = KV_KEY_OID;
			return true;
		case BOOLOID:
			*kind = KV_KEY_BOOL;
			return true;
		case FLOAT4OID:
			*kind = KV_KEY_FLOAT4;
			*lossy = true;
			return true;
		case FLOAT8OID:
			*kind = KV_KEY_FLOAT8;
			*lossy = true;
			return true;
		case DATEOID:
			*kind = KV_KEY_DATE;
			return true;
		case TIMEOID:
			*kind = KV_KEY_TIME;
			return true;
		case TIMESTAMPOID:
		case TIMESTAMPTZOID:
			*kind = KV_KEY_TIMESTAMP;
			return true;
		case UUIDOID:
			*kind = KV_KEY_UUID;
			return true;
		case NUMERICOID:
			*kind = KV_KEY_NUMERIC;
			*lossy = true;
			return true;
		case BYTEAOID:
			*kind = KV_KEY_BYTEA;
			return true;
		case TEXTOID:
		case VARCHAROID:
			*kind = KV_KEY_TEXT;
			return true;
		case BPCHAROID:
			*kind = KV_KEY_BPCHAR;
			*lossy = true;
			return true;
		default:
			return false;
	}
}

bool
kv_key_column_init(KvKeyColumn *column, Form_pg_attribute att)
{
	memset(column, 0, sizeof(KvKeyColumn));
	column->attnum = att->attnum;
	column->typmod = att->atttypmod;
	column->typid = getBaseTypeAndTypmod(att->atttypid, &column->typmod);
	column->collation = att->attcollation;
	column->ordered = true;

	if (!kv_key_type_supported(column->typid, &column->kind, &column->lossy))
		return false;

	if (column->kind == KV_KEY_BPCHAR && column->typmod > VARHDRSZ)
		column->lossy = false;

	if (OidIsValid(column->collation))
	{
		if (!get_collation_isdeterministic(column->collation))
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("nondeterministic collation \"%s\" is not supported for key column "
							"\"%s\"",
							get_collation_name(column->collation),
							NameStr(att->attname)),
					 errhint("Declare the column with a deterministic collation, such as \"C\".")));
		column->ordered = kv_collation_is_c(column->collation);
	}
	return true;
}

int
kv_key_kind_width(KvKeyKind kind)
{
	switch (kind)
	{
		case KV_KEY_BOOL:
			return 1;
		case KV_KEY_INT2:
			return 2;
		case KV_KEY_INT4:
		case KV_KEY_OID:
		case KV_KEY_FLOAT4:
		case KV_KEY_DATE:
			return 4;
		case KV_KEY_INT8:
		case KV_KEY_FLOAT8:
		case KV_KEY_TIME:
		case KV_KEY_TIMESTAMP:
			return 8;
		case KV_KEY_UUID:
			return UUID_LEN;
		case KV_KEY_NUMERIC:
		case KV_KEY_BYTEA:
		case KV_KEY_TEXT:
		case KV_KEY_BPCHAR:
			return 0;
	}
	return 0;					/* keep the compiler quiet */
}

/* ---- encoding ---- */

static uint32
float4_to_ordered(float4 value)
{
	uint32		bits;

	if (isnan(value))
		return PG_UINT32_MAX;
	if (value == 0)
		value = 0;				/* drop the sign of -0.0 */
	memcpy(&bits, &value, sizeof(bits));
	return (bits & 0x80000000U) ? ~bits : bits | 0x80000000U;
}

static uint64
float8_to_ordered(float8 value)
{
	uint64		bits;

	if (isnan(value))
		return PG_UINT64_MAX;
	if (value == 0)
		value = 0;				/* drop the sign of -0.0 */
	memcpy(&bits, &value, sizeof(bits));
	return (bits & UINT64CONST(0x8000000000000000)) ?
		~bits : bits | UINT64CONST(0x8000000000000000);
}

static void
append_string(StringInfo buf, const char *data, int len, bool last)
{
	const char *end = data + len;

	if (last)
	{
		appendBinaryStringInfo(buf, data, len);
		return;
	}

	while (data < end)
	{
		const char *zero = memchr(data, STRING_ESCAPE, end - data);
		const char *stop = zero ? zero : end;

		appendBinaryStringInfo(buf, data, stop - data);
		data = stop;
		if (zero)
		{
			appendStringInfoChar(buf, STRING_ESCAPE);
			appendStringInfoChar(buf, (char) STRING_ESCAPED_ZERO);
			data++;
		}
	}
	appendStringInfoChar(buf, STRING_ESCAPE);
	appendStringInfoChar(buf, STRING_END);
}

static void
append_varlena(StringInfo buf, KvKeyKind kind, bool last, Datum value)
{
	struct varlena *datum = PG_DETOAST_DATUM_PACKED(value);
	const char *data = VARDATA_ANY(datum);
	int			len = VARSIZE_ANY_EXHDR(datum);

	if (kind == KV_KEY_BPCHAR)
		len = bpchartruelen(unconstify(char *, data), len);

	append_string(buf, data, len, last);

	if ((Pointer) datum != DatumGetPointer(value))
		pfree(datum);
}

static uint16
wire_word(const char *wire, int index)
{
	uint16		word;

	memcpy(&word, wire + index * sizeof(word), sizeof(word));
	return pg_ntoh16(word);
}

/*
 * numeric's wire format is the one representation that PostgreSQL promises to keep, so the
 * digits are taken from there.
 */
static void
append_numeric(StringInfo buf, bool last, Datum value)
{
	bytea	   *sent = DatumGetByteaPP(DirectFunctionCall1(numeric_send, value));
	const char *wire = VARDATA_ANY(sent);
	int			ndigits = wire_word(wire, 0);
	int			weight = (int16) wire_word(wire, 1);
	uint16		sign = wire_word(wire, 2);
	int			first = NUMERIC_WIRE_HEADER;
	int			end = first + ndigits;
	int			start = buf->len;

	if (sign == NUMERIC_WIRE_NAN)
		appendStringInfoChar(buf, (char) NUMERIC_KEY_NAN);
	else if (sign == NUMERIC_WIRE_INFINITY)
		appendStringInfoChar(buf, (char) NUMERIC_KEY_INFINITY);
	else if (sign == NUMERIC_WIRE_MINUS_INFINITY)
		appendStringInfoChar(buf, NUMERIC_KEY_MINUS_INFINITY);
	else
	{
		/* stored numerics are stripped already; here equality depends on it */
		while (first < end && wire_word(wire, first) == 0)
		{
			first++;
			weight--;
		}
		while (end > first && wire_word(wire, end - 1) == 0)
			end--;

		if (first == end)
			appendStringInfoChar(buf, (char) NUMERIC_KEY_ZERO);
		else
		{
			if (weight >= -16 && weight <= 15)
				appendStringInfoChar(buf, (char) (NUMERIC_KEY_WEIGHT_SHORT + weight));
			else
			{
				appendStringInfoChar(buf, (char) (weight < 0 ?
												  NUMERIC_KEY_WEIGHT_BELOW :
												  NUMERIC_KEY_WEIGHT_ABOVE));
				pq_sendint16(buf, (uint16) (weight + 32768));
			}
			for (int i = first; i < end; i++)
				pq_sendint16(buf, wire_word(wire, i) + 1);

			if (sign == NUMERIC_WIRE_NEGATIVE || !last)
				pq_sendint16(buf, 0);
			if (sign == NUMERIC_WIRE_NEGATIVE)
			{
				for (int i = start; i < buf->len; i++)
					buf->data[i] = ~buf->data[i];
			}
		}
	}
	pfree(sent);
}

void
kv_key_encode_column(StringInfo buf, const KvKeyColumn *column, bool last,
					 Datum value)
{
	switch (column->kind)
	{
		case KV_KEY_INT2:
			pq_sendint16(buf, (uint16) DatumGetInt16(value) ^ 0x8000);
			break;
		case KV_KEY_INT4:
		case KV_KEY_DATE:
			pq_sendint32(buf, (uint32) DatumGetInt32(value) ^ 0x80000000U);
			break;
		case KV_KEY_INT8:
		case KV_KEY_TIME:
		case KV_KEY_TIMESTAMP:
			pq_sendint64(buf, (uint64) DatumGetInt64(value) ^
						  UINT64CONST(0x8000000000000000));
			break;
		case KV_KEY_OID:
			pq_sendint32(buf, DatumGetObjectId(value));
			break;
		case KV_KEY_BOOL:
			appendStringInfoChar(buf, DatumGetBool(value) ? 1 : 0);
			break;
		case KV_KEY_FLOAT4:
			pq_sendint32(buf, float4_to_ordered(DatumGetFloat4(value)));
			break;
		case KV_KEY_FLOAT8:
			pq_sendint64(buf, float8_to_ordered(DatumGetFloat8(value)));
			break;
		case KV_KEY_UUID:
			appendBinaryStringInfo(buf, (const char *) DatumGetUUIDP(value)->data,
								   UUID_LEN);
			break;
		case KV_KEY_NUMERIC:
			append_numeric(buf, last, value);
			break;
		case KV_KEY_BYTEA:
		case KV_KEY_TEXT:
		case KV_KEY_BPCHAR:
			append_varlena(buf, column->kind, last, value);
			break;
	}
}

static void
raise_null_key(const KvTable *table, AttrNumber attnum)
{
	Relation	rel = table_open(table->relid, NoLock);

	ereport(ERROR,
			(errcode(ERRCODE_NOT_NULL_VIOLATION),
			 errmsg("null value in column \"%s\" of relation \"%s\" violates not-null constraint",
					NameStr(TupleDescAttr(table->tupdesc, attnum - 1)->attname),
					RelationGetRelationName(rel)),
			 errdetail("A key column of a kvfdw table cannot be null."),
			 errtablecol(rel, attnum)));
}

static void
check_size(const KvTable *table, int keylen)
{
	if (unlikely(keylen > KV_MAX_KEY))
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("key of %d bytes exceeds the maximum of %d bytes for foreign table \"%s\"",
						keylen, KV_MAX_KEY, get_rel_name(table->relid)),
				 errhint("Use a shorter key, such as a hash of the long value.")));
}

void
kv_key_encode_slot(const KvTable *table, TupleTableSlot *slot, StringInfo buf)
{
	int			start = buf->len;

	for (int i = 0; i < table->nkeys; i++)
	{
		const KvKeyColumn *column = &table->keys[i];
		bool		isnull;
		Datum		value = slot_getattr(slot, column->attnum, &isnull);

		if (isnull)
			raise_null_key(table, column->attnum);
		kv_key_encode_column(buf, column, i == table->nkeys - 1, value);
	}
	check_size(table, buf->len - start);
}

bool
kv_key_successor(StringInfo buf)
{
	while (buf->len > 0)
	{
		uint8	   *byte = (uint8 *) &buf->data[buf->len - 1];

		if (*byte != 0xFF)
		{
			(*byte)++;
			return true;
		}
		*byte = 0;
		buf->len--;
	}
	return false;
}

/* ---- decoding ---- */

KV_NORETURN static void
raise_invalid_key(const KeyCursor *cursor)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("invalid key of %d bytes in foreign table \"%s\"",
					(int) (cursor->end - cursor->start),
					get_rel_name(cursor->table->relid)),
			 errdetail("Decoding failed at byte %d.",
					   (int) (cursor->next - cursor->start))));
}

static inline const uint8 *
take_bytes(KeyCursor *cursor, int len)
{
	const uint8 *taken = cursor->next;

	if (unlikely(cursor->end - taken < len))
		raise_invalid_key(cursor);
	cursor->next += len;
	return taken;
}

static inline uint16
take_uint16(KeyCursor *cursor)
{
	uint16		value;

	memcpy(&value, take_bytes(cursor, sizeof(value)), sizeof(value));
	return pg_ntoh16(value);
}

static inline uint32
take_uint32(KeyCursor *cursor)
{
	uint32		value;

	memcpy(&value, take_bytes(cursor, sizeof(value)), sizeof(value));
	return pg_ntoh32(value);
}

static inline uint64
take_uint64(KeyCursor *cursor)
{
	uint64		value;

	memcpy(&value, take_bytes(cursor, sizeof(value)), sizeof(value));
	return pg_ntoh64(value);
}

static float4
float4_from_ordered(uint32 bits)
{
	float4		value;

	bits = (bits & 0x80000000U) ? bits ^ 0x80000000U : ~bits;
	memcpy(&value, &bits, sizeof(value));
	return value;
}

static float8
float8_from_ordered(uint64 bits)
{
	float8		value;

	bits = (bits & UINT64CONST(0x8000000000000000)) ?
		bits ^ UINT64CONST(0x8000000000000000) : ~bits;
	memcpy(&value, &bits, sizeof(value));
	return value;
}

/*
 * Take a string and build a varlena of it, with room for pad_to characters:
 * blanks fill it up (0: no padding).
 */
static Datum
take_string(KeyCursor *cursor, bool last, int pad_to)
{
	const uint8 *from = cursor->next;
	int			max = cursor->end - from;
	char	   *to;
	int			len = 0;
	struct varlena *datum = palloc(VARHDRSZ + max + pad_to);

	to = VARDATA(datum);
	if (last)
	{
		memcpy(to, take_bytes(cursor, max), max);
		len = max;
	}
	else
	{
		for (;;)
		{
			uint8		byte = *take_bytes(cursor, 1);

			if (byte == STRING_ESCAPE)
			{
				uint8		escaped = *take_bytes(cursor, 1);

				if (escaped == STRING_END)
					break;
				if (escaped != STRING_ESCAPED_ZERO)
					raise_invalid_key(cursor);
			}
			to[len++] = byte;
		}
	}

	if (pad_to > 0)
	{
		int			blanks = pad_to - pg_mbstrlen_with_len(to, len);

		if (blanks > 0)
		{
			memset(to + len, ' ', blanks);
			len += blanks;
		}
	}
	SET_VARSIZE(datum, VARHDRSZ + len);
	return PointerGetDatum(datum);
}

static void
append_wire_header(StringInfo wire, int ndigits, int weight, int sign, int scale)
{
	pq_sendint16(wire, ndigits);
	pq_sendint16(wire, (uint16) weight);
	pq_sendint16(wire, sign);
	pq_sendint16(wire, scale);
}

/*
 * Take the digits of a finite numeric other than zero into wire.  invert is
 * 0xFFFF for a negative number, else 0.
 */
static void
take_numeric_digits(KeyCursor *cursor, bool last, uint16 invert, StringInfo wire)
{
	uint8		head = *take_bytes(cursor, 1) ^ (uint8) invert;
	bool		negative = invert != 0;
	bool		ended = false;
	int			weight;
	int			ndigits = 0;
	int			scale = 0;
	int			last_digit = 0;
	uint16		count;

	if (head == NUMERIC_KEY_WEIGHT_BELOW || head == NUMERIC_KEY_WEIGHT_ABOVE)
		weight = (int) (take_uint16(cursor) ^ invert) - 32768;
	else if (head > NUMERIC_KEY_WEIGHT_BELOW && head < NUMERIC_KEY_WEIGHT_ABOVE)
		weight = (int) head - NUMERIC_KEY_WEIGHT_SHORT;
	else
		raise_invalid_key(cursor);

	append_wire_header(wire, 0, weight,
					   negative ? NUMERIC_WIRE_NEGATIVE : NUMERIC_WIRE_POSITIVE, 0);

	while (!(last && !negative) || cursor->next < cursor->end)
	{
		int			digit = take_uint16(cursor) ^ invert;

		if (digit == 0)
		{
			ended = true;
			break;
		}
		last_digit = digit - 1;
		if (last_digit > 9999)
			raise_invalid_key(cursor);
		pq_sendint16(wire, last_digit);
		ndigits++;
	}
	if (ndigits == 0 || ended == (last && !negative))
		raise_invalid_key(cursor);

	/* show as many decimals as there are */
	if (ndigits - 1 > weight)
	{
		scale = (ndigits - 1 - weight) * NUMERIC_DIGIT_DECIMALS;
		for (; last_digit != 0 && last_digit % 10 == 0; last_digit /= 10)
			scale--;
	}

	count = pg_hton16(ndigits);
	memcpy(wire->data, &count, sizeof(count));
	count = pg_hton16(scale);
	memcpy(wire->data + 3 * sizeof(count), &count, sizeof(count));
}

/* Take a numeric; it equals the one encoded, with the smallest display scale. */
static Datum
take_numeric(KeyCursor *cursor, bool last)
{
	StringInfoData wire;
	Datum		result;

	if (cursor->next >= cursor->end)
		raise_invalid_key(cursor);

	initStringInfo(&wire);
	switch (*cursor->next)
	{
		case NUMERIC_KEY_MINUS_INFINITY:
			append_wire_header(&wire, 0, 0, NUMERIC_WIRE_MINUS_INFINITY, 0);
			cursor->next++;
			break;
		case NUMERIC_KEY_ZERO:
			append_wire_header(&wire, 0, 0, NUMERIC_WIRE_POSITIVE, 0);
			cursor->next++;
			break;
		case NUMERIC_KEY_INFINITY:
			append_wire_header(&wire, 0, 0, NUMERIC_WIRE_INFINITY, 0);
			cursor->next++;
			break;
		case NUMERIC_KEY_NAN:
			append_wire_header(&wire, 0, 0, NUMERIC_WIRE_NAN, 0);
			cursor->next++;
			break;
		default:
			take_numeric_digits(cursor, last,
								*cursor->next < NUMERIC_KEY_ZERO ? 0xFFFF : 0,
								&wire);
			break;
	}

	result = DirectFunctionCall3(numeric_recv, PointerGetDatum(&wire),
								 ObjectIdGetDatum(InvalidOid),
								 Int32GetDatum(-1));
	pfree(wire.data);
	return result;
}

/*
 * Take one column off the key.  For a lossy column the datum only equals the
 * one that was encoded.
 */
static Datum
take_column(KeyCursor *cursor, const KvKeyColumn *column, bool last)
{
	switch (column->kind)
	{
		case KV_KEY_INT2:
			return Int16GetDatum((int16) (take_uint16(cursor) ^ 0x8000));
		case KV_KEY_INT4:
		case KV_KEY_DATE:
			return Int32GetDatum((int32) (take_uint32(cursor) ^ 0x80000000U));
		case KV_KEY_INT8:
		case KV_KEY_TIME:
		case KV_KEY_TIMESTAMP:
			return Int64GetDatum((int64) (take_uint64(cursor) ^
										  UINT64CONST(0x8000000000000000)));
		case KV_KEY_OID:
			return ObjectIdGetDatum(take_uint32(cursor));
		case KV_KEY_BOOL:
			return BoolGetDatum(*take_bytes(cursor, 1) != 0);
		case KV_KEY_FLOAT4:
			return Float4GetDatum(float4_from_ordered(take_uint32(cursor)));
		case KV_KEY_FLOAT8:
			return Float8GetDatum(float8_from_ordered(take_uint64(cursor)));
		case KV_KEY_UUID:
			{
				pg_uuid_t  *uuid = palloc(sizeof(pg_uuid_t));

				memcpy(uuid->data, take_bytes(cursor, UUID_LEN), UUID_LEN);
				return UUIDPGetDatum(uuid);
			}
		case KV_KEY_NUMERIC:
			return take_numeric(cursor, last);
		case KV_KEY_BYTEA:
		case KV_KEY_TEXT:
			return take_string(cursor, last, 0);
		case KV_KEY_BPCHAR:
			return take_string(cursor, last,
							   column->lossy ? 0 : column->typmod - VARHDRSZ);
	}
	raise_invalid_key(cursor);
}

static void
start_key(KeyCursor *cursor, const KvTable *table, const uint8 *key, int keylen)
{
	cursor->table = table;
	cursor->start = key;
	cursor->next = key;
	cursor->end = key + keylen;
}

void
kv_key_decode(const KvTable *table, const uint8 *key, int keylen,
			  Datum *values, bool *nulls)
{
	KeyCursor	cursor;

	start_key(&cursor, table, key, keylen);
	for (int i = 0; i < table->nkeys; i++)
	{
		const KvKeyColumn *column = &table->keys[i];
		bool		last = i == table->nkeys - 1;
		int			index = column->attnum - 1;

		if (last && column->lossy)
			return;				/* no later column is needed */
		values[index] = take_column(&cursor, column, last);
		nulls[index] = column->lossy;
	}
	if (cursor.next != cursor.end)
		raise_invalid_key(&cursor);
}

void
kv_key_decode_equal(const KvTable *table, const uint8 *key, int keylen, Datum *values)
{
	KeyCursor	cursor;

	start_key(&cursor, table, key, keylen);
	for (int i = 0; i < table->nkeys; i++)
		values[table->keys[i].attnum - 1] = take_column(&cursor, &table->keys[i],
														 i == table->nkeys - 1);
	if (cursor.next != cursor.end)
		raise_invalid_key(&cursor);
}

/* May the current user see the key columns?  As for a unique index's error. */
static bool
may_show_key(const KvTable *table)
{
	if (pg_class_aclcheck(table->relid, GetUserId(), ACL_SELECT) == ACLCHECK_OK)
		return true;
	for (int i = 0; i < table->nkeys; i++)
	{
		if (pg_attribute_aclcheck(table->relid, table->keys[i].attnum,
								  GetUserId(), ACL_SELECT) != ACLCHECK_OK)
			return false;
	}
	return true;
}

char *
kv_key_describe(const KvTable *table, TupleTableSlot *slot)
{
	StringInfoData text;

	initStringInfo(&text);
	for (int i = 0; i < table->nkeys; i++)
	{
		Form_pg_attribute att = TupleDescAttr(table->tupdesc,
											  table->keys[i].attnum - 1);

		appendStringInfoString(&text, i == 0 ? "(" : ", ");
		appendStringInfoString(&text, quote_identifier(NameStr(att->attname)));
	}
	appendStringInfoChar(&text, ')');

	if (!may_show_key(table))
		return text.data;

	appendStringInfoChar(&text, '=');
	for (int i = 0; i < table->nkeys; i++)
	{
		const KvKeyColumn *column = &table->keys[i];
		bool		isnull;
		Datum		value = slot_getattr(slot, column->attnum, &isnull);
		Oid			output;
		bool		is_varlena;

		getTypeOutputInfo(column->typid, &output, &is_varlena);
		appendStringInfoString(&text, i == 0 ? "(" : ", ");
		appendStringInfoString(&text, OidOutputFunctionCall(output, value));
	}
	appendStringInfoChar(&text, ')');
	return text.data;
}
