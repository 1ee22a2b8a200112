/*
 * manifest.c
 *		A shard's manifest: which runs and logs it consists of.
 *
 * Replaced whole by a rename, so there is always one that holds.  Files that
 * the manifest does not name are left-overs of an unfinished freeze and are
 * swept when the store is next opened.
 */
#include "postgres.h"

#include "engine/internal.h"

static uint32
manifest_crc(const KvManifest *manifest)
{
	return kv_crc(manifest, offsetof(KvManifest, crc));
}

/* The caller fills what describes the shard; identity and CRC are set here. */
void
kv_manifest_write(const KvStoreKey *key, uint32 shardno, const KvManifest *manifest)
{
	KvManifest	image = *manifest;

	image.magic = KV_MAGIC_MANIFEST;
	image.format_version = KV_FORMAT_VERSION;
	image.system_identifier = kv_shared->system_identifier;
	image.dboid = key->dboid;
	image.relid = key->relid;
	image.generation = key->generation;
	image.shard = shardno;
	image.pad = image.pad2 = 0;
	image.crc = manifest_crc(&image);
	kv_io_replace(kv_path_manifest(key, shardno), &image, sizeof(image), false);
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
	if (manifest->magic == KV_MAGIC_MANIFEST &&
		manifest->format_version != KV_FORMAT_VERSION)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("manifest \"%s\" has format version %u, this library reads version %u",
						path, manifest->format_version, KV_FORMAT_VERSION)));
	if (manifest->magic != KV_MAGIC_MANIFEST || manifest->crc != manifest_crc(manifest) ||
		manifest->nunfrozen > KV_MAX_UNFROZEN)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("manifest \"%s\" is damaged", path)));
	if (manifest->system_identifier != kv_shared->system_identifier ||
		manifest->dboid != key->dboid || manifest->relid != key->relid ||
		manifest->generation != key->generation || manifest->shard != shardno)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("manifest \"%s\" belongs to another shard", path)));
	return true;
}
