/*
 * shared.c
 *		Shared memory: the base of the modules' structs, the area in which memtables and shards
 *		are allocated, and kvfdw.memory with the settings that have a share of it.
 *
 * The area is a DSA in the main segment.  It cannot grow (I 12), and because it is in the main
 * segment a dsa_pointer is an offset from the same address in every process.
 */
#include "postgres.h"

#include <limits.h>

#include "miscadmin.h"
#include "storage/shmem.h"
#include "utils/memutils.h"

#include "compat.h"
#include "engine/base/shared.h"

/* ---- the base, and the area ---- */

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

/* ---- kvfdw.memory, and its shares ---- */

#define KV_MOST_SHARES	5
#define KV_MEMORY_MB	256		/* default of kvfdw.memory */
#define KV_LEAST_MB		64
#define KV_MACHINE_PART	4		/* but at most this part of the server's memory */

typedef struct KvShare
{
	const char *name;
	int			eighths;
	const int  *variable;
	bool		divided;		/* it has got its share */
} KvShare;

static KvShare shares[KV_MOST_SHARES];
static int	nshares = 0;
static int	memory_mb;

void
kv_memory_gucs(uint64 machine)
{
	uint64		part = machine / KV_MACHINE_PART / (1024 * 1024);
	int			usual = Max(Min(part, KV_MEMORY_MB), KV_LEAST_MB);

	DefineCustomIntVariable("kvfdw.memory",
							"Sets the shared memory for the caches and memtables of kvfdw.",
							"Divided among value_cache, recent_ring, range_cache and "
							"memtable_memory where these are -1.",
							&memory_mb, usual, KV_LEAST_MB, 1048576,
							PGC_POSTMASTER, GUC_UNIT_MB, NULL, NULL, NULL);
	if (usual < KV_MEMORY_MB && memory_mb == usual &&
		process_shared_preload_libraries_in_progress &&
		!IsUnderPostmaster)
		ereport(LOG,
				(errmsg("the default of \"kvfdw.memory\" is %d MB on this server", usual),
				 errdetail("The server may use %llu MB of memory. With %d MB or more the default "
						   "would be %d MB.",
						   (unsigned long long) (machine / (1024 * 1024)),
						   KV_MEMORY_MB * KV_MACHINE_PART, KV_MEMORY_MB)));
}

void
kv_share_define(const char *name, const char *what, const char *more, int eighths,
				int *variable, int flags, GucIntCheckHook check)
{
	Assert(nshares < KV_MOST_SHARES);
	shares[nshares++] = (KvShare) {name, eighths, variable, false};
	DefineCustomIntVariable(name, what, more,
							variable, -1, -1, flags == GUC_UNIT_KB ? INT_MAX : 1048576,
							PGC_POSTMASTER, flags, check, NULL, NULL);
}

void
kv_share_check(int *value, const int *variable)
{
	for (int i = 0; i < nshares && *value == -1; i++)
	{
		if (shares[i].variable == variable && shares[i].divided)
			*value = *variable;
	}
}

static bool
is_unset(const KvShare *share)
{
	return strcmp(GetConfigOption(share->name, false, false), "-1") == 0;
}

void
kv_memory_divide(void)
{
	for (int i = 0; i < nshares; i++)
	{
		KvShare    *share = &shares[i];
		char		size[32];

		if (!is_unset(share))
			continue;
		snprintf(size, sizeof(size), "%dMB", memory_mb / 8 * share->eighths);
		SetConfigOption(share->name, size, PGC_POSTMASTER, PGC_S_DYNAMIC_DEFAULT);

		/* it was set explicitly, to -1 */
		if (is_unset(share))
			SetConfigOption(share->name, size, PGC_POSTMASTER, PGC_S_OVERRIDE);
		share->divided = true;
	}
}
