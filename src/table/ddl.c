/*
 * ddl.c
 *		Checks tables after a statement that changes definitions.
 *
 * PostgreSQL passes a wrapper nothing but options, so a statement could give a table an
 * impossible key, or drop the key of its rows.  The object access hook notes which tables a
 * statement changes (kv_ddl_note).  At its end, when the catalog has the result, they are
 * checked:
 *
 *  - A table was created, or its options set.  The key must be valid, and be that of the rows
 *    if there are any.  The user must be allowed to put values into the tablespace
 *    (tablespace.c).
 *  - A column was added, or its type changed.  The key must be valid, but the option may name a
 *    missing column until it is set.
 *  - A column was added, or a stored generated one has a new expression.  Existing rows get the
 *    default, or the new value (added.c).
 *  - A column's type was changed otherwise.  Values are cast, or must fit it (added.c).
 *  - The type of a row type's attribute was changed.  No column may have values of the row type
 *    (fit.c).
 *  - NOT NULL, a CHECK constraint or bounds of a partition were declared.  Existing rows must
 *    satisfy them (fit.c).
 *  - A domain got a constraint.  Existing rows must satisfy it (fit.c).
 *  - A key column was dropped.  There must be no rows, and another column that could be a key.
 *    Whether the table is dropped too, in a cascade, is known only at the end.
 *  - A server was created, or its options set.  Its tables must stay as durable as they are,
 *    and where they are (server.c).
 *
 * Before CREATE FOREIGN TABLE is executed, options of the server are added to it (server.c).
 * PRIMARY KEY is taken off it and off ALTER TABLE (primarykey.c).  Where a column is renamed,
 * options name it by its new name, and where the owner changes, indexes follow.
 *
 * pg_upgrade creates tables as they were, step by step, so only columns that cannot be
 * transferred are refused there.  Each table may have data, which pg_upgrade does not transfer,
 * and is marked (mark.c).
 *
 * A statement is a call of ProcessUtility, and checks its own notes only.  Objects that are
 * dropped by other means are checked before COMMIT.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/xact.h"
#include "catalog/index.h"
#include "catalog/pg_class.h"
#include "catalog/pg_constraint.h"
#include "catalog/pg_foreign_server.h"
#include "catalog/pg_foreign_table.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_type.h"
#include "commands/defrem.h"
#include "foreign/foreign.h"
#include "miscadmin.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "compat.h"
#include "engine/engine.h"
#include "table/definition.h"
#include "table/internal.h"
#include "table/table.h"

typedef enum KvNoteKind
{
	KV_NOTE_CREATED,
	KV_NOTE_OPTIONS,
	KV_NOTE_ADDED,				/* a column */
	KV_NOTE_COLUMN,
	KV_NOTE_KEY_DROPPED,
	KV_NOTE_TABLE,				/* its owner, say */

	/* relid is that of a constraint, of a table with a new parent, of a type, or of a relation */
	KV_NOTE_CONSTRAINT,
	KV_NOTE_INHERITED,
	KV_NOTE_TYPE,
	KV_NOTE_ATTRIBUTE,			/* of a relation that is no foreign table */
	KV_NOTE_SERVER				/* relid is that of a server, of any wrapper */
} KvNoteKind;

typedef struct KvNote
{
	KvNoteKind	kind;
	Oid			relid;
	AttrNumber	attnum;
	NameData	column;			/* KV_NOTE_COLUMN, KV_NOTE_KEY_DROPPED: its name before */
	KvRetyped	before;			/* KV_NOTE_COLUMN: its type before */
	List	   *options;		/* KV_NOTE_SERVER: its options before */
	int			depth;			/* of calls of ProcessUtility */
	SubTransactionId subid;
} KvNote;

static ProcessUtility_hook_type previous_utility = NULL;
static int	depth = 0;
static List *notes = NIL;		/* in TopTransactionContext */

static void
add_note(KvNoteKind kind, Oid relid, AttrNumber attnum)
{
	MemoryContext old = MemoryContextSwitchTo(TopTransactionContext);
	KvNote	   *note = palloc0(sizeof(KvNote));

	note->kind = kind;
	note->relid = relid;
	note->attnum = attnum;
	if (kind == KV_NOTE_COLUMN || kind == KV_NOTE_KEY_DROPPED)
		namestrcpy(&note->column, get_attname(relid, attnum, false));
	if (kind == KV_NOTE_COLUMN)
	{
		/* the catalog does not have the statement's changes yet */
		note->before.attnum = attnum;
		get_atttypetypmodcoll(relid, attnum, &note->before.was, &note->before.typmod,
							  &note->before.collation);
	}
	if (kind == KV_NOTE_SERVER)
	{
		ForeignServer *server = GetForeignServerExtended(relid, FSV_MISSING_OK);

		note->options = server != NULL ? server->options : NIL;
	}
	note->depth = depth;
	note->subid = GetCurrentSubTransactionId();
	notes = lappend(notes, note);
	MemoryContextSwitchTo(old);
}

void
kv_ddl_note(ObjectAccessType access, Oid classid, Oid objectid, int subid)
{
	if (access == OAT_POST_ALTER && classid == ForeignTableRelationId)
		add_note(KV_NOTE_OPTIONS, objectid, 0);
	if ((access == OAT_POST_CREATE || access == OAT_POST_ALTER) && classid == ConstraintRelationId)
		add_note(KV_NOTE_CONSTRAINT, objectid, 0);
	if (access == OAT_POST_ALTER && classid == InheritsRelationId)
		add_note(KV_NOTE_INHERITED, objectid, 0);
	if (access == OAT_POST_ALTER && classid == TypeRelationId)
		add_note(KV_NOTE_TYPE, objectid, 0);
	if ((access == OAT_POST_CREATE || access == OAT_POST_ALTER) &&
		classid == ForeignServerRelationId)
		add_note(KV_NOTE_SERVER, objectid, 0);
	if (classid != RelationRelationId)
		return;
	if (access == OAT_POST_CREATE && subid == 0)
		add_note(KV_NOTE_CREATED, objectid, 0);
	else if (access == OAT_POST_ALTER && subid == 0 &&
			 get_rel_relkind(objectid) == RELKIND_FOREIGN_TABLE)
		add_note(KV_NOTE_TABLE, objectid, 0);
	else if ((access == OAT_POST_CREATE || access == OAT_POST_ALTER) && subid > 0 &&
			 get_rel_relkind(objectid) == RELKIND_FOREIGN_TABLE)
		add_note(access == OAT_POST_CREATE ? KV_NOTE_ADDED : KV_NOTE_COLUMN, objectid, subid);
	else if (access == OAT_POST_ALTER && subid > 0)
		add_note(KV_NOTE_ATTRIBUTE, objectid, subid);
	else if (access == OAT_DROP && subid > 0 && kv_is_foreign_table(objectid) &&
			 kv_is_key_column(objectid, subid))
		add_note(KV_NOTE_KEY_DROPPED, objectid, subid);
}

static void
check_dropped(Relation rel, const KvNote *note)
{
	if (kv_attribute_exists(note->relid, note->attnum))
		return;
	if (kv_engine_ready() && kv_table_has_rows(rel))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_TABLE_DEFINITION),
				 errmsg("cannot drop column \"%s\" of foreign table \"%s\" because it is part of "
						"the key of its rows",
						NameStr(note->column), RelationGetRelationName(rel)),
				 errhint("Create a table with another key, and copy the rows into it.")));
	if (!kv_has_key_candidate(rel))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_TABLE_DEFINITION),
				 errmsg("cannot drop column \"%s\" of foreign table \"%s\" because no other column "
						"could be its key",
						NameStr(note->column), RelationGetRelationName(rel)),
				 errhint("Add a column of a supported key type first.")));
}

/* Report the columns of a new key by which no scan can be ordered. */
static void
tell_order(const KvTable *table)
{
	for (int i = 0; i < table->nkeys; i++)
	{
		const KvKeyColumn *key = &table->keys[i];

		if (!key->ordered)
			ereport(NOTICE,
					(errmsg("key column \"%s\" has no order that scans of foreign table \"%s\" "
							"could use",
							NameStr(TupleDescAttr(table->tupdesc, key->attnum - 1)->attname),
							get_rel_name(table->relid)),
					 errdetail("Under the collation \"%s\" rows are found by equality only, not by "
							   "ranges or in the column's order.",
							   get_collation_name(key->collation)),
					 errhint("Declare the column with COLLATE \"C\" if it can be ordered by "
							 "bytes.")));
	}
}

/* Check the key of a table, which may have changed. */
static void
look_at_key(Relation rel, bool is_new)
{
	KvTable    *table = kv_table_get(rel);

	kv_primary_key_check(rel, table);
	if (is_new)
		tell_order(table);
	if (kv_engine_ready())
		kv_table_fit_key(rel);
}

/* If a column was renamed, have the options name it so that it stays what it is. */
static void
follow_rename(const KvNote *note)
{
	char	   *name = get_attname(note->relid, note->attnum, true);

	if (name != NULL && strcmp(name, NameStr(note->column)) != 0)
		kv_options_follow_rename(note->relid, NameStr(note->column), name);
}

static void
look_at(const KvNote *note)
{
	Relation	rel;

	if (note->kind == KV_NOTE_SERVER && !IsBinaryUpgrade)
		kv_server_check(note->relid, note->options);
	if (note->kind >= KV_NOTE_CONSTRAINT || !kv_is_foreign_table(note->relid))
		return;					/* not ours, or dropped */
	if (IsBinaryUpgrade)
	{
		if (note->kind == KV_NOTE_CREATED)
			kv_upgrade_arrive(note->relid);
		return;
	}
	if (note->kind == KV_NOTE_COLUMN)
		follow_rename(note);
	rel = try_relation_open(note->relid, AccessShareLock);
	if (rel == NULL)
		return;
	kv_index_follow_owner(rel);
	if (note->kind == KV_NOTE_CREATED || note->kind == KV_NOTE_OPTIONS)
	{
		kv_server_hold(note->relid);
		kv_tablespace_check(note->relid);
	}
	switch (note->kind)
	{
		case KV_NOTE_CREATED:
			look_at_key(rel, true);
			break;
		case KV_NOTE_OPTIONS:
			look_at_key(rel, false);
			break;
		case KV_NOTE_ADDED:
		case KV_NOTE_COLUMN:
			if (kv_is_key_column(note->relid, note->attnum) && kv_key_columns_exist(rel))
				look_at_key(rel, note->kind == KV_NOTE_ADDED);
			break;
		case KV_NOTE_KEY_DROPPED:
			check_dropped(rel, note);
			break;
		default:
			break;
	}
	relation_close(rel, AccessShareLock);
}

/* Has the ending statement added columns to our tables? */
static bool
has_added(void)
{
	ListCell   *cell;

	foreach(cell, notes)
	{
		const KvNote *note = lfirst(cell);

		if (note->kind == KV_NOTE_ADDED && note->depth == depth &&
			kv_is_foreign_table(note->relid))
			return true;
	}
	return false;
}

/* Does the command name the column of a note, whatever table it is of? */
static bool
names(const AlterTableCmd *command, const KvNote *note)
{
	return command->name != NULL && get_attnum(note->relid, command->name) == note->attnum;
}

/* Does the statement apply this subcommand to the column of a note? */
static bool
says(const AlterTableStmt *statement, AlterTableType subtype, const KvNote *note)
{
	ListCell   *cell;

	if (statement == NULL || (note->kind != KV_NOTE_COLUMN && note->kind != KV_NOTE_ATTRIBUTE))
		return false;
	foreach(cell, statement->cmds)
	{
		const AlterTableCmd *command = lfirst(cell);

		if (command->subtype == subtype && names(command, note))
			return true;
	}
	return false;
}

/* Does the statement change the expression of the note's column, virtual or else stored? */
static bool
says_expression(const AlterTableStmt *statement, const KvNote *note, bool is_virtual)
{
	HeapTuple	tuple;
	bool		found = false;
	ListCell   *cell;

	if (statement == NULL || note->kind != KV_NOTE_COLUMN || !kv_is_foreign_table(note->relid))
		return false;
	foreach(cell, statement->cmds)
	{
		const AlterTableCmd *command = lfirst(cell);

		found |= KV_IS_SET_EXPRESSION(command->subtype) && names(command, note);
	}
	tuple = found ? SearchSysCacheAttNum(note->relid, note->attnum) : NULL;
	if (!HeapTupleIsValid(tuple))
		return false;
	found = KV_ATTRIBUTE_IS_VIRTUAL((Form_pg_attribute) GETSTRUCT(tuple)) == is_virtual;
	ReleaseSysCache(tuple);
	return found;
}

/*
 * Does the statement declare the column of a note NOT NULL?  A primary key does, also for
 * columns of that name in the tables that inherit from its table.
 */
static bool
says_not_null(const AlterTableStmt *statement, const KvNote *note)
{
	ListCell   *cell;

	if (statement == NULL || note->kind != KV_NOTE_COLUMN || !kv_is_foreign_table(note->relid))
		return false;
	if (says(statement, AT_SetNotNull, note))
		return true;
	foreach(cell, statement->cmds)
	{
		const AlterTableCmd *command = lfirst(cell);

		if (command->subtype == AT_AddConstraint && IsA(command->def, Constraint) &&
			((const Constraint *) command->def)->contype == CONSTR_PRIMARY)
		{
			HeapTuple	tuple = SearchSysCacheAttNum(note->relid, note->attnum);
			bool		not_null = HeapTupleIsValid(tuple) &&
				((Form_pg_attribute) GETSTRUCT(tuple))->attnotnull;

			if (HeapTupleIsValid(tuple))
				ReleaseSysCache(tuple);
			return not_null;
		}
	}
	return false;
}

/* Columns of a table that a statement has changed such that its rows must be changed. */
typedef struct KvChangedTable
{
	Oid			relid;
	List	   *added;			/* attribute numbers, also of columns with a new expression */
	List	   *retyped;		/* KvRetyped, as noted first */
} KvChangedTable;

static KvChangedTable *
changed_table(List **tables, Oid relid)
{
	KvChangedTable *table;
	ListCell   *cell;

	foreach(cell, *tables)
	{
		table = lfirst(cell);
		if (table->relid == relid)
			return table;
	}
	table = palloc0(sizeof(KvChangedTable));
	table->relid = relid;
	*tables = lappend(*tables, table);
	return table;
}

static List *
changed_tables(List *mine, const AlterTableStmt *alter)
{
	List	   *tables = NIL;
	ListCell   *cell;

	foreach(cell, mine)
	{
		KvNote	   *note = lfirst(cell);
		bool		added = note->kind == KV_NOTE_ADDED || says_expression(alter, note, false);
		bool		retyped = note->kind == KV_NOTE_COLUMN && says(alter, AT_AlterColumnType, note);
		KvChangedTable *table;
		ListCell   *each;

		if ((!added && !retyped) || !kv_is_foreign_table(note->relid))
			continue;
		table = changed_table(&tables, note->relid);
		if (added)
			table->added = list_append_unique_int(table->added, note->attnum);
		foreach(each, table->retyped)
			retyped &= ((KvRetyped *) lfirst(each))->attnum != note->attnum;
		if (retyped)
			table->retyped = lappend(table->retyped, &note->before);
	}
	return tables;
}

/* Change the rows of a table, unless it was dropped, as its columns were changed. */
static void
follow(const KvChangedTable *table)
{
	Relation	rel = try_relation_open(table->relid, AccessShareLock);
	List	   *attnums = NIL;
	ListCell   *cell;

	if (rel == NULL)
		return;
	if (table->retyped == NIL || !kv_columns_converted(rel, table->retyped, table->added))
	{
		foreach(cell, table->retyped)
			attnums = lappend_int(attnums, ((KvRetyped *) lfirst(cell))->attnum);
		if (table->added != NIL)
			kv_columns_added(rel, table->added);
		if (attnums != NIL)
			kv_columns_retyped(rel, attnums);
	}
	relation_close(rel, AccessShareLock);
}

/* Check that rows satisfy what a statement has declared of their tables. */
static void
look_at_rows(List *mine, Node *statement)
{
	const AlterTableStmt *alter = statement != NULL && IsA(statement, AlterTableStmt) ?
		(const AlterTableStmt *) statement : NULL;
	bool		domain_not_null = statement != NULL && IsA(statement, AlterDomainStmt) &&
		((const AlterDomainStmt *) statement)->subtype == 'O';
	List	   *fits = NIL;
	ListCell   *cell;

	foreach(cell, mine)
	{
		const KvNote *note = lfirst(cell);

		if (note->kind == KV_NOTE_CONSTRAINT)
			kv_fit_constraint(&fits, note->relid);
		else if (note->kind == KV_NOTE_INHERITED)
			kv_fit_inherited(&fits, note->relid);
		else if (note->kind == KV_NOTE_TYPE && domain_not_null)
			kv_fit_domain(&fits, note->relid, InvalidOid);
		else if (says_not_null(alter, note))
			kv_fit_not_null(&fits, note->relid, note->attnum);
		else if (says_expression(alter, note, true))
			kv_fit_generated(&fits, note->relid, note->attnum);
	}
	kv_fit_rows(fits);
	list_free_deep(fits);
}

/* Check the notes of statements at this depth and below: of the ending one, if any. */
static void
look_at_notes(int at_least, Node *statement)
{
	const AlterTableStmt *alter = NULL;
	List	   *mine = NIL;
	List	   *others = NIL;
	MemoryContext old;
	ListCell   *cell;

	if (notes == NIL)
		return;
	old = MemoryContextSwitchTo(TopTransactionContext);
	foreach(cell, notes)
	{
		KvNote	   *note = lfirst(cell);

		if (note->depth >= at_least)
			mine = lappend(mine, note);
		else
			others = lappend(others, note);
	}
	notes = others;
	MemoryContextSwitchTo(old);
	if (mine == NIL)
		return;
	CommandCounterIncrement();
	foreach(cell, mine)
		look_at(lfirst(cell));
	if (!IsBinaryUpgrade)
	{
		if (statement != NULL && IsA(statement, AlterTableStmt))
			alter = (const AlterTableStmt *) statement;
		foreach(cell, mine)
		{
			if (says(alter, AT_AlterColumnType, lfirst(cell)))
				kv_rowtype_require_unused(((KvNote *) lfirst(cell))->relid);
		}
		foreach(cell, changed_tables(mine, alter))
			follow(lfirst(cell));
	}
	look_at_rows(mine, statement);
	list_free_deep(mine);
}

/* Will rows have another value in the column of a note when its statement has ended? */
static bool
is_to_follow(const KvNote *note)
{
	HeapTuple	tuple;
	Form_pg_attribute att;
	bool		result = false;

	if ((note->kind != KV_NOTE_ADDED && note->kind != KV_NOTE_COLUMN) || note->depth == 0)
		return false;
	tuple = SearchSysCacheAttNum(note->relid, note->attnum);
	if (!HeapTupleIsValid(tuple))
		return false;			/* dropped */
	att = (Form_pg_attribute) GETSTRUCT(tuple);
	if (KV_ATTRIBUTE_IS_VIRTUAL(att))
		result = false;
	else if (note->kind == KV_NOTE_ADDED)
		result = att->atthasdef || att->attidentity != '\0' || att->attnotnull ||
			getBaseType(att->atttypid) != att->atttypid ||
			get_typdefault(att->atttypid) != NULL;
	else
		result = att->atttypid != note->before.was || att->atttypmod != note->before.typmod;
	ReleaseSysCache(tuple);
	return result;
}

void
kv_ddl_require_followed(Relation rel)
{
	ListCell   *cell;

	foreach(cell, notes)
	{
		const KvNote *note = lfirst(cell);

		if (note->relid == RelationGetRelid(rel) && is_to_follow(note))
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_IN_USE),
					 errmsg("cannot use foreign table \"%s\" before the statement that alters it "
							"has ended",
							RelationGetRelationName(rel)),
					 errdetail("The event trigger runs before existing rows have a value for "
							   "column \"%s\".",
							   get_attname(note->relid, note->attnum, false))));
	}
}

void
kv_ddl_before_commit(void)
{
	look_at_notes(0, NULL);
}

void
kv_ddl_at_end(void)
{
	notes = NIL;
}

void
kv_ddl_at_subxact_abort(SubTransactionId subid)
{
	ListCell   *cell;

	foreach(cell, notes)
	{
		if (((KvNote *) lfirst(cell))->subid >= subid)
			notes = foreach_delete_current(notes, cell);
	}
}

/*
 * Defaults are evaluated when a statement has ended, so the statement must not also change the
 * default of a column that it adds.
 */
static void
check_commands(const AlterTableStmt *statement)
{
	ListCell   *add;
	ListCell   *change;

	foreach(add, statement->cmds)
	{
		const AlterTableCmd *added = lfirst(add);

		if (added->subtype != AT_AddColumn)
			continue;
		foreach(change, statement->cmds)
		{
			const AlterTableCmd *changed = lfirst(change);

			if ((changed->subtype == AT_ColumnDefault || changed->subtype == AT_AddIdentity) &&
				strcmp(changed->name, ((ColumnDef *) added->def)->colname) == 0)
				ereport(ERROR,
						(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						 errmsg("cannot add column \"%s\" and change its default in one statement",
								changed->name),
						 errdetail("kvfdw takes the value of the column in existing rows from its "
								   "default."),
						 errhint("Use two statements.")));
		}
	}
}

/* DROP TABLESPACE has failed: add a detail that says whose values are there. */
static void
tell_values(void *detail)
{
	if (geterrcode() != ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE)
		return;
	errdetail_internal("%s", (const char *) detail);
	errhint("Wait until the values are moved, or run kvfdw_compact() for the table, and try "
			"again.");
}

/* Does an index that LIKE copies from one of our tables to another table need another method? */
static bool
is_copied_index(const Node *statement)
{
	const IndexStmt *index = (const IndexStmt *) statement;

	return IsA(statement, IndexStmt) && index->transformed && OidIsValid(kv_index_am()) &&
		get_index_am_oid(index->accessMethod, true) == kv_index_am();
}

/*
 * The statement to execute: with the options that a server has for the table that it creates, and
 * without what core would refuse.
 */
static PlannedStmt *
complete(PlannedStmt *pstmt)
{
	Node	   *statement = pstmt->utilityStmt;
	bool		alters = IsA(statement, AlterTableStmt) &&
		kv_primary_key_concerns((AlterTableStmt *) statement);

	kv_index_check_statement(statement);
	if (!alters && !IsA(statement, CreateForeignTableStmt) && !is_copied_index(statement))
		return pstmt;
	pstmt = copyObject(pstmt);	/* it may be a cached plan's */
	statement = pstmt->utilityStmt;
	if (IsA(statement, CreateForeignTableStmt))
	{
		if (!IsBinaryUpgrade)
			kv_server_complete((CreateForeignTableStmt *) statement);
		kv_primary_key_take_create((CreateForeignTableStmt *) statement);
	}
	else if (IsA(statement, IndexStmt))
		((IndexStmt *) statement)->accessMethod = pstrdup(DEFAULT_INDEX_TYPE);
	else if (kv_primary_key_make_carried((AlterTableStmt *) statement))
		return NULL;
	else
		kv_primary_key_take_alter((AlterTableStmt *) statement);
	return pstmt;
}

static void
process_utility(PlannedStmt *pstmt, const char *query, bool read_only,
				ProcessUtilityContext context, ParamListInfo params,
				QueryEnvironment *environment, DestReceiver *dest, QueryCompletion *completion)
{
	ErrorContextCallback values = {.previous = error_context_stack, .callback = tell_values};
	KvNewPrimaryKey *outer = kv_primary_key_begin();

	depth++;
	PG_TRY();
	{
		PlannedStmt *completed = complete(pstmt);

		if (IsA(pstmt->utilityStmt, DropTableSpaceStmt))
		{
			DropTableSpaceStmt *drop = (DropTableSpaceStmt *) pstmt->utilityStmt;

			values.arg = kv_tablespace_use(drop->tablespacename);
		}
		if (values.arg != NULL)
			error_context_stack = &values;
		if (completed == NULL)
			;					/* it was executed already */
		else if (previous_utility)
			previous_utility(completed, query, read_only, context, params, environment, dest,
							 completion);
		else
			standard_ProcessUtility(completed, query, read_only, context, params, environment, dest,
									completion);
		error_context_stack = values.previous;
		if (IsA(pstmt->utilityStmt, AlterTableStmt) && has_added())
			check_commands((const AlterTableStmt *) pstmt->utilityStmt);
		look_at_notes(depth, pstmt->utilityStmt);
		if (IsA(pstmt->utilityStmt, CreateExtensionStmt) &&
			strcmp(((CreateExtensionStmt *) pstmt->utilityStmt)->extname, "kvfdw") == 0)
			kv_engine_warn();
	}
	PG_FINALLY();
	{
		kv_primary_key_end(outer);
		depth--;
	}
	PG_END_TRY();
}

void
kv_ddl_init(void)
{
	previous_utility = ProcessUtility_hook;
	ProcessUtility_hook = process_utility;
}
