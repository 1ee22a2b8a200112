/*
 * blockwindow.c
 *		Block windows: windows of single blocks and of parts, for scans of values that are not in
 *		key order.
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
 * Stretches: Where the next keys have several blocks of a part, or the part before it is there, the
 * part is loaded as a whole, and with it the next ones of its stretch, if the scan says so
 * (scan/stretch.c).  A reader looks a part up in the table once, and then remembers where it is
 * (reader.c).  Parts stay in use for long in stretches that the scan goes through slowly, so the
 * time of their load says nothing.  Each look ahead notes for the windows that it needs until when:
 * the number of keys of the shard before its end.  A scan's position is such a number, too.  So the
 * scans of a shard in one direction agree on the order in which they need windows, whoever has
 * loaded them.  If all windows are needed, those are evicted first to which no scan has looked
 * ahead, the last one first.  Then a scan waits for others that it has overtaken; one that has
 * overtaken none evicts what those ahead of it need last.
 *
 * A scan without space for windows reads for itself, as does a scan that needs a block that could
 * not be read.  Other blocks of the same window stay usable.
 */
#include "postgres.h"

#include "common/hashfn.h"
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
/* parts of a file that have the same bounds of what is loaded together */
#define KV_REGION_PARTS			64
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
kv_block_window_reach(bool parts)
{
	/* scans at different positions must not take from each other what was just loaded */
	int			nscans = parts ? kv_window_cache->nblock_groups : kv_window_cache->nblock_scans;
	int			share = kv_window_cache->nwindows / 2 / Max(nscans, 1);

	return Max(Min(reach_windows(), share), 1) * KV_WINDOW_BLOCKS;
}

int
kv_block_window_parts(void)
{
	int			ngroups = Max(kv_window_cache->nblock_groups, 1);

	/*
	 * The rest is for parts that are done, of windows with others that are not, and for what scans
	 * still need that have been overtaken.
	 */
	return kv_window_cache->nwindows * KV_WINDOW_PARTS / ngroups / 4 *
		(kv_window_cache->nblock_scans > ngroups ? 2 : 3);
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

/* Who needs a window of parts, if the scan self, or NULL for a worker, looks for one. */
typedef enum KvNeeded
{
	KV_NOT_NEEDED,
	KV_NEEDED_LATER,			/* by self, but no scan has looked ahead as far */
	KV_NEEDED_AHEAD,			/* by scans that are ahead of self, and by self after them */
	KV_NEEDED_BEHIND,			/* by scans that self has overtaken, and may wait for */
	KV_NEEDED_NOW				/* or by scans of another shard or in another direction */
} KvNeeded;

static bool
has_way(const KvWindowScan *scan, uint32 cache_id, uint32 shard, bool down)
{
	return scan->cache_id == cache_id && scan->shard == shard && scan->down == down;
}

static KvNeeded
who_needs(const KvWindow *window, const KvWindowScan *self, TimestampTz now)
{
	uint64		until = window->until;
	bool		same = self != NULL && self->until > 0 &&
		has_way(self, window->span.cache_id, window->span.shard, window->down);
	bool		later = same && until > self->until;

	if (same && !later && until >= self->at)
		return KV_NEEDED_NOW;
	for (int i = 0; i < kv_window_cache->scans_used; i++)
	{
		const KvWindowScan *scan = &kv_window_scans[i];

		if (scan == self || !scan->wants_blocks || scan->until == 0 || scan->at > until ||
			!has_way(scan, window->span.cache_id, window->span.shard, window->down) ||
			!kv_window_scan_is_live(scan, now))
			continue;
		if (!same)
			return KV_NEEDED_NOW;
		if (later && scan->until >= until)
			return KV_NEEDED_AHEAD;
		/* skips scans that would wait for each other, and other scans of the same process */
		if (!later && !scan->lacks_room && scan->pid != self->pid && goes_on(scan, now))
			return KV_NEEDED_BEHIND;
	}
	return later ? KV_NEEDED_LATER : KV_NOT_NEEDED;
}

/* The better one to evict of two windows of parts that are needed; the first one may be NULL. */
static const KvWindow *
better_victim(const KvWindow *victim, KvNeeded by, const KvWindow *window, KvNeeded needed)
{
	if (victim == NULL || needed < by)
		return window;
	return needed == by && window->until > victim->until ? window : victim;
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
	const KvWindow *victim = NULL;	/* of the windows of parts that self needs later */
	KvNeeded	by = KV_NEEDED_NOW; /* it */
	int			looked = 0;
	dlist_iter	iter;

	dlist_reverse_foreach(iter, &kv_window_cache->blocks.windows)
	{
		const KvWindow *window = dlist_container(KvWindow, node, iter.cur);
		uint32		cache_id = window->span.cache_id;
		KvNeed	   *need = &needs[cache_id % KV_BLOCK_WINDOW_STORES];

		if (looked++ == KV_BLOCK_WINDOW_LOOK)
			break;
		if (window->unit == KV_PART_BLOCKS)
		{
			KvNeeded	needed = who_needs(window, self, now);

			if (needed == KV_NOT_NEEDED || (needed == KV_NEEDED_BEHIND && forced))
				return kv_window_index(window);
			if (needed == KV_NEEDED_BEHIND)
				*held = true;
			else if (needed != KV_NEEDED_NOW)
			{
				victim = better_victim(victim, by, window, needed);
				by = Min(by, needed);
			}
			continue;
		}
		if (need->cache_id != cache_id)
			*need = find_need(cache_id, self, now);
		if (window->stamp >= need->from || is_owned(need, window))
			continue;
		if (forced || window->stamp < need->related_from)
			return kv_window_index(window);
		*held = true;
	}
	if (victim != NULL && (by == KV_NEEDED_LATER || !*held))
		return kv_window_index(victim);
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

static KvWindowKey
part_key(const KvWindowReader *reader, uint64 part)
{
	return kv_window_key(reader->cache_id, KV_PART_BLOCKS, part * KV_PART_SIZE);
}

/* Is a part, or a block of it, in a window, or on its way?  Lock held, shared. */
static bool
has_part(const KvWindowReader *reader, uint64 part, int *window)
{
	KvWindowKey key = part_key(reader, part);
	KvPlace		place;
	bool		found = kv_window_cache->nwith_parts > 0 && kv_window_find(&key, &place);

	if (found)
		*window = place.window;
	return found;
}

static bool
has_block(const KvWindowReader *reader, uint64 block, int *window)
{
	KvWindowKey key = {reader->cache_id, 1, block};
	KvPlace		place;
	bool		found = kv_window_find(&key, &place);

	if (found)
		*window = place.window;
	return found;
}

/* Are all these blocks in windows, or on their way? */
static bool
have_all(const KvWindowReader *reader, const KvWantedPart *parts, int n)
{
	bool		all = true;
	int			window;

	for (int i = 0; i < n && all;)
	{
		int			end = Min(n, i + KV_BLOCK_WINDOW_STEP);

		LWLockAcquire(&kv_window_cache->lock, LW_SHARED);
		for (; i < end && all; i++)
		{
			if (has_part(reader, parts[i].part, &window))
				continue;
			for (int bit = 0; bit < KV_PART_BLOCKS && all; bit++)
				all = !(parts[i].blocks & 1 << bit) ||
					has_block(reader, parts[i].part * KV_PART_BLOCKS + bit, &window);
		}
		LWLockRelease(&kv_window_cache->lock);
	}
	return all;
}

/* Blocks that a scan asks for, and its progress with them. */
typedef struct KvAsking
{
	KvWindowReader *reader;
	const KvStoreKey *store;
	const KvWantedPart *parts;
	int			n;
	int			next;			/* number of parts that are done */
	/* CLAIMED for single blocks and for parts, and queued when they are full; -1: none */
	int			windows[2];
	bool		forced;			/* see oldest_idle */
	bool		held;			/* no window is free, because others need them */
	TimestampTz now;
} KvAsking;

static void
queue_open(KvAsking *asking, int *window)
{
	if (*window >= 0)
		kv_window_queue(*window);
	*window = -1;
}

/*
 * Gets a window with slots for so many blocks; NULL: there is none.  Lock held, exclusively.
 */
static int *
open_window(KvAsking *asking, int unit, int nblocks)
{
	KvWindowReader *reader = asking->reader;
	int		   *window = &asking->windows[unit > 1];

	if (*window >= 0 && kv_windows[*window].nblocks + nblocks > KV_WINDOW_BLOCKS)
		queue_open(asking, window);
	if (*window >= 0)
		return window;
	if (!make_room(reader, asking->forced, &asking->held, asking->now))
		return NULL;
	*window = kv_window_claim_blocks(reader->cache_id, asking->store, unit, reader->id);
	reader->stats->windows_loaded++;
	kv_window_count(KV_RANGE_LOADS, 1);
	return window;
}

/*
 * Gives blocks from this one on the next slots of an open window, and counts them.  Lock held,
 * exclusively.
 */
static void
add_blocks(KvAsking *asking, int *window, uint64 block, int n)
{
	KvScanStats *stats = asking->reader->stats;
	int			used = kv_windows[*window].nblocks;

	if (used == 0 || *kv_window_block(*window, used - 1) + 1 != block)
		stats->device_reads++;
	stats->device_bytes += n * KV_BLOCK;
	for (int i = 0; i < n; i += kv_windows[*window].unit)
		kv_window_add(*window, block + i);
	if (kv_windows[*window].nblocks == KV_WINDOW_BLOCKS)
		queue_open(asking, window);
}

/*
 * The scan needs what a window has or will have until the end of its last look ahead.  Lock held,
 * exclusively.
 */
static void
note_need(KvWindowReader *reader, int i)
{
	const KvWindowScan *entry = reader->entry;
	KvWindow   *window = &kv_windows[i];

	reader->with_parts = true;
	if (window->span.shard != entry->shard || window->down != entry->down)
		window->until = 0;
	window->span.shard = entry->shard;
	window->down = entry->down;
	window->until = Max(window->until, entry->until);
	kv_window_renew(i);
}

/* Have the values of a part not all been written? */
static bool
is_unwritten(const KvWindowReader *reader, uint64 part)
{
	return (part + 1) * KV_PART_SIZE > reader->unwritten.begin &&
		part * KV_PART_SIZE < reader->unwritten.end;
}

/*
 * Are a part and the one before it never loaded together?  Stretches that begin at the same time
 * should not need their next parts at the same time, so regions have different bounds.
 */
static bool
ends_before(const KvWindowReader *reader, uint64 part)
{
	return (part + murmurhash32((uint32) (part / KV_REGION_PARTS))) % reader->together == 0;
}

/*
 * Has a part loaded, and those after it in the scan's direction that its stretch probably has.
 * False: no window is free.
 */
static bool
ask_for_stretch(KvAsking *asking, uint64 part)
{
	const KvWindowReader *reader = asking->reader;
	KvFileId	file = kv_file_of(part * KV_PART_SIZE);
	uint64		first = part;
	int			n = 1;
	int		   *window;
	int			other;

	while (n < reader->together)
	{
		uint64		next = reader->step > 0 ? first + n : first - 1;

		if (ends_before(reader, reader->step > 0 ? next : first) ||
			kv_file_of(next * KV_PART_SIZE).address != file.address ||
			is_unwritten(reader, next) || has_part(reader, next, &other))
			break;
		first = Min(first, next);
		n++;
	}
	window = open_window(asking, KV_PART_BLOCKS, n * KV_PART_BLOCKS);
	if (window == NULL)
		return false;
	note_need(asking->reader, *window);
	add_blocks(asking, window, first * KV_PART_BLOCKS, n * KV_PART_BLOCKS);
	return true;
}

/* Has those blocks of a part loaded that are in no window.  False: no window is free. */
static bool
ask_for_blocks(KvAsking *asking, const KvWantedPart *part)
{
	const KvWindowReader *reader = asking->reader;

	for (int bit = 0; bit < KV_PART_BLOCKS; bit++)
	{
		uint64		block = part->part * KV_PART_BLOCKS + bit;
		int		   *window;
		int			found;

		if (!(part->blocks & 1 << bit))
			continue;
		if (has_block(reader, block, &found))
			continue;
		window = open_window(asking, 1, 1);
		if (window == NULL)
			return false;
		add_blocks(asking, window, block, 1);
	}
	return true;
}

static bool
ask_for_part(KvAsking *asking, const KvWantedPart *part)
{
	KvWindowReader *reader = asking->reader;
	int			window;

	if (has_part(reader, part->part, &window))
	{
		note_need(reader, window);
		return true;
	}
	if (reader->together > 0 && !is_unwritten(reader, part->part) &&
		(part->whole || has_part(reader, part->part - reader->step, &window)))
		return ask_for_stretch(asking, part->part);
	return ask_for_blocks(asking, part);
}

/*
 * Gives slots in windows to those of the next blocks that are in no window.  Stops after so many
 * parts that the lock is not held for long.  Raises nothing while a window is open.  False: no
 * window is free.
 */
static bool
ask_for_some(KvAsking *asking)
{
	int			end = Min(asking->n, asking->next + KV_BLOCK_WINDOW_STEP);
	bool		down = asking->reader->together > 0 && asking->reader->step < 0;
	bool		room = true;

	LWLockAcquire(&kv_window_cache->lock, LW_EXCLUSIVE);
	while (asking->next < end && room)
	{
		room = ask_for_part(asking, &asking->parts[down ? asking->n - 1 - asking->next :
												   asking->next]);
		asking->next += room;
	}
	for (int i = 0; i < lengthof(asking->windows) && (!room || asking->next == asking->n); i++)
		queue_open(asking, &asking->windows[i]);

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
ask_for(KvWindowReader *reader, const KvStoreKey *store, const KvWantedPart *parts, int n,
		bool forced, bool *held)
{
	KvAsking	asking = {.reader = reader, .store = store, .parts = parts, .n = n,
	.windows = {-1, -1}, .forced = forced, .now = kv_clock()};
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
	const KvWantedPart *parts;
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
		if (ask_for(reader, what->store, what->parts, what->n, false, &held))
			break;
	}
	if (held)
		(void) ask_for(reader, what->store, what->parts, what->n, true, &held);
	reader->held = last;
	entry->lacks_room = false;
	return true;
}

void
kv_block_window_look(KvWindowReader *reader, uint64 position, uint64 until, bool down)
{
	KvWindowScan *entry = reader->entry;

	reader->with_parts = false;
	if (entry == NULL)
		return;
	LWLockAcquire(&kv_window_cache->lock, LW_EXCLUSIVE);
	entry->at = position;
	entry->until = until;
	entry->down = down;
	LWLockRelease(&kv_window_cache->lock);
}

bool
kv_block_window_want(KvWindowReader *reader, const KvStoreKey *store, const KvWantedPart *parts,
					 int n, bool now)
{
	KvNow		what = {store, parts, n};
	bool		room;
	bool		held;

	/* the windows of parts are noted as needed, and there are few of them */
	if (n == 0 ||
		(reader->together == 0 && kv_window_cache->nwith_parts == 0 && have_all(reader, parts, n)))
		return true;
	room = ask_for(reader, store, parts, n, false, &held);
	if (now && !room && held)
		(void) kv_reader_wait(reader, sleep_for_room, &what);
	return room;
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
	int			n;

	if (reader->entry == NULL)
		return;
	reader->entry->progress = kv_clock();
	if (reader->nmet == 0)
	{
		/* its blocks are elsewhere, so others need not keep windows for it */
		reader->entry->position = 0;
		return;
	}
	n = Min(reader->nmet, KV_READER_MET);
	qsort(reader->met, n, sizeof(uint64), compare_stamps);
	middle = reader->met[n / 2];
	reader->entry->position = middle > around ? middle - around : 1;
	reader->entry->shares = reader->nothers * KV_BLOCK_WINDOW_SHARE >= reader->nmet;
	reader->nmet = reader->nothers = 0;
}
