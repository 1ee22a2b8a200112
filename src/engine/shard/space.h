/*
 * space.h
 *		How much space the values of a store take, and how much they may (I 19).
 *
 * Of a store, T is what its value files have, L what of that some version has.  With the
 * setting kvfdw.space_amp, a, and c, a constant for each shard and one compaction,
 *
 *		T <= a L + c
 *
 * kvfdw compactor begins to compact a store before that, and ends a little later, so that it
 * does not stop and go.  Writers count what they take, and wake it when that is as much as is
 * left.  It looks at all of the store then, and goes on to while it moves values: what was
 * written may be new, or have replaced what is dead now.  Who is beyond the bound waits for a compaction a little, with each slot; but not where that
 * could not make room, for a snapshot, a backup or a full disk, nor if nothing compacts.
 *
 * What nobody can give back counts as live: what is dead beside a value that cannot be read, and in
 * shards of which passes fail.  So others are not rewritten for it again and again.
 *
 * L is an estimate: what was counted by the last merge or walk of all runs, less what was
 * replaced or deleted since; what was never counted is live.  What may be dead all the same
 * (transactions that have aborted, snapshots that have ended, what a standby replays) is
 * *doubtful*: it is counted when it could make a difference.
 *
 * Takes the locks of shards, shared, one at a time; none is held on entry but where it says so.
 */
#ifndef KV_SPACE_H
#define KV_SPACE_H

#include "storage/condition_variable.h"
#include "storage/latch.h"

#include "engine/shard/shard.h"

typedef struct KvCompactor
{
	Latch	   *latch;			/* NULL while it does not run */
	pg_atomic_uint32 wanted;	/* some store has come to its mark since it has last looked */
	ConditionVariable made;		/* a compaction has made room, or has ended */
} KvCompactor;

extern KvCompactor *kv_compactor;

/* Bytes of a shard's values. */
typedef struct KvShardSpace
{
	uint64		taken;			/* of its chunks */
	uint64		live;			/* of these, about */
	uint64		doubtful;		/* of the live ones, those that are to be counted */
	uint64		held;			/* … and those that older snapshots or unfinished transactions keep */
	uint64		stuck;			/* dead ones that count as live: where a value cannot be read … */
	uint64		failed;			/* … and, beyond that, where passes fail */
	uint64		grain;			/* of the chunk that is made next, but little of the shard */
	uint64		pass;			/* so many bytes are moved by one compaction of it, at most */
	uint64		to_win;			/* dead ones, in chunks for which it pays, … */
	uint64		to_win_open;	/* … and of these in the open one, which would be closed for it */
	uint64		unsorted;		/* live ones, in chunks that were not written for order */
} KvShardSpace;

/* … and of a store's. */
typedef struct KvStoreSpace
{
	KvShardSpace all;
	double		amp;			/* its kvfdw.space_amp */
	uint64		retired;		/* what waits for nothing but its image, or is being freed */
	uint64		retired_longer; /* … and for a checkpoint */
	uint64		start;			/* beyond this it is to be compacted, … */
	uint64		stop;			/* … down to this */
	uint64		bound;			/* PG_UINT64_MAX: there is none */
} KvStoreSpace;

/* Why a store that is beyond its mark is not compacted. */
typedef enum KvSpaceWait
{
	KV_SPACE_WAITS_NOT,
	KV_SPACE_WAITS_FOR_SNAPSHOT,	/* or a transaction */
	KV_SPACE_WAITS_FOR_BACKUP,
	KV_SPACE_WAITS_FOR_DISK,
	KV_SPACE_WAITS_FOR_RETRY,	/* of what has failed */
	KV_SPACE_WAITS_FOR_DAMAGE	/* values that cannot be read keep their chunks */
} KvSpaceWait;

extern const char *const kv_space_wait_names[];	/* for people; NULL: not */

extern void kv_space_init(void);	/* when its memory is made */
extern void kv_space_gucs(void);	/* at load: defines its settings */
/* A chunk of which less than this is dead is not worth it. */
extern bool kv_space_pays(uint64 used, uint64 live);
/* Nor is an open one of which less than half is. */
extern bool kv_space_pays_open(uint64 used, uint64 live);
/* horizon: kv_xid_horizon(). */
extern void kv_shard_space(KvStore *store, uint32 shardno, uint64 horizon, KvShardSpace *space);
extern void kv_store_space(KvStore *store, KvStoreSpace *space);	/* adds up all shards */
extern void kv_space_count_from(KvStore *store, const KvStoreSpace *space);	/* writers do; the compactor alone calls it */
/*
 * The compactor has looked: if it makes room in the store, and not only tries to, writers who are
 * beyond the bound wait.
 */
extern void kv_space_answer(KvStore *store, bool makes_room);
extern void kv_space_wake_after(KvStore *store, uint64 bytes);	/* it is woken when so much more was written */
/* What start would be if so much were live. */
extern uint64 kv_space_start(const KvStoreSpace *space, uint64 live);
/*
 * No lock held: the writer is to open a slot, or to write an extent, of a store beyond its
 * bound.  Waits up to 100 ms for a compaction that makes room, if one does.
 */
extern void kv_space_wait(KvStore *store);

/* Would a writer have to wait? */
static inline bool
kv_space_is_short(KvStore *store)
{
	return pg_atomic_read_u32(&store->space_made) != 0 && kv_compactor->latch != NULL &&
		(int64) pg_atomic_read_u64(&store->space_bound_left) < 0;
}

/* So many bytes of values were written, or have died otherwise.  With any lock held. */
extern void kv_space_take(KvStore *store, uint64 bytes);

#endif							/* KV_SPACE_H */
