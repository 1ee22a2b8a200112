/*
 * unlogged.c
 *		Stores of level 'full' that their transaction makes and fills without WAL, where wal_level
 *		is 'minimal'.
 *
 * As heap, whose relations are synced at COMMIT if they were made in the transaction: there are no
 * standbys and no archive that would need the WAL, and before COMMIT no crash needs the rows.  A
 * store is made in a transaction by the first row of a table that it has created, by TRUNCATE, and
 * by ALTER that copies all rows.  Until COMMIT no other transaction can write to it.
 *
 * Before the commit record all shards of the store get marks (durable/mark.c), which the
 * checkpointer makes on request.  So a crash after COMMIT sets the shards back to marks that have
 * all rows, and redo adds what is logged later.  A crash before leaves a store whose maker has
 * aborted, as at any wal_level.
 *
 * Either all versions of a store up to COMMIT are logged or none.  If an old version of a key was
 * logged, and a newer one was not, redo would write the old one on top of the mark.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "miscadmin.h"
#include "utils/memutils.h"

#include "engine/base/types.h"
#include "engine/base/wait.h"
#include "engine/durable/durable.h"
#include "engine/engine.h"
#include "engine/io/fault.h"
#include "engine/lifecycle/lifecycle.h"
#include "engine/shard/map.h"
#include "engine/shard/shard.h"
#include "engine/shard/valuefiles.h"

#define KV_ASKED_MS		1000	/* after that, marks are requested again */
#define KV_POLLED_MS	5

typedef struct KvUnloggedStore
{
	KvStore    *store;
	KvStoreKey	key;			/* the store's; a savepoint may have rolled it back */
} KvUnloggedStore;

static List *made = NIL;		/* KvUnloggedStore; in TopTransactionContext */
static uint64 made_by = 0;		/* of this transaction */

/* The list; that of an earlier transaction was freed with its context. */
static List *
stores_made(void)
{
	uint64		xid = U64FromFullTransactionId(GetTopFullTransactionId());

	if (made_by != xid)
		made = NIL;
	made_by = xid;
	return made;
}

void
kv_unlogged_note(KvStore *store)
{
	MemoryContext old;
	KvUnloggedStore *one;

	if (store->shape.wal != KV_WAL_FULL || XLogIsNeeded() || RecoveryInProgress())
		return;
	old = MemoryContextSwitchTo(TopTransactionContext);
	one = palloc(sizeof(KvUnloggedStore));
	one->store = store;
	one->key = store->key;
	made = lappend(stores_made(), one);
	MemoryContextSwitchTo(old);
	store->unlogged = KV_UNLOGGED;
}

static void
request_marks(KvStore *store)
{
	kv_each_shard(store, i)
		kv_shard_want_mark(kv_shard(store, i));
	kv_wake(kv_registry->checkpointer);
}

static bool
are_marked(KvStore *store)
{
	kv_each_shard(store, i)
	{
		if (!kv_shard_has_mark(kv_shard(store, i)))
			return false;
	}
	return kv_map_is_marked(store);
}

static void
wait_for_marks(KvStore *store)
{
	uint32		failed = pg_atomic_read_u32(&store->versions.failed);

	for (int waited = 0; !are_marked(store); waited += KV_POLLED_MS)
	{
		CHECK_FOR_INTERRUPTS();
		if (pg_atomic_read_u32(&store->versions.failed) != failed)
			ereport(ERROR,
					(errcode(ERRCODE_IO_ERROR),
					 errmsg("could not make kvfdw tables durable that this transaction has created "
							"or truncated"),
					 errhint("See the server log for errors of \"kvfdw checkpointer\".")));
		if (waited > 0 && waited % KV_ASKED_MS == 0)
			request_marks(store);
		kv_nap(KV_POLLED_MS, KV_WAIT_CHECKPOINTER);
	}
}

/* A change of the map during the wait may have made shards that have no mark. */
static void
make_marks(KvStore *store)
{
	uint32		map;

	do
	{
		map = pg_atomic_read_u32(&store->map.number);
		request_marks(store);
		wait_for_marks(store);
	} while (pg_atomic_read_u32(&store->map.number) != map);
}

static void
end_unlogged(KvStore *store)
{
	if (store->unlogged == KV_UNLOGGED_ROWS)
	{
		pg_atomic_fetch_add_u32(&kv_registry->marks_awaited, 1);
		PG_TRY();
		{
			make_marks(store);
		}
		PG_FINALLY();
		{
			pg_atomic_fetch_sub_u32(&kv_registry->marks_awaited, 1);
		}
		PG_END_TRY();
	}
	store->unlogged = KV_LOGGED;
}

void
kv_engine_before_commit_of_stores(void)
{
	ListCell   *cell;

	if (made == NIL || !TransactionIdIsValid(GetTopTransactionIdIfAny()))
		return;
	foreach(cell, stores_made())
	{
		const KvUnloggedStore *one = lfirst(cell);

		if (kv_store_live(&one->key) == one->store)
			end_unlogged(one->store);
	}
	made = NIL;
	KV_STOP_POINT("unlogged_marked");
}
