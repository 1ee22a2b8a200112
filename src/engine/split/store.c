/*
 * store.c
 *		Splits or cuts all shards of a store on request.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/latch.h"

#include "compat.h"
#include "engine/base/error.h"
#include "engine/base/types.h"
#include "engine/base/wait.h"
#include "engine/maintenance.h"
#include "engine/shard/map.h"
#include "engine/shard/shard.h"
#include "engine/split/internal.h"

#define KV_LOOK_MSEC	20
#define KV_MARK_FAILURES 3		/* failed attempts, at one a second */

/* May the shard be changed now?  With KV_NO_SHARD: is the last change done? */
static bool
is_ready(KvStore *store, uint32 shard_id)
{
	return kv_split_is_possible(store) &&
		(shard_id == KV_NO_SHARD ||
		 *(volatile int *) &kv_shard(store, shard_id)->roles.compactor == 0);
}

/* Waits until is_ready.  ERROR if a backup or failing marks prevent that. */
static void
wait_until_ready(KvStore *store, uint32 shard_id)
{
	uint32		failed = pg_atomic_read_u32(&store->versions.failed);

	while (!is_ready(store, shard_id))
	{
		kv_backups_look();
		if (kv_backups_run())
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_IN_USE),
					 errmsg("cannot split %s while a base backup is running",
							kv_table_label(store->key.dboid, store->key.relid))));
		if (pg_atomic_read_u32(&store->versions.failed) - failed >= KV_MARK_FAILURES)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("could not complete the previous split of %s",
							kv_table_label(store->key.dboid, store->key.relid)),
					 errhint("See the server log for errors of \"kvfdw checkpointer\".")));
		if (shard_id != KV_NO_SHARD)
			kv_shard_await(kv_shard(store, shard_id));
		kv_nap(KV_LOOK_MSEC, KV_WAIT_SPLIT);
		CHECK_FOR_INTERRUPTS();
	}
}

int
kv_store_split(KvStore *store, bool at_end)
{
	int			before = kv_store_nshards(store);
	int			n = 0;
	uint32	   *shards = palloc(before * sizeof(uint32));

	/* excludes shards that these changes will add */
	kv_each_shard(store, i)
	{
		if (n < before)
			shards[n++] = i;
	}
	for (int i = 0; i < n; i++)
	{
		bool		outgrown = false;
		bool		done;

		/* another process may make a change first */
		do
		{
			wait_until_ready(store, at_end ? KV_NO_SHARD : shards[i]);
			done = at_end ? kv_shard_cut(store, shards[i], &outgrown) :
				kv_shard_split(store, shards[i], KV_SPLIT_MOST);
		} while (!done && !outgrown && !is_ready(store, at_end ? KV_NO_SHARD : shards[i]));
	}
	wait_until_ready(store, KV_NO_SHARD);
	pfree(shards);
	return kv_store_nshards(store);
}
