/*
 * blockwindow.c
 *		Block windows: windows of single blocks, for scans of values that are in no key order.
 *
 * They serve scans in key order of values that are stored in another order and do not fit into the
 * range cache.  Such a scan gains nothing from reading files from end to end; each value costs a
 * read of its own.  But the scan can know the blocks that it will need long before, and other scans
 * on the same way need the same ones.  So it looks ahead in the index (scan/ahead.c) and asks for
 * many blocks at a time.  Each block that is in no window gets a slot in one that the scan claims,
 * fills with blocks and queues for the workers (window.c).  A scan that finds a block in the table
 * takes it from the window, or waits for it (reader.c).
 *
 * The block window that was loaded first is evicted first.  The position of a scan among them
 * follows from the windows in which it has found its latest batch.  A scan that needs a window may
 * have to evict one that other scans of the store still come to.  If these use blocks that others
 * asked for, it waits for them, with the patience of any scan that is held back (scans.c).  Then
 * windows are evicted to which no scan comes.  A scan that finds only blocks that it asked for
 * itself keeps just these, and no scan waits for it; this happens where each scan reads a part of
 * its own.
 *
 * A scan without space for windows reads for itself, as does a scan that needs a block that could
 * not be read.  Other blocks of the same window stay usable.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "engine/base/types.h"
#include "engine/base/wait.h"
#include "engine/base/worker.h"
#include "engine/cache/window.h"
#include "engine/io/fault.h"

#define KV_BLOCK_WINDOW_LEAST		16 /* least number of windows of a cache with block windows */
/* maximum number of windows that a scan has loaded ahead of it */
#define KV_BLOCK_WINDOW_MOST		32
/* a scan shares if others asked for one in so many of its blocks */
#define KV_BLOCK_WINDOW_SHARE		8
#define KV_BLOCK_WINDOW_NAP_MS	10
/*
 * blocks looked up under one lock; it keeps scans that ask for the same blocks from filling windows
 * alternately
 */
#define KV_BLOCK_WINDOW_STEP		512
/* maximum number of windows, from the oldest on, searched for an idle one */
#define KV_BLOCK_WINDOW_LOOK		4096
#define KV_BLOCK_WINDOW_OWNERS	16	/* maximum number of scans that share none */
#define KV_BLOCK_WINDOW_STORES	8	/* stores whose needs are remembered */

/* The number of windows that a single scan has loaded ahead of it. */
static int
reach_windows(void)
{
	return Min(kv_window_cache->nwindows / KV_BLOCK_WINDOW_LEAST * 2, KV_BLOCK_WINDOW_MOST);
}

int
kv_block_window_reach(void)
{
	/* scans at different positions must not take from each other what was just loaded */
	int			share = kv_window_cache->nwindows / 2 / Max(kv_window_cache->nblock_scans, 1);

	return Max(Min(reach_windows(), share), 1) * KV_WINDOW_BLOCKS;
}

bool
kv_block_window_is_possible(void)
{
	if (kv_window_cache == NULL || kv_window_cache->nwindows < KV_BLOCK_WINDOW_LEAST)
		return false;
	return kv_window_cache->nworkers > 0 || kv_worker_need(KV_WORKER_PREFETCH);
}

/* At most as often as its patience allows. */
bool
kv_block_window_stirs(const KvWindowReader *reader)
{
	return reader->stuck_at != 0 && reader->spent < kv_window_wait_ms * INT64CONST(1000) &&
		((const volatile KvWindowCache *) kv_window_cache)->block_loads + 1 != reader->stuck_at;
}

/* ---- eviction; KvWindowCache.lock is held, exclusively ---- */

/* The block windows of a store that scans need, from the stamp from on; PG_UINT64_MAX: none. */
typedef struct KvNeed
{
	uint64		cache_id;
	uint64		from;
	uint64		related_from;	/* those for which the scan that looks for a window waits */
	int			nowners;	/* scans that need only windows of their own, each from its stamp on */
	struct
	{
		uint64		id;
		uint64		from;
	}			owners[KV_BLOCK_WINDOW_OWNERS];
} KvNeed;

/*
 * Is a scan worth waiting for?  A scan that has taken no batch for long is not, whatever it does in
 * the meantime: batches are small, and its blocks can be read again.
 */
static bool
goes_on(const KvWindowScan *scan, TimestampTz now)
{
	return scan->waiting ||
		now - scan->progress <= kv_window_wait_ms * INT64CONST(1000) / KV_STUCK_SHARE;
}

/*
 * The block windows of a store that scans need, for the scan self, or NULL for a worker, that looks
 * for a window.
 */
static KvNeed
find_need(uint64 cache_id, const KvWindowScan *self, TimestampTz now)
{
	KvNeed		need = {cache_id, PG_UINT64_MAX, PG_UINT64_MAX, 0};

	for (int i = 0; i < kv_window_cache->scans_used; i++)
	{
		const KvWindowScan *scan = &kv_window_scans[i];

		if (!scan->wants_blocks || scan->cache_id != cache_id || scan->position == 0 ||
			!kv_window_scan_is_live(scan, now))
			continue;
		if (!scan->shares)
		{
			if (need.nowners < KV_BLOCK_WINDOW_OWNERS)
			{
				need.owners[need.nowners].id = scan->id;
				need.owners[need.nowners++].from = scan->position;
			}
		}
		else if (self == NULL || scan == self || scan->cache_id != self->cache_id)
			need.from = Min(need.from, scan->position);
		else if (!scan->lacks_room && scan->pid != self->pid && goes_on(scan, now))
			need.related_from = Min(need.related_from, scan->position);
		/* skips scans that would wait for each other, and other scans of the same process */
	}
	return need;
}

/* Does the scan that asked for a window, and shares none, still need it? */
static bool
is_owned(const KvNeed *need, const KvWindow *window)
{
	for (int i = 0; i < need->nowners; i++)
	{
		if (need->owners[i].id == window->wanted_by && window->stamp >= need->owners[i].from)
			return true;
	}
	return false;
}

/*
 * The oldest loaded block window that no other scan needs, for a scan or, NULL, for a worker; -1:
 * there is none.  forced: needs of scans of the same store do not count.  *held: they are the
 * reason why there is none.
 */
static int
oldest_idle(const KvWindowScan *self, bool forced, bool *held, TimestampTz now)
{
	KvNeed		needs[KV_BLOCK_WINDOW_STORES] = {0};
	int			looked = 0;
	dlist_iter	iter;

	dlist_reverse_foreach(iter, &kv_window_cache->blocks.windows)
	{
		const KvWindow *window = dlist_container(KvWindow, node, iter.cur);
		uint32		cache_id = window->span.cache_id;
		KvNeed	   *need = &needs[cache_id % KV_BLOCK_WINDOW_STORES];

		if (looked++ == KV_BLOCK_WINDOW_LOOK)
			break;
		if (need->cache_id != cache_id)
			*need = find_need(cache_id, self, now);
		if (window->stamp >= need->from || is_owned(need, window))
			continue;
		if (forced || window->stamp < need->related_from)
			return kv_window_index(window);
		*held = true;
	}
	return -1;
}

/* The span that no scan needs and that was unused for longest; NULL: there is none. */
static KvSpan *
idle_span(TimestampTz now)
{
	HASH_SEQ_STATUS status;
	KvSpan	   *idle = NULL;
	KvSpan	   *span;

	hash_seq_init(&status, kv_span_hash);
	while ((span = hash_seq_search(&status)) != NULL)
	{
		bool		wanted = false;

		if (dlist_is_empty(&span->windows) || (idle != NULL && idle->used <= span->used))
			continue;
		for (int i = 0; i < kv_window_cache->scans_used && !wanted; i++)
			wanted = kv_window_scan_is_live(&kv_window_scans[i], now) &&
				kv_window_distance(&kv_window_scans[i], &span->key) != KV_NEVER;
		if (!wanted)
			idle = span;
	}
	return idle;
}

bool
kv_block_window_evict(bool forced, TimestampTz now)
{
	bool		held;
	int			i = oldest_idle(NULL, false, &held, now);

	if (i < 0 && forced && kv_window_singles() > kv_window_cache->nwindows / 4 &&
		kv_window_cache->blocks.nvalid > 0)
		i = kv_window_of(&kv_window_cache->blocks.windows, true);
	if (i < 0)
		return false;
	kv_window_evict(i);
	return true;
}

/* Frees a window for blocks that a scan wants, if none is free; false: there is none now. */
static bool
make_room(const KvWindowReader *reader, bool forced, bool *held, TimestampTz now)
{
	KvSpan	   *span;
	int			i;

	if (kv_window_cache->nfree > 0)
		return true;
	i = oldest_idle(reader->entry, forced, held, now);
	if (i >= 0)
		kv_window_evict(i);
	else if ((span = idle_span(now)) != NULL)
		(void) kv_span_evict(span);
	return kv_window_cache->nfree > 0;
}

/* ---- asking for blocks ---- */

/* Is a block in a window, or on its way?  Lock held. */
static bool
has_block(const KvWindowReader *reader, uint64 block)
{
	KvWindowKey key = {reader->cache_id, 1, block};
	KvPlace		place;

	return kv_window_find(&key, &place);
}

/* Are all these blocks in windows, or on their way? */
static bool
have_all(const KvWindowReader *reader, const uint64 *blocks, int n)
{
	bool		all = true;

	for (int i = 0; i < n && all;)
	{
		int			end = Min(n, i + KV_BLOCK_WINDOW_STEP);

		LWLockAcquire(&kv_window_cache->lock, LW_SHARED);
		for (; i < end && all; i++)
			all = has_block(reader, blocks[i]);
		LWLockRelease(&kv_window_cache->lock);
	}
	return all;
}

/* Gives a block the next slot of the window, and counts it.  Lock held, exclusively. */
static void
add_block(KvWindowReader *reader, int i, uint64 block)
{
	int			n = kv_windows[i].nblocks;

	if (n == 0 || *kv_window_block(i, n - 1) + 1 != block)
		reader->stats->device_reads++;
	reader->stats->device_bytes += KV_BLOCK;
	kv_window_add(i, block);
}

/* Blocks that a scan asks for, and its progress with them. */
typedef struct KvAsking
{
	KvWindowReader *reader;
	const KvStoreKey *store;
	const uint64 *blocks;
	int			n;
	int			next;			/* index in blocks */
	int			window;			/* CLAIMED, and queued when it is full; -1: none */
	bool		forced;			/* see oldest_idle */
	bool		held;			/* no window is free, because others need them */
	TimestampTz now;
} KvAsking;

/* Gets a window for the next blocks; false: there is none.  Lock held, exclusively. */
static bool
open_window(KvAsking *asking)
{
	KvWindowReader *reader = asking->reader;

	if (!make_room(reader, asking->forced, &asking->held, asking->now))
		return false;
	asking->window = kv_window_claim_blocks(reader->cache_id, asking->store, reader->id);
	reader->stats->windows_loaded++;
	kv_window_count(KV_RANGE_LOADS, 1);
	return true;
}

static void
queue_open(KvAsking *asking)
{
	kv_window_queue(asking->window);
	asking->window = -1;
}

/*
 * Gives slots in windows to those of the next blocks that are in no window.  Stops after so many
 * blocks that the lock is not held for long.  Raises nothing while a window is open.  False: no
 * window is free.
 */
static bool
ask_for_some(KvAsking *asking)
{
	int			end = Min(asking->n, asking->next + KV_BLOCK_WINDOW_STEP);
	bool		room = true;

	LWLockAcquire(&kv_window_cache->lock, LW_EXCLUSIVE);
	while (asking->next < end)
	{
		uint64		block = asking->blocks[asking->next];

		if (!has_block(asking->reader, block))
		{
			room = asking->window >= 0 || open_window(asking);
			if (!room)
				break;
			add_block(asking->reader, asking->window, block);
			if (kv_windows[asking->window].nblocks == KV_WINDOW_BLOCKS)
				queue_open(asking);
		}
		asking->next++;
	}
	if (asking->window >= 0 && asking->next == asking->n)
		queue_open(asking);

	/* so few windows keep no order among scans */
	if (kv_window_singles() < 4 * reach_windows())
		asking->held = false;
	LWLockRelease(&kv_window_cache->lock);
	return room;
}

/*
 * Asks for all these blocks.  False: no window is free for some; *held: because others need them.
 */
static bool
ask_for(KvWindowReader *reader, const KvStoreKey *store, const uint64 *blocks, int n,
		bool forced, bool *held)
{
	KvAsking	asking = {.reader = reader, .store = store, .blocks = blocks, .n = n,
	.window = -1, .forced = forced, .now = kv_clock()};
	bool		room = true;

	while (asking.next < n && room)
		room = ask_for_some(&asking);
	if (kv_window_cache->nqueued > 0)
		kv_window_wake_workers();
	*held = asking.held;
	return room;
}

/* The blocks that a scan needs now. */
typedef struct KvNow
{
	const KvStoreKey *store;
	const uint64 *blocks;
	int			n;
} KvNow;

/* Waits until others have released enough windows, or until patience is exhausted. */
static bool
sleep_for_room(KvWindowReader *reader, void *arg)
{
	const KvNow *what = arg;
	KvWindowScan *entry = reader->entry;
	TimestampTz last = kv_clock();
	bool		held = true;

	/* work since the last wait restores patience */
	if (reader->held != 0)
		reader->spent = Max(reader->spent - (last - reader->held), 0);
	entry->lacks_room = true;
	while (held && reader->spent < kv_window_wait_ms * INT64CONST(1000))
	{
		TimestampTz now;

		KV_STOP_POINT("block_window_held");
		ConditionVariablePrepareToSleep(&entry->loaded);
		(void) ConditionVariableTimedSleep(&entry->loaded, KV_BLOCK_WINDOW_NAP_MS, KV_WAIT_RANGE);
		ConditionVariableCancelSleep();
		now = kv_clock();
		reader->spent += now - last;
		entry->progress = last = now;
		if (ask_for(reader, what->store, what->blocks, what->n, false, &held))
			break;
	}
	if (held)
		(void) ask_for(reader, what->store, what->blocks, what->n, true, &held);
	reader->held = last;
	entry->lacks_room = false;
	return true;
}

void
kv_block_window_want(KvWindowReader *reader, const KvStoreKey *store, const uint64 *blocks, int n,
					 bool now)
{
	bool		held;

	KvNow		what = {store, blocks, n};

	if (n == 0 || have_all(reader, blocks, n) || ask_for(reader, store, blocks, n, false, &held))
		return;
	if (held && now)
		(void) kv_reader_wait(reader, sleep_for_room, &what);
}

static int
compare_stamps(const void *a, const void *b)
{
	uint64		left = *(const uint64 *) a;
	uint64		right = *(const uint64 *) b;

	return left < right ? -1 : left > right;
}

/*
 * The next blocks were asked for at about the same time as those of the last batch, but not in the
 * same order.  A few blocks may have been loaded long before, or only now.
 */
void
kv_block_window_progress(KvWindowReader *reader)
{
	uint64		around = 2 * reach_windows();
	uint64		middle;

	if (reader->entry == NULL)
		return;
	reader->entry->progress = kv_clock();
	if (reader->nmet == 0)
	{
		/* its blocks are elsewhere, so others need not keep windows for it */
		reader->entry->position = 0;
		return;
	}
	qsort(reader->met, reader->nmet, sizeof(uint64), compare_stamps);
	middle = reader->met[reader->nmet / 2];
	reader->entry->position = middle > around ? middle - around : 1;
	reader->entry->shares = reader->nothers * KV_BLOCK_WINDOW_SHARE >= reader->nmet;
	reader->nmet = reader->nothers = 0;
}
