/*
 * drop.c
 *		Removal of stores: noted for the end of the transaction, hidden then, their files and memory
 *		freed when possible.
 *
 * A discarded store is marked dropped in shared memory and its directory renamed to
 * kvfdw/dropped.*; neither can fail a transaction or needs memory (kv_pending_add).  The maintainer
 * removes the files and frees the memory.  Unneeded value files of existing stores are removed
 * in the same way, one by one.
 *
 * A store's directory in a tablespace is removed after its directory in kvfdw/ has been renamed
 * and no process uses the store: the maintainer searches the tablespaces for directories whose
 * store does not exist.  That also finds directories that a crash has left.
 *
 * After a crash in between, a generation older than one whose creator committed, and one whose
 * creator aborted, are removed when the table is next loaded.  Directories of dropped tables
 * are swept (sweep.c), and renamed ones removed, after the start.
 *
 * TRUNCATE and DROP note the files to be removed; nothing is touched before COMMIT, and a
 * ROLLBACK only removes files that the transaction itself has created.
 */
#include "postgres.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include "access/xact.h"
#include "access/xlog.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"

#include "engine/base/shared.h"
#include "engine/base/types.h"
#include "engine/base/wait.h"
#include "engine/buffer/buffer.h"
#include "engine/engine.h"
#include "engine/format/format.h"
#include "engine/format/path.h"
#include "engine/index/memtable.h"
#include "engine/index/run.h"
#include "engine/io/fault.h"
#include "engine/io/name.h"
#include "engine/lifecycle/lifecycle.h"
#include "engine/shard/dead.h"
#include "engine/shard/map.h"
#include "engine/shard/obsolete.h"
#include "engine/shard/shard.h"
#include "engine/shard/valuefiles.h"
#include "engine/store.h"
#include "engine/value/value.h"
#include "engine/xact/xact.h"

/*
 * Rename a directory to a hidden name, of one table or, relid InvalidOid, of a database.  Never
 * throws or allocates.  An incarnation that is begun again counts from 0 again, so a name may
 * exist.
 */
static void
move_out_of_sight(const char *path, Oid dboid, Oid relid)
{
	static char target[MAXPGPATH];
	int			err;

	do
	{
		snprintf(target, sizeof(target), KV_DIRECTORY "/dropped.%u.%u.%u.%u",
				 kv_incarnations->current,
				 pg_atomic_fetch_add_u32(&kv_registry->drop_counter, 1), dboid, relid);
		err = kv_io_rename(path, target);
	} while (err == EEXIST || err == ENOTEMPTY);
	kv_run_say_gone();
	kv_value_say_gone();
}

void
kv_generation_discard(Oid dboid, Oid relid, uint32 generation)
{
	KvStore    *store = kv_store_find(dboid, relid, generation);

	if (store == NULL)
		return;
	pg_atomic_write_u32(&store->state, KV_STORE_DROPPED);
	pg_atomic_fetch_add_u32(&kv_buffer_pool->drops, 1);
	move_out_of_sight(kv_path_store(&store->key), dboid, relid);
}

/* The registry is locked. */
static KvTableEntry *
find_entry(Oid dboid, Oid relid)
{
	Oid			key[2] = {dboid, relid};

	return hash_search(kv_table_hash, key, HASH_FIND, NULL);
}

void
kv_generations_discard(Oid dboid, Oid relid, uint32 first, uint32 last)
{
	KvTableEntry *entry;

	LWLockAcquire(&kv_registry->lock, LW_EXCLUSIVE);
	entry = find_entry(dboid, relid);
	if (entry != NULL && entry->loaded && entry->newest > 0)
	{
		for (uint32 g = Max(first, entry->oldest); g <= Min(last, entry->newest); g++)
			kv_generation_discard(dboid, relid, g);
		if (first <= entry->oldest && last >= entry->oldest)
			entry->oldest = Min(last, entry->newest - 1) + 1;
	}
	LWLockRelease(&kv_registry->lock);
}

void
kv_table_discard(Oid dboid, Oid relid)
{
	KvTableEntry *entry;

	LWLockAcquire(&kv_registry->lock, LW_EXCLUSIVE);
	entry = find_entry(dboid, relid);
	if (entry != NULL)
	{
		for (uint32 g = entry->oldest; g <= entry->newest && g > 0; g++)
			kv_generation_discard(dboid, relid, g);
		hash_search(kv_table_hash, entry, HASH_REMOVE, NULL);
	}
	move_out_of_sight(kv_path_table_directory(dboid, relid), dboid, relid);
	LWLockRelease(&kv_registry->lock);
	kv_wake_maintainer();
}

void
kv_database_discard(Oid dboid)
{
	HASH_SEQ_STATUS status;
	KvTableEntry *entry;
	KvStore    *store;

	LWLockAcquire(&kv_registry->lock, LW_EXCLUSIVE);
	hash_seq_init(&status, kv_store_hash);
	while ((store = hash_seq_search(&status)) != NULL)
	{
		if (store->key.dboid == dboid)
			pg_atomic_write_u32(&store->state, KV_STORE_DROPPED);
	}
	pg_atomic_fetch_add_u32(&kv_buffer_pool->drops, 1);
	hash_seq_init(&status, kv_table_hash);
	while ((entry = hash_seq_search(&status)) != NULL)
	{
		if (entry->dboid == dboid)
			hash_search(kv_table_hash, entry, HASH_REMOVE, NULL);
	}
	move_out_of_sight(kv_path_database(dboid), dboid, InvalidOid);
	LWLockRelease(&kv_registry->lock);
	kv_wake_maintainer();
}

/* ---- the maintainer's part ---- */

/* Free the shared memory of dropped stores that are not used any more. */
static void
collect_stores(void)
{
	HASH_SEQ_STATUS status;
	KvStore    *store;

	LWLockAcquire(&kv_registry->lock, LW_EXCLUSIVE);
	hash_seq_init(&status, kv_store_hash);
	while ((store = hash_seq_search(&status)) != NULL)
	{
		if (pg_atomic_read_u32(&store->state) != KV_STORE_DROPPED ||
			pg_atomic_read_u32(&store->opening.helpers) > 0)
			continue;

		/*
		 * a dropped store is pinned only for one of its write buffers, under KvBufferPool.lock,
		 * under which these are freed
		 */
		KV_STOP_POINT("drop_before_discard");
		if (!kv_buffers_discard(&store->key, store))
			continue;
		kv_value_forget(store->cache_id);
		kv_runset_forget(store);
		kv_each_descriptor(store, i)
		{
			kv_memtable_free(&kv_shard(store, i)->active);
			kv_memtable_free(&kv_shard(store, i)->immutable);
			kv_value_files_free(kv_shard(store, i));
			kv_dead_free(kv_shard(store, i));
		}
		kv_obsolete_free(store);
		kv_map_free(store);
		hash_search(kv_store_hash, &store->key, HASH_REMOVE, NULL);
	}
	LWLockRelease(&kv_registry->lock);
}

/* Is it the name of a value file, not of a directory (shard/obsolete.c)? */
static bool
names_value_file(const char *name)
{
	return strlen(name) > 4 && strcmp(name + strlen(name) - 4, ".val") == 0;
}

/*
 * Call visit for each store in a renamed directory, until a call returns true; returns whether
 * one has.
 */
static bool
any_dropped(const char *path, int depth,
			bool (*visit) (const KvStoreKey *key, uint64 id, const void *arg),
			const void *arg)
{
	DIR		   *dir = AllocateDir(path);
	struct dirent *de;
	bool		found = false;

	/* the maintainer may just be removing it */
	if (dir == NULL && errno == ENOENT)
		return false;
	while (!found && (de = ReadDirExtended(dir, path, LOG)) != NULL)
	{
		char	   *below = psprintf("%s/%s", path, de->d_name);
		KvStoreKey	key;
		uint64		id;

		if (strcmp(de->d_name, "table") == 0)
			found = kv_table_file_identify(below, &key, &id, NULL) && visit(&key, id, arg);
		else if (depth > 0 && strspn(de->d_name, "0123456789abcdef") == strlen(de->d_name))
			found = any_dropped(below, depth - 1, visit, arg);
		pfree(below);
	}
	FreeDir(dir);
	return found;
}

/* Is the store still in shared memory, because a process uses it or has a write buffer of it? */
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
	return kv_same_store(key, arg);
}

/*
 * May a renamed directory have had the store?  The directory need not be read if its name
 * tells: many may wait to be removed, and each new generation asks.
 */
static bool
may_have_had(const char *name, const KvStoreKey *key)
{
	Oid			dboid;
	Oid			relid;

	/* a name without these numbers does not tell */
	if (sscanf(name, "dropped.%*u.%*u.%u.%u", &dboid, &relid) != 2)
		return true;
	return dboid == key->dboid && (!OidIsValid(relid) || relid == key->relid);
}

bool
kv_store_was_dropped(const KvStoreKey *key)
{
	DIR		   *dir = AllocateDir(KV_DIRECTORY);
	struct dirent *de;
	bool		found = false;

	while (!found && (de = ReadDirExtended(dir, KV_DIRECTORY, LOG)) != NULL)
	{
		char		path[MAXPGPATH];

		snprintf(path, sizeof(path), KV_DIRECTORY "/%s", de->d_name);
		found = strncmp(de->d_name, "dropped.", 8) == 0 && !names_value_file(de->d_name) &&
			may_have_had(de->d_name, key) && any_dropped(path, 2, is_it, key);
	}
	FreeDir(dir);
	return found;
}

/* ---- in tablespaces ---- */

/*
 * Was the store removed whose directory in a tablespace this is?  Such a directory is created
 * only for a store with that id, which never repeats.
 */
static bool
store_is_gone(const KvStoreKey *key, uint64 id)
{
	KvStoreKey	found;
	uint64		found_id;

	if (kv_store_is_known(key))
		return false;
	if (access(kv_path_store(key), F_OK) != 0)
		return errno == ENOENT;
	return kv_table_file_identify(kv_path_in_store(key, "table"), &found, &found_id, NULL) &&
		found_id != id;
}

/*
 * Free the files and directories whose names begin with prefix.  Returns whether there are any.
 */
static bool
free_named(const char *directory, const char *prefix)
{
	DIR		   *dir = AllocateDir(directory);
	struct dirent *de;
	bool		any = false;

	while ((de = ReadDirExtended(dir, directory, LOG)) != NULL)
	{
		char		path[MAXPGPATH];

		snprintf(path, sizeof(path), "%s/%s", directory, de->d_name);
		if (strncmp(de->d_name, prefix, strlen(prefix)) != 0)
			continue;
		any = true;
		if (!kv_free_knows(path))
			kv_free_add(path);
	}
	FreeDir(dir);
	return any;
}

/* Remove directories of removed stores, and released value files, from a tablespace. */
static void
collect_space(Oid tablespace, const char *space)
{
	DIR		   *dir = AllocateDir(space);
	struct dirent *de;
	bool		synced = false;

	while ((de = ReadDirExtended(dir, space, LOG)) != NULL)
	{
		char		path[MAXPGPATH];
		char		target[MAXPGPATH];
		KvStoreKey	key;
		uint64		id;

		if (!kv_space_parse(de->d_name, &key, &id))
			continue;
		snprintf(path, sizeof(path), "%s/%s", space, de->d_name);
		snprintf(target, sizeof(target), "%s/kvfdw.dropped.%u.%u", space, kv_incarnations->current,
				 pg_atomic_fetch_add_u32(&kv_registry->drop_counter, 1));

		/*
		 * value files of a removed store are removed first, by the names under which they are
		 * counted
		 */
		if (free_named(path, "dropped."))
			continue;
		if (!store_is_gone(&key, id))
		{
			kv_space_leave(&key, id, tablespace);
			continue;
		}
		if (access(target, F_OK) == 0)
			continue;			/* removed the next time */

		/*
		 * the tablespace may be another file system, where the removal becomes durable first:
		 * after a power failure a store that exists must have its value files
		 */
		if (!synced)
			kv_io_sync_directory(KV_DIRECTORY);
		synced = true;
		(void) kv_io_rename(path, target);
	}
	FreeDir(dir);
	(void) free_named(space, "kvfdw.dropped.");
}

static bool
has_files(const char *directory)
{
	DIR		   *dir = AllocateDir(directory);
	struct dirent *de;
	bool		found = false;

	while (!found && (de = ReadDirExtended(dir, directory, LOG)) != NULL)
		found = strcmp(de->d_name, ".") != 0 && strcmp(de->d_name, "..") != 0;
	FreeDir(dir);
	return found;
}

static bool
is_made_there(const KvStoreKey *key, uint64 id, Oid tablespace)
{
	KvWhere		where;

	return kv_table_file_peek(key, &where) && where.id == id && where.tablespace == tablespace &&
		!where.moved;
}

/*
 * Find a store with a directory in the tablespace; files: with files in it; else: one that has
 * created its value files there since its creation.
 */
static bool
find_user(Oid tablespace, bool files, Oid *dboid, Oid *relid)
{
	char	   *space = pstrdup(kv_path_space(tablespace));
	DIR		   *dir = AllocateDir(space);
	struct dirent *de;
	bool		found = false;

	while (dir != NULL && !found && (de = ReadDirExtended(dir, space, LOG)) != NULL)
	{
		char	   *path = psprintf("%s/%s", space, de->d_name);
		KvStoreKey	key;
		uint64		id;

		found = kv_space_parse(de->d_name, &key, &id) &&
			(files ? has_files(path) : is_made_there(&key, id, tablespace));
		*dboid = key.dboid;
		*relid = key.relid;
		pfree(path);
	}
	if (dir != NULL)
		FreeDir(dir);
	pfree(space);
	return found;
}

bool
kv_space_user(Oid tablespace, Oid *dboid, Oid *relid)
{
	return find_user(tablespace, true, dboid, relid);
}

bool
kv_space_awaits_move(Oid tablespace, Oid *dboid, Oid *relid)
{
	return find_user(tablespace, false, dboid, relid);
}

static void
collect_spaces(void)
{
	ListCell   *cell;

	foreach(cell, kv_numbered_entries("pg_tblspc", LOG))
	{
		char	   *space = pstrdup(kv_path_space(lfirst_oid(cell)));

		if (access(space, F_OK) == 0)
			collect_space(lfirst_oid(cell), space);
		pfree(space);
	}
}

/*
 * Directories are removed, too: in the maintainer step by step; in recovery, while there is no
 * maintainer yet, at once.
 */
void
kv_drop_collect(void)
{
	bool		maintainer = kv_base->maintainer_latch == MyLatch;
	DIR		   *dir;
	struct dirent *de;

	collect_stores();
	if (!maintainer && kv_base->maintainer_latch != NULL)
		return;
	dir = AllocateDir(KV_DIRECTORY);
	while ((de = ReadDirExtended(dir, KV_DIRECTORY, LOG)) != NULL)
	{
		char		path[MAXPGPATH];

		snprintf(path, sizeof(path), KV_DIRECTORY "/%s", de->d_name);
		if (strncmp(de->d_name, "dropped.", 8) == 0 && !kv_free_knows(path))
		{
			if (!RecoveryInProgress() && !names_value_file(de->d_name))
			{
				/* no record of a store may be logged after its GONE */
				if (any_dropped(path, 2, is_in_use, NULL))
					continue;
				(void) any_dropped(path, 2, log_gone, NULL);
			}
			if (maintainer)
				kv_free_add(path);
			else
			{
				struct stat info;
				bool		value_file = names_value_file(de->d_name) && stat(path, &info) == 0;

				kv_io_rmtree(path);
				if (value_file && access(path, F_OK) != 0)
					kv_value_file_note_freed(de->d_name, info.st_size);
			}
		}
	}
	FreeDir(dir);
	if (maintainer)
		collect_spaces();
}

void
kv_buffers_discard_unknown(void)
{
	for (int i = 0; i < kv_buffer_pool->nunits; i++)
	{
		KvStoreKey	key = kv_buffer_header(i)->store;

		if (kv_buffers[i].state == KV_BUFFER_ORPHAN && kv_buffer_outlived(kv_buffer_header(i)) &&
			kv_store_find(key.dboid, key.relid, key.generation) == NULL)
			(void) kv_buffers_discard(&key, NULL);
	}
}

/* ---- work for the end of the transaction ---- */

typedef struct KvPending
{
	KvPendingKind kind;
	Oid			dboid;
	Oid			relid;
	uint32		generation;
	Oid			tablespace;		/* KV_PENDING_FOLLOW */
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
	 * files that COMMIT removes must not be needed again: the commit record has to be on disk
	 * first, whatever synchronous_commit says (as for heap's files)
	 */
	if (kind != KV_PENDING_CREATE)
		ForceSyncCommit();
}

void
kv_store_follow_at_commit(KvStore *store, Oid tablespace)
{
	kv_pending_add(KV_PENDING_FOLLOW, store->key.dboid, store->key.relid, store->key.generation,
				   GetCurrentSubTransactionId());
	pending->tablespace = tablespace;
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
					kv_generations_discard(entry->dboid, entry->relid, 1, entry->generation - 1);
				break;
			case KV_PENDING_DROP:
				kv_table_discard(entry->dboid, entry->relid);
				break;
			case KV_PENDING_DROP_DATABASE:
				kv_database_discard(entry->dboid);
				break;
			case KV_PENDING_FOLLOW:
				kv_move_want(&(KvStoreKey) {entry->dboid, entry->relid, entry->generation},
							 entry->tablespace);
				break;
		}
	}
	if (pending != NULL)
		kv_wake_maintainer();
	pending = NULL;
	kv_files_let_go();
}

static void
undo(const KvPending *entry)
{
	if (entry->kind == KV_PENDING_CREATE)
		kv_table_discard(entry->dboid, entry->relid);
	else if (entry->kind == KV_PENDING_TRUNCATE)
		kv_generations_discard(entry->dboid, entry->relid, entry->generation,
							entry->generation);
}

void
kv_engine_at_abort(void)
{
	kv_commit_forget();
	for (KvPending *entry = pending; entry != NULL; entry = entry->next)
		undo(entry);
	if (pending != NULL)
		kv_wake_maintainer();
	pending = NULL;
	kv_files_let_go();
}

void
kv_engine_at_subxact(bool commit, SubTransactionId mine, SubTransactionId parent)
{
	KvPending **link = &pending;

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
