/*
 * redo.c
 *		Replays the engine's WAL records.
 *
 * Every store at wal level 'full' or 'keys' begins at its marks (trust.c).  Redo writes each
 * logged version into its shard again, through a write buffer like any write, with its own xid
 * and command id.  Redo may begin before a mark was made.  Then versions that the mark has are
 * written once more, as newer ones, which changes nothing for readers, which begin with the newest.
 *
 * An ERROR in redo stops the server from starting, so the ERROR of one store must be caught.
 * The store is put aside: nothing more is replayed into it, and it is unusable from then on.
 * It is marked as unusable, with the reason, before the WAL may be removed, and not earlier: a
 * recovery that fails as a whole leaves no mark, and the next one may succeed.  A problem that
 * concerns all stores (a full disk, no memory, a device that fails) does stop the server, as it
 * does for heap.
 *
 * At the end everything is made durable before the end-of-recovery checkpoint moves the redo
 * pointer beyond it.
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "access/xlogrecovery.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "storage/pmsignal.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"

#include "compat.h"
#include "report.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/base/error.h"
#include "engine/base/hash.h"
#include "engine/base/types.h"
#include "engine/base/wait.h"
#include "engine/durable/durable.h"
#include "engine/format/format.h"
#include "engine/flush/flush.h"
#include "engine/format/path.h"
#include "engine/io/fault.h"
#include "engine/lifecycle/lifecycle.h"
#include "engine/maintenance.h"
#include "engine/restart/restart.h"
#include "engine/shard/shard.h"
#include "engine/shard/valuefiles.h"
#include "engine/store.h"
#include "engine/write/write.h"
#include "engine/xact/walrecord.h"
#include "engine/xact/xact.h"

static MemoryContext redo_context = NULL;

/* ---- stores that are passed over ---- */

/*
 * A store into which nothing more is replayed, until the WAL may be removed.
 *
 * Put aside: a record could not be replayed into it.
 *
 * Absent: the WAL names it, and it has no directory.  A directory is durable before its CREATE
 * is logged.  So either it has been removed since, and the WAL will say so (GONE), or renamed
 * for that; or it is lost, and the table must not be found empty.  If sessions may use the
 * table before the end of redo, it is marked as lost at once; a GONE removes the mark.
 */
typedef struct KvPassed
{
	KvStoreKey	key;
	bool		absent;
	char		why[256];		/* if not absent: why it was put aside */
} KvPassed;

static HTAB *passed = NULL;		/* in TopMemoryContext */

static bool
is_passed(const KvStoreKey *key)
{
	return passed != NULL && hash_search(passed, key, HASH_FIND, NULL) != NULL;
}

static KvPassed *
pass_over(const KvStoreKey *key)
{
	KvPassed   *one;

	if (passed == NULL)
		passed = kv_hash_create("kvfdw stores passed over", sizeof(KvStoreKey), sizeof(KvPassed),
								TopMemoryContext);
	one = hash_search(passed, key, HASH_ENTER, NULL);
	one->absent = true;
	return one;
}

/* Another store has its key, or none is missing. */
static void
forget_passed(const KvStoreKey *key)
{
	if (passed != NULL)
		(void) hash_search(passed, key, HASH_REMOVE, NULL);
}

/* After an ERROR: put this store aside, or raise it again.  Ends in redo_context. */
static void
put_aside(const KvStoreKey *key)
{
	ErrorData  *error;
	KvPassed   *one;
	KvStore    *store;

	MemoryContextSwitchTo(redo_context);
	error = CopyErrorData();
	if (key == NULL || kv_error_concerns_all(error->sqlerrcode))
		PG_RE_THROW();
	kv_drop_error(true);
	ereport(WARNING,
			(errmsg("kvfdw foreign table with OID %u in database with OID %u is now unusable",
					key->relid, key->dboid),
			 errdetail("WAL could not be replayed into the table: %s. Replay of other tables "
					   "continues.", error->message),
			 errhint("To find the name of the table, run in its database: SELECT %u::regclass;",
					 key->relid)));
	one = pass_over(key);
	one->absent = false;
	strlcpy(one->why, error->message, sizeof(one->why));
	store = kv_store_find(key->dboid, key->relid, key->generation);
	if (store != NULL)
		store->shape.unusable = true;
}

static void
make_unusable(KvStore *store, const char *why)
{
	kv_store_mark_unusable(&store->key, ERRCODE_DATA_CORRUPTED, why);
	store->shape.unusable = true;
}

/* Unless it was dropped, its use is an error from now on: it is no empty table. */
static void
make_lost(const KvStoreKey *key)
{
	KvStoreShape shape = {.nshards = 1, .wal = KV_WAL_FULL};

	if (!kv_store_was_dropped(key))
		make_unusable(kv_store_make(key, &shape, NULL),
					  "Its directory was missing when the WAL was replayed.");
}

/* The WAL may soon be removed: mark the stores that were passed over as unusable. */
static void
mark_passed(void)
{
	HASH_SEQ_STATUS status;
	KvPassed   *one;

	if (passed == NULL)
		return;
	hash_seq_init(&status, passed);
	while ((one = hash_seq_search(&status)) != NULL)
	{
		KvStore    *store = kv_store_find(one->key.dboid, one->key.relid,
										  one->key.generation);

		if (store != NULL && pg_atomic_read_u32(&store->state) == KV_STORE_DROPPED)
			continue;
		if (!one->absent && store != NULL)
			make_unusable(store, one->why);
		else if (one->absent && store == NULL)
			make_lost(&one->key);
	}
	hash_destroy(passed);
	passed = NULL;
}

/* The store that redo is about to change; NULL if it does not exist or is unusable. */
static KvStore *
store_to_change(const KvStoreKey *key)
{
	KvStore    *store;

	if (is_passed(key))
		return NULL;
	store = kv_store_by_key(key);
	if (store == NULL)
	{
		(void) pass_over(key);
		if (kv_control->follows)
			make_lost(key);
		return NULL;
	}
	if (store->shape.unusable)
		return NULL;
	kv_store_ensure_open(store);
	return store;
}

/* ---- resolving xids ---- */

/* Open a store, or resolve its xids. */
static void
resolve_store(const KvStoreKey *key, bool open)
{
	KvStore    *store = kv_store_by_key(key);

	if (store == NULL)
		return;
	if (open)
		kv_store_resolve_creator(store);
	if (store->shape.unusable)
		return;
	if (open)
		kv_store_ensure_open(store);
	else if (pg_atomic_read_u32(&store->state) == KV_STORE_OPEN)
		kv_store_resolve(store);
}

static void
attempt_resolve(const KvStoreKey *key, const void *open)
{
	kv_interrupts();
	PG_TRY();
	{
		resolve_store(key, *(const bool *) open);
	}
	PG_CATCH();
	{
		put_aside(key);
	}
	PG_END_TRY();
}

/* Replay a DURABLE record, which says that every transaction before horizon had ended. */
static void
resolve_replayed(uint64 horizon)
{
	bool		open = true;
	bool		resolve = false;

	if (horizon == 0)
		return;					/* by a library that did not log it */
	if (kv_resolve_begin_replay(horizon))
		(void) kv_visit_stores(attempt_resolve, &open);
	(void) kv_visit_stores(attempt_resolve, &resolve);
	kv_resolve_end_replay(horizon);
}

/* ---- records ---- */

/*
 * ERROR if the record is invalid.  Its store is entered first, so that there is one to put
 * aside.
 */
static void
check_record(XLogReaderState *record)
{
	uint8		type = XLogRecGetInfo(record) & ~XLR_INFO_MASK;
	const char *data = XLogRecGetData(record);
	Size		len = XLogRecGetDataLen(record);

	if (kv_wal_is_sound(type, data, len))
		return;
	if (kv_wal_names_store(type, data, len))
		(void) store_to_change((const KvStoreKey *) data);
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("kvfdw WAL record at %X/%X is damaged",
					LSN_FORMAT_ARGS(record->ReadRecPtr))));
}

static void
redo_put(const char *data)
{
	const KvWalPut *put = (const KvWalPut *) data;
	KvStore    *store = store_to_change(&put->store);
	KvKey		key = {(const uint8 *) (put + 1), put->keylen};
	KvVersion	version = {0};

	/* at wal level 'keys' the record is the top transaction's, the version a subtransaction's */
	AdvanceNextFullTransactionIdPastXid((TransactionId) put->xid);
	if (store == NULL)
		return;
	version.xid = put->xid;
	version.cid = put->cid;
	version.kind = put->kind;
	version.len = put->len;
	kv_redo_version(store, key, &version, (KvForm) put->form, put->crc,
					(const char *) key.data + put->keylen);
}

static void
redo_versions(const char *data)
{
	const KvWalVersions *versions = (const KvWalVersions *) data;
	const char *at = (const char *) (versions + 1);
	KvStore    *store = store_to_change(&versions->store);

	AdvanceNextFullTransactionIdPastXid((TransactionId) versions->xid);
	for (uint32 i = 0; store != NULL && i < versions->nversions; i++)
	{
		KvWalVersion one;
		KvKey		key;
		KvVersion	version = {.xid = versions->xid, .cid = versions->cid};

		memcpy(&one, at, sizeof(one));
		version.kind = one.kind;
		version.len = one.len;
		key.data = (const uint8 *) at + sizeof(one);
		key.len = one.keylen;
		kv_redo_version(store, key, &version, (KvForm) one.form, one.crc,
						(const char *) key.data + one.keylen);
		at += sizeof(one) + one.keylen + one.len;
	}
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

		/* another process logged the record, perhaps before its transaction had logged any */
		AdvanceNextFullTransactionIdPastXid((TransactionId) entry->xid);
		if (store != NULL)
			kv_redo_location(store, kv_entry_key(entry), &version);
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
	KvStoreShape shape = {0};

	if (store != NULL && store->shape.id != create->id)
	{
		/* dropped if a later CREATE record belongs to the existing store */
		KvPassed   *one = pass_over(&create->store);

		one->absent = false;
		snprintf(one->why, sizeof(one->why), "Directory \"%s\" belongs to another store.",
				 kv_path_store(&create->store));
		return;
	}
	if (store != NULL)
	{
		/*
		 * it exists, set back to its mark or newer; the transaction that created it is in this
		 * WAL, so clog has its status; in a backup's copy the boundary of its incarnation,
		 * which is provisional until the end of redo, could say that it has aborted
		 */
		kv_store_trust_creator(store);
		forget_passed(&create->store);
		return;
	}
	if (!kv_control->follows)
	{
		/* its directory was durable before this record: so it was dropped since, or is lost */
		(void) pass_over(&create->store);
		return;
	}
	forget_passed(&create->store);
	if (create->wal & KV_WAL_IN_TABLESPACE)
	{
		memcpy(&shape.tablespace, at, sizeof(Oid));
		at += sizeof(Oid);
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
	shape.wal = (KvWalLevel) (create->wal & ~KV_WAL_IN_TABLESPACE);
	store = kv_store_make(&create->store, &shape, bounds);
	if (store->shape.wal != KV_WAL_FULL && kv_control->follows)
	{
		kv_store_mark_not_logged(&store->key, store->shape.wal);
		store->shape.unusable = true;
	}
}

static void
redo_schema(const char *data, Size len)
{
	const KvStoreKey *key = (const KvStoreKey *) data;
	KvStore    *store = is_passed(key) ? NULL : kv_store_by_key(key);

	if (store != NULL && !store->shape.unusable)
		kv_store_set_schema(store, data + sizeof(KvStoreKey), len - sizeof(KvStoreKey));
}

static void
redo_move(const char *data, uint64 lsn)
{
	const KvWalMove *move = (const KvWalMove *) data;
	KvStore    *store = is_passed(&move->store) ? NULL : kv_store_by_key(&move->store);

	if (store != NULL && !store->shape.unusable && store->shape.id == move->id)
		kv_move_redo(store, move->tablespace, lsn);
}

static void
apply(XLogReaderState *record)
{
	const char *data = XLogRecGetData(record);

	check_record(record);
	switch (XLogRecGetInfo(record) & ~XLR_INFO_MASK)
	{
		case KV_XLOG_PUT:
			redo_put(data);
			break;
		case KV_XLOG_VERSIONS:
			redo_versions(data);
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
		case KV_XLOG_MOVE:
			redo_move(data, record->EndRecPtr);
			break;
		case KV_XLOG_GONE:
			forget_passed(&((const KvWalGone *) data)->store);
			if (kv_control->follows)
				kv_wal_flush();	/* the server can never go back to before this */
			kv_generation_remove(&((const KvWalGone *) data)->store,
								 ((const KvWalGone *) data)->id);
			break;
		case KV_XLOG_DURABLE:
			if (kv_control->follows)
			{
				mark_passed();
				if (XLogRecGetDataLen(record) >= sizeof(KvWalDurable))
					resolve_replayed(((const KvWalDurable *) data)->horizon);
				kv_checkpointer_replay(record->EndRecPtr,
									   ((const KvWalDurable *) data)->redo,
									   ((const KvWalDurable *) data)->closing, put_aside,
									   mark_passed);
				kv_files_let_go();
			}
			break;
	}
}

/* ---- the end of the process ---- */

static volatile bool in_record = false;

/*
 * A server that follows is stopped.  It may have made a restartpoint of a checkpoint before
 * which its primary has logged no DURABLE (checkpoint/checkpointer.c), and makes one more after
 * this.  So let the marks have everything that was replayed.  An ERROR here merely ends the
 * process; then the marks are those of the last DURABLE.
 */
static void
marks_at_exit(int code, Datum arg)
{
	KvCheckpointerStats stats = {0};
	uint64		replayed = GetXLogReplayRecPtr(NULL);

	if (in_record || !kv_control->follows || kv_control->covered == 0 ||
		kv_control->covered >= replayed || !PostmasterIsAlive())
		return;
	if (redo_context == NULL)
		redo_context = AllocSetContextCreate(TopMemoryContext, "kvfdw redo",
											 ALLOCSET_DEFAULT_SIZES);
	MemoryContextSwitchTo(redo_context);
	mark_passed();
	kv_wal_flush();
	kv_checkpointer_flush(replayed + 1, &stats, NULL);
	kv_incarnation_covered(replayed, kv_control->late);
}

static void
redo_record(XLogReaderState *record)
{
	static bool registered = false;
	MemoryContext old;
	bool		of_store = kv_wal_names_store(XLogRecGetInfo(record) & ~XLR_INFO_MASK,
											  XLogRecGetData(record), XLogRecGetDataLen(record));

	if (!kv_engine_ready())
		kv_report_not_preloaded(FATAL);
	if (redo_context == NULL)
		redo_context = AllocSetContextCreate(TopMemoryContext, "kvfdw redo",
											 ALLOCSET_DEFAULT_SIZES);
	if (!registered && kv_control->follows)
		before_shmem_exit(marks_at_exit, (Datum) 0);
	registered = true;
	in_record = true;
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
	in_record = false;
}

static void
sweep_store(void *store)
{
	KV_STOP_POINT("redo_before_sweep");
	kv_value_files_sweep(store);
	kv_value_files_cut(store);
}

/*
 * Remove value files that no shard lists: no record can name them any more.  A store that was
 * put aside is skipped, because its shards do not list the value files of records that were not
 * replayed.  Remaining files are removed after the next start.
 */
static void
sweep_value_files(void)
{
	List	   *stores = kv_stores_pin_state(InvalidOid, KV_STORE_OPEN);
	ListCell   *cell;

	foreach(cell, stores)
	{
		KvStore    *store = lfirst(cell);

		if (store->shape.wal == KV_WAL_KEYS && !store->shape.unusable)
			(void) kv_attempt(sweep_store, store);
	}
	kv_stores_unpin(stores);
}

static void
require_space(const KvStoreKey *key, const void *arg)
{
	Oid			tablespace = kv_space_forgotten(key);
	KvStore    *store = OidIsValid(tablespace) ? kv_store_by_key(key) : NULL;

	/*
	 * a store whose creation was not committed is removed, and its tablespace may have been
	 * dropped before
	 */
	if (store != NULL && (store->shape.creator == 0 ||
						  kv_xid_status(store->shape.creator, store->shape.creator_incarnation) ==
						  KV_XID_COMMITTED))
		kv_space_raise_forgotten(key, tablespace);
}

static void
redo_cleanup(void)
{
	KvCheckpointerStats stats = {0};
	MemoryContext old;

	if (!kv_engine_ready())
		return;
	redo_context = AllocSetContextCreate(TopMemoryContext, "kvfdw redo",
										 ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(redo_context);
	kv_incarnation_redo_done();
	KV_STOP_POINT("redo_before_flush");

	/*
	 * after a crash redo has continued where a tablespace was missing, because the WAL might
	 * have dropped it; as it has not, its link is missing; so the server does not start, and no
	 * WAL is removed
	 */
	if (!kv_control->follows)
		(void) kv_visit_stores(require_space, NULL);

	/* flush first: a mark must not be newer than the minimum recovery point */
	if (kv_control->follows)
		kv_wal_flush();
	kv_checkpointer_flush(GetXLogReplayRecPtr(NULL) + 1, &stats, put_aside);
	mark_passed();
	sweep_value_files();
	KV_STOP_POINT("redo_flushed");
	kv_incarnation_complete(true);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(redo_context);
	redo_context = NULL;
}

/* ---- the resource manager ---- */

static KV_RMGR_CONST RmgrData kv_rmgr = {
	.rm_name = "kvfdw",
	.rm_redo = redo_record,
	.rm_desc = kv_wal_describe,
	.rm_identify = kv_wal_identify,
	.rm_cleanup = redo_cleanup,
	.rm_decode = kv_wal_decode,
};

void
kv_wal_register(void)
{
	RegisterCustomRmgr(KV_RMGR_ID, &kv_rmgr);
}
