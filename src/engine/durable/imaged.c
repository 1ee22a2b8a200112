/*
 * imaged.c
 *		Records which shards of a store have an image: the store's file "imaged".
 *
 * The file has a bit for each shard that has an image, so that a missing image is noticed.  It
 * is made durable after a store's images and before the checkpoint that waits for them
 * continues; in between the image itself exists.
 */
#include "postgres.h"

#include "engine/base/crc.h"
#include "engine/base/types.h"
#include "engine/durable/durable.h"
#include "engine/format/format.h"
#include "engine/io/io.h"
#include "engine/shard/shard.h"

#define KV_MAGIC_IMAGED	0x4b564944	/* "KVID" */

#define KV_IMAGED_VERSION	2		/* 1: of a store that has its first map */

struct KvImaged
{
	uint32		magic;
	uint32		format_version;
	uint64		id;				/* the store's */
	uint32		nshards;		/* number of bits: shards have lower ids */
	uint32		crc;			/* of all fields before it and after it */
	uint8		bits[FLEXIBLE_ARRAY_MEMBER];	/* in version 2 preceded by the map's number */
};

StaticAssertDecl(offsetof(KvImaged, bits) == 24, "imaged head size");

/* Where the bits begin, after the head. */
static Size
bits_at(uint32 format_version)
{
	return format_version == 1 ? 0 : sizeof(uint32);
}

static Size
imaged_size(const KvImaged *imaged)
{
	return offsetof(KvImaged, bits) + bits_at(imaged->format_version) +
		((Size) imaged->nshards + 7) / 8;
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

	if (imaged == NULL)
		return NULL;
	if (len < offsetof(KvImaged, bits) || imaged->magic != KV_MAGIC_IMAGED ||
		imaged->format_version < 1 || imaged->format_version > KV_IMAGED_VERSION ||
		len != imaged_size(imaged) || imaged->id != store->shape.id ||
		imaged->nshards < store->shape.nshards || imaged->crc != imaged_crc(imaged))
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("file \"%s\" is damaged", path)));
	return imaged;
}

bool
kv_imaged_has(const KvImaged *imaged, uint32 shard_id)
{
	const uint8 *bits;

	if (imaged == NULL || shard_id >= imaged->nshards)
		return false;
	bits = imaged->bits + bits_at(imaged->format_version);
	return (bits[shard_id / 8] >> (shard_id % 8) & 1) != 0;
}

uint32
kv_imaged_map(const KvImaged *imaged)
{
	uint32		number = 0;

	if (imaged != NULL && imaged->format_version > 1)
		memcpy(&number, imaged->bits, sizeof(number));
	return number;
}

void
kv_imaged_write(KvStore *store, uint32 number)
{
	bool		maps = store->shape.maps;
	KvImaged	head = {
		.magic = KV_MAGIC_IMAGED,
		.format_version = maps ? KV_IMAGED_VERSION : 1,
		.id = store->shape.id,
		.nshards = maps ? pg_atomic_read_u32(&store->shard_ids) : store->shape.nshards
	};
	Size		size;
	KvImaged   *imaged;
	uint8	   *bits;

	head.nshards = Max(head.nshards, store->shape.nshards);
	size = imaged_size(&head);
	imaged = palloc0(size);
	memcpy(imaged, &head, offsetof(KvImaged, bits));
	if (maps)
		memcpy(imaged->bits, &number, sizeof(number));
	bits = imaged->bits + bits_at(imaged->format_version);
	kv_each_shard(store, i)
	{
		/* shards of a newer map need not be recorded */
		if (i < head.nshards && kv_shard(store, i)->image_number > 0)
			bits[i / 8] |= 1 << (i % 8);
	}
	imaged->crc = imaged_crc(imaged);
	kv_io_replace(kv_path_in_store(&store->key, "imaged"), imaged, size, true);
	store->imaged_stale = false;
	pfree(imaged);
}

void
kv_imaged_forget(const KvStoreKey *key)
{
	(void) kv_io_unlink(kv_path_in_store(key, "imaged"));
}
