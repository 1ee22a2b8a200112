/*
 * area.h
 *		The area of shared memory in which memtables and shards are allocated.
 *
 * It cannot grow (I 12) and has the same dsa_pointers in every process, so that an address is a
 * sum.  kv_area attaches at first use; it raises ERROR if there is no memory.
 */
#ifndef KV_AREA_H
#define KV_AREA_H

#include "utils/dsa.h"

extern char *kv_area_base;		/* address of dsa_pointer 0 */
#define kv_address(pointer)	((void *) (kv_area_base + (pointer)))

extern int	kv_memtable_memory_mb;
extern dsa_area *kv_area(void);	/* attached on first call */
extern Size kv_area_size(void);	/* bytes, from kvfdw.memtable_memory */
extern void kv_area_attach(void);	/* in the shmem startup hook: creates or finds it */
extern void kv_area_gucs(void);	/* defines kvfdw.memtable_memory */

#endif							/* KV_AREA_H */
