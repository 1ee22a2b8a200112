/*
 * write.c
 *		Writes one version of one key: the state of the key, space, the write; and counts changed
 *		rows of a store since it was last analyzed.
 *
 * A writer gets the state of its key with the shard's lock held exclusively (kv_key_lookup).
 * It either writes under that same hold of the lock, or releases it and looks again (I 2).
 * Work that needs the device or a wait is done without the lock: a larger value file, a free
 * write buffer, memory for the memtable (I 7).
 *
 * A row lock is a version of kind LOCK whose command id is its mode, a LockTupleMode.  It is
 * never visible, makes others wait for its xid like any unfinished version, and is dropped by
 * the next flush after its transaction.  A prepared transaction keeps its locks over a restart,
 * so where transactions can be prepared a lock is logged and stored like a write.  Otherwise it
 * is in the memtable only.  Modes conflict as in heap's table: a PUT is a NoKeyExclusive lock, a
 * DELETE an Exclusive one.
 *
 * So only KEY SHARE locks can be below a version of another transaction, and only a writer that
 * wants an Exclusive lock has to look for them there.  It need not either if the shard's last
 * KEY SHARE lock is of a transaction that has ended before any that runs now.
 *
 * Counts: As in PostgreSQL's statistics for heap, changes count when their transaction commits, or
 * is prepared.  Until then they are in this process, for a few stores at a time; changes of
 * further stores count at once.
 *
 * A store exists while a transaction that has written to it holds the lock on its table.  A
 * store that the transaction itself has created is removed after its changes were counted, and
 * with its subtransaction after they were dropped.
 */
#include "postgres.h"

#include "access/twophase.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "engine/base/shared.h"
#include "engine/base/types.h"
#include "engine/base/wait.h"
#include "engine/buffer/buffer.h"
#include "engine/buffer/largevalue.h"
#include "engine/cache/cache.h"
#include "engine/engine.h"
#include "engine/flush/flush.h"
#include "engine/format/format.h"
#include "engine/index/memtable.h"
#include "engine/io/fault.h"
#include "engine/maintenance.h"
#include "engine/rows.h"
#include "engine/shard/dead.h"
#include "engine/shard/map.h"
#include "engine/shard/shard.h"
#include "engine/shard/space.h"
#include "engine/shard/valuefiles.h"
#include "engine/value/value.h"
#include "engine/write/internal.h"
#include "engine/write/write.h"
#include "engine/xact/xact.h"

/* ---- counts of changed rows ---- */

#define MAX_PENDING	32

typedef struct Pending
{
	KvStore    *store;
	SubTransactionId subid;		/* the first one that changed it */
	uint64		n;
} Pending;

static Pending pending[MAX_PENDING];
static int	npending = 0;

void
kv_note_changes(KvStore *store, uint64 n)
{
	int			i = npending - 1;

	while (i >= 0 && pending[i].store != store)
		i--;
	if (unlikely(i < 0))
	{
		if (npending == MAX_PENDING)
		{
			pg_atomic_fetch_add_u64(&store->statistics.changes, n);
			return;
		}
		i = npending++;
		pending[i].store = store;
		pending[i].subid = GetCurrentSubTransactionId();
		pending[i].n = 0;
	}
	pending[i].n += n;
}

void
kv_changes_at_end(bool commit)
{
	for (int i = 0; commit && i < npending; i++)
		pg_atomic_fetch_add_u64(&pending[i].store->statistics.changes, pending[i].n);
	npending = 0;
	kv_fed_forget();
}

/* Subtransactions have ascending numbers. */
void
kv_changes_at_subxact_abort(SubTransactionId subid)
{
	int			kept = 0;

	for (int i = 0; i < npending; i++)
	{
		if (pending[i].subid < subid)
			pending[kept++] = pending[i];
	}
	npending = kept;
}

/* ---- writing a version ---- */

/* ---- the state of a key ---- */

static bool
modes_conflict(LockTupleMode wanted, LockTupleMode held)
{
	switch (held)
	{
		case LockTupleKeyShare:
			return wanted == LockTupleExclusive;
		case LockTupleShare:
			return wanted >= LockTupleNoKeyExclusive;
		case LockTupleNoKeyExclusive:
			return wanted >= LockTupleShare;
		case LockTupleExclusive:
			break;
	}
	return true;
}

/* The mode in which a version locks its key while its transaction runs. */
static LockTupleMode
version_mode(const KvVersion *version)
{
	if (version->kind == KV_VERSION_LOCK)
		return (LockTupleMode) version->cid;
	return version->kind == KV_VERSION_PUT ? LockTupleNoKeyExclusive : LockTupleExclusive;
}

/* Must a writer look for locks below the newest version?  See the file's head. */
static bool
looks_deep(const KvShard *shard, LockTupleMode wanted)
{
	return wanted == LockTupleExclusive && shard->key_share_xid != 0 &&
		!TransactionIdPrecedes((TransactionId) shard->key_share_xid, TransactionXmin);
}

static void
begin_state(KvKeyState *state)
{
	state->exists = false;
	state->unfinished = 0;
	state->locked_by = 0;
	state->held = -1;
}

/* Fold one version, newer ones first, into the state.  True: seen enough. */
static bool
fold_version(KvKeyState *state, KvVersion *version, uint32 incarnation,
			 LockTupleMode wanted, bool deep)
{
	bool		unfinished = false;

	if (version->xid != 0 && version->status != KV_XID_COMMITTED)
	{
		if (version->status == KV_XID_ABORTED)
			return false;
		if (kv_version_is_mine(version->xid, incarnation))
			state->held = Max(state->held, (int) version_mode(version));
		else
		{
			version->status = kv_xid_status(version->xid, incarnation);
			if (version->status == KV_XID_ABORTED)
				return false;
			unfinished = version->status == KV_XID_UNKNOWN;
			if (unfinished && modes_conflict(wanted, version_mode(version)))
			{
				if (version->kind == KV_VERSION_LOCK)
					state->locked_by = version->xid;
				else
				{
					state->unfinished = version->xid;
					return true;
				}
			}
		}
	}
	if (version->kind == KV_VERSION_LOCK || unfinished)
		return false;
	if (!state->exists)
	{
		state->exists = true;
		state->newest = *version;
	}
	return !deep;
}

static bool
fold_chain(KvKeyState *state, const KvMemtableItem *item, LockTupleMode wanted, bool deep)
{
	dsa_pointer pointer = item ? item->newest : InvalidDsaPointer;

	while (DsaPointerIsValid(pointer))
	{
		KvMemtableVersion *node = kv_address(pointer);

		if (fold_version(state, &node->version, kv_incarnations->current, wanted, deep))
			return true;
		pointer = node->older;
	}
	return false;
}

void
kv_key_below(const KvShard *shard, const KvRunSet *set, KvRunVersions *walk,
			 LockTupleMode wanted, KvBelow *below)
{
	bool		deep = looks_deep(shard, wanted);
	KvKeyState	state;
	KvVersion	version;
	uint32		incarnation;

	begin_state(&state);
	while (kv_run_versions_next(walk, &version, &incarnation))
	{
		if (fold_version(&state, &version, incarnation, wanted, deep))
			break;
	}
	below->generation = set->generation;
	below->exists = state.exists;
	below->held = state.held;
	below->unfinished = state.unfinished;
	below->locked_by = state.locked_by;
	if (state.exists)
		below->newest = state.newest;
}

void
kv_key_leave(const KvStore *store, const KvKeyState *state)
{
	LWLockRelease(&kv_shard(store, state->shard_id)->lock);
}

/*
 * consecutive lookups that found everything in memtables; after so many the next one begins
 * there
 */
#define KV_USUAL	4

/* How many of the last lookups were such; up to KV_USUAL. */
static int	in_memtables = 0;

/*
 * Fold the versions of the memtables; also locates the key in the active one.  The lock is
 * held.  True: seen enough.
 */
static bool
fold_memtables(KvShard *shard, KvKey key, LockTupleMode wanted, KvKeyState *state)
{
	bool		deep = looks_deep(shard, wanted);
	KvMemtablePosition immutable;

	begin_state(state);
	kv_memtable_locate(&shard->active, key.data, key.len, &state->place);
	if (fold_chain(state, state->place.item, wanted, deep))
		return true;
	kv_memtable_locate(&shard->immutable, key.data, key.len, &immutable);
	return fold_chain(state, immutable.item, wanted, deep);
}

/* Look in the memtables only.  False: that is not enough, and no lock is held. */
static bool
look_in_memtables(KvStore *store, KvKey key, LockTupleMode wanted, KvKeyState *state)
{
	KvRoute		route = kv_route(store, key);
	KvShard    *shard = kv_shard(store, route.shard_id);

	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	if (kv_route_holds(shard, route) && fold_memtables(shard, key, wanted, state))
	{
		state->shard_id = route.shard_id;
		return true;
	}
	LWLockRelease(&shard->lock);
	return false;
}

/* Fold the versions of the memtables; the runs, which are the shard's, are folded already. */
void
kv_key_state(KvShard *shard, KvKey key, LockTupleMode wanted, const KvBelow *below,
			 KvKeyState *state)
{
	if (fold_memtables(shard, key, wanted, state))
	{
		in_memtables = Min(in_memtables + 1, KV_USUAL);
		return;
	}
	in_memtables = 0;
	state->held = Max(state->held, below->held);
	if (state->locked_by == 0)
		state->locked_by = below->locked_by;
	state->unfinished = below->unfinished;
	if (!state->exists)
	{
		state->exists = below->exists;
		state->newest = below->newest;
	}
}

/*
 * The runs are searched before the lock is taken, unless the caller has seen what they have.  They
 * are not searched at all if the memtables are sufficient, which is tried first if that was mostly
 * so: for rows that are written repeatedly.
 */
void
kv_key_lookup(KvStore *store, KvKey key, LockTupleMode wanted, const KvSeen *seen,
			  KvKeyState *state)
{
	if (in_memtables == KV_USUAL)
	{
		if (look_in_memtables(store, key, wanted, state))
			return;
		in_memtables = 0;
	}
	for (;;)
	{
		KvRoute		route = kv_route(store, key);
		KvShard    *shard = kv_shard(store, route.shard_id);
		const KvRunSet *set = kv_shard_runs(store, route.shard_id);
		KvRunVersions walk;
		KvBelow		below;

		if (seen == NULL || seen->generation != set->generation ||
			!kv_seen_below(seen, route, &below))
		{
			kv_run_versions_begin(&walk, set, key);
			kv_key_below(shard, set, &walk, wanted, &below);
		}
		LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
		if (pg_atomic_read_u32(&shard->generation) == set->generation &&
			kv_route_holds(shard, route))
		{
			kv_key_state(shard, key, wanted, &below, state);
			state->shard_id = route.shard_id;
			return;
		}
		LWLockRelease(&shard->lock);
	}
}

/* Must the version outlive the server?  See the file's head. */
static bool
outlives_server(const KvVersion *version)
{
	return version->kind != KV_VERSION_LOCK || max_prepared_xacts > 0 || RecoveryInProgress();
}

void
kv_write_prepare(KvStore *store, KvKey key, KvVersionKind kind, KvForm form,
				 const char *value, Size len, CommandId cid, KvWrite *write)
{
	if (store->shape.wal == KV_WAL_KEYS)
		kv_commit_begin();
	memset(write, 0, sizeof(*write));
	write->version.xid = kv_current_xid(store->shape.wal == KV_WAL_NONE);
	write->version.cid = cid;
	write->version.kind = kind;
	write->version.len = len;
	write->form = form;
	write->value = value;
	write->version.location = KV_LOCATION_MAKE(write->form, 0);
	write->stored = outlives_server(&write->version);
	if (write->stored)
		write->crc = kv_value_crc_begin(&store->key, key, value, len);
}

/*
 * Does the write replace a value that is cached and read, or one that is still in a write
 * buffer?  Then the new value is cached.
 */
static KvHeat
heat_of(const KvStore *store, const KvShard *shard, const KvKeyState *state, const KvWrite *write)
{
	const KvVersion *old = &state->newest;
	KvHeat		heat;

	if (!state->exists || old->kind != KV_VERSION_PUT || old->len == 0 ||
		write->version.kind != KV_VERSION_PUT || write->version.len == 0 ||
		write->placing != KV_IN_BUFFER ||
		!kv_source_keeps(write->version.location, write->version.len))
		return KV_COLD;
	heat = kv_source_heat(store->cache_id, old->location, old->len);
	return heat != KV_COLD ? heat : kv_buffer_heat(shard, old);
}

/* A wait is necessary: does this writer refuse to wait? */
static bool
refuse(KvWrite *write)
{
	write->refused = write->nowait;
	return write->refused;
}

/* The same for memory, which the maintainer is then asked for.  No lock is held. */
static bool
refuse_memory(KvWrite *write)
{
	if (!refuse(write))
		return false;
	kv_want_memory();
	return true;
}

/* The shard's bounds are about to change: wait for that.  No lock is held. */
static void
wait_for_map(KvShard *shard)
{
	ConditionVariablePrepareToSleep(&shard->changed);
	while (*(volatile bool *) &shard->place.halted)
	{
		kv_interrupts();
		ConditionVariableTimedSleep(&shard->changed, 100, KV_WAIT_SPLIT);
	}
	ConditionVariableCancelSleep();
}

/*
 * Write the value now, before there is an entry for it.  Called after the key was seen to be
 * free, when only a write buffer for the entry may be missing.  No lock is held.
 */
static void
place_large_value(KvStore *store, uint32 shard_id, KvWrite *write)
{
	while (!kv_value_write_large(store, shard_id, write->form, write->value,
								 write->version.len, write->version.xid,
								 &write->version.location))
	{
		if (refuse_memory(write))
			return;
		kv_make_memory(store, shard_id);
	}
	if (write->version.location == 0)
	{
		/* the key is in another shard now, or soon */
		write->version.location = KV_LOCATION_MAKE(write->form, 0);
		return;
	}
	write->placing = KV_IN_LARGE_VALUE;
	write->large_value_shard = shard_id;
}

/*
 * A large value in the value file of another shard, which had the key when it was written, is
 * dropped: the value is written once more.
 */
static void
leave_other_shard(uint32 shard_id, KvWrite *write)
{
	if (write->placing == KV_IN_LARGE_VALUE && write->large_value_shard != shard_id)
	{
		write->placing = KV_IN_BUFFER;
		write->version.location = KV_LOCATION_MAKE(write->form, 0);
	}
}

/* In redo: claim the address for the shard.  No lock is held. */
static void
claim(KvStore *store, uint32 shard_id, const KvWrite *write)
{
	while (!kv_value_claim(store, shard_id, KV_LOCATION_ADDRESS(write->version.location),
						   write->version.len))
		kv_make_memory(store, shard_id);
}

/*
 * Does the store exceed its space limit (I 19), and could a compaction free space for this
 * write?
 */
static bool
waits_for_room(KvStore *store, KvShard *shard, const KvWrite *write, Size place, int keylen)
{
	if (place == 0 || kv_buffer_fits(shard, place, keylen) || write->nowait || write->waited ||
		RecoveryInProgress())
		return false;
	kv_space_tell(store, shard, 0);
	return kv_space_is_short(store);
}

/* What a write needs first. */
typedef enum KvLack
{
	LACKS_NOTHING,
	LACKS_CHECKPOINTER,
	LACKS_MAP,					/* the shard's bounds are about to change */
	LACKS_ADDRESS,				/* in redo: the address must be claimed */
	LACKS_FLUSH,				/* flushes do not keep up */
	LACKS_SPACE,				/* the store exceeds its space limit */
	LACKS_LARGE_VALUE,			/* the value fits into no write buffer */
	LACKS_VALUE_FILE,			/* it must grow or be created first */
	LACKS_BUFFER				/* a write buffer must become free first */
} KvLack;

/* Make the open write buffer fit a value and a key.  The lock is held exclusively. */
static KvLack
ensure_buffer(KvStore *store, uint32 shard_id, Size len, int keylen)
{
	KvShard    *shard = kv_shard(store, shard_id);

	if (kv_buffer_fits(shard, len, keylen))
		return LACKS_NOTHING;
	if (shard->buffers.open >= 0)
	{
		/* it may take the entry of a value that is stored elsewhere */
		if (kv_buffer_fits(shard, 0, keylen) && !kv_buffer_can_open(store, len))
			return LACKS_BUFFER;
		kv_buffer_seal(store, shard_id);
	}
	if (shard->values.tail + kv_buffer_capacity(shard, len) > shard->values.allocated)
		return LACKS_VALUE_FILE;
	return kv_buffer_open(store, shard_id, len) ? LACKS_NOTHING : LACKS_BUFFER;
}

/*
 * The next thing that a write needs before it can be done with an open write buffer of the shard,
 * which this opens.  The shard's lock is held exclusively.
 */
static KvLack
lack_of(KvStore *store, uint32 shard_id, KvKey key, const KvWrite *write)
{
	KvShard    *shard = kv_shard(store, shard_id);
	Size		place = write->placing == KV_IN_BUFFER ? write->version.len : 0;

	/* what is restored is durable already */
	if (pg_atomic_read_u32(&kv_gate->is_open) == 0 && !RecoveryInProgress() && !write->restored)
		return LACKS_CHECKPOINTER;
	if (shard->place.halted)
		return LACKS_MAP;
	if (write->placing == KV_PLACED && write->version.len > 0 &&
		kv_value_file_find(shard, KV_LOCATION_ADDRESS(write->version.location)) == NULL)
		return LACKS_ADDRESS;
	if (shard->active.bytes >= 2 * kv_memtable_limit())
		return LACKS_FLUSH;
	if (waits_for_room(store, shard, write, place, key.len))
		return LACKS_SPACE;
	if (place > kv_buffer_pool->largest_value)
		return LACKS_LARGE_VALUE;
	return write->stored ? ensure_buffer(store, shard_id, place, key.len) : LACKS_NOTHING;
}

bool
kv_write_is_ready(KvStore *store, uint32 shard_id, KvKey key, const KvWrite *write)
{
	return lack_of(store, shard_id, key, write) == LACKS_NOTHING;
}

/* Get, make or wait for what a write lacks; or the write is refused.  No lock is held. */
static void
remedy(KvStore *store, uint32 shard_id, KvLack lack, KvWrite *write)
{
	Size		place = write->placing == KV_IN_BUFFER ? write->version.len : 0;

	switch (lack)
	{
		case LACKS_NOTHING:
			break;
		case LACKS_CHECKPOINTER:
			if (!refuse(write))
				kv_gate_wait();
			break;
		case LACKS_MAP:
			if (!refuse(write))
				wait_for_map(kv_shard(store, shard_id));
			break;
		case LACKS_ADDRESS:
			claim(store, shard_id, write);
			break;
		case LACKS_FLUSH:
			if (!refuse_memory(write))
				kv_shard_flush(store, shard_id, KV_FLUSH_MEMORY);
			break;
		case LACKS_SPACE:
			write->waited = !kv_space_wait(store, &write->waits_since);
			break;
		case LACKS_LARGE_VALUE:
			place_large_value(store, shard_id, write);
			break;
		case LACKS_VALUE_FILE:
			if (!kv_value_extend(store, shard_id, place, true) && !refuse_memory(write))
				kv_make_memory(store, shard_id);
			break;
		case LACKS_BUFFER:
			if (!(write->nowait ? kv_buffer_ask_free(store, place)
				  : kv_buffer_wait_free(store, place)))
				place_large_value(store, shard_id, write);
			else
				(void) refuse(write);
			break;
	}
}

/*
 * The memtable first: memory for it may be missing, but the write buffer is ready.  The version
 * that is added here gets its location below, before any other process can see it.
 */
bool
kv_write_put(KvStore *store, KvKey key, KvWrite *write, KvKeyState *state)
{
	KvShard    *shard = kv_shard(store, state->shard_id);
	KvVersion  *added = kv_memtable_add(&shard->active, &state->place, key.data, key.len,
										&write->version);
	KvHeat		heat;

	if (added == NULL)
		return false;
	if (state->exists && state->newest.len > 0 && write->version.kind != KV_VERSION_LOCK)
		/* dead once no snapshot sees it any more */
		kv_value_file_note_dead(store, shard, &state->newest, write->version.xid);
	if (write->stored)
		kv_buffer_put(store, shard, key, &write->version, write->form, write->value,
					  write->crc, write->placing);
	*added = write->version;
	if (write->version.kind == KV_VERSION_PUT && kv_dead_any(shard))
		kv_dead_cut(shard, key);
	if (RecoveryInProgress())
		kv_shard_note_redone(shard, &write->version);
	heat = heat_of(store, shard, state, write);
	if (heat == KV_CACHED)
		kv_source_replaced(store->cache_id, state->newest.location, state->newest.len);
	if (heat != KV_COLD)
		kv_buffer_mark(shard, write->version.location, write->version.len, heat);
	if (write->version.kind == KV_VERSION_LOCK && write->version.cid == LockTupleKeyShare)
		shard->key_share_xid = Max(shard->key_share_xid, write->version.xid);
	return true;
}

bool
kv_write_is_logged(KvStore *store, uint32 shard_id, const KvWrite *write)
{
	if (store->shape.wal == KV_WAL_NONE || RecoveryInProgress() || write->restored ||
		!write->stored)
		return false;
	if (unlikely(store->unlogged != KV_LOGGED))
	{
		store->unlogged = KV_UNLOGGED_ROWS;
		return false;
	}
	return store->shape.wal != KV_WAL_KEYS || kv_commit_note_write(store, shard_id);
}

bool
kv_write_finish(KvStore *store, KvKey key, KvWrite *write, KvKeyState *state)
{
	uint32		shard_id = state->shard_id;
	KvShard    *shard = kv_shard(store, shard_id);
	Size		before = shard->active.bytes;
	KvLack		lack;
	bool		added;
	bool		full;
	bool		log;

	leave_other_shard(shard_id, write);
	lack = lack_of(store, shard_id, key, write);
	if (lack != LACKS_NOTHING)
	{
		LWLockRelease(&shard->lock);
		remedy(store, shard_id, lack, write);
		return false;
	}
	added = kv_write_put(store, key, write, state);
	log = added && kv_write_is_logged(store, shard_id, write);
	if (log)
		pg_atomic_fetch_add_u32(&kv_gate->logging, 1);
	full = before < kv_memtable_limit() && shard->active.bytes >= kv_memtable_limit();
	if (log)
		START_CRIT_SECTION();	/* whatever happens, the count must be decremented */
	LWLockRelease(&shard->lock);
	if (log)
	{
		kv_wal_log_version(&store->key, key, &write->version, write->crc, write->value,
						   kv_is_fed(store));
		pg_atomic_fetch_sub_u32(&kv_gate->logging, 1);
		END_CRIT_SECTION();
	}
	KV_STOP_POINT("write_done");
	if (!added && !refuse_memory(write))
		kv_make_memory(store, shard_id);
	if (full)
		kv_wake_maintainer();
	return added;
}

/* ---- writing ---- */

static void
write_on_top(KvStore *store, KvKey key, KvWrite *write)
{
	KvKeyState	state;

	do
	{
		KvShard    *shard;
		KvRoute		route;

		kv_interrupts();
		begin_state(&state);
		for (;;)
		{
			route = kv_route(store, key);
			shard = kv_shard(store, route.shard_id);
			LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
			if (kv_route_holds(shard, route))
				break;
			LWLockRelease(&shard->lock);
		}
		state.shard_id = route.shard_id;
		kv_memtable_locate(&shard->active, key.data, key.len, &state.place);
	} while (!kv_write_finish(store, key, write, &state));
}

void
kv_redo_version(KvStore *store, KvKey key, const KvVersion *version, KvForm form,
				uint32 crc, const char *value)
{
	KvWrite		write = {.version = *version, .form = form, .value = value, .crc = crc,
						 .stored = true};

	write.version.location = KV_LOCATION_MAKE(form, 0);
	write_on_top(store, key, &write);
}

void
kv_redo_location(KvStore *store, KvKey key, const KvVersion *version)
{
	KvWrite		write = {.version = *version, .placing = KV_PLACED, .stored = true};

	/* its value file may be known, but not be known to be used up to there */
	if (version->len > 0)
		claim(store, kv_shard_for(store, key.data, key.len), &write);
	write_on_top(store, key, &write);
}

/* Put one entry of what is carried into the store again.  False: it does not count any more. */
static bool
restore_entry(KvStore *store, uint32 shard_id, const KvCarried *carried, const KvLogEntry *entry)
{
	KvKey		key = kv_entry_key(entry);
	KvForm		form = KV_LOCATION_FORM(entry->location);
	const char *value = entry->len == 0 ? NULL :
		carried->values + (KV_LOCATION_ADDRESS(entry->location) - carried->base);
	KvWrite		write = {.version = kv_entry_version(entry), .form = form, .value = value,
						 .stored = true};

	write.crc = kv_value_crc_begin(&store->key, key, value, entry->len);
	if (kv_value_crc_finish(write.crc, entry->location, entry->len) != entry->value_crc ||
		kv_shard_for(store, key.data, key.len) != shard_id)
		kv_versions_raise_damaged(&store->key, store->versions.number,
								  psprintf("A value of shard %u does not match its checksum.",
										   shard_id));
	write.version.status = kv_xid_status(entry->xid, carried->incarnation);
	if (write.version.status == KV_XID_ABORTED ||
		(entry->kind == KV_VERSION_LOCK && write.version.status != KV_XID_UNKNOWN))
		return false;
	write.version.location = KV_LOCATION_MAKE(form, 0);
	write.restored = write.waited = true;
	write_on_top(store, key, &write);
	kv_stat_add(store, KV_COUNT_RECOVERED_ENTRIES, 1);
	return true;
}

void
kv_restore_carried(KvStore *store, uint32 shard_id, const KvCarried *carried)
{
	bool		all = true;

	for (uint32 at = 0; at < carried->entry_bytes;)
	{
		const KvLogEntry *entry = (const KvLogEntry *) (carried->entries + at);

		all &= restore_entry(store, shard_id, carried, entry);
		at += KV_LOG_ENTRY_SIZE(entry->keylen);
	}

	/* the rest names xids that clog will forget, so the next checkpoint must make a mark */
	if (!all)
		pg_atomic_fetch_add_u32(&kv_shard(store, shard_id)->generation, 1);
}

KvInsertResult
kv_insert(KvStore *store, Relation rel, KvKey key, KvForm form,
		  const char *value, Size len, Snapshot snapshot, CommandId cid, bool replace)
{
	KvWrite		write;

	kv_write_prepare(store, key, KV_VERSION_PUT, form, value, len, cid, &write);
	for (;;)
	{
		KvKeyState	state;
		uint64		wait = 0;

		CHECK_FOR_INTERRUPTS();
		kv_key_lookup(store, key,
					  replace ? LockTupleNoKeyExclusive : LockTupleExclusive, NULL, &state);
		if (state.unfinished != 0)
			wait = state.unfinished;
		else if (state.exists && state.newest.kind == KV_VERSION_PUT)
		{
			if (!replace)
			{
				KvView		view = {snapshot, NULL};
				bool		seen = state.newest.xid == 0 ||
					kv_xid_is_mine(state.newest.xid) ||
					kv_version_visible(&state.newest, &view, kv_incarnations->current);

				kv_key_leave(store, &state);
				return seen ? KV_EXISTS : KV_EXISTS_UNSEEN;
			}
			wait = state.locked_by;
		}
		if (wait != 0)
		{
			kv_key_leave(store, &state);
			XactLockTableWait((TransactionId) wait, rel, NULL, XLTW_None);
			continue;
		}
		if (kv_write_finish(store, key, &write, &state))
			break;
	}
	kv_stat_add(store, KV_COUNT_INSERTS, 1);
	kv_note_change(store);
	kv_stat_add(store, KV_COUNT_VALUE_BYTES, len);
	return KV_INSERTED;
}
