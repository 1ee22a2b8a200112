/*
 * retired.c
 *		Chunks that have left the list of their shard, until their files can go.
 *
 * A merge of all runs counts what it emits, by chunk.  A compaction input (kv_chunk_may_be_input) of
 * which nothing was emitted leaves the list with the manifest of that merge: no entry names
 * it, and none ever will (I 15).  It is retired, because others may still need its file:
 *
 *	- an image that was captured before lists it, and a shard that is set back to that
 *	  needs it.  So the file stays until an image is durable that was captured later.
 *	- a base backup is being taken: its copy begins at an older image.
 *	- at level 'keys' the WAL has BATCH records that name places in it.  Redo puts their
 *	  entries on top of the image's, which name the places to which the values were moved.
 *	  So it stays until a checkpoint is complete whose redo pointer is behind the end that
 *	  the WAL had when the chunk retired: no redo begins before that any more.
 *	- a transaction that has not committed may have put values into it that were moved
 *	  since; at level 'keys' its BATCH names the old places.  So a retired chunk is synced
 *	  like one in the list until it has been for good.
 *
 * The list of retired chunks is lost when the server ends.  Where stores begin at their
 * images nothing is missed: what the image lists is in the list, the rest is swept when
 * recovery, or redo, has ended.  At level 'none' the manifest counts; what the newest image
 * lists beyond that is retired again, and waits for the next one.
 *
 * Readers pin nothing: who meets a value whose chunk is gone looks its key up again (I 16).
 */
#include "postgres.h"

#include "access/transam.h"

#include "engine/base/area.h"
#include "engine/base/types.h"
#include "engine/format/format.h"
#include "engine/shard/shard.h"
#include "engine/value/value.h"
#include "engine/xact/xact.h"

#define KV_RETIRED_FIRST	4		/* room in the first list */

const char *const kv_retired_wait_names[] = {
	[KV_WAITS_FOR_NOTHING] = "nothing",
	[KV_WAITS_FOR_IMAGE] = "image",
	[KV_WAITS_FOR_CHECKPOINT] = "checkpoint",
	[KV_WAITS_FOR_BACKUP] = "backup",
};

/* ---- counting ---- */

/* The first count from a place on. */
static int
first_from(const KvCounts *counts, KvAddress place)
{
	StaticAssertStmt(offsetof(KvChunkCount, place) == 0, "an item begins with its place");
	return kv_first_from(counts->chunks, sizeof(KvChunkCount), counts->n, place);
}

KvCounts *
kv_counts_begin(const KvShard *shard)
{
	KvCounts   *counts = palloc0(sizeof(KvCounts));

	counts->doubtful_until = U64FromFullTransactionId(ReadNextFullTransactionId());
	counts->redone = shard->redone_bytes;
	counts->died = shard->dying.sum;
	counts->countings = shard->countings;
	counts->n = shard->nchunks;
	counts->room = shard->nchunks + 8;
	counts->chunks = palloc0(counts->room * sizeof(KvChunkCount));
	for (int i = 0; i < shard->nchunks; i++)
	{
		counts->chunks[i].place = kv_chunks(shard)[i].chunk.place;
		counts->chunks[i].dead_since = kv_chunks(shard)[i].dead_since;
	}
	return counts;
}

KvChunkCount *
kv_counts_find(const KvCounts *counts, KvAddress address)
{
	KvAddress	place = kv_file_of(address).place;
	int			i = first_from(counts, place);

	return i < counts->n && counts->chunks[i].place == place ? &counts->chunks[i] : NULL;
}

void
kv_counts_add(KvCounts *counts, KvLocation location, uint32 len, bool doubtful)
{
	KvAddress	place = kv_file_of(KV_LOCATION_ADDRESS(location)).place;
	uint64		end;
	int			i = counts->last;

	if (len == 0)
		return;
	if (i >= counts->n || counts->chunks[i].place != place)
		i = first_from(counts, place);
	if (i == counts->n || counts->chunks[i].place != place)
	{
		/* one that is not in the list yet */
		if (counts->n == counts->room)
		{
			counts->room *= 2;
			counts->chunks = repalloc(counts->chunks, counts->room * sizeof(KvChunkCount));
		}
		memmove(&counts->chunks[i + 1], &counts->chunks[i], (counts->n - i) * sizeof(KvChunkCount));
		memset(&counts->chunks[i], 0, sizeof(KvChunkCount));
		counts->chunks[i].place = place;
		counts->n++;
	}
	counts->chunks[i].refs++;
	end = kv_value_position(counts->tail, len) + len;
	counts->chunks[i].live += end - counts->tail;
	counts->tail = end;
	counts->footprint += kv_value_footprint(len);
	if (doubtful)
	{
		counts->doubtful += len;
		counts->chunks[i].doubtful = true;
	}
	counts->last = i;
}

/* ---- leaving the list ---- */

/* Without the shard's lock; false: there is no memory. */
static bool
grow(KvShard *shard, int room)
{
	return kv_shard_list_grow(shard, &shard->retired, sizeof(KvRetired), &shard->nretired,
							  &shard->retired_room, Max(KV_RETIRED_FIRST, room));
}

bool
kv_retired_reserve(KvShard *shard, int n)
{
	int			need;
	int			room;

	LWLockAcquire(&shard->lock, LW_SHARED);
	need = shard->nretired + n;
	room = shard->retired_room;
	LWLockRelease(&shard->lock);
	return need <= room || grow(shard, Max(need, room * 2));
}

bool
kv_retired_make_room(KvShard *shard)
{
	int			inputs = 0;

	LWLockAcquire(&shard->lock, LW_SHARED);
	for (int i = 0; i < shard->nchunks; i++)
		inputs += (kv_chunks(shard)[i].chunk.flags & KV_CHUNK_INPUT) != 0;
	LWLockRelease(&shard->lock);
	return kv_retired_reserve(shard, inputs);
}

void
kv_counts_apply(KvCounts *counts, const KvShard *shard, uint64 horizon, KvManifest *manifest)
{
	int			room = shard->retired_room - shard->nretired;
	int			n = 0;

	Assert(LWLockHeldByMe(unconstify(LWLock *, &shard->lock)));
	for (int i = 0; i < manifest->nchunks; i++)
	{
		const KvShardChunk *chunk = kv_chunk_find(shard, manifest->chunks[i].place);
		KvChunkCount *count = kv_counts_find(counts, manifest->chunks[i].place);

		/* what is in logs that the runs do not cover was not counted */
		if (chunk != NULL && count != NULL && !kv_chunk_is_open(shard, chunk) &&
			chunk->chunk.last_log < manifest->files.first_log)
		{
			manifest->chunks[i].live = count->doubtful ? KV_NOT_KNOWN : count->live;
			count->leaves = count->refs == 0 && (chunk->chunk.flags & KV_CHUNK_INPUT) &&
				chunk->newest_writer < horizon && room > 0;
			if (count->leaves)
			{
				count->shared = (chunk->chunk.flags & KV_CHUNK_SHARED) != 0;
				count->used = kv_chunk_end(shard, chunk) - chunk->chunk.place;
				room--;
				continue;
			}
		}
		manifest->chunks[n++] = manifest->chunks[i];
	}
	manifest->nchunks = n;
}

/* So much of a chunk is live. */
static void
take_count(const KvShard *shard, KvShardChunk *chunk, const KvChunkCount *count)
{
	chunk->counted = kv_chunk_taken(shard, chunk);
	chunk->chunk.live = count->live;
	chunk->chunk.flags &= ~KV_CHUNK_DOUBTFUL;
	if (count->doubtful)
		chunk->chunk.flags |= KV_CHUNK_DOUBTFUL;
}

/* What had died when counting began was not counted as live; another count may have said so already. */
static void
forget_dead(const KvShard *shard, KvShardChunk *chunk, const KvCounts *counts,
			const KvChunkCount *count)
{
	if (shard->countings == counts->countings)
		chunk->dead_since -= Min(chunk->dead_since, count->dead_since);
}

/* All of it was counted. */
static void
take_counts(KvShard *shard, const KvCounts *counts)
{
	shard->doubtful_bytes = counts->doubtful;
	shard->doubtful_until = counts->doubtful_until;
	if (shard->countings == counts->countings)
		shard->redone_bytes -= Min(shard->redone_bytes, counts->redone);
	shard->countings++;
	kv_dying_counted(&shard->dying, counts->died);
	if (counts->footprint > 0)
		shard->padding = Min(counts->tail * 256 / counts->footprint, 65536);
}

void
kv_counts_note(KvShard *shard, const KvCounts *counts, const KvChunk *chunks, int n)
{
	for (int i = 0; i < n; i++)
	{
		KvShardChunk *chunk = kv_chunk_find(shard, chunks[i].place);
		const KvChunkCount *count = kv_counts_find(counts, chunks[i].place);

		if (chunk != NULL && count != NULL)
			take_count(shard, chunk, count);
	}
}

void
kv_counts_note_runs(KvShard *shard, const KvCounts *counts, uint32 first_log)
{
	Assert(LWLockHeldByMeInMode(&shard->lock, LW_EXCLUSIVE));
	for (int i = 0; i < shard->nchunks; i++)
	{
		KvShardChunk *chunk = &kv_chunks(shard)[i];
		const KvChunkCount *count = kv_counts_find(counts, chunk->chunk.place);

		if (count == NULL || chunk->chunk.last_log >= first_log)
			continue;
		take_count(shard, chunk, count);
		forget_dead(shard, chunk, counts, count);
	}
	take_counts(shard, counts);
}

int
kv_chunks_retire(KvShard *shard, const KvCounts *counts, uint64 lsn)
{
	KvShardChunk *chunks = kv_chunks(shard);
	int			before = shard->nchunks;
	int			n = 0;

	Assert(LWLockHeldByMeInMode(&shard->lock, LW_EXCLUSIVE));
	for (int i = 0; i < before; i++)
	{
		const KvChunkCount *count = kv_counts_find(counts, chunks[i].chunk.place);
		KvRetired  *retired;

		if (count == NULL || !count->leaves)
		{
			if (count != NULL && !kv_chunk_is_open(shard, &chunks[i]) &&
				chunks[i].chunk.last_log < shard->files.first_log)
			{
				take_count(shard, &chunks[i], count);
				forget_dead(shard, &chunks[i], counts, count);
			}
			chunks[n++] = chunks[i];
			continue;
		}
		Assert(shard->nretired < shard->retired_room);
		retired = &kv_retired(shard)[shard->nretired++];
		retired->chunk = chunks[i].chunk;
		retired->chunk.flags &= ~KV_CHUNK_INPUT;

		/* one that is being made may have been captured before */
		retired->until_image = shard->image_number + 1 + (shard->images[KV_IMAGE_NEXT].valid ? 1 : 0);
		retired->lsn = lsn;
		retired->taken = kv_chunk_taken(shard, &chunks[i]);
		shard->value_bytes -= Min(shard->value_bytes, retired->taken);
	}
	shard->nchunks = n;
	take_counts(shard, counts);
	if (n == before)
		return 0;
	shard->image_wanted = true;
	pg_atomic_write_u32(&kv_registry->images_wanted, 1);
	pg_atomic_fetch_add_u32(&kv_registry->retired, before - n);
	return before - n;
}

bool
kv_retired_add(KvShard *shard, const KvChunk *chunk, uint32 until_image)
{
	if (shard->nretired == shard->retired_room && !grow(shard, shard->retired_room * 2))
		return false;
	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	kv_retired(shard)[shard->nretired++] = (KvRetired) {*chunk, until_image, 0, chunk->used};
	shard->image_wanted = true;
	LWLockRelease(&shard->lock);
	pg_atomic_fetch_add_u32(&kv_registry->retired, 1);
	pg_atomic_write_u32(&kv_registry->images_wanted, 1);
	return true;
}

KvRetired *
kv_retired_find(const KvShard *shard, KvAddress address)
{
	KvAddress	place = kv_file_of(address).place;

	for (int i = 0; i < shard->nretired; i++)
	{
		if (kv_retired(shard)[i].chunk.place == place)
			return &kv_retired(shard)[i];
	}
	return NULL;
}

void
kv_retired_remove(KvShard *shard, KvAddress address)
{
	KvRetired  *retired = kv_retired_find(shard, address);

	Assert(LWLockHeldByMeInMode(&shard->lock, LW_EXCLUSIVE));
	if (retired == NULL)
		return;
	*retired = kv_retired(shard)[--shard->nretired];
	pg_atomic_fetch_sub_u32(&kv_registry->retired, 1);
}

void
kv_retired_free(KvShard *shard)
{
	pg_atomic_fetch_sub_u32(&kv_registry->retired, shard->nretired);
	if (DsaPointerIsValid(shard->retired))
		dsa_free(kv_area(), shard->retired);
	shard->retired = InvalidDsaPointer;
	shard->nretired = shard->retired_room = 0;
}

/* ---- what they wait for ---- */

void
kv_image_want(KvShard *shard)
{
	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	shard->image_wanted = true;
	LWLockRelease(&shard->lock);
	pg_atomic_write_u32(&kv_registry->images_wanted, 1);
}

KvRetiredWait
kv_retired_waits_for(const KvStore *store, const KvShard *shard, const KvRetired *retired)
{
	if (store->shape.wal == KV_WAL_KEYS &&
		pg_atomic_read_u64(&kv_registry->checkpoint) < retired->lsn)
		return KV_WAITS_FOR_CHECKPOINT;
	/* where shards have changed, those of others too (shared.c) */
	return shard->image_number < retired->until_image || (store->shape.maps && !kv_map_lets_go(store)) ?
		KV_WAITS_FOR_IMAGE : KV_WAITS_FOR_NOTHING;
}

KvRetiredWait
kv_retired_wait(const KvStore *store, uint32 shardno, uint32 until_image, uint64 *bytes)
{
	KvShard    *shard = kv_shard(store, shardno);
	KvRetiredWait most = KV_WAITS_FOR_NOTHING;

	*bytes = 0;
	if (shard->nretired == 0)
		return most;
	LWLockAcquire(&shard->lock, LW_SHARED);
	for (int i = 0; i < shard->nretired; i++)
	{
		const KvRetired *retired = &kv_retired(shard)[i];

		if (retired->until_image > until_image)
			continue;
		*bytes += retired->taken;
		most = Max(most, kv_retired_waits_for(store, shard, retired));
	}
	LWLockRelease(&shard->lock);
	return *bytes > 0 && kv_backups_run() ? KV_WAITS_FOR_BACKUP : most;
}

uint32
kv_retired_until(KvShard *shard)
{
	uint32		until = 0;

	LWLockAcquire(&shard->lock, LW_SHARED);
	for (int i = 0; i < shard->nretired; i++)
		until = Max(until, kv_retired(shard)[i].until_image);
	LWLockRelease(&shard->lock);
	return until;
}

bool
kv_retired_wants_image(const KvShard *shard)
{
	for (int i = 0; i < shard->nretired; i++)
	{
		if (kv_retired(shard)[i].until_image > shard->image_number)
			return true;
	}
	return false;
}
