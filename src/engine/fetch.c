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
	int			together;		/* reads made in the request that begins with this one */
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

/*
 * Values that the value cache has.  One that is wrong is as good as none: the block
 * was damaged when it was read for another value in it.
 */
static void
fetch_cached(KvScan *scan)
{
	char	   *into = NULL;

	for (int i = 0; i < scan->nrows; i++)
	{
		KvBatchRow *row = &scan->rows[i];
		KvKey		key = {row->key, row->keylen};

		if (row->value != NULL || row->version.len > KV_BLOCK)
			continue;
		if (into == NULL)
			into = MemoryContextAlloc(scan->batch_context, KV_BLOCK);
		if (!kv_cache_read(scan->store, row->version.location, row->version.len, into) ||
			!kv_value_matches(&scan->store->key, key, into, &row->version))
			continue;
		row->value = into;
		row->verified = true;
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
 * Take the values out of a request, and look whether they are right, while
 * others are read.  What is missing or wrong stays so; it is raised later.
 */
static void
take_values(KvIoRequest *request, void *arg)
{
	const KvScan *scan = arg;
	const KvRead *first = request->tag;
	bool		right = true;

	for (const KvRead *read = first; read < first + first->together; read++)
	{
		KvBatchRow *row = read->row;
		KvKey		key = {row->key, row->keylen};
		uint64		head = KV_LOCATION_OFFSET(row->version.location) - request->offset;

		if (request->result < 0 || request->result < head + row->version.len)
			return;
		row->value = request->buffer + head;
		row->verified = kv_value_matches(&scan->store->key, key, row->value, &row->version);
		right = right && row->verified;
	}
	if (scan->points && request->result == KV_BLOCK && right)
		kv_cache_keep(scan->store, first->row->version.location,
					  first->row->version.len, request->buffer);
}

/*
 * Requests for reads that are in order of place: those of the same or of
 * neighbouring blocks are made together.  Returns their number; *bytes: of all.
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

		if (last != NULL && joins_request(last, reads[i - 1].file, read))
		{
			uint64		end = Max(last->offset + last->len, read->offset + read->len);

			*bytes += end - last->offset - last->len;
			last->len = end - last->offset;
			((KvRead *) last->tag)->together++;
			continue;
		}
		last = &requests[n++];
		last->file = kv_value_file(&store->key, read->file, false);
		if (last->file < 0)
			read_failed(store, &read->row->version, -ENOENT);
		last->offset = read->offset;
		last->len = read->len;
		last->tag = read;
		read->together = 1;
		*bytes += read->len;
	}
	return n;
}

/*
 * Read the values of rows that are on the device.  Rows that were written
 * together cost little more than their bytes.
 */
static void
read_values(KvScan *scan, KvRead *reads, int nreads)
{
	KvIoRequest *requests;
	Size		bytes;
	char	   *buffer;
	int			n;

	kv_value_trim();
	requests = MemoryContextAlloc(scan->batch_context, sizeof(KvIoRequest) * nreads);
	n = make_requests(scan->store, reads, nreads, requests, &bytes);
	buffer = MemoryContextAllocHuge(scan->batch_context, bytes + KV_BLOCK);
	buffer = (char *) TYPEALIGN(KV_BLOCK, buffer);
	for (int i = 0; i < n; i++)
	{
		requests[i].buffer = buffer;
		buffer += requests[i].len;
	}
	kv_io_read_batch(requests, n, KV_IO_VALUE_READ, take_values, scan);

	for (int i = 0; i < n; i++)
	{
		const KvRead *first = requests[i].tag;

		for (const KvRead *read = first; read < first + first->together; read++)
		{
			if (read->row->value == NULL)
				read_failed(scan->store, &read->row->version, requests[i].result);
		}
	}
	scan->stats.device_reads += n;
	scan->stats.device_bytes += bytes;
	kv_count(scan->store, KV_COUNT_DEVICE_READS, n);
	kv_count(scan->store, KV_COUNT_DEVICE_READ_BYTES, bytes);
}

/* Get the values of all rows that still lack theirs, and verify all. */
void
kv_batch_fetch(KvScan *scan)
{
	KvRead	   *reads;
	int			nreads;

	if (!scan->pass.windows)
		fetch_cached(scan);
	if (!scan->points)
		kv_range_fetch(scan);
	reads = MemoryContextAlloc(scan->batch_context, sizeof(KvRead) * Max(scan->nrows, 1));
	nreads = plan_reads(scan, reads);
	if (nreads > 0)
		read_values(scan, reads, nreads);
	verify_values(scan);
}
