/*
 * wal.c
 *		What ties the engine to the server's WAL: the resource manager, the
 *		marker record, and the incarnations.
 *
 * At wal level 'none' no value goes into the WAL.  Each writing
 * (sub)transaction inserts one tiny record (an XLOG_NOOP: nothing replays it,
 * so the WAL stays readable without this library), because a commit without
 * WAL would not be flushed (F 1).
 *
 * An incarnation is one run of the server between two starts.  After a crash
 * the xids whose records never reached the WAL are handed out again (F 2), so
 * every entry carries the incarnation that wrote it, and the control file
 * keeps, for each dead incarnation, the first xid that was not in the WAL: its
 * boundary.  An entry of a dead incarnation at or above its boundary is
 * aborted (I 10).
 *
 * The boundary must be on disk before the server assigns an xid:
 *  - when shared memory is made (before recovery) the new incarnation is begun
 *    and the dead one's boundary set to pg_control's nextXid, which is exact
 *    if there is nothing to redo;
 *  - if there is, rm_cleanup runs at the end of redo, in the startup process,
 *    before anybody can connect, and raises the boundary to the nextXid found
 *    there.  The resource manager is registered for this callback alone.
 * Between the two the boundary is provisional.  If the server dies there, the
 * incarnation never ran; the next start finds the mark, begins it again and
 * lets its own recovery raise the boundary.  A start that had nothing to redo
 * never takes the mark off, but it ends with a new checkpoint in pg_control,
 * which an unfinished one does not.
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "access/xloginsert.h"
#include "catalog/pg_control.h"
#include "common/controldata_utils.h"
#include "miscadmin.h"

#include "engine/internal.h"

#define KV_CONTROL_PATH "kvfdw/control"
#define KV_RMGR_ID		201		/* of the custom range, 128 to 255 */

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
	uint32		crc;
} KvControlFile;

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
	control.format_version = KV_FORMAT_VERSION;
	control.system_identifier = kv_shared->system_identifier;
	control.incarnation = kv_shared->incarnation;
	control.ndead = kv_shared->nincarnations;
	control.checkpoint = kv_shared->checkpoint;
	control.provisional = kv_shared->boundary_provisional;
	memcpy(control.dead, kv_shared->incarnations, sizeof(control.dead));
	control.crc = control_crc(&control);
	kv_io_replace(KV_CONTROL_PATH, &control, sizeof(control), true);
}

/*
 * Begin an incarnation.  In the postmaster, when shared memory has just been
 * made.  FATAL if the directory belongs to another cluster or is damaged: the
 * operator must say what is to become of it.
 */
void
kv_wal_startup(void)
{
	bool		crc_ok;
	ControlFileData *pg_control = get_controlfile(DataDir, &crc_ok);
	uint64		next_xid = U64FromFullTransactionId(pg_control->checkPointCopy.nextXid);
	bool		finished;
	bool		ran;
	KvControlFile *control;
	Size		len;

	kv_shared->system_identifier = pg_control->system_identifier;
	kv_shared->incarnation = 1;
	kv_shared->nincarnations = 0;
	kv_shared->checkpoint = pg_control->checkPoint;
	kv_shared->boundary_provisional = pg_control->state != DB_SHUTDOWNED;
	finished = pg_control->state == DB_IN_PRODUCTION ||
		pg_control->state == DB_SHUTDOWNED ||
		pg_control->state == DB_SHUTDOWNING;
	pfree(pg_control);

	kv_io_mkdir("kvfdw");
	control = (KvControlFile *) kv_io_slurp(KV_CONTROL_PATH, &len);
	if (control != NULL)
	{
		if (len >= 8 && control->magic == KV_MAGIC_CONTROL &&
			control->format_version != KV_FORMAT_VERSION)
			ereport(FATAL,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("file \"%s\" has format version %u, this library reads version %u",
							KV_CONTROL_PATH, control->format_version, KV_FORMAT_VERSION)));
		if (len != sizeof(KvControlFile) || control->magic != KV_MAGIC_CONTROL ||
			control->crc != control_crc(control))
			ereport(FATAL,
					(errcode(ERRCODE_DATA_CORRUPTED),
					 errmsg("file \"%s\" is damaged", KV_CONTROL_PATH),
					 errhint("Restore it from a backup, or move the directory \"kvfdw\" away to start without its tables' data.")));
		if (control->system_identifier != kv_shared->system_identifier)
			ereport(FATAL,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("directory \"kvfdw\" belongs to another database cluster"),
					 errdetail("Its system identifier is %llu, this cluster's is %llu.",
							   (unsigned long long) control->system_identifier,
							   (unsigned long long) kv_shared->system_identifier),
					 errhint("Move the directory away.")));

		kv_shared->incarnation = control->incarnation;
		kv_shared->nincarnations = control->ndead;
		memcpy(kv_shared->incarnations, control->dead, sizeof(control->dead));
		ran = !control->provisional ||
			(finished && control->checkpoint != kv_shared->checkpoint);
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
		pfree(control);
	}
	else if (kv_numbered_entries("kvfdw") != NIL)
		ereport(FATAL,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("file \"%s\" is missing", KV_CONTROL_PATH),
				 errhint("Restore it from a backup, or move the directory \"kvfdw\" away to start without its tables' data.")));
	write_control();
}

/* End of redo: every xid below the next one may have a WAL record, none above. */
static void
redo_cleanup(void)
{
	uint64		next_xid = U64FromFullTransactionId(ReadNextFullTransactionId());

	if (kv_shared == NULL || kv_shared->nincarnations == 0)
		return;
	kv_shared->incarnations[kv_shared->nincarnations - 1].boundary = next_xid;
	kv_shared->boundary_provisional = false;
	write_control();
}

/* Level 'none' logs nothing of its own, so there is nothing to replay. */
static void
redo_record(XLogReaderState *record)
{
	elog(PANIC, "kvfdw: unexpected WAL record type %u", XLogRecGetInfo(record));
}

static void
describe_record(StringInfo buf, XLogReaderState *record)
{
	appendStringInfo(buf, "unknown");
}

static const char *
identify_record(uint8 info)
{
	return NULL;
}

static KV_RMGR_CONST RmgrData kv_rmgr = {
	.rm_name = "kvfdw",
	.rm_redo = redo_record,
	.rm_desc = describe_record,
	.rm_identify = identify_record,
	.rm_cleanup = redo_cleanup,
};

void
kv_wal_register(void)
{
	RegisterCustomRmgr(KV_RMGR_ID, &kv_rmgr);
}

/* The smallest record that there is; it carries the current xid, if any. */
static XLogRecPtr
insert_noop(void)
{
	uint8		byte = 0;

	XLogBeginInsert();
	XLogRegisterData((char *) &byte, sizeof(byte));
	return XLogInsert(RM_XLOG_ID, XLOG_NOOP);
}

/* Give the current (sub)transaction, whose xid this is, a WAL record (F 1). */
void
kv_wal_mark_transaction(TransactionId xid)
{
	Assert(TransactionIdIsValid(xid));
	(void) insert_noop();
}

/* Make every record inserted so far durable, whoever inserted it. */
void
kv_wal_flush(void)
{
	/*
	 * The insert position itself may lie behind a page header that is not
	 * written yet; the end of a record of our own is safe to flush up to.
	 */
	XLogFlush(insert_noop());
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
