/*
 * added.c
 *		Old rows of a table whose columns are added, or get another type.
 *
 * An added column reads as on heap: old rows get the default as it was in the ALTER that added
 * the column, whatever it is changed to later.  A default that is the same for all rows is
 * computed once; the schema image stores it (schema.c), and rows are left unchanged.  A default
 * that may differ from row to row (volatile functions, sequences, identity, stored generated
 * columns) is computed for each row.  All rows are then rewritten into a new store, which is
 * the table's from COMMIT on, as with TRUNCATE.  A default that is too large for the image has
 * the rows rewritten, too.
 *
 * A column's type can change in two ways.  The new type may be stored in the same way, with
 * another length or precision, or as a domain.  Then all values must fit it, and rows are
 * rewritten only if a value changes.  Else all rows are rewritten, with the values cast by
 * assignment, as on heap without USING, and with the columns that the statement has added.
 * They are read with the types before the statement, which the object access hook has noted
 * (ddl.c), not with those of the schema image: among types that are stored alike the image has
 * the first, and a cast may differ.
 *
 * All this happens at the end of the ALTER, under its AccessExclusiveLock.
 */
#include "postgres.h"

#include "access/xact.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "optimizer/optimizer.h"
#include "parser/parse_coerce.h"
#include "parser/parse_collate.h"
#include "rewrite/rewriteHandler.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/typcache.h"

#include "compat.h"
#include "engine/change.h"
#include "engine/engine.h"
#include "engine/maintenance.h"
#include "engine/rows.h"
#include "engine/store.h"
#include "table/definition.h"
#include "table/internal.h"
#include "table/table.h"

#define IMAGE_MAX	(64 * 1024)		/* bytes of a value that the image stores */

/* An added column that is not simply NULL in old rows; or a column with another type. */
typedef struct AddedColumn
{
	Form_pg_attribute att;
	Expr	   *expr;			/* NULL: the value is NULL, which is not allowed */
	ExprState  *state;
	bool		generated;
	bool		given;			/* the column has the default, not its type */
	bool		differs;		/* may differ from row to row */
} AddedColumn;

/* Returns NULL if the column is NULL in old rows, and may be. */
static AddedColumn *
describe(Relation rel, TupleDesc desc, AttrNumber attnum)
{
	Form_pg_attribute att = TupleDescAttr(desc, attnum - 1);
	AddedColumn *column = palloc0(sizeof(AddedColumn));

	if (att->attisdropped || KV_ATTRIBUTE_IS_VIRTUAL(att))
		return NULL;
	column->att = att;
	column->generated = att->attgenerated != '\0';
	column->expr = (Expr *) build_column_default(rel, attnum);
	column->given = column->expr != NULL;
	if (column->expr == NULL && kv_domain_has_constraints(att->atttypid))
	{
		int32		typmod = att->atttypmod;
		Oid			base = getBaseTypeAndTypmod(att->atttypid, &typmod);

		column->expr = (Expr *)
			coerce_to_target_type(NULL,
								  (Node *) makeNullConst(base, typmod, get_typcollation(base)),
								  base, att->atttypid, att->atttypmod,
								  COERCION_ASSIGNMENT, COERCE_IMPLICIT_CAST, -1);
	}
	if (column->expr == NULL && !att->attnotnull)
		return NULL;
	column->differs = column->generated || contain_volatile_functions((Node *) column->expr);
	return column;
}

KV_NORETURN static void
raise_null(Relation rel, const AddedColumn *column)
{
	ereport(ERROR,
			(errcode(ERRCODE_NOT_NULL_VIOLATION),
			 errmsg("column \"%s\" of relation \"%s\" contains null values",
					NameStr(column->att->attname), RelationGetRelationName(rel)),
			 errtablecol(rel, column->att->attnum)));
}

/*
 * Compute a default that is the same for all rows; *isnull may violate the column's
 * constraints.
 */
static Datum
compute(AddedColumn *column, EState *estate, bool *isnull)
{
	Datum		value;

	*isnull = true;
	if (column->expr == NULL)
		return (Datum) 0;
	value = ExecEvalExprSwitchContext(ExecPrepareExpr(column->expr, estate),
									  GetPerTupleExprContext(estate), isnull);
	if (*isnull || column->att->attbyval)
		return value;
	if (column->att->attlen == -1)
		value = PointerGetDatum(PG_DETOAST_DATUM(value));
	return datumCopy(value, false, column->att->attlen);
}

/* ---- rewriting rows ---- */

KV_NORETURN static void
raise_key_changes(Relation rel, const AddedColumn *column)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_TABLE_DEFINITION),
			 errmsg("cannot change the type of column \"%s\" because it would change keys of "
					"foreign table \"%s\"",
					NameStr(column->att->attname), RelationGetRelationName(rel)),
			 errhint("Copy the rows into a table with the other type.")));
}

/* Is the value of a column in the slot this one? */
static bool
is_same(const AddedColumn *column, const TupleTableSlot *slot, Datum value, bool isnull)
{
	int			i = column->att->attnum - 1;

	return isnull == slot->tts_isnull[i] &&
		(isnull || datum_image_eq(value, slot->tts_values[i], column->att->attbyval,
								  column->att->attlen));
}

/* Generated columns come last: they may be made of the others. */
static void
fill_row(Relation rel, const KvTable *table, List *columns, bool generated,
		 ExprContext *econtext, TupleTableSlot *slot)
{
	ListCell   *cell;

	foreach(cell, columns)
	{
		AddedColumn *column = lfirst(cell);
		int			i = column->att->attnum - 1;
		Datum		value;
		bool		isnull;

		if (column->generated != generated)
			continue;
		value = ExecEvalExpr(column->state, econtext, &isnull);
		if (isnull && column->att->attnotnull)
			raise_null(rel, column);
		if (table->keyindex[i] >= 0 && !is_same(column, slot, value, isnull))
			raise_key_changes(rel, column);
		slot->tts_values[i] = value;
		slot->tts_isnull[i] = isnull;
	}
}

/* Rows are copied from one store to another. */
typedef struct Rewriting
{
	Relation	rel;
	List	   *columns;
	KvStore    *to;
	const KvTable *table;
	TupleTableSlot *slot;	/* of new rows, or NULL: they have the same columns as the old ones */
	Snapshot	snapshot;
	CommandId	cid;
	StringInfoData buf;
} Rewriting;

/* The store's own key bytes are kept: neither defaults nor casts change a key. */
static void
rewrite_row(ExprContext *econtext, const KvRow *row, void *arg)
{
	Rewriting  *rewriting = arg;
	TupleTableSlot *was = econtext->ecxt_scantuple;
	TupleTableSlot *slot = was;
	KvKey		key = {row->key, row->keylen};
	const char *value;
	Size		len;
	KvForm		form;

	if (rewriting->slot != NULL)
	{
		int			natts = was->tts_tupleDescriptor->natts;

		slot = rewriting->slot;
		ExecClearTuple(slot);
		memcpy(slot->tts_values, was->tts_values, sizeof(Datum) * natts);
		memcpy(slot->tts_isnull, was->tts_isnull, sizeof(bool) * natts);
		ExecStoreVirtualTuple(slot);
		slot->tts_tableOid = was->tts_tableOid;
	}
	fill_row(rewriting->rel, rewriting->table, rewriting->columns, false, econtext, slot);
	econtext->ecxt_scantuple = slot;
	fill_row(rewriting->rel, rewriting->table, rewriting->columns, true, econtext, slot);
	econtext->ecxt_scantuple = was;
	form = kv_tuple_encode(rewriting->table, slot, &rewriting->buf, &value, &len);
	if (kv_insert(rewriting->to, rewriting->rel, key, form, value, len, rewriting->snapshot,
				  rewriting->cid, false) != KV_INSERTED)
		elog(ERROR, "a row of foreign table \"%s\" is there twice",
			 RelationGetRelationName(rewriting->rel));
	kv_progress_add(1);
}

static void
copy_rows(Relation rel, List *columns, EState *estate, KvStore *from, KvStore *to,
		  const KvTable *table, const KvTable *before)
{
	Rewriting	rewriting = {.rel = rel, .columns = columns, .to = to, .table = table};

	if (before != NULL)
		rewriting.slot = MakeSingleTupleTableSlot(table->tupdesc, &TTSOpsVirtual);
	rewriting.snapshot = RegisterSnapshot(GetLatestSnapshot());
	rewriting.cid = GetCurrentCommandId(true);
	initStringInfo(&rewriting.buf);
	kv_store_feed(to, false);
	kv_table_each_row(before != NULL ? before : table, from, rewriting.snapshot, true,
					  KV_ASCENDING, estate, rewrite_row, &rewriting);
	UnregisterSnapshot(rewriting.snapshot);
	if (rewriting.slot != NULL)
		ExecDropSingleTupleTableSlot(rewriting.slot);
}

/* before: the table with which rows are to be read; NULL: as the table is now. */
static void
rewrite_rows(Relation rel, List *columns, EState *estate, KvStore *from, const KvTable *before)
{
	KvRenewed	previous = kv_renewed;
	KvProgress	outer;
	const KvTable *table = kv_table_get(rel);
	KvStore    *to = kv_table_renew(rel, from, before == NULL);
	ListCell   *cell;

	if (before != NULL)
	{
		(void) kv_table_store(rel, true);	/* its schema image is the current one */
		table = kv_table_get(rel);
	}
	foreach(cell, columns)
	{
		AddedColumn *column = lfirst(cell);

		/* one without an expression cannot be NULL: fill_row says so */
		if (column->expr == NULL)
			column->expr = (Expr *) makeNullConst(column->att->atttypid, -1,
												  column->att->attcollation);
		column->state = ExecPrepareExpr(column->expr, estate);
	}
	kv_renewed.relid = RelationGetRelid(rel);
	kv_renewed.from = from;
	kv_progress_begin(&outer, KV_PROGRESS_REWRITE, MyDatabaseId, RelationGetRelid(rel), -1,
					  "writing rows", kv_store_row_estimate(from));
	PG_TRY();
	{
		copy_rows(rel, columns, estate, from, to, table, before);
	}
	PG_FINALLY();
	{
		kv_renewed = previous;
		kv_progress_end(&outer);
	}
	PG_END_TRY();
	kv_store_note_copied(to);
}

/* ---- at the end of the ALTER ---- */

/* The values of older rows in the columns, as KvMissing for the schema image; no entry: NULL. */
static List *
constants(Relation rel, List *columns, EState *estate, bool *too_large)
{
	List	   *added = NIL;
	bool		looked = false;
	bool		has_rows = false;
	ListCell   *cell;

	foreach(cell, columns)
	{
		AddedColumn *column = lfirst(cell);
		KvMissing  *missing = palloc(sizeof(KvMissing));
		bool		isnull = true;

		if (column->given)
			missing->value = compute(column, estate, &isnull);
		if (isnull && !looked)
		{
			has_rows = kv_engine_ready() && kv_table_has_rows(rel);
			looked = true;
		}
		if (!column->given && has_rows)
			missing->value = compute(column, estate, &isnull);
		if (isnull && has_rows && column->att->attnotnull)
			raise_null(rel, column);
		if (isnull)
			continue;
		missing->attnum = column->att->attnum;
		added = lappend(added, missing);
		if (datumGetSize(missing->value, column->att->attbyval, column->att->attlen) > IMAGE_MAX)
			*too_large = true;
	}
	return added;
}

void
kv_columns_added(Relation rel, List *attnums)
{
	TupleDesc	desc = CreateTupleDescCopyConstr(RelationGetDescr(rel));
	List	   *columns = NIL;
	bool		rewrite = false;
	bool		readable;
	EState	   *estate;
	ListCell   *cell;

	foreach(cell, attnums)
	{
		AddedColumn *column = describe(rel, desc, lfirst_int(cell));

		if (column == NULL)
			continue;
		columns = lappend(columns, column);
		rewrite |= column->differs;
	}
	if (columns == NIL)
		return;

	readable = kv_mark_allows_reading(RelationGetRelid(rel));
	PushActiveSnapshot(GetTransactionSnapshot());
	estate = CreateExecutorState();
	if (!rewrite)
	{
		List	   *added = constants(rel, columns, estate, &rewrite);

		if (!rewrite && added != NIL && readable)
			kv_table_set_missing(rel, added);
	}
	if (rewrite && readable)
	{
		KvStore    *store = kv_table_written_store(rel);

		if (store != NULL)
			rewrite_rows(rel, columns, estate, store, NULL);
	}
	FreeExecutorState(estate);
	PopActiveSnapshot();
}

/* ---- another type ---- */

/* Returns NULL if no value can change. */
static AddedColumn *
describe_retyped(TupleDesc desc, AttrNumber attnum)
{
	Form_pg_attribute att = TupleDescAttr(desc, attnum - 1);
	Oid			base = getBaseType(att->atttypid);
	AddedColumn *column;
	Node	   *var;
	Node	   *expr;

	if (att->attisdropped || KV_ATTRIBUTE_IS_VIRTUAL(att))
		return NULL;
	/* a value of its type, of any length */
	var = (Node *) makeRelabelType((Expr *) makeVar(1, attnum, att->atttypid, att->atttypmod,
													att->attcollation, 0),
								   base, -1, att->attcollation, COERCE_IMPLICIT_CAST);
	expr = coerce_to_target_type(NULL, var, base, att->atttypid, att->atttypmod,
								 COERCION_ASSIGNMENT, COERCE_IMPLICIT_CAST, -1);
	if (expr == NULL || expr == var)
		return NULL;
	column = palloc0(sizeof(AddedColumn));
	column->att = att;
	column->expr = (Expr *) expr;
	return column;
}

/* Returns NULL if no row has the column, or it stays NULL.  expr NULL: there is no cast. */
static AddedColumn *
describe_converted(TupleDesc desc, const KvRetyped *retyped)
{
	Form_pg_attribute att = TupleDescAttr(desc, retyped->attnum - 1);
	AddedColumn *column;
	Node	   *expr;

	if (att->attisdropped || KV_ATTRIBUTE_IS_VIRTUAL(att))
		return NULL;
	column = palloc0(sizeof(AddedColumn));
	column->att = att;
	expr = coerce_to_target_type(NULL,
								 (Node *) makeVar(1, att->attnum, retyped->was, retyped->typmod,
												  retyped->collation, 0),
								 retyped->was, att->atttypid, att->atttypmod,
								 COERCION_ASSIGNMENT, COERCE_IMPLICIT_CAST, -1);
	assign_expr_collations(NULL, expr);
	column->expr = (Expr *) expr;
	return column;
}

KV_NORETURN static void
raise_no_cast(const AddedColumn *column)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATATYPE_MISMATCH),
			 errmsg("column \"%s\" cannot be cast automatically to type %s",
					NameStr(column->att->attname), format_type_be(column->att->atttypid)),
			 errhint("Create a table with the other type, and copy the rows into it with an "
					 "explicit cast.")));
}

bool
kv_columns_converted(Relation rel, List *retyped, List *added)
{
	TupleDesc	desc = CreateTupleDescCopyConstr(RelationGetDescr(rel));
	List	   *columns = NIL;
	bool		has_rows;
	KvStore    *store;
	EState	   *estate;
	ListCell   *cell;

	if (!kv_mark_allows_reading(RelationGetRelid(rel)))
		return false;
	store = kv_table_store_to_convert(rel, retyped);
	if (store == NULL)
		return false;
	has_rows = kv_table_has_rows(rel);
	foreach(cell, retyped)
	{
		AddedColumn *column = describe_converted(desc, lfirst(cell));

		if (column != NULL && column->expr == NULL && has_rows)
			raise_no_cast(column);
		if (column != NULL && column->expr != NULL)
			columns = lappend(columns, column);
	}
	foreach(cell, added)
	{
		AddedColumn *column = describe(rel, desc, lfirst_int(cell));

		if (column != NULL)
			columns = lappend(columns, column);
	}

	CommandCounterIncrement();
	PushActiveSnapshot(GetLatestSnapshot());
	estate = CreateExecutorState();
	rewrite_rows(rel, columns, estate, store, kv_table_before(rel, store, retyped));
	FreeExecutorState(estate);
	PopActiveSnapshot();
	return true;
}

/* Search for a row that changes. */
typedef struct Retyping
{
	Relation	rel;
	List	   *columns;
	const KvTable *table;
	bool		changes;
} Retyping;

/* Does a value of the row change?  ERROR if it is part of the key. */
static void
look_at_row(ExprContext *econtext, const KvRow *row, void *arg)
{
	Retyping   *retyping = arg;
	TupleTableSlot *slot = econtext->ecxt_scantuple;
	ListCell   *cell;

	foreach(cell, retyping->columns)
	{
		AddedColumn *column = lfirst(cell);
		bool		isnull;
		Datum		value = ExecEvalExpr(column->state, econtext, &isnull);

		if (is_same(column, slot, value, isnull))
			continue;
		if (retyping->table->keyindex[column->att->attnum - 1] >= 0)
			raise_key_changes(retyping->rel, column);
		retyping->changes = true;
	}
}

/* All rows are read, because some may not fit. */
static bool
any_row_changes(Relation rel, KvStore *store, List *columns, EState *estate)
{
	Retyping	retyping = {.rel = rel, .columns = columns, .table = kv_table_get(rel)};

	kv_table_each_row(retyping.table, store, GetActiveSnapshot(), true, KV_BY_ADDRESS, estate,
					  look_at_row, &retyping);
	return retyping.changes;
}

void
kv_columns_retyped(Relation rel, List *attnums)
{
	TupleDesc	desc = CreateTupleDescCopyConstr(RelationGetDescr(rel));
	List	   *columns = NIL;
	KvStore    *store;
	EState	   *estate;
	ListCell   *cell;

	foreach(cell, attnums)
	{
		AddedColumn *column = describe_retyped(desc, lfirst_int(cell));

		if (column != NULL)
			columns = lappend(columns, column);
	}
	if (columns == NIL)
		return;
	if (!kv_mark_allows_reading(RelationGetRelid(rel)) || !kv_table_columns_fit(rel))
		return;
	store = kv_table_written_store(rel);
	if (store == NULL)
		return;

	CommandCounterIncrement();
	PushActiveSnapshot(GetLatestSnapshot());
	estate = CreateExecutorState();
	foreach(cell, columns)
	{
		AddedColumn *column = lfirst(cell);

		column->state = ExecPrepareExpr(column->expr, estate);
	}
	if (any_row_changes(rel, store, columns, estate))
		rewrite_rows(rel, columns, estate, store, NULL);
	FreeExecutorState(estate);
	PopActiveSnapshot();
}
