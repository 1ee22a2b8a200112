/*
 * path.c
 *		The names of a store's files and directories (path.h), and how its files begin (format.h).
 *
 *  kvfdw/<database>/<relation>/<generation>/…
 *  pg_tblspc/<tablespace>/<version>/kvfdw.<database>.<relation>.<generation>.<id>.<server>/…
 *
 * Only this file makes such paths, except for those of value files, which where.c has to
 * search.
 */
#include "postgres.h"

#include "common/relpath.h"

#include "engine/base/shared.h"
#include "engine/base/types.h"
#include "engine/format/format.h"
#include "engine/format/path.h"
#include "engine/io/name.h"

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

#define KV_NAME_IN_SPACE	"kvfdw.%u.%u.%08x.%016llx.%016llx"

const char *
kv_path_in_space(const KvStoreKey *key, uint64 id, Oid tablespace)
{
	static char path[MAXPGPATH];

	kv_space_print(path, key, id, tablespace, kv_server_id());
	return path;
}

void
kv_space_print(char *path, const KvStoreKey *key, uint64 id, Oid tablespace, uint64 server)
{
	snprintf(path, MAXPGPATH, "%s/" KV_NAME_IN_SPACE, kv_path_space(tablespace), key->dboid,
			 key->relid, key->generation, (unsigned long long) id, (unsigned long long) server);
}

bool
kv_space_parse_any(const char *name, KvStoreKey *key, uint64 *id, uint64 *server)
{
	unsigned long long number;
	unsigned long long owner;
	char		right[MAXPGPATH];

	if (sscanf(name, "kvfdw.%u.%u.%8x.%16llx.%16llx", &key->dboid, &key->relid, &key->generation,
			   &number, &owner) != 5)
		return false;
	snprintf(right, sizeof(right), KV_NAME_IN_SPACE, key->dboid, key->relid, key->generation,
			 number, owner);
	*id = number;
	*server = owner;
	return strcmp(name, right) == 0;
}

bool
kv_space_parse(const char *name, KvStoreKey *key, uint64 *id)
{
	uint64		server;

	return kv_space_parse_any(name, key, id, &server) && server == kv_server_id();
}

/* ---- the beginning of files, and other format versions ---- */

void
kv_format_require(const char *path, uint32 has, uint32 reads)
{
	if (has != reads)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("file \"%s\" has format version %u, but this library reads version %u",
						path, has, reads),
				 errhint("Use the version of kvfdw that wrote the file.")));
}

void
kv_head_make(KvFileHead *head, uint32 magic, const KvStoreKey *key, uint32 shard)
{
	head->magic = magic;
	head->format_version = KV_FORMAT_VERSION;
	head->directory_id = kv_directory_id();
	head->store = *key;
	head->shard = shard;
}

bool
kv_head_is_of(const KvFileHead *head, const KvStoreKey *key, uint32 shard)
{
	return head->directory_id == kv_directory_id() &&
		kv_same_store(&head->store, key) && head->shard == shard;
}
