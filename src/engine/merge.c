/*
 * merge.c
 *		Merge slots: where a shard's newest values gather until one large direct
 *		write takes them to the value file (slotwrite.c).
 *
 * The merge file is mmap'd by every process and holds a page of geometry and
 * then the slots.  A slot has a value area, the exact image of what will be
 * written, and an entry area: header, key-log batch, index entries.
 *
 *   FREE ──open──▶ OPEN ──seal──▶ SEALED ──claim──▶ WRITING ──▶ FREE
 *                                    ▲                 │ write failed
 *                                    └─────────────────┘
 *   ORPHAN (left by an earlier incarnation) ──replayed by recovery──▶ FREE
 *
 * Opening binds a slot to a place in its shard's value file, so a value's
 * location is final when it enters the slot.  Sealing reserves the batch's
 * place in the key log; from then on nobody stores into the slot (I 6).  The
 * merge writer writes the values, then the batch, then frees the slot; both
 * writes go where they were told to, so replaying them is idempotent.  Until
 * the slot is freed, readers are served from it.
 *
 * An entry is valid when its CRC is there, and the CRC is stored after the
 * value and the rest of the entry (I 3).  It is seeded with the slot's
 * sequence number, which never repeats.
 *
 * Slot contents are guarded by the shard's lock, slot states by merge_lock.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "miscadmin.h"
#include "storage/shmem.h"
#include "utils/timestamp.h"

#include "engine/internal.h"

#define KV_MERGE_TEMPORARY	"kvfdw/merge.tmp"

typedef struct KvMergeHeader
{
	uint32		magic;
	uint32		format_version;
	uint64		system_identifier;
	uint32		slot_size;
	uint32		entry_area;
	uint32		nslots;
	uint32		crc;
} KvMergeHeader;

KvSlot	   *kv_slots = NULL;
static char *merge_base = NULL; /* the mapping; the same in all processes */

static Size
slot_stride(void)
{
	return (Size) kv_shared->slot_size + KV_ENTRY_AREA;
}

char *
kv_slot_values(int slot)
{
	return merge_base + KV_BLOCK + slot_stride() * slot;
}

KvSlotHeader *
kv_slot_header(int slot)
{
	return (KvSlotHeader *) (kv_slot_values(slot) + kv_shared->slot_size);
}

KvLogBatch *
kv_slot_batch(int slot)
{
	return (KvLogBatch *) ((char *) kv_slot_header(slot) + KV_SLOT_BATCH);
}

char *
kv_slot_entries(int slot)
{
	return (char *) kv_slot_header(slot) + KV_SLOT_ENTRIES;
}

static uint32
open_crc(const KvSlotHeader *header)
{
	return kv_crc(&header->sequence,
				  offsetof(KvSlotHeader, open_crc) - offsetof(KvSlotHeader, sequence));
}

uint32
kv_slot_seal_crc(const KvSlotHeader *header)
{
	pg_crc32c	crc;

	INIT_CRC32C(crc);
	COMP_CRC32C(crc, &header->sequence, sizeof(header->sequence));
	COMP_CRC32C(crc, (const char *) header + offsetof(KvSlotHeader, log_offset),
				offsetof(KvSlotHeader, seal_crc) - offsetof(KvSlotHeader, log_offset));
	FIN_CRC32C(crc);
	return crc;
}

/* The slot is nobody's from here on.  merge_lock held, or nobody else is there. */
void
kv_slot_push_free(int i)
{
	kv_slots[i].state = KV_SLOT_FREE;
	kv_slots[i].store = NULL;
	kv_slots[i].next = kv_shared->free_slots;
	kv_shared->free_slots = i;
}

/* ---- start-up ---- */

static int
configured_slots(void)
{
	Size		stride = (Size) kv_merge_size_kb * 1024 + KV_ENTRY_AREA;

	return Max(8, (int) ((Size) kv_merge_buffers_mb * 1024 * 1024 / stride));
}

static uint32
header_crc(const KvMergeHeader *header)
{
	return kv_crc(header, offsetof(KvMergeHeader, crc));
}

static void
create_merge_file(void)
{
	KvMergeHeader header = {0};
	Size		stride = (Size) kv_merge_size_kb * 1024 + KV_ENTRY_AREA;
	Size		len;
	char	   *map;

	header.magic = KV_MAGIC_MERGE;
	header.format_version = KV_FORMAT_VERSION;
	header.system_identifier = kv_shared->system_identifier;
	header.slot_size = kv_merge_size_kb * 1024;
	header.entry_area = KV_ENTRY_AREA;
	header.nslots = configured_slots();
	header.crc = header_crc(&header);
	len = KV_BLOCK + stride * header.nslots;
	kv_io_create_zeroed(KV_MERGE_TEMPORARY, len, KV_IO_MERGE_MAP);
	map = kv_io_map(KV_MERGE_TEMPORARY, true, &len, KV_IO_MERGE_MAP);
	if (map == NULL)
		kv_io_error(FATAL, errno, KV_MERGE_TEMPORARY, "map");
	memcpy(map, &header, sizeof(header));
	kv_io_unmap(map, len);
	if ((errno = kv_io_rename(KV_MERGE_TEMPORARY, KV_MERGE_PATH)) != 0)
		kv_io_error(FATAL, errno, KV_MERGE_TEMPORARY, "rename");
}

/*
 * Bytes of shared memory for the slot array.  An existing merge file may have
 * more slots than the GUCs now ask for; it is replaced only when empty.
 */
Size
kv_merge_shmem_size(void)
{
	int			nslots = configured_slots();
	KvMergeHeader *header;
	Size		len;

	header = kv_io_map(KV_MERGE_PATH, false, &len, KV_IO_MERGE_MAP);
	if (header != NULL)
	{
		if (len >= sizeof(KvMergeHeader) && header->magic == KV_MAGIC_MERGE &&
			header->crc == header_crc(header))
			nslots = Max(nslots, header->nslots);
		kv_io_unmap(header, len);
	}
	return mul_size(nslots, sizeof(KvSlot));
}

static bool
map_merge_file(KvMergeHeader *header)
{
	static Size len = 0;

	if (merge_base != NULL)
		kv_io_unmap(merge_base, len);
	merge_base = kv_io_map(KV_MERGE_PATH, true, &len, KV_IO_MERGE_MAP);
	if (merge_base == NULL)
	{
		if (errno == ENOENT)
			return false;
		kv_io_error(FATAL, errno, KV_MERGE_PATH, "map");
	}
	*header = *(KvMergeHeader *) merge_base;
	if (len < KV_BLOCK || header->magic != KV_MAGIC_MERGE ||
		header->crc != header_crc(header) ||
		header->system_identifier != kv_shared->system_identifier ||
		len != KV_BLOCK + ((Size) header->slot_size + header->entry_area) * header->nslots)
		ereport(FATAL,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("merge file \"%s\" is damaged", KV_MERGE_PATH),
				 errhint("Restore it from a backup, or move the directory \"kvfdw\" away to start without its tables' data.")));
	if (header->format_version != KV_FORMAT_VERSION || header->entry_area != KV_ENTRY_AREA)
		ereport(FATAL,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("merge file \"%s\" has an unknown format version", KV_MERGE_PATH)));
	kv_shared->slot_size = header->slot_size;
	kv_shared->nslots = header->nslots;
	return true;
}

/*
 * Map the merge file, making it if need be, and note what an earlier
 * incarnation left in it.  In the postmaster, after kv_incarnation_startup.
 */
void
kv_merge_startup(void)
{
	KvMergeHeader header;
	uint64		sequence = 0;
	int			orphans = 0;

	for (;;)
	{
		if (!map_merge_file(&header))
		{
			if (kv_numbered_entries("kvfdw") != NIL && !kv_shared->set_back)
				ereport(FATAL,
						(errcode(ERRCODE_DATA_CORRUPTED),
						 errmsg("file \"%s\" is missing", KV_MERGE_PATH),
						 errhint("Restore it from a backup, or move the directory \"kvfdw\" away to start without its tables' data.")));
			create_merge_file();
			continue;
		}
		orphans = 0;
		for (int i = 0; i < kv_shared->nslots; i++)
		{
			sequence = Max(sequence, kv_slot_header(i)->sequence);
			orphans += kv_slot_header(i)->in_use != 0;
		}
		if (header.slot_size == kv_merge_size_kb * 1024 &&
			header.nslots == configured_slots())
			break;
		if (orphans > 0)
		{
			ereport(LOG,
					(errmsg("changes of kvfdw.merge_size and kvfdw.merge_buffers wait: %d merge slots hold values",
							orphans),
					 errhint("They take effect when the server starts with no value in the merge file.")));
			break;
		}
		create_merge_file();
	}

	/* a remade file has no old sequences to go on from; the clock is beyond them */
	pg_atomic_init_u64(&kv_shared->sequence,
					   Max(sequence + 1, (uint64) GetCurrentTimestamp()));
	kv_shared->free_slots = -1;
	for (int i = kv_shared->nslots - 1; i >= 0; i--)
	{
		KvSlot	   *slot = &kv_slots[i];
		KvSlotHeader *head = kv_slot_header(i);

		memset(slot, 0, sizeof(*slot));
		slot->next = -1;
		if (head->in_use && (head->magic != KV_MAGIC_SLOT || head->open_crc != open_crc(head)))
		{
			ereport(LOG,
					(errcode(ERRCODE_DATA_CORRUPTED),
					 errmsg("merge slot %d is damaged; its values are lost", i)));
			head->in_use = 0;
		}
		if (head->in_use)
			slot->state = KV_SLOT_ORPHAN;
		else
			kv_slot_push_free(i);
	}
}

/* ---- after a restart of the operating system ---- */

/* A shard that had entries in a slot. */
typedef struct KvLoss
{
	KvStoreKey	key;
	uint32		shard;
	uint32		entries;
} KvLoss;

static List *losses = NIL;

/*
 * Forget the merge file: any part of it may be missing.  How many entries its slots
 * had is remembered, as far as it can be read.  In the postmaster.
 */
void
kv_merge_discard(void)
{
	Size		len;
	KvMergeHeader *header = kv_io_map(KV_MERGE_PATH, false, &len, KV_IO_MERGE_MAP);

	if (header != NULL && len >= KV_BLOCK && header->magic == KV_MAGIC_MERGE &&
		header->crc == header_crc(header) && header->entry_area == KV_ENTRY_AREA &&
		len == KV_BLOCK + ((Size) header->slot_size + KV_ENTRY_AREA) * header->nslots)
	{
		for (uint32 i = 0; i < header->nslots; i++)
		{
			const char *values = (char *) header + KV_BLOCK +
				((Size) header->slot_size + KV_ENTRY_AREA) * i;
			const KvSlotHeader *slot = (const KvSlotHeader *) (values + header->slot_size);
			KvLoss	   *loss;

			if (!slot->in_use || slot->magic != KV_MAGIC_SLOT || slot->open_crc != open_crc(slot))
				continue;
			loss = palloc(sizeof(KvLoss));
			loss->key.dboid = slot->dboid;
			loss->key.relid = slot->relid;
			loss->key.generation = slot->generation;
			loss->shard = slot->shard;
			loss->entries = kv_slot_count(slot);
			losses = lappend(losses, loss);
		}
	}
	if (header != NULL)
		kv_io_unmap(header, len);
	(void) kv_io_unlink(KV_MERGE_PATH);
}

/* How many entries a shard had in the merge file that was discarded. */
uint32
kv_merge_discarded(const KvStoreKey *key, uint32 shardno)
{
	uint32		n = 0;
	ListCell   *cell;

	foreach(cell, losses)
	{
		const KvLoss *loss = lfirst(cell);

		if (loss->shard == shardno && memcmp(&loss->key, key, sizeof(*key)) == 0)
			n += loss->entries;
	}
	return n;
}

/* ---- filling ---- */

/*
 * Where in the slot a value of this length goes.  Whole blocks start on a
 * block, so a 4096-byte value is one device block; small values do not
 * straddle a block boundary.
 */
static uint32
value_position(uint32 used, Size len)
{
	uint32		at = TYPEALIGN(8, used);

	if (len > 0 && len % KV_BLOCK == 0)
		return TYPEALIGN(KV_BLOCK, at);
	if (len <= KV_BLOCK / 8 && at / KV_BLOCK != (at + Max(len, 1) - 1) / KV_BLOCK)
		return TYPEALIGN(KV_BLOCK, at);
	return at;
}

/* Does the shard's open slot hold one more value and entry? */
bool
kv_slot_fits(const KvShard *shard, Size len, int keylen)
{
	const KvSlot *slot;

	if (shard->open_slot < 0)
		return false;
	slot = &kv_slots[shard->open_slot];
	if (kv_slot_header(shard->open_slot)->incarnation != kv_writing_incarnation())
		return false;			/* opened by redo */
	return value_position(slot->value_used, len) + len <= slot->capacity &&
		slot->entry_used + KV_LOG_ENTRY_SIZE(keylen) <= KV_ENTRY_ROOM;
}

/* Bytes of the value file that a slot for this shard should cover. */
Size
kv_slot_capacity(const KvShard *shard, Size len)
{
	Size		capacity = Min((Size) kv_shared->slot_size,
							   Max((Size) 16 * 1024, shard->value_tail / 4));

	return TYPEALIGN(KV_BLOCK, Max(capacity, len));
}

/*
 * Give the shard an open slot of at least len bytes.  The caller holds the
 * shard's lock exclusively and has made sure that the value file is allocated.
 * False if no slot is free.
 */
bool
kv_slot_open(KvStore *store, uint32 shardno, Size len)
{
	KvShard    *shard = kv_shard(store, shardno);
	KvSlotHeader *header;
	KvSlot	   *slot;
	int			i;

	Assert(LWLockHeldByMeInMode(&shard->lock, LW_EXCLUSIVE));
	Assert(shard->open_slot < 0);

	LWLockAcquire(&kv_shared->merge_lock, LW_EXCLUSIVE);
	i = kv_shared->free_slots;
	if (i < 0)
	{
		LWLockRelease(&kv_shared->merge_lock);
		return false;
	}
	slot = &kv_slots[i];
	kv_shared->free_slots = slot->next;
	slot->store = store;
	slot->shard = shardno;
	slot->state = KV_SLOT_OPEN;
	LWLockRelease(&kv_shared->merge_lock);
	KV_STOP_POINT("slot_taken");

	slot->next = -1;
	slot->value_file = shard->value_file;
	slot->base = shard->value_tail;
	slot->capacity = kv_slot_capacity(shard, len);
	slot->log_number = shard->log_number;
	slot->value_used = slot->entry_used = slot->nentries = 0;
	slot->sequence = pg_atomic_fetch_add_u64(&kv_shared->sequence, 1);
	slot->hot = 0;
	memset(slot->logged, 0, sizeof(slot->logged));
	slot->batch_taken = false;
	slot->error = 0;
	Assert(slot->base + slot->capacity <= shard->value_allocated);
	shard->value_tail += slot->capacity;
	shard->open_slot = i;

	header = kv_slot_header(i);
	header->magic = KV_MAGIC_SLOT;
	header->sequence = slot->sequence;
	header->dboid = store->key.dboid;
	header->relid = store->key.relid;
	header->generation = store->key.generation;
	header->shard = shardno;
	header->incarnation = kv_writing_incarnation();
	header->value_file = slot->value_file;
	header->base = slot->base;
	header->capacity = slot->capacity;
	header->log_number = slot->log_number;
	header->open_crc = open_crc(header);
	header->sealed = 0;
	pg_write_barrier();
	header->in_use = 1;
	return true;
}

/*
 * Put a value (unless it has its place already) and its entry
 * into the open slot, which fits them.  Completes version's location and crc,
 * which comes in as kv_value_crc_begin left it.  Lock held exclusively.
 */
void
kv_slot_put(KvStore *store, KvShard *shard, KvKey key, KvVersion *version,
			KvForm form, const char *value, uint32 crc, KvPlacing placing)
{
	int			i = shard->open_slot;
	KvSlot	   *slot = &kv_slots[i];
	char	   *values = kv_slot_values(i);
	KvLogEntry *entry = (KvLogEntry *) (kv_slot_entries(i) + slot->entry_used);

	if (placing == KV_IN_SLOT)
	{
		uint32		at = value_position(slot->value_used, version->len);

		/* padding is zero, so nothing of a slot's former life gets out */
		memset(values + slot->value_used, 0, at - slot->value_used);
		memcpy(values + at, value, version->len);
		slot->value_used = at + version->len;
		version->location = KV_LOCATION_MAKE(form, slot->value_file, slot->base + at);
	}
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
	entry->crc = kv_log_entry_crc(entry, slot->sequence);
	slot->entry_used += KV_LOG_ENTRY_SIZE(key.len);
	slot->nentries++;
}

/* Complete a slot's image and its batch; the log offset is reserved already. */
void
kv_slot_seal_image(int i, uint32 value_bytes, uint32 entry_bytes, uint32 nentries,
		   uint64 log_offset)
{
	KvSlotHeader *header = kv_slot_header(i);
	KvLogBatch *batch = kv_slot_batch(i);

	memset(kv_slot_values(i) + value_bytes, 0,
		   TYPEALIGN(KV_BLOCK, value_bytes) - value_bytes);
	memset(batch, 0, sizeof(*batch));
	batch->magic = KV_MAGIC_BATCH;
	batch->sequence = header->sequence;
	batch->dboid = header->dboid;
	batch->relid = header->relid;
	batch->generation = header->generation;
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
	header->seal_crc = kv_slot_seal_crc(header);
	pg_write_barrier();
	header->sealed = 1;
}

/*
 * Seal the shard's open slot and hand it to the merge writer.  Lock held
 * exclusively.  An empty slot is sealed like any other.
 */
void
kv_slot_seal(KvStore *store, uint32 shardno)
{
	KvShard    *shard = kv_shard(store, shardno);
	int			i = shard->open_slot;
	KvSlot	   *slot = &kv_slots[i];
	uint32		used = TYPEALIGN(KV_BLOCK, slot->value_used);

	Assert(LWLockHeldByMeInMode(&shard->lock, LW_EXCLUSIVE));
	kv_slot_seal_image(i, slot->value_used, slot->entry_used, slot->nentries, shard->log_tail);
	shard->log_tail += sizeof(KvLogBatch) + slot->entry_used;

	/* what it did not use is the next slot's, unless an extent came behind it */
	if (shard->value_tail == slot->base + slot->capacity)
		shard->value_tail = slot->base + used;
	slot->capacity = used;
	slot->next = shard->sealed_slots;
	shard->sealed_slots = i;
	shard->open_slot = -1;

	LWLockAcquire(&kv_shared->merge_lock, LW_EXCLUSIVE);
	slot->state = KV_SLOT_SEALED;
	LWLockRelease(&kv_shared->merge_lock);
	kv_wake_writer();
}

/* The value just put is one that is read or written often.  Lock held exclusively. */
void
kv_slot_mark_hot(const KvShard *shard, KvLocation location)
{
	KvSlot	   *slot = &kv_slots[shard->open_slot];

	slot->hot |= kv_cache_hot_bit(KV_LOCATION_OFFSET(location) - slot->base);
}

/*
 * The value of a version that is still in a slot, or NULL: it is in the value
 * file.  The caller holds the shard's lock, shared at least, for as long as it
 * uses the pointer.
 */
const char *
kv_slot_find(const KvShard *shard, const KvVersion *version)
{
	uint64		offset = KV_LOCATION_OFFSET(version->location);
	uint32		file = KV_LOCATION_FILE(version->location);
	int			i = shard->open_slot >= 0 ? shard->open_slot : shard->sealed_slots;

	while (i >= 0)
	{
		const KvSlot *slot = &kv_slots[i];

		if (file == slot->value_file && offset >= slot->base &&
			offset < slot->base + slot->capacity)
			return kv_slot_values(i) + (offset - slot->base);
		i = (i == shard->open_slot) ? shard->sealed_slots : slot->next;
	}
	return NULL;
}
