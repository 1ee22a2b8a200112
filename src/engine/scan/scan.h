/*
 * scan.h
 *		What other modules need of a scan; the scans themselves are in engine.h.
 *
 * No lock is held on entry, nor when it returns: a value may be read from the device.
 */
#ifndef KV_SCAN_H
#define KV_SCAN_H

#include "engine/base/types.h"
#include "engine/engine.h"

/*
 * The value of a version, palloc'd, wherever it is now; the row's key is the caller's.
 * False: the version is gone, and the caller looks from the start.
 */
extern bool kv_fetch_version(KvStore *store, KvKey key, const KvVersion *version, KvRow *row);
/*
 * Where a version is now that was found earlier: *version gets its location and CRC, and
 * those of a frozen one.  False: there is none any more.
 */
extern bool kv_version_again(KvStore *store, KvKey key, KvVersion *version);

#endif							/* KV_SCAN_H */
