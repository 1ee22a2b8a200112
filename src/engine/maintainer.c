/*
 * maintainer.c
 *		The maintainer process; registers the background workers.
 *
 * The maintainer flushes shards whose memtable is due, resolves xids after a restart, and
 * removes the files of dropped tables.  An error in the work on one store is logged, and the
 * other stores are processed; the failed one is tried again later.
 *
 * The maintainer also starts workers on demand for which there was no place before
 * (base/worker.h), and looks for compaction inputs while no compactor runs.
 *
 * If it exits the postmaster starts it again.  A process that waits for the maintainer can
 * always do the work itself or give up.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "postmaster/bgwriter.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "clock.h"
#include "engine/base/shared.h"
#include "engine/base/types.h"
#include "engine/base/wait.h"
#include "engine/base/worker.h"
#include "engine/cache/cache.h"
#include "engine/durable/durable.h"
#include "engine/compact/compact.h"
#include "engine/flush/flush.h"
#include "engine/format/path.h"
#include "engine/index/memtable.h"
#include "engine/io/fault.h"
#include "engine/io/name.h"
#include "engine/lifecycle/lifecycle.h"
#include "engine/maintainer.h"
#include "engine/maintenance.h"
#include "engine/shard/map.h"
#include "engine/shard/shard.h"
#include "engine/shard/space.h"
#include "engine/buffer/buffer.h"
#include "engine/split/split.h"
#include "engine/xact/xact.h"
#include "report.h"

#define KV_NAP_MS	1000
#define KV_COLLECT_MS	100
#define KV_RESOLVE_RETRY_MS 2000
#define KV_RESOLVE_WARN_MS 60000

void
kv_workers_register(void)
{
	BackgroundWorker worker;

	kv_worker_describe(&worker, "kvfdw checkpointer", "kv_checkpointer_main");
	kv_register_worker(&worker, "Writes to kvfdw tables fail.");
	kv_worker_describe(&worker, "kvfdw maintainer", "kv_maintainer_main");
	worker.bgw_start_time = BgWorkerStart_ConsistentState;
	kv_register_worker(&worker, "Sessions flush memtables, and kvfdw tables are not split or "
								"analyzed automatically.");
	kv_source_workers();

	/* redo writes too */
	kv_worker_define(KV_WORKER_BUFFER_WRITER, "kvfdw buffer writer", "kv_buffer_writer_main",
					 BgWorkerStart_PostmasterStart, 1);
	kv_worker_define(KV_WORKER_COMPACTOR, "kvfdw compactor", "kv_compactor_main",
					 BgWorkerStart_ConsistentState, kv_compact_workers);
}

/* ---- the maintainer ---- */

/*
 * Run one piece of work on a store; an ERROR is logged and ends that piece only.  True if it
 * succeeded.
 */
static bool
attempt(void (*work) (KvStore *store, void *arg), KvStore *store, void *arg)
{
	MemoryContext context = CurrentMemoryContext;
	volatile bool done = false;

	SetCurrentStatementStartTimestamp();
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
		/* the work may fail in any way if the store is dropped concurrently */
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
flush_shard(KvStore *store, void *arg)
{
	kv_shard_flush(store, *(uint32 *) arg, KV_FLUSH_MERGE);
}

/* Flush the largest memtables until all use half of their present memory. */
static void
make_room(List *stores)
{
	uint64		enough = pg_atomic_read_u64(&kv_memtable_memory->bytes) / 2;
	List	   *failed = NIL;

	while (pg_atomic_read_u64(&kv_memtable_memory->bytes) > enough && !ShutdownRequestPending)
	{
		uint32		shard_id;
		KvStore    *store = kv_largest_memtable(stores, failed, true, &shard_id);

		if (store == NULL)
			break;
		if (!attempt(flush_shard, store, &shard_id))
			failed = lappend(failed, kv_shard(store, shard_id));
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
	TimestampTz now = kv_clock();

	kv_store_resolve_creator(store);
	kv_store_resolve(store);
	kv_each_shard(store, i)
	{
		CHECK_FOR_INTERRUPTS();
		if (ShutdownRequestPending)
			break;
		kv_shard_maintain(store, i, now);
		kv_free_if_due();
	}
	if (!ShutdownRequestPending)
		(void) kv_split_look(store);
#ifdef KVFDW_FAULTS
	if (!kv_test_compactions || (RecoveryInProgress() && store->shape.wal != KV_WAL_FULL))
		return;
	kv_each_shard(store, i)
	{
		static uint32 jobs = 0;
		KvJobPlan	plan = {++jobs % 2 == 0 ? KV_JOB_SORTS : KV_JOB_GIVES_BACK};
		KvJobResult result = {0};

		/* a shard that a compactor works on continues without help */
		if (kv_shard(store, i)->roles.compactor == 0 && !ShutdownRequestPending)
			kv_shard_compact(store, i, &plan, &result);
		kv_free_if_due();
	}
#endif
}

static void
resolve_store(KvStore *store, void *arg)
{
	kv_store_flush(store);
}

static void
checkpoint(KvStore *store, void *arg)
{
	RequestCheckpoint(KV_CHECKPOINT_FAST | CHECKPOINT_FORCE | CHECKPOINT_WAIT);
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

	kv_table_resolve(ids[0], ids[1]);
}

typedef struct KvNumbered
{
	const char *path;			/* of a directory */
	MemoryContext context;		/* memory for numbers */
	List	   *numbers;		/* numbers of the directory's entries */
} KvNumbered;

/* ERROR if the directory cannot be read. */
static void
list_numbered(KvStore *store, void *arg)
{
	KvNumbered *numbered = arg;
	MemoryContext old = MemoryContextSwitchTo(numbered->context);

	numbered->numbers = kv_numbered_entries(numbered->path, ERROR);
	MemoryContextSwitchTo(old);
}

/*
 * Enter every kvfdw/<database>/<relation> into the registry.  True if all could be entered, and
 * all directories be read.
 */
static bool
load_all_tables(void)
{
	KvNumbered	databases = {KV_DIRECTORY, CurrentMemoryContext};
	bool		complete = attempt(list_numbered, NULL, &databases);
	ListCell   *database;
	ListCell   *table;

	foreach(database, databases.numbers)
	{
		KvNumbered	tables = {kv_path_database(lfirst_oid(database)), CurrentMemoryContext};

		complete &= attempt(list_numbered, NULL, &tables);
		foreach(table, tables.numbers)
		{
			Oid			ids[2] = {lfirst_oid(database), lfirst_oid(table)};

			complete &= attempt(load_table, NULL, ids);
		}
	}
	return complete;
}

/* Stores that this process keeps from being removed.  NULL: entries of stores dropped since. */
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

/* Free, between two pieces of work, the files of stores that were dropped in the meantime. */
static void
collect_between(void)
{
	static TimestampTz collected = 0;
	TimestampTz now = kv_clock();

	if (!TimestampDifferenceExceeds(collected, now, KV_COLLECT_MS))
		return;
	collected = now;
	kv_stores_unpin_dropped(pinned, NULL);
	kv_drop_collect();
}

/*
 * Do work on each of the pinned stores for which is_for is true (NULL: on all).  True if it
 * succeeded for all of them; false also if this process is to exit before the last one.
 */
static bool
attempt_each(List *stores, bool (*is_for) (const KvStore *store),
			 void (*work) (KvStore *store, void *arg))
{
	bool		complete = true;
	ListCell   *cell;

	foreach(cell, stores)
	{
		KvStore    *store = lfirst(cell);

		if (store == NULL || (is_for != NULL && !is_for(store)))
			continue;
		if (ShutdownRequestPending)
			return false;
		if (!attempt(work, store, NULL))
			complete = false;
		collect_between();
	}
	return complete;
}

/* As attempt_each, for all stores that are in this state now. */
static bool
attempt_all(KvStoreState state, bool (*is_for) (const KvStore *store),
			void (*work) (KvStore *store, void *arg))
{
	bool		complete = attempt_each(pin_stores(state), is_for, work);

	unpin_stores();
	return complete;
}

static bool
is_usable(const KvStore *store)
{
	return !store->shape.unusable;
}

static bool
has_creator(const KvStore *store)
{
	return store->shape.creator != 0;
}

/*
 * After a start: recover every store.  When dead incarnations have accumulated, rewrite the
 * files that refer to them and forget the incarnations.
 */
static void
tidy_everything(void)
{
	bool		complete;

	(void) attempt(sweep_all, NULL, NULL);
	complete = load_all_tables();
	LWLockAcquire(&kv_registry->lock, LW_SHARED);
	kv_buffers_discard_unknown();
	LWLockRelease(&kv_registry->lock);

	complete &= attempt_all(KV_STORE_CLOSED, is_usable, open_store);
	kv_warm_start();
	if (kv_incarnations->ndead < KV_MAX_INCARNATIONS / 2)
		return;
	complete &= attempt_all(KV_STORE_OPEN, NULL, resolve_store);

	/* marks name them until the next checkpoint */
	if (complete && attempt(checkpoint, NULL, NULL))
		kv_incarnations_resolved();
}

static void
resolve_creator(KvStore *store, void *arg)
{
	kv_store_resolve_creator(store);
}

/* Open all stores that are not open.  True if all are open, except unusable ones. */
static bool
open_all(void)
{
	bool		complete = load_all_tables();

	complete &= attempt_all(KV_STORE_CLOSED, is_usable, open_store);
	if (pin_stores(KV_STORE_OPENING) != NIL)
		complete = false;
	unpin_stores();
	return complete;
}

static void
look_whether_resolved(KvStore *store, void *arg)
{
	uint64		boundary;
	List	   *stores = pin_stores(KV_STORE_OPEN);
	bool		reached = kv_resolve_reached(stores, &boundary);

	unpin_stores();
	*(uint64 *) arg = reached ? boundary : 0;
}

static void
note_resolved(KvStore *store, void *arg)
{
	kv_resolve_done(*(uint64 *) arg);
}

/* The next xid is in another segment of clog: see flush/resolve.c. */
static void
resolve_segment(void)
{
	static TimestampTz tried = 0;
	static TimestampTz since = 0;
	TimestampTz now = kv_clock();
	uint64		boundary = 0;

	if (since == 0)
		since = now;

	/* a failed attempt is not repeated every second */
	if (tried != 0 && !TimestampDifferenceExceeds(tried, now, KV_RESOLVE_RETRY_MS))
		return;
	kv_backups_look();
	if (!kv_backups_run() && open_all() &&
		attempt(look_whether_resolved, NULL, &boundary) && boundary != 0 &&
		attempt(checkpoint, NULL, NULL) && attempt(note_resolved, NULL, &boundary))
	{
		tried = since = 0;
		return;
	}
	tried = now;
	if (!ShutdownRequestPending && TimestampDifferenceExceeds(since, now, KV_RESOLVE_WARN_MS))
	{
		since = now;
		ereport(WARNING,
				(errmsg("kvfdw prevents VACUUM from truncating the commit log"),
				 errdetail("A kvfdw table depends on old transactions because a base backup is "
						   "running, or because the table could not be recovered or written."),
				 errhint("See the server log for errors of \"kvfdw maintainer\".")));
	}
}

static void
look_for_compaction(KvStore *store, void *arg)
{
	if (kv_compact_look(store))
		kv_compactor_wake();
}

/*
 * Start workers for work that had no place or process slot before, or that no process has asked
 * for.
 */
static void
look_for_workers(void)
{
	if (kv_buffers_pending())
		kv_buffers_wake_writer();
	kv_compactor_wake_again();
	if (!ShutdownRequestPending && kv_compact_look_is_due())
	{
		kv_compact_look_begin();
		(void) attempt_all(KV_STORE_OPEN, NULL, look_for_compaction);
	}
}

static void
maintainer_exit(int code, Datum arg)
{
	kv_base->maintainer_latch = NULL;
	unpin_stores();
}

void
kv_maintainer_main(Datum arg)
{
	MemoryContext context;
	bool		resolved = false;
	bool		warmed = false;
	bool		reloaded;

	kv_worker_begin("kvfdw maintainer");

	before_shmem_exit(maintainer_exit, (Datum) 0);
	kv_base->maintainer_latch = MyLatch;
	context = AllocSetContextCreate(TopMemoryContext, "kvfdw maintainer",
									ALLOCSET_DEFAULT_SIZES);
	MemoryContextSwitchTo(context);
	kv_drop_collect();

	/* between two pieces of work it checks whether it is to exit */
	while (kv_worker_goes_on(&reloaded))
	{
		List	   *stores;

		MemoryContextSwitchTo(context);
		MemoryContextReset(context);
		CHECK_FOR_INTERRUPTS();

		/*
		 * a standby learns from the WAL which files to remove, and opens stores when they are
		 * used
		 */
		if (!warmed && RecoveryInProgress())
			kv_warm_start();
		warmed = true;
		if (!resolved && !RecoveryInProgress())
		{
			tidy_everything();
			resolved = true;
		}
		stores = pin_stores(KV_STORE_OPEN);
		if (pg_atomic_exchange_u64(&kv_memtable_memory->wanted, 0) != 0 ||
			pg_atomic_read_u64(&kv_memtable_memory->bytes) >
			(uint64) kv_memtable_memory_mb * 1024 * 1024 / 2)
			make_room(stores);
		(void) attempt_each(stores, NULL, maintain_store);
		unpin_stores();
		stores = pin_stores(KV_STORE_OPEN);
		if (reloaded)
			kv_statistics_look_again(stores);
		if (resolved && !ShutdownRequestPending && kv_statistics_due(stores))
			(void) attempt(kv_statistics_start, NULL, NULL);
		unpin_stores();

		/* of stores that are not open, some because they cannot be used */
		(void) attempt_all(KV_STORE_CLOSED, has_creator, resolve_creator);
		if (resolved && kv_resolve_is_due() && !ShutdownRequestPending)
			resolve_segment();
		look_for_workers();
		kv_drop_collect();
		kv_files_let_go();

		KV_STOP_POINT("maintainer_idle");
		kv_free_or_nap(KV_NAP_MS, KV_WAIT_IDLE);
	}
	kv_warm_note();
	proc_exit(1);			/* so that the postmaster starts it again, unless the server stops */
}
