/*
 * dead.h
 *		Dead ranges: parts of a shard's keys that a scan may step over at once.
 *
 * After many deletes, a scan in key order passes one deleted key after the other until a flush has
 * removed them.  Each later scan would do so again.  The first scan that has passed many in a row
 * therefore notes where they are (scan/stepover.c), and later scans continue after them.
 *
 * A dead range [lo, hi) with the xids [first, last] says of each key in the range: its newest
 * version that is neither aborted nor a row lock is a DELETE of a committed transaction with an xid
 * in [first, last]; or the key has no such version.
 *
 * Why a scan may skip it: A snapshot may if none of the xids [first, last] was in progress when it
 * was taken (kv_view_sees_all).  It then sees all these deletions, whatever its isolation level, on
 * a standby too; no horizon is needed.  An older snapshot ignores the range.  SERIALIZABLE is safe:
 * predicate locks are based on the conditions of a scan (fdw/scan.c).  A conflict is noted only
 * with a writer that the snapshot does not see, and the range has no such writer.
 *
 * Why it stays true: Transaction statuses are final.  A flush, a compaction and a move change where
 * versions are stored, and drop only versions that no snapshot sees.  Only a PUT can add a row to
 * the range.  The PUT cuts the range (kv_dead_cut) under the same exclusive hold of the shard's
 * lock.  So the cut precedes the moment when another process can see the version, whether the
 * transaction commits or not.  Redo writes by the same function.  A transaction never finds its own
 * deletions in a range, since they are not committed.  When the bounds of the shard change, all its
 * ranges are forgotten.
 *
 * A scan notes a range under an exclusive hold of the lock under which it read the keys in the
 * memtables.  Its view of the runs belongs to that moment, as the shard's generation shows.
 *
 * Dead ranges are a hint.  They are in memory only, at most KV_DEAD_RANGES for each shard in which
 * a scan has found any.  Without memory, or for keys longer than KV_DEAD_KEY, scans go step by
 * step.  While there is capacity, newer ranges are kept apart from older ones: a union of two
 * ranges has the xids of both, so fewer snapshots could use it.
 *
 * Locks: takes none.  The caller holds the shard's lock, shared to read and exclusive to change.
 */
#ifndef KV_DEAD_H
#define KV_DEAD_H

#include "engine/base/types.h"
#include "engine/shard/shard.h"
#include "engine/xact/xact.h"

#define KV_DEAD_RANGES	8
#define KV_DEAD_KEY		192		/* bytes of a bound; a range with longer bounds is made smaller */
#ifdef KVFDW_FAULTS
extern int	kv_test_dead_keys;		/* a setting */
#define KV_DEAD_LEAST	kv_test_dead_keys
#else
#define KV_DEAD_LEAST	64		/* fewer dead keys in a row are not worth a range */
#endif

/* The deleting transactions, all committed.  last 0: none, there are no deletions. */
typedef struct KvDeadXids
{
	uint64		first;
	uint64		last;
} KvDeadXids;

/* Where a reader continues.  The keys are valid while the lock is held. */
typedef struct KvDeadSkip
{
	bool		nothing;		/* a dead range covers the rest of the shard */
	bool		moved;			/* start differs from the reader's */
	KvKey		start;			/* upwards inclusive, downwards exclusive */
	/* read up to this key, inclusive: the next range begins there; data NULL: none follows */
	KvKey		stop;
} KvDeadSkip;

static inline bool
kv_dead_any(const KvShard *shard)
{
	return DsaPointerIsValid(shard->dead);
}

/*
 * For a reader that begins upwards at start (after: at the next key), or downwards before it.  data
 * NULL: the reader begins at the edge of the shard.
 */
extern void kv_dead_skip(const KvShard *shard, const KvView *view, KvKey start, bool after,
						 bool backward, KvDeadSkip *skip);
/*
 * Exclusively: notes that [lo, hi), where so many keys have versions, is dead.  lo.len 0: from the
 * lowest key on; hi.data NULL: to the highest.
 */
extern void kv_dead_add(KvShard *shard, KvKey lo, KvKey hi, KvDeadXids xids, uint32 keys);
/* Exclusively: a version of kind PUT is added. */
extern void kv_dead_cut(KvShard *shard, KvKey key);
extern KvDeadXids kv_dead_join(KvDeadXids a, KvDeadXids b);
extern void kv_dead_gucs(void);	/* at load: defines a setting of tests */
extern void kv_dead_free(KvShard *shard);	/* no process uses the shard any more */

#endif							/* KV_DEAD_H */
