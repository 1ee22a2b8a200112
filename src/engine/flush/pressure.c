/*
 * pressure.c
 *		Which shard is due for a flush, and which process frees memory when it is short?
 *
 * A shard is due when its memtable has reached its limit (kv_memtable_limit); when its last
 * flush is kvfdw.flush_after ago and the memtable is not empty; and when an xid of its unfrozen
 * runs is old.  All runs of an idle shard are merged when its unfrozen runs can be resolved and
 * have at least a quarter of the base's entries.
 *
 * A process that finds no memory flushes its own shard if that holds a fair share.  Else it
 * lets the maintainer flush the largest memtables, and gives up when no memory becomes free for
 * a minute.  The startup process and the maintainer do not wait for another process.
 *
 * The maintainer may be busy for long: it splits a large shard, merges one, waits for a
 * checkpoint or recovers a store.  If it has not responded for KV_ROOM_HELP_MS the waiting
 * processes do the same work.  They may flush any table, so an ERROR there is logged and does
 * not end their own work: each flush is a subtransaction, which is rolled back in any case.  A
 * process that cannot wait has another one do so (kv_make_room_for_others).
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "postmaster/autovacuum.h"
#include "storage/ipc.h"
#include "utils/guc.h"
#include "utils/resowner.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "engine/base/shared.h"
#include "engine/base/types.h"
#include "engine/base/wait.h"
#include "engine/flush/flush.h"
#include "engine/flush/internal.h"
#include "engine/index/memtable.h"
#include "engine/rows.h"
#include "engine/shard/map.h"
#include "engine/shard/shard.h"
#include "engine/xact/xact.h"

#define KV_ROOM_PATIENCE	60	/* seconds */
#define KV_ROOM_HELP_MS	1000	/* after which the maintainer is helped */
#define KV_OLD_XIDS	((uint64) autovacuum_freeze_max_age / 10)

static int	flush_delay = 60;

void
kv_flush_gucs(void)
{
	DefineCustomIntVariable("kvfdw.flush_after",
							"Sets the time after which recent row versions are flushed even if "
							"there are few.",
							NULL,
							&flush_delay, 60, 1, 86400,
							PGC_SIGHUP, GUC_UNIT_S, NULL, NULL, NULL);
#ifdef KVFDW_FAULTS
	DefineCustomBoolVariable("kvfdw.test_compact",
							 "Enables merges of all runs to move values of closed value files.",
							 "For tests only.",
							 &kv_test_compact, false, PGC_USERSET, 0, NULL, NULL, NULL);
#endif
}

void
kv_shard_maintain(KvStore *store, uint32 shard_id, TimestampTz now)
{
	KvShard    *shard = kv_shard(store, shard_id);
	bool		old;

	if (shard->roles.maintainer != 0)
		return;					/* another process flushes it */
	old = TimestampDifferenceExceeds(shard->flush.ended, now, flush_delay * 1000);

	/* snapshots compare 32 bits of an xid, so none may stay for ever */
	if (shard->files.oldest_xid != 0 && shard->files.oldest_xid < kv_xid_horizon() &&
		U64FromFullTransactionId(ReadNextFullTransactionId()) - shard->files.oldest_xid >
		KV_OLD_XIDS)
		kv_shard_flush(store, shard_id, KV_FLUSH_ALL);
	else if (shard->active.bytes >= kv_memtable_limit() ||
		DsaPointerIsValid(shard->immutable.root) ||
		(old && shard->active.nversions > 0))
		kv_shard_flush(store, shard_id, KV_FLUSH_MERGE);
	else if (old && shard->files.nunfrozen > 0 &&
			 shard->files.unfrozen_entries * 4 >= shard->files.frozen_keys &&
			 shard->active.nversions == 0 && shard->flush.resolved_horizon < kv_xid_horizon())
	{
		shard->flush.resolved_horizon = kv_xid_horizon();
		kv_shard_flush(store, shard_id, KV_FLUSH_ALL);
	}
}

/*
 * Counts also the immutable memtable of a failed flush, which may use the memory that is short.
 */
static Size
bytes_of_memtables(const KvShard *shard)
{
	return shard->active.bytes + shard->immutable.bytes;
}

KvStore *
kv_largest_memtable(List *stores, List *except, bool idle, uint32 *shard_id)
{
	KvStore    *largest = NULL;
	Size		bytes = 0;
	ListCell   *cell;

	foreach(cell, stores)
	{
		KvStore    *store = lfirst(cell);

		kv_each_shard(store, i)
		{
			KvShard    *shard = kv_shard(store, i);

			if (bytes_of_memtables(shard) > bytes && (!idle || shard->roles.maintainer == 0) &&
				!list_member_ptr(except, shard))
			{
				bytes = bytes_of_memtables(shard);
				largest = store;
				*shard_id = i;
			}
		}
	}
	return largest;
}

/*
 * For processes that cannot wait for the maintainer: flush the largest memtable of an open
 * store.
 */
static bool
flush_largest(void)
{
	List	   *stores = kv_stores_pin_state(InvalidOid, KV_STORE_OPEN);
	uint32		shard_id;
	KvStore    *largest = kv_largest_memtable(stores, NIL, false, &shard_id);

	PG_TRY();
	{
		if (largest != NULL)
			kv_shard_flush(largest, shard_id, KV_FLUSH_MEMORY);
	}
	PG_FINALLY();
	{
		kv_stores_unpin(stores);
	}
	PG_END_TRY();
	return largest != NULL;
}

bool
kv_flush_is_awaited(const KvShard *shard)
{
	/* at twice the limit writers help with the flush */
	return shard->active.bytes >= kv_memtable_limit() / 2 ||
		pg_atomic_read_u64(&kv_memtable_memory->bytes) > kv_area_size() / 2;
}

/* ---- work in the maintainer's place ---- */

void
kv_want_memory(void)
{
	uint64		since = 0;

	(void) pg_atomic_compare_exchange_u64(&kv_memtable_memory->wanted, &since,
										  kv_clock());
	kv_wake_maintainer();
}

/* Has the maintainer not responded for long, and may this process do its work? */
static bool
must_help(void)
{
	uint64		since = pg_atomic_read_u64(&kv_memtable_memory->wanted);

	return since != 0 && IsTransactionState() && !IsInParallelMode() &&
		TimestampDifferenceExceeds((TimestampTz) since, kv_clock(), KV_ROOM_HELP_MS);
}

/*
 * Flush in a subtransaction.  False: the flush has failed.  ERROR if this process is told to
 * stop.
 */
static bool
flush_apart(KvStore *store, uint32 shard_id)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	ErrorData  *volatile error = NULL;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		kv_shard_flush(store, shard_id, KV_FLUSH_MEMORY);
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
	}
	PG_END_TRY();
	RollbackAndReleaseCurrentSubTransaction();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	if (error == NULL)
		return true;
	if (ERRCODE_TO_CATEGORY(error->sqlerrcode) == ERRCODE_OPERATOR_INTERVENTION)
		ReThrowError(error);

	/* the flush may fail in any way if the store is dropped concurrently */
	if (pg_atomic_read_u32(&store->state) != KV_STORE_DROPPED)
	{
		error->elevel = LOG;
		ThrowErrorData(error);
	}
	FreeErrorData(error);
	return false;
}

static void
unpin(int code, Datum arg)
{
	kv_stores_unpin((List *) DatumGetPointer(arg));
}

/*
 * Flush the largest memtables that no process flushes, until all memtables have half of their
 * size, or the flushed ones had so much, because other processes may go on writing.  Shards
 * that cannot be flushed are added to *failed, and skipped.  False: nothing was flushed.
 */
static bool
help_maintainer(uint64 before, List **failed)
{
	List	   *stores = kv_stores_pin_state(InvalidOid, KV_STORE_OPEN);
	uint64		freed = 0;

	PG_ENSURE_ERROR_CLEANUP(unpin, PointerGetDatum(stores));
	{
		while (freed < before / 2 && pg_atomic_read_u64(&kv_memtable_memory->bytes) > before / 2)
		{
			uint32		shard_id;
			KvStore    *store = kv_largest_memtable(stores, *failed, true, &shard_id);
			Size		bytes = store == NULL ? 0 : bytes_of_memtables(kv_shard(store, shard_id));

			kv_maintenance_interrupts();
			if (store == NULL)
				break;
			if (flush_apart(store, shard_id))
				freed += bytes;
			else
				*failed = lappend(*failed, kv_shard(store, shard_id));
		}
	}
	PG_END_ENSURE_ERROR_CLEANUP(unpin, PointerGetDatum(stores));
	kv_stores_unpin(stores);
	return freed > 0;
}

/* ---- freeing memory ---- */

/*
 * May this process not wait for the maintainer?  The startup process may not, because it runs
 * before the others, and the maintainer cannot wait for itself.
 */
static bool
must_flush_itself(void)
{
	return AmStartupProcess() || MyLatch == kv_base->maintainer_latch;
}

/*
 * Recovery of a shard has more entries than there is memory for: flush that shard, or a
 * recovered shard of the same store, if it has so many bytes.  No other process can, because
 * the store is not open yet.
 */
static bool
flush_recovering(KvStore *store, uint32 shard_id, Size least)
{
	uint32		largest = shard_id;

	kv_each_shard(store, i)
	{
		KvShard    *shard = kv_shard(store, i);

		if (shard->recovered && shard->roles.maintainer == 0 &&
			shard->active.bytes > kv_shard(store, largest)->active.bytes)
			largest = i;
	}
	if (kv_shard(store, largest)->active.bytes < least)
		return false;
	if (largest == shard_id)
		kv_shard_flush_recovering(store, shard_id);
	else
		kv_shard_flush(store, largest, KV_FLUSH_MEMORY);
	return true;
}

/* waited: seconds. */
static void
raise_no_room(int waited)
{
	ereport(ERROR,
			(errcode(ERRCODE_OUT_OF_MEMORY),
			 errmsg("out of kvfdw memtable memory"),
			 errdetail("No recent rows could be flushed for %d s; \"kvfdw.memtable_memory\" is "
					   "%d MB.",
					   waited, kv_memtable_memory_mb),
			 errhint("Look for old transactions in pg_stat_activity (backend_xmin) and "
					 "pg_prepared_xacts, or increase \"kvfdw.memtable_memory\" and restart the "
					 "server.")));
}

/* Flush this shard if it holds a fair share; else the maintainer flushes others, or is helped. */
void
kv_make_memory(KvStore *store, uint32 shard_id)
{
	KvShard    *shard = kv_shard(store, shard_id);
	uint64		before = pg_atomic_read_u64(&kv_memtable_memory->bytes);
	List	   *failed = NIL;

	if (shard->recovered && shard->active.bytes >= kv_memtable_limit() / 4)
	{
		kv_shard_flush(store, shard_id, KV_FLUSH_MEMORY);
		return;
	}
	if (!shard->recovered && flush_recovering(store, shard_id, kv_memtable_limit() / 64))
		return;

	if (must_flush_itself())
	{
		if (!flush_largest() &&
			(shard->recovered || !flush_recovering(store, shard_id, 1)))
			raise_no_room(0);
		return;
	}

	/* a process that frees memory broadcasts; then, or after a while, the caller tries again */
	ConditionVariablePrepareToSleep(&kv_memtable_memory->freed);
	for (int i = 0;; i++)
	{
		kv_maintenance_interrupts();
		if (i == KV_ROOM_PATIENCE)
		{
			ConditionVariableCancelSleep();
			raise_no_room(KV_ROOM_PATIENCE);
		}
		if (i > 0 && !shard->recovered)
		{
			/* even if it is small */
			ConditionVariableCancelSleep();
			if (flush_recovering(store, shard_id, 1))
				return;
			ConditionVariablePrepareToSleep(&kv_memtable_memory->freed);
		}
		if (must_help())
		{
			ConditionVariableCancelSleep();
			if (help_maintainer(before, &failed))
				break;
			ConditionVariablePrepareToSleep(&kv_memtable_memory->freed);
		}
		kv_want_memory();
		if (!ConditionVariableTimedSleep(&kv_memtable_memory->freed, 1000, KV_WAIT_MEMORY) ||
			pg_atomic_read_u64(&kv_memtable_memory->bytes) < before)
			break;
	}
	ConditionVariableCancelSleep();
	list_free(failed);
}

int
kv_make_room_for_others(int patience)
{
	uint64		since = pg_atomic_read_u64(&kv_memtable_memory->wanted);
	List	   *failed = NIL;
	long		waited;
	bool		made;

	Assert(IsTransactionState() && !IsInParallelMode());
	if (since == 0)
		return 0;
	waited = TimestampDifferenceMilliseconds((TimestampTz) since, kv_clock());
	if (waited < patience)
		return patience - waited;
	made = help_maintainer(pg_atomic_read_u64(&kv_memtable_memory->bytes), &failed);
	list_free(failed);
	return made ? 0 : KV_ROOM_HELP_MS;
}

bool
kv_make_memory_for_shards(void)
{
	if (pg_atomic_read_u64(&kv_memtable_memory->bytes) == 0)
		return false;
	if (must_flush_itself())
		return flush_largest();
	kv_maintenance_interrupts();
	if (must_help())
	{
		List	   *failed = NIL;

		if (help_maintainer(pg_atomic_read_u64(&kv_memtable_memory->bytes), &failed))
			return true;
	}
	kv_want_memory();
	ConditionVariablePrepareToSleep(&kv_memtable_memory->freed);
	(void) ConditionVariableTimedSleep(&kv_memtable_memory->freed, 1000, KV_WAIT_MEMORY);
	ConditionVariableCancelSleep();
	return true;
}
