/*
 * visibility.c
 *		Which version a snapshot sees (I 1), by the rules of heapam_visibility.c.
 *
 * A version carries its full xid and command id.  Own transactions go by
 * command id; then the snapshot decides who was running; clog is asked last.
 * What was learned is kept in the version's status, a byte that concurrent
 * readers may set at the same time because they all set the same value.
 *
 * A version of a dead incarnation is resolved by that incarnation's boundary
 * (I 10) before clog may be asked: its xid may have been handed out again.
 */
#include "postgres.h"

#include "access/subtrans.h"
#include "access/transam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "access/xlogrecovery.h"
#include "storage/procarray.h"
#include "utils/snapmgr.h"

#include "compat.h"
#include "engine/base/types.h"
#include "engine/engine.h"
#include "engine/xact/xact.h"

static void
note_conflict(KvConflicts *into, TransactionId xid)
{
	if (into->n > 0 && into->xids[into->n - 1] == xid)
		return;
	if (into->n == into->room)
	{
		into->room *= 2;
		into->xids = repalloc(into->xids, into->room * sizeof(TransactionId));
	}
	into->xids[into->n++] = xid;
}

/* Is the xid one that had not ended when the snapshot was taken? */
static bool
in_snapshot(TransactionId xid, const KvView *view)
{
	if (!XidInMVCCSnapshot(xid, view->snapshot))
		return false;
	if (view->conflicts != NULL)
		note_conflict(view->conflicts, xid);
	return true;
}

bool
kv_xid_is_mine(uint64 xid)
{
	return TransactionIdIsCurrentTransactionId((TransactionId) xid);
}

/* The 64-bit form of an xid that is not ahead of the next one. */
static uint64
full_xid(TransactionId xid)
{
	FullTransactionId next = ReadNextFullTransactionId();
	uint32		epoch = EpochFromFullTransactionId(next);

	if (xid > XidFromFullTransactionId(next))
		epoch--;
	return U64FromFullTransactionId(FullTransactionIdFromEpochAndXid(epoch, xid));
}

/*
 * Does clog still have this xid?  It goes by whole segments, and says so before it
 * removes any, so who finds it here and is overtaken gets an ERROR, not a lie.
 */
bool
kv_clog_has(uint64 xid)
{
	TransactionId oldest = KV_OLDEST_CLOG_XID;

	/* without the lock that the next xid needs, for this is asked for each version */
	return !TransactionIdPrecedes((TransactionId) xid,
								  oldest - oldest % (TransactionId) KV_CLOG_SEGMENT);
}

/* Never ask clog about what it does not have: in recovery it would make something up. */
static void
require_clog(uint64 xid)
{
	if (unlikely(!kv_clog_has(xid)))
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("status of transaction %llu, which changed a kvfdw table, is unknown",
						(unsigned long long) xid),
				 errdetail("The commit log was truncated before the table had recorded whether the "
						   "transaction committed."),
				 errhint("Restore the table's rows from a backup.")));
}

/*
 * What has become of a transaction so far as the WAL is replayed.  Who has left no
 * trace in clog may still do so; who runs is not known before a standby is
 * consistent, and need not be.
 */
static KvXidStatus
replayed_status(uint64 xid)
{
	TransactionId short_xid = (TransactionId) xid;

	if (xid >= U64FromFullTransactionId(ReadNextFullTransactionId()))
		return KV_XID_UNKNOWN;
	require_clog(xid);
	if (TransactionIdDidCommit(short_xid))
		return KV_XID_COMMITTED;
	return TransactionIdDidAbort(short_xid) ? KV_XID_ABORTED : KV_XID_UNKNOWN;
}

KvXidStatus
kv_xid_status(uint64 xid, uint32 incarnation)
{
	TransactionId short_xid = (TransactionId) xid;

	if (kv_incarnation_aborted(incarnation, xid))
		return KV_XID_ABORTED;
	if (RecoveryInProgress())
		return replayed_status(xid);
	if (TransactionIdIsCurrentTransactionId(short_xid) ||
		TransactionIdIsInProgress(short_xid))
		return KV_XID_UNKNOWN;
	require_clog(xid);
	return TransactionIdDidCommit(short_xid) ? KV_XID_COMMITTED : KV_XID_ABORTED;
}

bool
kv_version_visible(KvVersion *version, const KvView *view, uint32 incarnation)
{
	TransactionId xid = (TransactionId) version->xid;

	if (version->kind == KV_VERSION_LOCK)
		return false;
	if (version->xid == 0)
		return true;
	if (version->status == KV_XID_ABORTED)
		return false;
	if (version->status == KV_XID_COMMITTED)
		return !in_snapshot(xid, view);

	if (kv_incarnation_aborted(incarnation, version->xid))
	{
		version->status = KV_XID_ABORTED;
		return false;
	}
	if (TransactionIdIsCurrentTransactionId(xid))
		return version->cid < view->snapshot->curcid;
	if (in_snapshot(xid, view))
		return false;
	require_clog(version->xid);
	if (TransactionIdDidCommit(xid))
	{
		version->status = KV_XID_COMMITTED;
		return true;
	}
	/* not running, not committed: it aborted, or died with its process */
	version->status = KV_XID_ABORTED;
	return false;
}

/* Is one of these xids between the two, both inclusive? */
static bool
any_between(const TransactionId *xids, int n, TransactionId first, TransactionId last)
{
	for (int i = 0; i < n; i++)
	{
		if (TransactionIdFollowsOrEquals(xids[i], first) &&
			TransactionIdPrecedesOrEquals(xids[i], last))
			return true;
	}
	return false;
}

/*
 * What a snapshot says of each xid (XidInMVCCSnapshot), of many at once.  Where subtransactions
 * are missing from it only what is before its xmin is known to have ended.
 */
bool
kv_view_sees_all(const KvView *view, uint64 first, uint64 last)
{
	const SnapshotData *snapshot = view->snapshot;

	if (snapshot == NULL || snapshot->snapshot_type != SNAPSHOT_MVCC)
		return false;
	if (last == 0 || TransactionIdPrecedes((TransactionId) last, snapshot->xmin))
		return true;
	if (snapshot->suboverflowed || !TransactionIdPrecedes((TransactionId) last, snapshot->xmax))
		return false;

	/* xids of a snapshot compare with none that is further away; none of them is so old */
	if (last - first > PG_INT32_MAX)
		first = last - PG_INT32_MAX;
	return !any_between(snapshot->xip, snapshot->xcnt,
						(TransactionId) first, (TransactionId) last) &&
		!any_between(snapshot->subxip, snapshot->subxcnt,
					 (TransactionId) first, (TransactionId) last);
}

uint64
kv_xid_horizon(void)
{
	/* before a standby serves anybody there are no snapshots; later ones see all this */
	if (RecoveryInProgress() && !HotStandbyActive())
		return pg_atomic_read_u64(&kv_incarnations->replayed_horizon);
	return full_xid(GetOldestNonRemovableTransactionId(NULL));
}

uint64
kv_xid_ended(void)
{
	if (RecoveryInProgress())
		return Max(kv_xid_horizon(), pg_atomic_read_u64(&kv_incarnations->replayed_horizon));
	return full_xid(kv_oldest_running_xid());
}

bool
kv_xid_was_lost(uint64 xid, uint32 incarnation)
{
	return kv_incarnation_aborted(incarnation, xid);
}

uint64
kv_current_xid(bool mark)
{
	static TransactionId marked = InvalidTransactionId;
	FullTransactionId full = GetCurrentFullTransactionId();
	TransactionId xid = XidFromFullTransactionId(full);

	if (mark && xid != marked)
	{
		kv_wal_mark_transaction(xid);
		marked = xid;
	}
	return U64FromFullTransactionId(full);
}
