/*
 * writer.c
 *		The background worker that writes sealed write buffers to their files.
 *
 * One process writes for all.  So a backend never has a write in flight while it waits for its
 * client, and an ERROR in a backend has no write to wait for.  The worker keeps up to
 * KV_WRITES_IN_FLIGHT direct writes in flight, but two of the largest buffers, and has sorted
 * copies of these in its memory (sort.c).  A write that fails leaves its buffer sealed, with its
 * values safe in the buffer file and readable.  It is tried again every second, and logged once
 * per minute; buffers of other stores are still written.
 *
 * Buffers of a shard at wal level 'keys' must be finished oldest first (commit.c).  Their
 * direct writes overlap nevertheless: one that ends early waits until those before it have
 * ended.
 *
 * The worker runs on demand (base/worker.h): a process that seals a buffer has it started.  It
 * ends when no buffer has been sealed for a while; failed buffers are still to be written, and
 * keep it running.  Without the worker, sessions that need a buffer write one themselves
 * (kv_buffer_wait_free), and so does redo.
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
#include "engine/buffer/internal.h"
#include "engine/format/format.h"
#include "engine/format/path.h"
#include "engine/io/fault.h"
#include "engine/io/io.h"
#include "engine/shard/shard.h"
#include "engine/buffer/buffer.h"
#include "engine/value/value.h"

#define KV_WRITES_IN_FLIGHT 32
#define KV_BYTES_IN_FLIGHT	((Size) 2 * 1024 * 1024)	/* or two of the largest buffers */
#define KV_TELL_MS			60000
#define KV_TOLD				16	/* remembered failures */

typedef struct KvBufferWrite
{
	KvIoRequest request;
	KvSorted	sorted;			/* what is written */
	int			buffer;			/* -1: unused */
	bool		ended;			/* waits for its turn */
} KvBufferWrite;

static KvBufferWrite writes[KV_WRITES_IN_FLIGHT];

static void
attend(bool here)
{
	kv_buffer_pool->writer_latch = here ? MyLatch : NULL;
}

/* Release buffers that a former writer had claimed. */
static void
take_over(void)
{
	for (int i = 0; i < kv_buffer_pool->nunits; i++)
	{
		if (kv_buffers[i].state == KV_BUFFER_WRITING && kv_buffers[i].by_writer)
			(void) kv_buffer_unclaim(i, 0);
	}
}

/* Was this error of this store's files not logged for a minute? */
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

/* After an ERROR: log it and leave the buffer to a later attempt. */
static void
give_up(int buffer, MemoryContext context)
{
	KvStoreKey	key = kv_buffers[buffer].store->key;
	ErrorData  *error;
	int			err;

	HOLD_INTERRUPTS();
	MemoryContextSwitchTo(context);
	error = CopyErrorData();
	LWLockReleaseAll();
	err = error->saved_errno != 0 ? error->saved_errno : EIO;
	if (kv_buffer_unclaim(buffer, err) && is_news(&key, err))
		EmitErrorReport();
	FlushErrorState();
	FreeErrorData(error);
	RESUME_INTERRUPTS();
}

/*
 * A direct write has ended, and it is the buffer's turn: the rest of the work is on the key
 * log.
 */
static void
finish(KvBufferWrite *write)
{
	MemoryContext context = CurrentMemoryContext;
	int			buffer = write->buffer;
	KvStoreKey	key = kv_buffers[buffer].store->key; /* the buffer may belong to another store
													  * below */
	KvFileId	file = kv_file_of(kv_buffers[buffer].base);
	int			result = write->request.result;
	volatile int err = 0;

	write->buffer = -1;
	if (result != (int) write->request.len)
	{
		/* a short direct write means a full disk or a limit */
		err = result < 0 ? -result : ENOSPC;
		if (!kv_buffer_unclaim(buffer, err))
			err = 0;
	}
	else if (!kv_buffer_is_next(buffer))
	{
		/* the write of an older buffer of the shard has failed: finish this one after that */
		(void) kv_buffer_unclaim(buffer, 0);
	}
	else
	{
		PG_TRY();
		{
			err = kv_buffer_finish(buffer, &write->sorted);
		}
		PG_CATCH();
		{
			give_up(buffer, context);
		}
		PG_END_TRY();
	}
	kv_sorted_free(&write->sorted);
	if (err != 0 && is_news(&key, err))
		kv_io_error(LOG, err, kv_path_value(&key, file), "write");
}

/* Must an earlier write be finished before this one? */
static bool
waits_for_turn(const KvBufferWrite *write)
{
	const KvWriteBuffer *buffer = &kv_buffers[write->buffer];

	if (buffer->store->shape.wal != KV_WAL_KEYS)
		return false;
	for (int w = 0; w < KV_WRITES_IN_FLIGHT; w++)
	{
		const KvWriteBuffer *other = &kv_buffers[Max(writes[w].buffer, 0)];

		if (writes[w].buffer >= 0 && other->store == buffer->store &&
			other->shard == buffer->shard && other->sequence < buffer->sequence)
			return true;
	}
	return false;
}

/* A direct write has ended: finish its buffer, and the buffers that have waited for it. */
static void
end(KvBufferWrite *write)
{
	bool		again;

	write->ended = true;
	do
	{
		again = false;
		for (int w = 0; w < KV_WRITES_IN_FLIGHT; w++)
		{
			if (writes[w].buffer >= 0 && writes[w].ended && !waits_for_turn(&writes[w]))
			{
				finish(&writes[w]);
				again = true;
			}
		}
	} while (again);
}

/* Start the direct write of a claimed buffer, or end it if there is nothing to write. */
static void
start(KvBufferWrite *write)
{
	MemoryContext context = CurrentMemoryContext;
	int			buffer = write->buffer;
	const KvStore *store = kv_buffers[buffer].store;
	volatile bool failed = false;

	PG_TRY();
	{
		kv_sorted_make(&write->sorted, buffer);
		if (write->sorted.len > 0)
			write->request.file = kv_value_file(&store->key, store->cache_id,
												kv_file_of(kv_buffers[buffer].base), 0);
	}
	PG_CATCH();
	{
		write->buffer = -1;
		kv_sorted_free(&write->sorted);
		give_up(buffer, context);
		failed = true;
	}
	PG_END_TRY();
	if (failed)
		return;
	write->request.offset = write->sorted.offset;
	write->request.len = write->sorted.len;
	write->request.buffer = write->sorted.values;
	if (write->request.len == 0)
	{
		end(write);
		return;
	}
	KV_STOP_POINT("buffer_before_write");
	kv_io_submit_write(&write->request, KV_IO_VALUE_WRITE);
}

/* Finish all writes: the next writer takes over the buffers, so none may be in flight then. */
static void
finish_all(void)
{
	while (kv_io_writes_in_flight() > 0)
		end((KvBufferWrite *) kv_io_reap_write(true)->tag);
}

/* After an ERROR: wait for writes in flight; the next writer takes over their buffers. */
static void
writer_exit(int code, Datum arg)
{
	while (kv_io_writes_in_flight() > 0)
		(void) kv_io_reap_write(true);
	attend(false);
}

/* Are enough writes in flight? */
static bool
is_busy(void)
{
	Size		bytes = 0;
	int			n = 0;

	for (int w = 0; w < KV_WRITES_IN_FLIGHT; w++)
	{
		if (writes[w].buffer < 0)
			continue;
		bytes += writes[w].request.len;
		n++;
	}
	return n == KV_WRITES_IN_FLIGHT ||
		bytes >= Max(KV_BYTES_IN_FLIGHT, (Size) kv_buffer_pool->buffer_size + 1);
}

/* Start writes for sealed buffers; true if any was started or finished at once. */
static bool
start_writes(bool retry)
{
	bool		any = false;
	int			buffer;

	if (retry)
		kv_buffers_retry();
	while (!is_busy() && (buffer = kv_buffer_claim_next()) >= 0)
	{
		KvBufferWrite *write = writes;

		while (write->buffer >= 0)
			write++;
		memset(write, 0, sizeof(*write));
		write->buffer = buffer;
		write->request.tag = write;
		any = true;
		start(write);
	}
	return any;
}

void
kv_buffer_writer_main(Datum arg)
{
	for (int w = 0; w < KV_WRITES_IN_FLIGHT; w++)
		writes[w].buffer = -1;

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
		kv_buffers_seal_idle();
		busy = start_writes(retry);
		done = kv_io_reap_write(kv_io_writes_in_flight() > 0 && (!busy || is_busy()));
		while (done != NULL)
		{
			end((KvBufferWrite *) done->tag);
			busy = true;
			done = kv_io_reap_write(false);
		}
		if (kv_worker_is_done(busy || kv_buffers_pending()))
		{
			finish_all();
			KV_STOP_POINT("writer_leaves");
			if (kv_worker_leave(attend, kv_buffers_pending))
				break;
		}
		else if (!busy)
			kv_nap(1000, KV_WAIT_IDLE);
	}
	finish_all();
	proc_exit(0);
}
