/*
 * count.c
 *		Counts the rows of a range without making them.
 *
 * All entries of a base run are visible and of different keys, so they are
 * counted page by page.  What the deltas and the unfrozen runs say of a key
 * goes before that: each such key adds a row if it is there, and takes away the
 * base run's entry if that has one.
 *
 * As in a batch (batch.c), the deltas are read under the shard's lock, up to so
 * many keys at once, and the runs, whose generation was checked there, without
 * it, as far as the deltas were read.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/memutils.h"

#include "engine/batch.h"

#define KV_COUNT_KEYS		1024	/* keys of deltas taken under one lock */
#define KV_COUNT_STEPS		4096	/* and looked at */

/* A key of a delta of which the snapshot sees a version, or a deletion. */
typedef struct KvCountKey
{
	KvKey		key;
	bool		present;
} KvCountKey;

typedef struct KvCountDeltas
{
	KvCountKey	keys[KV_COUNT_KEYS];
	int			n;
	KvKey		end;			/* how far both deltas were read, exclusive */
	bool		complete;		/* as far as asked for */
} KvCountDeltas;

/* The key, with room for one zero byte behind it. */
static KvKey
copy_key(const KvScan *scan, const KvDeltaItem *item)
{
	uint8	   *bytes = MemoryContextAllocZero(scan->batch_context, item->keylen + 1);
	KvKey		key = {bytes, item->keylen};

	memcpy(bytes, item->key, item->keylen);
	return key;
}

static int
compare(KvKey a, KvKey b)
{
	return kv_key_compare(a.data, a.len, b.data, b.len);
}

/* Is the key before the end of a range? */
static bool
is_before(const uint8 *key, int keylen, KvKey end)
{
	return end.data == NULL || kv_key_compare(key, keylen, end.data, end.len) < 0;
}

/* Of two items the first one, which is both if 0. */
static int
compare_items(const KvDeltaItem *a, const KvDeltaItem *b)
{
	if (a == NULL || b == NULL)
		return a == b ? 0 : (a == NULL ? 1 : -1);
	return kv_key_compare(a->key, a->keylen, b->key, b->keylen);
}

/* Take the keys of both deltas from lo on.  Shard lock held. */
static void
take_keys(KvScan *scan, KvShard *shard, KvKey lo, KvKey hi, KvCountDeltas *deltas)
{
	KvDeltaCursor active_cursor;
	KvDeltaCursor sealed_cursor;
	const uint8 *start = lo.data ? lo.data : (const uint8 *) "";
	KvDeltaItem *active = kv_delta_seek(&shard->active, start, lo.len, &active_cursor);
	KvDeltaItem *sealed = kv_delta_seek(&shard->sealed, start, lo.len, &sealed_cursor);

	deltas->n = 0;
	for (int steps = 0;; steps++)
	{
		int			cmp = compare_items(active, sealed);
		KvDeltaItem *item = cmp <= 0 ? active : sealed;
		KvVersion	version;

		if (item == NULL || !is_before(item->key, item->keylen, hi))
		{
			deltas->end = hi;
			deltas->complete = true;
			return;
		}
		if ((cmp <= 0 && kv_chain_visible(active->newest, scan->snapshot, &version)) ||
			(cmp >= 0 && kv_chain_visible(sealed->newest, scan->snapshot, &version)))
		{
			deltas->keys[deltas->n].key = copy_key(scan, item);
			deltas->keys[deltas->n++].present = version.kind == KV_VERSION_PUT;
		}
		if (deltas->n == KV_COUNT_KEYS || steps == KV_COUNT_STEPS)
		{
			deltas->end = copy_key(scan, item);
			deltas->end.len++;	/* the first key behind it */
			deltas->complete = false;
			return;
		}
		if (cmp <= 0)
			active = kv_delta_next(&active_cursor);
		if (cmp >= 0)
			sealed = kv_delta_next(&sealed_cursor);
	}
}

/* Read the deltas of a shard.  Returns the runs that belong to them. */
static const KvRunSet *
read_deltas(KvScan *scan, uint32 shardno, KvKey lo, KvKey hi, KvCountDeltas *deltas)
{
	KvShard    *shard = kv_shard(scan->store, shardno);

	for (;;)
	{
		const KvRunSet *set = kv_shard_runs(scan->store, shardno);
		bool		current;

		LWLockAcquire(&shard->lock, LW_SHARED);
		current = pg_atomic_read_u32(&shard->generation) == set->generation;
		if (current)
			take_keys(scan, shard, lo, hi, deltas);
		LWLockRelease(&shard->lock);
		if (current)
			return set;
	}
}

/* An unfrozen run, and the entry that is next. */
typedef struct KvCountRun
{
	KvRunCursor cursor;
	uint32		incarnation;
	uint8		keybuf[8];
	KvKey		key;
	KvVersion	version;
} KvCountRun;

static void
load_entry(KvCountRun *run)
{
	if (run->cursor.valid)
		kv_run_entry(&run->cursor, run->keybuf, &run->key.data, &run->key.len, &run->version);
}

/* Is the next entry of this key? */
static bool
is_at(const KvCountRun *run, KvKey key)
{
	return run->cursor.valid && compare(run->key, key) == 0;
}

/* Go past all versions of a key; false if the snapshot sees none.  Newest first. */
static bool
take_versions(const KvScan *scan, KvCountRun *run, KvKey key, bool *present)
{
	bool		found = false;

	for (; is_at(run, key); kv_run_next(&run->cursor), load_entry(run))
	{
		if (found || !kv_version_visible(&run->version, scan->snapshot, run->incarnation))
			continue;
		*present = run->version.kind == KV_VERSION_PUT;
		found = true;
	}
	return found;
}

static bool
run_has(KvRun *run, KvKey key)
{
	KvCountRun	at;

	kv_run_seek(run, key.data, key.len, &at.cursor);
	load_entry(&at);
	return is_at(&at, key);
}

/*
 * What the keys of the deltas and of the unfrozen runs add to the base run's
 * count, or take away, from lo on up to where the deltas were read.
 */
static int64
count_recent(KvScan *scan, const KvRunSet *set, KvRun *base, KvKey lo,
			 const KvCountDeltas *deltas)
{
	KvCountRun	runs[KV_MAX_UNFROZEN + 1];
	int			nruns = set->nruns - (base != NULL);
	uint8		bytes[KV_MAX_KEY];
	int64		count = 0;
	int			d = 0;

	for (int i = 0; i < nruns; i++)
	{
		runs[i].incarnation = kv_run_header(set->runs[i])->incarnation;
		if (lo.data)
			kv_run_seek(set->runs[i], lo.data, lo.len, &runs[i].cursor);
		else
			kv_run_first(set->runs[i], &runs[i].cursor);
		load_entry(&runs[i]);
	}

	for (int steps = 1;; steps++)
	{
		KvKey		first = {NULL, 0};
		KvKey		key = {bytes, 0};
		bool		decided = false;
		bool		present = false;

		if (d < deltas->n)
			first = deltas->keys[d].key;
		for (int i = 0; i < nruns; i++)
		{
			if (runs[i].cursor.valid && (first.data == NULL || compare(runs[i].key, first) < 0))
				first = runs[i].key;
		}
		if (first.data == NULL || !is_before(first.data, first.len, deltas->end))
			return count;
		memcpy(bytes, first.data, first.len);
		key.len = first.len;

		/* the newest version that the snapshot sees: the deltas', else a run's */
		if (d < deltas->n && compare(deltas->keys[d].key, key) == 0)
		{
			present = deltas->keys[d++].present;
			decided = true;
		}
		for (int i = 0; i < nruns; i++)
		{
			bool		older;

			if (take_versions(scan, &runs[i], key, &older) && !decided)
			{
				present = older;
				decided = true;
			}
		}
		if (decided)
			count += (int) present - (int) (base != NULL && run_has(base, key));
		if (steps % 4096 == 0)
			CHECK_FOR_INTERRUPTS();
	}
}

static uint64
count_shard(KvScan *scan, uint32 shardno, KvKey lo, KvKey hi)
{
	KvCountDeltas *deltas = palloc(sizeof(KvCountDeltas));
	uint8		bytes[KV_MAX_KEY + 1];
	uint64		count = 0;

	do
	{
		const KvRunSet *set;
		KvRun	   *base;

		CHECK_FOR_INTERRUPTS();
		MemoryContextReset(scan->batch_context);
		kv_conflicts = scan->conflicts.xids ? &scan->conflicts : NULL;
		set = read_deltas(scan, shardno, lo, hi, deltas);
		base = set->has_base ? set->runs[set->nruns - 1] : NULL;
		if (base != NULL)
			count += kv_run_count(base, lo, deltas->end, PG_UINT64_MAX);
		count += count_recent(scan, set, base, lo, deltas);
		kv_conflicts = NULL;

		if (!deltas->complete)
		{
			memcpy(bytes, deltas->end.data, deltas->end.len);
			lo.data = bytes;
			lo.len = deltas->end.len;
		}
	} while (!deltas->complete);
	pfree(deltas);
	return count;
}

uint64
kv_scan_count(KvScan *scan, KvKey lo, KvKey hi)
{
	KvStore    *store = scan->store;
	uint64		count = 0;

	scan->nrows = scan->next_row = 0;
	scan->at_end = true;
	kv_count(store, KV_COUNT_RANGE_SCANS, 1);
	for (uint32 shardno = lo.data ? kv_shard_for(store, lo.data, lo.len) : 0;
		 shardno < store->nshards; shardno++)
	{
		KvKey		bound = kv_shard_bound(store, shardno);

		if (bound.len > 0 && !is_before(bound.data, bound.len, hi))
			break;
		count += count_shard(scan, shardno, lo, hi);
	}
	return count;
}
