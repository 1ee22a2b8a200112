/*
 * ahead.c
 *		Looks ahead of a scan in key order whose values are stored in another order.
 *
 * The index says where the values of the next keys are, long before the scan reaches these keys.
 * Their blocks are requested together, in the order of addresses.  The scan looks ahead as far as
 * cache/blockwindow.c has space, but not further than it has come.  Values that are cached nearer
 * than the device are not requested, and after a batch that has only such values the scan does not
 * look ahead.  Visibility is decided again when the batch is made: a block that was requested in
 * vain costs a read, and a missing one is requested then.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/memutils.h"

#include "engine/base/types.h"
#include "engine/cache/cache.h"
#include "engine/io/fault.h"
#include "engine/rows.h"
#include "engine/scan/internal.h"
#include "engine/shard/shard.h"
#include "engine/buffer/buffer.h"

/* Number of keys that are read under one lock. */
#define KV_AHEAD_KEYS	512
/* Maximum number of steps for a batch; invisible rows make steps in vain. */
#define KV_AHEAD_LOOKS	8

/* Blocks to be requested. */
typedef struct KvBlocks
{
	int			n;
	int			room;
	uint64	   *blocks;
} KvBlocks;

static void
make_blocks(const KvScan *scan, KvBlocks *list, int room)
{
	list->n = 0;
	list->room = room;
	list->blocks = MemoryContextAlloc(scan->batch_context, room * sizeof(uint64));
}

/* Adds the blocks of a value, if block windows take it; false: there is no capacity. */
static bool
add_blocks(KvBlocks *list, const KvVersion *version)
{
	KvAddress	address = KV_LOCATION_ADDRESS(version->location);
	uint64		last = (address + version->len - 1) / KV_BLOCK;

	if (version->len == 0 || version->len > KV_BLOCK_WINDOW_VALUE)
		return true;
	if (list->n + last - address / KV_BLOCK >= list->room)
		return false;
	for (uint64 block = address / KV_BLOCK; block <= last; block++)
		list->blocks[list->n++] = block;
	return true;
}

static int
compare_blocks(const void *a, const void *b)
{
	uint64		left = *(const uint64 *) a;
	uint64		right = *(const uint64 *) b;

	return left < right ? -1 : left > right;
}

static void
ask_for(KvScan *scan, KvBlocks *list, bool now)
{
	int			n = 0;

	qsort(list->blocks, list->n, sizeof(uint64), compare_blocks);
	for (int i = 0; i < list->n; i++)
	{
		if (n == 0 || list->blocks[i] != list->blocks[n - 1])
			list->blocks[n++] = list->blocks[i];
	}
	kv_block_window_want(&scan->reader, &scan->store->key, list->blocks, n, now);
}

/* Requests the blocks of the batch itself; false: all its values are nearer than the device. */
static bool
ask_for_batch(KvScan *scan)
{
	KvBlocks	list;

	make_blocks(scan, &list, scan->nrows * (KV_BLOCK_WINDOW_VALUE / KV_BLOCK + 1));
	for (int i = 0; i < scan->nrows; i++)
	{
		const KvBatchRow *row = &scan->rows[i];

		if (row->value == NULL &&
			!kv_source_has(scan->store->cache_id, row->version.location, row->version.len, false))
			(void) add_blocks(&list, &row->version);
	}
	ask_for(scan, &list, true);
	return list.n > 0;
}

/*
 * Goes through the keys after ahead->upto, for so many rows.  Skips values in write buffers, which
 * are in no block yet.  Reads at most KV_AHEAD_KEYS keys of the memtables.  False: there is no
 * capacity for more blocks.
 */
static bool
look(KvScan *scan, KvBlocks *list, uint64 rows)
{
	KvAhead    *ahead = &scan->ahead;
	KvShard    *shard;
	KvBounds	bounds = {.lo = scan->lo, .hi = scan->hi, .backward = scan->backward,
	.after = {ahead->upto, ahead->upto_len}};
	KvBatchRow	row;
	KvKeyReader keys;
	const KvRunSet *set;
	KvExtent	unwritten;
	uint64		most = ahead->rows + rows;
	bool		more = true;

	if (scan->wrapped)
		bounds.hi = scan->wrap;
	set = kv_keys_begin(&keys, scan, &bounds, KV_AHEAD_KEYS, KV_ITEMS_MOST, MaxAllocHugeSize);
	shard = kv_shard(scan->store, keys.shard_id);
	LWLockAcquire(&shard->lock, LW_SHARED);
	unwritten = kv_shard_unwritten(shard);
	LWLockRelease(&shard->lock);
	kv_keys_add_runs(&keys, set->runs, set->nruns);
	while (ahead->rows < most && more)
	{
		KvAddress	address;

		if (!kv_keys_next(&keys, &row))
		{
			ahead->ended = keys.complete;
			if (!keys.complete)
			{
				memcpy(ahead->upto, keys.limit.data, keys.limit.len);
				ahead->upto_len = keys.limit.len;
			}
			break;
		}
		address = KV_LOCATION_ADDRESS(row.version.location);
		if (row.present && (address < unwritten.begin || address >= unwritten.end) &&
			!kv_source_has(scan->store->cache_id, row.version.location, row.version.len, true))
			more = add_blocks(list, &row.version);
		if (!more)
			break;
		ahead->rows += row.present;
		memcpy(ahead->upto, row.key, row.keylen);
		ahead->upto_len = row.keylen;
	}
	kv_run_trust();
	return more;
}

/* The number of rows to look ahead. */
static uint64
rows_ahead(const KvScan *scan)
{
	uint64		come = scan->steering.rows + scan->nrows;
	uint64		rows = Min(kv_block_window_reach() / scan->ahead.blocks_each, come);

	if (scan->limit_hint > 0)
		rows = come < scan->limit_hint ? Min(rows, scan->limit_hint - come) : 0;
	return rows;
}

void
kv_ahead_begin(KvScan *scan, double mean)
{
	scan->steering.loading = KV_LOADS_BLOCKS;
	scan->steering.by_itself = false;
	scan->ahead.blocks_each = 1 + (uint64) Max(mean - 1, 0) / KV_BLOCK;
	if (scan->ahead.upto == NULL)
		scan->ahead.upto = MemoryContextAlloc(scan->context, KV_MAX_KEY);
	kv_ahead_reset(scan);
	kv_reader_want_blocks(&scan->reader, scan->store);
}

void
kv_ahead_reset(KvScan *scan)
{
	scan->ahead.rows = 0;
	scan->ahead.ended = false;
}

void
kv_ahead(KvScan *scan)
{
	KvAhead    *ahead = &scan->ahead;
	KvConflicts *conflicts = scan->view.conflicts;
	uint64		rows = rows_ahead(scan);
	bool		needs = ask_for_batch(scan);
	KvBlocks	list;

	ahead->rows -= Min(ahead->rows, scan->nrows);
	if (!needs || !scan->started || scan->shard_id != scan->reader.shard || ahead->ended ||
		ahead->rows * 2 > rows)
		return;
	if (ahead->rows == 0)
	{
		memcpy(ahead->upto, scan->position.data, scan->position.len);
		ahead->upto_len = scan->position.len;
	}
	KV_STOP_POINT("ahead_look");
	make_blocks(scan, &list, kv_block_window_reach());

	/* rows that are only looked ahead at are not read, so they are no conflicts */
	scan->view.conflicts = NULL;
	scan->want_values = false;
	for (int n = 0; n < KV_AHEAD_LOOKS && ahead->rows < rows && !ahead->ended; n++)
	{
		CHECK_FOR_INTERRUPTS();
		if (!look(scan, &list, rows - ahead->rows))
			break;
	}
	scan->want_values = true;
	scan->view.conflicts = conflicts;
	ask_for(scan, &list, false);
}
