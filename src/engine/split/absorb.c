/*
 * absorb.c
 *		Removes a shard without entries; a neighbour takes over its range.
 *
 * The shard has no entries, so nothing is copied.  No entry names the value files that it still
 * lists; they are obsolete when it has left the map.  A shard is not empty while a transaction is
 * running that has reserved a large value in it: the value may be about to be written.
 *
 * At level none the previous map may count again after a power loss.  Entries of the shard's keys
 * that the neighbour's log has received since are lost then (lifecycle/recover.c).
 */
#include "postgres.h"

#include "access/xlog.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "utils/memutils.h"

#include "engine/base/types.h"
#include "engine/buffer/buffer.h"
#include "engine/buffer/largevalue.h"
#include "engine/maintenance.h"
#include "engine/shard/map.h"
#include "engine/shard/shard.h"
#include "engine/shard/valuefiles.h"
#include "engine/split/internal.h"
#include "engine/xact/xact.h"

typedef struct KvAbsorption
{
	KvChange   *change;
	int			roles;			/* this process has these roles of the shard */
	int			reserved;		/* capacity for its value files as obsolete ones */
} KvAbsorption;

/* Is the shard without entries, and does no process work on it?  Lock held. */
static bool
has_nothing(const KvShard *shard)
{
	return shard->files.base_run == 0 && shard->files.nunfrozen == 0 &&
		!DsaPointerIsValid(shard->active.root) && !DsaPointerIsValid(shard->immutable.root) &&
		shard->buffers.sealed < 0 &&
		kv_role_is_free(shard, KV_ROLE_FLUSH | KV_ROLE_COMPACT);
}

/* Is no large value about to be written to one of its value files?  Lock held. */
static bool
awaits_nothing(const KvShard *shard, uint64 horizon)
{
	for (int i = 0; i < shard->values.n; i++)
	{
		if (kv_value_files(shard)[i].newest_writer >= horizon)
			return false;
	}
	return true;
}

bool
kv_shard_is_empty(KvStore *store, uint32 shard_id)
{
	KvShard    *shard = kv_shard(store, shard_id);
	bool		empty;

	LWLockAcquire(&shard->lock, LW_SHARED);
	empty = has_nothing(shard);
	LWLockRelease(&shard->lock);
	if (empty && shard->values.n > 0)
	{
		uint64		horizon = kv_xid_horizon();

		LWLockAcquire(&shard->lock, LW_SHARED);
		empty = has_nothing(shard) && awaits_nothing(shard, horizon);
		LWLockRelease(&shard->lock);
	}
	return empty;
}

/*
 * Takes the shard's roles if it is empty.  It stays empty: no process flushes or compacts it from
 * now on, and writers are halted.
 */
static bool
take_empty(KvAbsorption *absorption)
{
	KvShard    *shard = kv_shard(absorption->change->store, absorption->change->shard_id);
	uint64		horizon = kv_xid_horizon();
	int			roles = KV_ROLE_FLUSH | KV_ROLE_COMPACT;

	kv_change_halt_free(absorption->change);
	kv_change_drain(absorption->change);
	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	if (has_nothing(shard) && awaits_nothing(shard, horizon) && kv_role_claim(shard, roles))
		absorption->roles = roles;
	LWLockRelease(&shard->lock);
	return absorption->roles != 0;
}

/* No entry names the value files of the shard that has left the map, and none ever will. */
static void
leave_value_files(KvAbsorption *absorption, uint64 lsn)
{
	KvChange   *change = absorption->change;
	KvShard    *shard = kv_shard(change->store, change->shard_id);

	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	for (int i = 0; i < shard->values.n; i++)
	{
		const KvShardValueFile *value_file = &kv_value_files(shard)[i];

		kv_obsolete_add(change->store, change->shard_id, &value_file->value_file,
						kv_value_file_taken(shard, value_file), 0, lsn);
		absorption->reserved--;
	}
	LWLockRelease(&shard->lock);
}

static void
absorb(KvAbsorption *absorption)
{
	KvChange   *change = absorption->change;
	KvStore    *store = change->store;
	int			n;

	change->neighbour = kv_shard_first(store) == change->shard_id ?
		kv_shard_next(store, change->shard_id, 1) : kv_shard_next(store, change->shard_id, -1);
	if (change->neighbour == change->shard_id || !kv_change_make(change, 0, NULL, NULL) ||
		!take_empty(absorption))
		return;
	n = kv_shard(store, change->shard_id)->values.n;
	if (!kv_obsolete_reserve(store, n))
		return;
	absorption->reserved = n;
	kv_change_publish(change);
	kv_value_end(store, change->shard_id);
	leave_value_files(absorption, GetXLogInsertRecPtr());
	kv_stat_add(store, KV_COUNT_SPLITS, 1);
}

/* Ends an absorption that has succeeded or failed. */
static void
end_absorption(KvAbsorption *absorption)
{
	KvChange   *change = absorption->change;

	kv_role_give(kv_shard(change->store, change->shard_id), absorption->roles);
	kv_obsolete_give_back(change->store, absorption->reserved);
	kv_change_end(change);
}

/* Called after an ERROR, perhaps with locks held, or at the end of the process. */
static void
absorb_failed(int code, Datum arg)
{
	LWLockReleaseAll();
	end_absorption((KvAbsorption *) DatumGetPointer(arg));
}

bool
kv_shard_absorb(KvStore *store, uint32 shard_id)
{
	MemoryContext context;
	MemoryContext old;
	KvAbsorption *absorption;
	bool		done = false;

	if (kv_store_nshards(store) <= (uint32) store->shape.nshards ||
		!kv_shard_is_empty(store, shard_id))
		return false;
	context = AllocSetContextCreate(CurrentMemoryContext, "kvfdw absorb", ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(context);
	absorption = palloc0(sizeof(KvAbsorption));
	absorption->change = kv_change_begin(store, shard_id);
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
