/*
 * scan.c
 *		Execution of scans: points, ranges and whole tables, in key order.
 *
 * A scan evaluates its key conditions at its first row and after each rescan
 * (keyrange.c), then positions one KvScan after another on the batches of keys
 * or on the ranges that came out.  No lock of the engine is held between two
 * calls (I 7).
 *
 * Locking.  EvalPlanQual cannot ask an FDW for the newest version of a row of
 * its own target, and a Limit or LockRows node above has nothing to identify
 * it by.  So the rows of a target relation, or of one with a row mark, are
 * locked here, before they are returned: the node's own quals are evaluated on
 * the version that the snapshot sees, and again on the newest version if that
 * is another one (READ COMMITTED).  The key conditions need no second look, as
 * all versions of a row have one key.  All lock strengths are one: exclusive.
 *
 * SERIALIZABLE.  What is read gets a predicate lock before it is read: a page
 * lock on a hash of the key for a point, a lock of the whole table for anything
 * else.  modify.c checks the keys it writes against them; the writers whose
 * versions a batch met and did not see are checked here.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "storage/predicate.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "compat.h"
#include "plan.h"

/* Keys handed to the engine at once: bounds memory, feeds its deepest queue. */
#define KV_POINT_BATCH		1024

/*
 * Does this scan have to lock what it returns?  Not while EvalPlanQual runs
 * the plan again: it tests rows that are locked already.
 */
static void
decide_locking(ForeignScanState *node, KvScanState *state)
{
	EState	   *estate = node->ss.ps.state;
	Index		scanrelid = ((Scan *) node->ss.ps.plan)->scanrelid;
	ExecRowMark *mark;

	state->wait_policy = LockWaitBlock;
	if (estate->es_epq_active != NULL)
		return;

	state->lock = ExecRelationIsTargetRelation(estate, scanrelid);
	mark = ExecFindRowMark(estate, scanrelid, true);
	if (mark != NULL && mark->strength != LCS_NONE)
	{
		state->lock = true;
		state->wait_policy = mark->waitPolicy;
	}

	/*
	 * The quals decide what is locked, so they are evaluated here and not by
	 * ExecScan: twice would be wrong for volatile ones.
	 */
	if (state->lock)
	{
		state->qual = node->ss.ps.qual;
		node->ss.ps.qual = NULL;
	}
}

static void
kv_begin_foreign_scan(ForeignScanState *node, int eflags)
{
	ForeignScan *plan = (ForeignScan *) node->ss.ps.plan;
	KvScanState *state;
	MemoryContext context;
	MemoryContext old;

	if (eflags & EXEC_FLAG_EXPLAIN_ONLY)
		return;

	kv_engine_require();

	context = AllocSetContextCreate(node->ss.ps.state->es_query_cxt,
									"kvfdw scan", ALLOCSET_SMALL_SIZES);
	old = MemoryContextSwitchTo(context);
	state = palloc0(sizeof(KvScanState));
	state->context = context;
	state->rel = node->ss.ss_currentRelation;
	state->table = kv_table_get(state->rel);
	state->access = (KvAccess) intVal(list_nth(plan->fdw_private, KvScanPrivateAccess));
	state->backward = boolVal(list_nth(plan->fdw_private, KvScanPrivateBackward));
	state->want_values = boolVal(list_nth(plan->fdw_private, KvScanPrivateValues));
	state->limit_hint = (uint64) floatVal(list_nth(plan->fdw_private, KvScanPrivateLimit));
	state->ranges = kv_ranges_create(state->table, plan, &node->ss.ps);
	decide_locking(node, state);
	MemoryContextSwitchTo(old);

	node->fdw_state = state;
}

/*
 * First row of a (re)scan: find out what to read.  A store that does not exist
 * yet has no row that the snapshot could see.
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

		state->store = kv_table_store(state->rel, false);
		if (state->store != NULL)
			state->scan = kv_scan_begin(state->store,
										node->ss.ps.state->es_snapshot,
										state->want_values);
		MemoryContextSwitchTo(old);
		if (state->scan == NULL)
		{
			/* that there is no row has been read, too */
			PredicateLockRelation(state->rel, node->ss.ps.state->es_snapshot);
			return;
		}
	}

	if (state->range_context == NULL)
		state->range_context = AllocSetContextCreate(state->context,
													 "kvfdw scan keys",
													 ALLOCSET_SMALL_SIZES);
	else
		MemoryContextReset(state->range_context);
	state->finished = !kv_ranges_start(state->ranges, node->ss.ps.ps_ExprContext,
									   state->range_context, state->backward);
}

BlockNumber
kv_key_page(KvKey key)
{
	return hash_bytes(key.data, key.len) % MaxBlockNumber;
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
		for (int i = 0; i < nkeys; i++)
			PredicateLockPage(state->rel, kv_key_page(keys[i]), snapshot);
		kv_scan_points(state->scan, keys, nkeys);
	}
	else
	{
		KvKey		lo;
		KvKey		hi;

		if (!kv_ranges_next(state->ranges, &lo, &hi))
			return false;
		PredicateLockRelation(state->rel, snapshot);
		kv_scan_range(state->scan, lo, hi, state->backward, state->limit_hint);
	}
	return true;
}

/* SERIALIZABLE: tell whose writes this scan has met and not seen. */
static void
check_conflict_out(KvScanState *state, Snapshot snapshot)
{
	const TransactionId *xids;
	int			n = kv_scan_take_conflicts(state->scan, &xids);

	for (int i = 0; i < n; i++)
		CheckForSerializableConflictOut(state->rel, xids[i], snapshot);
}

static bool
next_row(ForeignScanState *node, KvScanState *state, KvRow *row)
{
	while (!state->finished)
	{
		if (state->positioned)
		{
			bool		found = kv_scan_next(state->scan, row);

			check_conflict_out(state, node->ss.ps.state->es_snapshot);
			if (found)
				return true;
		}
		state->positioned = next_position(node, state);
		state->finished = !state->positioned;
	}
	return false;
}

/*
 * Put a row into the slot.  What it points to is the row's or in the per-tuple
 * context, and so lasts until the next call of IterateForeignScan.
 */
static void
store_row(KvScanState *state, const KvRow *row, TupleTableSlot *slot)
{
	ExecClearTuple(slot);
	kv_tuple_decode(state->table, row, state->want_values,
					slot->tts_values, slot->tts_isnull);
	ExecStoreVirtualTuple(slot);
	slot->tts_tableOid = RelationGetRelid(state->rel);
}

static bool
quals_pass(ForeignScanState *node, KvScanState *state, TupleTableSlot *slot)
{
	ExprContext *econtext = node->ss.ps.ps_ExprContext;

	if (state->qual == NULL)
		return true;
	econtext->ecxt_scantuple = slot;
	if (ExecQual(state->qual, econtext))
		return true;
	InstrCountFiltered1(node, 1);
	return false;
}

/*
 * Lock the row in the slot and leave its newest version there.  Returns false
 * if there is nothing to return: it is gone, skipped, or not wanted any more.
 */
static bool
lock_row(ForeignScanState *node, KvScanState *state, const KvRow *row,
		 TupleTableSlot *slot)
{
	KvKey		key = {row->key, row->keylen};
	KvRow		newest;

	switch (kv_lock_row(state->store, state->rel, key,
						node->ss.ps.state->es_snapshot, state->wait_policy,
						state->want_values ? &newest : NULL))
	{
		case KV_LOCKED:
			return true;
		case KV_LOCKED_NEWER:
			if (state->want_values)
				store_row(state, &newest, slot);
			return quals_pass(node, state, slot);
		case KV_LOCK_GONE:
		case KV_LOCK_SKIPPED:
			break;
	}
	return false;
}

static TupleTableSlot *
kv_iterate_foreign_scan(ForeignScanState *node)
{
	KvScanState *state = node->fdw_state;
	TupleTableSlot *slot = node->ss.ss_ScanTupleSlot;
	KvRow		row;

	if (!state->started)
		start_scan(node, state);

	while (next_row(node, state, &row))
	{
		store_row(state, &row, slot);
		if (!state->lock ||
			(quals_pass(node, state, slot) && lock_row(node, state, &row, slot)))
			return slot;

		/* one call may go through any number of rows */
		CHECK_FOR_INTERRUPTS();
		ExecClearTuple(slot);
		ResetExprContext(node->ss.ps.ps_ExprContext);
	}
	return ExecClearTuple(slot);
}

/* Parameters may have changed: evaluate the conditions again at the next row. */
static void
kv_rescan_foreign_scan(ForeignScanState *node)
{
	KvScanState *state = node->fdw_state;

	state->started = false;
}

static void
kv_end_foreign_scan(ForeignScanState *node)
{
	KvScanState *state = node->fdw_state;

	if (state == NULL)
		return;					/* EXPLAIN without ANALYZE */
	if (state->scan != NULL)
		kv_scan_end(state->scan);
	ExecClearTuple(node->ss.ss_ScanTupleSlot);
	MemoryContextDelete(state->context);
	node->fdw_state = NULL;
}

/*
 * Set the scan's callbacks.  RecheckForeignScan is not needed: the executor
 * evaluates the plan's fdw_recheck_quals, which are the key conditions'
 * clauses.
 */
void
kv_scan_routine(FdwRoutine *routine)
{
	routine->BeginForeignScan = kv_begin_foreign_scan;
	routine->IterateForeignScan = kv_iterate_foreign_scan;
	routine->ReScanForeignScan = kv_rescan_foreign_scan;
	routine->EndForeignScan = kv_end_foreign_scan;
}
