/*
 * internal.h
 *		What the files of a scan share; nobody else includes it.
 *
 * No lock of a shard is held between two calls of a scan (I 7).
 */
#ifndef KV_SCAN_INTERNAL_H
#define KV_SCAN_INTERNAL_H

#include "nodes/bitmapset.h"
#include "utils/snapshot.h"

#include "engine/base/types.h"
#include "engine/cache/cache.h"
#include "engine/engine.h"
#include "engine/index/run.h"
#include "engine/index/runmerge.h"
#include "engine/scan/bounds.h"
#include "engine/shard/dead.h"
#include "engine/shard/shard.h"
#include "engine/xact/xact.h"

#define KV_BATCH_ROWS		512
#define KV_BATCH_BYTES		((Size) 4 * 1024 * 1024)
#define KV_ITEMS_MOST		4096	/* items of the memtables looked at under one lock */
#define KV_SMALL_RANGE		256		/* rows of a range that is read in one batch, and cached */

/* One row of a batch. */
typedef struct KvBatchRow
{
	KvVersion	version;
	int			keylen;
	const uint8 *key;
	const char *value;			/* NULL: not read yet, or in vain: … */
	int			result;			/* … bytes that there were, or -errno */
	bool		present;
	bool		verified;
	bool		headed;			/* there is room for a varlena header before value */
	bool		no_tier;		/* it was not in the second tier when it was read there */
	bool		direct;			/* not through the page cache, with which it could not be had, … */
	bool		wrong_pages;	/* … or which had other bytes */
	int			problem;		/* SQLSTATE: a forgiving scan cannot have the value; else 0 */
} KvBatchRow;

typedef struct KvAddressOrder KvAddressOrder;

/* What a scan has loaded for it of the shard where it is. */
typedef enum KvLoading
{
	KV_LOADS_NOTHING,			/* it has values read one by one */
	KV_LOADS_WHOLE,				/* all of its values */
	KV_LOADS_SEGMENTS,			/* segment after segment, for they are in order */
	KV_LOADS_BLOCKS				/* their blocks, one by one, for there are too many */
} KvLoading;

#define KV_ORDER_LEAST		32		/* pairs of neighbours that tell whether there is order */

/* Do values that are met one after the other lie so, too?  All zero: none was met (order.c). */
typedef struct KvOrder
{
	bool		begun;
	bool		found;			/* one that lies next to the one before, … */
	KvAddress	first;			/* … the address of which is this, since kv_order_go_on */
	KvAddress	last;			/* address of the last one met */
	int			n;				/* pairs of neighbours looked at, the latest ones mostly */
	int			up;				/* of them lie next to each other, in the order of addresses … */
	int			down;			/* … and in the reverse one */
} KvOrder;

/* About how many entries a shard has, wherever they are. */
typedef struct KvEntries
{
	double		between;		/* in the range asked for */
	double		total;
	double		mean;			/* size of their values */
} KvEntries;

/* Whether and how a scan reads through windows (steer.c). */
typedef struct KvSteering
{
	uint64		rows;			/* that the range has given */
	bool		ramped;			/* it has given enough to go over to windows */
	KvLoading	loading;
	uint64		segment;		/* where it is, or KV_WHOLE */
	KvOrder		order;			/* of the values that the range has given of this shard */

	/* loading segments */
	int			segment_step;	/* upwards or downwards */
	int			depth;			/* so many ahead */
	uint64		last_segment;	/* where it ends, or KV_WHOLE */
	uint64		segment_rows;	/* rows that the range had given when it was last there */

	/* loading blocks of this shard has failed, until kv_block_window_stirs() */
	bool		by_itself;
	char	   *buffer;			/* of a batch's values, if they fit; NULL: not made yet */
} KvSteering;

/* How far ahead of a scan blocks are asked for (ahead.c). */
typedef struct KvAhead
{
	int			blocks_each;	/* value, about */
	uint64		rows;			/* behind the batch, of which the last has this key … */
	bool		ended;			/* … and is the last of the range in the shard */
	int			upto_len;
	uint8	   *upto;			/* room for any; NULL: not made yet */
} KvAhead;

/* Keys that a range has copies of. */
typedef struct KvRangeBytes
{
	uint8		from[KV_MAX_KEY];
	uint8		edge[KV_MAX_KEY];	/* for kv_route_part */
	uint8		position[KV_MAX_KEY];
	uint8		extent[KV_MAX_KEY];
} KvRangeBytes;

/* Dead keys, of which the snapshot sees no row, that a scan has met in a row (stepover.c). */
typedef struct KvDeadExtent
{
	uint32		keys;			/* that were met, about */
	KvKey		start;			/* where it begins; data NULL: at the edge of the shard */
	bool		after;			/* it begins with the next key after start */
	uint32		patience;		/* after so many it is worth a try to step over them */
} KvDeadExtent;

struct KvScan
{
	KvStore    *store;
	KvView		view;			/* of the snapshot; conflicts NULL: not SERIALIZABLE */
	bool		want_values;
	bool		forgiving;		/* a value that cannot be had is its row's problem, and logged */
	MemoryContext context;		/* the scan's life */
	/* one batch's keys and values; of a single key the scan's own */
	MemoryContext batch_context;
	KvScanStats stats;
	KvConflicts conflicts;		/* for view, at SERIALIZABLE */
	bool		notes_shards;
	Bitmapset  *shards;			/* in which it has looked, if it notes them */

	/* range mode */
	KvKey		lo;				/* copies; data NULL: unbounded */
	KvKey		hi;
	KvKey		rest;			/* keys before it are read last, as a range; data NULL: none */
	KvScanOrder order;
	bool		backward;		/* order == KV_DESCENDING */
	uint64		limit_hint;
	uint32		shard_id;		/* where the next batch begins, as far as is known */
	/* if it is !started: the range goes on from here; data NULL: begins */
	KvKey		from;
	KvRangeBytes *bytes;		/* NULL: it never was in range mode */
	KvKey		wrap;			/* a scan in any order began here; data NULL: at the lowest keys */
	bool		wrapped;		/* it has come to the end, and reads what is before that */
	bool		shared;			/* other processes scan the rest of the whole range */
	KvKey		whole_lo;		/* the range, or what it is a part of */
	KvKey		whole_hi;
	KvSteering	steering;
	KvAhead		ahead;
	KvWindowReader reader;
	KvScanStart company;		/* another scan was there when it began; KV_NO_SHARD: none was */
	uint32		keyed_shard;	/* known to be no shard to read by address, or KV_NO_SHARD */
	struct KvAddressOrder *by_address; /* a shard that is read by address, or NULL */
	bool		at_end;
	bool		started;
	KvKey		position;		/* the last key returned */
	KvDeadExtent extent;		/* up to it */
	int			batch_rows;
	/* of the memtables to look at for the next batch, if that is more */
	int			batch_items;

	/* points mode */
	bool		points;
	KvKey	   *keys;			/* and their bytes behind them */
	int			nkeys;
	int			next_key;

	KvBatchRow *rows;			/* room for batch_rows */
	int			rows_capacity;
	int			nrows;
	int			next_row;
	Size		batch_bytes;
	bool		positioned;		/* it was in one mode or the other */
};

/* The batch ends with this key: what comes next in the range lies behind it. */
static inline void
kv_scan_set_position(KvScan *scan, KvKey key)
{
	memcpy(scan->bytes->position, key.data, key.len);
	scan->position = (KvKey) {scan->bytes->position, key.len};
}

/* The keys of a shard of which the snapshot sees a version: memtables and runs as one. */
typedef struct KvKeyReader
{
	const KvView *view;
	uint32		shard_id;		/* whose they are */
	KvKey		edge;			/* where its range ends in the direction; see kv_route_part */
	uint8		edge_bytes[KV_MAX_KEY];
	KvBounds	bounds;
	KvBatchRow *rows;			/* copied from the memtables */
	int			room;			/* for so many */
	int			nrows;
	int			next_row;
	bool		complete;		/* both memtables were read to the end of the range … */
	KvKey		limit;			/* … else up to this key */
	bool		nothing;		/* a dead range has all that is left in the shard */
	uint32		passed;			/* keys in a row of which the snapshot sees no row */
	uint32		patience;		/* reading ends when so many were passed */
	uint64		dead;			/* all such keys that were met, in a row or not */
	uint64		value_bytes;	/* kv_shard_value_bytes() then */
	KvRunMerge	runs;
	uint32		steps;
	uint8		key_bytes[KV_MAX_KEY];	/* of a row that is a run's */
	uint8		start_bytes[KV_DEAD_KEY];	/* where a dead range ends */
	uint8		stop_bytes[KV_DEAD_KEY];	/* where one begins */
} KvKeyReader;

/* ---- rows.c ---- */

/* Have room for the next batch, of so many rows; the last one's are done with. */
extern void kv_batch_make_rows(KvScan *scan, int rows);
/* Have batch_context empty, and another one than the scan's. */
extern void kv_batch_clear(KvScan *scan);
extern void kv_batch_end(KvScan *scan); /* free that again, and make the scan's own of it */
/*
 * How many rows to make a range's first batch of.  A small range is likely to be read
 * to its end, so all of it is read at once; what it has at most is cheap to
 * count.  Of any other nobody knows how much will be taken.
 */
extern int	kv_batch_first_rows(KvScan *scan);
/* The row of a key, of which row gets what the snapshot sees; false: there is none. */
extern bool kv_batch_find_point(KvScan *scan, KvKey key, KvBatchRow *row);
/*
 * Likewise of several keys, up to KV_FOUND_TOGETHER (base/key.h): each shard's lock is taken once
 * for all that it has of them, mostly.
 */
extern void kv_batch_find_points(KvScan *scan, const KvKey *keys, int n, KvBatchRow *rows,
								 bool *found);
/*
 * Read the keys of the shard where reading begins, or after dead ranges that begin there (then
 * keys->bounds say so), and up to the next of those at most: first, under its lock, what is in its
 * memtables, up to so many keys or, with their values, bytes, but at most max_items items, seen
 * or not.  Returns the runs that belong to them.
 */
extern const KvRunSet *kv_keys_begin(KvKeyReader *keys, KvScan *scan, const KvBounds *bounds,
									 int max_keys, int max_items, Size max_bytes);
/* Then without it: have these runs read, too. */
extern void kv_keys_add_runs(KvKeyReader *keys, KvRun *const *runs, int nruns);
/*
 * The next key of which the snapshot sees a version; row->present: a row, not a
 * deletion.  The key of a row that comes from a run is in keys->key_bytes until the
 * next call; a row of a memtable has all that lasts as long as the batch.  False: there
 * is none before keys->limit or, if complete, the end of the range.
 */
extern bool kv_keys_next(KvKeyReader *keys, KvBatchRow *row);
/*
 * The next batch of a range, all from one shard, or nothing if the rest of the shard
 * is empty; scan->started tells whether the shard has more.  Returns the shard; *bytes:
 * its kv_shard_value_bytes().
 */
extern uint32 kv_batch_fill_range(KvScan *scan, uint64 *bytes);
/* It looks in this shard now; see kv_scan_note_shards. */
extern void kv_scan_looks_in(KvScan *scan, uint32 shard_id);
/* A value that is in a write buffer, copied; NULL: it must be read.  Shard's lock. */
extern char *kv_batch_copy_from_buffer(KvScan *scan, const KvShard *shard,
									   const KvVersion *version);

/* ---- stepover.c; no lock is held ---- */

/*
 * Go on over the dead keys in front of the scan, from where its extent of them began in this
 * shard, and note where they are.  bounds: those of the range.
 */
extern void kv_step_over(KvScan *scan, uint32 shard_id, const KvBounds *bounds);

/* ---- fetch.c ---- */

/*
 * Get the values that rows of the batch still lack, and verify all (I 4).  Rows whose values
 * have moved since they were found get their new version (I 16).  False, and only without a
 * snapshot: a row's version is gone.
 */
extern bool kv_batch_fetch(KvScan *scan);
/* Those of points that are in memory; others stay NULL. */
extern void kv_batch_fetch_near(KvScan *scan);

/* ---- ahead.c; no lock is held ---- */

/* Have the blocks of this shard's values, of a mean size, loaded from now on. */
extern void kv_ahead_begin(KvScan *scan, double mean);
extern void kv_ahead_reset(KvScan *scan);	/* another range begins */
/* Ask for the blocks of the batch, and of what comes behind it. */
extern void kv_ahead(KvScan *scan);

/* ---- byaddress.c ---- */

/* The next batch of a scan that takes rows in any order. */
extern void kv_by_address_fill(KvScan *scan);
extern void kv_by_address_end(KvScan *scan); /* drop what was gathered, if anything was */

/* ---- order.c; no lock is held ---- */

extern void kv_order_add(KvOrder *order, KvAddress address);	/* a value is met */
/* Others will be: what was met long ago counts less and less. */
extern void kv_order_go_on(KvOrder *order);
/* Are three of four values next to the one before?  *step: 1 or -1, in which direction. */
extern bool kv_order_is_kept(const KvOrder *order, int *step);
/* The same of a shard, in four parts of its keys: most entries are what is looked at. */
extern bool kv_shard_keeps_order(KvStore *store, uint32 shard_id);
/* Adds its entries, and the bytes of their values. */
extern void kv_shard_values(KvStore *store, uint32 shard_id, double *entries, double *bytes);
extern void kv_entries_between(KvStore *store, uint32 shard_id, KvKey lo, KvKey hi,
							   KvEntries *entries);
/*
 * The address of the value of the last entry before the end of a range, in the direction of
 * the scan.  False: there is none.
 */
extern bool kv_last_address(KvStore *store, uint32 shard_id, KvKey end, bool backward,
							KvAddress *address);
/*
 * About the first key whose value lies in a segment, found as if all values were in
 * order; a copy in the scan's memory.  False: the place is a whole shard, or it has no
 * entry.
 */
extern bool kv_key_at_address(const KvScan *scan, const KvScanStart *place, KvKey *key);

/* About how many entries a shard has, without its lock. */
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
/* It is over: nothing is loaded for it any more. */
extern void kv_steer_end(KvScan *scan);

/*
 * Is the shard larger than the range cache, and do values lie out of the order of keys,
 * in some part of it at least?
 */
extern bool kv_shard_scattered(KvStore *store, uint32 shard_id);
/*
 * A batch of values of shardno begins at an address, and bytes_left are to come in the
 * order of their addresses, which began at begin.
 */
extern void kv_steer_by_address(KvScan *scan, uint32 shard_id, KvAddress address,
								KvAddress begin, double bytes_left);
/*
 * As kv_batch_fill_range, and it is decided whether the values of the batch come through windows,
 * if they are wanted.
 */
extern void kv_steer_fill_range(KvScan *scan);

#endif							/* KV_SCAN_INTERNAL_H */
