/*
 * memtable.h
 *		A memtable: recent versions of a shard's keys, in a B+tree in shared memory.
 *
 * Locks:  takes none; the caller holds the shard's lock, shared to read and exclusive to
 * change.  Memory: from the area; kv_memtable_add returns NULL if there is none.
 */
#ifndef KV_MEMTABLE_H
#define KV_MEMTABLE_H

#include "port/atomics.h"
#include "storage/condition_variable.h"
#include "utils/dsa.h"

#include "engine/base/types.h"

/* ---- the memtable (index/memtable.c) ---- */
typedef struct KvMemtable
{
	dsa_pointer root;			/* of the B+tree, or InvalidDsaPointer */
	dsa_pointer chunks;			/* all memory it owns, newest first */
	uint32		height;			/* 1: the root is a leaf */
	uint32		nitems;			/* keys */
	uint64		number;			/* no other memtable has had it since the start; 0: it is empty */
	uint64		splits;			/* of nodes so far: paths to leaves hold until the next one */
	uint64		nversions;
	uint64		value_bytes;	/* sum of lengths of its versions' values */
	uint64		oldest_xid;		/* of its versions; 0: there are none */
	Size		bytes;
} KvMemtable;

typedef struct KvMemtableVersion
{
	KvVersion	version;
	dsa_pointer older;
} KvMemtableVersion;

typedef struct KvMemtableItem
{
	dsa_pointer	newest;			/* KvMemtableVersion */
	uint16		keylen;
	uint8		key[FLEXIBLE_ARRAY_MEMBER];
} KvMemtableItem;

typedef struct KvMemtableCursor
{
	dsa_pointer leaf;
	int			index;
} KvMemtableCursor;

/* The position of a key's item, or where it would be inserted; good until an addition. */
#define KV_MAX_HEIGHT	12

typedef struct KvMemtablePosition
{
	KvMemtableItem *item;		/* NULL: the key has no item */
	int			at;				/* index in the leaf */
	dsa_pointer path[KV_MAX_HEIGHT];	/* nodes, the leaf first */
	int			slots[KV_MAX_HEIGHT];
} KvMemtablePosition;

/* The memory of all memtables, of kvfdw.memtable_memory. */
typedef struct KvMemtableMemory
{
	pg_atomic_uint64 bytes;		/* in use */
	pg_atomic_uint64 numbers;	/* KvMemtable.number of the last one */
	ConditionVariable freed;
	/* when a process began to wait and the maintainer has not responded; 0: none waits */
	pg_atomic_uint64 wanted;
} KvMemtableMemory;

extern KvMemtableMemory *kv_memtable_memory;

extern void kv_memtable_memory_init(void); /* in the shmem startup hook, once */
extern Size kv_memtable_limit(void); /* size of one shard's memtable that requires a flush */

/*
 * Find where the versions of a key are, or would be.  That takes less time if it is near the last
 * one that this process has located in the memtable.
 */
extern void kv_memtable_locate(const KvMemtable *memtable, const uint8 *key, int keylen,
							   KvMemtablePosition *place);
/*
 * Add a version as its key's newest and return its address.  NULL, and nothing changed, if
 * there is no memory.  The lock has been held since place was located.
 */
extern KvVersion *kv_memtable_add(KvMemtable *memtable, KvMemtablePosition *place, const uint8 *key,
								  int keylen, const KvVersion *version);
/* The key's item, or NULL. */
extern KvMemtableItem *kv_memtable_find(const KvMemtable *memtable, const uint8 *key, int keylen);
/*
 * As kv_memtable_find, for up to KV_FOUND_TOGETHER keys at once, which takes less time for
 * each: data for the search of one key are fetched while others are searched.
 */
extern void kv_memtable_find_all(const KvMemtable *memtable, const KvKey *keys, int n,
								 KvMemtableItem **items);

/* A cursor, and a returned item, are good while the lock is held. */

/* The first item at or after the key, or NULL: then the cursor is invalid. */
extern KvMemtableItem *kv_memtable_seek(const KvMemtable *memtable, const uint8 *key, int keylen,
										KvMemtableCursor *cursor);
/* Last item before the key (NULL: the last), or NULL. */
extern KvMemtableItem *kv_memtable_seek_before(const KvMemtable *memtable, const uint8 *key,
											   int keylen,
											   KvMemtableCursor *cursor);
extern KvMemtableItem *kv_memtable_next(KvMemtableCursor *cursor); /* NULL: that was the last */
extern KvMemtableItem *kv_memtable_prev(KvMemtableCursor *cursor); /* NULL: that was the first */
/* About how many items are before the key (data NULL: all)?  Reads one node per level. */
extern double kv_memtable_rank(const KvMemtable *memtable, KvKey key);
/* The item after about this share, from 0 to 1, of all items; NULL: there is none. */
extern KvMemtableItem *kv_memtable_at_share(const KvMemtable *memtable, double share,
											KvMemtableCursor *cursor);

/* Free all memory.  No other process can reach this memtable any more; needs no lock. */
extern void kv_memtable_free(KvMemtable *memtable);

#endif							/* KV_MEMTABLE_H */
