/*
 * estimate.c
 *		Estimates from the index: the addresses of a shard's values, the numbers of its entries, and
 *		the division of a store into pieces for the processes of a parallel scan.
 *
 * All results are estimates, for choosing how to read.  An entry counts wherever it is.  Its value
 * may still be in a write buffer, since it has its address already.
 *
 * Locks: memtables are read under the shard's lock, a few hundred entries at a time.  Runs are read
 * without it, since a page of a run may come from the device (I 7).
 *
 * Pieces begin at the bounds of shards.  Within a shard they begin at keys of the part with the
 * most entries: first keys of pages of its largest run, or keys of a memtable.  The choice need not
 * be exact, and reads no values.
 */
#include "postgres.h"

#include "engine/base/key.h"
#include "engine/base/shared.h"
#include "engine/base/types.h"
#include "engine/cache/reader.h"
#include "engine/index/memtable.h"
#include "engine/index/run.h"
#include "engine/rows.h"
#include "engine/scan/internal.h"
#include "engine/shard/map.h"
#include "engine/shard/shard.h"

/* Number of entries that are examined to decide whether their values are in order. */
#define KV_ORDER_SAMPLE			256
/* Number of parts of a shard in which entries are examined. */
#define KV_ORDER_SAMPLES		4

/* ---- values seen one after the other ---- */

void
kv_order_add(KvOrder *order, KvAddress address)
{
	bool		near = true;

	if (!order->begun)
	{
		order->begun = true;
		order->last = address;
		return;
	}
	if (address >= order->last && address - order->last <= KV_WINDOW_SIZE)
		order->up++;
	else if (address < order->last && order->last - address <= KV_WINDOW_SIZE)
		order->down++;
	else
		near = false;
	if (near && !order->found)
	{
		order->found = true;
		order->first = order->last;
	}
	order->last = address;
	order->n++;
}

void
kv_order_go_on(KvOrder *order)
{
	order->found = false;
	if (order->n < KV_ORDER_SAMPLE)
		return;
	order->n /= 2;
	order->up /= 2;
	order->down /= 2;
}

bool
kv_order_is_kept(const KvOrder *order, int *step)
{
	*step = order->up >= order->down ? 1 : -1;
	return order->n >= KV_ORDER_LEAST && Max(order->up, order->down) * 4 >= order->n * 3;
}

/* ---- entries of runs ---- */

static KvRun *
largest_run(const KvRunSet *set)
{
	KvRun	   *largest = NULL;

	for (int i = 0; i < set->nruns; i++)
	{
		if (largest == NULL ||
			kv_run_header(set->runs[i])->nentries > kv_run_header(largest)->nentries)
			largest = set->runs[i];
	}
	return largest;
}

/* Gets the key and the value's address of the entry at a valid cursor; false: it has no value. */
static bool
run_address(const KvRunCursor *cursor, uint8 keybuf[8], KvKey *key, KvAddress *address)
{
	KvVersion	version;

	kv_run_entry(cursor, keybuf, &key->data, &key->len, &version);
	*address = KV_LOCATION_ADDRESS(version.location);
	return version.kind == KV_VERSION_PUT && version.len > 0;
}

static bool
run_keeps_order(KvRun *run, double share)
{
	KvRunCursor cursor = {.run = run, .valid = true};
	KvOrder		order = {0};
	uint8		keybuf[8];
	KvKey		key;
	KvAddress	address;
	int			step;

	cursor.page = kv_run_header(run)->npages * share;
	for (int i = 0; i <= KV_ORDER_SAMPLE && cursor.valid; i++)
	{
		if (run_address(&cursor, keybuf, &key, &address))
			kv_order_add(&order, address);
		kv_run_next(&cursor);
	}
	return kv_order_is_kept(&order, &step);
}

/* The estimated number of entries of the run before the cursor. */
static double
position(KvRun *run, const KvRunCursor *cursor)
{
	const KvRunHeader *header = kv_run_header(run);

	if (!cursor->valid)
		return header->nentries;
	return (double) header->nentries * cursor->page / header->npages + cursor->index;
}

/* ---- entries of memtables: the shard's lock is held, shared ---- */

static const KvMemtable *
larger_memtable(const KvShard *shard)
{
	Assert(LWLockHeldByMe((LWLock *) &shard->lock));
	return shard->active.nitems >= shard->immutable.nitems ? &shard->active : &shard->immutable;
}

/* The address of a key's newest value; false: it has none. */
static bool
item_address(const KvMemtableItem *item, KvAddress *address)
{
	for (dsa_pointer pointer = item->newest; DsaPointerIsValid(pointer);)
	{
		const KvMemtableVersion *node = kv_address(pointer);

		if (node->version.kind == KV_VERSION_PUT && node->version.len > 0)
		{
			*address = KV_LOCATION_ADDRESS(node->version.location);
			return true;
		}
		pointer = node->older;
	}
	return false;
}

static bool
memtable_keeps_order(const KvMemtable *memtable, double share)
{
	KvMemtableCursor cursor;
	KvMemtableItem *item = kv_memtable_at_share(memtable, share, &cursor);
	KvOrder		order = {0};
	KvAddress	address;
	int			step;

	for (int i = 0; i <= KV_ORDER_SAMPLE && item != NULL; i++)
	{
		if (item_address(item, &address))
			kv_order_add(&order, address);
		item = kv_memtable_next(&cursor);
	}
	return kv_order_is_kept(&order, &step);
}

/* ---- both; no lock is held ---- */

/* Does a memtable have more entries than the run, which may be NULL? */
static bool
memtable_is_larger(KvShard *shard, KvRun *run)
{
	bool		larger;

	LWLockAcquire(&shard->lock, LW_SHARED);
	larger = larger_memtable(shard)->nitems > (run != NULL ? kv_run_header(run)->nentries : 0);
	LWLockRelease(&shard->lock);
	return larger;
}

static bool
larger_memtable_keeps_order(KvShard *shard)
{
	bool		kept = true;

	for (int i = 0; i < KV_ORDER_SAMPLES && kept; i++)
	{
		LWLockAcquire(&shard->lock, LW_SHARED);
		kept = memtable_keeps_order(larger_memtable(shard), (double) i / KV_ORDER_SAMPLES);
		LWLockRelease(&shard->lock);
	}
	return kept;
}

/*
 * Examines samples of the set's largest run, which may be NULL.  Plans ask, too, so the set keeps
 * the answer.
 */
static bool
largest_keeps_order(KvRunSet *set, KvRun *run)
{
	if (set->order == KV_RUN_ORDER_NOT_KNOWN)
	{
		bool		kept = true;

		for (int i = 0; run != NULL && i < KV_ORDER_SAMPLES && kept; i++)
			kept = run_keeps_order(run, (double) i / KV_ORDER_SAMPLES);
		set->order = kept ? KV_RUN_IN_ORDER : KV_RUN_SCATTERED;
	}
	return set->order == KV_RUN_IN_ORDER;
}

bool
kv_shard_keeps_order(KvStore *store, uint32 shard_id)
{
	KvShard    *shard = kv_shard(store, shard_id);
	const KvRunSet *set = kv_shard_runs(store, shard_id);
	KvRun	   *run = largest_run(set);

	if (memtable_is_larger(shard, run))
		return larger_memtable_keeps_order(shard);
	return largest_keeps_order(unconstify(KvRunSet *, set), run);
}

void
kv_shard_values(KvStore *store, uint32 shard_id, double *entries, double *bytes)
{
	KvShard    *shard = kv_shard(store, shard_id);
	const KvRunSet *set = kv_shard_view(store, shard_id);

	*entries += (double) shard->active.nversions + shard->immutable.nversions;
	*bytes += (double) shard->active.value_bytes + shard->immutable.value_bytes;
	LWLockRelease(&shard->lock);

	for (int i = 0; i < set->nruns; i++)
	{
		const KvRunHeader *header = kv_run_header(set->runs[i]);

		*entries += header->nentries;
		*bytes += header->value_bytes;
	}
}

void
kv_entries_between(KvStore *store, uint32 shard_id, KvKey lo, KvKey hi, KvEntries *entries)
{
	KvShard    *shard = kv_shard(store, shard_id);
	const KvRunSet *set = kv_shard_view(store, shard_id);
	const KvMemtable *memtables[] = {&shard->active, &shard->immutable};
	double		value_bytes = 0;

	entries->between = entries->total = 0;
	for (int i = 0; i < lengthof(memtables); i++)
	{
		double		before = lo.data != NULL ? kv_memtable_rank(memtables[i], lo) : 0;

		entries->between += Max(kv_memtable_rank(memtables[i], hi) - before, 0);
		entries->total += memtables[i]->nitems;
		if (memtables[i]->nversions > 0)
			value_bytes += (double) memtables[i]->value_bytes * memtables[i]->nitems /
				memtables[i]->nversions;
	}
	LWLockRelease(&shard->lock);

	for (int i = 0; i < set->nruns; i++)
	{
		KvRun	   *run = set->runs[i];
		const KvRunHeader *header = kv_run_header(run);
		KvRunCursor first = {.run = run};
		KvRunCursor end = {.run = run};

		if (lo.data != NULL)
			kv_run_seek(run, lo.data, lo.len, &first);
		else
			kv_run_first(run, &first);
		if (hi.data != NULL)
			kv_run_seek(run, hi.data, hi.len, &end);
		entries->between += Max(position(run, &end) - position(run, &first), 0);
		entries->total += header->nentries;
		value_bytes += header->value_bytes;
	}
	entries->mean = entries->total > 0 ? value_bytes / entries->total : 0;
}

/* The last entry of a range so far. */
typedef struct KvLastEntry
{
	bool		found;
	bool		placed;			/* it has a value, at address */
	KvAddress	address;
	uint8		bytes[KV_MAX_KEY];
	int			len;
} KvLastEntry;

static void
offer_last(KvLastEntry *last, KvKey key, bool backward, bool placed, KvAddress address)
{
	int			cmp = last->found ? kv_key_compare(key.data, key.len, last->bytes, last->len) : 0;

	if (last->found && (backward ? cmp >= 0 : cmp <= 0))
		return;
	last->found = true;
	last->placed = placed;
	last->address = address;
	memcpy(last->bytes, key.data, key.len);
	last->len = key.len;
}

bool
kv_last_address(KvStore *store, uint32 shard_id, KvKey end, bool backward, KvAddress *address)
{
	KvShard    *shard = kv_shard(store, shard_id);
	const KvRunSet *set = kv_shard_view(store, shard_id);
	const KvMemtable *memtables[] = {&shard->active, &shard->immutable};
	KvLastEntry last;

	last.found = false;
	for (int i = 0; i < lengthof(memtables); i++)
	{
		KvMemtableCursor cursor;
		KvMemtableItem *item = backward
			? kv_memtable_seek(memtables[i], end.data, end.len, &cursor) :
			kv_memtable_seek_before(memtables[i], end.data, end.len, &cursor);
		KvAddress	file_address = 0;

		if (item != NULL)
			offer_last(&last, (KvKey) {item->key, item->keylen}, backward,
					   item_address(item, &file_address), file_address);
	}
	LWLockRelease(&shard->lock);

	for (int i = 0; i < set->nruns; i++)
	{
		KvRunCursor cursor;
		uint8		keybuf[8];
		KvKey		key;
		KvAddress	file_address;
		bool		placed;

		if (backward)
			kv_run_seek(set->runs[i], end.data, end.len, &cursor);
		else
			kv_run_seek_before(set->runs[i], end.data, end.len, &cursor);
		if (!cursor.valid)
			continue;
		placed = run_address(&cursor, keybuf, &key, &file_address);
		offer_last(&last, key, backward, placed, file_address);
	}
	*address = last.found ? last.address : 0;
	return last.found && last.placed;
}

/* Is a value before a segment, in the direction of the segments? */
static bool
lies_before(const KvScanStart *place, KvAddress address)
{
	return ((int64) (address / KV_SEGMENT_SIZE) - (int64) place->segment) * place->segment_step < 0;
}

/* Searches for the last page whose first value is before the segment, by bisection. */
static KvKey
run_key_at(KvRun *run, const KvScanStart *place, MemoryContext context)
{
	KvRunCursor cursor = {.run = run, .valid = true};
	uint64		first = 0;
	uint64		end = kv_run_header(run)->npages;
	uint8		keybuf[8];
	KvKey		key;
	KvAddress	address;

	while (end - first > 1)
	{
		cursor.page = (first + end) / 2;
		if (run_address(&cursor, keybuf, &key, &address) && lies_before(place, address))
			first = cursor.page;
		else
			end = cursor.page;
	}
	cursor.page = first;
	(void) run_address(&cursor, keybuf, &key, &address);
	return kv_key_copy(context, key.data, key.len);
}

/* The same in a memtable, exact to some entries. */
static bool
memtable_key_at(const KvMemtable *memtable, const KvScanStart *place, KvLastEntry *found)
{
	double		first = 0;
	double		end = 1;
	KvMemtableCursor cursor;
	KvMemtableItem *item;
	KvAddress	address;

	while (end - first > 16.0 / Max(memtable->nitems, 16))
	{
		item = kv_memtable_at_share(memtable, (first + end) / 2, &cursor);
		if (item != NULL && item_address(item, &address) && lies_before(place, address))
			first = (first + end) / 2;
		else
			end = (first + end) / 2;
	}
	item = kv_memtable_at_share(memtable, first, &cursor);
	if (item == NULL)
		return false;
	memcpy(found->bytes, item->key, item->keylen);
	found->len = item->keylen;
	return true;
}

bool
kv_key_at_address(const KvScan *scan, const KvScanStart *place, KvKey *key)
{
	KvShard    *shard = kv_shard(scan->store, place->shard);
	KvRun	   *run;
	KvLastEntry found;
	bool		any;

	if (place->segment == KV_WHOLE)
		return false;
	run = largest_run(kv_shard_runs(scan->store, place->shard));
	if (!memtable_is_larger(shard, run))
	{
		if (run == NULL || kv_run_header(run)->npages == 0)
			return false;
		*key = run_key_at(run, place, scan->context);
		return true;
	}
	LWLockAcquire(&shard->lock, LW_SHARED);
	any = memtable_key_at(larger_memtable(shard), place, &found);
	LWLockRelease(&shard->lock);
	if (any)
		*key = kv_key_copy(scan->context, found.bytes, found.len);
	return any;
}

/* ---- pieces ---- */

#define KV_PIECE_PAGES	8		/* least number of index pages of a run in a piece */
#define KV_PIECE_ITEMS	1024	/* least number of keys of a memtable in a piece */

/* Adds a cut, unless it is not greater than the last one. */
static int
add_cut(KvCut *splits, int n, const uint8 *bytes, int len)
{
	len = Min(len, (int) sizeof(splits->bytes));
	if (len == 0 ||
		(n > 0 && kv_key_compare(bytes, len, splits[n - 1].bytes, splits[n - 1].len) <= 0))
		return n;
	memcpy(splits[n].bytes, bytes, len);
	splits[n].len = len;
	return n + 1;
}

/* Cuts a run into at most so many pieces.  n and the result are numbers of cuts. */
static int
cut_run(KvRun *run, int most, KvCut *splits, int n)
{
	uint64		npages = kv_run_header(run)->npages;
	uint64		pieces = Min(npages / KV_PIECE_PAGES, (uint64) most);

	for (uint64 i = 1; i < pieces; i++)
	{
		uint8		bytes[8];
		int			len = kv_run_page_prefix(run, i * npages / pieces, bytes);

		n = add_cut(splits, n, bytes, len);
	}
	return n;
}

/* Cuts the larger of the shard's memtables in the same way. */
static int
cut_memtable(KvShard *shard, int most, KvCut *splits, int n)
{
	int			pieces = 1;

	for (int i = 0; i < pieces; i++)
	{
		const KvMemtable *memtable;
		KvMemtableCursor cursor;
		KvMemtableItem *item;

		LWLockAcquire(&shard->lock, LW_SHARED);
		memtable = shard->active.nitems >= shard->immutable.nitems ? &shard->active
			: &shard->immutable;
		if (i == 0)
			pieces = Min(memtable->nitems / KV_PIECE_ITEMS, most);
		else if ((item = kv_memtable_at_share(memtable, (double) i / pieces, &cursor)) != NULL)
			n = add_cut(splits, n, item->key, item->keylen);
		LWLockRelease(&shard->lock);
	}
	return n;
}

int
kv_store_cuts(KvStore *store, KvCut *splits, int max)
{
	int			nshards = kv_store_nshards(store);
	int			in_each = Max((max + 1) / nshards - 1, 0);
	int			n = 0;
	uint32		shard_id;
	KvKey		bound;

	for (uint32 position = 0; kv_shard_at(store, position, &shard_id, &bound); position++)
	{
		KvShard    *shard = kv_shard(store, shard_id);
		const KvRunSet *set;
		KvRun	   *largest = NULL;

		/* with more shards than pieces, some bounds suffice; a split may add shards now */
		if (n + in_each + (position > 0) > max)
			break;
		if (nshards <= max ||
			(uint64) position * max / nshards != ((uint64) position + 1) * max / nshards)
			n = add_cut(splits, n, bound.data, bound.len);
		pfree(unconstify(uint8 *, bound.data));
		if (in_each == 0)
			continue;
		set = kv_shard_runs(store, shard_id);
		for (int i = 0; i < set->nruns; i++)
		{
			if (largest == NULL ||
				kv_run_header(set->runs[i])->npages > kv_run_header(largest)->npages)
				largest = set->runs[i];
		}
		/* sizes of memtables without the lock: exactness does not matter */
		if (largest == NULL ||
			Max(shard->active.nitems, shard->immutable.nitems) > kv_run_header(largest)->nentries)
			n = cut_memtable(shard, in_each + 1, splits, n);
		else
			n = cut_run(largest, in_each + 1, splits, n);
	}
	return n;
}
