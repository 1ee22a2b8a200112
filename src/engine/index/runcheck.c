/*
 * runcheck.c
 *		Verifies a run file: its header, its fence, its pages, its order.
 *
 * run.c verifies pages when it first uses them; kv_run_check verifies a whole run, reading the
 * file, so that it can report every unreadable page.
 */
#include "postgres.h"

#include "compat.h"
#include "engine/base/hash.h"
#include "engine/base/key.h"
#include "engine/base/types.h"
#include "engine/format/format.h"
#include "engine/index/run.h"
#include "engine/index/runformat.h"
#include "engine/io/io.h"
#include "miscadmin.h"

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
