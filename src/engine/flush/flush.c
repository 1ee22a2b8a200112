/*
 * flush.c
 *		Flushes a shard's memtable to runs.
 *
 * There is one operation.  The active memtable is sealed (new writes get a new one, and a new
 * key log).  It is then merged with some of the newest runs into new runs, which replace them
 * at once:
 *
 *	1. seal		under the shard's lock: write buffer, memtable, log number
 *	2. drain	write the values that the immutable memtable names to their value files
 *	3. merge	immutable memtable + chosen runs → new base and/or unfrozen run
 *	4. publish	flush WAL; at level none append the new lists to the version log; swap the lists in
 *				memory
 *	5. sweep	unlink the runs and logs that neither the shard nor its newest mark names
 *
 * Of a key survive its newest version that every snapshot sees, every newer version that did
 * not abort, and every row lock of a running transaction.  If the base takes part the first is
 * frozen: it is in the base run, without xid; a deletion is dropped.  The others are in an
 * unfrozen run, with their xids.  So the memtable's memory is always freed, whatever
 * transactions run (I 12).
 *
 * A version that is written as committed must not depend on a commit record that is still in
 * WAL buffers: step 4 flushes the WAL first.
 *
 * If a step fails, the immutable memtable stays, readers still use it, and the next flush of
 * the shard continues with it.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "access/xlogrecovery.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "engine/base/shared.h"
#include "engine/base/progress.h"
#include "engine/base/types.h"
#include "engine/base/wait.h"
#include "engine/cache/cache.h"
#include "engine/format/format.h"
#include "engine/flush/flush.h"
#include "engine/format/path.h"
#include "engine/io/fault.h"
#include "engine/io/name.h"
#include "engine/maintenance.h"
#include "engine/shard/map.h"
#include "engine/shard/valuefiles.h"
#include "engine/version/version.h"
#include "engine/flush/internal.h"
#include "engine/flush/survive.h"
#include "engine/index/memtable.h"
#include "engine/index/run.h"
#include "engine/io/io.h"
#include "engine/shard/counts.h"
#include "engine/shard/shard.h"
#include "engine/shard/space.h"
#include "engine/buffer/buffer.h"
#include "engine/xact/xact.h"


/* Parameters of a flush. */
typedef struct KvHow
{
	KvFlushMode mode;
	bool		logs;			/* afterwards no log has entries that existed at the beginning */
	KvMoves    *moves;			/* or NULL */
	const KvFlushRest *rest;	/* or NULL */
} KvHow;

typedef struct KvMerge
{
	KvStore    *store;
	uint32		shard_id;
	KvSurvival	rules;
	KvMemtableItem *recent;		/* the next of the immutable memtable; NULL: that was the last */
	KvMemtableCursor cursor;	/* the position of recent */
	KvRunMerge	runs;			/* older runs; the base is last, if it takes part */
	int			taken;			/* how many of the newest unfrozen runs take part */
	bool		base_taken;		/* the base takes part, and there is one */
	bool		published;		/* the new runs may count */
	KvRunWriter *base_writer;	/* created with their first entry */
	KvRunWriter *unfrozen_writer;
	uint32		base_number;
	uint32		unfrozen_number;
	uint64		base_entries;
	uint64		unfrozen_entries;
	uint64		oldest_xid;		/* of entries that were emitted unfrozen, or 0 */
	uint64		entries_taken;	/* of the unfrozen runs that take part */
	/* of emitted values, by value file; NULL: not all runs take part */
	KvCounts   *counts;
	KvMoves    *moves;			/* values that have moved; NULL: an ordinary flush */
	KvMovesWalk *walk;
	const KvFlushRest *rest;	/* NULL: no pauses */
	bool		kept;			/* a version of the current key that is no lock was emitted */
	uint64		entries;		/* entries that were read */
	bool		shown;			/* in kvfdw_stat_progress, as a flush */
} KvMerge;

static void
add_run(KvMerge *merge, uint32 number)
{
	KvRunIds	ids;
	const char *path = kv_path_run(&merge->store->key, merge->shard_id, number);
	KvKey		edge = {NULL, 0};
	KvRun	   *run;

	kv_store_ids(merge->store, merge->shard_id, number, &ids);
	run = kv_run_open(path, &ids);
	if (run == NULL)
		kv_io_raise_missing(path);
	kv_merge_add(&merge->runs, run, edge, false);
}

static KvRunWriter *
make_writer(KvMerge *merge, bool unfrozen, uint32 *number)
{
	KvShard    *shard = kv_shard(merge->store, merge->shard_id);
	KvRunIds	ids;

	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	*number = shard->files.next_run++;
	LWLockRelease(&shard->lock);
	kv_store_ids(merge->store, merge->shard_id, *number, &ids);
	ids.unfrozen = unfrozen;
	return kv_run_create(kv_path_run(&merge->store->key, merge->shard_id, *number), &ids);
}

static void
emit(KvMerge *merge, KvKey key, KvVersion *version, bool frozen)
{
	bool		shadowed = merge->kept;

	if (merge->moves)
	{
		(void) kv_moves_apply(merge->walk, key, version);
		if (shadowed)
			merge->moves->held += version->len;
	}
	merge->kept |= version->kind != KV_VERSION_LOCK;
	if (merge->counts && !merge->moves)
		KV_TEST_COMPACT(kv_test_move(merge->store, merge->shard_id, key, version));
	if (merge->counts)
		kv_counts_add(merge->counts, version->location, version->len,
					  shadowed || version->status == KV_XID_UNKNOWN);
	if (frozen)
	{
		if (merge->base_writer == NULL)
			merge->base_writer = make_writer(merge, false, &merge->base_number);
		version->xid = 0;
		version->cid = 0;
		version->status = KV_XID_COMMITTED;
		kv_run_append(merge->base_writer, key.data, key.len, version);
		merge->base_entries++;
	}
	else
	{
		if (merge->unfrozen_writer == NULL)
			merge->unfrozen_writer = make_writer(merge, true, &merge->unfrozen_number);
		if (merge->oldest_xid == 0 || version->xid < merge->oldest_xid)
			merge->oldest_xid = version->xid;
		kv_run_append(merge->unfrozen_writer, key.data, key.len, version);
		merge->unfrozen_entries++;
	}
}

/* Process one version, after the newer ones of its key; resolved: see kv_version_survives. */
static inline void
buffer_version(KvMerge *merge, KvKey key, const KvVersion *original, uint32 incarnation,
			   bool base, bool *resolved)
{
	KvVersion	version = *original;
	KvSurvives	survives;

	merge->entries++;
	survives = kv_version_survives(&merge->rules, &version, incarnation, base, resolved);

	if (survives != KV_SURVIVES_NOT)
		emit(merge, key, &version, survives == KV_SURVIVES_FROZEN);
}

/* Merge every key of the immutable memtable and of the runs. */
static void
merge_sources(KvMerge *merge)
{
	int			base = merge->base_taken ? merge->runs.nheads - 1 : -1;
	uint8		keybytes[KV_MAX_KEY];

	for (uint64 n = 1;; n++)
	{
		KvKey		first = kv_merge_first(&merge->runs);
		KvKey		key = {keybytes, 0};
		bool		in_memtable = false;
		bool		resolved = false;

		if (n % KV_GET_KEYS == 0)
		{
			kv_maintenance_interrupts();
			if (merge->rest)
				merge->rest->merged(merge->rest->arg, KV_GET_KEYS);
			if (merge->shown)
				kv_progress_done(merge->entries);
		}
		if (merge->recent != NULL &&
			(first.data == NULL || kv_key_compare(merge->recent->key, merge->recent->keylen,
												  first.data, first.len) <= 0))
		{
			first.data = merge->recent->key;
			first.len = merge->recent->keylen;
			in_memtable = true;
		}
		if (first.data == NULL)
			break;
		memcpy(keybytes, first.data, first.len);
		key.len = first.len;
		merge->kept = false;

		/* every source at this key yields its versions, newest first, and advances */
		if (in_memtable)
		{
			dsa_pointer pointer = merge->recent->newest;

			while (DsaPointerIsValid(pointer))
			{
				KvMemtableVersion *node = kv_address(pointer);

				buffer_version(merge, key, &node->version, kv_incarnations->current, false,
							   &resolved);
				pointer = node->older;
			}
			merge->recent = kv_memtable_next(&merge->cursor);
		}
		for (int i = 0; i < merge->runs.nheads; i++)
		{
			KvRunHead  *head = &merge->runs.heads[i];

			for (; kv_head_is_at(head, key); kv_head_step(&merge->runs, head))
				buffer_version(merge, key, &head->version, head->incarnation, i == base,
							   &resolved);
		}
	}
}

/* How many of the unfrozen runs, the newest first, have a number above floor? */
static int
runs_above(const uint32 *unfrozen, int nunfrozen, uint32 floor)
{
	int			n = 0;

	while (n < nunfrozen && unfrozen[n] > floor)
		n++;
	return n;
}

/*
 * How many of the newest unfrozen runs to merge with the immutable memtable, and does the base
 * take part?
 *
 * Runs are merged with others of like size, so an entry is rewritten a number of times that is
 * logarithmic in the size of its shard.  The runs are those that are no larger than all that
 * was taken before them; and the base if all runs are taken and have a quarter of its entries.
 * A flush takes none, unless the list of runs is nearly full.
 */
static int
choose_runs(KvStore *store, uint32 shard_id, KvFlushMode mode, int nunfrozen,
			const uint32 *unfrozen, uint64 sealed_entries, uint64 frozen_keys, uint32 floor,
			bool *with_base)
{
	uint64		total = sealed_entries;
	int			taken = 0;

	*with_base = false;
	if (floor > 0)
	{
		/* the runs of a split are left alone; the split gives up if there are too many */
		nunfrozen = runs_above(unfrozen, nunfrozen, floor);
		if (mode == KV_FLUSH_ALL)
			return nunfrozen;
	}
	else if (mode == KV_FLUSH_ALL)
	{
		*with_base = true;
		return nunfrozen;
	}
	if (mode == KV_FLUSH_MEMORY && nunfrozen < KV_MAX_UNFROZEN - 1)
		return 0;
	while (taken < nunfrozen)
	{
		KvRunIds	ids;
		KvRun	   *run;
		uint64		entries;

		kv_store_ids(store, shard_id, unfrozen[taken], &ids);
		run = kv_run_pin(kv_path_run(&store->key, shard_id, unfrozen[taken]), &ids);
		if (run == NULL)
			kv_io_raise_missing(kv_path_run(&store->key, shard_id, unfrozen[taken]));
		entries = kv_run_header(run)->nentries;
		kv_run_unpin(run);
		if (entries > total && nunfrozen - taken < KV_MAX_UNFROZEN - 2)
			break;
		total += entries;
		taken++;
	}
	*with_base = floor == 0 && taken == nunfrozen && total * 4 >= frozen_keys;
	return taken;
}

static void
release_merge(KvMerge *merge)
{
	if (merge->counts)
		kv_counts_end(merge->counts, merge->store);
	for (int i = 0; i < merge->runs.nheads; i++)
		kv_run_close(merge->runs.heads[i].cursor.run);
	merge->runs.nheads = 0;
}

/*
 * After an error, or at the end of the process: remove the files that were written, unless they
 * were published.
 */
static void
discard_merge(int code, Datum arg)
{
	KvMerge    *merge = (KvMerge *) DatumGetPointer(arg);
	const KvStoreKey *key = &merge->store->key;

	if (merge->base_writer)
		kv_run_discard(merge->base_writer);
	if (merge->unfrozen_writer)
		kv_run_discard(merge->unfrozen_writer);
	merge->base_writer = merge->unfrozen_writer = NULL;
	if (!merge->published && merge->base_number != 0)
		(void) kv_io_unlink(kv_path_run(key, merge->shard_id, merge->base_number));
	if (!merge->published && merge->unfrozen_number != 0)
		(void) kv_io_unlink(kv_path_run(key, merge->shard_id, merge->unfrozen_number));
	release_merge(merge);
}

/* Describe the shard after the merge.  Its lock is held. */
static void
describe_merged(KvMerge *merge, const KvShard *before, KvFileList *listed)
{
	const KvShard *shard = kv_shard(merge->store, merge->shard_id);
	KvShardFiles *files = &listed->files;

	kv_shard_describe(shard, listed);
	if (merge->rules.with_base)
	{
		files->base_run = merge->base_number;
		files->frozen_keys = merge->base_entries;
	}
	files->nunfrozen = 0;
	memset(files->unfrozen, 0, sizeof(files->unfrozen));
	if (merge->unfrozen_number != 0)
		files->unfrozen[files->nunfrozen++] = merge->unfrozen_number;
	Assert(files->nunfrozen + before->files.nunfrozen - merge->taken <= KV_MAX_UNFROZEN);
	for (int i = merge->taken; i < before->files.nunfrozen; i++)
		files->unfrozen[files->nunfrozen++] = before->files.unfrozen[i];
	files->unfrozen_entries += merge->unfrozen_entries - merge->entries_taken;
	if (merge->taken == before->files.nunfrozen || files->oldest_xid == 0 ||
		(merge->oldest_xid != 0 && merge->oldest_xid < files->oldest_xid))
		files->oldest_xid = merge->oldest_xid;
	files->first_log = before->log.immutable + 1;
	if (merge->counts)
		kv_counts_apply(merge->counts, shard, merge->rules.horizon, listed);
	if (merge->moves)
		kv_moves_describe(merge->moves, merge->counts, listed);
}

/* Value files that have left the list are dropped from caches. */
static void
forget_cached(const KvStore *store, const KvCounts *counts)
{
	for (int i = 0; i < counts->n; i++)
	{
		const KvValueFileCount *value_file = &counts->value_files[i];

		if (!value_file->leaves)
			continue;
		kv_source_forget(store->cache_id, value_file->address, value_file->used,
						 value_file->shared ? KV_FORGET_SHARED : KV_FORGET_LEFT);
	}
}

/* Replace the shard's runs by the merged ones.  Steps 4 and 5. */
static void
publish(KvMerge *merge, const KvShard *before)
{
	KvStore    *store = merge->store;
	KvShard    *shard = kv_shard(store, merge->shard_id);
	KvFileList	listed;
	KvShardFiles *files = &listed.files;
	KvMemtable	freed;
	uint64		lsn;

	kv_wal_flush();

	if (merge->counts)
		kv_counts_reserve(merge->counts, store, shard);
	LWLockAcquire(&shard->lock, LW_SHARED);
	describe_merged(merge, before, &listed);
	LWLockRelease(&shard->lock);

	kv_log_create(&store->key, merge->shard_id, files->first_log);
	KV_STOP_POINT("flush_before_files");
	if (store->shape.wal == KV_WAL_NONE)
	{
		KvEdit		edit = kv_edit_of_files(merge->shard_id, &listed);

		kv_version_log_append(store, &edit, 1, false);
	}
	merge->published = true;
	if (merge->moves)
		merge->moves->published = true;
	KV_STOP_POINT("flush_after_files");

	/* after all records that name values of the runs: their write buffers were drained */
	lsn = RecoveryInProgress() ? GetXLogReplayRecPtr(NULL) : GetXLogInsertRecPtr();
	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	/* a compaction job may have taken a number since */
	files->next_run = shard->files.next_run;
	shard->files = *files;
	if (merge->counts)
		kv_counts_publish(merge->counts, store, merge->shard_id, lsn);
	if (merge->moves)
		kv_moves_publish(merge->moves, &listed, merge->counts, shard);
	freed = shard->immutable;
	memset(&shard->immutable, 0, sizeof(shard->immutable));
	shard->flush.ended = kv_clock();
	pg_atomic_fetch_add_u32(&shard->generation, 1);
	LWLockRelease(&shard->lock);
	kv_memtable_free(&freed);
	if (merge->counts)
		forget_cached(store, merge->counts);

	for (uint32 log = before->files.first_log; log <= before->log.immutable; log++)
		kv_file_release(store, merge->shard_id, KV_FILE_LOG, log);
	for (int i = 0; i < merge->taken; i++)
		kv_file_release(store, merge->shard_id, KV_FILE_RUN, before->files.unfrozen[i]);
	if (merge->rules.with_base && before->files.base_run != 0)
		kv_file_release(store, merge->shard_id, KV_FILE_RUN, before->files.base_run);
	KV_STOP_POINT("flush_done");
}

/* Steps 3 to 5. */
static void
merge_and_publish(KvMerge *merge, const KvShard *before)
{
	merge->recent = kv_memtable_seek(&before->immutable, (const uint8 *) "", 0, &merge->cursor);
	kv_merge_begin(&merge->runs, false);
	for (int i = 0; i < merge->taken; i++)
	{
		add_run(merge, before->files.unfrozen[i]);
		merge->entries_taken += kv_run_header(merge->runs.heads[i].cursor.run)->nentries;
	}
	merge->base_taken = merge->rules.with_base && before->files.base_run != 0;
	if (merge->base_taken)
		add_run(merge, before->files.base_run);

	if (merge->shown)
	{
		kv_progress_phase("merging");
		kv_progress_total(before->immutable.nversions + merge->entries_taken +
						  (merge->base_taken ? before->files.frozen_keys : 0));
	}
	merge_sources(merge);
	if (merge->shown)
	{
		kv_progress_done(merge->entries);
		kv_progress_phase("publishing");
	}

	KV_STOP_POINT("flush_before_finish");
	if (merge->base_writer)
		kv_run_finish(merge->base_writer);
	merge->base_writer = NULL;
	if (merge->unfrozen_writer)
		kv_run_finish(merge->unfrozen_writer);
	merge->unfrozen_writer = NULL;
	publish(merge, before);
}

/*
 * Is there a value file to be emptied?  Then a merge of all runs pays, even if there is only
 * one.
 */
static bool
has_inputs(KvShard *shard)
{
	bool		has = false;

	LWLockAcquire(&shard->lock, LW_SHARED);
	for (int i = 0; i < shard->values.n && !has; i++)
		has = (kv_value_files(shard)[i].value_file.flags & KV_VALUE_FILE_INPUT) != 0;
	LWLockRelease(&shard->lock);
	return has;
}

/* Execute steps 2 to 5.  The caller is the shard's maintainer. */
static void
flush_immutable(KvStore *store, uint32 shard_id, const KvHow *how)
{
	KvShard    *shard = kv_shard(store, shard_id);
	KvShard		before;
	KvMerge    *merge = palloc0(sizeof(KvMerge));

	/* only a maintainer changes these fields, so the copy stays valid */
	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	if (shard->flush.floor > 0 && shard->files.nunfrozen >= KV_MAX_UNFROZEN - 2)
		shard->flush.floor = 0;		/* a split that wants these runs left alone gives up */
	before = *shard;
	LWLockRelease(&shard->lock);

	if (DsaPointerIsValid(before.immutable.root) || how->logs)
		kv_shard_drain(store, shard_id, before.log.immutable, PG_UINT64_MAX);
	KV_STOP_POINT("flush_before_merge");

	merge->taken = choose_runs(store, shard_id, how->mode, before.files.nunfrozen,
							   before.files.unfrozen, before.immutable.nversions,
							   before.files.frozen_keys, before.flush.floor,
							   &merge->rules.with_base);
	if (merge->rules.with_base && how->moves == NULL)
		KV_TEST_COMPACT(kv_test_choose(shard, before.log.immutable));
	if (!DsaPointerIsValid(before.immutable.root) && merge->taken == 0 &&
		!(merge->rules.with_base && has_inputs(shard)) && !how->logs)
		return;
	if (merge->rules.with_base)
	{
		LWLockAcquire(&shard->lock, LW_SHARED);
		merge->counts = kv_counts_begin(shard);
		LWLockRelease(&shard->lock);
	}

	merge->store = store;
	merge->shard_id = shard_id;
	merge->moves = how->moves;
	merge->rest = how->rest;
	merge->shown = how->moves == NULL;
	if (how->moves != NULL)
		merge->walk = kv_moves_begin(how->moves);
	merge->rules.horizon = kv_xid_horizon();
	merge->rules.ended = kv_xid_ended();
	PG_ENSURE_ERROR_CLEANUP(discard_merge, PointerGetDatum(merge));
	{
		merge_and_publish(merge, &before);
	}
	PG_END_ENSURE_ERROR_CLEANUP(discard_merge, PointerGetDatum(merge));
	release_merge(merge);

	/*
	 * the dead bytes of aborted transactions are known only now; a compaction's worker looks
	 * for them itself
	 */
	if (merge->counts && how->moves == NULL)
		kv_space_ask(store);
	if (merge->rules.with_base)
		KV_TEST_COMPACT(kv_test_chosen(shard));
	kv_stat_add(store, how->mode == KV_FLUSH_MEMORY ? KV_COUNT_MEMORY_FLUSHES : KV_COUNT_FLUSHES,
				1);
}

/*
 * Step 1.  The lock is held exclusively.  logs: also if the logs have no entries for the
 * memtable.
 *
 * A log to which nothing was written may have no file, and no number may be skipped.  So a log
 * with which an earlier flush has begun, and failed, is used again.
 */
static void
seal_memtable(KvStore *store, uint32 shard_id, bool logs)
{
	KvShard    *shard = kv_shard(store, shard_id);

	if (DsaPointerIsValid(shard->immutable.root) ||
		(!DsaPointerIsValid(shard->active.root) && !logs))
		return;
	if (shard->buffers.open >= 0)
		kv_buffer_seal(store, shard_id);
	shard->immutable = shard->active;
	memset(&shard->active, 0, sizeof(shard->active));
	if (shard->log.tail > sizeof(KvLogHeader) ||
		(logs && shard->log.number == shard->files.first_log))
	{
		shard->log.closed = shard->log.number++;
		shard->log.closed_tail = shard->log.tail;
		shard->log.tail = sizeof(KvLogHeader);
	}
	shard->log.immutable = shard->log.number - 1;
}

/* Called after an error, perhaps with a lock held, or at the end of the process. */
static void
resign_failed(int code, Datum arg)
{
	LWLockReleaseAll();
	kv_role_give((KvShard *) DatumGetPointer(arg), KV_ROLE_FLUSH);
}

/* Execute steps 2 to 5, shown in kvfdw_stat_progress, except within a compaction. */
static void
flush_shown(KvStore *store, uint32 shard_id, const KvHow *how)
{
	KvProgress	outer;

	if (how->moves != NULL)
	{
		flush_immutable(store, shard_id, how);
		return;
	}
	kv_progress_begin(&outer, KV_PROGRESS_FLUSH, store->key.dboid, store->key.relid, shard_id,
					  "draining", 0);
	PG_TRY();
	{
		flush_immutable(store, shard_id, how);
	}
	PG_FINALLY();
	{
		kv_progress_end(&outer);
	}
	PG_END_TRY();
}

/* Execute steps 2 to 5; the caller, who has become the shard's maintainer, resigns. */
static void
flush_and_resign(KvStore *store, uint32 shard_id, const KvHow *how)
{
	KvShard    *shard = kv_shard(store, shard_id);
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "kvfdw flush",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);

	PG_ENSURE_ERROR_CLEANUP(resign_failed, PointerGetDatum(shard));
	{
		flush_shown(store, shard_id, how);
	}
	PG_END_ENSURE_ERROR_CLEANUP(resign_failed, PointerGetDatum(shard));
	kv_role_give(shard, KV_ROLE_FLUSH);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
}

/*
 * Flush a shard now.  If another process flushes it, wait until that has ended.  That is
 * enough, because the memtable is empty then, unless all runs are to be merged or logs
 * emptied.  No lock is held.
 */
static void
flush(KvStore *store, uint32 shard_id, const KvHow *how)
{
	KvShard    *shard = kv_shard(store, shard_id);
	bool		waited = kv_role_wait(shard, KV_ROLE_FLUSH, KV_WAIT_FLUSH);
	bool		mine = (!waited || how->mode == KV_FLUSH_ALL || how->logs) &&
		shard->place.bounds_since != KV_NOT_IN_MAP && kv_role_claim(shard, KV_ROLE_FLUSH);

	if (mine)
		seal_memtable(store, shard_id, how->logs);
	LWLockRelease(&shard->lock);
	if (mine)
		flush_and_resign(store, shard_id, how);
}

void
kv_shard_flush(KvStore *store, uint32 shard_id, KvFlushMode mode)
{
	flush(store, shard_id, &(KvHow) {.mode = mode});
}

/* First finish a failed flush, so that the next one seals all versions. */
static void
flush_left(KvStore *store, uint32 shard_id)
{
	KvShard    *shard = kv_shard(store, shard_id);
	bool		left;

	LWLockAcquire(&shard->lock, LW_SHARED);
	left = DsaPointerIsValid(shard->immutable.root);
	LWLockRelease(&shard->lock);
	if (left)
		kv_shard_flush(store, shard_id, KV_FLUSH_MEMORY);
}

void
kv_shard_rewrite(KvStore *store, uint32 shard_id, KvMoves *moves, const KvFlushRest *rest)
{
	flush_left(store, shard_id);
	flush(store, shard_id, &(KvHow) {KV_FLUSH_ALL, true, moves, rest});
}

void
kv_shard_empty_logs(KvStore *store, uint32 shard_id, const KvFlushRest *rest)
{
	flush_left(store, shard_id);
	flush(store, shard_id, &(KvHow) {KV_FLUSH_MERGE, true, NULL, rest});
}

/*
 * The logs still count, so if the recovery does not end they are read again, and their entries
 * are added once more, which changes nothing.
 */
void
kv_shard_flush_recovering(KvStore *store, uint32 shard_id)
{
	KvShard    *shard = kv_shard(store, shard_id);

	Assert(!shard->recovered && !DsaPointerIsValid(shard->immutable.root));
	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	kv_role_claim(shard, KV_ROLE_FLUSH);
	shard->immutable = shard->active;
	memset(&shard->active, 0, sizeof(shard->active));
	LWLockRelease(&shard->lock);
	flush_and_resign(store, shard_id, &(KvHow) {.mode = KV_FLUSH_MEMORY});
}

void
kv_store_flush(KvStore *store)
{
	kv_each_shard(store, i)
	{
		KvShard    *shard = kv_shard(store, i);

		CHECK_FOR_INTERRUPTS();
		if (shard->active.nversions > 0 || shard->files.nunfrozen > 0 ||
			DsaPointerIsValid(shard->immutable.root))
			kv_shard_flush(store, i, KV_FLUSH_ALL);
	}
}
