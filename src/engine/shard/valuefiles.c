/*
 * valuefiles.c
 *		The list of a shard's value files in shared memory, and the volumes of their addresses.
 *
 * The list is an array in the area, sorted by address.  A full array is replaced by a larger one
 * under the shard's lock.  The memory for it is allocated before, under extend_lock, which every
 * process holds that adds a value file.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "storage/spin.h"
#include "utils/guc.h"

#include "engine/base/shared.h"
#include "engine/base/types.h"
#include "engine/format/format.h"
#include "engine/format/path.h"
#include "engine/shard/map.h"
#include "engine/shard/shard.h"
#include "engine/shard/space.h"
#include "engine/shard/valuefiles.h"
#include "engine/value/value.h"

#define KV_VALUE_FILES_FIRST	2 /* capacity of the first list */
/* bytes of dead values that a shard collects before it reports them to the store */
#define KV_DEAD_UNTOLD	(64 * 1024)

int
kv_first_from(const void *items, Size size, int n, KvAddress address)
{
	int			low = 0;
	int			high = n;

	while (low < high)
	{
		int			middle = (low + high) / 2;

		if (*(const KvAddress *) ((const char *) items + middle * size) < address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* The index of the first value file from an address on; values.n: there is none. */
static int
first_from(const KvShard *shard, KvAddress address)
{
	StaticAssertStmt(offsetof(KvShardValueFile, value_file.address) == 0,
					 "an item begins with its place");
	return shard->values.n == 0 ? 0 :
		kv_first_from(kv_value_files(shard), sizeof(KvShardValueFile), shard->values.n,
					  address);
}

KvShardValueFile *
kv_value_file_find(const KvShard *shard, KvAddress address)
{
	KvFileId	file = kv_file_of(address);
	int			i = first_from(shard, file.address);

	if (i == shard->values.n || kv_value_files(shard)[i].value_file.address != file.address)
		return NULL;
	return &kv_value_files(shard)[i];
}

bool
kv_value_files_make_room(KvShard *shard, int n)
{
	int			wanted;
	dsa_pointer fresh;
	dsa_pointer old = shard->values.files;

	/* a compaction job changes both when it ends, without extend_lock */
	LWLockAcquire(&shard->lock, LW_SHARED);
	wanted = shard->values.n + shard->values.promised + n;
	LWLockRelease(&shard->lock);
	if (wanted <= shard->values.capacity)
		return true;
	wanted = Max(wanted, Max(KV_VALUE_FILES_FIRST, shard->values.capacity * 2));
	fresh = dsa_allocate_extended(kv_area(), wanted * sizeof(KvShardValueFile), DSA_ALLOC_NO_OOM);
	if (!DsaPointerIsValid(fresh))
		return false;
	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	if (shard->values.n > 0)
		memcpy(kv_address(fresh), kv_address(old), shard->values.n * sizeof(KvShardValueFile));
	shard->values.files = fresh;
	shard->values.capacity = wanted;
	LWLockRelease(&shard->lock);
	if (DsaPointerIsValid(old))
		dsa_free(kv_area(), old);
	return true;
}

KvShardValueFile *
kv_value_file_add(KvShard *shard, const KvValueFile *value_file)
{
	int			i = first_from(shard, value_file->address);
	KvShardValueFile *at = kv_value_files(shard) + i;

	Assert(LWLockHeldByMeInMode(&shard->lock, LW_EXCLUSIVE));
	Assert(shard->values.n < shard->values.capacity);
	if (i < shard->values.n && at->value_file.address == value_file->address)
		elog(ERROR, "value file at %llx is in the list already",
			 (unsigned long long) value_file->address);
	memmove(at + 1, at, (shard->values.n - i) * sizeof(KvShardValueFile));
	memset(at, 0, sizeof(*at));
	at->value_file = *value_file;
	at->share = value_file->used;
	shard->values.n++;
	shard->values.bytes += value_file->used;
	return at;
}

void
kv_value_file_divide(KvShard *shard, KvShardValueFile *value_file, uint64 share)
{
	Assert(LWLockHeldByMeInMode(&shard->lock, LW_EXCLUSIVE));
	shard->values.bytes -= Min(shard->values.bytes, kv_value_file_taken(shard, value_file));
	value_file->value_file.flags |= KV_VALUE_FILE_SHARED;
	value_file->share = share;
	shard->values.bytes += kv_value_file_taken(shard, value_file);
	value_file->counted = kv_value_file_taken(shard, value_file);
}

void
kv_value_file_grown(KvShard *shard, KvShardValueFile *value_file, int64 bytes)
{
	shard->values.bytes += bytes;
	if (value_file->value_file.flags & KV_VALUE_FILE_SHARED)
		value_file->share += Max(bytes, -(int64) value_file->share);
}

void
kv_value_file_open(KvShard *shard, KvShardValueFile *value_file, uint64 allocated)
{
	kv_value_file_close(shard);
	value_file->value_file.flags &= ~KV_VALUE_FILE_SYNCED;
	shard->values.open = value_file->value_file.address;
	shard->values.tail = value_file->value_file.address + value_file->value_file.used;
	shard->values.allocated = Max(value_file->value_file.address + allocated, shard->values.tail);
}

void
kv_value_file_close(KvShard *shard)
{
	if (shard->values.open != 0)
		kv_value_file_find(shard, shard->values.open)->value_file.used = shard->values.tail -
			shard->values.open;
	shard->values.open = shard->values.tail = shard->values.allocated = 0;
}

void
kv_tail_move(KvStore *store, KvShard *shard, int64 bytes)
{
	Assert(LWLockHeldByMeInMode(&shard->lock, LW_EXCLUSIVE) && shard->values.open != 0);
	shard->values.tail += bytes;
	kv_value_file_grown(shard, kv_value_file_find(shard, shard->values.open), bytes);
	Assert(shard->values.tail <= shard->values.allocated);
	kv_space_tell(store, shard, bytes);
}

int
kv_value_file_next_class(const KvShard *shard, Size len)
{
	int			class = shard->values.next == 0 ? 0 : kv_class_of(shard->values.next);

	while (class < KV_VALUE_FILE_CLASSES - 1 &&
		   (kv_value_file_size(class) < shard->values.bytes / KV_VALUE_FILES_WANTED ||
			kv_value_file_size(class) < (uint64) len * 4))
		class++;
	return class;
}

bool
kv_value_files_load(KvShard *shard, const KvFileList *listed, bool durable)
{
	shard->values.n = 0;
	shard->values.bytes = shard->values.written = 0;
	shard->values.open = shard->values.tail = shard->values.allocated = 0;
	shard->values.next = listed->next_address;
	shard->compact.job = listed->job;
	if (!kv_value_files_make_room(shard, listed->nvalue_files))
		return false;
	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	for (int i = 0; i < listed->nvalue_files; i++)
	{
		KvShardValueFile *value_file = kv_value_file_add(shard, &listed->value_files[i]);

		value_file->trusted = value_file->counted = value_file->value_file.used;
		if (!(value_file->value_file.flags & KV_VALUE_FILE_SORTED))
			shard->values.written += (value_file->value_file.flags & KV_VALUE_FILE_SHARED) ?
				Min(value_file->value_file.live, value_file->value_file.used)
				: value_file->value_file.used;
		if (durable)
			value_file->value_file.flags |= KV_VALUE_FILE_SYNCED | KV_VALUE_FILE_NAMED;
	}
	if (listed->open_address != 0 && kv_value_file_find(shard, listed->open_address) != NULL)
		kv_value_file_open(shard, kv_value_file_find(shard, listed->open_address), 0);
	LWLockRelease(&shard->lock);
	return true;
}

void
kv_value_files_sorted(KvShard *shard)
{
	for (int i = 0; i < shard->values.n; i++)
	{
		KvShardValueFile *value_file = &kv_value_files(shard)[i];

		if (!kv_value_file_is_open(shard, value_file))
			value_file->value_file.flags |= KV_VALUE_FILE_SORTED;
	}
}

void
kv_value_files_use(KvShard *shard, const KvFileList *other)
{
	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	for (int i = 0; i < other->nvalue_files; i++)
	{
		const KvValueFile *theirs = &other->value_files[i];
		KvShardValueFile *ours = kv_value_file_find(shard, theirs->address);

		if (ours == NULL || theirs->used <= kv_value_file_end(shard, ours) - theirs->address)
			continue;
		kv_value_file_grown(shard, ours,
							theirs->address + theirs->used - kv_value_file_end(shard, ours));
		ours->value_file.used = theirs->used;
		if (kv_value_file_is_open(shard, ours))
		{
			shard->values.tail = theirs->address + theirs->used;
			shard->values.allocated = Max(shard->values.allocated, shard->values.tail);
		}
	}
	LWLockRelease(&shard->lock);
}

void
kv_shard_describe(const KvShard *shard, KvFileList *listed)
{
	memset(listed, 0, sizeof(*listed));
	listed->files = shard->files;
	listed->job = shard->compact.job;
	listed->next_address = shard->values.next;
	listed->open_address = shard->values.open;
	listed->nvalue_files = shard->values.n;
	listed->value_files = palloc(Max(shard->values.n, 1) * sizeof(KvValueFile));
	for (int i = 0; i < shard->values.n; i++)
	{
		const KvShardValueFile *value_file = &kv_value_files(shard)[i];

		listed->value_files[i] = value_file->value_file;
		listed->value_files[i].used = kv_value_file_end(shard, value_file) -
			value_file->value_file.address;

		/* uncertain bytes, and later deaths, are not known after a restart */
		if (value_file->value_file.flags & KV_VALUE_FILE_UNCERTAIN)
			listed->value_files[i].live = KV_NOT_KNOWN;
		else if (value_file->value_file.live != KV_NOT_KNOWN)
			listed->value_files[i].live = kv_value_file_live(shard, value_file);

		/* its logs will be read again, and verified again */
		if (shard->files.flags & KV_FILES_SALVAGE)
			listed->value_files[i].used = value_file->trusted;
	}
}

void
kv_value_file_note_log(KvShard *shard, KvAddress address, uint32 log_number)
{
	KvShardValueFile *value_file = kv_value_file_find(shard, address);

	if (value_file == NULL || value_file->value_file.last_log >= log_number)
		return;

	/* the count is incomplete from now on; values dead at the count stay dead */
	value_file->value_file.last_log = log_number;
	if (value_file->value_file.live != KV_NOT_KNOWN)
		value_file->dead_then = value_file->counted -
			Min(value_file->value_file.live, value_file->counted);
	value_file->value_file.live = KV_NOT_KNOWN;
}

void
kv_value_file_note_dead(KvStore *store, KvShard *shard, const KvVersion *version, uint64 xid)
{
	KvShardValueFile *value_file = kv_value_file_find(shard,
													  KV_LOCATION_ADDRESS(version->location));
	uint64		bytes = kv_value_footprint(version->len) * Max(shard->count.padding, 256) / 256;

	Assert(LWLockHeldByMeInMode(&shard->lock, LW_EXCLUSIVE));
	if (value_file == NULL)
		return;
	value_file->dead_since += bytes;
	kv_dying_add(&shard->count.dying, bytes, xid, pg_atomic_read_u64(&store->space.horizon));
	shard->count.untold += bytes;
	if (shard->count.untold >= KV_DEAD_UNTOLD)
		kv_space_tell(store, shard, 0);
}

void
kv_shard_note_redone(KvShard *shard, const KvVersion *version)
{
	uint64		entries = shard->files.frozen_keys + shard->files.unfrozen_entries +
		shard->active.nversions + shard->immutable.nversions;

	Assert(LWLockHeldByMeInMode(&shard->lock, LW_EXCLUSIVE));
	if (version->kind == KV_VERSION_DELETE)
		shard->count.redone += shard->values.bytes / Max(entries, 1);
	else if (version->kind == KV_VERSION_PUT)
		shard->count.redone += version->len;
}

uint64
kv_value_file_live(const KvShard *shard, const KvShardValueFile *value_file)
{
	uint64		used = kv_value_file_end(shard, value_file) - value_file->value_file.address;
	uint64		taken = kv_value_file_taken(shard, value_file);
	uint64		live = value_file->value_file.live == KV_NOT_KNOWN ?
		taken - Min(taken, value_file->dead_then) : Min(value_file->value_file.live, used);

	return live - Min(live, value_file->dead_since);
}

bool
kv_value_file_may_be_input(const KvShard *shard, const KvShardValueFile *value_file, uint64 horizon)
{
	return !kv_value_file_is_open(shard, value_file) && value_file->newest_writer < horizon &&
		value_file->value_file.last_log < shard->files.first_log;
}

void
kv_value_files_free(KvShard *shard)
{
	if (DsaPointerIsValid(shard->values.files))
		dsa_free(kv_area(), shard->values.files);
	shard->values.files = InvalidDsaPointer;
	shard->values.n = shard->values.capacity = 0;
}

void
kv_shard_want_mark(KvShard *shard)
{
	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	shard->durable.wanted = true;
	LWLockRelease(&shard->lock);
	pg_atomic_write_u32(&kv_registry->marks_wanted, 1);
}

/* ---- value files of several shards, after recovery ---- */

/* One entry for each shard that lists a value file. */
typedef struct KvListing
{
	KvAddress	address;
	uint64		live;
	uint32		shard_id;
} KvListing;

static int
compare_listings(const void *a, const void *b)
{
	return kv_address_compare(&((const KvListing *) a)->address,
							  &((const KvListing *) b)->address);
}

/* Divides the bytes of a value file among all shards that list it. */
static void
divide(KvStore *store, const KvListing *listings, Size n)
{
	double		live = 0;

	for (Size i = 0; i < n; i++)
		live += listings[i].live;
	for (Size i = 0; i < n; i++)
	{
		KvShard    *shard = kv_shard(store, listings[i].shard_id);
		KvShardValueFile *value_file;

		LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
		value_file = kv_value_file_find(shard, listings[i].address);
		if (value_file != NULL)
		{
			uint64		used = kv_value_file_end(shard, value_file) -
				value_file->value_file.address;

			if (n > 1 || (value_file->value_file.flags & KV_VALUE_FILE_SHARED))
				kv_value_file_divide(shard, value_file,
									 live > 0 ? used * (listings[i].live / live) : used / n);
		}
		LWLockRelease(&shard->lock);
	}
}

#ifdef KVFDW_FAULTS
/* Does the shard's sum equal the bytes of its value files? */
static void
check_count(KvStore *store, uint32 shard_id)
{
	KvShard    *shard = kv_shard(store, shard_id);
	uint64		taken = 0;

	LWLockAcquire(&shard->lock, LW_SHARED);
	for (int i = 0; i < shard->values.n; i++)
		taken += kv_value_file_taken(shard, &kv_value_files(shard)[i]);
	if (taken != kv_shard_value_bytes(shard))
		elog(LOG, "kvfdw shard %u counts %llu bytes of values, its files have %llu", shard_id,
			 (unsigned long long) kv_shard_value_bytes(shard), (unsigned long long) taken);
	LWLockRelease(&shard->lock);
}
#endif

void
kv_value_files_find_shared(KvStore *store)
{
	KvListing  *listings;
	Size		room = 0;
	Size		n = 0;
	Size		next;

	kv_each_shard(store, i)
		room += kv_shard(store, i)->values.n;
	listings = MemoryContextAllocHuge(CurrentMemoryContext, Max(room, 1) * sizeof(KvListing));
	kv_each_shard(store, i)
	{
		KvShard    *shard = kv_shard(store, i);

		LWLockAcquire(&shard->lock, LW_SHARED);
		for (int c = 0; c < shard->values.n && n < room; c++)
		{
			const KvShardValueFile *value_file = &kv_value_files(shard)[c];

			listings[n++] = (KvListing) {value_file->value_file.address,
										 kv_value_file_live(shard, value_file), i};
		}
		LWLockRelease(&shard->lock);
	}
	qsort(listings, n, sizeof(KvListing), compare_listings);
	for (Size at = 0; at < n; at = next)
	{
		next = at + 1;
		while (next < n && listings[next].address == listings[at].address)
			next++;
		divide(store, listings + at, next - at);
	}
	pfree(listings);
#ifdef KVFDW_FAULTS
	kv_each_shard(store, i)
		check_count(store, i);
#endif
}

/* ---- volumes ---- */

/*
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
