/*
 * image.c
 *		Images: the state of a shard that a barrier has made durable.
 *
 * An image is a small file beside the shard's manifest: a manifest as it was at
 * one moment, and where the key logs ended then.  Images of a shard are numbered.
 * Every file that one names is on the device up to there, and stays until the
 * next image is there, so after a power loss the shard can be set back to it.
 * Between two images nothing of a shard is synced.
 *
 * Making one (kv_shard_image), with the shard's lock held only to look:
 *
 *   1. capture   seal the open slot; note runs, logs, tails.  From here on the
 *                files noted are protected (KvShard.images[KV_IMAGE_NEXT])
 *   2. drain     what the slots sealed so far hold gets to the files
 *   3. sync      value file, logs, runs that the image before did not name
 *   4. write     the image file, durably, directory included
 *   5. release   unlink the image before, and what only that named
 *
 * While base backups run nothing is released, and what is not is a leftover until
 * they have ended.  So a copy has all files of the image that was the newest when
 * its backup began.  Later ones may name files that the copy lacks.  They are
 * told apart by what they cover: the redo pointer of the barrier for which an
 * image was made, or one more if it was made for none.  The newest that covers no
 * more than the backup's redo pointer is the one.
 *
 * An image may be newer than the redo pointer from which the WAL is replayed.
 * That does no harm: a version that redo writes again lies above its former self
 * and is the same.
 *
 * One process at a time makes images: the startup process until recovery has
 * ended, the barrier worker afterwards.
 */
#include "postgres.h"

#include <sys/stat.h>
#include <unistd.h>

#include "engine/fault.h"
#include "engine/internal.h"

typedef struct KvImageFile
{
	uint32		magic;
	uint32		format_version;
	KvManifest	manifest;		/* complete, with its own CRC */
	uint32		last_log;
	uint32		pad;
	uint64		log_tail;		/* of last_log */
	uint64		covers;			/* a redo pointer; see above */
	uint32		number;
	uint32		crc;
} KvImageFile;

StaticAssertDecl(sizeof(KvImageFile) == 184, "image size");

static uint32
image_crc(const KvImageFile *image)
{
	return kv_crc(image, offsetof(KvImageFile, crc));
}

/* False if there is none, or it is not sound: that is reported at elevel. */
static bool
read_image(const KvStoreKey *key, uint32 shardno, uint32 number, int elevel,
		   KvImageFile *image)
{
	const char *path = kv_path_image(key, shardno, number);
	Size		len;
	char	   *data = kv_io_slurp(path, &len);
	bool		sound;

	if (data == NULL)
		return false;
	sound = len == sizeof(KvImageFile);
	if (sound)
		memcpy(image, data, sizeof(KvImageFile));
	pfree(data);
	sound = sound && image->magic == KV_MAGIC_IMAGE && image->crc == image_crc(image);
	if (sound && image->format_version != KV_FORMAT_VERSION)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("file \"%s\" has format version %u, this library reads version %u",
						path, image->format_version, KV_FORMAT_VERSION)));
	sound = sound && image->number == number &&
		kv_manifest_is_of(key, shardno, &image->manifest);
	if (!sound)
		ereport(elevel,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("file \"%s\" is damaged", path)));
	return sound;
}

/* The shard's newest image; false if there is none. */
static bool
read_newest(const KvStoreKey *key, uint32 shardno, const KvFoundFile *files, int n,
			int elevel, KvImageFile *image)
{
	uint32		newest = 0;

	for (int i = 0; i < n; i++)
	{
		if (files[i].kind == KV_FILE_IMAGE)
			newest = Max(newest, files[i].number);
	}
	return newest != 0 && read_image(key, shardno, newest, elevel, image);
}

static void
files_of(const KvImageFile *image, KvImageFiles *files)
{
	files->valid = true;
	files->base_run = image->manifest.base_run;
	files->nunfrozen = image->manifest.nunfrozen;
	memcpy(files->unfrozen, image->manifest.unfrozen, sizeof(files->unfrozen));
	files->next_run = image->manifest.next_run;
	files->first_log = image->manifest.first_log;
	files->last_log = image->last_log;
}

static bool
names_run(const KvImageFiles *files, uint32 number)
{
	if (!files->valid)
		return false;
	for (int i = 0; i < files->nunfrozen; i++)
	{
		if (files->unfrozen[i] == number)
			return true;
	}
	return files->base_run == number;
}

/* Does an image protect this run?  The shard's lock is held, or nobody else is there. */
bool
kv_image_names_run(const KvShard *shard, uint32 number)
{
	return kv_backups_run() || names_run(&shard->images[KV_IMAGE_LAST], number) ||
		names_run(&shard->images[KV_IMAGE_NEXT], number);
}

/*
 * … or this log?  Of a store at wal level 'none' also those that follow: what
 * is in them is all there is after a power loss.
 */
bool
kv_image_names_log(const KvStore *store, const KvShard *shard, uint32 number)
{
	bool		any = false;

	if (kv_backups_run())
		return true;
	for (int i = 0; i < KV_IMAGES; i++)
	{
		const KvImageFiles *files = &shard->images[i];

		any |= files->valid;
		if (files->valid && number >= files->first_log &&
			(number <= files->last_log || store->wal == KV_WAL_NONE))
			return true;
	}
	return !any && store->wal == KV_WAL_NONE;
}

static bool
same_runs(const KvManifest *a, const KvManifest *b)
{
	return a->base_run == b->base_run && a->nunfrozen == b->nunfrozen &&
		a->first_log == b->first_log &&
		memcmp(a->unfrozen, b->unfrozen, a->nunfrozen * sizeof(uint32)) == 0;
}

/*
 * At recovery: the newest image, and whether it is what the manifest says.  A
 * damaged one counts as none, and is soon replaced.
 */
void
kv_shard_load_image(KvStore *store, uint32 shardno, const KvFoundFile *files, int n,
					const KvManifest *manifest)
{
	KvShard    *shard = kv_shard(store, shardno);
	KvImageFile image;

	memset(shard->images, 0, sizeof(shard->images));
	shard->image_log = 0;
	shard->image_number = 0;
	shard->leftovers = false;
	if (!read_newest(&store->key, shardno, files, n, LOG, &image))
		return;
	files_of(&image, &shard->images[KV_IMAGE_LAST]);
	shard->image_number = image.number;
	shard->image_log = image.last_log;
	shard->image_tail = image.log_tail;

	/* recovery counts the generation on when it is done */
	shard->image_generation = pg_atomic_read_u32(&shard->generation) +
		(same_runs(&image.manifest, manifest) ? 1 : 0);
}

/* Has nothing happened to the shard since its newest image?  Lock held. */
static bool
is_clean(KvShard *shard)
{
	if ((shard->open_slot >= 0 && kv_slots[shard->open_slot].nentries > 0) ||
		shard->sealed_slots >= 0)
		return false;
	if (shard->image_log == 0)
		return shard->first_log == 1 && shard->log_number == 1 && shard->base_run == 0 &&
			shard->nunfrozen == 0 && shard->log_tail == sizeof(KvLogHeader);
	return shard->image_log == shard->log_number && shard->image_tail == shard->log_tail &&
		shard->image_generation == pg_atomic_read_u32(&shard->generation);
}

/*
 * Has a store that is not open more than its images: slots, or other runs or logs?
 * Read from its files alone.
 */
bool
kv_store_needs_images(KvStore *store)
{
	KvFound		found;
	int			at = 0;
	bool		needs = kv_slots_hold(&store->key);

	kv_store_list_files(&store->key, &found);
	for (int shard = 0; shard < store->nshards && !needs; shard++)
	{
		int			n = kv_found_of_shard(&found, at, shard);
		KvImageFile image = {0};
		KvManifest	manifest;
		bool		has_image = read_newest(&store->key, shard, found.files + at, n, LOG, &image);

		if (!kv_manifest_read(&store->key, shard, &manifest))
			needs = n > 0;
		else if (!has_image || !same_runs(&image.manifest, &manifest))
			needs = true;
		for (int i = at; i < at + n && !needs; i++)
		{
			struct stat info;

			needs = found.files[i].kind == KV_FILE_LOG &&
				(found.files[i].number > image.last_log ||
				 (found.files[i].number == image.last_log &&
				  (stat(kv_path_log(&store->key, shard, image.last_log), &info) != 0 ||
				   info.st_size > image.log_tail)));
		}
		at += n;
	}
	pfree(found.files);
	return needs;
}

/* Step 1.  False: there is nothing to do. */
static bool
capture(KvStore *store, uint32 shardno, KvImageFile *image, uint32 *generation,
		uint64 *sequence)
{
	KvShard    *shard = kv_shard(store, shardno);
	bool		dirty;

	memset(image, 0, sizeof(*image));
	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	dirty = !is_clean(shard);
	if (dirty)
	{
		if (shard->open_slot >= 0)
			kv_slot_seal(store, shardno);
		*sequence = pg_atomic_read_u64(&kv_shared->sequence);
		*generation = pg_atomic_read_u32(&shard->generation);
		kv_manifest_describe(shard, &image->manifest);
		image->last_log = shard->log_number;
		image->log_tail = shard->log_tail;

		/* an attempt that failed may have kept files that nobody else names */
		if (shard->images[KV_IMAGE_NEXT].valid)
			shard->leftovers = true;
		files_of(image, &shard->images[KV_IMAGE_NEXT]);
	}
	LWLockRelease(&shard->lock);
	return dirty;
}

static void
sync_one(const char *path, bool count, KvBarrierStats *stats)
{
	struct stat info;

	kv_io_sync_file(path);
	stats->files++;
	if (count && stat(path, &info) == 0)
		stats->bytes += info.st_size;
}

/* Step 3. */
static void
sync_files(KvStore *store, uint32 shardno, const KvImageFile *image, KvBarrierStats *stats)
{
	KvShard    *shard = kv_shard(store, shardno);
	const KvImageFiles *files = &shard->images[KV_IMAGE_NEXT];
	const KvStoreKey *key = &store->key;
	uint32		first = Max(files->first_log, shard->image_log);

	if (image->manifest.value_tail > 0 && !kv_fault_skips("data_sync"))
		sync_one(kv_path_value(key, image->manifest.value_file), false, stats);
	for (uint32 log = first; log <= files->last_log; log++)
	{
		/* the last one need not exist yet */
		if (log < files->last_log || image->log_tail > sizeof(KvLogHeader) ||
			access(kv_path_log(key, shardno, log), F_OK) == 0)
			sync_one(kv_path_log(key, shardno, log), true, stats);
	}
	for (int i = 0; i <= files->nunfrozen; i++)
	{
		uint32		run = i < files->nunfrozen ? files->unfrozen[i] : files->base_run;

		if (run != 0 && !names_run(&shard->images[KV_IMAGE_LAST], run))
			sync_one(kv_path_run(key, shardno, run), true, stats);
	}
}

static bool
shard_names_run(const KvShard *shard, uint32 number)
{
	for (int i = 0; i < shard->nunfrozen; i++)
	{
		if (shard->unfrozen[i] == number)
			return true;
	}
	return shard->base_run == number;
}

/* Does nobody need this file any more?  Lock held. */
static bool
is_released(const KvStore *store, const KvShard *shard, const KvFoundFile *file)
{
	switch (file->kind)
	{
		case KV_FILE_LOG:
			return file->number < shard->first_log &&
				!kv_image_names_log(store, shard, file->number);
		case KV_FILE_RUN:
			/* one that a freeze has made may be about to be named */
			return shard->maintainer == 0 && !shard_names_run(shard, file->number) &&
				!kv_image_names_run(shard, file->number) &&
				file->number < shard->images[KV_IMAGE_LAST].next_run;
		case KV_FILE_IMAGE:
			return file->number < shard->image_number;
		default:
			return false;
	}
}

/* Step 5: unlink the image before, and what only that named. */
static void
release_image(KvStore *store, uint32 shardno, uint32 image, const KvImageFiles *old)
{
	KvShard    *shard = kv_shard(store, shardno);
	uint32		runs[KV_MAX_UNFROZEN + 1];
	int			nruns = 0;
	uint32		first_log;

	LWLockAcquire(&shard->lock, LW_SHARED);
	for (int i = 0; i <= old->nunfrozen; i++)
	{
		uint32		run = i < old->nunfrozen ? old->unfrozen[i] : old->base_run;

		if (run != 0 && !shard_names_run(shard, run) && !kv_image_names_run(shard, run))
			runs[nruns++] = run;
	}
	first_log = Min(shard->first_log, shard->images[KV_IMAGE_LAST].first_log);
	LWLockRelease(&shard->lock);
	(void) kv_io_unlink(kv_path_image(&store->key, shardno, image));
	for (int i = 0; i < nruns; i++)
		(void) kv_io_unlink(kv_path_run(&store->key, shardno, runs[i]));
	for (uint32 log = old->first_log; log < first_log; log++)
		(void) kv_io_unlink(kv_path_log(&store->key, shardno, log));
}

/*
 * … or all that the newest image and the shard do without.  False: a freeze was
 * at work, so runs that nobody names stay until the next time.
 */
static bool
release_leftovers(KvStore *store, uint32 shardno)
{
	KvShard    *shard = kv_shard(store, shardno);
	char	   *directory = pstrdup(kv_path_store(&store->key));
	KvFound		found;
	bool		complete = true;

	kv_store_list_files(&store->key, &found);
	for (int i = 0; i < found.n; i++)
	{
		char		path[MAXPGPATH];
		bool		released;

		if (found.files[i].shard != shardno)
			continue;
		LWLockAcquire(&shard->lock, LW_SHARED);
		released = is_released(store, shard, &found.files[i]);
		complete &= shard->maintainer == 0;
		LWLockRelease(&shard->lock);
		snprintf(path, sizeof(path), "%s/%s", directory, found.files[i].name);
		if (released)
			(void) kv_io_unlink(path);
	}
	pfree(found.files);
	pfree(directory);
	return complete;
}

/*
 * Make what the shard has now durable, and note that it is.  covers: see the
 * file's head.  ERROR if it cannot be done; then the image that was there counts.
 */
void
kv_shard_image(KvStore *store, uint32 shardno, uint64 covers, KvBarrierStats *stats)
{
	KvShard    *shard = kv_shard(store, shardno);
	KvImageFile image;
	KvImageFiles before;
	uint32		generation;
	uint64		sequence;

	if (capture(store, shardno, &image, &generation, &sequence))
	{
		KV_STOP_POINT("image_captured");
		kv_shard_drain(store, shardno, image.last_log, sequence);
		sync_files(store, shardno, &image, stats);
		KV_STOP_POINT("image_synced");

		kv_manifest_seal(&store->key, shardno, &image.manifest);
		image.magic = KV_MAGIC_IMAGE;
		image.format_version = KV_FORMAT_VERSION;
		image.covers = covers;
		image.number = shard->image_number + 1;
		image.crc = image_crc(&image);
		kv_io_replace(kv_path_image(&store->key, shardno, image.number), &image,
					  sizeof(image), true);
		KV_STOP_POINT("image_written");

		LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
		before = shard->images[KV_IMAGE_LAST];
		shard->images[KV_IMAGE_LAST] = shard->images[KV_IMAGE_NEXT];
		shard->images[KV_IMAGE_NEXT].valid = false;
		shard->image_number = image.number;
		shard->image_log = image.last_log;
		shard->image_tail = image.log_tail;
		shard->image_generation = generation;
		LWLockRelease(&shard->lock);
		stats->shards++;

		/* a backup of a standby waits for no checkpoint, and may have begun meanwhile */
		kv_backups_look();
		if (before.valid && !kv_backups_run())
			release_image(store, shardno, image.number - 1, &before);
		else
			shard->leftovers = true;
	}
	if (shard->leftovers && !kv_backups_run())
	{
		shard->leftovers = false;
		if (!release_leftovers(store, shardno))
			shard->leftovers = true;
	}
}

/* ---- setting back ---- */

/* ERROR unless there is all that the image names. */
static void
require_files(const KvStoreKey *key, uint32 shardno, const KvImageFile *image)
{
	KvImageFiles files;
	struct stat info;

	files_of(image, &files);
	for (int i = 0; i <= files.nunfrozen; i++)
	{
		uint32		run = i < files.nunfrozen ? files.unfrozen[i] : files.base_run;

		if (run != 0 && access(kv_path_run(key, shardno, run), F_OK) != 0)
			ereport(ERROR,
					(errcode(ERRCODE_DATA_CORRUPTED),
					 errmsg("run file \"%s\" is missing", kv_path_run(key, shardno, run))));
	}
	for (uint32 log = files.first_log; log <= files.last_log; log++)
	{
		const char *path = kv_path_log(key, shardno, log);
		bool		last = log == files.last_log;

		if (last && image->log_tail == sizeof(KvLogHeader))
			break;				/* need not exist */
		if (stat(path, &info) != 0 || (last && info.st_size < image->log_tail))
			ereport(ERROR,
					(errcode(ERRCODE_DATA_CORRUPTED),
					 errmsg("key log \"%s\" is missing or too short", path)));
	}
	if (image->manifest.value_tail > 0 &&
		(stat(kv_path_value(key, image->manifest.value_file), &info) != 0 ||
		 info.st_size < image->manifest.value_tail))
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("value file \"%s\" is missing or too short",
						kv_path_value(key, image->manifest.value_file))));
}

/* Is there all that the image names? */
static bool
has_files(const KvStoreKey *key, uint32 shardno, const KvImageFile *image)
{
	MemoryContext context = CurrentMemoryContext;
	volatile bool complete = false;

	PG_TRY();
	{
		require_files(key, shardno, image);
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

/*
 * The image to which a copy made by a backup can be set back: the newest that
 * covers no more than the backup's redo pointer.  If there is none, and the backup
 * was taken of a primary, whose checkpoint had then just been made, the shard was
 * empty.  A standby, and the source of pg_rewind, may have been ahead: then the
 * oldest image is newer than the start of the backup, which is as good, unless it
 * is the shard's first, made meanwhile: then files of it may be missing.
 */
static bool
choose_image(const KvStoreKey *key, uint32 shardno, const KvFoundFile *files, int n,
			 const KvReset *reset, KvImageFile *image)
{
	uint64		redo = reset->backup_redo;
	bool		found = false;

	for (int i = 0; i < n; i++)
	{
		KvImageFile one;

		if (files[i].kind != KV_FILE_IMAGE ||
			!read_image(key, shardno, files[i].number, ERROR, &one))
			continue;
		if (!found ||
			(one.covers <= redo ? image->covers > redo || one.number > image->number :
			 image->covers > redo && one.number < image->number))
			*image = one;
		found = true;
	}
	if (!found || image->covers <= redo)
		return found;
	if (reset->backup_of_primary)
		return false;
	return image->number > 1 || has_files(key, shardno, image);
}

/*
 * Set a shard back to an image: the newest, or of a backup's copy the one that is
 * complete in it; to nothing if there is none.  At wal level 'none' the logs that
 * follow are kept, for recovery to salvage.  Idempotent.  In the postmaster.
 */
void
kv_shard_reset(const KvStore *store, uint32 shardno, const KvFoundFile *files, int n,
			   const KvReset *reset)
{
	const KvStoreKey *key = &store->key;
	bool		salvage = store->wal == KV_WAL_NONE;
	char	   *directory = pstrdup(kv_path_store(key));
	struct stat info;
	bool		has_values = stat(kv_path_value(key, shardno), &info) == 0;
	KvImageFile image;
	KvImageFiles named;

	if (n == 0 && !has_values)
		return;					/* never used */
	if (reset->backup_redo != 0 ? !choose_image(key, shardno, files, n, reset, &image) :
		!read_newest(key, shardno, files, n, ERROR, &image))
	{
		memset(&image, 0, sizeof(image));
		image.manifest.next_run = image.manifest.first_log = image.last_log = 1;
		image.manifest.value_file = shardno;
		image.log_tail = sizeof(KvLogHeader);
	}
	files_of(&image, &named);
	require_files(key, shardno, &image);

	for (int i = 0; i < n; i++)
	{
		char		path[MAXPGPATH];
		bool		stays = (files[i].kind == KV_FILE_IMAGE && files[i].number == image.number) ||
			(files[i].kind == KV_FILE_RUN && names_run(&named, files[i].number)) ||
			(files[i].kind == KV_FILE_LOG && files[i].number >= named.first_log &&
			 (salvage || files[i].number < named.last_log ||
			  (files[i].number == named.last_log && image.log_tail > sizeof(KvLogHeader))));

		if (files[i].kind == KV_FILE_RUN)
			image.manifest.next_run = Max(image.manifest.next_run, files[i].number + 1);
		snprintf(path, sizeof(path), "%s/%s", directory, files[i].name);
		if (!stays)
			(void) kv_io_unlink(path);
		else if (!salvage && files[i].kind == KV_FILE_LOG && files[i].number == named.last_log)
			kv_io_cut(path, image.log_tail);
	}

	if (store->wal == KV_WAL_KEYS && has_values)
	{
		/* values that only the WAL names must not be overwritten by redo */
		image.manifest.value_tail = Max(image.manifest.value_tail,
										TYPEALIGN(KV_BLOCK, info.st_size));
	}
	if (salvage)
	{
		image.manifest.flags |= KV_MANIFEST_SALVAGE;
		image.manifest.lost = kv_merge_discarded(key, shardno);
	}
	else
		kv_log_create(key, shardno, named.last_log);
	kv_manifest_write(key, shardno, &image.manifest);
	pfree(directory);
}
