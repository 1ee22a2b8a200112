/*
 * compact.c
 *		Freezing: a shard's recent versions become runs.
 *
 * One operation does all of it.  The active delta is sealed (new writes get a
 * new one, and a new key log), then merged with a newest part of the runs into
 * new runs, which replace them at once:
 *
 *   1. seal     under the shard's lock: slot, delta, log number
 *   2. drain    the values that the sealed delta names get to the value file
 *   3. merge    sealed delta + chosen runs → new base and/or unfrozen run
 *   4. publish  flush WAL, replace the manifest, swap the lists in memory
 *   5. sweep    unlink the runs and logs that neither the manifest nor an image
 *               names
 *
 * What survives of a key: its newest version that every snapshot sees, frozen
 * (in the base run, without xid; a deletion just vanishes) if the base takes
 * part; and every newer version that did not abort, and every row lock of a
 * running transaction, with its xid, in an unfrozen run.  So the delta's memory
 * is always freed, whatever runs or is looked at (I 12).
 *
 * A version that is written as committed must not depend on a commit record
 * that is still in WAL buffers: step 4 flushes the WAL first.
 *
 * If a step fails, the sealed delta stays where it is, still read by
 * everybody, and the next freeze of the shard goes on with it.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "engine/internal.h"

/* One input of a merge, newest first; a delta or a run. */
typedef struct KvSource
{
	KvRun	   *run;			/* NULL: the sealed delta */
	bool		base;
	uint32		incarnation;
	KvRunCursor cursor;
	KvDeltaCursor delta_cursor;
	KvDeltaItem *item;
	bool		valid;
	const uint8 *key;
	int			keylen;
	uint8		keybuf[8];
	KvVersion	version;		/* of a run: the one the cursor is at */
} KvSource;

typedef struct KvMerge
{
	KvStore    *store;
	uint32		shardno;
	uint64		horizon;
	int			nsources;
	KvSource	sources[KV_MAX_UNFROZEN + 2];
	int			taken;			/* of the unfrozen runs, the newest */
	bool		with_base;
	bool		published;		/* the manifest names the new runs */
	KvRunWriter *base_writer;	/* made with their first entry */
	KvRunWriter *unfrozen_writer;
	uint32		base_number;
	uint32		unfrozen_number;
	uint64		base_entries;
	uint64		unfrozen_entries;
	uint64		oldest_xid;		/* that was emitted unfrozen, or 0 */
	uint64		entries_taken;	/* of the unfrozen runs that take part */
} KvMerge;

static void
load_source(KvSource *source)
{
	if (source->run == NULL)
	{
		source->valid = source->item != NULL;
		if (source->valid)
		{
			source->key = source->item->key;
			source->keylen = source->item->keylen;
		}
		return;
	}
	source->valid = source->cursor.valid;
	if (source->valid)
		kv_run_entry(&source->cursor, source->keybuf, &source->key, &source->keylen,
					 &source->version);
}

static void
add_run_source(KvMerge *merge, uint32 number, bool base)
{
	KvSource   *source = &merge->sources[merge->nsources++];
	KvRunIds	ids;
	const char *path = kv_path_run(&merge->store->key, merge->shardno, number);

	kv_store_ids(merge->store, merge->shardno, number, &ids);
	source->run = kv_run_pin(path, &ids);
	if (source->run == NULL)
	{
		merge->nsources--;
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("run file \"%s\" is missing", path)));
	}
	source->base = base;
	source->incarnation = kv_run_header(source->run)->incarnation;
	if (!base)
		merge->entries_taken += kv_run_header(source->run)->nentries;
	kv_run_first(source->run, &source->cursor);
	load_source(source);
}

static KvRunWriter *
make_writer(KvMerge *merge, bool unfrozen, uint32 *number)
{
	KvShard    *shard = kv_shard(merge->store, merge->shardno);
	KvRunIds	ids;

	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	*number = shard->next_run++;
	LWLockRelease(&shard->lock);
	kv_store_ids(merge->store, merge->shardno, *number, &ids);
	ids.unfrozen = unfrozen;
	return kv_run_create(kv_path_run(&merge->store->key, merge->shardno, *number), &ids);
}

static void
emit(KvMerge *merge, KvKey key, KvVersion *version, bool frozen)
{
	if (frozen)
	{
		if (merge->base_writer == NULL)
			merge->base_writer = make_writer(merge, false, &merge->base_number);
		version->xid = 0;
		version->cid = 0;
		version->fate = KV_FATE_COMMITTED;
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

/*
 * Decide on one version, newer ones of its key having been seen.  settled: every
 * snapshot sees one of those, so of this only a running transaction's lock
 * counts.  Returns whether every snapshot sees one by now.
 */
static bool
merge_version(KvMerge *merge, KvKey key, const KvVersion *original, uint32 incarnation,
			  bool base, bool settled)
{
	KvVersion	version = *original;

	if (settled && version.kind != KV_VERSION_LOCK)
		return true;
	if (base)
	{
		emit(merge, key, &version, true);
		return true;
	}
	if (version.fate == KV_FATE_UNKNOWN)
		version.fate = kv_xid_fate(version.xid, incarnation);

	/* in recovery: it ended with the server that ran it, and left no trace */
	if (version.fate == KV_FATE_UNKNOWN && version.xid < merge->horizon)
		version.fate = KV_FATE_ABORTED;
	if (version.fate == KV_FATE_ABORTED ||
		(version.kind == KV_VERSION_LOCK && version.fate != KV_FATE_UNKNOWN))
		return settled;
	if (version.fate == KV_FATE_UNKNOWN || version.xid >= merge->horizon)
	{
		emit(merge, key, &version, false);
		return settled;
	}
	if (!merge->with_base)
		emit(merge, key, &version, false);
	else if (version.kind == KV_VERSION_PUT)
		emit(merge, key, &version, true);
	return true;
}

/* Merge every key of all sources. */
static void
merge_sources(KvMerge *merge)
{
	uint8		keybytes[KV_MAX_KEY];
	KvKey		key;
	uint64		n = 0;

	key.data = keybytes;
	for (;;)
	{
		KvSource   *least = NULL;
		bool		settled = false;

		if ((++n & 0x3ff) == 0)
			kv_check_interrupts();
		for (int i = 0; i < merge->nsources; i++)
		{
			KvSource   *source = &merge->sources[i];

			if (source->valid &&
				(least == NULL ||
				 kv_key_compare(source->key, source->keylen, least->key, least->keylen) < 0))
				least = source;
		}
		if (least == NULL)
			break;
		memcpy(keybytes, least->key, least->keylen);
		key.len = least->keylen;

		/* every source at this key gives its versions and moves on */
		for (int i = 0; i < merge->nsources; i++)
		{
			KvSource   *source = &merge->sources[i];

			if (!source->valid ||
				kv_key_compare(source->key, source->keylen, key.data, key.len) != 0)
				continue;
			if (source->run == NULL)
			{
				dsa_pointer pointer = source->item->newest;

				while (DsaPointerIsValid(pointer))
				{
					KvDeltaVersion *node = kv_address(pointer);

					settled = merge_version(merge, key, &node->version,
											source->incarnation, false, settled);
					pointer = node->older;
				}
				source->item = kv_delta_next(&source->delta_cursor);
				load_source(source);
			}
			else
			{
				do
				{
					settled = merge_version(merge, key, &source->version,
											source->incarnation, source->base, settled);
					kv_run_next(&source->cursor);
					load_source(source);
				} while (source->valid &&
						 kv_key_compare(source->key, source->keylen, key.data, key.len) == 0);
			}
		}
	}
}

/*
 * How many of the newest unfrozen runs to merge with the sealed delta, and
 * whether the base takes part.  Runs are merged with others of like size, so
 * an entry is rewritten a number of times that is logarithmic in its shard.
 */
static int
choose_runs(KvStore *store, uint32 shardno, KvFreezeMode mode, int nunfrozen,
			const uint32 *unfrozen, uint64 sealed_entries, uint64 frozen_keys,
			bool *with_base)
{
	uint64		total = sealed_entries;
	int			taken = 0;

	*with_base = false;
	if (mode == KV_FREEZE_ALL)
	{
		*with_base = true;
		return nunfrozen;
	}
	if (mode == KV_FREEZE_SPILL && nunfrozen < KV_MAX_UNFROZEN - 1)
		return 0;
	while (taken < nunfrozen)
	{
		KvRunIds	ids;
		KvRun	   *run;
		uint64		entries;

		kv_store_ids(store, shardno, unfrozen[taken], &ids);
		run = kv_run_pin(kv_path_run(&store->key, shardno, unfrozen[taken]), &ids);
		if (run == NULL)
			ereport(ERROR,
					(errcode(ERRCODE_DATA_CORRUPTED),
					 errmsg("run file \"%s\" is missing",
							kv_path_run(&store->key, shardno, unfrozen[taken]))));
		entries = kv_run_header(run)->nentries;
		kv_run_unpin(run);
		if (entries > total && nunfrozen - taken < KV_MAX_UNFROZEN - 2)
			break;
		total += entries;
		taken++;
	}
	*with_base = taken == nunfrozen && total * 4 >= frozen_keys;
	return taken;
}

static void
release_merge(KvMerge *merge)
{
	for (int i = 0; i < merge->nsources; i++)
	{
		if (merge->sources[i].run != NULL)
			kv_run_unpin(merge->sources[i].run);
	}
	merge->nsources = 0;
}

/*
 * Remove a file that the manifest no longer names, unless an image does.  While a
 * base backup runs it is left to the first image made after that.
 */
static void
unlink_unless(KvShard *shard, bool named, const char *path)
{
	LWLockRelease(&shard->lock);
	if (kv_backups_run())
		shard->leftovers = true;
	else if (!named)
		(void) kv_io_unlink(path);
}

static void
unlink_log(KvStore *store, uint32 shardno, uint32 number)
{
	KvShard    *shard = kv_shard(store, shardno);

	LWLockAcquire(&shard->lock, LW_SHARED);
	unlink_unless(shard, kv_image_names_log(store, shard, number),
				  kv_path_log(&store->key, shardno, number));
}

static void
unlink_run(KvStore *store, uint32 shardno, uint32 number)
{
	KvShard    *shard = kv_shard(store, shardno);

	LWLockAcquire(&shard->lock, LW_SHARED);
	unlink_unless(shard, kv_image_names_run(shard, number),
				  kv_path_run(&store->key, shardno, number));
}

/* Swap the shard over to what the merge has made.  Step 4 and 5. */
static void
publish(KvMerge *merge, const KvShard *before)
{
	KvStore    *store = merge->store;
	KvShard    *shard = kv_shard(store, merge->shardno);
	KvManifest	manifest = {0};
	KvDelta		freed;

	kv_wal_flush();

	manifest.base_run = merge->with_base ? merge->base_number : before->base_run;
	manifest.frozen_keys = merge->with_base ? merge->base_entries : before->frozen_keys;
	if (merge->unfrozen_number != 0)
		manifest.unfrozen[manifest.nunfrozen++] = merge->unfrozen_number;
	Assert(manifest.nunfrozen + before->nunfrozen - merge->taken <= KV_MAX_UNFROZEN);
	for (int i = merge->taken; i < before->nunfrozen; i++)
		manifest.unfrozen[manifest.nunfrozen++] = before->unfrozen[i];
	manifest.unfrozen_entries = before->unfrozen_entries - merge->entries_taken +
		merge->unfrozen_entries;
	manifest.oldest_xid = merge->oldest_xid;
	if (merge->taken < before->nunfrozen && before->oldest_xid != 0 &&
		(manifest.oldest_xid == 0 || before->oldest_xid < manifest.oldest_xid))
		manifest.oldest_xid = before->oldest_xid;
	manifest.first_log = before->sealed_log + 1;

	LWLockAcquire(&shard->lock, LW_SHARED);
	manifest.next_run = shard->next_run;
	manifest.value_file = shard->value_file;
	manifest.value_tail = shard->value_tail;
	LWLockRelease(&shard->lock);

	kv_log_create(&store->key, merge->shardno, manifest.first_log);
	KV_STOP_POINT("freeze_before_manifest");
	kv_manifest_write(&store->key, merge->shardno, &manifest);
	merge->published = true;
	KV_STOP_POINT("freeze_after_manifest");

	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	shard->base_run = manifest.base_run;
	shard->frozen_keys = manifest.frozen_keys;
	shard->nunfrozen = manifest.nunfrozen;
	memcpy(shard->unfrozen, manifest.unfrozen, sizeof(shard->unfrozen));
	shard->unfrozen_entries = manifest.unfrozen_entries;
	shard->oldest_xid = manifest.oldest_xid;
	shard->first_log = manifest.first_log;
	freed = shard->sealed;
	memset(&shard->sealed, 0, sizeof(shard->sealed));
	shard->frozen_at = GetCurrentTimestamp();
	pg_atomic_fetch_add_u32(&shard->generation, 1);
	LWLockRelease(&shard->lock);
	kv_delta_free(&freed);

	for (uint32 log = before->first_log; log <= before->sealed_log; log++)
		unlink_log(store, merge->shardno, log);
	for (int i = 0; i < merge->taken; i++)
		unlink_run(store, merge->shardno, before->unfrozen[i]);
	if (merge->with_base && before->base_run != 0)
		unlink_run(store, merge->shardno, before->base_run);
	KV_STOP_POINT("freeze_done");
}

/* Steps 3 to 5, for sources that begin with the sealed delta. */
static void
merge_and_publish(KvMerge *merge, const KvShard *before)
{
	KvSource   *source = &merge->sources[merge->nsources++];

	source->run = NULL;
	source->incarnation = kv_shared->incarnation;
	source->item = kv_delta_seek(&before->sealed, (const uint8 *) "", 0,
								 &source->delta_cursor);
	load_source(source);
	for (int i = 0; i < merge->taken; i++)
		add_run_source(merge, before->unfrozen[i], false);
	if (merge->with_base && before->base_run != 0)
		add_run_source(merge, before->base_run, true);

	merge_sources(merge);

	KV_STOP_POINT("freeze_before_finish");
	if (merge->base_writer)
		kv_run_finish(merge->base_writer);
	merge->base_writer = NULL;
	if (merge->unfrozen_writer)
		kv_run_finish(merge->unfrozen_writer);
	merge->unfrozen_writer = NULL;
	publish(merge, before);
}

/* Steps 2 to 5.  The caller is the shard's maintainer. */
static void
freeze_sealed(KvStore *store, uint32 shardno, KvFreezeMode mode)
{
	KvShard    *shard = kv_shard(store, shardno);
	KvShard		before;
	KvMerge    *merge = palloc0(sizeof(KvMerge));

	/* only a maintainer changes these, so the copy stays true */
	LWLockAcquire(&shard->lock, LW_SHARED);
	before = *shard;
	LWLockRelease(&shard->lock);

	if (DsaPointerIsValid(before.sealed.root))
		kv_shard_drain(store, shardno, before.sealed_log, PG_UINT64_MAX);
	KV_STOP_POINT("freeze_before_merge");

	merge->taken = choose_runs(store, shardno, mode, before.nunfrozen, before.unfrozen,
							   before.sealed.nversions, before.frozen_keys,
							   &merge->with_base);
	if (!DsaPointerIsValid(before.sealed.root) && merge->taken == 0)
		return;

	merge->store = store;
	merge->shardno = shardno;
	merge->horizon = kv_xid_horizon();
	PG_TRY();
	{
		merge_and_publish(merge, &before);
	}
	PG_CATCH();
	{
		if (merge->base_writer)
			kv_run_discard(merge->base_writer);
		if (merge->unfrozen_writer)
			kv_run_discard(merge->unfrozen_writer);
		if (!merge->published)
		{
			/* those that were finished already are nobody's */
			if (merge->base_number != 0)
				(void) kv_io_unlink(kv_path_run(&store->key, shardno, merge->base_number));
			if (merge->unfrozen_number != 0)
				(void) kv_io_unlink(kv_path_run(&store->key, shardno, merge->unfrozen_number));
		}
		release_merge(merge);
		PG_RE_THROW();
	}
	PG_END_TRY();
	release_merge(merge);
	kv_count(store, mode == KV_FREEZE_SPILL ? KV_COUNT_SPILLS : KV_COUNT_FREEZES, 1);
}

/* Step 1.  Lock held exclusively. */
static void
seal_delta(KvStore *store, uint32 shardno)
{
	KvShard    *shard = kv_shard(store, shardno);

	if (DsaPointerIsValid(shard->sealed.root) || !DsaPointerIsValid(shard->active.root))
		return;
	if (shard->open_slot >= 0)
		kv_slot_seal(store, shardno);
	shard->sealed = shard->active;
	memset(&shard->active, 0, sizeof(shard->active));
	if (shard->log_tail > sizeof(KvLogHeader))
	{
		shard->log_number++;
		shard->log_tail = sizeof(KvLogHeader);
	}
	shard->sealed_log = shard->log_number - 1;
}

/* The shard has no maintainer any more, whichever way this one ended. */
static void
resign(int code, Datum arg)
{
	KvShard    *shard = (KvShard *) DatumGetPointer(arg);

	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	shard->maintainer = 0;
	LWLockRelease(&shard->lock);
	ConditionVariableBroadcast(&shard->changed);
}

/*
 * Freeze a shard now.  If another process is at it, wait until it has ended and
 * return: the delta has been emptied.  No lock held.
 */
void
kv_shard_freeze(KvStore *store, uint32 shardno, KvFreezeMode mode)
{
	KvShard    *shard = kv_shard(store, shardno);
	bool		waited = false;
	MemoryContext context;
	MemoryContext old;

	ConditionVariablePrepareToSleep(&shard->changed);
	for (;;)
	{
		bool		mine = false;

		LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
		if (shard->maintainer == 0)
		{
			if (!waited || mode == KV_FREEZE_ALL)
			{
				shard->maintainer = MyProcPid;
				seal_delta(store, shardno);
				mine = true;
			}
			LWLockRelease(&shard->lock);
			ConditionVariableCancelSleep();
			if (!mine)
				return;
			break;
		}
		LWLockRelease(&shard->lock);
		waited = true;
		ConditionVariableTimedSleep(&shard->changed, 1000, KV_WAIT_FREEZE);
	}

	context = AllocSetContextCreate(CurrentMemoryContext, "kvfdw freeze",
									ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(context);
	PG_ENSURE_ERROR_CLEANUP(resign, PointerGetDatum(shard));
	{
		freeze_sealed(store, shardno, mode);
	}
	PG_END_ENSURE_ERROR_CLEANUP(resign, PointerGetDatum(shard));
	resign(0, PointerGetDatum(shard));
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
}

/* Freeze every shard that has anything to freeze. */
void
kv_store_freeze(KvStore *store)
{
	for (int i = 0; i < store->nshards; i++)
	{
		KvShard    *shard = kv_shard(store, i);

		CHECK_FOR_INTERRUPTS();
		if (shard->active.nversions > 0 || shard->nunfrozen > 0 ||
			DsaPointerIsValid(shard->sealed.root))
			kv_shard_freeze(store, i, KV_FREEZE_ALL);
	}
}
