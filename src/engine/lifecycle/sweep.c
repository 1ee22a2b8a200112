/*
 * sweep.c
 *		Removes directories whose table or database was dropped.
 *
 * A crash between COMMIT and unlink, or before the ROLLBACK of a CREATE, leaves a directory
 * that no catalog names.  Once per start the maintainer looks at each database's directory.  If
 * the database was dropped the directory is removed; else a worker connects to the database and
 * compares table by table.
 *
 * A directory is never removed while the transaction that created its table may still be
 * running: in this incarnation such a table has an entry with its creating xid, and a directory
 * without an entry was last used before the start.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "postmaster/bgworker.h"
#include "storage/ipc.h"
#include "tcop/tcopprot.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "report.h"
#include "engine/base/types.h"
#include "engine/base/worker.h"
#include "engine/format/format.h"
#include "engine/format/path.h"
#include "engine/io/name.h"
#include "engine/lifecycle/lifecycle.h"
#include "engine/shard/shard.h"
#include "engine/xact/xact.h"

/* May this table belong to a transaction whose catalog rows are not visible yet? */
static bool
may_be_unborn(Oid dboid, Oid relid)
{
	KvTableEntry *entry = kv_table_entry(dboid, relid, false);

	return entry != NULL && entry->birth != 0 &&
		kv_xid_status(entry->birth, kv_incarnations->current) == KV_XID_UNKNOWN;
}

/* Remove the tables of the connected database that are not in pg_class. */
static void
sweep_tables(Oid dboid)
{
	ListCell   *cell;

	foreach(cell, kv_numbered_entries(kv_path_database(dboid), ERROR))
	{
		Oid			relid = lfirst_oid(cell);
		HeapTuple	tuple;
		bool		known;

		if (may_be_unborn(dboid, relid))
			continue;
		InvalidateCatalogSnapshot();	/* it may just have been committed */
		tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
		known = HeapTupleIsValid(tuple) &&
			((Form_pg_class) GETSTRUCT(tuple))->relkind == RELKIND_FOREIGN_TABLE;
		if (HeapTupleIsValid(tuple))
			ReleaseSysCache(tuple);
		if (known)
			continue;
		ereport(LOG,
				(errmsg("removing directory \"%s\": its table does not exist",
						kv_path_table_directory(dboid, relid))));
		kv_table_discard(dboid, relid);
	}
}

void
kv_sweep_worker_main(Datum arg)
{
	Oid			dboid = DatumGetObjectId(arg);

	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnectionByOid(dboid, InvalidOid, BGWORKER_BYPASS_ALLOWCONN);
	kv_worker_attend();
	kv_worker_no_timeouts();
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	sweep_tables(dboid);
	CommitTransactionCommand();
	proc_exit(0);
}

/* Start the sweep of one database's directory. */
static bool
start_sweep(Oid dboid, BackgroundWorkerHandle **handle)
{
	kv_worker_await_place(KV_PLACE_MS);
	return kv_worker_start("kvfdw sweep", "kv_sweep_worker_main", ObjectIdGetDatum(dboid),
						   handle);
}

void
kv_sweep_databases(void)
{
	ListCell   *cell;
	bool		told = false;

	foreach(cell, kv_numbered_entries(KV_DIRECTORY, ERROR))
	{
		Oid			dboid = lfirst_oid(cell);
		BackgroundWorkerHandle *handle;

		if (!SearchSysCacheExists1(DATABASEOID, ObjectIdGetDatum(dboid)))
		{
			ereport(LOG,
					(errmsg("removing directory \"%s\": its database does not exist",
							kv_path_database(dboid))));
			kv_database_discard(dboid);
		}
		else if (start_sweep(dboid, &handle))
			(void) WaitForBackgroundWorkerShutdown(handle);
		else if (!told)
		{
			told = true;
			kv_report_not_started("kvfdw sweep",
								  "Directories without a table remain until the next start.");
		}
	}
}
