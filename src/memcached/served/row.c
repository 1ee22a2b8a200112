/*
 * row.c
 *		Items of rows, and rows of items.
 *
 * Flags are a bigint: the client's 32 bits, and above them two bits of the meta protocol: the
 * item is stale, and a client was told to recache it.  Other bits, which SQL may have written,
 * are not cut off: they are an error for requests that would read or keep them.  An item that
 * is written keeps its row's other columns; in a new row these are NULL.
 */
#include "memcached/served/served.h"

#include "engine/rows.h"

#include "datatype/timestamp.h"
#include "executor/tuptable.h"
#include "mb/pg_wchar.h"

#define FLAG_STALE		(INT64CONST(1) << 32)
#define FLAG_WON		(INT64CONST(1) << 33)
#define MOST_FLAGS		(FLAG_STALE | FLAG_WON | PG_UINT32_MAX)
#define FEW_COLUMNS		8		/* of a table whose values need not be allocated */
#define EPOCH_SECONDS	((int64) (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * SECS_PER_DAY)
#define LAST_SECOND		(END_TIMESTAMP / USECS_PER_SEC + EPOCH_SECONDS - 1)

static Datum
make_varlena(const char *data, size_t length)
{
	struct varlena *datum = palloc_extended(VARHDRSZ + length, MCXT_ALLOC_HUGE);

	SET_VARSIZE(datum, VARHDRSZ + length);
	if (length > 0)
		memcpy(VARDATA(datum), data, length);
	return PointerGetDatum(datum);
}

/*
 * Is each byte from 1 to 127?  Checks eight at a time: the subtraction borrows from a byte's
 * highest bit if the byte is 0.
 */
static bool
is_ascii(const char *data, size_t length)
{
	uint64		bad = 0;
	uint64		word;

	for (; length >= sizeof(word); data += sizeof(word), length -= sizeof(word))
	{
		memcpy(&word, data, sizeof(word));
		bad |= word | (word - UINT64CONST(0x0101010101010101));
	}
	for (; length > 0; data++, length--)
		bad |= (signed char) *data > 0 ? 0 : PG_UINT64_MAX;
	return (bad & UINT64CONST(0x8080808080808080)) == 0;
}

static bool
is_text(const char *data, size_t length)
{
	if (is_ascii(data, length))	/* ASCII is valid in each encoding that a database may have */
		return true;
	return memchr(data, '\0', length) == NULL &&
		pg_verify_mbstr(GetDatabaseEncoding(), data, length, true);
}

KvKey
kv_mc_row_key(const KvMcTable *table, const char *key, int length)
{
	union
	{
		struct varlena varlena;
		char		bytes[VARHDRSZ + KV_MC_MAX_KEY];
	}			datum;
	StringInfoData buffer;
	KvKey		result;

	Assert(length <= KV_MC_MAX_KEY);
	SET_VARSIZE(&datum.varlena, VARHDRSZ + length);
	memcpy(datum.bytes + VARHDRSZ, key, length);
	buffer.maxlen = 2 * length + 16;
	buffer.data = palloc(buffer.maxlen);
	resetStringInfo(&buffer);
	kv_key_encode_column(&buffer, &table->table->keys[0], true, PointerGetDatum(&datum));
	result.data = (const uint8 *) buffer.data;
	result.len = buffer.len;
	return result;
}

const char *
kv_mc_row_bad_key(const KvMcTable *table, const char *key, int length)
{
	return table->text_key && !is_text(key, length) ?
		"key is not text in the database's encoding" : NULL;
}

const char *
kv_mc_row_bad_value(const KvMcTable *table, const char *value, size_t length)
{
	return table->text_value && !is_text(value, length) ?
		"value is not text in the database's encoding" : NULL;
}

/* ---- reading ---- */

int64
kv_mc_unix_time(TimestampTz time)
{
	return time / USECS_PER_SEC - (time % USECS_PER_SEC < 0 ? 1 : 0) + EPOCH_SECONDS;
}

/*
 * Convert to seconds of Unix time, rounded up, but down for a time in the current second that
 * has passed; 0: never.
 */
static int64
read_expires(TimestampTz time, TimestampTz now)
{
	int64		seconds;

	if (TIMESTAMP_IS_NOEND(time))
		return 0;
	if (TIMESTAMP_IS_NOBEGIN(time))
		return 1;
	seconds = kv_mc_unix_time(time <= now ? time : time + USECS_PER_SEC - 1);
	return Max(seconds, 1);
}

static bool
is_bare(const KvMcTable *table)
{
	return table->table->raw_attnum != 0 && table->table->raw_attnum == table->value;
}

const char *
kv_mc_row_read(const KvMcTable *table, const KvGet *get, TimestampTz now, uint64 number,
			   KvMcItem *item, KvMcRow *row)
{
	int			natts = table->table->tupdesc->natts;
	Datum		few_values[FEW_COLUMNS];
	bool		few_nulls[FEW_COLUMNS];
	Datum	   *values = few_values;
	bool	   *nulls = few_nulls;
	const char *value = "";
	size_t		length = 0;
	int64		flags = 0;
	int64		expires = 0;
	bool		rounded = false;

	row->values = NULL;
	if (is_bare(table) && get->row.form == KV_FORM_RAW)
	{
		kv_mc_item_set(item, kv_mc_unix_time(now), get->row.value, get->row.len, 0, 0, number,
					   false, false);
		return NULL;
	}
	if (table->others || natts > FEW_COLUMNS)
	{
		values = palloc(natts * sizeof(Datum));
		nulls = palloc(natts * sizeof(bool));
	}
	if (table->others)
		kv_tuple_decode(table->table, &get->row, true, values, nulls);
	else
		kv_tuple_decode_value(table->table, &get->row, values, nulls);
	if (!nulls[table->value - 1])
	{
		struct varlena *datum = PG_DETOAST_DATUM_PACKED(values[table->value - 1]);

		value = VARDATA_ANY(datum);
		length = VARSIZE_ANY_EXHDR(datum);
	}
	if (table->flags != 0 && !nulls[table->flags - 1])
		flags = DatumGetInt64(values[table->flags - 1]);
	if (table->expires != 0 && !nulls[table->expires - 1])
	{
		row->expires = DatumGetTimestampTz(values[table->expires - 1]);
		expires = read_expires(row->expires, now);
		rounded = TIMESTAMP_NOT_FINITE(row->expires) || row->expires % USECS_PER_SEC != 0;
	}
	kv_mc_item_set(item, kv_mc_unix_time(now), value, length, (uint32) flags, expires, number,
				   (flags & FLAG_STALE) != 0, (flags & FLAG_WON) != 0);
	item->expires_rounded = rounded;
	if (table->others && item->exists)
	{
		row->values = values;
		row->nulls = nulls;
	}
	return item->exists && (flags & ~MOST_FLAGS) != 0 ?
		"22003 flags of the row are out of range" : NULL;
}

/* ---- writing ---- */

static TimestampTz
write_expires(int64 seconds)
{
	return seconds > LAST_SECOND ? DT_NOEND : (seconds - EPOCH_SECONDS) * USECS_PER_SEC;
}

void
kv_mc_row_write(const KvMcTable *table, const KvMcItem *item, const KvMcRow *row,
				KvPutValue *put)
{
	int			natts = table->table->tupdesc->natts;
	TupleTableSlot *slot;
	StringInfoData buffer;

	if (is_bare(table))
	{
		put->value = item->value;
		put->len = item->length;
		put->form = kv_value_compress(table->table, KV_FORM_RAW, &put->value, &put->len);
		return;
	}
	slot = MakeSingleTupleTableSlot(table->table->tupdesc, &TTSOpsVirtual);
	memset(slot->tts_isnull, true, natts * sizeof(bool));
	if (row->values != NULL)
	{
		memcpy(slot->tts_values, row->values, natts * sizeof(Datum));
		memcpy(slot->tts_isnull, row->nulls, natts * sizeof(bool));
	}
	slot->tts_values[table->value - 1] = make_varlena(item->value, item->length);
	slot->tts_isnull[table->value - 1] = false;
	if (table->flags != 0)
	{
		slot->tts_values[table->flags - 1] =
			Int64GetDatum((int64) item->flags | (item->stale ? FLAG_STALE : 0) |
						  (item->won ? FLAG_WON : 0));
		slot->tts_isnull[table->flags - 1] = false;
	}
	if (table->expires != 0)
	{
		TimestampTz expires = item->expires_rounded ? row->expires : write_expires(item->expires);

		slot->tts_isnull[table->expires - 1] = item->expires == 0 && !item->expires_rounded;
		slot->tts_values[table->expires - 1] = TimestampTzGetDatum(expires);
	}
	ExecStoreVirtualTuple(slot);
	initStringInfo(&buffer);
	put->form = kv_tuple_encode(table->table, slot, &buffer, &put->value, &put->len);
	if (put->value != buffer.data)
		pfree(buffer.data);		/* the compressed value */
	pfree(DatumGetPointer(slot->tts_values[table->value - 1]));
}
