/*
 * rows.c
 *		Reads all rows of a table for a statement that changes its definition.
 */
#include "postgres.h"

#include "executor/executor.h"
#include "miscadmin.h"

#include "table/table.h"

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
