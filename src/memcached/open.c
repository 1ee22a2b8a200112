/*
 * open.c
 *		Tables that have to be recovered before they can be used.
 *
 * After a crash, and on a standby, the first use of a table recovers it, which may take
 * long.  The loop does not wait for that (M 2): a process that lives for one table does it,
 * and requests are parked meanwhile.  Only where no such process can be had the loop does
 * it itself.
 */
#include "memcached/internal.h"

#include "access/relation.h"
#include "access/table.h"
#include "access/xact.h"
#include "libpq/pqsignal.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "storage/ipc.h"
#include "tcop/tcopprot.h"

#include "engine/engine.h"

#define AGAIN_US	USECS_PER_SEC	/* a process is started for a table no more often */
#define MOST_ASKED	16

/* Tables for which processes were started, the latest ones. */
static struct
{
	Oid			relid;
	TimestampTz at;
}			asked[MOST_ASKED];

static bool
start_process(Oid relid)
{
	BackgroundWorker worker;

	memset(&worker, 0, sizeof(worker));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_ConsistentState;
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	snprintf(worker.bgw_name, BGW_MAXLEN, "kvfdw memcached open");
	snprintf(worker.bgw_type, BGW_MAXLEN, "kvfdw memcached open");
	snprintf(worker.bgw_library_name, BGW_MAXLEN, "kvfdw");
	snprintf(worker.bgw_function_name, BGW_MAXLEN, "kv_memcached_open_main");
	worker.bgw_main_arg = ObjectIdGetDatum(relid);
	return RegisterDynamicBackgroundWorker(&worker, NULL);
}

bool
kv_mc_table_ready(Oid relid)
{
	TimestampTz now;
	int			oldest = 0;

	if (kv_store_is_ready(MyDatabaseId, relid))
		return true;
	now = GetCurrentTimestamp();
	for (int i = 0; i < MOST_ASKED; i++)
	{
		if (asked[i].relid == relid && now >= asked[i].at && now - asked[i].at < AGAIN_US)
			return false;
		if (asked[i].relid == relid)
		{
			oldest = i;
			break;
		}
		if (asked[i].at < asked[oldest].at)
			oldest = i;
	}
	asked[oldest].relid = relid;
	asked[oldest].at = now;
	return !start_process(relid);
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
	StartTransactionCommand();
	rel = try_relation_open(relid, AccessShareLock);
	if (rel != NULL && kv_is_foreign_table(relid))
		(void) kv_table_store(rel, false);
	if (rel != NULL)
		table_close(rel, AccessShareLock);
	CommitTransactionCommand();
	proc_exit(0);
}
