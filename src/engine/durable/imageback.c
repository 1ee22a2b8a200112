/*
 * imageback.c
 *		Which image of a shard counts, and going back to it.
 *
 * A shard of a store whose versions are in the WAL begins at its newest image whenever its
 * store is opened for the first time since the start (restart/trust.c).  The image was synced
 * with all files that it names; nothing else in the directory is read.  Newer runs and logs are
 * removed, the last log is cut where the image says that it ended, and the manifest is the
 * image's.  Redo writes again what was there.  Going back is idempotent, so after an
 * interruption it is simply repeated.
 *
 * A shard without an image is empty; imaged.c says whether one is missing.  Nothing is removed
 * before all files that the image names have been found.
 *
 * At level 'none' logs and runs after the image may hold all data.  After a start that cannot
 * trust them a shard is set back unverified: its newest image is the manifest, marked SALVAGE.
 * The logs that follow stay, and recovery keeps the valid part of them.
 *
 * A copy made by a backup may have several images, and parts of files that newer ones name.
 * The complete one is the newest that covers no more than the redo pointer of the backup's
 * label.  If there is none, and the backup was taken of a primary, whose checkpoint had then
 * just been made, the shard was empty.
 *
 * A standby, and the source of pg_rewind, may have been ahead.  Then the oldest image is newer
 * than the start of the backup, which is as good, unless it is the shard's first, and was made
 * during the backup: then files of it may be missing.  While pg_rewind runs files are removed,
 * and shards of before a split with them: there each image that existed must be complete.
 */
#include "postgres.h"

#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/types.h"
#include "engine/durable/durable.h"
#include "engine/format/format.h"
#include "engine/io/io.h"
#include "engine/shard/shard.h"
#include "engine/buffer/buffer.h"
#include "engine/value/value.h"

/* ---- the files of an image ---- */

/* ERROR unless all files that the image names exist.  copied: by a backup. */
static void
require_files(const KvStoreKey *key, uint32 shard_id, const KvImage *image, bool copied)
{
	const KvShardFiles *files = &image->manifest.files;
	uint32		runs[KV_MAX_UNFROZEN + 1];
	int			nruns = kv_files_runs(files, runs);
	struct stat info;

	for (int i = 0; i < nruns; i++)
	{
		const char *path = kv_path_run(key, shard_id, runs[i]);

		if (access(path, F_OK) != 0)
			kv_io_raise_missing(path);
	}
	for (uint32 log = files->first_log; log <= image->last_log; log++)
	{
		const char *path = kv_path_log(key, shard_id, log);
		bool		last = log == image->last_log;

		if (last && image->log_tail == sizeof(KvLogHeader))
			break;				/* need not exist */
		if (stat(path, &info) != 0)
			kv_io_raise_missing(path);
		if (last && info.st_size < image->log_tail)
			kv_io_report_short(ERROR, path, image->log_tail);
	}
	for (int i = 0; i < image->manifest.nvalue_files; i++)
	{
		const KvValueFile *value_file = &image->manifest.value_files[i];
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

/* Do all files that the image names exist? */
static bool
has_files(const KvStoreKey *key, uint32 shard_id, const KvImage *image)
{
	MemoryContext context = CurrentMemoryContext;
	volatile bool complete = false;

	PG_TRY();
	{
		require_files(key, shard_id, image, false);
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

/* Make the image of a shard that has none. */
static void
make_empty(KvImage *image)
{
	memset(image, 0, sizeof(*image));
	image->manifest.files.next_run = image->manifest.files.first_log = image->last_log = 1;
	image->log_tail = sizeof(KvLogHeader);
}

/*
 * Remove the shard's files that the image does not name, except logs that follow it if those
 * stay. Numbers of removed runs are not used again.
 */
static void
remove_others(const KvStoreKey *key, KvImage *image, const KvFoundFile *files, int n,
			  bool logs_stay)
{
	char	   *directory = pstrdup(kv_path_store(key));
	KvShardFiles *named = &image->manifest.files;

	for (int i = 0; i < n; i++)
	{
		const KvFoundFile *file = &files[i];
		char		path[MAXPGPATH];
		bool		stays;

		switch (file->kind)
		{
			case KV_FILE_MANIFEST:
				stays = true;
				break;
			case KV_FILE_IMAGE:
				stays = file->number == image->number;
				break;
			case KV_FILE_RUN:
				stays = kv_files_name_run(named, file->number);
				named->next_run = Max(named->next_run, file->number + 1);
				break;
			case KV_FILE_LOG:
				stays = file->number >= named->first_log &&
					(logs_stay || file->number <= image->last_log);
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

/* Make this the shard's manifest, unless it is already. */
static void
put_manifest(const KvStoreKey *key, uint32 shard_id, KvManifest *manifest)
{
	Size		present_len;
	char       *present = kv_io_slurp(kv_path_manifest(key, shard_id), &present_len);
	Size		len;
	char       *bytes = kv_manifest_bytes(key, shard_id, manifest, &len);

	if (present == NULL || len != present_len || memcmp(present, bytes, len) != 0)
		kv_manifest_write(key, shard_id, manifest);
	if (present != NULL)
		pfree(present);
	pfree(bytes);
}

/* All that was ever written to the open value file counts as used. */
static void
use_all_written(const KvStore *store, KvManifest *manifest)
{
	for (int i = 0; i < manifest->nvalue_files; i++)
	{
		KvValueFile *value_file = &manifest->value_files[i];
		File		file;

		if (manifest->open_address == 0 || value_file->address != manifest->open_address)
			continue;
		file = kv_value_file(&store->key, store->cache_id, kv_file_of(value_file->address), 0);
		value_file->used = TYPEALIGN(KV_BLOCK, kv_io_data_end(file, value_file->used));
	}
}

/* ---- going back ---- */

/*
 * The shard's newest image, or that of an empty one; false: the shard was never used.
 * had_image: the store's file "imaged" says that there is one.
 */
static bool
find_image(const KvStoreKey *key, uint32 shard_id, const KvFoundFile *files, int n,
		   bool had_image, KvImage *image)
{
	if (kv_image_read_newest(key, shard_id, files, n, ERROR, image))
		return true;
	if (had_image)
		kv_io_raise_missing(psprintf("%s/%05x.*.image", kv_path_store(key), shard_id));
	if (n == 0)
		return false;
	make_empty(image);
	return true;
}

bool
kv_shard_set_back(const KvStore *store, uint32 shard_id, const KvFoundFile *files, int n,
				  bool had_image, KvManifest *manifest, uint32 *last_log, uint64 *log_end)
{
	const KvStoreKey *key = &store->key;
	KvImage image;
	struct stat info;

	if (!find_image(key, shard_id, files, n, had_image, &image))
		return false;
	require_files(key, shard_id, &image, false);
	remove_others(key, &image, files, n, false);
	if (image.log_tail == sizeof(KvLogHeader))
		kv_log_make_empty(key, shard_id, image.last_log);
	else if (stat(kv_path_log(key, shard_id, image.last_log), &info) == 0 &&
			 info.st_size > image.log_tail)
		kv_io_cut(kv_path_log(key, shard_id, image.last_log), image.log_tail);

	/* redo must not overwrite values that only the WAL names */
	if (store->shape.wal == KV_WAL_KEYS)
		use_all_written(store, &image.manifest);
	put_manifest(key, shard_id, &image.manifest);
	*manifest = image.manifest;
	*last_log = image.last_log;
	*log_end = image.log_tail;
	return true;
}

/* The manifest of a shard, if it exists and is valid: after a power loss it may not be. */
static bool
read_noted(const KvStoreKey *key, uint32 shard_id, const KvFoundFile *files, int n,
		   KvManifest *manifest)
{
	for (int i = 0; i < n; i++)
	{
		const char *path = kv_path_manifest(key, shard_id);
		char	   *bytes;
		Size		len;

		if (files[i].kind != KV_FILE_MANIFEST || (bytes = kv_io_slurp(path, &len)) == NULL)
			continue;
		return kv_manifest_parse(key, shard_id, path, bytes, len, manifest) == NULL;
	}
	return false;
}

void
kv_shard_set_unverified(const KvStore *store, uint32 shard_id, const KvFoundFile *files, int n,
						bool had_image, uint32 lost)
{
	const KvStoreKey *key = &store->key;
	KvImage image;
	KvManifest	noted;

	lost += kv_buffers_lost(key, shard_id);

	/* an interrupted start has counted more, and may have removed them */
	if (read_noted(key, shard_id, files, n, &noted) && (noted.files.flags & KV_MANIFEST_SALVAGE))
		lost = Max(lost, noted.files.lost);
	if (!find_image(key, shard_id, files, n, had_image, &image))
	{
		if (lost == 0)
			return;				/* never used */
		make_empty(&image);
	}
	require_files(key, shard_id, &image, false);
	remove_others(key, &image, files, n, true);
	image.manifest.files.flags |= KV_MANIFEST_SALVAGE;
	image.manifest.files.lost = lost;
	kv_manifest_write(key, shard_id, &image.manifest);
}

/* The image to which a copy made by a backup can be set back; false: there is none. */
static bool
choose(const KvStoreKey *key, uint32 shard_id, const KvFoundFile *files, int n,
	   const KvBackupLabel *label, KvImage *image)
{
	uint64		redo = label->redo;
	bool		found = false;

	for (int i = 0; i < n; i++)
	{
		KvImage one;

		if (files[i].kind != KV_FILE_IMAGE ||
			!kv_image_read(key, shard_id, files[i].number, ERROR, &one))
			continue;
		if (!found ||
			(one.covers <= redo ? image->covers > redo || one.number > image->number :
			 image->covers > redo && one.number < image->number))
			*image = one;
		found = true;
	}
	if (!found || image->covers <= redo)
		return found;
	if (label->of_primary)
		return false;
	return image->number > 1 || label->rewound || has_files(key, shard_id, image);
}

void
kv_shard_choose_image(const KvStore *store, uint32 shard_id, const KvFoundFile *files, int n,
					  const KvBackupLabel *label)
{
	KvImage image;
	bool		found = choose(&store->key, shard_id, files, n, label, &image);

	if (found)
		require_files(&store->key, shard_id, &image, !label->rewound);
	for (int i = 0; i < n; i++)
	{
		if (files[i].kind == KV_FILE_IMAGE && !(found && files[i].number == image.number))
			(void) kv_io_unlink(kv_path_image(&store->key, shard_id, files[i].number));
	}
}
