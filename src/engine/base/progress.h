/*
 * progress.h
 *		What each process is at, for kvfdw_stat_progress.
 *
 * A process has one place for it in shared memory, to which it alone writes.  So an update is a
 * store to memory of its own: no lock, no atomic operation.  What is begun within something else
 * is shown in its place, until it ends.
 *
 * Takes no lock and raises nothing, unless a function says otherwise.  All of it does nothing
 * where a process has no place (the postmaster).
 */
#ifndef KV_PROGRESS_H
#define KV_PROGRESS_H

#include "port/atomics.h"

#include "engine/base/types.h"

/* What takes long enough to be watched. */
typedef enum KvProgressCommand
{
	KV_PROGRESS_NONE,
	KV_PROGRESS_FLUSH,
	KV_PROGRESS_COMPACT,
	KV_PROGRESS_MOVE,			/* likewise, to another tablespace */
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
	int			shard;			/* -1: none in particular */
	const char *phase;			/* a constant of the library, or NULL */
	uint64		done;			/* in the command's unit */
	uint64		total;			/* about; 0: not known */
	int64		started;		/* TimestampTz */
} KvProgress;

/*
 * Begin, and end; outer is the caller's, and keeps what the process is at besides.  Whoever has
 * begun ends it on every path, in PG_FINALLY or where it cleans up.
 */
extern void kv_progress_begin(KvProgress *outer, KvProgressCommand command, Oid dboid, Oid relid,
							  int shard, const char *phase, uint64 total);
extern void kv_progress_end(const KvProgress *outer);

/* The process's own; NULL: it has none. */
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

/* For who learns only later which shard it is, and how much there is. */
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

/* Calls back for every process that is at something. */
extern void kv_progress_visit(void (*each) (void *arg, int pid, const KvProgress *progress),
							  void *arg);
/* As the view calls them. */
extern const char *kv_progress_command_name(KvProgressCommand command);
extern const char *kv_progress_unit(KvProgressCommand command);

extern Size kv_progress_memory(void);	/* for all places */
extern void kv_progress_attach(void);	/* in the shmem startup hook */

#endif							/* KV_PROGRESS_H */
