/*
 * table.h
 *		A foreign table as the engine sees it: its options, keys, values and schema, and the
 *		store of its rows.
 *
 * This module knows no plan and no executor node.  Locks:  takes only locks of the catalog.  No
 * lock of the engine is held on entry or on return.  Errors: a table that cannot be used raises
 * the ERROR that the user sees.
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
#include "nodes/parsenodes.h"
#include "nodes/pg_list.h"
#include "utils/rel.h"

#include "compat.h"

#include "engine/rows.h"

#define KV_NOT_STORED	0		/* as an attlen */
#define KV_MAX_PREFIX	250		/* bytes of a memcached key, so a prefix has fewer */

/* The action for an INSERT of an existing key, from OPTIONS (on_duplicate '…'). */
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
	bool		lossy;			/* the key does not contain the exact datum, so the value does */
} KvKeyColumn;

/* The value that rows older than a column have in it. */
typedef struct KvMissing
{
	AttrNumber	attnum;
	Datum		value;
} KvMissing;

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
	KvWalLevel	wal;			/* for a store that is created now; a store has its own */
	bool		wal_given;		/* by an option of the table itself */
	Oid			tablespace;		/* for a store that is created now (tablespace.c) */
	double		space_amp;		/* of a store that is created now; -1: not given */
	bool		options_pending;	/* by a transaction that may be rolled back */
	bool		compresses;		/* new values are compressed */
	bool		changes;		/* logical decoding passes changes on */

	/*
	 * Value shape.  raw_attnum names the one varlena column that is stored as its bare payload
	 * (no other value column, no lossy key), else 0.  valdesc describes the stored tuple.  It
	 * has the table's own natts, with the columns that are not in the value marked dropped, so
	 * attribute numbers are the table's.  After kv_table_store its attlen and attalign are
	 * those that the store's rows were written with, for dropped columns too: KV_NOT_STORED for
	 * a column that no row has.
	 */
	AttrNumber	raw_attnum;
	TupleDesc	valdesc;		/* NULL if there is no value column at all */
	TupleDesc	tupdesc;		/* a copy of the table's descriptor */

	/*
	 * Set by kv_table_store.  raw_stored: the column that rows in KV_FORM_RAW belong to, fixed
	 * by the store's first writer (0: none, such rows have no bytes).  Where it is not, or is
	 * no longer, the table's one value column, raw_attnum is 0.
	 */
	AttrNumber	raw_stored;
	AttrNumber	raw_candidate;	/* raw_attnum before the store was opened */
	KvMissing  *missing;		/* of columns that have one and are not dropped */
	int			nmissing;
	KvStore    *checked_store;	/* its schema image agrees with this */
	bool		writable;		/* the image lists every column of this */
	bool		unmarked;		/* had neither store nor mark when last looked at */
	uint64		marked;			/* see mark.c */
	struct KvTable *stale;		/* out of date, but perhaps still in use */
} KvTable;

/* ---- option.c ---- */
/* The value that a foreign table has: its own, else its server's, else NULL. */
extern const char *kv_table_option(Oid relid, const char *name);
extern const char *const kv_wal_level_names[];

/* ---- table.c ---- */
/*
 * The KvTable of a table, good until the transaction ends.  The caller holds a lock on the
 * relation.  ERROR if the table's options do not fit its columns.
 */
extern KvTable *kv_table_get(Relation rel);
/*
 * Build a KvTable that is not cached, in a context below the current one, for the columns in
 * desc.
 */
extern KvTable *kv_table_build(Relation rel, TupleDesc desc);
/* As kv_table_get, for a table the caller has locked but not opened. */
extern KvTable *kv_table_get_by_oid(Oid relid);
/* The attribute of that name, or NULL. */
extern Form_pg_attribute kv_find_attribute(TupleDesc desc, const char *name);
extern bool kv_key_columns_exist(Relation rel);	/* all that its option names */
extern bool kv_is_foreign_table(Oid relid);	/* is it a table of ours?  false for an OID that does
											 * not exist */
extern List *kv_foreign_tables(void);	/* all of this database, of whatever wrapper */
/* In _PG_init: registers the callbacks that keep cached KvTables up to date. */
extern void kv_table_init(void);

/* ---- schema.c ---- */
/*
 * The store of a table, after its data and its definition were found to agree.  NULL if no row
 * was ever written and !create.  A caller that is going to write rows passes create = true,
 * also for UPDATE.  Only after this call is kv_table_get's KvTable valid for kv_tuple_encode
 * and kv_tuple_decode.  The caller holds a lock on the relation.
 */
extern KvStore *kv_table_store(Relation rel, bool create);
/*
 * TRUNCATE: create a new store with the table's present definition, whatever the old one was
 * written with.  Every backend checks the store again.
 */
extern void kv_table_truncate(Relation rel);

/*
 * While rows are rewritten, functions that compute their new values still find the table's rows
 * in the old store.
 */
typedef struct KvRenewed
{
	Oid			relid;
	KvStore    *from;
} KvRenewed;
extern KvRenewed kv_renewed;

/* ---- rewrite.c ---- */
/*
 * The table's store, not created if there is none, for a reader with this snapshot; ERROR
 * (40001) if the snapshot is older than the rows there.
 */
extern KvStore *kv_table_read(Relation rel, Snapshot snapshot);
/*
 * Called at the end of a transaction that has changed a table's options, so holds its
 * AccessExclusiveLock.  If the table's wal option differs from its store's level, rewrites the
 * data.  Else, if its value files are to be created in another tablespace, has them moved at
 * COMMIT. Does nothing if the table was dropped or the change was rolled back.
 */
extern void kv_table_apply_options(Oid relid);

/* ---- tablespace.c ---- */
/*
 * No table has the tablespace any more: ERROR (55000) if value files of a table are still to be
 * moved out of it, even if there are none yet.
 */
extern void kv_tablespace_require_left(Oid tablespace);

/* ---- mark.c ---- */
/*
 * Called at the end of the transaction.  PREPARE counts as a rollback, because the fate of its
 * marks is not known.
 */
extern void kv_mark_at_end(bool commit);
extern void kv_mark_at_subxact_abort(void);	/* marks may be rolled back, so all are checked again */

/* ---- key.c: memcmp order of encoded keys is SQL order ---- */
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
 * Fill values, indexed by attnum - 1, with all key columns of a key.  Of a lossy one it is a value
 * that equals the row's, the same for all that do.  Pass-by-reference datums are palloc'd.  Raises
 * XX001 for a malformed key.
 */
extern void kv_key_decode_equal(const KvTable *table, const uint8 *key, int keylen,
								Datum *values);
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
 * The last step of encoding, for a value that has its form already: if the table's option says
 * so and compression pays, *value becomes the compressed bytes, palloc'd.
 */
extern KvForm kv_value_compress(const KvTable *table, KvForm form, const char **value,
								Size *len);
/*
 * Bytes of a row's value when it is not compressed, at most KV_MAX_VALUE if it is compressed
 * now; 0 if it is, and its bytes are invalid.
 */
extern Size kv_value_length(const KvRow *row);
/*
 * Fill values and nulls, both indexed by attnum - 1, with a row of the table.
 * Without want_value, all columns but the exact key columns are NULL.
 * Pass-by-reference datums are palloc'd, or point into the row or the table.  Raises
 * XX001 for bytes that cannot be such a row.
 */
extern void kv_tuple_decode(const KvTable *table, const KvRow *row,
							bool want_value, Datum *values, bool *nulls);
/* As kv_tuple_decode, for a caller that knows the key: the exact key columns are NULL. */
extern void kv_tuple_decode_value(const KvTable *table, const KvRow *row, Datum *values,
								  bool *nulls);
/*
 * Describes how to find a column of 8 bytes in stored values without the table: the columns
 * before it, and itself.  It stays valid for rows that have later columns.
 */
#define KV_PROBE_COLUMNS	16

typedef struct KvProbe
{
	int			natts;
	int16		lengths[KV_PROBE_COLUMNS];
	char		aligns[KV_PROBE_COLUMNS];
} KvProbe;

/* False: the column has too many others before it. */
extern bool kv_probe_make(const KvTable *table, AttrNumber attnum, KvProbe *probe);
/*
 * False: the column is NULL, or cannot be found.  Never reads outside of the value, whatever
 * its bytes.
 */
extern bool kv_probe_read(const KvProbe *probe, KvForm form, const char *value, Size len,
						  int64 *found);
/*
 * Put a row into a slot of the table.  By-reference columns point into the row, or are palloc'd
 * in CurrentMemoryContext.
 */
extern void kv_tuple_store(const KvTable *table, const KvRow *row,
						   bool want_value, TupleTableSlot *slot);

/* ---- primarykey.c ---- */
/* The index of a table's primary key, or InvalidOid.  The table may be any. */
extern Oid	kv_primary_key(Relation rel);
/* Raise 0A000: an index of this name cannot be built. */
KV_NORETURN extern void kv_index_raise_rebuild(const char *name);
/* Called by the object access hook: options of a table were set. */
extern void kv_primary_key_options_set(Oid relid);

/* ---- ddl.c ---- */
extern void kv_ddl_init(void);	/* in _PG_init: the hook of utility statements */
/*
 * Called by the object access hook: a statement changes a definition, which is checked when the
 * statement ends.  A table that is being created is not in the catalog yet.
 */
extern void kv_ddl_note(ObjectAccessType access, Oid classid, Oid objectid, int subid);
/*
 * The executor begins to read or write rows: 55006 if a statement that has not ended has added
 * a column or changed a type, which rows do not show yet.
 */
extern void kv_ddl_require_followed(Relation rel);
extern void kv_ddl_before_commit(void);	/* checks changes that no statement has made; may throw */
extern void kv_ddl_at_end(void);	/* of the transaction: drops all notes */
extern void kv_ddl_at_subxact_abort(SubTransactionId subid);	/* drops the notes of the
																 * subtransaction */

/* ---- mark.c ---- */
/*
 * Called in a process's first PRE_COMMIT, which in a session is that of the transaction in
 * which it was connected.  WARNING if the session is pg_dump's and rows may be left out.  If it
 * is pg_upgrade's in the old server: notes the tables that were never written to; ERROR (0A000)
 * for a column that cannot be transferred.
 */
extern void kv_dump_first_commit(void);

#endif							/* KV_TABLE_H */
