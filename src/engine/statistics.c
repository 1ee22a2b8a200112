/*
 * statistics.c
 *		Starts workers that analyze tables when they are due.
 *
 * Autovacuum skips foreign tables.  So once per autovacuum_naptime the maintainer looks for
 * stores that have changed enough, and starts a worker in each of their databases, one after
 * the other (fdw/analyze.c).  The thresholds are autovacuum's, and depend on the catalog.
 * So a worker checks each store once after a start or a change of settings, and notes how many
 * changes make it due.
 *
 * For PostgreSQL the worker is an autovacuum worker: a process that waits for its lock, or for
 * its database, cancels it.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_database.h"
#include "miscadmin.h"
#include "postmaster/autovacuum.h"
#include "postmaster/bgworker.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "report.h"
#include "engine/base/shared.h"
#include "engine/base/types.h"
#include "engine/base/worker.h"
#include "engine/io/fault.h"
#include "engine/maintenance.h"
#include "engine/shard/shard.h"
#include "engine/maintainer.h"

#define INVALID_DATABASE	(-2)	/* as datconnlimit: DROP DATABASE was interrupted */
#define TELL_MS				3600000
#define PATIENCE_MS			20000

/* ---- functions for the worker ---- */

static uint64
changes_since(KvStore *store)
{
	uint64		changes = pg_atomic_read_u64(&store->statistics.changes);
	uint64		analyzed = pg_atomic_read_u64(&store->statistics.analyzed);

	return changes > analyzed ? changes - analyzed : 0;
}

List *
kv_changes_of(Oid dboid)
{
	List	   *stores = kv_stores_pin_state(dboid, KV_STORE_OPEN);
	List	   *result = NIL;
	ListCell   *cell;

	foreach(cell, stores)
	{
		KvStore    *store = lfirst(cell);
		KvChanges  *changes;

		if (store->shape.unusable)
			continue;
		changes = palloc(sizeof(KvChanges));
		changes->relid = store->key.relid;
		changes->generation = store->key.generation;
		changes->since = changes_since(store);
		changes->analyzed = pg_atomic_read_u32(&store->statistics.done) != 0;
		changes->rows = kv_store_row_estimate(store);
		result = lappend(result, changes);
	}
	kv_stores_unpin(stores);
	return result;
}

void
kv_changes_again(Oid dboid, KvChanges *changes)
{
	KvStore    *store;

	KV_STOP_POINT("next_analyze");
	LWLockAcquire(&kv_registry->lock, LW_SHARED);
	store = kv_store_find(dboid, changes->relid, changes->generation);
	if (store != NULL)
	{
		changes->since = changes_since(store);
		changes->analyzed = pg_atomic_read_u32(&store->statistics.done) != 0;
	}
	LWLockRelease(&kv_registry->lock);
}

void
kv_changes_need(Oid dboid, const KvChanges *changes, uint64 needed)
{
	KvStore    *store;

	LWLockAcquire(&kv_registry->lock, LW_SHARED);
	store = kv_store_find(dboid, changes->relid, changes->generation);
	if (store != NULL)
		pg_atomic_write_u64(&store->statistics.needed, needed);
	LWLockRelease(&kv_registry->lock);
}

void
kv_analyze_attend(void)
{
	kv_worker_attend();
}

uint64
kv_changes_now(KvStore *store)
{
	uint64		changes = pg_atomic_read_u64(&store->statistics.changes);

	KV_STOP_POINT("analyze");
	return changes;
}

void
kv_changes_analyzed(KvStore *store, uint64 changes)
{
	pg_atomic_write_u64(&store->statistics.analyzed, changes);
	pg_atomic_write_u32(&store->statistics.done, 1);
}

/* ---- the maintainer ---- */

static List *databases = NIL;	/* databases left in this round */
static TimestampTz round_began = 0;
static BackgroundWorkerHandle *worker = NULL;

static bool
worker_runs(void)
{
	pid_t		pid;

	if (worker == NULL)
		return false;
	if (GetBackgroundWorkerPid(worker, &pid) != BGWH_STOPPED)
		return true;
	pfree(worker);
	worker = NULL;
	return false;
}

/* Collect the databases with due stores. */
static void
begin_round(List *stores)
{
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);
	ListCell   *cell;

	foreach(cell, stores)
	{
		KvStore    *store = lfirst(cell);

		if (!store->shape.unusable &&
			changes_since(store) >= pg_atomic_read_u64(&store->statistics.needed))
			databases = list_append_unique_oid(databases, store->key.dboid);
	}
	MemoryContextSwitchTo(old);
}

static bool
can_connect(Oid dboid)
{
	HeapTuple	tuple = SearchSysCache1(DATABASEOID, ObjectIdGetDatum(dboid));
	bool		valid;

	if (!HeapTupleIsValid(tuple))
		return false;
	valid = ((Form_pg_database) GETSTRUCT(tuple))->datconnlimit != INVALID_DATABASE;
	ReleaseSysCache(tuple);
	return valid;
}

/* Log, from time to time, that there was no place for a worker. */
static void
tell_missed(void)
{
	static TimestampTz told = 0;
	TimestampTz now = kv_clock();

	if (!TimestampDifferenceExceeds(round_began, now, PATIENCE_MS) ||
		(told != 0 && now >= told && !TimestampDifferenceExceeds(told, now, TELL_MS)))
		return;
	told = now;
	kv_report_not_started("kvfdw analyze", "kvfdw tables are not analyzed automatically.");
}

void
kv_statistics_start(KvStore *store, void *arg)
{
	MemoryContext old;
	Oid			dboid = linitial_oid(databases);

	if (!can_connect(dboid))
	{
		databases = list_delete_first(databases);
		return;
	}
	old = MemoryContextSwitchTo(TopMemoryContext);
	if (kv_worker_start("kvfdw analyze", "kv_analyze_worker_main", ObjectIdGetDatum(dboid),
						&worker))
		databases = list_delete_first(databases);
	else
	{
		/* it is tried again in a second */
		kv_worker_await_place(0);
		tell_missed();
	}
	MemoryContextSwitchTo(old);
}

bool
kv_statistics_due(List *stores)
{
	TimestampTz now = kv_clock();

	if (!AutoVacuumingActive() || worker_runs())
		return false;
	if (databases == NIL &&
		TimestampDifferenceExceeds(round_began, now, autovacuum_naptime * 1000))
	{
		round_began = now;
		begin_round(stores);
	}
	return databases != NIL;
}

void
kv_statistics_look_again(List *stores)
{
	ListCell   *cell;

	foreach(cell, stores)
		pg_atomic_write_u64(&((KvStore *) lfirst(cell))->statistics.needed, 0);
}
