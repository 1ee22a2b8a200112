/*
 * shard.h
 *		Stores and shards in shared memory, a reader's view of the runs of a shard, the roles of
 *		processes, and backups.  The map of a store: map.h; value files: valuefiles.h.
 *
 * Locks: KvShard.lock guards the shard's two memtables, its run list, its write buffers, its log
 * position and the list of its value files.  No process holds it across a system call that touches
 * a device (I 7).  A write may need such a call: for value space, a free write buffer, or memory in
 * the memtable.  It then releases the lock, makes the call, and starts again from the lookup.
 * KvRegistry.lock guards the hash tables.  A pin keeps a store in shared memory, not its table.
 *
 * Runs: kv_shard_runs maps files, so the caller holds no lock.  It raises ERROR for a damaged run.
 * A run set belongs to one process, and is valid while the shard has the same generation.
 */
#ifndef KV_SHARD_H
#define KV_SHARD_H

#include "datatype/timestamp.h"
#include "nodes/pg_list.h"
#include "port/atomics.h"
#include "storage/condition_variable.h"
#include "storage/lwlock.h"
#include "storage/spin.h"
#include "utils/dsa.h"
#include "utils/hsearch.h"

#include "engine/base/shared.h"
#include "engine/base/types.h"
#include "engine/format/format.h"
#include "engine/format/path.h"
#include "engine/index/memtable.h"
#include "engine/index/run.h"
#include "engine/maintenance.h"
#include "engine/shard/parts.h"
#include "engine/xact/xact.h"

/* ---- shards ---- */

/* A value file of a shard that is in use. */
typedef struct KvShardValueFile
{
	KvValueFile	value_file;		/* .used: of the open one see KvShard.values.tail */
	uint64		newest_writer;	/* newest full xid that reserved a large value in it; 0: none */
	uint64		trusted;		/* after a power loss: how many of its bytes are verified */
	uint64		counted;		/* bytes that were taken when value_file.live was counted */
	/* dead bytes at that count, for use once live is not known any more */
	uint64		dead_then;
	/* bytes seen replaced or deleted since value_file.live was counted */
	uint64		dead_since;
	/* of a SHARED one: this many of its bytes count as this shard's */
	uint64		share;
} KvShardValueFile;

/* A shard aims at this many full value files; see kv_value_file_next_class. */
#define KV_VALUE_FILES_WANTED	24

/* The phase of a compaction job (compact/compact.h). */
typedef enum KvJobPhase
{
	KV_JOB_NONE,
	KV_JOB_CHOOSE,
	KV_JOB_MOVE,
	KV_JOB_SWITCH,
	KV_JOB_KEEP
} KvJobPhase;

typedef struct KvShard
{
	LWLock		lock;
	/* held by the process that adds value files or grows the open one */
	LWLock		extend_lock;
	LWLock		commit_lock;	/* wal level 'keys': the order of WAL records (buffer/commit.c) */
	ConditionVariable changed;	/* signaled when maintenance ended or a write buffer was written */
	KvMapPlace	place;
	pg_atomic_uint32 generation;	/* of the run list; changes under lock */

	/* guarded by lock */
	KvMemtable	active;			/* new versions go here */
	KvMemtable	immutable;		/* being flushed: read-only except for statuses and locations */
	dsa_pointer dead;			/* ranges of dead keys (dead.h), or invalid */
	KvShardFiles files;
	bool		recovered;
	uint64		key_share_xid;	/* newest xid that may have a KEY SHARE lock here, or 0 */

	/* parts.h says who owns each of these, and which lock guards it */
	KvShardBuffers buffers;

	/* the parts from here on are cleared when the descriptor gets another shard */
	KvLogEnds	log;
	KvValueList values;
	KvCountState count;
	KvFlushState flush;
	KvCompactState compact;
	KvSplitState split;
	KvRoles		roles;
	KvDurableState durable;
} KvShard;

/* The next shard of a descriptor inherits what is before this. */
#define KV_SHARD_CLEARED	offsetof(KvShard, log)

typedef enum KvStoreState
{
	KV_STORE_CLOSED,			/* known, not yet recovered since the server start */
	KV_STORE_OPENING,			/* one process recovers it, others wait */
	KV_STORE_OPEN,
	KV_STORE_DROPPED			/* the maintainer unlinks it when it has no pins */
} KvStoreState;

/* Level full: are versions logged?  See lifecycle/unlogged.c. */
typedef enum KvUnloggedState
{
	KV_LOGGED,
	KV_UNLOGGED,				/* they are not until COMMIT */
	KV_UNLOGGED_ROWS			/* and there are some */
} KvUnloggedState;

struct KvStore
{
	KvStoreKey	key;			/* hash key */
	KvStoreShape shape;			/* key_width is constant once the store is OPEN */
	/* the tablespace that the store is to follow to (move.c); 0: none is noted */
	pg_atomic_uint64 move_to;
	/* full xid of the transaction that copied its rows from another store; 0: visible to all */
	pg_atomic_uint64 copied_by;
	uint8		unlogged;		/* KvUnloggedState; set by the transaction that has made it */
	pg_atomic_uint32 state;		/* KvStoreState */
	/*
	 * Workers that hold a pointer without a relation lock.  Pins keep a dropped store in memory,
	 * but not its write buffers.
	 */
	pg_atomic_uint32 pins;
	/*
	 * Unique for each opening while the server runs: the key of caches and descriptors.  Set while
	 * OPENING, constant later.
	 */
	uint32		cache_id;
	/* numbers of versions are in use, so values stay where they arrive (write/, buffer/) */
	bool		numbered;

	/* parts.h says who owns each of these, and which lock guards it */
	KvSpaceAccount account;
	KvSpaceState space;
	KvObsoleteList obsolete;
	KvStoreMap	map;
	KvSplitLook split;
	KvVersionLog versions;
	KvVolumes	volumes;
	KvOpening	opening;
	KvChangeCounts statistics;

	pg_atomic_uint64 counters[KV_COUNTERS];
};

#define kv_stat_add(store, what, n) \
	pg_atomic_fetch_add_u64(&(store)->counters[what], (n))

/* One table and its generations.  The newest generation counts if its creator has committed. */
typedef struct KvTableEntry
{
	Oid			dboid;			/* hash key, together with relid */
	Oid			relid;
	bool		loaded;			/* the directory has been read */
	uint32		oldest;			/* generations; 0: none */
	uint32		newest;
	uint64		birth;	/* top xid that made the first generation, if it created the table */
} KvTableEntry;

#define kv_value_files(shard)	((KvShardValueFile *) kv_address((shard)->values.files))

/*
 * Descriptors by shard id.  A replaced directory stays allocated for processes that still read it.
 */
typedef struct KvDirectory
{
	dsa_pointer smaller;		/* the directory that this one replaced, or invalid */
	uint32		room;
	uint32		pad;
	dsa_pointer shards[FLEXIBLE_ARRAY_MEMBER];	/* KvShard; invalid: there is no such shard */
} KvDirectory;

/* A block of descriptors that were allocated together. */
typedef struct KvShardBlock
{
	dsa_pointer next;
	uint64		n;
	KvShard		shards[FLEXIBLE_ARRAY_MEMBER];
} KvShardBlock;

/* Has the shard left the map, or is it about to?  Then nothing is written to it.  Lock held. */
static inline bool
kv_shard_is_leaving(const KvShard *shard)
{
	return shard->place.halted || shard->place.bounds_since == KV_NOT_IN_MAP;
}

/* The descriptor of a shard that the store's map has, or has had since the store was opened. */
static inline KvShard *
kv_shard(const KvStore *store, uint32 shard_id)
{
	return kv_address(((KvDirectory *) kv_address(store->map.directory))->shards[shard_id]);
}

/* shard/runset.c */

/*
 * Are the values of a shard's largest run stored in key order?  Runs do not change, so a process
 * determines this once.
 */
typedef enum KvRunOrder
{
	KV_RUN_ORDER_NOT_KNOWN,
	KV_RUN_IN_ORDER,
	KV_RUN_SCATTERED
} KvRunOrder;

typedef struct KvRunSet
{
	uint32		generation;
	KvRunOrder	order;			/* of the largest run; scan/estimate.c sets it */
	int			nruns;			/* newest first; the last may be the base */
	bool		has_base;
	KvRun	   *runs[KV_MAX_UNFROZEN + 1];
} KvRunSet;

/* A walk through one key's versions in the runs. */
typedef struct KvRunVersions
{
	const KvRunSet *set;
	KvKey		key;
	int			run;			/* index into set->runs */
	bool		taken;			/* the cursor is at a version that was returned */
	KvRunCursor cursor;
} KvRunVersions;

/* ---- runset.c ---- */
/* Fills in the identity that the header of this run must have. */
extern void kv_store_ids(const KvStore *store, uint32 shard, uint32 number, KvRunIds *ids);
/*
 * The shard's runs, mapped; valid until the next call for any shard.  After taking the shard's lock
 * the caller checks that the shard still has the generation of the set.
 */
extern const KvRunSet *kv_shard_runs(KvStore *store, uint32 shard_id);
/* The shard's runs, with its lock taken in shared mode: memtables and runs belong together. */
extern const KvRunSet *kv_shard_view(KvStore *store, uint32 shard_id);
/* The runs of the shard that has the key in the newest map, with its lock taken in shared mode. */
extern const KvRunSet *kv_key_view(KvStore *store, KvKey key, KvShard **shard);
/*
 * Walks through the versions of key in the runs, newest first, with the incarnation of their run.
 */
extern void kv_run_versions_begin(KvRunVersions *walk, const KvRunSet *set, KvKey key);
extern bool kv_run_versions_next(KvRunVersions *walk, KvVersion *version,
								 uint32 *incarnation);
/* Finds the visible version of a key in the runs. */
extern bool kv_runset_find(const KvRunSet *set, KvKey key, const KvView *view,
						   KvVersion *version);
/* Finds the visible versions of up to KV_FOUND_TOGETHER keys in the runs (base/key.h). */
extern void kv_runset_find_all(const KvRunSet *set, const KvKey *keys, int n, const KvView *view,
							   KvVersion **versions, bool *found);
extern bool kv_chain_visible(dsa_pointer newest, const KvView *view, KvVersion *version);
/* Forgets the cached run sets of a store; NULL: of all stores. */
extern void kv_runset_forget(const KvStore *store);

/* ---- files.c ---- */
/* Gets the numbers of the runs, newest first, at most KV_MAX_UNFROZEN + 1. Returns how many. */
extern int	kv_files_runs(const KvShardFiles *files, uint32 *runs);
extern bool kv_files_name_run(const KvShardFiles *files, uint32 number);
/*
 * Unlinks a run or a log, unless the shard, a mark or a backup needs it.  Takes the shard's lock.
 */
extern void kv_file_release(KvStore *store, uint32 shard_id, KvFileKind kind, uint32 number);
/* Some logs or runs that nothing needs may exist, and were not allowed to be removed. */
extern void kv_files_want_tidy(KvStore *store);
/*
 * If that was said: removes all logs, runs and temporary files of the store that nothing needs,
 * unless a base backup runs.  In the process that makes marks, or that opens the store.  False:
 * files of shards that have left the map could not be removed.  They are left alone before all
 * shards of the map have marks.
 */
extern bool kv_files_tidy(KvStore *store);

/*
 * ---- registry.c: which process flushes a shard, and which one compacts or splits it ----
 *
 * A process gives up each role that it took, after an ERROR and when it exits, too.
 */
#define KV_ROLE_FLUSH	1		/* KvRoles.maintainer */
#define KV_ROLE_COMPACT	2		/* KvRoles.compactor */

/* Does no process have one of the roles?  Lock held, or the answer may be outdated. */
static inline bool
kv_role_is_free(const KvShard *shard, int roles)
{
	return (!(roles & KV_ROLE_FLUSH) || shard->roles.maintainer == 0) &&
		(!(roles & KV_ROLE_COMPACT) || shard->roles.compactor == 0);
}

/* Exclusively: takes the roles if all are free.  False: one is not, and none was taken. */
extern bool kv_role_claim(KvShard *shard, int roles);
extern bool kv_role_try(KvShard *shard, int roles); /* the same, takes the lock */
/*
 * Waits until all are free, and returns with the lock held exclusively.  True: it had to wait.  If
 * it waits for a compaction, this hurries.  Serves interrupts.
 */
extern bool kv_role_wait(KvShard *shard, int roles, uint32 wait_event);
/* Waits until all are free, and takes them.  False: the shard has left the map. */
extern bool kv_role_take(KvShard *shard, int roles, uint32 wait_event);
/* Gives up roles of this process, and wakes those that wait on changed. */
extern void kv_role_give(KvShard *shard, int roles);

/* ---- gone.c ---- */
/*
 * Unmaps runs and closes value files that were removed, if there may be any.  Called at the end of
 * a transaction and at the start of a worker's loop, where no run set or file is in use.  Never
 * raises.
 */
extern void kv_files_let_go(void);

/* ---- files.c ---- */
#define KV_MAX_BACKUPS		16

typedef struct KvBackups
{
	slock_t		mutex;			/* guards pids */
	/* KV_BACKUPS_RUN (a backup runs, or ran at the last check), and a counter */
	pg_atomic_uint32 run;
	int			pids[KV_MAX_BACKUPS];	/* sessions that called pg_backup_start, or 0 */
} KvBackups;

extern KvBackups *kv_backups;
extern void kv_backups_init(void);	/* when its shared memory is made */
/* checks for backups, before files of an older mark are removed */
extern void kv_backups_look(void);
extern bool kv_backups_run(void);	/* must files of older marks stay? */

/* ---- registry.c ---- */
typedef struct KvRegistry
{
	LWLock		lock;			/* guards the two hash tables */
	pg_atomic_uint32 cache_ids;	/* the last KvStore.cache_id given out */
	pg_atomic_uint32 drop_counter;	/* makes the names of files that wait for removal */
	pg_atomic_uint32 marks_wanted;	/* some shard has durable.wanted */
	pg_atomic_uint32 marks_awaited; /* sessions that wait for marks (lifecycle/unlogged.c) */
	Latch	   *volatile checkpointer;	/* the checkpointer's latch, or NULL */
	pg_atomic_uint32 obsolete;	/* entries of all stores' lists of obsolete value files */
	pg_atomic_uint64 freeing;	/* sum of KvStore.space.freeing of all stores */
	pg_atomic_uint32 maps_unfinished; /* unfinished maps of all stores */
	pg_atomic_uint64 checkpoint;	/* redo pointer of the last known complete checkpoint */
} KvRegistry;

extern KvRegistry *kv_registry;
extern void kv_registry_init(void);	/* when its shared memory is made: initializes KvRegistry */
extern Size kv_registry_memory(void);	/* bytes of the hash tables, to be requested */
/* in the shmem startup hook: makes or finds the hash tables */
extern void kv_registry_attach(void);
extern void kv_registry_gucs(void);	/* at load: defines its settings */
/*
 * A process that waits for a compaction of the shard makes the compaction hurry.  It
 * calls kv_shard_await at least once a second.
 */
extern void kv_shard_await(KvShard *shard);
extern bool kv_shard_is_awaited(const KvShard *shard);
extern HTAB *kv_store_hash;
extern HTAB *kv_table_hash;
/*
 * Finds a store in any state; NULL: not known.  The caller holds the registry lock, except in redo.
 */
extern KvStore *kv_store_find(Oid dboid, Oid relid, uint32 generation);
/* NULL: dropped, or not loaded; takes the registry lock */
extern KvStore *kv_store_live(const KvStoreKey *key);
extern bool kv_store_is_known(const KvStoreKey *key);	/* in any state; takes the registry lock */
/*
 * The stores in this state, of a database or of all (InvalidOid), each with a pin.  The list is
 * palloc'd; kv_stores_unpin frees it.  Takes the registry lock.  The state may change as soon as it
 * is released.
 */
extern List *kv_stores_pin_state(Oid dboid, KvStoreState state);
extern void kv_stores_unpin(List *stores);	/* gives back the pins, and frees the list */
/*
 * Gives back the pins of stores that were dropped since, except one, and puts NULL in their place,
 * so that their write buffers become free.
 */
extern void kv_stores_unpin_dropped(List *stores, const KvStore *but);

#endif							/* KV_SHARD_H */
