/*
 * bounds.h
 *		The range of keys of a reader, its direction, and its first and last key.
 *
 * Locks: takes none.  A caller that goes through a memtable holds the shard's lock.
 */
#ifndef KV_SCAN_BOUNDS_H
#define KV_SCAN_BOUNDS_H

#include "engine/base/key.h"
#include "engine/base/types.h"
#include "engine/index/memtable.h"

/* The keys to be read; data NULL: no such bound. */
typedef struct KvBounds
{
	KvKey		lo;				/* inclusive */
	KvKey		hi;				/* exclusive */
	KvKey		after;			/* only keys after this one in the direction */
	bool		backward;
} KvBounds;

/* Is a key within the end of the range, in the direction? */
static inline bool
kv_within_end(const KvBounds *bounds, KvKey key)
{
	if (!bounds->backward)
		return bounds->hi.data == NULL ||
			kv_key_compare(key.data, key.len, bounds->hi.data, bounds->hi.len) < 0;
	return bounds->lo.data == NULL ||
		kv_key_compare(key.data, key.len, bounds->lo.data, bounds->lo.len) >= 0;
}

/* The start of reading; data NULL: at the edge of the shard. */
static inline KvKey
kv_start_of(const KvBounds *bounds)
{
	if (bounds->after.data != NULL)
		return bounds->after;
	return bounds->backward ? bounds->hi : bounds->lo;
}

/* Compares two keys in the direction. */
static inline int
kv_compare_in_order(const KvBounds *bounds, KvKey a, KvKey b)
{
	int			cmp = kv_key_compare(a.data, a.len, b.data, b.len);

	return bounds->backward ? -cmp : cmp;
}

static inline KvKey
kv_item_key(const KvMemtableItem *item)
{
	KvKey		key = {item->key, item->keylen};

	return key;
}

/* The first item to be read of a memtable; NULL: there is none. */
static inline KvMemtableItem *
kv_memtable_start(const KvBounds *bounds, const KvMemtable *memtable, KvMemtableCursor *cursor)
{
	KvKey		start = kv_start_of(bounds);
	KvMemtableItem *item;

	if (bounds->backward)
		return kv_memtable_seek_before(memtable, start.data, start.len, cursor);
	item = kv_memtable_seek(memtable, start.data ? start.data : (const uint8 *) "",
							start.data ? start.len : 0, cursor);
	if (item && bounds->after.data != NULL &&
		kv_compare_in_order(bounds, kv_item_key(item), start) == 0)
		item = kv_memtable_next(cursor);
	return item;
}

static inline KvMemtableItem *
kv_memtable_step(const KvBounds *bounds, KvMemtableCursor *cursor)
{
	return bounds->backward ? kv_memtable_prev(cursor) : kv_memtable_next(cursor);
}

#endif							/* KV_SCAN_BOUNDS_H */
