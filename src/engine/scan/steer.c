/*
 * steer.c
 *		Decides when a scan reads through windows of the range cache, and what it wants loaded.
 *
 * A scan begins with single reads, in batches that grow.  It changes to windows in one of three
 * ways:
 *
 * - Whole shards: Values that are not stored in key order make a scan in key order need all files
 *   of the shard all the time.  The files are read from end to end if that costs less than single
 *   reads of the range's values.  The scan changes once it has returned a sixteenth of the range,
 *   or as soon as most of the shard is loaded for another scan.  From then on it enters each shard
 *   with windows if they pay.  The next shards are loaded in advance.
 * - Segment by segment: if the values of the next keys are stored one after the other, once the
 *   scan has returned a sixteenth of a segment; at first one segment ahead, then two, four, and so
 *   on.
 * - Block by block: if the values of the next keys are scattered and reading whole shards does not
 *   pay.  The next values are found in the index, and requested in advance (ahead.c).  Where they
 *   are in stretches of the files, these are read in large requests (stretch.c).
 *
 * A scan by address (byaddress.c) reads segments of the file from the beginning.
 *
 * So a short range never pays for a long one.  A scan that ends early has loaded in vain at most in
 * proportion to what it has read.  A known LIMIT makes a range as short as the LIMIT.
 */
#include "postgres.h"

#include <math.h>

#include "engine/base/types.h"
#include "engine/cache/reader.h"
#include "engine/rows.h"
#include "engine/scan/internal.h"
#include "engine/shard/map.h"
#include "engine/shard/shard.h"
#include "engine/buffer/buffer.h"
#include "engine/shard/valuefiles.h"

/* A single read of a block costs as much as reading so many more blocks in windows. */
#define KV_SINGLE_READ_BLOCKS	3
/* The share of a range's rows after which a scan changes to windows. */
#define KV_RAMP_SHARE			16
/* Least number of rows that a scan must still want to look ahead for blocks. */
#define KV_AHEAD_ROWS			4096
/* Maximum number of shards after the scan's that are examined. */
#define KV_SHARDS_AHEAD			(4 * KV_WANTS)

static uint64
cache_bytes(void)
{
	return (uint64) kv_window_number() * KV_WINDOW_SIZE;
}

/*
 * Does reading all of so many bytes of files cost less than single reads of so many values of mean
 * size?
 */
static bool
windows_pay(uint64 rows, double mean, uint64 length)
{
	uint64		blocks = length / KV_BLOCK;

	return rows > 0 && length > 0 && length <= cache_bytes() &&
		Min(rows, blocks) * KV_SINGLE_READ_BLOCKS + rows * mean / KV_BLOCK >= blocks;
}

void
kv_steer_begin(KvScan *scan, bool ramped)
{
	scan->steering.ramped = ramped;
	scan->steering.loading = KV_LOADS_NOTHING;
	scan->steering.depth = 0;
	scan->steering.by_itself = false;
	memset(&scan->steering.order, 0, sizeof(KvOrder));
}

void
kv_steer_end(KvScan *scan)
{
	kv_reader_leave(&scan->reader);
	scan->steering.loading = KV_LOADS_NOTHING;
}

/* ---- the shards of the whole range ---- */

static bool
is_open_ended(const KvScan *scan)
{
	return (scan->backward ? scan->whole_lo : scan->whole_hi).data == NULL;
}

static bool
wraps(const KvScan *scan)
{
	return scan->order == KV_ANY_ORDER || scan->order == KV_BY_ADDRESS;
}

/* The last shard of the whole range by the newest map. */
static uint32
last_shard(const KvScan *scan)
{
	KvKey		end = scan->backward ? scan->whole_lo : scan->whole_hi;
	KvKey		edge;
	uint8		edge_bytes[KV_MAX_KEY];

	return kv_route_part(scan->store, scan->wrap.data != NULL ? scan->wrap : end,
						 !scan->backward, &edge, edge_bytes).shard_id;
}

/*
 * The approximate number of shards that the scan still goes through after this one, up to the last;
 * 0 also if the map does not have this one any more.
 */
static int64
shards_after(const KvScan *scan, uint32 shard_id, uint32 last)
{
	int64		n = kv_shard_distance(scan->store, shard_id, last);

	if (kv_shard(scan->store, shard_id)->place.bounds_since == KV_NOT_IN_MAP)
		return 0;
	if (n < 0 && wraps(scan))
		return n + kv_store_nshards(scan->store);
	return scan->backward ? -n : n;
}

/* Begins another shard, of which nothing is known. */
static void
begin_shard(KvScan *scan, uint32 shard_id)
{
	if (scan->reader.wants_blocks)
		kv_reader_leave(&scan->reader); /* no scan should wait for it there */
	kv_reader_begin(&scan->reader, scan->store->cache_id, shard_id);
	kv_steer_begin(scan, scan->steering.ramped);
}

/*
 * Asks for the wanted spans and reads through windows, if the cache has space.  extents: of the
 * present shard.
 */
static void
enter(KvScan *scan, const KvExtents *extents, uint64 last_segment, const KvWant *wants,
	  int nwants)
{
	KvStore    *store = scan->store;
	KvCourse	course = {
		.store = store->key,
		.map = store,
		.step = scan->backward ? -1 : 1,
		.last = last_shard(scan),
		.wraps = wraps(scan),
		.segment_step = scan->steering.segment_step,
		.last_segment = last_segment
	};

	scan->steering.segment = wants[0].segment;
	kv_reader_remember(&scan->reader, extents, wants[0].segment == KV_WHOLE);
	kv_reader_enter(&scan->reader, &course, wants, nwants);
}

/* ---- all of a shard ---- */

/* Finds the extents of the shard's written values; false: there are too many. */
static bool
find_extents(KvScan *scan, uint32 shard_id, KvExtents *extents)
{
	KvShard    *shard = kv_shard(scan->store, shard_id);
	bool		all;

	LWLockAcquire(&shard->lock, LW_SHARED);
	all = kv_shard_extents(shard, extents);
	extents->found_at = pg_atomic_read_u32(&shard->generation);
	LWLockRelease(&shard->lock);
	return all;
}

/*
 * Asks for all of a shard's values and, as far as the cache has space, those of the next shards.
 * beyond: the number of rows that the scan will want of those.
 */
static void
enter_whole(KvScan *scan, uint32 shard_id, const KvExtents *extents, double mean, double beyond)
{
	KvWant		wants[KV_WANTS] = {{shard_id, KV_WHOLE, *extents}};
	uint64		room = cache_bytes() - Min(cache_bytes(), kv_extents_size(extents));
	int64		after = shards_after(scan, shard_id, last_shard(scan));
	int			n = 1;

	if (!is_open_ended(scan))
		after--;				/* only part of the last one is wanted: decided there */
	after = Min(after, KV_SHARDS_AHEAD);
	for (; after > 0 && n < KV_WANTS && beyond > 0; after--)
	{
		double		rows;
		uint64		length;

		shard_id = kv_shard_next(scan->store, shard_id, scan->backward ? -1 : 1);
		rows = Min(kv_shard_entries(scan->store, shard_id), beyond);
		beyond -= rows;
		if (!find_extents(scan, shard_id, &wants[n].extents))
			continue;
		length = kv_extents_size(&wants[n].extents);
		if (!windows_pay(rows, mean, length))
			continue;
		if (length > room)
			break;
		room -= length;
		wants[n].shard = shard_id;
		wants[n++].segment = KV_WHOLE;
	}
	scan->steering.ramped = true;
	scan->steering.loading = KV_LOADS_WHOLE;
	enter(scan, extents, KV_WHOLE, wants, n);
}

/* ---- segment by segment ---- */

/* The address of the first value of the batch; false: it has none. */
static bool
first_address(const KvScan *scan, KvAddress *address)
{
	for (int i = 0; i < scan->nrows; i++)
	{
		if (scan->rows[i].version.len > 0)
		{
			*address = KV_LOCATION_ADDRESS(scan->rows[i].version.location);
			return true;
		}
	}
	return false;
}

static void
note_addresses(KvScan *scan)
{
	KvOrder    *order = &scan->steering.order;

	kv_order_go_on(order);
	for (int i = 0; i < scan->nrows; i++)
	{
		if (scan->rows[i].version.len > 0)
			kv_order_add(order, KV_LOCATION_ADDRESS(scan->rows[i].version.location));
	}
}

/*
 * Does the scan continue with the segments that it has loaded?  It does while the first value of
 * its batch is in the current one.  It does not if that value is in one of those loaded ahead: then
 * it is time to load further ones.  A value anywhere else is an exception, and is read
 * individually.  When exceptions amount to a segment, key order continues in another part of the
 * file.  There the scan begins with one segment again.
 */
static bool
is_in_segment(KvScan *scan)
{
	KvSteering *steering = &scan->steering;
	KvAddress	address;
	int64		ahead;

	if (!first_address(scan, &address))
		return true;
	ahead = ((int64) (address / KV_SEGMENT_SIZE) - (int64) steering->segment) *
		steering->segment_step;
	if (ahead == 0)
		steering->segment_rows = steering->rows;
	else if (ahead > 0 && ahead <= steering->depth)
		return false;
	if ((steering->rows - steering->segment_rows) * ((double) scan->batch_bytes / scan->nrows) <
		KV_SEGMENT_SIZE)
		return true;
	steering->depth = 0;
	return false;
}

/* The segment with the scan's last value; KV_WHOLE: the scan does not end in this shard. */
static uint64
find_last_segment(const KvScan *scan, uint32 shard_id, uint64 segment)
{
	KvKey		end = scan->backward ? scan->whole_lo : scan->whole_hi;
	KvAddress	address;
	uint64		last;

	if (end.data == NULL || shard_id != last_shard(scan) ||
		!kv_last_address(scan->store, shard_id, end, scan->backward, &address))
		return KV_WHOLE;
	last = address / KV_SEGMENT_SIZE;
	/* KV_WHOLE: the scan is past it already, so values are not in order there */
	return ((int64) last - (int64) segment) * scan->steering.segment_step < 0 ? KV_WHOLE : last;
}

/* The parts of the extents that are in a segment; false: none is. */
static bool
clip(const KvExtents *extents, uint64 segment, KvExtents *clipped)
{
	KvAddress	begin = segment * KV_SEGMENT_SIZE;

	clipped->n = 0;
	clipped->found_at = extents->found_at;
	for (int i = 0; i < extents->n; i++)
	{
		KvExtent	part = {Max(extents->at[i].begin, begin),
			Min(extents->at[i].end, begin + KV_SEGMENT_SIZE)};

		if (part.begin < part.end)
			clipped->at[clipped->n++] = part;
	}
	return clipped->n > 0;
}

/* Adds consecutive segments of a shard to wants, up to most; returns their number. */
static int
add_segments(const KvScan *scan, uint32 shard_id, const KvExtents *extents, uint64 segment,
			 uint64 last_segment, KvWant *wants, int n, int most)
{
	int			step = scan->steering.segment_step;

	while (n < most && clip(extents, segment, &wants[n].extents))
	{
		wants[n].shard = shard_id;
		wants[n++].segment = segment;
		if (segment == last_segment || (segment == 0 && step < 0))
			break;
		segment += step;
	}
	return n;
}

/*
 * Adds the first segments of the next shard, if the scan goes through that and its values are in
 * order.  The rest of the present shard is wanted already.
 */
static int
add_next_shard(KvScan *scan, uint32 shard_id, KvWant *wants, int n, int most)
{
	uint32		last = last_shard(scan);
	KvKey		edge = {scan->backward ? NULL : (const uint8 *) "", 0};
	KvExtents	extents;
	KvAddress	address;

	/* only part of the last shard may be wanted */
	if (n >= most || shards_after(scan, shard_id, last) < (is_open_ended(scan) ? 1 : 2))
		return n;
	shard_id = kv_shard_next(scan->store, shard_id, scan->backward ? -1 : 1);
	if (!kv_last_address(scan->store, shard_id, edge, !scan->backward, &address) ||
		!kv_shard_keeps_order(scan->store, shard_id))
		return n;
	(void) find_extents(scan, shard_id, &extents);
	return add_segments(scan, shard_id, &extents, address / KV_SEGMENT_SIZE, KV_WHOLE,
						wants, n, most);
}

/*
 * Asks for a segment of the shard and some consecutive ones after it.  onward: the scan reads the
 * shards after this one as well, in key order.
 */
static void
enter_segment(KvScan *scan, uint32 shard_id, uint64 segment, double bytes_left, bool onward)
{
	KvSteering *steering = &scan->steering;
	KvWant		wants[KV_WANTS];
	KvExtents	extents;
	int			most = Min(KV_WANTS, kv_window_number() / KV_SEGMENT_PIECES);
	int			here;
	int			n;

	(void) find_extents(scan, shard_id, &extents);
	steering->depth = Min(Max(steering->depth * 2, 1), most);
	here = Min(steering->depth, 1 + bytes_left / KV_SEGMENT_SIZE);
	n = add_segments(scan, shard_id, &extents, segment, steering->last_segment, wants, 0, here);
	if (onward && n > 0 && bytes_left <= (double) n * KV_SEGMENT_SIZE)
		n = add_next_shard(scan, shard_id, wants, n, steering->depth);
	if (n == 0)
	{
		kv_reader_leave(&scan->reader);
		return;
	}
	steering->loading = KV_LOADS_SEGMENTS;
	steering->segment_rows = steering->rows;
	enter(scan, &extents, steering->last_segment, wants, n);
}

/* ---- by address ---- */

bool
kv_shard_scattered(KvStore *store, uint32 shard_id)
{
	KvShard    *shard = kv_shard(store, shard_id);
	uint64		room = cache_bytes();

	/* an estimate without the lock; the reader of the values checks again under the lock */
	return kv_shard_value_bytes(shard) > Max(room, KV_WINDOW_SIZE) &&
		!kv_shard_keeps_order(store, shard_id);
}

void
kv_steer_by_address(KvScan *scan, uint32 shard_id, KvAddress address, KvAddress begin,
					double bytes_left)
{
	KvSteering *steering = &scan->steering;
	uint64		segment = address / KV_SEGMENT_SIZE;

	if (kv_window_number() < 2 * KV_SEGMENT_PIECES)
		return;
	if (scan->reader.shard != shard_id || scan->reader.seen == NULL)
		begin_shard(scan, shard_id);
	if (steering->loading == KV_LOADS_SEGMENTS && segment == steering->segment)
	{
		kv_reader_progress(&scan->reader);
		return;
	}
	steering->segment_step = 1;
	steering->last_segment = address < begin ? (begin - 1) / KV_SEGMENT_SIZE : KV_WHOLE;
	enter_segment(scan, shard_id, segment, bytes_left, false);
}

/* ---- block by block ---- */

/* Are the values of the next keys scattered, and should the scan have blocks loaded? */
static bool
blocks_pay(const KvScan *scan, double rows, double mean)
{
	const KvSteering *steering = &scan->steering;
	int			step;

	return (!steering->by_itself || kv_block_window_stirs(&scan->reader)) &&
		rows >= KV_AHEAD_ROWS && mean <= KV_BLOCK_WINDOW_VALUE &&
		steering->order.n >= KV_ORDER_LEAST && !kv_order_is_kept(&steering->order, &step) &&
		kv_block_window_is_possible();
}

/* Does a scan that has blocks loaded continue with that? */
static bool
goes_on_with_blocks(KvScan *scan)
{
	KvSteering *steering = &scan->steering;
	int			step;

	if (!scan->reader.wants_blocks)
		steering->by_itself = true;
	else if (!kv_order_is_kept(&steering->order, &step))
		return true;
	steering->loading = KV_LOADS_NOTHING;
	return false;
}

/* ---- the decision ---- */

/* Decides for a batch whose keys are known; bytes: of the shard's values. */
static void
steer(KvScan *scan, uint32 shard_id, uint64 bytes)
{
	KvSteering *steering = &scan->steering;
	KvKey		lo = scan->whole_lo;
	KvKey		hi = scan->whole_hi;
	double		left = INFINITY;	/* rows that the caller will still take */
	KvEntries	entries;
	double		rows;
	double		enough;			/* number of rows after which windows are tried */
	KvExtents	extents;
	bool		pays;

	if (kv_window_number() == 0 || bytes == 0 || scan->nrows == 0)
		return;
	if (scan->reader.shard != shard_id || scan->reader.seen == NULL)
		begin_shard(scan, shard_id);
	note_addresses(scan);
	if (steering->loading == KV_LOADS_WHOLE ||
		(steering->loading == KV_LOADS_BLOCKS && goes_on_with_blocks(scan)) ||
		(steering->loading == KV_LOADS_SEGMENTS && is_in_segment(scan)))
	{
		kv_reader_progress(&scan->reader);
		return;
	}
	if (steering->rows < scan->limit_hint)
		left = scan->limit_hint - steering->rows;
	if (!scan->shared)
		*(scan->backward ? &hi : &lo) = (KvKey) {scan->rows[0].key, scan->rows[0].keylen};
	kv_entries_between(scan->store, shard_id, lo, hi, &entries);
	rows = entries.between;
	/* now from the shards after this one; negative: the LIMIT ends in this one */
	left -= rows;
	if (left < 0)
		rows += left;
	pays = windows_pay(rows, entries.mean, bytes);
	if (steering->ramped)
		enough = 0;
	else if (pays && kv_window_is_there(scan->store->cache_id, shard_id))
		enough = 0;
	else
		enough = rows / KV_RAMP_SHARE;

	/* of files shared with other shards the range may have little */
	pays = pays && (steering->rows < enough ||
					(find_extents(scan, shard_id, &extents) &&
					 windows_pay(rows, entries.mean, kv_extents_size(&extents))));
	if (pays && left >= 0 && rows * 2 >= entries.total && steering->rows >= enough)
	{
		enter_whole(scan, shard_id, &extents, entries.mean, left);
		return;
	}
	if (kv_window_number() >= 2 * KV_SEGMENT_PIECES &&
		steering->rows >= KV_SEGMENT_SIZE / KV_RAMP_SHARE / Max(entries.mean, 1) &&
		kv_order_is_kept(&steering->order, &steering->segment_step))
	{
		/* segments are loaded whole, so the one that reaches the LIMIT is excluded */
		double		bytes_left = rows * entries.mean - (left < 0 ? KV_SEGMENT_SIZE : 0);
		uint64		segment = (steering->order.found ? steering->order.first :
							   steering->order.last) / KV_SEGMENT_SIZE;

		steering->last_segment = find_last_segment(scan, shard_id, segment);
		if (bytes_left > KV_WINDOW_SIZE)
			enter_segment(scan, shard_id, segment, bytes_left, left > 0);
		else
			kv_reader_leave(&scan->reader);
		return;
	}
	if (pays && steering->rows >= enough)
		enter_whole(scan, shard_id, &extents, entries.mean, left);
	else if (!pays && blocks_pay(scan, rows, entries.mean))
		kv_ahead_begin(scan, rows, entries.mean);
	else if (!pays || steering->loading == KV_LOADS_SEGMENTS)
		kv_reader_leave(&scan->reader);
}

void
kv_steer_fill_range(KvScan *scan)
{
	uint64		bytes;
	uint32		shard_id = kv_batch_fill_range(scan, &bytes);

	if (!scan->want_values)
		return;
	steer(scan, shard_id, bytes);
	kv_run_trust();				/* steer() has read runs, too */
}
