/*
 * keep.c
 *		Keeps moved values cached, at their new addresses.
 *
 * While the job runs, entries name the old addresses and readers find the values there.  A value in
 * the value cache is also cached at its new address if there is free memory; nothing is evicted for
 * it.  Other blocks are noted.  When entries name the new addresses, the old blocks have left the
 * cache (flush/), and the noted blocks are read.
 *
 * Other caches take whole parts of the output, if they had enough of its values.
 */
#include "postgres.h"

#include "common/pg_prng.h"
#include "utils/memutils.h"

#include "engine/base/progress.h"
#include "engine/base/types.h"
#include "engine/cache/cache.h"
#include "engine/compact/internal.h"

#define KV_KEEP_STEP	4096	/* number of blocks that are read at once */

/* Notes a block to be read; once there are more than the cache can hold, a random sample. */
static void
note(KvKept *kept, KvAddress block)
{
	uint64		i = kept->n;

	if (kept->last == block)
		return;
	kept->last = block;
	kept->seen++;
	if (kept->n == kept->room)
	{
		if (kept->room < kv_source_room())
		{
			kept->room = Min(Max(kept->room * 2, 1024), kv_source_room());
			kept->blocks = kept->blocks == NULL ? palloc(kept->room * sizeof(KvAddress)) :
				repalloc_huge(kept->blocks, kept->room * sizeof(KvAddress));
		}
		else
		{
			i = pg_prng_uint64_range(&pg_global_prng_state, 0, kept->seen - 1);
			if (i >= kept->n)
				return;
		}
	}
	kept->blocks[i] = block;
	kept->n = Max(kept->n, i + 1);
}

void
kv_keep_value(KvSlice *slice, const KvMoving *value)
{
	KvAddress	first = TYPEALIGN_DOWN(KV_BLOCK, value->to);

	if (value->at == NULL ||
		kv_source_moved(slice->store->cache_id, value->from, kv_new_location(value), value->len,
						value->at - (value->to - first)))
		return;
	for (KvAddress block = first; block < value->to + value->len; block += KV_BLOCK)
		note(&slice->kept, block);
}

/*
 * The bytes that a cache had of the values from *next on whose new addresses are before the end.
 * Moves *next to the first value after these.  *moved: the bytes of all.
 */
static uint64
bytes_had(const KvSlice *slice, const KvMover *mover, KvAddress end, int *next, uint64 *moved)
{
	uint64		had = 0;

	*moved = 0;
	for (; *next < slice->nvalues && slice->values[*next].to < end; ++*next)
	{
		const KvMoving *value = &slice->values[*next];

		if (!value->moved || (value->at == NULL && mover->at_once > 0))
			continue;
		*moved += value->len;
		if (mover->had(slice->store->cache_id, value->from, value->len))
			had += value->len;
	}
	return had;
}

/* Gives the output to a cache, in parts. */
static void
keep_in(const KvSlice *slice, const KvMover *mover)
{
	int			next = 0;
	uint64		moved = 0;
	uint64		had = 0;

	if (mover->at_once == 0)
		had = bytes_had(slice, mover, PG_UINT64_MAX, &next, &moved);
	for (int i = 0; i < slice->nextents; i++)
	{
		const KvExtentOut *extent = &slice->extents[i];
		KvAddress	end = extent->begin + TYPEALIGN(KV_BLOCK, extent->len);
		KvAddress	part;

		for (KvAddress at = extent->begin; at < end; at = part)
		{
			part = end;
			if (mover->at_once > 0)
			{
				part = Min(end, (at / mover->at_once + 1) * mover->at_once);
				had = bytes_had(slice, mover, part, &next, &moved);
			}
			if (had > 0 &&
				!mover->take(slice->store, at, extent->at + (at - extent->begin), part - at,
							 2 * had > moved))
				return;
		}
	}
}

void
kv_keep_slice(const KvSlice *slice)
{
	const KvMover *mover;

	for (int n = 0; (mover = kv_source_mover(n)) != NULL; n++)
		keep_in(slice, mover);
}

static int
compare_addresses(const void *a, const void *b)
{
	KvAddress	left = *(const KvAddress *) a;
	KvAddress	right = *(const KvAddress *) b;

	return left < right ? -1 : left > right;
}

/* Sorts noted blocks by address. */
static void
sort_kept(KvKept *kept)
{
	qsort(kept->blocks, kept->n, sizeof(KvAddress), compare_addresses);
	kept->sorted = true;
	kv_progress_done(0);
	kv_progress_total(kept->n * KV_BLOCK);
}

bool
kv_keep_some(KvSlice *slice)
{
	KvKept	   *kept = &slice->kept;
	uint64		end = Min(kept->n, kept->done + KV_KEEP_STEP);
	KvWarming  *warming;

	if (kept->done == kept->n)
		return false;
	if (!kept->sorted)
		sort_kept(kept);
	warming = kv_warming_begin(&slice->store->key, slice->store->cache_id);
	for (; kept->done < end; kept->done++)
		kv_warming_add(warming, kept->blocks[kept->done], false);
	kv_pace(slice->pace, kv_warming_end(warming) * KV_BLOCK);
	return true;
}
