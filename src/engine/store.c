/*
 * store.c
 *		Which store is a table's: tables, their generations, opening.
 *
 * A table is (database, relation); each TRUNCATE gives it a new generation,
 * tagged with the truncating (sub)transaction's xid.  The live one is the
 * newest whose creator committed or is the current transaction; TRUNCATE holds
 * AccessExclusiveLock to its end, so nobody meets a creator that is still
 * unfinished.  Everything about it follows from clog; no callback has to
 * publish anything (I 1).
 *
 * Tables and generations are hash tables in shared memory, filled from the
 * directories at first use and guarded by control_lock.
 */
#include "postgres.h"

#include <dirent.h>
#include <sys/stat.h>

#include "access/xact.h"
#include "access/xlog.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "utils/hsearch.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "engine/internal.h"

HTAB	   *kv_store_hash = NULL;
HTAB	   *kv_table_hash = NULL;

KvStore *
kv_store_find(Oid dboid, Oid relid, uint32 generation)
{
	KvStoreKey	key = {dboid, relid, generation};

	return hash_search(kv_store_hash, &key, HASH_FIND, NULL);
}

static void
too_many_tables(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_OUT_OF_MEMORY),
			 errmsg("too many kvfdw tables in use"),
			 errhint("You might need to increase kvfdw.max_tables.")));
}

/* Enter a generation.  control_lock held exclusively. */
static KvStore *
enter_store(Oid dboid, Oid relid, uint32 generation)
{
	KvStoreKey	key = {dboid, relid, generation};
	bool		found;
	KvStore    *store = hash_search(kv_store_hash, &key, HASH_ENTER_NULL, &found);

	if (store == NULL)
		too_many_tables();
	if (!found)
	{
		memset((char *) store + sizeof(KvStoreKey), 0, sizeof(KvStore) - sizeof(KvStoreKey));
		store->shards = store->bounds = InvalidDsaPointer;
		pg_atomic_init_u32(&store->state, KV_STORE_CLOSED);
		pg_atomic_init_u32(&store->pins, 0);
		pg_atomic_init_u32(&store->next_shard, 0);
		pg_atomic_init_u32(&store->helpers, 0);
		ConditionVariableInit(&store->opened);
		for (int i = 0; i < KV_COUNTERS; i++)
			pg_atomic_init_u64(&store->counters[i], 0);
	}
	return store;
}

/* The generation that counts for this transaction, or NULL.  control_lock held. */
static KvStore *
live_store(const KvTableEntry *entry)
{
	for (uint32 g = entry->newest; g >= entry->oldest && g > 0; g--)
	{
		KvStore    *store = kv_store_find(entry->dboid, entry->relid, g);

		if (store == NULL || pg_atomic_read_u32(&store->state) == KV_STORE_DROPPED)
			continue;
		if (store->creator == 0 ||
			(!kv_incarnation_aborted(store->creator_incarnation, store->creator) &&
			 kv_xid_is_mine(store->creator)) ||
			kv_xid_fate(store->creator, store->creator_incarnation) == KV_FATE_COMMITTED)
			return store;
	}
	return NULL;
}

/* Discard what a TRUNCATE whose end was a crash has left.  control_lock held exclusively. */
static void
discard_losers(KvTableEntry *entry)
{
	KvStore    *live = live_store(entry);

	for (uint32 g = entry->oldest; live != NULL && g > 0 && g <= entry->newest; g++)
	{
		KvStore    *store = kv_store_find(entry->dboid, entry->relid, g);

		if (store != NULL && store != live &&
			pg_atomic_read_u32(&store->state) != KV_STORE_DROPPED &&
			(g < live->key.generation ||
			 kv_xid_fate(store->creator, store->creator_incarnation) == KV_FATE_ABORTED))
			kv_generation_discard(entry->dboid, entry->relid, g);
	}
}

/*
 * Read a table's directory into the hash tables, sweeping what an unfinished
 * creation left.  control_lock held exclusively.
 */
static void
load_table(KvTableEntry *entry)
{
	const char *directory = kv_path_table_directory(entry->dboid, entry->relid);
	DIR		   *dir = AllocateDir(directory);
	struct dirent *de;

	if (dir == NULL && errno == ENOENT)
		return;
	while ((de = ReadDir(dir, directory)) != NULL)
	{
		uint32		generation;
		char		rest[5];
		int			n = sscanf(de->d_name, "%8x%4s", &generation, rest);

		if (n == 2 && strcmp(rest, ".new") == 0)
		{
			char	   *path = psprintf("%s/%s", directory, de->d_name);

			kv_io_rmtree(path);
			pfree(path);
		}
		else if (n == 1 && strlen(de->d_name) == 8)
		{
			KvStore    *store = enter_store(entry->dboid, entry->relid, generation);

			if (!kv_table_file_read(store, NULL))
				ereport(ERROR,
						(errcode(ERRCODE_DATA_CORRUPTED),
						 errmsg("file \"%s/table\" is missing", kv_path_store(&store->key))));
			entry->newest = Max(entry->newest, generation);
			entry->oldest = entry->oldest == 0 ? generation : Min(entry->oldest, generation);
		}
	}
	FreeDir(dir);

	/* redo may still need it; then the maintainer does this */
	if (!RecoveryInProgress())
		discard_losers(entry);
}

/*
 * The table's entry, loaded; NULL if there is none and !create.  control_lock
 * must not be held.
 */
KvTableEntry *
kv_table_entry(Oid dboid, Oid relid, bool create)
{
	struct
	{
		Oid			dboid;
		Oid			relid;
	}			key = {dboid, relid};
	KvTableEntry *entry;
	bool		found;

	LWLockAcquire(&kv_shared->control_lock, LW_SHARED);
	entry = hash_search(kv_table_hash, &key, HASH_FIND, NULL);
	if (entry != NULL && entry->loaded)
	{
		LWLockRelease(&kv_shared->control_lock);
		return entry;
	}
	LWLockRelease(&kv_shared->control_lock);

	/* a table that was never written needs no entry */
	if (!create && access(kv_path_table_directory(dboid, relid), F_OK) != 0 &&
		errno == ENOENT)
		return NULL;

	LWLockAcquire(&kv_shared->control_lock, LW_EXCLUSIVE);
	entry = hash_search(kv_table_hash, &key, HASH_ENTER_NULL, &found);
	if (entry == NULL)
		too_many_tables();
	if (!found)
	{
		entry->loaded = false;
		entry->oldest = entry->newest = 0;
		entry->birth = 0;
	}
	if (!entry->loaded)
	{
		load_table(entry);
		entry->loaded = true;
	}
	LWLockRelease(&kv_shared->control_lock);
	return entry;
}

/* Enter a table, after redo, which has perhaps done so: without what has lost. */
void
kv_table_settle(Oid dboid, Oid relid)
{
	KvTableEntry *entry = kv_table_entry(dboid, relid, false);

	if (entry == NULL)
		return;
	LWLockAcquire(&kv_shared->control_lock, LW_EXCLUSIVE);
	discard_losers(entry);
	LWLockRelease(&kv_shared->control_lock);
}

/* Make a generation of a table, of this shape.  control_lock held exclusively. */
static KvStore *
make_generation(KvTableEntry *entry, uint32 generation, const KvStore *shape,
				const KvKey *bounds)
{
	KvStoreKey	key = {entry->dboid, entry->relid, generation};
	KvStore    *store;

	(void) kv_slots_discard(&key);
	store = enter_store(key.dboid, key.relid, key.generation);
	store->creator = shape->creator;
	store->creator_incarnation = kv_writing_incarnation();
	store->nshards = shape->nshards;
	store->key_width = shape->key_width;
	store->id = shape->id;
	store->wal = shape->wal;
	PG_TRY();
	{
		kv_store_files_create(store, bounds);
	}
	PG_CATCH();
	{
		hash_search(kv_store_hash, &key, HASH_REMOVE, NULL);
		PG_RE_THROW();
	}
	PG_END_TRY();
	entry->newest = Max(entry->newest, key.generation);
	entry->oldest = entry->oldest == 0 ? key.generation : Min(entry->oldest, key.generation);
	return store;
}

/* Make the table's next generation.  control_lock held exclusively. */
static KvStore *
create_generation(KvTableEntry *entry, int shards, int key_width, const KvKey *bounds,
				  KvWalLevel wal, uint64 creator)
{
	KvStore		shape = {0};
	KvStore    *store;

	shape.creator = creator;
	shape.nshards = shards;
	shape.key_width = key_width <= 8 ? key_width : 0;
	shape.id = pg_atomic_fetch_add_u64(&kv_shared->sequence, 1);
	shape.wal = wal;
	store = make_generation(entry, entry->newest + 1, &shape, bounds);
	kv_wal_log_create(store, bounds);
	return store;
}

/* Is the generation in shared memory, in whatever state? */
bool
kv_store_is_known(const KvStoreKey *key)
{
	bool		known;

	LWLockAcquire(&kv_shared->control_lock, LW_SHARED);
	known = kv_store_find(key->dboid, key->relid, key->generation) != NULL;
	LWLockRelease(&kv_shared->control_lock);
	return known;
}

/* Redo: the generation that a CREATE record tells of. */
KvStore *
kv_store_make(const KvStoreKey *key, const KvStore *shape, const KvKey *bounds)
{
	KvTableEntry *entry = kv_table_entry(key->dboid, key->relid, true);
	KvStore    *store;

	/* one that had this key and has gone may still be in memory */
	while (kv_store_is_known(key))
	{
		kv_drop_collect();
		kv_wait_interrupts();
		pg_usleep(1000);
	}
	LWLockAcquire(&kv_shared->control_lock, LW_EXCLUSIVE);
	store = make_generation(entry, key->generation, shape, bounds);
	LWLockRelease(&kv_shared->control_lock);
	return store;
}

/* The generation with this key, if it is there and not dropped; its table is loaded. */
KvStore *
kv_store_by_key(const KvStoreKey *key)
{
	KvStore    *store = NULL;

	if (kv_table_entry(key->dboid, key->relid, false) == NULL)
		return NULL;
	LWLockAcquire(&kv_shared->control_lock, LW_SHARED);
	store = kv_store_find(key->dboid, key->relid, key->generation);
	if (store != NULL && pg_atomic_read_u32(&store->state) == KV_STORE_DROPPED)
		store = NULL;
	LWLockRelease(&kv_shared->control_lock);
	return store;
}

/*
 * A store of a library that logged nothing gets an identity, and the WAL learns
 * that it is there.
 */
static void
introduce(KvStore *store)
{
	KvKey	   *bounds = palloc0(sizeof(KvKey) * store->nshards);
	StringInfoData schema;

	for (int i = 0; i < store->nshards; i++)
		bounds[i] = kv_shard_bound(store, i);
	initStringInfo(&schema);
	kv_store_get_schema(store, &schema);
	store->id = pg_atomic_fetch_add_u64(&kv_shared->sequence, 1);
	kv_wal_log_create(store, bounds);
	kv_store_set_schema(store, schema.data, schema.len);
	pfree(schema.data);
	pfree(bounds);
}

/*
 * ERROR if the table came here with CREATE DATABASE … TEMPLATE: its catalog rows
 * were copied, its files were not, and it must not look empty (F 21).  An OID
 * of ours that also names a table in another database's directory can have no
 * other origin short of OID wraparound.
 */
static void
refuse_copied_table(Oid dboid, Oid relid)
{
	ListCell   *cell;

	foreach(cell, kv_numbered_entries("kvfdw"))
	{
		if (lfirst_oid(cell) != dboid &&
			access(kv_path_table_directory(lfirst_oid(cell), relid), F_OK) == 0)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("the data of this table was not copied with its database"),
					 errdetail("CREATE DATABASE copies the catalogs of its template but not the files of kvfdw tables."),
					 errhint("TRUNCATE the table to begin with an empty one, then load the data from the template.")));
	}
}

KvStore *
kv_store_open(Oid dboid, Oid relid, int shards, int key_width, const KvKey *bounds,
			  KvWalLevel wal, bool create, SubTransactionId created_in)
{
	KvTableEntry *entry = kv_table_entry(dboid, relid, create);
	KvStore    *store;

	if (entry == NULL)
	{
		if (created_in == InvalidSubTransactionId)
			refuse_copied_table(dboid, relid);
		return NULL;
	}
	LWLockAcquire(&kv_shared->control_lock, LW_SHARED);
	store = live_store(entry);
	LWLockRelease(&kv_shared->control_lock);

	if (store != NULL && created_in != InvalidSubTransactionId &&
		entry->birth != U64FromFullTransactionId(GetTopFullTransactionIdIfAny()))
	{
		/* the directory of a dropped table whose OID has come round again */
		kv_table_discard(dboid, relid);
		entry = kv_table_entry(dboid, relid, create);
		store = NULL;
		if (entry == NULL)
			return NULL;
	}
	if (store == NULL)
	{
		if (created_in == InvalidSubTransactionId)
			refuse_copied_table(dboid, relid);
		if (!create)
			return NULL;
		if (created_in != InvalidSubTransactionId)
			kv_pending_add(KV_PENDING_CREATE, dboid, relid, 0, created_in);
		LWLockAcquire(&kv_shared->control_lock, LW_EXCLUSIVE);
		store = live_store(entry);
		if (store == NULL)
		{
			store = create_generation(entry, shards, key_width, bounds, wal, 0);
			if (created_in != InvalidSubTransactionId)
				entry->birth = U64FromFullTransactionId(GetTopFullTransactionIdIfAny());
		}
		LWLockRelease(&kv_shared->control_lock);
	}
	kv_store_ensure_open(store);
	return store;
}

void
kv_store_truncate(Oid dboid, Oid relid, int shards, int key_width, const KvKey *bounds,
				  KvWalLevel wal, SubTransactionId created_in)
{
	KvTableEntry *entry = kv_table_entry(dboid, relid, true);
	uint64		xid = kv_current_xid(true);
	KvStore    *store;

	LWLockAcquire(&kv_shared->control_lock, LW_EXCLUSIVE);
	store = live_store(entry);
	if (store != NULL || created_in == InvalidSubTransactionId)
	{
		store = create_generation(entry, shards, key_width, bounds, wal, xid);
		LWLockRelease(&kv_shared->control_lock);
		kv_pending_add(KV_PENDING_TRUNCATE, dboid, relid, store->key.generation,
					   GetCurrentSubTransactionId());
	}
	else
		LWLockRelease(&kv_shared->control_lock);
}

/* ---- opening ---- */

/* The opener is done.  A DROP may have come in between: then it stays dropped. */
static void
end_opening(KvStore *store, KvStoreState state)
{
	uint32		opening = KV_STORE_OPENING;

	(void) pg_atomic_compare_exchange_u32(&store->state, &opening, state);
	ConditionVariableBroadcast(&store->opened);
}

static void
opening_failed(int code, Datum arg)
{
	end_opening((KvStore *) DatumGetPointer(arg), KV_STORE_CLOSED);
}

static void
raise_unusable(const KvStore *store)
{
	char	   *name = store->key.dboid == MyDatabaseId ? get_rel_name(store->key.relid) : NULL;

	int			sqlerrcode;
	char	   *why = kv_store_why_unusable(&store->key, &sqlerrcode);

	ereport(ERROR,
			(errcode(sqlerrcode),
			 errmsg("data of table \"%s\" is not available on this server",
					name ? name : psprintf("%u", store->key.relid)),
			 errdetail_internal("%s", why),
			 errhint(RecoveryInProgress() ?
					 "TRUNCATE the table on the primary server and load its data again." :
					 "TRUNCATE the table and load its data again.")));
}

/* Recover the store if nobody has, or wait for who does.  ERROR if it is unusable. */
void
kv_store_ensure_open(KvStore *store)
{
	if (unlikely(store->unusable))
		raise_unusable(store);
	for (;;)
	{
		uint32		state = KV_STORE_CLOSED;

		if (likely(pg_atomic_read_u32(&store->state) == KV_STORE_OPEN))
			return;
		if (pg_atomic_compare_exchange_u32(&store->state, &state, KV_STORE_OPENING))
		{
			PG_ENSURE_ERROR_CLEANUP(opening_failed, PointerGetDatum(store));
			{
				kv_store_recover(store);
				if (store->id == 0 && !RecoveryInProgress())
					introduce(store);
			}
			PG_END_ENSURE_ERROR_CLEANUP(opening_failed, PointerGetDatum(store));
			end_opening(store, KV_STORE_OPEN);
			continue;
		}
		if (state == KV_STORE_DROPPED)
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_TABLE),
					 errmsg("table was dropped")));
		ConditionVariablePrepareToSleep(&store->opened);
		while (pg_atomic_read_u32(&store->state) == KV_STORE_OPENING)
			ConditionVariableSleep(&store->opened, KV_WAIT_RECOVERY);
		ConditionVariableCancelSleep();
	}
}

/* ---- all stores ---- */

/*
 * The stores of one database, or of all (InvalidOid), that are in a state,
 * pinned against removal.  The list is palloc'd; hand it to kv_stores_unpin.
 */
List *
kv_stores_pin_state(Oid dboid, KvStoreState state)
{
	List	   *stores = NIL;
	HASH_SEQ_STATUS status;
	KvStore    *store;

	LWLockAcquire(&kv_shared->control_lock, LW_SHARED);
	hash_seq_init(&status, kv_store_hash);
	while ((store = hash_seq_search(&status)) != NULL)
	{
		if ((dboid == InvalidOid || store->key.dboid == dboid) &&
			pg_atomic_read_u32(&store->state) == state)
		{
			pg_atomic_fetch_add_u32(&store->pins, 1);
			stores = lappend(stores, store);
		}
	}
	LWLockRelease(&kv_shared->control_lock);
	return stores;
}

void
kv_stores_unpin(List *stores)
{
	ListCell   *cell;

	foreach(cell, stores)
		pg_atomic_fetch_sub_u32(&((KvStore *) lfirst(cell))->pins, 1);
	list_free(stores);
}

/* What a table's data was written with; false if it has none that can be used. */
bool
kv_store_wal_level(Oid dboid, Oid relid, KvWalLevel *level)
{
	KvTableEntry *entry = kv_table_entry(dboid, relid, false);
	KvStore    *store;

	if (entry == NULL)
		return false;
	LWLockAcquire(&kv_shared->control_lock, LW_SHARED);
	store = live_store(entry);
	LWLockRelease(&kv_shared->control_lock);
	if (store == NULL || store->unusable)
		return false;
	*level = store->wal;
	return true;
}

uint64
kv_store_row_estimate(KvStore *store)
{
	uint64		rows = 0;

	for (int i = 0; i < store->nshards; i++)
	{
		const KvShard *shard = kv_shard(store, i);

		rows += shard->frozen_keys + shard->unfrozen_entries +
			shard->active.nitems + shard->sealed.nitems;
	}
	return rows;
}

/* Bytes of a directory's files, as their sizes say. */
uint64
kv_store_size(KvStore *store)
{
	char	   *directory = pstrdup(kv_path_store(&store->key));
	DIR		   *dir = AllocateDir(directory);
	struct dirent *de;
	uint64		bytes = 0;

	while ((de = ReadDirExtended(dir, directory, LOG)) != NULL)
	{
		char	   *path = psprintf("%s/%s", directory, de->d_name);
		struct stat st;

		if (stat(path, &st) == 0 && S_ISREG(st.st_mode))
			bytes += st.st_size;
		pfree(path);
	}
	FreeDir(dir);
	pfree(directory);
	return bytes;
}
