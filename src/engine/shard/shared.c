/*
 * shared.c
 *		Value files that several shards list.
 *
 * A split moves no values: each new shard lists the value files of the old shard that its entries
 * name, and empties them for itself.  The shard that retires such a file last removes it.  At level
 * 'keys', redo may also put an entry of an older map into a shard that did not list its value file.
 * So once a store has had another map than its first, all shards are searched for a value file
 * before it is released, whether or not it is marked SHARED.
 *
 * The bytes of a shared value file are counted once.  Each shard has a share of them, in proportion
 * to its live bytes in the file.  When a shard retires the file, another one takes over its share.
 */
#include "postgres.h"

#include "engine/base/shared.h"
#include "engine/base/types.h"
#include "engine/format/format.h"
#include "engine/shard/map.h"
#include "engine/shard/retired.h"
#include "engine/shard/shard.h"
#include "engine/shard/valuefiles.h"

/* Another shard in the map that lists the value file, or has retired it; KV_NO_SHARD: none. */
static uint32
find_sharer(KvStore *store, uint32 shard_id, KvAddress address)
{
	kv_each_shard(store, i)
	{
		KvShard    *other = kv_shard(store, i);
		bool		has;

		if (i == shard_id)
			continue;
		LWLockAcquire(&other->lock, LW_SHARED);
		has = kv_value_file_find(other, address) != NULL || kv_retired_find(other, address) != NULL;
		LWLockRelease(&other->lock);
		if (has)
			return i;
	}
	return KV_NO_SHARD;
}

/*
 * Adds bytes of the value file to the shard's share.  False: the shard does not have the file.
 * Lock held.
 */
static bool
take_share(KvShard *shard, KvAddress address, uint64 bytes)
{
	KvShardValueFile *value_file = kv_value_file_find(shard, address);
	KvRetired  *retired = kv_retired_find(shard, address);

	Assert(LWLockHeldByMeInMode(&shard->lock, LW_EXCLUSIVE));
	if (value_file != NULL && (value_file->value_file.flags & KV_VALUE_FILE_SHARED))
	{
		/* none of these bytes is live in this shard */
		if (value_file->value_file.live == KV_NOT_KNOWN)
			value_file->dead_then += bytes;
		kv_value_file_divide(shard, value_file, value_file->share + bytes);
	}
	else if (retired != NULL)
		retired->taken += bytes;
	return value_file != NULL || retired != NULL;
}

/* Adds bytes of the value file to another shard's share. */
static void
hand_on(KvShard *other, KvAddress address, uint64 bytes)
{
	LWLockAcquire(&other->lock, LW_EXCLUSIVE);
	(void) take_share(other, address, bytes);
	LWLockRelease(&other->lock);
}

/*
 * Commits may still have to sync value files of shards that have left the map.  Excludes this file.
 */
static void
forget_in_left(KvStore *store, KvAddress address)
{
	kv_each_descriptor(store, i)
	{
		KvShard    *left = kv_shard(store, i);
		KvShardValueFile *value_file;

		if (left->place.bounds_since != KV_NOT_IN_MAP)
			continue;
		LWLockAcquire(&left->extend_lock, LW_EXCLUSIVE);
		LWLockAcquire(&left->lock, LW_EXCLUSIVE);
		value_file = kv_value_file_find(left, address);
		if (value_file != NULL)
			value_file->value_file.flags |= KV_VALUE_FILE_SYNCED | KV_VALUE_FILE_NAMED;
		LWLockRelease(&left->lock);
		LWLockRelease(&left->extend_lock);
	}
}

KvSharers
kv_value_file_sharers(KvStore *store, uint32 shard_id, const KvRetired *retired)
{
	uint32		map = pg_atomic_read_u32(&store->map.number);
	uint32		sharer;

	/* until then marks of a shard that has left the map may list it */
	pg_read_barrier();
	if (!kv_map_lets_go(store))
		return KV_SHARERS_UNKNOWN;
	sharer = find_sharer(store, shard_id, retired->value_file.address);
	if (sharer != KV_NO_SHARD)
	{
		hand_on(kv_shard(store, sharer), retired->value_file.address, retired->taken);
		return KV_SHARERS_SOME;
	}

	/* a shard may have been joined to one that was searched before */
	pg_read_barrier();
	if (!kv_map_lets_go(store) || pg_atomic_read_u32(&store->map.number) != map)
		return KV_SHARERS_UNKNOWN;
	forget_in_left(store, retired->value_file.address);
	return KV_SHARERS_NONE;
}

void
kv_retired_inherit(KvShard *shard, const KvRetired *left, int n)
{
	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	for (int i = 0; i < n; i++)
	{
		KvRetired  *retired = kv_retired_find(shard, left[i].value_file.address);

		/* entries of the other shard named the file for longer */
		if (retired != NULL)
			retired->lsn = Max(retired->lsn, left[i].lsn);
		if (take_share(shard, left[i].value_file.address, left[i].taken))
			continue;
		Assert(shard->retired.n < shard->retired.capacity);
		kv_retired(shard)[shard->retired.n++] = left[i];
		pg_atomic_fetch_add_u32(&kv_registry->retired, 1);
	}
	LWLockRelease(&shard->lock);
}

/* ---- after recovery ---- */

/* One entry for each shard that lists a value file. */
typedef struct KvListing
{
	KvAddress	address;
	uint64		live;
	uint32		shard_id;
} KvListing;

static int
compare_listings(const void *a, const void *b)
{
	KvAddress	left = ((const KvListing *) a)->address;
	KvAddress	right = ((const KvListing *) b)->address;

	return left < right ? -1 : left > right;
}

/* Divides the bytes of a value file among all shards that list it. */
static void
divide(KvStore *store, const KvListing *listings, Size n)
{
	double		live = 0;

	for (Size i = 0; i < n; i++)
		live += listings[i].live;
	for (Size i = 0; i < n; i++)
	{
		KvShard    *shard = kv_shard(store, listings[i].shard_id);
		KvShardValueFile *value_file;

		LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
		value_file = kv_value_file_find(shard, listings[i].address);
		if (value_file != NULL)
		{
			uint64		used = kv_value_file_end(shard, value_file) -
				value_file->value_file.address;

			if (n > 1 || (value_file->value_file.flags & KV_VALUE_FILE_SHARED))
				kv_value_file_divide(shard, value_file,
									 live > 0 ? used * (listings[i].live / live) : used / n);
		}
		LWLockRelease(&shard->lock);
	}
}

#ifdef KVFDW_FAULTS
/* Does the shard's sum equal the bytes of its value files? */
static void
check_count(KvStore *store, uint32 shard_id)
{
	KvShard    *shard = kv_shard(store, shard_id);
	uint64		taken = 0;

	LWLockAcquire(&shard->lock, LW_SHARED);
	for (int i = 0; i < shard->values.n; i++)
		taken += kv_value_file_taken(shard, &kv_value_files(shard)[i]);
	if (taken != kv_shard_value_bytes(shard))
		elog(LOG, "kvfdw shard %u counts %llu bytes of values, its files have %llu", shard_id,
			 (unsigned long long) kv_shard_value_bytes(shard), (unsigned long long) taken);
	LWLockRelease(&shard->lock);
}
#endif

void
kv_value_files_find_shared(KvStore *store)
{
	KvListing  *listings;
	Size		room = 0;
	Size		n = 0;
	Size		next;

	kv_each_shard(store, i)
		room += kv_shard(store, i)->values.n;
	listings = MemoryContextAllocHuge(CurrentMemoryContext, Max(room, 1) * sizeof(KvListing));
	kv_each_shard(store, i)
	{
		KvShard    *shard = kv_shard(store, i);

		LWLockAcquire(&shard->lock, LW_SHARED);
		for (int c = 0; c < shard->values.n && n < room; c++)
		{
			const KvShardValueFile *value_file = &kv_value_files(shard)[c];

			listings[n++] = (KvListing) {value_file->value_file.address,
										 kv_value_file_live(shard, value_file), i};
		}
		LWLockRelease(&shard->lock);
	}
	qsort(listings, n, sizeof(KvListing), compare_listings);
	for (Size at = 0; at < n; at = next)
	{
		next = at + 1;
		while (next < n && listings[next].address == listings[at].address)
			next++;
		divide(store, listings + at, next - at);
	}
	pfree(listings);
#ifdef KVFDW_FAULTS
	kv_each_shard(store, i)
		check_count(store, i);
#endif
}
