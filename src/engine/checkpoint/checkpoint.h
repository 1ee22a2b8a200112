/*
 * checkpoint.h
 *		No checkpoint completes before images have what it lets the WAL forget.
 *
 * No lock is held on entry.  What raises says so; a sync that fails is an ERROR, or
 * PANIC as data_sync_retry says.
 */
#ifndef KV_CHECKPOINT_H
#define KV_CHECKPOINT_H

#include "storage/spin.h"

#include "engine/base/types.h"
#include "engine/engine.h"

typedef struct KvCheckpointer
{
	slock_t		mutex;
	KvCheckpointerStats stats;	/* guarded by mutex */
} KvCheckpointer;

extern KvCheckpointer *kv_checkpointer;

extern void kv_checkpointer_init(void); /* when its memory is made */
/*
 * Makes images of all shards that have changed since their last; adds to *stats.  covers: of
 * the images (durable/image.c).  ERROR if one cannot be made; those that were made count.
 * failed, unless NULL, is called for the store instead, and the others go on.
 */
extern void kv_checkpointer_flush(uint64 covers, KvCheckpointerStats *stats,
								  void (*failed) (const KvStoreKey *key));
/*
 * Redo has met a DURABLE record that ends at lsn and has this redo pointer. failed: as above.
 * flushed is called when that can come no more, before it is noted that images cover the record:
 * the WAL before it is let go of.
 */
extern void kv_checkpointer_replay(uint64 lsn, uint64 redo, bool closing,
								   void (*failed) (const KvStoreKey *key), void (*flushed) (void));
extern PGDLLEXPORT void kv_checkpointer_main(Datum arg);

#endif							/* KV_CHECKPOINT_H */
