/*
 * count.c
 *		count(*) of one table, counted by the engine.
 *
 * The engine counts the rows instead of returning them (engine/scan/count.c) if
 *
 *  - the query's only aggregates are count(*), or count() of an expression that is never NULL,
 *    without GROUP BY; and
 *  - all its conditions are key conditions, so that every row of the key ranges counts.
 *
 * Whole keys are looked up one by one: counting them in the engine is not cheaper.
 *
 * Such a plan is a ForeignScan of an upper relation: it has no scan relation, one row, and a
 * column for each aggregate (fdw_scan_tlist).  The executor computes the rest of the target
 * list, count(*) + 1 say, from these.  A clause that names the table's columns cannot be among
 * its expressions, so EXPLAIN finds the key conditions' clauses in fdw_private, as of relation
 * 1.
 *
 * EvalPlanQual may execute such a scan again for one row of another table, and the scan has to
 * run as usual then.  Servers before November 2025 return no row there, so that UPDATE … SET n
 * = (a count) would write NULL: on them nothing is pushed down.
 *
 * SERIALIZABLE: a count is a read of the whole table, as a scan of a range is.
 */
#include "postgres.h"

#include "executor/executor.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/planmain.h"
#include "optimizer/restrictinfo.h"
#include "optimizer/tlist.h"
#include "parser/parsetree.h"
#include "rewrite/rewriteManip.h"
#include "storage/predicate.h"
#include "utils/fmgroids.h"
#include "utils/memutils.h"

#include "compat.h"
#include "engine/engine.h"
#include "engine/rows.h"
#include "fdw/fdw.h"

/* What the upper path stores in the grouped relation's fdw_private. */
typedef struct KvCountInfo
{
	RelOptInfo *rel;			/* whose rows are counted */
	KvKeyMatch *match;
	List	   *aggregates;		/* Aggrefs, each once */
} KvCountInfo;

/* ---- plan time ---- */

/* Does the aggregate count every row? */
static bool
counts_all(RelOptInfo *rel, const KvTable *table, const Aggref *aggregate)
{
	Node	   *argument;

	if (aggregate->agglevelsup != 0 || aggregate->aggsplit != AGGSPLIT_SIMPLE ||
		aggregate->aggfilter != NULL || aggregate->aggdistinct != NIL ||
		aggregate->aggorder != NIL || aggregate->aggdirectargs != NIL)
		return false;
	if (aggregate->aggfnoid == F_COUNT_)
		return true;
	if (aggregate->aggfnoid != F_COUNT_ANY)
		return false;
	argument = (Node *) linitial_node(TargetEntry, aggregate->args)->expr;
	if (IsA(argument, Const))
		return !((Const *) argument)->constisnull;
	for (int i = 0; i < table->nkeys; i++)
	{
		if (kv_operand_is_key(rel, &table->keys[i], argument))
			return true;
	}
	return false;
}

/*
 * The aggregates of a target that counting rows computes, or NIL: the target needs something
 * else of the table's rows.
 */
static List *
counting_aggregates(RelOptInfo *rel, const KvTable *table, PathTarget *target)
{
	List	   *found = pull_var_clause((Node *) target->exprs,
										PVC_INCLUDE_AGGREGATES | PVC_RECURSE_WINDOWFUNCS |
										PVC_INCLUDE_PLACEHOLDERS);
	List	   *aggregates = NIL;
	ListCell   *lc;

	foreach(lc, found)
	{
		if (!IsA(lfirst(lc), Aggref) || !counts_all(rel, table, lfirst_node(Aggref, lc)))
			return NIL;
		aggregates = list_append_unique(aggregates, lfirst(lc));
	}
	return aggregates;
}

/* Are the key conditions equivalent to the query's conditions? */
static bool
conditions_are_exact(RelOptInfo *rel, const KvKeyMatch *match)
{
	ListCell   *lc;

	foreach(lc, rel->baserestrictinfo)
	{
		if (lfirst_node(RestrictInfo, lc)->pseudoconstant ||
			!list_member_ptr(match->exact, lfirst(lc)))
			return false;
	}
	return true;
}

/* Can the running server, not the one compiled for, execute a count below EvalPlanQual? */
static bool
server_rechecks_counts(void)
{
	int			version = kv_server_version();

	switch (version / 10000)
	{
		case 15:
			return version >= 150015;
		case 16:
			return version >= 160011;
		case 17:
			return version >= 170007;
		case 18:
			return version >= 180001;
		default:
			return version > 180000;
	}
}

void
kv_get_foreign_upper_paths(PlannerInfo *root, UpperRelationKind stage,
						   RelOptInfo *input_rel, RelOptInfo *output_rel, void *extra)
{
	Query	   *parse = root->parse;
	KvRelInfo  *info = input_rel->fdw_private;
	KvCountInfo *count;
	KvKeyMatch *match;
	List	   *aggregates;
	Cost		startup_cost;
	Cost		total_cost;

	if (stage != UPPERREL_GROUP_AGG || input_rel->reloptkind != RELOPT_BASEREL ||
		info == NULL || output_rel->fdw_private != NULL ||
		parse->groupClause != NIL || parse->groupingSets != NIL || parse->havingQual != NULL ||
		parse->rowMarks != NIL || !bms_is_empty(input_rel->lateral_relids) ||
		!server_rechecks_counts())
		return;
	aggregates = counting_aggregates(input_rel, info->table, output_rel->reltarget);
	if (aggregates == NIL)
		return;
	match = kv_match_key(root, input_rel, info->table, input_rel->baserestrictinfo);
	if (match->access == KV_ACCESS_POINT || !conditions_are_exact(input_rel, match))
		return;

	count = palloc(sizeof(KvCountInfo));
	count->rel = input_rel;
	count->match = match;
	count->aggregates = aggregates;
	output_rel->fdw_private = count;

	kv_cost_count(root, input_rel, match, &startup_cost, &total_cost);
	startup_cost += output_rel->reltarget->cost.startup;
	total_cost += output_rel->reltarget->cost.startup + output_rel->reltarget->cost.per_tuple;
	add_path(output_rel, (Path *)
			 kv_create_foreign_upper_path(root, output_rel, output_rel->reltarget, 1,
										  startup_cost, total_cost, NIL));
}

ForeignScan *
kv_count_plan(PlannerInfo *root, RelOptInfo *rel, List *tlist)
{
	KvCountInfo *count = rel->fdw_private;
	List	   *values;
	List	   *fdw_private = kv_plan_conditions(count->match, &values);
	List	   *clauses = copyObject(extract_actual_clauses(count->match->clauses, false));

	ChangeVarNodes((Node *) clauses, count->rel->relid, 1, 0);
	return make_foreignscan(tlist, NIL, 0, values, lappend(fdw_private, clauses),
							add_to_flat_tlist(NIL, count->aggregates), NIL, NULL);
}

Index
kv_count_relation(const ForeignScan *plan, List *rtable)
{
	int			relid = -1;

	/* outer joins that were removed may have left their relids */
	while ((relid = bms_next_member(plan->fs_relids, relid)) >= 0)
	{
		if (rt_fetch(relid, rtable)->rtekind == RTE_RELATION)
			return relid;
	}
	elog(ERROR, "count without a table");
}

/* ---- execution time ---- */

typedef struct KvCountState
{
	Relation	rel;
	KvScan	   *scan;			/* NULL until the table has a store */
	KvKeyRanges *ranges;
	bool		finished;		/* its row was returned */
	MemoryContext context;		/* of this struct: "kvfdw count" */
	MemoryContext range_context;	/* of the current (re)scan's keys */
} KvCountState;

void
kv_begin_count(ForeignScanState *node, int eflags)
{
	ForeignScan *plan = (ForeignScan *) node->ss.ps.plan;
	EState	   *estate = node->ss.ps.state;
	MemoryContext context = AllocSetContextCreate(estate->es_query_cxt, "kvfdw count",
												  ALLOCSET_SMALL_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	KvCountState *state = palloc0(sizeof(KvCountState));

	state->context = context;
	state->range_context = AllocSetContextCreate(context, "kvfdw scan keys",
												 ALLOCSET_SMALL_SIZES);
	state->rel = ExecOpenScanRelation(estate,
									  kv_count_relation(plan, estate->es_range_table),
									  eflags);
	kv_ddl_require_followed(state->rel);
	state->ranges = kv_ranges_create(kv_table_get(state->rel), plan, &node->ss.ps, false);
	node->fdw_state = state;
	MemoryContextSwitchTo(old);
}

static uint64
count_rows(ForeignScanState *node, KvCountState *state)
{
	Snapshot	snapshot = node->ss.ps.state->es_snapshot;
	uint64		count = 0;
	KvKey		lo;
	KvKey		hi;

	if (state->scan == NULL)
	{
		KvStore    *store = kv_table_read(state->rel, snapshot);
		MemoryContext old = MemoryContextSwitchTo(state->context);

		/* the absence of rows has been read, too */
		PredicateLockRelation(state->rel, snapshot);
		if (store != NULL)
			state->scan = kv_scan_begin(store, snapshot, false);
		MemoryContextSwitchTo(old);
		if (store == NULL)
			return 0;
	}

	MemoryContextReset(state->range_context);
	if (!kv_ranges_start(state->ranges, node->ss.ps.ps_ExprContext,
						 state->range_context, false))
		return 0;
	while (kv_ranges_next(state->ranges, &lo, &hi))
	{
		PredicateLockRelation(state->rel, snapshot);
		count += kv_scan_count(state->scan, lo, hi);
		kv_check_conflict_out(state->rel, state->scan, snapshot);
	}
	return count;
}

TupleTableSlot *
kv_iterate_count(ForeignScanState *node)
{
	KvCountState *state = node->fdw_state;
	TupleTableSlot *slot = node->ss.ss_ScanTupleSlot;
	Datum		count;

	ExecClearTuple(slot);
	if (state->finished)
		return slot;
	state->finished = true;
	count = Int64GetDatum((int64) count_rows(node, state));
	for (int i = 0; i < slot->tts_tupleDescriptor->natts; i++)
	{
		slot->tts_values[i] = count;
		slot->tts_isnull[i] = false;
	}
	return ExecStoreVirtualTuple(slot);
}

void
kv_rescan_count(ForeignScanState *node)
{
	((KvCountState *) node->fdw_state)->finished = false;
}

void
kv_end_count(ForeignScanState *node)
{
	KvCountState *state = node->fdw_state;

	if (state->scan != NULL)
		kv_scan_end(state->scan);
	MemoryContextDelete(state->context);
	node->fdw_state = NULL;
}
