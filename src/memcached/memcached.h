/*
 * memcached.h
 *		The memcached front end: processes that serve rows of foreign tables to clients of
 *		memcached, beside SQL and under the same transactions and privileges.
 *
 * Many clients' requests are one transaction, a turn.  The loop of a process waits for no
 * row, no table and no client.  No lock is held on entry or when these return.
 */
#ifndef KV_MEMCACHED_H
#define KV_MEMCACHED_H

extern void kv_memcached_gucs(void);	/* defines its settings */
extern void kv_memcached_preload(void);	/* shared memory, processes; does nothing if it is off */
extern void kv_memcached_stat_reset(void);	/* sets its counters to 0 */

#endif							/* KV_MEMCACHED_H */
