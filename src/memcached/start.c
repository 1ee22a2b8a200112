/*
 * start.c
 *		Start: shared memory, the processes.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/ipc.h"
#include "storage/shmem.h"
#include "utils/guc.h"

#include "compat.h"
#include "memcached/batch/batch.h"
#include "memcached/connection/connection.h"
#include "memcached/memcached.h"
#include "register.h"

#define KV_RESTART_S	5

static shmem_request_hook_type previous_shmem_request = NULL;
static shmem_startup_hook_type previous_shmem_startup = NULL;

void
kv_memcached_gucs(void)
{
	kv_mc_settings();
}

void
kv_memcached_stat_reset(TimestampTz now)
{
	kv_mc_reset_counts(now);
}

/* ---- shared memory ---- */

static Size
shared_size(void)
{
	return add_size(add_size(MAXALIGN(sizeof(KvMcShared)), MAXALIGN(kv_mc_clients_size())),
					kv_mc_expired_size());
}

static void
request_memory(void)
{
	if (previous_shmem_request)
		previous_shmem_request();
	RequestAddinShmemSpace(shared_size());
}

static void
start_memory(void)
{
	bool		found;

	if (previous_shmem_startup)
		previous_shmem_startup();

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	kv_mc_shared = ShmemInitStruct("kvfdw memcached", shared_size(), &found);
	if (!found)
	{
		memset(kv_mc_shared, 0, shared_size());
		kv_mc_shared->tranche = kv_new_tranche("KvfdwMemcached");
		LWLockInitialize(&kv_mc_shared->lock, kv_mc_shared->tranche);
		pg_atomic_init_u32(&kv_mc_shared->resets, 0);
		pg_atomic_init_u64(&kv_mc_shared->stats_since, GetCurrentTimestamp());
		pg_atomic_init_u32(&kv_mc_shared->emptier, 0);
		pg_atomic_init_u64(&kv_mc_shared->flushed, 0);
		pg_atomic_init_u32(&kv_mc_shared->memtable_wanted, 0);
		for (int i = 0; i < KV_MC_MAX_EMPTIED; i++)
			pg_atomic_init_u32(&kv_mc_shared->emptied[i], InvalidOid);
		for (int i = 0; i <= KV_MC_MAX_WORKERS; i++)
		{
			KvMcWorkerState *worker = &kv_mc_shared->workers[i];

			pg_atomic_init_u64(&worker->wanted, 0);
			pg_atomic_init_u32(&worker->connections, 0);
			pg_atomic_init_u64(&worker->memory, 0);
			for (int j = 0; j < KV_MC_COUNTERS; j++)
				pg_atomic_init_u64(&worker->counts[j], 0);
		}
	}
	kv_mc_clients_init();
	kv_mc_expired_init((char *) kv_mc_shared + shared_size() - kv_mc_expired_size(), found);
	kv_register_tranche(kv_mc_shared->tranche, "KvfdwMemcached");
	LWLockRelease(AddinShmemInitLock);
}

/* ---- the processes ---- */

/* number: of one of several, or -1; without: the message if the worker is missing. */
static void
register_worker(const char *type, const char *function, int number, const char *without)
{
	BackgroundWorker worker;

	memset(&worker, 0, sizeof(worker));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_ConsistentState;
	worker.bgw_restart_time = KV_RESTART_S;
	if (number < 0)
		snprintf(worker.bgw_name, BGW_MAXLEN, "%s", type);
	else
		snprintf(worker.bgw_name, BGW_MAXLEN, "%s %d", type, number);
	snprintf(worker.bgw_type, BGW_MAXLEN, "%s", type);
	snprintf(worker.bgw_library_name, BGW_MAXLEN, "kvfdw");
	snprintf(worker.bgw_function_name, BGW_MAXLEN, "%s", function);
	worker.bgw_main_arg = Int32GetDatum(number);
	kv_register_worker(&worker, without);
}

void
kv_memcached_preload(void)
{
	previous_shmem_request = shmem_request_hook;
	shmem_request_hook = request_memory;
	previous_shmem_startup = shmem_startup_hook;
	shmem_startup_hook = start_memory;
	if (kv_mc_workers == 0)
		return;
	if (kv_mc_database[0] == '\0' || kv_mc_role[0] == '\0')
	{
		ereport(WARNING,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("cannot serve memcached clients without a database and a role"),
				 errhint("Set \"kvfdw.memcached_database\" and \"kvfdw.memcached_role\".")));
		return;
	}
	for (int i = 0; i < kv_mc_workers; i++)
		register_worker("kvfdw memcached", "kv_memcached_main", i,
						i == 0 ? "memcached clients are not served."
						: "Fewer processes serve memcached clients.");
	register_worker(KV_MC_FLUSHER, "kv_memcached_flusher_main", -1, KV_MC_NO_FLUSHER);
	register_worker(KV_MC_REAPER, "kv_memcached_reaper_main", -1, KV_MC_NO_REAPER);
}
