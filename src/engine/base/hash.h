/*
 * hash.h
 *		A process's hash tables, and a hash of numbers.
 */
#ifndef KV_HASH_H
#define KV_HASH_H

#include "utils/hsearch.h"

/*
 * A hash table whose key is so many bytes at the entry's beginning.  Raises ERROR if there is
 * no memory.
 */
static inline HTAB *
kv_hash_create(const char *name, Size keysize, Size entrysize, MemoryContext context)
{
	HASHCTL		info = {.keysize = keysize, .entrysize = entrysize, .hcxt = context};

	return hash_create(name, 64, &info, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

/*
 * A hash of which all bits depend on all bits of the number and the seed.  Nothing on disk may
 * depend on it.
 */
static inline uint64
kv_hash_number(uint64 number, uint32 seed)
{
	uint64		x = number + seed * UINT64CONST(0x9E3779B97F4A7C15);

	x = (x ^ (x >> 30)) * UINT64CONST(0xBF58476D1CE4E5B9);
	x = (x ^ (x >> 27)) * UINT64CONST(0x94D049BB133111EB);
	return x ^ (x >> 31);
}

#endif							/* KV_HASH_H */
