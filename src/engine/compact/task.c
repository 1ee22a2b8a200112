/*
 * task.c
 *		Decides the compactor's next job in a store: for its limit, its tablespace, or key order;
 *		which stores and shards are left alone for a while; and events that a running job reacts to.
 *
 * Limit (I 19): The job is for the shard with the most to win.  It begins when there is space for
 * what it may write.  Files that previous jobs have emptied exist until the shard's mark is made
 * and the maintainer has freed them.  If no file was freed for ten seconds without a job, these
 * files are given up: they do not count any more, so jobs begin again as far as there is space.  If
 * the files of these jobs are not freed either, they are given up after twice as long, and so on.
 * As soon as one file is freed, only files that still exist stay given up.
 *
 * Key order: A sort job is for a shard at rest in a store within its mark, whatever other processes
 * do.  Their activity does not tell whether the job disturbs them.  A hundred reads of the page
 * cache a second are nothing, and one scan may use all of the device.  A server that is never idle
 * would never have its values sorted.  So activity decides only how fast the job works: no process
 * waits for it, and its share of the time leaves most to others (pace.c).  The size of the shard
 * does not matter: it follows from kvfdw.shard_size and the number of shards.  In a large shard
 * scans gain as much for each byte, at the same cost for each byte.
 *
 * A sort job of a large shard may lack disk space, because the old files are removed when all is
 * written.  So there must be free space for twice what is moved.  It also takes long, so it is more
 * likely to give way, and has then moved more in vain.  A shard is then left alone for KV_VAIN_REST
 * times the duration of the job, so the wasted part of the time is small.  Sorting one part of the
 * keys at a time would waste less.  But the old files have keys of all parts: they would exist
 * until the last part is sorted, half dead, and be compacted for the limit in between.
 *
 * Tablespaces: Value files that are to leave a tablespace (shard/move.c) are moved in small
 * portions, so that other jobs do not wait long.  If that fails, or transactions that have written
 * to these files are still running, the shard is left alone for a while.
 *
 * Left alone: If a job has won nothing, its shard is left alone until something has changed there
 * and some time has passed, twice as much each time.  If a job has failed or was given up, the
 * time alone counts.  A store is left alone in this way when the disk is full.  The notes belong
 * to the process and are lost when it ends.
 *
 * A running job reacts to interrupts, DROP, and other stores that are due.  Other stores concern
 * only kvfdw compactor.  A store that becomes due waits for the job, which hurries then.  A sort
 * job gives way if that store is nearer to its limit than to its mark, or if a writer waits for
 * space.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "miscadmin.h"
#include "postmaster/bgwriter.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "compat.h"
#include "engine/base/error.h"
#include "engine/base/hash.h"
#include "engine/base/types.h"
#include "engine/base/wait.h"
#include "engine/base/worker.h"
#include "engine/compact/internal.h"
#include "engine/format/path.h"
#include "engine/io/name.h"
#include "engine/shard/map.h"
#include "engine/shard/shard.h"
#include "engine/shard/space.h"
#include "engine/shard/valuefiles.h"
#include "engine/xact/xact.h"

/* ---- stores and shards that are left alone ---- */

#define KV_IN_VAIN_MS	250		/* delay after a job that has won nothing */

uint32		kv_compact_rounds = 0;

static HTAB *tried_hash = NULL;

KvTried *
kv_tried(const KvStore *store, int32 shard, KvTaskKind kind, bool enter)
{
	KvTriedKey	key = {store->cache_id, shard, kind};
	bool		found;
	KvTried    *tried;

	if (tried_hash == NULL)
		tried_hash = kv_hash_create("kvfdw compactor", sizeof(KvTriedKey), sizeof(KvTried),
									TopMemoryContext);
	tried = hash_search(tried_hash, &key, enter ? HASH_ENTER : HASH_FIND, &found);
	if (tried != NULL && !found)
		memset((char *) tried + sizeof(KvTriedKey), 0, sizeof(KvTried) - sizeof(KvTriedKey));
	if (tried != NULL)
		tried->looked = kv_compact_rounds;
	return tried;
}

void
kv_tried_forget(const KvStore *store, int32 shard, KvTaskKind kind)
{
	KvTriedKey	key = {store->cache_id, shard, kind};

	if (tried_hash != NULL)
		(void) hash_search(tried_hash, &key, HASH_REMOVE, NULL);
}

void
kv_tried_forget_old(uint32 since, bool again)
{
	TimestampTz now = kv_clock();
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

/* The next attempt comes after this time, or after twice the last delay. */
static void
delay(KvTried *tried, uint32 first_ms)
{
	tried->retry_ms = tried->retry_ms == 0 ? first_ms : Min(tried->retry_ms * 2, KV_RETRY_MOST_MS);
	tried->until = TimestampTzPlusMilliseconds(kv_clock(), tried->retry_ms);
}

/* Does the delay last?  Lowers *when to its end then.  NULL: there is no delay. */
static bool
is_delayed(const KvTried *tried, TimestampTz *when)
{
	if (tried == NULL || tried->retry_ms == 0 || tried->until <= kv_clock())
		return false;
	*when = Min(*when, tried->until);
	return true;
}

void
kv_leave_alone(const KvTask *task, int32 shard, KvSpaceWait why, const KvShardSpace *then)
{
	KvTried    *tried = kv_tried(task->store, shard, kv_task_kind(task), true);

	delay(tried, why == KV_SPACE_WAITS_FOR_SNAPSHOT ? KV_IN_VAIN_MS : KV_RETRY_MS);
	if (task->result.gave_up)
		tried->retry_ms = Max(tried->retry_ms,
							  Min(task->took_ms, INT_MAX / KV_VAIN_REST) * KV_VAIN_REST);
	tried->until = TimestampTzPlusMilliseconds(kv_clock(), tried->retry_ms);
	tried->why = why;
	tried->then = *then;
	tried->horizon = kv_xid_horizon();
}

bool
kv_tried_any_left_alone(void)
{
	HASH_SEQ_STATUS status;
	KvTried    *tried;
	bool		any = false;

	if (tried_hash == NULL)
		return false;
	hash_seq_init(&status, tried_hash);
	while (!any && (tried = hash_seq_search(&status)) != NULL)
		any = tried->retry_ms > 0 || tried->stuck_ms > 0;
	if (any)
		hash_seq_term(&status);
	return any;
}

/* Is the shard left alone?  horizon: kv_xid_horizon().  Lowers *when to the end of the delay. */
static bool
is_left_alone(const KvStore *store, uint32 shard, KvTaskKind kind, const KvShardSpace *now,
				 uint64 horizon, TimestampTz *when, KvSpaceWait *why)
{
	KvTried    *tried = kv_tried(store, shard, kind, false);
	bool		changed;

	if (tried == NULL || tried->retry_ms == 0)
		return false;
	changed = tried->why == KV_SPACE_WAITS_FOR_RETRY ||
		now->taken != tried->then.taken || now->to_win != tried->then.to_win ||
		tried->horizon != horizon;

	/* many more bytes are dead than at that time */
	if (changed && tried->why == KV_SPACE_WAITS_FOR_SNAPSHOT &&
		now->to_win > 2 * tried->then.to_win + kv_value_file_size(0))
		return false;
	if (changed && tried->until <= kv_clock())
		return false;
	if (changed)
		*when = Min(*when, tried->until);
	*why = Max(*why, tried->why);
	return true;
}

/* ---- the next job ---- */

#define KV_RELEASE_LOOK_MS 20	/* interval between checks whether emptied files are freed */
#define KV_RELEASE_FAILURES 3	/* after so many failed marks no job waits for emptied files */
/* a requested checkpoint that has not completed is requested again after this */
#define KV_CHECKPOINT_MS 60000
/* bytes of values that one job moves to another tablespace */
#define KV_LEAVE_MOST	(UINT64CONST(256) << 20)
/* unsorted values are worth a job if they fill so many of the smallest value files */
#define KV_ORDER_VALUE_FILES	4
#define KV_ORDER_SHARE	8		/* and if they are such a part of their shard */
/* free disk space that a sort job needs, as a multiple of what is moved */
#define KV_ORDER_ROOM	2

int			kv_compact_sort = KV_ORDER_IDLE;
int			kv_look_ms = 10000;	/* only tests change it */

/* No job waits for files whose removal takes longer; doubled each time up to KV_RETRY_MOST_MS. */
int			kv_release_ms = 10000;	/* only tests change it */

/* Does a split come first that has met a job?  Lowers *when to the end of its precedence. */
static bool
is_left_to_split(KvStore *store, uint32 shard, TimestampTz *when)
{
	TimestampTz until = kv_shard(store, shard)->split.waits;

	if (until <= kv_clock())
		return false;
	*when = Min(*when, until);
	return true;
}

/*
 * Finds the shard with the most to win or, for a count, the most uncertain bytes; failed: only
 * among shards whose jobs fail.  False: there is none.
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
		worth = counts ? one.uncertain : failed ? one.failed : one.to_win;
		if (worth <= most)
			continue;
		if (kv_shard(store, i)->roles.compactor != 0)
		{
			task->others = true;
			continue;
		}
		if (is_left_to_split(store, i, when) ||
			is_left_alone(store, i, KV_TASK_BOUNDS, &one, horizon, when, why))
			continue;
		most = worth;
		task->store = store;
		task->shard = i;
		task->plan.aim = counts ? KV_JOB_COUNTS : KV_JOB_BOUNDS;
		task->plan.enough = space->all.taken - Min(space->stop, space->all.taken) + one.failed;
		task->plan.most = one.job;
		task->plan.paced = true;
		task->plan.modest = kv_tried(store, -1, KV_TASK_BOUNDS, true)->retry_ms > 0;
	}
	return most > 0;
}

/* ---- key order ---- */

/*
 * Finds a shard whose values are to be sorted.  No process has written to it for a while, and since
 * it was last sorted as many bytes were written as the job moves.  So sorting costs at most one
 * more write of each byte.  The shares that the shard takes over of shared value files do not count
 * as written.
 */
static bool
find_unsorted(KvStore *store, TimestampTz *when, KvTask *task)
{
	TimestampTz now = kv_clock();
	uint64		horizon = kv_xid_horizon();
	uint64		room = kv_io_space_to_spare(kv_path_values(&store->key)) / KV_ORDER_ROOM;
	uint64		most = 0;

	kv_each_shard(store, i)
	{
		KvShard    *shard = kv_shard(store, i);
		uint64		writes = pg_atomic_read_u64(&shard->buffers.writes) + shard->values.written;
		KvSpaceWait why = KV_SPACE_WAITS_NOT;
		KvShardSpace one;
		KvTried    *tried;

		if (shard->roles.compactor != 0 ||
			shard->values.written < KV_ORDER_VALUE_FILES * kv_value_file_size(0) ||
			is_left_to_split(store, i, when))
			continue;
		kv_shard_space(store, i, horizon, &one);
		if (shard->values.written < one.live || one.live > room ||
			one.unsorted < Max(KV_ORDER_VALUE_FILES * kv_value_file_size(0),
							   one.live / KV_ORDER_SHARE) ||
			is_left_alone(store, i, KV_TASK_SORTS, &one, horizon, when, &why))
			continue;
		tried = kv_tried(store, i, KV_TASK_SORTS, true);
		if (tried->writes != writes || tried->since == 0)
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
		task->plan.aim = KV_JOB_SORTS;
		task->plan.unless_sorted = task->plan.paced = true;
	}
	return most > 0;
}

/* ---- tablespaces ---- */

bool
kv_task_follow(KvStore *store, TimestampTz *when)
{
	KvTried    *state;

	if (pg_atomic_read_u64(&store->move_to) == 0)
		return false;
	state = kv_tried(store, -1, KV_TASK_LEAVES, true);
	if (is_delayed(state, when))
		return false;

	/*
	 * set first: after an ERROR, which ends the round, later rounds leave the store alone for a
	 * while
	 */
	delay(state, KV_RETRY_MS);
	(void) kv_move_begin(store);
	state->retry_ms = 0;
	return true;
}

/* Searches the shards from this one on, by shard id.  Sets *any if some have such value files. */
static bool
find_leaving_from(KvStore *store, uint32 from, bool *any, TimestampTz *when, KvTask *task)
{
	kv_each_shard(store, i)
	{
		const KvTried *tried;
		bool		jobs;
		bool		can_leave;

		if (i < from)
			continue;
		tried = kv_tried(store, i, KV_TASK_LEAVES, false);
		/* checked first: a job lists the files that it has made before it resets this */
		jobs = kv_shard(store, i)->roles.compactor != 0;
		can_leave = kv_shard_leaves(store, i, any);
		*any |= jobs;
		if (!can_leave || jobs || is_left_to_split(store, i, when))
			continue;
		if (is_delayed(tried, when))
			continue;
		task->store = store;
		task->shard = i;
		memset(&task->plan, 0, sizeof(task->plan));
		task->plan.aim = KV_JOB_LEAVES;
		task->plan.most = KV_LEAVE_MOST;
		task->plan.paced = true;
		return true;
	}
	return false;
}

/*
 * Finds a shard with value files that are to leave their tablespace.  Once none was found, the
 * tablespace gets no more files: the search has waited for files that writers were making
 * (kv_value_leave), and no job was running.  A search for files takes a while, so it continues
 * where the last one ended before it starts again.
 */
static bool
find_leaving(KvStore *store, TimestampTz *when, KvTask *task)
{
	KvTried    *state = kv_tried(store, -1, KV_TASK_LEAVES, true);
	uint64		moved_lsn = store->shape.moved_lsn;
	uint32		from = state->leaving;
	bool		any = false;
	bool		found;

	if (moved_lsn == 0 || state->left == moved_lsn)
		return false;
	found = from > 0 && find_leaving_from(store, from, &any, when, task);
	if (!found)
	{
		any = false;
		found = find_leaving_from(store, 0, &any, when, task);
	}

	/* state is still valid: the search adds no notes */
	state->leaving = found ? task->shard : 0;
	if (!any && !found)
		state->left = moved_lsn;
	return found;
}

/* At level 'keys' a checkpoint frees obsolete files: requests one if there are many. */
static void
want_checkpoint(const KvStore *store, const KvStoreSpace *space)
{
	static TimestampTz asked = 0;
	static uint64 since = 0;
	static bool hurried = false;
	bool		hurry = space->obsolete > 0 && space->obsolete_longer > 0 && kv_space_is_awaited();
	TimestampTz now = kv_clock();
	uint64		last = pg_atomic_read_u64(&kv_registry->checkpoint);

	if (space->bound == PG_UINT64_MAX || RecoveryInProgress() ||
		space->obsolete_longer < kv_space_wants_checkpoint(space) ||
		((hurried || !hurry) && asked != 0 && since == last && now >= asked &&
		 !TimestampDifferenceExceeds(asked, now, KV_CHECKPOINT_MS)))
		return;
	asked = now;
	since = last;
	hurried = hurry;

	/* forced, since the WAL may have no new records */
	RequestCheckpoint(CHECKPOINT_FORCE | (hurry ? KV_CHECKPOINT_FAST : 0));
}

bool
kv_is_compacted_here(const KvStore *store)
{
	return !RecoveryInProgress() || store->shape.wal == KV_WAL_FULL;
}

/* Begins to wait for the files that jobs have emptied, if there are any. */
static void
await_release(KvTried *state, KvStore *store, uint64 obsolete)
{
	state->freed = pg_atomic_read_u64(&store->space.freed);
	state->freed_at = obsolete > 0 ? kv_clock() : 0;
	state->marks_failed = pg_atomic_read_u32(&store->versions.failed);
}

/* Are emptied files not freed for too long?  Then gives them up. */
static bool
is_release_stuck(KvTried *state, KvStore *store, KvStoreSpace *space)
{
	TimestampTz now = kv_clock();
	uint32		failed = pg_atomic_read_u32(&store->versions.failed) - state->marks_failed;

	/* redo makes marks only now and then, and waits for nothing */
	if (space->obsolete + space->given_up == 0 || RecoveryInProgress() ||
		pg_atomic_read_u64(&store->space.freed) != state->freed)
	{
		state->stuck_ms = 0;
		kv_space_give_up(store, space->given_up);
		await_release(state, store, space->obsolete);
	}
	else if (space->obsolete == 0 || state->freed_at == 0)
		await_release(state, store, space->obsolete);
	else if ((state->stuck_ms == 0 && failed >= KV_RELEASE_FAILURES) ||
			 TimestampDifferenceExceeds(state->freed_at, now, Max(state->stuck_ms,
																  space->obsolete_longer > 0
																  ? KV_CHECKPOINT_MS
																  : kv_release_ms)))
	{
		state->stuck_ms = Min(Max(2 * state->stuck_ms, kv_release_ms), KV_RETRY_MOST_MS);
		kv_space_give_up(store, space->obsolete + space->given_up);
		await_release(state, store, 0);
		kv_space_count(store, space);
	}
	return state->stuck_ms > 0;
}

/* Is there space for what the job may write? */
static bool
has_room_to_move(const KvStoreSpace *space, const KvTask *task)
{
	return space->obsolete == 0 || space->bound == PG_UINT64_MAX || RecoveryInProgress() ||
		space->all.taken + space->obsolete + space->moving + task->plan.most <= space->bound;
}

/*
 * Finds a job for the limit of a store that is, or may be, beyond its mark.  *why: the reason if
 * there is none.
 */
static bool
find_in_time(KvStore *store, KvTried *state, const KvStoreSpace *space, bool beyond, bool failed,
			 bool uncertain, TimestampTz *when, KvSpaceWait *why, KvTask *task)
{
	if (is_delayed(state, when))
	{
		*why = KV_SPACE_WAITS_FOR_DISK;
		return false;
	}
	if ((beyond || failed) && find_shard(store, space, !beyond, false, when, why, task))
	{
		if (has_room_to_move(space, task))
			return true;
		task->others = true;
		*why = KV_SPACE_WAITS_NOT;
		*when = Min(*when, TimestampTzPlusMilliseconds(kv_clock(), KV_RELEASE_LOOK_MS));
		return false;
	}
	return uncertain && find_shard(store, space, false, true, when, why, task);
}

/*
 * Finds a job that keeps the store within its limit, and tells its writers whether to wait for
 * that.  Lowers *when to the time of the next check.  The caller has zeroed task.
 */
static bool
find_due(KvStore *store, bool backup, TimestampTz *when, KvTask *task)
{
	KvTried    *state = kv_tried(store, -1, KV_TASK_BOUNDS, true);
	KvSpaceWait why = KV_SPACE_WAITS_NOT;
	KvStoreSpace space;
	bool		beyond;
	bool		uncertain;
	bool		failed;
	bool		stuck;
	bool		found = false;

	kv_space_count(store, &space);
	stuck = is_release_stuck(state, store, &space);
	want_checkpoint(store, &space);
	beyond = space.all.taken > (state->going ? space.stop : space.start);
	uncertain = space.all.taken > kv_space_start(&space, space.all.live - space.all.uncertain);
	failed = space.all.failed > 0 &&
		space.all.taken > kv_space_start(&space, space.all.live - space.all.failed);
	task->urgency = (double) space.all.taken / Max(space.start, 1);
	task->served = state->served;
	if (beyond || uncertain || failed)
	{
		if (backup)
			why = KV_SPACE_WAITS_FOR_BACKUP;
		else
			found = find_in_time(store, state, &space, beyond, failed, uncertain, when, &why, task);
	}
	else if (space.all.taken > kv_space_start_unkept(&space, space.all.live - space.all.held))
		why = KV_SPACE_WAITS_FOR_SNAPSHOT;
	else if (space.all.taken > kv_space_start(&space, space.all.live - space.all.stuck))
		why = KV_SPACE_WAITS_FOR_DAMAGE;
	if (stuck && why <= KV_SPACE_WAITS_FOR_SNAPSHOT)
		why = KV_SPACE_WAITS_FOR_RELEASE;

	/* a due store without a job waits; its writers do not, unless other processes compact it */
	if (!stuck && (found || task->others || !(beyond || uncertain || failed)))
		kv_space_answer(store, false, 0);
	else
		kv_space_answer(store, true, kv_value_file_size(0) + space.all.taken / 16);
	state->going = (found || task->others) && beyond;
	state->busy = found || task->others;
	state->at_rest = !state->busy && why == KV_SPACE_WAITS_NOT && space.start != PG_UINT64_MAX;
	pg_atomic_write_u32(&store->space.waits, found && !stuck ? KV_SPACE_WAITS_NOT : why);
	return found;
}

bool
kv_task_find(KvStore *store, bool backup, TimestampTz *when, KvTask *task)
{
	KvTried    *state;

	if (find_due(store, backup, when, task))
		return true;
	if (!backup && find_leaving(store, when, task))
	{
		kv_tried(store, -1, KV_TASK_BOUNDS, true)->busy = true;
		return true;
	}
	state = kv_tried(store, -1, KV_TASK_BOUNDS, true);
	if (!state->at_rest || backup || kv_compact_sort != KV_ORDER_IDLE ||
		is_delayed(state, when) ||
		!find_unsorted(store, when, task) ||
		kv_io_space_is_short(kv_path_values(&store->key)))
		return false;
	kv_tried(store, -1, KV_TASK_BOUNDS, true)->busy = true;
	return true;
}

/* ---- events that a running job reacts to ---- */

#define KV_OTHERS_LOOK_US 50000	/* minimum time between two checks of the stores that are due */

static const KvStore *passing = NULL;	/* the store of the running job */
static bool	job_sorts;
/* another store is due; during a sort job also the job's own */
static bool others_wait;
static bool	others_urgent;		/* such a store has come near its limit */

void
kv_yield_begin(const KvStore *store, bool sorts, bool others)
{
	passing = store;
	job_sorts = sorts;
	others_wait = others;
	others_urgent = false;
}

void
kv_yield_end(void)
{
	passing = NULL;
}

void
kv_job_interrupts(const KvStore *store)
{
	kv_maintenance_interrupts();
	kv_worker_reload();
	if (pg_atomic_read_u32(unconstify(pg_atomic_uint32 *, &store->state)) == KV_STORE_DROPPED)
		kv_raise_dropped(store->key.dboid, store->key.relid);
}

/* Is the distance to the store's limit less than what it is beyond its mark? */
static bool
is_pressing(KvStore *store)
{
	int64		left;
	int64		bound_left;

	kv_space_left(store, &left, &bound_left);
	return bound_left < -left;
}

/* Checks the stores that may have become due. */
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

			if ((store == passing && !job_sorts) || !kv_is_compacted_here(store) ||
				!kv_space_is_due(store))
				continue;
			if (!find_due(store, backup, &when, &task))
				continue;
			others_wait = true;
			others_urgent |= is_pressing(store);
		}
	}
	PG_FINALLY();
	{
		kv_stores_unpin(stores);
	}
	PG_END_TRY();
}

bool
kv_job_is_awaited(void)
{
	static TimestampTz looked = 0;
	TimestampTz now = kv_clock();

	/* a store at its mark may be new, so it need not be due, and its writers need an answer */
	if (passing != NULL && (!others_wait || now - looked >= KV_OTHERS_LOOK_US) &&
		pg_atomic_exchange_u32(&kv_compactor->wanted, 0) != 0)
	{
		look_at_others();
		looked = now;
	}
	return others_wait;
}

bool
kv_job_gives_way(void)
{
	return kv_job_is_awaited() && (others_urgent || kv_space_is_awaited());
}
