/*
 * scans.c
 *		The registry of scans that read through windows: their positions, and what they want loaded.
 *
 * A scan is in the registry while it reads through windows, with its shard and the next ones that
 * it wants loaded.  The prefetch workers do the rest.  An entry is released with the scan's memory
 * context, so an ERROR leaves none, and at the exit of the process.
 *
 * Closely following scans: A scan that is ahead of others in the same table is held back if they
 * can reach it within kvfdw.scan_share_wait (prefetch.c).  The windows that they need are kept, and
 * their loads come first.  That uses up the scan's patience, as waiting for windows does.  Patience
 * is at most kvfdw.scan_share_wait, and grows by the time that the scan itself works.  A scan that
 * takes no batch for that time, and does not wait for windows, holds no other scan back and keeps
 * no windows.  A scan whose process waits for its client or a lock, or sleeps, stops doing so after
 * a twentieth of the time.  So a stuck scan costs others that time once, and a slow one at most
 * doubles their time.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "pgstat.h"
#include "storage/ipc.h"
#include "storage/proc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "engine/base/types.h"
#include "engine/base/worker.h"
#include "engine/cache/window.h"
#include "engine/io/fault.h"
#include "engine/shard/map.h"
#include "engine/shard/shard.h"

/* A scan begins at most so many shards or segments before another one. */
#define KV_BACK_STEPS	KV_MAX_SHARDS

int			kv_window_wait_ms = 10000;

/* For a scan that reads segments, another shard is further away than any segment. */
uint32
kv_window_distance(const KvWindowScan *scan, const KvSpanKey *span)
{
	KvStore    *map = scan->course.map;
	int64		n;
	int64		distance;
	int64		left;
	bool		in_order = scan->segment != KV_WHOLE;

	if (scan->cache_id != span->cache_id || scan->wants_blocks)
		return KV_NEVER;

	/* data of shards that have left the map is no worse than data that is about to change */
	n = Max(kv_store_nshards(map), 1);
	distance = kv_shard_distance(map, scan->shard, span->shard) * scan->course.step;
	left = kv_shard_distance(map, scan->shard, scan->course.last) * scan->course.step;
	if (distance == 0 && in_order && span->segment != KV_WHOLE)
	{
		if (scan->course.last_segment != KV_WHOLE &&
			((int64) span->segment - (int64) scan->course.last_segment) *
			scan->course.segment_step > 0)
			return KV_NEVER;
		distance = ((int64) span->segment - (int64) scan->segment) * scan->course.segment_step;
		return distance >= 0 ? Min(distance, KV_FAR - 1) : KV_NEVER;
	}
	if (scan->course.wraps)
	{
		distance = (distance % n + n) % n;
		left = (left % n + n) % n;
	}
	if (distance < 0 || distance > left)
		return KV_NEVER;
	return distance == 0 ? 0 : distance + (in_order ? KV_FAR : 0);
}

/* Does its process wait for a client, a lock or a timeout, which may take any time? */
static bool
is_stuck(const KvWindowScan *scan)
{
	uint32		class = *scan->wait_event & 0xFF000000U;

	return class == PG_WAIT_CLIENT || class == PG_WAIT_LOCK || class == PG_WAIT_TIMEOUT;
}

bool
kv_window_scan_is_live(const KvWindowScan *scan, TimestampTz now)
{
	int64		rests = now - scan->progress;

	if (scan->id == 0 || scan->waiting)
		return scan->id != 0;
	if (rests > kv_window_wait_ms * INT64CONST(1000) / KV_STUCK_SHARE && is_stuck(scan))
		return false;
	return rests < kv_window_wait_ms * INT64CONST(1000);
}

/* If a worker has just exited, its latch may be another process's, which then wakes in vain. */
void
kv_window_wake_workers(void)
{
	for (int i = 0; i < KV_MAX_PREFETCH_WORKERS; i++)
	{
		Latch	   *latch = kv_window_cache->workers[i];

		if (latch != NULL)
			SetLatch(latch);
	}
	if (kv_window_cache->nworkers < kv_prefetch_workers)
		(void) kv_worker_need(KV_WORKER_PREFETCH);
}

bool
kv_windows_are_loaded(void)
{
	return kv_window_cache->nworkers > 0 || kv_worker_is_coming(KV_WORKER_PREFETCH);
}

/* Notes that the scan's present span was in use until now. */
static void
note_use(const KvWindowScan *entry, TimestampTz now)
{
	KvSpanKey	key = {entry->cache_id, entry->shard, entry->segment};
	KvSpan	   *span = kv_span_find(&key);

	if (span != NULL)
		span->used = now;
}

static void
release(KvWindowScan *entry)
{
	if (!entry->wants_blocks)
		note_use(entry, kv_clock());
	entry->wants_blocks = false;
	pg_atomic_fetch_sub_u32(&entry->course.map->pins, 1);
	entry->id = 0;
	entry->waiting = false;
	while (kv_window_cache->scans_used > 0 &&
		   kv_window_scans[kv_window_cache->scans_used - 1].id == 0)
		kv_window_cache->scans_used--;
}

/* before_shmem_exit callback: releases all entries of this process. */
static void
release_all(int code, Datum arg)
{
	LWLockAcquire(&kv_window_cache->lock, LW_EXCLUSIVE);
	for (int i = 0; i < kv_window_cache->scans_used; i++)
	{
		if (kv_window_scans[i].id != 0 && kv_window_scans[i].pid == MyProcPid)
			release(&kv_window_scans[i]);
	}
	LWLockRelease(&kv_window_cache->lock);
}

void
kv_reader_leave(KvWindowReader *reader)
{
	reader->windows = reader->wants_blocks = false;
	if (reader->entry == NULL)
		return;
	LWLockAcquire(&kv_window_cache->lock, LW_EXCLUSIVE);
	if (reader->entry->id == reader->id)
		release(reader->entry);
	LWLockRelease(&kv_window_cache->lock);
	reader->entry = NULL;
}

static void
context_reset(void *arg)
{
	kv_reader_leave(arg);
}

void
kv_reader_make_context(KvWindowReader *reader)
{
	if (reader->context != NULL)
		return;
	reader->context = AllocSetContextCreate(reader->parent, "kvfdw range windows",
											ALLOCSET_SMALL_SIZES);
	reader->callback.func = context_reset;
	reader->callback.arg = reader;
	MemoryContextRegisterResetCallback(reader->context, &reader->callback);
}

/* A free entry of the registry; NULL: there is none. */
static KvWindowScan *
find_entry(void)
{
	for (int i = 0; i < kv_window_cache->nscans; i++)
	{
		if (kv_window_scans[i].id == 0)
		{
			kv_window_cache->scans_used = Max(kv_window_cache->scans_used, i + 1);
			return &kv_window_scans[i];
		}
	}
	return NULL;
}

/*
 * Does a segment of so many bytes fit into the cache together with the spans of other live scans?
 * If not, they would only wait for each other's windows.
 */
static bool
has_windows_for(const KvSpanKey *key, uint64 bytes, const KvWindowScan *self, TimestampTz now)
{
	KvSpanKey	known[64] = {*key};
	int			nknown = 1;

	for (int i = 0; i < kv_window_cache->scans_used; i++)
	{
		const KvWindowScan *scan = &kv_window_scans[i];
		KvSpanKey	other = {scan->cache_id, scan->shard, scan->segment};
		int			n = 0;

		if (scan == self || scan->wants_blocks || !kv_window_scan_is_live(scan, now))
			continue;
		while (n < nknown && memcmp(&known[n], &other, sizeof(other)) != 0)
			n++;
		if (n < nknown)
			continue;
		bytes += kv_extents_size(&scan->wants[0].extents);
		if (nknown == lengthof(known) ||
			bytes > (uint64) kv_window_cache->nwindows * KV_WINDOW_SIZE)
			return false;
		known[nknown++] = other;
	}
	return true;
}

/* Called before a process gets its first entry. */
static void
watch_exit(void)
{
	static int	exit_callback_pid = 0;

	if (exit_callback_pid == MyProcPid)
		return;
	before_shmem_exit(release_all, (Datum) 0);
	exit_callback_pid = MyProcPid;
}

/* Registers a scan of a store with this entry; lock held, exclusively. */
static void
register_scan(KvWindowReader *reader, KvWindowScan *entry, KvStore *map)
{
	pg_atomic_fetch_add_u32(&map->pins, 1);
	reader->entry = entry;
	reader->id = entry->id = ++kv_window_cache->last_id;
	entry->pid = MyProcPid;
	entry->wait_event = &MyProc->wait_event_info;
	entry->cache_id = reader->cache_id;
	entry->waiting = entry->held = entry->lacks_room = entry->shares = false;
}

void
kv_reader_enter(KvWindowReader *reader, const KvCourse *course, const KvWant *wants, int nwants)
{
	KvSpanKey	key = {reader->cache_id, wants[0].shard, wants[0].segment};
	KvWindowScan *entry;
	TimestampTz now = kv_clock();

	watch_exit();
	kv_reader_make_context(reader);
	LWLockAcquire(&kv_window_cache->lock, LW_EXCLUSIVE);
	entry = reader->entry != NULL ? reader->entry : find_entry();
	if (entry == NULL ||
		(key.segment != KV_WHOLE &&
		 !has_windows_for(&key, kv_extents_size(&wants[0].extents), entry, now)))
	{
		LWLockRelease(&kv_window_cache->lock);
		kv_reader_leave(reader);
		return;
	}
	if (reader->entry == NULL)
		register_scan(reader, entry, course->map);
	else if (!entry->wants_blocks)
		note_use(entry, now);
	entry->wants_blocks = reader->wants_blocks = false;
	if (reader->entered != 0)
		reader->spent = Max(reader->spent - (now - reader->entered - reader->waited), 0);
	entry->patience = (int64) kv_window_wait_ms * 1000 - reader->spent;
	entry->course = *course;
	entry->shard = wants[0].shard;
	entry->segment = wants[0].segment;
	entry->nwants = nwants;
	memcpy(entry->wants, wants, nwants * sizeof(KvWant));
	entry->progress = now;
	note_use(entry, now);
	LWLockRelease(&kv_window_cache->lock);
	kv_window_wake_workers();
	reader->windows = true;
	reader->entered = now;
	reader->waited = 0;
	KV_STOP_POINT("range_entered");
}

void
kv_reader_want_blocks(KvWindowReader *reader, KvStore *store)
{
	KvWindowScan *entry;

	watch_exit();
	kv_reader_make_context(reader);
	if (reader->met == NULL)
		reader->met = MemoryContextAlloc(reader->context, KV_READER_MET * sizeof(uint64));
	kv_reader_leave(reader);
	LWLockAcquire(&kv_window_cache->lock, LW_EXCLUSIVE);
	entry = find_entry();
	if (entry != NULL)
	{
		register_scan(reader, entry, store);
		entry->course = (KvCourse) {.store = store->key, .map = store};
		entry->shard = reader->shard;
		entry->segment = KV_WHOLE;
		entry->nwants = 0;
		entry->wants_blocks = reader->wants_blocks = true;
		entry->position = 0;
		entry->at = entry->until = 0;
		entry->progress = kv_clock();
		reader->stuck_at = 0;
	}
	LWLockRelease(&kv_window_cache->lock);
	reader->counted = reader->nmet = reader->nothers = reader->nmissed = reader->together = 0;
	reader->with_parts = false;
}

bool
kv_reader_come_to(KvWindowReader *reader, uint64 segment)
{
	KvWindowScan *entry = reader->entry;
	TimestampTz now;
	int			n = 1;

	if (entry->segment == segment)
		return true;
	while (n < entry->nwants && entry->wants[n].segment != segment)
		n++;
	if (n >= entry->nwants)
		return false;
	now = kv_clock();
	LWLockAcquire(&kv_window_cache->lock, LW_EXCLUSIVE);
	note_use(entry, now);
	entry->nwants -= n;
	memmove(entry->wants, entry->wants + n, entry->nwants * sizeof(KvWant));
	entry->segment = segment;
	note_use(entry, now);
	LWLockRelease(&kv_window_cache->lock);
	return true;
}

/* Are all pieces of a span that scans have asked for in windows?  Lock held. */
static bool
is_complete(const KvSpanKey *key)
{
	KvSpan	   *span = kv_span_find(key);

	return span != NULL &&
		(uint64) span->nvalid * KV_WINDOW_SIZE >= span->size;
}

bool
kv_window_is_there(uint32 cache_id, uint32 shard)
{
	KvSpanKey	key = {cache_id, shard, KV_WHOLE};
	KvSpan	   *span;
	bool		there;

	LWLockAcquire(&kv_window_cache->lock, LW_SHARED);
	span = kv_span_find(&key);
	there = span != NULL &&
		(uint64) (span->nvalid + span->nloading) * KV_WINDOW_SIZE * 2 >= span->size;
	LWLockRelease(&kv_window_cache->lock);
	return there;
}

/* Steps to the previous span in the order of a scan; false: there is none. */
static bool
step_back(const KvWindowScan *scan, KvSpanKey *key)
{
	if (key->segment != KV_WHOLE)
	{
		key->segment -= scan->course.segment_step;
		return key->segment != KV_WHOLE;
	}
	key->shard = kv_shard_next(scan->course.map, key->shard, -1);
	return key->shard != scan->shard;
}

bool
kv_window_company(uint32 cache_id, KvScanStart *place)
{
	const KvWindowScan *other = NULL;
	TimestampTz now;

	if (kv_window_cache == NULL || kv_window_cache->scans_used == 0)
		return false;
	now = kv_clock();
	LWLockAcquire(&kv_window_cache->lock, LW_SHARED);
	for (int i = 0; i < kv_window_cache->scans_used && other == NULL; i++)
	{
		const KvWindowScan *scan = &kv_window_scans[i];

		if (kv_window_scan_is_live(scan, now) && scan->cache_id == cache_id &&
			scan->course.step > 0)
			other = scan;
	}
	if (other != NULL)
	{
		KvSpanKey	before = {cache_id, other->shard, other->segment};
		/* bounds the loop: from a shard that has left the map no step leads back to it */
		uint32		steps = 0;

		do
		{
			*place = (KvScanStart) {before.shard, before.segment, other->course.segment_step,
				before.segment == KV_WHOLE ? 0 : before.segment * KV_SEGMENT_SIZE};
		} while (++steps < KV_BACK_STEPS && step_back(other, &before) && is_complete(&before));
	}
	LWLockRelease(&kv_window_cache->lock);
	return other != NULL;
}
