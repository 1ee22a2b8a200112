/*
 * frame.c
 *		Rings of frames; frame.h is the contract.
 */
#include "postgres.h"

#include "engine/base/hash.h"
#include "engine/base/shared.h"
#include "engine/cache/frame.h"
#include "engine/maintenance.h"
#include "engine/rows.h"

#define KV_FRAME_STEPS	16		/* maximum length of a chain that a reader follows */

Size
kv_frames_size(uint32 n)
{
	return MAXALIGN(sizeof(KvFrameControl)) + MAXALIGN(n * sizeof(KvFrame)) +
		2 * MAXALIGN(n * sizeof(pg_atomic_uint32));
}

void
kv_frames_attach(KvFrameRing *ring, char *memory, uint32 n, bool found)
{
	ring->control = (KvFrameControl *) memory;
	ring->n = n;
	ring->frames = (KvFrame *) (memory + MAXALIGN(sizeof(KvFrameControl)));
	ring->buckets = (pg_atomic_uint32 *) ((char *) ring->frames + MAXALIGN(n * sizeof(KvFrame)));
	ring->left = (pg_atomic_uint32 *) ((char *) ring->buckets +
									   MAXALIGN(n * sizeof(pg_atomic_uint32)));
	if (found)
		return;
	memset(memory, 0, kv_frames_size(n));
	LWLockInitialize(&ring->control->lock, kv_tranche_room);
	pg_atomic_init_u64(&ring->control->errors, 0);
	for (uint32 i = 0; i < n; i++)
	{
		pg_atomic_init_u64(&ring->frames[i].sequence, 0);
		pg_atomic_init_u32(&ring->frames[i].valid, 0);
		pg_atomic_init_u32(&ring->frames[i].wanted, 0);
		ring->frames[i].next = KV_NO_FRAME;
		pg_atomic_init_u32(&ring->buckets[i], KV_NO_FRAME);
		pg_atomic_init_u32(&ring->left[i], 0);
	}
}

static uint64
used_frames(const KvFrameRing *ring)
{
	uint64		used = 0;

	for (uint32 i = 0; i < ring->n; i++)
		used += ring->frames[i].cache_id != 0;
	return used;
}

void
kv_frames_stats(const KvFrameRing *ring, KvCacheStats *stats)
{
	uint64		used;

	if (ring->control == NULL)
		return;
	LWLockAcquire(&ring->control->lock, LW_SHARED);
	used = used_frames(ring);
	stats->inserted = ring->control->entered;
	stats->evictions = ring->control->used_then + ring->control->entered - used;
	LWLockRelease(&ring->control->lock);
	stats->errors = pg_atomic_read_u64(&ring->control->errors);
	stats->size_bytes = (uint64) ring->n * KV_FRAME_SIZE;
	stats->used_bytes = used * KV_FRAME_SIZE;
}

void
kv_frames_stats_reset(const KvFrameRing *ring)
{
	if (ring->control == NULL)
		return;
	LWLockAcquire(&ring->control->lock, LW_EXCLUSIVE);
	ring->control->entered = 0;
	ring->control->used_then = used_frames(ring);
	LWLockRelease(&ring->control->lock);
	pg_atomic_write_u64(&ring->control->errors, 0);
}

static uint32
bucket_number(const KvFrameRing *ring, uint64 hash)
{
	return ((uint64) (uint32) hash * ring->n) >> 32;
}

static pg_atomic_uint32 *
bucket_of(const KvFrameRing *ring, uint32 cache_id, uint64 number)
{
	return &ring->buckets[bucket_number(ring, kv_hash_number(number, cache_id))];
}

/* The tag of a frame that has left: bits of its hash that have not chosen the bucket. */
static uint32
tag_of(uint64 hash)
{
	return Max((uint32) (hash >> 32), 1);
}

uint32
kv_frame_find(const KvFrameRing *ring, uint32 cache_id, uint64 number, uint32 blocks)
{
	uint32		i = pg_atomic_read_u32(bucket_of(ring, cache_id, number));

	for (int steps = 0; i < ring->n && steps < KV_FRAME_STEPS; steps++)
	{
		KvFrame    *frame = &ring->frames[i];

		if (frame->number == number && frame->cache_id == cache_id &&
			(pg_atomic_read_u32(&frame->valid) & blocks) == blocks)
			return i;
		i = frame->next;
	}
	return KV_NO_FRAME;
}

KvMiss
kv_frame_why(const KvFrameRing *ring, uint32 cache_id, uint64 number, uint32 blocks)
{
	uint64		hash = kv_hash_number(number, cache_id);
	uint32		i = kv_frame_find(ring, cache_id, number, 0);

	/* a process that fills the frame has stored the blocks since */
	if (kv_frame_find(ring, cache_id, number, blocks) != KV_NO_FRAME)
		return KV_MISS_BUSY;
	if (i != KV_NO_FRAME && (pg_atomic_read_u32(&ring->frames[i].valid) & blocks) != 0)
		return KV_MISS_PARTIAL;
	if (i == KV_NO_FRAME &&
		pg_atomic_read_u32(&ring->left[bucket_number(ring, hash)]) == tag_of(hash))
		return KV_MISS_EVICTED;
	return KV_MISS_ABSENT;
}

static void
leave_chain(const KvFrameRing *ring, uint32 i)
{
	uint64		hash = kv_hash_number(ring->frames[i].number, ring->frames[i].cache_id);
	pg_atomic_uint32 *bucket = &ring->buckets[bucket_number(ring, hash)];
	uint32		before = pg_atomic_read_u32(bucket);

	pg_atomic_write_u32(&ring->left[bucket_number(ring, hash)], tag_of(hash));
	if (before == i)
	{
		pg_atomic_write_u32(bucket, ring->frames[i].next);
		return;
	}
	while (ring->frames[before].next != i)
		before = ring->frames[before].next;
	ring->frames[before].next = ring->frames[i].next;
}

/* Its sequence is even before and after, and changes. */
static void
give_to(KvFrame *frame, uint32 cache_id, uint64 number)
{
	uint64		sequence = pg_atomic_read_u64(&frame->sequence);

	pg_atomic_write_u64(&frame->sequence, sequence + 1);
	pg_write_barrier();
	pg_atomic_write_u32(&frame->valid, 0);
	pg_atomic_write_u32(&frame->wanted, 0);
	frame->cache_id = cache_id;
	frame->number = number;
	pg_write_barrier();
	pg_atomic_write_u64(&frame->sequence, sequence + 2);
}

void
kv_frame_drop(const KvFrameRing *ring, uint32 i)
{
	Assert(LWLockHeldByMeInMode(&ring->control->lock, LW_EXCLUSIVE));
	if (ring->frames[i].cache_id == 0)
		return;
	leave_chain(ring, i);
	give_to(&ring->frames[i], 0, 0);
}

/* Gives a frame that is in no chain to these addresses. */
static void
give_and_chain(const KvFrameRing *ring, uint32 i, uint32 cache_id, uint64 number)
{
	KvFrame    *frame = &ring->frames[i];
	pg_atomic_uint32 *bucket = bucket_of(ring, cache_id, number);

	give_to(frame, cache_id, number);
	ring->control->entered++;
	frame->next = pg_atomic_read_u32(bucket);
	pg_write_barrier();
	pg_atomic_write_u32(bucket, i);
}

uint32
kv_frame_take(const KvFrameRing *ring, uint32 cache_id, uint64 number)
{
	uint32		i = ring->control->hand;

	Assert(LWLockHeldByMeInMode(&ring->control->lock, LW_EXCLUSIVE));
	ring->control->hand = (i + 1) % ring->n;
	if (ring->frames[i].cache_id != 0)
		leave_chain(ring, i);
	give_and_chain(ring, i, cache_id, number);
	return i;
}

void
kv_frame_use(const KvFrameRing *ring, uint32 i)
{
	Assert(LWLockHeldByMeInMode(&ring->control->lock, LW_EXCLUSIVE));
	pg_atomic_fetch_add_u64(&ring->frames[i].sequence, 2);
}

bool
kv_frame_enter(const KvFrameRing *ring, uint32 i, uint32 cache_id, uint64 number)
{
	Assert(LWLockHeldByMeInMode(&ring->control->lock, LW_EXCLUSIVE));
	if (pg_atomic_read_u64(&ring->frames[i].sequence) != 0)
		return false;
	give_and_chain(ring, i, cache_id, number);
	return true;
}
