/*
 * source.c
 *		The table of caches, in the order in which they are asked; cache.h is the contract.
 *
 * A batch is taken out of one cache after the other, each of which is asked only for what is still
 * missing.  The two caches in memory are called directly, row by row: a row costs no call through
 * the table.
 */
#include "postgres.h"

#include "port/atomics.h"
#include "storage/shmem.h"
#include "utils/memutils.h"

#include "engine/base/types.h"
#include "engine/base/worker.h"
#include "engine/cache/internal.h"
#include "engine/cache/window.h"
#include "engine/maintenance.h"
#include "engine/rows.h"
#include "engine/shard/shard.h"
#include "engine/value/value.h"

static void register_prefetch(void);

/* Windows have a view of their own, kvfdw_stat_range_cache. */
static const KvCache range_cache = {
	.gucs = kv_prefetch_gucs, .memory = kv_window_memory, .attach = kv_window_attach,
	.workers = register_prefetch, .stats_reset = kv_window_stats_reset
};

static const KvCache *const caches[] = {
	&kv_recent_ring, &kv_value_cache, &range_cache, &kv_second_tier, &kv_page_pieces
};

/* In shared memory: why values that were read from the device were in no cache. */
typedef struct KvMissCounts
{
	pg_atomic_uint64 n[KV_ASKED][KV_MISSES];
} KvMissCounts;

static KvMissCounts *miss_counts;

/* ---- start ---- */

static void
register_prefetch(void)
{
	kv_worker_define(KV_WORKER_PREFETCH, "kvfdw prefetch", "kv_prefetch_main",
					 BgWorkerStart_ConsistentState,
					 kv_window_number() > 0 ? kv_prefetch_workers : 0);
}

void
kv_source_gucs(void)
{
	for (int i = 0; i < lengthof(caches); i++)
		caches[i]->gucs();
}

Size
kv_source_memory(void)
{
	Size		size = CACHELINEALIGN(sizeof(KvMissCounts));

	for (int i = 0; i < lengthof(caches); i++)
		size = add_size(size, CACHELINEALIGN(caches[i]->memory()));
	return size;
}

void
kv_source_attach(void)
{
	bool		found;

	miss_counts = ShmemInitStruct("kvfdw cache misses", sizeof(KvMissCounts), &found);
	for (int i = 0; i < KV_ASKED * KV_MISSES && !found; i++)
		pg_atomic_init_u64(&miss_counts->n[i / KV_MISSES][i % KV_MISSES], 0);
	for (int i = 0; i < lengthof(caches); i++)
		caches[i]->attach();
}

void
kv_source_workers(void)
{
	for (int i = 0; i < lengthof(caches); i++)
	{
		if (caches[i]->workers)
			caches[i]->workers();
	}
}

/* ---- why values were not found ---- */

/* A cache does not have a row's value: counts why, unless that was done before. */
static void
note_miss(const KvSource *source, KvBatchRow *row, KvAsked asked, KvMiss why)
{
	if (row->missed[asked] == KV_MISS_NONE)
		row->missed[asked] = why;
	source->stats->misses[asked][row->missed[asked]]++;
}

static void
note_recent_miss(const KvSource *source, KvBatchRow *row)
{
	note_miss(source, row, KV_ASKED_RECENT,
			  kv_recent_why(source->store->cache_id, KV_LOCATION_ADDRESS(row->version.location),
							row->version.len));
}

/* Notes for missing values why they are in no cache in memory.  Returns how many are missing. */
static int
note_near_misses(const KvSource *source, KvBatchRow *rows, int n)
{
	int			missing = 0;

	for (int i = 0; i < n; i++)
	{
		KvBatchRow *row = &rows[i];

		if (row->value != NULL || row->problem != 0)
			continue;
		missing++;
		note_recent_miss(source, row);
		note_miss(source, row, KV_ASKED_BLOCKS,
				  kv_block_why(source->store->cache_id, row->version.location,
							   row->version.len));
	}
	return missing;
}

/* Counts the misses of values that were read from the device: those that the tier did not have. */
static void
count_misses(const KvSource *source, const KvBatchRow *rows, int n)
{
	uint32		sums[KV_ASKED][KV_MISSES] = {{0}};

	for (int i = 0; i < n; i++)
	{
		if (rows[i].missed[KV_ASKED_TIER] == KV_MISS_NONE)
			continue;
		source->stats->misses[KV_ASKED_TIER][rows[i].missed[KV_ASKED_TIER]]++;
		for (int asked = 0; asked < KV_ASKED; asked++)
			sums[asked][rows[i].missed[asked]]++;
	}
	for (int asked = 0; asked < KV_ASKED; asked++)
	{
		for (int why = KV_MISS_NONE + 1; why < KV_MISSES; why++)
		{
			if (sums[asked][why] > 0)
				pg_atomic_fetch_add_u64(&miss_counts->n[asked][why], sums[asked][why]);
		}
	}
}

/* ---- caches in memory ---- */

/* Memory for the values of a batch. */
typedef struct KvRoom
{
	char	   *into;
	Size		room;
} KvRoom;

/* in rows: the time to load a value into the CPU cache */
#define KV_LOADED_AHEAD	4
/* bytes by which memory for many values is allocated */
#define KV_CACHED_ROOM	((Size) 64 * 1024)

/* Makes space for a row's value, of up to left rows; returns where its bytes begin. */
static inline char *
make_room(const KvSource *source, const KvBatchRow *row, int left, KvRoom *room)
{
	bool		raw = KV_LOCATION_FORM(row->version.location) == KV_FORM_RAW;
	Size		size = MAXALIGN((raw ? VARHDRSZ : 0) + row->version.len);

	if (size > room->room)
	{
		room->room = Max(size, Min(size * left, KV_CACHED_ROOM));
		room->into = MemoryContextAllocHuge(source->context, room->room);
	}
	return room->into + (raw ? VARHDRSZ : 0);
}

/* A row's value is in the space that was made for it, and verified. */
static inline void
use_room(KvBatchRow *row, const char *value, KvRoom *room)
{
	bool		raw = KV_LOCATION_FORM(row->version.location) == KV_FORM_RAW;
	Size		size = MAXALIGN((raw ? VARHDRSZ : 0) + row->version.len);

	row->value = value;
	row->headed = raw;
	row->verified = true;
	room->into += size;
	room->room -= size;
}

static bool
matches(const KvSource *source, const KvBatchRow *row, const char *value)
{
	KvKey		key = {row->key, row->keylen};

	return kv_value_matches(&source->store->key, key, value, &row->version);
}

/*
 * Copies a row's value out of the recent ring.  If it fails verification it is read again: its
 * block may have been damaged since it was written.
 */
static bool
take_recent(const KvSource *source, KvBatchRow *row, char *into)
{
	const KvVersion *version = &row->version;

	if (!kv_recent_read(source->store->cache_id, KV_LOCATION_ADDRESS(version->location),
						version->len, into))
		return false;
	if (matches(source, row, into))
		return true;
	kv_recent_wrong();
	row->missed[KV_ASKED_RECENT] = KV_MISS_DAMAGED;
	return false;
}

/*
 * Copies a row's value out of the value cache.  If it fails verification it is read again: its
 * block may have been damaged when it was read for another value, or since.
 */
static bool
take_block(const KvSource *source, KvBatchRow *row, char *into)
{
	const KvVersion *version = &row->version;
	uint32		cache_id = source->store->cache_id;

	if (!kv_block_read(cache_id, version->location, version->len, into))
		return false;
	if (matches(source, row, into))
		return true;
	kv_block_lose(cache_id, version->location, version->len);
	row->missed[KV_ASKED_BLOCKS] = KV_MISS_DAMAGED;
	return false;
}

/* Begins to load a value into the CPU cache that is taken soon. */
static void
load_near(const KvSource *source, const KvBatchRow *row)
{
	KvLocation	location = row->version.location;
	uint32		cache_id = source->store->cache_id;

	if (row->value == NULL && !kv_recent_load(cache_id, KV_LOCATION_ADDRESS(location),
											  row->version.len))
		kv_block_load(cache_id, location, row->version.len);
}

/* Takes values from the caches of written and read values. */
static void
take_near(KvSource *source, KvBatchRow *rows, int n)
{
	uint32		cache_id = source->store->cache_id;
	KvScanStats *stats = source->stats;
	uint64		recent_hits = stats->recent_hits;
	uint64		cache_hits = stats->cache_hits;
	KvRoom		room = {NULL, 0};

	for (int i = 0; i < n; i++)
	{
		KvBatchRow *row = &rows[i];
		char	   *into;

		if (i + KV_LOADED_AHEAD < n)
			load_near(source, row + KV_LOADED_AHEAD);
		if (row->value != NULL ||
			(!kv_block_takes(row->version.location, row->version.len) &&
			 !kv_recent_may_have(cache_id, KV_LOCATION_ADDRESS(row->version.location))))
			continue;
		into = make_room(source, row, n - i, &room);
		if (take_recent(source, row, into))
			stats->recent_hits++;
		else if (take_block(source, row, into))
		{
			stats->cache_hits++;
			if (source->explains)
				note_recent_miss(source, row);
		}
		else
			continue;
		use_room(row, into, &room);
	}
	if (stats->recent_hits > recent_hits)
		kv_stat_add(source->store, KV_COUNT_RECENT_HITS, stats->recent_hits - recent_hits);
	if (stats->cache_hits > cache_hits)
		kv_stat_add(source->store, KV_COUNT_CACHE_HITS, stats->cache_hits - cache_hits);
}

/* ---- windows ---- */

#define KV_WINDOW_BUFFER	((Size) 1024 * 1024)

/* Memory for a batch's values; in most cases that of the previous batch. */
static char *
make_buffer(KvSource *source, Size size)
{
	if (!(source->reader->windows || source->reader->wants_blocks) || size > KV_WINDOW_BUFFER)
		return MemoryContextAllocHuge(source->context, size);
	if (*source->buffer == NULL)
		*source->buffer = MemoryContextAlloc(source->lasting, KV_WINDOW_BUFFER);
	return *source->buffer;
}

/*
 * Copies a row's value out of the windows that the scan reads; false: it must be read.  view: the
 * piece that the last one was in, which mostly has the next one, too.
 */
static bool
take_from_window(KvSource *source, const KvBatchRow *row, char *into, KvPieceView *view)
{
	KvAddress	address = KV_LOCATION_ADDRESS(row->version.location);
	bool		viewed = kv_piece_take(view, address, row->version.len, into);

	if (viewed && matches(source, row, into))
		return true;
	view->bytes = NULL;
	if (!kv_reader_take(source->reader, address, row->version.len, into))
		return false;
	if (matches(source, row, into))
	{
		kv_reader_view(source->reader, address, view);
		return true;
	}
	kv_reader_lose(source->reader, address, row->version.len);
	return false;
}

/* Takes values of a range that are in windows, or being loaded. */
static void
take_from_windows(KvSource *source, KvBatchRow *rows, int n)
{
	KvPieceView view = {NULL};
	uint64		reads;
	Size		total = 0;
	char	   *into;

	if (!source->reader->wants_blocks && !kv_reader_has_windows(source->reader))
		return;
	for (int i = 0; i < n; i++)
	{
		if (rows[i].value == NULL)
			total += MAXALIGN(VARHDRSZ + rows[i].version.len);
	}
	into = total > 0 ? make_buffer(source, total) : NULL;
	for (int i = 0; i < n; i++)
	{
		KvBatchRow *row = &rows[i];
		bool		raw = KV_LOCATION_FORM(row->version.location) == KV_FORM_RAW;
		char	   *value = raw ? into + VARHDRSZ : into;

		if (row->value != NULL || !take_from_window(source, row, value, &view))
			continue;
		row->value = value;
		row->headed = raw;
		row->verified = true;
		into = value + row->version.len;
		into = (char *) MAXALIGN(into);
	}
	if (source->reader->wants_blocks)
		kv_block_window_progress(source->reader);
	reads = source->stats->device_reads - source->device_reads;
	if (reads == 0)
		return;
	kv_stat_add(source->store, KV_COUNT_DEVICE_READS, reads);
	kv_stat_add(source->store, KV_COUNT_DEVICE_READ_BYTES,
				source->stats->device_bytes - source->device_bytes);
}

/* ---- reading ---- */

void
kv_source_take(KvSource *source, KvBatchRow *rows, int n, bool near)
{
	int			missing = 0;

	if (near)
	{
		if (!source->reader->windows)
			take_near(source, rows, n);
		if (!source->reader->windows && source->explains)
			(void) note_near_misses(source, rows, n);
		return;
	}
	if (!source->points)
		take_from_windows(source, rows, n);
	if (!source->reader->windows)
		missing = source->explains ? n : note_near_misses(source, rows, n);
	kv_device_read(source, rows, n);
	if (missing > 0)
		count_misses(source, rows, n);
}

void
kv_source_read(KvSource *source, KvBatchRow *rows, int n)
{
	kv_device_read(source, rows, n);
}

bool
kv_source_has(uint32 cache_id, KvLocation location, uint32 len, bool memory)
{
	KvAddress	address = KV_LOCATION_ADDRESS(location);
	KvTierPlace place;

	if (memory &&
		(kv_recent_may_have(cache_id, address) || kv_block_has(cache_id, location, len)))
		return true;
	return kv_tier_find(cache_id, address, len, &place);
}

/* ---- what writers tell ---- */

KvHeat
kv_source_heat(uint32 cache_id, KvLocation old, uint32 oldlen)
{
	if (kv_block_has(cache_id, old, oldlen))
		return KV_CACHED;
	return kv_recent_heat(cache_id, KV_LOCATION_ADDRESS(old), oldlen);
}

bool
kv_source_keeps(KvLocation location, uint32 len)
{
	return kv_block_takes(location, len);
}

void
kv_source_replaced(uint32 cache_id, KvLocation location, uint32 len)
{
	kv_block_replaced(cache_id, location, len);
}

void
kv_source_put(uint32 cache_id, KvAddress address, uint32 len, const char *bytes, KvHeat heat)
{
	if (kv_recent_on())
		kv_recent_put(cache_id, address, len, bytes, heat);
	else if (heat != KV_COLD)
	{
		for (uint32 at = 0; at < len; at += KV_BLOCK)
			kv_block_keep(cache_id, KV_LOCATION_MAKE(0, address + at), KV_BLOCK, bytes + at,
						  heat == KV_CACHED);
	}
}

/* With a second tier all bytes are put, because they reach it through the ring. */
uint64
kv_source_bulk(void)
{
	return kv_second_tier.mover.on() ? PG_UINT64_MAX : kv_recent_ring.room() * KV_BLOCK;
}

void
kv_source_forget(uint32 cache_id, KvAddress address, uint64 len, KvForget why)
{
	for (int i = 0; i < lengthof(caches); i++)
	{
		if (caches[i]->forget)
			caches[i]->forget(cache_id, address, len, why);
	}
}

/* ---- what a compaction tells ---- */

bool
kv_source_moved(uint32 cache_id, KvLocation from, KvLocation to, uint32 len, const char *blocks)
{
	if (kv_block_has(cache_id, from, len))
		return kv_block_keep_too(cache_id, to, len, blocks);
	if (kv_recent_heat(cache_id, KV_LOCATION_ADDRESS(from), len) != KV_COLD)
		kv_block_keep(cache_id, to, len, blocks, false);
	return true;
}

const KvMover *
kv_source_mover(int n)
{
	for (int i = 0; i < lengthof(caches); i++)
	{
		if (caches[i]->mover.on != NULL && caches[i]->mover.on() && n-- == 0)
			return &caches[i]->mover;
	}
	return NULL;
}

/* ---- blocks that are read before sessions ask for them ---- */

void
kv_source_each(void (*each) (void *arg, const KvCachedUnit *unit), void *arg)
{
	for (int i = 0; i < lengthof(caches); i++)
	{
		if (caches[i]->each)
			caches[i]->each(each, arg);
	}
}

uint64
kv_source_room(void)
{
	return kv_value_cache.room();
}

/* ---- statistics ---- */

void
kv_source_stats(const uint64 *counts, void (*each) (void *arg, const KvCacheStats *stats),
				void *arg)
{
	for (int i = 0; i < lengthof(caches); i++)
	{
		KvCacheStats stats = {caches[i]->name};

		if (caches[i]->stats == NULL)
			continue;
		if (caches[i]->counter != KV_OWN_COUNTER)
			stats.hits = counts[caches[i]->counter];
		for (int why = KV_MISS_NONE + 1; why < KV_MISSES; why++)
			stats.misses[why] = caches[i]->never & 1 << why ? KV_NO_COUNT :
				pg_atomic_read_u64(&miss_counts->n[caches[i]->asked][why]);
		caches[i]->stats(&stats);
		each(arg, &stats);
	}
}

void
kv_source_stats_reset(void)
{
	for (int i = 0; i < KV_ASKED * KV_MISSES; i++)
		pg_atomic_write_u64(&miss_counts->n[i / KV_MISSES][i % KV_MISSES], 0);
	for (int i = 0; i < lengthof(caches); i++)
	{
		if (caches[i]->stats_reset)
			caches[i]->stats_reset();
	}
}
