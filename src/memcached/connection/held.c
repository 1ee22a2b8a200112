/*
 * held.c
 *		Replies that wait until the WAL is on the device (flush.c).
 *
 * In mode "on" a batch's transaction commits in memory.  Replies to writes are held until the
 * process "kvfdw memcached flusher" has flushed the WAL up to the commit, and synchronous
 * standbys have it (M 1).  In that time the loop serves the requests of other clients: reads
 * are not held up, and writes that arrive while a flush runs share the next one.
 *
 * A process asks for a flush when it has nothing else to do.  But clients whose replies have
 * just been sent are about to write again.  If the next flush began without them, there would
 * be two groups of clients that alternate, each with half of the writes.  So the process
 * lingers until as many replies are held as were sent, for half of the duration of a flush at
 * most.  Where there is always something else to do, because other clients read, the process
 * asks when the first of those replies has been held for MOST_HELD_US.
 *
 * A batch flushes the WAL itself if each client has requests in it or is held: the flush makes
 * no other client wait, and no other process has to be woken.  To reach that state a batch that
 * only writes lingers, too, before it is executed.  Without the flusher each batch flushes for
 * itself.  With synchronous standbys it does not, because they may be away: clients that
 * connect in that time would be held up.
 */
#include "memcached/connection/connection.h"

#include "clock.h"

#include <poll.h>

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
