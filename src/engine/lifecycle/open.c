/*
 * open.c
 *		Opens a store: one process recovers it, others wait.  Changes the table file of an open
 *		store: the schema image, and the transaction that created the store.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/reloptions.h"
#include "access/xlog.h"
#include "catalog/pg_foreign_table.h"
#include "nodes/parsenodes.h"
#include "storage/ipc.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "compat.h"
#include "engine/base/error.h"
#include "engine/base/types.h"
#include "engine/base/wait.h"
#include "engine/format/format.h"
#include "engine/lifecycle/lifecycle.h"
#include "engine/shard/map.h"
#include "engine/shard/shard.h"
#include "engine/store.h"
#include "engine/xact/xact.h"

/* ---- the table file ---- */

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

/* ---- opening ---- */

/* Log that the store exists, and its schema image. */
static void
introduce(KvStore *store)
{
	KvKey	   *bounds = palloc0(sizeof(KvKey) * store->shape.nshards);
	KvMap	   *first = kv_map_present(store);	/* it has no rows, so it has not been split */
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
 * May the store be missing in the WAL?  A server that died between creating a store's directory
 * and logging its CREATE record has left a store without data.
 */
static bool
may_be_unknown(KvStore *store)
{
	if (store->shape.creator_incarnation == kv_writing_incarnation())
		return false;
	kv_each_shard(store, i)
	{
		const KvShard *shard = kv_shard(store, i);

		if (shard->values.n > 0 || shard->log.tail > sizeof(KvLogHeader) ||
			shard->files.base_run != 0 || shard->files.nunfrozen > 0)
			return false;
	}
	return true;
}

/* The opener has finished.  If there was a DROP in between the store stays dropped. */
static void
end_opening(KvStore *store, KvStoreState state)
{
	uint32		opening = KV_STORE_OPENING;

	(void) pg_atomic_compare_exchange_u32(&store->state, &opening, state);
	ConditionVariableBroadcast(&store->opening.opened);
}

static void
opening_failed(int code, Datum arg)
{
	end_opening((KvStore *) DatumGetPointer(arg), KV_STORE_CLOSED);
}

/* Does the table have the option "wal"?  The caller is connected to its database. */
static bool
has_wal_option(Oid relid)
{
	HeapTuple	tuple = SearchSysCache1(FOREIGNTABLEREL, ObjectIdGetDatum(relid));
	bool		found = false;
	bool		isnull;
	Datum		options;
	ListCell   *cell;

	if (!HeapTupleIsValid(tuple))
		return false;
	options = SysCacheGetAttr(FOREIGNTABLEREL, tuple, Anum_pg_foreign_table_ftoptions, &isnull);
	foreach(cell, isnull ? NIL : untransformRelOptions(options))
		found |= strcmp(((const DefElem *) lfirst(cell))->defname, "wal") == 0;
	ReleaseSysCache(tuple);
	return found;
}

/*
 * Raise the error for rows that are on another server, or were: the hint must not lose them
 * there. name: for SQL, or NULL.
 */
KV_NORETURN static void
raise_not_logged(const KvStore *store, const char *label, const char *name)
{
	bool		given = name != NULL && has_wal_option(store->key.relid);
	const char *level = store->shape.wal == KV_WAL_KEYS ? "keys" : "none";
	const char *what = psprintf(given ? "option wal '%s'" : "wal level '%s'", level);

	if (RecoveryInProgress())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot access %s on a standby server", label),
				 errdetail("The table has the %s, so its rows are not replicated.", what),
				 name != NULL ?
				 errhint("Query the primary server. To replicate the table, run there: ALTER "
						 "FOREIGN TABLE %s OPTIONS (%s wal 'full').",
						 name, given ? "SET" : "ADD") :
				 errhint("Query the primary server.")));
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("rows of %s are not on this server", label),
			 errdetail("The table has the %s; this server was promoted from a standby, or started "
					   "from a backup.",
					   what),
			 errhint("If another server still has the rows, copy them from there. TRUNCATE makes "
					 "the table usable here, and empty.")));
}

KV_NORETURN static void
raise_unusable(const KvStore *store)
{
	const KvStoreKey *key = &store->key;
	const char *name = kv_table_sql_name(key->dboid, key->relid);
	const char *label = name == NULL ? kv_table_label(key->dboid, key->relid) :
		psprintf("foreign table \"%s\"", get_rel_name(key->relid));
	int			sqlerrcode;
	bool		not_logged;
	char	   *why = kv_store_why_unusable(key, &sqlerrcode, &not_logged);

	if (not_logged)
		raise_not_logged(store, label, name);
	ereport(ERROR,
			(errcode(sqlerrcode),
			 errmsg("%s is unusable on this server", label),
			 why[0] != '\0' && why[strlen(why) - 1] == '.' ? errdetail_internal("%s", why) :
			 errdetail("Recovery failed for it: %s.", why),
			 RecoveryInProgress() ?
			 errhint("If the primary server can read the table, re-create this standby server from "
					 "a new base backup.") :
			 errhint("Restore this server from a base backup, or copy the rows from another "
					 "server. TRUNCATE the table only if its rows are stored elsewhere.")));
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
			kv_raise_dropped(store->key.dboid, store->key.relid);
		ConditionVariablePrepareToSleep(&store->opening.opened);
		while (pg_atomic_read_u32(&store->state) == KV_STORE_OPENING)
			ConditionVariableSleep(&store->opening.opened, KV_WAIT_RECOVERY);
		ConditionVariableCancelSleep();
	}
}
