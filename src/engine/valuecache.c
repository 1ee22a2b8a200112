/*
 * valuecache.c
 *		Blocks of value files that point reads have met lately, in shared memory.
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
 * Only single blocks that are read by key are cached, and new versions of values
 * that were here or are written again and again.  So neither a large scan nor a
 * load drives out what others use.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "port/atomics.h"
#include "storage/shmem.h"

#include "engine/internal.h"

#define KV_CACHE_WAYS	8
#define KV_CACHE_HEAT	3		/* turns of the hand that a much used block survives */

int			kv_value_cache_mb;

typedef struct KvCacheEntry
{
	pg_atomic_uint64 sequence;	/* odd: being replaced; 0: never used */
	uint64		place;			/* value file and block */
	uint32		store;			/* KvStore.cache_id */
	pg_atomic_uint32 heat;
} KvCacheEntry;

typedef struct KvCacheSet
{
	KvCacheEntry entries[KV_CACHE_WAYS];
	pg_atomic_uint32 hand;
} KvCacheSet;

static KvCacheSet *sets;
static char *blocks;

static uint64
set_count(void)
{
	return (uint64) kv_value_cache_mb * 1024 * 1024 / (KV_BLOCK * KV_CACHE_WAYS);
}

Size
kv_cache_shmem_size(void)
{
	return add_size(MAXALIGN(set_count() * sizeof(KvCacheSet)),
					set_count() * KV_CACHE_WAYS * KV_BLOCK + KV_BLOCK);
}

/* In the shmem startup hook. */
void
kv_cache_startup(void)
{
	bool		found;

	if (set_count() == 0)
		return;
	sets = ShmemInitStruct("kvfdw value cache", kv_cache_shmem_size(), &found);
	blocks = (char *) TYPEALIGN(KV_BLOCK, sets + set_count());
	if (found)
		return;
	for (uint64 i = 0; i < set_count(); i++)
	{
		memset(&sets[i], 0, sizeof(KvCacheSet));
		pg_atomic_init_u32(&sets[i].hand, 0);
		for (int way = 0; way < KV_CACHE_WAYS; way++)
		{
			pg_atomic_init_u64(&sets[i].entries[way].sequence, 0);
			pg_atomic_init_u32(&sets[i].entries[way].heat, 0);
		}
	}
}

/* The one block that holds a value; false if there is none. */
static bool
block_of(KvLocation location, uint32 len, uint64 *place, uint32 *within)
{
	uint64		offset = KV_LOCATION_OFFSET(location);

	*within = offset % KV_BLOCK;
	*place = (uint64) KV_LOCATION_FILE(location) << 40 | offset / KV_BLOCK;
	return set_count() > 0 && *within + len <= KV_BLOCK;
}

static uint64
set_of(const KvStore *store, uint64 place)
{
	return hash_bytes_extended((const unsigned char *) &place, sizeof(place),
							   store->cache_id) % set_count();
}

static char *
block_at(uint64 set, int way)
{
	return blocks + (set * KV_CACHE_WAYS + way) * KV_BLOCK;
}

/* Copy a value, if its block is here. */
bool
kv_cache_read(const KvStore *store, KvLocation location, uint32 len, char *into)
{
	uint64		place;
	uint32		within;
	uint64		set;

	if (!block_of(location, len, &place, &within))
		return false;
	set = set_of(store, place);
	for (int way = 0; way < KV_CACHE_WAYS; way++)
	{
		KvCacheEntry *entry = &sets[set].entries[way];
		uint64		sequence;

		if (entry->place != place || entry->store != store->cache_id)
			continue;
		sequence = pg_atomic_read_u64(&entry->sequence);
		if (sequence % 2 != 0)
			return false;
		pg_read_barrier();
		if (entry->place != place || entry->store != store->cache_id)
			return false;
		memcpy(into, block_at(set, way) + within, len);
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
holds(const KvCacheSet *set, const KvStore *store, uint64 place)
{
	for (int way = 0; way < KV_CACHE_WAYS; way++)
	{
		if (set->entries[way].place == place &&
			set->entries[way].store == store->cache_id)
			return true;
	}
	return false;
}

static void
keep_block(const KvStore *store, uint64 place, const char *block)
{
	uint64		set = set_of(store, place);

	if (holds(&sets[set], store, place))
		return;
	for (int turns = 0; turns < KV_CACHE_WAYS * (KV_CACHE_HEAT + 1); turns++)
	{
		int			way = pg_atomic_fetch_add_u32(&sets[set].hand, 1) % KV_CACHE_WAYS;
		KvCacheEntry *entry = &sets[set].entries[way];
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
		entry->store = store->cache_id;
		memcpy(block_at(set, way), block, KV_BLOCK);
		pg_write_barrier();
		pg_atomic_write_u64(&entry->sequence, sequence + 2);
		return;
	}
}

/* Keep the block that a value was read from; block is all of it. */
void
kv_cache_keep(const KvStore *store, KvLocation location, uint32 len, const char *block)
{
	uint64		place;
	uint32		within;

	if (block_of(location, len, &place, &within))
		keep_block(store, place, block);
}

/* Is the block of a value here, at this moment? */
bool
kv_cache_has(const KvStore *store, KvLocation location, uint32 len)
{
	uint64		place;
	uint32		within;

	return block_of(location, len, &place, &within) &&
		holds(&sets[set_of(store, place)], store, place);
}

/*
 * Each bit of a slot's map of hot values stands for this many bytes of its value
 * area.
 */
static uint32
hot_unit(void)
{
	return Max(KV_BLOCK, TYPEALIGN(KV_BLOCK, kv_shared->slot_size / 64));
}

uint64
kv_cache_hot_bit(uint32 position)
{
	return UINT64CONST(1) << Min(position / hot_unit(), 63);
}

/* A slot has been written: keep the blocks that hot_bits says are hot. */
void
kv_cache_keep_hot(const KvStore *store, KvLocation base, uint32 capacity,
				  uint64 hot_bits, const char *values)
{
	for (uint32 at = 0; hot_bits != 0 && at < capacity; at += KV_BLOCK)
	{
		KvLocation	location = KV_LOCATION_MAKE(0, KV_LOCATION_FILE(base),
												KV_LOCATION_OFFSET(base) + at);

		if (hot_bits & kv_cache_hot_bit(at))
			kv_cache_keep(store, location, KV_BLOCK, values + at);
	}
}
