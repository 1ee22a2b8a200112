/*
 * run.c
 *		Runs: mapping, searching and checking them; run.h is the contract.
 *
 * The bytes are described in runformat.h, the writer is runwrite.c.
 *
 * What is kept here:
 *  - I 8: a mapping outlives the unlinking of its file.
 *  - I 11: a page's CRC also covers the identity of the run and the number of
 *    the page, so a page that belongs elsewhere does not pass.  A page is
 *    verified, and its layout proved to lie inside it, before anything else
 *    reads it, once per mapping.
 *  - I 12: mappings are bounded by kvfdw.max_mapped_runs, except for those in
 *    use.
 *
 * Mappings are private to the process and need no lock.  They are known by
 * their ids, not by path: a run number is never used twice in one generation
 * of a shard.
 */
#include "postgres.h"

#include "compat.h"
#include "engine/engine.h"
#include "engine/io.h"
#include "engine/run.h"
#include "engine/runformat.h"
#include "lib/ilist.h"
#include "miscadmin.h"
#include "utils/guc.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"

/* How many of a page's prefixes a search fetches at once: all of most pages. */
#define PREFIXES_FETCHED	128

typedef struct RunKey
{
	uint64		system_identifier;
	Oid			dboid;
	Oid			relid;
	uint32		generation;
	uint32		shard;
	uint32		number;
	uint32		zero;
} RunKey;

struct KvRun
{
	RunKey		key;			/* hash key: must be first */
	char	   *path;
	char	   *map;
	Size		size;
	const KvRunHeader *header;
	const uint64 *fence;
	pg_crc32c	identity_crc;
	uint8	   *verified;		/* a bit per entry page */
	int			pins;
	bool		forgotten;		/* unmap it when the last pin goes */
	dlist_node	lru;			/* in unpinned, most recently used first */
};

static int	max_mapped_runs = 1024;

static MemoryContext run_context = NULL;
static HTAB *mapped_runs = NULL;
static dlist_head unpinned = DLIST_STATIC_INIT(unpinned);

/* ---- mappings ---- */

/*
 * Why this mapping is not the run that ids names, or NULL.  *newer: it has a
 * format version that only a newer kvfdw reads.
 */
static const char *
header_problem(const char *map, Size size, const KvRunIds *ids, bool *newer)
{
	const KvRunHeader *header = (const KvRunHeader *) map;

	*newer = false;
	if (size < RUN_PAGE_SIZE)
		return "file is shorter than its header";
	if (header->magic != RUN_MAGIC)
		return "file is not a run";
	if (header->format_version > RUN_FORMAT_VERSION)
	{
		*newer = true;
		return "format version is newer than this kvfdw";
	}
	if (header->header_crc != kv_crc(header, offsetof(KvRunHeader, header_crc)))
		return "header checksum does not match";
	if (header->system_identifier != ids->system_identifier)
		return "file belongs to another cluster";
	if (header->dboid != ids->dboid || header->relid != ids->relid ||
		header->generation != ids->generation)
		return "file belongs to another table";
	if (header->shard != ids->shard || header->number != ids->number)
		return "file belongs to another shard or has another number";
	if (header->fixed_key_len != ids->fixed_key_len)
		return "file has another key length";
	if (header->npages > size / RUN_PAGE_SIZE ||
		header->fence_offset != (header->npages + 1) * RUN_PAGE_SIZE ||
		size != header->fence_offset + header->npages * sizeof(uint64))
		return "file size does not match its header";
	return NULL;
}

static const char *
fence_problem(const char *map)
{
	const KvRunHeader *header = (const KvRunHeader *) map;

	if (header->fence_crc != kv_crc(map + header->fence_offset,
									header->npages * sizeof(uint64)))
		return "fence checksum does not match";
	return NULL;
}

/* Why this page may not be read, or NULL. */
static const char *
page_problem(const KvRunHeader *run, pg_crc32c identity, uint64 pageno, const char *page)
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
	if (flags & RUN_PAGE_VARIABLE)
	{
		const uint16 *offsets = (const uint16 *) (page + layout.offsets);

		if (offsets[0] < layout.end || offsets[header->n] != RUN_PAGE_SIZE)
			return "page has invalid key offsets";
		for (int i = 0; i < header->n; i++)
		{
			if (offsets[i + 1] < offsets[i] || offsets[i + 1] - offsets[i] > KV_MAX_KEY)
				return "page has invalid key offsets";
		}
	}
	return NULL;
}

static void
report_damage(const char *path, uint64 offset, const char *problem, bool newer)
{
	if (newer)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot read file \"%s\": %s", path, problem),
				 errdetail("This kvfdw reads run format version %d.", RUN_FORMAT_VERSION),
				 errhint("Install the kvfdw version that wrote the file, or a later one.")));
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("file \"%s\" is damaged at offset " UINT64_FORMAT, path, offset),
			 errdetail("Problem found: %s.", problem)));
}

/* The memory of entry page pageno, verified. */
static inline const char *
run_page(KvRun *run, uint64 pageno)
{
	const char *page = run->map + (pageno + 1) * RUN_PAGE_SIZE;

	Assert(pageno < run->header->npages);
	if (unlikely((run->verified[pageno / 8] & (1 << (pageno % 8))) == 0))
	{
		const char *problem = page_problem(run->header, run->identity_crc, pageno, page);

		if (problem != NULL)
			report_damage(run->path, (pageno + 1) * RUN_PAGE_SIZE, problem, false);
		run->verified[pageno / 8] |= 1 << (pageno % 8);
	}
	return page;
}

static inline int
page_entries(const char *page)
{
	return ((const RunPageHeader *) page)->n;
}

static inline const uint64 *
page_prefixes(const char *page)
{
	return (const uint64 *) (page + sizeof(RunPageHeader));
}

/* Unmap and forget an unpinned run.  Never raises. */
static void
drop_run(KvRun *run)
{
	Assert(run->pins == 0);
	dlist_delete(&run->lru);
	kv_io_unmap(run->map, run->size);
	pfree(run->verified);
	pfree(run->path);
	hash_search(mapped_runs, &run->key, HASH_REMOVE, NULL);
}

static void
run_key(const KvRunIds *ids, RunKey *key)
{
	memset(key, 0, sizeof(*key));
	key->system_identifier = ids->system_identifier;
	key->dboid = ids->dboid;
	key->relid = ids->relid;
	key->generation = ids->generation;
	key->shard = ids->shard;
	key->number = ids->number;
}

/*
 * Map and verify a run that is not in the cache.  NULL if the file is missing.
 * Leaves no mapping behind if it raises.
 */
static KvRun *
map_run(const char *path, const KvRunIds *ids, const RunKey *key)
{
	Size		size;
	char	   *map = kv_io_map(path, false, &size, KV_IO_RUN_MAP);
	const KvRunHeader *header = (const KvRunHeader *) map;
	KvRun	   *run;

	if (map == NULL && errno == ENOENT)
		return NULL;
	if (map == NULL && errno == EINVAL)
		report_damage(path, 0, "file is empty", false);
	if (map == NULL)
		kv_io_error(ERROR, errno, path, "map");

	PG_TRY();
	{
		bool		newer;
		const char *problem = header_problem(map, size, ids, &newer);
		char	   *path_copy;
		uint8	   *verified;

		if (problem != NULL)
			report_damage(path, 0, problem, newer);
		problem = fence_problem(map);
		if (problem != NULL)
			report_damage(path, header->fence_offset, problem, false);

		path_copy = MemoryContextStrdup(run_context, path);
		verified = MemoryContextAllocExtended(run_context, header->npages / 8 + 1,
											  MCXT_ALLOC_ZERO | MCXT_ALLOC_HUGE);
		run = hash_search(mapped_runs, key, HASH_ENTER, NULL);
		run->path = path_copy;
		run->map = map;
		run->size = size;
		run->header = header;
		run->fence = (const uint64 *) (map + header->fence_offset);
		run->identity_crc = identity_crc(header);
		run->verified = verified;
		run->pins = 0;
		run->forgotten = false;
		dlist_push_head(&unpinned, &run->lru);
	}
	PG_CATCH();
	{
		kv_io_unmap(map, size);
		PG_RE_THROW();
	}
	PG_END_TRY();
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

/* The last pin of a run has gone. */
static void
run_unused(KvRun *run)
{
	run->pins = 0;
	dlist_push_head(&unpinned, &run->lru);
	if (run->forgotten)
		drop_run(run);
}

void
kv_run_unpin(KvRun *run)
{
	Assert(run->pins > 0);
	if (run->pins > 1)
		run->pins--;
	else
		run_unused(run);
}

void
kv_run_unpin_all(void)
{
	HASH_SEQ_STATUS status;
	KvRun	   *run;

	if (mapped_runs == NULL)
		return;
	hash_seq_init(&status, mapped_runs);
	while ((run = hash_seq_search(&status)) != NULL)
	{
		if (run->pins > 0)
			run_unused(run);
	}
}

void
kv_run_forget_store(Oid dboid, Oid relid)
{
	HASH_SEQ_STATUS status;
	KvRun	   *run;

	if (mapped_runs == NULL)
		return;
	hash_seq_init(&status, mapped_runs);
	while ((run = hash_seq_search(&status)) != NULL)
	{
		if (run->key.dboid != dboid || run->key.relid != relid)
			continue;
		if (run->pins > 0)
			run->forgotten = true;
		else
			drop_run(run);
	}
}

const KvRunHeader *
kv_run_header(KvRun *run)
{
	return run->header;
}

int
kv_run_page_prefix(KvRun *run, uint64 page, uint8 bytes[8])
{
	uint64		prefix = pg_hton64(run->fence[page]);

	memcpy(bytes, &prefix, sizeof(prefix));
	return run->header->fixed_key_len > 0 ? run->header->fixed_key_len : sizeof(prefix);
}

/* ---- searching ---- */

static inline const uint8 *
page_key(const char *page, int index, int *keylen)
{
	const RunPageHeader *header = (const RunPageHeader *) page;
	PageLayout	layout;
	const uint16 *offsets;

	page_layout(header->n, header->flags, &layout);
	offsets = (const uint16 *) (page + layout.offsets);
	*keylen = offsets[index + 1] - offsets[index];
	return (const uint8 *) page + offsets[index];
}

/*
 * Does an entry with the key's own prefix come before the key?  Only runs of
 * variable keys need to look at it: among fixed ones a tie means that the
 * shorter one is the other's beginning.
 */
static inline bool
tie_before(KvRun *run, uint64 pageno, int index, const uint8 *key, int keylen)
{
	const uint8 *entry_key;
	int			entry_len;

	if (run->header->fixed_key_len != 0)
		return (int) run->header->fixed_key_len < keylen;
	entry_key = page_key(run_page(run, pageno), index, &entry_len);
	return key_compare(entry_key, entry_len, key, keylen) < 0;
}

/*
 * The first entry that does not come before the key, or the end: page npages,
 * index 0, not valid.
 */
void
kv_run_seek(KvRun *run, const uint8 *key, int keylen, KvRunCursor *cursor)
{
	uint64		prefix = kv_key_prefix(key, keylen);
	uint64		low;
	uint64		high;
	uint64		pageno;
	const char *page;

	/* the number of pages whose first entry comes before the key */
	kv_prefixes_equal(run->fence, run->header->npages, prefix, &low, &high);
	while (low < high)
	{
		uint64		middle = low + (high - low) / 2;

		if (tie_before(run, middle, 0, key, keylen))
			low = middle + 1;
		else
			high = middle;
	}

	cursor->run = run;
	cursor->index = 0;
	cursor->page = low;
	if (low > 0)
	{
		/* the answer is in the last of them, or starts the page behind it */
		pageno = low - 1;
		kv_prefixes_fetch(page_prefixes(run->map + (pageno + 1) * RUN_PAGE_SIZE),
						  PREFIXES_FETCHED);
		page = run_page(run, pageno);
		kv_prefixes_equal(page_prefixes(page), page_entries(page), prefix, &low, &high);
		while (low < high)
		{
			uint64		middle = (low + high) / 2;

			if (tie_before(run, pageno, middle, key, keylen))
				low = middle + 1;
			else
				high = middle;
		}
		if (low < page_entries(page))
		{
			cursor->page = pageno;
			cursor->index = low;
		}
	}
	cursor->valid = cursor->page < run->header->npages;
}

/* Is the cursor at an entry of this key? */
bool
kv_run_is_at(const KvRunCursor *cursor, const uint8 *key, int keylen)
{
	const char *page;
	const uint8 *entry_key;
	int			entry_len;

	if (!cursor->valid)
		return false;
	page = run_page(cursor->run, cursor->page);
	if (page_prefixes(page)[cursor->index] != kv_key_prefix(key, keylen))
		return false;
	if (cursor->run->header->fixed_key_len != 0)
		return cursor->run->header->fixed_key_len == keylen;
	entry_key = page_key(page, cursor->index, &entry_len);
	return key_compare(entry_key, entry_len, key, keylen) == 0;
}

void
kv_run_seek_before(KvRun *run, const uint8 *key, int keylen, KvRunCursor *cursor)
{
	if (key != NULL)
		kv_run_seek(run, key, keylen, cursor);
	else
	{
		cursor->run = run;
		cursor->page = run->header->npages;
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
	cursor->valid = run->header->npages > 0;
}

void
kv_run_next(KvRunCursor *cursor)
{
	if (++cursor->index < page_entries(run_page(cursor->run, cursor->page)))
		return;
	cursor->page++;
	cursor->index = 0;
	cursor->valid = cursor->page < cursor->run->header->npages;
}

/* Also from the end position back to the last entry. */
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
	}
	else
		cursor->valid = false;
}

/* Does an entry page begin before the key? */
static inline bool
page_begins_before(KvRun *run, uint64 pageno, KvKey key, uint64 prefix)
{
	return run->fence[pageno] < prefix ||
		(run->fence[pageno] == prefix && tie_before(run, pageno, 0, key.data, key.len));
}

uint64
kv_run_count(KvRun *run, KvKey lo, KvKey hi, uint64 max)
{
	uint64		npages = run->header->npages;
	uint64		prefix = hi.data ? kv_key_prefix(hi.data, hi.len) : 0;
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
		   (hi.data == NULL || page_begins_before(run, at.page + 1, hi, prefix)))
	{
		count += page_entries(run_page(run, at.page)) - at.index;
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
	return count + Max(end.index - at.index, 0);
}

/* Entry index of a verified page. */
static void
page_entry(const KvRunHeader *run, const char *page, int index, uint8 keybuf[8],
		   const uint8 **key, int *keylen, KvVersion *version)
{
	const RunPageHeader *header = (const RunPageHeader *) page;
	PageLayout	layout;
	uint8		kind = KV_VERSION_PUT;

	page_layout(header->n, header->flags, &layout);
	if (header->flags & RUN_PAGE_VARIABLE)
		*key = page_key(page, index, keylen);
	else
	{
		uint64		prefix = ((const uint64 *) (page + layout.prefixes))[index];

		prefix = pg_bswap64(prefix);
		memcpy(keybuf, &prefix, sizeof(prefix));
		*key = keybuf;
		*keylen = run->fixed_key_len;
	}

	memset(version, 0, sizeof(*version));
	version->location = ((const KvLocation *) (page + layout.locations))[index];
	version->crc = ((const uint32 *) (page + layout.crcs))[index];
	version->fate = KV_FATE_COMMITTED;
	if (header->flags & RUN_PAGE_UNFROZEN)
	{
		uint8		packed = ((const uint8 *) (page + layout.kinds))[index];

		kind = packed & 0x0F;
		version->fate = packed >> 4;
		version->xid = ((const uint64 *) (page + layout.xids))[index];
		version->cid = ((const uint32 *) (page + layout.cids))[index];
	}
	version->kind = kind;
	if ((header->flags & RUN_PAGE_UNIFORM) == 0)
		version->len = ((const uint32 *) (page + layout.lens))[index];
	else if (kind == KV_VERSION_PUT)
		version->len = header->uniform_len;
}

void
kv_run_entry(const KvRunCursor *cursor, uint8 keybuf[8],
			 const uint8 **key, int *keylen, KvVersion *version)
{
	Assert(cursor->valid);
	page_entry(cursor->run->header, run_page(cursor->run, cursor->page),
			   cursor->index, keybuf, key, keylen, version);
}

/* ---- checking ---- */

/* Everything that is wrong with one verified page, given the key before it. */
static void
check_page(const char *path, const KvRunHeader *run, const char *page, uint64 pageno,
		   uint64 fence, uint8 *last_key, int *last_len, KvRunHeader *sums,
		   KvProblemCallback report, void *arg)
{
	int64		offset = (pageno + 1) * RUN_PAGE_SIZE;
	bool		unfrozen = (run->flags & KV_RUN_UNFROZEN) != 0;
	const uint64 *prefixes = page_prefixes(page);

	if (fence != prefixes[0])
		report(arg, path, offset, "fence does not match the page's first key");
	for (int i = 0; i < page_entries(page); i++)
	{
		uint8		keybuf[8];
		const uint8 *key;
		int			keylen;
		KvVersion	version;

		page_entry(run, page, i, keybuf, &key, &keylen, &version);
		if (prefixes[i] != kv_key_prefix(key, keylen))
			report(arg, path, offset, "key prefix does not match its key");
		if (*last_len >= 0)
		{
			int			order = key_compare(last_key, *last_len, key, keylen);

			if (order > 0 || (order == 0 && !unfrozen))
				report(arg, path, offset, "keys are out of order");
		}
		memcpy(last_key, key, keylen);
		*last_len = keylen;

		if (version.kind < KV_VERSION_PUT ||
			version.kind > (unfrozen ? KV_VERSION_LOCK : KV_VERSION_PUT) ||
			version.fate > KV_FATE_ABORTED)
			report(arg, path, offset, "entry has an unknown kind or fate");
		sums->nentries++;
		if (version.kind == KV_VERSION_PUT)
			sums->value_bytes += version.len;
	}
}

bool
kv_run_check(const char *path, const KvRunIds *ids, KvProblemCallback report, void *arg)
{
	Size		size;
	char	   *map = kv_io_map(path, false, &size, KV_IO_RUN_MAP);
	const KvRunHeader *header = (const KvRunHeader *) map;
	const uint64 *fence;
	const char *problem;
	bool		newer;
	bool		damaged = false;
	KvRunHeader sums = {0};
	uint8		last_key[KV_MAX_KEY];
	int			last_len = -1;

	if (map == NULL && errno == ENOENT)
		return false;
	if (map == NULL)
	{
		report(arg, path, 0, errno == EINVAL ? "file is empty" : "file cannot be mapped");
		return true;
	}

	PG_TRY();
	{
		problem = header_problem(map, size, ids, &newer);
		if (problem != NULL)
			report(arg, path, 0, problem);
		else
		{
			pg_crc32c	identity = identity_crc(header);

			for (int i = sizeof(KvRunHeader); i < RUN_PAGE_SIZE; i++)
			{
				if (map[i] != 0)
				{
					report(arg, path, i, "header page has bytes behind its header");
					break;
				}
			}
			fence = (const uint64 *) (map + header->fence_offset);
			problem = fence_problem(map);
			if (problem != NULL)
				report(arg, path, header->fence_offset, problem);

			for (uint64 pageno = 0; pageno < header->npages; pageno++)
			{
				const char *page = map + (pageno + 1) * RUN_PAGE_SIZE;

				CHECK_FOR_INTERRUPTS();
				problem = page_problem(header, identity, pageno, page);
				if (problem == NULL)
					check_page(path, header, page, pageno, fence[pageno],
							   last_key, &last_len, &sums, report, arg);
				else
				{
					report(arg, path, (pageno + 1) * RUN_PAGE_SIZE, problem);
					damaged = true;
				}
			}
			if (!damaged && (sums.nentries != header->nentries ||
							 sums.value_bytes != header->value_bytes))
				report(arg, path, 0, "header does not count the entries that are there");
		}
	}
	PG_FINALLY();
	{
		kv_io_unmap(map, size);
	}
	PG_END_TRY();
	return true;
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
