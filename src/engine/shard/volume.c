/*
 * volume.c
 *		The volumes of a store's addresses that are free for its shards.
 *
 * A shard takes a volume when it makes its first value file, or the first one of another class.  No
 * other shard makes value files there until the store is opened again, because an address is used
 * only once between two starts.  The next shard with the same id continues in the volume
 * (split/shardid.c).
 *
 * When a store is opened, every volume is free that has no file and that no shard continues, by its
 * edits.  Only the longest ranges of free volumes are remembered; a later start
 * finds the others again.  So volumes are needed for existing files, and for files made between two
 * starts.
 *
 * At level 'keys', a value file that was lost in a power failure is named only by WAL records.
 * Redo meets these in any order, and until it has met them all it must not give such a volume to
 * another shard.  So there redo takes volumes of the upper half of a class, from its end, and
 * sessions take those of the lower half, from its beginning.  Each half has its own remembered
 * ranges.  Otherwise the longer ranges of one half might leave the other none.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "storage/spin.h"
#include "utils/guc.h"

#include "engine/base/types.h"
#include "engine/format/path.h"
#include "engine/shard/shard.h"
#include "engine/shard/valuefiles.h"

#ifdef KVFDW_FAULTS
static int	test_volumes = 0;
#endif

/* The number of volumes of a class. */
static uint32
class_volumes(void)
{
#ifdef KVFDW_FAULTS
	if (test_volumes > 0)
		return test_volumes;
#endif
	return KV_CLASS_VOLUMES;
}

void
kv_volume_gucs(void)
{
#ifdef KVFDW_FAULTS
	DefineCustomIntVariable("kvfdw.test_volumes",
							"Sets how many volumes of each class a table has.",
							"For tests only.",
							&test_volumes, 0, 0, KV_CLASS_VOLUMES,
							PGC_POSTMASTER, 0, NULL, NULL, NULL);
#endif
}

static uint32
length_of(const KvVolumeRange *range)
{
	return range->end - range->begin;
}

/* Remembers a range if it is longer than the shortest of the n remembered ones. */
static void
keep_longer(KvVolumeRange *ranges, int n, uint32 begin, uint32 end)
{
	KvVolumeRange *least = ranges;

	for (int i = 1; i < n; i++)
	{
		if (length_of(&ranges[i]) < length_of(least))
			least = &ranges[i];
	}
	if (begin < end && end - begin > length_of(least))
		*least = (KvVolumeRange) {begin, end};
}

/*
 * The end of the lower half of a class; except at level 'keys' the lower half is the whole class.
 */
static uint32
half_of(const KvStore *store)
{
	return store->shape.wal == KV_WAL_KEYS ? class_volumes() / 2 : class_volumes();
}

static void
keep_range(KvStore *store, int class, uint32 begin, uint32 end)
{
	KvVolumeRange *ranges = store->volumes.free[class];
	uint32		half = half_of(store);

	keep_longer(ranges, KV_HALF_RANGES, begin, Min(end, half));
	keep_longer(ranges + KV_HALF_RANGES, KV_HALF_RANGES, Max(begin, half), end);
}

void
kv_volumes_find(KvStore *store, const KvFound *found)
{
	int			at = 0;

	memset(store->volumes.free, 0, sizeof(store->volumes.free));
	while (at < found->n && found->files[at].kind != KV_FILE_VALUES)
		at++;
	for (int class = 0; class < KV_VALUE_FILE_CLASSES; class++)
	{
		uint32		first = KV_FIRST_VOLUME + class * KV_CLASS_VOLUMES;
		uint32		begin = 0;

		/* the files are sorted by address */
		for (; at < found->n && found->files[at].volume < first + KV_CLASS_VOLUMES; at++)
		{
			uint32		taken = found->files[at].volume - first;

			keep_range(store, class, begin, Min(taken, class_volumes()));
			begin = taken + 1;
		}
		keep_range(store, class, begin, class_volumes());
	}
}

/*
 * A session gets the first free volume of the lower half (at other levels than 'keys', of all).
 * Redo gets the last one of the upper half.
 */
static KvVolumeRange *
find_free(KvStore *store, int class, bool in_redo)
{
	uint32		half = half_of(store);
	KvVolumeRange *found = NULL;

	for (int i = 0; i < KV_VOLUME_RANGES; i++)
	{
		KvVolumeRange *range = &store->volumes.free[class][i];

		if (length_of(range) == 0 || (in_redo ? range->end <= half : range->begin >= half))
			continue;
		if (found == NULL || (in_redo ? range->end > found->end : range->begin < found->begin))
			found = range;
	}
	return found;
}

uint32
kv_volume_take(KvStore *store, int class)
{
	bool		in_redo = store->shape.wal == KV_WAL_KEYS && RecoveryInProgress();
	uint32		volume = 0;

	/* a class without free volumes makes value files larger than necessary */
	SpinLockAcquire(&store->volumes.lock);
	for (; class < KV_VALUE_FILE_CLASSES && volume == 0; class++)
	{
		KvVolumeRange *range = find_free(store, class, in_redo);

		if (range != NULL)
			volume = KV_FIRST_VOLUME + class * KV_CLASS_VOLUMES +
				(in_redo ? --range->end : range->begin++);
	}
	SpinLockRelease(&store->volumes.lock);
	return volume;
}

void
kv_volume_note(KvStore *store, KvAddress address)
{
	uint32		taken;
	KvVolumeRange *ranges = store->volumes.free[kv_class_of(address)];

	if (address == 0)
		return;
	taken = (kv_volume_of(address) - KV_FIRST_VOLUME) % KV_CLASS_VOLUMES;
	SpinLockAcquire(&store->volumes.lock);
	for (int i = 0; i < KV_VOLUME_RANGES; i++)
	{
		KvVolumeRange whole = ranges[i];

		if (taken < whole.begin || taken >= whole.end)
			continue;
		ranges[i] = (KvVolumeRange) {whole.begin, taken};
		keep_range(store, kv_class_of(address), taken + 1, whole.end);
		break;
	}
	SpinLockRelease(&store->volumes.lock);
}
