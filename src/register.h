/*
 * register.h
 *		Background workers that the postmaster starts with the server.
 */
#ifndef KV_REGISTER_H
#define KV_REGISTER_H

#include "postmaster/bgworker.h"

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

#endif							/* KV_REGISTER_H */
