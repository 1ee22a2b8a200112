/*
 * option.c
 *		Options of foreign tables and servers: their names, checks and values.
 *
 * A table has its own option, else that of its server, else the built-in default (server.c).
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/reloptions.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_foreign_server.h"
#include "catalog/pg_foreign_table.h"
#include "commands/defrem.h"
#include "commands/event_trigger.h"
#include "commands/tablecmds.h"
#include "foreign/foreign.h"
#include "nodes/makefuncs.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"
#include "utils/varlena.h"

#include "compat.h"
#include "table/definition.h"
#include "table/internal.h"
#include "table/table.h"

#define DEFAULT_SHARDS		1

/* All options, with an example of their value.  Tables have them all, servers some. */
static const struct
{
	const char *name;
	const char *example;
	bool		server;
}			options_known[] = {
	{"key", "col1, col2", false},
	{"shards", "16", false},
	{"on_duplicate", "ignore", false},
	{"wal", "full", true},
	{"max_space_amplification", "2", true},
	{"compression", "lz4", true},
	{"tablespace", "space1", true},
	{"changes", "on", false},
	{"memcached", "prefix:", false},
	{"memcached_columns", "value, flags, expires", false}
};

PG_FUNCTION_INFO_V1(kvfdw_validator);

/* ---- options ---- */

List *
kv_key_option_columns(const char *value)
{
	List	   *names;
	ListCell   *cell;

	if (!SplitIdentifierString(pstrdup(value), ',', &names) || names == NIL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid value for option \"%s\": \"%s\"", "key", value),
				 errhint("Give the key's columns, separated by commas.")));

	foreach(cell, names)
	{
		for (int i = 0; i < foreach_current_index(cell); i++)
		{
			if (strcmp(lfirst(cell), list_nth(names, i)) == 0)
				ereport(ERROR,
						(errcode(ERRCODE_DUPLICATE_COLUMN),
						 errmsg("column \"%s\" appears twice in option \"%s\"",
								(char *) lfirst(cell), "key")));
		}
	}
	return names;
}

static int
parse_shards_option(const char *value)
{
	char	   *end;
	long		shards;

	errno = 0;
	shards = strtol(value, &end, 10);
	if (errno != 0 || end == value || *end != '\0' ||
		shards < 1 || shards > KV_MAX_SHARDS)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid value for option \"%s\": \"%s\"", "shards", value),
				 errhint("Valid values are integers from 1 to %d.", KV_MAX_SHARDS)));
	return (int) shards;
}

static KvOnDuplicate
parse_on_duplicate_option(const char *value)
{
	if (strcmp(value, "error") == 0)
		return KV_DUPLICATE_ERROR;
	if (strcmp(value, "ignore") == 0)
		return KV_DUPLICATE_IGNORE;
	if (strcmp(value, "replace") == 0)
		return KV_DUPLICATE_REPLACE;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid value for option \"%s\": \"%s\"", "on_duplicate", value),
			 errhint("Valid values are \"error\", \"ignore\" and \"replace\".")));
}

/* Are values to be compressed? */
static bool
parse_compression_option(const char *value)
{
	if (strcmp(value, "none") == 0)
		return false;
	if (strcmp(value, "lz4") == 0)
		return true;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid value for option \"%s\": \"%s\"", "compression", value),
			 errhint("Valid values are \"none\" and \"lz4\".")));
}

/* Are changes followed? */
static bool
parse_changes_option(const char *value)
{
	if (strcmp(value, "off") == 0)
		return false;
	if (strcmp(value, "on") == 0)
		return true;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid value for option \"%s\": \"%s\"", "changes", value),
			 errhint("Valid values are \"on\" and \"off\".")));
}

const char *
kv_wal_level_lacks(KvWalLevel level)
{
	return level == KV_WAL_KEYS ? "WAL level \"keys\" does not log all values." :
		"WAL level \"none\" logs no rows.";
}

/* Can the changes of a table with these options be followed?  ERROR if they cannot. */
static void
check_changes(const KvTable *table)
{
	if (!table->changes)
		return;
	if (table->wal != KV_WAL_FULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("option \"changes\" requires option \"wal\" to be \"full\""),
				 errdetail_internal("%s", kv_wal_level_lacks(table->wal)),
				 errhint("Set the option \"wal\" to \"full\", or \"changes\" to \"off\".")));
	if (!KV_LOGICAL_DECODING_POSSIBLE)
		ereport(WARNING,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("\"wal_level\" is insufficient to follow changes"),
				 errhint("Set \"wal_level\" to \"logical\", and restart the server.")));
}

const char *const kv_wal_level_names[] = {
	[KV_WAL_NONE] = "none",
	[KV_WAL_KEYS] = "keys",
	[KV_WAL_FULL] = "full",
};

static KvWalLevel
parse_wal_option(const char *value)
{
	for (int level = KV_WAL_NONE; level <= KV_WAL_FULL; level++)
	{
		if (strcmp(value, kv_wal_level_names[level]) == 0)
			return (KvWalLevel) level;
	}
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid value for option \"%s\": \"%s\"", "wal", value),
			 errhint("Valid values are \"full\", \"keys\" and \"none\".")));
}

static double
parse_space_amp_option(const char *value)
{
	char	   *end;
	double		amp;

	errno = 0;
	amp = strtod(value, &end);
	if (errno != 0 || end == value || *end != '\0' || !(amp == 0 || (amp >= 1.1 && amp <= 10)))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid value for option \"%s\": \"%s\"", "max_space_amplification",
						value),
				 errhint("Valid values are 0, or between 1.1 and 10.")));
	return amp;
}

/*
 * Whether the memcached front end can serve the table is checked when it serves it; a prefix is
 * part of a key.
 */
static void
check_memcached_option(const char *name, const char *value)
{
	List	   *names;

	if (strcmp(name, "memcached") == 0)
	{
		bool		fits = strlen(value) < KV_MAX_PREFIX;

		for (const char *c = value; *c != '\0'; c++)
			fits = fits && (unsigned char) *c > ' ' && *c != 0x7f;
		if (!fits)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("invalid value for option \"%s\": \"%s\"", name, value),
					 errhint("Give the beginning of the keys that the table serves, without "
							 "spaces, or an empty string for all.")));
	}
	else if (!SplitIdentifierString(pstrdup(value), ',', &names) || names == NIL ||
			 list_length(names) > 3)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid value for option \"%s\": \"%s\"", name, value),
				 errhint("Give the columns of value, flags and expiry, separated by commas; the "
						 "last ones may be left out.")));
}

/* An example of an option's value; NULL: there is no such option. */
static const char *
option_example(const char *name)
{
	for (int i = 0; i < lengthof(options_known); i++)
	{
		if (strcmp(name, options_known[i].name) == 0)
			return options_known[i].example;
	}
	return NULL;
}

/* Do servers accept the option? */
static bool
is_server_option(const char *name)
{
	for (int i = 0; i < lengthof(options_known); i++)
	{
		if (strcmp(name, options_known[i].name) == 0)
			return options_known[i].server;
	}
	return false;
}

/* The valid option whose name is nearest to a mistyped one, or NULL if none is near. */
static const char *
closest_option(const char *name, bool of_server)
{
	const char *closest = NULL;
	int			len = strlen(name);
	int			nearest = Min(Max(2, Min(4, len / 2)) + 1, len);	/* two letters may be swapped */

	for (int i = 0; i < lengthof(options_known); i++)
	{
		const char *option = options_known[i].name;
		int			distance = varstr_levenshtein_less_equal(name, len, option, strlen(option),
															 1, 1, 1, nearest, true);

		if (distance < nearest && (options_known[i].server || !of_server))
		{
			nearest = distance;
			closest = option;
		}
	}
	return closest;
}

/* There is no such option, or it cannot be set on an object of this catalog. */
static void
raise_invalid_option(const char *name, Oid catalog)
{
	const char *example = option_example(name);
	bool		of_server = catalog == ForeignServerRelationId;
	bool		has_options = of_server || catalog == ForeignTableRelationId;
	const char *closest = has_options ? closest_option(name, of_server) : NULL;

	ereport(ERROR,
			(errcode(ERRCODE_FDW_INVALID_OPTION_NAME),
			 errmsg("invalid option \"%s\"", name),
			 example != NULL ?
			 errhint("Set option \"%s\" on the foreign table: OPTIONS (%s '%s').", name, name,
					 example) :
			 closest != NULL ?
			 errhint("Perhaps you meant the option \"%s\".", closest) :
			 of_server ?
			 errhint("Valid options are \"wal\", \"max_space_amplification\", \"compression\" "
					 "and \"tablespace\".") :
			 has_options ?
			 errhint("Valid options are \"key\", \"shards\", \"on_duplicate\", \"wal\", "
					 "\"max_space_amplification\", \"compression\", \"tablespace\", "
					 "\"changes\", \"memcached\" and \"memcached_columns\".") :
			 errhint("There are no valid options in this context.")));
}

/*
 * The wrapper's validator: checks the options of one catalog object.  The columns that "key"
 * names are looked up when the table is first used.
 */
Datum
kvfdw_validator(PG_FUNCTION_ARGS)
{
	List	   *options = untransformRelOptions(PG_GETARG_DATUM(0));
	Oid			catalog = PG_GETARG_OID(1);
	ListCell   *cell;
	KvTable		given = {.wal = KV_WAL_FULL};

	foreach(cell, options)
	{
		DefElem    *option = (DefElem *) lfirst(cell);

		if (catalog == ForeignServerRelationId ? !is_server_option(option->defname) :
			catalog != ForeignTableRelationId || option_example(option->defname) == NULL)
			raise_invalid_option(option->defname, catalog);

		if (strcmp(option->defname, "key") == 0)
			kv_key_option_columns(defGetString(option));
		else if (strcmp(option->defname, "shards") == 0)
			parse_shards_option(defGetString(option));
		else if (strcmp(option->defname, "on_duplicate") == 0)
			parse_on_duplicate_option(defGetString(option));
		else if (strcmp(option->defname, "wal") == 0)
			given.wal = parse_wal_option(defGetString(option));
		else if (strcmp(option->defname, "changes") == 0)
			given.changes = parse_changes_option(defGetString(option));
		else if (strcmp(option->defname, "max_space_amplification") == 0)
			parse_space_amp_option(defGetString(option));
		else if (strcmp(option->defname, "compression") == 0)
			(void) parse_compression_option(defGetString(option));
		else if (strcmp(option->defname, "tablespace") == 0)
			continue;			/* it is checked when the table is known (tablespace.c) */
		else
			check_memcached_option(option->defname, defGetString(option));
	}
	check_changes(&given);
	PG_RETURN_VOID();
}

void
kv_table_read_options(KvTable *table, List *options)
{
	ListCell   *cell;

	table->on_duplicate = KV_DUPLICATE_ERROR;
	table->wal = KV_WAL_FULL;
	table->shards = DEFAULT_SHARDS;
	table->space_amp = -1;
	foreach(cell, options)
	{
		DefElem    *option = (DefElem *) lfirst(cell);

		if (strcmp(option->defname, "shards") == 0)
			table->shards = parse_shards_option(defGetString(option));
		else if (strcmp(option->defname, "on_duplicate") == 0)
			table->on_duplicate = parse_on_duplicate_option(defGetString(option));
		else if (strcmp(option->defname, "wal") == 0)
			table->wal = parse_wal_option(defGetString(option));
		else if (strcmp(option->defname, "max_space_amplification") == 0)
			table->space_amp = parse_space_amp_option(defGetString(option));
		else if (strcmp(option->defname, "compression") == 0)
			table->compresses = parse_compression_option(defGetString(option));
		else if (strcmp(option->defname, "changes") == 0)
			table->changes = parse_changes_option(defGetString(option));
	}
}

/* ---- options in the catalog ---- */

const char *
kv_option_value(List *options, const char *name)
{
	ListCell   *cell;

	foreach(cell, options)
	{
		DefElem    *option = (DefElem *) lfirst(cell);

		if (strcmp(option->defname, name) == 0)
			return defGetString(option);
	}
	return NULL;
}

List *
kv_table_options(Oid relid)
{
	ForeignTable *table = GetForeignTable(relid);
	List	   *options = table->options;
	ListCell   *cell;

	foreach(cell, GetForeignServer(table->serverid)->options)
	{
		DefElem    *option = lfirst(cell);

		if (is_server_option(option->defname) &&
			kv_option_value(table->options, option->defname) == NULL)
			options = lappend(options, option);
	}
	return options;
}

const char *
kv_table_own_option(Oid relid, const char *name)
{
	return kv_option_value(GetForeignTable(relid)->options, name);
}

const char *
kv_table_option(Oid relid, const char *name)
{
	return kv_option_value(kv_table_options(relid), name);
}

/* The value of an option that lists columns, with another name for one of them; NULL: as it is. */
static char *
rename_in_list(const char *value, const char *was, const char *name)
{
	StringInfoData list;
	List	   *names;
	bool		found = false;
	ListCell   *cell;

	if (value == NULL || !SplitIdentifierString(pstrdup(value), ',', &names))
		return NULL;
	initStringInfo(&list);
	foreach(cell, names)
	{
		bool		is_it = strcmp(lfirst(cell), was) == 0;

		found |= is_it;
		appendStringInfo(&list, foreach_current_index(cell) == 0 ? "%s" : ", %s",
						 quote_identifier(is_it ? name : lfirst(cell)));
	}
	return found ? list.data : NULL;
}

void
kv_options_follow_rename(Oid relid, const char *was, const char *name)
{
	static const char *const lists[] = {"key", "memcached_columns"};
	List	   *options = NIL;
	AlterTableCmd *command;

	for (int i = 0; i < lengthof(lists); i++)
	{
		char	   *value = rename_in_list(kv_table_own_option(relid, lists[i]), was, name);

		if (value != NULL)
			options = lappend(options, makeDefElemExtended(NULL, pstrdup(lists[i]),
														   (Node *) makeString(value),
														   DEFELEM_SET, -1));
	}
	if (options == NIL)
		return;
	command = makeNode(AlterTableCmd);
	command->subtype = AT_GenericOptions;
	command->def = (Node *) options;
	EventTriggerAlterTableStart((Node *) command);
	AlterTableInternal(relid, list_make1(command), false);
	EventTriggerAlterTableEnd();
	CommandCounterIncrement();
}

bool
kv_attribute_exists(Oid relid, AttrNumber attnum)
{
	HeapTuple	tuple = SearchSysCacheAttNum(relid, attnum);

	if (!HeapTupleIsValid(tuple))
		return false;
	ReleaseSysCache(tuple);
	return true;
}

bool
kv_is_key_column(Oid relid, AttrNumber attnum)
{
	const char *option = kv_table_option(relid, "key");
	ListCell   *cell;

	if (!kv_attribute_exists(relid, attnum))
		return false;
	if (option == NULL)
	{
		for (AttrNumber before = 1; before < attnum; before++)
		{
			if (kv_attribute_exists(relid, before))
				return false;
		}
		return true;
	}
	foreach(cell, kv_key_option_columns(option))
	{
		if (strcmp(lfirst(cell), get_attname(relid, attnum, false)) == 0)
			return true;
	}
	return false;
}
