/*
 * worker.h
 *		Background workers: what they have in common.  Takes no lock.
 */
#ifndef KV_WORKER_H
#define KV_WORKER_H

#include "postmaster/bgworker.h"

/* Describes one that the postmaster starts, and again when it exits; the caller registers it. */
extern void kv_worker_describe(BackgroundWorker *worker, const char *name,
							   const char *function);

/* At the beginning of its main function; name: of one that looks into catalogs, or NULL. */
extern void kv_worker_begin(const char *name);

/* In any other, once it is connected: settings that end people's transactions are off. */
extern void kv_worker_no_timeouts(void);

/* Read the settings again if this is a worker that was told to. */
extern void kv_worker_reload(void);

/*
 * Between two pieces of work: resets the latch and, told to, reads the settings again;
 * *reloaded (or NULL) says so, also if that has been done meanwhile.  False: the process is to end.
 */
extern bool kv_worker_goes_on(bool *reloaded);

/* One that runs once; false if none can be had. */
extern bool kv_worker_start(const char *name, const char *function, Datum arg,
							BackgroundWorkerHandle **handle);

/* Tell the log that kv_worker_start has said false; without: what that means, as a sentence. */
extern void kv_worker_missed(const char *name, const char *without);

#endif							/* KV_WORKER_H */
