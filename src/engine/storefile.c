/*
 * storefile.c
 *		Where a store's files are, and the two small ones that describe it.
 *
 *   kvfdw/<database>/<relation>/<generation>/table   identity, creator, schema image
 *                                           /map     shard boundaries
 *
 * A generation's directory is made under a temporary name with both files in
 * it and then renamed, so a directory of the right name is whole.  Both files
 * are replaced by rename, never changed in place.
 */
#include "postgres.h"

#include <dirent.h>

#include "access/xlog.h"
#include "storage/fd.h"

#include "engine/internal.h"

typedef struct KvTableFile
{
	uint32		magic;
	uint32		format_version;
	uint64		system_identifier;
	Oid			dboid;
	Oid			relid;
	uint32		generation;
	uint32		nshards;
	uint64		creator;
	uint32		creator_incarnation;
	uint32		key_width;
	uint32		schema_len;
	uint32		crc;			/* of all else and the schema image behind */

	/* not in version 1 */
	uint64		id;
	uint32		wal;			/* KvWalLevel */
	uint32		pad;
} KvTableFile;

StaticAssertDecl(sizeof(KvTableFile) == 72, "table file size");

#define KV_TABLE_VERSION	2
#define KV_TABLE_V1_SIZE	offsetof(KvTableFile, id)

typedef struct KvMapFile
{
	uint32		magic;
	uint32		format_version;
	uint64		system_identifier;
	Oid			dboid;
	Oid			relid;
	uint32		generation;
	uint32		nshards;
	uint32		bytes;			/* of offsets and bounds behind */
	uint32		crc;
} KvMapFile;

/* The numbers among a directory's names, as OIDs.  Also in the postmaster. */
List *
kv_numbered_entries(const char *path)
{
	DIR		   *dir = AllocateDir(path);
	struct dirent *de;
	List	   *numbers = NIL;

	while ((de = ReadDirExtended(dir, path, LOG)) != NULL)
	{
		char	   *end;
		Oid			number = (Oid) strtoul(de->d_name, &end, 10);

		if (number != InvalidOid && *end == '\0')
			numbers = lappend_oid(numbers, number);
	}
	FreeDir(dir);
	return numbers;
}

/* The generations that a table's directory has. */
List *
kv_generations(Oid dboid, Oid relid)
{
	const char *path = kv_path_table_directory(dboid, relid);
	DIR		   *dir = AllocateDir(path);
	struct dirent *de;
	List	   *generations = NIL;

	while ((de = ReadDirExtended(dir, path, LOG)) != NULL)
	{
		char	   *end;
		uint32		generation = strtoul(de->d_name, &end, 16);

		if (end == de->d_name + 8 && *end == '\0')
			generations = lappend_oid(generations, generation);
	}
	FreeDir(dir);
	return generations;
}

/* Call for every generation of every table that has a directory.  Returns how many. */
int
kv_visit_stores(void (*visit) (const KvStoreKey *key, const void *arg), const void *arg)
{
	int			n = 0;
	ListCell   *database;
	ListCell   *table;
	ListCell   *generation;

	foreach(database, kv_numbered_entries("kvfdw"))
	{
		char		path[MAXPGPATH];

		snprintf(path, sizeof(path), "kvfdw/%u", lfirst_oid(database));
		foreach(table, kv_numbered_entries(path))
		{
			foreach(generation, kv_generations(lfirst_oid(database), lfirst_oid(table)))
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

/* What kind of file has this name?  False: none that belongs to a shard. */
static bool
parse_name(const char *name, KvFoundFile *file)
{
	Size		len = strlen(name);
	char		ending[16];

	if (len >= sizeof(file->name))
		return false;
	strlcpy(file->name, name, sizeof(file->name));
	file->number = 0;
	if (len > 4 && strcmp(name + len - 4, ".tmp") == 0)
	{
		file->kind = KV_FILE_TEMPORARY;
		return sscanf(name, "%5x", &file->shard) == 1;
	}
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
	uint32		left = ((const KvFoundFile *) a)->shard;
	uint32		right = ((const KvFoundFile *) b)->shard;

	return left < right ? -1 : left > right;
}

/* What is there; value files need no sweeping, and unknown files are left alone. */
void
kv_store_list_files(const KvStoreKey *key, KvFound *found)
{
	char	   *directory = pstrdup(kv_path_store(key));
	DIR		   *dir = AllocateDir(directory);
	struct dirent *de;
	int			room = 64;

	found->n = 0;
	found->files = palloc(room * sizeof(KvFoundFile));
	while ((de = ReadDir(dir, directory)) != NULL)
	{
		if (found->n == room)
		{
			room *= 2;
			found->files = repalloc_huge(found->files, room * sizeof(KvFoundFile));
		}
		if (parse_name(de->d_name, &found->files[found->n]))
			found->n++;
	}
	FreeDir(dir);
	pfree(directory);
	qsort(found->files, found->n, sizeof(KvFoundFile), compare_found);
}

/* How many files from index at on are the shard's. */
int
kv_found_of_shard(const KvFound *found, int at, uint32 shardno)
{
	int			n = 0;

	while (at + n < found->n && found->files[at + n].shard == shardno)
		n++;
	return n;
}

/* ---- paths; each result lasts until the next call of the same function ---- */

const char *
kv_path_table_directory(Oid dboid, Oid relid)
{
	static char path[MAXPGPATH];

	snprintf(path, sizeof(path), "kvfdw/%u/%u", dboid, relid);
	return path;
}

const char *
kv_path_store(const KvStoreKey *key)
{
	static char path[MAXPGPATH];

	snprintf(path, sizeof(path), "kvfdw/%u/%u/%08x", key->dboid, key->relid,
			 key->generation);
	return path;
}

/* The path of a file in a store's directory, formatted into a function's own buffer. */
pg_attribute_printf(3, 4) static const char *
file_path(char *buffer, const KvStoreKey *key, const char *format, ...)
{
	int			len = snprintf(buffer, MAXPGPATH, "kvfdw/%u/%u/%08x/", key->dboid,
							   key->relid, key->generation);
	va_list		args;

	va_start(args, format);
	vsnprintf(buffer + len, MAXPGPATH - len, format, args);
	va_end(args);
	return buffer;
}

const char *
kv_path_value(const KvStoreKey *key, uint32 file)
{
	static char path[MAXPGPATH];

	return file_path(path, key, "%05x.val", file);
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

void
kv_store_ids(const KvStore *store, uint32 shard, uint32 number, KvRunIds *ids)
{
	memset(ids, 0, sizeof(*ids));
	ids->system_identifier = kv_shared->system_identifier;
	ids->dboid = store->key.dboid;
	ids->relid = store->key.relid;
	ids->generation = store->key.generation;
	ids->shard = shard;
	ids->number = number;
	ids->incarnation = kv_writing_incarnation();
	ids->fixed_key_len = store->key_width;
}

/* ---- the table file ---- */

/* Of all the file's bytes but the CRC itself. */
static uint32
table_crc(const KvTableFile *file, Size len)
{
	pg_crc32c	crc;

	INIT_CRC32C(crc);
	COMP_CRC32C(crc, file, offsetof(KvTableFile, crc));
	COMP_CRC32C(crc, (const char *) file + KV_TABLE_V1_SIZE, len - KV_TABLE_V1_SIZE);
	FIN_CRC32C(crc);
	return crc;
}

static void
write_table(const char *path, const KvStore *store, const char *schema, int schema_len)
{
	Size		len = sizeof(KvTableFile) + schema_len;
	KvTableFile *file = palloc0(len);

	file->magic = KV_MAGIC_TABLE;
	file->format_version = KV_TABLE_VERSION;
	file->system_identifier = kv_shared->system_identifier;
	file->dboid = store->key.dboid;
	file->relid = store->key.relid;
	file->generation = store->key.generation;
	file->nshards = store->nshards;
	file->creator = store->creator;
	file->creator_incarnation = store->creator_incarnation;
	file->key_width = store->key_width;
	file->schema_len = schema_len;
	file->id = store->id;
	file->wal = store->wal;
	memcpy(file + 1, schema, schema_len);
	file->crc = table_crc(file, len);
	kv_io_replace(path, file, len, true);
	pfree(file);
}

/*
 * Read a store's table file into the store (nshards, key_width, creator, id,
 * wal) and its schema image into *schema, which may be NULL.  False if there is
 * none.  A file of version 1 is of a store at wal level 'none'.
 */
bool
kv_table_file_read(KvStore *store, StringInfo schema)
{
	char	   *path = psprintf("%s/table", kv_path_store(&store->key));
	Size		len;
	Size		header = sizeof(KvTableFile);
	KvTableFile *file = (KvTableFile *) kv_io_slurp(path, &len);

	if (file == NULL)
		return false;
	if (len >= KV_TABLE_V1_SIZE && file->magic == KV_MAGIC_TABLE)
	{
		if (file->format_version < 1 || file->format_version > KV_TABLE_VERSION)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("file \"%s\" has format version %u, this library reads versions 1 to %u",
							path, file->format_version, KV_TABLE_VERSION)));
		if (file->format_version == 1)
			header = KV_TABLE_V1_SIZE;
	}
	if (len < header || file->magic != KV_MAGIC_TABLE ||
		len != header + file->schema_len ||
		file->crc != table_crc(file, len) ||
		file->nshards < 1 || file->nshards > KV_MAX_SHARDS)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("file \"%s\" is damaged", path)));
	if (file->system_identifier != kv_shared->system_identifier ||
		file->dboid != store->key.dboid || file->relid != store->key.relid ||
		file->generation != store->key.generation)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("file \"%s\" belongs to another table", path)));
	store->nshards = file->nshards;
	store->key_width = file->key_width;
	store->creator = file->creator;
	store->creator_incarnation = file->creator_incarnation;
	store->id = file->format_version == 1 ? 0 : file->id;
	store->wal = file->format_version == 1 ? KV_WAL_NONE : (KvWalLevel) file->wal;
	if (schema)
		appendBinaryStringInfo(schema, (char *) file + header, file->schema_len);
	pfree(file);
	pfree(path);
	path = psprintf("%s/unusable", kv_path_store(&store->key));
	store->unusable = access(path, F_OK) == 0;
	pfree(path);
	path = psprintf("%s/behind", kv_path_store(&store->key));
	store->behind = access(path, F_OK) == 0;
	pfree(path);
	return true;
}

/* Whose table file is this?  False if it is not one that has an id. */
bool
kv_table_file_identify(const char *path, KvStoreKey *key, uint64 *id)
{
	Size		len;
	KvTableFile *file = (KvTableFile *) kv_io_slurp(path, &len);
	bool		sound;

	if (file == NULL)
		return false;
	sound = len >= sizeof(KvTableFile) && file->magic == KV_MAGIC_TABLE &&
		file->format_version == KV_TABLE_VERSION && file->crc == table_crc(file, len);
	if (sound)
	{
		key->dboid = file->dboid;
		key->relid = file->relid;
		key->generation = file->generation;
		*id = file->id;
	}
	pfree(file);
	return sound;
}

/* ---- unusable stores ---- */

/* From now on every use of the store is an ERROR with this SQLSTATE and text. */
void
kv_store_mark_unusable(KvStore *store, int sqlerrcode, const char *why)
{
	char	   *path = psprintf("%s/unusable", kv_path_store(&store->key));
	char	   *text = psprintf("%s %s", unpack_sql_state(sqlerrcode), why);

	kv_io_replace(path, text, strlen(text), true);
	store->unusable = true;
	pfree(text);
	pfree(path);
}

/* The store's values are not in the WAL, and nowhere else within our reach. */
void
kv_store_mark_not_logged(KvStore *store)
{
	kv_store_mark_unusable(store, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
						   store->wal == KV_WAL_KEYS ?
						   "Values of tables with wal level \"keys\" do not reach a standby server or a restored backup." :
						   "Values of tables with wal level \"none\" do not reach a standby server or a restored backup.");
}

/*
 * The store has changes that are neither in its images nor in the WAL from the next
 * checkpoint on, for it could not be opened at the end of redo; or it has none any
 * more.  While the mark is there it must not be set back to its images.
 */
void
kv_store_mark_behind(KvStore *store, bool behind)
{
	char	   *path = psprintf("%s/behind", kv_path_store(&store->key));

	if (behind)
		kv_io_replace(path, "", 0, true);
	else
		(void) kv_io_unlink(path);
	store->behind = behind;
	pfree(path);
}

/* The text, palloc'd. */
char *
kv_store_why_unusable(const KvStoreKey *key, int *sqlerrcode)
{
	char	   *path = psprintf("%s/unusable", kv_path_store(key));
	Size		len = 0;
	char	   *why = kv_io_slurp(path, &len);

	pfree(path);
	if (len < 6)
	{
		*sqlerrcode = ERRCODE_DATA_CORRUPTED;
		return pstrdup("The reason is not known.");
	}
	*sqlerrcode = MAKE_SQLSTATE(why[0], why[1], why[2], why[3], why[4]);
	return why + 6;
}

void
kv_store_get_schema(KvStore *store, StringInfo into)
{
	KvStore		image = *store;

	if (!kv_table_file_read(&image, into))
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("file \"%s/table\" is missing", kv_path_store(&store->key))));
}

void
kv_store_set_schema(KvStore *store, const char *data, int len)
{
	char	   *path = psprintf("%s/table", kv_path_store(&store->key));

	/* two sessions may come to the same conclusion at once */
	LWLockAcquire(&kv_shared->control_lock, LW_EXCLUSIVE);
	write_table(path, store, data, len);
	if (!RecoveryInProgress())
		kv_wal_log_schema(store, data, len);
	LWLockRelease(&kv_shared->control_lock);
	pfree(path);
}

/*
 * Once every snapshot sees the TRUNCATE that made this generation, nobody need
 * ask clog about it again, and clog may forget it (F 6).
 */
void
kv_store_settle_creator(KvStore *store)
{
	StringInfoData schema;

	if (store->creator == 0 || store->creator >= kv_xid_horizon() ||
		kv_xid_fate(store->creator, store->creator_incarnation) != KV_FATE_COMMITTED)
		return;
	initStringInfo(&schema);
	LWLockAcquire(&kv_shared->control_lock, LW_EXCLUSIVE);
	kv_store_get_schema(store, &schema);
	if (pg_atomic_read_u32(&store->state) == KV_STORE_OPEN)
	{
		char	   *path = psprintf("%s/table", kv_path_store(&store->key));

		store->creator = 0;
		write_table(path, store, schema.data, schema.len);
		pfree(path);
	}
	LWLockRelease(&kv_shared->control_lock);
	pfree(schema.data);
}

/* ---- the map ---- */

static uint32
map_crc(const KvMapFile *file)
{
	pg_crc32c	crc;

	INIT_CRC32C(crc);
	COMP_CRC32C(crc, file, offsetof(KvMapFile, crc));
	COMP_CRC32C(crc, file + 1, file->bytes);
	FIN_CRC32C(crc);
	return crc;
}

static void
write_map(const char *path, const KvStore *store, const KvKey *bounds)
{
	uint32		bytes = sizeof(uint32) * (store->nshards + 1);
	KvMapFile  *file;
	uint32	   *offsets;
	uint32		at = 0;

	for (int i = 1; i < store->nshards; i++)
		bytes += bounds[i].len;
	file = palloc0(sizeof(KvMapFile) + bytes);
	file->magic = KV_MAGIC_MAP;
	file->format_version = KV_FORMAT_VERSION;
	file->system_identifier = kv_shared->system_identifier;
	file->dboid = store->key.dboid;
	file->relid = store->key.relid;
	file->generation = store->key.generation;
	file->nshards = store->nshards;
	file->bytes = bytes;
	offsets = (uint32 *) (file + 1);
	for (int i = 1; i < store->nshards; i++)
	{
		offsets[i] = at;
		memcpy((uint8 *) (offsets + store->nshards + 1) + at, bounds[i].data, bounds[i].len);
		at += bounds[i].len;
	}
	offsets[store->nshards] = at;
	file->crc = map_crc(file);
	kv_io_replace(path, file, sizeof(KvMapFile) + bytes, true);
	pfree(file);
}

/* The bounds as shared memory keeps them, palloc'd; see KvStore.bounds. */
char *
kv_map_file_read(KvStore *store, Size *bytes)
{
	char	   *path = psprintf("%s/map", kv_path_store(&store->key));
	Size		len;
	KvMapFile  *file = (KvMapFile *) kv_io_slurp(path, &len);
	char	   *bounds;

	if (file == NULL || len < sizeof(KvMapFile) || file->magic != KV_MAGIC_MAP ||
		file->format_version != KV_FORMAT_VERSION ||
		len != sizeof(KvMapFile) + file->bytes || file->crc != map_crc(file) ||
		file->system_identifier != kv_shared->system_identifier ||
		file->dboid != store->key.dboid || file->relid != store->key.relid ||
		file->generation != store->key.generation || file->nshards != store->nshards)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("file \"%s\" is %s", path, file == NULL ? "missing" : "damaged")));
	*bytes = file->bytes;
	bounds = palloc(file->bytes);
	memcpy(bounds, file + 1, file->bytes);
	pfree(file);
	pfree(path);
	return bounds;
}

/*
 * Make the directory of a new generation, whole or not at all.  The store's
 * identity, creator, nshards and key_width are set; bounds[0] is not used.
 */
void
kv_store_files_create(const KvStore *store, const KvKey *bounds)
{
	char	   *target = pstrdup(kv_path_store(&store->key));
	char	   *fresh = psprintf("%s.new", target);
	char	   *path;
	int			err;

	kv_io_rmtree(fresh);
	kv_io_mkdir(fresh);
	path = psprintf("%s/table", fresh);
	write_table(path, store, "", 0);
	path = psprintf("%s/map", fresh);
	write_map(path, store, bounds);
	KV_STOP_POINT("create_before_rename");
	err = kv_io_rename(fresh, target);
	if (err != 0)
		kv_io_error(ERROR, err, target, "create");
	kv_io_sync_directory(kv_path_table_directory(store->key.dboid, store->key.relid));
}
