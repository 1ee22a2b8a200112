/*
 * parts.h
 *		The parts of a store and of a shard in shared memory, each owned by one module.
 *
 * A module may read the parts of others.  The owner changes its part.  Other modules change only
 * fields whose comment names them in parentheses.  lifecycle/ and split/ also fill in the parts of
 * a store that is opened and of a new shard.  The parts are declared here because modules above
 * shard/ own most of them.
 *
 * All zero bytes are the state of a new shard, except in KvMapPlace and KvShardBuffers.  So a
 * descriptor that gets a new shard is made new by clearing its parts.
 *
 * Locks: "lock" is KvShard.lock, unless a comment names another one.
 */
#ifndef KV_PARTS_H
#define KV_PARTS_H

#include "datatype/timestamp.h"
#include "port/atomics.h"
#include "storage/condition_variable.h"
#include "storage/lwlock.h"
#include "storage/spin.h"
#include "utils/dsa.h"

#include "engine/base/types.h"
#include "engine/format/format.h"

/* ---- parts of a shard ---- */

/* shard/map.c: the shard's place in the map.  Guarded by lock, and changed under map.lock, too. */
typedef struct KvMapPlace
{
	/* number of the map that last changed its bounds, or KV_NOT_IN_MAP */
	uint32		bounds_since;
	/* its position in the newest map; readers without a lock may see outdated values */
	uint32		position;
	uint32		next;			/* in key order; the last shard is followed by the first */
	uint32		previous;
	bool		halted;			/* writers wait on changed while the map is changed (split/) */
} KvMapPlace;

#define KV_NOT_IN_MAP	PG_UINT32_MAX	/* bounds_since: the map does not have it */

/* buffer/ and flush/: the key logs of the memtables.  Guarded by lock. */
typedef struct KvLogEnds
{
	uint32		immutable;		/* last log with entries of the immutable memtable */
	uint32		number;			/* where new batches go */
	uint64		tail;
	uint32		closed;			/* last log that a flush has closed */
	uint64		closed_tail;	/* end of that log: no batch is appended after it */
} KvLogEnds;

/* buffer/: the shard's write buffers.  Guarded by lock. */
typedef struct KvShardBuffers
{
	int			open;			/* write buffer index or -1 */
	int			sealed;			/* list head: sealed buffers not yet written, or -1 */
	pg_atomic_uint64 writes;	/* write buffers written to value files */
	uint64		synced;			/* how many of these are synced; guarded by extend_lock */
} KvShardBuffers;

/*
 * shard/valuefiles.c: the shard's value files.  Guarded by lock; the list is changed under
 * extend_lock as well.
 */
typedef struct KvValueList
{
	dsa_pointer	files;			/* KvShardValueFile[capacity], in the order of addresses */
	int			n;
	int			capacity;
	int			promised;	/* entries kept for the running compaction job (compact/, flush/) */
	KvAddress	next;			/* KvFileList.next_address (buffer/) */
	KvAddress	open;			/* the value file that takes new values; 0: none */
	/* address of the next write buffer or large value in it (buffer/) */
	KvAddress	tail;
	KvAddress	allocated;		/* the open value file is allocated up to here (buffer/) */
	uint64		bytes;			/* approximate sum of kv_value_file_taken of all value files */
	/* bytes of values written since they were last in key order (buffer/, compact/, flush/) */
	uint64		written;
} KvValueList;

/*
 * Bytes that have died in a shard since its value files were counted, by the transactions that
 * replaced or deleted them (dying.c).  No snapshot needs such bytes once these transactions have
 * ended for all snapshots.
 */
#define KV_DYING_PARTS	8

typedef struct KvDying
{
	uint64		sum;			/* bytes noted dead since the start */
	uint64		begin;			/* bytes up to here were counted, or no snapshot sees them */
	int			n;
	struct
	{
		uint64		end;		/* sum at the end of this part */
		uint64		xid;		/* no later transaction belongs to this part */
	}			parts[KV_DYING_PARTS];
} KvDying;

/* shard/counts.c and dying.c: live and dead bytes in its value files.  Guarded by lock. */
typedef struct KvCountState
{
	uint32		countings;		/* number of counts of live bytes in its value files */
	/* counted bytes for each byte of a value, in 256ths; 0: not counted */
	uint32		padding;
	/* bytes that count as live only for older snapshots or unfinished transactions */
	uint64		uncertain;
	/* all of these transactions began before this xid */
	uint64		uncertain_until;
	/* bytes of values that redo may have replaced since they were counted */
	uint64		redone;
	KvDying		dying;			/* bytes that have died since the last count */
	uint64		untold;			/* bytes of it that the store's account does not have yet */
} KvCountState;

/* The files that a mark names. */
typedef struct KvMarkFiles
{
	bool		valid;
	uint32		last_log;
	KvShardFiles files;
} KvMarkFiles;

typedef enum KvMarkSlot
{
	KV_MARK_LAST,
	KV_MARK_NEXT,				/* a mark that is being made */
	KV_MARKS
} KvMarkSlot;

/* durable/: the newest mark of the shard.  Guarded by lock. */
typedef struct KvDurableState
{
	/* the checkpointer makes a mark soon, without a checkpoint (shard/) */
	bool		wanted;
	/* obsolete value files wait for the mark with this number; 0: none (shard/) */
	uint32		awaited;
	uint32		number;			/* of the newest mark; 0: there is none */
	uint32		log;			/* the log in which the newest mark ends; 0: there is none */
	uint64		tail;
	uint32		generation;		/* the newest mark has the runs of this generation */
	uint32		map;			/* bounds_since at the capture of the newest mark */
	/* the version log has this many entries of the open write buffer with this sequence */
	uint64		carried_sequence;
	uint32		carried;
	uint32		carried_round;	/* of the checkpointer that has carried it last */
	KvMarkFiles marks[KV_MARKS];
} KvDurableState;

/* flush/.  Guarded by lock; unresolved_*: read without it, by the process that resolves xids. */
typedef struct KvFlushState
{
	/* flushes leave runs up to this number, and the base run, alone; 0: none (split/) */
	uint32		floor;
	uint32		unresolved_generation;	/* unresolved_xid is of this generation of runs */
	uint64		unresolved_xid; /* oldest xid whose status the runs do not have; 0: none */
	uint64		resolved_horizon;	/* horizon of the last flush of all runs */
	TimestampTz ended;			/* end of the last flush or of recovery */
} KvFlushState;

/* compact/.  Guarded by lock. */
typedef struct KvCompactState
{
	uint32		job;			/* KvFileList.job (flush/) */
	bool		failed;			/* the last job failed, for another reason than lack of space */
	/* when a process that waits for a compaction last said so; guarded by no lock (shard/) */
	TimestampTz awaited;
} KvCompactState;

/* split/.  Guarded by lock. */
typedef struct KvSplitState
{
	uint64		left_xid;		/* next xid at the time it left the map; 0: it has not (shard/) */
	/* a split has met a compaction job: no automatic job starts before this time */
	TimestampTz	waits;
	TimestampTz after;			/* the maintainer does not split it before this time */
	uint32		failures;		/* number of attempts in a row that have failed */
} KvSplitState;

/* shard/registry.c: which processes maintain the shard.  Guarded by lock. */
typedef struct KvRoles
{
	int			maintainer;		/* pid of the process that flushes it, or 0 */
	int			compactor;		/* pid of the process that compacts or splits it, or 0 */
} KvRoles;

/* ---- parts of a store ---- */

/*
 * shard/account.c: the space that a store takes, and how much of it is live: the last count, and
 * the changes that writers have reported since (space.h).
 */
typedef struct KvSpaceAccount
{
	slock_t		mutex;
	int64		taken;
	int64		live;
	int64		kept;			/* dead, but seen by a snapshot at the time of the count */
	int64		obsolete;		/* has left the lists, and has a file still */
	int64		moving;			/* compaction jobs may write this much */
	int64		job;			/* at least this much is left to obsolete and moving together */
	int64		start_slack;	/* allowed in addition to live bytes before compaction starts */
	int64		bound_slack;	/* allowed in addition to live bytes before writers wait */
	int64		told_taken;		/* sums of all that writers have reported */
	uint64		told_dead;
	uint64		wake_at;		/* told_taken + told_dead at which kvfdw compactor is woken */
	bool		asked;			/* the compactor was asked, and has not looked since */
	TimestampTz counted;		/* start of the last count by a waiting writer, or 0 */
	int64		count_took;		/* duration of that count, in us */
} KvSpaceAccount;

/*
 * shard/space.c and obsolete.c: the space that compaction jobs take and free (space.h).  Guarded by
 * no lock.
 */
typedef struct KvSpaceState
{
	ConditionVariable made;		/* signaled when there is space again, or none can be made */
	/* bytes that running compaction jobs for the bound may write */
	pg_atomic_uint64 moving;
	pg_atomic_uint64 unbounded; /* bytes that running manual and sort jobs may write */
	/* unbounded, and what these jobs have emptied and is not freed yet */
	pg_atomic_uint64 aside;
	pg_atomic_uint64 given_up;	/* bytes of files whose removal has been failing for long */
	pg_atomic_uint64 freed;		/* bytes of files freed since the start */
	pg_atomic_uint64 freeing;	/* bytes of value files that are released and not freed yet */
	pg_atomic_uint64 released;	/* bytes of value files released since the store was opened */
	pg_atomic_uint64 horizon;	/* horizon at the last count */
	/* changes when one of its compaction jobs makes progress, or a file is freed */
	pg_atomic_uint32 beat;
	pg_atomic_uint32 no_room;	/* no space can be made, so no writer waits for it */
	/* no writer waits while this equals beat, which has not changed for long */
	pg_atomic_uint32 stalled;
	pg_atomic_uint32 waits;		/* KvSpaceWait: why the store is not compacted */
	pg_atomic_uint32 amp;		/* 1 + thousandths; 0: the setting applies */
} KvSpaceState;

/* shard/obsolete.c: value files that have left the lists of shards.  Guarded by lock. */
typedef struct KvObsoleteList
{
	LWLock		lock;
	/* files.c: some logs or runs may be obsolete; guarded by no lock */
	pg_atomic_uint32 files;
	dsa_pointer entries;		/* KvObsolete[capacity], in no order */
	int			n;
	int			capacity;
	int			reserved;		/* capacity that is promised */
	uint64		added;			/* number of the entry that was added last */
} KvObsoleteList;

/* shard/map.c: the map and the descriptors.  Set while OPENING, changed later under lock. */
typedef struct KvStoreMap
{
	LWLock		lock;
	dsa_pointer now;			/* KvMap, to be read through shard/map.c */
	pg_atomic_uint32 number;	/* number of the map */
	pg_atomic_uint32 nshards;	/* number of shards in the map */
	pg_atomic_uint32 state;		/* KvMapState */
	/* since the store was opened: shard ids without a descriptor have no files (durable/) */
	bool		tidied_once;
	pg_atomic_uint32 shard_ids; /* greater than all shard ids in use */
	dsa_pointer directory;		/* KvDirectory: addresses of the descriptors */
	dsa_pointer blocks;			/* KvShardBlock: memory of the descriptors */
} KvStoreMap;

/* split/look.c: which shards the maintainer considers.  Used by the maintainer alone. */
typedef struct KvSplitLook
{
	uint32		from;			/* next shard id that it considers for a split */
	TimestampTz pause;			/* it considers no shard before this time */
} KvSplitLook;

/* version/: the newest version log.  Set while OPENING, changed under lock. */
typedef struct KvVersionLog
{
	LWLock		lock;
	uint32		number;			/* of the log */
	uint32		appends;		/* to it so far, failed ones too */
	uint64		end;			/* of its edits: where the next one is appended */
	uint64		synced;			/* it is durable up to here */
	uint64		least;			/* its length when it was written with edits that count only */
	bool		removed;		/* a log with the next number was, and that may not be durable */
	pg_atomic_uint32 failed;	/* failed attempts to make requested marks (durable/) */
} KvVersionLog;

/* Volumes of a class, numbered from 0. */
typedef struct KvVolumeRange
{
	uint32		begin;
	uint32		end;			/* first volume after the range */
} KvVolumeRange;

#define KV_HALF_RANGES		4
#define KV_VOLUME_RANGES	(2 * KV_HALF_RANGES)

/* shard/valuefiles.c: set while OPENING, changed later under lock. */
typedef struct KvVolumes
{
	slock_t		lock;
	/* free volumes of each class, in no order */
	KvVolumeRange free[KV_VALUE_FILE_CLASSES][KV_VOLUME_RANGES];
} KvVolumes;

/* lifecycle/: recovery by several processes.  Guarded by no lock. */
typedef struct KvOpening
{
	ConditionVariable opened;
	pg_atomic_uint32 next_shard;	/* the next shard to recover */
	pg_atomic_uint32 helpers;	/* running recovery helpers; each counts itself */
	pg_atomic_uint32 helped;	/* cache_id that more helpers may join, or 0 */
} KvOpening;

/* stat.c: rows changed by committed transactions, approximately.  Guarded by no lock. */
typedef struct KvChangeCounts
{
	pg_atomic_uint64 changes;
	pg_atomic_uint64 analyzed;	/* value of changes when the last ANALYZE began */
	/* number of changes that makes the next ANALYZE due; 0: to be computed */
	pg_atomic_uint64 needed;
	pg_atomic_uint32 done;		/* the table was analyzed since the server started */
} KvChangeCounts;

#endif							/* KV_PARTS_H */
