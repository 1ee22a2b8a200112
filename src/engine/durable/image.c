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
 * Making them (kv_shards_image), each shard's lock held only to look:
 *
 *   1. capture   seal the open slot; note runs, logs, tails.  From here on the
 *                files noted are protected (KvShard.images[KV_IMAGE_NEXT])
 *   2. drain     what the slots sealed so far hold gets to the files
 *   3. sync      value file, logs, runs that the image before did not name
 *   4. write     the image file, durably, directory included
 *   5. release   unlink the image before, and what only that named
 *
 * Shards of a store go through these steps together, because syncs of many files
 * in a row cost the file system one commit and the device can work on the next
 * one's bytes, and because a directory is then synced once for all of them.  In
 * step 4 all images are synced under temporary names before the first is renamed.
 * After a power cut between the renames some shards have the new image and some the
 * one before; both are complete, for nothing is released until the directory has
 * been synced.
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

#include "nodes/bitmapset.h"

#include "engine/base/crc.h"
#include "engine/base/types.h"
#include "engine/base/wait.h"
#include "engine/durable/durable.h"
#include "engine/engine.h"
#include "engine/format/format.h"
#include "engine/io/fault.h"
#include "engine/io/io.h"
#include "engine/shard/shard.h"
#include "engine/slot/slot.h"

/* An image in the making. */
typedef struct KvImageWork
{
	uint32		shardno;
	KvImageFile image;
	uint32		generation;		/* the shard's, when it was captured */
	uint64		sequence;		/* of the slots that must be drained, the end */
} KvImageWork;

static uint32
image_crc(const KvImageFile *image)
{
	return kv_crc(image, offsetof(KvImageFile, crc));
}

/* False if there is none, or it is not sound: that is reported at elevel. */
bool
kv_image_read(const KvStoreKey *key, uint32 shardno, uint32 number, int elevel,
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
bool
kv_image_read_newest(const KvStoreKey *key, uint32 shardno, const KvFoundFile *files, int n,
			int elevel, KvImageFile *image)
{
	uint32		newest = 0;

	for (int i = 0; i < n; i++)
	{
		if (files[i].kind == KV_FILE_IMAGE)
			newest = Max(newest, files[i].number);
	}
	return newest != 0 && kv_image_read(key, shardno, newest, elevel, image);
}

/* Protect what an image names. */
static void
name_files(const KvImageFile *image, KvImageFiles *files)
{
	files->valid = true;
	files->last_log = image->last_log;
	files->files = image->manifest.files;
}

static bool
same_runs(const KvShardFiles *a, const KvShardFiles *b)
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
	if (!kv_image_read_newest(&store->key, shardno, files, n, LOG, &image))
		return;
	name_files(&image, &shard->images[KV_IMAGE_LAST]);
	shard->image_number = image.number;
	shard->image_log = image.last_log;
	shard->image_tail = image.log_tail;

	/* recovery counts the generation on when it is done */
	shard->image_generation = pg_atomic_read_u32(&shard->generation) +
		(same_runs(&image.manifest.files, &manifest->files) ? 1 : 0);
}

/* Has nothing happened to the shard since its newest image?  Lock held. */
static bool
is_clean(KvShard *shard)
{
	if ((shard->open_slot >= 0 && kv_slots[shard->open_slot].nentries > 0) ||
		shard->sealed_slots >= 0)
		return false;
	if (shard->image_log == 0)
		return shard->files.first_log == 1 && shard->log_number == 1 && shard->files.base_run == 0 &&
			shard->files.nunfrozen == 0 && shard->log_tail == sizeof(KvLogHeader);
	return shard->image_log == shard->log_number && shard->image_tail == shard->log_tail &&
		shard->image_generation == pg_atomic_read_u32(&shard->generation);
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
		*sequence = pg_atomic_read_u64(&kv_slot_pool->sequence);
		*generation = pg_atomic_read_u32(&shard->generation);
		image->manifest.files = shard->files;
		image->last_log = shard->log_number;
		image->log_tail = shard->log_tail;

		/* an attempt that failed may have kept files that nobody else names */
		if (shard->images[KV_IMAGE_NEXT].valid)
			shard->leftovers = true;
		name_files(image, &shard->images[KV_IMAGE_NEXT]);
	}
	LWLockRelease(&shard->lock);
	return dirty;
}

/* A file that is synced in step 3. */
static List *
add_file(List *files, const char *path, bool count, KvBarrierStats *stats)
{
	struct stat info;

	stats->files++;
	if (count && stat(path, &info) == 0)
		stats->bytes += info.st_size;
	kv_io_start_sync(path);
	return lappend(files, pstrdup(path));
}

/* The files of step 3, for which write-back has been started. */
static List *
files_to_sync(KvStore *store, const KvImageWork *work, List *paths, KvBarrierStats *stats)
{
	uint32		shardno = work->shardno;
	const KvImageFile *image = &work->image;
	const KvShardFiles *files = &image->manifest.files;
	const KvShard *shard = kv_shard(store, shardno);
	const KvImageFiles *before = &shard->images[KV_IMAGE_LAST];
	const KvStoreKey *key = &store->key;
	uint32		runs[KV_MAX_UNFROZEN + 1];
	int			nruns = kv_files_runs(files, runs);

	if (files->value_tail > 0 && !kv_fault_skips("data_sync"))
		paths = add_file(paths, kv_path_value(key, files->value_file), false, stats);
	for (uint32 log = Max(files->first_log, shard->image_log); log <= image->last_log; log++)
	{
		/* the last one need not exist yet */
		if (log < image->last_log || image->log_tail > sizeof(KvLogHeader) ||
			access(kv_path_log(key, shardno, log), F_OK) == 0)
			paths = add_file(paths, kv_path_log(key, shardno, log), true, stats);
	}
	for (int i = 0; i < nruns; i++)
	{
		if (!before->valid || !kv_files_name_run(&before->files, runs[i]))
			paths = add_file(paths, kv_path_run(key, shardno, runs[i]), true, stats);
	}
	return paths;
}

/* Step 5: unlink the image before, and what only that named. */
static void
release_image(KvStore *store, uint32 shardno, uint32 image, const KvShardFiles *old)
{
	uint32		first_log = kv_shard(store, shardno)->files.first_log;
	uint32		runs[KV_MAX_UNFROZEN + 1];
	int			nruns = kv_files_runs(old, runs);

	(void) kv_io_unlink(kv_path_image(&store->key, shardno, image));
	for (int i = 0; i < nruns; i++)
		kv_file_release(store, shardno, KV_FILE_RUN, runs[i]);
	for (uint32 log = old->first_log; log < first_log; log++)
		kv_file_release(store, shardno, KV_FILE_LOG, log);
}

/* The same for those of n shards that have leftovers, of whatever nobody needs. */
static void
release_leftovers(KvStore *store, uint32 first, int n)
{
	Bitmapset  *wanted = NULL;
	KvFound		found;
	int			at = 0;

	for (int i = 0; i < n && !kv_backups_run(); i++)
	{
		KvShard    *shard = kv_shard(store, first + i);

		if (shard->leftovers)
			wanted = bms_add_member(wanted, i);
		shard->leftovers = false;
	}
	if (wanted == NULL)
		return;
	kv_store_list_files(&store->key, &found);
	for (int i = bms_next_member(wanted, -1); i >= 0; i = bms_next_member(wanted, i))
	{
		while (at < found.n && found.files[at].shard < first + i)
			at++;
		kv_files_release(store, first + i, found.files + at,
						 kv_found_of_shard(&found, at, first + i));
	}
	pfree(found.files);
	bms_free(wanted);
}

/* Where an image is written before it gets its name. */
static const char *
temporary_of(const KvStoreKey *key, const KvImageWork *work)
{
	static char path[MAXPGPATH];

	snprintf(path, sizeof(path), "%s.tmp",
			 kv_path_image(key, work->shardno, work->image.number));
	return path;
}

/* Step 4. */
static void
write_images(KvStore *store, KvImageWork *work, int n, uint64 covers)
{
	const KvStoreKey *key = &store->key;
	char	   *directory = pstrdup(kv_path_store(key));

	for (int i = 0; i < n; i++)
	{
		KvImageFile *image = &work[i].image;

		kv_manifest_seal(key, work[i].shardno, &image->manifest);
		image->magic = KV_MAGIC_IMAGE;
		image->format_version = KV_FORMAT_VERSION;
		image->covers = covers;
		image->number = kv_shard(store, work[i].shardno)->image_number + 1;
		image->crc = image_crc(image);
		kv_io_create(temporary_of(key, &work[i]), image, sizeof(KvImageFile));
		kv_io_start_sync(temporary_of(key, &work[i]));
	}
	for (int i = 0; i < n; i++)
		kv_io_sync_file(temporary_of(key, &work[i]));

	/* what is named before the names that depend on it */
	kv_io_sync_directory(directory);
	for (int i = 0; i < n; i++)
	{
		const char *temporary = temporary_of(key, &work[i]);
		int			err = kv_io_rename(temporary,
									   kv_path_image(key, work[i].shardno, work[i].image.number));

		if (err != 0)
			kv_io_error(ERROR, err, temporary, "rename");
		KV_STOP_POINT("image_renamed");
	}
	kv_io_sync_directory(directory);
	pfree(directory);
}

/* The image is durable: it counts from here on.  Step 5 for the one before. */
static void
adopt_image(KvStore *store, const KvImageWork *work)
{
	KvShard    *shard = kv_shard(store, work->shardno);
	const KvImageFile *image = &work->image;
	KvImageFiles before;

	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	before = shard->images[KV_IMAGE_LAST];
	shard->images[KV_IMAGE_LAST] = shard->images[KV_IMAGE_NEXT];
	shard->images[KV_IMAGE_NEXT].valid = false;
	shard->image_number = image->number;
	shard->image_log = image->last_log;
	shard->image_tail = image->log_tail;
	shard->image_generation = work->generation;
	LWLockRelease(&shard->lock);
	if (image->number == 1)
		store->imaged_stale = true;

	/* a backup of a standby waits for no checkpoint, and may have begun meanwhile */
	kv_backups_look();
	if (before.valid && !kv_backups_run())
		release_image(store, work->shardno, image->number - 1, &before.files);
	else
		shard->leftovers = true;
}

/*
 * Make what n shards from first on have now durable, and note that it is.  covers:
 * see the file's head.  ERROR if it cannot be done for one of them; then of all of
 * them the images that were there count.
 */
void
kv_shards_image(KvStore *store, uint32 first, int n, uint64 covers, KvBarrierStats *stats)
{
	KvImageWork *work = palloc(n * sizeof(KvImageWork));
	List	   *paths = NIL;
	ListCell   *cell;
	int			nwork = 0;

	for (int i = 0; i < n; i++)
	{
		KvImageWork *one = &work[nwork];

		one->shardno = first + i;
		if (capture(store, one->shardno, &one->image, &one->generation, &one->sequence))
			nwork++;
	}
	if (nwork > 0)
	{
		KV_STOP_POINT("image_captured");
		for (int i = 0; i < nwork; i++)
		{
			kv_shard_drain(store, work[i].shardno, work[i].image.last_log, work[i].sequence);
			paths = files_to_sync(store, &work[i], paths, stats);
		}
		foreach(cell, paths)
		{
			kv_interrupts();
			kv_io_sync_file(lfirst(cell));
		}
		KV_STOP_POINT("image_synced");
		write_images(store, work, nwork, covers);
		KV_STOP_POINT("image_written");
		for (int i = 0; i < nwork; i++)
			adopt_image(store, &work[i]);
		stats->shards += nwork;
		list_free_deep(paths);
	}
	pfree(work);
	release_leftovers(store, first, n);
}
