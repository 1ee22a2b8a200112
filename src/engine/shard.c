/*
 * shard.c
 *		Where one key of a store lives, and which of its versions a reader sees.
 *
 * A key's versions lie, newest first, in the active delta, the sealed delta
 * (while a freeze runs), the unfrozen runs and the base run.  Both deltas are
 * read under the shard's lock.  Runs are immutable and searched without it:
 * first note the run list's generation and search, then take the lock and make
 * sure that the generation still holds, else begin again (I 7).
 */
#include "postgres.h"

#include "utils/hsearch.h"
#include "utils/memutils.h"

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

/* Begin to walk the versions of key in the runs, newest first. */
void
kv_run_versions_begin(KvRunVersions *walk, const KvRunSet *set, KvKey key)
{
	walk->set = set;
	walk->key = key;
	walk->run = -1;
	walk->cursor.valid = false;
}

/* The next version and the incarnation that its run is of; false at the end. */
bool
kv_run_versions_next(KvRunVersions *walk, KvVersion *version, uint32 *incarnation)
{
	for (;;)
	{
		if (kv_run_is_at(&walk->cursor, walk->key.data, walk->key.len))
		{
			uint8		keybuf[8];
			const uint8 *found;
			int			len;

			kv_run_entry(&walk->cursor, keybuf, &found, &len, version);
			*incarnation = kv_run_header(walk->cursor.run)->incarnation;
			kv_run_next(&walk->cursor);
			return true;
		}
		if (++walk->run >= walk->set->nruns)
			return false;
		kv_run_seek(walk->set->runs[walk->run], walk->key.data, walk->key.len,
					&walk->cursor);
	}
}

/* The version of key in the runs that a snapshot sees. */
bool
kv_runset_find(const KvRunSet *set, KvKey key, Snapshot snapshot, KvVersion *version)
{
	KvRunVersions walk;
	uint32		incarnation;

	kv_run_versions_begin(&walk, set, key);
	while (kv_run_versions_next(&walk, version, &incarnation))
	{
		if (kv_version_visible(version, snapshot, incarnation))
			return true;
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

/* ---- pieces of a store ---- */

#define KV_PIECE_PAGES	8		/* index pages of a run that are worth a piece */

/* Add a place, unless it is not behind the last one. */
static int
add_split(KvSplit *splits, int n, const uint8 *bytes, int len)
{
	len = Min(len, (int) sizeof(splits->bytes));
	if (len == 0 ||
		(n > 0 && kv_key_compare(bytes, len, splits[n - 1].bytes, splits[n - 1].len) <= 0))
		return n;
	memcpy(splits[n].bytes, bytes, len);
	splits[n].len = len;
	return n + 1;
}

int
kv_store_splits(KvStore *store, KvSplit *splits, int max)
{
	int			in_each = Max((max + 1) / store->nshards - 1, 0);
	int			n = 0;

	for (uint32 shardno = 0; shardno < store->nshards; shardno++)
	{
		KvKey		bound = kv_shard_bound(store, shardno);
		const KvRunSet *set;
		KvRun	   *largest = NULL;
		uint64		npages = 0;
		uint64		pieces;

		/* with more shards than pieces, some of the bounds will do */
		if (store->nshards <= max ||
			(uint64) shardno * max / store->nshards !=
			((uint64) shardno + 1) * max / store->nshards)
			n = add_split(splits, n, bound.data, bound.len);
		if (in_each == 0)
			continue;
		set = kv_shard_runs(store, shardno);
		for (int i = 0; i < set->nruns; i++)
		{
			if (kv_run_header(set->runs[i])->npages > npages)
			{
				largest = set->runs[i];
				npages = kv_run_header(largest)->npages;
			}
		}
		pieces = Min(npages / KV_PIECE_PAGES, (uint64) in_each + 1);
		for (uint64 i = 1; i < pieces; i++)
		{
			uint8		bytes[8];
			int			len = kv_run_page_prefix(largest, i * npages / pieces, bytes);

			n = add_split(splits, n, bytes, len);
		}
	}
	return n;
}
