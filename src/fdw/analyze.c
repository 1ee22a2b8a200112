/*
 * analyze.c
 *		ANALYZE: an exact row count and a sample of rows.  The worker that analyzes changed
 *		tables of one database.
 *
 * ANALYZE has two passes over one snapshot.  The first reads all keys, which costs no device
 * read, counts them and keeps a random sample of them; the second reads the values of the
 * sample only.  Their reads count for vacuum_cost_delay as pages of a heap would.
 *
 * A heap's sample has only the TOAST pointer of a large value.  Here the sample has the value
 * itself, and thousands of them may exceed memory.  ANALYZE uses nothing but the width of a
 * value of more than a kilobyte, so a string is cut to that length in the sample
 * (KV_SAMPLE_WIDTH; cost.c takes that into account).  Values of other types, and values that
 * expressions of extended statistics use, are not cut.  Where they would exceed
 * maintenance_work_mem, the sample has fewer rows.
 *
 * The worker does what an autovacuum worker does, with the same settings.  It runs ANALYZE as
 * the table's owner, in a security-restricted operation (core's analyze_rel sees to that),
 * slowly if autovacuum_vacuum_cost_delay says so, and never waits for a table's lock.  It marks
 * itself as an autovacuum worker, so sessions that wait for one of its locks cancel it, and
 * DROP DATABASE terminates it. engine/statistics.c says when it is started.
 */
#include "postgres.h"

#include <math.h>

#include "access/detoast.h"
#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/partition.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_statistic_ext.h"
#include "commands/dbcommands.h"
#include "commands/vacuum.h"
#include "executor/tuptable.h"
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
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/sampling.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "clock.h"
#include "compat.h"
#include "engine/engine.h"
#include "engine/maintenance.h"
#include "engine/rows.h"
#include "fdw/fdw.h"

/* ---- ANALYZE of a table ---- */

#define KEYS_PER_PAGE	(2 * 204)	/* of a run, in BLCKSZ bytes */

/* Read all keys; *total is their number, the result is the number of sampled keys. */
static int
sample_keys(KvStore *store, Snapshot snapshot, KvKey *sample, int target,
			double *total)
{
	KvScan	   *scan = kv_scan_begin(store, snapshot, false);
	KvKey		everything = {NULL, 0};
	ReservoirStateData reservoir;
	double		to_skip = -1;
	int			nsampled = 0;
	KvRow		row;

	*total = 0;
	reservoir_init_selection_state(&reservoir, target);
	kv_scan_range(scan, everything, everything, KV_ASCENDING, 0);
	while (kv_scan_next(scan, &row))
	{
		kv_analyze_delay_point();

		if (nsampled < target)
			sample[nsampled++] = kv_key_copy(CurrentMemoryContext, row.key, row.keylen);
		else
		{
			/* Vitter's algorithm Z, as acquire_sample_rows has it */
			if (to_skip < 0)
				to_skip = reservoir_get_next_S(&reservoir, *total, target);
			if (to_skip <= 0)
			{
				int			victim = (int)
				(target * sampler_random_fract(&reservoir.randstate));

				pfree(unconstify(uint8 *, sample[victim].data));
				sample[victim] = kv_key_copy(CurrentMemoryContext, row.key, row.keylen);
			}
			to_skip -= 1;
		}
		*total += 1;
		if (VacuumCostActive && (uint64) *total % KEYS_PER_PAGE == 0)
			VacuumCostBalance += VacuumCostPageHit;
	}
	kv_scan_end(scan);
	return nsampled;
}

/* Takes no lock on the table, because other statements lock a parent first. */
static bool
has_extended_statistics(Oid relid)
{
	Relation	statistics = table_open(StatisticExtRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	bool		has;

	ScanKeyInit(&key, Anum_pg_statistic_ext_stxrelid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(relid));
	scan = systable_beginscan(statistics, StatisticExtRelidIndexId, true, NULL, 1, &key);
	has = HeapTupleIsValid(systable_getnext(scan));
	systable_endscan(scan);
	table_close(statistics, AccessShareLock);
	return has;
}

/* May expressions be evaluated on the sample, which may be a part of a parent's sample? */
static bool
has_expressions(Relation relation)
{
	Oid			relid = RelationGetRelid(relation);
	ListCell   *cell;

	if (has_extended_statistics(relid))
		return true;
	if (!relation->rd_rel->relispartition)
		return has_superclass(relid);
	foreach(cell, get_partition_ancestors(relid))
	{
		if (has_extended_statistics(lfirst_oid(cell)))
			return true;
	}
	return false;
}

/* Cut a large string to a length that still shows that it is one. */
static Datum
cut_value(Datum value)
{
	struct varlena *whole = (struct varlena *) DatumGetPointer(value);
	struct varlena *cut;

	/* a row that was copied from a heap may have the value compressed */
	if (toast_raw_datum_size(value) <= VARHDRSZ + KV_SAMPLE_WIDTH)
		return value;
	if (VARATT_IS_EXTENDED(whole) && !VARATT_IS_SHORT(whole))
		return PointerGetDatum(PG_DETOAST_DATUM_SLICE(value, 0, KV_SAMPLE_WIDTH));
	cut = palloc(VARHDRSZ + KV_SAMPLE_WIDTH);
	SET_VARSIZE(cut, VARHDRSZ + KV_SAMPLE_WIDTH);
	memcpy(VARDATA(cut), VARDATA_ANY(whole), KV_SAMPLE_WIDTH);
	return PointerGetDatum(cut);
}

static void
cut_values(TupleDesc desc, Datum *values, const bool *nulls)
{
	for (int i = 0; i < desc->natts; i++)
	{
		if (!nulls[i] && kv_is_cut_in_samples(TupleDescAttr(desc, i)))
			values[i] = cut_value(values[i]);
	}
}

/* Keep so many keys of a sample, chosen at random, in their order. */
static int
thin_out(KvKey *sample, int nsampled, int target)
{
	int			n = 0;

	for (int i = 0; i < nsampled; i++)
	{
		if (pg_prng_uint64_range(&pg_global_prng_state, 0, nsampled - i - 1) <
			(uint64) (target - n))
			sample[n++] = sample[i];
	}
	return n;
}

/* Is each value of a row cut, or short by its type? */
static bool
is_row_bounded(const KvTable *table)
{
	for (int i = 0; i < table->tupdesc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(table->tupdesc, i);

		if (!att->attisdropped && att->attlen < 0 && table->keyindex[i] < 0 &&
			!kv_is_cut_in_samples(att))
			return false;
	}
	return true;
}

/* How many of so many rows may be in memory at once?  At least one. */
static int
rows_that_fit(KvStore *store, const KvTable *table, bool cut, int nrows)
{
	double		width = kv_store_value_width(store);
	double		most = maintenance_work_mem * 1024.0;

	if ((cut && is_row_bounded(table)) || width * nrows <= most)
		return nrows;
	return Max((int) (most / width), 1);
}

/*
 * Keep each row with a chance of one half, at least one row.  Returns how many; *bytes: their
 * size.
 */
static int
halve(HeapTuple *rows, int nrows, Size *bytes)
{
	int			n = 0;

	*bytes = 0;
	for (int i = 0; i < nrows; i++)
	{
		if (pg_prng_bool(&pg_global_prng_state) || (n == 0 && i == nrows - 1))
		{
			*bytes += rows[i]->t_len;
			rows[n++] = rows[i];
		}
		else
			heap_freetuple(rows[i]);
	}
	return n;
}

/*
 * Read the rows of the sampled keys, which are sorted.  Values may be larger than the mean, or
 * than they are stored.  If they exceed memory, each row, and each later one, is kept with a
 * chance of one half.
 */
static int
fetch_rows(Relation relation, KvStore *store, Snapshot snapshot,
		   const KvKey *sample, int nsampled, bool cut, HeapTuple *rows)
{
	TupleDesc	desc = RelationGetDescr(relation);
	const KvTable *table = kv_table_get(relation);
	KvScan	   *scan = kv_scan_begin(store, snapshot, true);
	Datum	   *values = palloc(sizeof(Datum) * Max(desc->natts, 1));
	bool	   *nulls = palloc(sizeof(bool) * Max(desc->natts, 1));
	MemoryContext result_context = CurrentMemoryContext;
	MemoryContext row_context = AllocSetContextCreate(CurrentMemoryContext,
													  "kvfdw analyze row",
													  ALLOCSET_DEFAULT_SIZES);
	Size		most = maintenance_work_mem * (Size) 1024;
	Size		bytes = 0;
	int			halved = 0;
	int			nrows = 0;
	uint64		charged = 0;
	KvRow		row;

	kv_scan_points(scan, sample, nsampled);
	while (nrows < nsampled && kv_scan_next(scan, &row))
	{
		kv_analyze_delay_point();
		if (halved > 0 && pg_prng_uint64_range(&pg_global_prng_state, 0,
											   (UINT64CONST(1) << halved) - 1) != 0)
			continue;
		MemoryContextSwitchTo(row_context);
		kv_tuple_decode(table, &row, true, values, nulls);
		if (cut)
			cut_values(desc, values, nulls);
		MemoryContextSwitchTo(result_context);
		rows[nrows] = heap_form_tuple(desc, values, nulls);
		bytes += rows[nrows++]->t_len;
		for (; bytes > most && nrows > 1; halved = Min(halved + 1, 62))
			nrows = halve(rows, nrows, &bytes);
		if (VacuumCostActive)
		{
			uint64		pages = kv_scan_stats(scan)->device_bytes / BLCKSZ;

			VacuumCostBalance += (pages - charged) * VacuumCostPageMiss;
			charged = pages;
		}
		MemoryContextReset(row_context);
	}
	kv_scan_end(scan);
	MemoryContextDelete(row_context);
	return nrows;
}

/* AcquireSampleRowsFunc: the rows come in key order, which is "physical" here. */
static int
acquire_sample_rows(Relation relation, int elevel, HeapTuple *rows, int targrows,
					double *totalrows, double *totaldeadrows)
{
	KvStore    *store = kv_table_store(relation, false);
	Snapshot	snapshot;
	KvKey	   *sample;
	int			nrows = 0;
	uint64		changes;

	*totalrows = 0;
	*totaldeadrows = 0;

	if (store != NULL && targrows > 0)
	{
		changes = kv_changes_now(store);
		snapshot = RegisterSnapshot(GetLatestSnapshot());
		sample = palloc(sizeof(KvKey) * targrows);
		nrows = sample_keys(store, snapshot, sample, targrows, totalrows);
		if (nrows > 0)
		{
			bool		cut = !has_expressions(relation);
			int			fit = rows_that_fit(store, kv_table_get(relation), cut, nrows);

			qsort(sample, nrows, sizeof(KvKey), kv_key_order);
			if (fit < nrows)
				nrows = thin_out(sample, nrows, fit);
			nrows = fetch_rows(relation, store, snapshot, sample, nrows, cut, rows);
		}
		UnregisterSnapshot(snapshot);
		kv_changes_analyzed(store, changes);
	}

	ereport(elevel,
			(errmsg("\"%s\": table contains %.0f rows; %d rows in sample",
					RelationGetRelationName(relation), *totalrows, nrows)));
	return nrows;
}

bool
kv_analyze_foreign_table(Relation relation, AcquireSampleRowsFunc *func,
						 BlockNumber *totalpages)
{
	KvStore    *store;

	kv_engine_require();
	store = kv_table_store(relation, false);
	*func = acquire_sample_rows;
	*totalpages = store == NULL ? 1 :
		(BlockNumber) Min(MaxBlockNumber, 1 + kv_store_size(store) / BLCKSZ);
	return true;
}

/* ---- the worker ---- */

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
