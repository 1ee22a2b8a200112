/*
 * yield.c
 *		The events that a running job reacts to: interrupts, DROP, other stores that are due.
 *
 * Other stores concern only kvfdw compactor.  A store that becomes due waits for the job, which
 * hurries then.  A sort job gives way if that store is nearer to its limit than to its mark, or if
 * a writer waits for space.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "engine/base/error.h"
#include "engine/base/types.h"
#include "engine/base/wait.h"
#include "engine/base/worker.h"
#include "engine/compact/internal.h"
#include "engine/shard/space.h"

#define KV_OTHERS_LOOK_US 50000	/* minimum time between two checks of the stores that are due */

static const KvStore *passing = NULL;	/* the store of the running job */
static bool	job_sorts;
/* another store is due; during a sort job also the job's own */
static bool others_wait;
static bool	others_urgent;		/* such a store has come near its limit */

void
kv_yield_begin(const KvStore *store, bool sorts, bool others)
{
	passing = store;
	job_sorts = sorts;
	others_wait = others;
	others_urgent = false;
}

void
kv_yield_end(void)
{
	passing = NULL;
}

void
kv_job_interrupts(const KvStore *store)
{
	kv_maintenance_interrupts();
	kv_worker_reload();
	if (pg_atomic_read_u32(unconstify(pg_atomic_uint32 *, &store->state)) == KV_STORE_DROPPED)
		kv_raise_dropped(store->key.dboid, store->key.relid);
}

/* Is the distance to the store's limit less than what it is beyond its mark? */
static bool
is_pressing(KvStore *store)
{
	int64		left;
	int64		bound_left;

	kv_space_left(store, &left, &bound_left);
	return bound_left < -left;
}

/* Checks the stores that may have become due. */
static void
look_at_others(void)
{
	bool		backup = kv_backups_run();
	TimestampTz when = DT_NOEND;
	List	   *stores = kv_stores_pin_state(InvalidOid, KV_STORE_OPEN);
	ListCell   *cell;

	PG_TRY();
	{
		foreach(cell, stores)
		{
			KvStore    *store = lfirst(cell);
			KvTask		task = {0};

			if ((store == passing && !job_sorts) || !kv_is_compacted_here(store) ||
				!kv_space_is_due(store))
				continue;
			if (!kv_task_find_due(store, backup, &when, &task))
				continue;
			others_wait = true;
			others_urgent |= is_pressing(store);
		}
	}
	PG_FINALLY();
	{
		kv_stores_unpin(stores);
	}
	PG_END_TRY();
}

bool
kv_job_is_awaited(void)
{
	static TimestampTz looked = 0;
	TimestampTz now = kv_clock();

	/* a store at its mark may be new, so it need not be due, and its writers need an answer */
	if (passing != NULL && (!others_wait || now - looked >= KV_OTHERS_LOOK_US) &&
		pg_atomic_exchange_u32(&kv_compactor->wanted, 0) != 0)
	{
		look_at_others();
		looked = now;
	}
	return others_wait;
}

bool
kv_job_gives_way(void)
{
	return kv_job_is_awaited() && (others_urgent || kv_space_is_awaited());
}
