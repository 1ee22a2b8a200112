/*
 * upgrade.c
 *		Information on tables that pg_upgrade does not transfer.
 *
 * pg_upgrade dumps the definitions of the old server and restores them in the new one, both
 * started for it alone (IsBinaryUpgrade).  OIDs of databases, tables and types stay, as do
 * transactions and their outcomes, so that a store is valid in the new server as it is.
 * kvfdw_upgrade transfers it (engine/restart/takeover.c).
 *
 *  - A table that was written to must be an error where its store is not transferred; a table
 *    that was not written to is empty.  The dump does not distinguish them.  So the old server
 *    notes, in the directory of the stores, the tables that have neither mark nor rows when it
 *    is dumped.  The new server marks all tables that it creates, by marks that do not count
 *    for the noted ones (mark.c).
 *  - A value that names an object of the catalog is wrong where that gets another OID.  A value
 *    whose type has another format in the new version cannot be read.  pg_upgrade refuses such
 *    columns of tables that it copies; here they are refused in kvfdw's.
 *
 * Collations get other OIDs, too.  But keys are ordered by their bytes and equal by them,
 * whatever their collation, which is deterministic.  So collations are not compared with those
 * that a store was written with.
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/tupdesc.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/typcache.h"

#include "compat.h"
#include "table/table.h"

/* Does a value of the type name an object whose OID changes, or may its format change? */
static bool
cannot_be_carried(Oid typid)
{
	Oid			base = getBaseType(typid);
	Oid			part = get_element_type(base);
	TupleDesc	desc;
	bool		found = false;

	switch (base)
	{
		case REGCOLLATIONOID:
		case REGCONFIGOID:
		case REGDICTIONARYOID:
		case REGNAMESPACEOID:
		case REGOPEROID:
		case REGOPERATOROID:
		case REGPROCOID:
		case REGPROCEDUREOID:
			return true;
		case ACLITEMOID:
			return kv_server_version() < 160000;
		default:
			break;
	}
	check_stack_depth();
	if (OidIsValid(part))
		return cannot_be_carried(part);
	if (type_is_range(base))
		return cannot_be_carried(get_range_subtype(base));
	if (type_is_multirange(base))
		return cannot_be_carried(get_multirange_range(base));
	if (get_typtype(base) != TYPTYPE_COMPOSITE)
		return false;
	desc = lookup_rowtype_tupdesc_copy(base, -1);
	for (int i = 0; i < desc->natts && !found; i++)
		found = !TupleDescAttr(desc, i)->attisdropped &&
			cannot_be_carried(TupleDescAttr(desc, i)->atttypid);
	return found;
}

/* Check a table's columns; locks the table. */
static void
check_columns(Oid relid)
{
	Relation	rel = try_relation_open(relid, AccessShareLock);
	TupleDesc	desc;

	if (rel == NULL)
		return;
	desc = RelationGetDescr(rel);
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		if (!att->attisdropped && cannot_be_carried(att->atttypid))
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("pg_upgrade cannot preserve column \"%s\" of foreign table \"%s\"",
							NameStr(att->attname), RelationGetRelationName(rel)),
					 errdetail("Values of type %s may not mean the same in the new cluster.",
							   format_type_be(att->atttypid)),
					 errhint("Before you run pg_upgrade, copy the rows into a table that has the "
							 "column as text.")));
	}
	relation_close(rel, NoLock);	/* the lock stays: the caller may open its store */
}

/* Value files in a tablespace are in a directory of the old server's version. */
static void
check_tablespace(Oid relid)
{
	if (OidIsValid(kv_tablespace_of(relid)) || kv_store_has_tablespaces(MyDatabaseId, relid))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("kvfdw_upgrade cannot copy values of foreign table \"%s\" from a "
						"tablespace",
						get_rel_name(relid)),
				 errhint("Before you run pg_upgrade, set the option \"tablespace\" of the table to "
						 "\"pg_default\", and run kvfdw_compact() for it.")));
}

void
kv_upgrade_leave(void)
{
	List	   *unwritten = NIL;
	ListCell   *cell;

	foreach(cell, kv_foreign_tables())
	{
		Oid			relid = lfirst_oid(cell);

		if (!kv_is_foreign_table(relid))
			continue;
		check_columns(relid);
		check_tablespace(relid);
		if (!kv_mark_exists(relid) &&
			kv_store_open(MyDatabaseId, relid, 0, 0, NULL, KV_WAL_FULL, InvalidOid,
						  InvalidSubTransactionId) == NULL)
			unwritten = lappend_oid(unwritten, relid);
	}
	kv_unwritten_note(MyDatabaseId, unwritten);
}

void
kv_upgrade_arrive(Oid relid)
{
	kv_engine_require();
	check_columns(relid);
	kv_mark_make(relid);
	kv_upgraded_note(MyDatabaseId);
}
