/*
 * internal.h
 *		Shared by locking a row (rowlock.c) and writing a version (write.c).
 */
#ifndef KV_WRITE_INTERNAL_H
#define KV_WRITE_INTERNAL_H

#include "nodes/lockoptions.h"

#include "engine/base/types.h"
#include "engine/index/memtable.h"
#include "engine/buffer/buffer.h"

/* The state of a key for a process that wants to lock it in some mode. */
typedef struct KvKeyState
{
	uint32		shard_id;		/* the shard of the key; its lock is held */
	bool		exists;			/* there is a version that is finished or this transaction's */
	KvVersion	newest;			/* the newest such version that is no LOCK */
	uint64		unfinished;		/* xid of another transaction's conflicting write, or 0 */
	uint64		locked_by;		/* xid of another transaction's conflicting LOCK, or 0 */
	int			held;			/* this transaction's own LockTupleMode, or -1 */
	KvMemtablePosition place;		/* in the active memtable */
} KvKeyState;

/* A version that is being written. */
typedef struct KvWrite
{
	KvVersion	version;
	KvForm		form;
	const char *value;
	uint32		crc;
	KvValueHome	placing;
	uint32		large_value_shard; /* the shard whose value file has it, if it is a large value */
	/* refuse rather than wait for the checkpointer, a write buffer or memory */
	bool		nowait;
	bool		refused;		/* the write was refused */
	TimestampTz waits_since;	/* when it began to wait for space; 0: it did not */
	bool		waited;			/* it has waited too long, so it uses space nevertheless */
	bool		restored;		/* the version log has it, so it is not logged */
} KvWrite;

/* Returns with the lock of the key's shard, state->shard_id, held exclusively. */
extern void kv_key_lookup(KvStore *store, KvKey key, LockTupleMode wanted, KvKeyState *state);
/* Release that lock. */
extern void kv_key_leave(const KvStore *store, const KvKeyState *state);

/*
 * Do the part of a write that does not need the shard's lock, which must not be held.  *write
 * is passed to kv_write_finish, and again after another kv_key_lookup if that returns false.
 * The value is not copied: it must stay until then.
 */
extern void kv_write_prepare(KvStore *store, KvKey key, KvVersionKind kind, KvForm form,
							 const char *value, Size len, CommandId cid, KvWrite *write);

/*
 * Add the write to the shard.  state: from kv_key_lookup; the shard's lock has been held since,
 * and is released.  False: the caller must look again, unless write->refused; at most a value
 * that fits into no write buffer was written to a value file.
 */
extern bool kv_write_finish(KvStore *store, KvKey key, KvWrite *write, KvKeyState *state);

/*
 * Does a session in the row's queue (rowlock.c) have precedence over one that wants this lock?
 * Does not wait.
 */
extern bool kv_queue_is_used(const KvStore *store, KvKey key, LockTupleMode mode);

/* Count a row of the store that was inserted, changed or deleted (write.c). */
extern void kv_note_change(KvStore *store);

#endif							/* KV_WRITE_INTERNAL_H */
