/*
 * kvfdw.c
 *		Module start: settings, hooks, the handler.
 *
 * Loaded through shared_preload_libraries the module has its workers, shared memory and
 * resource manager in every process.  Loaded later (by CREATE EXTENSION, say) the module can
 * check options but plan nothing: at the first use of a table kv_engine_require says which
 * setting to change.
 */
#include "postgres.h"

#include "commands/extension.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/guc.h"

#include "admission/admission.h"
#include "compat.h"
#include "engine/engine.h"
#include "fdw/fdw.h"
#include "memcached/memcached.h"
#include "register.h"

KV_MODULE_MAGIC("kvfdw", "0.2.0");

PG_FUNCTION_INFO_V1(kvfdw_handler);

void		_PG_init(void);

void
_PG_init(void)
{
	if (process_shared_preload_libraries_in_progress)
	{
		kv_engine_gucs();
		kv_cost_gucs();
		kv_memcached_gucs();
		MarkGUCPrefixReserved("kvfdw");
		kv_engine_preload();
		kv_admission_preload();
		kv_memcached_preload();
		kv_register_report();
	}
	else if (creating_extension)
		kv_engine_warn();
	kv_table_init();
	kv_xact_init();
	kv_ddl_init();
	kv_conflict_init();
}

Datum
kvfdw_handler(PG_FUNCTION_ARGS)
{
	FdwRoutine *routine = makeNode(FdwRoutine);

	kv_plan_routine(routine);
	kv_scan_routine(routine);
	kv_modify_routine(routine);
	kv_batch_routine(routine);
	kv_explain_routine(routine);
	PG_RETURN_POINTER(routine);
}
