/*
 * function.c
 *		The SQL functions for inspection and maintenance: statistics, size, check, flush,
 *		compact, prewarm.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/table.h"
#include "catalog/pg_class.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/pg_lsn.h"
#include "utils/rel.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "admission/admission.h"
#include "compat.h"
#include "engine/engine.h"
#include "engine/maintenance.h"
#include "engine/rows.h"
#include "memcached/memcached.h"
#include "report.h"
#include "table/table.h"

PG_FUNCTION_INFO_V1(kvfdw_stat_get_tables);
PG_FUNCTION_INFO_V1(kvfdw_stat_get_io);
PG_FUNCTION_INFO_V1(kvfdw_stat_get_checkpointer);
PG_FUNCTION_INFO_V1(kvfdw_stat_get_range_cache);
PG_FUNCTION_INFO_V1(kvfdw_io_method);
PG_FUNCTION_INFO_V1(kvfdw_stat_reset);
PG_FUNCTION_INFO_V1(kvfdw_relation_size);
PG_FUNCTION_INFO_V1(kvfdw_check);
PG_FUNCTION_INFO_V1(kvfdw_flush);
PG_FUNCTION_INFO_V1(kvfdw_compact);
PG_FUNCTION_INFO_V1(kvfdw_prewarm);
PG_FUNCTION_INFO_V1(kvfdw_split);
PG_FUNCTION_INFO_V1(kvfdw_cut);
PG_FUNCTION_INFO_V1(kvfdw_stat_get_shards);
PG_FUNCTION_INFO_V1(kvfdw_stat_get_progress);
PG_FUNCTION_INFO_V1(kvfdw_stat_get_cache);

#define KV_STAT_COLUMNS 44
#define KV_PROGRESS_COLUMNS 10
#define KV_SHARD_COLUMNS	10
#define KV_IO_COLUMNS	5
#define KV_CHECKPOINTER_COLUMNS	8
#define KV_RANGE_CACHE_COLUMNS	12
#define KV_CACHE_COLUMNS	19

KV_NORETURN static void
raise_undefined(Oid relid)
{
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_TABLE),
			 errmsg("relation with OID %u does not exist", relid)));
}

/*
 * Open one of our tables, or ERROR: 42P01, 42809, 42501.  A relation is locked only if it is
 * ours, and the user's if must_own.
 */
static Relation
open_our_table(Oid relid, bool must_own, LOCKMODE lock)
{
	char	   *name = get_rel_name(relid);
	Relation	rel;

	if (name == NULL)
		raise_undefined(relid);
	if (!kv_is_foreign_table(relid))
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" is not a kvfdw table", name)));
	kv_engine_require();
	if (must_own && !kv_owns_relation(relid))
		aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_FOREIGN_TABLE, name);

	/* dropped concurrently, or even another relation's with the same OID? */
	rel = try_relation_open(relid, lock);
	if (rel == NULL || !kv_is_foreign_table(relid))
		raise_undefined(relid);
	return rel;
}

/* Begin a function that returns rows with so many columns. */
static void
begin_rows(FunctionCallInfo fcinfo, int ncolumns)
{
	kv_engine_require();
	InitMaterializedSRF(fcinfo, 0);
	kv_require_columns(((ReturnSetInfo *) fcinfo->resultinfo)->setDesc, ncolumns);
}

/* The last column of each view that counts. */
static Datum
stats_reset(void)
{
	return TimestampTzGetDatum(kv_stats_since());
}

static Datum
milliseconds(uint64 us)
{
	return Float8GetDatum((double) us / 1000.0);
}

static void
add_table_row(void *arg, const KvStoreStats *stats)
{
	ReturnSetInfo *rsinfo = arg;
	Datum		values[KV_STAT_COLUMNS];
	bool		nulls[KV_STAT_COLUMNS] = {0};
	int			n = 0;

	values[n++] = ObjectIdGetDatum(stats->relid);
	values[n++] = Int64GetDatum(stats->generation);
	values[n++] = Int32GetDatum(stats->shards);
	values[n++] = Int64GetDatum(stats->rows);
	for (int i = KV_COUNT_INSERTS; i < KV_COUNT_RECOVERY_US; i++)
		values[n++] = Int64GetDatum(stats->counts[i]);
	values[n++] = milliseconds(stats->counts[KV_COUNT_RECOVERY_US]);
	values[n++] = Int64GetDatum(stats->memtable_bytes);
	values[n++] = Int64GetDatum(stats->runs);
	values[n++] = CStringGetTextDatum(kv_wal_level_names[stats->wal]);
	values[n++] = BoolGetDatum(!stats->unusable);
	values[n++] = Int64GetDatum(stats->counts[KV_COUNT_LOST_ENTRIES]);
	values[n++] = Int64GetDatum(stats->counts[KV_COUNT_LOST_LOG_BYTES]);
	values[n++] = Int64GetDatum(stats->value_files);
	values[n++] = Int64GetDatum(stats->value_file_bytes);
	values[n++] = Int64GetDatum(stats->live_bytes);
	values[n++] = Int64GetDatum(stats->obsolete_value_files);
	values[n++] = Int64GetDatum(stats->obsolete_bytes);
	if (stats->obsolete_waits_for != NULL)
		values[n++] = CStringGetTextDatum(stats->obsolete_waits_for);
	else
		nulls[n++] = true;
	values[n++] = Int64GetDatum(stats->counts[KV_COUNT_MOVED_READS]);
	values[n++] = Int64GetDatum(stats->counts[KV_COUNT_COMPACTIONS]);
	values[n++] = Int64GetDatum(stats->counts[KV_COUNT_MOVED_BYTES]);
	values[n++] = Int64GetDatum(stats->unsorted_bytes);
	values[n++] = Int64GetDatum(stats->counts[KV_COUNT_SPACE_WAITS]);
	nulls[n] = stats->space_bound == PG_UINT64_MAX || stats->unusable;
	values[n++] = Int64GetDatum(stats->space_bound);
	nulls[n] = stats->space_waits_for == NULL;
	if (stats->space_waits_for != NULL)
		values[n] = CStringGetTextDatum(stats->space_waits_for);
	n++;
	values[n++] = Int64GetDatum(stats->counts[KV_COUNT_RECENT_HITS]);
	values[n++] = Int64GetDatum(stats->counts[KV_COUNT_TIER_HITS]);
	values[n++] = Int64GetDatum(stats->counts[KV_COUNT_SPLITS]);
	values[n++] = stats_reset();
	Assert(n == KV_STAT_COLUMNS);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

Datum
kvfdw_stat_get_tables(PG_FUNCTION_ARGS)
{
	begin_rows(fcinfo, KV_STAT_COLUMNS);
	kv_stat_stores(MyDatabaseId, add_table_row, fcinfo->resultinfo);
	return (Datum) 0;
}

Datum
kvfdw_stat_get_io(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	KvIoStats	kinds[32];
	int			n;

	begin_rows(fcinfo, KV_IO_COLUMNS);
	n = kv_stat_io(kinds, lengthof(kinds));
	for (int i = 0; i < n; i++)
	{
		Datum		values[KV_IO_COLUMNS];
		bool		nulls[KV_IO_COLUMNS] = {0};

		values[0] = CStringGetTextDatum(kinds[i].kind);
		values[1] = Int64GetDatum(kinds[i].calls);
		values[2] = Int64GetDatum(kinds[i].bytes);
		values[3] = Int64GetDatum(kinds[i].errors);
		values[4] = stats_reset();
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}

/* Make the row that such a function returns. */
static Datum
row_of(FunctionCallInfo fcinfo, Datum *values, bool *nulls, int ncolumns)
{
	TupleDesc	desc;

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	kv_require_columns(desc, ncolumns);
	return HeapTupleGetDatum(heap_form_tuple(desc, values, nulls));
}

Datum
kvfdw_stat_get_checkpointer(PG_FUNCTION_ARGS)
{
	KvCheckpointerStats stats;
	Datum		values[KV_CHECKPOINTER_COLUMNS];
	bool		nulls[KV_CHECKPOINTER_COLUMNS] = {0};
	int			n = 0;

	kv_engine_require();
	kv_stat_checkpointer(&stats);
	values[n++] = Int64GetDatum(stats.checkpoints);
	nulls[n] = nulls[n + 1] = nulls[n + 2] = stats.ended == 0;
	values[n++] = LSNGetDatum(stats.lsn);
	values[n++] = TimestampTzGetDatum(stats.ended);
	values[n++] = milliseconds(stats.duration_us);
	values[n++] = Int64GetDatum(stats.shards);
	values[n++] = Int64GetDatum(stats.files);
	values[n++] = Int64GetDatum(stats.bytes);
	values[n++] = stats_reset();
	Assert(n == lengthof(values));
	PG_RETURN_DATUM(row_of(fcinfo, values, nulls, lengthof(values)));
}

Datum
kvfdw_stat_get_range_cache(PG_FUNCTION_ARGS)
{
	KvWindowStats stats;
	Datum		values[KV_RANGE_CACHE_COLUMNS];
	bool		nulls[KV_RANGE_CACHE_COLUMNS] = {0};
	int			n = 0;

	kv_engine_require();
	kv_stat_windows(&stats);
	values[n++] = Int64GetDatum(stats.windows);
	values[n++] = Int64GetDatum(stats.window_size);
	values[n++] = Int64GetDatum(stats.used);
	values[n++] = Int64GetDatum(stats.scans);
	values[n++] = Int64GetDatum(stats.hits);
	values[n++] = Int64GetDatum(stats.loads);
	values[n++] = Int64GetDatum(stats.shared);
	values[n++] = Int64GetDatum(stats.waits);
	values[n++] = Int64GetDatum(stats.reads);
	values[n++] = Int64GetDatum(stats.read_bytes);
	values[n++] = Int64GetDatum(stats.evictions);
	values[n++] = stats_reset();
	Assert(n == lengthof(values));
	PG_RETURN_DATUM(row_of(fcinfo, values, nulls, lengthof(values)));
}

Datum
kvfdw_io_method(PG_FUNCTION_ARGS)
{
	kv_engine_require();
	PG_RETURN_TEXT_P(cstring_to_text(kv_stat_io_method()));
}

Datum
kvfdw_stat_reset(PG_FUNCTION_ARGS)
{
	TimestampTz now = GetCurrentTimestamp();

	kv_engine_require();
	kv_stat_reset();
	kv_admission_stat_reset(now);
	kv_memcached_stat_reset(now);
	PG_RETURN_VOID();
}

Datum
kvfdw_relation_size(PG_FUNCTION_ARGS)
{
	Relation	rel = open_our_table(PG_GETARG_OID(0), false, AccessShareLock);
	KvStore    *store = kv_table_store(rel, false);
	uint64		size = store ? kv_store_size(store) : 0;

	relation_close(rel, AccessShareLock);
	PG_RETURN_INT64(size);
}

static void
add_problem(void *arg, const char *file, int64 offset, const char *problem)
{
	ReturnSetInfo *rsinfo = arg;
	Datum		values[3];
	bool		nulls[3] = {0};

	values[0] = CStringGetTextDatum(file);
	values[1] = Int64GetDatum(offset);
	values[2] = CStringGetTextDatum(problem);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

Datum
kvfdw_check(PG_FUNCTION_ARGS)
{
	Relation	rel;
	KvStore    *store;

	InitMaterializedSRF(fcinfo, 0);
	rel = open_our_table(PG_GETARG_OID(0), true, AccessShareLock);
	store = kv_table_store(rel, false);
	if (store)
		kv_store_check(store, add_problem, fcinfo->resultinfo);
	relation_close(rel, AccessShareLock);
	return (Datum) 0;
}

Datum
kvfdw_flush(PG_FUNCTION_ARGS)
{
	Relation	rel;
	KvStore    *store;

	PreventCommandDuringRecovery("kvfdw_flush()");
	rel = open_our_table(PG_GETARG_OID(0), true, AccessShareLock);
	store = kv_table_store(rel, false);
	if (store)
		kv_store_flush(store);
	relation_close(rel, AccessShareLock);
	PG_RETURN_VOID();
}

Datum
kvfdw_prewarm(PG_FUNCTION_ARGS)
{
	Relation	rel = open_our_table(PG_GETARG_OID(0), true, AccessShareLock);
	KvStore    *store = kv_table_store(rel, false);
	uint64		bytes = store ? kv_store_prewarm(store) : 0;

	relation_close(rel, AccessShareLock);
	PG_RETURN_INT64(bytes);
}

Datum
kvfdw_compact(PG_FUNCTION_ARGS)
{
	Relation	rel;
	KvStore    *store;
	TupleDesc	desc;
	KvCompacted done = {0};
	Datum		values[3];
	bool		nulls[3] = {0};

	PreventCommandDuringRecovery("kvfdw_compact()");
	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	rel = open_our_table(PG_GETARG_OID(0), true, RowExclusiveLock);
	store = kv_table_store(rel, false);
	if (store)
		(void) kv_table_store(rel, true);	/* which moves to the table's tablespace */
	if (store)
		kv_store_compact(store, PG_GETARG_BOOL(1), &done);

	relation_close(rel, RowExclusiveLock);
	values[0] = Int64GetDatum(done.moved_bytes);
	values[1] = Int64GetDatum(done.freed_bytes);
	nulls[2] = done.waiting_for == NULL;
	if (done.waiting_for != NULL)
		values[2] = CStringGetTextDatum(done.waiting_for);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(desc, values, nulls)));
}

static int
split_table(Oid relid, bool at_end)
{
	Relation	rel = open_our_table(relid, true, RowExclusiveLock);
	KvStore    *store = kv_table_store(rel, false);
	int			n = store ? kv_store_split(store, at_end) : 0;

	relation_close(rel, RowExclusiveLock);
	return n;
}

Datum
kvfdw_split(PG_FUNCTION_ARGS)
{
	PreventCommandDuringRecovery("kvfdw_split()");
	PG_RETURN_INT32(split_table(PG_GETARG_OID(0), false));
}

Datum
kvfdw_cut(PG_FUNCTION_ARGS)
{
	PreventCommandDuringRecovery("kvfdw_cut()");
	PG_RETURN_INT32(split_table(PG_GETARG_OID(0), true));
}

static void
add_shard_row(void *arg, const KvShardStats *stats)
{
	ReturnSetInfo *rsinfo = arg;
	Datum		values[KV_SHARD_COLUMNS];
	bool		nulls[KV_SHARD_COLUMNS] = {0};
	int			n = 0;

	values[n++] = ObjectIdGetDatum(stats->relid);
	values[n++] = Int64GetDatum(stats->generation);
	values[n++] = Int32GetDatum(stats->shard);
	values[n++] = Int32GetDatum(stats->position);
	values[n++] = Int64GetDatum(stats->entries);
	values[n++] = Int64GetDatum(stats->value_file_bytes);
	values[n++] = Int64GetDatum(stats->live_bytes);
	values[n++] = Int64GetDatum(stats->unsorted_bytes);
	values[n++] = Int64GetDatum(stats->memtable_bytes);
	values[n++] = Int64GetDatum(stats->runs);
	Assert(n == KV_SHARD_COLUMNS);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

Datum
kvfdw_stat_get_shards(PG_FUNCTION_ARGS)
{
	begin_rows(fcinfo, KV_SHARD_COLUMNS);
	kv_stat_shards(MyDatabaseId, add_shard_row, fcinfo->resultinfo);
	return (Datum) 0;
}

static void
add_progress_row(void *arg, int pid, const KvProgress *progress)
{
	ReturnSetInfo *rsinfo = arg;
	Datum		values[KV_PROGRESS_COLUMNS];
	bool		nulls[KV_PROGRESS_COLUMNS] = {0};
	int			n = 0;

	values[n++] = Int32GetDatum(pid);
	values[n++] = ObjectIdGetDatum(progress->dboid);
	values[n++] = ObjectIdGetDatum(progress->relid);
	values[n++] = CStringGetTextDatum(kv_progress_command_name(progress->command));
	if (progress->phase != NULL)
		values[n++] = CStringGetTextDatum(progress->phase);
	else
		nulls[n++] = true;
	nulls[n] = progress->shard < 0;
	values[n++] = Int32GetDatum(progress->shard);
	values[n++] = CStringGetTextDatum(kv_progress_unit(progress->command));
	values[n++] = Int64GetDatum(progress->done);
	nulls[n] = progress->total == 0;
	values[n++] = Int64GetDatum(progress->total);
	values[n++] = TimestampTzGetDatum(progress->started);
	Assert(n == KV_PROGRESS_COLUMNS);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

Datum
kvfdw_stat_get_progress(PG_FUNCTION_ARGS)
{
	begin_rows(fcinfo, KV_PROGRESS_COLUMNS);
	kv_progress_visit(add_progress_row, fcinfo->resultinfo);
	return (Datum) 0;
}

static void
add_cache_row(void *arg, const KvCacheStats *stats)
{
	ReturnSetInfo *rsinfo = arg;
	const uint64 counts[] = {stats->hits, stats->block_size, stats->inserted, stats->evictions,
		stats->dropped, stats->errors, stats->size_bytes, stats->used_bytes};
	Datum		values[KV_CACHE_COLUMNS];
	bool		nulls[KV_CACHE_COLUMNS] = {0};
	int			n = 0;

	values[n++] = CStringGetTextDatum(stats->cache);
	values[n++] = BoolGetDatum(stats->enabled);
	for (int i = 0; i < lengthof(counts); i++)
	{
		nulls[n] = counts[i] == KV_NO_COUNT;
		values[n++] = Int64GetDatum(counts[i]);
	}
	for (int why = KV_MISS_NONE + 1; why < KV_MISSES; why++)
	{
		nulls[n] = stats->misses[why] == KV_NO_COUNT;
		values[n++] = Int64GetDatum(stats->misses[why]);
	}
	values[n++] = stats_reset();
	Assert(n == KV_CACHE_COLUMNS);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

Datum
kvfdw_stat_get_cache(PG_FUNCTION_ARGS)
{
	begin_rows(fcinfo, KV_CACHE_COLUMNS);
	kv_stat_caches(add_cache_row, fcinfo->resultinfo);
	return (Datum) 0;
}
