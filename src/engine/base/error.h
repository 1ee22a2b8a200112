/*
 * error.h
 *		Errors: names of foreign tables in messages, a library that was not preloaded, and recovery
 *		from an ERROR that does not end the process's work.
 *
 * Locks: for names only those of the catalog, which is read only in a transaction of a process
 * that is connected to the table's database and holds no LWLock.
 */
#ifndef KV_ERROR_H
#define KV_ERROR_H

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

extern bool kv_engine_ready(void);	/* was the library preloaded? */
extern void kv_engine_require(void);	/* ERROR with the required setting, if not */
extern void kv_engine_warn(void);	/* WARNING with it, if not */

/* Outside a transaction: true if the work succeeded; else its ERROR is logged and discarded. */
extern bool kv_attempt(void (*work) (void *arg), void *arg);
/* Outside a transaction, in PG_CATCH: release what the failed work held. */
extern void kv_drop_error(bool report);
/*
 * Has this error a cause outside of the current store?  A failed read or write counts, because
 * the device may succeed at the next start; so do limits: the existing data is intact.
 */
extern bool kv_error_concerns_all(int sqlerrcode);

#endif							/* KV_ERROR_H */
