/*
 * upsert.c
 *		INSERT … ON CONFLICT DO UPDATE or DO SELECT: handles the existing row.
 *
 * Core's ExecInsert passes every proposed row to ExecForeignInsert.  So this file does all that
 * core's ExecOnConflictUpdate does for a heap table, in the same order.  It uses the slots and
 * expressions that ExecInitModifyTable has made of SET and WHERE.  The newest version of the
 * row is locked first, so no other transaction can change it.  Where the result does not depend
 * on when SET is evaluated, nor on how often, the lock is saved: the row is written if it is
 * unchanged, and else all is done again, with the lock.
 *
 * Policies and views' WHERE are checked before the statement's WHERE: a function in it must not
 * see a row that they hide.  Minor releases of the server from before November 2026 check
 * policies after it, and views not at all; that order is not copied.
 *
 * DO SELECT returns the existing row, without a lock unless it asks for one.  Without a lock it
 * waits only for unfinished writers of the key, and if it inserts nothing, it writes nothing.
 *
 * A statement that sets all columns, from the proposed row say, and does not use the existing
 * one needs only its key, so it reads no value.
 *
 * Core takes a row that ExecForeignInsert returns for an inserted one.  It counts it, checks a
 * view's WITH CHECK OPTION and evaluates RETURNING, as it should; and it fires AFTER INSERT row
 * triggers, as it should not, and gives RETURNING no old row.  So until the next row the target
 * has trigger flags without them, and a RETURNING with the old row; and for DO SELECT no check
 * options, which are for new rows.
 */
#include "postgres.h"

#include "commands/trigger.h"
#include "executor/executor.h"
#include "executor/instrument.h"
#include "executor/nodeModifyTable.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "compat.h"
#include "engine/rows.h"
#include "fdw/modify.h"

/* A RETURNING list of core's, evaluated with an old row. */
typedef struct KvReturning
{
	ProjectionInfo projection;	/* the one that core sees; first, for the cast */
	ProjectionInfo *given;
	TupleTableSlot *old;
} KvReturning;

typedef struct KvUpsert
{
	bool		select;			/* DO SELECT */
	/* LockTupleMode in which the existing row is locked, or KV_NO_ROW_LOCK */
	int			mode;
	bool		blind;			/* the existing row's value is not needed */
	bool		unlocked;		/* SET may be evaluated before the row is locked */
	TriggerDesc *triggers;		/* the target's own */
	TriggerDesc *quiet;			/* the flags for a row that was updated */
	List	   *checks;			/* its own check options */
	KvReturning *returning;		/* NULL if RETURNING uses no old row */
} KvUpsert;

static Datum
return_with_old(ExprState *expression, ExprContext *econtext, bool *isnull)
{
	KvReturning *returning = (KvReturning *)
		((char *) expression - offsetof(ProjectionInfo, pi_state));
	ExprState  *given = &returning->given->pi_state;

	given->flags = expression->flags;
	kv_returning_set_old(given, econtext, returning->old);
	return given->evalfunc(given, econtext, isnull);
}

/* Will the statement's SET write a column of the key? */
static bool
sets_key(KvModifyState *state, EState *estate, ResultRelInfo *rinfo)
{
	Bitmapset  *columns = ExecGetUpdatedCols(rinfo, estate);

	for (int i = 0; i < state->table->nkeys; i++)
	{
		if (bms_is_member(state->table->keys[i].attnum - FirstLowInvalidHeapAttributeNumber,
						  columns))
			return true;
	}
	return false;
}

/* Does an expression of SET use more of the existing row than its key? */
static bool
reads_value(Node *node, void *context)
{
	KvModifyState *state = context;

	if (node == NULL)
		return false;
	if (IsA(node, Var))
	{
		Var		   *var = (Var *) node;

		if (var->varno == INNER_VAR)
			return false;		/* excluded */

		/* a partition's columns may have other numbers */
		return state->mtstate->mt_partition_tuple_routing != NULL || var->varattno <= 0 ||
			state->table->keyindex[var->varattno - 1] < 0;
	}
	return expression_tree_walker(node, reads_value, context);
}

/* Can the statement do without the value of the old row? */
static bool
is_blind(KvModifyState *state, EState *estate, ResultRelInfo *rinfo, const KvUpsert *upsert)
{
	ModifyTable *plan = (ModifyTable *) state->mtstate->ps.plan;
	const TriggerDesc *triggers = upsert->triggers;
	TupleDesc	desc = RelationGetDescr(state->rel);
	Bitmapset  *columns = ExecGetUpdatedCols(rinfo, estate);

	if (state->table->any_lossy || upsert->returning != NULL ||
		rinfo->ri_WithCheckOptions != NIL || plan->onConflictWhere != NULL ||
		(triggers != NULL &&
		 (triggers->trig_update_before_row || triggers->trig_update_after_row)) ||
		reads_value((Node *) plan->onConflictSet, state))
		return false;
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		if (!att->attisdropped && state->table->keyindex[i] < 0 &&
			(att->attgenerated != '\0' ||
			 !bms_is_member(att->attnum - FirstLowInvalidHeapAttributeNumber, columns)))
			return false;
	}
	return true;
}

/* May SET be evaluated for a row that is not locked, and again if that was too early? */
static bool
is_unlocked(KvModifyState *state, ResultRelInfo *rinfo, const KvUpsert *upsert)
{
	ModifyTable *plan = (ModifyTable *) state->mtstate->ps.plan;
	const TriggerDesc *triggers = upsert->triggers;

	/* rows that WHERE rejects must be locked nevertheless */
	return upsert->mode == LockTupleNoKeyExclusive && plan->onConflictWhere == NULL &&
		rinfo->ri_WithCheckOptions == NIL &&
		state->mtstate->mt_oc_transition_capture == NULL &&
		(triggers == NULL ||
		 (!triggers->trig_update_before_row && !triggers->trig_update_after_row)) &&
		state->may_set_again;
}

bool
kv_upsert_may_set_again(ModifyTable *plan)
{
	return !contain_volatile_functions((Node *) plan->onConflictSet) &&
		!contain_subplans((Node *) plan->onConflictSet);
}

/* The mode in which DO SELECT locks a row. */
static int
select_mode(LockClauseStrength strength)
{
	switch (strength)
	{
		case LCS_NONE:
			break;
		case LCS_FORKEYSHARE:
			return LockTupleKeyShare;
		case LCS_FORSHARE:
			return LockTupleShare;
		case LCS_FORNOKEYUPDATE:
			return LockTupleNoKeyExclusive;
		case LCS_FORUPDATE:
			return LockTupleExclusive;
	}
	return KV_NO_ROW_LOCK;
}

/*
 * Called at the first row: when the statement begins, core has not yet made all parts that are
 * needed.
 */
static KvUpsert *
create_upsert(KvModifyState *state, EState *estate, ResultRelInfo *rinfo)
{
	MemoryContext old = MemoryContextSwitchTo(state->context);
	KvUpsert   *upsert = palloc0(sizeof(KvUpsert));
	ProjectionInfo *given = rinfo->ri_projectReturning;

	upsert->select = state->on_conflict == KV_ON_CONFLICT_SELECT;
	if (upsert->select)
		upsert->mode = select_mode(kv_conflict_lock(rinfo->ri_onConflict));
	else
		upsert->mode = sets_key(state, estate, rinfo) ? LockTupleExclusive :
			LockTupleNoKeyExclusive;
	upsert->checks = rinfo->ri_WithCheckOptions;
	upsert->triggers = upsert->quiet = rinfo->ri_TrigDesc;
	if (upsert->triggers != NULL && upsert->triggers->trig_insert_after_row)
	{
		upsert->quiet = palloc(sizeof(TriggerDesc));
		*upsert->quiet = *upsert->triggers;
		upsert->quiet->trig_insert_after_row = false;
	}
	if (given != NULL && kv_returning_has_old(&given->pi_state))
	{
		upsert->returning = palloc(sizeof(KvReturning));
		upsert->returning->projection = *given;
		upsert->returning->projection.pi_state.evalfunc = return_with_old;
		upsert->returning->given = given;
		upsert->returning->old = rinfo->ri_onConflict->oc_Existing;
	}
	upsert->blind = !upsert->select && is_blind(state, estate, rinfo, upsert);
	upsert->unlocked = !upsert->select && is_unlocked(state, rinfo, upsert);
	MemoryContextSwitchTo(old);
	return upsert;
}

void
kv_upsert_restore(KvModifyState *state, ResultRelInfo *rinfo)
{
	KvUpsert   *upsert = state->upsert;

	if (upsert == NULL)
		return;
	rinfo->ri_TrigDesc = upsert->triggers;
	rinfo->ri_WithCheckOptions = upsert->checks;
	if (upsert->returning != NULL)
		rinfo->ri_projectReturning = upsert->returning->given;
}

/* Return a row that was not inserted, though core takes it for an inserted one. */
static void
return_existing(ResultRelInfo *rinfo, KvUpsert *upsert)
{
	rinfo->ri_TrigDesc = upsert->quiet;
	if (upsert->select)
		rinfo->ri_WithCheckOptions = NIL;
	if (upsert->returning != NULL)
		rinfo->ri_projectReturning = &upsert->returning->projection;
}

/*
 * Raise an error if a row does not belong to its partition any more.  Core does not move a row
 * to another partition in an upsert, and an FDW cannot.
 */
static void
check_partition(KvModifyState *state, EState *estate, ResultRelInfo *rinfo, TupleTableSlot *slot)
{
	if (state->rel->rd_rel->relispartition && !ExecPartitionCheck(rinfo, slot, estate, false))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("invalid ON UPDATE specification"),
				 errdetail("The result tuple would appear in a different partition than the "
						   "original tuple.")));
}

/* Write the row over the version that was seen; KV_ROW_NEWER if that is too late. */
static KvRowResult
overwrite(KvModifyState *state, EState *estate, KvKey key, const KvVersion *seen,
		  TupleTableSlot *slot)
{
	const char *value;
	Size		len;
	KvForm		form = kv_tuple_encode(state->table, slot, &state->value, &value, &len);

	if (!kv_overwrite(state->store, key, seen, form, value, len, kv_modify_cid(state, estate)))
		return KV_ROW_NEWER;
	kv_modify_check_conflict_in(state, key);
	return KV_ROW_DONE;
}

/*
 * Write the row that SET has computed, with its row triggers.  seen: a version that is not
 * locked; the result is KV_ROW_NEWER if the row has changed since.
 */
static KvRowResult
update_existing(KvModifyState *state, EState *estate, ResultRelInfo *rinfo, KvKey key,
				const KvVersion *seen, TupleTableSlot *slot)
{
	TriggerDesc *triggers = state->upsert->triggers;
	TransitionCaptureState *capture = state->mtstate->mt_oc_transition_capture;
	TupleTableSlot *existing = rinfo->ri_onConflict->oc_Existing;
	HeapTuple	old_tuple = NULL;
	MemoryContext old;
	KvRowResult result;
	KvRow		newer;

	if (triggers != NULL &&
		(triggers->trig_update_before_row || triggers->trig_update_after_row))
	{
		old = MemoryContextSwitchTo(state->row_context);
		old_tuple = ExecCopySlotHeapTuple(existing);
		MemoryContextSwitchTo(old);
		ExecMaterializeSlot(slot);
	}
	if (triggers != NULL && triggers->trig_update_before_row &&
		!kv_before_row_update(estate, state->epqstate, rinfo, old_tuple, slot))
		return KV_ROW_SKIPPED;

	slot->tts_tableOid = RelationGetRelid(state->rel);
	if (RelationGetDescr(state->rel)->constr != NULL &&
		RelationGetDescr(state->rel)->constr->has_generated_stored)
		ExecComputeStoredGenerated(rinfo, estate, slot, CMD_UPDATE);
	check_partition(state, estate, rinfo, slot);
	kv_modify_check_row(state, estate, rinfo, slot, WCO_RLS_UPDATE_CHECK);

	old = MemoryContextSwitchTo(state->row_context);
	if (seen != NULL)
		result = overwrite(state, estate, key, seen, slot);
	else
		result = kv_modify_update(state, estate, key, NULL, slot, &newer);
	MemoryContextSwitchTo(old);

	if (result == KV_ROW_DONE &&
		((triggers != NULL && triggers->trig_update_after_row) || capture != NULL))
		ExecARUpdateTriggers(estate, rinfo, NULL, NULL, NULL, old_tuple, slot, NIL, capture,
							 false);
	return result;
}

/*
 * Process the existing row, which is in its slot, and locked unless seen is given or DO SELECT
 * asks for no lock.  *slot: the row to be returned, or NULL.  False: the row has changed since
 * it was seen.
 */
static bool
on_conflict(KvModifyState *state, EState *estate, ResultRelInfo *rinfo, KvKey key,
			const KvVersion *seen, TupleTableSlot *excluded, TupleTableSlot **slot)
{
	KvOnConflictState *conflict = rinfo->ri_onConflict;
	PlanState  *node = &state->mtstate->ps;
	ExprContext *econtext = node->ps_ExprContext;
	KvUpsert   *upsert = state->upsert;
	KvRowResult result;

	*slot = NULL;
	kv_modify_check_existing(estate, rinfo, conflict->oc_Existing);
	econtext->ecxt_scantuple = conflict->oc_Existing;
	econtext->ecxt_innertuple = excluded;
	econtext->ecxt_outertuple = NULL;
	if (!ExecQual(conflict->oc_WhereClause, econtext))
	{
		InstrCountTuples2(node, 1);
		InstrCountFiltered1(node, 1);
		return true;
	}
	if (upsert->select)
	{
		InstrCountTuples2(node, 1);
		return_existing(rinfo, upsert);
		*slot = conflict->oc_Existing;
		return true;
	}
	ExecProject(conflict->oc_ProjInfo);
	result = update_existing(state, estate, rinfo, key, seen, conflict->oc_ProjSlot);
	if (result == KV_ROW_NEWER)
		return false;
	InstrCountTuples2(node, 1);
	if (result != KV_ROW_DONE)
	{
		/* of a locked row: a function that the command itself has called was the cause */
		kv_raise_row_conflict(result, CMD_UPDATE);
		return true;
	}

	return_existing(rinfo, upsert);
	*slot = conflict->oc_ProjSlot;
	return true;
}

/*
 * Insert the row, or lock or read the one that has its key; or, if seen is given, only note its
 * version there.  met: that has been done, and the noted version has changed.
 */
static KvInsertResult
insert_or_lock(KvModifyState *state, EState *estate, TupleTableSlot *slot, KvKey key,
			   KvVersion *seen, bool met, KvRow *existing)
{
	bool		blind = state->upsert->blind;
	const char *value;
	Size		len;
	KvForm		form = kv_tuple_encode(state->table, slot, &state->value, &value, &len);

	if (blind)
		*existing = (KvRow) {.key = key.data, .keylen = key.len};
	return kv_insert_or_lock(state->store, state->rel, key, form, value, len,
							 estate->es_snapshot, kv_modify_cid(state, estate),
							 state->upsert->mode, seen, met, blind ? NULL : existing);
}

TupleTableSlot *
kv_upsert(KvModifyState *state, EState *estate, ResultRelInfo *rinfo, TupleTableSlot *slot,
		  MemoryContext old)
{
	KvKey		key;
	KvRow		existing;
	KvVersion	version;
	KvVersion  *seen;
	bool		met = false;
	TupleTableSlot *result = NULL;

	if (state->upsert == NULL)
		state->upsert = create_upsert(state, estate, rinfo);
	seen = state->upsert->unlocked ? &version : NULL;

	/* not in state->key, which may receive the new row's key */
	resetStringInfo(&state->old_key);
	kv_key_encode_slot(state->table, slot, &state->old_key);
	key = kv_modify_key(&state->old_key);

	do
	{
		MemoryContextSwitchTo(state->row_context);
		switch (insert_or_lock(state, estate, slot, key, seen, met, &existing))
		{
			case KV_INSERTED:
				MemoryContextSwitchTo(old);
				kv_modify_check_conflict_in(state, key);
				return slot;
			case KV_EXISTS:
				kv_tuple_store(state->table, &existing, !state->upsert->blind,
							   rinfo->ri_onConflict->oc_Existing);
				MemoryContextSwitchTo(old);
				break;
			case KV_EXISTS_UNSEEN:
				kv_raise_row_conflict(KV_ROW_UPDATED, CMD_INSERT);
				break;
			case KV_EXISTS_DELETED:
				kv_raise_row_conflict(KV_ROW_DELETED, CMD_UPDATE);
				break;
			case KV_EXISTS_ANEW:
				ereport(ERROR,
						(errcode(ERRCODE_CARDINALITY_VIOLATION),
						 errmsg("%s command cannot affect row a second time",
								state->upsert->select ? "ON CONFLICT DO SELECT" :
								"ON CONFLICT DO UPDATE"),
						 errhint("Ensure that no rows proposed for insertion within the same "
								 "command have duplicate constrained values.")));
		}
		if (on_conflict(state, estate, rinfo, key, seen, slot, &result))
			break;
		seen = NULL;
		met = true;
	} while (true);
	return result;
}
