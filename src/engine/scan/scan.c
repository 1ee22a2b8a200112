/*
 * scan.c
 *		The interface of scans: points, ranges, the next row; and rows by key for a caller that
 *		serves many requests at once (memcached).
 *
 * A scan works in batches that grow while it continues, so that a short range never pays for a long
 * one.  rows.c finds the visible rows; for tables whose values are not in key order, byaddress.c
 * does.  fetch.c gets many values at a time.
 *
 * Locks: none is held between batches (I 7).  The next batch seeks again by key, so flushes and
 * writes in between do no harm.
 *
 * For many requests at once, values in memory come first, the others in one batch of reads.  A
 * value that cannot be read is a problem of its row only.
 */
#include "postgres.h"

#include "access/tableam.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "utils/memutils.h"

#include "engine/base/key.h"
#include "engine/base/types.h"
#include "engine/cache/reader.h"
#include "engine/maintenance.h"
#include "engine/rows.h"
#include "engine/scan/internal.h"
#include "engine/shard/map.h"
#include "engine/shard/shard.h"
#include "engine/xact/xact.h"

#define KV_WINDOW_BATCH_ROWS 128	/* for values through windows, which need no full queue */

KvScan *
kv_scan_begin(KvStore *store, Snapshot snapshot, bool want_values)
{
	KvScan	   *scan = palloc0(sizeof(KvScan));

	scan->store = store;
	scan->view.snapshot = snapshot;
	scan->want_values = want_values;
	scan->context = scan->batch_context = CurrentMemoryContext;
	scan->at_end = true;
	scan->reader.parent = scan->context;
	scan->reader.stats = &scan->stats;
	if (IsolationIsSerializable())
	{
		scan->conflicts.room = 16;
		scan->conflicts.xids = palloc(16 * sizeof(TransactionId));
		scan->view.conflicts = &scan->conflicts;
	}
	return scan;
}

static void
forget_position(KvScan *scan)
{
	scan->nrows = scan->next_row = 0;
	kv_by_address_end(scan);
	if (!scan->shared)
		kv_reader_leave(&scan->reader);
	if (scan->lo.data)
		pfree((void *) scan->lo.data);
	if (scan->hi.data)
		pfree((void *) scan->hi.data);
	if (scan->rest.data)
		pfree((void *) scan->rest.data);
	if (scan->wrap.data)
		pfree((void *) scan->wrap.data);
	if (scan->keys)
		pfree(scan->keys);
	scan->lo = scan->hi = scan->rest = scan->wrap = (KvKey) {NULL, 0};
	scan->keys = NULL;
	scan->nkeys = 0;
}

/* Resets the scan for new keys; alone: for a single one. */
static void
reset_scan(KvScan *scan, bool alone)
{
	/* memory of the first key's batch stays until the scan ends: no context is made for it */
	if (!alone || scan->positioned)
		kv_batch_clear(scan);
	scan->positioned = true;
	forget_position(scan);
}

/* Sets the shard where a scan of [lo, hi) begins. */
static void
set_shard(KvScan *scan, KvKey lo, KvKey hi, KvScanOrder order)
{
	KvKey		edge;

	if (scan->bytes == NULL)
		scan->bytes = MemoryContextAlloc(scan->context, sizeof(KvRangeBytes));
	scan->order = order;
	scan->backward = order == KV_DESCENDING;
	scan->shard_id = kv_route_part(scan->store, scan->backward ? hi : lo, scan->backward, &edge,
								   scan->bytes->edge).shard_id;
}

/* Begins the range [scan->lo, scan->hi). */
static void
begin_range(KvScan *scan, KvScanOrder order)
{
	scan->started = scan->wrapped = false;
	scan->from = (KvKey) {NULL, 0};
	scan->extent = (KvDeadExtent) {.patience = KV_DEAD_LEAST};
	scan->keyed_shard = KV_NO_SHARD;
	kv_ahead_reset(scan);
	scan->at_end = scan->lo.data && scan->hi.data &&
		kv_key_compare(scan->lo.data, scan->lo.len, scan->hi.data, scan->hi.len) >= 0;
	set_shard(scan, scan->lo, scan->hi, order);
	if (!scan->shared)
	{
		scan->whole_lo = scan->lo;
		scan->whole_hi = scan->hi;
		kv_steer_begin(scan, false);
	}
}

/*
 * Begins a scan of all rows in any order at the position of another such scan, so that they share
 * windows.  If the other scan reads a whole shard, begins with that shard and wraps around.  If it
 * reads a segment, begins at the segment's first key, and reads the keys before that as a second
 * range (begin_rest).
 */
static void
begin_in_company(KvScan *scan, KvScanOrder order)
{
	KvScanStart *place = &scan->company;
	KvKey		lo;
	KvKey		hi;
	uint32		map_number;
	bool		company = scan->want_values && synchronize_seqscans &&
		kv_window_company(scan->store->cache_id, place);

	if (!company)
		place->shard = KV_NO_SHARD;
	if (company && order == KV_ANY_ORDER && !kv_shard_scattered(scan->store, place->shard) &&
		kv_key_at_address(scan, place, &scan->rest))
	{
		scan->lo = kv_key_copy(scan->context, scan->rest.data, scan->rest.len);
		begin_range(scan, KV_ASCENDING);
		return;
	}
	begin_range(scan, order);
	if (company && kv_shard_range(scan->store, place->shard, &lo, &hi, &map_number))
	{
		if (lo.len > 0)
			scan->from = scan->wrap = kv_key_copy(scan->context, lo.data, lo.len);
		pfree(unconstify(uint8 *, lo.data));
		if (hi.data != NULL)
			pfree(unconstify(uint8 *, hi.data));
		scan->shard_id = place->shard;
	}
}

/* Begins the second range of a scan that began at a key in the middle.  False: there is none. */
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
	reset_scan(scan, false);
	scan->points = false;
	if (lo.data)
		scan->lo = kv_key_copy(scan->context, lo.data, lo.len);
	if (hi.data)
		scan->hi = kv_key_copy(scan->context, hi.data, hi.len);
	if (!scan->shared)
		scan->steering.rows = 0;
	if (order == KV_ANY_ORDER || order == KV_BY_ADDRESS)
		begin_in_company(scan, order);
	else
		begin_range(scan, order);
	scan->limit_hint = limit_hint;
	if (order == KV_BY_ADDRESS)
		scan->batch_rows = KV_BATCH_ROWS;
	else
		scan->batch_rows = limit_hint > 0 ? Min(limit_hint, KV_BATCH_ROWS)
			: kv_batch_first_rows(scan);
	kv_stat_add(scan->store, KV_COUNT_RANGE_SCANS, 1);
}

static bool
is_same(KvKey a, KvKey b)
{
	if (a.data == NULL || b.data == NULL)
		return a.data == b.data;
	return a.len == b.len && memcmp(a.data, b.data, a.len) == 0;
}

/*
 * Sets one of the whole range's bounds.  In a shared scan the old bound is a copy, which is freed;
 * in others it belongs to the range.
 */
static void
replace_key(KvScan *scan, KvKey *key, KvKey by)
{
	if (scan->shared && key->data != NULL)
		pfree((void *) key->data);
	*key = (KvKey) {NULL, 0};
	if (by.data != NULL)
		*key = kv_key_copy(scan->context, by.data, by.len);
}

void
kv_scan_share(KvScan *scan, KvKey lo, KvKey hi, KvScanOrder order)
{
	if (scan->shared && is_same(scan->whole_lo, lo) && is_same(scan->whole_hi, hi))
		return;
	if (scan->shared)
		kv_reader_leave(&scan->reader);
	replace_key(scan, &scan->whole_lo, lo);
	replace_key(scan, &scan->whole_hi, hi);
	set_shard(scan, lo, hi, order);
	scan->shared = true;
	kv_steer_begin(scan, true);
}

void
kv_scan_leave(KvScan *scan)
{
	kv_steer_end(scan);
}

void
kv_scan_points(KvScan *scan, const KvKey *keys, int nkeys)
{
	Size		size = sizeof(KvKey) * Max(nkeys, 1);
	uint8	   *bytes;

	reset_scan(scan, nkeys == 1);
	scan->points = true;
	scan->at_end = nkeys == 0;
	for (int i = 0; i < nkeys; i++)
		size += keys[i].len;
	scan->keys = MemoryContextAlloc(scan->context, size);
	bytes = (uint8 *) (scan->keys + nkeys);
	for (int i = 0; i < nkeys; i++)
	{
		scan->keys[i] = (KvKey) {bytes, keys[i].len};
		memcpy(bytes, keys[i].data, keys[i].len);
		bytes += keys[i].len;
	}
	scan->nkeys = nkeys;
	scan->next_key = 0;
	scan->batch_rows = Min(nkeys, KV_BATCH_ROWS);
	kv_stat_add(scan->store, KV_COUNT_POINT_READS, nkeys);
}

const KvScanStats *
kv_scan_stats(KvScan *scan)
{
	return &scan->stats;
}

void
kv_scan_explain_misses(KvScan *scan)
{
	scan->explains_misses = true;
}

void
kv_scan_note_shards(KvScan *scan)
{
	scan->notes_shards = true;
}

void
kv_scan_shards(const KvScan *scan, uint32 *met, uint32 *all)
{
	/* shards that it has read may have been split or joined since */
	*all = kv_store_nshards(scan->store);
	*met = Min((uint32) bms_num_members(scan->shards), *all);
}

void
kv_scan_end(KvScan *scan)
{
	forget_position(scan);
	if (scan->reader.context)
		MemoryContextDelete(scan->reader.context);
	if (scan->steering.buffer)
		pfree(scan->steering.buffer);
	if (scan->ahead.upto)
		pfree(scan->ahead.upto);
	kv_batch_end(scan);
	if (scan->bytes)
		pfree(scan->bytes);
	if (scan->conflicts.xids)
		pfree(scan->conflicts.xids);
	if (scan->rows)
		pfree(scan->rows);
	bms_free(scan->shards);
	pfree(scan);
}

/*
 * Finds the rows of the next n keys.  Rows after a value that fills the batch are found again for
 * the next batch.
 */
static void
find_together(KvScan *scan, int n)
{
	KvBatchRow *rows = &scan->rows[scan->nrows];
	bool		found[KV_FOUND_TOGETHER];

	kv_batch_find_points(scan, &scan->keys[scan->next_key], n, rows, found);
	for (int i = 0; i < n && scan->batch_bytes < KV_BATCH_BYTES; i++)
	{
		KvBatchRow *row = &scan->rows[scan->nrows];

		scan->next_key++;
		if (!found[i])
			continue;
		if (row != &rows[i])
			*row = rows[i];
		scan->batch_bytes += row->version.len;
		scan->nrows++;
	}
}

static void
find_alone(KvScan *scan)
{
	KvBatchRow *row = &scan->rows[scan->nrows];

	if (!kv_batch_find_point(scan, scan->keys[scan->next_key++], row))
		return;
	scan->batch_bytes += row->version.len;
	scan->nrows++;
}

static void
fill_points(KvScan *scan)
{
	while (scan->next_key < scan->nkeys && scan->nrows < scan->batch_rows &&
		   scan->batch_bytes < KV_BATCH_BYTES)
	{
		int			n = Min(scan->nkeys - scan->next_key, scan->batch_rows - scan->nrows);

		n = Min(n, KV_FOUND_TOGETHER);
		for (int i = 0; i < n && scan->notes_shards; i++)
			kv_scan_looks_in(scan, kv_route(scan->store, scan->keys[scan->next_key + i]).shard_id);
		if (n > 1)
			find_together(scan, n);
		else
			find_alone(scan);
	}
	scan->at_end = scan->next_key == scan->nkeys;
}

/* ---- the next row ---- */

/*
 * The number of rows of the next batch: those that the caller still wants, if that is known.  Else
 * more than in the last batch, unless that ended at the edge of a shard.
 */
static int
next_batch_rows(const KvScan *scan)
{
	bool		windows = scan->reader.windows || scan->reader.wants_blocks;
	int			most = windows ? KV_WINDOW_BATCH_ROWS : KV_BATCH_ROWS;

	if (scan->steering.rows < scan->limit_hint)
		return Min(scan->limit_hint - scan->steering.rows, most);
	if (windows)
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
		if (scan->at_end && scan->by_address == NULL)
		{
			if (!scan->shared)
				kv_reader_leave(&scan->reader);
			if (!begin_rest(scan))
				return false;
		}
		CHECK_FOR_INTERRUPTS();
		if (scan->batch_context != scan->context)
			MemoryContextReset(scan->batch_context);
		scan->nrows = scan->next_row = 0;
		scan->batch_bytes = 0;
		kv_batch_make_rows(scan, scan->batch_rows);
		if (scan->points)
			fill_points(scan);
		else if (scan->order == KV_BY_ADDRESS || scan->order == KV_ANY_ORDER)
			kv_by_address_fill(scan);
		else
			kv_steer_fill_range(scan);
		if (scan->want_values)
			(void) kv_batch_fetch(scan);
		kv_stat_add(scan->store, KV_COUNT_ROWS_READ, scan->nrows);
		scan->steering.rows += scan->nrows;
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

bool
kv_scan_seen(const KvScan *scan, KvKey key, KvSeen *seen)
{
	const KvBatchRow *row = scan->next_row > 0 ? &scan->rows[scan->next_row - 1] : NULL;

	if (row == NULL || !row->sole || row->keylen != key.len ||
		memcmp(row->key, key.data, key.len) != 0)
		return false;
	seen->shard_id = scan->rows_shard;
	seen->generation = scan->rows_generation;
	seen->version = row->version;
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

/* ---- many requests at once ---- */

static void
begin_look(KvScan *scan, KvStore *store, Snapshot snapshot, int n)
{
	memset(scan, 0, sizeof(KvScan));
	scan->store = store;
	scan->view.snapshot = snapshot;
	scan->want_values = scan->points = scan->forgiving = true;
	scan->context = scan->batch_context = CurrentMemoryContext;
	kv_batch_make_rows(scan, n);
}

/* Sets the status of a get from its row: found, failed, or not yet read. */
static void
take_row(KvGet *get, const KvBatchRow *row)
{
	get->problem = row->problem;
	get->row.value = row->value;
	get->status = row->problem != 0 ? KV_GET_FAILED :
		row->value == NULL ? KV_GET_UNREAD : KV_GET_FOUND;
}

/*
 * Finds the rows of the next gets, at most n, and adds them to the scan's.  Returns the number of
 * gets done.
 */
static int
find_rows(KvScan *scan, KvGet *gets, int n, Size *bytes)
{
	KvBatchRow *rows = &scan->rows[scan->nrows];
	KvKey		keys[KV_FOUND_TOGETHER];
	bool		found[KV_FOUND_TOGETHER];
	int			nkeys = 0;
	int			done;
	int			next = 0;

	CHECK_FOR_INTERRUPTS();
	for (int i = 0; i < n; i++)
	{
		if (!gets[i].passed)
			keys[nkeys++] = gets[i].key;
	}
	kv_batch_find_points(scan, keys, nkeys, rows, found);
	for (done = 0; done < n && *bytes > 0; done++)
	{
		KvGet      *get = &gets[done];
		const KvBatchRow *row = &rows[next];

		get->status = KV_GET_NONE;
		get->problem = 0;
		if (get->passed || !found[next++])
			continue;
		get->status = KV_GET_UNREAD;
		get->version = row->version;
		get->row = (KvRow) {
			.key = get->key.data, .keylen = get->key.len,
			.form = KV_LOCATION_FORM(row->version.location), .len = row->version.len
		};
		*bytes -= Min(*bytes, row->version.len);
		if (&scan->rows[scan->nrows] != row)
			scan->rows[scan->nrows] = *row;
		scan->nrows++;
	}
	return done;
}

int
kv_get(KvStore *store, Snapshot snapshot, KvGet *gets, int n, Size *bytes)
{
	KvScan		scan;
	int			done = 0;

	if (n == 0)
		return 0;
	begin_look(&scan, store, snapshot, n);
	while (done < n && *bytes > 0)
		done += find_rows(&scan, &gets[done], Min(n - done, KV_FOUND_TOGETHER), bytes);
	kv_batch_fetch_near(&scan);
	for (int i = 0, row = 0; i < done; i++)
	{
		if (gets[i].status != KV_GET_NONE)
			take_row(&gets[i], &scan.rows[row++]);
	}
	pfree(scan.rows);
	kv_stat_add(store, KV_COUNT_POINT_READS, done);
	kv_stat_add(store, KV_COUNT_ROWS_READ, scan.nrows);
	return done;
}

void
kv_get_read(KvStore *store, KvGet *gets, int n)
{
	KvScan		scan;

	if (n == 0)
		return;
	begin_look(&scan, store, NULL, n);
	for (int i = 0; i < n; i++)
	{
		if (gets[i].status == KV_GET_UNREAD)
			scan.rows[scan.nrows++] = (KvBatchRow) {
				.version = gets[i].version, .key = gets[i].key.data,
				.keylen = gets[i].key.len, .present = true
			};
	}
	if (scan.nrows > 0)
		(void) kv_batch_fetch(&scan);
	for (int i = 0, row = 0; i < n; i++)
	{
		if (gets[i].status == KV_GET_UNREAD)
		{
			/* the value may have moved */
			gets[i].version = scan.rows[row].version;
			take_row(&gets[i], &scan.rows[row++]);
		}
	}
	pfree(scan.rows);
}
