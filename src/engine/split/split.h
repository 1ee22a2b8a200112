/*
 * split.h
 *		Changes of a store's shards while the store is in use: cut, split, absorb.
 *
 * A store's map (shard/map.c) goes through one change at a time (durable/mapback.c):
 *
 *	cut		ends a shard after its greatest key; a new shard gets the keys above. So keys that
 *			only grow fill one shard after the other, and no entry is ever moved
 *	split	copies a shard's entries to several new ones, with equal shares of the bytes of its
 *			values. Values are not copied: the new shards list the old value files, SHARED
 *	absorb	removes a shard without entries. The previous shard takes over its range, or the next
 *			one if there is none, and retires its value files, which no entry names
 *
 * Steps of a split.  Readers and writers use the old shard up to step 4, and the new ones then:
 *
 *	1. flush	all runs are merged, so that most entries are in one
 *	2. copy		runs are copied to runs of the new shards, which no edit names. Flushes
 *				continue, but leave the copied runs alone (KvShard.flush.floor)
 *	3. catch up	the memtable is flushed and the new runs are copied, until little is left
 *	4. switch	buffered writes go to files. Writers are halted, and the write buffers are drained.
 *				The memtable is copied to one more run. The map is appended to the version log, at
 *				level none with the new shards' files, and counts at once in memory
 *	5. mark		marks of all new shards are made, then the old shard's files are removed
 *
 * Crash: One append has the map and what it needs, so it counts as a whole or not at all.  Files
 * that no map names are removed at the next start, or when the store is next found done.  After a
 * power loss the newest map counts whose shards all have marks (version/log.c).  The WAL supplies
 * the changes that these marks lack.
 *
 * Waits: Writers wait until one write buffer is written, a memtable of at most KV_SWITCH_ITEMS keys
 * is copied, and the version log has the map.  Readers do not wait.
 *
 * Locks: The caller holds none, and no lock is held during I/O.
 *
 * Failures: A change that fails, by an ERROR or the end of its process, has no effect.  Before the
 * map is appended it leaves only files that no map names; afterwards nothing fails.  A change
 * begins only if the map is done and no base backup runs; otherwise it returns false.
 *
 * Standby: The WAL has no records about maps, and a standby changes its own.  Redo is one more
 * writer there.  Marks of the new shards are made with the next DURABLE record
 * (checkpoint/checkpointer.c).
 */
#ifndef KV_SPLIT_H
#define KV_SPLIT_H

#include "engine/base/types.h"

extern void kv_split_gucs(void);	/* at load: defines its settings */
/*
 * Changes the next shard that is large enough.  False: there was none, or a change was not
 * possible.  Called by the maintainer.
 */
extern bool kv_split_look(KvStore *store);

/* May the store's map be changed now?  If not, the caller may try again later. */
extern bool kv_split_is_possible(KvStore *store);
/*
 * Ends the shard after its greatest key.  False: it has no key, or a cut is not possible now, or
 * *outgrown: keys grow faster than the map is made.
 */
extern bool kv_shard_cut(KvStore *store, uint32 shard_id, bool *outgrown);
/*
 * Splits the shard into at most so many, at least two.  False: it has too few keys, or a split is
 * not possible now.
 */
extern bool kv_shard_split(KvStore *store, uint32 shard_id, int most);

/*
 * Is the shard without entries, and about to get none, and does no process flush or compact it?
 * Takes its lock.
 */
extern bool kv_shard_is_empty(KvStore *store, uint32 shard_id);
/*
 * Removes an empty shard.  False: the store would have fewer shards than at its creation, or the
 * shard is not empty, or a change is not possible now.
 */
extern bool kv_shard_absorb(KvStore *store, uint32 shard_id);

#endif							/* KV_SPLIT_H */
