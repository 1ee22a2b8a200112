/*
 * run.h
 *		Runs: immutable, sorted files of index entries, mmap'd read-only.
 *
 * The file grammar is in docs/format.md.  A run is page-structured: each 4 KB
 * page holds a sorted slice as a structure of arrays (keys apart from
 * locations), a fence array at the end holds the first key prefix of every
 * page, so a search is one bisection in the fence and one inside a page.  Every
 * page has a CRC that is verified the first time a mapping touches it (I 11).
 *
 * A frozen ('base') run has at most one entry per key and no xids.  An
 * unfrozen run may have several versions per key, newest first, each with xid,
 * cid, kind and a settled flag.
 */
#ifndef KV_RUN_H
#define KV_RUN_H

#include "engine/engine.h"
#include "engine/io.h"

/* A location: form (4 bits), value file number (20), offset / 8 (40). */
typedef uint64 KvLocation;
#define KV_LOCATION_MAKE(form, file, offset) \
	(((uint64) (form) << 60) | ((uint64) (file) << 40) | ((uint64) (offset) >> 3))
#define KV_LOCATION_FORM(loc)	((KvForm) ((loc) >> 60))
#define KV_LOCATION_FILE(loc)	((uint32) (((loc) >> 40) & 0xFFFFF))
#define KV_LOCATION_OFFSET(loc)	(((loc) & UINT64CONST(0xFFFFFFFFFF)) << 3)
#define KV_MAX_VALUE_FILES		0xFFFFF

typedef enum KvVersionKind
{
	KV_VERSION_PUT = 1,
	KV_VERSION_DELETE = 2,
	KV_VERSION_LOCK = 3			/* a row lock: never visible */
} KvVersionKind;

/* What is known for good about a version's transaction. */
typedef enum KvVersionFate
{
	KV_FATE_UNKNOWN = 0,
	KV_FATE_COMMITTED = 1,
	KV_FATE_ABORTED = 2
} KvVersionFate;

/* One version of one key, wherever it is kept. */
typedef struct KvVersion
{
	uint64		xid;			/* full xid; 0 in a frozen run: visible to all */
	KvLocation	location;
	uint32		len;
	uint32		crc;			/* kv_value_crc */
	CommandId	cid;
	uint8		kind;			/* KvVersionKind */
	uint8		fate;			/* KvVersionFate */
	uint16		pad;
} KvVersion;

/* ---- writing (streaming, bounded memory) ---- */
typedef struct KvRunHeader
{
	/* all of it is written as page 0; see docs/format.md */
	uint32		magic;
	uint32		format_version;
	uint64		system_identifier;
	Oid			dboid;
	Oid			relid;
	uint32		generation;
	uint32		shard;
	uint32		number;			/* the run's, unique in its shard */
	uint32		flags;			/* KV_RUN_… */
	uint32		incarnation;	/* the server's, when written: settles xids */
	uint32		fixed_key_len;	/* 1 to 8 if every key has this length, else 0 */
	uint64		nentries;
	uint64		npages;			/* entry pages, starting at file page 1 */
	uint64		fence_offset;	/* bytes; npages little-endian uint64 prefixes */
	uint64		value_bytes;	/* sum of lengths of PUT entries */
	uint64		min_xid;		/* of unsettled entries, 0 if none */
	uint32		fence_crc;
	uint32		header_crc;		/* of all that precedes it */
} KvRunHeader;

#define KV_RUN_UNFROZEN		0x01

typedef struct KvRunIds
{
	uint64		system_identifier;
	Oid			dboid;
	Oid			relid;
	uint32		generation;
	uint32		shard;
	uint32		number;
	uint32		incarnation;
	uint32		fixed_key_len;	/* the table's; 0 = variable or longer than 8 */
	bool		unfrozen;
} KvRunIds;

typedef struct KvRunWriter KvRunWriter;

/* Writes path.tmp; finish renames to path.  palloc'd in CurrentMemoryContext. */
extern KvRunWriter *kv_run_create(const char *path, const KvRunIds *ids);
/* In key order, newest version first within a key (unfrozen). */
extern void kv_run_append(KvRunWriter *writer, const uint8 *key, int keylen,
						  const KvVersion *version);
extern void kv_run_finish(KvRunWriter *writer);
extern void kv_run_discard(KvRunWriter *writer);	/* after an ERROR: unlink, never raises */

/* ---- reading ---- */
typedef struct KvRun KvRun;		/* a mapping, private to this process */

/*
 * Map a run and verify its header and fence.  NULL if the file is missing (it
 * was replaced: look again, I 8).  Mappings are cached per process, least
 * recently used first out, at most kvfdw.max_mapped_runs; a KvRun stays valid
 * until kv_run_unpin.  ids->incarnation and unfrozen are not compared.
 */
extern KvRun *kv_run_pin(const char *path, const KvRunIds *ids);
extern void kv_run_unpin(KvRun *run);
extern void kv_run_unpin_all(void);	/* at end of a (sub)transaction that failed; never raises */
extern void kv_run_forget_store(Oid dboid, Oid relid);	/* unmap unpinned ones */
extern const KvRunHeader *kv_run_header(KvRun *run);
/* The first up to 8 bytes of an entry page's first key; returns how many. */
extern int	kv_run_page_prefix(KvRun *run, uint64 page, uint8 bytes[8]);

/* A position is an entry's ordinal: page * KV_RUN_PAGE_MAX + index, or one of these. */
typedef struct KvRunCursor
{
	KvRun	   *run;
	uint64		page;
	int			index;
	bool		valid;
} KvRunCursor;

/* First entry with entry key >= key (newest version first). */
extern void kv_run_seek(KvRun *run, const uint8 *key, int keylen, KvRunCursor *cursor);
extern bool kv_run_is_at(const KvRunCursor *cursor, const uint8 *key, int keylen);
/* Last entry with entry key < key; key NULL: the last entry. For descending scans. */
extern void kv_run_seek_before(KvRun *run, const uint8 *key, int keylen, KvRunCursor *cursor);
extern void kv_run_first(KvRun *run, KvRunCursor *cursor);
extern void kv_run_next(KvRunCursor *cursor);
extern void kv_run_prev(KvRunCursor *cursor);
/* Points into the mapping (key) or into *keybuf (8 bytes, fixed keys). */
extern void kv_run_entry(const KvRunCursor *cursor, uint8 keybuf[8],
						 const uint8 **key, int *keylen, KvVersion *version);
/*
 * How many entries lie in a range (lo inclusive, hi exclusive, data NULL:
 * unbounded).  Stops in the page in which it comes to max: then it is max at
 * least.  Touches no page that does not have an entry that counts, but the next.
 */
extern uint64 kv_run_count(KvRun *run, KvKey lo, KvKey hi, uint64 max);

/* Verify every page, the order and the fence; reports problems.  False: no such file. */
extern bool kv_run_check(const char *path, const KvRunIds *ids,
						 KvProblemCallback report, void *arg);

extern void kv_run_gucs(void);

#endif							/* KV_RUN_H */
