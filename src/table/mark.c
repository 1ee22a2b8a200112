/*
 * mark.c
 *		The mark in the catalog that a table has data.
 *
 * A table that was never written to has no directory, and is empty.  A table whose directory
 * was lost, by an incomplete copy, say, must not look the same.  So the catalog records which
 * tables have data, and a table that is marked and has no store is an error (55000).
 *
 * The mark is a row of pg_depend: the table itself depends on its wrapper's handler function,
 * which is a dependency without another meaning.
 *
 *  - A session that writes rows has seen a mark before, committed or its own, or makes one, in
 *    its own transaction.  The mark rolls back with the rows that it is for.
 *  - First writers that do not see each other's marks make one each.  There is no unique index,
 *    so none waits for another.
 *  - The store comes first and the mark second.  A session that has found no store, but then a
 *    mark, looks for the store once more.
 *  - TRUNCATE makes a store, which ends the error.  The mark is deleted with the table.
 *  - As a part of the catalog the mark is on standbys and in copies of the database, made with
 *    CREATE DATABASE … TEMPLATE.  pg_dump does not dump it: a restored table is a new one.
 *  - pg_upgrade restores such a dump, but its tables may have data, which pg_upgrade does not
 *    transfer.  So all tables are marked there, with a different mark: it has refobjsubid 1,
 *    which has no meaning for a function.  It does not count for a table that the old server
 *    has noted as one without data (dump.c).  The first writer of such a table makes an
 *    ordinary mark.
 *
 * After a (sub)transaction has made marks and was rolled back, this backend may have seen those
 * marks, so it looks again.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xlog.h"
#include "catalog/dependency.h"
#include "catalog/pg_class.h"
#include "catalog/pg_depend.h"
#include "catalog/pg_proc.h"
#include "foreign/foreign.h"
#include "miscadmin.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "engine/engine.h"
#include "engine/rows.h"
#include "engine/store.h"
#include "table/internal.h"
#include "table/table.h"

#define CARRIED_MARK	1		/* refobjsubid of a mark that was made under pg_upgrade */

static uint64 epoch = 1;		/* counts rollbacks of transactions that made marks */
static bool made_any = false;	/* in this transaction */

bool
kv_mark_exists(Oid relid)
{
	Relation	depend = table_open(DependRelationId, AccessShareLock);
	ScanKeyData keys[3];
	SysScanDesc scan;
	HeapTuple	tuple;
	bool		found = false;
	bool		carried = false;

	ScanKeyInit(&keys[0], Anum_pg_depend_classid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(RelationRelationId));
	ScanKeyInit(&keys[1], Anum_pg_depend_objid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(relid));
	ScanKeyInit(&keys[2], Anum_pg_depend_objsubid, BTEqualStrategyNumber, F_INT4EQ,
				Int32GetDatum(0));
	scan = systable_beginscan(depend, DependDependerIndexId, true, NULL, 3, keys);
	while (!found && HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_depend row = (Form_pg_depend) GETSTRUCT(tuple);

		if (row->refclassid != ProcedureRelationId || row->deptype != DEPENDENCY_NORMAL ||
			!kv_is_handler(row->refobjid))
			continue;
		if (row->refobjsubid == CARRIED_MARK)
			carried = true;
		else
			found = true;
	}
	systable_endscan(scan);
	table_close(depend, AccessShareLock);
	if (!found && carried)
		found = !kv_engine_ready() || !kv_unwritten_has(MyDatabaseId, relid);
	return found;
}

void
kv_mark_make(Oid relid)
{
	ForeignServer *server = GetForeignServer(GetForeignTable(relid)->serverid);
	ObjectAddress table;
	ObjectAddress handler;

	ObjectAddressSet(table, RelationRelationId, relid);
	ObjectAddressSubSet(handler, ProcedureRelationId,
						GetForeignDataWrapper(server->fdwid)->fdwhandler,
						IsBinaryUpgrade ? CARRIED_MARK : 0);
	made_any = true;
	recordDependencyOn(&table, &handler, DEPENDENCY_NORMAL);
}

void
kv_mark_ensure(KvTable *table)
{
	if (likely(table->marked == epoch))
		return;
	if (!kv_mark_exists(table->relid))
		kv_mark_make(table->relid);
	table->marked = epoch;
}

bool
kv_mark_allows_reading(Oid relid)
{
	if (!kv_engine_ready() && kv_mark_exists(relid))
		kv_engine_require();
	return kv_engine_ready();
}

void
kv_mark_at_end(bool commit)
{
	if (made_any && !commit)
		epoch++;
	made_any = false;
}

void
kv_mark_at_subxact_abort(void)
{
	if (made_any)
		epoch++;
}

void
kv_mark_raise_missing(Oid relid)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("data of foreign table \"%s\" is missing", get_rel_name(relid)),
			 errdetail("The catalog says that the table has data, but directory \"kvfdw/%u/%u\" "
					   "has none.",
					   MyDatabaseId, relid),
			 errhint(RecoveryInProgress() ?
					 "Re-create the standby server from a new base backup that has the directory "
					 "\"kvfdw\"." :
					 "If the data directory was restored or moved without its directory \"kvfdw\", "
					 "stop the server and put that back. After pg_upgrade stop the server and run "
					 "kvfdw_upgrade. In a copy made by CREATE DATABASE copy the rows from the "
					 "template database into a new table.")));
}

bool
kv_table_has_rows(Relation rel)
{
	static const KvKey unbounded = {NULL, 0};
	Oid			relid = RelationGetRelid(rel);
	KvStore    *store = kv_store_open(MyDatabaseId, relid, 0, 0, NULL, KV_WAL_FULL, InvalidOid,
									  rel->rd_createSubid);
	Snapshot	snapshot;
	KvScan	   *scan;
	KvRow		row;
	bool		found;

	if (store == NULL)
	{
		if (kv_mark_exists(relid))
			kv_mark_raise_missing(relid);
		return false;
	}
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	scan = kv_scan_begin(store, snapshot, false);
	kv_scan_range(scan, unbounded, unbounded, KV_ASCENDING, 1);
	found = kv_scan_next(scan, &row);
	kv_scan_end(scan);
	UnregisterSnapshot(snapshot);
	return found;
}
