/*
 * visibility.c
 *		Which version a snapshot sees (I 1), by the rules of heapam_visibility.c.
 *
 * A version carries its full xid and command id.  For own transactions the command id decides;
 * then the snapshot decides which were running; clog is read last.  The result is kept in the
 * version's status, a byte that concurrent readers may set at the same time because they all
 * set the same value.
 *
 * A version of a dead incarnation is resolved by that incarnation's boundary (I 10) before clog
 * is read: its xid may have been assigned again.  An incarnation is one run of the server between
 * two starts; restart/trust.c begins them and keeps their boundaries in the control file.
 * The table of boundaries takes no lock: it is written at the start and at the end of redo, and
 * emptied when no file needs it any more.
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
#include "engine/store.h"
#include "engine/xact/xact.h"

KvIncarnations *kv_incarnations = NULL;

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

bool
kv_version_is_mine(uint64 xid, uint32 incarnation)
{
	return kv_xid_is_mine(xid) && !kv_incarnation_aborted(incarnation, xid);
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
 * Does clog still have this xid?  Clog is truncated by whole segments, after the new limit is
 * published.  So a caller that is overtaken by a truncation gets an ERROR, not a wrong status.
 */
bool
kv_clog_has(uint64 xid)
{
	TransactionId oldest = KV_OLDEST_CLOG_XID;

	/* without the lock of the next xid, because this is called for each version */
	return !TransactionIdPrecedes((TransactionId) xid,
								  oldest - oldest % (TransactionId) KV_CLOG_SEGMENT);
}

/* Never read a missing part of clog: in recovery it would read as zeros. */
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
 * The status of a transaction as far as the WAL is replayed.  A transaction without a status in
 * clog may still get one.  Running transactions are not known before a standby is consistent,
 * and need not be.
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
	/* not running and not committed: it aborted, or ended with its process */
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
 * Checks many xids against a snapshot at once, as XidInMVCCSnapshot does for one.  If
 * subtransactions are missing from the snapshot only xids before its xmin are known to have
 * ended.
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

	/* a snapshot's xids compare only within this distance; none of them is so old */
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
	TransactionId xmin;
	TransactionId catalog_xmin;

	/* before a standby accepts connections there are no snapshots; later ones see all this */
	if (RecoveryInProgress() && !HotStandbyActive())
		return pg_atomic_read_u64(&kv_incarnations->replayed_horizon);
	/*
	 * not GetOldestNonRemovableTransactionId(NULL), which is also that of catalogs: a logical
	 * replication slot that is not read would keep all old versions
	 */
	GetReplicationHorizons(&xmin, &catalog_xmin);
	return full_xid(xmin);
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

/* ---- incarnations ---- */

void
kv_incarnations_init(void)
{
	if (!pg_strong_random(&kv_incarnations->run, sizeof(kv_incarnations->run)))
		ereport(FATAL,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not generate random numbers")));
	pg_atomic_init_u64(&kv_incarnations->replayed_horizon, 0);
}

uint32
kv_writing_incarnation(void)
{
	return RecoveryInProgress() ? 0 : kv_incarnations->current;
}

/*
 * In recovery the boundary of the incarnation whose WAL is replayed has at least the xids that
 * the WAL has named so far.  Clog has their status as far as that is replayed.  A mark may have
 * versions of them that are not in the WAL (lifecycle/unlogged.c).
 */
static uint64
boundary_of(const KvIncarnation *dead, bool last)
{
	if (!last || !kv_incarnations->provisional || !RecoveryInProgress())
		return dead->boundary;
	return Max(dead->boundary, U64FromFullTransactionId(ReadNextFullTransactionId()));
}

bool
kv_incarnation_aborted(uint32 incarnation, uint64 xid)
{
	if (incarnation == kv_incarnations->current)
		return false;
	for (int i = kv_incarnations->ndead - 1; i >= 0; i--)
	{
		const KvIncarnation *dead = &kv_incarnations->dead[i];

		if (dead->number == incarnation)
			return xid >= boundary_of(dead, i == kv_incarnations->ndead - 1);
		if (dead->number < incarnation)
			break;
	}
	return false;
}
