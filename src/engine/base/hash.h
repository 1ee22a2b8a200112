/*
 * hash.h
 *		The checksum of everything that the engine writes, CRC-32C; a hash of numbers; and a
 *		process's hash tables.
 */
#ifndef KV_HASH_H
#define KV_HASH_H

#include "port/pg_crc32c.h"
#include "utils/hsearch.h"

/* COMP_CRC32C, for pieces that may be long. */
extern pg_crc32c (*kv_crc_add) (pg_crc32c crc, const void *data, Size len);

/* A piece of memory. */
typedef struct KvPiece
{
	const void *data;
	Size		len;
} KvPiece;

/* COMP_CRC32C of short pieces, one after the other. */
extern pg_crc32c (*kv_crc_pieces) (pg_crc32c crc, const KvPiece *pieces, int n);

/* CRC-32C of one piece of memory. */
static inline uint32
kv_crc(const void *data, Size len)
{
	pg_crc32c	crc;

	INIT_CRC32C(crc);
	crc = kv_crc_add(crc, data, len);
	FIN_CRC32C(crc);
	return crc;
}

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
