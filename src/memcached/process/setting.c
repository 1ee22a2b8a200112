/*
 * setting.c
 *		Settings.
 */
#include "memcached/process/process.h"

#include "utils/guc.h"

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
							"Number of processes that serve clients of memcached; 0 switches this "
							"off.",
							NULL, &kv_mc_workers, 0, 0, KV_MC_MAX_WORKERS,
							PGC_POSTMASTER, 0, NULL, NULL, NULL);
	DefineCustomStringVariable("kvfdw.memcached_database",
							   "Database whose tables are served to clients of memcached.",
							   NULL, &kv_mc_database, "", PGC_POSTMASTER, 0, NULL, NULL, NULL);
	DefineCustomStringVariable("kvfdw.memcached_role",
							   "Role of the processes, and of clients that need not authenticate.",
							   NULL, &kv_mc_role, "", PGC_POSTMASTER, 0, NULL, NULL, NULL);
	DefineCustomStringVariable("kvfdw.memcached_listen",
							   "Addresses to listen on for clients of memcached, separated by "
							   "commas; * for all.",
							   NULL, &kv_mc_listen, "localhost", PGC_POSTMASTER, 0, NULL, NULL,
							   NULL);
	DefineCustomIntVariable("kvfdw.memcached_port",
							"TCP port for clients of memcached, and part of the Unix socket's "
							"name.",
							NULL, &kv_mc_port, 11211, 1, 65535,
							PGC_POSTMASTER, 0, NULL, NULL, NULL);
	DefineCustomStringVariable("kvfdw.memcached_socket",
							   "Directory of a Unix socket for clients of memcached; empty for "
							   "none.",
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
	DefineCustomIntVariable("kvfdw.memcached_buffer_memory",
							"Memory for what one process receives and sends.",
							NULL, &kv_mc_memory_kb, 64 * 1024, 1024, 1024 * 1024 * 1024,
							PGC_SIGHUP, GUC_UNIT_KB, NULL, NULL, NULL);
	DefineCustomIntVariable("kvfdw.memcached_max_item_size",
							"Size of the largest value that clients of memcached can store.",
							NULL, &kv_mc_item_size_kb, 1024, 1, 128 * 1024,
							PGC_SIGHUP, GUC_UNIT_KB, NULL, NULL, NULL);
	DefineCustomIntVariable("kvfdw.memcached_lock_timeout",
							"How long a request waits for a locked row or table, or for memory.",
							NULL, &kv_mc_lock_timeout_ms, 1000, 0, 3600000,
							PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("kvfdw.memcached_idle_timeout",
							"Clients that send nothing for so long are disconnected; 0 never does "
							"that.",
							NULL, &kv_mc_idle_timeout_s, 0, 0, 86400 * 7,
							PGC_SIGHUP, GUC_UNIT_S, NULL, NULL, NULL);
	DefineCustomIntVariable("kvfdw.memcached_client_timeout",
							"Clients that take no reply or send no rest of a request for so long "
							"are disconnected.",
							NULL, &kv_mc_client_timeout_s, 60, 1, 86400,
							PGC_SIGHUP, GUC_UNIT_S, NULL, NULL, NULL);
	DefineCustomIntVariable("kvfdw.memcached_requests_per_batch",
							"Requests of one connection that are done before others have their "
							"turn.",
							NULL, &kv_mc_quota, 32, 1, 4096,
							PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable("kvfdw.memcached_flush_all",
							 "Clients of memcached may empty the tables.",
							 NULL, &kv_mc_flush_all, false,
							 PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("kvfdw.memcached_reap_interval",
							"How often tables are searched for rows that have expired; 0 never "
							"does that.",
							NULL, &kv_mc_reap_interval_s, 900, 0, 86400 * 7,
							PGC_SIGHUP, GUC_UNIT_S, NULL, NULL, NULL);
	DefineCustomIntVariable("kvfdw.memcached_reap_rate",
							"Megabytes of values in a second that the search for expired rows "
							"reads at most.",
							NULL, &kv_mc_reap_rate, 16, 1, 65536,
							PGC_SIGHUP, 0, NULL, NULL, NULL);
}

void
kv_mc_settings(void)
{
	start_gucs();
	reload_gucs();
}
