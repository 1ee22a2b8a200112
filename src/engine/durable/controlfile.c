/*
 * controlfile.c
 *		The control file, kvfdw/control: incarnations, and the coverage of marks.
 *
 * restart/trust.c sets the boundaries of dead incarnations.
 *
 * It also says whether the marks are complete: whether they have all that was logged, and no
 * process has written since.  This is recorded by the engine itself, durably, before it is
 * used:
 *
 *  - taken back before the checkpointer lets the first writer through
 *    (checkpoint/checkpointer.c);
 *  - given when the checkpointer has stopped the writers and made the last marks, and at the
 *    end of redo;
 *  - KV_COMPLETE_UNLESS_REDO after a start that found pg_control at a shutdown checkpoint,
 *    because the WAL may end there.  If nothing is replayed redo_cleanup is not called; the
 *    marks, made before that checkpoint, are complete then.
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/xlog.h"
#include "miscadmin.h"

#include "engine/base/hash.h"
#include "engine/base/shared.h"
#include "engine/durable/durable.h"
#include "engine/format/format.h"
#include "engine/io/name.h"
#include "engine/shard/shard.h"
#include "engine/xact/xact.h"

/*
 * A start reads this file before it uses any other, so this version stands for the directory.
 * Development snapshots wrote versions 1 to 6.
 */
#define KV_CONTROL_VERSION	7

KvControl  *kv_control = NULL;

static KvProof proof;			/* of this start; set in the postmaster */

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
	control.system_identifier = GetSystemIdentifier();
	control.incarnation = kv_incarnations->current;
	control.ndead = kv_incarnations->ndead;
	control.checkpoint = kv_control->checkpoint;
	control.provisional = kv_incarnations->provisional;
	control.complete = kv_control->complete;
	control.covered = kv_control->covered;
	control.proof = proof;
	control.directory_id = kv_directory_id();
	control.server_id = kv_server_id();
	memcpy(control.former_ids, kv_base->former_ids, sizeof(control.former_ids));
	control.late = kv_control->late;
	control.stop_xid = kv_control->stop_xid;
	control.takeovers = kv_control->takeovers;
	control.by_pg_upgrade = IsBinaryUpgrade;
	memcpy(control.dead, kv_incarnations->dead, sizeof(control.dead));
	control.crc = control_crc(&control);
	kv_io_replace(KV_CONTROL_PATH, &control, sizeof(control), true);
}

void
kv_control_begin(const KvProof *now)
{
	proof = *now;
	write_control();
}

void
kv_control_note_ids(void)
{
	write_control();
}

KvControlFile *
kv_control_read(void)
{
	Size		len;
	KvControlFile *file = (KvControlFile *) kv_io_slurp(KV_CONTROL_PATH, &len);
	bool		sound;

	if (file == NULL)
		return NULL;
	sound = len >= offsetof(KvControlFile, system_identifier) && file->magic == KV_MAGIC_CONTROL;
	if (sound)
		kv_format_require(KV_CONTROL_PATH, file->format_version, KV_CONTROL_VERSION);
	if (!sound || len != sizeof(KvControlFile) || file->crc != control_crc(file))
		ereport(FATAL,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("file \"%s\" is damaged", KV_CONTROL_PATH),
				 errhint("Restore the data directory from a backup.")));
	return file;
}

/* End of redo: every xid below the next one may have a WAL record, none above. */
void
kv_incarnation_redo_done(void)
{
	uint64		next_xid = U64FromFullTransactionId(ReadNextFullTransactionId());

	if (kv_incarnations->ndead > 0)
		kv_incarnations->dead[kv_incarnations->ndead - 1].boundary = next_xid;
	kv_incarnations->provisional = false;
	write_control();
}

void
kv_incarnations_resolved(void)
{
	LWLockAcquire(&kv_registry->lock, LW_EXCLUSIVE);
	kv_incarnations->ndead = 0;
	write_control();
	LWLockRelease(&kv_registry->lock);
}

void
kv_incarnation_complete(bool is)
{
	KvComplete	now = is ? KV_COMPLETE : KV_COMPLETE_NOT;

	LWLockAcquire(&kv_registry->lock, LW_EXCLUSIVE);
	if (kv_control->complete != now || kv_control->covered != 0)
	{
		uint64		covered = kv_control->covered;

		kv_control->complete = now;
		kv_control->covered = 0;
		if (is)
			kv_control->stop_xid = U64FromFullTransactionId(ReadNextFullTransactionId());
		PG_TRY();
		{
			write_control();
		}
		PG_CATCH();
		{
			/* the file's content is unknown now, so the next call must write it in any case */
			kv_control->complete = KV_COMPLETE_UNLESS_REDO;
			kv_control->covered = covered;
			PG_RE_THROW();
		}
		PG_END_TRY();
	}
	LWLockRelease(&kv_registry->lock);
}

void
kv_incarnation_covered(uint64 lsn, uint64 late)
{
	LWLockAcquire(&kv_registry->lock, LW_EXCLUSIVE);
	kv_control->covered = lsn;
	kv_control->late = late;
	write_control();
	LWLockRelease(&kv_registry->lock);
}

uint64
kv_marks_reach(void)
{
	return Max(kv_control->covered, kv_control->begins);
}
