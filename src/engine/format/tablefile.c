/*
 * tablefile.c
 *		The small file that describes a store: identity, creator, schema image.
 *
 * It is replaced by rename, never changed in place.
 */
#include "postgres.h"

#include <unistd.h>

#include "engine/base/hash.h"
#include "engine/base/types.h"
#include "engine/format/format.h"
#include "engine/format/path.h"
#include "engine/io/io.h"
#include "engine/io/name.h"

typedef struct KvTableFile
{
	KvFileHead	head;
	uint64		creator;
	uint32		creator_incarnation;
	uint32		key_width;
	uint32		schema_len;
	uint32		crc;			/* of all other bytes and the schema image after them */
	uint64		id;
	uint32		wal;			/* KvWalLevel */
	uint32		schema_incarnation; /* that wrote the schema image; 0: redo, or unknown */
	uint32		flags;
	Oid			tablespace;		/* of its value files; 0: they are in its own directory */
	uint64		moved_lsn;		/* 0: they have had no other tablespace */
	uint32		nleaving;
	Oid			leaving[KV_MAX_LEAVING];
} KvTableFile;

StaticAssertDecl(sizeof(KvTableFile) == 152, "table file size");

/* KvTableFile.flags: there may be maps after the first. */
#define KV_TABLE_MAPS		1

/* ---- the table file ---- */

/* The CRC of all bytes of the file except the CRC itself. */
static uint32
table_crc(const KvTableFile *file, Size len)
{
	pg_crc32c	crc;

	INIT_CRC32C(crc);
	COMP_CRC32C(crc, file, offsetof(KvTableFile, crc));
	COMP_CRC32C(crc, &file->id, len - offsetof(KvTableFile, id));
	FIN_CRC32C(crc);
	return crc;
}

static void
write_table(const char *path, const KvStoreKey *key, const KvStoreShape *shape,
			const char *schema, int schema_len, uint32 schema_incarnation)
{
	Size		len = sizeof(KvTableFile) + schema_len;
	KvTableFile *file = palloc0(len);

	kv_head_make(&file->head, KV_MAGIC_TABLE, key, shape->nshards);
	file->creator = shape->creator;
	file->creator_incarnation = shape->creator_incarnation;
	file->key_width = shape->key_width;
	file->schema_len = schema_len;
	file->id = shape->id;
	file->wal = shape->wal;
	file->schema_incarnation = schema_incarnation;
	file->flags = shape->maps ? KV_TABLE_MAPS : 0;
	file->tablespace = shape->tablespace;
	file->moved_lsn = shape->moved_lsn;
	file->nleaving = shape->nleaving;
	memcpy(file->leaving, shape->leaving, shape->nleaving * sizeof(Oid));
	memcpy(file + 1, schema, schema_len);
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

void
kv_table_file_create(const char *directory, const KvStoreKey *key, const KvStoreShape *shape)
{
	write_table(psprintf("%s/table", directory), key, shape, "", 0, 0);
}

/* Are these tablespaces possible? */
static bool
tablespaces_are_sound(const KvTableFile *file)
{
	return file->nleaving <= (file->moved_lsn != 0 ? KV_MAX_LEAVING : 0);
}

/* Is it the whole file of a store? */
static bool
is_sound(const KvTableFile *file, Size len)
{
	return len == sizeof(KvTableFile) + file->schema_len && file->crc == table_crc(file, len) &&
		file->head.shard >= 1 && file->head.shard <= KV_MAX_SHARDS && file->key_width <= 8 &&
		file->id != 0 && file->wal <= KV_WAL_FULL && (file->flags & ~KV_TABLE_MAPS) == 0 &&
		tablespaces_are_sound(file);
}

bool
kv_table_file_read(const KvStoreKey *key, KvStoreShape *shape, StringInfo schema,
				   uint32 *schema_incarnation)
{
	const char *path = kv_path_in_store(key, "table");
	Size		len;
	KvTableFile *file = (KvTableFile *) kv_io_slurp(path, &len);

	if (file == NULL)
		return false;
	if (len >= sizeof(KvFileHead) && file->head.magic == KV_MAGIC_TABLE)
		kv_format_require(path, file->head.format_version, KV_FORMAT_VERSION);
	if (len < sizeof(KvTableFile) || file->head.magic != KV_MAGIC_TABLE || !is_sound(file, len))
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
	shape->id = file->id;
	shape->maps = (file->flags & KV_TABLE_MAPS) != 0;
	shape->wal = (KvWalLevel) file->wal;
	shape->tablespace = file->tablespace;
	shape->moved_lsn = file->moved_lsn;
	shape->nleaving = file->nleaving;
	memcpy(shape->leaving, file->leaving, sizeof(shape->leaving));
	if (schema_incarnation)
		*schema_incarnation = file->schema_incarnation;
	if (schema)
		appendBinaryStringInfo(schema, (char *) (file + 1), file->schema_len);
	pfree(file);
	shape->unusable = access(kv_path_in_store(key, "unusable"), F_OK) == 0;
	return true;
}

bool
kv_table_file_peek(const KvStoreKey *key, KvWhere *where)
{
	KvTableFile file;
	int			got = kv_io_peek(kv_path_in_store(key, "table"), &file, sizeof(file));

	memset(where, 0, sizeof(*where));
	if (got == -ENOENT)
		return true;
	if (got < (int) sizeof(file) || file.head.magic != KV_MAGIC_TABLE ||
		file.head.format_version != KV_FORMAT_VERSION || !tablespaces_are_sound(&file))
		return false;
	where->logged = file.wal != KV_WAL_NONE;
	where->tablespace = file.tablespace;
	where->id = file.id;
	where->moved = file.moved_lsn != 0;
	where->nleaving = file.nleaving;
	memcpy(where->leaving, file.leaving, sizeof(where->leaving));
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
	sound = len >= sizeof(KvTableFile) && file->head.magic == KV_MAGIC_TABLE &&
		file->head.format_version == KV_FORMAT_VERSION && file->crc == table_crc(file, len);
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

/* The beginning of such a reason. */
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

	/* the file has no checksum; only these two are ever written */
	if (*sqlerrcode != ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE &&
		*sqlerrcode != ERRCODE_DATA_CORRUPTED)
	{
		*sqlerrcode = ERRCODE_DATA_CORRUPTED;
		return pstrdup("The reason is not known.");
	}
	*not_logged = strncmp(why + 6, NOT_LOGGED, strlen(NOT_LOGGED)) == 0;
	return why + 6;
}
