/*
 * shared.h
 *		What the modules' structs in shared memory stand on.
 *
 * Each module has a struct of its own (start.c makes them).  Lock order, outermost first;
 * nobody takes one on the left while holding one on its right:
 *
 *     KvRegistry.lock → KvStore.map_lock → KvShard.extend_lock → KvShard.lock → KvBufferPool.lock
 *     KvShard.commit_lock  →  KvShard.lock
 */
#ifndef KV_SHARED_H
#define KV_SHARED_H

#include "port/atomics.h"
#include "storage/latch.h"
#include "storage/lwlock.h"

#define KV_FORMER_SERVERS	4

typedef struct KvBase
{
	int			tranches[2];	/* of the modules' locks, of the shards' locks */
	Latch	   *maintainer_latch;	/* NULL while it does not run */
	/* since the start: what was cached before is read, or was (warm.c) */
	bool		warmed;
	uint64		directory_id;	/* of the directory "kvfdw"; set before any of its files is read */
	uint64		server_id;		/* in names in tablespaces (restart/spaces.c); set likewise */
	uint64		former_ids[KV_FORMER_SERVERS];	/* … that may be there still; 0: none */
	/* counts when files of runs, or stores, have been removed (index/run.h) */
	pg_atomic_uint32 runs_gone;
	pg_atomic_uint32 values_gone;	/* likewise value files, or stores (value/value.h) */
} KvBase;

extern KvBase *kv_base;			/* NULL: the library was not preloaded */
#define kv_tranche_room		(kv_base->tranches[0])
#define kv_tranche_shard	(kv_base->tranches[1])

/*
 * What all files of the directory begin with, so that none of another's is taken for one of them.
 */
#define kv_directory_id()	(kv_base->directory_id)
/*
 * What directories in tablespaces have in their names, so that none of another server's is taken
 * for this one's.
 */
#define kv_server_id()		(kv_base->server_id)

extern void kv_base_init(void);	/* once, when kv_base has been made: allots the tranches */
extern void kv_base_attach(void);	/* in the shmem startup hook: names them */

#endif							/* KV_SHARED_H */
