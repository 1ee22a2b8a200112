/*
 * shared.h
 *		The base of the modules' structs in shared memory.
 *
 * Each module has a struct of its own (start.c creates them).  Lock order, outermost first; a
 * process that holds a lock takes none to the left of it:
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
	int			tranches[2];	/* of the modules' locks, and of the shards' locks */
	Latch	   *maintainer_latch;	/* NULL while the maintainer does not run */
	/*
	 * since the start: the blocks that were cached before are read, or a worker reads them
	 * (warm.c)
	 */
	bool		warmed;
	uint64		directory_id;	/* of the directory "kvfdw"; set before any of its files is read */
	uint64		server_id;		/* in names in tablespaces (restart/spaces.c); set before any
								 * file is read, too */
	uint64		former_ids[KV_FORMER_SERVERS];	/* earlier ids that may still be in names there;
												 * 0: none */
	/* counts removals of run files, and of stores (index/run.h) */
	pg_atomic_uint32 runs_gone;
	pg_atomic_uint32 values_gone;	/* counts removals of value files, and of stores
									 * (value/value.h) */
} KvBase;

extern KvBase *kv_base;			/* NULL: the library was not preloaded */
#define kv_tranche_room		(kv_base->tranches[0])
#define kv_tranche_shard	(kv_base->tranches[1])

/*
 * The id in the head of all files of the directory, so that files of another directory are
 * recognized.
 */
#define kv_directory_id()	(kv_base->directory_id)
/*
 * The id in the names of directories in tablespaces, so that those of other servers are
 * recognized.
 */
#define kv_server_id()		(kv_base->server_id)

extern void kv_base_init(void);	/* called once, when kv_base has been created: allots the
								 * tranches */
extern void kv_base_attach(void);	/* in the shmem startup hook: names them */

#endif							/* KV_SHARED_H */
