/*
 * worker.c
 *		The process "kvfdw admission": publishes the settings, lends slots of holders that do
 *		no work, measures, and has the limit and the quota chosen.
 *
 * While a session waits the worker looks at the holders every 25 ms, else once a second.
 * Sessions read limit and quota from shared memory, so that a reload applies to paused sessions
 * too.  When the worker ends, every session passes (A 5).
 *
 * A holder that waits for its client in two looks loses its slot: the client thinks, or waits
 * for another connection of its own, which may be paused.
 *
 * Other waits may also be for a paused session: for a lock, a timer, a pinned buffer, a safe
 * snapshot, a synchronous standby or an extension (dblink, say).  Such a holder loses its slot
 * when no slot has changed hands between two looks, because then all holders may wait for
 * paused sessions; or after a second.  Sooner would defeat the limit: where sessions queue for
 * a hot row, most holders wait for a lock.
 *
 * A session that was given a slot shows the wait of its pause until it runs, which takes long
 * where processors are short.  Such a session does not count as stalled.
 */
#include "postgres.h"

#include <unistd.h>

#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/wait_event.h"

#include "clock.h"
#include "report.h"
#include "admission/admission.h"
#include "admission/internal.h"
#include "compat.h"

#define KV_RESTART_S	1
#define KV_NO_ROOM_MS	60000 /* the pause where the postmaster had no free slot for the process */

#define KV_LOOK_MS		25
#define KV_IDLE_LOOK_MS	1000
#define KV_BLOCKED_US	1000000	/* a holder that waits for so long lends */
#define KV_CLASS(event)	((event) & 0xFF000000U)

static uint32 wait_main = 0;

/* What a look found of a member. */
typedef struct KvAdmitSeen
{
	int			pid;
	uint64		requests;
	TimestampTz blocked;		/* the first look that found it waiting; 0: it did not wait */
} KvAdmitSeen;

static KvAdmitSeen *seen;
static uint64 seen_grants;

/* Does a process with this wait event do no work?  *client: it waits for its client. */
static bool
is_blocked(uint32 event, bool *client)
{
	*client = KV_CLASS(event) == PG_WAIT_CLIENT;
	return *client || KV_CLASS(event) == PG_WAIT_LOCK ||
		KV_CLASS(event) == PG_WAIT_TIMEOUT ||
		kv_waits_for_pin(event) ||
		event == WAIT_EVENT_SYNC_REP || event == WAIT_EVENT_SAFE_SNAPSHOT ||
		KV_CLASS(event) == PG_WAIT_EXTENSION;
}

static void
look_at(int number, bool stalled, TimestampTz now)
{
	KvAdmitMember *member = &kv_admit->members[number];
	KvAdmitSeen *before = &seen[number];
	uint64		requests = member->requests;
	bool		client;

	if (kv_admit_state(member) != KV_ADMIT_ACTIVE ||
		!is_blocked(GetPGProcByNumber(number)->wait_event_info, &client))
		before->blocked = 0;
	else if (before->blocked == 0 || before->pid != member->pid || before->requests != requests)
	{
		before->pid = member->pid;
		before->requests = requests;
		before->blocked = now;
	}
	else if (client || (stalled && !member->waking) || now - before->blocked > KV_BLOCKED_US)
	{
		(void) kv_queue_lend(number, requests);
		before->blocked = 0;
	}
}

/* One look at all holders. */
static void
look(TimestampTz now)
{
	bool		stalled = pg_atomic_read_u32(&kv_admit->nwaiting) > 0 &&
		kv_admit->grants == seen_grants;

	seen_grants = kv_admit->grants;
	for (int i = 0; i < kv_admit->nmembers; i++)
		look_at(i, stalled, now);
}

static void
publish(void)
{
	kv_tune_settings();
	if (kv_admission_quota != 0)
		pg_atomic_write_u32(&kv_admit->quota, kv_admission_quota);
	kv_queue_set_max_wait(kv_admission_max_wait_ms);
	kv_queue_set_limit(kv_admission_limit == 0 ? kv_tune_limit() : Max(0, kv_admission_limit));
}

/* Is this the only worker?  Then it registers itself as the one. */
static bool
take_office(void)
{
	bool		mine;

	LWLockAcquire(&kv_admit->lock, LW_EXCLUSIVE);
	mine = kv_admit->worker_pid == 0;
	if (mine)
	{
		kv_admit->worker_pid = MyProcPid;
		kv_admit->worker_latch = MyLatch;
	}
	LWLockRelease(&kv_admit->lock);
	return mine;
}

static void
leave_office(int code, Datum arg)
{
	kv_queue_set_limit(0);
	kv_admit->tuning = false;
	LWLockAcquire(&kv_admit->lock, LW_EXCLUSIVE);
	kv_admit->worker_pid = 0;
	kv_admit->worker_latch = NULL;
	/* the postmaster restarts the worker in a second, unless admission was switched off */
	kv_admit->start_after = code == 0 ? 0 : kv_clock() + 3000000;
	LWLockRelease(&kv_admit->lock);
}

void
kv_admission_main(Datum arg)
{
	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	BackgroundWorkerUnblockSignals();
	if (!take_office())
		proc_exit(0);
	before_shmem_exit(leave_office, (Datum) 0);
	seen = MemoryContextAllocZero(TopMemoryContext, kv_admit->nmembers * sizeof(KvAdmitSeen));
	publish();

	while (!ShutdownRequestPending)
	{
		TimestampTz now;

		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
			publish();
		}
		if (kv_admission_limit == -1)
			proc_exit(0);
		now = kv_clock();
		look(now);
		kv_measure_tick(now);
		kv_tune_tick(now);
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 kv_admit->tuning || pg_atomic_read_u32(&kv_admit->nwaiting) > 0 ?
						 KV_LOOK_MS : KV_IDLE_LOOK_MS,
						 KV_WAIT_EVENT(wait_main, "KvfdwAdmissionMain"));
		ResetLatch(MyLatch);
	}
	proc_exit(1);		/* so that the postmaster restarts the worker, unless the server stops */
}

/* ---- starting the worker ---- */

void
kv_admit_describe_worker(BackgroundWorker *worker)
{
	memset(worker, 0, sizeof(*worker));
	worker->bgw_flags = BGWORKER_SHMEM_ACCESS;
	worker->bgw_start_time = BgWorkerStart_PostmasterStart;
	worker->bgw_restart_time = KV_RESTART_S;
	snprintf(worker->bgw_name, BGW_MAXLEN, "kvfdw admission");
	snprintf(worker->bgw_type, BGW_MAXLEN, "kvfdw admission");
	snprintf(worker->bgw_library_name, BGW_MAXLEN, "kvfdw");
	snprintf(worker->bgw_function_name, BGW_MAXLEN, "kv_admission_main");
}

void
kv_admit_need_worker(void)
{
	BackgroundWorker worker;
	TimestampTz now = kv_clock();
	bool		start;

	if (kv_admit->worker_pid != 0 || now < kv_admit->start_after)
		return;
	LWLockAcquire(&kv_admit->lock, LW_EXCLUSIVE);
	start = kv_admit->worker_pid == 0 && now >= kv_admit->start_after;
	if (start)
		kv_admit->start_after = now + KV_NO_ROOM_MS * INT64CONST(1000);
	LWLockRelease(&kv_admit->lock);
	if (!start)
		return;
	kv_admit_describe_worker(&worker);
	if (!RegisterDynamicBackgroundWorker(&worker, NULL))
		kv_report_not_started("kvfdw admission", "Admission control is not in effect.");
}
