/*
 * internal.h
 *		Options, keys, values and marks of tables, as the files of this module share them.
 *
 * Locks and errors are those of table.h.
 */
#ifndef KV_TABLE_INTERNAL_H
#define KV_TABLE_INTERNAL_H

#include "access/tupdesc.h"
#include "catalog/pg_attribute.h"
#include "nodes/pg_list.h"
#include "utils/rel.h"

#include "compat.h"
#include "engine/rows.h"
#include "table/table.h"

/* ---- option.c ---- */
/* The value of an option in a list as it is written, or NULL. */
extern const char *kv_option_value(List *options, const char *name);
/* The options that a foreign table has: its own, and those of its server for which it has none. */
extern List *kv_table_options(Oid relid);
extern const char *kv_table_own_option(Oid relid, const char *name);	/* NULL: none */
/*
 * Read the options into table, except "key" and "tablespace", which need more than the options;
 * ERROR (22023) if one is wrong.
 */
extern void kv_table_read_options(KvTable *table, List *options);
extern const char *kv_wal_level_lacks(KvWalLevel level);	/* to follow changes; a sentence */
/*
 * The columns that an option "key" names, split by SQL's rules for identifiers; ERROR (22023) if it
 * is no such list.
 */
extern List *kv_key_option_columns(const char *value);
extern bool kv_attribute_exists(Oid relid, AttrNumber attnum);	/* and is not dropped */
/* Is a column of one of our tables part of its key, by the catalog as it is now? */
extern bool kv_is_key_column(Oid relid, AttrNumber attnum);

/* ---- table.c ---- */
extern bool kv_has_key_candidate(Relation rel); /* a column that could be part of a key */
extern bool kv_is_handler(Oid function);	/* does it belong to this library? */
extern bool kv_is_index_handler(Oid function);	/* as kv_is_handler, of access methods */

/* ---- tablespace.c ---- */
/* The tablespace of a table's values, InvalidOid: the data directory. */
extern Oid	kv_tablespace_of(Oid relid);

/* ---- mark.c ---- */
extern bool kv_mark_exists(Oid relid);	/* is the table marked as one that has data? */
/* marks it in this transaction, whether it is marked or not; see mark.c */
extern void kv_mark_make(Oid relid);
extern void kv_mark_ensure(KvTable *table);	/* before rows are written, after the store was made */
/*
 * May the rows of a table be read?  False: the library is not preloaded, and there are no rows.
 * ERROR if it is not preloaded and there may be rows.
 */
extern bool kv_mark_allows_reading(Oid relid);
KV_NORETURN extern void kv_mark_raise_missing(Oid relid);	/* it is marked, and has no store */
/* with any definition; ERROR if the rows are missing */
extern bool kv_table_has_rows(Relation rel);

/* ---- key.c ---- */
/*
 * Can a column of this type be part of a key?  If so, *kind is its encoding.  *lossy is for a
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
 * Fill values and nulls, both indexed by attnum - 1, with the key columns that the key encodes
 * exactly; lossy ones stay or become NULL and are left to the value.  Pass-by-reference datums
 * are palloc'd.  Raises XX001 for a malformed key.
 */
extern void kv_key_decode(const KvTable *table, const uint8 *key, int keylen,
						  Datum *values, bool *nulls);

/* ---- compress.c ---- */
/*
 * Decompress a row's value into *plain, palloc'd, with a header.  False: the bytes are invalid.
 * Never reads or writes outside of the value and the palloc'd memory.
 */
extern bool kv_value_decompress(const KvRow *row, KvRow *plain);
/*
 * Copy the first bytes of a value's uncompressed form, at most room; returns how many.  Returns
 * 0 if the value cannot be decompressed.
 */
extern Size kv_value_begin(KvForm form, const char *value, Size len, char *to, Size room);

#endif							/* KV_TABLE_INTERNAL_H */
