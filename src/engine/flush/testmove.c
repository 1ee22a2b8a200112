/*
 * testmove.c
 *		In test builds: with kvfdw.test_compact a merge of all runs moves every value that is
 *		in a removable value file, one by one, to the open value file.
 *
 * So all tests and campaigns can run while addresses change and value files are removed.
 */
#include "postgres.h"

#include "engine/base/types.h"
#include "engine/buffer/largevalue.h"
#include "engine/flush/internal.h"
#include "engine/format/format.h"
#include "engine/io/io.h"
#include "engine/shard/shard.h"
#include "engine/buffer/buffer.h"
#include "engine/shard/valuefiles.h"
#include "engine/value/value.h"
#include "engine/xact/xact.h"

#ifdef KVFDW_FAULTS

bool		kv_test_compact = false;

void
kv_test_choose(KvShard *shard, uint32 immutable_log)
{
	uint64		horizon = kv_xid_horizon();

	if (!kv_test_compact)
		return;
	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	for (int i = 0; i < shard->values.n; i++)
	{
		KvShardValueFile *value_file = &kv_value_files(shard)[i];

		if (!kv_value_file_is_open(shard, value_file) && value_file->newest_writer < horizon &&
			value_file->value_file.last_log <= immutable_log)
			value_file->value_file.flags |= KV_VALUE_FILE_INPUT;
	}
	LWLockRelease(&shard->lock);
}

void
kv_test_move(KvStore *store, uint32 shard_id, KvKey key, KvVersion *version)
{
	KvShard    *shard = kv_shard(store, shard_id);
	KvAddress	address = KV_LOCATION_ADDRESS(version->location);
	KvShardValueFile *value_file;
	KvLocation	location;
	bool		input;
	char	   *value;
	int			err;

	if (!kv_test_compact || version->len == 0)
		return;
	LWLockAcquire(&shard->lock, LW_SHARED);
	value_file = kv_value_file_find(shard, address);
	input = value_file != NULL && (value_file->value_file.flags & KV_VALUE_FILE_INPUT);
	LWLockRelease(&shard->lock);
	if (!input || kv_value_problem(&store->key, store->cache_id, key, version, &err) != NULL)
		return;
	value = palloc(version->len);
	memcpy(value, kv_io_buffer(KV_IO_BUFFER_CHECK, KV_BLOCK) + address % KV_BLOCK, version->len);
	if (kv_value_write_large(store, shard_id, KV_LOCATION_FORM(version->location), value,
							 version->len, 0, &location))
	{
		version->location = location;
		version->crc = kv_value_crc_finish(kv_value_crc_begin(&store->key, key, value,
															  version->len),
										   location, version->len);
	}
	pfree(value);
}

void
kv_test_chosen(KvShard *shard)
{
	if (!kv_test_compact)
		return;
	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	for (int i = 0; i < shard->values.n; i++)
		kv_value_files(shard)[i].value_file.flags &= ~KV_VALUE_FILE_INPUT;
	LWLockRelease(&shard->lock);
}

#endif
