/*
 * generation.c
 *		Finds the store of a table: tables and their generations.
 *
 * A table is (database, relation); each TRUNCATE gives it a new generation, tagged with the
 * truncating (sub)transaction's xid.  The live one is the newest whose creator committed or is
 * the current transaction; TRUNCATE holds AccessExclusiveLock to its end, so no other
 * transaction meets an unfinished creator.  Everything else follows from clog; no callback has
 * to publish anything (I 1).
 *
 * A generation's number can be used again, after a rollback and a restart, but only after GONE
 * of the store that had it is in the WAL.  Processes distinguish stores by cache_id, which is
 * new in each opening.
 *
 * Tables and generations are hash tables in shared memory, filled from the directories at first
 * use and guarded by KvRegistry.lock.
 */
#include "postgres.h"

#include <dirent.h>

#include "access/xact.h"
#include "access/xlog.h"
#include "storage/fd.h"
#include "utils/hsearch.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"

#include "engine/base/shared.h"
#include "engine/base/types.h"
#include "engine/base/wait.h"
#include "engine/format/format.h"
#include "engine/format/path.h"
#include "engine/io/fault.h"
#include "engine/io/io.h"
#include "engine/io/name.h"
#include "engine/lifecycle/lifecycle.h"
#include "engine/maintenance.h"
#include "engine/shard/map.h"
#include "engine/shard/shard.h"
#include "engine/store.h"
#include "engine/version/version.h"
#include "engine/buffer/buffer.h"
#include "engine/xact/xact.h"

static void
too_many_tables(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_OUT_OF_MEMORY),
			 errmsg("too many kvfdw tables in use"),
			 errhint("You might need to increase \"kvfdw.max_tables\".")));
}

/* Enter a generation.  The registry is locked exclusively. */
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
		LWLockInitialize(&store->map.lock, kv_tranche_shard);
		SpinLockInit(&store->volumes.lock);
		pg_atomic_init_u32(&store->map.number, 0);
		pg_atomic_init_u32(&store->map.state, KV_MAP_DONE);
		pg_atomic_init_u32(&store->map.nshards, 0);
		pg_atomic_init_u32(&store->map.shard_ids, 0);
		store->map.now = store->map.directory = store->map.blocks = InvalidDsaPointer;
		pg_atomic_init_u32(&store->state, KV_STORE_CLOSED);
		pg_atomic_init_u32(&store->pins, 0);
		store->numbered = false;
		pg_atomic_init_u32(&store->opening.next_shard, 0);
		LWLockInitialize(&store->versions.lock, kv_tranche_shard);
		LWLockInitialize(&store->obsolete.lock, kv_tranche_shard);
		pg_atomic_init_u32(&store->obsolete.files, 0);
		store->obsolete.entries = InvalidDsaPointer;
		pg_atomic_init_u32(&store->versions.failed, 0);
		SpinLockInit(&store->account.mutex);
		ConditionVariableInit(&store->space.made);
		pg_atomic_init_u64(&store->move_to, 0);
		pg_atomic_init_u64(&store->copied_by, 0);
		pg_atomic_init_u64(&store->space.moving, 0);
		pg_atomic_init_u64(&store->space.unbounded, 0);
		pg_atomic_init_u64(&store->space.aside, 0);
		pg_atomic_init_u64(&store->space.given_up, 0);
		pg_atomic_init_u64(&store->space.freed, 0);
		pg_atomic_init_u64(&store->space.horizon, 0);
		pg_atomic_init_u32(&store->space.beat, 0);
		pg_atomic_init_u32(&store->space.no_room, 0);
		pg_atomic_init_u32(&store->space.stalled, PG_UINT32_MAX);
		pg_atomic_init_u64(&store->space.freeing, 0);
		pg_atomic_init_u64(&store->space.released, 0);
		pg_atomic_init_u32(&store->space.waits, 0);
		pg_atomic_init_u32(&store->space.amp, 0);
		pg_atomic_init_u32(&store->opening.helpers, 0);
		pg_atomic_init_u32(&store->opening.helped, 0);
		ConditionVariableInit(&store->opening.opened);
		for (int i = 0; i < KV_COUNTERS; i++)
			pg_atomic_init_u64(&store->counters[i], 0);
		pg_atomic_init_u64(&store->statistics.changes, 0);
		pg_atomic_init_u64(&store->statistics.analyzed, 0);
		pg_atomic_init_u64(&store->statistics.needed, 0);
		pg_atomic_init_u32(&store->statistics.done, 0);
	}
	return store;
}

/*
 * The status of the transaction that created a generation; the registry is locked.  Clog may
 * have forgotten it, if the store was never resolved.  The transaction has committed then: else
 * the generation would have been removed, and an older one would exist.
 */
static KvXidStatus
creator_status(const KvTableEntry *entry, const KvStore *store)
{
	bool		older = false;

	if (store->shape.creator == 0)
		return KV_XID_COMMITTED;
	if (kv_clog_has(store->shape.creator) ||
		kv_incarnation_aborted(store->shape.creator_incarnation, store->shape.creator))
		return kv_xid_status(store->shape.creator, store->shape.creator_incarnation);
	for (uint32 g = entry->oldest; g > 0 && g < store->key.generation && !older; g++)
	{
		KvStore    *other = kv_store_find(entry->dboid, entry->relid, g);

		older = other != NULL && pg_atomic_read_u32(&other->state) != KV_STORE_DROPPED;
	}
	return older ? kv_xid_status(store->shape.creator, store->shape.creator_incarnation)
		: KV_XID_COMMITTED;
}

/* The generation that counts for this transaction, or NULL.  The registry is locked. */
static KvStore *
live_store(const KvTableEntry *entry)
{
	for (uint32 g = entry->newest; g >= entry->oldest && g > 0; g--)
	{
		KvStore    *store = kv_store_find(entry->dboid, entry->relid, g);

		if (store == NULL || pg_atomic_read_u32(&store->state) == KV_STORE_DROPPED)
			continue;
		if (store->shape.creator == 0 ||
			(!kv_incarnation_aborted(store->shape.creator_incarnation, store->shape.creator) &&
			 kv_xid_is_mine(store->shape.creator)) ||
			creator_status(entry, store) == KV_XID_COMMITTED)
			return store;
	}
	return NULL;
}

/*
 * Discard generations of a TRUNCATE that a crash has ended.  The registry is locked
 * exclusively.
 */
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
			 creator_status(entry, store) == KV_XID_ABORTED))
			kv_generation_discard(entry->dboid, entry->relid, g);
	}
}

/*
 * Read a table's directory into the hash tables, removing files of an unfinished creation.  The
 * registry is locked exclusively.
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

			kv_table_file_require(&store->key, &store->shape, NULL, NULL);
			entry->newest = Max(entry->newest, generation);
			entry->oldest = entry->oldest == 0 ? generation : Min(entry->oldest, generation);
		}
	}
	FreeDir(dir);

	/* redo may still need them; then the maintainer does this */
	if (!RecoveryInProgress())
		discard_losers(entry);
}

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

	LWLockAcquire(&kv_registry->lock, LW_SHARED);
	entry = hash_search(kv_table_hash, &key, HASH_FIND, NULL);
	if (entry != NULL && entry->loaded)
	{
		LWLockRelease(&kv_registry->lock);
		return entry;
	}
	LWLockRelease(&kv_registry->lock);

	/* a table that was never written needs no entry */
	if (!create && access(kv_path_table_directory(dboid, relid), F_OK) != 0 &&
		errno == ENOENT)
		return NULL;

	LWLockAcquire(&kv_registry->lock, LW_EXCLUSIVE);
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
	LWLockRelease(&kv_registry->lock);
	return entry;
}

void
kv_table_resolve(Oid dboid, Oid relid)
{
	KvTableEntry *entry = kv_table_entry(dboid, relid, false);

	if (entry == NULL)
		return;
	LWLockAcquire(&kv_registry->lock, LW_EXCLUSIVE);
	discard_losers(entry);
	LWLockRelease(&kv_registry->lock);
}

/*
 * Create the directory of a new generation, whole or not at all: under a temporary name with its
 * files in it.  bounds[0] is not used.
 */
static void
create_files(const KvStoreKey *key, const KvStoreShape *shape, const KvKey *bounds)
{
	char	   *target = pstrdup(kv_path_store(key));
	char	   *fresh = psprintf("%s.new", target);
	KvMap	   *map = kv_map_make(0, shape->nshards, NULL, NULL, bounds);
	int			err;

	kv_io_rmtree(fresh);
	kv_io_mkdir(fresh);
	kv_table_file_create(fresh, key, shape);
	kv_versions_create(fresh, key, shape->id, map);
	pfree(map);
	KV_STOP_POINT("create_before_rename");
	err = kv_io_rename(fresh, target);
	if (err != 0)
		kv_io_error(ERROR, err, target, "create");
	kv_io_sync_directory(kv_path_table_directory(key->dboid, key->relid));
}

/* Create a generation of a table, of this shape.  The registry is locked exclusively. */
static KvStore *
make_generation(KvTableEntry *entry, uint32 generation, const KvStoreShape *shape,
				const KvKey *bounds)
{
	KvStoreKey	key = {entry->dboid, entry->relid, generation};
	KvStore    *store;

	(void) kv_buffers_discard(&key, NULL);
	store = enter_store(key.dboid, key.relid, key.generation);
	store->shape = *shape;
	store->shape.creator_incarnation = kv_writing_incarnation();
	PG_TRY();
	{
		create_files(&key, &store->shape, bounds);
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

/* The width as it is stored: longer keys are stored as keys of variable length. */
static int
stored_key_width(int key_width)
{
	return key_width <= 8 ? key_width : 0;
}

bool
kv_store_fits_keys(const KvStore *store, int key_width)
{
	return store->shape.key_width == stored_key_width(key_width);
}

/*
 * A number for the table's next generation: one that is neither in memory nor on disk, also not
 * in a renamed directory, for as long as other processes may confuse the two.  For standbys the
 * GONE record, which precedes the removal of the directory, separates them.
 */
static uint32
next_generation(const KvTableEntry *entry)
{
	KvStoreKey	key = {entry->dboid, entry->relid, entry->newest};

	do
		key.generation++;
	while (kv_store_find(key.dboid, key.relid, key.generation) != NULL ||
		   kv_store_was_dropped(&key));
	return key.generation;
}

/* Create the table's next generation.  The registry is locked exclusively. */
static KvStore *
create_generation(KvTableEntry *entry, int shards, int key_width, const KvKey *bounds,
				  KvWalLevel wal, Oid tablespace, uint64 creator)
{
	KvStoreShape shape = {0};
	KvStore    *store;

	shape.creator = creator;
	shape.nshards = shards;
	shape.key_width = stored_key_width(key_width);
	shape.id = pg_atomic_fetch_add_u64(&kv_buffer_pool->sequence, 1);
	shape.wal = wal;
	shape.tablespace = tablespace;
	store = make_generation(entry, next_generation(entry), &shape, bounds);
	KV_STOP_POINT("create_before_record");
	kv_wal_log_create(&store->key, &store->shape, bounds);
	return store;
}

KvStore *
kv_store_make(const KvStoreKey *key, const KvStoreShape *shape, const KvKey *bounds)
{
	KvTableEntry *entry = kv_table_entry(key->dboid, key->relid, true);
	KvStore    *store;

	/* a removed store that had this key may still be in memory */
	while (kv_store_is_known(key))
	{
		kv_drop_collect();
		kv_interrupts();
		pg_usleep(1000);
	}
	LWLockAcquire(&kv_registry->lock, LW_EXCLUSIVE);
	store = make_generation(entry, key->generation, shape, bounds);
	LWLockRelease(&kv_registry->lock);
	return store;
}

KvStore *
kv_store_by_key(const KvStoreKey *key)
{
	if (kv_table_entry(key->dboid, key->relid, false) == NULL)
		return NULL;
	return kv_store_live(key);
}

void
kv_generation_remove(const KvStoreKey *key, uint64 id)
{
	KvStore    *store = kv_store_by_key(key);

	if (store == NULL || (store->shape.id != id && !store->shape.unusable))
		return;
	kv_generations_discard(key->dboid, key->relid, key->generation, key->generation);

	/* before a standby is consistent there is no other process to free its write buffers */
	if (kv_base->maintainer_latch == NULL)
		kv_drop_collect();
	else
		kv_wake_maintainer();
}

/* The live store of a table; *entry: the table's own, NULL if there is none and !create. */
static KvStore *
find_live_store(Oid dboid, Oid relid, bool create, KvTableEntry **entry)
{
	KvStore    *store;

	*entry = kv_table_entry(dboid, relid, create);
	if (*entry == NULL)
		return NULL;
	LWLockAcquire(&kv_registry->lock, LW_SHARED);
	store = live_store(*entry);
	LWLockRelease(&kv_registry->lock);
	return store;
}

KvStore *
kv_store_open(Oid dboid, Oid relid, int shards, int key_width, const KvKey *bounds,
			  KvWalLevel wal, Oid tablespace, SubTransactionId created_in)
{
	bool		create = bounds != NULL;
	KvTableEntry *entry;
	KvStore    *store = find_live_store(dboid, relid, create, &entry);

	if (store != NULL && created_in != InvalidSubTransactionId &&
		entry->birth != U64FromFullTransactionId(GetTopFullTransactionIdIfAny()))
	{
		/* the directory of a dropped table whose OID is used again */
		kv_table_discard(dboid, relid);
		entry = kv_table_entry(dboid, relid, create);
		store = NULL;
		if (entry == NULL)
			return NULL;
	}
	if (store == NULL)
	{
		if (!create)
			return NULL;
		if (created_in != InvalidSubTransactionId)
			kv_pending_add(KV_PENDING_CREATE, dboid, relid, 0, created_in);
		LWLockAcquire(&kv_registry->lock, LW_EXCLUSIVE);
		store = live_store(entry);
		if (store == NULL)
		{
			store = create_generation(entry, shards, key_width, bounds, wal, tablespace, 0);
			if (created_in != InvalidSubTransactionId)
			{
				entry->birth = U64FromFullTransactionId(GetTopFullTransactionIdIfAny());
				kv_unlogged_note(store);
			}
		}
		LWLockRelease(&kv_registry->lock);
	}
	kv_store_ensure_open(store);
	return store;
}

bool
kv_store_is_ready(Oid dboid, Oid relid, bool *opening)
{
	KvTableEntry *entry;
	KvStore    *store = find_live_store(dboid, relid, false, &entry);
	uint32		state;

	*opening = false;
	/* an unusable store is reported at once */
	if (store == NULL || store->shape.unusable)
		return true;
	state = pg_atomic_read_u32(&store->state);
	*opening = state == KV_STORE_OPENING;
	/* created since the start and never opened, as by TRUNCATE: there is nothing to recover */
	if (state == KV_STORE_CLOSED && store->shape.creator_incarnation != 0 &&
		store->shape.creator_incarnation == kv_writing_incarnation())
		return true;
	return state != KV_STORE_CLOSED && state != KV_STORE_OPENING;
}

void
kv_store_truncate(Oid dboid, Oid relid, int shards, int key_width, const KvKey *bounds,
				  KvWalLevel wal, Oid tablespace, SubTransactionId created_in)
{
	KvTableEntry *entry = kv_table_entry(dboid, relid, true);
	uint64		xid = kv_current_xid(true);
	KvStore    *store;

	LWLockAcquire(&kv_registry->lock, LW_EXCLUSIVE);
	store = live_store(entry);
	if (store != NULL || created_in == InvalidSubTransactionId)
	{
		store = create_generation(entry, shards, key_width, bounds, wal, tablespace, xid);
		kv_unlogged_note(store);
		LWLockRelease(&kv_registry->lock);
		kv_pending_add(KV_PENDING_TRUNCATE, dboid, relid, store->key.generation,
					   GetCurrentSubTransactionId());
	}
	else
		LWLockRelease(&kv_registry->lock);
}

void
kv_store_note_copied(KvStore *store)
{
	pg_atomic_write_u64(&store->copied_by, kv_current_xid(true));
}

bool
kv_store_serves(KvStore *store, Snapshot snapshot)
{
	uint64		xid = pg_atomic_read_u64(&store->copied_by);

	if (likely(xid == 0) || kv_xid_is_mine(xid))
		return true;
	if (!XidInMVCCSnapshot((TransactionId) xid, snapshot))
		return true;
	if (xid >= kv_xid_horizon())
		return false;

	/* 32 bits do not distinguish so old an xid from a new one: no such snapshot is left */
	pg_atomic_write_u64(&store->copied_by, 0);
	return true;
}

/* The live store of a table; NULL: there is none, or it cannot be used. */
static const KvStore *
find_usable_store(Oid dboid, Oid relid)
{
	KvTableEntry *entry;
	const KvStore *store = find_live_store(dboid, relid, false, &entry);

	return store != NULL && !store->shape.unusable ? store : NULL;
}

bool
kv_store_wal_level(Oid dboid, Oid relid, KvWalLevel *level)
{
	const KvStore *store = find_usable_store(dboid, relid);

	if (store != NULL)
		*level = store->shape.wal;
	return store != NULL;
}

bool
kv_store_tablespace(Oid dboid, Oid relid, Oid *tablespace)
{
	const KvStore *store = find_usable_store(dboid, relid);

	if (store != NULL)
		*tablespace = store->shape.tablespace;
	return store != NULL;
}

bool
kv_store_has_tablespaces(Oid dboid, Oid relid)
{
	const KvStore *store = find_usable_store(dboid, relid);

	return store != NULL && (OidIsValid(store->shape.tablespace) || store->shape.nleaving > 0);
}
