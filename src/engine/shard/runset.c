/*
 * runset.c
 *		The runs of a shard, and which of a key's versions a reader sees.
 *
 * The newest versions of a key are in the active memtable.  Older ones are in the immutable
 * memtable (while a flush runs), then in the unfrozen runs, and the oldest in the base run.  A
 * reader searches both memtables under the shard's lock.  Runs are immutable and are searched
 * without the lock.  A reader first notes the generation of the run list and searches the runs.
 * Then it takes the lock and checks that the shard still has the generation; otherwise it starts
 * again (I 7).
 */
#include "postgres.h"

#include "access/xlog.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"

#include "engine/base/hash.h"
#include "engine/base/key.h"
#include "engine/base/shared.h"
#include "engine/base/types.h"
#include "engine/format/format.h"
#include "engine/format/path.h"
#include "engine/index/memtable.h"
#include "engine/index/run.h"
#include "engine/io/io.h"
#include "engine/shard/map.h"
#include "engine/shard/shard.h"
#include "engine/xact/xact.h"

/* ---- this process's view of a shard's runs ---- */

typedef struct KvRunSetKey
{
	uint32		opening;		/* KvStore.cache_id */
	uint32		shard;
} KvRunSetKey;

typedef struct KvRunSetEntry
{
	KvRunSetKey key;
	KvRunSet	set;
} KvRunSetEntry;

#define KV_CACHED_RUNSETS 512
#define KV_NEAR_RUNSETS	64

static HTAB *runsets = NULL;

/* The most recently used entries, found without a search of the hash table. */
static KvRunSetEntry *near_runsets[KV_NEAR_RUNSETS];

void
kv_store_ids(const KvStore *store, uint32 shard, uint32 number, KvRunIds *ids)
{
	memset(ids, 0, sizeof(*ids));
	ids->directory_id = kv_directory_id();
	ids->dboid = store->key.dboid;
	ids->relid = store->key.relid;
	ids->generation = store->key.generation;
	ids->shard = shard;
	ids->number = number;
	ids->opening = store->cache_id;
	ids->incarnation = kv_writing_incarnation();
	ids->fixed_key_len = store->shape.key_width;
}

static void
release_runset(KvRunSet *set)
{
	for (int i = 0; i < set->nruns; i++)
		kv_run_unpin(set->runs[i]);
	set->nruns = 0;
}

void
kv_runset_forget(const KvStore *store)
{
	HASH_SEQ_STATUS status;
	KvRunSetEntry *entry;

	if (runsets == NULL)
		return;
	memset(near_runsets, 0, sizeof(near_runsets));
	hash_seq_init(&status, runsets);
	while ((entry = hash_seq_search(&status)) != NULL)
	{
		if (store == NULL || entry->key.opening == store->cache_id)
		{
			release_runset(&entry->set);
			hash_search(runsets, &entry->key, HASH_REMOVE, NULL);
		}
	}
}

/* Maps the present runs of the shard.  False: one was removed in between. */
static bool
load_runset(KvStore *store, uint32 shard_id, KvRunSet *set)
{
	KvShard    *shard = kv_shard(store, shard_id);
	uint32		numbers[KV_MAX_UNFROZEN + 1];
	uint32		generation;
	int			n;
	KvRunIds	ids;

	LWLockAcquire(&shard->lock, LW_SHARED);
	generation = pg_atomic_read_u32(&shard->generation);
	n = kv_files_runs(&shard->files, numbers);
	set->has_base = shard->files.base_run != 0;
	if (shard->place.bounds_since == KV_NOT_IN_MAP)
	{
		/* its files are being removed, and no route leads to it */
		n = 0;
		set->has_base = false;
	}
	LWLockRelease(&shard->lock);

	for (int i = 0; i < n; i++)
	{
		KvRun	   *run;

		kv_store_ids(store, shard_id, numbers[i], &ids);
		run = kv_run_pin(kv_path_run(&store->key, shard_id, numbers[i]), &ids);
		if (run == NULL)
		{
			if (pg_atomic_read_u32(&shard->generation) == generation)
				kv_io_raise_missing(kv_path_run(&store->key, shard_id, numbers[i]));
			release_runset(set);
			return false;
		}
		set->runs[set->nruns++] = run;
	}

	set->order = KV_RUN_ORDER_NOT_KNOWN;

	/* set last: after an ERROR above, the incomplete set must not look current */
	set->generation = generation;
	return true;
}

static KvRunSetEntry *
find_entry(uint32 opening, uint32 shard_id)
{
	KvRunSetEntry **near = &near_runsets[(opening + shard_id) % KV_NEAR_RUNSETS];
	KvRunSetKey	key = {.opening = opening, .shard = shard_id};
	KvRunSetEntry *entry = *near;

	if (entry != NULL && entry->key.opening == opening && entry->key.shard == shard_id)
		return entry;
	if (runsets == NULL)
		runsets = kv_hash_create("kvfdw run sets", sizeof(KvRunSetKey), sizeof(KvRunSetEntry),
								 TopMemoryContext);
	entry = hash_search(runsets, &key, HASH_FIND, NULL);
	if (entry == NULL)
	{
		if (hash_get_num_entries(runsets) >= KV_CACHED_RUNSETS)
			kv_runset_forget(NULL);
		entry = hash_search(runsets, &key, HASH_ENTER, NULL);
		memset(&entry->set, 0, sizeof(entry->set));
		/* generations start at 1, so this entry is outdated */
	}
	return *near = entry;
}

const KvRunSet *
kv_shard_runs(KvStore *store, uint32 shard_id)
{
	KvShard    *shard = kv_shard(store, shard_id);
	KvRunSetEntry *entry;

	if (kv_run_take_unreadable())
		kv_runset_forget(NULL);
	entry = find_entry(store->cache_id, shard_id);
	if (entry->set.generation != pg_atomic_read_u32(&shard->generation))
	{
		do
		{
			release_runset(&entry->set);
			entry->set.generation = 0;
		} while (!load_runset(store, shard_id, &entry->set));
	}
	return &entry->set;
}

const KvRunSet *
kv_shard_view(KvStore *store, uint32 shard_id)
{
	KvShard    *shard = kv_shard(store, shard_id);

	for (;;)
	{
		const KvRunSet *set = kv_shard_runs(store, shard_id);

		LWLockAcquire(&shard->lock, LW_SHARED);
		if (pg_atomic_read_u32(&shard->generation) == set->generation)
			return set;
		LWLockRelease(&shard->lock);
	}
}

const KvRunSet *
kv_key_view(KvStore *store, KvKey key, KvShard **shard)
{
	for (;;)
	{
		KvRoute		route = kv_route(store, key);
		const KvRunSet *set;

		*shard = kv_shard(store, route.shard_id);
		set = kv_shard_view(store, route.shard_id);
		if (likely(kv_route_holds(*shard, route)))
			return set;
		LWLockRelease(&(*shard)->lock);
	}
}

void
kv_run_versions_begin(KvRunVersions *walk, const KvRunSet *set, KvKey key)
{
	walk->set = set;
	walk->key = key;
	walk->run = -1;
	walk->taken = walk->cursor.valid = false;
}

bool
kv_run_versions_next(KvRunVersions *walk, KvVersion *version, uint32 *incarnation)
{
	/* advance only now: most callers ask for no other version */
	if (walk->taken)
		kv_run_next(&walk->cursor);
	walk->taken = false;
	for (;;)
	{
		if (kv_run_is_at(&walk->cursor, walk->key.data, walk->key.len))
		{
			uint8		keybuf[8];
			const uint8 *found;
			int			len;

			kv_run_entry(&walk->cursor, keybuf, &found, &len, version);
			*incarnation = kv_run_header(walk->cursor.run)->incarnation;
			walk->taken = true;
			return true;
		}
		if (++walk->run >= walk->set->nruns)
			return false;
		kv_run_seek(walk->set->runs[walk->run], walk->key.data, walk->key.len,
					&walk->cursor);
	}
}

/* The next visible version of a walk. */
static bool
next_visible(KvRunVersions *walk, const KvView *view, KvVersion *version)
{
	uint32		incarnation;

	while (kv_run_versions_next(walk, version, &incarnation))
	{
		if (kv_version_visible(version, view, incarnation))
			return true;
	}
	return false;
}

bool
kv_runset_find(const KvRunSet *set, KvKey key, const KvView *view, KvVersion *version)
{
	KvRunVersions walk;

	kv_run_versions_begin(&walk, set, key);
	return next_visible(&walk, view, version);
}

void
kv_runset_find_all(const KvRunSet *set, const KvKey *keys, int n, const KvView *view,
				   KvVersion **versions, bool *found)
{
	KvRunCursor cursors[KV_FOUND_TOGETHER];

	if (set->nruns > 0)
		kv_run_seek_all(set->runs[0], keys, n, cursors);
	for (int i = 0; i < n; i++)
	{
		KvRunVersions walk;

		kv_run_versions_begin(&walk, set, keys[i]);
		if (set->nruns > 0)
		{
			walk.run = 0;
			walk.cursor = cursors[i];
		}
		found[i] = next_visible(&walk, view, versions[i]);
	}
}

bool
kv_chain_visible(dsa_pointer pointer, const KvView *view, KvVersion *version)
{
	while (DsaPointerIsValid(pointer))
	{
		KvMemtableVersion *node = kv_address(pointer);

		if (kv_version_visible(&node->version, view, kv_incarnations->current))
		{
			*version = node->version;
			return true;
		}
		pointer = node->older;
	}
	return false;
}
