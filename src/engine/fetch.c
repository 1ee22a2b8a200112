/*
 * fetch.c
 *		The values of a batch of rows, wherever they are: in merge slots, in the
 *		value cache, in windows of the range cache, on the device.
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "engine/batch.h"

/*
 * A value that is in a merge slot now, copied; NULL if it must be read.  The
 * shard's lock is held.
 */
char *
kv_batch_copy_from_slot(KvScan *scan, const KvShard *shard, const KvVersion *version)
{
	const char *found;
	char	   *copy;

	if (!scan->want_values)
		return NULL;
	if (version->len == 0)
		return MemoryContextAlloc(scan->batch_context, 1);
	found = kv_slot_find(shard, version);
	if (found == NULL)
		return NULL;
	copy = MemoryContextAllocHuge(scan->batch_context, version->len);
	memcpy(copy, found, version->len);
	scan->stats.slot_hits++;
	kv_count(scan->store, KV_COUNT_SLOT_HITS, 1);
	return copy;
}

/* Where one row's value is on the device, in whole blocks. */
typedef struct KvRead
{
	uint32		file;
	uint32		len;
	uint64		offset;
	KvBatchRow *row;
} KvRead;

#define KV_MERGED_READ	(512 * 1024)	/* the largest read made of several */

static int
compare_reads(const void *a, const void *b)
{
	const KvRead *left = a;
	const KvRead *right = b;

	if (left->file != right->file)
		return left->file < right->file ? -1 : 1;
	return left->offset < right->offset ? -1 : left->offset > right->offset;
}

/* Values that the value cache has. */
static void
fetch_cached(KvScan *scan)
{
	char	   *into = NULL;

	for (int i = 0; i < scan->nrows; i++)
	{
		KvBatchRow *row = &scan->rows[i];

		if (row->value != NULL || row->version.len > KV_BLOCK)
			continue;
		if (into == NULL)
			into = MemoryContextAlloc(scan->batch_context, KV_BLOCK);
		if (!kv_cache_read(scan->store, row->version.location, row->version.len, into))
			continue;
		row->value = into;
		into = NULL;
		scan->stats.cache_hits++;
		kv_count(scan->store, KV_COUNT_CACHE_HITS, 1);
	}
}

/* The reads that the batch needs, by place; values already there need none. */
static int
plan_reads(KvScan *scan, KvRead *reads)
{
	int			n = 0;

	for (int i = 0; i < scan->nrows; i++)
	{
		KvBatchRow *row = &scan->rows[i];
		uint64		offset = KV_LOCATION_OFFSET(row->version.location);

		if (row->value != NULL)
			continue;
		reads[n].file = KV_LOCATION_FILE(row->version.location);
		reads[n].offset = TYPEALIGN_DOWN(KV_BLOCK, offset);
		reads[n].len = TYPEALIGN(KV_BLOCK, offset + row->version.len) - reads[n].offset;
		reads[n].row = row;
		n++;
	}
	qsort(reads, n, sizeof(KvRead), compare_reads);
	return n;
}

static void
read_failed(const KvStore *store, const KvVersion *version, int result)
{
	const char *path = kv_path_value(&store->key, KV_LOCATION_FILE(version->location));

	if (result < 0)
		kv_io_error(ERROR, -result, path, "read");
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("file \"%s\" ends before offset %llu", path,
					(unsigned long long) KV_LOCATION_OFFSET(version->location) + version->len)));
}

/* Every value of the batch, wherever it came from, is its entry's (I 4). */
static void
verify_values(KvScan *scan)
{
	for (int i = 0; i < scan->nrows; i++)
	{
		KvBatchRow *row = &scan->rows[i];
		KvKey		key = {row->key, row->keylen};

		if (!row->verified)
			kv_value_verify(&scan->store->key, key, row->value, &row->version);
	}
}

/* Can the next read, by place, be made together with the request so far? */
static bool
joins_request(const KvIoRequest *request, uint32 file, const KvRead *next)
{
	return file == next->file && next->offset <= request->offset + request->len &&
		next->offset + next->len - request->offset <= KV_MERGED_READ;
}

/*
 * Read the values of all rows that still lack theirs, and verify all.  Values
 * in the same or neighbouring blocks are read together, so rows that were
 * written together cost little more than their bytes.
 */
void
kv_batch_fetch(KvScan *scan)
{
	KvRead	   *reads;
	int			nreads;
	KvIoRequest *requests;
	int			n = 0;
	Size		total = 0;
	char	   *buffer;

	fetch_cached(scan);
	if (!scan->points)
		kv_range_fetch(scan);
	reads = MemoryContextAlloc(scan->batch_context, sizeof(KvRead) * Max(scan->nrows, 1));
	nreads = plan_reads(scan, reads);
	if (nreads == 0)
	{
		verify_values(scan);
		return;
	}
	kv_value_trim();
	requests = MemoryContextAlloc(scan->batch_context, sizeof(KvIoRequest) * nreads);
	for (int i = 0; i < nreads; i++)
	{
		KvIoRequest *last = n > 0 ? &requests[n - 1] : NULL;

		if (last != NULL && joins_request(last, reads[i - 1].file, &reads[i]))
		{
			uint64		end = Max(last->offset + last->len, reads[i].offset + reads[i].len);

			total += end - last->offset - last->len;
			last->len = end - last->offset;
			continue;
		}
		requests[n].file = kv_value_file(&scan->store->key, reads[i].file, false);
		if (requests[n].file < 0)
			read_failed(scan->store, &reads[i].row->version, -ENOENT);
		requests[n].offset = reads[i].offset;
		requests[n].len = reads[i].len;
		requests[n].tag = &reads[i];	/* the first of its reads */
		total += reads[i].len;
		n++;
	}

	buffer = MemoryContextAllocHuge(scan->batch_context, total + KV_BLOCK);
	buffer = (char *) TYPEALIGN(KV_BLOCK, buffer);
	for (int i = 0; i < n; i++)
	{
		requests[i].buffer = buffer;
		buffer += requests[i].len;
	}
	kv_io_read_batch(requests, n, KV_IO_VALUE_READ);

	for (int i = 0; i < n; i++)
	{
		const KvRead *end = i + 1 < n ? requests[i + 1].tag : reads + nreads;

		for (KvRead *read = requests[i].tag; read < end; read++)
		{
			KvVersion  *version = &read->row->version;
			uint64		head = KV_LOCATION_OFFSET(version->location) - requests[i].offset;

			if (requests[i].result < 0 || requests[i].result < head + version->len)
				read_failed(scan->store, version, requests[i].result);
			read->row->value = requests[i].buffer + head;
		}
	}
	verify_values(scan);
	for (int i = 0; scan->points && i < n; i++)
	{
		const KvRead *read = requests[i].tag;

		if (requests[i].len == KV_BLOCK && requests[i].result == KV_BLOCK)
			kv_cache_keep(scan->store, read->row->version.location,
						  read->row->version.len, requests[i].buffer);
	}
	scan->stats.device_reads += n;
	scan->stats.device_bytes += total;
	kv_count(scan->store, KV_COUNT_DEVICE_READS, n);
	kv_count(scan->store, KV_COUNT_DEVICE_READ_BYTES, total);
}
