/*
 * shardid.c
 *		Ids of shards, and what shards that have left the map still hold.
 *
 * An id names files and a descriptor.  A shard that has left the map keeps both for a
 * while: the files until the map is done (durable/mapback.c), the descriptor, with its list
 * of value files, for who has known the shard and not ended yet.  Sessions that have are behind
 * the horizon of xids: they have a snapshot, or a transaction that wrote.  Workers come with an
 * id, and look at each step whether the shard is in the map; so to them the next shard
 * of that id is as good.
 *
 * Then the id is given again, with the descriptor.  Runs and logs of the new shard go on
 * behind the numbers that the old one's had, for processes keep runs by these; and
 * its value files behind the addresses, of which it has a volume. Not at level 'none', where files
 * of a shard with an id that is new to the map are what a power loss has taken: see
 * kv_map_entries_behind.  There only splits leave ids behind, one for eight new ones.
 *
 * After a start there are descriptors for the shards in the map only, and ids that the
 * map before had may have files until it has been tidied once.
 */
#include "postgres.h"

#include "utils/guc.h"

#include "engine/base/area.h"
#include "engine/base/label.h"
#include "engine/base/types.h"
#include "engine/shard/dead.h"
#include "engine/split/internal.h"
#include "engine/xact/xact.h"

#define KV_FEW_IDS(all)	((all) / 16)

#ifdef KVFDW_FAULTS
static int	test_ids = 0;
#endif

/* How many ids there are. */
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

/* Has it left the map, and has everybody ended who may have known it before?  Lock held. */
static bool
is_forgotten(const KvShard *shard, uint64 horizon)
{
	return shard->bounds_since == KV_NOT_IN_MAP && shard->left_xid != 0 &&
		shard->left_xid < horizon && shard->maintainer == 0 && shard->compactor == 0;
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

		if (shard->bounds_since != KV_NOT_IN_MAP ||
			(!DsaPointerIsValid(shard->value_files) && !DsaPointerIsValid(shard->retired) &&
			 !kv_dead_any(shard)))
			continue;
		if (horizon == 0)
			horizon = kv_xid_horizon();
		LWLockAcquire(&shard->extend_lock, LW_EXCLUSIVE);
		LWLockAcquire(&shard->lock, LW_EXCLUSIVE);

		/* the id may be about to be given again */
		if (is_forgotten(shard, horizon) && kv_map_is_done(store))
		{
			kv_value_files_free(shard);
			kv_retired_free(shard);
			kv_dead_free(shard);
			shard->value_bytes = 0;
		}
		LWLockRelease(&shard->lock);
		LWLockRelease(&shard->extend_lock);
	}
}

/* May an id that the map has had, or has, be given to another shard? */
static bool
is_free(KvStore *store, uint32 shard_id, uint64 horizon)
{
	KvShard    *shard;
	bool		is;

	if (!kv_has_descriptor(store, shard_id))
		return store->tidied_once;
	shard = kv_shard(store, shard_id);
	if (shard->bounds_since != KV_NOT_IN_MAP)
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

/* Has a map almost all ids behind it? */
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
			 errmsg("%s is running out of shard numbers (%u of %u used)",
					kv_table_label(key->dboid, key->relid), change->after->next_shard_id,
					all_ids()) :
			 errmsg("%s has used up its shard numbers (%u of %u used)",
					kv_table_label(key->dboid, key->relid), change->before->next_shard_id,
					all_ids()),
			 errdetail("A table without free shard numbers cannot be split, and its shards grow."),
			 errhint("Copy the rows into a new table.")));
}

/* What the files of the next shard with the id begin at. */
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
		files->first_log = before->log_number + 1;
	}
}
