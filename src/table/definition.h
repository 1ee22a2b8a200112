/*
 * definition.h
 *		Changes of a table's definition: the needs of CREATE and ALTER in servers, tablespaces, rows
 *		and the store.
 *
 * No other module includes this file.  ddl.c notes the changes that a statement makes, and calls
 * these functions when the statement ends.  Locks: a caller that changes rows has
 * AccessExclusiveLock on the table.  Errors: a change that heap allows, and that the rows or keys
 * of a store do not allow, is an ERROR that leaves the table as it was.
 */
#ifndef KV_TABLE_DEFINITION_H
#define KV_TABLE_DEFINITION_H

#include "nodes/execnodes.h"
#include "nodes/parsenodes.h"
#include "nodes/pg_list.h"
#include "utils/rel.h"
#include "utils/snapshot.h"

#include "engine/rows.h"
#include "table/table.h"

/* A column whose type a statement has changed. */
typedef struct KvRetyped
{
	AttrNumber	attnum;
	Oid			was;			/* its type before, perhaps a domain */
	int32		typmod;			/* its typmod and collation before */
	Oid			collation;
} KvRetyped;

/* ---- option.c ---- */
/*
 * A column was renamed: if the table's options "key" and "memcached_columns" name it, they name it
 * as it is called now.
 */
extern void kv_options_follow_rename(Oid relid, const char *was, const char *name);

/* ---- server.c ---- */
extern bool kv_server_is_ours(const char *name);	/* false if there is none of that name */
/*
 * Before CREATE FOREIGN TABLE: adds to the statement the options "wal" and "tablespace" of the
 * server, if it is ours and has them, and the statement has not.  Locks the server until COMMIT.
 */
extern void kv_server_complete(CreateForeignTableStmt *statement);
/*
 * A table was created or its options were set: if it has no own "wal" or no own "tablespace",
 * locks its server until COMMIT against a change of these.
 */
extern void kv_server_hold(Oid relid);
/*
 * A server was created or altered, and had these options before.  If its "wal" or "tablespace"
 * has changed: ERROR (55000) if tables have none of their own, (42704, 22023) if no table can
 * have the tablespace.  Does nothing if the server is gone or not ours.
 */
extern void kv_server_check(Oid serverid, List *before);

/* ---- schema.c ---- */
/* The table's store if rows may have been written to it, else NULL.  Completes its image. */
extern KvStore *kv_table_written_store(Relation rel);
/* Can the table's rows, if there are any, be read with the types of its columns? */
extern bool kv_table_columns_fit(Relation rel);
/*
 * Check a key that may just have been changed, with AccessExclusiveLock.  If the table has rows
 * with another key the change is refused, else the table gets a new store.
 */
extern void kv_table_fit_key(Relation rel);
/*
 * Set what older rows have in columns just added, with AccessExclusiveLock: a list of
 * KvMissing.
 */
extern void kv_table_set_missing(Relation rel, List *added);
/*
 * Begin to rewrite all rows, with AccessExclusiveLock: returns a new, empty store of the table.
 * It has the schema image of the old store; !same_schema: it has none.
 */
extern KvStore *kv_table_renew(Relation rel, KvStore *store, bool same_schema);
/*
 * The types of columns (KvRetyped) were changed, with AccessExclusiveLock.  Returns the store
 * whose rows have to be converted, or NULL.  Sets each KvRetyped.was to the type with which
 * rows are to be read.
 */
extern KvStore *kv_table_store_to_convert(Relation rel, List *retyped);
/* The table as it was, with which rows of that store are to be read.  Palloc'd. */
extern const KvTable *kv_table_before(Relation rel, KvStore *store, List *retyped);

/* ---- rewrite.c ---- */
typedef void (*KvEachRow) (ExprContext *econtext, const KvRow *row, void *arg);

/*
 * Call each for all rows of a store that the snapshot sees, in the estate's per-tuple memory,
 * with the row in the context's scan slot.  Values are read only if want_values.
 */
extern void kv_table_each_row(const KvTable *table, KvStore *store, Snapshot snapshot,
							  bool want_values, KvScanOrder order, EState *estate,
							  KvEachRow each, void *arg);

/* ---- tablespace.c ---- */
/* ERROR (42704, 22023) if no table can have its values in a tablespace of this name. */
extern void kv_tablespace_check_name(const char *name);
/*
 * A table was created or its options were set: may its values be stored in the tablespace?
 * Records the tablespace.  ERROR: 42501, 42704, 22023, 0A000.
 */
extern void kv_tablespace_check(Oid relid);
/*
 * The detail for a tablespace that cannot be dropped because it is not empty; NULL: there is
 * none.
 */
extern char *kv_tablespace_use(const char *name);

/* ---- added.c ---- */
/*
 * The caller of these functions holds AccessExclusiveLock.  Columns were added to a table, or
 * stored generated ones have got another expression: make its rows show what they would on
 * heap.
 */
extern void kv_columns_added(Relation rel, List *attnums);
/*
 * The types of columns (KvRetyped) were changed, and columns added by the same statement.  If
 * rows cannot be read as the new types, rewrites all of them as both say, and returns true;
 * ERROR (42804) if there are rows and no cast, (42P16) if a key would become another one.
 */
extern bool kv_columns_converted(Relation rel, List *retyped, List *added);
/* Rows can be read as the new types: fit the values to the new length or precision. */
extern void kv_columns_retyped(Relation rel, List *attnums);

/* ---- fit.c ---- */
/*
 * These functions note, in a statement's list, the checks that rows need: a constraint that was
 * created or validated, of any table or domain; a column that must not be NULL;
 */
extern void kv_fit_constraint(List **fits, Oid constraint);
extern void kv_fit_not_null(List **fits, Oid relid, AttrNumber attnum);
/* a virtual generated column with a new expression, where it must not be NULL; */
extern void kv_fit_generated(List **fits, Oid relid, AttrNumber attnum);
/* a new parent of a table, and the rows that its default partition no longer accepts; */
extern void kv_fit_inherited(List **fits, Oid child);
/*
 * and a constraint (InvalidOid: NOT NULL) of a domain, for columns of it and of domains over
 * it.  Takes ShareLock on their tables until the transaction ends.
 */
extern void kv_fit_domain(List **fits, Oid domain, Oid constraint);
/* Read the rows at the end of the statement; ERROR if one does not satisfy a check. */
extern void kv_fit_rows(List *fits);
/*
 * The type of a column of a relation, or of an attribute of a composite type, was changed:
 * 0A000 if a column of one of our tables has values of that row type, or values that contain
 * them.
 */
extern void kv_rowtype_require_unused(Oid relid);

/* ---- mark.c ---- */
/*
 * Under pg_upgrade in the new server, when a table has been created: marks it.  ERROR (0A000)
 * for a column that cannot be transferred.
 */
extern void kv_upgrade_arrive(Oid relid);

/* ---- primarykey.c ---- */
/* The access method of indexes of kvfdw tables, or InvalidOid. */
extern Oid	kv_index_am(void);
/* 42P16 if the table has a primary key that is not its key, which may just have been changed. */
extern void kv_primary_key_check(Relation rel, const KvTable *table);
/* Gives the indexes of a table to the table's owner, which PostgreSQL does for heap only. */
extern void kv_index_follow_owner(Relation rel);
/* 0A000 for a statement that would build one of our indexes, which core might not survive. */
extern void kv_index_check_statement(Node *statement);

/* A primary key that the statement is going to make which is being executed. */
typedef struct KvNewPrimaryKey KvNewPrimaryKey;
/* Before a statement is executed: returns what is to be passed to kv_primary_key_end. */
extern KvNewPrimaryKey *kv_primary_key_begin(void);
/* After the statement, also after an ERROR. */
extern void kv_primary_key_end(KvNewPrimaryKey *outer);
/*
 * Take PRIMARY KEY off a copy of CREATE FOREIGN TABLE if the table will be ours.  It is made when
 * core executes the statement.  ERROR: 0A000, 42P16, 42701.
 */
extern void kv_primary_key_take_create(CreateForeignTableStmt *statement);
/* Does take_alter or make_carried have anything to do with the statement? */
extern bool kv_primary_key_concerns(const AlterTableStmt *statement);
/*
 * Take PRIMARY KEY off a copy of ALTER TABLE if the table is ours, and lock the table.  It is made
 * when core executes the statement, as is one that it drops to alter a type.  ERROR: as
 * take_create; 42501.
 */
extern void kv_primary_key_take_alter(AlterTableStmt *statement);
/*
 * Make the primary key of a table that was just created, if this is the statement for it.  Returns
 * true if nothing is left of the statement.
 */
extern bool kv_primary_key_make_carried(AlterTableStmt *statement);

#endif							/* KV_TABLE_DEFINITION_H */
