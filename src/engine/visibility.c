/*
 * visibility.c
 *		Which version a snapshot sees (I 1), by the rules of heapam_visibility.c.
 *
 * A version carries its full xid and command id.  Own transactions go by
 * command id; then the snapshot decides who was running; clog is asked last.
 * What was learned is kept in the version's fate, a byte that concurrent
 * readers may set at the same time because they all set the same value.
 *
 * A version of a dead incarnation is settled by that incarnation's boundary
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

#include "engine/internal.h"

/*
 * Where a serializable scan collects the writers whose versions its snapshot
 * does not see.  Set while a batch is made; NULL at all other times.
 */
KvConflicts *kv_conflicts = NULL;

static void
note_conflict(TransactionId xid)
{
	KvConflicts *into = kv_conflicts;

	if (into == NULL || (into->n > 0 && into->xids[into->n - 1] == xid))
		return;
	if (into->n == into->room)
	{
		into->room *= 2;
		into->xids = repalloc(into->xids, into->room * sizeof(TransactionId));
	}
	into->xids[into->n++] = xid;
}

static bool
in_snapshot(TransactionId xid, Snapshot snapshot)
{
	if (!XidInMVCCSnapshot(xid, snapshot))
		return false;
	note_conflict(xid);
	return true;
}

bool
kv_xid_is_mine(uint64 xid)
{
	return TransactionIdIsCurrentTransactionId((TransactionId) xid);
}

/*
 * What has become of a transaction so far as the WAL is replayed.  Who has left no
 * trace in clog may still do so; who runs is not known before a standby is
 * consistent, and need not be.
 */
static KvVersionFate
replayed_fate(uint64 xid)
{
	TransactionId short_xid = (TransactionId) xid;

	if (xid >= U64FromFullTransactionId(ReadNextFullTransactionId()))
		return KV_FATE_UNKNOWN;
	if (TransactionIdDidCommit(short_xid))
		return KV_FATE_COMMITTED;
	return TransactionIdDidAbort(short_xid) ? KV_FATE_ABORTED : KV_FATE_UNKNOWN;
}

/*
 * What has become of a transaction.  UNKNOWN: it still runs (own ones too, and
 * prepared ones).
 */
KvVersionFate
kv_xid_fate(uint64 xid, uint32 incarnation)
{
	TransactionId short_xid = (TransactionId) xid;

	if (kv_incarnation_aborted(incarnation, xid))
		return KV_FATE_ABORTED;
	if (RecoveryInProgress())
		return replayed_fate(xid);
	if (TransactionIdIsCurrentTransactionId(short_xid) ||
		TransactionIdIsInProgress(short_xid))
		return KV_FATE_UNKNOWN;
	return TransactionIdDidCommit(short_xid) ? KV_FATE_COMMITTED : KV_FATE_ABORTED;
}

bool
kv_version_visible(KvVersion *version, Snapshot snapshot, uint32 incarnation)
{
	TransactionId xid = (TransactionId) version->xid;

	if (version->kind == KV_VERSION_LOCK)
		return false;
	if (version->xid == 0)
		return true;
	if (version->fate == KV_FATE_ABORTED)
		return false;
	if (version->fate == KV_FATE_COMMITTED)
		return !in_snapshot(xid, snapshot);

	if (kv_incarnation_aborted(incarnation, version->xid))
	{
		version->fate = KV_FATE_ABORTED;
		return false;
	}
	if (TransactionIdIsCurrentTransactionId(xid))
		return version->cid < snapshot->curcid;
	if (in_snapshot(xid, snapshot))
		return false;
	if (TransactionIdDidCommit(xid))
	{
		version->fate = KV_FATE_COMMITTED;
		return true;
	}
	/* not running, not committed: it aborted, or died with its process */
	version->fate = KV_FATE_ABORTED;
	return false;
}

/*
 * The full xid before which every committed transaction is seen by every
 * snapshot, now and later.
 */
uint64
kv_xid_horizon(void)
{
	FullTransactionId next = ReadNextFullTransactionId();
	uint32		epoch = EpochFromFullTransactionId(next);
	TransactionId horizon;

	/* before a standby serves anybody nothing is known about its snapshots */
	if (RecoveryInProgress() && !HotStandbyActive())
		return 0;
	horizon = GetOldestNonRemovableTransactionId(NULL);
	if (horizon > XidFromFullTransactionId(next))
		epoch--;
	return U64FromFullTransactionId(FullTransactionIdFromEpochAndXid(epoch, horizon));
}

/*
 * The current subtransaction's full xid, assigned if need be.  mark: with the WAL
 * record without which its commit would not be flushed (F 1), because it writes
 * none of its own.
 */
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
