/*
 * lifecycle.h
 *		How stores come to be, are opened and recovered, and go.
 *
 * Takes the registry's lock, and shards' locks when it recovers; no lock of a shard is held
 * on entry.  A store that cannot be used raises what its file "unusable" says.
 * What runs at a transaction's end neither allocates nor raises; files are unlinked
 * after COMMIT only (I 9).
 */
#ifndef KV_LIFECYCLE_H
#define KV_LIFECYCLE_H

#include "nodes/pg_list.h"
#include "utils/hsearch.h"

#include "engine/base/types.h"
#include "engine/shard/shard.h"

/* What is to be done at the end of the transaction. */
typedef enum KvPendingKind
{
	KV_PENDING_CREATE,			/* abort: remove the table's directory */
	KV_PENDING_TRUNCATE,		/* commit: remove older generations; abort: this one */
	KV_PENDING_DROP,			/* commit: remove the table's directory */
	KV_PENDING_DROP_DATABASE,
	KV_PENDING_FOLLOW			/* commit: the generation is to follow to another tablespace */
} KvPendingKind;

/* ---- generation.c ---- */
/*
 * The table's entry; reads its directory if nobody has.  NULL: there is none, and !create.
 * Takes the registry's lock; ERROR if there are too many tables.
 */
extern KvTableEntry *kv_table_entry(Oid dboid, Oid relid, bool create);
/* After redo: enters it without what has lost. */
extern void kv_table_resolve(Oid dboid, Oid relid);
/* NULL: not there, or dropped; may load the table. */
extern KvStore *kv_store_by_key(const KvStoreKey *key);
/* Redo: the generation that a CREATE record tells of. */
extern KvStore *kv_store_make(const KvStoreKey *key, const KvStoreShape *shape,
							  const KvKey *bounds);
/* Redo: a store has gone, unless another has taken its place. */
extern void kv_generation_remove(const KvStoreKey *key, uint64 id);

/* ---- schema.c; kv_store_get_schema and kv_store_set_schema are in engine.h ---- */
/*
 * Once its creator has committed, its table file need not name it any more, and clog may
 * forget it.
 */
extern void kv_store_resolve_creator(KvStore *store);
/*
 * At redo: it was created in the WAL that is replayed, so clog alone says what became of its
 * creator, from now on.
 */
extern void kv_store_trust_creator(KvStore *store);

/* ---- open.c ---- */
/* Recovers it, or waits for who does; ERROR if unusable. */
extern void kv_store_ensure_open(KvStore *store);

/* ---- helper.c ---- */
/*
 * By the opener: starts up to n helpers, fewer where no more processes can be had.  They take
 * part until kv_helpers_end, or until the store is not OPENING any more.
 */
extern void kv_helpers_start(KvStore *store, int n);
/*
 * Waits until those have ended that have begun, and no other begins: also those of an attempt
 * before, whose opener has failed.
 */
extern void kv_helpers_end(KvStore *store);
/*
 * In a helper: the store of that opening, or NULL if it takes none any more.  Until the process
 * exits the store is neither opened again nor removed.
 */
extern KvStore *kv_helper_join(uint32 opening);

/* ---- recover.c ---- */
extern void kv_recovery_gucs(void);	/* at load: defines its settings */
/*
 * A helper's main function; arg is the cache_id of the opening.  Takes shards until none is
 * left; does nothing if the opening has ended.
 */
extern PGDLLEXPORT void kv_recovery_worker_main(Datum arg);
/*
 * By the process that made the store OPENING; the caller makes it OPEN.  Recovers every
 * shard, with helpers if there is much to read.  ERROR if one cannot be recovered.
 */
extern void kv_store_recover(KvStore *store);

/*
 * Unlinks value files that no shard lists: at the end of the store's recovery, at level 'keys'
 * not before redo ends, for it may meet entries that name them.  Lists have all that the
 * newest images name; older ones are gone.  Nobody makes a value file meanwhile.
 */
extern void kv_value_files_sweep(KvStore *store);
/*
 * Then: gives back what was allocated of closed value files and never used.  What the image says
 * that the store began with stays.
 */
extern void kv_value_files_cut(KvStore *store);

/* ---- pending.c ---- */
/*
 * Notes what the end of the transaction, or a rollback of subtransaction subid, is to do.
 * All but CREATE have COMMIT wait for its record to be on disk.
 */
extern void kv_pending_add(KvPendingKind kind, Oid dboid, Oid relid, uint32 generation,
						   SubTransactionId subid);

/* ---- drop.c ---- */
/*
 * Frees write buffers that an earlier incarnation left of stores that are gone: those that redo has
 * dropped. In the maintainer, when every table has been loaded, with the registry's lock.
 */
extern void kv_buffers_discard_unknown(void);
/*
 * These mark stores as dropped and rename their directory out of sight; kv_drop_collect
 * frees them later.  They neither raise nor allocate, and do nothing about what is not
 * there.  They take the registry's lock, but for kv_generation_discard: its caller has it,
 * exclusively.  first and last are included.
 */
extern void kv_generations_discard(Oid dboid, Oid relid, uint32 first, uint32 last);
extern void kv_table_discard(Oid dboid, Oid relid);
extern void kv_generation_discard(Oid dboid, Oid relid, uint32 generation);
extern void kv_database_discard(Oid dboid);
extern void kv_drop_collect(void);	/* frees dropped stores that nobody has pinned */
/*
 * Is the store in a directory that was renamed out of sight, and not yet removed?  Reads
 * directories.
 */
extern bool kv_store_was_dropped(const KvStoreKey *key);

/* ---- free.c ---- */
extern bool kv_free_knows(const char *path);	/* will it be freed? */
/* In the maintainer: a directory or value file, out of sight already, is to be freed. */
extern void kv_free_add(const char *path);
extern void kv_free_if_due(void);	/* frees a step */
/*
 * Naps so long, or until the latch is set; before it looks at that it frees a step, if one
 * is due.
 */
extern void kv_free_or_nap(long ms, uint32 wait_event);

/* ---- sweep.c ---- */
/*
 * In the maintainer, in a transaction: removes directories of databases and tables that no
 * catalog names.  Waits for one worker per database.
 */
extern void kv_sweep_databases(void);
/* That worker's main function; arg is the database.  Removes the tables that are gone. */
extern PGDLLEXPORT void kv_sweep_worker_main(Datum arg);

#endif							/* KV_LIFECYCLE_H */
