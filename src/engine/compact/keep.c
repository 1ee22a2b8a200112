/*
 * keep.c
 *		Keeps moved values cached, at their new addresses.
 *
 *	value cache		While the job runs, entries name the old addresses and readers find the values
 *					there. A cached value is also cached at its new address if there is free
 *					memory; nothing is evicted for it. Other blocks are noted. When entries name
 *					the new addresses, the old blocks have left the cache (flush/), and the noted
 *					blocks are read.
 *	recent ring		Values read at old addresses count as read at their new ones.
 *	second tier		A piece of the output goes to the tier if some of it was there or in the
 *					recent ring, and either most of it was or the tier has free space. Otherwise
 *					readers would look for it there in vain, and value files may be slow.
 *	page cache		If most of the values that a slice has moved were there, all its values go
 *					there.
 */
#include "postgres.h"

#include "common/pg_prng.h"
#include "utils/memutils.h"

#include "engine/base/progress.h"
#include "engine/base/types.h"
#include "engine/cache/cache.h"
#include "engine/compact/internal.h"
#include "engine/io/io.h"
#include "engine/shard/space.h"
#include "engine/value/value.h"

#define KV_TIER_PUT		(256 * 1024)	/* bytes that go to the second tier at once: whole frames */
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
		if (kept->room < kv_block_room())
		{
			kept->room = Min(Max(kept->room * 2, 1024), kv_block_room());
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
	uint32		cache_id = slice->store->cache_id;
	KvLocation	to = kv_new_location(value);
	KvAddress	first = TYPEALIGN_DOWN(KV_BLOCK, value->to);
	const char *blocks;

	if (value->at == NULL)
		return;
	blocks = value->at - (value->to - first);
	if (kv_block_has(cache_id, value->from, value->len))
	{
		if (kv_block_keep_too(cache_id, to, value->len, blocks))
			return;
		for (KvAddress block = first; block < value->to + value->len; block += KV_BLOCK)
			note(&slice->kept, block);
	}
	else if (kv_recent_heat(cache_id, KV_LOCATION_ADDRESS(value->from), value->len) != KV_COLD)
		kv_block_keep(cache_id, to, value->len, blocks, false);
}

void
kv_keep_pages(const KvSlice *slice)
{
	uint64		moved = 0;
	uint64		had = 0;

	if (!kv_io_page_cache)
		return;
	for (int i = 0; i < slice->nvalues; i++)
	{
		const KvMoving *value = &slice->values[i];

		if (!value->moved)
			continue;
		moved += value->len;
		if (kv_around_has(slice->store->cache_id, KV_LOCATION_ADDRESS(value->from)))
			had += value->len;
	}
	if (2 * had <= moved)
		return;
	for (int i = 0; i < slice->nextents; i++)
	{
		const KvExtentOut *extent = &slice->extents[i];
		File		file;

		if (!kv_around_moved(slice->store->cache_id, extent->begin, extent->len,
							 kv_space_taken(slice->store)))
			return;
		file = kv_value_cached_file(&slice->store->key, slice->store->cache_id,
									kv_file_of(extent->begin));
		if (file >= 0)
			kv_io_want_pages(file, kv_offset_of(extent->begin), extent->len);
	}
}

/* Is a value in the second tier, or about to go there? */
static bool
is_in_tier(const KvSlice *slice, const KvMoving *value)
{
	KvAddress	from = KV_LOCATION_ADDRESS(value->from);
	KvTierPlace place;

	return kv_tier_find(slice->store->cache_id, from, value->len, &place) ||
		kv_recent_may_have(slice->store->cache_id, from);
}

/*
 * The bytes in the tier of the values from *next on whose new addresses are before the end.  Moves
 * *next to the first value after these.
 */
static uint64
bytes_in_tier(const KvSlice *slice, KvAddress end, int *next, uint64 *moved)
{
	uint64		had = 0;

	*moved = 0;
	for (; *next < slice->nvalues && slice->values[*next].to < end; ++*next)
	{
		const KvMoving *value = &slice->values[*next];

		if (!value->moved || value->at == NULL)
			continue;
		*moved += value->len;
		if (is_in_tier(slice, value))
			had += value->len;
	}
	return had;
}

void
kv_keep_tier(const KvSlice *slice)
{
	int			next = 0;

	if (!kv_tier_wanted())
		return;
	for (int i = 0; i < slice->nextents; i++)
	{
		const KvExtentOut *extent = &slice->extents[i];
		KvAddress	end = extent->begin + TYPEALIGN(KV_BLOCK, extent->len);
		KvAddress	part;

		/* the tier takes as many bytes at once */
		for (KvAddress at = extent->begin; at < end; at = part)
		{
			uint64		moved;
			uint64		had;

			part = Min(end, (at / KV_TIER_PUT + 1) * KV_TIER_PUT);
			had = bytes_in_tier(slice, part, &next, &moved);
			if (had > 0)
				kv_tier_put(slice->store->cache_id, at, extent->at + (at - extent->begin),
							part - at, 2 * had > moved);
		}
	}
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
