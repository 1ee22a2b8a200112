/*
 * shardid.c
 *		Ids of shards, and the memory of shards that have left the map.
 *
 * An id names files and a descriptor.  A shard that has left the map keeps both for a while.  It
 * keeps the files until the map is done (durable/mapback.c).  It keeps the descriptor, with its
 * list of value files, for processes that still know the shard.  A session that knows it holds back
 * the horizon of xids, by its snapshot or by a transaction that wrote.  A worker comes with an id
 * and checks at each step whether the map has the shard.  A later shard with the same id serves the
 * worker as well.
 *
 * Then the id is given to a new shard, together with the descriptor.  Runs and logs of the new
 * shard continue after the numbers of the old one, because processes keep runs by these.  Its value
 * files continue after the addresses of the old one, in the old one's volume.  Level 'none' does
 * not reuse ids: there, files with an id that is new to the map tell what a power loss has taken
 * (see kv_map_entries_after).  At that level only splits leave ids unused, one for eight new ones.
 *
 * After a start only shards in the map have descriptors.  Ids of the previous map may have files
 * until the map has been tidied once.
 */
#include "postgres.h"

#include "utils/guc.h"

#include "engine/base/shared.h"
#include "engine/base/error.h"
#include "engine/base/types.h"
#include "engine/format/format.h"
#include "engine/shard/dead.h"
#include "engine/shard/map.h"
#include "engine/shard/shard.h"
#include "engine/shard/valuefiles.h"
#include "engine/split/internal.h"
#include "engine/xact/xact.h"

#define KV_FEW_IDS(all)	((all) / 16)

#ifdef KVFDW_FAULTS
static int	test_ids = 0;
#endif

/* The number of ids. */
static uint32
all_ids(void)
{
#ifdef KVFDW_FAULTS
	if (test_ids > 0)
		return test_ids;
#endif
	return KV_SHARD_IDS;
}

void
kv_shard_id_gucs(void)
{
#ifdef KVFDW_FAULTS
	DefineCustomIntVariable("kvfdw.test_shard_ids",
							"Sets how many shard ids a table has.",
							"For tests only.",
							&test_ids, 0, 0, KV_SHARD_IDS,
							PGC_SIGHUP, 0, NULL, NULL, NULL);
#endif
}

/* Has the shard left the map, and have all transactions ended that may know it?  Lock held. */
static bool
is_forgotten(const KvShard *shard, uint64 horizon)
{
	return shard->place.bounds_since == KV_NOT_IN_MAP && shard->split.left_xid != 0 &&
		shard->split.left_xid < horizon && kv_role_is_free(shard, KV_ROLE_FLUSH | KV_ROLE_COMPACT);
}

void
kv_left_free(KvStore *store)
{
	uint64		horizon = 0;

	if (!store->shape.maps || !kv_map_is_done(store))
		return;
	kv_each_descriptor(store, i)
	{
		KvShard    *shard = kv_shard(store, i);

		if (shard->place.bounds_since != KV_NOT_IN_MAP ||
			(!DsaPointerIsValid(shard->values.files) && !kv_dead_any(shard)))
			continue;
		if (horizon == 0)
			horizon = kv_xid_horizon();
		LWLockAcquire(&shard->extend_lock, LW_EXCLUSIVE);
		LWLockAcquire(&shard->lock, LW_EXCLUSIVE);

		/* otherwise the id may be about to be given to a new shard */
		if (is_forgotten(shard, horizon) && kv_map_is_done(store))
		{
			kv_value_files_free(shard);
			kv_dead_free(shard);
			shard->values.bytes = 0;
		}
		LWLockRelease(&shard->lock);
		LWLockRelease(&shard->extend_lock);
	}
}

/* May an id that the map has, or has had, be given to a new shard? */
static bool
is_free(KvStore *store, uint32 shard_id, uint64 horizon)
{
	KvShard    *shard;
	bool		is;

	if (!kv_has_descriptor(store, shard_id))
		return store->map.tidied_once;
	shard = kv_shard(store, shard_id);
	if (shard->place.bounds_since != KV_NOT_IN_MAP)
		return false;
	LWLockAcquire(&shard->lock, LW_SHARED);
	is = is_forgotten(shard, horizon);
	LWLockRelease(&shard->lock);
	return is;
}

void
kv_shard_ids_choose(KvChange *change, uint64 horizon)
{
	KvStore    *store = change->store;
	uint32		next = change->before->next_shard_id;
	int			n = 0;

	if (store->shape.wal != KV_WAL_NONE)
	{
		for (uint32 shard_id = 0; shard_id < next && n < KV_SPLIT_MOST; shard_id++)
		{
			if (is_free(store, shard_id, horizon))
				change->shard_ids[n++] = shard_id;
		}
	}
	for (; n < KV_SPLIT_MOST; n++)
		change->shard_ids[n] = next < all_ids() ? next++ : KV_NO_SHARD;
}

/* Has the map used almost all ids? */
static bool
is_short(const KvMap *map)
{
	return map->next_shard_id > all_ids() - KV_FEW_IDS(all_ids());
}

void
kv_shard_ids_report(const KvChange *change)
{
	const KvStoreKey *key = &change->store->key;

	if (change->published ? !is_short(change->after) || is_short(change->before) :
		change->shard_ids[1] != KV_NO_SHARD)
		return;
	ereport(WARNING,
			(change->published ?
			 errmsg("%s is running out of shard ids (%u of %u used)",
					kv_table_label(key->dboid, key->relid), change->after->next_shard_id,
					all_ids()) :
			 errmsg("%s has used up its shard ids (%u of %u used)",
					kv_table_label(key->dboid, key->relid), change->before->next_shard_id,
					all_ids()),
			 errdetail("A table without unused shard ids cannot be split, and its shards grow."),
			 errhint("Copy the rows into a new table.")));
}

/* See internal.h; where ids are reused, numbers follow those of the previous shard. */
void
kv_shard_id_files(const KvStore *store, uint32 shard_id, KvShardFiles *files)
{
	memset(files, 0, sizeof(*files));
	files->next_run = files->first_log = 1;
	if (store->shape.wal != KV_WAL_NONE &&
		kv_has_descriptor(unconstify(KvStore *, store), shard_id))
	{
		const KvShard *before = kv_shard(store, shard_id);

		files->next_run = Max(before->files.next_run, 1);
		files->first_log = before->log.number + 1;
	}
}
