/*
 * rowwise.c
 *		Must an INSERT write each row before it computes the next one?
 *
 * On heap it does.  A volatile function, in any part of the statement, sees the rows that the
 * statement has inserted so far.  So an INSERT whose plan calls such a function writes row by row,
 * and others in batches (batch.c).  Functions of PostgreSQL that are volatile and read no table are
 * listed here.  Functions that are not volatile use the statement's snapshot, which sees none of
 * its rows.  PostgreSQL itself writes what is pending before a BEFORE trigger runs.
 *
 * The question is about the whole statement: a WITH query that is evaluated row by row may be
 * outside the INSERT.  So it is asked before the planner changes the query, and the answer is
 * stored in the plan of each INSERT.
 */
#include "postgres.h"

#include "catalog/pg_class.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_proc.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "parser/parsetree.h"
#include "utils/lsyscache.h"
#include "utils/typcache.h"

#include "compat.h"
#include "fdw/fdw.h"

static const char *const reads_nothing[] = {
	"nextval", "currval", "lastval", "setval", "random", "random_normal", "setseed",
	"clock_timestamp", "timeofday", "gen_random_uuid", "uuidv4", "uuidv7", "pg_sleep"
};

static bool
may_read_tables(Oid function, void *context)
{
	char	   *name;

	if (func_volatile(function) != PROVOLATILE_VOLATILE)
		return false;
	if (get_func_namespace(function) != PG_CATALOG_NAMESPACE)
		return true;
	name = get_func_name(function);
	for (int i = 0; i < lengthof(reads_nothing); i++)
	{
		if (strcmp(name, reads_nothing[i]) == 0)
			return false;
	}
	return true;
}

static bool find_reader(Node *node, void *context);

static bool
domain_may_read(Oid type)
{
	/* its memory context refers to it from now on */
	DomainConstraintRef *constraints = palloc(sizeof(DomainConstraintRef));
	ListCell   *lc;

	InitDomainConstraintRef(type, constraints, CurrentMemoryContext, false);
	foreach(lc, constraints->constraints)
	{
		if (find_reader((Node *) ((DomainConstraintState *) lfirst(lc))->check_expr, NULL))
			return true;
	}
	return false;
}

static bool
find_reader(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (check_functions_in_node(node, may_read_tables, context))
		return true;
	if (IsA(node, CoerceToDomain) && domain_may_read(((CoerceToDomain *) node)->resulttype))
		return true;
	if (IsA(node, Query))
		return query_tree_walker((Query *) node, find_reader, context, 0);
	return expression_tree_walker(node, find_reader, context);
}

bool
kv_rowwise_expression(Node *expression)
{
	return find_reader(expression, NULL);
}

/* Does the statement insert into a table that may be, or may have as a partition, one of ours? */
static bool
inserts(const Query *query)
{
	const RangeTblEntry *rte;

	if (query->hasModifyingCTE)
		return true;
	if (query->commandType != CMD_INSERT)
		return false;
	rte = rt_fetch(query->resultRelation, query->rtable);
	return rte->relkind == RELKIND_FOREIGN_TABLE || rte->relkind == RELKIND_PARTITIONED_TABLE;
}

bool
kv_rowwise_statement(Query *query)
{
	return inserts(query) && find_reader((Node *) query, NULL);
}

/* The plan's private list of a partitioned table has this item only. */
static void
note_plan(PlannedStmt *statement, Plan *plan, bool rowwise)
{
	ModifyTable *modify = (ModifyTable *) plan;
	const RangeTblEntry *rte;
	ListCell   *first;

	if (plan == NULL || !IsA(plan, ModifyTable) || modify->operation != CMD_INSERT)
		return;
	rte = rt_fetch(linitial_int(modify->resultRelations), statement->rtable);
	first = list_head(modify->fdwPrivLists);
	if (rte->relkind == RELKIND_PARTITIONED_TABLE)
		lfirst(first) = list_make1(makeBoolean(rowwise));
	else if (rte->relkind == RELKIND_FOREIGN_TABLE && kv_is_foreign_table(rte->relid))
		llast(lfirst_node(List, first)) = makeBoolean(rowwise);
}

void
kv_rowwise_note(PlannedStmt *statement, bool rowwise)
{
	ListCell   *lc;

	note_plan(statement, statement->planTree, rowwise);
	foreach(lc, statement->subplans)
		note_plan(statement, lfirst(lc), rowwise);
}

bool
kv_rowwise_plan(const ModifyTable *plan)
{
	List	   *noted = plan->fdwPrivLists == NIL ? NIL : linitial(plan->fdwPrivLists);

	return noted == NIL || boolVal(llast(noted));
}
