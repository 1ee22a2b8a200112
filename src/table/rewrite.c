/*
 * rewrite.c
 *		All rows of a table whose definition has changed: reads them, rewrites them for another wal
 *		level, or has them moved to another tablespace.
 *
 * To rewrite them, rows are copied from store to store as they are stored, in any form, and belong
 * to the transaction that copies them.  So older snapshots would see none of them, and may not read
 * the new store (kv_table_read).
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/xact.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "engine/change.h"
#include "engine/maintenance.h"
#include "engine/rows.h"
#include "engine/store.h"
#include "table/definition.h"
#include "table/internal.h"
#include "table/table.h"

/* ---- rewriting and moving ---- */

/* Copy every present row, as it is stored. */
static void
copy_rows(Relation rel, KvStore *from, KvStore *to)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "kvfdw copy",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	KvKey		unbounded = {NULL, 0};
	KvScan	   *scan = kv_scan_begin(from, snapshot, true);
	CommandId	cid = GetCurrentCommandId(true);
	KvRow		row;

	kv_store_feed(to, false);
	kv_scan_range(scan, unbounded, unbounded, KV_ASCENDING, 0);
	while (kv_scan_next(scan, &row))
	{
		KvKey		key = {row.key, row.keylen};

		(void) kv_insert(to, rel, key, row.form, row.value, row.len, snapshot, cid, false);
		kv_progress_add(1);
	}
	kv_scan_end(scan);
	UnregisterSnapshot(snapshot);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
}

/* As copy_rows, with its progress in kvfdw_stat_progress. */
static void
rewrite_rows(Relation rel, KvStore *from, KvStore *to)
{
	KvProgress	outer;

	kv_progress_begin(&outer, KV_PROGRESS_REWRITE, MyDatabaseId, RelationGetRelid(rel), -1,
					  "writing rows", kv_store_row_estimate(from));
	PG_TRY();
	{
		copy_rows(rel, from, to);
	}
	PG_FINALLY();
	{
		kv_progress_end(&outer);
	}
	PG_END_TRY();
}

KvStore *
kv_table_read(Relation rel, Snapshot snapshot)
{
	KvStore    *store = kv_table_store(rel, false);

	if (store != NULL && !kv_store_serves(store, snapshot))
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("could not serialize access due to concurrent ALTER of foreign table "
						"\"%s\"",
						RelationGetRelationName(rel)),
				 errdetail("The rows were rewritten after the snapshot was taken."),
				 errhint("The transaction might succeed if retried.")));
	return store;
}

/* Do the table's options have another wal level than its store? */
static bool
wants_other_store(const KvTable *table)
{
	KvWalLevel	level;

	return table->wal_given && kv_store_wal_level(MyDatabaseId, table->relid, &level) &&
		level != table->wal;
}

/* Have its value files moved after COMMIT to where the options say. */
static void
follow_tablespace(Relation rel)
{
	const KvTable *table = kv_table_get(rel);
	Oid			present;
	KvStore    *store;

	/* a table whose data is missing can be altered nevertheless */
	if (!kv_store_tablespace(MyDatabaseId, RelationGetRelid(rel), &present))
		return;
	store = kv_table_store(rel, false);
	if (store == NULL || kv_store_lies_in(store, table->tablespace))
		return;
	if (!kv_store_can_follow(store, table->tablespace))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot move foreign table \"%s\" to another tablespace yet",
						RelationGetRelationName(rel)),
				 errdetail("Values of the table are still stored in the maximum number of other "
						   "tablespaces."),
				 errhint("Run kvfdw_compact() for the table, and try again.")));
	kv_store_follow_at_commit(store, table->tablespace);
}

/* ERROR if changes are to be followed, and the level with which data was written lacks them. */
static void
require_changes_logged(Relation rel)
{
	KvWalLevel	level;

	if (!kv_table_get(rel)->changes ||
		!kv_store_wal_level(MyDatabaseId, RelationGetRelid(rel), &level) || level == KV_WAL_FULL)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("cannot follow the changes of foreign table \"%s\"",
					RelationGetRelationName(rel)),
			 errdetail_internal("%s", kv_wal_level_lacks(level)),
			 errhint("Set the option \"wal\" to \"full\", or \"changes\" to \"off\".")));
}

void
kv_table_apply_options(Oid relid)
{
	Relation	rel = try_relation_open(relid, AccessShareLock);

	if (rel == NULL)
		return;

	/* without the lock: the ALTER was rolled back to a savepoint */
	if (CheckRelationLockedByMe(rel, AccessExclusiveLock, true) &&
		wants_other_store(kv_table_get(rel)))
	{
		KvStore    *store = kv_table_store(rel, true);	/* this also resolves lines of aborted
														 * transactions */
		KvStore    *fresh;

		/* the last statement's rows are to be copied, too */
		CommandCounterIncrement();
		fresh = kv_table_renew(rel, store, true);
		rewrite_rows(rel, store, fresh);
		kv_store_note_copied(fresh);
	}
	else if (CheckRelationLockedByMe(rel, AccessExclusiveLock, true))
		follow_tablespace(rel);
	if (CheckRelationLockedByMe(rel, AccessExclusiveLock, true))
		require_changes_logged(rel);
	relation_close(rel, NoLock);
}

/* ---- reading ---- */

void
kv_table_each_row(const KvTable *table, KvStore *store, Snapshot snapshot, bool want_values,
				  KvScanOrder order, EState *estate, KvEachRow each, void *arg)
{
	ExprContext *econtext = GetPerTupleExprContext(estate);
	TupleTableSlot *slot = MakeSingleTupleTableSlot(table->tupdesc, &TTSOpsVirtual);
	KvKey		unbounded = {NULL, 0};
	KvScan	   *scan = kv_scan_begin(store, snapshot, want_values);
	KvRow		row;

	slot->tts_tableOid = table->relid;
	econtext->ecxt_scantuple = slot;
	kv_scan_range(scan, unbounded, unbounded, order, 0);
	while (kv_scan_next(scan, &row))
	{
		MemoryContext old;

		CHECK_FOR_INTERRUPTS();
		ResetPerTupleExprContext(estate);
		old = MemoryContextSwitchTo(econtext->ecxt_per_tuple_memory);
		kv_tuple_store(table, &row, want_values, slot);
		each(econtext, &row, arg);
		MemoryContextSwitchTo(old);
	}
	kv_scan_end(scan);
	econtext->ecxt_scantuple = NULL;
	ExecDropSingleTupleTableSlot(slot);
}
