/*
 * parallel.c
 *		Distributes a table to the processes of a parallel scan.
 *
 * The leader cuts the key space into pieces of about the same number of rows.  Each process
 * evaluates the key conditions for itself, takes the next free piece, reads the intersection of
 * its key ranges and the piece, and takes another.  The pieces cover all keys and do not
 * overlap, whatever flushes and writers do during the scan, so every row is read by exactly one
 * process.
 *
 * Pieces are taken in the scan's direction, so each process returns its rows in key order,
 * forward or backward, and Gather Merge merges them.  While Gather Merge takes the rows of one
 * piece, the process that reads a later one proceeds only until its tuple queue (64 kB) is
 * full.  Ordered plans gain where filters, joins or groups below Gather Merge leave few rows.
 *
 * A worker needs only shared memory, which also has the leader's uncommitted writes, and its
 * snapshot is the leader's.
 */
#include "postgres.h"

#include "access/parallel.h"

#include "fdw/fdw.h"

struct KvParallelScan
{
	pg_atomic_uint32 next;		/* counts taken pieces, and refusals */
	uint32		npieces;
	bool		backward;		/* pieces are taken from the last one on */
	KvCut		splits[FLEXIBLE_ARRAY_MEMBER];	/* between pieces: npieces - 1 */
};

/* More pieces than processes, so that all processes finish at about the same time. */
#define KV_MAX_PIECES		512

static Size
kv_estimate_dsm(ForeignScanState *node, ParallelContext *pcxt)
{
	return offsetof(KvParallelScan, splits) + (KV_MAX_PIECES - 1) * sizeof(KvCut);
}

static void
kv_initialize_dsm(ForeignScanState *node, ParallelContext *pcxt, void *coordinate)
{
	ForeignScan *plan = (ForeignScan *) node->ss.ps.plan;
	KvScanState *state = node->fdw_state;
	KvParallelScan *parallel = coordinate;
	KvStore    *store = kv_table_store(state->rel, false);

	pg_atomic_init_u32(&parallel->next, 0);
	parallel->backward = boolVal(list_nth(plan->fdw_private, KvScanPrivateBackward));
	parallel->npieces = 1 +
		(store ? kv_store_cuts(store, parallel->splits, KV_MAX_PIECES - 1) : 0);
	state->parallel = parallel;
}

static void
kv_reinitialize_dsm(ForeignScanState *node, ParallelContext *pcxt, void *coordinate)
{
	KvParallelScan *parallel = coordinate;

	pg_atomic_write_u32(&parallel->next, 0);
}

static void
kv_initialize_worker(ForeignScanState *node, shm_toc *toc, void *coordinate)
{
	KvScanState *state = node->fdw_state;

	state->parallel = coordinate;
}

bool
kv_parallel_take(KvParallelScan *parallel, uint32 *piece)
{
	uint32		taken = pg_atomic_fetch_add_u32(&parallel->next, 1);

	*piece = parallel->backward ? parallel->npieces - 1 - taken : taken;
	return taken < parallel->npieces;
}

static KvKey
split_key(const KvCut *split)
{
	KvKey		key = {split->bytes, split->len};

	return key;
}

bool
kv_parallel_clip(const KvParallelScan *parallel, uint32 piece, KvKey *lo, KvKey *hi)
{
	if (piece > 0)
	{
		KvKey		low = split_key(&parallel->splits[piece - 1]);

		if (lo->data == NULL || kv_key_compare(lo->data, lo->len, low.data, low.len) < 0)
			*lo = low;
	}
	if (piece + 1 < parallel->npieces)
	{
		KvKey		high = split_key(&parallel->splits[piece]);

		if (hi->data == NULL || kv_key_compare(hi->data, hi->len, high.data, high.len) > 0)
			*hi = high;
	}
	return lo->data == NULL || hi->data == NULL ||
		kv_key_compare(lo->data, lo->len, hi->data, hi->len) < 0;
}

/*
 * Any scan may run in a worker, because it needs nothing that only the leader has.  The
 * exception is a leader that rewrites the table.  Scans that lock or modify rows are never
 * parallel.
 */
static bool
kv_is_parallel_safe(PlannerInfo *root, RelOptInfo *rel, RangeTblEntry *rte)
{
	return rte->relid != kv_renewed.relid;
}

void
kv_parallel_routine(FdwRoutine *routine)
{
	routine->IsForeignScanParallelSafe = kv_is_parallel_safe;
	routine->EstimateDSMForeignScan = kv_estimate_dsm;
	routine->InitializeDSMForeignScan = kv_initialize_dsm;
	routine->ReInitializeDSMForeignScan = kv_reinitialize_dsm;
	routine->InitializeWorkerForeignScan = kv_initialize_worker;
}
