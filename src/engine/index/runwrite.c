/*
 * runwrite.c
 *		Writes a run: a stream of sorted entries becomes a file.  Verifies a whole run.
 *
 * Keeps I 5: a run is written through a descriptor under a temporary name, gets its final name
 * when it is complete and its pages are on the device, and is never written again.  So a
 * verified page is unchanged when the kernel drops it and reads it again.  Keeps I 12: only one
 * page, one output buffer and the fence (8 bytes per page) are in memory.
 *
 * The common beginning of the first keys of all pages is known only at the end.  Until then the
 * prefixes of the fence are taken after the common beginning so far.  If a page shortens it,
 * the removed bytes are inserted into the earlier prefixes (shorten_common).
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/fd.h"

#include "compat.h"
#include "engine/base/hash.h"
#include "engine/base/key.h"
#include "engine/base/types.h"
#include "engine/format/format.h"
#include "engine/index/run.h"
#include "engine/index/runformat.h"
#include "engine/io/fault.h"
#include "engine/io/io.h"
#include "engine/io/name.h"

/* Output is written in steps of this size. */
#define WRITE_STEP			(128 * 1024)
/*
 * Writing to the device is started in steps of this size, so that little is left to wait for at
 * the end.
 */
#define START_STEP			(1024 * 1024)

struct KvRunWriter
{
	char	   *path;
	char	   *temporary;
	File		file;			/* -1: closed */
	KvRunHeader header;
	pg_crc32c	identity_crc;

	/* entries of the page being filled */
	int			n;
	uint64		prefixes[RUN_PAGE_MAX_ENTRIES];
	KvVersion	versions[RUN_PAGE_MAX_ENTRIES];
	uint16		key_ends[RUN_PAGE_MAX_ENTRIES]; /* in heap */
	int			heap_used;
	bool		any_put;
	bool		uniform;
	uint32		uniform_len;	/* valid if any_put */
	char		heap[RUN_PAGE_SIZE];

	/* the key that was appended last, to check the order */
	int			last_len;		/* -1: none */
	uint8		last_key[KV_MAX_KEY];

	uint64	   *fence;
	uint64		fence_size;		/* allocated, in pages */
	int			first_len;
	uint8		first_key[KV_MAX_KEY];	/* of the first page */

	char	   *output;			/* WRITE_STEP bytes */
	Size		output_used;
	uint64		output_offset;	/* in the file, of its first byte */
	uint64		started;		/* writing to the device was started up to here */
};

KvRunWriter *
kv_run_create(const char *path, const KvRunIds *ids)
{
	KvRunWriter *writer = palloc0(sizeof(KvRunWriter));
	int			err;

	Assert(ids->fixed_key_len <= 8);
	writer->path = pstrdup(path);
	writer->temporary = psprintf("%s.tmp", path);
	writer->output = palloc(WRITE_STEP);
	writer->output_offset = writer->started = RUN_PAGE_SIZE;
	writer->fence_size = 1024;
	writer->fence = palloc(writer->fence_size * sizeof(uint64));
	writer->uniform = true;
	writer->last_len = -1;

	writer->header.magic = RUN_MAGIC;
	writer->header.format_version = KV_FORMAT_VERSION;
	writer->header.directory_id = ids->directory_id;
	writer->header.dboid = ids->dboid;
	writer->header.relid = ids->relid;
	writer->header.generation = ids->generation;
	writer->header.shard = ids->shard;
	writer->header.number = ids->number;
	writer->header.flags = ids->unfrozen ? KV_RUN_UNFROZEN : 0;
	writer->header.incarnation = ids->incarnation;
	writer->header.fixed_key_len = ids->fixed_key_len;
	writer->identity_crc = identity_crc(&writer->header);

	/* a file left by a crash might be longer than the new one */
	err = kv_io_unlink(writer->temporary);
	if (err != 0 && err != ENOENT)
		kv_io_error(ERROR, err, writer->temporary, "remove");
	writer->file = kv_io_open(writer->temporary, KV_IO_CREATE, KV_IO_RUN_WRITE);
	return writer;
}

static void
write_output(KvRunWriter *writer)
{
	if (writer->output_used == 0)
		return;
	kv_io_write(writer->file, writer->output, writer->output_used,
				writer->output_offset, KV_IO_RUN_WRITE);
	writer->output_offset += writer->output_used;
	writer->output_used = 0;
	if (writer->output_offset >= writer->started + START_STEP)
	{
		kv_io_require(kv_io_start_write_back_file(writer->file, writer->started,
												  writer->output_offset - writer->started),
					  writer->temporary, "write back");
		writer->started = writer->output_offset;
	}
}

/* Append bytes of the fence or a page to the output. */
static void
put_output(KvRunWriter *writer, const void *data, Size len)
{
	while (len > 0)
	{
		Size		part = Min(len, WRITE_STEP - writer->output_used);

		memcpy(writer->output + writer->output_used, data, part);
		writer->output_used += part;
		data = (const char *) data + part;
		len -= part;
		if (writer->output_used == WRITE_STEP)
			write_output(writer);
	}
}

static int
writer_page_flags(const KvRunWriter *writer, bool uniform)
{
	return ((writer->header.flags & KV_RUN_UNFROZEN) ? RUN_PAGE_UNFROZEN : 0) |
		(writer->header.fixed_key_len == 0 ? RUN_PAGE_VARIABLE : 0) |
		(uniform ? RUN_PAGE_UNIFORM : 0);
}

/* A key of the page being filled, if keys are variable. */
static const uint8 *
heap_key(const KvRunWriter *writer, int i, int *keylen)
{
	int			start = i > 0 ? writer->key_ends[i - 1] : 0;

	*keylen = writer->key_ends[i] - start;
	return (const uint8 *) writer->heap + start;
}

/*
 * The page's keys are complete: take its prefixes after their common beginning.  Returns its
 * length.
 */
static int
find_common(KvRunWriter *writer)
{
	int			first_len;
	int			last_len;
	const uint8 *first = heap_key(writer, 0, &first_len);
	const uint8 *last = heap_key(writer, writer->n - 1, &last_len);
	int			common = kv_key_common(first, first_len, last, last_len, KV_MAX_KEY);

	for (int i = 0; i < writer->n && common > 0; i++)
	{
		int			keylen;
		const uint8 *key = heap_key(writer, i, &keylen);

		writer->prefixes[i] = kv_key_prefix_after(key, keylen, common);
	}
	return common;
}

/*
 * The common beginning is shorter than before: insert the removed bytes into the fence's
 * prefixes.
 */
static void
shorten_common(KvRunWriter *writer, int common)
{
	int			more = writer->header.common - common;
	uint64		between = kv_key_prefix(writer->first_key + common, more);

	for (uint64 i = 0; i < writer->header.npages; i++)
		writer->fence[i] = more >= 8 ? between : between | writer->fence[i] >> 8 * more;
	writer->header.common = common;
}

/* The prefix of the next page for the fence. */
static uint64
fence_prefix(KvRunWriter *writer)
{
	int			keylen;
	const uint8 *key = heap_key(writer, 0, &keylen);
	int			common;

	if (writer->header.fixed_key_len > 0)
		return writer->prefixes[0];
	if (writer->header.npages == 0)
	{
		memcpy(writer->first_key, key, keylen);
		writer->first_len = writer->header.common = keylen;
	}
	common = kv_key_common(writer->first_key, writer->first_len, key, keylen,
						   writer->header.common);
	if (common < writer->header.common)
		shorten_common(writer, common);
	return kv_key_prefix_after(key, keylen, common);
}

/* Lay out the page being filled and pass it to the output. */
static void
finish_page(KvRunWriter *writer)
{
	union
	{
		RunPageHeader	header;
		char		bytes[RUN_PAGE_SIZE];
	}			page;
	int			flags = writer_page_flags(writer, writer->uniform);
	int			n = writer->n;
	int			heap_start = RUN_PAGE_SIZE - writer->heap_used;
	PageLayout	layout;

	if (n == 0)
		return;

	memset(&page, 0, sizeof(page));
	page.header.n = n;
	page.header.flags = flags;
	page.header.uniform_len = writer->uniform ? writer->uniform_len : 0;
	page.header.common = flags & RUN_PAGE_VARIABLE ? find_common(writer) : 0;

	page_layout(n, flags, &layout);
	memcpy(page.bytes + layout.prefixes, writer->prefixes, n * sizeof(uint64));
	for (int i = 0; i < n; i++)
	{
		const KvVersion *version = &writer->versions[i];

		((KvLocation *) (page.bytes + layout.locations))[i] = version->location;
		((uint32 *) (page.bytes + layout.crcs))[i] = version->crc;
		if (!writer->uniform)
			((uint32 *) (page.bytes + layout.lens))[i] = version->len;
		if (flags & RUN_PAGE_UNFROZEN)
		{
			((uint64 *) (page.bytes + layout.xids))[i] = version->xid;
			((uint32 *) (page.bytes + layout.cids))[i] = version->cid;
			((uint8 *) (page.bytes + layout.kinds))[i] =
				version->kind | version->status << 4;
		}
	}
	if (flags & RUN_PAGE_VARIABLE)
	{
		uint16	   *offsets = (uint16 *) (page.bytes + layout.offsets);

		offsets[0] = heap_start;
		for (int i = 0; i < n; i++)
			offsets[i + 1] = heap_start + writer->key_ends[i];
		memcpy(page.bytes + heap_start, writer->heap, writer->heap_used);
	}

	if (writer->header.npages == writer->fence_size)
	{
		writer->fence_size *= 2;
		writer->fence = repalloc_huge(writer->fence,
									  writer->fence_size * sizeof(uint64));
	}
	writer->fence[writer->header.npages] = fence_prefix(writer);
	page.header.crc = page_crc(writer->identity_crc, writer->header.npages, page.bytes);
	writer->header.npages++;
	put_output(writer, page.bytes, RUN_PAGE_SIZE);

	writer->n = 0;
	writer->heap_used = 0;
	writer->any_put = false;
	writer->uniform = true;
	writer->uniform_len = 0;
}

void
kv_run_append(KvRunWriter *writer, const uint8 *key, int keylen,
			  const KvVersion *version)
{
	bool		unfrozen = (writer->header.flags & KV_RUN_UNFROZEN) != 0;
	bool		fixed = writer->header.fixed_key_len != 0;
	bool		put = version->kind == KV_VERSION_PUT;
	bool		uniform;
	int			heap = fixed ? 0 : keylen;
	PageLayout	layout;

	if (keylen < 0 || keylen > KV_MAX_KEY ||
		(fixed && keylen != (int) writer->header.fixed_key_len))
		elog(ERROR, "key of %d bytes does not fit run \"%s\"", keylen, writer->path);
	if (!unfrozen && (!put || version->xid != 0))
		elog(ERROR, "unresolved entry for frozen run \"%s\"", writer->path);
	if (writer->last_len >= 0)
	{
		int			order = kv_key_compare(writer->last_key, writer->last_len, key, keylen);

		if (order > 0 || (order == 0 && !unfrozen))
			elog(ERROR, "entries for run \"%s\" are out of order", writer->path);
	}
	if (keylen > 0)
		memcpy(writer->last_key, key, keylen);
	writer->last_len = keylen;

	/* a DELETE has no length, so it is compatible with any */
	uniform = writer->uniform &&
		(put ? !writer->any_put || version->len == writer->uniform_len :
		 version->len == 0);
	page_layout(writer->n + 1, writer_page_flags(writer, uniform), &layout);
	if (layout.end + writer->heap_used + heap > RUN_PAGE_SIZE)
	{
		finish_page(writer);
		uniform = put || version->len == 0;
	}
	Assert(writer->n < RUN_PAGE_MAX_ENTRIES);

	writer->prefixes[writer->n] = kv_key_prefix(key, keylen);
	writer->versions[writer->n] = *version;
	if (heap > 0)
		memcpy(writer->heap + writer->heap_used, key, heap);
	writer->heap_used += heap;
	writer->key_ends[writer->n] = writer->heap_used;
	writer->uniform = uniform;
	if (put)
	{
		writer->any_put = true;
		writer->uniform_len = version->len;
		writer->header.value_bytes += version->len;
	}
	writer->n++;
	writer->header.nentries++;
	if (unfrozen && version->status == KV_XID_UNKNOWN && version->xid != 0 &&
		(writer->header.min_xid == 0 || version->xid < writer->header.min_xid))
		writer->header.min_xid = version->xid;
}

void
kv_run_finish(KvRunWriter *writer)
{
	union
	{
		RunHeaderPage	contents;
		char		bytes[RUN_PAGE_SIZE];
	}			page;
	Size		fence_bytes;

	finish_page(writer);
	fence_bytes = writer->header.npages * sizeof(uint64);
	writer->header.fence_offset = (writer->header.npages + 1) * RUN_PAGE_SIZE;
	writer->header.fence_crc = kv_crc(writer->fence, fence_bytes);
	put_output(writer, writer->fence, fence_bytes);
	write_output(writer);

	memset(&page, 0, sizeof(page));
	page.contents.header = writer->header;
	memcpy(page.contents.common, writer->first_key, writer->header.common);
	page.contents.header.header_crc = header_crc(&page.contents);
	kv_io_write(writer->file, page.bytes, RUN_PAGE_SIZE, 0, KV_IO_RUN_WRITE);

	kv_io_require(kv_io_try_write_back_file(writer->file), writer->temporary, "write back");
	kv_io_close(writer->file);
	writer->file = -1;

	KV_STOP_POINT("run_written");
	kv_io_require(kv_io_rename(writer->temporary, writer->path), writer->temporary, "rename");
	KV_STOP_POINT("run_renamed");

	pfree(writer->fence);
	pfree(writer->output);
	pfree(writer->temporary);
	pfree(writer->path);
	pfree(writer);
}

void
kv_run_discard(KvRunWriter *writer)
{
	if (writer->file >= 0)
		kv_io_close(writer->file);
	writer->file = -1;
	(void) kv_io_unlink(writer->temporary);
}

/* ---- verification of whole runs ---- */

/*
 * run.c verifies pages when it first uses them; kv_run_check verifies a whole run, reading the
 * file, so that it can report every unreadable page.
 */

/* How many pages are read at once. */
#define CHECK_PAGES			64

const char *
kv_run_header_problem(const RunHeaderPage *page, Size size, const KvRunIds *ids)
{
	const KvRunHeader *header = &page->header;

	if (size < RUN_PAGE_SIZE)
		return "file is shorter than its header";
	if (header->magic != RUN_MAGIC)
		return "file is not a run";
	if (header->format_version != KV_FORMAT_VERSION)
		return "file has another format version";
	if (header->header_crc != header_crc(page))
		return "header checksum does not match";
	if (header->directory_id != ids->directory_id)
		return "file belongs to another directory \"kvfdw\"";
	if (header->dboid != ids->dboid || header->relid != ids->relid ||
		header->generation != ids->generation)
		return "file belongs to another table";
	if (header->shard != ids->shard || header->number != ids->number)
		return "file belongs to another shard or has another number";
	if (header->fixed_key_len != ids->fixed_key_len)
		return "file has another key length";
	if (header->common > (header->fixed_key_len > 0 || header->npages == 0 ? 0 : KV_MAX_KEY))
		return "header has an invalid common prefix";
	if (header->npages > size / RUN_PAGE_SIZE ||
		header->fence_offset != (header->npages + 1) * RUN_PAGE_SIZE ||
		size != header->fence_offset + header->npages * sizeof(uint64))
		return "file size does not match its header";
	return NULL;
}

const char *
kv_run_fence_problem(const KvRunHeader *header, const uint64 *fence)
{
	if (header->fence_crc != kv_crc(fence, header->npages * sizeof(uint64)))
		return "fence checksum does not match";
	return NULL;
}

const char *
kv_run_page_problem(const KvRunHeader *run, pg_crc32c identity, uint64 pageno,
					const char *page)
{
	const RunPageHeader *header = (const RunPageHeader *) page;
	int			flags = header->flags;
	PageLayout	layout;

	if (header->crc != page_crc(identity, pageno, page))
		return "page checksum does not match";
	if ((flags & ~RUN_PAGE_FLAGS) != 0 || header->n == 0 || header->n > RUN_PAGE_MAX_ENTRIES ||
		((flags & RUN_PAGE_UNFROZEN) != 0) != ((run->flags & KV_RUN_UNFROZEN) != 0) ||
		((flags & RUN_PAGE_VARIABLE) != 0) != (run->fixed_key_len == 0))
		return "page header is invalid";
	page_layout(header->n, flags, &layout);
	if (layout.end > RUN_PAGE_SIZE)
		return "page has too many entries";
	if (header->reserved != 0 || (header->common > 0 && (flags & RUN_PAGE_VARIABLE) == 0))
		return "page header is invalid";
	if (flags & RUN_PAGE_VARIABLE)
	{
		const uint16 *offsets = (const uint16 *) (page + layout.offsets);

		if (offsets[0] < layout.end || offsets[header->n] != RUN_PAGE_SIZE)
			return "page has invalid key offsets";
		for (int i = 0; i < header->n; i++)
		{
			if (offsets[i + 1] < offsets[i] || offsets[i + 1] - offsets[i] > KV_MAX_KEY ||
				offsets[i + 1] - offsets[i] < header->common)
				return "page has invalid key offsets";
		}
	}
	return NULL;
}

void
kv_run_require_version(const char *path, const RunHeaderPage *page)
{
	if (page->header.magic == RUN_MAGIC)
		kv_format_require(path, page->header.format_version, KV_FORMAT_VERSION);
}

void
kv_run_damaged(const char *path, uint64 offset, const char *problem)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("file \"%s\" is damaged at offset " UINT64_FORMAT, path, offset),
			 errdetail("The check found: %s.", problem)));
}

/* ---- a whole run ---- */

/* One run being checked. */
typedef struct RunCheck
{
	const char *path;
	File		file;
	KvRunHeader header;
	char	   *pages;			/* CHECK_PAGES of them */
	KvRunHeader sums;
	uint8		common[KV_MAX_KEY]; /* header.common bytes, the beginning of all pages' first
									 * keys */
	uint8		last_key[KV_MAX_KEY];
	int			last_len;		/* -1: none yet */
	bool		damaged;
	KvProblemCallback report;
	void	   *arg;
} RunCheck;

/*
 * Check the first key of a verified page, which has this prefix in the fence, unless fence is
 * NULL.
 */
static void
check_first(RunCheck *check, uint64 pageno, const uint64 *fence, const uint8 *key, int keylen)
{
	int			common = check->header.common;
	int64		offset = (pageno + 1) * RUN_PAGE_SIZE;

	if (fence != NULL && *fence != kv_key_prefix_after(key, keylen, common))
		check->report(check->arg, check->path, offset, "fence does not match the page's first key");
	if (keylen < common || memcmp(check->common, key, common) != 0)
		check->report(check->arg, check->path, offset,
					  "page lacks the common prefix of the header");
}

/* Report all that is wrong with one verified page, given the previous key. */
static void
check_page(RunCheck *check, const char *page, uint64 pageno, const uint64 *fence)
{
	int64		offset = (pageno + 1) * RUN_PAGE_SIZE;
	bool		unfrozen = (check->header.flags & KV_RUN_UNFROZEN) != 0;
	const uint64 *prefixes = page_prefixes(page);
	int			common = page_common(page);
	uint8		first[KV_MAX_KEY];

	for (int i = 0; i < page_entries(page); i++)
	{
		uint8		keybuf[8];
		const uint8 *key;
		int			keylen;
		KvVersion	version;

		page_entry(&check->header, page, i, keybuf, &key, &keylen, &version);
		if (i == 0)
		{
			memcpy(first, key, common);
			check_first(check, pageno, fence, key, keylen);
		}
		if (prefixes[i] != kv_key_prefix_after(key, keylen, common) ||
			memcmp(first, key, common) != 0)
			check->report(check->arg, check->path, offset, "key prefix does not match its key");
		if (check->last_len >= 0)
		{
			int			order = kv_key_compare(check->last_key, check->last_len, key, keylen);

			if (order > 0 || (order == 0 && !unfrozen))
				check->report(check->arg, check->path, offset, "keys are out of order");
		}
		memcpy(check->last_key, key, keylen);
		check->last_len = keylen;

		if (version.kind < KV_VERSION_PUT ||
			version.kind > (unfrozen ? KV_VERSION_LOCK : KV_VERSION_PUT) ||
			version.status > KV_XID_ABORTED)
			check->report(check->arg, check->path, offset,
						  "entry has an unknown kind or transaction status");
		check->sums.nentries++;
		if (version.kind == KV_VERSION_PUT)
			check->sums.value_bytes += version.len;
	}
}

/* Read all of a part, or report that it cannot be read. */
static bool
read_part(RunCheck *check, void *buffer, Size len, uint64 offset)
{
	int			r = kv_io_try_read(check->file, buffer, len, offset, KV_IO_RUN_MAP);

	if (r == (int) len)
		return true;
	check->report(check->arg, check->path, offset,
				  r < 0 ? "page could not be read" : "file is truncated");
	check->damaged = true;
	return false;
}

/* Read the fence; NULL: it was reported. */
static uint64 *
read_fence(RunCheck *check)
{
	const KvRunHeader *header = &check->header;
	uint64		size = header->npages * sizeof(uint64);
	uint64	   *fence = MemoryContextAllocHuge(CurrentMemoryContext, Max(size, 1));
	const char *problem;

	for (uint64 at = 0; at < size; at += CHECK_PAGES * RUN_PAGE_SIZE)
	{
		if (!read_part(check, (char *) fence + at, Min(size - at, CHECK_PAGES * RUN_PAGE_SIZE),
					   header->fence_offset + at))
			return NULL;
	}
	problem = kv_run_fence_problem(header, fence);
	if (problem != NULL)
		check->report(check->arg, check->path, header->fence_offset, problem);
	return fence;
}

/* Check entry pages from first on, as many as were read or can be read one by one. */
static void
check_pages(RunCheck *check, const uint64 *fence, uint64 first, uint64 n)
{
	const KvRunHeader *header = &check->header;
	pg_crc32c	identity = identity_crc(header);
	uint64		start = (first + 1) * RUN_PAGE_SIZE;
	bool		whole = kv_io_try_read(check->file, check->pages, n * RUN_PAGE_SIZE, start,
									   KV_IO_RUN_MAP) == (int) (n * RUN_PAGE_SIZE);

	for (uint64 i = 0; i < n; i++)
	{
		char	   *page = check->pages + i * RUN_PAGE_SIZE;
		const char *problem;

		CHECK_FOR_INTERRUPTS();
		if (!whole && !read_part(check, page, RUN_PAGE_SIZE, start + i * RUN_PAGE_SIZE))
			continue;
		problem = kv_run_page_problem(header, identity, first + i, page);
		if (problem == NULL)
			check_page(check, page, first + i, fence != NULL ? &fence[first + i] : NULL);
		else
		{
			check->report(check->arg, check->path, start + i * RUN_PAGE_SIZE, problem);
			check->damaged = true;
		}
	}
}

static void
check_file(RunCheck *check, const KvRunIds *ids)
{
	Size		size = kv_io_size(check->file);
	const RunHeaderPage *page;
	const char *problem;
	uint64	   *fence;

	if (size == 0)
	{
		check->report(check->arg, check->path, 0, "file is empty");
		return;
	}
	check->pages = palloc(CHECK_PAGES * RUN_PAGE_SIZE);
	memset(check->pages, 0, RUN_PAGE_SIZE);
	if (size >= RUN_PAGE_SIZE && !read_part(check, check->pages, RUN_PAGE_SIZE, 0))
		return;
	page = (const RunHeaderPage *) check->pages;
	problem = kv_run_header_problem(page, size, ids);
	if (problem != NULL)
	{
		check->report(check->arg, check->path, 0, problem);
		return;
	}
	check->header = page->header;
	memcpy(check->common, page->common, page->header.common);
	for (int i = sizeof(KvRunHeader) + page->header.common; i < RUN_PAGE_SIZE; i++)
	{
		if (check->pages[i] != 0)
		{
			check->report(check->arg, check->path, i, "header page has data after its header");
			break;
		}
	}
	fence = read_fence(check);
	for (uint64 first = 0; first < check->header.npages; first += CHECK_PAGES)
		check_pages(check, fence, first, Min(check->header.npages - first, CHECK_PAGES));
	if (!check->damaged && (check->sums.nentries != check->header.nentries ||
							check->sums.value_bytes != check->header.value_bytes))
		check->report(check->arg, check->path, 0,
					  "number of entries does not match the header");
	if (fence != NULL)
		pfree(fence);
	pfree(check->pages);
}

bool
kv_run_check(const char *path, const KvRunIds *ids, KvProblemCallback report, void *arg)
{
	RunCheck   *check = palloc0(sizeof(RunCheck));

	check->path = path;
	check->report = report;
	check->arg = arg;
	check->last_len = -1;
	check->file = kv_io_open(path, KV_IO_READONLY | KV_IO_MISSING_OK, KV_IO_RUN_MAP);
	if (check->file < 0)
		return false;
	PG_TRY();
	{
		check_file(check, ids);
	}
	PG_FINALLY();
	{
		kv_io_close(check->file);
	}
	PG_END_TRY();
	pfree(check);
	return true;
}
