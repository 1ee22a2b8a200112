/*
 * modify.h
 *		What INSERT, UPDATE and DELETE (modify.c) and upserts (upsert.c) share.
 */
#ifndef KV_MODIFY_H
#define KV_MODIFY_H

#include "fdw/fdw.h"

#include "nodes/lockoptions.h"

/* What becomes of a row that exists where on_duplicate is 'replace'. */
typedef enum KvReplace
{
	KV_REPLACE_UNKNOWN,			/* not asked yet */
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
	bool		locked;			/* rows come locked from the scan */
	EPQState   *epqstate;		/* the statement's; NULL for COPY */
	bool		may_set_again;	/* as kv_upsert_may_set_again says of the plan */
	KvReplace	replace;
	Oid			denied;			/* KV_REPLACE_DENIED: the relation without the privilege */
	struct KvUpsert *upsert;	/* ON CONFLICT DO UPDATE or DO SELECT, from its first row on */

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

/* ---- row.c ---- */

/* The command id that marks what this statement writes, as heap takes it. */
extern CommandId kv_modify_cid(KvModifyState *state, EState *estate);

/* The snapshot of the statement, also of COPY, whose executor state has none. */
extern Snapshot kv_modify_snapshot(EState *estate);

/* The key that a buffer holds. */
extern KvKey kv_modify_key(StringInfo buf);

/*
 * There is a row with the key of the row in slot: 23505, or 40001 if that is why.  The hint
 * says why on_duplicate 'replace' did not count, if so.
 */
KV_NORETURN extern void kv_modify_raise_duplicate(KvModifyState *state, KvKey key,
												  TupleTableSlot *slot);

/*
 * The checks that heap makes of a new row before it stores it.  0A000 if the server asks
 * for a check option of a kind that is unknown here, for then nothing would check it.
 */
extern void kv_modify_check_row(KvModifyState *state, EState *estate, ResultRelInfo *rinfo,
								TupleTableSlot *slot, WCOKind kind);

/*
 * The checks that heap makes of the existing row in slot before ON CONFLICT lets anything
 * of the statement see it: policies, then the WHERE of views.
 */
extern void kv_modify_check_existing(EState *estate, ResultRelInfo *rinfo, TupleTableSlot *slot);

/*
 * SERIALIZABLE: did a concurrent transaction read what has just changed?  After
 * the write: a reader locks first and reads then, so it either saw the write or
 * is seen here.
 */
extern void kv_modify_check_conflict_in(KvModifyState *state, KvKey key);

/*
 * Write the new row in slot over the row at from, which is not in state->key; its
 * new key is there afterwards.  snapshot, *newer and the result as in kv_update.
 */
extern KvRowResult kv_modify_update(KvModifyState *state, EState *estate, KvKey from,
									Snapshot snapshot, TupleTableSlot *slot, KvRow *newer);

/* ---- replace.c ---- */

/*
 * May this INSERT or COPY, of a table with on_duplicate 'replace', overwrite rows?  Found out
 * once in a statement, and noted in state->replace.
 */
extern bool kv_may_replace(KvModifyState *state, EState *estate, ResultRelInfo *rinfo);

/* It may not, for KV_REPLACE_DENIED, and there is a row: 42501. */
KV_NORETURN extern void kv_raise_denied(const KvModifyState *state);

/* ---- upsert.c ---- */

/* Does it make no difference when SET is evaluated, nor how often?  Told when planning. */
extern bool kv_upsert_may_set_again(ModifyTable *plan);

/*
 * Insert the row in slot, which has been checked, or update or lock or just read the one
 * that has its key, as ON CONFLICT DO UPDATE or DO SELECT says. In the row's memory context; old is
 * the
 * executor's.  Returns the row for RETURNING, or NULL if there is none.
 */
extern TupleTableSlot *kv_upsert(KvModifyState *state, EState *estate, ResultRelInfo *rinfo,
								 TupleTableSlot *slot, MemoryContext old);

/* Before the next row of a statement that upserts, and after its last. */
extern void kv_upsert_restore(KvModifyState *state, ResultRelInfo *rinfo);

#endif							/* KV_MODIFY_H */
