/*
 * empty.c
 *		flush_all: TRUNCATE of the tables for which the role has the privilege, now or later.
 *
 * It needs locks that other memcached processes would take again and again.  So each table that
 * could not be locked is marked, and the other processes leave it alone until the flush_all is
 * done (process.c).  Tables that the role may not truncate, and those that could be locked, are
 * not marked.
 *
 * A flush_all with a delay is noted in shared memory, and the process "kvfdw memcached reaper"
 * executes it when it is due.  The next flush_all of the same role, with a delay or without,
 * replaces it.
 */
#include "memcached/batch/batch.h"
#include "memcached/connection/connection.h"
#include "memcached/connection/wait.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "utils/memutils.h"

static void
reply_error(KvMcReply *reply, const char *message)
{
	memset(reply, 0, sizeof(*reply));
	reply->outcome = KV_MC_ERROR;
	reply->value = message;
	reply->length = strlen(message);
	kv_mc_counts[KV_MC_COUNT_ERRORS]++;
}

/* ---- doing it ---- */

const char *
kv_mc_empty_tables(Oid role, bool *done, XLogRecPtr *upto)
{
	const char *volatile error = NULL;
	bool		here = upto != NULL && kv_mc_flusher_runs() && kv_mc_has_standbys();

	if (upto != NULL)
		*upto = InvalidXLogRecPtr;

	*done = true;
	PG_TRY();
	{
		kv_mc_begin();
		if (XactReadOnly)
			ereport(ERROR,
					(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
					 errmsg("server is read-only")));
		kv_mc_tables_begin();
		kv_mc_check_role();
		*done = kv_mc_tables_truncate(role);
		if (*done && here)
		{
			kv_mc_commit_here();
			*upto = XactLastCommitEnd;
		}
		else if (*done)
			kv_mc_commit_as(KV_MC_COMMIT_ON, true);
		else
			AbortCurrentTransaction();
		MemoryContextSwitchTo(TopMemoryContext);
	}
	PG_CATCH();
	{
		error = kv_mc_roll_back();
		*done = false;
	}
	PG_END_TRY();
	return error;
}

/* May the role empty some table, on this server?  Returns NULL, or the error. */
static const char *
check_later(Oid role)
{
	const char *volatile error = NULL;

	if (RecoveryInProgress())
		return "25006 server is read-only";
	PG_TRY();
	{
		kv_mc_begin();
		kv_mc_tables_begin();
		if (XactReadOnly)
			error = "25006 server is read-only";
		else if (!kv_mc_tables_may_truncate(role))
			error = "42501 permission denied to truncate any served table";
		CommitTransactionCommand();
		MemoryContextSwitchTo(TopMemoryContext);
	}
	PG_CATCH();
	{
		error = kv_mc_roll_back();
	}
	PG_END_TRY();
	return error;
}

/*
 * Note that the role wants its tables emptied then; 0: not any more.  False: there is no free
 * entry.
 */
static bool
note_later(Oid role, TimestampTz due)
{
	KvMcLater  *place = NULL;

	LWLockAcquire(&kv_mc_shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < KV_MC_MAX_LATER; i++)
	{
		KvMcLater  *later = &kv_mc_shared->later[i];

		if (later->due != 0 && later->role == role)
		{
			place = later;
			break;
		}
		if (later->due == 0 && place == NULL)
			place = later;
	}
	if (place != NULL)
		*place = (KvMcLater) {.role = role, .due = due};
	LWLockRelease(&kv_mc_shared->lock);
	if (due != 0 && kv_mc_shared->reaper_latch != NULL)
		SetLatch(kv_mc_shared->reaper_latch);
	return place != NULL || due == 0;
}

void
kv_mc_empty_noted(KvMcLater noted[KV_MC_MAX_LATER])
{
	LWLockAcquire(&kv_mc_shared->lock, LW_SHARED);
	memcpy(noted, kv_mc_shared->later, sizeof(kv_mc_shared->later));
	LWLockRelease(&kv_mc_shared->lock);
}

void
kv_mc_empty_done(const KvMcLater *done)
{
	LWLockAcquire(&kv_mc_shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < KV_MC_MAX_LATER; i++)
	{
		KvMcLater  *later = &kv_mc_shared->later[i];

		/* unless the role has replaced the flush_all by another one */
		if (later->role == done->role && later->due == done->due)
			later->due = 0;
	}
	LWLockRelease(&kv_mc_shared->lock);
}

/* ---- the request ---- */

static void
do_later(Oid role, int64 exptime, KvMcReply *reply)
{
	TimestampTz now = GetCurrentTimestamp();
	int64		offset = (int64) (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * SECS_PER_DAY;
	int64		expires = kv_mc_expires(exptime, now / USECS_PER_SEC + offset) - offset;
	TimestampTz due = Min(expires, END_TIMESTAMP / USECS_PER_SEC - 1) * USECS_PER_SEC;
	const char *error = check_later(role);

	if (due == 0)				/* the beginning of the year 2000, which would mean none */
		due = 1;
	if (error == NULL && kv_mc_shared->reaper_latch == NULL)
		error = "55000 background worker \"kvfdw memcached reaper\" is not running";
	if (error != NULL)
		reply_error(reply, error);
	else if (!note_later(role, due))
		reply_error(reply, "53400 too many roles have a delayed flush_all pending");
	else
		kv_mc_counts[KV_MC_COUNT_FLUSHES_ALL]++;
}

bool
kv_mc_do_flush(KvMcConnection *conn, const KvMcRequest *request, KvMcReply *reply)
{
	Oid			role = kv_mc_role_of(conn);
	const char *error;
	XLogRecPtr	upto;
	bool		done;

	memset(reply, 0, sizeof(*reply));
	reply->outcome = KV_MC_DONE;
	if (request->exptime > 0)
	{
		do_later(role, request->exptime, reply);
		return true;
	}
	if (!kv_mc_empty_begin(conn))
		return !kv_mc_park(conn, KV_MC_TABLE_BUSY, InvalidTransactionId, reply);
	error = kv_mc_empty_tables(role, &done, &upto);
	if (upto != InvalidXLogRecPtr)
		kv_mc_hold(conn, upto);
	if (error != NULL)
		reply_error(reply, error);
	else if (!done && kv_mc_park(conn, KV_MC_FLUSHING, InvalidTransactionId, reply))
		return false;
	if (done && error == NULL)
	{
		kv_mc_counts[KV_MC_COUNT_FLUSHES_ALL]++;
		(void) note_later(role, 0);
	}
	kv_mc_empty_over();
	return true;
}
