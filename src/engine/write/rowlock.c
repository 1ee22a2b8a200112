/*
 * rowlock.c
 *		Locks, changes and deletes a row that a statement has found, or one that a process which
 *		must not wait expects.
 *
 * A statement aims at a version: the one its snapshot sees, or one it has locked.  If that is
 * the key's newest, it is locked or changed under the same hold of the shard's lock.  If other
 * transactions write or lock the row, the statement waits for them and looks again.  If the row
 * has been changed since, the versions after the aim tell what a heap tuple's xmax and ctid
 * would:
 *
 *  - A PUT: the row was updated.
 *  - A DELETE: the row was deleted, whatever was inserted at its key afterwards, unless the
 *    DELETE's form is KEY.  Then its value is the row's new key, and the row's version there
 *    has the DELETE's xid and command id.
 *
 * READ COMMITTED follows the row; stricter levels raise an error.
 *
 * The queue.  A session that waits for a row holds a heavyweight tuple lock, on a hash of the
 * key instead of a ctid, from before its wait until it has the row.  So waiting sessions get
 * the row in the order in which they came.  As on heap, a session that need not wait does not
 * queue: an uninterrupted sequence of share locks holds a writer up.  A session that has the
 * row locked already does not queue for a stronger lock: it would wait for sessions that wait
 * for it.
 */
#include "postgres.h"

#include "access/xact.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "storage/itemptr.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "utils/rel.h"

#include "compat.h"
#include "engine/base/shared.h"
#include "engine/base/types.h"
#include "engine/index/memtable.h"
#include "engine/io/fault.h"
#include "engine/maintenance.h"
#include "engine/rows.h"
#include "engine/scan/scan.h"
#include "engine/shard/shard.h"
#include "engine/write/internal.h"
#include "engine/xact/xact.h"

/* ---- the queue ---- */

typedef struct KvQueue
{
	Relation	rel;
	LockWaitPolicy policy;
	LOCKMODE	lockmode;
	ItemPointerData place;		/* stands for the key */
	bool		joined;
} KvQueue;

static void
raise_not_available(Relation rel)
{
	ereport(ERROR,
			(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
			 errmsg("could not obtain lock on row in relation \"%s\"",
					RelationGetRelationName(rel))));
}

static const LOCKMODE queue_modes[] = {
	[LockTupleKeyShare] = AccessShareLock,
	[LockTupleShare] = RowShareLock,
	[LockTupleNoKeyExclusive] = ExclusiveLock,
	[LockTupleExclusive] = AccessExclusiveLock,
};

static void
set_place(ItemPointer place, KvKey key)
{
	uint64		hash = hash_bytes_extended(key.data, key.len, 0);

	ItemPointerSet(place, hash % MaxBlockNumber, (hash >> 32) % (PG_UINT16_MAX - 1) + 1);
}

bool
kv_queue_is_used(const KvStore *store, KvKey key, LockTupleMode mode)
{
	ItemPointerData place;
	LOCKTAG		tag;

	set_place(&place, key);
	SET_LOCKTAG_TUPLE(tag, store->key.dboid, store->key.relid,
					  ItemPointerGetBlockNumber(&place), ItemPointerGetOffsetNumber(&place));
	if (LockAcquire(&tag, queue_modes[mode], false, true) == LOCKACQUIRE_NOT_AVAIL)
		return true;
	(void) LockRelease(&tag, queue_modes[mode], false);
	return false;
}

/* Join the row's queue.  False: there is another session, and the policy is to skip. */
static bool
join_queue(KvQueue *queue, KvKey key, LockTupleMode mode)
{
	queue->lockmode = queue_modes[mode];
	set_place(&queue->place, key);
	if (queue->policy == LockWaitBlock)
		LockTuple(queue->rel, &queue->place, queue->lockmode);
	else if (!kv_conditional_lock_tuple(queue->rel, &queue->place, queue->lockmode,
										queue->policy == LockWaitError))
	{
		if (queue->policy == LockWaitError)
			raise_not_available(queue->rel);
		return false;
	}
	queue->joined = true;
	return true;
}

static void
leave_queue(KvQueue *queue)
{
	if (queue->joined)
		UnlockTuple(queue->rel, &queue->place, queue->lockmode);
	queue->joined = false;
}

/*
 * Wait for another transaction to end.  PostgreSQL detects deadlocks among sessions that wait
 * for xids.  False: skip.
 */
static bool
wait_for(KvQueue *queue, uint64 xid)
{
	if (queue->policy == LockWaitBlock)
	{
		XactLockTableWait((TransactionId) xid, queue->rel, NULL, XLTW_None);
		KV_STOP_POINT("row_waited_for");
	}
	else if (!kv_conditional_xact_wait((TransactionId) xid, queue->policy == LockWaitError))
	{
		if (queue->policy == LockWaitError)
			raise_not_available(queue->rel);
		return false;
	}
	return true;
}

/* ---- later versions of a row ---- */

/* The version that a statement means. */
typedef struct KvAim
{
	KvKey		key;
	Snapshot	snapshot;		/* not NULL: the version that it sees */
	bool		locked;			/* else, if true: the newest, unless written since command cid */
	uint64		xid;			/* else: the version that this transaction has put */
	CommandId	cid;			/* with this command */
	bool		newer;			/* no longer the one that the statement's snapshot saw */
	const KvSeen *seen;			/* what its scan has seen of the key; NULL: not known any more */
} KvAim;

/* The versions after the aim: finished ones, and this transaction's own. */
typedef struct KvTrail
{
	bool		reached;		/* the aim was found below */
	bool		followed;
	KvVersion	next;			/* the version directly after the aim */
	KvVersion	newest;
	bool		deleted;
	KvVersion	deletion;		/* the first after the aim */
	bool		exclusive;		/* the writer of next had locked the row FOR UPDATE */
} KvTrail;

/* Is this DELETE one half of a change of key?  Then its value is the row's new key. */
static bool
has_moved(const KvVersion *deletion)
{
	return KV_LOCATION_FORM(deletion->location) == KV_FORM_KEY;
}

static bool
is_aim(const KvAim *aim, KvVersion *version, uint32 incarnation)
{
	if (aim->snapshot != NULL)
	{
		KvView		view = {aim->snapshot, NULL};

		return kv_version_visible(version, &view, incarnation);
	}
	if (aim->locked)
		return version->xid == 0 || version->cid < aim->cid ||
			!kv_xid_is_mine(version->xid);
	return version->xid == aim->xid && version->cid == aim->cid &&
		version->kind == KV_VERSION_PUT;
}

/* Note one version, newer ones first.  True: that is the aim. */
static bool
note_version(KvTrail *trail, const KvAim *aim, KvVersion version, uint32 incarnation)
{
	if (version.kind == KV_VERSION_LOCK)
	{
		if (trail->followed && version.xid == trail->next.xid &&
			version.cid == LockTupleExclusive)
			trail->exclusive = true;
		return false;
	}
	if (is_aim(aim, &version, incarnation))
	{
		trail->reached = true;
		return true;
	}
	if (version.xid != 0 && !kv_version_is_mine(version.xid, incarnation) &&
		(version.status == KV_XID_UNKNOWN ? kv_xid_status(version.xid, incarnation) :
		 version.status) != KV_XID_COMMITTED)
		return false;
	trail->next = version;
	if (!trail->followed)
		trail->newest = version;
	trail->followed = true;
	if (version.kind == KV_VERSION_DELETE)
	{
		trail->deleted = true;
		trail->deletion = version;
	}
	return false;
}

static bool
note_chain(KvTrail *trail, const KvAim *aim, const KvMemtable *memtable)
{
	KvMemtableItem *item = kv_memtable_find(memtable, aim->key.data, aim->key.len);
	dsa_pointer pointer = item ? item->newest : InvalidDsaPointer;

	while (DsaPointerIsValid(pointer))
	{
		KvMemtableVersion *node = kv_address(pointer);

		if (note_version(trail, aim, node->version, kv_incarnations->current))
			return true;
		pointer = node->older;
	}
	return false;
}

/* Find all versions after the aim. */
static void
trace_row(KvStore *store, const KvAim *aim, KvTrail *trail)
{
	KvShard    *shard;
	const KvRunSet *set;
	KvRunVersions walk;
	KvVersion	version;
	uint32		incarnation;
	bool		reached;

	set = kv_key_view(store, aim->key, &shard);
	memset(trail, 0, sizeof(*trail));
	reached = note_chain(trail, aim, &shard->active) ||
		note_chain(trail, aim, &shard->immutable);
	LWLockRelease(&shard->lock);

	kv_run_versions_begin(&walk, set, aim->key);
	while (!reached && kv_run_versions_next(&walk, &version, &incarnation))
		reached = note_version(trail, aim, version, incarnation);
}

/*
 * Determine what has become of the row that is aimed at.  DONE: it is unchanged, or the aim has
 * been moved to its newest version (*moved).
 */
static KvRowResult
follow_row(KvStore *store, KvAim *aim, LockTupleMode mode, CommandId cid, bool *moved)
{
	KvTrail		trail;
	KvRow		row;

	*moved = false;
	trace_row(store, aim, &trail);
	if (!trail.reached)
		return KV_ROW_GONE;
	if (!trail.followed)
		return KV_ROW_DONE;
	if (trail.next.xid != 0 && kv_xid_is_mine(trail.next.xid))
		return trail.next.cid > cid ? KV_ROW_CHANGED_LATER : KV_ROW_GONE;

	/* a KEY SHARE lock is compatible with updates that left the key unchanged */
	if (mode != LockTupleKeyShare || trail.deleted || trail.exclusive)
	{
		if (IsolationUsesXactSnapshot())
			return trail.next.kind == KV_VERSION_DELETE && !has_moved(&trail.next) ?
				KV_ROW_DELETED : KV_ROW_UPDATED;
		aim->newer = true;
	}
	if (trail.deleted && has_moved(&trail.deletion) &&
		!kv_fetch_version(store, aim->key, &trail.deletion, &row))
		return follow_row(store, aim, mode, cid, moved);
	*moved = true;
	aim->snapshot = NULL;
	aim->locked = false;
	if (!trail.deleted)
	{
		aim->xid = trail.newest.xid;
		aim->cid = trail.newest.cid;
	}
	else if (has_moved(&trail.deletion))
	{
		aim->key.data = (const uint8 *) row.value;
		aim->key.len = row.len;
		aim->xid = trail.deletion.xid;
		aim->cid = trail.deletion.cid;
	}
	else
		return KV_ROW_GONE;
	return KV_ROW_DONE;
}

/* ---- reaching a row ---- */

/*
 * Wait until nothing conflicts with a lock on the row that is aimed at.  DONE: the shard's lock
 * is held exclusively and the aim is the newest version; the row is not locked yet unless
 * state->held says so.  cid is the command's.
 */
static KvRowResult
reach_row(KvStore *store, KvAim *aim, LockTupleMode mode, CommandId cid,
		  KvQueue *queue, KvKeyState *state)
{
	for (;;)
	{
		const uint8 *key = aim->key.data;
		KvRowResult result;
		uint64		wait;
		bool		moved;

		CHECK_FOR_INTERRUPTS();
		kv_key_lookup(store, aim->key, mode, aim->seen, state);
		wait = state->unfinished != 0 ? state->unfinished : state->locked_by;
		if (wait == 0 && state->exists && state->newest.kind == KV_VERSION_PUT &&
			is_aim(aim, &state->newest, kv_incarnations->current))
		{
			if (!aim->newer || state->newest.cid < cid || !kv_xid_is_mine(state->newest.xid))
				return KV_ROW_DONE;

			/* changed by other transactions first, then by this one */
			kv_key_leave(store, state);
			return state->newest.cid > cid ? KV_ROW_CHANGED_LATER : KV_ROW_GONE;
		}
		kv_key_leave(store, state);

		aim->seen = NULL;
		/* check first whether the row can still be locked: if not, do not wait */
		result = follow_row(store, aim, mode, cid, &moved);
		if (result != KV_ROW_DONE)
			return result;
		if (aim->key.data != key)
			leave_queue(queue);
		else if (!moved && wait != 0 &&
				 ((!queue->joined && state->held < 0 && !join_queue(queue, aim->key, mode)) ||
				  !wait_for(queue, wait)))
			return KV_ROW_SKIPPED;
	}
}

/* ---- locking and changing a row ---- */

/* The version that a statement wants to add to its row. */
typedef struct KvChange
{
	KvVersionKind kind;
	LockTupleMode mode;
	KvForm		form;
	const char *value;
	Size		len;
	CommandId	cid;			/* of the statement */
} KvChange;

static void
prepare_change(KvStore *store, KvKey key, KvVersionKind kind, const KvChange *change,
			   KvWrite *write)
{
	if (kind == KV_VERSION_LOCK)
		kv_write_prepare(store, key, kind, KV_FORM_RAW, NULL, 0,
						 (CommandId) change->mode, write);
	else
		kv_write_prepare(store, key, kind, change->form, change->value,
						 change->len, change->cid, write);
}

/*
 * Make the change if there is no version after the aim; else only lock the row's newest
 * version.
 */
static KvRowResult
change_row(KvStore *store, KvAim *aim, const KvChange *change, KvQueue *queue, KvRow *newer)
{
	KvWrite		write;
	KvKey		prepared = aim->key;
	KvKeyState	state;

	prepare_change(store, aim->key, change->kind, change, &write);
	for (;;)
	{
		KvRowResult result = reach_row(store, aim, change->mode, change->cid, queue, &state);
		KvVersionKind kind = aim->newer ? KV_VERSION_LOCK : change->kind;

		if (result != KV_ROW_DONE)
			return result;
		if (aim->locked && state.held < 0)
		{
			kv_key_leave(store, &state);
			elog(ERROR, "row to change is not locked by this transaction");
		}
		if (kind == KV_VERSION_LOCK && state.held >= (int) change->mode)
		{
			kv_key_leave(store, &state);
			break;
		}
		if (prepared.data != aim->key.data || write.version.kind != kind)
		{
			kv_key_leave(store, &state);
			prepare_change(store, aim->key, kind, change, &write);
			prepared = aim->key;
			continue;
		}
		if (kv_write_finish(store, aim->key, &write, &state))
			break;
	}
	if (!aim->newer)
		return KV_ROW_DONE;
	if (!kv_fetch_version(store, aim->key, &state.newest, newer))
		return change_row(store, aim, change, queue, newer);
	return KV_ROW_NEWER;
}

static KvRowResult
do_row(KvStore *store, Relation rel, KvKey key, Snapshot snapshot, const KvChange *change,
	   LockWaitPolicy policy, const KvSeen *seen, KvRow *newer)
{
	KvQueue		queue = {.rel = rel, .policy = policy};
	KvAim		aim = {.key = key, .snapshot = snapshot, .seen = seen};
	KvRowResult result;

	aim.locked = snapshot == NULL;
	aim.cid = change->cid;
	result = change_row(store, &aim, change, &queue, newer);
	leave_queue(&queue);
	return result;
}

KvRowResult
kv_lock_row(KvStore *store, Relation rel, KvKey key, Snapshot snapshot, LockTupleMode mode,
			LockWaitPolicy policy, CommandId cid, const KvSeen *seen, KvRow *newer)
{
	KvChange	change = {.kind = KV_VERSION_LOCK, .mode = mode, .cid = cid};

	return do_row(store, rel, key, snapshot, &change, policy, seen, newer);
}

KvRowResult
kv_update(KvStore *store, Relation rel, KvKey key, Snapshot snapshot, KvForm form,
		  const char *value, Size len, CommandId cid, KvRow *newer)
{
	KvChange	change = {KV_VERSION_PUT, LockTupleNoKeyExclusive, form, value, len, cid};
	KvRowResult result = do_row(store, rel, key, snapshot, &change, LockWaitBlock, NULL,
								newer);

	if (result == KV_ROW_DONE)
	{
		kv_stat_add(store, KV_COUNT_UPDATES, 1);
		kv_note_change(store);
		kv_stat_add(store, KV_COUNT_VALUE_BYTES, len);
	}
	return result;
}

KvRowResult
kv_delete(KvStore *store, Relation rel, KvKey key, Snapshot snapshot, KvKey moved_to,
		  CommandId cid, KvRow *newer)
{
	KvChange	change = {KV_VERSION_DELETE, LockTupleExclusive, KV_FORM_RAW, NULL, 0, cid};
	KvRowResult result;

	if (moved_to.data != NULL)
	{
		change.form = KV_FORM_KEY;
		change.value = (const char *) moved_to.data;
		change.len = moved_to.len;
	}
	result = do_row(store, rel, key, snapshot, &change, LockWaitBlock, NULL, newer);

	if (result == KV_ROW_DONE)
	{
		kv_stat_add(store, KV_COUNT_DELETES, 1);
		kv_note_change(store);
	}
	return result;
}

/* ---- inserting, or locking the existing row ---- */

/* May an existing row be locked for a command that wanted to insert it? */
static KvInsertResult
judge_existing(KvVersion *newest, Snapshot snapshot, CommandId cid)
{
	KvView		view = {snapshot, NULL};

	if (newest->xid == 0)
		return KV_EXISTS;
	if (kv_xid_is_mine(newest->xid))
		return newest->cid >= cid ? KV_EXISTS_ANEW : KV_EXISTS;
	if (IsolationUsesXactSnapshot() &&
		!kv_version_visible(newest, &view, kv_incarnations->current))
		return KV_EXISTS_UNSEEN;
	return KV_EXISTS;
}

/*
 * Get the state of the key for a command that inserts a row or locks the existing one (mode).
 * Unfinished writes conflict whatever the mode is, because they decide which row exists.  Locks
 * conflict as the mode says.
 */
static void
look_for_either(KvStore *store, KvKey key, int mode, KvKeyState *state)
{
	for (;;)
	{
		kv_key_lookup(store, key, (LockTupleMode) Max(mode, (int) LockTupleShare), NULL,
					  state);
		if (mode == KV_NO_ROW_LOCK)
			state->locked_by = 0;
		if (mode != LockTupleKeyShare || state->locked_by == 0 || state->unfinished != 0)
			return;

		/* it may be compatible with KEY SHARE, or an update that came since */
		kv_key_leave(store, state);
		kv_key_lookup(store, key, LockTupleKeyShare, NULL, state);
		if (state->unfinished == 0 && state->exists && state->newest.kind == KV_VERSION_PUT)
			return;
		kv_key_leave(store, state);
	}
}

/*
 * One lookup serves both outcomes: under one hold of the shard's lock the row is put or the
 * newest version gets a LOCK.  So nothing is inserted speculatively and removed again.
 * Transactions that write the key or have it locked are waited for, in the queue.  A row that
 * was deleted concurrently is inserted, above READ COMMITTED only if it was not met before:
 * else heap has chosen it, and fails to lock it.
 */
KvInsertResult
kv_insert_or_lock(KvStore *store, Relation rel, KvKey key, KvForm form, const char *value,
				  Size len, Snapshot snapshot, CommandId cid, int mode, KvVersion *seen,
				  bool met, KvRow *existing)
{
	KvQueue		queue = {.rel = rel, .policy = LockWaitBlock};
	KvChange	insert = {.form = form, .value = value, .len = len, .cid = cid};
	KvChange	lock = {.mode = (LockTupleMode) mode};
	bool		reads = mode == KV_NO_ROW_LOCK;
	bool		prepared = !reads;
	KvInsertResult result;
	KvWrite		row;
	KvWrite		hold;
	KvKeyState	state;

	if (seen == NULL && !reads)
		prepare_change(store, key, KV_VERSION_LOCK, &lock, &hold);
	if (prepared)
		prepare_change(store, key, KV_VERSION_PUT, &insert, &row);
	for (;;)
	{
		uint64		wait;

		CHECK_FOR_INTERRUPTS();
		look_for_either(store, key, mode, &state);
		result = KV_INSERTED;
		wait = state.unfinished;
		if (wait == 0 && state.exists && state.newest.kind == KV_VERSION_PUT)
		{
			wait = state.locked_by;
			if (wait == 0)
				result = judge_existing(&state.newest, snapshot, cid);
			else
				met = true;		/* a row that other transactions have locked */
			if (reads && result == KV_EXISTS_ANEW)
				result = KV_EXISTS;
		}
		else if (wait == 0 && met && IsolationUsesXactSnapshot())
			result = state.exists &&
				has_moved(&state.newest) ? KV_EXISTS_UNSEEN : KV_EXISTS_DELETED;
		if (wait != 0)
		{
			kv_key_leave(store, &state);
			if (!reads && !queue.joined && state.held < 0)
				(void) join_queue(&queue, key, (LockTupleMode) mode);
			(void) wait_for(&queue, wait);
		}
		else if (result == KV_EXISTS_UNSEEN || result == KV_EXISTS_DELETED ||
				 result == KV_EXISTS_ANEW ||
				 (result == KV_EXISTS && (seen != NULL || state.held >= mode)))
		{
			kv_key_leave(store, &state);
			break;
		}
		else if (!prepared)
		{
			kv_key_leave(store, &state);
			prepare_change(store, key, KV_VERSION_PUT, &insert, &row);
			prepared = true;
		}
		else if (kv_write_finish(store, key, result == KV_EXISTS ? &hold : &row, &state))
			break;
	}
	leave_queue(&queue);
	if (result == KV_EXISTS && seen != NULL)
		*seen = state.newest;
	if (result == KV_EXISTS && existing != NULL)
	{
		if (!kv_fetch_version(store, key, &state.newest, existing))
			return kv_insert_or_lock(store, rel, key, form, value, len, snapshot, cid, mode,
									 seen, met, existing);
	}
	else if (result == KV_INSERTED)
	{
		kv_stat_add(store, KV_COUNT_INSERTS, 1);
		kv_note_change(store);
		kv_stat_add(store, KV_COUNT_VALUE_BYTES, len);
	}
	return result;
}

/*
 * A version that was flushed in between, and has lost its xid, or was moved counts as another
 * one.
 */
static bool
same_version(const KvVersion *a, const KvVersion *b)
{
	return a->kind == b->kind && a->xid == b->xid && a->cid == b->cid &&
		a->location == b->location && a->moves == b->moves && a->len == b->len;
}

bool
kv_overwrite(KvStore *store, KvKey key, const KvVersion *seen, KvForm form, const char *value,
			 Size len, CommandId cid)
{
	KvChange	change = {.form = form, .value = value, .len = len, .cid = cid};
	KvWrite		write;
	KvKeyState	state;

	KV_STOP_POINT("overwrite");
	prepare_change(store, key, KV_VERSION_PUT, &change, &write);
	for (;;)
	{
		CHECK_FOR_INTERRUPTS();
		kv_key_lookup(store, key, LockTupleNoKeyExclusive, NULL, &state);
		if (state.unfinished != 0 || state.locked_by != 0 || !state.exists ||
			!same_version(&state.newest, seen))
		{
			kv_key_leave(store, &state);
			return false;
		}
		if (kv_write_finish(store, key, &write, &state))
			break;
	}
	kv_stat_add(store, KV_COUNT_UPDATES, 1);
	kv_note_change(store);
	kv_stat_add(store, KV_COUNT_VALUE_BYTES, len);
	return true;
}

/* ---- writes that must not wait ---- */

/*
 * Everything else is a result, not an ERROR and not a wait.  One wait is left: if a value file
 * has to grow, or a value is too large for a write buffer, it is written here.
 */

const KvVersion kv_any_version = {0};

static bool
is_there(const KvKeyState *state)
{
	return state->exists && state->newest.kind == KV_VERSION_PUT;
}

/* A frozen version has lost its xid and kept its address; its checksum covers the address. */
static bool
is_still(const KvKeyState *state, const KvVersion *expected)
{
	bool		there = is_there(state);

	if (expected == &kv_any_version)
		return true;
	if (expected == NULL || !there)
		return expected == NULL && !there;
	return state->newest.location == expected->location &&
		state->newest.moves == expected->moves &&
		state->newest.len == expected->len && state->newest.crc == expected->crc;
}

/* Can the key be written?  DONE: yes. */
static KvPut
judge(const KvKeyState *state, const KvVersion *expected, TransactionId *in_the_way)
{
	uint64		holder = state->unfinished != 0 ? state->unfinished : state->locked_by;

	if (holder != 0)
	{
		*in_the_way = (TransactionId) holder;
		return KV_PUT_LOCKED;
	}
	return is_still(state, expected) ? KV_PUT_DONE : KV_PUT_CHANGED;
}

KvPut
kv_put_if(KvStore *store, KvKey key, const KvVersion *expected, const KvPutValue *put,
		  CommandId cid, bool yields, KvVersion *made, TransactionId *in_the_way)
{
	KvVersionKind kind = put != NULL ? KV_VERSION_PUT : KV_VERSION_DELETE;
	LockTupleMode mode = put != NULL ? LockTupleNoKeyExclusive : LockTupleExclusive;
	Size		len = put != NULL ? put->len : 0;
	KvWrite		write;
	KvKeyState	state;

	Assert(put != NULL || expected != &kv_any_version);
	KV_STOP_POINT("put_if");
	*in_the_way = InvalidTransactionId;
	if (yields && kv_queue_is_used(store, key, mode))
		return KV_PUT_LOCKED;
	kv_write_prepare(store, key, kind, put != NULL ? put->form : KV_FORM_RAW,
					 put != NULL ? put->value : NULL, len, cid, &write);
	write.nowait = true;
	for (;;)
	{
		KvPut		result;

		CHECK_FOR_INTERRUPTS();
		kv_key_lookup(store, key, mode, NULL, &state);
		result = judge(&state, expected, in_the_way);
		if (result != KV_PUT_DONE)
		{
			kv_key_leave(store, &state);
			return result;
		}
		if (kv_write_finish(store, key, &write, &state))
			break;
		if (write.refused)
			return KV_PUT_NO_ROOM;
	}
	*made = write.version;
	kv_stat_add(store, put == NULL ? KV_COUNT_DELETES :
				is_there(&state) ? KV_COUNT_UPDATES : KV_COUNT_INSERTS, 1);
	kv_stat_add(store, KV_COUNT_VALUE_BYTES, len);
	kv_note_change(store);
	return KV_PUT_DONE;
}

#define NUMBER_BITS		60
#define NUMBER_KIND		(UINT64CONST(1) << NUMBER_BITS) /* of a version with a value */
#define NUMBER_EMPTY	(UINT64CONST(3) << NUMBER_BITS)
#define NUMBER_MOVES	(UINT64CONST(1) << (NUMBER_BITS - 1))	/* more than any address / 8 */
#define STORE_FACTOR	UINT64CONST(0x9E3779B97F4A7C15)

/*
 * Redo assigns addresses again, perhaps to other values, and a standby has addresses of its
 * own.  So the number depends on the run of the server.  The incarnation would not be enough: a
 * restarted standby keeps its incarnation, and so does a copy.
 *
 * When a write buffer is written, another version of the key may get the location that this one
 * has had.  So a number of a version that moves is that of no other.
 */
uint64
kv_version_number(const KvStore *store, const KvVersion *version)
{
	uint64		place = version->location + store->shape.id * STORE_FACTOR + kv_incarnations->run +
		(version->moves ? NUMBER_MOVES : 0);

	return (place & (NUMBER_KIND - 1)) | (version->len > 0 ? NUMBER_KIND : NUMBER_EMPTY);
}

void
kv_numbers_stay(KvStore *store)
{
	if (!store->numbered)
		store->numbered = true;
}
