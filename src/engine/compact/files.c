/*
 * files.c
 *		The value files of a job: those that it empties, and those that it writes.
 *
 * A manual job takes all value files that have dead bytes, a sort job all there are.  A manual job
 * also takes those that are to leave their tablespace (shard/move.c); an automatic one takes these
 * in the order of addresses.
 *
 * For the limit, a job takes those for which it pays best.  Let u be the live share of a value
 * file: emptying it reclaims 1 - u of it, and costs 1 + u, for reading all and writing u.  The
 * older its values, the longer the gain lasts, since values that change often have died already.
 * So the files with the greatest (1 - u) √age / (1 + u) come first, where age is the number of
 * value files made since.  Without the root, old files are emptied while too much of them is live,
 * by simulation (BENCH_ONLY=cleaning) and with zipfian keys.  An empty file needs no moves and is
 * always taken, but all runs must be merged for it, too.
 *
 * The addresses of new value files are reserved together.  So the files are neighbours, whatever
 * files writers make in the meantime, and no other process makes files there: writing them needs
 * no lock.  They are in no list until a flush publishes them.  A failed job renames them, and the
 * maintainer frees them.  After a crash no edit names them (I 14).
 *
 * Each file is made durable when it is full.  So the flush that names the files publishes durable
 * data.  At level 'keys' no COMMIT has to sync a whole shard, and a mark need not sync them
 * either.
 */
#include "postgres.h"

#include <math.h>

#include "engine/base/types.h"
#include "engine/base/wait.h"
#include "engine/buffer/buffer.h"
#include "engine/buffer/largevalue.h"
#include "engine/compact/internal.h"
#include "engine/engine.h"
#include "engine/format/format.h"
#include "engine/format/path.h"
#include "engine/io/fault.h"
#include "engine/io/io.h"
#include "engine/io/name.h"
#include "engine/maintenance.h"
#include "engine/shard/obsolete.h"
#include "engine/shard/shard.h"
#include "engine/shard/space.h"
#include "engine/shard/valuefiles.h"
#include "engine/value/value.h"
#include "engine/xact/xact.h"

/* ---- inputs ---- */

#define KV_DEAD_SHARE	50	/* a manual job empties a value file if one byte in so many is dead */

typedef struct KvCandidate
{
	int			i;				/* index in the shard's list */
	uint64		used;
	uint64		live;
	double		score;
} KvCandidate;

/*
 * The addresses of the shard's value files that are to leave their tablespace, sorted, palloc'd.
 * Checks where files are.
 */
static int
value_files_elsewhere(KvStore *store, uint32 shard_id, KvAddress **places)
{
	KvShard    *shard = kv_shard(store, shard_id);
	int			n = shard->values.n;
	int			kept = 0;

	*places = NULL;
	if (store->shape.moved_lsn == 0 || n == 0)
		return 0;
	*places = palloc(n * sizeof(KvAddress));
	LWLockAcquire(&shard->lock, LW_SHARED);
	n = Min(n, shard->values.n);
	for (int i = 0; i < n; i++)
		(*places)[i] = kv_value_files(shard)[i].value_file.address;
	LWLockRelease(&shard->lock);
	for (int i = 0; i < n; i++)
	{
		if (!kv_value_is_in_place(&store->key, (KvFileId) {(*places)[i]}))
			(*places)[kept++] = (*places)[i];
	}
	return kept;
}

static bool
is_elsewhere(const KvAddress *addresses, int n, KvAddress address)
{
	int			i = kv_first_from(addresses, sizeof(KvAddress), n, address);

	return i < n && addresses[i] == address;
}

bool
kv_shard_leaves(KvStore *store, uint32 shard_id, bool *any)
{
	KvShard    *shard = kv_shard(store, shard_id);
	uint64		horizon = kv_xid_horizon();
	KvAddress  *addresses;
	int			n;
	bool		found = false;

	kv_value_leave(store, shard_id);
	n = value_files_elsewhere(store, shard_id, &addresses);
	LWLockAcquire(&shard->lock, LW_SHARED);
	for (int i = 0; i < n && !found; i++)
	{
		const KvShardValueFile *value_file = kv_value_file_find(shard, addresses[i]);

		found = value_file != NULL && value_file->newest_writer < horizon &&
			!(value_file->value_file.flags & KV_VALUE_FILE_DAMAGED);
	}
	LWLockRelease(&shard->lock);
	*any |= n > 0;
	return found;
}

bool
kv_job_pays(const KvJobPlan *plan, uint64 used, uint64 live, bool elsewhere)
{
	if (plan->aim == KV_JOB_LEAVES || (elsewhere && plan->aim == KV_JOB_GIVES_BACK))
		return elsewhere;
	if (plan->aim == KV_JOB_BOUNDS)
		return kv_space_pays(used, live);
	return used > 0 && (plan->aim == KV_JOB_SORTS || live == 0 ||
						used - Min(live, used) > Max(used / KV_DEAD_SHARE, KV_BLOCK));
}

/* Does it have a value that could not be moved?  Only a sort job tries again. */
static bool
is_stuck(const KvJobPlan *plan, const KvShardValueFile *value_file, uint64 live)
{
	return (value_file->value_file.flags & KV_VALUE_FILE_DAMAGED) && plan->aim != KV_JOB_SORTS &&
		live > 0;
}

/* Best candidates first; empty files before all others. */
static int
compare_candidates(const void *a, const void *b)
{
	const KvCandidate *left = a;
	const KvCandidate *right = b;

	if ((left->live == 0) != (right->live == 0))
		return left->live == 0 ? -1 : 1;
	return left->score > right->score ? -1 : left->score < right->score;
}

static int
compare_indexes(const void *a, const void *b)
{
	return ((const KvCandidate *) a)->i - ((const KvCandidate *) b)->i;
}

/* The number of candidates, from the best on, that are enough. */
static int
take_enough(const KvJobPlan *plan, uint64 room, const KvCandidate *candidates, int n)
{
	uint64		won = 0;
	uint64		moved = 0;
	int			others = 0;
	int			i;

	for (i = 0; i < n; i++)
	{
		const KvCandidate *one = &candidates[i];

		if (one->live > 0 &&
			(won >= plan->enough || (i > 0 && moved + one->live > room) ||
			 (others > 0 && (plan->modest || moved + one->live > plan->most))))
			break;
		won += one->used - one->live;
		moved += one->live;
		others += one->live > 0;
	}
	return i;
}

/* Space is short: ranks non-empty files by the bytes to be moved, fewest first. */
static void
least_first(KvCandidate *candidates, int n)
{
	for (int i = 0; i < n; i++)
		candidates[i].score = 1.0 / (1.0 + candidates[i].live);
}

/* The number of value files that are to leave their tablespace that one job moves. */
static int
take_most(const KvJobPlan *plan, const KvCandidate *candidates, int n)
{
	uint64		moved = 0;
	int			i;

	for (i = 0; i < n && (i == 0 || moved + candidates[i].live <= plan->most); i++)
		moved += candidates[i].live;
	return i;
}

int
kv_choose_inputs(KvStore *store, uint32 shard_id, const KvJobPlan *plan, uint64 room,
				 KvValueFile **inputs, uint64 *live)
{
	KvShard    *shard = kv_shard(store, shard_id);
	uint64		horizon = kv_xid_horizon();
	int			most = shard->values.n + 1; /* later value files were not considered */
	KvCandidate *candidates = palloc(most * sizeof(KvCandidate));
	KvAddress  *elsewhere;
	int			nelsewhere = value_files_elsewhere(store, shard_id, &elsewhere);
	int			n = 0;

	*inputs = palloc(most * sizeof(KvValueFile));
	*live = 0;
	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	for (int i = 0; i < shard->values.n && n < most; i++)
	{
		const KvShardValueFile *value_file = &kv_value_files(shard)[i];
		KvCandidate	one = {i, kv_value_file_taken(shard, value_file),
						   kv_value_file_live(shard, value_file)};
		double		share = one.used > 0 ? (double) one.live / one.used : 0;

		if (!kv_value_file_may_be_input(shard, value_file, horizon) ||
			is_stuck(plan, value_file, one.live) ||
			!kv_job_pays(plan, one.used, one.live,
						 is_elsewhere(elsewhere, nelsewhere, value_file->value_file.address)))
			continue;
		one.score = (1 - share) * sqrt(shard->values.n - i) / (1 + share);
		candidates[n++] = one;
	}
	if (plan->aim == KV_JOB_BOUNDS)
	{
		if (plan->modest)
			least_first(candidates, n);
		qsort(candidates, n, sizeof(KvCandidate), compare_candidates);
		n = take_enough(plan, room, candidates, n);
		qsort(candidates, n, sizeof(KvCandidate), compare_indexes);
	}
	else if (plan->aim == KV_JOB_LEAVES)
		n = take_most(plan, candidates, n);
	for (int i = 0; i < n; i++)
	{
		KvShardValueFile *value_file = &kv_value_files(shard)[candidates[i].i];

		value_file->value_file.flags |= KV_VALUE_FILE_INPUT;
		(*inputs)[i] = value_file->value_file;
		*live += candidates[i].live;
	}
	LWLockRelease(&shard->lock);
	pfree(candidates);
	return n;
}

/* ---- output ---- */

#define KV_OUTPUT_STEP	((uint64) 64 * 1024 * 1024)

void
kv_output_begin(KvOutput *output, KvStore *store, uint32 shard_id)
{
	memset(output, 0, sizeof(*output));
	output->store = store;
	output->shard_id = shard_id;
	output->file = -1;
}

/* Gives back the reserved addresses that have no value file. */
static void
return_addresses(KvOutput *output)
{
	if (output->next != output->end)
		kv_addresses_return(output->store, output->shard_id, output->next, output->end);
	output->next = output->end;
}

/* Reserves an address for a value file that can hold a value of this length. */
static void
reserve(KvOutput *output, Size len)
{
	uint64		span;
	KvFileId	id = {output->next};

	if (output->next != output->end)
	{
		span = kv_file_span(id);
		if (len <= span)
			return;
		return_addresses(output);
	}

	/* the first one tells the size of the files; the others are to follow it */
	output->next = kv_addresses_reserve(output->store, output->shard_id, len, 1, &output->end);
	span = kv_file_span((KvFileId) {output->next});
	if (output->expected > span)
	{
		return_addresses(output);
		output->next = kv_addresses_reserve(output->store, output->shard_id, len,
											output->expected / span + 1 + output->expected / span /
											16,
											&output->end);
	}
}

static KvValueFile *
next_value_file(KvOutput *output, Size len)
{
	KvValueFile *value_file;

	reserve(output, len);
	if (output->nvalue_files == output->room)
	{
		output->room = Max(output->room * 2, 16);
		output->value_files = output->value_files == NULL
			? palloc(output->room * sizeof(KvValueFile)) :
			repalloc_huge(output->value_files, output->room * sizeof(KvValueFile));
	}
	value_file = &output->value_files[output->nvalue_files++];
	memset(value_file, 0, sizeof(*value_file));
	value_file->address = output->next;
	value_file->live = KV_NOT_KNOWN;
	value_file->flags = output->flags;
	value_file->order = output->order;
	output->next += kv_file_span((KvFileId) {value_file->address});
	return value_file;
}

KvAddress
kv_output_address(KvOutput *output, Size len, bool whole)
{
	KvValueFile *value_file = output->nvalue_files > 0
		? &output->value_files[output->nvalue_files - 1] : NULL;
	uint64		at = 0;

	if (value_file != NULL)
	{
		at = whole ? TYPEALIGN(KV_BLOCK, value_file->used)
			: kv_value_position(value_file->used, len);
		if (at + len > kv_file_span((KvFileId) {value_file->address}))
		{
			kv_output_align(output);
			value_file = NULL;
		}
	}
	if (value_file == NULL)
	{
		value_file = next_value_file(output, len);
		at = 0;
	}
	value_file->used = whole ? TYPEALIGN(KV_BLOCK, at + len) : at + len;
	output->expected -= Min(output->expected, len);
	return value_file->address + at;
}

void
kv_output_align(KvOutput *output)
{
	KvValueFile *value_file;

	if (output->nvalue_files == 0)
		return;
	value_file = &output->value_files[output->nvalue_files - 1];
	value_file->used = TYPEALIGN(KV_BLOCK, value_file->used);
}

static const char *
path_of(const KvOutput *output, KvFileId id)
{
	return kv_path_value(&output->store->key, id);
}

/* Allocates the file's space up to at least this offset. */
static void
allocate(KvOutput *output, uint64 least)
{
	uint64		size = Min(Max(least, output->allocated + KV_OUTPUT_STEP),
						   kv_file_span(output->id));
	int			err;

	if (least <= output->allocated)
		return;
	err = kv_io_try_extend(output->file, output->allocated, size);
	if (err == ENOSPC && size > least)
	{
		size = least;
		err = kv_io_try_extend(output->file, output->allocated, size);
	}
	if (err != 0)
		kv_io_error(ERROR, err, path_of(output, output->id), "extend");
	output->allocated = size;
}

/* Closes the value file being written, truncates it to its used bytes, and syncs it. */
static void
close_value_file(KvOutput *output)
{
	const char *path = path_of(output, output->id);
	uint64		used = 0;
	int			err;

	if (output->file < 0)
		return;
	for (int i = 0; i < output->nvalue_files; i++)
	{
		if (output->value_files[i].address == output->id.address)
			used = TYPEALIGN(KV_BLOCK, output->value_files[i].used);
	}
	allocate(output, used);
	kv_io_close(output->file);
	output->file = -1;
	err = output->allocated > used ? kv_io_try_cut(path, used) : 0;
	if (err != 0)
		kv_io_error(LOG, err, path, "truncate");
	if (!kv_fault_skips("data_sync"))
		kv_io_sync_file(path);
}

void
kv_output_write(KvOutput *output, KvAddress address, const char *blocks, Size len)
{
	KvFileId	id = kv_file_of(address);

	if (output->file < 0 || !kv_same_file(id, output->id))
	{
		close_value_file(output);
		output->file = kv_value_make(&output->store->key, id, KV_IO_COMPACT_WRITE);
		output->id = id;
		output->allocated = 0;
	}
	allocate(output, kv_offset_of(address) + len);
	kv_io_write(output->file, blocks, len, kv_offset_of(address), KV_IO_COMPACT_WRITE);
	kv_stat_add(output->store, KV_COUNT_DEVICE_WRITE_BYTES, len);
}

void
kv_output_finish(KvOutput *output)
{
	kv_output_align(output);
	close_value_file(output);
	if (output->nvalue_files > 0 && !kv_fault_skips("data_sync"))
		kv_values_sync_names(&output->store->key);
	for (int i = 0; i < output->nvalue_files; i++)
		output->value_files[i].flags |= KV_VALUE_FILE_SYNCED | KV_VALUE_FILE_NAMED;
	return_addresses(output);
}

void
kv_output_end(KvOutput *output, bool keep)
{
	if (output->file >= 0)
		kv_io_close(output->file);
	output->file = -1;
	for (int i = 0; i < output->nvalue_files && !keep; i++)
	{
		/* freed step by step: a file system that discards much at once may block all I/O */
		KvAddress	address = output->value_files[i].address;

		if (kv_value_file_discard(output->store, address) != 0)
			(void) kv_io_unlink(path_of(output, (KvFileId) {address}));
	}
	if (output->nvalue_files > 0 && !keep)
		kv_wake_maintainer();
	return_addresses(output);
}
