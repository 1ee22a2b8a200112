/*
 * move.c
 *		The value files of a store move to another tablespace, while it is in use.
 *
 * ALTER changes the catalog, and makes the directory in the new tablespace, so that it is an error
 * if that cannot
 * be written. When it is committed the store follows: from then on value files are made there, and
 * passes empty those that are elsewhere (compact/), value file by value file,
 * beside readers and writers. Where each value file is, nobody has to know: it is found
 * (format/where.c).
 *
 * What is committed in the catalog is what counts, so a rollback has nothing to undo (an empty
 * directory goes, see below). COMMIT notes in shared memory what is wanted, and wakes the
 * compactor, which has the store follow; a crash in between loses the note only: then the next
 * writer sees that the catalog says something else, or
 * kvfdw_compact(). Nobody looks at what is not committed: who has a lock on the table sees what
 * others have committed, and who has changed it himself does not follow (table/schema.c).
 *
 * To follow is, under the registry's lock:
 *
 *	1. the directory in the new tablespace is made, durably; a failure leaves all as it was
 *	2. MOVE is logged, and flushed
 *	3. the table file is replaced: it names the new tablespace, those that value files are leaving,
 *	   and where MOVE ends
 *
 * After a crash between 2 and 3, and on a standby, redo does 3. It passes over a MOVE that ends no
 * later than what the table file says: so a store that has come back, or gone on, is not sent to a
 * tablespace
 * that has been dropped meanwhile. MOVE is flushed before the table file is replaced, so no other
 * MOVE
 * ever ends there. Redo does not need the tablespace: where it does not exist, yet or any more,
 * value files are made in the store's own
 * directory.  Each server moves its own value files, for the places of values are its own.
 *
 * A tablespace is left when its directory has no file: the maintainer removes that directory, and
 * then
 * the table file does not name it any more. After a crash in between it names one where nothing is,
 * which is
 * taken off when the store has been opened, or is to follow again, unless a value file is missed,
 * which may lie there. One that was made by ALTER, or by 1, and is not needed after all goes the
 * same way.
 */
#include "postgres.h"

#include <unistd.h>

#include "engine/base/types.h"
#include "engine/base/wait.h"
#include "engine/format/format.h"
#include "engine/io/io.h"
#include "engine/shard/shard.h"
#include "engine/shard/space.h"
#include "engine/xact/xact.h"

#define KV_MOVE_WANTED	(UINT64CONST(1) << 32)	/* in KvStore.move_to, with the tablespace */

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

/* The shape with another tablespace.  False: there is no room for the one of now. */
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

/* What a table file says of where value files lie, in shared memory, too.  registry locked. */
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

/* The table file with another shape.  registry locked. */
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

/* registry locked. */
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
	 * what cannot be made is better found now than by each who writes after COMMIT; after a
	 * rollback it goes
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
 * Files of which the table file does not know: this is a copy of a running server that has the
 * tablespace as
 * it was later. Redo makes anew what is in them, and may have taken their names. So they go out of
 * sight, durably, before the table file names the directory; *target: where they are then, as what
 * was a store's is that has gone.
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

		/* this server may be behind with leaving tablespaces: then it goes on where it is */
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

/* Take it off where its directory has been removed.  registry locked, exclusive. */
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
 * Is a value file of the shard missed that it lists, and goes on to list? Files are looked for
 * without the lock.
 */
static bool
shard_misses_value_file(KvStore *store, uint32 shard_id)
{
	KvShard    *shard = kv_shard(store, shard_id);
	KvAddress  *addresses;
	bool		missing = false;
	int			n;

	LWLockAcquire(&shard->lock, LW_SHARED);
	n = shard->nvalue_files;
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
	kv_space_require(key, false);	/* what is not mounted has not gone */
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
