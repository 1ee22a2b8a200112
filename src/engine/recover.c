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

#include <dirent.h>

#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/fd.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "engine/internal.h"

/* One file of the store's directory, by its name. */
typedef struct KvFoundFile
{
	uint32		shard;
	uint32		number;			/* of a log or run */
	enum
	{
		KV_FOUND_LOG, KV_FOUND_RUN, KV_FOUND_MANIFEST, KV_FOUND_TEMPORARY
	}			what;
	char		name[32];
} KvFoundFile;

typedef struct KvFound
{
	KvFoundFile *files;			/* ordered by shard */
	int			n;
} KvFound;

static int
compare_found(const void *a, const void *b)
{
	uint32		left = ((const KvFoundFile *) a)->shard;
	uint32		right = ((const KvFoundFile *) b)->shard;

	return left < right ? -1 : left > right;
}

/* What is there; value files need no sweeping, and unknown files are left alone. */
static void
list_files(KvStore *store, KvFound *found)
{
	char	   *directory = pstrdup(kv_path_store(&store->key));
	DIR		   *dir = AllocateDir(directory);
	struct dirent *de;
	int			room = 64;

	found->n = 0;
	found->files = palloc(room * sizeof(KvFoundFile));
	while ((de = ReadDir(dir, directory)) != NULL)
	{
		KvFoundFile *file;
		char		ending[16];
		Size		len = strlen(de->d_name);

		if (found->n == room)
		{
			room *= 2;
			found->files = repalloc_huge(found->files, room * sizeof(KvFoundFile));
		}
		file = &found->files[found->n];
		file->number = 0;
		if (len >= sizeof(file->name))
			continue;
		strlcpy(file->name, de->d_name, sizeof(file->name));
		if (len > 4 && strcmp(de->d_name + len - 4, ".tmp") == 0)
		{
			if (sscanf(de->d_name, "%5x", &file->shard) != 1)
				continue;
			file->what = KV_FOUND_TEMPORARY;
		}
		else if (sscanf(de->d_name, "%5x.%8x.%15s", &file->shard, &file->number, ending) == 3 &&
				 strcmp(ending, "log") == 0)
			file->what = KV_FOUND_LOG;
		else if (sscanf(de->d_name, "%5x.%8x.%15s", &file->shard, &file->number, ending) == 3 &&
				 strcmp(ending, "run") == 0)
			file->what = KV_FOUND_RUN;
		else if (sscanf(de->d_name, "%5x.%15s", &file->shard, ending) == 2 &&
				 strcmp(ending, "manifest") == 0)
			file->what = KV_FOUND_MANIFEST;
		else
			continue;
		found->n++;
	}
	FreeDir(dir);
	pfree(directory);
	qsort(found->files, found->n, sizeof(KvFoundFile), compare_found);
}

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
	KvVersion	version = {0};
	uint64		end = KV_LOCATION_OFFSET(entry->location) + entry->len;

	/* the space is taken whether or not the entry counts */
	if (KV_LOCATION_FILE(entry->location) == shard->value_file)
		shard->value_tail = Max(shard->value_tail, TYPEALIGN(KV_BLOCK, end));

	version.fate = kv_xid_fate(entry->xid, incarnation);
	if (version.fate == KV_FATE_ABORTED ||
		(entry->kind == KV_VERSION_LOCK && version.fate != KV_FATE_UNKNOWN))
		return;
	version.xid = entry->xid;
	version.location = entry->location;
	version.len = entry->len;
	version.crc = entry->value_crc;
	version.cid = entry->cid;
	version.kind = entry->kind;
	kv_delta_locate(&shard->active, key, entry->keylen, &place);
	while (!kv_delta_add(&shard->active, &place, key, entry->keylen, &version))
		kv_make_room(store, shardno);
	kv_count(store, KV_COUNT_RECOVERED_ENTRIES, 1);
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

/* Remove the files of a shard that its manifest does not know. */
static void
sweep(KvStore *store, const KvShard *shard, const KvFoundFile *files, int n)
{
	char	   *directory = pstrdup(kv_path_store(&store->key));

	for (int i = 0; i < n; i++)
	{
		char		path[MAXPGPATH];

		if (files[i].what == KV_FOUND_MANIFEST ||
			(files[i].what == KV_FOUND_LOG && files[i].number >= shard->first_log) ||
			(files[i].what == KV_FOUND_RUN && names_run(shard, files[i].number)))
			continue;
		snprintf(path, sizeof(path), "%s/%s", directory, files[i].name);
		(void) kv_io_unlink(path);
	}
	pfree(directory);
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

static void
recover_shard(KvStore *store, uint32 shardno, const KvFoundFile *files, int n)
{
	KvShard    *shard = kv_shard(store, shardno);
	bool		has_manifest = false;
	bool		has_index = false;	/* a log or a run */
	uint32		last_log = 0;
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
		if (files[i].what == KV_FOUND_MANIFEST)
			has_manifest = kv_manifest_read(&store->key, shardno, &manifest);
		else if (files[i].what == KV_FOUND_LOG)
			last_log = Max(last_log, files[i].number);
		has_index |= files[i].what == KV_FOUND_LOG || files[i].what == KV_FOUND_RUN;
	}
	shard->base_run = manifest.base_run;
	shard->nunfrozen = manifest.nunfrozen;
	memcpy(shard->unfrozen, manifest.unfrozen, sizeof(shard->unfrozen));
	shard->next_run = manifest.next_run;
	for (int i = 0; i < n; i++)
	{
		/* numbers are never used twice, not even a swept run's */
		if (files[i].what == KV_FOUND_RUN)
			shard->next_run = Max(shard->next_run, files[i].number + 1);
	}
	shard->first_log = manifest.first_log;
	shard->sealed_log = manifest.first_log - 1;
	shard->log_number = Max(last_log, manifest.first_log);
	shard->value_file = manifest.value_file;
	shard->value_tail = manifest.value_tail;
	shard->frozen_keys = manifest.frozen_keys;
	shard->unfrozen_entries = manifest.unfrozen_entries;
	shard->oldest_xid = manifest.oldest_xid;

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
		shard->log_tail = kv_log_replay(store, shardno, log,
										has_manifest || file >= 0, apply_entry);
	KV_STOP_POINT("recover_after_logs");
	kv_slots_replay_open(store, shardno, apply_entry);

	if (file < 0)
		file = kv_value_file(&store->key, shard->value_file, false);
	shard->value_allocated = file >= 0 ? kv_io_size(file) : 0;
	shard->value_tail = TYPEALIGN(KV_BLOCK, shard->value_tail);

	if (!DsaPointerIsValid(shard->active.root) && shard->log_tail > sizeof(KvLogHeader))
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

	list_files(store, &found);
	for (;;)
	{
		uint32		shardno = pg_atomic_fetch_add_u32(&store->next_shard, 1);
		int			first;

		if (shardno >= store->nshards)
			break;
		kv_check_interrupts();
		while (at < found.n && found.files[at].shard < shardno)
			at++;
		first = at;
		while (at < found.n && found.files[at].shard == shardno)
			at++;
		recover_shard(store, shardno, found.files + first, at - first);
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
		ConditionVariableInit(&shard->changed);
		shard->open_slot = shard->sealed_slots = -1;
		pg_atomic_init_u32(&shard->generation, 0);
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

	list_files(store, &found);
	for (int i = 0; i < found.n; i++)
		logs += found.files[i].what == KV_FOUND_LOG;
	pfree(found.files);
	wanted = store->nshards > 1 ? Min(Min(kv_recovery_workers, logs / 4), lengthof(helpers)) : 0;
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
	store->cache_id = pg_atomic_add_fetch_u32(&kv_shared->cache_ids, 1);
	pg_atomic_write_u64(&store->counters[KV_COUNT_RECOVERY_MS],
						TimestampDifferenceMilliseconds(start, GetCurrentTimestamp()));
}
