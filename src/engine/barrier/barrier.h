/*
 * barrier.h
 *		No checkpoint completes before images have what it lets the WAL forget.
 *
 * No lock is held on entry.  What raises says so; a sync that fails is an ERROR, or
 * PANIC as data_sync_retry says.
 */
#ifndef KV_BARRIER_H
#define KV_BARRIER_H

#include "storage/spin.h"

#include "engine/base/types.h"
#include "engine/engine.h"

typedef struct KvBarrier
{
	slock_t		mutex;
	KvBarrierStats stats;		/* guarded by mutex */
} KvBarrier;

extern KvBarrier *kv_barrier;

extern void kv_barrier_init(void);	/* when its memory is made */
/*
 * Makes images of all shards that have changed since their last; adds to *stats.  covers: of
 * the images (durable/image.c).  ERROR if one cannot be made; those that were made count.
 * failed, unless NULL, is called for the store instead, and the others go on.
 */
extern void kv_barrier_flush(uint64 covers, KvBarrierStats *stats,
							 void (*failed) (const KvStoreKey *key));
/*
 * Redo has met a BARRIER record that ends at lsn and has this redo pointer.  failed: as above.  flushed is called when that can
 * come no more, before it is noted that images cover the record: the WAL before it is let go of.
 */
extern void kv_barrier_replay(uint64 lsn, uint64 redo, bool closing,
							  void (*failed) (const KvStoreKey *key), void (*flushed) (void));
extern PGDLLEXPORT void kv_barrier_main(Datum arg);

#endif							/* KV_BARRIER_H */
