/*
 * schema.c
 *		Reads and changes the table file of an open store: the schema image, and the
 *		transaction that created the store.
 */
#include "postgres.h"

#include "access/xlog.h"

#include "engine/base/types.h"
#include "engine/engine.h"
#include "engine/format/format.h"
#include "engine/lifecycle/lifecycle.h"
#include "engine/shard/shard.h"
#include "engine/xact/xact.h"

uint32
kv_store_get_schema(KvStore *store, StringInfo into)
{
	KvStoreShape shape;
	uint32		incarnation;

	kv_table_file_require(&store->key, &shape, into, &incarnation);
	return incarnation;
}

void
kv_store_set_schema(KvStore *store, const char *data, int len)
{
	KvStoreShape shape;

	/* two sessions may write the same at once */
	LWLockAcquire(&kv_registry->lock, LW_EXCLUSIVE);

	/* an earlier change of the file may have failed before shared memory was changed */
	kv_table_file_require(&store->key, &shape, NULL, NULL);
	if (!RecoveryInProgress() && len > 0)
		kv_wal_log_schema(&store->key, data, len);
	kv_table_file_write(&store->key, &shape, data, len, kv_writing_incarnation());
	LWLockRelease(&kv_registry->lock);
}

/* Change the creator in the table file and in shared memory. */
static void
replace_creator(KvStore *store, uint64 creator, uint32 incarnation)
{
	StringInfoData schema;

	initStringInfo(&schema);
	LWLockAcquire(&kv_registry->lock, LW_EXCLUSIVE);
	if (pg_atomic_read_u32(&store->state) != KV_STORE_DROPPED)
	{
		KvStoreShape shape;
		uint32		schema_incarnation;

		if (kv_table_file_read(&store->key, &shape, &schema, &schema_incarnation))
		{
			shape.creator = creator;
			shape.creator_incarnation = incarnation;
			kv_table_file_write(&store->key, &shape, schema.data, schema.len,
								schema_incarnation);
			store->shape.creator = creator;
			store->shape.creator_incarnation = incarnation;
		}
	}
	LWLockRelease(&kv_registry->lock);
	pfree(schema.data);
}

/* Also for a store that cannot be used: it must be certain that it is the live one. */
void
kv_store_resolve_creator(KvStore *store)
{
	if (store->shape.creator != 0 && store->shape.creator < kv_xid_ended() &&
		kv_clog_has(store->shape.creator) &&
		kv_xid_status(store->shape.creator, store->shape.creator_incarnation) == KV_XID_COMMITTED)
		replace_creator(store, 0, store->shape.creator_incarnation);
}

void
kv_store_trust_creator(KvStore *store)
{
	if (store->shape.creator != 0 && store->shape.creator_incarnation != 0)
		replace_creator(store, store->shape.creator, 0);
}
