/*
 * walk.c
 *		What there is to move: the runs of a shard, read in the order of keys.
 *
 * The runs are those of one moment, kept open; freezes may replace them meanwhile.  The
 * walk decides what is worth copying, with a freeze's own rules (freeze/survive.h), and
 * nothing more: the freeze at the end of the pass decides what is true.  Its horizon is
 * the same or later, so what it keeps of these runs is among what the walk has kept.
 */
#include "postgres.h"

#include "engine/base/key.h"
#include "engine/base/types.h"
#include "engine/base/wait.h"
#include "engine/compact/internal.h"
#include "engine/freeze/survive.h"

/* Open the runs that the shard has now; false: one was replaced meanwhile. */
static bool
open_runs(KvWalk *walk)
{
	KvShard    *shard = kv_shard(walk->store, walk->shardno);
	uint32		numbers[KV_MAX_UNFROZEN + 1];
	KvKey		edge = {NULL, 0};
	uint32		generation;
	int			n;

	LWLockAcquire(&shard->lock, LW_SHARED);
	generation = pg_atomic_read_u32(&shard->generation);
	walk->has_base = shard->files.base_run != 0;
	n = kv_files_runs(&shard->files, numbers);
	LWLockRelease(&shard->lock);
	for (int i = 0; i < n; i++)
	{
		const char *path = kv_path_run(&walk->store->key, walk->shardno, numbers[i]);
		KvRunIds	ids;
		KvRun	   *run;

		kv_store_ids(walk->store, walk->shardno, numbers[i], &ids);
		run = kv_run_open(path, &ids);
		if (run == NULL && pg_atomic_read_u32(&shard->generation) != generation)
			return false;
		if (run == NULL)
			ereport(ERROR,
					(errcode(ERRCODE_DATA_CORRUPTED),
					 errmsg("run file \"%s\" is missing", path)));
		kv_merge_add(&walk->runs, run, edge, false);
	}
	return true;
}

void
kv_walk_begin(KvWalk *walk, KvStore *store, uint32 shardno)
{
	walk->store = store;
	walk->shardno = shardno;
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
kv_walk(KvWalk *walk, KvSlice *slice, void (*between) (void *arg), void *arg)
{
	KvSurvival	rules = {kv_xid_horizon(), kv_xid_ended(), true};
	int			base = walk->has_base ? walk->runs.nheads - 1 : -1;
	uint8		keybytes[KV_MAX_KEY];

	for (uint64 n = 1;; n++)
	{
		KvKey		first = kv_merge_first(&walk->runs);
		KvKey		key = {keybytes, first.len};
		bool		settled = false;

		if (n % 1024 == 0)
			kv_maintenance_interrupts();
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
										&settled) == KV_SURVIVES_NOT ||
					version.len == 0 || kv_slice_victim(slice, version.location) < 0)
					continue;
				while (!kv_slice_add(slice, key, &version))
				{
					between(arg);
					kv_slice_write(slice);
				}
			}
		}
	}
	if (slice->nvalues > 0)
	{
		between(arg);
		kv_slice_write(slice);
	}
}
