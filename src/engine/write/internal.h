/*
 * internal.h
 *		Shared by locking a row (rowlock.c), writing a version (write.c), and writing versions of
 *		many keys (many.c).
 */
#ifndef KV_WRITE_INTERNAL_H
#define KV_WRITE_INTERNAL_H

#include "nodes/lockoptions.h"

#include "engine/base/types.h"
#include "engine/buffer/buffer.h"
#include "engine/index/memtable.h"
#include "engine/rows.h"
#include "engine/shard/map.h"
#include "engine/shard/shard.h"
#include "engine/xact/xact.h"

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
	bool		stored;			/* in a write buffer, and logged; a row lock may be neither */
} KvWrite;

/*
 * Returns with the lock of the key's shard, state->shard_id, held exclusively.  seen: from
 * kv_scan_seen, or NULL.
 */
extern void kv_key_lookup(KvStore *store, KvKey key, LockTupleMode wanted, const KvSeen *seen,
						  KvKeyState *state);
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
 * ---- many keys at once ----
 *
 * A statement that writes many rows looks them up together, and then puts one version after the
 * other.  Those of level 'full' are logged together:
 *
 *		kv_keys_below(store, keys, n, mode, below);
 *		kv_many_begin(&many, store);
 *		for each key, in the statement's order:
 *			kv_many_reach(&many, keys[i], mode, &below[i], &state), and judge the state
 *			kv_many_put(&many, keys[i], &writes[i], &state)
 *		kv_many_end(&many);
 *
 * If a key's turn fails, or its state is not as hoped, the statement calls kv_many_end and does
 * this key as it does a single one.  So the order of keys, and what is waited for, is as without
 * this.  Between begin and end a caller does nothing that may wait.  An ERROR in between leaves
 * versions without a record, of a transaction that aborts.
 */

#define KV_MANY		64			/* at most so many keys */

/* What the runs have of a key: found without the shard's lock. */
typedef struct KvBelow
{
	KvRoute		route;
	uint32		generation;		/* of the shard, when its runs were searched */
	bool		exists;			/* the rest as in KvKeyState */
	int			held;
	uint64		unfinished;
	uint64		locked_by;
	KvVersion	newest;
} KvBelow;

typedef struct KvMany
{
	KvStore    *store;
	KvShard    *locked;			/* the shard whose lock is held, or NULL */
	bool		wakes;			/* a memtable has become full */
	int			n;				/* versions that are put and not logged */
	KvUnlogged	unlogged[KV_MANY];
} KvMany;

/* Search the runs for up to KV_MANY keys.  No lock is held. */
extern void kv_keys_below(KvStore *store, const KvKey *keys, int n, LockTupleMode wanted,
						  KvBelow *below);
/* The same of a key whose runs were seen.  False: it is in another shard now. */
static inline bool
kv_seen_below(const KvSeen *seen, KvRoute route, KvBelow *below)
{
	below->route = route;
	below->generation = seen->generation;
	below->exists = true;
	below->newest = seen->version;
	below->held = -1;
	below->unfinished = below->locked_by = 0;
	return route.shard_id == seen->shard_id;
}

/* Nothing is locked yet. */
extern void kv_many_begin(KvMany *many, KvStore *store);
/*
 * Get the state of the next key.  True: its shard's lock is held exclusively.  False: it must be
 * looked up again, since its shard has changed.
 */
extern bool kv_many_reach(KvMany *many, KvKey key, LockTupleMode wanted, const KvBelow *below,
						  KvKeyState *state);
/*
 * Put a version of the key that was just reached, as kv_write_finish does.  False: nothing was
 * done, because that would have to wait, or write to a file.
 */
extern bool kv_many_put(KvMany *many, KvKey key, KvWrite *write, KvKeyState *state);
/* Release the lock, if one is held, and log what was put. */
extern void kv_many_end(KvMany *many);

/* The parts of kv_key_lookup and kv_write_finish that these functions use (write.c). */
extern void kv_key_below(const KvShard *shard, const KvRunSet *set, KvRunVersions *walk,
						 LockTupleMode wanted, KvBelow *below);
extern void kv_key_state(KvShard *shard, KvKey key, LockTupleMode wanted, const KvBelow *below,
						 KvKeyState *state);
/* Nothing is missing: put the version.  False: there is no memory for the memtable. */
extern bool kv_write_put(KvStore *store, KvKey key, KvWrite *write, KvKeyState *state);
/* Can the version be put now?  May open a write buffer. */
extern bool kv_write_is_ready(KvStore *store, uint32 shard_id, KvKey key, const KvWrite *write);
/* Must the version that was just put be logged by its writer? */
extern bool kv_write_is_logged(KvStore *store, uint32 shard_id, const KvWrite *write);

/*
 * Does a session in the row's queue (rowlock.c) have precedence over one that wants this lock?
 * Does not wait.
 */
extern bool kv_queue_is_used(const KvStore *store, KvKey key, LockTupleMode mode);

/* Count rows of the store that were inserted, changed or deleted (write.c). */
extern void kv_note_changes(KvStore *store, uint64 n);

static inline void
kv_note_change(KvStore *store)
{
	kv_note_changes(store, 1);
}
/* ---- fed.c ---- */
/* Are this transaction's changes of the store for logical decoding?  See kv_store_feed. */
extern bool kv_is_fed(const KvStore *store);
extern void kv_fed_forget(void);	/* at the end of the transaction */

#endif							/* KV_WRITE_INTERNAL_H */
