/*
 * analyze.c
 *		ANALYZE: an exact row count and a sample of rows.
 *
 * Two passes over one snapshot.  The first reads all keys, which costs no
 * device read, counts them and keeps a random sample of them; the second reads
 * the values of the sample only.  What they read counts for vacuum_cost_delay as
 * pages of a heap would.
 */
#include "postgres.h"

#include <math.h>

#include "access/htup_details.h"
#include "commands/vacuum.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/sampling.h"
#include "utils/snapmgr.h"

#include "compat.h"
#include "fdw/fdw.h"

#define KEYS_PER_PAGE	(2 * 204)	/* of a run, in BLCKSZ bytes */

/* Read all keys; *total is their number, the result how many were sampled. */
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

/* Read the rows of the sampled keys, which are sorted. */
static int
fetch_rows(Relation relation, KvStore *store, Snapshot snapshot,
		   const KvKey *sample, int nsampled, HeapTuple *rows)
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
	int			nrows = 0;
	uint64		charged = 0;
	KvRow		row;

	kv_scan_points(scan, sample, nsampled);
	while (nrows < nsampled && kv_scan_next(scan, &row))
	{
		kv_analyze_delay_point();
		MemoryContextSwitchTo(row_context);
		kv_tuple_decode(table, &row, true, values, nulls);
		MemoryContextSwitchTo(result_context);
		rows[nrows++] = heap_form_tuple(desc, values, nulls);
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
			qsort(sample, nrows, sizeof(KvKey), kv_key_order);
			nrows = fetch_rows(relation, store, snapshot, sample, nrows, rows);
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
