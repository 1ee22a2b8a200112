/*
 * many.c
 *		Writes versions of many keys at once: one lookup in the runs, one hold of a shard's lock for
 *		keys that follow each other in it, one WAL record.
 *
 * Keys are done in the order of the statement, and each only if it needs no wait.  So a statement
 * waits for other transactions in the order in which it would without this, and meets no other
 * deadlocks.
 *
 * A version is logged after it is in its shard, as always.  Until then the process counts as one
 * that logs (KvGate.logging).  After an ERROR in between nothing is logged: the transaction aborts,
 * and an aborted version needs no record.  The count is decremented when it does.
 */
#include "postgres.h"

#include "miscadmin.h"

#include "engine/base/types.h"
#include "engine/base/wait.h"
#include "engine/engine.h"
#include "engine/io/fault.h"
#include "engine/maintenance.h"
#include "engine/rows.h"
#include "engine/shard/shard.h"
#include "engine/write/internal.h"
#include "engine/xact/xact.h"

/* ---- versions that are put and not logged ---- */

static bool counted = false;	/* this process counts in KvGate.logging */

static void
count_me(void)
{
	if (!counted)
		pg_atomic_fetch_add_u32(&kv_gate->logging, 1);
	counted = true;
}

void
kv_many_forget(void)
{
	if (counted)
		pg_atomic_fetch_sub_u32(&kv_gate->logging, 1);
	counted = false;
}

void
kv_many_begin(KvMany *many, KvStore *store)
{
	many->store = store;
	many->locked = NULL;
	many->wakes = false;
	many->n = 0;
}

static void
unlock(KvMany *many)
{
	if (many->locked != NULL)
		LWLockRelease(&many->locked->lock);
	many->locked = NULL;
}

void
kv_many_end(KvMany *many)
{
	unlock(many);
	KV_STOP_POINT("many_unlogged");
	if (many->n > 0)
		kv_wal_log_versions(&many->store->key, many->unlogged, many->n,
							kv_is_fed(many->store));
	many->n = 0;
	kv_many_forget();
	if (many->wakes)
		kv_wake_maintainer();
	many->wakes = false;
}

/* ---- one key after the other ---- */

/* Search the runs of the first key's shard for it, and for the next ones that are there. */
static int
look_below(KvStore *store, const KvKey *keys, int n, LockTupleMode wanted, KvBelow *below)
{
	uint32		shard_id = below->route.shard_id;
	const KvShard *shard = kv_shard(store, shard_id);
	const KvRunSet *set = kv_shard_runs(store, shard_id);
	KvRunCursor cursors[KV_FOUND_TOGETHER];
	int			m = 1;

	while (m < Min(n, KV_FOUND_TOGETHER) && below[m].route.shard_id == shard_id)
		m++;
	if (set->nruns > 0)
		kv_run_seek_all(set->runs[0], keys, m, cursors);
	for (int i = 0; i < m; i++)
	{
		KvRunVersions walk;

		kv_run_versions_begin(&walk, set, keys[i]);
		if (set->nruns > 0)
		{
			walk.run = 0;
			walk.cursor = cursors[i];
		}
		kv_key_below(shard, set, &walk, wanted, &below[i]);
	}
	return m;
}

void
kv_keys_below(KvStore *store, const KvKey *keys, int n, LockTupleMode wanted, KvBelow *below)
{
	for (int i = 0; i < n; i++)
		below[i].route = kv_route(store, keys[i]);
	for (int i = 0; i < n;)
		i += look_below(store, keys + i, n - i, wanted, below + i);
}

bool
kv_many_reach(KvMany *many, KvKey key, LockTupleMode wanted, const KvBelow *below,
			  KvKeyState *state)
{
	KvShard    *shard = kv_shard(many->store, below->route.shard_id);

	if (many->locked != shard)
	{
		unlock(many);
		LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
		many->locked = shard;
	}
	if (pg_atomic_read_u32(&shard->generation) != below->generation ||
		!kv_route_holds(shard, below->route))
		return false;
	kv_key_state(shard, key, wanted, below, state);
	state->shard_id = below->route.shard_id;
	return true;
}

bool
kv_many_put(KvMany *many, KvKey key, KvWrite *write, KvKeyState *state)
{
	KvShard    *shard = many->locked;
	Size		before = shard->active.bytes;

	if (!kv_write_is_ready(many->store, state->shard_id, key, write) ||
		!kv_write_put(many->store, key, write, state))
		return false;
	many->wakes |= before < kv_memtable_limit() && shard->active.bytes >= kv_memtable_limit();
	if (kv_write_is_logged(many->store, state->shard_id, write))
	{
		KvUnlogged *one = &many->unlogged[many->n++];

		count_me();
		one->key = key;
		one->version = write->version;
		one->crc = write->crc;
		one->value = write->value;
	}
	return true;
}

/* ---- inserting ---- */

static bool
is_free(const KvKeyState *state)
{
	return state->unfinished == 0 && !(state->exists && state->newest.kind == KV_VERSION_PUT);
}

int
kv_insert_many(KvStore *store, const KvInsert *rows, int n, CommandId cid)
{
	KvBelow		below[KV_MANY];
	KvKey		keys[KV_MANY] = {{NULL, 0}};
	KvWrite		writes[KV_MANY];
	KvKeyState	state;
	KvMany		many;
	uint64		bytes = 0;
	int			done;

	Assert(n <= KV_INSERTED_TOGETHER);
	for (int i = 0; i < n; i++)
	{
		keys[i] = rows[i].key;
		kv_write_prepare(store, keys[i], KV_VERSION_PUT, rows[i].form, rows[i].value, rows[i].len,
						 cid, &writes[i]);
	}
	kv_keys_below(store, keys, n, LockTupleExclusive, below);
	kv_many_begin(&many, store);
	for (done = 0; done < n; done++)
	{
		if (!kv_many_reach(&many, keys[done], LockTupleExclusive, &below[done], &state) ||
			!is_free(&state) || !kv_many_put(&many, keys[done], &writes[done], &state))
			break;
		bytes += rows[done].len;
	}
	kv_many_end(&many);
	if (done > 0)
	{
		kv_stat_add(store, KV_COUNT_INSERTS, done);
		kv_stat_add(store, KV_COUNT_VALUE_BYTES, bytes);
		kv_note_changes(store, done);
	}
	return done;
}

/* ---- deleting ---- */

/* What the runs have of rows, as their scan has seen it, or by a search. */
static void
find_below(KvStore *store, const KvDelete *rows, const KvKey *keys, int n, KvBelow *below)
{
	bool		seen = true;

	for (int i = 0; i < n && seen; i++)
		seen = rows[i].seen != NULL &&
			kv_seen_below(rows[i].seen, kv_route(store, keys[i]), &below[i]);
	if (!seen)
		kv_keys_below(store, keys, n, LockTupleExclusive, below);
}

/* Is the row as the snapshot sees it, and does no other transaction lock it? */
static bool
is_free_to_go(KvKeyState *state, const KvView *view)
{
	return state->unfinished == 0 && state->locked_by == 0 && state->exists &&
		state->newest.kind == KV_VERSION_PUT &&
		kv_version_visible(&state->newest, view, kv_incarnations->current);
}

int
kv_delete_many(KvStore *store, const KvDelete *rows, int n, Snapshot snapshot, CommandId cid)
{
	KvView		view = {snapshot, NULL};
	KvBelow		below[KV_MANY];
	KvKey		keys[KV_MANY] = {{NULL, 0}};
	KvWrite		writes[KV_MANY];
	KvKeyState	state;
	KvMany		many;
	int			done;

	Assert(n <= KV_DELETED_TOGETHER);
	for (int i = 0; i < n; i++)
	{
		keys[i] = rows[i].key;
		kv_write_prepare(store, keys[i], KV_VERSION_DELETE, KV_FORM_RAW, NULL, 0, cid, &writes[i]);
	}
	find_below(store, rows, keys, n, below);
	kv_many_begin(&many, store);
	for (done = 0; done < n; done++)
	{
		if (!kv_many_reach(&many, keys[done], LockTupleExclusive, &below[done], &state) ||
			!is_free_to_go(&state, &view) ||
			!kv_many_put(&many, keys[done], &writes[done], &state))
			break;
	}
	kv_many_end(&many);
	if (done > 0)
	{
		kv_stat_add(store, KV_COUNT_DELETES, done);
		kv_note_changes(store, done);
	}
	return done;
}
