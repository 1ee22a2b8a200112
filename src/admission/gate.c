/*
 * gate.c
 *		The gate: where a session stops between two requests, and pauses.
 *
 * pass_gate is called after the reply has left and before the server reads the next request,
 * outside any transaction.  PostgreSQL serves interrupts there only once it reads, so the gate
 * serves them in its stead: a terminated session ends, notifications are sent, catalog messages
 * are processed.  A cancel is for a statement.  One that arrives while the client has sent
 * nothing is left to PostgreSQL, which drops it.  One that arrives while the session is paused
 * ends the pause, and the statement fails as soon as it begins.
 *
 * PostgreSQL sends through PqCommMethods, which may be replaced.  The message ReadyForQuery
 * tells whether a transaction is open; the flush that follows it is the last call before the
 * next request is read.  Another library that replaces the methods calls ours, or ours call its
 * methods; they are never put back.
 *
 * While no session waits, a session keeps its slot and returns at once, without a system call
 * or a lock.
 *
 * Under overload a session that waits for its client's bytes, and then for a slot, is woken
 * twice per request.  So a session whose client has always been quick queues in advance: as
 * soon as its turn is over, as if the next request were there.  When the slot is granted the
 * session looks.  If the client has sent nothing, the turn is missed: the slot goes to the next
 * session, and this one waits for its client in the usual way. turn_came bounds how often that
 * may happen.
 */
#include "postgres.h"

/*
 * PostgreSQL's headers of the client's connection include GSSAPI's and OpenSSL's headers if the
 * server was built with them.  The layout of Port is the same without.
 */
#ifdef ENABLE_GSS
#define KV_SERVER_HAS_GSS
#undef ENABLE_GSS
#endif
#if defined(USE_OPENSSL) && !__has_include(<openssl/ssl.h>)
#undef USE_OPENSSL
#undef USE_SSL
#endif

#include <poll.h>

#include "access/xact.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_authid.h"
#include "commands/async.h"
#include "executor/executor.h"
#include "libpq/auth.h"
#include "libpq/libpq.h"
#include "miscadmin.h"
#include "parser/analyze.h"
#include "pgstat.h"
#include "replication/walsender.h"
#include "storage/sinval.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/timeout.h"

#include "admission/internal.h"
#include "clock.h"
#include "compat.h"

#define KV_THINK_US		5000	/* a client that needs longer is thinking */
#define KV_MOST_DOUBTS	64

static uint32 wait_admission = 0;

static bool joined = false;
static int	left = 0;			/* requests left of this turn */
static bool thinks = false;		/* the slot was lent: wait for the client without one */
static bool cancelled = false;	/* while paused: the request is to fail */
static uint64 paused_for = 0;	/* the pause of the current request; microseconds */
/* requests that must be quick before the session queues in advance */
static int	doubts = 1;
static int	doubts_after = 1;	/* the value of doubts after the next missed turn */

static post_parse_analyze_hook_type previous_analyze = NULL;
static ExecutorStart_hook_type previous_executor_start = NULL;
static ProcessUtility_hook_type previous_utility = NULL;
static object_access_hook_type previous_object_access = NULL;

/* ---- the client's connection ---- */

#ifdef KV_SERVER_HAS_GSS
extern bool be_gssapi_get_enc(Port *port);
#endif

/* Can the gate tell whether the client has sent something? */
static bool
can_wait(void)
{
	if (!WaitEventSetCanReportClosed())
		return false;
#ifdef KV_SERVER_HAS_GSS
	/* GSSAPI's layer cannot tell whether a part of a packet is left */
	if (be_gssapi_get_enc(MyProcPort))
		return false;
#endif
#ifndef USE_OPENSSL
	if (MyProcPort->ssl_in_use)
		return false;
#endif
	return true;
}

/* Has the client sent something?  May wrongly say no; then the next two functions tell. */
static bool
has_data(void)
{
	if (kv_pq_buffer_has_data())
		return true;
#ifdef USE_OPENSSL
	/* OpenSSL keeps the rest of a record that is longer than the server's buffer */
	if (MyProcPort->ssl_in_use && SSL_pending(MyProcPort->ssl) > 0)
		return true;
#endif
	return false;
}

/* Is there something in the socket, or has the client disconnected?  A system call. */
static bool
is_readable(void)
{
	struct pollfd client = {.fd = MyProcPort->sock, .events = POLLIN};

	return poll(&client, 1, 0) > 0;
}

/*
 * Wait for WL_SOCKET_READABLE or WL_SOCKET_CLOSED, the latch, and the time in ms (-1: for
 * ever).  Returns the events, 0 for the time; resets the latch.  FATAL if the postmaster has
 * died.
 */
static uint32
wait_for_socket(uint32 events, long timeout, uint32 wait_event)
{
	WaitEvent	event;

	ModifyWaitEvent(FeBeWaitSet, FeBeWaitSetSocketPos, events, NULL);
	if (WaitEventSetWait(FeBeWaitSet, timeout, &event, 1, wait_event) == 0)
		return 0;
	if (event.events & WL_POSTMASTER_DEATH)
		ereport(FATAL,
				(errcode(ERRCODE_ADMIN_SHUTDOWN),
				 errmsg("terminating connection due to unexpected postmaster exit")));
	if (event.events & WL_LATCH_SET)
		ResetLatch(MyLatch);
	return event.events;
}

/* ---- a cancel that arrived during the pause ---- */

static void
raise_cancelled(void)
{
	if (cancelled)
	{
		cancelled = false;
		ereport(ERROR,
				(errcode(ERRCODE_QUERY_CANCELED),
				 errmsg("canceling statement due to user request")));
	}
}

static void
at_analyze(ParseState *pstate, Query *query, KV_JUMBLE_CONST JumbleState *jumble)
{
	if (previous_analyze)
		previous_analyze(pstate, query, jumble);
	raise_cancelled();
}

static void
at_executor_start(QueryDesc *query, int flags)
{
	raise_cancelled();
	if (previous_executor_start)
		previous_executor_start(query, flags);
	else
		standard_ExecutorStart(query, flags);
}

static void
at_utility(PlannedStmt *statement, const char *query, bool read_only,
		   ProcessUtilityContext context, ParamListInfo params,
		   QueryEnvironment *environment, DestReceiver *dest, QueryCompletion *completion)
{
	raise_cancelled();
	if (previous_utility)
		previous_utility(statement, query, read_only, context, params, environment,
						 dest, completion);
	else
		standard_ProcessUtility(statement, query, read_only, context, params, environment,
								dest, completion);
}

/* Only the function-call protocol needs this hook. */
static void
at_object_access(ObjectAccessType access, Oid classid, Oid objectid, int subid, void *arg)
{
	if (previous_object_access)
		previous_object_access(access, classid, objectid, subid, arg);
	if (access == OAT_FUNCTION_EXECUTE)
		raise_cancelled();
}

/* Install the hooks that a session needs once it may be paused. */
static void
install_hooks(void)
{
	previous_analyze = post_parse_analyze_hook;
	post_parse_analyze_hook = at_analyze;
	previous_executor_start = ExecutorStart_hook;
	ExecutorStart_hook = at_executor_start;
	previous_utility = ProcessUtility_hook;
	ProcessUtility_hook = at_utility;
	previous_object_access = object_access_hook;
	object_access_hook = at_object_access;
}

/* ---- sessions that never pause ---- */

/* Is the role a member of pg_monitor, as of the session's first request? */
static bool
is_monitor(void)
{
	static Oid	known_for = InvalidOid;
	static bool known = false;

	if (known_for != GetSessionUserId())
	{
		MemoryContext old = CurrentMemoryContext;

		known_for = GetSessionUserId();
		known = false;
		StartTransactionCommand();
		known = is_member_of_role_nosuper(known_for, ROLE_PG_MONITOR);
		CommitTransactionCommand();
		MemoryContextSwitchTo(old);
	}
	return known;
}

static bool
is_exempt(void)
{
	return (kv_admission_exempt_superusers && GetSessionUserIsSuperuser()) ||
		!can_wait() ||
		(kv_admission_exempt_monitor && is_monitor());
}

/* Outside a transaction these are locks of the session (A 1). */
static bool
holds_locks(void)
{
	for (int i = 0; i < NUM_LOCK_PARTITIONS; i++)
	{
		if (!KV_HAS_NO_LOCKS(i))
			return true;
	}
	return false;
}

/* ---- waiting ---- */

/* Serve interrupts as PostgreSQL does where it waits for the next request. */
static void
serve_interrupts(void)
{
	CHECK_FOR_INTERRUPTS();
	if (catchupInterruptPending)
		ProcessCatchupInterrupt();
	if (notifyInterruptPending)
		ProcessNotifyInterrupt(true);
	if (IdleStatsUpdateTimeoutPending)
	{
		IdleStatsUpdateTimeoutPending = false;
		pgstat_report_stat(true);
	}
}

/* Wait until the client has sent something, or has disconnected. */
static void
wait_for_request(void)
{
	/* a request that is there already took the client no thinking, however late we look */
	long		timeout = thinks ? 0 : -1;

	while (!has_data())
	{
		serve_interrupts();
		if (wait_for_socket(WL_SOCKET_READABLE, timeout,
						   WAIT_EVENT_CLIENT_READ) & WL_SOCKET_READABLE)
			break;
		timeout = -1;
	}
	if (thinks && (timeout == 0 || kv_clock() - KV_ADMIT_ME->since < KV_THINK_US))
		thinks = false;
}

/* The request is there, so the client is not idle. */
static void
begin_pause(KvAdmitMember *me)
{
	if (get_timeout_active(IDLE_SESSION_TIMEOUT))
		disable_timeout(IDLE_SESSION_TIMEOUT, false);
	IdleSessionTimeoutPending = false;
	me->pauses++;
}

/*
 * For a session that queues in advance: has its request arrived?  Checked only where that makes
 * a difference: for a cancel, which is for nothing if there is no request; for the time-out of
 * idle sessions; and when the turn has come.
 */
static bool
request_has_come(KvAdmitMember *me)
{
	if (!has_data() && !is_readable())
		return false;
	begin_pause(me);
	return true;
}

/* In the queue: handle what woke the session, and wait for what comes next. */
static void
wait_in_queue(bool sent, long rest)
{
	serve_interrupts();
	if (sent && QueryCancelPending)
	{
		QueryCancelPending = false;
		cancelled = true;
		kv_queue_release();
	}
	else if (rest <= 0)
		kv_queue_overdue();
	/* serving interrupts may have reset the latch that was set with the slot */
	else if (kv_admit_state(KV_ADMIT_ME) == KV_ADMIT_WAITING &&
			 wait_for_socket(WL_SOCKET_CLOSED, rest,
							KV_WAIT_EVENT(wait_admission, "KvfdwAdmission")) & WL_SOCKET_CLOSED)
		kv_queue_release();
}

/*
 * The session's turn has come, for which it queued in advance.  Each missed turn doubles the
 * number of quick requests after which the session does so again; each used turn takes one
 * off.  So a session that misses many turns soon stops queueing in advance.
 */
static void
turn_came(bool sent)
{
	if (!sent)
	{
		kv_queue_miss();
		doubts = doubts_after;
		doubts_after = Min(2 * doubts_after, KV_MOST_DOUBTS);
	}
	else if (doubts_after > 1)
		doubts_after--;
}

/*
 * Wait in the queue until it is this session's turn, or until no turn is needed. in_advance:
 * the session queues without a request.  Returns false if there still is none; the session then
 * has no slot.
 */
static bool
pause_until_admitted(bool in_advance)
{
	KvAdmitMember *me = KV_ADMIT_ME;
	TimestampTz begun = kv_clock();
	TimestampTz now = begun;
	bool		sent = !in_advance;

	/* a cancel that arrived before was for no statement */
	if (QueryCancelPending)
		QueryCancelPending = false;
	if (sent)
		begin_pause(me);

	while (kv_admit_state(me) == KV_ADMIT_WAITING)
	{
		int64		rest = pg_atomic_read_u32(&kv_admit->max_wait) - (now - begun) / 1000;

		if (!sent && (QueryCancelPending || rest <= 0 || IdleSessionTimeoutPending ||
					  get_timeout_active(IDLE_SESSION_TIMEOUT)))
		{
			sent = request_has_come(me);
			if (!sent)
				QueryCancelPending = false;
			if (!sent && rest <= 0)
			{
				turn_came(false);
				break;
			}
		}
		wait_in_queue(sent, rest);
		now = kv_clock();
	}
	me->waking = false;
	if (in_advance && kv_admit_state(me) == KV_ADMIT_ACTIVE)
	{
		sent = sent || request_has_come(me);
		turn_came(sent);
	}
	if (!sent)
		return false;
	paused_for = Max(now - begun, 0);
	me->paused_us += paused_for;
	me->longest_us = Max(me->longest_us, paused_for);
	return true;
}

/* ---- the gate ---- */

static void
count_request(KvAdmitMember *me, TimestampTz now)
{
	/* unless the clock was set */
	TimestampTz ran = GetCurrentTimestamp() - GetCurrentTransactionStartTimestamp();

	me->requests++;
	if (ran >= 0 && ran < now - me->since)
	{
		double		latency = (double) ran + (double) paused_for;

		me->latencies++;
		me->latency_sum += latency;
		me->latency_squares += latency * latency;
	}
	paused_for = 0;
}

static int
quota(void)
{
	return Max(1, kv_admission_weight * (int) pg_atomic_read_u32(&kv_admit->quota));
}

/* May a session that has a slot keep it? */
static bool
keeps_slot(int limit)
{
	if (thinks || kv_admit->nactive > limit)
		return false;
	if (--left > 0)
		return true;
	if (pg_atomic_read_u32(&kv_admit->nwaiting) > 0)
		return false;
	left = quota();
	return true;
}

/* Get a slot once the client has sent something, unless no session is to wait for this one. */
static void
get_slot(KvAdmitMember *me)
{
	TimestampTz arrived;

	wait_for_request();
	arrived = kv_clock();
	if (holds_locks())
		return;
	if (kv_queue_ask() == KV_ADMIT_WAITING)
	{
		(void) pause_until_admitted(false);
		/* would the request have been there, had the session queued in advance? */
		if (doubts > 0 && 2 * (arrived - me->since) < (TimestampTz) paused_for)
			doubts--;
	}
	left = quota();
}

/*
 * The turn is over: queue for the next one at once.  Returns false if this session should not,
 * or if it has no slot in the end because its client has sent nothing.
 */
static bool
queue_at_once(void)
{
	bool		in_advance = !has_data();

	if (thinks || (in_advance && doubts > 0) || holds_locks())
		return false;
	if (kv_queue_again() == KV_ADMIT_WAITING && !pause_until_admitted(in_advance))
		return false;
	left = quota();
	return true;
}

/*
 * Called when the session has told its client that it is ready, outside any transaction.
 * Returns when the next request may be read.  Raises what a session raises that waits for its
 * client: FATAL when it is told to end.
 */
static void
pass_gate(void)
{
	KvAdmitMember *me = KV_ADMIT_ME;
	TimestampTz now = kv_clock();
	KvAdmitState state;
	int			limit = pg_atomic_read_u32(&kv_admit->limit);

	if (joined)
		count_request(me, now);
	else
	{
		kv_queue_join();
		joined = true;
	}
	cancelled = false;
	me->since = now;
	me->roleid = GetSessionUserId();
	state = kv_admit_state(me);

	/* a cancel is for a statement, and there is none */
	HOLD_CANCEL_INTERRUPTS();
	me->weight = kv_admission_limit == -1 || is_exempt() ? 0 : kv_admission_weight;
	if (limit == 0 || state != KV_ADMIT_ACTIVE || me->weight == 0 || !keeps_slot(limit))
	{
		bool		takes_part = limit != 0 && me->weight > 0;

		if (state == KV_ADMIT_LENT)
			thinks = true;
		if (!(takes_part && state == KV_ADMIT_ACTIVE && queue_at_once()))
		{
			if (kv_admit_state(me) != KV_ADMIT_OUT)
				kv_queue_release();
			if (takes_part)
				get_slot(me);
		}
	}
	RESUME_CANCEL_INTERRUPTS();
	if (limit == 0 && kv_admission_limit != -1)
		kv_admit_need_worker();
}

/* ---- the way to the gate ---- */

static const PQcommMethods *previous = NULL;
static PQcommMethods methods;

static ClientAuthentication_hook_type previous_authentication = NULL;

/* The transaction status that is about to be sent; 0: none is. */
static char ready = 0;

static int
put_message(char type, const char *body, size_t length)
{
	if (type == 'Z' && length == 1)
		ready = body[0];
	return previous->putmessage(type, body, length);
}

static int
flush(void)
{
	int			result = previous->flush();
	char		status = ready;

	/* what the gate sends is no answer to a request */
	ready = 0;
	if (status == 'I' && result == 0)
		pass_gate();
	return result;
}

void
kv_enter_install(void)
{
	if (previous != NULL || kv_admit == NULL || am_walsender)
		return;
	previous = PqCommMethods;
	methods = *previous;
	methods.putmessage = put_message;
	methods.flush = flush;
	PqCommMethods = &methods;
	install_hooks();
}

static void
at_authentication(Port *port, int status)
{
	if (previous_authentication)
		previous_authentication(port, status);
	if (kv_admission_limit != -1)
		kv_enter_install();
}

void
kv_enter_hook(void)
{
	previous_authentication = ClientAuthentication_hook;
	ClientAuthentication_hook = at_authentication;
}
