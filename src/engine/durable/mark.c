/*
 * mark.c
 *		Marks: the durable state of a shard, as a checkpoint needs it.
 *
 * A mark of a shard is an edit of the version log of its store (version/version.h).  It lists the
 * shard's files as they were at one moment, and says where the key logs ended then.  Marks of a
 * shard are numbered.  Every file that one names is on the device up to there, and stays until the
 * next mark is durable, so after a power loss the shard can be set back to it.  Between two marks
 * nothing of a shard is synced.
 *
 * The steps of making marks (kv_shards_mark), in which each shard's lock is held only to
 * look:
 *
 *	1. capture	seal the open write buffer; note runs, logs, tails.  From here on these
 *				files are protected (KvShard.durable.marks[KV_MARK_NEXT])
 *	2. drain	write the sealed write buffers to the files; then the kernel must not have
 *				failed to write back pages of the buffer file, from which they came
 *	3. sync		value files that are not yet durable, logs, and runs that the previous
 *				mark did not name; new entries of logs are read and verified
 *	4. append	the marks, after the directory was synced if they name new files; then the
 *				version log is synced
 *	5. release	unlink files that only the previous mark named, and value files that had left
 *				the list before the mark was captured (shard/obsolete.c)
 *
 * Shards of a store go through these steps together.  Files that are synced at once
 * (kv_io_sync_files) cost the file system one commit, and the directory and the version log are
 * synced once for all of them.  Their marks are one append, which counts whole or not at all.
 * Nothing is released before it is durable, so the previous marks are complete until then.
 *
 * A shard that differs from its mark only by what its open write buffer has needs none of this
 * (kv_shards_carry).  Those versions are appended to the version log with their values, and one
 * sync serves all such shards.  They add to the mark with that number, and recovery writes them
 * again as redo would.  They serve the checkpoint as a mark does, because the buffer is read
 * under the shard's lock after the checkpoint's redo pointer was seen.  When anything else of the
 * shard changes, the next checkpoint makes a mark, and they count no more.  Level full only: at
 * keys the WAL names the addresses of values, and redo does not write them.
 *
 * While base backups run nothing is removed.  What should have been is found in the directory
 * when they have ended (kv_files_tidy).  So a copy has all files of the mark that was the newest
 * when its backup began.  Later marks may name files that the copy lacks.  They are distinguished
 * by what they cover: the redo pointer of the checkpoint that waits for the mark, or one more if
 * none does.  The newest mark that covers no more than the backup's redo pointer is the right one.
 *
 * pg_rewind lists files before it copies them.  A shard that gets its first mark in between has
 * none in the copy whose files are complete.  So while a backup runs a mark number 0 precedes the
 * first one: until then the shard had nothing but what is carried, and the WAL has the rest.  Not
 * in recovery, where the first mark may have what is older than the last checkpoint.
 *
 * A mark may be newer than the redo pointer from which the WAL is replayed.  That does no
 * harm: a version that redo writes again is newer than its former self and identical.
 *
 * One process at a time makes marks: the startup process until recovery has ended, the
 * checkpointer afterwards.  Between two checkpoints the checkpointer makes one of a shard that
 * asks for it (KvShard.durable.wanted), so that space is freed soon.
 */
#include "postgres.h"

#include <sys/stat.h>
#include <unistd.h>

#include "access/xlog.h"
#include "utils/guc.h"

#include "engine/base/types.h"
#include "engine/base/wait.h"
#include "engine/buffer/largevalue.h"
#include "engine/durable/durable.h"
#include "engine/engine.h"
#include "engine/format/format.h"
#include "engine/flush/flush.h"
#include "engine/format/path.h"
#include "engine/io/fault.h"
#include "engine/io/name.h"
#include "engine/maintenance.h"
#include "engine/shard/map.h"
#include "engine/shard/obsolete.h"
#include "engine/shard/shard.h"
#include "engine/buffer/buffer.h"
#include "engine/shard/valuefiles.h"
#include "engine/value/value.h"
#include "engine/version/version.h"

/*
 * At most so much of a shard is carried; one append has at most so many shards, or about so many
 * bytes.
 */
#define KV_MOST_CARRIED		64	/* kB */
#define KV_CARRIED_SHARDS	4096
/* nothing is carried by a log with so many bytes that do not count */
#define KV_CARRIED_LOG		(64 * 1024 * 1024)
#define KV_CARRIED_BATCH	(8 * 1024 * 1024)

static int	most_carried = KV_MOST_CARRIED;

void
kv_durable_gucs(void)
{
#ifdef KVFDW_FAULTS
	DefineCustomIntVariable("kvfdw.test_carried",
							"Sets how much of a shard the version log carries at most.",
							"For tests only.",
							&most_carried, KV_MOST_CARRIED, 0, KV_MOST_CARRIED,
							PGC_SIGHUP, GUC_UNIT_KB, NULL, NULL, NULL);
#endif
}

/* A mark that is being made. */
typedef struct KvMarkWork
{
	uint32		shard_id;
	KvMark		mark;
	uint32		generation;		/* the shard's, when it was captured */
	uint64		sequence;		/* the end of the write buffers that must be drained */
	uint32		closed_log;		/* as in KvShard, when it was captured */
	uint64		closed_tail;
	KvUnsynced *unsynced;		/* value files that are synced for it */
	int			nunsynced;
} KvMarkWork;

/* A file that is synced in step 3. */
typedef struct KvMarkFile
{
	char	   *path;
	uint32		shard_id;
	uint32		log;			/* 0: no log */
	uint64		from;			/* of a log, the part that is verified */
	uint64		end;
} KvMarkFile;

/* Protect the files that a mark names. */
static void
name_files(const KvMark *mark, KvMarkFiles *files)
{
	files->valid = true;
	files->last_log = mark->last_log;
	files->files = mark->listed.files;
}

static bool
same_runs(const KvShardFiles *a, const KvShardFiles *b)
{
	return a->base_run == b->base_run && a->nunfrozen == b->nunfrozen &&
		a->first_log == b->first_log &&
		memcmp(a->unfrozen, b->unfrozen, a->nunfrozen * sizeof(uint32)) == 0;
}

/*
 * At recovery, level 'none': keep value files that the mark lists and the newest FILES edit does
 * not have. They left the list since, or entries that are still to be read name them and put them
 * into it.
 */
static void
keep_value_files(KvStore *store, uint32 shard_id, const KvMark *mark)
{
	KvShard    *shard = kv_shard(store, shard_id);

	kv_value_files_use(shard, &mark->listed);
	for (int i = 0; i < mark->listed.nvalue_files; i++)
	{
		const KvValueFile *value_file = &mark->listed.value_files[i];

		if (kv_value_file_find(shard, value_file->address) != NULL)
			continue;
		while (!kv_obsolete_keep(store, shard_id, value_file, mark->number + 1))
			kv_make_memory(store, shard_id);
	}
}

void
kv_shard_load_mark(KvStore *store, const KvVersions *versions, uint32 shard_id,
				   const KvFileList *listed)
{
	KvShard    *shard = kv_shard(store, shard_id);
	KvMark		mark;

	memset(shard->durable.marks, 0, sizeof(shard->durable.marks));
	shard->durable.log = 0;
	shard->durable.number = shard->durable.map = 0;
	shard->durable.awaited = 0;
	if (!kv_versions_mark(versions, shard_id, shard->place.bounds_since, &mark))
		return;
	name_files(&mark, &shard->durable.marks[KV_MARK_LAST]);
	shard->durable.number = mark.number;
	shard->durable.map = mark.map_number;
	shard->durable.log = mark.last_log;
	shard->durable.tail = mark.log_tail;

	/* a shard that is set back to the mark continues there */
	kv_volume_note(store, mark.listed.next_address);

	/* keep the value files that the mark names, although the shard may not need them */
	if (store->shape.wal == KV_WAL_NONE && !(listed->files.flags & KV_FILES_SALVAGE))
		keep_value_files(store, shard_id, &mark);
	pfree(mark.listed.value_files);

	/* recovery increments the generation when it is done */
	shard->durable.generation = pg_atomic_read_u32(&shard->generation) +
		(same_runs(&mark.listed.files, &listed->files) ? 1 : 0);
}

/*
 * Is the shard unchanged since its newest mark, except for what its open buffer has?  The lock
 * is held.
 */
static bool
files_are_clean(const KvShard *shard)
{
	if (shard->place.bounds_since > shard->durable.map || shard->buffers.sealed >= 0 ||
		kv_mark_is_awaited(shard))
		return false;
	if (shard->durable.log == 0)
		return shard->files.first_log == 1 && shard->log.number == 1 &&
			shard->files.base_run == 0 &&
			shard->files.nunfrozen == 0 && shard->log.tail == sizeof(KvLogHeader);
	return shard->durable.log == shard->log.number && shard->durable.tail == shard->log.tail &&
		shard->durable.generation == pg_atomic_read_u32(&unconstify(KvShard *, shard)->generation);
}

/* Is the shard unchanged since its newest mark, or all else carried?  The lock is held. */
static bool
is_clean(const KvShard *shard)
{
	const KvWriteBuffer *open = shard->buffers.open >= 0 ? &kv_buffers[shard->buffers.open] : NULL;

	if (shard->place.bounds_since == KV_NOT_IN_MAP)
		return true;
	return files_are_clean(shard) &&
		(open == NULL || open->nentries == 0 ||
		 (open->sequence == shard->durable.carried_sequence &&
		  open->nentries == shard->durable.carried));
}

bool
kv_shard_needs_mark(KvStore *store, uint32 shard_id, uint32 round)
{
	KvShard    *shard = kv_shard(store, shard_id);
	bool		needs;

	LWLockAcquire(&shard->lock, LW_SHARED);
	needs = (!is_clean(shard) && (shard->durable.carried_round != round ||
								  shard->place.bounds_since > shard->durable.map)) ||
		shard->durable.wanted;
	LWLockRelease(&shard->lock);
	return needs;
}

bool
kv_shard_has_mark(KvShard *shard)
{
	bool		has;

	LWLockAcquire(&shard->lock, LW_SHARED);
	has = !shard->durable.wanted &&
		(!shard->durable.marks[KV_MARK_NEXT].valid || is_clean(shard));
	LWLockRelease(&shard->lock);
	return has;
}

/*
 * A failed attempt may have appended its mark, and the sync of that has failed.  The files that it
 * names are kept only until the next capture, so before that the previous mark becomes the newest
 * again.  All files that it names exist.
 */
static void
repeat_mark(KvStore *store, uint32 shard_id)
{
	const KvShard *shard = kv_shard(store, shard_id);
	uint32		number = shard->durable.number;
	KvVersions *versions;
	KvMark		mark;
	KvEdit		edit;

	if (!shard->durable.marks[KV_MARK_NEXT].valid)
		return;
	versions = kv_version_log_read(store);
	if (kv_versions_mark_before(versions, shard_id, 0, &mark))
	{
		/* if it is the newest already, because this was tried before, it may not be durable */
		for (int newer = 1; number > 0 && mark.number != number; newer++)
		{
			if (!kv_versions_mark_before(versions, shard_id, newer, &mark))
				elog(ERROR, "mark %u of kvfdw shard %u is missing", number, shard_id);
		}
		if (number == 0)
			kv_mark_of_empty(&mark);
		edit = kv_edit_of_mark(shard_id, &mark);
		kv_version_log_append(store, &edit, 1, true);
	}
	kv_versions_free(versions);
}

/* Step 1, of work->shard_id.  False: there is nothing to do. */
static bool
capture(KvStore *store, KvMarkWork *work)
{
	uint32		shard_id = work->shard_id;
	KvMark	   *mark = &work->mark;
	KvShard    *shard = kv_shard(store, shard_id);
	bool		dirty;

	memset(mark, 0, sizeof(*mark));
	repeat_mark(store, shard_id);
	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	shard->durable.wanted = false;
	dirty = !is_clean(shard);
	if (dirty)
	{
		if (shard->buffers.open >= 0)
			kv_buffer_seal(store, shard_id);
		work->sequence = pg_atomic_read_u64(&kv_buffer_pool->sequence);
		work->generation = pg_atomic_read_u32(&shard->generation);
		work->closed_log = shard->log.closed;
		work->closed_tail = shard->log.closed_tail;
		kv_shard_describe(shard, &mark->listed);
		mark->last_log = shard->log.number;
		mark->log_tail = shard->log.tail;
		mark->map_number = shard->place.bounds_since;

		/* a failed attempt may have kept files that no mark names */
		if (shard->durable.marks[KV_MARK_NEXT].valid)
			kv_files_want_tidy(store);
		name_files(mark, &shard->durable.marks[KV_MARK_NEXT]);
	}
	LWLockRelease(&shard->lock);
	return dirty;
}

/* Add a file to those of step 3. */
static KvMarkFile *
add_file(List **files, const char *path, bool count, KvCheckpointerStats *stats)
{
	KvMarkFile *file = palloc0(sizeof(KvMarkFile));
	struct stat info;

	file->path = pstrdup(path);
	*files = lappend(*files, file);
	stats->files++;
	if (count && stat(path, &info) == 0)
		stats->bytes += info.st_size;
	return file;
}

/* Add a log, of which the part is verified that the previous mark did not name. */
static void
add_log(List **files, const KvStore *store, const KvMarkWork *work, uint32 log,
		KvCheckpointerStats *stats)
{
	const KvShard *shard = kv_shard(store, work->shard_id);
	KvMarkFile *file = add_file(files, kv_path_log(&store->key, work->shard_id, log), true, stats);

	file->shard_id = work->shard_id;
	file->log = log;
	if (log == shard->durable.log && shard->durable.tail > sizeof(KvLogHeader))
		file->from = shard->durable.tail;
	if (log == work->mark.last_log)
		file->end = work->mark.log_tail;
	else if (log == work->closed_log)
		file->end = work->closed_tail;
}

/* Add the files of step 3. */
static void
files_to_sync(KvStore *store, KvMarkWork *work, List **to_sync, KvCheckpointerStats *stats)
{
	uint32		shard_id = work->shard_id;
	const KvMark *mark = &work->mark;
	const KvShardFiles *files = &mark->listed.files;
	const KvShard *shard = kv_shard(store, shard_id);
	const KvMarkFiles *before = &shard->durable.marks[KV_MARK_LAST];
	const KvStoreKey *key = &store->key;
	uint32		runs[KV_MAX_UNFROZEN + 1];
	int			nruns = kv_files_runs(files, runs);

	/* value files that were created since the capture are not its own, but few */
	work->nunsynced = kv_values_unsynced(store, shard_id, &work->unsynced);
	for (int i = 0; i < work->nunsynced && !kv_fault_skips("data_sync"); i++)
	{
		(void) add_file(to_sync, kv_path_value(key, work->unsynced[i].file), false, stats);
	}
	for (uint32 log = Max(files->first_log, shard->durable.log); log <= mark->last_log; log++)
	{
		/* the last one need not exist yet */
		if (log < mark->last_log || mark->log_tail > sizeof(KvLogHeader) ||
			access(kv_path_log(key, shard_id, log), F_OK) == 0)
			add_log(to_sync, store, work, log, stats);
	}
	for (int i = 0; i < nruns; i++)
	{
		if (!before->valid || !kv_files_name_run(&before->files, runs[i]))
			(void) add_file(to_sync, kv_path_run(key, shard_id, runs[i]), true, stats);
	}
}

/* The argument of verify_log. */
typedef struct KvMarkSyncs
{
	const KvStoreKey *key;
	List	   *files;
} KvMarkSyncs;

/* Called when a file of step 3 was synced. */
static void
verify_log(int i, void *arg)
{
	const KvMarkSyncs *syncs = arg;
	const KvMarkFile *file = list_nth(syncs->files, i);

	if (file->log != 0)
		kv_log_verify(syncs->key, file->shard_id, file->log, file->from, file->end);
}

/* Step 3.  Frees the list. */
static void
sync_files(const KvStore *store, List *to_sync)
{
	int			n = list_length(to_sync);
	KvMarkSyncs syncs = {&store->key, to_sync};
	const char **paths = palloc(Max(n, 1) * sizeof(char *));

	for (int i = 0; i < n; i++)
		paths[i] = ((KvMarkFile *) list_nth(to_sync, i))->path;
	kv_io_sync_files(paths, n, verify_log, &syncs);
	for (int i = 0; i < n; i++)
		pfree(unconstify(char *, paths[i]));
	pfree(paths);
	list_free_deep(to_sync);
}

/* Step 5: unlink files that only the previous mark named. */
static void
release_previous(KvStore *store, uint32 shard_id, const KvShardFiles *old)
{
	uint32		first_log = kv_shard(store, shard_id)->files.first_log;
	uint32		runs[KV_MAX_UNFROZEN + 1];
	int			nruns = kv_files_runs(old, runs);

	for (int i = 0; i < nruns; i++)
		kv_file_release(store, shard_id, KV_FILE_RUN, runs[i]);
	for (uint32 log = old->first_log; log < first_log; log++)
		kv_file_release(store, shard_id, KV_FILE_LOG, log);
}

/* Does a mark name files whose names may not be durable yet? */
static bool
has_new_names(const KvShard *shard, const KvMarkWork *work)
{
	const KvShardFiles *files = &work->mark.listed.files;
	const KvMarkFiles *before = &shard->durable.marks[KV_MARK_LAST];
	uint32		runs[KV_MAX_UNFROZEN + 1];
	int			nruns = kv_files_runs(files, runs);

	if (!before->valid || work->mark.last_log > shard->durable.log)
		return true;
	for (int i = 0; i < nruns; i++)
	{
		if (!kv_files_name_run(&before->files, runs[i]))
			return true;
	}
	for (int i = 0; i < work->nunsynced; i++)
	{
		if (!work->unsynced[i].named)
			return true;
	}

	/* the last log is created with its first batch */
	return shard->durable.tail <= sizeof(KvLogHeader);
}

/* Step 4. */
static void
append_marks(KvStore *store, KvMarkWork *work, int n, uint64 covers)
{
	KvEdit	   *edits = palloc(2 * (Size) n * sizeof(KvEdit));
	int			nedits = 0;
	bool		backup = kv_backups_run() && !RecoveryInProgress();
	bool		names = false;

	for (int i = 0; i < n; i++)
	{
		const KvShard *shard = kv_shard(store, work[i].shard_id);
		KvMark	   *mark = &work[i].mark;

		mark->covers = covers;
		mark->number = shard->durable.number + 1;
		if (mark->number == 1 && backup)
		{
			KvMark		empty;

			kv_mark_of_empty(&empty);
			empty.covers = covers;
			edits[nedits++] = kv_edit_of_mark(work[i].shard_id, &empty);
		}
		edits[nedits++] = kv_edit_of_mark(work[i].shard_id, mark);
		names |= has_new_names(shard, &work[i]);
	}

	/* names of runs, logs and value files are durable before a mark names them */
	if (names)
	{
		kv_io_sync_directory(kv_path_store(&store->key));
		if (OidIsValid(store->shape.tablespace) || store->shape.moved_lsn != 0)
			kv_values_sync_names(&store->key);
	}
	KV_STOP_POINT("mark_named");
	kv_version_log_append(store, edits, nedits, true);
	for (int i = 0; i < nedits; i++)
		pfree(unconstify(char *, edits[i].body));
	pfree(edits);
}

/* The mark is durable: it counts from here on.  Step 5 for the previous one. */
static void
install_mark(KvStore *store, const KvMarkWork *work)
{
	KvShard    *shard = kv_shard(store, work->shard_id);
	const KvMark *mark = &work->mark;
	KvMarkFiles before;

	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	before = shard->durable.marks[KV_MARK_LAST];
	shard->durable.marks[KV_MARK_LAST] = shard->durable.marks[KV_MARK_NEXT];
	shard->durable.marks[KV_MARK_NEXT].valid = false;
	shard->durable.number = mark->number;
	shard->durable.map = mark->map_number;
	shard->durable.log = mark->last_log;
	shard->durable.tail = mark->log_tail;
	shard->durable.generation = work->generation;
	LWLockRelease(&shard->lock);

	/*
	 * a backup of a standby waits for no checkpoint, and may just have begun; older marks are
	 * removed first
	 */
	kv_backups_look();
	if (before.valid && pg_atomic_read_u32(&store->obsolete.files) == 0 && !kv_backups_run())
		release_previous(store, work->shard_id, &before.files);
	else
		kv_files_want_tidy(store);
}

/* ---- shards that need no file ---- */

/*
 * Has the open buffer all of its values itself, and as they were put?  The kernel may have failed
 * to write pages of the buffer file, and have dropped them.  What writes the buffer reports that.
 */
static bool
has_all_values(const KvStoreKey *key, int i)
{
	const KvWriteBuffer *buffer = &kv_buffers[i];
	const char *entries = kv_buffer_entries(i);
	const KvLogEntry *entry;

	for (uint32 at = 0; at < buffer->entry_used; at += KV_LOG_ENTRY_SIZE(entry->keylen))
	{
		KvAddress	address;
		KvVersion	version;

		entry = (const KvLogEntry *) (entries + at);
		if (entry->keylen > KV_MAX_KEY ||
			at + KV_LOG_ENTRY_SIZE(entry->keylen) > buffer->entry_used ||
			entry->crc != kv_log_entry_crc(entry, buffer->sequence))
			return false;
		address = KV_LOCATION_ADDRESS(entry->location);
		version = kv_entry_version(entry);
		if (entry->len > 0 &&
			(address < buffer->base || address + entry->len > buffer->base + buffer->value_used ||
			 !kv_value_matches(key, kv_entry_key(entry),
							   kv_buffer_values(i) + (address - buffer->base), &version)))
			return false;
	}
	return true;
}

/* A shard of which something is carried. */
typedef struct KvCarrying
{
	uint32		shard_id;
	uint64		sequence;		/* of its open buffer */
	uint32		nentries;
} KvCarrying;

/* Take what the shard's open buffer has, if it is little and all that is new.  False: it is not. */
static bool
take_carried(KvStore *store, uint32 shard_id, KvCarrying *one, KvEdit *edit)
{
	KvShard    *shard = kv_shard(store, shard_id);
	const KvWriteBuffer *buffer;
	bool		takes;

	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	buffer = shard->buffers.open >= 0 ? &kv_buffers[shard->buffers.open] : NULL;
	takes = buffer != NULL && buffer->nentries > 0 && !shard->durable.wanted &&
		shard->place.bounds_since != KV_NOT_IN_MAP &&
		!is_clean(shard) && files_are_clean(shard) &&
		buffer->entry_used + buffer->value_used <= (Size) most_carried * 1024 &&
		has_all_values(&store->key, shard->buffers.open);
	if (takes)
	{
		KvCarried	carried = {
			.number = shard->durable.number,
			.map_number = shard->durable.map,
			.incarnation = kv_buffer_header(shard->buffers.open)->incarnation,
			.base = buffer->base,
			.entry_bytes = buffer->entry_used,
			.value_bytes = buffer->value_used,
			.entries = kv_buffer_entries(shard->buffers.open),
			.values = kv_buffer_values(shard->buffers.open)
		};

		*edit = kv_edit_of_carried(shard_id, &carried);
		*one = (KvCarrying) {shard_id, buffer->sequence, buffer->nentries};
	}
	LWLockRelease(&shard->lock);
	return takes;
}

/* Append what was taken, and record that. */
static void
append_carried(KvStore *store, KvCarrying *carrying, KvEdit *edits, int n, uint32 round,
			   KvCheckpointerStats *stats)
{
	if (n == 0)
		return;
	kv_wal_flush();
	kv_version_log_append(store, edits, n, true);
	for (int i = 0; i < n; i++)
	{
		KvShard    *shard = kv_shard(store, carrying[i].shard_id);

		LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
		shard->durable.carried_sequence = carrying[i].sequence;
		shard->durable.carried = carrying[i].nentries;
		shard->durable.carried_round = round;
		LWLockRelease(&shard->lock);
		stats->bytes += edits[i].len;
		pfree(unconstify(char *, edits[i].body));
	}
	stats->shards += n;
}

void
kv_shards_carry(KvStore *store, uint32 round, KvCheckpointerStats *stats)
{
	KvCarrying *carrying;
	KvEdit	   *edits;
	int			n = 0;
	Size		bytes = 0;

	/* while a backup runs the log is not rewritten, and grows by what is carried */
	if (store->shape.wal != KV_WAL_FULL ||
		store->versions.end > 2 * store->versions.least + KV_CARRIED_LOG)
		return;
	carrying = palloc(KV_CARRIED_SHARDS * sizeof(KvCarrying));
	edits = palloc(KV_CARRIED_SHARDS * sizeof(KvEdit));
	kv_each_shard(store, i)
	{
		if (!take_carried(store, i, &carrying[n], &edits[n]))
			continue;
		bytes += edits[n++].len;
		if (n < KV_CARRIED_SHARDS && bytes < KV_CARRIED_BATCH)
			continue;
		append_carried(store, carrying, edits, n, round, stats);
		n = bytes = 0;
		kv_interrupts();
	}
	append_carried(store, carrying, edits, n, round, stats);
	KV_STOP_POINT("mark_carried");
	pfree(edits);
	pfree(carrying);
}

/* ---- all steps ---- */

void
kv_shards_mark(KvStore *store, const uint32 *shards, int n, uint64 covers,
			   KvCheckpointerStats *stats)
{
	KvMarkWork *work = palloc(n * sizeof(KvMarkWork));
	List	   *to_sync = NIL;
	int			nwork = 0;

	for (int i = 0; i < n; i++)
	{
		KvMarkWork *one = &work[nwork];

		one->shard_id = shards[i];
		if (capture(store, one))
			nwork++;
	}
	if (nwork > 0)
	{
		KV_STOP_POINT("mark_captured");
		for (int i = 0; i < nwork; i++)
		{
			kv_shard_drain(store, work[i].shard_id, work[i].mark.last_log, work[i].sequence);
			files_to_sync(store, &work[i], &to_sync, stats);
		}
		kv_io_require_write_back(KV_BUFFER_FILE_PATH);
		sync_files(store, to_sync);
		KV_STOP_POINT("mark_synced");
		append_marks(store, work, nwork, covers);
		KV_STOP_POINT("mark_written");
		for (int i = 0; i < nwork; i++)
		{
			kv_values_synced(store, work[i].shard_id, work[i].unsynced, work[i].nunsynced);
			install_mark(store, &work[i]);
			pfree(work[i].unsynced);
			pfree(work[i].mark.listed.value_files);
		}
		stats->shards += nwork;
	}
	pfree(work);
	(void) kv_files_tidy(store);
	kv_obsolete_release(store);
}
