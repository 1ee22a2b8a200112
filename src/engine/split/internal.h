/*
 * internal.h
 *		A change of a store's map, from its beginning to its end.
 */
#ifndef KV_SPLIT_INTERNAL_H
#define KV_SPLIT_INTERNAL_H

#include "datatype/timestamp.h"

#include "engine/base/types.h"
#include "engine/format/format.h"
#include "engine/shard/retired.h"
#include "engine/shard/shard.h"
#include "engine/split/split.h"

#define KV_SPLIT_MOST	8		/* shards that are made of one */
#define KV_ENTRY_WEIGHT	64		/* bytes that an entry counts beside its value */

typedef struct KvChange
{
	KvStore    *store;
	uint32		shard_id;		/* that is changed */
	uint32		neighbour;		/* that gets its range; KV_NO_SHARD: none does */
	KvMap	   *before;
	KvMap	   *after;			/* NULL: not made yet */
	dsa_pointer room;			/* for that, in shared memory; invalid: not yet, or not any more */
	bool		halted;			/* writers of the shard wait, … */
	TimestampTz halted_at;		/* … since then, … */
	long		halt_us;		/* … or have waited for so long, at most */
	/* its value file that was open, to be cut behind what is used of it; 0: none */
	KvAddress	closed;
	uint64		closed_used;
	bool		published;
	bool		remains;		/* files of one that was not are still there */
	/* for the shards that it makes; KV_NO_SHARD: there are no more */
	uint32		shard_ids[KV_SPLIT_MOST];
	/* KvShard.left_xid of those who had these, once they are taken */
	uint64		left[KV_SPLIT_MOST];
} KvChange;

/* ---- change.c ---- */
/*
 * Be the one who changes the store's map; palloc'd.  NULL: not now, or it does not have the
 * shard.  kv_change_end must follow, after an ERROR, too.
 */
extern KvChange *kv_change_begin(KvStore *store, uint32 shard_id);
extern void kv_change_end(KvChange *change);
/* The first part of that: unless it was published, the map has no file any more. */
extern void kv_change_forget_file(KvChange *change);
/* From here on nobody writes to the shard; those who want to wait until the change ends, … */
extern void kv_change_halt(KvChange *change);
/*
 * … and nobody extends or syncs its value files: the caller has extend_lock until it drains, or
 * resumes. What takes longer is waited for before.
 */
extern void kv_change_halt_free(KvChange *change);
/* … or this.  Without effect if they do not. */
extern void kv_change_resume(KvChange *change);
/*
 * Behind the latter: what was written to the shard is in files and, as versions, in its memtable,
 * and it has no open value file.
 */
extern void kv_change_drain(KvChange *change);
/*
 * The map that comes has n shards in the place of the one that is changed, with these
 * numbers; bounds[0] is that of the one.  n 0: the neighbour has its range.  Gets all memory, and
 * writes the map, not shown yet.  One that was made before is none any more.
 * False: there is none.
 */
extern bool kv_change_make(KvChange *change, int n, const uint32 *shards, const KvKey *bounds);
/* What the shard with the n-th number begins with, which has no entries; nobody knows it yet. */
extern void kv_change_init(KvChange *change, int n);
/* The map is there, in its file and in memory.  What it adds is complete.  ERROR: it is not. */
extern void kv_change_publish(KvChange *change);
/* Tells the log of one that was published and has ended. */
extern void kv_change_report(const KvChange *change);

/* ---- shardid.c ---- */
/* Choose KvChange.numbers; nobody else changes the map. */
extern void kv_shard_ids_choose(KvChange *change, uint64 horizon);
/* Tells the log when the change has left few, or did not come because there are none. */
extern void kv_shard_ids_report(const KvChange *change);
/* What a shard with this number names first, which nobody has had under it. */
extern void kv_shard_id_files(const KvStore *store, uint32 number, KvShardFiles *files);
/*
 * Shards that have left the map give up the memory of their lists, if nobody knows them any more.
 */
extern void kv_left_free(KvStore *store);
extern void kv_shard_id_gucs(void);

#endif							/* KV_SPLIT_INTERNAL_H */
