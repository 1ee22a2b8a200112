/*
 * manifest.c
 *		A shard's manifest: which runs and logs it consists of.
 *
 * Replaced whole by a rename, so there is always one that holds.  Files that
 * the manifest does not name are left-overs of an unfinished freeze and are
 * swept when the store is next opened.
 */
#include "postgres.h"

#include "engine/base/crc.h"
#include "engine/base/types.h"
#include "engine/format/format.h"
#include "engine/io/io.h"

static uint32
manifest_crc(const KvManifest *manifest)
{
	return kv_crc(manifest, offsetof(KvManifest, crc));
}

void
kv_manifest_seal(const KvStoreKey *key, uint32 shardno, KvManifest *manifest)
{
	kv_head_make(&manifest->head, KV_MAGIC_MANIFEST, KV_FORMAT_VERSION, key, shardno);
	manifest->crc = manifest_crc(manifest);
}

void
kv_manifest_write(const KvStoreKey *key, uint32 shardno, KvManifest *manifest)
{
	kv_manifest_seal(key, shardno, manifest);
	kv_io_replace(kv_path_manifest(key, shardno), manifest, sizeof(*manifest), false);
}

bool
kv_manifest_is_of(const KvStoreKey *key, uint32 shardno, const KvManifest *manifest)
{
	return manifest->head.magic == KV_MAGIC_MANIFEST &&
		manifest->head.format_version == KV_FORMAT_VERSION &&
		manifest->crc == manifest_crc(manifest) &&
		manifest->files.nunfrozen <= KV_MAX_UNFROZEN &&
		kv_head_is_of(&manifest->head, key, shardno);
}

/* False if the shard has none yet.  ERROR if it is damaged or another's. */
bool
kv_manifest_read(const KvStoreKey *key, uint32 shardno, KvManifest *manifest)
{
	const char *path = kv_path_manifest(key, shardno);
	Size		len;
	char	   *image = kv_io_slurp(path, &len);

	if (image == NULL)
		return false;
	if (len != sizeof(KvManifest))
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("manifest \"%s\" has %zu bytes instead of %zu",
						path, len, sizeof(KvManifest))));
	memcpy(manifest, image, sizeof(KvManifest));
	pfree(image);
	if (manifest->head.magic == KV_MAGIC_MANIFEST &&
		manifest->head.format_version != KV_FORMAT_VERSION)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("manifest \"%s\" has format version %u, this library reads version %u",
						path, manifest->head.format_version, KV_FORMAT_VERSION)));
	if (manifest->head.magic != KV_MAGIC_MANIFEST || manifest->crc != manifest_crc(manifest) ||
		manifest->files.nunfrozen > KV_MAX_UNFROZEN)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("manifest \"%s\" is damaged", path)));
	if (!kv_head_is_of(&manifest->head, key, shardno))
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("manifest \"%s\" belongs to another shard", path)));
	return true;
}
