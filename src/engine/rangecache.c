/*
 * rangecache.c
 *		The windows of the range cache and their states; see rangecache.h.
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "storage/shmem.h"
#include "utils/builtins.h"

#include "engine/rangecache.h"

KvRange    *kv_range;
KvWindow   *kv_windows;
KvRangeScan *kv_range_scans;
HTAB	   *kv_span_hash;
HTAB	   *kv_piece_hash;

int			kv_range_cache_kb;

static char *bytes;

/* How many there are, or will be once shared memory is made. */
int
kv_range_windows(void)
{
	return kv_range_cache_kb / (KV_WINDOW_SIZE / 1024);
}

/* Scans that can be registered at a time; one more reads without windows. */
static int
scan_count(void)
{
	return MaxBackends * 2;
}

/* A span has a window, or is one of those that the workers are about to fill. */
static int
span_count(void)
{
	return kv_range_windows() + KV_MAX_PREFETCH_WORKERS;
}

static Size
control_size(void)
{
	Size		size = MAXALIGN(sizeof(KvRange));

	size = add_size(size, MAXALIGN(mul_size(kv_range_windows(), sizeof(KvWindow))));
	return add_size(size, mul_size(scan_count(), sizeof(KvRangeScan)));
}

static Size
bytes_size(void)
{
	return add_size(mul_size(kv_range_windows(), KV_WINDOW_SIZE), KV_BLOCK);
}

Size
kv_range_shmem_size(void)
{
	Size		size = add_size(control_size(), bytes_size());

	size = add_size(size, hash_estimate_size(kv_range_windows(), sizeof(KvPiece)));
	return add_size(size, hash_estimate_size(span_count(), sizeof(KvSpan)));
}

static void
make_hashes(void)
{
	HASHCTL		info = {0};

	info.keysize = sizeof(KvPieceKey);
	info.entrysize = sizeof(KvPiece);
	kv_piece_hash = ShmemInitHash("kvfdw range pieces", kv_range_windows(), kv_range_windows(), &info,
								  HASH_ELEM | HASH_BLOBS | HASH_FIXED_SIZE);
	info.keysize = sizeof(KvSpanKey);
	info.entrysize = sizeof(KvSpan);
	kv_span_hash = ShmemInitHash("kvfdw range spans", span_count(), span_count(), &info,
								 HASH_ELEM | HASH_BLOBS | HASH_FIXED_SIZE);
}

/* The window's sequence is odd, or nobody has seen it yet. */
static void
push_free(int window)
{
	memset(&kv_windows[window].key, 0, sizeof(KvPieceKey));
	kv_windows[window].next = kv_range->free_windows;
	kv_range->free_windows = window;
	kv_range->nfree++;
}

/* In the shmem startup hook. */
void
kv_range_startup(void)
{
	bool		found;

	if (kv_range_windows() == 0)
		return;
	bytes = ShmemInitStruct("kvfdw range cache", bytes_size(), &found);
	bytes = (char *) TYPEALIGN(KV_BLOCK, bytes);
	kv_range = ShmemInitStruct("kvfdw range control", control_size(), &found);
	kv_windows = (KvWindow *) ((char *) kv_range + MAXALIGN(sizeof(KvRange)));
	kv_range_scans = (KvRangeScan *)
		((char *) kv_windows + MAXALIGN(kv_range_windows() * sizeof(KvWindow)));
	make_hashes();
	if (found)
		return;

	memset(kv_range, 0, control_size());
	LWLockInitialize(&kv_range->lock, kv_shared->tranches[0]);
	kv_range->nwindows = kv_range_windows();
	kv_range->nscans = scan_count();
	kv_range->bytes_per_second = (uint64) 1024 * 1024 * 1024;
	kv_range->free_windows = -1;
	for (int i = 0; i < KV_RANGE_COUNTERS; i++)
		pg_atomic_init_u64(&kv_range->counters[i], 0);
	for (int i = kv_range_windows() - 1; i >= 0; i--)
	{
		pg_atomic_init_u64(&kv_windows[i].sequence, 0);
		push_free(i);
	}
	for (int i = 0; i < scan_count(); i++)
		ConditionVariableInit(&kv_range_scans[i].loaded);
}

/* In a process that reads into windows: have them where there can be huge pages. */
void
kv_windows_map(void)
{
	bytes = kv_huge_map(bytes, mul_size(kv_range_windows(), KV_WINDOW_SIZE));
}

char *
kv_window_bytes(int window)
{
	return bytes + (Size) window * KV_WINDOW_SIZE;
}

/* ---- spans ---- */

/* Forget a span of which nothing is left; false: something is. */
bool
kv_span_retire(KvSpan *span)
{
	if (span->windows >= 0 || span->nloading > 0)
		return false;
	(void) hash_search(kv_span_hash, &span->key, HASH_REMOVE, NULL);
	return true;
}

/* Those of which nothing could be loaded are kept until now. */
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

/* Has a read of it failed so lately that it is not worth another try? */
bool
kv_span_failed(const KvSpan *span, TimestampTz now)
{
	return span->failed != 0 && now - span->failed < (int64) kv_range_wait_ms * 1000;
}

static uint32
first_piece(const KvSpan *span)
{
	return span->key.segment == KV_WHOLE ? 0 : span->key.segment * KV_SEGMENT_PIECES;
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
	span->next_piece = first_piece(span);
	return span;
}

static KvPieceKey
piece_key(const KvSpan *span, uint32 piece)
{
	KvPieceKey	key = {span->key.cache_id, span->key.shard, piece};

	return key;
}

/* Nobody finds the window any more; its span lacks the piece. */
static void
forget_piece(const KvWindow *window, KvSpan *span)
{
	(void) hash_search(kv_piece_hash, &window->key, HASH_REMOVE, NULL);
	span->next_piece = Min(span->next_piece, window->key.piece);
}

/*
 * Take a VALID window off its span.  Its sequence is odd then: readers that copy from
 * it find it changed.
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

/* Free the window of a piece, if it is VALID. */
static void
lose(const KvPieceKey *key)
{
	KvPiece    *piece = hash_search(kv_piece_hash, key, HASH_FIND, NULL);
	int			i = piece != NULL ? piece->window : -1;

	if (i < 0 || pg_atomic_read_u64(&kv_windows[i].sequence) % 2 != 0)
		return;
	take_off(i);
	push_free(i);
	pg_atomic_fetch_add_u64(&kv_windows[i].sequence, 1);
}

/*
 * Is a piece of the span, up to end, in no window and on its way into none?  If the
 * file has grown since its last piece was loaded, that one is loaded again.
 */
bool
kv_span_lacks(KvSpan *span, uint64 end)
{
	uint32		npieces;

	if (end > span->end)
	{
		uint32		last = Max(span->end / KV_WINDOW_SIZE, first_piece(span));
		KvPieceKey	key = piece_key(span, last);

		lose(&key);
		span->next_piece = Min(span->next_piece, last);
		span->end = end;
	}
	npieces = (end + KV_WINDOW_SIZE - 1) / KV_WINDOW_SIZE;
	while (span->next_piece < npieces)
	{
		KvPieceKey	key = piece_key(span, span->next_piece);

		if (hash_search(kv_piece_hash, &key, HASH_FIND, NULL) == NULL)
			return true;
		span->next_piece++;
	}
	return false;
}

/* A piece of the span is in no window, whatever the span believes. */
void
kv_span_miss(const KvSpanKey *key, uint32 piece)
{
	KvSpan	   *span;

	LWLockAcquire(&kv_range->lock, LW_EXCLUSIVE);
	span = kv_span_find(key);
	if (span != NULL)
		span->next_piece = Min(span->next_piece, piece);
	LWLockRelease(&kv_range->lock);
}

/* ---- windows ---- */

/*
 * Claim a window for the span's next piece that is in none: a free one, or else
 * one of victim's, if there is a victim.
 */
bool
kv_window_claim(KvSpan *span, KvSpan *victim, uint64 wanted_by, int *claimed)
{
	KvWindow   *window;
	KvPiece    *piece;
	bool		found;

	if (kv_range->free_windows >= 0)
	{
		*claimed = kv_range->free_windows;
		kv_range->free_windows = kv_windows[*claimed].next;
		kv_range->nfree--;
		pg_atomic_fetch_add_u64(&kv_windows[*claimed].sequence, 1);
	}
	else if (victim != NULL)
	{
		*claimed = victim->windows;
		take_off(*claimed);
		kv_range_count(KV_RANGE_EVICTIONS, 1);
	}
	else
		return false;

	window = &kv_windows[*claimed];
	window->key = piece_key(span, span->next_piece);
	window->span = span->key;
	window->len = Min(KV_WINDOW_SIZE, span->end - (uint64) span->next_piece * KV_WINDOW_SIZE);
	window->wanted_by = wanted_by;
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

/* The claimed window could not be filled. */
void
kv_window_give_up(int i)
{
	KvWindow   *window = &kv_windows[i];
	KvSpan	   *span = span_of(window);

	forget_piece(window, span);
	span->nloading--;
	span->failed = GetCurrentTimestamp();
	push_free(i);
	pg_atomic_fetch_add_u64(&window->sequence, 1);
}

/* The window that has or will have a piece; -1: none. */
int
kv_window_find(const KvPieceKey *key)
{
	KvPiece    *piece;
	int			window = -1;

	LWLockAcquire(&kv_range->lock, LW_SHARED);
	piece = hash_search(kv_piece_hash, key, HASH_FIND, NULL);
	if (piece != NULL)
		window = piece->window;
	LWLockRelease(&kv_range->lock);
	return window;
}

/* What is in the window of a piece is not what is in the file now. */
void
kv_piece_lose(const KvPieceKey *key)
{
	LWLockAcquire(&kv_range->lock, LW_EXCLUSIVE);
	lose(key);
	LWLockRelease(&kv_range->lock);
}

#ifdef KVFDW_FAULTS

/* ---- for tests ---- */

PG_FUNCTION_INFO_V1(kvfdw_range_problem);
PGDLLEXPORT Datum kvfdw_range_problem(PG_FUNCTION_ARGS);

static const char *
find_problem(void)
{
	HASH_SEQ_STATUS status;
	KvSpan	   *span;
	KvPiece    *piece;
	int		   *lists = palloc0(kv_range->nwindows * sizeof(int));	/* that each window is in */
	uint64		nloading = 0;
	int			n = 0;

	for (int i = kv_range->free_windows; i >= 0 && n <= kv_range->nwindows; i = kv_windows[i].next)
	{
		lists[i]++;
		n++;
	}
	if (n != kv_range->nfree)
		return psprintf("%d windows are free, %d in the list", kv_range->nfree, n);
	hash_seq_init(&status, kv_span_hash);
	while ((span = hash_seq_search(&status)) != NULL)
	{
		n = 0;
		for (int i = span->windows; i >= 0 && n <= kv_range->nwindows; i = kv_windows[i].next)
		{
			lists[i]++;
			n++;
			if (memcmp(&kv_windows[i].span, &span->key, sizeof(span->key)) == 0)
				continue;
			hash_seq_term(&status);
			return psprintf("window %d is in another span's list", i);
		}
		if (n != span->nvalid)
		{
			hash_seq_term(&status);
			return psprintf("span %u.%u.%u has %u windows, %d in its list", span->key.cache_id,
							span->key.shard, span->key.segment, span->nvalid, n);
		}
		nloading += span->nloading;
	}
	hash_seq_init(&status, kv_piece_hash);
	while ((piece = hash_seq_search(&status)) != NULL)
	{
		const KvWindow *window = &kv_windows[piece->window];

		if (memcmp(&window->key, &piece->key, sizeof(piece->key)) == 0)
			continue;
		hash_seq_term(&status);
		return psprintf("piece %u.%u.%u is not in its window", piece->key.cache_id,
						piece->key.shard, piece->key.piece);
	}
	for (int i = 0; i < kv_range->nwindows; i++)
	{
		bool		loading = pg_atomic_read_u64(&kv_windows[i].sequence) % 2 != 0;

		if (lists[i] + loading != 1)
			return psprintf("window %d is in %d lists%s", i, lists[i], loading ? " and loading" : "");
		nloading -= loading;
	}
	return nloading == 0 ? NULL : "spans load other windows";
}

/* What is wrong with the range cache; NULL: nothing. */
Datum
kvfdw_range_problem(PG_FUNCTION_ARGS)
{
	const char *problem;

	if (kv_range == NULL)
		PG_RETURN_NULL();
	LWLockAcquire(&kv_range->lock, LW_SHARED);
	problem = find_problem();
	LWLockRelease(&kv_range->lock);
	if (problem == NULL)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(problem));
}

#endif

/* ---- statistics ---- */

void
kv_stat_range(KvRangeStats *stats)
{
	memset(stats, 0, sizeof(*stats));
	if (kv_range == NULL)
		return;
	LWLockAcquire(&kv_range->lock, LW_SHARED);
	stats->windows = kv_range->nwindows;
	stats->used = kv_range->nwindows - kv_range->nfree;
	for (int i = 0; i < kv_range->scans_used; i++)
		stats->scans += kv_range_scans[i].id != 0;
	LWLockRelease(&kv_range->lock);
	stats->window_size = KV_WINDOW_SIZE;
	stats->hits = pg_atomic_read_u64(&kv_range->counters[KV_RANGE_HITS]);
	stats->loads = pg_atomic_read_u64(&kv_range->counters[KV_RANGE_LOADS]);
	stats->shared = pg_atomic_read_u64(&kv_range->counters[KV_RANGE_SHARED]);
	stats->waits = pg_atomic_read_u64(&kv_range->counters[KV_RANGE_WAITS]);
	stats->reads = pg_atomic_read_u64(&kv_range->counters[KV_RANGE_READS]);
	stats->read_bytes = pg_atomic_read_u64(&kv_range->counters[KV_RANGE_READ_BYTES]);
	stats->evictions = pg_atomic_read_u64(&kv_range->counters[KV_RANGE_EVICTIONS]);
}

void
kv_range_stats_reset(void)
{
	for (int i = 0; kv_range != NULL && i < KV_RANGE_COUNTERS; i++)
		pg_atomic_write_u64(&kv_range->counters[i], 0);
}
