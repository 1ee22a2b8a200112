/*
 * error.c
 *		Errors: names of foreign tables in messages, a library that was not preloaded, and recovery
 *		from an ERROR that does not end the process's work.
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "storage/condition_variable.h"
#include "storage/fd.h"
#include "storage/lwlock.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "engine/base/error.h"
#include "engine/base/shared.h"
#include "report.h"

/* The table's schema and name; false: they cannot be looked up here. */
static bool
look_up(Oid dboid, Oid relid, char **schema, char **name)
{
	/* interrupts are held where a lock of the engine is */
	if (dboid != MyDatabaseId || !OidIsValid(dboid) || !IsTransactionState() ||
		InterruptHoldoffCount > 0)
		return false;
	*name = get_rel_name(relid);
	*schema = *name != NULL ? get_namespace_name(get_rel_namespace(relid)) : NULL;
	return *schema != NULL;
}

char *
kv_table_label(Oid dboid, Oid relid)
{
	char	   *schema;
	char	   *name;

	if (look_up(dboid, relid, &schema, &name))
		return psprintf("foreign table \"%s.%s\"", schema, name);
	return psprintf("foreign table with OID %u in database with OID %u", relid, dboid);
}

void
kv_raise_dropped(Oid dboid, Oid relid)
{
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_TABLE),
			 errmsg("%s was dropped or truncated concurrently", kv_table_label(dboid, relid))));
}

char *
kv_table_sql_name(Oid dboid, Oid relid)
{
	char	   *schema;
	char	   *name;

	return look_up(dboid, relid, &schema, &name) ? quote_qualified_identifier(schema, name) : NULL;
}

bool
kv_engine_ready(void)
{
	return kv_base != NULL;
}

void
kv_engine_require(void)
{
	if (!kv_engine_ready())
		kv_report_not_preloaded(ERROR);
}

void
kv_engine_warn(void)
{
	if (!kv_engine_ready())
		kv_report_not_preloaded(WARNING);
}

void
kv_drop_error(bool report)
{
	HOLD_INTERRUPTS();
	if (report)
		EmitErrorReport();
	FlushErrorState();
	LWLockReleaseAll();
	ConditionVariableCancelSleep();
	AtEOXact_Files(false);
	RESUME_INTERRUPTS();
}

bool
kv_attempt(void (*work) (void *arg), void *arg)
{
	MemoryContext context = CurrentMemoryContext;
	volatile bool done = false;

	PG_TRY();
	{
		work(arg);
		done = true;
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		kv_drop_error(true);
	}
	PG_END_TRY();

	/* the work may have continued after an error of its own, in any context */
	MemoryContextSwitchTo(context);
	return done;
}

bool
kv_error_concerns_all(int sqlerrcode)
{
	return sqlerrcode == ERRCODE_IO_ERROR || sqlerrcode == ERRCODE_PROGRAM_LIMIT_EXCEEDED ||
		ERRCODE_TO_CATEGORY(sqlerrcode) == ERRCODE_INSUFFICIENT_RESOURCES ||
		ERRCODE_TO_CATEGORY(sqlerrcode) == ERRCODE_OPERATOR_INTERVENTION;
}
