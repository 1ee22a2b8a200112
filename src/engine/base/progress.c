/*
 * progress.c
 *		The progress of each process, for kvfdw_stat_progress.
 *
 * A process's entry has the index of its PGPROC, and has its pid while a command runs.  A
 * process that ends in the middle of a command clears the entry, because the PGPROC keeps the
 * pid until another process takes it.
 *
 * A reader wants table, command and start time of one moment.  The writer increments version
 * before and after it changes them; version is odd in between.  Numbers and phases are read as
 * they are.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/proc.h"
#include "storage/shmem.h"
#include "utils/timestamp.h"

#include "engine/base/progress.h"

typedef struct KvProgressPlace
{
	pg_atomic_uint32 version;
	int			pid;			/* 0: no command runs */
	KvProgress	progress;
} KvProgressPlace;

/* Each entry has a cache line. */
#define KV_PLACE_SIZE	TYPEALIGN(PG_CACHE_LINE_SIZE, sizeof(KvProgressPlace))

KvProgress *kv_progress = NULL;

static char *places = NULL;

/* The names in the view. */
static const struct
{
	const char *name;
	const char *unit;
}			commands[KV_PROGRESS_COMMANDS] = {
	[KV_PROGRESS_FLUSH] = {"flush", "entries"},
	[KV_PROGRESS_COMPACT] = {"compact", "bytes"},
	[KV_PROGRESS_MOVE] = {"move", "bytes"},
	[KV_PROGRESS_REWRITE] = {"rewrite", "rows"},
	[KV_PROGRESS_RECOVERY] = {"recovery", "shards"},
	[KV_PROGRESS_CHECK] = {"check", "entries"},
	[KV_PROGRESS_PREWARM] = {"prewarm", "bytes"}
};

const char *
kv_progress_command_name(KvProgressCommand command)
{
	return commands[command].name;
}

const char *
kv_progress_unit(KvProgressCommand command)
{
	return commands[command].unit;
}

static int
nplaces(void)
{
	return MaxBackends + NUM_AUXILIARY_PROCS;
}

static KvProgressPlace *
place_at(int i)
{
	return (KvProgressPlace *) (places + i * KV_PLACE_SIZE);
}

Size
kv_progress_memory(void)
{
	return mul_size(nplaces(), KV_PLACE_SIZE);
}

void
kv_progress_attach(void)
{
	bool		found;

	places = ShmemInitStruct("kvfdw progress", kv_progress_memory(), &found);
	if (!found)
	{
		memset(places, 0, kv_progress_memory());
		for (int i = 0; i < nplaces(); i++)
			pg_atomic_init_u32(&place_at(i)->version, 0);
	}
}

/* The process's own entry, or NULL. */
static KvProgressPlace *
my_place(void)
{
	int			i = MyProc == NULL ? -1 : MyProc - ProcGlobal->allProcs;

	return places == NULL || i < 0 || i >= nplaces() ? NULL : place_at(i);
}

static void
set(KvProgressPlace *place, const KvProgress *progress)
{
	uint32		version = pg_atomic_read_u32(&place->version);

	pg_atomic_write_u32(&place->version, version + 1);
	pg_write_barrier();
	place->progress = *progress;
	place->pid = progress->command == KV_PROGRESS_NONE ? 0 : MyProcPid;
	pg_write_barrier();
	pg_atomic_write_u32(&place->version, version + 2);
	kv_progress = place->pid == 0 ? NULL : &place->progress;
}

/* Called at the end of the process, which still has its PGPROC. */
static void
leave(int code, Datum arg)
{
	KvProgressPlace *place = my_place();
	KvProgress	none = {0};

	if (place != NULL && place->pid == MyProcPid)
		set(place, &none);
}

void
kv_progress_begin(KvProgress *outer, KvProgressCommand command, Oid dboid, Oid relid,
				  int shard, const char *phase, uint64 total)
{
	KvProgressPlace *place = my_place();
	KvProgress	mine = {command, dboid, relid, shard, phase, 0, total, 0};
	static bool registered = false;

	memset(outer, 0, sizeof(*outer));
	if (place == NULL)
		return;
	if (!registered)
		on_shmem_exit(leave, 0);
	registered = true;
	if (place->pid == MyProcPid)
		*outer = place->progress;
	mine.started = GetCurrentTimestamp();
	set(place, &mine);
}

void
kv_progress_end(const KvProgress *outer)
{
	KvProgressPlace *place = my_place();

	if (place != NULL)
		set(place, outer);
}

void
kv_progress_visit(void (*each) (void *arg, int pid, const KvProgress *progress), void *arg)
{
	for (int i = 0; i < nplaces(); i++)
	{
		KvProgressPlace *place = place_at(i);
		KvProgress	progress;
		uint32		before;
		int			pid;

		do
		{
			before = pg_atomic_read_u32(&place->version);
			pg_read_barrier();
			pid = place->pid;
			progress = place->progress;
			pg_read_barrier();
		} while (before != pg_atomic_read_u32(&place->version) || before % 2 != 0);

		if (pid != 0 && pid == ProcGlobal->allProcs[i].pid)
			each(arg, pid, &progress);
	}
}
