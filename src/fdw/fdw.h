/*
 * fdw.h
 *		Shared by the planner, the executor and EXPLAIN of a kvfdw scan.
 *
 * At plan time keycond.c turns clauses into key conditions, and plan.c builds paths and plans
 * from them.  At execution time keyrange.c turns the conditions into keys and key ranges, which
 * scan.c reads.  explain.c shows them.
 */
#ifndef KV_FDW_H
#define KV_FDW_H

#include "compat.h"
#include "engine/rows.h"
#include "table/table.h"

#include "nodes/execnodes.h"
#include "nodes/pathnodes.h"
#include "utils/typcache.h"

/* How a condition binds its key column. */
typedef enum KvConditionKind
{
	KV_COND_EQUAL,
	KV_COND_ANY,				/* = ANY (array) */
	KV_COND_LESS,
	KV_COND_LESS_EQUAL,
	KV_COND_GREATER_EQUAL,
	KV_COND_GREATER,
	KV_COND_ROW_PREFIX			/* all columns of a row comparison but the last; the next
								 * condition continues it */
} KvConditionKind;

typedef enum KvAccess
{
	KV_ACCESS_FULL,				/* the whole table */
	KV_ACCESS_RANGE,			/* one or more key ranges */
	KV_ACCESS_POINT				/* one or more whole keys */
} KvAccess;

/*
 * Items in a ForeignScan's fdw_private list must match this enum.  Condition
 * number i is (keys[i], kinds[i], types[i]) and the value is element i of
 * fdw_exprs; the elements after the values are the conditions' clauses, for
 * EXPLAIN, and if the limit is -1 the query's LIMIT and OFFSET.
 */
enum KvScanPrivateIndex
{
	KvScanPrivateKeys,			/* integer list: index into KvTable.keys */
	KvScanPrivateKinds,			/* integer list: KvConditionKind */
	KvScanPrivateTypes,			/* OID list: type of the (array element's) value */
	KvScanPrivatePinned,		/* Integer: leading columns bound by = or ANY */
	KvScanPrivateAccess,		/* Integer: KvAccess */
	KvScanPrivateBackward,		/* Boolean */
	KvScanPrivateByAddress,		/* Boolean: in order of address, if that is another order */
	KvScanPrivateOrdered,		/* Boolean: does the plan rely on key order? */
	KvScanPrivateValues,		/* Boolean: are values read, or keys only? */
	/* Integer: rows likely to be taken, 0 = all, -1 = known when it runs */
	KvScanPrivateLimit,
	KvScanPrivateLock,			/* Integer: LockTupleMode of the scan's own locks, or -1 */
	KvScanPrivateOperation,		/* Integer: CmdType of the query */
	KvScanPrivateSetsTag		/* Boolean, of a scan that deletes directly: its rows count */
};

/* Items in a ModifyTable's fdw_private list for a target must match this enum. */
enum KvModifyPrivateIndex
{
	KvModifyPrivateTarget,		/* Boolean: ON CONFLICT named the key */
	KvModifyPrivateSetAgain,	/* Boolean: kv_upsert_may_set_again */
	KvModifyPrivateRowwise		/* Boolean, the last: kv_rowwise_note has set it for an INSERT */
};

/* Items in a ForeignPath's fdw_private list must match this enum. */
enum KvPathPrivateIndex
{
	KvPathPrivateClauses,		/* RestrictInfos used as key conditions */
	KvPathPrivateBackward,		/* Boolean */
	KvPathPrivateByAddress		/* Boolean */
};

/* ---- plan time (keycond.c) ---- */

typedef struct KvKeyCondition
{
	int			key;			/* index into KvTable.keys */
	KvConditionKind kind;
	Expr	   *value;			/* free of this relation's columns */
	Oid			valuetype;
	RestrictInfo *rinfo;		/* the clause it comes from */
	bool		exact;			/* equivalent to its clause */
	List	   *row;			/* preceding KvKeyConditions: ROW_PREFIX */
} KvKeyCondition;

typedef struct KvKeyMatch
{
	List	   *conditions;		/* KvKeyCondition, in key order */
	List	   *clauses;		/* their RestrictInfos, each once */
	List	   *exact;			/* clauses that need not be evaluated any more */
	Bitmapset  *equal;			/* key columns bound by '=' */
	int			npinned;		/* leading columns bound by '=' or ANY */
	double		nprefixes;		/* estimated combinations of the pinned ones */
	KvAccess	access;
} KvKeyMatch;

/*
 * Choose the key conditions among clauses: RestrictInfos on this relation, and join clauses
 * whose other relations the path will be parameterised by.  A clause that is not chosen stays a
 * filter.  Palloc'd; the same clauses give the same result.
 */
extern KvKeyMatch *kv_match_key(PlannerInfo *root, RelOptInfo *rel,
								const KvTable *table, List *clauses);
/* Could this clause become a condition on the column KvTable.keys[key]? */
extern bool kv_clause_matches_key(PlannerInfo *root, RelOptInfo *rel,
								  const KvTable *table, int key,
								  RestrictInfo *rinfo);
/* Is operand the relation's key column, perhaps under a binary-compatible cast? */
extern bool kv_operand_is_key(RelOptInfo *rel, const KvKeyColumn *column,
							  Node *operand);
/* The column's type, with its default btree operator family; NULL if there is none. */
extern TypeCacheEntry *kv_key_type(const KvKeyColumn *column);

/*
 * A plan's key conditions: *values are the first of its fdw_exprs, the result is the first
 * items of its fdw_private.
 */
extern List *kv_plan_conditions(const KvKeyMatch *match, List **values);

/* What GetForeignRelSize stores in baserel->fdw_private. */
typedef struct KvRelInfo
{
	KvTable    *table;
	int32		width;			/* bytes of a whole row */
	int32		key_width;		/* bytes of its key */
	bool		has_row_triggers;	/* for this statement's operation */
	double		scattered;		/* kv_store_scattered(), or -1: not asked yet */
} KvRelInfo;

/* ---- plan time: width (cost.c) ---- */

#define KV_SAMPLE_WIDTH	1024
/*
 * Does ANALYZE's sample contain only the beginning of the column's values?  ANALYZE keeps only
 * the width of a value of more than a kilobyte.
 */
extern bool kv_is_cut_in_samples(Form_pg_attribute att);
/*
 * Estimate the mean width of a row.  Columns without statistics, and those whose statistics are
 * of cut values, share the bytes of the store's values: value_width returns the bytes of one (0
 * or less: not known).  Stores the widths in the rel if they exceed the planner's.
 */
extern int32 kv_row_width(RelOptInfo *rel, Oid relid, const KvTable *table,
						  double (*value_width) (Oid relid));
extern int32 kv_key_width(Oid relid, const KvTable *table);	/* the mean width of a key */

/* ---- plan time: costs (cost.c) ---- */

/* Estimate the entries that a scan with these conditions reads, at least 1. */
extern double kv_entries_scanned(PlannerInfo *root, RelOptInfo *rel, const KvKeyMatch *match);
/*
 * Estimate a scan that uses match, reads values or only keys (values), in key order or in order
 * of address, evaluates the clauses in local, and returns so many rows.  sharers: processes
 * that share the work; reading is not cheaper for that.  rel has its KvRelInfo.
 */
extern void kv_cost_scan(PlannerInfo *root, RelOptInfo *rel, const KvKeyMatch *match,
						 bool values, bool by_address, List *local, double rows,
						 double sharers, Cost *startup_cost, Cost *total_cost);

/* Estimate counting, in the engine, the entries that satisfy match. */
extern void kv_cost_count(PlannerInfo *root, RelOptInfo *rel, const KvKeyMatch *match,
						  Cost *startup_cost, Cost *total_cost);

/* ---- counting (count.c) ---- */

/* A plan that counts has no relation of its own: see the head of count.c. */
#define KV_PLAN_COUNTS(plan)	((plan)->scan.scanrelid == 0)

/* Items in the fdw_private of such a plan: those of kv_plan_conditions, and */
#define KvCountPrivateClauses	(KvScanPrivateAccess + 1)

/*
 * GetForeignUpperPaths: add a path that counts to the grouped relation if the query only counts
 * a table's rows, and all its conditions, if any, are key conditions that leave ranges.  Else
 * do nothing.  See the head of count.c.
 */
extern void kv_get_foreign_upper_paths(PlannerInfo *root, UpperRelationKind stage,
									   RelOptInfo *input_rel, RelOptInfo *output_rel,
									   void *extra);
/* Make the plan of that path.  rel is the grouped relation, tlist the plan's target list. */
extern ForeignScan *kv_count_plan(PlannerInfo *root, RelOptInfo *rel, List *tlist);
/* The table that a plan counts, as an index into the range table; ERROR: the plan has none. */
extern Index kv_count_relation(const ForeignScan *plan, List *rtable);
/*
 * The executor's callbacks for such a plan.  The first iteration counts, and returns one row
 * with the number in each column; the next returns an empty slot.  After a rescan the plan
 * counts again.
 */
extern void kv_begin_count(ForeignScanState *node, int eflags);
extern TupleTableSlot *kv_iterate_count(ForeignScanState *node);
extern void kv_rescan_count(ForeignScanState *node);
extern void kv_end_count(ForeignScanState *node);

/* ---- execution time (keyrange.c) ---- */

typedef struct KvKeyRanges KvKeyRanges;

/*
 * Prepare a plan's key conditions for execution.  Allocated in CurrentMemoryContext.  points:
 * all conditions pin columns, and kv_ranges_next is not called.
 */
extern KvKeyRanges *kv_ranges_create(const KvTable *table, ForeignScan *plan,
									 PlanState *parent, bool points);
/*
 * Evaluate the conditions for a new (re)scan.  The lists of keys are allocated in context,
 * which the caller resets.  False: no row can match, and there is nothing to read.
 */
extern bool kv_ranges_start(KvKeyRanges *ranges, ExprContext *econtext,
							MemoryContext context, bool backward);
/*
 * After kv_ranges_start: the next range in the order of the scan, lo inclusive, hi
 * exclusive, data NULL for none.  The bounds last until the next call.  False: no more.
 */
extern bool kv_ranges_next(KvKeyRanges *ranges, KvKey *lo, KvKey *hi);
/*
 * After kv_ranges_start for KV_ACCESS_POINT: the next keys, at most max; returns how many, 0:
 * no more.  Their bytes last until the next call.
 */
extern int	kv_ranges_next_points(KvKeyRanges *ranges, KvKey *keys, int max);

/* ---- execution time (syscolumn.c) ---- */

typedef struct KvRowNames KvRowNames;

extern KvRowNames *kv_names_create(void);	/* in CurrentMemoryContext */
/* Note the key of a row and set *name, a made-up ctid by which the key can be found. */
extern void kv_names_add(KvRowNames *names, KvKey key, ItemPointer name);
/* The key of a row that was named.  It lasts until the next call of one of these functions. */
extern KvKey kv_names_find(KvRowNames *names, ItemPointer name);
/* Close the temporary file, if there is one; the memory is freed with its context. */
extern void kv_names_end(KvRowNames *names);

/* ---- conflicts with other sessions (row.c) ---- */

/*
 * Does the scan lock rows?  Row triggers of an UPDATE or DELETE get the old row from the scan's
 * output, before modify.c sees it.  So its newest version must be there: the scan locks.
 */
extern bool kv_scan_locks(Relation rel, CmdType operation);

/*
 * Raise the error for a row that a statement could not lock or change.  Returns if the row is
 * just to be skipped.
 */
extern void kv_raise_row_conflict(KvRowResult result, CmdType operation);

/*
 * SERIALIZABLE: report the writers whose versions a scan has met and not seen since the last
 * call.
 */
extern void kv_check_conflict_out(Relation rel, KvScan *scan, Snapshot snapshot);

/* SERIALIZABLE: check a key that was written against the locks of readers. */
extern void kv_check_conflict_in(Relation rel, KvKey key);

/* The page that stands for a key in the predicate locks of SERIALIZABLE. */
extern BlockNumber kv_key_page(KvKey key);

/* ---- scan.c ---- */

typedef struct KvParallelScan KvParallelScan;	/* in dynamic shared memory */

typedef struct KvScanState
{
	/* the table */
	Relation	rel;
	KvTable    *table;
	KvStore    *store;			/* NULL until the first row was written */

	/* the plan */
	KvAccess	access;
	KvScanOrder order;
	bool		want_values;
	uint64		limit_hint;		/* rows likely to be taken, or 0 */
	List	   *limit;	/* ExprStates of a LIMIT and an OFFSET that compute limit_hint, or NIL */
	KvKeyRanges *ranges;

	/* the position */
	KvScan	   *scan;
	bool		started;		/* were the key conditions evaluated? */
	bool		positioned;		/* is scan on a range or a set of points? */
	bool		finished;

	/* in a parallel scan */
	KvParallelScan *parallel;	/* or NULL */
	uint32		piece;			/* the current piece */

	/* locking */
	int			lock_mode;		/* LockTupleMode in which the scan locks, or -1 */
	CmdType		operation;		/* the statement for which it locks */
	ExprState  *qual;			/* the node's quals, which we evaluate if the scan locks */
	KvRowNames *names;			/* of rows that are locked above the scan, or NULL */
	bool		locks_alone;	/* the query locks no other relation's rows */
	MemoryContext lock_context; /* of the row that was locked last above the scan */

	MemoryContext context;		/* of this struct: "kvfdw scan" */
	MemoryContext range_context;	/* of the current (re)scan's keys */
} KvScanState;

/* Callbacks of scans, which those that delete directly share. */
extern void kv_begin_foreign_scan(ForeignScanState *node, int eflags);
extern void kv_end_foreign_scan(ForeignScanState *node);
extern void kv_explain_foreign_scan(ForeignScanState *node,
									struct ExplainState *es);	/* explain.c */
/* The next row that the key conditions leave; begins the (re)scan.  False: there are no more. */
extern bool kv_scan_next_row(ForeignScanState *node, KvRow *row);
/* Does the row in the slot satisfy the quals?  Counts it if not. */
extern bool kv_scan_passes(ForeignScanState *node, ExprState *quals, TupleTableSlot *slot);

/* modify.c: core has opened the target, and may see that it has indexes again. */
extern void kv_show_indexes(ResultRelInfo *rinfo);

/* ---- initialization of the FDW by each file ---- */

/* Each fills in the callbacks of the file of that name. */
extern void kv_plan_routine(FdwRoutine *routine);
extern void kv_scan_routine(FdwRoutine *routine);
extern void kv_modify_routine(FdwRoutine *routine);
extern void kv_batch_routine(FdwRoutine *routine);
extern void kv_direct_routine(FdwRoutine *routine);
extern void kv_explain_routine(FdwRoutine *routine);
extern void kv_cost_gucs(void);	/* at load: the planner's settings */
extern void kv_plan_init(void);	/* in _PG_init: the hook by which the planner knows of keys */
extern void kv_conflict_init(void);	/* in _PG_init: the planner hook for conflict targets */

/* syscolumn.c: ERROR if the query names a system column of the relation other than tableoid */
extern void kv_refuse_system_columns(PlannerInfo *root, RelOptInfo *rel, Oid relid);

/* conflict.c: did the statement name a conflict target?  The target is the key then. */
extern bool kv_conflict_target_was_given(const Query *query);

/*
 * rowwise.c: does an INSERT of the statement have to write each row before it computes the next?
 * Asked before the statement is planned; then noted in the plan, whose ModifyTable answers.
 */
extern bool kv_rowwise_statement(Query *query);
extern void kv_rowwise_note(PlannedStmt *statement, bool rowwise);
extern bool kv_rowwise_plan(const ModifyTable *plan);
/* May the expression see rows that the running statement has written? */
extern bool kv_rowwise_expression(Node *expression);

/* row.c: the name that the primary key of the table has or would have; palloc'd */
extern char *kv_modify_constraint_name(Relation rel);

/* analyze.c: AnalyzeForeignTable, which returns the sampling function and the table's size */
extern bool kv_analyze_foreign_table(Relation relation,
									 AcquireSampleRowsFunc *func,
									 BlockNumber *totalpages);

#endif							/* KV_FDW_H */
