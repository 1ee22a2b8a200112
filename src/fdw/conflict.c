/*
 * conflict.c
 *		INSERT of a key that exists: is the conflict target of ON CONFLICT the key, and may
 *		on_duplicate 'replace' overwrite the row?
 *
 * ON CONFLICT.  The planner looks for the unique indexes that a conflict target names, and
 * refuses the statement if there is none, as there is none on a foreign table.  Without a target
 * it looks for none: then every unique index counts.  A kvfdw table has a single possible
 * conflict, its key.  So a target that names exactly the key is removed from a copy of the
 * statement, and any other one is left for core to refuse.  Rewriting is over when the planner
 * hook runs, so views and rules are resolved.
 *
 * Columns are matched as those of a PRIMARY KEY would be: the same columns in any order; if a
 * collation or operator class is given, the one that such an index would have; and any
 * predicate, since the index would not be partial.  ON CONSTRAINT with the name of the table's
 * primary key names the key, too, whose index core could not use.
 *
 * A partitioned table with a foreign partition has no unique index, so all its partitions must
 * agree.  For a kvfdw partition that means its key.  For a heap partition all unique indexes
 * must be on those columns, because without a target each of them counts.  The plan depends on
 * all these tables, and locks the heap ones when it is used again, in case an index was added.
 *
 * on_duplicate 'replace'.  PostgreSQL has checked the privilege INSERT alone, and does not look
 * at the existing row.  So the checks of an upsert are made here, once in a statement, from the
 * permissions that the executor has: those of the table that the statement names, and of the
 * views through which it reaches the table.  For each the role that needed INSERT needs UPDATE.
 *
 * The check is made when a row is overwritten, not in advance: a role with INSERT alone gets an
 * error only where, without the option, it would get one too.
 *
 * The plan of an INSERT without ON CONFLICT has neither policies for the existing row nor the
 * WHERE of views.  Where such exist the option does not apply.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/relation.h"
#include "access/table.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "catalog/pg_index.h"
#include "catalog/pg_inherits.h"
#include "commands/defrem.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "optimizer/planner.h"
#include "parser/parsetree.h"
#include "rewrite/prs2lock.h"
#include "rewrite/rewriteHandler.h"
#include "utils/acl.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/rls.h"

#include "compat.h"
#include "fdw/modify.h"

/* ---- the conflict target ---- */

/* Properties of a unique index's column that a conflict target may name. */
typedef struct KvArbiterColumn
{
	AttrNumber	attnum;			/* as the statement's target numbers it, not the partition */
	Oid			collation;
	Oid			family;
	Oid			input;			/* the operator class's type */
} KvArbiterColumn;

/* Tables on which the plan depends, in addition to those that core knows of. */
typedef struct KvPlanTables
{
	List	   *relations;		/* OIDs */
	List	   *locked;			/* RangeTblEntrys of those to lock */
} KvPlanTables;

static planner_hook_type previous_planner = NULL;

/* ---- one table ---- */

static bool
element_names(const InferenceElem *element, const KvArbiterColumn *column)
{
	if (((Var *) element->expr)->varattno != column->attnum)
		return false;
	if (OidIsValid(element->infercollid) && element->infercollid != column->collation)
		return false;
	return !OidIsValid(element->inferopclass) ||
		(get_opclass_family(element->inferopclass) == column->family &&
		 get_opclass_input_type(element->inferopclass) == column->input);
}

/* Does the conflict target name all of these columns, and no other? */
static bool
target_names(const OnConflictExpr *conflict, const KvArbiterColumn *columns, int ncolumns)
{
	Bitmapset  *named = NULL;
	ListCell   *lc;

	foreach(lc, conflict->arbiterElems)
	{
		InferenceElem *element = lfirst_node(InferenceElem, lc);
		int			i = 0;

		if (!IsA(element->expr, Var))
			return false;
		while (i < ncolumns && !element_names(element, &columns[i]))
			i++;
		if (i == ncolumns)
			return false;
		named = bms_add_member(named, columns[i].attnum);
	}
	for (int i = 0; i < ncolumns; i++)
	{
		if (!bms_is_member(columns[i].attnum, named))
			return false;
	}
	return true;
}

/* A partition's column as its parent numbers it. */
static AttrNumber
parent_attnum(Oid relid, AttrNumber attnum, Oid parent)
{
	if (relid == parent)
		return attnum;
	return get_attnum(parent, get_attname(relid, attnum, false));
}

static bool
names_key(const OnConflictExpr *conflict, Oid relid, Oid target)
{
	KvTable    *table = kv_table_get_by_oid(relid);
	KvArbiterColumn *columns = palloc(sizeof(KvArbiterColumn) * table->nkeys);

	for (int i = 0; i < table->nkeys; i++)
	{
		AttrNumber	attnum = table->keys[i].attnum;
		Form_pg_attribute att = TupleDescAttr(table->tupdesc, attnum - 1);
		Oid			opclass = GetDefaultOpClass(att->atttypid, BTREE_AM_OID);

		columns[i].attnum = parent_attnum(relid, attnum, target);
		columns[i].collation = att->attcollation;
		columns[i].family = get_opclass_family(opclass);
		columns[i].input = get_opclass_input_type(opclass);
	}
	return target_names(conflict, columns, table->nkeys);
}

/* ---- the partitions of one table ---- */

/* Does the target name this index as arbiter? */
static bool
names_index(const OnConflictExpr *conflict, Relation index, Oid relid, Oid target)
{
	Form_pg_index form = index->rd_index;
	KvArbiterColumn columns[INDEX_MAX_KEYS];

	if (!form->indisunique || !form->indimmediate || !form->indisvalid ||
		!heap_attisnull(index->rd_indextuple, Anum_pg_index_indexprs, NULL) ||
		!heap_attisnull(index->rd_indextuple, Anum_pg_index_indpred, NULL))
		return false;
	for (int i = 0; i < form->indnkeyatts; i++)
	{
		columns[i].attnum = parent_attnum(relid, form->indkey.values[i], target);
		columns[i].collation = index->rd_indcollation[i];
		columns[i].family = index->rd_opfamily[i];
		columns[i].input = index->rd_opcintype[i];
	}
	return target_names(conflict, columns, form->indnkeyatts);
}

/* Does the target name every unique index of a heap table, and is there one? */
static bool
names_all_indexes(const OnConflictExpr *conflict, Oid relid, Oid target)
{
	Relation	rel = try_table_open(relid, RowExclusiveLock);
	bool		named = true;
	int			count = 0;
	ListCell   *lc;

	if (rel == NULL)
		return true;			/* dropped concurrently */
	foreach(lc, RelationGetIndexList(rel))
	{
		Relation	index = index_open(lfirst_oid(lc), AccessShareLock);

		if (index->rd_index->indisunique || index->rd_index->indisexclusion)
		{
			named = named && names_index(conflict, index, relid, target);
			count++;
		}
		index_close(index, NoLock);
	}
	table_close(rel, NoLock);
	return named && count > 0;
}

/* In a tree of heap tables core finds the arbiter itself. */
static bool
has_unique_index(Oid relid)
{
	Relation	rel = table_open(relid, NoLock);
	bool		found = false;
	ListCell   *lc;

	foreach(lc, RelationGetIndexList(rel))
	{
		Relation	index = index_open(lfirst_oid(lc), AccessShareLock);

		found |= index->rd_index->indisunique;
		index_close(index, NoLock);
	}
	table_close(rel, NoLock);
	return found;
}

static void
depend_on_heap(KvPlanTables *tables, Oid relid)
{
	RangeTblEntry *rte = makeNode(RangeTblEntry);

	rte->rtekind = RTE_RELATION;
	rte->relid = relid;
	rte->relkind = RELKIND_RELATION;
	rte->rellockmode = RowExclusiveLock;
	rte->eref = makeAlias(get_rel_name(relid), NIL);
	tables->locked = lappend(tables->locked, rte);
}

static bool
names_keys_of_partitions(const OnConflictExpr *conflict, Oid target, KvPlanTables *tables)
{
	List	   *heaps = NIL;
	List	   *ours = NIL;
	ListCell   *lc;

	if (has_unique_index(target))
		return false;
	foreach(lc, find_all_inheritors(target, AccessShareLock, NULL))
	{
		char		relkind = get_rel_relkind(lfirst_oid(lc));

		if (relkind == RELKIND_RELATION)
			heaps = lappend_oid(heaps, lfirst_oid(lc));
		else if (relkind == RELKIND_FOREIGN_TABLE)
		{
			if (!kv_is_foreign_table(lfirst_oid(lc)))
				return false;
			ours = lappend_oid(ours, lfirst_oid(lc));
		}
	}
	foreach(lc, ours)
	{
		if (!names_key(conflict, lfirst_oid(lc), target))
			return false;
	}
	if (ours == NIL)
		return false;
	foreach(lc, heaps)
	{
		if (!names_all_indexes(conflict, lfirst_oid(lc), target))
			return false;
	}
	foreach(lc, heaps)
		depend_on_heap(tables, lfirst_oid(lc));
	tables->relations = list_concat(list_concat(tables->relations, ours), heaps);
	return true;
}

/* ---- a statement ---- */

/* Is a constraint the primary key of one of our tables? */
static bool
is_primary_key(Oid constraint, Oid relid)
{
	Oid			index = get_constraint_index(constraint);
	Relation	rel;
	bool		is_it;

	if (!OidIsValid(index) || !kv_is_foreign_table(relid))
		return false;
	rel = table_open(relid, NoLock);
	is_it = kv_primary_key(rel) == index;
	table_close(rel, NoLock);
	return is_it;
}

static bool
target_is_key(const Query *query, KvPlanTables *tables)
{
	const RangeTblEntry *rte = rt_fetch(query->resultRelation, query->rtable);

	if (rte->rtekind != RTE_RELATION)
		return false;
	if (OidIsValid(query->onConflict->constraint))
		return is_primary_key(query->onConflict->constraint, rte->relid);
	if (rte->relkind == RELKIND_FOREIGN_TABLE)
		return kv_is_foreign_table(rte->relid) &&
			names_key(query->onConflict, rte->relid, rte->relid);
	return rte->relkind == RELKIND_PARTITIONED_TABLE &&
		names_keys_of_partitions(query->onConflict, rte->relid, tables);
}

static void *
copy_node(const void *node, Size size)
{
	void	   *copy = palloc(size);

	memcpy(copy, node, size);
	return copy;
}

/* Remove conflict targets that are keys: returns the statement, or a copy. */
static Query *
take_targets(Query *query, KvPlanTables *tables)
{
	Query	   *copy = query;
	ListCell   *lc;

	foreach(lc, query->cteList)
	{
		CommonTableExpr *cte = lfirst_node(CommonTableExpr, lc);
		Query	   *old = (Query *) cte->ctequery;
		Query	   *new = IsA(old, Query) ? take_targets(old, tables) : old;

		if (new == old)
			continue;
		if (copy == query)
		{
			copy = copy_node(query, sizeof(Query));
			copy->cteList = list_copy(query->cteList);
		}
		cte = copy_node(cte, sizeof(CommonTableExpr));
		cte->ctequery = (Node *) new;
		lfirst(list_nth_cell(copy->cteList, foreach_current_index(lc))) = cte;
	}

	if (query->onConflict == NULL ||
		(query->onConflict->arbiterElems == NIL && !OidIsValid(query->onConflict->constraint)) ||
		!target_is_key(query, tables))
		return copy;
	if (copy == query)
		copy = copy_node(query, sizeof(Query));
	copy->onConflict = copy_node(query->onConflict, sizeof(OnConflictExpr));
	copy->onConflict->arbiterElems = NIL;
	copy->onConflict->constraint = InvalidOid;
	copy->onConflict->arbiterWhere = makeBoolConst(false, false);
	return copy;
}

/* take_targets leaves an inference predicate without a target. */
bool
kv_conflict_target_was_given(const Query *query)
{
	return query->onConflict != NULL && query->onConflict->arbiterElems == NIL &&
		query->onConflict->arbiterWhere != NULL;
}

static PlannedStmt *
plan_statement(KV_PLANNER_PARAMS(query, text, options, params))
{
	KvPlanTables tables = {NIL, NIL};
	PlannedStmt *plan;
	bool		rowwise = kv_rowwise_statement(query);

	query = take_targets(query, &tables);
	if (previous_planner)
		plan = previous_planner(KV_PLANNER_ARGS(query, text, options, params));
	else
		plan = standard_planner(KV_PLANNER_ARGS(query, text, options, params));
	plan->relationOids = list_concat(plan->relationOids, tables.relations);
	plan->rtable = list_concat(plan->rtable, tables.locked);
	kv_rowwise_note(plan, rowwise);
	return plan;
}

void
kv_conflict_init(void)
{
	previous_planner = planner_hook;
	planner_hook = plan_statement;
}

/* ---- on_duplicate 'replace' ---- */

/* An INSTEAD rule's own statement executes the insert, for the rule's owner. */
static bool
has_instead_rule(Relation view)
{
	for (int i = 0; i < view->rd_rules->numLocks; i++)
	{
		if (view->rd_rules->rules[i]->event == CMD_INSERT && view->rd_rules->rules[i]->isInstead)
			return true;
	}
	return false;
}

/*
 * The base relation of an automatically updatable view, or InvalidOid.  *hides is set if the
 * view may hide some of its rows.
 */
static Oid
base_of_view(Oid viewid, bool *hides)
{
	Relation	view = relation_open(viewid, AccessShareLock);
	Oid			base = InvalidOid;

	if (view->rd_rel->relkind == RELKIND_VIEW && !has_instead_rule(view))
	{
		Query	   *query = get_view_query(view);
		List	   *from = query->jointree->fromlist;

		if (list_length(from) == 1 && IsA(linitial(from), RangeTblRef))
			base = rt_fetch(linitial_node(RangeTblRef, from)->rtindex, query->rtable)->relid;
		*hides |= query->jointree->quals != NULL;
	}
	relation_close(view, AccessShareLock);
	return base;
}

static bool
view_leads_to(Oid viewid, Oid table, bool *hides)
{
	bool		hidden = false;
	Oid			base = viewid;

	do
		base = base_of_view(base, &hidden);
	while (base != table && OidIsValid(base) && get_rel_relkind(base) == RELKIND_VIEW);
	if (base != table)
		return false;
	*hides |= hidden;
	return true;
}

static bool
may_update(Oid relid, Oid role)
{
	return pg_class_aclcheck(relid, role, ACL_UPDATE) == ACLCHECK_OK ||
		pg_attribute_aclcheck_all(relid, role, ACL_UPDATE, ACLMASK_ALL) == ACLCHECK_OK;
}

bool
kv_may_replace(KvModifyState *state, EState *estate, ResultRelInfo *rinfo)
{
	ResultRelInfo *root = rinfo->ri_RootResultRelInfo ? rinfo->ri_RootResultRelInfo : rinfo;
	Oid			table = RelationGetRelid(root->ri_RelationDesc);
	bool		hides = false;
	ListCell   *lc;

	if (state->replace != KV_REPLACE_UNKNOWN)
		return state->replace == KV_REPLACES;
	foreach(lc, KV_PERMISSIONS(estate))
	{
		KvPermission *needed = lfirst(lc);
		Oid			role = OidIsValid(needed->checkAsUser) ? needed->checkAsUser : GetUserId();

		if ((needed->requiredPerms & ACL_INSERT) == 0 ||
			(needed->relid != table &&
			 (get_rel_relkind(needed->relid) != RELKIND_VIEW ||
			  !view_leads_to(needed->relid, table, &hides))))
			continue;
		if (needed->relid == table)
			hides |= check_enable_rls(table, needed->checkAsUser, true) == RLS_ENABLED;
		if (!may_update(needed->relid, role))
		{
			state->replace = KV_REPLACE_DENIED;
			state->denied = needed->relid;
			return false;
		}
	}
	state->replace = hides ? KV_REPLACE_HIDDEN : KV_REPLACES;
	return !hides;
}

void
kv_raise_denied(const KvModifyState *state)
{
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("permission denied to replace a row of foreign table \"%s\"",
					RelationGetRelationName(state->rel)),
			 errdetail("With the option on_duplicate 'replace', to replace a row requires the "
					   "UPDATE privilege on \"%s\".",
					   get_rel_name(state->denied))));
}
