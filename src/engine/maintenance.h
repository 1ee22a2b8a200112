/*
 * maintenance.h
 *		What commands do to a whole store, when a table is due for ANALYZE, and statistics.
 *
 * Statistics are copies of counters that other processes change at the same time.  The caller holds
 * a lock on the relation of a store that it passes.
 *
 * All functions here raise ERROR unless they say otherwise.  None holds a lock when it returns.
 */
#ifndef KV_ENGINE_MAINTENANCE_H
#define KV_ENGINE_MAINTENANCE_H

#include "nodes/pg_list.h"

#include "engine/base/error.h"
#include "engine/base/key.h"
#include "engine/base/progress.h"
#include "engine/base/types.h"
#include "engine/rows.h"

/* ---- flushing and sizes (flush/flush.c, stat.c) ---- */
/* About how many rows the store has. */
extern uint64 kv_store_row_estimate(KvStore *store);
extern uint64 kv_store_size(KvStore *store);	/* bytes of all its files */
extern void kv_store_flush(KvStore *store);		/* flushes all memtables now */

/* ---- compacting (compact/worker.c, shard/account.c) ---- */
typedef struct KvCompacted
{
	uint64		moved_bytes;	/* of values, to other value files */
	uint64		freed_bytes;	/* of value files that were removed */
	const char *waiting_for;	/* why other value files, or dead values, still exist; or NULL */
} KvCompacted;

/*
 * Free the space of dead values; sorted: and put all values in key order.  Waits until
 * unreferenced value files are removed, unless that depends on other processes.  Serves
 * interrupts.  The caller holds a lock on the table that excludes TRUNCATE and DROP.
 */
extern void kv_store_compact(KvStore *store, bool sorted, KvCompacted *done);

/*
 * Called for each row whose value a compaction has moved, except the largest ones; NULL: no
 * call.  It is called in the compacting process, which may have no database, with no lock
 * held.  It must neither raise nor wait; key and value are valid until it returns.
 */
typedef void (*KvMovedHook) (Oid dboid, Oid relid, KvKey key, KvForm form, const char *value,
							 Size len);
extern KvMovedHook kv_moved_hook;

/*
 * Split every shard that has enough keys.  at_end: end each after its greatest key, and create
 * a new shard for later keys.  Waits until that is durable, and returns how many shards there
 * are.  Serves interrupts.  ERROR while a base backup is being taken.  The caller holds a lock
 * on the table that excludes TRUNCATE and DROP.
 */
extern int	kv_store_split(KvStore *store, bool at_end);

/* ---- warming (warm.c) ---- */

/*
 * Read the store's value files into the value cache, the newest ones first, as far as the cache
 * has free blocks; returns bytes.  Blocks that are cached already count.  Serves interrupts.
 */
extern uint64 kv_store_prewarm(KvStore *store);

/* ---- checking and statistics ---- */

/* Read and verify all files of one store (check.c). */
extern void kv_store_check(KvStore *store, KvProblemCallback report, void *arg);

/* Counters of each store, in the order of the view's columns. */
typedef enum KvStat
{
	KV_COUNT_INSERTS, KV_COUNT_UPDATES, KV_COUNT_DELETES,
	KV_COUNT_POINT_READS, KV_COUNT_RANGE_SCANS, KV_COUNT_ROWS_READ,
	KV_COUNT_DEVICE_READS, KV_COUNT_DEVICE_READ_BYTES,
	KV_COUNT_VALUE_BYTES, KV_COUNT_DEVICE_WRITE_BYTES,
	KV_COUNT_BUFFER_HITS, KV_COUNT_CACHE_HITS, KV_COUNT_FLUSHES, KV_COUNT_MEMORY_FLUSHES,
	KV_COUNT_RECOVERED_ENTRIES, KV_COUNT_RECOVERED_BUFFERS, KV_COUNT_RECOVERY_US,
	KV_COUNT_LOST_ENTRIES, KV_COUNT_LOST_LOG_BYTES, KV_COUNT_MOVED_READS,
	KV_COUNT_COMPACTIONS, KV_COUNT_MOVED_BYTES, KV_COUNT_SPACE_WAITS, KV_COUNT_RECENT_HITS,
	KV_COUNT_TIER_HITS, KV_COUNT_SPLITS,
	KV_COUNTERS
} KvStat;

typedef struct KvStoreStats
{
	Oid			dboid;
	Oid			relid;
	uint32		generation;
	KvWalLevel	wal;
	bool		unusable;
	int			shards;
	uint64		rows;			/* estimate: frozen keys plus recent ones */
	uint64		counts[KV_COUNTERS];
	uint64		memtable_bytes;	/* shared memory held now */
	uint64		runs;			/* run files now */
	uint64		value_files;	/* value files now */
	uint64		value_file_bytes;	/* allocated bytes of them */
	uint64		live_bytes;		/* of these, approximately the bytes that some version uses */
	uint64		unsorted_bytes; /* of these, bytes that were not put in order together */
	uint64		obsolete_value_files; /* value files that are not the table's any more */
	uint64		obsolete_bytes;
	const char *obsolete_waits_for;	/* why they still exist; NULL: there is none */
	uint64		space_bound;	/* the limit for value_file_bytes (I 19); PG_UINT64_MAX: none */
	const char *space_waits_for;	/* why it is not compacted, though it is due; or NULL */
} KvStoreStats;

typedef struct KvShardStats
{
	Oid			relid;
	uint32		generation;
	uint32		shard;
	uint32		position;		/* in key order, the first being 0 */
	uint64		entries;		/* of its index */
	uint64		value_file_bytes;	/* taken by its part of the value files */
	uint64		live_bytes;		/* of these, approximately the bytes that some version uses */
	uint64		unsorted_bytes; /* of these, bytes that were not put in order together */
	uint64		memtable_bytes;	/* shared memory held now */
	uint32		runs;			/* run files now */
} KvShardStats;

typedef struct KvCheckpointerStats
{
	uint64		checkpoints;	/* since the start, or kv_stat_reset() */
	uint64		lsn;			/* of the last one's WAL record */
	int64		ended;			/* TimestampTz; 0: there was none yet */
	uint64		duration_us;
	uint64		shards;			/* that it made durable */
	uint64		files;			/* that it synced */
	uint64		bytes;			/* of key logs and runs among them */
} KvCheckpointerStats;

/* Copy the checkpoint statistics. */
extern void kv_stat_checkpointer(KvCheckpointerStats *stats);

/* Call back for every shard of the open stores of database dboid, in key order. */
extern void kv_stat_shards(Oid dboid, void (*each) (void *arg, const KvShardStats *stats),
						   void *arg);

/* Call back for every open or unusable store of database dboid (InvalidOid: all). */
extern void kv_stat_stores(Oid dboid, void (*each) (void *arg, const KvStoreStats *stats),
						   void *arg);

typedef struct KvWindowStats
{
	uint64		windows;		/* in the range cache */
	uint64		window_size;	/* bytes */
	uint64		used;			/* windows that contain blocks */
	uint64		scans;			/* scans that read through windows now */
	uint64		hits, loads, shared, waits;	/* as in KvScanStats */
	uint64		reads, read_bytes;	/* of prefetch workers */
	uint64		evictions;
} KvWindowStats;

/* The range cache's counters and present state; all 0 if the cache is off. */
extern void kv_stat_windows(KvWindowStats *stats);

#define KV_NO_COUNT	PG_UINT64_MAX	/* a cache has no such number */

/* A cache, or the device, from which values are read. */
typedef struct KvCacheStats
{
	const char *cache;
	bool		enabled;		/* false: its size is 0, or its file has failed */
	uint64		hits;			/* values read there; of the device: reads */
	uint64		block_size;		/* bytes of a block, which is inserted and evicted as a whole */
	uint64		inserted;		/* blocks */
	uint64		evictions;		/* blocks that left, in whatever way */
	uint64		dropped;		/* blocks that were to be inserted and were not */
	uint64		errors;			/* values that failed verification there, and failed reads */
	uint64		size_bytes;		/* capacity */
	uint64		used_bytes;		/* part of the capacity that is in use */
	/* values read from the device that were not here, by reason; not KV_MISS_NONE */
	uint64		misses[KV_MISSES];
} KvCacheStats;

typedef struct KvIoStats
{
	const char *kind;			/* 'value read', 'value write', 'key log write', … */
	uint64		calls;
	uint64		bytes;
	uint64		errors;
} KvIoStats;

extern int	kv_stat_io(KvIoStats *out, int max);	/* returns how many kinds */
extern const char *kv_stat_io_method(void);	/* 'io_uring' or 'sync', as in use */

/* Call back for each cache in the order of lookup; counts are those of all databases. */
extern void kv_stat_caches(void (*each) (void *arg, const KvCacheStats *stats), void *arg);
/*
 * Set the counters of stores, I/O, caches and checkpoints to 0.  Sizes and the facts of the last
 * checkpoint stay.
 */
extern void kv_stat_reset(void);

/* ---- when to analyze (stat.c) ---- */
/* ANALYZE: the number of changes when it begins, and a note of it when it ends. */
extern uint64 kv_changes_now(KvStore *store);
extern void kv_changes_analyzed(KvStore *store, uint64 changes);

typedef struct KvChanges
{
	Oid			relid;
	uint32		generation;
	uint64		since;			/* rows changed since the last ANALYZE, or the start */
	bool		analyzed;		/* since the server started */
	uint64		rows;			/* estimate */
} KvChanges;

extern void kv_analyze_attend(void);	/* in the process that analyzes, once it is connected */
extern List *kv_changes_of(Oid dboid);	/* of all stores that can be used, palloc'd */

/*
 * Update a KvChanges: another process may have analyzed the table, or changed more.  Does
 * nothing if the store was dropped.
 */
extern void kv_changes_again(Oid dboid, KvChanges *changes);

/* The table need not be checked again before so many changes. */
extern void kv_changes_need(Oid dboid, const KvChanges *changes, uint64 needed);

#endif							/* KV_ENGINE_MAINTENANCE_H */
