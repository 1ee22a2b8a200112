/*
 * map.h
 *		The map of a store: which shard has which keys, and shards in the order of keys.
 *
 * Routes: The map of a store says which shard has which keys.  A map is immutable and has a number;
 * a change of bounds replaces the map under KvStore.map.lock.  A route is the answer of a map for a
 * key.  Each process uses its own copy of the map, so a route may be outdated at once.  To read or
 * write a key, a process therefore takes the shard's lock, and then checks that the route still
 * holds.  The descriptor of a shard keeps its address until the store is dropped.  No route to a
 * shard holds once the shard has left the map.
 *
 * Locks: these functions take KvStore.map.lock, and no shard's lock unless they say so.
 */
#ifndef KV_MAP_H
#define KV_MAP_H

#include "engine/base/key.h"
#include "engine/base/types.h"
#include "engine/format/format.h"
#include "engine/shard/shard.h"

/* The state of a change of the map (durable/mapback.c). */
typedef enum KvMapState
{
	KV_MAP_DONE,				/* complete: the map may be changed */
	KV_MAP_CHANGING,			/* one process is changing it */
	KV_MAP_SHOWN,				/* the changed map is in use already */
	KV_MAP_CHANGED,				/* some shards have no mark captured since */
	KV_MAP_MARKED				/* files that only the previous map needs are to be removed */
} KvMapState;

/* ---- map.c ---- */

/* The answer of a map for a key. */
typedef struct KvRoute
{
	uint32		shard_id;
	uint32		map_number;
} KvRoute;

/* The shard whose range has the key.  The store is open; the caller holds no shard lock. */
extern KvRoute kv_route(const KvStore *store, KvKey key);
/*
 * The shard where a scan of keys begins: upwards from start, downwards from the last key before
 * start.  With data NULL the scan begins at the lowest key, or at the highest.  *edge is the end of
 * the shard's range in that direction: upwards the next shard's first key, downwards the shard's
 * own first key.  With data NULL no shard follows.  The bytes are stored in edge_bytes.
 */
extern KvRoute kv_route_part(const KvStore *store, KvKey start, bool backward, KvKey *edge,
							 uint8 edge_bytes[KV_MAX_KEY]);

/* Does the route still hold?  The caller holds the shard's lock. */
static inline bool
kv_route_holds(const KvShard *shard, KvRoute route)
{
	return shard->place.bounds_since <= route.map_number;
}

/* The shard that probably has the key, for callers to whom a wrong answer does no harm. */
static inline uint32
kv_shard_for(const KvStore *store, const uint8 *key, int keylen)
{
	return kv_route(store, (KvKey) {key, keylen}).shard_id;
}


extern uint32 kv_shard_first(const KvStore *store);	/* shard with the lowest keys */
/*
 * The shard at a position, counted from 0, and its first key, palloc'd.  bound may be NULL.  False:
 * the map has no such position.
 */
extern bool kv_shard_at(const KvStore *store, uint32 position, uint32 *shard_id, KvKey *bound);
/*
 * The range of a shard, palloc'd, and the number of the map that has it.  hi->data is NULL if the
 * range has no end.  False: the map does not have the shard.
 */
extern bool kv_shard_range(const KvStore *store, uint32 shard_id, KvKey *lo, KvKey *hi,
						   uint32 *map_number);

/* The neighbor in key order; the last shard is followed by the first.  direction is 1 or -1. */
static inline uint32
kv_shard_next(const KvStore *store, uint32 shard_id, int direction)
{
	const KvShard *shard = kv_shard(store, shard_id);

	return direction > 0 ? shard->place.next : shard->place.previous;
}

/* The number of steps from one shard to another that follows it; negative if it does not. */
static inline int64
kv_shard_distance(const KvStore *store, uint32 from, uint32 to)
{
	return (int64) kv_shard(store, to)->place.position - kv_shard(store, from)->place.position;
}

static inline uint32
kv_store_nshards(KvStore *store)
{
	return pg_atomic_read_u32(&store->map.nshards);
}

/* The least shard id, not less than the argument, of a shard in the map, or KV_NO_SHARD. */
extern uint32 kv_shard_from(KvStore *store, uint32 shard_id);

/*
 * Every shard in the map, by shard id, followed by those whose bounds have changed during the loop.
 * So the loop meets all keys, some perhaps twice.  It holds no shard lock between two shards.
 */
#define kv_each_shard(store, shard_id) \
	for (uint32 each_##shard_id[2] = {0, 0}, \
		 shard_id = kv_each_next(store, each_##shard_id, KV_NO_SHARD); \
		 shard_id != KV_NO_SHARD; shard_id = kv_each_next(store, each_##shard_id, shard_id))
/*
 * The shard after this one, or KV_NO_SHARD; for KV_NO_SHARD the first.  The caller keeps each,
 * which begins as {0, 0}, from one call to the next.
 */
extern uint32 kv_each_next(KvStore *store, uint32 each[2], uint32 shard_id);

/* Every shard that has a descriptor, in the map or not. */
#define kv_each_descriptor(store, shard_id) \
	for (uint32 shard_id = kv_descriptor_from(store, 0); shard_id != KV_NO_SHARD; \
		 shard_id = kv_descriptor_from(store, shard_id + 1))
/* Does a shard with this id have a descriptor? */
extern bool kv_has_descriptor(KvStore *store, uint32 shard_id);
/* The least shard id, not less than the argument, that has a descriptor, or KV_NO_SHARD. */
extern uint32 kv_descriptor_from(KvStore *store, uint32 shard_id);

extern KvMap *kv_map_present(KvStore *store);	/* palloc'd */
/*
 * Allocates shared memory for a new map, and descriptors for the shards that the map adds; these
 * are in no map yet, and all zero.  False: there is no memory.  The caller passes the memory to
 * kv_map_publish, or frees it with kv_map_give_up.  The descriptors stay for later shards with
 * these ids.
 */
extern bool kv_map_prepare(KvStore *store, const KvMap *map, dsa_pointer *room);
extern void kv_map_give_up(dsa_pointer room);
/*
 * Replaces the map in use.  changed lists, by shard id, the n shards whose bounds differ in the new
 * map or which it does not have.  The shards that the new map adds are complete.
 */
extern void kv_map_publish(KvStore *store, const KvMap *map, dsa_pointer room,
						   const uint32 *changed, int n);
/*
 * While the store is being opened: allocates memory for this map and descriptors of its shards, all
 * zero except for what the map says.  False: there is no shared memory, and nothing is changed.
 */
extern bool kv_map_begin(KvStore *store, const KvMap *map);
/* Frees the map and the descriptors.  No process uses the store any more. */
extern void kv_map_free(KvStore *store);
extern Size kv_map_memory(const KvMap *map);	/* bytes that kv_map_begin needs */
extern void kv_map_set_state(KvStore *store, KvMapState state);
extern bool kv_map_is_done(const KvStore *store);
/*
 * May files be removed that no shard in the map needs?  Not while marks of shards that have left
 * the map may list them.
 */
extern bool kv_map_lets_go(const KvStore *store);
extern bool kv_map_claim(KvStore *store);	/* from DONE to CHANGING; false: it is not DONE */

#endif							/* KV_MAP_H */
