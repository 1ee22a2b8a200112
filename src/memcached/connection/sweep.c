/*
 * sweep.c
 *		Once a second: clients that are too slow are disconnected (connection.c says when).
 */
#include "memcached/connection/connection.h"

#include "clock.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>

#include "postmaster/postmaster.h"

/* bytes per second that a client must move once its time-out has passed */
#define LEAST_RATE		1024
#define STALLED_SHARE	10		/* of the client's time-out, while other clients wait */

static bool
has_passed(TimestampTz since, int64 ms, TimestampTz now)
{
	return ms > 0 && now - since > ms * 1000;
}

/* Is there a client for which no request is executed, because others have all the memory? */
static bool
somebody_waits(void)
{
	dlist_iter	iter;

	dlist_foreach(iter, &kv_mc_working)
	{
		KvMcConnection *conn = dlist_container(KvMcConnection, work_node, iter.cur);

		if (kv_mc_must_wait(conn) && kv_mc_pending(&conn->out) == 0)
			return true;
	}
	return false;
}

/* Is there a client from which nothing is read, because others have all the memory? */
static bool
somebody_starves(void)
{
	dlist_iter	iter;

	dlist_foreach(iter, &kv_mc_connections)
	{
		if (dlist_container(KvMcConnection, node, iter.cur)->starved)
			return true;
	}
	return false;
}

/*
 * Has the process waited too long for a client, either for the rest of a request or for it to
 * read replies?  A byte now and then is not enough: beyond the time-out the client must move
 * LEAST_RATE.
 */
static bool
is_too_slow(KvMcConnection *conn, bool waited_for, int64 timeout, TimestampTz now)
{
	if (!waited_for)
	{
		conn->waits_since = 0;
		return false;
	}
	if (conn->waits_since == 0 || conn->waits_requests != conn->requests)
	{
		conn->waits_since = now;
		conn->waits_moved = conn->moved;
		conn->waits_requests = conn->requests;
	}
	return has_passed(conn->waits_since,
					  timeout + (int64) ((conn->moved - conn->waits_moved) * 1000 / LEAST_RATE),
					  now);
}

/*
 * How much has the client read of what it was sent?  Its socket, which holds megabytes, is
 * reported as writable only when a good part of them has been read.
 */
static void
look_at_taken(KvMcConnection *conn, TimestampTz now)
{
	int			queued = 0;
	uint64		taken;

	if (conn->datagram != NULL || ioctl(conn->fd, SIOCOUTQ, &queued) != 0)
		return;
	taken = conn->sent - Min(conn->sent, (uint64) queued);
	if (taken <= conn->taken)
		return;
	conn->moved += taken - conn->taken;
	conn->taken = taken;
	conn->active = now;
}

/* Has it had the time that PostgreSQL gives a client to authenticate? */
static bool
is_unknown_for_long(const KvMcConnection *conn, TimestampTz now)
{
	return kv_mc_auth == KV_MC_AUTH_PASSWORD && !OidIsValid(conn->role) && !conn->working &&
		!kv_mc_is_held(conn) && has_passed(conn->made, (int64) AuthenticationTimeout * 1000, now);
}

void
kv_mc_sweep(TimestampTz now)
{
	int64		timeout = (int64) kv_mc_client_timeout_s * 1000;
	bool		in_need = somebody_waits();
	bool		starving = somebody_starves();
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, &kv_mc_connections)
	{
		KvMcConnection *conn = dlist_container(KvMcConnection, node, iter.cur);
		bool		sending = kv_mc_pending(&conn->out) > 0 && !kv_mc_is_held(conn);
		/* for the client */
		bool		waiting = !conn->working && !kv_mc_is_held(conn) && !conn->starved;
		bool		half = waiting && (kv_mc_pending(&conn->in) > 0 || conn->stream.swallow > 0);
		bool		holds_up = half && starving && conn->in.size > KV_MC_FIRST_BUFFER;
		bool		too_slow;
		bool		stalled;

		if (sending)
			look_at_taken(conn, now);
		if (conn->wants > 0 && has_passed(conn->wants_since, timeout / STALLED_SHARE, now))
			kv_mc_send_next(conn);
		too_slow = is_too_slow(conn, sending || half, holds_up ? timeout / STALLED_SHARE : timeout,
							   now);
		stalled = (holds_up && too_slow) ||
			(sending && in_need && has_passed(conn->active, timeout / STALLED_SHARE, now));

		conn->starved = false;
		if (stalled)
			kv_mc_counts[KV_MC_COUNT_DROPPED]++;
		if (stalled || too_slow || ((sending || half) && has_passed(conn->active, timeout, now)) ||
			is_unknown_for_long(conn, now) ||
			(waiting && has_passed(conn->active, (int64) kv_mc_idle_timeout_s * 1000, now)))
			conn->dead = true;
		(void) kv_mc_connection_watch(conn);
	}
}
