/*
 * maintainer.h
 *		The maintainer process, which registers all workers that run from the start; and its work
 *		that has files of its own.
 */
#ifndef KV_MAINTAINER_H
#define KV_MAINTAINER_H

#include "nodes/pg_list.h"

#include "engine/base/types.h"

/*
 * While shared_preload_libraries are loaded: register checkpointer, maintainer and tier, and
 * define the workers on demand.
 */
extern void kv_workers_register(void);
/* The maintainer's main function; arg is not used.  Does not return. */
extern PGDLLEXPORT void kv_maintainer_main(Datum arg);

/* ---- stat.c: starts workers that analyze tables; for the maintainer only ---- */
/* Is there a database in which to start an analyze worker now?  stores: all that are open. */
extern bool kv_statistics_due(List *stores);
/*
 * In a transaction, when kv_statistics_due has returned true: start a worker in the next
 * database, if it accepts connections.  store and arg are not used.
 */
extern void kv_statistics_start(KvStore *store, void *arg);
/* Settings have changed: discard the notes of these stores (kv_changes_need). */
extern void kv_statistics_look_again(List *stores);

/*
 * ---- warm.c ----
 *
 * Keeps the value cache and the second tier warm across a clean restart: a file records their
 * contents.  The file is a hint.  It may be missing, damaged, old or another server's: blocks that
 * are read for it are verified when they are used (I 4).
 * Errors: none, except for kv_store_prewarm, which maintenance.h declares.
 */
/*
 * In the maintainer, when it is told to end: if the server stops, write the file, with the
 * entries of an earlier file that was not yet read.
 */
extern void kv_warm_note(void);
/*
 * In the maintainer, when stores have been opened, on a standby when it is consistent: if there
 * is a file, start the worker that reads it, once.  If there is no place for a worker, the
 * maintainer re-enters frames of the second tier itself and reads no blocks.
 */
extern void kv_warm_start(void);
/*
 * The worker's main function; arg is not used.  Re-enters frames and reads blocks of open
 * stores, then removes the file.
 */
extern PGDLLEXPORT void kv_warm_worker_main(Datum arg);

#endif							/* KV_MAINTAINER_H */
