/*
 * commit.c
 *		Transactions of processes that serve memcached clients, and the flush of the WAL.
 *
 * The process "kvfdw memcached flusher" flushes the WAL for the other processes, and waits for
 * synchronous standbys.  Without it, or where that is not worthwhile, they do so themselves.
 */
#include "memcached/process/process.h"

#include "clock.h"
#include "compat.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "libpq/pqsignal.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "replication/syncrep.h"
#include "replication/walsender.h"
#include "storage/ipc.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/wait_event.h"

/* ---- begin, commit as the mode says, and errors ---- */

XLogRecPtr	kv_mc_unflushed = InvalidXLogRecPtr;

void
kv_mc_begin(void)
{
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
}

void
kv_mc_log_error(const ErrorData *edata)
{
	static TimestampTz logged = 0;
	static int	logged_code = 0;
	TimestampTz now = kv_clock();

	if (edata->sqlerrcode == logged_code && now >= logged && now - logged <= USECS_PER_SEC)
		return;
	EmitErrorReport();
	logged = now;
	logged_code = edata->sqlerrcode;
}

const char *
kv_mc_roll_back(void)
{
	static char message[200];
	ErrorData  *edata;

	HOLD_INTERRUPTS();
	MemoryContextSwitchTo(TopMemoryContext);
	edata = CopyErrorData();
	snprintf(message, sizeof(message), "%s %s", unpack_sql_state(edata->sqlerrcode),
			 edata->message);
	kv_mc_log_error(edata);
	FlushErrorState();
	FreeErrorData(edata);
	AbortCurrentTransaction();
	MemoryContextSwitchTo(TopMemoryContext);
	RESUME_INTERRUPTS();
	return message;
}

/* Commit with this level as synchronous_commit. */
static void
commit_at(int level)
{
	int			before = synchronous_commit;

	synchronous_commit = level;
	PG_TRY();
	{
		CommitTransactionCommand();
	}
	PG_FINALLY();
	{
		synchronous_commit = before;
	}
	PG_END_TRY();
}

void
kv_mc_commit_here(void)
{
	commit_at(SYNCHRONOUS_COMMIT_LOCAL_FLUSH);
}

void
kv_mc_commit_as(KvMcCommit mode, bool wrote)
{
	if (mode != KV_MC_COMMIT_ON)
		commit_at(SYNCHRONOUS_COMMIT_OFF);
	else if (synchronous_commit == SYNCHRONOUS_COMMIT_OFF)
		commit_at(SYNCHRONOUS_COMMIT_LOCAL_FLUSH);
	else
		CommitTransactionCommand();
	if (!wrote)
		return;
	if (mode == KV_MC_COMMIT_DRAIN)
		kv_mc_unflushed = XactLastCommitEnd;
	if (mode == KV_MC_COMMIT_ON)
	{
		kv_mc_counts[KV_MC_COUNT_FLUSHES]++;
		/* a process that is told to end may not have waited for synchronous standbys (M 1) */
		if (ProcDiePending)
			proc_exit(1);
	}
}

void
kv_mc_flush_wal(void)
{
	XLogRecPtr	upto = kv_mc_unflushed;

	kv_mc_unflushed = InvalidXLogRecPtr;
	if (!XLogRecPtrIsInvalid(upto) && !RecoveryInProgress())
		kv_mc_ask_flush(upto);
}

/* ---- the flush of the WAL ---- */

bool
kv_mc_has_standbys(void)
{
	return SyncRepRequested() && SyncRepStandbyNames != NULL && SyncRepStandbyNames[0] != '\0';
}

/*
 * Commits of other processes can be seen before they are flushed.  The position where WAL is
 * inserted next may be after the header of a page that has nothing in it yet: the header is not
 * WAL that can be flushed.
 */
XLogRecPtr
kv_mc_seen_upto(void)
{
	XLogRecPtr	upto = GetXLogInsertRecPtr();

	if (XLogSegmentOffset(upto, wal_segment_size) == SizeOfXLogLongPHD)
		upto -= SizeOfXLogLongPHD;
	else if (upto % XLOG_BLCKSZ == SizeOfXLogShortPHD)
		upto -= SizeOfXLogShortPHD;
	if (pg_atomic_read_u64(&kv_mc_shared->flushed) >= upto ||
		(!kv_mc_has_standbys() && GetFlushRecPtr(NULL) >= upto))
		return InvalidXLogRecPtr;
	return upto;
}

bool
kv_mc_flush_here(XLogRecPtr upto)
{
	bool		waits;

	HOLD_INTERRUPTS();
	XLogFlush(upto);
	waits = kv_mc_has_standbys();
	SyncRepWaitForLSN(upto, true);
	RESUME_INTERRUPTS();
	return !waits || !ProcDiePending;
}

bool
kv_mc_flusher_runs(void)
{
	return kv_mc_shared->wal_flusher_latch != NULL;
}

void
kv_mc_ask_flush(XLogRecPtr upto)
{
	Latch	   *latch = kv_mc_shared->wal_flusher_latch;

	if (pg_atomic_read_u64(&kv_mc_shared->flushed) >= upto)
		return;
	if (latch == NULL)
		XLogFlush(upto);
	else
	{
		pg_atomic_write_u64(&kv_mc_me->wanted, upto);
		pg_memory_barrier();
		SetLatch(latch);
	}
	kv_mc_counts[KV_MC_COUNT_FLUSHES]++;
}

/* ---- the process "kvfdw memcached flusher" ---- */

static void
leave(int code, Datum arg)
{
	kv_mc_shared->wal_flusher_latch = NULL;
	for (int i = 0; i < kv_mc_workers; i++)
	{
		Latch	   *latch = kv_mc_shared->workers[i].latch;

		if (latch != NULL)
			SetLatch(latch);
	}
}

/* The highest LSN that a process waits for. */
static XLogRecPtr
wanted(void)
{
	XLogRecPtr	most = InvalidXLogRecPtr;

	for (int i = 0; i < kv_mc_workers; i++)
		most = Max(most, pg_atomic_read_u64(&kv_mc_shared->workers[i].wanted));
	return most;
}

static void
wake_workers(XLogRecPtr before)
{
	for (int i = 0; i < kv_mc_workers; i++)
	{
		KvMcWorkerState *worker = &kv_mc_shared->workers[i];
		Latch	   *latch = worker->latch;

		if (latch != NULL && pg_atomic_read_u64(&worker->wanted) > before)
			SetLatch(latch);
	}
}

void
kv_memcached_flusher_main(Datum arg)
{
	static uint32 wait_flusher = 0;

	pqsignal(SIGTERM, die);
	/* a wait for synchronous standbys is not to be cancelled (M 1) */
	pqsignal(SIGINT, KV_SIG_IGN);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnection(kv_mc_database, kv_mc_role, 0);
	pgstat_report_appname("kvfdw memcached flusher");
	before_shmem_exit(leave, (Datum) 0);
	kv_mc_shared->wal_flusher_latch = MyLatch;
	for (;;)
	{
		XLogRecPtr	before = pg_atomic_read_u64(&kv_mc_shared->flushed);
		XLogRecPtr	upto;

		ResetLatch(MyLatch);
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}
		CHECK_FOR_INTERRUPTS();
		upto = wanted();
		if (upto > before)
		{
			/* a role or a database may have set it to off */
			if (synchronous_commit == SYNCHRONOUS_COMMIT_OFF)
				synchronous_commit = SYNCHRONOUS_COMMIT_LOCAL_FLUSH;
			if (kv_mc_flush_here(upto))
			{
				pg_atomic_write_u64(&kv_mc_shared->flushed, upto);
				wake_workers(before);
			}
			continue;
		}
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_EXIT_ON_PM_DEATH, -1,
						 KV_WAIT_EVENT(wait_flusher, "KvfdwMemcachedFlusher"));
	}
}
