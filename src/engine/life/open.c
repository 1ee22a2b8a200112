/*
 * open.c
 *		Opening a store: one process recovers it, others wait.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "utils/lsyscache.h"

#include "engine/base/types.h"
#include "engine/base/wait.h"
#include "engine/engine.h"
#include "engine/format/format.h"
#include "engine/life/life.h"
#include "engine/shard/shard.h"
#include "engine/slot/slot.h"
#include "engine/xact/xact.h"

/* The WAL learns that the store is there, and what its schema image is. */
static void
introduce(KvStore *store)
{
	KvKey	   *bounds = palloc0(sizeof(KvKey) * store->shape.nshards);
	KvMap	   *first = kv_map_file_read(&store->key, store->shape.nshards);
	StringInfoData schema;

	for (int i = 0; i < store->shape.nshards; i++)
		bounds[i] = kv_map_bound(first, i);
	initStringInfo(&schema);
	kv_store_get_schema(store, &schema);
	kv_wal_log_create(&store->key, &store->shape, bounds);
	kv_store_set_schema(store, schema.data, schema.len);
	pfree(schema.data);
	pfree(first);
	pfree(bounds);
}

/*
 * May the WAL lack the store?  One of a library that logged nothing gets an identity
 * now.  And a server that died between a store's directory and its CREATE record has
 * left one that nobody has written to.
 */
static bool
may_be_unknown(KvStore *store)
{
	if (store->shape.id == 0)
	{
		store->shape.id = pg_atomic_fetch_add_u64(&kv_slot_pool->sequence, 1);
		return true;
	}
	if (store->shape.creator_incarnation == kv_writing_incarnation())
		return false;
	kv_each_shard(store, i)
	{
		const KvShard *shard = kv_shard(store, i);

		if (shard->nchunks > 0 || shard->log_tail > sizeof(KvLogHeader) ||
			shard->files.base_run != 0 || shard->files.nunfrozen > 0)
			return false;
	}
	return true;
}

/* The opener is done.  A DROP may have come in between: then it stays dropped. */
static void
end_opening(KvStore *store, KvStoreState state)
{
	uint32		opening = KV_STORE_OPENING;

	(void) pg_atomic_compare_exchange_u32(&store->state, &opening, state);
	ConditionVariableBroadcast(&store->opened);
}

static void
opening_failed(int code, Datum arg)
{
	end_opening((KvStore *) DatumGetPointer(arg), KV_STORE_CLOSED);
}

static void
raise_unusable(const KvStore *store)
{
	char	   *name = store->key.dboid == MyDatabaseId ? get_rel_name(store->key.relid) : NULL;

	int			sqlerrcode;
	char	   *why = kv_store_why_unusable(&store->key, &sqlerrcode);

	ereport(ERROR,
			(errcode(sqlerrcode),
			 errmsg("data of table \"%s\" is not available on this server",
					name ? name : psprintf("%u", store->key.relid)),
			 errdetail_internal("%s", why),
			 errhint(RecoveryInProgress() ?
					 "TRUNCATE the table on the primary server and load its data again." :
					 "TRUNCATE the table and load its data again.")));
}

void
kv_store_ensure_open(KvStore *store)
{
	if (unlikely(store->shape.unusable))
		raise_unusable(store);
	for (;;)
	{
		uint32		state = KV_STORE_CLOSED;

		if (likely(pg_atomic_read_u32(&store->state) == KV_STORE_OPEN))
			return;
		if (pg_atomic_compare_exchange_u32(&store->state, &state, KV_STORE_OPENING))
		{
			PG_ENSURE_ERROR_CLEANUP(opening_failed, PointerGetDatum(store));
			{
				kv_store_recover(store);
				if (!RecoveryInProgress() && may_be_unknown(store))
					introduce(store);
			}
			PG_END_ENSURE_ERROR_CLEANUP(opening_failed, PointerGetDatum(store));
			end_opening(store, KV_STORE_OPEN);
			continue;
		}
		if (state == KV_STORE_DROPPED)
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_TABLE),
					 errmsg("table was dropped")));
		ConditionVariablePrepareToSleep(&store->opened);
		while (pg_atomic_read_u32(&store->state) == KV_STORE_OPENING)
			ConditionVariableSleep(&store->opened, KV_WAIT_RECOVERY);
		ConditionVariableCancelSleep();
	}
}
