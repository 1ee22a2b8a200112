/*
 * change.c
 *		One change of a store's map: which process makes it, and when the new map counts.
 *
 * The map is appended to the version log, at level 'none' together with the files of its new
 * shards.  From then until the map counts in memory nothing can fail: the memory that is needed has
 * been allocated before.  Writers are halted during this.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "engine/base/error.h"
#include "engine/base/shared.h"
#include "engine/base/types.h"
#include "engine/buffer/buffer.h"
#include "engine/buffer/largevalue.h"
#include "engine/format/format.h"
#include "engine/io/fault.h"
#include "engine/shard/map.h"
#include "engine/shard/shard.h"
#include "engine/shard/valuefiles.h"
#include "engine/split/internal.h"
#include "engine/xact/xact.h"

bool
kv_split_is_possible(KvStore *store)
{
	return kv_map_is_done(store) && !kv_backups_run();
}

/* Makes the table file say that there may be maps after the first, before there is one. */
static void
allow_maps(KvStore *store)
{
	if (store->shape.maps)
		return;
	LWLockAcquire(&kv_registry->lock, LW_EXCLUSIVE);
	kv_table_file_allow_maps(&store->key);
	store->shape.maps = true;
	LWLockRelease(&kv_registry->lock);
}

KvChange *
kv_change_begin(KvStore *store, uint32 shard_id)
{
	KvChange   *change;
	uint64		horizon = kv_xid_horizon();

	kv_backups_look();
	if (!kv_split_is_possible(store))
		return NULL;
	change = palloc0(sizeof(KvChange));
	change->store = store;
	change->shard_id = shard_id;
	change->neighbour = KV_NO_SHARD;
	change->before = kv_map_present(store);
	allow_maps(store);

	/* after this nothing raises */
	if (!kv_map_claim(store))
		return NULL;
	if (kv_shard(store, shard_id)->place.bounds_since == KV_NOT_IN_MAP ||
		change->before->number != pg_atomic_read_u32(&store->map.number))
	{
		kv_map_set_state(store, KV_MAP_DONE);
		return NULL;
	}
	kv_shard_ids_choose(change, horizon);
	return change;
}

void
kv_change_halt(KvChange *change)
{
	KvShard    *shard = kv_shard(change->store, change->shard_id);

	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	shard->place.halted = true;
	LWLockRelease(&shard->lock);
	change->halted = true;
	change->halted_at = kv_clock();
}

/*
 * Halts writers while extend_lock is held.  The holder of extend_lock syncs value files for a
 * commit at level keys, or allocates.  That takes as long as the device does, and others may wait
 * for the lock as well.  So this process waits for the lock while writers still continue.
 */
void
kv_change_halt_free(KvChange *change)
{
	LWLockAcquire(&kv_shard(change->store, change->shard_id)->extend_lock, LW_EXCLUSIVE);
	kv_change_halt(change);
}

static void
release_extend_lock(KvShard *shard)
{
	/* after an ERROR the lock is no longer held */
	if (LWLockHeldByMe(&shard->extend_lock))
		LWLockRelease(&shard->extend_lock);
}

void
kv_change_resume(KvChange *change)
{
	KvShard    *shard = kv_shard(change->store, change->shard_id);

	if (!change->halted)
		return;
	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	shard->place.halted = false;
	LWLockRelease(&shard->lock);
	release_extend_lock(shard);
	ConditionVariableBroadcast(&shard->changed);
	change->halted = false;
	change->halt_us = Max(change->halt_us, kv_clock() - change->halted_at);
}

void
kv_change_drain(KvChange *change)
{
	KvStore    *store = change->store;
	KvShard    *shard = kv_shard(store, change->shard_id);

	Assert(change->halted && change->closed == 0);

	/* stops large values and new value files, too: see kv_value_write_large and kv_value_extend */
	change->closed = kv_value_close_uncut(store, change->shard_id, &change->closed_used);
	release_extend_lock(shard);
	kv_shard_drain(store, change->shard_id, PG_UINT32_MAX, PG_UINT64_MAX);
}

/* Frees the memory of the new map, unless it was published. */
static void
forget_map(KvChange *change)
{
	if (DsaPointerIsValid(change->room))
		kv_map_give_up(change->room);
	change->room = InvalidDsaPointer;
}

/* Gives shard ids back to their previous shards, unless new shards have them. */
static void
give_back_ids(KvChange *change)
{
	for (int i = 0; i < KV_SPLIT_MOST && !change->published; i++)
	{
		if (change->left[i] != 0)
			kv_shard(change->store, change->shard_ids[i])->split.left_xid = change->left[i];
	}
}

void
kv_change_end(KvChange *change)
{
	KvStore    *store = change->store;

	forget_map(change);
	kv_change_resume(change);
	if (change->closed != 0)
		kv_value_cut(store, change->closed, change->closed_used);
	give_back_ids(change);

	/* remaining files are removed before their shard ids are used again */
	kv_map_set_state(store, change->published ? KV_MAP_CHANGED :
					 change->remains ? KV_MAP_MARKED : KV_MAP_DONE);
	if (!change->published)
		return;
	kv_each_shard(store, i)
	{
		if (kv_shard(store, i)->place.bounds_since > kv_shard(store, i)->durable.map)
			kv_shard_want_mark(kv_shard(store, i));
	}
}

bool
kv_change_make(KvChange *change, int n, const uint32 *shards, const KvKey *bounds)
{
	const KvMap *before = change->before;
	uint32		nshards = before->nshards + n - 1;
	uint32		number = before->number + 1;
	uint32	   *all = palloc(nshards * sizeof(uint32));
	uint32	   *since = palloc(nshards * sizeof(uint32));
	KvKey	   *keys = palloc(nshards * sizeof(KvKey));
	uint32		at = 0;

	forget_map(change);
	for (uint32 i = 0; i < before->nshards; i++)
	{
		if (kv_map_shards(before)[i] != change->shard_id)
		{
			all[at] = kv_map_shards(before)[i];
			since[at] = all[at] == change->neighbour ? number : kv_map_since(before)[i];
			keys[at++] = kv_map_bound(before, i);
			continue;
		}
		for (int child = 0; child < n; child++)
		{
			all[at] = shards[child];
			since[at] = number;
			keys[at++] = child == 0 ? kv_map_bound(before, i) : bounds[child];
		}
	}
	Assert(at == nshards);
	change->after = kv_map_make(number, nshards, all, since, keys);
	change->after->next_shard_id = Max(change->after->next_shard_id, before->next_shard_id);
	pfree(all);
	pfree(since);
	pfree(keys);
	return kv_map_prepare(change->store, change->after, &change->room);
}

void
kv_change_add_files(KvChange *change, uint32 shard_id, const KvFileList *listed)
{
	if (change->store->shape.wal == KV_WAL_NONE)
		change->edits[change->nedits++] = kv_edit_of_files(shard_id, listed);
}

/*
 * Clears the state of the descriptor's previous shard, except for its volume and for counters that
 * others compare.
 */
static void
forget_former(KvShard *fresh)
{
	KvAddress	volume = fresh->values.next;

	Assert(fresh->buffers.open < 0 && fresh->buffers.sealed < 0 &&
		   kv_role_is_free(fresh, KV_ROLE_FLUSH | KV_ROLE_COMPACT) &&
		   !DsaPointerIsValid(fresh->active.root) && !DsaPointerIsValid(fresh->immutable.root));
	kv_value_files_free(fresh);
	memset((char *) fresh + KV_SHARD_CLEARED, 0, sizeof(KvShard) - KV_SHARD_CLEARED);
	fresh->place.halted = false;
	fresh->values.next = volume;
}

void
kv_change_init(KvChange *change, int n)
{
	const KvShard *shard = kv_shard(change->store, change->shard_id);
	KvShard    *fresh = kv_shard(change->store, change->shard_ids[n]);
	KvShardFiles files;

	kv_shard_id_files(change->store, change->shard_ids[n], &files);
	LWLockAcquire(&fresh->extend_lock, LW_EXCLUSIVE);
	LWLockAcquire(&fresh->lock, LW_EXCLUSIVE);
	change->left[n] = fresh->split.left_xid;
	forget_former(fresh);
	fresh->files = files;
	fresh->log.number = files.first_log;
	fresh->log.immutable = files.first_log - 1;
	fresh->log.tail = sizeof(KvLogHeader);
	fresh->key_share_xid = shard->key_share_xid;
	fresh->flush.ended = kv_clock();
	pg_atomic_fetch_add_u32(&fresh->generation, 1);
	fresh->recovered = true;
	LWLockRelease(&fresh->lock);
	LWLockRelease(&fresh->extend_lock);
}

void
kv_change_publish(KvChange *change)
{
	uint32		changed[2] = {Min(change->shard_id, change->neighbour),
	Max(change->shard_id, change->neighbour)};
	int			n = change->neighbour == KV_NO_SHARD ? 1 : 2;

	change->edits[change->nedits++] = kv_edit_of_map(change->after);
	kv_version_log_append(change->store, change->edits, change->nedits, false);
	KV_STOP_POINT("map_appended");

	/* kv_change_end sets the state and ends the halt */
	change->published = true;
	kv_map_publish(change->store, change->after, change->room, changed, n);
	change->room = InvalidDsaPointer;
}

void
kv_change_report(const KvChange *change)
{
	static const char *const levels[] = {
		[KV_WAL_NONE] = "none",
		[KV_WAL_KEYS] = "keys",
		[KV_WAL_FULL] = "full"
	};
	const KvStoreKey *key = &change->store->key;
	uint32		before = change->before->nshards;
	uint32		after = change->after->nshards;
	const char *label = kv_table_label(key->dboid, key->relid);

	ereport(LOG,
			(after < before ?
			 errmsg("shard %u of %s was joined to its neighbor",
					change->shard_id, label) :
			 errmsg("shard %u of %s was split into %u shards",
					change->shard_id, label, after - before + 1),
			 errdetail("The table has %u shards now; writers waited for at most %.1f ms at level "
					   "%s.",
					   after, change->halt_us / 1000.0, levels[change->store->shape.wal])));
	kv_shard_ids_report(change);
}
