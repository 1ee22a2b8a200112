/*
 * bufferfile.c
 *		The file of write buffers, and its units: free ones, their combination into buffers, and the
 *		share of a shard.
 *
 * A shard's newest values collect in a buffer (fill.c) until one large direct write takes them to
 * their value file (drain.c).  Every process maps the buffer file.  It has a page of geometry, the
 * values of all units, their headers, and their entries.  So the values of a buffer of several
 * units are the exact image of what will be written, and so are its key-log batch and entries.
 *
 * FREE ──open──▶ OPEN ──seal──▶ SEALED ──claim──▶ WRITING ──▶ FREE
 *                                     ▲                 │ write failed
 *                                     └─────────────────┘
 * ORPHAN (left by an earlier incarnation) ──replayed by recovery──▶ FREE
 *
 * Buffers of a dead server are used only for stores at wal level 'none', and only where the page
 * cache is trusted (restart/trust.c).  The WAL has the values of other stores.  So stores at 'none'
 * never have all units (kv_units_kept): redo has some for the others.
 *
 * Locks: the shard's lock guards buffer contents, KvBufferPool.lock buffer states.
 *
 * The kernel writes pages of the file back in its own time.  If it cannot, it may drop them, and
 * the mapping then shows what the device has.  So the target of a buffer's write is kept in shared
 * memory.  A buffer's entries are compared with shared memory before they are logged (drain.c).  No
 * mark is made before it is known that no page was lost (durable/mark.c).
 *
 * Units: Adjacent free units are a row.  Rows are in lists, by their number of units.  A buffer
 * that is freed becomes a row, and the last one of its size is used again first, so as few pages
 * as possible are in use.  Adjacent rows are joined when no row is large enough.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "storage/shmem.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

#include "engine/base/hash.h"
#include "engine/base/shared.h"
#include "engine/base/types.h"
#include "engine/base/wait.h"
#include "engine/base/worker.h"
#include "engine/buffer/buffer.h"
#include "engine/buffer/internal.h"
#include "engine/format/format.h"
#include "engine/format/path.h"
#include "engine/io/fault.h"
#include "engine/io/io.h"
#include "engine/io/map.h"
#include "engine/io/name.h"
#include "engine/maintenance.h"

/* ---- units ---- */

/* Open buffers share so many of four quarters of the units. */
#define KV_OPEN_QUARTERS	3
#define KV_KEPT_SHARE	16		/* one in so many is never used by tables at level 'none' */

KvBufferPool *kv_buffer_pool = NULL;
KvWriteBuffer *kv_buffers = NULL;

Size
kv_buffer_share(void)
{
	/* an outdated number of open buffers is as good */
	int			units = (int64) kv_buffer_pool->nunits * KV_OPEN_QUARTERS / 4 /
		(kv_buffer_pool->nopen + 1);

	return (Size) Max(units, 1) * kv_buffer_pool->unit_values;
}

/* ---- rows of free units ---- */

static int
list_of(int units)
{
	return Min(units, KV_UNIT_LISTS) - 1;
}

static void
add_row(int first, int units)
{
	int        *list = &kv_buffer_pool->rows[list_of(units)];

	kv_buffers[first].units = units;
	kv_buffers[first].previous = -1;
	kv_buffers[first].following = *list;
	if (*list >= 0)
		kv_buffers[*list].previous = first;
	*list = first;
}

static void
remove_row(int first)
{
	const KvWriteBuffer *row = &kv_buffers[first];

	if (row->previous >= 0)
		kv_buffers[row->previous].following = row->following;
	else
		kv_buffer_pool->rows[list_of(row->units)] = row->following;
	if (row->following >= 0)
		kv_buffers[row->following].previous = row->previous;
	kv_buffers[first].units = 0;
}

/* Makes rows of all FREE units. */
static void
join_rows(void)
{
	int			first = -1;

	for (int list = 0; list < KV_UNIT_LISTS; list++)
		kv_buffer_pool->rows[list] = -1;
	for (int i = 0; i <= kv_buffer_pool->nunits;)
	{
		if (i < kv_buffer_pool->nunits && kv_buffers[i].state == KV_BUFFER_FREE)
		{
			first = first < 0 ? i : first;
			kv_buffers[i++].units = 0;
			continue;
		}
		if (first >= 0)
			add_row(first, i - first);
		first = -1;
		i += i < kv_buffer_pool->nunits ? Max(kv_buffers[i].units, 1) : 1;
	}
	kv_buffer_pool->joined = true;
}

/* A row of at least so many units; -1: there is none. */
static int
find_row(int units)
{
	for (int list = list_of(units); list < KV_UNIT_LISTS; list++)
	{
		int			row = kv_buffer_pool->rows[list];

		/* the last list has rows of different sizes */
		while (row >= 0 && kv_buffers[row].units < units)
			row = kv_buffers[row].following;
		if (row >= 0)
			return row;
	}
	return -1;
}

/* The same, after adjacent rows were joined if necessary. */
static int
find_row_or_join(int units)
{
	int			row = find_row(units);

	if (row >= 0 || kv_buffer_pool->joined || kv_buffer_pool->nfree < units)
		return row;
	join_rows();
	return find_row(units);
}

int
kv_units_kept(const KvStore *store)
{
	return store->shape.wal == KV_WAL_NONE ? Max(kv_buffer_pool->nunits / KV_KEPT_SHARE, 1) : 0;
}

/* A row that a buffer may use if so many units are kept; -1: there is none. */
static int
find_row_kept(int units, int kept)
{
	return kv_buffer_pool->nfree - units < kept ? -1 : find_row_or_join(units);
}

bool
kv_units_are_free(int units, int kept)
{
	return find_row_kept(units, kept) >= 0;
}

int
kv_units_take(int wanted, int least, int kept)
{
	int			buffer;
	int			left;

	Assert(LWLockHeldByMeInMode(&kv_buffer_pool->lock, LW_EXCLUSIVE));
	while ((buffer = find_row_kept(wanted, kept)) < 0)
	{
		if (wanted == least)
			return -1;
		wanted = Max(least, wanted / 2);
	}
	left = kv_buffers[buffer].units - wanted;
	remove_row(buffer);
	if (left > 0)
		add_row(buffer + wanted, left);
	for (int i = buffer; i < buffer + wanted; i++)
	{
		Assert(kv_buffers[i].state == KV_BUFFER_FREE);
		kv_buffers[i].state = KV_BUFFER_PART;
	}
	kv_buffers[buffer].state = KV_BUFFER_OPEN;
	kv_buffers[buffer].units = wanted;
	kv_buffer_pool->nfree -= wanted;
	kv_buffer_pool->entered += wanted;
	kv_buffer_pool->nopen++;
	return buffer;
}

void
kv_units_free(int buffer)
{
	int			units = kv_buffers[buffer].units;

	if (kv_buffers[buffer].state == KV_BUFFER_OPEN)
		kv_buffer_pool->nopen--;
	for (int i = buffer; i < buffer + units; i++)
	{
		kv_buffers[i].state = KV_BUFFER_FREE;
		kv_buffers[i].store = NULL;
	}
	add_row(buffer, units);
	kv_buffer_pool->nfree += units;
	kv_buffer_pool->joined = false;
}

void
kv_buffers_stats(KvCacheStats *stats)
{
	uint64		used;

	LWLockAcquire(&kv_buffer_pool->lock, LW_SHARED);
	used = kv_buffer_pool->nunits - kv_buffer_pool->nfree;
	stats->enabled = true;
	stats->block_size = kv_buffer_pool->unit_values;
	stats->inserted = kv_buffer_pool->entered;
	stats->evictions = kv_buffer_pool->used_then + kv_buffer_pool->entered;
	/* buffers that a dead server left were not counted */
	stats->evictions -= Min(stats->evictions, used);
	stats->size_bytes = kv_buffer_pool->nunits * stats->block_size;
	stats->used_bytes = used * stats->block_size;
	LWLockRelease(&kv_buffer_pool->lock);
}

void
kv_buffers_stats_reset(void)
{
	LWLockAcquire(&kv_buffer_pool->lock, LW_EXCLUSIVE);
	kv_buffer_pool->entered = 0;
	kv_buffer_pool->used_then = kv_buffer_pool->nunits - kv_buffer_pool->nfree;
	LWLockRelease(&kv_buffer_pool->lock);
}

/* ---- buffers that are to be written ---- */

void
kv_buffer_queue(int buffer)
{
	int			last = kv_buffer_pool->last_pending;

	kv_buffers[buffer].state = KV_BUFFER_SEALED;
	kv_buffers[buffer].following = -1;
	kv_buffers[buffer].previous = last;
	if (last >= 0)
		kv_buffers[last].following = buffer;
	else
		kv_buffer_pool->first_pending = buffer;
	kv_buffer_pool->last_pending = buffer;
	kv_buffer_pool->nopen--;
}

void
kv_buffer_unqueue(int buffer)
{
	int			next = kv_buffers[buffer].following;
	int			previous = kv_buffers[buffer].previous;

	if (previous >= 0)
		kv_buffers[previous].following = next;
	else
		kv_buffer_pool->first_pending = next;
	if (next >= 0)
		kv_buffers[next].previous = previous;
	else
		kv_buffer_pool->last_pending = previous;
}

/* ---- the file ---- */

#define KV_UNIT_VALUES		(16 * 1024)
#define KV_UNIT_ENTRIES		(4 * 1024)
#define KV_FEWEST_BUFFERS		4 /* of the largest size for which the file has space */
#define KV_LARGEST_VALUE	((Size) 256 * 1024)	/* in a buffer */
#define KV_LEAST_MB			4
#define KV_MOST_MB			65536
#define KV_MOST_SHARE_MB	2048	/* of kvfdw.memory: the file is made at the first start */

#define KV_BUFFER_FILE_TEMPORARY	KV_DIRECTORY "/buffers.tmp"

typedef struct KvBufferFileHeader
{
	uint32		magic;
	uint32		format_version;
	uint64		directory_id;
	uint32		unit_values;
	uint32		unit_entries;
	uint32		nunits;
	uint32		crc;
} KvBufferFileHeader;

/* Offsets in the file: of unit 0, and the distance to the next unit. */
typedef struct KvGeometry
{
	Size		values;
	Size		headers;
	Size		batches;
	Size		values_step;
	Size		headers_step;
	Size		batches_step;
	Size		length;			/* of the file */
	Size		entries;		/* bytes of a unit for a buffer's batch head and entries */
} KvGeometry;

static int	write_buffer_size_kb = 16384;
static int	write_buffers_mb;

/* The mapping, and a copy of its first page, which may be lost.  The same in all processes. */
static char *buffer_base = NULL;
static KvBufferFileHeader file_header;
static KvGeometry geometry;

static KvGeometry
geometry_of(const KvBufferFileHeader *header)
{
	KvGeometry	file = {.values = KV_BLOCK};

	file.values_step = header->unit_values;
	file.headers = file.values + file.values_step * header->nunits;
	file.headers_step = sizeof(KvBufferHeader);
	file.batches = TYPEALIGN(KV_BLOCK, file.headers + file.headers_step * header->nunits);
	file.batches_step = file.entries = header->unit_entries;
	file.length = file.batches + file.batches_step * header->nunits;
	return file;
}

char *
kv_buffer_values(int buffer)
{
	return buffer_base + geometry.values + geometry.values_step * buffer;
}

KvBufferHeader *
kv_buffer_header(int buffer)
{
	return (KvBufferHeader *) (buffer_base + geometry.headers + geometry.headers_step * buffer);
}

KvLogBatch *
kv_buffer_batch(int buffer)
{
	return (KvLogBatch *) (buffer_base + geometry.batches + geometry.batches_step * buffer);
}

char *
kv_buffer_entries(int buffer)
{
	return (char *) (kv_buffer_batch(buffer) + 1);
}

Size
kv_buffer_entry_room(int buffer)
{
	return geometry.entries * kv_buffers[buffer].units - sizeof(KvLogBatch);
}

/* The number of units by the geometry of a file. */
static int
units_for(const KvBufferFileHeader *header, Size capacity)
{
	return Max((capacity + header->unit_values - 1) / header->unit_values, 1);
}

int
kv_buffer_units(Size capacity)
{
	return units_for(&file_header, capacity);
}

/* ---- bits for entries, after the array of units ---- */

static Size
words_of_unit(Size entries)
{
	return entries / sizeof(KvLogEntry) / 64 + 1;
}

uint64 *
kv_buffer_logged(int buffer)
{
	return (uint64 *) (kv_buffers + kv_buffer_pool->nunits) + words_of_unit(geometry.entries) *
		buffer;
}

void
kv_buffer_clear_logged(int buffer)
{
	memset(kv_buffer_logged(buffer), 0,
		   words_of_unit(geometry.entries) * kv_buffers[buffer].units * sizeof(uint64));
}

uint32
kv_buffer_open_crc(const KvBufferHeader *header)
{
	return kv_crc(&header->sequence,
				  offsetof(KvBufferHeader, open_crc) - offsetof(KvBufferHeader, sequence));
}

uint32
kv_buffer_seal_crc(const KvBufferHeader *header)
{
	pg_crc32c	crc;

	INIT_CRC32C(crc);
	COMP_CRC32C(crc, &header->sequence, sizeof(header->sequence));
	COMP_CRC32C(crc, (const char *) header + offsetof(KvBufferHeader, log_offset),
				offsetof(KvBufferHeader, seal_crc) - offsetof(KvBufferHeader, log_offset));
	FIN_CRC32C(crc);
	return crc;
}

/* ---- start-up ---- */

static bool
check_write_buffers(int *value, void **extra, GucSource source)
{
	kv_share_check(value, &write_buffers_mb);
	if (source == PGC_S_DYNAMIC_DEFAULT || source == PGC_S_OVERRIDE)
		*value = Min(*value, KV_MOST_SHARE_MB);
	if (*value == -1 || (*value >= KV_LEAST_MB && *value <= KV_MOST_MB))
		return true;
	GUC_check_errdetail("\"kvfdw.write_buffers\" must be -1 or %d MB to %d MB.",
						KV_LEAST_MB, KV_MOST_MB);
	return false;
}

void
kv_buffers_gucs(void)
{
	DefineCustomIntVariable("kvfdw.write_buffer_size",
							"Sets the size of the largest write buffer, and so of the largest "
							"write to a value file.",
							"At most a quarter of kvfdw.write_buffers.",
							&write_buffer_size_kb, 16384, 64, 16384,
							PGC_POSTMASTER, GUC_UNIT_KB, NULL, NULL, NULL);
	kv_share_define("kvfdw.write_buffers",
					"Sets the size of the buffer file, which has the write buffers of all tables.",
					"-1: two eighths of kvfdw.memory, on top of it, up to 2 GB. Takes effect at a "
					"start at which no write buffer is in use, as after a clean shutdown.",
					2, &write_buffers_mb, GUC_UNIT_MB, check_write_buffers);
}

void
kv_buffers_init(void)
{
	LWLockInitialize(&kv_buffer_pool->lock, kv_tranche_room);
	ConditionVariableInit(&kv_buffer_pool->freed);
	pg_atomic_init_u32(&kv_buffer_pool->crowded, 0);
	pg_atomic_init_u32(&kv_buffer_pool->drops, 0);
}

/* The bytes of values of the largest buffer, in a file that is made now. */
static Size
configured_size(void)
{
	return TYPEALIGN_DOWN(KV_UNIT_VALUES, (Size) write_buffer_size_kb * 1024);
}

static int
configured_units(void)
{
	Size		units = (Size) write_buffers_mb * 1024 * 1024 / (KV_UNIT_VALUES + KV_UNIT_ENTRIES);

	return kv_fault_buffer_units() > 0 ? kv_fault_buffer_units() : units;
}

static uint32
header_crc(const KvBufferFileHeader *header)
{
	return kv_crc(header, offsetof(KvBufferFileHeader, crc));
}

static void
create_buffer_file(void)
{
	KvBufferFileHeader header = {0};
	Size		len;
	char	   *map;

	header.magic = KV_MAGIC_BUFFER_FILE;
	header.format_version = KV_FORMAT_VERSION;
	header.directory_id = kv_directory_id();
	header.unit_values = KV_UNIT_VALUES;
	header.unit_entries = KV_UNIT_ENTRIES;
	header.nunits = configured_units();
	header.crc = header_crc(&header);
	len = geometry_of(&header).length;
	kv_io_create_zeroed(KV_BUFFER_FILE_TEMPORARY, len, KV_IO_BUFFER_MAP);
	map = kv_io_map(KV_BUFFER_FILE_TEMPORARY, true, &len, KV_IO_BUFFER_MAP);
	if (map == NULL)
		kv_io_error(FATAL, errno, KV_BUFFER_FILE_TEMPORARY, "map");
	memcpy(map, &header, sizeof(header));
	kv_io_unmap(map, len);
	if ((errno = kv_io_rename(KV_BUFFER_FILE_TEMPORARY, KV_BUFFER_FILE_PATH)) != 0)
		kv_io_error(FATAL, errno, KV_BUFFER_FILE_TEMPORARY, "rename");
}

/* Reads the buffer file's header, of whichever version, and the file's length. */
static bool
peek_header(KvBufferFileHeader *header, Size *len)
{
	return kv_io_slurp_piece(KV_BUFFER_FILE_PATH, 0, header, sizeof(*header), len) &&
		header->magic == KV_MAGIC_BUFFER_FILE && header->crc == header_crc(header);
}

/*
 * Reads the buffer file's header; false: the file is missing, or its version or geometry is
 * unknown.
 */
static bool
read_header(KvBufferFileHeader *header)
{
	Size		len;

	return peek_header(header, &len) && header->format_version == KV_FORMAT_VERSION &&
		header->unit_values == KV_UNIT_VALUES && header->unit_entries == KV_UNIT_ENTRIES &&
		header->nunits > 0 && len == geometry_of(header).length;
}

/* Reads the whole file, since an unreadable page would be a PANIC at its first use (io/map.c). */
bool
kv_buffers_are_sound(void)
{
	KvBufferFileHeader header;
	Size		len;

	if (peek_header(&header, &len))
		kv_format_require(KV_BUFFER_FILE_PATH, header.format_version, KV_FORMAT_VERSION);
	return read_header(&header) && header.directory_id == kv_directory_id() &&
		kv_io_read_through(KV_BUFFER_FILE_PATH, KV_IO_BUFFER_MAP) == 0;
}

static Size
memory_for(Size nunits, Size entries)
{
	return mul_size(nunits, sizeof(KvWriteBuffer) + words_of_unit(entries) * sizeof(uint64));
}

/*
 * An existing file may have more units than the settings ask for: it is replaced when it is empty.
 */
Size
kv_buffers_memory(void)
{
	Size		size = memory_for(configured_units(), KV_UNIT_ENTRIES);
	KvBufferFileHeader header;

	if (read_header(&header))
		size = Max(size, memory_for(header.nunits, geometry_of(&header).entries));
	return size;
}

void
kv_buffers_attach(void)
{
	bool		found;

	kv_buffers = ShmemInitStruct("kvfdw write buffers", kv_buffers_memory(), &found);
}

/* Maps the buffer file, which is sound. */
static void
map_buffer_file(void)
{
	static Size len = 0;
	const KvBufferFileHeader *header = &file_header;
	static KvIoGuard guard;

	if (buffer_base != NULL)
	{
		kv_io_unguard(&guard);
		kv_io_unmap(buffer_base, len);
	}
	buffer_base = kv_io_map(KV_BUFFER_FILE_PATH, true, &len, KV_IO_BUFFER_MAP);
	if (buffer_base == NULL)
		kv_io_error(FATAL, errno, KV_BUFFER_FILE_PATH, "map");
	kv_io_guard_file(&guard, KV_BUFFER_FILE_PATH, buffer_base, len);
	memcpy(&file_header, buffer_base, sizeof(file_header));
	geometry = geometry_of(header);
	kv_buffer_pool->nunits = header->nunits;
	kv_buffer_pool->unit_values = header->unit_values;
	kv_buffer_pool->unit_entries = geometry.entries;
	kv_buffer_pool->buffer_size =
		Min(configured_size(), (Size) KV_UNIT_VALUES * header->nunits /
			(kv_fault_buffer_units() > 0 ? 1 : KV_FEWEST_BUFFERS));
	kv_buffer_pool->largest_value = Min(kv_buffer_pool->buffer_size, KV_LARGEST_VALUE);
}

static bool
is_sound(const KvBufferHeader *header)
{
	return header->magic == KV_MAGIC_BUFFER && header->open_crc == kv_buffer_open_crc(header);
}

/* Does the WAL have the versions of the buffer's store? */
static bool
is_logged(const KvBufferHeader *header)
{
	KvStoreKey	found;
	uint64		id;
	KvWalLevel	level;

	return kv_table_file_identify(kv_path_in_store(&header->store, "table"), &found, &id,
								  &level) &&
		kv_same_store(&found, &header->store) && level != KV_WAL_NONE;
}

bool
kv_buffer_outlived(const KvBufferHeader *header)
{
	return access(kv_path_store(&header->store), F_OK) != 0 && errno == ENOENT;
}

/*
 * Frees buffers with a damaged header, which is reported, and buffers of stores that have all
 * versions in the WAL or do not exist any more.  Returns the number of those left.
 */
static int
release_buffers(uint64 *sequence)
{
	int			used = 0;
	int			end = 0;		/* end of the last buffer met */

	for (int i = 0; i < kv_buffer_pool->nunits; i++)
	{
		KvBufferHeader *head = kv_buffer_header(i);

		*sequence = Max(*sequence, head->sequence);
		if (!head->in_use)
			continue;
		if (!is_sound(head) || i < end ||
			i + kv_buffer_units(head->capacity) > kv_buffer_pool->nunits)
		{
			ereport(WARNING,
					(errcode(ERRCODE_DATA_CORRUPTED),
					 errmsg("write buffer %d is damaged; its values are lost", i)));
			head->in_use = 0;
		}
		else if (is_logged(head) || kv_buffer_outlived(head))
			head->in_use = 0;
		else
		{
			end = i + kv_buffer_units(head->capacity);
			used++;
		}
	}
	return used;
}

/* Initializes the pool: only buffers of an earlier incarnation are in use. */
static void
begin_pool(void)
{
	kv_buffer_pool->nfree = kv_buffer_pool->nopen = kv_buffer_pool->hand = 0;
	kv_buffer_pool->first_pending = kv_buffer_pool->last_pending = -1;
	memset(kv_buffers, 0, memory_for(kv_buffer_pool->nunits, geometry.entries));
	for (int i = 0; i < kv_buffer_pool->nunits; i++)
	{
		KvWriteBuffer *buffer = &kv_buffers[i];

		buffer->next = buffer->following = buffer->previous = -1;
		if (buffer->state == KV_BUFFER_PART)
			continue;
		if (kv_buffer_header(i)->in_use)
		{
			buffer->units = kv_buffer_units(kv_buffer_header(i)->capacity);
			buffer->state = KV_BUFFER_ORPHAN;
			for (int part = 1; part < buffer->units; part++)
				buffer[part].state = KV_BUFFER_PART;
			continue;
		}
		kv_buffer_pool->nfree++;
	}
	join_rows();
}

void
kv_buffers_start(void)
{
	uint64		sequence = 0;

	if (!kv_buffers_are_sound())
		create_buffer_file();	/* the file was not trusted, or there was none */
	for (;;)
	{
		int			used;

		map_buffer_file();
		used = release_buffers(&sequence);
		if (kv_buffer_pool->nunits == configured_units())
			break;
		if (used > 0)
		{
			ereport(LOG,
					(errmsg("cannot change the number of write buffers because %d of them hold "
							"values",
							used),
					 errdetail("\"kvfdw.write_buffers\" takes effect at the next start after a "
							   "clean shutdown.")));
			break;
		}
		create_buffer_file();
	}

	/* a new file has no old sequences to continue; the clock is beyond them */
	pg_atomic_init_u64(&kv_buffer_pool->sequence,
					   Max(sequence + 1, (uint64) GetCurrentTimestamp()));
	begin_pool();
}

void
kv_buffers_visit_file(void (*visit) (const KvBufferHeader *buffer, const char *entries, Size room))
{
	KvBufferFileHeader file;
	KvGeometry	at;

	if (!read_header(&file))
		return;
	at = geometry_of(&file);
	for (uint32 i = 0; i < file.nunits; i++)
	{
		KvBufferHeader header;
		Size		room;
		Size		len;
		char	   *batch;

		if (!kv_io_slurp_piece(KV_BUFFER_FILE_PATH, at.headers + at.headers_step * i, &header,
							   sizeof(header), &len) ||
			!header.in_use || !is_sound(&header))
			continue;
		room = at.entries * Min(units_for(&file, header.capacity), file.nunits - i);
		batch = palloc(room);
		if (kv_io_slurp_piece(KV_BUFFER_FILE_PATH, at.batches + at.batches_step * i, batch, room,
							  &len))
			visit(&header, batch + sizeof(KvLogBatch), room - sizeof(KvLogBatch));
		pfree(batch);
	}
}

bool
kv_buffers_pending(void)
{
	return kv_buffer_pool->first_pending >= 0 || pg_atomic_read_u32(&kv_buffer_pool->crowded) > 0;
}

void
kv_buffers_wake_writer(void)
{
	kv_wake(kv_buffer_pool->writer_latch);
	if (kv_buffer_pool->writer_latch == NULL)
		(void) kv_worker_need(KV_WORKER_BUFFER_WRITER);
}
