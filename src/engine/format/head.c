/*
 * head.c
 *		How the files of a store begin.
 */
#include "postgres.h"

#include "engine/base/shared.h"
#include "engine/format/format.h"

void
kv_head_make(KvFileHead *head, uint32 magic, uint32 format_version, const KvStoreKey *key,
			 uint32 shard)
{
	head->magic = magic;
	head->format_version = format_version;
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
