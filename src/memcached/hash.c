/*
 * hash.c
 *		Hashes of keys, and which keys were written a moment ago.
 */
#include "memcached/internal.h"

#define HASH_FACTOR		UINT64CONST(0x9E3779B97F4A7C15)
#define RECENT_KEYS		4096
#define RECENT_TURNS	4

static struct
{
	uint32		hash;
	uint32		turn;
}			recent[RECENT_KEYS];
static uint32 writing_turns = RECENT_TURNS + 1;

/* Eight bytes at a time: a key has few, and many are hashed. */
uint32
kv_mc_hash(const char *key, int length)
{
	uint64		hash = length;
	uint64		word;

	for (; length >= sizeof(word); key += sizeof(word), length -= sizeof(word))
	{
		memcpy(&word, key, sizeof(word));
		hash = (hash ^ word) * HASH_FACTOR;
		hash ^= hash >> 32;
	}
	for (word = 0; length > 0; length--)
		word = word << 8 | (unsigned char) *key++;
	hash = (hash ^ word) * HASH_FACTOR;
	hash ^= hash >> 32;
	return (hash * HASH_FACTOR) >> 32;
}

void
kv_mc_begin_writes(void)
{
	writing_turns++;
}

bool
kv_mc_was_written(uint32 hash)
{
	uint32		i = hash % RECENT_KEYS;
	bool		was = recent[i].hash == hash && writing_turns - recent[i].turn <= RECENT_TURNS;

	recent[i].hash = hash;
	recent[i].turn = writing_turns;
	return was;
}
