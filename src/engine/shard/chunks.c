/*
 * chunks.c
 *		The chunks of a shard: the list of its value files in shared memory.
 *
 * The list is an array in the area, in the order of addresses.  It is replaced by a
 * larger one under the shard's lock; the memory for that is got before, under
 * extend_lock, which whoever adds a chunk holds.
 */
#include "postgres.h"

#include "engine/base/area.h"
#include "engine/base/types.h"
#include "engine/format/format.h"
#include "engine/shard/shard.h"
#include "engine/shard/space.h"
#include "engine/value/value.h"

#define KV_CHUNKS_FIRST	2		/* room in the first list */
#define KV_DEAD_UNTOLD	(64 * 1024)	/* bytes of values, until the store is told that they have died */

int
kv_first_from(const void *items, Size size, int n, KvAddress place)
{
	int			low = 0;
	int			high = n;

	while (low < high)
	{
		int			middle = (low + high) / 2;

		if (*(const KvAddress *) ((const char *) items + middle * size) < place)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* The first chunk from an address on; nchunks: there is none. */
static int
first_from(const KvShard *shard, KvAddress address)
{
	StaticAssertStmt(offsetof(KvShardChunk, chunk.place) == 0, "an item begins with its place");
	return shard->nchunks == 0 ? 0 :
		kv_first_from(kv_chunks(shard), sizeof(KvShardChunk), shard->nchunks, address);
}

KvShardChunk *
kv_chunk_find(const KvShard *shard, KvAddress address)
{
	KvFileId	file = kv_file_of(address);
	int			i = first_from(shard, file.place);

	if (i == shard->nchunks || kv_chunks(shard)[i].chunk.place != file.place)
		return NULL;
	return &kv_chunks(shard)[i];
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
kv_chunks_make_room(KvShard *shard, int n)
{
	int			need;

	/* a compaction job that ends changes both, without extend_lock */
	LWLockAcquire(&shard->lock, LW_SHARED);
	need = shard->nchunks + shard->chunks_promised + n;
	LWLockRelease(&shard->lock);
	return need <= shard->chunks_room ||
		kv_shard_list_grow(shard, &shard->chunks, sizeof(KvShardChunk), &shard->nchunks,
						   &shard->chunks_room,
						   Max(need, Max(KV_CHUNKS_FIRST, shard->chunks_room * 2)));
}

KvShardChunk *
kv_chunk_add(KvShard *shard, const KvChunk *chunk)
{
	int			i = first_from(shard, chunk->place);
	KvShardChunk *at = kv_chunks(shard) + i;

	Assert(LWLockHeldByMeInMode(&shard->lock, LW_EXCLUSIVE));
	Assert(shard->nchunks < shard->chunks_room);
	if (i < shard->nchunks && at->chunk.place == chunk->place)
		elog(ERROR, "value file at %llx is in the list already", (unsigned long long) chunk->place);
	memmove(at + 1, at, (shard->nchunks - i) * sizeof(KvShardChunk));
	memset(at, 0, sizeof(*at));
	at->chunk = *chunk;
	at->share = chunk->used;
	shard->nchunks++;
	shard->value_bytes += chunk->used;
	return at;
}

void
kv_chunk_divide(KvShard *shard, KvShardChunk *chunk, uint64 share)
{
	Assert(LWLockHeldByMeInMode(&shard->lock, LW_EXCLUSIVE));
	shard->value_bytes -= Min(shard->value_bytes, kv_chunk_taken(shard, chunk));
	chunk->chunk.flags |= KV_CHUNK_SHARED;
	chunk->share = share;
	shard->value_bytes += kv_chunk_taken(shard, chunk);
	chunk->counted = kv_chunk_taken(shard, chunk);
}

void
kv_chunk_grown(KvShard *shard, KvShardChunk *chunk, int64 bytes)
{
	shard->value_bytes += bytes;
	if (chunk->chunk.flags & KV_CHUNK_SHARED)
		chunk->share += Max(bytes, -(int64) chunk->share);
}

void
kv_chunk_open(KvShard *shard, KvShardChunk *chunk, uint64 allocated)
{
	kv_chunk_close(shard);
	chunk->chunk.flags &= ~KV_CHUNK_SYNCED;
	shard->open_place = chunk->chunk.place;
	shard->value_tail = chunk->chunk.place + chunk->chunk.used;
	shard->value_allocated = Max(chunk->chunk.place + allocated, shard->value_tail);
}

void
kv_chunk_close(KvShard *shard)
{
	if (shard->open_place != 0)
		kv_chunk_find(shard, shard->open_place)->chunk.used = shard->value_tail - shard->open_place;
	shard->open_place = shard->value_tail = shard->value_allocated = 0;
}

void
kv_tail_move(KvStore *store, KvShard *shard, int64 bytes)
{
	Assert(LWLockHeldByMeInMode(&shard->lock, LW_EXCLUSIVE) && shard->open_place != 0);
	shard->value_tail += bytes;
	kv_chunk_grown(shard, kv_chunk_find(shard, shard->open_place), bytes);
	Assert(shard->value_tail <= shard->value_allocated);
	kv_space_tell(store, shard, bytes);
}

int
kv_chunk_next_class(const KvShard *shard, Size len)
{
	int			class = shard->next_place == 0 ? 0 : kv_class_of(shard->next_place);

	while (class < KV_CHUNK_CLASSES - 1 &&
		   (kv_chunk_size(class) < shard->value_bytes / KV_CHUNKS_WANTED ||
			kv_chunk_size(class) < (uint64) len * 4))
		class++;
	return class;
}

bool
kv_chunks_load(KvShard *shard, const KvManifest *manifest, bool durable)
{
	shard->nchunks = 0;
	shard->value_bytes = shard->written = 0;
	shard->open_place = shard->value_tail = shard->value_allocated = 0;
	shard->next_place = manifest->next_place;
	shard->job = manifest->job;
	if (!kv_chunks_make_room(shard, manifest->nchunks))
		return false;
	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	for (int i = 0; i < manifest->nchunks; i++)
	{
		KvShardChunk *chunk = kv_chunk_add(shard, &manifest->chunks[i]);

		chunk->believed = chunk->counted = chunk->chunk.used;
		if (!(chunk->chunk.flags & KV_CHUNK_SORTED))
			shard->written += (chunk->chunk.flags & KV_CHUNK_SHARED) ?
				Min(chunk->chunk.live, chunk->chunk.used) : chunk->chunk.used;
		if (durable)
			chunk->chunk.flags |= KV_CHUNK_SYNCED | KV_CHUNK_NAMED;
	}
	if (manifest->open_place != 0 && kv_chunk_find(shard, manifest->open_place) != NULL)
		kv_chunk_open(shard, kv_chunk_find(shard, manifest->open_place), 0);
	LWLockRelease(&shard->lock);
	return true;
}

void
kv_chunks_use(KvShard *shard, const KvManifest *other)
{
	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	for (int i = 0; i < other->nchunks; i++)
	{
		const KvChunk *theirs = &other->chunks[i];
		KvShardChunk *ours = kv_chunk_find(shard, theirs->place);

		if (ours == NULL || theirs->used <= kv_chunk_end(shard, ours) - theirs->place)
			continue;
		kv_chunk_grown(shard, ours, theirs->place + theirs->used - kv_chunk_end(shard, ours));
		ours->chunk.used = theirs->used;
		if (kv_chunk_is_open(shard, ours))
		{
			shard->value_tail = theirs->place + theirs->used;
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
	manifest->next_place = shard->next_place;
	manifest->open_place = shard->open_place;
	manifest->nchunks = shard->nchunks;
	manifest->chunks = palloc(Max(shard->nchunks, 1) * sizeof(KvChunk));
	for (int i = 0; i < shard->nchunks; i++)
	{
		const KvShardChunk *chunk = &kv_chunks(shard)[i];

		manifest->chunks[i] = chunk->chunk;
		manifest->chunks[i].used = kv_chunk_end(shard, chunk) - chunk->chunk.place;

		/* after a restart nobody knows any more what there was to doubt, or has died since */
		if (chunk->chunk.flags & KV_CHUNK_DOUBTFUL)
			manifest->chunks[i].live = KV_NOT_KNOWN;
		else if (chunk->chunk.live != KV_NOT_KNOWN)
			manifest->chunks[i].live = kv_chunk_live(shard, chunk);

		/* its logs are still to be read again, and with the same doubts */
		if (shard->files.flags & KV_MANIFEST_SALVAGE)
			manifest->chunks[i].used = chunk->believed;
	}
}

void
kv_chunk_note_log(KvShard *shard, KvAddress address, uint32 log_number)
{
	KvShardChunk *chunk = kv_chunk_find(shard, address);

	if (chunk == NULL || chunk->chunk.last_log >= log_number)
		return;

	/* what was counted is not all any more; what was dead then stays so */
	chunk->chunk.last_log = log_number;
	if (chunk->chunk.live != KV_NOT_KNOWN)
		chunk->dead_then = chunk->counted - Min(chunk->chunk.live, chunk->counted);
	chunk->chunk.live = KV_NOT_KNOWN;
}

void
kv_chunk_note_dead(KvStore *store, KvShard *shard, const KvVersion *version, uint64 xid)
{
	KvShardChunk *chunk = kv_chunk_find(shard, KV_LOCATION_ADDRESS(version->location));
	uint64		bytes = kv_value_footprint(version->len) * Max(shard->padding, 256) / 256;

	Assert(LWLockHeldByMeInMode(&shard->lock, LW_EXCLUSIVE));
	if (chunk == NULL)
		return;
	chunk->dead_since += bytes;
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
kv_chunk_live(const KvShard *shard, const KvShardChunk *chunk)
{
	uint64		used = kv_chunk_end(shard, chunk) - chunk->chunk.place;
	uint64		taken = kv_chunk_taken(shard, chunk);
	uint64		live = chunk->chunk.live == KV_NOT_KNOWN ?
		taken - Min(taken, chunk->dead_then) : Min(chunk->chunk.live, used);

	return live - Min(live, chunk->dead_since);
}

bool
kv_chunk_may_be_input(const KvShard *shard, const KvShardChunk *chunk, uint64 horizon)
{
	return !kv_chunk_is_open(shard, chunk) && chunk->newest_writer < horizon &&
		chunk->chunk.last_log < shard->files.first_log;
}

void
kv_chunks_free(KvShard *shard)
{
	if (DsaPointerIsValid(shard->chunks))
		dsa_free(kv_area(), shard->chunks);
	shard->chunks = InvalidDsaPointer;
	shard->nchunks = shard->chunks_room = 0;
}
