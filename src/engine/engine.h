/*
 * engine.h
 *		The engine's contract with the SQL side, and its invariants.
 *
 * Code and tests cite the invariants below as (I 1) … (I 19).  8 and 15 are free: I 14 has both.
 *
 *  I 1  Heap's rules decide visibility.  A version is visible if and only if a
 *       heap tuple with the same xid and command id would be, under the same
 *       snapshot.  No callback publishes anything.
 *  I 2  One writer per key.  A write that meets another transaction's
 *       unfinished version waits for that xid, then looks again.
 *  I 3  Data before index, index before acknowledgement.  An entry becomes
 *       valid (its CRC is stored last) only when the value it names is
 *       readable through its location.
 *  I 4  A location is authoritative once.  An entry's CRC covers key, value,
 *       store, file and offset and is verified on every read.
 *  I 5  An inode is either mmap'd or O_DIRECT, never both; an O_DIRECT file may be
 *       read through the page cache, but is never written so (io.h).  Every mmap'd
 *       byte was written before it was mapped.  Nothing truncates a mapped file.
 *  I 6  A submitted buffer is sealed until its write completes; I/O memory
 *       outlives any ERROR.
 *  I 7  No lock across device I/O, across returning a row, or across waiting
 *       for a client.
 *  I 9  Unlink only after COMMIT.
 *  I 10 Entries of a dead incarnation with xid >= the next xid at the end of
 *       that recovery are aborted, resolved before such an xid is handed out.
 *  I 11 Never wrong bytes, never silence.  Damage is an ERROR (XX001) naming
 *       file, offset and key; other keys keep working.
 *  I 12 Bounded memory: every structure lives inside a GUC-sized budget.
 *  I 13 An address is given out once between two starts of the server, and
 *       never again once an entry names it whose transaction may have committed.
 *  I 14 A file is removed, or a value file cut, only when no live version of a shard names it,
 *       and readers outlive it.  Live are: the present version; the newest mark, and at level
 *       none the logs after it; each mark and map to which a start may go back; while a base
 *       backup runs all that were live when it began; and an output that is being written.
 *       A version names what a key log, a write buffer or the WAL that is still to be read for
 *       it names.  The present version stops naming a value file only by a merge of all runs
 *       that has emitted no entry naming it.  At that time the file is closed, no writer of a
 *       large value in it runs, and all entries naming it are in the merged runs.
 *  I 16 A value that cannot be read or verified is damage only if its key, looked
 *       up again, still has it at the same address.
 *  I 17 Before a shard lists a value file that a compaction has written, every value in it
 *       that an entry will name has been verified, sealed for its new address, and made
 *       durable.
 *  I 18 A process reads or writes a key in a shard only while the map in which it
 *       found the shard still has the shard's bounds.
 *  I 19 A store's value files have at most kvfdw.max_space_amplification times the
 *       bytes of its live values, plus a constant for each shard and one compaction.
 *       Exceptions: a base backup runs, the disk is full, or nothing compacts.  Values
 *       that an older snapshot sees, or a running transaction wrote, are live.
 *
 * All functions here raise ERROR unless they say otherwise.  None holds a lock when it returns.
 */
#ifndef KV_ENGINE_H
#define KV_ENGINE_H

#include "access/transam.h"
#include "lib/stringinfo.h"
#include "nodes/lockoptions.h"
#include "storage/block.h"
#include "utils/relcache.h"
#include "utils/snapshot.h"

#include "engine/base/key.h"
#include "engine/base/error.h"
#include "engine/base/progress.h"
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

/* ---- module start (kvfdw.c calls these) ---- */
extern void kv_engine_gucs(void);	/* defines the engine's GUCs */
extern void kv_engine_preload(void);	/* shmem request, hooks, workers, rmgr */

/* Version of the running server, which may be newer than the one compiled for: 150015, say. */
extern int	kv_server_version(void);

/* ---- stores (lifecycle/generation.c) ---- */

/*
 * The store of a table, recovered if this is its first use since the server started.  The
 * caller holds a lock on the relation.  Returns NULL if no row was ever written and bounds is
 * NULL.
 *
 * If bounds is given a missing store is created.  It gets so many shards, key_width (every
 * key's encoded length, or 0), wal, and its value files in tablespace (InvalidOid: the data
 * directory).  created_in: the subtransaction that created the relation, if that was in this
 * transaction.
 */
extern KvStore *kv_store_open(Oid dboid, Oid relid, int shards, int key_width,
							  const KvKey *bounds, KvWalLevel wal, Oid tablespace,
							  SubTransactionId created_in);

/*
 * False: kv_store_open would recover the table's store, or, if *opening is set, wait for a
 * process that does.  A store that was created since the start needs no recovery.  The caller
 * holds a lock on the relation.
 */
extern bool kv_store_is_ready(Oid dboid, Oid relid, bool *opening);

/* TRUNCATE: create a new, empty generation that becomes the table's at COMMIT. */
extern void kv_store_truncate(Oid dboid, Oid relid, int shards, int key_width,
							  const KvKey *bounds, KvWalLevel wal, Oid tablespace,
							  SubTransactionId created_in);
/*
 * The rows of such a generation were copied from the previous one, so older snapshots see none
 * of them.
 */
extern void kv_store_note_copied(KvStore *store);
/* False: the snapshot is older than the copy. */
extern bool kv_store_serves(KvStore *store, Snapshot snapshot);
/* DROP: remove the store from the registry, and unlink its files, at COMMIT. */
extern void kv_store_drop_at_commit(Oid dboid, Oid relid);
extern void kv_store_drop_database_at_commit(Oid dboid);

/*
 * The schema image that the SQL side stores in a store: an opaque string that it compares at
 * open. set replaces the image durably.  get returns the incarnation of the server that wrote
 * it, for kv_xid_was_lost.
 */
extern uint32 kv_store_get_schema(KvStore *store, StringInfo into);
extern void kv_store_set_schema(KvStore *store, const char *data, int len);

/* Is the xid, noted in that incarnation, of a transaction that a crash has rolled back? */
extern bool kv_xid_was_lost(uint64 xid, uint32 incarnation);

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

/* Was the store made for keys of this width, each key's encoded length or 0? */
extern bool kv_store_fits_keys(const KvStore *store, int key_width);
extern uint64 kv_store_row_estimate(KvStore *store);
extern uint64 kv_store_size(KvStore *store);	/* bytes of all its files */
extern void kv_store_flush(KvStore *store);		/* flushes all memtables now */
/* The wal level with which a table's data was written; false if it has no usable data. */
extern bool kv_store_wal_level(Oid dboid, Oid relid, KvWalLevel *level);
/*
 * The tablespace of the store's values, InvalidOid: none; returns false if the table has no
 * usable data.
 */
extern bool kv_store_tablespace(Oid dboid, Oid relid, Oid *tablespace);
/* A store with value files in a tablespace.  False: there is none. */
extern bool kv_space_user(Oid tablespace, Oid *dboid, Oid *relid);
/*
 * A store that creates its value files in the tablespace, has never moved, and could not be
 * opened without it.  False: there is none.
 */
extern bool kv_space_awaits_move(Oid tablespace, Oid *dboid, Oid *relid);
/* Does the store have values in tablespaces, or may it have? */
extern bool kv_store_has_tablespaces(Oid dboid, Oid relid);
/*
 * Moving a table's values to another tablespace, value file by value file, while readers and
 * writers run.
 *
 *  - follow: the catalog names the tablespace, and is committed; new value files are created
 *    there from now on.  ERROR: its directory there cannot be created.
 *  - can_follow: false if the values are leaving too many tablespaces already.  ERROR: as
 *    above.
 *  - lies_in: the store has followed, and is not asked to follow elsewhere.
 */
extern void kv_store_follow(KvStore *store, Oid tablespace);
extern bool kv_store_can_follow(KvStore *store, Oid tablespace);
extern bool kv_store_lies_in(KvStore *store, Oid tablespace);
extern void kv_store_follow_at_commit(KvStore *store, Oid tablespace);

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
 * which the row moves, or has no data.  rel is for error messages and lock waits.
 */
extern KvRowResult kv_lock_row(KvStore *store, Relation rel, KvKey key,
							   Snapshot snapshot, LockTupleMode mode,
							   LockWaitPolicy policy, CommandId cid, KvRow *newer);
extern KvRowResult kv_update(KvStore *store, Relation rel, KvKey key, Snapshot snapshot,
							 KvForm form, const char *value, Size len,
							 CommandId cid, KvRow *newer);
extern KvRowResult kv_delete(KvStore *store, Relation rel, KvKey key, Snapshot snapshot,
							 KvKey moved_to, CommandId cid, KvRow *newer);

/* ---- rows by key, for a process that must not wait (scan/scan.c, write/put.c) ---- */
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
 * version, but for one chance in 2^60.
 */
extern uint64 kv_version_number(const KvStore *store, const KvVersion *version);

/* ---- transactions (called by hooks.c's callbacks) ---- */
extern void kv_engine_before_commit(void);	/* PRE_COMMIT, PRE_PREPARE: may throw */
extern void kv_engine_at_prepare(void);	/* as at_commit */
extern void kv_engine_at_commit(void);	/* never throws, allocates or waits */
/* As at_commit: discards the stores that the transaction's CREATE or TRUNCATE has made. */
extern void kv_engine_at_abort(void);
/*
 * Never throws.  On commit the pending work of mine becomes parent's; else as at_abort, for
 * mine.
 */
extern void kv_engine_at_subxact(bool commit, SubTransactionId mine,
								 SubTransactionId parent);
extern bool kv_engine_has_pending_files(void);	/* TRUNCATE or DROP pending */
/*
 * This session begins a backup with pg_backup_start: may throw.  Or it runs none: as at_commit.
 */
extern void kv_engine_note_backup(bool running);

/* ---- when to analyze (statistics.c, write/write.c) ---- */

/* Rows count as changed when their transaction has ended.  Called as kv_engine_at_commit. */
extern void kv_changes_at_end(bool commit);
extern void kv_changes_at_subxact_abort(SubTransactionId subid);

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

/* ---- pg_upgrade (restart/takeover.c) ---- */
/*
 * In the old server: record durably the tables of a database that were never written to.
 * Replaces an earlier record of the database.
 */
extern void kv_unwritten_note(Oid dboid, const List *relids);
/* In the new server: was the table recorded so?  ERROR (XX001) if the record is damaged. */
extern bool kv_unwritten_has(Oid dboid, Oid relid);
/*
 * In the new server: record that pg_upgrade has created tables in the database; kvfdw_upgrade
 * checks that.
 */
extern void kv_upgraded_note(Oid dboid);

/* ---- compacting (compact/worker.c, shard/account.c) ---- */
typedef struct KvCompacted
{
	uint64		moved_bytes;	/* of values, to other value files */
	uint64		freed_bytes;	/* of value files that were removed */
	const char *waiting_for;	/* why other value files, or dead values, still exist; or NULL */
} KvCompacted;

/*
 * From now on, while the server runs, the store has this kvfdw.max_space_amplification of its
 * own; -1: the setting.
 */
extern void kv_store_bound_space(KvStore *store, double amp);

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
	uint64		retired_value_files; /* value files that are not the table's any more */
	uint64		retired_bytes;
	const char *retired_waits_for;	/* why they still exist; NULL: there is none */
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

/* ---- test builds (io/fault.c) ---- */
#ifdef KVFDW_FAULTS
/* Does kvfdw.skip name this step? */
extern bool kv_fault_skips(const char *step);
#else
#define kv_fault_skips(step) false
#endif

#endif							/* KV_ENGINE_H */
