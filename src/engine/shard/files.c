/*
 * files.c
 *		Logs, runs and temporary files of shards: which are needed, by base
 *		backups too, and removal of the others.
 *
 * A flush and a new mark release what they replace, by name (kv_file_release).  All else that may
 * be obsolete is found in the directory: files = the directory minus what the shards and their
 * marks name, minus what may be in use (kv_files_tidy).
 */
#include "postgres.h"

#include "miscadmin.h"
#include "replication/walsender.h"
#include "replication/walsender_private.h"
#include "storage/procarray.h"
#include "storage/spin.h"

#include "engine/engine.h"
#include "engine/format/format.h"
#include "engine/format/path.h"
#include "engine/index/run.h"
#include "engine/io/fault.h"
#include "engine/io/name.h"
#include "engine/shard/map.h"
#include "engine/shard/shard.h"

int
kv_files_runs(const KvShardFiles *files, uint32 *runs)
{
	memcpy(runs, files->unfrozen, files->nunfrozen * sizeof(uint32));
	runs[files->nunfrozen] = files->base_run;
	return files->nunfrozen + (files->base_run != 0);
}

bool
kv_files_name_run(const KvShardFiles *files, uint32 number)
{
	for (int i = 0; i < files->nunfrozen; i++)
	{
		if (files->unfrozen[i] == number)
			return true;
	}
	return files->base_run == number;
}

/* Does the shard or a mark need this run?  Lock held. */
static bool
needs_run(const KvShard *shard, uint32 number)
{
	bool		needs = kv_files_name_run(&shard->files, number);

	for (int i = 0; i < KV_MARKS; i++)
		needs |= shard->durable.marks[i].valid &&
			kv_files_name_run(&shard->durable.marks[i].files, number);
	return needs;
}

/*
 * Does the shard or a mark need this log?  At wal level 'none' a mark needs later logs as well:
 * after a power loss only they have their entries.  Lock held.
 */
static bool
needs_log(const KvStore *store, const KvShard *shard, uint32 number)
{
	bool		any = false;

	if (number >= shard->files.first_log)
		return true;
	for (int i = 0; i < KV_MARKS; i++)
	{
		const KvMarkFiles *mark = &shard->durable.marks[i];

		any |= mark->valid;
		if (mark->valid && number >= mark->files.first_log &&
			(number <= mark->last_log || store->shape.wal == KV_WAL_NONE))
			return true;
	}
	return !any && store->shape.wal == KV_WAL_NONE;
}

/*
 * May a process be about to name a file, or still use it?  A flush names a new run, and a
 * compaction job uses its own.  The lock is held.
 */
static bool
is_in_use(const KvStore *store, const KvShard *shard, const KvFoundFile *file)
{
	if (pg_atomic_read_u32(&unconstify(KvStore *, store)->state) != KV_STORE_OPEN)
		return false;
	return file->kind == KV_FILE_TEMPORARY ||
		(file->kind == KV_FILE_RUN &&
		 (!kv_role_is_free(shard, KV_ROLE_FLUSH | KV_ROLE_COMPACT) ||
		  file->number >= shard->durable.marks[KV_MARK_LAST].files.next_run));
}

/* Must a file of a shard in the map stay?  A run that may be in use is looked at again later. */
static bool
must_stay(KvStore *store, const KvFoundFile *file)
{
	KvShard    *shard = kv_shard(store, file->shard);
	bool		stays;
	bool		in_use;

	LWLockAcquire(&shard->lock, LW_SHARED);
	stays = file->kind == KV_FILE_LOG ? needs_log(store, shard, file->number) :
		file->kind == KV_FILE_RUN && needs_run(shard, file->number);
	in_use = !stays && is_in_use(store, shard, file);
	LWLockRelease(&shard->lock);
	if (in_use && file->kind == KV_FILE_RUN)
		kv_files_want_tidy(store);
	return stays || in_use;
}

/* While a base backup runs no file is removed. */
void
kv_file_release(KvStore *store, uint32 shard_id, KvFileKind kind, uint32 number)
{
	KvShard    *shard = kv_shard(store, shard_id);
	bool		needed;

	LWLockAcquire(&shard->lock, LW_SHARED);
	needed = kind == KV_FILE_RUN ? needs_run(shard, number) : needs_log(store, shard, number);
	LWLockRelease(&shard->lock);
	if (kv_backups_run())
		kv_files_want_tidy(store);
	else if (!needed)
	{
		(void) kv_io_unlink(kind == KV_FILE_RUN ? kv_path_run(&store->key, shard_id, number) :
							kv_path_log(&store->key, shard_id, number));
		if (kind == KV_FILE_RUN)
			kv_run_say_gone();
	}
}

void
kv_files_want_tidy(KvStore *store)
{
	pg_atomic_write_u32(&store->obsolete.files, 1);
}

bool
kv_files_tidy(KvStore *store)
{
	char	   *directory;
	bool		others_gone = true;
	KvFound		found;

	if (pg_atomic_read_u32(&store->obsolete.files) == 0)
		return true;
	kv_backups_look();
	if (kv_backups_run())
		return false;
	(void) pg_atomic_exchange_u32(&store->obsolete.files, 0);
	directory = pstrdup(kv_path_store(&store->key));
	kv_store_list_files(&store->key, &found);
	for (int i = 0; i < found.n; i++)
	{
		const KvFoundFile *file = &found.files[i];
		bool		in_map = kv_shard_from(store, file->shard) == file->shard;
		char		path[MAXPGPATH];

		/* a change of the map is making files of new shards, or previous ones may count again */
		if (file->kind == KV_FILE_VALUES ||
			(in_map ? must_stay(store, file) :
			 pg_atomic_read_u32(&store->map.state) != KV_MAP_MARKED))
			continue;
		snprintf(path, sizeof(path), "%s/%s", directory, file->name);
		if (in_map)
			(void) kv_io_unlink(path);
		else
			others_gone &= kv_io_gone(path);
		if (file->kind == KV_FILE_RUN)
			kv_run_say_gone();
	}
	pfree(found.files);
	pfree(directory);
	return others_gone;
}

/* ---- base backups ---- */

#define KV_BACKUPS_RUN	1

KvBackups  *kv_backups = NULL;

static bool noted = false;

void
kv_backups_init(void)
{
	SpinLockInit(&kv_backups->mutex);
	pg_atomic_init_u32(&kv_backups->run, 0);
}

void
kv_engine_note_backup(bool running)
{
	if (running == noted || !kv_engine_ready())
		return;
	SpinLockAcquire(&kv_backups->mutex);
	for (int i = 0; i < KV_MAX_BACKUPS; i++)
	{
		int		   *pid = &kv_backups->pids[i];

		if (*pid == (running ? 0 : MyProcPid))
		{
			*pid = running ? MyProcPid : 0;
			noted = running;
			break;
		}
	}
	SpinLockRelease(&kv_backups->mutex);
	if (!running)
		noted = false;
	else if (!noted)
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("cannot begin more than %d backups at a time while kvfdw is loaded",
						KV_MAX_BACKUPS)));
}

/*
 * Is a base backup being taken?  WAL senders show one.  A session that calls pg_backup_start is
 * noted before it requests its checkpoint.
 */
static bool
backup_runs(void)
{
	bool		runs = false;

	for (int i = 0; i < KV_MAX_BACKUPS; i++)
	{
		int			pid = kv_backups->pids[i];

		if (pid == 0)
			continue;
		if (BackendPidGetProc(pid) != NULL)
		{
			runs = true;
			continue;
		}

		/* another session may have this entry already */
		SpinLockAcquire(&kv_backups->mutex);
		if (kv_backups->pids[i] == pid)
			kv_backups->pids[i] = 0;
		SpinLockRelease(&kv_backups->mutex);
	}
	for (int i = 0; i < max_wal_senders && !runs; i++)
	{
		WalSnd	   *sender = &WalSndCtl->walsnds[i];

		SpinLockAcquire(&sender->mutex);
		runs = sender->pid != 0 && sender->state == WALSNDSTATE_BACKUP;
		SpinLockRelease(&sender->mutex);
	}
	return runs;
}

/*
 * A process that sees a backup always says so, with a new counter value.  A process that sees none
 * clears the flag only if the counter is unchanged: a backup may have begun after the check.
 */
void
kv_backups_look(void)
{
	uint32		before = pg_atomic_read_u32(&kv_backups->run);
	bool		runs = backup_runs();

	KV_STOP_POINT("backups_looked");
	if (!runs)
		(void) pg_atomic_compare_exchange_u32(&kv_backups->run, &before, before & ~KV_BACKUPS_RUN);
	else
	{
		while (!pg_atomic_compare_exchange_u32(&kv_backups->run, &before,
											   (before + 2) | KV_BACKUPS_RUN))
			;
	}
}

bool
kv_backups_run(void)
{
	if (pg_atomic_read_u32(&kv_backups->run) & KV_BACKUPS_RUN)
		return true;
	for (int i = 0; i < KV_MAX_BACKUPS; i++)
	{
		if (kv_backups->pids[i] != 0)
			return true;
	}
	return false;
}
