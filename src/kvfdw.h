/*
 * kvfdw.h
 *		The SQL side of kvfdw: what a foreign table looks like to the engine.
 *
 * The SQL rooms (option, plan, scan, modify, xact, explain, stat, key, tuple)
 * include this header; the engine's rooms (engine/) never do.  Traffic goes
 * one way: SQL rooms call engine/engine.h, the engine calls nothing above it.
 */
#ifndef KVFDW_H
#define KVFDW_H

#include "postgres.h"

#include "access/tupdesc.h"
#include "executor/tuptable.h"
#include "foreign/fdwapi.h"
#include "lib/stringinfo.h"
#include "nodes/pg_list.h"
#include "utils/rel.h"

#include "engine/engine.h"

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
	 * numbers are the table's.
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
	KvStore    *checked_store;	/* its schema image agrees with this */
	bool		writable;		/* and lists every column of this */
	struct KvTable *stale;		/* out of date, but perhaps still in use */
} KvTable;

/* option.c */
extern KvTable *kv_table_get(Relation rel);
extern KvTable *kv_table_get_by_oid(Oid relid);
extern bool kv_is_foreign_table(Oid relid);	/* is it one of ours? */
extern KvStore *kv_table_store(Relation rel, bool create);	/* create: to write */
extern void kv_table_truncate(Relation rel);
extern void kv_table_apply_wal_option(Oid relid);
extern void kv_option_init(void);
extern const char *const kv_wal_level_names[];

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
extern void kv_key_check_size(const KvTable *table, int keylen);

/* tuple.c */
extern KvForm kv_tuple_encode(const KvTable *table, TupleTableSlot *slot,
							  StringInfo buf, const char **value, Size *len);
extern void kv_tuple_decode(const KvTable *table, const KvRow *row,
							bool want_value, Datum *values, bool *nulls);
extern void kv_tuple_store(const KvTable *table, const KvRow *row,
						   bool want_value, TupleTableSlot *slot);

/* plan.c */
extern void kv_plan_routine(FdwRoutine *routine);
/* cost.c */
extern void kv_cost_gucs(void);
/* scan.c */
extern void kv_scan_routine(FdwRoutine *routine);
/* parallel.c */
extern void kv_parallel_routine(FdwRoutine *routine);
/* modify.c */
extern void kv_modify_routine(FdwRoutine *routine);
/* explain.c */
extern void kv_explain_routine(FdwRoutine *routine);
/* xact.c */
extern void kv_xact_init(void);
/* stat.c: SQL functions only */

#endif							/* KVFDW_H */
