/*
 * rows.c
 *		Finds the visible rows of a shard: one by its key, or a batch of a range.
 *
 * A batch is made in two steps:
 *
 * 1. Under the shard's lock, shared: copies the visible versions of the next keys of both
 *    memtables, and their values that are still in write buffers.
 * 2. Without the lock: merges them with the runs, whose generation was checked under the lock.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/memutils.h"

#include "engine/base/key.h"
#include "engine/base/types.h"
#include "engine/index/memtable.h"
#include "engine/index/run.h"
#include "engine/io/fault.h"
#include "engine/maintenance.h"
#include "engine/rows.h"
#include "engine/scan/internal.h"
#include "engine/shard/map.h"
#include "engine/shard/shard.h"
#include "engine/buffer/buffer.h"
#include "engine/shard/valuefiles.h"
#include "engine/xact/xact.h"

#define KV_BATCH_ROWS_FIRST	2
/* least number of items of the memtables that are read for a batch */
#define KV_ITEMS_LEAST		64
#define KV_FEW_ROWS			32
/* least number of rows of the memtables that are copied for a batch */
#define KV_RECENT_LEAST		4

void
kv_batch_make_rows(KvScan *scan, int rows)
{
	scan->batch_rows = rows;
	if (scan->rows_capacity >= rows)
		return;
	if (scan->rows)
		pfree(scan->rows);
	scan->rows = MemoryContextAlloc(scan->context, sizeof(KvBatchRow) * rows);
	scan->rows_capacity = rows;
}

/*
 * One scan of a process at a time has its batches in memory that stays allocated.  Otherwise each
 * short range would allocate memory from the system, and touch its pages for the first time.
 */
#define KV_SPARE_BATCH	((Size) 256 * 1024)

typedef struct KvSpareUse
{
	MemoryContextCallback callback; /* of the scan's context, which an error may delete */
	bool		ended;
} KvSpareUse;

static MemoryContext spare;
static KvSpareUse *spare_use;	/* NULL: no scan has it */

static void
give_spare_back(void *arg)
{
	KvSpareUse *use = arg;

	if (use->ended)
		return;
	use->ended = true;
	spare_use = NULL;
	MemoryContextReset(spare);
}

static MemoryContext
take_spare(MemoryContext context)
{
	if (spare == NULL)
		spare = GenerationContextCreate(TopMemoryContext, "kvfdw spare batch",
										KV_SPARE_BATCH, KV_SPARE_BATCH, ALLOCSET_DEFAULT_MAXSIZE);
	spare_use = MemoryContextAllocZero(context, sizeof(KvSpareUse));
	spare_use->callback.func = give_spare_back;
	spare_use->callback.arg = spare_use;
	MemoryContextRegisterResetCallback(context, &spare_use->callback);
	return spare;
}

void
kv_batch_clear(KvScan *scan)
{
	if (scan->batch_context != scan->context)
		MemoryContextReset(scan->batch_context);
	else if (spare_use == NULL)
		scan->batch_context = take_spare(scan->context);
	else
		scan->batch_context = AllocSetContextCreate(scan->context, "kvfdw scan batch",
													ALLOCSET_DEFAULT_SIZES);
}

void
kv_batch_end(KvScan *scan)
{
	if (scan->batch_context == scan->context)
		return;
	if (scan->batch_context == spare)
		give_spare_back(spare_use);
	else
		MemoryContextDelete(scan->batch_context);
	scan->batch_context = scan->context;
}

char *
kv_batch_copy_from_buffer(KvScan *scan, const KvShard *shard, const KvVersion *version)
{
	const char *found;
	char	   *copy;

	if (!scan->want_values)
		return NULL;
	if (version->len == 0)
		return MemoryContextAlloc(scan->batch_context, 1);
	found = kv_buffer_find(shard, version);
	if (found == NULL)
		return NULL;
	copy = MemoryContextAllocHuge(scan->batch_context, version->len);
	memcpy(copy, found, version->len);
	scan->stats.buffer_hits++;
	kv_stat_add(scan->store, KV_COUNT_BUFFER_HITS, 1);
	return copy;
}

/* ---- one key ---- */

static void
begin_row(KvBatchRow *row, KvKey key)
{
	row->key = key.data;
	row->keylen = key.len;
	kv_row_reset(row);
}

/* Is the version found a row?  A value without bytes is set at once. */
static bool
is_there(const KvScan *scan, KvBatchRow *row)
{
	if (row->version.kind != KV_VERSION_PUT)
		return false;
	if (row->value == NULL && scan->want_values && row->version.len == 0)
		row->value = "";
	return true;
}

bool
kv_batch_find_point(KvScan *scan, KvKey key, KvBatchRow *row)
{
	KvShard    *shard;
	const KvRunSet *set;
	KvMemtableItem *item;
	bool		found = false;

	begin_row(row, key);
	set = kv_key_view(scan->store, key, &shard);
	item = kv_memtable_find(&shard->active, key.data, key.len);
	if (item)
		found = kv_chain_visible(item->newest, &scan->view, &row->version);
	if (!found)
	{
		item = kv_memtable_find(&shard->immutable, key.data, key.len);
		if (item)
			found = kv_chain_visible(item->newest, &scan->view, &row->version);
	}
	if (found && row->version.kind == KV_VERSION_PUT)
		row->value = kv_batch_copy_from_buffer(scan, shard, &row->version);
	LWLockRelease(&shard->lock);

	if (!found)
		found = kv_runset_find(set, key, &scan->view, &row->version);
	return found && is_there(scan, row);
}

/* ---- several keys ---- */

/* bytes of values in write buffers that are copied under one hold of a shard's lock */
#define KV_COPIED_AT_ONCE	((Size) 64 * 1024)

typedef struct KvPoint
{
	KvBatchRow *row;
	KvRoute		route;
	bool		wanted;			/* the search for it is not done */
	bool		found;
} KvPoint;

/* Some points of one shard. */
typedef struct KvPoints
{
	int			n;
	KvKey		keys[KV_FOUND_TOGETHER];
	KvPoint    *points[KV_FOUND_TOGETHER];
} KvPoints;

static void
add_point(KvPoints *points, KvPoint *point)
{
	points->keys[points->n] = (KvKey) {point->row->key, point->row->keylen};
	points->points[points->n++] = point;
}

/*
 * Finds points in a memtable.  Adds those that are not there to rest.  Points stay wanted if too
 * many bytes were copied before; the first one never does.  Lock held, shared.
 */
static void
find_in_memtable(KvScan *scan, const KvShard *shard, const KvMemtable *memtable,
				 const KvPoints *points, KvPoints *rest)
{
	KvMemtableItem *items[KV_FOUND_TOGETHER];
	Size		copied = 0;

	rest->n = 0;
	kv_memtable_find_all(memtable, points->keys, points->n, items);
	for (int i = 0; i < points->n; i++)
	{
		KvPoint    *point = points->points[i];
		KvBatchRow *row = point->row;

		point->wanted = copied > KV_COPIED_AT_ONCE;
		if (point->wanted)
			continue;
		point->found = items[i] != NULL &&
			kv_chain_visible(items[i]->newest, &scan->view, &row->version);
		if (!point->found)
			add_point(rest, point);
		else if (row->version.kind == KV_VERSION_PUT)
			row->value = kv_batch_copy_from_buffer(scan, shard, &row->version);
		if (row->value != NULL)
			copied += row->version.len;
	}
}

/* Finds points in the runs, without the lock. */
static void
find_in_runs(KvScan *scan, const KvRunSet *set, const KvPoints *points)
{
	KvVersion  *versions[KV_FOUND_TOGETHER];
	bool		found[KV_FOUND_TOGETHER];

	for (int i = 0; i < points->n; i++)
		versions[i] = &points->points[i]->row->version;
	kv_runset_find_all(set, points->keys, points->n, &scan->view, versions, found);
	for (int i = 0; i < points->n; i++)
		points->points[i]->found = found[i];
}

/* Finds the wanted ones of n points that are in the first one's shard. */
static void
find_in_shard(KvScan *scan, KvPoint *first, int n)
{
	uint32		shard_id = first->route.shard_id;
	KvShard    *shard = kv_shard(scan->store, shard_id);
	const KvRunSet *set = kv_shard_view(scan->store, shard_id);
	KvPoints	here;
	KvPoints	older;
	KvPoints	rest;

	here.n = 0;
	for (KvPoint *point = first; point < first + n; point++)
	{
		if (point->wanted && point->route.shard_id == shard_id &&
			kv_route_holds(shard, point->route))
			add_point(&here, point);
	}
	find_in_memtable(scan, shard, &shard->active, &here, &older);
	find_in_memtable(scan, shard, &shard->immutable, &older, &rest);
	LWLockRelease(&shard->lock);
	if (rest.n > 0)
		find_in_runs(scan, set, &rest);
	/* then the map has changed since its route was found */
	if (first->wanted)
		first->route = kv_route(scan->store, (KvKey) {first->row->key, first->row->keylen});
}

void
kv_batch_find_points(KvScan *scan, const KvKey *keys, int n, KvBatchRow *rows, bool *found)
{
	KvPoint		points[KV_FOUND_TOGETHER];

	Assert(n <= KV_FOUND_TOGETHER);
	for (int i = 0; i < n; i++)
	{
		begin_row(&rows[i], keys[i]);
		points[i] = (KvPoint) {.row = &rows[i], .route = kv_route(scan->store, keys[i]),
							   .wanted = true};
	}
	KV_STOP_POINT("points_routed");
	for (int i = 0; i < n;)
	{
		if (points[i].wanted)
			find_in_shard(scan, &points[i], n - i);
		else
			i++;
	}
	for (int i = 0; i < n; i++)
		found[i] = points[i].found && is_there(scan, &rows[i]);
}

/* ---- the keys of a range ---- */

/* Compares two items; NULL comes after all. */
static int
compare_items(const KvBounds *bounds, const KvMemtableItem *a, const KvMemtableItem *b)
{
	if (a == NULL || b == NULL)
		return a == b ? 0 : (a == NULL ? 1 : -1);
	return kv_compare_in_order(bounds, kv_item_key(a), kv_item_key(b));
}

/*
 * Makes capacity for one more row of the memtables; little at first, since little is usually
 * needed.
 */
static KvBatchRow *
make_room(KvScan *scan, KvKeyReader *keys, int max_keys)
{
	if (keys->room == 0)
	{
		keys->room = Min(max_keys, KV_FEW_ROWS);
		keys->rows = MemoryContextAlloc(scan->batch_context, sizeof(KvBatchRow) * keys->room);
	}
	else if (keys->nrows == keys->room)
	{
		keys->room = max_keys;
		keys->rows = repalloc(keys->rows, sizeof(KvBatchRow) * keys->room);
	}
	return &keys->rows[keys->nrows];
}

/*
 * Copies the visible versions of both memtables, up to a key (data NULL: to the end of the range).
 * Shard lock held, shared.
 */
static void
copy_memtables(KvScan *scan, KvShard *shard, int max_keys, int max_items, Size max_bytes,
			   KvKey stop,
			   KvKeyReader *keys)
{
	const KvBounds *bounds = &keys->bounds;
	KvMemtableCursor active_cursor;
	KvMemtableCursor sealed_cursor;
	KvMemtableItem *active = kv_memtable_start(bounds, &shard->active, &active_cursor);
	KvMemtableItem *sealed = kv_memtable_start(bounds, &shard->immutable, &sealed_cursor);
	Size		bytes = 0;

	for (int items = 1;; items++)
	{
		int			cmp = compare_items(bounds, active, sealed);
		KvMemtableItem *item = cmp <= 0 ? active : sealed;
		KvBatchRow *row;

		if (item == NULL || !kv_within_end(bounds, kv_item_key(item)) ||
			(stop.data != NULL && kv_compare_in_order(bounds, kv_item_key(item), stop) > 0))
		{
			keys->complete = stop.data == NULL;
			keys->limit = stop;
			return;
		}
		row = make_room(scan, keys, max_keys);
		if ((cmp <= 0 && kv_chain_visible(active->newest, &scan->view, &row->version)) ||
			(cmp >= 0 && kv_chain_visible(sealed->newest, &scan->view, &row->version)))
		{
			KvKey		key = kv_key_copy(scan->batch_context, item->key, item->keylen);

			row->key = key.data;
			row->keylen = key.len;
			row->present = row->version.kind == KV_VERSION_PUT;
			kv_row_reset(row);
			if (row->present)
				row->value = kv_batch_copy_from_buffer(scan, shard, &row->version);
			if (row->present)
				bytes += row->version.len;
			keys->nrows++;
		}
		else
			keys->dead++;
		if (keys->nrows == max_keys || items >= max_items || bytes >= max_bytes)
		{
			keys->limit = kv_key_copy(scan->batch_context, item->key, item->keylen);
			keys->complete = false;
			return;
		}
		if (cmp <= 0)
			active = kv_memtable_step(bounds, &active_cursor);
		if (cmp >= 0)
			sealed = kv_memtable_step(bounds, &sealed_cursor);
	}
}

/*
 * Moves the start of reading after the dead ranges that it is in.  Returns the start of the next
 * dead range in the direction, where reading ends; data NULL: there is none.  Shard lock held.
 */
static KvKey
skip_dead(KvKeyReader *keys, const KvShard *shard)
{
	KvBounds   *bounds = &keys->bounds;
	KvDeadSkip	skip;

	kv_dead_skip(shard, keys->view, kv_start_of(bounds), bounds->after.data != NULL,
				 bounds->backward, &skip);
	keys->nothing = skip.nothing;
	if (skip.moved)
	{
		memcpy(keys->start_bytes, skip.start.data, skip.start.len);
		*(bounds->backward ? &bounds->hi : &bounds->lo) =
			(KvKey) {keys->start_bytes, skip.start.len};
		bounds->after = (KvKey) {NULL, 0};
	}
	if (skip.stop.data == NULL || !kv_within_end(bounds, skip.stop))
		return (KvKey) {NULL, 0};
	memcpy(keys->stop_bytes, skip.stop.data, skip.stop.len);
	return (KvKey) {keys->stop_bytes, skip.stop.len};
}

const KvRunSet *
kv_keys_begin(KvKeyReader *keys, KvScan *scan, const KvBounds *bounds, int max_keys,
			  int max_items, Size max_bytes)
{
	KvShard    *shard;
	const KvRunSet *set;
	KvKey		stop = {NULL, 0};

	keys->view = &scan->view;
	keys->bounds = *bounds;
	keys->rows = NULL;
	keys->room = keys->nrows = keys->next_row = keys->steps = 0;
	keys->nothing = false;
	keys->passed = 0;
	keys->patience = PG_UINT32_MAX;
	keys->dead = 0;
	keys->singly = 0;
	for (;;)
	{
		KvRoute		route = kv_route_part(scan->store, kv_start_of(bounds), bounds->backward,
										  &keys->edge, keys->edge_bytes);

		keys->shard_id = route.shard_id;
		shard = kv_shard(scan->store, route.shard_id);
		set = kv_shard_view(scan->store, route.shard_id);
		if (likely(kv_route_holds(shard, route)))
			break;
		LWLockRelease(&shard->lock);
	}
	if (kv_dead_any(shard))
		stop = skip_dead(keys, shard);
	if (keys->nothing)
		keys->complete = true;
	else
		copy_memtables(scan, shard, max_keys, max_items, max_bytes, stop, keys);
	keys->value_bytes = kv_shard_value_bytes(shard);
	LWLockRelease(&shard->lock);
	return set;
}

void
kv_keys_add_runs(KvKeyReader *keys, KvRun *const *runs, int nruns)
{
	kv_merge_begin(&keys->runs, keys->bounds.backward);
	for (int i = 0; i < nruns && !keys->nothing; i++)
		kv_merge_add(&keys->runs, runs[i], kv_start_of(&keys->bounds),
					 keys->bounds.after.data != NULL && !keys->bounds.backward);
}

/*
 * Passes all versions of a key, which comes first and is not the merge's own copy.  True: *version
 * is the newest visible one.  view NULL: none is wanted.  Backwards the versions of a run come
 * oldest first, so the last visible one counts.  *sole: there is one version only.
 */
static inline bool
take_key(KvRunMerge *merge, KvKey key, const KvView *view, KvVersion *version, bool *sole)
{
	bool		decided = view == NULL;
	int			n = 0;

	for (int i = 0; i < merge->nheads; i++)
	{
		KvRunHead  *head = &merge->heads[i];
		bool		found = false;

		for (; kv_head_is_at(head, key); kv_head_step(merge, head))
		{
			n++;
			if (decided || (found && !merge->backward) ||
				!kv_version_visible(&head->version, view, head->incarnation))
				continue;
			*version = head->version;
			found = true;
		}
		decided = decided || found;
	}
	*sole = n == 1;
	return view != NULL && decided;
}

/* Counts a passed key whose rows the snapshot does not see.  True: there are enough of them. */
static inline bool
count_dead(KvKeyReader *keys)
{
	keys->dead++;
	return ++keys->passed >= keys->patience;
}

static inline bool
next_key(KvKeyReader *keys, KvBatchRow *row)
{
	const KvBounds *bounds = &keys->bounds;

	for (;;)
	{
		const KvBatchRow *recent = NULL;
		KvKey		key = {NULL, 0};
		KvKey		older = kv_merge_first(&keys->runs);
		int			cmp = 1;
		bool		sole;

		if ((++keys->steps & 0xfff) == 0)
			CHECK_FOR_INTERRUPTS();
		if (keys->next_row < keys->nrows)
		{
			recent = &keys->rows[keys->next_row];
			key.data = recent->key;
			key.len = recent->keylen;
			cmp = older.data != NULL ? kv_compare_in_order(bounds, key, older) : -1;
		}
		if (cmp > 0)
			key = older;
		if (key.data == NULL || !kv_within_end(bounds, key) ||
			(!keys->complete && kv_compare_in_order(bounds, key, keys->limit) > 0))
			return false;

		/* memtables are newer than runs */
		if (cmp <= 0)
		{
			*row = *recent;
			keys->next_row++;
			if (cmp == 0)
				(void) take_key(&keys->runs, key, NULL, NULL, &sole);
			return true;
		}
		memcpy(keys->key_bytes, key.data, key.len);
		key.data = keys->key_bytes;
		if (take_key(&keys->runs, key, keys->view, &row->version, &sole))
		{
			row->key = key.data;
			row->keylen = key.len;
			row->present = row->version.kind == KV_VERSION_PUT;
			kv_row_reset(row);
			/* a visible one whose transaction has no status yet is this transaction's own */
			row->sole = sole && row->version.status == KV_XID_COMMITTED;
			return true;
		}
		if (unlikely(count_dead(keys)))
		{
			keys->complete = false;
			keys->limit = key;
			return false;
		}
	}
}

bool
kv_keys_next(KvKeyReader *keys, KvBatchRow *row)
{
	return next_key(keys, row);
}

/* ---- a batch of a range ---- */

void
kv_scan_looks_in(KvScan *scan, uint32 shard_id)
{
	MemoryContext old;

	if (!scan->notes_shards)
		return;
	old = MemoryContextSwitchTo(scan->context);
	scan->shards = bms_add_member(scan->shards, shard_id);
	MemoryContextSwitchTo(old);
}

/* A possible extent of dead keys begins here. */
static void
begin_extent(KvScan *scan, KvKey start, bool after)
{
	KvDeadExtent *extent = &scan->extent;

	extent->keys = 0;
	extent->after = after;
	extent->start = (KvKey) {NULL, 0};
	if (start.data == NULL)
		return;
	memcpy(scan->bytes->extent, start.data, start.len);
	extent->start = (KvKey) {scan->bytes->extent, start.len};
}

/* Takes the rows of the batch.  True: the shard has no more. */
static bool
take_rows(KvScan *scan, KvKeyReader *keys)
{
	KvBatchRow *row;

	do
	{
		row = &scan->rows[scan->nrows];
		if (kv_keys_take_page(scan, keys))
		{
			row = &scan->rows[scan->nrows - 1];
			continue;
		}
		if (!next_key(keys, row))
		{
			if (!keys->complete)
				kv_scan_set_position(scan, keys->limit);
			return keys->complete;
		}
		if (!row->present)
		{
			if (count_dead(keys))
				break;
			continue;
		}
		keys->passed = 0;
		if (row->key == keys->key_bytes)
		{
			row->key = kv_key_copy(scan->batch_context, row->key, row->keylen).data;
			if (scan->want_values && row->version.len == 0)
				row->value = "";
		}
		scan->batch_bytes += row->version.len;
		scan->nrows++;
	} while (scan->nrows < scan->batch_rows && scan->batch_bytes < KV_BATCH_BYTES);
	kv_scan_set_position(scan, (KvKey) {row->key, row->keylen});
	return false;
}

/* Continues after a finished shard: in the next one by the newest map, or at the end. */
static void
go_on_after(KvScan *scan, const KvKeyReader *keys, const KvBounds *bounds)
{
	KvKey		end = scan->backward ? bounds->lo : bounds->hi;
	KvKey		edge = keys->edge;

	scan->from = (KvKey) {NULL, 0};
	if (edge.data != NULL && (end.data == NULL || kv_compare_in_order(bounds, edge, end) < 0))
	{
		memcpy(scan->bytes->from, edge.data, edge.len);
		scan->from = (KvKey) {scan->bytes->from, edge.len};
	}
	else if (scan->wrap.data != NULL && !scan->wrapped)
		scan->wrapped = true;
	else
	{
		scan->at_end = true;
		return;
	}
	scan->shard_id = kv_route_part(scan->store, scan->from, scan->backward, &edge,
								   scan->bytes->edge).shard_id;
}

/*
 * The number of items of the memtables to read for a batch.  All may be invisible, such as locks
 * and uncommitted versions, and then the rows come from the runs.  Items after the last row are
 * read again for the next batch.  So the number is little more than the rows, and rises if that did
 * not suffice.
 */
static int
items_of_batch(const KvScan *scan)
{
	return Max(Max(scan->batch_items, scan->batch_rows), KV_ITEMS_LEAST);
}

/*
 * The number of visible rows of the memtables to copy for a batch, which ends at the last one.  Few
 * if the last batch has used few.
 */
static int
recent_of_batch(const KvScan *scan)
{
	return scan->recent_rows > 0 ? Min(scan->recent_rows, scan->batch_rows) : scan->batch_rows;
}

static void
learn_recent(KvScan *scan, const KvKeyReader *keys)
{
	if (keys->nrows > 0)
		scan->recent_rows = keys->next_row == keys->nrows ? keys->nrows * 4 :
			Max(keys->next_row * 2, KV_RECENT_LEAST);
}

/* Adapts batch_items after a batch; finished: the shard has no more. */
static void
learn_items(KvScan *scan, bool finished)
{
	if (!finished && scan->nrows < scan->batch_rows && scan->batch_bytes < KV_BATCH_BYTES)
		scan->batch_items = Min(items_of_batch(scan) * 4, KV_ITEMS_MOST);
	else
		scan->batch_items /= 2;
}

/* After a batch whose shard has more: steps over dead keys if there are many. */
static void
look_at_extent(KvScan *scan, const KvKeyReader *keys, const KvBounds *bounds)
{
	if (scan->nrows > 0 && keys->passed > 0)
	{
		const KvBatchRow *last = &scan->rows[scan->nrows - 1];

		begin_extent(scan, (KvKey) {last->key, last->keylen}, true);
	}
	/* keys without a visible version in the memtables may count twice */
	scan->extent.keys = scan->nrows > 0 ? keys->passed : scan->extent.keys + keys->dead;
	if (scan->extent.keys >= scan->extent.patience)
		kv_step_over(scan, keys->shard_id, bounds);
}

uint32
kv_batch_fill_range(KvScan *scan, uint64 *bytes)
{
	KvBounds	bounds = {.lo = scan->lo, .hi = scan->hi, .backward = scan->backward};
	KvKeyReader keys;
	const KvRunSet *set;
	bool		finished;

	if (scan->wrapped)
		bounds.hi = scan->wrap;
	if (scan->started)
		bounds.after = scan->position;
	else if (scan->from.data != NULL)
		*(scan->backward ? &bounds.hi : &bounds.lo) = scan->from;
	set = kv_keys_begin(&keys, scan, &bounds, recent_of_batch(scan), items_of_batch(scan),
						KV_BATCH_BYTES);
	scan->shard_id = scan->rows_shard = keys.shard_id;
	scan->rows_generation = set->generation;
	kv_scan_looks_in(scan, keys.shard_id);
	kv_keys_add_runs(&keys, set->runs, set->nruns);
	if (scan->extent.keys == 0)
		begin_extent(scan, kv_start_of(&keys.bounds), keys.bounds.after.data != NULL);
	keys.passed = scan->extent.keys;
	keys.patience = scan->extent.patience;
	finished = take_rows(scan, &keys);
	learn_items(scan, finished);
	learn_recent(scan, &keys);
	kv_run_trust();
	scan->stats.dead_keys += keys.dead;
	scan->started = !finished;

	if (finished)
	{
		scan->extent.keys = 0;
		go_on_after(scan, &keys, &bounds);
	}
	else
		look_at_extent(scan, &keys, &bounds);
	*bytes = keys.value_bytes;
	return keys.shard_id;
}

/* ---- counting ---- */

/* The number, up to max, of a memtable's items in the scan's range, which has an end. */
static int
count_items(const KvScan *scan, const KvMemtable *memtable, int max)
{
	KvMemtableCursor cursor;
	KvMemtableItem *item = kv_memtable_seek(memtable, scan->lo.data, scan->lo.len, &cursor);
	int			n = 0;

	while (item && n < max &&
		   kv_key_compare(item->key, item->keylen, scan->hi.data, scan->hi.len) < 0)
	{
		n++;
		item = kv_memtable_next(&cursor);
	}
	return n;
}

int
kv_batch_first_rows(KvScan *scan)
{
	KvShard    *shard = kv_shard(scan->store, scan->shard_id);
	int			room = KV_SMALL_RANGE + 1;
	const KvRunSet *set;

	if (scan->lo.data == NULL || scan->hi.data == NULL || scan->at_end)
		return KV_BATCH_ROWS_FIRST;
	set = kv_shard_runs(scan->store, scan->shard_id);
	for (int i = 0; i < set->nruns && room > 0; i++)
		room -= kv_run_count(set->runs[i], scan->lo, scan->hi, room);
	if (room > 0)
	{
		LWLockAcquire(&shard->lock, LW_SHARED);
		room -= count_items(scan, &shard->active, room);
		room -= count_items(scan, &shard->immutable, room);
		LWLockRelease(&shard->lock);
	}
	return room > 0 ? Max(KV_SMALL_RANGE + 1 - room, KV_BATCH_ROWS_FIRST) : KV_BATCH_ROWS_FIRST;
}
