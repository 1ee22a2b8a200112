/*
 * inputs.c
 *		Which value files of a shard are to be emptied.
 *
 * By hand it is all that have dead bytes, for order all there are. Those that are to leave their
 * tablespace
 * (shard/move.c) go in the order of addresses, by hand all of them.  For the bound it is those
 * for which it pays best: u being the share of a value file that is live, emptying it gives back 1
 * - u of it, and costs reading all and writing u, 1 + u; and the older its values are the longer
 * what is won stays won, for those that change often have died by now.  So the greatest
 * (1 - u) √age / (1 + u) come first, age being how many value files were made since. Without the
 * root what is old is emptied while too much of it is alive, by simulation (BENCH_ONLY=cleaning)
 * and with zipfian
 * keys. What is empty has nothing that is moved and always goes; but for that, too, all runs are
 * merged.
 */
#include "postgres.h"

#include <math.h>

#include "engine/base/types.h"
#include "engine/compact/internal.h"
#include "engine/shard/space.h"
#include "engine/buffer/buffer.h"
#include "engine/xact/xact.h"

#define KV_DEAD_SHARE	50		/* by hand a value file is emptied if one byte in so many is dead */

typedef struct KvCandidate
{
	int			i;				/* in the shard's list */
	uint64		used;
	uint64		live;
	double		score;
} KvCandidate;

/*
 * Places of the shard's value files that are to leave their tablespace, in their order, palloc'd.
 * Looks for files.
 */
static int
value_files_elsewhere(KvStore *store, uint32 shard_id, KvAddress **places)
{
	KvShard    *shard = kv_shard(store, shard_id);
	int			n = shard->nvalue_files;
	int			kept = 0;

	*places = NULL;
	if (store->shape.moved_lsn == 0 || n == 0)
		return 0;
	*places = palloc(n * sizeof(KvAddress));
	LWLockAcquire(&shard->lock, LW_SHARED);
	n = Min(n, shard->nvalue_files);
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

/* Is a value in it that could not be moved?  Only a sorted pass tries again. */
static bool
is_stuck(const KvJobPlan *plan, const KvShardValueFile *value_file, uint64 live)
{
	return (value_file->value_file.flags & KV_VALUE_FILE_DAMAGED) && plan->aim != KV_JOB_SORTS &&
		live > 0;
}

/* The best first; what is empty before all others. */
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

/* How many of the candidates, the best first, are enough? */
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

/* Space is short: of what is not empty the one with the least to move comes first. */
static void
least_first(KvCandidate *candidates, int n)
{
	for (int i = 0; i < n; i++)
		candidates[i].score = 1.0 / (1.0 + candidates[i].live);
}

/* Of those that are to leave their tablespace, as many as one job moves. */
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
	int			most = shard->nvalue_files + 1; /* who comes behind was not chosen */
	KvCandidate *candidates = palloc(most * sizeof(KvCandidate));
	KvAddress  *elsewhere;
	int			nelsewhere = value_files_elsewhere(store, shard_id, &elsewhere);
	int			n = 0;

	*inputs = palloc(most * sizeof(KvValueFile));
	*live = 0;
	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	for (int i = 0; i < shard->nvalue_files && n < most; i++)
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
		one.score = (1 - share) * sqrt(shard->nvalue_files - i) / (1 + share);
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
