/*
 * internal.h
 *		Declarations that the files of scan/ share. No other module includes this file.
 *
 * Locks: no shard lock is held between two calls of a scan (I 7).
 */
#ifndef KV_SCAN_INTERNAL_H
#define KV_SCAN_INTERNAL_H

#include "nodes/bitmapset.h"
#include "utils/snapshot.h"

#include "engine/base/key.h"
#include "engine/base/types.h"
#include "engine/cache/cache.h"
#include "engine/cache/reader.h"
#include "engine/index/memtable.h"
#include "engine/index/run.h"
#include "engine/rows.h"
#include "engine/shard/dead.h"
#include "engine/shard/shard.h"
#include "engine/xact/xact.h"

/* ---- the range of keys of a reader, its direction, and its first and last key ---- */

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

/* The first item to be read of a memtable, whose lock is held; NULL: there is none. */
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

/* ---- scans ---- */

#define KV_BATCH_ROWS		512
#define KV_BATCH_BYTES		((Size) 4 * 1024 * 1024)
/* maximum number of items of the memtables that are read under one lock */
#define KV_ITEMS_MOST		4096
/* maximum number of rows of a range that is read in one batch, and cached */
#define KV_SMALL_RANGE		256

typedef struct KvAddressOrder KvAddressOrder;

/* The kind of loading in the present shard of a scan. */
typedef enum KvLoading
{
	KV_LOADS_NOTHING,			/* values are read individually */
	KV_LOADS_WHOLE,				/* all values of the shard */
	KV_LOADS_SEGMENTS,			/* segment by segment, because values are in key order */
	KV_LOADS_BLOCKS				/* single blocks, because the values do not fit */
} KvLoading;

#define KV_ORDER_LEAST		32		/* least number of pairs of neighbours that prove an order */

/* Are values of successive keys stored in key order?  All zero: none was seen (estimate.c). */
typedef struct KvOrder
{
	bool		begun;
	bool		found;			/* a value was next to the previous one since kv_order_go_on */
	KvAddress	first;			/* address of the first such previous value */
	KvAddress	last;			/* address of the last value seen */
	int			n;				/* number of pairs of neighbours, mostly recent ones */
	int			up;				/* pairs that are adjacent in ascending order */
	int			down;			/* pairs that are adjacent in descending order */
} KvOrder;

/* Estimated numbers of entries of a shard, in memtables and runs. */
typedef struct KvEntries
{
	double		between;		/* in the given range */
	double		total;
	double		mean;			/* mean size of their values */
} KvEntries;

/* Decides whether and how a scan reads through windows (steer.c). */
typedef struct KvSteering
{
	uint64		rows;			/* rows that the range has returned */
	bool		ramped;			/* it has returned enough to use windows */
	KvLoading	loading;
	uint64		segment;		/* the present segment, or KV_WHOLE */
	KvOrder		order;			/* order of the values returned of this shard */

	/* for segments: */
	int			segment_step;	/* 1 upwards, -1 downwards */
	int			depth;			/* number of segments loaded ahead */
	uint64		last_segment;	/* segment where the scan ends, or KV_WHOLE */
	uint64		segment_rows;	/* value of rows when the scan was last in its segment */

	/* loading blocks of this shard has failed; true until kv_block_window_stirs() */
	bool		by_itself;
	char	   *buffer;			/* memory for a batch's values, if they fit; NULL: not yet made */
} KvSteering;

/* How far ahead of a scan blocks are requested (ahead.c). */
typedef struct KvAhead
{
	double		mean;			/* estimated bytes of a value */
	double		wanted;			/* estimated bytes of the range in the shard at the start */
	double		blocks_each;	/* estimated blocks of a value that are no other value's */
	uint64		rows;			/* rows after the batch that were looked at */
	uint64		lacks;			/* of some of so many of them blocks will not be loaded */
	bool		ended;			/* the range has no more rows in the shard */
	int			upto_len;
	uint8	   *upto;			/* the last key looked at, [KV_MAX_KEY]; NULL: not yet made */
} KvAhead;

/* Memory for copies of a range's keys. */
typedef struct KvRangeBytes
{
	uint8		from[KV_MAX_KEY];
	uint8		edge[KV_MAX_KEY];	/* for kv_route_part */
	uint8		position[KV_MAX_KEY];
	uint8		extent[KV_MAX_KEY];
} KvRangeBytes;

/* Dead keys in a row, whose rows the snapshot does not see, that a scan has met (stepover.c). */
typedef struct KvDeadExtent
{
	uint32		keys;			/* estimated number of keys met */
	KvKey		start;			/* start of the extent; data NULL: at the edge of the shard */
	bool		after;			/* it begins with the next key after start */
	uint32		patience;		/* number of keys after which a step over them is tried */
} KvDeadExtent;

struct KvScan
{
	KvStore    *store;
	KvView		view;			/* of the snapshot; conflicts NULL: not SERIALIZABLE */
	bool		want_values;
	bool		forgiving;		/* an unreadable value is a problem of its row, and logged */
	MemoryContext context;		/* lifetime of the scan */
	/* keys and values of one batch; for a single key, that of the scan */
	MemoryContext batch_context;
	KvScanStats stats;
	KvConflicts conflicts;		/* for view, at SERIALIZABLE */
	bool		explains_misses;
	bool		notes_shards;
	Bitmapset  *shards;			/* ids of the shards that it has read, if it notes them */

	/* for ranges: */
	KvKey		lo;				/* copies; data NULL: unbounded */
	KvKey		hi;
	KvKey		rest;	/* keys before it are read last, as a second range; data NULL: none */
	KvScanOrder order;
	bool		backward;		/* order == KV_DESCENDING */
	uint64		limit_hint;
	uint32		shard_id;		/* expected shard of the next batch */
	/* if !started: where the range continues; data NULL: at its start */
	KvKey		from;
	KvRangeBytes *bytes;		/* NULL: it has never read a range */
	KvKey		wrap;	/* start of a scan in any order that wraps; data NULL: at the lowest keys */
	bool		wrapped;		/* it has reached the end, and reads the keys before wrap */
	bool		shared;			/* other processes scan the rest of the whole range */
	KvKey		whole_lo;		/* the range, or the whole range if it is a part */
	KvKey		whole_hi;
	KvSteering	steering;
	KvAhead		ahead;
	KvWindowReader reader;
	KvScanStart company;	/* position of another scan at the start; KV_NO_SHARD: there was none */
	uint32		keyed_shard;	/* a shard that is not to be read by address, or KV_NO_SHARD */
	struct KvAddressOrder *by_address; /* the shard that is being read by address, or NULL */
	bool		at_end;
	bool		started;
	KvKey		position;		/* the last key returned */
	KvDeadExtent extent;		/* extent of dead keys that ends at position */
	int			batch_rows;
	/* items of the memtables to read for the next batch, if more than rows */
	int			batch_items;
	int			recent_rows;	/* rows of the memtables to copy for it; 0: not known yet */

	/* for points: */
	bool		points;
	KvKey	   *keys;			/* their bytes follow in the same allocation */
	int			nkeys;
	int			next_key;

	KvBatchRow *rows;			/* [rows_capacity] */
	int			rows_capacity;
	int			nrows;
	int			next_row;
	Size		batch_bytes;
	uint32		rows_shard;		/* if rows have been read from runs: the shard, and the */
	uint32		rows_generation;	/* generation of these */
	bool		positioned;		/* it has read a range or points before */
};

/* Ends the batch with this key: the range continues after it. */
static inline void
kv_scan_set_position(KvScan *scan, KvKey key)
{
	memcpy(scan->bytes->position, key.data, key.len);
	scan->position = (KvKey) {scan->bytes->position, key.len};
}

/*
 * Reads the keys of a shard that have a version visible to the snapshot, from memtables and runs.
 */
typedef struct KvKeyReader
{
	const KvView *view;
	uint32		shard_id;		/* the shard of the keys */
	KvKey		edge;			/* end of the shard's range in the direction; see kv_route_part */
	uint8		edge_bytes[KV_MAX_KEY];
	KvBounds	bounds;
	KvBatchRow *rows;			/* copied from the memtables */
	int			room;			/* capacity of rows */
	int			nrows;
	int			next_row;
	bool		complete;		/* both memtables were read to the end of the range */
	KvKey		limit;			/* if not complete: they were read up to this key */
	bool		nothing;		/* a dead range covers the rest of the shard */
	uint32		passed;			/* keys in a row whose rows the snapshot does not see */
	uint32		patience;		/* reading ends after so many passed keys */
	uint64		dead;			/* number of all such keys, in a row or not */
	uint64		value_bytes;	/* kv_shard_value_bytes() at the start */
	KvRunMerge	runs;
	uint32		singly;			/* so many keys are read one by one before a page is tried again */
	uint32		steps;
	uint8		key_bytes[KV_MAX_KEY];	/* for a row of a run */
	uint8		start_bytes[KV_DEAD_KEY];	/* end of a dead range */
	uint8		stop_bytes[KV_DEAD_KEY];	/* start of a dead range */
} KvKeyReader;

/* ---- rows.c ---- */

/* Makes capacity for the next batch of so many rows; rows of the last batch become invalid. */
extern void kv_batch_make_rows(KvScan *scan, int rows);
/* Empties batch_context, or makes one that is not the scan's context. */
extern void kv_batch_clear(KvScan *scan);
extern void kv_batch_end(KvScan *scan); /* frees batch_context, and uses the scan's context again */
/*
 * The number of rows of a range's first batch.  A small range probably is read to its end, so all
 * of it is read at once; an upper bound of its rows is cheap to count.  For other ranges it is
 * unknown how many rows will be taken.
 */
extern int	kv_batch_first_rows(KvScan *scan);
/* Finds the visible version of a key; false: there is no row. */
extern bool kv_batch_find_point(KvScan *scan, KvKey key, KvBatchRow *row);
/*
 * Finds the rows of up to KV_FOUND_TOGETHER keys (base/key.h).  In most cases it takes each shard's
 * lock once for all keys of the shard.
 */
extern void kv_batch_find_points(KvScan *scan, const KvKey *keys, int n, KvBatchRow *rows,
								 bool *found);
/*
 * Begins to read keys of one shard.  If reading would begin in dead ranges it begins after them, as
 * keys->bounds say then, and it ends at the next one.  Under the shard's lock it copies from the
 * memtables: up to max_keys keys, up to max_bytes bytes of values, and at most max_items items,
 * visible or not.  Returns the runs that belong to them.
 */
extern const KvRunSet *kv_keys_begin(KvKeyReader *keys, KvScan *scan, const KvBounds *bounds,
									 int max_keys, int max_items, Size max_bytes);
/* Then, without the lock: adds these runs. */
extern void kv_keys_add_runs(KvKeyReader *keys, KvRun *const *runs, int nruns);
/*
 * The next key with a visible version; row->present: it has a row, and is not deleted.  The key of
 * a row of a run is in keys->key_bytes until the next call; a row of a memtable is valid as long as
 * the batch.  False: there is none before keys->limit or, if complete, the end of the range.
 */
extern bool kv_keys_next(KvKeyReader *keys, KvBatchRow *row);
/*
 * Makes the next batch of a range, from one shard; empty if the rest of the shard is.
 * scan->started: the shard has more.  Returns the shard; *bytes: its kv_shard_value_bytes().
 */
extern uint32 kv_batch_fill_range(KvScan *scan, uint64 *bytes);
/* Notes that the scan reads this shard; see kv_scan_note_shards. */
extern void kv_scan_looks_in(KvScan *scan, uint32 shard_id);
/* Copies a value that is in a write buffer; NULL: it must be read.  The shard's lock is held. */
extern char *kv_batch_copy_from_buffer(KvScan *scan, const KvShard *shard,
									   const KvVersion *version);

/* ---- pages.c; no lock is held ---- */

/*
 * Adds rows to the batch as long as only one source has keys, all from one page of a run.  False:
 * the next key must be read by kv_keys_next.
 */
extern bool kv_keys_take_page(KvScan *scan, KvKeyReader *keys);

/* ---- stepover.c; no lock is held ---- */

/*
 * Steps over the dead keys before the scan, from the start of its extent in this shard, and notes
 * them.  bounds: those of the range.
 */
extern void kv_step_over(KvScan *scan, uint32 shard_id, const KvBounds *bounds);

/* ---- fetch.c ---- */

/*
 * Gets the missing values of the batch, and verifies all (I 4).  Rows whose values have moved get
 * their new version (I 16).  False, and only without a snapshot: a row's version does not exist any
 * more.
 */
extern bool kv_batch_fetch(KvScan *scan);
/* Gets the values of points that are in memory; others stay NULL. */
extern void kv_batch_fetch_near(KvScan *scan);

/* ---- ahead.c; no lock is held ---- */

/* From now on loads the blocks of this shard's values, so many of this mean size. */
extern void kv_ahead_begin(KvScan *scan, double rows, double mean);
extern void kv_ahead_reset(KvScan *scan);	/* another range begins */
/* Requests the blocks of the batch and of the rows after it. */
extern void kv_ahead(KvScan *scan);

/* ---- stretch.c ---- */

/*
 * Decides which of these parts, in ascending order, are loaded as a whole.  all: they are all that
 * the scan needs next, and also decide how many parts of a stretch are loaded together.
 */
extern void kv_stretch_choose(KvScan *scan, KvWantedPart *parts, int n, bool all);

/* ---- byaddress.c ---- */

/* Makes the next batch of a scan that takes rows in any order. */
extern void kv_by_address_fill(KvScan *scan);
extern void kv_by_address_end(KvScan *scan); /* frees the sorted rows, if any */

/* ---- estimate.c; no lock is held ---- */

extern void kv_order_add(KvOrder *order, KvAddress address);	/* a value was seen */
/* The next batch follows: older values count less and less. */
extern void kv_order_go_on(KvOrder *order);
/* Are three of four values next to their predecessor?  *step: 1 or -1, the direction. */
extern bool kv_order_is_kept(const KvOrder *order, int *step);
/* The same for a shard, in four parts of its keys; examines memtable or run, whichever has more. */
extern bool kv_shard_keeps_order(KvStore *store, uint32 shard_id);
/* Adds the shard's entries, and the bytes of their values. */
extern void kv_shard_values(KvStore *store, uint32 shard_id, double *entries, double *bytes);
extern void kv_entries_between(KvStore *store, uint32 shard_id, KvKey lo, KvKey hi,
							   KvEntries *entries);
/*
 * The address of the value of the last entry before the end of a range, in the direction of the
 * scan.  False: there is none.
 */
extern bool kv_last_address(KvStore *store, uint32 shard_id, KvKey end, bool backward,
							KvAddress *address);
/*
 * The approximate first key whose value is in a segment, found as if all values were in order; a
 * copy in the scan's memory.  False: the place is a whole shard, or it has no entry.
 */
extern bool kv_key_at_address(const KvScan *scan, const KvScanStart *place, KvKey *key);

/* The approximate number of entries of a shard, without its lock. */
static inline uint64
kv_shard_entries(KvStore *store, uint32 shard_id)
{
	const KvShard *shard = kv_shard(store, shard_id);

	return shard->files.frozen_keys + shard->files.unfrozen_entries +
		shard->active.nitems + shard->immutable.nitems;
}

/* ---- steer.c; no lock is held ---- */

/* A range begins; ramped: of a scan that is known to be long. */
extern void kv_steer_begin(KvScan *scan, bool ramped);
/* The range ends: nothing is loaded for it any more. */
extern void kv_steer_end(KvScan *scan);

/*
 * Is the shard larger than the range cache, with values that are not in key order, at least in some
 * part of it?
 */
extern bool kv_shard_scattered(KvStore *store, uint32 shard_id);
/*
 * A batch of values of shard_id begins at an address.  bytes_left bytes follow in the order of
 * addresses, which began at begin.
 */
extern void kv_steer_by_address(KvScan *scan, uint32 shard_id, KvAddress address,
								KvAddress begin, double bytes_left);
/*
 * Like kv_batch_fill_range; also decides whether the values of the batch, if wanted, come through
 * windows.
 */
extern void kv_steer_fill_range(KvScan *scan);

#endif							/* KV_SCAN_INTERNAL_H */
