/*
 * domain.c
 *		Rows must fit what is declared of a domain that their columns are of.
 *
 * ALTER DOMAIN reads the rows of heap tables only.  Here is which columns of kvfdw tables
 * it concerns; fit.c reads them.  As on heap a domain that is part of another type that a
 * column is of cannot get a constraint.
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

/* How a type goes back to a domain. */
typedef enum Reach
{
	REACH_NONE,
	REACH_IS,					/* it is the domain, or a domain over it */
	REACH_CONTAINS				/* its values have values of the domain in them */
} Reach;

static Reach reach(Oid typid, Oid domain, Oid *member);

/* Of a type that values of another one are made of. */
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
	HeapTuple	class = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	Reach		found = REACH_NONE;
	int			natts;

	if (!HeapTupleIsValid(class))
		return REACH_NONE;
	natts = ((Form_pg_class) GETSTRUCT(class))->relnatts;
	ReleaseSysCache(class);
	for (AttrNumber i = 1; i <= natts && found == REACH_NONE; i++)
	{
		Oid			type = get_atttype(relid, i);

		if (OidIsValid(type))
			found = reach_member(type, domain, member);
	}
	return found;
}

/* *member: REACH_CONTAINS: the domain as it is named in the innermost of the types. */
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

List *
kv_domain_columns(Oid relid, Oid domain)
{
	List	   *columns = NIL;
	int			natts;
	HeapTuple	class = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));

	if (!HeapTupleIsValid(class))
		return NIL;
	natts = ((Form_pg_class) GETSTRUCT(class))->relnatts;
	ReleaseSysCache(class);
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
