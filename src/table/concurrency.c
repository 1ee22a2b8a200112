/*
 * concurrency.c
 *		Conflicts between sessions at one row: row locks, conflicts of SERIALIZABLE, and the
 *		errors for rows that could not be locked or changed.
 */
#include "postgres.h"

#include "access/subtrans.h"
#include "access/transam.h"
#include "common/hashfn.h"
#include "storage/predicate.h"
#include "utils/snapmgr.h"

#include "table/table.h"

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
