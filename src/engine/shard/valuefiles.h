/*
 * valuefiles.h
 *		The list of a shard's value files, the volumes in which they are, and the tablespace.
 *
 * A value file is created OPEN (buffer/largevalue.c) and takes write buffers and large values until
 * one does not fit.  Then it is CLOSED, and the next one is created.  A shard has at most one open
 * value file; if it has none, it gets one with its next value.  Recovery adds a value file to the
 * list when it meets an entry that names it.  A value file that no entry names leaves the list
 * (obsolete.h).
 *
 * Locks: the caller holds the shard's lock, in exclusive mode where a comment begins with
 * "Exclusively", unless the comment says otherwise.  Functions of stores need no lock of a shard.
 */
#ifndef KV_VALUEFILES_H
#define KV_VALUEFILES_H

#include "engine/base/types.h"
#include "engine/format/format.h"
#include "engine/format/path.h"
#include "engine/shard/shard.h"

/* ---- valuefiles.c ---- */
/*
 * Of n items that begin with an address and are sorted by it: the index of the first one that has
 * this address or a greater one, or n.
 */
extern int	kv_first_from(const void *items, Size size, int n, KvAddress address);
/* The value file with this address; NULL: the list does not have it. */
extern KvShardValueFile *kv_value_file_find(const KvShard *shard, KvAddress address);
/*
 * Makes capacity for n more.  False: there is no memory.  The caller holds extend_lock exclusively,
 * or is the only process that knows the shard; it does not hold the shard's lock.
 */
extern bool kv_value_files_make_room(KvShard *shard, int n);
/*
 * Exclusively: adds a closed value file that the list does not have.  The list has capacity for it.
 */
extern KvShardValueFile *kv_value_file_add(KvShard *shard, const KvValueFile *value_file);
/* Exclusively: other shards list the value file, too; share bytes of it count as this shard's. */
extern void kv_value_file_divide(KvShard *shard, KvShardValueFile *value_file, uint64 share);
/* Exclusively: adds (or subtracts) bytes that are taken in the value file and are this shard's. */
extern void kv_value_file_grown(KvShard *shard, KvShardValueFile *value_file, int64 bytes);
/* Exclusively: makes the value file the open one; allocated is the size of its file. */
extern void kv_value_file_open(KvShard *shard, KvShardValueFile *value_file, uint64 allocated);
/* Exclusively: closes the open value file, if there is one.  No write buffer is open. */
extern void kv_value_file_close(KvShard *shard);
/* Exclusively: takes bytes of the open value file, or gives them back if negative. */
extern void kv_tail_move(KvStore *store, KvShard *shard, int64 bytes);
/*
 * The class of the next value file, if it is to hold a value of len bytes: its size is at least a
 * 24th of the shard and four times the value.  The class only rises, since each change takes a
 * volume, and volumes are few.  So the last value file that a shard has created has its highest
 * address.
 */
extern int	kv_value_file_next_class(const KvShard *shard, Size len);
/*
 * In recovery, without a lock: fills the list from an edit.  durable: the contents of the
 * value files are durable, too.  False: there is no memory.
 */
extern bool kv_value_files_load(KvShard *shard, const KvFileList *listed, bool durable);
/*
 * In recovery, without a lock: raises the used bytes of listed value files to those of another
 * list.
 */
extern void kv_value_files_use(KvShard *shard, const KvFileList *other);
/* Describes the shard's present state, as for an edit; the list is palloc'd. */
extern void kv_shard_describe(const KvShard *shard, KvFileList *listed);
extern void kv_value_files_free(KvShard *shard); /* no process uses the shard any more */
/*
 * After recovery of all shards: marks value files that several list SHARED.  Each of these shards
 * counts a share of the bytes as its own.  Takes the shards' locks.
 */
extern void kv_value_files_find_shared(KvStore *store);
/*
 * Requests a mark of the shard, to be made soon, with or without a checkpoint.  Takes the lock.  In
 * recovery it is made with the next DURABLE record.
 */
extern void kv_shard_want_mark(KvShard *shard);

/* Do obsolete value files wait for a mark that has not been made yet?  Lock held. */
static inline bool
kv_mark_is_awaited(const KvShard *shard)
{
	return shard->durable.number < shard->durable.awaited;
}


/* The values of all files but the open one need no sorting.  Lock held, exclusively. */
extern void kv_value_files_sorted(KvShard *shard);

/* Is it the shard's open value file? */
static inline bool
kv_value_file_is_open(const KvShard *shard, const KvShardValueFile *value_file)
{
	return value_file->value_file.address == shard->values.open;
}

/* The end of the bytes that are taken in a value file of the shard.  Lock held. */
static inline KvAddress
kv_value_file_end(const KvShard *shard, const KvShardValueFile *value_file)
{
	return kv_value_file_is_open(shard, value_file) ? shard->values.tail :
		value_file->value_file.address + value_file->value_file.used;
}

/*
 * The taken bytes of a value file that count as this shard's.  Each byte counts in one shard.  Lock
 * held.
 */
static inline uint64
kv_value_file_taken(const KvShard *shard, const KvShardValueFile *value_file)
{
	uint64		used = kv_value_file_end(shard, value_file) - value_file->value_file.address;

	return (value_file->value_file.flags & KV_VALUE_FILE_SHARED) ? Min(value_file->share, used)
		: used;
}

/* The taken bytes of the shard's value files; an estimate without the lock. */
static inline uint64
kv_shard_value_bytes(const KvShard *shard)
{
	return shard->values.bytes;
}

/* Exclusively: entries of this key log may name the address, which need not be in a value file. */
extern void kv_value_file_note_log(KvShard *shard, KvAddress address, uint32 log_number);
/* Exclusively: the transaction replaces or deletes a value that is in the value files. */
extern void kv_value_file_note_dead(KvStore *store, KvShard *shard, const KvVersion *version,
									uint64 xid);
/*
 * Exclusively: redo has written this version without looking up the version that it replaces.  Adds
 * the bytes of the shard that must be counted for this reason.
 */
extern void kv_shard_note_redone(KvShard *shard, const KvVersion *version);
/* Estimate of the live bytes of a value file; at most the used bytes.  Lock held. */
extern uint64 kv_value_file_live(const KvShard *shard, const KvShardValueFile *value_file);
/*
 * May the value file become a compaction input (I 14)?  It is closed, no transaction is running
 * that has reserved a large value in it, and all entries that name it are in runs.  horizon is
 * kv_xid_horizon().  Once true, the answer stays true.  A compaction sets KV_VALUE_FILE_INPUT under
 * the exclusive lock on value files for which this is true.  It clears the flag of those that are
 * not empty when it ends.  Lock held.
 */
extern bool kv_value_file_may_be_input(const KvShard *shard, const KvShardValueFile *value_file,
									   uint64 horizon);

/* ---- dying.c: the shard's lock is held, exclusively but for kv_dying_kept ---- */

/* horizon: a recent one. */
extern void kv_dying_add(KvDying *dying, uint64 bytes, uint64 xid, uint64 horizon);
extern void kv_dying_counted(KvDying *dying, uint64 sum);	/* all bytes up to sum were counted */
/* bytes that a snapshot may still see */
extern uint64 kv_dying_kept(const KvDying *dying, uint64 horizon);

/* ---- move.c; kv_store_follow and others are in engine/store.h ---- */
/* COMMIT: notes that the store is to follow to this tablespace.  Neither raises nor allocates. */
extern void kv_move_want(const KvStoreKey *key, Oid tablespace);
/* Makes the store follow, if that is noted; false: it is not.  On ERROR it stays noted. */
extern bool kv_move_begin(KvStore *store);
/* Replays the MOVE record that ends at lsn. */
extern void kv_move_redo(KvStore *store, Oid tablespace, uint64 lsn);
/*
 * The maintainer removes the directory of the store with this id in a tablespace, if the directory
 * is empty and takes no new value files.  Then the table file ceases to name it.
 */
extern void kv_space_leave(const KvStoreKey *key, uint64 id, Oid tablespace);
/*
 * Removes from the table file tablespaces where the store has no directory.  Does nothing if a
 * value file is missing that a shard lists: it may be in such a tablespace, whose link or file
 * system was not restored.
 */
extern void kv_spaces_tidy(KvStore *store);

/* ---- valuefiles.c ---- */
extern void kv_volume_gucs(void);	/* at load: defines settings of tests */
/* In recovery: marks the volumes free that have none of the files found. */
extern void kv_volumes_find(KvStore *store, const KvFound *found);
extern void kv_volume_note(KvStore *store, KvAddress address);	/* its volume is taken; 0: none */
/*
 * Takes a volume that no other shard has, nor gets before the store is opened again.  In redo it is
 * also one that no record still to be replayed names.  The volume is of the class, or, if that has
 * none, of a larger one.  0: there is none.
 */
extern uint32 kv_volume_take(KvStore *store, int class);

#endif							/* KV_VALUEFILES_H */
