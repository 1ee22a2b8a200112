/*
 * open.c
 *		Recovery of tables before their first use.
 *
 * After a crash, and on a standby, the first use of a table recovers it, which may take long.
 * The loop does not wait for that (M 2): a process that lives for one table recovers it, and
 * requests are parked until then.  They are parked also where no such process can be started
 * now: another attempt may start one, and the maintainer recovers all tables, one after the
 * other.  The maintainer does not recover tables that a standby learns of later; the loop
 * recovers these itself.
 */
#include "memcached/served/served.h"

#include "clock.h"

#include "access/relation.h"
#include "access/table.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "libpq/pqsignal.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "storage/ipc.h"
#include "tcop/tcopprot.h"
#include "utils/memutils.h"

#include "engine/engine.h"

#define AGAIN_US	USECS_PER_SEC	/* at most one process is started for a table in so long */
#define MOST_ASKED	16

/* The latest tables for which processes were started. */
typedef struct KvMcAsked
{
	Oid			relid;
	TimestampTz at;
	BackgroundWorkerHandle *process;	/* NULL: none was started */
} KvMcAsked;

static KvMcAsked asked[MOST_ASKED];

/* Returns NULL if no slot for a worker is free. */
static BackgroundWorkerHandle *
start_process(Oid relid)
{
	BackgroundWorker worker;
	BackgroundWorkerHandle *process = NULL;
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);

	memset(&worker, 0, sizeof(worker));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_ConsistentState;
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	snprintf(worker.bgw_name, BGW_MAXLEN, "kvfdw memcached open");
	snprintf(worker.bgw_type, BGW_MAXLEN, "kvfdw memcached open");
	snprintf(worker.bgw_library_name, BGW_MAXLEN, "kvfdw");
	snprintf(worker.bgw_function_name, BGW_MAXLEN, "kv_memcached_open_main");
	worker.bgw_main_arg = ObjectIdGetDatum(relid);
	if (!RegisterDynamicBackgroundWorker(&worker, &process))
		process = NULL;
	MemoryContextSwitchTo(old);
	return process;
}

static bool
lives(BackgroundWorkerHandle *process)
{
	pid_t		pid;
	BgwHandleStatus status;

	if (process == NULL)
		return false;
	status = GetBackgroundWorkerPid(process, &pid);
	return status == BGWH_NOT_YET_STARTED || status == BGWH_STARTED;
}

/*
 * No process recovers the table: start one, if the last one for it has ended or there never was
 * one.  False: none can be started.
 */
static bool
have_opened(Oid relid)
{
	TimestampTz now = kv_clock();
	KvMcAsked  *place = &asked[0];
	BackgroundWorkerHandle *process;

	for (int i = 0; i < MOST_ASKED; i++)
	{
		if (asked[i].relid == relid)
		{
			place = &asked[i];
			if (lives(place->process) || (now >= place->at && now - place->at < AGAIN_US))
				return true;
			break;
		}
		if (asked[i].at < place->at)
			place = &asked[i];
	}
	process = start_process(relid);
	if (process == NULL)
		return !RecoveryInProgress();
	if (place->process != NULL)
		pfree(place->process);
	*place = (KvMcAsked) {.relid = relid, .at = now, .process = process};
	return true;
}

bool
kv_mc_table_ready(Oid relid)
{
	bool		opening;

	if (kv_store_is_ready(MyDatabaseId, relid, &opening))
		return true;
	return !opening && !have_opened(relid);
}

void
kv_memcached_open_main(Datum arg)
{
	Oid			relid = DatumGetObjectId(arg);
	Relation	rel;

	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnection(kv_mc_database, NULL, 0);
	pgstat_report_appname("kvfdw memcached open");
	kv_mc_begin();
	rel = try_relation_open(relid, AccessShareLock);
	if (rel != NULL && kv_is_foreign_table(relid))
		(void) kv_table_store(rel, false);
	if (rel != NULL)
		table_close(rel, AccessShareLock);
	CommitTransactionCommand();
	proc_exit(0);
}
