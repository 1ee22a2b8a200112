/*
 * worker.h
 *		Background workers: their common code, and workers that run on demand.
 *
 * Static workers run as long as the server does, and the postmaster restarts them.  All other
 * workers of the engine need a *place*.  The number of places is fixed at start
 * (most_places), so that kvfdw always leaves slots of max_worker_processes to others.
 *
 * Workers on demand (KvWorkerKind): the process that needs one starts it with kv_worker_need.
 * The worker ends when it has been idle for a while, or when another kind waits for a place.
 *
 * No request is lost.  A process that needs a worker first publishes the work, then asks
 * whether one runs.  A worker that is to end first gives up its place, then looks for work
 * (kv_worker_leave).  One of the two sees the other.
 *
 * A registered worker may never start.  So a place is kept for a worker that has not begun only
 * for a while, longer each time.  Then the place is free, and a worker that arrives with the
 * old ticket ends at once.  So nothing depends on which process registered the worker, nor on
 * what the postmaster did with it: could not fork, shut down, forgot.
 *
 * A kind that was refused a place waits for one as long as it is requested again within
 * KV_FRESH_MS.  Freed places are for waiting kinds; a worker whose turn is over ends for them.
 * Until a worker runs, its work is done without it, or later; no caller waits.
 *
 * Locks:  a spinlock, and PostgreSQL's BackgroundWorkerLock after it; so kv_worker_need may be
 *        called with LWLocks held, but with no spinlock.
 * Errors: none, unless a function says otherwise.  In the postmaster and in single-user mode
 *        there are no workers on demand.
 */
#ifndef KV_WORKER_H
#define KV_WORKER_H

#include "postmaster/bgworker.h"

/*
 * Describe a worker that the postmaster starts, and restarts when it exits; the caller
 * registers it.
 */
extern void kv_worker_describe(BackgroundWorker *worker, const char *name,
							   const char *function);

/*
 * Called at the beginning of a worker's main function; name: of a worker that reads catalogs,
 * or NULL.
 */
extern void kv_worker_begin(const char *name);

/*
 * Called in any other worker, once it is connected: turn off settings that end users'
 * transactions.
 */
extern void kv_worker_no_timeouts(void);

/* Reload the settings if this is a worker that was told to. */
extern void kv_worker_reload(void);

/*
 * Called between two pieces of work: reset the latch and, if told to, reload the settings.
 * *reloaded (or NULL) is set then, also if they were reloaded since the last call.  False: the
 * process is to exit.
 */
extern bool kv_worker_goes_on(bool *reloaded);

/*
 * Start a worker that runs once, and takes its place with kv_worker_attend.  False if there is
 * no place or no slot of max_worker_processes.  With a handle it allocates, so it may raise
 * ERROR.
 */
extern bool kv_worker_start(const char *name, const char *function, Datum arg,
							BackgroundWorkerHandle **handle);

/* ---- workers on demand ---- */

typedef enum KvWorkerKind
{
	KV_WORKER_ONCE,				/* workers of kv_worker_start */
	KV_WORKER_BUFFER_WRITER,
	KV_WORKER_COMPACTOR,
	KV_WORKER_PREFETCH,
	KV_WORKER_KINDS
} KvWorkerKind;

typedef struct KvWorkers KvWorkers;

extern KvWorkers *kv_workers;
extern Size kv_workers_memory(void);	/* of shared memory */
extern void kv_workers_attach(void);	/* creates it, or attaches */
extern void kv_workers_gucs(void);	/* in test builds: kvfdw.test_worker_idle */

/*
 * While shared_preload_libraries are loaded: define a kind; most: how many of it run at most.
 * A worker that starts with the postmaster has no database connection.
 */
extern void kv_worker_define(KvWorkerKind kind, const char *name, const char *function,
							 BgWorkerStartTime when, int most);

/*
 * There is work for this kind, which other processes can see already: have a worker started,
 * unless as many run as may.  True: one runs, or is about to.  Does not wait.
 */
extern bool kv_worker_need(KvWorkerKind kind);
/* Does a worker of this kind run, or was one started a moment ago? */
extern bool kv_worker_is_coming(KvWorkerKind kind);
/*
 * In the maintainer: wait so long for a place for kv_worker_start; 0: only record that one is
 * needed.  Ends early if the process is to exit.
 */
extern void kv_worker_await_place(int ms);
#define KV_PLACE_MS		10000	/* at the start, when no process waits for the maintainer yet */

/*
 * In the main function of any worker that is not static, before it announces that it runs: take
 * the place.  A worker on demand that arrives too late ends here.
 */
extern void kv_worker_attend(void);
/*
 * Called between two pieces of work; busy: there was work.  True: the worker is to leave,
 * because it has been idle for long, or because others wait and its turn is over.
 */
extern bool kv_worker_is_done(bool busy);
/*
 * Give up the place.  attend(false) withdraws the announcement that it runs; it has no work in
 * flight.  False: the worker stays, because there is work, and attend(true) was called.  If its
 * turn is over it leaves in any case.
 */
extern bool kv_worker_leave(void (*attend) (bool here), bool (*has_work) (void));

#endif							/* KV_WORKER_H */
