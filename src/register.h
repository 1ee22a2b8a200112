/*
 * register.h
 *		Background workers that the postmaster starts with the server.
 */
#ifndef KV_REGISTER_H
#define KV_REGISTER_H

#include "postmaster/bgworker.h"

/*
 * As RegisterBackgroundWorker, while libraries are preloaded; without: what it means if
 * max_worker_processes has no room for it, as a constant sentence.
 */
extern void kv_register_worker(BackgroundWorker *worker, const char *without);
/* When all are registered: one WARNING, if some found no room, or none is left for others. */
extern void kv_register_report(void);
/* How many of kvfdw's were registered; in the postmaster, when libraries have been loaded. */
extern int	kv_registered_workers(void);

#endif							/* KV_REGISTER_H */
