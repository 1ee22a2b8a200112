/*
 * process.c
 *		The base of each process: settings, setup, counters, the marks of a flush_all,
 *		transactions, and the flush of the WAL.
 *
 * Counters.  A process counts in its own memory and publishes the counters after its batches.  A
 * reset increases a number in shared memory, which each process notices before it counts again.
 *
 * A flush_all.  One process at a time executes it.  It marks the tables that it waits for, and the
 * other processes leave marked tables alone.
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
#include "utils/acl.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/wait_event.h"

/* ---- settings ---- */

int			kv_mc_workers = 0;
char	   *kv_mc_database = NULL;
char	   *kv_mc_role = NULL;
char	   *kv_mc_listen = NULL;
int			kv_mc_port = 11211;
char	   *kv_mc_socket = NULL;
int			kv_mc_auth = KV_MC_AUTH_NONE;
int			kv_mc_commit = KV_MC_COMMIT_ON;
int			kv_mc_max_connections = 1024;
int			kv_mc_memory_kb = 64 * 1024;
int			kv_mc_item_size_kb = 1024;
int			kv_mc_lock_timeout_ms = 1000;
int			kv_mc_idle_timeout_s = 0;
int			kv_mc_client_timeout_s = 60;
int			kv_mc_quota = 32;
bool		kv_mc_flush_all = false;
int			kv_mc_reap_interval_s = 900;
int			kv_mc_reap_rate = 16;
int			kv_mc_udp_port = 0;

static const struct config_enum_entry commit_options[] = {
	{"off", KV_MC_COMMIT_OFF, false},
	{"drain", KV_MC_COMMIT_DRAIN, false},
	{"on", KV_MC_COMMIT_ON, false},
	{NULL, 0, false}
};

static const struct config_enum_entry auth_options[] = {
	{"none", KV_MC_AUTH_NONE, false},
	{"password", KV_MC_AUTH_PASSWORD, false},
	{NULL, 0, false}
};

static void
start_gucs(void)
{
	DefineCustomIntVariable("kvfdw.memcached_workers",
							"Sets how many processes serve memcached clients.",
							"0: none. Two more processes help them.",
							&kv_mc_workers, 0, 0, KV_MC_MAX_WORKERS,
							PGC_POSTMASTER, 0, NULL, NULL, NULL);
	DefineCustomStringVariable("kvfdw.memcached_database",
							   "Sets the database whose tables are served to memcached clients.",
							   NULL,
							   &kv_mc_database, "", PGC_POSTMASTER, 0, NULL, NULL, NULL);
	DefineCustomStringVariable("kvfdw.memcached_role",
							   "Sets the role of the processes that serve memcached clients.",
							   "Clients have its privileges unless they authenticate. A superuser "
							   "is possible only if kvfdw.memcached_auth is password.",
							   &kv_mc_role, "", PGC_POSTMASTER, 0, NULL, NULL, NULL);
	DefineCustomStringVariable("kvfdw.memcached_listen",
							   "Sets the addresses at which memcached clients can connect, "
							   "separated by commas.",
							   "*: all addresses; empty: none. Each address must be available.",
							   &kv_mc_listen, "localhost", PGC_POSTMASTER, 0, NULL, NULL,
							   NULL);
	DefineCustomIntVariable("kvfdw.memcached_port",
							"Sets the TCP port for memcached clients, which is part of the name "
							"of the Unix socket, too.",
							NULL,
							&kv_mc_port, 11211, 1, 65535,
							PGC_POSTMASTER, 0, NULL, NULL, NULL);
	DefineCustomStringVariable("kvfdw.memcached_socket",
							   "Sets the directory of a Unix socket for memcached clients.",
							   "Empty: none. Its name is .s.kvfdw. and the TCP port.",
							   &kv_mc_socket, "", PGC_POSTMASTER, 0, NULL, NULL, NULL);
	DefineCustomEnumVariable("kvfdw.memcached_auth",
							 "Sets how memcached clients authenticate.",
							 "none: they do not; password: with name and password of a role.",
							 &kv_mc_auth, KV_MC_AUTH_NONE, auth_options,
							 PGC_POSTMASTER, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("kvfdw.memcached_udp_port",
							"Sets the UDP port for memcached clients on the same machine.",
							"0: none. Listens on loopback addresses only, and not with passwords.",
							&kv_mc_udp_port, 0, 0, 65535,
							PGC_POSTMASTER, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("kvfdw.memcached_max_connections",
							"Sets how many memcached clients can be connected at a time, to all "
							"processes together.",
							NULL,
							&kv_mc_max_connections, 1024, 1, 100000,
							PGC_POSTMASTER, 0, NULL, NULL, NULL);
}

static void
reload_gucs(void)
{
	DefineCustomEnumVariable("kvfdw.memcached_commit",
							 "Sets what is certain when the write of a memcached client is "
							 "acknowledged.",
							 "on: the WAL is flushed; drain: it is flushed within about 10 ms; "
							 "off: the WAL writer flushes it.",
							 &kv_mc_commit, KV_MC_COMMIT_ON, commit_options,
							 PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("kvfdw.memcached_buffer_memory",
							"Sets the memory of one process for what memcached clients send.",
							"As much again is for what the process sends. A larger request is "
							"refused.",
							&kv_mc_memory_kb, 64 * 1024, 1024, 1024 * 1024 * 1024,
							PGC_SIGHUP, GUC_UNIT_KB, NULL, NULL, NULL);
	DefineCustomIntVariable("kvfdw.memcached_max_item_size",
							"Sets the size of the largest value that a memcached client can store.",
							NULL,
							&kv_mc_item_size_kb, 1024, 1, 128 * 1024,
							PGC_SIGHUP, GUC_UNIT_KB, NULL, NULL, NULL);
	DefineCustomIntVariable("kvfdw.memcached_lock_timeout",
							"Sets how long a request of a memcached client waits for a row, a "
							"table or memtable memory.",
							"0: not at all.",
							&kv_mc_lock_timeout_ms, 1000, 0, 3600000,
							PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("kvfdw.memcached_idle_timeout",
							"Sets after which time without a request a memcached client is "
							"disconnected.",
							"0: never.",
							&kv_mc_idle_timeout_s, 0, 0, 86400 * 7,
							PGC_SIGHUP, GUC_UNIT_S, NULL, NULL, NULL);
	DefineCustomIntVariable("kvfdw.memcached_client_timeout",
							"Sets after which time a memcached client is disconnected that takes "
							"no reply or does not complete a request.",
							"A client that sends less than 1 kB per second for so long counts, "
							"too.",
							&kv_mc_client_timeout_s, 60, 1, 86400,
							PGC_SIGHUP, GUC_UNIT_S, NULL, NULL, NULL);
	DefineCustomIntVariable("kvfdw.memcached_requests_per_batch",
							"Sets how many requests of one memcached connection are executed "
							"before those of others.",
							"32 keys of a get count as one request.",
							&kv_mc_quota, 32, 1, 4096,
							PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable("kvfdw.memcached_flush_all",
							 "Enables the memcached command flush_all, which truncates tables.",
							 NULL,
							 &kv_mc_flush_all, false,
							 PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("kvfdw.memcached_reap_interval",
							"Sets how often tables are searched for rows that have expired for "
							"memcached clients.",
							"0: never; only expired rows that a client or a compaction reads are "
							"deleted.",
							&kv_mc_reap_interval_s, 900, 0, 86400 * 7,
							PGC_SIGHUP, GUC_UNIT_S, NULL, NULL, NULL);
	DefineCustomIntVariable("kvfdw.memcached_reap_rate",
							"Sets how many megabytes of values per second the search for expired "
							"rows reads at most.",
							NULL,
							&kv_mc_reap_rate, 16, 1, 65536,
							PGC_SIGHUP, 0, NULL, NULL, NULL);
}

void
kv_mc_settings(void)
{
	start_gucs();
	reload_gucs();
}

/* ---- setup ---- */

KvMcShared *kv_mc_shared = NULL;
KvMcWorkerState *kv_mc_me = NULL;
int			kv_mc_my_number = 0;

static void
set_option(const char *name, const char *value)
{
	SetConfigOption(name, value, PGC_SUSET, PGC_S_OVERRIDE);
}

/* Settings that a role or database must not change for these processes. */
static void
set_options(void)
{
	set_option("statement_timeout", "0");
	set_option("lock_timeout", "0");
	set_option("idle_in_transaction_session_timeout", "0");
	if (GetConfigOption("transaction_timeout", true, false) != NULL)
		set_option("transaction_timeout", "0");
	set_option("default_transaction_isolation", "read committed");
	set_option("default_transaction_deferrable", "off");
	set_option("search_path", "pg_catalog");
}

void
kv_mc_check_role(void)
{
	if (kv_mc_auth == KV_MC_AUTH_NONE && superuser())
		ereport(FATAL,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("cannot serve memcached clients as superuser \"%s\"", kv_mc_role),
				 errhint("Set \"kvfdw.memcached_role\" to a role that is not a superuser, or "
						 "\"kvfdw.memcached_auth\" to \"password\".")));
	if (get_role_oid(kv_mc_role, true) != GetUserId())
		ereport(FATAL,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("background worker \"%s\" does not run as role \"%s\" any longer",
						MyBgworkerEntry->bgw_name, kv_mc_role),
				 errdetail("The role was dropped or renamed, or the name has become that of "
						   "another role. The server starts the worker again.")));
}

void
kv_mc_process_begin(void)
{
	pqsignal(SIGTERM, die);
	/* a wait for synchronous standbys is not to be cancelled (M 1) */
	pqsignal(SIGINT, KV_SIG_IGN);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnection(kv_mc_database, kv_mc_role, 0);
	set_options();
	kv_mc_begin();
	kv_mc_check_role();
	CommitTransactionCommand();
}

/* ---- counters ---- */

uint64		kv_mc_counts[KV_MC_COUNTERS];

static uint32 seen_resets = 0;

void
kv_mc_heed_reset(void)
{
	uint32		resets = pg_atomic_read_u32(&kv_mc_shared->resets);

	if (resets != seen_resets)
		memset(kv_mc_counts, 0, sizeof(kv_mc_counts));
	seen_resets = resets;
}

void
kv_mc_publish(void)
{
	kv_mc_heed_reset();
	for (int i = 0; i < KV_MC_COUNTERS; i++)
		pg_atomic_write_u64(&kv_mc_me->counts[i], kv_mc_counts[i]);
}

void
kv_mc_reset_counts(TimestampTz now)
{
	pg_atomic_write_u64(&kv_mc_shared->stats_since, now);
	pg_atomic_fetch_add_u32(&kv_mc_shared->resets, 1);
	for (int i = 0; i <= KV_MC_MAX_WORKERS; i++)
	{
		for (int j = 0; j < KV_MC_COUNTERS; j++)
			pg_atomic_write_u64(&kv_mc_shared->workers[i].counts[j], 0);
	}
}

/* ---- a flush_all, and the tables that it waits for ---- */

/*
 * the connection whose flush_all is executed here, or waits for its tables; NULL: there is none
 */
static const struct KvMcConnection *owner = NULL;

void
kv_mc_empty_over(void)
{
	uint32		me = MyProcPid;

	owner = NULL;
	if (pg_atomic_read_u32(&kv_mc_shared->emptier) != me)
		return;
	for (int i = 0; i < KV_MC_MAX_EMPTIED; i++)
		pg_atomic_write_u32(&kv_mc_shared->emptied[i], InvalidOid);
	pg_atomic_write_u32(&kv_mc_shared->emptier, 0);
}

void
kv_mc_empty_leave(const struct KvMcConnection *conn, const KvMcRequest *request)
{
	if (conn == owner && (request == NULL || request->command != KV_MC_FLUSH))
		kv_mc_empty_over();
}

bool
kv_mc_empty_begin(const struct KvMcConnection *conn)
{
	uint32		nobody = 0;

	if ((owner != NULL && owner != conn) ||
		(!pg_atomic_compare_exchange_u32(&kv_mc_shared->emptier, &nobody, MyProcPid) &&
		 nobody != (uint32) MyProcPid))
		return false;
	owner = conn;
	return true;
}

void
kv_mc_empty_mark(Oid relid)
{
	for (int i = 0; i < KV_MC_MAX_EMPTIED; i++)
	{
		uint32		marked = pg_atomic_read_u32(&kv_mc_shared->emptied[i]);

		if (marked == InvalidOid)
			pg_atomic_write_u32(&kv_mc_shared->emptied[i], relid);
		if (marked == InvalidOid || marked == relid)
			return;
	}
	/* no mark is free: the table is locked when it happens to be unused */
}

bool
kv_mc_empty_wants(Oid relid)
{
	uint32		emptier = pg_atomic_read_u32(&kv_mc_shared->emptier);

	if (emptier == 0 || emptier == (uint32) MyProcPid)
		return false;
	for (int i = 0; i < KV_MC_MAX_EMPTIED; i++)
	{
		if (pg_atomic_read_u32(&kv_mc_shared->emptied[i]) == relid)
			return true;
	}
	return false;
}

/* ---- transactions, and the process that flushes the WAL ---- */

/*
 * The process "kvfdw memcached flusher" flushes the WAL for the other processes, and waits for
 * synchronous standbys.  Without it, or where that is not worthwhile, they do so themselves.
 */

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
