/*
 * frame.h
 *		Rings of frames. A frame has 64 kB of addresses; the oldest frame is reused first.
 *
 *		FREE ──first block of its addresses──▸ FILLED ──dropped, or the hand reaches it──▸ FREE
 *
 * Callers: recent.c and tier.c.  No other module includes this file.
 * Locks: A process that changes frames holds the ring's lock.  Readers take none: they find the
 * frame, note its sequence (odd while the frame is given to other addresses), check the bits, read,
 * and compare the sequence.  The chain that leads to a frame may change during a search.  The
 * reader then finds nothing, or wrong bytes: it verifies them (I 4).
 */
#ifndef KV_FRAME_H
#define KV_FRAME_H

#include "port/atomics.h"
#include "storage/lwlock.h"

#include "engine/base/types.h"
#include "engine/maintenance.h"
#include "engine/rows.h"

#define KV_FRAME_BLOCKS	16
#define KV_FRAME_SIZE	(KV_FRAME_BLOCKS * KV_BLOCK)
#define KV_FRAME_ALL	((1u << KV_FRAME_BLOCKS) - 1)	/* the bits of all its blocks */
#define KV_NO_FRAME		PG_UINT32_MAX

typedef struct KvFrame
{
	/* odd: it is given to other addresses; 0: its place was never used */
	pg_atomic_uint64 sequence;
	uint64		number;			/* address / KV_FRAME_SIZE */
	uint32		cache_id;		/* of the store; 0: FREE */
	uint32		next;			/* in the chain of its bucket, or KV_NO_FRAME */
	pg_atomic_uint32 valid;		/* a bit for each block that is here */
	pg_atomic_uint32 wanted;	/* a bit for each block that is often used; see kv_frame_cached */
} KvFrame;

typedef struct KvFrameControl
{
	LWLock		lock;
	uint32		hand;			/* index of the oldest frame */
	uint64		entered;		/* frames filled since the last reset */
	uint64		used_then;		/* frames in use at the last reset */
	pg_atomic_uint64 errors;	/* values that failed verification */
} KvFrameControl;

/* A process's pointers to a ring. */
typedef struct KvFrameRing
{
	KvFrameControl *control;	/* NULL: there is no ring */
	uint32		n;
	KvFrame    *frames;
	pg_atomic_uint32 *buckets;	/* as many as frames: each the first frame of a chain */
	pg_atomic_uint32 *left;		/* for each bucket: the tag of what has left it last, or 0 */
} KvFrameRing;

/* The bits of the blocks that have these bytes of a frame. */
static inline uint32
kv_frame_blocks(uint32 from, uint32 len)
{
	uint32		first = from / KV_BLOCK;
	uint32		end = (from + len + KV_BLOCK - 1) / KV_BLOCK;

	return ((1u << end) - 1) & ~((1u << first) - 1);
}

/* The bits in wanted for blocks that replace some that were in the value cache. */
static inline uint32
kv_frame_cached(uint32 blocks)
{
	return blocks << KV_FRAME_BLOCKS;
}

/*
 * The reason for a value in several frames, of which the first ones have one reason (NONE: there is
 * no first one) and the next one has another.
 */
static inline KvMiss
kv_frame_whole(KvMiss first, KvMiss next)
{
	if (first == KV_MISS_NONE || first == next)
		return next;
	return first == KV_MISS_BUSY || next == KV_MISS_BUSY || next == KV_MISS_PARTIAL ?
		KV_MISS_PARTIAL : first;
}

/* The counters of a ring, in frames, and its present use; all 0 if there is none. */
extern void kv_frames_stats(const KvFrameRing *ring, KvCacheStats *stats);
extern void kv_frames_stats_reset(const KvFrameRing *ring);

/* bytes of shared memory for the frames of a ring, without their contents */
extern Size kv_frames_size(uint32 n);
/* Makes a ring there, or finds it. */
extern void kv_frames_attach(KvFrameRing *ring, char *memory, uint32 n, bool found);

/*
 * A frame of these addresses that has these blocks, or KV_NO_FRAME.  Without the lock it may have
 * been given to other addresses already.
 */
extern uint32 kv_frame_find(const KvFrameRing *ring, uint32 cache_id, uint64 number, uint32 blocks);
/* Why were bytes of this length not found there?  They are in one frame. */
extern KvMiss kv_frame_why(const KvFrameRing *ring, uint32 cache_id, uint64 number,
						   uint32 blocks);
/* Makes it FREE, if it is not.  Lock held, exclusively. */
extern void kv_frame_drop(const KvFrameRing *ring, uint32 frame);
/*
 * Gives the oldest frame to these addresses, some of which may be in another frame; moves the hand.
 * Lock held, exclusively.
 */
extern uint32 kv_frame_take(const KvFrameRing *ring, uint32 cache_id, uint64 number);
/* The place of a FREE frame is about to be written.  Lock held, exclusively. */
extern void kv_frame_use(const KvFrameRing *ring, uint32 frame);
/* Gives this frame to these addresses, if its place was never used.  Lock held, exclusively. */
extern bool kv_frame_enter(const KvFrameRing *ring, uint32 frame, uint32 cache_id, uint64 number);

#endif							/* KV_FRAME_H */
