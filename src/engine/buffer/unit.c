/*
 * unit.c
 *		The units of the buffer file: free ones, their combination into buffers, and the share
 *		of a shard.
 *
 * Adjacent free units are a row.  Rows are in lists, by their number of units.  A buffer that
 * is freed becomes a row, and the last one of its size is used again first, so as few pages as
 * possible are in use.  Adjacent rows are joined when no row is large enough.
 */
#include "postgres.h"

#include "engine/base/types.h"
#include "engine/buffer/buffer.h"

/* Open buffers share so many of four quarters of the units. */
#define KV_OPEN_QUARTERS	3
#define KV_KEPT_SHARE	16		/* one in so many is never used by tables at level 'none' */

KvBufferPool *kv_buffer_pool = NULL;
KvWriteBuffer *kv_buffers = NULL;

Size
kv_buffer_share(void)
{
	/* an outdated number of open buffers is as good */
	int			units = (int64) kv_buffer_pool->nunits * KV_OPEN_QUARTERS / 4 /
		(kv_buffer_pool->nopen + 1);

	return (Size) Max(units, 1) * kv_buffer_pool->unit_values;
}

/* ---- rows of free units ---- */

static int
list_of(int units)
{
	return Min(units, KV_UNIT_LISTS) - 1;
}

static void
add_row(int first, int units)
{
	int        *list = &kv_buffer_pool->rows[list_of(units)];

	kv_buffers[first].units = units;
	kv_buffers[first].previous = -1;
	kv_buffers[first].following = *list;
	if (*list >= 0)
		kv_buffers[*list].previous = first;
	*list = first;
}

static void
remove_row(int first)
{
	const KvWriteBuffer *row = &kv_buffers[first];

	if (row->previous >= 0)
		kv_buffers[row->previous].following = row->following;
	else
		kv_buffer_pool->rows[list_of(row->units)] = row->following;
	if (row->following >= 0)
		kv_buffers[row->following].previous = row->previous;
	kv_buffers[first].units = 0;
}

void
kv_units_join(void)
{
	int			first = -1;

	for (int list = 0; list < KV_UNIT_LISTS; list++)
		kv_buffer_pool->rows[list] = -1;
	for (int i = 0; i <= kv_buffer_pool->nunits;)
	{
		if (i < kv_buffer_pool->nunits && kv_buffers[i].state == KV_BUFFER_FREE)
		{
			first = first < 0 ? i : first;
			kv_buffers[i++].units = 0;
			continue;
		}
		if (first >= 0)
			add_row(first, i - first);
		first = -1;
		i += i < kv_buffer_pool->nunits ? Max(kv_buffers[i].units, 1) : 1;
	}
	kv_buffer_pool->joined = true;
}

/* A row of at least so many units; -1: there is none. */
static int
find_row(int units)
{
	for (int list = list_of(units); list < KV_UNIT_LISTS; list++)
	{
		int			row = kv_buffer_pool->rows[list];

		/* the last list has rows of different sizes */
		while (row >= 0 && kv_buffers[row].units < units)
			row = kv_buffers[row].following;
		if (row >= 0)
			return row;
	}
	return -1;
}

/* The same, after adjacent rows were joined if necessary. */
static int
find_row_or_join(int units)
{
	int			row = find_row(units);

	if (row >= 0 || kv_buffer_pool->joined || kv_buffer_pool->nfree < units)
		return row;
	kv_units_join();
	return find_row(units);
}

int
kv_units_kept(const KvStore *store)
{
	return store->shape.wal == KV_WAL_NONE ? Max(kv_buffer_pool->nunits / KV_KEPT_SHARE, 1) : 0;
}

/* A row that a buffer may use if so many units are kept; -1: there is none. */
static int
find_row_kept(int units, int kept)
{
	return kv_buffer_pool->nfree - units < kept ? -1 : find_row_or_join(units);
}

bool
kv_units_are_free(int units, int kept)
{
	return find_row_kept(units, kept) >= 0;
}

int
kv_units_take(int wanted, int least, int kept)
{
	int			buffer;
	int			left;

	Assert(LWLockHeldByMeInMode(&kv_buffer_pool->lock, LW_EXCLUSIVE));
	while ((buffer = find_row_kept(wanted, kept)) < 0)
	{
		if (wanted == least)
			return -1;
		wanted = Max(least, wanted / 2);
	}
	left = kv_buffers[buffer].units - wanted;
	remove_row(buffer);
	if (left > 0)
		add_row(buffer + wanted, left);
	for (int i = buffer; i < buffer + wanted; i++)
	{
		Assert(kv_buffers[i].state == KV_BUFFER_FREE);
		kv_buffers[i].state = KV_BUFFER_PART;
	}
	kv_buffers[buffer].state = KV_BUFFER_OPEN;
	kv_buffers[buffer].units = wanted;
	kv_buffer_pool->nfree -= wanted;
	kv_buffer_pool->entered += wanted;
	kv_buffer_pool->nopen++;
	return buffer;
}

void
kv_units_free(int buffer)
{
	int			units = kv_buffers[buffer].units;

	if (kv_buffers[buffer].state == KV_BUFFER_OPEN)
		kv_buffer_pool->nopen--;
	for (int i = buffer; i < buffer + units; i++)
	{
		kv_buffers[i].state = KV_BUFFER_FREE;
		kv_buffers[i].store = NULL;
	}
	add_row(buffer, units);
	kv_buffer_pool->nfree += units;
	kv_buffer_pool->joined = false;
}

void
kv_buffers_stats(KvCacheStats *stats)
{
	uint64		used;

	LWLockAcquire(&kv_buffer_pool->lock, LW_SHARED);
	used = kv_buffer_pool->nunits - kv_buffer_pool->nfree;
	stats->enabled = true;
	stats->block_size = kv_buffer_pool->unit_values;
	stats->inserted = kv_buffer_pool->entered;
	stats->evictions = kv_buffer_pool->used_then + kv_buffer_pool->entered;
	/* buffers that a dead server left were not counted */
	stats->evictions -= Min(stats->evictions, used);
	stats->size_bytes = kv_buffer_pool->nunits * stats->block_size;
	stats->used_bytes = used * stats->block_size;
	LWLockRelease(&kv_buffer_pool->lock);
}

void
kv_buffers_stats_reset(void)
{
	LWLockAcquire(&kv_buffer_pool->lock, LW_EXCLUSIVE);
	kv_buffer_pool->entered = 0;
	kv_buffer_pool->used_then = kv_buffer_pool->nunits - kv_buffer_pool->nfree;
	LWLockRelease(&kv_buffer_pool->lock);
}

/* ---- buffers that are to be written ---- */

void
kv_buffer_queue(int buffer)
{
	int			last = kv_buffer_pool->last_pending;

	kv_buffers[buffer].state = KV_BUFFER_SEALED;
	kv_buffers[buffer].following = -1;
	kv_buffers[buffer].previous = last;
	if (last >= 0)
		kv_buffers[last].following = buffer;
	else
		kv_buffer_pool->first_pending = buffer;
	kv_buffer_pool->last_pending = buffer;
	kv_buffer_pool->nopen--;
}

void
kv_buffer_unqueue(int buffer)
{
	int			next = kv_buffers[buffer].following;
	int			previous = kv_buffers[buffer].previous;

	if (previous >= 0)
		kv_buffers[previous].following = next;
	else
		kv_buffer_pool->first_pending = next;
	if (next >= 0)
		kv_buffers[next].previous = previous;
	else
		kv_buffer_pool->last_pending = previous;
}
