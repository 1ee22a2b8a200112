/*
 * valuefiles.c
 *		The list of a shard's value files in shared memory.
 *
 * The list is an array in the area, sorted by address.  A full array is replaced by a larger one
 * under the shard's lock.  The memory for it is allocated before, under extend_lock, which every
 * process holds that adds a value file.
 */
#include "postgres.h"

#include "engine/base/shared.h"
#include "engine/base/types.h"
#include "engine/format/format.h"
#include "engine/shard/shard.h"
#include "engine/shard/space.h"
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

/* The index of the first value file from an address on; nvalue_files: there is none. */
static int
first_from(const KvShard *shard, KvAddress address)
{
	StaticAssertStmt(offsetof(KvShardValueFile, value_file.address) == 0,
					 "an item begins with its place");
	return shard->nvalue_files == 0 ? 0 :
		kv_first_from(kv_value_files(shard), sizeof(KvShardValueFile), shard->nvalue_files,
					  address);
}

KvShardValueFile *
kv_value_file_find(const KvShard *shard, KvAddress address)
{
	KvFileId	file = kv_file_of(address);
	int			i = first_from(shard, file.address);

	if (i == shard->nvalue_files || kv_value_files(shard)[i].value_file.address != file.address)
		return NULL;
	return &kv_value_files(shard)[i];
}

bool
kv_shard_list_grow(KvShard *shard, dsa_pointer *list, Size item, const int *n, int *room,
				   int wanted)
{
	dsa_pointer fresh = dsa_allocate_extended(kv_area(), wanted * item, DSA_ALLOC_NO_OOM);
	dsa_pointer old;

	if (!DsaPointerIsValid(fresh))
		return false;
	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	old = *list;
	if (*n > 0)
		memcpy(kv_address(fresh), kv_address(old), *n * item);
	*list = fresh;
	*room = wanted;
	LWLockRelease(&shard->lock);
	if (DsaPointerIsValid(old))
		dsa_free(kv_area(), old);
	return true;
}

bool
kv_value_files_make_room(KvShard *shard, int n)
{
	int			need;

	/* a compaction job changes both when it ends, without extend_lock */
	LWLockAcquire(&shard->lock, LW_SHARED);
	need = shard->nvalue_files + shard->value_files_promised + n;
	LWLockRelease(&shard->lock);
	return need <= shard->value_files_capacity ||
		kv_shard_list_grow(shard, &shard->value_files, sizeof(KvShardValueFile),
						   &shard->nvalue_files,
						   &shard->value_files_capacity,
						   Max(need, Max(KV_VALUE_FILES_FIRST, shard->value_files_capacity * 2)));
}

KvShardValueFile *
kv_value_file_add(KvShard *shard, const KvValueFile *value_file)
{
	int			i = first_from(shard, value_file->address);
	KvShardValueFile *at = kv_value_files(shard) + i;

	Assert(LWLockHeldByMeInMode(&shard->lock, LW_EXCLUSIVE));
	Assert(shard->nvalue_files < shard->value_files_capacity);
	if (i < shard->nvalue_files && at->value_file.address == value_file->address)
		elog(ERROR, "value file at %llx is in the list already",
			 (unsigned long long) value_file->address);
	memmove(at + 1, at, (shard->nvalue_files - i) * sizeof(KvShardValueFile));
	memset(at, 0, sizeof(*at));
	at->value_file = *value_file;
	at->share = value_file->used;
	shard->nvalue_files++;
	shard->value_bytes += value_file->used;
	return at;
}

void
kv_value_file_divide(KvShard *shard, KvShardValueFile *value_file, uint64 share)
{
	Assert(LWLockHeldByMeInMode(&shard->lock, LW_EXCLUSIVE));
	shard->value_bytes -= Min(shard->value_bytes, kv_value_file_taken(shard, value_file));
	value_file->value_file.flags |= KV_VALUE_FILE_SHARED;
	value_file->share = share;
	shard->value_bytes += kv_value_file_taken(shard, value_file);
	value_file->counted = kv_value_file_taken(shard, value_file);
}

void
kv_value_file_grown(KvShard *shard, KvShardValueFile *value_file, int64 bytes)
{
	shard->value_bytes += bytes;
	if (value_file->value_file.flags & KV_VALUE_FILE_SHARED)
		value_file->share += Max(bytes, -(int64) value_file->share);
}

void
kv_value_file_open(KvShard *shard, KvShardValueFile *value_file, uint64 allocated)
{
	kv_value_file_close(shard);
	value_file->value_file.flags &= ~KV_VALUE_FILE_SYNCED;
	shard->open_address = value_file->value_file.address;
	shard->value_tail = value_file->value_file.address + value_file->value_file.used;
	shard->value_allocated = Max(value_file->value_file.address + allocated, shard->value_tail);
}

void
kv_value_file_close(KvShard *shard)
{
	if (shard->open_address != 0)
		kv_value_file_find(shard, shard->open_address)->value_file.used = shard->value_tail -
			shard->open_address;
	shard->open_address = shard->value_tail = shard->value_allocated = 0;
}

void
kv_tail_move(KvStore *store, KvShard *shard, int64 bytes)
{
	Assert(LWLockHeldByMeInMode(&shard->lock, LW_EXCLUSIVE) && shard->open_address != 0);
	shard->value_tail += bytes;
	kv_value_file_grown(shard, kv_value_file_find(shard, shard->open_address), bytes);
	Assert(shard->value_tail <= shard->value_allocated);
	kv_space_tell(store, shard, bytes);
}

int
kv_value_file_next_class(const KvShard *shard, Size len)
{
	int			class = shard->next_address == 0 ? 0 : kv_class_of(shard->next_address);

	while (class < KV_VALUE_FILE_CLASSES - 1 &&
		   (kv_value_file_size(class) < shard->value_bytes / KV_VALUE_FILES_WANTED ||
			kv_value_file_size(class) < (uint64) len * 4))
		class++;
	return class;
}

bool
kv_value_files_load(KvShard *shard, const KvManifest *manifest, bool durable)
{
	shard->nvalue_files = 0;
	shard->value_bytes = shard->written = 0;
	shard->open_address = shard->value_tail = shard->value_allocated = 0;
	shard->next_address = manifest->next_address;
	shard->job = manifest->job;
	if (!kv_value_files_make_room(shard, manifest->nvalue_files))
		return false;
	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	for (int i = 0; i < manifest->nvalue_files; i++)
	{
		KvShardValueFile *value_file = kv_value_file_add(shard, &manifest->value_files[i]);

		value_file->trusted = value_file->counted = value_file->value_file.used;
		if (!(value_file->value_file.flags & KV_VALUE_FILE_SORTED))
			shard->written += (value_file->value_file.flags & KV_VALUE_FILE_SHARED) ?
				Min(value_file->value_file.live, value_file->value_file.used)
				: value_file->value_file.used;
		if (durable)
			value_file->value_file.flags |= KV_VALUE_FILE_SYNCED | KV_VALUE_FILE_NAMED;
	}
	if (manifest->open_address != 0 && kv_value_file_find(shard, manifest->open_address) != NULL)
		kv_value_file_open(shard, kv_value_file_find(shard, manifest->open_address), 0);
	LWLockRelease(&shard->lock);
	return true;
}

void
kv_value_files_use(KvShard *shard, const KvManifest *other)
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
			shard->value_tail = theirs->address + theirs->used;
			shard->value_allocated = Max(shard->value_allocated, shard->value_tail);
		}
	}
	LWLockRelease(&shard->lock);
}

void
kv_shard_describe(const KvShard *shard, KvManifest *manifest)
{
	memset(manifest, 0, sizeof(*manifest));
	manifest->files = shard->files;
	manifest->job = shard->job;
	manifest->next_address = shard->next_address;
	manifest->open_address = shard->open_address;
	manifest->nvalue_files = shard->nvalue_files;
	manifest->value_files = palloc(Max(shard->nvalue_files, 1) * sizeof(KvValueFile));
	for (int i = 0; i < shard->nvalue_files; i++)
	{
		const KvShardValueFile *value_file = &kv_value_files(shard)[i];

		manifest->value_files[i] = value_file->value_file;
		manifest->value_files[i].used = kv_value_file_end(shard, value_file) -
			value_file->value_file.address;

		/* uncertain bytes, and later deaths, are not known after a restart */
		if (value_file->value_file.flags & KV_VALUE_FILE_UNCERTAIN)
			manifest->value_files[i].live = KV_NOT_KNOWN;
		else if (value_file->value_file.live != KV_NOT_KNOWN)
			manifest->value_files[i].live = kv_value_file_live(shard, value_file);

		/* its logs will be read again, and verified again */
		if (shard->files.flags & KV_MANIFEST_SALVAGE)
			manifest->value_files[i].used = value_file->trusted;
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
	uint64		bytes = kv_value_footprint(version->len) * Max(shard->padding, 256) / 256;

	Assert(LWLockHeldByMeInMode(&shard->lock, LW_EXCLUSIVE));
	if (value_file == NULL)
		return;
	value_file->dead_since += bytes;
	kv_dying_add(&shard->dying, bytes, xid, pg_atomic_read_u64(&store->space_horizon));
	shard->died_untold += bytes;
	if (shard->died_untold >= KV_DEAD_UNTOLD)
		kv_space_tell(store, shard, 0);
}

void
kv_shard_note_redone(KvShard *shard, const KvVersion *version)
{
	uint64		entries = shard->files.frozen_keys + shard->files.unfrozen_entries +
		shard->active.nversions + shard->immutable.nversions;

	Assert(LWLockHeldByMeInMode(&shard->lock, LW_EXCLUSIVE));
	if (version->kind == KV_VERSION_DELETE)
		shard->redone_bytes += shard->value_bytes / Max(entries, 1);
	else if (version->kind == KV_VERSION_PUT)
		shard->redone_bytes += version->len;
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
	if (DsaPointerIsValid(shard->value_files))
		dsa_free(kv_area(), shard->value_files);
	shard->value_files = InvalidDsaPointer;
	shard->nvalue_files = shard->value_files_capacity = 0;
}
