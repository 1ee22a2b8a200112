/*
 * internal.h
 *		A change of a store's map, from its beginning to its end.
 *
 * Callers: only the files of split/.
 */
#ifndef KV_SPLIT_INTERNAL_H
#define KV_SPLIT_INTERNAL_H

#include "datatype/timestamp.h"

#include "engine/base/types.h"
#include "engine/format/format.h"
#include "engine/shard/counts.h"
#include "engine/shard/obsolete.h"
#include "engine/shard/shard.h"
#include "engine/split/split.h"
#include "engine/version/version.h"

#define KV_SPLIT_MOST	8		/* maximum number of shards that replace one */
#define KV_ENTRY_WEIGHT	64		/* weight of an entry in bytes, in addition to its value */

typedef struct KvChange
{
	KvStore    *store;
	uint32		shard_id;		/* the shard that is changed */
	uint32		neighbour;		/* the shard that takes over its range, or KV_NO_SHARD */
	KvMap	   *before;
	KvMap	   *after;			/* NULL: not yet made */
	dsa_pointer room;			/* shared memory for after, until it is published; or invalid */
	bool		halted;			/* writers of the shard wait */
	TimestampTz halted_at;		/* since when writers wait */
	long		halt_us;		/* longest time that writers have waited so far */
	/* its previously open value file, to be truncated to closed_used; 0: none */
	KvAddress	closed;
	uint64		closed_used;
	bool		published;
	bool		remains;		/* some files of an unpublished change could not be removed */
	KvEdit		edits[KV_SPLIT_MOST + 1];	/* files of its new shards, and the map */
	int			nedits;
	/* ids for the new shards; KV_NO_SHARD: there are no more */
	uint32		shard_ids[KV_SPLIT_MOST];
	/* KvShard.split.left_xid of the previous shards with these ids, once the ids are in use */
	uint64		left[KV_SPLIT_MOST];
} KvChange;

/* ---- change.c ---- */
/*
 * Makes this process the one that changes the store's map; palloc'd.  NULL: not possible now, or
 * the map does not have the shard.  The caller must call kv_change_end, also after an ERROR.
 */
extern KvChange *kv_change_begin(KvStore *store, uint32 shard_id);
extern void kv_change_end(KvChange *change);
/* Halts the shard's writers: they wait until the change ends or kv_change_resume is called. */
extern void kv_change_halt(KvChange *change);
/*
 * Halts the shard's writers, and all that extend or sync its value files: the caller holds
 * extend_lock until kv_change_drain or kv_change_resume.  Waits for the lock before it halts
 * writers.
 */
extern void kv_change_halt_free(KvChange *change);
/* Lets halted writers continue.  No effect if none are halted. */
extern void kv_change_resume(KvChange *change);
/*
 * After kv_change_halt_free: brings all that was written to the shard to files, and its versions to
 * the memtable.  The shard has no open value file then.
 */
extern void kv_change_drain(KvChange *change);
/*
 * Makes the new map: n shards with these ids replace the changed one, and bounds[0] is its bound.
 * With n 0 the neighbour takes over its range.  Allocates all memory.  Replaces a map made before.
 * False: there is no memory.
 */
extern bool kv_change_make(KvChange *change, int n, const uint32 *shards, const KvKey *bounds);
/* Initializes the n-th new shard, which has no entries and which no other process knows yet. */
extern void kv_change_init(KvChange *change, int n);
/* At level 'none': the map is published together with these files of a new shard. */
extern void kv_change_add_files(KvChange *change, uint32 shard_id, const KvFileList *listed);
/*
 * Publishes the map, in the version log and in memory.  The shards that it adds are complete.  On
 * ERROR it is not published.
 */
extern void kv_change_publish(KvChange *change);
/* Reports a published and ended change to the server log. */
extern void kv_change_report(const KvChange *change);

/* ---- shardid.c ---- */
/* Chooses KvChange.shard_ids; no other process changes the map. */
extern void kv_shard_ids_choose(KvChange *change, uint64 horizon);
/* Reports to the server log that few ids are left, or that the change failed for lack of ids. */
extern void kv_shard_ids_report(const KvChange *change);
/*
 * Gets the first run and log numbers of a shard with this id, which no shard has used under the id.
 */
extern void kv_shard_id_files(const KvStore *store, uint32 number, KvShardFiles *files);
/* Frees the lists of shards that have left the map, once no process may still know these shards. */
extern void kv_left_free(KvStore *store);
extern void kv_shard_id_gucs(void);

#endif							/* KV_SPLIT_INTERNAL_H */
