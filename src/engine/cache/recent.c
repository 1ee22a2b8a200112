/*
 * recent.c
 *		The recent ring: the values that were last written to value files, in shared memory.
 *
 * Write buffers serve their values until they are written.  Then a buffer's image is copied to the
 * ring before it leaves the buffer, so there is no gap.  The ring consists of frames (frame.h) by
 * address, and the oldest frame is reused first.  So the ring has the values written last in each
 * shard, by whatever key readers ask for them.  Consumers that follow producers read nothing from
 * the device.
 *
 * Bits say which blocks of a frame are present.  They are set after the bytes are stored, and
 * cleared when the frame is reused.  At that time, blocks that were read in the ring go to the
 * value cache, and so do blocks that the write buffer has marked as hot.
 *
 * What a bulk load writes, after as many bytes as the ring holds, does not enter it: the load would
 * only push out what others have written (kv_source_bulk).
 *
 * The second tier's writer takes leaving frames.  It announces itself (kv_recent_attend), gets the
 * frames that leave next, and returns those that it has stored.  The ring knows nothing else about
 * it, and waits for no process.
 */
#include "postgres.h"

#include "storage/shmem.h"

#include "engine/base/shared.h"
#include "engine/base/types.h"
#include "engine/base/wait.h"
#include "engine/cache/frame.h"
#include "engine/cache/internal.h"
#include "engine/maintenance.h"
#include "engine/rows.h"

static int	recent_cache_mb;

/* In shared memory, before the frames. */
typedef struct KvRecent
{
	Latch	   *volatile taker; /* of the process that takes leaving frames, or NULL */
	pg_atomic_uint64 dropped;	/* frames that left before they were taken */
} KvRecent;

static KvRecent *recent;
static KvFrameRing ring;
static char *frame_bytes;

/* ---- shared memory ---- */

static uint32
frame_count(void)
{
	return Max(recent_cache_mb, 0) * (1024 * 1024 / KV_FRAME_SIZE);
}

static bool
check_recent_cache(int *value, void **extra, GucSource source)
{
	kv_share_check(value, &recent_cache_mb);
	return true;
}

static void
define_settings(void)
{
	kv_share_define("kvfdw.recent_ring",
					"Sets the size of the cache for values that were written last.",
					"-1: one eighth of kvfdw.memory; 0: no cache.",
					1, &recent_cache_mb, GUC_UNIT_MB, check_recent_cache);
}

static Size
ring_memory(void)
{
	if (frame_count() == 0)
		return 0;
	return add_size(MAXALIGN(sizeof(KvRecent)) + kv_frames_size(frame_count()),
					add_size(mul_size(frame_count(), KV_FRAME_SIZE), KV_BLOCK));
}

static void
attach(void)
{
	bool		found;
	char	   *memory;

	if (frame_count() == 0)
		return;
	memory = ShmemInitStruct("kvfdw recent ring", ring_memory(), &found);
	recent = (KvRecent *) memory;
	if (!found)
	{
		recent->taker = NULL;
		pg_atomic_init_u64(&recent->dropped, 0);
	}
	memory += MAXALIGN(sizeof(KvRecent));
	kv_frames_attach(&ring, memory, frame_count(), found);
	frame_bytes = (char *) TYPEALIGN(KV_BLOCK, memory + kv_frames_size(frame_count()));
}

static char *
bytes_of(uint32 frame)
{
	return frame_bytes + (Size) frame * KV_FRAME_SIZE;
}

/* ---- writing ---- */

/* Keeps in the value cache the blocks of a leaving frame that were read.  Lock held. */
static void
keep_wanted(uint32 i)
{
	KvFrame    *frame = &ring.frames[i];
	uint32		valid = pg_atomic_read_u32(&frame->valid);
	uint32		wanted = pg_atomic_read_u32(&frame->wanted);

	for (int block = 0; block < KV_FRAME_BLOCKS; block++)
	{
		KvAddress	address = frame->number * KV_FRAME_SIZE + block * KV_BLOCK;

		if ((wanted & valid & (1u << block)) != 0)
			kv_block_keep(frame->cache_id, KV_LOCATION_MAKE(0, address), KV_BLOCK,
						  bytes_of(i) + block * KV_BLOCK,
						  (wanted & kv_frame_cached(1u << block)) != 0);
	}
}

/* Reuses the oldest frame.  Lock held. */
static uint32
take_oldest(uint32 cache_id, uint64 number)
{
	uint32		oldest = ring.control->hand;

	if (ring.frames[oldest].cache_id != 0)
		pg_atomic_fetch_add_u64(&recent->dropped, 1);
	keep_wanted(oldest);
	if (oldest % KV_LEAVING_FRAMES == 0)
		kv_wake(recent->taker);
	return kv_frame_take(&ring, cache_id, number);
}

/* Stores blocks in a frame.  Lock held. */
static void
fill_frame(uint32 i, uint32 from, uint32 len, const char *bytes, KvHeat heat)
{
	uint32		blocks = kv_frame_blocks(from, len);
	uint32		wanted = heat == KV_COLD ? 0 : heat == KV_CACHED ? blocks | kv_frame_cached(blocks)
		: blocks;

	memcpy(bytes_of(i) + from, bytes, len);
	pg_write_barrier();
	pg_atomic_fetch_or_u32(&ring.frames[i].valid, blocks);
	if (wanted != 0)
		pg_atomic_fetch_or_u32(&ring.frames[i].wanted, wanted);
}

void
kv_recent_put(uint32 cache_id, KvAddress address, uint32 len, const char *bytes, KvHeat heat)
{
	Assert(address % KV_BLOCK == 0 && len % KV_BLOCK == 0);
	if (ring.control == NULL || len == 0)
		return;
	LWLockAcquire(&ring.control->lock, LW_EXCLUSIVE);
	for (uint32 done = 0; done < len;)
	{
		uint64		number = (address + done) / KV_FRAME_SIZE;
		uint32		from = (address + done) % KV_FRAME_SIZE;
		uint32		part = Min(len - done, KV_FRAME_SIZE - from);
		uint32		i = kv_frame_find(&ring, cache_id, number, 0);

		if (i == KV_NO_FRAME)
			i = take_oldest(cache_id, number);
		fill_frame(i, from, part, bytes + done, heat);
		done += part;
	}
	LWLockRelease(&ring.control->lock);
}

static void
warm_block(uint32 cache_id, KvAddress address, const char *block)
{
	uint64		number = address / KV_FRAME_SIZE;
	uint32		from = address % KV_FRAME_SIZE;
	uint32		i;

	if (ring.control == NULL)
		return;
	LWLockAcquire(&ring.control->lock, LW_EXCLUSIVE);
	i = kv_frame_find(&ring, cache_id, number, 0);
	if (i == KV_NO_FRAME && ring.frames[ring.control->hand].cache_id == 0)
		i = take_oldest(cache_id, number);

	/* blocks written since are newer */
	if (i != KV_NO_FRAME &&
		(pg_atomic_read_u32(&ring.frames[i].valid) & kv_frame_blocks(from, KV_BLOCK)) == 0)
		fill_frame(i, from, KV_BLOCK, block, KV_COLD);
	LWLockRelease(&ring.control->lock);
}

/* ---- leaving ---- */

void
kv_recent_attend(Latch *latch)
{
	recent->taker = latch;
}

/* The oldest one of so many parts of the ring is due to leave. */
#define KV_LEAVING_SHARE	4

int
kv_recent_oldest(KvLeaving *leaving, int most, char *bytes)
{
	uint32		hand = ring.control->hand;
	int			n = 0;

	for (uint32 passed = 0; passed < ring.n / KV_LEAVING_SHARE && n < most; passed++)
	{
		uint32		i = (hand + passed) % ring.n;
		const KvFrame *frame = &ring.frames[i];
		KvLeaving  *one = &leaving[n];

		one->frame = i;
		one->sequence = pg_atomic_read_u64(&ring.frames[i].sequence);
		pg_read_barrier();
		one->cache_id = frame->cache_id;
		one->number = frame->number;
		one->valid = pg_atomic_read_u32(&ring.frames[i].valid);
		if (one->sequence % 2 != 0 || one->cache_id == 0 || one->valid == 0)
			continue;
		pg_read_barrier();
		memcpy(bytes + (Size) n * KV_FRAME_SIZE, bytes_of(i), KV_FRAME_SIZE);
		pg_read_barrier();
		if (pg_atomic_read_u64(&ring.frames[i].sequence) == one->sequence)
			n++;
	}
	return n;
}

void
kv_recent_leave(const KvLeaving *leaving)
{
	KvFrame    *frame = &ring.frames[leaving->frame];

	LWLockAcquire(&ring.control->lock, LW_EXCLUSIVE);
	if (pg_atomic_read_u64(&frame->sequence) == leaving->sequence &&
		pg_atomic_read_u32(&frame->valid) == leaving->valid)
	{
		keep_wanted(leaving->frame);
		kv_frame_drop(&ring, leaving->frame);
	}
	LWLockRelease(&ring.control->lock);
}

/* ---- reading ---- */

/* Copies bytes out of one frame; false: some are missing. */
static bool
read_frame(uint32 cache_id, uint64 number, uint32 from, uint32 len, char *into)
{
	uint32		blocks = kv_frame_blocks(from, len);
	uint32		i = kv_frame_find(&ring, cache_id, number, blocks);
	KvFrame    *frame;
	uint64		sequence;

	if (i == KV_NO_FRAME)
		return false;
	frame = &ring.frames[i];
	sequence = pg_atomic_read_u64(&frame->sequence);
	pg_read_barrier();
	if (sequence % 2 != 0 || frame->number != number || frame->cache_id != cache_id ||
		(pg_atomic_read_u32(&frame->valid) & blocks) != blocks)
		return false;
	pg_read_barrier();
	memcpy(into, bytes_of(i) + from, len);
	pg_read_barrier();
	if (pg_atomic_read_u64(&frame->sequence) != sequence)
		return false;
	if ((pg_atomic_read_u32(&frame->wanted) & blocks) != blocks)
		pg_atomic_fetch_or_u32(&frame->wanted, blocks);
	return true;
}

KvMiss
kv_recent_why(uint32 cache_id, KvAddress address, uint32 len)
{
	KvMiss		why = KV_MISS_NONE;

	if (ring.control == NULL)
		return KV_MISS_OFF;
	for (uint32 done = 0; done < len;)
	{
		uint32		from = (address + done) % KV_FRAME_SIZE;
		uint32		part = Min(len - done, KV_FRAME_SIZE - from);
		KvMiss		here = kv_frame_why(&ring, cache_id, (address + done) / KV_FRAME_SIZE,
										kv_frame_blocks(from, part));

		why = kv_frame_whole(why, here);
		done += part;
	}
	return why;
}

void
kv_recent_wrong(void)
{
	pg_atomic_fetch_add_u64(&ring.control->errors, 1);
}

static void
get_stats(KvCacheStats *stats)
{
	stats->enabled = ring.control != NULL;
	stats->block_size = KV_FRAME_SIZE;
	stats->dropped = KV_NO_COUNT;
	kv_frames_stats(&ring, stats);
}

static void
reset_stats(void)
{
	kv_frames_stats_reset(&ring);
	if (recent != NULL)
		pg_atomic_write_u64(&recent->dropped, 0);
}

uint64
kv_recent_dropped(void)
{
	return recent != NULL ? pg_atomic_read_u64(&recent->dropped) : 0;
}

bool
kv_recent_on(void)
{
	return ring.control != NULL;
}

static uint64
capacity(void)
{
	return (uint64) ring.n * KV_FRAME_BLOCKS;
}

static void
each_block(void (*each) (void *arg, const KvCachedUnit *unit), void *arg)
{
	for (uint32 i = 0; i < ring.n; i++)
	{
		uint32		valid = pg_atomic_read_u32(&ring.frames[i].valid);

		for (int block = 0; valid != 0; block++, valid >>= 1)
		{
			KvCachedUnit unit = {
				.cache_id = ring.frames[i].cache_id,
				.number = ring.frames[i].number * KV_FRAME_BLOCKS + block, .recent = true
			};

			if (valid & 1)
				each(arg, &unit);
		}
	}
}

bool
kv_recent_read(uint32 cache_id, KvAddress address, uint32 len, char *into)
{
	if (ring.control == NULL || len == 0)
		return false;
	for (uint32 done = 0; done < len;)
	{
		uint64		number = (address + done) / KV_FRAME_SIZE;
		uint32		from = (address + done) % KV_FRAME_SIZE;
		uint32		part = Min(len - done, KV_FRAME_SIZE - from);

		if (!read_frame(cache_id, number, from, part, into + done))
			return false;
		done += part;
	}
	return true;
}

KvHeat
kv_recent_heat(uint32 cache_id, KvAddress address, uint32 len)
{
	KvHeat		heat = KV_CACHED;

	if (ring.control == NULL)
		return KV_COLD;
	for (uint32 done = 0; done < len;)
	{
		uint32		from = (address + done) % KV_FRAME_SIZE;
		uint32		part = Min(len - done, KV_FRAME_SIZE - from);
		uint32		blocks = kv_frame_blocks(from, part);
		uint32		i = kv_frame_find(&ring, cache_id, (address + done) / KV_FRAME_SIZE, blocks);
		uint32		wanted = i == KV_NO_FRAME ? 0 : pg_atomic_read_u32(&ring.frames[i].wanted);

		if ((wanted & blocks) != blocks)
			return KV_COLD;
		if ((wanted & kv_frame_cached(blocks)) != kv_frame_cached(blocks))
			heat = KV_READ_LATELY;
		done += part;
	}
	return heat;
}

bool
kv_recent_load(uint32 cache_id, KvAddress address, uint32 len)
{
	uint32		from = address % KV_FRAME_SIZE;
	uint32		part = Min(len, KV_FRAME_SIZE - from);
	uint32		i;

	if (ring.control == NULL || len == 0)
		return false;
	i = kv_frame_find(&ring, cache_id, address / KV_FRAME_SIZE, kv_frame_blocks(from, part));
	if (i == KV_NO_FRAME)
		return false;
	kv_load_bytes(bytes_of(i) + from, part);
	return true;
}

bool
kv_recent_may_have(uint32 cache_id, KvAddress address)
{
	return ring.control != NULL &&
		kv_frame_find(&ring, cache_id, address / KV_FRAME_SIZE, 0) != KV_NO_FRAME;
}

const KvCache kv_recent_ring = {
	.name = "recent ring", .counter = KV_COUNT_RECENT_HITS,
	.asked = KV_ASKED_RECENT, .never = 1 << KV_MISS_OVERSIZED | 1 << KV_MISS_PROBATION,
	.gucs = define_settings, .memory = ring_memory, .attach = attach,
	.room = capacity, .each = each_block, .warm = warm_block,
	.stats = get_stats, .stats_reset = reset_stats
};
