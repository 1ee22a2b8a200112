/*
 * mergefile.c
 *		The file of merge slots: where a shard's newest values gather (fill.c) until
 *		one large direct write takes them to the value file (drain.c).
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
 * What a dead server left is looked at for stores at wal level 'none' alone, and
 * there only where the page cache is believed (restart/trust.c); what the slots of others
 * held is in the WAL.
 *
 * Slot contents are guarded by the shard's lock, slot states by KvSlotPool.lock.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "storage/shmem.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

#include "engine/base/crc.h"
#include "engine/base/shared.h"
#include "engine/base/types.h"
#include "engine/format/format.h"
#include "engine/io/io.h"
#include "engine/slot/slot.h"

#define KV_MERGE_TEMPORARY	KV_DIRECTORY "/merge.tmp"

typedef struct KvSlotFileHeader
{
	uint32		magic;
	uint32		format_version;
	uint64		system_identifier;
	uint32		slot_size;
	uint32		entry_area;
	uint32		nslots;
	uint32		crc;
} KvSlotFileHeader;

static int	merge_size_kb = 256;
static int	merge_buffers_mb = 16;

KvSlotPool *kv_slot_pool = NULL;
KvSlot	   *kv_slots = NULL;
static char *merge_base = NULL; /* the mapping; the same in all processes */

static Size
slot_stride(void)
{
	return (Size) kv_slot_pool->slot_size + KV_ENTRY_AREA;
}

char *
kv_slot_values(int slot)
{
	return merge_base + KV_BLOCK + slot_stride() * slot;
}

KvSlotHeader *
kv_slot_header(int slot)
{
	return (KvSlotHeader *) (kv_slot_values(slot) + kv_slot_pool->slot_size);
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

uint32
kv_slot_open_crc(const KvSlotHeader *header)
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

/* The slot is nobody's from here on.  KvSlotPool.lock held, or nobody else is there. */
void
kv_slot_push_free(int i)
{
	kv_slots[i].state = KV_SLOT_FREE;
	kv_slots[i].store = NULL;
	kv_slots[i].next = kv_slot_pool->first_free;
	kv_slot_pool->first_free = i;
}

/* ---- start-up ---- */

void
kv_slots_gucs(void)
{
	DefineCustomIntVariable("kvfdw.merge_size",
							"Size of a merge slot: the largest single write to a value file.",
							NULL, &merge_size_kb, 256, 64, 4096,
							PGC_POSTMASTER, GUC_UNIT_KB, NULL, NULL, NULL);
	DefineCustomIntVariable("kvfdw.merge_buffers",
							"Size of the merge file, which all tables share.",
							NULL, &merge_buffers_mb, 16, 4, 65536,
							PGC_POSTMASTER, GUC_UNIT_MB, NULL, NULL, NULL);
}

void
kv_slots_init(void)
{
	LWLockInitialize(&kv_slot_pool->lock, kv_tranche_room);
	ConditionVariableInit(&kv_slot_pool->freed);
	pg_atomic_init_u32(&kv_slot_pool->write_error, 0);
}

static int
configured_slots(void)
{
	Size		stride = (Size) merge_size_kb * 1024 + KV_ENTRY_AREA;

	return Max(8, (int) ((Size) merge_buffers_mb * 1024 * 1024 / stride));
}

static uint32
header_crc(const KvSlotFileHeader *header)
{
	return kv_crc(header, offsetof(KvSlotFileHeader, crc));
}

static void
create_merge_file(void)
{
	KvSlotFileHeader header = {0};
	Size		stride = (Size) merge_size_kb * 1024 + KV_ENTRY_AREA;
	Size		len;
	char	   *map;

	header.magic = KV_MAGIC_SLOT_FILE;
	header.format_version = KV_FORMAT_VERSION;
	header.system_identifier = GetSystemIdentifier();
	header.slot_size = merge_size_kb * 1024;
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
	if ((errno = kv_io_rename(KV_MERGE_TEMPORARY, KV_SLOT_FILE_PATH)) != 0)
		kv_io_error(FATAL, errno, KV_MERGE_TEMPORARY, "rename");
}

/* The merge file's header, if it is one of this cluster that can be used. */
static bool
read_header(KvSlotFileHeader *header, Size *len)
{
	bool		found = kv_io_slurp_piece(KV_SLOT_FILE_PATH, 0, header, sizeof(*header), len);

	return found && header->magic == KV_MAGIC_SLOT_FILE && header->crc == header_crc(header) &&
		header->entry_area == KV_ENTRY_AREA && header->nslots > 0 &&
		*len == KV_BLOCK + ((Size) header->slot_size + KV_ENTRY_AREA) * header->nslots;
}

/*
 * Is there a merge file whose slots can be read?  All of it is: a page that cannot be
 * would be a PANIC at its first use (io/guard.c), and another at the next start.
 */
bool
kv_slots_are_sound(void)
{
	KvSlotFileHeader header;
	Size		len;

	return read_header(&header, &len) && header.format_version == KV_FORMAT_VERSION &&
		header.system_identifier == GetSystemIdentifier() &&
		kv_io_read_through(KV_SLOT_FILE_PATH, KV_IO_MERGE_MAP) == 0;
}

/*
 * Bytes of shared memory for the slot array.  An existing merge file may have
 * more slots than the GUCs now ask for; it is replaced only when empty.
 */
Size
kv_slots_memory(void)
{
	int			nslots = configured_slots();
	KvSlotFileHeader header;
	Size		len;

	if (read_header(&header, &len))
		nslots = Max(nslots, header.nslots);
	return mul_size(nslots, sizeof(KvSlot));
}

void
kv_slots_attach(void)
{
	bool		found;

	kv_slots = ShmemInitStruct("kvfdw merge slots", kv_slots_memory(), &found);
}

/* Map the merge file, which is sound. */
static void
map_merge_file(void)
{
	static Size len = 0;
	KvSlotFileHeader *header;
	static KvIoGuard guard;

	if (merge_base != NULL)
	{
		kv_io_unguard(&guard);
		kv_io_unmap(merge_base, len);
	}
	merge_base = kv_io_map(KV_SLOT_FILE_PATH, true, &len, KV_IO_MERGE_MAP);
	if (merge_base == NULL)
		kv_io_error(FATAL, errno, KV_SLOT_FILE_PATH, "map");
	kv_io_guard_file(&guard, KV_SLOT_FILE_PATH, merge_base, len);
	header = (KvSlotFileHeader *) merge_base;
	kv_slot_pool->slot_size = header->slot_size;
	kv_slot_pool->nslots = header->nslots;
}

/* Is the slot of a store whose versions are in the WAL? */
static bool
is_logged(const KvSlotHeader *header)
{
	KvStoreKey	found;
	uint64		id;
	KvWalLevel	level;

	return kv_table_file_identify(kv_path_in_store(&header->store, "table"), &found, &id,
								  &level) &&
		kv_same_store(&found, &header->store) && level != KV_WAL_NONE;
}

/*
 * Give slots free whose header is damaged, which is reported, or whose store has all
 * its versions in the WAL.  Returns how many are left.
 */
static int
release_slots(uint64 *sequence)
{
	int			used = 0;

	for (int i = 0; i < kv_slot_pool->nslots; i++)
	{
		KvSlotHeader *head = kv_slot_header(i);

		*sequence = Max(*sequence, head->sequence);
		if (!head->in_use)
			continue;
		if (head->magic != KV_MAGIC_SLOT || head->open_crc != kv_slot_open_crc(head))
		{
			ereport(WARNING,
					(errcode(ERRCODE_DATA_CORRUPTED),
					 errmsg("merge slot %d is damaged; its values are lost", i)));
			head->in_use = 0;
		}
		else if (is_logged(head))
			head->in_use = 0;
		used += head->in_use != 0;
	}
	return used;
}

/*
 * Map the merge file, making it if need be, and note what an earlier
 * incarnation left in it.  In the postmaster, after kv_incarnation_startup.
 */
void
kv_slots_start(void)
{
	uint64		sequence = 0;

	if (!kv_slots_are_sound())
		create_merge_file();	/* it was not believed, or there was none */
	for (;;)
	{
		int			used;

		map_merge_file();
		used = release_slots(&sequence);
		if (kv_slot_pool->slot_size == merge_size_kb * 1024 &&
			kv_slot_pool->nslots == configured_slots())
			break;
		if (used > 0)
		{
			ereport(LOG,
					(errmsg("changes of kvfdw.merge_size and kvfdw.merge_buffers wait: %d merge slots hold values",
							used),
					 errhint("They take effect when the server starts with no value in the merge file.")));
			break;
		}
		create_merge_file();
	}

	/* a remade file has no old sequences to go on from; the clock is beyond them */
	pg_atomic_init_u64(&kv_slot_pool->sequence,
					   Max(sequence + 1, (uint64) GetCurrentTimestamp()));
	kv_slot_pool->first_free = -1;
	for (int i = kv_slot_pool->nslots - 1; i >= 0; i--)
	{
		KvSlot	   *slot = &kv_slots[i];

		memset(slot, 0, sizeof(*slot));
		slot->next = -1;
		if (kv_slot_header(i)->in_use)
			slot->state = KV_SLOT_ORPHAN;
		else
			kv_slot_push_free(i);
	}
}

/*
 * Call visit for each slot that the merge file has, mapped or not, as far as it can be
 * read.  In the postmaster.
 */
void
kv_slots_visit_file(void (*visit) (const KvSlotHeader *slot))
{
	KvSlotFileHeader header;
	Size		len;
	Size		stride;
	char	   *area;

	if (!read_header(&header, &len))
		return;
	stride = (Size) header.slot_size + KV_ENTRY_AREA;
	area = palloc(KV_ENTRY_AREA);
	for (uint32 i = 0; i < header.nslots; i++)
	{
		if (kv_io_slurp_piece(KV_SLOT_FILE_PATH, KV_BLOCK + stride * i + header.slot_size,
							  area, KV_ENTRY_AREA, &len))
			visit((const KvSlotHeader *) area);
	}
	pfree(area);
}
