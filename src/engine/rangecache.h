/*
 * rangecache.h
 *		What rangecache.c, rangescan.c, rangesteer.c, prefetch.c and hugepage.c share;
 *		nobody else includes this.
 *
 * The range cache is made of windows: pieces of value files in shared memory,
 * which prefetch workers fill for scans.  It is a cache of bytes by place and
 * knows nothing of keys, rows or snapshots.  A scan finds out by itself which
 * versions it sees and where their values lie; a window only saves it the read.
 * Every value is verified against its entry's CRC (I 4) after it was copied, so
 * a window with other bytes in it, for whatever reason, costs a read and never
 * shows.  Whatever is not in a window is read from the device.
 *
 * A span is what is loaded for the same reason and evicted when it is over: all of a
 * shard's value file, for scans that need it in the order of keys while it is in
 * another (scattered); or a segment of it, for scans to which the file is in order.
 * Its pieces are loaded and evicted one by one.
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
 * All changes of state are made under KvRange.lock, exclusive.  Readers look a
 * piece up under it, shared, once per piece; then they need no lock and no pin:
 * they note the window's sequence, copy, and look again.  So a reader that is
 * cancelled, killed or stopped leaves nothing behind, and nothing waits for it.
 *
 * Lock order: KvRange.lock comes last; nothing else is taken under it but a
 * condition variable's spinlock.
 */
#ifndef KV_RANGECACHE_H
#define KV_RANGECACHE_H

#include "engine/internal.h"

#define KV_WINDOW_SIZE	(256 * 1024)
#define KV_SEGMENT_PIECES 16
#define KV_SEGMENT_SIZE	((uint64) KV_SEGMENT_PIECES * KV_WINDOW_SIZE)
#define KV_WHOLE		PG_UINT32_MAX	/* instead of a segment: all of the shard */
#define KV_WANTS		16		/* spans that a scan has loaded for it, its own included */
#define KV_NEVER		PG_UINT32_MAX	/* distance of a span that a scan does not come to */

typedef struct KvSpanKey
{
	uint32		cache_id;		/* KvStore.cache_id */
	uint32		shard;
	uint32		segment;		/* or KV_WHOLE */
} KvSpanKey;

typedef struct KvPieceKey
{
	uint32		cache_id;
	uint32		shard;
	uint32		piece;			/* offset / KV_WINDOW_SIZE */
} KvPieceKey;

typedef struct KvPiece
{
	KvPieceKey	key;			/* hash key */
	int			window;
} KvPiece;

typedef struct KvSpan
{
	KvSpanKey	key;			/* hash key */
	uint64		end;			/* place in the file up to which scans have asked for it */
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
	KvPieceKey	key;
	KvSpanKey	span;
	uint32		len;			/* bytes that it holds, from its beginning */
	int			next;			/* in the free list or its span's, or -1 */
	int			previous;		/* in its span's list, or -1 */
	uint64		wanted_by;		/* KvRangeScan.id of the scan it was loaded for */
} KvWindow;

/* A span in which a scan is or to which it comes. */
typedef struct KvWant
{
	uint32		shard;
	uint32		segment;
	uint64		end;			/* of the span, as far as the file is written */
} KvWant;

/*
 * A scan that reads through windows: where it is and where it goes.  Written by
 * its backend, under KvRange.lock but for progress, patience and waiting; read by
 * the workers.
 */
typedef struct KvRangeScan
{
	uint64		id;				/* never repeats; 0: not in use */
	int			pid;
	uint32	   *wait_event;		/* its process's */
	KvStoreKey	store;
	uint32		cache_id;
	uint32		nshards;
	int			step;			/* 1 or -1: of shards */
	int			segment_step;	/* 1 or -1: of segments in the order of keys */
	uint32		shard;			/* where it is */
	uint32		segment;		/* there, or KV_WHOLE */
	uint32		last_segment;	/* there, about where it ends; KV_WHOLE: where the file does */
	uint32		last;			/* shard where it ends */
	bool		wraps;			/* behind the last shard comes the first */
	int			nwants;
	KvWant		wants[KV_WANTS];	/* in the order of its coming; [0] is where it is */

	TimestampTz progress;		/* it took its last batch then */
	volatile bool waiting;		/* for wait_piece of shard */
	volatile bool held;			/* its loads wait for scans behind it */
	uint32		wait_piece;
	int64		patience;		/* µs that it will still wait for others */
	ConditionVariable loaded;
} KvRangeScan;

typedef enum KvRangeCounter
{
	KV_RANGE_HITS,				/* windows found that were loaded for another scan before */
	KV_RANGE_LOADS,				/* windows loaded for the scan that took them */
	KV_RANGE_SHARED,			/* windows that were on their way for another scan */
	KV_RANGE_WAITS,				/* sleeps until a window was loaded */
	KV_RANGE_READS,				/* windows read from the device */
	KV_RANGE_READ_BYTES,
	KV_RANGE_EVICTIONS,
	KV_RANGE_COUNTERS
} KvRangeCounter;

typedef struct KvRange
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
	pg_atomic_uint64 counters[KV_RANGE_COUNTERS];
} KvRange;

extern KvRange *kv_range;
extern KvWindow *kv_windows;
extern KvRangeScan *kv_range_scans;
extern HTAB *kv_span_hash;
extern HTAB *kv_piece_hash;

/* The bytes that a span with no window missing holds. */
static inline uint64
kv_span_size(const KvSpanKey *key, uint64 end)
{
	return key->segment == KV_WHOLE ? end : end - key->segment * KV_SEGMENT_SIZE;
}

/* rangecache.c; lock: KvRange.lock is held, exclusive */
extern void kv_windows_map(void);
extern char *kv_window_bytes(int window);
extern KvSpan *kv_span_find(const KvSpanKey *key);	/* lock, or shared */
extern KvSpan *kv_span_make(const KvSpanKey *key);	/* lock; NULL: no room */
extern bool kv_span_failed(const KvSpan *span, TimestampTz now);	/* lock, or shared */
extern bool kv_span_retire(KvSpan *span);	/* lock */
extern bool kv_span_lacks(KvSpan *span, uint64 end); /* lock */
extern void kv_span_miss(const KvSpanKey *key, uint32 piece);
extern bool kv_window_claim(KvSpan *span, KvSpan *victim, uint64 wanted_by, int *window);	/* lock */
extern void kv_window_publish(int window, uint32 len);	/* lock */
extern void kv_window_give_up(int window);	/* lock */
extern int	kv_window_find(const KvPieceKey *key);
extern void kv_piece_lose(const KvPieceKey *key);

#define kv_range_count(what, n)	pg_atomic_fetch_add_u64(&kv_range->counters[what], (n))

/* hugepage.c */
extern char *kv_huge_map(char *memory, Size size);
extern void kv_huge_make(const char *bytes, Size len);

/* rangescan.c */
extern void kv_range_enter(KvScan *scan, const KvWant *wants, int nwants);
extern uint32 kv_range_distance(const KvRangeScan *scan, const KvSpanKey *span);
extern bool kv_range_is_live(const KvRangeScan *scan, TimestampTz now);

#endif							/* KV_RANGECACHE_H */
