/*
 * primarykey.c
 *		PRIMARY KEY of kvfdw tables.
 *
 * A primary key of a kvfdw table is what it is on heap for everyone who looks: a pg_constraint and
 * an index of its columns, so that tools, drivers and pg_dump see it.  Its access method is kvfdw
 * (fdw/indexam.c).  The index has no entries, because the table itself is in the order of its key
 * and unique by it.  So the columns must be those of the key, in its order.  A table without the
 * option "key" gets it.
 *
 * PostgreSQL refuses these constraints on foreign tables while it analyses a statement.  So they
 * are taken off a copy of the statement before it is executed, and made in the middle of the
 * execution: event triggers at its end see a table with its primary key, as on heap.
 *
 *  - CREATE FOREIGN TABLE executes the OPTIONS of a column as a statement of its own, after the
 *    table was made.  A column gets an option that no user can write.  It has the constraint, which
 *    is made in place of that statement.
 *  - ALTER FOREIGN TABLE executes OPTIONS of the table last.  So the constraint becomes an OPTIONS
 *    that sets the key, and the object access hook, which is called for that, makes it.
 *
 * ALTER COLUMN TYPE would drop and create a primary key by a statement that is refused.  The table
 * that the statement names gets both as commands of the same statement.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/index.h"
#include "catalog/namespace.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "catalog/pg_constraint.h"
#include "catalog/pg_foreign_table.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_namespace.h"
#include "commands/comment.h"
#include "commands/defrem.h"
#include "commands/event_trigger.h"
#include "commands/tablecmds.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "compat.h"
#include "report.h"
#include "table/definition.h"
#include "table/internal.h"
#include "table/table.h"

#define ACCESS_METHOD	"kvfdw"
#define TAKEN			"primary key"	/* name of the option that no user can write */

/* A primary key that an ALTER TABLE, which is being executed, is going to make. */
struct KvNewPrimaryKey
{
	Oid			relid;
	Constraint *constraint;		/* NULL: it is made */
	int			before;			/* settings of options that the statement executes before */
	char	   *comment;		/* of the constraint that is replaced, or NULL */
	char	   *index_comment;
};

static KvNewPrimaryKey *adding = NULL;

/* ---- the access method and its indexes ---- */

Oid
kv_index_am(void)
{
	HeapTuple	tuple = SearchSysCache1(AMNAME, CStringGetDatum(ACCESS_METHOD));
	Oid			am = InvalidOid;

	if (!HeapTupleIsValid(tuple))
		return InvalidOid;
	if (kv_is_index_handler(((Form_pg_am) GETSTRUCT(tuple))->amhandler))
		am = ((Form_pg_am) GETSTRUCT(tuple))->oid;
	ReleaseSysCache(tuple);
	return am;
}

static Oid
require_am(void)
{
	Oid			am = kv_index_am();

	if (!OidIsValid(am))
		kv_raise_other_version();
	return am;
}

Oid
kv_primary_key(Relation rel)
{
	return kv_relation_primary_key(rel);
}

static Oid
access_method_of(Oid relid)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	Oid			am = InvalidOid;

	if (HeapTupleIsValid(tuple))
	{
		am = ((Form_pg_class) GETSTRUCT(tuple))->relam;
		ReleaseSysCache(tuple);
	}
	return am;
}

void
kv_index_raise_rebuild(const char *name)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("cannot rebuild index \"%s\" of access method \"%s\"", name, ACCESS_METHOD),
			 errdetail("The index of a primary key has no entries: the foreign table is in the "
					   "order of its key.")));
}

void
kv_index_check_statement(Node *statement)
{
	ReindexStmt *reindex = (ReindexStmt *) statement;
	Oid			index;
	Oid			am;

	if (!IsA(statement, ReindexStmt) || reindex->kind != REINDEX_OBJECT_INDEX)
		return;
	index = RangeVarGetRelid(reindex->relation, NoLock, true);
	am = kv_index_am();
	if (OidIsValid(index) && OidIsValid(am) && access_method_of(index) == am)
		kv_index_raise_rebuild(get_rel_name(index));
}

void
kv_index_follow_owner(Relation rel)
{
	ListCell   *cell;

	foreach(cell, RelationGetIndexList(rel))
	{
		HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(lfirst_oid(cell)));
		Oid			owner;

		if (!HeapTupleIsValid(tuple))
			continue;
		owner = ((Form_pg_class) GETSTRUCT(tuple))->relowner;
		ReleaseSysCache(tuple);
		if (owner != rel->rd_rel->relowner)
			ATExecChangeOwner(lfirst_oid(cell), rel->rd_rel->relowner, true, AccessExclusiveLock);
	}
}

/* ---- making a primary key ---- */

static char *
column_list(List *columns)
{
	StringInfoData list;
	ListCell   *cell;

	initStringInfo(&list);
	foreach(cell, columns)
		appendStringInfo(&list, foreach_current_index(cell) == 0 ? "%s" : ", %s",
						 quote_identifier(strVal(lfirst(cell))));
	return list.data;
}

/* The columns (Strings) of a table's key. */
static List *
key_columns(const KvTable *table)
{
	List	   *columns = NIL;

	for (int i = 0; i < table->nkeys; i++)
	{
		Form_pg_attribute att = TupleDescAttr(table->tupdesc, table->keys[i].attnum - 1);

		columns = lappend(columns, makeString(pstrdup(NameStr(att->attname))));
	}
	return columns;
}

static void
require_key(const char *table, List *columns, List *key)
{
	if (equal(columns, key))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_TABLE_DEFINITION),
			 errmsg("primary key of foreign table \"%s\" must be its key", table),
			 errdetail("The primary key is (%s), the key is (%s).", column_list(columns),
					   column_list(key)),
			 errhint("Name the columns of the key in its order: PRIMARY KEY (%s).",
					 column_list(key))));
}

/* As require_key, for a key as an option names it; NULL: there is no option. */
static void
require_option(const char *table, List *columns, const char *option)
{
	List	   *key = NIL;
	ListCell   *cell;

	if (option == NULL)
		return;
	foreach(cell, kv_key_option_columns(option))
		key = lappend(key, makeString(lfirst(cell)));
	require_key(table, columns, key);
}

void
kv_primary_key_check(Relation rel, const KvTable *table)
{
	Oid			index = kv_primary_key(rel);
	HeapTuple	tuple;
	Form_pg_index form;
	bool		same;

	if (!OidIsValid(index))
		return;
	tuple = SearchSysCache1(INDEXRELID, ObjectIdGetDatum(index));
	if (!HeapTupleIsValid(tuple))
		return;
	form = (Form_pg_index) GETSTRUCT(tuple);
	same = form->indnatts == table->nkeys;
	for (int i = 0; same && i < table->nkeys; i++)
		same = form->indkey.values[i] == table->keys[i].attnum;
	ReleaseSysCache(tuple);
	if (!same)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_TABLE_DEFINITION),
				 errmsg("cannot change the key of foreign table \"%s\" because it is its primary "
						"key",
						RelationGetRelationName(rel)),
				 errhint("Drop the constraint \"%s\" first.", get_rel_name(index))));
}

/* Constraints that are more than unique columns that are not NULL. */
static void
check_features(const Constraint *constraint)
{
	const char *feature = constraint->deferrable || constraint->initdeferred ? "DEFERRABLE" :
		constraint->including != NIL ? "INCLUDE" :
		constraint->options != NIL ? "WITH" :
		constraint->indexname != NULL ? "USING INDEX" :
		constraint->indexspace != NULL ? "USING INDEX TABLESPACE" :
		kv_without_overlaps(constraint) ? "WITHOUT OVERLAPS" : NULL;

	if (feature != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("primary key with %s is not supported on kvfdw tables", feature)));
}

/* Declare the columns NOT NULL that are not yet, of a table that nothing has opened. */
static void
set_not_null(Oid relid, List *columns)
{
	Relation	rel = table_open(relid, NoLock);
	List	   *commands = NIL;
	ListCell   *cell;

	foreach(cell, columns)
	{
		Form_pg_attribute att = kv_find_attribute(RelationGetDescr(rel), strVal(lfirst(cell)));
		AlterTableCmd *command;

		if (att == NULL)
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_COLUMN),
					 errmsg("column \"%s\" named in key does not exist", strVal(lfirst(cell)))));
		if (att->attnotnull)
			continue;
		command = makeNode(AlterTableCmd);
		command->subtype = AT_SetNotNull;
		command->name = pstrdup(NameStr(att->attname));
		commands = lappend(commands, command);
	}
	table_close(rel, NoLock);
	if (commands == NIL)
		return;
	AlterTableInternal(relid, commands, false);
	CommandCounterIncrement();
}

KV_NORETURN static void
raise_multiple(const char *table)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_TABLE_DEFINITION),
			 errmsg("multiple primary keys for table \"%s\" are not allowed", table)));
}

/* Make the catalog's rows; the table was altered until here, and is locked. */
static ObjectAddress
make(Relation rel, Constraint *constraint)
{
	KvTable    *table = kv_table_get(rel);
	Oid			am = require_am();
	IndexInfo  *info = kv_make_unique_index_info(table->nkeys, am);
	Oid			collations[INDEX_MAX_KEYS];
	Oid			classes[INDEX_MAX_KEYS];
	int16		options[INDEX_MAX_KEYS] = {0};
	List	   *names = NIL;
	char	   *name = constraint->conname;
	ObjectAddress address;

	require_key(RelationGetRelationName(rel), constraint->keys, key_columns(table));
	if (OidIsValid(kv_primary_key(rel)))
		raise_multiple(RelationGetRelationName(rel));
	if (table->nkeys > INDEX_MAX_KEYS)
		ereport(ERROR,
				(errcode(ERRCODE_TOO_MANY_COLUMNS),
				 errmsg("cannot use more than %d columns in an index", INDEX_MAX_KEYS)));
	for (int i = 0; i < table->nkeys; i++)
	{
		Form_pg_attribute att = TupleDescAttr(table->tupdesc, table->keys[i].attnum - 1);

		info->ii_IndexAttrNumbers[i] = att->attnum;
		collations[i] = att->attcollation;
		classes[i] = GetDefaultOpClass(att->atttypid, am);
		names = lappend(names, pstrdup(NameStr(att->attname)));
	}
	if (name == NULL)
		name = ChooseRelationName(RelationGetRelationName(rel), NULL, "pkey",
								  RelationGetNamespace(rel), true);
	ObjectAddressSet(address, RelationRelationId,
					 kv_index_create(rel, name, info, names, am, collations, classes, options,
									 INDEX_CREATE_IS_PRIMARY | INDEX_CREATE_ADD_CONSTRAINT |
									 INDEX_CREATE_SKIP_BUILD));
	return address;
}

/* ---- CREATE FOREIGN TABLE ---- */

/*
 * Take PRIMARY KEY off a column, leaving NOT NULL; returns it, or NULL.  Words about deferring that
 * follow it go with it.
 */
static Constraint *
take_of_column(const char *table, ColumnDef *column)
{
	Constraint *taken = NULL;
	bool		follows = false;	/* does the last constraint belong to the one taken? */
	ListCell   *cell;

	foreach(cell, column->constraints)
	{
		Constraint *constraint = lfirst_node(Constraint, cell);

		switch (constraint->contype)
		{
			case CONSTR_PRIMARY:
				if (taken != NULL)
					raise_multiple(table);
				taken = copyObject(constraint);
				taken->keys = list_make1(makeString(pstrdup(column->colname)));
				constraint->contype = CONSTR_NOTNULL;
				constraint->conname = NULL;
				kv_set_initially_valid(constraint);
				follows = true;
				break;
			case CONSTR_ATTR_DEFERRABLE:
			case CONSTR_ATTR_DEFERRED:
			case CONSTR_ATTR_NOT_DEFERRABLE:
			case CONSTR_ATTR_IMMEDIATE:
				if (!follows)
					break;
				if (constraint->contype == CONSTR_ATTR_DEFERRABLE)
					taken->deferrable = true;
				if (constraint->contype == CONSTR_ATTR_DEFERRED)
					taken->initdeferred = true;
				column->constraints = foreach_delete_current(column->constraints, cell);
				break;
			default:
				follows = false;
				break;
		}
	}
	return taken;
}

/* The constraint that is the one so far or another one, of which there must not be two. */
static Constraint *
only(const char *table, Constraint *constraint, Constraint *another)
{
	if (another == NULL)
		return constraint;
	if (constraint != NULL)
		raise_multiple(table);
	check_features(another);
	for (int i = 0; i < list_length(another->keys); i++)
	{
		for (int j = 0; j < i; j++)
		{
			if (equal(list_nth(another->keys, i), list_nth(another->keys, j)))
				ereport(ERROR,
						(errcode(ERRCODE_DUPLICATE_COLUMN),
						 errmsg("column \"%s\" appears twice in primary key constraint",
								strVal(list_nth(another->keys, i)))));
		}
	}
	return another;
}

/* The column that a statement defines. */
static ColumnDef *
find_definition(List *elements, const char *name)
{
	ListCell   *cell;

	foreach(cell, elements)
	{
		ColumnDef  *column = lfirst(cell);

		if (IsA(column, ColumnDef) && (name == NULL || strcmp(column->colname, name) == 0))
			return column;
	}
	return NULL;
}

static bool
says_null(const ColumnDef *column)
{
	ListCell   *cell;

	foreach(cell, column->constraints)
	{
		const Constraint *constraint = lfirst(cell);

		if (constraint->contype == CONSTR_NULL || constraint->contype == CONSTR_NOTNULL)
			return true;
	}
	return false;
}

/* Have columns of a table constraint NOT NULL from the beginning, if the statement defines them. */
static void
declare_not_null(List *elements, List *columns)
{
	ListCell   *cell;

	foreach(cell, columns)
	{
		ColumnDef  *column = find_definition(elements, strVal(lfirst(cell)));
		Constraint *constraint;

		if (column == NULL || says_null(column))
			continue;
		constraint = makeNode(Constraint);
		constraint->contype = CONSTR_NOTNULL;
		constraint->location = -1;
		kv_set_initially_valid(constraint);
		column->constraints = lappend(column->constraints, constraint);
	}
}

/* The column that gets the option by which the constraint is made after the table. */
static ColumnDef *
carrier(CreateStmt *statement, List *columns)
{
	ColumnDef  *column = find_definition(statement->tableElts, NULL);

	if (column != NULL)
		return column;
	if (statement->partbound == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot create foreign table \"%s\" with a primary key and no column of "
						"its own",
						statement->relation->relname),
				 errhint("Use ALTER FOREIGN TABLE to add the primary key after the table is "
						 "created.")));
	/* a partition may name columns of its parent, without their types */
	column = makeNode(ColumnDef);
	column->colname = pstrdup(strVal(linitial(columns)));
	column->is_local = true;
	column->location = -1;
	statement->tableElts = lappend(statement->tableElts, column);
	return column;
}

void
kv_primary_key_take_create(CreateForeignTableStmt *statement)
{
	CreateStmt *base = &statement->base;
	Constraint *constraint = NULL;
	const char *option;
	ColumnDef  *column;
	ListCell   *cell;

	if (!kv_server_is_ours(statement->servername))
		return;
	foreach(cell, base->tableElts)
	{
		Node	   *element = lfirst(cell);

		if (IsA(element, ColumnDef))
			constraint = only(base->relation->relname, constraint,
							  take_of_column(base->relation->relname,
											 (ColumnDef *) element));
		else if (IsA(element, Constraint) && ((Constraint *) element)->contype == CONSTR_PRIMARY)
		{
			constraint = only(base->relation->relname, constraint, (Constraint *) element);
			base->tableElts = foreach_delete_current(base->tableElts, cell);
		}
	}
	if (constraint == NULL)
		return;
	option = kv_option_value(statement->options, "key");
	require_option(base->relation->relname, constraint->keys, option);
	if (option == NULL)
		statement->options = lappend(statement->options,
									 makeDefElem(pstrdup("key"),
												 (Node *) makeString(column_list(constraint->keys)),
												 -1));
	column = carrier(base, constraint->keys);
	declare_not_null(base->tableElts, constraint->keys);
	column->fdwoptions = lappend(column->fdwoptions,
								 makeDefElemExtended(pstrdup(ACCESS_METHOD), pstrdup(TAKEN),
													 (Node *) constraint, DEFELEM_UNSPEC, -1));
}

/* The constraint that a statement of take_create's has, which is removed from it, or NULL. */
static Constraint *
take_carried(AlterTableStmt *statement)
{
	AlterTableCmd *command = statement->cmds != NIL ? linitial(statement->cmds) : NULL;
	ListCell   *cell;

	if (command == NULL || command->subtype != AT_AlterColumnGenericOptions)
		return NULL;
	foreach(cell, (List *) command->def)
	{
		DefElem    *option = lfirst(cell);

		if (option->defnamespace != NULL && strcmp(option->defnamespace, ACCESS_METHOD) == 0 &&
			strcmp(option->defname, TAKEN) == 0)
		{
			command->def = (Node *) foreach_delete_current((List *) command->def, cell);
			return castNode(Constraint, option->arg);
		}
	}
	return NULL;
}

/* The statement that heap would have executed, for event triggers. */
static IndexStmt *
index_statement(RangeVar *table, const Constraint *constraint)
{
	IndexStmt  *statement = makeNode(IndexStmt);
	ListCell   *cell;

	statement->relation = table;
	statement->idxname = constraint->conname;
	statement->accessMethod = ACCESS_METHOD;
	statement->unique = true;
	statement->primary = true;
	statement->isconstraint = true;
	foreach(cell, constraint->keys)
	{
		IndexElem  *element = makeNode(IndexElem);

		element->name = strVal(lfirst(cell));
		statement->indexParams = lappend(statement->indexParams, element);
	}
	return statement;
}

bool
kv_primary_key_make_carried(AlterTableStmt *statement)
{
	Constraint *constraint = take_carried(statement);
	Node	   *command;
	Oid			relid;
	Relation	rel;

	if (constraint == NULL)
		return false;
	command = (Node *) index_statement(statement->relation, constraint);
	relid = RangeVarGetRelid(statement->relation, AccessExclusiveLock, false);
	EventTriggerAlterTableStart(command);
	EventTriggerAlterTableRelid(relid);
	set_not_null(relid, constraint->keys);
	rel = table_open(relid, NoLock);
	EventTriggerCollectSimpleCommand(make(rel, constraint), InvalidObjectAddress, command);
	EventTriggerAlterTableEnd();
	table_close(rel, NoLock);
	CommandCounterIncrement();
	return ((AlterTableCmd *) linitial(statement->cmds))->def == NULL;
}

/* ---- ALTER TABLE ---- */

/* May a statement add a primary key, or change the type of a column that one has? */
bool
kv_primary_key_concerns(const AlterTableStmt *statement)
{
	ListCell   *cell;

	if (statement->objtype != OBJECT_TABLE && statement->objtype != OBJECT_FOREIGN_TABLE)
		return false;
	foreach(cell, statement->cmds)
	{
		const AlterTableCmd *command = lfirst(cell);
		ListCell   *each;

		if (command->subtype == AT_AlterColumnType ||
			command->subtype == AT_AlterColumnGenericOptions)
			return true;
		if (command->subtype == AT_AddConstraint &&
			((const Constraint *) command->def)->contype == CONSTR_PRIMARY)
			return true;
		if (command->subtype != AT_AddColumn)
			continue;
		foreach(each, ((const ColumnDef *) command->def)->constraints)
		{
			if (((const Constraint *) lfirst(each))->contype == CONSTR_PRIMARY)
				return true;
		}
	}
	return false;
}

/* Does a command add a column, unless it exists, that does exist? */
static bool
adds_nothing(const AlterTableCmd *command, Oid relid)
{
	return command->subtype == AT_AddColumn && command->missing_ok &&
		get_attnum(relid, ((const ColumnDef *) command->def)->colname) != InvalidAttrNumber;
}

static Constraint *
take_of_commands(AlterTableStmt *statement, Oid relid)
{
	const char *table = statement->relation->relname;
	Constraint *constraint = NULL;
	ListCell   *cell;

	foreach(cell, statement->cmds)
	{
		AlterTableCmd *command = lfirst(cell);

		if (adds_nothing(command, relid))
			continue;
		if (command->subtype == AT_AddColumn)
			constraint = only(table, constraint,
							  take_of_column(table, (ColumnDef *) command->def));
		else if (command->subtype == AT_AddConstraint &&
				 ((Constraint *) command->def)->contype == CONSTR_PRIMARY)
		{
			constraint = only(table, constraint, (Constraint *) command->def);
			statement->cmds = foreach_delete_current(statement->cmds, cell);
		}
	}
	return constraint;
}

/* Does a statement alter the type of a column that the constraint names? */
static bool
retypes(const AlterTableStmt *statement, const Constraint *primary)
{
	ListCell   *cell;

	foreach(cell, statement->cmds)
	{
		AlterTableCmd *command = lfirst(cell);

		if (command->subtype == AT_AlterColumnType &&
			list_member(primary->keys, makeString(command->name)))
			return true;
	}
	return false;
}

static bool
drops(const AlterTableStmt *statement, const char *constraint)
{
	ListCell   *cell;

	foreach(cell, statement->cmds)
	{
		const AlterTableCmd *command = lfirst(cell);

		if (command->subtype == AT_DropConstraint && strcmp(command->name, constraint) == 0)
			return true;
	}
	return false;
}

/* The primary key that a table has, as a statement would add it, or NULL. */
static Constraint *
present(Oid relid)
{
	Relation	rel = table_open(relid, NoLock);
	Oid			index = kv_primary_key(rel);
	Constraint *constraint = NULL;

	if (OidIsValid(index))
	{
		constraint = makeNode(Constraint);
		constraint->contype = CONSTR_PRIMARY;
		constraint->conname = get_rel_name(index);
		constraint->location = -1;
		constraint->keys = key_columns(kv_table_get(rel));
	}
	table_close(rel, NoLock);
	return constraint;
}

/* Refuse to alter a type by which primary keys of tables that inherit the column would change. */
static void
check_heirs(const AlterTableStmt *statement, Oid relid)
{
	ListCell   *cell;

	if (!statement->relation->inh)
		return;
	foreach(cell, find_all_inheritors(relid, NoLock, NULL))
	{
		Oid			heir = lfirst_oid(cell);
		Constraint *constraint;

		if (heir == relid || !kv_is_foreign_table(heir))
			continue;
		LockRelationOid(heir, AccessShareLock);
		constraint = kv_is_foreign_table(heir) ? present(heir) : NULL;
		UnlockRelationOid(heir, AccessShareLock);
		if (constraint != NULL && retypes(statement, constraint))
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("cannot alter the type of a column of the primary key of foreign table "
							"\"%s\" through its parent",
							get_rel_name(heir)),
					 errhint("Drop the constraint \"%s\", alter the type, and add the constraint "
							 "again.",
							 constraint->conname)));
	}
}

static AlterTableCmd *
add_command(AlterTableStmt *statement, AlterTableType subtype, char *name)
{
	AlterTableCmd *command = makeNode(AlterTableCmd);

	command->subtype = subtype;
	command->name = name;
	command->behavior = DROP_RESTRICT;
	statement->cmds = lappend(statement->cmds, command);
	return command;
}

/* The key that a statement's OPTIONS set, else the option that the table has, or NULL. */
static const char *
option_after(const AlterTableStmt *statement, Oid relid, int *settings)
{
	const char *key = kv_table_own_option(relid, "key");
	ListCell   *cell;

	*settings = 0;
	foreach(cell, statement->cmds)
	{
		const AlterTableCmd *command = lfirst(cell);
		ListCell   *each;

		if (command->subtype != AT_GenericOptions)
			continue;
		(*settings)++;
		foreach(each, (List *) command->def)
		{
			DefElem    *option = lfirst(each);

			if (strcmp(option->defname, "key") == 0)
				key = option->defaction == DEFELEM_DROP ? NULL : defGetString(option);
		}
	}
	return key;
}

/* Have the statement make the constraint, after all that it has to do before. */
static void
append(AlterTableStmt *statement, KvNewPrimaryKey *new)
{
	List	   *columns = new->constraint->keys;
	const char *option = option_after(statement, new->relid, &new->before);
	AlterTableCmd *command;
	ListCell   *cell;

	require_option(get_rel_name(new->relid), columns, option);
	foreach(cell, columns)
		add_command(statement, AT_SetNotNull, pstrdup(strVal(lfirst(cell))));
	command = add_command(statement, AT_GenericOptions, NULL);
	command->def = (Node *)
		list_make1(makeDefElemExtended(NULL, pstrdup("key"),
									   (Node *) makeString(option != NULL ? pstrdup(option) :
														   column_list(columns)),
									   option != NULL ? DEFELEM_SET : DEFELEM_ADD, -1));
}

/* Drop the primary key that a statement would have to make again, and note to do so. */
static void
drop_before(AlterTableStmt *statement, KvNewPrimaryKey *new)
{
	Oid			constraint = get_relation_constraint_oid(new->relid, new->constraint->conname,
														 false);

	new->comment = GetComment(constraint, ConstraintRelationId, 0);
	new->index_comment = GetComment(get_constraint_index(constraint), RelationRelationId, 0);
	add_command(statement, AT_DropConstraint, new->constraint->conname);
}

void
kv_primary_key_take_alter(AlterTableStmt *statement)
{
	Oid			relid = RangeVarGetRelid(statement->relation, NoLock, true);
	Constraint *before;
	KvNewPrimaryKey *new;

	if (!OidIsValid(relid))
		return;
	if (!kv_is_foreign_table(relid))
	{
		check_heirs(statement, relid);
		return;
	}
	relid = RangeVarGetRelidExtended(statement->relation, AccessExclusiveLock, RVR_MISSING_OK,
									 RangeVarCallbackOwnsRelation, NULL);
	if (!OidIsValid(relid) || !kv_is_foreign_table(relid))
		return;

	/* it is locked, so it is what core will find by its full name */
	statement->relation->schemaname = get_namespace_name(get_rel_namespace(relid));
	check_heirs(statement, relid);
	new = palloc0(sizeof(KvNewPrimaryKey));
	new->relid = relid;
	new->constraint = take_of_commands(statement, relid);
	before = present(relid);
	if (new->constraint != NULL)
	{
		if (before != NULL && !drops(statement, before->conname))
			raise_multiple(get_rel_name(relid));
		if (!kv_may_create_in_schema(get_rel_namespace(relid), GetUserId()))
			aclcheck_error(ACLCHECK_NO_PRIV, OBJECT_SCHEMA, statement->relation->schemaname);
	}
	else
	{
		if (before == NULL || !retypes(statement, before) || drops(statement, before->conname))
			return;
		new->constraint = before;
		drop_before(statement, new);
	}
	append(statement, new);
	adding = new;
}

void
kv_primary_key_options_set(Oid relid)
{
	KvNewPrimaryKey *new = adding;
	Relation	rel;
	Oid			index;

	if (new == NULL || new->constraint == NULL || new->relid != relid || new->before-- > 0)
		return;
	CommandCounterIncrement();
	rel = table_open(relid, NoLock);
	index = make(rel, new->constraint).objectId;
	if (new->comment != NULL)
		CreateComments(get_relation_constraint_oid(relid, get_rel_name(index), false),
					   ConstraintRelationId, 0, new->comment);
	if (new->index_comment != NULL)
		CreateComments(index, RelationRelationId, 0, new->index_comment);
	new->constraint = NULL;
	table_close(rel, NoLock);
}

KvNewPrimaryKey *
kv_primary_key_begin(void)
{
	KvNewPrimaryKey *outer = adding;

	adding = NULL;
	return outer;
}

void
kv_primary_key_end(KvNewPrimaryKey *outer)
{
	adding = outer;
}
