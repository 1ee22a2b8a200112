/*
 * path.c
 *		Where a store's files are, and what there is.
 *
 *   kvfdw/<database>/<relation>/<generation>/…
 *   pg_tblspc/<tablespace>/<version>/kvfdw.<database>.<relation>.<generation>.<id>/…
 *
 * Nobody else puts such a path together.
 *
 * A store lies in its directory in kvfdw/.  If its table file names a tablespace, its
 * chunks are made there, and nothing else is: all that says what there is and what counts
 * is in one place still.  The table file is looked into for each path: that costs a few
 * microseconds, and paths are for opening files.
 *
 * A store that has been given another tablespace (shard/move.c) has chunks of before where they
 * were made.  Its table file names the tablespaces that they are leaving, and its own directory is always
 * one of these.  A chunk has a number that no other chunk of the store has, and never
 * changes its directory, so it is where it is found: first where chunks are made now, then in the
 * others.  Who makes one goes the same way, so there is never a second one of that name.  A directory is
 * named until it has been removed, which rmdir does only while it is empty: who is about to make a chunk
 * in it, and has looked at the table file before, finds that it is missing, and looks again (kv_value_make).
 *
 * A directory in a tablespace
 *
 *	- lies in the directory that PostgreSQL has there for its version, so that DROP
 *	  TABLESPACE finds that the tablespace is not empty, and backups have it.  That
 *	  directory is never made here: if it is missing, the file system is not mounted, and
 *	  that is an ERROR, not an empty table (kv_space_require);
 *	- has a name that is no number, which PostgreSQL would take for a database's;
 *	- has the store's id in its name, which never repeats: what has no store with this id
 *	  in kvfdw/ is of one that has gone, whatever became of its key;
 *	- is made when the store is opened, if it is missing: a crash may have come in
 *	  between, and a base backup copies tablespaces before stores;
 *	- has chunks that are released too, under names out of sight, since a file cannot be
 *	  renamed into another file system.
 */
#include "postgres.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/relpath.h"
#include "storage/fd.h"

#include "compat.h"
#include "engine/base/shared.h"
#include "engine/base/types.h"
#include "engine/format/format.h"
#include "engine/io/io.h"

/* ---- paths; each result lasts until the next call of the same function ---- */

const char *
kv_path_database(Oid dboid)
{
	static char path[MAXPGPATH];

	snprintf(path, sizeof(path), KV_DIRECTORY "/%u", dboid);
	return path;
}

const char *
kv_path_table_directory(Oid dboid, Oid relid)
{
	static char path[MAXPGPATH];

	snprintf(path, sizeof(path), KV_DIRECTORY "/%u/%u", dboid, relid);
	return path;
}

const char *
kv_path_store(const KvStoreKey *key)
{
	static char path[MAXPGPATH];

	snprintf(path, sizeof(path), KV_DIRECTORY "/%u/%u/%08x", key->dboid, key->relid,
			 key->generation);
	return path;
}

/* The path of a file in a store's directory, formatted into a function's own buffer. */
pg_attribute_printf(3, 4) static const char *
file_path(char *buffer, const KvStoreKey *key, const char *format, ...)
{
	int			len = snprintf(buffer, MAXPGPATH, KV_DIRECTORY "/%u/%u/%08x/", key->dboid,
							   key->relid, key->generation);
	va_list		args;

	va_start(args, format);
	vsnprintf(buffer + len, MAXPGPATH - len, format, args);
	va_end(args);
	return buffer;
}

const char *
kv_path_in_store(const KvStoreKey *key, const char *name)
{
	static char path[MAXPGPATH];

	return file_path(path, key, "%s", name);
}

const char *
kv_path_space(Oid tablespace)
{
	static char path[MAXPGPATH];

	snprintf(path, sizeof(path), "pg_tblspc/%u/" TABLESPACE_VERSION_DIRECTORY, tablespace);
	return path;
}

/*
 * With the id of the directory "kvfdw", for another one, as that of a server that was started while its file system
 * was not mounted, knows nothing of the store.
 */
#define KV_NAME_IN_SPACE	"kvfdw.%u.%u.%08x.%016llx.%016llx"

const char *
kv_path_in_space(const KvStoreKey *key, uint64 id, Oid tablespace)
{
	static char path[MAXPGPATH];

	snprintf(path, sizeof(path), "%s/" KV_NAME_IN_SPACE, kv_path_space(tablespace),
			 key->dboid, key->relid, key->generation, (unsigned long long) id, (unsigned long long) kv_directory_id());
	return path;
}

/* Is there such a tablespace, be it mounted or not? */
static bool
space_exists(Oid tablespace)
{
	char		link[MAXPGPATH];
	struct stat info;

	snprintf(link, sizeof(link), "pg_tblspc/%u", tablespace);
	return lstat(link, &info) == 0 || errno != ENOENT;
}

/*
 * Where the chunks of a store are made.  If that is not known, a path where nothing can be or
 * be made, and which is not just missing (ENOTDIR).
 */
static void
values_directory(char *path, const KvStoreKey *key, KvWhere *where)
{
	if (!kv_table_file_peek(key, where))
	{
		file_path(path, key, "table/unreadable");
		return;
	}

	/* before redo has come to where it was made, or the DROP of one that a crash has left named */
	if (where->moved && OidIsValid(where->tablespace) && !space_exists(where->tablespace))
		where->tablespace = InvalidOid;
	strlcpy(path, OidIsValid(where->tablespace) ?
			kv_path_in_space(key, where->id, where->tablespace) : kv_path_store(key), MAXPGPATH);
}

bool
kv_space_parse(const char *name, KvStoreKey *key, uint64 *id)
{
	unsigned long long number;
	unsigned long long directory;
	char		right[MAXPGPATH];

	if (sscanf(name, "kvfdw.%u.%u.%8x.%16llx.%16llx", &key->dboid, &key->relid, &key->generation,
			   &number, &directory) != 5 || directory != kv_directory_id())
		return false;
	snprintf(right, sizeof(right), KV_NAME_IN_SPACE, key->dboid, key->relid, key->generation, number, directory);
	*id = number;
	return strcmp(name, right) == 0;
}

const char *
kv_path_values(const KvStoreKey *key)
{
	static char path[MAXPGPATH];
	KvWhere		where;

	values_directory(path, key, &where);
	return path;
}

List *
kv_space_directories(const KvStoreKey *key)
{
	List	   *paths = NIL;
	KvWhere		where;

	if (!kv_table_file_peek(key, &where))
		return NIL;
	if (OidIsValid(where.tablespace))
		paths = lappend(paths, pstrdup(kv_path_in_space(key, where.id, where.tablespace)));
	for (int i = 0; i < where.nleaving; i++)
		paths = lappend(paths, pstrdup(kv_path_in_space(key, where.id, where.leaving[i])));
	return paths;
}

static bool
has_image(const KvStoreKey *key)
{
	char	   *path = pstrdup(kv_path_store(key));
	DIR		   *dir = AllocateDir(path);
	struct dirent *de;
	bool		found = false;

	while (!found && (de = ReadDirExtended(dir, path, LOG)) != NULL)
		found = strstr(de->d_name, ".image") != NULL;
	FreeDir(dir);
	pfree(path);
	return found;
}

KV_NORETURN static void
raise_no_space(int code, const KvStoreKey *key, Oid tablespace)
{
	ereport(ERROR,
			(errcode(code),
			 errmsg("tablespace %u, which has the values of kvfdw table %u of database %u, does not exist",
					tablespace, key->relid, key->dboid),
			 errhint("If its link in \"pg_tblspc\" was forgotten put it back, and start the server again.")));
}

/*
 * Is it there?  ERROR if it is not mounted; if there is no such tablespace, unless it may have gone.  Redo goes on without
 * a store that it makes and drops again, with its tablespace, but not without one that a checkpoint has seen: its link was forgotten.
 */
static bool
require_space(const KvStoreKey *key, Oid tablespace, bool may_have_gone)
{
	struct stat info;
	int			err;

	if (stat(kv_path_space(tablespace), &info) == 0)
		return true;
	err = errno;
	if (err == ENOENT && !space_exists(tablespace))
	{
		if (may_have_gone)
			return false;
		raise_no_space(has_image(key) ? ERRCODE_IO_ERROR : ERRCODE_UNDEFINED_OBJECT, key, tablespace);
	}
	errno = err;
	ereport(ERROR,
			(errcode(ERRCODE_IO_ERROR),
			 errmsg("could not access directory \"%s\": %m", kv_path_space(tablespace)),
			 errdetail("Tablespace %u has the values of kvfdw table %u of database %u.",
					   tablespace, key->relid, key->dboid),
			 errhint("Make sure that the file system of the tablespace is mounted.")));
}

Oid
kv_space_forgotten(const KvStoreKey *key)
{
	KvWhere		where;

	return kv_table_file_peek(key, &where) && OidIsValid(where.tablespace) && !space_exists(where.tablespace) ?
		where.tablespace : InvalidOid;
}

void
kv_space_raise_forgotten(const KvStoreKey *key, Oid tablespace)
{
	raise_no_space(ERRCODE_IO_ERROR, key, tablespace);
}

void
kv_space_require(const KvStoreKey *key, bool make)
{
	KvWhere		where;

	if (!kv_table_file_peek(key, &where))
		return;
	for (int i = 0; i < where.nleaving; i++)
		(void) require_space(key, where.leaving[i], true);
	if (OidIsValid(where.tablespace) && require_space(key, where.tablespace, where.moved) && make)
		kv_io_mkdir(kv_path_in_space(key, where.id, where.tablespace));
}

static void
require_named(const KvStoreKey *key, Oid tablespace, const char *path)
{
	if (!OidIsValid(tablespace) || space_exists(tablespace))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_IO_ERROR),
			 errmsg("tablespace %u, which may have values of kvfdw table %u of database %u, does not exist",
					tablespace, key->relid, key->dboid),
			 errdetail("Value file \"%s\" is missing.", path),
			 errhint("Put its link in \"pg_tblspc\" back, and start the server again.")));
}

void
kv_space_require_named(const KvStoreKey *key, const char *path)
{
	KvWhere		where;

	if (!kv_table_file_peek(key, &where))
		return;
	require_named(key, where.tablespace, path);
	for (int i = 0; i < where.nleaving; i++)
		require_named(key, where.leaving[i], path);
}

void
kv_values_sync_names(const KvStoreKey *key)
{
	char		path[MAXPGPATH];
	KvWhere		where;

	values_directory(path, key, &where);
	kv_io_sync_directory(path);
	for (int i = 0; i < where.nleaving; i++)
	{
		strlcpy(path, kv_path_in_space(key, where.id, where.leaving[i]), MAXPGPATH);
		if (require_space(key, where.leaving[i], true))
			kv_io_sync_directory_if_there(path);
	}
	if (where.moved && OidIsValid(where.tablespace))
		kv_io_sync_directory(kv_path_store(key));
}

void
kv_space_make(const KvStoreKey *key, uint64 id, Oid tablespace)
{
	if (OidIsValid(tablespace) && require_space(key, tablespace, false))
		kv_io_mkdir(kv_path_in_space(key, id, tablespace));
}

static void
add_chunk_name(char *path, KvFileId file)
{
	uint32		volume = kv_volume_of(file.place);
	Size		len = strlen(path);

	snprintf(path + len, MAXPGPATH - len, "/%05x.c%05x.val", volume,
			 (uint32) ((file.place - kv_volume_begin(volume)) / kv_file_span(file)));
}

/*
 * The path of a chunk that is not where chunks are made, of a store whose chunks have moved.
 * False: it is nowhere.  If it may be in a tablespace that is not mounted it is there, so that
 * it is missed, and not made elsewhere.
 */
static bool
find_elsewhere(char *path, const KvStoreKey *key, const KvWhere *where, KvFileId file)
{
	for (int pass = 0; pass < 2; pass++)
	{
		for (int i = 0; i < where->nleaving; i++)
		{
			strlcpy(path, kv_path_in_space(key, where->id, where->leaving[i]), MAXPGPATH);
			add_chunk_name(path, file);
			if (pass == 0 ? access(path, F_OK) == 0 :
				access(kv_path_space(where->leaving[i]), F_OK) != 0 &&
				space_exists(where->leaving[i]))
				return true;
		}
		strlcpy(path, kv_path_store(key), MAXPGPATH);
		add_chunk_name(path, file);
		if (pass == 0 && access(path, F_OK) == 0)
			return true;
	}
	return false;
}

const char *
kv_path_value(const KvStoreKey *key, KvFileId file)
{
	static char path[MAXPGPATH];
	char		elsewhere[MAXPGPATH];
	KvWhere		where;

	if (kv_is_legacy(file.place))
		return file_path(path, key, "%05x.val", kv_volume_of(file.place));
	values_directory(path, key, &where);
	add_chunk_name(path, file);
	if (where.moved && access(path, F_OK) != 0 && find_elsewhere(elsewhere, key, &where, file))
		strlcpy(path, elsewhere, sizeof(path));
	return path;
}

bool
kv_value_is_in_place(const KvStoreKey *key, KvFileId file)
{
	char		path[MAXPGPATH];
	KvWhere		where;

	values_directory(path, key, &where);
	if (kv_is_legacy(file.place))
		return !OidIsValid(where.tablespace);
	add_chunk_name(path, file);
	return access(path, F_OK) == 0;
}

bool
kv_has_legacy_file(const KvStoreKey *key, uint32 shardno)
{
	KvFileId	file = {kv_volume_begin(shardno)};

	return shardno < KV_LEGACY_VOLUMES && access(kv_path_value(key, file), F_OK) == 0;
}

const char *
kv_path_log(const KvStoreKey *key, uint32 shard, uint32 number)
{
	static char path[MAXPGPATH];

	return file_path(path, key, "%05x.%08x.log", shard, number);
}

const char *
kv_path_run(const KvStoreKey *key, uint32 shard, uint32 number)
{
	static char path[MAXPGPATH];

	return file_path(path, key, "%05x.%08x.run", shard, number);
}

const char *
kv_path_manifest(const KvStoreKey *key, uint32 shard)
{
	static char path[MAXPGPATH];

	return file_path(path, key, "%05x.manifest", shard);
}

const char *
kv_path_image(const KvStoreKey *key, uint32 shard, uint32 number)
{
	static char path[MAXPGPATH];

	return file_path(path, key, "%05x.%08x.image", shard, number);
}

const char *
kv_path_map(const KvStoreKey *key, uint32 number)
{
	static char path[MAXPGPATH];

	return file_path(path, key, "%08x.map", number);
}

/* ---- what there is ---- */

/* Is there no such directory?  To be asked right behind AllocateDir. */
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

/* The generations that a table's directory has; ERROR if it cannot be read. */
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

/* Is it the name of a chunk? */
static bool
parse_chunk(const char *name, KvFoundFile *file)
{
	char		right[sizeof(file->name)];

	if (sscanf(name, "%5x.c%8x.", &file->volume, &file->number) != 2 ||
		file->volume < KV_LEGACY_VOLUMES ||
		file->volume >= KV_LEGACY_VOLUMES + KV_CHUNK_CLASSES * KV_CLASS_VOLUMES)
		return false;
	snprintf(right, sizeof(right), "%05x.c%05x.val", file->volume, file->number);
	file->shard = KV_NO_SHARD;
	file->kind = KV_FILE_CHUNK;
	return strcmp(name, right) == 0;
}

/* What kind of file has this name?  False: none that belongs to a shard. */
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
	if (parse_chunk(name, file))
		return true;
	if (sscanf(name, "%5x.%8x.%15s", &file->shard, &file->number, ending) == 3)
	{
		static const char *const endings[] = {
			[KV_FILE_LOG] = "log",
			[KV_FILE_RUN] = "run",
			[KV_FILE_IMAGE] = "image",
		};

		for (int kind = 0; kind < lengthof(endings); kind++)
		{
			file->kind = (KvFileKind) kind;
			if (strcmp(ending, endings[kind]) == 0)
				return true;
		}
		return false;
	}
	file->number = 0;
	file->kind = KV_FILE_MANIFEST;
	return sscanf(name, "%5x.%15s", &file->shard, ending) == 2 &&
		strcmp(ending, "manifest") == 0;
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

/* Add what a directory has: only chunks, or all. */
static void
list_directory(const char *directory, bool chunks, KvFound *found, int *room)
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
			(!chunks || found->files[found->n].kind == KV_FILE_CHUNK))
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
kv_found_first(const KvFound *found, uint32 shardno)
{
	int			low = 0;
	int			high = found->n;

	while (low < high)
	{
		int			middle = (low + high) / 2;

		if (found->files[middle].shard < shardno)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

int
kv_found_of_shard(const KvFound *found, int at, uint32 shardno)
{
	int			n = 0;

	while (at + n < found->n && found->files[at + n].shard == shardno)
		n++;
	return n;
}
