/*
 * pass.c
 *		One compaction of one shard; compact.h says what it does.
 *
 * Why what a pass does is right whatever happens beside it:
 *
 *	- An entry that names a victim lies in the runs that are walked, for all of them do
 *	  (I 15), and nothing that is written from then on names one.  The flush at the end
 *	  keeps of these runs no more than the walk has seen, for its horizon is the same or later.
 *	- If it meets an entry all the same that names a victim and is not in the relocation file
 *	  it keeps it as it is, and the victim stays: a pass can fail to empty a chunk, never
 *	  lose a value.
 *	- Flushes of others in between emit old locations, which stay good.
 *	- Readers look a key up again if they do not find its value where it was (I 16).
 *
 * The relocation file has a number of its own among the shard's runs, and no manifest names
 * it, so a crash leaves a run that is swept.
 */
#include "postgres.h"

#include <sys/stat.h>

#include "miscadmin.h"
#include "storage/ipc.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "engine/base/progress.h"
#include "engine/base/types.h"
#include "engine/base/wait.h"
#include "engine/compact/internal.h"
#include "engine/shard/space.h"
#include "engine/slot/slot.h"

static const struct config_enum_entry order_options[] = {
	{"idle", KV_ORDER_IDLE, false},
	{"off", KV_ORDER_OFF, false},
	{NULL, 0, false}
};
static int	compact_memory_kb = 64 * 1024;
#ifdef KVFDW_FAULTS
bool		kv_test_passes = false;
#endif

#define KV_UNSORTED_SHARE 8		/* values are in order if fewer than one in so many does not follow the last */

typedef struct KvPass
{
	KvStore    *store;
	uint32		shardno;
	const KvPassPlan *plan;
	uint64		to_move;		/* about so many bytes, which the store's account knows */
	uint64		held;			/* as in KvPassResult … */
	bool		was_sorted;		/* … as this is … */
	bool		gave_up;		/* … and this */
	KvPace		pace;
	KvWalk		walk;
	KvSlice		slice;
	KvOutput	output;
	uint32		number;			/* of the relocation file; 0: none */
	KvMoves		moves;
	KvProgress	outer;			/* what the process was at before */
	bool		done;			/* it went through */
} KvPass;

const char *const kv_pass_phase_names[] = {
	[KV_PASS_NONE] = NULL,
	[KV_PASS_CHOOSE] = "choosing",
	[KV_PASS_MOVE] = "moving",
	[KV_PASS_SWITCH] = "switching",
	[KV_PASS_KEEP] = "caching"
};

void
kv_compact_gucs(void)
{
	DefineCustomIntVariable("kvfdw.compact_memory",
							"Sets how much memory a compaction uses to put values in order.",
							NULL,
							&compact_memory_kb, 64 * 1024, 4 * 1024, 512 * 1024,
							PGC_USERSET, GUC_UNIT_KB, NULL, NULL, NULL);
	DefineCustomEnumVariable("kvfdw.compact_order",
							 "Sets when tables have their values put in the order of keys.",
							 NULL, &kv_compact_order, KV_ORDER_IDLE, order_options,
							 PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("kvfdw.compact_rate",
							"Sets how many megabytes a second a compaction may read and write.",
							"Of those that a table gets by itself; 0: by what else is done.",
							&kv_compact_rate, 0, 0, 100000,
							PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("kvfdw.compact_workers",
							"Number of processes that compact tables by themselves.",
							NULL, &kv_compact_workers, 1, 0, 1,
							PGC_POSTMASTER, 0, NULL, NULL, NULL);
#ifdef KVFDW_FAULTS
	DefineCustomBoolVariable("kvfdw.test_passes",
							 "Makes the maintainer compact all tables all the time, for tests.",
							 NULL, &kv_test_passes, false,
							 PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("kvfdw.test_space_look",
							"How often the compactor looks at all tables.",
							NULL, &kv_look_ms, 10000, 1, INT_MAX, PGC_SIGHUP, GUC_UNIT_MS,
							NULL, NULL, NULL);
	DefineCustomIntVariable("kvfdw.test_space_release",
							"How long files may not go until nobody waits for them.",
							NULL, &kv_release_ms, 10000, 1, INT_MAX, PGC_SIGHUP, GUC_UNIT_MS,
							NULL, NULL, NULL);
#endif
}

/* ---- the role ---- */

/* Wait until nobody compacts the shard, and do it then.  False: it was split meanwhile. */
static bool
become_compactor(KvShard *shard)
{
	bool		mine = false;
	bool		gone = false;

	ConditionVariablePrepareToSleep(&shard->changed);
	for (;;)
	{
		LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
		gone = shard->bounds_since == KV_NOT_IN_MAP;
		mine = !gone && shard->compactor == 0;
		if (mine)
			shard->compactor = MyProcPid;
		else if (!gone)
			kv_shard_await(shard);
		LWLockRelease(&shard->lock);
		if (mine || gone)
			break;
		kv_maintenance_interrupts();
		ConditionVariableTimedSleep(&shard->changed, 1000, KV_WAIT_COMPACT);
	}
	ConditionVariableCancelSleep();
	return mine;
}

static void
set_phase(KvPass *pass, KvPassPhase phase)
{
	kv_shard(pass->store, pass->shardno)->pass_phase = phase;
	kv_progress_phase(kv_pass_phase_names[phase]);
	kv_space_beat(pass->store);
}

/* The pass has ended, in whatever way.  What it leaves is named by a manifest. */
static void
end_pass(KvPass *pass)
{
	KvShard    *shard = kv_shard(pass->store, pass->shardno);

	kv_progress_end(&pass->outer);
	kv_walk_end(&pass->walk);
	if (pass->slice.relocations != NULL)
		kv_run_discard(pass->slice.relocations);
	pass->slice.relocations = NULL;
	if (pass->moves.run != NULL)
		kv_run_close(pass->moves.run);
	pass->moves.run = NULL;
	if (pass->number != 0)
		(void) kv_io_unlink(kv_path_run(&pass->store->key, pass->shardno, pass->number));
	kv_output_end(&pass->output, pass->moves.published);
	kv_space_moved(pass->store, pass->plan->aim == KV_PASS_BOUNDS, pass->to_move);

	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	for (int i = 0; i < shard->nchunks; i++)
		kv_chunks(shard)[i].chunk.flags &= ~KV_CHUNK_VICTIM;
	shard->chunks_promised = 0;
	shard->pass_failed &= !pass->done;
	shard->compactor = 0;
	shard->pass_phase = KV_PASS_NONE;
	LWLockRelease(&shard->lock);
	ConditionVariableBroadcast(&shard->changed);
}

/* After an error, which may have come with a lock held, or at the end of the process. */
static void
end_failed(int code, Datum arg)
{
	LWLockReleaseAll();
	end_pass((KvPass *) DatumGetPointer(arg));
}

/* ---- step 0 ---- */

/* Close the open chunk too, if it pays and there is not enough to win elsewhere. */
static bool
wants_open(const KvPass *pass, const KvCounted *counted)
{
	KvShardSpace space;

	if (counted->open_place == 0 ||
		!kv_pass_pays(pass->plan, counted->open_used, counted->open_live, false))
		return false;
	if (pass->plan->aim != KV_PASS_BOUNDS)
		return true;
	if (!kv_space_pays_open(counted->open_used, counted->open_live))
		return false;
	kv_shard_space(pass->store, pass->shardno, kv_xid_horizon(), &space);
	return space.to_win - space.to_win_open < pass->plan->enough;
}

/* Bytes of the shard's runs. */
static uint64
bytes_of_runs(const KvPass *pass)
{
	KvShard    *shard = kv_shard(pass->store, pass->shardno);
	uint32		numbers[KV_MAX_UNFROZEN + 1];
	uint64		bytes = 0;
	int			n;

	LWLockAcquire(&shard->lock, LW_SHARED);
	n = kv_files_runs(&shard->files, numbers);
	LWLockRelease(&shard->lock);
	for (int i = 0; i < n; i++)
	{
		struct stat info;

		if (stat(kv_path_run(&pass->store->key, pass->shardno, numbers[i]), &info) == 0)
			bytes += info.st_size;
	}
	return bytes;
}

/*
 * So much may be moved by a pass that nobody waits for, lest it fill the file system for all: the
 * old chunks go after the new ones have come, and so do the runs, which are merged; and there is
 * the relocation file.  Less than 0: nothing may be written.
 */
static int64
room_to_move(const KvPass *pass)
{
	uint64		spare = pass->plan->paced ? kv_io_space_to_spare(KV_DIRECTORY) : PG_UINT64_MAX;
	int64		room = (int64) Min(spare, PG_INT64_MAX) - (int64) (2 * bytes_of_runs(pass));

	/* then only runs are written beside the table's other files */
	if (pass->plan->paced && OidIsValid(pass->store->shape.tablespace) && room >= 0)
		room = (int64) Min(kv_io_space_to_spare(kv_path_values(&pass->store->key)), PG_INT64_MAX);
	return room;
}

static void
choose_victims(KvPass *pass)
{
	int64		room = room_to_move(pass);

	pass->slice.nvictims = kv_choose_victims(pass->store, pass->shardno, pass->plan, Max(room, 0),
											 &pass->slice.victims, &pass->to_move);
	kv_space_move(pass->store, pass->plan->aim == KV_PASS_BOUNDS, pass->to_move);
	if (pass->slice.nvictims > 0 && (int64) pass->to_move > room)
		ereport(ERROR,
				(errcode(ERRCODE_DISK_FULL),
				 errmsg("there is not enough disk space to compact shard %u of table %u",
						pass->shardno, pass->store->key.relid),
				 errdetail("%llu bytes are to be moved, and the index is to be written anew; a part of the file system is left to others.",
						   (unsigned long long) pass->to_move),
				 errhint("Check free disk space.")));
}

static uint64
keys_of_runs(const KvShard *shard)
{
	return shard->files.frozen_keys + shard->files.unfrozen_entries;
}

/* The entries of all chunks are in runs, and what is dead in them is known exactly. */
static void
choose(KvPass *pass)
{
	KvShard    *shard = kv_shard(pass->store, pass->shardno);
	KvCounted	counted;

	if (pass->plan->aim == KV_PASS_SORTS && !pass->plan->unless_sorted)
		kv_value_close(pass->store, pass->shardno);
	kv_walk_count(&pass->walk, pass->store, pass->shardno, &pass->pace, &counted);
	if (pass->plan->unless_sorted && counted.near >= counted.pairs - counted.pairs / KV_UNSORTED_SHARE)
	{
		pass->was_sorted = true;
		return;
	}
	if (pass->plan->aim != KV_PASS_COUNTS && wants_open(pass, &counted))
	{
		kv_value_close(pass->store, pass->shardno);
		kv_walk_count(&pass->walk, pass->store, pass->shardno, &pass->pace, &counted);
	}
	pass->held = counted.held;
	pass->moves.written = shard->written;
	if (pass->plan->aim != KV_PASS_COUNTS)
		choose_victims(pass);
	kv_pace_expect(&pass->pace, 2 * pass->to_move + (pass->to_move > 0 ? 2 : 1) * keys_of_runs(shard) * KV_PACE_KEY);
	shard->pass_to_move = pass->to_move;
	shard->pass_moved = 0;
	kv_progress_total(pass->to_move);
	KV_STOP_POINT("compact_chosen");
}

/* ---- steps 1 and 2 ---- */

/* Has a split met the pass? */
static bool
is_to_be_split(const KvPass *pass)
{
	return kv_shard(pass->store, pass->shardno)->split_waits > kv_clock();
}

static bool
gives_way(const KvPass *pass)
{
	return pass->plan->unless_sorted && (kv_pass_gives_way() || is_to_be_split(pass));
}

/* Before a slice is written. */
static void
look_up(KvPass *pass)
{
	kv_pass_interrupts(pass->store);
	kv_space_beat(pass->store);
	kv_shard(pass->store, pass->shardno)->pass_moved = pass->slice.moved;
	kv_progress_done(pass->slice.moved);
	pass->gave_up |= gives_way(pass);
	KV_STOP_POINT("compact_slice");
}

static void
gather(void *arg, KvKey key, const KvVersion *version, bool behind)
{
	KvPass	   *pass = arg;
	KvSlice    *slice = &pass->slice;

	if (pass->gave_up || version->len == 0 || kv_slice_victim(slice, version->location) < 0)
		return;
	while (!kv_slice_add(slice, key, version))
	{
		look_up(pass);
		if (pass->gave_up)
			return;
		kv_slice_write(slice);
	}
}

/* A relocation file without entries, to be written. */
static KvRunWriter *
begin_relocations(KvPass *pass, KvRunIds *ids)
{
	KvShard    *shard = kv_shard(pass->store, pass->shardno);

	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	pass->number = shard->files.next_run++;
	LWLockRelease(&shard->lock);
	kv_store_ids(pass->store, pass->shardno, pass->number, ids);
	ids->unfrozen = true;
	return kv_run_create(kv_path_run(&pass->store->key, pass->shardno, pass->number), ids);
}

/* Keep room in the list for what has been written. */
static void
promise_room(KvPass *pass)
{
	KvShard    *shard = kv_shard(pass->store, pass->shardno);
	bool		room;

	LWLockAcquire(&shard->extend_lock, LW_EXCLUSIVE);
	room = kv_chunks_make_room(shard, pass->output.nchunks);
	if (room)
	{
		LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
		shard->chunks_promised = pass->output.nchunks;
		LWLockRelease(&shard->lock);
	}
	LWLockRelease(&shard->extend_lock);
	if (!room)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("out of shared memory"),
				 errhint("You might need to increase \"kvfdw.delta_memory\".")));
}

static void
move_values(KvPass *pass)
{
	KvSlice    *slice = &pass->slice;
	KvOutput   *output = &pass->output;
	KvRunIds	ids;

	set_phase(pass, KV_PASS_MOVE);
	if (pass->plan->aim == KV_PASS_SORTS)
	{
		output->flags = KV_CHUNK_SORTED;
		pass->moves.pass = kv_shard(pass->store, pass->shardno)->pass + 1;
		output->order = Max(pass->moves.pass % PG_UINT16_MAX, 1);
	}
	slice->store = pass->store;
	slice->shardno = pass->shardno;
	slice->output = output;
	output->expected = pass->to_move;
	slice->pace = &pass->pace;
	kv_slice_begin(slice, (Size) compact_memory_kb * 1024);
	kv_walk_begin(&pass->walk, pass->store, pass->shardno, &pass->pace);
	slice->relocations = begin_relocations(pass, &ids);

	kv_walk(&pass->walk, gather, pass);
	if (slice->nvalues > 0 && !pass->gave_up)
	{
		look_up(pass);
		if (!pass->gave_up)
			kv_slice_write(slice);
	}
	if (pass->gave_up)
		return;

	kv_walk_end(&pass->walk);
	kv_output_finish(output);
	kv_run_finish(slice->relocations);
	slice->relocations = NULL;
	pass->moves.run = kv_run_open(kv_path_run(&pass->store->key, pass->shardno, pass->number), &ids);
	if (pass->moves.run == NULL)
		elog(ERROR, "relocation file %u of shard %u is missing", pass->number, pass->shardno);
	promise_room(pass);
	pass->moves.chunks = output->chunks;
	pass->moves.nchunks = output->nchunks;
	KV_STOP_POINT("compact_written");
}

/* ---- all of them ---- */

/* What has become of the victims. */
static void
look_back(KvPass *pass, KvPassResult *result)
{
	KvShard    *shard = kv_shard(pass->store, pass->shardno);
	const KvSlice *slice = &pass->slice;

	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	for (int i = 0; i < slice->nvictims; i++)
	{
		KvShardChunk *chunk = kv_chunk_find(shard, slice->victims[i].place);

		if (chunk == NULL)
			result->emptied += slice->victims[i].used;
		else
			chunk->chunk.flags |= slice->victims[i].flags & KV_CHUNK_DAMAGED;
	}
	LWLockRelease(&shard->lock);
	result->moved += slice->moved;
	for (int i = 0; i < pass->output.nchunks; i++)
		result->written += pass->output.chunks[i].used;
	kv_stat_add(pass->store, KV_COUNT_PASSES, 1);
	kv_stat_add(pass->store, KV_COUNT_MOVED_BYTES, slice->moved);
}

/* What had no room in the value cache beside its old place.  Nothing moves any more. */
static void
keep(KvPass *pass)
{
	set_phase(pass, KV_PASS_KEEP);
	kv_space_moved(pass->store, pass->plan->aim == KV_PASS_BOUNDS, pass->to_move);
	pass->to_move = 0;
	do
		kv_pass_interrupts(pass->store);
	while (!gives_way(pass) && kv_keep_some(&pass->slice));
}

static void
run_pass(KvPass *pass, KvPassResult *result)
{
	choose(pass);
	if (pass->slice.nvictims > 0)
	{
		if (pass->to_move > 0)
			move_values(pass);
		if (!pass->gave_up)
		{
			set_phase(pass, KV_PASS_SWITCH);
			pass->moves.held = 0;
			kv_pace_flush(&pass->pace, pass->store, pass->shardno, &pass->moves);
			look_back(pass, result);
			pass->held = pass->moves.held;
			keep(pass);
		}
	}
	result->gave_up = pass->gave_up;
	result->held += pass->held;
	result->was_sorted = pass->was_sorted;
}

void
kv_shard_compact(KvStore *store, uint32 shardno, const KvPassPlan *plan, KvPassResult *result)
{
	KvShard    *shard = kv_shard(store, shardno);
	MemoryContext context;
	MemoryContext old;
	KvPass	   *pass;

	if (shard->nchunks == 0)
		return;
	context = AllocSetContextCreate(CurrentMemoryContext, "kvfdw compaction",
									ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(context);
	pass = palloc0(sizeof(KvPass));
	pass->store = store;
	pass->shardno = shardno;
	pass->plan = plan;

	if (!become_compactor(shard))
	{
		MemoryContextSwitchTo(old);
		MemoryContextDelete(context);
		return;
	}
	kv_progress_begin(&pass->outer,
					  plan->aim == KV_PASS_LEAVES ? KV_PROGRESS_MOVE : KV_PROGRESS_COMPACT,
					  store->key.dboid, store->key.relid, shardno, NULL, 0);
	PG_ENSURE_ERROR_CLEANUP(end_failed, PointerGetDatum(pass));
	{
		if (plan->paced)
		{
			kv_pace_begin(&pass->pace, store, shard, plan->aim);
			kv_pace_expect(&pass->pace, 2 * plan->most + 3 * keys_of_runs(shard) * KV_PACE_KEY);
		}
		kv_output_begin(&pass->output, store, shardno);
		set_phase(pass, KV_PASS_CHOOSE);
		run_pass(pass, result);
	}
	PG_END_ENSURE_ERROR_CLEANUP(end_failed, PointerGetDatum(pass));
	pass->done = true;
	end_pass(pass);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
}
