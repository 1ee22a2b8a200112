/*
 * keys.c
 *		Finds and looks up the rows of a batch's requests, before anything is changed.
 *
 * All keys of a batch are looked up at once, those of one table together.  A request that
 * cannot be executed gets its reply here, or is set aside (M 2).
 */
#include "memcached/batch/attempt.h"
#include "memcached/connection/connection.h"
#include "memcached/connection/wait.h"

#include "engine/rows.h"

#include "access/xact.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#define LOOK_BYTES		((Size) 8 * 1024 * 1024)	/* of values that are looked up in a batch */

MemoryContext kv_mc_batch_context = NULL;

/* ---- answers that need no row ---- */

static void
answer(KvMcTask *task, KvMcOutcome outcome, const char *message)
{
	memset(&task->reply, 0, sizeof(KvMcReply));
	task->reply.outcome = outcome;
	task->reply.value = message;
	task->reply.length = strlen(message);
	task->answered = true;
	if (outcome == KV_MC_ERROR)
		kv_mc_counts[KV_MC_COUNT_ERRORS]++;
}

void
kv_mc_refuse(KvMcTask *task, const char *message)
{
	answer(task, KV_MC_ERROR, message);
}

void
kv_mc_set_aside(KvMcAttempt *attempt, int i, KvMcObstacle obstacle, TransactionId xid)
{
	KvMcTask   *task = attempt->tasks[i];
	KvMcConnection *conn = task->conn;

	/* earlier requests are executed in this batch, so the time of this one begins now */
	if (i > 0 && attempt->tasks[i - 1]->conn == conn)
		conn->parked_since = 0;
	if (kv_mc_park(conn, obstacle, xid, &task->reply))
		conn->cut = i;
	else
		task->answered = true;
}

/* ---- what a request needs of its table ---- */

static bool
stores_item(const KvMcRequest *request)
{
	return request->command == KV_MC_SET || request->command == KV_MC_ADD ||
		request->command == KV_MC_REPLACE || request->command == KV_MC_CAS;
}

/* Is the item expired when it is made?  Its row is then deleted. */
static bool
expires_at_once(const KvMcRequest *request, int64 now)
{
	int64		expires = stores_item(request) || request->touch ?
		kv_mc_expires(request->exptime, now) : 0;
	int64		made = request->vivify_exptime != KV_MC_NO_VIVIFY ?
		kv_mc_expires(request->vivify_exptime, now) : 0;

	return (expires != 0 && expires <= now) || (made != 0 && made <= now);
}

static AclMode
command_privileges(const KvMcRequest *request)
{
	AclMode		reads = request->has_cas ? ACL_SELECT : 0;

	switch (request->command)
	{
		case KV_MC_SET:
			return reads | ACL_INSERT | ACL_UPDATE;
		case KV_MC_DISCARD:
			return reads | ACL_INSERT | ACL_UPDATE | ACL_DELETE;
		case KV_MC_ADD:
			return reads | ACL_INSERT;
		case KV_MC_REPLACE:
			return reads | ACL_UPDATE;
		case KV_MC_DELETE:
			return reads | (request->stale ? ACL_UPDATE : ACL_DELETE);
		case KV_MC_TOUCH:
		case KV_MC_CAS:
			return ACL_SELECT | ACL_UPDATE;
		case KV_MC_APPEND:
		case KV_MC_PREPEND:
		case KV_MC_INCR:
		case KV_MC_DECR:
			return ACL_SELECT | ACL_UPDATE |
				(request->vivify_exptime != KV_MC_NO_VIVIFY ? ACL_INSERT : 0);
		case KV_MC_META_GET:
			return ACL_SELECT | (request->touch || request->recache ? ACL_UPDATE : 0) |
				(request->vivify_exptime != KV_MC_NO_VIVIFY ? ACL_INSERT | ACL_UPDATE : 0);
		default:
			return ACL_SELECT;
	}
}

/* The privileges on the table that the request needs. */
static AclMode
privileges(const KvMcRequest *request, int64 now)
{
	return command_privileges(request) | (expires_at_once(request, now) ? ACL_DELETE : 0);
}

/* Does the request bring a value? */
static bool
has_value(const KvMcRequest *request)
{
	return stores_item(request) || request->command == KV_MC_APPEND ||
		request->command == KV_MC_PREPEND;
}

/* Returns NULL, or the reply if the table lacks a column that the request needs. */
static const char *
lacks_column(const KvMcTable *table, const KvMcRequest *request)
{
	bool		expires = (stores_item(request) || request->touch) && request->exptime != 0;

	if (request->vivify_exptime != KV_MC_NO_VIVIFY && request->vivify_exptime != 0 &&
		(request->command == KV_MC_META_GET || request->command == KV_MC_INCR ||
		 request->command == KV_MC_DECR))
		expires = true;
	if (table->expires == 0 && expires)
		return "0A000 table has no column for expiry times";
	if (table->flags == 0 &&
		((stores_item(request) && request->flags != 0) || request->stale || request->recache ||
		 (request->command == KV_MC_META_GET && request->vivify_exptime != KV_MC_NO_VIVIFY)))
		return "0A000 table has no column for flags";
	return NULL;
}

/* Does the item that the request makes not depend on the previous one? */
static bool
is_blind(const KvMcTable *table, const KvMcRequest *request, int64 now)
{
	int64		expires;

	if (request->command != KV_MC_SET || request->has_cas || table->others)
		return false;
	expires = kv_mc_expires(request->exptime, now);
	return expires == 0 || expires > now;
}

/* ---- which rows ---- */

static int
find_key(KvMcAttempt *attempt, KvMcTable *table, const char *data, int length)
{
	uint32		hash = kv_mc_hash(data, length) + table->relid;
	uint32		bucket = hash;
	KvMcKey    *key;

	for (;; bucket++)
	{
		int			number = attempt->buckets[bucket & attempt->mask];

		if (number < 0)
			break;
		key = &attempt->keys[number];
		if (key->table == table && key->length == length && memcmp(key->data, data, length) == 0)
			return number;
	}
	key = &attempt->keys[attempt->nkeys];
	key->table = table;
	key->data = data;
	key->length = length;
	key->hash = hash;
	key->next = -1;
	key->blind = true;
	if (table->first < 0)
		table->first = attempt->nkeys;
	else
		attempt->keys[table->last].next = attempt->nkeys;
	table->last = attempt->nkeys;
	attempt->buckets[bucket & attempt->mask] = attempt->nkeys;
	return attempt->nkeys++;
}

bool
kv_mc_task_may(const KvMcTask *task, KvMcTable *table, AclMode mode)
{
	Oid			role = kv_mc_role_of(task->conn);

	return OidIsValid(role) && kv_mc_table_allows(table, role, mode);
}

void
kv_mc_deny(KvMcTask *task, const KvMcTable *table)
{
	const char *name = get_rel_name(table->relid);

	kv_mc_refuse(task, name == NULL ? "42P01 table was dropped" :
				 MemoryContextStrdup(kv_mc_batch_context,
									 psprintf("42501 permission denied for table %s", name)));
}

/* Note the key of a request that may be executed. */
static void
take_key(KvMcAttempt *attempt, KvMcTask *task, KvMcTable *table)
{
	const KvMcRequest *request = &task->request;
	const char *key = kv_mc_key(request);
	const char *problem = kv_mc_row_bad_key(table, key, request->key_length);

	if (problem != NULL)
	{
		answer(task, KV_MC_CLIENT_ERROR, problem);
		return;
	}
	task->key = find_key(attempt, table, key, request->key_length);
	attempt->keys[task->key].blind &= is_blind(table, request, attempt->fold.now);
}

/* The request's value is not valid for the table: delete the item that it would have replaced. */
static void
refuse_value(KvMcAttempt *attempt, KvMcTask *task, KvMcTable *table, const char *problem)
{
	KvMcRequest *request = &task->request;
	const char *text = request->form == KV_MC_PACKET ? problem :
		MemoryContextStrdup(kv_mc_batch_context, psprintf("CLIENT_ERROR %s", problem));

	if (!request->replaces)
		answer(task, KV_MC_CLIENT_ERROR, problem);
	else if (!kv_mc_task_may(task, table, ACL_DELETE))
		kv_mc_deny(task, table);
	else
	{
		kv_mc_discard(request, KV_MC_STATUS_INVALID, text);
		take_key(attempt, task, table);
	}
}

/*
 * Find the key of a request, or its reply if nothing can be done.  For a client without the
 * privilege no lock is taken and no file is made.
 */
static void
route(KvMcAttempt *attempt, int i)
{
	KvMcTask   *task = attempt->tasks[i];
	KvMcRequest *request = &task->request;
	const char *key = kv_mc_key(request);
	KvMcTable  *table = kv_mc_table_find(key, request->key_length);
	const char *problem;

	attempt->at = table;
	if (table != NULL && table == attempt->like_at && task->conn == attempt->like &&
		request->command == KV_MC_GET)
		take_key(attempt, task, table);
	else if (table == NULL)
		kv_mc_refuse(task, "42P01 no table serves this key");
	else if (table->suspicion > 0 && !attempt->alone)
		task->conn->suspect = i;
	else if (attempt->read_only && kv_mc_writes(request))
		kv_mc_refuse(task, "25006 server is read-only");
	else if (!kv_mc_task_may(task, table, privileges(request, attempt->fold.now)) ||
			 (kv_mc_writes(request) && !table->to_write))	/* granted a moment ago */
		kv_mc_deny(task, table);
	else if (kv_mc_table_open(table, table->to_write) == KV_MC_TABLE_IS_BUSY)
		kv_mc_set_aside(attempt, i, KV_MC_TABLE_BUSY, InvalidTransactionId);
	else if (table->state == KV_MC_TABLE_IS_CLOSED)
		kv_mc_set_aside(attempt, i, KV_MC_TABLE_CLOSED, InvalidTransactionId);
	else if (table->state == KV_MC_TABLE_UNUSABLE)
		kv_mc_refuse(task, MemoryContextStrdup(kv_mc_batch_context, table->reason));
	else if (has_value(request) &&
			 (problem = kv_mc_row_bad_value(table, request->value, request->value_length)) != NULL)
		refuse_value(attempt, task, table, problem);
	else if ((problem = lacks_column(table, request)) != NULL)
		kv_mc_refuse(task, problem);
	else
	{
		take_key(attempt, task, table);
		attempt->like = task->conn;
		attempt->like_at = request->command == KV_MC_GET ? table : NULL;
	}
}

void
kv_mc_route_all(KvMcAttempt *attempt)
{
	int			n = attempt->to - attempt->from;
	uint32		nbuckets = 16;

	while (nbuckets < 2 * n)
		nbuckets *= 2;
	attempt->mask = nbuckets - 1;
	attempt->buckets = palloc(nbuckets * sizeof(int));
	memset(attempt->buckets, 0xff, nbuckets * sizeof(int));
	attempt->keys = palloc_extended(n * sizeof(KvMcKey), MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	attempt->nkeys = 0;
	attempt->like_at = NULL;
	for (int i = attempt->from; i < attempt->to; i++)
	{
		const KvMcRequest *request = &attempt->tasks[i]->request;
		KvMcTable  *table;

		if (!kv_mc_is_live(attempt, i) || attempt->read_only || !kv_mc_may_change(request))
			continue;
		table = kv_mc_table_find(kv_mc_key(request), request->key_length);
		if (table != NULL &&
			kv_mc_task_may(attempt->tasks[i], table, privileges(request, attempt->fold.now) |
				(kv_mc_writes(request) ? 0 : ACL_UPDATE)))
			table->to_write = true;
	}
	for (int i = attempt->from; i < attempt->to; i++)
	{
		if (kv_mc_is_live(attempt, i))
			route(attempt, i);
	}
}

/* ---- looking them up ---- */

static void
take_item(KvMcAttempt *attempt, KvMcKey *key)
{
	if (key->get->status == KV_GET_FOUND)
		key->problem = kv_mc_row_read(key->table, key->get, GetCurrentTransactionStartTimestamp(),
									  kv_version_number(key->table->store, &key->get->version),
									  &key->item, &key->row);
	else if (key->get->status != KV_GET_NONE)
		key->problem = key->get->problem == ERRCODE_DATA_CORRUPTED ? "XX001 value is damaged" :
			"58030 could not read value";
}

/* Prepare the lookups of one table, in the order in which its keys came. */
static void
make_looks(KvMcAttempt *attempt, KvMcTable *table)
{
	KvGet      *gets;
	int			n = 0;

	for (int k = table->first; k >= 0; k = attempt->keys[k].next)
		n++;
	gets = palloc0(n * sizeof(KvGet));
	n = 0;
	for (int k = table->first; k >= 0; k = attempt->keys[k].next)
	{
		KvMcKey    *key = &attempt->keys[k];

		key->get = &gets[n++];
		key->get->key = kv_mc_row_key(table, key->data, key->length);
		key->get->passed = key->blind;
	}
	table->looked = 0;
}

/*
 * Look up the keys of all tables in the order in which they came, as far as there is memory for
 * their values.  There always is for the first, so that each batch makes progress.
 */
static void
look_at_keys(KvMcAttempt *attempt, Size bytes)
{
	int			n;

	for (int k = 0; k < attempt->nkeys; k += n)
	{
		KvMcTable  *table = attempt->keys[k].table;
		int			done;

		attempt->at = table;
		for (n = 1; k + n < attempt->nkeys && attempt->keys[k + n].table == table; n++)
			;
		done = table->store == NULL ? n : bytes == 0 ? 0 :
			kv_get(table->store, GetActiveSnapshot(), attempt->keys[k].get, n, &bytes);
		table->looked += done;
		for (int i = done; i < n; i++)
			attempt->keys[k + i].get = NULL;
	}
}

/*
 * Read the values of one table that are on the device, and then set its items.  Compressed
 * values take more memory than they were looked up for; there is enough for the batch's first.
 */
static void
read_values(KvMcAttempt *attempt, KvMcTable *table, Size *bytes)
{
	attempt->at = table;
	if (table->store == NULL || table->looked == 0)
		return;
	kv_get_read(table->store, attempt->keys[table->first].get, table->looked);
	for (int k = table->first; k >= 0 && attempt->keys[k].get != NULL; k = attempt->keys[k].next)
	{
		KvMcKey    *key = &attempt->keys[k];

		if (k > 0 && *bytes == 0)
		{
			key->get = NULL;
			continue;
		}
		if (key->get->status == KV_GET_FOUND)
			*bytes -= Min(*bytes, kv_value_length(&key->get->row));
		take_item(attempt, key);
	}
}

/* Leave the keys for which there was no memory to the next batch. */
static void
cut_unread(KvMcAttempt *attempt)
{
	for (int i = attempt->from; i < attempt->to; i++)
	{
		KvMcConnection *conn = attempt->tasks[i]->conn;

		if (!kv_mc_is_live(attempt, i) || attempt->keys[attempt->tasks[i]->key].get != NULL)
			continue;
		conn->cut = i;
		conn->passed_over = i == 0 || attempt->tasks[i - 1]->conn != conn;
	}
}

void
kv_mc_look_at_all(KvMcAttempt *attempt)
{
	KvMcTable **tables;
	int			n = kv_mc_tables(&tables);
	Size		bytes = Min(LOOK_BYTES, Max(kv_mc_reply_room(), KV_MC_LEAST_BYTES));

	for (int i = 0; i < n; i++)
	{
		if (tables[i]->first >= 0)
			make_looks(attempt, tables[i]);
	}
	look_at_keys(attempt, bytes);
	for (int i = 0; i < n; i++)
	{
		if (tables[i]->first >= 0)
			read_values(attempt, tables[i], &bytes);
	}
	cut_unread(attempt);
}
