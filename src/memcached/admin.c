/*
 * admin.c
 *		Authentication and flush_all: requests that are a transaction of their own.
 *
 * flush_all is TRUNCATE of the tables for which the role may.  It needs locks that other
 * processes of memcached would hold again and again; so while it is wanted they leave the
 * tables alone (KvMcShared.flusher), and it tries until it has them.
 */
#include "memcached/internal.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_database.h"
#include "libpq/crypt.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/syscache.h"

#define REFUSED_HOLD_US	1000000	/* guessing passwords takes time */
#define LOG_US			USECS_PER_SEC	/* one line about that in so long is enough */

static void
reply_error(KvMcReply *reply, const char *message)
{
	memset(reply, 0, sizeof(*reply));
	reply->outcome = KV_MC_ERROR;
	reply->value = message;
	reply->length = strlen(message);
	kv_mc_counts[KV_MC_COUNT_ERRORS]++;
}

/* What has happened, in static memory; the transaction is rolled back. */
static const char *
roll_back(void)
{
	static char message[200];
	ErrorData  *edata;

	HOLD_INTERRUPTS();
	MemoryContextSwitchTo(TopMemoryContext);
	edata = CopyErrorData();
	snprintf(message, sizeof(message), "%s %s", unpack_sql_state(edata->sqlerrcode), edata->message);
	EmitErrorReport();
	FlushErrorState();
	FreeErrorData(edata);
	AbortCurrentTransaction();
	MemoryContextSwitchTo(TopMemoryContext);
	RESUME_INTERRUPTS();
	return message;
}

/* ---- flush_all ---- */

void
kv_mc_flush_over(void)
{
	uint32		me = MyProcPid;

	(void) pg_atomic_compare_exchange_u32(&kv_mc_shared->flusher, &me, 0);
}

static bool
begin_flush(void)
{
	uint32		nobody = 0;

	return pg_atomic_compare_exchange_u32(&kv_mc_shared->flusher, &nobody, MyProcPid) ||
		nobody == (uint32) MyProcPid;
}

/* NULL, or an error; *done: the tables were there to be had. */
static const char *
truncate_tables(Oid role, bool *done)
{
	const char *volatile error = NULL;

	*done = true;
	PG_TRY();
	{
		SetCurrentStatementStartTimestamp();
		StartTransactionCommand();
		if (XactReadOnly)
			ereport(ERROR,
					(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
					 errmsg("server is read-only")));
		kv_mc_tables_begin();
		*done = kv_mc_tables_truncate(role);
		if (*done)
			kv_mc_commit_as(KV_MC_COMMIT_ON, true);
		else
			AbortCurrentTransaction();
		MemoryContextSwitchTo(TopMemoryContext);
	}
	PG_CATCH();
	{
		error = roll_back();
	}
	PG_END_TRY();
	return error;
}

bool
kv_mc_do_flush(KvMcConnection *conn, const KvMcRequest *request, KvMcReply *reply)
{
	Oid			role = kv_mc_auth == KV_MC_AUTH_NONE ? GetUserId() : conn->role;
	const char *error;
	bool		done;

	memset(reply, 0, sizeof(*reply));
	reply->outcome = KV_MC_DONE;
	if (request->exptime > 0)
	{
		reply->outcome = KV_MC_CLIENT_ERROR;
		reply->value = "flush_all with a delay is not supported";
		reply->length = strlen(reply->value);
		return true;
	}
	if (!begin_flush())
		return !kv_mc_park(conn, KV_MC_TABLE_BUSY, InvalidTransactionId, reply);
	error = truncate_tables(role, &done);
	if (error != NULL)
		reply_error(reply, error);
	else if (!done && kv_mc_park(conn, KV_MC_FLUSHING, InvalidTransactionId, reply))
		return false;
	if (done && error == NULL)
		kv_mc_counts[KV_MC_COUNT_FLUSHES_ALL]++;
	kv_mc_flush_over();
	return true;
}

/* ---- authentication ---- */

/* What is verified in the place of a password that there is not: it takes as long. */
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

/* The role of that name, if this is its password and it may use the database. */
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

/* Of up to so many bytes; NULL: longer, or not a string. */
static char *
copy_string(const char *from, size_t length, size_t most)
{
	return length >= most || memchr(from, '\0', length) != NULL ? NULL : pnstrdup(from, length);
}

/* The name is what some client has sent. */
static void
log_refusal(const KvMcRequest *request)
{
	static TimestampTz logged = 0;
	TimestampTz now = GetCurrentTimestamp();
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
			 errmsg("authentication of a client of memcached failed for role \"%s\"", name)));
}

void
kv_mc_do_auth(KvMcConnection *conn, const KvMcRequest *request, KvMcReply *reply)
{
	volatile Oid role = InvalidOid;

	PG_TRY();
	{
		char	   *name;
		char	   *password;

		SetCurrentStatementStartTimestamp();
		StartTransactionCommand();
		name = copy_string(request->user, request->user_length, NAMEDATALEN);
		password = copy_string(request->password, request->password_length, 1024);
		if (name != NULL && password != NULL)
			role = check_password(name, password);
		CommitTransactionCommand();
		MemoryContextSwitchTo(TopMemoryContext);
	}
	PG_CATCH();
	{
		(void) roll_back();
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
	kv_mc_any_waits = true;
	conn->hold_until = GetCurrentTimestamp() + REFUSED_HOLD_US;
	log_refusal(request);
}
