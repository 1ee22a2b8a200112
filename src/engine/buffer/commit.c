/*
 * commit.c
 *		Wal level 'keys': makes a transaction's versions durable before it commits.
 *
 * A version is in the WAL before its transaction's commit record, in one of two forms:
 *
 *	PUT		with its value: of what is still in a write buffer when the transaction
 *			commits.  That is most of a small transaction.
 *	BATCH	without, by location: when a buffer is written out, its entries that no
 *			PUT has logged.  That is most of a bulk load, whose values so reach the
 *			device once.  Before it commits the value files are synced, so a location
 *			that a committed transaction depends on is never of lost data.
 *
 * Whether an entry has been logged is a bit of its buffer, guarded by the shard's lock.  A
 * process that writes a buffer out takes all unlogged entries at one moment (batch_taken);
 * after that a committing transaction leaves the buffer alone, waits until its BATCH is in the
 * WAL, and syncs.
 *
 * Redo writes the versions of a key in the order of the records, so that must be the order of
 * the buffers: the buffers of a shard are finished one after the other (claim,
 * writer.c), and a commit logs from the oldest to the newest.  A commit holds commit_lock
 * shared from marking a buffer's entries until they are in the WAL, and a BATCH is logged under
 * it exclusively.  Else the BATCH of a newer buffer could precede the PUTs of an older one.
 *
 * A commit record can be on disk before its session knows, so all this is done at PRE_COMMIT.
 * Versions that are written after that are logged at once.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "miscadmin.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"

#include "engine/base/hash.h"
#include "engine/base/types.h"
#include "engine/base/wait.h"
#include "engine/buffer/internal.h"
#include "engine/buffer/largevalue.h"
#include "engine/engine.h"
#include "engine/format/format.h"
#include "engine/format/path.h"
#include "engine/io/fault.h"
#include "engine/io/name.h"
#include "engine/shard/shard.h"
#include "engine/buffer/buffer.h"
#include "engine/value/value.h"
#include "engine/xact/xact.h"

/* A shard to which this transaction has written. */
typedef struct KvTouchKey
{
	KvStore    *store;
	uint64		shard;
} KvTouchKey;

typedef struct KvTouch
{
	KvTouchKey	key;
	KvStoreKey	store;			/* the store's key; a savepoint may have rolled it back */
	uint64		sequence;		/* of the first buffer that has one of its entries */
	uint32		at;				/* offset of the first one there */
	uint32		number;			/* and its number */
	uint32		value_at;		/* its values begin here, or after this */
	uint64		entries;		/* how many were written */
} KvTouch;

#define KV_LEAST_FINDS	((Size) 8192)	/* bytes of memory to copy entries or values to */

static HTAB *touched = NULL;	/* in TopTransactionContext */
static KvTouch *last_touched = NULL;
static bool prepared = false;	/* PRE_COMMIT is over */

static bool
is_logged(int buffer, uint32 n)
{
	return (kv_buffer_logged(buffer)[n / 64] >> (n % 64)) & 1;
}

static void
set_logged(int buffer, uint32 n)
{
	kv_buffer_logged(buffer)[n / 64] |= UINT64CONST(1) << (n % 64);
}

static bool
is_in_buffer(const KvWriteBuffer *buffer, const KvLogEntry *entry)
{
	KvAddress	address = KV_LOCATION_ADDRESS(entry->location);

	return entry->len == 0 ||
		(address >= buffer->base && address < buffer->base + buffer->value_used);
}

/* The last entry of the buffer is the transaction's first one there. */
static void
note_first(KvTouch *touch, int i)
{
	const KvWriteBuffer *buffer = &kv_buffers[i];
	const KvLogEntry *entry;

	touch->at = buffer->last_entry;
	touch->number = buffer->nentries - 1;
	entry = (const KvLogEntry *) (kv_buffer_entries(i) + touch->at);
	touch->value_at = entry->len > 0 && is_in_buffer(buffer, entry) ?
		KV_LOCATION_ADDRESS(entry->location) - buffer->base : buffer->value_used;
}

bool
kv_commit_note_write(KvStore *store, uint32 shard_id)
{
	int			open = kv_shard(store, shard_id)->buffers.open;
	const KvWriteBuffer *buffer = &kv_buffers[open];
	KvTouchKey	key = {store, shard_id};
	bool		found;

	if (prepared)
	{
		set_logged(open, buffer->nentries - 1);
		return true;
	}
	if (last_touched == NULL || last_touched->key.store != store ||
		last_touched->key.shard != shard_id ||
		!kv_same_store(&last_touched->store, &store->key))
	{
		last_touched = hash_search(touched, &key, HASH_ENTER, &found);

		/* a store that a savepoint has rolled back may have had the same address */
		if (!found || !kv_same_store(&last_touched->store, &store->key))
		{
			last_touched->store = store->key;
			last_touched->sequence = buffer->sequence;
			note_first(last_touched, open);
			last_touched->entries = 0;
		}
	}
	last_touched->entries++;
	return false;
}

void
kv_commit_begin(void)
{
	if (touched == NULL)
		touched = kv_hash_create("kvfdw touched shards", sizeof(KvTouchKey), sizeof(KvTouch),
								 TopTransactionContext);
}

/* ---- writing a buffer out ---- */

void
kv_commit_log_batch(int i, const KvSorted *sorted)
{
	KvWriteBuffer *buffer = &kv_buffers[i];
	KvShard    *shard = kv_shard(buffer->store, buffer->shard);
	const KvLogBatch *batch = sorted->batch;
	const char *at = (const char *) (batch + 1);
	char	   *entries = palloc(batch->entry_bytes + 1);
	uint32		bytes = 0;
	uint32		taken = 0;

	LWLockAcquire(&shard->commit_lock, LW_EXCLUSIVE);
	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	buffer->batch_taken = true;
	for (uint32 n = 0; n < batch->nentries; n++)
	{
		Size		size = KV_LOG_ENTRY_SIZE(((const KvLogEntry *) at)->keylen);

		if (!is_logged(i, kv_sorted_arrival(sorted, n)))
		{
			memcpy(entries + bytes, at, size);
			bytes += size;
			taken++;
		}
		at += size;
	}
	LWLockRelease(&shard->lock);
	if (taken > 0)
		kv_wal_log_batch(&buffer->store->key, entries, bytes, taken);
	LWLockRelease(&shard->commit_lock);
	pfree(entries);
}

/* ---- committing ---- */

/* The entries of one buffer that a commit has to log. */
typedef struct KvFinds
{
	char	   *entries;		/* KvLogEntry and key, one after the other */
	Size		entry_room;
	uint32		bytes;
	char       *values;			/* the values of those that are not large values */
	Size		value_room;
	uint32		n;
	uint64		mine;			/* entries of this transaction, logged or not */
} KvFinds;

/* The shard's oldest buffer from this sequence number on; -1: none.  The lock is held. */
static int
oldest_buffer(const KvShard *shard, uint64 from)
{
	int			oldest = -1;

	for (int i = kv_shard_buffer(shard, -1); i >= 0; i = kv_shard_buffer(shard, i))
	{
		if (kv_buffers[i].sequence >= from &&
			(oldest < 0 || kv_buffers[i].sequence < kv_buffers[oldest].sequence))
			oldest = i;
	}
	return oldest;
}

/* Where entries of the transaction may begin in a buffer.  The lock is held. */
typedef struct KvFindFrom
{
	uint32		at;
	uint32		number;
	uint32		value_at;
} KvFindFrom;

static KvFindFrom
from_where(const KvTouch *touch, const KvWriteBuffer *buffer)
{
	if (buffer->sequence != touch->sequence)
		return (KvFindFrom) {0};
	return (KvFindFrom) {touch->at, touch->number, touch->value_at};
}

/* Is there memory for what may be found?  The lock is held. */
static bool
has_memory(const KvFinds *finds, const KvWriteBuffer *buffer, KvFindFrom from)
{
	return finds->entry_room >= buffer->entry_used - from.at &&
		finds->value_room >= buffer->value_used - from.value_at;
}

/* Takes as much memory as the buffer needed a moment ago.  No lock is held. */
static void
take_memory(KvFinds *finds, const KvWriteBuffer *buffer, KvFindFrom from)
{
	if (finds->entries != NULL)
	{
		pfree(finds->entries);
		pfree(finds->values);
	}
	finds->entry_room = buffer->entry_used - from.at;
	finds->value_room = buffer->value_used - from.value_at;
	finds->entry_room = Max(finds->entry_room + finds->entry_room / 4, KV_LEAST_FINDS);
	finds->value_room = Max(finds->value_room + finds->value_room / 4, KV_LEAST_FINDS);
	finds->entries = palloc(finds->entry_room);
	finds->values = palloc(finds->value_room);
}

/* Copy this transaction's unlogged entries, and count all.  The lock is held. */
static void
find_entries(int i, KvFindFrom from, KvFinds *finds)
{
	KvWriteBuffer *buffer = &kv_buffers[i];
	const char *at = kv_buffer_entries(i) + from.at;
	Size		value_bytes = 0;

	finds->bytes = finds->n = 0;
	for (uint32 n = from.number; n < buffer->nentries; n++)
	{
		const KvLogEntry *entry = (const KvLogEntry *) at;
		Size		size = KV_LOG_ENTRY_SIZE(entry->keylen);

		at += size;
		if (!kv_xid_is_mine(entry->xid))
			continue;
		finds->mine++;
		if (is_logged(i, n))
			continue;
		set_logged(i, n);
		memcpy(finds->entries + finds->bytes, entry, size);
		finds->bytes += size;
		finds->n++;
		if (is_in_buffer(buffer, entry))
		{
			memcpy(finds->values + value_bytes,
				   kv_buffer_values(i) + (KV_LOCATION_ADDRESS(entry->location) - buffer->base),
				   entry->len);
			value_bytes += entry->len;
		}
	}
}

/* Make values of a shard durable that are in files. */
static void
sync_values(KvStore *store, uint32 shard_id)
{
	KvShard    *shard = kv_shard(store, shard_id);
	uint64		writes = pg_atomic_read_u64(&shard->buffers.writes);

	/* one sync serves all processes whose values were written before it began */
	LWLockAcquire(&shard->extend_lock, LW_EXCLUSIVE);
	if (shard->buffers.synced < writes)
	{
		KvUnsynced *files;
		bool		named = true;
		int			n;

		writes = pg_atomic_read_u64(&shard->buffers.writes);
		n = kv_values_unsynced(store, shard_id, &files);
		KV_STOP_POINT("values_syncing");
		for (int i = 0; i < n && !kv_fault_skips("data_sync"); i++)
		{
			kv_io_sync_file(kv_path_value(&store->key, files[i].file));
			named = named && files[i].named;
		}
		if (!named)
			kv_values_sync_names(&store->key);
		kv_values_synced(store, shard_id, files, n);
		pfree(files);
		shard->buffers.synced = writes;
	}
	LWLockRelease(&shard->extend_lock);
}

/* Log the copied entries, large values by their location: those are synced. */
static void
log_finds(KvStore *store, const KvWriteBuffer *buffer, const KvFinds *finds)
{
	const char *at = finds->entries;
	const char *value = finds->values;

	for (uint32 n = 0; n < finds->n; n++)
	{
		const KvLogEntry *entry = (const KvLogEntry *) at;
		Size		size = KV_LOG_ENTRY_SIZE(entry->keylen);

		if (is_in_buffer(buffer, entry))
		{
			KvKey		key = kv_entry_key(entry);
			KvVersion	version = kv_entry_version(entry);

			kv_wal_log_version(&store->key, key, &version,
							   kv_value_crc_begin(&store->key, key, value, entry->len), value,
							   false);
			value += entry->len;
		}
		else
			kv_wal_log_batch(&store->key, at, size, 1);
		at += size;
	}
}

/* Has this transaction unlogged entries of large values?  The lock is held. */
static bool
has_large_values(int i, KvFindFrom from)
{
	const KvWriteBuffer *buffer = &kv_buffers[i];
	const char *at = kv_buffer_entries(i) + from.at;

	for (uint32 n = from.number; n < buffer->nentries; n++)
	{
		const KvLogEntry *entry = (const KvLogEntry *) at;

		if (!is_logged(i, n) && !is_in_buffer(buffer, entry) && kv_xid_is_mine(entry->xid))
			return true;
		at += KV_LOG_ENTRY_SIZE(entry->keylen);
	}
	return false;
}

/* Log all that this transaction has written to one shard. */
static void
log_shard(const KvTouch *touch, KvFinds *finds)
{
	KvStore    *store = touch->key.store;
	uint32		shard_id = touch->key.shard;
	KvShard    *shard = kv_shard(store, shard_id);
	uint64		from = touch->sequence;
	bool		synced = false;

	finds->mine = 0;
	ConditionVariablePrepareToSleep(&shard->changed);
	for (;;)
	{
		KvWriteBuffer buffer;
		KvFindFrom	start;
		bool		leaving;
		bool		unsynced;
		bool		room;
		int			i;

		CHECK_FOR_INTERRUPTS();
		LWLockAcquire(&shard->commit_lock, LW_SHARED);
		LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
		i = oldest_buffer(shard, from);
		if (i < 0)
		{
			LWLockRelease(&shard->lock);
			LWLockRelease(&shard->commit_lock);
			break;
		}
		buffer = kv_buffers[i];
		leaving = buffer.batch_taken;
		start = from_where(touch, &buffer);
		unsynced = !leaving && !synced && has_large_values(i, start);
		room = has_memory(finds, &buffer, start);
		if (!leaving && !unsynced && room)
			find_entries(i, start, finds);
		LWLockRelease(&shard->lock);
		if (!leaving && !unsynced && room)
		{
			KV_STOP_POINT("keys_found");
			log_finds(store, &buffer, finds);
			from = buffer.sequence + 1;
		}
		LWLockRelease(&shard->commit_lock);
		if (leaving)
		{
			ConditionVariableTimedSleep(&shard->changed, 1000, KV_WAIT_WRITE_BUFFER);
		}
		else if (unsynced)
		{
			/* large values do not count as writes of buffers */
			pg_atomic_fetch_add_u64(&shard->buffers.writes, 1);
			sync_values(store, shard_id);
			synced = true;
		}
		else if (!room)
			take_memory(finds, &buffer, start);
	}
	ConditionVariableCancelSleep();
	if (finds->mine < touch->entries)
		sync_values(store, shard_id);
}

void
kv_engine_before_commit(void)
{
	HASH_SEQ_STATUS status;
	KvTouch    *touch;
	KvFinds		finds = {0};

	prepared = true;
	if (touched == NULL)
		return;
	hash_seq_init(&status, touched);
	while ((touch = hash_seq_search(&status)) != NULL)
	{
		if (kv_store_live(&touch->store) == touch->key.store)
			log_shard(touch, &finds);
	}
	if (finds.entries != NULL)
	{
		pfree(finds.entries);
		pfree(finds.values);
	}

	/*
	 * other processes have logged all of it, with the buffers; PostgreSQL flushes no commit
	 * without WAL
	 */
	if (XactLastRecEnd == 0)
		kv_wal_mark_transaction(GetTopTransactionId());
	KV_STOP_POINT("keys_logged");
}

void
kv_engine_at_prepare(void)
{
	kv_commit_forget();
	kv_files_let_go();
}

/* The memory is freed with its context. */
void
kv_commit_forget(void)
{
	touched = NULL;
	last_touched = NULL;
	prepared = false;
}
