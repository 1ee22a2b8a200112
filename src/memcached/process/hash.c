/*
 * hash.c
 *		Hashes of keys, and which keys were written a moment ago.
 *
 * Clients choose their keys.  So the hash depends on secret numbers that each process draws: no
 * client can choose many keys that collide in a batch.
 */
#include "memcached/process/process.h"

#define KEY_WORDS		((KV_MC_MAX_KEY + 3) / 4)
#define RECENT_KEYS		4096
#define RECENT_BATCHES	4

static struct
{
	uint32		hash;
	uint32		batch;
}			recent[RECENT_KEYS];
static uint32 writing_batches = RECENT_BATCHES + 1;

static uint64 numbers[2 + KEY_WORDS];	/* secret */

bool
kv_mc_hash_begin(void)
{
	return pg_strong_random(numbers, sizeof(numbers));
}

/*
 * The upper half of a sum of products: the length and each four bytes, each times a number of
 * its own.  For any two keys the numbers are drawn such that the keys collide once in 2^32
 * times.
 */
uint32
kv_mc_hash(const char *key, int length)
{
	const uint64 *number = &numbers[2];
	uint64		hash = numbers[0] + numbers[1] * length;
	uint32		word;

	Assert(length >= 0 && length <= KV_MC_MAX_KEY);
	for (; length >= sizeof(word); key += sizeof(word), length -= sizeof(word))
	{
		memcpy(&word, key, sizeof(word));
		hash += *number++ * word;
	}
	for (word = 0; length > 0; length--)
		word = word << 8 | (unsigned char) *key++;
	return (hash + *number * word) >> 32;
}

void
kv_mc_begin_writes(void)
{
	writing_batches++;
}

bool
kv_mc_was_written(uint32 hash)
{
	uint32		i = hash % RECENT_KEYS;
	bool		was = recent[i].hash == hash && writing_batches - recent[i].batch <= RECENT_BATCHES;

	recent[i].hash = hash;
	recent[i].batch = writing_batches;
	return was;
}
