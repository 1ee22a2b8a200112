/*
 * worker.c
 *		The process "kvfdw memcached": its loop, and its start.
 *
 * The loop reads what clients have sent, makes a batch of it, answers, and sleeps if there is
 * nothing to do.  Connections are in an epoll set of this process's own.  PostgreSQL's wait
 * event set has that set as one of its events, and is used only after a moment without work.
 *
 * A batch takes a limited number of requests of each connection.  While it has writes that will
 * be flushed, requests that arrive join it: they share the flush.
 */
#include "memcached/memcached.h"

#include "clock.h"
#include "compat.h"
#include "memcached/batch/batch.h"
#include "memcached/connection/connection.h"
#include "memcached/connection/wait.h"
#include "report.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <sys/epoll.h>
#include <unistd.h>

#include "access/xact.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "portability/instr_time.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/pmsignal.h"
#include "storage/shmem.h"
#include "storage/sinval.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/wait_event.h"

#define MAX_EVENTS		256
#define MAX_TASKS		4096	/* of a batch */
/* a batch that has nothing to flush gains nothing from more, and would leave the CPU's cache */
#define MANY_READS		256
/* memory of a batch that the process keeps for the next one */
#define KEPT_MEMORY		(64 * 1024 * 1024)
#define MAX_BATCH_BYTES	((size_t) 8 * 1024 * 1024)	/* of the values that the requests bring */
#define JOIN_US			1000	/* requests may join a batch for so long */
#define DRAIN_US		10000	/* a reply in mode "drain" may run ahead of the WAL for so long */
#define SWEEP_US		USECS_PER_SEC
#define LISTEN_PAUSE_MS	100
/* for so long after a batch the loop watches clients only, which mostly come sooner */
#define DOZE_MS			10
/* for so long the loop does not sleep, because sleeping and waking take longer */
#define AWAKE_US		120
#define VAIN_JOBS		32		/* how many times that is not done after it was in vain */
/* so long after the start the helping processes should run */
#define HELPERS_US		(10 * USECS_PER_SEC)
#define GET_LINE		((size_t) 1024 * 1024)
#define GET_SHARE		32		/* so many keys of a get count as one request of the quota */
#define COMMAND_LINE	2048

static uint32 wait_main = 0;
static int	epoll = -1;
static WaitEventSet *waiting = NULL;
static KvMcBatch batch;
static TimestampTz swept = 0;
static TimestampTz reported = 0;
static TimestampTz unflushed_since = 0;
static bool helpers_looked = false; /* whether they run was checked */
/* there have been clients since the memory of batches was freed */
static bool	keeps_memory = false;
static bool verifying = false;	/* a password may be verified now */

/* ---- start and end ---- */

static void
leave(int code, Datum arg)
{
	kv_mc_empty_over();
	kv_mc_clients_leave();
	kv_mc_me->latch = NULL;
	kv_mc_me->pid = 0;
	pg_atomic_write_u32(&kv_mc_me->connections, 0);
	pg_atomic_write_u64(&kv_mc_me->memory, 0);
}

static void
begin(int number)
{
	kv_mc_my_number = number;
	kv_mc_me = &kv_mc_shared->workers[number];
	kv_mc_process_begin();

	if (!kv_mc_hash_begin())
		ereport(FATAL,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not generate random numbers")));
	before_shmem_exit(leave, (Datum) 0);
	kv_mc_me->pid = MyProcPid;
	kv_mc_me->started = kv_clock();
	kv_mc_me->latch = MyLatch;
	epoll = epoll_create1(EPOLL_CLOEXEC);
	if (epoll < 0)
		ereport(FATAL,
				(errcode_for_socket_access(),
				 errmsg("could not create an epoll set: %m")));
	kv_mc_tables_init();
	kv_mc_connections_init(epoll, kv_mc_connection_room());
	kv_mc_listen_all(epoll);
	kv_mc_udp_listen(epoll);
	waiting = kv_create_wait_event_set(3);
	AddWaitEventToSet(waiting, WL_LATCH_SET, PGINVALID_SOCKET, MyLatch, NULL);
	AddWaitEventToSet(waiting, WL_EXIT_ON_PM_DEATH, PGINVALID_SOCKET, NULL, NULL);
	AddWaitEventToSet(waiting, WL_SOCKET_READABLE, epoll, NULL, NULL);
#ifdef __GLIBC__
	(void) mallopt(M_MMAP_THRESHOLD, KEPT_MEMORY / 2);
	(void) mallopt(M_TRIM_THRESHOLD, KEPT_MEMORY);
#endif
	batch.context = AllocSetContextCreate(TopMemoryContext, "kvfdw memcached requests",
										  KV_MC_BATCH_SIZES);
	batch.tasks = MemoryContextAlloc(TopMemoryContext, MAX_TASKS * sizeof(KvMcTask *));
	pgstat_report_appname("kvfdw memcached");
	pgstat_report_activity(STATE_IDLE, NULL);
}

/* Told to end: send the replies, as far as clients read them. */
static void
end(void)
{
	kv_mc_listen_close();
	kv_mc_flush_wal();
	kv_mc_held_end();
	kv_mc_close_all();
	proc_exit(1);
}

static void
serve_interrupts(void)
{
	if (MyLatch->is_set)
		ResetLatch(MyLatch);
	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		ProcessConfigFile(PGC_SIGHUP);
	}
	if (ProcDiePending)
		end();
	/* of a transaction that has ended: on a standby replay may have tried to cancel it */
	QueryCancelPending = false;
	CHECK_FOR_INTERRUPTS();
	if (catchupInterruptPending)
		ProcessCatchupInterrupt();
}

/* ---- requests ---- */

static bool
is_alone(const KvMcRequest *request)
{
	return request->command == KV_MC_AUTH || request->command == KV_MC_FLUSH;
}

/* Execute a request that is a transaction of its own.  False: it is postponed. */
static bool
do_alone(KvMcConnection *conn, const KvMcTask *task)
{
	KvMcReply	reply;

	if (task->request.command == KV_MC_AUTH)
		kv_mc_do_auth(conn, &task->request, &reply);
	else if (!kv_mc_do_flush(conn, &task->request, &reply))
	{
		conn->stream = task->before;
		kv_mc_publish();
		return false;
	}
	kv_mc_answer(conn, &task->request, &reply);
	kv_mc_send(conn);
	conn->parked_since = 0;
	kv_mc_consume(conn, conn->parsed);
	kv_mc_publish();
	return true;
}

/* May requests of the connection be executed now? */
static bool
is_ready(const KvMcConnection *conn)
{
	return !conn->gathered && !conn->dead && !conn->closing && conn->hold_until == 0 &&
		!kv_mc_is_parked(conn) && !kv_mc_must_wait(conn) &&
		(kv_mc_pending(&conn->out) == 0 || conn->datagram != NULL);
}

/* Parse requests of a connection's input, as many as its quota allows. */
static void
gather(KvMcConnection *conn)
{
	KvMcLimits	limits = {
		.item_size = (size_t) kv_mc_item_size_kb * 1024,
		.memory = (size_t) kv_mc_memory_kb * 1024,
		.line = COMMAND_LINE, .get_line = GET_LINE,
		.flush_all = kv_mc_flush_all, .auth = kv_mc_auth == KV_MC_AUTH_PASSWORD,
		.version = kv_mc_version
	};
	const char *end = conn->in.data + conn->in.end;
	int			requests = 0;
	bool		writes = false;
	int			n;

	conn->cut = conn->suspect = INT_MAX;
	conn->parsed = 0;
	conn->passed_over = false;
	for (n = 0; requests < kv_mc_quota && batch.ntasks < MAX_TASKS && batch.bytes < MAX_BATCH_BYTES;
		 n++)
	{
		KvMcTask   *task = MemoryContextAlloc(batch.context, sizeof(KvMcTask));
		size_t		used;

		/* all but the request, which kv_mc_parse fills in */
		memset(task, 0, offsetof(KvMcTask, request));
		memset(&task->reply, 0, sizeof(KvMcReply));
		task->conn = conn;
		task->before = conn->stream;
		task->at = conn->parsed;
		if (conn->in.data == NULL ||
			!kv_mc_parse(&conn->stream, &limits, conn->in.data + conn->in.begin + conn->parsed, end,
						 &task->request, &used, &conn->needed))
		{
			conn->parsed += conn->in.data == NULL ? 0 : used;
			kv_mc_set_working(conn, false);
			break;
		}
		conn->parsed += used;
		if (n == 0)
			kv_mc_empty_leave(conn, &task->request);
		if (!is_alone(&task->request))
		{
			batch.tasks[batch.ntasks++] = task;
			/* the keys of a get are looked up together */
			requests += !conn->stream.in_get || n % GET_SHARE == GET_SHARE - 1;
			batch.bytes += task->request.value_length;
			if (kv_mc_has_item(&task->request) && kv_mc_writes(&task->request))
				batch.writes = writes = true;
			else
				batch.reads = true;
			continue;
		}
		conn->has_password = task->request.command == KV_MC_AUTH && n == 0 && !verifying;
		if (n == 0 && !conn->has_password)
			(void) do_alone(conn, task);
		else
		{
			conn->stream = task->before;
			conn->parsed = task->at;
		}
		break;
	}
	conn->gathered = n > 0;
	conn->writes = writes;
	batch.nclients += n > 0;
	batch.nwriters += writes;
	if (n == 0 && !conn->working)
		kv_mc_consume(conn, conn->parsed);
}

static void
gather_all(void)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, &kv_mc_working)
	{
		KvMcConnection *conn = dlist_container(KvMcConnection, work_node, iter.cur);

		if (batch.ntasks == MAX_TASKS || batch.bytes >= MAX_BATCH_BYTES ||
			(batch.ntasks >= MANY_READS && !batch.writes))
			break;
		if (!is_ready(conn) || conn->has_password)
			continue;
		gather(conn);
		if (!conn->gathered)
			(void) kv_mc_connection_watch(conn);
		else if (conn->working)
			kv_mc_last_in_line(conn);
	}
}

/*
 * Verify one password, if there are any.  It takes milliseconds by intent: so there is one in a
 * round of the loop, after the requests of clients that need none.
 */
static void
verify_one(void)
{
	dlist_iter	iter;

	dlist_foreach(iter, &kv_mc_working)
	{
		KvMcConnection *conn = dlist_container(KvMcConnection, work_node, iter.cur);

		if (!conn->has_password || !is_ready(conn))
			continue;
		conn->has_password = false;
		verifying = true;
		gather(conn);
		verifying = false;
		if (conn->working)
			kv_mc_last_in_line(conn);
		if (!conn->gathered)
			(void) kv_mc_connection_watch(conn);
		break;
	}
}

/* ---- events ---- */

static void
take_event(const struct epoll_event *event)
{
	KvMcConnection *conn = event->data.ptr;

	if (event->data.ptr == &kv_mc_udp_tag)
	{
		kv_mc_udp_read();
		return;
	}
	if (conn == NULL)
		kv_mc_accept_all();
	else if (conn->fd < 0)
		return;
	else if (event->events & EPOLLIN)
	{
		if (conn->gathered)
			return;
		if (conn->working)
			kv_mc_mute(conn);
		else
			kv_mc_read(conn);
	}
	else if (event->events & EPOLLOUT)
		kv_mc_send_rest(conn);
	else if (!conn->gathered && (!conn->working || !is_ready(conn)))
		conn->dead = true;		/* the client has disconnected; if the connection is ready its
								 * turn will notice */
	if (conn != NULL && !conn->gathered)
		(void) kv_mc_connection_watch(conn);
}

/*
 * Look for events for a moment without sleeping: a client that has its reply asks again sooner
 * than this process falls asleep and is woken.  If that was in vain, the next attempts are
 * skipped.
 */
static int
catch_events(struct epoll_event *events)
{
	static int	job = 0;		/* attempts left to skip */
	instr_time	began;
	instr_time	now;
	int			n;

	if (job > 0)
	{
		job--;
		return 0;
	}
	INSTR_TIME_SET_CURRENT(began);
	do
	{
		n = epoll_wait(epoll, events, MAX_EVENTS, 0);
		INSTR_TIME_SET_CURRENT(now);
		INSTR_TIME_SUBTRACT(now, began);
	} while (n == 0 && INSTR_TIME_GET_MICROSEC(now) < AWAKE_US);
	if (n == 0)
		job = VAIN_JOBS;
	return n;
}

/*
 * Take the events that are there, or the first ones within so many milliseconds; returns how
 * many.
 */
static int
take_events(int timeout)
{
	struct epoll_event events[MAX_EVENTS];
	int			n = timeout > 0 ? catch_events(events) : 0;

	if (n == 0)
	{
		if (timeout > 0)
			pgstat_report_wait_start(KV_WAIT_EVENT(wait_main, "KvfdwMemcached"));
		n = epoll_wait(epoll, events, MAX_EVENTS, timeout);
		if (timeout > 0)
			pgstat_report_wait_end();
	}
	if (n > 0)
		kv_mc_heed_reset();
	for (int i = 0; i < n; i++)
		take_event(&events[i]);
	return Max(n, 0);
}

static bool
any_ready(void)
{
	dlist_iter	iter;

	dlist_foreach(iter, &kv_mc_working)
	{
		if (is_ready(dlist_container(KvMcConnection, work_node, iter.cur)))
			return true;
	}
	return false;
}

/* Are clients all that there is to wait for: no flush, no lock, no time, no memory? */
static bool
only_clients_wait(void)
{
	kv_mc_feed_starved();
	return !kv_mc_any_waits && !kv_mc_any_held() && !kv_mc_listen_paused() &&
		kv_mc_unflushed == InvalidXLogRecPtr && unflushed_since == 0 && !any_ready();
}

/* ---- the loop ---- */

/*
 * Gather requests that arrive while there is a batch that will be flushed.  Wait a little for
 * clients that are about to write again, unless a client waits for a reply that does not need
 * the flush.
 */
static void
let_join(TimestampTz began)
{
	TimestampTz now = kv_clock();
	TimestampTz last = now;		/* when the last event came */

	while (batch.writes && kv_mc_commit != KV_MC_COMMIT_OFF && batch.ntasks < MAX_TASKS &&
		   now - began < JOIN_US && now >= began)
	{
		int			before = batch.ntasks;

		if (take_events(0) > 0)
		{
			gather_all();
			/* events that bring no request may go on for long: they are not worth waiting for */
			if (batch.ntasks == before)
				break;
			last = now;
		}
		else if (batch.reads || !kv_mc_wait_for_writers(epoll, batch.nwriters, began, now - last))
			break;
		now = kv_clock();
	}
}

/* Execute the gathered requests, and those that join them. */
static void
run_batch(TimestampTz began)
{
	let_join(began);
	kv_mc_batch_run(&batch);
	for (int i = 0; i < batch.ntasks; i++)
	{
		KvMcConnection *conn = batch.tasks[i]->conn;

		if (conn->gathered)
		{
			conn->gathered = false;
			(void) kv_mc_connection_watch(conn);
		}
	}
	batch.ntasks = 0;
	batch.nclients = batch.nwriters = 0;
	batch.bytes = 0;
	batch.writes = batch.reads = false;
	if (kv_mc_unflushed != InvalidXLogRecPtr && unflushed_since == 0)
		unflushed_since = kv_clock();

	kv_mc_drop_stalled();
	kv_mc_publish();
}

static void
flush_wal(TimestampTz now, bool idle)
{
	if (unflushed_since == 0 || (!idle && now - unflushed_since < DRAIN_US))
		return;
	kv_mc_flush_wal();
	unflushed_since = 0;
	kv_mc_publish();
}


/* Called once, some time after the start, by the first process: do the helping processes run? */
static void
look_at_helpers(TimestampTz now)
{
	if (helpers_looked || (kv_mc_my_number == 0 && now - kv_mc_me->started < HELPERS_US &&
						   now >= kv_mc_me->started))
		return;
	helpers_looked = true;
	if (kv_mc_my_number != 0)
		return;
	if (!kv_mc_flusher_runs())
		kv_report_not_running(WARNING, KV_MC_FLUSHER, KV_MC_NO_FLUSHER);
	if (kv_mc_shared->reaper_latch == NULL)
		kv_report_not_running(WARNING, KV_MC_REAPER, KV_MC_NO_REAPER);
}

/* When all clients have disconnected, free the memory that was kept for batches. */
static void
give_memory_back(void)
{
	if (kv_mc_nconnections > 0 || !keeps_memory)
	{
		keeps_memory = kv_mc_nconnections > 0;
		return;
	}
	keeps_memory = false;
#ifdef __GLIBC__
	(void) malloc_trim(0);
#endif
}

/* An idle client keeps its connection when its role changes, so check the role here, too. */
static void
look_at_role(void)
{
	kv_mc_begin();
	kv_mc_check_role();
	CommitTransactionCommand();
}

/* Work that is done about once a second. */
static void
do_chores(TimestampTz now)
{
	if (now - swept >= SWEEP_US)
	{
		look_at_role();
		kv_mc_sweep(now);
		give_memory_back();
		/* a process that is never idle for long does not wait for that event */
		if (!PostmasterIsAlive())
			proc_exit(1);
		swept = now;
	}
	if (now - reported >= SWEEP_US)
	{
		pgstat_report_stat(false);
		reported = now;
	}
	look_at_helpers(now);
}

/* Nothing is to be done: wait until there is. */
static void
sleep_until_needed(void)
{
	WaitEvent	event;
	TimestampTz now = kv_clock();
	long		timeout = kv_mc_sleep_ms(now);

	if (kv_mc_linger(epoll, now))
		return;
	if (timeout < 0)
		timeout = kv_mc_listen_paused() ? LISTEN_PAUSE_MS : kv_mc_nconnections > 0 ||
			keeps_memory || !helpers_looked ? 1000 : -1;
	if (kv_mc_listen_paused())
		timeout = Min(timeout, LISTEN_PAUSE_MS);
	(void) WaitEventSetWait(waiting, timeout, &event, 1,
							KV_WAIT_EVENT(wait_main, "KvfdwMemcached"));
}

void
kv_memcached_main(Datum arg)
{
	begin(DatumGetInt32(arg));
	for (;;)
	{
		TimestampTz now;
		bool		idle;
		bool		dozes;
		static bool answered = false;

		serve_interrupts();
		kv_mc_forget_closed();
		/*
		 * after a batch the process sleeps in its own epoll set, which costs less than in
		 * another
		 */
		dozes = answered && only_clients_wait();
		/* the only client has just been answered: it needs a moment */
		idle = ((answered && !dozes && kv_mc_nconnections == 1) ||
				take_events(dozes ? DOZE_MS : 0) == 0) && !any_ready();
		answered = false;
		now = kv_clock();
		kv_mc_wake(now);
		kv_mc_feed_starved();
		kv_mc_listen_resume(now);
		gather_all();
		answered = batch.ntasks > 0;
		if (answered)
			run_batch(now);
		verify_one();
		if (batch.ntasks > 0)	/* input that came after a setting was changed */
			run_batch(now);
		MemoryContextReset(batch.context);
		flush_wal(now, idle);
		kv_mc_held_look(kv_clock(), idle);
		do_chores(now);
		if (idle && !any_ready())
			sleep_until_needed();
	}
}

/* ---- start ---- */

#define KV_RESTART_S	5

static shmem_request_hook_type previous_shmem_request = NULL;
static shmem_startup_hook_type previous_shmem_startup = NULL;

void
kv_memcached_gucs(void)
{
	kv_mc_settings();
}

void
kv_memcached_stat_reset(TimestampTz now)
{
	kv_mc_reset_counts(now);
}

/* ---- shared memory ---- */

static Size
shared_size(void)
{
	return add_size(add_size(MAXALIGN(sizeof(KvMcShared)), MAXALIGN(kv_mc_clients_size())),
					kv_mc_expired_size());
}

static void
request_memory(void)
{
	if (previous_shmem_request)
		previous_shmem_request();
	RequestAddinShmemSpace(shared_size());
}

static void
start_memory(void)
{
	bool		found;

	if (previous_shmem_startup)
		previous_shmem_startup();

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	kv_mc_shared = ShmemInitStruct("kvfdw memcached", shared_size(), &found);
	if (!found)
	{
		memset(kv_mc_shared, 0, shared_size());
		kv_mc_shared->tranche = kv_new_tranche("KvfdwMemcached");
		LWLockInitialize(&kv_mc_shared->lock, kv_mc_shared->tranche);
		pg_atomic_init_u32(&kv_mc_shared->resets, 0);
		pg_atomic_init_u64(&kv_mc_shared->stats_since, GetCurrentTimestamp());
		pg_atomic_init_u32(&kv_mc_shared->emptier, 0);
		pg_atomic_init_u64(&kv_mc_shared->flushed, 0);
		pg_atomic_init_u32(&kv_mc_shared->memtable_wanted, 0);
		for (int i = 0; i < KV_MC_MAX_EMPTIED; i++)
			pg_atomic_init_u32(&kv_mc_shared->emptied[i], InvalidOid);
		for (int i = 0; i <= KV_MC_MAX_WORKERS; i++)
		{
			KvMcWorkerState *worker = &kv_mc_shared->workers[i];

			pg_atomic_init_u64(&worker->wanted, 0);
			pg_atomic_init_u32(&worker->connections, 0);
			pg_atomic_init_u64(&worker->memory, 0);
			for (int j = 0; j < KV_MC_COUNTERS; j++)
				pg_atomic_init_u64(&worker->counts[j], 0);
		}
	}
	kv_mc_clients_init();
	kv_mc_expired_init((char *) kv_mc_shared + shared_size() - kv_mc_expired_size(), found);
	kv_register_tranche(kv_mc_shared->tranche, "KvfdwMemcached");
	LWLockRelease(AddinShmemInitLock);
}

/* ---- the processes ---- */

/* number: of one of several, or -1; without: the message if the worker is missing. */
static void
register_worker(const char *type, const char *function, int number, const char *without)
{
	BackgroundWorker worker;

	memset(&worker, 0, sizeof(worker));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_ConsistentState;
	worker.bgw_restart_time = KV_RESTART_S;
	if (number < 0)
		snprintf(worker.bgw_name, BGW_MAXLEN, "%s", type);
	else
		snprintf(worker.bgw_name, BGW_MAXLEN, "%s %d", type, number);
	snprintf(worker.bgw_type, BGW_MAXLEN, "%s", type);
	snprintf(worker.bgw_library_name, BGW_MAXLEN, "kvfdw");
	snprintf(worker.bgw_function_name, BGW_MAXLEN, "%s", function);
	worker.bgw_main_arg = Int32GetDatum(number);
	kv_register_worker(&worker, without);
}

void
kv_memcached_preload(void)
{
	previous_shmem_request = shmem_request_hook;
	shmem_request_hook = request_memory;
	previous_shmem_startup = shmem_startup_hook;
	shmem_startup_hook = start_memory;
	if (kv_mc_workers == 0)
		return;
	if (kv_mc_database[0] == '\0' || kv_mc_role[0] == '\0')
	{
		ereport(WARNING,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("cannot serve memcached clients without a database and a role"),
				 errhint("Set \"kvfdw.memcached_database\" and \"kvfdw.memcached_role\".")));
		return;
	}
	for (int i = 0; i < kv_mc_workers; i++)
		register_worker("kvfdw memcached", "kv_memcached_main", i,
						i == 0 ? "memcached clients are not served."
						: "Fewer processes serve memcached clients.");
	register_worker(KV_MC_FLUSHER, "kv_memcached_flusher_main", -1, KV_MC_NO_FLUSHER);
	register_worker(KV_MC_REAPER, "kv_memcached_reaper_main", -1, KV_MC_NO_REAPER);
}
