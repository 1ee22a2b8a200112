/*
 * block.c
 *		The value cache: recently used blocks of value files in shared memory.
 *
 * A block of a value file never changes once it can be read, so a cached block is valid while its
 * store is open: nothing needs to be invalidated.  A store has a new cache_id each time it is
 * opened.  So a new table's blocks are never taken for those of an old one with the same OID.
 * Values are verified whether they come from the cache or from the device (I 4).
 *
 * Blocks are in sets of eight ways; a hash of the block's address chooses the set.  One way of a
 * set is on probation, the others are a clock:
 *
 *		new block ──▸ probation ──read again──▸ clock ──not read lately──▸ evicted
 *		                 └──not read──▸ evicted, its tag among the set's ghosts
 *		new block with its tag among the ghosts, or that replaces a cached one ──▸ clock
 *
 * If a set is full, a new block goes to an unused way of the neighbouring set, if there is one.
 * The set is marked then, and lookups search both sets.
 *
 * Blocks that are mostly one value become cold as soon as the value is replaced.  Blocks of a value
 * file that no entry names any more are removed; if other shards have entries there, they become
 * cold.  Otherwise values that a compaction has moved would be cached twice.
 *
 * So blocks that are read once evict only their like, and a block that is read again soon stays.  A
 * process that reads one block several times in a row, for adjacent values, counts as one read.
 *
 * Locks: readers take none.  An entry's sequence is odd while the entry is replaced; a reader that
 * finds it changed after the copy has found nothing.  A writer that finds it odd or changed gives
 * up: caching is never worth a wait.  Hand, probation and ghosts are written without a lock, too.
 * Two writers at a time may choose a worse block to evict, and do no other harm.
 *
 * A value of several blocks is found only if all of them are cached; blocks are cached and evicted
 * one by one.  Blocks are kept that are read by key or by a short range.  So are blocks of new
 * versions, if the old version was cached or the key is often written.  So neither a large scan nor
 * a load evicts blocks that others use.
 */
#include "postgres.h"

#include "port/atomics.h"
#include "storage/shmem.h"

#include "engine/base/hash.h"
#include "engine/base/shared.h"
#include "engine/base/types.h"
#include "engine/cache/internal.h"
#include "engine/maintenance.h"
#include "engine/rows.h"

#define KV_BLOCK_WAYS	8
#define KV_BLOCK_GHOSTS	8
#define KV_BLOCK_LEFT	8
#define KV_CACHE_HEAT	3		/* number of times that the hand passes over a much used block */
#define KV_NO_WAY		(-1)

static int	value_cache_mb;

typedef struct KvBlockEntry
{
	pg_atomic_uint64 sequence;	/* odd: the entry is being replaced */
	uint64		blockno;		/* address / KV_BLOCK */
	uint32		cache_id;		/* of the store; 0: the entry has no block */
	pg_atomic_uint32 heat;
} KvBlockEntry;

typedef struct KvBlockSet
{
	KvBlockEntry entries[KV_BLOCK_WAYS];
	pg_atomic_uint32 hand;		/* of the clock */
	uint8		probation;		/* the way on probation */
	uint8		next_ghost;
	uint8		next_left;
	uint16		ghosts[KV_BLOCK_GHOSTS];	/* tags; 0: none */
	uint16		left[KV_BLOCK_LEFT];	/* tags of blocks that the clock has evicted */
	bool		spilled;		/* some of its blocks may be in the neighbouring set */
} KvBlockSet;

/*
 * The entries' sequences count the blocks that are kept and evicted, so keeping a block updates no
 * counter.  These counters, since the start, change rarely.
 */
typedef struct KvBlockCounts
{
	pg_atomic_uint64 lost;		/* blocks that were removed */
	pg_atomic_uint64 errors;	/* cached values that failed verification */
	pg_atomic_uint64 entered_then;	/* blocks entered up to the last reset */
	pg_atomic_uint64 used_then; /* blocks in use at the last reset */
} KvBlockCounts;

static KvBlockSet *sets;
static char *all_blocks;
static KvBlockCounts *counts;

/* The block that this process has read or kept last. */
static uint64 last_blockno;
static uint32 last_cache_id;

static uint64
set_count(void)
{
	return (uint64) value_cache_mb * 1024 * 1024 / (KV_BLOCK * KV_BLOCK_WAYS);
}

static Size
block_memory(void)
{
	return add_size(MAXALIGN(set_count() * sizeof(KvBlockSet)),
					set_count() * KV_BLOCK_WAYS * KV_BLOCK + KV_BLOCK + sizeof(KvBlockCounts));
}

static bool
check_value_cache(int *value, void **extra, GucSource source)
{
	kv_share_check(value, &value_cache_mb);
	return true;
}

static void
define_settings(void)
{
	kv_share_define("kvfdw.value_cache",
					"Sets the size of the cache for values that are read by key or in short "
					"ranges.",
					"-1: three eighths of kvfdw.memory; 0: no cache.",
					3, &value_cache_mb, GUC_UNIT_MB, check_value_cache);
}

static void
attach(void)
{
	bool		found;

	if (set_count() == 0)
		return;
	sets = ShmemInitStruct("kvfdw value cache", block_memory(), &found);
	all_blocks = (char *) TYPEALIGN(KV_BLOCK, sets + set_count());
	counts = (KvBlockCounts *) (all_blocks + set_count() * KV_BLOCK_WAYS * KV_BLOCK);
	if (found)
		return;
	pg_atomic_init_u64(&counts->lost, 0);
	pg_atomic_init_u64(&counts->errors, 0);
	pg_atomic_init_u64(&counts->entered_then, 0);
	pg_atomic_init_u64(&counts->used_then, 0);
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

/* The blocks of a value. */
typedef struct KvTouched
{
	uint64		first;
	int			n;
	uint32		within;			/* offset of the value in the first block */
} KvTouched;

/* False: there is no value, or it is too large for the cache, or there is no cache. */
static bool
touched_by(KvLocation location, uint32 len, KvTouched *touched)
{
	KvAddress	address = KV_LOCATION_ADDRESS(location);

	if (len == 0 || len > (KV_CACHED_BLOCKS - 1) * KV_BLOCK || set_count() == 0)
		return false;
	touched->first = address / KV_BLOCK;
	touched->within = address % KV_BLOCK;
	touched->n = (touched->within + len + KV_BLOCK - 1) / KV_BLOCK;
	return touched->n <= KV_CACHED_BLOCKS;
}

static uint64
hash_of(uint32 cache_id, uint64 blockno)
{
	return kv_hash_number(blockno, cache_id);
}

/*
 * The set of a block, by the lower half of its hash.  A division would cost more than the rest of
 * the search.
 */
static uint64
set_of_hash(uint64 hash)
{
	return ((uint64) (uint32) hash * set_count()) >> 32;
}

static uint64
set_of(uint32 cache_id, uint64 blockno)
{
	return set_of_hash(hash_of(cache_id, blockno));
}

/* The tag of a block among the ghosts of a set: bits of its hash that have not chosen the set. */
static uint16
tag_of(uint64 hash)
{
	return Max(hash >> 48, 1);
}

/* Notes that a block is read or kept.  False: it was also the last one. */
static bool
is_another(uint32 cache_id, uint64 blockno)
{
	if (last_blockno == blockno && last_cache_id == cache_id)
		return false;
	last_blockno = blockno;
	last_cache_id = cache_id;
	return true;
}

static char *
block_at(uint64 set, int way)
{
	return all_blocks + (set * KV_BLOCK_WAYS + way) * KV_BLOCK;
}

/* The number of sets is even. */
static uint64
neighbour_of(uint64 set)
{
	return set ^ 1;
}

/* The way of a set that has a block, or KV_NO_WAY. */
static int
way_of(const KvBlockSet *set, uint32 cache_id, uint64 blockno)
{
	for (int way = 0; way < KV_BLOCK_WAYS; way++)
	{
		if (set->entries[way].blockno == blockno &&
			set->entries[way].cache_id == cache_id)
			return way;
	}
	return KV_NO_WAY;
}

/* Finds a block at this moment; false: it is not cached. */
static bool
find_block(uint32 cache_id, uint64 blockno, uint64 *set, int *way)
{
	*set = set_of(cache_id, blockno);
	*way = way_of(&sets[*set], cache_id, blockno);
	if (*way == KV_NO_WAY && sets[*set].spilled)
	{
		*set = neighbour_of(*set);
		*way = way_of(&sets[*set], cache_id, blockno);
	}
	return *way != KV_NO_WAY;
}

/* Copies bytes of a block that was found there; false: it is not there any more. */
static bool
read_block(uint32 cache_id, uint64 blockno, uint64 set, int way, uint32 from, uint32 len,
		   char *into)
{
	KvBlockEntry *entry = &sets[set].entries[way];
	uint64		sequence = pg_atomic_read_u64(&entry->sequence);

	if (sequence % 2 != 0)
		return false;
	pg_read_barrier();
	if (entry->blockno != blockno || entry->cache_id != cache_id)
		return false;
	memcpy(into, block_at(set, way) + from, len);
	pg_read_barrier();
	if (pg_atomic_read_u64(&entry->sequence) != sequence)
		return false;
	if (is_another(cache_id, blockno) && pg_atomic_read_u32(&entry->heat) < KV_CACHE_HEAT)
		pg_atomic_fetch_add_u32(&entry->heat, 1);
	return true;
}

static bool
holds(uint32 cache_id, uint64 blockno)
{
	uint64		set;
	int			way;

	return find_block(cache_id, blockno, &set, &way);
}

/* Notes that the clock evicts a block, in its own set, even if it is in the neighbouring one. */
static void
note_left(const KvBlockEntry *entry)
{
	uint64		hash = hash_of(entry->cache_id, entry->blockno);
	KvBlockSet *set = &sets[set_of_hash(hash)];

	set->left[set->next_left++ % KV_BLOCK_LEFT] = tag_of(hash);
}

/* The way of the clock whose block was not read lately; KV_NO_WAY: other processes were faster. */
static int
clock_way(KvBlockSet *set)
{
	for (int turns = 0; turns < KV_BLOCK_WAYS * (KV_CACHE_HEAT + 2); turns++)
	{
		int			way = pg_atomic_fetch_add_u32(&set->hand, 1) % KV_BLOCK_WAYS;
		uint32		heat = pg_atomic_read_u32(&set->entries[way].heat);

		if (way == set->probation)
			continue;
		if (heat == 0)
		{
			note_left(&set->entries[way]);
			return way;
		}
		(void) pg_atomic_compare_exchange_u32(&set->entries[way].heat, &heat, heat - 1);
	}
	return KV_NO_WAY;
}

/* Was the block cached recently?  If so, removes its ghost. */
static bool
was_ghost(KvBlockSet *set, uint16 tag)
{
	for (int i = 0; i < KV_BLOCK_GHOSTS; i++)
	{
		if (set->ghosts[i] == tag)
		{
			set->ghosts[i] = 0;
			return true;
		}
	}
	return false;
}

/*
 * Frees the probation way for a new block.  If its block was read, the block joins the clock, and
 * the evicted way becomes the probation way.  Otherwise the block becomes a ghost.  Returns the
 * way.
 */
static int
probation_way(KvBlockSet *set)
{
	int			way = set->probation;
	KvBlockEntry *entry = &set->entries[way];
	uint64		hash;

	if (pg_atomic_read_u32(&entry->heat) > 0)
	{
		way = clock_way(set);
		if (way != KV_NO_WAY)
			set->probation = way;
		return way;
	}

	/* in the ghosts of its own set, even if it is in the neighbouring one */
	hash = hash_of(entry->cache_id, entry->blockno);
	set = &sets[set_of_hash(hash)];
	set->ghosts[set->next_ghost++ % KV_BLOCK_GHOSTS] = tag_of(hash);
	return way;
}

static int
free_way(const KvBlockSet *set)
{
	for (int way = 0; way < KV_BLOCK_WAYS; way++)
	{
		if (set->entries[way].cache_id == 0)
			return way;
	}
	return KV_NO_WAY;
}

/* The value of a new block. */
typedef enum KvWorth
{
	KV_NEW,						/* it is on probation, unless its tag is known */
	KV_WANTED,					/* it goes into the clock at once */
	KV_BESIDE					/* it goes into the clock if nothing is evicted for it */
} KvWorth;

/* Chooses a way for a new block of a set; KV_NO_WAY: there is none. */
static int
choose_way(uint64 *setno, uint16 tag, KvWorth worth)
{
	KvBlockSet *set = &sets[*setno];
	int			way = free_way(set);

	if (way != KV_NO_WAY)
		return way;
	way = free_way(&sets[neighbour_of(*setno)]);
	if (way != KV_NO_WAY)
	{
		set->spilled = true;
		*setno = neighbour_of(*setno);
		return way;
	}
	if (worth == KV_BESIDE)
		return KV_NO_WAY;
	return was_ghost(set, tag) || worth == KV_WANTED ? clock_way(set) : probation_way(set);
}

/* Keeps a block.  Returns whether it is cached then; false also if other processes were faster. */
static bool
keep_block(uint32 cache_id, uint64 blockno, const char *block, KvWorth worth)
{
	uint64		hash = hash_of(cache_id, blockno);
	uint64		setno = set_of_hash(hash);
	KvBlockEntry *entry;
	uint64		sequence;
	int			way;

	(void) is_another(cache_id, blockno);
	if (holds(cache_id, blockno))
		return true;
	way = choose_way(&setno, tag_of(hash), worth);
	if (way == KV_NO_WAY)
		return false;
	entry = &sets[setno].entries[way];
	sequence = pg_atomic_read_u64(&entry->sequence);
	if (sequence % 2 != 0 ||
		!pg_atomic_compare_exchange_u64(&entry->sequence, &sequence, sequence + 1))
		return false;
	pg_write_barrier();
	entry->blockno = blockno;
	entry->cache_id = cache_id;
	memcpy(block_at(setno, way), block, KV_BLOCK);
	/* 1: the next block must not evict it at once */
	pg_atomic_write_u32(&entry->heat, worth == KV_NEW ? 0 : 1);
	pg_write_barrier();
	pg_atomic_write_u64(&entry->sequence, sequence + 2);
	return true;
}

/* Are all these blocks cached at this moment? */
static bool
holds_all(uint32 cache_id, const KvTouched *touched)
{
	for (uint64 blockno = touched->first; blockno < touched->first + touched->n; blockno++)
	{
		if (!holds(cache_id, blockno))
			return false;
	}
	return true;
}

bool
kv_block_read(uint32 cache_id, KvLocation location, uint32 len, char *into)
{
	KvTouched	touched;
	uint64		in_set[KV_CACHED_BLOCKS];
	int			in_way[KV_CACHED_BLOCKS];
	uint32		done = 0;

	if (!touched_by(location, len, &touched))
		return false;

	/* a value with missing blocks cannot be used */
	for (int i = 0; i < touched.n; i++)
	{
		if (!find_block(cache_id, touched.first + i, &in_set[i], &in_way[i]))
			return false;
	}
	for (int i = 0; i < touched.n; i++)
	{
		uint32		from = i == 0 ? touched.within : 0;
		uint32		part = Min(len - done, KV_BLOCK - from);

		if (!read_block(cache_id, touched.first + i, in_set[i], in_way[i], from, part, into + done))
			return false;
		done += part;
	}
	return true;
}

void
kv_block_load(uint32 cache_id, KvLocation location, uint32 len)
{
	KvTouched	touched;
	uint64		set;
	int			way;

	if (touched_by(location, len, &touched) && find_block(cache_id, touched.first, &set, &way))
		kv_load_bytes(block_at(set, way) + touched.within, Min(len, KV_BLOCK - touched.within));
}

void
kv_block_keep(uint32 cache_id, KvLocation location, uint32 len, const char *blocks, bool replaces)
{
	KvTouched	touched;

	if (!touched_by(location, len, &touched))
		return;
	for (int i = 0; i < touched.n; i++)
		(void) keep_block(cache_id, touched.first + i, blocks + i * KV_BLOCK,
						  replaces ? KV_WANTED : KV_NEW);
}

bool
kv_block_keep_too(uint32 cache_id, KvLocation location, uint32 len, const char *blocks)
{
	KvTouched	touched;
	bool		all = true;

	if (!touched_by(location, len, &touched))
		return true;
	for (int i = 0; i < touched.n; i++)
		all &= keep_block(cache_id, touched.first + i, blocks + i * KV_BLOCK, KV_BESIDE);
	return all;
}

/* The next block may evict it. */
static void
cool_block(uint32 cache_id, uint64 blockno)
{
	uint64		set;
	int			way;

	if (find_block(cache_id, blockno, &set, &way))
		pg_atomic_write_u32(&sets[set].entries[way].heat, 0);
}

void
kv_block_replaced(uint32 cache_id, KvLocation location, uint32 len)
{
	KvTouched	touched;

	if (!touched_by(location, len, &touched) || len < (uint32) touched.n * KV_BLOCK / 2)
		return;
	for (int i = 0; i < touched.n; i++)
		cool_block(cache_id, touched.first + i);
}

bool
kv_block_has(uint32 cache_id, KvLocation location, uint32 len)
{
	KvTouched	touched;

	return touched_by(location, len, &touched) && holds_all(cache_id, &touched);
}

static void
warm_block(uint32 cache_id, KvAddress address, const char *block)
{
	if (set_count() > 0)
		(void) keep_block(cache_id, address / KV_BLOCK, block, KV_WANTED);
}

static uint64
capacity(void)
{
	return set_count() * KV_BLOCK_WAYS;
}

static void
each_block(void (*each) (void *arg, const KvCachedUnit *unit), void *arg)
{
	for (uint64 set = 0; set < set_count(); set++)
	{
		for (int way = 0; way < KV_BLOCK_WAYS; way++)
		{
			const KvBlockEntry *entry = &sets[set].entries[way];
			KvCachedUnit unit = {.cache_id = entry->cache_id, .number = entry->blockno};

			if (unit.cache_id != 0)
				each(arg, &unit);
		}
	}
}

/* Removes a block, unless another process changes the entry.  False: it was not removed. */
static bool
lose_block(uint32 cache_id, uint64 blockno)
{
	KvBlockEntry *entry;
	uint64		sequence;
	uint64		set;
	int			way;

	if (!find_block(cache_id, blockno, &set, &way))
		return false;
	entry = &sets[set].entries[way];
	sequence = pg_atomic_read_u64(&entry->sequence);
	if (entry->blockno != blockno || entry->cache_id != cache_id || sequence % 2 != 0 ||
		!pg_atomic_compare_exchange_u64(&entry->sequence, &sequence, sequence + 1))
		return false;
	pg_write_barrier();
	entry->blockno = 0;
	entry->cache_id = 0;
	pg_atomic_write_u32(&entry->heat, 0);
	pg_write_barrier();
	pg_atomic_write_u64(&entry->sequence, sequence + 2);
	pg_atomic_fetch_add_u64(&counts->lost, 1);
	return true;
}

void
kv_block_lose(uint32 cache_id, KvLocation location, uint32 len)
{
	KvTouched	touched;

	if (!touched_by(location, len, &touched))
		return;
	pg_atomic_fetch_add_u64(&counts->errors, 1);
	for (int i = 0; i < touched.n; i++)
	{
		/* two processes may have kept it at the same time, each in another set */
		if (lose_block(cache_id, touched.first + i))
			(void) lose_block(cache_id, touched.first + i);
	}
}

static void
forget_blocks(uint32 cache_id, KvAddress address, uint64 len, KvForget why)
{
	if (set_count() == 0)
		return;
	for (uint64 blockno = address / KV_BLOCK; blockno < (address + len + KV_BLOCK - 1) / KV_BLOCK;
		 blockno++)
	{
		if (why == KV_FORGET_SHARED)
			cool_block(cache_id, blockno);
		else
			(void) lose_block(cache_id, blockno);
	}
}

/* The number of blocks entered since the start, and the number of those in use. */
static void
count_blocks(uint64 *entered, uint64 *used)
{
	uint64		changes = 0;
	/* read first: a block that is lost later counts as a change at most */
	uint64		lost = pg_atomic_read_u64(&counts->lost);

	*used = 0;
	for (uint64 set = 0; set < set_count(); set++)
	{
		for (int way = 0; way < KV_BLOCK_WAYS; way++)
		{
			KvBlockEntry *entry = &sets[set].entries[way];

			changes += pg_atomic_read_u64(&entry->sequence) / 2;
			*used += entry->cache_id != 0;
		}
	}
	*entered = changes - lost;
}

static void
get_stats(KvCacheStats *stats)
{
	uint64		entered;
	uint64		used;

	stats->block_size = KV_BLOCK;
	stats->dropped = KV_NO_COUNT;
	stats->enabled = set_count() > 0;
	if (!stats->enabled)
		return;
	count_blocks(&entered, &used);
	/* other processes may change the counters */
	stats->inserted = entered - Min(entered, pg_atomic_read_u64(&counts->entered_then));
	stats->evictions = pg_atomic_read_u64(&counts->used_then) + stats->inserted;
	stats->evictions -= Min(stats->evictions, used);
	stats->errors = pg_atomic_read_u64(&counts->errors);
	stats->size_bytes = set_count() * KV_BLOCK_WAYS * KV_BLOCK;
	stats->used_bytes = used * KV_BLOCK;
}

static void
reset_stats(void)
{
	uint64		entered;
	uint64		used;

	if (set_count() == 0)
		return;
	count_blocks(&entered, &used);
	pg_atomic_write_u64(&counts->entered_then, entered);
	pg_atomic_write_u64(&counts->used_then, used);
	pg_atomic_write_u64(&counts->errors, 0);
}

/* Is a tag among those? */
static bool
has_tag(const uint16 *tags, int n, uint16 tag)
{
	for (int i = 0; i < n; i++)
	{
		if (tags[i] == tag)
			return true;
	}
	return false;
}

/* Why is a block not cached? */
static KvMiss
why_not(uint32 cache_id, uint64 blockno)
{
	uint64		hash = hash_of(cache_id, blockno);
	const KvBlockSet *set = &sets[set_of_hash(hash)];

	if (has_tag(set->ghosts, KV_BLOCK_GHOSTS, tag_of(hash)))
		return KV_MISS_PROBATION;
	return has_tag(set->left, KV_BLOCK_LEFT, tag_of(hash)) ? KV_MISS_EVICTED : KV_MISS_ABSENT;
}

KvMiss
kv_block_why(uint32 cache_id, KvLocation location, uint32 len)
{
	KvTouched	touched;
	int			here = 0;

	if (set_count() == 0)
		return KV_MISS_OFF;
	if (!touched_by(location, len, &touched))
		return KV_MISS_OVERSIZED;
	for (int i = 0; i < touched.n; i++)
		here += holds(cache_id, touched.first + i);
	if (here == 0)
		return why_not(cache_id, touched.first);
	/* a process that was replacing an entry has finished since */
	return here == touched.n ? KV_MISS_BUSY : KV_MISS_PARTIAL;
}

bool
kv_block_takes(KvLocation location, uint32 len)
{
	KvTouched	touched;

	return touched_by(location, len, &touched);
}

const KvCache kv_value_cache = {
	.name = "value cache", .counter = KV_COUNT_CACHE_HITS,
	.asked = KV_ASKED_BLOCKS,
	.gucs = define_settings, .memory = block_memory, .attach = attach,
	.forget = forget_blocks,
	.room = capacity, .each = each_block, .warm = warm_block,
	.stats = get_stats, .stats_reset = reset_stats
};
