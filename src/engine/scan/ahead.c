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

#include <math.h>

#include "common/hashfn.h"
#include "miscadmin.h"
#include "port/pg_bitutils.h"
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

/* Number of rows after which the number of their blocks counts. */
#define KV_AHEAD_SAMPLE	64

/* Blocks to be requested, by part. */
typedef struct KvBlocks
{
	int			nblocks;
	int			room;			/* most blocks */
	int			n;
	KvWantedPart *parts;		/* [room] */
	uint8	   *last;			/* the block of each part that was added last; [room] */
	int			up;				/* blocks that were added after one before it in its part */
	int			down;			/* and after one that is after it there */
	uint32		mask;
	int		   *table;			/* indexes in parts, or -1, by part; [mask + 1] */
} KvBlocks;

static void
make_blocks(const KvScan *scan, KvBlocks *list, int room)
{
	MemoryContext context = scan->batch_context;

	memset(list, 0, sizeof(*list));
	list->room = room;
	list->parts = MemoryContextAlloc(context, room * sizeof(KvWantedPart));
	list->last = MemoryContextAlloc(context, room);
	list->mask = pg_nextpower2_32(2 * Max(room, 1)) - 1;
	list->table = MemoryContextAlloc(context, (list->mask + 1) * sizeof(int));
	memset(list->table, -1, (list->mask + 1) * sizeof(int));
}

/* The index of a part, which is added if it is new; there is capacity for it. */
static int
part_of(KvBlocks *list, uint64 part)
{
	uint32		at = murmurhash32((uint32) part) & list->mask;

	while (list->table[at] >= 0 && list->parts[list->table[at]].part != part)
		at = (at + 1) & list->mask;
	if (list->table[at] < 0)
	{
		list->parts[list->n] = (KvWantedPart) {.part = part};
		list->last[list->n] = 0;
		list->table[at] = list->n++;
	}
	return list->table[at];
}

/* Adds the blocks of a value, if block windows take it; false: there is no capacity. */
static bool
add_blocks(KvBlocks *list, const KvVersion *version)
{
	KvAddress	address = KV_LOCATION_ADDRESS(version->location);
	uint64		last = (address + version->len - 1) / KV_BLOCK;

	if (version->len == 0 || version->len > KV_BLOCK_WINDOW_VALUE)
		return true;
	if (list->nblocks + last - address / KV_BLOCK >= list->room)
		return false;
	for (uint64 block = address / KV_BLOCK; block <= last; block++)
	{
		int			i = part_of(list, block / KV_PART_BLOCKS);
		int			bit = block % KV_PART_BLOCKS;

		if (list->parts[i].blocks & 1 << bit)
			continue;
		if (list->parts[i].blocks != 0)
			*(bit > list->last[i] ? &list->up : &list->down) += 1;
		list->parts[i].blocks |= 1 << bit;
		list->last[i] = bit;
		list->nblocks++;
	}
	return true;
}

static int
compare_parts(const void *a, const void *b)
{
	uint64		left = ((const KvWantedPart *) a)->part;
	uint64		right = ((const KvWantedPart *) b)->part;

	return left < right ? -1 : left > right;
}

/* False: some of the blocks will not be loaded. */
static bool
ask_for(KvScan *scan, KvBlocks *list, bool now)
{
	qsort(list->parts, list->n, sizeof(KvWantedPart), compare_parts);
	if (!now)
		scan->reader.step = list->up >= list->down ? 1 : -1;
	kv_stretch_choose(scan, list->parts, list->n, !now);
	return kv_block_window_want(&scan->reader, &scan->store->key, list->parts, list->n, now);
}

/* Does the batch have a value that is no nearer than the device? */
static bool
needs_device(const KvScan *scan)
{
	for (int i = 0; i < scan->nrows; i++)
	{
		const KvBatchRow *row = &scan->rows[i];

		if (row->value == NULL && row->version.len > 0 &&
			!kv_source_has(scan->store->cache_id, row->version.location, row->version.len, false))
			return true;
	}
	return false;
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
	(void) ask_for(scan, &list, true);
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
	scan->reader.unwritten = unwritten;
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

/* The number of rows to look ahead, by how many blocks the last ones had. */
static uint64
rows_ahead(const KvScan *scan)
{
	uint64		come = scan->steering.rows + scan->nrows;
	uint64		rows = kv_block_window_reach(scan->reader.together > 0) / scan->ahead.blocks_each;

	rows = Min(rows, come);

	if (scan->limit_hint > 0)
		rows = come < scan->limit_hint ? Min(rows, scan->limit_hint - come) : 0;
	return rows;
}

/* Tells where the scan and the end of its look ahead are among the keys of the shard. */
static void
tell_position(KvScan *scan)
{
	KvKey		none = {NULL, 0};
	KvKey		upto = {scan->ahead.upto, scan->ahead.upto_len};
	KvKey		keys[2] = {scan->position, upto};
	uint64		before[2];

	for (int i = 0; i < lengthof(keys); i++)
	{
		KvEntries	entries;

		kv_entries_between(scan->store, scan->shard_id, scan->backward ? keys[i] : none,
						   scan->backward ? none : keys[i], &entries);
		before[i] = entries.between;
	}
	kv_run_trust();
	kv_block_window_look(&scan->reader, before[0], Max(before[0], before[1]) + 1, scan->backward);
}

void
kv_ahead_begin(KvScan *scan, double rows, double mean)
{
	scan->steering.loading = KV_LOADS_BLOCKS;
	scan->steering.by_itself = false;
	scan->ahead.mean = mean;
	scan->ahead.wanted = rows * mean;
	scan->ahead.blocks_each = 1 + floor(Max(mean - 1, 0) / KV_BLOCK);
	if (scan->ahead.upto == NULL)
		scan->ahead.upto = MemoryContextAlloc(scan->context, KV_MAX_KEY);
	kv_ahead_reset(scan);
	kv_reader_want_blocks(&scan->reader, scan->store);
}

void
kv_ahead_reset(KvScan *scan)
{
	scan->ahead.rows = scan->ahead.lacks = 0;
	scan->ahead.ended = false;
}

void
kv_ahead(KvScan *scan)
{
	KvAhead    *ahead = &scan->ahead;
	KvConflicts *conflicts = scan->view.conflicts;
	uint64		rows = rows_ahead(scan);
	uint64		before;
	KvBlocks	list;
	bool		needs;

	/* for what it has asked for it asks again only if some was not there */
	if (scan->reader.with_parts && scan->reader.nmissed == 0 && ahead->lacks == 0 &&
		ahead->rows >= scan->nrows)
		needs = needs_device(scan);
	else
		needs = ask_for_batch(scan);
	scan->reader.nmissed = 0;
	ahead->rows -= Min(ahead->rows, scan->nrows);
	ahead->lacks -= Min(ahead->lacks, scan->nrows);
	if (!needs || !scan->started || scan->shard_id != scan->reader.shard || ahead->ended ||
		ahead->rows * 2 > rows)
		return;
	if (ahead->rows == 0)
	{
		memcpy(ahead->upto, scan->position.data, scan->position.len);
		ahead->upto_len = scan->position.len;
	}
	before = ahead->rows;
	KV_STOP_POINT("ahead_look");
	make_blocks(scan, &list, kv_block_window_reach(true));

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
	if (ahead->rows >= before + KV_AHEAD_SAMPLE)
		ahead->blocks_each = Max((double) list.nblocks / (ahead->rows - before),
								 Max(ahead->mean, 1) / KV_BLOCK);
	tell_position(scan);
	if (!ask_for(scan, &list, false))
		ahead->lacks = ahead->rows;
}
