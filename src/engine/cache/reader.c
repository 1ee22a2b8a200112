/*
 * reader.c
 *		Takes bytes of value files out of the windows of the range cache, and waits for windows that
 *		are being loaded.
 *
 * A scan sleeps until the piece that it needs is published.  In three cases it reads directly for
 * the rest of the span.  The first is that a read has failed, or no worker runs.  The second is
 * that nothing was loaded for a twentieth of kvfdw.scan_share_wait although the scan is not held
 * back: others need all windows.  That time is shorter if the scan's patience (scans.c) ends
 * before.  The third is that values have moved and the scan wants them at their old addresses.  No
 * scan spins: a load takes hundreds of microseconds.
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
#include "engine/io/io.h"

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
			*seen_at(reader, kv_windows[reader->few[i]].key.piece) = reader->few[i];
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
		 kv_window_cache->nfree + kv_window_cache->nblock_windows < kv_window_cache->nwindows);
}

/* ---- taking values ---- */

typedef enum KvTake
{
	KV_TAKEN,
	KV_COMING,					/* a worker is about to load the piece */
	KV_ABSENT,	/* no worker is, or the piece was loaded before the value was written */
	KV_UNREADABLE	/* a block of it could not be read; loading it again does not help */
} KvTake;

static bool
same_piece(const KvPieceKey *a, const KvPieceKey *b)
{
	return memcmp(a, b, sizeof(*a)) == 0;
}

static void
note_taken(const KvWindowReader *reader, uint32 bytes, uint64 wanted_by, bool waited)
{
	if (reader->entry != NULL && wanted_by == reader->id)
	{
		reader->stats->windows_loaded++;
		reader->stats->device_reads++;
		reader->stats->device_bytes += bytes;
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
	for (uint32 block = from / KV_BLOCK; bad != 0 && block <= (from + len - 1) / KV_BLOCK; block++)
	{
		if (bad & (UINT64CONST(1) << block))
			return true;
	}
	return false;
}

/* Copies a part of one piece, if it is in a window. */
static KvTake
take_part(KvWindowReader *reader, uint64 piece, uint32 from, uint32 len, char *into, bool waited)
{
	KvPieceKey	key = {reader->cache_id, piece};
	int		   *seen = seen_at(reader, piece);
	int			i = *seen;

	for (int tries = 0; tries < 4; tries++)
	{
		KvWindow   *window;
		uint64		sequence;
		uint64		wanted_by;
		uint64		bad;
		uint32		window_len;
		bool		known = i >= 0; /* from an earlier value */

		if (!known)
			i = kv_window_find(&key);
		if (i < 0)
			return KV_ABSENT;
		window = &kv_windows[i];
		sequence = pg_atomic_read_u64(&window->sequence);
		if (sequence % 2 != 0 && !known)
			return KV_COMING;
		pg_read_barrier();
		if (sequence % 2 == 0 && same_piece(&window->key, &key))
		{
			window_len = window->len;
			wanted_by = window->wanted_by;
			bad = window->bad;
			if (from + len <= window_len)
				memcpy(into, kv_window_bytes(i) + from, len);
			pg_read_barrier();
			if (pg_atomic_read_u64(&window->sequence) == sequence)
			{
				if (has_bad(bad, from, len))
					return KV_UNREADABLE;
				if (from + len > window_len)
				{
					/* the file has grown since the piece was loaded */
					if (was_asked_for(reader, piece * KV_WINDOW_SIZE + from, len))
						kv_piece_lose(&key);
					return KV_ABSENT;
				}
				*seen = i;
				if (!known)
					note_taken(reader, window_len, wanted_by, waited);
				return KV_TAKEN;
			}
		}
		i = -1;
	}
	return KV_ABSENT;
}

/*
 * Has loading the span failed, or does no worker run?  *pieces: the number of its pieces in windows
 * or being loaded; *coming: some are being loaded.
 */
static bool
loading_failed(const KvSpanKey *key, uint32 *pieces, bool *coming)
{
	KvSpan	   *span;
	bool		failed;

	LWLockAcquire(&kv_window_cache->lock, LW_SHARED);
	span = kv_span_find(key);
	*pieces = span != NULL ? span->nvalid + span->nloading : 0;
	*coming = span != NULL && span->nloading > 0;
	failed = !kv_windows_are_loaded() ||
		(span != NULL && kv_span_failed(span, kv_clock()));
	LWLockRelease(&kv_window_cache->lock);
	return failed;
}

/* Sleeps until the piece is loaded; false: the scan should read directly. */
static bool
sleep_until_there(KvWindowReader *reader, const KvPieceKey *key, const KvSpanKey *span)
{
	KvWindowScan *entry = reader->entry;
	TimestampTz last = kv_clock();
	TimestampTz stirred = last;
	int64		stuck = kv_window_wait_ms * INT64CONST(1000) / KV_STUCK_SHARE;
	uint32		pieces = 0;
	bool		coming;
	bool		there = false;

	KV_STOP_POINT("range_waiting");
	ConditionVariablePrepareToSleep(&entry->loaded);
	for (;;)
	{
		int			window = kv_window_find(key);
		uint32		pieces_before = pieces;
		TimestampTz now;

		there = window >= 0 &&
			pg_atomic_read_u64(&kv_windows[window].sequence) % 2 == 0;
		if (there || loading_failed(span, &pieces, &coming))
			break;
		if (window < 0)
		{
			if (!kv_span_miss(span, key->piece, entry->wants[0].extents.found_at))
				break;
			kv_window_wake_workers();
		}
		(void) ConditionVariableTimedSleep(&entry->loaded, KV_RANGE_NAP_MS, KV_WAIT_RANGE);

		now = kv_clock();
		if (!coming)
		{
			reader->spent += now - last;
			entry->patience -= now - last;
		}
		last = now;
		if (pieces != pieces_before || (entry->held && entry->patience > 0))
			stirred = now;
		else if (now - stirred > (coming ? stuck : Min(stuck, entry->patience)))
		{
			KV_STOP_POINT("range_stuck");
			break;
		}
	}
	ConditionVariableCancelSleep();
	return there;
}

/*
 * Waits for a piece; false: the scan should read directly.  On ERROR the scan leaves the registry:
 * in a subtransaction a cursor can survive that, and must not count as a scan that waits.
 */
static bool
await_piece(KvWindowReader *reader, uint64 piece)
{
	KvWindowScan *entry = reader->entry;
	KvPieceKey	key = {reader->cache_id, piece};
	KvSpanKey	span = {reader->cache_id, reader->shard,
		entry->segment != KV_WHOLE ? piece / KV_SEGMENT_PIECES : KV_WHOLE};
	TimestampTz start = kv_clock();
	bool		there;

	reader->stats->windows_waited++;
	kv_window_count(KV_RANGE_WAITS, 1);
	entry->wait_piece = piece;
	entry->waiting = true;
	PG_TRY();
	{
		there = sleep_until_there(reader, &key, &span);
	}
	PG_CATCH();
	{
		kv_reader_leave(reader);
		PG_RE_THROW();
	}
	PG_END_TRY();
	entry->waiting = false;
	entry->progress = kv_clock();
	reader->waited += entry->progress - start;
	return there;
}

/* Enters the span of a piece that is needed; false: the scan does not want that span. */
static bool
come_to(KvWindowReader *reader, uint64 piece)
{
	return reader->entry->segment == KV_WHOLE ||
		kv_reader_come_to(reader, piece / KV_SEGMENT_PIECES);
}

bool
kv_reader_take(KvWindowReader *reader, KvAddress address, uint32 len, char *into)
{
	uint32		done = 0;
	bool		waited = false;

	while (done < len)
	{
		uint64		piece = (address + done) / KV_WINDOW_SIZE;
		uint32		from = (address + done) % KV_WINDOW_SIZE;
		uint32		part = Min(len - done, KV_WINDOW_SIZE - from);
		KvTake		taken = take_part(reader, piece, from, part, into + done, waited);

		if (taken == KV_TAKEN)
		{
			done += part;
			waited = false;
			continue;
		}
		if (taken == KV_UNREADABLE || waited || !was_asked_for(reader, address + done, part) ||
			!come_to(reader, piece))
			return false;
		if (!await_piece(reader, piece))
		{
			kv_reader_leave(reader);
			return false;
		}
		waited = true;
	}
	return true;
}

void
kv_reader_lose(KvWindowReader *reader, KvAddress address, uint32 len)
{
	for (uint64 piece = address / KV_WINDOW_SIZE; piece <= (address + len - 1) / KV_WINDOW_SIZE;
		 piece++)
	{
		KvPieceKey	lost = {reader->cache_id, piece};

		kv_piece_lose(&lost);
		*seen_at(reader, piece) = -1;
	}
}
