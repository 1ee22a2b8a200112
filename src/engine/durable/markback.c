/*
 * markback.c
 *		Which mark of a shard counts, and going back to it.
 *
 * A shard of a store whose versions are in the WAL begins at its newest mark whenever its
 * store is opened for the first time since the start (restart/trust.c).  The mark was synced
 * with all files that it names; nothing else in the directory is read.  Newer runs and logs are
 * removed, and the last log is cut where the mark says that it ended.  Redo writes again what
 * was there.  Going back is idempotent, so after an interruption it is simply repeated.
 *
 * A shard whose bounds never changed and that has no mark is empty.  Nothing is removed before
 * all files that the mark names have been found.
 *
 * At level 'none' logs and runs after the mark may hold all data.  After a start that cannot
 * trust them a shard is set back unverified: its files are those of its newest mark, marked
 * SALVAGE.  The logs that follow stay, and recovery keeps the valid part of them.
 *
 * The version log of a backup's copy may have several marks, and the copy parts of the files that
 * newer ones name.
 * The complete one is the newest that covers no more than the redo pointer of the backup's
 * label.  If there is none, and the backup was taken of a primary, whose checkpoint had then
 * just been made, the shard was empty.
 *
 * A standby, and the source of pg_rewind, may have been ahead, and may have removed files of that
 * mark before the copy was noticed.  Then the oldest complete mark that is newer counts, which
 * is as good.  If there is none, the shard was empty, provided that its first mark was made during
 * the backup.
 * While pg_rewind runs files are removed, and shards of before a split with them.  There each mark
 * must be complete, unless a mark number 0 precedes it: it says that the shard was empty while a
 * backup kept all files (mark.c).
 */
#include "postgres.h"

#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/types.h"
#include "engine/durable/durable.h"
#include "engine/format/format.h"
#include "engine/format/path.h"
#include "engine/io/io.h"
#include "engine/io/name.h"
#include "engine/shard/shard.h"
#include "engine/buffer/buffer.h"
#include "engine/value/value.h"

/* ---- the files of a mark ---- */

/* ERROR unless all files that the mark names exist.  copied: by a backup. */
static void
require_files(const KvStoreKey *key, uint32 shard_id, const KvMark *mark, bool copied)
{
	const KvShardFiles *files = &mark->listed.files;
	uint32		runs[KV_MAX_UNFROZEN + 1];
	int			nruns = kv_files_runs(files, runs);
	struct stat info;

	for (int i = 0; i < nruns; i++)
	{
		const char *path = kv_path_run(key, shard_id, runs[i]);

		if (access(path, F_OK) != 0)
			kv_io_raise_missing(path);
	}
	for (uint32 log = files->first_log; log <= mark->last_log; log++)
	{
		const char *path = kv_path_log(key, shard_id, log);
		bool		last = log == mark->last_log;

		if (last && mark->log_tail == sizeof(KvLogHeader))
			break;				/* need not exist */
		if (stat(path, &info) != 0)
			kv_io_raise_missing(path);
		if (last && info.st_size < mark->log_tail)
			kv_io_report_short(ERROR, path, mark->log_tail);
	}
	for (int i = 0; i < mark->listed.nvalue_files; i++)
	{
		const KvValueFile *value_file = &mark->listed.value_files[i];
		const char *path = kv_path_value(key, kv_file_of(value_file->address));
		bool		there = stat(path, &info) == 0;

		if (there && info.st_size >= value_file->used)
			continue;
		if (there)
			kv_io_report_short(ERROR, path, value_file->used);
		kv_space_require_named(key, path, copied);
		kv_io_raise_missing(path);
	}
}

/* Do all files that the mark names exist? */
static bool
has_files(const KvStoreKey *key, uint32 shard_id, const KvMark *mark)
{
	MemoryContext context = CurrentMemoryContext;
	volatile bool complete = false;

	PG_TRY();
	{
		require_files(key, shard_id, mark, false);
		complete = true;
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		FlushErrorState();
	}
	PG_END_TRY();
	return complete;
}

void
kv_mark_of_empty(KvMark *mark)
{
	memset(mark, 0, sizeof(*mark));
	mark->listed.files.next_run = mark->listed.files.first_log = mark->last_log = 1;
	mark->log_tail = sizeof(KvLogHeader);
}

/*
 * Remove the shard's files that the mark does not name, except logs that follow it if those
 * stay. Numbers of removed runs are not used again.
 */
static void
remove_others(const KvStoreKey *key, KvMark *mark, const KvFoundFile *files, int n,
			  bool logs_stay)
{
	char	   *directory = pstrdup(kv_path_store(key));
	KvShardFiles *named = &mark->listed.files;

	for (int i = 0; i < n; i++)
	{
		const KvFoundFile *file = &files[i];
		char		path[MAXPGPATH];
		bool		stays;

		switch (file->kind)
		{
			case KV_FILE_RUN:
				stays = kv_files_name_run(named, file->number);
				named->next_run = Max(named->next_run, file->number + 1);
				break;
			case KV_FILE_LOG:
				stays = file->number >= named->first_log &&
					(logs_stay || file->number <= mark->last_log);
				break;
			default:
				stays = false;
				break;
		}
		snprintf(path, sizeof(path), "%s/%s", directory, file->name);
		if (!stays)
			(void) kv_io_unlink(path);
	}
	pfree(directory);
}

void
kv_shard_remove_others(const KvStore *store, uint32 shard_id, KvMark *mark,
					   const KvFoundFile *files, int n)
{
	remove_others(&store->key, mark, files, n, true);
}

/* All that was ever written to the open value file counts as used. */
static void
use_all_written(const KvStore *store, KvFileList *listed)
{
	for (int i = 0; i < listed->nvalue_files; i++)
	{
		KvValueFile *value_file = &listed->value_files[i];
		File		file;

		if (listed->open_address == 0 || value_file->address != listed->open_address)
			continue;
		file = kv_value_file(&store->key, store->cache_id, kv_file_of(value_file->address), 0);
		value_file->used = TYPEALIGN(KV_BLOCK, kv_io_data_end(file, value_file->used));
	}
}

/* ---- going back ---- */

/* The shard's newest mark, or that of an empty one; false: the shard was never used. */
static bool
find_mark(const KvVersions *versions, uint32 shard_id, uint32 since, int nfiles, KvMark *mark)
{
	if (kv_versions_mark(versions, shard_id, since, mark))
		return true;
	if (since > 0)
		kv_versions_raise_damaged(&versions->key, versions->number,
								  psprintf("It has no mark of shard %u.", shard_id));
	if (nfiles == 0)
		return false;
	kv_mark_of_empty(mark);
	return true;
}

bool
kv_shard_set_back(const KvStore *store, const KvVersions *versions, uint32 shard_id, uint32 since,
				  const KvFoundFile *files, int n, KvMark *mark)
{
	const KvStoreKey *key = &store->key;
	struct stat info;

	if (!find_mark(versions, shard_id, since, n, mark))
		return false;
	require_files(key, shard_id, mark, false);
	remove_others(key, mark, files, n, false);
	if (mark->log_tail == sizeof(KvLogHeader))
		kv_log_make_empty(key, shard_id, mark->last_log);
	else if (stat(kv_path_log(key, shard_id, mark->last_log), &info) == 0 &&
			 info.st_size > mark->log_tail)
		kv_io_cut(kv_path_log(key, shard_id, mark->last_log), mark->log_tail);

	/* redo must not overwrite values that only the WAL names */
	if (store->shape.wal == KV_WAL_KEYS)
		use_all_written(store, &mark->listed);
	return true;
}

bool
kv_shard_set_unverified(const KvStore *store, const KvVersions *versions, uint32 shard_id,
						uint32 since, const KvFoundFile *files, int n, uint32 lost,
						KvMark *mark)
{
	KvShardFiles *named = &mark->listed.files;
	KvFileList	noted;

	lost += kv_buffers_lost(&store->key, shard_id);

	/* an interrupted start has counted more, and may have removed them */
	if (kv_versions_files(versions, shard_id, &noted) && (noted.files.flags & KV_FILES_SALVAGE))
		lost = Max(lost, noted.files.lost);
	if (!find_mark(versions, shard_id, since, n, mark))
	{
		if (lost == 0)
			return false;
		kv_mark_of_empty(mark);
	}
	require_files(&store->key, shard_id, mark, false);
	for (int i = 0; i < n; i++)
	{
		/* numbers of runs that will be removed are not used again */
		if (files[i].kind == KV_FILE_RUN)
			named->next_run = Max(named->next_run, files[i].number + 1);
	}
	named->flags |= KV_FILES_SALVAGE;
	named->lost = lost;
	return true;
}

bool
kv_shard_choose_mark(const KvStore *store, const KvVersions *versions, uint32 shard_id,
					 const KvBackupLabel *label, KvMark *mark)
{
	KvMark		one;
	bool		required = false;	/* the oldest mark so far must be complete */
	bool		complete = false;	/* *mark is newer than the start, and complete */

	for (int newer = 0; kv_versions_mark_before(versions, shard_id, newer, &one); newer++)
	{
		if (one.number == 0)
			return complete || (required && one.covers == 0);
		if (one.covers <= label->redo)
		{
			/* while no backup was noticed its files may have been removed */
			if (!complete || label->of_primary || has_files(&store->key, shard_id, &one))
				*mark = one;
			return true;
		}
		if (label->of_primary)
			continue;
		required = one.number > 1 || label->rewound;
		if (has_files(&store->key, shard_id, &one) || !complete)
		{
			complete = has_files(&store->key, shard_id, &one);
			*mark = one;
		}
	}
	return complete || required;
}

void
kv_shard_require_mark(const KvStore *store, const KvVersions *versions, uint32 shard_id,
					  uint32 since, bool copied)
{
	KvMark		mark;

	if (kv_versions_mark(versions, shard_id, since, &mark))
		require_files(&store->key, shard_id, &mark, copied);
}
