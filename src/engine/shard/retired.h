/*
 * retired.h
 *		Value files that have left a shard's list: reasons to wait, and removal.
 *
 * Locks: the shard's lock guards its list of them (KvShard.retired.files).
 */
#ifndef KV_RETIRED_H
#define KV_RETIRED_H

#include "engine/format/format.h"
#include "engine/shard/shard.h"

/*
 * ---- retired.c ----
 *
 * A value file leaves the list when it is marked a compaction input and a merge of all runs emits
 * no entry that names it.  It is retired then: the newest mark, a base backup, and at level 'keys'
 * redo may still need its file.  When none of these needs the file any more, it is released:
 * renamed out of its directory to a name under which the maintainer frees it step by step.
 */
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
 * Makes capacity for n more retired value files.  False: there is no memory.  The caller is the
 * shard's maintainer, and does not hold the shard's lock.
 */
extern bool kv_retired_reserve(KvShard *shard, int n);
extern bool kv_retired_make_room(KvShard *shard);	/* the same, for all compaction inputs */
/*
 * Before a merge of all runs is published: takes the retiring value files off the list to be
 * published, and notes the live bytes of the others.  kv_shard_describe has just made that list,
 * and its files.first_log is the new one.  horizon is that of the merge or older.  The caller has
 * held the lock since the description.
 */
extern void kv_counts_apply(KvCounts *counts, const KvShard *shard, uint64 horizon,
							KvFileList *listed);
/*
 * When the list is to count: changes the shard in the same way.  lsn: the end of the WAL.
 * Requests a mark if a value file retires.  Returns how many do.  Lock held, exclusively.
 */
extern int	kv_value_files_retire(KvShard *shard, const KvCounts *counts, uint64 lsn);
/*
 * Gives the shard's value files the counts of all runs of one moment, when first_log was this, and
 * of nothing else.  Lock held, exclusively.
 */
extern void kv_counts_note_runs(KvShard *shard, const KvCounts *counts, uint32 first_log);
/* Gives counts to these value files, which the counted merge has added.  Lock held, exclusively. */
extern void kv_counts_note(KvShard *shard, const KvCounts *counts, const KvValueFile *value_files,
						   int n);
/*
 * In recovery, without a lock: adds a file that the newest mark lists, and the newest FILES edit
 * does not.
 */
extern bool kv_retired_add(KvShard *shard, const KvValueFile *value_file, uint32 until_mark);
/* In recovery, lock held exclusively: an entry names the value file, so it is not retired. */
extern void kv_retired_remove(KvShard *shard, KvAddress address);
/* The retired value file with the address; NULL: there is none.  Lock held. */
extern KvRetired *kv_retired_find(const KvShard *shard, KvAddress address);
/* Does a retired value file wait for a mark that has not been made yet?  Lock held. */
extern bool kv_retired_wants_mark(const KvShard *shard);
/* no process uses the shard, or it is recovered again: forgets all */
extern void kv_retired_free(KvShard *shard);

/* The reason why a retired value file waits, the last one to end first. */
typedef enum KvRetiredWait
{
	KV_WAITS_FOR_NOTHING,		/* it is removed soon */
	KV_WAITS_FOR_MARK,
	KV_WAITS_FOR_CHECKPOINT,
	KV_WAITS_FOR_BACKUP
} KvRetiredWait;

extern const char *const kv_retired_wait_names[];	/* for messages and views */

/* The reason why this one waits, apart from backups.  Lock held. */
extern KvRetiredWait kv_retired_waits_for(const KvStore *store, const KvShard *shard,
										  const KvRetired *retired);
/*
 * The greatest reason of the shard's retired value files that wait for no later mark than this
 * (KV_ANY_MARK: of all), and the bytes of these files.  Takes the lock.
 */
extern KvRetiredWait kv_retired_wait(const KvStore *store, uint32 shard_id, uint32 until_mark,
									 uint64 *bytes);
#define KV_ANY_MARK	PG_UINT32_MAX
/*
 * The last mark that the shard's retired value files wait for; 0: there are none.  Takes the lock.
 */
extern uint32 kv_retired_until(KvShard *shard);
/*
 * Requests a mark of the shard, to be made soon, with or without a checkpoint.  Takes the lock.
 * In recovery the mark is made with the next DURABLE record.
 */
extern void kv_shard_want_mark(KvShard *shard);

/*
 * ---- shared.c ----
 *
 * Shards that a split made of one shard list the same value files, marked SHARED, until each has
 * emptied them.  Each shard counts a share of the bytes of such a value file as its own.
 */
/*
 * Does another shard in the map need a value file that this one has retired, and that nothing else
 * needs?
 */
typedef enum KvSharers
{
	KV_SHARERS_NONE,			/* its file may be removed */
	KV_SHARERS_SOME,			/* the others have its share now */
	KV_SHARERS_UNKNOWN			/* the map is being changed, or was: ask again later */
} KvSharers;

/* Called by the process that makes marks; takes other shards' locks. */
extern KvSharers kv_value_file_sharers(KvStore *store, uint32 shard_id, const KvRetired *retired);
/*
 * Retires in this shard the files of another one that had no entries and has left the map, except
 * those that this shard lists, too.  The list has capacity.  Takes the lock.
 */
extern void kv_retired_inherit(KvShard *shard, const KvRetired *left, int n);
/* After recovery of all shards: marks value files that several list SHARED.  Takes their locks. */
extern void kv_value_files_find_shared(KvStore *store);

/* ---- release.c ---- */
/*
 * Releases the files that nothing needs (I 14).  Called by the process that makes marks.  Takes
 * extend_lock and the lock.  If a file cannot be renamed, warns and keeps it retired.
 */
extern void kv_retired_release(KvStore *store, uint32 shard_id);
/*
 * Renames the file of a value file that nothing needs, for removal by the maintainer.  Returns 0
 * (also if the file does not exist) or an errno.
 */
extern int	kv_value_file_discard(KvStore *store, KvAddress address);
/* So many bytes of a file that was renamed to this name were freed.  Takes the registry lock. */
extern void kv_value_file_note_freed(const char *name, uint64 bytes);

#endif							/* KV_RETIRED_H */
