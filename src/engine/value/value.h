/*
 * value.h
 *		A value's bytes: its place in a value file, and its checksum (I 4).
 *
 * Descriptors are cached per process by the store's cache id (opening).  Takes no
 * lock.  A value that does not match is an ERROR (XX001) that names file, offset and
 * key.
 *
 * A value file (base/address.h):
 *
 *		(none) ──made──▸ OPEN ──next one made──▸ CLOSED ──nothing names it──▸ RETIRED ──▸ gone
 *
 *		OPEN	takes write buffers and large values, at KvShard.value_tail; at most one of a shard
 *		CLOSED	takes nothing more, but what was reserved in it may still be written
 *
 *		RETIRED	was a compaction input; not in the list, but somebody may go back to it
 *			(shard/retired.c)
 *
 * Open and closed ones are in the list of their shard (shard/valuefiles.c), which manifests and
 * images copy. A value file is made, and another closed, under the shard's extend_lock; the list
 * changes
 * under the shard's lock.  So the order is extend_lock, then lock, and no descriptor is
 * opened under the latter.
 *
 * Where a crash meets a value file ("killed": the page cache stays; "power": what was not
 * synced may be missing):
 *
 *		made, not in the list yet
 *			killed: no manifest lists it, no entry names it: it goes when the store has been
 *			recovered.  Power: the same; or it is missing.
 *		in the list, a write buffer opened in it
 *			killed: entries of write buffers and key logs name it, which puts it into the list.
 *			Power, at full: the image does not list it, so it goes; the WAL has its values.
 *			At keys: a BATCH that names it puts it into the list; its name and its values
 *			were made durable before their transaction committed, so if they are missing
 *			nobody sees them.  It goes when redo has ended without a BATCH.  At none: what of
 *			it is whole is salvaged.
 *		a large value reserved, not written; or written, without an entry
 *			nothing names it: dead bytes, or the tail goes back and they are given out again.
 *		closed, not cut, or cut half way
 *			a file that is longer than what is used of it does no harm.
 *		retired, before the manifest without it is there
 *			it is closed, as before.
 *		retired, behind that
 *			killed, at none: the image lists it, so it stays until the next one; or it does
 *			not, and it goes.  At full and keys, and after power: as the image says.
 *		released, shortened or not
 *			no image that counts lists it, and no redo begins where a record names it.
 *		cut, while an older manifest says that more was used
 *			what a write buffer had reserved and gave back: recovery takes the file's size.
 */
#ifndef KV_VALUE_H
#define KV_VALUE_H

#include "storage/fd.h"

#include "engine/base/types.h"
#include "engine/io/io.h"

/*
 * A value's checksum in two steps: all but its place, which can be done before there is one;
 * then that.  The second step is quick, and may be done under a lock.
 */
extern uint32 kv_value_crc_begin(const KvStoreKey *store, KvKey key,
								 const char *value, Size len);
extern uint32 kv_value_crc_finish(uint32 crc, KvLocation location, uint32 len);
/* The first step piece by piece: start, add the value's bytes in order, then its key. */
extern uint32 kv_value_crc_start(void);
extern uint32 kv_value_crc_add(uint32 crc, const char *bytes, Size len);
extern uint32 kv_value_crc_key(uint32 crc, const KvStoreKey *store, KvKey key);
/* At most so many bytes are left free so that a value touches fewer blocks. */
#define KV_VALUE_PADDING	(KV_BLOCK / 8)

/*
 * Where a value of this length goes in a file of which so many bytes are taken.  Whole
 * blocks start on a block, so a 4096-byte value is one device block.  Others start on one
 * if they touch fewer blocks then and little is left free for it: each read is shorter
 * by a block, and so is what the value cache keeps.
 */
static inline uint64
kv_value_position(uint64 used, Size len)
{
	uint64		at = TYPEALIGN(8, used);
	uint64		block = TYPEALIGN(KV_BLOCK, at);

	if (len > 0 && len % KV_BLOCK == 0)
		return block;
	if (len > 0 && block - at <= KV_VALUE_PADDING &&
		(at + len - 1) / KV_BLOCK - at / KV_BLOCK > (len - 1) / KV_BLOCK)
		return block;
	return at;
}
/* About how many bytes of a file a value of this length takes among others of its kind. */
static inline uint64
kv_value_footprint(Size len)
{
	Size		size = TYPEALIGN(8, len);
	Size		free = size > 0 ? KV_BLOCK % size : 0;

	if (len % KV_BLOCK == 0)
		return len;
	if (size <= KV_BLOCK && free <= KV_VALUE_PADDING)
		return KV_BLOCK / (KV_BLOCK / size);
	return size;
}
/*
 * This process's descriptor of a value file, good until it is trimmed or forgotten; opening
 * is the store's cache_id.  If the file is missing: with KV_IO_CREATE it is made, with
 * KV_IO_MISSING_OK the answer is -1, and without either it is an ERROR. KV_IO_FAIL_OK: -1, too, if
 * it cannot
 * be opened.  The file may go later:
 * then a read of it, which may have to open it again, has the result -ENOENT, and the next call
 * here finds it missing.
 */
extern File kv_value_file(const KvStoreKey *store, uint32 opening, KvFileId file, int flags);
/*
 * Likewise one with which the file is read through the page cache, and never written; -1 and errno:
 * it cannot be opened, with ENOENT because it is missing.
 */
extern File kv_value_cached_file(const KvStoreKey *store, uint32 opening, KvFileId file);
/* Make a value file, or open it if it is there; ERROR if that fails. */
extern File kv_value_make(const KvStoreKey *store, KvFileId file, KvIoKind kind);
/* Closes all of them if they are many; only where none is still to be used. */
extern void kv_value_trim(void);
extern void kv_value_forget(uint32 opening);	/* closes those of a store that goes away */
/*
 * A descriptor keeps its file's inode, and where the file has been removed its space.  So who
 * has removed value files, or a store, says so, and processes look from time to time, a second
 * apart, or at once where they have removed some themselves: kv_value_let_go closes what has
 * gone from where it was opened; only where none is still to be used.  Neither raises.
 */
extern void kv_value_say_gone(void);
extern void kv_value_let_go(void);
/*
 * Reads a value and compares it with its version.  NULL: it is right; else what is wrong,
 * and *err is the errno of a read that failed, or 0.  May trim descriptors.
 */
extern const char *kv_value_problem(const KvStoreKey *store, uint32 opening, KvKey key,
									const KvVersion *version, int *err);
/* Has a value that was read the checksum that its version says (I 4)? */
extern bool kv_value_matches(const KvStoreKey *store, KvKey key, const char *value,
							 const KvVersion *version);
/* Likewise; if not, that is reported at this level, which may be ERROR (I 11). */
extern bool kv_value_verify(const KvStoreKey *store, KvKey key, const char *value,
							const KvVersion *version, int level);

#endif							/* KV_VALUE_H */
