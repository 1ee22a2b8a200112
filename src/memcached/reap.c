/*
 * reap.c
 *		The process "kvfdw memcached reaper": deletes expired rows, executes flush_alls that
 *		had a delay, and frees memtable memory for batches in the maintainer's place.
 *
 * From time to time the reaper walks through the tables in key order and reads all rows, at a
 * limited rate.  It deletes an expired row only if the row is still the version that it looked
 * at (kv_put_if), so an item that was stored in between is safe.  A row that other transactions
 * have locked, or whose value cannot be read, is left for the next walk.  Like batches, the
 * reaper waits for no lock, and its transactions are short.
 *
 * Rows that other processes have met (expired.c) are deleted when the reaper is told of them,
 * at the same rate.
 *
 * A batch that finds no memtable memory sets requests aside, and the maintainer is asked for
 * some (kv_put_if).  The maintainer may work on a large shard for minutes.  A session would do
 * its work then; a batch may not take so long (M 2).  So the reaper does it, for which no
 * client waits.
 *
 * The reaper has the privileges of kvfdw.memcached_role: without DELETE a table's rows stay.
 */
#include "memcached/memcached.h"
#include "engine/rows.h"
#include "memcached/batch/batch.h"

#include "clock.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/wait_event.h"

#define STEP_KEYS	1000
#define STEP_BYTES	((Size) 1024 * 1024)
#define STEP_DELETES 200
/* bytes of values that are read for that at once */
#define MOST_DELETED_BYTES	((Size) 4 * 1024 * 1024)
#define RETRY_MS	10			/* between attempts at a flush_all */
#define TRY_US		50000		/* duration of an attempt */
/* pause after an attempt that failed because of locks; it doubles each time */
#define FIRST_PAUSE_US	100000
#define MOST_PAUSE_US	(5 * USECS_PER_SEC)	/* the longest pause */
#define NO_PRIVILEGE	"42501 "	/* how such an error of kv_mc_empty_tables begins */
#define MOST_SLEEP_MS 60000
#define PATIENCE_MS		200		/* time for the maintainer: less than requests have */
#define FIRST_REST_US	USECS_PER_SEC	/* rest after an ERROR; it doubles each time */
#define MOST_REST_US	(60 * USECS_PER_SEC)	/* the longest rest */

/* The position of the walk. */
static struct
{
	List	   *relids;			/* remaining tables; the first is being walked */
	StringInfoData next;		/* its first key that was not read */
	TimestampTz began;
}			walk;

static TimestampTz stepped;		/* when the last steps ended, of the walk or not */
static int64 rest_us;				/* how long to rest after them */
static int64 error_rest_us;			/* the rest after the last step's ERROR; 0: it raised none */

static uint32 wait_reaper = 0;
static MemoryContext context;	/* of the walk */
static MemoryContext step_context;
static MemoryContext met_context;

typedef struct KvMcExpired
{
	int			n;
	KvKey		keys[STEP_DELETES];
} KvMcExpired;

/* Rows that other processes have met and that are still to be deleted; in met_context. */
static struct
{
	Oid			relid;
	KvMcExpired expired;
}			met;

/* The key that a step processes: the one to skip after an ERROR.  data NULL: none. */
static KvKey current;

/* ---- a step ---- */

/* Open the table; NULL: nothing can be done with it now. */
static KvMcTable *
open_table(Oid relid, bool writes)
{
	KvMcTable **tables;
	int			n;

	kv_mc_check_role();
	kv_mc_tables_begin();
	n = kv_mc_tables(&tables);
	for (int i = 0; i < n; i++)
	{
		KvMcTable  *table = tables[i];

		if (table->relid != relid || !table->trusted ||
			!kv_mc_table_allows(table, GetUserId(), ACL_SELECT | ACL_DELETE) ||
			kv_mc_table_open(table, writes) != KV_MC_TABLE_OPEN)
			continue;
		return table->expires != 0 && table->store != NULL ? table : NULL;
	}
	return NULL;
}

/* Get the next keys of the table, from walk.next on; returns how many. */
static int
next_keys(const KvMcTable *table, KvGet *gets)
{
	KvScan	   *scan = kv_scan_begin(table->store, GetActiveSnapshot(), false);
	KvKey		from = {.data = (const uint8 *) walk.next.data, .len = walk.next.len};
	KvKey		to = {0};
	KvRow		row;
	int			n = 0;

	if (from.len == 0)
		from.data = NULL;
	kv_scan_range(scan, from, to, KV_ASCENDING, STEP_KEYS);
	while (n < STEP_KEYS && kv_scan_next(scan, &row))
	{
		uint8	   *copy = palloc(Max(row.keylen, 1));

		memcpy(copy, row.key, row.keylen);
		gets[n++].key = (KvKey) {.data = copy, .len = row.keylen};
	}
	kv_scan_end(scan);
	return n;
}

static bool
has_expired(const KvMcTable *table, const KvGet *get)
{
	KvMcItem	item = {0};
	KvMcRow		row;
	MemoryContext row_context;
	MemoryContext old;

	if (get->status != KV_GET_FOUND)
		return false;
	/* a compressed value takes more memory than was looked up */
	row_context = AllocSetContextCreate(CurrentMemoryContext, "kvfdw memcached reaper row",
										ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(row_context);
	current = get->key;
	(void) kv_mc_row_read(table, get, GetCurrentTransactionStartTimestamp(), 0, &item, &row);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(row_context);
	return item.row && !item.exists;
}

/* The walk has passed this key. */
static void
walk_past(const KvKey *key)
{
	resetStringInfo(&walk.next);
	appendBinaryStringInfo(&walk.next, (const char *) key->data, key->len);
	appendStringInfoChar(&walk.next, '\0');
}

/*
 * Read some rows of the table, and collect the keys of expired ones.  False: there are no
 * more.  *bytes: how much was read.
 */
static bool
look_step(Oid relid, KvMcExpired *expired, Size *bytes)
{
	KvMcTable  *table;
	KvGet      *gets = palloc0(STEP_KEYS * sizeof(KvGet));
	Size		left = STEP_BYTES;
	int			n = 0;
	int			done = 0;

	kv_mc_begin();
	MemoryContextSwitchTo(step_context);
	table = open_table(relid, false);
	if (table != NULL)
	{
		PushActiveSnapshot(GetTransactionSnapshot());
		n = next_keys(table, gets);
		done = kv_get(table->store, GetActiveSnapshot(), gets, n, &left);
		kv_get_read(table->store, gets, done);
		for (int i = 0; i < done && expired->n < STEP_DELETES; i++)
		{
			*bytes += gets[i].status == KV_GET_NONE ? 0 : gets[i].row.len;
			if (has_expired(table, &gets[i]))
				expired->keys[expired->n++] = gets[i].key;
			walk_past(&gets[i].key);
		}
		current.data = NULL;
		PopActiveSnapshot();
	}
	CommitTransactionCommand();
	MemoryContextSwitchTo(step_context);
	return n > 0;
}

/*
 * Delete rows that are still expired.  Adds to *bytes what was read for that.  Returns how many
 * of the keys were processed: the values of all may be too much for one step.
 */
static int
delete_step(Oid relid, const KvKey *keys, int n, Size *bytes)
{
	KvMcTable  *table;
	bool		wrote = false;
	int			done = n;

	kv_mc_begin();
	kv_mc_counts[KV_MC_COUNT_BATCHES]++;
	table = XactReadOnly ? NULL : open_table(relid, true);
	if (table != NULL)
	{
		KvGet      *gets = palloc0(n * sizeof(KvGet));
		Size		left = MOST_DELETED_BYTES;
		CommandId	cid = GetCurrentCommandId(true);

		PushActiveSnapshot(GetTransactionSnapshot());
		for (int i = 0; i < n; i++)
			gets[i].key = keys[i];
		done = kv_get(table->store, GetActiveSnapshot(), gets, n, &left);
		kv_get_read(table->store, gets, done);
		for (int i = 0; i < done; i++)
		{
			KvVersion	made;
			TransactionId in_the_way;
			KvPut		outcome;

			*bytes += gets[i].status == KV_GET_NONE ? 0 : gets[i].row.len;
			if (!has_expired(table, &gets[i]))
				continue;
			wrote = true;
			outcome = kv_put_if(table->store, gets[i].key, &gets[i].version, NULL, cid, true,
								&made, &in_the_way);
			if (outcome == KV_PUT_DONE)
				kv_mc_counts[KV_MC_COUNT_REAPED]++;
			else if (outcome == KV_PUT_CHANGED)
				kv_mc_expired_again(relid, gets[i].key);	/* the row may only have been moved */
		}
		current.data = NULL;
		PopActiveSnapshot();
	}
	kv_mc_commit_as(KV_MC_COMMIT_OFF, wrote);
	MemoryContextSwitchTo(step_context);
	return done;
}

/* Drop processed keys. */
static void
drop_keys(KvMcExpired *expired, int from, int n)
{
	expired->n -= n;
	memmove(&expired->keys[from], &expired->keys[from + n], (expired->n - from) * sizeof(KvKey));
}

/*
 * Delete the rows of the first keys, and drop these keys.  After an ERROR drop only the current
 * key, whose row may be damaged, or all if there is none.  Returns whether there was no ERROR.
 */
static bool
try_delete(Oid relid, KvMcExpired *expired, Size *bytes)
{
	volatile bool done = false;

	current.data = NULL;
	PG_TRY();
	{
		drop_keys(expired, 0, delete_step(relid, expired->keys, expired->n, bytes));
		done = true;
	}
	PG_CATCH();
	{
		int			from = 0;

		(void) kv_mc_roll_back();
		while (current.data != NULL && from < expired->n &&
			   expired->keys[from].data != current.data)
			from++;
		if (current.data != NULL && from < expired->n)
			drop_keys(expired, from, 1);
		else
			expired->n = 0;
	}
	PG_END_TRY();
	MemoryContextSwitchTo(step_context);
	return done;
}

/* End a step that has read so many bytes: set the rest. */
static void
end_step(Size bytes, bool failed)
{
	kv_mc_publish();
	stepped = GetCurrentTimestamp();
	rest_us += (int64) bytes * USECS_PER_SEC / ((int64) kv_mc_reap_rate * 1024 * 1024);
	if (!failed)
		error_rest_us = 0;
	else if (error_rest_us == 0)
		error_rest_us = FIRST_REST_US;
	else
		error_rest_us = Min(2 * error_rest_us, MOST_REST_US);
	rest_us += error_rest_us;
}

/*
 * Delete rows that other processes have met, as many as one transaction may.  False: there are
 * none.
 */
static bool
met_step(void)
{
	Size		bytes = 0;
	bool		done;

	if (met.expired.n == 0)
	{
		MemoryContextReset(met_context);
		MemoryContextSwitchTo(met_context);
		met.expired.n = kv_mc_expired_take(&met.relid, met.expired.keys, STEP_DELETES);
		MemoryContextSwitchTo(context);
	}
	if (met.expired.n == 0)
		return false;
	MemoryContextReset(step_context);
	MemoryContextSwitchTo(step_context);
	done = try_delete(met.relid, &met.expired, &bytes);
	MemoryContextSwitchTo(context);
	end_step(bytes, !done);
	return true;
}

/* ---- the walk ---- */

static void
begin_walk(TimestampTz now)
{
	KvMcTable **tables;
	int			n;

	kv_mc_begin();
	kv_mc_tables_begin();
	n = kv_mc_tables(&tables);
	MemoryContextSwitchTo(context);
	for (int i = 0; i < n; i++)
		walk.relids = lappend_oid(walk.relids, tables[i]->relid);
	CommitTransactionCommand();
	MemoryContextSwitchTo(context);
	walk.began = now;
}

static void
next_table(void)
{
	walk.relids = list_delete_first(walk.relids);
	resetStringInfo(&walk.next);
}

/*
 * Take one step of the walk.  After an ERROR the walk continues after the current key; expired
 * rows that were found are deleted.
 */
static void
walk_step(void)
{
	Oid			relid = linitial_oid(walk.relids);
	KvMcExpired *expired;
	Size		bytes = 0;
	volatile bool more = false;
	volatile bool failed = false;
	volatile bool deleted = true;

	MemoryContextReset(step_context);
	MemoryContextSwitchTo(step_context);
	expired = palloc0(sizeof(KvMcExpired));
	current.data = NULL;
	PG_TRY();
	{
		more = look_step(relid, expired, &bytes);
	}
	PG_CATCH();
	{
		(void) kv_mc_roll_back();
		failed = true;
		more = current.data != NULL;
		if (more)
			walk_past(&current);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(step_context);
	while (deleted && expired->n > 0)
		deleted = try_delete(relid, expired, &bytes);
	MemoryContextSwitchTo(context);
	if (!more)
		next_table();
	end_step(bytes, failed || !deleted);
}

/* ---- flush_alls with a delay ---- */

/* Results of the attempts, indexed as KvMcShared.later. */
static struct
{
	KvMcLater	later;			/* the flush_all it belongs to */
	TimestampTz again;			/* not before */
	int64		pause;			/* after the next failed attempt */
}			attempts[KV_MC_MAX_LATER];

/*
 * Execute a flush_all that is due.  Its tables are marked for TRY_US, in which running batches
 * end.  A longer time would not help where a session uses a table, and would hold up clients.
 * False: other transactions have locked tables, or the attempt failed.  A flush_all whose role
 * may not empty any table now, or was dropped, is dropped: it would be executed much too late.
 */
static bool
empty_due(const KvMcLater *due)
{
	TimestampTz began = GetCurrentTimestamp();
	TimestampTz now;
	bool		done = false;
	const char *error = NULL;

	while (kv_mc_empty_begin(NULL))
	{
		error = kv_mc_empty_tables(due->role, &done, NULL);
		now = GetCurrentTimestamp();
		if (done || error != NULL || now < began || now - began >= TRY_US)
			break;
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, RETRY_MS,
						 KV_WAIT_EVENT(wait_reaper, "KvfdwMemcachedReaper"));
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
	kv_mc_empty_over();
	return done || (error != NULL && strncmp(error, NO_PRIVILEGE, strlen(NO_PRIVILEGE)) == 0);
}

/*
 * Execute what is due, each flush_all when its next attempt is due; returns the time of the
 * next attempt, or 0.
 */
static TimestampTz
empty_all_due(void)
{
	KvMcLater	noted[KV_MC_MAX_LATER];
	TimestampTz next = 0;

	kv_mc_empty_noted(noted);
	for (int i = 0; i < KV_MC_MAX_LATER; i++)
	{
		const KvMcLater *later = &noted[i];
		TimestampTz now = GetCurrentTimestamp();

		if (later->due == 0)
			continue;
		if (attempts[i].later.role != later->role || attempts[i].later.due != later->due ||
			attempts[i].again - now > MOST_PAUSE_US)
		{
			attempts[i].later = *later;
			attempts[i].again = later->due;
			attempts[i].pause = FIRST_PAUSE_US;
		}
		if (attempts[i].again <= now)
		{
			if (empty_due(later))
			{
				kv_mc_empty_done(later);
				continue;
			}
			attempts[i].again = GetCurrentTimestamp() + attempts[i].pause;
			attempts[i].pause = Min(2 * attempts[i].pause, MOST_PAUSE_US);
		}
		if (next == 0 || attempts[i].again < next)
			next = attempts[i].again;
	}
	return next;
}

/* ---- memtable memory ---- */

/*
 * Free memtable memory for batches if the maintainer is too busy.  Returns µs until this is to
 * be called again, unless a batch wants memory before.
 */
static int64
make_memtable(void)
{
	static TimestampTz again = 0;	/* not before */
	MemoryContext context = CurrentMemoryContext;
	TimestampTz now = kv_clock();
	volatile int ms = 1000;		/* if there is an ERROR */

	if (pg_atomic_read_u32(&kv_mc_shared->memtable_wanted) == 0)
		return PG_INT64_MAX;
	if (now < again)
		return again - now;
	pg_atomic_write_u32(&kv_mc_shared->memtable_wanted, 0);
	PG_TRY();
	{
		kv_mc_begin();
		ms = kv_make_room_for_others(PATIENCE_MS);
		CommitTransactionCommand();
	}
	PG_CATCH();
	{
		(void) kv_mc_roll_back();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	if (ms == 0)
		return PG_INT64_MAX;
	pg_atomic_write_u32(&kv_mc_shared->memtable_wanted, 1);
	again = kv_clock() + ms * INT64CONST(1000);
	return ms * INT64CONST(1000);
}

/* ---- the process ---- */

static void
leave(int code, Datum arg)
{
	kv_mc_empty_over();
	kv_mc_shared->reaper_latch = NULL;
	kv_mc_me->pid = 0;
}

static void
begin(void)
{
	kv_mc_process_begin();
	pgstat_report_appname("kvfdw memcached reaper");
	kv_mc_my_number = KV_MC_MAX_WORKERS;
	kv_mc_me = &kv_mc_shared->workers[KV_MC_MAX_WORKERS];
	before_shmem_exit(leave, (Datum) 0);
	kv_mc_shared->reaper_latch = MyLatch;
	kv_mc_me->pid = MyProcPid;
	context = AllocSetContextCreate(TopMemoryContext, "kvfdw memcached reaper",
									ALLOCSET_DEFAULT_SIZES);
	step_context = AllocSetContextCreate(context, "kvfdw memcached reaper step",
										 ALLOCSET_DEFAULT_SIZES);
	met_context = AllocSetContextCreate(context, "kvfdw memcached reaper notes",
										ALLOCSET_DEFAULT_SIZES);
	MemoryContextSwitchTo(context);
	initStringInfo(&walk.next);
	kv_mc_tables_init();
	walk.began = GetCurrentTimestamp();
}

/* Do all work that is due; returns for how long there will be none, in microseconds. */
static int64
work(void)
{
	TimestampTz now = GetCurrentTimestamp();
	int64		interval = (int64) kv_mc_reap_interval_s * USECS_PER_SEC;
	int64		rest = (int64) MOST_SLEEP_MS * 1000;
	TimestampTz next;
	bool		worked;

	if (RecoveryInProgress())
		return rest;
	rest = Min(rest, make_memtable());
	next = empty_all_due();
	now = GetCurrentTimestamp();
	if (next != 0)
		rest = Min(rest, Max(next - now, 0));
	if (now - stepped < rest_us && now >= stepped)
		return Min(rest, stepped + rest_us - now);
	rest_us = 0;
	worked = met_step();
	if (interval > 0 && walk.relids == NIL && (now - walk.began >= interval || now < walk.began))
		begin_walk(now);
	if (interval > 0 && walk.relids != NIL)
	{
		walk_step();
		worked = true;
	}
	else if (interval > 0)
		rest = Min(rest, walk.began + interval - now);
	return worked ? Min(rest, rest_us) : rest;
}

void
kv_memcached_reaper_main(Datum arg)
{
	begin();
	for (;;)
	{
		int64		rest;

		ResetLatch(MyLatch);
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}
		QueryCancelPending = false; /* as in kv_memcached_main */
		CHECK_FOR_INTERRUPTS();
		rest = work();
		pgstat_report_stat(false);
		if (rest > 0)
			(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
							 (long) Max(rest / 1000, 1),
							 KV_WAIT_EVENT(wait_reaper, "KvfdwMemcachedReaper"));
	}
}
