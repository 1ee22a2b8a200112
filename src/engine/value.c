/*
 * value.c
 *		Value files: append-only, O_DIRECT only (I 5), one per shard.
 *
 * A value's CRC covers its bytes, its key, its store and its location (I 4),
 * so a stale, moved or misdirected block never passes for a live one.
 *
 * Space is allocated ahead with posix_fallocate, in steps that grow with the
 * file, under the shard's extend_lock; nothing is written twice for it.
 * Values larger than a merge slot are written here as extents of their own,
 * before any index entry names them (I 3).
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"

#include "engine/internal.h"

#define KV_EXTEND_MIN	((uint64) 16 * 1024)
#define KV_EXTEND_MAX	((uint64) 64 * 1024 * 1024)
#define KV_EXTENT_CHUNK	((Size) 1024 * 1024)
#define KV_OPEN_FILES	2048

typedef struct KvFileKey
{
	KvStoreKey	store;
	uint32		number;
} KvFileKey;

typedef struct KvOpenFile
{
	KvFileKey	key;
	File		file;
} KvOpenFile;

static HTAB *open_files = NULL;

/* The part of a value's CRC that needs no location, to be done outside locks. */
uint32
kv_value_crc_begin(const KvStoreKey *store, KvKey key, const char *value, Size len)
{
	pg_crc32c	crc;

	INIT_CRC32C(crc);
	crc = kv_crc_add(crc, value, len);
	COMP_CRC32C(crc, store, sizeof(*store));
	COMP_CRC32C(crc, key.data, key.len);
	return crc;
}

uint32
kv_value_crc_finish(uint32 crc, KvLocation location, uint32 len)
{
	COMP_CRC32C(crc, &location, sizeof(location));
	COMP_CRC32C(crc, &len, sizeof(len));
	FIN_CRC32C(crc);
	return crc;
}

/* Is value what version says (I 4)? */
bool
kv_value_matches(const KvStoreKey *store, KvKey key, const char *value,
				 const KvVersion *version)
{
	uint32		crc = kv_value_crc_begin(store, key, value, version->len);

	return kv_value_crc_finish(crc, version->location, version->len) == version->crc;
}

/* Can the value be read from its file, and is it what version says? */
bool
kv_value_is_intact(const KvStore *store, KvKey key, const KvVersion *version)
{
	uint64		offset = KV_LOCATION_OFFSET(version->location);
	uint64		first = offset - offset % KV_BLOCK;
	Size		len = TYPEALIGN(KV_BLOCK, offset + version->len) - first;
	char	   *buffer = kv_io_buffer(KV_BUFFER_CHECK, len);
	File		file = kv_value_file(&store->key, KV_LOCATION_FILE(version->location), false);

	if (file < 0 || offset + version->len > kv_io_size(file))
		return false;
	if (kv_io_read(file, buffer, len, first, KV_IO_VALUE_READ) < offset - first + version->len)
		return false;
	return kv_value_matches(&store->key, key, buffer + (offset - first), version);
}

/* ERROR unless value is what version says (I 4, I 11). */
void
kv_value_verify(const KvStoreKey *store, KvKey key, const char *value,
				const KvVersion *version)
{
	if (!kv_value_matches(store, key, value, version))
	{
		char		hex[2 * 32 + 1];
		int			shown = Min(key.len, 32);

		for (int i = 0; i < shown; i++)
			snprintf(hex + 2 * i, 3, "%02x", key.data[i]);
		hex[2 * shown] = '\0';
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("value does not match its checksum in file \"%s\"",
						kv_path_value(store, KV_LOCATION_FILE(version->location))),
				 errdetail("Offset %llu, length %u, encoded key \\x%s%s.",
						   (unsigned long long) KV_LOCATION_OFFSET(version->location),
						   version->len, hex, shown < key.len ? "…" : ""),
				 errhint("Other keys of the table are not affected; kvfdw_check() lists every damaged entry.")));
	}
}

/*
 * Close this process's value files if they have become many.  Only where no
 * descriptor that kv_value_file gave is still to be used.
 */
void
kv_value_trim(void)
{
	HASH_SEQ_STATUS status;
	KvOpenFile *entry;

	if (open_files == NULL || hash_get_num_entries(open_files) < KV_OPEN_FILES)
		return;
	hash_seq_init(&status, open_files);
	while ((entry = hash_seq_search(&status)) != NULL)
	{
		kv_io_close(entry->file);
		hash_search(open_files, &entry->key, HASH_REMOVE, NULL);
	}
}

/*
 * This process's descriptor of a value file.  -1 if it is missing and !create
 * (it was replaced: look the key up again, I 8).
 */
File
kv_value_file(const KvStoreKey *store, uint32 number, bool create)
{
	KvFileKey	key;
	KvOpenFile *entry;
	bool		found;
	File		file;

	if (open_files == NULL)
	{
		HASHCTL		info = {0};

		info.keysize = sizeof(KvFileKey);
		info.entrysize = sizeof(KvOpenFile);
		info.hcxt = TopMemoryContext;
		open_files = hash_create("kvfdw value files", 64, &info,
								 HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	}
	memset(&key, 0, sizeof(key));
	key.store = *store;
	key.number = number;
	entry = hash_search(open_files, &key, HASH_FIND, NULL);
	if (entry)
		return entry->file;

	file = kv_io_open(kv_path_value(store, number),
					  KV_IO_DIRECT | (create ? KV_IO_CREATE : KV_IO_MISSING_OK),
					  KV_IO_VALUE_READ);
	if (file < 0)
		return file;
	entry = hash_search(open_files, &key, HASH_ENTER, &found);
	entry->file = file;
	return file;
}

/* Close this process's descriptors of a store that is going away. */
void
kv_value_forget(const KvStoreKey *store)
{
	HASH_SEQ_STATUS status;
	KvOpenFile *entry;

	if (open_files == NULL)
		return;
	hash_seq_init(&status, open_files);
	while ((entry = hash_seq_search(&status)) != NULL)
	{
		if (memcmp(&entry->key.store, store, sizeof(*store)) == 0)
		{
			kv_io_close(entry->file);
			hash_search(open_files, &entry->key, HASH_REMOVE, NULL);
		}
	}
}

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
		uint32		number;
		uint32		log;
		int			err;

		LWLockAcquire(&shard->lock, LW_SHARED);
		tail = shard->value_tail;
		allocated = shard->value_allocated;
		number = shard->value_file;
		log = shard->first_log;
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
		err = kv_io_try_extend(kv_value_file(&store->key, number, true), allocated, size);
		if (err == ENOSPC && size > TYPEALIGN(KV_BLOCK, tail + need))
		{
			/* no room for a whole step: take just what is needed */
			size = TYPEALIGN(KV_BLOCK, tail + need);
			err = kv_io_try_extend(kv_value_file(&store->key, number, true),
								   allocated, size);
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
	uint32		number;
	File		file;

	for (;;)
	{
		LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
		if (shard->value_tail + size <= shard->value_allocated)
			break;
		LWLockRelease(&shard->lock);
		kv_value_extend(store, shardno, size);
	}
	offset = shard->value_tail;
	number = shard->value_file;
	shard->value_tail += size;
	LWLockRelease(&shard->lock);
	KV_STOP_POINT("extent_reserved");

	file = kv_value_file(&store->key, number, true);
	for (Size done = 0; done < size; done += KV_EXTENT_CHUNK)
	{
		Size		part = Min(KV_EXTENT_CHUNK, size - done);
		Size		bytes = Min(part, len - done);

		CHECK_FOR_INTERRUPTS();
		memcpy(buffer, value + done, bytes);
		memset(buffer + bytes, 0, part - bytes);
		kv_io_write(file, buffer, part, offset + done, KV_IO_VALUE_WRITE);
	}
	kv_count(store, KV_COUNT_DEVICE_WRITE_BYTES, size);
	return KV_LOCATION_MAKE(form, number, offset);
}
