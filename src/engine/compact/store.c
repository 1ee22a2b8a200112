/*
 * store.c
 *		Manual compaction of a store, and the statistics of running jobs.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/latch.h"

#include "compat.h"
#include "engine/base/types.h"
#include "engine/base/wait.h"
#include "engine/compact/internal.h"
#include "engine/engine.h"
#include "engine/shard/retired.h"
#include "engine/shard/shard.h"
#include "engine/buffer/buffer.h"

#define KV_LOOK_MSEC	20
#define KV_IMAGE_FAILURES 3		/* failed attempts without progress, at one a second */

/*
 * The last reason for which the store's retired value files wait.  Of the first n shards only files
 * count that wait for no image later than until.
 */
static KvRetiredWait
look_at_retired(KvStore *store, const uint32 *until, uint32 n, uint64 *bytes)
{
	KvRetiredWait most = KV_WAITS_FOR_NOTHING;

	*bytes = 0;
	kv_each_shard(store, i)
	{
		uint64		some;
		KvRetiredWait waits = kv_retired_wait(store, i, i < n ? until[i] : 0, &some);

		most = Max(most, waits);
		*bytes += some;
	}
	return most;
}

/*
 * Waits until the files that are retired now are removed, or wait for something else than images,
 * or images fail.  Returns the reason for which they wait.  Files that other jobs retire later do
 * not count.
 */
static KvRetiredWait
wait_for_images(KvStore *store, uint64 *bytes)
{
	uint32		n = pg_atomic_read_u32(&store->map.shard_ids);
	uint32	   *until = palloc0(n * sizeof(uint32));
	uint32		failed = pg_atomic_read_u32(&store->images.failed);
	uint64		before = 0;

	kv_each_shard(store, i)
	{
		if (i < n)
			until[i] = kv_retired_until(kv_shard(store, i));
	}
	for (;;)
	{
		KvRetiredWait waits = look_at_retired(store, until, n, bytes);
		uint32		failed_now = pg_atomic_read_u32(&store->images.failed);

		if (*bytes != before)
			failed = failed_now;
		before = *bytes;
		if (*bytes == 0 || waits == KV_WAITS_FOR_CHECKPOINT || waits == KV_WAITS_FOR_BACKUP ||
			(waits == KV_WAITS_FOR_IMAGE &&
			 failed_now - failed >= KV_IMAGE_FAILURES))
			return waits;
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 KV_LOOK_MSEC, KV_WAIT_COMPACT);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
}

void
kv_store_compact(KvStore *store, bool sorted, KvCompacted *done)
{
	KvJobPlan	plan = {sorted ? KV_JOB_SORTS : KV_JOB_GIVES_BACK};
	KvJobResult result = {0};
	uint64		before = pg_atomic_read_u64(&store->space.released);
	uint64		waiting;

	kv_each_shard(store, i)
	{
		CHECK_FOR_INTERRUPTS();
		kv_value_leave(store, i);
		kv_shard_compact(store, i, &plan, &result);
	}
	memset(done, 0, sizeof(*done));
	switch (wait_for_images(store, &waiting))
	{
		case KV_WAITS_FOR_IMAGE:
			done->waiting_for = "image";
			break;
		case KV_WAITS_FOR_CHECKPOINT:
			done->waiting_for = "checkpoint";
			break;
		case KV_WAITS_FOR_BACKUP:
			done->waiting_for = "backup";
			break;
		default:
			if (result.held > 0)
				done->waiting_for = "snapshot";
	}
	done->moved_bytes = result.moved;
	done->freed_bytes = pg_atomic_read_u64(&store->space.released) - before;
}
