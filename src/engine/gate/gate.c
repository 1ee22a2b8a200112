/*
 * gate.c
 *		Blocks writers until there is a checkpointer (checkpoint/checkpointer.c).
 */
#include "postgres.h"

#include "miscadmin.h"

#include "engine/base/wait.h"
#include "engine/gate/gate.h"

#define KV_GATE_PATIENCE 60		/* seconds */

KvGate	   *kv_gate = NULL;

void
kv_gate_init(void)
{
	pg_atomic_init_u32(&kv_gate->is_open, 0);
	ConditionVariableInit(&kv_gate->opened);
	pg_atomic_init_u32(&kv_gate->logging, 0);
}

void
kv_gate_wait(void)
{
	ConditionVariablePrepareToSleep(&kv_gate->opened);
	for (int i = 0; pg_atomic_read_u32(&kv_gate->is_open) == 0; i++)
	{
		CHECK_FOR_INTERRUPTS();
		if (i == KV_GATE_PATIENCE || !IsUnderPostmaster)
		{
			ConditionVariableCancelSleep();
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("cannot write to kvfdw tables because background worker \"kvfdw "
							"checkpointer\" is not running"),
					 IsUnderPostmaster ?
					 errhint("Check the server log for why it exited, or increase "
							 "\"max_worker_processes\" and restart the server.") :
					 errhint("Start the server in multi-user mode.")));
		}
		ConditionVariableTimedSleep(&kv_gate->opened, 1000, KV_WAIT_CHECKPOINTER);
	}
	ConditionVariableCancelSleep();
}
