/*
 * row.c
 *		One row, whichever statement writes or locks it: checks, writing, and conflicts with
 *		other sessions.
 *
 * Conflicts are row locks, those of SERIALIZABLE, and the errors for rows that could not be
 * locked or changed.
 */
#include "postgres.h"

#include "access/subtrans.h"
#include "access/transam.h"
#include "access/xact.h"
#include "commands/defrem.h"
#include "common/hashfn.h"
#include "executor/executor.h"
#include "executor/nodeModifyTable.h"
#include "storage/predicate.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"

#include "compat.h"
#include "engine/engine.h"
#include "engine/rows.h"
#include "fdw/modify.h"

/* ---- checking and writing ---- */

CommandId
kv_modify_cid(KvModifyState *state, EState *estate)
{
	return state->copy ? state->copy_cid : estate->es_output_cid;
}

Snapshot
kv_modify_snapshot(EState *estate)
{
	return estate->es_snapshot != NULL ? estate->es_snapshot : GetActiveSnapshot();
}

KvKey
kv_modify_key(StringInfo buf)
{
	KvKey		key = {(uint8 *) buf->data, buf->len};

	return key;
}

void
kv_modify_check_conflict_in(KvModifyState *state, KvKey key)
{
	kv_check_conflict_in(state->rel, key);
}

/*
 * Refuse a kind of check option that a later minor release of the server has added: when to
 * make the check is not known here, and ExecWithCheckOptions makes only the checks that it is
 * asked for.
 */
static void
refuse_unknown_checks(KvModifyState *state, ResultRelInfo *rinfo)
{
	ListCell   *lc;

	foreach(lc, rinfo->ri_WithCheckOptions)
	{
		int			kind = lfirst_node(WithCheckOption, lc)->kind;

		switch (kind)
		{
			case WCO_VIEW_CHECK:
			case WCO_RLS_INSERT_CHECK:
			case WCO_RLS_UPDATE_CHECK:
			case WCO_RLS_CONFLICT_CHECK:
			case WCO_RLS_MERGE_UPDATE_CHECK:
			case WCO_RLS_MERGE_DELETE_CHECK:
				continue;
			case KV_WCO_VIEW_CONFLICT_CHECK:
				if (!kv_fault_skips("view_conflict_check"))
					continue;
				break;
		}
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot check rows of foreign table \"%s\"",
						RelationGetRelationName(state->rel)),
				 errdetail("This version of kvfdw does not know checks of kind %d, which this "
						   "version of PostgreSQL requires.",
						   kind),
				 errhint("Update kvfdw.")));
	}
}

void
kv_modify_check_existing(EState *estate, ResultRelInfo *rinfo, TupleTableSlot *slot)
{
	if (rinfo->ri_WithCheckOptions == NIL)
		return;
	ExecWithCheckOptions(WCO_RLS_CONFLICT_CHECK, rinfo, slot, estate);
	ExecWithCheckOptions((WCOKind) KV_WCO_VIEW_CONFLICT_CHECK, rinfo, slot, estate);
}

void
kv_modify_check_row(KvModifyState *state, EState *estate, ResultRelInfo *rinfo,
					TupleTableSlot *slot, WCOKind kind)
{
	if (rinfo->ri_WithCheckOptions != NIL)
	{
		refuse_unknown_checks(state, rinfo);
		ExecWithCheckOptions(kind, rinfo, slot, estate);
	}
	if (RelationGetDescr(state->rel)->constr != NULL)
		ExecConstraints(rinfo, slot, estate);
}

char *
kv_modify_constraint_name(Relation rel)
{
	Oid			index = kv_primary_key(rel);
	char	   *name = OidIsValid(index) ? get_rel_name(index) : NULL;

	return name != NULL ? name : makeObjectName(RelationGetRelationName(rel), NULL, "pkey");
}

void
kv_modify_raise_duplicate(KvModifyState *state, KvKey key, TupleTableSlot *slot)
{
	char	   *constraint = kv_modify_constraint_name(state->rel);
	char	   *description = kv_key_describe(state->table, slot);

	/*
	 * at SERIALIZABLE: both transactions had looked for the key, found none and inserted; that
	 * is 40001
	 */
	kv_modify_check_conflict_in(state, key);

	/* the description lacks the values if the user may not read the key: then no detail */
	ereport(ERROR,
			(errcode(ERRCODE_UNIQUE_VIOLATION),
			 errmsg("duplicate key value violates unique constraint \"%s\"",
					constraint),
			 strstr(description, ")=(") != NULL ?
			 errdetail("Key %s already exists.", description) : 0,
			 state->replace == KV_REPLACE_HIDDEN ?
			 errhint("Use INSERT ... ON CONFLICT DO UPDATE, which checks the row that exists "
					 "against views and policies.") : 0,
			 errtableconstraint(state->rel, constraint)));
}

/*
 * A changed key is a delete and an insert, in this order, as on heap.  So transactions that
 * want the old key wait for this one, also while this one waits for the new key.
 */
KvRowResult
kv_modify_update(KvModifyState *state, EState *estate, KvKey from, Snapshot snapshot,
				 TupleTableSlot *slot, KvRow *newer)
{
	CommandId	cid = kv_modify_cid(state, estate);
	const char *value;
	Size		len;
	KvForm		form;
	KvKey		key;
	KvRowResult result;

	resetStringInfo(&state->key);
	kv_key_encode_slot(state->table, slot, &state->key);
	key = kv_modify_key(&state->key);
	form = kv_tuple_encode(state->table, slot, &state->value, &value, &len);

	if (key.len == from.len && memcmp(key.data, from.data, key.len) == 0)
		result = kv_update(state->store, state->rel, from, snapshot, form, value, len,
						   cid, newer);
	else
	{
		result = kv_delete(state->store, state->rel, from, snapshot, key, cid, newer);
		if (result != KV_ROW_DONE)
			return result;
		if (kv_insert(state->store, state->rel, key, form, value, len,
					  kv_modify_snapshot(estate), cid, false) != KV_INSERTED)
			kv_modify_raise_duplicate(state, key, slot);
		kv_modify_check_conflict_in(state, key);
	}
	if (result == KV_ROW_DONE)
		kv_modify_check_conflict_in(state, from);
	return result;
}

/* ---- conflicts ---- */

bool
kv_scan_locks(Relation rel, CmdType operation)
{
	TriggerDesc *triggers = rel->trigdesc;

	if (triggers == NULL)
		return false;
	if (operation == CMD_UPDATE)
		return triggers->trig_update_before_row || triggers->trig_update_after_row;
	return operation == CMD_DELETE &&
		(triggers->trig_delete_before_row || triggers->trig_delete_after_row);
}

BlockNumber
kv_key_page(KvKey key)
{
	return hash_bytes(key.data, key.len) % MaxBlockNumber;
}

void
kv_check_conflict_in(Relation rel, KvKey key)
{
	if (IsolationIsSerializable())
		CheckForSerializableConflictIn(rel, NULL, kv_key_page(key));
}

/*
 * Readers and writers are known by their top-level xids; one before
 * TransactionXmin has ended before this transaction began.
 */
void
kv_check_conflict_out(Relation rel, KvScan *scan, Snapshot snapshot)
{
	const TransactionId *xids;
	int			n = kv_scan_take_conflicts(scan, &xids);

	for (int i = 0; i < n; i++)
	{
		TransactionId xid = SubTransGetTopmostTransaction(xids[i]);

		if (!TransactionIdPrecedes(xid, TransactionXmin))
			CheckForSerializableConflictOut(rel, xid, snapshot);
	}
}

void
kv_raise_row_conflict(KvRowResult result, CmdType operation)
{
	bool		modifies = operation == CMD_UPDATE || operation == CMD_DELETE;
	bool		says_delete = modifies || (operation == CMD_SELECT && KV_LOCK_SAYS_DELETE);

	/* the unique check of an INSERT calls either an update, and so did LockRows */
	if (result == KV_ROW_UPDATED || result == KV_ROW_DELETED)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("could not serialize access due to concurrent %s",
						says_delete && result == KV_ROW_DELETED ? "delete" : "update")));
	if (result == KV_ROW_CHANGED_LATER && modifies)
		ereport(ERROR,
				(errcode(ERRCODE_TRIGGERED_DATA_CHANGE_VIOLATION),
				 errmsg("tuple to be %s was already modified by an operation triggered by the "
						"current command",
						operation == CMD_UPDATE ? "updated" : "deleted"),
				 errhint("Consider using an AFTER trigger instead of a BEFORE trigger to propagate "
						 "changes to other rows.")));
}
