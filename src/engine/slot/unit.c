/*
 * unit.c
 *		The units of the merge file: which are free, which make a slot, and how many of
 *		them a shard may have.
 *
 * Units are taken as near to the file's beginning as they can be had, so as few pages as
 * possible are in use.  A search goes from slot to slot and begins at lowest_free.
 */
#include "postgres.h"

#include "engine/base/types.h"
#include "engine/slot/slot.h"

/* Of the units, so many in four are shared by open slots. */
#define KV_OPEN_QUARTERS	3

Size
kv_slot_share(void)
{
	/* an old number of open slots is as good */
	int			units = (int64) kv_slot_pool->nunits * KV_OPEN_QUARTERS / 4 / (kv_slot_pool->nopen + 1);

	return (Size) Max(units, 1) * kv_slot_pool->unit_values;
}

/* The first so many free units side by side, else the longest row of fewer: *length. */
static int
find_units(int wanted, int *length)
{
	int			best = -1;
	int			first = -1;

	*length = 0;
	for (int i = kv_slot_pool->lowest_free; i < kv_slot_pool->nunits && *length < wanted;)
	{
		if (kv_slots[i].state != KV_SLOT_FREE)
		{
			first = -1;
			i += Max(kv_slots[i].units, 1);
			continue;
		}
		if (first < 0)
			first = i;
		i++;
		if (i - first > *length)
		{
			*length = i - first;
			best = first;
		}
	}
	return best;
}

bool
kv_units_are_free(Size bytes)
{
	int			wanted = kv_slot_units(bytes);
	int			length;

	if (kv_slot_pool->nfree < wanted)
		return false;
	(void) find_units(wanted, &length);
	return length >= wanted;
}

int
kv_units_take(int wanted, int least)
{
	int			length;
	int			slot;

	Assert(LWLockHeldByMeInMode(&kv_slot_pool->lock, LW_EXCLUSIVE));
	if (kv_slot_pool->nfree < least)
		return -1;
	slot = find_units(wanted, &length);
	if (length < least)
		return -1;
	for (int i = slot; i < slot + length; i++)
	{
		Assert(kv_slots[i].state == KV_SLOT_FREE);
		kv_slots[i].state = KV_SLOT_PART;
		kv_slots[i].units = 0;
		kv_slots[i].store = NULL;
	}
	kv_slots[slot].state = KV_SLOT_OPEN;
	kv_slots[slot].units = length;
	kv_slot_pool->nfree -= length;
	kv_slot_pool->nopen++;
	if (slot == kv_slot_pool->lowest_free)
		kv_slot_pool->lowest_free = slot + length;
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
		kv_slots[i].units = 0;
		kv_slots[i].store = NULL;
	}
	kv_slot_pool->nfree += units;
	kv_slot_pool->lowest_free = Min(kv_slot_pool->lowest_free, slot);
}

void
kv_slot_queue(int slot)
{
	int			last = kv_slot_pool->last_pending;

	kv_slots[slot].state = KV_SLOT_SEALED;
	kv_slots[slot].pending_next = -1;
	kv_slots[slot].pending_previous = last;
	if (last >= 0)
		kv_slots[last].pending_next = slot;
	else
		kv_slot_pool->first_pending = slot;
	kv_slot_pool->last_pending = slot;
	kv_slot_pool->nopen--;
}

void
kv_slot_unqueue(int slot)
{
	int			next = kv_slots[slot].pending_next;
	int			previous = kv_slots[slot].pending_previous;

	if (previous >= 0)
		kv_slots[previous].pending_next = next;
	else
		kv_slot_pool->first_pending = next;
	if (next >= 0)
		kv_slots[next].pending_previous = previous;
	else
		kv_slot_pool->last_pending = previous;
}
