/*
 * mapfile.c
 *		Maps of shards: the file "map", with which a store was made, and those that came
 *		after it, each in a file of its own that never changes.
 */
#include "postgres.h"

#include <unistd.h>

#include "storage/fd.h"

#include "engine/base/crc.h"
#include "engine/base/key.h"
#include "engine/base/types.h"
#include "engine/format/format.h"
#include "engine/io/io.h"

#define KV_MAP_VERSION	2

/*
 * Version 1, the file "map": this, offsets as in KvMap, and keys.  Version 2, all others:
 * this, KvMapMore, and all of a KvMap behind its head.
 */
typedef struct KvMapFile
{
	KvFileHead	head;
	uint32		bytes;			/* of what is behind */
	uint32		crc;
} KvMapFile;

typedef struct KvMapMore
{
	uint32		number;
	uint32		next_shard_id;
} KvMapMore;

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

KvMap *
kv_map_make(uint32 number, uint32 nshards, const uint32 *shards, const uint32 *since,
			const KvKey *bounds)
{
	Size		bytes = offsetof(KvMap, data) + sizeof(uint32) * (3 * (Size) nshards + 1);
	KvMap	   *map;
	uint32	   *offsets;
	uint8	   *keys;
	uint32		at = 0;

	for (uint32 i = 1; i < nshards; i++)
		bytes += bounds[i].len;
	map = palloc0(bytes);
	map->number = number;
	map->nshards = nshards;
	map->bytes = bytes;
	offsets = map->data + 2 * nshards;
	keys = (uint8 *) (offsets + nshards + 1);
	for (uint32 i = 0; i < nshards; i++)
	{
		map->data[i] = shards != NULL ? shards[i] : i;
		map->data[nshards + i] = since != NULL ? since[i] : 0;
		map->next_shard_id = Max(map->next_shard_id, map->data[i] + 1);
		offsets[i] = at;
		if (i == 0)
			continue;			/* it begins before all keys */
		memcpy(keys + at, bounds[i].data, bounds[i].len);
		at += bounds[i].len;
	}
	offsets[nshards] = at;
	return map;
}

/* What the file has of a map, and how much. */
static const uint32 *
filed_part(const KvMap *map, uint32 *bytes)
{
	const uint32 *offsets = map->data + 2 * map->nshards;

	*bytes = map->bytes - ((const char *) offsets - (const char *) map);
	return offsets;
}

void
kv_map_file_begin(const char *path, const KvStoreKey *key, uint32 nshards, const KvKey *bounds)
{
	KvMap	   *map = kv_map_make(0, nshards, NULL, NULL, bounds);
	uint32		bytes;
	const uint32 *part = filed_part(map, &bytes);
	KvMapFile  *file = palloc0(sizeof(KvMapFile) + bytes);

	kv_head_make(&file->head, KV_MAGIC_MAP, KV_FORMAT_VERSION, key, nshards);
	file->bytes = bytes;
	memcpy(file + 1, part, bytes);
	file->crc = map_crc(file);
	kv_io_replace(path, file, sizeof(KvMapFile) + bytes, true);
	pfree(file);
	pfree(map);
}

/* Are the bounds behind each other, in the file and as keys? */
static bool
bounds_are_sound(const uint32 *offsets, uint32 nshards, uint32 size)
{
	const uint8 *bytes = (const uint8 *) (offsets + nshards + 1);
	uint64		fixed = sizeof(uint32) * ((uint64) nshards + 1);

	if (size < fixed || offsets[0] != 0 || offsets[nshards] != size - fixed)
		return false;
	for (uint32 i = 1; i <= nshards; i++)
	{
		if (offsets[i] < offsets[i - 1] || offsets[i] - offsets[i - 1] > KV_MAX_KEY)
			return false;
	}
	for (uint32 i = 1; i < nshards; i++)
	{
		if (kv_key_compare(bytes + offsets[i - 1], offsets[i] - offsets[i - 1],
						   bytes + offsets[i], offsets[i + 1] - offsets[i]) >= 0)
			return false;
	}
	return true;
}

KvMap *
kv_map_file_read(const KvStoreKey *key, int nshards)
{
	const char *path = kv_path_in_store(key, "map");
	Size		len;
	KvMapFile  *file = (KvMapFile *) kv_io_slurp(path, &len);
	KvMap	   *map;

	if (file == NULL || len < sizeof(KvMapFile) || file->head.magic != KV_MAGIC_MAP ||
		file->head.format_version != KV_FORMAT_VERSION ||
		len != sizeof(KvMapFile) + file->bytes || file->crc != map_crc(file) ||
		!kv_head_is_of(&file->head, key, nshards) ||
		!bounds_are_sound((const uint32 *) (file + 1), nshards, file->bytes))
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("file \"%s\" is %s", path, file == NULL ? "missing" : "damaged")));
	map = palloc0(offsetof(KvMap, data) + 2 * sizeof(uint32) * nshards + file->bytes);
	map->next_shard_id = map->nshards = nshards;
	map->bytes = offsetof(KvMap, data) + 2 * sizeof(uint32) * nshards + file->bytes;
	for (int i = 0; i < nshards; i++)
		map->data[i] = i;
	memcpy(map->data + 2 * nshards, file + 1, file->bytes);
	pfree(file);
	return map;
}

/* ---- maps after the first ---- */

/* Where a map lies until it is shown. */
static void
new_map_path(char *path, const KvStoreKey *key, uint32 number)
{
	snprintf(path, MAXPGPATH, "%s.tmp", kv_path_map(key, number));
}

void
kv_map_file_write(const KvStoreKey *key, const KvMap *map)
{
	char		path[MAXPGPATH];
	uint32		behind = map->bytes - offsetof(KvMap, data);
	Size		len = sizeof(KvMapFile) + sizeof(KvMapMore) + behind;
	KvMapFile  *file = palloc0(len);
	KvMapMore  *more = (KvMapMore *) (file + 1);

	kv_head_make(&file->head, KV_MAGIC_MAP, KV_MAP_VERSION, key, map->nshards);
	file->bytes = len - sizeof(KvMapFile);
	more->number = map->number;
	more->next_shard_id = map->next_shard_id;
	memcpy(more + 1, map->data, behind);
	file->crc = map_crc(file);
	new_map_path(path, key, map->number);
	kv_io_create_durable(&(KvIoNew) {path, file, len}, 1);
	pfree(file);
}

void
kv_map_file_show(const KvStoreKey *key, uint32 number)
{
	char		path[MAXPGPATH];
	int			err;

	new_map_path(path, key, number);
	err = kv_io_rename(path, kv_path_map(key, number));
	if (err != 0)
		kv_io_error(ERROR, err, path, "rename");
}

void
kv_map_file_remove(const KvStoreKey *key, uint32 number)
{
	char		path[MAXPGPATH];

	new_map_path(path, key, number);
	(void) kv_io_unlink(path);
	(void) kv_io_unlink(kv_path_map(key, number));
}

/* Has no shard two positions, or a number that none can have? */
static bool
numbers_are_sound(const uint32 *shards, uint32 nshards, uint32 next_shard_id)
{
	uint8      *there = palloc0(next_shard_id / 8 + 1);
	bool		sound = true;

	for (uint32 i = 0; i < nshards && sound; i++)
	{
		sound = shards[i] < next_shard_id && !(there[shards[i] / 8] & (1 << shards[i] % 8));
		if (sound)
			there[shards[i] / 8] |= 1 << shards[i] % 8;
	}
	pfree(there);
	return sound;
}

KvMap *
kv_map_file_load(const KvStoreKey *key, uint32 number)
{
	char	   *path = pstrdup(kv_path_map(key, number));
	Size		len;
	KvMapFile  *file = (KvMapFile *) kv_io_slurp(path, &len);
	const KvMapMore *more = (const KvMapMore *) (file + 1);
	KvMap	   *map;
	uint32		nshards;
	uint32		behind;

	if (file != NULL && len >= sizeof(KvFileHead) && file->head.magic == KV_MAGIC_MAP &&
		file->head.format_version > KV_MAP_VERSION)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("file \"%s\" has format version %u, this library reads versions 1 to %u",
						path, file->head.format_version, KV_MAP_VERSION)));
	nshards = file != NULL && len >= sizeof(KvMapFile) ? file->head.shard : 0;
	if (nshards < 1 || nshards > KV_SHARD_IDS || file->head.magic != KV_MAGIC_MAP ||
		file->head.format_version != KV_MAP_VERSION ||
		len != sizeof(KvMapFile) + file->bytes || file->crc != map_crc(file) ||
		!kv_head_is_of(&file->head, key, nshards) ||
		file->bytes < sizeof(KvMapMore) + 2 * sizeof(uint32) * (Size) nshards ||
		more->number != number || more->next_shard_id > KV_SHARD_IDS)
		nshards = 0;
	behind = nshards > 0 ? file->bytes - sizeof(KvMapMore) : 0;
	if (nshards == 0 ||
		!numbers_are_sound((const uint32 *) (more + 1), nshards, more->next_shard_id) ||
		!bounds_are_sound((const uint32 *) (more + 1) + 2 * nshards, nshards,
						  behind - 2 * sizeof(uint32) * nshards))
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("file \"%s\" is %s", path, file == NULL ? "missing" : "damaged")));
	map = palloc0(offsetof(KvMap, data) + behind);
	map->number = number;
	map->nshards = nshards;
	map->next_shard_id = more->next_shard_id;
	map->bytes = offsetof(KvMap, data) + behind;
	memcpy(map->data, more + 1, behind);
	pfree(file);
	pfree(path);
	return map;
}

uint32 *
kv_map_files(const KvStoreKey *key, int *n)
{
	char	   *directory = pstrdup(kv_path_store(key));
	DIR		   *dir = AllocateDir(directory);
	struct dirent *de;
	int			room = 8;
	uint32	   *numbers = palloc(room * sizeof(uint32));

	*n = 0;
	while ((de = ReadDir(dir, directory)) != NULL)
	{
		uint32		number;
		char		right[20];
		int			at;

		if (sscanf(de->d_name, "%8x.map", &number) != 1)
			continue;
		snprintf(right, sizeof(right), "%08x.map", number);
		if (strcmp(de->d_name, right) != 0)
			continue;
		if (*n == room)
			numbers = repalloc(numbers, (room *= 2) * sizeof(uint32));
		for (at = (*n)++; at > 0 && numbers[at - 1] < number; at--)
			numbers[at] = numbers[at - 1];
		numbers[at] = number;
	}
	FreeDir(dir);
	pfree(directory);
	return numbers;
}
