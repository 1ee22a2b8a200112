/*
 * key_hash.c
 *		Hashes of memcached's keys: nobody can choose keys that meet.
 *
 * The source is included.  Numbers are drawn by a generator of its own, so each run is the same.
 */
#include "postgres.h"

#undef printf
#undef snprintf
#undef qsort

#include "memcached/process/hash.c"

#define BLOCKS	12				/* of 16 bytes, in a key */
#define KEYS	(1 << BLOCKS)

static int	failed = 0;
static int	tests = 0;
static uint64 state;
static uint32 hashes[KEYS];

/* ---- what the server has ---- */

bool
pg_strong_random(void *into, size_t length)
{
	for (size_t i = 0; i < length / sizeof(uint64); i++)
	{
		uint64		x = state += UINT64CONST(0x9E3779B97F4A7C15);

		x = (x ^ (x >> 30)) * UINT64CONST(0xBF58476D1CE4E5B9);
		x = (x ^ (x >> 27)) * UINT64CONST(0x94D049BB133111EB);
		((uint64 *) into)[i] = x ^ (x >> 31);
	}
	return true;
}

/* ---- tests ---- */

static void
tell(bool ok, const char *what)
{
	failed += !ok;
	printf("%sok %d - %s\n", ok ? "" : "not ", ++tests, what);
}

static int
compare(const void *a, const void *b)
{
	uint32		left = *(const uint32 *) a;
	uint32		right = *(const uint32 *) b;

	return left < right ? -1 : left > right;
}

/* How many different ones there are of all hashes. */
static int
count_different(void)
{
	int			n = 1;

	qsort(hashes, KEYS, sizeof(uint32), compare);
	for (int i = 1; i < KEYS; i++)
		n += hashes[i] != hashes[i - 1];
	return n;
}

/*
 * Keys of pairs of words that a multiplication by an odd number and a shift by 32 bits do not tell apart, whatever
 * stands before them: the second word takes back what the first one's highest bit does.
 */
static void
chosen(void)
{
	bool		ok = true;

	for (int process = 0; process < 10; process++)
	{
		(void) kv_mc_hash_begin();
		for (int i = 0; i < KEYS; i++)
		{
			uint64		words[2 * BLOCKS];

			for (int block = 0; block < BLOCKS; block++)
			{
				bool		other = (i >> block) % 2 != 0;

				words[2 * block] = UINT64CONST(0x6161616161616161) ^ (other ? UINT64CONST(1) << 63 : 0);
				words[2 * block + 1] = UINT64CONST(0x6262626262626262) ^
					(other ? UINT64CONST(1) << 63 | UINT64CONST(1) << 31 : 0);
			}
			hashes[i] = kv_mc_hash((const char *) words, sizeof(words));
		}
		ok &= count_different() > KEYS - 10;
	}
	tell(ok, "keys made for it do not meet");
}

/* Keys as clients have them, of all lengths: each has a bucket nearly by itself. */
static void
common(void)
{
	bool		ok = true;

	for (int process = 0; process < 10; process++)
	{
		int			longest = 0;
		static int	buckets[2 * KEYS];

		(void) kv_mc_hash_begin();
		memset(buckets, 0, sizeof(buckets));
		for (int i = 0; i < KEYS; i++)
		{
			char		key[KV_MC_MAX_KEY];
			int			length = snprintf(key, sizeof(key), "user:%d", i);

			hashes[i] = kv_mc_hash(key, length);
			longest = Max(longest, ++buckets[hashes[i] % lengthof(buckets)]);
		}
		ok &= count_different() > KEYS - 10 && longest < 20;
	}
	tell(ok, "nor do numbered ones");

	memset(hashes, 0, sizeof(hashes));
	for (int length = 0; length <= KV_MC_MAX_KEY; length++)
	{
		static const char zeros[KV_MC_MAX_KEY];

		hashes[length] = kv_mc_hash(zeros, length);
	}
	tell(count_different() >= KV_MC_MAX_KEY, "nor do those that differ in their length");
}

static void
processes(void)
{
	for (int i = 0; i < KEYS; i++)
	{
		(void) kv_mc_hash_begin();
		hashes[i] = kv_mc_hash("key", 3);
	}
	tell(count_different() > KEYS - 10, "each process has hashes of its own");
}

int
main(void)
{
	chosen();
	common();
	processes();
	return failed != 0;
}
