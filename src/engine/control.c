/*
 * control.c
 *		What every room of the engine stands on: the shared memory's addresses,
 *		the settings, and the wake-ups.  start.c fills them in.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "postmaster/interrupt.h"
#include "postmaster/startup.h"
#include "utils/memutils.h"

#include "engine/internal.h"

KvShared   *kv_shared = NULL;
char	   *kv_area_base = NULL;
int			kv_tranche_shard;

int			kv_merge_size_kb = 256;
int			kv_merge_buffers_mb = 16;
int			kv_delta_memory_mb = 128;
int			kv_max_tables = 10000;
int			kv_recovery_workers = 2;
int			kv_freeze_delay = 60;

uint32		kv_wait_merge_slot = 0;
uint32		kv_wait_recovery = 0;
uint32		kv_wait_freeze = 0;
uint32		kv_wait_room = 0;
uint32		kv_wait_idle = 0;
uint32		kv_wait_barrier = 0;
uint32		kv_wait_range = 0;

bool
kv_engine_ready(void)
{
	return kv_shared != NULL;
}

/* Bytes of the area. */
Size
kv_area_size(void)
{
	return (Size) kv_delta_memory_mb * 1024 * 1024;
}

/* The area that deltas and shards come from, attached to at first use. */
dsa_area *
kv_area(void)
{
	static dsa_area *area = NULL;

	if (area == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);

		area = dsa_attach_in_place(kv_area_base, NULL);
		dsa_pin_mapping(area);
		MemoryContextSwitchTo(old);
	}
	return area;
}

/* CHECK_FOR_INTERRUPTS that the startup process heeds as well. */
void
kv_wait_interrupts(void)
{
	CHECK_FOR_INTERRUPTS();
	if (AmStartupProcess())
		kv_startup_interrupts();
}

/*
 * CHECK_FOR_INTERRUPTS for work that the maintainer does too: told to go, it
 * gives up the piece at hand.
 */
void
kv_check_interrupts(void)
{
	kv_wait_interrupts();
	if (ShutdownRequestPending)
		ereport(ERROR,
				(errcode(ERRCODE_ADMIN_SHUTDOWN),
				 errmsg("kvfdw maintainer is shutting down")));
}

/* A shard whose delta has this many bytes is due for a freeze. */
Size
kv_delta_limit(void)
{
	return Min((Size) 16 * 1024 * 1024, kv_area_size() / 8);
}

static void
wake(Latch *latch)
{
	if (latch != NULL)
		SetLatch(latch);
}

void
kv_wake_writer(void)
{
	wake(kv_shared->writer_latch);
}

void
kv_wake_maintainer(void)
{
	wake(kv_shared->maintainer_latch);
}
