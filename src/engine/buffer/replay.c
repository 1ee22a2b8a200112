/*
 * replay.c
 *		Replays the write buffers that an earlier incarnation left.
 *
 * A sealed buffer has its positions in a value file and in the key log; writing both again is
 * idempotent, and replaces whole what may be there in another order (sort.c).  The buffer that was
 * open is measured (its entries up to the first invalid one), sealed after the end of the key logs,
 * and replayed in the same way.  Afterwards it is free.
 */
#include "postgres.h"

#include "engine/base/types.h"
#include "engine/buffer/internal.h"
#include "engine/format/format.h"
#include "engine/format/path.h"
#include "engine/io/fault.h"
#include "engine/io/io.h"
#include "engine/io/name.h"
#include "engine/maintenance.h"
#include "engine/shard/shard.h"
#include "engine/buffer/buffer.h"
#include "engine/value/value.h"

static bool
buffer_belongs(int i, const KvStore *store)
{
	const KvBufferHeader *header = kv_buffer_header(i);

	return kv_buffers[i].state == KV_BUFFER_ORPHAN &&
		kv_same_store(&header->store, &store->key);
}

/* Repeat what the buffer writer may not have finished. */
static void
replay_buffer(KvStore *store, uint32 shard_id, int i)
{
	KvBufferHeader *header = kv_buffer_header(i);
	KvShard    *shard = kv_shard(store, shard_id);
	KvAddress	base = kv_buffer_base(header);
	uint32		len = TYPEALIGN(KV_BLOCK, header->value_bytes);
	int			err;

	if (len > 0)
		kv_io_write(kv_value_file(&store->key, store->cache_id, kv_file_of(base), 0),
					kv_buffer_values(i), len, kv_offset_of(base), KV_IO_VALUE_WRITE);
	if (header->log_number >= shard->files.first_log)
	{
		err = kv_log_append(&store->key, shard_id, header->log_number,
							header->log_offset, kv_buffer_batch(i));
		if (err != 0)
			kv_io_error(ERROR, err, kv_path_log(&store->key, shard_id, header->log_number),
						"write");
	}
	shard->log.number = Max(shard->log.number, header->log_number);
	KV_STOP_POINT("replay_before_free");
	header->in_use = 0;
	kv_buffer_release(i);
	kv_stat_add(store, KV_COUNT_RECOVERED_BUFFERS, 1);
}

/* The entries of a buffer, and the bytes for them. */
typedef struct KvEntryArea
{
	const KvBufferHeader *header;
	const char *entries;
	Size		room;
} KvEntryArea;

static KvEntryArea
area_of(int i)
{
	return (KvEntryArea) {kv_buffer_header(i), kv_buffer_entries(i), kv_buffer_entry_room(i)};
}

/* Is there an entry of this buffer at this offset of its entries? */
static bool
is_sound_entry(const KvEntryArea *area, uint32 at)
{
	const KvLogEntry *entry = (const KvLogEntry *) (area->entries + at);

	return at + sizeof(KvLogEntry) <= area->room && entry->keylen <= KV_MAX_KEY &&
		at + KV_LOG_ENTRY_SIZE(entry->keylen) <= area->room &&
		entry->crc == kv_log_entry_crc(entry, area->header->sequence);
}

/* The valid part of a buffer: its entries up to the first invalid one. */
static void
measure_buffer(const KvEntryArea *area, uint32 *nentries, uint32 *entry_bytes,
			   uint32 *value_bytes)
{
	const KvBufferHeader *header = area->header;

	*nentries = *entry_bytes = *value_bytes = 0;
	while (is_sound_entry(area, *entry_bytes))
	{
		const KvLogEntry *entry = (const KvLogEntry *) (area->entries + *entry_bytes);
		KvAddress	address = KV_LOCATION_ADDRESS(entry->location);
		KvAddress	base = kv_buffer_base(header);

		if (address >= base && address < base + header->capacity)
			*value_bytes = Max(*value_bytes, address - base + entry->len);
		*entry_bytes += KV_LOG_ENTRY_SIZE(entry->keylen);
		(*nentries)++;
	}
}

/*
 * Is there a valid entry after the first invalid one?  A dead process has left at most one
 * unfinished, so if there is, the buffer is damaged.
 */
static bool
sound_entry_follows(const KvEntryArea *area, uint32 end)
{
	for (uint32 at = end + 8; at < area->room; at += 8)
	{
		if (is_sound_entry(area, at))
			return true;
	}
	return false;
}

static void
buffer_is_damaged(int i)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("write buffer %d is damaged", i)));
}

void
kv_buffers_replay_sealed(KvStore *store, uint32 shard_id)
{
	for (int i = 0; i < kv_buffer_pool->nunits; i++)
	{
		KvBufferHeader *header = kv_buffer_header(i);
		KvEntryArea area;
		uint32		nentries;
		uint32		entry_bytes;
		uint32		value_bytes;

		if (!buffer_belongs(i, store) || header->shard != shard_id || !header->sealed)
			continue;

		/* entries get a new checksum as a batch, so each must be unchanged */
		area = area_of(i);
		measure_buffer(&area, &nentries, &entry_bytes, &value_bytes);
		if (header->seal_crc != kv_buffer_seal_crc(header) ||
			nentries != header->nentries || entry_bytes != header->entry_bytes)
			buffer_is_damaged(i);
		replay_buffer(store, shard_id, i);
	}
}

void
kv_buffers_replay_open(KvStore *store, uint32 shard_id, KvApplyEntry apply, void *arg)
{
	KvShard    *shard = kv_shard(store, shard_id);

	for (int i = 0; i < kv_buffer_pool->nunits; i++)
	{
		uint32		incarnation = kv_buffer_header(i)->incarnation;
		KvEntryArea area;
		uint32		nentries;
		uint32		entry_bytes;
		uint32		value_bytes;
		char	   *entries;

		if (!buffer_belongs(i, store) || kv_buffer_header(i)->shard != shard_id)
			continue;
		if (kv_buffer_header(i)->log_number > shard->log.number)
			shard->log.tail = sizeof(KvLogHeader);	/* of a log that was not begun yet */
		area = area_of(i);
		measure_buffer(&area, &nentries, &entry_bytes, &value_bytes);
		if (sound_entry_follows(&area, entry_bytes))
			buffer_is_damaged(i);
		kv_buffer_seal_image(i, value_bytes, entry_bytes, nentries, shard->log.tail);

		/* the buffer may be reused as soon as it is replayed */
		entries = palloc(entry_bytes + 1);
		memcpy(entries, kv_buffer_entries(i), entry_bytes);
		replay_buffer(store, shard_id, i);
		shard->log.tail += sizeof(KvLogBatch) + entry_bytes;
		for (char *at = entries; at < entries + entry_bytes;
			 at += KV_LOG_ENTRY_SIZE(((KvLogEntry *) at)->keylen))
			apply(arg, (KvLogEntry *) at, incarnation);
		pfree(entries);
	}
}

/* ---- untrusted buffers ---- */

/* A shard that had entries in a buffer. */
typedef struct KvLoss
{
	KvStoreKey	key;
	uint32		shard;
	uint32		entries;
} KvLoss;

static List *losses = NIL;

static void
note_loss(const KvBufferHeader *buffer, const char *entries, Size room)
{
	KvEntryArea	area = {buffer, entries, room};
	KvLoss	   *loss = palloc(sizeof(KvLoss));
	uint32		entry_bytes;
	uint32		value_bytes;

	loss->key = buffer->store;
	loss->shard = buffer->shard;
	measure_buffer(&area, &loss->entries, &entry_bytes, &value_bytes);
	losses = lappend(losses, loss);
}

void
kv_buffers_count_lost(void)
{
	losses = NIL;
	kv_buffers_visit_file(note_loss);
}

void
kv_buffers_forget_file(void)
{
	(void) kv_io_unlink(KV_BUFFER_FILE_PATH);
}

uint32
kv_buffers_lost(const KvStoreKey *key, uint32 shard_id)
{
	uint32		n = 0;
	ListCell   *cell;

	foreach(cell, losses)
	{
		const KvLoss *loss = lfirst(cell);

		if (loss->shard == shard_id && kv_same_store(&loss->key, key))
			n += loss->entries;
	}
	return n;
}
