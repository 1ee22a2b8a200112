/*
 * plan.c
 *		Sizes, paths and plans of kvfdw tables.
 *
 * Every path reads the key range that its key conditions (keycond.c) leave, all but one in key
 * order, forward or backward.  The paths are:
 *
 *  - one that uses the restriction clauses, with whatever pathkeys of key order the query can
 *    use (ORDER BY, merge joins; MIN and MAX ask for them too), and its mirror image if the
 *    query can use descending order;
 *  - one that reads a whole table in order of address, if that is another order
 *    (engine/scan/byaddress.c); its first row is late, and it has no pathkeys;
 *  - one per useful set of outer relations whose columns join clauses compare with the key;
 *  - the same paths for a range that is shared with parallel workers, each of which returns its
 *    part in order.
 *
 * Of upper relations only count(*) is pushed down (count.c): the executor does the rest as well
 * as we could.  cost.c estimates the cost of a path.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/stratnum.h"
#include "access/table.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/cost.h"
#include "optimizer/inherit.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "optimizer/plancat.h"
#include "optimizer/planmain.h"
#include "optimizer/restrictinfo.h"
#include "storage/lwlock.h"
#include "utils/lsyscache.h"

#include "compat.h"
#include "engine/engine.h"
#include "engine/maintenance.h"
#include "engine/rows.h"
#include "fdw/fdw.h"

/* In ranges of so many rows or more, it matters whether values are scattered. */
#define KV_SCATTERED_ROWS		256

/* Sets of outer relations tried for parameterised paths. */
#define KV_MAX_OUTER_SETS		16

static KV_RELATION_INFO_HOOK_TYPE previous_relation_info = NULL;

static void kv_get_foreign_rel_size(PlannerInfo *root, RelOptInfo *baserel, Oid foreigntableid);

/*
 * The value that tell() returns for the table's store: 0 if there is none, -1 if it is not
 * known now.
 *
 * A damaged store does not make planning fail, so that EXPLAIN, a plan whose partition is
 * pruned, or a plan that is only prepared still work; execution reports the damage.  The
 * planner's callers hold no LWLock, so all that are held after the error are the store's.
 */
static double
ask_store(Oid relid, double (*tell) (KvStore *store))
{
	Relation	rel = table_open(relid, NoLock);
	MemoryContext context = CurrentMemoryContext;
	volatile double answer = -1;

	PG_TRY();
	{
		KvStore    *store = kv_table_store(rel, false);

		answer = store ? tell(store) : 0;
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		if (error->sqlerrcode != ERRCODE_DATA_CORRUPTED &&
			error->sqlerrcode != ERRCODE_INDEX_CORRUPTED &&
			error->sqlerrcode != ERRCODE_IO_ERROR &&
			error->sqlerrcode != ERRCODE_UNDEFINED_FILE)
			PG_RE_THROW();
		FlushErrorState();
		FreeErrorData(error);
		LWLockReleaseAll();
	}
	PG_END_TRY();

	table_close(rel, NoLock);
	return answer;
}

static double
count_rows(KvStore *store)
{
	return (double) kv_store_row_estimate(store);
}

static double
value_width(Oid relid)
{
	return ask_store(relid, kv_store_value_width);
}

/*
 * Tell the planner that the key is unique, by means of a unique index that does not exist.  It
 * is hypothetical, so it is never opened; it has no access method, so it is never scanned.  Row
 * estimates of joins, their removal, and the executor's "inner unique" shortcut depend on it.  It
 * takes the place of the catalog's index of a primary key, whose operator class tells nothing.
 */
static void
set_unique_index(RelOptInfo *rel, const KvTable *table)
{
	IndexOptInfo *index = makeNode(IndexOptInfo);
	int			nkeys = table->nkeys;

	rel->indexlist = NIL;

	index->rel = rel;
	index->pages = 1;
	index->tuples = rel->tuples;
	index->tree_height = -1;
	index->ncolumns = nkeys;
	index->nkeycolumns = nkeys;
	index->indexkeys = palloc0(sizeof(int) * nkeys);
	index->indexcollations = palloc0(sizeof(Oid) * nkeys);
	index->opfamily = palloc0(sizeof(Oid) * nkeys);
	index->opcintype = palloc0(sizeof(Oid) * nkeys);
	index->canreturn = palloc0(sizeof(bool) * nkeys);
	for (int i = 0; i < nkeys; i++)
	{
		TypeCacheEntry *entry = kv_key_type(&table->keys[i]);

		if (entry == NULL)
			return;
		index->indexkeys[i] = table->keys[i].attnum;
		index->indexcollations[i] = table->keys[i].collation;
		index->opfamily[i] = entry->btree_opf;
		index->opcintype[i] = entry->btree_opintype;
	}
	index->unique = true;
	index->immediate = true;
	index->hypothetical = true;
	rel->indexlist = list_make1(index);
}

/* Core has set up a relation of a query. */
static void
relation_info(KV_RELATION_INFO_PARAMS)
{
	const RangeTblEntry *table = root->simple_rte_array[rel->relid];

	if (previous_relation_info)
		previous_relation_info(KV_RELATION_INFO_ARGS);
	if (table->rtekind == RTE_RELATION && !table->inh && rel->fdwroutine != NULL &&
		rel->fdwroutine->GetForeignRelSize == kv_get_foreign_rel_size)
		set_unique_index(rel, kv_table_get_by_oid(table->relid));
}

void
kv_plan_init(void)
{
	previous_relation_info = KV_RELATION_INFO_HOOK;
	KV_RELATION_INFO_HOOK = relation_info;
}

static void
kv_get_foreign_rel_size(PlannerInfo *root, RelOptInfo *baserel,
						Oid foreigntableid)
{
	KvRelInfo  *info = palloc0(sizeof(KvRelInfo));
	Relation	rel;
	KvKeyMatch *match;
	double		tuples;

	kv_engine_require();
	kv_refuse_system_columns(root, baserel, foreigntableid);

	rel = table_open(foreigntableid, NoLock);
	info->table = kv_table_get(rel);
	info->has_row_triggers = kv_scan_locks(rel, root->parse->commandType);
	table_close(rel, NoLock);
	tuples = ask_store(foreigntableid, count_rows);
	info->scattered = -1;
	info->width = kv_row_width(baserel, foreigntableid, info->table, value_width);
	info->key_width = kv_key_width(foreigntableid, info->table);
	baserel->fdw_private = info;

	/*
	 * An empty table gets the planner's usual guess for one, ten pages: a
	 * plan made now may be used for years.
	 */
	if (tuples > 0)
		baserel->tuples = tuples;
	else if (baserel->tuples <= 0)
		baserel->tuples = (10 * BLCKSZ) /
			(info->width + MAXALIGN(SizeofHeapTupleHeader));
	baserel->pages = (BlockNumber)
		Min(MaxBlockNumber, 1 + baserel->tuples * info->width / BLCKSZ);

	set_baserel_size_estimates(root, baserel);

	match = kv_match_key(root, baserel, info->table, baserel->baserestrictinfo);
	if (match->access == KV_ACCESS_POINT && baserel->rows > match->nprefixes)
		baserel->rows = clamp_row_est(match->nprefixes);
}

/*
 * Does an UPDATE assign all value columns?  Then it does not need the old values, though core
 * asks for the whole old row to keep the columns that are not assigned.  attrs gets the columns
 * from which the new row is computed.
 */
static bool
overwrites_values(PlannerInfo *root, RelOptInfo *rel, const KvRelInfo *info,
				  Bitmapset **attrs)
{
	const KvTable *table = info->table;
	Bitmapset  *written = NULL;
	ListCell   *lc;

	if (root->parse->commandType != CMD_UPDATE ||
		rel->relid != root->parse->resultRelation ||
		rel->reloptkind != RELOPT_BASEREL ||
		!bms_equal(rel->relids, root->all_baserels) ||
		table->any_lossy || info->has_row_triggers ||
		kv_returns_old_row(root->parse->returningList))
		return false;

	/*
	 * columns that get an expression's value, and the generated ones that core computes again
	 * for that; a generated column SET to DEFAULT is neither
	 */
	foreach(lc, root->update_colnos)
		written = bms_add_member(written, lfirst_int(lc) - FirstLowInvalidHeapAttributeNumber);
	written = bms_add_members(written,
							  get_dependent_generated_columns(root, rel->relid, written));
	for (int i = 0; i < table->tupdesc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(table->tupdesc, i);

		if (!att->attisdropped && !KV_ATTRIBUTE_IS_VIRTUAL(att) && table->keyindex[i] < 0 &&
			!bms_is_member(i + 1 - FirstLowInvalidHeapAttributeNumber, written))
			return false;
	}

	foreach(lc, root->processed_tlist)
	{
		TargetEntry *entry = lfirst_node(TargetEntry, lc);

		if (!entry->resjunk || !IsA(entry->expr, Var) ||
			((Var *) entry->expr)->varattno != InvalidAttrNumber)
			pull_varattnos((Node *) entry->expr, rel->relid, attrs);
	}
	return true;
}

/*
 * Must values be read, or are the keys sufficient?  local: the clauses (RestrictInfos) that
 * will be evaluated on the row.
 */
static bool
needs_values(PlannerInfo *root, RelOptInfo *rel, const KvRelInfo *info, List *local)
{
	const KvTable *table = info->table;
	Bitmapset  *attrs = NULL;
	ListCell   *lc;
	int			member = -1;

	/*
	 * the relation's target, not the plan's target list, which may contain all columns even if
	 * few are used
	 */
	if (!overwrites_values(root, rel, info, &attrs))
		pull_varattnos((Node *) rel->reltarget->exprs, rel->relid, &attrs);
	foreach(lc, local)
		pull_varattnos((Node *) lfirst_node(RestrictInfo, lc)->clause,
					   rel->relid, &attrs);

	while ((member = bms_next_member(attrs, member)) >= 0)
	{
		AttrNumber	attnum = member + FirstLowInvalidHeapAttributeNumber;
		int			key;

		if (attnum < 0)
			continue;			/* a system column */
		if (attnum == 0)
			return true;		/* the whole row */
		key = table->keyindex[attnum - 1];
		if (key < 0 || table->keys[key].lossy)
			return true;
	}
	return false;
}

/*
 * Estimate a scan that uses match and evaluates the clauses in local, as
 * kv_cost_scan does.
 */
static void
cost_scan(PlannerInfo *root, RelOptInfo *rel, KvRelInfo *info,
		  KvKeyMatch *match, bool by_address, List *local, double rows, double sharers,
		  Cost *startup_cost, Cost *total_cost)
{
	bool		values = needs_values(root, rel, info, local);

	if (values && info->scattered < 0 && match->access != KV_ACCESS_POINT &&
		kv_entries_scanned(root, rel, match) >= KV_SCATTERED_ROWS)
	{
		double		share = ask_store(root->simple_rte_array[rel->relid]->relid,
									  kv_store_scattered);

		info->scattered = Max(share, 0);
	}
	kv_cost_scan(root, rel, match, values, by_address, local, rows, sharers,
				 startup_cost, total_cost);
}

/*
 * The pathkeys of key order that the planner knows, as far as they reach.
 *
 * A column bound by '=' is constant in the scan and neither adds a pathkey nor
 * ends the list.  As keys are never NULL, the scan is in NULLS FIRST and NULLS
 * LAST order at once: it takes whichever the query asks for.
 */
static List *
key_pathkeys(PlannerInfo *root, RelOptInfo *rel, const KvTable *table,
			 KvKeyMatch *match, bool backward)
{
	List	   *pathkeys = NIL;

	for (int i = 0; i < table->nkeys; i++)
	{
		const KvKeyColumn *column = &table->keys[i];
		Form_pg_attribute att = TupleDescAttr(table->tupdesc, column->attnum - 1);
		TypeCacheEntry *entry = kv_key_type(column);
		EquivalenceClass *eclass;
		PathKey    *pathkey = NULL;
		bool		redundant;
		Oid			equality;
		ListCell   *lc;

		if (bms_is_member(i, match->equal))
			continue;
		if (!column->ordered || entry == NULL)
			break;

		equality = get_opfamily_member(entry->btree_opf, entry->btree_opintype,
									   entry->btree_opintype,
									   BTEqualStrategyNumber);
		if (!OidIsValid(equality))
			break;
		eclass = kv_get_eclass_for_sort_expr(root,
											 (Expr *) makeVar(rel->relid,
															  column->attnum,
															  att->atttypid,
															  att->atttypmod,
															  att->attcollation,
															  0),
											 get_mergejoin_opfamilies(equality),
											 entry->btree_opintype,
											 att->attcollation, rel->relids);
		if (eclass == NULL)
			break;				/* the query does not use this column's order */

		redundant = EC_MUST_BE_REDUNDANT(eclass);
		foreach(lc, pathkeys)
			redundant = redundant ||
				((PathKey *) lfirst(lc))->pk_eclass == eclass;
		if (redundant)
			continue;

		foreach(lc, root->query_pathkeys)
		{
			PathKey    *asked = lfirst_node(PathKey, lc);

			if (asked->pk_eclass == eclass &&
				asked->pk_opfamily == entry->btree_opf &&
				KV_PATHKEY_IS_LESS(asked) == !backward)
				pathkey = asked;
		}
		if (pathkey == NULL)
			pathkey = make_canonical_pathkey(root, eclass, entry->btree_opf,
											 backward ? KV_PATHKEY_GREATER : KV_PATHKEY_LESS,
											 backward);
		pathkeys = lappend(pathkeys, pathkey);
	}
	return truncate_useless_pathkeys(root, rel, pathkeys);
}

/* The fdw_private of a path: enum KvPathPrivateIndex. */
static List *
path_private(const KvKeyMatch *match, bool backward, bool by_address)
{
	return list_make3(match->clauses, makeBoolean(backward), makeBoolean(by_address));
}

static void
add_scan_path(PlannerInfo *root, RelOptInfo *rel, KvKeyMatch *match,
			  double rows, Cost startup_cost, Cost total_cost,
			  List *pathkeys, bool backward, Relids required_outer)
{
	add_path(rel, (Path *)
			 kv_create_foreignscan_path(root, rel, NULL, rows,
										startup_cost, total_cost,
										pathkeys, required_outer,
										path_private(match, backward, false)));
}

/* Add a path that reads values in order of address, if some are scattered. */
static void
add_path_by_address(PlannerInfo *root, RelOptInfo *rel, KvRelInfo *info, KvKeyMatch *match)
{
	List	   *local = list_difference_ptr(rel->baserestrictinfo, match->exact);
	Cost		startup_cost;
	Cost		total_cost;

	if (match->access != KV_ACCESS_FULL || info->scattered <= 0 || !enable_sort)
		return;
	cost_scan(root, rel, info, match, true, local, rel->rows, 1, &startup_cost, &total_cost);
	add_path(rel, (Path *)
			 kv_create_foreignscan_path(root, rel, NULL, rel->rows,
										startup_cost, total_cost,
										NIL, rel->lateral_relids,
										path_private(match, false, true)));
}

/* For generate_implied_equalities_for_column: the key column sought. */
typedef struct KvMemberArg
{
	const KvTable *table;
	int			key;
} KvMemberArg;

static bool
member_is_key(PlannerInfo *root, RelOptInfo *rel, EquivalenceClass *ec,
			  EquivalenceMember *em, void *arg)
{
	KvMemberArg *wanted = arg;
	const KvKeyColumn *column = &wanted->table->keys[wanted->key];
	TypeCacheEntry *entry = kv_key_type(column);

	return entry != NULL &&
		list_member_oid(ec->ec_opfamilies, entry->btree_opf) &&
		kv_operand_is_key(rel, column, (Node *) em->em_expr);
}

/* The join clauses that compare key column number key with other relations. */
static List *
join_clauses_on_key(PlannerInfo *root, RelOptInfo *rel, const KvTable *table,
					int key)
{
	KvMemberArg arg = {table, key};
	List	   *result = NIL;
	List	   *implied;
	ListCell   *lc;

	foreach(lc, rel->joininfo)
	{
		RestrictInfo *rinfo = lfirst_node(RestrictInfo, lc);

		if (join_clause_is_movable_to(rinfo, rel) &&
			kv_clause_matches_key(root, rel, table, key, rinfo))
			result = lappend(result, rinfo);
	}

	if (!rel->has_eclass_joins)
		return result;
	implied = generate_implied_equalities_for_column(root, rel, member_is_key,
													 &arg,
													 rel->lateral_referencers);
	foreach(lc, implied)
	{
		RestrictInfo *rinfo = lfirst_node(RestrictInfo, lc);

		if (join_clause_is_movable_to(rinfo, rel) &&
			kv_clause_matches_key(root, rel, table, key, rinfo))
			result = lappend(result, rinfo);
	}
	return result;
}

static List *
append_relids_once(List *sets, Relids relids)
{
	ListCell   *lc;

	foreach(lc, sets)
	{
		if (bms_equal(lfirst(lc), relids))
			return sets;
	}
	return lappend(sets, relids);
}

/*
 * Add the path that a set of outer relations (and the restriction clauses) allow, unless a path
 * with the same relations was added before.  done collects the sets.
 */
static List *
add_parameterised_path(PlannerInfo *root, RelOptInfo *rel, KvRelInfo *info,
					   List *joinclauses, Relids outer, List *done)
{
	List	   *clauses = list_copy(rel->baserestrictinfo);
	Relids		available = bms_add_member(bms_copy(outer), rel->relid);
	Relids		required = NULL;
	KvKeyMatch *match;
	ParamPathInfo *param_info;
	List	   *local;
	double		rows;
	Cost		startup_cost;
	Cost		total_cost;
	ListCell   *lc;

	foreach(lc, joinclauses)
	{
		if (bms_is_subset(lfirst_node(RestrictInfo, lc)->clause_relids, available))
			clauses = lappend(clauses, lfirst(lc));
	}
	match = kv_match_key(root, rel, info->table, clauses);

	/* require no relation of a clause that was not chosen */
	foreach(lc, match->clauses)
		required = bms_add_members(required,
								   lfirst_node(RestrictInfo, lc)->clause_relids);
	required = bms_del_member(required, rel->relid);
	if (bms_is_empty(required))
		return done;
	required = bms_add_members(required, rel->lateral_relids);
	required = bms_del_member(required, rel->relid);

	if (list_length(append_relids_once(list_copy(done), required)) ==
		list_length(done))
		return done;

	param_info = get_baserel_parampathinfo(root, rel, required);
	rows = param_info->ppi_rows;
	if (match->access == KV_ACCESS_POINT)
		rows = clamp_row_est(Min(rows, match->nprefixes));
	param_info->ppi_rows = rows;

	local = list_difference_ptr(list_concat_copy(rel->baserestrictinfo,
										   param_info->ppi_clauses),
						  match->exact);
	cost_scan(root, rel, info, match, false, local, rows, 1, &startup_cost, &total_cost);
	/* no pathkeys: the planner does not use those of parameterised paths */
	add_scan_path(root, rel, match, rows, startup_cost, total_cost,
				  NIL, false, required);
	return lappend(done, required);
}

/*
 * Add parameterised paths: one for each relation that a join clause compares the first key
 * column with, and one for each union with those of later columns.
 */
static void
add_parameterised_paths(PlannerInfo *root, RelOptInfo *rel, KvRelInfo *info)
{
	List	   *joinclauses = NIL;
	List	   *sets = NIL;
	List	   *done = NIL;
	ListCell   *lc;

	for (int key = 0; key < info->table->nkeys; key++)
	{
		List	   *found = join_clauses_on_key(root, rel, info->table, key);
		List	   *before = list_copy(sets);

		joinclauses = list_concat_unique_ptr(joinclauses, found);
		foreach(lc, found)
		{
			Relids		outer =
				bms_del_member(bms_copy(lfirst_node(RestrictInfo, lc)->clause_relids),
											   rel->relid);
			ListCell   *lc2;

			if (list_length(sets) >= KV_MAX_OUTER_SETS)
				break;
			sets = append_relids_once(sets, outer);
			foreach(lc2, before)
				sets = append_relids_once(sets, bms_union(outer, lfirst(lc2)));
		}
	}

	foreach(lc, sets)
		done = add_parameterised_path(root, rel, info, joinclauses,
									  lfirst(lc), done);
}

/*
 * Add a path that shares a full scan or a single range with parallel workers, as many as heap
 * would use.
 */
static void
add_parallel_path(PlannerInfo *root, RelOptInfo *rel, KvRelInfo *info, KvKeyMatch *match,
				  List *pathkeys, bool backward)
{
	int			workers = compute_parallel_worker(rel, rel->pages, -1,
												  max_parallel_workers_per_gather);
	double		sharers = workers;
	double		rows;
	Cost		startup_cost;
	Cost		total_cost;
	ForeignPath *path;

	if (workers <= 0 || match->access == KV_ACCESS_POINT || match->nprefixes > 1)
		return;

	/* the leader helps as far as the workers leave it time, as in costsize.c */
	if (parallel_leader_participation)
		sharers += Max(1.0 - 0.3 * workers, 0.0);
	rows = clamp_row_est(rel->rows / sharers);
	cost_scan(root, rel, info, match, false,
			  list_difference_ptr(rel->baserestrictinfo, match->exact),
			  rel->rows, sharers, &startup_cost, &total_cost);
	path = kv_create_foreignscan_path(root, rel, NULL, rows, startup_cost, total_cost,
									  pathkeys, NULL,
									  path_private(match, backward, false));
	path->path.parallel_aware = true;
	path->path.parallel_workers = workers;
	add_partial_path(rel, (Path *) path);
}

/*
 * The LockTupleMode in which the scan locks its rows, or -1.  UPDATE and DELETE lock their
 * target's rows themselves, and the executor locks those of a row mark; the scan locks rows
 * that row triggers see.
 */
static int
scan_lock_mode(PlannerInfo *root, RelOptInfo *baserel, const KvRelInfo *info)
{
	const KvTable *table = info->table;
	Bitmapset  *updated;

	if (!info->has_row_triggers || !bms_is_member(baserel->relid, root->all_result_relids))
		return -1;
	if (root->parse->commandType != CMD_UPDATE)
		return LockTupleExclusive;
	updated = get_rel_all_updated_cols(root, baserel);
	for (int i = 0; i < table->nkeys; i++)
	{
		if (bms_is_member(table->keys[i].attnum - FirstLowInvalidHeapAttributeNumber,
						  updated))
			return LockTupleExclusive;
	}
	return LockTupleNoKeyExclusive;
}

static void
kv_get_foreign_paths(PlannerInfo *root, RelOptInfo *baserel, Oid foreigntableid)
{
	KvRelInfo  *info = baserel->fdw_private;
	KvKeyMatch *match;
	List	   *pathkeys;
	Cost		startup_cost;
	Cost		total_cost;
	bool		ordered;
	bool		parallel;

	/* a scan that locks returns newer versions, whose keys may differ */
	ordered = has_useful_pathkeys(root, baserel) &&
		scan_lock_mode(root, baserel, info) < 0;

	match = kv_match_key(root, baserel, info->table, baserel->baserestrictinfo);
	cost_scan(root, baserel, info, match, false,
			  list_difference_ptr(baserel->baserestrictinfo, match->exact),
			  baserel->rows, 1, &startup_cost, &total_cost);

	parallel = baserel->consider_parallel && bms_is_empty(baserel->lateral_relids);
	pathkeys = ordered ?
		key_pathkeys(root, baserel, info->table, match, false) : NIL;
	add_scan_path(root, baserel, match, baserel->rows, startup_cost, total_cost,
				  pathkeys, false, baserel->lateral_relids);
	if (parallel)
		add_parallel_path(root, baserel, info, match, pathkeys, false);

	pathkeys = ordered ?
		key_pathkeys(root, baserel, info->table, match, true) : NIL;
	if (pathkeys != NIL)
		add_scan_path(root, baserel, match, baserel->rows, startup_cost,
					  total_cost, pathkeys, true, baserel->lateral_relids);
	if (pathkeys != NIL && parallel)
		add_parallel_path(root, baserel, info, match, pathkeys, true);

	add_path_by_address(root, baserel, info, match);
	add_parameterised_paths(root, baserel, info);
}

/*
 * Do the key conditions cover this scan clause?  They do if it is one of their clauses, or
 * derived from the same equivalence class as one, as index scans decide it; or if it says that
 * a key column is not NULL (MIN and MAX do).
 */
static bool
is_covered(RelOptInfo *rel, const KvTable *table, RestrictInfo *rinfo,
		   KvKeyMatch *match)
{
	ListCell   *lc;

	foreach(lc, match->exact)
	{
		RestrictInfo *chosen = lfirst_node(RestrictInfo, lc);

		if (chosen == rinfo ||
			(rinfo->parent_ec != NULL && rinfo->parent_ec == chosen->parent_ec))
			return true;
	}

	if (IsA(rinfo->clause, NullTest) &&
		((NullTest *) rinfo->clause)->nulltesttype == IS_NOT_NULL)
	{
		for (int i = 0; i < table->nkeys; i++)
		{
			if (kv_operand_is_key(rel, &table->keys[i],
								  (Node *) ((NullTest *) rinfo->clause)->arg))
				return true;
		}
	}
	return false;
}

/*
 * Will a LIMIT of the query, if it has one, end this scan?  Then the scan is the only one,
 * and all of its rows are the query's, in the query's order.
 */
static bool
limit_ends_scan(PlannerInfo *root, RelOptInfo *rel, ForeignPath *path, List *local)
{
	const Query *query = root->parse;

	return local == NIL && path->path.param_info == NULL &&
		bms_equal(rel->relids, root->all_baserels) &&
		pathkeys_contained_in(root->query_pathkeys, path->path.pathkeys) &&
		query->groupClause == NIL && query->groupingSets == NIL &&
		query->distinctClause == NIL && !query->hasAggs && !query->hasWindowFuncs &&
		!query->hasTargetSRFs && !root->hasHavingQual;
}

/* Has an expression a value that is known only at execution time? */
static bool
needs_plan(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, Param))
		return ((Param *) node)->paramkind != PARAM_EXTERN;
	if (IsA(node, SubPlan) || IsA(node, AlternativeSubPlan) || IsA(node, SubLink))
		return true;
	return expression_tree_walker(node, needs_plan, context);
}

/*
 * How many rows is the query going to take from this scan?  0: all, or unknown; -1: the scan
 * evaluates *limit when it begins.  Only a hint to the engine: the Limit node stays where it
 * is.
 */
static int
limit_hint(PlannerInfo *root, RelOptInfo *rel, ForeignPath *path, List *local, List **limit)
{
	const Query *query = root->parse;

	*limit = NIL;
	if (!limit_ends_scan(root, rel, path, local))
		return 0;
	if (root->limit_tuples > 0)
		return (int) Min(root->limit_tuples, INT_MAX);
	if (query->limitCount == NULL || IsA(query->limitCount, Const))
		return 0;
	*limit = list_make2(query->limitCount, query->limitOffset != NULL ? query->limitOffset :
						(Node *) makeNullConst(INT8OID, -1, InvalidOid));
	if (needs_plan((Node *) *limit, NULL) || contain_volatile_functions((Node *) *limit))
	{
		*limit = NIL;
		return 0;
	}
	return -1;
}

static ForeignScan *
kv_get_foreign_plan(PlannerInfo *root, RelOptInfo *baserel, Oid foreigntableid,
					ForeignPath *best_path, List *tlist, List *scan_clauses,
					Plan *outer_plan)
{
	KvRelInfo  *info = baserel->fdw_private;
	List	   *chosen;
	bool		backward;
	bool		by_address;
	KvKeyMatch *match;
	List	   *local = NIL;
	List	   *values;
	List	   *key_clauses;
	List	   *recheck;
	List	   *fdw_private;
	List	   *limit;
	ListCell   *lc;

	if (IS_UPPER_REL(baserel))
		return kv_count_plan(root, baserel, tlist);

	chosen = list_nth(best_path->fdw_private, KvPathPrivateClauses);
	backward = boolVal(list_nth(best_path->fdw_private, KvPathPrivateBackward));
	by_address = boolVal(list_nth(best_path->fdw_private, KvPathPrivateByAddress));
	match = kv_match_key(root, baserel, info->table, chosen);
	foreach(lc, scan_clauses)
	{
		RestrictInfo *rinfo = lfirst_node(RestrictInfo, lc);

		if (!rinfo->pseudoconstant &&
			!is_covered(baserel, info->table, rinfo, match))
			local = lappend(local, rinfo);
	}

	key_clauses = extract_actual_clauses(match->clauses, false);
	recheck = extract_actual_clauses(match->exact, false);

	/* Items must match enum KvScanPrivateIndex */
	fdw_private = kv_plan_conditions(match, &values);
	fdw_private = lappend(fdw_private, makeBoolean(backward));
	fdw_private = lappend(fdw_private, makeBoolean(by_address));
	fdw_private = lappend(fdw_private, makeBoolean(best_path->path.pathkeys != NIL));
	fdw_private = lappend(fdw_private,
						  makeBoolean(needs_values(root, baserel, info, local)));
	fdw_private = lappend(fdw_private,
						  makeInteger(limit_hint(root, baserel, best_path, local, &limit)));
	fdw_private = lappend(fdw_private,
						  makeInteger(scan_lock_mode(root, baserel, info)));
	fdw_private = lappend(fdw_private, makeInteger(root->parse->commandType));

	/*
	 * Clauses of exact key conditions are not in the node's quals: they hold for every row of
	 * the range.  EvalPlanQual tests rows that did not come from the range, so there the
	 * clauses are its recheck quals.  A query that neither locks nor changes rows does not use
	 * EvalPlanQual.
	 */
	if (root->rowMarks == NIL && root->parse->resultRelation == 0)
		recheck = NIL;
	return make_foreignscan(tlist,
							extract_actual_clauses(local, false),
							baserel->relid,
							list_concat(list_concat(values, key_clauses), limit),
							fdw_private,
							NIL,
							recheck,
							outer_plan);
}

/*
 * For row marks of its own, LockRows locks a row only once it has passed all nodes below: sort,
 * limit, joins.  Rows that are not locked are copied whole.
 */
static RowMarkType
kv_get_foreign_row_mark_type(RangeTblEntry *rte, LockClauseStrength strength)
{
	switch (strength)
	{
		case LCS_NONE:
			return ROW_MARK_COPY;
		case LCS_FORKEYSHARE:
			return ROW_MARK_KEYSHARE;
		case LCS_FORSHARE:
			return ROW_MARK_SHARE;
		case LCS_FORNOKEYUPDATE:
			return ROW_MARK_NOKEYEXCLUSIVE;
		case LCS_FORUPDATE:
			break;
	}
	return ROW_MARK_EXCLUSIVE;
}

void
kv_plan_routine(FdwRoutine *routine)
{
	routine->GetForeignRelSize = kv_get_foreign_rel_size;
	routine->GetForeignPaths = kv_get_foreign_paths;
	routine->GetForeignUpperPaths = kv_get_foreign_upper_paths;
	routine->GetForeignPlan = kv_get_foreign_plan;
	routine->GetForeignRowMarkType = kv_get_foreign_row_mark_type;
	routine->AnalyzeForeignTable = kv_analyze_foreign_table;
}
