/*
 * split.c
 *		Splits one shard into several: its entries are copied, its values are not.
 *
 * split.h lists the steps.  The splitting process is the shard's compactor all the time, so no
 * compaction job intervenes.  During the switch it is also the shard's maintainer, so no flush
 * does.  Flushes leave copied runs alone: KvShard.flush.floor is the number of the newest one.
 *
 * Entries are copied unchanged.  The memtable's entries lose their known statuses, because a status
 * may depend on a commit record that is not on the device.  Entries that were read from logs at the
 * start, of other incarnations, were flushed in step 3.
 */
#include "postgres.h"

#include <math.h>

#include "access/xlog.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "engine/base/shared.h"
#include "engine/base/error.h"
#include "engine/base/types.h"
#include "engine/base/wait.h"
#include "engine/buffer/largevalue.h"
#include "engine/flush/flush.h"
#include "engine/format/format.h"
#include "engine/format/path.h"
#include "engine/io/fault.h"
#include "engine/io/io.h"
#include "engine/buffer/buffer.h"
#include "engine/io/name.h"
#include "engine/maintenance.h"
#include "engine/shard/map.h"
#include "engine/shard/shard.h"
#include "engine/shard/valuefiles.h"
#include "engine/split/copy.h"

/* maximum number of keys in a memtable that is copied while writers wait */
#define KV_SWITCH_ITEMS	20000
/* maximum number of attempts, before writers are halted and after the map is made */
#define KV_CATCH_UPS	6
/* compaction jobs leave a shard alone for so long after a split has met one */
#define KV_TURN_MS		60000

/* The reason why a shard was not split. */
typedef enum KvSplitFailure
{
	KV_SPLIT_NOT_POSSIBLE,	/* for a reason not worth reporting, or one that will soon be gone */
	KV_SPLIT_OUTRUN,
	KV_SPLIT_LACKS_MEMORY
} KvSplitFailure;

typedef struct KvSplit
{
	KvChange   *change;
	KvStore    *store;
	uint32		shard_id;
	KvShard    *shard;
	KvCopy		copy;
	uint32		copied;			/* runs up to this number are copied */
	int			catch_ups;		/* attempts to copy recent writes */
	KvSplitFailure failure;		/* the reason, if the shard is not split */
	int			roles;			/* this process has these roles of the shard */
} KvSplit;

/* ---- roles ---- */

static bool
become_compactor(KvSplit *split)
{
	KvShard    *shard = split->shard;
	bool		mine;

	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	mine = kv_role_claim(shard, KV_ROLE_COMPACT);

	/*
	 * a split that has met a job comes next: jobs might follow each other while the shard is
	 * written to
	 */
	shard->split.waits = mine ? 0 : TimestampTzPlusMilliseconds(kv_clock(), KV_TURN_MS);
	LWLockRelease(&shard->lock);
	split->roles = mine ? KV_ROLE_COMPACT : 0;
	return mine;
}

/* Waits for a running flush.  The shard is in the map, since this process is its compactor. */
static void
become_maintainer(KvSplit *split)
{
	if (kv_role_take(split->shard, KV_ROLE_FLUSH, KV_WAIT_SPLIT))
		split->roles |= KV_ROLE_FLUSH;
}

static void
resign_as_maintainer(KvSplit *split)
{
	kv_role_give(split->shard, split->roles & KV_ROLE_FLUSH);
	split->roles &= ~KV_ROLE_FLUSH;
}

/* ---- steps 2 and 3 ---- */

/* Raises ERROR if a run without a file is still named; otherwise a flush has merged it. */
static void
look_for_run(const KvSplit *split, uint32 number)
{
	KvShard    *shard = split->shard;
	bool		is_named;

	LWLockAcquire(&shard->lock, LW_SHARED);
	is_named = kv_files_name_run(&shard->files, number);
	LWLockRelease(&shard->lock);
	if (is_named)
		kv_io_raise_missing(kv_path_run(&split->store->key, split->shard_id, number));
}

static bool
copy_run(KvSplit *split, uint32 number, bool base)
{
	if (kv_copy_run(&split->copy, number, base))
		return true;
	look_for_run(split, number);
	split->failure = KV_SPLIT_OUTRUN;
	return false;
}

/*
 * Copies the runs that were not yet copied; flushes leave them alone from now on.  The caller is
 * the maintainer, and resigns unless keep.  False: the split must be given up.
 */
static bool
copy_runs(KvSplit *split, bool keep)
{
	KvShard    *shard = split->shard;
	uint32		before = split->copied;
	KvShardFiles files;
	uint32		floor;
	bool		outrun;

	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	files = shard->files;
	floor = Max(before, files.base_run);
	for (int i = 0; i < files.nunfrozen; i++)
		floor = Max(floor, files.unfrozen[i]);

	/* a flush that found too many runs has reset the floor; the memtable needs one more run */
	outrun = shard->flush.floor != before || files.nunfrozen > KV_MAX_UNFROZEN - 2;
	if (outrun)
		floor = 0;
	shard->flush.floor = split->copied = floor;
	LWLockRelease(&shard->lock);
	if (!keep)
		resign_as_maintainer(split);
	if (outrun)
		split->failure = KV_SPLIT_OUTRUN;
	if (floor == 0)
		return false;
	KV_STOP_POINT("split_copying");

	/* the oldest first */
	if (files.base_run > before && !copy_run(split, files.base_run, true))
		return false;
	for (int i = files.nunfrozen - 1; i >= 0; i--)
	{
		if (files.unfrozen[i] > before && !copy_run(split, files.unfrozen[i], false))
			return false;
	}
	return split->copy.nparts > 1;
}

/*
 * Is the rest small enough to be copied while writers wait?  Without the lock the answer is about
 * right.
 */
static bool
is_caught_up(const KvShard *shard)
{
	return shard->active.nitems <= KV_SWITCH_ITEMS && !DsaPointerIsValid(shard->immutable.root);
}

/* Flushes and copies until little is left.  True: the caller is the maintainer. */
static bool
catch_up(KvSplit *split)
{
	do
	{
		if (split->catch_ups++ == KV_CATCH_UPS)
		{
			split->failure = KV_SPLIT_OUTRUN;
			return false;
		}
		if (split->roles & KV_ROLE_FLUSH)
			resign_as_maintainer(split);

		/* also flushes what was read from logs when the store was opened */
		kv_shard_flush(split->store, split->shard_id, KV_FLUSH_MEMORY);
		become_maintainer(split);
		if (!copy_runs(split, true))
			return false;
	} while (!is_caught_up(split->shard));
	return true;
}

/* ---- step 4 ---- */

/*
 * Makes the new map, memory for it and for the value files of the new shards, and their first logs.
 */
static bool
prepare_shards(KvSplit *split)
{
	KvCopy	   *copy = &split->copy;
	uint32		shards[KV_SPLIT_MOST];
	KvKey		bounds[KV_SPLIT_MOST];

	for (int i = 0; i < copy->nparts; i++)
	{
		shards[i] = copy->parts[i].shard_id;
		bounds[i] = copy->parts[i].lo;
	}
	split->failure = KV_SPLIT_LACKS_MEMORY;
	if (!kv_change_make(split->change, copy->nparts, shards, bounds))
		return false;
	for (int i = 0; i < copy->nparts; i++)
	{
		KvShard    *fresh = kv_shard(split->store, shards[i]);

		kv_change_init(split->change, i);

		/* one more value file may be opened before writers are halted */
		if (!kv_value_files_make_room(fresh, split->shard->values.n + 2))
			return false;
		kv_log_create(&split->store->key, shards[i], fresh->log.number);
	}
	return true;
}

/*
 * Lists in a new shard the value files that its entries name.  The first new shard also lists those
 * that no entry names.  False: there is no memory.
 */
static bool
list_value_files(KvSplit *split, int at, KvShard *fresh)
{
	KvCopy	   *copy = &split->copy;
	KvShard    *shard = split->shard;

	if (!kv_value_files_make_room(fresh, shard->values.n))
		return false;
	LWLockAcquire(&shard->lock, LW_SHARED);
	LWLockAcquire(&fresh->lock, LW_EXCLUSIVE);
	fresh->count.padding = shard->count.padding;
	fresh->count.uncertain = copy->parts[at].counts.uncertain;
	fresh->count.uncertain_until = copy->parts[at].counts.uncertain_until;
	for (int i = 0; i < shard->values.n; i++)
	{
		KvShardValueFile value_file = kv_value_files(shard)[i];
		const KvValueFileCount *count = kv_counts_find(&copy->parts[at].counts,
													   value_file.value_file.address);
		KvShardValueFile *listed;
		uint64		share;
		uint64		live = 0;	/* live bytes of all parts */

		for (int part = 0; part < copy->nparts; part++)
		{
			const KvValueFileCount *one = kv_counts_find(&copy->parts[part].counts,
														 value_file.value_file.address);

			live += one != NULL ? one->live : 0;
		}
		if (count == NULL && (live > 0 || at > 0))
			continue;
		value_file.value_file.live = count != NULL ? count->live : 0;
		value_file.value_file.last_log = 0;
		value_file.value_file.flags &= ~(KV_VALUE_FILE_INPUT | KV_VALUE_FILE_UNCERTAIN);
		if (count != NULL && count->uncertain)
			value_file.value_file.flags |= KV_VALUE_FILE_UNCERTAIN;
		listed = kv_value_file_add(fresh, &value_file.value_file);
		listed->trusted = value_file.trusted;
		listed->newest_writer = value_file.newest_writer;
		share = kv_value_file_taken(shard, &kv_value_files(shard)[i]);
		kv_value_file_divide(fresh, listed,
							 live > 0 ? share * ((double) value_file.value_file.live / live)
							 : share);
	}
	LWLockRelease(&fresh->lock);
	LWLockRelease(&shard->lock);
	return true;
}

/* The live bytes of a new shard. */
static uint64
live_bytes(const KvPart *part)
{
	uint64		bytes = 0;

	for (int i = 0; i < part->counts.n; i++)
		bytes += part->counts.value_files[i].live;
	return bytes;
}

/* Completes the new shards, as the new map will find them. */
static bool
complete_shards(KvSplit *split)
{
	KvCopy	   *copy = &split->copy;
	double		live = 1;

	for (int i = 0; i < copy->nparts; i++)
		live += live_bytes(&copy->parts[i]);

	for (int i = 0; i < copy->nparts; i++)
	{
		KvShard    *fresh = kv_shard(split->store, copy->parts[i].shard_id);
		KvFileList	listed;

		fresh->files = copy->parts[i].files;
		fresh->compact.job = split->shard->compact.job;
		/* rounded up, so that a shard all of which is to be sorted stays one */
		fresh->values.written = ceil(split->shard->values.written *
									 ((live_bytes(&copy->parts[i]) + 1) / live));
		fresh->key_share_xid = split->shard->key_share_xid;
		if (!list_value_files(split, i, fresh))
			return false;
		kv_shard_describe(fresh, &listed);
		kv_change_add_files(split->change, copy->parts[i].shard_id, &listed);
		pfree(listed.value_files);
	}
	return true;
}

/* Writes buffered data to files before the halt, so that writers need not wait for that. */
static void
drain_before(KvSplit *split)
{
	KvShard    *shard = split->shard;
	uint64		sequence;

	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	if (shard->buffers.open >= 0)
		kv_buffer_seal(split->store, split->shard_id);
	sequence = pg_atomic_read_u64(&kv_buffer_pool->sequence);
	LWLockRelease(&shard->lock);
	kv_shard_drain(split->store, split->shard_id, PG_UINT32_MAX, sequence);
}

/* Frees the memory of the old shard, which no process finds any more. */
static void
empty_shard(KvSplit *split)
{
	KvShard    *shard = split->shard;
	KvMemtable	freed;

	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	freed = shard->active;
	memset(&shard->active, 0, sizeof(shard->active));
	pg_atomic_fetch_add_u32(&shard->generation, 1);
	LWLockRelease(&shard->lock);
	kv_memtable_free(&freed);
}

/*
 * Halts writers when all slow work is done and little was written since.  False: the split must be
 * given up.
 */
static bool
halt_caught_up(KvSplit *split)
{
	for (;;)
	{
		drain_before(split);
		if (is_caught_up(split->shard))
		{
			kv_change_halt_free(split->change);
			if (is_caught_up(split->shard))
				return true;
			kv_change_resume(split->change);
		}
		if (!catch_up(split))
			return false;
	}
}

static void
split_shard(KvSplit *split)
{
	become_maintainer(split);
	if (!copy_runs(split, false))
		return;
	KV_STOP_POINT("split_copied");
	if (!catch_up(split) || !prepare_shards(split))
		return;
	KV_STOP_POINT("split_prepared");
	if (!halt_caught_up(split))
		return;
	kv_change_drain(split->change);
	KV_STOP_POINT("split_halted");
	kv_copy_memtable(&split->copy, &split->shard->active);
	if (!complete_shards(split))
		return;
	KV_STOP_POINT("split_completed");
	kv_change_publish(split->change);
	empty_shard(split);
	kv_value_end(split->store, split->shard_id);
	kv_stat_add(split->store, KV_COUNT_SPLITS, 1);
}

/* ---- the whole split ---- */

/*
 * Frees the list of a new shard that will not be used.  Processes that go through all descriptors
 * may read it now.
 */
static void
forget_value_files(KvShard *fresh)
{
	LWLockAcquire(&fresh->lock, LW_EXCLUSIVE);
	kv_value_files_free(fresh);
	fresh->values.bytes = 0;
	LWLockRelease(&fresh->lock);
}

/* Ends a split that has succeeded or failed. */
static void
end_split(KvSplit *split)
{
	KvShard    *shard = split->shard;

	if (!split->change->published)
	{
		split->change->remains |= !kv_copy_discard(&split->copy);
		for (int i = 0; i < split->copy.nparts; i++)
		{
			uint32		shard_id = split->copy.parts[i].shard_id;

			if (!kv_has_descriptor(split->store, shard_id))
				continue;
			split->change->remains |=
				!kv_io_gone(kv_path_log(&split->store->key, shard_id,
										kv_shard(split->store, shard_id)->log.number));
			forget_value_files(kv_shard(split->store, shard_id));
		}
	}
	kv_change_end(split->change);
	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	shard->flush.floor = 0;
	LWLockRelease(&shard->lock);
	kv_role_give(shard, split->roles);
}

/* Called after an ERROR, perhaps with locks held, or at the end of the process. */
static void
split_failed(int code, Datum arg)
{
	LWLockReleaseAll();
	end_split((KvSplit *) DatumGetPointer(arg));
}

/* Splits as the process that changes the map. */
static bool
try_split(KvSplit *split, int most)
{
	bool		done;

	if (!become_compactor(split))
	{
		kv_change_end(split->change);
		KV_STOP_POINT("split_met");
		return false;
	}
	PG_ENSURE_ERROR_CLEANUP(split_failed, PointerGetDatum(split));
	{
		kv_copy_begin(&split->copy, split->change, Min(most, KV_SPLIT_MOST));
		if (split->copy.most > 1)
			split_shard(split);
	}
	PG_END_ENSURE_ERROR_CLEANUP(split_failed, PointerGetDatum(split));
	done = split->change->published;
	end_split(split);
	if (done)
		kv_change_report(split->change);
	else
		kv_shard_ids_report(split->change);
	return done;
}

/* Reports the reason of a failure to the client, or from a worker to the server log. */
static void
report_failure(const KvSplit *split)
{
	static const char *const details[] = {
		[KV_SPLIT_OUTRUN] = "The shard was written faster than it could be copied.",
		[KV_SPLIT_LACKS_MEMORY] = "The new shards do not fit in \"kvfdw.memtable_memory\"."
	};
	const KvStoreKey *key = &split->store->key;

	if (split->failure != KV_SPLIT_NOT_POSSIBLE)
		ereport(MyBackendType == B_BACKEND ? NOTICE : LOG,
				(errmsg("could not split shard %u of %s",
						split->shard_id, kv_table_label(key->dboid, key->relid)),
				 errdetail_internal("%s", details[split->failure]),
				 split->failure == KV_SPLIT_OUTRUN ?
				 errhint("Retry when the write rate is lower.") :
				 errhint("Increase \"kvfdw.memtable_memory\" and restart the server.")));
}

bool
kv_shard_split(KvStore *store, uint32 shard_id, int most)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "kvfdw split",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	KvSplit    *split = palloc0(sizeof(KvSplit));
	bool		done = false;

	kv_shard_flush(store, shard_id, KV_FLUSH_ALL);
	split->store = store;
	split->shard_id = shard_id;
	split->shard = kv_shard(store, shard_id);
	split->change = kv_change_begin(store, shard_id);
	if (split->change != NULL)
		done = try_split(split, most);
	if (!done)
		report_failure(split);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	return done;
}
