/*
 * mergefile.c
 *		The file of merge slots: where a shard's newest values gather (fill.c) until
 *		one large direct write takes them to their value file (drain.c).
 *
 * The merge file is mmap'd by every process and holds a page of geometry, the values of
 * all units, their headers, and their entries.  So the values of a slot of several units
 * are the exact image of what will be written, and so are its key-log batch and entries.
 *
 * A file of version 1 has slots that are all of one size, each with its header and entries
 * behind its values.  One with slots in use is gone on with as it is, a slot being a unit.
 *
 *   FREE ──open──▶ OPEN ──seal──▶ SEALED ──claim──▶ WRITING ──▶ FREE
 *                                    ▲                 │ write failed
 *                                    └─────────────────┘
 *   ORPHAN (left by an earlier incarnation) ──replayed by recovery──▶ FREE
 *
 * What a dead server left is looked at for stores at wal level 'none' alone, and
 * there only where the page cache is believed (restart/trust.c); what the slots of others
 * held is in the WAL.  So stores at 'none' never have all units (kv_units_kept): redo has some for the others.
 *
 * Slot contents are guarded by the shard's lock, slot states by KvSlotPool.lock.
 *
 * The kernel writes pages of the file back in its own time.  When it cannot it may drop them, and what is
 * mapped is then what the device has.  So what decides where a slot is written is in shared memory, a slot's
 * entries are compared with it before they are logged (drain.c), and no image is made before it is
 * known that no page was lost (durable/image.c).
 */
#include "postgres.h"

#include "access/xlog.h"
#include "storage/shmem.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

#include "engine/base/crc.h"
#include "engine/base/shared.h"
#include "engine/base/types.h"
#include "engine/base/wait.h"
#include "engine/base/worker.h"
#include "engine/format/format.h"
#include "engine/io/fault.h"
#include "engine/io/io.h"
#include "engine/slot/slot.h"

#define KV_UNIT_VALUES		(16 * 1024)
#define KV_UNIT_ENTRIES		(4 * 1024)
#define KV_MERGE_VERSION	2
#define KV_WHOLE_VERSION	1	/* slots of one size */
#define KV_WHOLE_ENTRIES	(32 * 1024)	/* there, header included */
#define KV_FEWEST_SLOTS		8	/* of the largest size for which there is room */

#define KV_MERGE_TEMPORARY	KV_DIRECTORY "/merge.tmp"

typedef struct KvSlotFileHeader
{
	uint32		magic;
	uint32		format_version;
	uint64		directory_id;
	uint32		unit_values;
	uint32		unit_entries;	/* version 1: with the header */
	uint32		nunits;
	uint32		crc;
} KvSlotFileHeader;

/* Where things are in the file: of unit 0, and how far from there to the next unit's. */
typedef struct KvGeometry
{
	Size		values;
	Size		headers;
	Size		batches;
	Size		values_step;
	Size		headers_step;
	Size		batches_step;
	Size		length;			/* of the file */
	Size		entries;		/* bytes of a unit, for a slot's batch head and entries */
} KvGeometry;

static int	merge_size_kb = 256;
static int	merge_buffers_mb = 64;

/* The mapping, and what its first page says: that page may be lost.  The same in all processes. */
static char *merge_base = NULL;
static KvSlotFileHeader file_header;
static KvGeometry geometry;

static KvGeometry
geometry_of(const KvSlotFileHeader *header)
{
	KvGeometry	file = {.values = KV_BLOCK};

	if (header->format_version == KV_WHOLE_VERSION)
	{
		Size		step = (Size) header->unit_values + header->unit_entries;

		file.headers = file.values + header->unit_values;
		file.batches = file.headers + sizeof(KvSlotHeader);
		file.values_step = file.headers_step = file.batches_step = step;
		file.length = file.values + step * header->nunits;
		file.entries = header->unit_entries - sizeof(KvSlotHeader);
		return file;
	}
	file.values_step = header->unit_values;
	file.headers = file.values + file.values_step * header->nunits;
	file.headers_step = sizeof(KvSlotHeader);
	file.batches = TYPEALIGN(KV_BLOCK, file.headers + file.headers_step * header->nunits);
	file.batches_step = file.entries = header->unit_entries;
	file.length = file.batches + file.batches_step * header->nunits;
	return file;
}

char *
kv_slot_values(int slot)
{
	return merge_base + geometry.values + geometry.values_step * slot;
}

KvSlotHeader *
kv_slot_header(int slot)
{
	return (KvSlotHeader *) (merge_base + geometry.headers + geometry.headers_step * slot);
}

KvLogBatch *
kv_slot_batch(int slot)
{
	return (KvLogBatch *) (merge_base + geometry.batches + geometry.batches_step * slot);
}

char *
kv_slot_entries(int slot)
{
	return (char *) (kv_slot_batch(slot) + 1);
}

Size
kv_slot_entry_room(int slot)
{
	return geometry.entries * kv_slots[slot].units - sizeof(KvLogBatch);
}

/* Of slots of a file's shape. */
static int
units_for(const KvSlotFileHeader *header, Size capacity)
{
	if (header->format_version == KV_WHOLE_VERSION)
		return 1;
	return Max((capacity + header->unit_values - 1) / header->unit_values, 1);
}

int
kv_slot_units(Size capacity)
{
	return units_for(&file_header, capacity);
}

/* ---- bits for entries, behind the array of units ---- */

static Size
words_of_unit(Size entries)
{
	return entries / sizeof(KvLogEntry) / 64 + 1;
}

uint64 *
kv_slot_logged(int slot)
{
	return (uint64 *) (kv_slots + kv_slot_pool->nunits) + words_of_unit(geometry.entries) * slot;
}

void
kv_slot_clear_logged(int slot)
{
	memset(kv_slot_logged(slot), 0,
		   words_of_unit(geometry.entries) * kv_slots[slot].units * sizeof(uint64));
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

/* ---- start-up ---- */

void
kv_slots_gucs(void)
{
	DefineCustomIntVariable("kvfdw.merge_size",
							"Largest merge slot: the largest single write to a value file.",
							NULL, &merge_size_kb, 256, 64, 4096,
							PGC_POSTMASTER, GUC_UNIT_KB, NULL, NULL, NULL);
	DefineCustomIntVariable("kvfdw.merge_buffers",
							"Size of the merge file, which all tables share.",
							NULL, &merge_buffers_mb, 64, 4, 65536,
							PGC_POSTMASTER, GUC_UNIT_MB, NULL, NULL, NULL);
}

void
kv_slots_init(void)
{
	LWLockInitialize(&kv_slot_pool->lock, kv_tranche_room);
	ConditionVariableInit(&kv_slot_pool->freed);
	pg_atomic_init_u32(&kv_slot_pool->crowded, 0);
	pg_atomic_init_u32(&kv_slot_pool->drops, 0);
}

/* Bytes of values of the largest slot, in a file that is made now. */
static Size
configured_size(void)
{
	return TYPEALIGN_DOWN(KV_UNIT_VALUES, (Size) merge_size_kb * 1024);
}

static int
configured_units(void)
{
	Size		units = (Size) merge_buffers_mb * 1024 * 1024 / (KV_UNIT_VALUES + KV_UNIT_ENTRIES);

	if (kv_fault_merge_units() > 0)
		return kv_fault_merge_units();
	return Max(units, KV_FEWEST_SLOTS * configured_size() / KV_UNIT_VALUES);
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
	Size		len;
	char	   *map;

	header.magic = KV_MAGIC_SLOT_FILE;
	header.format_version = KV_MERGE_VERSION;
	header.directory_id = kv_directory_id();
	header.unit_values = KV_UNIT_VALUES;
	header.unit_entries = KV_UNIT_ENTRIES;
	header.nunits = configured_units();
	header.crc = header_crc(&header);
	len = geometry_of(&header).length;
	kv_io_create_zeroed(KV_MERGE_TEMPORARY, len, KV_IO_MERGE_MAP);
	map = kv_io_map(KV_MERGE_TEMPORARY, true, &len, KV_IO_MERGE_MAP);
	if (map == NULL)
		kv_io_error(FATAL, errno, KV_MERGE_TEMPORARY, "map");
	memcpy(map, &header, sizeof(header));
	kv_io_unmap(map, len);
	if ((errno = kv_io_rename(KV_MERGE_TEMPORARY, KV_SLOT_FILE_PATH)) != 0)
		kv_io_error(FATAL, errno, KV_MERGE_TEMPORARY, "rename");
}

/* The merge file's header, if it is one of a version that is known and can be used. */
static bool
read_header(KvSlotFileHeader *header)
{
	Size		len;
	bool		found = kv_io_slurp_piece(KV_SLOT_FILE_PATH, 0, header, sizeof(*header), &len);

	return found && header->magic == KV_MAGIC_SLOT_FILE && header->crc == header_crc(header) &&
		((header->format_version == KV_MERGE_VERSION &&
		  header->unit_values == KV_UNIT_VALUES && header->unit_entries == KV_UNIT_ENTRIES) ||
		 (header->format_version == KV_WHOLE_VERSION &&
		  header->unit_entries == KV_WHOLE_ENTRIES)) &&
		header->nunits > 0 && len == geometry_of(header).length;
}

/* A page that cannot be read would be a PANIC at its first use (io/guard.c), at each start. */
bool
kv_slots_are_sound(void)
{
	KvSlotFileHeader header;

	return read_header(&header) && header.directory_id == kv_directory_id() &&
		kv_io_read_through(KV_SLOT_FILE_PATH, KV_IO_MERGE_MAP) == 0;
}

static Size
memory_for(Size nunits, Size entries)
{
	return mul_size(nunits, sizeof(KvSlot) + words_of_unit(entries) * sizeof(uint64));
}

/* A file that exists may have more units than the settings ask for: it is replaced when empty. */
Size
kv_slots_memory(void)
{
	Size		size = memory_for(configured_units(), KV_UNIT_ENTRIES);
	KvSlotFileHeader header;

	if (read_header(&header))
		size = Max(size, memory_for(header.nunits, geometry_of(&header).entries));
	return size;
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
	const KvSlotFileHeader *header = &file_header;
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
	memcpy(&file_header, merge_base, sizeof(file_header));
	geometry = geometry_of(header);
	kv_slot_pool->nunits = header->nunits;
	kv_slot_pool->unit_values = header->unit_values;
	kv_slot_pool->unit_entries = geometry.entries;
	kv_slot_pool->whole = header->format_version == KV_WHOLE_VERSION;
	kv_slot_pool->slot_size = kv_slot_pool->whole ?
		TYPEALIGN_DOWN(KV_BLOCK, header->unit_values) :
		Min(configured_size(), (Size) header->nunits * KV_UNIT_VALUES);
}

static bool
is_sound(const KvSlotHeader *header)
{
	return header->magic == KV_MAGIC_SLOT && header->open_crc == kv_slot_open_crc(header);
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

bool
kv_slot_outlived(const KvSlotHeader *header)
{
	return access(kv_path_store(&header->store), F_OK) != 0 && errno == ENOENT;
}

/*
 * Give slots free whose header is damaged, which is reported, or whose store has all
 * its versions in the WAL, or is no more.  Returns how many are left.
 */
static int
release_slots(uint64 *sequence)
{
	int			used = 0;
	int			behind = 0;		/* the slots met so far */

	for (int i = 0; i < kv_slot_pool->nunits; i++)
	{
		KvSlotHeader *head = kv_slot_header(i);

		*sequence = Max(*sequence, head->sequence);
		if (!head->in_use)
			continue;
		if (!is_sound(head) || i < behind || i + kv_slot_units(head->capacity) > kv_slot_pool->nunits)
		{
			ereport(WARNING,
					(errcode(ERRCODE_DATA_CORRUPTED),
					 errmsg("merge slot %d is damaged; its values are lost", i)));
			head->in_use = 0;
		}
		else if (is_logged(head) || kv_slot_outlived(head))
			head->in_use = 0;
		else
		{
			behind = i + kv_slot_units(head->capacity);
			used++;
		}
	}
	return used;
}

/* No slot is in use, but those that an earlier incarnation left. */
static void
begin_pool(void)
{
	kv_slot_pool->nfree = kv_slot_pool->nopen = kv_slot_pool->hand = 0;
	kv_slot_pool->first_pending = kv_slot_pool->last_pending = -1;
	memset(kv_slots, 0, memory_for(kv_slot_pool->nunits, geometry.entries));
	for (int i = 0; i < kv_slot_pool->nunits; i++)
	{
		KvSlot	   *slot = &kv_slots[i];

		slot->next = slot->following = slot->previous = -1;
		if (slot->state == KV_SLOT_PART)
			continue;
		if (kv_slot_header(i)->in_use)
		{
			slot->units = kv_slot_units(kv_slot_header(i)->capacity);
			slot->state = KV_SLOT_ORPHAN;
			for (int part = 1; part < slot->units; part++)
				slot[part].state = KV_SLOT_PART;
			continue;
		}
		kv_slot_pool->nfree++;
	}
	kv_units_join();
}

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
		if (!kv_slot_pool->whole && kv_slot_pool->nunits == configured_units())
			break;
		if (used > 0)
		{
			ereport(LOG,
					(errmsg("the merge file keeps its old shape: %d merge slots hold values",
							used),
					 errhint("It gets what kvfdw.merge_buffers says when the server starts with no value in it.")));
			break;
		}
		create_merge_file();
	}

	/* a remade file has no old sequences to go on from; the clock is beyond them */
	pg_atomic_init_u64(&kv_slot_pool->sequence,
					   Max(sequence + 1, (uint64) GetCurrentTimestamp()));
	begin_pool();
}

void
kv_slots_visit_file(void (*visit) (const KvSlotHeader *slot, const char *entries, Size room))
{
	KvSlotFileHeader file;
	KvGeometry	at;

	if (!read_header(&file))
		return;
	at = geometry_of(&file);
	for (uint32 i = 0; i < file.nunits; i++)
	{
		KvSlotHeader header;
		Size		room;
		Size		len;
		char	   *batch;

		if (!kv_io_slurp_piece(KV_SLOT_FILE_PATH, at.headers + at.headers_step * i, &header,
							   sizeof(header), &len) ||
			!header.in_use || !is_sound(&header))
			continue;
		room = at.entries * Min(units_for(&file, header.capacity), file.nunits - i);
		batch = palloc(room);
		if (kv_io_slurp_piece(KV_SLOT_FILE_PATH, at.batches + at.batches_step * i, batch, room, &len))
			visit(&header, batch + sizeof(KvLogBatch), room - sizeof(KvLogBatch));
		pfree(batch);
	}
}

bool
kv_slots_pending(void)
{
	return kv_slot_pool->first_pending >= 0 || pg_atomic_read_u32(&kv_slot_pool->crowded) > 0;
}

void
kv_slots_wake_writer(void)
{
	kv_wake(kv_slot_pool->writer_latch);
	if (kv_slot_pool->writer_latch == NULL)
		(void) kv_worker_need(KV_WORKER_MERGE_WRITER);
}
