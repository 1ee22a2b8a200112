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
#include "engine/maintenance.h"

KvWindowCache *kv_window_cache;
KvWindow   *kv_windows;
KvWindowScan *kv_window_scans;
HTAB	   *kv_span_hash;
HTAB	   *kv_window_hash;
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

	size = add_size(size, hash_estimate_size(kv_window_number() * KV_WINDOW_BLOCKS,
											 sizeof(KvWindowEntry)));
	return add_size(size, hash_estimate_size(span_count(), sizeof(KvSpan)));
}

static void
make_hashes(void)
{
	HASHCTL		info = {0};

	info.keysize = sizeof(KvWindowKey);
	info.entrysize = sizeof(KvWindowEntry);
	kv_window_hash = kv_shmem_hash("kvfdw range blocks", kv_window_number() * KV_WINDOW_BLOCKS,
								   &info, HASH_ELEM | HASH_BLOBS | HASH_FIXED_SIZE);
	info.keysize = sizeof(KvSpanKey);
	info.entrysize = sizeof(KvSpan);
	kv_span_hash = kv_shmem_hash("kvfdw range spans", span_count(), &info,
								 HASH_ELEM | HASH_BLOBS | HASH_FIXED_SIZE);
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
	kv_window_cache->nfree = kv_window_number();
	for (int i = 0; i < KV_RANGE_COUNTERS; i++)
		pg_atomic_init_u64(&kv_window_cache->counters[i], 0);
	for (int i = kv_window_number() - 1; i >= 0; i--)
	{
		pg_atomic_init_u64(&kv_windows[i].sequence, 0);
		dlist_push_head(&kv_window_cache->free, &kv_windows[i].node);
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

/* Forgets a span without windows; false: it has some. */
static bool
retire_span(KvSpan *span)
{
	if (!dlist_is_empty(&span->windows) || span->nloading > 0)
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
		(void) retire_span(span);
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

/* The piece that a window has. */
static uint64
piece_in(int window)
{
	return *kv_window_block(window, 0) / KV_WINDOW_BLOCKS;
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
	return span;
}

static KvWindowKey
piece_key(const KvSpan *span, uint64 piece)
{
	return kv_window_key(span->key.cache_id, KV_WINDOW_BLOCKS, piece * KV_WINDOW_SIZE);
}

static KvWindowEntry *
find_entry(const KvWindowKey *key)
{
	return hash_search(kv_window_hash, key, HASH_FIND, NULL);
}

static KvSpan *
span_of(const KvWindow *window)
{
	return kv_window_is_single(window) ? &kv_window_cache->blocks : kv_span_find(&window->span);
}

/* Removes the entry of a piece, a part or a single block that begins in this slot. */
static void
forget(int i, int slot)
{
	const KvWindow *window = &kv_windows[i];
	KvWindowKey key = {window->span.cache_id, window->unit, *kv_window_block(i, slot)};
	KvWindowEntry *entry = find_entry(&key);

	/* a block that was lost may be in another window by now */
	if (entry != NULL && entry->place.window == i && entry->place.slot == slot)
		(void) hash_search(kv_window_hash, &key, HASH_REMOVE, NULL);
}

/* From VALID or CLAIMED to FREE; its span lacks its piece from now on. */
static void
free_window(int i)
{
	KvWindow   *window = &kv_windows[i];
	KvSpan	   *span = span_of(window);

	if (window->state == KV_WINDOW_VALID)
	{
		/* readers that copy from it notice */
		pg_atomic_fetch_add_u64(&window->sequence, 1);
		dlist_delete(&window->node);
		span->nvalid--;
	}
	else
		span->nloading--;
	for (int slot = 0; slot < window->nblocks; slot += window->unit)
		forget(i, slot);
	if (!kv_window_is_single(window))
		span->next_piece = Min(span->next_piece, number_of(span, piece_in(i)));
	kv_window_cache->nwith_parts -= window->unit == KV_PART_BLOCKS;
	window->state = KV_WINDOW_FREE;
	window->span.cache_id = 0;
	window->nblocks = 0;
	dlist_push_head(&kv_window_cache->free, &window->node);
	kv_window_cache->nfree++;
	pg_atomic_fetch_add_u64(&window->sequence, 1);
}

/* Frees the window of a piece, or forgets a part or a single block, if it is loaded. */
static void
lose(const KvWindowKey *key)
{
	KvWindowEntry *entry = find_entry(key);

	if (entry == NULL || kv_windows[entry->place.window].state != KV_WINDOW_VALID)
		return;
	if (key->nblocks == KV_WINDOW_BLOCKS)
		free_window(entry->place.window);
	else
		(void) hash_search(kv_window_hash, key, HASH_REMOVE, NULL);
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
lose_what_moved(KvSpan *span)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, &span->windows)
	{
		int			i = kv_window_index(dlist_container(KvWindow, node, iter.cur));

		if (!has_piece(span, piece_in(i)))
			free_window(i);
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
		KvWindowKey key = piece_key(span, end / KV_WINDOW_SIZE);

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
		KvWindowKey key = piece_key(span, piece);

		if (find_entry(&key) == NULL)
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

static int
claim(const KvSpanKey *span, const KvStoreKey *store, int unit, uint64 wanted_by)
{
	KvWindow   *window = dlist_container(KvWindow, node,
										 dlist_pop_head_node(&kv_window_cache->free));

	kv_window_cache->nfree--;
	pg_atomic_fetch_add_u64(&window->sequence, 1);
	window->state = KV_WINDOW_CLAIMED;
	window->store = *store;
	window->span = *span;
	window->unit = unit;
	window->len = 0;
	window->bad = 0;
	window->wanted_by = wanted_by;
	window->stamp = window->until = 0;
	window->down = false;
	span_of(window)->nloading++;
	return kv_window_index(window);
}

/* Enters a piece, a part or a single block that is in no window. */
static void
enter(int i, const KvWindowKey *key)
{
	KvWindow   *window = &kv_windows[i];
	KvWindowEntry *entry = hash_search(kv_window_hash, key, HASH_ENTER, NULL);

	entry->place = (KvPlace) {i, window->nblocks};
	for (int n = 0; n < key->nblocks; n++)
		*kv_window_block(i, window->nblocks++) = key->block + n;
}

int
kv_window_claim_piece(KvSpan *span, const KvStoreKey *store, uint64 wanted_by)
{
	int			i = claim(&span->key, store, KV_WINDOW_BLOCKS, wanted_by);
	uint64		piece = 0;
	KvAddress	end = 0;
	KvWindowKey key;

	(void) nth_piece(span, span->next_piece++, &piece, &end);
	key = piece_key(span, piece);
	enter(i, &key);
	kv_windows[i].len = end - piece * KV_WINDOW_SIZE;
	return i;
}

int
kv_window_claim_blocks(uint32 cache_id, const KvStoreKey *store, int unit, uint64 wanted_by)
{
	KvSpanKey	single = {cache_id, 0, KV_SINGLE};
	int			i = claim(&single, store, unit, wanted_by);

	kv_windows[i].stamp = ++kv_window_cache->last_stamp;
	kv_window_cache->nwith_parts += unit == KV_PART_BLOCKS;
	return i;
}

void
kv_window_add(int i, uint64 block)
{
	KvWindow   *window = &kv_windows[i];
	KvWindowKey key = {window->span.cache_id, window->unit, block};

	enter(i, &key);
	window->len += window->unit * KV_BLOCK;
}

void
kv_window_renew(int i)
{
	if (kv_windows[i].state == KV_WINDOW_VALID)
		dlist_move_head(&kv_window_cache->blocks.windows, &kv_windows[i].node);
}

void
kv_window_queue(int i)
{
	kv_windows[i].state = KV_WINDOW_QUEUED;
	dlist_push_tail(&kv_window_cache->queue, &kv_windows[i].node);
	kv_window_cache->nqueued++;
}

int
kv_window_next(uint32 cache_id)
{
	KvWindow   *window;

	if (kv_window_cache->nqueued == 0)
		return -1;
	window = dlist_head_element(KvWindow, node, &kv_window_cache->queue);
	if (cache_id != 0 && window->span.cache_id != cache_id)
		return -1;
	dlist_delete(&window->node);
	kv_window_cache->nqueued--;
	window->state = KV_WINDOW_CLAIMED;
	return kv_window_index(window);
}

void
kv_window_give_up(int i)
{
	span_of(&kv_windows[i])->failed = kv_clock();
	free_window(i);
}

bool
kv_window_publish(int i)
{
	KvWindow   *window = &kv_windows[i];
	KvSpan	   *span = span_of(window);
	uint32		nblocks = (window->len + KV_BLOCK - 1) / KV_BLOCK;

	if (window->bad == PG_UINT64_MAX >> (KV_WINDOW_BLOCKS - nblocks))
	{
		kv_window_give_up(i);
		return false;
	}
	for (int slot = 0; slot < nblocks && kv_window_is_single(window); slot += window->unit)
	{
		uint64		all = ((UINT64CONST(1) << window->unit) - 1) << slot;

		if ((window->bad & all) == all)
			forget(i, slot);
	}
	window->state = KV_WINDOW_VALID;
	dlist_push_head(&span->windows, &window->node);
	span->nvalid++;
	span->nloading--;
	span->failed = 0;
	pg_write_barrier();
	pg_atomic_fetch_add_u64(&window->sequence, 1);
	return true;
}

void
kv_window_evict(int i)
{
	free_window(i);
	kv_window_count(KV_RANGE_EVICTIONS, 1);
}

KvSpan *
kv_span_evict(KvSpan *span)
{
	kv_window_evict(kv_window_of(&span->windows, false));
	if (!dlist_is_empty(&span->windows))
		return span;
	(void) retire_span(span);
	return NULL;
}

bool
kv_window_find(const KvWindowKey *key, KvPlace *place)
{
	const KvWindowEntry *entry = find_entry(key);

	if (entry != NULL)
		*place = entry->place;
	return entry != NULL;
}

bool
kv_window_look(const KvWindowKey *key, KvPlace *place, bool *coming)
{
	bool		found;

	LWLockAcquire(&kv_window_cache->lock, LW_SHARED);
	found = kv_window_find(key, place);
	*coming = found && kv_windows[place->window].state != KV_WINDOW_VALID;
	LWLockRelease(&kv_window_cache->lock);
	return found;
}

void
kv_window_lose(const KvWindowKey *key)
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
