/*
 * memtable.h
 *		A memtable: recent versions of a shard's keys, a B+tree in shared memory.
 *
 * Takes no lock: the shard's is held, shared to read and exclusive to change.
 * Memory comes from the area; kv_memtable_add returns NULL if there is none.
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
	uint64		nversions;
	uint64		value_bytes;	/* sum of lengths of its versions' values */
	uint64		oldest_xid;		/* of its versions; 0: it has none */
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

/* Where in the tree a key's item is or belongs; good until something is added. */
#define KV_MAX_HEIGHT	12

typedef struct KvMemtablePosition
{
	KvMemtableItem *item;		/* NULL: the key is not there */
	int			at;				/* index in the leaf */
	dsa_pointer path[KV_MAX_HEIGHT];	/* nodes, the leaf first */
	int			slots[KV_MAX_HEIGHT];
} KvMemtablePosition;

/* The memory of all memtables, of kvfdw.memtable_memory. */
typedef struct KvMemtableMemory
{
	pg_atomic_uint64 bytes;		/* in use */
	ConditionVariable freed;
	/* somebody waits, and since then the maintainer has not come; 0: nobody does */
	pg_atomic_uint64 wanted;
} KvMemtableMemory;

extern KvMemtableMemory *kv_memtable_memory;

extern void kv_memtable_memory_init(void); /* in the shmem startup hook, once */
extern Size kv_memtable_limit(void); /* bytes of one shard's memtable that call for a flush */

/* Find where the versions of a key are, or would be. */
extern void kv_memtable_locate(const KvMemtable *memtable, const uint8 *key, int keylen,
							   KvMemtablePosition *place);
/*
 * Add a version as its key's newest and return where it now lives.  NULL, and
 * nothing changed, if there is no memory.  The lock has been held since place was
 * located.
 */
extern KvVersion *kv_memtable_add(KvMemtable *memtable, KvMemtablePosition *place, const uint8 *key,
								  int keylen, const KvVersion *version);
/* The key's item, or NULL. */
extern KvMemtableItem *kv_memtable_find(const KvMemtable *memtable, const uint8 *key, int keylen);
/*
 * Likewise of several keys, up to KV_FOUND_TOGETHER, which takes less time for each: what the
 * search for one needs next is fetched while others are searched for.
 */
extern void kv_memtable_find_all(const KvMemtable *memtable, const KvKey *keys, int n,
								 KvMemtableItem **items);

/* A cursor, and the item that is returned, are good while the lock is held. */

/* First item at or behind the key, or NULL: then the cursor is nowhere. */
extern KvMemtableItem *kv_memtable_seek(const KvMemtable *memtable, const uint8 *key, int keylen,
										KvMemtableCursor *cursor);
/* Last item before the key (NULL: the last), or NULL. */
extern KvMemtableItem *kv_memtable_seek_before(const KvMemtable *memtable, const uint8 *key,
											   int keylen,
											   KvMemtableCursor *cursor);
extern KvMemtableItem *kv_memtable_next(KvMemtableCursor *cursor); /* NULL: that was the last */
extern KvMemtableItem *kv_memtable_prev(KvMemtableCursor *cursor); /* NULL: that was the first */
/* About how many items come before the key (data NULL: all).  Touches a node per level. */
extern double kv_memtable_rank(const KvMemtable *memtable, KvKey key);
/* The item behind about this share, of 0 to 1, of all; NULL: there is none. */
extern KvMemtableItem *kv_memtable_at_share(const KvMemtable *memtable, double share,
											KvMemtableCursor *cursor);

/* Give all memory back.  No other process can reach this memtable any more; needs no lock. */
extern void kv_memtable_free(KvMemtable *memtable);

#endif							/* KV_MEMTABLE_H */
