/*
 * shard.h
 *		Stores and shards in shared memory, and the runs of a shard as a reader sees them.
 *
 * KvShard.lock guards the shard's two memtables, its run list, its write buffers and its log
 * position, and the list of its value files. It is never held across a system call that touches a
 * device (I 7); a write that needs one (space for values, a free write buffer, room in the
 * memtable) lets go, does it, and starts again from the look-up.
 *
 * KvRegistry.lock guards the hash tables.  A pin keeps a store in shared memory,
 * not its table.
 *
 * The map of a store says which shard has which keys.  It is immutable, and numbered; who
 * changes bounds puts another one in its place, under KvStore.map_lock.  A process goes by a
 * copy of its own, so a route, which is what a map says of a key, may be outdated as soon
 * as it is known.  So who looks into a shard for the sake of a key, or writes to it, does it
 * under the shard's lock and makes sure there that the route still holds.  Descriptors
 * of shards stay where they are until their store goes; a shard that the map does not have
 * any more holds no route.
 *
 * kv_shard_runs maps files, so no lock is held on entry; it raises ERROR for a damaged
 * run.  A run set is its process's, and good while the shard has its generation.
 */
#ifndef KV_SHARD_H
#define KV_SHARD_H

#include "datatype/timestamp.h"
#include "nodes/pg_list.h"
#include "port/atomics.h"
#include "storage/condition_variable.h"
#include "storage/lwlock.h"
#include "storage/spin.h"
#include "utils/dsa.h"
#include "utils/hsearch.h"

#include "engine/base/area.h"
#include "engine/base/types.h"
#include "engine/engine.h"
#include "engine/format/format.h"
#include "engine/index/memtable.h"
#include "engine/index/run.h"
#include "engine/xact/xact.h"

/* The files that an image names. */
typedef struct KvImageFiles
{
	bool		valid;
	uint32		last_log;
	KvShardFiles files;
} KvImageFiles;

typedef enum KvImageSlot
{
	KV_IMAGE_LAST,
	KV_IMAGE_NEXT,				/* being made */
	KV_IMAGES
} KvImageSlot;

/* ---- shards ---- */

/* A value file of a shard that is in use. */
typedef struct KvShardValueFile
{
	KvValueFile	value_file;		/* used: of the open one see KvShard.value_tail */
	uint64		newest_writer;	/* full xid that has reserved a large value in it; 0: none */
	uint64		trusted;		/* after a power loss: how much of it is verified */
	uint64		counted;		/* bytes that were taken when value file.live was counted, … */
	uint64		dead_then;		/* … and how many of them were dead, if it is not known any more */
	/* bytes seen replaced or deleted since value file.live was counted */
	uint64		dead_since;
	/* of one that is SHARED: so many of its bytes count as this shard's */
	uint64		share;
} KvShardValueFile;

/* A value file that has left the list, and whose file is still needed (retired.c). */
typedef struct KvRetired
{
	KvValueFile	value_file;		/* as the list had it */
	uint32		until_image;	/* the number of the first image that does without it */
	uint64		lsn;			/* where the WAL ended when it left the list */
	uint64		taken;			/* so many of its bytes count as this shard's */
} KvRetired;

/* Enough, each full, so that few bytes of a shard lie in one; see kv_value_file_next_class. */
#define KV_VALUE_FILES_WANTED	24

/* Where a compaction job is (compact/compact.h). */
typedef enum KvJobPhase
{
	KV_JOB_NONE,
	KV_JOB_CHOOSE,
	KV_JOB_MOVE,
	KV_JOB_SWITCH,
	KV_JOB_KEEP
} KvJobPhase;

#define KV_NOT_IN_MAP	PG_UINT32_MAX	/* bounds_since: the map has it not yet, or not any more */

/*
 * What has died in a shard since its value files were counted, by the transactions that did it
 * (dying.c): it is of no use to anybody when these have ended for all snapshots there are.
 */
#define KV_DYING_PARTS	8

typedef struct KvDying
{
	uint64		sum;			/* bytes that were noted dead, ever */
	uint64		begin;			/* up to here they were counted, or nobody sees them any more */
	int			n;
	struct
	{
		uint64		end;		/* sum behind this part */
		uint64		xid;		/* no later transaction has part in it */
	}			parts[KV_DYING_PARTS];
} KvDying;

typedef struct KvShard
{
	LWLock		lock;
	LWLock		extend_lock;	/* one process at a time adds value files or grows the open one */
	LWLock		commit_lock;	/* wal level 'keys': the order of WAL records (buffer/commit.c) */
	ConditionVariable changed;	/* maintenance ended, a write buffer was written */

	/* guarded by lock; changes under map_lock as well */
	uint32		bounds_since;	/* the map that last changed its bounds, or KV_NOT_IN_MAP */
	uint64		left_xid;		/* the next xid when it left the map; 0: it has not */

	bool		halted;			/* for a change of the map: writers wait on changed */

	/* where the newest map has it; anybody may read these, and be a little behind */
	uint32		position;
	uint32		next;			/* in the order of keys; behind the last comes the first */
	uint32		previous;

	/* guarded by lock */
	KvMemtable	active;			/* new versions go here */
	KvMemtable	immutable;		/* being flushed: read-only but for statuses */
	dsa_pointer dead;			/* ranges of dead keys (dead.h), or invalid */
	KvShardFiles files;
	uint32		immutable_log;	/* the last log whose entries are in sealed */
	uint32		log_number;		/* where new batches go */
	uint64		log_tail;
	uint32		closed_log;		/* the last log that a flush has closed, … */
	uint64		closed_tail;	/* … and where it ends: no batch comes behind that */
	int			open_buffer;	/* write buffer index or -1 */
	int			sealed_buffers;	/* list head: sealed and not yet written, or -1 */

	/* its values; the list itself changes under extend_lock as well */
	/* KvShardValueFile[value_files_capacity], in the order of addresses */
	dsa_pointer	value_files;
	int			nvalue_files;
	int			value_files_capacity;
	/* of that room, so much is kept for the compaction job that runs */
	int			value_files_promised;
	uint32		job;			/* KvManifest.pass */
	uint32		countings;		/* how often its value files have noted what is live */
	/* of values that count as live for older snapshots, or unfinished … */
	uint64		uncertain_bytes;
	/* … transactions, only, none of which began at this xid or later */
	uint64		uncertain_until;
	uint64		redone_bytes;	/* of those that what redo has written since may have replaced */
	uint64		written;		/* bytes of values since they were put, or found, in order */
	KvDying		dying;			/* what has died since they were counted */
	uint64		died_untold;	/* bytes of that which the store's account does not have yet */
	/* 256ths of a byte that were counted for each of values; 0: not counted */
	uint32		padding;
	KvAddress	next_address;	/* KvManifest.next_place */
	KvAddress	open_address;	/* of the value file that takes new values; 0: none */
	KvAddress	value_tail;		/* in it: where the next write buffer or large value begins … */
	KvAddress	value_allocated;	/* … and up to where it is allocated */
	uint64		value_bytes;	/* kv_value_file_taken of all value files, about */
	/* KvRetired[retired_capacity], in no order; grows in a maintainer */
	dsa_pointer	retired;
	int			nretired;
	int			retired_capacity;
	bool		image_wanted;	/* by the next look of the checkpointer, without a checkpoint */

	int			maintainer;		/* pid of the process flushing it, or 0 */
	/* flushes leave runs up to this number, and the base, alone; 0: none */
	uint32		floor;
	/* a split has met a compaction job: until then no other comes by itself */
	TimestampTz	split_waits;
	TimestampTz split_after;	/* the maintainer leaves it as it is until then, … */
	uint32		split_failures; /* … for so many attempts in a row have failed */
	/* a process that a compaction keeps waiting has looked at it then */
	TimestampTz awaited;
	int			compactor;		/* pid of the process compacting or splitting it, or 0 … */
	KvJobPhase	job_phase;		/* … where that is, … */
	uint64		job_moved;		/* … bytes that it has moved … */
	uint64		job_to_move;	/* … and is to move, about */
	bool		job_failed;		/* the last that ended did, but not for want of space */
	uint64		unresolved_xid;	/* the oldest there whose status they do not say; 0: none … */
	uint32		unresolved_generation;	/* … if the runs are of this generation */
	uint64		resolved_horizon;	/* at the last flush of all runs */
	uint64		key_share_xid;	/* newest that may have a KEY SHARE lock here, or 0 */
	TimestampTz	flushed_at;		/* end of the last flush, or recovery */
	bool		recovered;
	pg_atomic_uint64 writes;	/* write buffers written to value files */
	uint64		writes_synced;	/* of them; guarded by extend_lock */

	KvImageFiles images[KV_IMAGES];
	uint32		image_number;	/* of the newest image; 0: there is none */
	bool		leftovers;		/* there are files that only older images name */
	uint32		image_log;		/* where the newest image ends; 0: there is none */
	uint64		image_tail;
	uint32		image_generation;	/* its runs are those of this generation */
	uint32		image_map;		/* bounds_since when it was captured */

	pg_atomic_uint32 generation;	/* of the run list; changes under lock */
} KvShard;

typedef enum KvStoreState
{
	KV_STORE_CLOSED,			/* known, not recovered since the start */
	KV_STORE_OPENING,			/* one process recovers it; others wait */
	KV_STORE_OPEN,
	KV_STORE_DROPPED			/* unlinked by the maintainer when unpinned */
} KvStoreState;

/* What is left to be done after a change of the map (durable/mapback.c). */
typedef enum KvMapState
{
	KV_MAP_DONE,				/* nothing: it may be changed */
	KV_MAP_CHANGING,			/* one process changes it, … */
	KV_MAP_SHOWN,				/* … and what it has made counts already */
	KV_MAP_CHANGED,				/* shards lack images captured since */
	KV_MAP_IMAGED				/* what only the map before needs is to go */
} KvMapState;

/*
 * What a store takes and what of that is live: as it was counted, and as writers have told since
 * (space.h).
 */
typedef struct KvSpaceAccount
{
	slock_t		mutex;
	int64		taken;
	int64		live;
	int64		kept;			/* dead, and seen by somebody, when it was counted */
	int64		retired;		/* what has left the lists, and is there still … */
	int64		moving;			/* … what compaction jobs may write … */
	int64		job;			/* … and what is left to both in any case */
	int64		start_slack;	/* granted beside the live bytes before it is compacted … */
	int64		bound_slack;	/* … and before writers wait */
	int64		told_taken;		/* sums of what writers have told, ever */
	uint64		told_dead;
	uint64		wake_at;		/* of the latter two, from which on kvfdw compactor is woken */
	bool		asked;			/* it was, and has not looked since */
	TimestampTz counted;		/* when somebody who found no room last began to count it, or 0 … */
	int64		count_took;		/* … and for how long that went on, in us */
} KvSpaceAccount;

/* Volumes of a class, the first of which is 0. */
typedef struct KvVolumeRange
{
	uint32		begin;
	uint32		end;			/* behind the last */
} KvVolumeRange;

#define KV_HALF_RANGES		4
#define KV_VOLUME_RANGES	(2 * KV_HALF_RANGES)

struct KvStore
{
	KvStoreKey	key;			/* hash key */
	KvStoreShape shape;			/* key_width is constant once it is OPEN */
	pg_atomic_uint32 images_failed;	/* attempts at images on request */
	/* move.c: the tablespace that it is to follow to; 0: none is noted */
	pg_atomic_uint64 move_to;
	/* full xid of who copied its rows from another store; 0: all snapshots see that */
	pg_atomic_uint64 copied_by;

	/* space.h */
	KvSpaceAccount space;
	ConditionVariable space_made;	/* there is room again, or none is made */
	/* so much the compaction jobs that keep its bound may write, until they have ended */
	pg_atomic_uint64 space_moving;
	pg_atomic_uint64 space_besides;	/* likewise those by hand and for order, … */
	pg_atomic_uint64 space_aside;	/* … and that, and what they have emptied, until it is freed */
	pg_atomic_uint64 space_given_up;	/* bytes of files that were to go, and have not for long */
	pg_atomic_uint64 space_freed;	/* bytes of files that went, ever */
	pg_atomic_uint64 space_horizon; /* the last horizon with which it was counted */
	/* changes when a compaction job of it comes on, or a file goes */
	pg_atomic_uint32 space_beat;
	pg_atomic_uint32 space_no_room;	/* no room can be made, so nobody waits for it */
	/* … nor while this is space_beat, which has not changed for long */
	pg_atomic_uint32 space_stalled;
	pg_atomic_uint32 space_waits;	/* KvSpaceWait: why it is not compacted */
	pg_atomic_uint32 space_amp;		/* thousandths, and 1; 0: that of the setting */
	pg_atomic_uint64 freeing;	/* bytes of value files that are released, and not freed yet */
	pg_atomic_uint64 released;	/* bytes of all that were, since it was opened */
	bool		imaged_stale;	/* shards have images that its file "imaged" does not tell of */
	pg_atomic_uint32 state;		/* KvStoreState */
	ConditionVariable opened;
	/*
	 * workers that hold a pointer without a relation lock: once it is dropped the store stays, but
	 * not its write buffers
	 */
	pg_atomic_uint32 pins;

	/* set while OPENING, changed afterwards under map_lock */
	LWLock		map_lock;
	dsa_pointer map;			/* KvMap; look at it through shard/map.c */
	pg_atomic_uint32 map_number;	/* its number … */
	pg_atomic_uint32 nshards;	/* … and how many shards it has */
	pg_atomic_uint32 map_state;	/* KvMapState */
	uint32		split_from;		/* the maintainer looks at shards from here on … */
	TimestampTz split_pause;	/* … and not before that */
	uint32		map_durable;	/* maps up to this number are; the process that makes images */
	/* since it was opened: numbers without a descriptor have no files */
	bool		tidied_once;
	pg_atomic_uint32 shard_ids;	/* no shard has this number or a greater one */
	dsa_pointer directory;		/* KvDirectory: where the descriptors are */
	dsa_pointer blocks;			/* KvShardBlock: what they are allocated in */

	/* set while OPENING, changed afterwards under volume_lock; see shard/volume.c */
	slock_t		volume_lock;
	/* that are free, of each class, in no order */
	KvVolumeRange volumes[KV_VALUE_FILE_CLASSES][KV_VOLUME_RANGES];

	/* set while OPENING, constant afterwards */
	uint32		cache_id;		/* of this opening; never repeats while the server runs, so
								 * caches and descriptors go by it */
	pg_atomic_uint32 next_shard;	/* recovery: the next shard to take */
	pg_atomic_uint32 helpers;	/* recovery helpers at work: each counts itself */
	pg_atomic_uint32 helped_opening;	/* the cache_id that more may join, or 0 */
	pg_atomic_uint64 counters[KV_COUNTERS];

	/* for statistics.c: rows changed by committed transactions, as far as is known */
	pg_atomic_uint64 changes;
	pg_atomic_uint64 changes_analyzed;	/* … when the last ANALYZE began */
	pg_atomic_uint64 changes_needed;	/* … since then for the next; 0: to be looked at */
	pg_atomic_uint32 analyzed;	/* was it, since the server started? */
};

#define kv_stat_add(store, what, n) \
	pg_atomic_fetch_add_u64(&(store)->counters[what], (n))

/* One table: its generations, newest wins if its creator committed. */
typedef struct KvTableEntry
{
	Oid			dboid;			/* hash key, with relid */
	Oid			relid;
	bool		loaded;			/* the directory has been read */
	uint32		oldest;			/* generations; 0: none */
	uint32		newest;
	uint64		birth;			/* top xid that made the first generation, if
								 * the table was created in that transaction */
} KvTableEntry;

#define kv_value_files(shard)	((KvShardValueFile *) kv_address((shard)->value_files))
#define kv_retired(shard)	((KvRetired *) kv_address((shard)->retired))

/* Descriptors by number.  One that has become too small stays for those who look into it. */
typedef struct KvDirectory
{
	dsa_pointer smaller;		/* the one before, or invalid */
	uint32		room;
	uint32		pad;
	dsa_pointer shards[FLEXIBLE_ARRAY_MEMBER];	/* KvShard; invalid: there is no such shard */
} KvDirectory;

/* Descriptors that were allocated together. */
typedef struct KvShardBlock
{
	dsa_pointer next;
	uint64		n;
	KvShard		shards[FLEXIBLE_ARRAY_MEMBER];
} KvShardBlock;

/* The descriptor of a shard that the store's map has, or has had since it was opened. */
static inline KvShard *
kv_shard(const KvStore *store, uint32 shard_id)
{
	return kv_address(((KvDirectory *) kv_address(store->directory))->shards[shard_id]);
}

/* shard/runset.c */

/*
 * Do the values of a shard's largest run lie in the order of keys? Runs do not change: found out
 * once.
 */
typedef enum KvRunOrder
{
	KV_RUN_ORDER_NOT_KNOWN,
	KV_RUN_IN_ORDER,
	KV_RUN_SCATTERED
} KvRunOrder;

typedef struct KvRunSet
{
	uint32		generation;
	KvRunOrder	order;			/* of scan/order.c, which sets it */
	int			nruns;			/* newest first; the last may be the base */
	bool		has_base;
	KvRun	   *runs[KV_MAX_UNFROZEN + 1];
} KvRunSet;

/* A walk through one key's versions in the runs. */
typedef struct KvRunVersions
{
	const KvRunSet *set;
	KvKey		key;
	int			run;			/* index into set->runs */
	bool		taken;			/* the cursor stands at a version that was returned */
	KvRunCursor cursor;
} KvRunVersions;

/* ---- map.c ---- */

/* What a map says of a key. */
typedef struct KvRoute
{
	uint32		shard_id;
	uint32		map_number;
} KvRoute;

/* The shard whose range has the key.  The store is open; no lock of a shard is held. */
extern KvRoute kv_route(const KvStore *store, KvKey key);
/*
 * The shard where one begins who goes through keys: upwards from start on, downwards from
 * the last one before it; data NULL: from the lowest, or the highest.  *edge: where its
 * range ends in that direction, the next shard's first key upwards and its own downwards;
 * data NULL: there is no shard behind it.  The bytes are put into edge_bytes.
 */
extern KvRoute kv_route_part(const KvStore *store, KvKey start, bool backward, KvKey *edge,
							 uint8 edge_bytes[KV_MAX_KEY]);

/* Does a route hold?  The shard's lock is held. */
static inline bool
kv_route_holds(const KvShard *shard, KvRoute route)
{
	return shard->bounds_since <= route.map_number;
}

/* Likewise for who needs no more than a good guess. */
static inline uint32
kv_shard_for(const KvStore *store, const uint8 *key, int keylen)
{
	return kv_route(store, (KvKey) {key, keylen}).shard_id;
}

/*
 * registry.c: who waits for a compaction of the shard has it hurry, and says so each second at
 * least.
 */
extern void kv_shard_await(KvShard *shard);
extern bool kv_shard_is_awaited(const KvShard *shard);
extern uint32 kv_shard_first(const KvStore *store);	/* that of the lowest keys */
extern uint32 kv_shard_last(const KvStore *store);	/* that of the highest */
/*
 * The shard at a position, the first being 0, and its first key, palloc'd; bound may be
 * NULL.  False: there are not so many.
 */
extern bool kv_shard_at(const KvStore *store, uint32 position, uint32 *shard_id, KvKey *bound);
/*
 * The range of a shard, palloc'd; hi->data NULL: it has no end.  *map_number: of the map that
 * says so.  False: the map does not have it any more.
 */
extern bool kv_shard_range(const KvStore *store, uint32 shard_id, KvKey *lo, KvKey *hi,
						   uint32 *map_number);

/* In the order of keys, behind the last comes the first; direction is 1 or -1. */
static inline uint32
kv_shard_next(const KvStore *store, uint32 shard_id, int direction)
{
	const KvShard *shard = kv_shard(store, shard_id);

	return direction > 0 ? shard->next : shard->previous;
}

/* How many steps one shard is behind another, if that is not negative. */
static inline int64
kv_shard_distance(const KvStore *store, uint32 from, uint32 to)
{
	return (int64) kv_shard(store, to)->position - kv_shard(store, from)->position;
}

static inline uint32
kv_store_nshards(KvStore *store)
{
	return pg_atomic_read_u32(&store->nshards);
}

/* The least number from one on that a shard in the map has, or KV_NO_SHARD. */
extern uint32 kv_shard_from(KvStore *store, uint32 shard_id);

/*
 * Every shard in the map, by number, and behind the last those whose bounds have changed meanwhile:
 * so
 * all keys are met, and some perhaps twice.  No lock of a shard is held between two of them.
 */
#define kv_each_shard(store, shard_id) \
	for (uint32 each_##shard_id[2] = {0, 0}, \
		 shard_id = kv_each_next(store, each_##shard_id, KV_NO_SHARD); \
		 shard_id != KV_NO_SHARD; shard_id = kv_each_next(store, each_##shard_id, shard_id))
/*
 * The shard after this one, or KV_NO_SHARD; of KV_NO_SHARD the first. each: {0, 0}, and kept from
 * one to the next.
 */
extern uint32 kv_each_next(KvStore *store, uint32 each[2], uint32 shard_id);

/* Every shard of which there is a descriptor, in the map or not. */
#define kv_each_descriptor(store, shard_id) \
	for (uint32 shard_id = kv_descriptor_from(store, 0); shard_id != KV_NO_SHARD; \
		 shard_id = kv_descriptor_from(store, shard_id + 1))
/* Is there one with this number? */
extern bool kv_has_descriptor(KvStore *store, uint32 shard_id);
/* The least number from one on that has a descriptor, or KV_NO_SHARD. */
extern uint32 kv_descriptor_from(KvStore *store, uint32 shard_id);

extern KvMap *kv_map_present(KvStore *store);	/* palloc'd */
/*
 * Get shared memory for a map that is to come, and descriptors for the shards that it adds,
 * which are in no map yet and all zero.  False: there is none.  What kv_map_publish does not
 * take kv_map_give_up frees; the descriptors stay for who makes shards of these numbers.
 */
extern bool kv_map_prepare(KvStore *store, const KvMap *map, dsa_pointer *room);
extern void kv_map_give_up(dsa_pointer room);
/*
 * The map counts from now on, instead of the one before it.  changed: the n shards in that,
 * by number, whose bounds are others, or which it does not have.  What it adds is complete.
 */
extern void kv_map_publish(KvStore *store, const KvMap *map, dsa_pointer room,
						   const uint32 *changed, int n);
/*
 * A store is being opened: make room for this map and descriptors of its shards, all zero but
 * for what the map says.  False, and nothing is changed: there is no shared memory.
 */
extern bool kv_map_begin(KvStore *store, const KvMap *map);
/* Nobody uses the store any more: free all of that. */
extern void kv_map_free(KvStore *store);
extern Size kv_map_memory(const KvMap *map);	/* what kv_map_begin needs */
extern void kv_map_set_state(KvStore *store, KvMapState state);
extern bool kv_map_is_done(const KvStore *store);
/*
 * May files go that no shard in the map needs? Else images of shards that have left it may list
 * them.
 */
extern bool kv_map_lets_go(const KvStore *store);
extern bool kv_map_claim(KvStore *store);	/* SETTLED to CHANGING; false: it is not resolved */

/* ---- runset.c ---- */
/* Fills in what the run of this number is to say of itself. */
extern void kv_store_ids(const KvStore *store, uint32 shard, uint32 number, KvRunIds *ids);
/*
 * The shard's runs, mapped; good until the next call for any shard.  Once the shard's lock
 * is taken, look whether the generation is still that of the set.
 */
extern const KvRunSet *kv_shard_runs(KvStore *store, uint32 shard_id);
/* Likewise, with the shard's lock taken, shared: memtables and runs belong together. */
extern const KvRunSet *kv_shard_view(KvStore *store, uint32 shard_id);
/* Likewise of the shard that has the key, as the newest map says while the lock is held. */
extern const KvRunSet *kv_key_view(KvStore *store, KvKey key, KvShard **shard);
/* Walk the versions of key in the runs, newest first, each with the incarnation of its run. */
extern void kv_run_versions_begin(KvRunVersions *walk, const KvRunSet *set, KvKey key);
extern bool kv_run_versions_next(KvRunVersions *walk, KvVersion *version,
								 uint32 *incarnation);
/* The version of a key in the runs, or in a memtable's chain (shard's lock), that is seen. */
extern bool kv_runset_find(const KvRunSet *set, KvKey key, const KvView *view,
						   KvVersion *version);
/* Likewise in the runs of several keys, up to KV_FOUND_TOGETHER (base/key.h). */
extern void kv_runset_find_all(const KvRunSet *set, const KvKey *keys, int n, const KvView *view,
							   KvVersion **versions, bool *found);
extern bool kv_chain_visible(dsa_pointer newest, const KvView *view, KvVersion *version);
/* Forget the cached run sets of a store, or of all stores if it is NULL. */
extern void kv_runset_forget(const KvStore *store);

/*
 * ---- valuefiles.c ----
 *
 * A value file is made OPEN (buffer/largevalue.c) and takes write buffers and large values until
 * one does not fit;
 * then it is CLOSED, and another is made.  At most one is open; a shard that has none gets
 * one with its next value.  Recovery lists a value file when it meets an entry that names it.
 * The shard's lock is held, but where it says otherwise.
 */
/*
 * Of n items, each of which begins with a place and that are in their order: the first from this
 * one on, or n.
 */
extern int	kv_first_from(const void *items, Size size, int n, KvAddress address);
/* The value file with this address; NULL: it is not in the list. */
extern KvShardValueFile *kv_value_file_find(const KvShard *shard, KvAddress address);
/*
 * Move a list of *n items to one with room for so many.  False: there is no memory.  The
 * caller is who grows this list of the shard; its lock, which is taken, is not held.
 */
extern bool kv_shard_list_grow(KvShard *shard, dsa_pointer *list, Size item, const int *n,
							   int *room, int wanted);
/*
 * Have room for n more; false: there is no memory.  extend_lock is held exclusively, or
 * nobody else knows the shard; its lock is not.
 */
extern bool kv_value_files_make_room(KvShard *shard, int n);
/* Exclusively; there is room.  The value file is not in the list, and will be closed. */
extern KvShardValueFile *kv_value_file_add(KvShard *shard, const KvValueFile *value_file);
/* Exclusively: other shards list it, too, and so many of its bytes count as this shard's. */
extern void kv_value_file_divide(KvShard *shard, KvShardValueFile *value_file, uint64 share);
/* Exclusively: so many bytes more of it are taken, or fewer; they are this shard's. */
extern void kv_value_file_grown(KvShard *shard, KvShardValueFile *value_file, int64 bytes);
/* Exclusively: it takes new values from now on, allocated being its file's size. */
extern void kv_value_file_open(KvShard *shard, KvShardValueFile *value_file, uint64 allocated);
/* Exclusively: if one is open, it is closed.  No write buffer is open. */
extern void kv_value_file_close(KvShard *shard);
/* Exclusively: so many bytes of the open value file are taken, or given back. */
extern void kv_tail_move(KvStore *store, KvShard *shard, int64 bytes);
/*
 * The class of the value file to be made next, if it is to hold a value of so many bytes: not
 * less than a 24th of the shard or four times the value.  It only rises, for each change
 * takes a volume, of which there are not too many; so of the value files that a shard has made
 * the last has the highest address.
 */
extern int	kv_value_file_next_class(const KvShard *shard, Size len);
/*
 * In recovery, no lock held: the list is what the manifest says.  durable: so is what
 * value files have.  False: there is no memory.
 */
extern bool kv_value_files_load(KvShard *shard, const KvManifest *manifest, bool durable);
/*
 * In recovery, no lock held: of the value files in the list as much is used as another list says.
 */
extern void kv_value_files_use(KvShard *shard, const KvManifest *other);
/* The manifest of the shard as it is now; its list is palloc'd. */
extern void kv_shard_describe(const KvShard *shard, KvManifest *manifest);
extern void kv_value_files_free(KvShard *shard); /* nobody uses the shard any more */

/* ---- move.c; kv_store_follow and others are in engine.h ---- */
/* COMMIT: the store is to follow to this tablespace.  Neither raises nor allocates. */
extern void kv_move_want(const KvStoreKey *key, Oid tablespace);
/* Have it follow, if that is noted; false: it is not.  ERROR: it cannot, and is noted still. */
extern bool kv_move_begin(KvStore *store);
/* The MOVE record that ends there. */
extern void kv_move_redo(KvStore *store, Oid tablespace, uint64 lsn);
/*
 * The maintainer: remove the directory that the store with this id has in a tablespace, if it is
 * empty and value files are not made in it any more, and do not name it any more.
 */
extern void kv_space_leave(const KvStoreKey *key, uint64 id, Oid tablespace);
/*
 * Do not name tablespaces any more where the store has no directory; nothing, if it misses a value
 * file that a shard lists, for that may lie there, where a link or a file system was forgotten.
 */
extern void kv_spaces_tidy(KvStore *store);

/* ---- volume.c ---- */
extern void kv_volume_gucs(void);	/* at start: settings of tests */
/* In recovery: those are free that no file found is of. */
extern void kv_volumes_find(KvStore *store, const KvFound *found);
extern void kv_volume_note(KvStore *store, KvAddress address);	/* its volume is not */
/*
 * A volume that no other shard has, nor gets before the store is opened again; in redo, that no
 * record
 * which is still to be replayed names, either. Of the class, or if that has none, of a larger one.
 * 0: there is none.
 */
extern uint32 kv_volume_take(KvStore *store, int class);

/* Is the value file the shard's open one?  One of an older library, which never is, may be at 0. */
static inline bool
kv_value_file_is_open(const KvShard *shard, const KvShardValueFile *value_file)
{
	return shard->open_address != 0 && value_file->value_file.address == shard->open_address;
}

/* Is it about to leave the map, or has it left it?  Then nothing is written to it.  Lock held. */
static inline bool
kv_shard_is_leaving(const KvShard *shard)
{
	return shard->halted || shard->bounds_since == KV_NOT_IN_MAP;
}

/* Where a value file of the shard is not taken any more.  Lock held. */
static inline KvAddress
kv_value_file_end(const KvShard *shard, const KvShardValueFile *value_file)
{
	return kv_value_file_is_open(shard, value_file) ? shard->value_tail :
		value_file->value_file.address + value_file->value_file.used;
}

/* Likewise how many bytes, each of them counted by one shard. */
static inline uint64
kv_value_file_taken(const KvShard *shard, const KvShardValueFile *value_file)
{
	uint64		used = kv_value_file_end(shard, value_file) - value_file->value_file.address;

	return (value_file->value_file.flags & KV_VALUE_FILE_SHARED) ? Min(value_file->share, used)
		: used;
}

/* Bytes of its value files that are taken.  Without the lock: about so. */
static inline uint64
kv_shard_value_bytes(const KvShard *shard)
{
	return shard->value_bytes;
}

/* Exclusively: entries of this key log may name the address, which may be of no value file. */
extern void kv_value_file_note_log(KvShard *shard, KvAddress address, uint32 log_number);
/* ---- dying.c: the shard's lock is held, exclusively but for kv_dying_kept ---- */

/* horizon: one that was seen, not long ago. */
extern void kv_dying_add(KvDying *dying, uint64 bytes, uint64 xid, uint64 horizon);
extern void kv_dying_counted(KvDying *dying, uint64 sum);	/* all up to here was counted */
/* so much somebody may still see */
extern uint64 kv_dying_kept(const KvDying *dying, uint64 horizon);

/* Exclusively: a value that lies in the value files is replaced or deleted, by this transaction. */
extern void kv_value_file_note_dead(KvStore *store, KvShard *shard, const KvVersion *version,
									uint64 xid);
/*
 * Exclusively: redo has written this version, and nobody has looked what it replaces.  So
 * much of the shard is to be counted.
 */
extern void kv_shard_note_redone(KvShard *shard, const KvVersion *version);
/* About how many bytes of the value file something names; not more than are used.  Lock held. */
extern uint64 kv_value_file_live(const KvShard *shard, const KvShardValueFile *value_file);
/*
 * May the value file be emptied (I 15)? It is closed, no transaction that has reserved a large
 * value
 * in it runs, and all entries that name it are in runs.  horizon: kv_xid_horizon().  Once
 * true it stays so.  Who empties value files sets KV_VALUE_FILE_INPUT, under the exclusive lock, on
 * those for which this is true, and takes it away from those that are not empty in the end.
 * Lock held.
 */
extern bool kv_value_file_may_be_input(const KvShard *shard, const KvShardValueFile *value_file,
									   uint64 horizon);

/* ---- files.c ---- */
/* The numbers of the runs, at most KV_MAX_UNFROZEN + 1, newest first.  Returns how many. */
extern int	kv_files_runs(const KvShardFiles *files, uint32 *runs);
extern bool kv_files_name_run(const KvShardFiles *files, uint32 number);
/* Takes the shard's lock: unlink a run or a log, unless somebody needs it. */
extern void kv_file_release(KvStore *store, uint32 shard_id, KvFileKind kind, uint32 number);
/* The same for all that is found of a shard. */
extern void kv_files_release(KvStore *store, uint32 shard_id, const KvFoundFile *files, int n);

/* ---- gone.c ---- */
/*
 * Unmap runs and close value files that have gone, if there may be any.  At the end of a
 * transaction, and where a worker begins again: nobody uses a run set or a file.  Never raises.
 */
extern void kv_files_let_go(void);

/* ---- backup.c ---- */
#define KV_MAX_BACKUPS		16

typedef struct KvBackups
{
	slock_t		mutex;			/* of pids */
	/* KV_BACKUPS_RUN: they do, or did at the last look; and its number */
	pg_atomic_uint32 run;
	int			pids[KV_MAX_BACKUPS];	/* sessions with pg_backup_start, or 0 */
} KvBackups;

extern KvBackups *kv_backups;
extern void kv_backups_init(void);	/* when its memory is made */
extern void kv_backups_look(void);	/* whether any run, before files of an older image go */
extern bool kv_backups_run(void);	/* must the files of older images stay? */

/* ---- registry.c ---- */
typedef struct KvRegistry
{
	LWLock		lock;			/* of the two hash tables */
	pg_atomic_uint32 cache_ids;	/* the last KvStore.cache_id given */
	pg_atomic_uint32 drop_counter;	/* names for what is renamed out of sight */
	pg_atomic_uint32 images_wanted;	/* some shard has image_wanted */
	pg_atomic_uint32 retired;	/* value files, of all shards */
	pg_atomic_uint64 freeing;	/* KvStore.freeing, of all stores */
	pg_atomic_uint32 maps_unfinished; /* maps, of all stores */
	pg_atomic_uint64 checkpoint;	/* the redo pointer of the last that was completed, of late */
} KvRegistry;

extern KvRegistry *kv_registry;
extern void kv_registry_init(void);	/* when its memory is made: fills in KvRegistry */
extern Size kv_registry_memory(void);	/* bytes of the hash tables, to be asked for */
extern void kv_registry_attach(void);	/* in the shmem startup hook: makes or finds them */
extern void kv_registry_gucs(void);	/* at load: defines its settings */
extern HTAB *kv_store_hash;
extern HTAB *kv_table_hash;
/* In whatever state; NULL: not known.  The caller has the registry's lock, except in redo. */
extern KvStore *kv_store_find(Oid dboid, Oid relid, uint32 generation);
/* NULL: dropped, or not loaded; takes the lock */
extern KvStore *kv_store_live(const KvStoreKey *key);
extern bool kv_store_is_known(const KvStoreKey *key);	/* in whatever state; takes the lock */
/*
 * The stores of a database, or of all (InvalidOid), that are in this state, each with a
 * pin; palloc'd, for kv_stores_unpin.  Takes the registry's lock.  The state may change as
 * soon as it returns.
 */
extern List *kv_stores_pin_state(Oid dboid, KvStoreState state);
extern void kv_stores_unpin(List *stores);	/* gives back the pins, and frees the list */
/*
 * Gives back the pins of those that were dropped since, but for one, and puts NULL in their place:
 * so their write buffers come back.
 */
extern void kv_stores_unpin_dropped(List *stores, const KvStore *but);

#endif							/* KV_SHARD_H */
