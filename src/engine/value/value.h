/*
 * value.h
 *		A value's bytes: its place in a value file, and its checksum (I 4).
 *
 * Descriptors are cached per process by the store's cache id (opening).  Takes no
 * lock.  A value that does not match is an ERROR (XX001) that names file, offset and
 * key.
 */
#ifndef KV_VALUE_H
#define KV_VALUE_H

#include "storage/fd.h"

#include "engine/base/types.h"

/*
 * A value's checksum in two steps: all but its place, which can be done before there is one;
 * then that.  The second step is quick, and may be done under a lock.
 */
extern uint32 kv_value_crc_begin(const KvStoreKey *store, KvKey key,
								 const char *value, Size len);
extern uint32 kv_value_crc_finish(uint32 crc, KvLocation location, uint32 len);
/*
 * This process's descriptor of a value file, good until it is trimmed or forgotten.  -1: it
 * is missing, and !create; it may have been replaced, so look the key up again.
 */
extern File kv_value_file(const KvStoreKey *store, uint32 opening, KvFileNo number, bool create);
/* Closes all of them if they are many; only where none is still to be used. */
extern void kv_value_trim(void);
extern void kv_value_forget(uint32 opening);	/* closes those of a store that goes away */
/*
 * Reads a value and compares it with its version.  NULL: it is right; else what is wrong,
 * and *err is the errno of a read that failed, or 0.  May trim descriptors.
 */
extern const char *kv_value_problem(const KvStoreKey *store, uint32 opening, KvKey key,
									const KvVersion *version, int *err);
/* Has a value that was read the checksum that its version says? */
extern bool kv_value_matches(const KvStoreKey *store, KvKey key, const char *value,
							 const KvVersion *version);
/* Likewise; ERROR if not. */
extern void kv_value_verify(const KvStoreKey *store, KvKey key, const char *value,
							const KvVersion *version);

#endif							/* KV_VALUE_H */
