/*
 * row.c
 *		Items of rows, rows of items, and expired rows.
 *
 * Flags are a bigint: the client's 32 bits, and above them two bits of the meta protocol: the
 * item is stale, and a client was told to recache it.  Other bits, which SQL may have written,
 * are not cut off: they are an error for requests that would read or keep them.  An item that
 * is written keeps its row's other columns; in a new row these are NULL.
 */
#include "memcached/served/served.h"

#include "engine/maintenance.h"
#include "engine/rows.h"

#include "access/xlog.h"
#include "datatype/timestamp.h"
#include "executor/tuptable.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"

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

/* ---- expired rows ---- */

/*
 * A batch that reads an expired row notes its key in a ring in shared memory.  So does a
 * compaction, which reads the values that it moves anyway.  The reaper looks up each key again
 * and deletes the row as it does in its walk.  So a note may be wrong, out of date, or lost
 * where the ring is full: the walk finds lost ones.
 *
 * A compaction cannot drop an expired row.  An older snapshot may see it, a session may have it
 * locked, and the role may lack the privilege to delete it.  A standby, where values have
 * addresses of their own, and a server that recovers from its WAL would still have the row.
 *
 * The compacting process has no catalog, so the ring stores for each table how its time of
 * expiry is found in stored bytes.
 */

#define RING_BYTES		(256 * 1024)
#define MOST_WATCHED	64		/* tables */
#define MOST_KEY		1024	/* rows with longer keys are left to the walk */
#define RECENT_NOTES	256

/* A table whose rows may expire. */
typedef struct KvMcWatched
{
	Oid			relid;			/* InvalidOid: the entry is free */
	KvProbe		expires;
} KvMcWatched;

typedef struct KvMcExpiredRing
{
	LWLock		lock;			/* of all fields; nothing is waited for while it is held */
	Oid			dboid;			/* of the tables */
	int			nwatched;		/* a new one replaces the oldest */
	KvMcWatched watched[MOST_WATCHED];
	uint64		begin;			/* bytes that were taken since the start */
	uint64		end;			/* bytes that were put since the start */
	char		bytes[RING_BYTES];
} KvMcExpiredRing;

/* A note; its key follows. */
typedef struct KvMcNote
{
	Oid			relid;
	uint32		length;
} KvMcNote;

static KvMcExpiredRing *ring = NULL;

/* ---- the ring ---- */

static void
put_bytes(const void *from, size_t n)
{
	size_t		at = ring->end % RING_BYTES;
	size_t		first = Min(n, RING_BYTES - at);

	memcpy(ring->bytes + at, from, first);
	memcpy(ring->bytes, (const char *) from + first, n - first);
	ring->end += n;
}

static void
copy_bytes(uint64 from, void *to, size_t n)
{
	size_t		at = from % RING_BYTES;
	size_t		first = Min(n, RING_BYTES - at);

	memcpy(to, ring->bytes + at, first);
	memcpy((char *) to + first, ring->bytes, n - first);
}

static void
note(Oid relid, KvKey key)
{
	KvMcNote	one = {.relid = relid, .length = key.len};
	bool		first;

	if (key.len > MOST_KEY)
		return;
	LWLockAcquire(&ring->lock, LW_EXCLUSIVE);
	first = ring->begin == ring->end;
	if (ring->end - ring->begin + sizeof(one) + key.len <= RING_BYTES)
	{
		put_bytes(&one, sizeof(one));
		put_bytes(key.data, key.len);
	}
	LWLockRelease(&ring->lock);
	if (first && kv_mc_shared->reaper_latch != NULL)
		SetLatch(kv_mc_shared->reaper_latch);
}

void
kv_mc_expired_note(const KvMcTable *table, KvKey key, uint32 hash, int64 now)
{
	static struct
	{
		uint32		hash;
		int64		at;
	}			recent[RECENT_NOTES]; /* a row may be read again before the reaper has deleted it */
	int			i = hash % RECENT_NOTES;

	if (!table->reaped)
		return;
	if (recent[i].hash == hash && recent[i].at == now)
		return;
	recent[i].hash = hash;
	recent[i].at = now;
	note(table->relid, key);
}

void
kv_mc_expired_again(Oid relid, KvKey key)
{
	note(relid, key);
}

int
kv_mc_expired_take(Oid *relid, KvKey *keys, int most)
{
	char	   *copied;
	int			n = 0;

	if (ring->begin == ring->end)
		return 0;
	copied = palloc(most * MOST_KEY);
	LWLockAcquire(&ring->lock, LW_EXCLUSIVE);
	for (; n < most && ring->begin < ring->end; n++)
	{
		KvMcNote	one;

		copy_bytes(ring->begin, &one, sizeof(one));
		if (n > 0 && one.relid != *relid)
			break;
		*relid = one.relid;
		copy_bytes(ring->begin + sizeof(one), copied, one.length);
		keys[n] = (KvKey) {.data = (uint8 *) copied, .len = one.length};
		copied += one.length;
		ring->begin += sizeof(one) + one.length;
	}
	LWLockRelease(&ring->lock);
	return n;
}

/* ---- expired rows that a compaction meets ---- */

void
kv_mc_expired_watch(const KvMcTable *table)
{
	KvMcWatched *place = NULL;
	KvProbe		probe;

	if (table->reaped && !kv_probe_make(table->table, table->expires, &probe))
		return;
	LWLockAcquire(&ring->lock, LW_EXCLUSIVE);
	ring->dboid = MyDatabaseId;
	for (int i = 0; i < MOST_WATCHED; i++)
	{
		if (ring->watched[i].relid == table->relid)
			place = &ring->watched[i];
	}
	if (place == NULL && table->reaped)
		place = &ring->watched[ring->nwatched++ % MOST_WATCHED];
	if (place != NULL)
		place->relid = table->reaped ? table->relid : InvalidOid;
	if (table->reaped)
		place->expires = probe;
	LWLockRelease(&ring->lock);
}

/* How is the time of expiry found in a table's rows?  False: the table is not watched. */
static bool
find_watched(Oid dboid, Oid relid, KvProbe *probe)
{
	bool		found = false;

	LWLockAcquire(&ring->lock, LW_SHARED);
	for (int i = 0; i < MOST_WATCHED && ring->dboid == dboid && !found; i++)
	{
		found = ring->watched[i].relid == relid;
		if (found)
			*probe = ring->watched[i].expires;
	}
	LWLockRelease(&ring->lock);
	return found;
}

static void
meet_moved(Oid dboid, Oid relid, KvKey key, KvForm form, const char *value, Size len)
{
	KvProbe		probe;
	int64		expires;

	/* mostly no table is watched, which is checked without the lock; a standby deletes nothing */
	if (ring->nwatched == 0 || ring->dboid != dboid || RecoveryInProgress())
		return;
	if (find_watched(dboid, relid, &probe) && kv_probe_read(&probe, form, value, len, &expires) &&
		expires <= GetCurrentTimestamp())
		note(relid, key);
}

/* ---- start ---- */

Size
kv_mc_expired_size(void)
{
	return kv_mc_workers == 0 ? 0 : sizeof(KvMcExpiredRing);
}

void
kv_mc_expired_init(void *memory, bool found)
{
	if (kv_mc_workers == 0)
		return;
	ring = memory;
	if (!found)
		LWLockInitialize(&ring->lock, kv_mc_shared->tranche);
	kv_moved_hook = meet_moved;
}
