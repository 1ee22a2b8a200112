/*
 * barrier.c
 *		The checkpoint barrier: no checkpoint completes before the engine's state
 *		up to its redo pointer is on the device.
 *
 * PostgreSQL replays the WAL from a checkpoint's redo pointer and forgets what is
 * before it, so by the time a checkpoint is recorded, every version that was
 * logged before its redo pointer must be in a durable image (image.c).  There is
 * no checkpoint hook (F 11).  But a checkpoint waits, before it writes its record,
 * for every virtual transaction that it finds with DELAY_CHKPT_COMPLETE set; it
 * goes on when that transaction has ended, which means: when the process has
 * another local transaction id.
 *
 * The barrier worker has the flag set for as long as it lives, and a local
 * transaction id without a transaction.  When the redo pointer moves it makes the
 * images and logs a BARRIER record.  As long as it has done so for the present
 * redo pointer, it takes a new local transaction id every now and then, looking at
 * the redo pointer and changing the id under one hold of ProcArrayLock.  The
 * argument, for a checkpoint with redo pointer R, which publishes R and later
 * collects ids under ProcArrayLock:
 *
 *	- it finds an id, for the worker always has one.
 *	- until the worker has made images for R it does not change its id once the
 *	  checkpoint has collected it: at that moment R is published, so the worker,
 *	  who takes the lock later, sees R.  (An id changed before is not the one
 *	  collected.)
 *	- when it has made them it changes its id sooner or later, whether the
 *	  checkpoint has collected by then or not: it never waits for ever.
 *	- what has a record before R was in its shard before (wal.c), hence before the
 *	  worker saw R, hence is in the images made after that.
 *
 * Who writes while there is no worker?  Nobody: writers wait (kv_barrier_wait),
 * and look whether they must under the shard's lock.  So:
 *
 *	- end of recovery: redo makes images before it lets go (redo.c); then nothing
 *	  is written until the worker is up.  Its first act is to make images.
 *	- the worker is terminated, or the server shuts down: it stops the writers,
 *	  makes images, and only then leaves.  A writer that was let through has its
 *	  version in its shard before the image of that shard is made.
 *	- it cannot make images (disk full): it says so in the log and tries again every
 *	  second.  The checkpoint waits, as one of heap's would fail and be repeated.
 *	  If it has to leave all the same, that is a PANIC: crash recovery is right.
 *	- it is killed: the server restarts; no checkpoint has completed without it.
 *	- a failed fsync is a PANIC as everywhere (data_sync_retry).
 *
 * On a standby there is no worker.  Redo of a BARRIER record makes images, and notes
 * in the control file how far they reach.  It comes before the checkpoint record
 * that can become a restartpoint, with one exception: before the checkpoint at the
 * end of crash recovery nothing can be logged, so that BARRIER comes behind it.  If
 * a standby makes a restartpoint there and loses power before it has replayed the
 * next few records, its images do not reach far enough: it notices
 * (incarnation.c), and its tables are unusable.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "replication/walsender.h"
#include "replication/walsender_private.h"
#include "storage/ipc.h"
#include "storage/pmsignal.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "storage/sinvaladt.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "engine/fault.h"
#include "engine/internal.h"

#define KV_POLL_MS		50
#define KV_RETRY_MS		1000
#define KV_LONGEST_REST_MS 20
#define KV_BARRIER_PATIENCE 60	/* seconds */

/* ---- base backups ---- */

static bool noted = false;

/*
 * This session is about to begin a backup with pg_backup_start, or has none.
 * ERROR only if running.
 */
void
kv_engine_note_backup(bool running)
{
	if (running == noted || kv_shared == NULL)
		return;
	SpinLockAcquire(&kv_shared->barrier_mutex);
	for (int i = 0; i < KV_MAX_BACKUPS; i++)
	{
		int		   *pid = &kv_shared->backup_pids[i];

		if (*pid == (running ? 0 : MyProcPid))
		{
			*pid = running ? MyProcPid : 0;
			noted = running;
			break;
		}
	}
	SpinLockRelease(&kv_shared->barrier_mutex);
	if (!running)
		noted = false;
	else if (!noted)
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("cannot begin more than %d backups at a time while kvfdw is loaded",
						KV_MAX_BACKUPS)));
}

/*
 * Is a base backup being taken?  WAL senders show it, and sessions that call
 * pg_backup_start are noted, from before they ask for their checkpoint.
 */
static bool
backup_runs(void)
{
	bool		runs = false;

	for (int i = 0; i < KV_MAX_BACKUPS; i++)
	{
		int			pid = kv_shared->backup_pids[i];

		if (pid == 0)
			continue;
		if (BackendPidGetProc(pid) != NULL)
			runs = true;
		else
			kv_shared->backup_pids[i] = 0;
	}
	for (int i = 0; i < max_wal_senders && !runs; i++)
	{
		WalSnd	   *sender = &WalSndCtl->walsnds[i];

		SpinLockAcquire(&sender->mutex);
		runs = sender->pid != 0 && sender->state == WALSNDSTATE_BACKUP;
		SpinLockRelease(&sender->mutex);
	}
	return runs;
}

/* Look whether backups run; before files of an older image are removed. */
void
kv_backups_look(void)
{
	pg_atomic_write_u32(&kv_shared->backups, backup_runs() ? 1 : 0);
}

/* Must the files of older images stay? */
bool
kv_backups_run(void)
{
	if (pg_atomic_read_u32(&kv_shared->backups) != 0)
		return true;
	for (int i = 0; i < KV_MAX_BACKUPS; i++)
	{
		if (kv_shared->backup_pids[i] != 0)
			return true;
	}
	return false;
}

/* ---- making everything durable ---- */

/* An ERROR outside a transaction, caught: let go of what it held. */
void
kv_forget_error(bool report)
{
	HOLD_INTERRUPTS();
	if (report)
		EmitErrorReport();
	FlushErrorState();
	LWLockReleaseAll();
	ConditionVariableCancelSleep();
	AtEOXact_Files(false);
	RESUME_INTERRUPTS();
}

/*
 * Between two shards: leave the device to others for as long as it was ours.  Not
 * if somebody waits for the end of this process, nor in recovery.
 */
static void
rest(TimestampTz since)
{
	long		ms = (GetCurrentTimestamp() - since) / 1000;

	if (ms == 0 || ShutdownRequestPending || RecoveryInProgress())
		return;
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 Min(ms, KV_LONGEST_REST_MS), KV_WAIT_BARRIER);
	ResetLatch(MyLatch);
}

static void
flush_store(KvStore *store, uint64 covers, KvBarrierStats *stats)
{
	for (int i = 0; i < store->nshards; i++)
	{
		TimestampTz start;

		kv_wait_interrupts();
		if (pg_atomic_read_u32(&store->state) == KV_STORE_DROPPED)
			break;
		start = GetCurrentTimestamp();
		kv_shard_image(store, i, covers, stats);
		rest(start);
	}
	if (store->behind && pg_atomic_read_u32(&store->state) != KV_STORE_DROPPED)
		kv_store_mark_behind(store, false);
}

static void
attempt_flush(KvStore *store, uint64 covers, KvBarrierStats *stats,
			  void (*failed) (const KvStoreKey *key))
{
	MemoryContext context = CurrentMemoryContext;

	PG_TRY();
	{
		flush_store(store, covers, stats);
	}
	PG_CATCH();
	{
		/* what is dropped meanwhile need not be durable */
		if (pg_atomic_read_u32(&store->state) == KV_STORE_DROPPED)
			kv_forget_error(false);
		else if (failed != NULL)
			failed(&store->key);
		else
			PG_RE_THROW();

		/* from the one of errors, which the next one empties */
		MemoryContextSwitchTo(context);
	}
	PG_END_TRY();
}

/*
 * Make images of all shards that have changed since their last.  Adds to *stats.
 * covers: of the images (image.c).  ERROR if one cannot be made; those that were
 * made count.  failed, unless NULL, is called for the store instead, and the others
 * go on.
 */
void
kv_barrier_flush(uint64 covers, KvBarrierStats *stats,
				 void (*failed) (const KvStoreKey *key))
{
	List	   *stores;
	ListCell   *cell;

	if (kv_fault_skips("barrier"))
		return;
	kv_backups_look();
	stores = kv_stores_pin_state(InvalidOid, KV_STORE_OPEN);
	PG_TRY();
	{
		foreach(cell, stores)
		{
			attempt_flush(lfirst(cell), covers, stats, failed);
		}
	}
	PG_FINALLY();
	{
		kv_stores_unpin(stores);
	}
	PG_END_TRY();
}

static void
note_barrier(KvBarrierStats *stats, TimestampTz start)
{
	stats->ended = GetCurrentTimestamp();
	stats->duration_us = stats->ended - start;
	SpinLockAcquire(&kv_shared->barrier_mutex);
	stats->barriers = kv_shared->barrier.barriers + 1;
	kv_shared->barrier = *stats;
	SpinLockRelease(&kv_shared->barrier_mutex);
}

void
kv_stat_barrier(KvBarrierStats *stats)
{
	SpinLockAcquire(&kv_shared->barrier_mutex);
	*stats = kv_shared->barrier;
	SpinLockRelease(&kv_shared->barrier_mutex);
}

/* Redo has met a BARRIER record that ends here. */
void
kv_barrier_replay(uint64 lsn, uint64 redo, bool closing,
				  void (*failed) (const KvStoreKey *key))
{
	KvBarrierStats stats = {0};
	TimestampTz start = GetCurrentTimestamp();

	kv_wal_flush();
	kv_barrier_flush(redo, &stats, failed);

	/* up to the next BARRIER no version comes, so a restartpoint may */
	kv_incarnation_covered(closing ? PG_UINT64_MAX : lsn);
	stats.lsn = lsn;
	note_barrier(&stats, start);
}

/* ---- writers ---- */

/* Wait until the barrier worker is up.  No lock held. */
void
kv_barrier_wait(void)
{
	ConditionVariablePrepareToSleep(&kv_shared->barrier_raised);
	for (int i = 0; pg_atomic_read_u32(&kv_shared->barrier_up) == 0; i++)
	{
		CHECK_FOR_INTERRUPTS();
		if (i == KV_BARRIER_PATIENCE || !IsUnderPostmaster)
		{
			ConditionVariableCancelSleep();
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("cannot write to kvfdw tables while the process \"kvfdw barrier\" does not run"),
					 IsUnderPostmaster ?
					 errhint("You might need to increase max_worker_processes; the server log tells.") :
					 errhint("Start the server in multi-user mode.")));
		}
		ConditionVariableTimedSleep(&kv_shared->barrier_raised, 1000, KV_WAIT_BARRIER);
	}
	ConditionVariableCancelSleep();
}

/* ---- the worker ---- */

/* One attempt; an ERROR is logged. */
static bool
try_flush(uint64 covers, KvBarrierStats *stats)
{
	MemoryContext context = CurrentMemoryContext;
	volatile bool done = false;

	memset(stats, 0, sizeof(*stats));
	PG_TRY();
	{
		kv_barrier_flush(covers, stats, NULL);
		done = true;
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		kv_forget_error(true);
	}
	PG_END_TRY();
	MemoryContextReset(context);
	return done;
}

/*
 * What an image covers that is made now, not because the redo pointer has moved.  If
 * it has all the same, and no barrier was made for it yet, this one counts.
 */
static XLogRecPtr
covered_now(XLogRecPtr redo)
{
	return redo != kv_shared->last_redo ? redo : redo + 1;
}

static void
log_barrier(KvBarrierStats *stats, TimestampTz start, XLogRecPtr redo, bool closing)
{
	note_barrier(stats, start);
	stats->lsn = kv_wal_log_barrier(stats, redo, closing);
	SpinLockAcquire(&kv_shared->barrier_mutex);
	kv_shared->barrier.lsn = stats->lsn;
	SpinLockRelease(&kv_shared->barrier_mutex);
	kv_shared->last_redo = redo;
}

/*
 * Leaving in whatever way: a checkpoint must not go on as if all were well.  A
 * checkpoint may follow, of a shutdown for one, so there is a BARRIER record for
 * standbys, behind the records of all writers that were let through.  It says that
 * no version is logged before the next BARRIER.
 */
static void
barrier_exit(int code, Datum arg)
{
	KvBarrierStats stats;
	TimestampTz start = GetCurrentTimestamp();
	XLogRecPtr	redo = GetRedoRecPtr();

	kv_shared->barrier_latch = NULL;
	pg_atomic_write_u32(&kv_shared->barrier_up, 0);
	if (!PostmasterIsAlive())
		return;					/* no checkpoint will follow, and nobody is waited for */
	if (!try_flush(covered_now(redo), &stats))
		ereport(PANIC,
				(errmsg("kvfdw could not make its tables durable before its barrier process ended")));
	while (pg_atomic_read_u32(&kv_shared->logging) > 0 && PostmasterIsAlive())
		pg_usleep(100);
	log_barrier(&stats, start, redo, true);
	MyProc->delayChkptFlags &= ~DELAY_CHKPT_COMPLETE;
}

/* Let go of whatever checkpoint waits, unless the redo pointer has moved since. */
static void
release_checkpoint(XLogRecPtr handled)
{
	LWLockAcquire(ProcArrayLock, LW_EXCLUSIVE);
	if (GetRedoRecPtr() == handled)
		KV_MY_LXID = GetNextLocalTransactionId();
	LWLockRelease(ProcArrayLock);
}

static void
raise_barrier(XLogRecPtr *redo)
{
	KvBarrierStats stats;
	TimestampTz start = GetCurrentTimestamp();

	LWLockAcquire(ProcArrayLock, LW_EXCLUSIVE);
	KV_MY_LXID = GetNextLocalTransactionId();
	MyProc->delayChkptFlags |= DELAY_CHKPT_COMPLETE;
	*redo = GetRedoRecPtr();
	LWLockRelease(ProcArrayLock);
	before_shmem_exit(barrier_exit, (Datum) 0);
	while (!try_flush(covered_now(*redo), &stats))
	{
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 KV_RETRY_MS, KV_WAIT_IDLE);
		ResetLatch(MyLatch);
		if (ShutdownRequestPending)
			proc_exit(1);
	}
	kv_incarnation_rebuilt();

	/* for standbys: recovery has ended with a checkpoint before which it logged none */
	log_barrier(&stats, start, *redo, false);
	pg_atomic_write_u32(&kv_shared->barrier_up, 1);
	ConditionVariableBroadcast(&kv_shared->barrier_raised);
}

void
kv_barrier_main(Datum arg)
{
	XLogRecPtr	handled;

	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	pgstat_report_appname("kvfdw barrier");
	MemoryContextSwitchTo(AllocSetContextCreate(TopMemoryContext, "kvfdw barrier",
												ALLOCSET_DEFAULT_SIZES));
	kv_shared->barrier_latch = MyLatch;
	raise_barrier(&handled);

	while (!ShutdownRequestPending)
	{
		XLogRecPtr	redo = GetRedoRecPtr();
		int			nap = KV_POLL_MS;

		CHECK_FOR_INTERRUPTS();	/* others wait until a signal barrier is absorbed */
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}
		if (redo != handled)
		{
			KvBarrierStats stats;
			TimestampTz start = GetCurrentTimestamp();

			KV_STOP_POINT("barrier_before_flush");
			if (try_flush(redo, &stats))
			{
				KV_STOP_POINT("barrier_before_record");
				log_barrier(&stats, start, redo, false);
				handled = redo;
				KV_STOP_POINT("barrier_before_release");
			}
			else
				nap = KV_RETRY_MS;
		}
		release_checkpoint(handled);
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 nap, KV_WAIT_IDLE);
		ResetLatch(MyLatch);
	}
	proc_exit(1);				/* so that the postmaster starts it again, unless it stops itself */
}
