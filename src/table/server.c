/*
 * server.c
 *		Options of a foreign server, which are defaults of its tables.
 *
 * A table has its own option, else the server's, else the built-in default.  A server accepts
 * four of the options of tables (option.c):
 *
 *	- compression and max_space_amplification say how a table is written.  They take effect as
 *	  options of postgres_fdw's server do: a change of the server's option changes all of its
 *	  tables without an own one, when they are used next.
 *	- wal and tablespace say what a table's files are.  They take effect as default_tablespace
 *	  does: CREATE FOREIGN TABLE copies the server's option into the table, as if its OPTIONS had
 *	  it.  So a change of the server's option is for tables that are made afterwards.  No table
 *	  becomes less durable or is moved by it, pg_dump has what each table is, and the role that
 *	  makes the table needs the privilege CREATE on the tablespace, not the server's owner.
 *
 * Tables can be without an own wal or tablespace: they were made before the server had the option,
 * or by a session without the library, or ALTER FOREIGN TABLE has dropped it.  A change of the
 * server's option would change what they are, at TRUNCATE or in a restored dump.  So it is refused
 * while there is such a table (55000).
 *
 * A lock on the server orders the two: statements that can leave a table without an own option
 * share it until COMMIT, ALTER SERVER has it alone before it looks for such tables.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/reloptions.h"
#include "access/table.h"
#include "catalog/pg_foreign_server.h"
#include "catalog/pg_foreign_table.h"
#include "commands/defrem.h"
#include "commands/tablespace.h"
#include "foreign/foreign.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "engine/engine.h"
#include "engine/store.h"
#include "table/definition.h"
#include "table/internal.h"
#include "table/table.h"

#define TOLD_TABLES		3		/* an error names so many tables */

/* Options that CREATE FOREIGN TABLE copies into the table, and their built-in defaults. */
static const struct
{
	const char *name;
	const char *value;
}			copied[] = {
	{"wal", "full"},
	{"tablespace", "pg_default"}
};

/* The server if it is one of this library's wrapper, else NULL. */
static ForeignServer *
our_server(Oid serverid)
{
	ForeignServer *server = GetForeignServerExtended(serverid, FSV_MISSING_OK);
	Oid			handler = server != NULL
		? GetForeignDataWrapper(server->fdwid)->fdwhandler : InvalidOid;

	return OidIsValid(handler) && kv_is_handler(handler) ? server : NULL;
}

bool
kv_server_is_ours(const char *name)
{
	Oid			serverid = get_foreign_server_oid(name, true);

	return OidIsValid(serverid) && our_server(serverid) != NULL;
}

void
kv_server_complete(CreateForeignTableStmt *statement)
{
	Oid			serverid = InvalidOid;
	ForeignServer *server = NULL;
	Oid			named;

	/* after the wait for the lock another server may have the name */
	while ((named = get_foreign_server_oid(statement->servername, true)) != serverid)
	{
		server = OidIsValid(named) ? our_server(named) : NULL;
		if (server == NULL)
			return;
		serverid = named;
		LockDatabaseObject(ForeignServerRelationId, serverid, 0, RowExclusiveLock);
		server = our_server(serverid);
	}
	for (int i = 0; server != NULL && i < lengthof(copied); i++)
	{
		const char *value = kv_option_value(server->options, copied[i].name);

		if (value != NULL && kv_option_value(statement->options, copied[i].name) == NULL)
			statement->options = lappend(statement->options,
										 makeDefElem(pstrdup(copied[i].name),
													 (Node *) makeString(pstrdup(value)), -1));
	}
}

void
kv_server_hold(Oid relid)
{
	ForeignTable *table = GetForeignTable(relid);

	for (int i = 0; i < lengthof(copied); i++)
	{
		if (kv_option_value(table->options, copied[i].name) == NULL)
		{
			LockDatabaseObject(ForeignServerRelationId, table->serverid, 0, RowExclusiveLock);
			return;
		}
	}
}

/* The server's tables that have no such option of their own. */
static List *
tables_without(Oid serverid, const char *name)
{
	Relation	catalog = table_open(ForeignTableRelationId, AccessShareLock);
	SysScanDesc scan = systable_beginscan(catalog, InvalidOid, false, NULL, 0, NULL);
	List	   *tables = NIL;
	HeapTuple	tuple;

	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_foreign_table form = (Form_pg_foreign_table) GETSTRUCT(tuple);
		bool		isnull;
		Datum		options = heap_getattr(tuple, Anum_pg_foreign_table_ftoptions,
										   RelationGetDescr(catalog), &isnull);

		if (form->ftserver == serverid &&
			(isnull || kv_option_value(untransformRelOptions(options), name) == NULL))
			tables = lappend_oid(tables, form->ftrelid);
	}
	systable_endscan(scan);
	table_close(catalog, AccessShareLock);
	list_sort(tables, list_oid_cmp);
	return tables;
}

static char *
qualified_name(Oid relid)
{
	return quote_qualified_identifier(get_namespace_name(get_rel_namespace(relid)),
									  get_rel_name(relid));
}

/* The value that a table without an own option has by options of its server. */
static const char *
effective_value(List *options, int option)
{
	const char *value = kv_option_value(options, copied[option].name);

	return value != NULL ? value : copied[option].value;
}

/* The value with which a table stays what it is. */
static const char *
present_value(Oid relid, int option, const char *before)
{
	KvWalLevel	level;

	/* a tablespace may have been renamed since the server's option was set */
	if (strcmp(copied[option].name, "tablespace") == 0)
	{
		Oid			tablespace = kv_tablespace_of(relid);

		return OidIsValid(tablespace) ? get_tablespace_name(tablespace) : copied[option].value;
	}
	if (kv_engine_ready() && kv_store_wal_level(MyDatabaseId, relid, &level))
		return kv_wal_level_names[level];
	return before;
}

/* Tables without an own option would follow the server's. */
static void
raise_dependent(const ForeignServer *server, int option, const char *before, List *tables)
{
	StringInfoData names;
	int			n = list_length(tables);
	Oid			first = linitial_oid(tables);

	initStringInfo(&names);
	for (int i = 0; i < Min(n, TOLD_TABLES); i++)
		appendStringInfo(&names, i == 0 ? "%s" : ", %s", qualified_name(list_nth_oid(tables, i)));
	if (n > TOLD_TABLES)
		appendStringInfo(&names, " and %d more", n - TOLD_TABLES);
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("cannot change option \"%s\" of server \"%s\" because foreign tables depend "
					"on it",
					copied[option].name, server->servername),
			 errdetail("These have no option \"%s\" of their own: %s.", copied[option].name,
					   names.data),
			 errhint("Give each the value that it has now, such as ALTER FOREIGN TABLE %s OPTIONS "
					 "(ADD %s %s), and try again.",
					 qualified_name(first), copied[option].name,
					 quote_literal_cstr(present_value(first, option, before)))));
}

void
kv_server_check(Oid serverid, List *before)
{
	ForeignServer *server = our_server(serverid);

	for (int i = 0; server != NULL && i < lengthof(copied); i++)
	{
		const char *value = effective_value(server->options, i);
		const char *was = effective_value(before, i);
		List	   *tables;

		if (strcmp(value, was) == 0)
			continue;
		if (strcmp(copied[i].name, "tablespace") == 0)
			kv_tablespace_check_name(value);
		LockDatabaseObject(ForeignServerRelationId, serverid, 0, ShareRowExclusiveLock);
		tables = tables_without(serverid, copied[i].name);
		if (tables != NIL)
			raise_dependent(server, i, was, tables);
	}
}
