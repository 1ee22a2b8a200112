/*
 * keylog.c
 *		Key logs: the entries that each sealed write buffer added to a shard's index.
 *
 * A log is a header and a sequence of batches, one per write buffer, written with buffered I/O
 * at the offset that the write buffer reserved when it was sealed.  A write buffer is freed
 * only after its batch is in the log.
 *
 * So where write buffers are trusted after a SIGKILL (restart/trust.c) a hole in a log, or a
 * torn end, always has its write buffer in the buffer file, whose replay fills it before the
 * log is read.  Where they are not trusted, a log counts up to where the shard's mark says that it
 * ended, and was synced up to there.  In both cases each byte of it must be valid; only a
 * salvage accepts less.  A flush begins a new log and removes those it has covered.
 *
 * Of a shard's logs, first_log exists as soon as the shard has a value file or runs, and
 * no number is skipped up to the last; so a missing log is noticed.
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "engine/base/hash.h"
#include "engine/base/types.h"
#include "engine/base/wait.h"
#include "engine/format/format.h"
#include "engine/format/path.h"
#include "engine/io/io.h"
#include "engine/io/name.h"

/* After a sync logs are read in pieces of this size. */
#define LOG_PIECE			((uint64) 1024 * 1024)

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

/* Seeded with the write buffer's sequence, so a write buffer's former contents never match. */
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
	kv_head_make(&header->head, KV_MAGIC_LOG, key, shard);
	header->number = number;
	header->crc = header_crc(header);
}

/*
 * From now on a missing log is damage.  Created whole or not at all: no write buffer would
 * repair an empty one.
 */
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

/*
 * NULL if the batch at this offset of the log is valid, else the problem.  len: bytes from
 * there on.
 */
static const char *
batch_problem(const KvStoreKey *key, uint32 shard, uint32 number,
			  const KvLogBatch *batch, uint64 len, uint64 offset)
{
	if (len < sizeof(KvLogBatch))
		return "batch header is truncated";
	if (batch->magic != KV_MAGIC_BATCH)
		return "no batch begins here";
	if (batch->entry_bytes > len - sizeof(KvLogBatch))
		return "batch is truncated";
	if (batch->crc != batch_crc(batch))
		return "batch does not match its checksum";
	if (!kv_same_store(&batch->store, key) || batch->shard != shard ||
		batch->log_number != number || batch->log_offset != offset)
		return "batch belongs to another key log or offset";
	return NULL;
}

/* NULL if the log's header is valid, else the problem. */
static const char *
header_problem(const KvStoreKey *key, uint32 shard, uint32 number,
			   const char *image, uint64 len)
{
	const KvLogHeader *header = (const KvLogHeader *) image;

	if (len < sizeof(KvLogHeader))
		return "header is truncated";
	if (header->head.magic != KV_MAGIC_LOG)
		return "not a key log";
	if (header->head.format_version != KV_FORMAT_VERSION)
		return "file has another format version";
	if (header->crc != header_crc(header))
		return "header does not match its checksum";
	if (!kv_head_is_of(&header->head, key, shard) || header->number != number)
		return "file belongs to another shard";
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

/* ERROR 0A000 if a sound header says that the log has another format version. */
static void
require_version(const char *path, const char *image, uint64 len)
{
	const KvLogHeader *header = (const KvLogHeader *) image;

	if (len >= sizeof(KvLogHeader) && header->head.magic == KV_MAGIC_LOG &&
		header->crc == header_crc(header))
		kv_format_require(path, header->head.format_version, KV_FORMAT_VERSION);
}

/* The log's bytes, palloc'd; NULL if there is no such log. */
static char *
read_log(const char *path, uint64 *len)
{
	File		file = kv_io_open(path, KV_IO_MISSING_OK | KV_IO_READONLY, KV_IO_LOG_READ);
	char	   *volatile image;

	if (file < 0)
		return NULL;
	PG_TRY();
	{
		*len = kv_io_size(file);
		image = MemoryContextAllocHuge(CurrentMemoryContext, *len + 1);
		if (*len > 0)
			*len = kv_io_read(file, image, *len, 0, KV_IO_LOG_READ);
	}
	PG_FINALLY();
	{
		kv_io_close(file);
	}
	PG_END_TRY();
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
 * The whole log was written, and write buffers have filled what a dead process had not
 * finished. So anything invalid is damage (I 11).
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
			kv_io_raise_missing(kv_path_log(key, shard, number));
		return offset;
	}
	require_version(path, image, len);
	problem = header_problem(key, shard, number, image, len);
	if (problem)
		damaged(kv_path_log(key, shard, number), 0, problem);
	if (end != 0 && len != end)
		damaged(kv_path_log(key, shard, number), len, "file has another size than its mark says");

	while (offset < len)
	{
		const KvLogBatch *batch = (const KvLogBatch *) (image + offset);

		kv_maintenance_interrupts();
		problem = batch_problem(key, shard, number, batch, len - offset, offset);
		if (problem)
			damaged(kv_path_log(key, shard, number), offset, problem);
		apply_batch(batch, apply, arg);
		offset += sizeof(KvLogBatch) + batch->entry_bytes;
	}
	pfree(image);
	return offset;
}

/* A part of a log that is verified, piece by piece. */
typedef struct LogPart
{
	const KvStoreKey *key;
	uint32		shard;
	uint32		number;
	char	   *path;
	File		file;
	uint64		end;
	char	   *piece;			/* the file's bytes at offset */
	Size		size;			/* capacity of piece */
	Size		bytes;			/* bytes that were read */
	uint64		offset;
} LogPart;

/*
 * After a sync: the durable bytes are not those that were written, which is as if the sync had
 * failed.
 */
static void
not_as_written(const LogPart *part, uint64 offset, const char *what)
{
	kv_io_sync_failed();
	ereport(data_sync_elevel(ERROR),
			(errcode(ERRCODE_IO_ERROR),
			 errmsg("file \"%s\" does not have what was written to it", part->path),
			 errdetail("At offset %llu the check found: %s.", (unsigned long long) offset, what)));
}

/*
 * Have the piece hold at least so many bytes from there on, or all that exist.  Returns how
 * many it holds.  ERROR, or PANIC, as for a failed sync, if they cannot be read.
 */
static uint64
piece_from(LogPart *part, uint64 offset, uint64 least)
{
	uint64		left = part->end - offset;
	int			bytes;

	least = Min(least, left);
	if (offset >= part->offset && offset + least <= part->offset + part->bytes)
		return part->offset + part->bytes - offset;
	if (least > part->size)
	{
		part->size = least;
		part->piece = repalloc_huge(part->piece, part->size);
	}
	bytes = kv_io_try_read(part->file, part->piece, Min(part->size, left), offset, KV_IO_LOG_READ);
	/* a shortage of other resources says nothing about the file: the next mark reads it again */
	if (bytes == -EMFILE || bytes == -ENFILE || bytes == -ENOMEM)
		kv_io_error(ERROR, -bytes, part->path, "read");
	if (bytes < 0)
	{
		kv_io_sync_failed();
		kv_io_error(data_sync_elevel(ERROR), -bytes, part->path, "read");
	}
	part->offset = offset;
	part->bytes = bytes;
	return bytes;
}

/* The problem of the batch at this offset; NULL: none, and *len is its length. */
static const char *
part_problem(LogPart *part, uint64 offset, uint64 *len)
{
	uint64		there = piece_from(part, offset, sizeof(KvLogBatch));
	const KvLogBatch *batch = (const KvLogBatch *) (part->piece + (offset - part->offset));

	if (there >= sizeof(KvLogBatch) && batch->magic == KV_MAGIC_BATCH)
	{
		*len = sizeof(KvLogBatch) + batch->entry_bytes;
		there = piece_from(part, offset, *len);
		batch = (const KvLogBatch *) (part->piece + (offset - part->offset));
	}
	return batch_problem(part->key, part->shard, part->number, batch, there, offset);
}

static void
verify_part(LogPart *part, uint64 offset)
{
	const char *problem = NULL;
	uint64		len = sizeof(KvLogHeader);

	if (offset == 0)
	{
		uint64		there = piece_from(part, 0, len);

		problem = header_problem(part->key, part->shard, part->number, part->piece, there);
		offset += problem == NULL ? len : 0;
	}
	while (problem == NULL && offset < part->end)
	{
		kv_interrupts();
		problem = part_problem(part, offset, &len);
		offset += problem == NULL ? len : 0;
	}
	if (problem != NULL)
		not_as_written(part, offset, problem);
}

/*
 * After the sync the page cache has either the written bytes, because else the kernel would
 * still have known of the failure and the sync have reported it, or those of the device.  The
 * caller keeps the descriptor open from before the sync until the log has been read, so no
 * failure is forgotten in between.
 */
void
kv_log_verify(const KvStoreKey *key, uint32 shard, uint32 number, uint64 from, uint64 end)
{
	LogPart		part = {key, shard, number, .end = end};

	part.path = pstrdup(kv_path_log(key, shard, number));
	part.file = kv_io_open(part.path, KV_IO_READONLY, KV_IO_LOG_READ);
	PG_TRY();
	{
		if (end == 0)
		{
			part.end = kv_io_size(part.file);
			if (part.end < from)
				not_as_written(&part, part.end, "file ends here");
		}

		/* a log without batches may have no header yet */
		if (part.end > Max(from, sizeof(KvLogHeader)))
		{
			part.size = Min(part.end - from, LOG_PIECE);
			part.piece = palloc(part.size);
			verify_part(&part, from);
			pfree(part.piece);
		}
	}
	PG_FINALLY();
	{
		kv_io_close(part.file);
	}
	PG_END_TRY();
	pfree(part.path);
}

/* Apply the valid parts of a log's bytes; adds the number of invalid bytes to *lost. */
static void
salvage(const KvStoreKey *key, uint32 shard, uint32 number, const char *image, uint64 len,
		KvApplyEntry apply, void *arg, uint64 *lost)
{
	uint64		offset = sizeof(KvLogHeader);

	while (offset < len)
	{
		const KvLogBatch *batch = (const KvLogBatch *) (image + offset);

		if (batch_problem(key, shard, number, batch, len - offset, offset) != NULL)
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
	const char *path = kv_path_log(key, shard, number);
	uint64		len;
	char	   *image = read_log(path, &len);

	if (image == NULL)
		return sizeof(KvLogHeader);
	require_version(path, image, len);
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
			const KvLogBatch *batch = (const KvLogBatch *) (image + offset);

			problem = batch_problem(key, shard, number, batch, len - offset, offset);
			if (problem)
			{
				report(arg, path, offset, problem);
				break;
			}
			offset += sizeof(KvLogBatch) + batch->entry_bytes;
		}
	}
	pfree(image);
	return true;
}
