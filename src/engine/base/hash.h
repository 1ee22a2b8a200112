/*
 * hash.h
 *		A process's hash tables.
 */
#ifndef KV_HASH_H
#define KV_HASH_H

#include "utils/hsearch.h"

/* The key is so many bytes at the entry's beginning.  Raises ERROR without memory. */
static inline HTAB *
kv_hash_create(const char *name, Size keysize, Size entrysize, MemoryContext context)
{
	HASHCTL		info = {.keysize = keysize, .entrysize = entrysize, .hcxt = context};

	return hash_create(name, 64, &info, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

#endif							/* KV_HASH_H */
