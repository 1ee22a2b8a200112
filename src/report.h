/*
 * report.h
 *		Messages that the engine, admission and memcached have in common, and background workers
 *		that the postmaster starts with the server.
 */
#ifndef KV_REPORT_H
#define KV_REPORT_H

#include "access/tupdesc.h"
#include "postmaster/bgworker.h"

/* Tell that the library was not preloaded, with the line to add. */
extern void kv_report_not_preloaded(int elevel);

/* ERROR (55000): SQL objects of the extension are of another version than the library. */
extern void kv_raise_other_version(void);

/*
 * Does the function's SQL definition have n columns?  ERROR (55000) if not: the definition is
 * of another version than the library.
 */
extern void kv_require_columns(TupleDesc desc, int n);

/* LOG: a background worker found no slot; without: the consequence, as a sentence. */
extern void kv_report_not_started(const char *worker, const char *without);

/* A background worker does not run; without: the consequence, as a sentence, or NULL. */
extern void kv_report_not_running(int elevel, const char *worker, const char *without);

/*
 * Register a worker as RegisterBackgroundWorker does, while libraries are preloaded. without: a
 * constant sentence that says what it means if max_worker_processes has no slot for the worker.
 */
extern void kv_register_worker(BackgroundWorker *worker, const char *without);
/*
 * Raise one WARNING if some workers found no slot, or if none is left for others.  Called when
 * all are registered.
 */
extern void kv_register_report(void);
/*
 * How many of kvfdw's workers were registered; known in the postmaster once libraries are
 * loaded.
 */
extern int	kv_registered_workers(void);

#endif							/* KV_REPORT_H */
