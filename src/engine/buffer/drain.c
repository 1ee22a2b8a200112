/*
 * drain.c
 *		Write buffers on their way to the files: claiming, finishing, freeing.
 *
 * bufferfile.c explains the states.  The buffer writer does this for all buffers; a process
 * that needs a buffer or a drained shard helps if it must.  Buffers of a shard at wal level
 * 'keys' are finished in their order (commit.c).
 */
#include "postgres.h"

#include "access/xlog.h"
#include "miscadmin.h"

#include "engine/base/error.h"
#include "engine/base/types.h"
#include "engine/base/wait.h"
#include "engine/base/worker.h"
#include "engine/buffer/internal.h"
#include "engine/engine.h"
#include "engine/format/format.h"
#include "engine/format/path.h"
#include "engine/io/fault.h"
#include "engine/io/io.h"
#include "engine/io/name.h"
#include "engine/maintenance.h"
#include "engine/shard/shard.h"
#include "engine/buffer/buffer.h"
#include "engine/value/value.h"

#define KV_BUFFER_PATIENCE	60	/* seconds */
#define KV_FREE_SHARE		16	/* one in so many units: if these are free, waiting processes are
								 * woken */
#define KV_SEALED_AT_ONCE	8	/* open buffers, if no unit is free */
#define KV_LOOKED_AT		16	/* of so many the best one is sealed */

/* ---- one buffer ---- */

static bool
is_pending(const KvWriteBuffer *buffer)
{
	return buffer->state == KV_BUFFER_SEALED || buffer->state == KV_BUFFER_WRITING;
}

/* KvBufferPool.lock is held. */
static void
free_buffer(int i)
{
	if (is_pending(&kv_buffers[i]))
		kv_buffer_unqueue(i);
	kv_units_free(i);
}

/*
 * Is an older buffer of its shard still to be finished?  KvBufferPool.lock is held.  For the
 * buffer writer, buffers that it is writing itself do not count.  Buffers of a shard are sealed
 * one after the other, so older ones are earlier in the list.
 */
static bool
has_older(int i, bool for_writer)
{
	for (int j = kv_buffer_pool->first_pending; j >= 0 && j != i; j = kv_buffers[j].following)
	{
		const KvWriteBuffer *buffer = &kv_buffers[j];

		if (!(buffer->state == KV_BUFFER_WRITING && for_writer && buffer->by_writer) &&
			buffer->store == kv_buffers[i].store && buffer->shard == kv_buffers[i].shard)
			return true;
	}
	return false;
}

/* Summary of the list of buffers to be written, without those of dropped stores. */
typedef struct KvPending
{
	bool		moving;			/* some are being written */
	int			sealed;			/* one that is not claimed, or -1 */
	int			error;			/* errno of one that could not be written, or 0 */
} KvPending;

/*
 * Look only as far as necessary to know whether a buffer is being written: one that has not
 * failed, nor waits for a failed one.  KvBufferPool.lock is held.
 */
static KvPending
look_at_pending(void)
{
	KvPending	pending = {.sealed = -1};

	for (int i = kv_buffer_pool->first_pending; i >= 0 && pending.sealed < 0;
		 i = kv_buffers[i].following)
	{
		const KvWriteBuffer *buffer = &kv_buffers[i];

		/* a buffer of a dropped store is not written (free_dropped) */
		if (pg_atomic_read_u32(&buffer->store->state) == KV_STORE_DROPPED)
			continue;
		if (buffer->error != 0)
			pending.error = buffer->error;
		else if (buffer->state == KV_BUFFER_WRITING)
			pending.moving = true;
		else if (buffer->store->shape.wal != KV_WAL_KEYS || !has_older(i, false))
		{
			pending.moving = true;
			pending.sealed = i;
		}
	}
	return pending;
}

void
kv_buffer_release(int i)
{
	bool		wake;

	LWLockAcquire(&kv_buffer_pool->lock, LW_EXCLUSIVE);
	free_buffer(i);
	/* waiting processes had better find some units than be woken for each */
	wake = kv_buffer_pool->nfree >= kv_buffer_pool->nunits / KV_FREE_SHARE ||
		!look_at_pending().moving;
	LWLockRelease(&kv_buffer_pool->lock);
	if (wake)
		ConditionVariableBroadcast(&kv_buffer_pool->freed);
}

/*
 * SEALED → WRITING for the caller, under KvBufferPool.lock.  False if another process has it,
 * its store was dropped, or another buffer must be finished first (commit.c).
 */
static bool
claim(int i, bool by_writer)
{
	KvWriteBuffer *buffer = &kv_buffers[i];

	if (buffer->state != KV_BUFFER_SEALED ||
		pg_atomic_read_u32(&buffer->store->state) == KV_STORE_DROPPED ||
		(buffer->store->shape.wal == KV_WAL_KEYS && has_older(i, by_writer)))
		return false;
	buffer->state = KV_BUFFER_WRITING;
	buffer->by_writer = by_writer;
	buffer->error = 0;
	return true;
}

/* SEALED to WRITING; false: another process has it, or another buffer comes first. */
static bool
lock_and_claim(int i, bool by_writer)
{
	bool		mine;

	LWLockAcquire(&kv_buffer_pool->lock, LW_EXCLUSIVE);
	mine = claim(i, by_writer);
	LWLockRelease(&kv_buffer_pool->lock);
	return mine;
}

int
kv_buffer_claim_next(void)
{
	int			i;

	if (kv_buffer_pool->first_pending < 0)
		return -1;				/* a process that seals one wakes the caller */
	LWLockAcquire(&kv_buffer_pool->lock, LW_EXCLUSIVE);
	for (i = kv_buffer_pool->first_pending; i >= 0; i = kv_buffers[i].following)
	{
		if (kv_buffers[i].error == 0 && claim(i, true))
			break;
	}
	LWLockRelease(&kv_buffer_pool->lock);
	return i;
}

void
kv_buffers_retry(void)
{
	LWLockAcquire(&kv_buffer_pool->lock, LW_EXCLUSIVE);
	for (int i = kv_buffer_pool->first_pending; i >= 0; i = kv_buffers[i].following)
		kv_buffers[i].error = 0;
	LWLockRelease(&kv_buffer_pool->lock);
}

bool
kv_buffer_is_next(int i)
{
	bool		next;

	if (kv_buffers[i].store->shape.wal != KV_WAL_KEYS)
		return true;
	LWLockAcquire(&kv_buffer_pool->lock, LW_SHARED);
	next = !has_older(i, false);
	LWLockRelease(&kv_buffer_pool->lock);
	return next;
}

bool
kv_buffer_unclaim(int i, int error)
{
	bool		dropped;

	LWLockAcquire(&kv_buffer_pool->lock, LW_EXCLUSIVE);
	dropped = pg_atomic_read_u32(&kv_buffers[i].store->state) == KV_STORE_DROPPED;
	kv_buffers[i].state = KV_BUFFER_SEALED;
	kv_buffers[i].error = dropped ? 0 : error;
	LWLockRelease(&kv_buffer_pool->lock);
	ConditionVariableBroadcast(&kv_buffer_pool->freed);
	return !dropped;
}

/* Treat this as a failed sync: earlier writes are not to be trusted. */
static int
report_lost_batch(int i)
{
	kv_io_sync_failed();
	ereport(data_sync_elevel(LOG),
			(errcode(ERRCODE_IO_ERROR),
			 errmsg("file \"%s\" does not have what was written to it", KV_BUFFER_FILE_PATH),
			 errdetail("Entries of write buffer %d do not match their checksums.", i)));
	return EIO;
}

/*
 * A replay of a buffer that is in use writes its values as they arrived, to where they are sorted
 * now.  So in_use is cleared before a flush, which drains the shard, can name them in a run.
 */
int
kv_buffer_finish(int i, const KvSorted *sorted)
{
	KvWriteBuffer *buffer = &kv_buffers[i];
	KvStore    *store = buffer->store;
	KvShard    *shard = kv_shard(store, buffer->shard);
	int		   *link;
	int			err;

	KV_STOP_POINT("buffer_before_log");
	err = sorted->memory != NULL || kv_buffer_has_batch(i) ?
		kv_log_append(&store->key, buffer->shard, buffer->log_number, buffer->log_offset,
					  sorted->batch) :
		report_lost_batch(i);
	if (err != 0)
	{
		kv_buffer_unclaim(i, err);
		return err;
	}
	pg_atomic_fetch_add_u64(&shard->buffers.writes, 1);
	if (store->shape.wal == KV_WAL_KEYS && !RecoveryInProgress())
		kv_commit_log_batch(i, sorted);
	KV_STOP_POINT("buffer_before_free");
	kv_sorted_keep(sorted, i);
	kv_stat_add(store, KV_COUNT_DEVICE_WRITE_BYTES, buffer->capacity);
	kv_buffer_header(i)->in_use = 0;
	KV_STOP_POINT("buffer_before_relocate");
	kv_sorted_relocate(sorted, i);

	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	for (link = &shard->buffers.sealed; *link != i; link = &kv_buffers[*link].next)
		;
	*link = buffer->next;
	LWLockRelease(&shard->lock);

	/* before the release, after which a dropped store may be removed */
	ConditionVariableBroadcast(&shard->changed);
	kv_buffer_release(i);
	return 0;
}

/* Write out a claimed buffer in the calling process.  0 or an errno. */
static int
write_out(int i)
{
	KvWriteBuffer *buffer = &kv_buffers[i];
	KvSorted	sorted = {0};
	volatile int err = 0;

	PG_TRY();
	{
		kv_sorted_make(&sorted, i);
		if (sorted.len > 0)
			err = kv_io_try_write(kv_value_file(&buffer->store->key, buffer->store->cache_id,
												kv_file_of(buffer->base), 0),
								  sorted.values, sorted.len, sorted.offset, KV_IO_VALUE_WRITE);
		if (err != 0)
			kv_buffer_unclaim(i, err);
		else
			err = kv_buffer_finish(i, &sorted);
	}
	PG_CATCH();
	{
		/* a file could not be opened */
		kv_buffer_unclaim(i, EIO);
		kv_sorted_free(&sorted);
		PG_RE_THROW();
	}
	PG_END_TRY();
	kv_sorted_free(&sorted);
	return err;
}

/* ---- open buffers that are sealed before they are full ---- */

/*
 * Seal an open buffer, if it still is one, so that it can be written and its units used again.
 * The store is pinned; no lock is held.
 */
static void
seal_open_buffer(int i, KvStore *store, uint32 shard_id)
{
	KvShard    *shard = kv_shard(store, shard_id);

	KV_STOP_POINT("evict_pinned");
	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	if (shard->buffers.open == i)
		kv_buffer_seal(store, shard_id);
	LWLockRelease(&shard->lock);
	pg_atomic_fetch_sub_u32(&store->pins, 1);
}

/* Are so many buffers waiting to be written?  KvBufferPool.lock is held. */
static bool
are_pending(int n)
{
	for (int i = kv_buffer_pool->first_pending; i >= 0 && n > 0; i = kv_buffers[i].following)
	{
		if (pg_atomic_read_u32(&kv_buffers[i].store->state) != KV_STORE_DROPPED)
			n--;
	}
	return n == 0;
}

/*
 * Look at the next so many open buffers, and pin the store of one of them.  It is the first
 * that has got no value since the last look; else, unless idle_only, the one with the most
 * values.  All processes continue where the last one has ended.  -1: none.
 */
static int
pick_open_buffer(int looks, bool idle_only, KvStore **store, uint32 *shard_id)
{
	int			best = -1;
	bool		idle = false;

	LWLockAcquire(&kv_buffer_pool->lock, LW_EXCLUSIVE);
	for (int passed = 0; passed < kv_buffer_pool->nunits && looks > 0 && !idle;)
	{
		int			i = (kv_buffer_pool->hand +
						 Max(kv_buffers[kv_buffer_pool->hand].units, 1)) % kv_buffer_pool->nunits;
		KvWriteBuffer *buffer = &kv_buffers[i];

		passed += Max(buffer->units, 1);
		kv_buffer_pool->hand = i;
		/* a buffer of a dropped store is freed, not sealed (free_dropped) */
		if (buffer->state != KV_BUFFER_OPEN ||
			pg_atomic_read_u32(&buffer->store->state) == KV_STORE_DROPPED)
			continue;
		looks--;
		idle = !buffer->touched;
		if (idle || (!idle_only && (best < 0 || buffer->value_used > kv_buffers[best].value_used)))
			best = i;
		buffer->touched = false;
	}
	if (best >= 0)
	{
		*store = kv_buffers[best].store;
		*shard_id = kv_buffers[best].shard;
		pg_atomic_fetch_add_u32(&(*store)->pins, 1);
	}
	LWLockRelease(&kv_buffer_pool->lock);
	return best;
}

/*
 * No unit is free and no buffer is being written: seal some; all waiting processes together
 * seal a few.  False: there was none.
 */
static bool
evict_open_buffers(void)
{
	int			n = Min(Max(kv_buffer_pool->nunits / 64, 1), KV_SEALED_AT_ONCE);
	KvStore    *store;
	uint32		shard_id;
	int			buffer;
	bool		any = false;
	bool		enough = false;

	for (int i = 0; i < n && !enough; i++)
	{
		buffer = pick_open_buffer(KV_LOOKED_AT, false, &store, &shard_id);
		if (buffer < 0)
			break;
		seal_open_buffer(buffer, store, shard_id);
		LWLockAcquire(&kv_buffer_pool->lock, LW_SHARED);
		enough = are_pending(n);
		any = are_pending(1);
		LWLockRelease(&kv_buffer_pool->lock);
	}
	return any;
}

void
kv_buffers_seal_idle(void)
{
	KvStore    *store;
	uint32		shard_id;
	int			buffer;

	for (uint32 n = pg_atomic_exchange_u32(&kv_buffer_pool->crowded, 0); n > 0; n--)
	{
		buffer = pick_open_buffer(1, true, &store, &shard_id);
		if (buffer >= 0)
			seal_open_buffer(buffer, store, shard_id);
	}
}

/* ---- buffers of dropped stores ---- */

/*
 * The first buffer of a dropped store, from number from on, that is open or still to be
 * written.  Its store is pinned, which keeps the store but not the buffer.  -1: there is none.
 * *writing: one is being written.
 */
static int
find_dropped(int from, KvStore **store, uint32 *shard_id, bool *writing)
{
	int			i;

	LWLockAcquire(&kv_buffer_pool->lock, LW_EXCLUSIVE);
	for (i = from; i < kv_buffer_pool->nunits; i += Max(kv_buffers[i].units, 1))
	{
		const KvWriteBuffer *buffer = &kv_buffers[i];

		if (buffer->state != KV_BUFFER_OPEN && buffer->state != KV_BUFFER_SEALED &&
			buffer->state != KV_BUFFER_WRITING)
			continue;
		if (pg_atomic_read_u32(&buffer->store->state) != KV_STORE_DROPPED)
			continue;
		if (buffer->state != KV_BUFFER_WRITING)
			break;
		*writing = true;
	}
	if (i < kv_buffer_pool->nunits)
	{
		*store = kv_buffers[i].store;
		*shard_id = kv_buffers[i].shard;
		pg_atomic_fetch_add_u32(&(*store)->pins, 1);
	}
	LWLockRelease(&kv_buffer_pool->lock);
	return i < kv_buffer_pool->nunits ? i : -1;
}

/*
 * A process uses no buffer that it does not find in its shard, so this is right even if other
 * processes have pinned the store.  False: there was none.
 */
static bool
free_buffers_of(KvShard *shard)
{
	int        *link = &shard->buffers.sealed;
	bool		any = false;

	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	LWLockAcquire(&kv_buffer_pool->lock, LW_EXCLUSIVE);
	while (*link >= 0)
	{
		int			i = *link;

		if (kv_buffers[i].state != KV_BUFFER_SEALED)
		{
			link = &kv_buffers[i].next;
			continue;
		}
		*link = kv_buffers[i].next;
		kv_buffer_header(i)->in_use = 0;
		free_buffer(i);
		any = true;
	}
	if (shard->buffers.open >= 0)
	{
		any = true;
		kv_buffer_header(shard->buffers.open)->in_use = 0;
		free_buffer(shard->buffers.open);
		shard->buffers.open = -1;
	}
	LWLockRelease(&kv_buffer_pool->lock);
	LWLockRelease(&shard->lock);
	ConditionVariableBroadcast(&shard->changed);
	return any;
}

/*
 * Free buffers of dropped stores, except those that are being written.  Their contents are not
 * needed, and the maintainer, which removes the stores, may be busy for long, or another
 * process may have pinned them.  So a process that needs a buffer frees them.  False: there
 * were none.
 */
static bool
free_dropped(void)
{
	static uint32 without = 0;	/* there were no such buffers after so many drops */
	uint32		drops = pg_atomic_read_u32(&kv_buffer_pool->drops);
	KvStore    *store = NULL;
	uint32		shard_id = 0;
	bool		left = false;
	bool		any = false;

	if (drops == without)
		return false;
	for (int i = 0; (i = find_dropped(i, &store, &shard_id, &left)) >= 0; i++)
	{
		left = true;
		KV_STOP_POINT("dropped_pinned");
		any |= free_buffers_of(kv_shard(store, shard_id));
		pg_atomic_fetch_sub_u32(&store->pins, 1);
	}
	if (!left)
		without = drops;
	if (any)
		ConditionVariableBroadcast(&kv_buffer_pool->freed);
	return any;
}

/* ---- waiting ---- */

bool
kv_buffer_ask_free(const KvStore *store, Size len)
{
	KvPending	pending;
	bool		free;

	LWLockAcquire(&kv_buffer_pool->lock, LW_EXCLUSIVE);
	free = kv_units_are_free(kv_buffer_units(len), kv_units_kept(store));
	pending = look_at_pending();
	LWLockRelease(&kv_buffer_pool->lock);
	if (!free && !pending.moving && !free_dropped() && pending.error == 0)
		(void) evict_open_buffers();
	kv_buffers_wake_writer();
	if (!free && pending.sealed >= 0 && !kv_worker_is_coming(KV_WORKER_BUFFER_WRITER) &&
		lock_and_claim(pending.sealed, false))
		(void) write_out(pending.sealed);	/* there is no buffer writer, and no place for one */
	return free || kv_buffer_units(len) == 1;
}

/*
 * A buffer of several units may never become available, if free units are not adjacent and
 * other processes take the freed ones.  So for such a buffer this waits only once, if that can
 * help at all.
 */
bool
kv_buffer_wait_free(const KvStore *store, Size len)
{
	bool		several = kv_buffer_units(len) > 1;
	bool		waited = false;
	int			idle = 0;

	ConditionVariablePrepareToSleep(&kv_buffer_pool->freed);
	for (;;)
	{
		KvPending	pending;
		bool		free;
		bool		apart;

		kv_interrupts();
		LWLockAcquire(&kv_buffer_pool->lock, LW_EXCLUSIVE);
		free = kv_units_are_free(kv_buffer_units(len), kv_units_kept(store));
		pending = look_at_pending();
		apart = several && !pending.moving && pending.error == 0 &&
			kv_buffer_pool->nfree > kv_units_kept(store);
		LWLockRelease(&kv_buffer_pool->lock);
		if (free || apart || (several && waited))
		{
			ConditionVariableCancelSleep();
			return free;
		}
		if ((!pending.moving || idle > 0) && free_dropped())
			continue;
		if (!pending.moving && pending.error == 0)
		{
			/* there is no buffer writer at the moment, and no other process writes them */
			if (evict_open_buffers() && kv_buffer_pool->writer_latch == NULL)
				continue;
		}
		else if (!pending.moving)
		{
			ConditionVariableCancelSleep();
			kv_io_error(ERROR, pending.error, KV_BUFFER_FILE_PATH, "empty");
		}
		else if (kv_buffer_pool->writer_latch == NULL && pending.sealed >= 0 &&
				 lock_and_claim(pending.sealed, false))
		{
			/* there is no buffer writer either: do its work */
			(void) write_out(pending.sealed);
			continue;
		}
		kv_buffers_wake_writer();
		waited = true;
		if (!ConditionVariableTimedSleep(&kv_buffer_pool->freed, 1000, KV_WAIT_WRITE_BUFFER))
			idle = 0;
		else if (++idle % (kv_fault_skips("buffer_patience") ? 2 : KV_BUFFER_PATIENCE) == 0)
		{
			bool		redo = AmStartupProcess();

			if (!redo)
				ConditionVariableCancelSleep();
			ereport(redo ? LOG : ERROR,
					(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
					 errmsg("no write buffer has become free for %d s", idle),
					 errdetail("Write buffers hold values of tables that could not be recovered or "
							   "written. The server log names these tables."),
					 errhint("You might need to increase \"kvfdw.write_buffers\".")));
		}
	}
}

void
kv_shard_drain(KvStore *store, uint32 shard_id, uint32 log_number, uint64 sequence)
{
	KvShard    *shard = kv_shard(store, shard_id);

	ConditionVariablePrepareToSleep(&shard->changed);
	for (;;)
	{
		int			found = -1;

		kv_interrupts();
		LWLockAcquire(&shard->lock, LW_SHARED);
		for (int i = shard->buffers.sealed; i >= 0; i = kv_buffers[i].next)
		{
			if (kv_buffers[i].log_number <= log_number && kv_buffers[i].sequence < sequence)
				found = i;
		}
		LWLockRelease(&shard->lock);
		if (found < 0 && pg_atomic_read_u32(&store->state) != KV_STORE_DROPPED)
			break;
		if (found >= 0 && lock_and_claim(found, false))
		{
			KvFileId	file = kv_file_of(kv_buffers[found].base);
			int			err = write_out(found);

			if (err != 0)
			{
				ConditionVariableCancelSleep();
				kv_io_error(ERROR, err, kv_path_value(&store->key, file), "write");
			}
			continue;
		}
		if (pg_atomic_read_u32(&store->state) == KV_STORE_DROPPED)
		{
			/* no process will write it, or it is free already (free_dropped) */
			ConditionVariableCancelSleep();
			kv_raise_dropped(store->key.dboid, store->key.relid);
		}
		ConditionVariableTimedSleep(&shard->changed, 1000, KV_WAIT_WRITE_BUFFER);
	}
	ConditionVariableCancelSleep();
}

/*
 * Is this buffer in use for the store?  KvBufferPool.lock is held.  A buffer that has just been
 * opened still has its previous header, so only an orphan is identified by its header.
 */
static bool
is_buffer_of(int i, const KvStoreKey *key)
{
	if (kv_buffers[i].state == KV_BUFFER_FREE || kv_buffers[i].state == KV_BUFFER_PART)
		return false;
	return kv_same_store(kv_buffers[i].state == KV_BUFFER_ORPHAN ? &kv_buffer_header(i)->store :
						 &kv_buffers[i].store->key, key);
}

/*
 * All buffers at once, since its shards' lists link them; and while no process can pin the
 * store for one of its buffers, which is done under this lock.
 */
bool
kv_buffers_discard(const KvStoreKey *key, const KvStore *store)
{
	LWLockAcquire(&kv_buffer_pool->lock, LW_EXCLUSIVE);
	if (store != NULL && pg_atomic_read_u32(unconstify(pg_atomic_uint32 *, &store->pins)) > 0)
	{
		LWLockRelease(&kv_buffer_pool->lock);
		return false;
	}
	for (int i = 0; i < kv_buffer_pool->nunits; i++)
	{
		if (is_buffer_of(i, key) && kv_buffers[i].state == KV_BUFFER_WRITING)
		{
			LWLockRelease(&kv_buffer_pool->lock);
			return false;
		}
	}
	for (int i = 0; i < kv_buffer_pool->nunits; i++)
	{
		if (!is_buffer_of(i, key))
			continue;
		kv_buffer_header(i)->in_use = 0;
		free_buffer(i);
	}
	LWLockRelease(&kv_buffer_pool->lock);
	ConditionVariableBroadcast(&kv_buffer_pool->freed);
	return true;
}

