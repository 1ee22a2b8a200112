/*
 * extent.c
 *		Space in value files, and values that no merge slot can hold.
 *
 * Space is allocated ahead, in steps that grow with the file, under the shard's
 * extend_lock; nothing is written twice for it.  Values larger than a merge slot are
 * written here as extents of their own, before any index entry names them (I 3).
 */
#include "postgres.h"

#include "miscadmin.h"

#include "engine/base/types.h"
#include "engine/format/format.h"
#include "engine/io/io.h"
#include "engine/shard/shard.h"
#include "engine/slot/slot.h"
#include "engine/value/value.h"

#define KV_EXTEND_MIN	((uint64) 16 * 1024)
#define KV_EXTEND_MAX	((uint64) 64 * 1024 * 1024)
#define KV_EXTENT_CHUNK	((Size) 1024 * 1024)

/*
 * Make sure that need bytes from the shard's value_tail on are allocated.  No
 * lock held on entry.  ERROR if the disk is full; nothing is left behind then.
 */
void
kv_value_extend(KvStore *store, uint32 shardno, Size need)
{
	KvShard    *shard = kv_shard(store, shardno);

	LWLockAcquire(&shard->extend_lock, LW_EXCLUSIVE);
	for (;;)
	{
		uint64		tail;
		uint64		allocated;
		uint64		step;
		uint64		size;
		KvFileNo	number;
		uint32		log;
		File		file;
		int			err;

		LWLockAcquire(&shard->lock, LW_SHARED);
		tail = shard->files.value_tail;
		allocated = shard->value_allocated;
		number = shard->files.value_file;
		log = shard->files.first_log;
		LWLockRelease(&shard->lock);

		if (tail + need <= allocated)
			break;
		if (allocated == 0)
			kv_log_create(&store->key, shardno, log);
		step = Max(KV_EXTEND_MIN, Min(KV_EXTEND_MAX, allocated / 4));
		size = TYPEALIGN(KV_BLOCK, Max(tail + need, allocated + step));
		if (size > KV_LOCATION_OFFSET(~UINT64CONST(0)))
			ereport(ERROR,
					(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
					 errmsg("value file of shard %u has reached its largest size", shardno)));
		file = kv_value_file(&store->key, store->cache_id, number, true);
		err = kv_io_try_extend(file, allocated, size);
		if (err == ENOSPC && size > TYPEALIGN(KV_BLOCK, tail + need))
		{
			/* no room for a whole step: take just what is needed */
			size = TYPEALIGN(KV_BLOCK, tail + need);
			err = kv_io_try_extend(file, allocated, size);
		}
		if (err != 0)
		{
			LWLockRelease(&shard->extend_lock);
			kv_io_error(ERROR, err, kv_path_value(&store->key, number), "extend");
		}
		LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
		shard->value_allocated = size;
		LWLockRelease(&shard->lock);
	}
	LWLockRelease(&shard->extend_lock);
}

/*
 * Write a value that no merge slot can hold and return where it went.  It is
 * on the device (in the sense of a completed direct write) before the caller
 * makes an entry for it; if the caller never does, the space is dead.
 */
KvLocation
kv_value_write_extent(KvStore *store, uint32 shardno, KvForm form,
					  const char *value, Size len)
{
	KvShard    *shard = kv_shard(store, shardno);
	Size		size = TYPEALIGN(KV_BLOCK, len);
	char	   *buffer = kv_io_buffer(KV_BUFFER_WRITE, KV_EXTENT_CHUNK);
	uint64		offset;
	KvFileNo	number;
	File		file;

	for (;;)
	{
		LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
		if (shard->files.value_tail + size <= shard->value_allocated)
			break;
		LWLockRelease(&shard->lock);
		kv_value_extend(store, shardno, size);
	}
	offset = shard->files.value_tail;
	number = shard->files.value_file;
	shard->files.value_tail += size;
	LWLockRelease(&shard->lock);
	KV_STOP_POINT("extent_reserved");

	file = kv_value_file(&store->key, store->cache_id, number, true);
	for (Size done = 0; done < size; done += KV_EXTENT_CHUNK)
	{
		Size		part = Min(KV_EXTENT_CHUNK, size - done);
		Size		bytes = Min(part, len - done);

		CHECK_FOR_INTERRUPTS();
		memcpy(buffer, value + done, bytes);
		memset(buffer + bytes, 0, part - bytes);
		kv_io_write(file, buffer, part, offset + done, KV_IO_VALUE_WRITE);
	}
	kv_stat_add(store, KV_COUNT_DEVICE_WRITE_BYTES, size);
	return KV_LOCATION_MAKE(form, number, offset);
}
