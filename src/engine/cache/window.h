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
 * A window has a piece of a value file, which is a run of neighbouring blocks.  Or it has parts,
 * which are shorter such runs, or single blocks, all of one store.  Pieces are for scans whose
 * values are near each other (spans).  Parts and single blocks are for those whose values are not
 * (blockwindow.c): parts where the next keys are in stretches of the files.  One table says which
 * window has or will have a piece, a part or a block, and from which slot on.  All kinds have the
 * same states:
 *
 *		            ┌──next──── QUEUED ◂──queue──┐
 *		            ▾                            │
 *		FREE ──claim──▸ CLAIMED ─────────────────┘
 *		  ▴               │ └────publish────▸ VALID
 *		  ├───give up─────┘                     │
 *		  └───evict, lose───────────────────────┘
 *
 *		FREE	in the list of free windows; no store's; nothing in the table is in it
 *		CLAIMED	in no list.  One process has it, and it alone changes the window: a scan that adds
 *				blocks, or a worker that reads them.  A worker gives up what it has claimed when it
 *				ends, for whatever reason; a scan raises nothing until it has queued the window
 *		QUEUED	in the queue of windows that no worker has yet.  Only windows of single blocks: a
 *				worker claims and fills one of a piece itself
 *		VALID	in the list of its span or, with single blocks, of KvWindowCache.blocks
 *
 * What a window has is in the table from its claim on, so it is loaded once.  The sequence is odd
 * while a window is CLAIMED or QUEUED.  A block that could not be read is marked in a VALID window;
 * a single one, or a part without a readable one, is in the table no longer.
 *
 * Pieces and segments are counted in addresses, so they continue from one file to the next in a
 * volume.  A span is loaded for one reason and evicted when the reason ends.  It is either all
 * values of a shard, for scans in key order of values that are stored in another order (scattered).
 * Or it is a segment of them, for scans for which they are in order.  Extents say where values of a
 * span are, since there is nothing between volumes and where a file was removed.  Pieces of a span
 * are loaded and evicted one by one.
 *
 * Locks: All changes of state are made under KvWindowCache.lock, exclusive.  It is taken last; only
 * a condition variable's spinlock is taken under it.  No lock of a cache is held during a read.  A
 * reader looks a piece or block up under the lock, shared.  Then it needs no lock and no pin: it
 * notes the window's sequence, compares what the window has, copies, and compares the sequence.  So
 * a reader that is cancelled, killed or stopped blocks nothing.
 */
#ifndef KV_WINDOW_H
#define KV_WINDOW_H

#include "lib/ilist.h"
#include "port/atomics.h"
#include "storage/condition_variable.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "utils/hsearch.h"

#include "engine/base/types.h"
#include "engine/cache/reader.h"

#define KV_MAX_PREFETCH_WORKERS	16
#define KV_SINGLE		(PG_UINT64_MAX - 1)	/* a segment number that stands for single blocks */
#define KV_NEVER		PG_UINT32_MAX	/* distance of a span that a scan does not reach */
/* greater than distances of segments, and at most those of other shards */
#define KV_FAR			(PG_UINT32_MAX / 2)

typedef struct KvSpanKey
{
	uint32		cache_id;		/* KvStore.cache_id */
	uint32		shard;
	uint64		segment;		/* address / KV_SEGMENT_SIZE, or KV_WHOLE */
} KvSpanKey;

/* A piece, a part or a single block. */
typedef struct KvWindowKey
{
	uint32		cache_id;
	uint32		nblocks;		/* KV_WINDOW_BLOCKS, KV_PART_BLOCKS or 1 */
	uint64		block;			/* the first one: address / KV_BLOCK */
} KvWindowKey;

/* The place of a piece, a part or a block. */
typedef struct KvPlace
{
	int			window;
	int			slot;			/* index in the window of the first block */
} KvPlace;

typedef struct KvWindowEntry
{
	KvWindowKey key;			/* hash key */
	KvPlace		place;
} KvWindowEntry;

typedef enum KvWindowState
{
	KV_WINDOW_FREE,
	KV_WINDOW_CLAIMED,
	KV_WINDOW_QUEUED,
	KV_WINDOW_VALID
} KvWindowState;

typedef struct KvSpan
{
	KvSpanKey	key;			/* hash key */
	KvExtents	extents;		/* the extents that scans have asked for */
	uint64		size;			/* bytes of these extents */
	uint32		next_piece;		/* all pieces before it are in the table */
	uint32		nvalid;
	uint32		nloading;		/* number of windows that are claimed or queued */
	dlist_head	windows;		/* those that are VALID, the last published one first */
	TimestampTz used;			/* when a scan last entered or left it */
	TimestampTz failed;			/* time of the last failed read; 0: none */
} KvSpan;

typedef struct KvWindow
{
	pg_atomic_uint64 sequence;	/* odd: its contents are changing */
	KvWindowState state;
	KvStoreKey	store;
	KvSpanKey	span;			/* its cache_id is 0 if the window is FREE */
	int			unit;			/* the nblocks of what it has: see KvWindowKey */
	int			nblocks;		/* number of blocks in kv_window_blocks */
	uint32		len;			/* number of valid bytes, from its beginning */
	uint64		bad;			/* a bit for each block that could not be read */
	uint64		wanted_by;		/* KvWindowScan.id of the scan it was claimed for */
	uint64		stamp;			/* of single blocks and parts: rises with the time of the claim */
	/* of parts: scans of the shard need it until so many keys are before them; down: downwards */
	uint64		until;
	bool		down;
	dlist_node	node;			/* in the list that its state says */
} KvWindow;

/*
 * A scan that reads through windows: its position and its course.  While the scan is in the
 * registry it pins its store.  Its backend writes this under KvWindowCache.lock, except for
 * progress, patience, awaited and waiting; the workers read it.
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
	volatile bool waiting;		/* it waits for what is awaited, or lacks room */
	volatile bool held;			/* loads for scans that follow come before its own */
	bool		wants_blocks;	/* it is in no span and wants single blocks (blockwindow.c) */
	volatile uint64 position;	/* it needs block windows from this stamp on; 0: none */
	volatile bool lacks_room;	/* it waits for windows that others need */
	volatile bool shares;		/* it finds blocks there that others asked for */
	uint64		at;				/* of parts: see kv_block_window_look; until 0: not known */
	uint64		until;
	bool		down;			/* it goes down in the order of keys */
	KvWindowKey awaited;
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
	dlist_head	free;
	int			nscans;			/* size of the registry */
	int			scans_used;		/* no entry at or after this index is in use */
	uint64		last_id;
	int			nworkers;		/* number of running workers */
	Latch	   *volatile workers[KV_MAX_PREFETCH_WORKERS];
	uint64		bytes_per_second;	/* recent rate at which the workers load */

	/* for single blocks: */
	int			nblock_scans;	/* scans that want them, at a worker's last check */
	int			nblock_groups;	/* these, but scans that are near each other count as one */
	KvSpan		blocks;			/* their windows, of all stores */
	int			nqueued;
	dlist_head	queue;			/* the oldest first */
	int			nwith_parts;	/* number of windows that have parts, or will have some */
	uint64		last_stamp;
	uint64		block_loads;	/* number of times that a worker has loaded some */
	pg_atomic_uint64 counters[KV_RANGE_COUNTERS];
} KvWindowCache;

extern KvWindowCache *kv_window_cache;
extern KvWindow *kv_windows;
extern KvWindowScan *kv_window_scans;
extern HTAB *kv_span_hash;
extern HTAB *kv_window_hash;	/* KvWindowEntry */
extern uint64 *kv_window_blocks;	/* KV_WINDOW_BLOCKS for each window */

/* Which block is in a slot of a window: its address / KV_BLOCK. */
static inline uint64 *
kv_window_block(int window, int slot)
{
	return &kv_window_blocks[window * KV_WINDOW_BLOCKS + slot];
}

/* The piece, the part or the single block, by its nblocks, that has an address. */
static inline KvWindowKey
kv_window_key(uint32 cache_id, int unit, KvAddress address)
{
	return (KvWindowKey) {cache_id, unit, address / KV_BLOCK / unit * unit};
}

/* Has the window single blocks or parts, and no piece? */
static inline bool
kv_window_is_single(const KvWindow *window)
{
	return window->span.segment == KV_SINGLE;
}

static inline int
kv_window_index(const KvWindow *window)
{
	return window - kv_windows;
}

/* A window of a list that has some; last: the last one. */
static inline int
kv_window_of(dlist_head *list, bool last)
{
	return kv_window_index(last ? dlist_tail_element(KvWindow, node, list) :
						   dlist_head_element(KvWindow, node, list));
}

/* The number of windows with single blocks or parts, or claimed for some.  Lock held, shared. */
static inline int
kv_window_singles(void)
{
	return kv_window_cache->blocks.nvalid + kv_window_cache->blocks.nloading;
}

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
/*
 * Does the span have a piece that is in no window and not being loaded?  Of the extents that scans
 * have wanted, the last ones looked up count.  If values have moved, windows of their old addresses
 * are freed; if files have grown, their last pieces are loaded again.
 */
extern bool kv_span_lacks(KvSpan *span, const KvExtents *wanted);

/* ---- window.c: states of windows; KvWindowCache.lock is held, exclusive ---- */

/* From FREE to CLAIMED, for the next piece of a span that lacks one; a window is free. */
extern int	kv_window_claim_piece(KvSpan *span, const KvStoreKey *store, uint64 wanted_by);
/* From FREE to CLAIMED, for single blocks or parts, by unit, of a store; a window is free. */
extern int	kv_window_claim_blocks(uint32 cache_id, const KvStoreKey *store, int unit,
								   uint64 wanted_by);
/* Gives a block or a part, which no window has, by its first block the next slots of a window. */
extern void kv_window_add(int window, uint64 block);
/* A window for blocks that is loaded or being loaded was wanted again: it is the newest one. */
extern void kv_window_renew(int window);
extern void kv_window_queue(int window);	/* from CLAIMED to QUEUED */
/* From QUEUED to CLAIMED; cache_id: of this store, 0: of any.  -1: there is none. */
extern int	kv_window_next(uint32 cache_id);
/*
 * From CLAIMED to VALID, except for its bad blocks.  If all are bad, gives it up instead.  Returns
 * whether it is VALID.
 */
extern bool kv_window_publish(int window);
extern void kv_window_give_up(int window);	/* from CLAIMED to FREE: it could not be filled */
extern void kv_window_evict(int window);	/* from VALID to FREE */
/* Evicts the span's last window.  Returns the span, or NULL if it has no other: forgets it. */
extern KvSpan *kv_span_evict(KvSpan *span);
/* Shared: the place where a piece or a block is or will be; false: nowhere. */
extern bool kv_window_find(const KvWindowKey *key, KvPlace *place);

/* ---- window.c: no lock is held on entry ---- */

/*
 * Notes that a piece of the span is in no window.  False: it will not be loaded, because values
 * have moved since found_at, the scan's KvExtents.found_at.
 */
extern bool kv_span_miss(const KvSpanKey *key, uint64 piece, uint32 found_at);
/* Like kv_window_find.  *coming: it is not yet loaded. */
extern bool kv_window_look(const KvWindowKey *key, KvPlace *place, bool *coming);

/* No VALID window has the present contents of the file there: the next reader has it loaded. */
extern void kv_window_lose(const KvWindowKey *key);
/* The window's memory.  The process that has claimed the window writes it. */
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

/* ---- reader.c; no lock is held on entry ---- */

/* A piece as it was when something was taken from it; bytes NULL: none. */
typedef struct KvPieceView
{
	const char *bytes;
	KvAddress	begin;
	uint32		len;
	uint64		sequence;
	KvWindow   *window;
} KvPieceView;

/* Sets the view of the piece with an address, from which the reader has taken a value. */
extern void kv_reader_view(const KvWindowReader *reader, KvAddress address, KvPieceView *view);

/* Copies bytes out of the piece.  False: they are not in it, or no longer. */
static inline bool
kv_piece_take(const KvPieceView *view, KvAddress address, uint32 len, char *into)
{
	if (view->bytes == NULL || address < view->begin || address + len > view->begin + view->len)
		return false;
	memcpy(into, view->bytes + (address - view->begin), len);
	pg_read_barrier();
	return pg_atomic_read_u64(&view->window->sequence) == view->sequence;
}

/*
 * Calls sleep, which may raise errors of interrupts, and returns its result.  The scan counts as
 * waiting in the meantime.  On ERROR it leaves the registry: in a subtransaction a cursor can
 * survive that, and must not count as a scan that waits.
 */
extern bool kv_reader_wait(KvWindowReader *reader, bool (*sleep) (KvWindowReader *, void *),
						   void *arg);

/* ---- blockwindow.c ---- */

/*
 * For the workers, with KvWindowCache.lock held exclusively.  Evicts a block window that no scan
 * needs any more; forced: or, if there are many, the oldest one.  False: there is none.
 */
extern bool kv_block_window_evict(bool forced, TimestampTz now);

/* ---- prefetch.c ---- */
extern int	kv_prefetch_workers;	/* maximum number */
extern PGDLLEXPORT void kv_prefetch_main(Datum arg);	/* a worker; arg is not used */
extern void kv_prefetch_gucs(void);	/* defines the settings of range cache and workers */

#endif							/* KV_WINDOW_H */
