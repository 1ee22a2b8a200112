/*
 * around.c
 *		Reads the surroundings of a value into the page cache, while memory is unused.
 *
 * Values are written with direct I/O.  So after a load or a compaction the page cache has none of
 * them, however much memory is free.  Reads by key would fill it block by block, and each would
 * wait for the device.  So while memory is unused, the first read of a piece takes the whole piece
 * into the page cache.  That costs the device and the CPU a few times as much as one block, and
 * saves as many reads as a piece has blocks.
 *
 * When a compaction moves values that were read in this way, it reads its output into the page
 * cache at once.
 *
 * Tables larger than all memory are excluded: most pieces would be read for one value, and each
 * read would take longer for a long time.
 *
 * Nothing is evicted for such reads.  They end when a sixteenth of the memory is left, of the
 * machine or the control group; then each read keeps only what it asks for.  The first process in
 * each second checks how much memory is left.
 *
 * A table of tags remembers the pieces that were read recently.  There are more pieces than tags,
 * so the table may forget a piece, or take one for another.  Then a piece is read again, which the
 * kernel has already, or is not read.  Tags expire after some minutes, because the kernel may have
 * dropped the piece.
 */
#include "postgres.h"

#include <limits.h>

#include "port/atomics.h"
#include "storage/shmem.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "engine/base/hash.h"
#include "engine/base/types.h"
#include "engine/cache/internal.h"
#include "engine/io/io.h"
#include "engine/rows.h"
#include "engine/shard/shard.h"
#include "engine/shard/space.h"
#include "engine/value/value.h"

#define KV_AROUND_KB		64		/* the default */
#define KV_MOST_AROUND_KB	1024
#define KV_IDLE_PART		16		/* this part of the memory stays unused */
#define KV_LEAST_TAGS		((uint64) 16 * 1024)
#define KV_MOST_TAGS		((uint64) 1024 * 1024)
#define KV_LOOK_US			INT64CONST(1000000)
#define KV_ERA_BITS			28		/* an era has so many bits of microseconds: some minutes */

typedef struct KvAround
{
	uint64		memory;			/* memory that the server may use */
	uint32		ntags;			/* a power of two */
	pg_atomic_uint32 idle;		/* is more memory unused than must stay so? */
	pg_atomic_uint64 looked_at;
	/* upper bits of a hash, and the low byte of an era; 0: none */
	pg_atomic_uint32 tags[FLEXIBLE_ARRAY_MEMBER];
} KvAround;

static KvAround *around;
static int	around_kb = KV_AROUND_KB;
#ifdef KVFDW_FAULTS
static int	test_idle_mb = -1;
#endif

/* As many as pieces fit into memory, within limits. */
static uint32
tag_count(uint64 memory)
{
	uint64		n = KV_LEAST_TAGS;

	while (n < KV_MOST_TAGS && n < memory / (KV_AROUND_KB * 1024))
		n *= 2;
	return n;
}

/*
 * The memory that the server may use.  It is determined once, because the size of shared memory
 * depends on it.
 */
static uint64
memory_there_is(void)
{
	static uint64 memory = 0;

	if (memory == 0)
		memory = kv_machine_memory(KV_MACHINE_GROUPS, KV_MACHINE_ROOT);
	return memory;
}

static bool
check_around(int *value, void **extra, GucSource source)
{
	return *value % (KV_BLOCK / 1024) == 0;
}

static void
define_settings(void)
{
	DefineCustomIntVariable("kvfdw.read_around",
							"Sets the size of the piece that is read into the page cache together "
							"with a value.",
							"A multiple of 4 kB; 0: the blocks of the value only. Has effect "
							"while memory is unused, and for tables that fit into memory.",
							&around_kb, KV_AROUND_KB, 0, KV_MOST_AROUND_KB,
							PGC_SUSET, GUC_UNIT_KB, check_around, NULL, NULL);
#ifdef KVFDW_FAULTS
	DefineCustomIntVariable("kvfdw.test_idle",
							"Sets what stands for the memory of the machine, all of it unused.",
							"-1: the memory of the machine; 0: no memory is unused. For tests "
							"only.",
							&test_idle_mb, -1, -1, INT_MAX, PGC_SUSET, GUC_UNIT_MB, NULL, NULL,
							NULL);
#endif
}

static Size
tags_memory(void)
{
	return add_size(offsetof(KvAround, tags),
					mul_size(tag_count(memory_there_is()), sizeof(pg_atomic_uint32)));
}

static void
attach(void)
{
	bool		found;

	around = ShmemInitStruct("kvfdw read around", tags_memory(), &found);
	if (found)
		return;
	around->memory = memory_there_is();
	around->ntags = tag_count(around->memory);
	pg_atomic_init_u32(&around->idle, 0);
	pg_atomic_init_u64(&around->looked_at, 0);
	for (uint32 i = 0; i < around->ntags; i++)
		pg_atomic_init_u32(&around->tags[i], 0);
}

/*
 * Is there unused memory for a table of so many bytes?  Uses the clock, because one statement may
 * read for long.
 */
static bool
memory_is_idle(uint64 table_bytes)
{
	TimestampTz now;
	uint64		then;

#ifdef KVFDW_FAULTS
	if (test_idle_mb >= 0)
		return test_idle_mb > 0 && table_bytes <= (uint64) test_idle_mb * 1024 * 1024;
#endif
	if (table_bytes > around->memory)
		return false;
	now = kv_clock();
	then = pg_atomic_read_u64(&around->looked_at);
	if (now - (TimestampTz) then >= KV_LOOK_US &&
		pg_atomic_compare_exchange_u64(&around->looked_at, &then, now))
		pg_atomic_write_u32(&around->idle,
							kv_machine_idle(KV_MACHINE_GROUPS, KV_MACHINE_ROOT) > around->memory /
							KV_IDLE_PART);
	return pg_atomic_read_u32(&around->idle) != 0;
}

/* The tag of a piece in the table, and its value if the piece is read now. */
static pg_atomic_uint32 *
place_of(uint32 cache_id, uint64 piece, TimestampTz now, uint32 *mark)
{
	uint64		hash = kv_hash_number(piece, cache_id);

	*mark = ((uint32) (hash >> 32) & ~0xffu) | ((uint32) (now >> KV_ERA_BITS) & 0xff);
	return &around->tags[(uint32) hash & (around->ntags - 1)];
}

static bool
was_read(pg_atomic_uint32 *place, uint32 mark)
{
	uint32		had = pg_atomic_read_u32(place);

	return had != 0 && (had & ~0xffu) == (mark & ~0xffu) && (uint8) (mark - had) < 2;
}

uint32
kv_around_begin(uint32 cache_id, KvAddress address, uint64 table_bytes)
{
	uint32		size = around_kb * 1024;
	uint32		mark;
	pg_atomic_uint32 *place;

	if (size == 0)
		return 0;
	place = place_of(cache_id, address / size, kv_clock(), &mark);
	if (was_read(place, mark) || !memory_is_idle(table_bytes))
		return 0;
	pg_atomic_write_u32(place, mark);
	return size;
}

static bool
is_used(void)
{
	return kv_io_page_cache;
}

/* Was the piece with this value read recently? */
static bool
had(uint32 cache_id, KvLocation from, uint32 len)
{
	KvAddress	address = KV_LOCATION_ADDRESS(from);
	uint32		mark;
	pg_atomic_uint32 *place;

	if (around_kb == 0)
		return false;
	place = place_of(cache_id, address / (around_kb * 1024), kv_clock(), &mark);
	return was_read(place, mark);
}

/* Reads values that were just moved into the page cache, while memory is unused. */
static bool
take_moved(KvStore *store, KvAddress address, const char *blocks, Size len, bool most)
{
	uint32		size = around_kb * 1024;
	TimestampTz now = kv_clock();
	File		file;

	if (!most || size == 0 || !memory_is_idle(kv_space_taken(store)))
		return false;
	for (uint64 piece = address / size; piece * size < address + len; piece++)
	{
		uint32		mark;
		pg_atomic_uint32 *place = place_of(store->cache_id, piece, now, &mark);

		pg_atomic_write_u32(place, mark);
	}
	file = kv_value_cached_file(&store->key, store->cache_id, kv_file_of(address));
	if (file >= 0)
		kv_io_want_pages(file, kv_offset_of(address), len);
	return true;
}

const KvCache kv_page_pieces = {
	.asked = KV_ASKED,
	.gucs = define_settings, .memory = tags_memory, .attach = attach,
	.mover = {is_used, 0, had, take_moved}
};
