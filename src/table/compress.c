/*
 * compress.c
 *		Compression of values with LZ4, where the table's option says so.
 *
 *	u32 length, then one LZ4 block that has so many bytes
 *
 * The session that writes a value compresses it, before any other code sees it.  Write buffers,
 * value files and the WAL have the compressed bytes, and a standby gets them without
 * compressing again.  The engine moves them like any others.  Its checksum covers the stored
 * bytes and is verified before decompression.  So bytes that cannot be decompressed were
 * written like that; they are an error nevertheless.
 *
 * The device is read in whole blocks.  So a value that compression does not make shorter by a
 * block, or half of one, is stored uncompressed, and costs no time when it is read.
 */
#include "postgres.h"

#include <lz4.h>

#include "miscadmin.h"

#include "engine/rows.h"
#include "table/internal.h"
#include "table/table.h"

#define LEAST_VALUE		64		/* shorter values are not tried */
#define MOST_RATIO		255		/* an LZ4 block decompresses to at most so many bytes for each of
								 * its own */
#define LENGTH_SIZE		sizeof(uint32)

StaticAssertDecl(KV_MAX_VALUE <= LZ4_MAX_INPUT_SIZE, "LZ4 takes each value");

/* The largest compressed size at which a value is stored compressed. */
static Size
most_stored(Size len)
{
	/* one of several blocks less */
	if (len > KV_BLOCK)
		return TYPEALIGN(KV_BLOCK, len) - KV_BLOCK;
	/* two values in a block */
	if (len > KV_BLOCK / 2)
		return KV_BLOCK / 2;
	/* smaller ones share a block */
	return len - len / 5;
}

KvForm
kv_value_compress(const KvTable *table, KvForm form, const char **value, Size *len)
{
	uint32		length = *len;
	Size		most;
	char	   *stored;
	int			size;

	if (!table->compresses || *len < LEAST_VALUE)
		return form;

	/* a large value takes a while, and compression cannot be interrupted */
	CHECK_FOR_INTERRUPTS();
	most = most_stored(*len);
	stored = palloc(most);
	/* LZ4 stops when the result would be longer */
	size = LZ4_compress_default(*value, stored + LENGTH_SIZE, length, most - LENGTH_SIZE);
	if (size <= 0)
	{
		pfree(stored);
		return form;
	}
	memcpy(stored, &length, LENGTH_SIZE);
	*value = stored;
	*len = LENGTH_SIZE + size;
	return form | KV_FORM_LZ4;
}

Size
kv_value_length(const KvRow *row)
{
	uint32		length;

	if ((row->form & KV_FORM_LZ4) == 0)
		return row->len;
	if (row->len <= LENGTH_SIZE)
		return 0;
	memcpy(&length, row->value, LENGTH_SIZE);
	return length <= KV_MAX_VALUE && length / MOST_RATIO < row->len ? length : 0;
}

bool
kv_value_decompress(const KvRow *row, KvRow *plain)
{
	Size		length = kv_value_length(row);
	char	   *value;

	*plain = *row;
	plain->form = row->form & ~KV_FORM_LZ4;
	if (length == 0 || (plain->form != KV_FORM_RAW && plain->form != KV_FORM_TUPLE))
		return false;

	/* after space for a header, and aligned for a tuple */
	value = (char *) palloc(MAXIMUM_ALIGNOF + length) + MAXIMUM_ALIGNOF;
	plain->header = value - VARHDRSZ;
	plain->value = value;
	plain->len = length;
	return LZ4_decompress_safe(row->value + LENGTH_SIZE, value, row->len - LENGTH_SIZE,
							   length) == length;
}

Size
kv_value_begin(KvForm form, const char *value, Size len, char *to, Size room)
{
	int			n;

	if ((form & KV_FORM_LZ4) == 0)
	{
		memcpy(to, value, Min(len, room));
		return Min(len, room);
	}
	if (len <= LENGTH_SIZE || len > KV_MAX_VALUE)
		return 0;
	n = LZ4_decompress_safe_partial(value + LENGTH_SIZE, to, len - LENGTH_SIZE, room, room);
	return Max(n, 0);
}
