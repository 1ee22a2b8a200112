/*
 * writer.c
 *		The background worker that empties sealed merge slots.
 *
 * One process writes for all, so that a backend never has a write in flight
 * while it waits for its client, and an ERROR in a backend has no write to wait
 * for.  It keeps up to KV_WRITES_IN_FLIGHT direct writes going, but of large slots
 * KV_LARGE_IN_FLIGHT.  A write that fails leaves its slot sealed, its values safe in the
 * merge file and readable.  It is tried again every second, and the log told once per
 * minute; slots of other stores are written meanwhile.
 *
 * Slots of a shard at wal level 'keys' must be finished oldest first (commit.c).
 * Their direct writes overlap all the same: one that ends before its turn waits
 * in its place until those before it have ended.
 *
 * It runs on demand (base/worker.h): who seals a slot has it started.  It ends when no slot
 * has been sealed for a while; what failed is still to be written, and keeps it.  If this worker is
 * not there, sessions that need a slot write one themselves (kv_slot_wait_free), and redo does.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "engine/base/types.h"
#include "engine/base/wait.h"
#include "engine/base/worker.h"
#include "engine/format/format.h"
#include "engine/io/io.h"
#include "engine/shard/shard.h"
#include "engine/slot/slot.h"
#include "engine/value/value.h"

#define KV_WRITES_IN_FLIGHT 32
#define KV_LARGE_IN_FLIGHT	8
#define KV_TELL_MS			60000
#define KV_TOLD				16	/* failures that are remembered */

typedef struct KvSlotWrite
{
	KvIoRequest request;
	int			slot;			/* -1: unused */
	bool		ended;			/* waits for its turn */
} KvSlotWrite;

static KvSlotWrite writes[KV_WRITES_IN_FLIGHT];

static void
attend(bool here)
{
	kv_slot_pool->writer_latch = here ? MyLatch : NULL;
}

/* Slots that a former writer had claimed are nobody's now. */
static void
take_over(void)
{
	for (int i = 0; i < kv_slot_pool->nunits; i++)
	{
		if (kv_slots[i].state == KV_SLOT_WRITING && kv_slots[i].by_writer)
			(void) kv_slot_unclaim(i, 0);
	}
}

/* Has the log not been told for a minute of this error of this store's files? */
static bool
is_news(const KvStoreKey *key, int err)
{
	static struct
	{
		KvStoreKey	key;
		int			err;		/* 0: unused */
		TimestampTz at;
	}			told[KV_TOLD];
	TimestampTz now = kv_clock();
	int			oldest = 0;

	for (int i = 0; i < KV_TOLD; i++)
	{
		if (told[i].err == err && kv_same_store(&told[i].key, key) &&
			!TimestampDifferenceExceeds(told[i].at, now, KV_TELL_MS))
			return false;
		if (told[i].at < told[oldest].at)
			oldest = i;
	}
	told[oldest].key = *key;
	told[oldest].err = err;
	told[oldest].at = now;
	return true;
}

/* An ERROR on the way: log it and leave the slot to a later attempt. */
static void
give_up(int slot, MemoryContext context)
{
	KvStoreKey	key = kv_slots[slot].store->key;
	ErrorData  *error;
	int			err;

	HOLD_INTERRUPTS();
	MemoryContextSwitchTo(context);
	error = CopyErrorData();
	LWLockReleaseAll();
	err = error->saved_errno != 0 ? error->saved_errno : EIO;
	if (kv_slot_unclaim(slot, err) && is_news(&key, err))
		EmitErrorReport();
	FlushErrorState();
	FreeErrorData(error);
	RESUME_INTERRUPTS();
}

/* A direct write has ended, and it is its turn: the rest is the key log's. */
static void
finish(KvSlotWrite *write)
{
	MemoryContext context = CurrentMemoryContext;
	int			slot = write->slot;
	KvStoreKey	key = kv_slots[slot].store->key;	/* the slot may be another's below */
	KvFileId	file = kv_file_of(kv_slots[slot].base);
	int			result = write->request.result;
	volatile int err = 0;

	write->slot = -1;
	if (result != (int) write->request.len)
	{
		/* a short direct write means a full disk or a limit */
		err = result < 0 ? -result : ENOSPC;
		if (!kv_slot_unclaim(slot, err))
			err = 0;
	}
	else if (!kv_slot_is_next(slot))
	{
		/* the write of an older slot of the shard has failed: finish this one after that */
		(void) kv_slot_unclaim(slot, 0);
		return;
	}
	else
	{
		PG_TRY();
		{
			err = kv_slot_finish(slot);
		}
		PG_CATCH();
		{
			give_up(slot, context);
			return;
		}
		PG_END_TRY();
	}
	if (err != 0 && is_news(&key, err))
		kv_io_error(LOG, err, kv_path_value(&key, file), "write");
}

/* Must a write that was started earlier be finished before this one? */
static bool
waits_for_turn(const KvSlotWrite *write)
{
	const KvSlot *slot = &kv_slots[write->slot];

	if (slot->store->shape.wal != KV_WAL_KEYS)
		return false;
	for (int w = 0; w < KV_WRITES_IN_FLIGHT; w++)
	{
		const KvSlot *other = &kv_slots[Max(writes[w].slot, 0)];

		if (writes[w].slot >= 0 && other->store == slot->store &&
			other->shard == slot->shard && other->sequence < slot->sequence)
			return true;
	}
	return false;
}

/* A direct write has ended: finish its slot, and the slots whose turn came with that. */
static void
end(KvSlotWrite *write)
{
	bool		again;

	write->ended = true;
	do
	{
		again = false;
		for (int w = 0; w < KV_WRITES_IN_FLIGHT; w++)
		{
			if (writes[w].slot >= 0 && writes[w].ended && !waits_for_turn(&writes[w]))
			{
				finish(&writes[w]);
				again = true;
			}
		}
	} while (again);
}

/* Start the direct write of a claimed slot, or end it if there is nothing to write. */
static void
start(KvSlotWrite *write)
{
	MemoryContext context = CurrentMemoryContext;
	int			slot = write->slot;
	const KvStore *store = kv_slots[slot].store;

	kv_slot_image(slot, &write->request.offset, &write->request.len,
				  &write->request.buffer);
	if (write->request.len == 0)
	{
		end(write);
		return;
	}
	PG_TRY();
	{
		write->request.file = kv_value_file(&store->key, store->cache_id,
											kv_file_of(kv_slots[slot].base), 0);
	}
	PG_CATCH();
	{
		write->slot = -1;
		give_up(slot, context);
		return;
	}
	PG_END_TRY();
	KV_STOP_POINT("slot_before_write");
	kv_io_submit_write(&write->request, KV_IO_VALUE_WRITE);
}

/* The next writer takes over slots, so nothing of this one may be on its way to the device then. */
static void
finish_all(void)
{
	while (kv_io_writes_in_flight() > 0)
		end((KvSlotWrite *) kv_io_reap_write(true)->tag);
}

/* Likewise after an ERROR: what is in flight ends, and its slots are the next writer's. */
static void
writer_exit(int code, Datum arg)
{
	while (kv_io_writes_in_flight() > 0)
		(void) kv_io_reap_write(true);
	attend(false);
}

/* Is there enough on its way to the device? */
static bool
is_busy(void)
{
	Size		bytes = 0;
	int			n = 0;

	for (int w = 0; w < KV_WRITES_IN_FLIGHT; w++)
	{
		if (writes[w].slot < 0)
			continue;
		bytes += writes[w].request.len;
		n++;
	}
	return n == KV_WRITES_IN_FLIGHT || bytes >= KV_LARGE_IN_FLIGHT * (Size) kv_slot_pool->slot_size;
}

/* Start writes for sealed slots; true if any was started or finished at once. */
static bool
start_writes(bool retry)
{
	bool		any = false;
	int			slot;

	if (retry)
		kv_slots_retry();
	while (!is_busy() && (slot = kv_slot_claim_next()) >= 0)
	{
		KvSlotWrite *write = writes;

		while (write->slot >= 0)
			write++;
		memset(write, 0, sizeof(*write));
		write->slot = slot;
		write->request.tag = write;
		any = true;
		start(write);
	}
	return any;
}

void
kv_merge_writer_main(Datum arg)
{
	for (int w = 0; w < KV_WRITES_IN_FLIGHT; w++)
		writes[w].slot = -1;

	kv_worker_begin(NULL);
	kv_worker_attend();

	before_shmem_exit(writer_exit, (Datum) 0);
	take_over();
	attend(true);

	while (kv_worker_goes_on(NULL))
	{
		static TimestampTz last_retry = 0;
		KvIoRequest *done;
		bool		retry;
		bool		busy;

		retry = TimestampDifferenceExceeds(last_retry, kv_clock(), 1000);
		if (retry)
			last_retry = kv_clock();
		if (kv_io_writes_in_flight() == 0)
			kv_value_trim();
		kv_value_let_go();
		kv_slots_seal_idle();
		busy = start_writes(retry);
		done = kv_io_reap_write(kv_io_writes_in_flight() > 0 && (!busy || is_busy()));
		while (done != NULL)
		{
			end((KvSlotWrite *) done->tag);
			busy = true;
			done = kv_io_reap_write(false);
		}
		if (kv_worker_is_done(busy || kv_slots_pending()))
		{
			finish_all();
			KV_STOP_POINT("writer_leaves");
			if (kv_worker_leave(attend, kv_slots_pending))
				break;
		}
		else if (!busy)
			(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
							 1000, KV_WAIT_IDLE);
	}
	finish_all();
	proc_exit(0);
}
