/*
 * compact.h
 *		Compaction: values move to other value files, in the order of keys, so that value files
 *		become empty and go.
 *
 * One compaction of one shard is a *pass*:
 *
 *	0. choose	what is live in each value file is counted. Inputs: closed value files to be
 *	   emptied, by
 *				hand all that have dead bytes, by itself (task.c) those for which it pays best,
 *				for order all there are; those that are to leave their tablespace, whatever they
 *				have
 *	1. walk		the runs of now, in the order of keys, by the rules of a flush; what lies in an
 *				input is gathered
 *	2. move		slice by slice: values are read by address, verified, written by key to value files
 *				of the job's own, and noted in a relocation file
 *	3. switch	a flush of all runs puts entries in their new addresses.  It counts what it
 *				emits; an input that it has emitted no entry for leaves the list.  The merge's
 *				own count is the proof, not the plan
 *	4. image	of the shard; when it is durable, nothing needs the inputs any more (I 14)
 *
 * One process at a time compacts a shard (KvShard.compactor).  It is not the maintainer, for
 * whom writers wait, but where it flushes: what is recent in step 0, and in step 3; so flushes go
 * on beside it, and until step 3 nothing but files that nobody names tells of it.  No lock is held
 * on entry, nor across I/O or a rest (pace.c); who waits for it calls kv_shard_await().
 *
 * Where a job ends early, by cancel, DROP, a full disk, damage of a run or the end of its
 * process, its files are removed and the shard is as it was.  After a crash they are files
 * that nothing names.  A value that cannot be read stays where it is, with its value file.  The
 * WAL knows nothing of jobs: a standby has places of its own.
 */
#ifndef KV_COMPACT_H
#define KV_COMPACT_H

#include "engine/base/types.h"
#include "engine/engine.h"

typedef enum KvJobAim
{
	KV_JOB_COUNTS,				/* see what is live, and do nothing */
	KV_JOB_GIVES_BACK,			/* all that is dead, or to leave its tablespace */
	KV_JOB_LEAVES,				/* value files that are to leave their tablespace */
	KV_JOB_SORTS,				/* all values, for order */
	KV_JOB_BOUNDS				/* enough of what is dead, the deadest first */
} KvJobAim;

typedef struct KvJobPlan
{
	KvJobAim	aim;

	/* BOUNDS */
	uint64		enough;			/* dead bytes that are to go */
	/* LEAVES, too: values that may be moved; one value file at least is emptied */
	uint64		most;
	bool		modest;			/* space is short: what is empty, and one other */

	bool		unless_sorted;	/* SORTS: only if the values are not in order, as they are, and … */
								/*
								 * … until writers of some store are about to wait, or the shard is
								 * to be split
								 */
	bool		paced;			/* nobody waits for it, so it rests */
} KvJobPlan;

typedef struct KvJobResult
{
	uint64		moved;			/* bytes of values */
	uint64		written;		/* bytes of the value files to which they were moved */
	uint64		emptied;		/* bytes of the inputs that have left the list */
	bool		was_sorted;		/* the values are in order as they are */
	bool		gave_up;		/* for another store; all is as it was */
	/* bytes of values for older snapshots or unfinished transactions only */
	uint64		held;
} KvJobResult;

extern void kv_compact_gucs(void);	/* at load: defines its settings */
/*
 * One pass, after any that is under way.  The store is open,
 * and stays known: the caller has a lock on the table, or a pin; a store that is dropped
 * meanwhile is an ERROR.  Adds to *result.  Where there is nothing to move, or to give back,
 * nothing is written but what is recent, to a run.
 */
extern void kv_shard_compact(KvStore *store, uint32 shard_id, const KvJobPlan *plan,
							 KvJobResult *result);

/* ---- worker.c ---- */
extern int	kv_compact_workers;	/* 0: nothing is compacted but by hand */
/* kvfdw compactor's main function; arg is not used.  Does not return. */
extern PGDLLEXPORT void kv_compactor_main(Datum arg);
/*
 * The maintainer looks in its place while it does not run. Is it time for that; it begins; is there
 * something
 * for it to do in this store?  The store is open and pinned.  May raise ERROR.
 */
extern bool kv_compact_look_is_due(void);
extern void kv_compact_look_begin(void);
extern bool kv_compact_look(KvStore *store);

#ifdef KVFDW_FAULTS
extern bool kv_test_compactions; /* the maintainer compacts all the time */
#endif

#endif							/* KV_COMPACT_H */
