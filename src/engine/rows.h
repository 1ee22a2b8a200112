/*
 * rows.h
 *		Rows of a store: scans, counts, reads by key, and writes.
 *
 * The caller holds a lock on the relation.  Heap's rules decide which rows a snapshot sees (I 1),
 * and who may write a key (I 2).
 *
 * All functions here raise ERROR unless they say otherwise.  None holds a lock when it returns.
 */
#ifndef KV_ENGINE_ROWS_H
#define KV_ENGINE_ROWS_H

#include "access/transam.h"
#include "nodes/lockoptions.h"
#include "utils/relcache.h"
#include "utils/snapshot.h"

#include "engine/base/key.h"
#include "engine/base/types.h"

/* One visible row.  Its memory belongs to the scan and lasts until the scan's next call. */
typedef struct KvRow
{
	const uint8 *key;
	int			keylen;
	KvForm		form;
	uint32		len;			/* bytes of value */
	const char *value;			/* NULL if the scan does not want values */
	void	   *header;			/* space for a varlena header right before value, or NULL */
} KvRow;

/* Why a value was not found in a cache that was asked for it. */
typedef enum KvMiss
{
	KV_MISS_NONE,				/* it was found, or the cache was not asked */
	KV_MISS_OFF,				/* the cache is off: its size is 0, or its file has failed */
	KV_MISS_OVERSIZED,			/* the cache takes no value of this size */
	KV_MISS_ABSENT,				/* it has left no trace there since the start of the server */
	KV_MISS_PROBATION,			/* it was evicted before it was read a second time */
	KV_MISS_EVICTED,			/* it was there until others took its place */
	KV_MISS_PARTIAL,			/* some of its blocks are there */
	KV_MISS_BUSY,				/* another process was writing it there, or over it */
	KV_MISS_DAMAGED,			/* it was there and failed verification */
	KV_MISSES
} KvMiss;

/* The caches whose misses are counted, in the order in which they are asked. */
typedef enum KvAsked
{
	KV_ASKED_RECENT,			/* the recent ring */
	KV_ASKED_BLOCKS,			/* the value cache */
	KV_ASKED_TIER,				/* the second tier */
	KV_ASKED
} KvAsked;

/* Work done by one scan, for EXPLAIN (ANALYZE). */
typedef struct KvScanStats
{
	uint64		device_reads;
	uint64		device_bytes;
	uint64		buffer_hits;	/* values served from write buffers */
	uint64		recent_hits;	/* values served from the recent ring */
	uint64		tier_hits;		/* values served from the second tier */
	uint64		cache_hits;		/* values served from the value cache */
	uint64		windows_hit;	/* windows of the range cache, loaded for other scans before */
	uint64		windows_loaded; /* windows loaded for this scan */
	uint64		windows_shared; /* windows loaded for other scans, while this one waited too */
	uint64		windows_waited; /* waits until a window was loaded */
	uint64		dead_keys;		/* keys that were skipped, as the snapshot sees no row of them */
	uint64		misses[KV_ASKED][KV_MISSES];	/* values that a cache did not have, by reason */
} KvScanStats;

/* ---- reading (scan/scan.c) ---- */
typedef struct KvScan KvScan;

/*
 * A scan of one store under one snapshot.  want_values false: keys only, no value is read.
 * Allocated in CurrentMemoryContext; owns nothing that an ERROR could leak.
 */
extern KvScan *kv_scan_begin(KvStore *store, Snapshot snapshot, bool want_values);

typedef enum KvScanOrder
{
	KV_ASCENDING,
	KV_DESCENDING,
	KV_ANY_ORDER,				/* begins where other scans are, and wraps around */
	KV_BY_ADDRESS				/* as KV_ANY_ORDER, but scattered shards in order of address */
} KvScanOrder;

/*
 * Position on a key range.  lo is inclusive, hi is exclusive; data NULL is unbounded, which
 * both are for KV_ANY_ORDER and KV_BY_ADDRESS.  limit_hint: how many rows the caller is likely
 * to take, 0: all.
 */
extern void kv_scan_range(KvScan *scan, KvKey lo, KvKey hi, KvScanOrder order,
						  uint64 limit_hint);

/*
 * Called before kv_scan_range of a part of [lo, hi): other processes scan the other parts, and
 * this one some of them.
 */
extern void kv_scan_share(KvScan *scan, KvKey lo, KvKey hi, KvScanOrder order);

/* The scan has no more range for now: nothing is loaded or kept for it. */
extern void kv_scan_leave(KvScan *scan);

/*
 * Position on a set of keys; the rows are returned in the order of the keys given, absent keys
 * are skipped.  The keys are copied.
 */
extern void kv_scan_points(KvScan *scan, const KvKey *keys, int nkeys);

/*
 * The next visible row of the position, with its value if the scan wants values; false:
 * there are no more.  Serves interrupts; damage is an ERROR (I 11).
 */
extern bool kv_scan_next(KvScan *scan, KvRow *row);

/*
 * What a scan has seen of the key of the row that it has returned last.  A writer of that row need
 * not search the runs again if they are still the same.
 */
typedef struct KvSeen
{
	uint32		shard_id;
	uint32		generation;		/* of the shard's runs */
	KvVersion	version;		/* the only one that they have of the key, and committed */
} KvSeen;

/* False: that row has another key, or was not the only version of its key in the runs. */
extern bool kv_scan_seen(const KvScan *scan, KvKey key, KvSeen *seen);

/*
 * How many rows of a range the scan's snapshot sees: lo inclusive, hi exclusive,
 * data NULL for none.  Reads no value, and ends the scan's position.
 */
extern uint64 kv_scan_count(KvScan *scan, KvKey lo, KvKey hi);

/*
 * At SERIALIZABLE: the writers whose versions the scan has met and not seen since the last
 * call, for CheckForSerializableConflictOut.
 */
extern int	kv_scan_take_conflicts(KvScan *scan, const TransactionId **xids);
extern const KvScanStats *kv_scan_stats(KvScan *scan);
/*
 * note_shards: from now on the scan notes in which shards it looks.  shards: in how many it has
 * looked, and how many the table has.
 */
extern void kv_scan_note_shards(KvScan *scan);
/*
 * From now on misses[] of kv_scan_stats counts each value that a cache did not have.  Otherwise it
 * counts only those that were also in no other cache.
 */
extern void kv_scan_explain_misses(KvScan *scan);
extern void kv_scan_shards(const KvScan *scan, uint32 *met, uint32 *all);
extern void kv_scan_end(KvScan *scan);

/*
 * The approximate share of the store's rows that are in scattered shards.  Their values are not
 * stored in key order, and the range cache cannot hold such a shard.
 */
extern double kv_store_scattered(KvStore *store);
/* The approximate mean length of the store's values; 0: it has none. */
extern double kv_store_value_width(KvStore *store);

/* A boundary between two keys: no key is as short, or it is the beginning of a key. */
typedef struct KvCut
{
	uint8		len;
	uint8		bytes[8];
} KvCut;

/*
 * Find up to max boundaries, in key order, that cut the store into pieces of about the same
 * number of rows.  Returns how many.
 */
extern int	kv_store_cuts(KvStore *store, KvCut *splits, int max);

/* ---- inserting (write/write.c) ---- */
typedef enum KvInsertResult
{
	KV_INSERTED,
	KV_EXISTS,					/* a live row has that key; nothing was written */
	KV_EXISTS_UNSEEN, /* the live row is another transaction's, and the snapshot does not see it */
	KV_EXISTS_DELETED,			/* a live row was met, and was deleted concurrently */
	KV_EXISTS_ANEW				/* the live row was written by this command, or later */
} KvInsertResult;

/*
 * Insert a row unless its key exists; waits for an unfinished writer of the key.  replace:
 * overwrite an existing row instead, after waiting for transactions that have the row locked.
 */
extern KvInsertResult kv_insert(KvStore *store, Relation rel, KvKey key,
								KvForm form, const char *value, Size len,
								Snapshot snapshot, CommandId cid, bool replace);

#define KV_INSERTED_TOGETHER	64

typedef struct KvInsert
{
	KvKey		key;
	KvForm		form;
	const char *value;
	Size		len;
} KvInsert;

/*
 * Insert the first of up to KV_INSERTED_TOGETHER rows, as kv_insert does one after the other.
 * Returns how many: the next row needs kv_insert, because its key exists, or something must be
 * waited for.
 */
extern int	kv_insert_many(KvStore *store, const KvInsert *rows, int n, CommandId cid);

/*
 * Insert a row unless its key exists; then lock the newest version in the given mode, whether
 * the snapshot sees it or not, and return it in *existing (KV_EXISTS).  Its value is palloc'd
 * in CurrentMemoryContext, its key is the caller's.  With existing NULL the value is not read.
 * Waits for all transactions that write the key or have it locked.
 *
 * Nothing is locked for KV_EXISTS_UNSEEN (also of a row that has another key since it was met)
 * and KV_EXISTS_DELETED, for snapshots that last a transaction only, and for KV_EXISTS_ANEW.
 *
 * mode KV_NO_ROW_LOCK: nothing is locked, transactions that have the row locked are not waited
 * for, rows of this command are KV_EXISTS as well, and no xid is assigned unless the row is
 * inserted.
 *
 * With seen the version is not locked but noted in *seen, for kv_overwrite.  kv_overwrite
 * writes nothing and returns false if other transactions have written or locked the row since,
 * or wait to; the caller then calls with met.
 */
#define KV_NO_ROW_LOCK	(-1)	/* in place of a LockTupleMode */
extern KvInsertResult kv_insert_or_lock(KvStore *store, Relation rel, KvKey key,
										KvForm form, const char *value, Size len,
										Snapshot snapshot, CommandId cid,
										int mode, KvVersion *seen, bool met,
										KvRow *existing);
extern bool kv_overwrite(KvStore *store, KvKey key, const KvVersion *seen, KvForm form,
						 const char *value, Size len, CommandId cid);

/* ---- locking and changing rows (write/rowlock.c) ---- */
typedef enum KvRowResult
{
	KV_ROW_DONE,				/* the version the snapshot sees is locked or changed */
	KV_ROW_NEWER,				/* *newer, a later one, is locked; nothing is changed */
	KV_ROW_GONE,				/* deleted concurrently, or changed by this command */
	KV_ROW_CHANGED_LATER,		/* changed by a later command of this transaction */
	KV_ROW_SKIPPED,				/* LockWaitSkip met a lock */

	/* above READ COMMITTED, if another transaction has changed it since */
	KV_ROW_UPDATED,
	KV_ROW_DELETED
} KvRowResult;

/*
 * Lock, overwrite or delete the row that the snapshot sees at key, for the current
 * (sub)transaction and command, waiting for other transactions that have it locked.
 *
 * At READ COMMITTED a row that has been changed since is locked nevertheless and its newest
 * version returned in *newer (KV_ROW_NEWER; otherwise *newer is unchanged).  Its value is
 * palloc'd in CurrentMemoryContext, and so is its key if that is another one; else it is the
 * caller's.  To change the row nevertheless, call again with that key and a NULL snapshot,
 * which means the version that this transaction has locked.
 *
 * kv_update takes a NoKeyExclusive lock, kv_delete an Exclusive one.  moved_to is the key to
 * which the row moves, or has no data.  rel is for error messages and lock waits.  seen: from
 * kv_scan_seen, or NULL.
 */
extern KvRowResult kv_lock_row(KvStore *store, Relation rel, KvKey key,
							   Snapshot snapshot, LockTupleMode mode,
							   LockWaitPolicy policy, CommandId cid, const KvSeen *seen,
							   KvRow *newer);
extern KvRowResult kv_update(KvStore *store, Relation rel, KvKey key, Snapshot snapshot,
							 KvForm form, const char *value, Size len,
							 CommandId cid, KvRow *newer);
extern KvRowResult kv_delete(KvStore *store, Relation rel, KvKey key, Snapshot snapshot,
							 KvKey moved_to, CommandId cid, KvRow *newer);

#define KV_DELETED_TOGETHER	64

typedef struct KvDelete
{
	KvKey		key;
	const KvSeen *seen;			/* from kv_scan_seen, or NULL */
} KvDelete;

/*
 * Delete the first of up to KV_DELETED_TOGETHER rows that the snapshot sees, as kv_delete does one
 * after the other.  Returns how many: the next row needs kv_delete, because others have changed or
 * locked it, or something must be waited for.
 */
extern int	kv_delete_many(KvStore *store, const KvDelete *rows, int n, Snapshot snapshot,
						   CommandId cid);

/* ---- rows by key, for a process that must not wait (scan/scan.c, write/rowlock.c) ---- */
typedef enum KvGetStatus
{
	KV_GET_NONE,				/* the snapshot sees no row */
	KV_GET_FOUND,				/* the row is in row, with its value */
	KV_GET_UNREAD,				/* its value is on the device */
	KV_GET_FAILED				/* its value cannot be read; problem is the SQLSTATE */
} KvGetStatus;

typedef struct KvGet
{
	KvKey		key;			/* input */
	/* input: the key is not looked up, and stays NONE; all other fields are output */
	bool		passed;
	KvGetStatus status;
	KvVersion	version;		/* unless NONE: the version that was seen, for kv_put_if */
	KvRow		row;			/* unless NONE: the row; its key is the one given */
	int			problem;
} KvGet;

/*
 * Look up n keys under the snapshot.  Values are returned as far as they are in memory,
 * palloc'd in CurrentMemoryContext.  *bytes is lowered by the values' sizes, on the device or
 * not; at 0 the lookup stops.  Returns how many keys were looked up.  A damaged value is
 * logged, and its SQLSTATE is that key's problem; a damaged index file is an ERROR.
 */
extern int	kv_get(KvStore *store, Snapshot snapshot, KvGet *gets, int n, Size *bytes);
/* Read the UNREAD values, in one batch; then they are FOUND or FAILED. */
extern void kv_get_read(KvStore *store, KvGet *gets, int n);

typedef enum KvPut
{
	KV_PUT_DONE,
	KV_PUT_CHANGED,				/* the newest version is not the expected one */
	KV_PUT_LOCKED,				/* another transaction writes it or has it locked */
	KV_PUT_NO_ROOM	/* there is no memtable memory for it now; the maintainer is asked for some */
} KvPut;

typedef struct KvPutValue
{
	KvForm		form;
	const char *value;
	Size		len;
} KvPutValue;

/* An expected version for kv_put_if that equals any, or none. */
extern const KvVersion kv_any_version;

/*
 * Put a value (NULL: delete) at a key whose newest version is the expected one.  NULL: there is
 * none; &kv_any_version, not for a delete: any.
 *
 * Never waits for a transaction, a write buffer, memory or the checkpointer.  Does wait for the
 * device if a value file must grow or the value is larger than a write buffer.
 *
 * yields: a row in whose queue sessions wait is LOCKED, also when the transaction that they
 * have waited for has ended.  *made: the new version, if DONE.  *in_the_way: the transaction
 * that has the lock, if LOCKED; InvalidTransactionId if the queue is the reason.
 */
extern KvPut kv_put_if(KvStore *store, KvKey key, const KvVersion *expected,
					   const KvPutValue *put, CommandId cid, bool yields, KvVersion *made,
					   TransactionId *in_the_way);

/*
 * Flush, in a transaction, for processes that got KV_PUT_NO_ROOM.  If the maintainer has been
 * asked for memory for so many ms without success, this process flushes in its place, tables of
 * any kind and perhaps for seconds.  Errors are logged.  Returns after how many ms to call it
 * again, as there is still no memory; 0: when memory is needed again.
 */
extern int kv_make_room_for_others(int patience);

/*
 * A number, at least 2^60 and below 2^62, that no other version of a key has while that version
 * exists: every write gives another one, in any process.  Versions of an empty value may share
 * a number.  A number from before this start of the server, or of another server, is that of no
 * version, but for one chance in 2^60.  A version gets another number when compaction moves its
 * value; and once if it was written before kv_numbers_stay, and was still in a write buffer then.
 */
extern uint64 kv_version_number(const KvStore *store, const KvVersion *version);
/* From now on write buffers of this store are written as they are, so numbers stay. */
extern void kv_numbers_stay(KvStore *store);

#endif							/* KV_ENGINE_ROWS_H */
