/*
 * mapfile.c
 *		Maps of shards: the file "map", with which a store was created, and later maps, each in
 *		a file of its own that never changes.
 */
#include "postgres.h"

#include <unistd.h>

#include "storage/fd.h"

#include "engine/base/hash.h"
#include "engine/base/key.h"
#include "engine/base/types.h"
#include "engine/format/format.h"
#include "engine/io/io.h"

/* The beginning of a map's file, which is followed by all of a KvMap after its head. */
typedef struct KvMapFile
{
	KvFileHead	head;
	uint32		bytes;			/* bytes that follow */
	uint32		crc;			/* of all other bytes */
	uint32		number;
	uint32		next_shard_id;
} KvMapFile;

StaticAssertDecl(sizeof(KvMapFile) == 48, "map file head size");

static uint32
map_crc(const KvMapFile *file)
{
	pg_crc32c	crc;

	INIT_CRC32C(crc);
	COMP_CRC32C(crc, file, offsetof(KvMapFile, crc));
	COMP_CRC32C(crc, &file->number, sizeof(KvMapFile) - offsetof(KvMapFile, number));
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
			continue;			/* the first shard begins before all keys */
		memcpy(keys + at, bounds[i].data, bounds[i].len);
		at += bounds[i].len;
	}
	offsets[nshards] = at;
	return map;
}

/* The file of a map, palloc'd. */
static KvMapFile *
make_file(const KvStoreKey *key, const KvMap *map, Size *len)
{
	uint32		bytes = map->bytes - offsetof(KvMap, data);
	KvMapFile  *file = palloc0(sizeof(KvMapFile) + bytes);

	kv_head_make(&file->head, KV_MAGIC_MAP, key, map->nshards);
	file->bytes = bytes;
	file->number = map->number;
	file->next_shard_id = map->next_shard_id;
	memcpy(file + 1, map->data, bytes);
	file->crc = map_crc(file);
	*len = sizeof(KvMapFile) + bytes;
	return file;
}

void
kv_map_file_begin(const char *path, const KvStoreKey *key, uint32 nshards, const KvKey *bounds)
{
	KvMap	   *map = kv_map_make(0, nshards, NULL, NULL, bounds);
	Size		len;
	KvMapFile  *file = make_file(key, map, &len);

	kv_io_replace(path, file, len, true);
	pfree(file);
	pfree(map);
}

/* Are the bounds ascending, in the file and as keys? */
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

/* ---- maps after the first ---- */

/* The path of a map until it is shown. */
static void
new_map_path(char *path, const KvStoreKey *key, uint32 number)
{
	snprintf(path, MAXPGPATH, "%s.tmp", kv_path_map(key, number));
}

void
kv_map_file_write(const KvStoreKey *key, const KvMap *map)
{
	char		path[MAXPGPATH];
	Size		len;
	KvMapFile  *file = make_file(key, map, &len);

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

/* Is each id valid, and used only once? */
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

/* Is it the whole file of a map with this number, of this store? */
static bool
file_is_sound(const KvMapFile *file, Size len, const KvStoreKey *key, uint32 number)
{
	uint32		nshards = file->head.shard;
	Size		ids = 2 * sizeof(uint32) * (Size) nshards;
	const uint32 *shards = (const uint32 *) (file + 1);

	return len == sizeof(KvMapFile) + file->bytes && file->crc == map_crc(file) &&
		kv_head_is_of(&file->head, key, nshards) &&
		nshards >= 1 && nshards <= KV_SHARD_IDS && file->bytes >= ids &&
		file->number == number && file->next_shard_id <= KV_SHARD_IDS &&
		numbers_are_sound(shards, nshards, file->next_shard_id) &&
		bounds_are_sound(shards + 2 * nshards, nshards, file->bytes - ids);
}

/* The map that the file of this path has, palloc'd. */
static KvMap *
load(const KvStoreKey *key, uint32 number, const char *path)
{
	Size		len;
	KvMapFile  *file = (KvMapFile *) kv_io_slurp(path, &len);
	KvMap	   *map;
	bool		sound;

	if (file == NULL)
		kv_io_raise_missing(path);
	sound = len >= sizeof(KvMapFile) && file->head.magic == KV_MAGIC_MAP;
	if (sound)
		kv_format_require(path, file->head.format_version, KV_FORMAT_VERSION);
	if (!sound || !file_is_sound(file, len, key, number))
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("file \"%s\" is damaged", path)));
	map = palloc0(offsetof(KvMap, data) + file->bytes);
	map->number = number;
	map->nshards = file->head.shard;
	map->next_shard_id = file->next_shard_id;
	map->bytes = offsetof(KvMap, data) + file->bytes;
	memcpy(map->data, file + 1, file->bytes);
	pfree(file);
	return map;
}

KvMap *
kv_map_file_read(const KvStoreKey *key, int nshards)
{
	char	   *path = pstrdup(kv_path_in_store(key, "map"));
	KvMap	   *map = load(key, 0, path);

	if (map->nshards != nshards)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("file \"%s\" is damaged", path),
				 errdetail("It has %u shards, the table file has %d.", map->nshards, nshards)));
	pfree(path);
	return map;
}

KvMap *
kv_map_file_load(const KvStoreKey *key, uint32 number)
{
	char	   *path = pstrdup(kv_path_map(key, number));
	KvMap	   *map = load(key, number, path);

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
