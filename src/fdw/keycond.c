/*
 * keycond.c
 *		From clauses to key conditions, at plan time.
 *
 * A key condition binds one key column to a value that is known before the scan starts: a
 * constant, a parameter, or an expression over other relations' columns (a parameterised
 * path).  It is made only where the key's byte order agrees exactly with the clause's
 * operator.  So the clause need not be evaluated once its condition is in use:
 *
 *	- the operator belongs to the default btree operator family of the column's
 *	  type and its left input is that type;
 *	- an equality compares under a deterministic collation, so it is equality
 *	  of bytes whichever collation it is; a range compares under the column's
 *	  own collation and the column's encoding is ordered;
 *	- the value's type is the column's, or one that keyrange.c can fit
 *	  exactly among the column's values (KvFit there);
 *	- the value is not volatile, so evaluating it once is enough.
 *
 * The one condition that says less than its clause is that of a row comparison, (a, b, v) > (1,
 * 2, 3), of which only the first columns are key columns.
 */
#include "postgres.h"

#include "access/stratnum.h"
#include "catalog/pg_operator.h"
#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "optimizer/restrictinfo.h"
#include "utils/lsyscache.h"
#include "utils/selfuncs.h"

#include "compat.h"
#include "fdw/fdw.h"

TypeCacheEntry *
kv_key_type(const KvKeyColumn *column)
{
	TypeCacheEntry *entry = lookup_type_cache(column->typid,
											  TYPECACHE_BTREE_OPFAMILY);

	return OidIsValid(entry->btree_opf) ? entry : NULL;
}

bool
kv_operand_is_key(RelOptInfo *rel, const KvKeyColumn *column, Node *operand)
{
	Var		   *var;

	while (operand && IsA(operand, RelabelType))
		operand = (Node *) ((RelabelType *) operand)->arg;
	if (operand == NULL || !IsA(operand, Var))
		return false;
	var = (Var *) operand;
	return var->varno == rel->relid && var->varattno == column->attnum &&
		var->varlevelsup == 0;
}

/*
 * Can keyrange.c fit a value of this type exactly among a column's values?
 *
 * A timestamp with time zone is not fitted among dates or timestamps without
 * one: at a change of the clocks local times are not in the order of the
 * moments they name, so no range of keys equals such a condition.
 */
static bool
value_type_supported(const KvKeyColumn *column, TypeCacheEntry *entry,
					 Oid valuetype)
{
	if (valuetype == entry->btree_opintype)
		return true;

	switch (column->typid)
	{
		case INT2OID:
		case INT4OID:
		case INT8OID:
			return valuetype == INT2OID || valuetype == INT4OID ||
				valuetype == INT8OID;
		case FLOAT4OID:
		case FLOAT8OID:
			return valuetype == FLOAT4OID || valuetype == FLOAT8OID;
		case DATEOID:
			return valuetype == TIMESTAMPOID;
		case TIMESTAMPOID:
			return valuetype == DATEOID;
		case TIMESTAMPTZOID:
			return valuetype == DATEOID || valuetype == TIMESTAMPOID;
		default:
			return false;
	}
}

/* May this operator, with the key column on its left, be a key condition? */
static bool
match_operator(const KvKeyColumn *column, Oid opno, Oid collation,
			   KvConditionKind *kind, Oid *valuetype)
{
	TypeCacheEntry *entry = kv_key_type(column);
	int			strategy;
	Oid			lefttype;

	if (entry == NULL || !op_in_opfamily(opno, entry->btree_opf))
		return false;
	get_op_opfamily_properties(opno, entry->btree_opf, false,
							   &strategy, &lefttype, valuetype);
	if (lefttype != entry->btree_opintype ||
		!value_type_supported(column, entry, *valuetype))
		return false;

	switch (strategy)
	{
		case BTLessStrategyNumber:
			*kind = KV_COND_LESS;
			break;
		case BTLessEqualStrategyNumber:
			*kind = KV_COND_LESS_EQUAL;
			break;
		case BTEqualStrategyNumber:
			*kind = KV_COND_EQUAL;
			return !OidIsValid(column->collation) ||
				(OidIsValid(collation) &&
				 get_collation_isdeterministic(collation));
		case BTGreaterEqualStrategyNumber:
			*kind = KV_COND_GREATER_EQUAL;
			break;
		case BTGreaterStrategyNumber:
			*kind = KV_COND_GREATER;
			break;
		default:
			return false;
	}
	return column->ordered &&
		(!OidIsValid(column->collation) || column->collation == collation);
}

/* Is the value known before the scan starts, and constant during the scan? */
static bool
value_is_usable(PlannerInfo *root, RelOptInfo *rel, Node *value)
{
	return !bms_is_member(rel->relid, pull_varnos(root, value)) &&
		!contain_volatile_functions(value) &&
		!contain_subplans(value);
}

static KvKeyCondition *
make_condition(int key, KvConditionKind kind, Node *value, Oid valuetype,
			   RestrictInfo *rinfo)
{
	KvKeyCondition *condition = palloc(sizeof(KvKeyCondition));

	condition->key = key;
	condition->kind = kind;
	condition->value = (Expr *) value;
	condition->valuetype = valuetype;
	condition->rinfo = rinfo;
	condition->exact = true;
	condition->row = NIL;
	return condition;
}

/*
 * Match a bool column that is a clause of WHERE: b, NOT b, b IS TRUE, b IS FALSE.  (b IS NOT
 * TRUE and similar clauses are true of NULL too.  A key is never NULL, but such clauses are
 * rare, so they stay filters.)
 */
static KvKeyCondition *
match_bool_clause(RelOptInfo *rel, const KvKeyColumn *column, int key,
				  RestrictInfo *rinfo)
{
	Node	   *clause = (Node *) rinfo->clause;
	bool		wanted;

	if (column->typid != BOOLOID)
		return NULL;

	if (kv_operand_is_key(rel, column, clause))
		wanted = true;
	else if (is_notclause(clause) &&
			 kv_operand_is_key(rel, column,
							   (Node *) get_notclausearg((Expr *) clause)))
		wanted = false;
	else if (IsA(clause, BooleanTest) &&
			 kv_operand_is_key(rel, column,
							   (Node *) ((BooleanTest *) clause)->arg) &&
			 (((BooleanTest *) clause)->booltesttype == IS_TRUE ||
			  ((BooleanTest *) clause)->booltesttype == IS_FALSE))
		wanted = ((BooleanTest *) clause)->booltesttype == IS_TRUE;
	else
		return NULL;

	return make_condition(key, KV_COND_EQUAL, makeBoolConst(wanted, false),
						  BOOLOID, rinfo);
}

/*
 * A row comparison is a range of the key columns from number key on, as far as
 * its members are these columns one after the other.
 */
static KvKeyCondition *
match_row_comparison(PlannerInfo *root, RelOptInfo *rel, const KvTable *table,
					 int key, RestrictInfo *rinfo)
{
	RowCompareExpr *compare = (RowCompareExpr *) rinfo->clause;
	int			nmembers = list_length(compare->opnos);
	KvKeyCondition *condition = NULL;
	KvConditionKind first_kind = KV_COND_EQUAL;
	List	   *row = NIL;
	int			i;

	for (i = 0; i < nmembers && key + i < table->nkeys; i++)
	{
		const KvKeyColumn *column = &table->keys[key + i];
		Oid			opno = list_nth_oid(compare->opnos, i);
		Node	   *left = list_nth(compare->largs, i);
		Node	   *value = list_nth(compare->rargs, i);
		KvConditionKind kind;
		Oid			valuetype;

		if (!kv_operand_is_key(rel, column, left))
		{
			if (!kv_operand_is_key(rel, column, value))
				break;
			opno = get_commutator(opno);
			value = left;
		}
		if (!OidIsValid(opno) ||
			!match_operator(column, opno, list_nth_oid(compare->inputcollids, i),
							&kind, &valuetype) ||
			kind == KV_COND_EQUAL || (i > 0 && kind != first_kind) ||
			!value_is_usable(root, rel, value))
			break;

		first_kind = kind;
		if (condition != NULL)
		{
			condition->kind = KV_COND_ROW_PREFIX;
			row = lappend(row, condition);
		}
		condition = make_condition(key + i, kind, value, valuetype, rinfo);
	}
	if (condition == NULL)
		return NULL;

	condition->row = row;
	condition->exact = i == nmembers;
	if (!condition->exact)
	{
		/* where these columns are equal, the rest of the row decides */
		if (condition->kind == KV_COND_LESS)
			condition->kind = KV_COND_LESS_EQUAL;
		else if (condition->kind == KV_COND_GREATER)
			condition->kind = KV_COND_GREATER_EQUAL;
	}
	return condition;
}

/* The condition on key column number key that is equivalent to a clause, or NULL. */
static KvKeyCondition *
match_clause(PlannerInfo *root, RelOptInfo *rel, const KvTable *table,
			 int key, RestrictInfo *rinfo)
{
	const KvKeyColumn *column = &table->keys[key];
	Node	   *clause = (Node *) rinfo->clause;
	KvConditionKind kind;
	Oid			valuetype;
	KvKeyCondition *condition;

	/* a leaky operator may not run ahead of a security barrier's quals */
	if (rinfo->pseudoconstant ||
		!restriction_is_securely_promotable(rinfo, rel))
		return NULL;

	condition = match_bool_clause(rel, column, key, rinfo);
	if (condition)
		return condition;

	if (IsA(clause, OpExpr) && list_length(((OpExpr *) clause)->args) == 2)
	{
		OpExpr	   *op = (OpExpr *) clause;
		Node	   *left = (Node *) linitial(op->args);
		Node	   *right = (Node *) lsecond(op->args);
		Node	   *value;
		Oid			opno;

		if (kv_operand_is_key(rel, column, left))
		{
			opno = op->opno;
			value = right;
		}
		else if (kv_operand_is_key(rel, column, right))
		{
			opno = get_commutator(op->opno);
			value = left;
		}
		else
			return NULL;

		if (!OidIsValid(opno) ||
			!match_operator(column, opno, op->inputcollid, &kind, &valuetype) ||
			!value_is_usable(root, rel, value))
			return NULL;
		return make_condition(key, kind, value, valuetype, rinfo);
	}

	if (IsA(clause, ScalarArrayOpExpr))
	{
		ScalarArrayOpExpr *op = (ScalarArrayOpExpr *) clause;
		Node	   *array = (Node *) lsecond(op->args);

		if (!op->useOr ||
			!kv_operand_is_key(rel, column, (Node *) linitial(op->args)) ||
			!match_operator(column, op->opno, op->inputcollid, &kind, &valuetype) ||
			kind != KV_COND_EQUAL ||
			!value_is_usable(root, rel, array))
			return NULL;
		return make_condition(key, KV_COND_ANY, array, valuetype, rinfo);
	}

	if (IsA(clause, RowCompareExpr))
		return match_row_comparison(root, rel, table, key, rinfo);

	return NULL;
}

bool
kv_clause_matches_key(PlannerInfo *root, RelOptInfo *rel, const KvTable *table,
					  int key, RestrictInfo *rinfo)
{
	return match_clause(root, rel, table, key, rinfo) != NULL;
}

/*
 * Leading columns are pinned as long as an equality or an ANY exists for them; the first column
 * without one may still have a range.  Of a column's clauses all equalities are used, or else
 * one ANY, or else all ranges: the remaining clauses stay filters.  A path stores only the
 * chosen clauses.
 */
KvKeyMatch *
kv_match_key(PlannerInfo *root, RelOptInfo *rel, const KvTable *table,
			 List *clauses)
{
	KvKeyMatch *match = palloc0(sizeof(KvKeyMatch));
	ListCell   *lc;

	match->nprefixes = 1;
	for (int key = 0; key < table->nkeys; key++)
	{
		List	   *equal = NIL;
		List	   *range = NIL;
		KvKeyCondition *any = NULL;

		foreach(lc, clauses)
		{
			KvKeyCondition *condition;

			condition = match_clause(root, rel, table, key,
									 lfirst_node(RestrictInfo, lc));
			if (condition == NULL)
				continue;
			if (condition->kind == KV_COND_EQUAL)
				equal = lappend(equal, condition);
			else if (condition->kind != KV_COND_ANY)
				range = lappend(list_concat(range, condition->row), condition);
			else if (any == NULL)
				any = condition;
		}

		if (equal != NIL)
		{
			match->conditions = list_concat(match->conditions, equal);
			match->equal = bms_add_member(match->equal, key);
			match->npinned++;
		}
		else if (any != NULL)
		{
			match->conditions = lappend(match->conditions, any);
			match->nprefixes *= Max(1, kv_estimate_array_length(root,
																(Node *) any->value));
			match->npinned++;
		}
		else
		{
			match->conditions = list_concat(match->conditions, range);
			break;
		}
	}

	foreach(lc, match->conditions)
	{
		KvKeyCondition *condition = lfirst(lc);

		match->clauses = list_append_unique_ptr(match->clauses, condition->rinfo);
		if (condition->kind != KV_COND_ROW_PREFIX && condition->exact)
			match->exact = list_append_unique_ptr(match->exact, condition->rinfo);
	}

	if (match->npinned == table->nkeys)
		match->access = KV_ACCESS_POINT;
	else if (match->conditions != NIL)
		match->access = KV_ACCESS_RANGE;
	else
		match->access = KV_ACCESS_FULL;
	return match;
}

List *
kv_plan_conditions(const KvKeyMatch *match, List **values)
{
	List	   *keys = NIL;
	List	   *kinds = NIL;
	List	   *types = NIL;
	ListCell   *lc;

	*values = NIL;
	foreach(lc, match->conditions)
	{
		KvKeyCondition *condition = lfirst(lc);

		keys = lappend_int(keys, condition->key);
		kinds = lappend_int(kinds, condition->kind);
		types = lappend_oid(types, condition->valuetype);
		*values = lappend(*values, condition->value);
	}
	return list_make5(keys, kinds, types, makeInteger(match->npinned),
					  makeInteger(match->access));
}
