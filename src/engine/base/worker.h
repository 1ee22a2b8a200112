/*
 * worker.h
 *		Background workers: what they have in common, and those that run on demand.
 *
 * Static workers run as long as the server does, and the postmaster restarts them.  All others
 * of the engine need a *place*.  The number of places is fixed at start (kv_worker_places), so
 * that kvfdw leaves write buffers of max_worker_processes to others, however busy it is.
 *
 * Workers on demand (KvWorkerKind): the process that needs one starts it, kv_worker_need.  It
 * ends when it has had nothing to do for a while, or when another kind waits for a place.
 *
 * No request is lost.  Who needs a worker first publishes the work, then asks whether one runs.
 * A worker that is to end first gives up its place, then looks for work (kv_worker_leave).  One of
 * the two sees the other.
 *
 * No worker is trusted to run that does not.  A place is kept for a worker that has not
 * begun only for a while, longer each time; then the place is free, and a worker that comes with
 * the old
 * ticket ends at once.  So nothing depends on who has registered it, nor on what the postmaster
 * did with it: could not fork, shut down, forgot.
 *
 * A kind that was refused a place waits for one as long as it is asked for again within
 * KV_FRESH_MS.  Places that become free are for those that wait; a worker whose turn is over
 * ends for them.  What a worker would do is meanwhile done without it, or later; no caller waits.
 *
 * Locks:  a spinlock, and PostgreSQL's BackgroundWorkerLock after it; so kv_worker_need may be
 *         called with LWLocks held, but with no spinlock.
 * Errors: none, unless a function says otherwise.  In the postmaster and in single-user mode
 *         there are no workers on demand.
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

/*
 * One that runs once, and takes its place by kv_worker_attend; false if there is no place or write
 * buffer. With a handle it allocates, so it may raise ERROR.
 */
extern bool kv_worker_start(const char *name, const char *function, Datum arg,
							BackgroundWorkerHandle **handle);

/* Tell the log that kv_worker_start has said false; without: what that means, as a sentence. */
extern void kv_worker_missed(const char *name, const char *without);

/* ---- on demand ---- */

typedef enum KvWorkerKind
{
	KV_WORKER_ONCE,				/* those of kv_worker_start */
	KV_WORKER_BUFFER_WRITER,
	KV_WORKER_COMPACTOR,
	KV_WORKER_PREFETCH,
	KV_WORKER_KINDS
} KvWorkerKind;

typedef struct KvWorkers KvWorkers;

extern KvWorkers *kv_workers;
extern Size kv_workers_memory(void);	/* of shared memory */
extern void kv_workers_attach(void);	/* makes it, or attaches */
extern void kv_workers_gucs(void);	/* in test builds: kvfdw.test_worker_idle */

/*
 * How many workers without a fixed write buffer run at most, beside so many static ones: kvfdw
 * takes five eighths of max_worker_processes, but at least one place, where there is a write
 * buffer.
 */
extern int	kv_worker_places(int nstatic);

/*
 * While shared_preload_libraries are loaded: what a kind is; most: how many of it run at most.  One
 * that starts with the postmaster has no database connection.
 */
extern void kv_worker_define(KvWorkerKind kind, const char *name, const char *function,
							 BgWorkerStartTime when, int most);

/*
 * There is work for this kind, which others can see already: have one started, unless as many
 * run.  True: one runs, or is about to.  Does not wait.
 */
extern bool kv_worker_need(KvWorkerKind kind);
/* Does one run, or was one started a moment ago? */
extern bool kv_worker_is_coming(KvWorkerKind kind);
/*
 * Wait so long for a place for kv_worker_start, in the maintainer; 0: only say that one is needed.
 * Ends early if the process is to.
 */
extern void kv_worker_await_place(int ms);
#define KV_PLACE_MS		10000	/* at a start, when nothing else waits for the maintainer yet */

/*
 * In the main function of any that is not static, before it says that it runs: takes the place.
 * One on demand that comes too late ends here.
 */
extern void kv_worker_attend(void);
/*
 * Between two pieces of work; busy: there was something to do.  True: it is to leave, because
 * it has been idle for long, or because others wait and its turn is over.
 */
extern bool kv_worker_is_done(bool busy);
/*
 * Gives up the place.  attend(false) takes back what says that it runs; it has nothing in flight.
 * False: it stays, for there is work, and attend(true) was called. Has its turn ended, it leaves
 * anyway.
 */
extern bool kv_worker_leave(void (*attend) (bool here), bool (*has_work) (void));

#endif							/* KV_WORKER_H */
