/*
 * blockwindow.c
 *		Block windows: windows of single blocks, for scans of values that are in no key order.
 *
 * They serve scans in key order of values that are stored in another order and do not fit into the
 * range cache.  Such a scan gains nothing from reading files from end to end; each value costs a
 * read of its own.  But the scan can know the blocks that it will need long before, and other scans
 * on the same way need the same ones.  So it looks ahead in the index (scan/ahead.c) and asks for
 * many blocks at a time.  Each block that is in no window gets a slot in one, and an entry in the
 * table of blocks.  The window is queued for the workers.  A scan that finds a block in the table
 * takes it from the window, or waits for it.
 *
 *		FREE ──want──▸ QUEUED ──next──▸ READ ──publish──▸ LOADED ──evict, want──▸ FREE
 *		                                 └────give up─────────────────────────────▸ FREE
 *
 * Block windows are in a list, in the order in which they were asked for, and the oldest one is
 * evicted first.  The position of a scan among them follows from the windows in which it has found
 * its latest batch.  A scan that needs a window may have to evict one that other scans of the store
 * still come to.  If these use blocks that others asked for, it waits for them, with the patience
 * of any scan that is held back (scans.c).  Then windows are evicted to which no scan comes.  A
 * scan that finds only blocks that it asked for itself keeps just these, and no scan waits for it;
 * this happens where each scan reads a part of its own.
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
#include "engine/io/io.h"

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

/* ---- the table of blocks; KvWindowCache.lock is held ---- */

static KvBlockKey
block_key(uint32 cache_id, uint64 block)
{
	KvBlockKey	key = {cache_id, block};

	return key;
}

static KvWindowBlock *
find_block(uint32 cache_id, uint64 block)
{
	KvBlockKey	key = block_key(cache_id, block);

	return hash_search(kv_block_hash, &key, HASH_FIND, NULL);
}

static uint64 *
block_at(int window, int slot)
{
	return &kv_window_blocks[window * KV_WINDOW_BLOCKS + slot];
}

/* Removes the table entry of one of its blocks; exclusively. */
static void
forget_block(int i, int slot)
{
	KvBlockKey	key = block_key(kv_windows[i].key.cache_id, *block_at(i, slot));
	KvWindowBlock *found = hash_search(kv_block_hash, &key, HASH_FIND, NULL);

	/* a block that was lost may be in another window by now */
	if (found != NULL && found->window == i && found->slot == slot)
		(void) hash_search(kv_block_hash, &key, HASH_REMOVE, NULL);
}

/* ---- states; KvWindowCache.lock is held, exclusively ---- */

/* Makes a LOADING window that is in no list a block window. */
static void
begin_window(int i, const KvWindowReader *reader, const KvStoreKey *store)
{
	KvWindow   *window = &kv_windows[i];
	int			last = kv_window_cache->block_windows_last;

	window->key = (KvPieceKey) {reader->cache_id, PG_UINT64_MAX};
	window->store = *store;
	window->len = 0;
	window->wanted_by = reader->id;
	window->block_state = KV_BLOCK_WINDOW_QUEUED;
	window->stamp = ++kv_window_cache->last_stamp;
	window->nblocks = 0;
	window->previous = last;
	window->next = -1;
	if (last >= 0)
		kv_windows[last].next = i;
	else
		kv_window_cache->block_windows_first = i;
	kv_window_cache->block_windows_last = i;
	kv_window_cache->nblock_windows++;
}

static void
queue_window(int i)
{
	kv_windows[i].queued_next = -1;
	if (kv_window_cache->nqueued++ == 0)
		kv_window_cache->queued_first = i;
	else
		kv_windows[kv_window_cache->queued_last].queued_next = i;
	kv_window_cache->queued_last = i;
}

/* Makes it FREE; its sequence was odd. */
static void
end_window(int i)
{
	KvWindow   *window = &kv_windows[i];

	for (int slot = 0; slot < window->nblocks; slot++)
		forget_block(i, slot);
	if (window->previous >= 0)
		kv_windows[window->previous].next = window->next;
	else
		kv_window_cache->block_windows_first = window->next;
	if (window->next >= 0)
		kv_windows[window->next].previous = window->previous;
	else
		kv_window_cache->block_windows_last = window->previous;
	window->block_state = KV_BLOCK_WINDOW_NONE;
	window->stamp = 0;
	window->nblocks = 0;
	kv_window_cache->nblock_windows--;
	kv_window_free(i);
}

static void
evict_window(int i)
{
	pg_atomic_fetch_add_u64(&kv_windows[i].sequence, 1);
	kv_window_count(KV_RANGE_EVICTIONS, 1);
	end_window(i);
}

int
kv_block_window_next(uint64 cache_id)
{
	int			i = kv_window_cache->queued_first;

	if (kv_window_cache->nqueued == 0 ||
		(cache_id != 0 && kv_windows[i].key.cache_id != cache_id))
		return -1;
	kv_window_cache->queued_first = kv_windows[i].queued_next;
	kv_window_cache->nqueued--;
	kv_windows[i].block_state = KV_BLOCK_WINDOW_READ;
	return i;
}

void
kv_block_window_fail(int i, int slot, int n)
{
	for (int end = slot + n; slot < end; slot++)
		forget_block(i, slot);
}

void
kv_block_window_publish(int i)
{
	KvWindow   *window = &kv_windows[i];

	window->len = window->nblocks * KV_BLOCK;
	window->block_state = KV_BLOCK_WINDOW_LOADED;
	pg_write_barrier();
	pg_atomic_fetch_add_u64(&window->sequence, 1);
}

void
kv_block_window_give_up(int i)
{
	end_window(i);
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

	for (int i = kv_window_cache->block_windows_first; i >= 0 && looked < KV_BLOCK_WINDOW_LOOK;
		 i = kv_windows[i].next, looked++)
	{
		const KvWindow *window = &kv_windows[i];
		KvNeed     *need = &needs[window->key.cache_id % KV_BLOCK_WINDOW_STORES];

		if (window->block_state != KV_BLOCK_WINDOW_LOADED)
			continue;
		if (need->cache_id != window->key.cache_id)
			*need = find_need(window->key.cache_id, self, now);
		if (window->stamp >= need->from || is_owned(need, window))
			continue;
		if (forced || window->stamp < need->related_from)
			return i;
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

		if (span->windows < 0 || (idle != NULL && idle->used <= span->used))
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

	if (i < 0 && forced && kv_window_cache->nblock_windows > kv_window_cache->nwindows / 4)
	{
		for (i = kv_window_cache->block_windows_first;
			 i >= 0 && kv_windows[i].block_state != KV_BLOCK_WINDOW_LOADED; i = kv_windows[i].next)
			;
	}
	if (i < 0)
		return false;
	evict_window(i);
	return true;
}

/* Gets a window, LOADING and in no list, for blocks that a scan wants; -1: there is none now. */
static int
make_window(const KvWindowReader *reader, bool forced, bool *held, TimestampTz now)
{
	int			i = kv_window_take(NULL);
	int			idle;

	if (i >= 0)
		return i;
	idle = oldest_idle(reader->entry, forced, held, now);
	if (idle >= 0)
		evict_window(idle);
	else
	{
		KvSpan	   *span = idle_span(now);

		if (span == NULL)
			return -1;
		i = kv_window_take(span);
		(void) kv_span_retire(span);
		return i;
	}
	return kv_window_take(NULL);
}

/* ---- asking for blocks ---- */

/* Are all these blocks in windows, or on their way? */
static bool
have_all(uint32 cache_id, const uint64 *blocks, int n)
{
	bool		all = true;

	for (int i = 0; i < n && all;)
	{
		int			end = Min(n, i + KV_BLOCK_WINDOW_STEP);

		LWLockAcquire(&kv_window_cache->lock, LW_SHARED);
		for (; i < end && all; i++)
			all = find_block(cache_id, blocks[i]) != NULL;
		LWLockRelease(&kv_window_cache->lock);
	}
	return all;
}

/* Gives a block the next slot of the window.  Lock held, exclusively. */
static void
add_block(KvWindowReader *reader, int i, uint64 block)
{
	KvWindow   *window = &kv_windows[i];
	KvBlockKey	key = block_key(reader->cache_id, block);
	KvWindowBlock *window_block = hash_search(kv_block_hash, &key, HASH_ENTER, NULL);

	window_block->window = i;
	window_block->slot = window->nblocks;
	*block_at(i, window->nblocks) = block;
	if (window->nblocks == 0 || *block_at(i, window->nblocks - 1) + 1 != block)
		reader->stats->device_reads++;
	reader->stats->device_bytes += KV_BLOCK;
	window->nblocks++;
}

/* Blocks that a scan asks for, and its progress with them. */
typedef struct KvAsking
{
	KvWindowReader *reader;
	const KvStoreKey *store;
	const uint64 *blocks;
	int			n;
	int			next;			/* index in blocks */
	int			window;			/* QUEUED, but put into the queue when it is full; -1: none */
	bool		forced;			/* see oldest_idle */
	bool		held;			/* no window is free, because others need them */
	TimestampTz now;
} KvAsking;

/* Gets a window for the next blocks; false: there is none.  Lock held, exclusively. */
static bool
open_window(KvAsking *asking)
{
	asking->window = make_window(asking->reader, asking->forced, &asking->held, asking->now);
	if (asking->window < 0)
		return false;
	begin_window(asking->window, asking->reader, asking->store);
	asking->reader->stats->windows_loaded++;
	kv_window_count(KV_RANGE_LOADS, 1);
	return true;
}

static void
queue_open(KvAsking *asking)
{
	queue_window(asking->window);
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

		if (find_block(asking->reader->cache_id, block) == NULL)
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
	if (kv_window_cache->nblock_windows < 4 * reach_windows())
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

/* Sleeps a little for a free window, if patience is left. */
static bool
wait_for_room(KvWindowReader *reader, TimestampTz *last)
{
	KvWindowScan *entry = reader->entry;
	TimestampTz now;

	if (reader->spent >= kv_window_wait_ms * INT64CONST(1000))
		return false;
	entry->lacks_room = entry->waiting = true;
	KV_STOP_POINT("block_window_held");
	ConditionVariablePrepareToSleep(&entry->loaded);
	(void) ConditionVariableTimedSleep(&entry->loaded, KV_BLOCK_WINDOW_NAP_MS, KV_WAIT_RANGE);
	ConditionVariableCancelSleep();
	now = kv_clock();
	reader->spent += now - *last;
	*last = now;
	entry->progress = now;
	return true;
}

/* Waits until others have released enough windows, or until patience is exhausted. */
static void
ask_again(KvWindowReader *reader, const KvStoreKey *store, const uint64 *blocks, int n)
{
	TimestampTz last = kv_clock();
	bool		held = true;

	/* work since the last wait restores patience */
	if (reader->held != 0)
		reader->spent = Max(reader->spent - (last - reader->held), 0);
	PG_TRY();
	{
		while (held && wait_for_room(reader, &last))
		{
			if (ask_for(reader, store, blocks, n, false, &held))
				break;
		}
		if (held)
			(void) ask_for(reader, store, blocks, n, true, &held);
	}
	PG_CATCH();
	{
		/*
		 * leave the registry: in a subtransaction a cursor can survive the ERROR, and must not
		 * count as a scan that waits
		 */
		kv_reader_leave(reader);
		PG_RE_THROW();
	}
	PG_END_TRY();
	reader->held = last;
	reader->entry->lacks_room = reader->entry->waiting = false;
}

void
kv_block_window_want(KvWindowReader *reader, const KvStoreKey *store, const uint64 *blocks, int n,
					 bool now)
{
	bool		held;

	if (n == 0 || have_all(reader->cache_id, blocks, n) ||
		ask_for(reader, store, blocks, n, false, &held))
		return;
	if (held && now)
		ask_again(reader, store, blocks, n);
}

/* ---- taking values ---- */

typedef struct KvBlockPlace
{
	int			window;
	int			slot;
} KvBlockPlace;

/* Finds the windows of blocks.  False: some have no entry; *coming: some are being loaded. */
static bool
find_places(const KvWindowReader *reader, uint64 first, int n, KvBlockPlace *places,
			bool *coming)
{
	int			found = 0;

	*coming = false;
	LWLockAcquire(&kv_window_cache->lock, LW_SHARED);
	for (; found < n; found++)
	{
		const KvWindowBlock *window_block = find_block(reader->cache_id, first + found);

		if (window_block == NULL)
			break;
		places[found] = (KvBlockPlace) {window_block->window, window_block->slot};
		*coming = *coming || kv_windows[window_block->window].block_state != KV_BLOCK_WINDOW_LOADED;
	}
	LWLockRelease(&kv_window_cache->lock);
	return found == n;
}

/*
 * Sleeps until all these blocks are loaded, or one is no longer on its way.  False: the workers are
 * stuck.
 */
static bool
sleep_until_there(KvWindowReader *reader, uint64 first, int n)
{
	KvWindowScan *entry = reader->entry;
	TimestampTz stirred = kv_clock();
	uint64		seen = kv_window_cache->block_loads;
	KvBlockPlace places[KV_BLOCK_WINDOW_VALUE / KV_BLOCK + 1];
	bool		coming;
	bool		stuck = false;

	KV_STOP_POINT("block_window_waiting");
	ConditionVariablePrepareToSleep(&entry->loaded);
	while (!stuck && find_places(reader, first, n, places, &coming) && coming)
	{
		TimestampTz now = kv_clock();

		if (seen != kv_window_cache->block_loads)
		{
			seen = kv_window_cache->block_loads;
			stirred = now;
		}
		stuck = !kv_windows_are_loaded() ||
			now - stirred > kv_window_wait_ms * INT64CONST(1000) / KV_STUCK_SHARE;
		if (!stuck)
			(void) ConditionVariableTimedSleep(&entry->loaded, KV_BLOCK_WINDOW_NAP_MS,
											   KV_WAIT_RANGE);
	}
	ConditionVariableCancelSleep();
	if (stuck)
	{
		reader->stuck_at = seen + 1;
		KV_STOP_POINT("range_stuck");
	}
	return !stuck;
}

/* Waits for blocks.  False: the scan should read for itself until something is loaded again. */
static bool
await_blocks(KvWindowReader *reader, uint64 first, int n)
{
	KvWindowScan *entry = reader->entry;
	bool		there;

	reader->stats->windows_waited++;
	kv_window_count(KV_RANGE_WAITS, 1);
	entry->waiting = true;
	PG_TRY();
	{
		there = sleep_until_there(reader, first, n);
	}
	PG_CATCH();
	{
		kv_reader_leave(reader);
		PG_RE_THROW();
	}
	PG_END_TRY();
	entry->waiting = false;
	entry->progress = kv_clock();
	if (!there)
	{
		reader->spent += kv_window_wait_ms * INT64CONST(1000) / KV_STUCK_SHARE;
		kv_reader_leave(reader);
	}
	return there;
}

static void
note_met(KvWindowReader *reader, uint64 stamp, uint64 wanted_by)
{
	if (reader->nmet < KV_READER_MET)
		reader->met[reader->nmet++] = stamp;
	reader->nothers += wanted_by != reader->id;
	if (wanted_by == reader->id || stamp <= reader->counted)
		return;
	reader->counted = stamp;
	reader->stats->windows_hit++;
	kv_window_count(KV_RANGE_HITS, 1);
}

/* Copies a part of a block; false: the window now has other blocks. */
static bool
take_part(KvWindowReader *reader, KvBlockPlace place, uint64 block, uint32 from, uint32 len,
		  char *into)
{
	KvWindow   *window = &kv_windows[place.window];
	uint64		sequence = pg_atomic_read_u64(&window->sequence);
	uint64		stamp;
	uint64		wanted_by;

	pg_read_barrier();
	if (sequence % 2 != 0 || window->block_state != KV_BLOCK_WINDOW_LOADED ||
		window->key.cache_id != reader->cache_id || place.slot >= window->nblocks ||
		*block_at(place.window, place.slot) != block)
		return false;
	stamp = window->stamp;
	wanted_by = window->wanted_by;
	memcpy(into, kv_window_bytes(place.window) + place.slot * KV_BLOCK + from, len);
	pg_read_barrier();
	if (pg_atomic_read_u64(&window->sequence) != sequence)
		return false;
	note_met(reader, stamp, wanted_by);
	return true;
}

bool
kv_block_window_take(KvWindowReader *reader, KvAddress address, uint32 len, char *into)
{
	KvBlockPlace places[KV_BLOCK_WINDOW_VALUE / KV_BLOCK + 1];
	uint64		first = address / KV_BLOCK;
	int			n = (address + len - 1) / KV_BLOCK - first + 1;
	bool		coming;

	Assert(len > 0 && len <= KV_BLOCK_WINDOW_VALUE);
	for (int tries = 0; tries < 4; tries++)
	{
		uint32		done = 0;

		if (!find_places(reader, first, n, places, &coming))
			return false;
		if (coming)
		{
			if (!reader->wants_blocks || !await_blocks(reader, first, n))
				return false;
			continue;
		}
		for (int i = 0; i < n; i++)
		{
			uint32		from = (address + done) % KV_BLOCK;
			uint32		part = Min(len - done, KV_BLOCK - from);

			if (!take_part(reader, places[i], first + i, from, part, into + done))
				break;
			done += part;
		}
		if (done == len)
			return true;
	}
	return false;
}

void
kv_block_window_lose(KvWindowReader *reader, KvAddress address, uint32 len)
{
	LWLockAcquire(&kv_window_cache->lock, LW_EXCLUSIVE);
	for (uint64 block = address / KV_BLOCK; block <= (address + len - 1) / KV_BLOCK; block++)
	{
		KvWindowBlock *window_block = find_block(reader->cache_id, block);

		if (window_block != NULL &&
			kv_windows[window_block->window].block_state == KV_BLOCK_WINDOW_LOADED)
			(void) hash_search(kv_block_hash, &window_block->key, HASH_REMOVE, NULL);
	}
	LWLockRelease(&kv_window_cache->lock);
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
