/*
 * run.h
 *		Runs: immutable, sorted files of index entries, mmap'd read-only where
 *		they are searched, read where they are read from end to end.
 *
 * The file grammar is in docs/format.md.  A run is page-structured: each 4 KB
 * page holds a sorted slice as a structure of arrays (keys apart from
 * locations), a fence array at the end holds the first key prefix of every
 * page, so a search is one bisection in the fence and one inside a page.  Every
 * page has a CRC that is verified the first time a mapping touches it (I 11).
 *
 * A frozen ('base') run has at most one entry per key and no xids.  An
 * unfrozen run may have several versions per key, newest first, each with xid,
 * cid, kind and a resolved flag.
 *
 * Takes no lock; maps and reads files, so none is held on entry to kv_run_pin,
 * kv_run_open and what touches pages.  Damage is an ERROR (XX001) that names file and
 * offset.  What it maps is the process's; what is open is the caller's.
 */
#ifndef KV_RUN_H
#define KV_RUN_H

#include "engine/base/types.h"

/* ---- writing (streaming, bounded memory) ---- */
typedef struct KvRunHeader
{
	/* page 0 begins with it, the common bytes follow; see docs/format.md */
	uint32		magic;
	uint32		format_version;
	uint64		directory_id;
	Oid			dboid;
	Oid			relid;
	uint32		generation;
	uint32		shard;
	uint32		number;			/* the run's, unique in its shard */
	uint16		flags;			/* KV_RUN_… */
	uint16		common;			/* bytes with which the first keys of all pages begin */
	uint32		incarnation;	/* the server's, when written: resolves xids */
	uint32		fixed_key_len;	/* 1 to 8 if every key has this length, else 0 */
	uint64		nentries;
	uint64		npages;			/* entry pages, starting at file page 1 */
	uint64		fence_offset;	/* bytes; npages little-endian uint64 prefixes, behind common */
	uint64		value_bytes;	/* sum of lengths of PUT entries */
	uint64		min_xid;		/* of unresolved entries, 0 if none */
	uint32		fence_crc;
	uint32		header_crc;		/* of all that precedes it, and of the common bytes behind it */
} KvRunHeader;

#define KV_RUN_UNFROZEN		0x01

typedef struct KvRunIds
{
	uint64		directory_id;
	Oid			dboid;
	Oid			relid;
	uint32		generation;
	uint32		shard;
	uint32		number;
	uint32		opening;		/* of the store: tells mappings apart, is not in the file */
	uint32		incarnation;
	uint32		fixed_key_len;	/* the table's; 0 = variable or longer than 8 */
	bool		unfrozen;
} KvRunIds;

typedef struct KvRunWriter KvRunWriter;

/*
 * Begins path.tmp.  palloc'd in CurrentMemoryContext.  The file stays open across calls and
 * is not cleaned up after an ERROR: the caller then calls kv_run_discard, before that
 * memory goes.
 */
extern KvRunWriter *kv_run_create(const char *path, const KvRunIds *ids);
/* One entry more: in key order, and newest version first within a key (unfrozen). */
extern void kv_run_append(KvRunWriter *writer, const uint8 *key, int keylen,
						  const KvVersion *version);
/* Writes the rest and renames to path; syncs nothing. */
extern void kv_run_finish(KvRunWriter *writer);
extern void kv_run_discard(KvRunWriter *writer);	/* after an ERROR: unlink, never raises */

/* ---- reading ---- */
typedef struct KvRun KvRun;		/* a mapping or an open file, private to this process */

/*
 * Map a run and verify its header and fence.  NULL if the file is missing (it
 * was replaced: look again, I 8).  Mappings are cached per process, least
 * recently used first out, at most kvfdw.max_mapped_runs; a KvRun stays valid
 * until kv_run_unpin.  ids->incarnation and unfrozen are not compared.
 */
extern KvRun *kv_run_pin(const char *path, const KvRunIds *ids);
extern void kv_run_unpin(KvRun *run);	/* never raises; the mapping stays, for the next one */

/*
 * A mapping keeps its file's space.  So who has removed files of runs, or a store, says so, and
 * processes look from time to time: have files gone since the last look, a second ago or more? Then
 * kv_run_let_go unmaps what is not pinned and has no file any more.  None of these raises.
 */
extern void kv_run_say_gone(void);
extern bool kv_run_any_gone(void);
extern void kv_run_let_go(void);

/*
 * Open a run to read it once, from kv_run_first on with kv_run_next and
 * kv_run_entry; nothing else may be asked of it but kv_run_header.  Verifies as
 * above, except the fence.  In CurrentMemoryContext; the caller closes it, after
 * an ERROR too.
 */
extern KvRun *kv_run_open(const char *path, const KvRunIds *ids);
extern void kv_run_close(KvRun *run);	/* and frees it */

/*
 * Call it when done with keys that kv_run_entry has pointed to: ERROR if a page of a
 * mapped run could not be read meanwhile, for then they may have been zeros.
 */
extern void kv_run_trust(void);
/* As above; true, once: unpin what you keep pinned, some of it cannot be read. */
extern bool kv_run_take_unreadable(void);
extern const KvRunHeader *kv_run_header(KvRun *run);	/* lives as long as the run */
/* The first up to 8 bytes of an entry page's first key; returns how many. */
extern int	kv_run_page_prefix(KvRun *run, uint64 page, uint8 bytes[8]);

/* An entry of a run; not valid: before the first one, or behind the last one. */
typedef struct KvRunCursor
{
	KvRun	   *run;
	uint64		page;
	int			index;
	bool		valid;
} KvRunCursor;

/*
 * First entry with entry key >= key (newest version first), or the end: page npages, index
 * 0, not valid.
 */
extern void kv_run_seek(KvRun *run, const uint8 *key, int keylen, KvRunCursor *cursor);
/*
 * Likewise for several keys at once, up to KV_FOUND_TOGETHER (base/key.h), which takes less time
 * for each.
 */
extern void kv_run_seek_all(KvRun *run, const KvKey *keys, int n, KvRunCursor *cursors);
/* Is the cursor at an entry of this key? */
extern bool kv_run_is_at(const KvRunCursor *cursor, const uint8 *key, int keylen);
/* Last entry with entry key < key; key NULL: the last entry. For descending scans. */
extern void kv_run_seek_before(KvRun *run, const uint8 *key, int keylen, KvRunCursor *cursor);
extern void kv_run_first(KvRun *run, KvRunCursor *cursor);	/* touches no page */
extern void kv_run_next(KvRunCursor *cursor);	/* of a valid one */
extern void kv_run_prev(KvRunCursor *cursor);	/* also from behind the last entry */
/*
 * The entry that a valid cursor is at.  *key points into the page, good until the
 * cursor moves, or into keybuf, if keys are fixed.
 */
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

extern void kv_run_gucs(void);	/* defines this room's settings */

#endif							/* KV_RUN_H */
