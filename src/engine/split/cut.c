/*
 * cut.c
 *		Ends a shard after its greatest key; a new shard gets the keys above.
 *
 * The new shard has no entries, so nothing is copied.  But no key may be written above the bound
 * while the map is made, and that waits for the device.  So the map is made first.  Then writers
 * are halted to check whether all keys are still less than the bound.  If they are not, keys grow
 * fast.  The next bound is then further ahead: a multiple of the growth during one try, and a
 * greater multiple at each try.  After KV_CUT_TRIES tries the cut is given up for a while, because
 * writers would have to wait for the device.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "utils/memutils.h"

#include "engine/base/key.h"
#include "engine/base/error.h"
#include "engine/base/types.h"
#include "engine/index/memtable.h"
#include "engine/index/run.h"
#include "engine/io/fault.h"
#include "engine/maintenance.h"
#include "engine/shard/map.h"
#include "engine/shard/shard.h"
#include "engine/split/internal.h"

#define KV_CUT_TRIES	4		/* tries to make the map before keys have grown beyond it */
/* multiple of the growth of keys by which the bound is ahead; multiplied again at each try */
#define KV_CUT_AHEAD	4

static void
consider(KvKey *greatest, const uint8 *key, int keylen)
{
	if (greatest->data == NULL || kv_key_compare(key, keylen, greatest->data, greatest->len) > 0)
		*greatest = kv_key_copy(CurrentMemoryContext, key, keylen);
}

/* The greatest key of the shard; data NULL: it has none. */
static KvKey
greatest_key(KvStore *store, uint32 shard_id)
{
	KvShard    *shard = kv_shard(store, shard_id);
	const KvRunSet *set = kv_shard_view(store, shard_id);
	const KvMemtable *memtables[] = {&shard->active, &shard->immutable};
	KvKey		greatest = {NULL, 0};

	for (int i = 0; i < lengthof(memtables); i++)
	{
		KvMemtableCursor cursor;
		KvMemtableItem *item = kv_memtable_seek_before(memtables[i], NULL, 0, &cursor);

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
	kv_run_trust();
	return greatest;
}

/* The first key after another. */
static KvKey
key_after(KvKey key)
{
	uint8	   *bytes = palloc0(key.len + 1);

	memcpy(bytes, key.data, key.len);
	return (KvKey) {bytes, key.len + 1};
}

/*
 * The key so many steps ahead, if keys have grown from one key to another in one step.  Growth is
 * estimated from 8 bytes around the first difference.  At least the first key after the second one.
 */
static KvKey
key_ahead(KvKey from, KvKey to, uint64 steps)
{
	int			at = 0;
	uint64		before;
	uint64		now;
	uint8	   *bytes;

	while (at < Min(from.len, to.len) && from.data[at] == to.data[at])
		at++;
	/* the bytes before the difference may receive a carry */
	at = Max(at - (int) sizeof(uint32), 0);
	before = kv_key_prefix(from.data + at, from.len - at);
	now = kv_key_prefix(to.data + at, to.len - at);
	if (now <= before || now - before > (PG_UINT64_MAX - now) / steps ||
		at + sizeof(uint64) > KV_MAX_KEY)
		return key_after(to);
	now = pg_hton64(now + steps * (now - before));
	bytes = palloc(at + sizeof(uint64));
	memcpy(bytes, to.data, at);
	memcpy(bytes + at, &now, sizeof(uint64));
	return (KvKey) {bytes, at + sizeof(uint64)};
}

/*
 * Finds the new end of the shard: so many steps ahead of its greatest key, which has grown from
 * another one (data NULL: unknown).  False: no key above it may belong to the shard.
 */
static bool
find_bound(const KvChange *change, KvKey from, KvKey greatest, uint64 steps, KvKey *bound)
{
	KvKey		lo;
	KvKey		hi;
	uint32		number;

	if (greatest.data == NULL || greatest.len >= KV_MAX_KEY ||
		!kv_shard_range(change->store, change->shard_id, &lo, &hi, &number))
		return false;
	*bound = from.data != NULL ? key_ahead(from, greatest, steps) : key_after(greatest);
	if (hi.data != NULL && kv_key_order(bound, &hi) >= 0)
		*bound = key_after(greatest);
	return hi.data == NULL || kv_key_order(bound, &hi) < 0;
}

/*
 * Makes the map and halts writers.  False: it cannot be made; *outgrown: because keys grow too
 * fast.
 */
static bool
make_map(KvChange *change, uint32 fresh, bool *outgrown)
{
	uint32		shards[2] = {change->shard_id, fresh};
	KvKey		bounds[2] = {{NULL, 0}};
	KvKey		from = {NULL, 0};
	KvKey		greatest = greatest_key(change->store, change->shard_id);
	uint64		steps = 1;

	for (int tries = 0; tries < KV_CUT_TRIES; tries++)
	{
		KvKey		now;

		if (!find_bound(change, from, greatest, steps, &bounds[1]) ||
			!kv_change_make(change, 2, shards, bounds))
			return false;
		KV_STOP_POINT("cut_made");
		kv_change_halt(change);
		now = greatest_key(change->store, change->shard_id);
		if (kv_key_order(&now, &bounds[1]) < 0)
			return true;
		kv_change_resume(change);
		from = greatest;
		greatest = now;
		steps *= KV_CUT_AHEAD;
	}
	*outgrown = true;
	return false;
}

static void
cut(KvChange *change, bool *outgrown)
{
	uint32		fresh = change->shard_ids[0];

	if (fresh == KV_NO_SHARD || !make_map(change, fresh, outgrown))
		return;
	kv_change_init(change, 0);
	kv_change_publish(change);
	kv_stat_add(change->store, KV_COUNT_SPLITS, 1);
}

/* Called after an ERROR, perhaps with locks held, or at the end of the process. */
static void
cut_failed(int code, Datum arg)
{
	LWLockReleaseAll();
	kv_change_end((KvChange *) DatumGetPointer(arg));
}

bool
kv_shard_cut(KvStore *store, uint32 shard_id, bool *outgrown)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "kvfdw cut",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	KvChange   *change = kv_change_begin(store, shard_id);
	bool		done = false;

	*outgrown = false;
	if (change != NULL)
	{
		PG_ENSURE_ERROR_CLEANUP(cut_failed, PointerGetDatum(change));
		{
			cut(change, outgrown);
		}
		PG_END_ENSURE_ERROR_CLEANUP(cut_failed, PointerGetDatum(change));
		done = change->published;
		kv_change_end(change);
		if (done)
			kv_change_report(change);
		else
			kv_shard_ids_report(change);
	}
	if (*outgrown)
		ereport(MyBackendType == B_BACKEND ? NOTICE : LOG,
				(errmsg("could not add a shard after shard %u of %s",
						shard_id, kv_table_label(store->key.dboid, store->key.relid)),
				 errdetail("Rows with greater keys were written faster than the new shard could be "
						   "created."),
				 errhint("Retry when the write rate is lower.")));
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	return done;
}
