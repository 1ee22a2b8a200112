/*
 * batch.c
 *		INSERT of many rows, and COPY, in batches.
 *
 * PostgreSQL collects rows, and passes them here together.  As many of them as need no attention
 * are inserted at once (kv_insert_many).  The next one is inserted as a single row: its key exists,
 * or is being written by another transaction, or a write buffer is full, or the row violates a
 * constraint.  Then the rest follows.  So errors, waits, ON CONFLICT DO NOTHING and on_duplicate
 * are those of single rows, in their order.
 * An exception is an error that an expression raises, of the statement or of a CHECK constraint:
 * it can come before the violation of an earlier row.
 *
 * Rows are not collected where that could be noticed: with RETURNING, row triggers, ON CONFLICT DO
 * UPDATE, check options, and expressions that may read the table (rowwise.c).  Nor is a single row:
 * to collect it would take longer than to insert it.
 *
 * Up to version 15 PostgreSQL collects no rows of COPY.
 */
#include "postgres.h"

#include "access/tupdesc.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "utils/memutils.h"

#include "compat.h"
#include "fdw/modify.h"

#define KV_BATCH_BYTES	((Size) 256 * 1024) /* of values, if there are several */
#define KV_BATCH_LEAST	2
#define KV_KEPT_BUFFER	((Size) 64 * 1024)
#define KV_WORTHWHILE	8		/* with fewer rows at once, single rows are faster */
#define KV_MOST_ALONE	1024

typedef struct KvInsertBatch
{
	MemoryContext context;		/* of encoded rows; reset for each batch */
	TupleTableSlot *kept[KV_INSERTED_TOGETHER];	/* rows that were inserted */
	StringInfoData keys;
	StringInfoData values[KV_INSERTED_TOGETHER];
	KvInsert	rows[KV_INSERTED_TOGETHER];
	Bitmapset  *not_null;		/* attribute numbers */
	List	   *checks;			/* ExprStates of CHECK constraints */
	int			alone;			/* rows to be inserted singly: batches have not helped */
	int			next_alone;
} KvInsertBatch;

/* ---- whether to collect ---- */

/* May a constraint of the table notice that rows are checked before others are inserted? */
static bool
constraints_allow(Relation rel)
{
	TupleConstr *constr = RelationGetDescr(rel)->constr;

	if (constr == NULL)
		return true;
	for (int i = 0; i < constr->num_check; i++)
	{
		if (kv_rowwise_expression(stringToNode(constr->check[i].ccbin)))
			return false;
	}
	for (int i = 0; i < RelationGetDescr(rel)->natts; i++)
	{
		if (KV_ATTRIBUTE_IS_VIRTUAL(TupleDescAttr(RelationGetDescr(rel), i)))
			return false;
	}
	return true;
}

/* Is it known that the statement has only a few rows? */
static bool
has_few_rows(const Plan *source)
{
	if (IsA(source, Result))
		return outerPlan(source) == NULL;
	return IsA(source, ValuesScan) &&
		list_length(((const ValuesScan *) source)->values_lists) < KV_WORTHWHILE;
}

static bool
may_collect(const KvModifyState *state, const ResultRelInfo *rinfo)
{
	const ModifyTable *plan = (const ModifyTable *) state->mtstate->ps.plan;
	const TriggerDesc *triggers = rinfo->ri_TrigDesc;

	if (state->operation != CMD_INSERT || rinfo->ri_projectReturning != NULL ||
		rinfo->ri_WithCheckOptions != NIL ||
		(triggers != NULL &&
		 (triggers->trig_insert_before_row || triggers->trig_insert_after_row)))
		return false;
	if (plan != NULL &&
		((state->on_conflict != ONCONFLICT_NONE && state->on_conflict != ONCONFLICT_NOTHING) ||
		 has_few_rows(outerPlan(plan)) || kv_rowwise_plan(plan)))
		return false;
	return constraints_allow(state->rel);
}

static int
batch_of(Size width)
{
	return Max(KV_BATCH_LEAST, Min(KV_INSERTED_TOGETHER, KV_BATCH_BYTES / Max(width, 1)));
}

static int
kv_get_foreign_modify_batch_size(ResultRelInfo *rinfo)
{
	const KvModifyState *state = rinfo->ri_FdwState;
	const Plan *plan;

	if (state == NULL || !may_collect(state, rinfo))
		return 1;
	plan = state->mtstate->ps.plan;
	return plan == NULL ? KV_INSERTED_TOGETHER : batch_of(outerPlan(plan)->plan_width);
}

/* ---- one batch ---- */

static KvInsertBatch *
create_batch(KvModifyState *state, EState *estate)
{
	MemoryContext old = MemoryContextSwitchTo(state->context);
	KvInsertBatch *batch = palloc0(sizeof(KvInsertBatch));
	TupleDesc	desc = RelationGetDescr(state->rel);

	batch->context = AllocSetContextCreate(state->context, "kvfdw insert batch",
										   ALLOCSET_DEFAULT_SIZES);
	initStringInfo(&batch->keys);
	for (int i = 0; i < KV_INSERTED_TOGETHER; i++)
		initStringInfo(&batch->values[i]);
	for (int i = 0; i < desc->natts; i++)
	{
		if (TupleDescAttr(desc, i)->attnotnull && !TupleDescAttr(desc, i)->attisdropped)
			batch->not_null = bms_add_member(batch->not_null, i + 1);
	}
	for (int i = 0; i < state->table->nkeys; i++)
		batch->not_null = bms_add_member(batch->not_null, state->table->keys[i].attnum);
	MemoryContextSwitchTo(estate->es_query_cxt);
	for (int i = 0; desc->constr != NULL && i < desc->constr->num_check; i++)
	{
		Expr	   *expression = stringToNode(desc->constr->check[i].ccbin);

		batch->checks = lappend(batch->checks, ExecPrepareExpr(expression, estate));
	}
	MemoryContextSwitchTo(old);
	return batch;
}

/* Does the row satisfy all constraints?  If not, the error is raised when its turn comes. */
static bool
passes(KvModifyState *state, EState *estate, ResultRelInfo *rinfo, TupleTableSlot *slot)
{
	const KvInsertBatch *batch = state->batch;
	ExprContext *econtext = GetPerTupleExprContext(estate);
	ListCell   *lc;

	for (int attnum = -1; (attnum = bms_next_member(batch->not_null, attnum)) >= 0;)
	{
		if (slot_attisnull(slot, attnum))
			return false;
	}
	slot->tts_tableOid = RelationGetRelid(state->rel);
	econtext->ecxt_scantuple = slot;
	foreach(lc, batch->checks)
	{
		if (!ExecCheck(lfirst(lc), econtext))
			return false;
	}
	return !state->rel->rd_rel->relispartition || rinfo->ri_RootResultRelInfo != NULL ||
		state->copy || ExecPartitionCheck(rinfo, slot, estate, false);
}

/* Encode the first rows that satisfy the constraints; returns how many. */
static int
encode(KvModifyState *state, EState *estate, ResultRelInfo *rinfo, TupleTableSlot **slots, int n)
{
	KvInsertBatch *batch = state->batch;
	int			done;
	int			at = 0;

	resetStringInfo(&batch->keys);
	for (done = 0; done < n && passes(state, estate, rinfo, slots[done]); done++)
	{
		KvInsert   *row = &batch->rows[done];
		int			begin = batch->keys.len;

		kv_key_encode_slot(state->table, slots[done], &batch->keys);
		row->key.len = batch->keys.len - begin;
		row->form = kv_tuple_encode(state->table, slots[done], &batch->values[done],
									&row->value, &row->len);
	}
	for (int i = 0; i < done; i++)
	{
		batch->rows[i].key.data = (const uint8 *) batch->keys.data + at;
		at += batch->rows[i].key.len;
	}
	return done;
}

/* Insert the first rows that need no attention; returns how many. */
static int
insert_first(KvModifyState *state, EState *estate, ResultRelInfo *rinfo, TupleTableSlot **slots,
			 int n)
{
	KvInsertBatch *batch = state->batch;
	int			done;
	int			encoded;

	if (n < KV_BATCH_LEAST)
		return 0;
	if (batch->alone > 0)
	{
		batch->alone--;
		return 0;
	}
	encoded = encode(state, estate, rinfo, slots, n);
	done = encoded == 0 ? 0 :
		kv_insert_many(state->store, batch->rows, encoded, kv_modify_cid(state, estate));
	for (int i = 0; i < done; i++)
		kv_modify_check_conflict_in(state, batch->rows[i].key);
	if (done < Min(n, KV_WORTHWHILE))
		batch->next_alone = Min(2 * batch->next_alone + 1, KV_MOST_ALONE);
	else
		batch->next_alone = 0;
	batch->alone = batch->next_alone;
	return done;
}

/* Collect fewer rows if they are large, never more: PostgreSQL has memory for the first number. */
static void
limit_memory(KvInsertBatch *batch, ResultRelInfo *rinfo, int n)
{
	Size		bytes = 0;

	for (int i = 0; i < n; i++)
	{
		bytes += batch->values[i].len;
		if (batch->values[i].maxlen > KV_KEPT_BUFFER)
		{
			pfree(batch->values[i].data);
			initStringInfo(&batch->values[i]);
		}
	}
	if (bytes > KV_BATCH_BYTES)
		rinfo->ri_BatchSize = Min(rinfo->ri_BatchSize, batch_of(bytes / n));
}

static TupleTableSlot **
kv_exec_foreign_batch_insert(EState *estate, ResultRelInfo *rinfo, TupleTableSlot **slots,
							 TupleTableSlot **plan_slots, int *nslots)
{
	MemoryContext old;
	KvModifyState *state = kv_modify_begin_row(rinfo, &old);
	KvInsertBatch *batch;
	int			n = *nslots;
	int			kept = 0;

	Assert(n <= KV_INSERTED_TOGETHER);
	if (state->batch == NULL)
		state->batch = create_batch(state, estate);
	batch = state->batch;
	for (int i = 0; i < n; i++)
	{
		int			done;
		TupleTableSlot *slot;

		CHECK_FOR_INTERRUPTS();
		MemoryContextReset(batch->context);
		MemoryContextSwitchTo(batch->context);
		done = insert_first(state, estate, rinfo, slots + i, n - i);
		MemoryContextSwitchTo(old);
		for (int j = 0; j < done; j++)
			batch->kept[kept++] = slots[i++];
		if (i == n)
			break;
		slot = kv_exec_foreign_insert(estate, rinfo, slots[i],
									  plan_slots != NULL ? plan_slots[i] : NULL);
		if (slot != NULL)
			batch->kept[kept++] = slot;
	}
	MemoryContextSwitchTo(state->context);
	limit_memory(batch, rinfo, n);
	MemoryContextSwitchTo(old);
	*nslots = kept;
	return batch->kept;
}

void
kv_batch_routine(FdwRoutine *routine)
{
	routine->GetForeignModifyBatchSize = kv_get_foreign_modify_batch_size;
	routine->ExecForeignBatchInsert = kv_exec_foreign_batch_insert;
}
