/*
 * domain.c
 *		Declarations of a domain, or a row type, that columns have as their type.
 *
 * ALTER DOMAIN reads the rows of heap tables only.  This file finds the columns of kvfdw tables
 * that it affects; fit.c reads them.  As on heap, a domain within another type of a column
 * cannot get a constraint.  Nor can the attributes of a row type get other types if a column
 * has values of it: PostgreSQL refuses that for tables that have storage.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "compat.h"
#include "table/table.h"

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

List *
kv_domain_columns(Oid relid, Oid domain)
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
