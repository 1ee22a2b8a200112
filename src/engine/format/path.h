/*
 * path.h
 *		Where files are: paths, directories in tablespaces, and the files that a store has.
 *
 * The names are those of docs/internals/format.md.  A store's value files may be in tablespaces;
 * all its other files are in one directory below "kvfdw" (where.c).
 *
 * Locks:  none; this module knows no shared memory.  Errors: a tablespace that is not there is an
 * ERROR, as kv_space_require says, unless a function says otherwise.
 */
#ifndef KV_PATH_H
#define KV_PATH_H

#include "nodes/pg_list.h"

#include "engine/base/types.h"

/* ---- path.c ---- */
/* A path lasts until the next call of the same function; these neither throw nor allocate. */
extern const char *kv_path_database(Oid dboid);
extern const char *kv_path_table_directory(Oid dboid, Oid relid);
extern const char *kv_path_store(const KvStoreKey *key);
extern const char *kv_path_in_store(const KvStoreKey *key, const char *name);
extern const char *kv_path_log(const KvStoreKey *key, uint32 shard, uint32 number);
extern const char *kv_path_run(const KvStoreKey *key, uint32 shard, uint32 number);
/* The directory of a store with this id in a tablespace. */
extern const char *kv_path_in_space(const KvStoreKey *key, uint64 id, Oid tablespace);
/* The directory of a tablespace that contains the stores' directories. */
extern const char *kv_path_space(Oid tablespace);
/*
 * Parse the name of a store's directory in a tablespace.  False: it is no such name, or another
 * server's.
 */
extern bool kv_space_parse(const char *name, KvStoreKey *key, uint64 *id);
/* The same for any server, which is returned too. */
extern bool kv_space_parse_any(const char *name, KvStoreKey *key, uint64 *id, uint64 *server);
/* Print the path of such a directory; path has MAXPGPATH bytes. */
extern void kv_space_print(char *path, const KvStoreKey *key, uint64 id, Oid tablespace,
						   uint64 server);

/* ---- where.c ---- */
/*
 * The path of a value file or, if it does not exist, where it is to be created.  Lasts and
 * behaves as the paths of path.c.
 */
extern const char *kv_path_value(const KvStoreKey *key, KvFileId file);
/*
 * The directory in which the store's value files are created: its own, or one in a tablespace.
 * Lasts and behaves as the paths of path.c.
 */
extern const char *kv_path_values(const KvStoreKey *key);
/*
 * Is a value file in that directory?  False: it is elsewhere, or does not exist.  Neither
 * throws nor allocates.
 */
extern bool kv_value_is_in_place(const KvStoreKey *key, KvFileId file);
/*
 * The directories of the store in tablespaces, whether or not there are files in them;
 * palloc'd.
 */
extern List *kv_space_directories(const KvStoreKey *key);
/* Make all directories durable that may have value files; ERROR if that fails. */
extern void kv_values_sync_names(const KvStoreKey *key);
/*
 * If the store has value files in tablespaces: ensure that these exist; make: and the directory
 * in which value files are created.
 *
 * ERROR 58030, which concerns all stores: a tablespace is not mounted.  58030, or 42704 while
 * the store has no mark: there is no such tablespace; that is no error for one that value
 * files have moved to or from.  55000: the directory there belongs to another server.
 */
extern void kv_space_require(const KvStoreKey *key, bool make);
/*
 * The tablespace in which the store's value files are created, if that does not exist, mounted
 * or not; else InvalidOid.
 */
extern Oid	kv_space_forgotten(const KvStoreKey *key);
/* Raise the ERROR for that. */
extern void kv_space_raise_forgotten(const KvStoreKey *key, Oid tablespace);
/*
 * A value file of that path is missing: ERROR (58030) if it may be in a tablespace that does
 * not exist; in a backup's copy (55000) if it should be in one.
 */
extern void kv_space_require_named(const KvStoreKey *key, const char *path, bool copied);
/*
 * Create the directory of a store with this id in a tablespace, if that is valid; ERROR as
 * kv_space_require.
 */
extern void kv_space_make(const KvStoreKey *key, uint64 id, Oid tablespace);
/*
 * In a tablespace: rename directories with a former id of this server to its present one.
 * False: some may be left, as in one that is not mounted; that is logged.
 */
extern bool kv_space_claim(Oid tablespace);

/* One file of a store's directory, as its name says. */
typedef enum KvFileKind
{
	KV_FILE_LOG, KV_FILE_RUN, KV_FILE_TEMPORARY, KV_FILE_VALUES
} KvFileKind;

typedef struct KvFoundFile
{
	uint32		shard;			/* of a value file: KV_NO_SHARD */
	uint32		volume;			/* of a value file */
	uint32		number;			/* of a log or run, or of a value file in its volume */
	KvFileKind	kind;
	char		name[32];
} KvFoundFile;

typedef struct KvFound
{
	KvFoundFile *files;			/* ordered by shard; value files are last, by address */
	int			n;
} KvFound;

static inline KvAddress
kv_found_address(const KvFoundFile *value_file)
{
	KvAddress	begin = kv_volume_begin(value_file->volume);

	return begin + value_file->number * kv_value_file_size(kv_class_of(begin));
}

/* ---- found.c ---- */
/* The files of a store's shards, by their names, palloc'd.  ERROR as kv_space_require. */
extern void kv_store_list_files(const KvStoreKey *key, KvFound *found);
/* The index of the first file of this shard, or of one with a greater number. */
extern int	kv_found_first(const KvFound *found, uint32 shard_id);
/* How many consecutive files, from index at on, belong to this shard? */
extern int	kv_found_of_shard(const KvFound *found, int at, uint32 shard_id);
/*
 * The entries of a directory, if it exists, whose names are numbers, as OIDs.  An unreadable
 * one is a LOG or an ERROR.
 */
extern List *kv_numbered_entries(const char *path, int level);
/* Call visit for every store that has a directory, of any database.  Returns how many. */
extern int	kv_visit_stores(void (*visit) (const KvStoreKey *key, const void *arg),
							const void *arg);

#endif							/* KV_PATH_H */
