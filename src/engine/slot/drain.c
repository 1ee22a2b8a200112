/*
 * drain.c
 *		Merge slots on their way to the files: claiming, finishing, freeing.
 *
 * The states are mergefile.c's.  The merge writer does this for all; who needs a slot
 * or a drained shard helps if it must.  Slots of a shard at wal level 'keys' are
 * finished in their order (commit.c).
 */
#include "postgres.h"

#include "access/xlog.h"
#include "miscadmin.h"

#include "engine/base/types.h"
#include "engine/base/wait.h"
#include "engine/cache/cache.h"
#include "engine/format/format.h"
#include "engine/io/io.h"
#include "engine/shard/shard.h"
#include "engine/slot/slot.h"
#include "engine/value/value.h"

#define KV_SLOT_PATIENCE	60	/* seconds */

/* ---- one slot ---- */

void
kv_slot_release(int i)
{
	LWLockAcquire(&kv_slot_pool->lock, LW_EXCLUSIVE);
	kv_slot_push_free(i);
	LWLockRelease(&kv_slot_pool->lock);
	ConditionVariableBroadcast(&kv_slot_pool->freed);
}

/*
 * Is an older slot of its shard still to be finished?  KvSlotPool.lock held.  Those
 * that the merge writer is writing do not count if it asks for itself.
 */
static bool
has_older(int i, bool for_writer)
{
	for (int j = 0; j < kv_slot_pool->nslots; j++)
	{
		const KvSlot *slot = &kv_slots[j];

		if ((slot->state == KV_SLOT_SEALED ||
			 (slot->state == KV_SLOT_WRITING && !(for_writer && slot->by_writer))) &&
			slot->store == kv_slots[i].store && slot->shard == kv_slots[i].shard &&
			slot->sequence < kv_slots[i].sequence)
			return true;
	}
	return false;
}

/*
 * SEALED → WRITING for the caller; false if somebody else has it, its store was
 * dropped, or another must come first (commit.c).
 */
bool
kv_slot_claim(int i, bool by_writer)
{
	bool		mine;

	LWLockAcquire(&kv_slot_pool->lock, LW_EXCLUSIVE);
	mine = kv_slots[i].state == KV_SLOT_SEALED &&
		pg_atomic_read_u32(&kv_slots[i].store->state) != KV_STORE_DROPPED &&
		(kv_slots[i].store->shape.wal != KV_WAL_KEYS || !has_older(i, by_writer));
	if (mine)
	{
		kv_slots[i].state = KV_SLOT_WRITING;
		kv_slots[i].by_writer = by_writer;
	}
	LWLockRelease(&kv_slot_pool->lock);
	return mine;
}

/* May a claimed slot be finished now?  False: an older one of its shard was not (commit.c). */
bool
kv_slot_is_next(int i)
{
	bool		next;

	if (kv_slots[i].store->shape.wal != KV_WAL_KEYS)
		return true;
	LWLockAcquire(&kv_slot_pool->lock, LW_SHARED);
	next = !has_older(i, false);
	LWLockRelease(&kv_slot_pool->lock);
	return next;
}

/*
 * WRITING → SEALED: somebody will try again.  False if nobody will, because
 * the store was dropped meanwhile: its files are gone, so it is no failure.
 */
bool
kv_slot_unclaim(int i, int error)
{
	bool		dropped;

	LWLockAcquire(&kv_slot_pool->lock, LW_EXCLUSIVE);
	dropped = pg_atomic_read_u32(&kv_slots[i].store->state) == KV_STORE_DROPPED;
	kv_slots[i].state = KV_SLOT_SEALED;
	kv_slots[i].error = dropped ? 0 : error;
	LWLockRelease(&kv_slot_pool->lock);
	if (!dropped && error != 0)
		pg_atomic_write_u32(&kv_slot_pool->write_error, error);
	ConditionVariableBroadcast(&kv_slot_pool->freed);
	return !dropped;
}

/* What a claimed slot wants written to its value file; len 0: nothing. */
void
kv_slot_image(int i, uint64 *offset, uint32 *len, char **buffer)
{
	*offset = kv_slots[i].base;
	*len = TYPEALIGN(KV_BLOCK, kv_slot_header(i)->value_bytes);
	*buffer = kv_slot_values(i);
}

/*
 * The values of a claimed slot are in the value file: put its entries into the
 * key log and free it.  Returns 0, or an errno with the slot SEALED again.
 */
int
kv_slot_finish(int i)
{
	KvSlot	   *slot = &kv_slots[i];
	KvStore    *store = slot->store;
	KvShard    *shard = kv_shard(store, slot->shard);
	int		   *link;
	int			err;

	KV_STOP_POINT("slot_before_log");
	err = kv_log_append(&store->key, slot->shard, slot->log_number,
						kv_slot_header(i)->log_offset, kv_slot_batch(i));
	if (err != 0)
	{
		kv_slot_unclaim(i, err);
		return err;
	}
	pg_atomic_fetch_add_u64(&shard->writes, 1);
	if (store->shape.wal == KV_WAL_KEYS && !RecoveryInProgress())
		kv_commit_log_batch(i);
	KV_STOP_POINT("slot_before_free");
	kv_slot_keep_hot(i);
	kv_stat_add(store, KV_COUNT_DEVICE_WRITE_BYTES, slot->capacity);

	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	for (link = &shard->sealed_slots; *link != i; link = &kv_slots[*link].next)
		;
	*link = slot->next;
	LWLockRelease(&shard->lock);
	kv_slot_header(i)->in_use = 0;
	pg_atomic_write_u32(&kv_slot_pool->write_error, 0);

	/* before the release, with which a dropped store may go */
	ConditionVariableBroadcast(&shard->changed);
	kv_slot_release(i);
	return 0;
}

/* Write out a claimed slot in the calling process.  0 or an errno. */
static int
write_out(int i)
{
	KvSlot	   *slot = &kv_slots[i];
	uint64		offset;
	uint32		len;
	char	   *buffer;
	volatile int err = 0;

	kv_slot_image(i, &offset, &len, &buffer);
	PG_TRY();
	{
		if (len > 0)
			err = kv_io_try_write(kv_value_file(&slot->store->key, slot->store->cache_id,
												slot->value_file, true),
								  buffer, len, offset, KV_IO_VALUE_WRITE);
		if (err != 0)
			kv_slot_unclaim(i, err);
		else
			err = kv_slot_finish(i);
	}
	PG_CATCH();
	{
		/* a file could not be opened */
		kv_slot_unclaim(i, EIO);
		PG_RE_THROW();
	}
	PG_END_TRY();
	return err;
}

/*
 * Take an OPEN slot from some shard that is not filling it, so that it can be
 * written and reused.  Round robin; no lock held.
 */
static void
evict_open_slot(void)
{
	static int	hand = 0;

	for (int tried = 0; tried < kv_slot_pool->nslots; tried++)
	{
		int			i = hand = (hand + 1) % kv_slot_pool->nslots;
		KvStore    *store = NULL;
		uint32		shardno = 0;
		KvShard    *shard;
		bool		sealed = false;

		LWLockAcquire(&kv_slot_pool->lock, LW_SHARED);
		/* a dropped store's slot is the maintainer's (collect_stores) */
		if (kv_slots[i].state == KV_SLOT_OPEN &&
			pg_atomic_read_u32(&kv_slots[i].store->state) != KV_STORE_DROPPED)
		{
			store = kv_slots[i].store;
			shardno = kv_slots[i].shard;
			pg_atomic_fetch_add_u32(&store->pins, 1);
		}
		LWLockRelease(&kv_slot_pool->lock);
		if (store == NULL)
			continue;

		KV_STOP_POINT("evict_pinned");
		shard = kv_shard(store, shardno);
		LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
		if (shard->open_slot == i)
		{
			kv_slot_seal(store, shardno);
			sealed = true;
		}
		LWLockRelease(&shard->lock);
		pg_atomic_fetch_sub_u32(&store->pins, 1);
		if (sealed)
			return;
	}
}

/*
 * Wait until some slot is free.  No lock held.  ERROR if slots cannot be
 * written: the values in them are safe, but nothing more can be taken in.
 */
void
kv_slot_wait_free(void)
{
	int			idle = 0;

	ConditionVariablePrepareToSleep(&kv_slot_pool->freed);
	for (;;)
	{
		int			first_sealed = -1;
		bool		pending = false;
		bool		free;
		uint32		err = pg_atomic_read_u32(&kv_slot_pool->write_error);

		kv_interrupts();
		LWLockAcquire(&kv_slot_pool->lock, LW_SHARED);
		free = kv_slot_pool->first_free >= 0;
		for (int i = 0; i < kv_slot_pool->nslots && !free; i++)
		{
			/* a dropped store's waits for the maintainer, who may be long */
			if ((kv_slots[i].state != KV_SLOT_SEALED && kv_slots[i].state != KV_SLOT_WRITING) ||
				pg_atomic_read_u32(&kv_slots[i].store->state) == KV_STORE_DROPPED)
				continue;
			if (kv_slots[i].state == KV_SLOT_SEALED &&
				(first_sealed < 0 || kv_slots[i].sequence < kv_slots[first_sealed].sequence))
				first_sealed = i;
			pending = true;
		}
		LWLockRelease(&kv_slot_pool->lock);
		if (free)
			break;
		if (!pending)
			evict_open_slot();
		else if (err != 0)
		{
			ConditionVariableCancelSleep();
			kv_io_error(ERROR, err, KV_SLOT_FILE_PATH, "empty");
		}
		else if (kv_slot_pool->writer_latch == NULL && first_sealed >= 0 &&
				 kv_slot_claim(first_sealed, false))
		{
			/* no merge writer at the moment: do its work */
			(void) write_out(first_sealed);
			continue;
		}
		kv_wake(kv_slot_pool->writer_latch);
		if (!ConditionVariableTimedSleep(&kv_slot_pool->freed, 1000, KV_WAIT_MERGE_SLOT))
			idle = 0;
		else if (++idle == KV_SLOT_PATIENCE)
		{
			ConditionVariableCancelSleep();
			ereport(ERROR,
					(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
					 errmsg("no merge slot has become free for %d seconds", KV_SLOT_PATIENCE),
					 errdetail("Slots may hold values of tables that could not be recovered; the server log tells."),
					 errhint("You might need to increase kvfdw.merge_buffers.")));
		}
	}
	ConditionVariableCancelSleep();
}

/*
 * Wait until every sealed slot of the shard that has a lower sequence number and
 * whose entries belong to key logs up to log_number is in its files.  No lock held.
 * ERROR if one cannot be written, or never will be because the table was dropped.
 */
void
kv_shard_drain(KvStore *store, uint32 shardno, uint32 log_number, uint64 sequence)
{
	KvShard    *shard = kv_shard(store, shardno);

	ConditionVariablePrepareToSleep(&shard->changed);
	for (;;)
	{
		int			found = -1;

		kv_interrupts();
		LWLockAcquire(&shard->lock, LW_SHARED);
		for (int i = shard->sealed_slots; i >= 0; i = kv_slots[i].next)
		{
			if (kv_slots[i].log_number <= log_number && kv_slots[i].sequence < sequence)
				found = i;
		}
		LWLockRelease(&shard->lock);
		if (found < 0)
			break;
		if (kv_slot_claim(found, false))
		{
			int			err = write_out(found);

			if (err != 0)
			{
				ConditionVariableCancelSleep();
				kv_io_error(ERROR, err, kv_path_value(&store->key, shard->files.value_file),
							"write");
			}
			continue;
		}
		if (pg_atomic_read_u32(&store->state) == KV_STORE_DROPPED)
		{
			/* nobody will write it */
			ConditionVariableCancelSleep();
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_TABLE),
					 errmsg("table was dropped")));
		}
		ConditionVariableTimedSleep(&shard->changed, 1000, KV_WAIT_MERGE_SLOT);
	}
	ConditionVariableCancelSleep();
}

/*
 * Is this slot in use for the store?  KvSlotPool.lock held.  A slot that has just
 * been opened still has the header of its former life, so only an orphan is
 * known by its header.
 */
static bool
is_slot_of(int i, const KvStoreKey *key)
{
	if (kv_slots[i].state == KV_SLOT_FREE)
		return false;
	return kv_same_store(kv_slots[i].state == KV_SLOT_ORPHAN ? &kv_slot_header(i)->store :
						 &kv_slots[i].store->key, key);
}

/*
 * Throw away the slots of a store that was dropped, all at once, since its
 * shards' lists run through them.  False, and nothing is changed, if one of
 * them is being written.
 */
bool
kv_slots_discard(const KvStoreKey *key)
{
	LWLockAcquire(&kv_slot_pool->lock, LW_EXCLUSIVE);
	for (int i = 0; i < kv_slot_pool->nslots; i++)
	{
		if (is_slot_of(i, key) && kv_slots[i].state == KV_SLOT_WRITING)
		{
			LWLockRelease(&kv_slot_pool->lock);
			return false;
		}
	}
	for (int i = 0; i < kv_slot_pool->nslots; i++)
	{
		if (!is_slot_of(i, key))
			continue;
		kv_slot_header(i)->in_use = 0;
		kv_slot_push_free(i);
	}
	LWLockRelease(&kv_slot_pool->lock);
	ConditionVariableBroadcast(&kv_slot_pool->freed);
	return true;
}

