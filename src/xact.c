/*
 * xact.c
 *		Where transactions and object drops reach the engine.
 *
 * A transaction's rows need nothing at its end: clog decides who sees them
 * (I 1).  Only files do: what TRUNCATE and DROP replaced is unlinked after
 * COMMIT, what the transaction made is unlinked after ABORT (I 9).  The
 * callbacks neither throw, allocate nor wait.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_class.h"
#include "catalog/pg_database.h"
#include "miscadmin.h"

#include "kvfdw.h"

static object_access_hook_type previous_object_access = NULL;

static void
at_transaction_event(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_PRE_PREPARE:
			if (kv_engine_has_pending_files())
				ereport(ERROR,
						(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						 errmsg("cannot PREPARE a transaction that has created, truncated or dropped kvfdw tables")));
			kv_engine_before_commit();
			break;
		case XACT_EVENT_PRE_COMMIT:
			kv_engine_before_commit();
			break;
		case XACT_EVENT_PREPARE:
			kv_engine_at_prepare();
			break;
		case XACT_EVENT_COMMIT:
			kv_engine_note_backup(get_backup_status() == SESSION_BACKUP_RUNNING);
			kv_engine_at_commit();
			break;
		case XACT_EVENT_ABORT:
			kv_engine_at_abort();
			break;
		default:
			break;
	}
}

static void
at_subtransaction_event(SubXactEvent event, SubTransactionId mine,
						SubTransactionId parent, void *arg)
{
	if (event == SUBXACT_EVENT_COMMIT_SUB)
		kv_engine_at_subxact(true, mine, parent);
	else if (event == SUBXACT_EVENT_ABORT_SUB)
		kv_engine_at_subxact(false, mine, parent);
}

/* Every DROP comes by here, cascades included, before the catalog row goes (F 21). */
static void
at_object_access(ObjectAccessType access, Oid classid, Oid objectid, int subid, void *arg)
{
	if (previous_object_access)
		previous_object_access(access, classid, objectid, subid, arg);

	if (access != OAT_DROP || subid != 0 || !kv_engine_ready())
		return;
	if (classid == RelationRelationId && kv_is_foreign_table(objectid))
		kv_store_drop_at_commit(MyDatabaseId, objectid);
	else if (classid == DatabaseRelationId)
		kv_store_drop_database_at_commit(objectid);
}

void
kv_xact_init(void)
{
	RegisterXactCallback(at_transaction_event, NULL);
	RegisterSubXactCallback(at_subtransaction_event, NULL);
	previous_object_access = object_access_hook;
	object_access_hook = at_object_access;
}
