/*
 * run.c
 *		Mapping, reading and searching runs; run.h is the contract.
 *
 * runformat.h describes the bytes, runwrite.c writes a run and verifies a whole one.
 *
 * Invariants:
 *
 *  - I 14: a mapping outlives the unlinking of its file.
 *  - I 11: a page's CRC also covers the identity of the run and the number of the page, so a
 *    misplaced page is detected.  A page is verified, and its layout proved to be inside it,
 *    before any other use, once per mapping.
 *  - I 11: a page that the kernel cannot read, whether for the first time or again, is an
 *    ERROR. The mapping is guarded (io/map.c): loads from such a page return zeros, and every
 *    function here checks, before it returns, whether that has happened.  The caller reads the
 *    key that kv_run_entry points to later, so it calls kv_run_trust() when it has finished
 *    with keys.  The run is then mapped again when it is next pinned.
 *  - I 12: mappings are bounded by kvfdw.max_mapped_runs, except for those in use.
 *
 * A mapping keeps the space of a removed file, so such mappings are dropped soon
 * (kv_run_let_go).  Otherwise a process would come to hold as many replaced runs as it may have
 * mapped.
 *
 * Mappings are private to the process and need no lock.  Their key is their ids, not the path:
 * a run number is never used twice in one opening of a store.
 */
#include "postgres.h"

#include <unistd.h>

#include "clock.h"
#include "compat.h"
#include "engine/base/hash.h"
#include "engine/base/key.h"
#include "engine/base/shared.h"
#include "engine/base/types.h"
#include "engine/index/run.h"
#include "engine/index/runformat.h"
#include "engine/io/io.h"
#include "engine/io/map.h"
#include "lib/ilist.h"
#include "miscadmin.h"
#include "utils/guc.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"

/* How many of a page's prefixes a search fetches at once: all, of most pages. */
#define PREFIXES_FETCHED	128

#define UNREADABLE			"page could not be read"

typedef struct RunKey
{
	uint64		directory_id;
	Oid			dboid;
	Oid			relid;
	uint32		generation;
	uint32		shard;
	uint32		number;
	uint32		opening;
} RunKey;

struct KvRun
{
	RunKey		key;			/* hash key: must be first */
	char	   *path;
	KvRunHeader header;
	pg_crc32c	identity_crc;

	/* if mapped */
	char	   *map;			/* NULL: it is open, not mapped */
	Size		size;
	const uint64 *fence;
	uint8	   *common;			/* header.common bytes, the beginning of all pages' first keys;
								 * NULL: none */
	uint8	   *verified;		/* a bit per entry page */
	uint64		near;			/* number of pages that begin before the key of the last search */
	int			finger;			/* index in the last of these that the search has found */
	KvIoGuard	guard;
	int			pins;
	bool		unreadable;		/* a page of the mapping has been replaced by zeros */
	dlist_node	lru;			/* in unpinned, most recently used first */

	/* if open, to be read from beginning to end */
	File		file;
	char	   *window;			/* WINDOW_PAGES entry pages */
	uint64		window_first;
	uint64		window_pages;
	uint64		verified_page;	/* of the window; npages: none */
};

/* How many pages of an open run are read at once. */
#define WINDOW_PAGES		64

static int	max_mapped_runs = 1024;

/* time between checks for removed files */
#define LOOK_US				USECS_PER_SEC

static MemoryContext run_context = NULL;
static HTAB *mapped_runs = NULL;
static dlist_head unpinned = DLIST_STATIC_INIT(unpinned);

static uint32 gone_seen = 0;	/* KvBase.runs_gone at the last check */
static TimestampTz gone_looked = 0; /* when that was */

/* Since the last kv_run_take_unreadable(), a pinned run was found unreadable. */
static bool unreadable_pinned = false;

/* ---- pages that cannot be read ---- */

/* A guard has failed: mark its run and raise ERROR, unless the run is no longer mapped. */
static pg_noinline void
report_unreadable(void)
{
	HASH_SEQ_STATUS status;
	KvRun	   *run;
	KvRun	   *first = NULL;

	if (mapped_runs == NULL)
		return;
	hash_seq_init(&status, mapped_runs);
	while ((run = hash_seq_search(&status)) != NULL)
	{
		if (!run->guard.failed)
			continue;
		kv_io_guard_reported(&run->guard);
		run->unreadable = true;
		unreadable_pinned |= run->pins > 0;
		if (first == NULL)
			first = run;
	}
	if (first != NULL)
		kv_run_damaged(first->path, first->guard.offset, UNREADABLE);
}

void
kv_run_trust(void)
{
	if (unlikely(kv_io_guard_failures != 0))
		report_unreadable();
}

bool
kv_run_take_unreadable(void)
{
	bool		taken = unreadable_pinned;

	kv_run_trust();
	unreadable_pinned = false;
	return taken;
}

/* ---- mappings ---- */

/* Read a page of an open run, and the following ones, into the window. */
static void
read_window(KvRun *run, uint64 pageno)
{
	uint64		n = Min(run->header.npages - pageno, WINDOW_PAGES);
	uint64		offset = (pageno + 1) * RUN_PAGE_SIZE;

	run->window_pages = 0;
	run->verified_page = run->header.npages;
	if (kv_io_read(run->file, run->window, n * RUN_PAGE_SIZE, offset, KV_IO_RUN_MAP) <
		(int) (n * RUN_PAGE_SIZE))
		kv_run_damaged(run->path, offset, "file is truncated");
	run->window_first = pageno;
	run->window_pages = n;
}

/* Entry page pageno of an open run, verified; good until another page is asked for. */
static const char *
read_page(KvRun *run, uint64 pageno)
{
	const char *page;

	if (pageno < run->window_first || pageno >= run->window_first + run->window_pages)
		read_window(run, pageno);
	page = run->window + (pageno - run->window_first) * RUN_PAGE_SIZE;
	if (run->verified_page != pageno)
	{
		const char *problem = kv_run_page_problem(&run->header, run->identity_crc,
												  pageno, page);

		if (problem != NULL)
			kv_run_damaged(run->path, (pageno + 1) * RUN_PAGE_SIZE, problem);
		run->verified_page = pageno;
	}
	return page;
}

/* Entry page pageno of any run, verified. */
static inline const char *
run_page(KvRun *run, uint64 pageno)
{
	const char *page = run->map + (pageno + 1) * RUN_PAGE_SIZE;

	Assert(pageno < run->header.npages);
	if (unlikely(run->map == NULL))
		return read_page(run, pageno);
	if (unlikely((run->verified[pageno / 8] & (1 << (pageno % 8))) == 0))
	{
		const char *problem = kv_run_page_problem(&run->header, run->identity_crc,
												  pageno, page);

		kv_run_trust();
		if (problem != NULL)
			kv_run_damaged(run->path, (pageno + 1) * RUN_PAGE_SIZE, problem);
		run->verified[pageno / 8] |= 1 << (pageno % 8);
	}
	return page;
}

/* Unmap and forget an unpinned run.  Never raises. */
static void
drop_run(KvRun *run)
{
	Assert(run->pins == 0);
	dlist_delete(&run->lru);
	kv_io_unguard(&run->guard);
	kv_io_unmap(run->map, run->size);
	pfree(run->verified);
	if (run->common != NULL)
		pfree(run->common);
	pfree(run->path);
	hash_search(mapped_runs, &run->key, HASH_REMOVE, NULL);
}

static void
run_key(const KvRunIds *ids, RunKey *key)
{
	memset(key, 0, sizeof(*key));
	key->directory_id = ids->directory_id;
	key->dboid = ids->dboid;
	key->relid = ids->relid;
	key->generation = ids->generation;
	key->shard = ids->shard;
	key->number = ids->number;
	key->opening = ids->opening;
}

/* ERROR unless this guarded mapping is valid. */
static void
verify_map(const char *path, const char *map, Size size, const KvRunIds *ids,
		   const KvIoGuard *guard, RunHeaderPage *page)
{
	const KvRunHeader *header = &page->header;
	uint64		offset = 0;
	const char *problem;

	memset(page, 0, sizeof(RunHeaderPage));
	memcpy(page, map, Min(size, sizeof(RunHeaderPage)));
	if (!guard->failed)
		kv_run_require_version(path, page);
	problem = kv_run_header_problem(page, size, ids);
	if (problem == NULL)
	{
		offset = header->fence_offset;
		problem = kv_run_fence_problem(header, (const uint64 *) (map + offset));
	}
	if (guard->failed)
		kv_run_damaged(path, guard->offset, UNREADABLE);
	if (problem != NULL)
		kv_run_damaged(path, offset, problem);
}

/*
 * Map and verify a run that is not in the cache.  NULL if the file is missing.  Leaves no
 * mapping if it raises.
 */
static KvRun *
map_run(const char *path, const KvRunIds *ids, const RunKey *key)
{
	Size		size;
	char	   *map = kv_io_map(path, false, &size, KV_IO_RUN_MAP);
	KvIoGuard	guard;
	KvRun	   *run;

	if (map == NULL && errno == ENOENT)
		return NULL;
	if (map == NULL && errno == EINVAL)
		kv_run_damaged(path, 0, "file is empty");
	if (map == NULL)
		kv_io_error(ERROR, errno, path, "map");

	kv_io_guard(&guard, map, size);
	PG_TRY();
	{
		RunHeaderPage page;
		char	   *path_copy;
		uint8	   *verified;
		uint8	   *common = NULL;

		verify_map(path, map, size, ids, &guard, &page);
		path_copy = MemoryContextStrdup(run_context, path);
		verified = MemoryContextAllocExtended(run_context, page.header.npages / 8 + 1,
											  MCXT_ALLOC_ZERO | MCXT_ALLOC_HUGE);
		if (page.header.common > 0)
		{
			common = MemoryContextAlloc(run_context, page.header.common);
			memcpy(common, page.common, page.header.common);
		}
		run = hash_search(mapped_runs, key, HASH_ENTER, NULL);
		run->path = path_copy;
		run->map = map;
		run->size = size;
		run->header = page.header;
		run->fence = (const uint64 *) (map + page.header.fence_offset);
		run->identity_crc = identity_crc(&page.header);
		run->verified = verified;
		run->common = common;
		run->near = 0;
		run->finger = 0;
		run->pins = 0;
		run->unreadable = false;
		dlist_push_head(&unpinned, &run->lru);
	}
	PG_CATCH();
	{
		kv_io_unguard(&guard);
		kv_io_unmap(map, size);
		PG_RE_THROW();
	}
	PG_END_TRY();
	kv_io_unguard(&guard);
	kv_io_guard(&run->guard, map, size);
	return run;
}

KvRun *
kv_run_pin(const char *path, const KvRunIds *ids)
{
	RunKey		key;
	KvRun	   *run;

	if (mapped_runs == NULL)
	{
		HASHCTL		ctl;

		if (run_context == NULL)
			run_context = AllocSetContextCreate(TopMemoryContext, "kvfdw mapped runs",
												ALLOCSET_DEFAULT_SIZES);
		ctl.keysize = sizeof(RunKey);
		ctl.entrysize = sizeof(KvRun);
		ctl.hcxt = run_context;
		mapped_runs = hash_create("kvfdw mapped runs", 128, &ctl,
								  HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	}

	run_key(ids, &key);
	run = hash_search(mapped_runs, &key, HASH_FIND, NULL);
	if (run != NULL && run->unreadable && run->pins == 0)
	{
		drop_run(run);
		run = NULL;
	}
	if (run == NULL)
	{
		while (hash_get_num_entries(mapped_runs) >= max_mapped_runs &&
			   !dlist_is_empty(&unpinned))
			drop_run(dlist_container(KvRun, lru, dlist_tail_node(&unpinned)));
		run = map_run(path, ids, &key);
		if (run == NULL)
			return NULL;
	}
	if (run->pins++ == 0)
		dlist_delete(&run->lru);
	return run;
}

/* ---- runs whose files were removed ---- */

void
kv_run_say_gone(void)
{
	pg_atomic_fetch_add_u32(&kv_base->runs_gone, 1);
}

bool
kv_run_any_gone(void)
{
	TimestampTz now;

	if (mapped_runs == NULL || gone_seen == pg_atomic_read_u32(&kv_base->runs_gone))
		return false;
	now = kv_clock();
	if (now - gone_looked < LOOK_US)
		return false;
	gone_looked = now;
	return true;
}

void
kv_run_let_go(void)
{
	dlist_mutable_iter iter;

	gone_seen = pg_atomic_read_u32(&kv_base->runs_gone);
	pg_read_barrier();
	dlist_foreach_modify(iter, &unpinned)
	{
		KvRun	   *run = dlist_container(KvRun, lru, iter.cur);

		if (access(run->path, F_OK) != 0 && errno == ENOENT)
			drop_run(run);
	}
}

KvRun *
kv_run_open(const char *path, const KvRunIds *ids)
{
	File		file = kv_io_open(path, KV_IO_READONLY | KV_IO_MISSING_OK, KV_IO_RUN_MAP);
	KvRun	   *run = NULL;

	if (file < 0)
		return NULL;
	PG_TRY();
	{
		uint64		size = kv_io_size(file);
		RunHeaderPage page = {0};
		const char *problem;

		run = palloc0(sizeof(KvRun));
		run->path = pstrdup(path);
		run->file = file;
		if (size == 0)
			kv_run_damaged(path, 0, "file is empty");
		(void) kv_io_read(file, &page, sizeof(page), 0, KV_IO_RUN_MAP);
		kv_run_require_version(path, &page);
		problem = kv_run_header_problem(&page, size, ids);
		if (problem != NULL)
			kv_run_damaged(path, 0, problem);
		run->header = page.header;
		run->identity_crc = identity_crc(&run->header);
		run->window = palloc(WINDOW_PAGES * RUN_PAGE_SIZE);
	}
	PG_CATCH();
	{
		kv_io_close(file);
		PG_RE_THROW();
	}
	PG_END_TRY();
	return run;
}

void
kv_run_close(KvRun *run)
{
	Assert(run->map == NULL);
	kv_io_close(run->file);
	pfree(run->window);
	pfree(run->path);
	pfree(run);
}

void
kv_run_unpin(KvRun *run)
{
	Assert(run->pins > 0);
	if (--run->pins > 0)
		return;
	dlist_push_head(&unpinned, &run->lru);
	if (run->unreadable)
		drop_run(run);
}

const KvRunHeader *
kv_run_header(KvRun *run)
{
	return &run->header;
}

int
kv_run_page_prefix(KvRun *run, uint64 page, uint8 bytes[8])
{
	uint64		prefix = pg_hton64(run->fence[page]);
	int			common = Min(run->header.common, sizeof(prefix));

	kv_run_trust();
	if (common > 0)
		memcpy(bytes, run->common, common);
	memcpy(bytes + common, &prefix, sizeof(prefix) - common);
	return run->header.fixed_key_len > 0 ? run->header.fixed_key_len : sizeof(prefix);
}

/* ---- searching ---- */

/*
 * Is an entry with the key's own prefix before the key?  Only runs of variable keys have to
 * read the entry: among fixed ones a tie means that the shorter one is the other's beginning.
 */
static inline bool
tie_before(KvRun *run, uint64 pageno, int index, const uint8 *key, int keylen)
{
	const uint8 *entry_key;
	int			entry_len;

	if (run->header.fixed_key_len != 0)
		return (int) run->header.fixed_key_len < keylen;
	entry_key = page_key(run_page(run, pageno), index, &entry_len);
	return kv_key_compare(entry_key, entry_len, key, keylen) < 0;
}

/*
 * The range of n sorted prefixes, taken after this common beginning, that equal the key's: from
 * *low to before *high.  Prefixes before *low are of lesser keys.
 */
static inline void
equal_after(const uint64 *prefixes, uint64 n, const uint8 *common, int common_len,
			const uint8 *key, int keylen, uint64 *low, uint64 *high)
{
	int			side = common_len > 0 ? kv_key_compare_prefix(key, keylen, common, common_len) : 0;

	if (likely(side == 0))
		kv_prefixes_equal(prefixes, n, kv_key_prefix(key + common_len, keylen - common_len), low,
						  high);
	else
		*low = *high = side < 0 ? 0 : n;
}

/*
 * Do as many pages begin before the key as before the key of the last search, or one more?
 * That is mostly so in a walk through a table in key order.
 */
static inline bool
is_near(KvRun *run, const uint8 *key, int keylen)
{
	int			common = run->header.common;
	uint64		npages = run->header.npages;
	uint64		prefix = kv_key_prefix_after(key, keylen, common);

	if (run->near == 0 || run->fence[run->near - 1] >= prefix ||
		(common > 0 && kv_key_compare_prefix(key, keylen, run->common, common) != 0))
		return false;
	if (run->near == npages || run->fence[run->near] > prefix)
		return true;
	if (run->fence[run->near] == prefix ||
		(run->near + 1 < npages && run->fence[run->near + 1] <= prefix))
		return false;
	run->near++;
	return true;
}

/* The number of pages whose first entry is before the key; begins to fetch the last of them. */
static uint64
pages_before(KvRun *run, const uint8 *key, int keylen)
{
	uint64		low;
	uint64		high;

	if (is_near(run, key, keylen))
		return run->near;
	equal_after(run->fence, run->header.npages, run->common, run->header.common, key, keylen, &low,
				&high);
	while (low < high)
	{
		uint64		middle = low + (high - low) / 2;

		if (tie_before(run, middle, 0, key, keylen))
			low = middle + 1;
		else
			high = middle;
	}
	if (low > 0)
		kv_prefixes_fetch(page_prefixes(run->map + low * RUN_PAGE_SIZE), PREFIXES_FETCHED);
	run->near = low;
	return low;
}

/*
 * Is the result of a search in a page, after all keys' common beginning, that of the last search
 * or the entry after it?  That is mostly so for successive keys.
 */
static inline bool
is_at_finger(const uint64 *prefixes, int n, uint64 prefix, int *finger)
{
	int			i = *finger;

	if (i >= n)
		return false;
	if (prefixes[i] < prefix)
		i++;
	else if (i > 0 && prefixes[i - 1] >= prefix)
		return false;
	/* of equal prefixes the keys decide */
	if (i < n && (prefixes[i] < prefix ||
				  (prefixes[i] == prefix && i + 1 < n && prefixes[i + 1] == prefix)))
		return false;
	*finger = i;
	return true;
}

/* So many pages begin before the key: set the cursor as kv_run_seek does. */
static void
seek_after(KvRun *run, uint64 before, const uint8 *key, int keylen, KvRunCursor *cursor)
{
	cursor->run = run;
	cursor->index = 0;
	cursor->page = before;
	if (before > 0)
	{
		/* the result is in the last of them, or is the beginning of the next page */
		uint64		pageno = before - 1;
		const char *page = run_page(run, pageno);
		int			common = page_common(page);
		int			n = page_entries(page);
		int			first_len;
		uint64		low;
		uint64		high;

		if (common == 0 &&
			is_at_finger(page_prefixes(page), n, kv_key_prefix(key, keylen), &run->finger))
		{
			low = high = run->finger;
			if (low < n && page_prefixes(page)[low] == kv_key_prefix(key, keylen))
				high++;
		}
		else
			equal_after(page_prefixes(page), n,
						common > 0 ? page_key(page, 0, &first_len) : NULL, common, key, keylen,
						&low, &high);
		while (low < high)
		{
			uint64		middle = (low + high) / 2;

			if (tie_before(run, pageno, middle, key, keylen))
				low = middle + 1;
			else
				high = middle;
		}
		run->finger = low;
		if (low < n)
		{
			cursor->page = pageno;
			cursor->index = low;
		}
	}
	cursor->valid = cursor->page < run->header.npages;
}

void
kv_run_seek(KvRun *run, const uint8 *key, int keylen, KvRunCursor *cursor)
{
	seek_after(run, pages_before(run, key, keylen), key, keylen, cursor);
	kv_run_trust();
}

void
kv_run_seek_all(KvRun *run, const KvKey *keys, int n, KvRunCursor *cursors)
{
	uint64		before[KV_FOUND_TOGETHER];

	Assert(n <= KV_FOUND_TOGETHER);
	for (int i = 0; i < n; i++)
		before[i] = pages_before(run, keys[i].data, keys[i].len);
	for (int i = 0; i < n; i++)
		seek_after(run, before[i], keys[i].data, keys[i].len, &cursors[i]);
	kv_run_trust();
}

bool
kv_run_is_at(const KvRunCursor *cursor, const uint8 *key, int keylen)
{
	const char *page;
	const uint8 *entry_key;
	int			entry_len;
	bool		equal;

	if (!cursor->valid)
		return false;
	page = run_page(cursor->run, cursor->page);
	if (page_prefixes(page)[cursor->index] != kv_key_prefix_after(key, keylen, page_common(page)))
		equal = false;
	else if (cursor->run->header.fixed_key_len != 0)
		equal = cursor->run->header.fixed_key_len == keylen;
	else
	{
		entry_key = page_key(page, cursor->index, &entry_len);
		equal = kv_key_compare(entry_key, entry_len, key, keylen) == 0;
	}
	kv_run_trust();
	return equal;
}

void
kv_run_seek_before(KvRun *run, const uint8 *key, int keylen, KvRunCursor *cursor)
{
	if (key != NULL)
		kv_run_seek(run, key, keylen, cursor);
	else
	{
		cursor->run = run;
		cursor->page = run->header.npages;
		cursor->index = 0;
	}
	kv_run_prev(cursor);
}

void
kv_run_first(KvRun *run, KvRunCursor *cursor)
{
	cursor->run = run;
	cursor->page = 0;
	cursor->index = 0;
	cursor->valid = run->header.npages > 0;
}

void
kv_run_next(KvRunCursor *cursor)
{
	bool		more = ++cursor->index < page_entries(run_page(cursor->run, cursor->page));

	kv_run_trust();
	if (more)
		return;
	cursor->page++;
	cursor->index = 0;
	cursor->valid = cursor->page < cursor->run->header.npages;
}

void
kv_run_prev(KvRunCursor *cursor)
{
	cursor->valid = true;
	if (cursor->index > 0)
		cursor->index--;
	else if (cursor->page > 0)
	{
		cursor->page--;
		cursor->index = page_entries(run_page(cursor->run, cursor->page)) - 1;
		kv_run_trust();
	}
	else
		cursor->valid = false;
}

/* Does an entry page begin before the key? */
static inline bool
page_begins_before(KvRun *run, uint64 pageno, KvKey key)
{
	int			common = run->header.common;
	int			side = common > 0 ? kv_key_compare_prefix(key.data, key.len, run->common, common)
		: 0;
	uint64		prefix = kv_key_prefix_after(key.data, key.len, common);

	if (side != 0)
		return side > 0;
	return run->fence[pageno] < prefix ||
		(run->fence[pageno] == prefix && tie_before(run, pageno, 0, key.data, key.len));
}

uint64
kv_run_count(KvRun *run, KvKey lo, KvKey hi, uint64 max)
{
	uint64		npages = run->header.npages;
	uint64		count = 0;
	KvRunCursor at;
	KvRunCursor end;

	if (lo.data)
		kv_run_seek(run, lo.data, lo.len, &at);
	else
		kv_run_first(run, &at);
	if (!at.valid)
		return 0;

	/* whole pages, until the one in which the range ends */
	while (at.page + 1 < npages &&
		   (hi.data == NULL || page_begins_before(run, at.page + 1, hi)))
	{
		count += page_entries(run_page(run, at.page)) - at.index;
		kv_run_trust();
		if (count >= max)
			return count;
		at.page++;
		at.index = 0;
		if (at.page % 256 == 0)
			CHECK_FOR_INTERRUPTS();
	}
	if (hi.data)
		kv_run_seek(run, hi.data, hi.len, &end);
	if (hi.data == NULL || end.page > at.page)
		end.index = page_entries(run_page(run, at.page));
	kv_run_trust();
	return count + Max(end.index - at.index, 0);
}

void
kv_run_entry(const KvRunCursor *cursor, uint8 keybuf[8],
			 const uint8 **key, int *keylen, KvVersion *version)
{
	Assert(cursor->valid);
	page_entry(&cursor->run->header, run_page(cursor->run, cursor->page),
			   cursor->index, keybuf, key, keylen, version);
	kv_run_trust();
}

void
kv_run_page(const KvRunCursor *cursor, KvRunPage *page)
{
	const char *bytes = run_page(cursor->run, cursor->page);
	PageLayout	layout;
	int			flags;
	bool		unfrozen;

	page_layout_of(bytes, &layout, &flags);
	unfrozen = (flags & RUN_PAGE_UNFROZEN) != 0;
	page->n = (layout.locations - layout.prefixes) / sizeof(uint64);
	page->key_len = flags & RUN_PAGE_VARIABLE ? 0 : cursor->run->header.fixed_key_len;
	page->prefixes = (const uint64 *) (bytes + layout.prefixes);
	page->offsets = (const uint16 *) (bytes + layout.offsets);
	page->bytes = bytes;
	page->locations = (const KvLocation *) (bytes + layout.locations);
	page->crcs = (const uint32 *) (bytes + layout.crcs);
	page->lens = flags & RUN_PAGE_UNIFORM ? NULL : (const uint32 *) (bytes + layout.lens);
	page->uniform_len = ((const RunPageHeader *) bytes)->uniform_len;
	page->xids = unfrozen ? (const uint64 *) (bytes + layout.xids) : NULL;
	page->cids = unfrozen ? (const uint32 *) (bytes + layout.cids) : NULL;
	page->kinds = unfrozen ? (const uint8 *) (bytes + layout.kinds) : NULL;
	kv_run_trust();
}

void
kv_run_gucs(void)
{
	DefineCustomIntVariable("kvfdw.max_mapped_runs",
							"Sets how many run files a process keeps mapped.",
							"Runs in use may exceed it for a moment.",
							&max_mapped_runs, 1024, 16, 1000000,
							PGC_SUSET, 0, NULL, NULL, NULL);
}
