/*
 * compress.c
 *		Values as they are stored: compressed with LZ4 where the table's option says so.
 *
 *		u32 length, then one LZ4 block that has so many bytes
 *
 * A value is compressed once, by the session that writes it, before anything else has seen
 * it: what goes to write buffers, value files and the WAL are those bytes, and a standby has
 * them without compressing again.  The engine moves them as it moves any.  Its checksum
 * covers what is stored and is verified before anything is decompressed, so what cannot be
 * decompressed was written so; it is an error all the same.
 *
 * What is read from the device is whole blocks, so a value that is not a block shorter for
 * it, or half of one, stays as it is, and costs no time when it is read.
 */
#include "postgres.h"

#include <lz4.h>

#include "miscadmin.h"

#include "table/table.h"

#define LEAST_VALUE		64		/* bytes that are worth a try */
#define MOST_RATIO		255		/* an LZ4 block has at most so many bytes for each of its own */
#define LENGTH_SIZE		sizeof(uint32)

StaticAssertDecl(KV_MAX_VALUE <= LZ4_MAX_INPUT_SIZE, "LZ4 takes each value");

/* The most bytes that a value may have when it is compressed, to be stored so. */
static Size
most_stored(Size len)
{
	/* of several blocks one less */
	if (len > KV_BLOCK)
		return TYPEALIGN(KV_BLOCK, len) - KV_BLOCK;
	/* two in a block */
	if (len > KV_BLOCK / 2)
		return KV_BLOCK / 2;
	/* smaller ones lie side by side */
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

	/* a large one takes a while, and nothing interrupts that */
	CHECK_FOR_INTERRUPTS();
	most = most_stored(*len);
	stored = palloc(most);
	/* what would be longer is given up on the way */
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

	/* behind room for a header, and aligned for a tuple */
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
