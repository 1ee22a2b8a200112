/*
 * tablespace.c
 *		The option "tablespace": where a table's values are stored.
 *
 * The option names a tablespace as CREATE TABLE does, never a path.  Setting it requires the
 * privilege to create there, as for heap; other options can be changed without it.
 *
 * When the option is set, the table gets a dependency on the tablespace, in pg_shdepend.  The
 * dependency counts, not the name, because a tablespace can be renamed.  DROP TABLESPACE finds
 * the dependency and refuses, whether or not the table has data.  The dependency is removed
 * with the table.
 *
 * After COMMIT the store follows (engine/shard/move.c), value file by value file.  Until the
 * last has been moved the old tablespace is not empty, so DROP TABLESPACE refuses that one,
 * too.  It also refuses before the store has followed for the first time, even if the store has
 * no value, because the store could not be opened without the tablespace.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/dependency.h"
#include "catalog/indexing.h"
#include "catalog/pg_class.h"
#include "catalog/pg_shdepend.h"
#include "catalog/pg_tablespace.h"
#include "commands/defrem.h"
#include "commands/tablespace.h"
#include "foreign/foreign.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"

#include "compat.h"
#include "engine/engine.h"
#include "engine/store.h"
#include "table/definition.h"
#include "table/internal.h"
#include "table/table.h"

Oid
kv_tablespace_of(Oid relid)
{
	Relation	depend = table_open(SharedDependRelationId, AccessShareLock);
	ScanKeyData keys[4];
	SysScanDesc scan;
	HeapTuple	tuple;
	Oid			found = InvalidOid;

	ScanKeyInit(&keys[0], Anum_pg_shdepend_dbid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(MyDatabaseId));
	ScanKeyInit(&keys[1], Anum_pg_shdepend_classid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(RelationRelationId));
	ScanKeyInit(&keys[2], Anum_pg_shdepend_objid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(relid));
	ScanKeyInit(&keys[3], Anum_pg_shdepend_objsubid, BTEqualStrategyNumber, F_INT4EQ,
				Int32GetDatum(0));
	scan = systable_beginscan(depend, SharedDependDependerIndexId, true, NULL, 4, keys);
	while (!OidIsValid(found) && HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_shdepend row = (Form_pg_shdepend) GETSTRUCT(tuple);

		if (row->refclassid == TableSpaceRelationId &&
			row->deptype == SHARED_DEPENDENCY_TABLESPACE)
			found = row->refobjid;
	}
	systable_endscan(scan);
	table_close(depend, AccessShareLock);
	return found;
}

/* The tablespace of this name; InvalidOid: that of the data directory. */
static Oid
look_up(const char *name)
{
	Oid			tablespace = get_tablespace_oid(name, false);

	if (tablespace == GLOBALTABLESPACE_OID)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("only shared relations can be placed in pg_global tablespace")));
	return tablespace == DEFAULTTABLESPACE_OID ? InvalidOid : tablespace;
}

void
kv_tablespace_check_name(const char *name)
{
	(void) look_up(name);
}

/* Raise an error for options that a table in a tablespace cannot have. */
static void
check_supported(Oid relid)
{
	const char *option = kv_table_option(relid, "wal");
	KvWalLevel	level = KV_WAL_FULL;

	/* without an own option a table keeps its level until TRUNCATE, and gets the server's then */
	if (kv_table_own_option(relid, "wal") == NULL && kv_engine_ready())
		(void) kv_store_wal_level(MyDatabaseId, relid, &level);
	if (option != NULL && strcmp(option, kv_wal_level_names[KV_WAL_NONE]) == 0)
		level = KV_WAL_NONE;

	/* a file system that was remounted is noticed for the data directory only (trust.c) */
	if (level == KV_WAL_NONE)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot store foreign table \"%s\" in a tablespace because of its wal "
						"level",
						get_rel_name(relid)),
				 errdetail("The table has the wal level \"none\"."),
				 errhint("Set the option \"wal\" to \"full\" or \"keys\", or the option "
						 "\"tablespace\" to \"pg_default\".")));
	if (KV_BACKUP_VERIFIES_ALL_FILES && DataChecksumsEnabled())
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot store foreign table \"%s\" in a tablespace because of data "
						"checksums",
						get_rel_name(relid)),
				 errdetail("pg_basebackup of PostgreSQL 15 and 16 would take value files in a "
						   "tablespace for damaged relation files."),
				 errhint("Upgrade to PostgreSQL 17 or later, or set the option \"tablespace\" to "
						 "\"pg_default\".")));
}

void
kv_tablespace_check(Oid relid)
{
	const char *name = kv_table_option(relid, "tablespace");
	Oid			before = kv_tablespace_of(relid);
	Oid			tablespace = name != NULL ? look_up(name) : InvalidOid;

	if (OidIsValid(tablespace))
		check_supported(relid);
	if (tablespace == before)
		return;
	if (OidIsValid(tablespace))
	{
		AclResult	result = kv_tablespace_aclcheck(tablespace, GetUserId());

		if (result != ACLCHECK_OK)
			aclcheck_error(result, OBJECT_TABLESPACE, name);
	}
	changeDependencyOnTablespace(RelationRelationId, relid, tablespace);
	CacheInvalidateRelcacheByRelid(relid);
	CommandCounterIncrement();
}

void
kv_tablespace_require_left(Oid tablespace)
{
	Oid			dboid;
	Oid			relid;

	if (kv_space_awaits_move(tablespace, &dboid, &relid))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("tablespace \"%s\" is not empty", get_tablespace_name(tablespace)),
				 errdetail("Values of %s have yet to be moved out of it.",
						   kv_table_label(dboid, relid)),
				 errhint("Run kvfdw_compact() for the table, or wait if it was dropped, and try "
						 "again.")));
}

char *
kv_tablespace_use(const char *name)
{
	Oid			tablespace = get_tablespace_oid(name, true);
	Oid			dboid;
	Oid			relid;

	if (!OidIsValid(tablespace) || !kv_space_user(tablespace, &dboid, &relid))
		return NULL;
	return psprintf("Values of %s are being moved out of it or removed.",
					kv_table_label(dboid, relid));
}
