/*
 * registry.c
 *		The known tables and stores: two hash tables in shared memory.  The roles of processes in
 *		shards.
 *
 * Locks: KvRegistry.lock guards both.  The functions of lifecycle/ fill them.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/guc.h"
#include "utils/hsearch.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "compat.h"
#include "engine/base/shared.h"
#include "engine/base/types.h"
#include "engine/base/wait.h"
#include "engine/shard/dead.h"
#include "engine/shard/shard.h"
#include "engine/shard/valuefiles.h"

#define KV_AWAITED_MS	1500	/* a process waits if its last kv_shard_await is no older */

static int	max_tables = 10000;

KvRegistry *kv_registry = NULL;
HTAB	   *kv_store_hash = NULL;
HTAB	   *kv_table_hash = NULL;

void
kv_registry_gucs(void)
{
	DefineCustomIntVariable("kvfdw.max_tables",
							"Sets how many tables can be in use between two starts of the server.",
							"One more is an error.",
							&max_tables, 10000, 100, 10000000,
							PGC_POSTMASTER, 0, NULL, NULL, NULL);
	kv_volume_gucs();
	kv_dead_gucs();
}

void
kv_registry_init(void)
{
	LWLockInitialize(&kv_registry->lock, kv_tranche_room);
	pg_atomic_init_u32(&kv_registry->cache_ids, 0);
	pg_atomic_init_u32(&kv_registry->drop_counter, 0);
	pg_atomic_init_u64(&kv_registry->freeing, 0);
	pg_atomic_init_u32(&kv_registry->marks_wanted, 0);
	pg_atomic_init_u32(&kv_registry->marks_awaited, 0);
	kv_registry->checkpointer = NULL;
	pg_atomic_init_u32(&kv_registry->obsolete, 0);
	pg_atomic_init_u32(&kv_registry->maps_unfinished, 0);
	pg_atomic_init_u64(&kv_registry->checkpoint, 0);
}

Size
kv_registry_memory(void)
{
	return add_size(hash_estimate_size(max_tables, sizeof(KvTableEntry)),
					hash_estimate_size(max_tables, sizeof(KvStore)));
}

void
kv_registry_attach(void)
{
	HASHCTL		info = {0};

	info.keysize = 2 * sizeof(Oid);
	info.entrysize = sizeof(KvTableEntry);
	kv_table_hash = kv_shmem_hash("kvfdw tables", max_tables, &info,
								  HASH_ELEM | HASH_BLOBS | HASH_FIXED_SIZE);
	info.keysize = sizeof(KvStoreKey);
	info.entrysize = sizeof(KvStore);
	kv_store_hash = kv_shmem_hash("kvfdw stores", max_tables, &info,
								  HASH_ELEM | HASH_BLOBS | HASH_FIXED_SIZE);
}

KvStore *
kv_store_find(Oid dboid, Oid relid, uint32 generation)
{
	KvStoreKey	key = {dboid, relid, generation};

	return hash_search(kv_store_hash, &key, HASH_FIND, NULL);
}

KvStore *
kv_store_live(const KvStoreKey *key)
{
	KvStore    *store;

	LWLockAcquire(&kv_registry->lock, LW_SHARED);
	store = kv_store_find(key->dboid, key->relid, key->generation);
	if (store != NULL && pg_atomic_read_u32(&store->state) == KV_STORE_DROPPED)
		store = NULL;
	LWLockRelease(&kv_registry->lock);
	return store;
}

bool
kv_store_is_known(const KvStoreKey *key)
{
	bool		known;

	LWLockAcquire(&kv_registry->lock, LW_SHARED);
	known = kv_store_find(key->dboid, key->relid, key->generation) != NULL;
	LWLockRelease(&kv_registry->lock);
	return known;
}

List *
kv_stores_pin_state(Oid dboid, KvStoreState state)
{
	List	   *stores = NIL;
	HASH_SEQ_STATUS status;
	KvStore    *store;

	LWLockAcquire(&kv_registry->lock, LW_SHARED);
	hash_seq_init(&status, kv_store_hash);
	while ((store = hash_seq_search(&status)) != NULL)
	{
		if ((dboid == InvalidOid || store->key.dboid == dboid) &&
			pg_atomic_read_u32(&store->state) == state)
		{
			pg_atomic_fetch_add_u32(&store->pins, 1);
			stores = lappend(stores, store);
		}
	}
	LWLockRelease(&kv_registry->lock);
	return stores;
}

void
kv_stores_unpin(List *stores)
{
	ListCell   *cell;

	foreach(cell, stores)
	{
		if (lfirst(cell) != NULL)
			pg_atomic_fetch_sub_u32(&((KvStore *) lfirst(cell))->pins, 1);
	}
	list_free(stores);
}

void
kv_stores_unpin_dropped(List *stores, const KvStore *but)
{
	ListCell   *cell;

	foreach(cell, stores)
	{
		KvStore    *store = lfirst(cell);

		if (store == NULL || store == but || pg_atomic_read_u32(&store->state) != KV_STORE_DROPPED)
			continue;
		lfirst(cell) = NULL;
		pg_atomic_fetch_sub_u32(&store->pins, 1);
	}
}

/* ---- processes that wait for a compaction ---- */

void
kv_shard_await(KvShard *shard)
{
	shard->compact.awaited = kv_clock();
}

bool
kv_shard_is_awaited(const KvShard *shard)
{
	TimestampTz awaited = ((const volatile KvShard *) shard)->compact.awaited;
	TimestampTz now = kv_clock();

	return now - awaited < KV_AWAITED_MS * INT64CONST(1000);
}

/* ---- roles ---- */

bool
kv_role_claim(KvShard *shard, int roles)
{
	if (!kv_role_is_free(shard, roles))
		return false;
	if (roles & KV_ROLE_FLUSH)
		shard->roles.maintainer = MyProcPid;
	if (roles & KV_ROLE_COMPACT)
		shard->roles.compactor = MyProcPid;
	return true;
}

bool
kv_role_try(KvShard *shard, int roles)
{
	bool		mine;

	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	mine = kv_role_claim(shard, roles);
	LWLockRelease(&shard->lock);
	return mine;
}

bool
kv_role_wait(KvShard *shard, int roles, uint32 wait_event)
{
	bool		waited = false;

	ConditionVariablePrepareToSleep(&shard->changed);
	for (;;)
	{
		LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
		if (kv_role_is_free(shard, roles))
			break;
		if ((roles & KV_ROLE_COMPACT) || shard->roles.maintainer == shard->roles.compactor)
			kv_shard_await(shard);
		LWLockRelease(&shard->lock);
		waited = true;
		kv_maintenance_interrupts();
		ConditionVariableTimedSleep(&shard->changed, 1000, wait_event);
	}
	ConditionVariableCancelSleep();
	return waited;
}

bool
kv_role_take(KvShard *shard, int roles, uint32 wait_event)
{
	bool		mine;

	(void) kv_role_wait(shard, roles, wait_event);
	mine = shard->place.bounds_since != KV_NOT_IN_MAP && kv_role_claim(shard, roles);
	LWLockRelease(&shard->lock);
	return mine;
}

void
kv_role_give(KvShard *shard, int roles)
{
	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	if (roles & KV_ROLE_FLUSH)
		shard->roles.maintainer = 0;
	if (roles & KV_ROLE_COMPACT)
		shard->roles.compactor = 0;
	LWLockRelease(&shard->lock);
	ConditionVariableBroadcast(&shard->changed);
}
