/*
 * trust.c
 *		Decides which files can be trusted after a start: those that were synced.
 *
 * Stores at wal level 'full' and 'keys' begin at their marks, whatever has happened: each
 * shard is set back to its newest mark when it is first opened (lifecycle/recover.c,
 * durable/mark.c), and redo adds later versions.  SIGKILL, PANIC, a failed sync, the loss of
 * power, a remount and a copy are one case, and a clean stop is the case in which nothing was
 * logged since.  Other files in the stores' directories, and write buffers, are not read.
 *
 * Stores at level 'none' have no WAL.  Their versions after the marks are in write buffers,
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
 * stores to be salvaged are marked in their version logs before the new proof is in the control
 * file, so an interrupted start does no harm.
 *
 * A server that follows another's WAL, and one that was made of a backup, cannot have the
 * values of stores below level 'full'.  These stores are unusable from then on, because an
 * empty table would be the worst answer.  A backup copies files while they change, so only some
 * marks are complete in it: the others are removed from the version log here.
 *
 * A server that pg_control calls shut down, though the engine has not made its marks for that
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
#include "engine/engine.h"
#include "engine/format/format.h"
#include "engine/format/path.h"
#include "engine/io/fault.h"
#include "engine/io/name.h"
#include "engine/restart/restart.h"
#include "engine/shard/shard.h"
#include "engine/buffer/buffer.h"
#include "engine/version/version.h"

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
 * In a copy that a backup made: the edits that count there, palloc'd.  For each shard the complete
 * mark, and all that is carried.  That needs no files, so it may be newer than the backup's
 * beginning.
 */
static KvEdit *
choose_edits(const KvStore *store, const KvVersions *versions, const KvBackupLabel *label, int *n)
{
	KvEdit	   *edits = palloc(versions->n * sizeof(KvEdit));

	*n = 0;
	for (int i = 0; i < versions->n; i++)
	{
		if (versions->edits[i].kind == KV_EDIT_MAP || versions->edits[i].kind == KV_EDIT_CARRIED)
			edits[(*n)++] = versions->edits[i];
	}
	for (uint32 shard = kv_versions_marked(versions, 0); shard != KV_NO_SHARD;
		 shard = kv_versions_marked(versions, shard + 1))
	{
		KvMark		mark;

		if (kv_shard_choose_mark(store, versions, shard, label, &mark))
			edits[(*n)++] = kv_edit_of_mark(shard, &mark);
	}
	return edits;
}

/* In such a copy: set the store back to the newest map all of whose shards have complete marks. */
static void
choose_marks(const KvStore *store, const KvReset *reset)
{
	KvVersions *versions = kv_versions_read(&store->key, store->shape.id, 0, true, false, 0);
	KvEdit	   *edits;
	KvVersions *chosen;
	KvMap	   *map;
	int			n;

	kv_space_require(&store->key, false);
	edits = choose_edits(store, versions, &reset->backup, &n);
	chosen = kv_versions_of(versions, edits, n);
	map = kv_versions_durable_map(chosen);
	for (uint32 i = 0; i < map->nshards; i++)
		kv_shard_require_mark(store, chosen, kv_map_shards(map)[i], kv_map_since(map)[i],
							  !reset->backup.rewound);
	map->number = kv_versions_newest_map(versions)->number;
	edits = kv_versions_live(chosen, &map, 1, false, &n);
	(void) kv_versions_replace(versions, store->shape.id, edits, n);
	kv_versions_free(chosen);
	kv_versions_free(versions);
}

/* The store's state after its marks is not trusted. */
static void
set_unverified(const KvStore *store)
{
	KvVersions *versions = kv_versions_read(&store->key, store->shape.id, 0, false, false, 0);
	KvMap	   *map = kv_versions_durable_map(versions);
	KvEdit	   *edits = palloc((2 * (Size) map->nshards + 1) * sizeof(KvEdit));
	KvMark	   *marks = palloc0(map->nshards * sizeof(KvMark));
	int			n = 0;
	KvFound		found;

	/*
	 * shards of later maps are removed, and the first remaining one records what is lost with
	 * them
	 */
	uint32		after = kv_map_entries_after(store, map);

	/* the number of a map that is dropped is not used again: its marks have it */
	map->number = kv_versions_newest_map(versions)->number;
	edits[n++] = kv_edit_of_map(map);
	kv_store_list_files(&store->key, &found);
	for (uint32 i = 0; i < map->nshards; i++)
	{
		uint32		shard = kv_map_shards(map)[i];
		uint32		since = kv_map_since(map)[i];
		int			at = kv_found_first(&found, shard);
		KvMark		mark;

		if (kv_versions_mark(versions, shard, since, &mark))
			edits[n++] = kv_edit_of_mark(shard, &mark);
		if (kv_shard_set_unverified(store, versions, shard, since, found.files + at,
									kv_found_of_shard(&found, at, shard), i == 0 ? after : 0,
									&marks[i]))
			edits[n++] = kv_edit_of_files(shard, &marks[i].listed);
	}
	(void) kv_versions_replace(versions, store->shape.id, edits, n);
	KV_STOP_POINT("shards_unverified");
	for (uint32 i = 0; i < map->nshards; i++)
	{
		int			at = kv_found_first(&found, kv_map_shards(map)[i]);

		kv_shard_remove_others(store, kv_map_shards(map)[i], &marks[i], found.files + at,
							   kv_found_of_shard(&found, at, kv_map_shards(map)[i]));
	}
	kv_map_keep_only(store, map);
	KV_STOP_POINT("map_kept");
	pfree(found.files);
	pfree(map);
	kv_versions_free(versions);
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
	else if (reset->marks_old)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("the last restartpoint is later than the last durable state of the "
						"table")));
	else if (reset->backup.redo != 0)
		choose_marks(store, reset);
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
