/*
 * start.c
 *		The engine's start: settings and shared memory.
 *
 * All shared memory is in the main segment: control, slot array, the two hash
 * tables, I/O counters, and one DSA area created in place, from which shard
 * descriptors and deltas come.  The area cannot grow (I 12), and because it
 * lies in the main segment a dsa_pointer is an offset from the same address in
 * every process.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/shmem.h"
#include "utils/guc.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"

#include "engine/internal.h"

static shmem_request_hook_type previous_shmem_request = NULL;
static shmem_startup_hook_type previous_shmem_startup = NULL;

void
kv_engine_gucs(void)
{
	DefineCustomIntVariable("kvfdw.merge_size",
							"Size of a merge slot: the largest single write to a value file.",
							NULL, &kv_merge_size_kb, 256, 64, 4096,
							PGC_POSTMASTER, GUC_UNIT_KB, NULL, NULL, NULL);
	DefineCustomIntVariable("kvfdw.merge_buffers",
							"Size of the merge file, which all tables share.",
							NULL, &kv_merge_buffers_mb, 16, 4, 65536,
							PGC_POSTMASTER, GUC_UNIT_MB, NULL, NULL, NULL);
	DefineCustomIntVariable("kvfdw.delta_memory",
							"Shared memory for recent versions and shard descriptors.",
							NULL, &kv_delta_memory_mb, 128, 16, 1048576,
							PGC_POSTMASTER, GUC_UNIT_MB, NULL, NULL, NULL);
	DefineCustomIntVariable("kvfdw.value_cache",
							"Shared memory for blocks of values that were read by key.",
							NULL, &kv_value_cache_mb, 128, 0, 1048576,
							PGC_POSTMASTER, GUC_UNIT_MB, NULL, NULL, NULL);
	DefineCustomIntVariable("kvfdw.max_tables",
							"Number of tables that can be in use between two server starts.",
							NULL, &kv_max_tables, 10000, 100, 10000000,
							PGC_POSTMASTER, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("kvfdw.recovery_workers",
							"Helpers that recover the shards of one table in parallel.",
							NULL, &kv_recovery_workers, 2, 0, 8,
							PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("kvfdw.freeze_delay",
							"Time after which recent versions are frozen even if there are few.",
							NULL, &kv_freeze_delay, 60, 1, 86400,
							PGC_SIGHUP, GUC_UNIT_S, NULL, NULL, NULL);
	kv_prefetch_gucs();
	kv_io_gucs();
	kv_run_gucs();
}

static void
request_memory(void)
{
	Size		size = MAXALIGN(sizeof(KvShared));

	if (previous_shmem_request)
		previous_shmem_request();
	size = add_size(size, kv_merge_shmem_size());
	size = add_size(size, kv_area_size());
	size = add_size(size, kv_cache_shmem_size());
	size = add_size(size, kv_range_shmem_size());
	size = add_size(size, kv_io_shmem_size());
	size = add_size(size, hash_estimate_size(kv_max_tables, sizeof(KvTableEntry)));
	size = add_size(size, hash_estimate_size(kv_max_tables, sizeof(KvStore)));
	RequestAddinShmemSpace(size);
}

static void
create_hash_tables(void)
{
	HASHCTL		info = {0};

	info.keysize = 2 * sizeof(Oid);
	info.entrysize = sizeof(KvTableEntry);
	kv_table_hash = ShmemInitHash("kvfdw tables", kv_max_tables, kv_max_tables, &info,
								  HASH_ELEM | HASH_BLOBS | HASH_FIXED_SIZE);
	info.keysize = sizeof(KvStoreKey);
	info.entrysize = sizeof(KvStore);
	kv_store_hash = ShmemInitHash("kvfdw stores", kv_max_tables, kv_max_tables, &info,
								  HASH_ELEM | HASH_BLOBS | HASH_FIXED_SIZE);
}

/* Make or attach to shared memory; the postmaster also begins the incarnation. */
static void
start_memory(void)
{
	bool		found;
	char	   *area;
	dsa_area   *dsa;

	if (previous_shmem_startup)
		previous_shmem_startup();

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	kv_shared = ShmemInitStruct("kvfdw", sizeof(KvShared), &found);
	kv_slots = ShmemInitStruct("kvfdw merge slots", kv_merge_shmem_size(), &found);
	area = ShmemInitStruct("kvfdw area", kv_area_size(), &found);
	kv_area_base = area;
	if (!found)
	{
		memset(kv_shared, 0, sizeof(KvShared));
		kv_shared->tranches[0] = LWLockNewTrancheId();
		kv_shared->tranches[1] = LWLockNewTrancheId();
		LWLockInitialize(&kv_shared->control_lock, kv_shared->tranches[0]);
		LWLockInitialize(&kv_shared->merge_lock, kv_shared->tranches[0]);
		ConditionVariableInit(&kv_shared->slot_freed);
		ConditionVariableInit(&kv_shared->room_made);
		pg_atomic_init_u32(&kv_shared->write_error, 0);
		pg_atomic_init_u64(&kv_shared->delta_bytes, 0);
		pg_atomic_init_u32(&kv_shared->room_wanted, 0);
		pg_atomic_init_u32(&kv_shared->drop_counter, 0);
		pg_atomic_init_u32(&kv_shared->cache_ids, 0);
		pg_atomic_init_u32(&kv_shared->barrier_up, 0);
		pg_atomic_init_u32(&kv_shared->backups, 0);
		pg_atomic_init_u32(&kv_shared->logging, 0);
		ConditionVariableInit(&kv_shared->barrier_raised);
		SpinLockInit(&kv_shared->barrier_mutex);

		dsa = dsa_create_in_place(area, kv_area_size(), kv_shared->tranches[1], NULL);
		dsa_pin(dsa);
		dsa_set_size_limit(dsa, kv_area_size());
		dsa_detach(dsa);
	}
	kv_tranche_shard = kv_shared->tranches[1];
	LWLockRegisterTranche(kv_shared->tranches[0], "KvfdwControl");
	LWLockRegisterTranche(kv_shared->tranches[1], "KvfdwShard");
	kv_io_shmem_init(found);
	kv_cache_startup();
	kv_range_startup();
	create_hash_tables();
	LWLockRelease(AddinShmemInitLock);

	if (!found)
	{
		kv_incarnation_startup();
		kv_merge_startup();
	}
}

void
kv_engine_preload(void)
{
	previous_shmem_request = shmem_request_hook;
	shmem_request_hook = request_memory;
	previous_shmem_startup = shmem_startup_hook;
	shmem_startup_hook = start_memory;
	kv_wal_register();
	kv_workers_register();
}

void
kv_engine_require(void)
{
	if (!kv_engine_ready())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("kvfdw must be loaded via shared_preload_libraries"),
				 errhint("Add the line \"shared_preload_libraries = 'kvfdw'\" to postgresql.conf and restart the server.")));
}
