/*
 * scan.h
 *		Functions of scans for other modules; the scans themselves are declared in engine/rows.h.
 *
 * Locks: callers hold none, and none is held on return: a value may be read from the device.
 */
#ifndef KV_SCAN_H
#define KV_SCAN_H

#include "engine/base/types.h"
#include "engine/rows.h"

/*
 * Reads the value of a version, palloc'd, wherever it is now; the row's key is the caller's.
 * False: the version does not exist any more, and the caller starts again.
 */
extern bool kv_fetch_version(KvStore *store, KvKey key, const KvVersion *version, KvRow *row);
/*
 * Finds a version again: *version gets its present location and CRC, also those of a frozen one.
 * False: it does not exist any more.
 */
extern bool kv_version_again(KvStore *store, KvKey key, KvVersion *version);

#endif							/* KV_SCAN_H */
