/*
 * largevalue.h
 *		Addresses of new values: the open value file of a shard, large values, and the value
 *		files that are not durable yet.
 *
 * A value that is too large for a buffer is written to its value file at once, before its entry
 * (I 3).  An address is given out once (I 13).
 *
 * Locks: no lock is held, unless a comment says otherwise.  Errors: a full disk is an ERROR
 * (53100), and the open value file is unchanged then.
 */
#ifndef KV_LARGEVALUE_H
#define KV_LARGEVALUE_H

#include "engine/base/types.h"
#include "engine/shard/shard.h"

/*
 * Ensures that the open value file, which may be a new one, has capacity for a value of this length
 * or for a buffer.  False: there is no shared memory.  ERROR (53100) if the disk is full; the open
 * value file is unchanged then.
 */
extern bool kv_value_extend(KvStore *store, uint32 shard_id, Size len, bool for_buffer);
/*
 * Writes a value that is too large for a buffer, of the transaction xid.  *location is its
 * location, or 0: the shard is leaving the map, and nothing was written.  On return the direct
 * write is complete; without an entry for the value its space is dead.  False: there is no shared
 * memory.  ERROR if the value cannot be written.
 */
extern bool kv_value_write_large(KvStore *store, uint32 shard_id, KvForm form,
								 const char *value, Size len, uint64 xid,
								 KvLocation *location);
/*
 * In recovery and redo: an entry names these bytes, so adds their value file to the shard.  False:
 * there is no shared memory.  In recovery it is an ERROR if the value file does not exist.
 */
extern bool kv_value_claim(KvStore *store, uint32 shard_id, KvAddress address, Size len);

/*
 * Reserves consecutive addresses for up to n value files, each for a value of this length.  No
 * other process makes files there.  Returns the first address; *end follows the last.
 */
extern KvAddress kv_addresses_reserve(KvStore *store, uint32 shard_id, Size len, uint32 n,
									  KvAddress *end);
/* Gives back the last of the reserved addresses, where no file was made. */
extern void kv_addresses_return(KvStore *store, uint32 shard_id, KvAddress begin, KvAddress end);
/* Closes the shard's open value file, if it has one; the next value makes a new one. */
extern void kv_value_close(KvStore *store, uint32 shard_id);
/*
 * The same in two steps.  Returns the closed value file and its used bytes, for the second step,
 * which truncates it.  extend_lock held.
 */
extern KvAddress kv_value_close_uncut(KvStore *store, uint32 shard_id, uint64 *used);
extern void kv_value_cut(const KvStore *store, KvAddress address, uint64 used);
/* Closes a value file that is not where value files are made now (shard/move.c). */
extern void kv_value_leave(KvStore *store, uint32 shard_id);
/*
 * The shard has left the map: removes what a failed attempt to make its next value file has left.
 * No lock held; never raises.
 */
extern void kv_value_end(KvStore *store, uint32 shard_id);

/* A value file that may not be durable. */
typedef struct KvUnsynced
{
	KvFileId	file;
	bool		for_good;		/* no process will write to it any more */
	bool		named;			/* its name is durable */
} KvUnsynced;

/* Those of a shard, palloc'd.  Returns their number. */
extern int	kv_values_unsynced(KvStore *store, uint32 shard_id, KvUnsynced **files);
/* They were synced since, and so was the store's directory, if one was not named. */
extern void kv_values_synced(KvStore *store, uint32 shard_id, const KvUnsynced *files, int n);

#endif							/* KV_LARGEVALUE_H */
