/*
 * auth.c
 *		Authentication: a request that is a transaction of its own.
 */
#include "memcached/batch/batch.h"
#include "memcached/connection/connection.h"
#include "memcached/connection/wait.h"

#include "clock.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_database.h"
#include "libpq/crypt.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/syscache.h"

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
