/*
 * crc.h
 *		The checksum of everything that the engine writes: CRC-32C.
 */
#ifndef KV_CRC_H
#define KV_CRC_H

#include "port/pg_crc32c.h"

/* COMP_CRC32C, for pieces that may be long. */
extern pg_crc32c (*kv_crc_add) (pg_crc32c crc, const void *data, Size len);

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

#endif							/* KV_CRC_H */
