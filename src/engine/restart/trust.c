/*
 * trust.c
 *		Decides which files can be trusted after a start: those that were synced.
 *
 * Stores at wal level 'full' and 'keys' begin at their images, whatever has happened: each
 * shard is set back to its newest image when it is first opened (lifecycle/recover.c,
 * durable/image.c), and redo adds later versions.  SIGKILL, PANIC, a failed sync, the loss of
 * power, a remount and a copy are one case, and a clean stop is the case in which nothing was
 * logged since.  Other files in the stores' directories, and write buffers, are not read.
 *
 * Stores at level 'none' have no WAL.  Their versions after the images are in write buffers,
 * key logs and runs that were not synced: in the page cache.  The page cache is trusted if it
 * is proven to be the same, and complete:
 *
 *  - The kernel has not been restarted: its boot id.
 *  - The file system has been mounted all the time (io/file.c).
 *  - The directory is not a copy, nor was a copy put back into it: a file in it, the witness,
 *    is still the one that the control file describes.
 *  - No sync has failed, after which pages that were not written count as written: a process
 *    whose sync fails removes the witness before anything else (kv_io_sync_failed).  But there
 *    may have been no sync when the kernel failed to write pages.  The kernel reports that to
 *    the next process that asks for the file, or for the file system, so after a crash both are
 *    written back here.  PostgreSQL's own sync of the data directory is later, and would ignore
 *    the failure.  The file system still knows of failures of files that the kernel has
 *    forgotten, or that another process has synced.
 *
 * Without that proof the stores are salvaged: valid parts are kept (lifecycle/recover.c).  The
 * stores to be salvaged are marked in their manifests before the new proof is in the control
 * file, so an interrupted start does no harm.
 *
 * A server that follows another's WAL, and one that was made of a backup, cannot have the
 * values of stores below level 'full'.  These stores are unusable from then on, because an
 * empty table would be the worst answer.  A backup copies files while they change, so only some
 * images are complete in it: the others are removed here.
 *
 * A server that pg_control calls shut down, though the engine has not made its images for that
 * (incarnation.c), ran without the engine after a crash, or its WAL was reset.  Then it is not
 * known which transactions committed, so no store can be used.
 *
 * All this is done in the postmaster, before any other process uses the stores.  A problem with
 * one store makes it unusable, with the reason; the server starts.
 */
#include "postgres.h"

#include <unistd.h>

#include "access/xlog.h"
#include "storage/fd.h"

#include "engine/base/error.h"
#include "engine/base/types.h"
#include "engine/durable/durable.h"
#include "engine/format/format.h"
#include "engine/io/io.h"
#include "engine/restart/restart.h"
#include "engine/shard/shard.h"
#include "engine/buffer/buffer.h"

#define KV_BOOT_ID_PATH	"/proc/sys/kernel/random/boot_id"

/* The proof that would be found if the server were started again right now. */
static void
describe_now(KvProof *proof)
{
	FILE	   *file = AllocateFile(KV_BOOT_ID_PATH, "r");
	const char *other = kv_fault_boot_id();

	memset(proof, 0, sizeof(*proof));
	if (file != NULL)
	{
		if (fgets(proof->boot_id, sizeof(proof->boot_id), file) == NULL)
			proof->boot_id[0] = '\0';
		FreeFile(file);
	}
	if (other != NULL)
		strlcpy(proof->boot_id, other, sizeof(proof->boot_id));
	proof->boot_id[strcspn(proof->boot_id, "\n")] = '\0';
	kv_io_identify_mount(KV_DIRECTORY, &proof->mount, &proof->superblock);
	(void) kv_io_identify_file(KV_WITNESS_PATH, &proof->inode, &proof->changed_sec,
							   &proof->changed_nsec);
}

bool
kv_trust_proves(const KvProof *old)
{
	KvProof		now;

	describe_now(&now);
	if (now.boot_id[0] == '\0' || strcmp(now.boot_id, old->boot_id) != 0)
		return false;
	return kv_fault_skips("witness") ||
		(((now.mount != 0 && now.mount == old->mount) ||
		  (now.superblock != 0 && now.superblock == old->superblock)) &&
		 now.inode != 0 && now.inode == old->inode &&
		 now.changed_sec == old->changed_sec && now.changed_nsec == old->changed_nsec);
}

static bool written;
static bool	any_unlogged;		/* there is a store that may be trusted */

static void
write_back_store(const KvStoreKey *key, const void *arg)
{
	KvWhere		where;
	ListCell   *cell;

	if (!kv_table_file_peek(key, &where) || !where.logged)
		any_unlogged = true;
	written &= kv_io_try_write_back(kv_path_store(key)) == 0;
	foreach(cell, kv_space_directories(key))
		written &= kv_io_try_write_back(lfirst(cell)) == 0;
}

bool
kv_trust_write_back(bool all)
{
	written = kv_io_try_write_back(KV_BUFFER_FILE_PATH) == 0;
	any_unlogged = false;
	(void) kv_visit_stores(write_back_store, NULL);
	return written && (!all || !any_unlogged || kv_io_try_write_back_all(KV_DIRECTORY) == 0);
}

void
kv_trust_renew(KvProof *proof, bool trusted)
{
	static const char text[] =
		"While this file is here and unchanged, kvfdw trusts the page cache after a crash.\n";

	if (!trusted)
	{
		(void) kv_io_unlink(KV_WITNESS_PATH);
		kv_io_replace(KV_WITNESS_PATH, text, sizeof(text) - 1, false);
	}
	describe_now(proof);
}

void
kv_trust_read_label(KvBackupLabel *backup)
{
	Size		len;
	char	   *label = kv_io_slurp(BACKUP_LABEL_FILE, &len);
	uint32		high = 0;
	uint32		low = 0;

	if (label == NULL)
		return;
	if (sscanf(label, "START WAL LOCATION: %X/%X", &high, &low) != 2)
		ereport(FATAL,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("invalid data in file \"%s\"", BACKUP_LABEL_FILE)));
	backup->redo = (uint64) high << 32 | low;
	backup->rewound = strstr(label, "BACKUP METHOD: pg_rewind") != NULL;
	backup->of_primary = strstr(label, "BACKUP FROM: primary") != NULL && !backup->rewound;
	pfree(label);
}

/*
 * The source of pg_rewind does not know of it, and removes unneeded files also between the list
 * of files and the copies.  So a shard without an image is empty only if it never had one.
 */
static void
require_images(const KvStore *store, const KvFound *found)
{
	KvImaged   *imaged = kv_imaged_read(store);
	KvMap	   *map = kv_map_choose(store, imaged);

	for (uint32 i = 0; i < map->nshards; i++)
	{
		uint32		shard = kv_map_shards(map)[i];
		int			at = kv_found_first(found, shard);
		int			end = at + kv_found_of_shard(found, at, shard);

		while (at < end && found->files[at].kind != KV_FILE_IMAGE)
			at++;
		if (at == end && kv_imaged_has(imaged, shard))
			kv_io_raise_missing(psprintf("%s/%05x.*.image", kv_path_store(&store->key), shard));
	}
	pfree(map);
	if (imaged != NULL)
		pfree(imaged);
}

/* In a copy that a backup made: keep the complete images, of all shards. */
static void
choose_images(const KvStore *store, const KvReset *reset)
{
	KvFound		found;
	int			n;

	kv_store_list_files(&store->key, &found);
	if (reset->backup.rewound)
		require_images(store, &found);
	for (int at = 0; at < found.n; at += n)
	{
		n = kv_found_of_shard(&found, at, found.files[at].shard);
		if (found.files[at].kind != KV_FILE_VALUES)
			kv_shard_choose_image(store, found.files[at].shard, found.files + at, n,
								  &reset->backup);
	}
	pfree(found.files);
}

/* The store's state after its images is not trusted. */
static void
set_unverified(const KvStore *store)
{
	KvImaged   *imaged = kv_imaged_read(store);
	KvMap	   *map = kv_map_choose(store, imaged);
	KvFound		found;

	/*
	 * shards of later maps are removed, and the first remaining one records what is lost with
	 * them
	 */
	uint32		after = kv_map_entries_after(store, map);

	kv_store_list_files(&store->key, &found);
	for (uint32 i = 0; i < map->nshards; i++)
	{
		uint32		shard = kv_map_shards(map)[i];
		int			at = kv_found_first(&found, shard);

		kv_shard_set_unverified(store, shard, found.files + at,
								kv_found_of_shard(&found, at, shard),
								kv_imaged_has(imaged, shard), i == 0 ? after : 0);
	}
	KV_STOP_POINT("shards_unverified");
	kv_map_keep_only(store, map);
	KV_STOP_POINT("map_kept");
	pfree(found.files);
	pfree(map);
	if (imaged != NULL)
		pfree(imaged);
}

static int	salvaged;

static void
reset_store(KvStore *store, const KvReset *reset)
{
	if (!kv_table_file_read(&store->key, &store->shape, NULL, NULL))
	{
		/*
		 * a store is created whole and removed by renaming, so this is a backup's part of a
		 * store that was removed during the backup; the WAL up to the backup's end has the
		 * commit of its TRUNCATE or DROP
		 */
		if (reset->backup.redo != 0)
			kv_io_rmtree(kv_path_store(&store->key));
		return;
	}
	if (store->shape.unusable)
		return;
	if (reset->history_lost)
		kv_store_mark_unusable(&store->key, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
							   "After a crash the server ran without kvfdw, or its WAL was reset, "
							   "so it is not known which of the table's rows were committed.");
	else if (reset->values_lost && store->shape.wal != KV_WAL_FULL)
		kv_store_mark_not_logged(&store->key, store->shape.wal);
	else if (reset->images_old)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("the last restartpoint is later than the last durable state of the "
						"table")));
	else if (reset->backup.redo != 0)
	{
		choose_images(store, reset);
		kv_imaged_forget(&store->key);
	}
	else if (store->shape.wal == KV_WAL_NONE && !reset->trusted)
	{
		set_unverified(store);
		salvaged++;
	}
}

/* An ERROR makes only this store unusable. */
static void
attempt_reset(const KvStoreKey *key, const void *reset)
{
	MemoryContext context = CurrentMemoryContext;
	KvStore		store;

	memset(&store, 0, sizeof(store));
	store.key = *key;
	PG_TRY();
	{
		reset_store(&store, reset);
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		if (kv_error_concerns_all(error->sqlerrcode))
			PG_RE_THROW();
		EmitErrorReport();
		FlushErrorState();
		if (error->sqlerrcode == ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE)
			kv_store_mark_unusable(key, error->sqlerrcode,
								   error->detail ? error->detail : error->message);
		else
			kv_store_mark_unusable(key, ERRCODE_DATA_CORRUPTED, error->message);
		FreeErrorData(error);
	}
	PG_END_TRY();
}

void
kv_trust_reset_stores(const KvReset *reset)
{
	/* buffers of stores with WAL are logged, those of others are lost */
	if (!reset->trusted)
		kv_buffers_count_lost();
	if (!reset->trusted || reset->backup.redo != 0 || reset->values_lost ||
		reset->history_lost)
	{
		salvaged = 0;
		(void) kv_visit_stores(attempt_reset, reset);
		if (salvaged > 0)
			ereport(LOG,
					(errmsg("resetting %d kvfdw tables with wal level \"none\" to their last "
							"checkpoint",
							salvaged),
					 errdetail("The server was not shut down cleanly, or its files were copied. "
							   "Rows written since that checkpoint may be lost.")));
	}

	/* after the losses are recorded */
	if (!reset->trusted)
		kv_buffers_forget_file();
}
