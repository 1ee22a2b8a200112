/*
 * plan.h
 *		What the planner, the executor and EXPLAIN of a kvfdw scan share.
 *
 * keycond.c turns clauses into key conditions at plan time, plan.c builds
 * paths and plans from them, keyrange.c turns the conditions into keys and key
 * ranges at execution time, scan.c reads those, explain.c shows them.
 */
#ifndef KV_PLAN_H
#define KV_PLAN_H

#include "compat.h"
#include "kvfdw.h"

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
	KV_COND_ROW_PREFIX			/* of a row comparison, all columns but the
								 * last; the next condition goes on with it */
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
 * EXPLAIN.
 */
enum KvScanPrivateIndex
{
	KvScanPrivateKeys,			/* integer list: index into KvTable.keys */
	KvScanPrivateKinds,			/* integer list: KvConditionKind */
	KvScanPrivateTypes,			/* OID list: type of the (array element's) value */
	KvScanPrivatePinned,		/* Integer: leading columns bound by = or ANY */
	KvScanPrivateAccess,		/* Integer: KvAccess */
	KvScanPrivateBackward,		/* Boolean */
	KvScanPrivateByPlace,		/* Boolean: in the order in which values lie, if that is another */
	KvScanPrivateOrdered,		/* Boolean: does the plan rely on key order? */
	KvScanPrivateValues,		/* Boolean: are values read, or keys only? */
	KvScanPrivateLimit,			/* Integer: rows likely to be taken, 0 = all */
	KvScanPrivateLock,			/* Integer: LockTupleMode of the scan's own locks, or -1 */
	KvScanPrivateOperation		/* Integer: CmdType of the query */
};

/* Items in a ForeignPath's fdw_private list must match this enum. */
enum KvPathPrivateIndex
{
	KvPathPrivateClauses,		/* RestrictInfos used as key conditions */
	KvPathPrivateBackward,		/* Boolean */
	KvPathPrivateByPlace		/* Boolean */
};

/* ---- plan time (keycond.c) ---- */

typedef struct KvKeyCondition
{
	int			key;			/* index into KvTable.keys */
	KvConditionKind kind;
	Expr	   *value;			/* free of this relation's columns */
	Oid			valuetype;
	RestrictInfo *rinfo;		/* the clause it is made of */
	bool		exact;			/* says all that the clause says */
	List	   *row;			/* KvKeyConditions that go before: ROW_PREFIX */
} KvKeyCondition;

typedef struct KvKeyMatch
{
	List	   *conditions;		/* KvKeyCondition, in key order */
	List	   *clauses;		/* their RestrictInfos, each once */
	List	   *exact;			/* those that need not be evaluated any more */
	Bitmapset  *equal;			/* key columns bound by '=' */
	int			npinned;		/* leading columns bound by '=' or ANY */
	double		nprefixes;		/* estimated combinations of the pinned ones */
	KvAccess	access;
} KvKeyMatch;

extern KvKeyMatch *kv_match_key(PlannerInfo *root, RelOptInfo *rel,
								const KvTable *table, List *clauses);
extern bool kv_clause_matches_key(PlannerInfo *root, RelOptInfo *rel,
								  const KvTable *table, int key,
								  RestrictInfo *rinfo);
extern bool kv_operand_is_key(RelOptInfo *rel, const KvKeyColumn *column,
							  Node *operand);
extern TypeCacheEntry *kv_key_type(const KvKeyColumn *column);

/* What GetForeignRelSize leaves in baserel->fdw_private. */
typedef struct KvRelInfo
{
	KvTable    *table;
	int32		width;			/* bytes of a whole row … */
	int32		key_width;		/* … and of its key */
	bool		has_row_triggers;	/* for this statement's operation */
	double		scattered;		/* kv_store_scattered(), or -1: not asked yet */
} KvRelInfo;

/* plan.c: the first items of a plan's fdw_private, and the first of its fdw_exprs */
extern List *kv_plan_conditions(const KvKeyMatch *match, List **values);

/* ---- plan time (cost.c) ---- */

extern double kv_entries_scanned(PlannerInfo *root, RelOptInfo *rel, const KvKeyMatch *match);
extern void kv_cost_scan(PlannerInfo *root, RelOptInfo *rel, const KvKeyMatch *match,
						 bool values, bool by_place, List *local, double rows,
						 double sharers, Cost *startup_cost, Cost *total_cost);

extern void kv_cost_count(PlannerInfo *root, RelOptInfo *rel, const KvKeyMatch *match,
						  Cost *startup_cost, Cost *total_cost);

/* ---- counting (count.c) ---- */

/* A plan that counts has no relation of its own: see the head of count.c. */
#define KV_PLAN_COUNTS(plan)	((plan)->scan.scanrelid == 0)

/* Items in the fdw_private of one: those of kv_plan_conditions, and */
#define KvCountPrivateClauses	(KvScanPrivateAccess + 1)

extern void kv_get_foreign_upper_paths(PlannerInfo *root, UpperRelationKind stage,
									   RelOptInfo *input_rel, RelOptInfo *output_rel,
									   void *extra);
extern ForeignScan *kv_count_plan(PlannerInfo *root, RelOptInfo *rel, List *tlist);
extern Index kv_count_relation(const ForeignScan *plan, List *rtable);
extern void kv_begin_count(ForeignScanState *node, int eflags);
extern TupleTableSlot *kv_iterate_count(ForeignScanState *node);
extern void kv_rescan_count(ForeignScanState *node);
extern void kv_end_count(ForeignScanState *node);

/* ---- execution time (keyrange.c) ---- */

typedef struct KvKeyRanges KvKeyRanges;

extern KvKeyRanges *kv_ranges_create(const KvTable *table, ForeignScan *plan,
									 PlanState *parent);
extern bool kv_ranges_start(KvKeyRanges *ranges, ExprContext *econtext,
							MemoryContext context, bool backward);
extern bool kv_ranges_next(KvKeyRanges *ranges, KvKey *lo, KvKey *hi);
extern int	kv_ranges_next_points(KvKeyRanges *ranges, KvKey *keys, int max);

/* ---- execution time (rowname.c) ---- */

typedef struct KvRowNames KvRowNames;

extern KvRowNames *kv_names_create(void);
extern void kv_names_add(KvRowNames *names, KvKey key, ItemPointer name);
extern KvKey kv_names_find(KvRowNames *names, ItemPointer name);
extern void kv_names_end(KvRowNames *names);

/* ---- parallel scans (parallel.c) ---- */

typedef struct KvParallelScan KvParallelScan;	/* in dynamic shared memory */

extern bool kv_parallel_take(KvParallelScan *parallel, uint32 *piece);
extern bool kv_parallel_clip(const KvParallelScan *parallel, uint32 piece,
							 KvKey *lo, KvKey *hi);

/* ---- scan.c ---- */

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
	uint64		limit_hint;
	KvKeyRanges *ranges;

	/* the position */
	KvScan	   *scan;
	bool		started;		/* were the key conditions evaluated? */
	bool		positioned;		/* is scan on a range or a set of points? */
	bool		finished;

	/* in a parallel scan */
	KvParallelScan *parallel;	/* or NULL */
	uint32		piece;			/* the one that is read */

	/* locking */
	int			lock_mode;		/* LockTupleMode in which the scan locks, or -1 */
	CmdType		operation;		/* what for */
	ExprState  *qual;			/* the node's quals, which we evaluate then */
	KvRowNames *names;			/* of rows that are locked above the scan, or NULL */
	MemoryContext lock_context; /* of the row locked last there */

	MemoryContext context;		/* of this struct: "kvfdw scan" */
	MemoryContext range_context;	/* of the current (re)scan's keys */
} KvScanState;

/*
 * Row triggers of an UPDATE or DELETE get the old row from the scan's output,
 * before modify.c sees it.  So its newest version must be there: the scan locks.
 */
extern bool kv_scan_locks(Relation rel, CmdType operation);

/*
 * Raise what has to be raised of a row that a statement could not have.  Returns if
 * it is just to be passed over.
 */
extern void kv_row_not_had(KvRowResult result, CmdType operation);

/*
 * SERIALIZABLE: tell whose writes a scan has met and not seen since the last
 * call.
 */
extern void kv_check_conflict_out(Relation rel, KvScan *scan, Snapshot snapshot);

/* The page that stands for a key in the predicate locks of SERIALIZABLE. */
extern BlockNumber kv_key_page(KvKey key);

/* analyze.c */
extern bool kv_analyze_foreign_table(Relation relation,
									 AcquireSampleRowsFunc *func,
									 BlockNumber *totalpages);

#endif							/* KV_PLAN_H */
