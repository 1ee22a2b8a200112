/*
 * append.c
 *		Appends to the version log of a store in use.
 */
#include "postgres.h"

#include "engine/base/types.h"
#include "engine/format/format.h"
#include "engine/format/path.h"
#include "engine/io/fault.h"
#include "engine/io/io.h"
#include "engine/io/name.h"
#include "engine/shard/map.h"
#include "engine/shard/shard.h"
#include "engine/version/internal.h"
#include "engine/version/version.h"

/* A log is rewritten when edits that do not count take more than those that do, and this. */
#define KV_VERSIONS_SLACK	(256 * 1024)

/* The log has these bytes now, all of which count and are durable. */
static void
set_log(KvVersionLog *log, uint32 number, uint64 len)
{
	log->number = number;
	log->end = log->synced = log->least = len;
	log->appends = 1;
}

KvVersions *
kv_version_log_open(KvStore *store)
{
	KvVersionLog *log = &store->versions;
	bool		none = store->shape.wal == KV_WAL_NONE;
	KvEdit	   *edits;
	int			n;
	KvVersions *versions = kv_versions_read(&store->key, store->shape.id, 0, false, none, 0);

	edits = kv_versions_all_live(versions, none, &n);
	set_log(log, versions->number, versions->end);
	log->appends = versions->appends;
	log->synced = versions->synced;
	log->least = KV_VERSIONS_HEAD + kv_edit_size(edits, n);
	log->removed = false;
	if (versions->torn)
		kv_version_log_replace(store, versions, edits, n);
	pfree(edits);
	return versions;
}

KvVersions *
kv_version_log_read(KvStore *store)
{
	uint32		number;
	uint64		end;

	LWLockAcquire(&store->versions.lock, LW_SHARED);
	number = store->versions.number;
	end = store->versions.end;
	LWLockRelease(&store->versions.lock);
	return kv_versions_read(&store->key, store->shape.id, number, false, false, end);
}

void
kv_version_log_replace(KvStore *store, const KvVersions *versions, const KvEdit *edits, int n)
{
	uint64		len = kv_versions_replace(versions, store->shape.id, edits, n);

	set_log(&store->versions, versions->number + 1, len);
}

/* Write bytes to the log with this number; the lock is held.  0 or an errno. */
static int
write_to(const KvStore *store, uint32 number, const void *bytes, Size len, uint64 offset)
{
	File		file = kv_io_open(kv_path_versions(&store->key, number), KV_IO_FAIL_OK,
								  KV_IO_META_WRITE);
	int			err = file < 0 ? errno : 0;

	if (err == 0)
	{
		err = kv_io_try_write(file, bytes, len, offset, KV_IO_META_WRITE);
		kv_io_close(file);
	}
	return err;
}

/* Write a log's note; the lock is held.  Without it less damage is noticed, and no more. */
static void
write_note(const KvStore *store, uint32 number, uint64 synced, uint32 next)
{
	KvVersionsNote note = kv_versions_note(number, synced, next);

	(void) write_to(store, number, &note, sizeof(note), KV_VERSIONS_NOTE_AT);
}

/* What is synced, for verify_synced. */
typedef struct KvVersionsSync
{
	const char *path;
	uint32		number;
	uint64		from;
	uint64		end;
} KvVersionsSync;

/*
 * The log was synced: read what is new.  The kernel may have failed to write pages of earlier
 * appends, and have forgotten that with the file if no process had it open.  A file that is
 * missing is an ERROR, no more: its store may have been dropped, and has another place then.
 */
static void
verify_synced(int i, void *arg)
{
	const KvVersionsSync *sync = arg;
	uint64		len = sync->end - sync->from;
	char	   *bytes = MemoryContextAllocHuge(CurrentMemoryContext, Max(len, 1));
	File		file;
	int			size;

	KV_STOP_POINT("edits_synced");
	file = kv_io_open(sync->path, KV_IO_READONLY, KV_IO_META_READ);
	size = kv_io_read(file, bytes, len, sync->from, KV_IO_META_READ);
	kv_io_close(file);
	if (size != len || !kv_versions_are_edits(bytes, len, sync->from, sync->number))
	{
		kv_io_sync_failed();
		ereport(data_sync_elevel(ERROR),
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("file \"%s\" does not have what was written to it", sync->path)));
	}
	pfree(bytes);
}

/* Make the log durable up to an offset of its file with this number. */
static void
sync_log(KvStore *store, uint32 number, uint64 from, uint64 end)
{
	KvVersionLog *log = &store->versions;
	KvEdit		synced = {KV_EDIT_SYNCED, KV_NO_SHARD, 0, NULL};
	char	   *path = pstrdup(kv_path_versions(&store->key, number));
	KvVersionsSync sync = {path, number, from, end};
	char		bytes[sizeof(KvEditRecord)];

	kv_io_sync_files((const char *const *) &path, 1, verify_synced, &sync);
	pfree(path);
	LWLockAcquire(&log->lock, LW_EXCLUSIVE);
	if (log->number == number)	/* otherwise it was rewritten, which is durable */
		log->synced = Max(log->synced, end);
	kv_edit_put(bytes, &synced, 1, log->number, ++log->appends, log->end, log->synced);

	/* without it damage of the last mark would be taken for an unfinished edit; no more */
	if (write_to(store, log->number, bytes, sizeof(bytes), log->end) == 0)
		log->end += sizeof(bytes);
	write_note(store, log->number, log->synced, 0);
	LWLockRelease(&log->lock);
}

void
kv_version_log_append(KvStore *store, const KvEdit *edits, int n, bool durable)
{
	KvVersionLog *log = &store->versions;
	Size		len = kv_edit_size(edits, n);
	char	   *bytes = MemoryContextAllocHuge(CurrentMemoryContext, Max(len, 1));
	uint32		number;
	uint64		from;
	uint64		end;
	int			err;

	LWLockAcquire(&log->lock, LW_EXCLUSIVE);
	kv_edit_put(bytes, edits, n, log->number, ++log->appends, log->end, log->synced);
	err = write_to(store, log->number, bytes, len, log->end);
	if (err == 0)
		log->end += len;
	number = log->number;
	from = log->synced;
	end = log->end;
	if (end > 2 * log->least + 4 * KV_VERSIONS_SLACK)
		pg_atomic_write_u32(&kv_registry->marks_wanted, 1);		/* it is to be rewritten */
	LWLockRelease(&log->lock);
	pfree(bytes);
	if (err != 0)
		kv_io_error(ERROR, err, kv_path_versions(&store->key, number), "write");
	KV_STOP_POINT("edits_appended");
	if (!durable)
		return;
	if (log->removed)
		kv_io_sync_directory(kv_path_store(&store->key));
	log->removed = false;
	sync_log(store, number, from, end);
}

/*
 * Write the log with the next number.  After an ERROR it may have its name already.  It must not
 * have one, because appends go on into the present log.
 */
static uint64
write_next(KvStore *store, const KvEdit *edits, int n)
{
	KvVersionLog *log = &store->versions;
	volatile uint64 len = 0;

	PG_TRY();
	{
		len = kv_versions_write(&store->key, store->shape.id, log->number + 1, edits, n);
	}
	PG_CATCH();
	{
		const char *path = kv_path_versions(&store->key, log->number + 1);
		int			err = kv_io_unlink(path);

		log->removed = true;
		if (err != 0 && err != ENOENT)
			kv_io_error(PANIC, err, path, "remove");
		PG_RE_THROW();
	}
	PG_END_TRY();
	return len;
}

void
kv_version_log_look(KvStore *store)
{
	KvVersionLog *log = &store->versions;
	KvVersions *versions;
	KvEdit	   *edits;
	int			n;
	uint64		len;

	if (log->end <= 2 * log->least + KV_VERSIONS_SLACK || kv_backups_run())
		return;

	/* after a failed attempt the newest mark of a shard may not be the one that counts */
	kv_each_shard(store, i)
	{
		if (kv_shard(store, i)->durable.marks[KV_MARK_NEXT].valid)
			return;
	}
	kv_backups_look();
	if (kv_backups_run())
		return;

	/* an edit that was appended during this would be missing in the new log */
	LWLockAcquire(&log->lock, LW_EXCLUSIVE);
	versions = kv_versions_read(&store->key, store->shape.id, log->number, false, false, log->end);
	edits = kv_versions_all_live(versions, store->shape.wal == KV_WAL_NONE, &n);
	len = write_next(store, edits, n);
	write_note(store, log->number, log->synced, log->number + 1);
	set_log(log, log->number + 1, len);
	LWLockRelease(&log->lock);
	if (log->number > 2)
		(void) kv_io_unlink(kv_path_versions(&store->key, log->number - 2));
	kv_versions_free(versions);
	pfree(edits);
}
