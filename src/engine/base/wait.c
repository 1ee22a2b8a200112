/*
 * wait.c
 *		Waiting: wait events, interrupts during waits, and wake-ups.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "postmaster/interrupt.h"
#include "postmaster/startup.h"

#include "compat.h"
#include "engine/base/shared.h"
#include "engine/base/wait.h"

uint32		kv_wait_write_buffer = 0;
uint32		kv_wait_recovery = 0;
uint32		kv_wait_flush = 0;
uint32		kv_wait_compact = 0;
uint32		kv_wait_space = 0;
uint32		kv_wait_pace = 0;
uint32		kv_wait_memory = 0;
uint32		kv_wait_idle = 0;
uint32		kv_wait_checkpointer = 0;
uint32		kv_wait_range = 0;
uint32		kv_wait_split = 0;

void
kv_interrupts(void)
{
	CHECK_FOR_INTERRUPTS();
	if (AmStartupProcess() && !proc_exit_inprogress)
		kv_startup_interrupts();
}

void
kv_maintenance_interrupts(void)
{
	kv_interrupts();
	if (ShutdownRequestPending)
		ereport(ERROR,
				(errcode(ERRCODE_ADMIN_SHUTDOWN),
				 errmsg("canceling kvfdw maintenance due to administrator command")));
}

void
kv_nap(long ms, uint32 wait_event)
{
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, ms, wait_event);
	ResetLatch(MyLatch);
}

void
kv_wake(Latch *latch)
{
	if (latch != NULL)
		SetLatch(latch);
}

void
kv_wake_maintainer(void)
{
	kv_wake(kv_base->maintainer_latch);
}
