/*
 * memcached.h
 *		The memcached front end: processes that serve rows of foreign tables to memcached
 *		clients, under the same transactions and privileges as SQL.
 *
 * The requests of many clients form a batch, which is one transaction.  No lock is held on
 * entry or when these functions return.
 *
 * (M 1) No reply to a write is sent before its transaction has committed and, in mode
 *      "on", its commit is on the device and on synchronous standbys.
 * (M 2) The loop of a process waits for no row, no table and no client: a request that
 *      cannot be executed now is parked, and its connection with it.
 * (M 3) A batch is one transaction, without subtransactions.  If it raises an error it is
 *      rolled back as a whole and executed again request by request: nothing of it was
 *      acknowledged, and the input is still there.
 * (M 4) The requests of one connection are executed and answered in order.
 * (M 5) Memory is bounded: a process keeps what kvfdw.memcached_buffer_memory allows, for
 *      requests and for replies each, one request more, a small buffer for each
 *      connection, and one batch.
 *
 * Modules, from the lowest layer up: protocol (bytes and requests, without PostgreSQL), process
 * (what every process has), connection (clients), served (tables and rows), batch (execution of
 * requests); the files of this directory are the loops of the processes.
 */
#ifndef KV_MEMCACHED_H
#define KV_MEMCACHED_H

#include "postgres.h"

#include "datatype/timestamp.h"

extern void kv_memcached_gucs(void);	/* defines the settings */
extern void kv_memcached_preload(void);	/* shared memory and processes; does nothing if memcached
										 * is off */
/* Sets the counters to 0, and notes the time of the reset. */
extern void kv_memcached_stat_reset(TimestampTz now);

/* The process "kvfdw memcached"; arg is its number.  Does not return. */
extern PGDLLEXPORT void kv_memcached_main(Datum arg);
/* Two of the processes, and what it means that one of them does not run. */
#define KV_MC_FLUSHER		"kvfdw memcached flusher"
#define KV_MC_NO_FLUSHER	"Other clients wait while WAL is flushed for the writes of one."
#define KV_MC_REAPER		"kvfdw memcached reaper"
#define KV_MC_NO_REAPER		"Expired rows are not removed, flush_all with a delay is refused, " \
							"and so are writes while memtable memory is short."

/* The process "kvfdw memcached reaper".  Does not return. */
extern PGDLLEXPORT void kv_memcached_reaper_main(Datum arg);

#endif							/* KV_MEMCACHED_H */
