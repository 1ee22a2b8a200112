/*
 * fetch.c
 *		Gets the values of a batch of rows from write buffers, recent ring, value cache, range
 *		cache, second tier, page cache or device.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/memutils.h"

#include "engine/base/types.h"
#include "engine/cache/cache.h"
#include "engine/format/format.h"
#include "engine/io/io.h"
#include "engine/scan/internal.h"
#include "engine/scan/scan.h"
#include "engine/shard/shard.h"
#include "engine/shard/space.h"
#include "engine/buffer/buffer.h"
#include "engine/value/value.h"

/* ---- windows ---- */

#define KV_WINDOW_BUFFER	((Size) 1024 * 1024)

/* Memory for a batch's values; in most cases that of the previous batch. */
static char *
make_buffer(KvScan *scan, Size size)
{
	if (!(scan->reader.windows || scan->reader.wants_blocks) || size > KV_WINDOW_BUFFER)
		return MemoryContextAllocHuge(scan->batch_context, size);
	if (scan->steering.buffer == NULL)
		scan->steering.buffer = MemoryContextAlloc(scan->context, KV_WINDOW_BUFFER);
	return scan->steering.buffer;
}

/* Copies a row's value out of block windows; false: it must be read. */
static bool
take_from_block_windows(KvScan *scan, const KvBatchRow *row, char *into)
{
	KvAddress	address = KV_LOCATION_ADDRESS(row->version.location);
	KvKey		key = {row->key, row->keylen};

	if (row->version.len > KV_BLOCK_WINDOW_VALUE ||
		!kv_block_window_take(&scan->reader, address, row->version.len, into))
		return false;
	if (kv_value_matches(&scan->store->key, key, into, &row->version))
		return true;
	kv_block_window_lose(&scan->reader, address, row->version.len);
	return false;
}

/* Copies a row's value out of the windows that the scan reads; false: it must be read. */
static bool
take_value(KvScan *scan, const KvBatchRow *row, char *into)
{
	KvAddress	address = KV_LOCATION_ADDRESS(row->version.location);
	KvKey		key = {row->key, row->keylen};

	if (scan->reader.wants_blocks)
		return take_from_block_windows(scan, row, into);
	if (!kv_reader_take(&scan->reader, address, row->version.len, into))
		return false;
	if (kv_value_matches(&scan->store->key, key, into, &row->version))
		return true;
	kv_reader_lose(&scan->reader, address, row->version.len);
	return false;
}

/* Takes values of a range that are in windows, or being loaded. */
static void
fetch_windows(KvScan *scan)
{
	KvScanStats before = scan->stats;
	Size		total = 0;
	char	   *into;

	if (scan->reader.wants_blocks)
		kv_ahead(scan);
	else if (!kv_reader_has_windows(&scan->reader))
		return;
	for (int i = 0; i < scan->nrows; i++)
	{
		if (scan->rows[i].value == NULL)
			total += MAXALIGN(VARHDRSZ + scan->rows[i].version.len);
	}
	into = total > 0 ? make_buffer(scan, total) : NULL;
	for (int i = 0; i < scan->nrows; i++)
	{
		KvBatchRow *row = &scan->rows[i];
		bool		raw = KV_LOCATION_FORM(row->version.location) == KV_FORM_RAW;
		char	   *value = raw ? into + VARHDRSZ : into;

		if (row->value != NULL || !take_value(scan, row, value))
			continue;
		row->value = value;
		row->headed = raw;
		row->verified = true;
		into = value + row->version.len;
		into = (char *) MAXALIGN(into);
	}
	if (scan->reader.wants_blocks)
		kv_block_window_progress(&scan->reader);
	if (scan->stats.device_reads == before.device_reads)
		return;
	kv_stat_add(scan->store, KV_COUNT_DEVICE_READS,
				scan->stats.device_reads - before.device_reads);
	kv_stat_add(scan->store, KV_COUNT_DEVICE_READ_BYTES,
				scan->stats.device_bytes - before.device_bytes);
}

/* ---- the device ---- */

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

/*
 * Copies a row's value out of the recent ring or the value cache.  If it fails verification it is
 * read again: its block may have been damaged when it was read for another value, or since.
 */
static bool
take_cached(KvScan *scan, const KvBatchRow *row, char *into)
{
	const KvVersion *version = &row->version;
	uint32		cache_id = scan->store->cache_id;
	KvKey		key = {row->key, row->keylen};

	if (kv_recent_read(cache_id, KV_LOCATION_ADDRESS(version->location), version->len, into))
	{
		if (kv_value_matches(&scan->store->key, key, into, version))
		{
			scan->stats.recent_hits++;
			return true;
		}
		kv_recent_wrong();
	}
	if (!kv_block_read(cache_id, version->location, version->len, into))
		return false;
	if (!kv_value_matches(&scan->store->key, key, into, version))
	{
		kv_block_lose(cache_id, version->location, version->len);
		return false;
	}
	scan->stats.cache_hits++;
	return true;
}

/* in rows: the time to load a value into the CPU cache */
#define KV_LOADED_AHEAD	4

/* Begins to load a value into the CPU cache that is taken soon. */
static void
load_cached(const KvScan *scan, const KvBatchRow *row)
{
	KvLocation	location = row->version.location;
	uint32		cache_id = scan->store->cache_id;

	if (row->value == NULL && !kv_recent_load(cache_id, KV_LOCATION_ADDRESS(location),
											  row->version.len))
		kv_block_load(cache_id, location, row->version.len);
}

/* bytes by which memory for many values is allocated */
#define KV_CACHED_ROOM	((Size) 64 * 1024)

/* Takes values from the caches of written and read values. */
static void
fetch_cached(KvScan *scan)
{
	KvScanStats before = scan->stats;
	char	   *into = NULL;
	Size		room = 0;

	for (int i = 0; i < scan->nrows; i++)
	{
		KvBatchRow *row = &scan->rows[i];
		KvAddress	address = KV_LOCATION_ADDRESS(row->version.location);
		bool		raw = KV_LOCATION_FORM(row->version.location) == KV_FORM_RAW;
		Size		head = raw ? VARHDRSZ : 0;
		Size		size = MAXALIGN(head + row->version.len);

		if (i + KV_LOADED_AHEAD < scan->nrows)
			load_cached(scan, row + KV_LOADED_AHEAD);
		if (row->value != NULL || (!kv_block_takes(row->version.location, row->version.len) &&
								   !kv_recent_may_have(scan->store->cache_id, address)))
			continue;
		if (size > room)
		{
			room = Max(size, Min(size * (scan->nrows - i), KV_CACHED_ROOM));
			into = MemoryContextAllocHuge(scan->batch_context, room);
		}
		if (!take_cached(scan, row, into + head))
			continue;
		row->value = into + head;
		row->headed = raw;
		row->verified = true;
		into += size;
		room -= size;
	}
	if (scan->stats.recent_hits > before.recent_hits)
		kv_stat_add(scan->store, KV_COUNT_RECENT_HITS,
					scan->stats.recent_hits - before.recent_hits);
	if (scan->stats.cache_hits > before.cache_hits)
		kv_stat_add(scan->store, KV_COUNT_CACHE_HITS, scan->stats.cache_hits - before.cache_hits);
}

/*
 * Does the value cache keep the values that this batch reads?  Not those of a large scan, and so
 * only the first rows of a scan that has just begun.
 */
static bool
is_kept(const KvScan *scan)
{
	if (scan->points)
		return true;
	return !scan->shared && !scan->reader.windows &&
		(scan->order == KV_ASCENDING || scan->order == KV_DESCENDING) &&
		scan->steering.rows + scan->nrows <= KV_SMALL_RANGE &&
		scan->limit_hint <= KV_SMALL_RANGE && scan->batch_bytes <= KV_SMALL_RANGE * KV_BLOCK;
}

/* Bytes before the end of a shard's values that may be about to be written. */
#define KV_WRITTEN_SOON	(4 * 1024 * 1024)

/*
 * The size of the piece that is read into the page cache with a value; 0: none.  Where values are
 * being written there is none: pages read too early would have to be dropped at once.  The present
 * state of the descriptors of shard and store suffices for this estimate.
 */
static uint32
read_around(const KvScan *scan, const KvBatchRow *row)
{
	KvStore    *store = scan->store;
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
plan_reads(KvScan *scan, KvRead *reads)
{
	bool		cached = kv_io_page_cache && is_kept(scan);
	int			n = 0;

	for (int i = 0; i < scan->nrows; i++)
	{
		KvBatchRow *row = &scan->rows[i];
		KvAddress	address = KV_LOCATION_ADDRESS(row->version.location);
		uint64		offset = kv_offset_of(address);
		KvRead	   *read = &reads[n];

		if (row->value != NULL || row->problem != 0)
			continue;
		read->file = kv_file_of(address);
		read->tier = !row->no_tier && !scan->reader.windows &&
			kv_tier_find(scan->store->cache_id, address, row->version.len, &read->place);
		if (read->tier)
		{
			read->file = KV_TIER_FILE;
			offset = read->place.offset;
		}
		read->offset = TYPEALIGN_DOWN(KV_BLOCK, offset);
		read->cached = cached && !read->tier && !row->direct && row->version.len <= KV_PAGE_CACHED;
		read->around = read->cached ? read_around(scan, row) : 0;
		read->head = offset - read->offset;
		read->len = TYPEALIGN(KV_BLOCK, offset + row->version.len) - read->offset;
		read->row = row;
		n++;
	}
	qsort(reads, n, sizeof(KvRead), compare_reads);
	return n;
}

/* A row's value is missing or wrong.  Returns if the scan is forgiving. */
static void
report_damage(const KvScan *scan, KvBatchRow *row)
{
	const KvVersion *version = &row->version;
	KvAddress	address = KV_LOCATION_ADDRESS(version->location);
	const char *path = kv_path_value(&scan->store->key, kv_file_of(address));
	int			level = scan->forgiving ? LOG : ERROR;

	row->problem = ERRCODE_DATA_CORRUPTED;
	if (row->value != NULL)
		(void) kv_value_verify(&scan->store->key, (KvKey) {row->key, row->keylen}, row->value,
							   version, level);
	else if (row->result < 0)
	{
		row->problem = ERRCODE_IO_ERROR;
		kv_io_error(level, -row->result, path, "read");
	}
	else
		kv_io_report_short(level, path, kv_offset_of(address) + version->len);
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
keep_value(const KvScan *scan, const KvIoRequest *request, const KvRead *read)
{
	uint64		at = read->offset - request->offset;

	if (at + read->len <= request->result)
		kv_block_keep(scan->store->cache_id, read->row->version.location,
					  read->row->version.len, request->buffer + at, false);
}

/*
 * Takes and verifies the values of a complete request, while others are being read.  A missing or
 * wrong value is reported only when all requests are complete.
 */
static void
take_values(KvIoRequest *request, void *arg)
{
	const KvScan *scan = arg;
	const KvRead *first = request->tag;
	bool		kept = is_kept(scan);

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
			kv_value_matches(&scan->store->key, key, row->value, &row->version);
		if (kept && row->verified)
			keep_value(scan, request, read);
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
read_apart(KvScan *scan, const KvIoRequest *failed, int *failures)
{
	KvRead	   *first = failed->tag;
	int			n = first->together;
	int		   *results = MemoryContextAlloc(scan->batch_context,
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
		take_values(&one, scan);
		read->row->result = one.result;
	}
}

/*
 * Reads the values that are on the device.  Rows that were written together cost little more than
 * their bytes.
 */
static void
read_values(KvScan *scan, KvRead *reads, int nreads)
{
	KvIoRequest *requests;
	Size		bytes;
	char	   *buffer;
	int			n;
	int			from_files = 0;
	int			failures = 0;

	kv_value_trim();
	requests = MemoryContextAlloc(scan->batch_context, sizeof(KvIoRequest) * nreads);
	n = make_requests(scan->store, reads, nreads, requests, &bytes);
	buffer = MemoryContextAllocHuge(scan->batch_context, bytes + KV_BLOCK);
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
		kv_io_read_batch(requests, from_files, KV_IO_VALUE_READ, take_values, scan);
	if (n > from_files)
		kv_io_read_batch(requests + from_files, n - from_files, KV_IO_TIER_READ, take_values, scan);

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
			read_apart(scan, &requests[i], &failures);
	}
	scan->stats.device_reads += from_files;
	scan->stats.device_bytes += bytes;
	kv_stat_add(scan->store, KV_COUNT_DEVICE_READS, from_files);
	kv_stat_add(scan->store, KV_COUNT_DEVICE_READ_BYTES, bytes);
}

/*
 * Resets values that were read from the second tier and are wrong, to be read from their own files.
 * False: there is none.
 */
static bool
lost_in_tier(KvScan *scan, const KvRead *reads, int nreads)
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
		if (row->value == NULL && row->result < 0)
			kv_tier_failed(-row->result);
		else
			kv_tier_drop(&reads[i].place);
		row->value = NULL;
		row->no_tier = lost = true;
	}
	scan->stats.tier_hits += hits;
	kv_stat_add(scan->store, KV_COUNT_TIER_HITS, hits);
	kv_tier_count_hits(hits);
	return lost;
}

/*
 * Resets values whose bytes in the page cache do not match their entries, to be read from the
 * device: memory may be damaged, and a file system may keep a page that a direct write has made
 * stale.  So are values that cannot be read through the page cache, for example for lack of memory.
 * False: there is none.
 */
static bool
lost_in_page_cache(KvScan *scan, const KvRead *reads, int nreads)
{
	const KvStore *store = scan->store;
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

/* ---- moved values (I 16) ---- */

/*
 * Looks a row up again whose value is missing or wrong.  True: the value has moved, and the row has
 * its new version.  False: the value is damaged, or, *gone, the version does not exist any more.  A
 * forgiving scan notes either as the row's problem; others raise ERROR for damage.
 */
static bool
find_again(KvScan *scan, KvBatchRow *row, bool *gone)
{
	KvKey		key = {row->key, row->keylen};
	KvBatchRow	now = *row;
	bool		found;

	now.value = NULL;
	if (scan->view.snapshot != NULL)
		found = kv_batch_find_point(scan, key, &now);
	else
		found = kv_version_again(scan->store, key, &now.version);
	kv_run_trust();
	if (!found && scan->view.snapshot == NULL)
	{
		if (scan->forgiving)
			row->problem = ERRCODE_T_R_SERIALIZATION_FAILURE;
		else
			*gone = true;
		return false;
	}
	if (!found || now.version.location == row->version.location)
	{
		report_damage(scan, row);
		return false;
	}
	row->version = now.version;
	row->value = now.value;
	row->verified = row->headed = row->no_tier = row->direct = row->wrong_pages = false;
	kv_stat_add(scan->store, KV_COUNT_MOVED_READS, 1);
	return true;
}

/* Verifies every value of the batch (I 4).  True: some have moved, and must be fetched again. */
static bool
have_moved(KvScan *scan, bool *gone)
{
	bool		some = false;

	for (int i = 0; i < scan->nrows && !*gone; i++)
	{
		KvBatchRow *row = &scan->rows[i];
		KvKey		key = {row->key, row->keylen};

		if (!row->verified && row->value != NULL)
			row->verified = kv_value_matches(&scan->store->key, key, row->value, &row->version);
		if (!row->verified && row->problem == 0 && find_again(scan, row, gone))
			some = true;
	}
	return some && !*gone;
}

bool
kv_batch_fetch(KvScan *scan)
{
	KvRead	   *reads;
	bool		gone = false;

	if (!scan->reader.windows)
		fetch_cached(scan);
	if (!scan->points)
		fetch_windows(scan);
	reads = MemoryContextAlloc(scan->batch_context, sizeof(KvRead) * Max(scan->nrows, 1));

	/* values move rarely, so the second round usually is the last one */
	do
	{
		int			nreads;
		bool		again;

		do
		{
			nreads = plan_reads(scan, reads);
			CHECK_FOR_INTERRUPTS();
			KV_STOP_POINT("fetch_planned");
			if (nreads > 0)
				read_values(scan, reads, nreads);
			again = lost_in_tier(scan, reads, nreads);
			if (lost_in_page_cache(scan, reads, nreads))
				again = true;
		} while (again);
	} while (have_moved(scan, &gone));
	return !gone;
}

/* Values that fail verification are left to kv_batch_fetch. */
void
kv_batch_fetch_near(KvScan *scan)
{
	fetch_cached(scan);
	for (int i = 0; i < scan->nrows; i++)
	{
		KvBatchRow *row = &scan->rows[i];
		KvKey		key = {row->key, row->keylen};

		if (!row->verified && row->value != NULL)
			row->verified = kv_value_matches(&scan->store->key, key, row->value, &row->version);
		if (!row->verified)
			row->value = NULL;
	}
}

/* Reads it as a point, so that the value cache keeps it. */
bool
kv_fetch_version(KvStore *store, KvKey key, const KvVersion *version, KvRow *row)
{
	KvShard    *shard = kv_shard(store, kv_shard_for(store, key.data, key.len));
	KvBatchRow	only = {.version = *version, .key = key.data, .keylen = key.len};
	KvScan		scan = {.store = store, .want_values = true, .points = true, .rows = &only,
	.nrows = 1};
	bool		there;

	scan.batch_context = AllocSetContextCreate(CurrentMemoryContext, "kvfdw scan batch",
											   ALLOCSET_DEFAULT_SIZES);
	LWLockAcquire(&shard->lock, LW_SHARED);
	only.value = kv_batch_copy_from_buffer(&scan, shard, version);
	LWLockRelease(&shard->lock);
	there = kv_batch_fetch(&scan);
	if (there)
	{
		char	   *copy = MemoryContextAllocHuge(CurrentMemoryContext, Max(version->len, 1));

		memcpy(copy, only.value, version->len);
		row->key = key.data;
		row->keylen = key.len;
		row->form = KV_LOCATION_FORM(version->location);
		row->len = version->len;
		row->value = copy;
		row->header = NULL;
	}
	MemoryContextDelete(scan.batch_context);
	return there;
}
