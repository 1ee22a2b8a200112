/*
 * share.c
 *		kvfdw.memory, and who has a share of it.
 */
#include "postgres.h"

#include <limits.h>

#include "engine/base/share.h"

#define KV_MOST_SHARES	4

typedef struct KvShare
{
	const char *name;
	int			eighths;
	const int  *variable;
	bool		divided;		/* it has its share */
} KvShare;

static KvShare shares[KV_MOST_SHARES];
static int	nshares = 0;
static int	memory_mb;

void
kv_memory_gucs(void)
{
	DefineCustomIntVariable("kvfdw.memory",
							"Shared memory for caches and recent versions.",
							"Divided among those whose sizes are not set.",
							&memory_mb, 256, 64, 1048576,
							PGC_POSTMASTER, GUC_UNIT_MB, NULL, NULL, NULL);
}

void
kv_share_define(const char *name, const char *what, int eighths, int *variable, int flags,
				GucIntCheckHook check)
{
	Assert(nshares < KV_MOST_SHARES);
	shares[nshares++] = (KvShare) {name, eighths, variable, false};
	DefineCustomIntVariable(name, what, "-1: a share of kvfdw.memory.",
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

		/* it was set, to -1 */
		if (is_unset(share))
			SetConfigOption(share->name, size, PGC_POSTMASTER, PGC_S_OVERRIDE);
		share->divided = true;
	}
}
