/*
 * compat.h
 *		Everything that differs between PostgreSQL 15 and 19, and nothing else.
 *
 * A module that meets a version difference adds a kv_… wrapper or KV_… macro
 * here; no other file tests PG_VERSION_NUM.  Wrappers are macros, so that this
 * header needs no server header that its user does not include anyway.
 */
#ifndef KV_COMPAT_H
#define KV_COMPAT_H

#if PG_VERSION_NUM < 150000
#error "kvfdw needs PostgreSQL 15 or later"
#endif

#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

#include "utils/wait_event.h"

/*
 * KV_WAIT_EVENT(cache, name): the wait event to report.  cache is a static
 * uint32 that starts as 0; from 17 on it keeps the number that was assigned to
 * the name.  Needs shared memory, so not for the postmaster.
 */
#if PG_VERSION_NUM >= 170000
#define KV_WAIT_EVENT(cache, name) \
	((cache) != 0 ? (cache) : ((cache) = WaitEventExtensionNew(name)))
#else
#define KV_WAIT_EVENT(cache, name)	((void) (cache), PG_WAIT_EXTENSION)
#endif

/* Is it a wait for a buffer that others have pinned?  In a class with short waits since 19. */
#if PG_VERSION_NUM >= 190000
#define kv_waits_for_pin(event)	((event) == WAIT_EVENT_BUFFER_CLEANUP)
#elif PG_VERSION_NUM >= 170000
#define kv_waits_for_pin(event)	(((event) & 0xFF000000U) == PG_WAIT_BUFFERPIN)
#else
#define kv_waits_for_pin(event)	(((event) & 0xFF000000U) == PG_WAIT_BUFFER_PIN)
#endif

/* Are bytes of the client's in the server's buffer?  Counted since 17. */
#if PG_VERSION_NUM >= 170000
#define kv_pq_buffer_has_data()	(pq_buffer_remaining_data() > 0)
#else
#define kv_pq_buffer_has_data()	pq_buffer_has_data()
#endif

/*
 * FileGetRawDesc() of a virtual file that fd.c has closed: up to 16 it returns
 * -1 and leaves every other file open, later ones may open the file and close
 * another for it.
 */
#if PG_VERSION_NUM >= 170000
#define KV_RAW_DESC_MAY_OPEN	true
#else
#define KV_RAW_DESC_MAY_OPEN	false
#endif

/* The shared counters of xids: TransamVariables since 17. */
#if PG_VERSION_NUM >= 170000
#define KV_TRANSAM_VARIABLES	TransamVariables
#else
#define KV_TRANSAM_VARIABLES	ShmemVariableCache
#endif

/* The oldest xid of which clog is sure to have the outcome. */
#define KV_OLDEST_CLOG_XID	(KV_TRANSAM_VARIABLES->oldestClogXid)

/* The startup process's way to notice a shutdown; renamed in 18. */
#if PG_VERSION_NUM >= 180000
#define kv_startup_interrupts()	ProcessStartupProcInterrupts()
#else
#define kv_startup_interrupts()	HandleStartupProcInterrupts()
#endif

/* The checkpointer's process id, or 0; a latch of it was known until 17. */
#if PG_VERSION_NUM >= 180000
#define KV_CHECKPOINTER_PID \
	(ProcGlobal->checkpointerProc == INVALID_PROC_NUMBER ? 0 \
	 : GetPGProcByNumber(ProcGlobal->checkpointerProc)->pid)
#else
#define KV_CHECKPOINTER_PID \
	(ProcGlobal->checkpointerLatch == NULL ? 0 : ProcGlobal->checkpointerLatch->owner_pid)
#endif

/* The postmaster's list of background workers: doubly linked since 18. */
#if PG_VERSION_NUM >= 180000
#define kv_worker_iter		dlist_iter
#define kv_each_worker(iter)	dlist_foreach(iter, &BackgroundWorkerList)
#define kv_worker_of(iter)	dlist_container(RegisteredBgWorker, rw_lnode, (iter).cur)
#else
#define kv_worker_iter		slist_iter
#define kv_each_worker(iter)	slist_foreach(iter, &BackgroundWorkerList)
#define kv_worker_of(iter)	slist_container(RegisteredBgWorker, rw_lnode, (iter).cur)
#endif

/* A process's local transaction id, invalid outside transactions: in PGPROC.vxid since 17. */
#if PG_VERSION_NUM >= 170000
#define KV_LXID(proc)		((proc)->vxid.lxid)
#else
#define KV_LXID(proc)		((proc)->lxid)
#endif
#define KV_MY_LXID			KV_LXID(MyProc)

/* The number of this process's PGPROC; of a process with one. */
#if PG_VERSION_NUM >= 170000
#define KV_MY_PROC_NUMBER	MyProcNumber
#else
#define KV_MY_PROC_NUMBER	(MyProc->pgprocno)
#endif

/* Has this process no lock in a partition of the lock table? */
#if PG_VERSION_NUM >= 160000
#define KV_HAS_NO_LOCKS(partition)	dlist_is_empty(&MyProc->myProcLocks[partition])
#else
#define KV_HAS_NO_LOCKS(partition)	SHMQueueEmpty(&MyProc->myProcLocks[partition])
#endif

/* Does LockRows call a concurrent delete a delete in its message?  Until 18 an update. */
#define KV_LOCK_SAYS_DELETE	(PG_VERSION_NUM >= 190000)

/* create_foreignscan_path: + fdw_restrictinfo (17), + disabled_nodes (18). */
#if PG_VERSION_NUM >= 180000
#define kv_create_foreignscan_path(root, rel, target, rows, startup, total, \
								   pathkeys, outer, private) \
	create_foreignscan_path(root, rel, target, rows, 0, startup, total, \
							pathkeys, outer, NULL, NIL, private)
#elif PG_VERSION_NUM >= 170000
#define kv_create_foreignscan_path(root, rel, target, rows, startup, total, \
								   pathkeys, outer, private) \
	create_foreignscan_path(root, rel, target, rows, startup, total, \
							pathkeys, outer, NULL, NIL, private)
#else
#define kv_create_foreignscan_path(root, rel, target, rows, startup, total, \
								   pathkeys, outer, private) \
	create_foreignscan_path(root, rel, target, rows, startup, total, \
							pathkeys, outer, NULL, private)
#endif

/* create_foreign_upper_path: + disabled_nodes (18), + fdw_restrictinfo (17). */
#if PG_VERSION_NUM >= 180000
#define kv_create_foreign_upper_path(root, rel, target, rows, startup, total, private) \
	create_foreign_upper_path(root, rel, target, rows, 0, startup, total, NIL, NULL, NIL, private)
#elif PG_VERSION_NUM >= 170000
#define kv_create_foreign_upper_path(root, rel, target, rows, startup, total, private) \
	create_foreign_upper_path(root, rel, target, rows, startup, total, NIL, NULL, NIL, private)
#else
#define kv_create_foreign_upper_path(root, rel, target, rows, startup, total, private) \
	create_foreign_upper_path(root, rel, target, rows, startup, total, NIL, NULL, private)
#endif

/* make_canonical_pathkey: strategy numbers became CompareType in 18. */
#if PG_VERSION_NUM >= 180000
#define KV_PATHKEY_LESS		COMPARE_LT
#define KV_PATHKEY_GREATER	COMPARE_GT
#define KV_PATHKEY_IS_LESS(pathkey) ((pathkey)->pk_cmptype == COMPARE_LT)
#else
#define KV_PATHKEY_LESS		BTLessStrategyNumber
#define KV_PATHKEY_GREATER	BTGreaterStrategyNumber
#define KV_PATHKEY_IS_LESS(pathkey) ((pathkey)->pk_strategy == BTLessStrategyNumber)
#endif

/* Can there be logical decoding?  Since 19 the first logical slot switches it on. */
#if PG_VERSION_NUM >= 190000
#define KV_LOGICAL_DECODING_POSSIBLE	(wal_level >= WAL_LEVEL_REPLICA)
#else
#define KV_LOGICAL_DECODING_POSSIBLE	(wal_level >= WAL_LEVEL_LOGICAL)
#endif

/* The tuple of a change in the reorder buffer: in a buffer of its own up to 16. */
#if PG_VERSION_NUM >= 170000
#define kv_change_tuple(buffer)	(buffer)
#else
#define kv_change_tuple(buffer)	(&(buffer)->tuple)
#endif

/* When a decoded transaction committed; and the number of a replication origin.  Renamed in 19. */
#if PG_VERSION_NUM >= 190000
#define kv_commit_time(txn)		((txn)->commit_time)
#define KvOriginId				ReplOriginId
#define KV_NO_ORIGIN			InvalidReplOriginId
#else
#define kv_commit_time(txn)		((txn)->xact_time.commit_time)
#define KvOriginId				RepOriginId
#define KV_NO_ORIGIN			InvalidRepOriginId
#endif

/* RegisterCustomRmgr takes a const RmgrData since 16. */
#if PG_VERSION_NUM >= 160000
#define KV_RMGR_CONST		const
#else
#define KV_RMGR_CONST
#endif

/* PG_MODULE_MAGIC_EXT since 18. */
#if PG_VERSION_NUM >= 180000
#define KV_MODULE_MAGIC(module_name, module_version) \
	PG_MODULE_MAGIC_EXT(.name = module_name, .version = module_version)
#else
#define KV_MODULE_MAGIC(module_name, module_version) PG_MODULE_MAGIC
#endif

/* Is a collation's order that of memcmp?  lc_collate_is_c is gone since 18. */
#if PG_VERSION_NUM >= 180000
#define kv_collation_is_c(collid) \
	(pg_newlocale_from_collation(collid)->collate_is_c)
#else
#define kv_collation_is_c(collid)	lc_collate_is_c(collid)
#endif

/* To call after changing a Form_pg_attribute of a TupleDesc (18). */
#if PG_VERSION_NUM >= 180000
#define kv_attribute_changed(desc, index)	populate_compact_attribute(desc, index)
#else
#define kv_attribute_changed(desc, index)	((void) 0)
#endif

/* Generated columns that are computed when read, never stored (18). */
#if PG_VERSION_NUM >= 180000
#define KV_ATTRIBUTE_IS_VIRTUAL(att) \
	((att)->attgenerated == ATTRIBUTE_GENERATED_VIRTUAL)
#else
#define KV_ATTRIBUTE_IS_VIRTUAL(att)	false
#endif

/* An expression of such columns, as one of those that they are made of; rewriteHandler.h. */
#if PG_VERSION_NUM >= 180000
#define KV_EXPAND_VIRTUAL(node, rel)	expand_generated_columns_in_expr(node, rel, 1)
#else
#define KV_EXPAND_VIRTUAL(node, rel)	((Node *) (node))
#endif

/* The expression of such a column; rewriteHandler.h. */
#if PG_VERSION_NUM >= 180000
#define kv_virtual_expression(rel, attnum)	build_generation_expression(rel, attnum)
#else
#define kv_virtual_expression(rel, attnum)	((Node *) NULL)
#endif

#define KV_CONSTRAINT_NOTNULL	'n'	/* from 18 on */

/* Must a column not be NULL in any row?  Since 18 its constraint may be NOT VALID. */
#if PG_VERSION_NUM >= 180000
#define kv_never_null(desc, index) \
	(TupleDescCompactAttr(desc, index)->attnullability == ATTNULLABLE_VALID)
#else
#define kv_never_null(desc, index)	(TupleDescAttr(desc, index)->attnotnull)
#endif

/* ALTER COLUMN SET EXPRESSION (17). */
#if PG_VERSION_NUM >= 170000
#define KV_IS_SET_EXPRESSION(subtype)	((subtype) == AT_SetExpression)
#else
#define KV_IS_SET_EXPRESSION(subtype)	false
#endif

/* pg_attribute_noreturn() became pg_noreturn in 18, which in C23 stands before all else. */
#if PG_VERSION_NUM >= 180000
#define KV_NORETURN			pg_noreturn
#else
#define KV_NORETURN			pg_attribute_noreturn()
#endif

/*
 * Locks that are not waited for: since 18 the caller says whether a failure is
 * logged.  As heap does it, that of NOWAIT is if the server is set so.
 */
#if PG_VERSION_NUM >= 180000
#define kv_conditional_lock_tuple(rel, tid, mode, nowait) \
	ConditionalLockTuple(rel, tid, mode, (nowait) && log_lock_failures)
#define kv_conditional_xact_wait(xid, nowait) \
	ConditionalXactLockTableWait(xid, (nowait) && log_lock_failures)
#else
#define kv_conditional_lock_tuple(rel, tid, mode, nowait) ConditionalLockTuple(rel, tid, mode)
#define kv_conditional_xact_wait(xid, nowait) ConditionalXactLockTableWait(xid)
#endif

/* get_eclass_for_sort_expr: nullable_relids went away in 16. */
#if PG_VERSION_NUM >= 160000
#define kv_get_eclass_for_sort_expr(root, expr, opfamilies, type, collation, rel) \
	get_eclass_for_sort_expr(root, expr, opfamilies, type, collation, 0, rel, false)
#else
#define kv_get_eclass_for_sort_expr(root, expr, opfamilies, type, collation, rel) \
	get_eclass_for_sort_expr(root, expr, NULL, opfamilies, type, collation, 0, rel, false)
#endif

/* estimate_array_length takes the planner's root since 17. */
#if PG_VERSION_NUM >= 170000
#define kv_estimate_array_length(root, array)	estimate_array_length(root, array)
#else
#define kv_estimate_array_length(root, array)	((double) estimate_array_length(array))
#endif

/* vacuum_delay_point was told whether ANALYZE calls it in 18. */
#if PG_VERSION_NUM >= 180000
#define kv_analyze_delay_point()	vacuum_delay_point(true)
#else
#define kv_analyze_delay_point()	vacuum_delay_point()
#endif

/* Have vacuum_delay_point go by vacuum_cost_delay and vacuum_cost_limit as they are now. */
#if PG_VERSION_NUM >= 160000
#define kv_begin_cost_delay() \
	do { VacuumFailsafeActive = false; VacuumUpdateCosts(); VacuumCostBalance = 0; } while (0)
#else
#define kv_begin_cost_delay() \
	do { VacuumCostActive = VacuumCostDelay > 0; VacuumCostBalance = 0; } while (0)
#endif

/* RETURNING can ask for the old row since 18. */
#if PG_VERSION_NUM >= 180000
#define kv_returns_old_row(list)	contain_vars_returning_old_or_new((Node *) (list))
#else
#define kv_returns_old_row(list)	false
#endif

/* Reading all that is asked for, or an ERROR: BufFileReadExact since 16. */
#if PG_VERSION_NUM >= 160000
#define kv_buffile_read(file, into, bytes)	BufFileReadExact(file, into, bytes)
#else
#define kv_buffile_read(file, into, bytes) \
	do { \
		if (BufFileRead(file, into, bytes) != (bytes)) \
			ereport(ERROR, \
					(errcode_for_file_access(), \
					 errmsg("could not read temporary file: %m"))); \
	} while (0)
#endif

/* tuplesort_getdatum is told whether to copy since 16; before, it always does. */
#if PG_VERSION_NUM >= 160000
#define kv_tuplesort_getdatum(sort, datum, isnull) \
	tuplesort_getdatum(sort, true, true, datum, isnull, NULL)
#else
#define kv_tuplesort_getdatum(sort, datum, isnull) \
	tuplesort_getdatum(sort, true, datum, isnull, NULL)
#endif

/* cost_sort is told how many disabled nodes are below since 18. */
#if PG_VERSION_NUM >= 180000
#define kv_cost_sort(path, root, tuples, width) \
	cost_sort(path, root, NIL, 0, 0, tuples, width, 0, work_mem, -1)
#else
#define kv_cost_sort(path, root, tuples, width) \
	cost_sort(path, root, NIL, 0, tuples, width, 0, work_mem, -1)
#endif

/* Ownership of a relation: object_ownercheck since 16. */
#if PG_VERSION_NUM >= 160000
#define kv_owns_relation(relid) object_ownercheck(RelationRelationId, relid, GetUserId())
#else
#define kv_owns_relation(relid) pg_class_ownercheck(relid, GetUserId())
#endif

/*
 * May a role connect to a database? object_aclcheck since 16; utils/acl.h, catalog/pg_database.h.
 */
#if PG_VERSION_NUM >= 160000
#define kv_may_connect(dboid, role) \
	(object_aclcheck(DatabaseRelationId, dboid, role, ACL_CONNECT) == ACLCHECK_OK)
#else
#define kv_may_connect(dboid, role) \
	(pg_database_aclcheck(dboid, role, ACL_CONNECT) == ACLCHECK_OK)
#endif

/* May a role use a schema?  object_aclcheck since 16; utils/acl.h, catalog/pg_namespace.h. */
#if PG_VERSION_NUM >= 160000
#define kv_may_use_schema(schema, role) \
	(object_aclcheck(NamespaceRelationId, schema, role, ACL_USAGE) == ACLCHECK_OK)
#else
#define kv_may_use_schema(schema, role) \
	(pg_namespace_aclcheck(schema, role, ACL_USAGE) == ACLCHECK_OK)
#endif

/*
 * May a role create in a schema?  object_aclcheck since 16; utils/acl.h, catalog/pg_namespace.h.
 */
#if PG_VERSION_NUM >= 160000
#define kv_may_create_in_schema(schema, role) \
	(object_aclcheck(NamespaceRelationId, schema, role, ACL_CREATE) == ACLCHECK_OK)
#else
#define kv_may_create_in_schema(schema, role) \
	(pg_namespace_aclcheck(schema, role, ACL_CREATE) == ACLCHECK_OK)
#endif

/* The index of a relation's primary key; whether a deferrable one counts is asked since 18. */
#if PG_VERSION_NUM >= 180000
#define kv_relation_primary_key(rel)	RelationGetPrimaryKeyIndex(rel, true)
#else
#define kv_relation_primary_key(rel)	RelationGetPrimaryKeyIndex(rel)
#endif

/* Describe a unique index of n columns to index_create; nodes/makefuncs.h. */
#if PG_VERSION_NUM >= 180000
#define kv_make_unique_index_info(n, am) \
	makeIndexInfo(n, n, am, NIL, NIL, true, false, true, false, false, false)
#elif PG_VERSION_NUM >= 160000
#define kv_make_unique_index_info(n, am) \
	makeIndexInfo(n, n, am, NIL, NIL, true, false, true, false, false)
#else
#define kv_make_unique_index_info(n, am) \
	makeIndexInfo(n, n, am, NIL, NIL, true, false, true, false)
#endif

/* Create an index in the default tablespace; 17 also wants options and targets of columns. */
#if PG_VERSION_NUM >= 170000
#define kv_index_create(rel, name, info, names, am, collations, classes, options, flags) \
	index_create(rel, name, InvalidOid, InvalidOid, InvalidOid, InvalidOid, info, names, am, \
				 InvalidOid, collations, classes, NULL, options, NULL, (Datum) 0, flags, 0, \
				 false, false, NULL)
#else
#define kv_index_create(rel, name, info, names, am, collations, classes, options, flags) \
	index_create(rel, name, InvalidOid, InvalidOid, InvalidOid, InvalidOid, info, names, am, \
				 InvalidOid, collations, classes, options, (Datum) 0, flags, 0, \
				 false, false, NULL)
#endif

/* Access methods have one description that stays since 19; before, core frees what it gets. */
#if PG_VERSION_NUM >= 190000
#define KV_RETURN_INDEX_AM(routine)	PG_RETURN_POINTER(&(routine))
#else
#define KV_RETURN_INDEX_AM(routine) \
	do { \
		IndexAmRoutine *kv_routine = makeNode(IndexAmRoutine); \
		*kv_routine = (routine); \
		PG_RETURN_POINTER(kv_routine); \
	} while (0)
#endif

/* Is a primary key one of periods (18)? */
#if PG_VERSION_NUM >= 180000
#define kv_without_overlaps(constraint)	((constraint)->without_overlaps)
#else
#define kv_without_overlaps(constraint)	false
#endif

/* To make a Constraint NOT NULL as the grammar does; since 18 it can be NOT ENFORCED. */
#if PG_VERSION_NUM >= 180000
#define kv_set_initially_valid(constraint) \
	((constraint)->initially_valid = (constraint)->is_enforced = true)
#else
#define kv_set_initially_valid(constraint)	((constraint)->initially_valid = true)
#endif

/*
 * The hook where the planner has looked up what the catalog has of a relation: another one in 19;
 * optimizer/plancat.h, optimizer/pathnode.h.
 */
#if PG_VERSION_NUM >= 190000
#define KV_RELATION_INFO_HOOK			build_simple_rel_hook
#define KV_RELATION_INFO_HOOK_TYPE		build_simple_rel_hook_type
#define KV_RELATION_INFO_PARAMS			PlannerInfo *root, RelOptInfo *rel, RangeTblEntry *rte
#define KV_RELATION_INFO_ARGS			root, rel, rte
#else
#define KV_RELATION_INFO_HOOK			get_relation_info_hook
#define KV_RELATION_INFO_HOOK_TYPE		get_relation_info_hook_type
#define KV_RELATION_INFO_PARAMS \
	PlannerInfo *root, Oid relid, bool inhparent, RelOptInfo *rel
#define KV_RELATION_INFO_ARGS			root, relid, inhparent, rel
#endif

/* May a role execute a function?  object_aclcheck since 16; utils/acl.h, catalog/pg_proc.h. */
#if PG_VERSION_NUM >= 160000
#define kv_may_execute(function, role) \
	(object_aclcheck(ProcedureRelationId, function, role, ACL_EXECUTE) == ACLCHECK_OK)
#else
#define kv_may_execute(function, role) \
	(pg_proc_aclcheck(function, role, ACL_EXECUTE) == ACLCHECK_OK)
#endif

/*
 * May a role create in a tablespace? object_aclcheck since 16; utils/acl.h,
 * catalog/pg_tablespace.h.
 */
#if PG_VERSION_NUM >= 160000
#define kv_tablespace_aclcheck(tablespace, role) \
	object_aclcheck(TableSpaceRelationId, tablespace, role, ACL_CREATE)
#else
#define kv_tablespace_aclcheck(tablespace, role) \
	pg_tablespace_aclcheck(tablespace, role, ACL_CREATE)
#endif

/*
 * Base backups look for checksums of pages in all files of a tablespace; since 17 in relations'
 * only.
 */
#define KV_BACKUP_VERIFIES_ALL_FILES (PG_VERSION_NUM < 170000)

/* A set of n wait events that lasts; its owner since 17. */
#if PG_VERSION_NUM >= 170000
#define kv_create_wait_event_set(n)	CreateWaitEventSet(NULL, n)
#else
#define kv_create_wait_event_set(n)	CreateWaitEventSet(TopMemoryContext, n)
#endif

/*
 * ExecBRUpdateTriggers, for an old row that is no heap tuple: + TM_Result (16), + MERGE's mark
 * (18).
 */
#if PG_VERSION_NUM >= 180000
#define kv_before_row_update(estate, epqstate, rinfo, old, buffer) \
	ExecBRUpdateTriggers(estate, epqstate, rinfo, NULL, old, buffer, NULL, NULL, false)
#elif PG_VERSION_NUM >= 160000
#define kv_before_row_update(estate, epqstate, rinfo, old, buffer) \
	ExecBRUpdateTriggers(estate, epqstate, rinfo, NULL, old, buffer, NULL, NULL)
#else
#define kv_before_row_update(estate, epqstate, rinfo, old, buffer) \
	ExecBRUpdateTriggers(estate, epqstate, rinfo, NULL, old, buffer, NULL)
#endif

/*
 * RETURNING's expressions over an old row, or NULL if there is none, which core
 * has told them there is not (18).
 */
#if PG_VERSION_NUM >= 180000
#define kv_returning_has_old(state)	(((state)->flags & EEO_FLAG_HAS_OLD) != 0)
#define kv_returning_set_old(state, econtext, buffer) \
	((state)->flags &= ~EEO_FLAG_OLD_IS_NULL, (econtext)->ecxt_oldtuple = (buffer))
#else
#define kv_returning_has_old(state)	false
#define kv_returning_set_old(state, econtext, buffer)	((void) 0)
#endif

/* EXPLAIN's state and output functions left commands/explain.h in 18. */
#if PG_VERSION_NUM >= 180000
#define KV_EXPLAIN_STATE_HEADER		"commands/explain_state.h"
#define KV_EXPLAIN_FORMAT_HEADER	"commands/explain_format.h"
#else
#define KV_EXPLAIN_STATE_HEADER		"commands/explain.h"
#define KV_EXPLAIN_FORMAT_HEADER	"commands/explain.h"
#endif

/* To ignore a signal is a constant of its own since 19, where handlers are told more. */
#if PG_VERSION_NUM >= 190000
#define KV_SIG_IGN	PG_SIG_IGN
#else
#define KV_SIG_IGN	SIG_IGN
#endif

/* A tranche of locks gets its name with its number since 19. */
#if PG_VERSION_NUM >= 190000
#define kv_new_tranche(name)			LWLockNewTrancheId(name)
#define kv_register_tranche(id, name)	((void) (id))
#else
#define kv_new_tranche(name)			LWLockNewTrancheId()
#define kv_register_tranche(id, name)	LWLockRegisterTranche(id, name)
#endif

/* A hash table in shared memory, of n entries and no more: one number since 19. */
#if PG_VERSION_NUM >= 190000
#define kv_shmem_hash(name, n, info, flags)	ShmemInitHash(name, n, info, flags)
#else
#define kv_shmem_hash(name, n, info, flags)	ShmemInitHash(name, n, n, info, flags)
#endif

/* The hook that runs after parse analysis may not change the jumble state since 19. */
#if PG_VERSION_NUM >= 190000
#define KV_JUMBLE_CONST		const
#else
#define KV_JUMBLE_CONST
#endif

/* Planners are told by which EXPLAIN they are called since 19. */
#if PG_VERSION_NUM >= 190000
#define KV_PLANNER_PARAMS(query, text, options, params) \
	Query *query, const char *text, int options, ParamListInfo params, ExplainState *explain
#define KV_PLANNER_ARGS(query, text, options, params)	query, text, options, params, explain
#else
#define KV_PLANNER_PARAMS(query, text, options, params) \
	Query *query, const char *text, int options, ParamListInfo params
#define KV_PLANNER_ARGS(query, text, options, params)	query, text, options, params
#endif

/* ON CONFLICT DO SELECT is new in 19, and what the executor has of the clause renamed. */
#if PG_VERSION_NUM >= 190000
#define KV_ON_CONFLICT_SELECT	ONCONFLICT_SELECT
#define KvOnConflictState		OnConflictActionState
#define kv_conflict_lock(conflict)	((conflict)->oc_LockStrength)
#else
#define KV_ON_CONFLICT_SELECT	((OnConflictAction) (ONCONFLICT_UPDATE + 1))
#define KvOnConflictState		OnConflictSetState
#define kv_conflict_lock(conflict)	LCS_NONE
#endif

/* Which privileges a statement needs, of whom and on what: relid, requiredPerms, checkAsUser. */
#if PG_VERSION_NUM >= 160000
#define KvPermission			RTEPermissionInfo
#define KV_PERMISSIONS(estate)	((estate)->es_rteperminfos)
#else
#define KvPermission			RangeTblEntry
#define KV_PERMISSIONS(estate)	((estate)->es_range_table)
#endif

/*
 * An auto-updatable view's WHERE, as a check of the row that an upsert met: the minor
 * releases of November 2026 added this kind after the last one, and older headers have no
 * name for it.  An older server never asks for it, so the number serves all builds.
 */
#define KV_WCO_VIEW_CONFLICT_CHECK	(WCO_RLS_MERGE_DELETE_CHECK + 1)

/*
 * Is the row that a MERGE inserts one that its UPDATE moves here?  Since 17 it tells; before,
 * an action for rows that match has such a row at hand, and an INSERT has none.
 */
#if PG_VERSION_NUM >= 170000
#define kv_merge_moves_row(mtstate) \
	((mtstate)->mt_merge_action->mas_action->commandType == CMD_UPDATE)
#else
#define kv_merge_moves_row(mtstate)	((mtstate)->ps.ps_ExprContext->ecxt_scantuple != NULL)
#endif

/* Does a domain have constraints?  19 would also say whether they are volatile. */
#if PG_VERSION_NUM >= 190000
#define kv_domain_has_constraints(type)	DomainHasConstraints(type, NULL)
#else
#define kv_domain_has_constraints(type)	DomainHasConstraints(type)
#endif

/* Does a plan node count its use of buffers?  In a part of the node's struct since 19. */
#if PG_VERSION_NUM >= 190000
#define kv_counts_buffers(instrument)	((instrument)->instr.need_bufusage)
#else
#define kv_counts_buffers(instrument)	((instrument)->need_bufusage)
#endif

/* A checkpoint at once; renamed in 19. */
#if PG_VERSION_NUM >= 190000
#define KV_CHECKPOINT_FAST	CHECKPOINT_FAST
#else
#define KV_CHECKPOINT_FAST	CHECKPOINT_IMMEDIATE
#endif

/* The oldest running xid: since 19 the caller says of which transactions, and of all databases. */
#if PG_VERSION_NUM >= 190000
#define kv_oldest_running_xid()	GetOldestActiveTransactionId(false, true)
#else
#define kv_oldest_running_xid()	GetOldestActiveTransactionId()
#endif

/* The least duration of an ANALYZE that is logged: apart from VACUUM's since 19. */
#if PG_VERSION_NUM >= 190000
#define KV_LOG_ANALYZE_DURATION	log_analyze_min_duration
#else
#define KV_LOG_ANALYZE_DURATION	log_min_duration
#endif

/*
 * Convert dates and timestamps to timestamps; *overflow is -1 or 1 for a value before or after
 * all timestamps.  Since 19 core says only that there was an overflow.
 */
#if PG_VERSION_NUM >= 190000
#include "nodes/miscnodes.h"
#define KV_CONVERT_MOMENT(convert, value, overflow) \
	({ \
		ErrorSaveContext kv_failure = {T_ErrorSaveContext}; \
		int64		kv_moment = convert(value, (Node *) &kv_failure); \
		*(overflow) = !kv_failure.error_occurred ? 0 : (value) < 0 ? -1 : 1; \
		kv_moment; \
	})
#define kv_date_to_timestamp(value, overflow)	KV_CONVERT_MOMENT(date2timestamp_safe, value, \
																  overflow)
#define kv_date_to_timestamptz(value, overflow)	KV_CONVERT_MOMENT(date2timestamptz_safe, value, \
																  overflow)
#define kv_timestamp_to_timestamptz(value, overflow) KV_CONVERT_MOMENT(timestamp2timestamptz_safe, \
																	   value, overflow)
#else
#define kv_date_to_timestamp(value, overflow)	date2timestamp_opt_overflow(value, overflow)
#define kv_date_to_timestamptz(value, overflow)	date2timestamptz_opt_overflow(value, overflow)
#define kv_timestamp_to_timestamptz(value, overflow) timestamp2timestamptz_opt_overflow(value, \
																						overflow)
#endif

#endif							/* KV_COMPAT_H */
