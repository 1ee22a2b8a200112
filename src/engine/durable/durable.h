/*
 * durable.h
 *		Durable state: marks of shards, going back to one, and the control file.
 *
 * A mark of a shard is an edit of the version log (version/version.h).
 *
 * Locks:  a shard's lock, briefly, to copy and to publish; none is held on entry, and none
 * during a sync.  Errors: a failed sync is an ERROR, or PANIC if data_sync_retry is off.
 * Marks are never ahead of the flushed WAL.
 */
#ifndef KV_DURABLE_H
#define KV_DURABLE_H

#include "engine/base/shared.h"
#include "engine/base/types.h"
#include "engine/format/format.h"
#include "engine/format/path.h"
#include "engine/io/name.h"
#include "engine/maintenance.h"
#include "engine/shard/shard.h"
#include "engine/version/version.h"
#include "engine/xact/xact.h"

#define KV_MAGIC_CONTROL	0x4b564354	/* "KVCT" */
#define KV_CONTROL_PATH		KV_DIRECTORY "/control"

/* Proves that the page cache is still the one that was written to; 0: not known. */
typedef struct KvProof
{
	char		boot_id[40];	/* of the running kernel */
	uint64		mount;			/* of the directory "kvfdw"; see io/file.c */
	uint64		superblock;
	uint64		inode;			/* of the witness file */
	int64		changed_sec;	/* its last change */
	uint32		changed_nsec;
	uint32		pad;
} KvProof;

typedef struct KvControlFile
{
	uint32		magic;
	uint32		format_version;
	uint64		system_identifier;
	uint32		incarnation;
	uint32		ndead;
	uint64		checkpoint;		/* pg_control's, when this was written */
	KvIncarnation dead[KV_MAX_INCARNATIONS];
	uint32		provisional;	/* the last boundary may still rise */
	uint32		complete;		/* KvComplete */
	uint64		covered;	/* in recovery: marks have everything up to this position of the WAL */
	KvProof		proof;			/* for stores at wal level 'none' (trust.c) */
	uint64		directory_id;
	uint64		stop_xid;		/* next xid when complete was last set; 0: not known */
	uint32		takeovers;		/* number of servers after the first */
	uint32		by_pg_upgrade;	/* the last start was by pg_upgrade, to dump the server */
	uint64		server_id;		/* in names in tablespaces (restart/takeover.c) */
	uint64		former_ids[KV_FORMER_SERVERS];	/* earlier ids that may still be in names there;
												 * 0: none */
	/* on a standby: a backup that began at this redo pointer lacks marks; 0: none */
	uint64		late;
	uint32		pad;
	uint32		crc;
} KvControlFile;

StaticAssertDecl(sizeof(KvControlFile) == 16592, "control file size");

/* Contents of the label of a backup, of which this data directory is a copy. */
typedef struct KvBackupLabel
{
	uint64		redo;			/* where its WAL begins; 0: this is no copy */
	bool		of_primary;
	bool		rewound;		/* by pg_rewind, which copies while files are removed */
} KvBackupLabel;

/* Do the marks have everything in the WAL up to the last shutdown checkpoint? */
typedef enum KvComplete
{
	KV_COMPLETE_NOT,			/* tables are written, or may have been */
	KV_COMPLETE,				/* and no process has written since */
	KV_COMPLETE_UNLESS_REDO		/* none has, if the WAL ends with that checkpoint */
} KvComplete;

/*
 * The control file's fields other than incarnations.  Written in the postmaster, or under the
 * registry's lock.
 */
typedef struct KvControl
{
	uint64		checkpoint;		/* pg_control's at the start */
	KvComplete	complete;		/* are the marks complete? */
	uint64		covered;	/* in recovery: they have everything up to this position of the WAL */
	uint64		late;			/* as in the file */
	/* in recovery: they had everything up to here when this start began to replay */
	uint64		begins;
	bool		follows;		/* archive recovery or standby: there are restartpoints */
	uint64		stop_xid;		/* as in the file */
	uint32		takeovers;		/* as in the file */
} KvControl;

extern KvControl *kv_control;

/* ---- controlfile.c ---- */
/*
 * Read the control file in the form of this version, palloc'd; NULL if there is none.  FATAL if
 * it is damaged.  The caller checks which server it belongs to (restart/takeover.c).
 */
extern KvControlFile *kv_control_read(void);
/*
 * In the postmaster, at a start: write the control file, with this proof from now on.  Durable
 * on return.
 */
extern void kv_control_begin(const KvProof *now);
/*
 * In the postmaster, after that: record new ids of the server in tablespaces.  Durable on
 * return.
 */
extern void kv_control_note_ids(void);
/*
 * At the end of redo: set the last dead incarnation's boundary to the next xid, finally.
 * Durable on return.
 */
extern void kv_incarnation_redo_done(void);
/*
 * Record that the marks have everything that was logged, and that no process writes before the
 * next call; or that processes are about to write.  Durable on return; takes the registry's
 * lock.
 */
extern void kv_incarnation_complete(bool is);
/*
 * Record that replay has made marks of everything in the WAL up to this position.  late: as in
 * the control file.  Durable on return; takes the registry's lock.
 */
extern void kv_incarnation_covered(uint64 lsn, uint64 late);
/* In recovery: the marks have everything in the WAL up to this position. */
extern uint64 kv_marks_reach(void);
/*
 * In the maintainer, when no durable file names a dead incarnation any more: drop them.
 * Durable on return; takes the registry's lock.
 */
extern void kv_incarnations_resolved(void);

/* ---- mark.c ---- */
extern void kv_durable_gucs(void);	/* settings of this module, in test builds */
/*
 * In recovery of a shard: record the files that its newest mark names; at level 'none' the
 * mark's value files belong to the shard.
 */
extern void kv_shard_load_mark(KvStore *store, const KvVersions *versions, uint32 shard_id,
							   const KvFileList *listed);
/*
 * Has the shard changed since its mark, or is something to be released after one?  Not if the
 * round has carried what was new.
 */
extern bool kv_shard_needs_mark(KvStore *store, uint32 shard_id, uint32 round);
/*
 * After kv_shard_want_mark: is all durable that the shard had then?  False also after a failed
 * attempt, which is not repeated unless a mark is requested again.
 */
extern bool kv_shard_has_mark(KvShard *shard);
/*
 * Make the state of n shards durable, and record that.  covers: see mark.c's head.  ERROR if
 * one cannot be: then the previous marks of all n count.
 */
extern void kv_shards_mark(KvStore *store, const uint32 *shards, int n, uint64 covers,
						   KvCheckpointerStats *stats);
/*
 * At level 'full': append to the version log what the open write buffers of shards have that are
 * otherwise unchanged since their marks, if it is little.  These shards need no mark in this
 * round of the checkpointer.  Durable on return.  ERROR if it cannot be.
 */
extern void kv_shards_carry(KvStore *store, uint32 round, KvCheckpointerStats *stats);

/* ---- mapback.c ---- */
/*
 * In recovery: the map of a store that begins at its marks, palloc'd.  Newer maps are dropped
 * from the version log, and files of shards that are not in the map are removed.
 */
extern KvMap *kv_map_set_back(KvStore *store, const KvVersions *versions);
/*
 * In the postmaster: how many entries have shards of later maps got since they were created,
 * except those in trusted write buffers?  Approximate if key logs are damaged.
 */
extern uint32 kv_map_entries_after(const KvStore *store, const KvMap *map);
/* Remove files of shards that are not in this map; ERROR if some cannot be. */
extern void kv_map_keep_only(const KvStore *store, const KvMap *map);
extern bool kv_map_has_others(const KvStore *store, const KvMap *map);	/* are there any? */
/* Have all shards of the store's map marks that were captured since their bounds changed? */
extern bool kv_map_is_marked(KvStore *store);
/*
 * The process that makes marks may have made some of the store: remove files of the previous
 * map and obsolete value files, and rewrite the version log, if that is due and allowed.
 */
extern void kv_map_look(KvStore *store);

/* ---- markback.c ---- */
/* The mark of a shard that has none. */
extern void kv_mark_of_empty(KvMark *mark);
/*
 * These functions get the shard's files in files[n], and the number of the map that has last
 * changed its bounds.  ERROR, and nothing is changed, if the mark or a file that it names is
 * missing or damaged.
 *
 * kv_shard_set_back, in recovery: leave the shard's files as in its newest mark.  False: the
 * shard was never used, and nothing is set.
 */
extern bool kv_shard_set_back(const KvStore *store, const KvVersions *versions, uint32 shard_id,
							  uint32 since, const KvFoundFile *files, int n, KvMark *mark);
/*
 * In the postmaster, in a backup's copy: the mark to which the shard can be set back.  False:
 * there is none.
 */
extern bool kv_shard_choose_mark(const KvStore *store, const KvVersions *versions,
								 uint32 shard_id, const KvBackupLabel *label, KvMark *mark);
/* The same: ERROR unless all files exist that the shard's mark names.  copied: by a backup. */
extern void kv_shard_require_mark(const KvStore *store, const KvVersions *versions,
								  uint32 shard_id, uint32 since, bool copied);
/*
 * In the postmaster, at wal level 'none': the shard's files after its newest mark are not
 * trusted.  *mark is that mark, with files that tell recovery to salvage what follows it, and
 * that so many entries are lost in addition to those of its write buffers.  False: the shard was
 * never used.
 */
extern bool kv_shard_set_unverified(const KvStore *store, const KvVersions *versions,
									uint32 shard_id, uint32 since, const KvFoundFile *files,
									int n, uint32 lost, KvMark *mark);
/* Remove the files that this mark does not name, except logs that follow it. */
extern void kv_shard_remove_others(const KvStore *store, uint32 shard_id, KvMark *mark,
								   const KvFoundFile *files, int n);

#endif							/* KV_DURABLE_H */
