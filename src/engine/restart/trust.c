/*
 * trust.c
 *		Decides which files can be trusted after a start: those that were synced.  Begins an
 *		incarnation.
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
 * (trust.c), ran without the engine after a crash, or its WAL was reset.  Then it is not
 * known which transactions committed, so no store can be used.
 *
 * All this is done in the postmaster, before any other process uses the stores.  A problem with
 * one store makes it unusable, with the reason; the server starts.
 */
#include "postgres.h"

#include <unistd.h>

#include "access/transam.h"
#include "access/xlog.h"
#include "catalog/pg_control.h"
#include "common/controldata_utils.h"
#include "miscadmin.h"
#include "storage/fd.h"

#include "engine/base/error.h"
#include "engine/base/shared.h"
#include "engine/base/types.h"
#include "engine/buffer/buffer.h"
#include "engine/durable/durable.h"
#include "engine/engine.h"
#include "engine/format/format.h"
#include "engine/format/path.h"
#include "engine/io/fault.h"
#include "engine/io/name.h"
#include "engine/restart/restart.h"
#include "engine/shard/shard.h"
#include "engine/version/version.h"
#include "engine/xact/xact.h"

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

/* ---- incarnations ---- */

/*
 * An incarnation is one run of the server between two starts.  After a crash the xids whose
 * records never reached the WAL are assigned again.  So every entry has the incarnation that
 * wrote it.  The control file (durable/controlfile.c) has, for each dead incarnation, the first
 * xid that was not in the WAL: its boundary.  An entry of a dead incarnation at or above its
 * boundary is aborted (I 10).  Entries that redo writes have the incarnation 0: they are in the
 * WAL, so their xids are never assigned again and clog alone decides.
 *
 * The boundary must be on disk before the server assigns an xid:
 *
 *  - When shared memory is created (before recovery) the new incarnation is begun and the dead
 *    one's boundary set to pg_control's nextXid, which is exact if there is nothing to redo.
 *  - If there is, rm_cleanup runs at the end of redo, in the startup process, before any
 *    session can connect, and raises the boundary to the nextXid found there.
 *
 * Between the two the boundary is provisional.  If the server dies there, the incarnation never
 * ran; the next start finds the mark, begins it again and lets its own recovery raise the
 * boundary.  A start that had nothing to redo never removes the mark, but it ends with a new
 * checkpoint in pg_control, which an unfinished one does not.
 *
 * A server that was shut down without the engine's record that the marks are complete does not
 * know which transactions committed (trust.c).
 */

/* Continue from the state of the control file. */
static void
resume(const KvControlFile *control, bool finished, uint64 next_xid)
{
	bool		ran = !control->provisional ||
		(finished && control->checkpoint != kv_control->checkpoint);

	kv_incarnations->current = control->incarnation;
	kv_incarnations->ndead = control->ndead;
	memcpy(kv_incarnations->dead, control->dead, sizeof(control->dead));
	if (ran)
	{
		KvIncarnation *dead;

		if (kv_incarnations->ndead == KV_MAX_INCARNATIONS)
			ereport(FATAL,
					(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
					 errmsg("kvfdw has been restarted %d times without recovering all tables",
							KV_MAX_INCARNATIONS),
					 errdetail("The server log of each start names the tables that could not be "
							   "recovered."),
					 errhint("Restore the data directory from a backup.")));
		dead = &kv_incarnations->dead[kv_incarnations->ndead++];
		dead->number = kv_incarnations->current++;
		dead->pad = 0;
		dead->boundary = next_xid;
	}
	else if (kv_incarnations->ndead > 0)
	{
		KvIncarnation *dead = &kv_incarnations->dead[kv_incarnations->ndead - 1];

		dead->boundary = Max(dead->boundary, next_xid);
	}
}

/*
 * The state of the marks after this start: complete, or how they can become complete.
 * *history_lost: pg_control says that the server was shut down, the engine's record does not.
 */
static void
judge_stop(const ControlFileData *pg_control, bool from_backup, bool *history_lost)
{
	bool		stopped = pg_control->state == DB_SHUTDOWNED && !from_backup;
	bool		after_stop = pg_control->checkPoint == pg_control->checkPointCopy.redo;

	/* after a crash it stays complete if no writer had been let through */
	*history_lost = stopped && kv_control->complete == KV_COMPLETE_NOT;
	if (stopped)
		kv_control->complete = KV_COMPLETE;
	else if (kv_control->follows || kv_control->complete != KV_COMPLETE)
		kv_control->complete = after_stop ? KV_COMPLETE_UNLESS_REDO : KV_COMPLETE_NOT;
}

/* What must be done with the stores, and where does replay begin?  See trust.c. */
static void
plan_reset(const ControlFileData *pg_control, const KvControlFile *control, KvReset *reset)
{
	uint64		redo = pg_control->checkPointCopy.redo;

	kv_control->begins = reset->backup.redo != 0 ? reset->backup.redo : redo;

	/* the label of a standby's backup names its last restartpoint */
	if (reset->backup.redo != 0)
		redo = reset->backup.of_primary ? 0 : reset->backup.redo;
	judge_stop(pg_control, reset->backup.redo != 0, &reset->history_lost);
	reset->values_lost = kv_control->follows;

	/*
	 * a server that follows has marks up to its last DURABLE record; every checkpoint of one
	 * that does not waits for its marks
	 */
	reset->marks_old = kv_control->follows && kv_control->covered != 0 &&
		redo > kv_control->covered;

	/* marks of another time than the label's are not in the copy */
	reset->marks_old |= reset->backup.redo != 0 && !reset->backup.of_primary &&
		!reset->backup.rewound && reset->backup.redo == kv_control->late;
	kv_control->late = 0;
	if (!kv_control->follows)
		kv_control->covered = 0;
	reset->trusted = control != NULL && !kv_control->follows && !reset->history_lost &&
		kv_trust_proves(&control->proof) && kv_buffers_are_sound();
}

void
kv_incarnation_startup(void)
{
	bool		crc_ok;
	ControlFileData *pg_control = get_controlfile(DataDir, &crc_ok);
	DBState		state = pg_control->state;
	bool		signalled = access(STANDBY_SIGNAL_FILE, F_OK) == 0 ||
		access(RECOVERY_SIGNAL_FILE, F_OK) == 0;
	KvReset		reset = {0};
	KvProof		proof;
	KvControlFile *control;
	bool		taken_over;

	kv_trust_read_label(&reset.backup);
	kv_incarnations->current = 1;
	kv_incarnations->ndead = 0;
	kv_control->checkpoint = pg_control->checkPoint;
	kv_incarnations->provisional = state != DB_SHUTDOWNED;

	/*
	 * A primary that is stopped while it recovers from a crash is "shut down in
	 * recovery" as well, but has no minimum recovery point.
	 */
	kv_control->follows = reset.backup.redo != 0 || signalled ||
		state == DB_IN_ARCHIVE_RECOVERY ||
		(state == DB_SHUTDOWNED_IN_RECOVERY && pg_control->minRecoveryPoint != 0);

	kv_io_mkdir(KV_DIRECTORY);
	kv_take_over_guard_upgrade();
	kv_control->complete = KV_COMPLETE;	/* nothing was written */
	kv_control->covered = 0;
	control = kv_control_read();
	taken_over = kv_take_over(control, pg_control);
	if (control != NULL)
	{
		kv_base->directory_id = control->directory_id;
		kv_spaces_begin(control);
		kv_control->stop_xid = control->stop_xid;
		kv_control->takeovers = control->takeovers + taken_over;
		resume(control,
			   state == DB_IN_PRODUCTION || state == DB_SHUTDOWNED || state == DB_SHUTDOWNING,
			   U64FromFullTransactionId(pg_control->checkPointCopy.nextXid));
		kv_control->covered = control->covered;
		kv_control->late = control->late;
		kv_control->complete = (KvComplete) control->complete;
	}
	else if (kv_numbered_entries(KV_DIRECTORY, ERROR) != NIL)
		ereport(FATAL,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("file \"%s\" is missing", KV_CONTROL_PATH),
				 errhint("Put the file back as it was when the server stopped, or restore the data "
						 "directory from a backup.")));
	else if (state != DB_SHUTDOWNED && !kv_control->follows)
		kv_take_over_guard_crash();
	if (control == NULL && !pg_strong_random(&kv_base->directory_id, sizeof(kv_base->directory_id)))
		ereport(FATAL,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not generate random numbers")));
	if (control == NULL)
		kv_spaces_begin(NULL);
	plan_reset(pg_control, control, &reset);
	reset.trusted = reset.trusted && !taken_over;
	if (state != DB_SHUTDOWNED && !kv_trust_write_back(reset.trusted))
		reset.trusted = false;

	/* repeated if it is interrupted: the control file still has the old state */
	kv_trust_reset_stores(&reset);
	kv_trust_renew(&proof, reset.trusted);
	if (kv_control->follows)
		kv_spaces_part();
	kv_control_begin(&proof);
	kv_spaces_claim();
	kv_take_over_keep_token();
	pfree(pg_control);
	if (control != NULL)
		pfree(control);
}
