/*
 * fill.c
 *		Opens, fills, seals and searches write buffers.
 *
 * Opening gives a buffer an address in its shard's open value file, and a value a location in it
 * when it enters the buffer.  Sealing reserves the offset of the batch in the key log; from then on
 * no process stores into the buffer (I 6).  The buffer writer writes the values, then the batch,
 * both in the order of keys, which gives values other locations (sort.c), and then frees the
 * buffer.  Both writes go to fixed addresses, so replaying them is idempotent.  Until the buffer is
 * freed, readers use it.
 *
 * An entry is valid if its CRC is right.  The CRC is stored after the value and the rest of the
 * entry (I 3).  It is seeded with the buffer's sequence number, which is unique.
 */
#include "postgres.h"

#include "engine/base/types.h"
#include "engine/base/wait.h"
#include "engine/buffer/internal.h"
#include "engine/cache/cache.h"
#include "engine/format/format.h"
#include "engine/io/fault.h"
#include "engine/shard/shard.h"
#include "engine/buffer/buffer.h"
#include "engine/shard/valuefiles.h"
#include "engine/value/value.h"
#include "engine/xact/xact.h"

#define KV_BUFFER_LEAST	((Size) 16 * 1024)	/* least bytes of a value file for a buffer */

/* ---- heat ---- */

#define KV_HEAT_BITS	2

StaticAssertDecl(KV_CACHED < 1 << KV_HEAT_BITS, "the heat of a block has two bits");

/* The unit of a buffer that has the block at this offset, and the block's bits in its heat. */
static uint8 *
heat_bits(int i, uint32 at, int *shift)
{
	uint32		unit = at / kv_buffer_pool->unit_values;

	*shift = at % kv_buffer_pool->unit_values / KV_BLOCK * KV_HEAT_BITS;
	return &kv_buffers[i + unit].heat;
}

void
kv_buffer_mark(const KvShard *shard, KvLocation location, uint32 len, KvHeat heat)
{
	int			i = shard->buffers.open;
	uint32		at = KV_LOCATION_ADDRESS(location) - kv_buffers[i].base;

	kv_buffers[i].hot = true;
	for (uint32 block = TYPEALIGN_DOWN(KV_BLOCK, at); block < at + len; block += KV_BLOCK)
	{
		int			shift;
		uint8	   *bits = heat_bits(i, block, &shift);
		KvHeat		hottest = Max(heat, kv_buffer_block_heat(i, block));

		*bits &= ~(((1 << KV_HEAT_BITS) - 1) << shift);
		*bits |= hottest << shift;
	}
}

bool
kv_buffer_is_hot(int i)
{
	return kv_buffers[i].hot;
}

KvHeat
kv_buffer_block_heat(int i, uint32 at)
{
	int			shift;
	uint8	   *bits = heat_bits(i, at, &shift);

	return (KvHeat) ((*bits >> shift) & ((1 << KV_HEAT_BITS) - 1));
}

static void
clear_heat(int i)
{
	kv_buffers[i].hot = false;
	for (int unit = i; unit < i + kv_buffers[i].units; unit++)
		kv_buffers[unit].heat = 0;
}

/* ---- opening, filling, sealing ---- */

bool
kv_buffer_fits(const KvShard *shard, Size len, int keylen)
{
	const KvWriteBuffer *buffer;

	if (shard->buffers.open < 0)
		return false;
	buffer = &kv_buffers[shard->buffers.open];
	if (kv_buffer_header(shard->buffers.open)->incarnation != kv_writing_incarnation())
		return false;			/* redo has opened it */
	return kv_value_position(buffer->value_used, len) + len <= buffer->capacity &&
		buffer->entry_used + KV_LOG_ENTRY_SIZE(keylen) <= kv_buffer_entry_room(shard->buffers.open);
}

bool
kv_buffer_can_open(const KvStore *store, Size len)
{
	bool		can = true;

	if (kv_buffer_units(len) > 1)
	{
		LWLockAcquire(&kv_buffer_pool->lock, LW_EXCLUSIVE);
		can = kv_units_are_free(kv_buffer_units(len), kv_units_kept(store));
		LWLockRelease(&kv_buffer_pool->lock);
	}
	return can;
}

/* The capacity of a buffer for this shard if no other shard were written. */
static Size
capacity_alone(const KvShard *shard)
{
	Size		capacity = Min((Size) kv_buffer_pool->buffer_size, shard->values.bytes / 4);

	return Max(TYPEALIGN_DOWN(kv_buffer_pool->unit_values, capacity), KV_BUFFER_LEAST);
}

/* The unused bytes of the open value file. */
static uint64
left_in_value_file(const KvShard *shard)
{
	if (shard->values.open == 0)
		return 0;
	return shard->values.open + kv_file_span((KvFileId) {shard->values.open}) - shard->values.tail;
}

/* At most the rest of the open value file, if that is not too little; else that of a new one. */
Size
kv_buffer_capacity(const KvShard *shard, Size len)
{
	Size		capacity = TYPEALIGN(kv_buffer_pool->unit_values,
									 Max(Min(capacity_alone(shard), kv_buffer_share()), len));
	uint64		left = left_in_value_file(shard);

	if (left < TYPEALIGN(KV_BLOCK, Max(len, KV_BUFFER_LEAST)))
		left = kv_value_file_size(kv_value_file_next_class(shard, len));
	return Min(capacity, left);
}

bool
kv_buffer_open(KvStore *store, uint32 shard_id, Size len)
{
	KvShard    *shard = kv_shard(store, shard_id);
	Size		capacity = Min(kv_buffer_capacity(shard, len),
							   shard->values.allocated - shard->values.tail);
	KvBufferHeader *header;
	KvWriteBuffer *buffer;
	int			i;

	Assert(LWLockHeldByMeInMode(&shard->lock, LW_EXCLUSIVE));
	Assert(shard->buffers.open < 0);
	Assert(capacity >= TYPEALIGN(KV_BLOCK, len));

	LWLockAcquire(&kv_buffer_pool->lock, LW_EXCLUSIVE);
	i = kv_units_take(kv_buffer_units(capacity), kv_buffer_units(len), kv_units_kept(store));
	if (i < 0)
	{
		LWLockRelease(&kv_buffer_pool->lock);
		return false;
	}
	buffer = &kv_buffers[i];
	buffer->store = store;
	buffer->shard = shard_id;
	buffer->touched = true;
	LWLockRelease(&kv_buffer_pool->lock);
	KV_STOP_POINT("buffer_taken");
	capacity = Min(capacity, (Size) buffer->units * kv_buffer_pool->unit_values);
	if (capacity < Min(capacity_alone(shard), left_in_value_file(shard)))
		pg_atomic_fetch_add_u32(&kv_buffer_pool->crowded, 1);

	buffer->next = -1;
	buffer->base = shard->values.tail;
	buffer->capacity = capacity;
	buffer->log_number = shard->log.number;
	buffer->value_used = buffer->entry_used = buffer->nentries = 0;
	buffer->sequence = pg_atomic_fetch_add_u64(&kv_buffer_pool->sequence, 1);
	clear_heat(i);
	buffer->shared = buffer->bulk = false;
	buffer->sorts = !store->numbered;
	buffer->relocating = false;
	kv_buffer_clear_logged(i);
	buffer->batch_taken = false;
	buffer->error = 0;
	kv_tail_move(store, shard, buffer->capacity);
	kv_value_file_note_log(shard, buffer->base, buffer->log_number);
	shard->buffers.open = i;

	header = kv_buffer_header(i);
	header->magic = KV_MAGIC_BUFFER;
	header->sequence = buffer->sequence;
	header->store = store->key;
	header->shard = shard_id;
	header->incarnation = kv_writing_incarnation();
	header->volume = kv_volume_of(buffer->base);
	header->base = buffer->base - kv_volume_begin(header->volume);
	header->capacity = buffer->capacity;
	header->log_number = buffer->log_number;
	header->open_crc = kv_buffer_open_crc(header);
	header->sealed = 0;
	pg_write_barrier();
	header->in_use = 1;
	return true;
}

/* A version is about to be put: by whom, and in a bulk load? */
static void
note_writer(KvWriteBuffer *buffer, const KvVersion *version)
{
	static uint64 xid = 0;		/* whose versions this process has put last */
	static uint64 bytes;		/* of their values */

	if (version->xid != xid)
		bytes = 0;
	xid = version->xid;
	bytes += version->len;
	if (buffer->nentries == 0)
		buffer->writer = xid;
	else if (buffer->writer != xid)
		buffer->shared = true;
	if (bytes > kv_source_bulk())
		buffer->bulk = true;
}

void
kv_buffer_put(KvStore *store, KvShard *shard, KvKey key, KvVersion *version,
			  KvForm form, const char *value, uint32 crc, KvValueHome placing)
{
	int			i = shard->buffers.open;
	KvWriteBuffer *buffer = &kv_buffers[i];
	char       *values = kv_buffer_values(i);
	KvLogEntry *entry = (KvLogEntry *) (kv_buffer_entries(i) + buffer->entry_used);

	note_writer(buffer, version);
	if (placing == KV_IN_BUFFER)
	{
		uint32		at = kv_value_position(buffer->value_used, version->len);

		/*
		 * Padding is zero, so nothing of a buffer's previous use gets out.  Without padding the
		 * page is not touched: a store of no bytes to a page that is new to this process takes
		 * hundreds of cycles.
		 */
		if (at > buffer->value_used)
			memset(values + buffer->value_used, 0, at - buffer->value_used);
		memcpy(values + at, value, version->len);
		buffer->value_used = at + version->len;
		version->location = KV_LOCATION_MAKE(form, buffer->base + at);
		version->moves = buffer->sorts && version->len > 0;
	}
	else if (version->len > 0)
		kv_value_file_note_log(shard, KV_LOCATION_ADDRESS(version->location), buffer->log_number);
	if (placing != KV_PLACED)
		version->crc = kv_value_crc_finish(crc, version->location, version->len);

	entry->keylen = key.len;
	entry->kind = version->kind;
	entry->pad = 0;
	entry->xid = version->xid;
	entry->location = version->location;
	entry->len = version->len;
	entry->value_crc = version->crc;
	entry->cid = version->cid;
	entry->pad2 = 0;
	memcpy(entry + 1, key.data, key.len);
	memset((char *) (entry + 1) + key.len, 0, TYPEALIGN(8, key.len) - key.len);
	pg_write_barrier();
	entry->crc = kv_log_entry_crc(entry, buffer->sequence);
	buffer->last_entry = buffer->entry_used;
	buffer->entry_used += KV_LOG_ENTRY_SIZE(key.len);
	buffer->nentries++;
	buffer->touched = true;
}

void
kv_buffer_seal_image(int i, uint32 value_bytes, uint32 entry_bytes, uint32 nentries,
		   uint64 log_offset)
{
	KvBufferHeader *header = kv_buffer_header(i);
	KvLogBatch *batch = kv_buffer_batch(i);

	memset(kv_buffer_values(i) + value_bytes, 0,
		   TYPEALIGN(KV_BLOCK, value_bytes) - value_bytes);
	memset(batch, 0, sizeof(*batch));
	batch->magic = KV_MAGIC_BATCH;
	batch->sequence = header->sequence;
	batch->store = header->store;
	batch->shard = header->shard;
	batch->log_number = header->log_number;
	batch->incarnation = header->incarnation;
	batch->nentries = nentries;
	batch->entry_bytes = entry_bytes;
	batch->log_offset = log_offset;

	header->log_offset = log_offset;
	header->nentries = nentries;
	header->entry_bytes = entry_bytes;
	header->value_bytes = value_bytes;
	header->seal_crc = kv_buffer_seal_crc(header);
	pg_write_barrier();
	header->sealed = 1;
}

void
kv_buffer_seal(KvStore *store, uint32 shard_id)
{
	KvShard    *shard = kv_shard(store, shard_id);
	int			i = shard->buffers.open;
	KvWriteBuffer *buffer = &kv_buffers[i];
	uint32		used = TYPEALIGN(KV_BLOCK, buffer->value_used);

	Assert(LWLockHeldByMeInMode(&shard->lock, LW_EXCLUSIVE));
	buffer->log_offset = shard->log.tail;
	kv_buffer_seal_image(i, buffer->value_used, buffer->entry_used, buffer->nentries,
						 buffer->log_offset);
	shard->log.tail += sizeof(KvLogBatch) + buffer->entry_used;

	/* the next buffer begins where its values end, unless a large value follows it */
	if (shard->values.tail == buffer->base + buffer->capacity)
		kv_tail_move(store, shard, (int64) used - buffer->capacity);
	buffer->capacity = used;
	shard->values.written += used;
	buffer->next = shard->buffers.sealed;
	shard->buffers.sealed = i;
	shard->buffers.open = -1;

	LWLockAcquire(&kv_buffer_pool->lock, LW_EXCLUSIVE);
	kv_buffer_queue(i);
	LWLockRelease(&kv_buffer_pool->lock);
	kv_buffers_wake_writer();
}

/* ---- searching ---- */

/* The buffer that has an address, or -1. */
static int
buffer_of(const KvShard *shard, KvAddress address)
{
	for (int i = kv_shard_buffer(shard, -1); i >= 0; i = kv_shard_buffer(shard, i))
	{
		if (address >= kv_buffers[i].base && address < kv_buffers[i].base + kv_buffers[i].capacity)
			return i;
	}
	return -1;
}

/* The buffer that has a version's value, or -1. */
static int
holder_of(const KvShard *shard, const KvVersion *version)
{
	int			i = buffer_of(shard, KV_LOCATION_ADDRESS(version->location));

	/* a buffer that sorts has only values that move; a moved value is in its file (sort.c) */
	return i >= 0 && kv_buffers[i].sorts && !version->moves ? -1 : i;
}

const char *
kv_buffer_find(const KvShard *shard, const KvVersion *version)
{
	KvAddress	address = KV_LOCATION_ADDRESS(version->location);
	int			i = holder_of(shard, version);

	return i < 0 ? NULL : kv_buffer_values(i) + (address - kv_buffers[i].base);
}

KvHeat
kv_buffer_heat(const KvShard *shard, const KvVersion *version)
{
	KvAddress	address = KV_LOCATION_ADDRESS(version->location);
	int			i = holder_of(shard, version);

	return i < 0 ? KV_COLD : Max(kv_buffer_block_heat(i, address - kv_buffers[i].base),
								 KV_READ_LATELY);
}

int
kv_shard_buffer(const KvShard *shard, int i)
{
	if (i < 0)
		return shard->buffers.open >= 0 ? shard->buffers.open : shard->buffers.sealed;
	return i == shard->buffers.open ? shard->buffers.sealed : kv_buffers[i].next;
}

/* The end of the written part of an extent. */
static KvAddress
written_end(const KvShard *shard, KvExtent extent)
{
	for (int i = kv_shard_buffer(shard, -1); i >= 0; i = kv_shard_buffer(shard, i))
	{
		if (kv_buffers[i].base >= extent.begin && kv_buffers[i].base < extent.end)
			extent.end = kv_buffers[i].base;
	}
	return extent.end;
}

bool
kv_shard_extents(const KvShard *shard, KvExtents *extents)
{
	bool		whole = false;	/* all used bytes of the previous value file are written */
	KvAddress	next = 0;		/* end of the previous value file's addresses */

	extents->n = 0;
	for (int i = 0; i < shard->values.n; i++)
	{
		const KvShardValueFile *value_file = &kv_value_files(shard)[i];
		KvFileId	file = {value_file->value_file.address};
		KvExtent	extent = {file.address, kv_value_file_end(shard, value_file)};
		KvExtent   *last = &extents->at[extents->n - 1];
		KvAddress	end;
		bool		goes_on;

		end = written_end(shard, extent);

		/* the gap between two neighbours is small, and no piece may be in two extents */
		goes_on = extents->n > 0 &&
			((whole && next == extent.begin) ||
			 last->end > TYPEALIGN_DOWN(KV_WINDOW_SIZE, extent.begin));
		whole = end == extent.end;
		next = file.address + kv_file_span(file);
		if (end == extent.begin)
			continue;
		extent.end = end;
		if (goes_on)
			last->end = end;
		else if (extents->n == KV_MAX_EXTENTS)
			return false;
		else
			extents->at[extents->n++] = extent;
	}
	return true;
}

KvExtent
kv_shard_unwritten(const KvShard *shard)
{
	KvExtent	all = {PG_UINT64_MAX, 0};

	for (int i = kv_shard_buffer(shard, -1); i >= 0; i = kv_shard_buffer(shard, i))
	{
		all.begin = Min(all.begin, kv_buffers[i].base);
		all.end = Max(all.end, kv_buffers[i].base + kv_buffers[i].capacity);
	}
	return all;
}
