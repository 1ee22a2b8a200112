/*
 * imagefile.c
 *		Makes and reads the file of an image.
 */
#include "postgres.h"

#include "engine/base/hash.h"
#include "engine/base/types.h"
#include "engine/durable/durable.h"
#include "engine/format/format.h"
#include "engine/io/io.h"

/* This, the manifest, and KvImageEnd. */
typedef struct KvImageHead
{
	uint32		magic;
	uint32		format_version;
	uint32		last_log;
	uint32		pad;
	uint64		log_tail;
	uint64		covers;
	uint32		number;
	uint32		map_number;
} KvImageHead;

StaticAssertDecl(sizeof(KvImageHead) == 40, "image head size");

typedef struct KvImageEnd
{
	uint32		crc;			/* of all before it */
	uint32		pad;
} KvImageEnd;

char *
kv_image_bytes(const KvStoreKey *key, uint32 shard_id, const KvImage *image, Size *len)
{
	Size		manifest_len;
	char       *manifest = kv_manifest_bytes(key, shard_id, &image->manifest, &manifest_len);
	char	   *bytes;
	KvImageHead *head;
	KvImageEnd *end;

	*len = sizeof(KvImageHead) + manifest_len + sizeof(KvImageEnd);
	bytes = palloc0(*len);
	head = (KvImageHead *) bytes;
	end = (KvImageEnd *) (bytes + *len) - 1;
	head->magic = KV_MAGIC_IMAGE;
	head->format_version = KV_FORMAT_VERSION;
	head->last_log = image->last_log;
	head->log_tail = image->log_tail;
	head->covers = image->covers;
	head->number = image->number;
	head->map_number = image->map_number;
	memcpy(head + 1, manifest, manifest_len);
	pfree(manifest);
	end->crc = kv_crc(bytes, (char *) end - bytes);
	return bytes;
}

/* Is it the image of this shard? */
static bool
parse(const KvStoreKey *key, uint32 shard_id, const char *path, const char *bytes, Size len,
	  KvImage *image)
{
	const KvImageHead *head = (const KvImageHead *) bytes;
	const KvImageEnd *end = (const KvImageEnd *) (bytes + len) - 1;

	if (len < sizeof(KvImageHead) + sizeof(KvImageEnd) || len % 8 != 0 ||
		end->crc != kv_crc(bytes, (const char *) end - bytes) ||
		kv_manifest_parse(key, shard_id, path, (const char *) (head + 1),
						  (const char *) end - (const char *) (head + 1),
						  &image->manifest) != NULL)
		return false;
	image->last_log = head->last_log;
	image->number = head->number;
	image->map_number = head->map_number;
	image->log_tail = head->log_tail;
	image->covers = head->covers;
	return true;
}

bool
kv_image_read(const KvStoreKey *key, uint32 shard_id, uint32 number, int elevel,
		   KvImage *image)
{
	char       *path = pstrdup(kv_path_image(key, shard_id, number));
	Size		len;
	char	   *bytes = kv_io_slurp(path, &len);
	const KvImageHead *head = (const KvImageHead *) bytes;
	bool		sound;

	if (bytes == NULL)
		return false;
	sound = len >= sizeof(KvImageHead) && head->magic == KV_MAGIC_IMAGE;
	if (sound)
		kv_format_require(path, head->format_version, KV_FORMAT_VERSION);
	sound = sound && parse(key, shard_id, path, bytes, len, image) && image->number == number;
	pfree(bytes);
	if (!sound)
		ereport(elevel,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("file \"%s\" is damaged", path)));
	return sound;
}

bool
kv_image_read_newest(const KvStoreKey *key, uint32 shard_id, const KvFoundFile *files, int n,
			int elevel, KvImage *image)
{
	uint32		newest = 0;

	for (int i = 0; i < n; i++)
	{
		if (files[i].kind == KV_FILE_IMAGE)
			newest = Max(newest, files[i].number);
	}
	return newest != 0 && kv_image_read(key, shard_id, newest, elevel, image);
}
