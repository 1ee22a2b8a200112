/*
 * keylog.c
 *		Key logs: what each sealed merge slot added to a shard's index.
 *
 * A log is a header and a sequence of batches, one per slot, written with
 * buffered I/O at the offset that the slot reserved when it was sealed.  A slot
 * is freed only after its batch is in the log.  So where merge slots are believed
 * after a SIGKILL (restart/trust.c) a hole in a log, or a torn end, always has its slot in
 * the merge file, whose replay fills it before the log is read; and where they are
 * not, a log counts up to where its image says that it ended, and was synced up to
 * there.  Either way each byte of it must be sound.  Only a salvage takes what it
 * finds.  A freeze begins a new log and removes those it has covered.
 *
 * Of a shard's logs, first_log exists as soon as it has a value file or a
 * manifest, and none is left out up to the last; so a missing one is noticed.
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "engine/base/crc.h"
#include "engine/base/types.h"
#include "engine/base/wait.h"
#include "engine/format/format.h"
#include "engine/io/io.h"

static uint32
batch_crc(const KvLogBatch *batch)
{
	return kv_crc(&batch->sequence, sizeof(KvLogBatch) - offsetof(KvLogBatch, sequence) +
				  batch->entry_bytes);
}

static uint32
header_crc(const KvLogHeader *header)
{
	return kv_crc(header, offsetof(KvLogHeader, crc));
}

/* Seeded with the slot's sequence, so a slot's former contents never match. */
uint32
kv_log_entry_crc(const KvLogEntry *entry, uint64 sequence)
{
	pg_crc32c	crc;

	INIT_CRC32C(crc);
	COMP_CRC32C(crc, &sequence, sizeof(sequence));
	COMP_CRC32C(crc, (const char *) entry + sizeof(uint32),
				KV_LOG_ENTRY_SIZE(entry->keylen) - sizeof(uint32));
	FIN_CRC32C(crc);
	return crc;
}

static void
make_header(KvLogHeader *header, const KvStoreKey *key, uint32 shard, uint32 number)
{
	memset(header, 0, sizeof(*header));
	kv_head_make(&header->head, KV_MAGIC_LOG, KV_FORMAT_VERSION, key, shard);
	header->number = number;
	header->crc = header_crc(header);
}

/* Its absence is damage from now on.  Whole or not at all: no slot would mend an empty one. */
void
kv_log_create(const KvStoreKey *key, uint32 shard, uint32 number)
{
	KvLogHeader header;

	make_header(&header, key, shard, number);
	kv_io_create_new(kv_path_log(key, shard, number), &header, sizeof(header),
					 KV_IO_LOG_WRITE);
}

int
kv_log_append(const KvStoreKey *key, uint32 shard, uint32 number, uint64 offset,
			  KvLogBatch *batch)
{
	File		file = kv_io_open(kv_path_log(key, shard, number),
								  KV_IO_CREATE, KV_IO_LOG_WRITE);
	int			err = 0;

	batch->crc = batch_crc(batch);
	if (offset == sizeof(KvLogHeader))
	{
		KvLogHeader header;

		make_header(&header, key, shard, number);
		err = kv_io_try_write(file, &header, sizeof(header), 0, KV_IO_LOG_WRITE);
	}
	if (err == 0)
		err = kv_io_try_write(file, batch, sizeof(KvLogBatch) + batch->entry_bytes,
							  offset, KV_IO_LOG_WRITE);
	kv_io_close(file);
	return err;
}

static void
damaged(const char *path, uint64 offset, const char *what)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("key log \"%s\" is damaged at offset %llu: %s",
					path, (unsigned long long) offset, what)));
}

/* NULL if the batch at this place of the log's image is sound, else what is wrong. */
static const char *
batch_problem(const KvStoreKey *key, uint32 shard, uint32 number,
			  const char *image, uint64 len, uint64 offset)
{
	const KvLogBatch *batch = (const KvLogBatch *) (image + offset);

	if (len - offset < sizeof(KvLogBatch))
		return "batch head is cut off";
	if (batch->magic != KV_MAGIC_BATCH)
		return "no batch begins here";
	if (batch->entry_bytes > len - offset - sizeof(KvLogBatch))
		return "batch is cut off";
	if (batch->crc != batch_crc(batch))
		return "batch does not match its checksum";
	if (!kv_same_store(&batch->store, key) || batch->shard != shard ||
		batch->log_number != number || batch->log_offset != offset)
		return "batch belongs elsewhere";
	return NULL;
}

/* NULL if the log's header is sound. */
static const char *
header_problem(const KvStoreKey *key, uint32 shard, uint32 number,
			   const char *image, uint64 len)
{
	const KvLogHeader *header = (const KvLogHeader *) image;

	if (len < sizeof(KvLogHeader))
		return "header is cut off";
	if (header->head.magic != KV_MAGIC_LOG)
		return "not a key log";
	if (header->head.format_version != KV_FORMAT_VERSION)
		return "unknown format version";
	if (header->crc != header_crc(header))
		return "header does not match its checksum";
	if (!kv_head_is_of(&header->head, key, shard) || header->number != number)
		return "file belongs elsewhere";
	return NULL;
}

void
kv_log_make_empty(const KvStoreKey *key, uint32 shard, uint32 number)
{
	char	   *path = pstrdup(kv_path_log(key, shard, number));
	Size		len;
	KvLogHeader header;

	if (!kv_io_slurp_piece(path, 0, &header, sizeof(header), &len) ||
		len != sizeof(header) ||
		header_problem(key, shard, number, (char *) &header, len) != NULL)
	{
		(void) kv_io_unlink(path);
		kv_log_create(key, shard, number);
	}
	pfree(path);
}

/* The log's bytes, palloc'd; NULL if there is no such log. */
static char *
read_log(const char *path, uint64 *len)
{
	File		file = kv_io_open(path, KV_IO_MISSING_OK | KV_IO_READONLY, KV_IO_LOG_READ);
	char	   *image;

	if (file < 0)
		return NULL;
	*len = kv_io_size(file);
	image = MemoryContextAllocHuge(CurrentMemoryContext, *len + 1);
	if (*len > 0)
		*len = kv_io_read(file, image, *len, 0, KV_IO_LOG_READ);
	kv_io_close(file);
	return image;
}

static void
apply_batch(const KvLogBatch *batch, KvApplyEntry apply, void *arg)
{
	const char *at = (const char *) (batch + 1);

	for (uint32 i = 0; i < batch->nentries; i++)
	{
		const KvLogEntry *entry = (const KvLogEntry *) at;

		apply(arg, entry, batch->incarnation);
		at += KV_LOG_ENTRY_SIZE(entry->keylen);
	}
}

/*
 * All of a log was written, and merge slots have mended what a dead process had not
 * finished.  So whatever is not sound is damage (I 11).
 */
uint64
kv_log_replay(const KvStoreKey *key, uint32 shard, uint32 number, bool required, uint64 end,
			  KvApplyEntry apply, void *arg)
{
	const char *path = kv_path_log(key, shard, number);
	uint64		len;
	uint64		offset = sizeof(KvLogHeader);
	char	   *image = read_log(path, &len);
	const char *problem;

	if (image == NULL)
	{
		if (required)
			damaged(kv_path_log(key, shard, number), 0, "it is missing");
		return offset;
	}
	problem = header_problem(key, shard, number, image, len);
	if (problem)
		damaged(kv_path_log(key, shard, number), 0, problem);
	if (end != 0 && len != end)
		damaged(kv_path_log(key, shard, number), len, "it does not end where it did");

	while (offset < len)
	{
		const KvLogBatch *batch = (const KvLogBatch *) (image + offset);

		kv_maintenance_interrupts();
		problem = batch_problem(key, shard, number, image, len, offset);
		if (problem)
			damaged(kv_path_log(key, shard, number), offset, problem);
		apply_batch(batch, apply, arg);
		offset += sizeof(KvLogBatch) + batch->entry_bytes;
	}
	pfree(image);
	return offset;
}

/* What is sound of a log's bytes; *lost grows by how many are not. */
static void
salvage(const KvStoreKey *key, uint32 shard, uint32 number, const char *image, uint64 len,
		KvApplyEntry apply, void *arg, uint64 *lost)
{
	uint64		offset = sizeof(KvLogHeader);

	while (offset < len)
	{
		const KvLogBatch *batch = (const KvLogBatch *) (image + offset);

		if (batch_problem(key, shard, number, image, len, offset) != NULL)
		{
			uint64		step = Min(8, len - offset);

			*lost += step;
			offset += step;
			continue;
		}
		kv_maintenance_interrupts();
		apply_batch(batch, apply, arg);
		offset += sizeof(KvLogBatch) + batch->entry_bytes;
	}
}

uint64
kv_log_salvage(const KvStoreKey *key, uint32 shard, uint32 number, KvApplyEntry apply,
			   void *arg, uint64 *lost)
{
	uint64		len;
	char	   *image = read_log(kv_path_log(key, shard, number), &len);

	if (image == NULL)
		return sizeof(KvLogHeader);
	salvage(key, shard, number, image, len, apply, arg, lost);
	pfree(image);
	return Max(len, sizeof(KvLogHeader));
}

/* A KvApplyEntry. */
static void
count_entry(void *arg, const KvLogEntry *entry, uint32 incarnation)
{
	++*(uint64 *) arg;
}

uint64
kv_log_entries(const KvStoreKey *key, uint32 shard, uint32 number)
{
	Size		len;
	char	   *image = kv_io_slurp(kv_path_log(key, shard, number), &len);
	uint64		entries = 0;
	uint64		lost = 0;

	if (image == NULL)
		return 0;
	salvage(key, shard, number, image, len, count_entry, &entries, &lost);
	pfree(image);
	return entries + lost / sizeof(KvLogEntry);
}

bool
kv_log_check(const KvStoreKey *key, uint32 shard, uint32 number,
			 KvProblemCallback report, void *arg)
{
	char	   *path = pstrdup(kv_path_log(key, shard, number));
	uint64		len;
	uint64		offset = sizeof(KvLogHeader);
	char	   *image = read_log(path, &len);
	const char *problem;

	if (image == NULL)
		return false;
	problem = header_problem(key, shard, number, image, len);
	if (problem)
		report(arg, path, 0, problem);
	else
	{
		while (offset < len)
		{
			problem = batch_problem(key, shard, number, image, len, offset);
			if (problem)
			{
				report(arg, path, offset, problem);
				break;
			}
			offset += sizeof(KvLogBatch) +
				((const KvLogBatch *) (image + offset))->entry_bytes;
		}
	}
	pfree(image);
	return true;
}
