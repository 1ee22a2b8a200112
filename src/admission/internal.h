/*
 * internal.h
 *		What the files of this module share: shared memory, settings, functions.
 *
 * States of a member, which is one client session:
 *
 *	OUT			has no slot and does not wait for one
 *	WAITING		is in the queue; paused
 *	ACTIVE		has a slot; counted in nactive
 *	LENT		had a slot that was given away while it waited for its client or for
 *				a lock; goes on without one until its transaction has ended
 *
 * Changes of state, and the process that makes them:
 *
 *	OUT → WAITING, ACTIVE	the session asks
 *	WAITING → ACTIVE		its turn (the process that frees a slot), or overdue (the session)
 *	WAITING → OUT			cancelled, client gone (the session); switched off (the worker)
 *	ACTIVE, WAITING → OUT	queued in advance, and there is no request (the session)
 *	ACTIVE → OUT			quota used up and others wait (the session)
 *	ACTIVE → WAITING		quota used up, others wait, and the client is usually quick: the
 *							session queues in advance
 *	ACTIVE → LENT			does no work (the worker, or a session that asks)
 *	LENT → OUT				ready for the next request (the session)
 *
 * State, queue and counts change under KvAdmit.lock, exclusive. A session reads its own state
 * without the lock.
 */
#ifndef KV_ADMISSION_INTERNAL_H
#define KV_ADMISSION_INTERNAL_H

#include "postgres.h"

#include "port/atomics.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "utils/timestamp.h"

#include "compat.h"

#define KV_ADMIT_NONE		(-1)
#define KV_ADMIT_ROLES		128		/* roles that are counted separately */
#define KV_ADMIT_POINTS		16
#define KV_ADMIT_MAX_QUOTA	64

typedef enum KvAdmitState
{
	KV_ADMIT_OUT, KV_ADMIT_WAITING, KV_ADMIT_ACTIVE, KV_ADMIT_LENT
} KvAdmitState;

/*
 * A session, indexed by the number of its PGPROC. The session writes the fields, but for the
 * state and the queue's links.
 */
typedef struct KvAdmitMember
{
	pg_atomic_uint32 state;
	bool		waking;			/* was given a slot while paused, and has not run since */
	int			prev;			/* in the queue */
	int			next;
	int			pid;			/* 0: no session */
	Oid			roleid;
	int			weight;
	TimestampTz since;			/* when it was last ready for a request, or began to wait */
	uint64		requests;
	uint64		pauses;
	uint64		paused_us;
	uint64		longest_us;		/* its longest pause */
	uint64		latencies;		/* requests whose latency was taken */
	double		latency_sum;	/* microseconds, pause included */
	double		latency_squares;
} KvAdmitMember;

/* Counters of the ended sessions of a role. */
typedef struct KvAdmitRole
{
	Oid			roleid;			/* invalid: of all roles that found no free entry */
	uint64		requests;
	uint64		pauses;
	uint64		paused_us;
} KvAdmitRole;

/* Measurements at a limit; limit 0: without one. */
typedef struct KvAdmitPoint
{
	int			limit;
	double		throughput;
	double		unfairness;
	double		variability;
} KvAdmitPoint;

typedef struct KvAdmit
{
	LWLock		lock;
	int			tranche;
	pg_atomic_uint64 stats_since;	/* TimestampTz of the start, or of the last reset */

	/* written by the worker, read by all without the lock */
	pg_atomic_uint32 limit;		/* P; 0: every session passes */
	pg_atomic_uint32 quota;		/* requests per turn and unit of weight */
	pg_atomic_uint32 max_wait;	/* ms */

	/* under the lock; nwaiting is also read without it */
	pg_atomic_uint32 nwaiting;
	int			nactive;
	int			nlent;
	int			head;
	int			tail;
	uint64		grants;			/* slots given to waiting sessions */
	uint64		overdue;
	/* turns of sessions that had queued in advance, and had no request */
	uint64		missed;
	uint64		longest_us;		/* the longest pause of sessions that have ended */
	int			nroles;
	KvAdmitRole roles[KV_ADMIT_ROLES];

	/* the worker */
	int			worker_pid;
	Latch	   *worker_latch;
	TimestampTz start_after;	/* when a session may start one */
	pg_atomic_uint32 tune_wanted;

	/* its measurements; under the lock */
	double		throughput;
	double		unfairness;
	double		variability;
	double		jain;
	TimestampTz tuned_at;
	bool		tuning;
	int			chosen;			/* the limit chosen by measurement; 0: none */
	double		chosen_throughput;
	int			chosen_busy;	/* sessions that were busy then */
	int			npoints;
	KvAdmitPoint points[KV_ADMIT_POINTS];

	int			nmembers;
	KvAdmitMember members[FLEXIBLE_ARRAY_MEMBER];
} KvAdmit;

extern KvAdmit *kv_admit;

/* settings; start.c defines them for PostgreSQL */
extern int	kv_admission_limit;
extern int	kv_admission_quota;
extern int	kv_admission_weight;
extern int	kv_admission_max_wait_ms;
extern int	kv_admission_sample_ms;
extern bool kv_admission_exempt_superusers;
extern bool kv_admission_exempt_monitor;
extern double kv_admission_unfairness;
extern double kv_admission_variability;

/* ---- gate.c ---- */

/* Send every new session through the gate if admission is on when the session begins. */
extern void kv_enter_hook(void);

/* Send this session through the gate from here on; does nothing in a WAL sender. */
extern void kv_enter_install(void);

/* ---- queue.c; all functions but kv_admit_state take the lock ---- */
#define KV_ADMIT_ME (&kv_admit->members[KV_MY_PROC_NUMBER])

static inline KvAdmitState
kv_admit_state(KvAdmitMember *member)
{
	return (KvAdmitState) pg_atomic_read_u32(&member->state);
}

/* This session becomes a member until it ends. */
extern void kv_queue_join(void);

/* Change any state to OUT; the slot goes to a waiting session. */
extern void kv_queue_release(void);

/* From OUT to ACTIVE if a slot is free, else to WAITING; OUT if every session passes. */
extern KvAdmitState kv_queue_ask(void);

/*
 * End a turn: as kv_queue_release and kv_queue_ask at once, so that a slot changes hands under
 * one lock.
 */
extern KvAdmitState kv_queue_again(void);

/*
 * As kv_queue_release, for a session that queued in advance and has no request when its turn
 * comes.
 */
extern void kv_queue_miss(void);

/* From WAITING to ACTIVE, over the limit; does nothing in another state. */
extern void kv_queue_overdue(void);

/*
 * From ACTIVE to LENT, unless the member has finished a request since; requests: its count
 * then.
 */
extern bool kv_queue_lend(int number, uint64 requests);

/* Change the limit; 0: all waiting sessions pass. */
extern void kv_queue_set_limit(int limit);

/* Change the longest pause; it applies to waiting sessions too. */
extern void kv_queue_set_max_wait(int ms);

/* ---- model.c ---- */

/*
 * The limit between least and most where the model through three points of increasing limits
 * has its peak; 0 if no model passes through them.
 */
extern int	kv_model_peak(const KvAdmitPoint *points, int least, int most);

/*
 * The logarithm of the throughput that another limit must have, in parts of that of the place,
 * to be better: 1.01 times as much.  If only the place breaks the bounds of unfairness and
 * variability by more than the other does: 0.95 times as much, and if it is the other way round,
 * 1.05 times.  Between a limit and none it is 1.5 instead of 1.05.  given: the logarithm of what
 * was given up so far; the sum is bounded.
 */
extern double kv_model_border(const KvAdmitPoint *place, const KvAdmitPoint *other, double given);

/* ---- climb.c ---- */

/*
 * Begin with three points; false if there is nothing between them, with so few busy sessions.
 * least: the smallest limit.
 */
extern bool kv_climb_propose(int least, int busy);

/* Begin with a limit, 0: none, and its neighbours. */
extern void kv_climb_compare(int least, int busy, int limit);

/* The limit of the next sample; 0: none. */
extern int	kv_climb_limit(void);

/* Take the sample of that limit; false if the climb is over. */
extern bool kv_climb_take(const KvAdmitPoint *sample);

/* The best limit so far; 0: none. */
extern int	kv_climb_place(void);

/* The limits that were measured, with means; *throughput: of the best one. Returns their number. */
extern int	kv_climb_points(KvAdmitPoint *points, int most, double *throughput);

/* ---- measure.c; called by the worker only ---- */

/* Requests that all sessions have made since the start, or the reset. */
extern uint64 kv_measure_requests(void);

/* Sessions that work or are paused at this moment. */
extern int	kv_measure_busy(void);

/*
 * Begin and end a sample for the tuner, which is independent of the windows.  The end returns
 * its variability, and its unfairness: 0 where sessions have had too few requests to tell.
 */
extern void kv_measure_begin_sample(void);
extern void kv_measure_end_sample(double *unfairness, double *variability);

/* Called about once a second: takes the metrics, and chooses the quota if it is to be chosen. */
extern void kv_measure_tick(TimestampTz now);

/* ---- tune.c; called by the worker only ---- */

/* Called once a second or more often: proceeds with choosing the limit, if it is to be chosen. */
extern void kv_tune_tick(TimestampTz now);

/* The limit that is chosen, or being tried; 0: none. */
extern int	kv_tune_limit(void);

/* Called when the settings have changed. */
extern void kv_tune_settings(void);

/* ---- worker.c ---- */

/* Have the postmaster start the worker if there is none; any session may call it. */
extern void kv_admit_need_worker(void);

struct BackgroundWorker;

/* Fill in *worker for the process; the caller registers it. */
extern void kv_admit_describe_worker(struct BackgroundWorker *worker);

#endif							/* KV_ADMISSION_INTERNAL_H */
