/*
 * cache.h
 *		The one door to the caches: copies of parts of value files, in memory or on a fast device.
 *
 * source.c has the table of caches, in the order in which they are asked for a value:
 *
 *		recent ring		values that were written last (recent.c)
 *		value cache		blocks that are read often (block.c)
 *		range cache		windows that scans share (reader.h, window.h)
 *		second tier		frames that have left the recent ring, in a file (tier.c)
 *		page cache		the kernel's, into which pieces of files are read (around.c)
 *
 * No copy is authoritative: a cache that is lost costs only reads.  A value is verified against its
 * entry (I 4), whatever cache it comes from.  Other modules name no cache.
 *
 * Locks: A cache's lock is taken last, and readers take none.
 * Errors: These functions raise nothing, unless a comment says so.
 */
#ifndef KV_CACHE_H
#define KV_CACHE_H

#include "engine/base/types.h"
#include "engine/cache/reader.h"
#include "engine/maintenance.h"
#include "engine/rows.h"

/* ---- start: as in the table of start.c ---- */
extern void kv_source_gucs(void);	/* defines the settings of all caches */
extern Size kv_source_memory(void); /* bytes of shared memory that they need */
extern void kv_source_attach(void); /* in the shmem startup hook: makes or finds it */
extern void kv_source_workers(void);	/* registers the workers of caches */

/* ---- reading ---- */

/* One row of a batch. */
typedef struct KvBatchRow
{
	KvVersion	version;
	int			keylen;
	const uint8 *key;
	const char *value;			/* NULL: not read yet, or the read failed */
	int			result;			/* of a failed read: the number of bytes, or -errno */
	bool		present;
	bool		sole;			/* the runs have no other version of the key, and it is committed */
	bool		verified;
	bool		headed;			/* a varlena header fits before value */
	bool		no_tier;		/* its value was not in the second tier when it was read there */
	bool		direct;	/* bypass the page cache, through which the value could not be read */
	bool		wrong_pages;	/* the page cache had wrong bytes */
	uint8		missed[KV_ASKED];	/* for each cache: a KvMiss */
	int			problem;		/* SQLSTATE if a forgiving scan cannot read the value; else 0 */
} KvBatchRow;

/* Nothing is known about the value yet. */
static inline void
kv_row_reset(KvBatchRow *row)
{
	row->value = NULL;
	row->sole = false;
	row->verified = row->headed = row->no_tier = row->direct = row->wrong_pages = false;
	memset(row->missed, 0, sizeof(row->missed));
	row->problem = 0;
}

/* How a scan reads the values of its batches. */
typedef struct KvSource
{
	KvStore    *store;
	KvScanStats *stats;			/* counts the work */
	/* those of stats when the batch begins; the store's counters have them */
	uint64		device_reads;
	uint64		device_bytes;
	MemoryContext context;		/* for the values of this batch */
	MemoryContext lasting;		/* for a buffer that is used again */
	char	  **buffer;			/* where that is; NULL: not yet made */
	KvWindowReader *reader;
	bool		points;			/* single keys, which are not read through windows */
	bool		kept;			/* the value cache keeps what is read */
	bool		explains;		/* see kv_scan_explain_misses */
} KvSource;

/*
 * Gets values of a batch that are missing.  near: only those in caches that never wait.  Otherwise
 * near ones were gotten before, and all others are read.  A value that cannot be read stays NULL,
 * and its row has the result.  Values from caches are verified.  Serves interrupts unless near.
 */
extern void kv_source_take(KvSource *source, KvBatchRow *rows, int n, bool near);
/* Reads what is still missing, without windows: for rows whose values have moved since. */
extern void kv_source_read(KvSource *source, KvBatchRow *rows, int n);
/*
 * Need a value not be read from its own file at this moment, as far as is known?  memory: caches in
 * memory are asked, too.
 */
extern bool kv_source_has(uint32 cache_id, KvLocation location, uint32 len, bool memory);

/* ---- what writers tell ---- */

/* The known use of bytes that are written, from the bytes that they replace. */
typedef enum KvHeat
{
	KV_COLD,					/* no use is known */
	KV_READ_LATELY,				/* the replaced bytes were read or written recently */
	KV_CACHED					/* they also were in the value cache, so these should be */
} KvHeat;

/* The heat of bytes that replace a value now, as far as caches know. */
extern KvHeat kv_source_heat(uint32 cache_id, KvLocation old, uint32 oldlen);
/* Can a value like this be cached, whatever its heat? */
extern bool kv_source_keeps(KvLocation location, uint32 len);
/* Another value has replaced this one, which was cached. */
extern void kv_source_replaced(uint32 cache_id, KvLocation location, uint32 len);
/* Whole blocks were written at an address; they are the newest ones. */
extern void kv_source_put(uint32 cache_id, KvAddress address, uint32 len, const char *bytes,
						  KvHeat heat);

/*
 * After how many bytes does a transaction's load push out of memory what others have written?  Then
 * its further bytes are not put, unless their heat is known.
 */
extern uint64 kv_source_bulk(void);

/* Why caches should forget some addresses. */
typedef enum KvForget
{
	KV_FORGET_LEFT,				/* no entry names these addresses */
	KV_FORGET_SHARED,			/* no entry of this shard does; entries of others may */
	KV_FORGET_REWRITTEN			/* they were written since they were read in advance */
} KvForget;

/* What caches have of these addresses is of no use any more. */
extern void kv_source_forget(uint32 cache_id, KvAddress address, uint64 len, KvForget why);

/* ---- what a compaction tells ---- */

/*
 * A value was moved; blocks has the blocks of its new place.  Keeps it there as it is kept at the
 * old one, where readers still look for it; nothing is evicted for it.  False: there was no space
 * for a value that is cached, so the caller reads it when entries name the new place.
 */
extern bool kv_source_moved(uint32 cache_id, KvLocation from, KvLocation to, uint32 len,
							const char *blocks);

/* A cache that takes parts of a compaction's output. */
typedef struct KvMover
{
	bool		(*on) (void);	/* NULL: it takes none */
	Size		at_once;		/* bytes of output that are judged and taken; 0: a slice */
	/* Is a value there, or about to be? */
	bool		(*had) (uint32 cache_id, KvLocation from, uint32 len);
	/*
	 * Takes blocks that were written at an address; most: more than half of them were there.
	 * False: it takes no more of the slice.  Serves interrupts.
	 */
	bool		(*take) (KvStore *store, KvAddress address, const char *blocks, Size len,
						 bool most);
} KvMover;

extern const KvMover *kv_source_mover(int n);	/* the nth one; NULL: there are fewer */

/* ---- blocks that are read before sessions ask for them ---- */

/* A unit that is cached. */
typedef struct KvCachedUnit
{
	uint32		cache_id;
	uint64		number;			/* address / KV_BLOCK; of a frame, / KV_FRAME_SIZE */
	bool		recent;			/* a block that was written lately */
	uint32		frame;			/* of a frame: its index in the second tier's file */
	uint32		valid;			/* of a frame: a bit for each block; 0: it is a block */
} KvCachedUnit;

/* Calls back for each unit. */
extern void kv_source_each(void (*each) (void *arg, const KvCachedUnit *unit), void *arg);
extern uint64 kv_source_room(void); /* the blocks that can be read in advance and kept */

/* warming.c; blocks are best added in the order of addresses */
typedef struct KvWarming KvWarming;

/* palloc'd; refers to the key */
extern KvWarming *kv_warming_begin(const KvStoreKey *key, uint32 cache_id);
/*
 * Requests the block at an address; recent: as in KvCachedUnit.  Skips missing files, and caches
 * that are off.  Serves interrupts, and reports progress to kv_progress.
 */
extern void kv_warming_add(KvWarming *warming, KvAddress address, bool recent);
/* reads all requested blocks; returns how many were kept */
extern uint64 kv_warming_end(KvWarming *warming);

/* tier.c: frames in the second tier's file outlast a stop of the server */

/* When the server stops: marks the file.  Returns the mark, which is unique; 0: it failed. */
extern uint64 kv_tier_mark(void);
/*
 * Is the file the one with this mark, with only writes of this start since?  Waits until that is
 * known; serves interrupts.
 */
extern bool kv_tier_was_marked(uint64 stamp);
/* A frame was there at that mark: makes it available, unless its place was used since. */
extern void kv_tier_enter(const KvCachedUnit *frame);
extern PGDLLEXPORT void kv_tier_writer_main(Datum arg);	/* its writer; arg is not used */

/* ---- statistics ---- */

/* Calls back with each cache that has a row in kvfdw_stat_cache; counts: by KvStat. */
extern void kv_source_stats(const uint64 *counts,
							void (*each) (void *arg, const KvCacheStats *stats), void *arg);
extern void kv_source_stats_reset(void);

#endif							/* KV_CACHE_H */
