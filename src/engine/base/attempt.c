/*
 * attempt.c
 *		Recovery from an ERROR that does not end the process's work.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/condition_variable.h"
#include "storage/fd.h"
#include "storage/lwlock.h"

#include "engine/base/attempt.h"

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
