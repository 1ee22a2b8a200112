/*
 * run.h
 *		Runs: immutable, sorted files of index entries.  They are mapped read-only for
 *		searches, and read through a descriptor when they are read completely.
 *
 * docs/internals/format.md has the file's grammar.  A run consists of 4 KB pages.  Each page
 * has a sorted slice as a structure of arrays (keys apart from locations).  A fence array at
 * the end has the first key prefix of every page, so a search is one bisection in the fence and
 * one inside a page.  Every page has a CRC that is verified the first time a mapping touches it
 * (I 11).
 *
 * A frozen ('base') run has at most one entry per key and no xids.  An unfrozen run may have
 * several versions per key, newest first, each with xid, cid, kind and a resolved flag.
 *
 * Locks:  takes none; maps and reads files, so no lock is held on entry to kv_run_pin,
 * kv_run_open and functions that read pages.  Errors: damage is an ERROR (XX001) that names
 * file and offset.  A mapping belongs to the process; an open run belongs to the caller.
 */
#ifndef KV_RUN_H
#define KV_RUN_H

#include "engine/base/key.h"
#include "engine/base/types.h"

/* ---- writing (streaming, bounded memory) ---- */
typedef struct KvRunHeader
{
	/* at the beginning of page 0, before the common bytes; see docs/internals/format.md */
	uint32		magic;
	uint32		format_version;
	uint64		directory_id;
	Oid			dboid;
	Oid			relid;
	uint32		generation;
	uint32		shard;
	uint32		number;			/* unique in its shard */
	uint16		flags;			/* KV_RUN_… */
	uint16		common;			/* length of the common beginning of the first keys of all pages */
	uint32		incarnation;	/* the server's, when written: resolves xids */
	uint32		fixed_key_len;	/* 1 to 8 if every key has this length, else 0 */
	uint64		nentries;
	uint64		npages;			/* entry pages, starting at file page 1 */
	uint64		fence_offset;	/* bytes; npages little-endian uint64 prefixes, taken after the
								 * common beginning */
	uint64		value_bytes;	/* sum of lengths of PUT entries */
	uint64		min_xid;		/* of unresolved entries, 0 if none */
	uint32		fence_crc;
	uint32		header_crc;		/* of the header before this field, and of the common bytes after
								 * the header */
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
	uint32		opening;		/* of the store: distinguishes mappings, is not in the file */
	uint32		incarnation;
	uint32		fixed_key_len;	/* the table's; 0 = variable or longer than 8 */
	bool		unfrozen;
} KvRunIds;

typedef struct KvRunWriter KvRunWriter;

/*
 * Begin path.tmp.  palloc'd in CurrentMemoryContext.  The file stays open across calls and is
 * not cleaned up after an ERROR: the caller then calls kv_run_discard, before that memory is
 * freed.
 */
extern KvRunWriter *kv_run_create(const char *path, const KvRunIds *ids);
/* Append an entry: in key order, and newest version first within a key (unfrozen). */
extern void kv_run_append(KvRunWriter *writer, const uint8 *key, int keylen,
						  const KvVersion *version);
/* Write the rest and rename to path; syncs nothing. */
extern void kv_run_finish(KvRunWriter *writer);
extern void kv_run_discard(KvRunWriter *writer);	/* after an ERROR: unlink, never raises */

/* ---- reading ---- */
typedef struct KvRun KvRun;		/* a mapping or an open file, private to this process */

/*
 * Map a run and verify its header and fence.  NULL if the file is missing (it was replaced:
 * look again, I 14).  Mappings are cached per process, in least recently used order, at most
 * kvfdw.max_mapped_runs; a KvRun stays valid until kv_run_unpin.  ids->incarnation and unfrozen
 * are not compared.
 */
extern KvRun *kv_run_pin(const char *path, const KvRunIds *ids);
extern void kv_run_unpin(KvRun *run);	/* never raises; the mapping stays cached */

/*
 * A mapping keeps its file's space.  So a process that has removed run files, or a store, calls
 * kv_run_say_gone, and processes check from time to time.  kv_run_any_gone: have files been
 * removed since the last check, a second ago or more?  kv_run_let_go unmaps unpinned runs whose
 * file was removed.  None of these raises.
 */
extern void kv_run_say_gone(void);
extern bool kv_run_any_gone(void);
extern void kv_run_let_go(void);

/*
 * Open a run to read it once, from kv_run_first on with kv_run_next and kv_run_entry.  Of other
 * functions only kv_run_header may be called.  Verifies as kv_run_pin, except the fence.  In
 * CurrentMemoryContext; the caller closes it, after an ERROR too.
 */
extern KvRun *kv_run_open(const char *path, const KvRunIds *ids);
extern void kv_run_close(KvRun *run);	/* and frees it */

/*
 * Called when the caller has finished with keys that kv_run_entry has pointed to: ERROR if a
 * page of a mapped run could not be read, because the keys may then have been zeros.
 */
extern void kv_run_trust(void);
/*
 * The same, as a result: true, once, if the caller is to unpin its pinned runs, of which a page
 * cannot be read.
 */
extern bool kv_run_take_unreadable(void);
extern const KvRunHeader *kv_run_header(KvRun *run);	/* lives as long as the run */
/* The first up to 8 bytes of an entry page's first key; returns how many. */
extern int	kv_run_page_prefix(KvRun *run, uint64 page, uint8 bytes[8]);

/* A position in a run; not valid: before the first entry, or after the last. */
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
 * As kv_run_seek for up to KV_FOUND_TOGETHER keys (base/key.h) at once, which takes less time
 * for each.
 */
extern void kv_run_seek_all(KvRun *run, const KvKey *keys, int n, KvRunCursor *cursors);
/* Is the cursor at an entry of this key? */
extern bool kv_run_is_at(const KvRunCursor *cursor, const uint8 *key, int keylen);
/* Last entry with entry key < key; key NULL: the last entry. For descending scans. */
extern void kv_run_seek_before(KvRun *run, const uint8 *key, int keylen, KvRunCursor *cursor);
extern void kv_run_first(KvRun *run, KvRunCursor *cursor);	/* touches no page */
extern void kv_run_next(KvRunCursor *cursor);	/* of a valid one */
extern void kv_run_prev(KvRunCursor *cursor);	/* also from after the last entry */
/*
 * The entry that a valid cursor is at.  *key points into the page, good until the
 * cursor moves, or into keybuf, if keys are fixed.
 */
extern void kv_run_entry(const KvRunCursor *cursor, uint8 keybuf[8],
						 const uint8 **key, int *keylen, KvVersion *version);

/* An entry page as a caller walks through it, without a call for each entry. */
typedef struct KvRunPage
{
	int			n;				/* entries */
	uint32		key_len;		/* of each key, which its prefix has; 0: keys are in the page */
	const uint64 *prefixes;
	const uint16 *offsets;		/* n + 1: where a key begins, from the beginning of the page */
	const char *bytes;			/* the page */
	const KvLocation *locations;
	const uint32 *crcs;
	const uint32 *lens;			/* NULL: each has uniform_len */
	uint32		uniform_len;
	/* NULL: all are frozen PUTs */
	const uint64 *xids;
	const uint32 *cids;
	const uint8 *kinds;			/* kind, and status * 16 */
} KvRunPage;

/*
 * The page that a valid cursor is in.  Loads from it may be zeros, as above, so lengths and offsets
 * are to be checked; good until another page of an open run is asked for.
 */
extern void kv_run_page(const KvRunCursor *cursor, KvRunPage *page);

/* Entry i of a page with frozen entries, or not; kind PUT, or the one that it has. */
static inline void
kv_run_page_version(const KvRunPage *page, int i, KvVersion *version)
{
	version->location = page->locations[i];
	version->crc = page->crcs[i];
	version->len = page->lens != NULL ? page->lens[i] : page->uniform_len;
	version->kind = KV_VERSION_PUT;
	version->status = KV_XID_COMMITTED;
	version->xid = 0;
	version->cid = 0;
	version->moves = false;
	if (page->kinds != NULL)
	{
		version->kind = page->kinds[i] & 0x0F;
		version->status = page->kinds[i] >> 4;
		version->xid = page->xids[i];
		version->cid = page->cids[i];
		if (version->kind != KV_VERSION_PUT && page->lens == NULL)
			version->len = 0;
	}
}

/*
 * How many entries are in a range (lo inclusive, hi exclusive, data NULL: unbounded)?  Stops in
 * the page in which the count reaches max: then it is at least max.  Reads only pages with
 * counted entries, and the next one.
 */
extern uint64 kv_run_count(KvRun *run, KvKey lo, KvKey hi, uint64 max);

/*
 * ---- several runs read as one, key by key, in either direction ----
 *
 * A returned key points into the merge and is good until the merge moves.  All functions are
 * inline, because they run once for each key of a scan.
 */
typedef struct KvRunHead
{
	KvRunCursor cursor;
	uint32		incarnation;
	uint8		keybuf[8];
	KvKey		key;			/* of the entry at the cursor, if that is valid */
	KvVersion	version;
} KvRunHead;

typedef struct KvRunMerge
{
	bool		backward;
	int			nheads;			/* the newest run first */
	KvRunHead	heads[KV_MAX_UNFROZEN + 1];
} KvRunMerge;

static inline void
kv_head_load(KvRunHead *head)
{
	if (head->cursor.valid)
		kv_run_entry(&head->cursor, head->keybuf, &head->key.data, &head->key.len,
					 &head->version);
}

static inline bool
kv_head_is_at(const KvRunHead *head, KvKey key)
{
	return head->cursor.valid &&
		kv_key_compare(head->key.data, head->key.len, key.data, key.len) == 0;
}

static inline void
kv_head_step(const KvRunMerge *merge, KvRunHead *head)
{
	if (merge->backward)
		kv_run_prev(&head->cursor);
	else
		kv_run_next(&head->cursor);
	kv_head_load(head);
}

static inline void
kv_merge_begin(KvRunMerge *merge, bool backward)
{
	merge->nheads = 0;
	merge->backward = backward;
}

/*
 * Add a run, older than those before, from start on or, backwards, before start; data NULL:
 * from its edge.  The flag excludes start itself.
 */
static inline void
kv_merge_add(KvRunMerge *merge, KvRun *run, KvKey start, bool after)
{
	KvRunHead  *head = &merge->heads[merge->nheads++];

	Assert(merge->nheads <= lengthof(merge->heads));
	head->cursor.run = run;
	head->incarnation = kv_run_header(run)->incarnation;
	if (merge->backward)
		kv_run_seek_before(run, start.data, start.len, &head->cursor);
	else if (start.data == NULL)
		kv_run_first(run, &head->cursor);
	else
		kv_run_seek(run, start.data, start.len, &head->cursor);
	kv_head_load(head);
	while (after && kv_head_is_at(head, start))
		kv_head_step(merge, head);
}

/* The first key of all runs; data NULL: there is none. */
static inline KvKey
kv_merge_first(const KvRunMerge *merge)
{
	KvKey		first = {NULL, 0};

	for (int i = 0; i < merge->nheads; i++)
	{
		const KvRunHead *head = &merge->heads[i];
		int			order;

		if (!head->cursor.valid)
			continue;
		if (first.data != NULL)
		{
			order = kv_key_compare(head->key.data, head->key.len, first.data, first.len);
			if (merge->backward ? order <= 0 : order >= 0)
				continue;
		}
		first = head->key;
	}
	return first;
}

/* ---- checking, settings ---- */
/* Verify every page, the order and the fence; reports problems.  False: there is no such file. */
extern bool kv_run_check(const char *path, const KvRunIds *ids,
						 KvProblemCallback report, void *arg);

extern void kv_run_gucs(void);	/* defines this module's settings */

#endif							/* KV_RUN_H */
