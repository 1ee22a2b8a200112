/*
 * batch.h
 *		What the files of a scan share: batch.c, placescan.c, fetch.c, count.c,
 *		rangescan.c and rangesteer.c; nobody else includes this.
 */
#ifndef KV_BATCH_H
#define KV_BATCH_H

#include "engine/internal.h"

#define KV_NO_SHARD			PG_UINT32_MAX
#define KV_BATCH_ROWS		512
#define KV_BATCH_BYTES		((Size) 4 * 1024 * 1024)

/* One row of a batch. */
typedef struct KvBatchRow
{
	KvVersion	version;
	int			keylen;
	const uint8 *key;
	const char *value;			/* NULL: not read yet */
	bool		present;
	bool		verified;
	bool		headed;			/* there is room for a varlena header before value */
} KvBatchRow;

/* How a scan stands with the range cache (rangescan.c). */
struct KvRangeScan;
typedef struct KvRangePass
{
	struct KvRangeScan *entry;	/* in the registry, or NULL */
	uint64		id;
	MemoryContext context;		/* of all this; NULL: not made yet */
	MemoryContextCallback callback;
	uint64		rows;			/* that the range has given */
	bool		ramped;			/* it has given enough to go over to windows */
	uint32		shard;
	bool		decided;		/* whether all of this shard comes through windows … */
	bool		windows;		/* what is now read does */
	bool		in_order;		/* … segment after segment, the file being in order */
	int			segment_step;	/* … upwards or downwards */
	int			depth;			/* … so many segments ahead */
	uint32		segment;		/* where it is, or KV_WHOLE */
	uint32		last_segment;	/* where it ends, or KV_WHOLE */
	uint64		segment_rows;	/* rows that the range had given when it was last there */
	uint64		from;			/* the part of the value file that was asked for */
	uint64		to;
	uint32		nseen;
	char	   *buffer;			/* of a batch's values, if they fit; NULL: not made yet */
	int			few[8];			/* seen, until there is more to remember */
	int		   *seen;			/* of pieces, by their number modulo nseen: a window, or -1 */
	TimestampTz entered;		/* the span */
	int64		waited;			/* µs since then */
	int64		spent;			/* µs that it has waited for others more than it has worked */
} KvRangePass;

/* Where a scan is or begins. */
typedef struct KvRangePlace
{
	uint32		shard;
	uint32		segment;		/* or KV_WHOLE */
	int			segment_step;
	uint64		offset;			/* of the segment in the file */
} KvRangePlace;

struct KvScan
{
	KvStore    *store;
	Snapshot	snapshot;
	bool		want_values;
	MemoryContext context;		/* the scan's life */
	MemoryContext batch_context;	/* one batch's keys and values */
	KvScanStats stats;
	KvConflicts conflicts;		/* xids NULL: not SERIALIZABLE */

	/* range mode */
	KvKey		lo;				/* copies; data NULL: unbounded */
	KvKey		hi;
	KvKey		rest;			/* what lies before it comes last; data NULL: nothing does */
	KvScanOrder order;
	bool		backward;		/* order == KV_DESCENDING */
	uint64		limit_hint;
	uint32		shardno;		/* where the next batch begins */
	uint32		end_shard;		/* of the range */
	uint32		last_shard;		/* of the extent */
	bool		shared;			/* other processes scan the rest of the extent */
	KvKey		extent_lo;		/* the range, or what it is a part of */
	KvKey		extent_hi;
	KvRangePass pass;
	KvRangePlace company;		/* where it began; shard KV_NO_SHARD: nobody was there */
	uint32		keyed_shard;	/* one that is read in key order, or KV_NO_SHARD */
	struct KvPlaces *places;	/* a shard that is read by place, or NULL */
	bool		at_end;
	bool		started;
	KvKey		position;		/* the last key returned */
	uint8		position_bytes[KV_MAX_KEY];
	int			batch_rows;

	/* points mode */
	bool		points;
	KvKey	   *keys;
	int			nkeys;
	int			next_key;

	KvBatchRow *rows;			/* room for batch_rows */
	int			rows_room;
	int			nrows;
	int			next_row;
	Size		batch_bytes;
};

/* The shard behind shardno, in the order of the scan; false: that is the last. */
static inline bool
kv_batch_next_shard(const KvScan *scan, uint32 last, uint32 *shardno)
{
	if (*shardno == last)
		return false;
	if (scan->backward)
		(*shardno)--;
	else
		*shardno = (*shardno + 1) % scan->store->nshards;
	return true;
}

extern KvKey kv_batch_copy_key(MemoryContext context, const uint8 *data, int len);
extern char *kv_batch_copy_from_slot(KvScan *scan, const KvShard *shard,
									 const KvVersion *version);
extern void kv_batch_make_rows(KvScan *scan, int rows);
extern uint64 kv_batch_fill_range(KvScan *scan);	/* returns kv_range_written() */
extern void kv_batch_fetch(KvScan *scan);

/* placescan.c */
typedef struct KvPlaces KvPlaces;
extern void kv_places_fill(KvScan *scan);
extern void kv_places_end(KvScan *scan);

/* rangescan.c */
extern bool kv_range_company(const KvStore *store, KvRangePlace *place);
extern bool kv_range_is_there(const KvStore *store, uint32 shard);
extern void kv_range_make_context(KvScan *scan);
extern void kv_range_fetch(KvScan *scan);
extern void kv_range_leave(KvRangePass *pass);

/* rangesteer.c */
extern bool kv_range_key_at(const KvScan *scan, const KvRangePlace *place, KvKey *key);
extern uint64 kv_range_written(const KvShard *shard);
extern bool kv_range_scattered(KvStore *store, uint32 shardno);
extern void kv_range_steer_by_place(KvScan *scan, uint32 shardno, uint64 written,
									uint64 offset, uint64 begin, double bytes_left);
extern void kv_range_steer(KvScan *scan, uint32 shardno, const KvRunSet *set, uint64 written);

#endif							/* KV_BATCH_H */
