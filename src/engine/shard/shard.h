/*
 * shard.h
 *		Stores and shards in shared memory, and a reader's view of the runs of a shard.
 *
 * Locks: KvShard.lock guards the shard's two memtables, its run list, its write buffers, its log
 * position and the list of its value files.  No process holds it across a system call that touches
 * a device (I 7).  A write may need such a call: for value space, a free write buffer, or memory in
 * the memtable.  It then releases the lock, makes the call, and starts again from the lookup.
 * KvRegistry.lock guards the hash tables.  A pin keeps a store in shared memory, not its table.
 *
 * Routes: The map of a store says which shard has which keys.  A map is immutable and has a number;
 * a change of bounds replaces the map under KvStore.map.lock.  A route is the answer of a map for a
 * key.  Each process uses its own copy of the map, so a route may be outdated at once.  To read or
 * write a key, a process therefore takes the shard's lock, and then checks that the route still
 * holds.  The descriptor of a shard keeps its address until the store is dropped.  No route to a
 * shard holds once the shard has left the map.
 *
 * Runs: kv_shard_runs maps files, so the caller holds no lock.  It raises ERROR for a damaged run.
 * A run set belongs to one process, and is valid while the shard has the same generation.
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

#include "engine/base/shared.h"
#include "engine/base/types.h"
#include "engine/format/format.h"
#include "engine/index/memtable.h"
#include "engine/index/run.h"
#include "engine/maintenance.h"
#include "engine/shard/parts.h"
#include "engine/xact/xact.h"

/* ---- shards ---- */

/* A value file of a shard that is in use. */
typedef struct KvShardValueFile
{
	KvValueFile	value_file;		/* .used: of the open one see KvShard.values.tail */
	uint64		newest_writer;	/* newest full xid that reserved a large value in it; 0: none */
	uint64		trusted;		/* after a power loss: how many of its bytes are verified */
	uint64		counted;		/* bytes that were taken when value_file.live was counted */
	/* dead bytes at that count, for use once live is not known any more */
	uint64		dead_then;
	/* bytes seen replaced or deleted since value_file.live was counted */
	uint64		dead_since;
	/* of a SHARED one: this many of its bytes count as this shard's */
	uint64		share;
} KvShardValueFile;

/* A value file that has left the list while its file is still needed (retired.c). */
typedef struct KvRetired
{
	KvValueFile	value_file;		/* the entry that the list had */
	uint32		until_mark;		/* number of the first mark that does not need it */
	uint64		lsn;			/* where the WAL ended when it left the list */
	uint64		taken;			/* this many of its bytes count as this shard's */
} KvRetired;

/* A shard aims at this many full value files; see kv_value_file_next_class. */
#define KV_VALUE_FILES_WANTED	24

/* The phase of a compaction job (compact/compact.h). */
typedef enum KvJobPhase
{
	KV_JOB_NONE,
	KV_JOB_CHOOSE,
	KV_JOB_MOVE,
	KV_JOB_SWITCH,
	KV_JOB_KEEP
} KvJobPhase;

typedef struct KvShard
{
	LWLock		lock;
	/* held by the process that adds value files or grows the open one */
	LWLock		extend_lock;
	LWLock		commit_lock;	/* wal level 'keys': the order of WAL records (buffer/commit.c) */
	ConditionVariable changed;	/* signaled when maintenance ended or a write buffer was written */
	KvMapPlace	place;
	pg_atomic_uint32 generation;	/* of the run list; changes under lock */

	/* guarded by lock */
	KvMemtable	active;			/* new versions go here */
	KvMemtable	immutable;		/* being flushed: read-only except for statuses */
	dsa_pointer dead;			/* ranges of dead keys (dead.h), or invalid */
	KvShardFiles files;
	bool		recovered;
	uint64		key_share_xid;	/* newest xid that may have a KEY SHARE lock here, or 0 */

	/* parts.h says who owns each of these, and which lock guards it */
	KvShardBuffers buffers;

	/* the parts from here on are cleared when the descriptor gets another shard */
	KvLogEnds	log;
	KvValueList values;
	KvCountState count;
	KvRetiredList retired;
	KvFlushState flush;
	KvCompactState compact;
	KvSplitState split;
	KvRoles		roles;
	KvDurableState durable;
} KvShard;

/* The next shard of a descriptor inherits what is before this. */
#define KV_SHARD_CLEARED	offsetof(KvShard, log)

typedef enum KvStoreState
{
	KV_STORE_CLOSED,			/* known, not yet recovered since the server start */
	KV_STORE_OPENING,			/* one process recovers it, others wait */
	KV_STORE_OPEN,
	KV_STORE_DROPPED			/* the maintainer unlinks it when it has no pins */
} KvStoreState;

/* The state of a change of the map (durable/mapback.c). */
typedef enum KvMapState
{
	KV_MAP_DONE,				/* complete: the map may be changed */
	KV_MAP_CHANGING,			/* one process is changing it */
	KV_MAP_SHOWN,				/* the changed map is in use already */
	KV_MAP_CHANGED,				/* some shards have no mark captured since */
	KV_MAP_MARKED				/* files that only the previous map needs are to be removed */
} KvMapState;

struct KvStore
{
	KvStoreKey	key;			/* hash key */
	KvStoreShape shape;			/* key_width is constant once the store is OPEN */
	/* the tablespace that the store is to follow to (move.c); 0: none is noted */
	pg_atomic_uint64 move_to;
	/* full xid of the transaction that copied its rows from another store; 0: visible to all */
	pg_atomic_uint64 copied_by;
	pg_atomic_uint32 state;		/* KvStoreState */
	/*
	 * Workers that hold a pointer without a relation lock.  Pins keep a dropped store in memory,
	 * but not its write buffers.
	 */
	pg_atomic_uint32 pins;
	/*
	 * Unique for each opening while the server runs: the key of caches and descriptors.  Set while
	 * OPENING, constant later.
	 */
	uint32		cache_id;

	/* parts.h says who owns each of these, and which lock guards it */
	KvSpaceAccount account;
	KvSpaceState space;
	KvStoreMap	map;
	KvSplitLook split;
	KvVersionLog versions;
	KvVolumes	volumes;
	KvOpening	opening;
	KvChangeCounts statistics;

	pg_atomic_uint64 counters[KV_COUNTERS];
};

#define kv_stat_add(store, what, n) \
	pg_atomic_fetch_add_u64(&(store)->counters[what], (n))

/* One table and its generations.  The newest generation counts if its creator has committed. */
typedef struct KvTableEntry
{
	Oid			dboid;			/* hash key, together with relid */
	Oid			relid;
	bool		loaded;			/* the directory has been read */
	uint32		oldest;			/* generations; 0: none */
	uint32		newest;
	uint64		birth;	/* top xid that made the first generation, if it created the table */
} KvTableEntry;

#define kv_value_files(shard)	((KvShardValueFile *) kv_address((shard)->values.files))
#define kv_retired(shard)	((KvRetired *) kv_address((shard)->retired.files))

/*
 * Descriptors by shard id.  A replaced directory stays allocated for processes that still read it.
 */
typedef struct KvDirectory
{
	dsa_pointer smaller;		/* the directory that this one replaced, or invalid */
	uint32		room;
	uint32		pad;
	dsa_pointer shards[FLEXIBLE_ARRAY_MEMBER];	/* KvShard; invalid: there is no such shard */
} KvDirectory;

/* A block of descriptors that were allocated together. */
typedef struct KvShardBlock
{
	dsa_pointer next;
	uint64		n;
	KvShard		shards[FLEXIBLE_ARRAY_MEMBER];
} KvShardBlock;

/* The descriptor of a shard that the store's map has, or has had since the store was opened. */
static inline KvShard *
kv_shard(const KvStore *store, uint32 shard_id)
{
	return kv_address(((KvDirectory *) kv_address(store->map.directory))->shards[shard_id]);
}

/* shard/runset.c */

/*
 * Are the values of a shard's largest run stored in key order?  Runs do not change, so a process
 * determines this once.
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
	KvRunOrder	order;			/* of the largest run; scan/estimate.c sets it */
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
	bool		taken;			/* the cursor is at a version that was returned */
	KvRunCursor cursor;
} KvRunVersions;

/* ---- map.c ---- */

/* The answer of a map for a key. */
typedef struct KvRoute
{
	uint32		shard_id;
	uint32		map_number;
} KvRoute;

/* The shard whose range has the key.  The store is open; the caller holds no shard lock. */
extern KvRoute kv_route(const KvStore *store, KvKey key);
/*
 * The shard where a scan of keys begins: upwards from start, downwards from the last key before
 * start.  With data NULL the scan begins at the lowest key, or at the highest.  *edge is the end of
 * the shard's range in that direction: upwards the next shard's first key, downwards the shard's
 * own first key.  With data NULL no shard follows.  The bytes are stored in edge_bytes.
 */
extern KvRoute kv_route_part(const KvStore *store, KvKey start, bool backward, KvKey *edge,
							 uint8 edge_bytes[KV_MAX_KEY]);

/* Does the route still hold?  The caller holds the shard's lock. */
static inline bool
kv_route_holds(const KvShard *shard, KvRoute route)
{
	return shard->place.bounds_since <= route.map_number;
}

/* The shard that probably has the key, for callers to whom a wrong answer does no harm. */
static inline uint32
kv_shard_for(const KvStore *store, const uint8 *key, int keylen)
{
	return kv_route(store, (KvKey) {key, keylen}).shard_id;
}

/*
 * registry.c: A process that waits for a compaction of the shard makes the compaction hurry.  It
 * calls kv_shard_await at least once a second.
 */
extern void kv_shard_await(KvShard *shard);
extern bool kv_shard_is_awaited(const KvShard *shard);
extern uint32 kv_shard_first(const KvStore *store);	/* shard with the lowest keys */
/*
 * The shard at a position, counted from 0, and its first key, palloc'd.  bound may be NULL.  False:
 * the map has no such position.
 */
extern bool kv_shard_at(const KvStore *store, uint32 position, uint32 *shard_id, KvKey *bound);
/*
 * The range of a shard, palloc'd, and the number of the map that has it.  hi->data is NULL if the
 * range has no end.  False: the map does not have the shard.
 */
extern bool kv_shard_range(const KvStore *store, uint32 shard_id, KvKey *lo, KvKey *hi,
						   uint32 *map_number);

/* The neighbor in key order; the last shard is followed by the first.  direction is 1 or -1. */
static inline uint32
kv_shard_next(const KvStore *store, uint32 shard_id, int direction)
{
	const KvShard *shard = kv_shard(store, shard_id);

	return direction > 0 ? shard->place.next : shard->place.previous;
}

/* The number of steps from one shard to another that follows it; negative if it does not. */
static inline int64
kv_shard_distance(const KvStore *store, uint32 from, uint32 to)
{
	return (int64) kv_shard(store, to)->place.position - kv_shard(store, from)->place.position;
}

static inline uint32
kv_store_nshards(KvStore *store)
{
	return pg_atomic_read_u32(&store->map.nshards);
}

/* The least shard id, not less than the argument, of a shard in the map, or KV_NO_SHARD. */
extern uint32 kv_shard_from(KvStore *store, uint32 shard_id);

/*
 * Every shard in the map, by shard id, followed by those whose bounds have changed during the loop.
 * So the loop meets all keys, some perhaps twice.  It holds no shard lock between two shards.
 */
#define kv_each_shard(store, shard_id) \
	for (uint32 each_##shard_id[2] = {0, 0}, \
		 shard_id = kv_each_next(store, each_##shard_id, KV_NO_SHARD); \
		 shard_id != KV_NO_SHARD; shard_id = kv_each_next(store, each_##shard_id, shard_id))
/*
 * The shard after this one, or KV_NO_SHARD; for KV_NO_SHARD the first.  The caller keeps each,
 * which begins as {0, 0}, from one call to the next.
 */
extern uint32 kv_each_next(KvStore *store, uint32 each[2], uint32 shard_id);

/* Every shard that has a descriptor, in the map or not. */
#define kv_each_descriptor(store, shard_id) \
	for (uint32 shard_id = kv_descriptor_from(store, 0); shard_id != KV_NO_SHARD; \
		 shard_id = kv_descriptor_from(store, shard_id + 1))
/* Does a shard with this id have a descriptor? */
extern bool kv_has_descriptor(KvStore *store, uint32 shard_id);
/* The least shard id, not less than the argument, that has a descriptor, or KV_NO_SHARD. */
extern uint32 kv_descriptor_from(KvStore *store, uint32 shard_id);

extern KvMap *kv_map_present(KvStore *store);	/* palloc'd */
/*
 * Allocates shared memory for a new map, and descriptors for the shards that the map adds; these
 * are in no map yet, and all zero.  False: there is no memory.  The caller passes the memory to
 * kv_map_publish, or frees it with kv_map_give_up.  The descriptors stay for later shards with
 * these ids.
 */
extern bool kv_map_prepare(KvStore *store, const KvMap *map, dsa_pointer *room);
extern void kv_map_give_up(dsa_pointer room);
/*
 * Replaces the map in use.  changed lists, by shard id, the n shards whose bounds differ in the new
 * map or which it does not have.  The shards that the new map adds are complete.
 */
extern void kv_map_publish(KvStore *store, const KvMap *map, dsa_pointer room,
						   const uint32 *changed, int n);
/*
 * While the store is being opened: allocates memory for this map and descriptors of its shards, all
 * zero except for what the map says.  False: there is no shared memory, and nothing is changed.
 */
extern bool kv_map_begin(KvStore *store, const KvMap *map);
/* Frees the map and the descriptors.  No process uses the store any more. */
extern void kv_map_free(KvStore *store);
extern Size kv_map_memory(const KvMap *map);	/* bytes that kv_map_begin needs */
extern void kv_map_set_state(KvStore *store, KvMapState state);
extern bool kv_map_is_done(const KvStore *store);
/*
 * May files be removed that no shard in the map needs?  Not while marks of shards that have left
 * the map may list them.
 */
extern bool kv_map_lets_go(const KvStore *store);
extern bool kv_map_claim(KvStore *store);	/* from DONE to CHANGING; false: it is not DONE */

/* ---- runset.c ---- */
/* Fills in the identity that the header of this run must have. */
extern void kv_store_ids(const KvStore *store, uint32 shard, uint32 number, KvRunIds *ids);
/*
 * The shard's runs, mapped; valid until the next call for any shard.  After taking the shard's lock
 * the caller checks that the shard still has the generation of the set.
 */
extern const KvRunSet *kv_shard_runs(KvStore *store, uint32 shard_id);
/* The shard's runs, with its lock taken in shared mode: memtables and runs belong together. */
extern const KvRunSet *kv_shard_view(KvStore *store, uint32 shard_id);
/* The runs of the shard that has the key in the newest map, with its lock taken in shared mode. */
extern const KvRunSet *kv_key_view(KvStore *store, KvKey key, KvShard **shard);
/*
 * Walks through the versions of key in the runs, newest first, with the incarnation of their run.
 */
extern void kv_run_versions_begin(KvRunVersions *walk, const KvRunSet *set, KvKey key);
extern bool kv_run_versions_next(KvRunVersions *walk, KvVersion *version,
								 uint32 *incarnation);
/* Finds the visible version of a key in the runs. */
extern bool kv_runset_find(const KvRunSet *set, KvKey key, const KvView *view,
						   KvVersion *version);
/* Finds the visible versions of up to KV_FOUND_TOGETHER keys in the runs (base/key.h). */
extern void kv_runset_find_all(const KvRunSet *set, const KvKey *keys, int n, const KvView *view,
							   KvVersion **versions, bool *found);
extern bool kv_chain_visible(dsa_pointer newest, const KvView *view, KvVersion *version);
/* Forgets the cached run sets of a store; NULL: of all stores. */
extern void kv_runset_forget(const KvStore *store);

/*
 * ---- valuefiles.c ----
 *
 * A value file is created OPEN (buffer/largevalue.c) and takes write buffers and large values until
 * one does not fit.  Then it is CLOSED, and the next one is created.  A shard has at most one open
 * value file; if it has none, it gets one with its next value.  Recovery adds a value file to the
 * list when it meets an entry that names it.  The caller holds the shard's lock, in exclusive mode
 * where a comment begins with "Exclusively", unless the comment says otherwise.
 */
/*
 * Of n items that begin with an address and are sorted by it: the index of the first one that has
 * this address or a greater one, or n.
 */
extern int	kv_first_from(const void *items, Size size, int n, KvAddress address);
/* The value file with this address; NULL: the list does not have it. */
extern KvShardValueFile *kv_value_file_find(const KvShard *shard, KvAddress address);
/*
 * Moves a list of *n items to one with capacity for wanted items.  False: there is no memory.  The
 * caller is the one process that may grow this list.  It does not hold the shard's lock, which this
 * function takes.
 */
extern bool kv_shard_list_grow(KvShard *shard, dsa_pointer *list, Size item, const int *n,
							   int *room, int wanted);
/*
 * Makes capacity for n more.  False: there is no memory.  The caller holds extend_lock exclusively,
 * or is the only process that knows the shard; it does not hold the shard's lock.
 */
extern bool kv_value_files_make_room(KvShard *shard, int n);
/*
 * Exclusively: adds a closed value file that the list does not have.  The list has capacity for it.
 */
extern KvShardValueFile *kv_value_file_add(KvShard *shard, const KvValueFile *value_file);
/* Exclusively: other shards list the value file, too; share bytes of it count as this shard's. */
extern void kv_value_file_divide(KvShard *shard, KvShardValueFile *value_file, uint64 share);
/* Exclusively: adds (or subtracts) bytes that are taken in the value file and are this shard's. */
extern void kv_value_file_grown(KvShard *shard, KvShardValueFile *value_file, int64 bytes);
/* Exclusively: makes the value file the open one; allocated is the size of its file. */
extern void kv_value_file_open(KvShard *shard, KvShardValueFile *value_file, uint64 allocated);
/* Exclusively: closes the open value file, if there is one.  No write buffer is open. */
extern void kv_value_file_close(KvShard *shard);
/* Exclusively: takes bytes of the open value file, or gives them back if negative. */
extern void kv_tail_move(KvStore *store, KvShard *shard, int64 bytes);
/*
 * The class of the next value file, if it is to hold a value of len bytes: its size is at least a
 * 24th of the shard and four times the value.  The class only rises, since each change takes a
 * volume, and volumes are few.  So the last value file that a shard has created has its highest
 * address.
 */
extern int	kv_value_file_next_class(const KvShard *shard, Size len);
/*
 * In recovery, without a lock: fills the list from an edit.  durable: the contents of the
 * value files are durable, too.  False: there is no memory.
 */
extern bool kv_value_files_load(KvShard *shard, const KvFileList *listed, bool durable);
/*
 * In recovery, without a lock: raises the used bytes of listed value files to those of another
 * list.
 */
extern void kv_value_files_use(KvShard *shard, const KvFileList *other);
/* Describes the shard's present state, as for an edit; the list is palloc'd. */
extern void kv_shard_describe(const KvShard *shard, KvFileList *listed);
extern void kv_value_files_free(KvShard *shard); /* no process uses the shard any more */

/* ---- move.c; kv_store_follow and others are in engine/store.h ---- */
/* COMMIT: notes that the store is to follow to this tablespace.  Neither raises nor allocates. */
extern void kv_move_want(const KvStoreKey *key, Oid tablespace);
/* Makes the store follow, if that is noted; false: it is not.  On ERROR it stays noted. */
extern bool kv_move_begin(KvStore *store);
/* Replays the MOVE record that ends at lsn. */
extern void kv_move_redo(KvStore *store, Oid tablespace, uint64 lsn);
/*
 * The maintainer removes the directory of the store with this id in a tablespace, if the directory
 * is empty and takes no new value files.  Then the table file ceases to name it.
 */
extern void kv_space_leave(const KvStoreKey *key, uint64 id, Oid tablespace);
/*
 * Removes from the table file tablespaces where the store has no directory.  Does nothing if a
 * value file is missing that a shard lists: it may be in such a tablespace, whose link or file
 * system was not restored.
 */
extern void kv_spaces_tidy(KvStore *store);

/* ---- volume.c ---- */
extern void kv_volume_gucs(void);	/* at load: defines settings of tests */
/* In recovery: marks the volumes free that have none of the files found. */
extern void kv_volumes_find(KvStore *store, const KvFound *found);
extern void kv_volume_note(KvStore *store, KvAddress address);	/* its volume is taken; 0: none */
/*
 * Takes a volume that no other shard has, nor gets before the store is opened again.  In redo it is
 * also one that no record still to be replayed names.  The volume is of the class, or, if that has
 * none, of a larger one.  0: there is none.
 */
extern uint32 kv_volume_take(KvStore *store, int class);

/* Is it the shard's open value file? */
static inline bool
kv_value_file_is_open(const KvShard *shard, const KvShardValueFile *value_file)
{
	return value_file->value_file.address == shard->values.open;
}

/* Has the shard left the map, or is it about to?  Then nothing is written to it.  Lock held. */
static inline bool
kv_shard_is_leaving(const KvShard *shard)
{
	return shard->place.halted || shard->place.bounds_since == KV_NOT_IN_MAP;
}

/* The end of the bytes that are taken in a value file of the shard.  Lock held. */
static inline KvAddress
kv_value_file_end(const KvShard *shard, const KvShardValueFile *value_file)
{
	return kv_value_file_is_open(shard, value_file) ? shard->values.tail :
		value_file->value_file.address + value_file->value_file.used;
}

/*
 * The taken bytes of a value file that count as this shard's.  Each byte counts in one shard.  Lock
 * held.
 */
static inline uint64
kv_value_file_taken(const KvShard *shard, const KvShardValueFile *value_file)
{
	uint64		used = kv_value_file_end(shard, value_file) - value_file->value_file.address;

	return (value_file->value_file.flags & KV_VALUE_FILE_SHARED) ? Min(value_file->share, used)
		: used;
}

/* The taken bytes of the shard's value files; an estimate without the lock. */
static inline uint64
kv_shard_value_bytes(const KvShard *shard)
{
	return shard->values.bytes;
}

/* Exclusively: entries of this key log may name the address, which need not be in a value file. */
extern void kv_value_file_note_log(KvShard *shard, KvAddress address, uint32 log_number);
/* ---- dying.c: the shard's lock is held, exclusively but for kv_dying_kept ---- */

/* horizon: a recent one. */
extern void kv_dying_add(KvDying *dying, uint64 bytes, uint64 xid, uint64 horizon);
extern void kv_dying_counted(KvDying *dying, uint64 sum);	/* all bytes up to sum were counted */
/* bytes that a snapshot may still see */
extern uint64 kv_dying_kept(const KvDying *dying, uint64 horizon);

/* Exclusively: the transaction replaces or deletes a value that is in the value files. */
extern void kv_value_file_note_dead(KvStore *store, KvShard *shard, const KvVersion *version,
									uint64 xid);
/*
 * Exclusively: redo has written this version without looking up the version that it replaces.  Adds
 * the bytes of the shard that must be counted for this reason.
 */
extern void kv_shard_note_redone(KvShard *shard, const KvVersion *version);
/* Estimate of the live bytes of a value file; at most the used bytes.  Lock held. */
extern uint64 kv_value_file_live(const KvShard *shard, const KvShardValueFile *value_file);
/*
 * May the value file become a compaction input (I 14)?  It is closed, no transaction is running
 * that has reserved a large value in it, and all entries that name it are in runs.  horizon is
 * kv_xid_horizon().  Once true, the answer stays true.  A compaction sets KV_VALUE_FILE_INPUT under
 * the exclusive lock on value files for which this is true.  It clears the flag of those that are
 * not empty when it ends.  Lock held.
 */
extern bool kv_value_file_may_be_input(const KvShard *shard, const KvShardValueFile *value_file,
									   uint64 horizon);

/* ---- files.c ---- */
/* Gets the numbers of the runs, newest first, at most KV_MAX_UNFROZEN + 1. Returns how many. */
extern int	kv_files_runs(const KvShardFiles *files, uint32 *runs);
extern bool kv_files_name_run(const KvShardFiles *files, uint32 number);
/*
 * Unlinks a run or a log, unless the shard, a mark or a backup needs it.  Takes the shard's lock.
 */
extern void kv_file_release(KvStore *store, uint32 shard_id, KvFileKind kind, uint32 number);
/* Unlinks all files found of a shard that are not needed. */
extern void kv_files_release(KvStore *store, uint32 shard_id, const KvFoundFile *files, int n);

/*
 * ---- role.c: which process flushes a shard, and which one compacts or splits it ----
 *
 * A process gives up each role that it took, after an ERROR and when it exits, too.
 */
#define KV_ROLE_FLUSH	1		/* KvRoles.maintainer */
#define KV_ROLE_COMPACT	2		/* KvRoles.compactor */

/* Does no process have one of the roles?  Lock held, or the answer may be outdated. */
static inline bool
kv_role_is_free(const KvShard *shard, int roles)
{
	return (!(roles & KV_ROLE_FLUSH) || shard->roles.maintainer == 0) &&
		(!(roles & KV_ROLE_COMPACT) || shard->roles.compactor == 0);
}

/* Exclusively: takes the roles if all are free.  False: one is not, and none was taken. */
extern bool kv_role_claim(KvShard *shard, int roles);
extern bool kv_role_try(KvShard *shard, int roles); /* the same, takes the lock */
/*
 * Waits until all are free, and returns with the lock held exclusively.  True: it had to wait.  If
 * it waits for a compaction, this hurries.  Serves interrupts.
 */
extern bool kv_role_wait(KvShard *shard, int roles, uint32 wait_event);
/* Waits until all are free, and takes them.  False: the shard has left the map. */
extern bool kv_role_take(KvShard *shard, int roles, uint32 wait_event);
/* Gives up roles of this process, and wakes those that wait on changed. */
extern void kv_role_give(KvShard *shard, int roles);

/* ---- gone.c ---- */
/*
 * Unmaps runs and closes value files that were removed, if there may be any.  Called at the end of
 * a transaction and at the start of a worker's loop, where no run set or file is in use.  Never
 * raises.
 */
extern void kv_files_let_go(void);

/* ---- backup.c ---- */
#define KV_MAX_BACKUPS		16

typedef struct KvBackups
{
	slock_t		mutex;			/* guards pids */
	/* KV_BACKUPS_RUN (a backup runs, or ran at the last check), and a counter */
	pg_atomic_uint32 run;
	int			pids[KV_MAX_BACKUPS];	/* sessions that called pg_backup_start, or 0 */
} KvBackups;

extern KvBackups *kv_backups;
extern void kv_backups_init(void);	/* when its shared memory is made */
/* checks for backups, before files of an older mark are removed */
extern void kv_backups_look(void);
extern bool kv_backups_run(void);	/* must files of older marks stay? */

/* ---- registry.c ---- */
typedef struct KvRegistry
{
	LWLock		lock;			/* guards the two hash tables */
	pg_atomic_uint32 cache_ids;	/* the last KvStore.cache_id given out */
	pg_atomic_uint32 drop_counter;	/* makes the names of files that wait for removal */
	pg_atomic_uint32 marks_wanted;	/* some shard has durable.wanted */
	pg_atomic_uint32 retired;	/* retired value files of all shards */
	pg_atomic_uint64 freeing;	/* sum of KvStore.space.freeing of all stores */
	pg_atomic_uint32 maps_unfinished; /* unfinished maps of all stores */
	pg_atomic_uint64 checkpoint;	/* redo pointer of the last known complete checkpoint */
} KvRegistry;

extern KvRegistry *kv_registry;
extern void kv_registry_init(void);	/* when its shared memory is made: initializes KvRegistry */
extern Size kv_registry_memory(void);	/* bytes of the hash tables, to be requested */
/* in the shmem startup hook: makes or finds the hash tables */
extern void kv_registry_attach(void);
extern void kv_registry_gucs(void);	/* at load: defines its settings */
extern HTAB *kv_store_hash;
extern HTAB *kv_table_hash;
/*
 * Finds a store in any state; NULL: not known.  The caller holds the registry lock, except in redo.
 */
extern KvStore *kv_store_find(Oid dboid, Oid relid, uint32 generation);
/* NULL: dropped, or not loaded; takes the registry lock */
extern KvStore *kv_store_live(const KvStoreKey *key);
extern bool kv_store_is_known(const KvStoreKey *key);	/* in any state; takes the registry lock */
/*
 * The stores in this state, of a database or of all (InvalidOid), each with a pin.  The list is
 * palloc'd; kv_stores_unpin frees it.  Takes the registry lock.  The state may change as soon as it
 * is released.
 */
extern List *kv_stores_pin_state(Oid dboid, KvStoreState state);
extern void kv_stores_unpin(List *stores);	/* gives back the pins, and frees the list */
/*
 * Gives back the pins of stores that were dropped since, except one, and puts NULL in their place,
 * so that their write buffers become free.
 */
extern void kv_stores_unpin_dropped(List *stores, const KvStore *but);

#endif							/* KV_SHARD_H */
