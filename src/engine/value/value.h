/*
 * value.h
 *		Values: their position in a value file, their checksum (I 4), and their files.
 *
 * Descriptors are cached per process by the store's cache id (opening).  Locks:  takes none.
 * Errors: a value that does not match is an ERROR (XX001) that names file, offset and key.
 *
 * States of a value file (base/types.h):
 *
 *		(none) ──made──▸ OPEN ──next one made──▸ CLOSED ──nothing names it──▸ RETIRED ──▸ gone
 *
 *		OPEN	takes write buffers and large values, at KvShard.values.tail; at most one of a shard
 *		CLOSED	takes nothing more, but reserved parts may still be written
 *		RETIRED	was a compaction input; not in the list, but a recovery may go back to it
 *				(shard/obsolete.c)
 *
 * Open and closed value files are in the list of their shard (shard/valuefiles.c), which edits of
 * the version log copy.  A value file is made, and another closed, under the shard's
 * extend_lock; the list changes under the shard's lock.  So the order is extend_lock, then
 * lock, and no descriptor is opened under the latter.
 *
 * A value file at a crash ("killed": the page cache stays; "power": unsynced bytes may be
 * missing):
 *
 *		made, not in the list yet
 *			killed: no edit lists it and no entry names it, so it is removed when the store
 *			was recovered.  Power: the same; or it is missing.
 *		in the list, a write buffer opened in it
 *			killed: entries of write buffers and key logs name it, which puts it into the
 *			list.  Power, at full: the mark does not list it, so it is removed; the WAL has
 *			its values.  At keys: a BATCH that names it puts it into the list; its name and
 *			its values were made durable before their transaction committed, so if they are
 *			missing no snapshot sees them.  It is removed when redo has ended without a
 *			BATCH.  At none: its valid values are salvaged.
 *		a large value reserved, not written; or written, without an entry
 *			no entry names it: its bytes are dead, or the tail goes back before them and
 *			they are used again.
 *		closed, not cut, or cut half way
 *			a file that is longer than its used part does no harm.
 *		obsolete, before the edit without it is appended
 *			it is closed, as before.
 *		obsolete, after that
 *			killed, at none: if the mark lists it, it stays until the next one; else it is
 *			removed.  At full and keys, and after power: as the mark says.
 *		released, shortened or not
 *			no mark that counts lists it, and no redo begins where a record names it.
 *		cut, while an older edit says that more was used
 *			a write buffer had reserved space and returned it: recovery takes the file's size.
 */
#ifndef KV_VALUE_H
#define KV_VALUE_H

#include "storage/fd.h"

#include "engine/base/types.h"
#include "engine/io/io.h"

/*
 * A value's checksum in two steps: first over all but its location, which can be done before
 * there is one; then over the location.  The second step is quick, and may be done under a
 * lock.
 */
extern uint32 kv_value_crc_begin(const KvStoreKey *store, KvKey key,
								 const char *value, Size len);
extern uint32 kv_value_crc_finish(uint32 crc, KvLocation location, uint32 len);
/* The checksum that a complete one becomes if the value moves; its bytes are not needed. */
extern uint32 kv_value_crc_moved(uint32 crc, KvLocation from, KvLocation to, uint32 len);
/* The first step piece by piece: start, add the value's bytes in order, then its key. */
extern uint32 kv_value_crc_start(void);
extern uint32 kv_value_crc_add(uint32 crc, const char *bytes, Size len);
extern uint32 kv_value_crc_key(uint32 crc, const KvStoreKey *store, KvKey key);
/* At most so many bytes are left unused so that a value touches fewer blocks. */
#define KV_VALUE_PADDING	(KV_BLOCK / 8)

/*
 * The position of a value of this length in a file of which so many bytes are used.  Values of
 * whole blocks start on a block, so a 4096-byte value is one device block.  Others start on one
 * if they then touch fewer blocks and little is left unused: each read is shorter by a block,
 * and so is the entry in the value cache.
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
/* About how many bytes of a file does a value of this length use, among others of its length? */
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
 * This process's descriptor of a value file, good until it is trimmed or forgotten; opening is
 * the store's cache_id.
 *
 * If the file is missing: with KV_IO_CREATE it is created, with KV_IO_MISSING_OK the result is
 * -1, and without either it is an ERROR.  KV_IO_FAIL_OK: -1, too, if it cannot be opened.
 *
 * The file may be removed later.  Then a read of it, which may have to open it again, has the
 * result -ENOENT, and the next call here finds it missing.
 */
extern File kv_value_file(const KvStoreKey *store, uint32 opening, KvFileId file, int flags);
/*
 * A descriptor for reading the file through the page cache, and never for writing; -1 with
 * errno: it cannot be opened, with ENOENT because it is missing.
 */
extern File kv_value_cached_file(const KvStoreKey *store, uint32 opening, KvFileId file);
/* Create a value file, or open it if it exists; ERROR if that fails. */
extern File kv_value_make(const KvStoreKey *store, KvFileId file, KvIoKind kind);
/* Close all descriptors if they are many; only called where none is in use. */
extern void kv_value_trim(void);
extern void kv_value_forget(uint32 opening);	/* closes those of a store that is removed */
/*
 * A descriptor keeps its file's inode, and the space of a removed file.  So a process that has
 * removed value files, or a store, calls kv_value_say_gone, and processes check from time to
 * time: a second apart, or at once if they have removed some themselves.  kv_value_let_go
 * closes files that were removed or moved; only called where none is in use.  Neither raises.
 */
extern void kv_value_say_gone(void);
extern void kv_value_let_go(void);
/*
 * Read a value and compare it with its version.  NULL: it matches; else the problem, and *err
 * is the errno of a failed read, or 0.  May trim descriptors.
 */
extern const char *kv_value_problem(const KvStoreKey *store, uint32 opening, KvKey key,
									const KvVersion *version, int *err);
/* Has a value that was read the checksum of its version (I 4)? */
extern bool kv_value_matches(const KvStoreKey *store, KvKey key, const char *value,
							 const KvVersion *version);
/* The same; a mismatch is reported at this level, which may be ERROR (I 11). */
extern bool kv_value_verify(const KvStoreKey *store, KvKey key, const char *value,
							const KvVersion *version, int level);

#endif							/* KV_VALUE_H */
