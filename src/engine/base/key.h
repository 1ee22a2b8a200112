/*
 * key.h
 *		The order of keys; their prefixes, and searching sorted arrays of them.
 *
 * A prefix is the first 8 bytes of a key, zero-padded, read as a big-endian integer.  If two
 * prefixes differ, they order as their keys do; only equal ones need the full keys.  For keys
 * with a common beginning, the prefixes are taken after that beginning.
 */
#ifndef KV_KEY_H
#define KV_KEY_H

#include "port/pg_bswap.h"
#include "utils/palloc.h"

#include "engine/base/types.h"

static inline uint64
kv_key_prefix(const uint8 *key, int keylen)
{
	uint64		word = 0;

	if (keylen >= 8)
	{
		memcpy(&word, key, 8);
		return pg_ntoh64(word);
	}
	if (keylen >= 4)
	{
		uint32		first;
		uint32		last;	/* the two may overlap */

		memcpy(&first, key, 4);
		memcpy(&last, key + keylen - 4, 4);
		return (uint64) pg_ntoh32(first) << 32 | (uint64) pg_ntoh32(last) << (64 - 8 * keylen);
	}
	for (int i = 0; i < keylen; i++)
		word |= (uint64) key[i] << (56 - 8 * i);
	return word;
}

/*
 * memcmp order; if one key is the beginning of the other the shorter one is first.  Most keys
 * differ, or are equal, within so few bytes that a call of memcmp would take longer than
 * comparing them here.
 */
static inline int
kv_key_compare(const uint8 *a, int alen, const uint8 *b, int blen)
{
	int			common = Min(alen, blen);
	int			first = common >= 8 ? 8 : common >= 4 ? 4 : 0;
	int			order;

	if (first > 0)
	{
		uint64		left = kv_key_prefix(a, first);
		uint64		right = kv_key_prefix(b, first);

		if (left != right)
			return left < right ? -1 : 1;
	}
	order = common > first ? memcmp(a + first, b + first, common - first) : 0;
	return order != 0 ? order : alen - blen;
}

/* kv_key_compare of two KvKeys, for qsort. */
static inline int
kv_key_order(const void *a, const void *b)
{
	const KvKey *left = a;
	const KvKey *right = b;

	return kv_key_compare(left->data, left->len, right->data, right->len);
}

static inline KvKey
kv_key_copy(MemoryContext context, const uint8 *data, int len)
{
	uint8	   *copy = MemoryContextAlloc(context, Max(len, 1));
	KvKey		key = {copy, len};

	memcpy(copy, data, len);
	return key;
}

/* The length of the common beginning of two keys, up to most. */
static inline int
kv_key_common(const uint8 *a, int alen, const uint8 *b, int blen, int most)
{
	int			n = 0;

	most = Min(most, Min(alen, blen));
	while (n < most && a[n] == b[n])
		n++;
	return n;
}

/* Is a key before all keys with this beginning (-1), after them (1), or one of them (0)? */
static inline int
kv_key_compare_prefix(const uint8 *key, int keylen, const uint8 *beginning, int len)
{
	int			order = memcmp(key, beginning, Min(keylen, len));

	if (order != 0)
		return order < 0 ? -1 : 1;
	return keylen < len ? -1 : 0;
}

/* The prefix of the bytes after the first so many. */
static inline uint64
kv_key_prefix_after(const uint8 *key, int keylen, int common)
{
	return keylen > common ? kv_key_prefix(key + common, keylen - common) : 0;
}

#define KV_FOUND_TOGETHER	16	/* at most so many keys are searched at once */
#define KV_PREFIXES_LINE	8	/* in a cache line */

/*
 * Begin to fetch n prefixes.  A search outside the processor's cache would wait for one line
 * after the other.
 */
static inline void
kv_prefixes_fetch(const uint64 *prefixes, int n)
{
	for (int i = 0; i < n; i += KV_PREFIXES_LINE)
		__builtin_prefetch(&prefixes[i]);
}

/*
 * How many of n sorted prefixes are less?  Without a branch on the compared values: keys come
 * in no order, so half of the branch predictions would be wrong.
 */
static inline uint64
kv_prefixes_less(const uint64 *prefixes, uint64 n, uint64 prefix)
{
	const uint64 *from = prefixes;

	if (n == 0)
		return 0;
	while (n > 1)
	{
		uint64		half = n / 2;

		from += half & -(uint64) (from[half - 1] < prefix);
		n -= half;
	}
	return (from - prefixes) + (*from < prefix);
}

/*
 * The range of equal ones among n sorted prefixes: from *low to before *high.  Those before
 * *low are less.
 */
static inline void
kv_prefixes_equal(const uint64 *prefixes, uint64 n, uint64 prefix, uint64 *low, uint64 *high)
{
	*low = *high = kv_prefixes_less(prefixes, n, prefix);
	if (*low == n || prefixes[*low] != prefix)
		return;
	*high = *low + 1;			/* mostly there is one */
	if (*high < n && prefixes[*high] == prefix)
		*high = prefix == PG_UINT64_MAX ? n :
			*low + kv_prefixes_less(prefixes + *low, n - *low, prefix + 1);
}

#endif							/* KV_KEY_H */
