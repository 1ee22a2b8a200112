/*
 * incarnation.c
 *		Begins an incarnation at a start, and sets the boundary of the previous one.
 *
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
#include "postgres.h"

#include "access/transam.h"
#include "access/xlog.h"
#include "catalog/pg_control.h"
#include "common/controldata_utils.h"
#include "miscadmin.h"

#include "engine/base/shared.h"
#include "engine/durable/durable.h"
#include "engine/format/format.h"
#include "engine/format/path.h"
#include "engine/io/name.h"
#include "engine/restart/restart.h"
#include "engine/buffer/buffer.h"
#include "engine/xact/xact.h"

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
