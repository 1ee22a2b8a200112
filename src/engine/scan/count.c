/*
 * count.c
 *		Counts the visible rows of a range without reading their values.
 *
 * All entries of a base run are visible and have different keys, so they are counted page by page.
 * Entries in the memtables and unfrozen runs take precedence.  Each such key adds a row if it has a
 * visible one, and subtracts the base run's entry if that has one.
 *
 * As for a batch (rows.c), the memtables are read under the shard's lock, a limited number of keys
 * at a time.  The runs are read without it, up to the same key; the generation that was checked
 * under the lock shows that they belong together.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/memutils.h"

#include "engine/base/key.h"
#include "engine/base/types.h"
#include "engine/index/run.h"
#include "engine/maintenance.h"
#include "engine/rows.h"
#include "engine/scan/internal.h"
#include "engine/shard/shard.h"

/* maximum number of keys of the memtables that are read under one lock */
#define KV_COUNT_KEYS		1024

static bool
run_has(KvRun *run, const uint8 *key, int keylen)
{
	KvRunCursor cursor;

	kv_run_seek(run, key, keylen, &cursor);
	return kv_run_is_at(&cursor, key, keylen);
}

/* Is [lo, hi) empty?  This happens if a dead range extends beyond the end. */
static bool
is_empty(KvKey lo, KvKey hi)
{
	return lo.data != NULL && hi.data != NULL && kv_key_order(&lo, &hi) >= 0;
}

/* The number of rows that keys add to the base run's count, or subtract if negative. */
static int64
count_recent(KvKeyReader *keys, KvRun *base)
{
	KvBatchRow	row;
	int64		count = 0;

	while (kv_keys_next(keys, &row))
		count += (int) row.present - (int) (base != NULL && run_has(base, row.key, row.keylen));
	return count;
}

uint64
kv_scan_count(KvScan *scan, KvKey lo, KvKey hi)
{
	KvBounds	bounds = {.lo = lo, .hi = hi};
	uint8		start[KV_MAX_KEY + 1];
	uint64		count = 0;
	KvKeyReader keys;

	scan->nrows = scan->next_row = 0;
	scan->at_end = true;
	kv_stat_add(scan->store, KV_COUNT_RANGE_SCANS, 1);
	for (;;)
	{
		const KvRunSet *set;
		KvRun	   *base;
		KvKey		end = hi;		/* end of the present step */
		bool		more;

		CHECK_FOR_INTERRUPTS();
		kv_batch_clear(scan);
		set = kv_keys_begin(&keys, scan, &bounds, KV_COUNT_KEYS, KV_ITEMS_MOST, MaxAllocHugeSize);
		base = set->has_base ? set->runs[set->nruns - 1] : NULL;
		more = !keys.complete;
		if (more)
		{
			/* up to the first key after the limit */
			uint8      *after = MemoryContextAllocZero(scan->batch_context, keys.limit.len + 1);

			memcpy(after, keys.limit.data, keys.limit.len);
			end = (KvKey) {after, keys.limit.len + 1};
		}
		else if (keys.edge.data != NULL &&
				 (hi.data == NULL || kv_key_order(&keys.edge, &hi) < 0))
		{
			end = keys.edge;
			more = true;
		}
		if (base != NULL && !keys.nothing && !is_empty(keys.bounds.lo, end))
			count += kv_run_count(base, keys.bounds.lo, end, PG_UINT64_MAX);
		kv_keys_add_runs(&keys, set->runs, set->nruns - (base != NULL));
		count += count_recent(&keys, base);
		kv_run_trust();
		if (!more)
			return count;
		memcpy(start, end.data, end.len);
		bounds.lo = (KvKey) {start, end.len};
	}
}
