/*
 * reader.h
 *		Windows as scans use them: the wants and the course of a scan, and how it takes values.
 *
 * Callers: scan/, and modules that need extents.  cache/window.h has the rest of the windows.
 * Locks: no lock is held on entry.
 */
#ifndef KV_READER_H
#define KV_READER_H

#include "datatype/timestamp.h"
#include "utils/palloc.h"

#include "engine/base/types.h"
#include "engine/rows.h"

#define KV_WINDOW_SIZE	(256 * 1024)
#define KV_WINDOW_BLOCKS (KV_WINDOW_SIZE / KV_BLOCK)
#define KV_PART_BLOCKS	16
#define KV_PART_SIZE	(KV_PART_BLOCKS * KV_BLOCK)
#define KV_WINDOW_PARTS (KV_WINDOW_BLOCKS / KV_PART_BLOCKS)
#define KV_SEGMENT_PIECES 16
#define KV_SEGMENT_SIZE	((uint64) KV_SEGMENT_PIECES * KV_WINDOW_SIZE)
#define KV_WHOLE		PG_UINT64_MAX	/* a segment number that stands for the whole shard */
#define KV_WANTS		16		/* spans that a scan has loaded, its own included */

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
	struct KvWindowScan *entry;	/* in the registry, or NULL */
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
	int			step;			/* 1 or -1: direction of addresses in stretches of its keys */
	int			together;		/* parts of a stretch loaded together; 0: single blocks */
	KvExtent	unwritten;		/* addresses of values that are in no file yet */
	int		   *parts;			/* where parts were found, or NULL; see part_at in reader.c */
	bool		with_parts;		/* it has asked for parts since its last look ahead */
	int			nmissed;		/* number of values of the last batch that were in no window */
	TimestampTz held;			/* end of its last wait for windows; 0: never */
	uint64		counted;		/* greatest counted stamp of a window that others asked for */
	int			nmet;			/* the first ones are in met */
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

/* ---- window.c ---- */
extern int	kv_window_number(void); /* number of windows that there are, or will be */

/* ---- scans.c ---- */

/*
 * The best start of a scan in any order: the position of another upward scan of the store, or
 * before that, where the contents of windows begin.  False: there is no such scan.
 */
extern bool kv_window_company(uint32 cache_id, KvScanStart *place);
/* Are most values of a shard in windows, or being loaded? */
extern bool kv_window_is_there(uint32 cache_id, uint32 shard);

/*
 * Enters wants[0], to read through windows from now on.  If the registry is full, or there is no
 * space for a segment, the reader leaves instead.
 */
extern void kv_reader_enter(KvWindowReader *reader, const KvCourse *course,
							const KvWant *wants, int nwants);
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
 * Copies bytes at an address out of windows; waits if workers load these.  Reads through single
 * blocks if the scan wants these, and then at most KV_BLOCK_WINDOW_VALUE bytes.  False: the caller
 * must read them.  The caller verifies the bytes (I 4).
 */
extern bool kv_reader_take(KvWindowReader *reader, KvAddress address, uint32 len, char *into);
/* The bytes that were taken are not those of the file. */
extern void kv_reader_lose(KvWindowReader *reader, KvAddress address, uint32 len);

/*
 * ---- blockwindow.c ----
 *
 * Block windows have single blocks or parts, for scans in key order of values that are stored in
 * another order and do not fit into the cache.  A scan looks ahead in the index and asks for the
 * blocks that it will need.  Workers read many missing blocks at a time, and scans that come to the
 * same keys a little later find them.  No lock is held on entry.
 */
/* the largest value that is read through block windows */
#define KV_BLOCK_WINDOW_VALUE	((uint32) KV_WINDOW_SIZE / 4)

/* Blocks of a part that a scan asks for. */
typedef struct KvWantedPart
{
	uint64		part;			/* address / KV_PART_SIZE */
	uint16		blocks;			/* a bit for each */
	bool		whole;			/* all of the part is worth loading */
} KvWantedPart;

extern bool kv_block_window_is_possible(void); /* large enough cache, and a worker? */
/* number of blocks that a scan should ask for in advance; parts: most of them in parts */
extern int	kv_block_window_reach(bool parts);
/* number of parts that a scan may have loaded at a time */
extern int	kv_block_window_parts(void);
/* For a scan that has left because nothing was loaded: is something loaded now? */
extern bool kv_block_window_stirs(const KvWindowReader *reader);
/*
 * The scan has looked ahead: it will ask for what it needs.  position, until: about so many keys of
 * the shard are before its position, and before the end of its look, in its direction.
 */
extern void kv_block_window_look(KvWindowReader *reader, uint64 position, uint64 until, bool down);
/*
 * Asks for these blocks, in ascending order of parts.  A part that is whole, or that follows one in
 * a window, is loaded as a whole if reader->together is not 0, and with parts after it.  now: the
 * next batch needs them, so the scan waits for windows that scans close after it still need, while
 * patience is left.  Raises the errors of interrupts.  False: some will not be loaded.
 */
extern bool kv_block_window_want(KvWindowReader *reader, const KvStoreKey *store,
								 const KvWantedPart *parts, int n, bool now);
extern void kv_block_window_progress(KvWindowReader *reader); /* the batch is complete */

#endif							/* KV_READER_H */
