/*
 * release.c
 *		Removal of value files: they are renamed when nothing needs them, and freed later.
 *
 * A retired value file (retired.c) that no other shard needs (shared.c) is renamed.  The maintainer
 * frees files with such a name step by step (lifecycle/free.c), and reports the freed bytes.
 */
#include "postgres.h"

#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/types.h"
#include "engine/base/wait.h"
#include "engine/format/format.h"
#include "engine/format/path.h"
#include "engine/io/fault.h"
#include "engine/io/io.h"
#include "engine/io/name.h"
#include "engine/shard/retired.h"
#include "engine/shard/shard.h"
#include "engine/shard/space.h"
#include "engine/value/value.h"
#include "engine/xact/xact.h"

/*
 * Not below zero: after a restart a standby frees files with names of this incarnation that were
 * not counted in this run of the server.
 */
static void
count_less(pg_atomic_uint64 *counter, uint64 bytes)
{
	uint64		before = pg_atomic_read_u64(counter);

	while (!pg_atomic_compare_exchange_u64(counter, &before, before - Min(before, bytes)))
		;
}

/*
 * Renames the file to a name under which the maintainer frees it step by step (lifecycle/free.c).
 */
int
kv_value_file_discard(KvStore *store, KvAddress address)
{
	const char *path = kv_path_value(&store->key, (KvFileId) {address});
	bool		in_space = strncmp(path, "pg_tblspc/", 10) == 0;
	int			len = in_space ? strrchr(path, '/') - path : strlen(KV_DIRECTORY);
	const char *directory = in_space ? path : KV_DIRECTORY;
	char		target[MAXPGPATH];
	struct stat info;
	bool		known = stat(path, &info) == 0;
	int			err;

	do
	{
		snprintf(target, sizeof(target), "%.*s/dropped.%u.%u.%u.val", len, directory,
				 kv_incarnations->current,
				 pg_atomic_fetch_add_u32(&kv_registry->drop_counter, 1), store->cache_id);
	} while (access(target, F_OK) == 0);
	if (known)
	{
		pg_atomic_fetch_add_u64(&store->space.freeing, info.st_size);
		pg_atomic_fetch_add_u64(&kv_registry->freeing, info.st_size);
	}
	err = kv_io_rename(path, target);
	kv_value_say_gone();
	if (known && err == 0)
		pg_atomic_fetch_add_u64(&store->space.released, info.st_size);
	if (known && err != 0)
	{
		count_less(&store->space.freeing, info.st_size);
		count_less(&kv_registry->freeing, info.st_size);
	}

	/* ENOENT: the table has been dropped */
	return err == ENOENT ? 0 : err;
}

void
kv_value_file_note_freed(const char *name, uint64 bytes)
{
	HASH_SEQ_STATUS status;
	KvStore    *store;
	uint32		incarnation;
	uint32		number;
	uint32		cache_id;

	if (sscanf(name, "dropped.%u.%u.%u.val", &incarnation, &number, &cache_id) != 3 ||
		incarnation != kv_incarnations->current)
		return;
	count_less(&kv_registry->freeing, bytes);
	LWLockAcquire(&kv_registry->lock, LW_SHARED);
	hash_seq_init(&status, kv_store_hash);
	while ((store = hash_seq_search(&status)) != NULL)
	{
		if (store->cache_id != cache_id)
			continue;
		count_less(&store->space.freeing, bytes);
		kv_space_note_freed(store, bytes);
	}
	LWLockRelease(&kv_registry->lock);
}

void
kv_retired_release(KvStore *store, uint32 shard_id)
{
	KvShard    *shard = kv_shard(store, shard_id);
	bool		looked = false;
	bool		some = false;

	for (int i = 0; i < shard->retired.n;)
	{
		KvRetired	retired;
		KvRetiredWait waits;
		int			err;

		LWLockAcquire(&shard->lock, LW_SHARED);
		if (i >= shard->retired.n)
		{
			LWLockRelease(&shard->lock);
			break;
		}
		retired = kv_retired(shard)[i];
		waits = kv_retired_waits_for(store, shard, &retired);
		LWLockRelease(&shard->lock);
		if (waits != KV_WAITS_FOR_NOTHING)
		{
			i++;
			continue;
		}
		if (!looked)
			kv_backups_look();
		looked = true;
		if (kv_backups_run())
			break;
		KV_STOP_POINT("value_file_released");

		if (store->shape.maps)
		{
			KvSharers	sharers = kv_value_file_sharers(store, shard_id, &retired);

			if (sharers == KV_SHARERS_SOME)
			{
				/* the last shard that lists the file removes it */
				LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
				kv_retired_remove(shard, retired.value_file.address);
				LWLockRelease(&shard->lock);
				continue;
			}
			if (sharers == KV_SHARERS_UNKNOWN)
				break;
		}

		/* extend_lock is held by a commit that is about to sync this file */
		LWLockAcquire(&shard->extend_lock, LW_EXCLUSIVE);
		err = kv_value_file_discard(store, retired.value_file.address);
		if (err == 0)
		{
			LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
			kv_retired_remove(shard, retired.value_file.address);
			LWLockRelease(&shard->lock);
			some = true;
		}
		LWLockRelease(&shard->extend_lock);
		if (err != 0)
		{
			kv_io_error(WARNING, err,
						kv_path_value(&store->key, (KvFileId) {retired.value_file.address}),
						"rename");
			break;
		}
	}
	if (some)
		kv_wake_maintainer();
}
