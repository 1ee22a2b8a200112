/*
 * direct.c
 *		DELETE of the rows that a scan finds, without a ModifyTable node's work for each row.
 *
 * The scan passes rows that satisfy the quals to the engine, some at once, which deletes them in
 * the scan's order.  A row for which the engine would have to wait, or which is not as the scan has
 * seen it, is deleted as modify.c does it.  So other sessions see the same order of locks and
 * waits, and READ COMMITTED rechecks the newest version.
 *
 * The difference is that quals of some rows are evaluated before rows ahead of them are deleted.
 * They could see that only if they were volatile: then the plan is not changed.  Nor is it if
 * something else must be done for each row: row triggers, RETURNING, joins, partitions.
 */
#include "postgres.h"

#include "access/xact.h"
#include "executor/executor.h"
#include "executor/instrument.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "storage/predicate.h"
#include "utils/memutils.h"

#include "compat.h"
#include "fdw/fdw.h"

/* ---- plan ---- */

/* May the quals be evaluated earlier than they would be? */
static bool
quals_may_be_early(const ForeignScan *scan)
{
	return !contain_volatile_functions((Node *) scan->scan.plan.qual) &&
		!contain_volatile_functions((Node *) scan->fdw_exprs) &&
		!contain_volatile_functions((Node *) scan->fdw_recheck_quals) &&
		!contain_subplans((Node *) scan->scan.plan.qual);
}

/* Core has excluded row triggers and check options. */
static bool
kv_plan_direct_modify(PlannerInfo *root, ModifyTable *plan, Index rti, int subplan_index)
{
	ForeignScan *scan = (ForeignScan *) outerPlan(plan);

	if (plan->operation != CMD_DELETE || plan->returningLists != NIL || plan->rowMarks != NIL ||
		rti != root->parse->resultRelation || list_length(plan->resultRelations) != 1 ||
		!IsA(scan, ForeignScan) || scan->scan.scanrelid != rti || !quals_may_be_early(scan) ||
		intVal(list_nth(scan->fdw_private, KvScanPrivateLock)) >= 0)
		return false;
	scan->operation = CMD_DELETE;
	scan->resultRelation = rti;
	scan->fdw_private = lappend(scan->fdw_private, makeBoolean(plan->canSetTag));
	return true;
}

/* ---- execution ---- */

typedef struct KvDirect
{
	KvStore    *store;			/* as a writer opens it; NULL until the first row */
	CommandId	cid;
	uint64		deleted;
	int			n;				/* rows that are collected */
	KvDelete	rows[KV_DELETED_TOGETHER];
	KvSeen		seen[KV_DELETED_TOGETHER];
	MemoryContext context;		/* of their keys */
} KvDirect;

static void
kv_begin_direct_modify(ForeignScanState *node, int eflags)
{
	KvScanState *state;

	kv_show_indexes(node->resultRelInfo);
	kv_begin_foreign_scan(node, eflags);
	state = node->fdw_state;
	if (state == NULL)
		return;					/* EXPLAIN */
	state->qual = node->ss.ps.qual;
	node->ss.ps.qual = NULL;
}

static void
collect(KvScanState *state, KvDirect *direct, const KvRow *row)
{
	MemoryContext old = MemoryContextSwitchTo(direct->context);
	KvDelete   *doomed = &direct->rows[direct->n];

	doomed->key = kv_key_copy(direct->context, row->key, row->keylen);
	doomed->seen = kv_scan_seen(state->scan, doomed->key, &direct->seen[direct->n]) ?
		&direct->seen[direct->n] : NULL;
	direct->n++;
	MemoryContextSwitchTo(old);
}

/* Deletes one row, as modify.c does.  False: it is not deleted, which is no error. */
static bool
delete_alone(ForeignScanState *node, KvDirect *direct, KvKey key)
{
	static const KvKey nowhere = {NULL, 0};
	KvScanState *state = node->fdw_state;
	TupleTableSlot *slot = node->ss.ss_ScanTupleSlot;
	KvRow		newer;
	KvRowResult result = kv_delete(direct->store, state->rel, key, node->ss.ps.state->es_snapshot,
								   nowhere, direct->cid, &newer);

	if (result == KV_ROW_NEWER)
	{
		kv_tuple_store(state->table, &newer, true, slot);
		if (!kv_scan_passes(node, node->fdw_recheck_quals, slot) ||
			!kv_scan_passes(node, state->qual, slot))
			return false;
		key = (KvKey) {newer.key, newer.keylen};
		result = kv_delete(direct->store, state->rel, key, NULL, nowhere, direct->cid, &newer);
	}
	if (result == KV_ROW_DONE)
		return true;
	kv_raise_row_conflict(result, CMD_DELETE);
	return false;
}

/* Deletes the collected rows. */
static void
delete_collected(ForeignScanState *node, KvDirect *direct)
{
	KvScanState *state = node->fdw_state;
	MemoryContext old;

	if (direct->n == 0)
		return;					/* a table without rows gets no store, and no mark */
	old = MemoryContextSwitchTo(direct->context);
	if (direct->store == NULL)
		direct->store = kv_table_store(state->rel, true);
	for (int i = 0; i < direct->n;)
	{
		int			done = kv_delete_many(direct->store, &direct->rows[i], direct->n - i,
										  node->ss.ps.state->es_snapshot, direct->cid);

		direct->deleted += done;
		for (; done > 0; done--)
			kv_check_conflict_in(state->rel, direct->rows[i++].key);
		if (i < direct->n)
		{
			CHECK_FOR_INTERRUPTS();
			if (delete_alone(node, direct, direct->rows[i].key))
			{
				kv_check_conflict_in(state->rel, direct->rows[i].key);
				direct->deleted++;
			}
			ExecClearTuple(node->ss.ss_ScanTupleSlot);
			ResetExprContext(node->ss.ps.ps_ExprContext);
			i++;
		}
	}
	direct->n = 0;
	MemoryContextSwitchTo(old);
	MemoryContextReset(direct->context);
}

/* Deletes all rows in one call. */
static TupleTableSlot *
kv_iterate_direct_modify(ForeignScanState *node)
{
	EState	   *estate = node->ss.ps.state;
	KvScanState *state = node->fdw_state;
	TupleTableSlot *slot = node->ss.ss_ScanTupleSlot;
	KvDirect   *direct = MemoryContextAllocZero(state->context, sizeof(KvDirect));
	KvRow		row;

	direct->cid = estate->es_output_cid;
	direct->context = AllocSetContextCreate(state->context, "kvfdw direct delete",
											ALLOCSET_DEFAULT_SIZES);
	while (kv_scan_next_row(node, &row))
	{
		bool		passes;

		if (state->qual != NULL)
		{
			kv_tuple_store(state->table, &row, state->want_values, slot);
			passes = kv_scan_passes(node, state->qual, slot);
			ResetExprContext(node->ss.ps.ps_ExprContext);
			if (!passes)
			{
				/* one call may read any number of rows */
				CHECK_FOR_INTERRUPTS();
				continue;
			}
		}
		collect(state, direct, &row);
		if (direct->n == KV_DELETED_TOGETHER)
			delete_collected(node, direct);
	}
	delete_collected(node, direct);
	if (boolVal(list_nth(((ForeignScan *) node->ss.ps.plan)->fdw_private, KvScanPrivateSetsTag)))
		estate->es_processed += direct->deleted;
	if (node->ss.ps.instrument != NULL)
		node->ss.ps.instrument->tuplecount += direct->deleted;
	MemoryContextDelete(direct->context);
	pfree(direct);
	return ExecClearTuple(slot);
}

void
kv_direct_routine(FdwRoutine *routine)
{
	routine->PlanDirectModify = kv_plan_direct_modify;
	routine->BeginDirectModify = kv_begin_direct_modify;
	routine->IterateDirectModify = kv_iterate_direct_modify;
	routine->EndDirectModify = kv_end_foreign_scan;
	routine->ExplainDirectModify = kv_explain_foreign_scan;
}
