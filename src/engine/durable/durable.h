/*
 * durable.h
 *		What is on the device for good: images of shards, going back to one, and the
 *		control file.
 *
 * Takes a shard's lock briefly, to copy and to publish; none is held on entry, and
 * none across a sync.  A sync that fails is an ERROR, or PANIC as data_sync_retry
 * says.  Images are never ahead of the WAL that is flushed.
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
	uint32		map_number;		/* KvShard.bounds_since when it was captured */
	uint64		log_tail;		/* of last_log */
	uint64		covers;			/* a redo pointer; see image.c */
} KvImage;

/* What proves that the page cache is still the one that was written to; 0: not known. */
typedef struct KvProof
{
	char		boot_id[40];	/* of the running kernel */
	uint64		mount;			/* of the directory "kvfdw"; see io/identity.c */
	uint64		superblock;
	uint64		inode;			/* of the witness, … */
	int64		changed_sec;	/* … and when it was last changed */
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

	/* other than in versions 1 and 2 */
	uint32		complete;		/* KvComplete */
	uint64		covered;		/* in recovery: images reach up to this position of the WAL */
	KvProof		proof;			/* for stores at wal level 'none' (trust.c) */

	/* since version 4 */
	uint64		directory_id;	/* before: the server's */
	uint64		stop_xid;		/* when complete was last given: the next xid; 0: not known */
	uint32		takeovers;		/* by how many servers, but for the first */
	uint32		by_pg_upgrade;	/* the last start was its, to dump what there is */

	/* since version 5; before: directory_id, and none */
	uint64		server_id;		/* in names in tablespaces (restart/spaces.c) */
	uint64		former_ids[KV_FORMER_SERVERS];	/* … that may be there still; 0: none */
	/* of a standby: a backup that began at this redo pointer lacks images; 0: none */
	uint64		late;

	uint32		pad;
	uint32		crc;
} KvControlFile;

StaticAssertDecl(sizeof(KvControlFile) == 16592, "control file size");

/* What the label of a backup says about the copy that this is. */
typedef struct KvBackupLabel
{
	uint64		redo;			/* where its WAL begins; 0: it is no copy */
	bool		of_primary;
	bool		rewound;		/* by pg_rewind, beside which files go */
} KvBackupLabel;

typedef struct KvImaged KvImaged;

/* Do the images have all that the WAL says up to the last shutdown checkpoint? */
typedef enum KvComplete
{
	KV_COMPLETE_NOT,			/* tables are written, or may have been */
	KV_COMPLETE,				/* … and nobody has written since */
	KV_COMPLETE_UNLESS_REDO		/* nobody has, if the WAL ends with that checkpoint */
} KvComplete;

/*
 * What is in the control file beside incarnations.  Written in the postmaster, or under
 * the registry's lock.
 */
typedef struct KvControl
{
	uint64		checkpoint;		/* pg_control's at the start */
	KvComplete	complete;		/* are the images? */
	uint64		covered;		/* in recovery: they reach up to this position of the WAL */
	uint64		late;			/* as in the file */
	/* … and where this start begins to replay, they reached up to here */
	uint64		begins;
	bool		follows;		/* archive recovery or standby: there are restartpoints */
	uint64		stop_xid;		/* as in the file */
	uint32		takeovers;		/* likewise */
} KvControl;

extern KvControl *kv_control;

/* ---- controlfile.c ---- */
/*
 * In the form of this version, palloc'd; NULL if there is none.  FATAL if it is damaged.  Whose
 * it is the caller looks at (restart/takeover.c).
 */
extern KvControlFile *kv_control_read(void);
/*
 * In the postmaster, at a start: writes the control file, with this proof from
 * now on.  Durable on return.
 */
extern void kv_control_begin(const KvProof *now);
/*
 * In the postmaster, after that: the server's ids in tablespaces are others now. Durable on return.
 */
extern void kv_control_note_ids(void);
/*
 * At the end of redo: sets the last dead incarnation's boundary to the next xid, for good.
 * Durable on return.
 */
extern void kv_incarnation_redo_done(void);
/*
 * The images have all that was logged, and nobody writes before this is taken back; or
 * somebody is about to.  Durable on return; takes the registry's lock.
 */
extern void kv_incarnation_complete(bool is);
/*
 * Likewise: replay has made images of all that the WAL says up to this position.  late: as in the
 * control file.
 */
extern void kv_incarnation_covered(uint64 lsn, uint64 late);
/* In recovery: what the WAL says up to this position is in the images that there are. */
extern uint64 kv_images_reach(void);
/*
 * In the maintainer, when nothing durable names a dead incarnation any more: forgets them.
 * Durable on return; takes the registry's lock.
 */
extern void kv_incarnations_resolved(void);

/* ---- imagefile.c ---- */
/* The bytes of an image's file, palloc'd. */
extern char *kv_image_bytes(const KvStoreKey *key, uint32 shard_id, const KvImage *image,
							Size *len);
/* False if there is none, or it is not sound: that is reported at elevel. */
extern bool kv_image_read(const KvStoreKey *key, uint32 shard_id, uint32 number, int elevel,
						  KvImage *image);
/* Likewise, of the newest. */
extern bool kv_image_read_newest(const KvStoreKey *key, uint32 shard_id,
								 const KvFoundFile *files, int n, int elevel,
								 KvImage *image);

/* ---- image.c ---- */
/*
 * In recovery of a shard: notes in it what its newest image names; at level 'none' the
 * value files of that are the shard's.  A damaged image is logged, counts as
 * none, and is soon replaced.
 */
extern void kv_shard_load_image(KvStore *store, uint32 shard_id, const KvFoundFile *files,
								int n, const KvManifest *manifest);
/*
 * Make what n shards have now durable, and note that it is.  covers: see
 * image.c's head.  ERROR if one cannot be: then of all n the images that were there count.
 */
extern void kv_shards_image(KvStore *store, const uint32 *shards, int n, uint64 covers,
							KvCheckpointerStats *stats);
/*
 * Files that only older images have kept go, and retired value files that nothing needs any more.
 * In the process that makes images.
 */
extern void kv_shards_release(KvStore *store, const uint32 *shards, int n);

/* ---- imaged.c ---- */
/* NULL: no shard has had one; ERROR if damaged. */
extern KvImaged *kv_imaged_read(const KvStore *store);
extern bool kv_imaged_has(const KvImaged *imaged, uint32 shard_id);
/* The newest map of which it knows that all shards have their images; imaged NULL: 0. */
extern uint32 kv_imaged_map(const KvImaged *imaged);
/*
 * Durable on return; the store is open, and all shards of its map of this number have their images.
 */
extern void kv_imaged_write(KvStore *store, uint32 number);
extern void kv_imaged_forget(const KvStoreKey *key);	/* in a backup's copy: images may go */

/* ---- mapback.c ---- */
/*
 * The map of a store that begins at its images, palloc'd: the newest one whose shards all
 * have their image.  ERROR if there was one and is not any more.
 */
extern KvMap *kv_map_choose(const KvStore *store, const KvImaged *imaged);
extern KvMap *kv_map_newest(const KvStore *store);	/* of one that is trusted; palloc'd */
/*
 * At level 'none': entries that shards of later maps have got since they were made, as far as
 * they are not in write buffers that are trusted.  About so many, if key logs are damaged.
 */
extern uint32 kv_map_entries_behind(const KvStore *store, const KvMap *map);
/* Remove all other maps, and files of shards that this one does not have. */
extern void kv_map_keep_only(const KvStore *store, const KvMap *map);
extern bool kv_map_has_others(const KvStore *store, const KvMap *map);	/* are there any? */
/* The process that makes images: a map, if it is not the first, is durable. */
extern void kv_map_sync(KvStore *store, uint32 number);
/* Have all shards of the store's map images that were captured since their bounds changed? */
extern bool kv_map_is_imaged(KvStore *store);
/*
 * The process that makes images has made some of the store: writes its file "imaged" if that
 * is due, and after a change of the map what the one before has left goes, if it may.
 */
extern void kv_map_look(KvStore *store);

/* ---- imageback.c ---- */
/*
 * These know the shard's files from files[n]; had_image: the file "imaged" says that there
 * was an image.  ERROR, and nothing is changed, if the image or a file that it names is
 * missing or damaged.
 *
 * kv_shard_set_back, in recovery: leaves the shard's files as in its newest image.  False:
 * it was never used, and nothing is set; else *manifest is the shard's, and its logs end at
 * *log_end of *last_log.
 */
extern bool kv_shard_set_back(const KvStore *store, uint32 shard_id, const KvFoundFile *files,
							  int n, bool had_image, KvManifest *manifest, uint32 *last_log,
							  uint64 *log_end);
/*
 * In the postmaster, in a backup's copy: removes all images but the one that the copy can be
 * set back to, or all if there is none.
 */
extern void kv_shard_choose_image(const KvStore *store, uint32 shard_id,
								  const KvFoundFile *files, int n,
								  const KvBackupLabel *label);
/*
 * In the postmaster, at wal level 'none': what the shard has beyond its newest image is not
 * trusted; its manifest then tells recovery to salvage that, and that so many entries are lost
 * beside those of its write buffers.
 */
extern void kv_shard_set_unverified(const KvStore *store, uint32 shard_id, const KvFoundFile *files,
									int n, bool had_image, uint32 lost);

#endif							/* KV_DURABLE_H */
