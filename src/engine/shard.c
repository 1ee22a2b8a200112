/*
 * shard.c
 *		One key of one shard: look it up, lock it, write it.
 *
 * A key's versions lie, newest first, in the active delta, the sealed delta
 * (while a freeze runs), the unfrozen runs and the base run.  Both deltas are
 * read under the shard's lock.  Runs are immutable and searched without it:
 * first note the run list's generation and search, then take the lock and make
 * sure that the generation still holds, else begin again (I 7).
 *
 * A row lock is a version of kind LOCK: it is never visible, it makes other
 * writers wait for its xid like any unfinished version (I 2), and it vanishes
 * in the next freeze after its transaction.  It is logged like a write, because
 * a prepared transaction keeps its locks over a restart.
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "engine/internal.h"

/* ---- where a key lives ---- */

KvKey
kv_shard_bound(const KvStore *store, uint32 shardno)
{
	const uint32 *offsets = kv_address(store->bounds);
	const uint8 *bytes = (const uint8 *) (offsets + store->nshards + 1);
	KvKey		bound;

	bound.data = bytes + offsets[shardno];
	bound.len = offsets[shardno + 1] - offsets[shardno];
	return bound;
}

/* The shard whose range holds key: the last one whose bound is <= key. */
uint32
kv_shard_for(const KvStore *store, const uint8 *key, int keylen)
{
	uint32		low = 0;
	uint32		high = store->nshards;

	while (high - low > 1)
	{
		uint32		middle = (low + high) / 2;
		KvKey		bound = kv_shard_bound(store, middle);

		if (kv_key_compare(bound.data, bound.len, key, keylen) <= 0)
			low = middle;
		else
			high = middle;
	}
	return low;
}

/* ---- this process's view of a shard's runs ---- */

typedef struct KvRunSetKey
{
	KvStoreKey	store;
	uint32		shard;
} KvRunSetKey;

typedef struct KvRunSetEntry
{
	KvRunSetKey key;
	KvRunSet	set;
} KvRunSetEntry;

#define KV_CACHED_RUNSETS 512

static HTAB *runsets = NULL;

static void
release_runset(KvRunSet *set)
{
	for (int i = 0; i < set->nruns; i++)
		kv_run_unpin(set->runs[i]);
	set->nruns = 0;
}

/* Forget the cached run sets of one store, or of all stores if key is NULL. */
void
kv_runset_forget(const KvStoreKey *key)
{
	HASH_SEQ_STATUS status;
	KvRunSetEntry *entry;

	if (runsets == NULL)
		return;
	hash_seq_init(&status, runsets);
	while ((entry = hash_seq_search(&status)) != NULL)
	{
		if (key == NULL || memcmp(&entry->key.store, key, sizeof(*key)) == 0)
		{
			release_runset(&entry->set);
			hash_search(runsets, &entry->key, HASH_REMOVE, NULL);
		}
	}
}

/* Map the runs that the shard has now.  False if one vanished meanwhile. */
static bool
load_runset(KvStore *store, uint32 shardno, KvRunSet *set)
{
	KvShard    *shard = kv_shard(store, shardno);
	uint32		numbers[KV_MAX_UNFROZEN + 1];
	uint32		generation;
	int			n = 0;
	KvRunIds	ids;

	LWLockAcquire(&shard->lock, LW_SHARED);
	generation = pg_atomic_read_u32(&shard->generation);
	for (int i = 0; i < shard->nunfrozen; i++)
		numbers[n++] = shard->unfrozen[i];
	set->has_base = shard->base_run != 0;
	if (set->has_base)
		numbers[n++] = shard->base_run;
	LWLockRelease(&shard->lock);

	for (int i = 0; i < n; i++)
	{
		KvRun	   *run;

		kv_store_ids(store, shardno, numbers[i], &ids);
		run = kv_run_pin(kv_path_run(&store->key, shardno, numbers[i]), &ids);
		if (run == NULL)
		{
			if (pg_atomic_read_u32(&shard->generation) == generation)
				ereport(ERROR,
						(errcode(ERRCODE_DATA_CORRUPTED),
						 errmsg("run file \"%s\" is missing",
								kv_path_run(&store->key, shardno, numbers[i]))));
			release_runset(set);
			return false;
		}
		set->runs[set->nruns++] = run;
	}

	/* only now: an ERROR above must not leave half a set that looks current */
	set->generation = generation;
	return true;
}

/*
 * The shard's runs, mapped.  Valid until the next call for any shard.  The
 * generation may be outdated by the time the caller looks; see the file's head.
 */
const KvRunSet *
kv_shard_runs(KvStore *store, uint32 shardno)
{
	KvShard    *shard = kv_shard(store, shardno);
	KvRunSetKey key;
	KvRunSetEntry *entry;
	bool		found;

	if (runsets == NULL)
	{
		HASHCTL		info = {0};

		info.keysize = sizeof(KvRunSetKey);
		info.entrysize = sizeof(KvRunSetEntry);
		info.hcxt = TopMemoryContext;
		runsets = hash_create("kvfdw run sets", 64, &info,
							  HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	}
	key.store = store->key;
	key.shard = shardno;
	entry = hash_search(runsets, &key, HASH_FIND, NULL);
	if (entry == NULL)
	{
		if (hash_get_num_entries(runsets) >= KV_CACHED_RUNSETS)
			kv_runset_forget(NULL);
		entry = hash_search(runsets, &key, HASH_ENTER, &found);
		memset(&entry->set, 0, sizeof(entry->set));
		/* generations start at 1, so this one is outdated */
	}
	if (entry->set.generation != pg_atomic_read_u32(&shard->generation))
	{
		do
		{
			release_runset(&entry->set);
			entry->set.generation = 0;
		} while (!load_runset(store, shardno, &entry->set));
	}
	return &entry->set;
}

/* The version of key in the runs that a snapshot sees. */
bool
kv_runset_find(const KvRunSet *set, KvKey key, Snapshot snapshot, KvVersion *version)
{
	for (int i = 0; i < set->nruns; i++)
	{
		KvRunCursor cursor;
		uint32		incarnation = kv_run_header(set->runs[i])->incarnation;

		kv_run_seek(set->runs[i], key.data, key.len, &cursor);
		while (cursor.valid)
		{
			uint8		keybuf[8];
			const uint8 *found;
			int			len;

			kv_run_entry(&cursor, keybuf, &found, &len, version);
			if (kv_key_compare(found, len, key.data, key.len) != 0)
				break;
			if (kv_version_visible(version, snapshot, incarnation))
				return true;
			kv_run_next(&cursor);
		}
	}
	return false;
}

/* The version of a delta chain that a snapshot sees.  Shard lock held. */
bool
kv_chain_visible(dsa_pointer pointer, Snapshot snapshot, KvVersion *version)
{
	while (DsaPointerIsValid(pointer))
	{
		KvDeltaVersion *node = kv_address(pointer);

		if (kv_version_visible(&node->version, snapshot, kv_shared->incarnation))
		{
			*version = node->version;
			return true;
		}
		pointer = node->older;
	}
	return false;
}

/* ---- what a writer sees ---- */

typedef struct KvKeyState
{
	bool		exists;			/* some version that did not abort */
	KvVersion	newest;			/* the newest such that is no LOCK */
	uint64		unfinished;		/* xid of another's unfinished write, or 0 */
	uint64		locked_by;		/* xid of another's unfinished LOCK, or 0 */
	bool		mine;			/* a version of this transaction's, LOCKs included */
} KvKeyState;

/* Fold one version, newer ones first, into the state.  True: seen enough. */
static bool
fold_version(KvKeyState *state, KvVersion *version, uint32 incarnation)
{
	if (version->xid != 0 && version->fate != KV_FATE_COMMITTED)
	{
		if (version->fate == KV_FATE_ABORTED)
			return false;
		if (kv_xid_is_mine(version->xid))
			state->mine = true;
		else
		{
			KvVersionFate fate = kv_xid_fate(version->xid, incarnation);

			version->fate = fate;
			if (fate == KV_FATE_ABORTED)
				return false;
			if (fate == KV_FATE_UNKNOWN)
			{
				if (version->kind != KV_VERSION_LOCK)
					state->unfinished = version->xid;
				else if (state->locked_by == 0)
					state->locked_by = version->xid;
			}
		}
	}
	if (version->kind == KV_VERSION_LOCK)
		return false;
	state->exists = true;
	state->newest = *version;
	return true;
}

static bool
fold_chain(KvKeyState *state, const KvDelta *delta, KvKey key)
{
	KvDeltaItem *item = kv_delta_find(delta, key.data, key.len);
	dsa_pointer pointer = item ? item->newest : InvalidDsaPointer;

	while (DsaPointerIsValid(pointer))
	{
		KvDeltaVersion *node = kv_address(pointer);

		if (fold_version(state, &node->version, kv_shared->incarnation))
			return true;
		pointer = node->older;
	}
	return false;
}

static void
fold_runs(KvKeyState *state, const KvRunSet *set, KvKey key)
{
	for (int i = 0; i < set->nruns; i++)
	{
		KvRunCursor cursor;
		uint32		incarnation = kv_run_header(set->runs[i])->incarnation;

		kv_run_seek(set->runs[i], key.data, key.len, &cursor);
		while (cursor.valid)
		{
			uint8		keybuf[8];
			const uint8 *found;
			int			len;
			KvVersion	version;

			kv_run_entry(&cursor, keybuf, &found, &len, &version);
			if (kv_key_compare(found, len, key.data, key.len) != 0)
				break;
			if (fold_version(state, &version, incarnation))
				return;
			kv_run_next(&cursor);
		}
	}
}

/*
 * Take the shard's lock exclusively and find out how the key stands.  The runs
 * are searched before the lock is taken.
 */
static void
lock_and_look(KvStore *store, uint32 shardno, KvKey key, KvKeyState *state)
{
	KvShard    *shard = kv_shard(store, shardno);

	for (;;)
	{
		const KvRunSet *set = kv_shard_runs(store, shardno);
		KvKeyState	runs_state = {0};

		fold_runs(&runs_state, set, key);
		LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
		if (pg_atomic_read_u32(&shard->generation) == set->generation)
		{
			memset(state, 0, sizeof(*state));
			if (!fold_chain(state, &shard->active, key) &&
				!fold_chain(state, &shard->sealed, key))
			{
				runs_state.mine |= state->mine;
				if (state->locked_by != 0)
					runs_state.locked_by = state->locked_by;
				*state = runs_state;
			}
			return;
		}
		LWLockRelease(&shard->lock);
	}
}

/* Wait for another transaction to end, deadlocks detected (F 8). */
static void
wait_for(Relation rel, uint64 xid)
{
	XactLockTableWait((TransactionId) xid, rel, NULL, XLTW_None);
}

/* ---- room ---- */

#define KV_ROOM_PATIENCE	60	/* seconds */

/*
 * Make room for delta memory: freeze this shard if it holds a fair share, else
 * let the maintainer freeze others and wait.  No lock held.  ERROR when nothing
 * becomes free for KV_ROOM_PATIENCE.
 */
void
kv_make_room(KvStore *store, uint32 shardno)
{
	KvShard    *shard = kv_shard(store, shardno);
	uint64		before = pg_atomic_read_u64(&kv_shared->delta_bytes);

	if (shard->recovered && shard->active.bytes >= kv_delta_limit() / 4)
	{
		kv_shard_freeze(store, shardno, KV_FREEZE_SPILL);
		return;
	}

	/* whoever frees memory broadcasts; then, or after a while, the caller tries again */
	ConditionVariablePrepareToSleep(&kv_shared->room_made);
	for (int i = 0;; i++)
	{
		kv_check_interrupts();
		if (i == KV_ROOM_PATIENCE)
		{
			ConditionVariableCancelSleep();
			ereport(ERROR,
					(errcode(ERRCODE_OUT_OF_MEMORY),
					 errmsg("kvfdw is out of shared memory for recent versions"),
					 errhint("You might need to increase kvfdw.delta_memory.")));
		}
		pg_atomic_write_u32(&kv_shared->room_wanted, 1);
		kv_wake_maintainer();
		if (!ConditionVariableTimedSleep(&kv_shared->room_made, 1000, KV_WAIT_ROOM) ||
			pg_atomic_read_u64(&kv_shared->delta_bytes) < before)
			break;
	}
	ConditionVariableCancelSleep();
}

typedef enum KvRoom
{
	KV_ROOM_READY,
	KV_ROOM_EXTEND,				/* the value file must grow first */
	KV_ROOM_SLOT				/* a merge slot must become free first */
} KvRoom;

/* Make the open slot fit a value and a key.  Lock held exclusively. */
static KvRoom
ensure_slot(KvStore *store, uint32 shardno, Size len, int keylen)
{
	KvShard    *shard = kv_shard(store, shardno);

	if (kv_slot_fits(shard, len, keylen))
		return KV_ROOM_READY;
	if (shard->open_slot >= 0)
		kv_slot_seal(store, shardno);
	if (shard->value_tail + kv_slot_capacity(shard, len) > shard->value_allocated)
		return KV_ROOM_EXTEND;
	return kv_slot_open(store, shardno, len) ? KV_ROOM_READY : KV_ROOM_SLOT;
}

/* A value on its way into the store: what can be done outside the lock is done. */
typedef struct KvWrite
{
	KvVersion	version;
	KvForm		form;
	const char *value;
	uint32		crc;
	bool		external;		/* already written as an extent */
} KvWrite;

static void
prepare_write(KvStore *store, uint32 shardno, KvKey key, KvVersionKind kind,
			  KvForm form, const char *value, Size len, CommandId cid, KvWrite *write)
{
	memset(write, 0, sizeof(*write));
	write->version.xid = kv_current_xid();
	write->version.cid = cid;
	write->version.kind = kind;
	write->version.len = len;
	write->version.location = KV_LOCATION_MAKE(form, 0, 0);
	write->form = form;
	write->value = value;
	write->crc = kv_value_crc_begin(&store->key, key, value, len);
	if (len > kv_shared->slot_size)
	{
		write->version.location = kv_value_write_extent(store, shardno, form, value, len);
		write->external = true;
	}
}

/*
 * Make the write part of the shard.  The lock is held exclusively on entry and
 * released on return.  False: nothing was written and the caller must look
 * again, for something had to be waited for.
 */
static bool
finish_write(KvStore *store, uint32 shardno, KvKey key, KvWrite *write)
{
	KvShard    *shard = kv_shard(store, shardno);
	Size		place = write->external ? 0 : write->version.len;
	KvRoom		room;
	Size		before = shard->active.bytes;
	KvVersion  *added;
	bool		full;

	if (shard->active.bytes >= 2 * kv_delta_limit())
	{
		/* the freeze does not keep up: help */
		LWLockRelease(&shard->lock);
		kv_shard_freeze(store, shardno, KV_FREEZE_SPILL);
		return false;
	}
	room = ensure_slot(store, shardno, place, key.len);
	if (room != KV_ROOM_READY)
	{
		Size		capacity = kv_slot_capacity(shard, place);

		LWLockRelease(&shard->lock);
		if (room == KV_ROOM_EXTEND)
			kv_value_extend(store, shardno, capacity);
		else
			kv_slot_wait_free();
		return false;
	}

	/*
	 * The delta first: it may lack memory, the slot now cannot.  The version
	 * added here gets its location below, before anybody else can look.
	 */
	added = kv_delta_add(&shard->active, key.data, key.len, &write->version);
	if (added != NULL)
	{
		kv_slot_put(store, shard, key, &write->version, write->form, write->value,
					write->crc, write->external);
		*added = write->version;
	}
	full = before < kv_delta_limit() && shard->active.bytes >= kv_delta_limit();
	LWLockRelease(&shard->lock);
	KV_STOP_POINT("write_done");
	if (added == NULL)
		kv_make_room(store, shardno);
	if (full)
		kv_wake_maintainer();
	return added != NULL;
}

/* ---- writing ---- */

KvInsertResult
kv_insert(KvStore *store, Relation rel, KvKey key, KvForm form,
		  const char *value, Size len, CommandId cid, bool replace)
{
	uint32		shardno = kv_shard_for(store, key.data, key.len);
	KvShard    *shard = kv_shard(store, shardno);
	KvWrite		write;
	bool		prepared = false;

	for (;;)
	{
		KvKeyState	state;
		uint64		wait = 0;

		CHECK_FOR_INTERRUPTS();

		/*
		 * An extent is written once the key was seen to be free, a small value
		 * is merely summed, so that costs nothing to do ahead.
		 */
		if (!prepared && len <= kv_shared->slot_size)
		{
			prepare_write(store, shardno, key, KV_VERSION_PUT, form, value, len, cid, &write);
			prepared = true;
		}
		lock_and_look(store, shardno, key, &state);
		if (state.unfinished != 0)
			wait = state.unfinished;
		else if (state.exists && state.newest.kind == KV_VERSION_PUT)
		{
			if (!replace)
			{
				LWLockRelease(&shard->lock);
				return KV_EXISTS;
			}
			wait = state.locked_by;
		}
		if (wait != 0)
		{
			LWLockRelease(&shard->lock);
			wait_for(rel, wait);
			continue;
		}
		if (!prepared)
		{
			LWLockRelease(&shard->lock);
			prepare_write(store, shardno, key, KV_VERSION_PUT, form, value, len, cid, &write);
			prepared = true;
			continue;
		}
		if (finish_write(store, shardno, key, &write))
			break;
	}
	kv_count(store, KV_COUNT_INSERTS, 1);
	kv_count(store, KV_COUNT_VALUE_BYTES, len);
	return KV_INSERTED;
}

/* Overwrite or delete a row that this transaction has locked. */
static void
change_row(KvStore *store, KvKey key, KvVersionKind kind, KvForm form,
		   const char *value, Size len, CommandId cid)
{
	uint32		shardno = kv_shard_for(store, key.data, key.len);
	KvWrite		write;
	KvKeyState	state;

	prepare_write(store, shardno, key, kind, form, value, len, cid, &write);
	do
	{
		CHECK_FOR_INTERRUPTS();
		lock_and_look(store, shardno, key, &state);
		if (!state.mine || state.unfinished != 0)
		{
			LWLockRelease(&kv_shard(store, shardno)->lock);
			elog(ERROR, "row to change is not locked by this transaction");
		}
	} while (!finish_write(store, shardno, key, &write));
	kv_count(store, KV_COUNT_VALUE_BYTES, len);
}

void
kv_update(KvStore *store, Relation rel, KvKey key, KvForm form,
		  const char *value, Size len, CommandId cid)
{
	change_row(store, key, KV_VERSION_PUT, form, value, len, cid);
	kv_count(store, KV_COUNT_UPDATES, 1);
}

void
kv_delete(KvStore *store, Relation rel, KvKey key, CommandId cid)
{
	change_row(store, key, KV_VERSION_DELETE, KV_FORM_RAW, NULL, 0, cid);
	kv_count(store, KV_COUNT_DELETES, 1);
}

/* ---- locking ---- */

static void
could_not_serialize(bool deleted)
{
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("could not serialize access due to concurrent %s",
					deleted ? "delete" : "update")));
}

/*
 * Lock one row for the current (sub)transaction.  See engine.h; row is filled
 * only for KV_LOCKED_NEWER.
 */
KvLockResult
kv_lock_row(KvStore *store, Relation rel, KvKey key, Snapshot snapshot,
			LockWaitPolicy policy, KvRow *row)
{
	uint32		shardno = kv_shard_for(store, key.data, key.len);
	KvShard    *shard = kv_shard(store, shardno);
	KvWrite		write;
	KvVersion	newest;
	bool		seen;

	prepare_write(store, shardno, key, KV_VERSION_LOCK, KV_FORM_RAW, NULL, 0, 0, &write);
	for (;;)
	{
		KvKeyState	state;
		uint64		wait;

		CHECK_FOR_INTERRUPTS();
		lock_and_look(store, shardno, key, &state);
		wait = state.unfinished != 0 ? state.unfinished : state.locked_by;
		if (wait != 0)
		{
			LWLockRelease(&shard->lock);
			if (policy == LockWaitBlock)
				wait_for(rel, wait);
			else if (!ConditionalXactLockTableWait((TransactionId) wait))
			{
				if (policy == LockWaitSkip)
					return KV_LOCK_SKIPPED;
				ereport(ERROR,
						(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
						 errmsg("could not obtain lock on row in relation \"%s\"",
								RelationGetRelationName(rel))));
			}
			continue;
		}
		newest = state.newest;
		seen = state.exists &&
			(newest.xid == 0 ||
			 kv_version_visible(&newest, snapshot, kv_shared->incarnation));
		if (!state.exists || !seen || newest.kind != KV_VERSION_PUT)
		{
			bool		mine = state.exists && newest.xid != 0 && kv_xid_is_mine(newest.xid);

			if (!state.exists || mine || newest.kind != KV_VERSION_PUT)
			{
				LWLockRelease(&shard->lock);
				if (!mine && state.exists && IsolationUsesXactSnapshot())
					could_not_serialize(true);
				return KV_LOCK_GONE;
			}
			if (IsolationUsesXactSnapshot())
			{
				LWLockRelease(&shard->lock);
				could_not_serialize(false);
			}
		}
		if (state.mine)
		{
			/* an earlier lock or write of ours does it */
			LWLockRelease(&shard->lock);
			break;
		}
		if (finish_write(store, shardno, key, &write))
			break;
	}
	if (seen)
		return KV_LOCKED;
	if (row != NULL)
		kv_fetch_version(store, key, &newest, row);
	return KV_LOCKED_NEWER;
}
