/*
 * statistics.h
 *		Starts workers that analyze tables; for the maintainer only.
 */
#ifndef KV_STATISTICS_H
#define KV_STATISTICS_H

#include "nodes/pg_list.h"

#include "engine/base/types.h"

/* Is there a database in which to start an analyze worker now?  stores: all that are open. */
extern bool kv_statistics_due(List *stores);
/*
 * In a transaction, when kv_statistics_due has returned true: start a worker in the next
 * database, if it accepts connections.  store and arg are not used.
 */
extern void kv_statistics_start(KvStore *store, void *arg);
/* Settings have changed: discard the notes of these stores (kv_changes_need). */
extern void kv_statistics_look_again(List *stores);

#endif							/* KV_STATISTICS_H */
