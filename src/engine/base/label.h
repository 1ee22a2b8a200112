/*
 * label.h
 *		Names of foreign tables in messages.
 *
 * Locks: only those of the catalog, which is read only in a transaction of a process that is
 * connected to the table's database and holds no LWLock.
 */
#ifndef KV_LABEL_H
#define KV_LABEL_H

#include "postgres.h"

#include "compat.h"

/*
 * Palloc'd: foreign table "schema.name", or, where that name cannot be looked up:
 * foreign table with OID 16417 in database with OID 5.
 */
extern char *kv_table_label(Oid dboid, Oid relid);

/* ERROR (42P01): the table, or the store that it had, was dropped. */
KV_NORETURN extern void kv_raise_dropped(Oid dboid, Oid relid);

/* The qualified name as SQL writes it, palloc'd; NULL: it cannot be looked up. */
extern char *kv_table_sql_name(Oid dboid, Oid relid);

#endif							/* KV_LABEL_H */
