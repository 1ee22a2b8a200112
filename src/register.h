/*
 * register.h
 *		Background workers that the postmaster starts with the server.
 */
#ifndef KV_REGISTER_H
#define KV_REGISTER_H

#include "postmaster/bgworker.h"

/*
 * As RegisterBackgroundWorker, while libraries are preloaded.  If max_worker_processes has no room
 * for it the log says so; without: what that means, as a sentence.
 */
extern void kv_register_worker(BackgroundWorker *worker, const char *without);

#endif							/* KV_REGISTER_H */
