/*
 * emptied.c
 *		The process that executes a flush_all, and the marks on tables that it waits for: other
 *		processes leave marked tables alone.
 */
#include "memcached/process/process.h"

#include "miscadmin.h"

/*
 * the connection whose flush_all is executed here, or waits for its tables; NULL: there is none
 */
static const struct KvMcConnection *owner = NULL;

void
kv_mc_empty_over(void)
{
	uint32		me = MyProcPid;

	owner = NULL;
	if (pg_atomic_read_u32(&kv_mc_shared->emptier) != me)
		return;
	for (int i = 0; i < KV_MC_MAX_EMPTIED; i++)
		pg_atomic_write_u32(&kv_mc_shared->emptied[i], InvalidOid);
	pg_atomic_write_u32(&kv_mc_shared->emptier, 0);
}

void
kv_mc_empty_leave(const struct KvMcConnection *conn, const KvMcRequest *request)
{
	if (conn == owner && (request == NULL || request->command != KV_MC_FLUSH))
		kv_mc_empty_over();
}

bool
kv_mc_empty_begin(const struct KvMcConnection *conn)
{
	uint32		nobody = 0;

	if ((owner != NULL && owner != conn) ||
		(!pg_atomic_compare_exchange_u32(&kv_mc_shared->emptier, &nobody, MyProcPid) &&
		 nobody != (uint32) MyProcPid))
		return false;
	owner = conn;
	return true;
}

void
kv_mc_empty_mark(Oid relid)
{
	for (int i = 0; i < KV_MC_MAX_EMPTIED; i++)
	{
		uint32		marked = pg_atomic_read_u32(&kv_mc_shared->emptied[i]);

		if (marked == InvalidOid)
			pg_atomic_write_u32(&kv_mc_shared->emptied[i], relid);
		if (marked == InvalidOid || marked == relid)
			return;
	}
	/* no mark is free: the table is locked when it happens to be unused */
}

bool
kv_mc_empty_wants(Oid relid)
{
	uint32		emptier = pg_atomic_read_u32(&kv_mc_shared->emptier);

	if (emptier == 0 || emptier == (uint32) MyProcPid)
		return false;
	for (int i = 0; i < KV_MC_MAX_EMPTIED; i++)
	{
		if (pg_atomic_read_u32(&kv_mc_shared->emptied[i]) == relid)
			return true;
	}
	return false;
}
