/*
 * mark.c
 *		The mark in the catalog that a table has data; pg_dump and pg_upgrade, which do not transfer
 *		rows.
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
 *    has noted as one without data (mark.c).  The first writer of such a table makes an
 *    ordinary mark.
 *
 * After a (sub)transaction has made marks and was rolled back, this backend may have seen those
 * marks, so it looks again.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/tupdesc.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/dependency.h"
#include "catalog/pg_class.h"
#include "catalog/pg_depend.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "commands/dbcommands.h"
#include "foreign/foreign.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"
#include "utils/typcache.h"

#include "compat.h"
#include "engine/engine.h"
#include "engine/maintenance.h"
#include "engine/rows.h"
#include "engine/store.h"
#include "table/definition.h"
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

/* ---- pg_dump and pg_upgrade ---- */

/*
 * pg_dump dumps the rows of foreign tables only with --include-foreign-data, and does not
 * report those that it leaves out.  So a session of pg_dump begins with a WARNING where the
 * database has kvfdw tables with rows.  It is sent before the session's first statement: of
 * later messages pg_dump shows errors alone.  pg_dumpall calls pg_dump for each database.  Only
 * the session's name identifies pg_dump, and whether it has the option cannot be seen then.  So
 * the text says "without".  The pg_dump of pg_upgrade dumps no rows.
 *
 * pg_upgrade dumps the definitions of the old server and restores them in the new one, both
 * started for it alone (IsBinaryUpgrade).  OIDs of databases, tables and types stay, as do
 * transactions and their outcomes, so that a store is valid in the new server as it is.
 * kvfdw_upgrade transfers it (engine/restart/takeover.c).
 *
 *  - A table that was written to must be an error where its store is not transferred; a table that
 *    was not written to is empty.  The dump does not distinguish them.  So the old server notes, in
 *    the directory of the stores, the tables that have neither mark nor rows when it is dumped.
 *    The new server marks all tables that it creates, by marks that do not count for the noted
 *    ones (mark.c).
 *  - A value that names an object of the catalog is wrong where that gets another OID.  A value
 *    whose type has another format in the new version cannot be read.  pg_upgrade refuses such
 *    columns of tables that it copies; here they are refused in kvfdw's.
 *
 * Collations get other OIDs, too.  But keys are ordered by their bytes and equal by them,
 * whatever their collation, which is deterministic.  So collations are not compared with those
 * that a store was written with.
 */

/* ---- pg_upgrade ---- */

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

/* In a session of the old server that dumps a database: note its tables never written to. */
static void
leave_old_server(void)
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

/* ---- pg_dump ---- */

/* A word of a command, palloc'd: in quotes if a shell needs them. */
static char *
shell_word(const char *word)
{
	StringInfoData quoted;

	if (word[0] != '\0' && word[strspn(word, "abcdefghijklmnopqrstuvwxyz0123456789_")] == '\0')
		return pstrdup(word);
	initStringInfo(&quoted);
	appendStringInfoChar(&quoted, '\'');
	for (; *word != '\0'; word++)
	{
		if (*word == '\'')
			appendStringInfoString(&quoted, "'\\''");
		else
			appendStringInfoChar(&quoted, *word);
	}
	appendStringInfoChar(&quoted, '\'');
	return quoted.data;
}

typedef struct KvDumpTable
{
	bool		may_have_rows;
	Oid			server;
	char	   *option;			/* the option for its server */
	char	   *name;
} KvDumpTable;

/* Does not wait for the table's lock. */
static bool
may_have_rows(Oid relid)
{
	Relation	rel;
	KvStore    *store;
	bool		any;

	if (!kv_mark_exists(relid))
		return false;
	if (!ConditionalLockRelationOid(relid, AccessShareLock))
		return true;
	rel = try_relation_open(relid, NoLock);
	if (rel == NULL)
		return false;
	store = kv_store_open(MyDatabaseId, relid, 0, 0, NULL, KV_WAL_FULL, InvalidOid,
						  InvalidSubTransactionId);
	any = store == NULL || kv_store_row_estimate(store) > 0;
	relation_close(rel, AccessShareLock);
	return any;
}

/* Does nothing for a table that is not ours, or of a server that is in the list. */
static void
look_at(Oid relid, const List *servers, KvDumpTable *table)
{
	const char *server;

	if (!kv_is_foreign_table(relid))
		return;
	table->server = GetForeignTable(relid)->serverid;
	if (list_member_oid(servers, table->server))
		return;
	server = quote_identifier(GetForeignServer(table->server)->servername);
	table->option = psprintf("--include-foreign-data=%s", shell_word(server));
	table->name = psprintf("%s.%s", get_namespace_name(get_rel_namespace(relid)),
						   get_rel_name(relid));
	table->may_have_rows = true;
	table->may_have_rows = may_have_rows(relid);
}

/*
 * As look_at, but without an ERROR, which would refuse the connection.  A table whose data is
 * missing or damaged may have rows; one that is being dropped has none.
 */
static void
look_safely_at(Oid relid, const List *servers, KvDumpTable *table)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;

	memset(table, 0, sizeof(*table));
	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		look_at(relid, servers, table);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
}

static void
warn(void)
{
	List	   *servers = NIL;
	char	   *example = NULL;
	StringInfoData options;
	ListCell   *cell;

	initStringInfo(&options);
	foreach(cell, kv_foreign_tables())
	{
		KvDumpTable table;

		look_safely_at(lfirst_oid(cell), servers, &table);
		if (!table.may_have_rows)
			continue;
		servers = lappend_oid(servers, table.server);
		appendStringInfo(&options, options.len > 0 ? " %s" : "%s", table.option);
		if (example == NULL)
			example = table.name;
	}
	if (example != NULL)
		ereport(WARNING,
				(errmsg("rows of kvfdw tables are not dumped without --include-foreign-data"),
				 errdetail("Database \"%s\" has rows in kvfdw tables, among them \"%s\".",
						   get_database_name(MyDatabaseId), example),
				 errhint("Dump them with: pg_dump -Fc %s -f kvfdw.dump %s. The option -j and "
						 "pg_dumpall cannot dump these rows.",
						 options.data, shell_word(get_database_name(MyDatabaseId)))));
}

void
kv_dump_first_commit(void)
{
	if (MyProcPort == NULL || !OidIsValid(MyDatabaseId) || !kv_engine_ready())
		return;
	if (application_name != NULL && strncmp(application_name, "pg_dump", strlen("pg_dump")) == 0 &&
		strncmp(application_name, "pg_dumpall", strlen("pg_dumpall")) != 0)
	{
		if (IsBinaryUpgrade)
			leave_old_server();
		else
			warn();
	}
}
