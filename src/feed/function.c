/*
 * function.c
 *		kvfdw_changes(): the change feed in SQL.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "replication/slot.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"

#include "compat.h"
#include "feed/feed.h"

PG_FUNCTION_INFO_V1(kvfdw_changes);

/* A slot of another plugin gives other lines.  Of one that does not exist core says so. */
static void
require_our_slot(const char *name)
{
	ReplicationSlot *slot;

	if (!KV_LOGICAL_DECODING_POSSIBLE)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("\"wal_level\" is insufficient to follow changes"),
				 errhint("Set \"wal_level\" to \"logical\", and restart the server.")));
	slot = SearchNamedReplicationSlot(name, true);
	if (slot != NULL && strcmp(NameStr(slot->data.plugin), "kvfdw") != 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("output plugin of replication slot \"%s\" is not \"kvfdw\"", name),
				 errhint("Create a replication slot by "
						 "pg_create_logical_replication_slot('name', 'kvfdw').")));
}

/* Core's function has the same arguments and columns, so it can have this call. */
Datum
kvfdw_changes(PG_FUNCTION_ARGS)
{
	if (!PG_ARGISNULL(0))
		require_our_slot(NameStr(*PG_GETARG_NAME(0)));
	return pg_logical_slot_peek_changes(fcinfo);
}
