/*
 * start.c
 *		Start: settings, shared memory, the processes.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/ipc.h"
#include "storage/shmem.h"
#include "utils/guc.h"

#include "compat.h"
#include "memcached/internal.h"
#include "memcached/memcached.h"
#include "register.h"

#define KV_RESTART_S	5

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

KvMcShared *kv_mc_shared = NULL;

static shmem_request_hook_type previous_shmem_request = NULL;
static shmem_startup_hook_type previous_shmem_startup = NULL;

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

/* ---- settings ---- */

static void
start_gucs(void)
{
	DefineCustomIntVariable("kvfdw.memcached_workers",
							"Number of processes that serve clients of memcached; 0 switches this off.",
							NULL, &kv_mc_workers, 0, 0, KV_MC_MAX_WORKERS,
							PGC_POSTMASTER, 0, NULL, NULL, NULL);
	DefineCustomStringVariable("kvfdw.memcached_database",
							   "Database whose tables are served to clients of memcached.",
							   NULL, &kv_mc_database, "", PGC_POSTMASTER, 0, NULL, NULL, NULL);
	DefineCustomStringVariable("kvfdw.memcached_role",
							   "Role of the processes, and of clients that need not authenticate.",
							   NULL, &kv_mc_role, "", PGC_POSTMASTER, 0, NULL, NULL, NULL);
	DefineCustomStringVariable("kvfdw.memcached_listen",
							   "Addresses to listen on for clients of memcached, separated by commas; * for all.",
							   NULL, &kv_mc_listen, "localhost", PGC_POSTMASTER, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("kvfdw.memcached_port",
							"TCP port for clients of memcached, and part of the Unix socket's name.",
							NULL, &kv_mc_port, 11211, 1, 65535,
							PGC_POSTMASTER, 0, NULL, NULL, NULL);
	DefineCustomStringVariable("kvfdw.memcached_socket",
							   "Directory of a Unix socket for clients of memcached; empty for none.",
							   NULL, &kv_mc_socket, "", PGC_POSTMASTER, 0, NULL, NULL, NULL);
	DefineCustomEnumVariable("kvfdw.memcached_auth",
							 "How clients of memcached authenticate.",
							 NULL, &kv_mc_auth, KV_MC_AUTH_NONE, auth_options,
							 PGC_POSTMASTER, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("kvfdw.memcached_udp_port",
							"UDP port for clients of memcached on this machine; 0 for none.",
							NULL, &kv_mc_udp_port, 0, 0, 65535,
							PGC_POSTMASTER, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("kvfdw.memcached_max_connections",
							"Connections of clients of memcached, of all processes together.",
							NULL, &kv_mc_max_connections, 1024, 1, 100000,
							PGC_POSTMASTER, 0, NULL, NULL, NULL);
}

static void
reload_gucs(void)
{
	DefineCustomEnumVariable("kvfdw.memcached_commit",
							 "What clients of memcached may rely on when a write is acknowledged.",
							 NULL, &kv_mc_commit, KV_MC_COMMIT_ON, commit_options,
							 PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("kvfdw.memcached_memory",
							"Memory for what one process receives and sends.",
							NULL, &kv_mc_memory_kb, 64 * 1024, 1024, 1024 * 1024 * 1024,
							PGC_SIGHUP, GUC_UNIT_KB, NULL, NULL, NULL);
	DefineCustomIntVariable("kvfdw.memcached_item_size",
							"Size of the largest value that clients of memcached can store.",
							NULL, &kv_mc_item_size_kb, 1024, 1, 128 * 1024,
							PGC_SIGHUP, GUC_UNIT_KB, NULL, NULL, NULL);
	DefineCustomIntVariable("kvfdw.memcached_lock_timeout",
							"How long a request waits for a locked row or table, or for memory.",
							NULL, &kv_mc_lock_timeout_ms, 1000, 0, 3600000,
							PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("kvfdw.memcached_idle_timeout",
							"Clients that send nothing for so long are disconnected; 0 never does that.",
							NULL, &kv_mc_idle_timeout_s, 0, 0, 86400 * 7,
							PGC_SIGHUP, GUC_UNIT_S, NULL, NULL, NULL);
	DefineCustomIntVariable("kvfdw.memcached_client_timeout",
							"Clients that take no reply or send no rest of a request for so long are disconnected.",
							NULL, &kv_mc_client_timeout_s, 60, 1, 86400,
							PGC_SIGHUP, GUC_UNIT_S, NULL, NULL, NULL);
	DefineCustomIntVariable("kvfdw.memcached_quota",
							"Requests of one connection that are done before others have their turn.",
							NULL, &kv_mc_quota, 32, 1, 4096,
							PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable("kvfdw.memcached_flush_all",
							 "Clients of memcached may empty the tables.",
							 NULL, &kv_mc_flush_all, false,
							 PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("kvfdw.memcached_reap_interval",
							"How often tables are searched for rows that have expired; 0 never does that.",
							NULL, &kv_mc_reap_interval_s, 900, 0, 86400 * 7,
							PGC_SIGHUP, GUC_UNIT_S, NULL, NULL, NULL);
	DefineCustomIntVariable("kvfdw.memcached_reap_rate",
							"Megabytes of values in a second that the search for expired rows reads at most.",
							NULL, &kv_mc_reap_rate, 16, 1, 65536,
							PGC_SIGHUP, 0, NULL, NULL, NULL);
}

void
kv_memcached_gucs(void)
{
	start_gucs();
	reload_gucs();
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
		pg_atomic_init_u32(&kv_mc_shared->emptier, 0);
		pg_atomic_init_u64(&kv_mc_shared->flushed, 0);
		pg_atomic_init_u32(&kv_mc_shared->room_wanted, 0);
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

/* number: of one of several, or -1; without: what its absence means. */
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
				 errmsg("clients of memcached are not served"),
				 errhint("Set kvfdw.memcached_database and kvfdw.memcached_role.")));
		return;
	}
	for (int i = 0; i < kv_mc_workers; i++)
		register_worker("kvfdw memcached", "kv_memcached_main", i,
						i == 0 ? "Clients of memcached are not served." : "Fewer processes serve clients of memcached.");
	register_worker("kvfdw memcached flusher", "kv_memcached_flusher_main", -1,
					"While the WAL is flushed for clients' writes, other clients wait.");
	register_worker("kvfdw memcached reaper", "kv_memcached_reaper_main", -1,
					"Rows that have expired stay, a flush_all with a delay is refused, and so are writes while the maintainer makes no memory.");
}
