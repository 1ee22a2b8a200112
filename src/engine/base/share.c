/*
 * share.c
 *		kvfdw.memory, and the settings that have a share of it.
 */
#include "postgres.h"

#include <limits.h>

#include "miscadmin.h"

#include "engine/base/share.h"

#define KV_MOST_SHARES	4
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
