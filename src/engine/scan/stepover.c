/*
 * stepover.c
 *		Steps over many dead keys, once.
 *
 * A scan that has passed many keys in a row whose rows its snapshot does not see checks whether
 * they are permanently dead.  If so, it steps over the following dead keys as well, and notes the
 * range (shard/dead.h), so that no scan need pass it again.
 *
 * It works slice by slice:
 *
 * 1. Without a lock: it judges the next keys by the runs, which do not change.
 * 2. Under the shard's lock, exclusive, if the shard still has these runs: it judges these keys,
 *    and those between them, by the memtables.  They are dead up to the first one that is not, or
 *    that this snapshot would not skip.  The range is noted before anything can change.
 *
 * A snapshot does not note a range that it would not skip.  So the xids of a noted range have all
 * ended for later snapshots, and these can skip it.
 *
 * Keys that are not permanently dead, such as those that this transaction has deleted, are passed
 * as before.  The scan checks again after twice as many.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/memutils.h"

#include "engine/base/shared.h"
#include "engine/base/key.h"
#include "engine/base/types.h"
#include "engine/index/memtable.h"
#include "engine/index/run.h"
#include "engine/rows.h"
#include "engine/scan/internal.h"
#include "engine/shard/dead.h"
#include "engine/shard/map.h"
#include "engine/shard/shard.h"
#include "engine/xact/xact.h"

#define KV_SLICE_FIRST		64		/* number of keys of runs */
#define KV_SLICE_KEYS		1024
#define KV_MOST_PATIENCE	(1 << 20)

/* The verdict of the versions of a key, the newer ones first. */
typedef enum KvVerdict
{
	KV_SAYS_NOTHING,			/* aborted versions, or locks: the older ones decide */
	KV_IS_DEAD,
	KV_IS_NOT_DEAD				/* a row, or a transaction that may still abort */
} KvVerdict;

typedef struct KvSliceKey
{
	KvKey		key;
	KvVerdict	verdict;
	uint64		xid;			/* of the deletion */
} KvSliceKey;

/* A walk over dead keys. */
typedef struct KvWalk
{
	KvScan	   *scan;
	uint32		shard_id;
	KvBounds	bounds;			/* the remaining range; after: the last passed key */
	KvKey		edge;			/* end of the shard in the direction; data NULL: it has none */
	MemoryContext context;		/* memory of a slice */
	int			slice;			/* number of keys of the runs to read for the next slice */
	KvSliceKey *keys;			/* [KV_SLICE_KEYS] */
	int			nkeys;
	bool		complete;		/* the runs have no more keys in the range */
	uint32		dead;			/* number of dead keys in the slice */
	KvDeadXids	xids;			/* transactions that deleted them */
	KvKey		last;			/* the last dead key */
	KvKey		stop;			/* the first key that is not dead; data NULL: none was found */
	bool		ended;			/* the range has no more keys */
	uint64		xid;			/* cached xid, or 0 */
	uint32		incarnation;	/* incarnation that wrote it */
	KvXidStatus status;			/* its transaction status */
	uint8		after_bytes[KV_MAX_KEY];
	uint8		edge_bytes[KV_MAX_KEY];
} KvWalk;

static KvXidStatus
status_of(KvWalk *walk, uint64 xid, uint32 incarnation)
{
	if (xid != walk->xid || incarnation != walk->incarnation)
	{
		walk->status = kv_xid_status(xid, incarnation);
		walk->xid = xid;
		walk->incarnation = incarnation;
	}
	return walk->status;
}

/* Judges a version; may set its status. */
static KvVerdict
judge(KvWalk *walk, KvVersion *version, uint32 incarnation)
{
	if (version->kind == KV_VERSION_LOCK)
		return KV_SAYS_NOTHING;
	if (version->xid != 0 && version->status == KV_XID_UNKNOWN)
		version->status = status_of(walk, version->xid, incarnation);
	if (version->xid != 0 && version->status == KV_XID_ABORTED)
		return KV_SAYS_NOTHING;
	if (version->xid != 0 && version->status == KV_XID_UNKNOWN)
		return KV_IS_NOT_DEAD;
	return version->kind == KV_VERSION_DELETE ? KV_IS_DEAD : KV_IS_NOT_DEAD;
}

/* ---- step 1 ---- */

/* Judges the first key of the merge by all runs, which go past it. */
static void
judge_in_runs(KvWalk *walk, KvRunMerge *merge, KvSliceKey *key)
{
	key->verdict = KV_SAYS_NOTHING;
	for (int i = 0; i < merge->nheads; i++)
	{
		KvRunHead  *head = &merge->heads[i];
		KvVerdict	said = KV_SAYS_NOTHING;

		/* backwards the versions of a run come oldest first: the last verdict counts */
		for (; kv_head_is_at(head, key->key); kv_head_step(merge, head))
		{
			KvVerdict	verdict;

			if (key->verdict != KV_SAYS_NOTHING || (said != KV_SAYS_NOTHING && !merge->backward))
				continue;
			verdict = judge(walk, &head->version, head->incarnation);
			if (verdict == KV_SAYS_NOTHING)
				continue;
			said = verdict;
			key->xid = head->version.xid;
		}
		if (key->verdict == KV_SAYS_NOTHING)
			key->verdict = said;
	}
}

static void
read_runs(KvWalk *walk, const KvRunSet *set)
{
	const KvBounds *bounds = &walk->bounds;
	KvRunMerge	merge;

	kv_merge_begin(&merge, bounds->backward);
	for (int i = 0; i < set->nruns; i++)
		kv_merge_add(&merge, set->runs[i], kv_start_of(bounds),
					 bounds->after.data != NULL && !bounds->backward);
	walk->complete = false;
	for (walk->nkeys = 0; walk->nkeys < walk->slice; walk->nkeys++)
	{
		KvSliceKey *next = &walk->keys[walk->nkeys];
		KvKey		key = kv_merge_first(&merge);

		if (key.data == NULL || !kv_within_end(bounds, key))
		{
			walk->complete = true;
			break;
		}
		next->key = kv_key_copy(walk->context, key.data, key.len);
		judge_in_runs(walk, &merge, next);
	}
	kv_run_trust();
}

/* ---- step 2; the shard's lock is held, exclusively ---- */

static KvVerdict
judge_in_memtable(KvWalk *walk, const KvMemtableItem *item, uint64 *xid)
{
	KvVerdict	verdict = KV_SAYS_NOTHING;

	for (dsa_pointer pointer = item->newest;
		 verdict == KV_SAYS_NOTHING && DsaPointerIsValid(pointer);)
	{
		KvMemtableVersion *node = kv_address(pointer);

		verdict = judge(walk, &node->version, kv_incarnations->current);
		*xid = node->version.xid;
		pointer = node->older;
	}
	return verdict;
}

/*
 * Adds a key deleted by this transaction, or never present (0).  False: not dead for the snapshot.
 */
static bool
add_dead(KvWalk *walk, KvKey key, uint64 xid)
{
	KvDeadXids	xids = kv_dead_join(walk->xids, (KvDeadXids) {xid, xid});

	if ((xids.first != walk->xids.first || xids.last != walk->xids.last) &&
		!kv_view_sees_all(&walk->scan->view, xids.first, xids.last))
		return false;
	walk->xids = xids;
	walk->last = key;
	walk->dead++;
	return true;
}

/* Is the item in the range, and not after *first?  Then *first becomes its key. */
static bool
comes_first(const KvWalk *walk, const KvMemtableItem *item, KvKey *first)
{
	int			order;

	if (item == NULL || !kv_within_end(&walk->bounds, kv_item_key(item)))
		return false;
	order = first->data == NULL ? -1 :
		kv_compare_in_order(&walk->bounds, kv_item_key(item), *first);
	if (order < 0)
		*first = kv_item_key(item);
	return order <= 0;
}

/* Goes through the memtables and judged keys in order, as long as keys are dead. */
static void
find_dead(KvWalk *walk, const KvShard *shard)
{
	const KvBounds *bounds = &walk->bounds;
	KvMemtableCursor active_cursor;
	KvMemtableCursor sealed_cursor;
	KvMemtableItem *active = kv_memtable_start(bounds, &shard->active, &active_cursor);
	KvMemtableItem *sealed = kv_memtable_start(bounds, &shard->immutable, &sealed_cursor);
	int			next = 0;

	walk->xids = (KvDeadXids) {0, 0};
	walk->dead = 0;
	walk->stop = (KvKey) {NULL, 0};
	walk->ended = false;
	while (walk->dead < 2 * KV_SLICE_KEYS && (next < walk->nkeys || walk->complete))
	{
		KvKey		run_key = next < walk->nkeys ? walk->keys[next].key : (KvKey) {NULL, 0};
		KvKey		key = run_key;
		bool		in_sealed = comes_first(walk, sealed, &key);
		bool		in_active = comes_first(walk, active, &key);
		KvVerdict	verdict = KV_SAYS_NOTHING;
		uint64		xid = 0;

		/* the key of the active memtable may be before the immutable one's */
		in_sealed = in_sealed && kv_compare_in_order(bounds, kv_item_key(sealed), key) == 0;
		if (key.data == NULL)
		{
			walk->ended = true;
			return;
		}
		if (in_active)
			verdict = judge_in_memtable(walk, active, &xid);
		if (in_sealed && verdict == KV_SAYS_NOTHING)
			verdict = judge_in_memtable(walk, sealed, &xid);
		if (run_key.data != NULL && kv_compare_in_order(bounds, run_key, key) == 0)
		{
			if (verdict == KV_SAYS_NOTHING)
			{
				verdict = walk->keys[next].verdict;
				xid = walk->keys[next].xid;
			}
			next++;
		}
		if (verdict == KV_IS_NOT_DEAD ||
			!add_dead(walk, key, verdict == KV_IS_DEAD ? xid : 0))
		{
			walk->stop = key;
			return;
		}
		if (in_active)
			active = kv_memtable_step(bounds, &active_cursor);
		if (in_sealed)
			sealed = kv_memtable_step(bounds, &sealed_cursor);
	}
}

/* The first key after another, in the slice's memory; data NULL stays NULL. */
static KvKey
key_after(const KvWalk *walk, KvKey key)
{
	uint8	   *bytes;

	if (key.data == NULL)
		return key;
	bytes = MemoryContextAllocZero(walk->context, key.len + 1);
	memcpy(bytes, key.data, key.len);
	return (KvKey) {bytes, key.len + 1};
}

/* Notes the dead part of the slice. */
static void
note_dead(const KvWalk *walk, KvShard *shard)
{
	const KvBounds *bounds = &walk->bounds;
	bool		backward = bounds->backward;
	bool		after = bounds->after.data != NULL && !backward;
	KvKey		start = kv_start_of(bounds);
	KvKey		from = after ? key_after(walk, start) : start;
	KvKey		to;

	if (walk->stop.data != NULL)
		to = backward ? key_after(walk, walk->stop) : walk->stop;
	else if (!walk->ended)
		to = backward ? walk->last : key_after(walk, walk->last);
	else
	{
		/* to the end of the range, or of the shard */
		to = backward ? bounds->lo : bounds->hi;
		if (to.data == NULL || (walk->edge.data != NULL &&
								kv_compare_in_order(bounds, walk->edge, to) <= 0))
			to = (KvKey) {NULL, 0};
	}
	if (backward)
		kv_dead_add(shard, to, from, walk->xids, walk->dead);
	else
		kv_dead_add(shard, from, to, walk->xids, walk->dead);
}

/* ---- slices ---- */

/*
 * Takes the next slice.  False: the shard has changed.  The keys that it sets are valid until the
 * next slice.
 */
static bool
take_slice(KvWalk *walk)
{
	KvStore    *store = walk->scan->store;
	KvShard    *shard = kv_shard(store, walk->shard_id);
	const KvRunSet *set = kv_shard_runs(store, walk->shard_id);
	KvRoute		route = kv_route_part(store, kv_start_of(&walk->bounds), walk->bounds.backward,
									  &walk->edge, walk->edge_bytes);
	bool		holds;

	MemoryContextReset(walk->context);
	read_runs(walk, set);
	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	holds = route.shard_id == walk->shard_id && kv_route_holds(shard, route) &&
		pg_atomic_read_u32(&shard->generation) == set->generation;
	if (holds)
	{
		find_dead(walk, shard);
		/* keys of the memtables are valid only while the lock is held */
		if (walk->dead > 0)
		{
			note_dead(walk, shard);
			memcpy(walk->after_bytes, walk->last.data, walk->last.len);
			walk->bounds.after = (KvKey) {walk->after_bytes, walk->last.len};
		}
	}
	LWLockRelease(&shard->lock);
	return holds;
}

void
kv_step_over(KvScan *scan, uint32 shard_id, const KvBounds *bounds)
{
	KvDeadExtent *extent = &scan->extent;
	KvWalk	   *walk;
	uint32		passed = 0;

	walk = MemoryContextAllocZero(scan->batch_context, sizeof(KvWalk));
	walk->scan = scan;
	walk->shard_id = shard_id;
	walk->bounds = *bounds;
	walk->bounds.after = (KvKey) {NULL, 0};
	if (extent->after)
		walk->bounds.after = extent->start;
	else if (extent->start.data != NULL)
		*(bounds->backward ? &walk->bounds.hi : &walk->bounds.lo) = extent->start;
	walk->slice = KV_SLICE_FIRST;
	walk->context = AllocSetContextCreate(scan->batch_context, "kvfdw dead keys",
										  ALLOCSET_DEFAULT_SIZES);
	walk->keys = MemoryContextAlloc(scan->batch_context, KV_SLICE_KEYS * sizeof(KvSliceKey));
	while (take_slice(walk))
	{
		passed += walk->dead;
		if (walk->stop.data != NULL || walk->ended || walk->dead == 0)
			break;
		walk->slice = Min(walk->slice * 4, KV_SLICE_KEYS);
		CHECK_FOR_INTERRUPTS();
	}
	MemoryContextDelete(walk->context);
	scan->stats.dead_keys += passed;
	if (passed > 0 && passed >= KV_DEAD_LEAST / 2)
		extent->patience = KV_DEAD_LEAST;
	else
		extent->patience = Min(extent->patience * 2, KV_MOST_PATIENCE);
	extent->keys = 0;
	if (walk->bounds.after.data != NULL &&
		kv_compare_in_order(bounds, walk->bounds.after, scan->position) > 0)
		kv_scan_set_position(scan, walk->bounds.after);
	pfree(walk->keys);
	pfree(walk);
}
