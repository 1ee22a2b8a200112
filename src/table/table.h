/*
 * table.h
 *		A foreign table as the engine sees it: its options, keys, values and schema,
 *		and the store that has its rows.
 *
 * Knows no plan and no executor node.  Takes no lock but those of the catalog; none of
 * the engine's is held on entry or when it returns.  What cannot be used raises the
 * ERROR that a user sees.
 */
#ifndef KV_TABLE_H
#define KV_TABLE_H

#include "postgres.h"

#include "access/tupdesc.h"
#include "catalog/objectaccess.h"
#include "executor/tuptable.h"
#include "foreign/fdwapi.h"
#include "lib/stringinfo.h"
#include "nodes/execnodes.h"
#include "nodes/pg_list.h"
#include "utils/rel.h"

#include "compat.h"
#include "engine/engine.h"

#define KV_NOT_STORED	0		/* as an attlen */

/* What OPTIONS (on_duplicate '…') makes of an INSERT of an existing key. */
typedef enum KvOnDuplicate
{
	KV_DUPLICATE_ERROR,			/* 23505, as a primary key would */
	KV_DUPLICATE_IGNORE,		/* keep the old row, insert nothing */
	KV_DUPLICATE_REPLACE		/* the key-value put: the new row wins */
} KvOnDuplicate;

/* A key column's type, by the encoding it uses (key.c). */
typedef enum KvKeyKind
{
	KV_KEY_INT2, KV_KEY_INT4, KV_KEY_INT8, KV_KEY_OID, KV_KEY_BOOL,
	KV_KEY_FLOAT4, KV_KEY_FLOAT8, KV_KEY_DATE, KV_KEY_TIME, KV_KEY_TIMESTAMP,
	KV_KEY_UUID, KV_KEY_NUMERIC, KV_KEY_BYTEA, KV_KEY_TEXT, KV_KEY_BPCHAR
} KvKeyKind;

typedef struct KvKeyColumn
{
	AttrNumber	attnum;
	Oid			typid;			/* of a domain: its base type */
	int32		typmod;
	Oid			collation;
	KvKeyKind	kind;
	bool		ordered;		/* byte order is SQL order: ranges, pathkeys */
	bool		lossy;			/* the value carries the exact datum too */
} KvKeyColumn;

/* What rows that are older than a column have in it. */
typedef struct KvMissing
{
	AttrNumber	attnum;
	Datum		value;
} KvMissing;

/*
 * KvTable: one foreign table as this backend knows it, built from the
 * relcache, the table options and nothing else; cached per backend and
 * rebuilt after a relcache or syscache invalidation (option.c).
 */
typedef struct KvTable
{
	Oid			relid;
	int			nkeys;
	KvKeyColumn *keys;			/* in key order */
	int		   *keyindex;		/* attnum - 1 → index into keys, or -1 */
	bool		any_lossy;
	int			key_width;		/* encoded bytes if all keys are fixed, else 0 */
	KvOnDuplicate on_duplicate;
	int			shards;			/* initial number of shards, 1 to 65536 */
	KvWalLevel	wal;			/* of a store that is made now; a store has its own */
	bool		wal_given;		/* by an option */

	/*
	 * Value shape.  raw_attnum names the one varlena column that is stored
	 * as its bare payload (no other value column, no lossy key), else 0.
	 * valdesc describes the stored tuple: it has the table's own natts, with
	 * the columns that are not in the value marked dropped, so attribute
	 * numbers are the table's.  After kv_table_store its attlen and attalign
	 * are those that the store's rows were written with, for dropped columns
	 * too: KV_NOT_STORED for one that no row has.
	 */
	AttrNumber	raw_attnum;
	TupleDesc	valdesc;		/* NULL if there is no value column at all */
	TupleDesc	tupdesc;		/* a copy of the table's descriptor */

	/*
	 * What kv_table_store found in the store.  raw_stored: the column that
	 * rows in KV_FORM_RAW belong to, fixed by the store's first writer (0: none,
	 * such rows have no bytes); where it is not the table's one value column
	 * (any more), raw_attnum is 0.
	 */
	AttrNumber	raw_stored;
	AttrNumber	raw_candidate;	/* raw_attnum before a store was looked at */
	KvMissing  *missing;		/* of columns that have one and are not dropped */
	int			nmissing;
	KvStore    *checked_store;	/* its schema image agrees with this */
	bool		writable;		/* and lists every column of this */
	bool		unmarked;		/* had neither store nor mark when last looked at */
	uint64		marked;			/* see mark.c */
	struct KvTable *stale;		/* out of date, but perhaps still in use */
} KvTable;

/* option.c */
extern KvTable *kv_table_get(Relation rel);
extern KvTable *kv_table_get_by_oid(Oid relid);
extern bool kv_is_foreign_table(Oid relid);	/* is it one of ours? */
extern bool kv_is_handler(Oid function);	/* does it belong to this library? */
extern bool kv_key_is_given(Oid relid);	/* by the option; else it is the first column */
extern bool kv_attribute_exists(Oid relid, AttrNumber attnum);
extern bool kv_is_key_column(Oid relid, AttrNumber attnum);
extern bool kv_key_columns_exist(Relation rel);
extern KvStore *kv_table_store(Relation rel, bool create);	/* create: to write */
extern void kv_table_truncate(Relation rel);
extern void kv_table_fit_key(Relation rel);
extern KvStore *kv_table_written_store(Relation rel);
extern bool kv_table_columns_fit(Relation rel);
extern void kv_table_set_missing(Relation rel, List *added);
extern KvStore *kv_table_renew(Relation rel, KvStore *store);

/* While rows are written anew, functions that compute them find the table's where they were. */
typedef struct KvRenewed
{
	Oid			relid;
	KvStore    *from;
} KvRenewed;
extern KvRenewed kv_renewed;

/*
 * At the end of a transaction that has changed a table's options, so holds its
 * AccessExclusiveLock: if it has a wal option and its data was written with another,
 * writes that anew.  Does nothing if the table is gone or the change was rolled back.
 */
extern void kv_table_apply_wal_option(Oid relid);
/* In _PG_init: registers the callbacks that keep cached KvTables up to date. */
extern void kv_option_init(void);
extern const char *const kv_wal_level_names[];

/* rows.c */
typedef void (*KvEachRow) (ExprContext *econtext, const KvRow *row, void *arg);

/*
 * Call each for all rows of a store that the snapshot sees, in the estate's per-tuple
 * memory, with the row in the context's scan slot; its values only if they are wanted.
 */
extern void kv_table_each_row(const KvTable *table, KvStore *store, Snapshot snapshot,
							  bool want_values, KvScanOrder order, EState *estate,
							  KvEachRow each, void *arg);

/* added.c */
extern void kv_columns_added(Relation rel, List *attnums);
extern void kv_columns_retyped(Relation rel, List *attnums);

/*
 * fit.c: a statement's lists of what rows are to be looked at for, by constraint, column,
 * or table that has got a parent; and the look.
 */
extern void kv_fit_constraint(List **fits, Oid constraint);
extern void kv_fit_not_null(List **fits, Oid relid, AttrNumber attnum);
extern void kv_fit_inherited(List **fits, Oid child);
/*
 * Of columns of a domain, and of domains over it, that has got a constraint (InvalidOid:
 * NOT NULL).  Takes ShareLock on their tables until the transaction ends.
 */
extern void kv_fit_domain(List **fits, Oid domain, Oid constraint);
extern void kv_fit_rows(List *fits);

/* ---- domain.c ---- */
extern List *kv_tables_here(void);	/* all kvfdw tables of this database */
/*
 * The columns of a table that are of the domain, or of one over it; 0A000 if one has the
 * domain within another type.
 */
extern List *kv_domain_columns(Oid relid, Oid domain);

/* mark.c */
extern bool kv_mark_exists(Oid relid);
extern void kv_mark_make(Oid relid);
extern void kv_mark_ensure(KvTable *table);
extern void kv_mark_at_end(bool commit);
extern void kv_mark_at_subxact_abort(void);
KV_NORETURN extern void kv_mark_raise_missing(Oid relid);
extern bool kv_table_has_rows(Relation rel);	/* of whatever definition; ERROR if they are missing */

/*
 * key.c: every encoder appends to buf; memcmp order of the result is SQL order.
 * kv_key_successor is for prefixes, made of columns encoded with last = false;
 * what follows a complete key directly is that key plus one zero byte.
 */
extern bool kv_key_type_supported(Oid typid, KvKeyKind *kind, bool *lossy);
extern bool kv_key_column_init(KvKeyColumn *column, Form_pg_attribute att);
extern int	kv_key_kind_width(KvKeyKind kind);	/* 0: variable */
extern void kv_key_encode_column(StringInfo buf, const KvKeyColumn *column,
								 bool last, Datum value);
extern void kv_key_encode_slot(const KvTable *table, TupleTableSlot *slot,
							   StringInfo buf);
extern void kv_key_decode(const KvTable *table, const uint8 *key, int keylen,
						  Datum *values, bool *nulls);
extern bool kv_key_successor(StringInfo buf);
extern char *kv_key_describe(const KvTable *table, TupleTableSlot *slot);

/* tuple.c */
extern KvForm kv_tuple_encode(const KvTable *table, TupleTableSlot *slot,
							  StringInfo buf, const char **value, Size *len);
extern void kv_tuple_decode(const KvTable *table, const KvRow *row,
							bool want_value, Datum *values, bool *nulls);
extern void kv_tuple_store(const KvTable *table, const KvRow *row,
						   bool want_value, TupleTableSlot *slot);

/* hooks.c */
extern void kv_xact_init(void);

/* ddl.c */
extern void kv_ddl_init(void);
extern void kv_ddl_note(ObjectAccessType access, Oid classid, Oid objectid, int subid);
extern void kv_ddl_before_commit(void);
extern void kv_ddl_at_end(void);
extern void kv_ddl_at_subxact_abort(SubTransactionId subid);
/* dump.c */
extern void kv_dump_first_commit(void);

/* ---- concurrency.c ---- */

/*
 * Row triggers of an UPDATE or DELETE get the old row from the scan's output,
 * before modify.c sees it.  So its newest version must be there: the scan locks.
 */
extern bool kv_scan_locks(Relation rel, CmdType operation);

/*
 * Raise what has to be raised of a row that a statement could not have.  Returns if
 * it is just to be passed over.
 */
extern void kv_raise_row_conflict(KvRowResult result, CmdType operation);

/*
 * SERIALIZABLE: tell whose writes a scan has met and not seen since the last
 * call.
 */
extern void kv_check_conflict_out(Relation rel, KvScan *scan, Snapshot snapshot);

/* The page that stands for a key in the predicate locks of SERIALIZABLE. */
extern BlockNumber kv_key_page(KvKey key);

#endif							/* KV_TABLE_H */
