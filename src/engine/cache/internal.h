/*
 * internal.h
 *		The table of caches (source.c), and what the caches know of each other.  No other module
 *		includes this file.
 *
 * Errors: The recent ring, the value cache and the second tier raise nothing.
 * Locks: Readers take none.  A cache's lock is taken last.
 */
#ifndef KV_CACHE_INTERNAL_H
#define KV_CACHE_INTERNAL_H

#include "storage/fd.h"
#include "storage/latch.h"

#include "engine/base/types.h"
#include "engine/cache/cache.h"
#include "engine/maintenance.h"
#include "engine/rows.h"

/* What a cache does; NULL: nothing.  Each is called as one of the same name in cache.h. */
typedef struct KvCache
{
	const char *name;			/* in kvfdw_stat_cache; NULL: it has no row there */
	int			counter;		/* the KvStat that counts its hits, or KV_OWN_COUNTER */
	KvAsked		asked;			/* its index in counters of misses; KV_ASKED: it has none */
	uint32		never;			/* a bit for each KvMiss that it never has */

	void		(*gucs) (void); /* defines its settings */
	Size		(*memory) (void);	/* size of its part of shared memory */
	void		(*attach) (void);	/* in the shmem startup hook: makes or finds it */
	void		(*workers) (void);	/* registers its workers */

	void		(*forget) (uint32 cache_id, KvAddress address, uint64 len, KvForget why);
	KvMover		mover;

	uint64		(*room) (void); /* the capacity in blocks */
	void		(*each) (void (*each) (void *arg, const KvCachedUnit *unit), void *arg);
	/* keeps a block that was read before a session asks for it */
	void		(*warm) (uint32 cache_id, KvAddress address, const char *block);

	/* The counters, except hits if it has a KvStat, and the present use; all 0 if it is off. */
	void		(*stats) (KvCacheStats *stats);
	void		(*stats_reset) (void);
} KvCache;

#define KV_OWN_COUNTER	(-1)

extern const KvCache kv_recent_ring;
extern const KvCache kv_value_cache;
extern const KvCache kv_second_tier;
extern const KvCache kv_page_pieces;

/* The caches whose misses are counted; their file says why a value is not there. */
extern KvMiss kv_recent_why(uint32 cache_id, KvAddress address, uint32 len);
extern KvMiss kv_block_why(uint32 cache_id, KvLocation location, uint32 len);
extern KvMiss kv_tier_why(uint32 cache_id, KvAddress address, uint32 len);

/* ---- device.c ---- */

/* Reads what is missing: from the second tier, through the page cache, or from the device. */
extern void kv_device_read(KvSource *source, KvBatchRow *rows, int n);

/* ---- block.c: the value cache ---- */

/* The most blocks of a cached value, which has up to 64 kB and begins anywhere in a block. */
#define KV_CACHED_BLOCKS	17

/*
 * Begins to load bytes into the CPU cache: at most a few lines of 64 bytes, since the CPU
 * prefetches following lines automatically.
 */
static inline void
kv_load_bytes(const char *bytes, uint32 len)
{
	for (uint32 at = 0; at < Min(len, 512); at += 64)
		__builtin_prefetch(bytes + at);
}

/* Copies a value if all its blocks are cached; the caller verifies it (I 4). */
extern bool kv_block_read(uint32 cache_id, KvLocation location, uint32 len, char *into);
/* Begins to load a value into the CPU cache, if it is cached here. */
extern void kv_block_load(uint32 cache_id, KvLocation location, uint32 len);
/*
 * Keeps the blocks that a value was read from or written with, unless they are too many.  blocks
 * has all of them, from the start of the first one.  replaces: they replace cached blocks, and are
 * not on probation.
 */
extern void kv_block_keep(uint32 cache_id, KvLocation location, uint32 len,
						  const char *blocks, bool replaces);
/*
 * Keeps the blocks of a value that is also cached at another address, where readers still look for
 * it.  Nothing is evicted for it.  False: there was no space for some blocks.
 */
extern bool kv_block_keep_too(uint32 cache_id, KvLocation location, uint32 len,
							  const char *blocks);
/* Another value has replaced this one: blocks that have little else may be evicted next. */
extern void kv_block_replaced(uint32 cache_id, KvLocation location, uint32 len);
/* Are all blocks of a value cached at this moment? */
extern bool kv_block_has(uint32 cache_id, KvLocation location, uint32 len);
/* Can a value like this be cached? */
extern bool kv_block_takes(KvLocation location, uint32 len);
/* The value that was read is not the one of the files. */
extern void kv_block_lose(uint32 cache_id, KvLocation location, uint32 len);

/* ---- recent.c: the recent ring ---- */

extern bool kv_recent_on(void); /* is there a ring? */
/* Whole blocks were written at an address; they are the newest ones. */
extern void kv_recent_put(uint32 cache_id, KvAddress address, uint32 len, const char *bytes,
						  KvHeat heat);
/* Copies bytes if all are in the ring; the caller verifies them (I 4). */
extern bool kv_recent_read(uint32 cache_id, KvAddress address, uint32 len, char *into);
/* Begins to load them into the CPU cache; false: they are not in the ring. */
extern bool kv_recent_load(uint32 cache_id, KvAddress address, uint32 len);
/* A frame that will leave the ring soon. */
typedef struct KvLeaving
{
	uint32		frame;
	uint32		cache_id;
	uint64		number;
	uint64		sequence;
	uint32		valid;
} KvLeaving;

#define KV_LEAVING_FRAMES	16

/*
 * Gets the frames that leave next, oldest first, at most so many, with their bytes.  Returns how
 * many.
 */
extern int	kv_recent_oldest(KvLeaving *leaving, int most, char *bytes);
/* One of these frames has been stored elsewhere. */
extern void kv_recent_leave(const KvLeaving *leaving);
/*
 * Sets the latch of the process that takes leaving frames; it is set when some are about to leave.
 * NULL: no process takes them any more.  There is a ring.
 */
extern void kv_recent_attend(Latch *latch);
/* frames that left before they were taken, since the last reset */
extern uint64 kv_recent_dropped(void);
/* The heat of bytes in the ring, if they were replaced now; KV_COLD if some are not in the ring. */
extern KvHeat kv_recent_heat(uint32 cache_id, KvAddress address, uint32 len);
/* May the ring have bytes that begin there, so that a lookup with memory for them pays? */
extern bool kv_recent_may_have(uint32 cache_id, KvAddress address);
extern void kv_recent_wrong(void);	/* a value that was read failed verification */

/* ---- tier.c: the second tier ---- */

/* The place of a value in the tier's file, valid while the frames do not change. */
typedef struct KvTierPart
{
	uint32		frame;
	uint64		sequence;
} KvTierPart;

typedef struct KvTierPlace
{
	uint64		offset;			/* of its first byte */
	int			nparts;
	KvTierPart	parts[2];
} KvTierPlace;

/* Is the value in the tier? */
extern bool kv_tier_find(uint32 cache_id, KvAddress address, uint32 len, KvTierPlace *place);
/* After the read: was the value there all the time? */
extern bool kv_tier_still(const KvTierPlace *place);
/* The bytes that were read there are not the value: drops its frames. */
extern void kv_tier_drop(const KvTierPlace *place);
extern File kv_tier_file(void); /* this process's descriptor; -1: the file cannot be read */
extern void kv_tier_failed(int err);	/* an I/O error: switches the tier off */
extern void kv_tier_count_hits(uint64 n);	/* so many values were read there */

/* ---- around.c: pieces of files in the page cache ---- */

/*
 * Before a read through the page cache of a value that is in no cache of the server: the size of
 * the surrounding piece to be read with it.  0: none, because it was read recently, or no memory is
 * unused, or the table with so many bytes in value files is too large.
 */
extern uint32 kv_around_begin(uint32 cache_id, KvAddress address, uint64 table_bytes);

#endif							/* KV_CACHE_INTERNAL_H */
