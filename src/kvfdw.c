/*
 * kvfdw.c
 *		Module start: settings, the handler, and hooks for the ends of transactions and for drops.
 *
 * Loaded through shared_preload_libraries the module has its workers, shared memory and
 * resource manager in every process.  Loaded later (by CREATE EXTENSION, say) the module can
 * check options but plan nothing: at the first use of a table kv_engine_require says which
 * setting to change.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_class.h"
#include "catalog/pg_database.h"
#include "catalog/pg_foreign_table.h"
#include "catalog/pg_tablespace.h"
#include "commands/extension.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/memutils.h"

#include "admission/admission.h"
#include "compat.h"
#include "engine/engine.h"
#include "engine/store.h"
#include "fdw/fdw.h"
#include "memcached/memcached.h"
#include "report.h"
#include "table/table.h"

/* ---- callbacks of transactions and drops ---- */

/*
 * At wal levels 'full' and 'none' a transaction's rows need nothing at its end: clog decides
 * which snapshots see them (I 1).  At 'keys' the entries that are not logged yet are logged
 * before the commit record.  Files need more: those that TRUNCATE and DROP replaced are
 * unlinked after COMMIT, those that the transaction made are unlinked after ABORT (I 9).  From
 * COMMIT and ABORT on the callbacks neither throw, allocate nor wait.
 */

static object_access_hook_type previous_object_access = NULL;

/* Tables whose options this transaction has changed; in TopTransactionContext. */
static List *altered = NIL;

static bool committed_before = false;	/* has this process committed before? */

/* May throw, so it runs before anything that cannot be undone. */
static void
before_commit(void)
{
	ListCell   *cell;
	List	   *tables;

	kv_ddl_before_commit();
	tables = altered;
	altered = NIL;
	foreach(cell, tables)
		kv_table_apply_options(lfirst_oid(cell));
	if (kv_engine_ready())
	{
		kv_engine_before_commit_of_stores();
		kv_engine_before_commit();
	}
}

/* Did pg_backup_start succeed, and is the backup still in force?  Never throws. */
static void
note_backup(void)
{
	if (get_backup_status() != SESSION_BACKUP_RUNNING)
		kv_engine_note_backup(false);
}

static void
note_altered(Oid relid)
{
	MemoryContext old = MemoryContextSwitchTo(TopTransactionContext);

	altered = list_append_unique_oid(altered, relid);
	MemoryContextSwitchTo(old);
}

static void
at_transaction_event(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_PRE_PREPARE:
			before_commit();
			if (kv_engine_has_pending_files())
				ereport(ERROR,
						(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						 errmsg("cannot PREPARE a transaction that has created, moved, truncated "
								"or dropped kvfdw tables")));
			break;
		case XACT_EVENT_PRE_COMMIT:
			if (!committed_before)
				kv_dump_first_commit();
			committed_before = true;
			before_commit();
			break;
		case XACT_EVENT_PREPARE:
			altered = NIL;
			kv_ddl_at_end();
			kv_mark_at_end(false);
			kv_changes_at_end(true);
			kv_engine_at_prepare();
			break;
		case XACT_EVENT_COMMIT:
			note_backup();
			kv_ddl_at_end();
			kv_mark_at_end(true);
			kv_changes_at_end(true);	/* before their stores are removed */
			kv_engine_at_commit();
			break;
		case XACT_EVENT_ABORT:
			note_backup();
			altered = NIL;
			kv_ddl_at_end();
			kv_mark_at_end(false);
			kv_changes_at_end(false);
			kv_many_forget();
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
	{
		kv_ddl_at_subxact_abort(mine);
		kv_mark_at_subxact_abort();
		kv_changes_at_subxact_abort(mine);
		kv_many_forget();
		kv_engine_at_subxact(false, mine, parent);
	}
}

/* Every DROP calls this hook, cascades included, before the catalog row is deleted. */
static void
at_object_access(ObjectAccessType access, Oid classid, Oid objectid, int subid, void *arg)
{
	if (previous_object_access)
		previous_object_access(access, classid, objectid, subid, arg);

	/* by far the most calls */
	if (access == OAT_FUNCTION_EXECUTE)
	{
		if (objectid == F_PG_BACKUP_START && kv_engine_ready())
			kv_engine_note_backup(true);
		return;
	}
	kv_ddl_note(access, classid, objectid, subid);
	if (access == OAT_POST_ALTER && classid == ForeignTableRelationId)
		kv_primary_key_options_set(objectid);
	if (subid != 0 || !kv_engine_ready())
		return;
	if (access == OAT_POST_ALTER && classid == ForeignTableRelationId)
		note_altered(objectid);
	if (access != OAT_DROP)
		return;
	if (classid == RelationRelationId && kv_is_foreign_table(objectid))
		kv_store_drop_at_commit(MyDatabaseId, objectid);
	else if (classid == DatabaseRelationId)
		kv_store_drop_database_at_commit(objectid);
	else if (classid == TableSpaceRelationId)
		kv_tablespace_require_left(objectid);
}

static void
register_callbacks(void)
{
	RegisterXactCallback(at_transaction_event, NULL);
	RegisterSubXactCallback(at_subtransaction_event, NULL);
	previous_object_access = object_access_hook;
	object_access_hook = at_object_access;
}

/* ---- the module ---- */

KV_MODULE_MAGIC("kvfdw", "0.2.0");

PG_FUNCTION_INFO_V1(kvfdw_handler);

void		_PG_init(void);

void
_PG_init(void)
{
	if (process_shared_preload_libraries_in_progress)
	{
		kv_engine_gucs();
		kv_cost_gucs();
		kv_memcached_gucs();
		MarkGUCPrefixReserved("kvfdw");
		kv_engine_preload();
		kv_admission_preload();
		kv_memcached_preload();
		kv_register_report();
	}
	else if (creating_extension)
		kv_engine_warn();
	kv_table_init();
	register_callbacks();
	kv_ddl_init();
	kv_conflict_init();
	kv_plan_init();
}

Datum
kvfdw_handler(PG_FUNCTION_ARGS)
{
	FdwRoutine *routine = makeNode(FdwRoutine);

	kv_plan_routine(routine);
	kv_scan_routine(routine);
	kv_modify_routine(routine);
	kv_batch_routine(routine);
	kv_direct_routine(routine);
	kv_explain_routine(routine);
	PG_RETURN_POINTER(routine);
}
