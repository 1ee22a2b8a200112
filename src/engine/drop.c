/*
 * drop.c
 *		What happens to files at the end of a transaction (I 9).
 *
 * TRUNCATE and DROP note what is to go; nothing is touched before COMMIT, and
 * a ROLLBACK only removes what the transaction itself had made.  At the end
 * the generations are marked dropped in shared memory and their directory
 * renamed to kvfdw/dropped.*; both can neither fail the transaction nor need
 * memory.  The maintainer removes the files and frees the memory.
 *
 * After a crash in between: a generation older than one whose creator
 * committed, and one whose creator aborted, is removed when the table is next
 * loaded; directories whose table is gone are swept (sweep.c), and renamed ones
 * removed, after the start.
 */
#include "postgres.h"

#include <dirent.h>
#include <unistd.h>

#include "access/xact.h"
#include "access/xlog.h"
#include "storage/fd.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"

#include "engine/internal.h"

typedef struct KvPending
{
	KvPendingKind kind;
	Oid			dboid;
	Oid			relid;
	uint32		generation;
	SubTransactionId subid;
	struct KvPending *next;
} KvPending;

static KvPending *pending = NULL;	/* newest first, in TopTransactionContext */

void
kv_pending_add(KvPendingKind kind, Oid dboid, Oid relid, uint32 generation,
			   SubTransactionId subid)
{
	KvPending  *entry = MemoryContextAlloc(TopTransactionContext, sizeof(KvPending));

	entry->kind = kind;
	entry->dboid = dboid;
	entry->relid = relid;
	entry->generation = generation;
	entry->subid = subid;
	entry->next = pending;
	pending = entry;

	/*
	 * What COMMIT removes must not come back: the commit record has to be on
	 * disk first, whatever synchronous_commit says (as for heap's files).
	 */
	if (kind != KV_PENDING_CREATE)
		ForceSyncCommit();
}

void
kv_store_drop_at_commit(Oid dboid, Oid relid)
{
	kv_pending_add(KV_PENDING_DROP, dboid, relid, 0, GetCurrentSubTransactionId());
}

void
kv_store_drop_database_at_commit(Oid dboid)
{
	kv_pending_add(KV_PENDING_DROP_DATABASE, dboid, InvalidOid, 0,
				   GetCurrentSubTransactionId());
}

bool
kv_engine_has_pending_files(void)
{
	return pending != NULL;
}

/* Take a directory out of sight.  Never throws or allocates. */
static void
hide(const char *path)
{
	static char target[MAXPGPATH];

	snprintf(target, sizeof(target), "kvfdw/dropped.%u.%u", kv_shared->incarnation,
			 pg_atomic_fetch_add_u32(&kv_shared->drop_counter, 1));
	(void) kv_io_rename(path, target);
}

/* One generation goes.  control_lock held exclusively; never throws or allocates. */
void
kv_generation_discard(Oid dboid, Oid relid, uint32 generation)
{
	KvStore    *store = kv_store_find(dboid, relid, generation);

	if (store == NULL)
		return;
	pg_atomic_write_u32(&store->state, KV_STORE_DROPPED);
	hide(kv_path_store(&store->key));
}

/* control_lock held. */
static KvTableEntry *
find_entry(Oid dboid, Oid relid)
{
	Oid			key[2] = {dboid, relid};

	return hash_search(kv_table_hash, key, HASH_FIND, NULL);
}

static void
discard_generations(Oid dboid, Oid relid, uint32 first, uint32 last)
{
	KvTableEntry *entry;

	LWLockAcquire(&kv_shared->control_lock, LW_EXCLUSIVE);
	entry = find_entry(dboid, relid);
	if (entry != NULL && entry->loaded && entry->newest > 0)
	{
		for (uint32 g = Max(first, entry->oldest); g <= Min(last, entry->newest); g++)
			kv_generation_discard(dboid, relid, g);
		if (first <= entry->oldest && last >= entry->oldest)
			entry->oldest = Min(last, entry->newest - 1) + 1;
	}
	LWLockRelease(&kv_shared->control_lock);
}

/* Redo: a store has gone, unless another has taken its place. */
void
kv_generation_remove(const KvStoreKey *key, uint64 id)
{
	KvStore    *store = kv_store_by_key(key);

	if (store == NULL || (store->id != id && !store->unusable))
		return;
	discard_generations(key->dboid, key->relid, key->generation, key->generation);

	/* before a standby is consistent nobody else is there to free its slots */
	if (kv_shared->maintainer_latch == NULL)
		kv_drop_collect();
	else
		kv_wake_maintainer();
}

/* All of a table goes.  Never throws or allocates. */
void
kv_table_discard(Oid dboid, Oid relid)
{
	KvTableEntry *entry;

	LWLockAcquire(&kv_shared->control_lock, LW_EXCLUSIVE);
	entry = find_entry(dboid, relid);
	if (entry != NULL)
	{
		for (uint32 g = entry->oldest; g <= entry->newest && g > 0; g++)
			kv_generation_discard(dboid, relid, g);
		hash_search(kv_table_hash, entry, HASH_REMOVE, NULL);
	}
	hide(kv_path_table_directory(dboid, relid));
	LWLockRelease(&kv_shared->control_lock);
	kv_wake_maintainer();
}

/* All of a database goes.  Never throws or allocates. */
void
kv_database_discard(Oid dboid)
{
	HASH_SEQ_STATUS status;
	KvTableEntry *entry;
	KvStore    *store;
	static char path[MAXPGPATH];

	LWLockAcquire(&kv_shared->control_lock, LW_EXCLUSIVE);
	hash_seq_init(&status, kv_store_hash);
	while ((store = hash_seq_search(&status)) != NULL)
	{
		if (store->key.dboid == dboid)
			pg_atomic_write_u32(&store->state, KV_STORE_DROPPED);
	}
	hash_seq_init(&status, kv_table_hash);
	while ((entry = hash_seq_search(&status)) != NULL)
	{
		if (entry->dboid == dboid)
			hash_search(kv_table_hash, entry, HASH_REMOVE, NULL);
	}
	snprintf(path, sizeof(path), "kvfdw/%u", dboid);
	hide(path);
	LWLockRelease(&kv_shared->control_lock);
	kv_wake_maintainer();
}

void
kv_engine_at_commit(void)
{
	kv_commit_forget();
	for (KvPending *entry = pending; entry != NULL; entry = entry->next)
	{
		switch (entry->kind)
		{
			case KV_PENDING_CREATE:
				break;
			case KV_PENDING_TRUNCATE:
				if (entry->generation > 1)
					discard_generations(entry->dboid, entry->relid, 1, entry->generation - 1);
				break;
			case KV_PENDING_DROP:
				kv_table_discard(entry->dboid, entry->relid);
				break;
			case KV_PENDING_DROP_DATABASE:
				kv_database_discard(entry->dboid);
				break;
		}
	}
	if (pending != NULL)
		kv_wake_maintainer();
	pending = NULL;
}

static void
undo(const KvPending *entry)
{
	if (entry->kind == KV_PENDING_CREATE)
		kv_table_discard(entry->dboid, entry->relid);
	else if (entry->kind == KV_PENDING_TRUNCATE)
		discard_generations(entry->dboid, entry->relid, entry->generation,
							entry->generation);
}

void
kv_engine_at_abort(void)
{
	kv_conflicts = NULL;
	kv_commit_forget();
	for (KvPending *entry = pending; entry != NULL; entry = entry->next)
		undo(entry);
	if (pending != NULL)
		kv_wake_maintainer();
	pending = NULL;
}

void
kv_engine_at_subxact(bool commit, SubTransactionId mine, SubTransactionId parent)
{
	KvPending **link = &pending;

	kv_conflicts = NULL;
	while (*link != NULL)
	{
		KvPending  *entry = *link;

		if (entry->subid != mine)
			link = &entry->next;
		else if (commit)
		{
			entry->subid = parent;
			link = &entry->next;
		}
		else
		{
			undo(entry);
			*link = entry->next;
		}
	}
}

/* ---- the maintainer's part ---- */

/* Free what shared memory holds of dropped stores that nobody uses any more. */
static void
collect_stores(void)
{
	HASH_SEQ_STATUS status;
	KvStore    *store;

	LWLockAcquire(&kv_shared->control_lock, LW_EXCLUSIVE);
	hash_seq_init(&status, kv_store_hash);
	while ((store = hash_seq_search(&status)) != NULL)
	{
		bool		pinned;

		if (pg_atomic_read_u32(&store->state) != KV_STORE_DROPPED ||
			pg_atomic_read_u32(&store->helpers) > 0)
			continue;

		/*
		 * Whoever pinned it for the sake of a slot did so under merge_lock and
		 * before it was dropped; from here on nobody does.  Its slots must not
		 * become another's before the pin has gone.
		 */
		LWLockAcquire(&kv_shared->merge_lock, LW_EXCLUSIVE);
		pinned = pg_atomic_read_u32(&store->pins) > 0;
		LWLockRelease(&kv_shared->merge_lock);
		KV_STOP_POINT("drop_before_discard");
		if (pinned || !kv_slots_discard(&store->key))
			continue;
		kv_value_forget(&store->key);
		kv_runset_forget(&store->key);
		if (DsaPointerIsValid(store->shards))
		{
			for (int i = 0; i < store->nshards; i++)
			{
				kv_delta_free(&kv_shard(store, i)->active);
				kv_delta_free(&kv_shard(store, i)->sealed);
			}
			dsa_free(kv_area(), store->shards);
		}
		if (DsaPointerIsValid(store->bounds))
			dsa_free(kv_area(), store->bounds);
		hash_search(kv_store_hash, &store->key, HASH_REMOVE, NULL);
	}
	LWLockRelease(&kv_shared->control_lock);
}

/*
 * Call for each store in a directory that was renamed out of sight, until a call
 * says true; whether one has.
 */
static bool
any_dropped(const char *path, int depth,
			bool (*visit) (const KvStoreKey *key, uint64 id, const void *arg),
			const void *arg)
{
	DIR		   *dir = AllocateDir(path);
	struct dirent *de;
	bool		found = false;

	while (!found && (de = ReadDirExtended(dir, path, LOG)) != NULL)
	{
		char	   *below = psprintf("%s/%s", path, de->d_name);
		KvStoreKey	key;
		uint64		id;

		if (strcmp(de->d_name, "table") == 0)
			found = kv_table_file_identify(below, &key, &id) && visit(&key, id, arg);
		else if (depth > 0 && strspn(de->d_name, "0123456789abcdef") == strlen(de->d_name))
			found = any_dropped(below, depth - 1, visit, arg);
		pfree(below);
	}
	FreeDir(dir);
	return found;
}

/* Is the store in shared memory still, for somebody uses it or has a slot of it? */
static bool
is_in_use(const KvStoreKey *key, uint64 id, const void *arg)
{
	return kv_store_is_known(key);
}

static bool
log_gone(const KvStoreKey *key, uint64 id, const void *arg)
{
	if (id != 0)
		kv_wal_log_gone(key, id);
	return false;
}

static bool
is_it(const KvStoreKey *key, uint64 id, const void *arg)
{
	return memcmp(key, arg, sizeof(*key)) == 0;
}

/* Redo: is this store's directory one that was renamed out of sight? */
bool
kv_store_was_dropped(const KvStoreKey *key)
{
	DIR		   *dir = AllocateDir("kvfdw");
	struct dirent *de;
	bool		found = false;

	while (!found && (de = ReadDirExtended(dir, "kvfdw", LOG)) != NULL)
	{
		char		path[MAXPGPATH];

		snprintf(path, sizeof(path), "kvfdw/%s", de->d_name);
		found = strncmp(de->d_name, "dropped.", 8) == 0 && any_dropped(path, 2, is_it, key);
	}
	FreeDir(dir);
	return found;
}

/* Remove the directories that were renamed out of sight, and their memory. */
void
kv_drop_collect(void)
{
	DIR		   *dir;
	struct dirent *de;

	collect_stores();
	dir = AllocateDir("kvfdw");
	while ((de = ReadDirExtended(dir, "kvfdw", LOG)) != NULL)
	{
		if (strncmp(de->d_name, "dropped.", 8) == 0)
		{
			char		path[MAXPGPATH];

			snprintf(path, sizeof(path), "kvfdw/%s", de->d_name);
			if (!RecoveryInProgress())
			{
				/* nothing of a store may be logged behind its GONE */
				if (any_dropped(path, 2, is_in_use, NULL))
					continue;
				(void) any_dropped(path, 2, log_gone, NULL);
			}
			kv_io_rmtree(path);
		}
	}
	FreeDir(dir);
}
