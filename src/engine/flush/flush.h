/*
 * flush.h
 *		Flushes memtables to runs, and resolves xids before clog forgets them.
 *
 * One process at a time flushes a shard (KvShard.roles.maintainer).
 *
 * Locks:  the shard's lock, to seal and to publish, not while writing; none is held on entry.
 * Errors: after an ERROR the shard is unchanged, and another process tries again.  A compaction
 * that flushes pauses from time to time, unless another process waits for it (KvFlushRest).
 */
#ifndef KV_FLUSH_H
#define KV_FLUSH_H

#include "datatype/timestamp.h"
#include "nodes/pg_list.h"
#include "port/atomics.h"

#include "engine/base/types.h"
#include "engine/format/format.h"
#include "engine/index/run.h"
#include "engine/shard/counts.h"
#include "engine/shard/shard.h"

/* flush/flush.c */
typedef enum KvFlushMode
{
	KV_FLUSH_MEMORY,			/* empty the memtable, cheaply */
	KV_FLUSH_MERGE,				/* and merge runs of like size */
	KV_FLUSH_ALL				/* and merge all runs */
} KvFlushMode;

/* ---- flush.c ---- */
/* a process that merges runs serves interrupts, and pauses, after so many keys */
#define KV_GET_KEYS	1024

/*
 * Make the shard's memtable a run.  If another process flushes the shard, wait until it has
 * ended, which is enough unless the mode is ALL.
 */
extern void kv_shard_flush(KvStore *store, uint32 shard_id, KvFlushMode mode);
/* Called by the process that recovers the shard: make a run of the entries so far. */
extern void kv_shard_flush_recovering(KvStore *store, uint32 shard_id);


/* Values that compact/ has copied to new value files, for the entries that a flush meets. */
typedef struct KvMoves
{
	KvRun	   *run;			/* the relocation file (moves.c), open; NULL: nothing was copied */
	int			nvalue_files;
	/* value files of the copies: in no list yet, but there is space in the list */
	const KvValueFile *value_files;
	uint32		job;			/* new KvFileList.job; 0: unchanged */
	uint64		written;		/* KvShard.values.written when the values to be put in order were
								 * chosen, if job is not 0 */

	/* set by the flush */
	bool		published;		/* the shard lists these value files */
	/* bytes of values that were emitted after newer ones of their keys */
	uint64		held;
} KvMoves;

typedef struct KvMovesWalk KvMovesWalk;

/*
 * For a caller that is not in a hurry: called without a lock when so many more keys have been
 * merged; it may pause.
 */
typedef struct KvFlushRest
{
	void		(*merged) (void *arg, uint64 keys);
	void	   *arg;
} KvFlushRest;

/*
 * Merge all runs of the shard, even if there is only one and no memtable, and put the new
 * addresses of copied values into the entries.  All entries that existed at the beginning are
 * then in runs, and in no log.  After an ERROR the caller checks published.
 */
extern void kv_shard_rewrite(KvStore *store, uint32 shard_id, KvMoves *moves,
							 const KvFlushRest *rest);
/* Flush such that all entries that existed at the beginning are in runs, and in no log. */
extern void kv_shard_empty_logs(KvStore *store, uint32 shard_id, const KvFlushRest *rest);
/*
 * For the process that flushes the shard: is memory short, or the shard's next flush nearly
 * due?  kv_shard_await() tells whether another process waits for the shard.
 */
extern bool kv_flush_is_awaited(const KvShard *shard);

/* ---- moves.c: for flush.c ---- */
extern KvMovesWalk *kv_moves_begin(const KvMoves *moves);	/* palloc'd */
/*
 * A version of a key is emitted, keys in order: if its value was copied, set the location of
 * the copy.
 */
extern bool kv_moves_apply(KvMovesWalk *walk, KvKey key, KvVersion *version);
/* Add the value files to a list.  The shard's lock is held. */
extern void kv_moves_describe(KvMoves *moves, const KvCounts *counts, KvFileList *listed);
/*
 * The list counts: add the value files to the shard's list.  The lock is held
 * exclusively.
 */
extern void kv_moves_publish(const KvMoves *moves, const KvFileList *listed,
							 const KvCounts *counts, KvShard *shard);

/* ---- pressure.c ---- */
extern void kv_flush_gucs(void);	/* at load: defines its settings */
/* Maintain one shard in a pass over the stores. */
extern void kv_shard_maintain(KvStore *store, uint32 shard_id, TimestampTz now);
/*
 * The store and shard with the largest memtables, active and immutable; NULL: there are none.
 * Excludes the shards of except and, if idle, those that a process flushes.
 */
extern KvStore *kv_largest_memtable(List *stores, List *except, bool idle, uint32 *shard_id);
extern void kv_want_memory(void);	/* asks the maintainer, without waiting */
/*
 * Wait for memtable memory; ERROR if none becomes free for KV_ROOM_PATIENCE.  No lock is held.
 * May flush other shards, of other stores, too.
 */
extern void kv_make_memory(KvStore *store, uint32 shard_id);
/* frees memory for descriptors; false: no memtable can be flushed for that */
extern bool kv_make_memory_for_shards(void);

/* ---- resolve.c ---- */
typedef struct KvResolved
{
	pg_atomic_uint64 below;		/* no durable file has an unresolved xid before this */
	uint64		replayed;		/* in recovery: the horizon of the replayed records */
} KvResolved;

extern KvResolved *kv_resolved;
/*
 * In the postmaster, when shared memory exists: read the boundary.  It is 0 if its file is
 * missing or invalid, and then everything is resolved again.
 */
extern void kv_resolve_startup(void);
/*
 * Flush the shards of an open store that have xids to resolve now, except those that another
 * process flushes.
 */
extern void kv_store_resolve(KvStore *store);
/* Is there a segment of clog that could be resolved, and is not?  Looks at no store. */
extern bool kv_resolve_is_due(void);
/*
 * Are all xids before *boundary resolved in these stores, which are all that exist?  *boundary
 * is set to the start of the present segment.  The marks have them too after the next
 * checkpoint.
 */
extern bool kv_resolve_reached(List *open_stores, uint64 *boundary);
/* After that checkpoint: no xid before this is looked up in clog.  Durable on return. */
extern void kv_resolve_done(uint64 boundary);
/*
 * Redo of a DURABLE record: all transactions before horizon had ended.  True: open every store
 * before xids are resolved.
 */
extern bool kv_resolve_begin_replay(uint64 horizon);
extern void kv_resolve_end_replay(uint64 horizon);	/* the stores are resolved up to horizon */
/*
 * In kvfdw checkpointer, told to exit, before its last marks: wait a little for sessions to
 * end, then resolve all xids.  Errors are logged.
 */
extern void kv_resolve_for_stop(void);
/*
 * In kvfdw checkpointer, several times a second: set its xmin so that VACUUM keeps the
 * unresolved part of clog.
 */
extern void kv_clog_fence(void);

#endif							/* KV_FLUSH_H */
