/*
 * rangescan.c
 *		Scans that read through the windows of the range cache: the registry of
 *		what they want, and how they take and await it.
 *
 * While it reads through windows the scan is in the registry: its shard, and the
 * next ones that it wants loaded.  The prefetch workers do the rest.  What a scan
 * has registered is released with its memory context, so that no ERROR can leave
 * it behind, and by the process's exit.
 *
 * Waiting.  A scan sleeps until the piece that it needs is published.  It reads
 * by itself, for the rest of the span, when a read has failed, when no worker runs,
 * or when nothing has come for a twentieth of kvfdw.range_wait although it is not
 * held back, for others need all windows; at once when its patience is at an end.
 * Nobody spins: a load takes hundreds of microseconds.
 *
 * Scans close behind.  A scan that is ahead of others in the same table is held
 * back if they can reach it within kvfdw.range_wait (prefetch.c): what they need
 * stays, and their loads come first.  That uses up the scan's patience, as waiting
 * for room does.  It is kvfdw.range_wait at most and grows by the time that the scan
 * itself works.  A scan that takes no batch for that time, and is not waiting, holds
 * nobody back and keeps nothing; one that waits for its client or for a lock, or
 * sleeps, after a twentieth of it.  So one that is stuck costs the others that once,
 * and one that is slow at most doubles their time.
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

/* The share of kvfdw.range_wait for which a scan that is stuck counts. */
#define KV_STUCK_SHARE			20

#define KV_RANGE_NAP_MS			10
#define KV_PASS_BUFFER			(1024 * 1024)

/* ---- the registry ---- */

/*
 * How many spans a scan has to go until it reads one; KV_NEVER: it does not.  To one
 * that reads segments, another shard is further away than any segment.
 */
uint32
kv_range_distance(const KvRangeScan *scan, const KvSpanKey *span)
{
	int64		n = scan->nshards;
	int64		distance = ((int64) span->shard - scan->shard) * scan->step;
	int64		left = ((int64) scan->last - scan->shard) * scan->step;
	bool		in_order = scan->segment != KV_WHOLE;

	if (scan->cache_id != span->cache_id)
		return KV_NEVER;
	if (distance == 0 && in_order && span->segment != KV_WHOLE)
	{
		if (scan->last_segment != KV_WHOLE &&
			((int64) span->segment - scan->last_segment) * scan->segment_step > 0)
			return KV_NEVER;
		distance = ((int64) span->segment - scan->segment) * scan->segment_step;
		return distance >= 0 ? distance : KV_NEVER;
	}
	if (scan->wraps)
	{
		distance = (distance + n) % n;
		left = (left + n) % n;
	}
	if (distance < 0 || distance > left)
		return KV_NEVER;
	return distance == 0 ? 0 : distance + (in_order ? KV_WHOLE / 2 : 0);
}

/* Does its process wait for something that may take as long as somebody likes? */
static bool
is_stuck(const KvRangeScan *scan)
{
	uint32		class = *scan->wait_event & 0xFF000000U;

	return class == PG_WAIT_CLIENT || class == PG_WAIT_LOCK || class == PG_WAIT_TIMEOUT;
}

/* Does it go on, or wait for what is being loaded? */
bool
kv_range_is_live(const KvRangeScan *scan, TimestampTz now)
{
	int64		rests = now - scan->progress;

	if (scan->id == 0 || scan->waiting)
		return scan->id != 0;
	if (rests > kv_range_wait_ms * INT64CONST(1000) / KV_STUCK_SHARE && is_stuck(scan))
		return false;
	return rests < kv_range_wait_ms * INT64CONST(1000);
}

/* One may go meanwhile: its latch is shared memory, and somebody else's then. */
static void
wake_workers(void)
{
	for (int i = 0; i < KV_MAX_PREFETCH_WORKERS; i++)
	{
		Latch	   *latch = kv_range->workers[i];

		if (latch != NULL)
			SetLatch(latch);
	}
}

/* The span where a scan is was in use until now. */
static void
note_use(const KvRangeScan *entry, TimestampTz now)
{
	KvSpanKey	key = {entry->cache_id, entry->shard, entry->segment};
	KvSpan	   *span = kv_span_find(&key);

	if (span != NULL)
		span->used = now;
}

static void
release(KvRangeScan *entry)
{
	note_use(entry, GetCurrentTimestamp());
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

void
kv_range_leave(KvRangePass *pass)
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
	kv_range_leave(arg);
}

/* The context with which all that the scan has here goes. */
void
kv_range_make_context(KvScan *scan)
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

/*
 * Are there windows for a segment besides those that live scans other than self are
 * in?  If not, they would only wait for each other.
 */
static bool
is_room(const KvSpanKey *key, uint64 end, const KvRangeScan *self, TimestampTz now)
{
	KvSpanKey	known[64] = {*key};
	int			nknown = 1;
	uint64		bytes = kv_span_size(key, end);

	for (int i = 0; i < kv_range->scans_used; i++)
	{
		const KvRangeScan *scan = &kv_range_scans[i];
		KvSpanKey	other = {scan->cache_id, scan->shard, scan->segment};
		int			n = 0;

		if (scan == self || !kv_range_is_live(scan, now))
			continue;
		while (n < nknown && memcmp(&known[n], &other, sizeof(other)) != 0)
			n++;
		if (n < nknown)
			continue;
		bytes += kv_span_size(&other, scan->wants[0].end);
		if (nknown == lengthof(known) || bytes > (uint64) kv_range->nwindows * KV_WINDOW_SIZE)
			return false;
		known[nknown++] = other;
	}
	return true;
}

/*
 * Be in wants[0] from now on.  In no span, if the registry is full, or if it is a
 * segment and there is no room for it.
 */
void
kv_range_enter(KvScan *scan, const KvWant *wants, int nwants)
{
	static int	exit_callback_pid = 0;
	KvRangePass *pass = &scan->pass;
	KvSpanKey	key = {scan->store->cache_id, wants[0].shard, wants[0].segment};
	KvRangeScan *entry;
	TimestampTz now = GetCurrentTimestamp();

	if (exit_callback_pid != MyProcPid)
	{
		before_shmem_exit(release_all, (Datum) 0);
		exit_callback_pid = MyProcPid;
	}
	kv_range_make_context(scan);
	pass->segment = wants[0].segment;
	LWLockAcquire(&kv_range->lock, LW_EXCLUSIVE);
	entry = pass->entry != NULL ? pass->entry : find_entry();
	if (entry == NULL ||
		(key.segment != KV_WHOLE && !is_room(&key, wants[0].end, entry, now)))
	{
		LWLockRelease(&kv_range->lock);
		kv_range_leave(pass);
		return;
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
		entry->step = scan->backward ? -1 : 1;
		entry->wraps = scan->order == KV_ANY_ORDER || scan->order == KV_BY_PLACE;
		entry->last = scan->last_shard;
		entry->waiting = entry->held = false;
	}
	else
		note_use(entry, now);
	if (pass->entered != 0)
		pass->spent = Max(pass->spent - (now - pass->entered - pass->waited), 0);
	entry->patience = (int64) kv_range_wait_ms * 1000 - pass->spent;
	entry->shard = wants[0].shard;
	entry->segment = wants[0].segment;
	entry->last_segment = wants[0].segment == KV_WHOLE ? KV_WHOLE : pass->last_segment;
	entry->segment_step = pass->segment_step;
	entry->nwants = nwants;
	memcpy(entry->wants, wants, nwants * sizeof(KvWant));
	entry->progress = now;
	note_use(entry, now);
	wake_workers();
	LWLockRelease(&kv_range->lock);
	pass->windows = true;
	pass->entered = now;
	pass->waited = 0;
	KV_STOP_POINT("range_entered");
}

/* Is all that scans have asked for of a span in windows?  Lock held. */
static bool
is_complete(const KvSpanKey *key)
{
	KvSpan	   *span = kv_span_find(key);

	return span != NULL &&
		(uint64) span->nvalid * KV_WINDOW_SIZE >= kv_span_size(key, span->end);
}

/* Is most of a shard in windows already, or on its way there? */
bool
kv_range_is_there(const KvStore *store, uint32 shard)
{
	KvSpanKey	key = {store->cache_id, shard, KV_WHOLE};
	KvSpan	   *span;
	bool		there;

	LWLockAcquire(&kv_range->lock, LW_SHARED);
	span = kv_span_find(&key);
	there = span != NULL &&
		(uint64) (span->nvalid + span->nloading) * KV_WINDOW_SIZE * 2 >= span->end;
	LWLockRelease(&kv_range->lock);
	return there;
}

/* From one span to that before it, in the order of a scan; false: there is none. */
static bool
step_back(const KvRangeScan *scan, KvSpanKey *key)
{
	if (key->segment != KV_WHOLE)
	{
		key->segment -= scan->segment_step;
		return key->segment != KV_WHOLE;
	}
	key->shard = (key->shard + scan->nshards - 1) % scan->nshards;
	return key->shard != scan->shard;
}

/*
 * Where a scan in any order had best begin: where another scan of the store is
 * that goes upwards, or before that, where what is in windows begins.  False: there
 * is none.
 */
bool
kv_range_company(const KvStore *store, KvRangePlace *place)
{
	const KvRangeScan *other = NULL;
	TimestampTz now;

	if (kv_range == NULL || kv_range->scans_used == 0)
		return false;
	now = GetCurrentTimestamp();
	LWLockAcquire(&kv_range->lock, LW_SHARED);
	for (int i = 0; i < kv_range->scans_used && other == NULL; i++)
	{
		const KvRangeScan *scan = &kv_range_scans[i];

		if (kv_range_is_live(scan, now) && scan->cache_id == store->cache_id && scan->step > 0)
			other = scan;
	}
	if (other != NULL)
	{
		KvSpanKey	before = {store->cache_id, other->shard, other->segment};

		do
		{
			*place = (KvRangePlace) {before.shard, before.segment, other->segment_step,
				before.segment == KV_WHOLE ? 0 : before.segment * KV_SEGMENT_SIZE};
		} while (step_back(other, &before) && is_complete(&before));
	}
	LWLockRelease(&kv_range->lock);
	return other != NULL;
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
	KvPieceKey	key = {scan->store->cache_id, pass->shard, piece};
	int		   *seen = &pass->seen[piece % pass->nseen];
	int			i = *seen;

	for (int tries = 0; tries < 4; tries++)
	{
		KvWindow   *window;
		uint64		sequence;
		uint64		wanted_by;
		uint32		window_len;
		bool		known = i >= 0; /* from an earlier value */

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
			if (from + len <= window_len)
				memcpy(into, kv_window_bytes(i) + from, len);
			pg_read_barrier();
			if (pg_atomic_read_u64(&window->sequence) == sequence)
			{
				if (from + len > window_len)
				{
					/* the file has grown while the piece was loaded */
					if (pass->windows && (uint64) piece * KV_WINDOW_SIZE + from + len <= pass->to)
						kv_piece_lose(&key);
					return KV_ABSENT;
				}
				*seen = i;
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
 * Has the loading of a span come to nothing?  *pieces: how many of its pieces are
 * loaded or on their way; *coming: some are.
 */
static bool
loading_failed(const KvSpanKey *key, uint32 *pieces, bool *coming)
{
	KvSpan	   *span;
	bool		failed;

	LWLockAcquire(&kv_range->lock, LW_SHARED);
	span = kv_span_find(key);
	*pieces = span != NULL ? span->nvalid + span->nloading : 0;
	*coming = span != NULL && span->nloading > 0;
	failed = kv_range->nworkers == 0 ||
		(span != NULL && kv_span_failed(span, GetCurrentTimestamp()));
	LWLockRelease(&kv_range->lock);
	return failed;
}

/* Sleep until the piece is there; false: the scan had better read for itself. */
static bool
sleep_until_there(KvScan *scan, const KvPieceKey *key, const KvSpanKey *span)
{
	KvRangePass *pass = &scan->pass;
	KvRangeScan *entry = pass->entry;
	TimestampTz last = GetCurrentTimestamp();
	TimestampTz stirred = last;
	int64		stuck = kv_range_wait_ms * INT64CONST(1000) / KV_STUCK_SHARE;
	uint32		pieces = 0;
	bool		coming;
	bool		there = false;

	KV_STOP_POINT("range_waiting");
	ConditionVariablePrepareToSleep(&entry->loaded);
	for (;;)
	{
		int			window = kv_window_find(key);
		uint32		pieces_before = pieces;
		TimestampTz now;

		there = window >= 0 &&
			pg_atomic_read_u64(&kv_windows[window].sequence) % 2 == 0;
		if (there || loading_failed(span, &pieces, &coming))
			break;
		(void) ConditionVariableTimedSleep(&entry->loaded, KV_RANGE_NAP_MS, KV_WAIT_RANGE);

		now = GetCurrentTimestamp();
		if (!coming)
		{
			pass->spent += now - last;
			entry->patience -= now - last;
		}
		last = now;
		if (pieces != pieces_before || (entry->held && entry->patience > 0))
			stirred = now;
		else if (now - stirred > (coming ? stuck : Min(stuck, entry->patience)))
			break;
	}
	ConditionVariableCancelSleep();
	return there;
}

/*
 * Wait for a piece; false: the scan had better read for itself.  A cursor can
 * outlive an error in here, in a subtransaction: it is no scan that waits then.
 */
static bool
await_piece(KvScan *scan, uint32 piece)
{
	KvRangePass *pass = &scan->pass;
	KvRangeScan *entry = pass->entry;
	KvPieceKey	key = {entry->cache_id, pass->shard, piece};
	KvSpanKey	span = {entry->cache_id, pass->shard,
		pass->in_order ? piece / KV_SEGMENT_PIECES : KV_WHOLE};
	TimestampTz start = GetCurrentTimestamp();
	bool		there;

	scan->stats.windows_waited++;
	kv_range_count(KV_RANGE_WAITS, 1);
	entry->wait_piece = piece;
	entry->waiting = true;
	if (kv_window_find(&key) < 0)
		kv_span_miss(&span, piece);
	wake_workers();
	PG_TRY();
	{
		there = sleep_until_there(scan, &key, &span);
	}
	PG_CATCH();
	{
		kv_range_leave(pass);
		PG_RE_THROW();
	}
	PG_END_TRY();
	entry->waiting = false;
	entry->progress = GetCurrentTimestamp();
	pass->waited += entry->progress - start;
	return there;
}

/*
 * Be in the segment of a piece that is needed, so that the workers may take the
 * windows of those before it.  False: it is none of those that are wanted.
 */
static bool
come_to(KvRangePass *pass, uint32 piece)
{
	KvRangeScan *entry = pass->entry;
	uint32		segment = piece / KV_SEGMENT_PIECES;
	TimestampTz now;
	int			n = 1;

	if (!pass->in_order || entry->segment == segment)
		return true;
	while (n < entry->nwants && entry->wants[n].segment != segment)
		n++;
	if (n >= entry->nwants)
		return false;
	now = GetCurrentTimestamp();
	LWLockAcquire(&kv_range->lock, LW_EXCLUSIVE);
	note_use(entry, now);
	entry->nwants -= n;
	memmove(entry->wants, entry->wants + n, entry->nwants * sizeof(KvWant));
	entry->segment = segment;
	note_use(entry, now);
	LWLockRelease(&kv_range->lock);
	return true;
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

	if (KV_LOCATION_FILE(row->version.location) != pass->shard)
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
		if (!pass->windows || waited || offset < pass->from || offset + len > pass->to ||
			!come_to(pass, piece))
			return false;
		if (!await_piece(scan, piece))
		{
			kv_range_leave(pass);
			return false;
		}
		waited = true;
	}
	if (kv_value_matches(&scan->store->key, key, into, &row->version))
		return true;
	for (uint32 piece = offset / KV_WINDOW_SIZE; piece <= (offset + len - 1) / KV_WINDOW_SIZE; piece++)
	{
		KvPieceKey	lost = {scan->store->cache_id, pass->shard, piece};

		kv_piece_lose(&lost);
		pass->seen[piece % pass->nseen] = -1;
	}
	return false;
}

/* Memory for a batch's values; mostly that of the batch before. */
static char *
make_buffer(KvScan *scan, Size size)
{
	KvRangePass *pass = &scan->pass;

	if (!pass->windows || size > KV_PASS_BUFFER)
		return MemoryContextAllocHuge(scan->batch_context, size);
	if (pass->buffer == NULL)
		pass->buffer = MemoryContextAlloc(pass->context, KV_PASS_BUFFER);
	return pass->buffer;
}

/* Get the values of a range's batch that are in windows, or are on their way there. */
void
kv_range_fetch(KvScan *scan)
{
	KvRangePass *pass = &scan->pass;
	Size		total = 0;
	char	   *into;

	if (pass->seen == NULL || (!pass->windows && kv_range->nfree == kv_range->nwindows))
		return;
	for (int i = 0; i < scan->nrows; i++)
	{
		if (scan->rows[i].value == NULL)
			total += MAXALIGN(VARHDRSZ + scan->rows[i].version.len);
	}
	if (total == 0)
		return;
	into = make_buffer(scan, total);
	for (int i = 0; i < scan->nrows; i++)
	{
		KvBatchRow *row = &scan->rows[i];
		bool		raw = KV_LOCATION_FORM(row->version.location) == KV_FORM_RAW;
		char	   *value = raw ? into + VARHDRSZ : into;

		if (row->value != NULL || !take_value(scan, row, value))
			continue;
		row->value = value;
		row->headed = raw;
		row->verified = true;
		into = value + row->version.len;
		into = (char *) MAXALIGN(into);
	}
}
