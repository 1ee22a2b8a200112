/*
 * space.c
 *		How much space the values of a store take, and how much they may.
 *
 * With L live bytes a store is compacted from 1 + 9/10 (a - 1) times that on, down to
 * 1 + 8/10 (a - 1); between that and the bound is what writers take until a compaction has
 * made room.  Chunks are emptied whole, and the open one is not, so a little is granted to
 * each shard besides: c is the chunk that it makes next for each, and what one compaction moves,
 * which is there twice until it ends: a tenth of a shard, 256 MB at most, or a chunk; where the
 * index is larger than that as much as it has, up to a quarter of the shard's live bytes.
 *
 * What is retired and waits for a checkpoint or a backup does not count: no compaction helps.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

#include "engine/base/types.h"
#include "engine/base/wait.h"
#include "engine/shard/space.h"
#include "engine/xact/xact.h"

#define KV_PAYS_SHARE	20		/* it pays if one byte of a chunk in so many is dead */
#define KV_PASS_SHARE	10		/* one compaction moves so much of a shard, … */
#define KV_PASS_CHUNKS	64		/* … at most so many of the smallest chunks; or … */
#define KV_ENTRY_BYTES	48		/* … as much as its index has, about so much for each entry, … */
#define KV_INDEX_SHARE	4		/* … at most such a part of its values, if that is more */
#define KV_GRAIN_SHARE	6		/* of a shard that has not shrunk no chunk is more; see KV_CHUNKS_WANTED */
#define KV_SPACE_WAIT_MS 100

KvCompactor *kv_compactor = NULL;

static double space_amp = 1.5;

const char *const kv_space_wait_names[] = {
	[KV_SPACE_WAITS_NOT] = NULL,
	[KV_SPACE_WAITS_FOR_SNAPSHOT] = "snapshot",
	[KV_SPACE_WAITS_FOR_BACKUP] = "backup",
	[KV_SPACE_WAITS_FOR_DISK] = "disk",
	[KV_SPACE_WAITS_FOR_RETRY] = "retry",
	[KV_SPACE_WAITS_FOR_DAMAGE] = "damage",
};

void
kv_space_init(void)
{
	pg_atomic_init_u32(&kv_compactor->wanted, 0);
	ConditionVariableInit(&kv_compactor->made);
}

static bool
check_space_amp(double *value, void **extra, GucSource source)
{
	if (*value == 0 || *value >= 1.1)
		return true;
	GUC_check_errdetail("It is 0 or from 1.1 to 10.");
	return false;
}

void
kv_space_gucs(void)
{
	DefineCustomRealVariable("kvfdw.space_amp",
							 "Sets how many bytes the value files of a table may have for each byte of its values.",
							 "Beyond that it is compacted; 0: never.",
							 &space_amp, 1.5, 0, 10,
							 PGC_SIGHUP, 0, check_space_amp, NULL, NULL);
}

/* ---- how much there is ---- */

bool
kv_space_pays(uint64 used, uint64 live)
{
	return used > live && (live == 0 || used - live > Max(used / KV_PAYS_SHARE, KV_BLOCK));
}

/* A pass is short, but pays for rewriting the index (all of it, each time), and empties one chunk at least.  Lock held. */
static void
measure(const KvShard *shard, KvShardSpace *space)
{
	uint64		entries = shard->files.frozen_keys + shard->files.unfrozen_entries;
	uint64		chunk = kv_chunk_size(kv_chunk_next_class(shard, 0));
	uint64		part = Min(space->taken / KV_PASS_SHARE, KV_PASS_CHUNKS * kv_chunk_size(0));
	uint64		index = Min(entries * KV_ENTRY_BYTES, space->live / KV_INDEX_SHARE);

	space->grain = Max(Min(chunk, space->taken / KV_GRAIN_SHARE), kv_chunk_size(0));
	space->pass = Max(Max(part, index), Max(Min(chunk, space->taken), kv_chunk_size(0)));
}

bool
kv_space_pays_open(uint64 used, uint64 live)
{
	return live <= used / 2 && kv_space_pays(used, live);
}

void
kv_shard_space(KvStore *store, uint32 shardno, uint64 horizon, KvShardSpace *space)
{
	KvShard    *shard = kv_shard(store, shardno);
	bool		settled;

	memset(space, 0, sizeof(*space));
	if (shard->nchunks == 0)
		return;
	LWLockAcquire(&shard->lock, LW_SHARED);
	settled = shard->doubtful_until <= horizon;
	for (int i = 0; i < shard->nchunks; i++)
	{
		const KvShardChunk *chunk = &kv_chunks(shard)[i];
		uint64		used = kv_chunk_taken(shard, chunk);
		uint64		live = kv_chunk_live(shard, chunk);

		/* nobody has written to it since its entries came to runs */
		bool		covered = chunk->chunk.last_log < shard->files.first_log;

		/* a value that cannot be read keeps it */
		if ((chunk->chunk.flags & KV_CHUNK_DAMAGED) && live > 0)
		{
			space->stuck += used - live;
			live = used;
		}
		space->taken += used;
		space->live += live;
		if (!(chunk->chunk.flags & KV_CHUNK_SORTED))
			space->unsorted += live;
		if (covered && chunk->chunk.live == KV_NOT_KNOWN)
			space->doubtful += live;
		if (!kv_chunk_is_open(shard, chunk))
			space->to_win += kv_space_pays(used, live) ? used - live : 0;
		else if (covered && kv_space_pays_open(used, live))
			space->to_win_open = used - live;
	}
	measure(shard, space);
	space->to_win += space->to_win_open;
	if (shard->pass_failed)
	{
		space->failed = space->to_win;
		space->live += space->failed;
	}
	if (settled)
		space->doubtful += Min(shard->doubtful_bytes, space->live - space->doubtful);
	else
		space->held = Min(shard->doubtful_bytes, space->live - space->doubtful);
	space->doubtful += Min(shard->redone_bytes, space->live - space->doubtful - space->held);
	LWLockRelease(&shard->lock);
}

static double
amp_of(const KvStore *store)
{
	uint32		own = pg_atomic_read_u32(unconstify(pg_atomic_uint32 *, &store->space_amp));

	return own == 0 ? space_amp : (own - 1) / 1000.0;
}

void
kv_store_bound_space(KvStore *store, double amp)
{
	uint32		own = amp < 0 ? 0 : (uint32) (amp * 1000 + 0.5) + 1;

	if (likely(pg_atomic_read_u32(&store->space_amp) == own))
		return;
	pg_atomic_write_u32(&store->space_amp, own);
	pg_atomic_write_u64(&store->space_left, 0);
	kv_space_take(store, 1);
}

static uint64
marked(double amp, double share, uint64 live, uint64 slack)
{
	return live + (uint64) ((amp - 1) * share * live) + slack;
}

uint64
kv_space_start(const KvStoreSpace *space, uint64 live)
{
	return space->amp == 0 ? PG_UINT64_MAX : marked(space->amp, 0.9, live, space->all.grain / 2);
}

void
kv_store_space(KvStore *store, KvStoreSpace *space)
{
	uint64		horizon = kv_xid_horizon();

	memset(space, 0, sizeof(*space));
	space->amp = amp_of(store);
	kv_each_shard(store, i)
	{
		KvShardSpace one;
		KvRetiredWait waits;
		uint64		retired;

		kv_shard_space(store, i, horizon, &one);
		space->all.taken += one.taken;
		space->all.live += one.live;
		space->all.doubtful += one.doubtful;
		space->all.to_win += one.to_win;
		space->all.unsorted += one.unsorted;
		space->all.grain += one.grain;
		space->all.pass = Max(space->all.pass, one.pass);
		space->all.held += one.held;
		space->all.stuck += one.stuck;
		space->all.failed += one.failed;
		waits = kv_retired_wait(store, i, KV_ANY_IMAGE, &retired);
		if (waits <= KV_WAITS_FOR_IMAGE)
			space->retired += retired;
		else if (waits == KV_WAITS_FOR_CHECKPOINT)
			space->retired_longer += retired;
	}
	space->retired += pg_atomic_read_u64(&store->freeing);
	if (space->amp == 0)
	{
		space->start = space->stop = space->bound = PG_UINT64_MAX;
		return;
	}
	space->start = kv_space_start(space, space->all.live);
	space->stop = marked(space->amp, 0.8, space->all.live, space->all.grain / 4);
	space->bound = marked(space->amp, 1, space->all.live, space->all.grain + space->all.pass);
}

/* As an int64. */
static uint64
left_of(uint64 mark, uint64 taken)
{
	return mark == PG_UINT64_MAX ? PG_INT64_MAX : mark - taken;
}

void
kv_space_count_from(KvStore *store, const KvStoreSpace *space)
{
	uint64		taken = space->all.taken;

	pg_atomic_write_u64(&store->space_left, left_of(space->start, taken));
	pg_atomic_write_u64(&store->space_bound_left, left_of(space->bound, taken + space->retired));
}

void
kv_space_answer(KvStore *store, bool makes_room)
{
	pg_atomic_write_u32(&store->space_made, makes_room);
}

void
kv_space_wake_after(KvStore *store, uint64 bytes)
{
	pg_atomic_write_u64(&store->space_left, bytes);
}

/* ---- writers ---- */

void
kv_space_take(KvStore *store, uint64 bytes)
{
	int64		before = (int64) pg_atomic_fetch_sub_u64(&store->space_left, bytes);

	pg_atomic_fetch_sub_u64(&store->space_bound_left, bytes);
	if (before >= 0 && before < (int64) bytes && kv_compactor->latch != NULL)
	{
		pg_atomic_write_u32(&kv_compactor->wanted, 1);
		kv_wake(kv_compactor->latch);
	}
}

void
kv_space_wait(KvStore *store)
{
	TimestampTz until = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), KV_SPACE_WAIT_MS);

	if (!kv_space_is_short(store))
		return;
	kv_stat_add(store, KV_COUNT_SPACE_WAITS, 1);
	ConditionVariablePrepareToSleep(&kv_compactor->made);
	while (kv_space_is_short(store))
	{
		long		left = TimestampDifferenceMilliseconds(GetCurrentTimestamp(), until);

		CHECK_FOR_INTERRUPTS();
		if (left <= 0)
			break;
		(void) ConditionVariableTimedSleep(&kv_compactor->made, left, KV_WAIT_SPACE);
	}
	ConditionVariableCancelSleep();
}
