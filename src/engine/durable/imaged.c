/*
 * imaged.c
 *		Records which shards of a store have an image: the store's file "imaged".
 *
 * The file has a bit for each shard that has an image, so that a missing image is noticed.  It
 * is made durable after a store's images and before the checkpoint that waits for them
 * continues; in between the image itself exists.
 */
#include "postgres.h"

#include "engine/base/hash.h"
#include "engine/base/types.h"
#include "engine/durable/durable.h"
#include "engine/format/format.h"
#include "engine/io/io.h"
#include "engine/shard/shard.h"

#define KV_MAGIC_IMAGED	0x4b564944	/* "KVID" */

struct KvImaged
{
	uint32		magic;
	uint32		format_version;
	uint64		id;				/* the store's */
	uint32		nshards;		/* number of bits: shards have lower ids */
	uint32		map_number;		/* of the map that has these shards */
	uint32		pad;
	uint32		crc;			/* of all fields before it and after it */
	uint8		bits[FLEXIBLE_ARRAY_MEMBER];
};

StaticAssertDecl(offsetof(KvImaged, bits) == 32, "imaged head size");

static Size
imaged_size(const KvImaged *imaged)
{
	return offsetof(KvImaged, bits) + ((Size) imaged->nshards + 7) / 8;
}

static uint32
imaged_crc(const KvImaged *imaged)
{
	pg_crc32c	crc;

	INIT_CRC32C(crc);
	COMP_CRC32C(crc, imaged, offsetof(KvImaged, crc));
	COMP_CRC32C(crc, imaged->bits, imaged_size(imaged) - offsetof(KvImaged, bits));
	FIN_CRC32C(crc);
	return crc;
}

KvImaged *
kv_imaged_read(const KvStore *store)
{
	const char *path = kv_path_in_store(&store->key, "imaged");
	Size		len;
	KvImaged   *imaged = (KvImaged *) kv_io_slurp(path, &len);
	bool		sound;

	if (imaged == NULL)
		return NULL;
	sound = len >= offsetof(KvImaged, bits) && imaged->magic == KV_MAGIC_IMAGED;
	if (sound)
		kv_format_require(path, imaged->format_version, KV_FORMAT_VERSION);
	if (!sound || len != imaged_size(imaged) || imaged->id != store->shape.id ||
		imaged->nshards < store->shape.nshards || imaged->crc != imaged_crc(imaged))
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("file \"%s\" is damaged", path)));
	return imaged;
}

bool
kv_imaged_has(const KvImaged *imaged, uint32 shard_id)
{
	if (imaged == NULL || shard_id >= imaged->nshards)
		return false;
	return (imaged->bits[shard_id / 8] >> (shard_id % 8) & 1) != 0;
}

uint32
kv_imaged_map(const KvImaged *imaged)
{
	return imaged == NULL ? 0 : imaged->map_number;
}

void
kv_imaged_write(KvStore *store, uint32 number)
{
	KvImaged	head = {
		.magic = KV_MAGIC_IMAGED,
		.format_version = KV_FORMAT_VERSION,
		.id = store->shape.id,
		.nshards = Max(pg_atomic_read_u32(&store->map.shard_ids), store->shape.nshards),
		.map_number = number
	};
	Size		size = imaged_size(&head);
	KvImaged   *imaged = palloc0(size);

	memcpy(imaged, &head, offsetof(KvImaged, bits));
	kv_each_shard(store, i)
	{
		/* shards of a newer map need not be recorded */
		if (i < head.nshards && kv_shard(store, i)->durable.number > 0)
			imaged->bits[i / 8] |= 1 << (i % 8);
	}
	imaged->crc = imaged_crc(imaged);
	kv_io_replace(kv_path_in_store(&store->key, "imaged"), imaged, size, true);
	store->images.stale = false;
	pfree(imaged);
}

void
kv_imaged_forget(const KvStoreKey *key)
{
	(void) kv_io_unlink(kv_path_in_store(key, "imaged"));
}
