/*
 * cut.c
 *		A shard ends behind its greatest key; the keys behind that are a new one's.
 *
 * Writers are halted while the greatest key is looked for, so nothing comes behind it.  The
 * new shard has nothing, so nothing is copied.
 */
#include "postgres.h"

#include "storage/ipc.h"
#include "utils/memutils.h"

#include "engine/base/key.h"
#include "engine/base/types.h"
#include "engine/index/delta.h"
#include "engine/index/run.h"
#include "engine/io/io.h"
#include "engine/split/internal.h"

static void
consider(KvKey *greatest, const uint8 *key, int keylen)
{
	if (greatest->data == NULL || kv_key_compare(key, keylen, greatest->data, greatest->len) > 0)
		*greatest = kv_key_copy(CurrentMemoryContext, key, keylen);
}

/* data NULL: the shard has none. */
static KvKey
greatest_key(KvStore *store, uint32 shardno)
{
	KvShard    *shard = kv_shard(store, shardno);
	const KvRunSet *set = kv_shard_view(store, shardno);
	const KvDelta *deltas[] = {&shard->active, &shard->sealed};
	KvKey		greatest = {NULL, 0};

	for (int i = 0; i < lengthof(deltas); i++)
	{
		KvDeltaCursor cursor;
		KvDeltaItem *item = kv_delta_seek_before(deltas[i], NULL, 0, &cursor);

		if (item != NULL)
			consider(&greatest, item->key, item->keylen);
	}
	LWLockRelease(&shard->lock);
	for (int i = 0; i < set->nruns; i++)
	{
		KvRunCursor cursor;
		KvVersion	version;
		uint8		keybuf[8];
		const uint8 *key;
		int			keylen;

		kv_run_seek_before(set->runs[i], NULL, 0, &cursor);
		if (!cursor.valid)
			continue;
		kv_run_entry(&cursor, keybuf, &key, &keylen, &version);
		consider(&greatest, key, keylen);
	}
	kv_run_believe();
	return greatest;
}

/* The first key behind the greatest one; false: there is none that the shard may have. */
static bool
find_bound(const KvChange *change, KvKey *bound)
{
	KvKey		greatest = greatest_key(change->store, change->shardno);
	KvKey		lo;
	KvKey		hi;
	uint32		number;
	uint8	   *bytes;

	if (greatest.data == NULL || greatest.len >= KV_MAX_KEY ||
		!kv_shard_range(change->store, change->shardno, &lo, &hi, &number))
		return false;
	bytes = palloc0(greatest.len + 1);
	memcpy(bytes, greatest.data, greatest.len);
	*bound = (KvKey) {bytes, greatest.len + 1};
	return hi.data == NULL || kv_key_order(bound, &hi) < 0;
}

static void
cut(KvChange *change)
{
	uint32		shards[2] = {change->shardno, kv_change_number(change, 0)};
	KvKey		bounds[2] = {{NULL, 0}};

	if (shards[1] == KV_NO_SHARD)
		return;
	kv_change_halt(change);
	if (!find_bound(change, &bounds[1]) || !kv_change_make(change, 2, shards, bounds))
		return;
	kv_change_init(change, kv_shard(change->store, shards[1]));
	kv_change_publish(change);
	kv_stat_add(change->store, KV_COUNT_SPLITS, 1);
}

/* After an error, which may have come with a lock held, or at the end of the process. */
static void
cut_failed(int code, Datum arg)
{
	LWLockReleaseAll();
	kv_change_end((KvChange *) DatumGetPointer(arg));
}

bool
kv_shard_cut(KvStore *store, uint32 shardno)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "kvfdw cut",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	KvChange   *change = kv_change_begin(store, shardno);
	bool		done = false;

	if (change != NULL)
	{
		PG_ENSURE_ERROR_CLEANUP(cut_failed, PointerGetDatum(change));
		{
			cut(change);
		}
		PG_END_ENSURE_ERROR_CLEANUP(cut_failed, PointerGetDatum(change));
		done = change->published;
		kv_change_end(change);
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	return done;
}
