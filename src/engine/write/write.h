/*
 * write.h
 *		One writer per key (I 2); what other modules need of writing, beside engine.h.
 *
 * Takes the shard's lock; none is held on entry.  May wait for memory, a write buffer or a
 * checkpointer, and serves interrupts meanwhile.
 */
#ifndef KV_WRITE_H
#define KV_WRITE_H

#include "engine/base/types.h"

/* Redo: a version that was logged. */
extern void kv_redo_version(KvStore *store, KvKey key, const KvVersion *version, KvForm form,
							uint32 crc, const char *value);
/* Redo: one whose value is in its file. */
extern void kv_redo_location(KvStore *store, KvKey key, const KvVersion *version);

#endif							/* KV_WRITE_H */
