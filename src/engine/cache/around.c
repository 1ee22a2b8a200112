/*
 * around.c
 *		What is read into the page cache beside a value, while memory lies idle.
 *
 * Values are written directly, so after a load, or after a compaction, the page cache has none of
 * them, however much memory is free; and reads by key would fill it block by block, each of
 * which waits for the device.  So as long as memory lies idle the first read of a piece takes
 * all of the piece to the page cache: that costs the device and the processor a few times what
 * one block costs, and saves as many reads as a piece has blocks.
 *
 * Where a compaction moves values that were read so, it has what it has written read there at once.
 *
 * Not of a table that is larger than all the memory: most pieces would be read for one value, and
 * for long each read would take as much longer.
 *
 * Nothing is driven out for that. With a sixteenth of the memory left, the machine's or the control
 * group's, it ends, and each read keeps no more than it asks for.  Who looks how much there is is
 * who comes first in each second.
 *
 * A table of tags says which pieces were read so lately. It may forget some, and take one for
 * another, for there are more pieces than tags: then a piece is asked for again, of which the
 * kernel finds that it
 * has all, or is not. And it forgets each in some minutes, for the kernel may have dropped what it
 * had.
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
#include "engine/cache/cache.h"
#include "engine/io/io.h"
#include "engine/io/machine.h"

#define KV_AROUND_KB		64		/* by default */
#define KV_MOST_AROUND_KB	1024
#define KV_IDLE_PART		16		/* of the memory is left idle */
#define KV_LEAST_TAGS		((uint64) 16 * 1024)
#define KV_MOST_TAGS		((uint64) 1024 * 1024)
#define KV_LOOK_US			INT64CONST(1000000)
#define KV_ERA_BITS			28		/* of microseconds: some minutes */

typedef struct KvAround
{
	uint64		memory;			/* that the server may use */
	uint32		ntags;			/* a power of two */
	pg_atomic_uint32 idle;		/* is there more than is to be left? */
	pg_atomic_uint64 looked_at;
	/* bits of a hash above, the low byte of an era below; 0: none */
	pg_atomic_uint32 tags[FLEXIBLE_ARRAY_MEMBER];
} KvAround;

static KvAround *around;
static int	around_kb = KV_AROUND_KB;
#ifdef KVFDW_FAULTS
static int	test_idle_mb = -1;
#endif

/* As many as pieces can be in memory, up to a point. */
static uint32
tag_count(uint64 memory)
{
	uint64		n = KV_LEAST_TAGS;

	while (n < KV_MOST_TAGS && n < memory / (KV_AROUND_KB * 1024))
		n *= 2;
	return n;
}

/* What the server may use.  Asked once, for the size of shared memory goes by it. */
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

void
kv_around_gucs(void)
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

Size
kv_around_memory(void)
{
	return add_size(offsetof(KvAround, tags),
					mul_size(tag_count(memory_there_is()), sizeof(pg_atomic_uint32)));
}

void
kv_around_attach(void)
{
	bool		found;

	around = ShmemInitStruct("kvfdw read around", kv_around_memory(), &found);
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
 * Is there memory for a table of so many bytes? By the clock, for one statement may read for long.
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

/* A piece's place in the table, and what is there while it was read lately. */
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

bool
kv_around_has(uint32 cache_id, KvAddress address)
{
	uint32		mark;
	pg_atomic_uint32 *place;

	if (around_kb == 0)
		return false;
	place = place_of(cache_id, address / (around_kb * 1024), kv_clock(), &mark);
	return was_read(place, mark);
}

bool
kv_around_moved(uint32 cache_id, KvAddress address, Size len, uint64 table_bytes)
{
	uint32		size = around_kb * 1024;
	TimestampTz now = kv_clock();

	if (size == 0 || !memory_is_idle(table_bytes))
		return false;
	for (uint64 piece = address / size; piece * size < address + len; piece++)
	{
		uint32		mark;
		pg_atomic_uint32 *place = place_of(cache_id, piece, now, &mark);

		pg_atomic_write_u32(place, mark);
	}
	return true;
}
