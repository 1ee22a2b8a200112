/*
 * map.c
 *		Which shard has a key, and which comes next in the order of keys.
 */
#include "postgres.h"

#include "engine/base/area.h"
#include "engine/base/key.h"
#include "engine/shard/shard.h"

KvKey
kv_shard_bound(const KvStore *store, uint32 shardno)
{
	const uint32 *offsets = kv_address(store->bounds);
	const uint8 *bytes = (const uint8 *) (offsets + store->shape.nshards + 1);
	KvKey		bound;

	bound.data = bytes + offsets[shardno];
	bound.len = offsets[shardno + 1] - offsets[shardno];
	return bound;
}

uint32
kv_shard_for(const KvStore *store, const uint8 *key, int keylen)
{
	uint32		low = 0;
	uint32		high = store->shape.nshards;

	while (high - low > 1)
	{
		uint32		middle = (low + high) / 2;
		KvKey		bound = kv_shard_bound(store, middle);

		if (kv_key_compare(bound.data, bound.len, key, keylen) <= 0)
			low = middle;
		else
			high = middle;
	}
	return low;
}

uint32
kv_shard_first(const KvStore *store)
{
	return 0;
}

uint32
kv_shard_last(const KvStore *store)
{
	return store->shape.nshards - 1;
}

uint32
kv_shard_next(const KvStore *store, uint32 shardno, int direction)
{
	return kv_shard_step(store->shape.nshards, shardno, direction);
}
