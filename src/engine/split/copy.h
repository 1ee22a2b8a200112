/*
 * copy.h
 *		The entries of a shard, copied to runs of the shards that it becomes.
 *
 * Nothing names what is made here but the caller.  The first run that is copied decides
 * where the parts begin.  Raises ERROR; what was made then goes with kv_copy_discard.
 */
#ifndef KV_SPLIT_COPY_H
#define KV_SPLIT_COPY_H

#include "engine/index/memtable.h"
#include "engine/index/run.h"
#include "engine/shard/shard.h"
#include "engine/split/internal.h"

/* What one of the new shards gets. */
typedef struct KvPart
{
	uint32		shard_id;
	KvKey		lo;				/* its first key; of the first part not used */
	KvShardFiles files;
	uint32		first_run;		/* of those that are made */
	KvCounts	counts;			/* by value file of the old shard */
	/* of the run that is copied now; NULL: it has nothing of that yet */
	KvRunWriter *writer;
	uint32		number;
	uint64		entries;		/* of that run, … */
	uint64		oldest_xid;		/* … and the oldest of its xids, or 0 */
} KvPart;

typedef struct KvCopy
{
	KvStore    *store;
	uint32		shard_id;		/* the old one */
	int			most;			/* parts */
	int			nparts;			/* 0: nothing was copied yet */
	KvPart		parts[KV_SPLIT_MOST];
} KvCopy;

/* change: whose numbers the parts get. */
extern void kv_copy_begin(KvCopy *copy, const KvChange *change, int most);
/* Copy a run of the old shard; older ones of it come first.  False: there is no such file. */
extern bool kv_copy_run(KvCopy *copy, uint32 number, bool base);
/* Copy what a memtable has that nobody writes to, and that nobody else frees. */
extern void kv_copy_memtable(KvCopy *copy, const KvMemtable *memtable);
/* The copies go.  False: not all files have. */
extern bool kv_copy_discard(KvCopy *copy);

#endif							/* KV_SPLIT_COPY_H */
