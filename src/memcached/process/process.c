/*
 * process.c
 *		Setup of a process: its entry in shared memory, its settings, its role.
 */
#include "memcached/process/process.h"

#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "utils/acl.h"
#include "utils/guc.h"

KvMcShared *kv_mc_shared = NULL;
KvMcWorkerState *kv_mc_me = NULL;
int			kv_mc_my_number = 0;

static void
set_option(const char *name, const char *value)
{
	SetConfigOption(name, value, PGC_SUSET, PGC_S_OVERRIDE);
}

void
kv_mc_set_options(void)
{
	set_option("statement_timeout", "0");
	set_option("lock_timeout", "0");
	set_option("idle_in_transaction_session_timeout", "0");
	if (GetConfigOption("transaction_timeout", true, false) != NULL)
		set_option("transaction_timeout", "0");
	set_option("default_transaction_isolation", "read committed");
	set_option("default_transaction_deferrable", "off");
	set_option("search_path", "pg_catalog");
}

void
kv_mc_check_role(void)
{
	if (kv_mc_auth == KV_MC_AUTH_NONE && superuser())
		ereport(FATAL,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("cannot serve memcached clients as superuser \"%s\"", kv_mc_role),
				 errhint("Set \"kvfdw.memcached_role\" to a role that is not a superuser, or "
						 "\"kvfdw.memcached_auth\" to \"password\".")));
	if (get_role_oid(kv_mc_role, true) != GetUserId())
		ereport(FATAL,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("background worker \"%s\" does not run as role \"%s\" any longer",
						MyBgworkerEntry->bgw_name, kv_mc_role),
				 errdetail("The role was dropped or renamed, or the name has become that of "
						   "another role. The server starts the worker again.")));
}
