/*
 * count.c
 *		Counters of a process.
 *
 * A process counts in its own memory and publishes the counters after its batches.  A reset
 * increases a number in shared memory, which each process notices before it counts again.
 */
#include "memcached/process/process.h"

uint64		kv_mc_counts[KV_MC_COUNTERS];

static uint32 seen_resets = 0;

void
kv_mc_heed_reset(void)
{
	uint32		resets = pg_atomic_read_u32(&kv_mc_shared->resets);

	if (resets != seen_resets)
		memset(kv_mc_counts, 0, sizeof(kv_mc_counts));
	seen_resets = resets;
}

void
kv_mc_publish(void)
{
	kv_mc_heed_reset();
	for (int i = 0; i < KV_MC_COUNTERS; i++)
		pg_atomic_write_u64(&kv_mc_me->counts[i], kv_mc_counts[i]);
}

void
kv_mc_reset_counts(TimestampTz now)
{
	pg_atomic_write_u64(&kv_mc_shared->stats_since, now);
	pg_atomic_fetch_add_u32(&kv_mc_shared->resets, 1);
	for (int i = 0; i <= KV_MC_MAX_WORKERS; i++)
	{
		for (int j = 0; j < KV_MC_COUNTERS; j++)
			pg_atomic_write_u64(&kv_mc_shared->workers[i].counts[j], 0);
	}
}
