/*
 * compact.h
 *		Compaction: moves values to other value files, in key order, so that files become empty.
 *
 * One compaction of one shard is a compaction job.  Its steps:
 *
 *	0. choose	live values in each value file are counted. Inputs are closed value files to be
 *				emptied. A manual job takes all that have dead bytes, an automatic one (task.c)
 *				those for which it pays best, a sort job all. Value files that are to leave their
 *				tablespace are inputs in any case
 *	1. walk		the present runs are read in key order, by the rules of a flush, and the values
 *				in inputs are collected
 *	2. move		slice by slice, values are read by address, verified, written by key to value
 *				files of the job, and noted in a relocation file
 *	3. switch	a flush of all runs gives entries their new addresses. It counts what it emits: an
 *				input without an emitted entry leaves the list. This count is the proof; the plan
 *				of step 0 is not
 *	4. mark		a mark of the shard is made. When it is durable, nothing needs the inputs (I 14)
 *
 * One process at a time compacts a shard (KvShard.roles.compactor).  It is the shard's maintainer,
 * for which writers wait, only while it flushes: recent writes in step 0, and all runs in step 3.
 * So flushes continue during the job.  Until step 3 the job leaves only files that no edit names.
 *
 * Locks: The caller holds none.  None is held during I/O or a rest (pace.c).
 * Waits: A process that waits for the job calls kv_shard_await().
 * Errors: A job may end early, by cancel, DROP, a full disk, damage of a run or the end of its
 * process.  Then its files are removed and the shard is unchanged.  After a crash no edit names
 * them.  A value that cannot be read stays where it is, with its value file.
 * WAL: It has no records about jobs.  A standby has addresses of its own.
 */
#ifndef KV_COMPACT_H
#define KV_COMPACT_H

#include "engine/base/types.h"

typedef enum KvJobAim
{
	KV_JOB_COUNTS,				/* only counts live bytes */
	KV_JOB_GIVES_BACK,	/* value files with dead bytes, or that are to leave their tablespace */
	KV_JOB_LEAVES,				/* value files that are to leave their tablespace */
	KV_JOB_SORTS,				/* all values, to be put in key order */
	KV_JOB_BOUNDS				/* enough of the dead bytes, from the files with the most first */
} KvJobAim;

typedef struct KvJobPlan
{
	KvJobAim	aim;

	/* for BOUNDS */
	uint64		enough;			/* dead bytes that are to be reclaimed */
	/* for BOUNDS and LEAVES: bytes that may be moved; at least one value file is emptied */
	uint64		most;
	bool		modest;			/* space is short: take empty files, and one other */

	bool		unless_sorted;	/* SORTS: only if the values are not in key order */
								/*
								 * such a job gives way to writers that are about to wait, and to a
								 * split of the shard
								 */
	bool		paced;			/* no process waits for it, so it rests */
} KvJobPlan;

typedef struct KvJobResult
{
	uint64		moved;			/* bytes of values */
	uint64		written;		/* bytes of the value files to which they were moved */
	uint64		emptied;		/* bytes of the inputs that have left the list */
	bool		was_sorted;		/* the values are in key order, or in stretches of it */
	bool		gave_up;		/* the job gave way to another store, and has changed nothing */
	/* bytes that only older snapshots or unfinished transactions need */
	uint64		held;
} KvJobResult;

extern void kv_compact_gucs(void);	/* at load: defines its settings */
/*
 * Runs one job, after any job that is running.  The store is open, and stays known: the caller has
 * a lock on the table, or a pin.  ERROR if the store is dropped in the meantime.  Adds to *result.
 * If there is nothing to move or to reclaim, only recent entries are written, to a run.
 */
extern void kv_shard_compact(KvStore *store, uint32 shard_id, const KvJobPlan *plan,
							 KvJobResult *result);

/* ---- worker.c ---- */
extern int	kv_compact_workers;	/* 0: only manual compaction */
/* The main function of kvfdw compactor.  arg is not used.  Does not return. */
extern PGDLLEXPORT void kv_compactor_main(Datum arg);
/*
 * While the compactor does not run, the maintainer checks for work: is it time for a check; begin a
 * check; does this store have work?  The store is open and pinned.  May raise ERROR.
 */
extern bool kv_compact_look_is_due(void);
extern void kv_compact_look_begin(void);
extern bool kv_compact_look(KvStore *store);

#ifdef KVFDW_FAULTS
extern bool kv_test_compactions; /* the maintainer compacts all the time */
#endif

#endif							/* KV_COMPACT_H */
