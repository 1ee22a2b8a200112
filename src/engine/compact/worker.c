/*
 * worker.c
 *		kvfdw compactor: compacts stores by itself, so that they keep to their bound (I 19).
 *
 * It sleeps until a writer has taken what was left of a store (shard/space.h), and looks at all
 * of them every ten seconds, for transactions that have aborted, snapshots that have ended and
 * what redo has replaced.  Of the stores that are beyond their marks the one comes first that was
 * served the longest ago, in it the shard with the most to win; then it looks again, so a store
 * waits for one pass of each other, whatever their size.  Writers who come to the bound of one
 * that waits for its turn wait as well, or each store would be beyond it while others are served; so do
 * those of one that it has not looked at yet.  It says so where it can make no room (kv_space_answer).
 *
 * A pass begins when there is room for what it may write: what passes before it have emptied is there
 * until the shard's image is made and the maintainer has freed it.  Where none of that has gone for ten seconds, and
 * no pass ran, nobody waits for it, and it is given up: it does not count any more, so passes begin again
 * as far as there is room.  If what they empty does not go either, that is given up twice as much later, and
 * so on; when a file goes, all is well again but for those that stay.
 *
 * It does not spin.  What old snapshots and running transactions need, or keep, is not to be won, padding
 * counts as live (kv_counts_add), and a shard of which a pass has won nothing is left alone until something
 * has changed there, and some time has passed.  The same where a pass fails; after a full disk
 * the next one tries what needs no values moved, or few.  While a base backup runs nothing that was
 * emptied could go, so nothing is begun.
 *
 * Before it puts anything in order it moves chunks of stores that go to another tablespace (shard/move.c), so many
 * at a time that others do not wait for long.  Where that fails, or those that have written there are still
 * at work, the shard is left alone for a while.
 *
 * Where it has nothing of that to do it puts values in the order of keys (find_unsorted).  It gives
 * that up for a store that is due, and begins again some time later, twice as long each time: what
 * it has moved until then was moved for nothing.
 *
 * A transaction without an xid or a snapshot is around each pass, for resources.  An ERROR ends
 * that pass only, or outside of one that round.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "miscadmin.h"
#include "postmaster/bgwriter.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "engine/base/types.h"
#include "engine/base/wait.h"
#include "engine/base/worker.h"
#include "engine/compact/internal.h"
#include "engine/shard/space.h"
#include "engine/xact/xact.h"

#define KV_IDLE_LOOK_MS	5000	/* how much was read and written is looked at no more often */
#define KV_BACKUP_LOOK_MS 1000
#define KV_IN_VAIN_MS	250		/* after a pass that has won nothing, … */
#define KV_RETRY_MS		10000	/* … or has failed, and twice as long each time … */
#define KV_RETRY_MOST_MS 300000 /* … up to this */
#define KV_ERROR_MS		1000	/* after an ERROR outside of a pass */
#define KV_RELEASE_LOOK_MS 20	/* are the files that passes have emptied gone? */
#define KV_RELEASE_FAILURES 3	/* so many images fail, and nobody waits for them */
#define KV_CHECKPOINT_MS 60000	/* until it asks again for a checkpoint that has not completed */
#define KV_IDLE_CALLS	100		/* a second: reads and writes of values beside which the device is idle */
#define KV_ORDER_CHUNKS	4		/* as many of the smallest out of order are worth it, … */
#define KV_ORDER_SHARE	8		/* … if they are such a part of their shard, … */
#define KV_LEAVE_MOST	(UINT64CONST(256) << 20)	/* values that one pass moves to another tablespace */
#define KV_ORDER_MOST	(UINT64CONST(1) << 30)	/* … which is no larger than this */

int			kv_compact_workers = 1;
int			kv_look_ms = 10000;	/* other than that in tests only */

/* Files that do not go for so long, and twice as long each time up to KV_RETRY_MOST_MS, nobody waits for. */
int			kv_release_ms = 10000;	/* other than that in tests only */

typedef enum KvTaskKind
{
	KV_TASK_BOUNDS,				/* so that it keeps to its bound; the first of these comes first */
	KV_TASK_LEAVES,				/* to another tablespace */
	KV_TASK_SORTS				/* for order */
} KvTaskKind;

/* What this process knows of a store (shard: -1), or of a shard that is left alone. */
typedef struct KvTriedKey
{
	uint32		cache_id;
	int32		shard;
	uint32		task;			/* KvTaskKind: each is left alone by itself */
} KvTriedKey;

typedef struct KvTried
{
	KvTriedKey	key;
	bool		going;			/* of a store: down to the stop mark, … */
	bool		busy;			/* … and there was something to do when it was last looked at, … */
	uint32		served;			/* … in which round for the last time; 0: in none */
	bool		at_rest;		/* it has a bound, and is within it */
	uint64		freed;			/* of a store: KvStore.space_freed, … */
	TimestampTz freed_at;		/* … since when it is that, or a pass has ended; 0: nothing is to go … */
	uint32		images_failed;	/* … and KvStore.images_failed then */
	uint32		stuck_ms;		/* files do not go, and it is waited for so long; 0: they do */
	uint32		retry_ms;		/* the last time; 0: it is not left alone (a store: for want of space) */
	TimestampTz until;
	KvSpaceWait why;
	KvShardSpace then;			/* how it stood */
	uint64		horizon;
	uint64		moved_lsn;		/* of a store: since it has had this, … */
	int			clean;			/* … so many looks have found no chunk elsewhere, the last one then (since) */
	uint64		writes;			/* of a shard that may be put in order: slots then, … */
	TimestampTz since;			/* … and since when there are no more */
	uint32		looked;			/* when it was last asked for, in rounds */
} KvTried;

/* What is to be done. */
typedef struct KvTask
{
	KvStore    *store;
	uint32		shard;
	KvPassPlan	plan;
	double		urgency;		/* how far the store is beyond its mark */
	uint32		served;			/* KvTried.served of the store */
	bool		others;			/* others compact shards of it, or are to release what passes have emptied */
	uint64		written;		/* KvShard.written then */
	KvPassResult result;
	int			sqlerrcode;		/* 0: it went through */
} KvTask;

static HTAB *tried_hash = NULL;
static uint32 rounds = 0;

/* ---- what is left alone ---- */

static KvTried *
find_tried(const KvStore *store, int32 shard, KvTaskKind kind, bool enter)
{
	KvTriedKey	key = {store->cache_id, shard, kind};
	bool		found;
	KvTried    *tried;

	if (tried_hash == NULL)
	{
		HASHCTL		info = {0};

		info.keysize = sizeof(KvTriedKey);
		info.entrysize = sizeof(KvTried);
		info.hcxt = TopMemoryContext;
		tried_hash = hash_create("kvfdw compactor", 64, &info,
								 HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	}
	tried = hash_search(tried_hash, &key, enter ? HASH_ENTER : HASH_FIND, &found);
	if (tried != NULL && !found)
		memset((char *) tried + sizeof(KvTriedKey), 0, sizeof(KvTried) - sizeof(KvTriedKey));
	if (tried != NULL)
		tried->looked = rounds;
	return tried;
}

static void
forget_tried(const KvStore *store, int32 shard, KvTaskKind kind)
{
	KvTriedKey	key = {store->cache_id, shard, kind};

	if (tried_hash != NULL)
		(void) hash_search(tried_hash, &key, HASH_REMOVE, NULL);
}

/*
 * Forget those that nobody has asked for since a round over all stores, unless they may be tried
 * before long; again: leave none alone any more.
 */
static void
forget_old(uint32 since, bool again)
{
	TimestampTz now = GetCurrentTimestamp();
	HASH_SEQ_STATUS status;
	KvTried    *tried;

	if (tried_hash == NULL)
		return;
	hash_seq_init(&status, tried_hash);
	while ((tried = hash_seq_search(&status)) != NULL)
	{
		if (again)
			tried->retry_ms = 0;
		if (tried->looked < since &&
			(tried->retry_ms == 0 ||
			 TimestampDifferenceExceeds(tried->until, now, KV_RETRY_MOST_MS)))
			(void) hash_search(tried_hash, &tried->key, HASH_REMOVE, NULL);
	}
}

static KvTaskKind
kind_of(const KvTask *task)
{
	return task->plan.aim == KV_PASS_SORTS ? KV_TASK_SORTS :
		task->plan.aim == KV_PASS_LEAVES ? KV_TASK_LEAVES : KV_TASK_BOUNDS;
}

/* shard: -1 for all of the store. */
static void
leave_alone(const KvTask *task, int32 shard, KvSpaceWait why, const KvShardSpace *then)
{
	KvTried    *tried = find_tried(task->store, shard, kind_of(task), true);

	if (tried->retry_ms == 0)
		tried->retry_ms = why == KV_SPACE_WAITS_FOR_SNAPSHOT ? KV_IN_VAIN_MS : KV_RETRY_MS;
	else
		tried->retry_ms = Min(tried->retry_ms * 2, KV_RETRY_MOST_MS);
	tried->until = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), tried->retry_ms);
	tried->why = why;
	tried->then = *then;
	tried->horizon = kv_xid_horizon();
}

/* Is the shard left alone?  *when is lowered to when it is not any more. */
static bool
is_left_alone(const KvStore *store, uint32 shard, KvTaskKind kind, const KvShardSpace *now,
			  TimestampTz *when, KvSpaceWait *why)
{
	KvTried    *tried = find_tried(store, shard, kind, false);
	bool		changed;

	if (tried == NULL || tried->retry_ms == 0)
		return false;
	changed = tried->why == KV_SPACE_WAITS_FOR_RETRY ||
		now->taken != tried->then.taken || now->to_win != tried->then.to_win ||
		tried->horizon != kv_xid_horizon();

	/* much more is dead than was then */
	if (changed && tried->why == KV_SPACE_WAITS_FOR_SNAPSHOT &&
		now->to_win > 2 * tried->then.to_win + kv_chunk_size(0))
		return false;
	if (changed && tried->until <= GetCurrentTimestamp())
		return false;
	if (changed)
		*when = Min(*when, tried->until);
	*why = Max(*why, tried->why);
	return true;
}

/* Does a split that has met a pass come first?  *when is lowered to when it does not any more. */
static bool
is_left_to_split(KvStore *store, uint32 shard, TimestampTz *when)
{
	TimestampTz until = kv_shard(store, shard)->split_waits;

	if (until <= GetCurrentTimestamp())
		return false;
	*when = Min(*when, until);
	return true;
}

/* ---- what is to be done ---- */

/*
 * The shard with the most to win, or, to be counted, the most to doubt; failed: of those only of
 * which passes fail.  False: there is none.
 */
static bool
find_shard(KvStore *store, const KvStoreSpace *space, bool failed, bool counts, TimestampTz *when,
		   KvSpaceWait *why, KvTask *task)
{
	uint64		horizon = kv_xid_horizon();
	uint64		most = 0;

	kv_each_shard(store, i)
	{
		KvShardSpace one;
		uint64		worth;

		kv_shard_space(store, i, horizon, &one);
		worth = counts ? one.doubtful : failed ? one.failed : one.to_win;
		if (worth <= most)
			continue;
		if (kv_shard(store, i)->compactor != 0)
		{
			task->others = true;
			continue;
		}
		if (is_left_to_split(store, i, when) || is_left_alone(store, i, KV_TASK_BOUNDS, &one, when, why))
			continue;
		most = worth;
		task->store = store;
		task->shard = i;
		task->plan.aim = counts ? KV_PASS_COUNTS : KV_PASS_BOUNDS;
		task->plan.enough = space->all.taken - Min(space->stop, space->all.taken) + one.failed;
		task->plan.most = one.pass;
		task->plan.paced = true;
		task->plan.modest = find_tried(store, -1, KV_TASK_BOUNDS, true)->retry_ms > 0;
	}
	return most > 0;
}

/* ---- order ---- */

/* Have few values been read or written since the last call, at least a look ago? */
static bool
device_is_idle(void)
{
	static uint64 calls = 0;
	static TimestampTz since = 0;
	static bool idle = false;
	TimestampTz now = GetCurrentTimestamp();
	uint64		calls_now = kv_pace_calls();

	if (since != 0 && now >= since && !TimestampDifferenceExceeds(since, now, KV_IDLE_LOOK_MS))
		return idle;
	idle = since != 0 && now > since && calls_now >= calls &&
		calls_now - calls < (uint64) (now - since) / USECS_PER_SEC * KV_IDLE_CALLS;
	calls = calls_now;
	since = now;
	return idle;
}

/*
 * A shard of the store whose values are to be put in order.  Nobody has written to it for a
 * while, and since it was in order for the last time as much was written as is to be moved: so
 * order costs at most one more write of each byte, whatever comes.
 */
static bool
find_unsorted(KvStore *store, TimestampTz *when, KvTask *task)
{
	TimestampTz now = GetCurrentTimestamp();
	uint64		horizon = kv_xid_horizon();
	uint64		most = 0;

	kv_each_shard(store, i)
	{
		KvShard    *shard = kv_shard(store, i);
		uint64		writes = pg_atomic_read_u64(&shard->writes) + shard->value_bytes;
		KvSpaceWait why = KV_SPACE_WAITS_NOT;
		KvShardSpace one;
		KvTried    *tried;

		if (shard->compactor != 0 || shard->written < KV_ORDER_CHUNKS * kv_chunk_size(0) ||
			is_left_to_split(store, i, when))
			continue;
		kv_shard_space(store, i, horizon, &one);
		if (shard->written < one.live || one.live > KV_ORDER_MOST ||
			one.unsorted < Max(KV_ORDER_CHUNKS * kv_chunk_size(0), one.live / KV_ORDER_SHARE) ||
			is_left_alone(store, i, KV_TASK_SORTS, &one, when, &why))
			continue;
		tried = find_tried(store, i, KV_TASK_SORTS, true);
		if (tried->writes != writes || tried->since == 0 || tried->since > now)
		{
			tried->writes = writes;
			tried->since = now;
		}
		if (!TimestampDifferenceExceeds(tried->since, now, kv_look_ms - 1) || one.live <= most)
			continue;
		most = one.live;
		task->store = store;
		task->shard = i;
		memset(&task->plan, 0, sizeof(task->plan));
		task->plan.aim = KV_PASS_SORTS;
		task->plan.unless_sorted = task->plan.paced = true;
	}
	return most > 0;
}

/* ---- tablespaces ---- */

/*
 * A shard of the store with chunks that are to leave their tablespace.  While it has directories in others it may get
 * one there still; else no more when twice none was found: who made one at that time has listed it by then.
 */
static bool
find_leaving(KvStore *store, TimestampTz *when, KvTask *task)
{
	KvTried    *state = find_tried(store, -1, KV_TASK_LEAVES, true);
	TimestampTz now = GetCurrentTimestamp();
	bool		any = false;

	if (store->shape.moved_lsn == 0)
		return false;
	if (state->moved_lsn != store->shape.moved_lsn)
		state->clean = 0;
	state->moved_lsn = store->shape.moved_lsn;
	if (state->clean > 1 && store->shape.nleaving == 0)
		return false;
	kv_each_shard(store, i)
	{
		const KvTried *tried = find_tried(store, i, KV_TASK_LEAVES, false);
		bool		can_leave = kv_shard_leaves(store, i, &any);

		if (!can_leave || kv_shard(store, i)->compactor != 0 || is_left_to_split(store, i, when))
			continue;
		if (tried != NULL && tried->retry_ms > 0 && tried->until > now)
		{
			*when = Min(*when, tried->until);
			continue;
		}
		task->store = store;
		task->shard = i;
		memset(&task->plan, 0, sizeof(task->plan));
		task->plan.aim = KV_PASS_LEAVES;
		task->plan.most = KV_LEAVE_MOST;
		task->plan.paced = true;
		return true;
	}
	if (any)
		state->clean = 0;
	else if (state->clean == 0 || TimestampDifferenceExceeds(state->since, now, kv_look_ms / 2))
	{
		state->clean++;
		state->since = now;
	}
	return false;
}

/* At level 'keys': what is retired goes with a checkpoint; if it is much, ask for one. */
static void
want_checkpoint(const KvStore *store, const KvStoreSpace *space)
{
	static TimestampTz asked = 0;
	static uint64 since = 0;
	static bool hurried = false;
	bool		hurry = space->retired > 0 && space->retired_longer > 0 && kv_space_is_awaited();
	TimestampTz now = GetCurrentTimestamp();
	uint64		last = pg_atomic_read_u64(&kv_registry->checkpoint);

	if (space->bound == PG_UINT64_MAX || RecoveryInProgress() ||
		space->retired_longer < kv_space_wants_checkpoint(space) ||
		((hurried || !hurry) && asked != 0 && since == last && now >= asked &&
		 !TimestampDifferenceExceeds(asked, now, KV_CHECKPOINT_MS)))
		return;
	asked = now;
	since = last;
	hurried = hurry;

	/* also if nobody has written to the WAL since */
	RequestCheckpoint(CHECKPOINT_FORCE | (hurry ? KV_CHECKPOINT_FAST : 0));
}

/* On a standby no store at another level has anything. */
static bool
is_compacted_here(const KvStore *store)
{
	return !RecoveryInProgress() || store->shape.wal == KV_WAL_FULL;
}

/* From now on it is waited for what passes have emptied, if there is something. */
static void
await_release(KvTried *state, KvStore *store, uint64 retired)
{
	state->freed = pg_atomic_read_u64(&store->space_freed);
	state->freed_at = retired > 0 ? GetCurrentTimestamp() : 0;
	state->images_failed = pg_atomic_read_u32(&store->images_failed);
}

/* Does what passes have emptied not go?  Then it is given up. */
static bool
is_release_stuck(KvTried *state, KvStore *store, KvStoreSpace *space)
{
	TimestampTz now = GetCurrentTimestamp();
	uint32		failed = pg_atomic_read_u32(&store->images_failed) - state->images_failed;

	/* redo makes an image now and then only, and waits for nothing */
	if (space->retired + space->given_up == 0 || RecoveryInProgress() ||
		pg_atomic_read_u64(&store->space_freed) != state->freed)
	{
		state->stuck_ms = 0;
		kv_space_give_up(store, space->given_up);
		await_release(state, store, space->retired);
	}
	else if (space->retired == 0 || state->freed_at == 0 || now < state->freed_at)
		await_release(state, store, space->retired);
	else if ((state->stuck_ms == 0 && failed >= KV_RELEASE_FAILURES) ||
			 TimestampDifferenceExceeds(state->freed_at, now, Max(state->stuck_ms,
																  space->retired_longer > 0 ? KV_CHECKPOINT_MS : kv_release_ms)))
	{
		state->stuck_ms = Min(Max(2 * state->stuck_ms, kv_release_ms), KV_RETRY_MOST_MS);
		kv_space_give_up(store, space->retired + space->given_up);
		await_release(state, store, 0);
		kv_space_count(store, space);
	}
	return state->stuck_ms > 0;
}

/* Is there room for what the pass may write? */
static bool
has_room_to_move(const KvStoreSpace *space, const KvTask *task)
{
	return space->retired == 0 || space->bound == PG_UINT64_MAX || RecoveryInProgress() ||
		space->all.taken + space->retired + space->moving + task->plan.most <= space->bound;
}

/*
 * What is to be done for the bound of a store that is beyond its mark, or might be, if anything can
 * be; *why not.
 */
static bool
find_in_time(KvStore *store, KvTried *state, const KvStoreSpace *space, bool beyond, bool failed,
			 bool doubtful, TimestampTz *when, KvSpaceWait *why, KvTask *task)
{
	if (state->retry_ms > 0 && state->until > GetCurrentTimestamp())
	{
		*why = KV_SPACE_WAITS_FOR_DISK;
		*when = Min(*when, state->until);
		return false;
	}
	if ((beyond || failed) && find_shard(store, space, !beyond, false, when, why, task))
	{
		if (has_room_to_move(space, task))
			return true;
		task->others = true;
		*why = KV_SPACE_WAITS_NOT;
		*when = Min(*when, TimestampTzPlusMilliseconds(GetCurrentTimestamp(), KV_RELEASE_LOOK_MS));
		return false;
	}
	return doubtful && find_shard(store, space, false, true, when, why, task);
}

/*
 * What the bound of a store asks for, if anything.  *when is lowered to when it is to be looked at
 * again.
 */
static bool
find_due(KvStore *store, bool backup, TimestampTz *when, KvTask *task)
{
	KvTried    *state = find_tried(store, -1, KV_TASK_BOUNDS, true);
	KvSpaceWait why = KV_SPACE_WAITS_NOT;
	KvStoreSpace space;
	bool		beyond;
	bool		doubtful;
	bool		failed;
	bool		stuck;
	bool		found = false;

	kv_space_count(store, &space);
	stuck = is_release_stuck(state, store, &space);
	want_checkpoint(store, &space);
	beyond = space.all.taken > (state->going ? space.stop : space.start);
	doubtful = space.all.taken > kv_space_start(&space, space.all.live - space.all.doubtful);
	failed = space.all.failed > 0 &&
		space.all.taken > kv_space_start(&space, space.all.live - space.all.failed);
	task->urgency = (double) space.all.taken / Max(space.start, 1);
	task->served = state->served;
	if (beyond || doubtful || failed)
	{
		if (backup)
			why = KV_SPACE_WAITS_FOR_BACKUP;
		else
			found = find_in_time(store, state, &space, beyond, failed, doubtful, when, &why, task);
	}
	else if (space.all.taken > kv_space_start_unkept(&space, space.all.live - space.all.held))
		why = KV_SPACE_WAITS_FOR_SNAPSHOT;
	else if (space.all.taken > kv_space_start(&space, space.all.live - space.all.stuck))
		why = KV_SPACE_WAITS_FOR_DAMAGE;
	if (stuck && why <= KV_SPACE_WAITS_FOR_SNAPSHOT)
		why = KV_SPACE_WAITS_FOR_RELEASE;

	/* what is due and cannot be done waits, and nobody for it, unless others are at it */
	if (!stuck && (found || task->others || !(beyond || doubtful || failed)))
		kv_space_answer(store, false, 0);
	else
		kv_space_answer(store, true, kv_chunk_size(0) + space.all.taken / 16);
	state->going = (found || task->others) && beyond;
	state->busy = found || task->others;
	state->at_rest = !state->busy && why == KV_SPACE_WAITS_NOT && space.start != PG_UINT64_MAX;
	pg_atomic_write_u32(&store->space_waits, found && !stuck ? KV_SPACE_WAITS_NOT : why);
	return found;
}

/* Likewise, and what is to leave its tablespace, or to be put in order. */
static bool
find_task(KvStore *store, bool backup, TimestampTz *when, KvTask *task)
{
	KvTried    *state;

	if (find_due(store, backup, when, task))
		return true;
	if (!backup && find_leaving(store, when, task))
	{
		find_tried(store, -1, KV_TASK_BOUNDS, true)->busy = true;
		return true;
	}
	state = find_tried(store, -1, KV_TASK_BOUNDS, true);
	if (!state->at_rest || backup || kv_compact_order != KV_ORDER_IDLE ||
		(state->retry_ms > 0 && state->until > GetCurrentTimestamp()) ||
		!find_unsorted(store, when, task) || !device_is_idle() ||
		kv_io_space_is_short(kv_path_values(&store->key)))
		return false;
	find_tried(store, -1, KV_TASK_BOUNDS, true)->busy = true;
	return true;
}

/* ---- beside a pass ---- */

static const KvStore *passing = NULL;	/* the store of the pass that runs */
static bool passing_sorts;
static bool others_wait;		/* some store is due besides; for a pass for order its own as well */

/* Look at those that may have become so. */
static void
look_at_others(void)
{
	bool		backup = kv_backups_run();
	TimestampTz when = DT_NOEND;
	List	   *stores = kv_stores_pin_state(InvalidOid, KV_STORE_OPEN);
	ListCell   *cell;

	PG_TRY();
	{
		foreach(cell, stores)
		{
			KvStore    *store = lfirst(cell);
			KvTask		task = {0};

			if ((store == passing && !passing_sorts) || !is_compacted_here(store) ||
				!kv_space_is_due(store))
				continue;
			others_wait |= find_due(store, backup, &when, &task);
		}
	}
	PG_FINALLY();
	{
		kv_stores_unpin(stores);
	}
	PG_END_TRY();
}

bool
kv_pass_is_awaited(void)
{
	/* what has come to its mark may be new, so it need not be due; and its writers want to know */
	if (passing != NULL && pg_atomic_exchange_u32(&kv_compactor->wanted, 0) != 0)
		look_at_others();
	return others_wait;
}

/*
 * Bounds before tablespaces before order; of stores the one that was served the longest ago, then the
 * farthest beyond its mark.
 */
static bool
comes_before(const KvTask *task, const KvTask *other)
{
	if (other->store == NULL || kind_of(task) != kind_of(other))
		return other->store == NULL || kind_of(task) < kind_of(other);
	return task->served != other->served ? task->served < other->served :
		task->urgency > other->urgency;
}

/* ---- doing it ---- */

/* Stores that this process keeps from being removed. */
static List *pinned = NIL;

static void
unpin(KvStore *except)
{
	List	   *stores = pinned;

	pinned = NIL;
	if (except != NULL)
	{
		stores = list_delete_ptr(stores, except);
		pinned = list_make1(except);
	}
	kv_stores_unpin(stores);
}

static void
do_task(KvTask *task)
{
	MemoryContext context = CurrentMemoryContext;

	StartTransactionCommand();
	PG_TRY();
	{
		kv_shard_compact(task->store, task->shard, &task->plan, &task->result);
		CommitTransactionCommand();
	}
	PG_CATCH();
	{
		ErrorData  *error;

		HOLD_INTERRUPTS();
		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		task->sqlerrcode = error->sqlerrcode;
		/* under a store that is dropped meanwhile anything may fail */
		if (!ShutdownRequestPending &&
			pg_atomic_read_u32(&task->store->state) != KV_STORE_DROPPED)
			EmitErrorReport();
		FlushErrorState();
		AbortCurrentTransaction();
		RESUME_INTERRUPTS();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
}

/* If it has failed, what is dead there counts as live until one goes through. */
static void
note_failure(const KvTask *task)
{
	KvShard    *shard = kv_shard(task->store, task->shard);

	if (task->sqlerrcode == 0 || task->sqlerrcode == ERRCODE_DISK_FULL)
		return;
	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	shard->pass_failed = true;
	LWLockRelease(&shard->lock);
}

/* What has come of it. */
static void
look_back(const KvTask *task, const KvShardSpace *before)
{
	const KvPassResult *result = &task->result;
	KvStoreSpace space;
	KvShardSpace after;
	bool		won;

	if (pg_atomic_read_u32(&task->store->state) == KV_STORE_DROPPED || ShutdownRequestPending)
		return;
	note_failure(task);
	if (result->emptied > 0)
		find_tried(task->store, -1, KV_TASK_BOUNDS, true)->freed_at = GetCurrentTimestamp();
	kv_space_count(task->store, &space);
	kv_shard_space(task->store, task->shard, kv_xid_horizon(), &after);
	if (kind_of(task) != KV_TASK_BOUNDS)
		won = result->was_sorted || result->emptied > 0;
	else if (task->plan.aim == KV_PASS_COUNTS)
		won = after.doubtful < before->doubtful / 2;
	else
		won = result->emptied > result->written ||
			(result->emptied == 0 && after.to_win < before->to_win / 2);	/* it was counted anew */
	if (task->sqlerrcode == ERRCODE_DISK_FULL && kind_of(task) == KV_TASK_BOUNDS)
		leave_alone(task, -1, KV_SPACE_WAITS_FOR_DISK, &after);
	else if (task->sqlerrcode != 0 || result->gave_up)
		leave_alone(task, task->shard, KV_SPACE_WAITS_FOR_RETRY, &after);
	else if (!won)
		leave_alone(task, task->shard, KV_SPACE_WAITS_FOR_SNAPSHOT, &after);
	else
		forget_tried(task->store, task->shard, kind_of(task));
	if (result->was_sorted)
	{
		KvShard    *shard = kv_shard(task->store, task->shard);

		LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
		shard->written -= Min(shard->written, task->written);
		LWLockRelease(&shard->lock);
	}
	if (task->sqlerrcode == 0 && result->written > 0)
		find_tried(task->store, -1, KV_TASK_BOUNDS, true)->retry_ms = 0;	/* there is room */
	ConditionVariableSignal(&task->store->space_made);
}

/* The one before has ended in whatever way, and nobody knows any more what it had found. */
static void
begin_all(void)
{
	ListCell   *cell;

	pinned = kv_stores_pin_state(InvalidOid, KV_STORE_OPEN);
	foreach(cell, pinned)
		kv_space_answer(lfirst(cell), false, 0);
	unpin(NULL);
}

/*
 * Look at those stores that may be due, or at all of them, and do what is most urgent.  False:
 * there is nothing to do until *when.
 */
static bool
run_round(bool all, TimestampTz *when)
{
	bool		backup;
	KvTask		best = {0};
	int			due = 0;		/* stores */
	ListCell   *cell;

	pg_atomic_write_u32(&kv_compactor->wanted, 0);
	kv_backups_look();
	backup = kv_backups_run();
	pinned = kv_stores_pin_state(InvalidOid, KV_STORE_OPEN);
	foreach(cell, pinned)
	{
		if (kv_move_begin(lfirst(cell)))
			all = true;
	}
	foreach(cell, pinned)
	{
		KvStore    *store = lfirst(cell);
		KvTask		task = {0};
		const KvTried *state = find_tried(store, -1, KV_TASK_BOUNDS, false);

		if (!is_compacted_here(store) ||
			(!all && (state == NULL || !state->busy) &&
			 !kv_space_is_due(store)))
			continue;
		if (!find_task(store, backup, when, &task))
			continue;
		due += kind_of(&task) == KV_TASK_BOUNDS;
		if (comes_before(&task, &best))
			best = task;
	}
	unpin(best.store);
	if (backup)
		*when = Min(*when, TimestampTzPlusMilliseconds(GetCurrentTimestamp(), KV_BACKUP_LOOK_MS));
	if (best.store != NULL && !ShutdownRequestPending)
	{
		KvShardSpace before;

		kv_shard_space(best.store, best.shard, kv_xid_horizon(), &before);
		find_tried(best.store, -1, KV_TASK_BOUNDS, true)->served = rounds;
		best.written = kv_shard(best.store, best.shard)->written;
		passing = best.store;
		passing_sorts = kind_of(&best) == KV_TASK_SORTS;
		others_wait = due > 1;
		do_task(&best);
		passing = NULL;
		look_back(&best, &before);
	}
	unpin(NULL);
	return best.store != NULL;
}

/* Likewise; an ERROR outside of a pass ends the round only.  The next one begins a little later. */
static bool
attempt_round(bool all, TimestampTz *when)
{
	MemoryContext context = CurrentMemoryContext;
	volatile bool done = false;

	PG_TRY();
	{
		done = run_round(all, when);
	}
	PG_CATCH();
	{
		HOLD_INTERRUPTS();
		MemoryContextSwitchTo(context);
		if (!ShutdownRequestPending)
			EmitErrorReport();
		FlushErrorState();
		ConditionVariableCancelSleep();
		AbortCurrentTransaction();
		LWLockReleaseAll();
		unpin(NULL);
		*when = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), KV_ERROR_MS);
		RESUME_INTERRUPTS();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	return done;
}

static void
compactor_exit(int code, Datum arg)
{
	kv_space_attend(NULL);
	unpin(NULL);
}

void
kv_compactor_main(Datum arg)
{
	MemoryContext context;
	TimestampTz looked = 0;
	uint32		looked_round = 0;
	bool		reloaded;

	kv_worker_begin("kvfdw compactor");
	before_shmem_exit(compactor_exit, (Datum) 0);
	begin_all();
	kv_space_attend(MyLatch);
	context = AllocSetContextCreate(TopMemoryContext, "kvfdw compactor", ALLOCSET_DEFAULT_SIZES);

	while (kv_worker_goes_on(&reloaded))
	{
		TimestampTz now = GetCurrentTimestamp();
		TimestampTz when;
		bool		all = reloaded || looked > now || looked == 0 ||
			TimestampDifferenceExceeds(looked, now, kv_look_ms);

		MemoryContextSwitchTo(context);
		MemoryContextReset(context);
		CHECK_FOR_INTERRUPTS();
		rounds++;
		if (all)
		{
			/* told to read its settings again, it tries again what has failed */
			looked = now;
			forget_old(looked_round, reloaded);
			looked_round = rounds;
		}
		when = TimestampTzPlusMilliseconds(looked, kv_look_ms);
		if (attempt_round(all, &when))
			continue;
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 Max(TimestampDifferenceMilliseconds(GetCurrentTimestamp(), when), 1),
						 KV_WAIT_IDLE);
	}
	proc_exit(1);				/* so that the postmaster starts it again, unless it stops itself */
}
