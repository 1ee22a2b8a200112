/*
 * mapfile.c
 *		The file "map": the bounds with which a store was made.
 */
#include "postgres.h"

#include "engine/base/crc.h"
#include "engine/base/key.h"
#include "engine/base/types.h"
#include "engine/format/format.h"
#include "engine/io/io.h"

/* Version 1: this, offsets as in KvMap, and keys. */
typedef struct KvMapFile
{
	KvFileHead	head;
	uint32		bytes;			/* of offsets and keys behind */
	uint32		crc;
} KvMapFile;

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
kv_map_make(uint32 number, uint32 nshards, const uint32 *shards, const KvKey *bounds)
{
	Size		bytes = offsetof(KvMap, data) + sizeof(uint32) * (2 * (Size) nshards + 1);
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
	offsets = map->data + nshards;
	keys = (uint8 *) (offsets + nshards + 1);
	for (uint32 i = 0; i < nshards; i++)
	{
		map->data[i] = shards != NULL ? shards[i] : i;
		map->next_number = Max(map->next_number, map->data[i] + 1);
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
	const uint32 *offsets = map->data + map->nshards;

	*bytes = map->bytes - ((const char *) offsets - (const char *) map);
	return offsets;
}

void
kv_map_file_begin(const char *path, const KvStoreKey *key, uint32 nshards, const KvKey *bounds)
{
	KvMap	   *map = kv_map_make(0, nshards, NULL, bounds);
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
	map = palloc0(offsetof(KvMap, data) + sizeof(uint32) * nshards + file->bytes);
	map->next_number = map->nshards = nshards;
	map->bytes = offsetof(KvMap, data) + sizeof(uint32) * nshards + file->bytes;
	for (int i = 0; i < nshards; i++)
		map->data[i] = i;
	memcpy(map->data + nshards, file + 1, file->bytes);
	pfree(file);
	return map;
}
