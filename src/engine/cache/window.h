/*
 * window.h
 *		The range cache: states of windows, spans and scans, and its workers.  No other module
 *		includes this file.
 *
 * The range cache consists of windows: pieces of value files in shared memory, which prefetch
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
 */
#ifndef KV_WINDOW_H
#define KV_WINDOW_H

#include "port/atomics.h"
#include "storage/condition_variable.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "utils/hsearch.h"

#include "engine/base/types.h"
#include "engine/cache/reader.h"

#define KV_MAX_PREFETCH_WORKERS	16
#define KV_NEVER		PG_UINT32_MAX	/* distance of a span that a scan does not reach */
/* greater than distances of segments, and at most those of other shards */
#define KV_FAR			(PG_UINT32_MAX / 2)

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

/* ---- window.c: its part of shared memory, for the shmem hooks ---- */
extern int	kv_window_cache_kb;
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


/* Makes a context below parent whose deletion releases all that the reader has, and its entry. */
extern void kv_reader_make_context(KvWindowReader *reader);
/*
 * Enters a segment that was wanted before, so that the workers may reuse the windows of those
 * before it.  False: it was not wanted.
 */
extern bool kv_reader_come_to(KvWindowReader *reader, uint64 segment);

/* ---- blockwindow.c ---- */

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
extern PGDLLEXPORT void kv_prefetch_main(Datum arg);	/* a worker; arg is not used */
extern void kv_prefetch_gucs(void);	/* defines the settings of range cache and workers */

#endif							/* KV_WINDOW_H */
