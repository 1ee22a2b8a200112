/*
 * retired.h
 *		Value files that have left a shard's list: what they wait for, and how they go.
 *
 * The shard's lock guards its list of them (KvShard.retired).
 */
#ifndef KV_RETIRED_H
#define KV_RETIRED_H

#include "engine/shard/shard.h"

/*
 * ---- retired.c ----
 *
 * A value file leaves the list when a merge of all runs has emitted no entry that names it, and
 * it is marked a compaction input. It is *retired* then: its file stays for the newest image, for a
 * base backup, and at level 'keys' for redo.  When nothing of that needs it any more it is
 * released: renamed out of its directory, where the maintainer frees it step by step.
 */
/* What a merge of all runs has emitted, by value file. */
typedef struct KvValueFileCount
{
	KvAddress	address;
	uint64		refs;			/* entries */
	uint64		live;			/* bytes of their values */
	uint64		dead_since;		/* KvShardValueFile.dead_since when counting began */
	bool		uncertain;		/* some of it may be dead soon */
	bool		leaves;			/* the list */
	bool		shared;			/* … and may be in another shard's … */
	uint64		used;			/* … and has so many bytes */
} KvValueFileCount;

typedef struct KvCounts
{
	int			n;
	int			room;
	int			last;			/* the one that was counted last */
	uint64		tail;			/* how many bytes all values would take, in the order of keys, … */
	uint64		footprint;		/* … and do if each is among others of its kind */
	uint64		uncertain;		/* bytes of those that may be dead when all transactions … */
	uint64		uncertain_until; /* … before this one have ended */
	uint64		redone;			/* KvShard.redone_bytes when counting began */
	uint64		died;			/* KvDying.sum then */
	uint32		countings;		/* KvShard.countings then */
	KvValueFileCount *value_files;	/* by address, palloc'd */
} KvCounts;

/* Nothing is counted yet, of the value files in the list and others; palloc'd.  Lock held. */
extern KvCounts *kv_counts_begin(const KvShard *shard);
/*
 * An entry is emitted whose value, if len > 0, lies at this location, perhaps a new one; keys
 * come in order.  What counts is the space that the values would take in that order, padding
 * included: so a value file that was written in order has nothing dead. uncertain: an older
 * snapshot sees it, or its transaction has not ended.
 */
extern void kv_counts_add(KvCounts *counts, KvLocation location, uint32 len, bool uncertain);
/* Of the value file with this address; NULL: nothing was counted, and it was not in the list. */
extern KvValueFileCount *kv_counts_find(const KvCounts *counts, KvAddress address);
/*
 * Have room for n more retired value files; false: there is no memory.  The caller is the shard's
 * maintainer; its lock is not held.
 */
extern bool kv_retired_reserve(KvShard *shard, int n);
extern bool kv_retired_make_room(KvShard *shard);	/* likewise for all compaction inputs */
/*
 * A merge of all runs is about to be published: take what retires from the list of the
 * manifest, which kv_shard_describe has just made and files.first_log of which is the new
 * one, and note how much is live of the others.  horizon: that of the merge, or an older
 * one.  Lock held since the description.
 */
extern void kv_counts_apply(KvCounts *counts, const KvShard *shard, uint64 horizon,
							KvManifest *manifest);
/*
 * The manifest is there: the same in the shard.  lsn: where the WAL ends.  If a value file
 * retires an image is asked for.  Returns how many do.  Lock held, exclusively.
 */
extern int	kv_value_files_retire(KvShard *shard, const KvCounts *counts, uint64 lsn);
/*
 * All runs of one moment, when first_log was that, have been counted, and nothing else: the
 * shard's value files have what was counted.  Lock held, exclusively.
 */
extern void kv_counts_note_runs(KvShard *shard, const KvCounts *counts, uint32 first_log);
/* Likewise for these value files, which came into the list with the merge that was counted. */
extern void kv_counts_note(KvShard *shard, const KvCounts *counts, const KvValueFile *value_files,
						   int n);
/* In recovery, no lock held: the newest image lists it, the manifest does not. */
extern bool kv_retired_add(KvShard *shard, const KvValueFile *value_file, uint32 until_image);
/* In recovery, lock held exclusively: an entry names it, so it is not retired after all. */
extern void kv_retired_remove(KvShard *shard, KvAddress address);
/* NULL: no retired value file has the address.  Lock held. */
extern KvRetired *kv_retired_find(const KvShard *shard, KvAddress address);
/* Does a retired value file wait for an image that is not made yet?  Lock held. */
extern bool kv_retired_wants_image(const KvShard *shard);
/* nobody uses the shard any more, or it is recovered anew: there are none */
extern void kv_retired_free(KvShard *shard);

/* What a retired value file waits for, the last thing first. */
typedef enum KvRetiredWait
{
	KV_WAITS_FOR_NOTHING,		/* it goes in a moment */
	KV_WAITS_FOR_IMAGE,
	KV_WAITS_FOR_CHECKPOINT,
	KV_WAITS_FOR_BACKUP
} KvRetiredWait;

extern const char *const kv_retired_wait_names[];	/* for people */

/* What keeps this one, backups apart?  Lock held. */
extern KvRetiredWait kv_retired_waits_for(const KvStore *store, const KvShard *shard,
										  const KvRetired *retired);
/*
 * The greatest of those of the shard's retired value files that wait for no later image than this
 * (KV_ANY_IMAGE: of all); *bytes: what these have.  Takes the lock.
 */
extern KvRetiredWait kv_retired_wait(const KvStore *store, uint32 shard_id, uint32 until_image,
									 uint64 *bytes);
#define KV_ANY_IMAGE	PG_UINT32_MAX
/*
 * The last image that the shard's retired value files wait for; 0: there are none. Takes the lock.
 */
extern uint32 kv_retired_until(KvShard *shard);
/*
 * Have an image of the shard made soon, whether or not there is a checkpoint.  Takes the
 * lock.  In recovery it is made with the next DURABLE.
 */
extern void kv_image_want(KvShard *shard);

/*
 * ---- shared.c ----
 *
 * Shards that were made of one list the same value files, SHARED, until each has emptied them.  Of
 * the bytes of such a value file each shard counts a share as its own.
 */
/*
 * Does another shard in the map need a value file that this one has retired, and nothing else
 * needs?
 */
typedef enum KvSharers
{
	KV_SHARERS_NONE,			/* its file may go */
	KV_SHARERS_SOME,			/* they have its share now */
	KV_SHARERS_UNKNOWN			/* the map is about to change, or has: ask again later */
} KvSharers;

/* In the process that makes images; takes other shards' locks. */
extern KvSharers kv_value_file_sharers(KvStore *store, uint32 shard_id, const KvRetired *retired);
/*
 * Another shard has left the map, and had no entries: what it leaves is retired in this one, unless
 * this one lists it, too.  There is room; takes the lock.
 */
extern void kv_retired_inherit(KvShard *shard, const KvRetired *left, int n);
/* Recovery of all shards has ended: value files that several list are SHARED. Takes their locks. */
extern void kv_value_files_find_shared(KvStore *store);

/* ---- release.c ---- */
/*
 * Release what may go (I 14).  In the process that makes images; takes extend_lock and the
 * lock.  A file that cannot be renamed is a WARNING, and stays retired.
 */
extern void kv_retired_release(KvStore *store, uint32 shard_id);
/*
 * A value file that nothing needs goes: its file is taken out of sight.  0 (also if it is not
 * there) or an errno.
 */
extern int	kv_value_file_discard(KvStore *store, KvAddress address);
/* Of a file with the name that it got there so many bytes were freed. Takes the registry's lock. */
extern void kv_value_file_note_freed(const char *name, uint64 bytes);

#endif							/* KV_RETIRED_H */
