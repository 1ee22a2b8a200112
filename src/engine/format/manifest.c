/*
 * manifest.c
 *		A shard's manifest: its runs, logs and value files.
 *
 * The manifest is replaced as a whole by a rename, so there is always a valid one.  Files that
 * it does not name are left-overs of an unfinished flush and are removed when the store is next
 * opened.  But key logs may name value files that it does not list yet (lifecycle/recover.c).
 */
#include "postgres.h"

#include "engine/base/hash.h"
#include "engine/base/types.h"
#include "engine/format/format.h"
#include "engine/io/io.h"

typedef struct KvManifestHead
{
	KvFileHead	head;
	KvShardFiles files;
	uint64		next_address;
	uint64		open_address;
	uint32		job;
	uint32		nvalue_files;
	uint64		spare[4];
	/* followed by the value files, and KvManifestEnd */
} KvManifestHead;

StaticAssertDecl(sizeof(KvManifestHead) == 184, "manifest head size");

typedef struct KvManifestEnd
{
	uint32		crc;
	uint32		pad;
} KvManifestEnd;

static Size
size_with(uint64 nvalue_files)
{
	return sizeof(KvManifestHead) + nvalue_files * sizeof(KvValueFile) + sizeof(KvManifestEnd);
}

char *
kv_manifest_bytes(const KvStoreKey *key, uint32 shard_id, const KvManifest *manifest, Size *len)
{
	int			nunfrozen = manifest->files.nunfrozen;
	char       *bytes = palloc0(size_with(manifest->nvalue_files));
	KvManifestHead *head = (KvManifestHead *) bytes;
	KvValueFile *value_files = (KvValueFile *) (head + 1);
	KvManifestEnd *end = (KvManifestEnd *) (value_files + manifest->nvalue_files);

	kv_head_make(&head->head, KV_MAGIC_MANIFEST, key, shard_id);
	head->files = manifest->files;
	memset(&head->files.unfrozen[nunfrozen], 0, (KV_MAX_UNFROZEN - nunfrozen) * sizeof(uint32));
	head->next_address = manifest->next_address;
	head->open_address = manifest->open_address;
	head->job = manifest->job;
	head->nvalue_files = manifest->nvalue_files;
	for (int i = 0; i < manifest->nvalue_files; i++)
	{
		value_files[i] = manifest->value_files[i];
		value_files[i].flags &= KV_VALUE_FILE_ON_DISK;
	}
	end->crc = kv_crc(bytes, (char *) end - bytes);
	*len = size_with(manifest->nvalue_files);
	return bytes;
}

void
kv_manifest_write(const KvStoreKey *key, uint32 shard_id, const KvManifest *manifest)
{
	Size		len;
	char       *bytes = kv_manifest_bytes(key, shard_id, manifest, &len);

	kv_io_replace(kv_path_manifest(key, shard_id), bytes, len, false);
	pfree(bytes);
}

/* Is the list valid: in order, and each value file once and with possible fields? */
static bool
value_files_are_sound(const KvValueFile *value_files, uint32 n)
{
	for (uint32 i = 0; i < n; i++)
	{
		KvFileId	file = kv_file_of(value_files[i].address);

		if (!kv_address_is_possible(value_files[i].address) ||
			file.address != value_files[i].address || value_files[i].used > kv_file_span(file) ||
			(i > 0 && value_files[i].address <= value_files[i - 1].address))
			return false;
	}
	return true;
}

static bool
parse(const KvManifestHead *head, Size len, KvManifest *manifest)
{
	const KvValueFile *value_files = (const KvValueFile *) (head + 1);
	const KvManifestEnd *end;

	if (len < sizeof(KvManifestHead) || len != size_with(head->nvalue_files))
		return false;
	end = (const KvManifestEnd *) (value_files + head->nvalue_files);
	if (end->crc != kv_crc(head, (const char *) end - (const char *) head) ||
		head->files.nunfrozen > KV_MAX_UNFROZEN ||
		(head->next_address != 0 && !kv_address_is_possible(head->next_address)) ||
		!value_files_are_sound(value_files, head->nvalue_files))
		return false;
	manifest->files = head->files;
	manifest->job = head->job;
	manifest->next_address = head->next_address;
	manifest->open_address = head->open_address;
	manifest->nvalue_files = head->nvalue_files;
	manifest->value_files = palloc(Max(head->nvalue_files, 1) * sizeof(KvValueFile));
	memcpy(manifest->value_files, value_files, head->nvalue_files * sizeof(KvValueFile));
	return true;
}

const char *
kv_manifest_parse(const KvStoreKey *key, uint32 shard_id, const char *path, const char *bytes,
				  Size len, KvManifest *manifest)
{
	const KvFileHead *head = (const KvFileHead *) bytes;

	memset(manifest, 0, sizeof(*manifest));
	if (len < sizeof(KvFileHead) || head->magic != KV_MAGIC_MANIFEST)
		return "is damaged";
	kv_format_require(path, head->format_version, KV_FORMAT_VERSION);
	if (!parse((const KvManifestHead *) bytes, len, manifest))
		return "is damaged";
	return kv_head_is_of(head, key, shard_id) ? NULL : "belongs to another shard";
}

bool
kv_manifest_read(const KvStoreKey *key, uint32 shard_id, KvManifest *manifest)
{
	const char *path = kv_path_manifest(key, shard_id);
	const char *problem;
	Size		len;
	char	   *bytes = kv_io_slurp(path, &len);

	if (bytes == NULL)
		return false;
	problem = kv_manifest_parse(key, shard_id, path, bytes, len, manifest);
	if (problem != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("manifest \"%s\" %s", path, problem)));
	pfree(bytes);
	return true;
}
