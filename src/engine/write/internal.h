/*
 * internal.h
 *		What locking a row (rowlock.c) and writing a version (write.c) share.
 */
#ifndef KV_WRITE_INTERNAL_H
#define KV_WRITE_INTERNAL_H

#include "nodes/lockoptions.h"

#include "engine/base/types.h"
#include "engine/index/memtable.h"
#include "engine/buffer/buffer.h"

/* How a key stands for one who wants a lock of some strength on it. */
typedef struct KvKeyState
{
	uint32		shard_id;		/* that has the key; its lock is held */
	bool		exists;			/* some version is finished or this transaction's */
	KvVersion	newest;			/* the newest such that is no LOCK */
	uint64		unfinished;		/* xid of another's conflicting write, or 0 */
	uint64		locked_by;		/* xid of another's conflicting LOCK, or 0 */
	int			held;			/* this transaction's own LockTupleMode, or -1 */
	KvMemtablePosition place;		/* in the active memtable */
} KvKeyState;

/* A version on its way into the store. */
typedef struct KvWrite
{
	KvVersion	version;
	KvForm		form;
	const char *value;
	uint32		crc;
	KvValueHome	placing;
	uint32		large_value_shard; /* whose value file has it, if it is a large value */
	/* refuse rather than wait for a checkpointer, a write buffer or memory … */
	bool		nowait;
	bool		refused;		/* … and this says that it was */
	TimestampTz waits_since;	/* for room that a compaction makes; 0: not yet */
	bool		waited;			/* too long, so it takes some all the same */
} KvWrite;

/* Returns with the lock of the shard that has the key, state->shardno, held exclusively. */
extern void kv_key_lookup(KvStore *store, KvKey key, LockTupleMode wanted, KvKeyState *state);
/* Let go of it. */
extern void kv_key_leave(const KvStore *store, const KvKeyState *state);

/*
 * Does what can be done without the shard's lock, which must not be held.  *write goes to
 * kv_write_finish, and once more after another kv_key_lookup if that returns false.  The value
 * is not copied: it must stay until then.
 */
extern void kv_write_prepare(KvStore *store, KvKey key, KvVersionKind kind, KvForm form,
							 const char *value, Size len, CommandId cid, KvWrite *write);

/*
 * Makes the write part of the shard.  state: from kv_key_lookup, the shard's lock being held
 * since, which is released.  False: the caller must look again, unless write->refused; at
 * most a value that no write buffer can hold was written to a value file.
 */
extern bool kv_write_finish(KvStore *store, KvKey key, KvWrite *write, KvKeyState *state);

/*
 * Is somebody in the row's queue (rowlock.c) whom one who wants this lock should let go
 * first?  Does not wait.
 */
extern bool kv_queue_is_used(const KvStore *store, KvKey key, LockTupleMode mode);

/* A row of the store was inserted, changed or deleted (changes.c). */
extern void kv_note_change(KvStore *store);

#endif							/* KV_WRITE_INTERNAL_H */
