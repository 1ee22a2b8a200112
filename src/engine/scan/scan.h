/*
 * scan.h
 *		What other rooms need of a scan; the scans themselves are in engine.h.
 *
 * No lock is held on entry, nor when it returns: a value may be read from the device.
 */
#ifndef KV_SCAN_H
#define KV_SCAN_H

#include "engine/base/types.h"
#include "engine/engine.h"

/* The value of a version, palloc'd, wherever it is now; the row's key is the caller's. */
extern void kv_fetch_version(KvStore *store, KvKey key, const KvVersion *version, KvRow *row);

#endif							/* KV_SCAN_H */
