/*
 * cut.c
 *		Divides a store into pieces for the processes of a parallel scan.
 *
 * Pieces begin at the bounds of shards.  Within a shard they begin at keys of the part with the
 * most entries: first keys of pages of its largest run, or keys of a memtable.  The choice need not
 * be exact, and reads no values.
 */
#include "postgres.h"

#include "engine/base/key.h"
#include "engine/base/types.h"
#include "engine/engine.h"
#include "engine/index/memtable.h"
#include "engine/index/run.h"
#include "engine/shard/shard.h"

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
