/*
 * absorb.c
 *		A shard that has nothing goes, and a neighbour has its range.
 *
 * It has no entries, and no chunks either: compaction has given those back.  So again nothing is
 * copied.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "utils/memutils.h"

#include "engine/base/types.h"
#include "engine/io/io.h"
#include "engine/split/internal.h"

typedef struct KvAbsorption
{
	KvChange   *change;
	bool		taken;			/* this process has the shard's roles */
} KvAbsorption;

/* Has the shard nothing, and does nobody do anything with it?  Lock held. */
static bool
is_empty(const KvShard *shard)
{
	return shard->files.base_run == 0 && shard->files.nunfrozen == 0 &&
		!DsaPointerIsValid(shard->active.root) && !DsaPointerIsValid(shard->sealed.root) &&
		shard->sealed_slots < 0 && shard->nchunks == 0 && shard->nretired == 0 &&
		shard->maintainer == 0 && shard->compactor == 0;
}

bool
kv_shard_is_empty(KvStore *store, uint32 shardno)
{
	KvShard    *shard = kv_shard(store, shardno);
	bool		empty;

	LWLockAcquire(&shard->lock, LW_SHARED);
	empty = is_empty(shard);
	LWLockRelease(&shard->lock);
	return empty;
}

/* If it is empty, it stays so: nobody freezes or compacts it from now on, and writers are halted. */
static bool
take_empty(KvAbsorption *absorption)
{
	KvShard    *shard = kv_shard(absorption->change->store, absorption->change->shardno);

	kv_change_halt(absorption->change);
	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	absorption->taken = is_empty(shard);
	if (absorption->taken)
		shard->maintainer = shard->compactor = MyProcPid;
	LWLockRelease(&shard->lock);
	return absorption->taken;
}

static void
absorb(KvAbsorption *absorption)
{
	KvChange   *change = absorption->change;
	KvStore    *store = change->store;

	change->neighbour = kv_shard_first(store) == change->shardno ?
		kv_shard_next(store, change->shardno, 1) : kv_shard_next(store, change->shardno, -1);
	if (change->neighbour == change->shardno || !take_empty(absorption) ||
		!kv_change_make(change, 0, NULL, NULL))
		return;
	kv_change_publish(change);
	kv_stat_add(store, KV_COUNT_SPLITS, 1);
}

/* In whatever way it comes. */
static void
end_absorption(KvAbsorption *absorption)
{
	KvShard    *shard = kv_shard(absorption->change->store, absorption->change->shardno);

	if (absorption->taken)
	{
		LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
		shard->maintainer = shard->compactor = 0;
		LWLockRelease(&shard->lock);
		ConditionVariableBroadcast(&shard->changed);
	}
	kv_change_end(absorption->change);
}

/* After an error, which may have come with a lock held, or at the end of the process. */
static void
absorb_failed(int code, Datum arg)
{
	LWLockReleaseAll();
	end_absorption((KvAbsorption *) DatumGetPointer(arg));
}

bool
kv_shard_absorb(KvStore *store, uint32 shardno)
{
	MemoryContext context;
	MemoryContext old;
	KvAbsorption *absorption;
	bool		done = false;

	/* at level none the neighbour's log would have keys of both, if after a crash the map before counts */
	if (store->shape.wal == KV_WAL_NONE ||
		kv_store_nshards(store) <= (uint32) store->shape.nshards ||
		!kv_shard_is_empty(store, shardno))
		return false;
	context = AllocSetContextCreate(CurrentMemoryContext, "kvfdw absorb", ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(context);
	absorption = palloc0(sizeof(KvAbsorption));
	absorption->change = kv_change_begin(store, shardno);
	if (absorption->change != NULL)
	{
		PG_ENSURE_ERROR_CLEANUP(absorb_failed, PointerGetDatum(absorption));
		{
			absorb(absorption);
		}
		PG_END_ENSURE_ERROR_CLEANUP(absorb_failed, PointerGetDatum(absorption));
		done = absorption->change->published;
		end_absorption(absorption);
		if (done)
			kv_change_report(absorption->change);
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	return done;
}
