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
#include "engine/io/fault.h"
#include "engine/io/io.h"
#include "engine/shard/map.h"
#include "engine/shard/shard.h"
#include "engine/value/value.h"

#define KV_GROUP		16		/* number of windows that are read in one batch */
#define KV_HELD_NAP_MS	5
#define KV_IDLE_NAP_MS	1000
#define KV_NEAR			4		/* scans are near each other up to so many looks ahead */
#define KV_EXACT_REACH	256		/* maximum number of spans that are checked one by one */

StaticAssertDecl(KV_WINDOW_BLOCKS <= 64, "a bit for each block of a window");

int			kv_prefetch_workers = 2;
static char *prefetch_cpus = "";

/* The windows of one store that this worker has claimed and not yet published, all of a kind. */
static int	claimed[KV_GROUP];
static int	nclaimed = 0;

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

/* Is scan number i, which looks ahead for blocks, near one with a smaller number? */
static bool
is_near_another(int i, TimestampTz now)
{
	const KvWindowScan *scan = &kv_window_scans[i];

	for (int n = 0; n < i; n++)
	{
		const KvWindowScan *other = &kv_window_scans[n];
		uint64		reach = Max(scan->until - scan->at, other->until - other->at);

		if (other->wants_blocks && other->cache_id == scan->cache_id &&
			other->shard == scan->shard && other->down == scan->down &&
			scan->at < other->at + KV_NEAR * reach && other->at < scan->at + KV_NEAR * reach &&
			kv_window_scan_is_live(other, now))
			return true;
	}
	return false;
}

static void
compute_reaches(TimestampTz now)
{
	kv_window_cache->nblock_scans = kv_window_cache->nblock_groups = 0;
	for (int i = 0; i < kv_window_cache->scans_used; i++)
	{
		const KvWindowScan *scan = &kv_window_scans[i];
		const KvWindowScan *previous = i > 0 ? &kv_window_scans[i - 1] : NULL;

		if (scan->wants_blocks && scan->position != 0 && kv_window_scan_is_live(scan, now))
		{
			kv_window_cache->nblock_scans++;
			kv_window_cache->nblock_groups += !is_near_another(i, now);
		}
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

		if (dlist_is_empty(&span->windows) || span == wanted)
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
	while (nclaimed < KV_GROUP && kv_span_lacks(span, &want->extents))
	{
		if (kv_window_cache->nfree == 0 && victim == NULL && !kv_block_window_evict(false, now))
		{
			victim = find_victim(scan, span, spare, now);
			if (victim == NULL && !kv_block_window_evict(true, now))
				break;
		}
		if (kv_window_cache->nfree == 0)
			victim = kv_span_evict(victim);
		claimed[nclaimed++] = kv_window_claim_piece(span, &scan->course.store, scan->id);
	}
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

/*
 * Wakes the scans of a store whose piece or block is loaded or, if some could not be loaded, is in
 * no window any more.  Lock held.
 */
static void
wake_scans(uint32 cache_id, bool failed)
{
	for (int i = 0; i < kv_window_cache->scans_used; i++)
	{
		KvWindowScan *scan = &kv_window_scans[i];
		KvPlace		place;

		if (scan->id != 0 && scan->waiting && !scan->lacks_room && scan->cache_id == cache_id &&
			(kv_window_find(&scan->awaited, &place) ?
			 kv_windows[place.window].state == KV_WINDOW_VALID : failed))
			ConditionVariableBroadcast(&scan->loaded);
		scan->held = false;
	}
}

/* Gives up the claimed windows and wakes the scans that wait for them; also at exit. */
static void
give_up(int code, Datum arg)
{
	uint32		cache_id;

	if (nclaimed == 0)
		return;
	LWLockAcquire(&kv_window_cache->lock, LW_EXCLUSIVE);
	cache_id = kv_windows[claimed[0]].span.cache_id;
	while (nclaimed > 0)
		kv_window_give_up(claimed[--nclaimed]);
	wake_scans(cache_id, true);
	LWLockRelease(&kv_window_cache->lock);
}

/* Claims this worker's share of the queued windows, of one store. */
static bool
claim_queued(void)
{
	int			share = kv_window_cache->nqueued / Max(kv_window_cache->nworkers, 1) + 1;
	uint32		cache_id = 0;
	int			window;

	while (nclaimed < Min(KV_GROUP, share) && (window = kv_window_next(cache_id)) >= 0)
	{
		claimed[nclaimed++] = window;
		cache_id = kv_windows[window].span.cache_id;
	}
	return nclaimed > 0;
}

/* Publishes the windows that were read, and gives up those without a readable block. */
static void
publish(uint64 bytes, int64 duration)
{
	bool		single = kv_window_is_single(&kv_windows[claimed[0]]);
	uint32		cache_id = kv_windows[claimed[0]].span.cache_id;
	bool		failed = false;

	LWLockAcquire(&kv_window_cache->lock, LW_EXCLUSIVE);
	for (int i = 0; i < nclaimed; i++)
	{
		failed |= kv_windows[claimed[i]].bad != 0;
		kv_window_count(KV_RANGE_READS, kv_window_publish(claimed[i]));
	}
	nclaimed = 0;
	kv_window_count(KV_RANGE_READ_BYTES, bytes);
	if (single)
		kv_window_cache->block_loads++;
	else if (duration > 0 && bytes > 0)
		kv_window_cache->bytes_per_second =
			(kv_window_cache->bytes_per_second * 15 +
			 bytes * 1000000 / duration * kv_window_cache->nworkers) / 16;
	wake_scans(cache_id, failed);
	LWLockRelease(&kv_window_cache->lock);
	KV_STOP_POINT("prefetch_published");
}

/* Notes that blocks of a claimed window cannot be read. */
static void
note_bad(KvWindow *window, int slot, int n)
{
	for (int end = slot + n; slot < end; slot++)
		window->bad |= UINT64CONST(1) << slot;
}

/*
 * Plans the reads that fill a window: one for blocks that are neighbours in a file.  A file that is
 * missing has been removed, and scans read values that were in it at their new addresses.
 */
static int
plan_reads(int i, KvIoRequest *reads)
{
	KvWindow   *window = &kv_windows[i];
	int			nblocks = (window->len + KV_BLOCK - 1) / KV_BLOCK;
	int			n = 0;
	int			together;

	for (int slot = 0; slot < nblocks; slot += together)
	{
		uint64		first = *kv_window_block(i, slot);
		KvFileId	id = kv_file_of(first * KV_BLOCK);
		uint64		end = (id.address + kv_file_span(id)) / KV_BLOCK;
		File		file = kv_value_file(&window->store, window->span.cache_id, id,
										 KV_IO_MISSING_OK);

		for (together = 1; slot + together < nblocks && first + together < end &&
			 *kv_window_block(i, slot + together) == first + together;)
			together++;
		if (file >= 0)
			reads[n++] = (KvIoRequest) {
				.file = file,
				.offset = first * KV_BLOCK - id.address,
				.len = together * KV_BLOCK,
				.buffer = kv_window_bytes(i) + slot * KV_BLOCK,
				.tag = window
			};
		else
			note_bad(window, slot, together);
	}
	return n;
}

/*
 * Reads blocks one by one after a failed read, because not all may be bad.  Returns the number of
 * bytes.
 */
static uint64
read_apart(KvIoRequest *failed, int *failures)
{
	KvWindow   *window = failed->tag;
	int			first = (failed->buffer - kv_window_bytes(kv_window_index(window))) / KV_BLOCK;
	int			results[KV_WINDOW_BLOCKS];
	uint64		bytes = 0;

	kv_io_read_blocks(failed, KV_IO_VALUE_READ, results, failures);
	for (int i = 0; i < failed->len / KV_BLOCK; i++)
	{
		int			got = Max(results[i], 0);

		memset(failed->buffer + i * KV_BLOCK + got, 0, KV_BLOCK - got);
		bytes += got;
		if (results[i] < 0)
			note_bad(window, first + i, 1);
	}
	return bytes;
}

/* A file may end before the piece or the block does, as closed files do: no values follow. */
static void
load_claimed(void)
{
	static KvIoRequest *reads = NULL;
	TimestampTz start;
	uint64		bytes = 0;
	int			failures = 0;
	int			n = 0;

	if (kv_window_is_single(&kv_windows[claimed[0]]))
		KV_STOP_POINT("block_window_claimed");
	else
		KV_STOP_POINT("prefetch_claimed");
	kv_value_trim();
	if (reads == NULL)
		reads = MemoryContextAlloc(TopMemoryContext,
								   KV_GROUP * KV_WINDOW_BLOCKS * sizeof(KvIoRequest));
	for (int i = 0; i < nclaimed; i++)
	{
		kv_huge_make(kv_window_bytes(claimed[i]), KV_WINDOW_SIZE);
		n += plan_reads(claimed[i], reads + n);
	}
	start = kv_clock();
	kv_io_read_batch(reads, n, KV_IO_VALUE_READ, NULL, NULL);
	KV_STOP_POINT("prefetch_read");
	for (KvIoRequest *read = reads; read < reads + n; read++)
	{
		if (read->result < 0)
			bytes += read_apart(read, &failures);
		else
		{
			memset(read->buffer + read->result, 0, read->len - read->result);
			bytes += read->result;
		}
	}
	publish(bytes, kv_clock() - start);
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
		bool		some;

		/* pieces and single blocks come first alternately */
		CHECK_FOR_INTERRUPTS();
		kv_value_let_go();
		LWLockAcquire(&kv_window_cache->lock, LW_EXCLUSIVE);
		some = (turn && claim_queued()) || claim_something(&held) || claim_queued();
		LWLockRelease(&kv_window_cache->lock);
		turn = !some || !kv_window_is_single(&kv_windows[claimed[0]]);
		if (some)
			load_claimed();
		if (kv_worker_is_done(some || held))
		{
			KV_STOP_POINT("prefetch_leaves");
			if (kv_worker_leave(attend, has_work))
				break;
		}
		else if (!some)
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
