/*
 * cut.c
 *		Where to cut a store into pieces that the processes of a parallel scan share.
 *
 * The bounds of shards, and within a shard the beginnings of pages of its largest run:
 * a page more or less is no matter, and nothing has to be read for it.
 */
#include "postgres.h"

#include "engine/base/key.h"
#include "engine/base/types.h"
#include "engine/engine.h"
#include "engine/index/run.h"
#include "engine/shard/shard.h"

#define KV_PIECE_PAGES	8		/* index pages of a run that are worth a piece */

/* Add a place, unless it is not behind the last one. */
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

int
kv_store_cuts(KvStore *store, KvCut *splits, int max)
{
	int			in_each = Max((max + 1) / store->shape.nshards - 1, 0);
	int			n = 0;

	for (uint32 position = 0, shardno = kv_shard_first(store); position < store->shape.nshards;
		 position++, shardno = kv_shard_next(store, shardno, 1))
	{
		KvKey		bound = kv_shard_bound(store, shardno);
		const KvRunSet *set;
		KvRun	   *largest = NULL;
		uint64		npages = 0;
		uint64		pieces;

		/* with more shards than pieces, some of the bounds will do */
		if (store->shape.nshards <= max ||
			(uint64) position * max / store->shape.nshards !=
			((uint64) position + 1) * max / store->shape.nshards)
			n = add_cut(splits, n, bound.data, bound.len);
		if (in_each == 0)
			continue;
		set = kv_shard_runs(store, shardno);
		for (int i = 0; i < set->nruns; i++)
		{
			if (kv_run_header(set->runs[i])->npages > npages)
			{
				largest = set->runs[i];
				npages = kv_run_header(largest)->npages;
			}
		}
		pieces = Min(npages / KV_PIECE_PAGES, (uint64) in_each + 1);
		for (uint64 i = 1; i < pieces; i++)
		{
			uint8		bytes[8];
			int			len = kv_run_page_prefix(largest, i * npages / pieces, bytes);

			n = add_cut(splits, n, bytes, len);
		}
	}
	return n;
}
