/*
 * head.c
 *		The beginning of the files of a store, and the refusal of other format versions.
 */
#include "postgres.h"

#include "engine/base/shared.h"
#include "engine/format/format.h"

void
kv_format_require(const char *path, uint32 has, uint32 reads)
{
	if (has != reads)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("file \"%s\" has format version %u, but this library reads version %u",
						path, has, reads),
				 errhint("Use the version of kvfdw that wrote the file.")));
}

void
kv_head_make(KvFileHead *head, uint32 magic, const KvStoreKey *key, uint32 shard)
{
	head->magic = magic;
	head->format_version = KV_FORMAT_VERSION;
	head->directory_id = kv_directory_id();
	head->store = *key;
	head->shard = shard;
}

bool
kv_head_is_of(const KvFileHead *head, const KvStoreKey *key, uint32 shard)
{
	return head->directory_id == kv_directory_id() &&
		kv_same_store(&head->store, key) && head->shard == shard;
}
