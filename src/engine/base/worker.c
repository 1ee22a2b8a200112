/*
 * worker.c
 *		Background workers: what they have in common.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/latch.h"
#include "utils/guc.h"

#include "engine/base/worker.h"

#define KV_RESTART_S 1

/* Settings for people's transactions, not for a worker's.  Not all servers have all of them. */
static const char *const timeouts[] = {
	"statement_timeout", "transaction_timeout", "lock_timeout", "idle_in_transaction_session_timeout"
};

void
kv_worker_describe(BackgroundWorker *worker, const char *name, const char *function)
{
	memset(worker, 0, sizeof(*worker));
	worker->bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker->bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker->bgw_restart_time = KV_RESTART_S;
	snprintf(worker->bgw_name, BGW_MAXLEN, "%s", name);
	snprintf(worker->bgw_type, BGW_MAXLEN, "%s", name);
	snprintf(worker->bgw_library_name, BGW_MAXLEN, "kvfdw");
	snprintf(worker->bgw_function_name, BGW_MAXLEN, "%s", function);
}

void
kv_worker_no_timeouts(void)
{
	for (int i = 0; i < lengthof(timeouts); i++)
	{
		if (GetConfigOption(timeouts[i], true, false) != NULL)
			SetConfigOption(timeouts[i], "0", PGC_SUSET, PGC_S_OVERRIDE);
	}
}

void
kv_worker_begin(const char *name)
{
	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	BackgroundWorkerUnblockSignals();
	if (name == NULL)
		return;
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	pgstat_report_appname(name);
	kv_worker_no_timeouts();
}

/* Since kv_worker_goes_on was last asked. */
static bool has_reloaded = false;

void
kv_worker_reload(void)
{
	if (!ConfigReloadPending || MyBgworkerEntry == NULL)
		return;
	ConfigReloadPending = false;
	ProcessConfigFile(PGC_SIGHUP);
	has_reloaded = true;
}

bool
kv_worker_goes_on(bool *reloaded)
{
	ResetLatch(MyLatch);
	kv_worker_reload();
	if (reloaded != NULL)
		*reloaded = has_reloaded;
	has_reloaded = false;
	return !ShutdownRequestPending;
}

bool
kv_worker_start(const char *name, const char *function, Datum arg,
				BackgroundWorkerHandle **handle)
{
	BackgroundWorker worker;

	kv_worker_describe(&worker, name, function);
	worker.bgw_start_time = BgWorkerStart_ConsistentState;
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	worker.bgw_main_arg = arg;
	worker.bgw_notify_pid = MyProcPid;
	return RegisterDynamicBackgroundWorker(&worker, handle);
}

void
kv_worker_missed(const char *name, const char *without)
{
	ereport(LOG,
			(errmsg("could not start background worker \"%s\"", name),
			 errdetail("%s", without),
			 errhint("You may need to increase max_worker_processes.")));
}
