/*
 * slotreplay.c
 *		The merge slots that an earlier incarnation left, replayed.
 *
 * A sealed slot has its places in the value file and in the key log; writing
 * both again is idempotent.  The slot that was open is measured (its entries up
 * to the first invalid one), sealed behind the key logs, and replayed likewise.
 * Afterwards it is free.
 */
#include "postgres.h"

#include "engine/internal.h"

static bool
slot_belongs(int i, const KvStore *store)
{
	const KvSlotHeader *header = kv_slot_header(i);

	return kv_slots[i].state == KV_SLOT_ORPHAN &&
		header->dboid == store->key.dboid && header->relid == store->key.relid &&
		header->generation == store->key.generation;
}

/* Do again what the merge writer may not have finished. */
static void
replay_slot(KvStore *store, uint32 shardno, int i)
{
	KvSlotHeader *header = kv_slot_header(i);
	KvShard    *shard = kv_shard(store, shardno);
	uint32		len = TYPEALIGN(KV_BLOCK, header->value_bytes);
	int			err;

	if (len > 0)
		kv_io_write(kv_value_file(&store->key, header->value_file, true),
					kv_slot_values(i), len, header->base, KV_IO_VALUE_WRITE);
	if (header->value_file == shard->value_file)
		shard->value_tail = Max(shard->value_tail, header->base + len);
	if (header->log_number >= shard->first_log)
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
	kv_count(store, KV_COUNT_RECOVERED_SLOTS, 1);
}

/*
 * Replay the sealed slots that an earlier incarnation left of this shard.
 * Before the key logs are read: they may have holes that these fill.
 */
void
kv_slots_replay_sealed(KvStore *store, uint32 shardno)
{
	for (int i = 0; i < kv_shared->nslots; i++)
	{
		KvSlotHeader *header = kv_slot_header(i);

		if (!slot_belongs(i, store) || header->shard != shardno || !header->sealed)
			continue;
		if (header->seal_crc != kv_slot_seal_crc(header))
			ereport(ERROR,
					(errcode(ERRCODE_DATA_CORRUPTED),
					 errmsg("merge slot %d is damaged", i)));
		replay_slot(store, shardno, i);
	}
}

/* How much of a slot is valid: its entries up to the first that is not. */
static void
measure_slot(const KvSlotHeader *header, uint32 *nentries, uint32 *entry_bytes,
			 uint32 *value_bytes)
{
	const char *entries = (const char *) header + KV_SLOT_ENTRIES;

	*nentries = *entry_bytes = *value_bytes = 0;
	while (*entry_bytes + sizeof(KvLogEntry) <= KV_ENTRY_ROOM)
	{
		const KvLogEntry *entry = (const KvLogEntry *) (entries + *entry_bytes);
		uint64		offset = KV_LOCATION_OFFSET(entry->location);

		if (entry->keylen > KV_MAX_KEY ||
			*entry_bytes + KV_LOG_ENTRY_SIZE(entry->keylen) > KV_ENTRY_ROOM ||
			entry->crc != kv_log_entry_crc(entry, header->sequence))
			break;
		if (KV_LOCATION_FILE(entry->location) == header->value_file &&
			offset >= header->base && offset < header->base + header->capacity)
			*value_bytes = Max(*value_bytes, offset - header->base + entry->len);
		*entry_bytes += KV_LOG_ENTRY_SIZE(entry->keylen);
		(*nentries)++;
	}
}

/* How many entries a slot has. */
uint32
kv_slot_count(const KvSlotHeader *header)
{
	uint32		nentries;
	uint32		entry_bytes;
	uint32		value_bytes;

	measure_slot(header, &nentries, &entry_bytes, &value_bytes);
	return nentries;
}

/*
 * Seal and replay the slot that was open, and apply its entries.  After the
 * key logs were read: its batch goes behind them.
 */
void
kv_slots_replay_open(KvStore *store, uint32 shardno, KvApplyEntry apply)
{
	KvShard    *shard = kv_shard(store, shardno);

	for (int i = 0; i < kv_shared->nslots; i++)
	{
		uint32		incarnation = kv_slot_header(i)->incarnation;
		uint32		nentries;
		uint32		entry_bytes;
		uint32		value_bytes;
		char	   *entries;

		if (!slot_belongs(i, store) || kv_slot_header(i)->shard != shardno)
			continue;
		if (kv_slot_header(i)->log_number > shard->log_number)
			shard->log_tail = sizeof(KvLogHeader);	/* of a log not begun yet */
		measure_slot(kv_slot_header(i), &nentries, &entry_bytes, &value_bytes);
		kv_slot_seal_image(i, value_bytes, entry_bytes, nentries, shard->log_tail);

		/* the slot may be reused as soon as it is replayed */
		entries = palloc(entry_bytes + 1);
		memcpy(entries, kv_slot_entries(i), entry_bytes);
		replay_slot(store, shardno, i);
		shard->log_tail += sizeof(KvLogBatch) + entry_bytes;
		for (char *at = entries; at < entries + entry_bytes;
			 at += KV_LOG_ENTRY_SIZE(((KvLogEntry *) at)->keylen))
			apply(store, shardno, (KvLogEntry *) at, incarnation);
		pfree(entries);
	}
}
