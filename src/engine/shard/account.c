/*
 * account.c
 *		The account of a store: an estimate of its space that needs no look at value files.
 *
 * The account is the last count, changed by the reports of writers since then, under the mutex of
 * the account.  A writer reports bytes before it writes them, and bytes that its write has made
 * dead.  A report that comes while a count runs may be in the count or not; the account assumes the
 * case that leaves less space.
 *
 * The account takes reported bytes as dead at once; a count says which of these are still kept.  So
 * a writer that finds no space requests a count.  One writer at a time counts, and waits longer
 * between counts of many shards, which take longer.  An older account makes writers wait a little
 * longer; it does not weaken the limit.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/guc.h"

#include "engine/base/types.h"
#include "engine/base/wait.h"
#include "engine/base/worker.h"
#include "engine/shard/shard.h"
#include "engine/shard/space.h"
#include "engine/store.h"

KvCompactor *kv_compactor = NULL;

static double space_amp = 1.5;

/* ---- the setting ---- */

void
kv_space_init(void)
{
	pg_atomic_init_u32(&kv_compactor->amp, 0);
	pg_atomic_init_u32(&kv_compactor->wanted, 0);
	pg_atomic_init_u64(&kv_compactor->awaited, 0);
}

static bool
check_space_amp(double *value, void **extra, GucSource source)
{
	if (*value == 0 || *value >= 1.1)
		return true;
	GUC_check_errdetail("Valid values are 0, or between 1.1 and 10.");
	return false;
}

/* The form in shared memory, where 0 stands for no value. */
static uint32
shared_amp(double amp)
{
	return (uint32) (amp * 1000 + 0.5) + 1;
}

static void
assign_space_amp(double value, void *extra)
{
	if (kv_compactor != NULL && kv_compactor->latch != NULL && kv_compactor->latch == MyLatch)
		pg_atomic_write_u32(&kv_compactor->amp, shared_amp(value));
}

void
kv_space_attend(Latch *latch)
{
	pg_atomic_write_u32(&kv_compactor->amp, latch == NULL ? 0 : shared_amp(space_amp));
	kv_compactor->latch = latch;
}

void
kv_account_gucs(void)
{
	DefineCustomRealVariable("kvfdw.max_space_amplification",
							 "Sets how many bytes the value files of a table may have for each "
							 "byte of its values.",
							 "0: no limit, and no automatic compaction. Other values are 1.1 or "
							 "more. The table option has precedence.",
							 &space_amp, 1.5, 0, 10,
							 PGC_SIGHUP, 0, check_space_amp, assign_space_amp, NULL);
}

double
kv_space_amp(const KvStore *store)
{
	uint32		amp = pg_atomic_read_u32(unconstify(pg_atomic_uint32 *, &store->space.amp));

	if (amp == 0)
		amp = pg_atomic_read_u32(&kv_compactor->amp);
	return amp == 0 ? space_amp : (amp - 1) / 1000.0;
}

int64
kv_space_mark(double amp, double share, int64 live, int64 kept, int64 slack)
{
	double		spare = (amp - 1) * live;

	return live + (int64) Max(share * spare, kept + (share - 0.5) / 2 * spare) + slack;
}

/* ---- the account's answers ---- */

/* The bytes left until compaction is due, and until writers wait.  The account's mutex is held. */
static void
left_of(const KvSpaceAccount *account, double amp, int64 *start, int64 *bound)
{
	int64		live = Max(account->live, 0);

	*start = *bound = PG_INT64_MAX;
	if (amp == 0)
		return;
	*start = kv_space_mark(amp, KV_START_SHARE, live, account->kept, account->start_slack) -
		account->taken;
	*bound = kv_space_mark(amp, 1, live, account->kept, account->bound_slack) - account->taken -
		Max(account->obsolete + account->moving, account->job);
}

void
kv_space_left(KvStore *store, int64 *start, int64 *bound)
{
	double		amp = kv_space_amp(store);

	SpinLockAcquire(&store->account.mutex);
	left_of(&store->account, amp, start, bound);
	SpinLockRelease(&store->account.mutex);
}

static uint64
told(const KvSpaceAccount *account)
{
	return account->told_taken + account->told_dead;
}

/* Should kvfdw compactor check the store?  The account's mutex is held. */
static bool
is_due(const KvSpaceAccount *account, double amp)
{
	int64		start;
	int64		bound;

	left_of(account, amp, &start, &bound);
	return account->asked || (start < 0 && told(account) >= account->wake_at);
}

bool
kv_space_is_due(KvStore *store)
{
	double		amp = kv_space_amp(store);
	bool		due;

	SpinLockAcquire(&store->account.mutex);
	due = is_due(&store->account, amp);
	SpinLockRelease(&store->account.mutex);
	return due;
}

void
kv_compactor_wake(void)
{
	pg_atomic_write_u32(&kv_compactor->wanted, 1);
	kv_wake(kv_compactor->latch);
	if (kv_compactor->latch == NULL)
		(void) kv_worker_need(KV_WORKER_COMPACTOR);
}

void
kv_compactor_wake_again(void)
{
	if (pg_atomic_read_u32(&kv_compactor->wanted) != 0)
		kv_compactor_wake();
}

void
kv_space_ask(KvStore *store)
{
	bool		asked;

	SpinLockAcquire(&store->account.mutex);
	asked = store->account.asked;
	store->account.asked = true;
	SpinLockRelease(&store->account.mutex);
	if (!asked)
		kv_compactor_wake();
}

void
kv_space_answer(KvStore *store, bool no_room, uint64 quiet)
{
	KvSpaceAccount *account = &store->account;

	SpinLockAcquire(&account->mutex);
	account->asked = false;
	account->wake_at = quiet == 0 ? 0 : told(account) + quiet;
	SpinLockRelease(&account->mutex);
	pg_atomic_write_u32(&store->space.no_room, no_room);
	if (no_room)
		ConditionVariableBroadcast(&store->space.made);
}

void
kv_space_give_up(KvStore *store, uint64 bytes)
{
	pg_atomic_write_u64(&store->space.given_up, bytes);
}

void
kv_space_move(KvStore *store, bool bounds, uint64 bytes)
{
	if (!bounds)
		pg_atomic_fetch_add_u64(&store->space.aside, bytes);
	pg_atomic_fetch_add_u64(bounds ? &store->space.moving : &store->space.unbounded, bytes);
	kv_space_beat(store);
}

void
kv_space_moved(KvStore *store, bool bounds, uint64 bytes)
{
	pg_atomic_fetch_sub_u64(bounds ? &store->space.moving : &store->space.unbounded, bytes);
	kv_space_beat(store);
}

void
kv_space_beat(KvStore *store)
{
	pg_atomic_fetch_add_u32(&store->space.beat, 1);
}

void
kv_space_note_freed(KvStore *store, uint64 bytes)
{
	KvSpaceAccount *account = &store->account;

	pg_atomic_fetch_add_u64(&store->space.freed, bytes);
	SpinLockAcquire(&account->mutex);
	account->obsolete -= Min(account->obsolete, (int64) bytes);
	SpinLockRelease(&account->mutex);
	kv_space_beat(store);
	ConditionVariableSignal(&store->space.made);
}

void
kv_store_bound_space(KvStore *store, double amp)
{
	uint32		own = amp < 0 ? 0 : shared_amp(amp);

	if (likely(pg_atomic_read_u32(&store->space.amp) == own))
		return;
	pg_atomic_write_u32(&store->space.amp, own);
	kv_space_ask(store);
}

/* ---- writers ---- */

void
kv_space_tell(KvStore *store, KvShard *shard, int64 taken)
{
	KvSpaceAccount *account = &store->account;
	double		amp = kv_space_amp(store);
	uint64		dead = shard->count.untold;
	bool		due;

	Assert(LWLockHeldByMeInMode(&shard->lock, LW_EXCLUSIVE));
	if (taken == 0 && dead == 0)
		return;
	shard->count.untold = 0;
	SpinLockAcquire(&account->mutex);
	account->taken += taken;
	account->live += taken - (int64) dead;
	account->told_taken += taken;
	account->told_dead += dead;
	due = !account->asked && is_due(account, amp);
	account->asked |= due;
	SpinLockRelease(&account->mutex);
	if (due)
		kv_compactor_wake();
}

bool
kv_space_is_short(KvStore *store)
{
	int64		start;
	int64		bound;

	if (pg_atomic_read_u32(&store->space.no_room) != 0 ||
		pg_atomic_read_u32(&store->space.stalled) == pg_atomic_read_u32(&store->space.beat))
		return false;
	kv_space_left(store, &start, &bound);
	if (bound >= 0)
		return false;
	return kv_compactor->latch != NULL || kv_worker_need(KV_WORKER_COMPACTOR);
}
