/*
 * dead.c
 *		Dead ranges of a shard; dead.h is the contract.
 *
 * The ranges are disjoint and in key order.  The number of keys of a range is an estimate, which
 * decides what to keep when there is no capacity.
 */
#include "postgres.h"

#include "engine/base/shared.h"
#include "engine/base/key.h"
#include "engine/shard/dead.h"
#include "engine/shard/shard.h"
#include "utils/guc.h"

#ifdef KVFDW_FAULTS
int			kv_test_dead_keys = 64;
#endif

typedef struct KvDeadRange
{
	KvDeadXids	xids;
	uint32		keys;
	bool		endless;		/* it has no hi: it extends to the end of the shard */
	bool		lo_cut;			/* a new key has cut it at lo */
	bool		hi_cut;			/* a new key has cut it at hi */
	uint16		lo_len;			/* 0: from the start of the shard */
	uint16		hi_len;
	uint8		lo[KV_DEAD_KEY];
	uint8		hi[KV_DEAD_KEY];
} KvDeadRange;

typedef struct KvDead
{
	uint32		bounds_since;	/* that of the shard when the ranges were noted */
	int			n;
	KvDeadRange ranges[KV_DEAD_RANGES];
} KvDead;

void
kv_dead_gucs(void)
{
#ifdef KVFDW_FAULTS
	DefineCustomIntVariable("kvfdw.test_dead_keys",
							"Sets how many dead keys in a row a scan steps over.",
							"For tests only.",
							&kv_test_dead_keys, 64, 1, 1000000,
							PGC_USERSET, 0, NULL, NULL, NULL);
#endif
}

/* The shard's valid ranges; NULL: there are none. */
static KvDead *
ranges_of(const KvShard *shard)
{
	KvDead	   *dead;

	if (!kv_dead_any(shard))
		return NULL;
	dead = kv_address(shard->dead);
	return dead->bounds_since == shard->place.bounds_since ? dead : NULL;
}

static KvKey
lo_of(const KvDeadRange *range)
{
	return (KvKey) {range->lo, range->lo_len};
}

static KvKey
hi_of(const KvDeadRange *range)
{
	return (KvKey) {range->hi, range->hi_len};
}

/* Compares the key with hi: negative if the key is before it. */
static int
compare_to_hi(const KvDeadRange *range, KvKey key)
{
	return range->endless ? -1 : kv_key_compare(key.data, key.len, range->hi, range->hi_len);
}

static int
compare_to_lo(const KvDeadRange *range, KvKey key)
{
	return kv_key_compare(key.data, key.len, range->lo, range->lo_len);
}

/* Is a the first key after b? */
static bool
is_successor(KvKey a, KvKey b)
{
	return a.len == b.len + 1 && a.data[b.len] == 0 && memcmp(a.data, b.data, b.len) == 0;
}

/* Does the range contain the next key from start on? */
static bool
has_next(const KvDeadRange *range, KvKey start, bool after, bool backward)
{
	if (!backward)
		return compare_to_hi(range, start) < 0 &&
			(compare_to_lo(range, start) >= 0 || (after && is_successor(lo_of(range), start)));
	if (start.data == NULL)
		return range->endless;
	return compare_to_lo(range, start) > 0 && compare_to_hi(range, start) <= 0;
}

/* Does the range begin further on in the direction? */
static bool
comes_later(const KvDeadRange *range, KvKey start, bool backward)
{
	if (!backward)
		return compare_to_lo(range, start) < 0;
	return !range->endless && (start.data == NULL || compare_to_hi(range, start) > 0);
}

void
kv_dead_skip(const KvShard *shard, const KvView *view, KvKey start, bool after, bool backward,
			 KvDeadSkip *skip)
{
	const KvDead *dead = ranges_of(shard);

	*skip = (KvDeadSkip) {.start = start};
	if (dead == NULL)
		return;
	if (start.data == NULL && !backward)
		start = (KvKey) {(const uint8 *) "", 0};
	for (int i = 0; i < dead->n; i++)
	{
		const KvDeadRange *range = &dead->ranges[backward ? dead->n - 1 - i : i];

		if (!kv_view_sees_all(view, range->xids.first, range->xids.last))
			continue;
		if (has_next(range, start, after, backward))
		{
			if (backward ? range->lo_len == 0 : range->endless)
			{
				skip->nothing = true;
				return;
			}
			skip->start = start = backward ? lo_of(range) : hi_of(range);
			skip->moved = true;
			after = false;
		}
		else if (comes_later(range, start, backward))
		{
			skip->stop = backward ? hi_of(range) : lo_of(range);
			return;
		}
	}
}

KvDeadXids
kv_dead_join(KvDeadXids a, KvDeadXids b)
{
	if (a.last == 0 || b.last == 0)
		return a.last == 0 ? b : a;
	return (KvDeadXids) {Min(a.first, b.first), Max(a.last, b.last)};
}

/* ---- bounds ---- */

/*
 * Makes the range begin at lo, or at the next key that fits into the range.  False: there is none.
 */
static bool
set_lo(KvDeadRange *range, KvKey lo)
{
	int			len = Min(lo.len, KV_DEAD_KEY);

	memcpy(range->lo, lo.data, len);
	if (lo.len > KV_DEAD_KEY)
	{
		while (len > 0 && range->lo[len - 1] == 0xff)
			len--;
		if (len == 0)
			return false;
		range->lo[len - 1]++;
	}
	range->lo_len = len;
	return true;
}

static void
set_hi(KvDeadRange *range, KvKey hi)
{
	range->endless = hi.data == NULL;
	range->hi_len = range->endless ? 0 : Min(hi.len, KV_DEAD_KEY);
	if (!range->endless)
		memcpy(range->hi, hi.data, range->hi_len);
}

static bool
is_empty(const KvDeadRange *range)
{
	return compare_to_hi(range, lo_of(range)) >= 0;
}

static void
remove_at(KvDead *dead, int i)
{
	dead->n--;
	memmove(&dead->ranges[i], &dead->ranges[i + 1], (dead->n - i) * sizeof(KvDeadRange));
}

/* ---- noting ---- */

/*
 * Removes from the range the parts that others have, and removes others that it covers.  False:
 * nothing is left of the range.
 */
static bool
clip(KvDead *dead, KvDeadRange *range)
{
	for (int i = dead->n - 1; i >= 0; i--)
	{
		KvDeadRange *other = &dead->ranges[i];
		bool		begins_below = compare_to_lo(range, lo_of(other)) < 0;
		bool		ends_above = !range->endless &&
			(other->endless || compare_to_hi(range, hi_of(other)) > 0);

		if (compare_to_hi(other, lo_of(range)) >= 0 || compare_to_hi(range, lo_of(other)) >= 0)
			continue;			/* they have no key in common */
		if (!begins_below && !ends_above)
			remove_at(dead, i);
		else if (begins_below && (ends_above || other->endless))
			return false;
		else if (begins_below)
			(void) set_lo(range, hi_of(other));
		else
			set_hi(range, lo_of(other));
	}
	return !is_empty(range);
}

static bool
touch(const KvDeadRange *low, const KvDeadRange *high)
{
	return compare_to_hi(low, lo_of(high)) == 0;
}

/* Appends to a range the one above, which it touches. */
static void
append(KvDeadRange *low, const KvDeadRange *high)
{
	set_hi(low, high->endless ? (KvKey) {NULL, 0} : hi_of(high));
	low->hi_cut = high->hi_cut;
	low->xids = kv_dead_join(low->xids, high->xids);
	low->keys += high->keys;
}

/* Does a new range lose little by a union with an older one, and that one by the new xids? */
static bool
joins(const KvDeadRange *old, const KvDeadRange *fresh)
{
	return old->keys / 2 <= fresh->keys || fresh->xids.last == 0 ||
		(old->xids.first <= fresh->xids.first && fresh->xids.last <= old->xids.last);
}

/* Joins the range to those that it touches, where joins() says so, and removes these. */
static void
join_neighbors(KvDead *dead, KvDeadRange *range)
{
	for (int i = dead->n - 1; i >= 0; i--)
	{
		KvDeadRange other = dead->ranges[i];

		if (touch(&other, range) && joins(&other, range))
		{
			append(&other, range);
			*range = other;
		}
		else if (touch(range, &other) && joins(&other, range))
			append(range, &other);
		else
			continue;
		remove_at(dead, i);
		i = dead->n;			/* another range may be small enough now */
	}
}

/*
 * Makes capacity for one more range.  Joins the two neighbors with the oldest deletions, or removes
 * the smallest range if it has fewer keys than the new one.
 */
static bool
make_room(KvDead *dead, uint32 keys)
{
	uint64		oldest = PG_UINT64_MAX;
	int			join = -1;
	int			least = 0;

	if (dead->n < KV_DEAD_RANGES)
		return true;
	for (int i = 0; i < dead->n; i++)
	{
		const KvDeadRange *range = &dead->ranges[i];

		if (range->keys < dead->ranges[least].keys)
			least = i;
		if (i + 1 < dead->n && touch(range, range + 1) &&
			Max(range->xids.last, range[1].xids.last) < oldest)
		{
			oldest = Max(range->xids.last, range[1].xids.last);
			join = i;
		}
	}
	if (join >= 0)
	{
		append(&dead->ranges[join], &dead->ranges[join + 1]);
		remove_at(dead, join + 1);
	}
	else if (dead->ranges[least].keys < keys)
		remove_at(dead, least);
	return dead->n < KV_DEAD_RANGES;
}

static void
insert(KvDead *dead, const KvDeadRange *range)
{
	int			at = 0;

	while (at < dead->n && compare_to_lo(&dead->ranges[at], lo_of(range)) > 0)
		at++;
	memmove(&dead->ranges[at + 1], &dead->ranges[at], (dead->n - at) * sizeof(KvDeadRange));
	dead->ranges[at] = *range;
	dead->n++;
}

void
kv_dead_add(KvShard *shard, KvKey lo, KvKey hi, KvDeadXids xids, uint32 keys)
{
	KvDeadRange range = {.xids = xids, .keys = keys};
	KvDead	   *dead;

	Assert(LWLockHeldByMeInMode(&shard->lock, LW_EXCLUSIVE));
	set_hi(&range, hi);
	if (!set_lo(&range, lo) || is_empty(&range))
		return;
	if (!kv_dead_any(shard))
		shard->dead = dsa_allocate_extended(kv_area(), sizeof(KvDead),
											DSA_ALLOC_NO_OOM | DSA_ALLOC_ZERO);
	if (!kv_dead_any(shard))
		return;
	dead = kv_address(shard->dead);
	if (dead->bounds_since != shard->place.bounds_since)
		dead->n = 0;
	dead->bounds_since = shard->place.bounds_since;
	if (!clip(dead, &range))
		return;
	join_neighbors(dead, &range);
	if (make_room(dead, range.keys))
		insert(dead, &range);
}

/* ---- cutting ---- */

/*
 * The rest of a range above an inserted key.  Most keys are inserted next to the previous one: then
 * the other part gets all keys of the range.
 */
static KvDeadRange
above(const KvDeadRange *range, KvKey key)
{
	KvDeadRange part = *range;

	part.lo_cut = true;
	part.keys = range->lo_cut ? range->keys : range->hi_cut ? 0 : (range->keys + 1) / 2;
	if (key.len >= KV_DEAD_KEY)
		part.keys = 0;
	else
	{
		memcpy(part.lo, key.data, key.len);
		part.lo[key.len] = 0;
		part.lo_len = key.len + 1;
	}
	if (is_empty(&part))
		part.keys = 0;
	return part;
}

static KvDeadRange
below(const KvDeadRange *range, KvKey key)
{
	KvDeadRange part = *range;

	part.hi_cut = true;
	part.keys = range->lo_cut ? 0 : range->hi_cut ? range->keys : (range->keys + 1) / 2;
	set_hi(&part, key);
	if (is_empty(&part))
		part.keys = 0;
	return part;
}

void
kv_dead_cut(KvShard *shard, KvKey key)
{
	KvDead	   *dead = ranges_of(shard);

	Assert(LWLockHeldByMeInMode(&shard->lock, LW_EXCLUSIVE));
	for (int i = 0; dead != NULL && i < dead->n; i++)
	{
		KvDeadRange range = dead->ranges[i];
		KvDeadRange low;
		KvDeadRange high;

		if (compare_to_lo(&range, key) < 0 || compare_to_hi(&range, key) >= 0)
			continue;
		low = below(&range, key);
		high = above(&range, key);
		if (is_empty(&low))
			high.keys = is_empty(&high) ? 0 : Max(high.keys, range.keys);
		remove_at(dead, i);
		if (low.keys > 0)
			insert(dead, &low);
		if (high.keys > 0 && make_room(dead, high.keys))
			insert(dead, &high);
		return;
	}
}

void
kv_dead_free(KvShard *shard)
{
	if (kv_dead_any(shard))
		dsa_free(kv_area(), shard->dead);
	shard->dead = InvalidDsaPointer;
}
