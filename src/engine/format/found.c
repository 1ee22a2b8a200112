/*
 * found.c
 *		Finds the stores, and the files of one, by their names.
 */
#include "postgres.h"

#include <unistd.h>

#include "storage/fd.h"

#include "engine/base/types.h"
#include "engine/format/format.h"
#include "engine/format/path.h"
#include "engine/io/name.h"

/* Does the directory not exist?  Called directly after AllocateDir. */
static bool
is_none(DIR *dir)
{
	return dir == NULL && (errno == ENOENT || errno == ENOTDIR);
}

List *
kv_numbered_entries(const char *path, int level)
{
	DIR		   *dir = AllocateDir(path);
	bool		none = is_none(dir);
	struct dirent *de;
	List	   *numbers = NIL;

	while (!none && (de = ReadDirExtended(dir, path, level)) != NULL)
	{
		char	   *end;
		Oid			number = (Oid) strtoul(de->d_name, &end, 10);

		if (number != InvalidOid && *end == '\0')
			numbers = lappend_oid(numbers, number);
	}
	FreeDir(dir);
	return numbers;
}

/* The generations in a table's directory; ERROR if it cannot be read. */
static List *
generations_of(Oid dboid, Oid relid)
{
	const char *path = kv_path_table_directory(dboid, relid);
	DIR		   *dir = AllocateDir(path);
	bool		none = is_none(dir);
	struct dirent *de;
	List	   *generations = NIL;

	while (!none && (de = ReadDirExtended(dir, path, ERROR)) != NULL)
	{
		char	   *end;
		uint32		generation = strtoul(de->d_name, &end, 16);

		if (end == de->d_name + 8 && *end == '\0')
			generations = lappend_oid(generations, generation);
	}
	FreeDir(dir);
	return generations;
}

int
kv_visit_stores(void (*visit) (const KvStoreKey *key, const void *arg), const void *arg)
{
	int			n = 0;
	ListCell   *database;
	ListCell   *table;
	ListCell   *generation;

	foreach(database, kv_numbered_entries(KV_DIRECTORY, ERROR))
	{
		foreach(table, kv_numbered_entries(kv_path_database(lfirst_oid(database)), ERROR))
		{
			foreach(generation, generations_of(lfirst_oid(database), lfirst_oid(table)))
			{
				KvStoreKey	key = {lfirst_oid(database), lfirst_oid(table),
					lfirst_oid(generation)};

				visit(&key, arg);
				n++;
			}
		}
	}
	return n;
}

/* Is it the name of a value file? */
static bool
parse_value_file(const char *name, KvFoundFile *file)
{
	char		right[sizeof(file->name)];

	if (sscanf(name, "%5x.c%8x.", &file->volume, &file->number) != 2 ||
		file->volume < KV_FIRST_VOLUME)
		return false;
	snprintf(right, sizeof(right), "%05x.c%05x.val", file->volume, file->number);
	file->shard = KV_NO_SHARD;
	file->kind = KV_FILE_VALUES;
	return strcmp(name, right) == 0;
}

/* Parse the name of a file.  False: it is none that belongs to a shard. */
static bool
parse_name(const char *name, KvFoundFile *file)
{
	Size		len = strlen(name);
	char		ending[16];

	if (len >= sizeof(file->name))
		return false;
	strlcpy(file->name, name, sizeof(file->name));
	file->number = file->volume = 0;
	if (len > 4 && strcmp(name + len - 4, ".tmp") == 0)
	{
		file->kind = KV_FILE_TEMPORARY;
		return sscanf(name, "%5x", &file->shard) == 1;
	}
	if (parse_value_file(name, file))
		return true;
	if (sscanf(name, "%5x.%8x.%15s", &file->shard, &file->number, ending) == 3)
	{
		static const char *const endings[] = {
			[KV_FILE_LOG] = "log",
			[KV_FILE_RUN] = "run",
		};

		for (int kind = 0; kind < lengthof(endings); kind++)
		{
			file->kind = (KvFileKind) kind;
			if (strcmp(ending, endings[kind]) == 0)
				return true;
		}
	}
	return false;
}

static int
compare_found(const void *a, const void *b)
{
	const KvFoundFile *left = a;
	const KvFoundFile *right = b;

	if (left->shard != right->shard)
		return left->shard < right->shard ? -1 : 1;
	if (left->volume != right->volume)
		return left->volume < right->volume ? -1 : 1;
	return left->number < right->number ? -1 : left->number > right->number;
}

/* Add the files of a directory: only value files, or all. */
static void
list_directory(const char *directory, bool value_files, KvFound *found, int *room)
{
	DIR		   *dir = AllocateDir(directory);
	struct dirent *de;

	while ((de = ReadDir(dir, directory)) != NULL)
	{
		if (found->n == *room)
		{
			*room *= 2;
			found->files = repalloc_huge(found->files, *room * sizeof(KvFoundFile));
		}
		if (parse_name(de->d_name, &found->files[found->n]) &&
			(!value_files || found->files[found->n].kind == KV_FILE_VALUES))
			found->n++;
	}
	FreeDir(dir);
}

void
kv_store_list_files(const KvStoreKey *key, KvFound *found)
{
	char	   *directory = pstrdup(kv_path_store(key));
	List	   *paths = kv_space_directories(key);
	ListCell   *cell;
	int			room = 64;

	found->n = 0;
	found->files = palloc(room * sizeof(KvFoundFile));
	list_directory(directory, false, found, &room);
	kv_space_require(key, false);
	foreach(cell, paths)
	{
		if (access(lfirst(cell), F_OK) == 0 || errno != ENOENT)
			list_directory(lfirst(cell), true, found, &room);
	}
	list_free_deep(paths);
	pfree(directory);
	qsort(found->files, found->n, sizeof(KvFoundFile), compare_found);
}

int
kv_found_first(const KvFound *found, uint32 shard_id)
{
	int			low = 0;
	int			high = found->n;

	while (low < high)
	{
		int			middle = (low + high) / 2;

		if (found->files[middle].shard < shard_id)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

int
kv_found_of_shard(const KvFound *found, int at, uint32 shard_id)
{
	int			n = 0;

	while (at + n < found->n && found->files[at + n].shard == shard_id)
		n++;
	return n;
}
