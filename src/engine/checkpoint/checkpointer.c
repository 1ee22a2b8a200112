/*
 * checkpointer.c
 *		The process "kvfdw checkpointer": no checkpoint completes before the engine's state up
 *		to its redo pointer is on the device.
 *
 * PostgreSQL replays the WAL from a checkpoint's redo pointer and forgets the WAL before it.
 * So by the time a checkpoint is recorded, every version that was logged before its redo
 * pointer must be in a durable mark, or be carried by the version log
 * (durable/mark.c).  What is said of marks below holds for carried versions, too, except that
 * these cover nothing: they add to a mark.  There is no checkpoint hook.  But a
 * checkpoint waits, before it writes its record, for every virtual transaction that it finds
 * with DELAY_CHKPT_COMPLETE set.  It continues when that transaction has ended, which means
 * that the process has another local transaction id.
 *
 * The worker has the flag set for as long as it lives, and a local transaction id without a
 * transaction.  When the redo pointer moves it makes the marks and logs a DURABLE record.
 * Once it has done so for the present redo pointer, it takes a new local transaction id every
 * now and then.  It reads the redo pointer and changes the id under one hold of ProcArrayLock.
 * The argument, for a checkpoint with redo pointer R, which publishes R and later collects ids
 * under ProcArrayLock:
 *
 *  - The checkpoint finds an id, because the worker always has one.
 *  - Until the worker has made marks for R it does not change its id once the checkpoint has
 *    collected it: at that moment R is published, so the worker, which takes the lock later,
 *    sees R.  (An id changed before is not the one collected.)
 *  - When the worker has made the marks it changes its id sooner or later, whether the
 *    checkpoint has collected by then or not: the checkpoint never waits for ever.
 *  - A version with a record before R was in its shard before the record (xact/wal.c), hence
 *    before the worker saw R.  So it is in the marks made after that.
 *
 * Marks say that they cover R (durable/mark.c) only if they are made while the checkpoint
 * with R cannot complete.  A base backup that began with the checkpoint copies files as soon as
 * the checkpoint has completed, and would take later marks for those that it began with.
 *
 * A checkpoint waits for the worker if its R was published after the worker had set the flag,
 * and no marks were made for it yet.  The redo pointer that the worker finds when it sets the
 * flag may be of a checkpoint that is complete, or has collected ids before.  So the marks
 * that the worker makes then say that they cover more, and a backup with that redo pointer does
 * not use them.  What was logged before is in marks of the previous worker.  None of these
 * covers more, unless there are some for that redo pointer, too.
 *
 * While there is no worker no process writes: writers wait (kv_gate_wait), and check under the
 * shard's lock whether they must.  So:
 *
 *  - End of recovery: redo makes marks before it ends (restart/redo.c); then nothing is
 *    written until the worker runs.  Its first act is to make marks.
 *  - The worker is terminated, or the server shuts down: the worker stops the writers, makes
 *    marks, and only then exits.  A writer that was let through has its version in its shard
 *    before the mark of that shard is made.
 *  - The worker cannot make marks (disk full): it logs that and tries again every second.  The
 *    checkpoint waits, as one of heap's would fail and be repeated.  If the worker has to exit
 *    nevertheless, that is a PANIC: crash recovery is right then.  The last marks are made
 *    before proc_exit, where errors can still be caught; at its end the process only checks
 *    that they were.
 *  - The worker is killed: the server restarts; no checkpoint has completed without it.
 *  - A failed fsync is a PANIC as everywhere (data_sync_retry).
 *
 * On a standby there is no worker.  Redo of a DURABLE record makes marks, and records in the
 * control file how far they reach.  They say that they cover the record's redo pointer only if
 * that is further than marks have reached before: else there may be a restartpoint with it,
 * and a backup that began there.
 *
 * The DURABLE record precedes the checkpoint record that can become a restartpoint, with one
 * exception: before the checkpoint at the end of crash recovery nothing can be logged, so that
 * DURABLE follows it.  If a standby makes a restartpoint there and loses power before it has
 * replayed the next few records, its marks do not reach far enough: it notices
 * (restart/trust.c), and its tables are unusable.  So are those of a backup of it that
 * began there before: the control file says so as long as the backup may run.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "catalog/pg_control.h"
#include "common/controldata_utils.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgwriter.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/pmsignal.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "storage/sinvaladt.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "clock.h"
#include "engine/base/error.h"
#include "engine/base/types.h"
#include "engine/base/wait.h"
#include "engine/base/worker.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/durable/durable.h"
#include "engine/engine.h"
#include "engine/flush/flush.h"
#include "engine/io/fault.h"
#include "engine/io/name.h"
#include "engine/maintenance.h"
#include "engine/shard/map.h"
#include "engine/shard/shard.h"
#include "engine/shard/valuefiles.h"
#include "engine/xact/xact.h"

#define KV_POLL_MS		50
#define KV_RETRY_MS		1000
#define KV_LONGEST_NAP_MS 20
#define KV_REST_PART	10		/* of checkpoint_timeout, at most, is rest */
#define KV_CHECKPOINT_BATCH 256	/* shards */

KvCheckpointer *kv_checkpointer = NULL;

/* ---- making everything durable ---- */

void
kv_checkpointer_init(void)
{
	SpinLockInit(&kv_checkpointer->mutex);
}

/*
 * Does a process wait for a checkpoint to begin or to end?  PostgreSQL does not say what was
 * requested of its checkpointer, but every waiting process shows it.
 */
static bool
checkpoint_is_awaited(void)
{
	for (uint32 i = 0; i < ProcGlobal->allProcCount; i++)
	{
		uint32		event = *(volatile uint32 *) &ProcGlobal->allProcs[i].wait_event_info;

		if (event == WAIT_EVENT_CHECKPOINT_START || event == WAIT_EVENT_CHECKPOINT_DONE)
			return true;
	}
	return false;
}

/* Does no process wait for this one? */
static bool
may_rest(void)
{
	return !ShutdownRequestPending && !RecoveryInProgress() &&
		pg_atomic_read_u32(&kv_gate->is_open) != 0 &&
		pg_atomic_read_u32(&kv_registry->marks_awaited) == 0 && !checkpoint_is_awaited();
}

/*
 * Between two batches of shards: leave the device to other processes for as long as this one
 * used it, but together no longer than a part of the time between two checkpoints.  No rest
 * while a process waits for the checkpoint, writers for this process, or the postmaster for its
 * end, nor in recovery.
 */
static void
rest(TimestampTz since, long *rested_ms)
{
	long		ms = (kv_clock() - since) / 1000;

	ms = Min(ms, CheckPointTimeout * 1000L / KV_REST_PART - *rested_ms);
	while (ms > 0 && may_rest())
	{
		long		nap = Min(ms, KV_LONGEST_NAP_MS);

		KV_STOP_POINT("checkpoint_rest");
		kv_nap(nap, KV_WAIT_CHECKPOINTER);
		kv_interrupts();
		*rested_ms += nap;
		ms -= nap;
	}
}

static bool closing = false;	/* the last marks are made: nothing is carried */
static uint32 this_round;		/* of kv_checkpointer_flush */
static bool raised = false;		/* writers may have run since marks were made */
static XLogRecPtr handled = 0;	/* no checkpoint with this redo pointer waits for the worker */

/*
 * Get the next shards from this shard id on for which there is something to do; returns how many,
 * at most KV_CHECKPOINT_BATCH.
 */
static int
next_shards(KvStore *store, uint32 from, uint32 shards[KV_CHECKPOINT_BATCH])
{
	int			n = 0;

	for (from = kv_shard_from(store, from); from != KV_NO_SHARD && n < KV_CHECKPOINT_BATCH;
		 from = kv_shard_from(store, from + 1))
	{
		if (kv_shard_needs_mark(store, from, this_round))
			shards[n++] = from;
	}
	return n;
}

/* The stores that are being flushed.  NULL: entries of stores dropped since. */
static List *flushing = NIL;

/* Make marks of all shards, one batch after the other. */
static void
flush_shards(KvStore *store, uint64 covers, KvCheckpointerStats *stats, long *rested_ms)
{
	uint32		shards[KV_CHECKPOINT_BATCH];
	int			n;

	for (uint32 from = 0; (n = next_shards(store, from, shards)) > 0; from = shards[n - 1] + 1)
	{
		TimestampTz start;

		kv_interrupts();
		if (pg_atomic_read_u32(&store->state) == KV_STORE_DROPPED)
			break;
		start = kv_clock();
		kv_shards_mark(store, shards, n, covers, stats);
		rest(start, rested_ms);
		kv_stores_unpin_dropped(flushing, store);
		if (raised)
			kv_clog_fence();	/* many transactions may begin before all marks are made */
	}
}

/*
 * Make marks of all shards of a store.  A shard that leaves the map during that gets no mark,
 * and a start that goes back to the previous map would have the shard as it was before the redo
 * pointer.  So a map that is new by then must be one to which a start goes back
 * (durable/mapback.c).
 */
static void
flush_store(KvStore *store, uint64 covers, KvCheckpointerStats *stats, long *rested_ms)
{
	if (!closing)
		kv_shards_carry(store, this_round, stats);
	if (raised)
		kv_clog_fence();		/* as in flush_shards */
	do
	{
		flush_shards(store, covers, stats, rested_ms);
		if (pg_atomic_read_u32(&store->state) == KV_STORE_DROPPED)
			return;
	} while (!kv_map_is_marked(store));
	kv_map_look(store);
}

static void
attempt_flush(KvStore *store, uint64 covers, KvCheckpointerStats *stats, long *rested_ms,
			  void (*failed) (const KvStoreKey *key))
{
	MemoryContext context = CurrentMemoryContext;

	PG_TRY();
	{
		flush_store(store, covers, stats, rested_ms);
	}
	PG_CATCH();
	{
		/* a store that is dropped concurrently need not be durable */
		if (pg_atomic_read_u32(&store->state) == KV_STORE_DROPPED)
			kv_drop_error(false);
		else if (failed != NULL)
			failed(&store->key);
		else
			PG_RE_THROW();

		/* after an error CurrentMemoryContext is ErrorContext, which the next error resets */
		MemoryContextSwitchTo(context);
	}
	PG_END_TRY();
}

void
kv_checkpointer_flush(uint64 covers, KvCheckpointerStats *stats,
					  void (*failed) (const KvStoreKey *key))
{
	ListCell   *cell;
	long		rested_ms = 0;

	if (kv_fault_skips("checkpointer"))
		return;
	/* other processes have had rounds before, whose numbers shards may have */
	SpinLockAcquire(&kv_checkpointer->mutex);
	this_round = ++kv_checkpointer->rounds;
	SpinLockRelease(&kv_checkpointer->mutex);
	kv_backups_look();
	flushing = kv_stores_pin_state(InvalidOid, KV_STORE_OPEN);
	PG_TRY();
	{
		foreach(cell, flushing)
		{
			if (lfirst(cell) != NULL)
				attempt_flush(lfirst(cell), covers, stats, &rested_ms, failed);
			kv_stores_unpin_dropped(flushing, NULL);
		}
	}
	PG_FINALLY();
	{
		kv_stores_unpin(flushing);
		flushing = NIL;
	}
	PG_END_TRY();
}

static void
note_checkpoint_done(KvCheckpointerStats *stats, TimestampTz start)
{
	stats->ended = GetCurrentTimestamp();
	stats->duration_us = kv_clock() - start;
	SpinLockAcquire(&kv_checkpointer->mutex);
	stats->checkpoints = kv_checkpointer->stats.checkpoints + 1;
	kv_checkpointer->stats = *stats;
	SpinLockRelease(&kv_checkpointer->mutex);
}

void
kv_stat_checkpointer(KvCheckpointerStats *stats)
{
	SpinLockAcquire(&kv_checkpointer->mutex);
	*stats = kv_checkpointer->stats;
	stats->checkpoints -= kv_checkpointer->checkpoints_then;
	SpinLockRelease(&kv_checkpointer->mutex);
}

void
kv_checkpointer_stats_reset(void)
{
	SpinLockAcquire(&kv_checkpointer->mutex);
	kv_checkpointer->checkpoints_then = kv_checkpointer->stats.checkpoints;
	SpinLockRelease(&kv_checkpointer->mutex);
}

void
kv_checkpointer_replay(uint64 lsn, uint64 redo, bool closing,
					   void (*failed) (const KvStoreKey *key), void (*flushed) (void))
{
	KvCheckpointerStats stats = {0};
	TimestampTz start = kv_clock();
	bool		further = redo > kv_marks_reach();
	uint64		late;

	kv_wal_flush();
	kv_checkpointer_flush(further ? redo : redo + 1, &stats, failed);
	flushed();

	/* a backup may have begun at a restartpoint before the record, and still run */
	kv_backups_look();
	late = !kv_backups_run() ? 0 : further && GetRedoRecPtr() >= redo ? redo : kv_control->late;

	/* there is no version up to the next DURABLE, so a restartpoint may follow */
	kv_incarnation_covered(closing ? PG_UINT64_MAX : lsn, late);
	stats.lsn = lsn;
	note_checkpoint_done(&stats, start);
}

/* ---- between two checkpoints ---- */

/*
 * Record the redo pointer of the last complete checkpoint: no redo begins before it any more.
 * pg_control may just have been written, and must be durable before the pointer is used.
 */
static void
note_checkpoint(void *arg)
{
	bool		sound;
	ControlFileData *pg_control = get_controlfile(DataDir, &sound);
	uint64		redo = pg_control->checkPointCopy.redo;

	pfree(pg_control);

	/* one that is being written is read the next time */
	if (!sound || redo == pg_atomic_read_u64(&kv_registry->checkpoint))
		return;
	kv_io_sync_file("global/pg_control");
	pg_atomic_write_u64(&kv_registry->checkpoint, redo);
}

/* Make marks of the collected shards. */
static void
make_collected(KvStore *store, const uint32 *shards, int *n, uint64 covers)
{
	KvCheckpointerStats stats = {0};

	if (*n == 0 || pg_atomic_read_u32(&store->state) == KV_STORE_DROPPED)
		return;
	kv_shards_mark(store, shards, *n, covers, &stats);
	*n = 0;
	if (raised)
		kv_clog_fence();		/* as in flush_shards */
}

/* A concurrent change of the map may yield a shard twice. */
static bool
is_collected(const uint32 *shards, int n, uint32 shard_id)
{
	for (int i = 0; i < n; i++)
	{
		if (shards[i] == shard_id)
			return true;
	}
	return false;
}

/*
 * Does a shard ask for a mark?  The request is withdrawn when a mark is begun, and that may
 * have failed.  The answer may be outdated.
 */
static bool
wants_mark(const KvShard *shard)
{
	return shard->durable.wanted || kv_mark_is_awaited(shard) ||
		(shard->place.bounds_since != KV_NOT_IN_MAP &&
		 shard->durable.map < shard->place.bounds_since);
}

/*
 * Make the requested marks of a store, and release obsolete files if that is allowed.  Several
 * marks are made together: those after a split are requested at once.
 */
static void
make_wanted(KvStore *store, uint64 covers)
{
	uint32		shards[KV_CHECKPOINT_BATCH];
	int			n = 0;

	kv_each_shard(store, i)
	{
		KvShard    *shard = kv_shard(store, i);

		if (pg_atomic_read_u32(&store->state) == KV_STORE_DROPPED)
			break;
		if (!wants_mark(shard) || is_collected(shards, n, i))
			continue;
		kv_interrupts();
		KV_STOP_POINT("mark_wanted");
		shards[n++] = i;
		if (n == KV_CHECKPOINT_BATCH)
			make_collected(store, shards, &n, covers);
		else if (raised)
			kv_clog_fence();	/* as in flush_shards */
	}
	make_collected(store, shards, &n, covers);
	if (pg_atomic_read_u32(&store->state) != KV_STORE_DROPPED)
		kv_map_look(store);
}

typedef struct KvWanted
{
	uint64		covers;
	bool		failed;			/* some requests could not be served */
} KvWanted;

/* An error of one store must not make others wait. */
static void
attempt_wanted(KvStore *store, KvWanted *wanted)
{
	MemoryContext context = CurrentMemoryContext;

	PG_TRY();
	{
		make_wanted(store, wanted->covers);
	}
	PG_CATCH();
	{
		bool		dropped = pg_atomic_read_u32(&store->state) == KV_STORE_DROPPED;

		/* after an error CurrentMemoryContext is ErrorContext, which the next error resets */
		MemoryContextSwitchTo(context);
		kv_drop_error(!dropped);
		if (!dropped)
		{
			pg_atomic_fetch_add_u32(&store->versions.failed, 1);
			wanted->failed = true;
		}
	}
	PG_END_TRY();
}

static void
make_all_wanted(void *arg)
{
	KvWanted   *wanted = arg;
	List	   *stores = kv_stores_pin_state(InvalidOid, KV_STORE_OPEN);
	ListCell   *cell;

	wanted->failed |= !kv_attempt(note_checkpoint, NULL);
	PG_TRY();
	{
		foreach(cell, stores)
			attempt_wanted(lfirst(cell), wanted);
	}
	PG_FINALLY();
	{
		kv_stores_unpin(stores);
	}
	PG_END_TRY();
}

/* ---- the worker ---- */

typedef struct KvFlush
{
	uint64		covers;
	KvCheckpointerStats *stats;
} KvFlush;

static void
flush(void *arg)
{
	const KvFlush *flush = arg;

	kv_checkpointer_flush(flush->covers, flush->stats, NULL);
}

/* Make one attempt; an ERROR is logged. */
static bool
try_flush(uint64 covers, KvCheckpointerStats *stats)
{
	KvFlush		arg = {covers, stats};
	bool		done;

	memset(stats, 0, sizeof(*stats));
	done = kv_attempt(flush, &arg);
	MemoryContextReset(CurrentMemoryContext);
	return done;
}

/* Record that writers are about to start. */
static void
begin(void *arg)
{
	kv_incarnation_complete(false);
}

/*
 * What do marks cover that are made now, with this redo pointer?  The redo pointer of a
 * checkpoint only if that waits for them.
 */
static XLogRecPtr
covered_now(XLogRecPtr redo)
{
	return redo != handled ? redo : redo + 1;
}

/*
 * Make marks that shards have requested at once, and once a second check what obsolete value
 * files wait for: the end of a backup, or of a checkpoint.  Failed work is tried again then.
 */
static void
serve_shards(void)
{
	static TimestampTz looked = 0;
	static bool failed = false;
	TimestampTz now = kv_clock();
	bool		wanted = pg_atomic_read_u32(&kv_registry->marks_wanted) != 0;
	KvWanted	all = {0};

	if (!wanted && pg_atomic_read_u32(&kv_registry->obsolete) == 0 &&
		pg_atomic_read_u32(&kv_registry->maps_unfinished) == 0)
		return;
	if ((!wanted || failed) && now >= looked &&
		!TimestampDifferenceExceeds(looked, now, KV_RETRY_MS))
		return;
	looked = now;
	pg_atomic_write_u32(&kv_registry->marks_wanted, 0);
	all.covers = covered_now(GetRedoRecPtr());
	failed = !kv_attempt(make_all_wanted, &all) || all.failed;
	if (failed)
		pg_atomic_write_u32(&kv_registry->marks_wanted, 1);
	MemoryContextReset(CurrentMemoryContext);
}

static void
log_durable(KvCheckpointerStats *stats, TimestampTz start, XLogRecPtr redo, bool closing)
{
	note_checkpoint_done(stats, start);
	stats->lsn = kv_wal_log_durable(stats, redo, kv_xid_ended(), closing);
	SpinLockAcquire(&kv_checkpointer->mutex);
	kv_checkpointer->stats.lsn = stats->lsn;
	SpinLockRelease(&kv_checkpointer->mutex);
	handled = redo;
}

/*
 * Before exit: a checkpoint must not continue as if all were well.  One may follow, of a
 * shutdown for example, so there is a DURABLE record for standbys, after the records of all
 * writers.  It says that no version is logged before the next DURABLE, and the control file
 * says that the marks have everything.
 */
static void
close_gate(void)
{
	KvCheckpointerStats stats;
	TimestampTz start = kv_clock();
	XLogRecPtr	redo = GetRedoRecPtr();

	pg_atomic_write_u32(&kv_gate->is_open, 0);
	KV_STOP_POINT("checkpoint_closing");
	closing = true;
	if (!try_flush(covered_now(redo), &stats))
		return;					/* checkpointer_exit finds the gate still open */
	while (pg_atomic_read_u32(&kv_gate->logging) > 0 && PostmasterIsAlive())
		pg_usleep(100);
	log_durable(&stats, start, redo, true);
	kv_incarnation_complete(true);
	raised = false;
}

/*
 * Called at the process's end, for whatever reason.  Within proc_exit an ERROR ends the process
 * at once and could not be caught, so nothing here may raise one.  A checkpointer that has
 * opened the gate and not closed it must not leave a server that continues.  If the postmaster
 * was killed, each process ends when it notices, PostgreSQL's checkpointer only after it has
 * completed a checkpoint; a checkpoint that waits for marks must not complete.
 */
static void
checkpointer_exit(int code, Datum arg)
{
	int			checkpointer = KV_CHECKPOINTER_PID;

	if (raised && PostmasterIsAlive())
		ereport(PANIC,
				(errmsg("background worker \"kvfdw checkpointer\" exited before kvfdw tables were "
						"durable")));
	if (checkpointer > 0 && !PostmasterIsAlive())
		kill(checkpointer, SIGKILL);
	MyProc->delayChkptFlags &= ~DELAY_CHKPT_COMPLETE;
}

/* Let a waiting checkpoint continue, unless the redo pointer has moved since. */
static void
release_checkpoint(void)
{
	LWLockAcquire(ProcArrayLock, LW_EXCLUSIVE);
	if (GetRedoRecPtr() == handled)
		KV_MY_LXID = GetNextLocalTransactionId();
	LWLockRelease(ProcArrayLock);
}

static void
open_gate(void)
{
	KvCheckpointerStats stats;
	TimestampTz start = kv_clock();

	LWLockAcquire(ProcArrayLock, LW_EXCLUSIVE);
	KV_MY_LXID = GetNextLocalTransactionId();
	MyProc->delayChkptFlags |= DELAY_CHKPT_COMPLETE;
	handled = GetRedoRecPtr();
	LWLockRelease(ProcArrayLock);
	before_shmem_exit(checkpointer_exit, (Datum) 0);
	kv_clog_fence();
	while (!try_flush(covered_now(handled), &stats))
	{
		kv_clog_fence();
		kv_nap(KV_RETRY_MS, KV_WAIT_IDLE);
		if (ShutdownRequestPending)
			proc_exit(1);
	}

	/*
	 * For standbys: recovery has ended with a checkpoint before which it logged none.  And
	 * while the marks are incomplete there is a record of ours in the WAL, so that no server
	 * recovers from a crash without this library.
	 */
	log_durable(&stats, start, handled, false);
	XLogFlush(stats.lsn);

	/* from here on the server must not be shut down without the last marks */
	raised = true;
	while (!kv_attempt(begin, NULL))
	{
		kv_nap(KV_RETRY_MS, KV_WAIT_IDLE);
		if (ShutdownRequestPending)
			return;
	}
	pg_atomic_write_u32(&kv_gate->is_open, 1);
	ConditionVariableBroadcast(&kv_gate->opened);
}

void
kv_checkpointer_main(Datum arg)
{
	/* there is no statement that could be cancelled, and it may not end by an ERROR */
	pqsignal(SIGINT, KV_SIG_IGN);
	kv_worker_begin("kvfdw checkpointer");
	MemoryContextSwitchTo(AllocSetContextCreate(TopMemoryContext, "kvfdw checkpointer",
												ALLOCSET_DEFAULT_SIZES));
	KV_STOP_POINT("checkpointer_before_raise");
	open_gate();
	kv_registry->checkpointer = MyLatch;

	while (kv_worker_goes_on(NULL))
	{
		XLogRecPtr	redo = GetRedoRecPtr();
		int			nap = KV_POLL_MS;

		CHECK_FOR_INTERRUPTS();	/* others wait until a signal barrier is absorbed */
		if (redo != handled)
		{
			KvCheckpointerStats stats;
			TimestampTz start = kv_clock();

			KV_STOP_POINT("checkpoint_before_flush");
			if (try_flush(redo, &stats))
			{
				KV_STOP_POINT("checkpoint_before_record");
				log_durable(&stats, start, redo, false);
				KV_STOP_POINT("checkpoint_before_release");
			}
			else
				nap = KV_RETRY_MS;
		}
		kv_clog_fence();
		release_checkpoint();
		serve_shards();
		kv_files_let_go();
		kv_nap(nap, KV_WAIT_IDLE);
	}
	kv_registry->checkpointer = NULL;
	/* another checkpointer follows unless the server stops; then nothing is waited for */
	if (kv_io_server_stops())
		kv_resolve_for_stop();
	close_gate();
	proc_exit(1);			/* so that the postmaster starts it again, unless the server stops */
}
