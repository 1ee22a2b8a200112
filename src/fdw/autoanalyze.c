/*
 * autoanalyze.c
 *		The worker that analyzes changed tables of one database.
 *
 * It does what an autovacuum worker does, with the same settings.  It runs ANALYZE as the
 * table's owner, in a security-restricted operation (core's analyze_rel sees to that), slowly
 * if autovacuum_vacuum_cost_delay says so, and never waits for a table's lock.  It marks itself
 * as an autovacuum worker, so sessions that wait for one of its locks cancel it, and DROP
 * DATABASE terminates it.  engine/statistics.c says when it is started.
 */
#include "postgres.h"

#include <math.h>

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "commands/dbcommands.h"
#include "commands/vacuum.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/autovacuum.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "compat.h"
#include "clock.h"
#include "fdw/fdw.h"

extern PGDLLEXPORT void kv_analyze_worker_main(Datum arg);

/* Let processes that wait for our locks, or for this database, cancel us. */
static void
become_autovacuum(void)
{
	LWLockAcquire(ProcArrayLock, LW_EXCLUSIVE);
	MyProc->statusFlags |= PROC_IS_AUTOVACUUM;
	ProcGlobal->statusFlags[MyProc->pgxactoff] = MyProc->statusFlags;
	LWLockRelease(ProcArrayLock);
}

/* Set options as autovacuum workers do. */
static void
set_options(void)
{
	static const char *const options[][2] = {
		{"statement_timeout", "0"}, {"transaction_timeout", "0"}, {"lock_timeout", "0"},
		{"idle_in_transaction_session_timeout", "0"},
		{"default_transaction_isolation", "read committed"},
		{"synchronous_commit", "local"}, {"search_path", ""}
	};

	for (int i = 0; i < lengthof(options); i++)
	{
		/* not every server has all of them */
		if (GetConfigOption(options[i][0], true, false) != NULL)
			SetConfigOption(options[i][0], options[i][1], PGC_SUSET, PGC_S_OVERRIDE);
	}
	if (autovacuum_vac_cost_delay >= 0)
		SetConfigOption("vacuum_cost_delay", psprintf("%g", autovacuum_vac_cost_delay),
						PGC_USERSET, PGC_S_OVERRIDE);
	if (autovacuum_vac_cost_limit > 0)
		SetConfigOption("vacuum_cost_limit", psprintf("%d", autovacuum_vac_cost_limit),
						PGC_USERSET, PGC_S_OVERRIDE);
}

/*
 * The number of changes above which the table is due.  False if the table does not exist, or is
 * not ours.
 */
static bool
find_threshold(Oid relid, double *reltuples, double *threshold)
{
	HeapTuple	tuple;

	if (!kv_is_foreign_table(relid))
		return false;
	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	if (!HeapTupleIsValid(tuple))
		return false;
	*reltuples = Max(((Form_pg_class) GETSTRUCT(tuple))->reltuples, 0);
	ReleaseSysCache(tuple);
	*threshold = autovacuum_anl_thresh + autovacuum_anl_scale * *reltuples;
	return true;
}

/* What is analyzed, for messages after an error. */
static char label[3 * NAMEDATALEN];

static void
report(Oid relid, TimestampTz began)
{
	if (Log_autovacuum_min_duration >= 0 &&
		TimestampDifferenceExceeds(began, kv_clock(), Log_autovacuum_min_duration))
		ereport(LOG,
				(errmsg("automatic analyze of foreign table \"%s.%s.%s\"",
						get_database_name(MyDatabaseId),
						get_namespace_name(get_rel_namespace(relid)), get_rel_name(relid))));
}

static void
analyze(Oid relid)
{
	VacuumParams params;
	TimestampTz began = kv_clock();

	memset(&params, 0, sizeof(params));
	params.options = VACOPT_ANALYZE | VACOPT_SKIP_LOCKED;
	params.KV_LOG_ANALYZE_DURATION = -1;
	snprintf(label, sizeof(label), "%s.%s", get_namespace_name(get_rel_namespace(relid)),
			 get_rel_name(relid));
	pgstat_report_activity(STATE_RUNNING, psprintf("kvfdw: ANALYZE %s", label));
	kv_begin_cost_delay();
	analyze_rel(relid, NULL, &params, NIL, false, NULL);
	VacuumCostActive = false;
	report(relid, began);
}

/*
 * Analyze a table if it is due, and note when it will be.  A table whose size differs much from
 * the catalog's is due too, if it was not analyzed since the server started: earlier changes
 * are not known.
 */
static void
look_at(const KvChanges *changes)
{
	double		reltuples;
	double		threshold;

	if (!find_threshold(changes->relid, &reltuples, &threshold))
		return;
	if (changes->since > threshold ||
		(!changes->analyzed && fabs((double) changes->rows - reltuples) > threshold))
	{
		if (!ConditionalLockRelationOid(changes->relid, ShareUpdateExclusiveLock))
			return;				/* next time */
		if (!find_threshold(changes->relid, &reltuples, &threshold))
			return;				/* dropped */
		PushActiveSnapshot(GetTransactionSnapshot());
		analyze(changes->relid);
		PopActiveSnapshot();
		CommandCounterIncrement();
		if (!find_threshold(changes->relid, &reltuples, &threshold))
			return;
	}
	kv_changes_need(MyDatabaseId, changes, (uint64) threshold + 1);
}

/* Log the error; the next attempt is when twice as much has changed. */
static void
after_error(MemoryContext context, const KvChanges *changes)
{
	bool		canceled = geterrcode() == ERRCODE_QUERY_CANCELED;

	HOLD_INTERRUPTS();
	MemoryContextSwitchTo(context);
	if (canceled && label[0] != '\0')
		ereport(LOG, (errmsg("canceling automatic analyze of foreign table \"%s\"", label)));
	else if (canceled)
		ereport(LOG,
				(errmsg("canceling automatic analyze of %s",
						kv_table_label(MyDatabaseId, changes->relid))));
	else
		EmitErrorReport();
	FlushErrorState();
	AbortCurrentTransaction();
	QueryCancelPending = false;
	VacuumCostActive = false;
	RESUME_INTERRUPTS();
	if (!canceled)
		kv_changes_need(MyDatabaseId, changes, 2 * changes->since + 1);
}

/* Reload the configuration between two tables, as autovacuum workers do. */
static void
reload(void)
{
	if (!ConfigReloadPending)
		return;
	ConfigReloadPending = false;
	ProcessConfigFile(PGC_SIGHUP);
	set_options();
}

void
kv_analyze_worker_main(Datum arg)
{
	MemoryContext context;
	List	   *tables;
	ListCell   *cell;

	pqsignal(SIGTERM, die);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnectionByOid(DatumGetObjectId(arg), InvalidOid,
											  BGWORKER_BYPASS_ALLOWCONN);
	kv_analyze_attend();
	become_autovacuum();
	context = AllocSetContextCreate(TopMemoryContext, "kvfdw analyze", ALLOCSET_DEFAULT_SIZES);
	MemoryContextSwitchTo(context);
	set_options();
	tables = kv_changes_of(MyDatabaseId);
	foreach(cell, tables)
	{
		reload();
		PG_TRY();
		{
			CHECK_FOR_INTERRUPTS();
			kv_changes_again(MyDatabaseId, lfirst(cell));
			SetCurrentStatementStartTimestamp();
			label[0] = '\0';
			StartTransactionCommand();
			look_at(lfirst(cell));
			CommitTransactionCommand();
			/* a cancel that arrives late was for this table */
			QueryCancelPending = false;
		}
		PG_CATCH();
		{
			after_error(context, lfirst(cell));
		}
		PG_END_TRY();
		MemoryContextSwitchTo(context);
		pgstat_report_activity(STATE_IDLE, NULL);
	}
	proc_exit(0);
}
