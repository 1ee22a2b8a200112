/*
 * admission.h
 *		Admission control: under overload at most P sessions execute a request at once.
 *
 * A session asks for one of P slots when its client has sent a request and before the server
 * reads it.  If there is none the session pauses, first come first served.  A paused session
 * holds nothing: no transaction, no lock, no snapshot, no pin (A 1).  A slot lasts for a quota
 * of requests; then the session that has waited longest gets it. docs/explanation/admission.md
 * says what users see.
 *
 * This module knows nothing of tables and stores and includes no other module.  It works for
 * all sessions of the server, whatever they do.  Where kvfdw.admission_limit is -1 there is no
 * process, and sessions run as they do without admission.
 *
 *		A 1	A paused session has status 'I' and no lock: sessions that hold locks
 *			beyond their transaction (advisory locks) never ask.
 *		A 2	A session in a transaction is never paused, with or without a slot.
 *		A 3	A slot whose holder waits for its client is lent to a waiting session; one
 *			whose holder waits for a lock is lent when nothing else moves.
 *		A 4	No session waits longer than kvfdw.admission_max_wait.
 *		A 5	Without the process "kvfdw admission" every session passes.
 *		A 6	A slot ends with its session, however that ends.
 *
 * Locks: takes one lock of its own, the last in the order.  Under it only functions of shared
 * memory are called.
 */
#ifndef KV_ADMISSION_H
#define KV_ADMISSION_H

#include "datatype/timestamp.h"

/*
 * For the table of modules (engine/start.c): defines the settings, returns the bytes of shared
 * memory, initializes them.
 */
extern void kv_admission_gucs(void);
extern Size kv_admission_memory(void);
extern void kv_admission_attach(void);

/* Register the process, and the hook of new sessions.  For _PG_init, after the settings. */
extern void kv_admission_preload(void);

/*
 * Set the counters to zero, and note the time of kvfdw_stat_reset().  Does nothing where the
 * library is not preloaded.
 */
extern void kv_admission_stat_reset(TimestampTz now);
/*
 * The time of the last reset, or of the start of the server.  The counters of admission and of the
 * engine count from it on.  Returns 0 where the library is not preloaded.
 */
extern TimestampTz kv_stats_since(void);

/*
 * The main function of the process "kvfdw admission"; arg is not used.  Does not return: the
 * process ends at once if there is another, and when admission is switched off.
 */
extern PGDLLEXPORT void kv_admission_main(Datum arg);

#endif							/* KV_ADMISSION_H */
