/*
 * park.c
 *		Connections whose next request cannot be executed now.
 *
 * Their requests are tried again (M 2).  Each millisecond the loop checks whether the
 * transaction that they wait for has ended, which costs next to nothing.  Any other attempt is
 * a batch, so the intervals between these double, up to a limit.
 */
#include "memcached/connection/connection.h"

#include "clock.h"

#include "storage/procarray.h"

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
