/*
 * imaged.c
 *		Which shards of a store have an image: its file "imaged".
 *
 * So that an image which has gone is missed, the file has a bit for each shard that
 * has one.  It is made durable after a store's images and before the checkpoint that
 * waits for them goes on; in between the image itself is there.
 */
#include "postgres.h"

#include "engine/base/crc.h"
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
	uint32		nshards;
	uint32		crc;			/* of all above and the bits */
	uint8		bits[FLEXIBLE_ARRAY_MEMBER];
};

StaticAssertDecl(offsetof(KvImaged, bits) == 24, "imaged head size");

#define KV_IMAGED_SIZE(nshards)	(offsetof(KvImaged, bits) + ((nshards) + 7) / 8)

static uint32
imaged_crc(const KvImaged *imaged)
{
	pg_crc32c	crc;

	INIT_CRC32C(crc);
	COMP_CRC32C(crc, imaged, offsetof(KvImaged, crc));
	COMP_CRC32C(crc, imaged->bits, (imaged->nshards + 7) / 8);
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
	if (len != KV_IMAGED_SIZE(store->shape.nshards) || imaged->magic != KV_MAGIC_IMAGED ||
		imaged->format_version != KV_FORMAT_VERSION || imaged->id != store->shape.id ||
		imaged->nshards != store->shape.nshards || imaged->crc != imaged_crc(imaged))
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("file \"%s\" is damaged", path)));
	return imaged;
}

bool
kv_imaged_has(const KvImaged *imaged, uint32 shardno)
{
	return imaged != NULL && (imaged->bits[shardno / 8] >> (shardno % 8) & 1) != 0;
}

void
kv_imaged_write(KvStore *store)
{
	Size		size = KV_IMAGED_SIZE(store->shape.nshards);
	KvImaged   *imaged = palloc0(size);

	imaged->magic = KV_MAGIC_IMAGED;
	imaged->format_version = KV_FORMAT_VERSION;
	imaged->id = store->shape.id;
	imaged->nshards = store->shape.nshards;
	for (uint32 i = 0; i < store->shape.nshards; i++)
	{
		if (kv_shard(store, i)->image_number > 0)
			imaged->bits[i / 8] |= 1 << (i % 8);
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
