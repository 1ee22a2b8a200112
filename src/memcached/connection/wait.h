/*
 * wait.h
 *		Connections whose requests wait for rows, tables or memory; replies that wait for the WAL.
 *
 * Waits: nothing here waits for a client (M 2).  kv_mc_linger and kv_mc_wait_for_writers wait a
 * millisecond at most.  Only kv_mc_held_end waits for the WAL, and kv_mc_held_look where the
 * flusher does not run.
 */
#ifndef KV_MEMCACHED_WAIT_H
#define KV_MEMCACHED_WAIT_H

#include "postgres.h"

#include "access/xlogdefs.h"
#include "datatype/timestamp.h"
#include "lib/ilist.h"

#include "memcached/connection/connection.h"

/* ---- requests that cannot be executed now ---- */

/* Is there an obstacle to its next request? */
static inline bool
kv_mc_is_parked(const KvMcConnection *conn)
{
	return conn->obstacle != KV_MC_NO_OBSTACLE;
}

/* some connection is parked, or on hold */
extern bool kv_mc_any_waits;
/*
 * Park a connection whose next request cannot be executed.  False: it has waited too long, and
 * *reply says so.
 */
extern bool kv_mc_park(KvMcConnection *conn, KvMcObstacle obstacle, TransactionId xid,
					   KvMcReply *reply);
/* Has its next request been waiting for so long? */
extern bool kv_mc_parked_for(const KvMcConnection *conn, int64 ms, TimestampTz now);
/* Wake the loop at this time. */
extern void kv_mc_wake_at(TimestampTz when);
/* Unpark connections whose obstacle may be gone; the next batch tries their requests. */
extern void kv_mc_wake(TimestampTz now);
/* How long no request need be tried; -1: none waits. */
extern long kv_mc_sleep_ms(TimestampTz now);

/* ---- replies that wait for the WAL ---- */

extern dlist_head kv_mc_held;	/* connections whose replies wait for the WAL, in the order of
								 * their LSNs */
extern int	kv_mc_nheld;
/*
 * Do replies to writes wait for the WAL instead of the process?  for_all: every client is in
 * the batch or held already.
 */
extern bool kv_mc_holds(bool for_all);
/*
 * Keep the connection's replies until the WAL up to this LSN is on the device and on
 * synchronous standbys.
 */
extern void kv_mc_hold(KvMcConnection *conn, XLogRecPtr upto);
/* Send the replies that need not wait any more; idle: the loop has nothing else to do. */
extern void kv_mc_held_look(TimestampTz now, bool idle);
extern bool kv_mc_any_held(void);
/* How many connections are held and have no request in the current batch? */
extern int	kv_mc_held_others(void);
/*
 * A batch has flushed the WAL up to this LSN itself, for so many connections, and began to
 * flush at that time: send the replies that wait for no more.
 */
extern void kv_mc_flushed(XLogRecPtr upto, int writers, TimestampTz since);
/* Wait a little for clients that are about to write again; false: there is none. */
extern bool kv_mc_linger(int epoll_fd, TimestampTz now);
/*
 * As kv_mc_linger, within a batch that began at that time and has writes of so many
 * connections.  Does not wait if the process has waited in vain for so long (µs) that it is not
 * worthwhile.
 */
extern bool kv_mc_wait_for_writers(int epoll_fd, int writing, TimestampTz began, int64 waited);
/* The process ends: send the replies that may be sent. */
extern void kv_mc_held_end(void);

/* ---- slow clients ---- */

/*
 * Called once a second: disconnects clients that read nothing, send half a request, or send
 * nothing for too long.
 */
extern void kv_mc_sweep(TimestampTz now);

#endif							/* KV_MEMCACHED_WAIT_H */
