/*
 * runformat.h
 *		The bytes of a run file, shared by its writer (runwrite.c) and its
 *		readers (run.c); nobody else includes this.
 *
 * The file grammar is in docs/format.md.  In short: page 0 is the header, then
 * npages entry pages of 4 KB, then the fence, one 8-byte key prefix (prefix.h)
 * per page.
 */
#ifndef KV_RUNFORMAT_H
#define KV_RUNFORMAT_H

#include "engine/crc.h"
#include "engine/prefix.h"
#include "engine/run.h"

#ifdef WORDS_BIGENDIAN
#error "kvfdw's files are little-endian; this machine is not"
#endif

#define RUN_MAGIC			0x4E52564B	/* "KVRN" */
#define RUN_FORMAT_VERSION	1

#define RUN_PAGE_SIZE		KV_BLOCK
#define RUN_PAGE_UNFROZEN	0x0001	/* xid, cid and kind arrays are there */
#define RUN_PAGE_VARIABLE	0x0002	/* key offsets and a key heap are there */
#define RUN_PAGE_UNIFORM	0x0004	/* no length array: all are uniform_len */
#define RUN_PAGE_FLAGS \
	(RUN_PAGE_UNFROZEN | RUN_PAGE_VARIABLE | RUN_PAGE_UNIFORM)

typedef struct RunPageHeader
{
	uint32		crc;			/* see page_crc() */
	uint16		n;				/* entries, at least 1 */
	uint16		flags;
	uint32		uniform_len;	/* length of every PUT, if RUN_PAGE_UNIFORM */
	uint32		reserved;		/* 0 */
} RunPageHeader;

StaticAssertDecl(sizeof(RunPageHeader) == 16, "page header is 16 bytes on disk");
StaticAssertDecl(sizeof(KvRunHeader) == 96, "run header is 96 bytes on disk");
StaticAssertDecl(offsetof(KvRunHeader, system_identifier) == 8, "run header layout");
StaticAssertDecl(offsetof(KvRunHeader, nentries) == 48, "run header layout");
StaticAssertDecl(offsetof(KvRunHeader, header_crc) == 92, "run header layout");

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
	int			end;			/* first byte behind the arrays */
} PageLayout;

/* What a page's CRC starts with. */
typedef struct RunIdentity
{
	uint64		system_identifier;
	uint32		dboid;
	uint32		relid;
	uint32		generation;
	uint32		shard;
	uint32		number;
	uint32		zero;
} RunIdentity;

StaticAssertDecl(sizeof(RunIdentity) == 32, "run identity is part of the page CRC");

static inline int
key_compare(const uint8 *a, int alen, const uint8 *b, int blen)
{
	int			common = Min(alen, blen);
	int			order = common > 0 ? memcmp(a, b, common) : 0;

	return order != 0 ? order : (alen > blen) - (alen < blen);
}

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

	identity.system_identifier = header->system_identifier;
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

/* Covers the run's identity, the page's number and the page behind the CRC. */
static inline pg_crc32c
page_crc(pg_crc32c crc, uint64 pageno, const char *page)
{
	COMP_CRC32C(crc, &pageno, sizeof(pageno));
	crc = kv_crc_add(crc, page + sizeof(uint32), RUN_PAGE_SIZE - sizeof(uint32));
	FIN_CRC32C(crc);
	return crc;
}

#endif							/* KV_RUNFORMAT_H */
