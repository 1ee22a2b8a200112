/*
 * recover.c
 *		Recovery of a store at its first use after a start.
 *
 * Per shard, independently of the others, so that several processes share the
 * work: read the manifest; replay sealed merge slots; read the key logs that
 * the runs do not cover; replay the slot that was open; sweep files that the
 * manifest does not name.  (A shard without a manifest has its log number 1:
 * if that is missing beside other logs or runs, so is the manifest.)  No value
 * is read.  Every step is idempotent, so a recovery that was killed is simply
 * done again.
 *
 * Each entry's fate is settled as it is read: aborted ones stay out, and so
 * nothing later needs to know which incarnation they came from (I 10).
 */
#include "postgres.h"

#include "access/xlog.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/fd.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "engine/internal.h"

/*
 * A KvApplyEntry: put the entry into the recovering shard's delta, unless its
 * transaction aborted.
 */
static void
apply_entry(KvStore *store, uint32 shardno, const KvLogEntry *entry, uint32 incarnation)
{
	KvShard    *shard = kv_shard(store, shardno);
	const uint8 *key = (const uint8 *) (entry + 1);
	KvDeltaPlace place;
	KvVersion	version = kv_entry_version(entry);
	uint64		end = KV_LOCATION_OFFSET(entry->location) + entry->len;

	/* the space is taken whether or not the entry counts */
	if (KV_LOCATION_FILE(entry->location) == shard->value_file)
		shard->value_tail = Max(shard->value_tail, TYPEALIGN(KV_BLOCK, end));

	version.fate = kv_xid_fate(entry->xid, incarnation);
	if (version.fate == KV_FATE_ABORTED ||
		(entry->kind == KV_VERSION_LOCK && version.fate != KV_FATE_UNKNOWN))
		return;
	kv_delta_locate(&shard->active, key, entry->keylen, &place);
	while (!kv_delta_add(&shard->active, &place, key, entry->keylen, &version))
		kv_make_room(store, shardno);
	kv_count(store, KV_COUNT_RECOVERED_ENTRIES, 1);
}

/*
 * As apply_entry, after a power loss: of what lies behind the image's values only
 * what is whole.
 */
static void
salvage_entry(KvStore *store, uint32 shardno, const KvLogEntry *entry, uint32 incarnation)
{
	KvShard    *shard = kv_shard(store, shardno);
	KvVersion	version = kv_entry_version(entry);

	if (entry->len > 0 && KV_LOCATION_OFFSET(entry->location) >= shard->salvage_from &&
		!kv_value_is_intact(store, kv_entry_key(entry), &version))
	{
		kv_count(store, KV_COUNT_LOST_ENTRIES, 1);
		return;
	}
	apply_entry(store, shardno, entry, incarnation);
}

/*
 * Nothing that the logs hold counts any more: go on with a new one, so that
 * nothing refers to the incarnations that wrote them.
 */
static void
leave_logs(KvStore *store, uint32 shardno, KvManifest *manifest)
{
	KvShard    *shard = kv_shard(store, shardno);

	manifest->first_log = ++shard->log_number;
	manifest->next_run = shard->next_run;
	manifest->value_tail = shard->value_tail;
	kv_log_create(&store->key, shardno, manifest->first_log);
	kv_manifest_write(&store->key, shardno, manifest);
	shard->log_tail = sizeof(KvLogHeader);
	shard->first_log = manifest->first_log;
	shard->sealed_log = manifest->first_log - 1;
}

/*
 * All of the shard that could be salvaged is in its delta: make a run of it, and
 * leave the logs, with what is damaged in them, behind.
 */
static void
end_salvage(KvStore *store, uint32 shardno, KvManifest *manifest)
{
	KvShard    *shard = kv_shard(store, shardno);

	kv_count(store, KV_COUNT_LOST_ENTRIES, manifest->lost);
	manifest->flags = manifest->lost = 0;
	if (!DsaPointerIsValid(shard->active.root))
	{
		leave_logs(store, shardno, manifest);
		return;
	}
	/* behind whatever is in the file, whole or not */
	shard->frozen_at = GetCurrentTimestamp();
	kv_shard_freeze(store, shardno, KV_FREEZE_SPILL);
}

static bool
names_run(const KvShard *shard, uint32 number)
{
	if (number == shard->base_run)
		return true;
	for (int i = 0; i < shard->nunfrozen; i++)
	{
		if (number == shard->unfrozen[i])
			return true;
	}
	return false;
}

/* Remove the files of a shard that neither its manifest nor an image knows. */
static void
sweep(KvStore *store, const KvShard *shard, const KvFoundFile *files, int n)
{
	char	   *directory = pstrdup(kv_path_store(&store->key));

	for (int i = 0; i < n; i++)
	{
		char		path[MAXPGPATH];

		if (files[i].kind == KV_FILE_MANIFEST ||
			(files[i].kind == KV_FILE_IMAGE && files[i].number == shard->image_number) ||
			(files[i].kind == KV_FILE_LOG &&
			 (files[i].number >= shard->first_log ||
			  kv_image_names_log(store, shard, files[i].number))) ||
			(files[i].kind == KV_FILE_RUN &&
			 (names_run(shard, files[i].number) || kv_image_names_run(shard, files[i].number))))
			continue;
		snprintf(path, sizeof(path), "%s/%s", directory, files[i].name);
		(void) kv_io_unlink(path);
	}
	pfree(directory);
}

static void
recover_shard(KvStore *store, uint32 shardno, const KvFoundFile *files, int n)
{
	KvShard    *shard = kv_shard(store, shardno);
	bool		has_manifest = false;
	bool		has_index = false;	/* a log or a run */
	uint32		last_log = 0;
	bool		salvage;
	KvManifest	manifest;
	File		file;

	if (shard->recovered)
		return;
	kv_delta_free(&shard->active);	/* of an attempt that failed */

	memset(&manifest, 0, sizeof(manifest));
	manifest.next_run = 1;
	manifest.first_log = 1;
	manifest.value_file = shardno;
	for (int i = 0; i < n; i++)
	{
		if (files[i].kind == KV_FILE_MANIFEST)
			has_manifest = kv_manifest_read(&store->key, shardno, &manifest);
		else if (files[i].kind == KV_FILE_LOG)
			last_log = Max(last_log, files[i].number);
		has_index |= files[i].kind == KV_FILE_LOG || files[i].kind == KV_FILE_RUN;
	}
	shard->base_run = manifest.base_run;
	shard->nunfrozen = manifest.nunfrozen;
	memcpy(shard->unfrozen, manifest.unfrozen, sizeof(shard->unfrozen));
	shard->next_run = manifest.next_run;
	for (int i = 0; i < n; i++)
	{
		/* numbers are never used twice, not even a swept run's */
		if (files[i].kind == KV_FILE_RUN)
			shard->next_run = Max(shard->next_run, files[i].number + 1);
	}
	salvage = (manifest.flags & KV_MANIFEST_SALVAGE) != 0;
	shard->first_log = manifest.first_log;
	shard->sealed_log = manifest.first_log - 1;
	shard->log_number = Max(last_log, manifest.first_log);
	shard->value_file = manifest.value_file;
	shard->value_tail = manifest.value_tail;
	shard->frozen_keys = manifest.frozen_keys;
	shard->unfrozen_entries = manifest.unfrozen_entries;
	shard->oldest_xid = manifest.oldest_xid;
	kv_shard_load_image(store, shardno, files, n, &manifest);

	shard->salvage_from = manifest.value_tail;

	/* slots are about to be rewritten and reused: nobody may still read them */
	file = kv_value_file(&store->key, shard->value_file, false);
	if (file >= 0)
		kv_io_settle(file);
	kv_slots_replay_sealed(store, shardno);
	KV_STOP_POINT("recover_after_sealed");
	shard->log_tail = sizeof(KvLogHeader);
	if (!has_manifest && has_index && access(kv_path_log(&store->key, shardno, 1), F_OK) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("manifest \"%s\" is missing", kv_path_manifest(&store->key, shardno))));
	for (uint32 log = shard->first_log; log <= shard->log_number; log++)
		shard->log_tail = salvage ?
			kv_log_salvage(store, shardno, log, salvage_entry) :
			kv_log_replay(store, shardno, log, has_manifest || file >= 0, apply_entry);
	KV_STOP_POINT("recover_after_logs");
	kv_slots_replay_open(store, shardno, apply_entry);

	if (file < 0)
		file = kv_value_file(&store->key, shard->value_file, false);
	shard->value_allocated = file >= 0 ? kv_io_size(file) : 0;
	shard->value_tail = TYPEALIGN(KV_BLOCK, shard->value_tail);
	if (salvage)
		shard->value_tail = Max(shard->value_tail, shard->value_allocated);

	if (salvage)
		end_salvage(store, shardno, &manifest);
	else if (!DsaPointerIsValid(shard->active.root) && shard->log_tail > sizeof(KvLogHeader))
		leave_logs(store, shardno, &manifest);
	sweep(store, shard, files, n);
	shard->frozen_at = GetCurrentTimestamp();
	/* prepared transactions may hold any lock */
	shard->key_share_xid = U64FromFullTransactionId(ReadNextFullTransactionId()) - 1;
	pg_atomic_fetch_add_u32(&shard->generation, 1);
	pg_write_barrier();
	shard->recovered = true;
}

/*
 * Recover shards of an opening store until none is left to take.  Run by the
 * opener and by its helpers.
 */
void
kv_store_recover_shards(KvStore *store)
{
	KvFound		found;
	int			at = 0;

	kv_store_list_files(&store->key, &found);
	for (;;)
	{
		uint32		shardno = pg_atomic_fetch_add_u32(&store->next_shard, 1);
		int			n;

		if (shardno >= store->nshards)
			break;
		kv_check_interrupts();
		while (at < found.n && found.files[at].shard < shardno)
			at++;
		n = kv_found_of_shard(&found, at, shardno);
		recover_shard(store, shardno, found.files + at, n);
		at += n;
	}
	pfree(found.files);
}

/* Shared memory for the store's shards, unless a failed attempt left it. */
static void
allocate_shards(KvStore *store)
{
	int			flags = DSA_ALLOC_NO_OOM | DSA_ALLOC_HUGE | DSA_ALLOC_ZERO;
	Size		bytes;
	char	   *bounds;

	if (DsaPointerIsValid(store->shards))
		return;
	if (!kv_table_file_read(store, NULL))
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("file \"%s/table\" is missing", kv_path_store(&store->key))));
	bounds = kv_map_file_read(store, &bytes);
	if (!DsaPointerIsValid(store->bounds))
		store->bounds = dsa_allocate_extended(kv_area(), bytes, flags);
	if (DsaPointerIsValid(store->bounds))
	{
		memcpy(kv_address(store->bounds), bounds, bytes);
		store->shards = dsa_allocate_extended(kv_area(), sizeof(KvShard) * store->nshards,
											  flags);
	}
	pfree(bounds);
	if (!DsaPointerIsValid(store->shards))
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("kvfdw is out of shared memory for %d shards", store->nshards),
				 errhint("You might need to increase kvfdw.delta_memory.")));
	for (int i = 0; i < store->nshards; i++)
	{
		KvShard    *shard = kv_shard(store, i);

		LWLockInitialize(&shard->lock, kv_tranche_shard);
		LWLockInitialize(&shard->extend_lock, kv_tranche_shard);
		LWLockInitialize(&shard->commit_lock, kv_tranche_shard);
		ConditionVariableInit(&shard->changed);
		shard->open_slot = shard->sealed_slots = -1;
		pg_atomic_init_u32(&shard->generation, 0);
		pg_atomic_init_u64(&shard->writes, 0);
	}
}

static bool
all_recovered(KvStore *store)
{
	for (int i = 0; i < store->nshards; i++)
	{
		if (!kv_shard(store, i)->recovered)
			return false;
	}
	return true;
}

/* After a power loss at wal level 'none'. */
static void
report_losses(KvStore *store)
{
	uint64		entries = pg_atomic_read_u64(&store->counters[KV_COUNT_LOST_ENTRIES]);
	uint64		bytes = pg_atomic_read_u64(&store->counters[KV_COUNT_LOST_LOG_BYTES]);

	if (entries > 0 || bytes > 0)
		ereport(WARNING,
				(errmsg("kvfdw table %u of database %u has lost %llu entries and %llu bytes of key logs",
						store->key.relid, store->key.dboid, (unsigned long long) entries,
						(unsigned long long) bytes),
				 errdetail("The operating system was restarted, and the table has wal level \"none\".")));
}

/*
 * Recover a store whose state is OPENING.  Helpers are started when several
 * shards have logs to read; what a helper could not do is done here again, so
 * that its error reaches the session that asked.
 */
void
kv_store_recover(KvStore *store)
{
	TimestampTz start = GetCurrentTimestamp();
	BackgroundWorkerHandle *helpers[8];
	int			nhelpers = 0;
	int			wanted;
	KvFound		found;
	int			logs = 0;

	/* helpers of an attempt that failed may still be at work */
	while (pg_atomic_read_u32(&store->helpers) > 0)
	{
		CHECK_FOR_INTERRUPTS();
		ConditionVariableTimedSleep(&store->opened, 100, KV_WAIT_RECOVERY);
	}
	ConditionVariableCancelSleep();
	allocate_shards(store);
	pg_atomic_write_u32(&store->next_shard, 0);

	kv_store_list_files(&store->key, &found);
	for (int i = 0; i < found.n; i++)
		logs += found.files[i].kind == KV_FILE_LOG;
	pfree(found.files);
	wanted = store->nshards > 1 && !RecoveryInProgress() ?
		Min(Min(kv_recovery_workers, logs / 4), lengthof(helpers)) : 0;
	while (nhelpers < wanted)
	{
		/* counted from here on, so that nobody else recovers beside it */
		pg_atomic_fetch_add_u32(&store->helpers, 1);
		if (!kv_recovery_worker_start(store, &helpers[nhelpers]))
		{
			pg_atomic_fetch_sub_u32(&store->helpers, 1);
			break;
		}
		nhelpers++;
	}

	PG_TRY();
	{
		kv_store_recover_shards(store);
	}
	PG_CATCH();
	{
		pg_atomic_write_u32(&store->next_shard, store->nshards);
		PG_RE_THROW();
	}
	PG_END_TRY();
	for (int i = 0; i < nhelpers; i++)
		(void) WaitForBackgroundWorkerShutdown(helpers[i]);
	if (!all_recovered(store))
	{
		pg_atomic_write_u32(&store->next_shard, 0);
		kv_store_recover_shards(store);
	}
	report_losses(store);
	store->cache_id = pg_atomic_add_fetch_u32(&kv_shared->cache_ids, 1);
	pg_atomic_write_u64(&store->counters[KV_COUNT_RECOVERY_MS],
						TimestampDifferenceMilliseconds(start, GetCurrentTimestamp()));
}
