/*
 * runformat.h
 *		The bytes of a run file, for its writer (runwrite.c) and its readers (run.c and
 *		runwrite.c) only.
 *
 * docs/internals/format.md has the file's grammar.  In short: page 0 has the header and the
 * common beginning of the first keys of all pages.  Then there are npages entry pages of 4 KB,
 * and the fence, one 8-byte key prefix (base/key.h) per page.  The prefixes of a page are taken
 * after the common beginning of all its keys, those of the fence after the one in page 0.
 */
#ifndef KV_RUNFORMAT_H
#define KV_RUNFORMAT_H

#include "compat.h"
#include "engine/base/hash.h"
#include "engine/base/key.h"
#include "engine/base/types.h"
#include "engine/index/run.h"

#ifdef WORDS_BIGENDIAN
#error "kvfdw's files are little-endian; this machine is not"
#endif

#define RUN_MAGIC			0x4E52564B	/* "KVRN" */

#define RUN_PAGE_SIZE		KV_BLOCK
#define RUN_PAGE_UNFROZEN	0x0001	/* it has xid, cid and kind arrays */
#define RUN_PAGE_VARIABLE	0x0002	/* it has key offsets and a key heap */
#define RUN_PAGE_UNIFORM	0x0004	/* no length array: all are uniform_len */
#define RUN_PAGE_FLAGS \
	(RUN_PAGE_UNFROZEN | RUN_PAGE_VARIABLE | RUN_PAGE_UNIFORM)

typedef struct RunPageHeader
{
	uint32		crc;			/* see page_crc() */
	uint16		n;				/* entries, at least 1 */
	uint16		flags;
	uint32		uniform_len;	/* length of every PUT, if RUN_PAGE_UNIFORM */
	uint16		common;			/* length of the common beginning of all keys, after which
								 * prefixes are taken */
	uint16		reserved;		/* 0 */
} RunPageHeader;

StaticAssertDecl(sizeof(RunPageHeader) == 16, "page header is 16 bytes on disk");
StaticAssertDecl(sizeof(KvRunHeader) == 96, "run header is 96 bytes on disk");
StaticAssertDecl(offsetof(KvRunHeader, directory_id) == 8, "run header layout");
StaticAssertDecl(offsetof(KvRunHeader, common) == 38, "run header layout");
StaticAssertDecl(offsetof(KvRunHeader, nentries) == 48, "run header layout");
StaticAssertDecl(offsetof(KvRunHeader, header_crc) == 92, "run header layout");

/* The beginning of page 0; zeros follow. */
typedef struct RunHeaderPage
{
	KvRunHeader header;
	uint8		common[KV_MAX_KEY]; /* header.common bytes, then zeros */
} RunHeaderPage;

StaticAssertDecl(offsetof(RunHeaderPage, common) == 96, "run header page layout");
StaticAssertDecl(sizeof(RunHeaderPage) <= RUN_PAGE_SIZE, "run header fits its page");

/* Bytes of one entry in a frozen page of fixed keys and uniform lengths. */
#define ENTRY_MIN			(sizeof(uint64) + sizeof(KvLocation) + sizeof(uint32))
#define RUN_PAGE_MAX_ENTRIES	((int) ((RUN_PAGE_SIZE - sizeof(RunPageHeader)) / ENTRY_MIN))

StaticAssertDecl((RUN_PAGE_SIZE - sizeof(RunPageHeader)) / ENTRY_MIN >= 202,
				 "an 8-byte key costs at most 20.5 bytes");

/* Where the arrays of a page start, in bytes from its beginning. */
typedef struct PageLayout
{
	int			prefixes;
	int			locations;
	int			xids;
	int			crcs;
	int			lens;
	int			cids;
	int			offsets;		/* n + 1 of them */
	int			kinds;
	int			end;			/* first byte after the arrays */
} PageLayout;

/* The first bytes of a page's CRC. */
typedef struct RunIdentity
{
	uint64		directory_id;
	uint32		dboid;
	uint32		relid;
	uint32		generation;
	uint32		shard;
	uint32		number;
	uint32		zero;
} RunIdentity;

StaticAssertDecl(sizeof(RunIdentity) == 32, "run identity is part of the page CRC");

static inline void
page_layout(int n, int flags, PageLayout *layout)
{
	int			at = sizeof(RunPageHeader);

	/* widest elements first: every array is aligned to its element */
	layout->prefixes = at;
	at += n * sizeof(uint64);
	layout->locations = at;
	at += n * sizeof(KvLocation);
	layout->xids = at;
	if (flags & RUN_PAGE_UNFROZEN)
		at += n * sizeof(uint64);
	layout->crcs = at;
	at += n * sizeof(uint32);
	layout->lens = at;
	if ((flags & RUN_PAGE_UNIFORM) == 0)
		at += n * sizeof(uint32);
	layout->cids = at;
	if (flags & RUN_PAGE_UNFROZEN)
		at += n * sizeof(uint32);
	layout->offsets = at;
	if (flags & RUN_PAGE_VARIABLE)
		at += (n + 1) * sizeof(uint16);
	layout->kinds = at;
	if (flags & RUN_PAGE_UNFROZEN)
		at += n;
	layout->end = at;
}

static inline pg_crc32c
identity_crc(const KvRunHeader *header)
{
	RunIdentity identity;
	pg_crc32c	crc;

	identity.directory_id = header->directory_id;
	identity.dboid = header->dboid;
	identity.relid = header->relid;
	identity.generation = header->generation;
	identity.shard = header->shard;
	identity.number = header->number;
	identity.zero = 0;
	INIT_CRC32C(crc);
	COMP_CRC32C(crc, &identity, sizeof(identity));
	return crc;
}

/* Covers the header up to its CRC, and the common beginning of keys. */
static inline pg_crc32c
header_crc(const RunHeaderPage *page)
{
	pg_crc32c	crc;

	INIT_CRC32C(crc);
	COMP_CRC32C(crc, &page->header, offsetof(KvRunHeader, header_crc));
	COMP_CRC32C(crc, page->common, Min(page->header.common, KV_MAX_KEY));
	FIN_CRC32C(crc);
	return crc;
}

/* Covers the run's identity, the page's number and the page after its CRC. */
static inline pg_crc32c
page_crc(pg_crc32c crc, uint64 pageno, const char *page)
{
	COMP_CRC32C(crc, &pageno, sizeof(pageno));
	crc = kv_crc_add(crc, page + sizeof(uint32), RUN_PAGE_SIZE - sizeof(uint32));
	FIN_CRC32C(crc);
	return crc;
}

static inline int
page_entries(const char *page)
{
	return ((const RunPageHeader *) page)->n;
}

static inline int
page_common(const char *page)
{
	return ((const RunPageHeader *) page)->common;
}

static inline const uint64 *
page_prefixes(const char *page)
{
	return (const uint64 *) (page + sizeof(RunPageHeader));
}

/*
 * The layout of a verified page.  In a mapped page any load may return zeros (io/map.c), so
 * no result here may point out of the page.
 */
static inline void
page_layout_of(const char *page, PageLayout *layout, int *flags)
{
	const RunPageHeader *header = (const RunPageHeader *) page;

	*flags = header->flags;
	page_layout(header->n, *flags, layout);
	if (unlikely(layout->end > RUN_PAGE_SIZE))
	{
		*flags = RUN_PAGE_FLAGS;
		page_layout(0, *flags, layout);
	}
}

static inline const uint8 *
page_key(const char *page, int index, int *keylen)
{
	PageLayout	layout;
	int			flags;
	const uint16 *offsets;
	int			start;

	page_layout_of(page, &layout, &flags);
	offsets = (const uint16 *) (page + layout.offsets);
	start = offsets[index];
	*keylen = Max(offsets[index + 1] - start, 0);
	return (const uint8 *) page + start;
}

/* Entry index of a verified page. */
static inline void
page_entry(const KvRunHeader *run, const char *page, int index, uint8 keybuf[8],
		   const uint8 **key, int *keylen, KvVersion *version)
{
	const RunPageHeader *header = (const RunPageHeader *) page;
	PageLayout	layout;
	int			flags;
	uint8		kind = KV_VERSION_PUT;

	page_layout_of(page, &layout, &flags);
	if (flags & RUN_PAGE_VARIABLE)
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
	version->status = KV_XID_COMMITTED;
	if (flags & RUN_PAGE_UNFROZEN)
	{
		uint8		packed = ((const uint8 *) (page + layout.kinds))[index];

		kind = packed & 0x0F;
		version->status = packed >> 4;
		version->xid = ((const uint64 *) (page + layout.xids))[index];
		version->cid = ((const uint32 *) (page + layout.cids))[index];
	}
	version->kind = kind;
	if ((flags & RUN_PAGE_UNIFORM) == 0)
		version->len = ((const uint32 *) (page + layout.lens))[index];
	else if (kind == KV_VERSION_PUT)
		version->len = header->uniform_len;
}

/* Why is a file of this size with this header page not the run that ids names?  NULL: it is. */
extern const char *kv_run_header_problem(const RunHeaderPage *page, Size size,
										 const KvRunIds *ids);
/* ERROR 0A000 if it is the header page of a run of another format version. */
extern void kv_run_require_version(const char *path, const RunHeaderPage *page);
/* Why does this fence not match the checksum in the header?  NULL: it does. */
extern const char *kv_run_fence_problem(const KvRunHeader *header, const uint64 *fence);
/* Why may this page not be used?  NULL: it may, and its layout is inside the page. */
extern const char *kv_run_page_problem(const KvRunHeader *run, pg_crc32c identity,
									   uint64 pageno, const char *page);
/* Raise ERROR. */
KV_NORETURN extern void kv_run_damaged(const char *path, uint64 offset, const char *problem);

#endif							/* KV_RUNFORMAT_H */
