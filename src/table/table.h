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
#define KV_MAX_PREFIX	250		/* bytes of a key of memcached, so a prefix has fewer */

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

/* A column whose type a statement has changed. */
typedef struct KvRetyped
{
	AttrNumber	attnum;
	Oid			was;			/* its type before, perhaps a domain */
	int32		typmod;			/* and what belongs to it */
	Oid			collation;
} KvRetyped;

/*
 * KvTable: one foreign table as this backend knows it, built from the
 * relcache, the table options and nothing else; cached per backend and
 * rebuilt after a relcache or syscache invalidation (table.c).
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
	Oid			tablespace;		/* of a store that is made now (tablespace.c) */
	double		space_amp;		/* likewise; -1: it is not */
	bool		options_pending;	/* by a transaction that may be rolled back */
	bool		compresses;		/* values that are written now */

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

/* ---- option.c ---- */
/*
 * The value of an option of a foreign table as it is written, or NULL; in a list of them likewise.
 */
extern const char *kv_table_option(Oid relid, const char *name);
extern const char *kv_option_value(List *options, const char *name);
/*
 * What options say, but for "key" and "tablespace", which need more than the options; ERROR (22023)
 * if one is wrong.
 */
extern void kv_table_read_options(KvTable *table, List *options);
/*
 * The columns that an option "key" names, split by SQL's rules for identifiers; ERROR (22023) if it
 * is no such list.
 */
extern List *kv_key_option_columns(const char *value);
extern bool kv_attribute_exists(Oid relid, AttrNumber attnum);	/* and is not dropped */
/* Is a column of one of our tables part of its key, by the catalog as it is now? */
extern bool kv_is_key_column(Oid relid, AttrNumber attnum);
extern const char *const kv_wal_level_names[];

/* ---- table.c ---- */
/*
 * What this backend knows of a table, good until the transaction ends.  The caller holds a
 * lock on the relation.  ERROR if the table's options do not fit its columns.
 */
extern KvTable *kv_table_get(Relation rel);
/* One that is not cached, in a context below the current one: of columns as they are in desc. */
extern KvTable *kv_table_build(Relation rel, TupleDesc desc);
/* As kv_table_get, for a table the caller has locked but not opened. */
extern KvTable *kv_table_get_by_oid(Oid relid);
extern bool kv_key_columns_exist(Relation rel);	/* all that its option names */
extern bool kv_has_key_candidate(Relation rel); /* a column that could be part of a key */
extern bool kv_is_foreign_table(Oid relid);	/* of ours?  false for what does not exist */
extern bool kv_is_handler(Oid function);	/* does it belong to this library? */
extern List *kv_foreign_tables(void);	/* all of this database, of whatever wrapper */
/* In _PG_init: registers the callbacks that keep cached KvTables up to date. */
extern void kv_table_init(void);

/* ---- schema.c ---- */
/*
 * The store of a table, after its data and its definition were found to agree.  NULL if
 * nothing was ever written and !create.  Whoever is going to write rows passes create =
 * true, also for UPDATE.  kv_table_get's KvTable is fit for kv_tuple_encode and
 * kv_tuple_decode only after this.  The caller holds a lock on the relation.
 */
extern KvStore *kv_table_store(Relation rel, bool create);
/* The table's store if rows may have been written to it, else NULL.  Makes its image complete. */
extern KvStore *kv_table_written_store(Relation rel);
/* Can the table's rows, if there are any, be read as what its columns are? */
extern bool kv_table_columns_fit(Relation rel);
/*
 * The key of a table may just have been changed, with AccessExclusiveLock: if it has rows
 * of another key that is refused, else the table starts anew.
 */
extern void kv_table_fit_key(Relation rel);
/* What older rows have in columns just added, with AccessExclusiveLock: a list of KvMissing. */
extern void kv_table_set_missing(Relation rel, List *added);
/*
 * TRUNCATE: a fresh store with the table's present definition, whatever the old one was
 * written with.  Every backend looks at the store anew.
 */
extern void kv_table_truncate(Relation rel);
/*
 * To have all rows written anew, with AccessExclusiveLock: returns a new, empty store of
 * the table, with the schema image of the one that they are in; !same_schema: with none.
 */
extern KvStore *kv_table_renew(Relation rel, KvStore *store, bool same_schema);
/*
 * The types of columns (KvRetyped) were changed, with AccessExclusiveLock: the store whose
 * rows have to be converted, or NULL.  Each was becomes the type that rows are to be read as.
 */
extern KvStore *kv_table_store_to_convert(Relation rel, List *retyped);
/* The table as rows of that store are to be read: as before.  Palloc'd. */
extern const KvTable *kv_table_before(Relation rel, KvStore *store, List *retyped);

/* While rows are written anew, functions that compute them find the table's where they were. */
typedef struct KvRenewed
{
	Oid			relid;
	KvStore    *from;
} KvRenewed;
extern KvRenewed kv_renewed;

/* ---- level.c ---- */
/*
 * kv_table_store, not made, for who reads under this snapshot; ERROR (40001) if it is older than
 * the rows there.
 */
extern KvStore *kv_table_read(Relation rel, Snapshot snapshot);
/*
 * At the end of a transaction that has changed a table's options, so holds its
 * AccessExclusiveLock: if it has a wal option and its data was written with another, writes that
 * anew; else, if its value files are made in another tablespace, notes that they are to follow at
 * COMMIT. Does nothing if the table is gone or the change was rolled back.
 */
extern void kv_table_apply_options(Oid relid);

/* ---- tablespace.c ---- */
/* The tablespace of a table's values, InvalidOid: the data directory. */
extern Oid	kv_tablespace_of(Oid relid);
/*
 * A table was created or its options were set: may its values lie where it is said?  Notes
 * where that is.  ERROR: 42501, 42704, 22023, 0A000.
 */
extern void kv_tablespace_check(Oid relid);
/*
 * No table has it any more: ERROR (55000) if the values of one are still to go elsewhere, be there
 * any or not.
 */
extern void kv_tablespace_require_left(Oid tablespace);
/*
 * What to say if a tablespace cannot be dropped because it is not empty; NULL: there is no more to
 * say.
 */
extern char *kv_tablespace_use(const char *name);

/* ---- rows.c ---- */
typedef void (*KvEachRow) (ExprContext *econtext, const KvRow *row, void *arg);

/*
 * Call each for all rows of a store that the snapshot sees, in the estate's per-tuple
 * memory, with the row in the context's scan slot; its values only if they are wanted.
 */
extern void kv_table_each_row(const KvTable *table, KvStore *store, Snapshot snapshot,
							  bool want_values, KvScanOrder order, EState *estate,
							  KvEachRow each, void *arg);

/* ---- added.c ---- */
/*
 * The caller of these holds AccessExclusiveLock.  Columns were added to a table, or stored
 * generated ones have got another expression: have its rows show what they would on heap.
 */
extern void kv_columns_added(Relation rel, List *attnums);
/*
 * The types of columns (KvRetyped) were changed, and columns added by the same statement.  If
 * rows cannot be read as the new types, writes all of them anew as both say, and returns true;
 * ERROR (42804) if there are rows and no cast, (42P16) if a key would become another one.
 */
extern bool kv_columns_converted(Relation rel, List *retyped, List *added);
/* Rows can be read as the new types: values get the length or precision that these have. */
extern void kv_columns_retyped(Relation rel, List *attnums);

/* ---- fit.c ---- */
/*
 * These note in a statement's list what rows are to be looked at for: a constraint that was
 * made or validated, of whatever table or domain; a column that must not be NULL;
 */
extern void kv_fit_constraint(List **fits, Oid constraint);
extern void kv_fit_not_null(List **fits, Oid relid, AttrNumber attnum);
/* a virtual generated column that is computed otherwise now, where it must not be NULL; */
extern void kv_fit_generated(List **fits, Oid relid, AttrNumber attnum);
/* a parent that a table has got, with what its default partition then no longer takes; */
extern void kv_fit_inherited(List **fits, Oid child);
/*
 * and a constraint (InvalidOid: NOT NULL) of a domain, for columns of it and of domains over
 * it.  Takes ShareLock on their tables until the transaction ends.
 */
extern void kv_fit_domain(List **fits, Oid domain, Oid constraint);
/* At the end of the statement: reads the rows; ERROR if one does not fit. */
extern void kv_fit_rows(List *fits);

/* ---- domain.c ---- */
/*
 * The columns of a table that are of the domain, or of one over it; 0A000 if one has the
 * domain within another type.
 */
extern List *kv_domain_columns(Oid relid, Oid domain);
/*
 * The type of a column of a relation, or of an attribute of a composite type, was changed: 0A000
 * if a column of one of our tables has values of its row type, within others or not.
 */
extern void kv_rowtype_require_unused(Oid relid);

/* ---- mark.c ---- */
extern bool kv_mark_exists(Oid relid);	/* is the table marked as one that has data? */
/* in this transaction, whether there is one or not; see mark.c */
extern void kv_mark_make(Oid relid);
extern void kv_mark_ensure(KvTable *table);	/* before rows are written, after the store was made */
/*
 * May the rows of a table be read?  False: the library is not preloaded, and there are
 * none.  ERROR if it is not and there may be rows.
 */
extern bool kv_mark_allows_reading(Oid relid);
/* The transaction ends.  PREPARE counts as a rollback: what becomes of its marks nobody knows. */
extern void kv_mark_at_end(bool commit);
extern void kv_mark_at_subxact_abort(void);	/* marks may be gone: they are looked at anew */
KV_NORETURN extern void kv_mark_raise_missing(Oid relid);	/* it is marked, and has no store */
/* of whatever definition; ERROR if they are missing */
extern bool kv_table_has_rows(Relation rel);

/* ---- key.c: memcmp order of encoded keys is SQL order ---- */
/*
 * Can a column of this type be part of a key?  If so, with which encoding?  *lossy is for a
 * column without a typmod.  Looks through domains.
 */
extern bool kv_key_type_supported(Oid typid, KvKeyKind *kind, bool *lossy);
/*
 * Describe a table's column as a key column; typid and typmod become those of
 * a domain's base type.  Returns false if its type is not supported; raises
 * 0A000 if its collation is not.
 */
extern bool kv_key_column_init(KvKeyColumn *column, Form_pg_attribute att);
extern int	kv_key_kind_width(KvKeyKind kind);	/* encoded bytes; 0: they vary */
/*
 * Append one column's encoding.  last: it is the last column of the whole
 * key.  The value is of the column's (base) type.
 */
extern void kv_key_encode_column(StringInfo buf, const KvKeyColumn *column,
								 bool last, Datum value);
/*
 * Append the key of the row in the slot to buf.  Raises 23502 for a NULL in a
 * key column and 54000 for a key longer than KV_MAX_KEY.
 */
extern void kv_key_encode_slot(const KvTable *table, TupleTableSlot *slot,
							   StringInfo buf);
/*
 * Fill values and nulls, both indexed by attnum - 1, with the key columns that
 * the key tells exactly; lossy ones stay or become NULL and are left to the
 * value.  Pass-by-reference datums are palloc'd.  Raises XX001 for a malformed key.
 */
extern void kv_key_decode(const KvTable *table, const uint8 *key, int keylen,
						  Datum *values, bool *nulls);
/*
 * Turn a prefix into the smallest byte string that is greater than every
 * string with that prefix.  Returns false, with buf empty, if there is none
 * (the prefix was empty or all 0xFF).
 *
 * Only whole columns encoded with last = false make a prefix.  What follows a
 * complete key directly is the key plus one zero byte.
 */
extern bool kv_key_successor(StringInfo buf);
/*
 * The key as error messages show it: '(a, b)=(1, x)', or only '(a, b)' if the
 * current user may not read the key columns.  Palloc'd.
 */
extern char *kv_key_describe(const KvTable *table, TupleTableSlot *slot);

/* ---- tuple.c, compress.c ---- */
/*
 * Shape the row in the slot into a value.  *value points into the slot's
 * datum, into buf (whose contents are replaced), or to memory palloc'd in
 * CurrentMemoryContext, and is good until any of them changes.  Stored
 * generated columns must have been computed.  Raises 54000 for a value longer
 * than KV_MAX_VALUE.
 */
extern KvForm kv_tuple_encode(const KvTable *table, TupleTableSlot *slot,
							  StringInfo buf, const char **value, Size *len);
/*
 * The end of it, for a value that has its form already: if the table's option says so and it
 * pays, *value becomes what was compressed, palloc'd.
 */
extern KvForm kv_value_compress(const KvTable *table, KvForm form, const char **value,
								Size *len);
/*
 * Bytes that a row's value has when it is not compressed, at most KV_MAX_VALUE if it is now;
 * 0 if it is, and its bytes cannot be.
 */
extern Size kv_value_length(const KvRow *row);
/*
 * A row whose value is compressed becomes one whose value is not, palloc'd, with a header.
 * False: its bytes are none of such a row; nothing beside them is read, and nothing beside
 * what was palloc'd for them written.
 */
extern bool kv_value_decompress(const KvRow *row, KvRow *plain);
/*
 * Fill values and nulls, both indexed by attnum - 1, with a row of the table.
 * Without want_value, all columns but the exact key columns are NULL.
 * Pass-by-reference datums are palloc'd, or point into the row or the table.  Raises
 * XX001 for bytes that cannot be such a row.
 */
extern void kv_tuple_decode(const KvTable *table, const KvRow *row,
							bool want_value, Datum *values, bool *nulls);
/* Likewise for who knows the key: the exact key columns are NULL. */
extern void kv_tuple_decode_value(const KvTable *table, const KvRow *row, Datum *values,
								  bool *nulls);
/*
 * The first bytes that a value has when it is not compressed, at most so many; returns how many.
 * What cannot be decompressed has none.
 */
extern Size kv_value_begin(KvForm form, const char *value, Size len, char *to, Size room);

/*
 * How to find a column of 8 bytes in stored values, for one who has the table not at hand: what
 * lies before it, and it.  It stays good for rows of later columns.
 */
#define KV_PROBE_COLUMNS	16

typedef struct KvProbe
{
	int			natts;
	int16		lengths[KV_PROBE_COLUMNS];
	char		aligns[KV_PROBE_COLUMNS];
} KvProbe;

/* False: the column is too far behind. */
extern bool kv_probe_make(const KvTable *table, AttrNumber attnum, KvProbe *probe);
/* False: it is NULL, or cannot be found.  Whatever the bytes are, nothing beside them is read. */
extern bool kv_probe_read(const KvProbe *probe, KvForm form, const char *value, Size len,
						  int64 *found);
/*
 * Put a row into a slot of the table.  By-reference columns point to what the
 * row points to, or are palloc'd in CurrentMemoryContext.
 */
extern void kv_tuple_store(const KvTable *table, const KvRow *row,
						   bool want_value, TupleTableSlot *slot);

/* ---- hooks.c ---- */
extern void kv_xact_init(void);	/* in _PG_init: the callbacks of transactions, drops, pg_dump */

/* ---- ddl.c ---- */
extern void kv_ddl_init(void);	/* in _PG_init: the hook of utility statements */
/*
 * From the object access hook: a statement changes a definition, which is looked at when it
 * ends.  A table that is being created is not in the catalog yet.
 */
extern void kv_ddl_note(ObjectAccessType access, Oid classid, Oid objectid, int subid);
/*
 * The executor begins to read or write rows: 55006 if a statement that has not ended has added
 * a column or changed a type, which rows do not show yet.
 */
extern void kv_ddl_require_followed(Relation rel);
extern void kv_ddl_before_commit(void);	/* looks at what no statement has; may throw */
extern void kv_ddl_at_end(void);	/* of the transaction: forgets all */
extern void kv_ddl_at_subxact_abort(SubTransactionId subid);	/* forgets what is its own */

/* ---- upgrade.c ---- */
/*
 * Under pg_upgrade.  In a session of the old server that dumps a database: notes its tables that
 * were never written to. In the new server, when a table has been made: marks it. ERROR (0A000) for
 * a column that cannot go along.
 */
extern void kv_upgrade_leave(void);
extern void kv_upgrade_arrive(Oid relid);

/* ---- dump.c ---- */
/*
 * From a process's first PRE_COMMIT, which in a session is that of the transaction in which
 * it was connected: WARNING if it is pg_dump's and rows may be left out.
 */
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
