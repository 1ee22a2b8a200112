/*
 * enginestat.c
 *		The engine's counters as the SQL side reads them.
 */
#include "postgres.h"

#include "engine/internal.h"

static void
describe(KvStore *store, KvStoreStats *stats)
{
	uint64		values[KV_COUNTERS];

	for (int i = 0; i < KV_COUNTERS; i++)
		values[i] = pg_atomic_read_u64(&store->counters[i]);
	memset(stats, 0, sizeof(*stats));
	stats->dboid = store->key.dboid;
	stats->relid = store->key.relid;
	stats->generation = store->key.generation;
	stats->wal = store->wal;
	stats->unusable = store->unusable;
	stats->shards = store->nshards;
	stats->inserts = values[KV_COUNT_INSERTS];
	stats->updates = values[KV_COUNT_UPDATES];
	stats->deletes = values[KV_COUNT_DELETES];
	stats->point_reads = values[KV_COUNT_POINT_READS];
	stats->range_scans = values[KV_COUNT_RANGE_SCANS];
	stats->rows_read = values[KV_COUNT_ROWS_READ];
	stats->device_reads = values[KV_COUNT_DEVICE_READS];
	stats->device_read_bytes = values[KV_COUNT_DEVICE_READ_BYTES];
	stats->value_bytes = values[KV_COUNT_VALUE_BYTES];
	stats->device_write_bytes = values[KV_COUNT_DEVICE_WRITE_BYTES];
	stats->slot_hits = values[KV_COUNT_SLOT_HITS];
	stats->cache_hits = values[KV_COUNT_CACHE_HITS];
	stats->freezes = values[KV_COUNT_FREEZES];
	stats->spills = values[KV_COUNT_SPILLS];
	stats->recovered_entries = values[KV_COUNT_RECOVERED_ENTRIES];
	stats->recovered_slots = values[KV_COUNT_RECOVERED_SLOTS];
	stats->recovery_ms = values[KV_COUNT_RECOVERY_MS];
	stats->lost_entries = values[KV_COUNT_LOST_ENTRIES];
	stats->lost_log_bytes = values[KV_COUNT_LOST_LOG_BYTES];
	if (store->unusable)
		return;
	stats->rows = kv_store_row_estimate(store);
	for (int i = 0; i < store->nshards; i++)
	{
		const KvShard *shard = kv_shard(store, i);

		stats->delta_bytes += shard->active.bytes + shard->sealed.bytes;
		stats->runs += shard->nunfrozen + (shard->base_run != 0);
	}
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

			if (pg_atomic_read_u32(&store->state) != KV_STORE_OPEN && !store->unusable)
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

/* Counters to zero; what describes the present state stays. */
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
	kv_range_stats_reset();
}
