/*
 * dump.c
 *		Tells pg_dump that it may leave rows out.
 *
 * pg_dump dumps the rows of foreign tables only with --include-foreign-data, and does not
 * report those that it leaves out.  So a session of pg_dump begins with a WARNING where the
 * database has kvfdw tables with rows.  It is sent before the session's first statement: of
 * later messages pg_dump shows errors alone.  pg_dumpall calls pg_dump for each database.
 *
 * Only the session's name identifies pg_dump, and whether it has the option cannot be seen
 * then.  So the text says "without".  The pg_dump of pg_upgrade dumps no rows; upgrade.c
 * handles it.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/xact.h"
#include "commands/dbcommands.h"
#include "foreign/foreign.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/resowner.h"

#include "table/table.h"

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
			kv_upgrade_leave();
		else
			warn();
	}
}
