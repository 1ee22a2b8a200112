/*
 * job.c
 *		One compaction job of one shard; compact.h lists its steps.  It reads the runs of the shard
 *		in key order, to count live bytes and to find values to move.
 *
 * Why a job is right whatever other processes do in the meantime:
 *
 * - An entry that names an input is in the walked runs, because all such entries are (I 14), and no
 *   later write names one.  The flush at the end has the same horizon or a later one, so it keeps
 *   of these runs no more than the walk has seen.
 * - If the flush still meets an entry that names an input and is not in the relocation file, it
 *   keeps the entry, and the input stays.  A job can fail to empty a value file, but never lose a
 *   value.
 * - Flushes by others in between emit old locations, which stay valid.
 * - A reader that does not find a value where it was looks the key up again (I 16).
 *
 * The relocation file has a number among the shard's runs, and no edit names it.  So a crash
 * leaves a run file that recovery removes.
 *
 * The runs are those of one moment, kept open; flushes may replace them in the meantime.  The walk
 * decides what is worth copying, with the rules of a flush (flush/survive.h).
 */
#include "postgres.h"

#include <sys/stat.h>

#include "common/hashfn.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "engine/base/error.h"
#include "engine/base/key.h"
#include "engine/base/progress.h"
#include "engine/base/types.h"
#include "engine/base/wait.h"
#include "engine/buffer/buffer.h"
#include "engine/buffer/largevalue.h"
#include "engine/cache/reader.h"
#include "engine/compact/internal.h"
#include "engine/flush/survive.h"
#include "engine/format/format.h"
#include "engine/format/path.h"
#include "engine/io/fault.h"
#include "engine/io/io.h"
#include "engine/io/name.h"
#include "engine/maintenance.h"
#include "engine/shard/shard.h"
#include "engine/shard/space.h"
#include "engine/shard/valuefiles.h"

/* ---- the walk over the runs ---- */

/* The open runs of a shard at one moment. */
typedef struct KvWalk
{
	KvStore    *store;
	uint32		shard_id;
	bool		has_base;
	uint32		base_run;		/* base run of the shard at that moment */
	uint32		first_log;		/* the first log that was not in runs at that moment */
	KvPace	   *pace;
	KvRunMerge	runs;
} KvWalk;

/* Results of a count, in addition to those that the value files store. */
typedef struct KvCounted
{
	uint64		held;			/* as in KvJobResult */
	KvAddress	open_address;	/* the value file that was open, or 0 */
	uint64		open_used;		/* bytes that were used in it */
	uint64		open_live;		/* bytes of these that are live */
	uint64		pairs;			/* values that follow another one in key order */
	uint64		near;			/* of these, values that large requests read (is_near) */
} KvCounted;

/* Opens the present runs of the shard.  False: one was replaced in the meantime. */
static bool
open_runs(KvWalk *walk)
{
	KvShard    *shard = kv_shard(walk->store, walk->shard_id);
	uint32		numbers[KV_MAX_UNFROZEN + 1];
	KvKey		edge = {NULL, 0};
	uint32		generation;
	int			n;

	LWLockAcquire(&shard->lock, LW_SHARED);
	generation = pg_atomic_read_u32(&shard->generation);
	walk->has_base = shard->files.base_run != 0;
	walk->base_run = shard->files.base_run;
	walk->first_log = shard->files.first_log;
	n = kv_files_runs(&shard->files, numbers);
	LWLockRelease(&shard->lock);
	for (int i = 0; i < n; i++)
	{
		const char *path = kv_path_run(&walk->store->key, walk->shard_id, numbers[i]);
		KvRunIds	ids;
		KvRun	   *run;

		kv_store_ids(walk->store, walk->shard_id, numbers[i], &ids);
		run = kv_run_open(path, &ids);
		if (run == NULL && pg_atomic_read_u32(&shard->generation) != generation)
			return false;
		if (run == NULL)
			kv_io_raise_missing(path);
		kv_merge_add(&walk->runs, run, edge, false);
	}
	return true;
}

/* Never raises. */
static void
end_walk(KvWalk *walk)
{
	while (walk->runs.nheads > 0)
		kv_run_close(walk->runs.heads[--walk->runs.nheads].cursor.run);
}

/* Opens the runs.  On ERROR for a damaged run, end_walk closes those that are open. */
static void
begin_walk(KvWalk *walk, KvStore *store, uint32 shard_id, KvPace *pace)
{
	walk->store = store;
	walk->pace = pace;
	walk->shard_id = shard_id;
	kv_merge_begin(&walk->runs, false);
	while (!open_runs(walk))
		end_walk(walk);
}

/*
 * Passes each surviving version to the callback: keys in order, newest version first, with its
 * status, and whether a newer version of the key precedes.  Ends at the end of the runs.
 */
static void
walk_runs(KvWalk *walk,
		  void (*each) (void *arg, KvKey key, const KvVersion *version, bool shadowed),
		  void *arg)
{
	KvSurvival	rules = {kv_xid_horizon(), kv_xid_ended(), true};
	int			base = walk->has_base ? walk->runs.nheads - 1 : -1;
	uint8		keybytes[KV_MAX_KEY];

	for (uint64 n = 1;; n++)
	{
		KvKey		first = kv_merge_first(&walk->runs);
		KvKey		key = {keybytes, first.len};
		bool		resolved = false;
		bool		shadowed = false;

		if (n % KV_GET_KEYS == 0)
		{
			kv_job_interrupts(walk->store);
			kv_pace_keys(walk->pace, KV_GET_KEYS);
		}
		if (first.data == NULL)
			break;
		memcpy(keybytes, first.data, first.len);
		for (int i = 0; i < walk->runs.nheads; i++)
		{
			KvRunHead  *head = &walk->runs.heads[i];

			for (; kv_head_is_at(head, key); kv_head_step(&walk->runs, head))
			{
				KvVersion	version = head->version;

				if (kv_version_survives(&rules, &version, head->incarnation, i == base,
										&resolved) == KV_SURVIVES_NOT)
					continue;
				each(arg, key, &version, shadowed);
				shadowed |= version.kind != KV_VERSION_LOCK;
			}
		}
	}
}

/*
 * The parts of files that a scan in key order would have in memory (cache/blockwindow.c): in each
 * set the one that was met last comes first.
 */
#define KV_MET_WAYS		8
#define KV_MET_SHARE	8		/* they are no more than such a part of all parts of the shard */

typedef struct KvCounting
{
	KvCounts   *counts;
	KvCounted  *counted;
	KvAddress	last;
	uint32		nsets;			/* 0: none are in memory */
	uint64		(*met)[KV_MET_WAYS];	/* [nsets] */
} KvCounting;

static void
begin_counting(KvCounting *counting, const KvShard *shard)
{
	uint64		most = (uint64) kv_window_number() * KV_WINDOW_PARTS / 2;
	uint64		parts = shard->values.bytes / KV_PART_SIZE;

	counting->nsets = Min(most, parts / KV_MET_SHARE) / KV_MET_WAYS;
	counting->met = MemoryContextAllocHuge(CurrentMemoryContext,
										   Max(counting->nsets, 1) * sizeof(*counting->met));
	memset(counting->met, 0, counting->nsets * sizeof(*counting->met));
}

/* Was a part met lately?  Then, or if it is to be added, it is the latest one of its set. */
static bool
meet(KvCounting *counting, uint64 part, bool add)
{
	uint64	   *set = counting->met[murmurhash32((uint32) part) % counting->nsets];
	int			i = 0;

	while (i < KV_MET_WAYS - 1 && set[i] != part)
		i++;
	if (set[i] != part && !add)
		return false;
	add = set[i] != part;
	memmove(set + 1, set, i * sizeof(*set));
	set[0] = part;
	return !add;
}

/*
 * Is a value near the one before it, or in a stretch that goes on?  Its part, or the one before it,
 * was met lately then.  Such values are read by large requests, as those in key order are.
 */
static bool
is_near(KvCounting *counting, KvAddress address)
{
	uint64		part = address / KV_PART_SIZE;
	bool		near = address >= counting->last && address - counting->last <= KV_WINDOW_SIZE;

	if (counting->nsets == 0)
		return near;
	return meet(counting, part, true) || near || meet(counting, part - 1, false);
}

static void
count(void *arg, KvKey key, const KvVersion *version, bool shadowed)
{
	KvCounting *counting = arg;

	KvAddress	address = KV_LOCATION_ADDRESS(version->location);

	if (shadowed)
		counting->counted->held += version->len;
	if (version->len > 0)
	{
		counting->counted->pairs++;
		counting->counted->near += is_near(counting, address);
		counting->last = address + version->len;
	}
	kv_counts_add(counting->counts, version->location, version->len,
				  shadowed || version->status == KV_XID_UNKNOWN);
}

/* Are all entries of its value files in runs?  Lock held. */
static bool
is_in_runs(const KvShard *shard)
{
	if (shard->active.nversions > 0 || DsaPointerIsValid(shard->immutable.root))
		return false;
	for (int i = 0; i < shard->values.n; i++)
	{
		if (kv_value_files(shard)[i].value_file.last_log >= shard->files.first_log)
			return false;
	}
	return true;
}

/*
 * Counts the live bytes of each value file of the shard, and stores them there.  Writes nothing
 * except a run of recent entries, if there are any.  walk: the caller ends it after an ERROR.
 */
static void
count_live(KvWalk *walk, KvStore *store, uint32 shard_id, KvPace *pace, KvCounted *counted)
{
	KvShard    *shard = kv_shard(store, shard_id);
	KvCounting	counting = {.counted = counted};
	KvCounts   *counts;
	KvValueFileCount *open;
	bool		in_runs;

	memset(counted, 0, sizeof(*counted));

	/* before any buffer is sealed: values that die from now on may or may not be counted as live */
	LWLockAcquire(&shard->lock, LW_SHARED);
	counts = kv_counts_begin(shard);
	in_runs = is_in_runs(shard);
	counted->open_address = shard->values.open;
	counted->open_used = shard->values.open == 0 ? 0 :
		(shard->buffers.open >= 0 ? kv_buffers[shard->buffers.open].base : shard->values.tail) -
		shard->values.open;
	LWLockRelease(&shard->lock);
	if (!in_runs)
		kv_pace_flush(pace, store, shard_id, NULL);

	begin_walk(walk, store, shard_id, pace);
	begin_counting(&counting, shard);
	counting.counts = counts;
	walk_runs(walk, count, &counting);
	end_walk(walk);

	/* skipped after a flush of all runs, which has newer counts */
	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	if (shard->files.base_run == walk->base_run)
		kv_counts_note_runs(shard, counts, walk->first_log);
	LWLockRelease(&shard->lock);
	open = counted->open_address != 0 ? kv_counts_find(counts, counted->open_address) : NULL;
	counted->open_live = open != NULL ? open->live : 0;
	pfree(counting.met);
	pfree(counts->value_files);
	pfree(counts);
}

/* ---- the job ---- */

static const struct config_enum_entry order_options[] = {
	{"idle", KV_ORDER_IDLE, false},
	{"off", KV_ORDER_OFF, false},
	{NULL, 0, false}
};
static int	compact_memory_kb = 64 * 1024;
#ifdef KVFDW_FAULTS
bool		kv_test_compactions = false;
#endif

/* values are in order if at most one in so many does not follow its predecessor */
#define KV_UNSORTED_SHARE 8

typedef struct KvJob
{
	KvStore    *store;
	uint32		shard_id;
	const KvJobPlan *plan;
	/* estimated bytes to be moved, which the store's account has set aside */
	uint64		to_move;
	uint64		held;			/* as in KvJobResult */
	bool		was_sorted;		/* as in KvJobResult */
	bool		gave_up;		/* as in KvJobResult */
	KvPace		pace;
	KvWalk		walk;
	KvSlice		slice;
	KvOutput	output;
	uint32		number;			/* number of the relocation file; 0: none */
	KvMoves		moves;
	KvProgress	outer;			/* the progress that the process reported before */
	bool		done;			/* the job has succeeded */
} KvJob;

const char *const kv_job_phase_names[] = {
	[KV_JOB_NONE] = NULL,
	[KV_JOB_CHOOSE] = "choosing",
	[KV_JOB_MOVE] = "moving",
	[KV_JOB_SWITCH] = "switching",
	[KV_JOB_KEEP] = "caching"
};

void
kv_compact_gucs(void)
{
	DefineCustomIntVariable("kvfdw.compact_memory",
							"Sets the memory with which a compaction sorts values.",
							NULL,
							&compact_memory_kb, 64 * 1024, 4 * 1024, 512 * 1024,
							PGC_USERSET, GUC_UNIT_KB, NULL, NULL, NULL);
	DefineCustomEnumVariable("kvfdw.compact_sort",
							 "Sets when values are moved into the order of keys automatically.",
							 "idle: in shards that were not written for ten seconds; off: never.",
							 &kv_compact_sort, KV_ORDER_IDLE, order_options,
							 PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("kvfdw.compact_rate",
							"Sets how many megabytes per second an automatic compaction reads and "
							"writes at most.",
							"0: the compactor adapts to the load. A low limit makes writers wait.",
							&kv_compact_rate, 0, 0, 100000,
							PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("kvfdw.compact_workers",
							"Sets how many processes compact tables automatically.",
							"0: only kvfdw_compact() compacts, and space is not limited.",
							&kv_compact_workers, 1, 0, 1,
							PGC_POSTMASTER, 0, NULL, NULL, NULL);
#ifdef KVFDW_FAULTS
	DefineCustomBoolVariable("kvfdw.test_compactions",
							 "Enables the compaction of all tables all the time.",
							 "For tests only.",
							 &kv_test_compactions, false,
							 PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("kvfdw.test_space_look",
							"Sets how often the compactor looks at all tables.",
							"For tests only.",
							&kv_look_ms, 10000, 1, INT_MAX, PGC_SIGHUP, GUC_UNIT_MS,
							NULL, NULL, NULL);
	DefineCustomIntVariable("kvfdw.test_space_release",
							"Sets how long emptied files may stay until writers do not wait for "
							"them.",
							"For tests only.",
							&kv_release_ms, 10000, 1, INT_MAX, PGC_SIGHUP, GUC_UNIT_MS,
							NULL, NULL, NULL);
#endif
}

static void
set_phase(KvJob *job, KvJobPhase phase)
{
	kv_progress_phase(kv_job_phase_names[phase]);
	kv_space_beat(job->store);
}

/* Ends the job, for whatever reason.  The shard lists the files that it leaves. */
static void
end_job(KvJob *job)
{
	KvShard    *shard = kv_shard(job->store, job->shard_id);

	end_walk(&job->walk);
	if (job->slice.relocations != NULL)
		kv_run_discard(job->slice.relocations);
	job->slice.relocations = NULL;
	if (job->moves.run != NULL)
		kv_run_close(job->moves.run);
	job->moves.run = NULL;
	if (job->number != 0)
		(void) kv_io_unlink(kv_path_run(&job->store->key, job->shard_id, job->number));
	kv_output_end(&job->output, job->moves.published);
	kv_space_moved(job->store, job->plan->aim == KV_JOB_BOUNDS, job->to_move);

	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	for (int i = 0; i < shard->values.n; i++)
		kv_value_files(shard)[i].value_file.flags &= ~KV_VALUE_FILE_INPUT;
	shard->values.promised = 0;
	shard->compact.failed &= !job->done;
	LWLockRelease(&shard->lock);
	kv_role_give(shard, KV_ROLE_COMPACT);
	kv_progress_end(&job->outer);
}

/* Called after an ERROR, perhaps with locks held, or at the end of the process. */
static void
end_failed(int code, Datum arg)
{
	LWLockReleaseAll();
	end_job((KvJob *) DatumGetPointer(arg));
}

/* ---- step 0 ---- */

/*
 * Should the open value file be closed, too?  It should if it pays and the others do not suffice.
 */
static bool
wants_open(const KvJob *job, const KvCounted *counted)
{
	KvShardSpace space;

	if (counted->open_address == 0 ||
		!kv_job_pays(job->plan, counted->open_used, counted->open_live, false))
		return false;
	if (job->plan->aim != KV_JOB_BOUNDS)
		return true;
	if (!kv_space_pays_open(counted->open_used, counted->open_live))
		return false;
	kv_shard_space(job->store, job->shard_id, kv_xid_horizon(), &space);
	return space.to_win - space.to_win_open < job->plan->enough;
}

/* The bytes of the shard's runs. */
static uint64
bytes_of_runs(const KvJob *job)
{
	KvShard    *shard = kv_shard(job->store, job->shard_id);
	uint32		numbers[KV_MAX_UNFROZEN + 1];
	uint64		bytes = 0;
	int			n;

	LWLockAcquire(&shard->lock, LW_SHARED);
	n = kv_files_runs(&shard->files, numbers);
	LWLockRelease(&shard->lock);
	for (int i = 0; i < n; i++)
	{
		struct stat info;

		if (stat(kv_path_run(&job->store->key, job->shard_id, numbers[i]), &info) == 0)
			bytes += info.st_size;
	}
	return bytes;
}

/*
 * The bytes that a job may move for which no process waits, so that it does not fill the file
 * system.  The old value files are removed after the new ones are written, and so are merged runs;
 * the relocation file comes on top.  Negative: nothing may be written.
 */
static int64
room_to_move(const KvJob *job)
{
	uint64		spare = job->plan->paced ? kv_io_space_to_spare(KV_DIRECTORY) : PG_UINT64_MAX;
	int64		room = (int64) Min(spare, PG_INT64_MAX) - (int64) (2 * bytes_of_runs(job));

	/* then only runs share a file system with the table's other files */
	if (job->plan->paced && OidIsValid(job->store->shape.tablespace) && room >= 0)
		room = (int64) Min(kv_io_space_to_spare(kv_path_values(&job->store->key)), PG_INT64_MAX);
	return room;
}

static void
choose_inputs(KvJob *job)
{
	int64		room = room_to_move(job);

	job->slice.ninputs = kv_choose_inputs(job->store, job->shard_id, job->plan, Max(room, 0),
										  &job->slice.inputs, &job->to_move);
	kv_space_move(job->store, job->plan->aim == KV_JOB_BOUNDS, job->to_move);
	if (job->slice.ninputs > 0 && (int64) job->to_move > room)
		ereport(ERROR,
				(errcode(ERRCODE_DISK_FULL),
				 errmsg("not enough disk space to compact shard %u of %s", job->shard_id,
						kv_table_label(job->store->key.dboid, job->store->key.relid)),
				 errdetail("Compaction must copy %llu bytes and write the index again, and kvfdw "
						   "leaves part of the file system free.",
						   (unsigned long long) job->to_move),
				 errhint("Check free disk space.")));
}

static uint64
keys_of_runs(const KvShard *shard)
{
	return shard->files.frozen_keys + shard->files.unfrozen_entries;
}

/*
 * Ensures that the entries of all value files are in runs, counts dead bytes, and chooses inputs.
 */
static void
choose(KvJob *job)
{
	KvShard    *shard = kv_shard(job->store, job->shard_id);
	KvCounted	counted;

	if (job->plan->aim == KV_JOB_SORTS && !job->plan->unless_sorted)
		kv_value_close(job->store, job->shard_id);
	count_live(&job->walk, job->store, job->shard_id, &job->pace, &counted);
	if (job->plan->unless_sorted &&
		counted.near >= counted.pairs - counted.pairs / KV_UNSORTED_SHARE)
	{
		job->was_sorted = true;
		return;
	}
	if (job->plan->aim != KV_JOB_COUNTS && wants_open(job, &counted))
	{
		kv_value_close(job->store, job->shard_id);
		count_live(&job->walk, job->store, job->shard_id, &job->pace, &counted);
	}
	job->held = counted.held;
	job->moves.written = shard->values.written;
	if (job->plan->aim != KV_JOB_COUNTS)
		choose_inputs(job);
	kv_pace_expect(&job->pace,
				   2 * job->to_move + (job->to_move > 0 ? 2 : 1) * keys_of_runs(shard) *
				   KV_PACE_KEY);
	kv_progress_total(job->to_move);
	KV_STOP_POINT("compact_chosen");
}

/* ---- steps 1 and 2 ---- */

/* Has a split met the job? */
static bool
is_to_be_split(const KvJob *job)
{
	return kv_shard(job->store, job->shard_id)->split.waits > kv_clock();
}

static bool
gives_way(const KvJob *job)
{
	return job->plan->unless_sorted && (kv_job_gives_way() || is_to_be_split(job));
}

/* Called before a slice is written. */
static void
look_up(KvJob *job)
{
	kv_job_interrupts(job->store);
	kv_space_beat(job->store);
	kv_progress_done(job->slice.moved);
	job->gave_up |= gives_way(job);
	KV_STOP_POINT("compact_slice");
}

static void
collect(void *arg, KvKey key, const KvVersion *version, bool shadowed)
{
	KvJob      *job = arg;
	KvSlice    *slice = &job->slice;

	if (job->gave_up || version->len == 0 || kv_slice_input(slice, version->location) < 0)
		return;
	while (!kv_slice_add(slice, key, version))
	{
		look_up(job);
		if (job->gave_up)
			return;
		kv_slice_write(slice);
	}
}

/* Begins to write a relocation file. */
static KvRunWriter *
begin_relocations(KvJob *job, KvRunIds *ids)
{
	KvShard    *shard = kv_shard(job->store, job->shard_id);

	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	job->number = shard->files.next_run++;
	LWLockRelease(&shard->lock);
	kv_store_ids(job->store, job->shard_id, job->number, ids);
	ids->unfrozen = true;
	return kv_run_create(kv_path_run(&job->store->key, job->shard_id, job->number), ids);
}

/* Reserves capacity in the list for the files that were written. */
static void
promise_room(KvJob *job)
{
	KvShard    *shard = kv_shard(job->store, job->shard_id);
	bool		room;

	LWLockAcquire(&shard->extend_lock, LW_EXCLUSIVE);
	room = kv_value_files_make_room(shard, job->output.nvalue_files);
	if (room)
	{
		LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
		shard->values.promised = job->output.nvalue_files;
		LWLockRelease(&shard->lock);
	}
	LWLockRelease(&shard->extend_lock);
	if (!room)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("out of kvfdw memtable memory"),
				 errdetail("The descriptors of new value files do not fit."),
				 errhint("You might need to increase \"kvfdw.memtable_memory\".")));
}

static void
move_values(KvJob *job)
{
	KvSlice    *slice = &job->slice;
	KvOutput   *output = &job->output;
	KvRunIds	ids;

	set_phase(job, KV_JOB_MOVE);
	if (job->plan->aim == KV_JOB_SORTS)
	{
		output->flags = KV_VALUE_FILE_SORTED;
		job->moves.job = kv_shard(job->store, job->shard_id)->compact.job + 1;
		output->order = Max(job->moves.job % PG_UINT16_MAX, 1);
	}
	slice->store = job->store;
	slice->shard_id = job->shard_id;
	slice->output = output;
	output->expected = job->to_move;
	slice->pace = &job->pace;
	kv_slice_begin(slice, (Size) compact_memory_kb * 1024);
	begin_walk(&job->walk, job->store, job->shard_id, &job->pace);
	slice->relocations = begin_relocations(job, &ids);

	walk_runs(&job->walk, collect, job);
	if (slice->nvalues > 0 && !job->gave_up)
	{
		look_up(job);
		if (!job->gave_up)
			kv_slice_write(slice);
	}
	if (job->gave_up)
		return;

	end_walk(&job->walk);
	kv_output_finish(output);
	kv_run_finish(slice->relocations);
	slice->relocations = NULL;
	job->moves.run = kv_run_open(kv_path_run(&job->store->key, job->shard_id, job->number), &ids);
	if (job->moves.run == NULL)
		elog(ERROR, "relocation file %u of shard %u is missing", job->number, job->shard_id);
	promise_room(job);
	job->moves.value_files = output->value_files;
	job->moves.nvalue_files = output->nvalue_files;
	KV_STOP_POINT("compact_written");
}

/* ---- the whole job ---- */

/* Reports on the inputs: which are empty, which are damaged. */
static void
look_back(KvJob *job, KvJobResult *result)
{
	KvShard    *shard = kv_shard(job->store, job->shard_id);
	const KvSlice *slice = &job->slice;

	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	for (int i = 0; i < slice->ninputs; i++)
	{
		KvShardValueFile *value_file = kv_value_file_find(shard, slice->inputs[i].address);

		if (value_file == NULL)
			result->emptied += slice->inputs[i].used;
		else
			value_file->value_file.flags |= slice->inputs[i].flags & KV_VALUE_FILE_DAMAGED;
	}
	LWLockRelease(&shard->lock);
	result->moved += slice->moved;
	for (int i = 0; i < job->output.nvalue_files; i++)
		result->written += job->output.value_files[i].used;
	kv_stat_add(job->store, KV_COUNT_COMPACTIONS, 1);
	kv_stat_add(job->store, KV_COUNT_MOVED_BYTES, slice->moved);
}

/*
 * Reads into the value cache the blocks that had no memory there while their old copies were.  All
 * moves are done by now.
 */
static void
keep(KvJob *job)
{
	set_phase(job, KV_JOB_KEEP);
	kv_space_moved(job->store, job->plan->aim == KV_JOB_BOUNDS, job->to_move);
	job->to_move = 0;
	do
		kv_job_interrupts(job->store);
	while (!gives_way(job) && kv_keep_some(&job->slice));
}

static void
run_job(KvJob *job, KvJobResult *result)
{
	choose(job);
	if (job->slice.ninputs > 0)
	{
		if (job->to_move > 0)
			move_values(job);
		if (!job->gave_up)
		{
			set_phase(job, KV_JOB_SWITCH);
			job->moves.held = 0;
			kv_pace_flush(&job->pace, job->store, job->shard_id, &job->moves);
			look_back(job, result);
			job->held = job->moves.held;
			keep(job);
		}
	}
	result->gave_up = job->gave_up;
	result->held += job->held;
	result->was_sorted = job->was_sorted;
}

void
kv_shard_compact(KvStore *store, uint32 shard_id, const KvJobPlan *plan, KvJobResult *result)
{
	KvShard    *shard = kv_shard(store, shard_id);
	MemoryContext context;
	MemoryContext old;
	KvJob      *job;

	if (shard->values.n == 0)
		return;
	context = AllocSetContextCreate(CurrentMemoryContext, "kvfdw compaction",
									ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(context);
	job = palloc0(sizeof(KvJob));
	job->store = store;
	job->shard_id = shard_id;
	job->plan = plan;

	if (!kv_role_take(shard, KV_ROLE_COMPACT, KV_WAIT_COMPACT))
	{
		MemoryContextSwitchTo(old);
		MemoryContextDelete(context);
		return;
	}
	kv_progress_begin(&job->outer,
					  plan->aim == KV_JOB_LEAVES ? KV_PROGRESS_MOVE : KV_PROGRESS_COMPACT,
					  store->key.dboid, store->key.relid, shard_id, NULL, 0);
	PG_ENSURE_ERROR_CLEANUP(end_failed, PointerGetDatum(job));
	{
		if (plan->paced)
		{
			kv_pace_begin(&job->pace, store, shard, plan->aim);
			kv_pace_expect(&job->pace, 2 * plan->most + 3 * keys_of_runs(shard) * KV_PACE_KEY);
		}
		kv_output_begin(&job->output, store, shard_id);
		set_phase(job, KV_JOB_CHOOSE);
		run_job(job, result);
	}
	PG_END_ENSURE_ERROR_CLEANUP(end_failed, PointerGetDatum(job));
	job->done = true;
	end_job(job);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
}
