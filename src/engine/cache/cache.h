/*
 * cache.h
 *		Copies of parts of value files: the recent ring, the value cache of blocks, the range cache,
 *		and the second tier.
 *
 * No copy is authoritative: a cache that is lost costs only reads.
 *
 * Range cache: It consists of windows: pieces of value files in shared memory, which prefetch
 * workers fill for scans.  It caches bytes by address and knows nothing of keys, rows or snapshots.
 * A scan decides which versions it sees and where their values are; a window only saves the read.
 * Every value is verified against its entry's CRC (I 4) after it was copied.  So a window with
 * wrong bytes, for whatever reason, costs a read and never shows.  Bytes that are in no window are
 * read from the device.
 *
 * Pieces and segments are counted in addresses, so they continue from one file to the next in a
 * volume.  A span is loaded for one reason and evicted when the reason ends.  It is either all
 * values of a shard, for scans in key order of values that are stored in another order (scattered).
 * Or it is a segment of them, for scans for which they are in order.  Extents say where values of a
 * span are, since there is nothing between volumes and where a file was removed.  Pieces of a span
 * are loaded and evicted one by one.
 *
 *		FREE ──claim──▸ LOADING ──publish──▸ VALID ──claim for another──▸ LOADING
 *		  ▴                │                   │
 *		  ├────give up─────┘                   │
 *		  └────lose────────────────────────────┘
 *
 *		FREE	in the list of free windows; its key names no piece
 *		LOADING	in the table of pieces, so that no other worker loads it. Its sequence is odd. The
 *				worker that claimed it gives it up when the worker ends, for whatever reason
 *		VALID	in the table of pieces and in its span's list; its sequence is even
 *
 * A window may have single blocks instead of a piece (blockwindow.c).  Then it belongs to no span,
 * and a table says where each block is.
 *
 * Locks: All changes of state are made under KvWindowCache.lock, exclusive.  It is taken last; only
 * a condition variable's spinlock is taken under it.  No lock of a cache is held during a read.  A
 * reader looks a piece up under the lock, shared, once for each piece.  Then it needs no lock and
 * no pin: it notes the window's sequence, copies, and compares the sequence.  So a reader that is
 * cancelled, killed or stopped blocks nothing.
 * Errors: The recent ring (recent.c) and the value cache (block.c) raise nothing.
 */
#ifndef KV_CACHE_H
#define KV_CACHE_H

#include "datatype/timestamp.h"
#include "port/atomics.h"
#include "storage/condition_variable.h"
#include "storage/fd.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "utils/hsearch.h"
#include "utils/palloc.h"

#include "engine/base/types.h"
#include "engine/engine.h"

#define KV_MAX_PREFETCH_WORKERS	16
#define KV_WINDOW_SIZE	(256 * 1024)
#define KV_WINDOW_BLOCKS (KV_WINDOW_SIZE / KV_BLOCK)
#define KV_SEGMENT_PIECES 16
#define KV_SEGMENT_SIZE	((uint64) KV_SEGMENT_PIECES * KV_WINDOW_SIZE)
#define KV_WHOLE		PG_UINT64_MAX	/* a segment number that stands for the whole shard */
#define KV_WANTS		16		/* spans that a scan has loaded, its own included */
#define KV_NEVER		PG_UINT32_MAX	/* distance of a span that a scan does not reach */
/* greater than distances of segments, and at most those of other shards */
#define KV_FAR			(PG_UINT32_MAX / 2)

/* The addresses from begin to end, as far as files are written. */
typedef struct KvExtent
{
	KvAddress	begin;
	KvAddress	end;
} KvExtent;

#define KV_MAX_EXTENTS	32

/* In ascending order; no piece has a part of two extents. */
typedef struct KvExtents
{
	uint32		found_at;		/* KvShard.generation at the lookup of the extents */
	int			n;
	KvExtent	at[KV_MAX_EXTENTS];
} KvExtents;

typedef struct KvSpanKey
{
	uint32		cache_id;		/* KvStore.cache_id */
	uint32		shard;
	uint64		segment;		/* address / KV_SEGMENT_SIZE, or KV_WHOLE */
} KvSpanKey;

typedef struct KvPieceKey
{
	uint64		cache_id;
	uint64		piece;			/* address / KV_WINDOW_SIZE */
} KvPieceKey;

typedef struct KvPiece
{
	KvPieceKey	key;			/* hash key */
	int			window;
} KvPiece;

typedef struct KvBlockKey
{
	uint64		cache_id;
	uint64		block;			/* address / KV_BLOCK */
} KvBlockKey;

/* A block that is in a block window, or will be. */
typedef struct KvWindowBlock
{
	KvBlockKey	key;			/* hash key */
	int			window;
	int			slot;			/* index of the block in the window */
} KvWindowBlock;

/* States of a block window (blockwindow.c).  QUEUED and READ are LOADING. */
typedef enum KvBlockWindowState
{
	KV_BLOCK_WINDOW_NONE,		/* the window has a piece, or nothing */
	KV_BLOCK_WINDOW_QUEUED,		/* no worker has it yet */
	KV_BLOCK_WINDOW_READ,		/* a worker reads into it */
	KV_BLOCK_WINDOW_LOADED		/* it is VALID */
} KvBlockWindowState;

typedef struct KvSpan
{
	KvSpanKey	key;			/* hash key */
	KvExtents	extents;		/* the extents that scans have asked for */
	uint64		size;			/* bytes of these extents */
	uint32		next_piece;		/* all pieces before it are in the table of pieces */
	uint32		nvalid;
	uint32		nloading;
	int			windows;		/* list head: the last published window, or -1 */
	TimestampTz used;			/* when a scan last entered or left it */
	TimestampTz failed;			/* time of the last failed read; 0: none */
} KvSpan;

typedef struct KvWindow
{
	pg_atomic_uint64 sequence;	/* odd: its contents are changing */
	KvPieceKey	key;			/* block windows: of no piece, but with the cache_id */
	KvSpanKey	span;
	uint32		len;			/* number of valid bytes, from its beginning */
	/* a bit for each block that could not be read; not for block windows */
	uint64		bad;
	int			next;			/* in the free list, its span's or that of block windows; -1 */
	int			previous;		/* in its span's list, or that of block windows; or -1 */
	uint64		wanted_by;		/* KvWindowScan.id of the scan it was loaded for */

	/* for block windows: */
	KvBlockWindowState block_state;
	KvStoreKey	store;
	uint64		stamp;			/* rises with the time of the request */
	int			nblocks;		/* number of blocks in kv_window_blocks */
	int			queued_next;	/* next window in the queue, or -1 */
} KvWindow;

/* A span in which a scan is, or which it will reach. */
typedef struct KvWant
{
	uint32		shard;
	uint64		segment;
	KvExtents	extents;		/* of the span, as far as files are written */
} KvWant;

/* The course of a scan from its present position. */
typedef struct KvCourse
{
	KvStoreKey	store;
	KvStore    *map;			/* the store whose map gives the order of shards */
	int			step;			/* 1 or -1: direction through shards */
	uint32		last;			/* the last shard of the scan */
	bool		wraps;			/* the last shard is followed by the first */
	int			segment_step;	/* 1 or -1: direction through segments in key order */
	uint64		last_segment;	/* approximate end in the last shard; KV_WHOLE: the shard's end */
} KvCourse;

/*
 * A scan that reads through windows: its position and its course.  While the scan is in the
 * registry it pins its store.  Its backend writes this under KvWindowCache.lock, except for
 * progress, patience and waiting; the workers read it.
 */
typedef struct KvWindowScan
{
	uint64		id;				/* unique; 0: not in use */
	int			pid;
	uint32	   *wait_event;		/* of its process */
	uint32		cache_id;
	KvCourse	course;
	uint32		shard;			/* its position */
	uint64		segment;		/* its position in the shard, or KV_WHOLE */
	int			nwants;
	KvWant		wants[KV_WANTS];	/* in the order in which it reaches them; [0] is its position */

	TimestampTz progress;		/* when it took its last batch */
	volatile bool waiting;		/* it waits for wait_piece */
	volatile bool held;			/* loads for scans that follow come before its own */
	bool		wants_blocks;	/* it is in no span and wants single blocks (blockwindow.c) */
	volatile uint64 position;	/* it needs block windows from this stamp on; 0: none */
	volatile bool lacks_room;	/* it waits for windows that others need */
	volatile bool shares;		/* it finds blocks there that others asked for */
	uint64		wait_piece;
	int64		patience;		/* remaining time in us that it will wait for others */
	ConditionVariable loaded;
} KvWindowScan;

typedef enum KvWindowCounter
{
	KV_RANGE_HITS,				/* windows found that were loaded for another scan before */
	KV_RANGE_LOADS,				/* windows loaded for the scan that took them */
	KV_RANGE_SHARED,			/* windows that were being loaded for another scan */
	KV_RANGE_WAITS,				/* sleeps until a window was loaded */
	KV_RANGE_READS,				/* windows read from the device */
	KV_RANGE_READ_BYTES,
	KV_RANGE_EVICTIONS,
	KV_RANGE_COUNTERS
} KvWindowCounter;

typedef struct KvWindowCache
{
	LWLock		lock;
	int			nwindows;
	int			nfree;
	int			free_windows;	/* list head or -1 */
	int			nscans;			/* size of the registry */
	int			scans_used;		/* no entry at or after this index is in use */
	uint64		last_id;
	int			nworkers;		/* number of running workers */
	Latch	   *volatile workers[KV_MAX_PREFETCH_WORKERS];
	uint64		bytes_per_second;	/* recent rate at which the workers load */

	/* for block windows: */
	int			nblock_scans;	/* scans that use block windows, at a worker's last check */
	int			nblock_windows;
	int			block_windows_first; /* the oldest, or -1 */
	int			block_windows_last;
	int			nqueued;		/* number of those that wait for a worker */
	int			queued_first;	/* the first of these */
	int			queued_last;
	uint64		last_stamp;
	uint64		block_loads;	/* number of times that a worker has loaded some */
	pg_atomic_uint64 counters[KV_RANGE_COUNTERS];
} KvWindowCache;

extern KvWindowCache *kv_window_cache;
extern KvWindow *kv_windows;
extern KvWindowScan *kv_window_scans;
extern HTAB *kv_span_hash;
extern HTAB *kv_piece_hash;
extern HTAB *kv_block_hash;
extern uint64 *kv_window_blocks;	/* KV_WINDOW_BLOCKS for each window, for block windows */

/* The bytes of a span if all its windows are loaded. */
static inline uint64
kv_extents_size(const KvExtents *extents)
{
	uint64		size = 0;

	for (int i = 0; i < extents->n; i++)
		size += extents->at[i].end - extents->at[i].begin;
	return size;
}

#define KV_READER_MET	128		/* capacity of KvWindowReader.met */

/*
 * A scan's way to take values out of windows, of one shard at a time.  If all is zero except parent
 * and stats, the scan has not begun.
 */
typedef struct KvWindowReader
{
	MemoryContext parent;
	KvScanStats *stats;			/* counts its work */
	MemoryContext context;		/* of all this, below parent; NULL: not yet made */
	MemoryContextCallback callback;
	KvWindowScan *entry;			/* in the registry, or NULL */
	uint64		id;				/* if the entry has another id, it belongs to another scan */
	bool		windows;		/* workers load the present values */
	bool		wants_blocks;	/* workers load single blocks, because values are scattered */

	uint32		cache_id;
	uint32		shard;			/* the present shard */
	KvExtents	whole;			/* extents of the whole shard, if they were passed; else none */
	uint32		nseen;
	int			few[8];			/* seen, while few pieces are remembered */
	int		   *seen;			/* the window of each piece, or -1; see seen_at in reader.c */

	TimestampTz entered;		/* when it entered the span */
	int64		waited;			/* time in us that it has waited since then */
	int64		spent;			/* time in us that it has waited for others, minus its work */

	/* for block windows: */
	TimestampTz held;			/* end of its last wait for windows; 0: never */
	uint64		counted;		/* greatest counted stamp of a window that others asked for */
	int			nmet;
	int			nothers;		/* number of these that others asked for */
	uint64	   *met;			/* stamps of the windows of this batch; [KV_READER_MET] */
	/* KvWindowCache.block_loads + 1 when it left because nothing was loaded, or 0 */
	uint64		stuck_at;
} KvWindowReader;

/* The position where a scan is, or begins. */
typedef struct KvScanStart
{
	uint32		shard;
	uint64		segment;		/* or KV_WHOLE */
	int			segment_step;
	KvAddress	address;		/* of the segment */
} KvScanStart;

/* ---- window.c: its part of shared memory, for the shmem hooks ---- */
extern int	kv_window_cache_kb;
extern int	kv_window_number(void); /* number of windows that there are, or will be */
extern Size kv_window_memory(void);	/* bytes that the range cache needs */
extern void kv_window_attach(void);	/* kv_window_cache stays NULL if there is no range cache */
extern void kv_window_stats_reset(void); /* sets the counters to 0 */

/* ---- window.c: spans; KvWindowCache.lock is held, exclusive unless it says shared ---- */
extern KvSpan *kv_span_find(const KvSpanKey *key);	/* Shared; NULL: unknown */
/* Finds a span, or makes it; NULL: there is no capacity. */
extern KvSpan *kv_span_make(const KvSpanKey *key);
/* Shared: has a read of it failed so recently that another try is not worth while? */
extern bool kv_span_failed(const KvSpan *span, TimestampTz now);
/* Forgets a span without windows; false: it has some. */
extern bool kv_span_retire(KvSpan *span);
/*
 * Does the span have a piece that is in no window and not being loaded?  Of the extents that scans
 * have wanted, the last ones looked up count.  If values have moved, windows of their old addresses
 * are freed; if files have grown, their last pieces are loaded again.
 */
extern bool kv_span_lacks(KvSpan *span, const KvExtents *wanted);

/* ---- window.c: states of windows; KvWindowCache.lock is held, exclusive ---- */

/*
 * From FREE to LOADING, for the span's next piece that is in no window; the span lacks one.  If
 * none is free, takes a VALID window of victim, if not NULL.  False: there is none.
 */
extern bool kv_window_claim(KvSpan *span, KvSpan *victim, uint64 wanted_by, int *window);
/* from LOADING to VALID; it has len bytes */
extern void kv_window_publish(int window, uint32 len);
extern void kv_window_give_up(int window);	/* from LOADING to FREE: it could not be filled */
/*
 * Takes a FREE window, or the victim's last one, to LOADING; it is in no list then and has no
 * piece.  -1: there is none.
 */
extern int	kv_window_take(KvSpan *victim);
extern void kv_window_free(int window);	/* from LOADING, in no list and without a piece, to FREE */

/* ---- window.c: no lock is held on entry ---- */

/*
 * Notes that a piece of the span is in no window.  False: it will not be loaded, because values
 * have moved since found_at, the scan's KvExtents.found_at.
 */
extern bool kv_span_miss(const KvSpanKey *key, uint64 piece, uint32 found_at);
/* The window that has or will have a piece; -1: none. */
extern int	kv_window_find(const KvPieceKey *key);
/* The window of a piece does not have the present contents of the file. */
extern void kv_piece_lose(const KvPieceKey *key);
/*
 * The window's memory.  The process that has claimed the window writes it; others read it as in
 * reader.c.
 */
extern char *kv_window_bytes(int window);
/* In a process that reads into windows: maps them where huge pages are possible. */
extern void kv_windows_map(void);

#define kv_window_count(what, n) \
	pg_atomic_fetch_add_u64(&kv_window_cache->counters[what], (n))

/* ---- hugepage.c; raises only errors for lack of memory ---- */

/*
 * Maps shared memory, which begins at a page, a second time in this process, so that kv_huge_make()
 * works there; called once in a process.  Returns the memory itself if that is not possible or, by
 * huge_pages = off, not wanted.
 */
extern char *kv_huge_map(char *memory, Size size);
/* Makes huge pages of the pages with these bytes, as far as they were mapped for that. */
extern void kv_huge_make(const char *bytes, Size len);

/* ---- scans.c; no lock is held on entry unless a comment names KvWindowCache.lock ---- */
extern int	kv_window_wait_ms;
#define KV_STUCK_SHARE		20	/* part of that, for which a stuck scan counts */

/*
 * The number of spans that the scan has to read before this one; KV_NEVER: it does not reach it.
 * Lock held, shared.
 */
extern uint32 kv_window_distance(const KvWindowScan *scan, const KvSpanKey *span);
/* Does the scan make progress, or wait for a load?  Lock held, shared. */
extern bool kv_window_scan_is_live(const KvWindowScan *scan, TimestampTz now);
/* Makes the workers check the scans' wants again, and starts them.  No lock. */
extern void kv_window_wake_workers(void);
/* Does a worker run, or is one being started?  With or without the lock. */
extern bool kv_windows_are_loaded(void);

/*
 * The best start of a scan in any order: the position of another upward scan of the store, or
 * before that, where the contents of windows begin.  False: there is no such scan.
 */
extern bool kv_window_company(uint32 cache_id, KvScanStart *place);
/* Are most values of a shard in windows, or being loaded? */
extern bool kv_window_is_there(uint32 cache_id, uint32 shard);

/* Makes a context below parent whose deletion releases all that the reader has, and its entry. */
extern void kv_reader_make_context(KvWindowReader *reader);
/*
 * Enters wants[0], to read through windows from now on.  If the registry is full, or there is no
 * space for a segment, the reader leaves instead.
 */
extern void kv_reader_enter(KvWindowReader *reader, const KvCourse *course,
							const KvWant *wants, int nwants);
/*
 * Enters a segment that was wanted before, so that the workers may reuse the windows of those
 * before it.  False: it was not wanted.
 */
extern bool kv_reader_come_to(KvWindowReader *reader, uint64 segment);
/* Leaves: the reader is in no span, and nothing is loaded for it any more. */
extern void kv_reader_leave(KvWindowReader *reader);
/*
 * Leaves its span, and has single blocks of a store loaded (blockwindow.c), if the registry has
 * capacity.
 */
extern void kv_reader_want_blocks(KvWindowReader *reader, KvStore *store);

/* ---- reader.c ---- */

/* Begins with values of a shard of which nothing is known and few will be met. */
extern void kv_reader_begin(KvWindowReader *reader, uint32 cache_id, uint32 shard);
/* Many values will be met, segment by segment or, with whole, in all these extents. */
extern void kv_reader_remember(KvWindowReader *reader, const KvExtents *extents, bool whole);
/* The scan takes another batch, so others may wait for it. */
extern void kv_reader_progress(KvWindowReader *reader);
/* May windows have any values? */
extern bool kv_reader_has_windows(const KvWindowReader *reader);
/*
 * Copies bytes at an address out of windows; waits if workers load these.  False: the caller must
 * read them.  The caller verifies the bytes (I 4).
 */
extern bool kv_reader_take(KvWindowReader *reader, KvAddress address, uint32 len, char *into);
/* The bytes that were taken are not those of the file. */
extern void kv_reader_lose(KvWindowReader *reader, KvAddress address, uint32 len);

/*
 * ---- blockwindow.c ----
 *
 * Block windows have single blocks, for scans in key order of values that are stored in another
 * order and do not fit into the cache.  A scan looks ahead in the index and asks for the blocks
 * that it will need.  Workers read many missing blocks at a time, and scans that come to the same
 * keys a little later find them.  No lock is held on entry.
 */
/* the largest value that is read through block windows */
#define KV_BLOCK_WINDOW_VALUE	((uint32) KV_WINDOW_SIZE / 4)

extern bool kv_block_window_is_possible(void); /* large enough cache, and a worker? */
/* number of blocks that a scan should ask for in advance */
extern int	kv_block_window_reach(void);
/* For a scan that has left because nothing was loaded: is something loaded now? */
extern bool kv_block_window_stirs(const KvWindowReader *reader);
/*
 * Asks for these blocks, in ascending order without duplicates.  now: the next batch needs them, so
 * the scan waits for windows that scans close after it still need, while patience is left.  Raises
 * the errors of interrupts.
 */
extern void kv_block_window_want(KvWindowReader *reader, const KvStoreKey *store,
								 const uint64 *blocks, int n, bool now);
/*
 * Copies a value of at most KV_BLOCK_WINDOW_VALUE bytes out of block windows; waits if these are
 * being loaded.  False: the caller must read the value.
 */
extern bool kv_block_window_take(KvWindowReader *reader, KvAddress address, uint32 len, char *into);
/* The bytes that were taken are not those of the file. */
extern void kv_block_window_lose(KvWindowReader *reader, KvAddress address, uint32 len);
extern void kv_block_window_progress(KvWindowReader *reader); /* the batch is complete */
/*
 * For the workers, with KvWindowCache.lock held exclusively.  The next window whose blocks are to
 * be read; cache_id: of this store, 0: of any.  -1: there is none.
 */
extern int	kv_block_window_next(uint64 cache_id);
extern void kv_block_window_publish(int window); /* its blocks are read: makes it VALID */
/* before that: n blocks from slot on could not be read */
extern void kv_block_window_fail(int window, int slot, int n);
extern void kv_block_window_give_up(int window); /* makes it FREE; its blocks are in no window */
/*
 * Frees a block window that no scan needs any more; forced: or, if there are many, the oldest one.
 * False: there is none.
 */
extern bool kv_block_window_evict(bool forced, TimestampTz now);

/* ---- prefetch.c ---- */
extern int	kv_prefetch_workers;	/* maximum number */
extern void kv_prefetch_gucs(void);	/* defines the settings of range cache and workers */
extern PGDLLEXPORT void kv_prefetch_main(Datum arg);	/* a worker; arg is not used */

/* The known use of bytes that are written, from the bytes that they replace. */
typedef enum KvHeat
{
	KV_COLD,					/* no use is known */
	KV_READ_LATELY,				/* the replaced bytes were read or written recently */
	KV_CACHED					/* they also were in the value cache, so these should be */
} KvHeat;

/* ---- block.c; takes no lock, raises nothing ---- */
extern void kv_block_gucs(void);	/* defines its setting */
extern Size kv_block_memory(void);	/* size of its part of shared memory */
extern void kv_block_attach(void); /* in the shmem startup hook: makes or finds it */

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
/* Keeps a block that was read before a session asks for it. */
extern void kv_block_warm(uint32 cache_id, KvAddress address, const char *block);
/* The capacity in blocks; calls back for each cached block, with number address / KV_BLOCK. */
extern uint64 kv_block_room(void);
extern void kv_block_each(void (*each) (void *arg, uint32 cache_id, uint64 number), void *arg);
/* The value that was read is not the one of the files. */
extern void kv_block_lose(uint32 cache_id, KvLocation location, uint32 len);
/*
 * No reader of this shard will ask for these addresses: removes their blocks.  shared: other shards
 * may, so the blocks are only the next to be evicted.
 */
extern void kv_block_forget(uint32 cache_id, KvAddress address, uint64 len, bool shared);
/* The counters of blocks, and the present use; all 0 without a value cache. */
extern void kv_block_stats(KvCacheStats *stats);
extern void kv_block_stats_reset(void);

/* ---- around.c; takes no lock, raises nothing ---- */
extern void kv_around_gucs(void);	/* defines its setting */
extern Size kv_around_memory(void); /* size of its part of shared memory */
extern void kv_around_attach(void); /* in the shmem startup hook: makes or finds it */
/*
 * Before a read through the page cache of a value that is in no cache of the server: the size of
 * the surrounding piece to be read with it.  0: none, because it was read recently, or no memory is
 * unused, or the table with so many bytes in value files is too large.
 */
extern uint32 kv_around_begin(uint32 cache_id, KvAddress address, uint64 table_bytes);
/* Was the piece with this address read recently? */
extern bool kv_around_has(uint32 cache_id, KvAddress address);
/*
 * Notes that so many bytes, just moved, are about to be read there.  False: they should not be,
 * because no memory is unused.
 */
extern bool kv_around_moved(uint32 cache_id, KvAddress address, Size len, uint64 table_bytes);

/* ---- recent.c; raises nothing. Its lock is taken last, and readers take none ---- */
extern void kv_recent_gucs(void);	/* defines its setting */
extern Size kv_recent_memory(void); /* size of its part of shared memory */
extern void kv_recent_attach(void); /* in the shmem startup hook: makes or finds it */

extern bool kv_recent_on(void); /* is there a ring? */
/* Whole blocks were written at an address; they are the newest ones. */
extern void kv_recent_put(uint32 cache_id, KvAddress address, uint32 len, const char *bytes,
						  KvHeat heat);
/* A block that was in the ring when the server stopped: puts it back, unless the ring is full. */
extern void kv_recent_warm(uint32 cache_id, KvAddress address, const char *block);
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
/* frames that left before they were taken, since kv_recent_stats_reset */
extern uint64 kv_recent_dropped(void);
/* Like kv_block_room and kv_block_each. */
extern uint64 kv_recent_room(void);
extern void kv_recent_each(void (*each) (void *arg, uint32 cache_id, uint64 number), void *arg);
/* The heat of bytes in the ring, if they were replaced now; KV_COLD if some are not in the ring. */
extern KvHeat kv_recent_heat(uint32 cache_id, KvAddress address, uint32 len);
/* May the ring have bytes that begin there, so that a lookup with memory for them pays? */
extern bool kv_recent_may_have(uint32 cache_id, KvAddress address);
extern void kv_recent_wrong(void);	/* a value that was read failed verification */
/* Like kv_block_stats, in frames. */
extern void kv_recent_stats(KvCacheStats *stats);
extern void kv_recent_stats_reset(void);

/* ---- warming.c: reads blocks before sessions ask for them; best in the order of addresses ---- */
typedef struct KvWarming KvWarming;

/* palloc'd; refers to the key */
extern KvWarming *kv_warming_begin(const KvStoreKey *key, uint32 cache_id);
/*
 * Requests the block at an address for the value cache or, if recent, for the recent ring.  Skips
 * missing files.  Serves interrupts, and reports progress to kv_progress.
 */
extern void kv_warming_add(KvWarming *warming, KvAddress address, bool recent);
/* reads all requested blocks; returns how many were kept */
extern uint64 kv_warming_end(KvWarming *warming);

/* ---- tier.c; raises nothing. Its lock is taken last, and readers take none ---- */
extern void kv_tier_gucs(void); /* defines its settings */
extern Size kv_tier_memory(void);	/* size of its part of shared memory */
extern void kv_tier_attach(void);	/* in the shmem startup hook: makes or finds it */
extern bool kv_tier_wanted(void);	/* do the settings ask for a tier? */
extern PGDLLEXPORT void kv_tier_writer_main(Datum arg);	/* its writer; arg is not used */

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
/*
 * Puts bytes that were written at an address into the tier, if there is one.  They are whole blocks
 * of at most KV_LEAVING_FRAMES frames.  Unless displaces, does so only if nothing is evicted for
 * them.  Skips them if another process writes to the tier for long.  Writes; serves interrupts.
 */
extern void kv_tier_put(uint32 cache_id, KvAddress address, const char *blocks, Size len,
						bool displaces);
/* No reader will ask for these addresses any more. */
extern void kv_tier_forget(uint32 cache_id, KvAddress address, uint64 len);
/* like kv_recent_stats, with hits and dropped frames */
extern void kv_tier_stats(KvCacheStats *stats);
extern void kv_tier_stats_reset(void);

/* A frame of the tier, for warm.c. */
typedef struct KvTierFrame
{
	uint32		cache_id;
	uint32		frame;			/* its index in the file */
	uint64		number;			/* address / KV_FRAME_SIZE */
	uint32		valid;			/* a bit for each block */
} KvTierFrame;

/* When the server stops: marks the file.  Returns the mark, which is unique; 0: it failed. */
extern uint64 kv_tier_mark(void);
extern uint64 kv_tier_room(void);	/* number of frames */
extern void kv_tier_each(void (*each) (void *arg, const KvTierFrame *frame), void *arg);
/*
 * Is the file the one with this mark, with only writes of this start since?  Waits until that is
 * known; serves interrupts.
 */
extern bool kv_tier_was_marked(uint64 stamp);
/* A frame was there at that mark: makes it available, unless its place was used since. */
extern void kv_tier_enter(const KvTierFrame *frame);

#endif							/* KV_CACHE_H */
