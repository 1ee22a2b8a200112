/*
 * tuple.c
 *		The value codec: the format of the columns that are stored in a row's value.
 *
 * The value columns of a table are all its columns that are not in the key, and the lossy ones
 * that are.  Three forms:
 *
 *	KV_FORM_RAW		the bare payload of the table's one value column, of any
 *					varlena type; no bytes if there is no value column
 *	KV_FORM_NULL	that column is NULL
 *	KV_FORM_TUPLE	header, data
 *
 *		header		uint16 natts, uint16 flags, then a null bitmap if flags has
 *					TUPLE_HAS_NULLS (bit set: not null), zeros up to MAXALIGN
 *		data		as in a heap tuple, from heap_fill_tuple
 *
 * RAW and TUPLE may be compressed as a whole (compress.c).
 *
 * Attributes of a tuple are those of the table, by number; key columns that are not lossy are
 * NULL in it, and so are columns that were dropped before it was written.  A row that is older
 * than a column has fewer attributes, and the column reads as the schema image's value for it,
 * or NULL.  A column that was dropped later is skipped, by the length and alignment with which
 * it was written (schema.c).  The header is a multiple of MAXALIGN, so data is aligned if the
 * value is.
 *
 * Which column a KV_FORM_RAW row belongs to is fixed when the store's first row is written
 * (KvTable.raw_stored, see schema.c).  It was the table's only value column then, as in a
 * KV_FORM_NULL row, so the row is older than all others.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "access/htup_details.h"
#include "access/tupmacs.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "compat.h"
#include "engine/rows.h"
#include "table/internal.h"
#include "table/table.h"

#define TUPLE_HAS_NULLS		0x0001
#define PROBE_BYTES			256 /* of a value, in which a column is searched */

typedef struct TupleHeader
{
	uint16		natts;
	uint16		flags;
	uint8		nulls[FLEXIBLE_ARRAY_MEMBER];
} TupleHeader;

StaticAssertDecl(offsetof(TupleHeader, nulls) == 4,
				 "the null bitmap follows two uint16");

/* ---- encoding ---- */

static void
check_value_size(const KvTable *table, Size len)
{
	if (unlikely(len > KV_MAX_VALUE))
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("value of %zu bytes exceeds the maximum of %zu bytes for foreign table "
						"\"%s\"",
						len, KV_MAX_VALUE, get_rel_name(table->relid))));
}

static KvForm
encode_raw(const KvTable *table, TupleTableSlot *slot,
		   const char **value, Size *len)
{
	bool		isnull;
	Datum		datum = slot_getattr(slot, table->raw_attnum, &isnull);
	struct varlena *payload;

	if (isnull)
	{
		*value = "";
		*len = 0;
		return KV_FORM_NULL;
	}

	/* no copy is made unless the datum is compressed or out of line */
	payload = PG_DETOAST_DATUM_PACKED(datum);
	*value = VARDATA_ANY(payload);
	*len = VARSIZE_ANY_EXHDR(payload);
	check_value_size(table, *len);
	return KV_FORM_RAW;
}

static KvForm
encode_tuple(const KvTable *table, TupleTableSlot *slot, StringInfo buf,
			 const char **value, Size *len)
{
	TupleDesc	desc = table->valdesc;
	int			natts = desc->natts;
	Datum		values[MaxHeapAttributeNumber];
	bool		nulls[MaxHeapAttributeNumber];
	bool		has_nulls = false;
	Size		header_size = offsetof(TupleHeader, nulls);
	Size		data_size;
	TupleHeader *header;
	uint16		infomask;

	slot_getallattrs(slot);
	for (int i = 0; i < natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		values[i] = slot->tts_values[i];
		nulls[i] = att->attisdropped || slot->tts_isnull[i];
		has_nulls |= nulls[i];
		if (!nulls[i] && att->attlen == -1 &&
			VARATT_IS_EXTERNAL(DatumGetPointer(values[i])))
			values[i] = PointerGetDatum(detoast_external_attr((struct varlena *)
															  DatumGetPointer(values[i])));
	}

	if (has_nulls)
		header_size += BITMAPLEN(natts);
	header_size = MAXALIGN(header_size);
	data_size = heap_compute_data_size(desc, values, nulls);
	check_value_size(table, header_size + data_size);

	resetStringInfo(buf);
	enlargeStringInfo(buf, header_size + data_size);
	memset(buf->data, 0, header_size + data_size);

	header = (TupleHeader *) buf->data;
	header->natts = natts;
	header->flags = has_nulls ? TUPLE_HAS_NULLS : 0;
	heap_fill_tuple(desc, values, nulls, buf->data + header_size, data_size,
					&infomask, has_nulls ? header->nulls : NULL);
	buf->len = header_size + data_size;

	*value = buf->data;
	*len = buf->len;
	return KV_FORM_TUPLE;
}

KvForm
kv_tuple_encode(const KvTable *table, TupleTableSlot *slot, StringInfo buf,
				const char **value, Size *len)
{
	KvForm		form = KV_FORM_RAW;

	*value = "";
	*len = 0;
	if (table->raw_attnum != 0)
		form = encode_raw(table, slot, value, len);
	else if (table->valdesc != NULL)
		form = encode_tuple(table, slot, buf, value, len);
	return kv_value_compress(table, form, value, len);
}

/* ---- decoding ---- */

/*
 * Raise an error for a damaged row.  The key is shown in hexadecimal, at most its beginning: it
 * may be as damaged as the value.
 */
KV_NORETURN static void
raise_invalid_value(const KvTable *table, const KvRow *row, const char *problem)
{
	int			shown = Min(row->keylen, 64);
	char		hex[2 * 64 + 1];

	hex[hex_encode((const char *) row->key, shown, hex)] = '\0';
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("invalid value of %u bytes in foreign table \"%s\"",
					row->len, get_rel_name(table->relid)),
			 errdetail("Key \\x%s%s: %s.", hex,
					   shown < row->keylen ? "..." : "", problem)));
}

/* Fill in the columns after the first natts, which are newer than the row. */
static void
fill_missing(const KvTable *table, int natts, Datum *values, bool *nulls)
{
	for (int i = 0; i < table->nmissing; i++)
	{
		const KvMissing *missing = &table->missing[i];

		if (missing->attnum > natts)
		{
			values[missing->attnum - 1] = missing->value;
			nulls[missing->attnum - 1] = false;
		}
	}
}

static void
decode_raw(const KvTable *table, const KvRow *row, Datum *values, bool *nulls)
{
	AttrNumber	attnum = table->raw_stored;
	struct varlena *datum;

	if (attnum == 0)
	{
		if (row->len != 0)
			raise_invalid_value(table, row, "no column takes its bytes");
		return;
	}
	if (TupleDescAttr(table->tupdesc, attnum - 1)->attisdropped)
		return;
	if (row->len > KV_MAX_VALUE)
		raise_invalid_value(table, row, "the value is too long");

	datum = row->header != NULL ? row->header : palloc(VARHDRSZ + row->len);
	SET_VARSIZE(datum, VARHDRSZ + row->len);
	if (row->header == NULL && row->len > 0)
		memcpy(VARDATA(datum), row->value, row->len);
	values[attnum - 1] = PointerGetDatum(datum);
	nulls[attnum - 1] = false;
}

/* Bytes of the attribute at data, of which there are max; 0 if it does not fit or is invalid. */
static Size
attribute_size(int16 attlen, const char *data, Size max)
{
	Size		size;

	if (attlen > 0)
		size = attlen;
	else if (attlen == -1)
	{
		if (max < 1 || VARATT_IS_1B_E(data))
			return 0;
		if (VARATT_IS_1B(data))
			size = VARSIZE_1B(data);
		else if (max < VARHDRSZ)
			return 0;
		else
			size = VARSIZE_4B(data);
		if (size < (VARATT_IS_1B(data) ? VARHDRSZ_SHORT :
					VARATT_IS_4B_C(data) ? VARHDRSZ_COMPRESSED : VARHDRSZ))
			return 0;
	}
	else
		size = strnlen(data, max) + 1;

	return size <= max ? size : 0;
}

/* Where the next attribute begins, in data of so many bytes. */
static Size
attribute_offset(int16 attlen, char attalign, const char *data, Size offset, Size size)
{
	/* a varlena with a one-byte header is not aligned; check its byte */
	if (attlen == -1 && offset < size)
		return att_align_pointer(offset, attalign, -1, data + offset);
	return att_align_nominal(offset, attalign);
}

static void
decode_tuple(const KvTable *table, const KvRow *row, Datum *values, bool *nulls)
{
	const TupleHeader *header;
	const char *data = row->value;
	Size		header_size = offsetof(TupleHeader, nulls);
	Size		size;
	Size		offset = 0;
	bool		has_nulls;

	if ((uintptr_t) data % MAXIMUM_ALIGNOF != 0)
		data = memcpy(palloc(row->len), data, row->len);

	header = (const TupleHeader *) data;
	if (row->len < MAXALIGN(header_size))
		raise_invalid_value(table, row, "the tuple header is truncated");
	if ((header->flags & ~TUPLE_HAS_NULLS) != 0)
		raise_invalid_value(table, row, "the tuple header has unknown flags");
	if (header->natts > table->tupdesc->natts)
		raise_invalid_value(table, row, "the tuple has more columns than the table");

	has_nulls = (header->flags & TUPLE_HAS_NULLS) != 0;
	if (has_nulls)
		header_size += BITMAPLEN(header->natts);
	header_size = MAXALIGN(header_size);
	if (row->len < header_size)
		raise_invalid_value(table, row, "the null bitmap is truncated");

	if (table->valdesc == NULL)
		return;					/* every column it has was dropped */

	if (table->nmissing > 0)
		fill_missing(table, header->natts, values, nulls);
	data += header_size;
	size = row->len - header_size;
	for (int i = 0; i < header->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(table->valdesc, i);
		Size		attribute;

		if (has_nulls && att_isnull(i, header->nulls))
			continue;
		if (att->attlen == KV_NOT_STORED)
			raise_invalid_value(table, row, "it has a column that was never stored");

		offset = attribute_offset(att->attlen, att->attalign, data, offset, size);
		attribute = offset < size ?
			attribute_size(att->attlen, data + offset, size - offset) : 0;
		if (attribute == 0)
			raise_invalid_value(table, row, "a column is truncated");

		if (!att->attisdropped)
		{
			values[i] = fetchatt(att, data + offset);
			nulls[i] = false;
		}
		offset += attribute;
	}
}

/* Decode the columns that are in a row's value; the others are left as they are. */
static void
decode_value(const KvTable *table, const KvRow *row, Datum *values, bool *nulls)
{
	KvRow		plain;

	if (row->form & KV_FORM_LZ4)
	{
		if (!kv_value_decompress(row, &plain))
			raise_invalid_value(table, row, "it cannot be decompressed");
		row = &plain;
	}
	switch (row->form)
	{
		case KV_FORM_RAW:
			decode_raw(table, row, values, nulls);
			fill_missing(table, 0, values, nulls);
			return;
		case KV_FORM_NULL:
			fill_missing(table, 0, values, nulls);
			return;
		case KV_FORM_TUPLE:
			decode_tuple(table, row, values, nulls);
			return;
		case KV_FORM_KEY:
		case KV_FORM_LZ4:
			break;				/* no row has it */
	}
	raise_invalid_value(table, row, "its form is unknown");
}

void
kv_tuple_decode(const KvTable *table, const KvRow *row, bool want_value,
				Datum *values, bool *nulls)
{
	memset(nulls, true, sizeof(bool) * table->tupdesc->natts);
	kv_key_decode(table, row->key, row->keylen, values, nulls);
	if (want_value)
		decode_value(table, row, values, nulls);
}

void
kv_tuple_decode_value(const KvTable *table, const KvRow *row, Datum *values, bool *nulls)
{
	memset(nulls, true, sizeof(bool) * table->tupdesc->natts);
	decode_value(table, row, values, nulls);
}

void
kv_tuple_store(const KvTable *table, const KvRow *row, bool want_value,
			   TupleTableSlot *slot)
{
	ExecClearTuple(slot);
	kv_tuple_decode(table, row, want_value, slot->tts_values, slot->tts_isnull);
	ExecStoreVirtualTuple(slot);
	slot->tts_tableOid = table->relid;
}

/* ---- one column, without the table ---- */

bool
kv_probe_make(const KvTable *table, AttrNumber attnum, KvProbe *probe)
{
	memset(probe, 0, sizeof(*probe));
	if (table->valdesc == NULL || attnum > KV_PROBE_COLUMNS ||
		TupleDescAttr(table->valdesc, attnum - 1)->attlen != sizeof(int64))
		return false;
	probe->natts = attnum;
	for (int i = 0; i < attnum; i++)
	{
		probe->lengths[i] = TupleDescAttr(table->valdesc, i)->attlen;
		probe->aligns[i] = TupleDescAttr(table->valdesc, i)->attalign;
	}
	return true;
}

bool
kv_probe_read(const KvProbe *probe, KvForm form, const char *value, Size len, int64 *found)
{
	uint64		begin[PROBE_BYTES / sizeof(uint64)];
	const TupleHeader *header = (const TupleHeader *) begin;
	const char *data;
	Size		size;
	Size		offset;
	bool		has_nulls;

	if ((form & ~KV_FORM_LZ4) != KV_FORM_TUPLE)
		return false;
	size = kv_value_begin(form, value, len, (char *) begin, sizeof(begin));
	if (size < MAXALIGN(offsetof(TupleHeader, nulls)) || header->natts < probe->natts)
		return false;
	has_nulls = (header->flags & TUPLE_HAS_NULLS) != 0;
	offset = MAXALIGN(offsetof(TupleHeader, nulls) + (has_nulls ? BITMAPLEN(header->natts) : 0));
	if (size < offset)
		return false;
	data = (const char *) begin + offset;
	size -= offset;
	offset = 0;
	for (int i = 0; i < probe->natts; i++)
	{
		Size		attribute;

		if (has_nulls && att_isnull(i, header->nulls))
		{
			if (i == probe->natts - 1)
				return false;
			continue;
		}
		offset = attribute_offset(probe->lengths[i], probe->aligns[i], data, offset, size);
		attribute = offset < size ?
			attribute_size(probe->lengths[i], data + offset, size - offset) : 0;
		if (attribute == 0)
			return false;
		offset += attribute;
	}
	memcpy(found, data + offset - sizeof(int64), sizeof(int64));
	return true;
}
