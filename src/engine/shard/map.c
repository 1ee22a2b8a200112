/*
 * map.c
 *		The map of a store: which shard has a key, and the order of shards.
 *
 * Each process copies the map from shared memory under KvStore.map.lock, in shared mode, and copies
 * it again when KvStore.map.number has changed.  No result of this file points into a copy, because
 * the next call may replace the copy.
 *
 * Descriptors are found by shard id through a directory, without a lock.  A directory that is too
 * small is replaced, not changed, and stays allocated until the store is dropped.
 */
#include "postgres.h"

#include "access/transam.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"

#include "engine/base/hash.h"
#include "engine/base/key.h"
#include "engine/base/shared.h"
#include "engine/format/format.h"
#include "engine/shard/map.h"
#include "engine/shard/shard.h"

#define KV_CACHED_MAPS	512
#define KV_NO_OOM		(DSA_ALLOC_NO_OOM | DSA_ALLOC_HUGE | DSA_ALLOC_ZERO)

/* ---- the copies of this process ---- */

typedef struct KvMapCopy
{
	uint32		opening;		/* hash key: KvStore.cache_id */
	KvMap	   *map;			/* NULL: not yet copied */
} KvMapCopy;

static HTAB *copies = NULL;

/* The copy that was used last. */
static uint32 last_opening = 0;
static const KvMap *last_map = NULL;

static uint32
newest_number(const KvStore *store)
{
	return pg_atomic_read_u32(&unconstify(KvStore *, store)->map.number);
}

static void
forget_copies(void)
{
	HASH_SEQ_STATUS status;
	KvMapCopy  *copy;

	last_opening = 0;
	last_map = NULL;
	hash_seq_init(&status, copies);
	while ((copy = hash_seq_search(&status)) != NULL)
	{
		if (copy->map != NULL)
			pfree(copy->map);
		hash_search(copies, &copy->opening, HASH_REMOVE, NULL);
	}
}

static KvMap *
copy_map(KvStore *store)
{
	const KvMap *shared;
	KvMap	   *map;

	LWLockAcquire(&store->map.lock, LW_SHARED);
	shared = kv_address(store->map.now);
	map = MemoryContextAllocHuge(TopMemoryContext, shared->bytes);
	memcpy(map, shared, shared->bytes);
	LWLockRelease(&store->map.lock);
	return map;
}

static const KvMap *
find_copy(KvStore *store)
{
	KvMapCopy  *copy;
	bool		found;

	if (copies == NULL)
		copies = kv_hash_create("kvfdw maps", sizeof(uint32), sizeof(KvMapCopy), TopMemoryContext);
	copy = hash_search(copies, &store->cache_id, HASH_FIND, NULL);
	if (copy == NULL)
	{
		if (hash_get_num_entries(copies) >= KV_CACHED_MAPS)
			forget_copies();
		copy = hash_search(copies, &store->cache_id, HASH_ENTER, &found);
		copy->map = NULL;
	}
	if (copy->map == NULL || copy->map->number != newest_number(store))
	{
		KvMap	   *fresh = copy_map(store);

		last_opening = 0;
		if (copy->map != NULL)
			pfree(copy->map);
		copy->map = fresh;
	}
	last_opening = store->cache_id;
	last_map = copy->map;
	return copy->map;
}

static inline const KvMap *
map_of(const KvStore *store)
{
	if (likely(last_opening == store->cache_id && last_map->number == newest_number(store)))
		return last_map;
	return find_copy(unconstify(KvStore *, store));
}

/* ---- routes ---- */

/* The number of shards that begin before the key, or, with or_at, at the key. */
static uint32
bounds_up_to(const KvMap *map, KvKey key, bool or_at)
{
	uint32		low = 0;
	uint32		high = map->nshards;

	/* the first one begins before all keys */
	while (high - low > 1)
	{
		uint32		middle = (low + high) / 2;
		KvKey		bound = kv_map_bound(map, middle);
		int			order = kv_key_compare(bound.data, bound.len, key.data, key.len);

		if (order < 0 || (order == 0 && or_at))
			low = middle;
		else
			high = middle;
	}
	return low + 1;
}

KvRoute
kv_route(const KvStore *store, KvKey key)
{
	const KvMap *map = map_of(store);

	return (KvRoute) {kv_map_shards(map)[bounds_up_to(map, key, true) - 1], map->number};
}

KvRoute
kv_route_part(const KvStore *store, KvKey start, bool backward, KvKey *edge,
			  uint8 edge_bytes[KV_MAX_KEY])
{
	const KvMap *map = map_of(store);
	uint32		position;
	KvKey		bound = {NULL, 0};

	if (start.data == NULL)
		position = backward ? map->nshards - 1 : 0;
	else
		position = bounds_up_to(map, start, !backward) - 1;
	if (backward && position > 0)
		bound = kv_map_bound(map, position);
	else if (!backward && position + 1 < map->nshards)
		bound = kv_map_bound(map, position + 1);
	*edge = (KvKey) {NULL, 0};
	if (bound.data != NULL)
	{
		memcpy(edge_bytes, bound.data, bound.len);
		*edge = (KvKey) {edge_bytes, bound.len};
	}
	return (KvRoute) {kv_map_shards(map)[position], map->number};
}

uint32
kv_shard_first(const KvStore *store)
{
	return kv_map_shards(map_of(store))[0];
}

bool
kv_shard_at(const KvStore *store, uint32 position, uint32 *shard_id, KvKey *bound)
{
	const KvMap *map = map_of(store);

	if (position >= map->nshards)
		return false;
	*shard_id = kv_map_shards(map)[position];
	if (bound != NULL)
	{
		KvKey		low = kv_map_bound(map, position);

		*bound = kv_key_copy(CurrentMemoryContext, low.data, low.len);
	}
	return true;
}

bool
kv_shard_range(const KvStore *store, uint32 shard_id, KvKey *lo, KvKey *hi, uint32 *map_number)
{
	const KvMap *map = map_of(store);
	const uint32 *shards = kv_map_shards(map);
	uint32		position = kv_shard(store, shard_id)->place.position;
	KvKey		bound;

	/* a position in the newest map, which may differ from the copy */
	if (position >= map->nshards || shards[position] != shard_id)
	{
		for (position = 0; position < map->nshards && shards[position] != shard_id; position++)
			;
		if (position == map->nshards)
			return false;
	}
	*map_number = map->number;
	bound = kv_map_bound(map, position);
	*lo = kv_key_copy(CurrentMemoryContext, bound.data, bound.len);
	*hi = (KvKey) {NULL, 0};
	if (position + 1 < map->nshards)
	{
		bound = kv_map_bound(map, position + 1);
		*hi = kv_key_copy(CurrentMemoryContext, bound.data, bound.len);
	}
	return true;
}

bool
kv_has_descriptor(KvStore *store, uint32 shard_id)
{
	if (shard_id >= pg_atomic_read_u32(&store->map.shard_ids))
		return false;
	pg_read_barrier();			/* the directory has at least as many entries */
	return DsaPointerIsValid(((KvDirectory *) kv_address(store->map.directory))->shards[shard_id]);
}

uint32
kv_descriptor_from(KvStore *store, uint32 shard_id)
{
	while (shard_id < pg_atomic_read_u32(&store->map.shard_ids) &&
		   !kv_has_descriptor(store, shard_id))
		shard_id++;
	return kv_has_descriptor(store, shard_id) ? shard_id : KV_NO_SHARD;
}

uint32
kv_shard_from(KvStore *store, uint32 shard_id)
{
	shard_id = kv_descriptor_from(store, shard_id);
	while (shard_id != KV_NO_SHARD &&
		   kv_shard(store, shard_id)->place.bounds_since == KV_NOT_IN_MAP)
		shard_id = kv_descriptor_from(store, shard_id + 1);
	return shard_id;
}

/* The map's number at a moment when no shard is entering or leaving the map. */
static uint32
steady_number(KvStore *store)
{
	uint32		number;

	pg_read_barrier();
	if (!store->shape.maps)
		return newest_number(store);
	LWLockAcquire(&store->map.lock, LW_SHARED);
	number = newest_number(store);
	LWLockRelease(&store->map.lock);
	return number;
}

/*
 * each[0]: this round covers shards whose bounds have changed in this map or later.  each[1]: the
 * number of the map when the round began.
 */
uint32
kv_each_next(KvStore *store, uint32 each[2], uint32 shard_id)
{
	bool		begins = shard_id == KV_NO_SHARD;

	for (;;)
	{
		if (begins)
			each[1] = steady_number(store);
		for (shard_id = kv_shard_from(store, begins ? 0 : shard_id + 1); shard_id != KV_NO_SHARD;
			 shard_id = kv_shard_from(store, shard_id + 1))
		{
			if (kv_shard(store, shard_id)->place.bounds_since >= each[0])
				return shard_id;
		}
		if (steady_number(store) == each[1])
			return KV_NO_SHARD;
		each[0] = each[1] + 1;
		begins = true;
	}
}

/* ---- descriptors ---- */

static void
init_shard(KvShard *shard)
{
	LWLockInitialize(&shard->lock, kv_tranche_shard);
	LWLockInitialize(&shard->extend_lock, kv_tranche_shard);
	LWLockInitialize(&shard->commit_lock, kv_tranche_shard);
	ConditionVariableInit(&shard->changed);
	shard->buffers.open = shard->buffers.sealed = -1;
	shard->place.bounds_since = KV_NOT_IN_MAP;
	pg_atomic_init_u32(&shard->generation, 0);
	pg_atomic_init_u64(&shard->buffers.writes, 0);
}

/* Makes a directory with capacity for shard ids below this one. */
static bool
grow_directory(KvStore *store, uint32 numbers)
{
	KvDirectory *old = DsaPointerIsValid(store->map.directory) ?
		kv_address(store->map.directory) : NULL;
	uint32		room = old != NULL ? old->room : 0;
	dsa_pointer fresh;
	KvDirectory *directory;

	if (numbers <= room)
		return true;
	room = Min(Max(numbers, room * 2), KV_SHARD_IDS);
	fresh = dsa_allocate_extended(kv_area(), offsetof(KvDirectory, shards) +
								  room * sizeof(dsa_pointer), KV_NO_OOM);
	if (!DsaPointerIsValid(fresh))
		return false;
	directory = kv_address(fresh);
	directory->room = room;
	directory->smaller = store->map.directory;
	if (old != NULL)
		memcpy(directory->shards, old->shards, old->room * sizeof(dsa_pointer));
	pg_write_barrier();
	store->map.directory = fresh;
	return true;
}

/* Makes descriptors for n shards, which are in no map yet. */
static bool
add_shards(KvStore *store, const uint32 *shards, uint32 n)
{
	uint32		numbers = 0;
	dsa_pointer fresh;
	KvShardBlock *block;
	KvDirectory *directory;

	for (uint32 i = 0; i < n; i++)
		numbers = Max(numbers, shards[i] + 1);
	if (!grow_directory(store, numbers))
		return false;
	fresh = dsa_allocate_extended(kv_area(), offsetof(KvShardBlock, shards) + n * sizeof(KvShard),
								  KV_NO_OOM);
	if (!DsaPointerIsValid(fresh))
		return false;
	block = kv_address(fresh);
	block->n = n;
	block->next = store->map.blocks;
	store->map.blocks = fresh;
	directory = kv_address(store->map.directory);
	for (uint32 i = 0; i < n; i++)
	{
		init_shard(&block->shards[i]);
		directory->shards[shards[i]] = fresh + offsetof(KvShardBlock, shards) + i * sizeof(KvShard);
	}
	pg_write_barrier();
	pg_atomic_write_u32(&store->map.shard_ids,
						Max(numbers, pg_atomic_read_u32(&store->map.shard_ids)));
	return true;
}

/* Stores the shards' positions in the map. */
static void
place_shards(KvStore *store, const KvMap *map)
{
	const uint32 *shards = kv_map_shards(map);

	for (uint32 i = 0; i < map->nshards; i++)
	{
		KvShard    *shard = kv_shard(store, shards[i]);

		shard->place.position = i;
		shard->place.next = shards[(i + 1) % map->nshards];
		shard->place.previous = shards[(i + map->nshards - 1) % map->nshards];
	}
	pg_atomic_write_u32(&store->map.nshards, map->nshards);
}

KvMap *
kv_map_present(KvStore *store)
{
	const KvMap *shared;
	KvMap	   *map;

	LWLockAcquire(&store->map.lock, LW_SHARED);
	shared = kv_address(store->map.now);
	map = palloc(shared->bytes);
	memcpy(map, shared, shared->bytes);
	LWLockRelease(&store->map.lock);
	return map;
}

void
kv_map_set_state(KvStore *store, KvMapState state)
{
	uint32		before = pg_atomic_exchange_u32(&store->map.state, state);

	if ((before == KV_MAP_DONE) == (state == KV_MAP_DONE))
		return;
	if (state == KV_MAP_DONE)
		pg_atomic_fetch_sub_u32(&kv_registry->maps_unfinished, 1);
	else
		pg_atomic_fetch_add_u32(&kv_registry->maps_unfinished, 1);
}

bool
kv_map_is_done(const KvStore *store)
{
	return pg_atomic_read_u32(&unconstify(KvStore *, store)->map.state) == KV_MAP_DONE;
}

bool
kv_map_lets_go(const KvStore *store)
{
	uint32		state = pg_atomic_read_u32(&unconstify(KvStore *, store)->map.state);

	return state == KV_MAP_DONE || state == KV_MAP_CHANGING;
}

bool
kv_map_claim(KvStore *store)
{
	uint32		resolved = KV_MAP_DONE;

	if (!pg_atomic_compare_exchange_u32(&store->map.state, &resolved, KV_MAP_CHANGING))
		return false;
	pg_atomic_fetch_add_u32(&kv_registry->maps_unfinished, 1);
	return true;
}

Size
kv_map_memory(const KvMap *map)
{
	uint32		numbers = 0;

	for (uint32 i = 0; i < map->nshards; i++)
		numbers = Max(numbers, kv_map_shards(map)[i] + 1);
	return map->bytes + map->nshards * sizeof(KvShard) + numbers * sizeof(dsa_pointer);
}

bool
kv_map_begin(KvStore *store, const KvMap *map)
{
	store->map.tidied_once = false;
	store->map.now = dsa_allocate_extended(kv_area(), map->bytes, KV_NO_OOM);
	if (!DsaPointerIsValid(store->map.now) || !add_shards(store, kv_map_shards(map), map->nshards))
	{
		kv_map_free(store);
		return false;
	}
	memcpy(kv_address(store->map.now), map, map->bytes);
	place_shards(store, map);
	for (uint32 i = 0; i < map->nshards; i++)
		kv_shard(store, kv_map_shards(map)[i])->place.bounds_since = kv_map_since(map)[i];
	pg_atomic_write_u32(&store->map.number, map->number);
	return true;
}

bool
kv_map_prepare(KvStore *store, const KvMap *map, dsa_pointer *room)
{
	const uint32 *shards = kv_map_shards(map);
	uint32	   *added = palloc(map->nshards * sizeof(uint32));
	uint32		n = 0;
	bool		done;

	for (uint32 i = 0; i < map->nshards; i++)
	{
		if (!kv_has_descriptor(store, shards[i]))
			added[n++] = shards[i];
	}
	*room = dsa_allocate_extended(kv_area(), map->bytes, KV_NO_OOM);
	done = DsaPointerIsValid(*room) && (n == 0 || add_shards(store, added, n));
	if (!done && DsaPointerIsValid(*room))
		kv_map_give_up(*room);
	pfree(added);
	return done;
}

void
kv_map_give_up(dsa_pointer room)
{
	dsa_free(kv_area(), room);
}

void
kv_map_publish(KvStore *store, const KvMap *map, dsa_pointer room, const uint32 *changed, int n)
{
	const uint32 *shards = kv_map_shards(map);
	uint64		next_xid = U64FromFullTransactionId(ReadNextFullTransactionId());
	dsa_pointer before;

	memcpy(kv_address(room), map, map->bytes);
	LWLockAcquire(&store->map.lock, LW_EXCLUSIVE);
	kv_map_set_state(store, KV_MAP_SHOWN);
	place_shards(store, map);
	for (int i = 0; i < n; i++)
		LWLockAcquire(&kv_shard(store, changed[i])->lock, LW_EXCLUSIVE);

	/*
	 * first the shards that the new map has, added or with other bounds: the next loop skips them
	 */
	for (uint32 i = 0; i < map->nshards; i++)
	{
		if (kv_map_since(map)[i] == map->number)
			kv_shard(store, shards[i])->place.bounds_since = map->number;
	}
	pg_write_barrier();
	for (int i = 0; i < n; i++)
	{
		KvShard    *shard = kv_shard(store, changed[i]);

		if (shard->place.bounds_since == map->number)
			continue;
		shard->place.bounds_since = KV_NOT_IN_MAP;
		shard->split.left_xid = next_xid;
	}
	before = store->map.now;
	store->map.now = room;
	pg_atomic_write_u32(&store->map.number, map->number);
	for (int i = n - 1; i >= 0; i--)
		LWLockRelease(&kv_shard(store, changed[i])->lock);
	LWLockRelease(&store->map.lock);
	dsa_free(kv_area(), before);
}

void
kv_map_free(KvStore *store)
{
	dsa_pointer next;

	for (dsa_pointer at = store->map.blocks; DsaPointerIsValid(at); at = next)
	{
		next = ((KvShardBlock *) kv_address(at))->next;
		dsa_free(kv_area(), at);
	}
	for (dsa_pointer at = store->map.directory; DsaPointerIsValid(at); at = next)
	{
		next = ((KvDirectory *) kv_address(at))->smaller;
		dsa_free(kv_area(), at);
	}
	if (DsaPointerIsValid(store->map.now))
		dsa_free(kv_area(), store->map.now);
	store->map.blocks = store->map.directory = store->map.now = InvalidDsaPointer;
	kv_map_set_state(store, KV_MAP_DONE);
	pg_atomic_write_u32(&store->map.shard_ids, 0);
}
