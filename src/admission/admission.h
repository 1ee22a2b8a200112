/*
 * admission.h
 *		Admission: under overload at most P sessions have a request executed at once.
 *
 * A session asks for one of P slots when its client has sent a request and
 * before the server reads it.  If there is none it pauses, first come first
 * served, and holds nothing meanwhile: no transaction, no lock, no snapshot, no
 * pin (A 1).  A slot lasts for a quota of requests; then it goes to who has
 * waited longest.  docs/explanation/admission.md says what users see.
 *
 * This room knows nothing of tables and stores and includes no other room.  It
 * works for all sessions of the server, whatever they do.  Where
 * kvfdw.admission_limit is -1 there is no process and sessions are as they are
 * without it.
 *
 *	A 1	Who is paused has status 'I' and no lock: sessions that hold locks beyond
 *		their transaction (advisory locks) never ask.
 *	A 2	A session in a transaction is never paused, with or without a slot.
 *	A 3	A slot whose holder waits for its client is lent to who waits; one whose
 *		holder waits for a lock is, when nothing else moves.
 *	A 4	Nobody waits longer than kvfdw.admission_max_wait.
 *	A 5	Without the process "kvfdw admission" everybody passes.
 *	A 6	A slot ends with its session, however that ends.
 *
 * Takes one lock of its own, the last in the order: nothing is called under it
 * but shared memory's own.
 */
#ifndef KV_ADMISSION_H
#define KV_ADMISSION_H

/* For the table of modules (engine/start.c): settings, bytes of shared memory, making it. */
extern void kv_admission_gucs(void);
extern Size kv_admission_memory(void);
extern void kv_admission_attach(void);

/* The process, and the hook of new sessions.  For _PG_init, when there are settings. */
extern void kv_admission_preload(void);

/* Counters to zero; does nothing where the library is not preloaded. */
extern void kv_admission_stat_reset(void);

/*
 * The main function of the process "kvfdw admission"; arg is not used.  Does not return: it
 * ends at once if there is another, and when admission is switched off.
 */
extern PGDLLEXPORT void kv_admission_main(Datum arg);

#endif							/* KV_ADMISSION_H */
