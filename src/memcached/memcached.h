/*
 * memcached.h
 *		The memcached front end: processes that serve rows of foreign tables to clients of
 *		memcached, beside SQL and under the same transactions and privileges.
 *
 * Many clients' requests are one transaction, a batch.  The loop of a process waits for no
 * row, no table and no client.  No lock is held on entry or when these return.
 *
 * (M 1) No reply to a write is sent before its transaction has committed and, in mode
 *       "on", its commit is on the device and on synchronous standbys.
 * (M 2) The loop waits for no row, no table and no client: what cannot be had now is
 *       parked, and its connection with it.
 * (M 3) A batch is one transaction, without subtransactions.  If it raises an error it is
 *       rolled back as a whole and done again request by request: nothing of it was
 *       acknowledged, and the input is still there.
 * (M 4) The requests of one connection are done and answered in order.
 * (M 5) Memory is bounded: a process keeps what kvfdw.memcached_buffer_memory allows, for requests
 * and
 *       for replies each, one request more, a small buffer for each connection, and one batch.
 *
 * Its modules, from the ground up: protocol (bytes and requests, without PostgreSQL), process
 * (what every process has), connection (clients), served (tables and rows), batch (requests
 * are done), and here the loops of the processes.
 */
#ifndef KV_MEMCACHED_H
#define KV_MEMCACHED_H

#include "postgres.h"

extern void kv_memcached_gucs(void);	/* defines its settings */
extern void kv_memcached_preload(void);	/* shared memory, processes; does nothing if it is off */
extern void kv_memcached_stat_reset(void);	/* sets its counters to 0 */

/* The process "kvfdw memcached"; arg is its number.  Does not return. */
extern PGDLLEXPORT void kv_memcached_main(Datum arg);
/* The process "kvfdw memcached reaper".  Does not return. */
extern PGDLLEXPORT void kv_memcached_reaper_main(Datum arg);

#endif							/* KV_MEMCACHED_H */
