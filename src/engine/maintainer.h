/*
 * maintainer.h
 *		The maintainer process; registers all workers that run from the start.
 */
#ifndef KV_MAINTAINER_H
#define KV_MAINTAINER_H

#include "engine/base/types.h"

/* While shared_preload_libraries are loaded: merge writer, maintainer, barrier, prefetch. */
extern void kv_workers_register(void);
/* The maintainer's main function; arg is not used.  Does not return. */
extern PGDLLEXPORT void kv_maintainer_main(Datum arg);

/* ---- statistics.c, in the maintainer only ---- */
/* Is there a database in which to start an analyze worker now?  stores: all that are open. */
extern bool kv_statistics_due(List *stores);
/*
 * In a transaction, when kv_statistics_due has said so: starts a worker in the next
 * database, if it can be connected to.  store and arg are not used.
 */
extern void kv_statistics_start(KvStore *store, void *arg);
/* Settings have changed: what was noted of these stores (kv_changes_need) is forgotten. */
extern void kv_statistics_look_again(List *stores);

#endif							/* KV_MAINTAINER_H */
