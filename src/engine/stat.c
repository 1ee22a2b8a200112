/*
 * stat.c
 *		The engine's statistics for the SQL side: counters, sizes, the server's version; and which
 *		tables are due for ANALYZE.
 */
#include "postgres.h"

#include <sys/stat.h>

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_database.h"
#include "miscadmin.h"
#include "postmaster/autovacuum.h"
#include "postmaster/bgworker.h"
#include "storage/fd.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "engine/base/shared.h"
#include "engine/base/types.h"
#include "engine/base/worker.h"
#include "engine/buffer/buffer.h"
#include "engine/cache/cache.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/engine.h"
#include "engine/format/format.h"
#include "engine/format/path.h"
#include "engine/io/fault.h"
#include "engine/io/io.h"
#include "engine/maintainer.h"
#include "engine/maintenance.h"
#include "engine/rows.h"
#include "engine/shard/map.h"
#include "engine/shard/obsolete.h"
#include "engine/shard/shard.h"
#include "engine/shard/space.h"
#include "engine/shard/valuefiles.h"
#include "engine/xact/xact.h"
#include "report.h"

uint64
kv_store_row_estimate(KvStore *store)
{
	uint64		rows = 0;

	kv_each_shard(store, i)
	{
		const KvShard *shard = kv_shard(store, i);

		rows += shard->files.frozen_keys + shard->files.unfrozen_entries +
			shard->active.nitems + shard->immutable.nitems;
	}
	return rows;
}

/* Bytes of a directory's files. */
static uint64
directory_size(const char *path)
{
	char	   *directory = pstrdup(path);
	DIR		   *dir = AllocateDir(directory);
	struct dirent *de;
	uint64		bytes = 0;

	while ((de = ReadDirExtended(dir, directory, LOG)) != NULL)
	{
		char	   *path = psprintf("%s/%s", directory, de->d_name);
		struct stat st;

		if (stat(path, &st) == 0 && S_ISREG(st.st_mode))
			bytes += st.st_size;
		pfree(path);
	}
	FreeDir(dir);
	pfree(directory);
	return bytes;
}

uint64
kv_store_size(KvStore *store)
{
	uint64		bytes = directory_size(kv_path_store(&store->key));
	List	   *paths = kv_space_directories(&store->key);
	ListCell   *cell;

	foreach(cell, paths)
	{
		if (access(lfirst(cell), F_OK) == 0 || errno != ENOENT)
			bytes += directory_size(lfirst(cell));
	}
	list_free_deep(paths);
	return bytes;
}

/*
 * Count the value files of a shard.  Value files that other shards may
 * list, too, are added to addresses and counted for the first shard only.
 */
static KvAddress *
add_value_files(KvShard *shard, KvAddress *addresses, int *n, KvStoreStats *stats)
{
	int			before = *n;

	LWLockAcquire(&shard->lock, LW_SHARED);
	for (int i = 0; i < shard->values.n; i++)
	{
		const KvShardValueFile *value_file = &kv_value_files(shard)[i];
		KvAddress	address = value_file->value_file.address;

		if (value_file->value_file.flags & KV_VALUE_FILE_SHARED)
		{
			if (bsearch(&address, addresses, before, sizeof(KvAddress), kv_address_compare) != NULL)
				continue;
			addresses = addresses == NULL ? palloc(sizeof(KvAddress)) :
				repalloc_huge(addresses, (*n + 1) * sizeof(KvAddress));
			addresses[(*n)++] = address;
		}
		stats->value_files++;
		stats->value_file_bytes += kv_value_file_end(shard, value_file) - address;
	}
	LWLockRelease(&shard->lock);
	if (*n > before)
		qsort(addresses, *n, sizeof(KvAddress), kv_address_compare);
	return addresses;
}

static void
describe(KvStore *store, KvStoreStats *stats)
{
	KvAddress  *addresses = NULL;
	int			nplaces = 0;
	KvObsoleteBytes obsolete;
	KvStoreSpace space;

	memset(stats, 0, sizeof(*stats));
	stats->dboid = store->key.dboid;
	stats->relid = store->key.relid;
	stats->generation = store->key.generation;
	stats->wal = store->shape.wal;
	stats->unusable = store->shape.unusable;
	stats->shards = kv_store_nshards(store);
	for (int i = 0; i < KV_COUNTERS; i++)
		stats->counts[i] = pg_atomic_read_u64(&store->counters[i]);
	if (store->shape.unusable)
		return;
	stats->rows = kv_store_row_estimate(store);

	/* in this order, so that files that leave lists, or are removed, are not counted twice */
	stats->obsolete_bytes = pg_atomic_read_u64(&store->space.freeing);
	KV_STOP_POINT("stat_freeing");
	obsolete = kv_obsolete_bytes(store, PG_UINT64_MAX);
	stats->obsolete_value_files = obsolete.n;
	stats->obsolete_bytes += obsolete.all;
	kv_each_shard(store, i)
	{
		KvShard    *shard = kv_shard(store, i);

		stats->memtable_bytes += shard->active.bytes + shard->immutable.bytes;
		stats->runs += shard->files.nunfrozen + (shard->files.base_run != 0);
		addresses = add_value_files(shard, addresses, &nplaces, stats);
	}
	kv_store_space(store, &space);
	stats->live_bytes = space.all.live + space.all.kept - space.all.stuck - space.all.failed;
	stats->unsorted_bytes = space.all.unsorted;
	stats->space_bound = space.bound == PG_UINT64_MAX ? space.bound :
		space.bound + space.given_up + space.granted;
	stats->space_waits_for = kv_space_wait_names[pg_atomic_read_u32(&store->space.waits)];
	if (stats->obsolete_bytes > 0)
		stats->obsolete_waits_for = kv_obsolete_wait_names[obsolete.waits];
}

void
kv_stat_stores(Oid dboid, void (*each) (void *arg, const KvStoreStats *stats), void *arg)
{
	List	   *stores = list_concat(kv_stores_pin_state(dboid, KV_STORE_OPEN),
									 kv_stores_pin_state(dboid, KV_STORE_CLOSED));
	ListCell   *cell;

	PG_TRY();
	{
		foreach(cell, stores)
		{
			KvStore    *store = lfirst(cell);
			KvStoreStats stats;

			if (pg_atomic_read_u32(&store->state) != KV_STORE_OPEN && !store->shape.unusable)
				continue;
			describe(store, &stats);
			each(arg, &stats);
		}
	}
	PG_FINALLY();
	{
		kv_stores_unpin(stores);
	}
	PG_END_TRY();
}

static void
describe_shards(KvStore *store, void (*each) (void *arg, const KvShardStats *stats), void *arg)
{
	uint64		horizon = kv_xid_horizon();
	uint32		shard_id;

	for (uint32 position = 0; kv_shard_at(store, position, &shard_id, NULL); position++)
	{
		const KvShard *shard = kv_shard(store, shard_id);
		KvShardSpace space;
		KvShardStats stats = {
			.relid = store->key.relid, .generation = store->key.generation,
			.shard = shard_id, .position = position,
			.entries = shard->files.frozen_keys + shard->files.unfrozen_entries +
			shard->active.nitems + shard->immutable.nitems,
			.memtable_bytes = shard->active.bytes + shard->immutable.bytes,
			.runs = shard->files.nunfrozen + (shard->files.base_run != 0)
		};

		CHECK_FOR_INTERRUPTS();
		kv_shard_space(store, shard_id, horizon, &space);
		stats.value_file_bytes = space.taken;
		stats.live_bytes = space.live + space.kept - space.stuck - space.failed;
		stats.unsorted_bytes = space.unsorted;
		each(arg, &stats);
	}
}

void
kv_stat_shards(Oid dboid, void (*each) (void *arg, const KvShardStats *stats), void *arg)
{
	List	   *stores = kv_stores_pin_state(dboid, KV_STORE_OPEN);
	ListCell   *cell;

	PG_TRY();
	{
		foreach(cell, stores)
			describe_shards(lfirst(cell), each, arg);
	}
	PG_FINALLY();
	{
		kv_stores_unpin(stores);
	}
	PG_END_TRY();
}

void
kv_stat_reset(void)
{
	List	   *stores = kv_stores_pin_state(InvalidOid, KV_STORE_OPEN);
	ListCell   *cell;

	foreach(cell, stores)
	{
		KvStore    *store = lfirst(cell);

		for (int i = 0; i < KV_COUNTERS; i++)
			pg_atomic_write_u64(&store->counters[i], 0);
	}
	kv_stores_unpin(stores);
	kv_io_stats_reset();
	kv_buffers_stats_reset();
	kv_source_stats_reset();
	kv_checkpointer_stats_reset();
}

/* Sums over the open stores. */
typedef struct KvStoreSums
{
	uint64		counts[KV_COUNTERS];
	uint64		value_file_bytes;
	uint64		live_bytes;
} KvStoreSums;

static void
add_store(void *arg, const KvStoreStats *stats)
{
	KvStoreSums *sums = arg;

	for (int i = 0; i < KV_COUNTERS; i++)
		sums->counts[i] += stats->counts[i];
	sums->value_file_bytes += stats->value_file_bytes;
	sums->live_bytes += stats->live_bytes;
}

/* The number of failed reads of value files. */
static uint64
failed_reads(void)
{
	KvIoStats	kinds[KV_IO_KINDS];

	(void) kv_stat_io(kinds, lengthof(kinds));
	return kinds[KV_IO_VALUE_READ].errors;
}

void
kv_stat_caches(void (*each) (void *arg, const KvCacheStats *stats), void *arg)
{
	KvStoreSums sums = {{0}};
	KvCacheStats buffers = {"write buffers"};
	KvCacheStats device = {"device", true};

	kv_stat_stores(InvalidOid, add_store, &sums);
	buffers.hits = sums.counts[KV_COUNT_BUFFER_HITS];
	buffers.dropped = buffers.errors = KV_NO_COUNT;
	for (int why = KV_MISS_NONE + 1; why < KV_MISSES; why++)
		buffers.misses[why] = device.misses[why] = KV_NO_COUNT;
	kv_buffers_stats(&buffers);
	device.hits = sums.counts[KV_COUNT_DEVICE_READS];
	device.block_size = device.inserted = device.evictions = device.dropped = KV_NO_COUNT;
	device.errors = failed_reads();
	device.size_bytes = sums.value_file_bytes;
	device.used_bytes = sums.live_bytes;

	each(arg, &buffers);
	kv_source_stats(sums.counts, each, arg);
	each(arg, &device);
}

int
kv_server_version(void)
{
	int			version = kv_fault_server_version();

	return version != 0 ? version : atoi(GetConfigOption("server_version_num", false, false));
}

/* ---- tables that are due for ANALYZE ---- */

/*
 * Autovacuum skips foreign tables.  So once per autovacuum_naptime the maintainer looks for
 * stores that have changed enough, and starts a worker in each of their databases, one after
 * the other (fdw/analyze.c).  The thresholds are autovacuum's, and depend on the catalog.
 * So a worker checks each store once after a start or a change of settings, and notes how many
 * changes make it due.
 *
 * For PostgreSQL the worker is an autovacuum worker: a process that waits for its lock, or for
 * its database, cancels it.
 */

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
