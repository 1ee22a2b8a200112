/*
 * rangescan.c
 *		Scans that read through the windows of the range cache: when they begin to,
 *		what they ask for, how they take and await it.
 *
 * A scan begins with single reads, in batches that grow, and goes over to windows
 * once it has returned a sixteenth of the rows that its range still has in the
 * shard, if that reads less than single reads would; from then on it enters each
 * shard with windows if they pay there.  So a short range never pays for a long
 * one, and what a scan that ends early has loaded in vain is bounded by what it
 * has read.
 *
 * While it reads through windows the scan is in the registry: its shard, and the
 * next ones that it wants loaded.  The prefetch workers do the rest.  What a scan
 * has registered is released with its memory context, so that no ERROR can leave
 * it behind, and by the process's exit.
 *
 * Waiting.  A scan sleeps until the piece that it needs is published.  It reads
 * by itself, for the rest of the shard, when a read has failed, when no worker
 * runs, or when nothing has come for kvfdw.range_wait although it is not held
 * back.  Nobody spins: a load takes hundreds of microseconds.
 *
 * Scans close behind.  A scan that is ahead of others in the same table is held
 * back if they can reach it within kvfdw.range_wait (prefetch.c): what they need
 * stays, and their loads come first.  That uses up the scan's patience, which is
 * kvfdw.range_wait at most and grows by the time that the scan itself works.  A
 * scan that takes no batch for that time, and is not waiting, holds nobody back and
 * keeps nothing; one whose client lets it wait, after a twentieth of it.  So a
 * client that is stuck costs the others that once, and one that is slow at most
 * doubles their time.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "pgstat.h"
#include "storage/ipc.h"
#include "storage/proc.h"
#include "utils/memutils.h"

#include "engine/batch.h"
#include "engine/rangecache.h"

int			kv_range_wait_ms = 10000;

/* The share of kvfdw.range_wait for which the scan of a client that waits counts. */
#define KV_STUCK_SHARE			20

/* A single read costs as much as so many more blocks read in windows. */
#define KV_SINGLE_READ_BLOCKS	3
/* The share of a range's rows after which a scan goes over to windows. */
#define KV_RAMP_SHARE			16
#define KV_RANGE_NAP_MS			10

/* ---- the registry ---- */

/* How many shards a scan has to go until it reads shard; KV_NEVER: it does not. */
uint32
kv_range_distance(const KvRangeScan *scan, uint32 cache_id, uint32 shard)
{
	int64		n = scan->nshards;
	int64		distance = ((int64) shard - scan->shard) * scan->step;
	int64		left = ((int64) scan->last - scan->shard) * scan->step;

	if (scan->cache_id != cache_id)
		return KV_NEVER;
	if (scan->wraps)
	{
		distance = (distance + n) % n;
		left = (left + n) % n;
	}
	return distance >= 0 && distance <= left ? distance : KV_NEVER;
}

/* Does it go on, or wait for what is being loaded? */
bool
kv_range_is_live(const KvRangeScan *scan, TimestampTz now)
{
	int64		rests = now - scan->progress;

	if (scan->id == 0 || scan->waiting)
		return scan->id != 0;
	if (rests > kv_range_wait_ms * INT64CONST(1000) / KV_STUCK_SHARE &&
		(*scan->wait_event & 0xFF000000U) == PG_WAIT_CLIENT)
		return false;
	return rests < kv_range_wait_ms * INT64CONST(1000);
}

static void
wake_workers(void)
{
	for (int i = 0; i < KV_MAX_PREFETCH_WORKERS; i++)
	{
		if (kv_range->workers[i] != NULL)
			SetLatch(kv_range->workers[i]);
	}
}

static void
release(KvRangeScan *entry)
{
	KvSpanKey	key = {entry->cache_id, entry->shard};
	KvSpan	   *span = hash_search(kv_span_hash, &key, HASH_FIND, NULL);

	if (span != NULL)
		span->used = GetCurrentTimestamp();
	entry->id = 0;
	entry->waiting = false;
	while (kv_range->scans_used > 0 && kv_range_scans[kv_range->scans_used - 1].id == 0)
		kv_range->scans_used--;
}

/* before_shmem_exit callback: whatever this process still has in the registry. */
static void
release_all(int code, Datum arg)
{
	LWLockAcquire(&kv_range->lock, LW_EXCLUSIVE);
	for (int i = 0; i < kv_range->scans_used; i++)
	{
		if (kv_range_scans[i].id != 0 && kv_range_scans[i].pid == MyProcPid)
			release(&kv_range_scans[i]);
	}
	LWLockRelease(&kv_range->lock);
}

static void
leave(KvRangePass *pass)
{
	pass->windows = false;
	if (pass->entry == NULL)
		return;
	LWLockAcquire(&kv_range->lock, LW_EXCLUSIVE);
	if (pass->entry->id == pass->id)
		release(pass->entry);
	LWLockRelease(&kv_range->lock);
	pass->entry = NULL;
}

static void
context_reset(void *arg)
{
	leave(arg);
}

/* The context with which all that the scan has here goes. */
static void
make_context(KvScan *scan)
{
	KvRangePass *pass = &scan->pass;

	if (pass->context != NULL)
		return;
	pass->context = AllocSetContextCreate(scan->context, "kvfdw range windows",
										  ALLOCSET_SMALL_SIZES);
	pass->callback.func = context_reset;
	pass->callback.arg = pass;
	MemoryContextRegisterResetCallback(pass->context, &pass->callback);
}

/* An entry of the registry; NULL: there is none left. */
static KvRangeScan *
find_entry(void)
{
	for (int i = 0; i < kv_range->nscans; i++)
	{
		if (kv_range_scans[i].id == 0)
		{
			kv_range->scans_used = Max(kv_range->scans_used, i + 1);
			return &kv_range_scans[i];
		}
	}
	return NULL;
}

static void
note_use(uint32 cache_id, uint32 shard, TimestampTz now)
{
	KvSpanKey	key = {cache_id, shard};
	KvSpan	   *span = hash_search(kv_span_hash, &key, HASH_FIND, NULL);

	if (span != NULL)
		span->used = now;
}

static bool
enter(KvScan *scan, const KvWant *wants, int nwants)
{
	static int	exit_callback_pid = 0;
	KvRangePass *pass = &scan->pass;
	KvRangeScan *entry;
	TimestampTz now = GetCurrentTimestamp();

	if (exit_callback_pid != MyProcPid)
	{
		before_shmem_exit(release_all, (Datum) 0);
		exit_callback_pid = MyProcPid;
	}
	make_context(scan);
	LWLockAcquire(&kv_range->lock, LW_EXCLUSIVE);
	entry = pass->entry != NULL ? pass->entry : find_entry();
	if (entry == NULL)
	{
		LWLockRelease(&kv_range->lock);
		return false;
	}
	if (pass->entry == NULL)
	{
		pass->entry = entry;
		pass->id = entry->id = ++kv_range->last_id;
		entry->pid = MyProcPid;
		entry->wait_event = &MyProc->wait_event_info;
		entry->store = scan->store->key;
		entry->cache_id = scan->store->cache_id;
		entry->nshards = scan->store->nshards;
		entry->step = scan->order == KV_DESCENDING ? -1 : 1;
		entry->wraps = scan->order == KV_ANY_ORDER;
		entry->last = scan->last_shard;
		entry->waiting = entry->held = false;
		entry->patience = (int64) kv_range_wait_ms * 1000;
	}
	else
	{
		note_use(entry->cache_id, entry->shard, now);
		entry->patience = Min(entry->patience + (now - pass->entered) - pass->waited,
							  (int64) kv_range_wait_ms * 1000);
	}
	entry->shard = wants[0].shard;
	entry->nwants = nwants;
	memcpy(entry->wants, wants, nwants * sizeof(KvWant));
	entry->progress = now;
	note_use(entry->cache_id, entry->shard, now);
	wake_workers();
	LWLockRelease(&kv_range->lock);
	pass->entered = now;
	pass->waited = 0;
	return true;
}

void
kv_range_leave(KvScan *scan)
{
	if (kv_range != NULL)
		leave(&scan->pass);
}

/* Is all that scans have asked for of a shard in windows?  Lock held. */
static bool
is_complete(uint32 cache_id, uint32 shard)
{
	KvSpanKey	key = {cache_id, shard};
	KvSpan	   *span = hash_search(kv_span_hash, &key, HASH_FIND, NULL);

	return span != NULL && (uint64) span->nvalid * KV_WINDOW_SIZE >= span->length;
}

/*
 * Where a scan in any order had best begin: where another scan of the store is
 * that goes upwards, or before that, where the shards begin that are in windows.
 * False: there is none.
 */
bool
kv_range_company(const KvStore *store, uint32 *shard)
{
	bool		found = false;
	TimestampTz now;

	if (kv_range == NULL || kv_range->scans_used == 0)
		return false;
	now = GetCurrentTimestamp();
	LWLockAcquire(&kv_range->lock, LW_SHARED);
	for (int i = 0; i < kv_range->scans_used && !found; i++)
	{
		const KvRangeScan *other = &kv_range_scans[i];

		found = kv_range_is_live(other, now) && other->cache_id == store->cache_id &&
			other->step > 0;
		if (found)
			*shard = other->shard;
	}
	for (int i = 1; found && i < store->nshards; i++)
	{
		uint32		before = (*shard + store->nshards - 1) % store->nshards;

		if (!is_complete(store->cache_id, before))
			break;
		*shard = before;
	}
	LWLockRelease(&kv_range->lock);
	return found;
}

/* ---- when windows pay ---- */

/* Up to where a shard's value file is written. */
uint64
kv_range_written(const KvShard *shard)
{
	uint64		end = shard->value_tail;

	if (shard->open_slot >= 0)
		end = Min(end, kv_slots[shard->open_slot].base);
	for (int i = shard->sealed_slots; i >= 0; i = kv_slots[i].next)
		end = Min(end, kv_slots[i].base);
	return end;
}

static uint64
cache_bytes(void)
{
	return (uint64) kv_range->nwindows * KV_WINDOW_SIZE;
}

/*
 * Does reading all of a file's first length bytes cost less than reading that
 * many of its values, of mean size, singly?
 */
static bool
windows_pay(uint64 rows, double mean, uint64 length)
{
	uint64		blocks = length / KV_BLOCK;

	return rows > 0 && length > 0 && length <= cache_bytes() &&
		Min(rows, blocks) * KV_SINGLE_READ_BLOCKS + rows * mean / KV_BLOCK >= blocks;
}

static double
position(KvRun *run, const KvRunCursor *cursor)
{
	const KvRunHeader *header = kv_run_header(run);

	if (!cursor->valid)
		return header->nentries;
	return (double) header->nentries * cursor->page / header->npages + cursor->index;
}

/* About how many entries of the runs lie in [lo, hi), and what their values' mean size is. */
static uint64
entries_between(const KvRunSet *set, KvKey lo, KvKey hi, double *mean)
{
	double		n = 0;
	double		all = 0;
	double		value_bytes = 0;

	for (int i = 0; i < set->nruns; i++)
	{
		KvRun	   *run = set->runs[i];
		const KvRunHeader *header = kv_run_header(run);
		KvRunCursor first = {.run = run};
		KvRunCursor end = {.run = run};

		if (lo.data != NULL)
			kv_run_seek(run, lo.data, lo.len, &first);
		else
			kv_run_first(run, &first);
		if (hi.data != NULL)
			kv_run_seek(run, hi.data, hi.len, &end);
		n += Max(position(run, &end) - position(run, &first), 0);
		all += header->nentries;
		value_bytes += header->value_bytes;
	}
	*mean = all > 0 ? value_bytes / all : 0;
	return n;
}

/* What the scan wants loaded; the first is there already. */
static int
look_ahead(const KvScan *scan, KvWant wants[KV_WANTS], double mean)
{
	uint64		room = cache_bytes() - wants[0].length;
	uint32		shardno = wants[0].shard;
	bool		open_ended = (scan->order == KV_DESCENDING ? scan->extent_lo : scan->extent_hi).data == NULL;
	int			n = 1;

	while (n < KV_WANTS && kv_batch_next_shard(scan, scan->last_shard, &shardno))
	{
		KvShard    *shard = kv_shard(scan->store, shardno);
		uint64		length;

		if (shardno == scan->last_shard && !open_ended)
			break;				/* part of it only: to be decided there */
		LWLockAcquire(&shard->lock, LW_SHARED);
		length = kv_range_written(shard);
		LWLockRelease(&shard->lock);
		if (!windows_pay(shard->frozen_keys + shard->unfrozen_entries, mean, length))
			continue;
		if (length > room)
			break;
		room -= length;
		wants[n].shard = shardno;
		wants[n++].length = length;
	}
	return n;
}

static void
forget_pieces(KvRangePass *pass)
{
	if (pass->seen != NULL)
		pfree(pass->seen);
	pass->seen = NULL;
	pass->npieces = 0;
}

/*
 * A batch of shardno is being made; written: kv_range_written().  Decide whether
 * its values come through windows.
 */
void
kv_range_steer(KvScan *scan, uint32 shardno, const KvRunSet *set, uint64 written)
{
	KvRangePass *pass = &scan->pass;
	bool		backward = scan->order == KV_DESCENDING;
	KvWant		wants[KV_WANTS];
	KvKey		lo = scan->extent_lo;
	KvKey		hi = scan->extent_hi;
	uint64		rows;
	double		mean;

	if (kv_range == NULL)
		return;
	if (pass->shard != shardno)
	{
		forget_pieces(pass);
		pass->shard = shardno;
		pass->decided = false;
	}
	if (pass->decided)
	{
		if (pass->entry != NULL)
			pass->entry->progress = GetCurrentTimestamp();
		return;
	}
	if (scan->started && !scan->shared)
	{
		if (backward)
			hi = scan->position;
		else
			lo = scan->position;
	}
	rows = entries_between(set, lo, hi, &mean);
	if (!windows_pay(rows, mean, written))
	{
		leave(pass);
		pass->decided = pass->ramped;
		return;
	}
	if (!pass->ramped)
	{
		if (pass->rows < scan->limit_hint || pass->rows * KV_RAMP_SHARE < rows)
			return;
		pass->ramped = true;
	}
	pass->decided = true;
	pass->length = written;
	wants[0].shard = shardno;
	wants[0].length = written;
	pass->windows = enter(scan, wants, look_ahead(scan, wants, mean));
	KV_STOP_POINT("range_entered");
}

/* ---- taking values ---- */

typedef enum KvTake
{
	KV_TAKEN,
	KV_COMING,					/* a worker is about to load the piece */
	KV_ABSENT					/* nobody is, or it was loaded before the value was written */
} KvTake;

static bool
same_piece(const KvPieceKey *a, const KvPieceKey *b)
{
	return memcmp(a, b, sizeof(*a)) == 0;
}

static void
note_taken(KvScan *scan, uint32 bytes, uint64 wanted_by, bool waited)
{
	KvRangePass *pass = &scan->pass;

	if (pass->entry != NULL && wanted_by == pass->id)
	{
		scan->stats.windows_loaded++;
		scan->stats.device_reads++;
		scan->stats.device_bytes += bytes;
		kv_range_count(KV_RANGE_LOADS, 1);
		kv_count(scan->store, KV_COUNT_DEVICE_READS, 1);
		kv_count(scan->store, KV_COUNT_DEVICE_READ_BYTES, bytes);
	}
	else if (waited)
	{
		scan->stats.windows_shared++;
		kv_range_count(KV_RANGE_SHARED, 1);
	}
	else
	{
		scan->stats.windows_hit++;
		kv_range_count(KV_RANGE_HITS, 1);
	}
}

/* Copy a part of one piece, if it is in a window. */
static KvTake
take_part(KvScan *scan, uint32 piece, uint32 from, uint32 len, char *into, bool waited)
{
	KvRangePass *pass = &scan->pass;
	KvPieceKey	key = {{scan->store->cache_id, pass->shard}, piece};
	int			i = pass->seen[piece];

	for (int tries = 0; tries < 4; tries++)
	{
		KvWindow   *window;
		uint64		sequence;
		uint64		wanted_by;
		uint32		window_len;
		bool		known = i >= 0;

		if (!known)
			i = kv_window_find(&key);
		if (i < 0)
			return KV_ABSENT;
		window = &kv_windows[i];
		sequence = pg_atomic_read_u64(&window->sequence);
		if (sequence % 2 != 0 && !known)
			return KV_COMING;
		pg_read_barrier();
		if (sequence % 2 == 0 && same_piece(&window->key, &key))
		{
			window_len = window->len;
			wanted_by = window->wanted_by;
			if (from + len > window_len)
				return KV_ABSENT;
			memcpy(into, kv_window_bytes(i) + from, len);
			pg_read_barrier();
			if (pg_atomic_read_u64(&window->sequence) == sequence)
			{
				pass->seen[piece] = i;
				if (!known)
					note_taken(scan, window_len, wanted_by, waited);
				return KV_TAKEN;
			}
		}
		i = -1;
	}
	return KV_ABSENT;
}

/*
 * Has the loading of the scan's shard come to nothing?  *pieces: how many pieces
 * are loaded or on their way.
 */
static bool
loading_failed(const KvRangeScan *entry, uint32 *pieces)
{
	KvSpanKey	key = {entry->cache_id, entry->shard};
	KvSpan	   *span;
	bool		failed;

	LWLockAcquire(&kv_range->lock, LW_SHARED);
	span = hash_search(kv_span_hash, &key, HASH_FIND, NULL);
	*pieces = span != NULL ? span->nvalid + span->nloading : 0;
	failed = kv_range->nworkers == 0 || (span != NULL && span->failed != 0);
	LWLockRelease(&kv_range->lock);
	return failed;
}

/* Sleep until the piece is there; false: the scan had better read for itself. */
static bool
await_piece(KvScan *scan, uint32 piece)
{
	KvRangePass *pass = &scan->pass;
	KvRangeScan *entry = pass->entry;
	KvPieceKey	key = {{entry->cache_id, pass->shard}, piece};
	TimestampTz start = GetCurrentTimestamp();
	TimestampTz last = start;
	TimestampTz stirred = start;
	uint32		pieces = 0;
	bool		there = false;

	scan->stats.windows_waited++;
	kv_range_count(KV_RANGE_WAITS, 1);
	entry->wait_piece = piece;
	entry->waiting = true;
	wake_workers();
	KV_STOP_POINT("range_waiting");
	ConditionVariablePrepareToSleep(&entry->loaded);
	for (;;)
	{
		int			window = kv_window_find(&key);
		uint32		pieces_before = pieces;
		TimestampTz now;

		there = window >= 0 &&
			pg_atomic_read_u64(&kv_windows[window].sequence) % 2 == 0;
		if (there || loading_failed(entry, &pieces))
			break;
		(void) ConditionVariableTimedSleep(&entry->loaded, KV_RANGE_NAP_MS, KV_WAIT_RANGE);

		now = GetCurrentTimestamp();
		if (entry->held)
			entry->patience -= now - last;
		last = now;
		if (pieces != pieces_before)
			stirred = now;
		else if (now - stirred > 2 * (int64) kv_range_wait_ms * 1000)
			break;				/* its patience is at an end, and still there is no room */
	}
	ConditionVariableCancelSleep();
	entry->waiting = false;
	entry->progress = GetCurrentTimestamp();
	pass->waited += entry->progress - start;
	return there;
}

/* Copy a value out of the windows and verify it; false: it has to be read. */
static bool
take_value(KvScan *scan, KvBatchRow *row, char *into)
{
	KvRangePass *pass = &scan->pass;
	uint64		offset = KV_LOCATION_OFFSET(row->version.location);
	uint32		len = row->version.len;
	uint32		done = 0;
	bool		waited = false;
	KvKey		key = {row->key, row->keylen};

	if (offset + len > (uint64) pass->npieces * KV_WINDOW_SIZE)
		return false;
	while (done < len)
	{
		uint32		piece = (offset + done) / KV_WINDOW_SIZE;
		uint32		from = (offset + done) % KV_WINDOW_SIZE;
		uint32		part = Min(len - done, KV_WINDOW_SIZE - from);
		KvTake		taken = take_part(scan, piece, from, part, into + done, waited);

		if (taken == KV_TAKEN)
		{
			done += part;
			waited = false;
			continue;
		}
		if (!pass->windows || waited || offset + len > pass->length)
			return false;
		if (!await_piece(scan, piece))
		{
			leave(pass);
			return false;
		}
		waited = true;
	}
	if (kv_value_matches(&scan->store->key, key, into, &row->version))
		return true;
	for (uint32 piece = offset / KV_WINDOW_SIZE; piece <= (offset + len - 1) / KV_WINDOW_SIZE; piece++)
	{
		int			window = pass->seen[piece];

		kv_window_lose(window, pg_atomic_read_u64(&kv_windows[window].sequence));
		pass->seen[piece] = -1;
	}
	return false;
}

/* Are there windows of the shard, for this scan or of others? */
static bool
see_pieces(KvScan *scan)
{
	KvRangePass *pass = &scan->pass;
	KvSpanKey	key = {scan->store->cache_id, pass->shard};
	KvSpan	   *span;
	uint64		length = 0;

	if (pass->seen != NULL)
		return true;
	LWLockAcquire(&kv_range->lock, LW_SHARED);
	span = hash_search(kv_span_hash, &key, HASH_FIND, NULL);
	if (span != NULL)
		length = span->length;
	LWLockRelease(&kv_range->lock);
	if (pass->windows)
		length = Max(length, pass->length);
	if (length == 0)
		return false;
	pass->npieces = (length + KV_WINDOW_SIZE - 1) / KV_WINDOW_SIZE;
	make_context(scan);
	pass->seen = MemoryContextAlloc(pass->context, pass->npieces * sizeof(int));
	for (int i = 0; i < pass->npieces; i++)
		pass->seen[i] = -1;
	return true;
}

/* Get the values of a range's batch that are in windows, or are on their way there. */
void
kv_range_fetch(KvScan *scan)
{
	Size		total = 0;
	char	   *into;

	if (kv_range == NULL || !see_pieces(scan))
		return;
	for (int i = 0; i < scan->nrows; i++)
	{
		if (scan->rows[i].value == NULL)
			total += MAXALIGN(scan->rows[i].version.len);
	}
	if (total == 0)
		return;
	into = MemoryContextAllocHuge(scan->batch_context, total);
	for (int i = 0; i < scan->nrows; i++)
	{
		KvBatchRow *row = &scan->rows[i];

		if (row->value != NULL || !take_value(scan, row, into))
			continue;
		row->value = into;
		row->verified = true;
		into += MAXALIGN(row->version.len);
	}
}
