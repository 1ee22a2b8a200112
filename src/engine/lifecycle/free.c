/*
 * free.c
 *		Frees the space of dropped stores step by step.
 *
 * Where a file system discards what it frees, freeing a gigabyte can block the device for other
 * processes for more than a second.  So directories and value files that were renamed (drop.c,
 * shard/obsolete.c) are freed in steps of a megabyte.  The file system completes each step
 * before the next (kv_io_release), and between two steps there is a rest of eight times the
 * step's duration.  So other users of the device keep most of it, and a gigabyte is still freed
 * in well under a minute.
 *
 * The more bytes of value files wait to be freed, the larger are the steps and the shorter the
 * rests, down to the duration of the step.  A maintainer that is woken all the time does only
 * one step each time.  Files that compactions empty must not pile up, because writers wait at
 * the space limit.  While writers wait a rest is no longer than its step.  Value files are
 * freed before directories.
 *
 * If space is short, which probably makes processes wait, there are no rests and the steps are
 * larger.  Space is short if less than a twentieth of the file system is available, or a call
 * of the engine has met a full disk or quota in the last ten seconds.
 *
 * Only the maintainer does this, between its other work: a step is due when its time has come,
 * also between two shards, of which there may be many.  The rest is part of the maintainer's
 * nap, and other work that wakes it has precedence.  A maintainer that is told to exit does so
 * after the current step.  The remaining files keep the renamed directory, and the next
 * maintainer finds them.
 *
 * Value files and key logs are truncated from their end.  Runs may still be mapped by a process
 * that does not need them, so they are not truncated (I 5), but holes are punched.  On a
 * standby they are just unlinked: nothing proves there that no process reads them.
 */
#include "postgres.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include "access/xlog.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/interrupt.h"
#include "storage/fd.h"
#include "storage/latch.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "engine/io/fault.h"
#include "engine/io/io.h"
#include "engine/io/name.h"
#include "engine/lifecycle/lifecycle.h"
#include "engine/shard/obsolete.h"
#include "engine/shard/shard.h"
#include "engine/shard/space.h"

#define KV_FREE_STEP		(1024 * 1024)
#define KV_FREE_STEP_MOST	(64 * 1024 * 1024)
#define KV_FREE_FILES		64
#define KV_FREE_REST		8	/* a rest is so many times as long as a step */
/* from so many bytes of value files on a rest is half as long */
#define KV_FREE_MUCH		((uint64) 16 * 1024 * 1024)
#define KV_FREE_LARGER		4	/* from so many times as many on a step is twice as large */
#define KV_FREE_LONGEST_MS	1000
#define KV_FREE_PATH		192	/* of a renamed path; longer ones are left */

/* A directory that is to be removed, or a value file. */
typedef struct KvFreeDirectory
{
	char		path[KV_FREE_PATH];	/* hash key: must be first */
	bool		failed;			/* left for the next pass */
	uint64		left;			/* of a value file: bytes */
} KvFreeDirectory;

/* What a step may free, and has freed. */
typedef struct KvFreeStep
{
	uint64		most;
	uint64		bytes;
	int			files;
	bool		in_recovery;
	bool		hurry;
	bool		failed;
} KvFreeStep;

static HTAB *directories = NULL;
static TimestampTz next_step = 0;	/* 0: no rest */

/* Does a file of this name hold data? */
static bool
holds_data(const char *name, bool *mapped)
{
	const char *end = strrchr(name, '.');

	*mapped = end != NULL && strcmp(end, ".run") == 0;
	return *mapped || (end != NULL && (strcmp(end, ".val") == 0 || strcmp(end, ".log") == 0));
}

bool
kv_free_knows(const char *path)
{
	KvFreeDirectory *directory;

	if (directories == NULL)
		return false;
	directory = hash_search(directories, path, HASH_FIND, NULL);
	if (directory != NULL)
		directory->failed = false;
	return directory != NULL;
}

void
kv_free_add(const char *path)
{
	KvFreeDirectory *directory;
	struct stat info;
	bool		mapped;

	if (directories == NULL)
	{
		HASHCTL		info = {0};

		info.keysize = KV_FREE_PATH;
		info.entrysize = sizeof(KvFreeDirectory);
		info.hcxt = TopMemoryContext;
		directories = hash_create("kvfdw dropped directories", 64, &info,
								  HASH_ELEM | HASH_STRINGS | HASH_CONTEXT);
	}
	if (strlen(path) >= KV_FREE_PATH)
		return;
	directory = hash_search(directories, path, HASH_ENTER, NULL);
	directory->failed = false;
	directory->left = holds_data(path, &mapped) && stat(path, &info) == 0 ? info.st_size : 0;
}

/* Free a piece of a file, or all of it.  Returns false when the step is over. */
static bool
free_file(const char *path, bool mapped, KvFreeStep *step)
{
	int			err = kv_io_release(path, mapped, mapped && step->in_recovery,
									step->most - step->bytes, !step->hurry, &step->bytes);

	if (err != 0)
	{
		kv_io_error(WARNING, err, path, "free");
		step->failed = true;
	}
	step->files++;
	return !step->failed && step->bytes < step->most && step->files < KV_FREE_FILES;
}

/* Free files of a directory and those below it.  Returns false when the step is over. */
static bool
free_files(const char *path, int depth, KvFreeStep *step)
{
	DIR		   *dir = AllocateDir(path);
	struct dirent *de;
	int			files = step->files;
	bool		more = true;

	while (more && (de = ReadDirExtended(dir, path, LOG)) != NULL)
	{
		char	   *below = psprintf("%s/%s", path, de->d_name);
		bool		mapped;

		if (holds_data(de->d_name, &mapped))
			more = free_file(below, mapped, step);
		else if (depth > 0 && strspn(de->d_name, "0123456789abcdef") == strlen(de->d_name))
			more = free_files(below, depth - 1, step);
		pfree(below);
	}
	FreeDir(dir);
	if (step->files > files && !step->hurry)
		kv_io_wait_directory(path);
	return more;
}

static void
note_freed(KvFreeDirectory *value_file, uint64 bytes)
{
	bytes = Min(bytes, value_file->left);
	if (bytes > 0)
		kv_value_file_note_freed(strrchr(value_file->path, '/') + 1, bytes);
	value_file->left -= bytes;
}

/* How many times the limit "much" wait to be freed, plus 1: steps become larger with that. */
static uint64
crowd(uint64 much)
{
	return 1 + pg_atomic_read_u64(&kv_registry->freeing) / much;
}

/* The rest, in multiples of the step's duration: the more wait the shorter it is. */
static int
rest_of_step(void)
{
	return kv_space_is_awaited() ? 1 : Max(KV_FREE_REST / crowd(KV_FREE_MUCH), 1);
}

static KvFreeDirectory *
next_directory(void)
{
	HASH_SEQ_STATUS status;
	KvFreeDirectory *directory;
	KvFreeDirectory *next = NULL;

	if (directories == NULL)
		return NULL;
	hash_seq_init(&status, directories);
	while ((next == NULL || next->left == 0) && (directory = hash_seq_search(&status)) != NULL)
	{
		if (!directory->failed && (next == NULL || directory->left > 0))
			next = directory;
	}
	if (next != NULL && next->left > 0)
		hash_seq_term(&status);
	return next;
}

/* Use the remainder of the step for this directory. */
static void
free_part(KvFreeDirectory *directory, KvFreeStep *step)
{
	const char *path = directory->path;
	bool		mapped;
	int			files = step->files;
	bool		rest;			/* nothing large is left */

	rest = access(path, F_OK) != 0;
	if (!rest && holds_data(path, &mapped))
	{
		uint64		before = step->bytes;

		(void) free_file(path, mapped, step);
		rest = access(path, F_OK) != 0;
		note_freed(directory, step->bytes - before);
	}
	else if (!rest)
		rest = free_files(path, 2, step);
	if (rest || step->failed)
	{
		/*
		 * the rest, or what could not be freed step by step, is removed at once, and counts as
		 * a file if nothing else did
		 */
		step->files = Max(step->files, files + 1);
		kv_io_rmtree(path);
		if (access(path, F_OK) != 0)
			note_freed(directory, directory->left);
		if (access(path, F_OK) != 0)
			hash_search(directories, path, HASH_REMOVE, NULL);
		else
			directory->failed = true;
	}
}

/* Do one step.  False: there is nothing to free. */
static bool
free_step(void)
{
	KvFreeDirectory *directory = next_directory();
	KvFreeStep	step = {0};

	if (directory == NULL)
		return false;
	step.in_recovery = RecoveryInProgress();
	step.hurry = kv_io_space_is_short(directory->path);
	step.most = step.hurry ? KV_FREE_STEP_MOST
		: Min(crowd(KV_FREE_LARGER * KV_FREE_MUCH) * KV_FREE_STEP, KV_FREE_STEP_MOST);
	while (directory != NULL && !step.failed && step.bytes < step.most &&
		   step.files < KV_FREE_FILES)
	{
		free_part(directory, &step);
		directory = next_directory();
	}
	next_step = step.hurry ? 0 : kv_clock();
	return true;
}

/* No rest is longer than that, even if the clock was changed. */
static bool
is_due(TimestampTz now)
{
	return next_step <= now || next_step - now > KV_FREE_LONGEST_MS * 1000;
}

/* Do a step, and set when the next one is due.  False: there is nothing to free. */
static bool
step_and_rest(TimestampTz start)
{
	if (!free_step())
		return false;
	KV_STOP_POINT("free_step");
	if (next_step != 0)
		next_step += Min((next_step - start) * rest_of_step(), KV_FREE_LONGEST_MS * 1000);
	return true;
}

void
kv_free_if_due(void)
{
	TimestampTz start = kv_clock();

	if (is_due(start))
		(void) step_and_rest(start);
}

void
kv_free_or_nap(long ms, uint32 wait_event)
{
	TimestampTz until = TimestampTzPlusMilliseconds(kv_clock(), ms);

	for (;;)
	{
		TimestampTz start = kv_clock();
		TimestampTz wake = until;
		int			events;

		if (!is_due(start) || step_and_rest(start))
			wake = Min(until, next_step);
		events = WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						   Max(TimestampDifferenceMilliseconds(kv_clock(), wake), 0),
						   wait_event);
		if ((events & WL_LATCH_SET) || ShutdownRequestPending ||
			kv_clock() >= until)
			return;
	}
}
