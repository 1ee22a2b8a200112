/*
 * indexam.c
 *		The access method of the indexes of kvfdw tables, which PostgreSQL never reads or writes.
 *
 * Such an index is a row of the catalog (table/primarykey.c), for tools, constraints and ON
 * CONFLICT.  kvfdw plans, reads and writes its tables itself.  So PostgreSQL must not do it:
 *
 *  - The planner sees another index in its place, which it takes for hypothetical (plan.c).
 *  - The executor opens no index of a target (modify.c).
 *  - There is no amgetbitmap: the planner would dereference the method of the table, which has
 *    none.
 *  - There is no operator in the operator class.  PostgreSQL looks for the meaning of an operator
 *    in the families of all methods, and would find it here, too.
 *  - Building raises an error.  REINDEX INDEX CONCURRENTLY gets it before it uses the method of the
 *    table.
 */
#include "postgres.h"

#include "access/amapi.h"
#include "access/genam.h"
#include "catalog/pg_class.h"
#include "fmgr.h"
#include "nodes/execnodes.h"
#include "utils/rel.h"

#include "compat.h"
#include "fdw/fdw.h"

PG_FUNCTION_INFO_V1(kvfdw_index_handler);

static IndexBuildResult *
am_build(Relation table, Relation index, IndexInfo *info)
{
	if (table->rd_rel->relkind != RELKIND_FOREIGN_TABLE)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("access method \"kvfdw\" is for kvfdw tables only"),
				 errdetail("\"%s\" is not a kvfdw table.", RelationGetRelationName(table))));
	kv_index_raise_rebuild(RelationGetRelationName(index));
}

static void
am_build_empty(Relation index)
{
}

KV_NORETURN static void
raise_used(void)
{
	elog(ERROR, "an index of access method \"kvfdw\" cannot be used by PostgreSQL");
}

static bool
am_insert(Relation index, Datum *values, bool *nulls, ItemPointer tid, Relation table,
			 IndexUniqueCheck check, bool unchanged, IndexInfo *info)
{
	raise_used();
}

static IndexBulkDeleteResult *
am_bulk_delete(IndexVacuumInfo *info, IndexBulkDeleteResult *stats,
				  IndexBulkDeleteCallback callback, void *arg)
{
	return stats;
}

static IndexBulkDeleteResult *
am_clean(IndexVacuumInfo *info, IndexBulkDeleteResult *stats)
{
	return stats;
}

static void
am_cost(PlannerInfo *root, IndexPath *path, double loops, Cost *startup, Cost *total,
		   Selectivity *selectivity, double *correlation, double *pages)
{
	raise_used();
}

static bytea *
am_options(Datum options, bool validate)
{
	if (validate)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("indexes of access method \"kvfdw\" have no storage parameters")));
	return NULL;
}

static bool
am_validate(Oid opclass)
{
	return true;
}

static IndexScanDesc
am_begin(Relation index, int nkeys, int norderbys)
{
	raise_used();
}

static void
am_rescan(IndexScanDesc scan, ScanKey keys, int nkeys, ScanKey orderbys, int norderbys)
{
}

static bool
am_next(IndexScanDesc scan, ScanDirection direction)
{
	return false;
}

static void
am_end(IndexScanDesc scan)
{
}

Datum
kvfdw_index_handler(PG_FUNCTION_ARGS)
{
	static const IndexAmRoutine routine = {
		.type = T_IndexAmRoutine,
		.amcanorder = true,
		.amcanbackward = true,
		.amcanunique = true,
		.amcanmulticol = true,
		.ambuild = am_build,
		.ambuildempty = am_build_empty,
		.aminsert = am_insert,
		.ambulkdelete = am_bulk_delete,
		.amvacuumcleanup = am_clean,
		.amcostestimate = am_cost,
		.amoptions = am_options,
		.amvalidate = am_validate,
		.ambeginscan = am_begin,
		.amrescan = am_rescan,
		.amgettuple = am_next,
		.amendscan = am_end,
	};

	KV_RETURN_INDEX_AM(routine);
}
