/*
 * helper.c
 *		Helpers of a store's recovery: how they begin, and how the opener waits for their end.
 *
 * A registered process may never run: the fork may fail, or it ends before its main function.
 * It may also run late, when the opening has ended and the store was dropped.  So a helper
 * counts itself when it begins, under the registry's lock, and gets the opening's number, not
 * an address.  It counts itself before it checks whether the opening still accepts helpers, and
 * the opener stops accepting before it checks whether any are counted: one of the two sees the
 * other.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/latch.h"

#include "engine/base/types.h"
#include "engine/base/wait.h"
#include "engine/base/worker.h"
#include "engine/lifecycle/lifecycle.h"
#include "engine/shard/shard.h"

#define KV_LOOK_MS	100			/* between checks whether helpers have ended */

/* In a helper: the store that counts it, or NULL. */
static KvStore *joined = NULL;

void
kv_helpers_start(KvStore *store, int n)
{
	BackgroundWorkerHandle *handle;

	if (n > 0)
		pg_atomic_exchange_u32(&store->opening.helped, store->cache_id);
	while (n-- > 0 && kv_worker_start("kvfdw recovery", "kv_recovery_worker_main",
									  UInt32GetDatum(store->cache_id), &handle))
		pfree(handle);
}

void
kv_helpers_end(KvStore *store)
{
	pg_atomic_exchange_u32(&store->opening.helped, 0);
	while (pg_atomic_read_u32(&store->opening.helpers) > 0)
	{
		/* the latch is set when a helper of this process ends */
		kv_nap(KV_LOOK_MS, KV_WAIT_RECOVERY);
		kv_maintenance_interrupts();
	}
}

static void
leave(int code, Datum arg)
{
	KvStore    *store = joined;

	joined = NULL;
	if (store != NULL)
		pg_atomic_fetch_sub_u32(&store->opening.helpers, 1);
}

KvStore *
kv_helper_join(uint32 opening)
{
	HASH_SEQ_STATUS status;
	KvStore    *store;

	before_shmem_exit(leave, (Datum) 0);
	LWLockAcquire(&kv_registry->lock, LW_SHARED);
	hash_seq_init(&status, kv_store_hash);
	while ((store = hash_seq_search(&status)) != NULL &&
		   pg_atomic_read_u32(&store->opening.helped) != opening)
		;
	if (store != NULL)
	{
		hash_seq_term(&status);
		pg_atomic_fetch_add_u32(&store->opening.helpers, 1);
		joined = store;
		if (pg_atomic_read_u32(&store->opening.helped) != opening ||
			pg_atomic_read_u32(&store->state) != KV_STORE_OPENING)
			leave(0, (Datum) 0);
	}
	LWLockRelease(&kv_registry->lock);
	return joined;
}
