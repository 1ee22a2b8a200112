/*
 * space.c
 *		The space that the values of a store take, by its lists of value files; the space limit.
 *
 * With L live bytes, a store is compacted from L + 0.93 (a - 1) L bytes on, down to L + 0.9 (a - 1)
 * L.  Where K is larger than three quarters of (a - 1) L, the marks are about L + K + (a - 1) L /
 * 5. Between start and limit, writers take space until a compaction has made some.
 *
 * Value files are emptied whole, and the open one is not emptied, so each shard gets an allowance:
 * the size of its next value file.  The constant c is this for all shards, and what one compaction
 * job moves, which exists twice until the emptied files are removed.  A job moves a tenth of a
 * shard, at most 256 MB, or one value file.  If the index is larger than that, a job moves as much
 * as the index has, up to a quarter of the shard's live bytes.
 *
 * Obsolete files that wait for a backup do not count, since no compaction helps.  At level 'keys'
 * obsolete files wait for a checkpoint.  Beyond twice the amount that requests a checkpoint they
 * count, so that writers wait for the next one, which then starts at once.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "engine/base/types.h"
#include "engine/base/wait.h"
#include "engine/format/format.h"
#include "engine/io/fault.h"
#include "engine/maintenance.h"
#include "engine/shard/map.h"
#include "engine/shard/obsolete.h"
#include "engine/shard/shard.h"
#include "engine/shard/space.h"
#include "engine/shard/valuefiles.h"
#include "engine/xact/xact.h"

/* compacting pays if at least one byte of a value file in so many is dead */
#define KV_PAYS_SHARE	20
#define KV_JOB_SHARE	10		/* one job moves this part of a shard */
#define KV_JOB_VALUE_FILES	64	/* at most this many of the smallest value files */
/* estimated bytes of the index for each entry: a job moves as much as the index has */
#define KV_ENTRY_BYTES	48
#define KV_INDEX_SHARE	4		/* at most this part of the values is moved because of the index */
/* in a shard that has not shrunk, no value file is more; see KV_VALUE_FILES_WANTED */
#define KV_GRAIN_SHARE	6
/* part of a grain for write buffers that are being filled when writers begin to wait */
#define KV_BUFFERS_SHARE	4
/* a store is compacted down to this share of the allowed dead bytes */
#define KV_STOP_SHARE	0.90
#define KV_SPACE_NAP_MS 50
#define KV_COUNT_MS		20		/* maximum age of the account for a writer that waits */
#define KV_COUNT_FIRST_MS 1		/* maximum age of the account for a writer that begins to wait */
/* the next count starts after so many times the duration of the last one */
#define KV_COUNT_SHARE	10
#define KV_AWAITED_MS	250
/* so many obsolete files of the smallest size request a checkpoint */
#define KV_OBSOLETE_FILES 64
/* obsolete files that are such a part of the store request a checkpoint */
#define KV_OBSOLETE_SHARE 10

/* no writer waits for a compactor without progress for so long */
static int	beat_ms = 60000;
/* no writer waits longer for one write buffer; only tests change it */
static int	most_ms = 60000;

const char *const kv_space_wait_names[] = {
	[KV_SPACE_WAITS_NOT] = NULL,
	[KV_SPACE_WAITS_FOR_SNAPSHOT] = "snapshot",
	[KV_SPACE_WAITS_FOR_BACKUP] = "backup",
	[KV_SPACE_WAITS_FOR_DISK] = "disk",
	[KV_SPACE_WAITS_FOR_RELEASE] = "release",
	[KV_SPACE_WAITS_FOR_RETRY] = "retry",
	[KV_SPACE_WAITS_FOR_DAMAGE] = "damage",
};

void
kv_space_gucs(void)
{
	kv_account_gucs();
#ifdef KVFDW_FAULTS
	DefineCustomIntVariable("kvfdw.test_space_beat",
							"Sets how long a writer waits for a compactor that makes no progress.",
							"For tests only.",
							&beat_ms, 60000, 1, INT_MAX, PGC_SUSET, GUC_UNIT_MS,
							NULL, NULL, NULL);
	DefineCustomIntVariable("kvfdw.test_space_most",
							"Sets how long a writer waits for one write buffer.",
							"For tests only.",
							&most_ms, 60000, 1, INT_MAX, PGC_SUSET, GUC_UNIT_MS,
							NULL, NULL, NULL);
#endif
}

/* ---- counting ---- */

bool
kv_space_pays(uint64 used, uint64 live)
{
	return used > live && (live == 0 || used - live > Max(used / KV_PAYS_SHARE, KV_BLOCK));
}

/*
 * Sets the size of a job.  A job is short, but rewrites the whole index and so must be worth that.
 * It empties at least one value file.  Lock held.
 */
static void
measure(const KvShard *shard, KvShardSpace *space)
{
	uint64		entries = shard->files.frozen_keys + shard->files.unfrozen_entries;
	uint64		value_file = kv_value_file_size(kv_value_file_next_class(shard, 0));
	uint64		part = Min(space->taken / KV_JOB_SHARE, KV_JOB_VALUE_FILES * kv_value_file_size(0));
	uint64		index = Min(entries * KV_ENTRY_BYTES, space->live / KV_INDEX_SHARE);

	space->grain = Max(Min(value_file, space->taken / KV_GRAIN_SHARE), kv_value_file_size(0));
	space->job = Max(Max(part, index), Max(Min(value_file, space->taken), kv_value_file_size(0)));
}

bool
kv_space_pays_open(uint64 used, uint64 live)
{
	return live <= used / 2 && kv_space_pays(used, live);
}

void
kv_shard_space(KvStore *store, uint32 shard_id, uint64 horizon, KvShardSpace *space)
{
	KvShard    *shard = kv_shard(store, shard_id);
	bool		resolved;
	uint64		kept = 0;
	uint64		dead;

	memset(space, 0, sizeof(*space));
	if (shard->values.n == 0)
		return;
	LWLockAcquire(&shard->lock, LW_SHARED);
	resolved = shard->count.uncertain_until <= horizon;
	for (int i = 0; i < shard->values.n; i++)
	{
		const KvShardValueFile *value_file = &kv_value_files(shard)[i];
		uint64		used = kv_value_file_taken(shard, value_file);
		uint64		live = kv_value_file_live(shard, value_file);

		/* it was not written to after its entries came to runs */
		bool		covered = value_file->value_file.last_log < shard->files.first_log;

		/* an unreadable value keeps its value file */
		if ((value_file->value_file.flags & KV_VALUE_FILE_DAMAGED) && live > 0)
		{
			space->stuck += used - live;
			live = used;
		}
		space->taken += used;
		space->live += live;
		if (!(value_file->value_file.flags & KV_VALUE_FILE_SORTED))
			space->unsorted += live;
		if (covered && value_file->value_file.live == KV_NOT_KNOWN)
			space->uncertain += live;
		if (value_file->newest_writer >= horizon)
			kept += used - Min(live, used);
		else if (!kv_value_file_is_open(shard, value_file))
			space->to_win += kv_space_pays(used, live) ? used - live : 0;
		else if (covered && kv_space_pays_open(used, live))
			space->to_win_open = used - live;
	}
	measure(shard, space);
	space->to_win += space->to_win_open;
	if (shard->compact.failed)
	{
		space->failed = space->to_win;
		space->live += space->failed;
	}
	dead = space->taken - Min(space->live, space->taken);
	space->kept = Min(kept + kv_dying_kept(&shard->count.dying, horizon), dead);
	if (!shard->compact.failed)
		space->to_win = Min(space->to_win, dead - space->kept);
	if (resolved)
		space->uncertain += Min(shard->count.uncertain, space->live - space->uncertain);
	else
		space->held = Min(shard->count.uncertain, space->live - space->uncertain);
	space->uncertain += Min(shard->count.redone, space->live - space->uncertain - space->held);
	LWLockRelease(&shard->lock);
}

uint64
kv_space_start(const KvStoreSpace *space, uint64 live)
{
	return space->amp == 0 ? PG_UINT64_MAX :
		kv_space_mark(space->amp, KV_START_SHARE, live, space->all.kept, space->all.grain / 2);
}

uint64
kv_space_start_unkept(const KvStoreSpace *space, uint64 live)
{
	return space->amp == 0 ? PG_UINT64_MAX
		: kv_space_mark(space->amp, KV_START_SHARE, live, 0, space->all.grain / 2);
}

uint64
kv_space_wants_checkpoint(const KvStoreSpace *space)
{
	return Max(KV_OBSOLETE_FILES * kv_value_file_size(0), space->all.taken / KV_OBSOLETE_SHARE);
}

/*
 * Adds obsolete files and files being written to the counts.  Bytes set aside for manual and sort
 * jobs stay so until these jobs have ended and the files that they have emptied are freed.
 */
static void
add_what_goes(KvStore *store, KvStoreSpace *space)
{
	uint64		unbounded = pg_atomic_read_u64(&store->space.unbounded);
	uint64		aside = pg_atomic_read_u64(&store->space.aside);

	space->obsolete += pg_atomic_read_u64(&store->space.freeing);
	if (store->shape.wal == KV_WAL_KEYS)
	{
		space->obsolete += space->obsolete_longer;
		space->granted = Min(space->obsolete, 2 * kv_space_wants_checkpoint(space));
		space->obsolete -= space->granted;
	}
	space->given_up = Min(pg_atomic_read_u64(&store->space.given_up), space->obsolete);
	space->obsolete -= space->given_up;
	space->moving = pg_atomic_read_u64(&store->space.moving) + unbounded;
	space->aside = Min(aside, unbounded + space->obsolete);
	if (space->aside < aside)
		(void) pg_atomic_compare_exchange_u64(&store->space.aside, &aside, space->aside);
}

void
kv_store_space(KvStore *store, KvStoreSpace *space)
{
	uint64		horizon = kv_xid_horizon();
	KvObsoleteBytes obsolete;

	memset(space, 0, sizeof(*space));
	space->amp = kv_space_amp(store);
	pg_atomic_write_u64(&store->space.horizon, horizon);
	kv_each_shard(store, i)
	{
		KvShardSpace one;

		kv_shard_space(store, i, horizon, &one);
		space->all.taken += one.taken;
		space->all.live += one.live;
		space->all.uncertain += one.uncertain;
		space->all.to_win += one.to_win;
		space->all.unsorted += one.unsorted;
		space->all.grain += one.grain;
		space->all.job = Max(space->all.job, one.job);
		space->all.held += one.held;
		space->all.kept += one.kept;
		space->all.stuck += one.stuck;
		space->all.failed += one.failed;
	}
	obsolete = kv_obsolete_bytes(store, PG_UINT64_MAX);
	space->obsolete = obsolete.bytes[KV_WAITS_FOR_NOTHING] + obsolete.bytes[KV_WAITS_FOR_MARK];
	space->obsolete_longer = obsolete.bytes[KV_WAITS_FOR_CHECKPOINT];
	add_what_goes(store, space);
	if (space->amp == 0)
	{
		space->start = space->stop = space->bound = PG_UINT64_MAX;
		return;
	}
	space->start = kv_space_start(space, space->all.live);
	space->stop = kv_space_mark(space->amp, KV_STOP_SHARE, space->all.live, space->all.kept,
								space->all.grain / 4);
	space->bound = kv_space_mark(space->amp, 1, space->all.live, space->all.kept,
						  space->all.grain + space->all.job + space->aside);
}

/* ---- updating the account ---- */

void
kv_space_count(KvStore *store, KvStoreSpace *space)
{
	KvSpaceAccount *account = &store->account;
	int64		taken;
	uint64		dead;

	SpinLockAcquire(&account->mutex);
	taken = account->told_taken;
	dead = account->told_dead;
	SpinLockRelease(&account->mutex);
	kv_store_space(store, space);
	KV_STOP_POINT("space_counted");
	SpinLockAcquire(&account->mutex);
	account->taken = space->all.taken + Max(account->told_taken - taken, 0);
	account->live = (int64) space->all.live - (int64) (account->told_dead - dead);
	account->obsolete = space->obsolete;
	account->moving = space->moving;
	account->job = space->all.job;
	account->kept = space->all.kept;
	account->start_slack = space->all.grain / 2;
	account->bound_slack = space->all.grain - space->all.grain / KV_BUFFERS_SHARE + space->all.job +
		space->aside;
	SpinLockRelease(&account->mutex);
}

uint64
kv_space_taken(KvStore *store)
{
	const volatile KvSpaceAccount *account = &store->account;
	KvStoreSpace space;

	/* positive for any value file; an exact count is too slow for readers of each value */
	if (account->job > 0)
		return Max(account->taken, 0);
	kv_space_count(store, &space);
	return space.all.taken;
}

/* ---- waiting writers ---- */

/*
 * Is the store short of space by an account that is at most so old?  Counts again if needed, unless
 * another writer has begun to.
 */
static bool
is_really_short(KvStore *store, int ms)
{
	TimestampTz now = kv_clock();
	KvStoreSpace space;
	bool		mine;

	SpinLockAcquire(&store->account.mutex);
	mine = now - store->account.counted >=
		Max(ms * INT64CONST(1000), store->account.count_took * KV_COUNT_SHARE);
	if (mine)
		store->account.counted = now;
	SpinLockRelease(&store->account.mutex);
	if (mine)
	{
		kv_space_count(store, &space);
		SpinLockAcquire(&store->account.mutex);
		store->account.count_took = Max(kv_clock() - now, 0);
		SpinLockRelease(&store->account.mutex);
	}
	return kv_space_is_short(store);
}

bool
kv_space_is_awaited(void)
{
	TimestampTz now = kv_clock();
	TimestampTz awaited = pg_atomic_read_u64(&kv_compactor->awaited);

	return now - awaited < KV_AWAITED_MS * INT64CONST(1000);
}

bool
kv_space_wait(KvStore *store, TimestampTz *begin)
{
	uint32		beat = pg_atomic_read_u32(&store->space.beat);
	TimestampTz since = kv_clock();
	bool		waited = false;
	bool		made = true;

	ConditionVariablePrepareToSleep(&store->space.made);
	while (made && is_really_short(store, waited ? KV_COUNT_MS : KV_COUNT_FIRST_MS))
	{
		TimestampTz now = kv_clock();
		uint32		beat_now = pg_atomic_read_u32(&store->space.beat);

		CHECK_FOR_INTERRUPTS();
		if (*begin == 0)
		{
			kv_stat_add(store, KV_COUNT_SPACE_WAITS, 1);
			*begin = now;
		}
		waited = true;
		pg_atomic_write_u64(&kv_compactor->awaited, now);
		kv_space_ask(store);
		if (beat_now != beat)
			since = now;
		else if (TimestampDifferenceExceeds(since, now, beat_ms))
			/* for all writers, until the next beat */
			pg_atomic_write_u32(&store->space.stalled, beat_now);
		beat = beat_now;
		made = !TimestampDifferenceExceeds(*begin, now, most_ms);
		if (made)
			(void) ConditionVariableTimedSleep(&store->space.made, KV_SPACE_NAP_MS, KV_WAIT_SPACE);
	}
	ConditionVariableCancelSleep();
	if (waited)
		ConditionVariableSignal(&store->space.made);	/* there may be space for another writer */
	return made;
}
