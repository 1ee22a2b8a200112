/*
 * area.c
 *		The area of shared memory in which memtables and shards are allocated, and the base of
 *		the modules' shared memory.
 *
 * The area is a DSA in the main segment.  It cannot grow (I 12), and because it is in the main
 * segment a dsa_pointer is an offset from the same address in every process.
 */
#include "postgres.h"

#include "storage/shmem.h"
#include "utils/memutils.h"

#include "compat.h"
#include "report.h"
#include "engine/base/area.h"
#include "engine/base/server.h"
#include "engine/base/share.h"
#include "engine/base/shared.h"

#define KV_LEAST_MEMTABLE_MB	16

KvBase	   *kv_base = NULL;
char	   *kv_area_base = NULL;
int			kv_memtable_memory_mb;

void
kv_base_init(void)
{
	kv_base->tranches[0] = kv_new_tranche("KvfdwControl");
	kv_base->tranches[1] = kv_new_tranche("KvfdwShard");
	pg_atomic_init_u32(&kv_base->runs_gone, 0);
	pg_atomic_init_u32(&kv_base->values_gone, 0);
}

void
kv_base_attach(void)
{
	kv_register_tranche(kv_tranche_room, "KvfdwControl");
	kv_register_tranche(kv_tranche_shard, "KvfdwShard");
}

bool
kv_engine_ready(void)
{
	return kv_base != NULL;
}

void
kv_engine_require(void)
{
	if (!kv_engine_ready())
		kv_report_not_preloaded(ERROR);
}

void
kv_engine_warn(void)
{
	if (!kv_engine_ready())
		kv_report_not_preloaded(WARNING);
}

static bool
check_memtable_memory(int *value, void **extra, GucSource source)
{
	kv_share_check(value, &kv_memtable_memory_mb);
	if (*value == -1 || *value >= KV_LEAST_MEMTABLE_MB)
		return true;
	GUC_check_errdetail("\"kvfdw.memtable_memory\" must be -1 or at least %d MB.",
						KV_LEAST_MEMTABLE_MB);
	return false;
}

void
kv_area_gucs(void)
{
	kv_share_define("kvfdw.memtable_memory",
					"Sets the shared memory for recent row versions and shard descriptors.",
					"-1: two eighths of kvfdw.memory; otherwise at least 16 MB.",
					2, &kv_memtable_memory_mb, GUC_UNIT_MB, check_memtable_memory);
}

Size
kv_area_size(void)
{
	return (Size) kv_memtable_memory_mb * 1024 * 1024;
}

void
kv_area_attach(void)
{
	bool		found;
	dsa_area   *area;

	kv_area_base = ShmemInitStruct("kvfdw area", kv_area_size(), &found);
	if (found)
		return;
	area = dsa_create_in_place(kv_area_base, kv_area_size(), kv_tranche_shard, NULL);
	dsa_pin(area);
	dsa_set_size_limit(area, kv_area_size());
	dsa_detach(area);
}

dsa_area *
kv_area(void)
{
	static dsa_area *area = NULL;

	if (area == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);

		area = dsa_attach_in_place(kv_area_base, NULL);
		dsa_pin_mapping(area);
		MemoryContextSwitchTo(old);
	}
	return area;
}
