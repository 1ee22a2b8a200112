/*
 * shared.h
 *		Shared memory: the base of the modules' structs, the area in which memtables and shards
 *		are allocated, and kvfdw.memory with the settings that by default are a share of it.
 *
 * Each module has a struct of its own (start.c creates them).  Modules define their settings in
 * kv_…_gucs, when the library is loaded by the postmaster, or by a session, for which the settings
 * have no meaning.  No function here takes a lock.
 *
 * Lock order, outermost first; a process that holds a lock takes none to the left of it:
 *
 *     KvRegistry.lock → KvStore.map.lock → KvShard.extend_lock → KvShard.lock → KvBufferPool.lock
 *     KvShard.commit_lock  →  KvShard.lock
 */
#ifndef KV_SHARED_H
#define KV_SHARED_H

#include "port/atomics.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "utils/dsa.h"
#include "utils/guc.h"

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
	uint64		server_id;		/* in names in tablespaces (restart/takeover.c); set before any
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

/*
 * The area cannot grow (I 12) and has the same dsa_pointers in every process, so that an address
 * is a sum.  kv_area attaches at first use; it raises ERROR if there is no memory.
 */
extern char *kv_area_base;		/* address of dsa_pointer 0 */
#define kv_address(pointer)	((void *) (kv_area_base + (pointer)))

extern int	kv_memtable_memory_mb;
extern dsa_area *kv_area(void);	/* attached on first call */
extern Size kv_area_size(void);	/* bytes, from kvfdw.memtable_memory */
extern void kv_area_attach(void);	/* in the shmem startup hook: creates or finds it */
extern void kv_area_gucs(void);	/* defines kvfdw.memtable_memory */

/*
 * Define a setting in megabytes (flags GUC_UNIT_MB) or kilobytes (GUC_UNIT_KB), whose default
 * of -1 stands for some eighths of kvfdw.memory.  check is the setting's check hook, and calls
 * kv_share_check.
 */
extern void kv_share_define(const char *name, const char *what, const char *more, int eighths,
							int *variable, int flags, GucIntCheckHook check);
/*
 * In a check hook: if a reloaded file has -1 for a setting that has its share, replace it by
 * the share.
 */
extern void kv_share_check(int *value, const int *variable);

/*
 * Define kvfdw.memory; called before kv_share_define.  machine: bytes that the server may use;
 * on a small machine the default is less.
 */
extern void kv_memory_gucs(uint64 machine);
/*
 * Replace each -1 by the share that it stands for, so that SHOW shows it; called when all
 * settings are defined.
 */
extern void kv_memory_divide(void);

#endif							/* KV_SHARED_H */
