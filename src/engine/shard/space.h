/*
 * space.h
 *		Space accounting, and back-pressure on writers at the space limit (I 19).
 *
 *	T	bytes in the store's value files, including emptied files not yet removed
 *	L	bytes of live values
 *	K	bytes of dead values that a snapshot or an open transaction may still need, or whose
 *		transaction's end is not yet known to all (dying.c)
 *	a	kvfdw.max_space_amplification
 *	c	a constant for each shard, and one compaction job
 *
 *		T <= L + c + max((a - 1) L, K + (a - 1) L / 4)
 *
 * K includes the dead values of transactions that are about to end, among them those of waiting
 * writers.  Such values do not take T beyond a L + c, unless there are many.
 *
 * kvfdw compactor begins to compact a store before the limit and stops a little below that, so that
 * it need not start again at once.  Writers report to the store's account what they take and what
 * has died.  They wake the compactor when the account reaches the mark.  At the limit, a writer
 * that opens a write buffer or writes a large value waits until there is space.  So the limit holds
 * however slow the compactor is.  The compactor keeps to the limit, too: it sets aside what a
 * compaction job may write, and waits while previously emptied files still exist.
 *
 * The following comes on top of the limit:
 * - at level 'keys', obsolete files, which a checkpoint frees; beyond twice the amount that
 *   requests a checkpoint (kv_space_wants_checkpoint) they count
 * - output and emptied files of a manual compaction or a sort job
 * - files whose removal fails although nothing needs them (space.given_up)
 *
 * Writers do not wait
 * - for a snapshot or a transaction, their own or another's: its values are in K, so at the limit
 *   at least a quarter of (a - 1) L is dead values that no snapshot sees
 * - when the compactor has found that it can make no space (space.no_room): because of a backup, a
 *   full disk, a pending retry, or a file whose removal fails
 * - when no compactor runs and no worker process is free for one
 * - when for a minute no compaction job of the store has made progress and no file was freed, until
 *   one does (space.stalled): the compactor hangs, or a split runs, whose shard compaction jobs
 *   skip
 * - longer than a minute for one write buffer, if other writers take all space that is made
 * - to delete or to lock a row, in redo, or if they must not wait: clients of memcached
 *
 * Why nothing waits for a writer that waits here: The writer holds no LWLock, no write buffer and
 * no address that was not counted, and serves interrupts.  It may hold versions of its open
 * transaction, in this store or another, and locks of rows and tables.  Three things make space: a
 * compaction job (a walk over runs, copying, a flush), a mark of the shard, and the maintainer,
 * which frees files.  They take versions of unfinished transactions as they are.  They wait for no
 * row, and for a table only in DROP.  A split halts a shard's writers and waits for those that work
 * under the shard's lock, not for this one.  A checkpoint waits for commits that have begun; this
 * writer's has not.  A value file into which its transaction has written a large value cannot be
 * emptied: its dead values are in K.
 *
 * A waiting writer checks again under its shard's lock, and takes there the space that it finds.
 * So of many woken writers as many continue as there is space for write buffers.  Writers of
 * several shards may each take one write buffer too many at the same time; a quarter of the
 * constant of each shard is kept for that.
 *
 * Values that compaction cannot reclaim count as live: dead values in a file with an unreadable
 * value, and those in shards whose compaction jobs fail.  So other files are not rewritten again
 * and again in their stead.
 *
 * L is an estimate: the count of the last merge or walk of all runs, minus the values replaced or
 * deleted since.  Values that were never counted are live.  Some of them may be dead (of aborted
 * transactions, of ended snapshots, of changes that a standby replays): these are uncertain, and
 * are counted when that could make a difference.
 *
 * Locks: takes shard locks in shared mode, one at a time.  The caller holds none unless a comment
 * says so.
 */
#ifndef KV_SPACE_H
#define KV_SPACE_H

#include "storage/condition_variable.h"
#include "storage/latch.h"

#include "engine/shard/shard.h"

typedef struct KvCompactor
{
	Latch	   *latch;			/* NULL while the compactor does not run */
	/* the compactor's kvfdw.max_space_amplification: 1 + thousandths; 0: it does not run */
	pg_atomic_uint32 amp;
	/*
	 * since its last check a store has reached its mark, or the compactor has interrupted its work
	 */
	pg_atomic_uint32 wanted;
	/* TimestampTz: when a writer last waited for space, in any store */
	pg_atomic_uint64 awaited;
} KvCompactor;

extern KvCompactor *kv_compactor;

/* Bytes of a shard's values. */
typedef struct KvShardSpace
{
	uint64		taken;			/* in its value files */
	uint64		live;			/* estimated live ones of these */
	uint64		uncertain;		/* live ones that are to be counted */
	/* live ones that only older snapshots or unfinished transactions need */
	uint64		held;
	uint64		kept;			/* dead ones that a snapshot or transaction may need */
	uint64		stuck;	/* dead ones that count as live, in files with an unreadable value */
	uint64		failed;			/* more dead ones that count as live, where compaction jobs fail */
	uint64		grain;	/* size of the next value file, but only a small part of the shard */
	uint64		job;			/* one compaction job moves at most this many bytes */
	uint64		to_win;			/* dead ones, in value files that are worth compacting */
	uint64		to_win_open;	/* those of to_win in the open file, which must be closed for it */
	uint64		unsorted;		/* live ones, in value files without KV_VALUE_FILE_SORTED */
} KvShardSpace;

/* Bytes of a store's values. */
typedef struct KvStoreSpace
{
	KvShardSpace all;
	double		amp;			/* the store's kvfdw.max_space_amplification */
	uint64		obsolete;		/* obsolete bytes that wait for a mark only, or are being freed */
	uint64		given_up;		/* obsolete bytes whose removal fails; not in obsolete */
	uint64		granted;		/* obsolete bytes that are free at level 'keys'; not in obsolete */
	uint64		obsolete_longer; /* obsolete bytes that wait for a checkpoint */
	uint64		moving;			/* bytes that compaction jobs may write */
	uint64		aside;			/* bytes of moving and obsolete that are on top of the limit */
	uint64		start;			/* compaction starts beyond this */
	uint64		stop;			/* compaction stops at this */
	uint64		bound;			/* PG_UINT64_MAX: no limit; without given_up and granted */
} KvStoreSpace;

/* Why a store beyond its mark is not compacted. */
typedef enum KvSpaceWait
{
	KV_SPACE_WAITS_NOT,
	KV_SPACE_WAITS_FOR_SNAPSHOT,	/* or a transaction */
	KV_SPACE_WAITS_FOR_BACKUP,
	KV_SPACE_WAITS_FOR_DISK,
	KV_SPACE_WAITS_FOR_RELEASE, /* removal of emptied files fails */
	KV_SPACE_WAITS_FOR_RETRY,	/* waits after a failure */
	KV_SPACE_WAITS_FOR_DAMAGE	/* unreadable values keep their value files */
} KvSpaceWait;

extern const char *const kv_space_wait_names[];	/* for messages and views; NULL: none */

/* ---- account.c: the account, which needs no look at value files ---- */

/* a store is compacted from this share of the allowed dead bytes on */
#define KV_START_SHARE	0.93

extern void kv_space_init(void);	/* when its shared memory is made */
extern void kv_account_gucs(void);	/* for kv_space_gucs: kvfdw.max_space_amplification */
/* kvfdw compactor runs, with its latch; NULL: it has ended */
extern void kv_space_attend(Latch *latch);
/*
 * The store's own limit or, if it has none, kvfdw.max_space_amplification as kvfdw compactor has
 * it.  All processes use the compactor's value: other processes do not see a change during a
 * statement.
 */
extern double kv_space_amp(const KvStore *store);
/* The mark at this share of the way to the limit. */
extern int64 kv_space_mark(double amp, double share, int64 live, int64 kept, int64 slack);
/*
 * The bytes until compaction may be due, and until writers wait, by the account.  Both may be
 * negative.
 */
extern void kv_space_left(KvStore *store, int64 *start, int64 *bound);
/* should kvfdw compactor check the store?  The account says so, or a writer waits */
extern bool kv_space_is_due(KvStore *store);
/*
 * Would a writer have to wait?  Starts the compactor if it does not run; false if there is no
 * worker process for it.
 */
extern bool kv_space_is_short(KvStore *store);
/* makes it check stores, and starts it if it does not run */
extern void kv_compactor_wake(void);
/* repeats a kv_compactor_wake that started no worker; called by the maintainer */
extern void kv_compactor_wake_again(void);
/* makes it check this store, whatever the account says */
extern void kv_space_ask(KvStore *store);
/*
 * The compactor's answer after a check.  no_room: it can make no space, so writers at the limit do
 * not wait.  While the store is beyond its mark, the compactor is woken after quiet more bytes.
 */
extern void kv_space_answer(KvStore *store, bool no_room, uint64 quiet);
/* Files of so many bytes cannot be removed and do not count; 0: removal works again. */
extern void kv_space_give_up(KvStore *store, uint64 bytes);
/*
 * A compaction job may write so many bytes until it ends.  bounds: it works for the limit;
 * otherwise the files that it empties are set aside, too.
 */
extern void kv_space_move(KvStore *store, bool bounds, uint64 bytes);
extern void kv_space_moved(KvStore *store, bool bounds, uint64 bytes);
extern void kv_space_beat(KvStore *store);	/* a compaction job has made progress */
/* a file that it has emptied is freed */
extern void kv_space_note_freed(KvStore *store, uint64 bytes);
/*
 * A writer takes so many bytes of the shard's value files, or gives them back; also reports the
 * bytes that have died in the shard.  The caller holds the shard's lock exclusively.
 */
extern void kv_space_tell(KvStore *store, KvShard *shard, int64 taken);

/* ---- space.c: counts over value files, and waiting for space ---- */

extern void kv_space_gucs(void);	/* at load: defines its settings */
/* Is the value file worth compacting?  It is if enough of it is dead. */
extern bool kv_space_pays(uint64 used, uint64 live);
/* Is the open value file worth closing and compacting?  At least half of it must be dead. */
extern bool kv_space_pays_open(uint64 used, uint64 live);
/* Counts a shard.  horizon is kv_xid_horizon(). */
extern void kv_shard_space(KvStore *store, uint32 shard_id, uint64 horizon, KvShardSpace *space);
extern void kv_store_space(KvStore *store, KvStoreSpace *space);	/* counts all shards */
/* counts all shards, and updates the account */
extern void kv_space_count(KvStore *store, KvStoreSpace *space);
/*
 * The bytes that value files take, by the account.  Counts them if no process has done so since the
 * store was opened.  No lock held.
 */
extern uint64 kv_space_taken(KvStore *store);
/* amount of obsolete bytes that requests a checkpoint */
extern uint64 kv_space_wants_checkpoint(const KvStoreSpace *space);
/* The start mark for so many live bytes. */
extern uint64 kv_space_start(const KvStoreSpace *space, uint64 live);
/* The start mark for so many live bytes, if no dead ones are kept. */
extern uint64 kv_space_start_unkept(const KvStoreSpace *space, uint64 live);
/*
 * A writer calls this, without a lock, before it opens a write buffer or writes a large value in a
 * store at its limit.  Waits until there is space, or none can be made.  False: there is none a
 * minute after *begin, which is 0 at first.  Other writers may take the space first, so the writer
 * may call again.  Serves interrupts.
 */
extern bool kv_space_wait(KvStore *store, TimestampTz *begin);
extern bool kv_space_is_awaited(void);	/* does a writer wait, in any store? */

#endif							/* KV_SPACE_H */
