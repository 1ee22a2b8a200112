/*
 * modify.c
 *		INSERT, UPDATE, DELETE, COPY FROM, partition routing, TRUNCATE.
 *
 * A row is identified by its key: the planner adds the key columns of each row to be updated or
 * deleted as resjunk columns.  The row is locked when it is changed.  If other transactions
 * have changed it since the snapshot, READ COMMITTED tests the newest version with EvalPlanQual
 * and continues with that, as core does for heap.  If there are row triggers, the scan has done
 * that.
 *
 * Core leaves to an FDW several things that it does itself for a heap table: constraints, the
 * partition constraint, row security of a partitioned parent, and the errors of a unique index.
 * Here they are as heap has them, in heap's order.  One thing that heap does is impossible for
 * an FDW: moving an updated row to another partition.  That is the partition constraint's
 * error.
 *
 * The plan contains what EXPLAIN needs, and whether rows may be inserted in batches (batch.c); the
 * executor knows the rest.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "executor/instrument.h"
#include "executor/nodeModifyTable.h"
#include "nodes/makefuncs.h"
#include "optimizer/appendinfo.h"
#include "parser/parsetree.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "compat.h"
#include "engine/engine.h"
#include "engine/rows.h"
#include "fdw/modify.h"

/* The resjunk column with the old row of a DELETE, for RETURNING. */
#define KV_ROW_NAME		"__kv_row"

/*
 * The name of a key column's resjunk entry.  Partitions that share one entry must mean the same
 * Var by it, so the name contains all that distinguishes Vars.
 */
static char *
key_column_name(const KvTable *table, int key)
{
	Form_pg_attribute att = TupleDescAttr(table->tupdesc,
										  table->keys[key].attnum - 1);

	return psprintf("__kv_key_%d_%u_%d_%u", att->attnum, att->atttypid,
					att->atttypmod, att->attcollation);
}

/*
 * Has any foreign table among a DELETE's targets a trigger?  Each of them asks once; the answer
 * is cached for the target, unless the target is one of our tables.
 */
static bool
any_child_has_triggers(PlannerInfo *root)
{
	RangeTblEntry *target = planner_rt_fetch(root->parse->resultRelation, root);
	RelOptInfo *rel = root->simple_rel_array[root->parse->resultRelation];
	bool		found = false;
	ListCell   *lc;

	if (target->relkind != RELKIND_FOREIGN_TABLE && rel->fdw_private != NULL)
		return boolVal(rel->fdw_private);
	foreach(lc, find_all_inheritors(target->relid, NoLock, NULL))
	{
		HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(lfirst_oid(lc)));

		if (!HeapTupleIsValid(tuple))
			continue;
		found |= ((Form_pg_class) GETSTRUCT(tuple))->relkind == RELKIND_FOREIGN_TABLE &&
			((Form_pg_class) GETSTRUCT(tuple))->relhastriggers;
		ReleaseSysCache(tuple);
	}
	if (target->relkind != RELKIND_FOREIGN_TABLE)
		rel->fdw_private = makeBoolean(found);
	return found;
}

static void
kv_add_foreign_update_targets(PlannerInfo *root, Index rtindex,
							  RangeTblEntry *target_rte,
							  Relation target_relation)
{
	KvTable    *table = kv_table_get(target_relation);
	Var		   *whole_row;

	for (int i = 0; i < table->nkeys; i++)
	{
		Form_pg_attribute att = TupleDescAttr(table->tupdesc,
											  table->keys[i].attnum - 1);
		Var		   *var = makeVar(rtindex, att->attnum, att->atttypid,
								  att->atttypmod, att->attcollation, 0);

		add_row_identity_var(root, var, rtindex, key_column_name(table, i));
	}
	whole_row = makeVar(rtindex, InvalidAttrNumber, RECORDOID, -1, InvalidOid, 0);

	/*
	 * Core adds the whole row, as "wholerow", for UPDATE and for a table with
	 * row triggers, and then expects it of every foreign table of the DELETE.
	 */
	if (root->parse->commandType == CMD_DELETE &&
		planner_rt_fetch(root->parse->resultRelation, root)->inh &&
		any_child_has_triggers(root))
		add_row_identity_var(root, whole_row, rtindex, "wholerow");

	/*
	 * RETURNING needs the whole row, too; the name is our own, so that core does not use the
	 * column
	 */
	if (root->parse->commandType == CMD_DELETE &&
		root->parse->returningList != NIL)
		add_row_identity_var(root, whole_row, rtindex, KV_ROW_NAME);
}

static List *
kv_plan_foreign_modify(PlannerInfo *root, ModifyTable *plan, Index rtindex, int subplan_index)
{
	return list_make3(makeBoolean(kv_conflict_target_was_given(root->parse)),
					  makeBoolean(kv_upsert_may_set_again(plan)),
					  makeBoolean(true));
}

/*
 * Core opens the indexes of a target, and prepares unique ones for ON CONFLICT, which some versions
 * can do for B-trees only.  So it must find none.  As a direct target has its array already, core
 * does not open it.  The indexes of a partition are opened before we are told of it: there the
 * table seems to have none between IsForeignRelUpdatable and BeginForeignInsert.  Other callers of
 * IsForeignRelUpdatable have not locked the table for writing.
 */
static void
hide_indexes(Relation rel)
{
	if (rel->rd_rel->relhasindex && CheckRelationLockedByMe(rel, RowExclusiveLock, true))
		rel->rd_rel->relhasindex = false;
}

/* Of several targets of a statement all were hidden before the first one is shown again. */
void
kv_show_indexes(ResultRelInfo *rinfo)
{
	Relation	rel = rinfo->ri_RelationDesc;

	if (!OidIsValid(kv_primary_key(rel)))
		return;
	rel->rd_rel->relhasindex = true;
	if (rinfo->ri_IndexRelationDescs == NULL)
		rinfo->ri_IndexRelationDescs = palloc0(sizeof(Relation));
}

static KvModifyState *
create_state(ModifyTableState *mtstate, ResultRelInfo *rinfo)
{
	MemoryContext context;
	MemoryContext old;
	KvModifyState *state;
	ModifyTable *plan = (ModifyTable *) mtstate->ps.plan;

	kv_engine_require();
	kv_ddl_require_followed(rinfo->ri_RelationDesc);

	/* of a size that PostgreSQL keeps for the next statement: all of it is in the first block */
	context = AllocSetContextCreate(mtstate->ps.state->es_query_cxt,
									"kvfdw modify", ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(context);
	state = palloc0(sizeof(KvModifyState));
	state->context = context;
	state->row_context = AllocSetContextCreate(context, "kvfdw modify row",
											   ALLOCSET_DEFAULT_SIZES);
	state->rel = rinfo->ri_RelationDesc;
	state->table = kv_table_get(state->rel);
	state->mtstate = mtstate;
	state->operation = mtstate->operation;
	if (plan == NULL)
	{
		state->copy = true;
		state->copy_cid = GetCurrentCommandId(true);
	}
	else
	{
		state->on_conflict = plan->onConflictAction;
		state->locked = kv_scan_locks(state->rel, state->operation);
		state->epqstate = &mtstate->mt_epqstate;
	}
	initStringInfo(&state->key);
	initStringInfo(&state->old_key);
	initStringInfo(&state->value);
	MemoryContextSwitchTo(old);
	return state;
}

static void
kv_begin_foreign_modify(ModifyTableState *mtstate, ResultRelInfo *rinfo,
						List *fdw_private, int subplan_index, int eflags)
{
	KvModifyState *state;
	List	   *tlist;

	kv_show_indexes(rinfo);
	if (eflags & EXEC_FLAG_EXPLAIN_ONLY)
		return;

	state = create_state(mtstate, rinfo);
	state->may_set_again = boolVal(list_nth(fdw_private, KvModifyPrivateSetAgain));
	if (mtstate->operation == CMD_UPDATE || mtstate->operation == CMD_DELETE)
	{
		tlist = outerPlan(mtstate->ps.plan)->targetlist;
		state->key_attnums = MemoryContextAlloc(state->context,
												sizeof(AttrNumber) * state->table->nkeys);
		for (int i = 0; i < state->table->nkeys; i++)
		{
			state->key_attnums[i] =
				ExecFindJunkAttributeInTlist(tlist,
											 key_column_name(state->table, i));
			if (!AttributeNumberIsValid(state->key_attnums[i]))
				elog(ERROR, "could not find junk column of key column %d", i);
		}
		state->row_attnum = ExecFindJunkAttributeInTlist(tlist, KV_ROW_NAME);
	}
	rinfo->ri_FdwState = state;
}

/*
 * COPY FROM, or a partition that rows are routed to.  A partition that is also
 * a target of the same UPDATE has its state already, which serves for both.
 */
static void
kv_begin_foreign_insert(ModifyTableState *mtstate, ResultRelInfo *rinfo)
{
	KvModifyState *state;

	kv_show_indexes(rinfo);
	if (rinfo->ri_FdwState != NULL)
		return;
	state = create_state(mtstate, rinfo);
	if (state->on_conflict == ONCONFLICT_UPDATE)
		state->may_set_again = kv_upsert_may_set_again((ModifyTable *) mtstate->ps.plan);
	rinfo->ri_FdwState = state;
}

/* Ends both kinds, modify and insert. */
static void
kv_end_foreign_modify(EState *estate, ResultRelInfo *rinfo)
{
	KvModifyState *state = rinfo->ri_FdwState;

	if (state == NULL)
		return;					/* EXPLAIN, or the other kind's end has run */
	kv_upsert_restore(state, rinfo);
	rinfo->ri_FdwState = NULL;
	MemoryContextDelete(state->context);
}

/* ---- shared by all statements ---- */

KvModifyState *
kv_modify_begin_row(ResultRelInfo *rinfo, MemoryContext *old)
{
	KvModifyState *state = rinfo->ri_FdwState;

	if (state->store == NULL)
		state->store = kv_table_store(state->rel, true);
	MemoryContextReset(state->row_context);
	*old = MemoryContextSwitchTo(state->row_context);
	return state;
}

/* ---- INSERT ---- */

/* Does the row come from another partition, where an UPDATE has found it? */
static bool
was_moved(const KvModifyState *state)
{
	return state->operation == CMD_UPDATE ||
		(state->operation == CMD_MERGE && kv_merge_moves_row(state->mtstate));
}

TupleTableSlot *
kv_exec_foreign_insert(EState *estate, ResultRelInfo *rinfo,
					   TupleTableSlot *slot, TupleTableSlot *planSlot)
{
	MemoryContext old;
	KvModifyState *state = kv_modify_begin_row(rinfo, &old);
	KvOnDuplicate on_duplicate;
	bool		replace;
	const char *value;
	Size		len;
	KvForm		form;
	KvKey		key;
	KvInsertResult inserted;

	on_duplicate = was_moved(state) ? KV_DUPLICATE_ERROR :
		state->on_conflict == ONCONFLICT_NOTHING ? KV_DUPLICATE_IGNORE :
		state->table->on_duplicate;
	replace = on_duplicate == KV_DUPLICATE_REPLACE && state->on_conflict == ONCONFLICT_NONE &&
		kv_may_replace(state, estate, rinfo);
	kv_upsert_restore(state, rinfo);

	kv_modify_check_row(state, estate, rinfo, slot,
						was_moved(state) ? WCO_RLS_UPDATE_CHECK : WCO_RLS_INSERT_CHECK);

	/* routing chose the partition, unless a trigger changed the row since */
	if (!state->copy && state->rel->rd_rel->relispartition &&
		(rinfo->ri_RootResultRelInfo == NULL ||
		 (rinfo->ri_TrigDesc && rinfo->ri_TrigDesc->trig_insert_before_row)))
		ExecPartitionCheck(rinfo, slot, estate, true);
	if (state->on_conflict == ONCONFLICT_UPDATE || state->on_conflict == KV_ON_CONFLICT_SELECT)
		return kv_upsert(state, estate, rinfo, slot, old);

	resetStringInfo(&state->key);
	kv_key_encode_slot(state->table, slot, &state->key);
	key = kv_modify_key(&state->key);
	form = kv_tuple_encode(state->table, slot, &state->value, &value, &len);

	inserted = kv_insert(state->store, state->rel, key, form, value, len,
						 kv_modify_snapshot(estate), kv_modify_cid(state, estate), replace);
	MemoryContextSwitchTo(old);
	if (inserted == KV_INSERTED)
	{
		kv_modify_check_conflict_in(state, key);
		return slot;
	}
	if (on_duplicate == KV_DUPLICATE_REPLACE && state->replace == KV_REPLACE_DENIED)
		kv_raise_denied(state);
	if (on_duplicate != KV_DUPLICATE_IGNORE)
		kv_modify_raise_duplicate(state, key, slot);

	/* an ignored row must be visible to this transaction, or its own */
	if (inserted == KV_EXISTS_UNSEEN && IsolationUsesXactSnapshot())
		kv_raise_row_conflict(KV_ROW_UPDATED, CMD_INSERT);
	if (state->on_conflict == ONCONFLICT_NOTHING)
		InstrCountTuples2(&state->mtstate->ps, 1);
	return NULL;
}

/* ---- UPDATE and DELETE ---- */

/* The key of the row to be changed, from the plan's resjunk columns. */
static KvKey
old_key(KvModifyState *state, TupleTableSlot *planSlot)
{
	int			nkeys = state->table->nkeys;

	resetStringInfo(&state->old_key);
	for (int i = 0; i < nkeys; i++)
	{
		bool		isnull;
		Datum		value = ExecGetJunkAttribute(planSlot, state->key_attnums[i],
												 &isnull);

		if (isnull)
			elog(ERROR, "key column %d is NULL", i);
		kv_key_encode_column(&state->old_key, &state->table->keys[i],
							 i == nkeys - 1, value);
	}
	return kv_modify_key(&state->old_key);
}

static void
store_newer(KvModifyState *state, EState *estate, const KvRow *newer, TupleTableSlot *slot)
{
	MemoryContext old = MemoryContextSwitchTo(GetPerTupleMemoryContext(estate));

	kv_tuple_store(state->table, newer, true, slot);
	MemoryContextSwitchTo(old);
}

/*
 * A row has a newer version, which is locked now.  Does it still satisfy the statement?
 * Returns the plan's output for it, or NULL.  Runs in the query's memory context, not the
 * row's: EvalPlanQual keeps what it builds.
 */
static TupleTableSlot *
recheck_row(KvModifyState *state, EState *estate, ResultRelInfo *rinfo, const KvRow *newer)
{
	Index		rti = rinfo->ri_RangeTableIndex;
	TupleTableSlot *slot = EvalPlanQualSlot(state->epqstate, state->rel, rti);

	store_newer(state, estate, newer, slot);
	slot = EvalPlanQual(state->epqstate, state->rel, rti, slot);
	return TupIsNull(slot) ? NULL : slot;
}

/* The new row that an UPDATE computes from a newer version, or NULL. */
static TupleTableSlot *
update_newer(KvModifyState *state, EState *estate, ResultRelInfo *rinfo, const KvRow *newer)
{
	TupleTableSlot *old_slot = rinfo->ri_oldTupleSlot;
	TupleTableSlot *slot = recheck_row(state, estate, rinfo, newer);

	if (slot == NULL)
		return NULL;
	store_newer(state, estate, newer, old_slot);
	slot = ExecGetUpdateNewTuple(rinfo, slot, old_slot);
	if (RelationGetDescr(state->rel)->constr != NULL &&
		RelationGetDescr(state->rel)->constr->has_generated_stored)
		ExecComputeStoredGenerated(rinfo, estate, slot, CMD_UPDATE);
	return slot;
}

static TupleTableSlot *
kv_exec_foreign_update(EState *estate, ResultRelInfo *rinfo,
					   TupleTableSlot *slot, TupleTableSlot *planSlot)
{
	MemoryContext old;
	KvModifyState *state = kv_modify_begin_row(rinfo, &old);
	Snapshot	snapshot = state->locked ? NULL : estate->es_snapshot;
	KvKey		from = old_key(state, planSlot);
	KvRowResult result;
	KvRow		newer;

	for (;;)
	{
		if (state->rel->rd_rel->relispartition)
			ExecPartitionCheck(rinfo, slot, estate, true);
		kv_modify_check_row(state, estate, rinfo, slot, WCO_RLS_UPDATE_CHECK);
		result = kv_modify_update(state, estate, from, snapshot, slot, &newer);
		if (result != KV_ROW_NEWER)
			break;

		MemoryContextSwitchTo(old);
		slot = update_newer(state, estate, rinfo, &newer);
		if (slot == NULL)
			return NULL;
		MemoryContextSwitchTo(state->row_context);
		from.data = newer.key;
		from.len = newer.keylen;
		snapshot = NULL;
	}
	MemoryContextSwitchTo(old);
	if (result == KV_ROW_DONE)
		return slot;
	kv_raise_row_conflict(result, CMD_UPDATE);
	return NULL;
}

/* Give RETURNING the old row that the plan has seen. */
static void
return_seen_row(KvModifyState *state, TupleTableSlot *slot, TupleTableSlot *planSlot)
{
	bool		isnull;
	Datum		datum = ExecGetJunkAttribute(planSlot, state->row_attnum, &isnull);
	HeapTupleData tuple;
	MemoryContext old;

	if (isnull)
		elog(ERROR, "old row is NULL");

	tuple.t_data = DatumGetHeapTupleHeader(datum);
	tuple.t_len = HeapTupleHeaderGetDatumLength(tuple.t_data);
	ItemPointerSetInvalid(&tuple.t_self);
	tuple.t_tableOid = RelationGetRelid(state->rel);

	/* the slot may outlive the row's memory context */
	old = MemoryContextSwitchTo(slot->tts_mcxt);
	ExecForceStoreHeapTuple(heap_copytuple(&tuple), slot, true);
	MemoryContextSwitchTo(old);
}

static TupleTableSlot *
kv_exec_foreign_delete(EState *estate, ResultRelInfo *rinfo,
					   TupleTableSlot *slot, TupleTableSlot *planSlot)
{
	static const KvKey nowhere = {NULL, 0};
	MemoryContext old;
	KvModifyState *state = kv_modify_begin_row(rinfo, &old);
	Snapshot	snapshot = state->locked ? NULL : estate->es_snapshot;
	CommandId	cid = kv_modify_cid(state, estate);
	KvKey		key = old_key(state, planSlot);
	KvRowResult result;
	KvRow		newer;
	bool		is_newer = false;

	result = kv_delete(state->store, state->rel, key, snapshot, nowhere, cid, &newer);
	if (result == KV_ROW_NEWER)
	{
		MemoryContextSwitchTo(old);
		if (recheck_row(state, estate, rinfo, &newer) == NULL)
			return NULL;
		MemoryContextSwitchTo(state->row_context);
		is_newer = true;
		key.data = newer.key;
		key.len = newer.keylen;
		result = kv_delete(state->store, state->rel, key, NULL, nowhere, cid, &newer);
	}
	if (result == KV_ROW_DONE)
	{
		kv_modify_check_conflict_in(state, key);
		ExecClearTuple(slot);
		if (AttributeNumberIsValid(state->row_attnum))
		{
			if (is_newer)
			{
				kv_tuple_store(state->table, &newer, true, slot);
				ExecMaterializeSlot(slot);
			}
			else
				return_seen_row(state, slot, planSlot);
		}
	}
	MemoryContextSwitchTo(old);
	if (result == KV_ROW_DONE)
		return slot;
	kv_raise_row_conflict(result, CMD_DELETE);
	return NULL;
}

/* ---- tables ---- */

/*
 * TRUNCATE.  Core restarts the sequences.  CASCADE has nothing to cascade to:
 * no foreign key can refer to a foreign table.
 */
static void
kv_exec_foreign_truncate(List *rels, DropBehavior behavior, bool restart_seqs)
{
	ListCell   *lc;

	foreach(lc, rels)
		kv_table_truncate((Relation) lfirst(lc));
}

static int
kv_is_foreign_rel_updatable(Relation rel)
{
	hide_indexes(rel);
	return (1 << CMD_INSERT) | (1 << CMD_UPDATE) | (1 << CMD_DELETE);
}

void
kv_modify_routine(FdwRoutine *routine)
{
	routine->AddForeignUpdateTargets = kv_add_foreign_update_targets;
	routine->PlanForeignModify = kv_plan_foreign_modify;
	routine->BeginForeignModify = kv_begin_foreign_modify;
	routine->ExecForeignInsert = kv_exec_foreign_insert;
	routine->ExecForeignUpdate = kv_exec_foreign_update;
	routine->ExecForeignDelete = kv_exec_foreign_delete;
	routine->EndForeignModify = kv_end_foreign_modify;
	routine->BeginForeignInsert = kv_begin_foreign_insert;
	routine->EndForeignInsert = kv_end_foreign_modify;
	routine->ExecForeignTruncate = kv_exec_foreign_truncate;
	routine->IsForeignRelUpdatable = kv_is_foreign_rel_updatable;
}
