/*
 * prefix.h
 *		Key prefixes, and searching sorted arrays of them.
 *
 * A prefix is the first 8 bytes of a key, zero-padded, read as a big-endian
 * integer.  If two prefixes differ, they order as their keys do; only equal
 * ones need the full keys.
 */
#ifndef KV_PREFIX_H
#define KV_PREFIX_H

#include "port/pg_bswap.h"

static inline uint64
kv_key_prefix(const uint8 *key, int keylen)
{
	uint64		word = 0;

	memcpy(&word, key, Min(keylen, 8));
	return pg_ntoh64(word);
}

#define KV_PREFIXES_LINE	8	/* in a cache line */

/*
 * Begin to fetch n prefixes.  A search of what is not in the processor's cache
 * would wait for one line after the other.
 */
static inline void
kv_prefixes_fetch(const uint64 *prefixes, int n)
{
	for (int i = 0; i < n; i += KV_PREFIXES_LINE)
		__builtin_prefetch(&prefixes[i]);
}

/*
 * How many of n sorted prefixes are less.  Without a branch on what is compared:
 * keys come in no order, so half of the guesses would be wrong.
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
 * Which of n sorted prefixes are equal: from *low to before *high.  Those before
 * *low are less.
 */
static inline void
kv_prefixes_equal(const uint64 *prefixes, uint64 n, uint64 prefix, uint64 *low, uint64 *high)
{
	*low = *high = kv_prefixes_less(prefixes, n, prefix);
	if (*low < n && prefixes[*low] == prefix)
		*high = prefix == PG_UINT64_MAX ? n :
			*low + kv_prefixes_less(prefixes + *low, n - *low, prefix + 1);
}

#endif							/* KV_PREFIX_H */
