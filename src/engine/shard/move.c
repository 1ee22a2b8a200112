/*
 * move.c
 *		Moves the value files of a store to another tablespace, while the store is in use.
 *
 * ALTER changes the catalog and makes the directory in the new tablespace, so that a tablespace
 * without write access is an error at once.  After COMMIT the store follows: new value files are
 * created in the new tablespace.  Compaction jobs empty those that are elsewhere (compact/), one
 * value file at a time, while readers and writers continue.  A value file is found in whatever
 * directory it is (format/where.c).
 *
 * The committed catalog decides, so a rollback has nothing to undo (an empty directory is removed,
 * see below).  COMMIT notes the wanted tablespace in shared memory and wakes the compactor, which
 * makes the store follow.  A crash in between loses only the note: the next writer, or
 * kvfdw_compact(), sees that the catalog names another tablespace.  Uncommitted changes are
 * ignored.  A session with a lock on the table sees the committed changes of others.  A session
 * that has changed the table does not make the store follow (table/schema.c).
 *
 * A store follows in three steps, under the registry lock:
 *
 * 1. The directory in the new tablespace is made, durably.  A failure leaves all as it was.
 * 2. MOVE is logged, and flushed.
 * 3. The table file is replaced.  It names the new tablespace, those that value files are leaving,
 *    and the end of the MOVE record.
 *
 * After a crash between 2 and 3, and on a standby, redo does step 3. Redo skips a MOVE that ends no
 * later than the table file says.  So a store that has moved back, or further, is not sent to a
 * tablespace that was dropped since.  MOVE is flushed before the table file is replaced, so no
 * other MOVE ever ends there.  Redo does not need the tablespace: if it does not exist, value files
 * are created in the store's own directory.  Each server moves its own value files, since the
 * addresses of values are its own.
 *
 * A tablespace is left when its directory has no file.  The maintainer removes the directory, and
 * then the table file ceases to name it.  After a crash in between the table file names a directory
 * that does not exist.  The name is removed when the store has been opened or is to follow again,
 * unless a value file is missing, which may be there.  A directory that ALTER or step 1 has made in
 * vain is removed in the same way.
 */
#include "postgres.h"

#include <unistd.h>

#include "engine/base/types.h"
#include "engine/base/wait.h"
#include "engine/format/format.h"
#include "engine/format/path.h"
#include "engine/io/fault.h"
#include "engine/io/io.h"
#include "engine/io/name.h"
#include "engine/shard/map.h"
#include "engine/shard/shard.h"
#include "engine/shard/space.h"
#include "engine/shard/valuefiles.h"
#include "engine/store.h"
#include "engine/xact/xact.h"

/* flag in KvStore.move_to, set with the tablespace */
#define KV_MOVE_WANTED	(UINT64CONST(1) << 32)

static int
find_leaving(const KvStoreShape *shape, Oid tablespace)
{
	int			i = 0;

	while (i < shape->nleaving && shape->leaving[i] != tablespace)
		i++;
	return i;
}

static void
remove_leaving(KvStoreShape *shape, Oid tablespace)
{
	int			i = find_leaving(shape, tablespace);

	if (i < shape->nleaving)
		shape->leaving[i] = shape->leaving[--shape->nleaving];
}

/* Gives the shape another tablespace.  False: there is no capacity to keep the present one. */
static bool
give_tablespace(KvStoreShape *shape, Oid tablespace)
{
	remove_leaving(shape, tablespace);
	if (OidIsValid(shape->tablespace))
	{
		if (shape->nleaving == KV_MAX_LEAVING)
			return false;
		shape->leaving[shape->nleaving++] = shape->tablespace;
	}
	shape->tablespace = tablespace;
	return true;
}

/* Copies the tablespaces of a table file to shared memory.  Registry lock held. */
static void
note(const KvStoreKey *key, const KvStoreShape *shape)
{
	KvStore    *store = kv_store_find(key->dboid, key->relid, key->generation);

	if (store == NULL)
		return;
	store->shape.tablespace = shape->tablespace;
	store->shape.moved_lsn = shape->moved_lsn;
	store->shape.nleaving = shape->nleaving;
	memcpy(store->shape.leaving, shape->leaving, sizeof(shape->leaving));
}

/* Writes the table file with another shape.  Registry lock held. */
static void
replace_file(const KvStoreKey *key, const KvStoreShape *wanted)
{
	KvStoreShape shape;
	StringInfoData schema;
	uint32		schema_incarnation;

	initStringInfo(&schema);
	kv_table_file_require(key, &shape, &schema, &schema_incarnation);
	kv_table_file_write(key, wanted, schema.data, schema.len, schema_incarnation);
	note(key, wanted);
	pfree(schema.data);
}

/* Makes the store follow.  Registry lock held. */
static void
follow(KvStore *store, Oid tablespace)
{
	KvStoreShape shape;

	if (pg_atomic_read_u32(&store->state) == KV_STORE_DROPPED || store->shape.unusable)
		return;
	kv_table_file_require(&store->key, &shape, NULL, NULL);
	note(&store->key, &shape);
	if (shape.tablespace == tablespace || !give_tablespace(&shape, tablespace))
		return;
	kv_space_make(&store->key, shape.id, tablespace);
	KV_STOP_POINT("move_before_record");
	shape.moved_lsn = kv_wal_log_move(&store->key, shape.id, tablespace);
	KV_STOP_POINT("move_before_file");
	replace_file(&store->key, &shape);
}

void
kv_store_follow(KvStore *store, Oid tablespace)
{
	if (likely(store->shape.tablespace == tablespace))
		return;
	LWLockAcquire(&kv_registry->lock, LW_EXCLUSIVE);
	follow(store, tablespace);
	pg_atomic_write_u64(&store->move_to, 0);
	LWLockRelease(&kv_registry->lock);
	kv_compactor_wake();
}

bool
kv_store_can_follow(KvStore *store, Oid tablespace)
{
	KvStoreShape shape;

	/* DROP TABLESPACE may have removed directories */
	kv_spaces_tidy(store);
	LWLockAcquire(&kv_registry->lock, LW_SHARED);
	shape = store->shape;
	LWLockRelease(&kv_registry->lock);
	if (shape.tablespace == tablespace)
		return true;
	if (!give_tablespace(&shape, tablespace))
		return false;

	/*
	 * an error now is better than one for each writer after COMMIT; a rollback leaves an empty
	 * directory
	 */
	kv_space_make(&store->key, shape.id, tablespace);
	return true;
}

bool
kv_store_lies_in(KvStore *store, Oid tablespace)
{
	return store->shape.tablespace == tablespace && pg_atomic_read_u64(&store->move_to) == 0;
}

void
kv_move_want(const KvStoreKey *key, Oid tablespace)
{
	KvStore    *store;

	LWLockAcquire(&kv_registry->lock, LW_SHARED);
	store = kv_store_find(key->dboid, key->relid, key->generation);
	if (store != NULL)
		pg_atomic_write_u64(&store->move_to, KV_MOVE_WANTED | tablespace);
	LWLockRelease(&kv_registry->lock);
	kv_compactor_wake();
}

bool
kv_move_begin(KvStore *store)
{
	uint64		wanted;

	if (pg_atomic_read_u64(&store->move_to) == 0)
		return false;
	LWLockAcquire(&kv_registry->lock, LW_EXCLUSIVE);
	wanted = pg_atomic_read_u64(&store->move_to);
	if (wanted != 0)
		follow(store, (Oid) wanted);
	pg_atomic_write_u64(&store->move_to, 0);
	LWLockRelease(&kv_registry->lock);
	return wanted != 0;
}

/*
 * Renames a directory of which the table file does not know.  This server is then a copy of a
 * running server, with a newer state of the tablespace.  Redo writes these files again, and may
 * have used their names.  So the directory is renamed, durably, before the table file names it;
 * *target is its new name, which has the form of a dropped store's.
 */
static void
set_strays_aside(const char *directory, Oid tablespace, char *target)
{
	char		from[MAXPGPATH];
	int			err;

	strlcpy(from, directory, sizeof(from));
	if (access(from, F_OK) != 0)
		return;
	do
	{
		snprintf(target, MAXPGPATH, "%s/kvfdw.dropped.%u.%u", kv_path_space(tablespace),
				 kv_incarnations->current, pg_atomic_fetch_add_u32(&kv_registry->drop_counter, 1));
	} while (access(target, F_OK) == 0);
	if ((err = kv_io_rename(from, target)) != 0)
		kv_io_error(ERROR, err, from, "rename");
	kv_io_sync_directory(kv_path_space(tablespace));
}

void
kv_move_redo(KvStore *store, Oid tablespace, uint64 lsn)
{
	KvStoreShape shape;
	char		strays[MAXPGPATH] = "";

	LWLockAcquire(&kv_registry->lock, LW_EXCLUSIVE);
	kv_table_file_require(&store->key, &shape, NULL, NULL);
	if (shape.moved_lsn < lsn)
	{
		if (OidIsValid(tablespace) && shape.tablespace != tablespace &&
			find_leaving(&shape, tablespace) == shape.nleaving)
			set_strays_aside(kv_path_in_space(&store->key, shape.id, tablespace), tablespace,
							 strays);

		/* this server may still be leaving other tablespaces: then it stays where it is */
		if (shape.tablespace == tablespace || give_tablespace(&shape, tablespace))
		{
			shape.moved_lsn = lsn;
			replace_file(&store->key, &shape);
			kv_space_require(&store->key, true);
		}
	}
	LWLockRelease(&kv_registry->lock);
	if (strays[0] != '\0')
		kv_io_rmtree(strays);
	kv_compactor_wake();
}

/* Ceases to name the tablespace if its directory was removed.  Registry lock held exclusively. */
static void
take_off(const KvStoreKey *key, Oid tablespace)
{
	KvStoreShape shape;

	if (!kv_table_file_read(key, &shape, NULL, NULL) ||
		find_leaving(&shape, tablespace) == shape.nleaving)
		return;
	remove_leaving(&shape, tablespace);
	replace_file(key, &shape);
}

void
kv_space_leave(const KvStoreKey *key, uint64 id, Oid tablespace)
{
	KvWhere		where;

	if (!kv_table_file_peek(key, &where) || where.id != id || where.tablespace == tablespace)
		return;
	LWLockAcquire(&kv_registry->lock, LW_EXCLUSIVE);
	if (kv_table_file_peek(key, &where) && where.id == id && where.tablespace != tablespace &&
		rmdir(kv_path_in_space(key, id, tablespace)) == 0)
	{
		for (int i = 0; i < where.nleaving; i++)
		{
			if (where.leaving[i] != tablespace)
				continue;
			KV_STOP_POINT("move_left");
			take_off(key, tablespace);
		}
	}
	LWLockRelease(&kv_registry->lock);
}

/*
 * Is a value file missing that the shard lists, before and after the check?  The check of files
 * runs without the lock.
 */
static bool
shard_misses_value_file(KvStore *store, uint32 shard_id)
{
	KvShard    *shard = kv_shard(store, shard_id);
	KvAddress  *addresses;
	bool		missing = false;
	int			n;

	LWLockAcquire(&shard->lock, LW_SHARED);
	n = shard->values.n;
	addresses = palloc_extended(Max(n, 1) * sizeof(KvAddress), MCXT_ALLOC_HUGE);
	for (int i = 0; i < n; i++)
		addresses[i] = kv_value_files(shard)[i].value_file.address;
	LWLockRelease(&shard->lock);
	for (int i = 0; i < n && !missing; i++)
	{
		if (access(kv_path_value(&store->key, kv_file_of(addresses[i])), F_OK) == 0)
			continue;
		LWLockAcquire(&shard->lock, LW_SHARED);
		missing = kv_value_file_find(shard, addresses[i]) != NULL;
		LWLockRelease(&shard->lock);
	}
	pfree(addresses);
	return missing;
}

static bool
misses_value_file(KvStore *store)
{
	kv_each_shard(store, i)
	{
		if (shard_misses_value_file(store, i))
			return true;
	}
	return false;
}

void
kv_spaces_tidy(KvStore *store)
{
	const KvStoreKey *key = &store->key;
	KvWhere		where;

	if (!kv_table_file_peek(key, &where) || where.nleaving == 0)
		return;
	kv_space_require(key, false);	/* ERROR if a tablespace is not mounted */
	if (misses_value_file(store))
		return;
	LWLockAcquire(&kv_registry->lock, LW_EXCLUSIVE);
	for (int i = 0; i < where.nleaving; i++)
	{
		if (access(kv_path_in_space(key, where.id, where.leaving[i]), F_OK) != 0 && errno == ENOENT)
			take_off(key, where.leaving[i]);
	}
	LWLockRelease(&kv_registry->lock);
}
