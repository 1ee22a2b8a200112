/*
 * split.h
 *		The shards of a store change while it is in use.
 *
 * Three changes of a map (shard/map.c), one at a time in a store (durable/mapback.c):
 *
 *	cut		a shard ends behind its greatest key, and what comes behind that goes to a new one.
 *			So keys that only grow fill one shard after the other, and nothing is ever moved
 *	split	a shard's entries go to several new ones, at equal shares of the bytes of its values.
 *			The values stay where they are: the new shards list the old one's value files, SHARED
 *	absorb	a shard without entries goes, and the one before it has its range, or the one behind
 *			if there is none.  Its value files, which nothing names, are retired there
 *
 * A split, step by step.  Whoever looks sees the shard as it was up to step 4, and then the
 * new ones:
 *
 *	1. flush	all runs are merged, so that most entries are in one
 *	2. copy		runs are copied to runs of the new shards, which nothing names.  Flushes go
 *				on beside it, but leave the copied runs alone (KvShard.floor)
 *	3. catch up	the memtable is flushed, and what that has made is copied; until that is little
 *	4. switch	what was written up to now goes to files; writers are halted; the write buffers are
 *	   drained,
 *				the memtable is copied to one run more; manifests are renamed, and then the map.  In
 *				memory the map counts at once
 *	5. image	of all new shards; then the old one's files go
 *
 * Killed at any moment, a map that is there has all it names: it is renamed last.  What no
 * map names is removed at the next start, or when the store is next found done.  After a
 * power loss the newest map counts whose shards all have images (durable/mapback.c), and what
 * they lack comes from the WAL.
 *
 * Writers wait for one write buffer to be written, one memtable of at most KV_SWITCH_ITEMS keys to
 * be
 * copied, and some small files to be renamed; readers for nothing.  No lock is held on entry,
 * and none across I/O.  A change that fails, by an ERROR or the end of its process, has done
 * nothing: until the map is there that is files which nothing names, and behind it nothing
 * fails.  It begins only if the map is done, and no base backup runs; what else speaks
 * against it makes it return false.
 *
 * The WAL says nothing of maps.  A standby changes its own: redo is one more writer there, and
 * the images of the new shards are made with the next DURABLE record (checkpoint/checkpointer.c).
 */
#ifndef KV_SPLIT_H
#define KV_SPLIT_H

#include "engine/base/types.h"
#include "engine/engine.h"

extern void kv_split_gucs(void);	/* at load: defines its settings */
/*
 * Changes the next shard that is large enough.  False: there was none, or it was not possible
 * now.  In the maintainer.
 */
extern bool kv_split_look(KvStore *store);

/* May the store's map be changed now?  If not, who asks is told to try again. */
extern bool kv_split_is_possible(KvStore *store);
/*
 * Ends the shard behind its greatest key. False: it has none, or it is not possible now; *outgrown,
 * if keys are written faster than that.
 */
extern bool kv_shard_cut(KvStore *store, uint32 shard_id, bool *outgrown);
/*
 * Makes up to so many shards of one, at least two.  False: its keys are too few, or it is
 * not possible now.
 */
extern bool kv_shard_split(KvStore *store, uint32 shard_id, int most);

/*
 * Has the shard no entries, is none on its way, and does nobody flush or compact it?  Takes its
 * lock.
 */
extern bool kv_shard_is_empty(KvStore *store, uint32 shard_id);
/*
 * An empty shard goes, unless the store would have fewer than it was made with.  False: it
 * does, or the shard is not empty, or it is not possible now.
 */
extern bool kv_shard_absorb(KvStore *store, uint32 shard_id);

#endif							/* KV_SPLIT_H */
