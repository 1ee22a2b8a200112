/*
 * start.c
 *		Start of the engine: the table of modules that have settings or shared memory.
 *
 * A module has a struct in the main shared memory segment, and perhaps more memory, settings,
 * and an initialization that runs before any other process.  A new module needs one line here.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/shmem.h"

#include "admission/admission.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/base/progress.h"
#include "engine/base/shared.h"
#include "engine/base/worker.h"
#include "engine/cache/cache.h"
#include "engine/durable/durable.h"
#include "engine/engine.h"
#include "engine/compact/compact.h"
#include "engine/flush/flush.h"
#include "engine/index/memtable.h"
#include "engine/index/run.h"
#include "engine/io/io.h"
#include "engine/lifecycle/lifecycle.h"
#include "engine/maintainer.h"
#include "engine/restart/restart.h"
#include "engine/shard/shard.h"
#include "engine/shard/space.h"
#include "engine/buffer/buffer.h"
#include "engine/split/split.h"
#include "engine/xact/xact.h"

typedef struct KvModule
{
	/* the struct, zeroed when it is created; init fills in the rest */
	const char *name;
	Size		size;
	void	  **address;
	void		(*init) (void);

	/* further memory: its size, and a function that creates or attaches to it */
	Size		(*more) (void);
	void		(*attach) (void);

	void		(*gucs) (void);
	void		(*start) (void);	/* in the postmaster, when all memory exists */
} KvModule;

#define KV_STRUCT(type, pointer)	"kvfdw " #type, sizeof(type), (void **) &pointer

/*
 * From the lowest layer up.  Modules start from the top down: higher ones set what lower ones
 * use.
 */
static const KvModule modules[] = {
	{.more = kv_admission_memory, .attach = kv_admission_attach, .gucs = kv_admission_gucs},
	{KV_STRUCT(KvBase, kv_base), kv_base_init, NULL, kv_base_attach},
	{.more = kv_progress_memory, .attach = kv_progress_attach},
	{.more = kv_workers_memory, .attach = kv_workers_attach, .gucs = kv_workers_gucs},
	{.more = kv_area_size, .attach = kv_area_attach, .gucs = kv_area_gucs},
	{KV_STRUCT(KvGate, kv_gate), kv_gate_init},
	{.more = kv_io_memory, .attach = kv_io_attach, .gucs = kv_io_gucs},
	{KV_STRUCT(KvIncarnations, kv_incarnations), kv_incarnations_init},
	{KV_STRUCT(KvMemtableMemory, kv_memtable_memory), kv_memtable_memory_init},
	{.gucs = kv_run_gucs},
	{KV_STRUCT(KvRegistry, kv_registry), kv_registry_init, kv_registry_memory,
	kv_registry_attach, kv_registry_gucs},
	{KV_STRUCT(KvBackups, kv_backups), kv_backups_init},
	{KV_STRUCT(KvCompactor, kv_compactor), kv_space_init, .gucs = kv_space_gucs},
	{.more = kv_source_memory, .attach = kv_source_attach, .gucs = kv_source_gucs},
	{KV_STRUCT(KvBufferPool, kv_buffer_pool), kv_buffers_init, kv_buffers_memory, kv_buffers_attach,
	kv_buffers_gucs, kv_buffers_start},
	{KV_STRUCT(KvResolved, kv_resolved), .gucs = kv_flush_gucs, .start = kv_resolve_startup},
	{.gucs = kv_compact_gucs},
	{.gucs = kv_split_gucs},
	{KV_STRUCT(KvControl, kv_control)},
	{KV_STRUCT(KvCheckpointer, kv_checkpointer), kv_checkpointer_init},
	{.gucs = kv_durable_gucs},
	{.gucs = kv_recovery_gucs},
	{.gucs = kv_take_over_gucs, .start = kv_incarnation_startup},
};

static shmem_request_hook_type previous_shmem_request = NULL;
static shmem_startup_hook_type previous_shmem_startup = NULL;

void
kv_engine_gucs(void)
{
	kv_memory_gucs(kv_machine_memory(KV_MACHINE_GROUPS, KV_MACHINE_ROOT));
	for (int i = 0; i < lengthof(modules); i++)
	{
		if (modules[i].gucs)
			modules[i].gucs();
	}
	kv_memory_divide();
}

static void
request_memory(void)
{
	if (previous_shmem_request)
		previous_shmem_request();
	for (int i = 0; i < lengthof(modules); i++)
	{
		RequestAddinShmemSpace(CACHELINEALIGN(modules[i].size));
		if (modules[i].more)
			RequestAddinShmemSpace(CACHELINEALIGN(modules[i].more()));
	}
}

static void
attach_module(const KvModule *module)
{
	if (module->address)
	{
		bool		found;

		*module->address = ShmemInitStruct(module->name, module->size, &found);
		if (!found)
		{
			memset(*module->address, 0, module->size);
			if (module->init)
				module->init();
		}
	}
	if (module->attach)
		module->attach();
}

/* Create or attach to shared memory; the postmaster also begins the incarnation. */
static void
start_memory(void)
{
	if (previous_shmem_startup)
		previous_shmem_startup();

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	for (int i = 0; i < lengthof(modules); i++)
		attach_module(&modules[i]);
	LWLockRelease(AddinShmemInitLock);

	for (int i = lengthof(modules) - 1; i >= 0 && !IsUnderPostmaster; i--)
	{
		if (modules[i].start)
			modules[i].start();
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
