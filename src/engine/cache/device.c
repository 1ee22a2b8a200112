/*
 * device.c
 *		Reads the values of a batch that are in no memory of the server: from the second tier,
 *		through the page cache, or from the device.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/memutils.h"

#include "engine/base/types.h"
#include "engine/cache/internal.h"
#include "engine/engine.h"
#include "engine/format/format.h"
#include "engine/format/path.h"
#include "engine/io/fault.h"
#include "engine/io/io.h"
#include "engine/maintenance.h"
#include "engine/rows.h"
#include "engine/shard/map.h"
#include "engine/shard/shard.h"
#include "engine/shard/space.h"
#include "engine/value/value.h"

/* The place of a row's value on the device, in whole blocks. */
typedef struct KvRead
{
	KvFileId	file;
	uint32		len;
	uint64		offset;			/* in the file */
	uint32		head;			/* offset of the value in the blocks */
	bool		tier;			/* the file is that of the second tier */
	bool		cached;			/* read through the page cache */
	uint32		around;			/* with a piece of this size around it, or 0 */
	KvTierPlace place;			/* for the second tier: the place of the value there */
	int			together;		/* number of reads in the request that begins with this one */
	KvBatchRow *row;
} KvRead;

#define KV_MERGED_READ	(512 * 1024)	/* maximum size of a request for several reads */

/*
 * The largest value that is read through the page cache.  To copy a value of this size takes as
 * much CPU time as to read it directly, and to make pages for it three times as much.
 */
#define KV_PAGE_CACHED	(256 * 1024)
#define KV_TIER_FILE	((KvFileId) {PG_UINT64_MAX})	/* sorts after all value files */

static int
compare_reads(const void *a, const void *b)
{
	const KvRead *left = a;
	const KvRead *right = b;

	if (!kv_same_file(left->file, right->file))
		return left->file.address < right->file.address ? -1 : 1;
	if (left->cached != right->cached)
		return left->cached ? -1 : 1;
	return left->offset < right->offset ? -1 : left->offset > right->offset;
}

/* Bytes before the end of a shard's values that may be about to be written. */
#define KV_WRITTEN_SOON	(4 * 1024 * 1024)

/*
 * The size of the piece that is read into the page cache with a value; 0: none.  Where values are
 * being written there is none: pages read too early would have to be dropped at once.  The present
 * state of the descriptors of shard and store suffices for this estimate.
 */
static uint32
read_around(const KvSource *source, const KvBatchRow *row)
{
	KvStore    *store = source->store;
	KvAddress	address = KV_LOCATION_ADDRESS(row->version.location);
	const volatile KvShard *shard = kv_shard(store, kv_shard_for(store, row->key, row->keylen));

	if (kv_file_of(address).address == shard->values.open &&
		address + KV_WRITTEN_SOON > shard->values.tail)
		return 0;
	return kv_around_begin(store->cache_id, address, kv_space_taken(store));
}

/*
 * Plans the reads for missing values, sorted by address.  Returns their number.  Values that the
 * value cache keeps are read through the page cache, which holds those that the value cache has
 * evicted.
 */
static int
plan_reads(KvSource *source, KvBatchRow *rows, int nrows, KvRead *reads)
{
	bool		cached = kv_io_page_cache && source->kept;
	int			n = 0;

	for (int i = 0; i < nrows; i++)
	{
		KvBatchRow *row = &rows[i];
		KvAddress	address = KV_LOCATION_ADDRESS(row->version.location);
		uint64		offset = kv_offset_of(address);
		KvRead	   *read = &reads[n];

		if (row->value != NULL || row->problem != 0)
			continue;
		read->file = kv_file_of(address);
		read->tier = !row->no_tier && !source->reader->windows &&
			kv_tier_find(source->store->cache_id, address, row->version.len, &read->place);
		if (!read->tier && !source->reader->windows && row->missed[KV_ASKED_TIER] == KV_MISS_NONE)
			row->missed[KV_ASKED_TIER] = kv_tier_why(source->store->cache_id, address,
													 row->version.len);
		if (read->tier)
		{
			read->file = KV_TIER_FILE;
			offset = read->place.offset;
		}
		read->offset = TYPEALIGN_DOWN(KV_BLOCK, offset);
		read->cached = cached && !read->tier && !row->direct && row->version.len <= KV_PAGE_CACHED;
		read->around = read->cached ? read_around(source, row) : 0;
		read->head = offset - read->offset;
		read->len = TYPEALIGN(KV_BLOCK, offset + row->version.len) - read->offset;
		read->row = row;
		n++;
	}
	qsort(reads, n, sizeof(KvRead), compare_reads);
	return n;
}

/* Can the next read by address become part of the request? */
static bool
joins_request(const KvIoRequest *request, const KvRead *before, const KvRead *next)
{
	return kv_same_file(before->file, next->file) && before->cached == next->cached &&
		next->offset <= request->offset + request->len &&
		next->offset + next->len - request->offset <= KV_MERGED_READ;
}

/* Keeps a value in the value cache, if all its blocks were read. */
static void
keep_value(const KvSource *source, const KvIoRequest *request, const KvRead *read)
{
	uint64		at = read->offset - request->offset;

	if (at + read->len <= request->result)
		kv_block_keep(source->store->cache_id, read->row->version.location,
					  read->row->version.len, request->buffer + at, false);
}

/*
 * Takes and verifies the values of a complete request, while others are being read.  A missing or
 * wrong value is reported only when all requests are complete.
 */
static void
take_values(KvIoRequest *request, void *arg)
{
	const KvSource *source = arg;
	const KvRead *first = request->tag;

	for (const KvRead *read = first; read < first + first->together; read++)
	{
		KvBatchRow *row = read->row;
		KvKey		key = {row->key, row->keylen};
		uint64		head = read->offset - request->offset + read->head;

		if (request->result < 0)
			return;
		if (request->result < head + row->version.len)
			continue;
		if (read->tier && !kv_tier_still(&read->place))
			continue;
		row->value = request->buffer + head;
		row->verified = (read->tier && kv_fault_skips("tier_check")) ||
			kv_value_matches(&source->store->key, key, row->value, &row->version);
		if (source->kept && row->verified)
			keep_value(source, request, read);
	}
}

/*
 * The file for a read; -1: it does not exist.  A file that cannot be opened for the page cache is
 * read directly.
 */
static File
file_of(const KvStore *store, KvRead *read)
{
	File		file;

	if (read->tier)
		return kv_tier_file();
	if (read->cached)
	{
		file = kv_value_cached_file(&store->key, store->cache_id, read->file);
		if (file >= 0 || errno == ENOENT)
			return file;
		read->cached = false;
		read->around = 0;
	}
	return kv_value_file(&store->key, store->cache_id, read->file, KV_IO_MISSING_OK);
}

/*
 * Makes requests for sorted reads: reads of the same or of adjacent blocks become one request.
 * Returns their number; *bytes: the sum of their lengths.
 */
static int
make_requests(const KvStore *store, KvRead *reads, int nreads, KvIoRequest *requests,
			  Size *bytes)
{
	KvIoRequest *last = NULL;
	int			n = 0;

	*bytes = 0;
	for (int i = 0; i < nreads; i++)
	{
		KvRead	   *read = &reads[i];

		if (last != NULL && joins_request(last, &reads[i - 1], read))
		{
			uint64		end = Max(last->offset + last->len, read->offset + read->len);

			*bytes += end - last->offset - last->len;
			last->len = end - last->offset;
			last->around = Max(last->around, read->around);
			((KvRead *) last->tag)->together++;
			continue;
		}
		last = &requests[n++];
		last->file = file_of(store, read);
		last->cached = read->cached;
		last->around = read->around;
		last->offset = read->offset;
		last->len = read->len;
		last->tag = read;
		read->together = 1;
		*bytes += read->len;
	}
	return n;
}

/*
 * Takes the readable values of a failed request for several ones, since only one block may be bad.
 */
static void
read_apart(KvSource *source, const KvIoRequest *failed, int *failures)
{
	KvRead	   *first = failed->tag;
	int			n = first->together;
	int		   *results = MemoryContextAlloc(source->context,
											 failed->len / KV_BLOCK * sizeof(int));

	kv_io_read_blocks(failed, KV_IO_VALUE_READ, results, failures);
	for (KvRead *read = first; read < first + n; read++)
	{
		KvIoRequest one = *failed;
		int			block = (read->offset - failed->offset) / KV_BLOCK;
		int			end = block + read->len / KV_BLOCK;

		one.offset = read->offset;
		one.len = read->len;
		one.buffer = failed->buffer + (read->offset - failed->offset);
		one.tag = read;
		one.result = 0;
		for (bool whole = true; whole && block < end; block++)
		{
			whole = results[block] == KV_BLOCK;
			one.result = results[block] < 0 ? results[block] : one.result + results[block];
		}
		read->together = 1;
		take_values(&one, source);
		read->row->result = one.result;
	}
}

/*
 * Reads the values that are on the device.  Rows that were written together cost little more than
 * their bytes.
 */
static void
read_values(KvSource *source, KvRead *reads, int nreads)
{
	KvIoRequest *requests;
	Size		bytes;
	char	   *buffer;
	int			n;
	int			from_files = 0;
	int			failures = 0;

	kv_value_trim();
	requests = MemoryContextAlloc(source->context, sizeof(KvIoRequest) * nreads);
	n = make_requests(source->store, reads, nreads, requests, &bytes);
	buffer = MemoryContextAllocHuge(source->context, bytes + KV_BLOCK);
	buffer = (char *) TYPEALIGN(KV_BLOCK, buffer);
	for (int i = 0; i < n; i++)
	{
		requests[i].buffer = buffer;
		buffer += requests[i].len;
		if (((KvRead *) requests[i].tag)->tier)
			bytes -= requests[i].len;
		else
			from_files++;
	}
	if (from_files > 0)
		kv_io_read_batch(requests, from_files, KV_IO_VALUE_READ, take_values, source);
	if (n > from_files)
		kv_io_read_batch(requests + from_files, n - from_files, KV_IO_TIER_READ, take_values,
						 source);

	for (int i = 0; i < n; i++)
	{
		const KvRead *first = requests[i].tag;

		for (const KvRead *read = first; read < first + first->together; read++)
		{
			if (read->row->value == NULL)
				read->row->result = requests[i].result;
		}
		if (i < from_files && requests[i].result < 0 && requests[i].file >= 0 &&
			first->together > 1)
			read_apart(source, &requests[i], &failures);
	}
	source->stats->device_reads += from_files;
	source->stats->device_bytes += bytes;
	kv_stat_add(source->store, KV_COUNT_DEVICE_READS, from_files);
	kv_stat_add(source->store, KV_COUNT_DEVICE_READ_BYTES, bytes);
}

/*
 * Resets values that were read from the second tier and are wrong, to be read from their own files.
 * False: there is none.
 */
static bool
lost_in_tier(KvSource *source, const KvRead *reads, int nreads)
{
	uint64		hits = 0;
	bool		lost = false;

	for (int i = nreads - 1; i >= 0 && reads[i].tier; i--)
	{
		KvBatchRow *row = reads[i].row;

		if (row->verified)
		{
			hits++;
			continue;
		}
		row->missed[KV_ASKED_TIER] = row->value != NULL ? KV_MISS_DAMAGED : KV_MISS_BUSY;
		if (row->value == NULL && row->result < 0)
		{
			row->missed[KV_ASKED_TIER] = KV_MISS_OFF;
			kv_tier_failed(-row->result);
		}
		else
			kv_tier_drop(&reads[i].place);
		row->value = NULL;
		row->no_tier = lost = true;
	}
	if (hits > 0)
	{
		source->stats->tier_hits += hits;
		kv_stat_add(source->store, KV_COUNT_TIER_HITS, hits);
		kv_tier_count_hits(hits);
	}
	return lost;
}

/*
 * Resets values whose bytes in the page cache do not match their entries, to be read from the
 * device: memory may be damaged, and a file system may keep a page that a direct write has made
 * stale.  So are values that cannot be read through the page cache, for example for lack of memory.
 * False: there is none.
 */
static bool
lost_in_page_cache(KvSource *source, const KvRead *reads, int nreads)
{
	const KvStore *store = source->store;
	bool		lost = false;

	for (int i = 0; i < nreads; i++)
	{
		KvBatchRow *row = reads[i].row;

		if (reads[i].cached && row->value != NULL && !row->verified)
		{
			File		file = kv_value_cached_file(&store->key, store->cache_id, reads[i].file);

			if (file >= 0)
				kv_io_forget_pages(file, reads[i].offset, reads[i].len);
			row->value = NULL;
			row->direct = row->wrong_pages = lost = true;
		}
		else if (reads[i].cached && row->value == NULL && row->result < 0 && row->result != -ENOENT)
			row->direct = lost = true;
		else if (row->wrong_pages && row->verified && !reads[i].tier)
			ereport(LOG,
					(errmsg("page cache had wrong bytes of file \"%s\"",
							kv_path_value(&store->key, reads[i].file)),
					 errdetail("The %u bytes at offset %llu are right on the device, and were read "
							   "from there.",
							   reads[i].len, (unsigned long long) reads[i].offset)));
	}
	return lost;
}

void
kv_device_read(KvSource *source, KvBatchRow *rows, int n)
{
	KvRead	   *reads = NULL;
	int			missing = 0;
	bool		again;

	for (int i = 0; i < n; i++)
		missing += rows[i].value == NULL;
	if (missing > 0)
		reads = MemoryContextAlloc(source->context, sizeof(KvRead) * missing);
	do
	{
		int			nreads = missing > 0 ? plan_reads(source, rows, n, reads) : 0;

		CHECK_FOR_INTERRUPTS();
		KV_STOP_POINT("fetch_planned");
		if (nreads == 0)
			return;
		read_values(source, reads, nreads);
		again = lost_in_tier(source, reads, nreads);
		if (lost_in_page_cache(source, reads, nreads))
			again = true;
	} while (again);
}
