/*
 * commit.c
 *		Transactions of processes that serve memcached clients: begin, commit as the mode
 *		says, and errors.
 */
#include "memcached/process/process.h"

#include "clock.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "utils/memutils.h"

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
