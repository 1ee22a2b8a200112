/*
 * copy.h
 *		Copies the entries of a shard to runs of the shards that replace it.
 *
 * No file names the runs that are made here; only the caller knows them.  The first run that is
 * copied decides where the parts begin.  Raises ERROR; kv_copy_discard then removes the runs.
 */
#ifndef KV_SPLIT_COPY_H
#define KV_SPLIT_COPY_H

#include "engine/format/format.h"
#include "engine/index/memtable.h"
#include "engine/index/run.h"
#include "engine/shard/shard.h"
#include "engine/split/internal.h"

/* The part of a shard's entries that one of the new shards gets. */
typedef struct KvPart
{
	uint32		shard_id;
	KvKey		lo;				/* its first key; not used for the first part */
	KvShardFiles files;
	uint32		first_run;		/* number of the first run that is made for it */
	KvCounts	counts;			/* by value file of the old shard */
	/* writer of the run being copied; NULL: the part has no entry of it yet */
	KvRunWriter *writer;
	uint32		number;
	uint64		entries;		/* entries of that run */
	uint64		oldest_xid;		/* oldest xid in that run, or 0 */
} KvPart;

typedef struct KvCopy
{
	KvStore    *store;
	uint32		shard_id;		/* the old shard */
	int			most;			/* maximum number of parts */
	int			nparts;			/* 0: no run has been copied yet */
	KvPart		parts[KV_SPLIT_MOST];
} KvCopy;

/* Begins a copy to the shard ids of a change. */
extern void kv_copy_begin(KvCopy *copy, const KvChange *change, int most);
/*
 * Copies a run of the old shard; the caller copies older runs first.  False: the file does not
 * exist.
 */
extern bool kv_copy_run(KvCopy *copy, uint32 number, bool base);
/* Copies a memtable to which no process writes and which no other process frees. */
extern void kv_copy_memtable(KvCopy *copy, const KvMemtable *memtable);
/* Removes the copies.  False: some files could not be removed. */
extern bool kv_copy_discard(KvCopy *copy);

#endif							/* KV_SPLIT_COPY_H */
