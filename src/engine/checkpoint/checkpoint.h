/*
 * checkpoint.h
 *		Ensures that no checkpoint completes before what the WAL may then forget is durable.
 *
 * Locks:  none is held on entry.  Errors: as the functions say.  A failed sync is an ERROR, or
 * PANIC if data_sync_retry is off.
 */
#ifndef KV_CHECKPOINT_H
#define KV_CHECKPOINT_H

#include "storage/spin.h"

#include "engine/base/types.h"
#include "engine/maintenance.h"

typedef struct KvCheckpointer
{
	slock_t		mutex;
	KvCheckpointerStats stats;	/* guarded by mutex; its checkpoints count since the start */
	uint64		checkpoints_then;	/* checkpoints before the last reset; guarded by mutex */
	uint32		rounds;			/* calls of kv_checkpointer_flush, by any process; the same */
} KvCheckpointer;

extern KvCheckpointer *kv_checkpointer;

extern void kv_checkpointer_init(void); /* called when its memory is created */
extern void kv_checkpointer_stats_reset(void);	/* the count of checkpoints restarts at 0 */
/*
 * Make marks of all shards that have changed since their last; adds to *stats.  covers: of the
 * marks (durable/mark.c).  ERROR if one cannot be made; the marks that were made count.  If
 * failed is not NULL, it is called for the store instead, and the other stores are processed.
 */
extern void kv_checkpointer_flush(uint64 covers, KvCheckpointerStats *stats,
								  void (*failed) (const KvStoreKey *key));
/*
 * Redo has met a DURABLE record that ends at lsn and has this redo pointer.  failed: as above.
 * flushed is called after the last call of failed, before the control file says that marks
 * cover the record, because the WAL before it may then be removed.
 */
extern void kv_checkpointer_replay(uint64 lsn, uint64 redo, bool closing,
								   void (*failed) (const KvStoreKey *key), void (*flushed) (void));
extern PGDLLEXPORT void kv_checkpointer_main(Datum arg);

#endif							/* KV_CHECKPOINT_H */
