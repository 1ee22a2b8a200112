/*
 * replay.c
 *		The merge slots that an earlier incarnation left, replayed.
 *
 * A sealed slot has its places in a value file and in the key log; writing
 * both again is idempotent.  The slot that was open is measured (its entries up
 * to the first invalid one), sealed behind the key logs, and replayed likewise.
 * Afterwards it is free.
 */
#include "postgres.h"

#include "engine/base/types.h"
#include "engine/format/format.h"
#include "engine/io/io.h"
#include "engine/shard/shard.h"
#include "engine/slot/slot.h"
#include "engine/value/value.h"

static bool
slot_belongs(int i, const KvStore *store)
{
	const KvSlotHeader *header = kv_slot_header(i);

	return kv_slots[i].state == KV_SLOT_ORPHAN &&
		kv_same_store(&header->store, &store->key);
}

/* Do again what the merge writer may not have finished. */
static void
replay_slot(KvStore *store, uint32 shardno, int i)
{
	KvSlotHeader *header = kv_slot_header(i);
	KvShard    *shard = kv_shard(store, shardno);
	KvAddress	base = kv_slot_base(header);
	uint32		len = TYPEALIGN(KV_BLOCK, header->value_bytes);
	int			err;

	if (len > 0)
		kv_io_write(kv_value_file(&store->key, store->cache_id, kv_file_of(base), 0),
					kv_slot_values(i), len, kv_offset_of(base), KV_IO_VALUE_WRITE);
	if (header->log_number >= shard->files.first_log)
	{
		err = kv_log_append(&store->key, shardno, header->log_number,
							header->log_offset, kv_slot_batch(i));
		if (err != 0)
			kv_io_error(ERROR, err, kv_path_log(&store->key, shardno, header->log_number),
						"write");
	}
	shard->log_number = Max(shard->log_number, header->log_number);
	KV_STOP_POINT("replay_before_free");
	header->in_use = 0;
	kv_slot_release(i);
	kv_stat_add(store, KV_COUNT_RECOVERED_SLOTS, 1);
}

/* The entries of a slot, and how many bytes there are for them. */
typedef struct KvEntryArea
{
	const KvSlotHeader *header;
	const char *entries;
	Size		room;
} KvEntryArea;

static KvEntryArea
area_of(int i)
{
	return (KvEntryArea) {kv_slot_header(i), kv_slot_entries(i), kv_slot_entry_room(i)};
}

/* Is there an entry of this slot's at this place of its entries? */
static bool
is_sound_entry(const KvEntryArea *area, uint32 at)
{
	const KvLogEntry *entry = (const KvLogEntry *) (area->entries + at);

	return at + sizeof(KvLogEntry) <= area->room && entry->keylen <= KV_MAX_KEY &&
		at + KV_LOG_ENTRY_SIZE(entry->keylen) <= area->room &&
		entry->crc == kv_log_entry_crc(entry, area->header->sequence);
}

/* How much of a slot is valid: its entries up to the first that is not. */
static void
measure_slot(const KvEntryArea *area, uint32 *nentries, uint32 *entry_bytes,
			 uint32 *value_bytes)
{
	const KvSlotHeader *header = area->header;

	*nentries = *entry_bytes = *value_bytes = 0;
	while (is_sound_entry(area, *entry_bytes))
	{
		const KvLogEntry *entry = (const KvLogEntry *) (area->entries + *entry_bytes);
		KvAddress	address = KV_LOCATION_ADDRESS(entry->location);
		KvAddress	base = kv_slot_base(header);

		if (address >= base && address < base + header->capacity)
			*value_bytes = Max(*value_bytes, address - base + entry->len);
		*entry_bytes += KV_LOG_ENTRY_SIZE(entry->keylen);
		(*nentries)++;
	}
}

/*
 * Is there a valid entry behind the first that is not?  A dead process has left one
 * unfinished at most, so if there is, the slot is damaged.
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
slot_is_damaged(int i)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("merge slot %d is damaged", i)));
}

void
kv_slots_replay_sealed(KvStore *store, uint32 shardno)
{
	for (int i = 0; i < kv_slot_pool->nunits; i++)
	{
		KvSlotHeader *header = kv_slot_header(i);
		KvEntryArea area;
		uint32		nentries;
		uint32		entry_bytes;
		uint32		value_bytes;

		if (!slot_belongs(i, store) || header->shard != shardno || !header->sealed)
			continue;

		/* entries are signed anew as a batch, so each must be what it was */
		area = area_of(i);
		measure_slot(&area, &nentries, &entry_bytes, &value_bytes);
		if (header->seal_crc != kv_slot_seal_crc(header) ||
			nentries != header->nentries || entry_bytes != header->entry_bytes)
			slot_is_damaged(i);
		replay_slot(store, shardno, i);
	}
}

void
kv_slots_replay_open(KvStore *store, uint32 shardno, KvApplyEntry apply, void *arg)
{
	KvShard    *shard = kv_shard(store, shardno);

	for (int i = 0; i < kv_slot_pool->nunits; i++)
	{
		uint32		incarnation = kv_slot_header(i)->incarnation;
		KvEntryArea area;
		uint32		nentries;
		uint32		entry_bytes;
		uint32		value_bytes;
		char	   *entries;

		if (!slot_belongs(i, store) || kv_slot_header(i)->shard != shardno)
			continue;
		if (kv_slot_header(i)->log_number > shard->log_number)
			shard->log_tail = sizeof(KvLogHeader);	/* of a log not begun yet */
		area = area_of(i);
		measure_slot(&area, &nentries, &entry_bytes, &value_bytes);
		if (sound_entry_follows(&area, entry_bytes))
			slot_is_damaged(i);
		kv_slot_seal_image(i, value_bytes, entry_bytes, nentries, shard->log_tail);

		/* the slot may be reused as soon as it is replayed */
		entries = palloc(entry_bytes + 1);
		memcpy(entries, kv_slot_entries(i), entry_bytes);
		replay_slot(store, shardno, i);
		shard->log_tail += sizeof(KvLogBatch) + entry_bytes;
		for (char *at = entries; at < entries + entry_bytes;
			 at += KV_LOG_ENTRY_SIZE(((KvLogEntry *) at)->keylen))
			apply(arg, (KvLogEntry *) at, incarnation);
		pfree(entries);
	}
}

/* ---- where slots are not believed ---- */

/* A shard that had entries in a slot. */
typedef struct KvLoss
{
	KvStoreKey	key;
	uint32		shard;
	uint32		entries;
} KvLoss;

static List *losses = NIL;

static void
note_loss(const KvSlotHeader *slot, const char *entries, Size room)
{
	KvEntryArea area = {slot, entries, room};
	KvLoss	   *loss = palloc(sizeof(KvLoss));
	uint32		entry_bytes;
	uint32		value_bytes;

	loss->key = slot->store;
	loss->shard = slot->shard;
	measure_slot(&area, &loss->entries, &entry_bytes, &value_bytes);
	losses = lappend(losses, loss);
}

void
kv_slots_count_lost(void)
{
	losses = NIL;
	kv_slots_visit_file(note_loss);
}

void
kv_slots_forget_file(void)
{
	(void) kv_io_unlink(KV_SLOT_FILE_PATH);
}

uint32
kv_slots_lost(const KvStoreKey *key, uint32 shardno)
{
	uint32		n = 0;
	ListCell   *cell;

	foreach(cell, losses)
	{
		const KvLoss *loss = lfirst(cell);

		if (loss->shard == shardno && kv_same_store(&loss->key, key))
			n += loss->entries;
	}
	return n;
}
