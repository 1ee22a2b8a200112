/*
 * explain.c
 *		What EXPLAIN shows of a kvfdw scan or modification.
 */
#include "postgres.h"

#include "nodes/makefuncs.h"
#include "parser/parsetree.h"
#include "rewrite/rewriteManip.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/ruleutils.h"

#include "compat.h"
#include "engine/rows.h"
#include "fdw/fdw.h"

#include KV_EXPLAIN_STATE_HEADER
#include KV_EXPLAIN_FORMAT_HEADER

static const char *const access_names[] = {
	[KV_ACCESS_FULL] = "full",
	[KV_ACCESS_RANGE] = "range",
	[KV_ACCESS_POINT] = "point",
};

static bool find_ancestors(Plan *at, Plan *target, List **ancestors);

static bool
find_ancestors_in_list(List *plans, Plan *target, List **ancestors)
{
	ListCell   *lc;

	foreach(lc, plans)
	{
		if (find_ancestors((Plan *) lfirst(lc), target, ancestors))
			return true;
	}
	return false;
}

/* If target is in the tree at, append the nodes above it, the nearest first. */
static bool
find_ancestors(Plan *at, Plan *target, List **ancestors)
{
	bool		found;

	if (at == NULL)
		return false;
	if (at == target)
		return true;

	found = find_ancestors(at->lefttree, target, ancestors) ||
		find_ancestors(at->righttree, target, ancestors);
	if (!found && IsA(at, Append))
		found = find_ancestors_in_list(((Append *) at)->appendplans,
									   target, ancestors);
	else if (!found && IsA(at, MergeAppend))
		found = find_ancestors_in_list(((MergeAppend *) at)->mergeplans,
									   target, ancestors);
	else if (!found && IsA(at, SubqueryScan))
		found = find_ancestors(((SubqueryScan *) at)->subplan, target, ancestors);
	else if (!found && IsA(at, CustomScan))
		found = find_ancestors_in_list(((CustomScan *) at)->custom_plans,
									   target, ancestors);

	if (found)
		*ancestors = lappend(*ancestors, at);
	return found;
}

/*
 * The key conditions, as an index scan shows its index conditions.
 *
 * A nested loop's parameters are shown as the outer columns they stand for, which takes the
 * nodes above this one; EXPLAIN does not pass those to an FDW, so this function searches them.
 * The search stays inside one plan tree: a parameter that a correlated subquery gets from
 * outside is shown as $n.
 */
static void
show_key_condition(ForeignScan *plan, List *clauses, ExplainState *es)
{
	List	   *ancestors = NIL;
	List	   *context;

	if (clauses == NIL)
		return;

	if (!find_ancestors(es->pstmt->planTree, (Plan *) plan, &ancestors))
		find_ancestors_in_list(es->pstmt->subplans, (Plan *) plan, &ancestors);
	context = set_deparse_context_plan(es->deparse_cxt, (Plan *) plan, ancestors);
	ExplainPropertyText("Key Cond",
						deparse_expression((Node *) make_ands_explicit(clauses),
										   context, es->verbose, false),
						es);
}

static const char *const miss_names[KV_MISSES] = {
	[KV_MISS_OFF] = "Off",
	[KV_MISS_OVERSIZED] = "Oversized",
	[KV_MISS_ABSENT] = "Absent",
	[KV_MISS_PROBATION] = "Probation",
	[KV_MISS_EVICTED] = "Evicted",
	[KV_MISS_PARTIAL] = "Partial",
	[KV_MISS_BUSY] = "Busy",
	[KV_MISS_DAMAGED] = "Damaged",
};

/*
 * Show why a cache did not have values; in text format only reasons that were met, and not that
 * there is no second tier, which is the default.
 */
static void
show_misses(const char *label, KvAsked asked, const KvScanStats *stats, ExplainState *es)
{
	const uint64 *misses = stats->misses[asked];
	StringInfoData text;

	if (es->format != EXPLAIN_FORMAT_TEXT)
	{
		ExplainOpenGroup(label, label, true, es);
		for (int why = KV_MISS_NONE + 1; why < KV_MISSES; why++)
			ExplainPropertyUInteger(miss_names[why], NULL, misses[why], es);
		ExplainCloseGroup(label, label, true, es);
		return;
	}
	initStringInfo(&text);
	for (int why = KV_MISS_NONE + 1; why < KV_MISSES; why++)
	{
		if (misses[why] > 0 && !(asked == KV_ASKED_TIER && why == KV_MISS_OFF))
			appendStringInfo(&text, "%s%c%s=%llu", text.len > 0 ? " " : "",
							 pg_tolower(miss_names[why][0]), miss_names[why] + 1,
							 (unsigned long long) misses[why]);
	}
	if (text.len > 0)
		ExplainPropertyText(label, text.data, es);
	pfree(text.data);
}

/* Show how the scan used windows of the range cache, if it did. */
static void
show_windows(const KvScanStats *stats, ExplainState *es)
{
	if (es->format != EXPLAIN_FORMAT_TEXT)
	{
		ExplainPropertyUInteger("Windows Hit", NULL, stats->windows_hit, es);
		ExplainPropertyUInteger("Windows Loaded", NULL, stats->windows_loaded, es);
		ExplainPropertyUInteger("Windows Shared", NULL, stats->windows_shared, es);
		ExplainPropertyUInteger("Windows Waited", NULL, stats->windows_waited, es);
		return;
	}
	if (stats->windows_hit + stats->windows_loaded + stats->windows_shared == 0)
		return;
	ExplainPropertyText("Windows",
						psprintf("hit=%llu loaded=%llu shared=%llu waited=%llu",
								 (unsigned long long) stats->windows_hit,
								 (unsigned long long) stats->windows_loaded,
								 (unsigned long long) stats->windows_shared,
								 (unsigned long long) stats->windows_waited),
						es);
}

/* Where the values that the scan has read were found, and why not nearer. */
static void
show_io(const KvScanStats *stats, ExplainState *es)
{
	ExplainPropertyUInteger("Device Reads", NULL, stats->device_reads, es);
	ExplainPropertyUInteger("Device Bytes", NULL, stats->device_bytes, es);
	ExplainPropertyUInteger("Write Buffer Hits", NULL, stats->buffer_hits, es);
	ExplainPropertyUInteger("Recent Ring Hits", NULL, stats->recent_hits, es);
	show_misses("Recent Ring Misses", KV_ASKED_RECENT, stats, es);
	ExplainPropertyUInteger("Value Cache Hits", NULL, stats->cache_hits, es);
	show_misses("Value Cache Misses", KV_ASKED_BLOCKS, stats, es);
	if (stats->tier_hits > 0 || es->format != EXPLAIN_FORMAT_TEXT)
		ExplainPropertyUInteger("Tier Hits", NULL, stats->tier_hits, es);
	show_misses("Tier Misses", KV_ASKED_TIER, stats, es);
	show_windows(stats, es);
}

/*
 * Show in how many of the table's shards the scan has looked; in text format only if there are
 * several.
 */
static void
show_shards(KvScan *scan, ExplainState *es)
{
	uint32		met;
	uint32		all;

	kv_scan_shards(scan, &met, &all);
	if (es->format != EXPLAIN_FORMAT_TEXT)
	{
		ExplainPropertyUInteger("Shards Read", NULL, met, es);
		ExplainPropertyUInteger("Shards", NULL, all, es);
	}
	else if (all > 1)
		ExplainPropertyText("Shards Read", psprintf("%u of %u", met, all), es);
}

/* Show the table of a count, which has no scan relation for core to name. */
static void
explain_count(ForeignScan *plan, ExplainState *es)
{
	Index		relid = kv_count_relation(plan, es->rtable);
	RangeTblEntry *rte = rt_fetch(relid, es->rtable);
	const char *name = quote_identifier(get_rel_name(rte->relid));
	const char *alias = quote_identifier(list_nth(es->rtable_names, relid - 1));
	List	   *clauses = copyObject(list_nth(plan->fdw_private, KvCountPrivateClauses));
	StringInfoData relation;

	initStringInfo(&relation);
	if (es->verbose)
	{
		char	   *schema = get_namespace_name_or_temp(get_rel_namespace(rte->relid));

		appendStringInfo(&relation, "%s.", quote_identifier(schema));
	}
	appendStringInfoString(&relation, name);
	if (strcmp(name, alias) != 0)
		appendStringInfo(&relation, " %s", alias);
	ExplainPropertyText("Relation", relation.data, es);

	ChangeVarNodes((Node *) clauses, 1, relid, 0);
	show_key_condition(plan, clauses, es);
	ExplainPropertyText("Access", "count", es);
}

void
kv_explain_foreign_scan(ForeignScanState *node, ExplainState *es)
{
	ForeignScan *plan = (ForeignScan *) node->ss.ps.plan;
	KvScanState *state = node->fdw_state;
	List	   *keys = list_nth(plan->fdw_private, KvScanPrivateKeys);
	List	   *clauses;
	bool		backward;

	if (KV_PLAN_COUNTS(plan))
	{
		explain_count(plan, es);
		return;
	}

	backward = boolVal(list_nth(plan->fdw_private, KvScanPrivateBackward));
	clauses = list_copy_tail(plan->fdw_exprs, list_length(keys));
	if (intVal(list_nth(plan->fdw_private, KvScanPrivateLimit)) < 0)
		clauses = list_truncate(clauses, list_length(clauses) - 2);
	show_key_condition(plan, clauses, es);
	ExplainPropertyText("Access",
						access_names[intVal(list_nth(plan->fdw_private, KvScanPrivateAccess))],
						es);
	if (backward)
		ExplainPropertyText("Direction", "backward", es);
	if (boolVal(list_nth(plan->fdw_private, KvScanPrivateByAddress)))
		ExplainPropertyText("Order", "storage", es);
	if (!boolVal(list_nth(plan->fdw_private, KvScanPrivateValues)))
		ExplainPropertyBool("Keys Only", true, es);

	if (es->analyze)
	{
		KvScanStats none = {0};
		const KvScanStats *stats = &none;

		if (state != NULL && state->scan != NULL)
		{
			stats = kv_scan_stats(state->scan);
			show_shards(state->scan, es);
		}
		if (stats->dead_keys > 0 || es->format != EXPLAIN_FORMAT_TEXT)
			ExplainPropertyUInteger("Dead Keys", NULL, stats->dead_keys, es);
		if (es->buffers)
			show_io(stats, es);
	}
}

/*
 * Show what an INSERT does with an existing key, if that is not an error.  Core shows all of ON
 * CONFLICT but the arbiter.
 */
static void
kv_explain_foreign_modify(ModifyTableState *mtstate, ResultRelInfo *rinfo,
						  List *fdw_private, int subplan_index,
						  ExplainState *es)
{
	KvTable    *table;

	if (mtstate->operation != CMD_INSERT)
		return;
	if (((ModifyTable *) mtstate->ps.plan)->onConflictAction != ONCONFLICT_NONE)
	{
		if (boolVal(list_nth(fdw_private, KvModifyPrivateTarget)))
			ExplainPropertyList("Conflict Arbiter Indexes",
								list_make1(kv_modify_constraint_name(rinfo->ri_RelationDesc)),
								es);
		return;
	}
	table = kv_table_get(rinfo->ri_RelationDesc);
	if (table->on_duplicate != KV_DUPLICATE_ERROR)
		ExplainPropertyText("On Duplicate",
							table->on_duplicate == KV_DUPLICATE_IGNORE ?
							"ignore" : "replace", es);
}

void
kv_explain_routine(FdwRoutine *routine)
{
	routine->ExplainForeignScan = kv_explain_foreign_scan;
	routine->ExplainForeignModify = kv_explain_foreign_modify;
}
