/*
 * durable.h
 *		Durable state: images of shards, going back to one, and the control file.
 *
 * Locks:  a shard's lock, briefly, to copy and to publish; none is held on entry, and none
 * during a sync.  Errors: a failed sync is an ERROR, or PANIC if data_sync_retry is off.
 * Images are never ahead of the flushed WAL.
 */
#ifndef KV_DURABLE_H
#define KV_DURABLE_H

#include "engine/base/shared.h"
#include "engine/base/types.h"
#include "engine/engine.h"
#include "engine/format/format.h"
#include "engine/shard/shard.h"
#include "engine/xact/xact.h"

#define KV_MAGIC_IMAGE		0x4b56494d	/* "KVIM" */
#define KV_MAGIC_CONTROL	0x4b564354	/* "KVCT" */
#define KV_CONTROL_PATH		KV_DIRECTORY "/control"

typedef struct KvImage
{
	KvManifest	manifest;
	uint32		last_log;
	uint32		number;
	uint32		map_number;		/* KvShard.place.bounds_since when it was captured */
	uint64		log_tail;		/* of last_log */
	uint64		covers;			/* a redo pointer; see image.c */
} KvImage;

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
	uint64		covered;	/* in recovery: images have everything up to this position of the WAL */
	KvProof		proof;			/* for stores at wal level 'none' (trust.c) */
	uint64		directory_id;
	uint64		stop_xid;		/* next xid when complete was last set; 0: not known */
	uint32		takeovers;		/* number of servers after the first */
	uint32		by_pg_upgrade;	/* the last start was by pg_upgrade, to dump the server */
	uint64		server_id;		/* in names in tablespaces (restart/spaces.c) */
	uint64		former_ids[KV_FORMER_SERVERS];	/* earlier ids that may still be in names there;
												 * 0: none */
	/* on a standby: a backup that began at this redo pointer lacks images; 0: none */
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

typedef struct KvImaged KvImaged;

/* Do the images have everything in the WAL up to the last shutdown checkpoint? */
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
	KvComplete	complete;		/* are the images complete? */
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
 * Record that the images have everything that was logged, and that no process writes before the
 * next call; or that processes are about to write.  Durable on return; takes the registry's
 * lock.
 */
extern void kv_incarnation_complete(bool is);
/*
 * Record that replay has made images of everything in the WAL up to this position.  late: as in
 * the control file.  Durable on return; takes the registry's lock.
 */
extern void kv_incarnation_covered(uint64 lsn, uint64 late);
/* In recovery: the images have everything in the WAL up to this position. */
extern uint64 kv_images_reach(void);
/*
 * In the maintainer, when no durable file names a dead incarnation any more: drop them.
 * Durable on return; takes the registry's lock.
 */
extern void kv_incarnations_resolved(void);

/* ---- imagefile.c ---- */
/* The bytes of an image's file, palloc'd. */
extern char *kv_image_bytes(const KvStoreKey *key, uint32 shard_id, const KvImage *image,
							Size *len);
/* Read an image.  False if there is none, or it is invalid: that is reported at elevel. */
extern bool kv_image_read(const KvStoreKey *key, uint32 shard_id, uint32 number, int elevel,
						  KvImage *image);
/* Read the newest image, in the same way. */
extern bool kv_image_read_newest(const KvStoreKey *key, uint32 shard_id,
								 const KvFoundFile *files, int n, int elevel,
								 KvImage *image);

/* ---- image.c ---- */
/*
 * In recovery of a shard: record the files that its newest image names; at level 'none' the
 * image's value files belong to the shard.  A damaged image is logged, counts as none, and is
 * soon replaced.
 */
extern void kv_shard_load_image(KvStore *store, uint32 shard_id, const KvFoundFile *files,
								int n, const KvManifest *manifest);
/*
 * Make the state of n shards durable, and record that.  covers: see image.c's head.  ERROR if
 * one cannot be: then the previous images of all n count.
 */
extern void kv_shards_image(KvStore *store, const uint32 *shards, int n, uint64 covers,
							KvCheckpointerStats *stats);
/*
 * Remove files that only older images have kept, and unneeded retired value files.  In the
 * process that makes images.
 */
extern void kv_shards_release(KvStore *store, const uint32 *shards, int n);

/* ---- imaged.c ---- */
/* NULL: no shard has had an image; ERROR if damaged. */
extern KvImaged *kv_imaged_read(const KvStore *store);
extern bool kv_imaged_has(const KvImaged *imaged, uint32 shard_id);
/* The newest map whose shards all have their images, as recorded; imaged NULL: 0. */
extern uint32 kv_imaged_map(const KvImaged *imaged);
/*
 * The store is open, and all shards of its map of this number have their images.  Durable on
 * return.
 */
extern void kv_imaged_write(KvStore *store, uint32 number);
extern void kv_imaged_forget(const KvStoreKey *key);	/* in a backup's copy: images may go */

/* ---- mapback.c ---- */
/*
 * The map of a store that begins at its images, palloc'd: the newest one whose shards all have
 * their image.  ERROR if there was one and it is missing.
 */
extern KvMap *kv_map_choose(const KvStore *store, const KvImaged *imaged);
extern KvMap *kv_map_newest(const KvStore *store);	/* of a trusted store; palloc'd */
/*
 * At level 'none': how many entries have shards of later maps got since they were created,
 * except those in trusted write buffers?  Approximate if key logs are damaged.
 */
extern uint32 kv_map_entries_after(const KvStore *store, const KvMap *map);
/* Remove all other maps, and files of shards that are not in this one. */
extern void kv_map_keep_only(const KvStore *store, const KvMap *map);
extern bool kv_map_has_others(const KvStore *store, const KvMap *map);	/* are there any? */
/* In the process that makes images: make a map durable, unless it is the first. */
extern void kv_map_sync(KvStore *store, uint32 number);
/* Have all shards of the store's map images that were captured since their bounds changed? */
extern bool kv_map_is_imaged(KvStore *store);
/*
 * The process that makes images has made some of the store: write its file "imaged" if that is
 * due, and remove files of the previous map, if that is allowed.
 */
extern void kv_map_look(KvStore *store);

/* ---- imageback.c ---- */
/*
 * These functions get the shard's files in files[n]; had_image: the file "imaged" says that
 * there was an image.  ERROR, and nothing is changed, if the image or a file that it names is
 * missing or damaged.
 *
 * kv_shard_set_back, in recovery: leave the shard's files as in its newest image.  False: the
 * shard was never used, and nothing is set.  Else *manifest is the shard's, and its logs end at
 * *log_end of *last_log.
 */
extern bool kv_shard_set_back(const KvStore *store, uint32 shard_id, const KvFoundFile *files,
							  int n, bool had_image, KvManifest *manifest, uint32 *last_log,
							  uint64 *log_end);
/*
 * In the postmaster, in a backup's copy: remove all images except the one to which the copy can
 * be set back, or all if there is none.
 */
extern void kv_shard_choose_image(const KvStore *store, uint32 shard_id,
								  const KvFoundFile *files, int n,
								  const KvBackupLabel *label);
/*
 * In the postmaster, at wal level 'none': the shard's files after its newest image are not
 * trusted.  Its manifest then tells recovery to salvage those files, and that so many entries
 * are lost in addition to those of its write buffers.
 */
extern void kv_shard_set_unverified(const KvStore *store, uint32 shard_id, const KvFoundFile *files,
									int n, bool had_image, uint32 lost);

#endif							/* KV_DURABLE_H */
