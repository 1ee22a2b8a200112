/*
 * walk.c
 *		Reads the runs of a shard in key order, to count live bytes and to find values to move.
 *
 * The runs are those of one moment, kept open; flushes may replace them in the meantime.  The walk
 * decides what is worth copying, with the rules of a flush (flush/survive.h).  The flush at the end
 * of the job decides what is true.  Its horizon is the same or a later one, so what it keeps of
 * these runs is among what the walk has kept.
 */
#include "postgres.h"

#include "engine/base/key.h"
#include "engine/base/types.h"
#include "engine/base/wait.h"
#include "engine/cache/reader.h"
#include "engine/compact/internal.h"
#include "engine/flush/survive.h"
#include "engine/io/io.h"
#include "engine/buffer/buffer.h"

/* Opens the present runs of the shard.  False: one was replaced in the meantime. */
static bool
open_runs(KvWalk *walk)
{
	KvShard    *shard = kv_shard(walk->store, walk->shard_id);
	uint32		numbers[KV_MAX_UNFROZEN + 1];
	KvKey		edge = {NULL, 0};
	uint32		generation;
	int			n;

	LWLockAcquire(&shard->lock, LW_SHARED);
	generation = pg_atomic_read_u32(&shard->generation);
	walk->has_base = shard->files.base_run != 0;
	walk->base_run = shard->files.base_run;
	walk->first_log = shard->files.first_log;
	n = kv_files_runs(&shard->files, numbers);
	LWLockRelease(&shard->lock);
	for (int i = 0; i < n; i++)
	{
		const char *path = kv_path_run(&walk->store->key, walk->shard_id, numbers[i]);
		KvRunIds	ids;
		KvRun	   *run;

		kv_store_ids(walk->store, walk->shard_id, numbers[i], &ids);
		run = kv_run_open(path, &ids);
		if (run == NULL && pg_atomic_read_u32(&shard->generation) != generation)
			return false;
		if (run == NULL)
			kv_io_raise_missing(path);
		kv_merge_add(&walk->runs, run, edge, false);
	}
	return true;
}

void
kv_walk_begin(KvWalk *walk, KvStore *store, uint32 shard_id, KvPace *pace)
{
	walk->store = store;
	walk->pace = pace;
	walk->shard_id = shard_id;
	kv_merge_begin(&walk->runs, false);
	while (!open_runs(walk))
		kv_walk_end(walk);
}

void
kv_walk_end(KvWalk *walk)
{
	while (walk->runs.nheads > 0)
		kv_run_close(walk->runs.heads[--walk->runs.nheads].cursor.run);
}

void
kv_walk(KvWalk *walk, void (*each) (void *arg, KvKey key, const KvVersion *version, bool shadowed),
		void *arg)
{
	KvSurvival	rules = {kv_xid_horizon(), kv_xid_ended(), true};
	int			base = walk->has_base ? walk->runs.nheads - 1 : -1;
	uint8		keybytes[KV_MAX_KEY];

	for (uint64 n = 1;; n++)
	{
		KvKey		first = kv_merge_first(&walk->runs);
		KvKey		key = {keybytes, first.len};
		bool		resolved = false;
		bool		shadowed = false;

		if (n % KV_GET_KEYS == 0)
		{
			kv_job_interrupts(walk->store);
			kv_pace_keys(walk->pace, KV_GET_KEYS);
		}
		if (first.data == NULL)
			break;
		memcpy(keybytes, first.data, first.len);
		for (int i = 0; i < walk->runs.nheads; i++)
		{
			KvRunHead  *head = &walk->runs.heads[i];

			for (; kv_head_is_at(head, key); kv_head_step(&walk->runs, head))
			{
				KvVersion	version = head->version;

				if (kv_version_survives(&rules, &version, head->incarnation, i == base,
										&resolved) == KV_SURVIVES_NOT)
					continue;
				each(arg, key, &version, shadowed);
				shadowed |= version.kind != KV_VERSION_LOCK;
			}
		}
	}
}

/* ---- counting ---- */

typedef struct KvCounting
{
	KvCounts   *counts;
	KvCounted  *counted;
	KvAddress	last;
} KvCounting;

static void
count(void *arg, KvKey key, const KvVersion *version, bool shadowed)
{
	KvCounting *counting = arg;

	KvAddress	address = KV_LOCATION_ADDRESS(version->location);

	if (shadowed)
		counting->counted->held += version->len;
	if (version->len > 0)
	{
		counting->counted->pairs++;
		counting->counted->near += address >= counting->last &&
			address - counting->last <= KV_WINDOW_SIZE;
		counting->last = address + version->len;
	}
	kv_counts_add(counting->counts, version->location, version->len,
				  shadowed || version->status == KV_XID_UNKNOWN);
}

/* Are all entries of its value files in runs?  Lock held. */
static bool
is_in_runs(const KvShard *shard)
{
	if (shard->active.nversions > 0 || DsaPointerIsValid(shard->immutable.root))
		return false;
	for (int i = 0; i < shard->values.n; i++)
	{
		if (kv_value_files(shard)[i].value_file.last_log >= shard->files.first_log)
			return false;
	}
	return true;
}

void
kv_walk_count(KvWalk *walk, KvStore *store, uint32 shard_id, KvPace *pace, KvCounted *counted)
{
	KvShard    *shard = kv_shard(store, shard_id);
	KvCounting	counting = {.counted = counted};
	KvCounts   *counts;
	KvValueFileCount *open;
	bool		in_runs;

	memset(counted, 0, sizeof(*counted));

	/* before any buffer is sealed: values that die from now on may or may not be counted as live */
	LWLockAcquire(&shard->lock, LW_SHARED);
	counts = kv_counts_begin(shard);
	in_runs = is_in_runs(shard);
	counted->open_address = shard->values.open;
	counted->open_used = shard->values.open == 0 ? 0 :
		(shard->buffers.open >= 0 ? kv_buffers[shard->buffers.open].base : shard->values.tail) -
		shard->values.open;
	LWLockRelease(&shard->lock);
	if (!in_runs)
		kv_pace_flush(pace, store, shard_id, NULL);

	kv_walk_begin(walk, store, shard_id, pace);
	counting.counts = counts;
	kv_walk(walk, count, &counting);
	kv_walk_end(walk);

	/* skipped after a flush of all runs, which has newer counts */
	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	if (shard->files.base_run == walk->base_run)
		kv_counts_note_runs(shard, counts, walk->first_log);
	LWLockRelease(&shard->lock);
	open = counted->open_address != 0 ? kv_counts_find(counts, counted->open_address) : NULL;
	counted->open_live = open != NULL ? open->live : 0;
	pfree(counts->value_files);
	pfree(counts);
}
