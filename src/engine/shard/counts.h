/*
 * counts.h
 *		Counts of the entries that a merge of all runs emits, by value file.
 *
 * Locks: "lock" is the shard's.
 */
#ifndef KV_COUNTS_H
#define KV_COUNTS_H

#include "engine/shard/shard.h"

/* The entries of a value file that a merge of all runs has emitted. */
typedef struct KvValueFileCount
{
	KvAddress	address;
	uint64		refs;			/* entries */
	uint64		live;			/* bytes of their values */
	uint64		dead_since;		/* KvShardValueFile.dead_since when counting began */
	bool		uncertain;		/* some of them may be dead soon */
	bool		leaves;			/* it leaves the list */
	bool		shared;			/* it leaves, and may be in another shard's list */
	uint64		used;			/* it leaves, and has so many bytes */
} KvValueFileCount;

typedef struct KvCounts
{
	int			n;
	int			room;
	int			last;			/* index of the one that was counted last */
	int			may_leave;		/* so many may leave: kv_obsolete_reserve has made capacity */
	uint64		tail;			/* bytes that all values would take in key order */
	uint64		footprint;		/* bytes if each value is among others of its length */
	uint64		uncertain;		/* bytes that may be dead when older transactions have ended */
	uint64		uncertain_until; /* these transactions are older than this xid */
	uint64		redone;			/* KvShard.count.redone when counting began */
	uint64		died;			/* KvDying.sum when counting began */
	uint32		countings;		/* KvShard.count.countings when counting began */
	KvValueFileCount *value_files;	/* sorted by address, palloc'd */
} KvCounts;

/*
 * Makes empty counts for the value files in the list; others may be added.  Palloc'd.  Lock held.
 */
extern KvCounts *kv_counts_begin(const KvShard *shard);
/*
 * Counts an emitted entry.  If len > 0 its value is at this location, which may be new.  Keys come
 * in order.  The values are counted with the space that they take in key order, with padding.  So a
 * value file that was written in order has nothing dead.  uncertain: an older snapshot sees the
 * entry, or its transaction has not ended.
 */
extern void kv_counts_add(KvCounts *counts, KvLocation location, uint32 len, bool uncertain);
/*
 * The count of the value file with this address; NULL: it was not listed and nothing was counted.
 */
extern KvValueFileCount *kv_counts_find(const KvCounts *counts, KvAddress address);
/*
 * Before the merge is published: lets all compaction inputs leave, unless there is no memory.
 * Takes the lock.
 */
extern void kv_counts_reserve(KvCounts *counts, KvStore *store, KvShard *shard);
/* The merge has ended: gives back what was reserved and not used. */
extern void kv_counts_end(KvCounts *counts, KvStore *store);
/*
 * Before a merge of all runs is published: takes the value files that leave off the list to be
 * published, and notes the live bytes of the others.  kv_shard_describe has just made that list,
 * and its files.first_log is the new one.  horizon is that of the merge or older.  The caller has
 * held the lock since the description.
 */
extern void kv_counts_apply(KvCounts *counts, const KvShard *shard, uint64 horizon,
							KvFileList *listed);
/*
 * When the list is to count: changes the shard in the same way.  lsn: the end of the WAL.  Those
 * that leave are obsolete, and a mark is requested.  Lock held, exclusively.
 */
extern void kv_counts_publish(KvCounts *counts, KvStore *store, uint32 shard_id, uint64 lsn);
/*
 * Gives the shard's value files the counts of all runs of one moment, when first_log was this, and
 * of nothing else.  Lock held, exclusively.
 */
extern void kv_counts_note_runs(KvShard *shard, const KvCounts *counts, uint32 first_log);
/* Gives counts to these value files, which the counted merge has added.  Lock held, exclusively. */
extern void kv_counts_note(KvShard *shard, const KvCounts *counts, const KvValueFile *value_files,
						   int n);

#endif							/* KV_COUNTS_H */
