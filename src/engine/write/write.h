/*
 * write.h
 *		Write path entry points for redo.  Regular writes are declared in engine/rows.h.
 *
 * At most one transaction writes a key at a time (I 2).
 *
 * Locks:  takes the shard's lock; none is held on entry.  Waits:  for memory, a write buffer or
 * the checkpointer; serves interrupts.
 */
#ifndef KV_WRITE_H
#define KV_WRITE_H

#include "engine/base/types.h"
#include "engine/version/version.h"

/* Redo a version that was logged with its value. */
extern void kv_redo_version(KvStore *store, KvKey key, const KvVersion *version, KvForm form,
							uint32 crc, const char *value);
/* Redo a version whose value is in its file. */
extern void kv_redo_location(KvStore *store, KvKey key, const KvVersion *version);
/*
 * In recovery, when the store's shards are recovered: write again what the version log carries of a
 * shard.  It is not logged again: it counts there until the shard's next mark.
 */
extern void kv_restore_carried(KvStore *store, uint32 shard_id, const KvCarried *carried);

#endif							/* KV_WRITE_H */
