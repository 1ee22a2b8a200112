/*
 * rangesteer.c
 *		When a scan reads through windows of the range cache, and what it wants
 *		loaded.
 *
 * A scan begins with single reads, in batches that grow.  It goes over to windows in
 * one of two ways:
 *
 * - All of a shard: its values lie in the file as they were written, and that is
 *   not the order of keys, so a scan in key order needs all of the file all the
 *   time.  It is read from end to end if that costs less than single reads of what
 *   the range has there, once the scan has returned a sixteenth of that, or as soon
 *   as most of it is there for another scan; from then on each shard is entered with
 *   windows if they pay.  The next shards are loaded meanwhile.
 * - Segment by segment, if the values of the next keys lie one behind the other,
 *   once the scan has returned a sixteenth of a segment; first one segment ahead,
 *   then two, four, …
 *
 * A scan by place (placescan.c) reads segments of the file from the beginning.
 *
 * So a short range never pays for a long one, and what a scan that ends early has
 * loaded in vain is bounded by what it has read.  A LIMIT that is known makes a range
 * as short as that.
 */
#include "postgres.h"

#include <math.h>

#include "utils/memutils.h"

#include "engine/batch.h"
#include "engine/rangecache.h"

/* A single read costs as much as so many more blocks read in windows. */
#define KV_SINGLE_READ_BLOCKS	3
/* The share of a range's rows after which a scan goes over to windows. */
#define KV_RAMP_SHARE			16
/* Entries that are looked at to find out whether their values are in order. */
#define KV_ORDER_SAMPLE			256
#define KV_ORDER_SAMPLES		4		/* so often in a shard */
#define KV_MAX_SEEN				65536

/* Up to where a shard's value file is written. */
uint64
kv_range_written(const KvShard *shard)
{
	uint64		end = shard->value_tail;

	if (shard->open_slot >= 0)
		end = Min(end, kv_slots[shard->open_slot].base);
	for (int i = shard->sealed_slots; i >= 0; i = kv_slots[i].next)
		end = Min(end, kv_slots[i].base);
	return end;
}

static uint64
cache_bytes(void)
{
	return (uint64) kv_range->nwindows * KV_WINDOW_SIZE;
}

/*
 * Does reading all of a file's first length bytes cost less than reading that
 * many of its values, of mean size, singly?
 */
static bool
windows_pay(uint64 rows, double mean, uint64 length)
{
	uint64		blocks = length / KV_BLOCK;

	return rows > 0 && length > 0 && length <= cache_bytes() &&
		Min(rows, blocks) * KV_SINGLE_READ_BLOCKS + rows * mean / KV_BLOCK >= blocks;
}

static double
position(KvRun *run, const KvRunCursor *cursor)
{
	const KvRunHeader *header = kv_run_header(run);

	if (!cursor->valid)
		return header->nentries;
	return (double) header->nentries * cursor->page / header->npages + cursor->index;
}

/*
 * About how many entries of the runs lie in [lo, hi), how many there are in all, and
 * what their values' mean size is.
 */
static uint64
entries_between(const KvRunSet *set, KvKey lo, KvKey hi, double *total, double *mean)
{
	double		n = 0;
	double		all = 0;
	double		value_bytes = 0;

	for (int i = 0; i < set->nruns; i++)
	{
		KvRun	   *run = set->runs[i];
		const KvRunHeader *header = kv_run_header(run);
		KvRunCursor first = {.run = run};
		KvRunCursor end = {.run = run};

		if (lo.data != NULL)
			kv_run_seek(run, lo.data, lo.len, &first);
		else
			kv_run_first(run, &first);
		if (hi.data != NULL)
			kv_run_seek(run, hi.data, hi.len, &end);
		n += Max(position(run, &end) - position(run, &first), 0);
		all += header->nentries;
		value_bytes += header->value_bytes;
	}
	*total = all;
	*mean = all > 0 ? value_bytes / all : 0;
	return n;
}

static void
forget_pieces(KvRangePass *pass)
{
	for (int i = 0; i < pass->nseen; i++)
		pass->seen[i] = -1;
}

/* Another shard begins: nothing is known of its pieces, and few will be met. */
static void
begin_shard(KvRangePass *pass, uint32 shardno)
{
	if (pass->seen != NULL && pass->seen != pass->few)
		pfree(pass->seen);
	pass->seen = pass->few;
	pass->nseen = lengthof(pass->few);
	forget_pieces(pass);
	pass->shard = shardno;
	pass->decided = pass->in_order = pass->windows = false;
	pass->depth = 0;
}

/* Many pieces of the shard will be met. */
static void
remember_pieces(KvScan *scan, uint64 written)
{
	KvRangePass *pass = &scan->pass;

	if (pass->seen != pass->few)
		return;
	kv_range_make_context(scan);
	pass->nseen = Min(KV_MAX_SEEN, (written + KV_WINDOW_SIZE - 1) / KV_WINDOW_SIZE);
	pass->seen = MemoryContextAlloc(pass->context, pass->nseen * sizeof(int));
	forget_pieces(pass);
	for (int i = 0; i < lengthof(pass->few); i++)
	{
		/* if it has become another's by now, that will be found out */
		if (pass->few[i] >= 0)
			pass->seen[kv_windows[pass->few[i]].key.piece % pass->nseen] = pass->few[i];
	}
}

/* ---- all of a shard ---- */

/*
 * Want a shard and, as far as there is room, those that the scan comes to; beyond:
 * how many rows it wants of those.
 */
static void
enter_whole(KvScan *scan, uint32 shardno, uint64 written, double mean, double beyond)
{
	KvRangePass *pass = &scan->pass;
	KvWant		wants[KV_WANTS] = {{shardno, KV_WHOLE, written}};
	uint64		room = cache_bytes() - written;
	bool		open_ended = (scan->backward ? scan->extent_lo : scan->extent_hi).data == NULL;
	int			n = 1;

	while (n < KV_WANTS && beyond > 0 &&
		   kv_batch_next_shard(scan, scan->last_shard, &shardno))
	{
		KvShard    *shard = kv_shard(scan->store, shardno);
		uint64		entries = shard->frozen_keys + shard->unfrozen_entries;
		double		rows = Min(entries, beyond);
		uint64		length;

		if (shardno == scan->last_shard && !open_ended)
			break;				/* part of it only: to be decided there */
		LWLockAcquire(&shard->lock, LW_SHARED);
		length = kv_range_written(shard);
		LWLockRelease(&shard->lock);
		beyond -= rows;
		if (!windows_pay(rows, mean, length))
			continue;
		if (length > room)
			break;
		room -= length;
		wants[n++] = (KvWant) {shardno, KV_WHOLE, length};
	}
	pass->ramped = pass->decided = true;
	pass->in_order = false;
	pass->from = 0;
	pass->to = written;
	remember_pieces(scan, written);
	kv_range_enter(scan, wants, n);
}

/* ---- segment by segment ---- */

/* The run with the most entries; NULL: there is none. */
static KvRun *
largest_run(const KvRunSet *set)
{
	KvRun	   *largest = NULL;

	for (int i = 0; i < set->nruns; i++)
	{
		if (largest == NULL ||
			kv_run_header(set->runs[i])->nentries > kv_run_header(largest)->nentries)
			largest = set->runs[i];
	}
	return largest;
}

/* Where a run's next entry for the scan is, which has come to start. */
static void
seek_next(const KvScan *scan, KvRun *run, KvKey start, KvRunCursor *cursor)
{
	if (scan->backward)
		kv_run_seek_before(run, start.data, start.len, cursor);
	else if (start.data == NULL)
		kv_run_first(run, cursor);
	else
		kv_run_seek(run, start.data, start.len, cursor);
}

static uint64
offset_at(const KvRunCursor *cursor)
{
	uint8		keybuf[8];
	const uint8 *key;
	int			keylen;
	KvVersion	version;

	kv_run_entry(cursor, keybuf, &key, &keylen, &version);
	return KV_LOCATION_OFFSET(version.location);
}

/*
 * Do the values of the next entries lie one behind the other, or one before the
 * other?  Then *segment is where they begin and *step says which.
 */
static bool
is_in_order(KvRunCursor cursor, bool backward, uint32 *segment, int *step)
{
	uint64		last;
	int			n = 0;
	int			up = 0;
	int			down = 0;

	*segment = 0;
	if (!cursor.valid)
		return false;
	last = offset_at(&cursor);
	for (; n < KV_ORDER_SAMPLE; n++)
	{
		uint64		offset;

		if (backward)
			kv_run_prev(&cursor);
		else
			kv_run_next(&cursor);
		if (!cursor.valid)
			break;
		offset = offset_at(&cursor);
		if (offset >= last && offset - last <= KV_WINDOW_SIZE)
			up++;
		else if (offset < last && last - offset <= KV_WINDOW_SIZE)
			down++;
		else
		{
			last = offset;
			continue;
		}
		if (up + down == 1)
			*segment = last / KV_SEGMENT_SIZE;
		last = offset;
	}
	*step = up >= down ? 1 : -1;
	return n >= KV_ORDER_SAMPLE / 8 && Max(up, down) * 4 >= n * 3;
}

/* Likewise of those that the scan comes to. */
static bool
find_order(const KvScan *scan, KvRun *run, KvKey start, uint32 *segment, int *step)
{
	KvRunCursor cursor;

	seek_next(scan, run, start, &cursor);
	return is_in_order(cursor, scan->backward, segment, step);
}

/*
 * The scan still reads the segment that it is in, or something out of order.  What
 * lies elsewhere is out of order until it is a segment's worth: then the file's order
 * goes on there, and the scan begins with one segment again.
 */
static bool
is_in_segment(KvScan *scan, const KvRunSet *set, KvKey start)
{
	KvRangePass *pass = &scan->pass;
	KvRun	   *run = largest_run(set);
	const KvRunHeader *header;
	KvRunCursor cursor;
	int64		ahead;

	if (run == NULL)
		return true;
	seek_next(scan, run, start, &cursor);
	if (!cursor.valid)
		return true;
	ahead = ((int64) (offset_at(&cursor) / KV_SEGMENT_SIZE) - pass->segment) * pass->segment_step;
	if (ahead == 0)
		pass->segment_rows = pass->rows;
	else if (ahead > 0 && ahead <= pass->depth)
		return false;
	header = kv_run_header(run);
	if ((pass->rows - pass->segment_rows) * ((double) header->value_bytes / header->nentries) <
		KV_SEGMENT_SIZE)
		return true;
	pass->depth = 0;
	return false;
}

/*
 * The key with which a segment begins, about, and if all of the file is in order; in the
 * scan's memory.  False: the place is a whole shard, or nobody knows.
 */
bool
kv_range_key_at(const KvScan *scan, const KvRangePlace *place, KvKey *key)
{
	KvRun	   *run = largest_run(kv_shard_runs(scan->store, place->shard));
	KvRunCursor cursor = {.run = run, .valid = true};
	uint64		first = 0;
	uint64		end = run != NULL ? kv_run_header(run)->npages : 0;
	uint8		keybuf[8];
	const uint8 *bytes;
	int			len;
	KvVersion	version;

	if (place->segment == KV_WHOLE || end == 0)
		return false;
	/* the last page that begins before the segment does */
	while (end - first > 1)
	{
		cursor.page = (first + end) / 2;
		if (((int64) (offset_at(&cursor) / KV_SEGMENT_SIZE) - place->segment) *
			place->segment_step < 0)
			first = cursor.page;
		else
			end = cursor.page;
	}
	cursor.page = first;
	kv_run_entry(&cursor, keybuf, &bytes, &len, &version);
	*key = kv_batch_copy_key(scan->context, bytes, len);
	return true;
}

/* The segment in which the scan ends if it does so in this shard; KV_WHOLE: it does not. */
static uint32
find_last_segment(const KvScan *scan, KvRun *run, uint32 shardno, uint32 segment)
{
	KvKey		end = scan->backward ? scan->extent_lo : scan->extent_hi;
	KvRunCursor cursor;
	uint32		last;

	if (shardno != scan->last_shard || end.data == NULL)
		return KV_WHOLE;
	if (scan->backward)
		kv_run_seek(run, end.data, end.len, &cursor);
	else
		kv_run_seek_before(run, end.data, end.len, &cursor);
	if (!cursor.valid)
		return KV_WHOLE;
	last = offset_at(&cursor) / KV_SEGMENT_SIZE;
	/* one that lies before where the scan is says nothing */
	return ((int64) last - segment) * scan->pass.segment_step < 0 ? KV_WHOLE : last;
}

static void
enter_segment(KvScan *scan, uint32 shardno, uint64 written, uint32 segment, double bytes_left)
{
	KvRangePass *pass = &scan->pass;
	KvWant		wants[KV_WANTS];
	int			most = Min(KV_WANTS, kv_range->nwindows / KV_SEGMENT_PIECES);
	int			n = 0;

	pass->depth = Min(Max(pass->depth * 2, 1), most);
	most = Min(pass->depth, 1 + bytes_left / KV_SEGMENT_SIZE);
	while (n < most && segment * KV_SEGMENT_SIZE < written)
	{
		wants[n++] = (KvWant) {shardno, segment, Min((segment + 1) * KV_SEGMENT_SIZE, written)};
		if (segment == pass->last_segment || (segment == 0 && pass->segment_step < 0))
			break;
		segment += pass->segment_step;
	}
	if (n == 0)
		return;
	pass->in_order = true;
	pass->segment_rows = pass->rows;
	pass->from = Min(wants[0].segment, wants[n - 1].segment) * KV_SEGMENT_SIZE;
	pass->to = Max(wants[0].end, wants[n - 1].end);
	remember_pieces(scan, written);
	kv_range_enter(scan, wants, n);
}

/* ---- by place ---- */

/* Is there no room for the shard, and are its values out of order, somewhere at least? */
bool
kv_range_scattered(KvStore *store, uint32 shardno)
{
	KvShard    *shard = kv_shard(store, shardno);
	uint64		room = kv_range != NULL ? cache_bytes() : 0;
	KvRun	   *run;

	/* without the lock: it only grows, and whoever reads the file looks again */
	if (shard->value_tail <= Max(room, KV_WINDOW_SIZE))
		return false;
	run = largest_run(kv_shard_runs(store, shardno));
	for (int i = 0; run != NULL && i < KV_ORDER_SAMPLES; i++)
	{
		KvRunCursor cursor = {.run = run, .valid = true};
		uint32		segment;
		int			step;

		cursor.page = kv_run_header(run)->npages * i / KV_ORDER_SAMPLES;
		if (!is_in_order(cursor, false, &segment, &step))
			return true;
	}
	return false;
}

/*
 * A batch of values of shardno begins at offset, and bytes_left are to come in the
 * order of their places, which began at begin.
 */
void
kv_range_steer_by_place(KvScan *scan, uint32 shardno, uint64 written, uint64 offset,
						uint64 begin, double bytes_left)
{
	KvRangePass *pass = &scan->pass;
	uint32		segment = offset / KV_SEGMENT_SIZE;

	if (kv_range == NULL || kv_range->nwindows < 2 * KV_SEGMENT_PIECES || written == 0)
		return;
	if (pass->shard != shardno || pass->seen == NULL)
		begin_shard(pass, shardno);
	if (pass->in_order && segment == pass->segment)
	{
		if (pass->entry != NULL)
			pass->entry->progress = GetCurrentTimestamp();
		return;
	}
	pass->segment_step = 1;
	pass->last_segment = offset < begin ? (begin - 1) / KV_SEGMENT_SIZE : KV_WHOLE;
	if (offset < written)
		enter_segment(scan, shardno, written, segment, bytes_left);
	else
		kv_range_leave(pass);
}

/* ---- the decision ---- */

/*
 * A batch of shardno is being made; written: kv_range_written().  Decide whether
 * its values come through windows.
 */
void
kv_range_steer(KvScan *scan, uint32 shardno, const KvRunSet *set, uint64 written)
{
	KvRangePass *pass = &scan->pass;
	KvKey		start = scan->started ? scan->position : (scan->backward ? scan->hi : scan->lo);
	KvKey		lo = scan->extent_lo;
	KvKey		hi = scan->extent_hi;
	KvRun	   *run;
	double		left = INFINITY;	/* rows that the caller wants yet, if that is known … */
	double		rows;
	double		total;
	double		mean;
	double		enough;			/* rows after which windows are worth a try */
	uint32		segment;
	bool		pays;

	if (kv_range == NULL || written == 0)
		return;
	if (pass->shard != shardno || pass->seen == NULL)
		begin_shard(pass, shardno);
	if (pass->decided || (pass->in_order && is_in_segment(scan, set, start)))
	{
		if (pass->entry != NULL)
			pass->entry->progress = GetCurrentTimestamp();
		return;
	}
	if (pass->rows < scan->limit_hint)
		left = scan->limit_hint - pass->rows;
	if (scan->started && !scan->shared)
		*(scan->backward ? &hi : &lo) = scan->position;
	rows = entries_between(set, lo, hi, &total, &mean);
	left -= rows;				/* … and behind this shard */
	if (left < 0)
		rows += left;
	pays = windows_pay(rows, mean, written);
	if (pass->ramped)
		enough = 0;
	else if (pays && kv_range_is_there(scan->store, shardno))
		enough = 0;
	else
		enough = rows / KV_RAMP_SHARE;
	if (pays && left >= 0 && rows * 2 >= total && pass->rows >= enough)
	{
		enter_whole(scan, shardno, written, mean, left);
		return;
	}
	run = largest_run(set);
	if (run != NULL && kv_range->nwindows >= 2 * KV_SEGMENT_PIECES &&
		pass->rows >= KV_SEGMENT_SIZE / KV_RAMP_SHARE / Max(mean, 1) &&
		find_order(scan, run, start, &segment, &pass->segment_step))
	{
		/* a segment is loaded to its end: not the one in which the LIMIT is reached */
		double		bytes_left = rows * mean - (left < 0 ? KV_SEGMENT_SIZE : 0);

		pass->last_segment = find_last_segment(scan, run, shardno, segment);
		if (bytes_left > KV_WINDOW_SIZE)
			enter_segment(scan, shardno, written, segment, bytes_left);
		else
			kv_range_leave(pass);
		return;
	}
	if (pays && pass->rows >= enough)
		enter_whole(scan, shardno, written, mean, left);
	else if (!pays || pass->in_order)
		kv_range_leave(pass);
}
