/*
 * reader.c
 *		Takes bytes of value files out of the windows of the range cache, and waits for windows that
 *		are being loaded.
 *
 * A scan sleeps until the piece or block that it needs is published.  In three cases it reads
 * directly for the rest of the span or, with single blocks, until some are loaded again.  The first
 * is that a read of its span has failed, or no worker runs.  The second is that nothing was loaded
 * for a twentieth of kvfdw.scan_share_wait although the scan is not held back: others need all
 * windows.  That time is shorter if the scan's patience (scans.c) ends before.  The third is that
 * values have moved and the scan wants them at their old addresses.  No scan spins: a load takes
 * hundreds of microseconds.
 *
 * Locks: copying takes none; see cache.h.
 */
#include "postgres.h"

#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "engine/base/types.h"
#include "engine/base/wait.h"
#include "engine/cache/window.h"
#include "engine/io/fault.h"

#define KV_RANGE_NAP_MS			10
#define KV_MAX_SEEN				65536

/* ---- the known pieces of the shard ---- */

static void
forget_pieces(KvWindowReader *reader)
{
	for (int i = 0; i < reader->nseen; i++)
		reader->seen[i] = -1;
}

/* The entry for a piece. */
static int *
seen_at(const KvWindowReader *reader, uint64 piece)
{
	uint64		before = 0;

	for (int i = 0; i < reader->whole.n; i++)
	{
		const KvExtent *extent = &reader->whole.at[i];
		uint64		first = extent->begin / KV_WINDOW_SIZE;
		uint64		end = (extent->end + KV_WINDOW_SIZE - 1) / KV_WINDOW_SIZE;

		if (piece >= first && piece < end)
			return &reader->seen[(before + piece - first) % reader->nseen];
		before += end - first;
	}
	return &reader->seen[piece % reader->nseen];
}

void
kv_reader_begin(KvWindowReader *reader, uint32 cache_id, uint32 shard)
{
	if (reader->seen != NULL && reader->seen != reader->few)
		pfree(reader->seen);
	reader->seen = reader->few;
	reader->nseen = lengthof(reader->few);
	forget_pieces(reader);
	reader->cache_id = cache_id;
	reader->shard = shard;
	reader->whole.n = 0;
	reader->windows = reader->wants_blocks = false;
}

void
kv_reader_remember(KvWindowReader *reader, const KvExtents *extents, bool whole)
{
	if (reader->seen != reader->few)
		return;
	kv_reader_make_context(reader);
	if (whole)
		reader->whole = *extents;
	reader->nseen = Min(KV_MAX_SEEN,
						kv_extents_size(extents) / KV_WINDOW_SIZE + 2 * KV_MAX_EXTENTS);
	reader->seen = MemoryContextAlloc(reader->context, reader->nseen * sizeof(int));
	forget_pieces(reader);
	for (int i = 0; i < lengthof(reader->few); i++)
	{
		/* a window that has another piece by now is recognized later */
		if (reader->few[i] >= 0)
			*seen_at(reader, *kv_window_block(reader->few[i], 0) / KV_WINDOW_BLOCKS) =
				reader->few[i];
	}
}

void
kv_reader_progress(KvWindowReader *reader)
{
	if (reader->entry != NULL)
		reader->entry->progress = kv_clock();
}

bool
kv_reader_has_windows(const KvWindowReader *reader)
{
	return reader->seen != NULL &&
		(reader->windows ||
		 kv_window_cache->nfree + kv_window_singles() < kv_window_cache->nwindows);
}

/* ---- taking values ---- */

typedef enum KvTake
{
	KV_TAKEN,
	KV_COMING,					/* a worker is about to load it */
	KV_ABSENT,					/* something else is there, or nothing */
	KV_SHORT,					/* it was loaded before the file grew */
	KV_UNREADABLE				/* a block could not be read; loading it again does not help */
} KvTake;

/* Properties of the window that bytes were copied from. */
typedef struct KvTaken
{
	uint32		len;
	uint64		wanted_by;
	uint64		stamp;
} KvTaken;

/*
 * Notes which window a block was taken from.  Counts the window if others asked for it: one with
 * parts when its first part is found, or one with single blocks by its stamp.
 */
static void
note_met(KvWindowReader *reader, const KvWindowKey *key, const KvPlace *place, bool known,
		 const KvTaken *taken)
{
	bool		others = taken->wanted_by != reader->id;

	if (reader->nmet < KV_READER_MET)
		reader->met[reader->nmet] = taken->stamp;
	reader->nmet++;
	reader->nothers += others;
	if (!others ||
		(key->nblocks > 1 ? known || place->slot > 0 : taken->stamp <= reader->counted))
		return;
	if (key->nblocks == 1)
		reader->counted = taken->stamp;
	reader->stats->windows_hit++;
	kv_window_count(KV_RANGE_HITS, 1);
}

/* Counts a piece, the first time that something is taken from it. */
static void
note_piece(const KvWindowReader *reader, const KvTaken *taken, bool waited)
{
	if (reader->entry != NULL && taken->wanted_by == reader->id)
	{
		reader->stats->windows_loaded++;
		reader->stats->device_reads++;
		reader->stats->device_bytes += taken->len;
		kv_window_count(KV_RANGE_LOADS, 1);
	}
	else if (waited)
	{
		reader->stats->windows_shared++;
		kv_window_count(KV_RANGE_SHARED, 1);
	}
	else
	{
		reader->stats->windows_hit++;
		kv_window_count(KV_RANGE_HITS, 1);
	}
}

/* Were workers asked for these bytes?  Then they may be about to load them. */
static bool
was_asked_for(const KvWindowReader *reader, KvAddress address, uint32 len)
{
	const KvWindowScan *entry = reader->entry;

	if (!reader->windows)
		return false;
	for (int i = 0; i < entry->nwants && entry->wants[i].shard == reader->shard; i++)
	{
		const KvExtents *extents = &entry->wants[i].extents;

		for (int n = 0; n < extents->n; n++)
		{
			if (address >= extents->at[n].begin && address + len <= extents->at[n].end)
				return true;
		}
	}
	return false;
}

/* Does a part of a window have one of the bad blocks? */
static bool
has_bad(uint64 bad, uint32 from, uint32 len)
{
	for (uint32 slot = from / KV_BLOCK; bad != 0 && slot <= (from + len - 1) / KV_BLOCK; slot++)
	{
		if (bad & (UINT64CONST(1) << slot))
			return true;
	}
	return false;
}

/*
 * Copies a part of a piece or a block from where it may be.  It may be interrupted anywhere, and
 * the window may change in the meantime, which its sequence shows.
 */
static KvTake
copy_part(KvPlace place, const KvWindowKey *key, uint32 from, uint32 len, char *into,
		  KvTaken *taken)
{
	KvWindow   *window = &kv_windows[place.window];
	uint64		sequence = pg_atomic_read_u64(&window->sequence);
	uint64		bad;

	if (sequence % 2 != 0)
		return KV_COMING;
	pg_read_barrier();
	if (window->span.cache_id != key->cache_id || place.slot >= window->nblocks ||
		window->unit != key->nblocks ||
		*kv_window_block(place.window, place.slot) != key->block)
		return KV_ABSENT;
	*taken = (KvTaken) {window->len, window->wanted_by, window->stamp};
	bad = window->bad;
	from += place.slot * KV_BLOCK;
	if (from + len <= taken->len)
		memcpy(into, kv_window_bytes(place.window) + from, len);
	pg_read_barrier();
	if (pg_atomic_read_u64(&window->sequence) != sequence)
		return KV_ABSENT;
	if (has_bad(bad, from, len))
		return KV_UNREADABLE;
	return from + len <= taken->len ? KV_TAKEN : KV_SHORT;
}

/*
 * Copies a part of a piece or a single block, if it is in a window.  place: where it may be; gets
 * where it was, or window -1.
 */
static KvTake
take_part(KvWindowReader *reader, const KvWindowKey *key, KvPlace *place, uint32 from, uint32 len,
		  char *into, bool waited)
{
	KvTaken		taken;
	KvTake		take;

	for (int tries = 0; tries < 4; tries++)
	{
		bool		known = place->window >= 0;
		bool		coming;

		if (!known && !kv_window_look(key, place, &coming))
			return KV_ABSENT;
		take = copy_part(*place, key, from, len, into, &taken);
		if (take == KV_TAKEN && key->nblocks < KV_WINDOW_BLOCKS)
			note_met(reader, key, place, known, &taken);
		else if (take == KV_TAKEN && !known)
			note_piece(reader, &taken, waited);
		else if (take == KV_SHORT &&
				 was_asked_for(reader, key->block * KV_BLOCK + from, len))
			kv_window_lose(key);
		if (take != KV_ABSENT && (take != KV_COMING || !known))
			return take;
		place->window = -1;
	}
	return KV_ABSENT;
}

/* What a scan waits for, and what it knows of it. */
typedef struct KvAwaited
{
	KvWindowKey key;
	KvSpanKey	span;			/* of a piece */
	uint64		loads;			/* changes while something is loaded */
	bool		coming;			/* something is being loaded */
} KvAwaited;

/*
 * Looks how the loading of a span proceeds to which an absent or coming piece belongs.  False: it
 * has failed, or no worker runs.
 */
static bool
look_at_span(KvAwaited *what)
{
	KvSpan	   *span;
	bool		failed;

	LWLockAcquire(&kv_window_cache->lock, LW_SHARED);
	span = kv_span_find(&what->span);
	what->loads = span != NULL ? span->nvalid + span->nloading : 0;
	what->coming = span != NULL && span->nloading > 0;
	failed = span != NULL && kv_span_failed(span, kv_clock());
	LWLockRelease(&kv_window_cache->lock);
	return !failed && kv_windows_are_loaded();
}

/* Should the scan sleep on?  *hope: otherwise, it should look into windows, not read directly. */
static bool
is_on_its_way(KvWindowReader *reader, KvAwaited *what, bool *hope)
{
	KvPlace		place;
	bool		coming;
	bool		found = kv_window_look(&what->key, &place, &coming);

	*hope = found && !coming;
	if (*hope)
		return false;
	if (what->key.nblocks < KV_WINDOW_BLOCKS)
	{
		/* a block that is absent could not be read, and others of the store can */
		*hope = !found;
		what->loads = kv_window_cache->block_loads;
		what->coming = true;
		return found && kv_windows_are_loaded();
	}
	if (!look_at_span(what))
		return false;
	if (!found)
	{
		if (!kv_span_miss(&what->span, what->key.block / KV_WINDOW_BLOCKS,
						  reader->entry->wants[0].extents.found_at))
			return false;
		kv_window_wake_workers();
	}
	return true;
}

/* Sleeps until something is loaded; false: the scan should read directly. */
static bool
sleep_until_there(KvWindowReader *reader, void *arg)
{
	KvAwaited  *what = arg;
	KvWindowScan *entry = reader->entry;
	TimestampTz last = kv_clock();
	TimestampTz stirred = last;
	int64		stuck = kv_window_wait_ms * INT64CONST(1000) / KV_STUCK_SHARE;
	uint64		loads = 0;
	bool		hope;

	if (what->key.nblocks < KV_WINDOW_BLOCKS)
		KV_STOP_POINT("block_window_waiting");
	else
		KV_STOP_POINT("range_waiting");
	ConditionVariablePrepareToSleep(&entry->loaded);
	while (is_on_its_way(reader, what, &hope))
	{
		TimestampTz now;

		(void) ConditionVariableTimedSleep(&entry->loaded, KV_RANGE_NAP_MS, KV_WAIT_RANGE);

		now = kv_clock();
		if (!what->coming)
		{
			reader->spent += now - last;
			entry->patience -= now - last;
		}
		last = now;
		if (what->loads != loads || (entry->held && entry->patience > 0))
			stirred = now;
		else if (now - stirred > (what->coming ? stuck : Min(stuck, entry->patience)))
		{
			KV_STOP_POINT("range_stuck");
			break;
		}
		loads = what->loads;
	}
	ConditionVariableCancelSleep();
	return hope;
}

bool
kv_reader_wait(KvWindowReader *reader, bool (*sleep) (KvWindowReader *, void *), void *arg)
{
	KvWindowScan *entry = reader->entry;
	bool		result;

	entry->waiting = true;
	PG_TRY();
	{
		result = sleep(reader, arg);
	}
	PG_CATCH();
	{
		kv_reader_leave(reader);
		PG_RE_THROW();
	}
	PG_END_TRY();
	entry->waiting = false;
	entry->progress = kv_clock();
	return result;
}

/* Waits for a piece or a block; false: the scan has left, and should read directly. */
static bool
await(KvWindowReader *reader, const KvWindowKey *key)
{
	KvWindowScan *entry = reader->entry;
	KvAwaited	what = {*key, {reader->cache_id, reader->shard, entry->segment}};
	TimestampTz start = kv_clock();
	bool		there;

	if (entry->segment != KV_WHOLE)
		what.span.segment = key->block / KV_WINDOW_BLOCKS / KV_SEGMENT_PIECES;
	reader->stats->windows_waited++;
	kv_window_count(KV_RANGE_WAITS, 1);
	entry->awaited = *key;
	there = kv_reader_wait(reader, sleep_until_there, &what);
	reader->waited += entry->progress - start;
	if (!there && reader->wants_blocks)
	{
		/* until something is loaded again, and no more often than its patience allows */
		reader->stuck_at = what.loads + 1;
		reader->spent += kv_window_wait_ms * INT64CONST(1000) / KV_STUCK_SHARE;
	}
	if (!there)
		kv_reader_leave(reader);
	return there;
}

/* Enters the span of a piece that is needed; false: the scan does not want that span. */
static bool
come_to(KvWindowReader *reader, const KvWindowKey *key)
{
	return reader->entry->segment == KV_WHOLE ||
		kv_reader_come_to(reader, key->block / KV_WINDOW_BLOCKS / KV_SEGMENT_PIECES);
}

/* Is a part of a piece that could not be taken worth waiting for? */
static bool
may_come(const KvWindowReader *reader, KvTake take, KvAddress address, uint32 len)
{
	return take != KV_UNREADABLE && was_asked_for(reader, address, len);
}

/* ---- parts ---- */

#define KV_PART_PLACES	8192	/* of parts that a reader remembers; a power of 2 */

/* The two entries of a part. */
static int *
part_entries(KvWindowReader *reader, uint64 part)
{
	if (reader->parts == NULL)
	{
		reader->parts = MemoryContextAlloc(reader->context, KV_PART_PLACES * sizeof(int));
		memset(reader->parts, -1, KV_PART_PLACES * sizeof(int));
	}
	return &reader->parts[(part + part / KV_PART_PLACES * 5) * 2 % KV_PART_PLACES];
}

/*
 * Takes bytes out of a part, if it is in a window.  In most cases the reader knows where it found
 * the part before; a window that has another one by now is recognized.
 */
static KvTake
take_from_part(KvWindowReader *reader, const KvWindowKey *key, uint32 from, uint32 len, char *into)
{
	int		   *entries = part_entries(reader, key->block / KV_PART_BLOCKS);
	KvPlace		place = {-1, 0};
	KvTake		take;

	for (int i = 0; i < 2 && place.window < 0; i++)
	{
		KvPlace		known = {entries[i] / KV_WINDOW_BLOCKS, entries[i] % KV_WINDOW_BLOCKS};

		if (entries[i] >= 0 && *kv_window_block(known.window, known.slot) == key->block)
			place = known;
	}
	take = take_part(reader, key, &place, from, len, into, false);
	if (take == KV_TAKEN)
	{
		int			found = place.window * KV_WINDOW_BLOCKS + place.slot;

		if (found != entries[0] && found != entries[1])
		{
			entries[1] = entries[0];
			entries[0] = found;
		}
	}
	return take;
}

/*
 * Takes a value out of parts and single blocks.  Waits for those that are being loaded.
 */
static bool
take_blocks(KvWindowReader *reader, KvAddress address, uint32 len, char *into)
{
	KvPlace		place = {-1, 0};
	bool		waited = false;

	while (len > 0)
	{
		uint32		from = address % KV_PART_SIZE;
		uint32		part = Min(len, KV_PART_SIZE - from);
		KvWindowKey key = kv_window_key(reader->cache_id, KV_PART_BLOCKS, address);
		KvTake		take = kv_window_cache->nwith_parts == 0 ? KV_ABSENT :
			take_from_part(reader, &key, from, part, into);

		if (take == KV_ABSENT)
		{
			from = address % KV_BLOCK;
			part = Min(len, KV_BLOCK - from);
			key = kv_window_key(reader->cache_id, 1, address);
			take = take_part(reader, &key, &place, from, part, into, false);
			place.slot++;		/* where the next block is in most cases */
		}
		if (take == KV_TAKEN)
		{
			address += part;
			into += part;
			len -= part;
			waited = false;
			continue;
		}
		if (waited || take != KV_COMING || !await(reader, &key))
			return false;
		place.window = -1;
		waited = true;
	}
	return true;
}

/* Takes a value out of pieces. */
static bool
take_pieces(KvWindowReader *reader, KvAddress address, uint32 len, char *into)
{
	uint32		done = 0;
	bool		waited = false;

	while (done < len)
	{
		KvWindowKey key = kv_window_key(reader->cache_id, KV_WINDOW_BLOCKS, address + done);
		int		   *seen = seen_at(reader, key.block / KV_WINDOW_BLOCKS);
		uint32		from = (address + done) % KV_WINDOW_SIZE;
		uint32		part = Min(len - done, KV_WINDOW_SIZE - from);
		KvPlace		place = {*seen, 0};
		KvTake		take = take_part(reader, &key, &place, from, part, into + done, waited);

		if (take == KV_TAKEN)
		{
			*seen = place.window;
			done += part;
			waited = false;
			continue;
		}
		if (waited || !may_come(reader, take, address + done, part) || !come_to(reader, &key) ||
			!await(reader, &key))
			return false;
		waited = true;
	}
	return true;
}

bool
kv_reader_take(KvWindowReader *reader, KvAddress address, uint32 len, char *into)
{
	bool		taken;

	if (!reader->wants_blocks)
		return take_pieces(reader, address, len, into);
	if (len > KV_BLOCK_WINDOW_VALUE)
		return false;
	taken = take_blocks(reader, address, len, into);
	reader->nmissed += !taken;
	return taken;
}

void
kv_reader_view(const KvWindowReader *reader, KvAddress address, KvPieceView *view)
{
	uint64		piece = address / KV_WINDOW_SIZE;
	int			at = reader->wants_blocks ? -1 : *seen_at(reader, piece);

	view->bytes = NULL;
	if (at < 0)
		return;
	view->window = &kv_windows[at];
	view->sequence = pg_atomic_read_u64(&view->window->sequence);
	pg_read_barrier();
	if (view->sequence % 2 != 0 || view->window->span.cache_id != reader->cache_id ||
		kv_window_is_single(view->window) || view->window->bad != 0 ||
		*kv_window_block(at, 0) != piece * KV_WINDOW_BLOCKS)
		return;
	view->begin = piece * KV_WINDOW_SIZE;
	view->len = view->window->len;
	view->bytes = kv_window_bytes(at);
}

void
kv_reader_lose(KvWindowReader *reader, KvAddress address, uint32 len)
{
	static const int units[] = {1, KV_PART_BLOCKS};
	KvAddress	end = address + len;

	for (int i = 0; i < lengthof(units) && reader->wants_blocks; i++)
	{
		uint32		size = units[i] * KV_BLOCK;

		for (KvAddress at = address - address % size; at < end; at += size)
		{
			KvWindowKey key = kv_window_key(reader->cache_id, units[i], at);

			kv_window_lose(&key);
		}
	}
	for (KvAddress at = address - address % KV_WINDOW_SIZE; at < end && !reader->wants_blocks;
		 at += KV_WINDOW_SIZE)
	{
		KvWindowKey key = kv_window_key(reader->cache_id, KV_WINDOW_BLOCKS, at);

		kv_window_lose(&key);
		*seen_at(reader, at / KV_WINDOW_SIZE) = -1;
	}
}
