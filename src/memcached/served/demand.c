/*
 * demand.c
 *		What a request needs of its table: privileges, and columns.
 */
#include "memcached/served/served.h"

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

AclMode
kv_mc_privileges(const KvMcRequest *request, int64 now)
{
	return command_privileges(request) | (expires_at_once(request, now) ? ACL_DELETE : 0);
}

bool
kv_mc_has_value(const KvMcRequest *request)
{
	return stores_item(request) || request->command == KV_MC_APPEND ||
		request->command == KV_MC_PREPEND;
}

const char *
kv_mc_lacks_column(const KvMcTable *table, const KvMcRequest *request)
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

bool
kv_mc_is_blind(const KvMcTable *table, const KvMcRequest *request, int64 now)
{
	int64		expires;

	if (request->command != KV_MC_SET || request->has_cas || table->others)
		return false;
	expires = kv_mc_expires(request->exptime, now);
	return expires == 0 || expires > now;
}
