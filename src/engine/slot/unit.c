/*
 * unit.c
 *		The units of the merge file: which are free, which make a slot, and how many of
 *		them a shard may have.
 *
 * Free units that lie side by side are a row.  Rows are in lists, by how many units they
 * have; a slot that is freed becomes a row, and the last one of its size is the first to
 * be taken again, so as few pages as possible are in use.  Neighbours are made one row
 * when no row is large enough.
 */
#include "postgres.h"

#include "engine/base/types.h"
#include "engine/slot/slot.h"

/* Of the units, so many in four are shared by open slots. */
#define KV_OPEN_QUARTERS	3
#define KV_KEPT_SHARE	16		/* one in so many no table at level 'none' takes */

KvSlotPool *kv_slot_pool = NULL;
KvSlot	   *kv_slots = NULL;

Size
kv_slot_share(void)
{
	/* an old number of open slots is as good */
	int			units = (int64) kv_slot_pool->nunits * KV_OPEN_QUARTERS / 4 / (kv_slot_pool->nopen + 1);

	return (Size) Max(units, 1) * kv_slot_pool->unit_values;
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
	int		   *list = &kv_slot_pool->rows[list_of(units)];

	kv_slots[first].units = units;
	kv_slots[first].previous = -1;
	kv_slots[first].following = *list;
	if (*list >= 0)
		kv_slots[*list].previous = first;
	*list = first;
}

static void
remove_row(int first)
{
	const KvSlot *row = &kv_slots[first];

	if (row->previous >= 0)
		kv_slots[row->previous].following = row->following;
	else
		kv_slot_pool->rows[list_of(row->units)] = row->following;
	if (row->following >= 0)
		kv_slots[row->following].previous = row->previous;
	kv_slots[first].units = 0;
}

void
kv_units_join(void)
{
	int			first = -1;

	for (int list = 0; list < KV_UNIT_LISTS; list++)
		kv_slot_pool->rows[list] = -1;
	for (int i = 0; i <= kv_slot_pool->nunits;)
	{
		if (i < kv_slot_pool->nunits && kv_slots[i].state == KV_SLOT_FREE)
		{
			first = first < 0 ? i : first;
			kv_slots[i++].units = 0;
			continue;
		}
		if (first >= 0)
			add_row(first, i - first);
		first = -1;
		i += i < kv_slot_pool->nunits ? Max(kv_slots[i].units, 1) : 1;
	}
	kv_slot_pool->joined = true;
}

/* A row of so many units at least; -1: there is none. */
static int
find_row(int units)
{
	for (int list = list_of(units); list < KV_UNIT_LISTS; list++)
	{
		int			row = kv_slot_pool->rows[list];

		/* the last list has rows of different sizes */
		while (row >= 0 && kv_slots[row].units < units)
			row = kv_slots[row].following;
		if (row >= 0)
			return row;
	}
	return -1;
}

/* The same, if need be after neighbours have been made one. */
static int
find_row_or_join(int units)
{
	int			row = find_row(units);

	if (row >= 0 || kv_slot_pool->joined || kv_slot_pool->nfree < units)
		return row;
	kv_units_join();
	return find_row(units);
}

int
kv_units_kept(const KvStore *store)
{
	return store->shape.wal == KV_WAL_NONE ? Max(kv_slot_pool->nunits / KV_KEPT_SHARE, 1) : 0;
}

/* … that a slot may take, if so many are kept from it; -1 likewise. */
static int
find_row_kept(int units, int kept)
{
	return kv_slot_pool->nfree - units < kept ? -1 : find_row_or_join(units);
}

bool
kv_units_are_free(int units, int kept)
{
	return find_row_kept(units, kept) >= 0;
}

int
kv_units_take(int wanted, int least, int kept)
{
	int			slot;
	int			left;

	Assert(LWLockHeldByMeInMode(&kv_slot_pool->lock, LW_EXCLUSIVE));
	while ((slot = find_row_kept(wanted, kept)) < 0)
	{
		if (wanted == least)
			return -1;
		wanted = Max(least, wanted / 2);
	}
	left = kv_slots[slot].units - wanted;
	remove_row(slot);
	if (left > 0)
		add_row(slot + wanted, left);
	for (int i = slot; i < slot + wanted; i++)
	{
		Assert(kv_slots[i].state == KV_SLOT_FREE);
		kv_slots[i].state = KV_SLOT_PART;
	}
	kv_slots[slot].state = KV_SLOT_OPEN;
	kv_slots[slot].units = wanted;
	kv_slot_pool->nfree -= wanted;
	kv_slot_pool->entered += wanted;
	kv_slot_pool->nopen++;
	return slot;
}

void
kv_units_free(int slot)
{
	int			units = kv_slots[slot].units;

	if (kv_slots[slot].state == KV_SLOT_OPEN)
		kv_slot_pool->nopen--;
	for (int i = slot; i < slot + units; i++)
	{
		kv_slots[i].state = KV_SLOT_FREE;
		kv_slots[i].store = NULL;
	}
	add_row(slot, units);
	kv_slot_pool->nfree += units;
	kv_slot_pool->joined = false;
}

void
kv_slots_stats(KvTierRow *row)
{
	uint64		used;

	LWLockAcquire(&kv_slot_pool->lock, LW_SHARED);
	used = kv_slot_pool->nunits - kv_slot_pool->nfree;
	row->piece = kv_slot_pool->unit_values;
	row->entered = kv_slot_pool->entered;
	row->left = kv_slot_pool->used_then + kv_slot_pool->entered;
	row->left -= Min(row->left, used);	/* what a dead server left in the file never came */
	row->bytes = kv_slot_pool->nunits * row->piece;
	row->used = used * row->piece;
	LWLockRelease(&kv_slot_pool->lock);
}

void
kv_slots_stats_reset(void)
{
	LWLockAcquire(&kv_slot_pool->lock, LW_EXCLUSIVE);
	kv_slot_pool->entered = 0;
	kv_slot_pool->used_then = kv_slot_pool->nunits - kv_slot_pool->nfree;
	LWLockRelease(&kv_slot_pool->lock);
}

/* ---- slots that are to be written ---- */

void
kv_slot_queue(int slot)
{
	int			last = kv_slot_pool->last_pending;

	kv_slots[slot].state = KV_SLOT_SEALED;
	kv_slots[slot].following = -1;
	kv_slots[slot].previous = last;
	if (last >= 0)
		kv_slots[last].following = slot;
	else
		kv_slot_pool->first_pending = slot;
	kv_slot_pool->last_pending = slot;
	kv_slot_pool->nopen--;
}

void
kv_slot_unqueue(int slot)
{
	int			next = kv_slots[slot].following;
	int			previous = kv_slots[slot].previous;

	if (previous >= 0)
		kv_slots[previous].following = next;
	else
		kv_slot_pool->first_pending = next;
	if (next >= 0)
		kv_slots[next].previous = previous;
	else
		kv_slot_pool->last_pending = previous;
}
