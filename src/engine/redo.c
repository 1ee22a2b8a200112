/*
 * redo.c
 *		The engine's WAL records, replayed.
 *
 * After a crash of the server alone nothing is replayed: the page cache has kept
 * all that was written, and more than was logged (trust.c).  Otherwise every store
 * was set back to its image, and each PUT is written into its shard again, through
 * a merge slot like any write, with its own xid and command id.  Redo may begin
 * before an image was made; then versions that are in it are written once more,
 * on top, which changes nothing for anybody who looks from the top.
 *
 * No ERROR of one store may stop the server (F 12).  It makes the store unusable
 * from then on, with the reason kept in its directory.  What concerns all
 * (a full disk, no memory) does stop it, as it does for heap.
 *
 * At the end everything is made durable before the end-of-recovery checkpoint moves
 * the redo pointer beyond it.
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "access/xlogrecovery.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "utils/memutils.h"

#include "engine/walrecord.h"

static MemoryContext redo_context = NULL;

/* After an ERROR: put this store aside, or give up altogether. */
static void
put_aside(const KvStoreKey *key)
{
	MemoryContext old = MemoryContextSwitchTo(redo_context);
	ErrorData  *error = CopyErrorData();
	KvStore    *store;

	if (key == NULL || kv_error_concerns_all(error->sqlerrcode))
		PG_RE_THROW();
	kv_forget_error(true);
	store = kv_store_find(key->dboid, key->relid, key->generation);
	ereport(WARNING,
			(errmsg("kvfdw goes on without table %u of database %u", key->relid, key->dboid),
			 errdetail("Using it is an error from now on.")));
	if (store != NULL)
		kv_store_mark_unusable(store, ERRCODE_DATA_CORRUPTED, error->message);
	MemoryContextSwitchTo(old);
}

/* A store that redo is about to change; NULL if it is unusable. */
static KvStore *
store_to_change(const KvStoreKey *key)
{
	KvStore    *store = kv_store_by_key(key);

	if (store == NULL)
	{
		KvStore		shape = {0};
		static KvStoreKey dropped;

		/* dropped, or its TRUNCATE rolled back, just before the server stopped */
		if (memcmp(&dropped, key, sizeof(dropped)) == 0)
			return NULL;
		if (kv_store_was_dropped(key))
		{
			dropped = *key;
			return NULL;
		}

		/* dropped later in the WAL; or else its use must not find it empty */
		shape.nshards = 1;
		shape.wal = KV_WAL_FULL;
		store = kv_store_make(key, &shape, NULL);
		kv_store_mark_unusable(store, ERRCODE_DATA_CORRUPTED,
							   "Its directory was missing when the WAL was replayed.");
	}
	if (store->unusable)
		return NULL;
	kv_store_ensure_open(store);
	return store;
}

static void
redo_put(const char *data)
{
	const KvWalPut *put = (const KvWalPut *) data;
	KvStore    *store = store_to_change(&put->store);
	KvKey		key = {(const uint8 *) (put + 1), put->keylen};
	KvVersion	version = {0};

	/* at wal level 'keys' the record is the top transaction's, the version a child's */
	AdvanceNextFullTransactionIdPastXid((TransactionId) put->xid);
	if (store == NULL)
		return;
	version.xid = put->xid;
	version.cid = put->cid;
	version.kind = put->kind;
	version.len = put->len;
	kv_write_again(store, key, &version, (KvForm) put->form, put->crc,
				   (const char *) key.data + put->keylen);
}

static void
redo_batch(const char *data)
{
	const KvWalBatch *batch = (const KvWalBatch *) data;
	const char *at = (const char *) (batch + 1);
	KvStore    *store = store_to_change(&batch->store);

	for (uint32 i = 0; i < batch->nentries; i++)
	{
		const KvLogEntry *entry = (const KvLogEntry *) at;
		KvVersion	version = kv_entry_version(entry);

		/* the record was made by others, perhaps before its transaction had any */
		AdvanceNextFullTransactionIdPastXid((TransactionId) entry->xid);
		if (store != NULL)
			kv_write_placed(store, kv_entry_key(entry), &version);
		at += KV_LOG_ENTRY_SIZE(entry->keylen);
	}
}

static void
redo_create(const char *data)
{
	const KvWalCreate *create = (const KvWalCreate *) data;
	const char *at = (const char *) (create + 1);
	KvStore    *store = kv_store_by_key(&create->store);
	KvKey	   *bounds;
	KvStore		shape = {0};

	if (store != NULL)
	{
		if (store->id != create->id)
			ereport(ERROR,
					(errcode(ERRCODE_DATA_CORRUPTED),
					 errmsg("directory \"%s\" is of another store",
							kv_path_store(&create->store))));
		return;					/* set back to what it was, or it is younger than that */
	}
	bounds = palloc0(sizeof(KvKey) * create->nshards);
	for (uint32 i = 1; i < create->nshards; i++)
	{
		uint16		len;

		memcpy(&len, at, sizeof(len));
		bounds[i].data = (const uint8 *) at + sizeof(len);
		bounds[i].len = len;
		at += sizeof(len) + len;
	}
	shape.nshards = create->nshards;
	shape.id = create->id;
	shape.creator = create->creator;
	shape.key_width = create->key_width;
	shape.wal = (KvWalLevel) create->wal;
	store = kv_store_make(&create->store, &shape, bounds);
	if (store->wal != KV_WAL_FULL && kv_shared->follows)
		kv_store_mark_not_logged(store);
}

static void
redo_schema(const char *data, Size len)
{
	const KvStoreKey *key = (const KvStoreKey *) data;
	KvStore    *store = kv_store_by_key(key);

	if (store != NULL && !store->unusable)
		kv_store_set_schema(store, data + sizeof(KvStoreKey), len - sizeof(KvStoreKey));
}

static void
apply(XLogReaderState *record)
{
	const char *data = XLogRecGetData(record);

	switch (XLogRecGetInfo(record) & ~XLR_INFO_MASK)
	{
		case KV_XLOG_PUT:
			redo_put(data);
			break;
		case KV_XLOG_BATCH:
			redo_batch(data);
			break;
		case KV_XLOG_CREATE:
			redo_create(data);
			break;
		case KV_XLOG_SCHEMA:
			redo_schema(data, XLogRecGetDataLen(record));
			break;
		case KV_XLOG_GONE:
			kv_generation_remove(&((const KvWalGone *) data)->store,
								 ((const KvWalGone *) data)->id);
			break;
		case KV_XLOG_BARRIER:
			if (kv_shared->follows)
				kv_barrier_replay(record->EndRecPtr,
								  ((const KvWalBarrier *) data)->redo,
								  ((const KvWalBarrier *) data)->closing, put_aside);
			break;
		default:
			elog(PANIC, "kvfdw: unknown WAL record type %u", XLogRecGetInfo(record));
	}
}

void
kv_redo_record(XLogReaderState *record)
{
	MemoryContext old;
	bool		of_store = (XLogRecGetInfo(record) & ~XLR_INFO_MASK) != KV_XLOG_BARRIER;

	if (kv_shared == NULL)
		ereport(FATAL,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("kvfdw must be loaded via shared_preload_libraries")));
	if (!kv_shared->rebuilding)
		return;
	if (redo_context == NULL)
		redo_context = AllocSetContextCreate(TopMemoryContext, "kvfdw redo",
											 ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(redo_context);
	PG_TRY();
	{
		apply(record);
	}
	PG_CATCH();
	{
		put_aside(of_store ? (const KvStoreKey *) XLogRecGetData(record) : NULL);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(old);
	MemoryContextReset(redo_context);
}

/*
 * After a crash of the server alone: open a store that has more than its images, so
 * that it gets into new ones.
 */
static void
open_unfinished(const KvStoreKey *key, const void *arg)
{
	KvStore    *volatile store = NULL;

	PG_TRY();
	{
		store = kv_store_by_key(key);
		if (store != NULL && !store->unusable && kv_store_needs_images(store))
			kv_store_ensure_open(store);
	}
	PG_CATCH();
	{
		/* its first use will find the same, and say so, or it will not */
		MemoryContextSwitchTo(redo_context);
		kv_forget_error(true);
		if (store != NULL)
			kv_store_mark_behind(store, true);
	}
	PG_END_TRY();
}

void
kv_redo_cleanup(void)
{
	KvBarrierStats stats = {0};
	MemoryContext old;

	if (kv_shared == NULL)
		return;
	redo_context = AllocSetContextCreate(TopMemoryContext, "kvfdw redo",
										 ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(redo_context);
	kv_incarnation_redo_done();
	if (!kv_shared->rebuilding)
		(void) kv_visit_stores(open_unfinished, NULL);
	KV_STOP_POINT("redo_before_flush");

	/* images are never ahead of what the server must not go back behind */
	if (kv_shared->follows)
		kv_wal_flush();
	kv_barrier_flush(GetXLogReplayRecPtr(NULL) + 1, &stats, put_aside);
	KV_STOP_POINT("redo_flushed");
	kv_incarnation_rebuilt();
	MemoryContextSwitchTo(old);
	MemoryContextDelete(redo_context);
	redo_context = NULL;
}
