/*
 * progress.h
 *		The progress of each process, for kvfdw_stat_progress.
 *
 * A process has one entry in shared memory, to which it alone writes.  So an update is a store
 * to its own memory: no lock, no atomic operation.  A nested command is shown in place of the
 * outer one until it ends.
 *
 * Locks and errors: none, unless a function says otherwise.  Nothing happens in a process
 * without an entry (the postmaster).
 */
#ifndef KV_PROGRESS_H
#define KV_PROGRESS_H

#include "port/atomics.h"

#include "engine/base/types.h"

/* Commands that take long enough to be watched. */
typedef enum KvProgressCommand
{
	KV_PROGRESS_NONE,
	KV_PROGRESS_FLUSH,
	KV_PROGRESS_COMPACT,
	KV_PROGRESS_MOVE,			/* a compaction that moves values to another tablespace */
	KV_PROGRESS_REWRITE,
	KV_PROGRESS_RECOVERY,
	KV_PROGRESS_CHECK,
	KV_PROGRESS_PREWARM,
	KV_PROGRESS_COMMANDS
} KvProgressCommand;

typedef struct KvProgress
{
	KvProgressCommand command;
	Oid			dboid;
	Oid			relid;
	int			shard;			/* -1: no particular shard */
	const char *phase;			/* a constant of the library, or NULL */
	uint64		done;			/* in the command's unit */
	uint64		total;			/* approximate; 0: not known */
	int64		started;		/* TimestampTz */
} KvProgress;

/*
 * Begin and end a command.  The caller provides *outer, which saves the outer command.  A
 * caller that has begun a command ends it on every path, in PG_FINALLY or where it cleans up.
 */
extern void kv_progress_begin(KvProgress *outer, KvProgressCommand command, Oid dboid, Oid relid,
							  int shard, const char *phase, uint64 total);
extern void kv_progress_end(const KvProgress *outer);

/* This process's entry; NULL: it has none. */
extern KvProgress *kv_progress;

static inline void
kv_progress_phase(const char *phase)
{
	if (kv_progress != NULL)
		kv_progress->phase = phase;
}

static inline void
kv_progress_done(uint64 done)
{
	if (kv_progress != NULL)
		kv_progress->done = done;
}

static inline void
kv_progress_add(uint64 done)
{
	if (kv_progress != NULL)
		kv_progress->done += done;
}

/* Set the shard and the total later, when they are known. */
static inline void
kv_progress_shard(int shard)
{
	if (kv_progress != NULL)
		kv_progress->shard = shard;
}

static inline void
kv_progress_total(uint64 total)
{
	if (kv_progress != NULL)
		kv_progress->total = total;
}

/* Call back for every process that runs a command. */
extern void kv_progress_visit(void (*each) (void *arg, int pid, const KvProgress *progress),
							  void *arg);
/* The names in the view. */
extern const char *kv_progress_command_name(KvProgressCommand command);
extern const char *kv_progress_unit(KvProgressCommand command);

extern Size kv_progress_memory(void);	/* for all entries */
extern void kv_progress_attach(void);	/* in the shmem startup hook */

#endif							/* KV_PROGRESS_H */
