/*
 * internal.h
 *		A change of a store's map, from its beginning to its end.
 */
#ifndef KV_SPLIT_INTERNAL_H
#define KV_SPLIT_INTERNAL_H

#include "datatype/timestamp.h"

#include "engine/base/types.h"
#include "engine/format/format.h"
#include "engine/shard/shard.h"
#include "engine/split/split.h"

#define KV_SPLIT_MOST	8		/* shards that are made of one */

typedef struct KvChange
{
	KvStore    *store;
	uint32		shardno;		/* that is changed */
	uint32		neighbour;		/* that gets its range; KV_NO_SHARD: none does */
	KvMap	   *before;
	KvMap	   *after;			/* NULL: not made yet */
	dsa_pointer room;			/* for that, in shared memory; invalid: not yet, or not any more */
	bool		halted;			/* writers of the shard wait, … */
	TimestampTz halted_at;		/* … since then, … */
	long		halt_us;		/* … or have waited for so long, at most */
	KvAddress	closed;			/* its chunk that was open, to be cut behind what is used of it; 0: none */
	uint64		closed_used;
	bool		published;
} KvChange;

/* ---- change.c ---- */
/*
 * Be the one who changes the store's map; palloc'd.  NULL: not now, or it does not have the
 * shard.  kv_change_end must follow, after an ERROR, too.
 */
extern KvChange *kv_change_begin(KvStore *store, uint32 shardno);
extern void kv_change_end(KvChange *change);
/* The first part of that: unless it was published, the map has no file any more. */
extern void kv_change_forget_file(KvChange *change);
/* From here on nobody writes to the shard; those who want to wait until the change ends, … */
extern void kv_change_halt(KvChange *change);
/* … or this.  Without effect if they do not. */
extern void kv_change_resume(KvChange *change);
/*
 * Behind that: what was written to the shard is in files and, as versions, in its delta, and it
 * has no open chunk.
 */
extern void kv_change_drain(KvChange *change);
/*
 * The map that comes has n shards in the place of the one that is changed, with these
 * numbers; bounds[0] is that of the one.  n 0: the neighbour has its range.  Gets all memory, and
 * writes the map, not shown yet.  One that was made before is none any more.
 * False: there is none.
 */
extern bool kv_change_make(KvChange *change, int n, const uint32 *shards, const KvKey *bounds);
/* The number of a shard that is to be made, the first being 0; KV_NO_SHARD: there are no more. */
extern uint32 kv_change_number(const KvChange *change, uint32 i);
/* What a new shard begins with that has no entries; nobody knows it yet. */
extern void kv_change_init(const KvChange *change, KvShard *fresh);
/* The map is there, in its file and in memory.  What it adds is complete.  ERROR: it is not. */
extern void kv_change_publish(KvChange *change);
/* Tells the log of one that was published and has ended. */
extern void kv_change_report(const KvChange *change);

#endif							/* KV_SPLIT_INTERNAL_H */
