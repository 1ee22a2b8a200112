/*
 * space.h
 *		How much space the values of a store take, and how much they may (I 19).
 *
 * Of a store, T is what its value files have, those too that were emptied and have not gone, L what
 * of that is live, K what is dead and somebody may see still: a snapshot, or who does not know yet
 * how a transaction
 * ends (dying.c). With the setting kvfdw.max_space_amplification, a, and c, a constant for each
 * shard and one compaction,
 *
 *		T <= L + c + max((a - 1) L, K + (a - 1) L / 4)
 *
 * So what transactions keep that are about to end, those of writers who wait among them, lets
 * nobody go beyond a L + c, unless it is much.
 *
 * kvfdw compactor begins to compact a store before that, and ends a little later, so that it
 * does not stop and go. Writers tell the store's account what they take and what has died by it,
 * and wake
 * the compactor when that comes to the mark. Who is to open a write buffer, or to write a large
 * value, of a store that has come to its bound waits until there is room: that is what keeps the
 * bound, however slow
 * the compactor is. It too keeps to it: what a compaction job may write is set aside, and where the
 * files that were emptied before are not gone yet, it waits for that.
 *
 * On top of the bound come: at level 'keys' what is retired, which goes with a checkpoint, but for
 * what is more than twice as much as has one asked for (kv_space_wants_checkpoint); what a
 * compaction by hand or for order writes, and the files that it empties; files that do not go
 * though nothing keeps them (space_given_up).
 *
 * Nobody waits
 *	- for a snapshot or a transaction, his own or another's: what they keep is K, so at the bound
 *	  there are dead values that nobody sees, at least a quarter of (a - 1) L;
 *	- where the compactor has found that it can make no room (space_no_room): for a backup, a full
 *	  disk, a retry, a file that does not go; nor if nothing compacts, or no place is free for who
 *	  does;
 *	- where neither a compaction job of this store has come on for a minute nor a file has gone,
 *	  until one does (space_stalled): the compactor stands, or a split, whose shard compaction jobs
 *	  leave alone until it has ended;
 *	- longer than a minute for one write buffer, if others take all the room that is made;
 *	- to delete or to lock a row, in redo, nor if he must not: clients of memcached.
 *
 * Why nothing waits for a writer who waits here. He holds no LWLock, no write buffer and no place
 * that was not counted,
 * and serves interrupts. What he may have are versions of a transaction that goes on, in this store
 * or another, and
 * locks of rows and tables. What makes room are a compaction job (a walk over runs, copying, a
 * flush), an image of the
 * shard, and the maintainer, which frees files. They take versions of unfinished transactions as
 * they are, and wait for
 * no row, and for a table only in DROP. A split halts a shard's writers, and waits for those that
 * are at it under its
 * lock: not for him. A checkpoint waits for commits that have begun: he has not. A value file into
 * which his transaction has written a large value cannot be emptied: what is dead there is in K.
 *
 * Whoever waits looks again under his shard's lock, and takes there what he has found, so of many
 * who are woken as many go on as there is room for write buffers; those of several shards at once
 * may take one write buffer each too many, and a quarter of what c has for each shard is kept for
 * that.
 *
 * What nobody can give back counts as live: what is dead beside a value that cannot be read, and in
 * shards of which compaction jobs fail.  So others are not rewritten for it again and again.
 *
 * L is an estimate: what was counted by the last merge or walk of all runs, less what was
 * replaced or deleted since; what was never counted is live.  What may be dead all the same
 * (transactions that have aborted, snapshots that have ended, what a standby replays) is
 * *uncertain*: it is counted when it could make a difference.
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
	/* thousandths of kvfdw.max_space_amplification as it has it, and 1; 0: it does not run */
	pg_atomic_uint32 amp;
	/* some store has come to its mark since it has last looked, or it has left its work */
	pg_atomic_uint32 wanted;
	/* TimestampTz: when somebody was last waiting for room, in any store */
	pg_atomic_uint64 awaited;
} KvCompactor;

extern KvCompactor *kv_compactor;

/* Bytes of a shard's values. */
typedef struct KvShardSpace
{
	uint64		taken;			/* of its value files */
	uint64		live;			/* of these, about */
	uint64		uncertain;		/* of the live ones, those that are to be counted */
	/* … and those that older snapshots or unfinished transactions keep */
	uint64		held;
	uint64		kept;			/* dead ones that these keep */
	uint64		stuck;			/* dead ones that count as live: where a value cannot be read … */
	uint64		failed;			/* … and, beyond that, where compaction jobs fail */
	uint64		grain;			/* of the value file that is made next, but little of the shard */
	uint64		job;			/* so many bytes are moved by one compaction of it, at most */
	uint64		to_win;			/* dead ones, in value files for which it pays, … */
	uint64		to_win_open;	/* … and of these in the open one, which would be closed for it */
	uint64		unsorted;		/* live ones, in value files that were not written for order */
} KvShardSpace;

/* … and of a store's. */
typedef struct KvStoreSpace
{
	KvShardSpace all;
	double		amp;			/* its kvfdw.max_space_amplification */
	uint64		retired;		/* what waits for nothing but its image, or is being freed, … */
	uint64		given_up;		/* … but for this, which does not go … */
	uint64		granted;		/* … and this, at level 'keys' */
	uint64		retired_longer; /* what waits for a checkpoint */
	uint64		moving;			/* what compaction jobs may write */
	uint64		aside;			/* of that and of retired: what comes on top of the bound */
	uint64		start;			/* beyond this it is to be compacted, … */
	uint64		stop;			/* … down to this */
	uint64		bound;			/* PG_UINT64_MAX: there is none; without given_up and granted */
} KvStoreSpace;

/* Why a store that is beyond its mark is not compacted. */
typedef enum KvSpaceWait
{
	KV_SPACE_WAITS_NOT,
	KV_SPACE_WAITS_FOR_SNAPSHOT,	/* or a transaction */
	KV_SPACE_WAITS_FOR_BACKUP,
	KV_SPACE_WAITS_FOR_DISK,
	KV_SPACE_WAITS_FOR_RELEASE, /* of files that were emptied, and do not go */
	KV_SPACE_WAITS_FOR_RETRY,	/* of what has failed */
	KV_SPACE_WAITS_FOR_DAMAGE	/* values that cannot be read keep their value files */
} KvSpaceWait;

extern const char *const kv_space_wait_names[];	/* for people; NULL: not */

/* ---- account.c: what is known of a store's space without looking at its value files ---- */

/* of the dead bytes that the bound allows: from here on a store is compacted */
#define KV_START_SHARE	0.93

extern void kv_space_init(void);	/* when its memory is made */
extern void kv_account_gucs(void);	/* for kv_space_gucs: kvfdw.max_space_amplification */
/* kvfdw compactor runs, with its latch; NULL: not any more */
extern void kv_space_attend(Latch *latch);
/*
 * Its kvfdw.max_space_amplification; where the store has none of its own, of all processes what
 * kvfdw compactor has: in the middle of a statement nobody else hears of a change.
 */
extern double kv_space_amp(const KvStore *store);
/* The mark that lies so far on the way to the bound. */
extern int64 kv_space_mark(double amp, double share, int64 live, int64 kept, int64 slack);
/*
 * What the account says: bytes until a compaction may be due, and until writers wait for one; may
 * be negative.
 */
extern void kv_space_left(KvStore *store, int64 *start, int64 *bound);
/* … or somebody waits: kvfdw compactor should look */
extern bool kv_space_is_due(KvStore *store);
/*
 * Would a writer have to wait? Has the compactor started; while there is none and no place for one,
 * no.
 */
extern bool kv_space_is_short(KvStore *store);
/* have it look at stores, and have it started if it does not run */
extern void kv_compactor_wake(void);
/* likewise, if somebody has asked for it in vain; the maintainer */
extern void kv_compactor_wake_again(void);
extern void kv_space_ask(KvStore *store);	/* it should, whatever the account says */
/*
 * It has looked, and can make no room (or can, as far as it knows): writers who come to the bound
 * do not
 * (do) wait.  It is woken when so much more was written, if the store is beyond its mark still.
 */
extern void kv_space_answer(KvStore *store, bool no_room, uint64 quiet);
/* Files do not go: what is retired now is not counted any more; none: they do again. */
extern void kv_space_give_up(KvStore *store, uint64 bytes);
/*
 * A compaction job may write so much, until it has ended; bounds: for the bound, else what it
 * empties is set aside, too.
 */
extern void kv_space_move(KvStore *store, bool bounds, uint64 bytes);
extern void kv_space_moved(KvStore *store, bool bounds, uint64 bytes);
extern void kv_space_beat(KvStore *store);	/* a compaction job has come on */
/* … or a file that it has emptied is freed */
extern void kv_space_note_freed(KvStore *store, uint64 bytes);
/*
 * A writer takes so many bytes of the shard's value files, or gives them back. What has died there
 * since is told, too. The shard's lock is held, exclusively.
 */
extern void kv_space_tell(KvStore *store, KvShard *shard, int64 taken);

/* ---- space.c: what the value files say, and waiting for room ---- */

extern void kv_space_gucs(void);	/* at load: defines its settings */
/* A value file of which less than this is dead is not worth it. */
extern bool kv_space_pays(uint64 used, uint64 live);
/* Nor is an open one of which less than half is. */
extern bool kv_space_pays_open(uint64 used, uint64 live);
/* horizon: kv_xid_horizon(). */
extern void kv_shard_space(KvStore *store, uint32 shard_id, uint64 horizon, KvShardSpace *space);
extern void kv_store_space(KvStore *store, KvStoreSpace *space);	/* adds up all shards */
/* likewise, and has the account say that */
extern void kv_space_count(KvStore *store, KvStoreSpace *space);
/*
 * About what the account says: bytes that value files take. Counts them where nobody has since the
 * store was opened; no lock held.
 */
extern uint64 kv_space_taken(KvStore *store);
extern uint64 kv_space_wants_checkpoint(const KvStoreSpace *space);	/* if so much waits for one */
/* What start would be if so much were live. */
extern uint64 kv_space_start(const KvStoreSpace *space, uint64 live);
/* … and nothing kept */
extern uint64 kv_space_start_unkept(const KvStoreSpace *space, uint64 live);
/*
 * No lock held: the writer is to open a write buffer, or to write a large value, of a store that
 * has come to its
 * bound. Waits until there is room, or none is made; false: there is none a minute after *begin,
 * which is 0 at
 * first.  Others may take the room before he does, so he may come again.  Serves interrupts.
 */
extern bool kv_space_wait(KvStore *store, TimestampTz *begin);
extern bool kv_space_is_awaited(void);	/* does somebody, for any store? */

#endif							/* KV_SPACE_H */
