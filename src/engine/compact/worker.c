/*
 * worker.c
 *		Compaction of stores: kvfdw compactor works automatically, so that they keep within their
 *		limit (I 19); kvfdw_compact() works on demand.
 *
 * Start and end: The process runs on demand (base/worker.h).  A writer that takes a store to its
 * mark starts it (shard/space.h).  It checks all stores every ten seconds, for aborted
 * transactions, ended snapshots and values that redo has replaced.  While it does not run, the
 * maintainer does that (kv_compact_look).  It ends when it has had nothing to do for a while and
 * leaves nothing alone, because its notes are lost with it.  It also ends between two jobs if
 * another worker waits for its process slot.
 *
 * Choice: Of the stores beyond their marks, the one is compacted that was served the longest ago,
 * and in it the shard with the most to win.  Then all are checked again, so a store waits for one
 * job of each other store, whatever their sizes.  Writers at the limit of a store that waits for
 * its turn wait as well; otherwise each store would exceed its limit while others are served.  So
 * do writers of a store that was not checked yet.  Where the compactor can make no space it says so
 * (kv_space_answer).
 *
 * It does not spin: Bytes that old snapshots and running transactions need are not to be won, and
 * padding counts as live (kv_counts_add).  If a job fails or wins nothing, its shard is left alone
 * until something has changed and some time has passed.  After a full disk the next job is one that
 * moves no values, or few.  While a base backup runs no emptied file could be removed, so no job
 * begins.
 *
 * Order: Value files that go to another tablespace are moved before values are sorted (task.c).
 * Sort jobs run when there is nothing else to do.  A sort job continues while a store that becomes
 * due is nearer to its mark than to its limit and no writer waits for space.  After that the sort
 * job is given up, and its moves were in vain.  It starts again later, after twice as long each
 * time.
 *
 * Errors: A transaction without an xid or a snapshot surrounds each job, for resources.  An ERROR
 * in a job ends the job; an ERROR elsewhere ends the round.
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "compat.h"
#include "engine/base/types.h"
#include "engine/base/wait.h"
#include "engine/base/worker.h"
#include "engine/buffer/buffer.h"
#include "engine/buffer/largevalue.h"
#include "engine/compact/internal.h"
#include "engine/io/fault.h"
#include "engine/maintenance.h"
#include "engine/shard/map.h"
#include "engine/shard/obsolete.h"
#include "engine/shard/shard.h"
#include "engine/shard/space.h"
#include "engine/shard/valuefiles.h"
#include "engine/xact/xact.h"

/* ---- kvfdw compactor ---- */

#define KV_BACKUP_LOOK_MS 1000
#define KV_ERROR_MS		1000	/* pause after an ERROR outside of a job */

int			kv_compact_workers = 1;

/*
 * Limits come before tablespaces, and these before sort jobs.  Of several stores, the one that was
 * served the longest ago comes first, then the one farthest beyond its mark.
 */
static bool
comes_before(const KvTask *task, const KvTask *other)
{
	if (other->store == NULL || kv_task_kind(task) != kv_task_kind(other))
		return other->store == NULL || kv_task_kind(task) < kv_task_kind(other);
	return task->served != other->served ? task->served < other->served :
		task->urgency > other->urgency;
}

/* ---- running tasks ---- */

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

	SetCurrentStatementStartTimestamp();
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
		/* anything may fail if the store was dropped in the meantime */
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

/* After a failure, dead bytes of the shard count as live until a job succeeds. */
static void
note_failure(const KvTask *task)
{
	KvShard    *shard = kv_shard(task->store, task->shard);

	if (task->sqlerrcode == 0 || task->sqlerrcode == ERRCODE_DISK_FULL)
		return;
	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	shard->compact.failed = true;
	LWLockRelease(&shard->lock);
}

/* Evaluates a job, and updates the notes. */
static void
look_back(const KvTask *task, const KvShardSpace *before)
{
	const KvJobResult *result = &task->result;
	KvStoreSpace space;
	KvShardSpace after;
	bool		won;

	if (pg_atomic_read_u32(&task->store->state) == KV_STORE_DROPPED || ShutdownRequestPending)
		return;
	note_failure(task);
	if (result->emptied > 0)
		kv_tried(task->store, -1, KV_TASK_BOUNDS, true)->freed_at = kv_clock();
	kv_space_count(task->store, &space);
	kv_shard_space(task->store, task->shard, kv_xid_horizon(), &after);
	if (kv_task_kind(task) != KV_TASK_BOUNDS)
		won = result->was_sorted || result->emptied > 0;
	else if (task->plan.aim == KV_JOB_COUNTS)
		won = after.uncertain < before->uncertain / 2;
	else
		won = result->emptied > result->written ||
			/* a new count has changed the estimate */
			(result->emptied == 0 && after.to_win < before->to_win / 2);
	if (task->sqlerrcode == ERRCODE_DISK_FULL && kv_task_kind(task) == KV_TASK_BOUNDS)
		kv_leave_alone(task, -1, KV_SPACE_WAITS_FOR_DISK, &after);
	else if (task->sqlerrcode != 0 || result->gave_up)
		kv_leave_alone(task, task->shard, KV_SPACE_WAITS_FOR_RETRY, &after);
	else if (!won)
		kv_leave_alone(task, task->shard, KV_SPACE_WAITS_FOR_SNAPSHOT, &after);
	else
		kv_tried_forget(task->store, task->shard, kv_task_kind(task));
	if (result->was_sorted)
	{
		KvShard    *shard = kv_shard(task->store, task->shard);

		LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
		shard->values.written -= Min(shard->values.written, task->written);
		kv_value_files_sorted(shard);
		LWLockRelease(&shard->lock);
	}
	if (task->sqlerrcode == 0 && result->written > 0)
		kv_tried(task->store, -1, KV_TASK_BOUNDS, true)->retry_ms = 0;	/* there was disk space */
	ConditionVariableSignal(&task->store->space.made);
}

/* Resets the answers of a previous compactor, whose notes are lost. */
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
 * Checks the stores that may be due, or all, and runs the most urgent task.  False: there is
 * nothing to do until *when.
 */
static bool
run_round(bool all, TimestampTz *when)
{
	bool		backup;
	KvTask		best = {0};
	int			due = 0;		/* number of stores */
	ListCell   *cell;

	pg_atomic_write_u32(&kv_compactor->wanted, 0);
	kv_backups_look();
	backup = kv_backups_run();
	pinned = kv_stores_pin_state(InvalidOid, KV_STORE_OPEN);
	foreach(cell, pinned)
	{
		if (kv_task_follow(lfirst(cell), when))
			all = true;
	}
	foreach(cell, pinned)
	{
		KvStore    *store = lfirst(cell);
		KvTask		task = {0};
		const KvTried *state = kv_tried(store, -1, KV_TASK_BOUNDS, false);

		if (!kv_is_compacted_here(store) ||
			(!all && (state == NULL || !state->busy) &&
			 !kv_space_is_due(store)))
			continue;
		if (!kv_task_find(store, backup, when, &task))
			continue;
		due += kv_task_kind(&task) == KV_TASK_BOUNDS;
		if (comes_before(&task, &best))
			best = task;
	}
	unpin(best.store);
	if (backup)
		*when = Min(*when, TimestampTzPlusMilliseconds(kv_clock(), KV_BACKUP_LOOK_MS));
	if (best.store != NULL && !ShutdownRequestPending)
	{
		TimestampTz began = kv_clock();
		KvShardSpace before;

		kv_shard_space(best.store, best.shard, kv_xid_horizon(), &before);
		kv_tried(best.store, -1, KV_TASK_BOUNDS, true)->served = kv_compact_rounds;
		best.written = kv_shard(best.store, best.shard)->values.written;
		kv_yield_begin(best.store, kv_task_kind(&best) == KV_TASK_SORTS, due > 1);
		do_task(&best);
		best.took_ms = TimestampDifferenceMilliseconds(began, kv_clock());
		kv_yield_end();
		look_back(&best, &before);
	}
	unpin(NULL);
	return best.store != NULL;
}

/*
 * Runs a round.  An ERROR outside of a job ends only the round; the next one begins a little later.
 */
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
		*when = TimestampTzPlusMilliseconds(kv_clock(), KV_ERROR_MS);
		RESUME_INTERRUPTS();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	return done;
}

static void
attend(bool here)
{
	kv_space_attend(here ? MyLatch : NULL);
}

static void
compactor_exit(int code, Datum arg)
{
	attend(false);
	unpin(NULL);
}

/* Was the compactor asked to work? */
static bool
has_work(void)
{
	return pg_atomic_read_u32(&kv_compactor->wanted) != 0;
}

/*
 * Leaves the process slot.  If that happens amidst work, the maintainer starts the compactor again.
 */
static bool
leave(bool busy)
{
	KV_STOP_POINT("compactor_leaves");
	if (busy)
		pg_atomic_write_u32(&kv_compactor->wanted, 1);
	return kv_worker_leave(attend, has_work);
}

void
kv_compactor_main(Datum arg)
{
	MemoryContext context;
	TimestampTz looked = 0;
	uint32		looked_round = 0;
	bool		reloaded;

	kv_worker_begin("kvfdw compactor");
	kv_worker_attend();
	before_shmem_exit(compactor_exit, (Datum) 0);
	begin_all();
	attend(true);
	context = AllocSetContextCreate(TopMemoryContext, "kvfdw compactor", ALLOCSET_DEFAULT_SIZES);

	while (kv_worker_goes_on(&reloaded))
	{
		TimestampTz now = kv_clock();
		TimestampTz when;
		bool		busy;
		bool		all = reloaded || looked == 0 ||
			TimestampDifferenceExceeds(looked, now, kv_look_ms);

		MemoryContextSwitchTo(context);
		MemoryContextReset(context);
		CHECK_FOR_INTERRUPTS();
		kv_compact_rounds++;
		kv_files_let_go();
		if (all)
		{
			/* after a reload of the settings, failed jobs are tried again */
			looked = now;
			kv_tried_forget_old(looked_round, reloaded);
			looked_round = kv_compact_rounds;
		}
		when = TimestampTzPlusMilliseconds(looked, kv_look_ms);
		busy = attempt_round(all, &when);
		if (kv_worker_is_done(busy || kv_tried_any_left_alone()))
		{
			if (leave(busy))
				break;
			continue;
		}
		if (busy)
			continue;
		kv_nap(Max(TimestampDifferenceMilliseconds(kv_clock(), when), 1), KV_WAIT_IDLE);
	}
	proc_exit(0);
}

/* ---- while the compactor does not run ---- */

void
kv_compact_look_begin(void)
{
	static uint32 looked_round = 0;

	kv_compact_rounds++;
	kv_tried_forget_old(looked_round, false);
	looked_round = kv_compact_rounds;
	kv_backups_look();
}

bool
kv_compact_look(KvStore *store)
{
	KvTask		task = {0};
	TimestampTz when = PG_INT64_MAX;

	return kv_is_compacted_here(store) &&
		(pg_atomic_read_u64(&store->move_to) != 0 ||
		 kv_task_find(store, kv_backups_run(), &when, &task));
}

bool
kv_compact_look_is_due(void)
{
	static TimestampTz looked = 0;
	TimestampTz now = kv_clock();

	if (kv_compact_workers == 0 || kv_worker_is_coming(KV_WORKER_COMPACTOR) ||
		!TimestampDifferenceExceeds(looked, now, kv_look_ms))
		return false;
	looked = now;
	return true;
}

/* ---- on demand ---- */

#define KV_LOOK_MSEC	20
#define KV_MARK_FAILURES 3		/* failed attempts without progress, at one a second */

/*
 * Waits until the files that are obsolete now are removed, or wait for something else than marks,
 * or marks fail.  Returns the reason for which they wait.  Files that become obsolete later do not
 * count.
 */
static KvObsoleteWait
wait_for_marks(KvStore *store)
{
	uint64		last = kv_obsolete_last(store);
	uint32		failed = pg_atomic_read_u32(&store->versions.failed);
	uint64		before = 0;

	for (;;)
	{
		KvObsoleteBytes now = kv_obsolete_bytes(store, last);
		uint32		failed_now = pg_atomic_read_u32(&store->versions.failed);

		if (now.all != before)
			failed = failed_now;
		before = now.all;
		if (now.all == 0 || now.waits > KV_WAITS_FOR_MARK ||
			(now.waits == KV_WAITS_FOR_MARK && failed_now - failed >= KV_MARK_FAILURES))
			return now.waits;
		kv_nap(KV_LOOK_MSEC, KV_WAIT_COMPACT);
		CHECK_FOR_INTERRUPTS();
	}
}

void
kv_store_compact(KvStore *store, bool sorted, KvCompacted *done)
{
	KvJobPlan	plan = {sorted ? KV_JOB_SORTS : KV_JOB_GIVES_BACK};
	KvJobResult result = {0};
	uint64		before = pg_atomic_read_u64(&store->space.released);

	kv_each_shard(store, i)
	{
		CHECK_FOR_INTERRUPTS();
		kv_value_leave(store, i);
		kv_shard_compact(store, i, &plan, &result);
	}
	memset(done, 0, sizeof(*done));
	switch (wait_for_marks(store))
	{
		case KV_WAITS_FOR_MARK:
			done->waiting_for = "mark";
			break;
		case KV_WAITS_FOR_CHECKPOINT:
			done->waiting_for = "checkpoint";
			break;
		case KV_WAITS_FOR_BACKUP:
			done->waiting_for = "backup";
			break;
		default:
			if (result.held > 0)
				done->waiting_for = "snapshot";
	}
	done->moved_bytes = result.moved;
	done->freed_bytes = pg_atomic_read_u64(&store->space.released) - before;
}
