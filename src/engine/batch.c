/*
 * batch.c
 *		Scans: batches of visible entries, then their values, many at a time.
 *
 * A scan works in batches that grow while it goes on, so that a short range
 * never pays for a long one.  A batch is made in three steps:
 *
 *   1. under the shard's lock, shared: copy the visible versions of the next
 *      keys of both deltas, and the values of those still in merge slots;
 *   2. without it: merge them with the runs, whose generation was checked
 *      under the lock;
 *   3. get the values that are elsewhere, and verify each (fetch.c).
 *
 * No lock is held across step 3 or between batches (I 7): the next batch seeks
 * again by key, so splits, freezes and writes in between do not matter.
 */
#include "postgres.h"

#include "access/tableam.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "utils/memutils.h"

#include "engine/batch.h"

#define KV_BATCH_ROWS_FIRST	2
#define KV_WINDOW_BATCH_ROWS 128	/* when values come through windows: no queue to fill */
#define KV_SMALL_RANGE		256		/* rows of a range that are read in one batch */
#define KV_DELTA_STEPS		4096	/* items looked at under one lock */

KvScan *
kv_scan_begin(KvStore *store, Snapshot snapshot, bool want_values)
{
	KvScan	   *scan = palloc0(sizeof(KvScan));

	scan->store = store;
	scan->snapshot = snapshot;
	scan->want_values = want_values;
	scan->context = CurrentMemoryContext;
	scan->batch_context = AllocSetContextCreate(CurrentMemoryContext, "kvfdw scan batch",
												ALLOCSET_DEFAULT_SIZES);
	scan->at_end = true;
	if (IsolationIsSerializable())
	{
		scan->conflicts.room = 16;
		scan->conflicts.xids = palloc(16 * sizeof(TransactionId));
	}
	return scan;
}

KvKey
kv_batch_copy_key(MemoryContext context, const uint8 *data, int len)
{
	KvKey		key;
	uint8	   *copy = MemoryContextAlloc(context, Max(len, 1));

	memcpy(copy, data, len);
	key.data = copy;
	key.len = len;
	return key;
}

static void
reset_scan(KvScan *scan)
{
	MemoryContextReset(scan->batch_context);
	scan->nrows = scan->next_row = 0;
	kv_places_end(scan);
	if (!scan->shared)
		kv_range_leave(&scan->pass);
	if (scan->lo.data)
		pfree((void *) scan->lo.data);
	if (scan->hi.data)
		pfree((void *) scan->hi.data);
	if (scan->rest.data)
		pfree((void *) scan->rest.data);
	if (scan->keys)
	{
		for (int i = 0; i < scan->nkeys; i++)
			pfree((void *) scan->keys[i].data);
		pfree(scan->keys);
	}
	scan->lo = scan->hi = scan->rest = (KvKey) {NULL, 0};
	scan->keys = NULL;
	scan->nkeys = 0;
}

/* Up to max of the items that a delta has in the scan's range, which has an end. */
static int
count_items(const KvScan *scan, const KvDelta *delta, int max)
{
	KvDeltaCursor cursor;
	KvDeltaItem *item = kv_delta_seek(delta, scan->lo.data, scan->lo.len, &cursor);
	int			n = 0;

	while (item && n < max &&
		   kv_key_compare(item->key, item->keylen, scan->hi.data, scan->hi.len) < 0)
	{
		n++;
		item = kv_delta_next(&cursor);
	}
	return n;
}

/*
 * How many rows to make the first batch of.  A small range is likely to be read
 * to its end, so all of it is read at once; what it has at most is cheap to
 * count.  Of any other nobody knows how much will be taken.
 */
static int
first_batch_rows(KvScan *scan)
{
	KvShard    *shard = kv_shard(scan->store, scan->shardno);
	int			room = KV_SMALL_RANGE + 1;
	const KvRunSet *set;

	if (scan->lo.data == NULL || scan->hi.data == NULL || scan->at_end)
		return KV_BATCH_ROWS_FIRST;
	set = kv_shard_runs(scan->store, scan->shardno);
	for (int i = 0; i < set->nruns && room > 0; i++)
		room -= kv_run_count(set->runs[i], scan->lo, scan->hi, room);
	if (room > 0)
	{
		LWLockAcquire(&shard->lock, LW_SHARED);
		room -= count_items(scan, &shard->active, room);
		room -= count_items(scan, &shard->sealed, room);
		LWLockRelease(&shard->lock);
	}
	return room > 0 ? Max(KV_SMALL_RANGE + 1 - room, KV_BATCH_ROWS_FIRST) : KV_BATCH_ROWS_FIRST;
}

/* Where a scan of [lo, hi) begins and ends. */
static void
set_shards(KvScan *scan, KvKey lo, KvKey hi, KvScanOrder order)
{
	uint32		nshards = scan->store->nshards;
	uint32		low = lo.data ? kv_shard_for(scan->store, lo.data, lo.len) : 0;
	uint32		high = hi.data ? kv_shard_for(scan->store, hi.data, hi.len) : nshards - 1;

	scan->order = order;
	scan->backward = order == KV_DESCENDING;
	scan->shardno = scan->backward ? high : low;
	scan->last_shard = scan->backward ? low : high;
}

/* The scan's range is [scan->lo, scan->hi) from now on. */
static void
begin_range(KvScan *scan, KvScanOrder order)
{
	uint32		extent_last = scan->last_shard;

	scan->started = false;
	scan->keyed_shard = KV_NO_SHARD;
	scan->at_end = scan->lo.data && scan->hi.data &&
		kv_key_compare(scan->lo.data, scan->lo.len, scan->hi.data, scan->hi.len) >= 0;
	set_shards(scan, scan->lo, scan->hi, order);
	scan->end_shard = scan->last_shard;
	if (scan->shared)
		scan->last_shard = extent_last;
	else
	{
		scan->extent_lo = scan->lo;
		scan->extent_hi = scan->hi;
		scan->pass.ramped = scan->pass.decided = scan->pass.in_order = false;
		scan->pass.depth = 0;
	}
}

/*
 * Begin a scan of everything where others are: at a shard, and the order wraps around;
 * or at a key within one, and what lies before it comes last, as a range of its own.
 */
static void
begin_in_company(KvScan *scan, KvScanOrder order)
{
	uint32		nshards = scan->store->nshards;
	KvRangePlace *place = &scan->company;
	bool		company = scan->want_values && synchronize_seqscans &&
		kv_range_company(scan->store, place);

	if (!company)
		place->shard = KV_NO_SHARD;
	if (company && order == KV_ANY_ORDER && !kv_range_scattered(scan->store, place->shard) &&
		kv_range_key_at(scan, place, &scan->rest))
	{
		scan->lo = kv_batch_copy_key(scan->context, scan->rest.data, scan->rest.len);
		begin_range(scan, KV_ASCENDING);
		return;
	}
	begin_range(scan, order);
	if (company)
	{
		scan->shardno = place->shard;
		scan->last_shard = scan->end_shard = (place->shard + nshards - 1) % nshards;
	}
}

/* The range is at its end; go on with what lies before its beginning, if it began in company. */
static bool
begin_rest(KvScan *scan)
{
	if (scan->rest.data == NULL)
		return false;
	pfree((void *) scan->lo.data);
	scan->lo = (KvKey) {NULL, 0};
	scan->hi = scan->rest;
	scan->rest = (KvKey) {NULL, 0};
	begin_range(scan, KV_ASCENDING);
	return true;
}

void
kv_scan_range(KvScan *scan, KvKey lo, KvKey hi, KvScanOrder order, uint64 limit_hint)
{
	reset_scan(scan);
	scan->points = false;
	if (lo.data)
		scan->lo = kv_batch_copy_key(scan->context, lo.data, lo.len);
	if (hi.data)
		scan->hi = kv_batch_copy_key(scan->context, hi.data, hi.len);
	if (!scan->shared)
		scan->pass.rows = 0;
	if (order == KV_ANY_ORDER || order == KV_BY_PLACE)
		begin_in_company(scan, order);
	else
		begin_range(scan, order);
	scan->limit_hint = limit_hint;
	if (order == KV_BY_PLACE)
		scan->batch_rows = KV_BATCH_ROWS;
	else
		scan->batch_rows = limit_hint > 0 ? Min(limit_hint, KV_BATCH_ROWS) : first_batch_rows(scan);
	kv_count(scan->store, KV_COUNT_RANGE_SCANS, 1);
}

static bool
is_same(KvKey a, KvKey b)
{
	if (a.data == NULL || b.data == NULL)
		return a.data == b.data;
	return a.len == b.len && memcmp(a.data, b.data, a.len) == 0;
}

/* One of the extent's bounds, of which a scan that is not shared has no copies. */
static void
replace_key(KvScan *scan, KvKey *key, KvKey by)
{
	if (scan->shared && key->data != NULL)
		pfree((void *) key->data);
	*key = (KvKey) {NULL, 0};
	if (by.data != NULL)
		*key = kv_batch_copy_key(scan->context, by.data, by.len);
}

void
kv_scan_share(KvScan *scan, KvKey lo, KvKey hi, KvScanOrder order)
{
	if (scan->shared && is_same(scan->extent_lo, lo) && is_same(scan->extent_hi, hi))
		return;
	if (scan->shared)
		kv_range_leave(&scan->pass);
	replace_key(scan, &scan->extent_lo, lo);
	replace_key(scan, &scan->extent_hi, hi);
	set_shards(scan, lo, hi, order);
	scan->shared = scan->pass.ramped = true;
	scan->pass.decided = scan->pass.in_order = false;
	scan->pass.depth = 0;
}

void
kv_scan_leave(KvScan *scan)
{
	kv_range_leave(&scan->pass);
	scan->pass.decided = scan->pass.in_order = false;
}

void
kv_scan_points(KvScan *scan, const KvKey *keys, int nkeys)
{
	reset_scan(scan);
	scan->points = true;
	scan->at_end = nkeys == 0;
	scan->keys = MemoryContextAlloc(scan->context, sizeof(KvKey) * Max(nkeys, 1));
	for (int i = 0; i < nkeys; i++)
		scan->keys[i] = kv_batch_copy_key(scan->context, keys[i].data, keys[i].len);
	scan->nkeys = nkeys;
	scan->next_key = 0;
	scan->batch_rows = Min(nkeys, KV_BATCH_ROWS);
	kv_count(scan->store, KV_COUNT_POINT_READS, nkeys);
}

const KvScanStats *
kv_scan_stats(KvScan *scan)
{
	return &scan->stats;
}

void
kv_scan_end(KvScan *scan)
{
	reset_scan(scan);
	if (scan->pass.context)
		MemoryContextDelete(scan->pass.context);
	MemoryContextDelete(scan->batch_context);
	if (scan->conflicts.xids)
		pfree(scan->conflicts.xids);
	if (scan->rows)
		pfree(scan->rows);
	pfree(scan);
}

/* ---- points ---- */

/* Find the version of one key that the snapshot sees. */
static bool
find_point(KvScan *scan, KvKey key, KvBatchRow *row)
{
	KvStore    *store = scan->store;
	uint32		shardno = kv_shard_for(store, key.data, key.len);
	KvShard    *shard = kv_shard(store, shardno);

	row->key = key.data;
	row->keylen = key.len;
	row->value = NULL;
	row->verified = row->headed = false;
	for (;;)
	{
		const KvRunSet *set = kv_shard_runs(store, shardno);
		KvDeltaItem *item;
		bool		found = false;

		LWLockAcquire(&shard->lock, LW_SHARED);
		if (pg_atomic_read_u32(&shard->generation) != set->generation)
		{
			LWLockRelease(&shard->lock);
			continue;
		}
		item = kv_delta_find(&shard->active, key.data, key.len);
		if (item)
			found = kv_chain_visible(item->newest, scan->snapshot, &row->version);
		if (!found)
		{
			item = kv_delta_find(&shard->sealed, key.data, key.len);
			if (item)
				found = kv_chain_visible(item->newest, scan->snapshot, &row->version);
		}
		if (found && row->version.kind == KV_VERSION_PUT)
			row->value = kv_batch_copy_from_slot(scan, shard, &row->version);
		LWLockRelease(&shard->lock);

		if (!found)
			found = kv_runset_find(set, key, scan->snapshot, &row->version);
		if (found && row->version.kind == KV_VERSION_PUT && row->value == NULL &&
			scan->want_values && row->version.len == 0)
			row->value = "";
		return found && row->version.kind == KV_VERSION_PUT;
	}
}

static void
fill_points(KvScan *scan)
{
	while (scan->next_key < scan->nkeys && scan->nrows < scan->batch_rows &&
		   scan->batch_bytes < KV_BATCH_BYTES)
	{
		KvBatchRow *row = &scan->rows[scan->nrows];

		if (find_point(scan, scan->keys[scan->next_key++], row))
		{
			scan->batch_bytes += row->version.len;
			scan->nrows++;
		}
	}
	scan->at_end = scan->next_key == scan->nkeys;
}

/* ---- ranges ---- */

/* A key is in the range on the side where the scan ends. */
static bool
within_end(const KvScan *scan, const uint8 *key, int keylen)
{
	if (!scan->backward)
		return scan->hi.data == NULL ||
			kv_key_compare(key, keylen, scan->hi.data, scan->hi.len) < 0;
	return scan->lo.data == NULL ||
		kv_key_compare(key, keylen, scan->lo.data, scan->lo.len) >= 0;
}

/* Where the next batch begins; data NULL: at the edge of the shard. */
static KvKey
batch_start(const KvScan *scan)
{
	if (scan->started)
		return scan->position;
	return scan->backward ? scan->hi : scan->lo;
}

static KvDeltaItem *
delta_start(const KvScan *scan, const KvDelta *delta, KvKey start, KvDeltaCursor *cursor)
{
	KvDeltaItem *item;

	if (scan->backward)
		return kv_delta_seek_before(delta, start.data, start.len, cursor);
	item = kv_delta_seek(delta, start.data ? start.data : (const uint8 *) "",
						 start.data ? start.len : 0, cursor);
	if (item && scan->started &&
		kv_key_compare(item->key, item->keylen, start.data, start.len) == 0)
		item = kv_delta_next(cursor);
	return item;
}

/* Of two items the one the scan meets first; NULL counts as never. */
static int
compare_items(const KvScan *scan, const KvDeltaItem *a, const KvDeltaItem *b)
{
	int			cmp;

	if (a == NULL || b == NULL)
		return a == b ? 0 : (a == NULL ? 1 : -1);
	cmp = kv_key_compare(a->key, a->keylen, b->key, b->keylen);
	return scan->backward ? -cmp : cmp;
}

typedef struct KvDeltaRows
{
	KvBatchRow *rows;			/* in scan order; tombstones included */
	int			n;
	bool		complete;		/* both deltas were read to the range's end */
	KvKey		limit;			/* else: the last key looked at */
} KvDeltaRows;

/* Step 1.  Shard lock held, shared. */
static void
copy_deltas(KvScan *scan, KvShard *shard, KvDeltaRows *out)
{
	KvKey		start = batch_start(scan);
	KvDeltaCursor active_cursor;
	KvDeltaCursor sealed_cursor;
	KvDeltaItem *active = delta_start(scan, &shard->active, start, &active_cursor);
	KvDeltaItem *sealed = delta_start(scan, &shard->sealed, start, &sealed_cursor);
	Size		bytes = 0;

	out->n = 0;
	for (int steps = 0;; steps++)
	{
		int			cmp = compare_items(scan, active, sealed);
		KvDeltaItem *item = cmp <= 0 ? active : sealed;
		KvBatchRow *row = &out->rows[out->n];

		if (item == NULL || !within_end(scan, item->key, item->keylen))
		{
			out->complete = true;
			return;
		}
		if ((cmp <= 0 && kv_chain_visible(active->newest, scan->snapshot, &row->version)) ||
			(cmp >= 0 && kv_chain_visible(sealed->newest, scan->snapshot, &row->version)))
		{
			KvKey		key = kv_batch_copy_key(scan->batch_context, item->key, item->keylen);

			row->key = key.data;
			row->keylen = key.len;
			row->present = row->version.kind == KV_VERSION_PUT;
			row->value = row->present ? kv_batch_copy_from_slot(scan, shard, &row->version) : NULL;
			row->verified = row->headed = false;
			if (row->present)
				bytes += row->version.len;
			out->n++;
		}
		if (out->n == scan->batch_rows || steps == KV_DELTA_STEPS ||
			bytes >= KV_BATCH_BYTES)
		{
			out->limit = kv_batch_copy_key(scan->batch_context, item->key, item->keylen);
			out->complete = false;
			return;
		}
		if (cmp <= 0)
			active = scan->backward ? kv_delta_prev(&active_cursor) : kv_delta_next(&active_cursor);
		if (cmp >= 0)
			sealed = scan->backward ? kv_delta_prev(&sealed_cursor) : kv_delta_next(&sealed_cursor);
	}
}

/* A run's cursor during step 2, with the entry it is at. */
typedef struct KvRunHead
{
	KvRunCursor cursor;
	uint32		incarnation;
	uint8		keybuf[8];
	const uint8 *key;
	int			keylen;
	KvVersion	version;
} KvRunHead;

static void
load_head(KvRunHead *head)
{
	if (head->cursor.valid)
		kv_run_entry(&head->cursor, head->keybuf, &head->key, &head->keylen, &head->version);
}

static void
start_head(const KvScan *scan, KvRun *run, KvKey start, KvRunHead *head)
{
	head->incarnation = kv_run_header(run)->incarnation;
	if (scan->backward)
		kv_run_seek_before(run, start.data, start.len, &head->cursor);
	else if (start.data == NULL)
		kv_run_first(run, &head->cursor);
	else
		kv_run_seek(run, start.data, start.len, &head->cursor);
	load_head(head);
	while (!scan->backward && scan->started && head->cursor.valid &&
		   kv_key_compare(head->key, head->keylen, start.data, start.len) == 0)
	{
		kv_run_next(&head->cursor);
		load_head(head);
	}
}

/*
 * Take all versions of the head's key off it; the newest that is visible goes
 * into version.  Within a key versions lie newest first, so a backward scan
 * meets them oldest first and the last visible one counts.
 */
static bool
take_head(const KvScan *scan, KvRunHead *head, KvVersion *version)
{
	uint8		keybytes[KV_MAX_KEY];
	int			keylen = head->keylen;
	bool		found = false;

	memcpy(keybytes, head->key, keylen);
	do
	{
		if ((!found || scan->backward) &&
			kv_version_visible(&head->version, scan->snapshot, head->incarnation))
		{
			*version = head->version;
			found = true;
		}
		if (scan->backward)
			kv_run_prev(&head->cursor);
		else
			kv_run_next(&head->cursor);
		load_head(head);
	} while (head->cursor.valid &&
			 kv_key_compare(head->key, head->keylen, keybytes, keylen) == 0);
	return found;
}

static int
compare_scan_order(const KvScan *scan, const uint8 *a, int alen, const uint8 *b, int blen)
{
	int			cmp = kv_key_compare(a, alen, b, blen);

	return scan->backward ? -cmp : cmp;
}

/*
 * Step 2: merge the deltas' rows with the runs into the batch.  Returns true
 * if the shard is finished; else the position is where to go on.
 */
static bool
merge_rows(KvScan *scan, const KvRunSet *set, const KvDeltaRows *delta)
{
	KvRunHead	heads[KV_MAX_UNFROZEN + 1];
	KvKey		start = batch_start(scan);
	int			d = 0;
	int			steps = 0;

	for (int i = 0; i < set->nruns; i++)
		start_head(scan, set->runs[i], start, &heads[i]);

	for (;;)
	{
		const uint8 *key = NULL;
		int			keylen = 0;
		KvBatchRow *row = &scan->rows[scan->nrows];
		bool		decided = false;
		uint8	   *copy;

		/* the key that comes first */
		if (d < delta->n)
		{
			key = delta->rows[d].key;
			keylen = delta->rows[d].keylen;
		}
		for (int i = 0; i < set->nruns; i++)
		{
			if (heads[i].cursor.valid &&
				(key == NULL ||
				 compare_scan_order(scan, heads[i].key, heads[i].keylen, key, keylen) < 0))
			{
				key = heads[i].key;
				keylen = heads[i].keylen;
			}
		}
		if (key != NULL && !within_end(scan, key, keylen))
			key = NULL;
		if (key == NULL ||
			(!delta->complete &&
			 compare_scan_order(scan, key, keylen, delta->limit.data, delta->limit.len) > 0))
		{
			if (delta->complete)
				return true;
			/* the deltas hold more behind their limit */
			memcpy(scan->position_bytes, delta->limit.data, delta->limit.len);
			scan->position.len = delta->limit.len;
			return false;
		}
		memcpy(scan->position_bytes, key, keylen);
		scan->position.len = keylen;

		/* its version: the delta's, else that of the newest run that has one */
		if (d < delta->n &&
			kv_key_compare(delta->rows[d].key, delta->rows[d].keylen,
						   scan->position_bytes, keylen) == 0)
		{
			*row = delta->rows[d++];
			decided = true;
		}
		for (int i = 0; i < set->nruns; i++)
		{
			KvVersion	version;

			if (!heads[i].cursor.valid ||
				kv_key_compare(heads[i].key, heads[i].keylen,
							   scan->position_bytes, keylen) != 0)
				continue;
			if (take_head(scan, &heads[i], &version) && !decided)
			{
				decided = true;
				row->version = version;
				row->present = version.kind == KV_VERSION_PUT;
				row->value = scan->want_values && version.len == 0 ? "" : NULL;
				row->verified = row->headed = false;
				row->key = NULL;
			}
		}
		if (decided && row->present)
		{
			if (row->key == NULL)
			{
				copy = MemoryContextAlloc(scan->batch_context, Max(keylen, 1));
				memcpy(copy, scan->position_bytes, keylen);
				row->key = copy;
				row->keylen = keylen;
			}
			scan->nrows++;
			scan->batch_bytes += row->version.len;
		}
		if (scan->nrows == scan->batch_rows || scan->batch_bytes >= KV_BATCH_BYTES)
			return false;
		if ((++steps & 0xfff) == 0)
			CHECK_FOR_INTERRUPTS();
	}
}

/*
 * One batch from one shard, or nothing if the rest of the shard is empty.  Returns
 * up to where the shard's value file is written.
 */
uint64
kv_batch_fill_range(KvScan *scan)
{
	KvStore    *store = scan->store;
	KvShard    *shard = kv_shard(store, scan->shardno);
	KvDeltaRows delta;
	const KvRunSet *set;
	uint64		written;
	bool		finished;

	delta.rows = MemoryContextAlloc(scan->batch_context,
									sizeof(KvBatchRow) * (scan->batch_rows + 1));
	for (;;)
	{
		set = kv_shard_runs(store, scan->shardno);
		LWLockAcquire(&shard->lock, LW_SHARED);
		if (pg_atomic_read_u32(&shard->generation) == set->generation)
			break;
		LWLockRelease(&shard->lock);
	}
	copy_deltas(scan, shard, &delta);
	written = kv_range_written(shard);
	LWLockRelease(&shard->lock);

	if (scan->want_values)
		kv_range_steer(scan, scan->shardno, set, written);
	scan->position.data = scan->position_bytes;
	finished = merge_rows(scan, set, &delta);
	scan->started = true;
	if (!finished)
		return written;

	/* the next shard's keys all lie behind this one's, so it begins at its edge */
	scan->started = false;
	scan->at_end = !kv_batch_next_shard(scan, scan->end_shard, &scan->shardno);
	return written;
}

/* ---- the caller's side ---- */

/* Make the next batch of so many rows; the last one's are done with. */
void
kv_batch_make_rows(KvScan *scan, int rows)
{
	scan->batch_rows = rows;
	if (scan->rows_room >= rows)
		return;
	if (scan->rows)
		pfree(scan->rows);
	scan->rows = MemoryContextAlloc(scan->context, sizeof(KvBatchRow) * rows);
	scan->rows_room = rows;
}

/*
 * How many rows to make the next batch of: what the caller still wants, if that is
 * known; else more than last time, but for an edge of a shard.
 */
static int
next_batch_rows(const KvScan *scan)
{
	int			most = scan->pass.windows ? KV_WINDOW_BATCH_ROWS : KV_BATCH_ROWS;

	if (scan->pass.rows < scan->limit_hint)
		return Min(scan->limit_hint - scan->pass.rows, most);
	if (scan->pass.windows)
		return most;
	if (scan->nrows < scan->batch_rows)
		return scan->batch_rows;
	return Min(KV_BATCH_ROWS, scan->batch_rows * 4);
}

bool
kv_scan_next(KvScan *scan, KvRow *row)
{
	KvBatchRow *next;

	while (scan->next_row == scan->nrows)
	{
		if (scan->at_end && scan->places == NULL)
		{
			if (!scan->shared)
				kv_range_leave(&scan->pass);
			if (!begin_rest(scan))
				return false;
		}
		CHECK_FOR_INTERRUPTS();
		MemoryContextReset(scan->batch_context);
		scan->nrows = scan->next_row = 0;
		scan->batch_bytes = 0;
		kv_batch_make_rows(scan, scan->batch_rows);
		kv_conflicts = scan->conflicts.xids ? &scan->conflicts : NULL;
		if (scan->points)
			fill_points(scan);
		else if (scan->order == KV_BY_PLACE || scan->order == KV_ANY_ORDER)
			kv_places_fill(scan);
		else
			(void) kv_batch_fill_range(scan);
		kv_conflicts = NULL;
		if (scan->want_values)
			kv_batch_fetch(scan);
		kv_count(scan->store, KV_COUNT_ROWS_READ, scan->nrows);
		scan->pass.rows += scan->nrows;
		if (!scan->points)
			scan->batch_rows = next_batch_rows(scan);
	}
	next = &scan->rows[scan->next_row++];
	row->key = next->key;
	row->keylen = next->keylen;
	row->form = KV_LOCATION_FORM(next->version.location);
	row->len = next->version.len;
	row->value = scan->want_values ? next->value : NULL;
	row->header = next->headed ? (void *) (next->value - VARHDRSZ) : NULL;
	return true;
}

int
kv_scan_take_conflicts(KvScan *scan, const TransactionId **xids)
{
	int			n = scan->conflicts.n;

	*xids = scan->conflicts.xids;
	scan->conflicts.n = 0;
	return n;
}

/*
 * The value of one version, palloc'd in CurrentMemoryContext, wherever it is
 * now.  The row's key is the caller's.
 */
void
kv_fetch_version(KvStore *store, KvKey key, const KvVersion *version, KvRow *row)
{
	KvScan	   *scan = kv_scan_begin(store, NULL, true);
	KvShard    *shard = kv_shard(store, kv_shard_for(store, key.data, key.len));
	KvBatchRow *only;
	char	   *copy;

	kv_batch_make_rows(scan, 1);
	only = &scan->rows[0];
	only->version = *version;
	only->key = key.data;
	only->keylen = key.len;
	only->verified = only->headed = false;
	LWLockAcquire(&shard->lock, LW_SHARED);
	only->value = kv_batch_copy_from_slot(scan, shard, version);
	LWLockRelease(&shard->lock);
	scan->nrows = 1;
	kv_batch_fetch(scan);
	copy = MemoryContextAllocHuge(CurrentMemoryContext, Max(version->len, 1));
	memcpy(copy, only->value, version->len);
	row->key = key.data;
	row->keylen = key.len;
	row->form = KV_LOCATION_FORM(version->location);
	row->len = version->len;
	row->value = copy;
	row->header = NULL;
	kv_scan_end(scan);
}
