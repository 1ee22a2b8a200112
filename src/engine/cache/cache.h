/*
 * cache.h
 *		Copies of pieces of value files: the recent ring, the value cache, of blocks, and
 *		the range cache.
 *
 * Never authoritative: nothing is lost with it.  Its locks come last and are held
 * across no read.  The recent ring (recent.c) and the value cache (block.c) raise nothing.
 *
 * The range cache is made of windows: pieces of value files in shared memory,
 * which prefetch workers fill for scans.  It is a cache of bytes by address and
 * knows nothing of keys, rows or snapshots.  A scan finds out by itself which
 * versions it sees and where their values lie; a window only saves it the read.
 * Every value is verified against its entry's CRC (I 4) after it was copied, so
 * a window with other bytes in it, for whatever reason, costs a read and never
 * shows.  Whatever is not in a window is read from the device.
 *
 * Pieces and segments are counted in addresses, so they go on from one file to the next
 * in a volume.  A span is what is loaded for the same reason and evicted when it is over:
 * all values of a shard, for scans that need them in the order of keys while they lie in
 * another (scattered); or a segment of them, for scans to which they are in order.
 * Where in it values lie is said by extents, for between volumes, and where a file has
 * been removed, there is nothing.  Its pieces are loaded and evicted one by one.
 *
 *		FREE ──claim──▸ LOADING ──publish──▸ VALID ──claim for another──▸ LOADING
 *		  ▴                │                   │
 *		  ├────give up─────┘                   │
 *		  └────lose────────────────────────────┘
 *
 *		FREE	in the list of free windows; its key is no piece's
 *		LOADING	in the table of pieces, so that nobody else loads it; its
 *				sequence is odd; the worker that claimed it gives it up when it
 *				ends, however it ends
 *		VALID	in the table of pieces and in its span's list; sequence even
 *
 * A window may hold single blocks instead of a piece (blockwindow.c): then it is in no span, and
 * a table says where each block is.
 *
 * All changes of state are made under KvWindowCache.lock, exclusive.  Readers look a
 * piece up under it, shared, once per piece; then they need no lock and no pin:
 * they note the window's sequence, copy, and look again.  So a reader that is
 * cancelled, killed or stopped leaves nothing behind, and nothing waits for it.
 *
 * Lock order: KvWindowCache.lock comes last; nothing else is taken under it but a
 * condition variable's spinlock.
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
#define KV_WHOLE		PG_UINT64_MAX	/* instead of a segment: all of the shard */
#define KV_WANTS		16		/* spans that a scan has loaded for it, its own included */
#define KV_NEVER		PG_UINT32_MAX	/* distance of a span that a scan does not come to */
#define KV_FAR			(PG_UINT32_MAX / 2) /* of a segment no more, in another shard no less */

/* Addresses from one up to another, as far as files are written. */
typedef struct KvExtent
{
	KvAddress	begin;
	KvAddress	end;
} KvExtent;

#define KV_MAX_EXTENTS	32

/* In ascending order; no piece has a part of two. */
typedef struct KvExtents
{
	uint32		found_at;		/* KvShard.generation when they were looked up */
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

/* A block that was gathered, or will be. */
typedef struct KvWindowBlock
{
	KvBlockKey	key;			/* hash key */
	int			window;
	int			slot;			/* block in it */
} KvWindowBlock;

/* Of a window of block windows (blockwindow.c); all but LOADED are states of LOADING. */
typedef enum KvBlockWindowState
{
	KV_BLOCK_WINDOW_NONE,		/* it has a piece, or nothing */
	KV_BLOCK_WINDOW_QUEUED,		/* no worker has it yet */
	KV_BLOCK_WINDOW_READ,		/* one reads into it */
	KV_BLOCK_WINDOW_LOADED		/* it is VALID */
} KvBlockWindowState;

typedef struct KvSpan
{
	KvSpanKey	key;			/* hash key */
	KvExtents	extents;		/* what scans have asked for of it … */
	uint64		size;			/* … and its bytes */
	uint32		next_piece;		/* all of it before that are in the table of pieces */
	uint32		nvalid;
	uint32		nloading;
	int			windows;		/* list head, the last published first, or -1 */
	TimestampTz used;			/* a scan has entered or left it */
	TimestampTz failed;			/* a read of it has failed then; 0: none */
} KvSpan;

typedef struct KvWindow
{
	pg_atomic_uint64 sequence;	/* odd: what it holds changes */
	KvPieceKey	key;			/* of block windows: of no piece, but with the cache_id */
	KvSpanKey	span;
	uint32		len;			/* bytes that it holds, from its beginning */
	/* a bit for each of its blocks that could not be read; not of block windows */
	uint64		bad;
	int			next;			/* in the free list, its span's or that of block windows; -1 */
	int			previous;		/* in its span's list, or that of block windows; or -1 */
	uint64		wanted_by;		/* KvWindowScan.id of the scan it was loaded for */

	/* block windows */
	KvBlockWindowState block_state;
	KvStoreKey	store;
	uint64		stamp;			/* the later it was asked for, the larger */
	int			nblocks;		/* in kv_window_blocks */
	int			queued_next;	/* window in the queue, or -1 */
} KvWindow;

/* A span in which a scan is or to which it comes. */
typedef struct KvWant
{
	uint32		shard;
	uint64		segment;
	KvExtents	extents;		/* of the span, as far as files are written */
} KvWant;

/* How a scan goes on from where it is. */
typedef struct KvCourse
{
	KvStoreKey	store;
	KvStore    *map;			/* whose map says in what order shards come */
	int			step;			/* 1 or -1: of shards */
	uint32		last;			/* shard where it ends */
	bool		wraps;			/* behind the last shard comes the first */
	int			segment_step;	/* 1 or -1: of segments in the order of keys */
	uint64		last_segment;	/* there, about where it ends; KV_WHOLE: where the shard does */
} KvCourse;

/*
 * A scan that reads through windows: where it is and where it goes.  While it is in the
 * registry it has a pin of its store. Written by its backend, under KvWindowCache.lock but for
 * progress, patience and waiting; read by the workers.
 */
typedef struct KvWindowScan
{
	uint64		id;				/* never repeats; 0: not in use */
	int			pid;
	uint32	   *wait_event;		/* its process's */
	uint32		cache_id;
	KvCourse	course;
	uint32		shard;			/* where it is */
	uint64		segment;		/* there, or KV_WHOLE */
	int			nwants;
	KvWant		wants[KV_WANTS];	/* in the order of its coming; [0] is where it is */

	TimestampTz progress;		/* it took its last batch then */
	volatile bool waiting;		/* for wait_piece */
	volatile bool held;			/* its loads wait for scans behind it */
	bool		wants_blocks;	/* it is in no span but wants single blocks (blockwindow.c) … */
	volatile uint64 position;	/* … and still needs windows of them from this stamp on; 0: none */
	volatile bool lacks_room;	/* … and waits for windows that others need */
	volatile bool shares;		/* … and finds there what others asked for */
	uint64		wait_piece;
	int64		patience;		/* µs that it will still wait for others */
	ConditionVariable loaded;
} KvWindowScan;

typedef enum KvWindowCounter
{
	KV_RANGE_HITS,				/* windows found that were loaded for another scan before */
	KV_RANGE_LOADS,				/* windows loaded for the scan that took them */
	KV_RANGE_SHARED,			/* windows that were on their way for another scan */
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
	int			scans_used;		/* no entry from here on is in use */
	uint64		last_id;
	int			nworkers;		/* that run */
	Latch	   *volatile workers[KV_MAX_PREFETCH_WORKERS];
	uint64		bytes_per_second;	/* that the workers load, lately */

	/* block windows */
	int			nblock_scans;	/* scans that take such, when a worker looked last */
	int			nblock_windows;
	int			block_windows_first; /* the oldest, or -1 */
	int			block_windows_last;
	int			nqueued;		/* of them wait for a worker, … */
	int			queued_first;	/* … in this order */
	int			queued_last;
	uint64		last_stamp;
	uint64		block_loads;	/* how often a worker has loaded some */
	pg_atomic_uint64 counters[KV_RANGE_COUNTERS];
} KvWindowCache;

extern KvWindowCache *kv_window_cache;
extern KvWindow *kv_windows;
extern KvWindowScan *kv_window_scans;
extern HTAB *kv_span_hash;
extern HTAB *kv_piece_hash;
extern HTAB *kv_block_hash;
extern uint64 *kv_window_blocks;	/* KV_WINDOW_BLOCKS of each window, block windows in use */

/* The bytes that a span with no window missing holds. */
static inline uint64
kv_extents_size(const KvExtents *extents)
{
	uint64		size = 0;

	for (int i = 0; i < extents->n; i++)
		size += extents->at[i].end - extents->at[i].begin;
	return size;
}

#define KV_READER_MET	128		/* … so many */

/*
 * How a scan takes values out of windows, of one shard at a time.  All zero but
 * for parent and stats, it has not begun with any.
 */
typedef struct KvWindowReader
{
	MemoryContext parent;
	KvScanStats *stats;			/* where its work is counted */
	MemoryContext context;		/* of all this, below parent; NULL: not made yet */
	MemoryContextCallback callback;
	KvWindowScan *entry;			/* in the registry, or NULL */
	uint64		id;				/* the entry is another's if it has another one */
	bool		windows;		/* workers load what is read now … */
	bool		wants_blocks;	/* … and blocks one by one, for they lie scattered */

	uint32		cache_id;
	uint32		shard;			/* whose values they are */
	KvExtents	whole;			/* of all of it, if that was asked for; else none */
	uint32		nseen;
	int			few[8];			/* seen, until there is more to remember */
	int		   *seen;			/* of pieces: a window, or -1.  By their place in whole, or
								 * their number modulo nseen */

	TimestampTz entered;		/* the span */
	int64		waited;			/* µs since then */
	int64		spent;			/* µs that it has waited for others more than it has worked */

	/* block windows */
	TimestampTz held;			/* it has waited for room until then; 0: never */
	uint64		counted;		/* the latest stamp of another's window that is counted */
	int			nmet;
	int			nothers;		/* … of them of others */
	uint64	   *met;			/* stamps of windows from which this batch was taken; room for … */
	/* it has left as nothing was loaded: KvWindowCache.ngathers then, and 1; or 0 */
	uint64		stuck_at;
} KvWindowReader;

/* Where a scan is or begins. */
typedef struct KvScanStart
{
	uint32		shard;
	uint64		segment;		/* or KV_WHOLE */
	int			segment_step;
	KvAddress	address;		/* of the segment */
} KvScanStart;

/* ---- window.c: its part of shared memory, in the shmem hooks ---- */
extern int	kv_window_cache_kb;
extern int	kv_window_number(void); /* how many there are, or will be */
extern Size kv_window_memory(void);	/* bytes that the range cache needs */
extern void kv_window_attach(void);	/* kv_window_cache stays NULL if the cache is off */
extern void kv_window_stats_reset(void); /* counters to 0 */

/*
 * ---- window.c: spans.  KvWindowCache.lock is held: exclusive, or shared for those that
 * only look ----
 */
extern KvSpan *kv_span_find(const KvSpanKey *key);	/* shared; NULL: nobody has asked for it */
/* Likewise made if need be; NULL: there is no room. */
extern KvSpan *kv_span_make(const KvSpanKey *key);
/* Shared: has a read of it failed so lately that it is not worth another try? */
extern bool kv_span_failed(const KvSpan *span, TimestampTz now);
/* Forget a span of which nothing is left; false: something is. */
extern bool kv_span_retire(KvSpan *span);
/*
 * Is a piece of the span in no window and on its way into none?  Of what scans have wanted
 * of it the last to be looked up counts: if values have moved, windows with what they left
 * are freed; if files have grown, their last pieces are loaded again.
 */
extern bool kv_span_lacks(KvSpan *span, const KvExtents *wanted);

/* ---- window.c: states of windows; KvWindowCache.lock is held, exclusive ---- */

/*
 * FREE to LOADING, for the span's next piece that is in no window; the span lacks one.
 * If none is free, a VALID one of victim's, if there is a victim.  False: there is none.
 */
extern bool kv_window_claim(KvSpan *span, KvSpan *victim, uint64 wanted_by, int *window);
extern void kv_window_publish(int window, uint32 len);	/* LOADING to VALID; it has len bytes */
extern void kv_window_give_up(int window);	/* LOADING to FREE: it could not be filled */
/* A FREE one, or the span's last, to LOADING; it is in no list and has no piece.  -1: none. */
extern int	kv_window_take(KvSpan *victim);
extern void kv_window_free(int window);	/* LOADING, in no list and without a piece: to FREE */

/* ---- window.c: no lock is held on entry ---- */

/*
 * A piece of the span is in no window, whatever the span trusts.  False: nor will it be,
 * for values have moved since found_at, the scan's KvExtents.found_at.
 */
extern bool kv_span_miss(const KvSpanKey *key, uint64 piece, uint32 found_at);
/* The window that has or will have a piece; -1: none. */
extern int	kv_window_find(const KvPieceKey *key);
/* What is in the window of a piece is not what is in the file now. */
extern void kv_piece_lose(const KvPieceKey *key);
/* Its memory: of who has claimed it to write, of others to read as reader.c does. */
extern char *kv_window_bytes(int window);
/* In a process that reads into windows: have them where there can be huge pages. */
extern void kv_windows_map(void);

#define kv_window_count(what, n) \
	pg_atomic_fetch_add_u64(&kv_window_cache->counters[what], (n))

/* ---- hugepage.c; raises nothing but for lack of memory ---- */

/*
 * Map shared memory, which begins at a page, once more for this process, so that
 * kv_huge_make() works in it; once in a process.  Returns the memory itself if
 * that is not possible or, by huge_pages = off, not wanted.
 */
extern char *kv_huge_map(char *memory, Size size);
/* Make huge pages of those that hold these bytes, as far as they were mapped for it. */
extern void kv_huge_make(const char *bytes, Size len);

/* ---- scans.c; no lock is held on entry but where KvWindowCache.lock is named ---- */
extern int	kv_window_wait_ms;
#define KV_STUCK_SHARE		20	/* of it, for which a scan that is stuck counts */

/* Spans that a scan has to go until it reads one; KV_NEVER: it does not.  Lock, shared. */
extern uint32 kv_window_distance(const KvWindowScan *scan, const KvSpanKey *span);
/* Does it go on, or wait for what is being loaded?  Lock, shared. */
extern bool kv_window_scan_is_live(const KvWindowScan *scan, TimestampTz now);
/* Have the workers look again at what scans want, and have them started.  No lock. */
extern void kv_window_wake_workers(void);
/* Does a worker run, or is one about to?  Lock, or none. */
extern bool kv_windows_are_loaded(void);

/*
 * Where a scan in any order had best begin: where another scan of the store is
 * that goes upwards, or before that, where what is in windows begins.  False: there
 * is none.
 */
extern bool kv_window_company(uint32 cache_id, KvScanStart *place);
/* Are most of a shard's values in windows already, or on their way there? */
extern bool kv_window_is_there(uint32 cache_id, uint32 shard);

/* Have a context below parent with which all that the reader has goes, its entry too. */
extern void kv_reader_make_context(KvWindowReader *reader);
/*
 * Be in wants[0] from now on, and read through windows.  If the registry is full, or
 * if it is a segment for which there is no room: be in no span, and do not.
 */
extern void kv_reader_enter(KvWindowReader *reader, const KvCourse *course,
							const KvWant *wants, int nwants);
/*
 * Be in a segment that was wanted already, so that the workers may take the windows
 * of those before it.  False: it was not.
 */
extern bool kv_reader_come_to(KvWindowReader *reader, uint64 segment);
/* Be in no span; nothing is loaded for the reader any more. */
extern void kv_reader_leave(KvWindowReader *reader);
/* Be in no span, but have single blocks of a store loaded (blockwindow.c), if there is room. */
extern void kv_reader_want_blocks(KvWindowReader *reader, KvStore *store);

/* ---- reader.c ---- */

/* Begin with a shard's values, of which nothing is known and few will be met. */
extern void kv_reader_begin(KvWindowReader *reader, uint32 cache_id, uint32 shard);
/* Many of them will be met, segment by segment, or if so all over these extents. */
extern void kv_reader_remember(KvWindowReader *reader, const KvExtents *extents, bool whole);
/* The scan takes another batch, so others may wait for it. */
extern void kv_reader_progress(KvWindowReader *reader);
/* May there be something in windows? */
extern bool kv_reader_has_windows(const KvWindowReader *reader);
/*
 * Copy bytes at an address out of windows, which are waited for if workers load them.
 * False: they have to be read.  What they are the caller finds out (I 4).
 */
extern bool kv_reader_take(KvWindowReader *reader, KvAddress address, uint32 len, char *into);
/* What was taken is not what the file has. */
extern void kv_reader_lose(KvWindowReader *reader, KvAddress address, uint32 len);

/*
 * ---- blockwindow.c ----
 *
 * Windows of single blocks, for scans in the order of keys of values that lie in another,
 * where these are more than there is room for.  A scan looks ahead in the index and asks for
 * the blocks that it will need; workers read those that are not there, many at a time, and
 * scans that come to the same keys a little later find them.  No lock is held on entry.
 */
/* the largest value that is gathered */
#define KV_BLOCK_WINDOW_VALUE	((uint32) KV_WINDOW_SIZE / 4)

extern bool kv_block_window_is_possible(void); /* is the cache large enough, and a worker there? */
extern int	kv_block_window_reach(void); /* how many blocks a scan should ask for ahead of it */
/* Of a scan that has left because nothing was loaded: is something now? */
extern bool kv_block_window_stirs(const KvWindowReader *reader);
/*
 * Have these blocks in windows or on their way, which are in ascending order and differ.
 * now: the next batch needs them, so wait for room while scans that are close behind need
 * what is in it, as long as there is patience left; raises what interrupts do.
 */
extern void kv_block_window_want(KvWindowReader *reader, const KvStoreKey *store,
								 const uint64 *blocks, int n, bool now);
/*
 * Copy a value of up to KV_BLOCK_WINDOW_VALUE bytes out of block windows, which are waited for
 * if they are on their way.  False: it has to be read.
 */
extern bool kv_block_window_take(KvWindowReader *reader, KvAddress address, uint32 len, char *into);
/* What was taken is not what the file has. */
extern void kv_block_window_lose(KvWindowReader *reader, KvAddress address, uint32 len);
extern void kv_block_window_progress(KvWindowReader *reader); /* the batch is complete */
/*
 * For the workers, KvWindowCache.lock held exclusively.  The next window whose blocks are to
 * be read; cache_id: of this store, 0: of any.  -1: there is none.
 */
extern int	kv_block_window_next(uint64 cache_id);
extern void kv_block_window_publish(int window); /* its blocks are read, and it is VALID … */
extern void kv_block_window_fail(int window, int slot, int n); /* … but for so many from one on */
extern void kv_block_window_give_up(int window); /* it is FREE, and its blocks are in no window */
/*
 * Free a window of blocks that no scan needs any more; forced: or, if there are many, the
 * oldest.  False: there is none.
 */
extern bool kv_block_window_evict(bool forced, TimestampTz now);

/* ---- prefetch.c ---- */
extern int	kv_prefetch_workers;	/* at most */
extern void kv_prefetch_gucs(void);	/* defines the settings of range cache and workers */
extern PGDLLEXPORT void kv_prefetch_main(Datum arg);	/* a worker; arg is not used */

/* What is known of bytes that are written, by those that they replace. */
typedef enum KvHeat
{
	KV_COLD,					/* nothing */
	KV_READ_LATELY,				/* those were read or written lately */
	KV_CACHED					/* … and were in the value cache: so should these be */
} KvHeat;

/* ---- block.c; takes no lock, raises nothing ---- */
extern void kv_block_gucs(void);	/* defines its setting */
extern Size kv_block_memory(void);	/* its part of shared memory … */
extern void kv_block_attach(void); /* … made, in the shmem startup hook */

/*
 * The most blocks that a cached value touches: it has up to 64 kB, and begins anywhere in a block.
 */
#define KV_CACHED_BLOCKS	17

/*
 * Begin to load bytes into the processor's cache. No more than a few lines of 64 bytes: of those
 * that follow each other it loads the next ones by itself.
 */
static inline void
kv_load_bytes(const char *bytes, uint32 len)
{
	for (uint32 at = 0; at < Min(len, 512); at += 64)
		__builtin_prefetch(bytes + at);
}

/* Copy a value, if all its blocks are here; what it is the caller finds out (I 4). */
extern bool kv_block_read(uint32 cache_id, KvLocation location, uint32 len, char *into);
/* Begin to load it into the processor's cache, if it is here. */
extern void kv_block_load(uint32 cache_id, KvLocation location, uint32 len);
/*
 * Keep the blocks that a value was read from or written with, unless they are too many;
 * blocks is all of them, from the beginning of the first one on; replaces: they take the
 * place of blocks that were here, and are not on probation.
 */
extern void kv_block_keep(uint32 cache_id, KvLocation location, uint32 len,
						  const char *blocks, bool replaces);
/*
 * Likewise of a value that was here as well, elsewhere, and is asked for there as yet: nothing
 * makes way for it. False: some of its blocks found no room.
 */
extern bool kv_block_keep_beside(uint32 cache_id, KvLocation location, uint32 len,
								 const char *blocks);
/* Another value has replaced this one: blocks that have little else may go next. */
extern void kv_block_replaced(uint32 cache_id, KvLocation location, uint32 len);
/* Are all blocks of a value here, at this moment? */
extern bool kv_block_has(uint32 cache_id, KvLocation location, uint32 len);
/* Could they be? */
extern bool kv_block_takes(KvLocation location, uint32 len);
/* Keep a block that was read before anybody has asked for it. */
extern void kv_block_warm(uint32 cache_id, KvAddress address, const char *block);
/* How many blocks there is room for; each that is here, by its number: address / KV_BLOCK. */
extern uint64 kv_block_room(void);
extern void kv_block_each(void (*each) (void *arg, uint32 cache_id, uint64 number), void *arg);
/* What was read is not what the files have. */
extern void kv_block_lose(uint32 cache_id, KvLocation location, uint32 len);
/*
 * Nothing that lies there is asked for any more, unless it is shared with others: its blocks make
 * room, then at least before others do.
 */
extern void kv_block_forget(uint32 cache_id, KvAddress address, uint64 len, bool shared);
/* Counts of blocks, and what there is; all 0 if there is no value cache. */
extern void kv_block_stats(KvTierRow *row);
extern void kv_block_stats_reset(void);

/* ---- around.c; takes no lock, raises nothing ---- */
extern void kv_around_gucs(void);	/* defines its setting */
extern Size kv_around_memory(void); /* its part of shared memory … */
extern void kv_around_attach(void); /* … made, in the shmem startup hook */
/*
 * A value that is in no cache of the server's is about to be read through the page cache. How large
 * the piece around it is that is to be read there with it; 0: none, for it was lately, or there is
 * no idle memory for it, or not for a table with value files of so many bytes.
 */
extern uint32 kv_around_begin(uint32 cache_id, KvAddress address, uint64 table_bytes);
/* Was the piece that this is in read so lately? */
extern bool kv_around_has(uint32 cache_id, KvAddress address);
/*
 * So many bytes that have moved are about to be read there: notes that. False: not, for memory does
 * not lie idle.
 */
extern bool kv_around_moved(uint32 cache_id, KvAddress address, Size len, uint64 table_bytes);

/* ---- recent.c; raises nothing.  Its lock is a last one, and readers take none ---- */
extern void kv_recent_gucs(void);	/* defines its setting */
extern Size kv_recent_memory(void); /* its part of shared memory … */
extern void kv_recent_attach(void); /* … made, in the shmem startup hook */

extern bool kv_recent_on(void); /* is there a ring? */
/* Whole blocks have been written at an address, and are the newest. */
extern void kv_recent_put(uint32 cache_id, KvAddress address, uint32 len, const char *bytes,
						  KvHeat heat);
/* A block was here when the server stopped: have it again, unless others have all the room. */
extern void kv_recent_warm(uint32 cache_id, KvAddress address, const char *block);
/* Copy bytes, if all are here; what they are the caller finds out (I 4). */
extern bool kv_recent_read(uint32 cache_id, KvAddress address, uint32 len, char *into);
/* Begin to load them into the processor's cache; false: they are not here. */
extern bool kv_recent_load(uint32 cache_id, KvAddress address, uint32 len);
/* A frame that leaves the ring soon. */
typedef struct KvLeaving
{
	uint32		frame;
	uint32		cache_id;
	uint64		number;
	uint64		sequence;
	uint32		valid;
} KvLeaving;

#define KV_LEAVING_FRAMES	16

/* Those that leave next, oldest first, up to so many, with their bytes; returns how many. */
extern int	kv_recent_oldest(KvLeaving *leaving, int most, char *bytes);
/* One of them is elsewhere now. */
extern void kv_recent_leave(const KvLeaving *leaving);
/*
 * Somebody takes them, and his latch is set when some are about to leave; NULL: not any more. There
 * is a ring.
 */
extern void kv_recent_attend(Latch *latch);
/* frames that left before they could be taken; kv_recent_stats_reset sets it to 0 */
extern uint64 kv_recent_dropped(void);
/* As of the value cache. */
extern uint64 kv_recent_room(void);
extern void kv_recent_each(void (*each) (void *arg, uint32 cache_id, uint64 number), void *arg);
/* What is known of bytes that are here, as if they were replaced; not all here: KV_COLD. */
extern KvHeat kv_recent_heat(uint32 cache_id, KvAddress address, uint32 len);
/* Is it worth to make room for bytes that begin there, and to ask for them? */
extern bool kv_recent_may_have(uint32 cache_id, KvAddress address);
extern void kv_recent_wrong(void);	/* what was read is not the value */
/* As of the value cache, in frames. */
extern void kv_recent_stats(KvTierRow *row);
extern void kv_recent_stats_reset(void);

/* ---- warming.c: reads blocks before anybody asks for them; best in the order of addresses ---- */
typedef struct KvWarming KvWarming;

/* palloc'd, and keeps the key */
extern KvWarming *kv_warming_begin(const KvStoreKey *key, uint32 cache_id);
/*
 * Have the block at an address in the value cache or, if recent, in the recent ring. Nothing is
 * read where there is no
 * file.  Serves interrupts, and tells kv_progress what was read.
 */
extern void kv_warming_add(KvWarming *warming, KvAddress address, bool recent);
/* … all that was asked for; returns how many blocks were kept */
extern uint64 kv_warming_end(KvWarming *warming);

/* ---- tier.c; raises nothing.  Its lock is a last one, and readers take none ---- */
extern void kv_tier_gucs(void); /* defines its settings */
extern Size kv_tier_memory(void);	/* its part of shared memory … */
extern void kv_tier_attach(void);	/* … made, in the shmem startup hook */
extern bool kv_tier_wanted(void);	/* by the settings */
extern PGDLLEXPORT void kv_tier_writer_main(Datum arg);	/* its writer; arg is not used */

typedef enum KvTierCounter
{
	KV_TIER_HITS,				/* values read there */
	KV_TIER_ENTERED,			/* frames that were written */
	KV_TIER_COUNTERS
} KvTierCounter;

/* Where a value is in the tier's file, as long as the frames do not change. */
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

/* Is the value there? */
extern bool kv_tier_find(uint32 cache_id, KvAddress address, uint32 len, KvTierPlace *place);
/* It has been read: was it there all the time? */
extern bool kv_tier_still(const KvTierPlace *place);
/* What was read there is not the value: have it found there no more. */
extern void kv_tier_drop(const KvTierPlace *place);
extern File kv_tier_file(void); /* this process's descriptor; -1: it can be read no more */
extern void kv_tier_failed(int err);	/* with this errno: do without the tier from now on */
extern void kv_tier_count(KvTierCounter what, uint64 n);
/*
 * Bytes that have been written at an address, whole blocks of no more than KV_LEAVING_FRAMES
 * frames: put them there, too, if
 * there is a tier; unless it displaces, only if nothing makes way. Not if who writes there is long.
 * Writes; serves interrupts.
 */
extern void kv_tier_put(uint32 cache_id, KvAddress address, const char *blocks, Size len,
						bool displaces);
/* Nothing that lies there is asked for any more. */
extern void kv_tier_forget(uint32 cache_id, KvAddress address, uint64 len);
/* as of the recent ring, with hits and what was dropped */
extern void kv_tier_stats(KvTierRow *row);
extern void kv_tier_stats_reset(void);

/* A frame of the tier, for warm.c. */
typedef struct KvTierFrame
{
	uint32		cache_id;
	uint32		frame;			/* its place in the file */
	uint64		number;			/* of the addresses */
	uint32		valid;			/* a bit for each block */
} KvTierFrame;

/* The server stops: mark the file.  Returns the mark, which is no other's; 0: it could not. */
extern uint64 kv_tier_mark(void);
extern uint64 kv_tier_room(void);	/* how many frames there are */
extern void kv_tier_each(void (*each) (void *arg, const KvTierFrame *frame), void *arg);
/*
 * Is the file the one that was so marked, with nothing written since but after this start?
 * Waits until that is known; serves interrupts.
 */
extern bool kv_tier_was_marked(uint64 stamp);
/* A frame was there at that mark: have it found, unless its place was used since. */
extern void kv_tier_enter(const KvTierFrame *frame);

#endif							/* KV_CACHE_H */
