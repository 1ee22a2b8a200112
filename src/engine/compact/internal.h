/*
 * internal.h
 *		Declarations that the files of compact/ share. No other module includes this file.
 *
 *	files.c		the value files that a job empties, and those that it writes
 *	task.c		the next automatic task of a store; notes on stores; events in a job
 *	pace.c		rests
 *	slice.c		moves as many values as fit into memory, and keeps cached values cached
 *	job.c		one compaction job of one shard
 *	worker.c	kvfdw compactor, and manual compaction of a store
 *
 * A job allocates all memory in its own memory context.  Its struct lists open and temporary files,
 * so that they can be closed and removed after an ERROR, and at the end of the process.
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
#include "engine/io/io.h"
#include "engine/shard/shard.h"
#include "engine/shard/space.h"

/* ---- job.c ---- */
extern const char *const kv_job_phase_names[];	/* by KvJobPhase */

/* ---- files.c: output ---- */

/* The value files that a job writes.  Addresses are assigned first, and written in their order. */
typedef struct KvOutput
{
	KvStore    *store;
	uint32		shard_id;
	uint16		flags;			/* flags of its value files */
	uint16		order;
	uint64		expected;		/* estimate of the bytes that have no address yet */
	KvAddress	next;			/* addresses reserved for value files, from here ... */
	KvAddress	end;			/* end of the reserved addresses */
	int			nvalue_files;
	int			room;
	KvValueFile *value_files;	/* sorted by address; used: the bytes assigned */
	File		file;			/* the value file being written, or -1 */
	KvFileId	id;
	uint64		allocated;
} KvOutput;

/* Begins an output without value files. */
extern void kv_output_begin(KvOutput *output, KvStore *store, uint32 shard_id);
/* Assigns an address to a value; whole: the value does not share its blocks. */
extern KvAddress kv_output_address(KvOutput *output, Size len, bool whole);
extern void kv_output_align(KvOutput *output);	/* the next value begins a block */
/* Writes whole blocks.  Addresses rise from call to call.  ERROR (53100) if the disk is full. */
extern void kv_output_write(KvOutput *output, KvAddress address, const char *blocks, Size len);
/* Ends writing: makes the files and their names durable. */
extern void kv_output_finish(KvOutput *output);
/* Never raises.  Unless keep, renames the files for removal.  Takes extend_lock. */
extern void kv_output_end(KvOutput *output, bool keep);

/* ---- task.c: events that a running job reacts to ---- */
/* serves interrupts; ERROR if the store was dropped, since DROP waits for the job */
extern void kv_job_interrupts(const KvStore *store);
/*
 * In kvfdw compactor: a job of this store begins, which sorts or not; others: another store is
 * known to be due.  kv_yield_end: the job has ended, for whatever reason.
 */
extern void kv_yield_begin(const KvStore *store, bool sorts, bool others);
extern void kv_yield_end(void);
/*
 * In a paced job: is another store due to be compacted, or to be counted for that?  During a sort
 * job: is any store due?  Once true, the answer stays true.  Takes the registry lock and shard
 * locks.
 */
extern bool kv_job_is_awaited(void);
/*
 * Must a sort job give way?  It must if a writer waits for space, or if a due store has come half
 * way from its mark to its limit.
 */
extern bool kv_job_gives_way(void);

/* ---- pace.c ---- */

/* A measured part of the time. */
typedef struct KvPaceTimes
{
	uint64		calls;			/* value reads and writes in it by others than jobs */
	int64		us;
} KvPaceTimes;

/* The pace of a job; zeroed: the job does not rest. */
typedef struct KvPace
{
	KvStore    *store;
	KvShard    *shard;
	KvJobAim	aim;
	bool		flushes;		/* the job is the shard's maintainer */
	TimestampTz since;			/* the start of the present work */
	uint64		calls_since;	/* calls of others at that time */
	TimestampTz looked;			/* the last check of the calls of others */
	uint64		calls;			/* calls of others at that check */
	bool		busy;			/* others made calls since the check before */
	double		share;			/* the job's share of the time while others are busy */
	KvPaceTimes working;		/* work since the share was last adjusted */
	KvPaceTimes resting;		/* rests since the share was last adjusted */
	uint64		bytes;			/* bytes read and written since the last rest */
	uint64		work;			/* bytes plus the equivalent of merged keys since the last rest */
	uint64		done;			/* work before the last rest */
	uint64		expected;		/* estimate of all work */
	int64		room;			/* greatest distance to the limit since the job began */
} KvPace;

extern int	kv_compact_rate;	/* MB/s; 0: automatic */
/* the job begins to work on the shard */
extern void kv_pace_begin(KvPace *pace, KvStore *store, KvShard *shard, KvJobAim aim);
/* sets the bytes still to be read, written and merged */
extern void kv_pace_expect(KvPace *pace, uint64 bytes);
/* So many bytes were read or written: rests if due.  Serves interrupts; no lock held. */
extern void kv_pace(KvPace *pace, uint64 bytes);
extern void kv_pace_keys(KvPace *pace, uint64 keys);	/* the same for merged keys */
/*
 * Flushes like kv_shard_empty_logs or, with moves, kv_shard_rewrite.  Keeps to the pace as long as
 * no process waits for the flush.
 */
extern void kv_pace_flush(KvPace *pace, KvStore *store, uint32 shard_id, KvMoves *moves);
#define KV_PACE_KEY		256		/* bytes: merging one key costs about as much as moving so many */

/* ---- slice.c ---- */

/* A value that is being moved. */
typedef struct KvMoving
{
	KvLocation	from;
	KvAddress	to;
	uint32		len;
	uint32		crc;			/* checksum of the version at from; once moved, at to */
	Size		key;			/* offset in the slice's keys */
	int			keylen;
	uint8		kind;
	bool		moved;
	char	   *at;				/* its bytes in the slice's image; NULL: it is streamed */
} KvMoving;

/* A part of the image that is contiguous on the device. */
typedef struct KvExtentOut
{
	KvAddress	begin;
	char	   *at;
	Size		len;
} KvExtentOut;

/* Blocks of the output that belong into the value cache and are not there yet. */
typedef struct KvKept
{
	KvAddress  *blocks;			/* palloc'd */
	uint64		n;
	uint64		room;
	uint64		seen;			/* how many such blocks there were */
	KvAddress	last;			/* the last one of these */
	bool		sorted;			/* blocks are sorted by address */
	uint64		done;			/* number of blocks that have been read */
} KvKept;

typedef struct KvSlice
{
	KvStore    *store;
	uint32		shard_id;
	KvOutput   *output;
	KvRunWriter *relocations;	/* notes what has been moved */
	KvValueFile *inputs;		/* sorted by address; DAMAGED: a value in it could not be read */
	int			ninputs;
	uint64		moved;			/* bytes of values moved so far */
	KvPace	   *pace;

	char	   *image;			/* the output as it will be written */
	Size		image_size;
	Size		image_used;
	char	   *read;			/* memory for reads */
	KvIoRequest *requests;
	int			nvalues;
	int			room;
	KvMoving   *values;			/* in key order */
	KvMoving  **by_address;
	StringInfoData keys;
	int			nextents;
	int			extents_capacity;
	KvExtentOut *extents;
	uint64		streamed;		/* bytes of values that are not in the image */
	KvKept		kept;			/* of all slices of the job */
} KvSlice;

/* Begins an empty slice with about so much memory.  Store, shard, output and inputs are set. */
extern void kv_slice_begin(KvSlice *slice, Size memory);
/* The index of the input that has the value. */
extern int	kv_slice_input(const KvSlice *slice, KvLocation location);	/* -1: none */
/* Adds a value; keys come in order.  False: the slice is full and must be written first. */
extern bool kv_slice_add(KvSlice *slice, KvKey key, const KvVersion *version);
/* Moves the slice's values, and begins the next slice.  Serves interrupts. */
extern void kv_slice_write(KvSlice *slice);

/* After entries name the new addresses: reads some noted blocks.  False: none is left. */
extern bool kv_keep_some(KvSlice *slice);

/* ---- files.c: inputs ---- */
/*
 * Marks the shard's value files that are to be emptied, and lists them by address, palloc'd.  *live
 * is an estimate of the bytes to be moved.  For the limit it is at most room, except for the first
 * file.  The caller has counted the live bytes.
 */
extern int	kv_choose_inputs(KvStore *store, uint32 shard_id, const KvJobPlan *plan, uint64 room,
							 KvValueFile **inputs, uint64 *live);
/* Would a value file like this be chosen? */
extern bool kv_job_pays(const KvJobPlan *plan, uint64 used, uint64 live, bool elsewhere);
/*
 * Closes value files of the shard that are to leave their tablespace to new values.  Can a job
 * empty one of these, as far as is known without a count?  Sets *any if there is one at all.
 */
extern bool kv_shard_leaves(KvStore *store, uint32 shard_id, bool *any);

typedef enum KvTaskKind
{
	KV_TASK_BOUNDS,				/* to keep the store within its limit; such tasks come first */
	KV_TASK_LEAVES,				/* to move value files to another tablespace */
	KV_TASK_SORTS				/* to sort values by key */
} KvTaskKind;

/* The next job of a store. */
typedef struct KvTask
{
	KvStore    *store;
	uint32		shard;
	KvJobPlan	plan;
	double		urgency;		/* how far the store is beyond its mark */
	uint32		served;			/* KvTried.served of the store */
	/* other processes compact its shards, or have yet to release emptied files */
	bool		others;
	uint64		written;		/* KvShard.values.written when the job began */
	KvJobResult result;
	long		took_ms;
	int			sqlerrcode;		/* 0: the job succeeded */
} KvTask;

/* The kind of task that a plan is for. */
static inline KvTaskKind
kv_task_kind(const KvTask *task)
{
	return task->plan.aim == KV_JOB_SORTS ? KV_TASK_SORTS :
		task->plan.aim == KV_JOB_LEAVES ? KV_TASK_LEAVES : KV_TASK_BOUNDS;
}

/* ---- task.c: stores and shards that are left alone ---- */
#define KV_RETRY_MS		10000	/* delay after a failure; doubled each time */
#define KV_RETRY_MOST_MS 300000 /* maximum delay */
/* a sort job that gave up is delayed by so many times its duration */
#define KV_VAIN_REST	4

extern uint32 kv_compact_rounds;	/* number of the compactor's present round */

/* The process's notes about a store (shard: -1), or about a shard that is left alone. */
typedef struct KvTriedKey
{
	uint32		cache_id;
	int32		shard;
	uint32		task;			/* KvTaskKind: each has its own delay */
} KvTriedKey;

typedef struct KvTried
{
	KvTriedKey	key;
	bool		going;			/* of a store: it is being compacted down to its stop mark */
	bool		busy;			/* of a store: there was something to do at the last check */
	uint32		served;			/* of a store: the round in which it was last served; 0: never */
	bool		at_rest;		/* of a store: it has a limit, and is within it */
	uint64		freed;			/* of a store: KvStore.space.freed at freed_at */
	/* when that changed last, or a job ended; 0: no file is to be removed */
	TimestampTz	freed_at;
	uint32		marks_failed;	/* KvStore.versions.failed at freed_at */
	uint32		stuck_ms;		/* removal of files hangs, and is waited for so long; 0: it works */
	/* the last delay; 0: it is not left alone (a store: for lack of disk space) */
	uint32		retry_ms;
	TimestampTz until;
	KvSpaceWait why;
	KvShardSpace then;			/* the shard's space at that time */
	uint64		horizon;
	/* of a store: at this moved_lsn no value file is in another tablespace */
	uint64		left;
	uint32		leaving;		/* of a store: until then, the shard that was found last */
	/* of a shard that may be sorted: its writes at the time since */
	uint64		writes;
	TimestampTz since;			/* when the shard was first seen with these writes */
	uint32		looked;			/* the round of the last kv_tried */
} KvTried;

/* shard: -1 for the store.  NULL: there are no notes, and enter is false. */
extern KvTried *kv_tried(const KvStore *store, int32 shard, KvTaskKind kind, bool enter);
extern void kv_tried_forget(const KvStore *store, int32 shard, KvTaskKind kind);
/*
 * Forgets notes that no round since the given one has used, except those that still delay a retry;
 * again: ends all delays.
 */
extern void kv_tried_forget_old(uint32 since, bool again);
/* is a store or shard left alone, or does removal of files hang? */
extern bool kv_tried_any_left_alone(void);
/* Leaves a shard alone for a while; -1: the whole store. */
extern void kv_leave_alone(const KvTask *task, int32 shard, KvSpaceWait why,
						   const KvShardSpace *then);

/* ---- task.c: the next job ---- */

/* kvfdw.compact_sort */
typedef enum KvCompactOrder
{
	KV_ORDER_OFF,
	KV_ORDER_IDLE
} KvCompactOrder;

extern int	kv_compact_sort;
extern int	kv_release_ms;
extern int	kv_look_ms;			/* interval between two checks of all stores */

/* False on a standby for stores of other levels than full: these have no values there. */
extern bool kv_is_compacted_here(const KvStore *store);
/*
 * Makes the store follow to another tablespace, if that is noted and not delayed.  On ERROR it is
 * delayed.  Lowers *when to the end of the delay.
 */
extern bool kv_task_follow(KvStore *store, TimestampTz *when);
/* Like find_due; also finds jobs for tablespaces and sort jobs. */
extern bool kv_task_find(KvStore *store, bool backup, TimestampTz *when, KvTask *task);

#endif							/* KV_COMPACT_INTERNAL_H */
