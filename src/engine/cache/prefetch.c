/*
 * prefetch.c
 *		The prefetch workers: they load the windows that scans want.
 *
 * A worker searches the registry of scans (scans.c) for the want that is due first.  It claims
 * windows for the next pieces of its span, reads them in one deep batch, publishes them, and
 * searches again.  Several workers work on different pieces of one shard, or of several.
 *
 * Which want is due first: A span in which a scan is comes before spans that the scan will reach,
 * which follow by distance.  A scan may be held back for others of the same store.  These must be
 * able to reach it within kvfdw.scan_share_wait, by what is loaded and what can be loaded in that
 * time.  The scan is held back while they want something, and while it has patience left.
 *
 * Which window is taken, if none is free: One of the span that will be used last.  These are spans
 * that no live scan reaches, the one left longest ago first; then spans by the distance of the
 * nearest scan.  A window is never taken if it is needed as soon as the window to be loaded.  Nor
 * is one taken that following scans reach, while the scan ahead has patience left.
 *
 * Start and end: Workers run on demand (base/worker.h).  A scan that wants something starts them,
 * and they end when no scan has wanted anything for a while.  Scans read for themselves if no
 * worker runs or is being started.  However a worker ends, its claimed windows are given up.  A
 * read is complete before its batch returns, so the device does not write to a window later (I 6).
 */
#include "postgres.h"

#include <sched.h>

#include "miscadmin.h"
#include "storage/ipc.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "engine/base/shared.h"
#include "engine/base/types.h"
#include "engine/base/wait.h"
#include "engine/base/worker.h"
#include "engine/cache/window.h"
#include "engine/io/io.h"
#include "engine/shard/shard.h"
#include "engine/value/value.h"

#define KV_GROUP		16		/* number of windows that are read in one batch */
#define KV_BLOCK_WINDOW_READS	(KV_GROUP * KV_WINDOW_BLOCKS)
/* The maximum number of files that a window has parts of. */
#ifdef KVFDW_FAULTS
#define KV_WINDOW_FILES	4
#else
#define KV_WINDOW_FILES	1
#endif
#define KV_HELD_NAP_MS	5
#define KV_IDLE_NAP_MS	1000
#define KV_EXACT_REACH	256		/* maximum number of spans that are checked one by one */

StaticAssertDecl(KV_WINDOW_BLOCKS <= 64, "a bit for each block of a window");

int			kv_prefetch_workers = 2;
static char *prefetch_cpus = "";

/* The windows that this worker has claimed and not yet published. */
static int	claimed[KV_GROUP];
static int	nclaimed = 0;
static KvStoreKey claimed_store;

/* No window was claimed, because following scans still need them. */
static bool spared;

/* The number of spans that each scan gets through within kvfdw.scan_share_wait. */
static uint32 *reach;

/* ---- choosing; KvWindowCache.lock is held, exclusive ---- */

static KvSpanKey
wanted_span(const KvWindowScan *scan, const KvWant *want)
{
	KvSpanKey	key = {scan->cache_id, want->shard, want->segment};

	return key;
}

/* Steps to the scan's next span; false: it was the last one. */
static bool
next_span(const KvWindowScan *scan, KvSpanKey *key)
{
	if (key->segment != KV_WHOLE)
	{
		key->segment += scan->course.segment_step;
		return key->segment != KV_WHOLE;
	}
	if (key->shard == scan->course.last)
		return false;
	key->shard = kv_shard_next(scan->course.map, key->shard, scan->course.step);
	return true;
}

/*
 * The number of spans that a scan gets through within kvfdw.scan_share_wait if the workers load for
 * it alone.  An estimate: each span counts as large as the current one, and beyond KV_EXACT_REACH
 * spans none counts as loaded.
 */
static uint32
compute_reach(const KvWindowScan *scan)
{
	uint64		budget = kv_window_cache->bytes_per_second / 1000 * kv_window_wait_ms;
	KvSpanKey	key = wanted_span(scan, &scan->wants[0]);
	uint64		size = kv_extents_size(&scan->wants[0].extents);
	uint32		n;

	for (n = 0; n < KV_EXACT_REACH; n++)
	{
		const KvSpan *span = kv_span_find(&key);
		uint64		have = span != NULL ? (uint64) span->nvalid * KV_WINDOW_SIZE : 0;
		uint64		lacks = have < size ? size - have : 0;

		if (lacks > budget || !next_span(scan, &key))
			return n;
		budget -= lacks;
	}
	return Min(n + budget / Max(size, 1), KV_FAR - 1);
}

static void
compute_reaches(TimestampTz now)
{
	kv_window_cache->nblock_scans = 0;
	for (int i = 0; i < kv_window_cache->scans_used; i++)
	{
		const KvWindowScan *scan = &kv_window_scans[i];
		const KvWindowScan *previous = i > 0 ? &kv_window_scans[i - 1] : NULL;

		kv_window_cache->nblock_scans += scan->wants_blocks && scan->position != 0 &&
			kv_window_scan_is_live(scan, now);
		if (scan->wants_blocks || !kv_window_scan_is_live(scan, now))
			reach[i] = 0;
		else if (previous != NULL && kv_window_scan_is_live(previous, now) &&
				 previous->cache_id == scan->cache_id && previous->shard == scan->shard &&
				 previous->segment == scan->segment && previous->course.step == scan->course.step &&
				 previous->course.last == scan->course.last)
			reach[i] = reach[i - 1];
		else
			reach[i] = compute_reach(scan);
	}
}

/*
 * Does scan number i follow this one closely, with this one within its reach?  No if this one is so
 * near its end that there is little to share, unless the cache holds all spans between the two.
 */
static bool
is_after(int i, const KvWindowScan *scan, TimestampTz now)
{
	const KvWindowScan *other = &kv_window_scans[i];
	KvSpanKey	here = {scan->cache_id, scan->shard, scan->segment};
	KvSpanKey	end = {scan->cache_id, scan->course.last, KV_WHOLE};
	uint32		pieces = 1 + kv_extents_size(&scan->wants[0].extents) / KV_WINDOW_SIZE;
	uint32		distance;

	if (other == scan || !kv_window_scan_is_live(other, now) ||
			other->course.step != scan->course.step)
		return false;
	distance = kv_window_distance(other, &here);
	return distance > 0 && distance <= reach[i] &&
		(scan->segment != KV_WHOLE || distance <= kv_window_cache->nwindows / pieces ||
		 distance <= 2 * kv_window_distance(scan, &end));
}

/* Is there something to load that the scan wants? */
static bool
wants_something(const KvWindowScan *scan, TimestampTz now)
{
	for (int i = 0; i < scan->nwants; i++)
	{
		KvSpanKey	key = wanted_span(scan, &scan->wants[i]);
		KvSpan	   *span = kv_span_find(&key);

		if (span == NULL ||
			(!kv_span_failed(span, now) && kv_span_lacks(span, &scan->wants[i].extents)))
			return true;
	}
	return false;
}

/* Do loads for closely following scans come before this one's? */
static bool
is_held(const KvWindowScan *scan, TimestampTz now)
{
	for (int i = 0; scan->patience > 0 && i < kv_window_cache->scans_used; i++)
	{
		if (is_after(i, scan, now) && wants_something(&kv_window_scans[i], now))
			return true;
	}
	return false;
}

/* Do all closely following scans wait themselves?  Then holding this one back helps none. */
static bool
is_waited_for(const KvWindowScan *scan, TimestampTz now)
{
	for (int i = 0; i < kv_window_cache->scans_used; i++)
	{
		if (is_after(i, scan, now) && !kv_window_scans[i].waiting)
			return false;
	}
	return true;
}

/*
 * May a span be evicted for what a scan wants at this distance?  0: no.  Otherwise returns the
 * distance of the next scan that will use it, or KV_NEVER: the larger, the better to evict.  spare:
 * a span that a closely following scan reaches is not evicted.
 */
static uint64
idle_for(const KvSpan *span, const KvWindowScan *scan, uint32 distance, bool spare,
		 TimestampTz now)
{
	uint64		nearest = KV_NEVER;

	for (int i = 0; i < kv_window_cache->scans_used; i++)
	{
		const KvWindowScan *other = &kv_window_scans[i];
		uint32		other_distance;

		if (!kv_window_scan_is_live(other, now))
			continue;
		other_distance = kv_window_distance(other, &span->key);
		if (other_distance == KV_NEVER)
			continue;
		if (other_distance <= distance)
			return 0;
		if (spare && scan->patience > 0 && other_distance <= reach[i] && is_after(i, scan, now))
		{
			spared = true;
			return 0;
		}
		nearest = Min(nearest, other_distance);
	}
	return nearest;
}

/* The span whose windows are taken for the wanted one; NULL: none may be evicted. */
static KvSpan *
find_victim(const KvWindowScan *scan, const KvSpan *wanted, bool spare, TimestampTz now)
{
	uint32		distance = kv_window_distance(scan, &wanted->key);
	HASH_SEQ_STATUS status;
	KvSpan	   *victim = NULL;
	uint64		longest = 0;
	KvSpan	   *span;

	hash_seq_init(&status, kv_span_hash);
	while ((span = hash_seq_search(&status)) != NULL)
	{
		uint64		idle;

		if (span->windows < 0 || span == wanted)
			continue;
		idle = idle_for(span, scan, distance, spare, now);
		if (idle > longest ||
			(idle > 0 && idle == longest && span->used < victim->used))
		{
			longest = idle;
			victim = span;
		}
	}
	return victim;
}

/*
 * Claims windows for the next pieces of a span that a scan wants, as many as are free or may be
 * evicted.  spare: takes none that closely following scans will reach.
 */
static void
claim(const KvWindowScan *scan, const KvWant *want, bool spare, TimestampTz now)
{
	KvSpanKey	key = wanted_span(scan, want);
	KvSpan	   *span = kv_span_make(&key);
	KvSpan	   *victim = NULL;

	if (span == NULL || kv_span_failed(span, now))
		return;
	span->used = now;
	claimed_store = scan->course.store;
	while (nclaimed < KV_GROUP && kv_span_lacks(span, &want->extents))
	{
		if (victim != NULL && victim->windows < 0)
		{
			(void) kv_span_retire(victim);
			victim = NULL;
		}
		if (kv_window_cache->free_windows < 0 && victim == NULL &&
			!kv_block_window_evict(false, now))
		{
			victim = find_victim(scan, span, spare, now);
			if (victim == NULL && !kv_block_window_evict(true, now))
				break;
		}
		if (!kv_window_claim(span, victim, scan->id, &claimed[nclaimed]))
			break;
		nclaimed++;
	}
	if (victim != NULL)
		(void) kv_span_retire(victim);
}

/*
 * Claims windows for the want that is due first.  False: none was claimed; *held: something is
 * wanted and may be claimed in a while.
 */
static bool
claim_something(bool *held)
{
	TimestampTz now = kv_clock();
	KvWindowScan *eldest = NULL; /* the oldest of the scans that are held back */

	*held = false;
	compute_reaches(now);
	for (uint32 distance = 0; distance < KV_WANTS; distance++)
	{
		for (int i = 0; i < kv_window_cache->scans_used; i++)
		{
			KvWindowScan *scan = &kv_window_scans[i];
			const KvWant *want = &scan->wants[distance];
			KvSpanKey	key;
			KvSpan	   *span;

			if (!kv_window_scan_is_live(scan, now) || distance >= scan->nwants)
				continue;
			key = wanted_span(scan, want);
			span = kv_span_find(&key);
			if (span != NULL && (!kv_span_lacks(span, &want->extents) || kv_span_failed(span, now)))
			{
				scan->held &= distance != 0;
				continue;
			}
			spared = is_held(scan, now);
			if (!spared)
				claim(scan, want, true, now);
			else if (distance == 0 && (eldest == NULL || scan->id < eldest->id))
				eldest = scan;
			if (nclaimed > 0)
				return true;
			*held = true;
			if (distance == 0)
				scan->held = spared;
		}
	}

	/* scans that wrap around can follow each other in a circle: serving one breaks it */
	if (eldest != NULL)
		claim(eldest, &eldest->wants[0], !is_waited_for(eldest, now), now);
	return nclaimed > 0;
}

/* ---- loading ---- */

/* Wakes the scans that wait for one of these pieces; failed: for any piece of the store. */
static void
wake_scans(const KvPieceKey *first, uint64 last, bool failed)
{
	for (int i = 0; i < kv_window_cache->scans_used; i++)
	{
		KvWindowScan *scan = &kv_window_scans[i];

		if (scan->id != 0 && scan->waiting && scan->cache_id == first->cache_id &&
			(failed || (scan->wait_piece >= first->piece && scan->wait_piece <= last)))
			ConditionVariableBroadcast(&scan->loaded);
		scan->held = false;
	}
}

/* Wakes the scans of a store that wait for block windows. */
static void
wake_block_scans(uint64 cache_id)
{
	for (int i = 0; i < kv_window_cache->scans_used; i++)
	{
		KvWindowScan *scan = &kv_window_scans[i];

		if (scan->id != 0 && scan->wants_blocks && scan->waiting && !scan->lacks_room &&
			scan->cache_id == cache_id)
			ConditionVariableBroadcast(&scan->loaded);
	}
}

/* Gives up the claimed windows and wakes the scans that wait for them; also at exit. */
static void
give_up(int code, Datum arg)
{
	if (nclaimed == 0)
		return;
	LWLockAcquire(&kv_window_cache->lock, LW_EXCLUSIVE);
	wake_scans(&kv_windows[claimed[0]].key, 0, true);
	while (nclaimed > 0)
	{
		int			window = claimed[--nclaimed];

		if (kv_windows[window].block_state != KV_BLOCK_WINDOW_NONE)
			kv_block_window_give_up(window);
		else
			kv_window_give_up(window);
	}
	LWLockRelease(&kv_window_cache->lock);
}

/* A window that is being loaded, with one read for each file that it has a part of. */
typedef struct KvLoad
{
	int			first;			/* index of its first read */
	int			n;
	bool		failed;
} KvLoad;

/*
 * Publishes the windows that were read, and gives up the others; loads[i] belongs to claimed[i].  A
 * file may end before the piece does, as closed files do; there are no values then.
 */
static void
publish(const KvLoad *loads, const KvIoRequest *reads, int64 duration)
{
	KvPieceKey	first = kv_windows[claimed[0]].key;
	uint64		last = kv_windows[claimed[nclaimed - 1]].key.piece;
	uint64		bytes = 0;
	bool		failed = false;

	LWLockAcquire(&kv_window_cache->lock, LW_EXCLUSIVE);
	for (int i = 0; i < nclaimed; i++)
	{
		KvWindow   *window = &kv_windows[claimed[i]];

		if (loads[i].failed)
		{
			kv_window_give_up(claimed[i]);
			failed = true;
			continue;
		}
		for (int n = 0; n < loads[i].n; n++)
			bytes += reads[loads[i].first + n].result;
		kv_window_publish(claimed[i], window->len);
		kv_window_count(KV_RANGE_READS, 1);
	}
	nclaimed = 0;
	kv_window_count(KV_RANGE_READ_BYTES, bytes);
	if (duration > 0 && bytes > 0)
		kv_window_cache->bytes_per_second =
			(kv_window_cache->bytes_per_second * 15 +
			 bytes * 1000000 / duration * kv_window_cache->nworkers) / 16;
	wake_scans(&first, last, failed);
	LWLockRelease(&kv_window_cache->lock);
	KV_STOP_POINT("prefetch_published");
}

/*
 * Plans the reads that fill a window.  Parts of missing files are zeros.  Returns the number of
 * reads; missing: a file is missing.
 */
static int
plan_reads(int window, KvIoRequest *reads, bool *missing)
{
	const KvWindow *one = &kv_windows[window];
	KvAddress	begin = one->key.piece * KV_WINDOW_SIZE;
	KvAddress	end = begin + TYPEALIGN(KV_BLOCK, one->len);
	char	   *into = kv_window_bytes(window);
	int			n = 0;

	while (begin < end)
	{
		KvFileId	id = kv_file_of(begin);
		KvAddress	part_end = Min(end, id.address + kv_file_span(id));
		File		file = kv_value_file(&claimed_store, one->key.cache_id, id,
									 KV_IO_MISSING_OK);

		if (file < 0)
		{
			*missing = true;
			memset(into, 0, part_end - begin);
		}
		else
			reads[n++] = (KvIoRequest) {file, begin - id.address, part_end - begin, into};
		into += part_end - begin;
		begin = part_end;
	}
	return n;
}

/* ---- block windows ---- */

/* Claims this worker's share of the queued block windows, of one store. */
static bool
claim_block_window(void)
{
	int			share = kv_window_cache->nqueued / Max(kv_window_cache->nworkers, 1) + 1;
	uint64		cache_id = 0;
	int			window;

	while (nclaimed < Min(KV_GROUP, share) && (window = kv_block_window_next(cache_id)) >= 0)
	{
		claimed[nclaimed++] = window;
		cache_id = kv_windows[window].key.cache_id;
	}
	return nclaimed > 0;
}

/* Plans the reads for a block window, one for adjacent blocks; their tag is the window. */
static int
plan_block_window(int window, KvIoRequest *reads)
{
	KvWindow   *one = &kv_windows[window];
	KvAddress	end = 0;
	int			n = 0;

	for (int slot = 0; slot < one->nblocks; slot++)
	{
		KvAddress	at = kv_window_blocks[window * KV_WINDOW_BLOCKS + slot] * KV_BLOCK;
		KvFileId	id = kv_file_of(at);

		if (n > 0 && at == end && at != id.address)
			reads[n - 1].len += KV_BLOCK;
		else
			reads[n++] = (KvIoRequest) {
				.file = kv_value_file(&one->store, one->key.cache_id, id, KV_IO_MISSING_OK),
				.offset = at - id.address,
				.len = KV_BLOCK,
				.buffer = kv_window_bytes(window) + slot * KV_BLOCK,
				.tag = one
			};
		end = at + KV_BLOCK;
	}
	return n;
}

/* Publishes the block windows that were read, except for blocks that could not be read. */
static void
publish_block_window(const KvIoRequest *reads, int n)
{
	uint64		bytes = 0;
	uint64		cache_id = kv_windows[claimed[0]].key.cache_id;

	LWLockAcquire(&kv_window_cache->lock, LW_EXCLUSIVE);
	for (int i = 0; i < nclaimed; i++)
	{
		bool		some = false;

		for (; n > 0 && reads->tag == &kv_windows[claimed[i]]; reads++, n--)
		{
			if (reads->result < 0)
				kv_block_window_fail(claimed[i],
									 (reads->buffer - kv_window_bytes(claimed[i])) / KV_BLOCK,
									 reads->len / KV_BLOCK);
			else
			{
				some = true;
				bytes += reads->result;
			}
		}
		if (some)
			kv_block_window_publish(claimed[i]);
		else
			kv_block_window_give_up(claimed[i]);
		kv_window_count(KV_RANGE_READS, some);
	}
	nclaimed = 0;
	kv_window_cache->block_loads++;
	kv_window_count(KV_RANGE_READ_BYTES, bytes);
	wake_block_scans(cache_id);
	LWLockRelease(&kv_window_cache->lock);
}

static void
load_block_window(void)
{
	static KvIoRequest *reads = NULL;
	int			n = 0;

	KV_STOP_POINT("block_window_claimed");
	kv_value_trim();
	if (reads == NULL)
		reads = MemoryContextAlloc(TopMemoryContext, KV_BLOCK_WINDOW_READS * sizeof(KvIoRequest));
	for (int i = 0; i < nclaimed; i++)
	{
		kv_huge_make(kv_window_bytes(claimed[i]), KV_WINDOW_SIZE);
		n += plan_block_window(claimed[i], reads + n);
	}
	kv_io_read_batch(reads, n, KV_IO_VALUE_READ, NULL, NULL);
	for (int i = 0; i < n; i++)
	{
		/* the last block of a file may be incomplete */
		if (reads[i].result >= 0)
			memset(reads[i].buffer + reads[i].result, 0, reads[i].len - reads[i].result);
	}
	publish_block_window(reads, n);
}

/*
 * Reads blocks one by one after a failed read of many, because one may be bad.  The window has
 * zeros for a bad block and marks it, so a scan that needs the block reads it directly.
 */
static void
read_apart(KvWindow *window, KvIoRequest *failed, int *failures)
{
	uint32		first = (failed->buffer - kv_window_bytes(window - kv_windows)) / KV_BLOCK;
	int			results[KV_WINDOW_BLOCKS];

	kv_io_read_blocks(failed, KV_IO_VALUE_READ, results, failures);
	for (uint32 i = 0; i < failed->len / KV_BLOCK; i++)
	{
		uint32		got = Max(results[i], 0);

		memset(failed->buffer + i * KV_BLOCK + got, 0, KV_BLOCK - got);
		if (results[i] < 0)
			window->bad |= UINT64CONST(1) << (first + i);
		else
			failed->result = failed->len;
	}
}

static void
load_claimed(void)
{
	KvIoRequest reads[KV_GROUP * KV_WINDOW_FILES];
	KvLoad		loads[KV_GROUP] = {0};
	TimestampTz start;
	bool		missing = false;
	int			failures = 0;
	int			n = 0;

	KV_STOP_POINT("prefetch_claimed");
	kv_value_trim();
	for (int i = 0; i < nclaimed; i++)
	{
		kv_huge_make(kv_window_bytes(claimed[i]), KV_WINDOW_SIZE);
		loads[i].first = n;
		loads[i].n = plan_reads(claimed[i], reads + n, &missing);
		n += loads[i].n;
	}
	if (missing && n == 0)
	{
		/* the table was dropped */
		give_up(0, (Datum) 0);
		return;
	}
	start = kv_clock();
	kv_io_read_batch(reads, n, KV_IO_VALUE_READ, NULL, NULL);
	KV_STOP_POINT("prefetch_read");
	for (int i = 0; i < nclaimed; i++)
	{
		/* no reads: the values have moved, and scans read them at their new addresses */
		loads[i].failed = loads[i].n == 0;
		for (KvIoRequest *read = reads + loads[i].first; read < reads + loads[i].first + loads[i].n;
			 read++)
		{
			if (read->result < 0)
				read_apart(&kv_windows[claimed[i]], read, &failures);
			if (read->result < 0)
				loads[i].failed = true;
			else
				memset(read->buffer + read->result, 0, read->len - read->result);
		}
	}
	publish(loads, reads, kv_clock() - start);
}

/* ---- the process ---- */

/* Parses "0-3,8" into set; false: it is no such list. */
static bool
parse_cpus(const char *list, cpu_set_t *set)
{
	CPU_ZERO(set);
	while (*list != '\0')
	{
		char	   *end;
		unsigned long first = strtoul(list, &end, 10);
		unsigned long last = first;

		if (end == list)
			return false;
		if (*end == '-')
		{
			list = end + 1;
			last = strtoul(list, &end, 10);
			if (end == list)
				return false;
		}
		if (first > last || last >= CPU_SETSIZE || (*end != ',' && *end != '\0'))
			return false;
		for (; first <= last; first++)
			CPU_SET(first, set);
		if (*end == ',' && end[1] == '\0')
			return false;
		list = *end == ',' ? end + 1 : end;
	}
	return true;
}

static bool
check_cpus(char **value, void **extra, GucSource source)
{
	cpu_set_t	set;

	if (parse_cpus(*value, &set))
		return true;
	GUC_check_errdetail("\"kvfdw.prefetch_cpus\" must be a list of CPU numbers and ranges, such as "
						"\"0-3,8\".");
	return false;
}

static void
choose_cpus(void)
{
	cpu_set_t	set;

	if (prefetch_cpus[0] == '\0')
		return;
	(void) parse_cpus(prefetch_cpus, &set);
	if (sched_setaffinity(0, sizeof(set), &set) != 0)
		ereport(LOG,
				(errmsg("could not bind background worker \"kvfdw prefetch\" to CPUs \"%s\": %m",
						prefetch_cpus)));
}

/* The worker's index among the latches to be woken. */
static int	number = -1;

static void
attend(bool here)
{
	LWLockAcquire(&kv_window_cache->lock, LW_EXCLUSIVE);
	if (here)
	{
		/* no more workers run than there are entries, so one is free */
		for (number = 0; kv_window_cache->workers[number] != NULL;)
			number++;
		kv_window_cache->workers[number] = MyLatch;
		kv_window_cache->nworkers++;
	}
	else if (number >= 0)
	{
		kv_window_cache->workers[number] = NULL;
		kv_window_cache->nworkers--;
		number = -1;
	}
	LWLockRelease(&kv_window_cache->lock);
}

static void
prefetch_exit(int code, Datum arg)
{
	give_up(code, arg);
	attend(false);
}

/* Does a scan want anything that is not loaded? */
static bool
has_work(void)
{
	TimestampTz now = kv_clock();
	bool		any;

	LWLockAcquire(&kv_window_cache->lock, LW_SHARED);
	any = kv_window_cache->nqueued > 0;
	for (int i = 0; i < kv_window_cache->scans_used && !any; i++)
	{
		const KvWindowScan *scan = &kv_window_scans[i];

		any = kv_window_scan_is_live(scan, now) && !scan->wants_blocks &&
			wants_something(scan, now);
	}
	LWLockRelease(&kv_window_cache->lock);
	return any;
}

void
kv_prefetch_main(Datum arg)
{
	bool		turn = true;	/* single blocks come first in this round */

	kv_worker_begin("kvfdw prefetch");
	kv_worker_attend();
	choose_cpus();
	kv_windows_map();

	reach = MemoryContextAllocZero(TopMemoryContext, kv_window_cache->nscans * sizeof(uint32));
	attend(true);
	before_shmem_exit(prefetch_exit, (Datum) 0);

	while (kv_worker_goes_on(NULL))
	{
		bool		held = false;
		bool		some = false;
		bool		window_block;

		/* pieces and single blocks come first alternately */
		CHECK_FOR_INTERRUPTS();
		kv_value_let_go();
		LWLockAcquire(&kv_window_cache->lock, LW_EXCLUSIVE);
		window_block = turn && claim_block_window();
		if (!window_block)
			some = claim_something(&held);
		if (!window_block && !some)
			window_block = claim_block_window();
		LWLockRelease(&kv_window_cache->lock);
		turn = !window_block;
		if (window_block)
			load_block_window();
		else if (some)
			load_claimed();
		if (kv_worker_is_done(window_block || some || held))
		{
			KV_STOP_POINT("prefetch_leaves");
			if (kv_worker_leave(attend, has_work))
				break;
		}
		else if (!window_block && !some)
			kv_nap(held ? KV_HELD_NAP_MS : KV_IDLE_NAP_MS, KV_WAIT_IDLE);
	}
	proc_exit(0);
}

static bool
check_range_cache(int *value, void **extra, GucSource source)
{
	kv_share_check(value, &kv_window_cache_kb);
	return true;
}

void
kv_prefetch_gucs(void)
{
	kv_share_define("kvfdw.range_cache",
					"Sets the size of the cache that scans of large ranges share.",
					"-1: two eighths of kvfdw.memory; 0: no cache.",
					2, &kv_window_cache_kb, GUC_UNIT_KB, check_range_cache);
	DefineCustomIntVariable("kvfdw.prefetch_workers",
							"Sets how many workers load the range cache at most.",
							"Workers are started on demand. 0: scans read for themselves.",
							&kv_prefetch_workers, 2, 0, KV_MAX_PREFETCH_WORKERS,
							PGC_POSTMASTER, 0, NULL, NULL, NULL);
	DefineCustomStringVariable("kvfdw.prefetch_cpus",
							   "Sets the CPUs on which the prefetch workers run.",
							   "A list of numbers and ranges; empty: all CPUs.",
							   &prefetch_cpus, "", PGC_POSTMASTER, 0,
							   check_cpus, NULL, NULL);
	DefineCustomIntVariable("kvfdw.scan_share_wait",
							"Sets how long a scan may wait for other scans that follow it closely "
							"in the same table.",
							"It waits in addition at most as long as it works itself. A scan that "
							"waits for its client holds others up for a twentieth of this.",
							&kv_window_wait_ms, 10000, 1, 600000,
							PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);
}
