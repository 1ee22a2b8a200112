/*
 * fit.c
 *		Checks existing rows against declarations of their table, and of domains and row types.
 *
 * PostgreSQL trusts declarations of a foreign table: SET NOT NULL, CHECK constraints and the
 * bounds of a partition are recorded, and no row is read.  The planner relies on them, so rows
 * that violate them would be missing from results.  So this file reads the rows of kvfdw tables
 * as ALTER TABLE reads heap's, at the end of the statement, under its lock.  A NOT VALID constraint
 * is checked at VALIDATE CONSTRAINT.  Virtual generated columns are computed for the check.
 *
 * ALTER DOMAIN reads the rows of heap tables only.  This file finds the columns of kvfdw tables
 * that it affects.  Their rows are read as ALTER DOMAIN reads heap's, and writers are blocked until
 * the transaction ends.  As on heap, a domain within another type of a column cannot get a
 * constraint.  Nor can the attributes of a row type get other types if a column has values of it:
 * PostgreSQL refuses that for tables that have storage.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/sysattr.h"
#include "access/xact.h"
#include "catalog/partition.h"
#include "catalog/pg_class.h"
#include "catalog/pg_constraint.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_type.h"
#include "commands/tablecmds.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "optimizer/optimizer.h"
#include "partitioning/partdesc.h"
#include "rewrite/rewriteHandler.h"
#include "storage/lmgr.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/partcache.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "compat.h"
#include "engine/rows.h"
#include "table/definition.h"
#include "table/internal.h"
#include "table/table.h"

/* ---- columns of a domain or a row type ---- */

/* How does a type refer to a domain, or a row type? */
typedef enum Reach
{
	REACH_NONE,
	REACH_IS,					/* it is the type, or a domain over it */
	REACH_CONTAINS				/* its values contain values of the type */
} Reach;

static Reach reach(Oid typid, Oid domain, Oid *member);

/* Counts dropped columns, too; 0: there is no such relation. */
static int
column_count(Oid relid)
{
	HeapTuple	class = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	int			natts;

	if (!HeapTupleIsValid(class))
		return 0;
	natts = ((Form_pg_class) GETSTRUCT(class))->relnatts;
	ReleaseSysCache(class);
	return natts;
}

/* As reach, for the type of which another type's values consist. */
static Reach
reach_member(Oid typid, Oid domain, Oid *member)
{
	Reach		found = reach(typid, domain, member);

	if (found == REACH_IS)
		*member = typid;
	return found == REACH_NONE ? REACH_NONE : REACH_CONTAINS;
}

static Reach
reach_composite(Oid typid, Oid domain, Oid *member)
{
	Oid			relid = get_typ_typrelid(typid);
	Reach		found = REACH_NONE;
	int			natts = column_count(relid);

	for (AttrNumber i = 1; i <= natts && found == REACH_NONE; i++)
	{
		Oid			type = get_atttype(relid, i);

		if (OidIsValid(type))
			found = reach_member(type, domain, member);
	}
	return found;
}

/* *member: for REACH_CONTAINS, the domain as it is named in the innermost of the types. */
static Reach
reach(Oid typid, Oid domain, Oid *member)
{
	check_stack_depth();
	if (typid == domain)
		return REACH_IS;
	switch (get_typtype(typid))
	{
		case TYPTYPE_DOMAIN:
			{
				HeapTuple	tuple = SearchSysCache1(TYPEOID, ObjectIdGetDatum(typid));
				Oid			base;

				if (!HeapTupleIsValid(tuple))
					return REACH_NONE;
				base = ((Form_pg_type) GETSTRUCT(tuple))->typbasetype;
				ReleaseSysCache(tuple);
				return reach(base, domain, member);
			}
		case TYPTYPE_COMPOSITE:
			return reach_composite(typid, domain, member);
		case TYPTYPE_RANGE:
			return reach_member(get_range_subtype(typid), domain, member);
		case TYPTYPE_MULTIRANGE:
			return reach_member(get_multirange_range(typid), domain, member);
		case TYPTYPE_BASE:
			{
				Oid			element = get_element_type(typid);

				return OidIsValid(element) ? reach_member(element, domain, member) : REACH_NONE;
			}
		default:
			return REACH_NONE;
	}
}

void
kv_rowtype_require_unused(Oid relid)
{
	Oid			type = get_rel_type_id(relid);
	char		relkind = get_rel_relkind(relid);
	ListCell   *table;

	if (!OidIsValid(type))
		return;
	foreach(table, kv_foreign_tables())
	{
		Oid			user = lfirst_oid(table);
		int			natts = kv_is_foreign_table(user) ? column_count(user) : 0;

		for (AttrNumber i = 1; i <= natts; i++)
		{
			Oid			member = InvalidOid;
			Oid			of = get_atttype(user, i);

			if (!OidIsValid(of) || reach(of, type, &member) == REACH_NONE)
				continue;
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 relkind == RELKIND_COMPOSITE_TYPE ?
					 errmsg("cannot alter type \"%s\" because column \"%s.%s\" uses it",
							get_rel_name(relid), get_rel_name(user),
							get_attname(user, i, false)) :
					 relkind == RELKIND_FOREIGN_TABLE ?
					 errmsg("cannot alter foreign table \"%s\" because column \"%s.%s\" uses its "
							"row type",
							get_rel_name(relid), get_rel_name(user),
							get_attname(user, i, false)) :
					 errmsg("cannot alter table \"%s\" because column \"%s.%s\" uses its row type",
							get_rel_name(relid), get_rel_name(user),
							get_attname(user, i, false))));
		}
	}
}

/*
 * The columns of a table whose type is the domain, or a domain over it; 0A000 if a column's
 * type contains the domain.
 */
static List *
domain_columns(Oid relid, Oid domain)
{
	List	   *columns = NIL;
	int			natts = column_count(relid);

	for (AttrNumber i = 1; i <= natts; i++)
	{
		Oid			type = get_atttype(relid, i);
		Oid			member = InvalidOid;
		Reach		found = OidIsValid(type) ? reach(type, domain, &member) : REACH_NONE;

		if (found == REACH_CONTAINS)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("cannot alter type \"%s\" because column \"%s.%s\" uses it",
							format_type_be(member), get_rel_name(relid),
							get_attname(relid, i, false))));
		if (found == REACH_IS)
			columns = lappend_int(columns, i);
	}
	return columns;
}

/* ---- the checks that rows need ---- */

/* A column of a domain that has a new constraint. */
typedef struct KvDomainColumn
{
	AttrNumber	attnum;
	Oid			constraint;		/* InvalidOid: NOT NULL */
	ExprState  *state;			/* if there is a constraint */
} KvDomainColumn;

/* The checks for the rows of a table. */
typedef struct KvTableFit
{
	Oid			relid;
	List	   *not_null;		/* attribute numbers */
	List	   *checks;			/* OIDs of constraints */
	List	   *domains;		/* KvDomainColumn */
	bool		partition;		/* its bounds, and those of the partitions that contain it */
	bool		in_default;		/* a new partition has taken bounds from it */
} KvTableFit;

typedef struct KvCheck
{
	char	   *name;
	ExprState  *state;
} KvCheck;

static KvTableFit *
fit_of(List **fits, Oid relid)
{
	ListCell   *cell;
	KvTableFit *fit;

	foreach(cell, *fits)
	{
		fit = lfirst(cell);
		if (fit->relid == relid)
			return fit;
	}
	fit = palloc0(sizeof(KvTableFit));
	fit->relid = relid;
	*fits = lappend(*fits, fit);
	return fit;
}

/* Is a column of a table declared NOT NULL, and not NOT VALID? */
static bool
is_never_null(Oid relid, AttrNumber attnum)
{
	Relation	rel = try_relation_open(relid, AccessShareLock);
	bool		never = rel != NULL && kv_never_null(RelationGetDescr(rel), attnum - 1);

	if (rel != NULL)
		relation_close(rel, AccessShareLock);
	return never;
}

void
kv_fit_generated(List **fits, Oid relid, AttrNumber attnum)
{
	if (is_never_null(relid, attnum))
		kv_fit_not_null(fits, relid, attnum);
}

void
kv_fit_not_null(List **fits, Oid relid, AttrNumber attnum)
{
	KvTableFit *fit;

	if (kv_is_key_column(relid, attnum))
		return;					/* no row has NULL there */
	fit = fit_of(fits, relid);
	fit->not_null = list_append_unique_int(fit->not_null, attnum);
}

void
kv_fit_domain(List **fits, Oid domain, Oid constraint)
{
	ListCell   *table;
	ListCell   *cell;

	if (IsBinaryUpgrade)
		return;
	foreach(table, kv_foreign_tables())
	{
		Oid			relid = lfirst_oid(table);

		if (!kv_is_foreign_table(relid) || domain_columns(relid, domain) == NIL)
			continue;
		LockRelationOid(relid, ShareLock);
		foreach(cell, domain_columns(relid, domain))
		{
			KvTableFit *fit = fit_of(fits, relid);
			KvDomainColumn *column = palloc0(sizeof(KvDomainColumn));

			column->attnum = lfirst_int(cell);
			column->constraint = constraint;
			fit->domains = lappend(fit->domains, column);
		}
	}
}

void
kv_fit_constraint(List **fits, Oid constraint)
{
	HeapTuple	tuple = SearchSysCache1(CONSTROID, ObjectIdGetDatum(constraint));
	Form_pg_constraint form;

	if (!HeapTupleIsValid(tuple))
		return;
	form = (Form_pg_constraint) GETSTRUCT(tuple);
	if (form->convalidated && OidIsValid(form->conrelid) && kv_is_foreign_table(form->conrelid))
	{
		if (form->contype == CONSTRAINT_CHECK)
		{
			KvTableFit *fit = fit_of(fits, form->conrelid);

			fit->checks = list_append_unique_oid(fit->checks, constraint);
		}
		else if (form->contype == KV_CONSTRAINT_NOTNULL)
		{
			bool		isnull;
			Datum		columns = SysCacheGetAttr(CONSTROID, tuple, Anum_pg_constraint_conkey,
												  &isnull);

			if (!isnull)
				kv_fit_not_null(fits, form->conrelid,
								((int16 *) ARR_DATA_PTR(DatumGetArrayTypeP(columns)))[0]);
		}
	}
	else if (form->convalidated && OidIsValid(form->contypid))
		kv_fit_domain(fits, form->contypid,
					  form->contype == CONSTRAINT_CHECK ? constraint : InvalidOid);
	ReleaseSysCache(tuple);
}

static void
fit_leaves(List **fits, Oid root, bool in_default)
{
	ListCell   *cell;

	foreach(cell, find_all_inheritors(root, AccessShareLock, NULL))
	{
		Oid			relid = lfirst_oid(cell);
		KvTableFit *fit;

		if (!kv_is_foreign_table(relid))
			continue;
		fit = fit_of(fits, relid);
		fit->partition = true;
		fit->in_default |= in_default;
	}
}

void
kv_fit_inherited(List **fits, Oid child)
{
	Oid			parent;
	Oid			other;
	Relation	rel;

	if (!get_rel_relispartition(child))
		return;
	fit_leaves(fits, child, false);
	parent = get_partition_parent(child, false);
	rel = relation_open(parent, NoLock);
	other = get_default_oid_from_partdesc(RelationGetPartitionDesc(rel, true));
	relation_close(rel, NoLock);
	if (OidIsValid(other) && other != child)
		fit_leaves(fits, other, true);
}

/* Do the conditions need more than the encoded keys? */
static bool
wants_values(const KvTable *table, Bitmapset *attributes)
{
	int			i = -1;

	while ((i = bms_next_member(attributes, i)) >= 0)
	{
		int			attnum = i + FirstLowInvalidHeapAttributeNumber;
		int			key;

		if (attnum == TableOidAttributeNumber)
			continue;
		key = attnum <= 0 ? -1 : table->keyindex[attnum - 1];
		if (key < 0 || table->keys[key].lossy)
			return true;
	}
	return false;
}

/* The expression of a CHECK constraint, and its name. */
static Node *
check_expression(Oid constraint, char **name)
{
	HeapTuple	tuple = SearchSysCache1(CONSTROID, ObjectIdGetDatum(constraint));
	bool		isnull;
	Datum		source;
	Node	   *expr;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for constraint %u", constraint);
	source = SysCacheGetAttr(CONSTROID, tuple, Anum_pg_constraint_conbin, &isnull);
	if (isnull)
		elog(ERROR, "constraint %u has no expression", constraint);
	expr = stringToNode(TextDatumGetCString(source));
	*name = pstrdup(NameStr(((Form_pg_constraint) GETSTRUCT(tuple))->conname));
	ReleaseSysCache(tuple);
	return expr;
}

static KvCheck *
prepare_check(Relation rel, Oid constraint, EState *estate, Bitmapset **attributes)
{
	KvCheck    *check = palloc(sizeof(KvCheck));
	Node	   *expr = KV_EXPAND_VIRTUAL(check_expression(constraint, &check->name), rel);

	check->state = ExecPrepareExpr((Expr *) expr, estate);
	pull_varattnos(expr, 1, attributes);
	return check;
}

static void
prepare_domains(const KvTableFit *fit, EState *estate, Bitmapset **attributes)
{
	ListCell   *cell;

	foreach(cell, fit->domains)
	{
		KvDomainColumn *column = lfirst(cell);
		char	   *name;

		if (OidIsValid(column->constraint))
			column->state = ExecPrepareExpr((Expr *) check_expression(column->constraint, &name),
											estate);
		*attributes = bms_add_member(*attributes,
									 column->attnum - FirstLowInvalidHeapAttributeNumber);
	}
}

static void
check_domains(Relation rel, const KvTableFit *fit, ExprContext *econtext)
{
	TupleTableSlot *slot = econtext->ecxt_scantuple;
	ListCell   *cell;

	foreach(cell, fit->domains)
	{
		KvDomainColumn *column = lfirst(cell);
		Datum		value = slot->tts_values[column->attnum - 1];
		bool		isnull = slot->tts_isnull[column->attnum - 1];

		if (column->state == NULL && isnull)
			ereport(ERROR,
					(errcode(ERRCODE_NOT_NULL_VIOLATION),
					 errmsg("column \"%s\" of table \"%s\" contains null values",
							get_attname(fit->relid, column->attnum, false),
							RelationGetRelationName(rel)),
					 errtablecol(rel, column->attnum)));
		if (column->state == NULL)
			continue;
		econtext->domainValue_datum = value;
		econtext->domainValue_isNull = isnull;
		if (!ExecCheck(column->state, econtext))
			ereport(ERROR,
					(errcode(ERRCODE_CHECK_VIOLATION),
					 errmsg("column \"%s\" of table \"%s\" contains values that violate the new "
							"constraint",
							get_attname(fit->relid, column->attnum, false),
							RelationGetRelationName(rel)),
					 errtablecol(rel, column->attnum)));
	}
}

/* A column that must not be NULL. */
typedef struct KvNotNull
{
	AttrNumber	attnum;
	ExprState  *state;			/* for a virtual one: that it is not NULL */
} KvNotNull;

static KvNotNull *
prepare_not_null(Relation rel, AttrNumber attnum, EState *estate, Bitmapset **attributes)
{
	KvNotNull  *column = palloc0(sizeof(KvNotNull));
	NullTest   *test;

	column->attnum = attnum;
	if (!KV_ATTRIBUTE_IS_VIRTUAL(TupleDescAttr(RelationGetDescr(rel), attnum - 1)))
	{
		*attributes = bms_add_member(*attributes, attnum - FirstLowInvalidHeapAttributeNumber);
		return column;
	}
	test = makeNode(NullTest);
	test->arg = (Expr *) kv_virtual_expression(rel, attnum);
	test->nulltesttype = IS_NOT_NULL;
	test->argisrow = false;
	test->location = -1;
	pull_varattnos((Node *) test, 1, attributes);
	column->state = ExecPrepareExpr((Expr *) test, estate);
	return column;
}

/* The prepared checks for each row of one table. */
typedef struct Look
{
	Relation	rel;
	const KvTableFit *fit;
	List	   *not_null;		/* KvNotNull */
	List	   *checks;			/* KvCheck */
	ExprState  *partition;		/* or NULL */
} Look;

static void
check_row(ExprContext *econtext, const KvRow *row, void *arg)
{
	const Look *look = arg;
	const KvTableFit *fit = look->fit;
	Relation	rel = look->rel;
	TupleTableSlot *slot = econtext->ecxt_scantuple;
	ListCell   *cell;

	foreach(cell, look->not_null)
	{
		const KvNotNull *column = lfirst(cell);

		if (column->state != NULL ? !ExecCheck(column->state, econtext) :
			slot->tts_isnull[column->attnum - 1])
			ereport(ERROR,
					(errcode(ERRCODE_NOT_NULL_VIOLATION),
					 errmsg("column \"%s\" of relation \"%s\" contains null values",
							get_attname(fit->relid, column->attnum, false),
							RelationGetRelationName(rel)),
					 errtablecol(rel, column->attnum)));
	}
	foreach(cell, look->checks)
	{
		KvCheck    *check = lfirst(cell);

		if (!ExecCheck(check->state, econtext))
			ereport(ERROR,
					(errcode(ERRCODE_CHECK_VIOLATION),
					 errmsg("check constraint \"%s\" of relation \"%s\" is violated by some row",
							check->name, RelationGetRelationName(rel)),
					 errtableconstraint(rel, check->name)));
	}
	check_domains(rel, fit, econtext);
	if (look->partition == NULL || ExecCheck(look->partition, econtext))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_CHECK_VIOLATION),
			 fit->in_default ?
			 errmsg("updated partition constraint for default partition \"%s\" would be violated "
					"by some row",
					RelationGetRelationName(rel)) :
			 errmsg("partition constraint of relation \"%s\" is violated by some row",
					RelationGetRelationName(rel)),
			 errtable(rel)));
}

static void
fit_rows(Relation rel, KvTableFit *fit)
{
	KvStore    *store = kv_table_written_store(rel);
	const KvTable *table;
	EState	   *estate;
	Bitmapset  *attributes = NULL;
	Look		look = {.rel = rel, .fit = fit};
	List	   *quals = NIL;
	ListCell   *cell;

	if (store == NULL)
		return;
	if (fit->partition)
		quals = RelationGetPartitionQual(rel);
	if (quals != NIL && PartConstraintImpliedByRelConstraint(rel, quals))
		quals = NIL;
	if (quals == NIL && fit->checks == NIL && fit->not_null == NIL && fit->domains == NIL)
		return;

	PushActiveSnapshot(GetLatestSnapshot());
	estate = CreateExecutorState();
	foreach(cell, fit->checks)
		look.checks = lappend(look.checks,
							  prepare_check(rel, lfirst_oid(cell), estate, &attributes));
	prepare_domains(fit, estate, &attributes);
	pull_varattnos((Node *) quals, 1, &attributes);
	foreach(cell, fit->not_null)
		look.not_null = lappend(look.not_null,
								prepare_not_null(rel, lfirst_int(cell), estate, &attributes));
	table = kv_table_get(rel);
	if (quals != NIL)
		look.partition = ExecPrepareCheck(quals, estate);
	kv_table_each_row(table, store, GetActiveSnapshot(), wants_values(table, attributes),
					  KV_BY_ADDRESS, estate, check_row, &look);
	FreeExecutorState(estate);
	PopActiveSnapshot();
}

void
kv_fit_rows(List *fits)
{
	ListCell   *cell;

	if (fits == NIL || IsBinaryUpgrade)
		return;
	CommandCounterIncrement();
	foreach(cell, fits)
	{
		KvTableFit *fit = lfirst(cell);
		Relation	rel = try_relation_open(fit->relid, AccessShareLock);

		if (rel == NULL)
			continue;
		if (kv_mark_allows_reading(fit->relid))
			fit_rows(rel, fit);
		relation_close(rel, AccessShareLock);
	}
}
