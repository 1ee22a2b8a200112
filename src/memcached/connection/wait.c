/*
 * wait.c
 *		What waits: requests that cannot be executed now, replies that may not be sent yet, and
 *		this process for slow clients.
 *
 * Parked connections.  Their next request is tried again (M 2).  Each millisecond the loop checks
 * whether the transaction that they wait for has ended, which costs next to nothing.  Any other
 * attempt is a batch, so the intervals between these double, up to a limit.
 *
 * Held replies.  In mode "on" a batch's transaction commits in memory.  Replies to writes are held
 * until the process "kvfdw memcached flusher" has flushed the WAL up to the commit, and synchronous
 * standbys have it (M 1).  In that time the loop serves the requests of other clients: reads are
 * not held up, and writes that arrive while a flush runs share the next one.
 *
 * A process asks for a flush when it has nothing else to do.  But clients whose replies have just
 * been sent are about to write again.  If the next flush began without them, there would be two
 * groups of clients that alternate, each with half of the writes.  So the process lingers until as
 * many replies are held as were sent, for half of the duration of a flush at most.  Where there is
 * always something else to do, because other clients read, the process asks when the first of those
 * replies has been held for MOST_HELD_US.
 *
 * A batch flushes the WAL itself if each client has requests in it or is held: the flush makes no
 * other client wait, and no other process has to be woken.  To reach that state a batch that only
 * writes lingers, too, before it is executed.  Without the flusher each batch flushes for itself.
 * With synchronous standbys it does not, because they may be away: clients that connect in that
 * time would be held up.
 *
 * Slow clients.  Once a second those that are too slow are disconnected; connection.c says when.
 */
#include "memcached/connection/connection.h"
#include "memcached/connection/wait.h"

#include "clock.h"

#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>

#include "postmaster/postmaster.h"
#include "storage/procarray.h"

/* ---- parked connections ---- */

#define FIRST_RETRY_US	1000
#define LAST_RETRY_US	16000
#define KNOWN_XIDS		64

bool		kv_mc_any_waits = false;

static TimestampTz next_wake = 0;	/* if some connection waits */

/* Transactions that were checked in this wake. */
static struct
{
	TransactionId xid;
	bool		running;
}			known[KNOWN_XIDS];

static const char *
obstacle_message(KvMcObstacle obstacle)
{
	switch (obstacle)
	{
		case KV_MC_ROW_LOCKED:
			return "55P03 row is locked by another transaction";
		case KV_MC_ROW_BUSY:
			return "40001 row was concurrently updated too many times";
		case KV_MC_TABLE_BUSY:
		case KV_MC_FLUSHING:
			return "57P03 table is being changed";
		case KV_MC_TABLE_CLOSED:
			return "57P03 table is being recovered";
		case KV_MC_NO_ROOM:
			return "53200 out of kvfdw memtable memory";
		case KV_MC_NO_OBSTACLE:
			break;
	}
	return "";
}

bool
kv_mc_parked_for(const KvMcConnection *conn, int64 ms, TimestampTz now)
{
	return conn->parked_since != 0 && now - conn->parked_since >= ms * 1000;
}

bool
kv_mc_park(KvMcConnection *conn, KvMcObstacle obstacle, TransactionId xid, KvMcReply *reply)
{
	TimestampTz now = kv_clock();

	if (kv_mc_lock_timeout_ms == 0 || kv_mc_parked_for(conn, kv_mc_lock_timeout_ms, now))
	{
		const char *message = obstacle_message(obstacle);

		memset(reply, 0, sizeof(KvMcReply));
		reply->outcome = KV_MC_ERROR;
		reply->value = message;
		reply->length = strlen(message);
		reply->status = KV_MC_STATUS_BUSY;
		kv_mc_counts[KV_MC_COUNT_ERRORS]++;
		return false;
	}
	if (conn->parked_since == 0)
	{
		kv_mc_counts[KV_MC_COUNT_PARKED]++;
		conn->parked_since = now;
		conn->retry_us = FIRST_RETRY_US;
	}
	else
		conn->retry_us = Min(2 * conn->retry_us, LAST_RETRY_US);
	conn->obstacle = obstacle;
	conn->waits_for = xid;
	conn->retry_at = now + (TransactionIdIsValid(xid) ? FIRST_RETRY_US : conn->retry_us);
	kv_mc_wake_at(conn->retry_at);
	return true;
}

void
kv_mc_wake_at(TimestampTz when)
{
	if (!kv_mc_any_waits || when < next_wake)
		next_wake = when;
	kv_mc_any_waits = true;
}

/* Its obstacle may be gone: the next batch tries the request. */
static void
unpark(KvMcConnection *conn)
{
	conn->obstacle = KV_MC_NO_OBSTACLE;
	conn->waits_for = InvalidTransactionId;
}

/*
 * Does the transaction run?  Many connections may be parked for one, so the answer is kept for
 * the whole wake.
 */
static bool
is_running(TransactionId xid)
{
	int			i = xid % KNOWN_XIDS;

	if (known[i].xid != xid)
	{
		known[i].running = TransactionIdIsInProgress(xid);
		known[i].xid = xid;
	}
	return known[i].running;
}

static void
wake_parked(KvMcConnection *conn, TimestampTz now)
{
	if (conn->retry_at > now)
		kv_mc_wake_at(conn->retry_at);
	else if (TransactionIdIsValid(conn->waits_for) &&
			 is_running(conn->waits_for) &&
			 !kv_mc_parked_for(conn, kv_mc_lock_timeout_ms, now))
		kv_mc_wake_at(now + FIRST_RETRY_US);
	else
		unpark(conn);
}

void
kv_mc_wake(TimestampTz now)
{
	dlist_mutable_iter iter;

	if (!kv_mc_any_waits || now < next_wake)
		return;
	kv_mc_any_waits = false;
	memset(known, 0, sizeof(known));
	dlist_foreach_modify(iter, &kv_mc_connections)
	{
		KvMcConnection *conn = dlist_container(KvMcConnection, node, iter.cur);

		if (conn->hold_until > now)
			kv_mc_wake_at(conn->hold_until);
		else if (conn->hold_until != 0)
		{
			conn->hold_until = 0;
			(void) kv_mc_connection_watch(conn);
		}
		else if (kv_mc_is_parked(conn))
			wake_parked(conn, now);
	}
}

long
kv_mc_sleep_ms(TimestampTz now)
{
	if (!kv_mc_any_waits)
		return -1;
	return next_wake <= now ? 0 : (long) ((next_wake - now + 999) / 1000);
}

/* ---- held replies ---- */

#define MOST_LINGER_US	1000
/* of its lingering, so long a batch does not sleep: most clients write again within that time */
#define AWAKE_US		50
/* a flush is requested after so long, even if there is something else to do */
#define MOST_HELD_US	2000

static XLogRecPtr held_upto = InvalidXLogRecPtr;	/* of the last one held */
static XLogRecPtr asked_upto = InvalidXLogRecPtr;
static TimestampTz asked_at = 0;
/* since when a reply is held for which no flush was requested; 0: there is none */
static TimestampTz unasked_since = 0;
static int64 flush_us = 0;		/* duration of the last flush */
static TimestampTz linger_until = 0;
static int	expected = 0;		/* so many replies may be held soon */

bool
kv_mc_holds(bool for_all)
{
	return kv_mc_commit == KV_MC_COMMIT_ON && kv_mc_flusher_runs() &&
		(!for_all || kv_mc_has_standbys());
}

void
kv_mc_hold(KvMcConnection *conn, XLogRecPtr upto)
{
	if (conn->held_upto != InvalidXLogRecPtr)
		dlist_delete(&conn->held_node);
	else
		kv_mc_nheld++;
	dlist_push_tail(&kv_mc_held, &conn->held_node);
	conn->held_upto = upto;
	held_upto = Max(held_upto, upto);
	if (unasked_since == 0)
		unasked_since = kv_clock();
}

bool
kv_mc_any_held(void)
{
	return kv_mc_nheld > 0;
}

int
kv_mc_held_others(void)
{
	dlist_iter	iter;
	int			n = 0;

	dlist_foreach(iter, &kv_mc_held)
		n += !dlist_container(KvMcConnection, held_node, iter.cur)->gathered;
	return n;
}

/* Send the replies that wait for no more than this LSN; returns the number of connections. */
static int
release(XLogRecPtr upto)
{
	dlist_mutable_iter iter;
	int			n = 0;

	dlist_foreach_modify(iter, &kv_mc_held)
	{
		KvMcConnection *conn = dlist_container(KvMcConnection, held_node, iter.cur);

		if (conn->held_upto > upto)
			break;
		kv_mc_unhold(conn);
		if (kv_mc_pending(&conn->out) > 0)
			kv_mc_send_rest(conn);
		if (!conn->gathered)
			(void) kv_mc_connection_watch(conn);
		n++;
	}
	return n;
}

/* How long to wait for clients that are about to write again. */
static int64
patience_us(void)
{
	return Min(flush_us / 2, MOST_LINGER_US);
}

/*
 * A flush is over: the next one need not begin before the clients that have their replies write
 * again.
 */
static void
flush_over(int released, TimestampTz now)
{
	if (asked_at != 0)
		flush_us = now - asked_at;
	asked_at = 0;
	expected = released + kv_mc_nheld;
	linger_until = now + patience_us();
}

void
kv_mc_flushed(XLogRecPtr upto, int writers, TimestampTz since)
{
	asked_at = since;
	flush_over(writers + release(upto), kv_clock());
}

/* Is it time to ask for the next flush? */
static bool
is_due(TimestampTz now, bool idle)
{
	if (now - unasked_since >= MOST_HELD_US)
		return true;
	return idle && (kv_mc_nheld >= expected || now >= linger_until);
}

void
kv_mc_held_look(TimestampTz now, bool idle)
{
	XLogRecPtr	flushed;

	if (kv_mc_nheld == 0)
	{
		unasked_since = 0;
		return;
	}
	flushed = pg_atomic_read_u64(&kv_mc_shared->flushed);
	if (!kv_mc_flusher_runs() && flushed < held_upto)
	{
		if (!kv_mc_flush_here(held_upto))
			return;				/* the process ends, and nothing is acknowledged */
		kv_mc_counts[KV_MC_COUNT_FLUSHES]++;
		flushed = held_upto;
	}
	if (dlist_head_element(KvMcConnection, held_node, &kv_mc_held)->held_upto <= flushed)
		flush_over(release(flushed), now);
	if (kv_mc_nheld == 0)
		unasked_since = 0;
	if (kv_mc_nheld == 0 || asked_upto > flushed || !is_due(now, idle))
		return;
	kv_mc_ask_flush(held_upto);
	asked_upto = held_upto;
	asked_at = now;
	unasked_since = 0;
}

/* Wait until an event comes, or for so long. */
static void
wait_for_events(int epoll_fd, int64 us)
{
	struct pollfd fd = {.fd = epoll_fd, .events = POLLIN};
	struct timespec time = {.tv_nsec = Min(us, MOST_LINGER_US) * 1000};

	(void) ppoll(&fd, 1, &time, NULL);
}

bool
kv_mc_linger(int epoll_fd, TimestampTz now)
{
	XLogRecPtr	flushed = pg_atomic_read_u64(&kv_mc_shared->flushed);

	if (kv_mc_nheld == 0 || asked_upto > flushed || now >= linger_until)
		return false;
	wait_for_events(epoll_fd, linger_until - now);
	return true;
}

bool
kv_mc_wait_for_writers(int epoll_fd, int writing, TimestampTz began, int64 waited)
{
	if (kv_mc_commit != KV_MC_COMMIT_ON || kv_mc_nheld + writing >= expected ||
		began >= linger_until ||
		began < linger_until - MOST_LINGER_US || waited >= patience_us())
		return false;
	if (waited >= AWAKE_US)
		wait_for_events(epoll_fd, patience_us() - waited);
	return true;
}

void
kv_mc_held_end(void)
{
	if (kv_mc_nheld > 0 && kv_mc_flush_here(held_upto))
		(void) release(held_upto);
}

/* ---- slow clients ---- */

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
