/*
 * stat.c
 *		Counters: which request counts where, and the sums, for clients and for SQL.
 */
#include "memcached/batch/batch.h"
#include "memcached/connection/connection.h"

#include "clock.h"
#include "report.h"
#include "engine/engine.h"
#include "engine/maintenance.h"

#include <sys/resource.h>
#include <sys/time.h>
#include <time.h>

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_proc.h"
#include "commands/extension.h"
#include "fmgr.h"
#include "funcapi.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/catcache.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#define STAT_COLUMNS	(5 + KV_MC_COUNTERS)
#define TABLE_COLUMNS	6

PG_FUNCTION_INFO_V1(kvfdw_stat_get_memcached);
PG_FUNCTION_INFO_V1(kvfdw_memcached_tables);

/* Clients parse the version, so it is one of memcached's: the one that ours is compared with. */
const char	kv_mc_version[] = "1.6.18";
static const char kvfdw_version[] = "0.2";

/* ---- counting ---- */

/* Count in one of two counters; the second is for items that were not found. */
static void
count_either(bool missed, KvMcCount hits)
{
	kv_mc_counts[missed ? hits + 1 : hits]++;
}

void
kv_mc_count_reply(const KvMcRequest *request, const KvMcReply *reply)
{
	bool		missed = reply->outcome == KV_MC_MISS;

	if (reply->outcome == KV_MC_ERROR || reply->outcome == KV_MC_CLIENT_ERROR)
		return;
	if (request->has_cas && request->command != KV_MC_DELETE)
		kv_mc_counts[missed ? KV_MC_COUNT_CAS_MISSES : reply->outcome == KV_MC_EXISTS ?
					 KV_MC_COUNT_CAS_BADVAL : KV_MC_COUNT_CAS_HITS]++;
	switch (request->command)
	{
		case KV_MC_GET:
		case KV_MC_META_GET:
			kv_mc_counts[KV_MC_COUNT_GETS]++;
			count_either(missed, KV_MC_COUNT_HITS);
			break;
		case KV_MC_TOUCH:
			count_either(missed, KV_MC_COUNT_TOUCH_HITS);
			if (request->with_value)
			{
				kv_mc_counts[KV_MC_COUNT_GETS]++;
				count_either(missed, KV_MC_COUNT_HITS);
			}
			break;
		case KV_MC_SET:
		case KV_MC_ADD:
		case KV_MC_REPLACE:
		case KV_MC_APPEND:
		case KV_MC_PREPEND:
		case KV_MC_CAS:
			kv_mc_counts[KV_MC_COUNT_SETS]++;
			break;
		case KV_MC_DELETE:
			count_either(missed, KV_MC_COUNT_DELETE_HITS);
			break;
		case KV_MC_INCR:
			count_either(missed, KV_MC_COUNT_INCR_HITS);
			break;
		case KV_MC_DECR:
			count_either(missed, KV_MC_COUNT_DECR_HITS);
			break;
		case KV_MC_META_DEBUG:
			kv_mc_counts[KV_MC_COUNT_DEBUGS]++;
			break;
		case KV_MC_SAY:
		case KV_MC_DISCARD:
			if (request->status == KV_MC_STATUS_TOO_LARGE)
				kv_mc_counts[KV_MC_COUNT_TOO_LARGE]++;
			else if (request->status == KV_MC_STATUS_NO_MEMORY)
				kv_mc_counts[KV_MC_COUNT_NO_MEMORY]++;
			break;
		default:
			break;
	}
}

/* ---- for clients ---- */

typedef struct KvMcLines
{
	KvMcConnection *conn;
	const KvMcRequest *request;
} KvMcLines;

static void
tell_line(const KvMcLines *to, const char *name, const char *value)
{
	char		head[KV_MC_HEAD_SIZE];

	kv_mc_tell(to->conn, head, kv_mc_print_stat(to->request, name, value, head));
}

static void
tell_number(const KvMcLines *to, const char *name, uint64 value)
{
	char		text[32];

	snprintf(text, sizeof(text), UINT64_FORMAT, value);
	tell_line(to, name, text);
}

static void
tell_time(const KvMcLines *to, const char *name, const struct timeval *time)
{
	char		text[40];

	snprintf(text, sizeof(text), "%ld.%06ld", (long) time->tv_sec, (long) time->tv_usec);
	tell_line(to, name, text);
}

/* Statistics of the served tables, as far as they are known without reading rows. */
typedef struct KvMcItems
{
	uint64		rows;
	uint64		bytes;
} KvMcItems;

static void
add_items(void *arg, const KvStoreStats *stats)
{
	KvMcItems  *items = arg;
	KvMcTable **tables;
	int			n = kv_mc_tables(&tables);

	for (int i = 0; i < n; i++)
	{
		if (tables[i]->relid == stats->relid && !stats->unusable)
		{
			items->rows += stats->rows;
			items->bytes += stats->live_bytes;
		}
	}
}

/* The counters that memcached has by the same name, in its order, and then kvfdw's own. */
static const struct
{
	const char *name;
	KvMcCount	count;
}			named[] = {
	{"cmd_set", KV_MC_COUNT_SETS}, {"cmd_flush", KV_MC_COUNT_FLUSHES_ALL},
	{"cmd_meta", KV_MC_COUNT_DEBUGS},
	{"get_hits", KV_MC_COUNT_HITS}, {"get_misses", KV_MC_COUNT_MISSES},
	{"get_expired", KV_MC_COUNT_EXPIRED},
	{"delete_misses", KV_MC_COUNT_DELETE_MISSES}, {"delete_hits", KV_MC_COUNT_DELETE_HITS},
	{"incr_misses", KV_MC_COUNT_INCR_MISSES}, {"incr_hits", KV_MC_COUNT_INCR_HITS},
	{"decr_misses", KV_MC_COUNT_DECR_MISSES}, {"decr_hits", KV_MC_COUNT_DECR_HITS},
	{"cas_misses", KV_MC_COUNT_CAS_MISSES}, {"cas_hits", KV_MC_COUNT_CAS_HITS},
	{"cas_badval", KV_MC_COUNT_CAS_BADVAL},
	{"touch_hits", KV_MC_COUNT_TOUCH_HITS}, {"touch_misses", KV_MC_COUNT_TOUCH_MISSES},
	{"store_too_large", KV_MC_COUNT_TOO_LARGE}, {"store_no_memory", KV_MC_COUNT_NO_MEMORY},
	{"auth_cmds", KV_MC_COUNT_AUTHS}, {"auth_errors", KV_MC_COUNT_AUTH_FAILURES},
	{"bytes_read", KV_MC_COUNT_BYTES_IN}, {"bytes_written", KV_MC_COUNT_BYTES_OUT},
	{"total_items", KV_MC_COUNT_SETS},
	{"kvfdw_batches", KV_MC_COUNT_BATCHES},
	{"kvfdw_repeated_batches", KV_MC_COUNT_REPEATED_BATCHES},
	{"kvfdw_parked", KV_MC_COUNT_PARKED}, {"kvfdw_writes", KV_MC_COUNT_WRITES},
	{"kvfdw_merged_writes", KV_MC_COUNT_MERGED_WRITES}, {"kvfdw_wal_flushes", KV_MC_COUNT_FLUSHES},
	{"kvfdw_errors", KV_MC_COUNT_ERRORS}, {"crawler_reclaimed", KV_MC_COUNT_REAPED},
};

/* Counters of memcached that have no meaning here, and are 0: nothing is evicted, for example. */
static const char *const without[] = {
	"response_obj_oom", "read_buf_oom", "get_flushed", "listen_disabled_num",
		"time_in_listen_disabled_us", "conn_yields",
	"hash_power_level", "hash_bytes", "hash_is_expanding",
	"slab_reassign_rescues", "slab_reassign_chunk_rescues", "slab_reassign_evictions_nomem",
	"slab_reassign_inline_reclaim", "slab_reassign_busy_items", "slab_reassign_busy_deletes",
	"slab_reassign_running", "slabs_moved", "slab_global_page_pool",
	"lru_crawler_running", "lru_crawler_starts", "lru_maintainer_juggles",
	"malloc_fails", "log_worker_dropped", "log_worker_written", "log_watcher_skipped",
	"log_watcher_sent",
	"log_watchers", "unexpected_napi_ids", "round_robin_fallback",
	"evictions", "expired_unfetched", "evicted_unfetched", "evicted_active", "reclaimed",
	"crawler_items_checked", "lrutail_reflocked", "moves_to_cold", "moves_to_warm",
	"moves_within_lru",
	"direct_reclaims", "lru_bumps_dropped"
};

static void
tell_general(const KvMcLines *to)
{
	uint64		sums[KV_MC_COUNTERS] = {0};
	uint64		connections = 0;
	KvMcItems	items = {0};
	struct rusage usage;

	kv_mc_publish();
	for (int i = 0; i <= KV_MC_MAX_WORKERS; i++)
	{
		connections += pg_atomic_read_u32(&kv_mc_shared->workers[i].connections);
		for (int j = 0; j < KV_MC_COUNTERS; j++)
			sums[j] += pg_atomic_read_u64(&kv_mc_shared->workers[i].counts[j]);
	}
	kv_stat_stores(MyDatabaseId, add_items, &items);
	getrusage(RUSAGE_SELF, &usage);
	tell_number(to, "pid", MyProcPid);
	tell_number(to, "uptime", (kv_clock() - kv_mc_me->started) / USECS_PER_SEC);
	tell_number(to, "time", time(NULL));
	tell_line(to, "version", kv_mc_version);
	tell_line(to, "kvfdw_version", kvfdw_version);
	tell_number(to, "pointer_size", sizeof(void *) * 8);
	tell_time(to, "rusage_user", &usage.ru_utime);
	tell_time(to, "rusage_system", &usage.ru_stime);
	tell_number(to, "max_connections", kv_mc_max_connections);
	tell_number(to, "curr_connections", connections);
	tell_number(to, "total_connections", sums[KV_MC_COUNT_CONNECTIONS]);
	tell_number(to, "rejected_connections", sums[KV_MC_COUNT_REJECTED]);
	tell_number(to, "connection_structures", connections);
	tell_number(to, "cmd_get", sums[KV_MC_COUNT_GETS]);
	tell_number(to, "cmd_touch", sums[KV_MC_COUNT_TOUCH_HITS] + sums[KV_MC_COUNT_TOUCH_MISSES]);
	for (int i = 0; i < lengthof(named); i++)
		tell_number(to, named[i].name, sums[named[i].count]);
	tell_number(to, "limit_maxbytes", (uint64) kv_mc_memory_kb * 1024 * kv_mc_workers);
	tell_number(to, "accepting_conns", connections < kv_mc_max_connections);
	tell_number(to, "threads", kv_mc_workers);
	tell_number(to, "bytes", items.bytes);
	tell_number(to, "curr_items", items.rows);
	for (int i = 0; i < lengthof(without); i++)
		tell_number(to, without[i], 0);
}

static void
tell_settings(const KvMcLines *to)
{
	tell_number(to, "maxbytes", (uint64) kv_mc_memory_kb * 1024);
	tell_number(to, "maxconns", kv_mc_max_connections);
	tell_number(to, "tcpport", kv_mc_listen[0] != '\0' ? kv_mc_port : 0);
	tell_number(to, "udpport", kv_mc_udp_port);
	tell_line(to, "inter", kv_mc_listen);
	tell_line(to, "evictions", "off");
	tell_line(to, "domain_socket", kv_mc_socket[0] != '\0' ? kv_mc_socket : "NULL");
	tell_number(to, "num_threads", kv_mc_workers);
	tell_number(to, "reqs_per_event", kv_mc_quota);
	tell_line(to, "cas_enabled", "yes");
	tell_line(to, "auth_enabled_sasl", kv_mc_auth == KV_MC_AUTH_PASSWORD ? "yes" : "no");
	tell_number(to, "item_size_max", (uint64) kv_mc_item_size_kb * 1024);
	tell_number(to, "idle_timeout", kv_mc_idle_timeout_s);
	tell_line(to, "flush_enabled", kv_mc_flush_all ? "yes" : "no");
	tell_line(to, "kvfdw_commit", GetConfigOption("kvfdw.memcached_commit", false, false));
	tell_number(to, "kvfdw_lock_timeout", kv_mc_lock_timeout_ms);
}

static bool
is_word(const char *at, size_t length, const char *word)
{
	return length == strlen(word) && memcmp(at, word, length) == 0;
}

static bool
is_argument(const KvMcRequest *request, const char *word)
{
	return is_word(request->key, request->key_length, word);
}

/* Counts by key prefixes are not kept: the answer is empty, whether they are on or off. */
static void
tell_detail(const KvMcRequest *request, KvMcReply *reply, const char **line)
{
	if (is_word(request->value, request->value_length, "on") ||
		is_word(request->value, request->value_length, "off"))
		*line = "OK";
	else if (is_word(request->value, request->value_length, "dump"))
		return;
	else if (request->form == KV_MC_PACKET)
		reply->outcome = KV_MC_MISS;
	else
	{
		reply->outcome = KV_MC_CLIENT_ERROR;
		*line = "usage: stats detail on|off|dump";
	}
}

/* May the role call kvfdw_stat_reset(), whatever the extension's schema? */
static bool
may_reset(Oid role)
{
	Oid			extension = get_extension_oid("kvfdw", true);
	CatCList   *list = SearchSysCacheList1(PROCNAMEARGSNSP, CStringGetDatum("kvfdw_stat_reset"));
	bool		may = false;

	for (int i = 0; i < list->n_members; i++)
	{
		Form_pg_proc proc = (Form_pg_proc) GETSTRUCT(&list->members[i]->tuple);

		if (OidIsValid(extension) &&
			getExtensionOfObject(ProcedureRelationId, proc->oid) == extension)
			may = kv_may_use_schema(proc->pronamespace, role) && kv_may_execute(proc->oid, role);
	}
	ReleaseSysCacheList(list);
	return may;
}

/* Reset the statistics.  Returns NULL, or the error. */
static const char *
reset_stats(Oid role)
{
	const char *volatile error = NULL;

	PG_TRY();
	{
		kv_mc_begin();
		kv_mc_check_role();
		if (!OidIsValid(role) || !may_reset(role))
			error = "42501 permission denied for function kvfdw_stat_reset";
		CommitTransactionCommand();
		MemoryContextSwitchTo(TopMemoryContext);
	}
	PG_CATCH();
	{
		error = kv_mc_roll_back();
	}
	PG_END_TRY();
	if (error != NULL)
		return error;
	kv_mc_reset_counts(GetCurrentTimestamp());
	kv_mc_publish();
	return NULL;
}

void
kv_mc_tell_stats(KvMcConnection *conn, const KvMcRequest *request, KvMcReply *reply)
{
	KvMcLines	to = {conn, request};
	const char *line = NULL;

	memset(reply, 0, sizeof(*reply));
	reply->outcome = KV_MC_DONE;
	if (request->key_length == 0)
		tell_general(&to);
	else if (is_argument(request, "settings"))
		tell_settings(&to);
	else if (is_argument(request, "reset"))
	{
		line = reset_stats(kv_mc_role_of(conn));
		if (line == NULL)
			line = "RESET";
		else
		{
			reply->outcome = KV_MC_ERROR;
			kv_mc_counts[KV_MC_COUNT_ERRORS]++;
		}
	}
	else if (is_argument(request, "detail"))
		tell_detail(request, reply, &line);
	else if (!is_argument(request, "items") && !is_argument(request, "slabs") &&
			 !is_argument(request, "sizes") && !is_argument(request, "conns") &&
			 !is_argument(request, "cachedump"))
		reply->outcome = KV_MC_MISS;
	if (line != NULL)
	{
		reply->value = line;
		reply->length = strlen(line);
	}
}

/* ---- for SQL ---- */

/* Put a process's row; that of the reaper has no number. */
static void
put_row(ReturnSetInfo *rsinfo, KvMcWorkerState *worker, int number)
{
	Datum		values[STAT_COLUMNS];
	bool		nulls[STAT_COLUMNS] = {false};
	int			n = 0;

	nulls[n] = number == KV_MC_MAX_WORKERS;
	values[n++] = Int32GetDatum(number);
	nulls[n] = worker->pid == 0;
	values[n++] = Int32GetDatum(worker->pid);
	values[n++] = Int32GetDatum(pg_atomic_read_u32(&worker->connections));
	values[n++] = Int64GetDatum(pg_atomic_read_u64(&worker->memory));
	for (int j = 0; j < KV_MC_COUNTERS; j++)
		values[n++] = Int64GetDatum(pg_atomic_read_u64(&worker->counts[j]));
	values[n++] = TimestampTzGetDatum(pg_atomic_read_u64(&kv_mc_shared->stats_since));
	Assert(n == STAT_COLUMNS);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

Datum
kvfdw_stat_get_memcached(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;

	kv_engine_require();
	InitMaterializedSRF(fcinfo, 0);
	kv_require_columns(rsinfo->setDesc, STAT_COLUMNS);
	for (int i = 0; i < kv_mc_workers; i++)
		put_row(rsinfo, &kv_mc_shared->workers[i], i);
	if (kv_mc_workers > 0)
		put_row(rsinfo, &kv_mc_shared->workers[KV_MC_MAX_WORKERS], KV_MC_MAX_WORKERS);
	return (Datum) 0;
}

/* A name as a value of the type; NULL, if there is none, is that. */
static void
put_name(const char *name, Datum *value, bool *null)
{
	*null = name == NULL;
	*value = name == NULL ? (Datum) 0 : DirectFunctionCall1(namein, CStringGetDatum(name));
}

Datum
kvfdw_memcached_tables(PG_FUNCTION_ARGS)
{
	static bool initialized = false;
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	KvMcTable **tables;
	int			n;

	kv_engine_require();
	InitMaterializedSRF(fcinfo, 0);
	kv_require_columns(rsinfo->setDesc, TABLE_COLUMNS);
	if (!initialized)
		kv_mc_tables_init();
	initialized = true;
	kv_mc_tables_begin();
	n = kv_mc_tables(&tables);
	for (int i = 0; i < n; i++)
	{
		const char *reason = kv_mc_table_reason(tables[i]);
		Datum		values[TABLE_COLUMNS];
		bool		nulls[TABLE_COLUMNS] = {false};
		int			c = 0;

		values[c++] = ObjectIdGetDatum(tables[i]->relid);
		put_name(get_namespace_name(get_rel_namespace(tables[i]->relid)), &values[c], &nulls[c]);
		c++;
		put_name(get_rel_name(tables[i]->relid), &values[c], &nulls[c]);
		c++;
		values[c++] = CStringGetTextDatum(tables[i]->prefix);
		values[c++] = BoolGetDatum(reason == NULL);
		nulls[c] = reason == NULL;
		values[c++] = reason == NULL ? (Datum) 0 : CStringGetTextDatum(reason);
		Assert(c == TABLE_COLUMNS);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}
