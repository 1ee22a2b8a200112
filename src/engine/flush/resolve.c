/*
 * resolve.c
 *		Resolves xids in the stores before clog forgets them.
 *
 * Entries of key logs and write buffers, and versions of unfrozen runs whose transaction had
 * not ended when the run was written, are resolved by clog when they are read.  VACUUM
 * truncates clog without asking other users of it, by whole segments of about a million xids,
 * up to the oldest xid that a snapshot may ask about.  So a flush writes the transactions'
 * status into a run
 *
 *  - when the oldest xid in a memtable is KV_RESOLVE_AGE old, whatever the clock says;
 *  - when the next xid is in another segment, for all xids of earlier segments;
 *  - on a standby, which may have no maintainer, in redo of a DURABLE record, which says which
 *    transactions had ended when it was logged;
 *  - when the server stops, because it may run without the library then.
 *
 * Where an old xid may be, and what resolves it:
 *
 *	active and immutable memtable, key logs, write buffers	a flush (KvMemtable.oldest_xid)
 *	unfrozen runs		a flush of all runs, if it was unfinished (min_xid of the run)
 *	marks, and what the version log carries				the checkpoint after that
 *	WAL records			are of transactions that ran at the redo pointer or after it, whose
 *						commit records are replayed, too
 *	row locks			as versions; a prepared transaction itself holds back VACUUM
 *	table files			the maintainer, or redo of a DURABLE: a creator that has
 *						committed is replaced by 0, also if the store cannot be used
 *	the control file	nothing: boundaries are compared, not looked up
 *
 * An xid that clog has forgotten nevertheless is an ERROR (XX001), never an answer.
 *
 * Only durable state counts: a shard can be set back to its mark, and versions may be written
 * again from the redo pointer on.  So a segment is resolved only after a checkpoint, and until
 * then it must not be truncated.
 *
 * The fence ensures that.  kvfdw checkpointer, which has no snapshot, shows the last xid of the
 * first unresolved segment as its xmin.  Before the next xid comes near that xid it shows none,
 * and an xmin ahead of the next xid holds back nothing.  While the fence holds back VACUUM,
 * xids of a later segment exist already, and VACUUM leaves the rows that they have made dead.
 * That lasts for a flush and a checkpoint; if those fail, until fence_limit().
 *
 * A standby cannot hold back truncation, and need not: when it replays a truncation, it has
 * replayed the DURABLE of the checkpoint before.  A backup must contain the clog that its
 * marks need, so nothing counts as resolved while one runs.
 *
 * resolved_below is stored in the file kvfdw/resolved.  Without the file all is resolved again.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "miscadmin.h"
#include "postmaster/autovacuum.h"
#include "postmaster/interrupt.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "storage/procarray.h"

#include "compat.h"
#include "engine/base/error.h"
#include "engine/base/hash.h"
#include "engine/base/shared.h"
#include "engine/base/types.h"
#include "engine/base/wait.h"
#include "engine/flush/flush.h"
#include "engine/index/run.h"
#include "engine/io/name.h"
#include "engine/shard/map.h"
#include "engine/shard/shard.h"
#include "engine/xact/xact.h"

#define KV_RESOLVE_AGE	UINT64CONST(200000)
#define KV_FENCE_ZONE	UINT64CONST(250000)	/* more than can be used up between two checks */
#define KV_RESOLVE_TRIES	5
#define KV_STOP_PATIENCE 3000	/* times 10 ms */
#define KV_RESOLVED_PATH	KV_DIRECTORY "/resolved"
#define KV_MAGIC_RESOLVED 0x4b565354 /* "KVST" */

typedef struct KvResolvedFile
{
	uint32		magic;
	uint32		format_version;
	uint64		directory_id;
	uint64		resolved_below;
	uint32		pad;
	uint32		crc;
} KvResolvedFile;

StaticAssertDecl(sizeof(KvResolvedFile) == 32, "settled file size");

KvResolved *kv_resolved = NULL;

static uint32
resolved_crc(const KvResolvedFile *file)
{
	return kv_crc(file, offsetof(KvResolvedFile, crc));
}

void
kv_resolve_startup(void)
{
	Size		len;
	KvResolvedFile *file = (KvResolvedFile *) kv_io_slurp(KV_RESOLVED_PATH, &len);
	uint64		below = 0;

	if (file != NULL && len == sizeof(KvResolvedFile) && file->magic == KV_MAGIC_RESOLVED &&
		file->format_version == KV_FORMAT_VERSION && file->crc == resolved_crc(file) &&
		file->directory_id == kv_directory_id())
		below = file->resolved_below;
	if (file != NULL)
		pfree(file);
	pg_atomic_init_u64(&kv_resolved->below, below);
}

static uint64
next_xid(void)
{
	return U64FromFullTransactionId(ReadNextFullTransactionId());
}

static uint64
segment_start(uint64 xid)
{
	return xid / KV_CLOG_SEGMENT * KV_CLOG_SEGMENT;
}

/* Below this xid everything is resolved; 0 if the file is of a timeline that was given up. */
static uint64
resolved_below(uint64 next)
{
	uint64		below = pg_atomic_read_u64(&kv_resolved->below);

	return below <= next ? below : 0;
}

/* ---- shards ---- */

/* The oldest xid in the shard's runs that is not resolved there; 0: none. */
static uint64
unresolved_in_runs(KvStore *store, uint32 shard_id)
{
	KvShard    *shard = kv_shard(store, shard_id);
	const KvRunSet *set;
	uint64		oldest = 0;

	if (shard->files.oldest_xid == 0)
		return 0;
	if (shard->flush.unresolved_generation == pg_atomic_read_u32(&shard->generation))
		return shard->flush.unresolved_xid;
	set = kv_shard_runs(store, shard_id);
	for (int i = 0; i < set->nruns - (set->has_base ? 1 : 0); i++)
	{
		uint64		xid = kv_run_header(set->runs[i])->min_xid;

		if (xid != 0 && (oldest == 0 || xid < oldest))
			oldest = xid;
	}
	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	shard->flush.unresolved_xid = oldest;
	shard->flush.unresolved_generation = set->generation;
	LWLockRelease(&shard->lock);
	return oldest;
}

static bool
memtable_has_before(const KvShard *shard, uint64 before)
{
	return (shard->active.oldest_xid != 0 && shard->active.oldest_xid < before) ||
		(shard->immutable.oldest_xid != 0 && shard->immutable.oldest_xid < before);
}

static bool
runs_have_before(KvStore *store, uint32 shard_id, uint64 before)
{
	const KvShard *shard = kv_shard(store, shard_id);
	uint64		xid;

	if (shard->files.oldest_xid == 0 || shard->files.oldest_xid >= before)
		return false;
	xid = unresolved_in_runs(store, shard_id);
	return xid != 0 && xid < before;
}

/* Resolve the xids of ended transactions before this xid. */
static void
resolve_before(KvStore *store, uint32 shard_id, uint64 before)
{
	KvShard    *shard = kv_shard(store, shard_id);

	/*
	 * a flush finishes a failed one, or waits for another, and may then take no more than that
	 * had sealed
	 */
	for (int i = 0; i < KV_RESOLVE_TRIES && memtable_has_before(shard, before); i++)
		kv_shard_flush(store, shard_id, AmStartupProcess() ? KV_FLUSH_MEMORY : KV_FLUSH_MERGE);
	if (runs_have_before(store, shard_id, before))
		kv_shard_flush(store, shard_id, KV_FLUSH_ALL);
}

/* Xids before this one are due to be resolved. */
static uint64
due_before(uint64 ended)
{
	uint64		next = next_xid();
	uint64		due = segment_start(next);

	if (next > KV_RESOLVE_AGE)
		due = Max(due, next - KV_RESOLVE_AGE);
	return Min(due, ended);
}

void
kv_store_resolve(KvStore *store)
{
	uint64		before = due_before(kv_xid_ended());

	kv_each_shard(store, i)
	{
		kv_maintenance_interrupts();
		if (kv_shard(store, i)->roles.maintainer == 0)
			resolve_before(store, i, before);
	}
}

/* ---- segments of clog, on a primary ---- */

/* Running and prepared transactions hold back VACUUM themselves. */
bool
kv_resolve_is_due(void)
{
	uint64		next = next_xid();

	return resolved_below(next) < segment_start(next) && kv_xid_ended() >= segment_start(next);
}

bool
kv_resolve_reached(List *stores, uint64 *boundary)
{
	ListCell   *cell;

	*boundary = segment_start(next_xid());
	if (kv_xid_ended() < *boundary)
		return false;
	foreach(cell, stores)
	{
		KvStore    *store = lfirst(cell);

		if (store->shape.creator != 0 && store->shape.creator < *boundary)
			return false;
		if (store->shape.unusable || pg_atomic_read_u32(&store->state) != KV_STORE_OPEN)
			continue;
		kv_each_shard(store, i)
		{
			if (memtable_has_before(kv_shard(store, i), *boundary) ||
				runs_have_before(store, i, *boundary))
				return false;
		}
	}
	return true;
}

void
kv_resolve_done(uint64 boundary)
{
	KvResolvedFile file = {0};

	file.magic = KV_MAGIC_RESOLVED;
	file.format_version = KV_FORMAT_VERSION;
	file.directory_id = kv_directory_id();
	file.resolved_below = boundary;
	file.crc = resolved_crc(&file);
	kv_io_replace(KV_RESOLVED_PATH, &file, sizeof(file), true);
	pg_atomic_write_u64(&kv_resolved->below, boundary);
}

/* VACUUM may be held back for so many xids by stores that cannot be resolved. */
static uint64
fence_limit(void)
{
	return Max(UINT64CONST(10000000), (uint64) autovacuum_freeze_max_age / 2);
}

void
kv_clog_fence(void)
{
	uint64		next = next_xid();
	uint64		below = resolved_below(next);
	uint64		boundary = segment_start(below) + KV_CLOG_SEGMENT;
	TransactionId xmin = InvalidTransactionId;

	if (below < segment_start(next))
	{
		/* so far back: the file is missing, or resolving has failed for long */
		if (boundary + fence_limit() < next)
			boundary = segment_start(next);
		xmin = (TransactionId) (boundary - 1);
	}
	else if (boundary - next < KV_FENCE_ZONE)
		xmin = (TransactionId) (boundary - 1);
	if (xmin != InvalidTransactionId && !TransactionIdIsNormal(xmin))
		xmin = FirstNormalTransactionId;
	if (MyProc->xmin == xmin)
		return;
	LWLockAcquire(ProcArrayLock, LW_EXCLUSIVE);
	MyProc->xmin = xmin;
	LWLockRelease(ProcArrayLock);
}

/* ---- on a standby ---- */

/*
 * Each of those transactions has its status in clog by now, or has none.  A store into which
 * nothing is replayed must be resolved, too: so all are opened.
 */
bool
kv_resolve_begin_replay(uint64 horizon)
{
	pg_atomic_write_u64(&kv_incarnations->replayed_horizon, horizon);
	return kv_resolved->replayed < segment_start(horizon);
}

void
kv_resolve_end_replay(uint64 horizon)
{
	kv_resolved->replayed = segment_start(horizon);
}

/* ---- the end ---- */

/* Is another process in a transaction?  Prepared transactions belong to no process. */
static bool
any_runs(void)
{
	for (int i = 0; i < ProcGlobal->allProcCount; i++)
	{
		const volatile PGPROC *proc = GetPGProcByNumber(i);

		if (proc != MyProc && proc->pid != 0 && KV_LXID(proc) != InvalidLocalTransactionId)
			return true;
	}
	return false;
}

/* Give sessions that the same shutdown terminates time to end. */
static void
wait_for_sessions(void)
{
	for (int i = 0; i < KV_STOP_PATIENCE; i++)
	{
		if (!any_runs() && pg_atomic_read_u32(&kv_gate->logging) == 0)
			return;
		pg_usleep(10000);
	}
	ereport(LOG,
			(errmsg("kvfdw is shutting down although transactions are still open after %d s",
					KV_STOP_PATIENCE / 100),
			 errdetail("kvfdw resolves these transactions at the next start.")));
}

/*
 * Resolve all xids, also those after the oldest one that has not ended: a prepared transaction
 * may end, and clog be truncated, while the server runs without the library.
 */
static void
resolve_all(void *arg)
{
	uint64		next = next_xid();
	List	   *stores = kv_stores_pin_state(InvalidOid, KV_STORE_OPEN);
	ListCell   *cell;

	PG_TRY();
	{
		foreach(cell, stores)
		{
			KvStore    *store = lfirst(cell);

			if (store->shape.unusable)
				continue;
			kv_each_shard(store, i)
				resolve_before(store, i, next);
		}
	}
	PG_FINALLY();
	{
		kv_stores_unpin(stores);
	}
	PG_END_TRY();
}

/* The server may be started without the library, and clog be truncated then. */
void
kv_resolve_for_stop(void)
{
	pg_atomic_write_u32(&kv_gate->is_open, 0);
	wait_for_sessions();

	/* a flush would stop because of it */
	ShutdownRequestPending = false;
	(void) kv_attempt(resolve_all, NULL);
	ShutdownRequestPending = true;
}
