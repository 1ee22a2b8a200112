/*
 * flush.h
 *		Recent versions become runs, and memory comes back; outcomes are noted before
 *		clog forgets them.
 *
 * One process at a time flushes a shard (KvShard.maintainer).  The shard's lock is
 * taken to seal and to publish, not to write; none is held on entry.  After an
 * ERROR the shard is as it was, and somebody tries again.  A compaction rests while
 * it flushes, as long as nobody waits for it (KvFlushRest).
 */
#ifndef KV_FLUSH_H
#define KV_FLUSH_H

#include "datatype/timestamp.h"
#include "nodes/pg_list.h"
#include "port/atomics.h"

#include "engine/base/types.h"
#include "engine/format/format.h"
#include "engine/index/run.h"
#include "engine/shard/retired.h"
#include "engine/shard/shard.h"

/* flush/flush.c */
typedef enum KvFlushMode
{
	KV_FLUSH_MEMORY,			/* empty the memtable, cheaply */
	KV_FLUSH_MERGE,				/* and merge runs of like size */
	KV_FLUSH_ALL				/* and merge all runs */
} KvFlushMode;

/* ---- flush.c ---- */
/* who merges runs serves interrupts, and rests, after so many keys */
#define KV_GET_KEYS	1024

/*
 * Makes the shard's memtable a run.  If another process is at it this waits until that has
 * ended, which is enough unless the mode is ALL.
 */
extern void kv_shard_flush(KvStore *store, uint32 shard_id, KvFlushMode mode);
/* By the one process that recovers the shard: makes a run of what it has got so far. */
extern void kv_shard_flush_recovering(KvStore *store, uint32 shard_id);


/* Values that compact/ has copied to value files of its own, by the entries that a flush meets. */
typedef struct KvMoves
{
	KvRun	   *run;			/* the relocation file (moves.c), open; NULL: nothing was copied */
	int			nvalue_files;
	/* where the copies are: in no list yet, but there is room for them */
	const KvValueFile *value_files;
	uint32		job;			/* KvManifest.pass from now on; 0: as it was, … */
	uint64		written;		/* … else KvShard.written when it was chosen what is put in order */

	/* set by the flush */
	bool		published;		/* a manifest names these value files */
	/* bytes of values that were emitted behind newer ones of their keys */
	uint64		held;
} KvMoves;

typedef struct KvMovesWalk KvMovesWalk;

/*
 * Of who is not in a hurry: called without a lock when so many more keys have been merged, it may
 * rest.
 */
typedef struct KvFlushRest
{
	void		(*merged) (void *arg, uint64 keys);
	void	   *arg;
} KvFlushRest;

/*
 * Merges all runs of the shard, even if there is but one and nothing recent, and puts the
 * entries of what was copied in their new addresses.  All entries that were there when it
 * began are in runs then, and in no log.  After an ERROR the caller looks at published.
 */
extern void kv_shard_rewrite(KvStore *store, uint32 shard_id, KvMoves *moves,
							 const KvFlushRest *rest);
/* Flushes so that all entries that were there when it began are in runs, and in no log. */
extern void kv_shard_empty_logs(KvStore *store, uint32 shard_id, const KvFlushRest *rest);
/*
 * Of who flushes the shard: is memory short, or the shard's next flush nearly due? Who waits for
 * the shard kv_shard_await() tells.
 */
extern bool kv_flush_is_awaited(const KvShard *shard);

/* ---- moves.c: for flush.c ---- */
extern KvMovesWalk *kv_moves_begin(const KvMoves *moves);	/* palloc'd */
/* A version of a key is emitted, keys in order: if its value was copied, names the copy. */
extern bool kv_moves_apply(KvMovesWalk *walk, KvKey key, KvVersion *version);
/* Adds the value files to a manifest.  Lock held. */
extern void kv_moves_describe(KvMoves *moves, const KvCounts *counts, KvManifest *manifest);
/* The manifest is there: the value files are in the shard's list.  Lock held, exclusively. */
extern void kv_moves_publish(const KvMoves *moves, const KvManifest *manifest,
							 const KvCounts *counts, KvShard *shard);

/* ---- pressure.c ---- */
extern void kv_flush_gucs(void);	/* at load: defines its settings */
/* What a pass over the stores does to each shard. */
extern void kv_shard_maintain(KvStore *store, uint32 shard_id, TimestampTz now);
/*
 * The store and shard with the largest memtables, active and sealed; NULL: there are none. Without
 * the shards of except and, if idle, those that somebody flushes.
 */
extern KvStore *kv_largest_memtable(List *stores, List *except, bool idle, uint32 *shard_id);
extern void kv_want_memory(void);	/* tells the maintainer, and waits for nothing */
/*
 * No lock held; waits, and raises ERROR when nothing becomes free for KV_ROOM_PATIENCE.  May
 * flush other shards, of other stores, too.
 */
extern void kv_make_memory(KvStore *store, uint32 shard_id);
/* for descriptors; false: no memtable is in the way */
extern bool kv_make_memory_for_shards(void);

/* ---- resolve.c ---- */
typedef struct KvResolved
{
	pg_atomic_uint64 below;		/* nothing that is durable asks clog about an xid before this */
	uint64		replayed;		/* in recovery: that of what was replayed */
} KvResolved;

extern KvResolved *kv_resolved;
/*
 * In the postmaster, when shared memory has been made: reads what is resolved.  0 if its
 * file is missing or not good, and all is resolved anew.
 */
extern void kv_resolve_startup(void);
/*
 * Of an open store: flushes the shards that have outcomes to note by now, but for those
 * that somebody is flushing.
 */
extern void kv_store_resolve(KvStore *store);
/* Is there a segment of clog that could be resolved, and is not?  Looks at no store. */
extern bool kv_resolve_is_due(void);
/*
 * Do these stores, all that there are, say every outcome before *boundary, which it sets to
 * the start of the present segment?  Their images do once a checkpoint has followed.
 */
extern bool kv_resolve_reached(List *open_stores, uint64 *boundary);
/* After that checkpoint: nothing asks clog about an xid before this.  Durable on return. */
extern void kv_resolve_done(uint64 boundary);
/*
 * Redo of a DURABLE record: all transactions before horizon had ended.  True: open every
 * store before they are resolved.
 */
extern bool kv_resolve_begin_replay(uint64 horizon);
extern void kv_resolve_end_replay(uint64 horizon);	/* … and they have been */
/*
 * In kvfdw checkpointer, told to go, before its last images: waits a little for sessions to end,
 * then notes all outcomes.  What fails is not resolved, and raises nothing.
 */
extern void kv_resolve_for_stop(void);
/*
 * In kvfdw checkpointer, several times a second: sets its xmin so that VACUUM keeps the part of
 * clog that is not resolved.
 */
extern void kv_clog_fence(void);

#endif							/* KV_FLUSH_H */
