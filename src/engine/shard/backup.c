/*
 * backup.c
 *		Detects base backups. While one runs, no file that it may need is removed.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "replication/walsender.h"
#include "replication/walsender_private.h"
#include "storage/procarray.h"
#include "storage/spin.h"

#include "engine/engine.h"
#include "engine/io/fault.h"
#include "engine/shard/shard.h"

#define KV_BACKUPS_RUN	1

KvBackups  *kv_backups = NULL;

static bool noted = false;

void
kv_backups_init(void)
{
	SpinLockInit(&kv_backups->mutex);
	pg_atomic_init_u32(&kv_backups->run, 0);
}

void
kv_engine_note_backup(bool running)
{
	if (running == noted || !kv_engine_ready())
		return;
	SpinLockAcquire(&kv_backups->mutex);
	for (int i = 0; i < KV_MAX_BACKUPS; i++)
	{
		int		   *pid = &kv_backups->pids[i];

		if (*pid == (running ? 0 : MyProcPid))
		{
			*pid = running ? MyProcPid : 0;
			noted = running;
			break;
		}
	}
	SpinLockRelease(&kv_backups->mutex);
	if (!running)
		noted = false;
	else if (!noted)
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("cannot begin more than %d backups at a time while kvfdw is loaded",
						KV_MAX_BACKUPS)));
}

/*
 * Is a base backup being taken?  WAL senders show one.  A session that calls pg_backup_start is
 * noted before it requests its checkpoint.
 */
static bool
backup_runs(void)
{
	bool		runs = false;

	for (int i = 0; i < KV_MAX_BACKUPS; i++)
	{
		int			pid = kv_backups->pids[i];

		if (pid == 0)
			continue;
		if (BackendPidGetProc(pid) != NULL)
		{
			runs = true;
			continue;
		}

		/* another session may have this entry already */
		SpinLockAcquire(&kv_backups->mutex);
		if (kv_backups->pids[i] == pid)
			kv_backups->pids[i] = 0;
		SpinLockRelease(&kv_backups->mutex);
	}
	for (int i = 0; i < max_wal_senders && !runs; i++)
	{
		WalSnd	   *sender = &WalSndCtl->walsnds[i];

		SpinLockAcquire(&sender->mutex);
		runs = sender->pid != 0 && sender->state == WALSNDSTATE_BACKUP;
		SpinLockRelease(&sender->mutex);
	}
	return runs;
}

/*
 * A process that sees a backup always says so, with a new counter value.  A process that sees none
 * clears the flag only if the counter is unchanged: a backup may have begun after the check.
 */
void
kv_backups_look(void)
{
	uint32		before = pg_atomic_read_u32(&kv_backups->run);
	bool		runs = backup_runs();

	KV_STOP_POINT("backups_looked");
	if (!runs)
		(void) pg_atomic_compare_exchange_u32(&kv_backups->run, &before, before & ~KV_BACKUPS_RUN);
	else
	{
		while (!pg_atomic_compare_exchange_u32(&kv_backups->run, &before,
											   (before + 2) | KV_BACKUPS_RUN))
			;
	}
}

bool
kv_backups_run(void)
{
	if (pg_atomic_read_u32(&kv_backups->run) & KV_BACKUPS_RUN)
		return true;
	for (int i = 0; i < KV_MAX_BACKUPS; i++)
	{
		if (kv_backups->pids[i] != 0)
			return true;
	}
	return false;
}
