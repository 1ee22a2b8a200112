/*
 * where.c
 *		Finds a store's value files: in its directory, or in tablespaces.
 *
 * A store has its directory in kvfdw/.  If its table file names a tablespace, only its value
 * files are created there; all files that determine the store's state are still in one place.
 * The table file is read for each path: that costs a few microseconds, and paths are for
 * opening files.
 *
 * A store that has been given another tablespace (shard/move.c) has older value files where
 * they were created.  Its table file names the tablespaces that they are leaving, and its own
 * directory is always one of these.  A value file has a number that no other value file of the
 * store has, and never changes its directory.  So it is searched: first where value files are
 * created now, then in the others.  A process that creates one searches in the same way, so
 * there is never a second one of that name.
 *
 * A directory is named until it has been removed, which rmdir does only while it is empty.  A
 * process that is about to create a value file in it, and has read the table file before, finds
 * that the directory is missing, and looks again (kv_value_make).
 *
 * A directory in a tablespace
 *
 *  - is in the directory that PostgreSQL has there for its version, so that DROP TABLESPACE
 *    finds that the tablespace is not empty, and backups have it.  That directory is never
 *    created here: if it is missing, the file system is not mounted, and that is an ERROR, not
 *    an empty table (kv_space_require);
 *  - has a name that is no number, which PostgreSQL would take for a database's;
 *  - has the store's id in its name, which never repeats: a directory without a store of this
 *    id in kvfdw/ belongs to a removed store, whatever has become of its key;
 *  - has the server's id in its name (restart/takeover.c), because each server has values at
 *    other addresses.  Another server's directory is not read, and the store cannot be used if
 *    it has none of this server.  This also excludes a server that was started while the file
 *    system of "kvfdw" was not mounted;
 *  - is created when the store is opened, if it is missing: there may have been a crash in
 *    between, and a base backup copies tablespaces before stores;
 *  - also has the released value files, under hidden names, since a file cannot be renamed into
 *    another file system.
 */
#include "postgres.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include "storage/fd.h"

#include "compat.h"
#include "engine/base/error.h"
#include "engine/base/shared.h"
#include "engine/base/types.h"
#include "engine/format/format.h"
#include "engine/format/path.h"
#include "engine/io/io.h"
#include "engine/io/name.h"

/* Does the tablespace exist, mounted or not? */
static bool
space_exists(Oid tablespace)
{
	char		link[MAXPGPATH];
	struct stat info;

	snprintf(link, sizeof(link), "pg_tblspc/%u", tablespace);
	return lstat(link, &info) == 0 || errno != ENOENT;
}

/*
 * The directory in which a store's value files are created.  If that is not known, a path that
 * cannot exist or be created, and is not just missing (ENOTDIR).
 */
static void
values_directory(char *path, const KvStoreKey *key, KvWhere *where)
{
	if (!kv_table_file_peek(key, where))
	{
		strlcpy(path, kv_path_in_store(key, "table/unreadable"), MAXPGPATH);
		return;
	}

	/* redo may not have reached its creation yet; or a crash left it named, and it was dropped */
	if (where->moved && OidIsValid(where->tablespace) && !space_exists(where->tablespace))
		where->tablespace = InvalidOid;
	strlcpy(path, OidIsValid(where->tablespace) ?
			kv_path_in_space(key, where->id, where->tablespace) : kv_path_store(key), MAXPGPATH);
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
has_mark(const KvStoreKey *key)
{
	char	   *path = pstrdup(kv_path_store(key));
	DIR		   *dir = AllocateDir(path);
	struct dirent *de;
	bool		found = false;

	while (!found && (de = ReadDirExtended(dir, path, LOG)) != NULL)
	{
		Size		len;
		char	   *log = strstr(de->d_name, ".versions") == NULL ? NULL :
			kv_io_slurp(kv_path_in_store(key, de->d_name), &len);
		const KvEditRecord *record;

		for (Size at = KV_VERSIONS_HEAD; log != NULL && at + sizeof(KvEditRecord) <= len && !found;
			 at += sizeof(KvEditRecord) + record->len)
		{
			record = (const KvEditRecord *) (log + at);
			found = record->kind == KV_EDIT_MARK || record->kind == KV_EDIT_CARRIED;
		}
	}
	FreeDir(dir);
	pfree(path);
	return found;
}

KV_NORETURN static void
raise_no_space(int code, const KvStoreKey *key, Oid tablespace)
{
	ereport(ERROR,
			(errcode(code),
			 errmsg("tablespace with OID %u does not exist", tablespace),
			 errdetail("The tablespace has values of %s.",
					   kv_table_label(key->dboid, key->relid)),
			 errhint("Restore its link in \"pg_tblspc\", and start the server again.")));
}

/*
 * Does it exist?  ERROR if it is not mounted; and if there is no such tablespace, unless it may
 * have been dropped.  Redo continues without a store that it creates and drops again, with its
 * tablespace, but not without one that a checkpoint has seen: then its link is missing.
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
		raise_no_space(has_mark(key) ? ERRCODE_IO_ERROR : ERRCODE_UNDEFINED_OBJECT, key,
					   tablespace);
	}
	errno = err;
	ereport(ERROR,
			(errcode(ERRCODE_IO_ERROR),
			 errmsg("could not access directory \"%s\": %m", kv_path_space(tablespace)),
			 errdetail("The tablespace with OID %u has values of %s.",
					   tablespace, kv_table_label(key->dboid, key->relid)),
			 errhint("Make sure that the file system of the tablespace is mounted.")));
}

bool
kv_space_claim(Oid tablespace)
{
	char	   *space = pstrdup(kv_path_space(tablespace));
	DIR		   *dir = AllocateDir(space);
	struct dirent *de;
	bool		all = dir != NULL;
	bool		some = false;

	while (dir != NULL && (de = ReadDirExtended(dir, space, LOG)) != NULL)
	{
		char		path[MAXPGPATH];
		char		target[MAXPGPATH];
		KvStoreKey	key;
		uint64		id;
		uint64		server;
		bool		former = false;
		int			err;

		if (!kv_space_parse_any(de->d_name, &key, &id, &server))
			continue;
		for (int i = 0; i < KV_FORMER_SERVERS; i++)
			former |= server == kv_base->former_ids[i] && server != 0;
		if (!former)
			continue;
		kv_space_print(path, &key, id, tablespace, server);
		kv_space_print(target, &key, id, tablespace, kv_server_id());
		err = kv_io_rename(path, target);
		some |= err == 0;

		/* another process may have done it */
		if (err == 0 || err == ENOENT)
			continue;
		kv_io_error(WARNING, err, path, "rename");
		all = false;
	}
	if (dir != NULL)
		FreeDir(dir);
	if (some)
		kv_io_sync_directory(space);
	pfree(space);
	return all;
}

/* The directory of another server there for the store with this id; NULL: none; palloc'd. */
static char *
path_of_other(const KvStoreKey *key, uint64 id, Oid tablespace)
{
	char	   *space = pstrdup(kv_path_space(tablespace));
	DIR		   *dir = AllocateDir(space);
	struct dirent *de;
	char	   *path = NULL;

	while (path == NULL && (de = ReadDirExtended(dir, space, LOG)) != NULL)
	{
		KvStoreKey	found;
		uint64		found_id;
		uint64		server;

		if (kv_space_parse_any(de->d_name, &found, &found_id, &server) &&
			memcmp(&found, key, sizeof(found)) == 0 && found_id == id && server != kv_server_id())
			path = psprintf("%s/%s", space, de->d_name);
	}
	FreeDir(dir);
	pfree(space);
	return path;
}

/* ERROR if the store has no directory there, and another server has one for it. */
static void
require_own(const KvStoreKey *key, uint64 id, Oid tablespace)
{
	char	   *other;

	if (access(kv_path_in_space(key, id, tablespace), F_OK) == 0 || errno != ENOENT)
		return;
	if (kv_base->former_ids[0] != 0)
		(void) kv_space_claim(tablespace);
	if (access(kv_path_in_space(key, id, tablespace), F_OK) == 0)
		return;
	other = path_of_other(key, id, tablespace);
	if (other == NULL)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("value files in directory \"%s\" belong to another server",
					kv_path_space(tablespace)),
			 errdetail("Another server of the cluster created directory \"%s\".", other),
			 errhint("Restore a backup with the directory \"kvfdw\" and the tablespaces of one "
					 "server.")));
}

Oid
kv_space_forgotten(const KvStoreKey *key)
{
	KvWhere		where;

	return kv_table_file_peek(key, &where) && OidIsValid(where.tablespace) &&
		!space_exists(where.tablespace) ?
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
	{
		if (require_space(key, where.leaving[i], true))
			require_own(key, where.id, where.leaving[i]);
	}
	if (!OidIsValid(where.tablespace) || !require_space(key, where.tablespace, where.moved))
		return;
	require_own(key, where.id, where.tablespace);
	if (make)
		kv_io_mkdir(kv_path_in_space(key, where.id, where.tablespace));
}

static void
require_named(const KvStoreKey *key, Oid tablespace, const char *path)
{
	if (!OidIsValid(tablespace) || space_exists(tablespace))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_IO_ERROR),
			 errmsg("tablespace with OID %u does not exist", tablespace),
			 errdetail("The tablespace may have the missing file \"%s\" of %s.", path,
					   kv_table_label(key->dboid, key->relid)),
			 errhint("Restore its link in \"pg_tblspc\", and start the server again.")));
}

void
kv_space_require_named(const KvStoreKey *key, const char *path, bool copied)
{
	KvWhere		where;

	if (!kv_table_file_peek(key, &where))
		return;
	require_named(key, where.tablespace, path);
	for (int i = 0; i < where.nleaving; i++)
		require_named(key, where.leaving[i], path);
	if (copied && strncmp(path, "pg_tblspc/", 10) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("value file \"%s\" is not in the base backup", path),
				 errdetail("The backup does not have value file \"%s\". It must have the directory "
						   "\"kvfdw\" and the tablespaces of one server. pgBackRest with "
						   "\"backup-standby\" copies them from two servers.",
						   path)));
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
add_value_file_name(char *path, KvFileId file)
{
	uint32		volume = kv_volume_of(file.address);
	Size		len = strlen(path);

	snprintf(path + len, MAXPGPATH - len, "/%05x.c%05x.val", volume,
			 (uint32) ((file.address - kv_volume_begin(volume)) / kv_file_span(file)));
}

/*
 * The path of a value file that is not where value files are created, of a store whose value
 * files have moved.  False: it does not exist.  If it may be in a tablespace that is not
 * mounted its path is there, so that it is reported as missing, and not created elsewhere.
 */
static bool
find_elsewhere(char *path, const KvStoreKey *key, const KvWhere *where, KvFileId file)
{
	for (int pass = 0; pass < 2; pass++)
	{
		for (int i = 0; i < where->nleaving; i++)
		{
			strlcpy(path, kv_path_in_space(key, where->id, where->leaving[i]), MAXPGPATH);
			add_value_file_name(path, file);
			if (pass == 0 ? access(path, F_OK) == 0 :
				access(kv_path_space(where->leaving[i]), F_OK) != 0 &&
				space_exists(where->leaving[i]))
				return true;
		}
		strlcpy(path, kv_path_store(key), MAXPGPATH);
		add_value_file_name(path, file);
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

	values_directory(path, key, &where);
	add_value_file_name(path, file);
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
	add_value_file_name(path, file);
	return access(path, F_OK) == 0;
}
