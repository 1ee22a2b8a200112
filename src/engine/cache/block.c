/*
 * block.c
 *		Blocks of value files that points and short ranges have met lately, in shared memory.
 *
 * A block of a value file never changes once it can be read, so a cached block
 * is right for as long as its store is open: nothing needs to be invalidated.
 * A store has a number of its own for each time it was opened, so a new table's
 * blocks are never taken for those of an old one of the same OID.  Values are
 * verified whether they come from here or from the device (I 4).
 *
 * Blocks lie in sets of eight; a hash of the block's place chooses the set.  In a
 * set a clock hand looks for a block that was not hit lately.  Readers take no
 * lock: an entry's sequence is odd while it is replaced, and a reader that finds
 * it changed after its copy has found nothing.  A writer that finds it odd or
 * changed gives up; caching is never worth a wait.
 *
 * A value of several blocks is found only if all of them are here; they come and go
 * one by one.  Blocks are kept that are read by key or by a short range, and those of
 * new versions of values that were here or are written again and again.  So neither a
 * large scan nor a load drives out what others use.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "port/atomics.h"
#include "storage/shmem.h"
#include "utils/guc.h"

#include "engine/base/types.h"
#include "engine/cache/cache.h"

#define KV_BLOCK_WAYS	8
#define KV_CACHE_HEAT	3		/* turns of the hand that a much used block survives */

static int	value_cache_mb = 128;

typedef struct KvBlockEntry
{
	pg_atomic_uint64 sequence;	/* odd: being replaced; 0: never used */
	uint64		place;			/* value file and block */
	uint32		cache_id;		/* of the store */
	pg_atomic_uint32 heat;
} KvBlockEntry;

typedef struct KvBlockSet
{
	KvBlockEntry entries[KV_BLOCK_WAYS];
	pg_atomic_uint32 hand;
} KvBlockSet;

static KvBlockSet *sets;
static char *all_blocks;

static uint64
set_count(void)
{
	return (uint64) value_cache_mb * 1024 * 1024 / (KV_BLOCK * KV_BLOCK_WAYS);
}

Size
kv_block_memory(void)
{
	return add_size(MAXALIGN(set_count() * sizeof(KvBlockSet)),
					set_count() * KV_BLOCK_WAYS * KV_BLOCK + KV_BLOCK);
}

void
kv_block_gucs(void)
{
	DefineCustomIntVariable("kvfdw.value_cache",
							"Shared memory for blocks of values that were read by key or in short ranges.",
							NULL, &value_cache_mb, 128, 0, 1048576,
							PGC_POSTMASTER, GUC_UNIT_MB, NULL, NULL, NULL);
}

void
kv_block_attach(void)
{
	bool		found;

	if (set_count() == 0)
		return;
	sets = ShmemInitStruct("kvfdw value cache", kv_block_memory(), &found);
	all_blocks = (char *) TYPEALIGN(KV_BLOCK, sets + set_count());
	if (found)
		return;
	for (uint64 i = 0; i < set_count(); i++)
	{
		memset(&sets[i], 0, sizeof(KvBlockSet));
		pg_atomic_init_u32(&sets[i].hand, 0);
		for (int way = 0; way < KV_BLOCK_WAYS; way++)
		{
			pg_atomic_init_u64(&sets[i].entries[way].sequence, 0);
			pg_atomic_init_u32(&sets[i].entries[way].heat, 0);
		}
	}
}

/* The blocks that a value touches. */
typedef struct KvTouched
{
	uint64		first;
	int			n;
	uint32		within;			/* where it begins in the first */
} KvTouched;

/* False: there is no value, it is too large for the cache, or there is none. */
static bool
touched_by(KvLocation location, uint32 len, KvTouched *touched)
{
	KvAddress	address = KV_LOCATION_ADDRESS(location);

	if (len == 0 || len > KV_CACHED_BLOCKS * KV_BLOCK || set_count() == 0)
		return false;
	touched->first = address / KV_BLOCK;
	touched->within = address % KV_BLOCK;
	touched->n = (touched->within + len + KV_BLOCK - 1) / KV_BLOCK;
	return touched->n <= KV_CACHED_BLOCKS;
}

static uint64
set_of(uint32 cache_id, uint64 place)
{
	return hash_bytes_extended((const unsigned char *) &place, sizeof(place),
							   cache_id) % set_count();
}

static char *
block_at(uint64 set, int way)
{
	return all_blocks + (set * KV_BLOCK_WAYS + way) * KV_BLOCK;
}

/* Copy bytes of a block; false: it is not here, or not any more. */
static bool
read_block(uint32 cache_id, uint64 place, uint32 from, uint32 len, char *into)
{
	uint64		set = set_of(cache_id, place);

	for (int way = 0; way < KV_BLOCK_WAYS; way++)
	{
		KvBlockEntry *entry = &sets[set].entries[way];
		uint64		sequence;

		if (entry->place != place || entry->cache_id != cache_id)
			continue;
		sequence = pg_atomic_read_u64(&entry->sequence);
		if (sequence % 2 != 0)
			return false;
		pg_read_barrier();
		if (entry->place != place || entry->cache_id != cache_id)
			return false;
		memcpy(into, block_at(set, way) + from, len);
		pg_read_barrier();
		if (pg_atomic_read_u64(&entry->sequence) != sequence)
			return false;
		if (pg_atomic_read_u32(&entry->heat) < KV_CACHE_HEAT)
			pg_atomic_fetch_add_u32(&entry->heat, 1);
		return true;
	}
	return false;
}

static bool
holds(const KvBlockSet *set, uint32 cache_id, uint64 place)
{
	for (int way = 0; way < KV_BLOCK_WAYS; way++)
	{
		if (set->entries[way].place == place &&
			set->entries[way].cache_id == cache_id)
			return true;
	}
	return false;
}

static void
keep_block(uint32 cache_id, uint64 place, const char *block)
{
	uint64		set = set_of(cache_id, place);

	if (holds(&sets[set], cache_id, place))
		return;
	for (int turns = 0; turns < KV_BLOCK_WAYS * (KV_CACHE_HEAT + 1); turns++)
	{
		int			way = pg_atomic_fetch_add_u32(&sets[set].hand, 1) % KV_BLOCK_WAYS;
		KvBlockEntry *entry = &sets[set].entries[way];
		uint32		heat = pg_atomic_read_u32(&entry->heat);
		uint64		sequence;

		if (heat > 0)
		{
			(void) pg_atomic_compare_exchange_u32(&entry->heat, &heat, heat - 1);
			continue;
		}
		sequence = pg_atomic_read_u64(&entry->sequence);
		if (sequence % 2 != 0 ||
			!pg_atomic_compare_exchange_u64(&entry->sequence, &sequence, sequence + 1))
			return;
		pg_write_barrier();
		entry->place = place;
		entry->cache_id = cache_id;
		memcpy(block_at(set, way), block, KV_BLOCK);
		pg_write_barrier();
		pg_atomic_write_u64(&entry->sequence, sequence + 2);
		return;
	}
}

/* Are all of them here, at this moment? */
static bool
holds_all(uint32 cache_id, const KvTouched *touched)
{
	for (uint64 place = touched->first; place < touched->first + touched->n; place++)
	{
		if (!holds(&sets[set_of(cache_id, place)], cache_id, place))
			return false;
	}
	return true;
}

bool
kv_block_read(uint32 cache_id, KvLocation location, uint32 len, char *into)
{
	KvTouched	touched;
	uint32		done = 0;

	if (!touched_by(location, len, &touched))
		return false;

	/* blocks of a value that is not here as a whole are of no use */
	if (touched.n > 1 && !holds_all(cache_id, &touched))
		return false;
	for (int i = 0; i < touched.n; i++)
	{
		uint32		from = i == 0 ? touched.within : 0;
		uint32		part = Min(len - done, KV_BLOCK - from);

		if (!read_block(cache_id, touched.first + i, from, part, into + done))
			return false;
		done += part;
	}
	return true;
}

void
kv_block_keep(uint32 cache_id, KvLocation location, uint32 len, const char *blocks)
{
	KvTouched	touched;

	if (!touched_by(location, len, &touched))
		return;
	for (int i = 0; i < touched.n; i++)
		keep_block(cache_id, touched.first + i, blocks + i * KV_BLOCK);
}

bool
kv_block_has(uint32 cache_id, KvLocation location, uint32 len)
{
	KvTouched	touched;

	return touched_by(location, len, &touched) && holds_all(cache_id, &touched);
}

bool
kv_block_takes(KvLocation location, uint32 len)
{
	KvTouched	touched;

	return touched_by(location, len, &touched);
}
