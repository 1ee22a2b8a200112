/*
 * scan.c
 *		Execution of scans: points, ranges and whole tables, in key order unless the query does
 *		not need an order.
 *
 * A scan evaluates its key conditions at its first row and after each rescan (keyrange.c), then
 * positions one KvScan after another on the resulting batches of keys or ranges.  No lock of
 * the engine is held between two calls (I 7).
 *
 * Locking.  Rows are locked as late as on heap: by UPDATE and DELETE (modify.c), or by
 * LockRows, which names the row by its ctid (syscolumn.c) and gets it from RefetchForeignRow
 * here.  The scan locks only rows that row triggers will see: it evaluates the node's own quals
 * on the version that the snapshot sees, and all conditions again on the newest version if that
 * is another one.
 *
 * SERIALIZABLE.  A predicate lock is taken before anything is read: a page lock on a hash of
 * the key for a point, a lock of the whole table for anything else.  modify.c checks the keys
 * that it writes against these locks.  The writers whose versions a batch met and did not see
 * are checked here.
 *
 * Parallel scans.  The leader cuts the key space into pieces of about the same number of rows.
 * Each process evaluates the key conditions for itself, takes the next free piece, reads the
 * intersection of its key ranges and the piece, and takes another.  The pieces cover all keys
 * and do not overlap, whatever flushes and writers do during the scan, so every row is read by
 * exactly one process.
 *
 * Pieces are taken in the scan's direction, so each process returns its rows in key order,
 * forward or backward, and Gather Merge merges them.  While Gather Merge takes the rows of one
 * piece, the process that reads a later one proceeds only until its tuple queue (64 kB) is
 * full.  Ordered plans gain where filters, joins or groups below Gather Merge leave few rows.
 *
 * A worker needs only shared memory, which also has the leader's uncommitted writes, and its
 * snapshot is the leader's.
 */
#include "postgres.h"

#include "access/parallel.h"
#include "access/xact.h"
#include "executor/executor.h"
#include "executor/instrument.h"
#include "miscadmin.h"
#include "storage/predicate.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "compat.h"
#include "engine/engine.h"
#include "engine/rows.h"
#include "fdw/fdw.h"

/* Keys that the engine gets at once: bounds memory, and is enough for its deepest queue. */
#define KV_POINT_BATCH		1024

/* ---- parallel scans ---- */

struct KvParallelScan
{
	pg_atomic_uint32 next;		/* counts taken pieces, and refusals */
	uint32		npieces;
	bool		backward;		/* pieces are taken from the last one on */
	KvCut		splits[FLEXIBLE_ARRAY_MEMBER];	/* between pieces: npieces - 1 */
};

/* More pieces than processes, so that all processes finish at about the same time. */
#define KV_MAX_PIECES		512

static Size
kv_estimate_dsm(ForeignScanState *node, ParallelContext *pcxt)
{
	return offsetof(KvParallelScan, splits) + (KV_MAX_PIECES - 1) * sizeof(KvCut);
}

static void
kv_initialize_dsm(ForeignScanState *node, ParallelContext *pcxt, void *coordinate)
{
	ForeignScan *plan = (ForeignScan *) node->ss.ps.plan;
	KvScanState *state = node->fdw_state;
	KvParallelScan *parallel = coordinate;
	KvStore    *store = kv_table_store(state->rel, false);

	pg_atomic_init_u32(&parallel->next, 0);
	parallel->backward = boolVal(list_nth(plan->fdw_private, KvScanPrivateBackward));
	parallel->npieces = 1 +
		(store ? kv_store_cuts(store, parallel->splits, KV_MAX_PIECES - 1) : 0);
	state->parallel = parallel;
}

static void
kv_reinitialize_dsm(ForeignScanState *node, ParallelContext *pcxt, void *coordinate)
{
	KvParallelScan *parallel = coordinate;

	pg_atomic_write_u32(&parallel->next, 0);
}

static void
kv_initialize_worker(ForeignScanState *node, shm_toc *toc, void *coordinate)
{
	KvScanState *state = node->fdw_state;

	state->parallel = coordinate;
}

/* Take the next piece, in the order of the scan, for this process alone; false: none is left. */
static bool
take_piece(KvParallelScan *parallel, uint32 *piece)
{
	uint32		taken = pg_atomic_fetch_add_u32(&parallel->next, 1);

	*piece = parallel->backward ? parallel->npieces - 1 - taken : taken;
	return taken < parallel->npieces;
}

static KvKey
split_key(const KvCut *split)
{
	KvKey		key = {split->bytes, split->len};

	return key;
}

/*
 * Cut a range down to its intersection with a piece; false: it is empty.  The bounds may then
 * point into the shared memory.
 */
static bool
clip_to_piece(const KvParallelScan *parallel, uint32 piece, KvKey *lo, KvKey *hi)
{
	if (piece > 0)
	{
		KvKey		low = split_key(&parallel->splits[piece - 1]);

		if (lo->data == NULL || kv_key_compare(lo->data, lo->len, low.data, low.len) < 0)
			*lo = low;
	}
	if (piece + 1 < parallel->npieces)
	{
		KvKey		high = split_key(&parallel->splits[piece]);

		if (hi->data == NULL || kv_key_compare(hi->data, hi->len, high.data, high.len) > 0)
			*hi = high;
	}
	return lo->data == NULL || hi->data == NULL ||
		kv_key_compare(lo->data, lo->len, hi->data, hi->len) < 0;
}

/*
 * Any scan may run in a worker, because it needs nothing that only the leader has.  The
 * exception is a leader that rewrites the table.  Scans that lock or modify rows are never
 * parallel.
 */
static bool
kv_is_parallel_safe(PlannerInfo *root, RelOptInfo *rel, RangeTblEntry *rte)
{
	return rte->relid != kv_renewed.relid;
}

/* ---- the scan ---- */

/*
 * Are the rows of one relation, or of its partitions, all that the query locks?  Then
 * EvalPlanQual looks at a row of this relation only if that row has changed.
 */
static bool
locks_one_relation(EState *estate, const ExecRowMark *mark)
{
	for (Index i = 0; i < estate->es_range_table_size; i++)
	{
		const ExecRowMark *other = estate->es_rowmarks[i];

		if (other != NULL && other->prti != mark->prti &&
			RowMarkRequiresRowShareLock(other->markType))
			return false;
	}
	return true;
}

/*
 * How will the rows be locked?  EvalPlanQual tests rows that are locked
 * already when it runs the plan again.
 */
static void
decide_locking(ForeignScanState *node, KvScanState *state, int scan_mode)
{
	EState	   *estate = node->ss.ps.state;
	ExecRowMark *mark = ExecFindRowMark(estate, ((Scan *) node->ss.ps.plan)->scanrelid,
										true);

	if (mark != NULL && RowMarkRequiresRowShareLock(mark->markType))
	{
		KvScanState *first = mark->ermExtra;

		if (first == NULL)
			mark->ermExtra = state;
		state->names = first != NULL ? first->names : kv_names_create();
		state->locks_alone = locks_one_relation(estate, mark);
	}

	state->lock_mode = estate->es_epq_active == NULL ? scan_mode : -1;

	/*
	 * The quals decide what is locked, so they are evaluated here and not by
	 * ExecScan: twice would be wrong for volatile ones.
	 */
	if (state->lock_mode >= 0)
	{
		state->qual = node->ss.ps.qual;
		node->ss.ps.qual = NULL;
	}
}

/* The order of a scan; a whole table may be read in any order, as heap is. */
static KvScanOrder
scan_order(const ForeignScan *plan, KvAccess access)
{
	if (boolVal(list_nth(plan->fdw_private, KvScanPrivateBackward)))
		return KV_DESCENDING;
	if (boolVal(list_nth(plan->fdw_private, KvScanPrivateByAddress)))
		return KV_BY_ADDRESS;
	if (access == KV_ACCESS_FULL && !plan->scan.plan.parallel_aware &&
		!boolVal(list_nth(plan->fdw_private, KvScanPrivateOrdered)))
		return KV_ANY_ORDER;
	return KV_ASCENDING;
}

/* Find how many rows the query is likely to take, from the plan or by preparing expressions. */
static void
prepare_limit(ForeignScanState *node, KvScanState *state, const ForeignScan *plan)
{
	int			hint = intVal(list_nth(plan->fdw_private, KvScanPrivateLimit));

	if (hint >= 0)
		state->limit_hint = hint;
	else
		state->limit = ExecInitExprList(list_copy_tail(plan->fdw_exprs,
													   list_length(plan->fdw_exprs) - 2),
										&node->ss.ps);
}

void
kv_begin_foreign_scan(ForeignScanState *node, int eflags)
{
	ForeignScan *plan = (ForeignScan *) node->ss.ps.plan;
	KvScanState *state;
	MemoryContext context;
	MemoryContext old;

	if (eflags & EXEC_FLAG_EXPLAIN_ONLY)
		return;

	kv_engine_require();
	if (KV_PLAN_COUNTS(plan))
	{
		kv_begin_count(node, eflags);
		return;
	}

	kv_ddl_require_followed(node->ss.ss_currentRelation);
	context = AllocSetContextCreate(node->ss.ps.state->es_query_cxt,
									"kvfdw scan", ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(context);
	state = palloc0(sizeof(KvScanState));
	state->context = context;
	state->rel = node->ss.ss_currentRelation;
	state->table = kv_table_get(state->rel);
	state->access = (KvAccess) intVal(list_nth(plan->fdw_private, KvScanPrivateAccess));
	state->order = scan_order(plan, state->access);
	state->want_values = boolVal(list_nth(plan->fdw_private, KvScanPrivateValues));
	prepare_limit(node, state, plan);
	state->operation = (CmdType) intVal(list_nth(plan->fdw_private, KvScanPrivateOperation));
	state->ranges = kv_ranges_create(state->table, plan, &node->ss.ps,
									 state->access == KV_ACCESS_POINT);
	decide_locking(node, state, intVal(list_nth(plan->fdw_private, KvScanPrivateLock)));
	MemoryContextSwitchTo(old);

	node->fdw_state = state;
}

/* Evaluate the key conditions; false if no key can satisfy them. */
static bool
start_ranges(ForeignScanState *node, KvScanState *state)
{
	/* most scans are never rescanned: the keys of the first scan are allocated with the scan */
	if (state->range_context == NULL)
		state->range_context = state->context;
	else if (state->range_context == state->context)
		state->range_context = AllocSetContextCreate(state->context, "kvfdw scan keys",
													 ALLOCSET_SMALL_SIZES);
	else
		MemoryContextReset(state->range_context);
	return kv_ranges_start(state->ranges, node->ss.ps.ps_ExprContext,
						   state->range_context,
						   state->order == KV_DESCENDING);
}

/* Without a LIMIT, or with one that its own node will refuse, the hint stays 0. */
static void
evaluate_limit(ForeignScanState *node, KvScanState *state)
{
	int64		rows[2];

	for (int i = 0; i < lengthof(rows); i++)
	{
		bool		isnull;
		Datum		datum = ExecEvalExprSwitchContext(list_nth(state->limit, i),
													  node->ss.ps.ps_ExprContext, &isnull);

		if (isnull && i == 0)
			return;
		rows[i] = isnull ? 0 : DatumGetInt64(datum);
		if (rows[i] < 0)
			return;
	}
	state->limit_hint = Min((uint64) rows[0] + (uint64) rows[1], INT_MAX);
}

/*
 * First row of a (re)scan: determine what to read.  A store that does not exist yet has no row
 * that the snapshot could see.
 */
static void
start_scan(ForeignScanState *node, KvScanState *state)
{
	state->started = true;
	state->positioned = false;
	state->finished = true;

	if (state->scan == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(state->context);

		state->store = kv_table_read(state->rel, node->ss.ps.state->es_snapshot);
		if (state->store != NULL)
			state->scan = kv_scan_begin(state->store,
										node->ss.ps.state->es_snapshot,
										state->want_values);
		MemoryContextSwitchTo(old);
		if (state->scan != NULL && node->ss.ps.instrument != NULL)
			kv_scan_note_shards(state->scan);
		if (state->scan != NULL && node->ss.ps.instrument != NULL &&
			kv_counts_buffers(node->ss.ps.instrument))
			kv_scan_explain_misses(state->scan);
		if (state->scan == NULL)
		{
			/* the absence of rows has been read, too */
			PredicateLockRelation(state->rel, node->ss.ps.state->es_snapshot);
			return;
		}
	}

	if (state->limit != NIL)
		evaluate_limit(node, state);
	state->finished = !start_ranges(node, state) ||
		(state->parallel != NULL && !take_piece(state->parallel, &state->piece));
	if (state->finished)
		kv_scan_leave(state->scan); /* the scan before may have been left in the middle */
}

/*
 * The next range to read; in a parallel scan, the intersection of the ranges with one piece
 * after another.
 */
static bool
next_range(ForeignScanState *node, KvScanState *state, KvKey *lo, KvKey *hi)
{
	if (state->parallel == NULL)
		return kv_ranges_next(state->ranges, lo, hi);
	do
	{
		while (kv_ranges_next(state->ranges, lo, hi))
		{
			KvKey		range_lo = *lo;
			KvKey		range_hi = *hi;

			if (clip_to_piece(state->parallel, state->piece, lo, hi))
			{
				kv_scan_share(state->scan, range_lo, range_hi, state->order);
				return true;
			}
		}
	} while (take_piece(state->parallel, &state->piece) &&
			 start_ranges(node, state));
	return false;
}

/* Position on the next range or batch of keys; false if there is none. */
static bool
next_position(ForeignScanState *node, KvScanState *state)
{
	Snapshot	snapshot = node->ss.ps.state->es_snapshot;

	if (state->access == KV_ACCESS_POINT)
	{
		KvKey		keys[KV_POINT_BATCH];
		int			nkeys = kv_ranges_next_points(state->ranges, keys, KV_POINT_BATCH);

		if (nkeys == 0)
			return false;
		for (int i = 0; i < nkeys && IsolationIsSerializable(); i++)
			PredicateLockPage(state->rel, kv_key_page(keys[i]), snapshot);
		kv_scan_points(state->scan, keys, nkeys);
	}
	else
	{
		KvKey		lo;
		KvKey		hi;

		if (!next_range(node, state, &lo, &hi))
			return false;
		PredicateLockRelation(state->rel, snapshot);
		kv_scan_range(state->scan, lo, hi, state->order, state->limit_hint);
	}
	return true;
}

bool
kv_scan_next_row(ForeignScanState *node, KvRow *row)
{
	KvScanState *state = node->fdw_state;

	if (!state->started)
		start_scan(node, state);
	while (!state->finished)
	{
		if (state->positioned)
		{
			bool		found = kv_scan_next(state->scan, row);

			kv_check_conflict_out(state->rel, state->scan, node->ss.ps.state->es_snapshot);
			if (found)
				return true;
		}
		state->positioned = next_position(node, state);
		state->finished = !state->positioned;
		if (state->finished)
			kv_scan_leave(state->scan);
	}
	return false;
}

bool
kv_scan_passes(ForeignScanState *node, ExprState *quals, TupleTableSlot *slot)
{
	ExprContext *econtext = node->ss.ps.ps_ExprContext;

	econtext->ecxt_scantuple = slot;
	if (ExecQual(quals, econtext))
		return true;
	InstrCountFiltered1(node, 1);
	return false;
}

/*
 * Lock the row in the slot and leave its newest version there.  Returns false if there is
 * nothing to return: the row was deleted, or does not satisfy the quals any more.
 */
static bool
lock_row(ForeignScanState *node, KvScanState *state, const KvRow *row,
		 TupleTableSlot *slot)
{
	Snapshot	snapshot = node->ss.ps.state->es_snapshot;
	KvKey		key = {row->key, row->keylen};
	KvRow		newer;
	KvSeen		seen;
	bool		is_seen = kv_scan_seen(state->scan, key, &seen);
	KvRowResult result = kv_lock_row(state->store, state->rel, key, snapshot,
									 state->lock_mode, LockWaitBlock,
									 snapshot->curcid, is_seen ? &seen : NULL, &newer);

	switch (result)
	{
		case KV_ROW_DONE:
			return true;
		case KV_ROW_NEWER:
			kv_tuple_store(state->table, &newer, true, slot);
			return kv_scan_passes(node, node->fdw_recheck_quals, slot) &&
				kv_scan_passes(node, state->qual, slot);
		default:
			kv_raise_row_conflict(result, state->operation);
			return false;
	}
}

/*
 * The datums of the row in the slot point to the row or into the per-tuple context, and so last
 * until the next call.
 */
static TupleTableSlot *
kv_iterate_foreign_scan(ForeignScanState *node)
{
	KvScanState *state = node->fdw_state;
	TupleTableSlot *slot = node->ss.ss_ScanTupleSlot;
	KvRow		row;

	if (KV_PLAN_COUNTS((ForeignScan *) node->ss.ps.plan))
		return kv_iterate_count(node);

	while (kv_scan_next_row(node, &row))
	{
		kv_tuple_store(state->table, &row, state->want_values, slot);
		if (state->names != NULL)
		{
			KvKey		key = {row.key, row.keylen};

			kv_names_add(state->names, key, &slot->tts_tid);
		}
		if (state->lock_mode < 0 ||
			(kv_scan_passes(node, state->qual, slot) && lock_row(node, state, &row, slot)))
			return slot;

		/* one call may read any number of rows */
		CHECK_FOR_INTERRUPTS();
		ExecClearTuple(slot);
		ResetExprContext(node->ss.ps.ps_ExprContext);
	}
	return ExecClearTuple(slot);
}

/* ---- rows locked above the scan ---- */

static LockTupleMode
mark_mode(RowMarkType mark)
{
	switch (mark)
	{
		case ROW_MARK_KEYSHARE:
			return LockTupleKeyShare;
		case ROW_MARK_SHARE:
			return LockTupleShare;
		case ROW_MARK_NOKEYEXCLUSIVE:
			return LockTupleNoKeyExclusive;
		case ROW_MARK_EXCLUSIVE:
			return LockTupleExclusive;
		case ROW_MARK_REFERENCE:
		case ROW_MARK_COPY:
			break;
	}
	elog(ERROR, "unexpected row mark %d", (int) mark);
}

/*
 * Put the version that the snapshot sees into the slot, if EvalPlanQual may look at it because
 * of another relation; else it is enough that the slot is not empty.
 */
static void
refetch_row(KvScanState *state, EState *estate, KvKey key, TupleTableSlot *slot)
{
	if (state->locks_alone)
		ExecStoreAllNullTuple(slot);
	else
	{
		KvScan	   *scan = kv_scan_begin(state->store, estate->es_snapshot, true);
		KvRow		row;

		kv_scan_points(scan, &key, 1);
		if (!kv_scan_next(scan, &row))
			elog(ERROR, "locked row is not visible");
		kv_tuple_store(state->table, &row, true, slot);
		ExecMaterializeSlot(slot);
		kv_scan_end(scan);
	}
}

/*
 * Lock a row that the scan has named.  The slot gets the version that is locked, or nothing if
 * the row is to be skipped.
 */
static void
kv_refetch_foreign_row(EState *estate, ExecRowMark *mark, Datum rowid,
					   TupleTableSlot *slot, bool *updated)
{
	KvScanState *state = mark->ermExtra;
	Snapshot	snapshot = estate->es_snapshot;
	MemoryContext old;
	KvKey		key;
	KvRow		newer;
	KvSeen		seen;
	bool		is_seen;
	KvRowResult result;

	if (state == NULL)
		elog(ERROR, "row to lock has no scan");
	if (state->lock_context == NULL)
		state->lock_context = AllocSetContextCreate(state->context, "kvfdw row lock",
													ALLOCSET_SMALL_SIZES);
	MemoryContextReset(state->lock_context);
	old = MemoryContextSwitchTo(state->lock_context);
	ExecClearTuple(slot);

	/* the row may come from EvalPlanQual's scan, and this one may not have been started */
	if (state->store == NULL)
		state->store = kv_table_store(state->rel, false);
	key = kv_names_find(state->names, (ItemPointer) DatumGetPointer(rowid));
	is_seen = state->scan != NULL && kv_scan_seen(state->scan, key, &seen);
	result = kv_lock_row(state->store, state->rel, key, snapshot,
						 mark_mode(mark->markType), mark->waitPolicy,
						 snapshot->curcid, is_seen ? &seen : NULL, &newer);
	switch (result)
	{
		case KV_ROW_DONE:
			refetch_row(state, estate, key, slot);
			break;
		case KV_ROW_NEWER:
			kv_tuple_store(state->table, &newer, true, slot);
			ExecMaterializeSlot(slot);
			*updated = true;
			break;
		default:
			kv_raise_row_conflict(result, CMD_SELECT);
	}
	MemoryContextSwitchTo(old);
}

/* Parameters may have changed: evaluate the conditions again at the next row. */
static void
kv_rescan_foreign_scan(ForeignScanState *node)
{
	KvScanState *state = node->fdw_state;

	if (KV_PLAN_COUNTS((ForeignScan *) node->ss.ps.plan))
		kv_rescan_count(node);
	else
		state->started = false;
}

/* The first scan of a row mark owns the names. */
static void
end_naming(ForeignScanState *node, KvScanState *state)
{
	ExecRowMark *mark;

	if (state->names == NULL)
		return;
	mark = ExecFindRowMark(node->ss.ps.state, ((Scan *) node->ss.ps.plan)->scanrelid, true);
	if (mark->ermExtra == state)
	{
		kv_names_end(state->names);
		mark->ermExtra = NULL;
	}
}

void
kv_end_foreign_scan(ForeignScanState *node)
{
	KvScanState *state = node->fdw_state;

	if (state == NULL)
		return;					/* EXPLAIN without ANALYZE */
	if (KV_PLAN_COUNTS((ForeignScan *) node->ss.ps.plan))
	{
		kv_end_count(node);
		return;
	}
	if (state->scan != NULL)
		kv_scan_end(state->scan);
	ExecClearTuple(node->ss.ss_ScanTupleSlot);
	end_naming(node, state);
	MemoryContextDelete(state->context);
	node->fdw_state = NULL;
}

/*
 * EvalPlanQual: is the row in the slot one of the scan's?  The executor evaluates the plan's
 * fdw_recheck_quals, which are the key conditions' clauses.  For a count some minor versions
 * ask here for the row itself, once per row that they want.
 */
static bool
kv_recheck_foreign_scan(ForeignScanState *node, TupleTableSlot *slot)
{
	return !KV_PLAN_COUNTS((ForeignScan *) node->ss.ps.plan) ||
		!TupIsNull(kv_iterate_count(node));
}

/* ---- the FDW's callbacks of this file ---- */

void
kv_scan_routine(FdwRoutine *routine)
{
	routine->BeginForeignScan = kv_begin_foreign_scan;
	routine->IterateForeignScan = kv_iterate_foreign_scan;
	routine->ReScanForeignScan = kv_rescan_foreign_scan;
	routine->EndForeignScan = kv_end_foreign_scan;
	routine->RecheckForeignScan = kv_recheck_foreign_scan;
	routine->RefetchForeignRow = kv_refetch_foreign_row;
	routine->IsForeignScanParallelSafe = kv_is_parallel_safe;
	routine->EstimateDSMForeignScan = kv_estimate_dsm;
	routine->InitializeDSMForeignScan = kv_initialize_dsm;
	routine->ReInitializeDSMForeignScan = kv_reinitialize_dsm;
	routine->InitializeWorkerForeignScan = kv_initialize_worker;
}
