/*
 * delta.h
 *		A delta: recent versions of a shard's keys, a B+tree in shared memory.
 *
 * Takes no lock: the shard's is held, shared to read and exclusive to change.
 * Memory comes from the area; kv_delta_add returns NULL if there is none.
 */
#ifndef KV_DELTA_H
#define KV_DELTA_H

#include "port/atomics.h"
#include "storage/condition_variable.h"
#include "utils/dsa.h"

#include "engine/base/types.h"

/* ---- the delta (index/delta.c) ---- */
typedef struct KvDelta
{
	dsa_pointer root;			/* of the B+tree, or InvalidDsaPointer */
	dsa_pointer chunks;			/* all memory it owns, newest first */
	uint32		height;			/* 1: the root is a leaf */
	uint32		nitems;			/* keys */
	uint64		nversions;
	uint64		value_bytes;	/* sum of lengths of its versions' values */
	uint64		oldest_xid;		/* of its versions; 0: it has none */
	Size		bytes;
} KvDelta;

typedef struct KvDeltaVersion
{
	KvVersion	version;
	dsa_pointer older;
} KvDeltaVersion;

typedef struct KvDeltaItem
{
	dsa_pointer newest;			/* KvDeltaVersion */
	uint16		keylen;
	uint8		key[FLEXIBLE_ARRAY_MEMBER];
} KvDeltaItem;

typedef struct KvDeltaCursor
{
	dsa_pointer leaf;
	int			index;
} KvDeltaCursor;

/* Where in the tree a key's item is or belongs; good until something is added. */
#define KV_MAX_HEIGHT	12

typedef struct KvDeltaPosition
{
	KvDeltaItem *item;			/* NULL: the key is not there */
	int			at;				/* index in the leaf */
	dsa_pointer path[KV_MAX_HEIGHT];	/* nodes, the leaf first */
	int			slots[KV_MAX_HEIGHT];
} KvDeltaPosition;

/* The memory of all deltas, of kvfdw.delta_memory. */
typedef struct KvDeltaMemory
{
	pg_atomic_uint64 bytes;		/* in use */
	ConditionVariable freed;
	pg_atomic_uint64 wanted;	/* somebody waits, and since then the maintainer has not come; 0: nobody does */
} KvDeltaMemory;

extern KvDeltaMemory *kv_delta_memory;

extern void kv_delta_memory_init(void); /* in the shmem startup hook, once */
extern Size kv_delta_limit(void);	/* bytes of one shard's delta that call for a flush */

/* Find where the versions of a key are, or would be. */
extern void kv_delta_locate(const KvDelta *delta, const uint8 *key, int keylen,
							KvDeltaPosition *place);
/*
 * Add a version as its key's newest and return where it now lives.  NULL, and
 * nothing changed, if there is no memory.  The lock has been held since place was
 * located.
 */
extern KvVersion *kv_delta_add(KvDelta *delta, KvDeltaPosition *place, const uint8 *key,
							   int keylen, const KvVersion *version);
/* The key's item, or NULL. */
extern KvDeltaItem *kv_delta_find(const KvDelta *delta, const uint8 *key, int keylen);
/*
 * Likewise of several keys, up to KV_FOUND_TOGETHER, which takes less time for each: what the
 * search for one needs next is fetched while others are searched for.
 */
extern void kv_delta_find_all(const KvDelta *delta, const KvKey *keys, int n, KvDeltaItem **items);

/* A cursor, and the item that is returned, are good while the lock is held. */

/* First item at or behind the key, or NULL: then the cursor is nowhere. */
extern KvDeltaItem *kv_delta_seek(const KvDelta *delta, const uint8 *key, int keylen,
								  KvDeltaCursor *cursor);
/* Last item before the key (NULL: the last), or NULL. */
extern KvDeltaItem *kv_delta_seek_before(const KvDelta *delta, const uint8 *key, int keylen,
										 KvDeltaCursor *cursor);
extern KvDeltaItem *kv_delta_next(KvDeltaCursor *cursor);	/* NULL: that was the last */
extern KvDeltaItem *kv_delta_prev(KvDeltaCursor *cursor);	/* NULL: that was the first */
/* About how many items come before the key (data NULL: all).  Touches a node per level. */
extern double kv_delta_rank(const KvDelta *delta, KvKey key);
/* The item behind about this share, of 0 to 1, of all; NULL: there is none. */
extern KvDeltaItem *kv_delta_at_share(const KvDelta *delta, double share, KvDeltaCursor *cursor);

/* Give all memory back.  No other process can reach this delta any more; needs no lock. */
extern void kv_delta_free(KvDelta *delta);

#endif							/* KV_DELTA_H */
