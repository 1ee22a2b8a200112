/*
 * dead.h
 *		Dead ranges: parts of a shard's keys that a scan may step over at once.
 *
 * After many deletes a scan in key order would pass one deleted key after the other until a
 * flush has removed them, and each scan would do so again.  The first one that has passed many
 * in a row therefore notes where they are (scan/stepover.c), and later scans go on after them.
 *
 * A dead range [lo, hi) with the xids [first, last] says: of each key of the range that has
 * versions, the newest one that is neither aborted nor a row lock is a DELETE of a committed
 * transaction whose xid is in [first, last]; or there is none.
 *
 * Why a scan may skip it.  A snapshot may if none of the xids [first, last] was in progress when
 * it was taken (kv_view_sees_all): it then sees all these deletions, whatever its isolation
 * level, on a standby too.  No horizon is needed.  For a snapshot that does not, an older one,
 * the range does not exist.  A reader of versions would have learned nothing else there, also at
 * SERIALIZABLE: predicate locks go by the conditions of a scan (fdw/scan.c), and a conflict is
 * noted with a writer that the snapshot does not see, and the range has none of these.
 *
 * Why it stays true.  The statuses of transactions are final.  A flush, a compaction and a move
 * change where versions are, and drop only versions that no snapshot sees.  A row can come into
 * the range only by a PUT, and that cuts it (kv_dead_cut) under the same exclusive hold of the
 * shard's lock, before another process can see the version, and whether its transaction commits
 * or not; redo writes by the same function.  A transaction never finds its own deletions in a
 * range, for they are not committed.  When the bounds of the shard change all ranges are
 * forgotten.
 *
 * A range is noted under an exclusive hold of the lock under which its keys in the memtables were
 * looked at, and its keys in the runs belong to that moment, as the shard's generation shows.
 *
 * All of it is a hint: it is in memory only, bounded by KV_DEAD_RANGES of each shard in which a
 * scan has found any, and without memory, or for keys longer than KV_DEAD_KEY, scans go on step
 * by step.  Newer ranges are kept apart from older ones at first, as long as there is room: the
 * union of two has the xids of both, so fewer snapshots could use it.
 *
 * Takes no lock: the shard's is held, shared to read and exclusively to change.
 */
#ifndef KV_DEAD_H
#define KV_DEAD_H

#include "engine/base/types.h"
#include "engine/shard/shard.h"
#include "engine/xact/xact.h"

#define KV_DEAD_RANGES	8
#define KV_DEAD_KEY		192		/* bytes of a bound; a range with longer ones is made smaller */
#ifdef KVFDW_FAULTS
extern int	kv_test_dead_keys;		/* a setting */
#define KV_DEAD_LEAST	kv_test_dead_keys
#else
#define KV_DEAD_LEAST	64		/* so many dead keys in a row are worth a range */
#endif

/* The transactions that deleted: all committed.  last 0: none, there are no deletions. */
typedef struct KvDeadXids
{
	uint64		first;
	uint64		last;
} KvDeadXids;

/* Where a reader goes on; the keys are good while the lock is held. */
typedef struct KvDeadSkip
{
	bool		nothing;		/* a dead range has all that is left of the shard */
	bool		moved;			/* start is another one than the reader's */
	KvKey		start;			/* upwards inclusive, downwards exclusive */
	KvKey		stop;			/* read up to this key, inclusive: there the next range begins;
								 * data NULL: no range follows */
} KvDeadSkip;

static inline bool
kv_dead_any(const KvShard *shard)
{
	return DsaPointerIsValid(shard->dead);
}

/*
 * Of a reader that begins at start, upwards with it (after: with the next key), downwards
 * before it; data NULL: at the edge of the shard.
 */
extern void kv_dead_skip(const KvShard *shard, const KvView *view, KvKey start, bool after,
						 bool backward, KvDeadSkip *skip);
/*
 * Note that [lo, hi) is dead, where so many keys have versions; lo.len 0: from the lowest key
 * on, hi.data NULL: to the highest.  Exclusively.
 */
extern void kv_dead_add(KvShard *shard, KvKey lo, KvKey hi, KvDeadXids xids, uint32 keys);
/* A version of kind PUT is added.  Exclusively. */
extern void kv_dead_cut(KvShard *shard, KvKey key);
extern KvDeadXids kv_dead_join(KvDeadXids a, KvDeadXids b);
extern void kv_dead_gucs(void);	/* at load: a setting of tests */
extern void kv_dead_free(KvShard *shard);	/* no process uses the shard any more */

#endif							/* KV_DEAD_H */
