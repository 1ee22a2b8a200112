/*
 * version.h
 *		The version log of a store: its shards, the files of each, and which part of them is
 *		durable.
 *
 * A store is a sequence of edits.  An edit is one record with a checksum that is appended to the
 * store's file "NNNNNNNN.versions".  There are
 *
 *	MAP		the store has this map from now on: a split, a cut or an absorption is complete with it
 *	FILES	a shard consists of these runs, logs and value files; at level 'none' only, because
 *			the other levels begin at their marks
 *	MARK	the shard is durable up to here: the files that the mark names are on the device, each
 *			up to the end that the mark has for it
 *	CARRIED	versions that the shard has in addition to its newest mark, with their values.  Its open
 *			write buffer has them, and they are so few that no file is written and synced for them
 *	SYNCED	no more than each edit says: the log is durable up to an offset
 *
 * For each shard the newest edit of a kind counts.  A map counts after a power loss if all of its
 * shards have a mark since their bounds changed.  A shard whose bounds never changed needs none.
 * The edits of one append count together or not at all, so it is atomic for all shards that it
 * names, and nothing is renamed or unlinked.
 *
 * Durable: MAP and FILES are in the page cache after the append; a mark is durable when the call
 * that appends it returns, and so is all before it.
 *
 * Damage: A record that is not valid ends the log, unless a valid one follows it.  That one says up
 * to where the log was durable when it was written.  If this is after the invalid record the log is
 * damaged (XX001).  Otherwise the rest was being written when the server or the power failed, and
 * is dropped.  A SYNCED edit follows each sync, so that damage of the last mark is noticed.  The
 * head says, too, up to where the log was durable, so the loss of its end is noticed; and which
 * log has replaced it, so the loss of the newest log is.
 *
 * Rewriting: When a log has become twice as large as it need be, the edits that count are written
 * to a log with the next number.  That log is durable before it gets its name.  The previous one
 * stays until the next rewriting, so a tool that copies the directory then finds one of the two
 * whole.  While a base backup runs no log is rewritten, because the backup may need older marks.
 *
 * Locks: KvVersionLog.lock is held across a write to the page cache, not across a sync, except when
 * the log is rewritten.  It is taken last.
 *
 * Errors: A failed write is an ERROR, and the edits do not count.  A failed sync is an ERROR, or
 * PANIC if data_sync_retry is off.
 */
#ifndef KV_VERSION_H
#define KV_VERSION_H

#include "engine/base/types.h"
#include "engine/format/format.h"
#include "engine/shard/shard.h"

/* A mark: the durable state of a shard. */
typedef struct KvMark
{
	KvFileList	listed;
	uint32		last_log;
	uint32		number;			/* counts the marks of the shard */
	uint32		map_number;		/* KvShard.bounds_since when it was captured */
	uint64		log_tail;		/* of last_log */
	uint64		covers;			/* a redo pointer; see durable/mark.c */
} KvMark;

/* The contents of a write buffer, carried by the version log. */
typedef struct KvCarried
{
	uint32		number;			/* of the mark to which they are added; 0: the shard has none */
	uint32		map_number;		/* of that mark */
	uint32		incarnation;	/* of the buffer */
	KvAddress	base;			/* of its value area */
	uint32		entry_bytes;
	uint32		value_bytes;
	const char *entries;
	const char *values;
} KvCarried;

/* An edit that is to be appended, or was read. */
typedef struct KvEdit
{
	KvEditKind	kind;
	uint32		shard;			/* KV_NO_SHARD: it concerns none */
	uint32		len;			/* of the body; a multiple of 8 */
	const char *body;
} KvEdit;

/* What the version log of a store says. */
typedef struct KvVersions
{
	KvStoreKey	key;
	uint32		number;			/* of the newest log */
	uint64		end;			/* of its edits */
	uint32		appends;		/* the last one of its edits */
	uint64		synced;			/* it was durable up to here, as they say */
	bool		torn;			/* something that is no edit follows them */
	int			n;
	int			room;
	KvEdit	   *edits;			/* in the order of the log */
	/* indexes of edits that concern a shard, by kind, shard and order */
	int		   *by_shard;
	int			nby_shard;
	List	   *bytes;			/* of the logs */
} KvVersions;

/* ---- edit.c ---- */
/*
 * Make a map of these shards in key order, palloc'd; shards NULL: ids 0, 1, …  since NULL: 0
 * for all of them.  The first shard begins before all keys, whatever bounds[0] is.
 */
extern KvMap *kv_map_make(uint32 number, uint32 nshards, const uint32 *shards,
						  const uint32 *since, const KvKey *bounds);
/* The bodies of these are palloc'd. */
extern KvEdit kv_edit_of_map(const KvMap *map);
extern KvEdit kv_edit_of_files(uint32 shard_id, const KvFileList *listed);
extern KvEdit kv_edit_of_mark(uint32 shard_id, const KvMark *mark);
extern KvEdit kv_edit_of_carried(uint32 shard_id, const KvCarried *carried);
/* False: the body is none of this kind.  The results are palloc'd. */
extern bool kv_edit_get_map(const KvEdit *edit, KvMap **map);
extern bool kv_edit_get_files(const KvEdit *edit, KvFileList *listed);
extern bool kv_edit_get_mark(const KvEdit *edit, KvMark *mark);
/* The entries and values are those of the edit, and whole. */
extern bool kv_edit_get_carried(const KvEdit *edit, KvCarried *carried);

/* ---- log.c ---- */
/*
 * Read the log with this number of the store with this id; 0: the newest one; all: those before it
 * as well.  ERROR (XX001) if it is missing or damaged, 0A000 if it has another format version.
 *
 * strict: all of it was written by this server, and nothing was lost; only its last edit may be
 * incomplete.  limit: bytes of the newest log that count; 0: all.
 */
extern KvVersions *kv_versions_read(const KvStoreKey *key, uint64 id, uint32 number, bool all,
									bool strict, uint64 limit);
extern void kv_versions_free(KvVersions *versions);
/* What a log with these edits would say; their bodies must stay. */
extern KvVersions *kv_versions_of(const KvVersions *versions, const KvEdit *edits, int n);
/* The newest FILES of a shard; false: there is none. */
extern bool kv_versions_files(const KvVersions *versions, uint32 shard_id, KvFileList *listed);
/* The newest mark of a shard that was captured for map number since or later. */
extern bool kv_versions_mark(const KvVersions *versions, uint32 shard_id, uint32 since,
							 KvMark *mark);
/* The shard's mark before so many newer ones; false: there is none. */
extern bool kv_versions_mark_before(const KvVersions *versions, uint32 shard_id, int newer,
									KvMark *mark);
/* What is carried of a shard in addition to this mark, or to none; false: nothing. */
extern bool kv_versions_carried(const KvVersions *versions, uint32 shard_id, uint32 number,
								uint32 map_number, KvCarried *carried);
/* The edit that has it, or NULL. */
extern const KvEdit *kv_versions_carrying(const KvVersions *versions, uint32 shard_id,
										  uint32 number, uint32 map_number);
/* The least shard id, not less than the argument, that has a mark, or KV_NO_SHARD. */
extern uint32 kv_versions_marked(const KvVersions *versions, uint32 shard_id);
extern KvMap *kv_versions_newest_map(const KvVersions *versions);	/* palloc'd */
/* The newest map all of whose shards have a mark, if their bounds have ever changed. */
extern KvMap *kv_versions_durable_map(const KvVersions *versions);
/*
 * The edits that count if the store has these maps, the newest last.  They are palloc'd, their
 * bodies are those of the log.  with_files: FILES count.
 */
extern KvEdit *kv_versions_live(const KvVersions *versions, KvMap *const *maps, int nmaps,
								bool with_files, int *n);
/* The same for the maps that the log has: the newest, and the one that is durable. */
extern KvEdit *kv_versions_all_live(const KvVersions *versions, bool with_files, int *n);
/* Write the first log of a store whose directory has this path; durable but for its name. */
extern void kv_versions_create(const char *directory, const KvStoreKey *key, uint64 id,
							   const KvMap *map);
/*
 * Replace the newest log by one with these edits.  Durable on return.  No process uses the store,
 * or the caller is the one that opens it.  Returns its length.
 */
extern uint64 kv_versions_replace(const KvVersions *versions, uint64 id, const KvEdit *edits,
								  int n);
/* ERROR (XX001): the store's log with this number is damaged, and how. */
KV_NORETURN extern void kv_versions_raise_damaged(const KvStoreKey *key, uint32 number,
												  const char *detail);
/* Report the first damage of each log of a store: as kv_log_check. */
extern void kv_versions_check(const KvStoreKey *key, uint64 id, KvProblemCallback report,
							  void *arg);

/* ---- append.c ---- */
/*
 * In the process that opens the store: read its log, and prepare appends to it.  A log that ends
 * with an incomplete edit is replaced.  What it says is palloc'd.
 */
extern KvVersions *kv_version_log_open(KvStore *store);
/* Read the log of an open store up to its present end. */
extern KvVersions *kv_version_log_read(KvStore *store);
/* In the process that opens the store: replace its log by one with these edits.  Durable. */
extern void kv_version_log_replace(KvStore *store, const KvVersions *versions, const KvEdit *edits,
								   int n);
/* Append edits, all or none; durable: see the head. */
extern void kv_version_log_append(KvStore *store, const KvEdit *edits, int n, bool durable);
/* In the process that makes marks: rewrite the log if that is due and allowed. */
extern void kv_version_log_look(KvStore *store);

#endif							/* KV_VERSION_H */
