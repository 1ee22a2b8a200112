/*
 * frame.h
 *		Frames: 64 kB of addresses each, in rings of which the oldest frame makes room.
 *		For recent.c and tier.c.
 *
 *		FREE ──first block of its addresses comes──▸ FILLED ──dropped, or the hand comes round──▸
 *		FREE
 *
 * Who changes frames holds the ring's lock.  Readers take none: they look for the frame,
 * note its sequence, odd while it changes hands, look at the bits, read, and look again.
 * The chain that leads to a frame may change below a reader, who then finds nothing, or
 * bytes that are not what he wants: he verifies them (I 4).
 */
#ifndef KV_FRAME_H
#define KV_FRAME_H

#include "port/atomics.h"
#include "storage/lwlock.h"

#include "engine/base/types.h"
#include "engine/engine.h"

#define KV_FRAME_BLOCKS	16
#define KV_FRAME_SIZE	(KV_FRAME_BLOCKS * KV_BLOCK)
#define KV_FRAME_ALL	((1u << KV_FRAME_BLOCKS) - 1)	/* the bits of its blocks */
#define KV_NO_FRAME		PG_UINT32_MAX

typedef struct KvFrame
{
	pg_atomic_uint64 sequence;	/* odd: it changes hands; 0: its place was never used */
	uint64		number;			/* address / KV_FRAME_SIZE */
	uint32		cache_id;		/* of the store; 0: FREE */
	uint32		next;			/* in the chain of its bucket, or KV_NO_FRAME */
	pg_atomic_uint32 valid;		/* a bit for each block: it is here … */
	pg_atomic_uint32 wanted;	/* … and was read, or is read often; see kv_frame_cached */
} KvFrame;

typedef struct KvFrameControl
{
	LWLock		lock;
	uint32		hand;			/* the oldest frame */
	uint64		entered;		/* frames that came, since somebody has set it to 0 … */
	uint64		used_then;		/* … when there were so many */
	pg_atomic_uint64 errors;	/* values read in the ring that were other ones */
} KvFrameControl;

/* A process's way to a ring. */
typedef struct KvFrameRing
{
	KvFrameControl *control;	/* NULL: there is none */
	uint32		n;
	KvFrame    *frames;
	pg_atomic_uint32 *buckets;	/* as many as frames: the first one of a chain */
} KvFrameRing;

/* The bits of the blocks that so many bytes of a frame touch. */
static inline uint32
kv_frame_blocks(uint32 from, uint32 len)
{
	uint32		first = from / KV_BLOCK;
	uint32		behind = (from + len + KV_BLOCK - 1) / KV_BLOCK;

	return ((1u << behind) - 1) & ~((1u << first) - 1);
}

/* The bits in wanted which say that blocks replace some that were in the value cache. */
static inline uint32
kv_frame_cached(uint32 blocks)
{
	return blocks << KV_FRAME_BLOCKS;
}

/* Counts of a ring, in frames, and what it has; all 0 if there is none. */
extern void kv_frames_stats(const KvFrameRing *ring, KvTierRow *row);
extern void kv_frames_stats_reset(const KvFrameRing *ring);

/* of shared memory for the frames of a ring, not their bytes */
extern Size kv_frames_size(uint32 n);
/* Make a ring there, or find it. */
extern void kv_frames_attach(KvFrameRing *ring, char *memory, uint32 n, bool found);

/*
 * A frame of these addresses that has these blocks, or KV_NO_FRAME.  Without the lock it may
 * have become another's.
 */
extern uint32 kv_frame_find(const KvFrameRing *ring, uint32 cache_id, uint64 number, uint32 blocks);
/* FREE it, if it is not.  Lock, exclusive. */
extern void kv_frame_drop(const KvFrameRing *ring, uint32 frame);
/*
 * Give the oldest frame to these addresses, of which some may be in another; the hand goes on.
 * Lock, exclusive.
 */
extern uint32 kv_frame_take(const KvFrameRing *ring, uint32 cache_id, uint64 number);
/* The place of a FREE frame is about to be written.  Lock, exclusive. */
extern void kv_frame_use(const KvFrameRing *ring, uint32 frame);
/* Give this frame to these addresses, if its place was never used.  Lock, exclusive. */
extern bool kv_frame_enter(const KvFrameRing *ring, uint32 frame, uint32 cache_id, uint64 number);

#endif							/* KV_FRAME_H */
