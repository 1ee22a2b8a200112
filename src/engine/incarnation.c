/*
 * incarnation.c
 *		Incarnations, and the control file that remembers them.
 *
 * An incarnation is one run of the server between two starts.  After a crash
 * the xids whose records never reached the WAL are handed out again (F 2), so
 * every entry carries the incarnation that wrote it, and the control file
 * keeps, for each dead incarnation, the first xid that was not in the WAL: its
 * boundary.  An entry of a dead incarnation at or above its boundary is
 * aborted (I 10).  What redo writes has the incarnation 0: it is in the WAL, so
 * its xids are never handed out again and clog alone decides.
 *
 * The boundary must be on disk before the server assigns an xid:
 *  - when shared memory is made (before recovery) the new incarnation is begun
 *    and the dead one's boundary set to pg_control's nextXid, which is exact
 *    if there is nothing to redo;
 *  - if there is, rm_cleanup runs at the end of redo, in the startup process,
 *    before anybody can connect, and raises the boundary to the nextXid found
 *    there.
 * Between the two the boundary is provisional.  If the server dies there, the
 * incarnation never ran; the next start finds the mark, begins it again and
 * lets its own recovery raise the boundary.  A start that had nothing to redo
 * never takes the mark off, but it ends with a new checkpoint in pg_control,
 * which an unfinished one does not.
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/xlog.h"
#include "catalog/pg_control.h"
#include "common/controldata_utils.h"
#include "miscadmin.h"

#include "engine/internal.h"

#define KV_CONTROL_PATH "kvfdw/control"
#define KV_CONTROL_VERSION 2

typedef struct KvControlFile
{
	uint32		magic;
	uint32		format_version;
	uint64		system_identifier;
	uint32		incarnation;
	uint32		ndead;
	uint64		checkpoint;		/* pg_control's, when this was written */
	KvIncarnation dead[KV_MAX_INCARNATIONS];
	uint32		provisional;	/* the last boundary may still rise */

	/* not in version 1 */
	uint32		rebuilding;		/* redo has not yet rebuilt what was set back */
	KvIdentity	identity;		/* where and under which kernel this was written */
	uint64		covered;		/* in recovery: images reach up to this position of the WAL */
	uint32		pad;
	uint32		crc;
} KvControlFile;

StaticAssertDecl(sizeof(KvControlFile) == 16504, "control file size");

/* Version 1 ended with the mark and a CRC. */
#define KV_CONTROL_V1_SIZE	(offsetof(KvControlFile, rebuilding) + sizeof(uint32))

static KvIdentity identity;
static uint64 covered = 0;

static uint32
control_crc(const KvControlFile *control)
{
	return kv_crc(control, offsetof(KvControlFile, crc));
}

static void
write_control(void)
{
	static KvControlFile control;

	memset(&control, 0, sizeof(control));
	control.magic = KV_MAGIC_CONTROL;
	control.format_version = KV_CONTROL_VERSION;
	control.system_identifier = kv_shared->system_identifier;
	control.incarnation = kv_shared->incarnation;
	control.ndead = kv_shared->nincarnations;
	control.checkpoint = kv_shared->checkpoint;
	control.provisional = kv_shared->boundary_provisional;
	control.rebuilding = kv_shared->rebuilding;
	control.identity = identity;
	control.covered = covered;
	memcpy(control.dead, kv_shared->incarnations, sizeof(control.dead));
	control.crc = control_crc(&control);
	kv_io_replace(KV_CONTROL_PATH, &control, sizeof(control), true);
}

/* The control file, palloc'd in the form of this version; NULL if there is none. */
static KvControlFile *
read_control(void)
{
	Size		len;
	KvControlFile *file = (KvControlFile *) kv_io_slurp(KV_CONTROL_PATH, &len);
	KvControlFile *control;
	bool		sound;

	if (file == NULL)
		return NULL;
	if (len >= 8 && file->magic == KV_MAGIC_CONTROL &&
		(file->format_version < 1 || file->format_version > KV_CONTROL_VERSION))
		ereport(FATAL,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("file \"%s\" has format version %u, this library reads versions 1 to %u",
						KV_CONTROL_PATH, file->format_version, KV_CONTROL_VERSION)));
	if (len < 8 || file->magic != KV_MAGIC_CONTROL)
		sound = false;
	else if (file->format_version == 1)
		sound = len == KV_CONTROL_V1_SIZE &&
			file->rebuilding == kv_crc(file, offsetof(KvControlFile, rebuilding));
	else
		sound = len == sizeof(KvControlFile) && file->crc == control_crc(file);
	if (!sound)
		ereport(FATAL,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("file \"%s\" is damaged", KV_CONTROL_PATH),
				 errhint("Restore it from a backup, or move the directory \"kvfdw\" away to start without its tables' data.")));
	if (file->system_identifier != kv_shared->system_identifier)
		ereport(FATAL,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("directory \"kvfdw\" belongs to another database cluster"),
				 errdetail("Its system identifier is %llu, this cluster's is %llu.",
						   (unsigned long long) file->system_identifier,
						   (unsigned long long) kv_shared->system_identifier),
				 errhint("Move the directory away.")));
	control = palloc0(sizeof(KvControlFile));
	memcpy(control, file, Min(len, sizeof(KvControlFile)));
	if (file->format_version == 1)
	{
		/* it was believed without question */
		control->rebuilding = 0;
		control->identity = identity;
	}
	pfree(file);
	return control;
}

/* Go on from what the control file says. */
static void
resume(const KvControlFile *control, bool finished, uint64 next_xid)
{
	bool		ran = !control->provisional ||
		(finished && control->checkpoint != kv_shared->checkpoint);

	kv_shared->incarnation = control->incarnation;
	kv_shared->nincarnations = control->ndead;
	memcpy(kv_shared->incarnations, control->dead, sizeof(control->dead));
	if (ran)
	{
		KvIncarnation *dead;

		if (kv_shared->nincarnations == KV_MAX_INCARNATIONS)
			ereport(FATAL,
					(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
					 errmsg("kvfdw has been restarted %d times without settling its tables",
							KV_MAX_INCARNATIONS),
					 errdetail("Some table could not be recovered at any of them; the server log tells which."),
					 errhint("Move the directory \"kvfdw\" away to start without its tables' data.")));
		dead = &kv_shared->incarnations[kv_shared->nincarnations++];
		dead->number = kv_shared->incarnation++;
		dead->pad = 0;
		dead->boundary = next_xid;
	}
	else if (kv_shared->nincarnations > 0)
	{
		KvIncarnation *dead = &kv_shared->incarnations[kv_shared->nincarnations - 1];

		dead->boundary = Max(dead->boundary, next_xid);
	}
}

/*
 * Begin an incarnation.  In the postmaster, when shared memory has just been
 * made.  FATAL if the directory belongs to another cluster or is damaged: the
 * operator must say what is to become of it.
 */
void
kv_incarnation_startup(void)
{
	bool		crc_ok;
	ControlFileData *pg_control = get_controlfile(DataDir, &crc_ok);
	uint64		next_xid = U64FromFullTransactionId(pg_control->checkPointCopy.nextXid);
	DBState		state = pg_control->state;
	uint64		redo = pg_control->checkPointCopy.redo;
	bool		same_boot = true;
	bool		copied = false;
	bool		images_old;
	bool		signalled = access(STANDBY_SIGNAL_FILE, F_OK) == 0 ||
		access(RECOVERY_SIGNAL_FILE, F_OK) == 0;
	KvReset		reset = {0};
	KvControlFile *control;

	kv_trust_read_label(&reset);
	kv_shared->system_identifier = pg_control->system_identifier;
	kv_shared->incarnation = 1;
	kv_shared->nincarnations = 0;
	kv_shared->checkpoint = pg_control->checkPoint;
	kv_shared->boundary_provisional = state != DB_SHUTDOWNED;

	/*
	 * A primary that is stopped while it recovers from a crash is "shut down in
	 * recovery" as well, but has no minimum recovery point.
	 */
	kv_shared->follows = reset.backup_redo != 0 || signalled ||
		state == DB_IN_ARCHIVE_RECOVERY ||
		(state == DB_SHUTDOWNED_IN_RECOVERY && pg_control->minRecoveryPoint != 0);
	pfree(pg_control);

	kv_io_mkdir("kvfdw");
	kv_trust_identity(&identity);
	control = read_control();
	if (control != NULL)
	{
		resume(control,
			   state == DB_IN_PRODUCTION || state == DB_SHUTDOWNED || state == DB_SHUTDOWNING,
			   next_xid);
		covered = control->covered;
		same_boot = kv_trust_same_boot(&control->identity, &identity);
		copied = reset.backup_redo != 0 ||
			!kv_trust_same_place(&control->identity, &identity);
		kv_shared->rebuilding = control->rebuilding;
		pfree(control);
	}
	else if (kv_numbered_entries("kvfdw") != NIL)
		ereport(FATAL,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("file \"%s\" is missing", KV_CONTROL_PATH),
				 errhint("Restore it from a backup, or move the directory \"kvfdw\" away to start without its tables' data.")));

	/* the label of a standby's backup tells of its last restartpoint */
	if (reset.backup_redo != 0)
		redo = reset.backup_of_primary ? 0 : reset.backup_redo;
	images_old = covered != 0 && redo > covered;

	/*
	 * A server that follows may be led to a point before one that it has been at,
	 * if no page of a later state was written: to an earlier target, or to a
	 * timeline that left this one.  Images are never ahead of such a point
	 * (kv_wal_flush), what else was replayed may be.
	 */
	reset.set_back = copied || !same_boot || (kv_shared->follows && !images_old);
	reset.values_lost = (copied && state != DB_SHUTDOWNED) || kv_shared->follows;
	reset.images_old = reset.set_back && images_old;
	kv_shared->rebuilding |= reset.set_back || kv_shared->follows;
	kv_shared->set_back = reset.set_back;
	if (!kv_shared->follows)
		covered = 0;			/* every checkpoint waits for its barrier */

	/* done again if it is not finished: the control file still tells the old story */
	if (reset.set_back || reset.values_lost)
		kv_trust_reset_stores(&reset);
	write_control();
}

/*
 * What carries this number now: 0 in recovery, when all that is written comes
 * out of the WAL.
 */
uint32
kv_writing_incarnation(void)
{
	return RecoveryInProgress() ? 0 : kv_shared->incarnation;
}

/* End of redo: every xid below the next one may have a WAL record, none above. */
void
kv_incarnation_redo_done(void)
{
	uint64		next_xid = U64FromFullTransactionId(ReadNextFullTransactionId());

	if (kv_shared->nincarnations > 0)
		kv_shared->incarnations[kv_shared->nincarnations - 1].boundary = next_xid;
	kv_shared->boundary_provisional = false;
	write_control();
}

/* Does the boundary of its incarnation say that this xid aborted (I 10)? */
bool
kv_incarnation_aborted(uint32 incarnation, uint64 xid)
{
	if (incarnation == kv_shared->incarnation)
		return false;
	for (int i = kv_shared->nincarnations - 1; i >= 0; i--)
	{
		const KvIncarnation *dead = &kv_shared->incarnations[i];

		if (dead->number == incarnation)
			return xid >= dead->boundary;
		if (dead->number < incarnation)
			break;
	}
	return false;
}

/*
 * Forget the dead incarnations: the maintainer has rewritten every entry that
 * named one of them.
 */
void
kv_incarnations_settled(void)
{
	LWLockAcquire(&kv_shared->control_lock, LW_EXCLUSIVE);
	kv_shared->nincarnations = 0;
	write_control();
	LWLockRelease(&kv_shared->control_lock);
}

/* All that redo has rebuilt is durable: from now on the stores are believed. */
void
kv_incarnation_rebuilt(void)
{
	LWLockAcquire(&kv_shared->control_lock, LW_EXCLUSIVE);
	if (kv_shared->rebuilding || covered != 0)
	{
		kv_shared->rebuilding = false;
		covered = 0;
		write_control();
	}
	LWLockRelease(&kv_shared->control_lock);
}

/* Replay has made images of all that the WAL says up to this position. */
void
kv_incarnation_covered(uint64 lsn)
{
	LWLockAcquire(&kv_shared->control_lock, LW_EXCLUSIVE);
	covered = lsn;
	write_control();
	LWLockRelease(&kv_shared->control_lock);
}
