/*
 * tablefile.c
 *		The two small files that describe a store.
 *
 *   table   identity, creator, schema image
 *   map     shard boundaries (mapfile.c)
 *
 * A generation's directory is made under a temporary name with both files in
 * it and then renamed, so a directory of the right name is whole.  Both files
 * are replaced by rename, never changed in place.
 */
#include "postgres.h"

#include "engine/base/crc.h"
#include "engine/base/types.h"
#include "engine/format/format.h"
#include "engine/io/io.h"

typedef struct KvTableFile
{
	KvFileHead	head;
	uint64		creator;
	uint32		creator_incarnation;
	uint32		key_width;
	uint32		schema_len;
	uint32		crc;			/* of all else and the schema image behind */

	/* not in version 1 */
	uint64		id;
	uint32		wal;			/* KvWalLevel */
	uint32		schema_incarnation; /* that wrote the schema image; 0: redo, or it is not known */

	/* not in version 2 */
	uint32		flags;
	Oid			tablespace;		/* of its value files; 0 before version 5 */

	/* not before version 6 */
	uint64		moved_lsn;
	uint32		nleaving;
	Oid			leaving[KV_MAX_LEAVING];
} KvTableFile;

StaticAssertDecl(sizeof(KvTableFile) == 152, "table file size");

/* 5: with a tablespace; 4: with other maps than the first; 3: else. */
#define KV_TABLE_VERSION	6		/* value files have had another tablespace */
#define KV_TABLE_V5_SIZE	offsetof(KvTableFile, moved_lsn)	/* 3 and 4, too */
#define KV_TABLE_V1_SIZE	offsetof(KvTableFile, id)
#define KV_TABLE_V2_SIZE	offsetof(KvTableFile, flags)

/* KvTableFile.flags: manifests may have value files, and there may be maps after the first. */
#define KV_TABLE_VALUE_FILES		1
#define KV_TABLE_MAPS		2

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

/* How long the file's head is; the schema image comes behind it. */
static Size
head_size(const KvTableFile *file)
{
	switch (file->head.format_version)
	{
		case 1:
			return KV_TABLE_V1_SIZE;
		case 2:
			return KV_TABLE_V2_SIZE;
		case KV_TABLE_VERSION:
			return sizeof(KvTableFile);
		default:
			return KV_TABLE_V5_SIZE;
	}
}

static void
write_table(const char *path, const KvStoreKey *key, const KvStoreShape *shape,
			const char *schema, int schema_len, uint32 schema_incarnation)
{
	Size		len;
	KvTableFile *file = palloc0(sizeof(KvTableFile) + schema_len);

	kv_head_make(&file->head, KV_MAGIC_TABLE,
				 shape->moved_lsn != 0 ? KV_TABLE_VERSION :
				 OidIsValid(shape->tablespace) ? 5 : shape->maps ? 4 : 3, key,
				 shape->nshards);
	len = head_size(file) + schema_len;
	file->creator = shape->creator;
	file->creator_incarnation = shape->creator_incarnation;
	file->key_width = shape->key_width;
	file->schema_len = schema_len;
	file->id = shape->id;
	file->wal = shape->wal;
	file->schema_incarnation = schema_incarnation;
	file->flags = KV_TABLE_VALUE_FILES | (shape->maps ? KV_TABLE_MAPS : 0);
	file->tablespace = shape->tablespace;
	file->moved_lsn = shape->moved_lsn;
	file->nleaving = shape->nleaving;
	memcpy(file->leaving, shape->leaving, shape->nleaving * sizeof(Oid));
	memcpy((char *) file + head_size(file), schema, schema_len);
	file->crc = table_crc(file, len);
	kv_io_replace(path, file, len, true);
	pfree(file);
}

void
kv_table_file_write(const KvStoreKey *key, const KvStoreShape *shape, const char *schema,
					int schema_len, uint32 schema_incarnation)
{
	write_table(kv_path_in_store(key, "table"), key, shape, schema, schema_len,
				schema_incarnation);
}

/* Can a file of its version say this of tablespaces? */
static bool
tablespaces_are_sound(const KvTableFile *file)
{
	switch (file->head.format_version)
	{
		case 1:
		case 2:
			return true;
		case KV_TABLE_VERSION:
			return file->moved_lsn != 0 && file->nleaving <= KV_MAX_LEAVING;
		default:
			return OidIsValid(file->tablespace) == (file->head.format_version == 5);
	}
}

/* A file of version 1 is of a store at wal level 'none'. */
bool
kv_table_file_read(const KvStoreKey *key, KvStoreShape *shape, StringInfo schema,
				   uint32 *schema_incarnation)
{
	const char *path = kv_path_in_store(key, "table");
	Size		len;
	Size		header = sizeof(KvTableFile);
	KvTableFile *file = (KvTableFile *) kv_io_slurp(path, &len);

	if (file == NULL)
		return false;
	if (len >= KV_TABLE_V1_SIZE && file->head.magic == KV_MAGIC_TABLE)
	{
		if (file->head.format_version < 1 || file->head.format_version > KV_TABLE_VERSION)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("file \"%s\" has format version %u, this library reads versions 1 to "
							"%u",
							path, file->head.format_version, KV_TABLE_VERSION)));
		header = head_size(file);
	}
	if (len < header || file->head.magic != KV_MAGIC_TABLE ||
		len != header + file->schema_len ||
		file->crc != table_crc(file, len) ||
		file->head.shard < 1 || file->head.shard > KV_MAX_SHARDS || file->key_width > 8 ||
		(file->head.format_version > 1 && file->wal > KV_WAL_FULL) ||
		(file->head.format_version > 2 &&
		 (file->flags & ~(KV_TABLE_VALUE_FILES | KV_TABLE_MAPS)) != 0) ||
		!tablespaces_are_sound(file))
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("file \"%s\" is damaged", path)));
	if (!kv_head_is_of(&file->head, key, file->head.shard))
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("file \"%s\" belongs to another table", path)));
	shape->nshards = file->head.shard;
	shape->key_width = file->key_width;
	shape->creator = file->creator;
	shape->creator_incarnation = file->creator_incarnation;
	shape->id = file->head.format_version == 1 ? 0 : file->id;
	shape->maps = file->head.format_version > 2 && (file->flags & KV_TABLE_MAPS) != 0;
	shape->wal = file->head.format_version == 1 ? KV_WAL_NONE : (KvWalLevel) file->wal;
	shape->tablespace = file->head.format_version > 4 ? file->tablespace : InvalidOid;
	shape->moved_lsn = shape->nleaving = 0;
	if (file->head.format_version == KV_TABLE_VERSION)
	{
		shape->moved_lsn = file->moved_lsn;
		shape->nleaving = file->nleaving;
		memcpy(shape->leaving, file->leaving, sizeof(shape->leaving));
	}
	if (schema_incarnation)
		*schema_incarnation = file->head.format_version == 1 ? 0 : file->schema_incarnation;
	if (schema)
		appendBinaryStringInfo(schema, (char *) file + header, file->schema_len);
	pfree(file);
	shape->unusable = access(kv_path_in_store(key, "unusable"), F_OK) == 0;
	return true;
}

void
kv_table_file_allow_value_files(const KvStoreKey *key)
{
	uint32		version;
	KvStoreShape shape;
	StringInfoData schema;
	uint32		schema_incarnation;
	Size		len;
	KvTableFile *file = (KvTableFile *) kv_io_slurp(kv_path_in_store(key, "table"), &len);

	version = file != NULL && len >= sizeof(KvFileHead) ? file->head.format_version : 0;
	if (version > 2)
	{
		pfree(file);
		return;
	}
	initStringInfo(&schema);
	kv_table_file_require(key, &shape, &schema, &schema_incarnation);
	kv_table_file_write(key, &shape, schema.data, schema.len, schema_incarnation);
	pfree(schema.data);
}

bool
kv_table_file_peek(const KvStoreKey *key, KvWhere *where)
{
	KvTableFile file;
	int			got = kv_io_peek(kv_path_in_store(key, "table"), &file, sizeof(file));

	memset(where, 0, sizeof(*where));
	if (got == -ENOENT)
		return true;
	if (got < (int) sizeof(KvFileHead) || file.head.magic != KV_MAGIC_TABLE)
		return false;
	where->logged = file.head.format_version > 1 &&
		got >= (int) (offsetof(KvTableFile, wal) + sizeof(file.wal)) && file.wal != KV_WAL_NONE;
	if (file.head.format_version > 4)
	{
		if (got < (int) head_size(&file) || !tablespaces_are_sound(&file))
			return false;
		where->tablespace = file.tablespace;
	}
	if (file.head.format_version > 1 && got >= (int) KV_TABLE_V2_SIZE)
		where->id = file.id;
	if (file.head.format_version == KV_TABLE_VERSION)
	{
		where->moved = true;
		where->nleaving = file.nleaving;
		memcpy(where->leaving, file.leaving, sizeof(where->leaving));
	}
	return true;
}

void
kv_table_file_allow_maps(const KvStoreKey *key)
{
	KvStoreShape shape;
	StringInfoData schema;
	uint32		schema_incarnation;

	initStringInfo(&schema);
	kv_table_file_require(key, &shape, &schema, &schema_incarnation);
	if (!shape.maps)
	{
		shape.maps = true;
		kv_table_file_write(key, &shape, schema.data, schema.len, schema_incarnation);
	}
	pfree(schema.data);
}

void
kv_table_file_require(const KvStoreKey *key, KvStoreShape *shape, StringInfo schema,
					  uint32 *schema_incarnation)
{
	if (!kv_table_file_read(key, shape, schema, schema_incarnation))
		kv_io_raise_missing(kv_path_in_store(key, "table"));
}

bool
kv_table_file_identify(const char *path, KvStoreKey *key, uint64 *id, KvWalLevel *wal)
{
	Size		len;
	KvTableFile *file = (KvTableFile *) kv_io_slurp(path, &len);
	bool		sound;

	if (file == NULL)
		return false;
	sound = len >= KV_TABLE_V2_SIZE && file->head.magic == KV_MAGIC_TABLE &&
		file->head.format_version >= 2 && file->head.format_version <= KV_TABLE_VERSION &&
		len >= head_size(file) && file->crc == table_crc(file, len);
	if (sound)
	{
		*key = file->head.store;
		*id = file->id;
		if (wal != NULL)
			*wal = (KvWalLevel) file->wal;
	}
	pfree(file);
	return sound;
}

/* ---- unusable stores ---- */

void
kv_store_mark_unusable(const KvStoreKey *key, int sqlerrcode, const char *why)
{
	char	   *text = psprintf("%s %s", unpack_sql_state(sqlerrcode), why);

	kv_io_replace(kv_path_in_store(key, "unusable"), text, strlen(text), true);
	pfree(text);
}

/* What such a reason begins with, in files of all versions. */
#define NOT_LOGGED	"Values of tables with wal level "

void
kv_store_mark_not_logged(const KvStoreKey *key, KvWalLevel level)
{
	kv_store_mark_unusable(key, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
						   level == KV_WAL_KEYS ?
						   NOT_LOGGED "\"keys\" do not reach a standby server or a restored "
									  "backup." :
						   NOT_LOGGED "\"none\" do not reach a standby server or a restored "
									  "backup.");
}

char *
kv_store_why_unusable(const KvStoreKey *key, int *sqlerrcode, bool *not_logged)
{
	Size		len = 0;
	char	   *why = kv_io_slurp(kv_path_in_store(key, "unusable"), &len);

	*not_logged = false;
	*sqlerrcode = len < 6 ? 0 : MAKE_SQLSTATE(why[0], why[1], why[2], why[3], why[4]);

	/* it has no checksum; no other is ever written */
	if (*sqlerrcode != ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE &&
		*sqlerrcode != ERRCODE_DATA_CORRUPTED)
	{
		*sqlerrcode = ERRCODE_DATA_CORRUPTED;
		return pstrdup("The reason is not known.");
	}
	*not_logged = strncmp(why + 6, NOT_LOGGED, strlen(NOT_LOGGED)) == 0;
	return why + 6;
}

/* ---- both ---- */

void
kv_store_files_create(const KvStoreKey *key, const KvStoreShape *shape, const KvKey *bounds)
{
	char	   *target = pstrdup(kv_path_store(key));
	char	   *fresh = psprintf("%s.new", target);
	int			err;

	kv_io_rmtree(fresh);
	kv_io_mkdir(fresh);
	write_table(psprintf("%s/table", fresh), key, shape, "", 0, 0);
	kv_map_file_begin(psprintf("%s/map", fresh), key, shape->nshards, bounds);
	KV_STOP_POINT("create_before_rename");
	err = kv_io_rename(fresh, target);
	if (err != 0)
		kv_io_error(ERROR, err, target, "create");
	kv_io_sync_directory(kv_path_table_directory(key->dboid, key->relid));
}
