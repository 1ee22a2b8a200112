/*
 * worker.c
 *		Background workers: their common code, places for workers on demand, and waiting (wait.h).
 *
 * A place is free, kept for a worker that was registered, or taken by one that runs.  Each time
 * that a place is kept it gets another ticket, which the worker brings along in bgw_extra.  A
 * place that a worker has given up is free when its process has ended, because until then the
 * process has its slot of max_worker_processes.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "pgstat.h"
#include "port/atomics.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "postmaster/startup.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/shmem.h"
#include "storage/spin.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "compat.h"
#include "engine/base/shared.h"
#include "engine/base/wait.h"
#include "engine/base/worker.h"
#include "report.h"

#define KV_RESTART_S	1
#define KV_IDLE_MS		30000	/* an idle worker on demand ends after so long */
#define KV_TURN_MS		2000	/* a busy one, if others wait */
#define KV_PAUSE_MS		100		/* one that has no work at the moment, if others wait */
#define KV_FRESH_MS		3000	/* a request that was refused counts for so long */
#define KV_KEPT_MS		10000	/* first time for which a place is kept; it doubles each time */
#define KV_KEPT_MOST_MS 320000	/* the longest such time */
#define KV_ONCE_KEPT_MS 1000	/* the same for a worker that runs once */
#define KV_COMING_MS	500		/* others wait at most so long for a worker that was started */
#define KV_FULL_MS		1000	/* time to the next attempt if there was no slot */
#define KV_NAP_MS		20
#define KV_MOST_PLACES	64

/* Settings for users' transactions, not for a worker's.  Not all servers have all of them. */
static const char *const timeouts[] = {
	"statement_timeout", "transaction_timeout", "lock_timeout",
		"idle_in_transaction_session_timeout"
};

void
kv_worker_describe(BackgroundWorker *worker, const char *name, const char *function)
{
	memset(worker, 0, sizeof(*worker));
	worker->bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker->bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker->bgw_restart_time = KV_RESTART_S;
	snprintf(worker->bgw_name, BGW_MAXLEN, "%s", name);
	snprintf(worker->bgw_type, BGW_MAXLEN, "%s", name);
	snprintf(worker->bgw_library_name, BGW_MAXLEN, "kvfdw");
	snprintf(worker->bgw_function_name, BGW_MAXLEN, "%s", function);
}

void
kv_worker_no_timeouts(void)
{
	for (int i = 0; i < lengthof(timeouts); i++)
	{
		if (GetConfigOption(timeouts[i], true, false) != NULL)
			SetConfigOption(timeouts[i], "0", PGC_SUSET, PGC_S_OVERRIDE);
	}
}

void
kv_worker_begin(const char *name)
{
	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	BackgroundWorkerUnblockSignals();
	if (name == NULL)
		return;
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	pgstat_report_appname(name);
	kv_worker_no_timeouts();
}

/* since the last call of kv_worker_goes_on */
static bool has_reloaded = false;

void
kv_worker_reload(void)
{
	if (!ConfigReloadPending || MyBgworkerEntry == NULL)
		return;
	ConfigReloadPending = false;
	ProcessConfigFile(PGC_SIGHUP);
	has_reloaded = true;
}

bool
kv_worker_goes_on(bool *reloaded)
{
	ResetLatch(MyLatch);
	kv_worker_reload();
	if (reloaded != NULL)
		*reloaded = has_reloaded;
	has_reloaded = false;
	return !ShutdownRequestPending;
}

/* ---- places ---- */

typedef struct KvPlace
{
	uint32		ticket;			/* 0: free */
	KvWorkerKind kind;
	bool		taken;			/* the worker has begun */
	TimestampTz since;			/* when it has begun, or was registered */
	Latch	   *latch;			/* of a worker that has begun */
	int			pid;			/* if ticket is 0: of a process that is ending; 0: none */
} KvPlace;

/* The state of a kind. */
typedef struct KvDemand
{
	pg_atomic_uint32 running;
	int			kept;			/* places for workers that have not begun */
	int			kept_ms;		/* how long the next one is kept */
	TimestampTz not_before;		/* none is started before */
	TimestampTz refused;		/* when it was last refused a place */
	TimestampTz waits;			/* since when it waits for one */
	TimestampTz left;			/* when a worker of another kind left for this one */
} KvDemand;

struct KvWorkers
{
	slock_t		mutex;
	int			nplaces;
	uint32		last_ticket;
	KvDemand	demands[KV_WORKER_KINDS];
	KvPlace		places[KV_MOST_PLACES];
};

/* In bgw_extra; all zero: a static worker. */
typedef struct KvTicket
{
	uint32		ticket;
	int			index;
	KvWorkerKind kind;
} KvTicket;

StaticAssertDecl(sizeof(KvTicket) <= BGW_EXTRALEN, "a ticket fits");

typedef struct KvKind
{
	BackgroundWorker worker;
	int			most;
} KvKind;

KvWorkers  *kv_workers = NULL;

static KvKind kinds[KV_WORKER_KINDS];
static int	idle_ms = KV_IDLE_MS;

/* State of this process. */
static KvTicket mine;
static TimestampTz began = 0;
static TimestampTz last_busy = 0;
static bool turn_is_over = false;

/*
 * At most so many workers without a fixed slot run, given so many static ones.  kvfdw takes
 * five eighths of max_worker_processes, but at least one place, if a slot is left.
 */
static int
most_places(int nstatic)
{
	int			places = Max(max_worker_processes * 5 / 8 - nstatic, 1);

	return Max(Min(Min(places, max_worker_processes - nstatic), KV_MOST_PLACES), 0);
}

Size
kv_workers_memory(void)
{
	return sizeof(KvWorkers);
}

void
kv_workers_attach(void)
{
	bool		found;

	kv_workers = ShmemInitStruct("kvfdw workers", sizeof(KvWorkers), &found);
	if (found)
		return;
	memset(kv_workers, 0, sizeof(KvWorkers));
	SpinLockInit(&kv_workers->mutex);
	kv_workers->nplaces = most_places(kv_registered_workers());
	for (int i = 0; i < KV_WORKER_KINDS; i++)
		pg_atomic_init_u32(&kv_workers->demands[i].running, 0);
}

void
kv_workers_gucs(void)
{
#ifdef KVFDW_FAULTS
	DefineCustomIntVariable("kvfdw.test_worker_idle",
							"Sets how long a worker on demand is idle before it ends.",
							"For tests only.",
							&idle_ms, KV_IDLE_MS, 0, INT_MAX, PGC_SIGHUP, GUC_UNIT_MS,
							NULL, NULL, NULL);
#endif
}

void
kv_worker_define(KvWorkerKind kind, const char *name, const char *function,
				 BgWorkerStartTime when, int most)
{
	BackgroundWorker *worker = &kinds[kind].worker;

	kv_worker_describe(worker, name, function);
	worker->bgw_start_time = when;
	worker->bgw_restart_time = BGW_NEVER_RESTART;
	if (when == BgWorkerStart_PostmasterStart)
		worker->bgw_flags = BGWORKER_SHMEM_ACCESS;
	kinds[kind].most = most;
}

/* Is then less than so long ago?  0 means never. */
static bool
is_within(TimestampTz then, TimestampTz now, int ms)
{
	return then != 0 && now - then < ms * INT64CONST(1000);
}

/*
 * Was the kind refused a place, and has it none?  The mutex is held, here and in the following
 * functions.
 */
static bool
is_waiting(KvWorkerKind kind, TimestampTz now)
{
	const KvDemand *demand = &kv_workers->demands[kind];

	return is_within(demand->refused, now, KV_FRESH_MS) && demand->kept == 0 &&
		pg_atomic_read_u32(unconstify(pg_atomic_uint32 *, &demand->running)) == 0;
}

/* May this process have the place? */
static bool
is_free(const KvPlace *place)
{
	return place->ticket == 0 && (place->pid == 0 || place->pid == MyProcPid);
}

/* Free the places of processes that have ended; the mutex is not held. */
static void
note_gone(void)
{
	for (int i = 0; i < kv_workers->nplaces; i++)
	{
		KvPlace    *place = &kv_workers->places[i];
		int			pid = place->pid;

		if (pid == 0 || kill(pid, 0) == 0 || errno != ESRCH)
			continue;
		SpinLockAcquire(&kv_workers->mutex);
		if (place->pid == pid)
			place->pid = 0;
		SpinLockRelease(&kv_workers->mutex);
	}
}

/*
 * Free places that were kept for too long.  The startup process does not: after the crash of a
 * process no worker is started before redo has ended, but the registered ones are started then.
 */
static void
expire(TimestampTz now)
{
	if (AmStartupProcess())
		return;
	for (int i = 0; i < kv_workers->nplaces; i++)
	{
		KvPlace    *place = &kv_workers->places[i];
		KvDemand   *demand = &kv_workers->demands[place->kind];

		/* a worker that runs once also runs without a place, if it is late */
		if (place->ticket == 0 || place->taken ||
			is_within(place->since, now, place->kind == KV_WORKER_ONCE ? KV_ONCE_KEPT_MS :
					  Max(demand->kept_ms, KV_KEPT_MS)))
			continue;
		place->ticket = 0;
		demand->kept--;
		demand->kept_ms = Min(Max(demand->kept_ms, KV_KEPT_MS) * 2, KV_KEPT_MOST_MS);
	}
}

/* A place that this kind may have, or -1: kinds that have waited for longer have precedence. */
static int
find_place(KvWorkerKind kind, TimestampTz now)
{
	bool		waits = is_waiting(kind, now);
	int			nfree = 0;
	int			first = -1;

	for (int i = kv_workers->nplaces - 1; i >= 0; i--)
	{
		if (!is_free(&kv_workers->places[i]))
			continue;
		first = i;
		nfree++;
	}
	for (int other = 0; other < KV_WORKER_KINDS; other++)
	{
		if (other != kind && is_waiting(other, now) &&
			(!waits || kv_workers->demands[other].waits < kv_workers->demands[kind].waits))
			nfree--;
	}
	return nfree > 0 ? first : -1;
}

/*
 * There is no place for the kind now.  True: it had not waited before, so idle workers are to
 * be woken.
 */
static bool
note_refused(KvWorkerKind kind, TimestampTz now)
{
	KvDemand   *demand = &kv_workers->demands[kind];
	bool		first = !is_within(demand->refused, now, KV_FRESH_MS);

	if (first)
		demand->waits = now;
	demand->refused = now;
	return first;
}

static void
keep_address(int i, KvWorkerKind kind, TimestampTz now, KvTicket *ticket)
{
	KvPlace    *place = &kv_workers->places[i];

	if (++kv_workers->last_ticket == 0)
		kv_workers->last_ticket = 1;
	*place = (KvPlace) {.ticket = kv_workers->last_ticket, .kind = kind, .since = now};
	*ticket = (KvTicket) {place->ticket, i, kind};
	kv_workers->demands[kind].kept++;
	kv_workers->demands[kind].refused = 0;
}

/* No worker will take a place that was kept, so free it, unless another has it already. */
static void
drop_place(const KvTicket *ticket, TimestampTz now)
{
	KvPlace    *place = &kv_workers->places[ticket->index];

	SpinLockAcquire(&kv_workers->mutex);
	if (place->ticket == ticket->ticket)
	{
		place->ticket = 0;
		kv_workers->demands[ticket->kind].kept--;
		kv_workers->demands[ticket->kind].not_before = now + KV_FULL_MS * INT64CONST(1000);
	}
	SpinLockRelease(&kv_workers->mutex);
}

/* Wake all workers, so that they check whether they are to leave. */
static void
wake_all(void)
{
	for (int i = 0; i < kv_workers->nplaces; i++)
	{
		Latch	   *latch = kv_workers->places[i].latch;

		/* the latch of a worker that has just ended: wakes another process needlessly */
		kv_wake(latch);
	}
}

/* ---- starting ---- */

bool
kv_worker_need(KvWorkerKind kind)
{
	KvDemand   *demand;
	int			most = kinds[kind].most;
	bool		refused = false;
	bool		comes;
	TimestampTz now;
	KvTicket	ticket = {0};

	if (kv_workers == NULL || !IsUnderPostmaster || most == 0)
		return false;
	demand = &kv_workers->demands[kind];

	/* the work comes first, then this check */
	pg_memory_barrier();
	if (pg_atomic_read_u32(&demand->running) >= most)
		return true;

	/* before that the postmaster would not start it */
	if (AmStartupProcess() && kinds[kind].worker.bgw_start_time != BgWorkerStart_PostmasterStart)
		return false;
	now = kv_clock();
	note_gone();
	SpinLockAcquire(&kv_workers->mutex);
	expire(now);
	if (pg_atomic_read_u32(&demand->running) + demand->kept < most && now >= demand->not_before)
	{
		int			place = find_place(kind, now);

		if (place >= 0)
			keep_address(place, kind, now, &ticket);
		else
			refused = note_refused(kind, now);
	}
	comes = pg_atomic_read_u32(&demand->running) > 0 || demand->kept > 0;
	SpinLockRelease(&kv_workers->mutex);
	if (refused)
		wake_all();
	if (ticket.ticket != 0)
	{
		BackgroundWorker worker = kinds[kind].worker;

		memcpy(worker.bgw_extra, &ticket, sizeof(ticket));
		if (!RegisterDynamicBackgroundWorker(&worker, NULL))
		{
			drop_place(&ticket, now);
			return pg_atomic_read_u32(&demand->running) > 0;
		}
	}
	return comes;
}

bool
kv_worker_is_coming(KvWorkerKind kind)
{
	TimestampTz now;
	bool		comes = false;

	if (kv_workers == NULL)
		return false;
	if (pg_atomic_read_u32(&kv_workers->demands[kind].running) > 0)
		return true;
	if (kv_workers->demands[kind].kept == 0)
		return false;
	now = kv_clock();
	SpinLockAcquire(&kv_workers->mutex);
	for (int i = 0; i < kv_workers->nplaces && !comes; i++)
	{
		const KvPlace *place = &kv_workers->places[i];

		comes = place->ticket != 0 && place->kind == kind &&
			(place->taken || is_within(place->since, now, KV_COMING_MS));
	}
	SpinLockRelease(&kv_workers->mutex);
	return comes;
}

bool
kv_worker_start(const char *name, const char *function, Datum arg,
				BackgroundWorkerHandle **handle)
{
	BackgroundWorker worker;
	KvTicket	ticket = {0};
	TimestampTz now = kv_clock();
	int			place;

	note_gone();
	SpinLockAcquire(&kv_workers->mutex);
	expire(now);
	place = find_place(KV_WORKER_ONCE, now);
	if (place >= 0)
		keep_address(place, KV_WORKER_ONCE, now, &ticket);
	SpinLockRelease(&kv_workers->mutex);
	if (place < 0)
		return false;
	kv_worker_describe(&worker, name, function);
	worker.bgw_start_time = BgWorkerStart_ConsistentState;
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	worker.bgw_main_arg = arg;
	worker.bgw_notify_pid = MyProcPid;
	memcpy(worker.bgw_extra, &ticket, sizeof(ticket));
	if (RegisterDynamicBackgroundWorker(&worker, handle))
		return true;
	drop_place(&ticket, now);
	return false;
}

void
kv_worker_await_place(int ms)
{
	TimestampTz begin = kv_clock();

	for (;;)
	{
		TimestampTz now = kv_clock();
		bool		refused = false;
		bool		none;

		note_gone();
		SpinLockAcquire(&kv_workers->mutex);
		expire(now);
		none = kv_workers->nplaces > 0 && find_place(KV_WORKER_ONCE, now) < 0;
		if (none)
			refused = note_refused(KV_WORKER_ONCE, now);
		SpinLockRelease(&kv_workers->mutex);
		if (refused)
			wake_all();
		if (!none || ShutdownRequestPending || !is_within(begin, now, ms))
			return;
		kv_nap(KV_NAP_MS, KV_WAIT_IDLE);
		CHECK_FOR_INTERRUPTS();
	}
}

/* ---- in the worker ---- */

/* This process's place is free when the process has ended. */
static void
free_place(void)
{
	KvPlace    *place = &kv_workers->places[mine.index];

	SpinLockAcquire(&kv_workers->mutex);
	place->ticket = 0;
	place->latch = NULL;
	place->pid = MyProcPid;
	pg_atomic_fetch_sub_u32(&kv_workers->demands[mine.kind].running, 1);
	SpinLockRelease(&kv_workers->mutex);
	mine.ticket = 0;
}

static void
take_place(int i, uint32 ticket, TimestampTz now)
{
	KvPlace    *place = &kv_workers->places[i];

	*place = (KvPlace) {ticket, mine.kind, true, now, MyLatch};
	pg_atomic_fetch_add_u32(&kv_workers->demands[mine.kind].running, 1);
	mine.index = i;
	mine.ticket = ticket;
	began = last_busy = now;
	turn_is_over = false;
}

/* A worker that ends by an error is not restarted at once. */
static void
worker_exit(int code, Datum arg)
{
	if (mine.ticket == 0)
		return;
	if (code != 0 && mine.kind != KV_WORKER_ONCE)
		kv_workers->demands[mine.kind].not_before = kv_clock() + KV_RESTART_S * USECS_PER_SEC;
	free_place();
}

void
kv_worker_attend(void)
{
	KvTicket	ticket;
	TimestampTz now = kv_clock();
	bool		late;

	memcpy(&ticket, MyBgworkerEntry->bgw_extra, sizeof(ticket));
	if (ticket.ticket == 0)
		return;
	mine.kind = ticket.kind;
	SpinLockAcquire(&kv_workers->mutex);
	late = kv_workers->places[ticket.index].ticket != ticket.ticket;
	if (!late)
	{
		kv_workers->demands[ticket.kind].kept--;
		kv_workers->demands[ticket.kind].kept_ms = 0;
		take_place(ticket.index, ticket.ticket, now);
	}
	SpinLockRelease(&kv_workers->mutex);
	if (late && ticket.kind != KV_WORKER_ONCE)
		proc_exit(0);
	before_shmem_exit(worker_exit, (Datum) 0);
}

/* The kind for which this worker is to end, or -1. */
static int
who_waits(TimestampTz now)
{
	for (int other = 0; other < KV_WORKER_KINDS; other++)
	{
		/* one worker that has just left is enough */
		if (other != mine.kind && is_waiting(other, now) &&
			!is_within(kv_workers->demands[other].left, now, KV_FRESH_MS))
			return other;
	}
	return -1;
}

bool
kv_worker_is_done(bool busy)
{
	TimestampTz now = kv_clock();
	int			other;

	turn_is_over = false;
	if (mine.ticket == 0)
		return false;
	if (busy)
		last_busy = now;
	if (!is_within(last_busy, now, idle_ms))
		return true;
	if (is_within(last_busy, now, KV_PAUSE_MS) && is_within(began, now, KV_TURN_MS))
		return false;
	SpinLockAcquire(&kv_workers->mutex);
	other = who_waits(now);
	if (other >= 0)
		kv_workers->demands[other].left = now;
	SpinLockRelease(&kv_workers->mutex);
	turn_is_over = other >= 0;
	return turn_is_over;
}

bool
kv_worker_leave(void (*attend) (bool here), bool (*has_work) (void))
{
	TimestampTz now = kv_clock();
	int			before = mine.index;
	int			place = -1;

	attend(false);
	free_place();

	/* from here on a process that needs a worker starts another; earlier work is visible here */
	pg_memory_barrier();
	if (turn_is_over || !has_work())
		return true;
	SpinLockAcquire(&kv_workers->mutex);
	if (pg_atomic_read_u32(&kv_workers->demands[mine.kind].running) +
		kv_workers->demands[mine.kind].kept < kinds[mine.kind].most)
		place = find_place(mine.kind, now);
	if (place >= 0)
	{
		if (++kv_workers->last_ticket == 0)
			kv_workers->last_ticket = 1;
		take_place(place, kv_workers->last_ticket, now);

		/* it may be another place: this process has only one */
		if (kv_workers->places[before].pid == MyProcPid)
			kv_workers->places[before].pid = 0;
	}
	SpinLockRelease(&kv_workers->mutex);
	if (place >= 0)
		attend(true);
	return place < 0;
}

/* ---- waiting ---- */

uint32		kv_wait_write_buffer = 0;
uint32		kv_wait_recovery = 0;
uint32		kv_wait_flush = 0;
uint32		kv_wait_compact = 0;
uint32		kv_wait_space = 0;
uint32		kv_wait_pace = 0;
uint32		kv_wait_memory = 0;
uint32		kv_wait_idle = 0;
uint32		kv_wait_checkpointer = 0;
uint32		kv_wait_range = 0;
uint32		kv_wait_split = 0;

void
kv_interrupts(void)
{
	CHECK_FOR_INTERRUPTS();
	if (AmStartupProcess() && !proc_exit_inprogress)
		kv_startup_interrupts();
}

void
kv_maintenance_interrupts(void)
{
	kv_interrupts();
	if (ShutdownRequestPending)
		ereport(ERROR,
				(errcode(ERRCODE_ADMIN_SHUTDOWN),
				 errmsg("canceling kvfdw maintenance due to administrator command")));
}

void
kv_nap(long ms, uint32 wait_event)
{
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, ms, wait_event);
	ResetLatch(MyLatch);
}

void
kv_wake(Latch *latch)
{
	if (latch != NULL)
		SetLatch(latch);
}

void
kv_wake_maintainer(void)
{
	kv_wake(kv_base->maintainer_latch);
}
