/*
 * look.c
 *		Decides which shard is split, cut or absorbed next.
 *
 * A shard is split when its live values have kvfdw.shard_size, or a quarter of that if they are
 * small: the index of many small values is large, and compaction reads it more than once.  Each
 * entry adds KV_ENTRY_WEIGHT bytes, as it does when the bounds of the parts are chosen.  Of small
 * values, the index is most of what a merge writes and a recovery reads; recovery of one shard has
 * no helpers.  When a store has as many shards as half of the write buffers, it gets larger ones.
 *
 * Keys that only grow fill the end of a shard.  A shard is recognized as such if most recent keys,
 * in its newer runs and its memtable, are above the greatest older key.  It is cut after its
 * greatest key at half of that size, so it is never split.  A split would leave seven shards
 * without writers, and one for the next split.  A shard whose keys grow too fast for a cut is left
 * alone like any other that fails, until it has twice the size.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "engine/base/key.h"
#include "engine/base/types.h"
#include "engine/index/memtable.h"
#include "engine/index/run.h"
#include "engine/buffer/buffer.h"
#include "engine/shard/map.h"
#include "engine/shard/shard.h"
#include "engine/shard/valuefiles.h"
#include "engine/split/internal.h"

/* a shard of small values is split at no less than this part of the size */
#define KV_SMALL_VALUES		4
/* percentage of recent keys above all older ones that means growth */
#define KV_AFTER_PERCENT	90
/* an empty shard is absorbed if no writer has used it for so long */
#define KV_DESERTED_MS		600000
/* pause after a failed attempt; doubled for each further one with the same shard */
#define KV_PAUSE_MS			60000
#define KV_PAUSE_DOUBLED	6		/* the pause is doubled at most so often */
#define KV_TURN_PAUSE_MS	1000	/* pause after an attempt that has met a compaction job */
/* from so many halves of the size on, a shard that grows too fast for a cut is split */
#define KV_OUTGROWN			4
#define KV_FEW_ENTRIES		64	/* fewer entries are not split, and prove no growth */

static int	shard_size_mb = 1024;
#ifdef KVFDW_FAULTS
static int	test_shard_kb = 0;
static bool test_splits = false;

#define KV_TEST_SHARDS	40		/* test_splits splits up to so many shards */
#endif

void
kv_split_gucs(void)
{
	DefineCustomIntVariable("kvfdw.shard_size",
							"Sets the size at which a shard is split, as bytes of values and 64 "
							"bytes per row.",
							"0: shards are split by kvfdw_split() only. Shards of small values "
							"are split at down to a quarter of it, shards of growing keys at half.",
							&shard_size_mb, 1024, 0, 1024 * 1024,
							PGC_SIGHUP, GUC_UNIT_MB, NULL, NULL, NULL);
	kv_shard_id_gucs();
#ifdef KVFDW_FAULTS
	DefineCustomIntVariable("kvfdw.test_shard_kb",
							"Sets the size at which a shard is split.",
							"For tests only.",
							&test_shard_kb, 0, 0, INT_MAX,
							PGC_SIGHUP, GUC_UNIT_KB, NULL, NULL, NULL);
	DefineCustomBoolVariable("kvfdw.test_splits",
							 "Enables the split of all tables all the time.",
							 "For tests only.",
							 &test_splits, false, PGC_SIGHUP, 0, NULL, NULL, NULL);
#endif
}

/* ---- size ---- */

/* The bytes of live values and entries at which a shard of this store is split; 0: never. */
static uint64
size_wanted(KvStore *store, double mean)
{
	uint64		size = (uint64) shard_size_mb * 1024 * 1024;

#ifdef KVFDW_FAULTS
	if (test_shard_kb > 0)
		return (uint64) test_shard_kb * 1024;
#endif
	size = Max(size * Min(mean / KV_BLOCK, 1), size / KV_SMALL_VALUES);

	/* each shard that is written to has a write buffer, and one store must not use all of them */
	if (kv_store_nshards(store) > (uint32) kv_buffer_pool->nunits / 2)
		size *= 4;
	return size;
}

static uint64
live_bytes(KvShard *shard)
{
	uint64		bytes = 0;

	LWLockAcquire(&shard->lock, LW_SHARED);
	for (int i = 0; i < shard->values.n; i++)
		bytes += kv_value_file_live(shard, &kv_value_files(shard)[i]);
	LWLockRelease(&shard->lock);
	return bytes;
}

/* The shard's size, in halves of the size at which it is split. */
static uint64
halves(KvStore *store, uint32 shard_id)
{
	KvShard    *shard = kv_shard(store, shard_id);
	uint64		entries = shard->files.frozen_keys + shard->files.unfrozen_entries +
		shard->active.nitems + shard->immutable.nitems;
	uint64		size = size_wanted(store, 0);
	uint64		weight = entries * KV_ENTRY_WEIGHT;
	uint64		live;

	/* most shards are far below it, and need no look at their value files */
	if (entries < KV_FEW_ENTRIES || size == 0 || kv_shard_value_bytes(shard) + weight < size / 2)
		return 0;
	live = live_bytes(shard);
	return (live + weight) / Max(size_wanted(store, (double) live / entries) / 2, 1);
}

/* ---- do keys only grow? ---- */

/* Keeps the greater of two keys, as a copy in the caller's buffer. */
static void
keep_greater(KvKey *greatest, uint8 *bytes, const uint8 *key, int keylen)
{
	if (greatest->data != NULL &&
		kv_key_compare(key, keylen, greatest->data, greatest->len) <= 0)
		return;
	memcpy(bytes, key, keylen);
	*greatest = (KvKey) {bytes, keylen};
}

static bool
only_grows(KvStore *store, uint32 shard_id)
{
	KvShard    *shard = kv_shard(store, shard_id);
	const KvRunSet *set = kv_shard_runs(store, shard_id);
	uint8		bytes[KV_MAX_KEY];
	KvKey		greatest = {NULL, 0};
	double		recent = 0;
	double		after = 0;

	/* oldest run first: the keys of each run are compared with all older ones */
	for (int i = set->nruns - 1; i >= 0; i--)
	{
		KvRun	   *run = set->runs[i];
		KvKey		end = {NULL, 0};
		KvRunCursor cursor;
		KvVersion	version;
		uint8		keybuf[8];
		const uint8 *key;
		int			keylen;

		if (greatest.data != NULL)
		{
			recent += kv_run_header(run)->nentries;
			after += kv_run_count(run, greatest, end, PG_UINT64_MAX);
		}
		kv_run_seek_before(run, NULL, 0, &cursor);
		if (!cursor.valid)
			continue;
		kv_run_entry(&cursor, keybuf, &key, &keylen, &version);
		keep_greater(&greatest, bytes, key, keylen);
	}
	kv_run_trust();
	LWLockAcquire(&shard->lock, LW_SHARED);
	if (greatest.data != NULL)
	{
		const KvMemtable *memtables[] = {&shard->immutable, &shard->active};

		for (int i = 0; i < lengthof(memtables); i++)
		{
			recent += memtables[i]->nitems;
			after += memtables[i]->nitems - kv_memtable_rank(memtables[i], greatest);
		}
	}
	LWLockRelease(&shard->lock);
	return recent >= KV_FEW_ENTRIES && after * 100 >= recent * KV_AFTER_PERCENT;
}

/* ---- decision ---- */

/*
 * Is the shard empty, and has no writer used it for long?  A shard that was just cut off will be
 * filled.
 */
static bool
is_deserted(KvStore *store, uint32 shard_id)
{
	KvShard    *shard = kv_shard(store, shard_id);
	int			deserted_ms = KV_DESERTED_MS;

#ifdef KVFDW_FAULTS
	if (test_shard_kb > 0)
		deserted_ms = 1000;
#endif
	return kv_store_nshards(store) > (uint32) store->shape.nshards &&
		TimestampDifferenceExceeds(shard->flush.ended, kv_clock(), deserted_ms) &&
		kv_shard_is_empty(store, shard_id);
}

/*
 * Splits, cuts or absorbs the shard, or does nothing; true if bounds have changed.  *outgrown: a
 * cut was due, and keys grow too fast.
 */
static bool
change(KvStore *store, uint32 shard_id, bool *outgrown)
{
	uint64		has;

	*outgrown = false;

#ifdef KVFDW_FAULTS
	if (test_splits && kv_store_nshards(store) < KV_TEST_SHARDS)
		return shard_id % 3 == 0 ? kv_shard_cut(store, shard_id, outgrown) :
			kv_shard_split(store, shard_id, 2 + shard_id % 4);
	if (test_splits)
		return kv_shard_absorb(store, shard_id);
#endif
	if (is_deserted(store, shard_id))
		return kv_shard_absorb(store, shard_id);
	has = halves(store, shard_id);
	if (has >= 1 && kv_shard(store, shard_id)->active.nitems > 0 && only_grows(store, shard_id) &&
		kv_shard_cut(store, shard_id, outgrown))
		return true;
	return has >= (*outgrown ? KV_OUTGROWN : 2) && kv_shard_split(store, shard_id, KV_SPLIT_MOST);
}

/* Are shards changed automatically? */
static bool
is_wanted(void)
{
#ifdef KVFDW_FAULTS
	if (test_shard_kb > 0 || test_splits)
		return true;
#endif
	return shard_size_mb > 0;
}

/* A standby changes its own shards, but has values only at level full. */
static bool
may_change(const KvStore *store)
{
	return store->shape.wal == KV_WAL_FULL || !RecoveryInProgress();
}

/* The pause after so many failed attempts. */
static int
pause_ms(uint32 failures)
{
	return KV_PAUSE_MS << Min(failures, KV_PAUSE_DOUBLED);
}

bool
kv_split_look(KvStore *store)
{
	TimestampTz now = kv_clock();
	uint32		looks = kv_store_nshards(store);

	kv_left_free(store);
	if (!is_wanted() || !may_change(store) || !kv_split_is_possible(store) ||
		now < store->split.pause)
		return false;
	for (; looks > 0; looks--)
	{
		uint32		shard_id = kv_shard_from(store, store->split.from);
		KvShard    *shard;
		bool		changed;
		bool		outgrown;
		bool		waits;

		if (shard_id == KV_NO_SHARD)
			shard_id = kv_shard_from(store, 0);
		store->split.from = shard_id + 1;
		shard = kv_shard(store, shard_id);
		if (now < shard->split.after)
			continue;

		/*
		 * a shard whose change fails, even by an ERROR, is not retried at once, nor is another one
		 * tried
		 */
		store->split.pause = TimestampTzPlusMilliseconds(now, KV_PAUSE_MS);
		shard->split.after = TimestampTzPlusMilliseconds(now, pause_ms(shard->split.failures++));
		changed = change(store, shard_id, &outgrown);
		waits = !changed && halves(store, shard_id) >= 2;
		if ((waits && shard->split.waits <= now) || (outgrown && !changed))
			return false;

		/* no failure; after meeting a compaction job the shard is retried soon */
		store->split.pause = waits ? TimestampTzPlusMilliseconds(now, KV_TURN_PAUSE_MS) : 0;
		shard->split.after = store->split.pause;
		shard->split.failures = 0;
		if (changed || waits)
			return changed;
	}
	return false;
}
