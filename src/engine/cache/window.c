/*
 * window.c
 *		The windows of the range cache and their states; see cache.h.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/shmem.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "clock.h"
#include "engine/base/shared.h"
#include "engine/base/types.h"
#include "engine/cache/window.h"
#include "engine/engine.h"

KvWindowCache    *kv_window_cache;
KvWindow   *kv_windows;
KvWindowScan *kv_window_scans;
HTAB	   *kv_span_hash;
HTAB	   *kv_piece_hash;
HTAB	   *kv_block_hash;
uint64	   *kv_window_blocks;

int			kv_window_cache_kb;

static char *bytes;

int
kv_window_number(void)
{
	return kv_window_cache_kb / (KV_WINDOW_SIZE / 1024);
}

/* Maximum number of registered scans; one more reads without windows. */
static int
scan_count(void)
{
	return MaxBackends * 2;
}

/* Maximum number of spans: with a window, or for which a worker claims its first one. */
static int
span_count(void)
{
	return kv_window_number() + KV_MAX_PREFETCH_WORKERS;
}

static Size
control_size(void)
{
	Size		size = MAXALIGN(sizeof(KvWindowCache));

	size = add_size(size, MAXALIGN(mul_size(kv_window_number(), sizeof(KvWindow))));
	size = add_size(size, mul_size(kv_window_number(), KV_WINDOW_BLOCKS * sizeof(uint64)));
	return add_size(size, mul_size(scan_count(), sizeof(KvWindowScan)));
}

static Size
bytes_size(void)
{
	return add_size(mul_size(kv_window_number(), KV_WINDOW_SIZE), KV_BLOCK);
}

Size
kv_window_memory(void)
{
	Size		size = add_size(control_size(), bytes_size());

	size = add_size(size, hash_estimate_size(kv_window_number(), sizeof(KvPiece)));
	size = add_size(size, hash_estimate_size(kv_window_number() * KV_WINDOW_BLOCKS,
											 sizeof(KvWindowBlock)));
	return add_size(size, hash_estimate_size(span_count(), sizeof(KvSpan)));
}

static void
make_hashes(void)
{
	HASHCTL		info = {0};

	info.keysize = sizeof(KvPieceKey);
	info.entrysize = sizeof(KvPiece);
	kv_piece_hash = kv_shmem_hash("kvfdw range pieces", kv_window_number(), &info,
								  HASH_ELEM | HASH_BLOBS | HASH_FIXED_SIZE);
	info.keysize = sizeof(KvBlockKey);
	info.entrysize = sizeof(KvWindowBlock);
	kv_block_hash = kv_shmem_hash("kvfdw range blocks", kv_window_number() * KV_WINDOW_BLOCKS,
								  &info, HASH_ELEM | HASH_BLOBS | HASH_FIXED_SIZE);
	info.keysize = sizeof(KvSpanKey);
	info.entrysize = sizeof(KvSpan);
	kv_span_hash = kv_shmem_hash("kvfdw range spans", span_count(), &info,
								 HASH_ELEM | HASH_BLOBS | HASH_FIXED_SIZE);
}

/* The window's sequence must be odd, unless no process has seen it yet. */
static void
push_free(int window)
{
	memset(&kv_windows[window].key, 0, sizeof(KvPieceKey));
	kv_windows[window].next = kv_window_cache->free_windows;
	kv_window_cache->free_windows = window;
	kv_window_cache->nfree++;
}

void
kv_window_attach(void)
{
	bool		found;

	if (kv_window_number() == 0)
		return;
	bytes = ShmemInitStruct("kvfdw range cache", bytes_size(), &found);
	bytes = (char *) TYPEALIGN(KV_BLOCK, bytes);
	kv_window_cache = ShmemInitStruct("kvfdw range control", control_size(), &found);
	kv_windows = (KvWindow *) ((char *) kv_window_cache + MAXALIGN(sizeof(KvWindowCache)));
	kv_window_blocks = (uint64 *)
		((char *) kv_windows + MAXALIGN(kv_window_number() * sizeof(KvWindow)));
	kv_window_scans = (KvWindowScan *) (kv_window_blocks + kv_window_number() * KV_WINDOW_BLOCKS);
	make_hashes();
	if (found)
		return;

	memset(kv_window_cache, 0, control_size());
	LWLockInitialize(&kv_window_cache->lock, kv_tranche_room);
	kv_window_cache->nwindows = kv_window_number();
	kv_window_cache->nscans = scan_count();
	kv_window_cache->bytes_per_second = (uint64) 1024 * 1024 * 1024;
	kv_window_cache->free_windows = -1;
	kv_window_cache->block_windows_first = kv_window_cache->block_windows_last = -1;
	kv_window_cache->queued_first = kv_window_cache->queued_last = -1;
	for (int i = 0; i < KV_RANGE_COUNTERS; i++)
		pg_atomic_init_u64(&kv_window_cache->counters[i], 0);
	for (int i = kv_window_number() - 1; i >= 0; i--)
	{
		pg_atomic_init_u64(&kv_windows[i].sequence, 0);
		push_free(i);
	}
	for (int i = 0; i < scan_count(); i++)
		ConditionVariableInit(&kv_window_scans[i].loaded);
}

void
kv_windows_map(void)
{
	bytes = kv_huge_map(bytes, mul_size(kv_window_number(), KV_WINDOW_SIZE));
}

char *
kv_window_bytes(int window)
{
	return bytes + (Size) window * KV_WINDOW_SIZE;
}

/* ---- spans ---- */

bool
kv_span_retire(KvSpan *span)
{
	if (span->windows >= 0 || span->nloading > 0)
		return false;
	(void) hash_search(kv_span_hash, &span->key, HASH_REMOVE, NULL);
	return true;
}

/*
 * Forgets spans without windows.  They are kept, as a note of failed loads, until capacity is
 * needed.
 */
static void
retire_empty_spans(void)
{
	HASH_SEQ_STATUS status;
	KvSpan	   *span;

	hash_seq_init(&status, kv_span_hash);
	while ((span = hash_seq_search(&status)) != NULL)
		(void) kv_span_retire(span);
}

KvSpan *
kv_span_find(const KvSpanKey *key)
{
	return hash_search(kv_span_hash, key, HASH_FIND, NULL);
}

bool
kv_span_failed(const KvSpan *span, TimestampTz now)
{
	return span->failed != 0 && now - span->failed < (int64) kv_window_wait_ms * 1000;
}

/* The number of pieces of which an extent has at least a part. */
static uint32
pieces_of(const KvExtent *extent)
{
	return (extent->end + KV_WINDOW_SIZE - 1) / KV_WINDOW_SIZE - extent->begin / KV_WINDOW_SIZE;
}

/* Gets the span's nth piece and the end of its written bytes; false: it has fewer pieces. */
static bool
nth_piece(const KvSpan *span, uint32 n, uint64 *piece, KvAddress *end)
{
	for (int i = 0; i < span->extents.n; i++)
	{
		const KvExtent *extent = &span->extents.at[i];
		uint32		pieces = pieces_of(extent);

		if (n < pieces)
		{
			*piece = extent->begin / KV_WINDOW_SIZE + n;
			*end = Min((*piece + 1) * KV_WINDOW_SIZE, extent->end);
			return true;
		}
		n -= pieces;
	}
	return false;
}

/* The index of a piece in its span; the number of its pieces if the span has lost the piece. */
static uint32
number_of(const KvSpan *span, uint64 piece)
{
	uint32		n = 0;

	for (int i = 0; i < span->extents.n; i++)
	{
		const KvExtent *extent = &span->extents.at[i];
		uint32		pieces = pieces_of(extent);
		uint64		first = extent->begin / KV_WINDOW_SIZE;

		if (piece >= first && piece < first + pieces)
			return n + (piece - first);
		n += pieces;
	}
	return n;
}

static bool
has_piece(const KvSpan *span, uint64 piece)
{
	uint64		same;
	KvAddress	end;

	return nth_piece(span, number_of(span, piece), &same, &end);
}

KvSpan *
kv_span_make(const KvSpanKey *key)
{
	bool		found;
	KvSpan	   *span = kv_span_find(key);

	if (span != NULL)
		return span;
	if (hash_get_num_entries(kv_span_hash) >= span_count())
		retire_empty_spans();
	span = hash_search(kv_span_hash, key, HASH_ENTER_NULL, &found);
	if (span == NULL)
		return NULL;
	memset((char *) span + sizeof(span->key), 0, sizeof(*span) - sizeof(span->key));
	span->windows = -1;
	return span;
}

static KvPieceKey
piece_key(const KvSpan *span, uint64 piece)
{
	KvPieceKey	key = {span->key.cache_id, piece};

	return key;
}

/* Removes a window's piece from the table; its span lacks the piece from now on. */
static void
forget_piece(const KvWindow *window, KvSpan *span)
{
	(void) hash_search(kv_piece_hash, &window->key, HASH_REMOVE, NULL);
	span->next_piece = Min(span->next_piece, number_of(span, window->key.piece));
}

/*
 * Takes a VALID window from its span and makes its sequence odd, which readers that copy from it
 * notice.
 */
static void
take_off(int i)
{
	KvWindow   *window = &kv_windows[i];
	KvSpan	   *span = kv_span_find(&window->span);

	pg_atomic_fetch_add_u64(&window->sequence, 1);
	forget_piece(window, span);
	if (window->previous >= 0)
		kv_windows[window->previous].next = window->next;
	else
		span->windows = window->next;
	if (window->next >= 0)
		kv_windows[window->next].previous = window->previous;
	span->nvalid--;
}

/* Frees the window of a piece, if it is VALID. */
static void
lose(const KvPieceKey *key)
{
	KvPiece    *piece = hash_search(kv_piece_hash, key, HASH_FIND, NULL);
	int			i = piece != NULL ? piece->window : -1;

	if (i < 0 || pg_atomic_read_u64(&kv_windows[i].sequence) % 2 != 0)
		return;
	take_off(i);
	kv_window_free(i);
}

static bool
has_end(const KvExtents *extents, KvAddress end)
{
	for (int i = 0; i < extents->n; i++)
	{
		if (extents->at[i].end == end)
			return true;
	}
	return false;
}

/* Frees the windows of pieces that the span no longer has. */
static void
lose_what_moved(const KvSpan *span)
{
	int			next;

	for (int i = span->windows; i >= 0; i = next)
	{
		KvPieceKey	key = kv_windows[i].key;

		next = kv_windows[i].next;
		if (!has_piece(span, key.piece))
			lose(&key);
	}
}

/*
 * Changes the extents of a span, because more is wanted or values have moved.  A window loaded at
 * the end of an old extent lacks the bytes after it.
 */
static void
ask_for(KvSpan *span, const KvExtents *wanted)
{
	for (int i = 0; i < span->extents.n; i++)
	{
		KvAddress	end = span->extents.at[i].end;
		KvPieceKey	key = piece_key(span, end / KV_WINDOW_SIZE);

		if (end % KV_WINDOW_SIZE != 0 && !has_end(wanted, end))
			lose(&key);
	}
	span->extents = *wanted;
	span->size = kv_extents_size(wanted);
	span->next_piece = 0;
	span->failed = 0;
	lose_what_moved(span);
}

static bool
same_extents(const KvExtents *a, const KvExtents *b)
{
	return a->n == b->n && memcmp(a->at, b->at, a->n * sizeof(KvExtent)) == 0;
}

bool
kv_span_lacks(KvSpan *span, const KvExtents *wanted)
{
	int32		later = wanted->found_at - span->extents.found_at;
	uint64		piece;
	KvAddress	end;

	if (later > 0 && same_extents(&span->extents, wanted))
		span->extents.found_at = wanted->found_at;
	else if (later > 0 || (later == 0 && kv_extents_size(wanted) > span->size))
		ask_for(span, wanted);
	while (nth_piece(span, span->next_piece, &piece, &end))
	{
		KvPieceKey	key = piece_key(span, piece);

		if (hash_search(kv_piece_hash, &key, HASH_FIND, NULL) == NULL)
			return true;
		span->next_piece++;
	}
	return false;
}

bool
kv_span_miss(const KvSpanKey *key, uint64 piece, uint32 found_at)
{
	LWLockMode	mode = LW_SHARED;
	bool		comes = true;
	bool		known;

	/* in most cases the span knows already that it lacks the piece */
	do
	{
		KvSpan	   *span;

		LWLockAcquire(&kv_window_cache->lock, mode);
		span = kv_span_find(key);
		known = span == NULL || span->next_piece <= number_of(span, piece);
		if (span != NULL)
			comes = (int32) (span->extents.found_at - found_at) <= 0 || has_piece(span, piece);
		if (!known && mode == LW_EXCLUSIVE)
		{
			span->next_piece = number_of(span, piece);
			known = true;
		}
		LWLockRelease(&kv_window_cache->lock);
		mode = LW_EXCLUSIVE;
	} while (!known);
	return comes;
}

/* ---- windows ---- */

int
kv_window_take(KvSpan *victim)
{
	int			i = kv_window_cache->free_windows;

	if (i >= 0)
	{
		kv_window_cache->free_windows = kv_windows[i].next;
		kv_window_cache->nfree--;
		pg_atomic_fetch_add_u64(&kv_windows[i].sequence, 1);
	}
	else if (victim != NULL)
	{
		i = victim->windows;
		take_off(i);
		kv_window_count(KV_RANGE_EVICTIONS, 1);
	}
	return i;
}

void
kv_window_free(int i)
{
	push_free(i);
	pg_atomic_fetch_add_u64(&kv_windows[i].sequence, 1);
}

bool
kv_window_claim(KvSpan *span, KvSpan *victim, uint64 wanted_by, int *claimed)
{
	KvWindow   *window;
	KvPiece    *piece;
	uint64		number;
	KvAddress	end;
	bool		found;

	if (!nth_piece(span, span->next_piece, &number, &end))
		return false;
	*claimed = kv_window_take(victim);
	if (*claimed < 0)
		return false;
	window = &kv_windows[*claimed];
	window->key = piece_key(span, number);
	window->span = span->key;
	window->len = end - number * KV_WINDOW_SIZE;
	window->wanted_by = wanted_by;
	window->bad = 0;
	piece = hash_search(kv_piece_hash, &window->key, HASH_ENTER, &found);
	Assert(!found);
	piece->window = *claimed;
	span->next_piece++;
	span->nloading++;
	return true;
}

static KvSpan *
span_of(const KvWindow *window)
{
	KvSpan	   *span = kv_span_find(&window->span);

	Assert(span != NULL && span->nloading > 0);
	return span;
}

void
kv_window_publish(int i, uint32 len)
{
	KvWindow   *window = &kv_windows[i];
	KvSpan	   *span = span_of(window);

	window->len = len;
	window->next = span->windows;
	window->previous = -1;
	if (window->next >= 0)
		kv_windows[window->next].previous = i;
	span->windows = i;
	span->nvalid++;
	span->nloading--;
	span->failed = 0;
	pg_write_barrier();
	pg_atomic_fetch_add_u64(&window->sequence, 1);
}

void
kv_window_give_up(int i)
{
	KvWindow   *window = &kv_windows[i];
	KvSpan	   *span = span_of(window);

	forget_piece(window, span);
	span->nloading--;
	span->failed = kv_clock();
	kv_window_free(i);
}

int
kv_window_find(const KvPieceKey *key)
{
	KvPiece    *piece;
	int			window = -1;

	LWLockAcquire(&kv_window_cache->lock, LW_SHARED);
	piece = hash_search(kv_piece_hash, key, HASH_FIND, NULL);
	if (piece != NULL)
		window = piece->window;
	LWLockRelease(&kv_window_cache->lock);
	return window;
}

void
kv_piece_lose(const KvPieceKey *key)
{
	LWLockAcquire(&kv_window_cache->lock, LW_EXCLUSIVE);
	lose(key);
	LWLockRelease(&kv_window_cache->lock);
}

/* ---- statistics ---- */

void
kv_stat_windows(KvWindowStats *stats)
{
	memset(stats, 0, sizeof(*stats));
	if (kv_window_cache == NULL)
		return;
	LWLockAcquire(&kv_window_cache->lock, LW_SHARED);
	stats->windows = kv_window_cache->nwindows;
	stats->used = kv_window_cache->nwindows - kv_window_cache->nfree;
	for (int i = 0; i < kv_window_cache->scans_used; i++)
		stats->scans += kv_window_scans[i].id != 0;
	LWLockRelease(&kv_window_cache->lock);
	stats->window_size = KV_WINDOW_SIZE;
	stats->hits = pg_atomic_read_u64(&kv_window_cache->counters[KV_RANGE_HITS]);
	stats->loads = pg_atomic_read_u64(&kv_window_cache->counters[KV_RANGE_LOADS]);
	stats->shared = pg_atomic_read_u64(&kv_window_cache->counters[KV_RANGE_SHARED]);
	stats->waits = pg_atomic_read_u64(&kv_window_cache->counters[KV_RANGE_WAITS]);
	stats->reads = pg_atomic_read_u64(&kv_window_cache->counters[KV_RANGE_READS]);
	stats->read_bytes = pg_atomic_read_u64(&kv_window_cache->counters[KV_RANGE_READ_BYTES]);
	stats->evictions = pg_atomic_read_u64(&kv_window_cache->counters[KV_RANGE_EVICTIONS]);
}

void
kv_window_stats_reset(void)
{
	for (int i = 0; kv_window_cache != NULL && i < KV_RANGE_COUNTERS; i++)
		pg_atomic_write_u64(&kv_window_cache->counters[i], 0);
}
