/*
 * obsolete.h
 *		Obsolete value files: they have left a shard's list, and what they wait for.
 *
 * A value file is obsolete in a shard when no entry of the shard names it any more.  The entries of
 * the store's list say what may still need the file: a mark of the shard, the mark of another shard
 * before a split, redo at level 'keys', or a base backup.  A file may have entries of several
 * shards.  When none of them waits any more and no shard lists the file, it is removed: renamed to
 * a name under which the maintainer frees it step by step (lifecycle/free.c).
 *
 * Locks: KvStore.obsolete.lock guards the list.  It is taken after a shard's lock.
 */
#ifndef KV_OBSOLETE_H
#define KV_OBSOLETE_H

#include "engine/shard/shard.h"

/* A value file that has left a shard's list. */
typedef struct KvObsolete
{
	KvAddress	address;
	uint64		used;			/* bytes that have or had a value */
	uint64		taken;			/* this many of them count as the shard's */
	uint64		lsn;			/* where the WAL ended when it left the list */
	uint64		number;			/* counts the entries of the store's list */
	uint32		shard_id;
	uint32		until_mark;		/* number of the shard's first mark that does not need it */
	uint16		flags;			/* SYNCED, NAMED */
} KvObsolete;

/* What an obsolete value file waits for, the last reason to end first. */
typedef enum KvObsoleteWait
{
	KV_WAITS_FOR_NOTHING,		/* it is removed soon */
	KV_WAITS_FOR_MARK,
	KV_WAITS_FOR_CHECKPOINT,
	KV_WAITS_FOR_BACKUP
} KvObsoleteWait;

extern const char *const kv_obsolete_wait_names[];	/* for messages and views */

/* Bytes of obsolete value files, by what they wait for. */
typedef struct KvObsoleteBytes
{
	int			n;				/* value files, those of several shards more than once */
	uint64		bytes[KV_WAITS_FOR_BACKUP + 1];
	uint64		all;
	KvObsoleteWait waits;		/* the greatest reason */
} KvObsoleteBytes;

/*
 * Makes capacity for n more entries, until they are added or given back.  False: there is no
 * memory.
 */
extern bool kv_obsolete_reserve(KvStore *store, int n);
extern void kv_obsolete_give_back(KvStore *store, int n);
/*
 * Adds a value file that has left the list of the shard and waits for this mark of it.  taken: so
 * many of its bytes count as the shard's.  Capacity was reserved for it.  The shard's lock is held
 * exclusively; in recovery no lock is needed.
 */
extern void kv_obsolete_add(KvStore *store, uint32 shard_id, const KvValueFile *value_file,
							uint64 taken, uint32 until_mark, uint64 lsn);
/*
 * In recovery, without a lock: keeps a value file that the mark before this one lists, and the
 * shard does not.  False: there is no memory.
 */
extern bool kv_obsolete_keep(KvStore *store, uint32 shard_id, const KvValueFile *value_file,
							 uint32 until_mark);
/* In recovery: the shard is recovered again. */
extern void kv_obsolete_forget(KvStore *store, uint32 shard_id);
/*
 * The shard lists the value file, because an entry names it: it is not obsolete there any more.
 * Returns the used bytes that the file had when it was, in any shard; 0: it was not.
 */
extern uint64 kv_obsolete_claim(KvStore *store, uint32 shard_id, KvAddress address);
/* The file of an entry of the shard was synced: sets these flags. */
extern void kv_obsolete_synced(KvStore *store, uint32 shard_id, KvAddress address, uint16 flags);
/* The entries of a shard, KV_NO_SHARD: of all; palloc'd.  The caller may hold the shard's lock. */
extern KvObsolete *kv_obsolete_copy(KvStore *store, uint32 shard_id, int *n);
extern bool kv_obsolete_has(KvStore *store, KvAddress address);
/* The addresses of these, and of all value files that shards in the map list; sorted, palloc'd. */
extern KvAddress *kv_value_addresses(KvStore *store, Size *n);
/* The number of the entry that was added last. */
extern uint64 kv_obsolete_last(KvStore *store);
/* Counts the entries up to this number. */
extern KvObsoleteBytes kv_obsolete_bytes(KvStore *store, uint64 last);
/*
 * In the process that makes marks, when a change of the map is durable, before it is DONE: marks of
 * shards that have left the map are needed no more.
 */
extern void kv_obsolete_map_done(KvStore *store);
/*
 * Removes the files that nothing needs (I 14).  Called by the process that makes marks.  Takes
 * locks of shards.  If a file cannot be renamed, warns and keeps its entry.
 */
extern void kv_obsolete_release(KvStore *store);
extern void kv_obsolete_free(KvStore *store);	/* no process uses the store */
/*
 * Renames the file of a value file that nothing needs, for removal by the maintainer.  Returns 0
 * (also if the file does not exist) or an errno.
 */
extern int	kv_value_file_discard(KvStore *store, KvAddress address);
/* So many bytes of a file that was renamed to this name were freed.  Takes the registry lock. */
extern void kv_value_file_note_freed(const char *name, uint64 bytes);

#endif							/* KV_OBSOLETE_H */
