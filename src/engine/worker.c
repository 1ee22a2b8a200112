/*
 * worker.c
 *		Background workers: the maintainer and the recovery helpers.
 *
 * The maintainer freezes shards whose delta is due, settles what a restart
 * left, and removes the files of dropped tables.  Work on one store that fails
 * is logged and the others go on; the failed one is tried again later.
 *
 * A worker that exits is started again by the postmaster.  Nothing waits for
 * the maintainer without a way to do its work itself or to give up.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/autovacuum.h"
#include "postmaster/bgworker.h"
#include "postmaster/bgwriter.h"
#include "postmaster/interrupt.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "engine/internal.h"

#define KV_NAP_MS	1000
#define KV_RESTART_S 1
#define KV_OLD_XIDS	((uint64) autovacuum_freeze_max_age / 10)

static void
describe_worker(BackgroundWorker *worker, const char *name, const char *function)
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
kv_workers_register(void)
{
	BackgroundWorker worker;

	/* redo writes too */
	describe_worker(&worker, "kvfdw merge writer", "kv_merge_writer_main");
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS;
	worker.bgw_start_time = BgWorkerStart_PostmasterStart;
	RegisterBackgroundWorker(&worker);
	describe_worker(&worker, "kvfdw maintainer", "kv_maintainer_main");
	worker.bgw_start_time = BgWorkerStart_ConsistentState;
	RegisterBackgroundWorker(&worker);
	describe_worker(&worker, "kvfdw barrier", "kv_barrier_main");
	RegisterBackgroundWorker(&worker);
	describe_worker(&worker, "kvfdw prefetch", "kv_prefetch_main");
	worker.bgw_start_time = BgWorkerStart_ConsistentState;
	for (int i = 0; kv_range_windows() > 0 && i < kv_prefetch_workers; i++)
	{
		worker.bgw_main_arg = Int32GetDatum(i);
		RegisterBackgroundWorker(&worker);
	}
}

/* Start a worker that runs once; false if none can be had. */
static bool
start_worker(const char *name, const char *function, Datum arg,
			 BackgroundWorkerHandle **handle)
{
	BackgroundWorker worker;

	describe_worker(&worker, name, function);
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	worker.bgw_main_arg = arg;
	worker.bgw_notify_pid = MyProcPid;
	return RegisterDynamicBackgroundWorker(&worker, handle);
}

/* A helper for a store that is being opened. */
bool
kv_recovery_worker_start(KvStore *store, BackgroundWorkerHandle **handle)
{
	return start_worker("kvfdw recovery", "kv_recovery_worker_main",
						PointerGetDatum(store), handle);
}

/* A look at one database's directory. */
bool
kv_sweep_worker_start(Oid dboid, BackgroundWorkerHandle **handle)
{
	return start_worker("kvfdw sweep", "kv_sweep_worker_main", ObjectIdGetDatum(dboid),
						handle);
}

static void
helper_exit(int code, Datum arg)
{
	pg_atomic_fetch_sub_u32(&((KvStore *) DatumGetPointer(arg))->helpers, 1);
}

void
kv_recovery_worker_main(Datum arg)
{
	KvStore    *store = (KvStore *) DatumGetPointer(arg);

	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);

	before_shmem_exit(helper_exit, arg);
	if (pg_atomic_read_u32(&store->state) == KV_STORE_OPENING)
		kv_store_recover_shards(store);
	proc_exit(0);
}

/* ---- the maintainer ---- */

/* What a pass over the stores does to each shard. */
static void
maintain_shard(KvStore *store, uint32 shardno, TimestampTz now)
{
	KvShard    *shard = kv_shard(store, shardno);
	bool		old = TimestampDifferenceExceeds(shard->frozen_at, now, kv_freeze_delay * 1000);

	if (shard->maintainer != 0)
		return;					/* somebody is at it */

	/* xids are settled long before clog forgets them (F 6) */
	if (old && shard->oldest_xid != 0 &&
		U64FromFullTransactionId(ReadNextFullTransactionId()) - shard->oldest_xid > KV_OLD_XIDS)
		kv_shard_freeze(store, shardno, KV_FREEZE_ALL);
	else if (shard->active.bytes >= kv_delta_limit() ||
		DsaPointerIsValid(shard->sealed.root) ||
		(old && shard->active.nversions > 0))
		kv_shard_freeze(store, shardno, KV_FREEZE_MERGE);
	else if (old && shard->nunfrozen > 0 &&
			 shard->unfrozen_entries * 4 >= shard->frozen_keys &&
			 shard->active.nversions == 0 && shard->settled_horizon < kv_xid_horizon())
	{
		shard->settled_horizon = kv_xid_horizon();
		kv_shard_freeze(store, shardno, KV_FREEZE_ALL);
	}
}

/*
 * Run one piece of work on a store; an ERROR is logged and ends that piece
 * only.  True if it went through.
 */
static bool
attempt(void (*work) (KvStore *store, void *arg), KvStore *store, void *arg)
{
	MemoryContext context = CurrentMemoryContext;
	volatile bool done = false;

	StartTransactionCommand();
	PG_TRY();
	{
		work(store, arg);
		CommitTransactionCommand();
		done = true;
	}
	PG_CATCH();
	{
		HOLD_INTERRUPTS();
		MemoryContextSwitchTo(context);
		/* under a store that is dropped meanwhile anything may fail */
		if (!ShutdownRequestPending &&
			(store == NULL || pg_atomic_read_u32(&store->state) != KV_STORE_DROPPED))
			EmitErrorReport();
		FlushErrorState();
		AbortCurrentTransaction();
		RESUME_INTERRUPTS();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	return done;
}

static void
spill_shard(KvStore *store, void *arg)
{
	kv_shard_freeze(store, *(uint32 *) arg, KV_FREEZE_MERGE);
}

/* The largest active delta that nobody freezes and that has not failed yet. */
static KvStore *
largest_delta(List *stores, List *failed, uint32 *shardno)
{
	KvStore    *largest = NULL;
	Size		bytes = 0;
	ListCell   *cell;

	foreach(cell, stores)
	{
		KvStore    *store = lfirst(cell);

		for (int i = 0; i < store->nshards; i++)
		{
			KvShard    *shard = kv_shard(store, i);

			if (shard->active.bytes > bytes && shard->maintainer == 0 &&
				!list_member_ptr(failed, shard))
			{
				bytes = shard->active.bytes;
				largest = store;
				*shardno = i;
			}
		}
	}
	return largest;
}

/* Freeze the largest deltas until they take no more than half of what they do. */
static void
make_room(List *stores)
{
	uint64		enough = pg_atomic_read_u64(&kv_shared->delta_bytes) / 2;
	List	   *failed = NIL;

	while (pg_atomic_read_u64(&kv_shared->delta_bytes) > enough && !ShutdownRequestPending)
	{
		uint32		shardno;
		KvStore    *store = largest_delta(stores, failed, &shardno);

		if (store == NULL)
			break;
		if (!attempt(spill_shard, store, &shardno))
			failed = lappend(failed, kv_shard(store, shardno));
	}
	list_free(failed);
}

static void
open_store(KvStore *store, void *arg)
{
	kv_store_ensure_open(store);
}

static void
maintain_store(KvStore *store, void *arg)
{
	TimestampTz now = GetCurrentTimestamp();

	kv_store_settle_creator(store);
	for (int i = 0; i < store->nshards; i++)
	{
		CHECK_FOR_INTERRUPTS();
		if (ShutdownRequestPending)
			break;
		maintain_shard(store, i, now);
	}
}

static void
settle_store(KvStore *store, void *arg)
{
	kv_store_freeze(store);
}

static void
checkpoint(KvStore *store, void *arg)
{
	RequestCheckpoint(CHECKPOINT_IMMEDIATE | CHECKPOINT_FORCE | CHECKPOINT_WAIT);
}

static void
sweep_all(KvStore *store, void *arg)
{
	kv_sweep_databases();
}

static void
load_table(KvStore *store, void *arg)
{
	const Oid  *ids = arg;

	kv_table_settle(ids[0], ids[1]);
}

/* Enter every kvfdw/<database>/<relation>; true if all of them could be. */
static bool
load_all_tables(void)
{
	bool		complete = true;
	ListCell   *database;
	ListCell   *table;

	foreach(database, kv_numbered_entries("kvfdw"))
	{
		char		path[MAXPGPATH];

		snprintf(path, sizeof(path), "kvfdw/%u", lfirst_oid(database));
		foreach(table, kv_numbered_entries(path))
		{
			Oid			ids[2] = {lfirst_oid(database), lfirst_oid(table)};

			if (!attempt(load_table, NULL, ids))
				complete = false;
		}
	}
	return complete;
}

/* Stores that this process keeps from being removed. */
static List *pinned = NIL;

static List *
pin_stores(KvStoreState state)
{
	pinned = kv_stores_pin_state(InvalidOid, state);
	return pinned;
}

static void
unpin_stores(void)
{
	List	   *stores = pinned;

	pinned = NIL;
	kv_stores_unpin(stores);
}

/*
 * After a start: recover every store, and when dead incarnations have piled
 * up, rewrite what refers to them and forget them.
 */
static void
settle_everything(void)
{
	bool		complete;
	List	   *stores;
	ListCell   *cell;

	(void) attempt(sweep_all, NULL, NULL);
	complete = load_all_tables();
	LWLockAcquire(&kv_shared->control_lock, LW_SHARED);
	kv_slots_discard_unknown();
	LWLockRelease(&kv_shared->control_lock);

	stores = pin_stores(KV_STORE_CLOSED);
	foreach(cell, stores)
	{
		if (ShutdownRequestPending)
			break;
		if (((KvStore *) lfirst(cell))->unusable)
			continue;
		if (!attempt(open_store, lfirst(cell), NULL))
			complete = false;
	}
	unpin_stores();

	if (kv_shared->nincarnations < KV_MAX_INCARNATIONS / 2)
		return;
	stores = pin_stores(KV_STORE_OPEN);
	foreach(cell, stores)
	{
		if (!attempt(settle_store, lfirst(cell), NULL))
			complete = false;
	}
	unpin_stores();

	/* images name them until the next barrier */
	if (complete && attempt(checkpoint, NULL, NULL))
		kv_incarnations_settled();
}

static void
maintainer_exit(int code, Datum arg)
{
	kv_shared->maintainer_latch = NULL;
	unpin_stores();
}

void
kv_maintainer_main(Datum arg)
{
	MemoryContext context;
	bool		settled = false;

	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	pgstat_report_appname("kvfdw maintainer");

	before_shmem_exit(maintainer_exit, (Datum) 0);
	kv_shared->maintainer_latch = MyLatch;
	context = AllocSetContextCreate(TopMemoryContext, "kvfdw maintainer",
									ALLOCSET_DEFAULT_SIZES);
	MemoryContextSwitchTo(context);
	kv_drop_collect();

	/* between two pieces of work it looks whether it is to go */
	while (!ShutdownRequestPending)
	{
		List	   *stores;
		ListCell   *cell;

		MemoryContextSwitchTo(context);
		MemoryContextReset(context);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}

		/* a standby learns from the WAL what is to go */
		if (!settled && !RecoveryInProgress())
		{
			settle_everything();
			settled = true;
		}
		stores = pin_stores(KV_STORE_OPEN);
		if (pg_atomic_exchange_u32(&kv_shared->room_wanted, 0) != 0 ||
			pg_atomic_read_u64(&kv_shared->delta_bytes) >
			(uint64) kv_delta_memory_mb * 1024 * 1024 / 2)
			make_room(stores);
		foreach(cell, stores)
		{
			if (!ShutdownRequestPending)
				(void) attempt(maintain_store, lfirst(cell), NULL);
		}
		unpin_stores();
		kv_drop_collect();

		KV_STOP_POINT("maintainer_idle");
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 KV_NAP_MS, KV_WAIT_IDLE);
	}
	proc_exit(1);				/* so that the postmaster starts it again, unless it stops itself */
}
