/*
 * modify.c
 *		INSERT, UPDATE, DELETE, COPY FROM, partition routing, TRUNCATE.
 *
 * A row is named by its key: the planner carries the key columns of each row to
 * be updated or deleted as resjunk columns.  The row is locked when it is
 * changed.  If it has been changed by others since the snapshot, READ COMMITTED
 * tests the newest version with EvalPlanQual and goes on with that, as core
 * does for heap.  If there are row triggers, the scan has done that.
 *
 * Core leaves to an FDW what it does itself for a heap table: constraints, the
 * partition constraint, row security of a partitioned parent, and the errors
 * of a unique index.  Here they are as heap has them, in heap's order.  The
 * one thing that heap does and no FDW can is to move an updated row to another
 * partition: that is the partition constraint's error.
 *
 * PlanForeignModify is not needed, since nothing depends on the statement that
 * the executor does not tell, nor GetForeignModifyBatchSize: an insert waits
 * for no round trip that a batch would save.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "commands/defrem.h"
#include "executor/executor.h"
#include "executor/nodeModifyTable.h"
#include "nodes/makefuncs.h"
#include "optimizer/appendinfo.h"
#include "storage/predicate.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "compat.h"
#include "plan.h"

/* The resjunk column with the old row of a DELETE, for RETURNING. */
#define KV_ROW_NAME		"__kv_row"

typedef struct KvModifyState
{
	/* the table */
	Relation	rel;
	KvTable    *table;
	KvStore    *store;			/* NULL until the first row */

	/* the statement */
	CmdType		operation;		/* of the whole statement */
	bool		copy;			/* COPY FROM: there is no plan */
	CommandId	copy_cid;
	bool		do_nothing;		/* ON CONFLICT DO NOTHING */
	bool		locked;			/* rows come locked from the scan */
	EPQState   *epqstate;		/* the statement's; NULL for COPY */

	/* where the row's identity is in the plan's output */
	AttrNumber *key_attnums;	/* NULL for INSERT */
	AttrNumber	row_attnum;		/* 0 if there is none */

	/* workspace */
	StringInfoData key;
	StringInfoData old_key;
	StringInfoData value;
	MemoryContext context;		/* of this struct: "kvfdw modify" */
	MemoryContext row_context;	/* reset for each row */
} KvModifyState;

/*
 * The name of a key column's resjunk entry.  Partitions that share one entry
 * must mean the same Var by it, so it says all that tells Vars apart.
 */
static char *
key_column_name(const KvTable *table, int key)
{
	Form_pg_attribute att = TupleDescAttr(table->tupdesc,
										  table->keys[key].attnum - 1);

	return psprintf("__kv_key_%d_%u_%d_%u", att->attnum, att->atttypid,
					att->atttypmod, att->attcollation);
}

static void
kv_add_foreign_update_targets(PlannerInfo *root, Index rtindex,
							  RangeTblEntry *target_rte,
							  Relation target_relation)
{
	KvTable    *table = kv_table_get(target_relation);

	for (int i = 0; i < table->nkeys; i++)
	{
		Form_pg_attribute att = TupleDescAttr(table->tupdesc,
											  table->keys[i].attnum - 1);
		Var		   *var = makeVar(rtindex, att->attnum, att->atttypid,
								  att->atttypmod, att->attcollation, 0);

		add_row_identity_var(root, var, rtindex, key_column_name(table, i));
	}

	/*
	 * Core adds the whole row for UPDATE and for row triggers.  A DELETE
	 * needs it for RETURNING too.  The name is ours: core takes "wholerow"
	 * to be there for all partitions or none.
	 */
	if (root->parse->commandType == CMD_DELETE &&
		root->parse->returningList != NIL)
		add_row_identity_var(root,
							 makeVar(rtindex, InvalidAttrNumber, RECORDOID, -1,
									 InvalidOid, 0),
							 rtindex, KV_ROW_NAME);
}

static KvModifyState *
create_state(ModifyTableState *mtstate, ResultRelInfo *rinfo)
{
	MemoryContext context;
	MemoryContext old;
	KvModifyState *state;
	ModifyTable *plan = (ModifyTable *) mtstate->ps.plan;

	kv_engine_require();

	context = AllocSetContextCreate(mtstate->ps.state->es_query_cxt,
									"kvfdw modify", ALLOCSET_SMALL_SIZES);
	old = MemoryContextSwitchTo(context);
	state = palloc0(sizeof(KvModifyState));
	state->context = context;
	state->row_context = AllocSetContextCreate(context, "kvfdw modify row",
											   ALLOCSET_DEFAULT_SIZES);
	state->rel = rinfo->ri_RelationDesc;
	state->table = kv_table_get(state->rel);
	state->operation = mtstate->operation;
	if (plan == NULL)
	{
		state->copy = true;
		state->copy_cid = GetCurrentCommandId(true);
	}
	else
	{
		state->do_nothing = plan->onConflictAction == ONCONFLICT_NOTHING;
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

	if (eflags & EXEC_FLAG_EXPLAIN_ONLY)
		return;

	state = create_state(mtstate, rinfo);
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
	if (rinfo->ri_FdwState == NULL)
		rinfo->ri_FdwState = create_state(mtstate, rinfo);
}

static void
end_modify(ResultRelInfo *rinfo)
{
	KvModifyState *state = rinfo->ri_FdwState;

	if (state == NULL)
		return;					/* EXPLAIN, or ended as the other kind */
	rinfo->ri_FdwState = NULL;
	MemoryContextDelete(state->context);
}

static void
kv_end_foreign_modify(EState *estate, ResultRelInfo *rinfo)
{
	end_modify(rinfo);
}

static void
kv_end_foreign_insert(EState *estate, ResultRelInfo *rinfo)
{
	end_modify(rinfo);
}

/* ---- what is common to all rows ---- */

/* Begin with a row: returns the state, in the row's memory context. */
static KvModifyState *
begin_row(ResultRelInfo *rinfo, MemoryContext *old)
{
	KvModifyState *state = rinfo->ri_FdwState;

	if (state->store == NULL)
		state->store = kv_table_store(state->rel, true);
	MemoryContextReset(state->row_context);
	*old = MemoryContextSwitchTo(state->row_context);
	return state;
}

/* The command id that marks what this statement writes, as heap takes it. */
static CommandId
command_id(KvModifyState *state, EState *estate)
{
	return state->copy ? state->copy_cid : estate->es_output_cid;
}

/* COPY's executor state has no snapshot. */
static Snapshot
statement_snapshot(EState *estate)
{
	return estate->es_snapshot != NULL ? estate->es_snapshot : GetActiveSnapshot();
}

static KvKey
key_of(StringInfo buf)
{
	KvKey		key = {(uint8 *) buf->data, buf->len};

	return key;
}

/*
 * SERIALIZABLE: did a concurrent transaction read what has just changed?  After
 * the write: a reader locks first and reads then, so it either saw the write or
 * is seen here.
 */
static void
check_conflict_in(KvModifyState *state, KvKey key)
{
	CheckForSerializableConflictIn(state->rel, NULL, kv_key_page(key));
}

/* The checks that heap makes of a new row before it stores it. */
static void
check_row(KvModifyState *state, EState *estate, ResultRelInfo *rinfo,
		  TupleTableSlot *slot, WCOKind kind)
{
	if (rinfo->ri_WithCheckOptions != NIL)
		ExecWithCheckOptions(kind, rinfo, slot, estate);
	if (RelationGetDescr(state->rel)->constr != NULL)
		ExecConstraints(rinfo, slot, estate);
}

static void
raise_duplicate(KvModifyState *state, KvKey key, TupleTableSlot *slot)
{
	char	   *constraint = makeObjectName(RelationGetRelationName(state->rel),
											NULL, "pkey");
	char	   *description = kv_key_describe(state->table, slot);

	/* if both looked before they inserted, that is what has failed */
	check_conflict_in(state, key);

	/* who may not read the key is not told it: then there is no value in it */
	ereport(ERROR,
			(errcode(ERRCODE_UNIQUE_VIOLATION),
			 errmsg("duplicate key value violates unique constraint \"%s\"",
					constraint),
			 strstr(description, ")=(") != NULL ?
			 errdetail("Key %s already exists.", description) : 0,
			 errtableconstraint(state->rel, constraint)));
}

/* ---- INSERT ---- */

static TupleTableSlot *
kv_exec_foreign_insert(EState *estate, ResultRelInfo *rinfo,
					   TupleTableSlot *slot, TupleTableSlot *planSlot)
{
	MemoryContext old;
	KvModifyState *state = begin_row(rinfo, &old);
	KvOnDuplicate on_duplicate = state->table->on_duplicate;
	const char *value;
	Size		len;
	KvForm		form;
	KvKey		key;
	KvInsertResult inserted;

	if (state->do_nothing)
		on_duplicate = KV_DUPLICATE_IGNORE;

	check_row(state, estate, rinfo, slot,
			  state->operation == CMD_UPDATE ? WCO_RLS_UPDATE_CHECK :
			  WCO_RLS_INSERT_CHECK);

	/* routing chose the partition, unless a trigger changed the row since */
	if (!state->copy && state->rel->rd_rel->relispartition &&
		(rinfo->ri_RootResultRelInfo == NULL ||
		 (rinfo->ri_TrigDesc && rinfo->ri_TrigDesc->trig_insert_before_row)))
		ExecPartitionCheck(rinfo, slot, estate, true);

	resetStringInfo(&state->key);
	kv_key_encode_slot(state->table, slot, &state->key);
	key = key_of(&state->key);
	form = kv_tuple_encode(state->table, slot, &state->value, &value, &len);

	inserted = kv_insert(state->store, state->rel, key, form, value, len,
						 statement_snapshot(estate), command_id(state, estate),
						 on_duplicate == KV_DUPLICATE_REPLACE);
	MemoryContextSwitchTo(old);
	if (inserted == KV_INSERTED)
	{
		check_conflict_in(state, key);
		return slot;
	}
	if (on_duplicate != KV_DUPLICATE_IGNORE)
		raise_duplicate(state, key, slot);

	/* what is ignored must be part of what this transaction has seen or done */
	if (inserted == KV_EXISTS_UNSEEN && IsolationUsesXactSnapshot())
		kv_row_not_had(KV_ROW_UPDATED, CMD_INSERT);
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
	return key_of(&state->old_key);
}

static void
store_newer(KvModifyState *state, EState *estate, const KvRow *newer, TupleTableSlot *slot)
{
	MemoryContext old = MemoryContextSwitchTo(GetPerTupleMemoryContext(estate));

	kv_tuple_store(state->table, newer, true, slot);
	MemoryContextSwitchTo(old);
}

/*
 * A row has a newer version, which is locked now.  Does the statement want it
 * still?  Returns the plan's output for it, or NULL.  In the query's memory
 * context, not the row's: EvalPlanQual keeps what it builds.
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

/* The new row that an UPDATE makes of a newer version, or NULL. */
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

/*
 * Write the new row in slot over the row at *from.  A changed key is an insert
 * and a delete, in this order: heap's unique index looks for the new key while
 * the old row is still in it, so two rows cannot swap their keys in one
 * statement.
 */
static KvRowResult
update_row(KvModifyState *state, EState *estate, KvKey from, Snapshot snapshot,
		   TupleTableSlot *slot, KvRow *newer)
{
	CommandId	cid = command_id(state, estate);
	const char *value;
	Size		len;
	KvForm		form;
	KvKey		key;
	KvRowResult result;

	resetStringInfo(&state->key);
	kv_key_encode_slot(state->table, slot, &state->key);
	key = key_of(&state->key);
	form = kv_tuple_encode(state->table, slot, &state->value, &value, &len);

	if (key.len == from.len && memcmp(key.data, from.data, key.len) == 0)
		result = kv_update(state->store, state->rel, from, snapshot, form, value, len,
						   cid, newer);
	else
	{
		result = kv_lock_row(state->store, state->rel, from, snapshot,
							 LockTupleExclusive, LockWaitBlock, cid, newer);
		if (result != KV_ROW_DONE)
			return result;
		if (kv_insert(state->store, state->rel, key, form, value, len,
					  statement_snapshot(estate), cid, false) != KV_INSERTED)
			raise_duplicate(state, key, slot);
		result = kv_delete(state->store, state->rel, from, NULL, key, cid, newer);
		check_conflict_in(state, key);
	}
	if (result == KV_ROW_DONE)
		check_conflict_in(state, from);
	return result;
}

static TupleTableSlot *
kv_exec_foreign_update(EState *estate, ResultRelInfo *rinfo,
					   TupleTableSlot *slot, TupleTableSlot *planSlot)
{
	MemoryContext old;
	KvModifyState *state = begin_row(rinfo, &old);
	Snapshot	snapshot = state->locked ? NULL : estate->es_snapshot;
	KvKey		from = old_key(state, planSlot);
	KvRowResult result;
	KvRow		newer;

	for (;;)
	{
		if (state->rel->rd_rel->relispartition)
			ExecPartitionCheck(rinfo, slot, estate, true);
		check_row(state, estate, rinfo, slot, WCO_RLS_UPDATE_CHECK);
		result = update_row(state, estate, from, snapshot, slot, &newer);
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
	kv_row_not_had(result, CMD_UPDATE);
	return NULL;
}

/* Give RETURNING the old row: the one that the plan has seen. */
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
	KvModifyState *state = begin_row(rinfo, &old);
	Snapshot	snapshot = state->locked ? NULL : estate->es_snapshot;
	CommandId	cid = command_id(state, estate);
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
		check_conflict_in(state, key);
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
	kv_row_not_had(result, CMD_DELETE);
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
	return (1 << CMD_INSERT) | (1 << CMD_UPDATE) | (1 << CMD_DELETE);
}

/* Set the callbacks of statements that modify. */
void
kv_modify_routine(FdwRoutine *routine)
{
	routine->AddForeignUpdateTargets = kv_add_foreign_update_targets;
	routine->BeginForeignModify = kv_begin_foreign_modify;
	routine->ExecForeignInsert = kv_exec_foreign_insert;
	routine->ExecForeignUpdate = kv_exec_foreign_update;
	routine->ExecForeignDelete = kv_exec_foreign_delete;
	routine->EndForeignModify = kv_end_foreign_modify;
	routine->BeginForeignInsert = kv_begin_foreign_insert;
	routine->EndForeignInsert = kv_end_foreign_insert;
	routine->ExecForeignTruncate = kv_exec_foreign_truncate;
	routine->IsForeignRelUpdatable = kv_is_foreign_rel_updatable;
}
