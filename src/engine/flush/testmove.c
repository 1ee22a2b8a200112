/*
 * testmove.c
 *		In test builds: with kvfdw.test_compact merges of all runs move every value that lies
 *		in a chunk which may be emptied, one by one, to the open chunk.
 *
 * So whatever the tests and campaigns do is done while places change and chunks go.
 */
#include "postgres.h"

#include "engine/base/types.h"
#include "engine/flush/internal.h"
#include "engine/io/io.h"
#include "engine/shard/shard.h"
#include "engine/slot/slot.h"
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
	for (int i = 0; i < shard->nchunks; i++)
	{
		KvShardChunk *chunk = &kv_chunks(shard)[i];

		if (!kv_chunk_is_open(shard, chunk) && chunk->newest_writer < horizon &&
			chunk->chunk.last_log <= immutable_log)
			chunk->chunk.flags |= KV_CHUNK_INPUT;
	}
	LWLockRelease(&shard->lock);
}

void
kv_test_move(KvStore *store, uint32 shardno, KvKey key, KvVersion *version)
{
	KvShard    *shard = kv_shard(store, shardno);
	KvAddress	address = KV_LOCATION_ADDRESS(version->location);
	KvShardChunk *chunk;
	KvLocation	location;
	bool		input;
	char	   *value;
	int			err;

	if (!kv_test_compact || version->len == 0)
		return;
	LWLockAcquire(&shard->lock, LW_SHARED);
	chunk = kv_chunk_find(shard, address);
	input = chunk != NULL && (chunk->chunk.flags & KV_CHUNK_INPUT);
	LWLockRelease(&shard->lock);
	if (!input || kv_value_problem(&store->key, store->cache_id, key, version, &err) != NULL)
		return;
	value = palloc(version->len);
	memcpy(value, kv_io_buffer(KV_BUFFER_CHECK, KV_BLOCK) + address % KV_BLOCK, version->len);
	if (kv_value_write_extent(store, shardno, KV_LOCATION_FORM(version->location), value,
							  version->len, 0, &location))
	{
		version->location = location;
		version->crc = kv_value_crc_finish(kv_value_crc_begin(&store->key, key, value, version->len),
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
	for (int i = 0; i < shard->nchunks; i++)
		kv_chunks(shard)[i].chunk.flags &= ~KV_CHUNK_INPUT;
	LWLockRelease(&shard->lock);
}

#endif
