/*
 * inputs.c
 *		Chooses the value files of a shard that a job empties.
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
 */
#include "postgres.h"

#include <math.h>

#include "engine/base/types.h"
#include "engine/compact/internal.h"
#include "engine/shard/space.h"
#include "engine/buffer/buffer.h"
#include "engine/xact/xact.h"

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
