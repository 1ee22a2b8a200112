/*
 * lifecycle.h
 *		Store life cycle: create, open, recover, truncate and drop.
 *
 * Locks:  takes the registry's lock, and shards' locks during recovery.  No lock of a shard is
 * held on entry.  Errors: opening an unusable store raises the error recorded in its file
 * "unusable".  Functions that are called at a transaction's end neither allocate nor raise.
 * Files are unlinked only after COMMIT (I 9).
 */
#ifndef KV_LIFECYCLE_H
#define KV_LIFECYCLE_H

#include "nodes/pg_list.h"
#include "utils/hsearch.h"

#include "engine/base/types.h"
#include "engine/shard/shard.h"

/* Work for the end of the transaction. */
typedef enum KvPendingKind
{
	KV_PENDING_CREATE,			/* abort: remove the table's directory */
	KV_PENDING_TRUNCATE,		/* commit: remove older generations; abort: this one */
	KV_PENDING_DROP,			/* commit: remove the table's directory */
	KV_PENDING_DROP_DATABASE,
	KV_PENDING_FOLLOW			/* commit: the generation is to move to another tablespace */
} KvPendingKind;

/* ---- generation.c ---- */
/*
 * The table's entry; reads the table's directory if that was not done.  NULL: there is none,
 * and !create.  Takes the registry's lock; ERROR if there are too many tables.
 */
extern KvTableEntry *kv_table_entry(Oid dboid, Oid relid, bool create);
/* After redo: enter the table without generations that were rolled back. */
extern void kv_table_resolve(Oid dboid, Oid relid);
/* NULL: it does not exist, or was dropped; may load the table. */
extern KvStore *kv_store_by_key(const KvStoreKey *key);
/* Redo of a CREATE record: make the generation. */
extern KvStore *kv_store_make(const KvStoreKey *key, const KvStoreShape *shape,
							  const KvKey *bounds);
/* Redo: a store was removed, unless another one has its key now. */
extern void kv_generation_remove(const KvStoreKey *key, uint64 id);

/* ---- unlogged.c ---- */
/* This transaction has just made the store: log nothing of it until COMMIT, if that is possible. */
extern void kv_unlogged_note(KvStore *store);

/* ---- open.c: the table file; kv_store_get_schema and kv_store_set_schema: engine/store.h ---- */
/*
 * When its creator has committed, remove the creator from the table file, so that clog may
 * forget it.
 */
extern void kv_store_resolve_creator(KvStore *store);
/*
 * At redo: the store was created in the WAL that is replayed, so from now on clog alone has the
 * status of its creator.
 */
extern void kv_store_trust_creator(KvStore *store);

/* ---- open.c ---- */
/* Recover the store, or wait for a process that does; ERROR if it is unusable. */
extern void kv_store_ensure_open(KvStore *store);

/* ---- helper.c ---- */
/*
 * Called by the opener: start up to n helpers, fewer if there are not enough slots for
 * processes.  They take part until kv_helpers_end, or until the store is not OPENING any more.
 */
extern void kv_helpers_start(KvStore *store, int n);
/*
 * Wait until the helpers that have begun have ended, and let no other begin: this includes
 * helpers of an earlier attempt, whose opener has failed.
 */
extern void kv_helpers_end(KvStore *store);
/*
 * In a helper: the store of that opening, or NULL if it accepts no helper any more.  Until the
 * process exits the store is neither opened again nor removed.
 */
extern KvStore *kv_helper_join(uint32 opening);

/* ---- recover.c ---- */
extern void kv_recovery_gucs(void);	/* at load: defines its settings */
/*
 * A helper's main function; arg is the cache_id of the opening.  Recovers shards until none is
 * left; does nothing if the opening has ended.
 */
extern PGDLLEXPORT void kv_recovery_worker_main(Datum arg);
/*
 * Called by the process that made the store OPENING; the caller makes it OPEN.  Recovers every
 * shard, with helpers if there is much to read.  ERROR if one cannot be recovered.
 */
extern void kv_store_recover(KvStore *store);

/*
 * Unlink value files that no shard lists: at the end of the store's recovery.  At level 'keys'
 * that is not done before redo ends, because redo may meet entries that name them.  Lists have
 * all value files of the newest marks; older marks were removed.  No process creates a value
 * file during that.
 */
extern void kv_value_files_sweep(KvStore *store);
/*
 * After that: free the allocated and unused parts of closed value files.  Parts that the mark
 * lists stay.
 */
extern void kv_value_files_cut(KvStore *store);

/* ---- drop.c: work for the end of the transaction ---- */
/*
 * Note the work that the end of the transaction, or a rollback of subtransaction subid, is to
 * do.  All kinds but CREATE make COMMIT wait until its record is on disk.
 */
extern void kv_pending_add(KvPendingKind kind, Oid dboid, Oid relid, uint32 generation,
						   SubTransactionId subid);

/* ---- drop.c ---- */
/*
 * In the maintainer: free write buffers that an earlier incarnation has left of stores that
 * redo has dropped.  Called when every table has been loaded, with the registry's lock.
 */
extern void kv_buffers_discard_unknown(void);
/*
 * These functions mark stores as dropped and rename their directory to a hidden name;
 * kv_drop_collect frees them later.  They neither raise nor allocate, and ignore what does not
 * exist.  They take the registry's lock, except kv_generation_discard: its caller holds it
 * exclusively.  first and last are included.
 */
extern void kv_generations_discard(Oid dboid, Oid relid, uint32 first, uint32 last);
extern void kv_table_discard(Oid dboid, Oid relid);
extern void kv_generation_discard(Oid dboid, Oid relid, uint32 generation);
extern void kv_database_discard(Oid dboid);
extern void kv_drop_collect(void);	/* frees dropped stores that are not pinned */
/*
 * Is the store in a directory that was renamed to a hidden name, and not yet removed?  Reads
 * directories.
 */
extern bool kv_store_was_dropped(const KvStoreKey *key);

/* ---- free.c ---- */
extern bool kv_free_knows(const char *path);	/* will this path be freed? */
/* In the maintainer: free a directory or value file that was renamed to a hidden name. */
extern void kv_free_add(const char *path);
extern void kv_free_if_due(void);	/* frees a step */
/* Nap for so long, or until the latch is set; before that, free a step, if one is due. */
extern void kv_free_or_nap(long ms, uint32 wait_event);

/* ---- sweep.c ---- */
/*
 * In the maintainer, in a transaction: remove directories of databases and tables that no
 * catalog names.  Waits for one worker per database.
 */
extern void kv_sweep_databases(void);
/*
 * That worker's main function; arg is the database.  Removes the directories of dropped tables.
 */
extern PGDLLEXPORT void kv_sweep_worker_main(Datum arg);

#endif							/* KV_LIFECYCLE_H */
