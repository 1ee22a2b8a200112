/*
 * batch.c
 *		A batch: many requests, one transaction.  Authentication, which has one of its own.
 *
 * All keys are looked up at once, and the requests are applied to their items in the order of
 * the batch.  Each changed key is written once, and after one commit all replies are sent.  Cas
 * numbers are those of versions (kv_version_number).  Requests whose item was written again in
 * the same batch get numbers that no version has.
 *
 * A request may not be executable without waiting.  That is found before any item is changed (a
 * table is locked), or when a row is written (another transaction has locked it).  Then the
 * connection's requests from that one on are set aside.  In the second case the batch is also
 * rolled back and executed again without them.
 *
 * After an ERROR the batch is executed request by request (M 3).  If a table was being
 * processed, that is done for this table's requests alone: the table is suspected.  For a while
 * requests for it, and the later requests of their connections, are executed one by one after
 * the batch.  So a table that cannot be used costs the users of other tables nothing.
 *
 * A row that SQL sessions wait for is theirs next: the batch looks for each key that was
 * written a moment ago in the sessions' queue, for half of the time that a request may wait.
 */
#include "memcached/batch/attempt.h"

#include "clock.h"
#include "engine/rows.h"
#include "memcached/batch/batch.h"
#include "memcached/connection/connection.h"
#include "memcached/connection/wait.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_database.h"
#include "libpq/crypt.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#define MAX_CHANGED		3		/* attempts at a row that other transactions change */
/* a table is not suspected any more after so many requests without an ERROR */
#define SUSPICION		64
#define MOST_SUSPECTS	8		/* so many tables may become suspected in one batch */
#define NUMBER_MERGED	(UINT64CONST(2) << 60)	/* numbers of no version */
#define NUMBER_WORKER	54		/* bits; above them the process's number */

static XLogRecPtr hold_upto = InvalidXLogRecPtr;	/* replies to writes wait for this */

static MemoryContext attempt_context = NULL;
static uint64 next_number = 0;
static bool	flushes_for_all = false;	/* each client of this process has a request in the
										 * batch, or is held */
static XLogRecPtr flushed_upto = InvalidXLogRecPtr;	/* the batch has flushed the WAL up to here */
static TimestampTz flushed_since = 0;	/* when the batch began that flush */

/* ---- executing the requests ---- */

static bool
any_live(const KvMcAttempt *attempt)
{
	for (int i = attempt->from; i < attempt->to; i++)
	{
		if (kv_mc_is_live(attempt, i))
			return true;
	}
	return false;
}

static void *
fold_alloc(void *arg, size_t size)
{
	return MemoryContextAllocHuge(attempt_context, Max(size, 1));
}

static void
do_task(KvMcAttempt *attempt, KvMcTask *task)
{
	KvMcKey    *key = &attempt->keys[task->key];
	const KvMcRequest *request = &task->request;
	bool		changed = key->item.changed;
	uint64		cas = key->item.cas;

	attempt->at = key->table;
	if (task->conn->parked_since != 0)
	{
		key->retried = true;
		key->impatient |= kv_mc_parked_for(task->conn, kv_mc_lock_timeout_ms / 2, kv_clock());
	}
	if (key->problem != NULL)
	{
		/* a request that sets or deletes does not need the value */
		if (request->has_cas || request->stale ||
			(request->command != KV_MC_SET && request->command != KV_MC_DELETE &&
			 request->command != KV_MC_DISCARD))
		{
			kv_mc_refuse(task, key->problem);
			return;
		}
		kv_mc_item_set(&key->item, attempt->fold.now, "", 0, 0, 0, 0, false, false);
		key->problem = NULL;
	}
	if (request->command == KV_MC_ADD && key->item.row && !key->item.exists &&
		!key->item.changed && !kv_mc_task_may(task, key->table, ACL_UPDATE))
	{
		/* the item would replace an expired row, which deletes it */
		kv_mc_deny(task, key->table);
		return;
	}
	if (request->command == KV_MC_META_GET)
		attempt->fold.read_only = !key->table->to_write || key->table->flags == 0 ||
			!kv_mc_task_may(task, key->table, ACL_UPDATE);
	kv_mc_apply(&key->item, request, &attempt->fold, &task->reply);
	/*
	 * an item that is made where there is none has no other columns, be it in the same batch or
	 * not
	 */
	if (!key->item.exists)
		key->row.values = NULL;
	if (key->item.changed && (!changed || key->item.cas != cas))
		key->writes++;
}

/*
 * Execute the requests, as far as there is memory for the replies.  A value counts with its
 * size when its request is executed: earlier requests may have made it large.
 */
static void
do_all(KvMcAttempt *attempt)
{
	KvMcConnection *conn = NULL;
	bool		holds = kv_mc_holds(flushes_for_all) && !attempt->read_only;
	bool		held = false;	/* the connection's replies will be held */
	Size		bytes = 0;		/* of values, for one connection */
	Size		total = 0;
	Size		room = Max(kv_mc_reply_room(), KV_MC_LEAST_BYTES);

	attempt->fold.next_cas = NUMBER_MERGED | ((uint64) kv_mc_my_number << NUMBER_WORKER) |
		(next_number & ((UINT64CONST(1) << NUMBER_WORKER) - 1));
	for (int i = attempt->from; i < attempt->to; i++)
	{
		KvMcTask   *task = attempt->tasks[i];
		const KvMcItem *item;
		Size		value;
		bool		wins;

		if (!kv_mc_is_live(attempt, i))
			continue;
		item = &attempt->keys[task->key].item;
		value = task->request.with_value && item->exists ? item->length : 0;
		wins = item->stale && kv_mc_may_change(&task->request);
		if (task->conn != conn)
		{
			conn = task->conn;
			held = kv_mc_is_held(conn) || (holds && conn->writes);
			bytes = 0;
		}
		held |= holds && wins;
		if (!kv_mc_fits(value))
		{
			kv_mc_refuse(task, "53200 value is larger than kvfdw.memcached_buffer_memory");
			continue;
		}
		if ((value > 0 && total > 0 && total + value > room) ||
			((value > 0 || wins) && !kv_mc_takes(conn, bytes, value, held)))
		{
			conn->cut = i;
			conn->passed_over = bytes == 0;
			continue;
		}
		bytes += value;
		total += value;
		do_task(attempt, task);
	}
	next_number = attempt->fold.next_cas;
}

static void
write_key(KvMcAttempt *attempt, KvMcKey *key, CommandId cid)
{
	KvMcWrite	write = kv_mc_item_write(&key->item);
	const KvVersion *expected = key->blind ? &kv_any_version :
		key->get->status == KV_GET_NONE ? NULL : &key->get->version;
	KvPutValue	put;
	KvVersion	made;
	bool		yields;

	if (write == KV_MC_KEEP)
		return;
	attempt->at = key->table;
	yields = (kv_mc_was_written(key->hash) || key->retried) && !key->impatient;
	if (write == KV_MC_PUT)
		kv_mc_row_write(key->table, &key->item, &key->row, &put);
	key->outcome = kv_put_if(key->table->store, key->get->key, expected,
							 write == KV_MC_PUT ? &put : NULL, cid, yields, &made,
							 &key->in_the_way);
	if (write == KV_MC_PUT && put.value != key->item.value)
		pfree(unconstify(char *, put.value));
	attempt->wrote = true;
	if (key->outcome != KV_PUT_DONE)
		attempt->trouble = true;
	else
	{
		key->written = true;
		key->number = kv_version_number(key->table->store, &made);
	}
}

/* Write all changed keys, even if one cannot be written: so all such keys are found. */
static void
write_all(KvMcAttempt *attempt)
{
	CommandId	cid = InvalidCommandId;

	for (int k = 0; k < attempt->nkeys; k++)
	{
		KvMcKey    *key = &attempt->keys[k];

		if (!key->item.changed)
			continue;
		if (cid == InvalidCommandId)
		{
			cid = GetCurrentCommandId(true);
			kv_mc_begin_writes();
		}
		write_key(attempt, key, cid);
	}
}

/* There is no memtable memory: ask the reaper to look whether the maintainer frees some. */
static void
want_memtable(void)
{
	Latch	   *latch = kv_mc_shared->reaper_latch;

	if (pg_atomic_exchange_u32(&kv_mc_shared->memtable_wanted, 1) == 0 && latch != NULL)
		SetLatch(latch);
}

/* Set aside the requests that change rows which could not be written. */
static void
set_writers_aside(KvMcAttempt *attempt)
{
	attempt->changed++;
	for (int i = attempt->from; i < attempt->to; i++)
	{
		const KvMcKey *key;

		if (!kv_mc_is_live(attempt, i) || !kv_mc_may_change(&attempt->tasks[i]->request))
			continue;
		key = &attempt->keys[attempt->tasks[i]->key];
		if (key->outcome == KV_PUT_LOCKED)
			kv_mc_set_aside(attempt, i, KV_MC_ROW_LOCKED, key->in_the_way);
		else if (key->outcome == KV_PUT_NO_ROOM)
		{
			want_memtable();
			kv_mc_set_aside(attempt, i, KV_MC_NO_ROOM, InvalidTransactionId);
		}
		else if (key->outcome == KV_PUT_CHANGED && attempt->changed >= MAX_CHANGED)
			kv_mc_set_aside(attempt, i, KV_MC_ROW_BUSY, InvalidTransactionId);
	}
}

/* ---- the transaction ---- */

/*
 * Set the cas numbers of replies, which are known now; merged versions keep numbers that no
 * version has.
 */
static void
complete_replies(KvMcAttempt *attempt)
{
	for (int k = 0; k < attempt->nkeys; k++)
	{
		const KvMcKey *key = &attempt->keys[k];

		kv_mc_counts[KV_MC_COUNT_WRITES] += key->written;
		if (key->written && key->writes > 1)
			kv_mc_counts[KV_MC_COUNT_MERGED_WRITES] += key->writes - 1;
	}
	for (int i = attempt->from; i < attempt->to; i++)
	{
		KvMcTask   *task = attempt->tasks[i];
		const KvMcKey *key;

		if (!kv_mc_is_live(attempt, i))
			continue;
		key = &attempt->keys[task->key];
		if (key->written && task->reply.cas == key->item.cas)
			task->reply.cas = key->number;
		if (task->reply.outcome != KV_MC_MISS || !key->item.row || key->item.exists)
			continue;
		kv_mc_counts[KV_MC_COUNT_EXPIRED]++;
		if (!attempt->read_only)
			kv_mc_expired_note(key->table, key->get->key, key->hash, attempt->fold.now);
	}
}

/* Is there a request to write?  It may have done nothing. */
static bool
any_writes(const KvMcAttempt *attempt)
{
	for (int i = attempt->from; i < attempt->to; i++)
	{
		if (kv_mc_is_live(attempt, i) && kv_mc_writes(&attempt->tasks[i]->request))
			return true;
	}
	return false;
}

/*
 * Commit.  In mode "on" replies may wait for the WAL instead of this process (wait.c).  Replies
 * to requests that found nothing to write wait too: the row that they found may not be on the
 * device.
 */
static void
commit(KvMcAttempt *attempt)
{
	bool		holds = kv_mc_holds(flushes_for_all);
	bool		flushes = kv_mc_commit == KV_MC_COMMIT_ON && attempt->wrote && !holds;

	if (flushes)
		flushed_since = kv_clock();
	kv_mc_commit_as(holds ? KV_MC_COMMIT_OFF : kv_mc_commit, attempt->wrote);
	if (flushes)
		flushed_upto = XactLastCommitEnd;
	if (attempt->wrote)
		hold_upto = holds ? XactLastCommitEnd : InvalidXLogRecPtr;
	else if (kv_mc_commit == KV_MC_COMMIT_ON && !attempt->read_only && any_writes(attempt))
		hold_upto = kv_mc_seen_upto();
}

/*
 * Execute requests in a transaction.  False: it was rolled back, and some requests were set
 * aside; try again.
 */
static bool
try_tasks(KvMcAttempt *attempt)
{
	MemoryContextReset(attempt_context);
	kv_mc_begin();
	MemoryContextSwitchTo(attempt_context);
	kv_mc_check_role();
	attempt->read_only = XactReadOnly;
	attempt->wrote = attempt->trouble = false;
	attempt->at = NULL;
	attempt->fold = (KvMcFold) {
		.now = kv_mc_unix_time(GetCurrentTransactionStartTimestamp()),
		.item_size = (size_t) kv_mc_item_size_kb * 1024,
		.alloc = fold_alloc
	};
	kv_mc_tables_begin();
	kv_mc_route_all(attempt);
	PushActiveSnapshot(GetTransactionSnapshot());
	kv_mc_look_at_all(attempt);
	do_all(attempt);
	write_all(attempt);
	if (attempt->trouble)
	{
		set_writers_aside(attempt);
		AbortCurrentTransaction();
		MemoryContextSwitchTo(TopMemoryContext);
		return false;
	}
	PopActiveSnapshot();
	commit(attempt);
	MemoryContextSwitchTo(TopMemoryContext);
	complete_replies(attempt);
	return true;
}

/* Take the error, for a client, and log it. */
static const char *
take_error(void)
{
	MemoryContext old = MemoryContextSwitchTo(kv_mc_batch_context);
	ErrorData  *edata = CopyErrorData();
	const char *message = psprintf("%s %s", unpack_sql_state(edata->sqlerrcode),
								   edata->message);

	MemoryContextSwitchTo(old);
	kv_mc_log_error(edata);
	FlushErrorState();
	return message;
}

/*
 * Execute requests in one transaction.  alone: also one for a table that is suspected.  Returns
 * NULL, or an error: then none of them was executed, and *suspect is the table that is
 * suspected of it.
 */
static const char *
attempt_tasks(KvMcTask **tasks, int from, int to, bool alone, KvMcTable **suspect)
{
	KvMcAttempt attempt = {.tasks = tasks, .from = from, .to = to, .alone = alone};
	const char *volatile error = NULL;

	if (attempt_context == NULL)
	{
		attempt_context = AllocSetContextCreate(TopMemoryContext, "kvfdw memcached batch",
												KV_MC_BATCH_SIZES);
		next_number = GetCurrentTimestamp();
	}
	hold_upto = InvalidXLogRecPtr;
	PG_TRY();
	{
		while (any_live(&attempt) && !try_tasks(&attempt))
			kv_mc_counts[KV_MC_COUNT_REPEATED_BATCHES]++;
	}
	PG_CATCH();
	{
		HOLD_INTERRUPTS();
		error = take_error();
		AbortCurrentTransaction();
		MemoryContextSwitchTo(TopMemoryContext);
		RESUME_INTERRUPTS();
	}
	PG_END_TRY();
	*suspect = error != NULL ? attempt.at : NULL;
	if (error != NULL && attempt.at != NULL)
		attempt.at->suspicion = SUSPICION;
	else if (alone && attempt.at != NULL && attempt.at->suspicion > 0)
		attempt.at->suspicion--;
	return error;
}

/* ---- the batch ---- */

/* Is the request one of those that were executed? */
static bool
was_done(const KvMcTask *task, int i, bool alone)
{
	return i < task->conn->cut && (alone || i < task->conn->suspect);
}

/* Have replies to writes, and the later replies of their connections, wait for the WAL. */
static void
hold(KvMcTask **tasks, int from, int to, bool alone)
{
	for (int i = from; i < to; i++)
	{
		const KvMcRequest *request = &tasks[i]->request;

		if (was_done(tasks[i], i, alone) && kv_mc_has_item(request) &&
			(kv_mc_writes(request) || tasks[i]->reply.won) &&
			tasks[i]->conn->held_upto != hold_upto)
			kv_mc_hold(tasks[i]->conn, hold_upto);
	}
}

/* Buffer the replies of the executed requests. */
static void
deliver(KvMcTask **tasks, int from, int to, bool alone)
{
	if (hold_upto != InvalidXLogRecPtr)
		hold(tasks, from, to, alone);
	for (int i = from; i < to; i++)
	{
		KvMcTask   *task = tasks[i];
		KvMcConnection *conn = task->conn;

		if (!was_done(task, i, alone))
			continue;
		if (task->request.command == KV_MC_STATS)
			kv_mc_tell_stats(conn, &task->request, &task->reply);
		kv_mc_answer(conn, &task->request, &task->reply);
		kv_mc_count_reply(&task->request, &task->reply);
		conn->requests++;
		if (conn->wants > 0)
			kv_mc_wants_nothing(conn);
		if (task->request.close)
			conn->closing = true;
		if (i + 1 < to && tasks[i + 1]->conn == conn && was_done(tasks[i + 1], i + 1, alone))
			continue;
		kv_mc_send(conn);
	}
}

/* Drop processed input; a connection that was cut begins with the rest the next time. */
static void
consume(KvMcTask **tasks, int ntasks)
{
	for (int i = 0; i < ntasks; i++)
	{
		KvMcTask   *task = tasks[i];
		KvMcConnection *conn = task->conn;

		if (i == conn->cut)
		{
			conn->stream = task->before;
			conn->needed = 0;
			kv_mc_consume(conn, task->at);
			kv_mc_set_working(conn, true);
		}
		else if (i < conn->cut && (i + 1 == ntasks || tasks[i + 1]->conn != conn))
			kv_mc_consume(conn, conn->parsed);
		if (i < conn->cut)
			conn->parked_since = kv_mc_is_parked(conn) ? conn->parked_since : 0;
	}
	/* backwards, so that they keep their order: else those in the middle would never come first */
	for (int i = ntasks - 1; i >= 0; i--)
	{
		if (i == tasks[i]->conn->cut && tasks[i]->conn->passed_over)
			kv_mc_first_in_line(tasks[i]->conn);
	}
}

/*
 * Execute all requests together, except those for suspected tables.  Each error that a table
 * causes makes one more table suspected.
 */
static const char *
run_together(KvMcBatch *batch)
{
	const char *error = NULL;

	for (int attempts = 0; attempts < MOST_SUSPECTS; attempts++)
	{
		KvMcTable  *suspect;

		error = attempt_tasks(batch->tasks, 0, batch->ntasks, false, &suspect);
		if (error != NULL)
			kv_mc_counts[KV_MC_COUNT_REPEATED_BATCHES]++;
		if (error == NULL || suspect == NULL)
			break;
	}
	if (error == NULL)
		deliver(batch->tasks, 0, batch->ntasks, false);
	return error;
}

/*
 * Has each client a request in the batch, or a reply that is held?  Then no other client waits
 * while the batch flushes.
 */
static bool
has_every_client(const KvMcBatch *batch)
{
	return batch->nclients == kv_mc_nconnections ||
		batch->nclients + kv_mc_held_others() == kv_mc_nconnections;
}

void
kv_mc_batch_run(KvMcBatch *batch)
{
	const char *error;

	kv_mc_batch_context = batch->context;
	flushes_for_all = has_every_client(batch);
	flushed_upto = InvalidXLogRecPtr;
	kv_mc_counts[KV_MC_COUNT_BATCHES]++;
	error = run_together(batch);
	for (int i = 0; i < batch->ntasks; i++)
	{
		KvMcTask   *task = batch->tasks[i];
		KvMcTable  *suspect;
		const char *problem;

		if (i >= task->conn->cut || (error == NULL && i < task->conn->suspect))
			continue;
		problem = attempt_tasks(batch->tasks, i, i + 1, true, &suspect);
		if (problem != NULL)
			kv_mc_refuse(task, problem);
		deliver(batch->tasks, i, i + 1, true);
	}
	consume(batch->tasks, batch->ntasks);
	if (flushed_upto != InvalidXLogRecPtr)
		kv_mc_flushed(flushed_upto, batch->nwriters, flushed_since);
}

/* ---- authentication ---- */

#define REFUSED_HOLD_US	1000000	/* guessing passwords takes time */
#define LOG_US			USECS_PER_SEC	/* at most one line about that in so long */

/* The secret that is verified if the role has no password, so that this takes as long. */
static const char *
mock_secret(void)
{
	static char *secret = NULL;

	if (secret == NULL)
	{
		char	   *made = encrypt_password(PASSWORD_TYPE_SCRAM_SHA_256, "mock", "mock");

		secret = MemoryContextStrdup(TopMemoryContext, made);
		pfree(made);
	}
	return secret;
}

/*
 * The role of that name, if this is its password and it may connect to the database; else
 * InvalidOid.
 */
static Oid
check_password(const char *name, const char *password)
{
	const char *mock = mock_secret();
	HeapTuple	tuple = SearchSysCache1(AUTHNAME, CStringGetDatum(name));
	const char *detail = NULL;
	Oid			role = InvalidOid;
	bool		login = false;
	const char *shadow = NULL;

	if (HeapTupleIsValid(tuple))
	{
		role = ((Form_pg_authid) GETSTRUCT(tuple))->oid;
		login = ((Form_pg_authid) GETSTRUCT(tuple))->rolcanlogin;
		ReleaseSysCache(tuple);
		shadow = get_role_password(name, &detail);
	}
	if (plain_crypt_verify(name, shadow == NULL ? mock : shadow, password, &detail) != STATUS_OK ||
		shadow == NULL || !login || !kv_may_connect(MyDatabaseId, role))
		return InvalidOid;
	return role;
}

/* Copy a string of less than so many bytes; NULL: it is longer, or contains a zero byte. */
static char *
copy_string(const char *from, size_t length, size_t most)
{
	return length >= most || memchr(from, '\0', length) != NULL ? NULL : pnstrdup(from, length);
}

/* Log a refusal.  The name is whatever the client has sent. */
static void
log_refusal(const KvMcRequest *request)
{
	static TimestampTz logged = 0;
	TimestampTz now = kv_clock();
	char		name[NAMEDATALEN];
	int			length = Min(request->user_length, NAMEDATALEN - 1);

	if (now - logged < LOG_US)
		return;
	logged = now;
	for (int i = 0; i < length; i++)
		name[i] = request->user[i] < ' ' || request->user[i] > '~' ? '?' : request->user[i];
	name[length] = '\0';
	ereport(LOG,
			(errcode(ERRCODE_INVALID_PASSWORD),
			 errmsg("memcached authentication failed for role \"%s\"", name)));
}

void
kv_mc_do_auth(KvMcConnection *conn, const KvMcRequest *request, KvMcReply *reply)
{
	volatile Oid role = InvalidOid;

	PG_TRY();
	{
		char	   *name;
		char	   *password;

		kv_mc_begin();
		name = copy_string(request->user, request->user_length, NAMEDATALEN);
		password = copy_string(request->password, request->password_length, 1024);
		if (name != NULL && password != NULL)
			role = check_password(name, password);
		CommitTransactionCommand();
		MemoryContextSwitchTo(TopMemoryContext);
	}
	PG_CATCH();
	{
		(void) kv_mc_roll_back();
		role = InvalidOid;
	}
	PG_END_TRY();

	memset(reply, 0, sizeof(*reply));
	conn->role = role;
	reply->outcome = OidIsValid(role) ? KV_MC_DONE : KV_MC_REFUSED;
	kv_mc_authenticated(&conn->stream, OidIsValid(role));
	kv_mc_counts[KV_MC_COUNT_AUTHS]++;
	if (OidIsValid(role))
		return;
	kv_mc_counts[KV_MC_COUNT_AUTH_FAILURES]++;
	conn->hold_until = kv_clock() + REFUSED_HOLD_US;
	kv_mc_wake_at(conn->hold_until);
	log_refusal(request);
}
