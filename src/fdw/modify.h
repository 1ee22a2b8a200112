/*
 * modify.h
 *		Shared by INSERT, UPDATE and DELETE (modify.c), INSERT in batches (batch.c) and upserts
 *		(upsert.c).
 */
#ifndef KV_MODIFY_H
#define KV_MODIFY_H

#include "engine/rows.h"
#include "fdw/fdw.h"

#include "nodes/lockoptions.h"

/* What does an INSERT do with an existing row where on_duplicate is 'replace'? */
typedef enum KvReplace
{
	KV_REPLACE_UNKNOWN,			/* not determined yet */
	KV_REPLACES,
	KV_REPLACE_DENIED,			/* the privilege is missing: 42501 */
	KV_REPLACE_HIDDEN			/* a policy or a view may hide it: 23505 */
} KvReplace;

typedef struct KvModifyState
{
	/* the table */
	Relation	rel;
	KvTable    *table;
	KvStore    *store;			/* NULL until the first row */

	/* the statement */
	ModifyTableState *mtstate;
	CmdType		operation;		/* of the whole statement */
	bool		copy;			/* COPY FROM: there is no plan */
	CommandId	copy_cid;
	OnConflictAction on_conflict;	/* of an INSERT */
	bool		locked;			/* the scan has locked the rows */
	EPQState   *epqstate;		/* the statement's; NULL for COPY */
	bool		may_set_again;	/* kv_upsert_may_set_again, evaluated for the plan */
	KvReplace	replace;
	Oid			denied;			/* KV_REPLACE_DENIED: the relation without the privilege */
	struct KvUpsert *upsert;	/* state of ON CONFLICT DO UPDATE or DO SELECT, from the first
								 * row on */

	struct KvInsertBatch *batch;	/* state of batch.c, from the first batch on */

	/* the columns of the plan's output that identify the row */
	AttrNumber *key_attnums;	/* NULL for INSERT */
	AttrNumber	row_attnum;		/* 0 if there is none */

	/* workspace */
	StringInfoData key;
	StringInfoData old_key;
	StringInfoData value;
	MemoryContext context;		/* of this struct: "kvfdw modify" */
	MemoryContext row_context;	/* reset for each row */
} KvModifyState;

/* ---- modify.c ---- */

/* Begin with a row, or rows: returns the state, in the row's memory context. */
extern KvModifyState *kv_modify_begin_row(ResultRelInfo *rinfo, MemoryContext *old);

/* ExecForeignInsert, which also inserts the rows of a batch that need attention. */
extern TupleTableSlot *kv_exec_foreign_insert(EState *estate, ResultRelInfo *rinfo,
											  TupleTableSlot *slot, TupleTableSlot *planSlot);

/* ---- row.c ---- */

/* The command id that marks what this statement writes, as heap takes it. */
extern CommandId kv_modify_cid(KvModifyState *state, EState *estate);

/* The snapshot of the statement, also of COPY, whose executor state has none. */
extern Snapshot kv_modify_snapshot(EState *estate);

/* The key that a buffer contains. */
extern KvKey kv_modify_key(StringInfo buf);

/*
 * Raise the error for an existing row with the key of the row in slot: 23505, or 40001 if a
 * serialization failure is the cause.  The hint says why on_duplicate 'replace' did not apply,
 * if so.
 */
KV_NORETURN extern void kv_modify_raise_duplicate(KvModifyState *state, KvKey key,
												  TupleTableSlot *slot);

/*
 * Make the checks that heap makes of a new row before it stores it.  0A000 if the server asks
 * for a kind of check option that is unknown here, because the check would be skipped.
 */
extern void kv_modify_check_row(KvModifyState *state, EState *estate, ResultRelInfo *rinfo,
								TupleTableSlot *slot, WCOKind kind);

/*
 * Make the checks that heap makes of the existing row in slot before ON CONFLICT exposes it to
 * any expression of the statement: policies, then the WHERE of views.
 */
extern void kv_modify_check_existing(EState *estate, ResultRelInfo *rinfo, TupleTableSlot *slot);

/*
 * SERIALIZABLE: did a concurrent transaction read the row that was just changed?  Called after
 * the write: a reader locks first and reads then, so it either saw the write or is seen here.
 */
extern void kv_modify_check_conflict_in(KvModifyState *state, KvKey key);

/*
 * Write the new row in slot over the row with the key from, which is not in state->key;
 * state->key is the new key afterwards.  snapshot, *newer and the result are as in kv_update.
 */
extern KvRowResult kv_modify_update(KvModifyState *state, EState *estate, KvKey from,
									Snapshot snapshot, TupleTableSlot *slot, KvRow *newer);

/* ---- conflict.c ---- */

/*
 * May this INSERT or COPY, of a table with on_duplicate 'replace', overwrite rows?  Determined
 * once in a statement, and stored in state->replace.
 */
extern bool kv_may_replace(KvModifyState *state, EState *estate, ResultRelInfo *rinfo);

/* Raise 42501: there is an existing row, and the state is KV_REPLACE_DENIED. */
KV_NORETURN extern void kv_raise_denied(const KvModifyState *state);

/* ---- upsert.c ---- */

/*
 * Does the result not depend on when SET is evaluated, nor on how often?  Called when planning.
 */
extern bool kv_upsert_may_set_again(ModifyTable *plan);

/*
 * Insert the row in slot, which has been checked; or update, lock or read the row that has its
 * key, as ON CONFLICT DO UPDATE or DO SELECT says.  Runs in the row's memory context; old is
 * the executor's.  Returns the row for RETURNING, or NULL if there is none.
 */
extern TupleTableSlot *kv_upsert(KvModifyState *state, EState *estate, ResultRelInfo *rinfo,
								 TupleTableSlot *slot, MemoryContext old);

/* Undo return_existing, before the next row of a statement that upserts and after its last. */
extern void kv_upsert_restore(KvModifyState *state, ResultRelInfo *rinfo);

#endif							/* KV_MODIFY_H */
