/*
 * internal.h
 *		What the files of compact/ share; nobody else includes this.
 *
 *	walk.c		which entries survive, in the order of keys; counting what is live
 *	inputs.c	which value files are to be emptied
 *	slice.c		so many of them as fit into memory: read by address, written by key
 *	keep.c		what readers have in memory of them they have in the new addresses, too
 *	output.c	the value files that they are written to
 *	tried.c		what is left alone for a while
 *	task.c		what is to be done with a store, by itself
 *	beside.c	what a job heeds while it runs, beside its work
 *	pace.c		rests
 *	job.c		one compaction of one shard
 *	store.c		all of a store, by hand
 *	worker.c	the process that does it by itself
 *
 * All of a job is in its memory context.  What it has open or made on disk its struct says,
 * so that it can be closed and removed after an ERROR, at the end of the process too.
 */
#ifndef KV_COMPACT_INTERNAL_H
#define KV_COMPACT_INTERNAL_H

#include "datatype/timestamp.h"
#include "lib/stringinfo.h"

#include "engine/base/types.h"
#include "engine/compact/compact.h"
#include "engine/format/format.h"
#include "engine/flush/flush.h"
#include "engine/index/run.h"
#include "engine/index/runmerge.h"
#include "engine/io/io.h"
#include "engine/shard/shard.h"
#include "engine/shard/space.h"

/* ---- job.c ---- */
extern const char *const kv_job_phase_names[];	/* by KvJobPhase */

/* ---- output.c ---- */

/* The value files that a job writes.  Places are given out first, and written in their order. */
typedef struct KvOutput
{
	KvStore    *store;
	uint32		shard_id;
	uint16		flags;			/* of its value files */
	uint16		order;
	uint64		expected;		/* about so many bytes are still to be placed */
	KvAddress	next;			/* places for value files that are reserved … */
	KvAddress	end;			/* … up to here */
	int			nvalue_files;
	int			room;
	KvValueFile *value_files;	/* in the order of addresses; used: what is given out */
	File		file;			/* of the value file that is written, or -1 */
	KvFileId	id;
	uint64		allocated;
} KvOutput;

/* Nothing is placed yet. */
extern void kv_output_begin(KvOutput *output, KvStore *store, uint32 shard_id);
/* Where a value goes; whole: it has its blocks for itself. */
extern KvAddress kv_output_address(KvOutput *output, Size len, bool whole);
extern void kv_output_align(KvOutput *output);	/* the next begins on a block */
/* Whole blocks.  Addresses rise from call to call.  ERROR (53100) if the disk is full. */
extern void kv_output_write(KvOutput *output, KvAddress address, const char *blocks, Size len);
/* All is written: makes the files durable, names included. */
extern void kv_output_finish(KvOutput *output);
/* Never raises; takes the files out of sight, unless a manifest names them.  Takes extend_lock. */
extern void kv_output_end(KvOutput *output, bool keep);

/* ---- beside.c ---- */
/* … and ERROR if it was dropped, which waits for the job */
extern void kv_job_interrupts(const KvStore *store);
/*
 * In kvfdw compactor: a job of this store begins, for order or not; others: another store is known
 * to be due. It has ended, in whatever way.
 */
extern void kv_beside_begin(const KvStore *store, bool sorts, bool others);
extern void kv_beside_end(void);
/*
 * In a job that goes at a pace: is another store due, to be compacted or to be counted for that?
 * Beside
 * a pass for order: is any?  Once true it stays so.  Takes the registry's lock and those of shards.
 */
extern bool kv_job_is_awaited(void);
/*
 * … and is a pass for order to give way? It is if writers wait for room, or if a store that is due
 * has come half way from its mark to its bound.
 */
extern bool kv_job_gives_way(void);

/* ---- pace.c ---- */

/* A part of the time. */
typedef struct KvPaceTimes
{
	uint64		calls;			/* reads and writes of values in it that are no job's */
	int64		us;
} KvPaceTimes;

/* How a job goes at a pace; zeroed: it does not rest. */
typedef struct KvPace
{
	KvStore    *store;
	KvShard    *shard;
	KvJobAim	aim;
	bool		flushes;		/* it is the shard's maintainer */
	TimestampTz since;			/* it works, … */
	uint64		calls_since;	/* … and others had done so much then */
	TimestampTz looked;			/* at what others do, … */
	uint64		calls;			/* … which came to so many */
	bool		busy;			/* they did something since the look before */
	double		share;			/* of the time, beside them */
	KvPaceTimes working;		/* since that share was last looked at, of it … */
	KvPaceTimes resting;		/* … and of others */
	uint64		bytes;			/* read and written since the last rest, … */
	uint64		work;			/* … with those that stand for keys, … */
	uint64		done;			/* … such before that, … */
	uint64		expected;		/* … and in all, about */
	int64		room;			/* until the bound, at most, since it began */
} KvPace;

extern int	kv_compact_rate;	/* MB/s; 0: by itself */
/* it begins to work on that */
extern void kv_pace_begin(KvPace *pace, KvStore *store, KvShard *shard, KvJobAim aim);
/* so many are still to be read and written, and merged */
extern void kv_pace_expect(KvPace *pace, uint64 bytes);
/* So much was read or written: perhaps rest.  Serves interrupts; no lock held. */
extern void kv_pace(KvPace *pace, uint64 bytes);
extern void kv_pace_keys(KvPace *pace, uint64 keys);	/* … or so many keys were merged */
/*
 * Flushes as kv_shard_empty_logs and, with moves, kv_shard_rewrite do, at that pace as long as
 * nobody waits for it.
 */
extern void kv_pace_flush(KvPace *pace, KvStore *store, uint32 shard_id, KvMoves *moves);
#define KV_PACE_KEY		256		/* bytes: merging a key costs about as much as to move so many */

/* ---- slice.c ---- */

/* A value that is moved. */
typedef struct KvMoving
{
	KvLocation	from;
	KvAddress	to;
	uint32		len;
	uint32		crc;			/* of the version there; when it is moved: here */
	Size		key;			/* in the slice's keys */
	int			keylen;
	uint8		kind;
	bool		moved;
	char	   *at;				/* in the slice's image; NULL: it is streamed */
} KvMoving;

/* What of the image lies in one piece on the device. */
typedef struct KvExtentOut
{
	KvAddress	begin;
	char	   *at;
	Size		len;
} KvExtentOut;

static inline KvLocation
kv_new_location(const KvMoving *value)
{
	return KV_LOCATION_MAKE(KV_LOCATION_FORM(value->from), value->to);
}

/* Blocks of the output that are to be in the value cache, and are not (keep.c). */
typedef struct KvKept
{
	KvAddress  *blocks;			/* palloc'd */
	uint64		n;
	uint64		room;
	uint64		seen;			/* how many there were */
	KvAddress	last;			/* of these */
	bool		sorted;			/* … and so many … */
	uint64		done;			/* … have been read */
} KvKept;

typedef struct KvSlice
{
	KvStore    *store;
	uint32		shard_id;
	KvOutput   *output;
	KvRunWriter *relocations;	/* where it is noted what has been moved */
	KvValueFile *inputs;		/* by address; DAMAGED: a value in it could not be read */
	int			ninputs;
	uint64		moved;			/* bytes of values, so far */
	KvPace	   *pace;

	char	   *image;			/* what is written, as it will be in the output */
	Size		image_size;
	Size		image_used;
	char	   *read;			/* what is read at once */
	KvIoRequest *requests;
	int			nvalues;
	int			room;
	KvMoving   *values;			/* in the order of keys */
	KvMoving  **by_address;
	StringInfoData keys;
	int			nextents;
	int			extents_capacity;
	KvExtentOut *extents;
	uint64		streamed;		/* bytes of those that are not in the image */
	KvKept		kept;			/* of all slices */
} KvSlice;

/* It is empty, and may have about so much memory; store, shard, output and inputs are set. */
extern void kv_slice_begin(KvSlice *slice, Size memory);
/* Does the value lie in a value file that is to be emptied? */
extern int	kv_slice_input(const KvSlice *slice, KvLocation location);	/* or -1 */
/* One value more, in the order of keys.  False: the slice is full; write it first. */
extern bool kv_slice_add(KvSlice *slice, KvKey key, const KvVersion *version);
/* Move its values, and begin it anew.  Serves interrupts. */
extern void kv_slice_write(KvSlice *slice);

/* ---- keep.c ---- */
/* one that has been moved; its image is there still */
extern void kv_keep_value(KvSlice *slice, const KvMoving *value);
extern void kv_keep_pages(const KvSlice *slice);	/* … and all of a slice have */
extern void kv_keep_tier(const KvSlice *slice);	/* likewise */
/* entries name the new addresses: some of the rest. False: there is no more */
extern bool kv_keep_some(KvSlice *slice);

/* ---- walk.c ---- */

/* The runs of a shard at one moment, open. */
typedef struct KvWalk
{
	KvStore    *store;
	uint32		shard_id;
	bool		has_base;
	uint32		base_run;		/* of the shard then, … */
	uint32		first_log;		/* … and the first log that was not in runs */
	KvPace	   *pace;
	KvRunMerge	runs;
} KvWalk;

/* What counting says, besides what the value files note. */
typedef struct KvCounted
{
	uint64		held;			/* as in KvJobResult */
	KvAddress	open_address;	/* the value file that was open, or 0, … */
	uint64		open_used;		/* … how far it was, … */
	uint64		open_live;		/* … and what of that is live */
	uint64		pairs;			/* values that follow another in the order of keys, … */
	uint64		near;			/* … and of these, those that lie behind it, close by */
} KvCounted;

/* ERROR for damaged runs; those that were opened kv_walk_end closes then. */
extern void kv_walk_begin(KvWalk *walk, KvStore *store, uint32 shard_id, KvPace *pace);
/*
 * Hands on each version that survives, keys in order, the newest first; behind: it is behind a
 * newer one of its key.  Its status is set.  The walk is at its end then.
 */
extern void kv_walk(KvWalk *walk,
					void (*each) (void *arg, KvKey key, const KvVersion *version, bool behind),
					void *arg);
extern void kv_walk_end(KvWalk *walk);	/* never raises */
/*
 * Counts what is live in each value file of the shard, and has the value files note it. Writes
 * nothing
 * but what is recent to a run, if there is anything.  walk: what the caller ends after an ERROR.
 */
extern void kv_walk_count(KvWalk *walk, KvStore *store, uint32 shard_id, KvPace *pace,
						  KvCounted *counted);

/* ---- inputs.c ---- */
/*
 * Marks the shard's value files that are to be emptied, and lists them by address, palloc'd; *live:
 * about
 * what is to be moved. For the bound that is no more than room, but for the first of them. What is
 * live in them was counted.
 */
extern int	kv_choose_inputs(KvStore *store, uint32 shard_id, const KvJobPlan *plan, uint64 room,
							 KvValueFile **inputs, uint64 *live);
/* Would a value file like this be one? */
extern bool kv_job_pays(const KvJobPlan *plan, uint64 used, uint64 live, bool elsewhere);
/*
 * Nothing more goes into value files of the shard that are to leave their tablespace. Has it one
 * that a job can empty, as far as can be seen without counting? *any: set if it has one at all.
 */
extern bool kv_shard_leaves(KvStore *store, uint32 shard_id, bool *any);

/* ---- tasks ---- */

typedef enum KvTaskKind
{
	KV_TASK_BOUNDS,				/* so that it keeps to its bound; the first of these comes first */
	KV_TASK_LEAVES,				/* to another tablespace */
	KV_TASK_SORTS				/* for order */
} KvTaskKind;

/* What is to be done. */
typedef struct KvTask
{
	KvStore    *store;
	uint32		shard;
	KvJobPlan	plan;
	double		urgency;		/* how far the store is beyond its mark */
	uint32		served;			/* KvTried.served of the store */
	/* others compact shards of it, or are to release what jobs have emptied */
	bool		others;
	uint64		written;		/* KvShard.written then */
	KvJobResult result;
	long		took_ms;
	int			sqlerrcode;		/* 0: it went through */
} KvTask;

/* What its plan is for. */
static inline KvTaskKind
kv_task_kind(const KvTask *task)
{
	return task->plan.aim == KV_JOB_SORTS ? KV_TASK_SORTS :
		task->plan.aim == KV_JOB_LEAVES ? KV_TASK_LEAVES : KV_TASK_BOUNDS;
}

/* ---- tried.c ---- */
#define KV_RETRY_MS		10000	/* after what has failed; twice as long each time, … */
#define KV_RETRY_MOST_MS 300000 /* nothing is left alone for longer than this at once, … */
/* … but for what was given up: for so many times as long as it took */
#define KV_VAIN_REST	4

extern uint32 kv_compact_rounds;	/* of the compactor; the one of now */

/* What this process knows of a store (shard: -1), or of a shard that is left alone. */
typedef struct KvTriedKey
{
	uint32		cache_id;
	int32		shard;
	uint32		task;			/* KvTaskKind: each is left alone by itself */
} KvTriedKey;

typedef struct KvTried
{
	KvTriedKey	key;
	bool		going;			/* of a store: down to the stop mark, … */
	bool		busy;			/* … and there was something to do when it was last looked at, … */
	uint32		served;			/* … in which round for the last time; 0: in none */
	bool		at_rest;		/* it has a bound, and is within it */
	uint64		freed;			/* of a store: KvStore.space_freed, … */
	/* … since when it is that, or a job has ended; 0: nothing is to go … */
	TimestampTz	freed_at;
	uint32		images_failed;	/* … and KvStore.images_failed then */
	uint32		stuck_ms;		/* files do not go, and it is waited for so long; 0: they do */
	/* the last time; 0: it is not left alone (a store: for want of space) */
	uint32		retry_ms;
	TimestampTz until;
	KvSpaceWait why;
	KvShardSpace then;			/* how it stood */
	uint64		horizon;
	/* of a store: since it has this moved_lsn, no value file is elsewhere any more; … */
	uint64		left;
	uint32		leaving;		/* … until then, the shard that was found last */
	/* of a shard that may be put in order: write buffers and bytes then, … */
	uint64		writes;
	TimestampTz since;			/* … and since when there are no more */
	uint32		looked;			/* when it was last asked for, in rounds */
} KvTried;

/* shard: -1 for the store.  NULL: nothing is known of it, unless it is to be entered. */
extern KvTried *kv_tried(const KvStore *store, int32 shard, KvTaskKind kind, bool enter);
extern void kv_tried_forget(const KvStore *store, int32 shard, KvTaskKind kind);
/*
 * Forget those that nobody has asked for since a round over all stores, unless they may be tried
 * before long; again: leave none alone any more.
 */
extern void kv_tried_forget_old(uint32 since, bool again);
extern bool kv_tried_any_left_alone(void);	/* or are there files that do not go? */
/* shard: -1 for all of the store. */
extern void kv_leave_alone(const KvTask *task, int32 shard, KvSpaceWait why,
						   const KvShardSpace *then);
/*
 * Is the shard left alone? horizon: kv_xid_horizon(). *when is lowered to when it is not any more.
 */
extern bool kv_is_left_alone(const KvStore *store, uint32 shard, KvTaskKind kind,
							 const KvShardSpace *now, uint64 horizon, TimestampTz *when,
							 KvSpaceWait *why);

/* ---- task.c ---- */

/* kvfdw.compact_sort */
typedef enum KvCompactOrder
{
	KV_ORDER_OFF,
	KV_ORDER_IDLE
} KvCompactOrder;

extern int	kv_compact_sort;
extern int	kv_release_ms;
extern int	kv_look_ms;			/* all stores are looked at so often */

/* On a standby no store at another level has anything. */
extern bool kv_is_compacted_here(const KvStore *store);
/*
 * What the bound of a store asks for, if anything; who writes to it is told whether to wait for
 * that.
 * *when is lowered to when it is to be looked at again.  task is zeroed before.
 */
extern bool kv_task_find_due(KvStore *store, bool backup, TimestampTz *when, KvTask *task);
/*
 * Have the store follow to another tablespace, if that is noted and it is not left alone. ERROR: it
 * cannot, and is left
 * alone for a while.  *when is lowered to when it is not any more.
 */
extern bool kv_task_follow(KvStore *store, TimestampTz *when);
/* As kv_task_find_due, and what is to leave its tablespace, or to be put in order. */
extern bool kv_task_find(KvStore *store, bool backup, TimestampTz *when, KvTask *task);

#endif							/* KV_COMPACT_INTERNAL_H */
