/*
 * memtable.c
 *		Memtable memory, where the maintainer is busy.
 *
 * A batch that finds no memtable memory sets requests aside, and the maintainer is asked for
 * some (kv_put_if).  The maintainer may work on a large shard for minutes.  A session would do
 * its work then; a batch may not take so long (M 2).  So the reaper does it, for which no
 * client waits.
 */
#include "memcached/process/process.h"

#include "clock.h"

#include "access/xact.h"
#include "storage/latch.h"

#define PATIENCE_MS		200		/* time for the maintainer: less than requests have */

void
kv_mc_want_memtable(void)
{
	Latch	   *latch = kv_mc_shared->reaper_latch;

	if (pg_atomic_exchange_u32(&kv_mc_shared->memtable_wanted, 1) == 0 && latch != NULL)
		SetLatch(latch);
}

int64
kv_mc_make_memtable(void)
{
	static TimestampTz again = 0;	/* not before */
	MemoryContext context = CurrentMemoryContext;
	TimestampTz now = kv_clock();
	volatile int ms = 1000;		/* if there is an ERROR */

	if (pg_atomic_read_u32(&kv_mc_shared->memtable_wanted) == 0)
		return PG_INT64_MAX;
	if (now < again)
		return again - now;
	pg_atomic_write_u32(&kv_mc_shared->memtable_wanted, 0);
	PG_TRY();
	{
		kv_mc_begin();
		ms = kv_make_room_for_others(PATIENCE_MS);
		CommitTransactionCommand();
	}
	PG_CATCH();
	{
		(void) kv_mc_roll_back();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	if (ms == 0)
		return PG_INT64_MAX;
	pg_atomic_write_u32(&kv_mc_shared->memtable_wanted, 1);
	again = kv_clock() + ms * INT64CONST(1000);
	return ms * INT64CONST(1000);
}
