/*
 * wait.h
 *		Waiting: wait events, interrupts during waits, and wake-ups.
 *
 * Locks: none.  Wake-ups may be called with any lock held.  The interrupt functions raise ERROR
 * when the process is told to stop, so they are not called while a lock is held.
 */
#ifndef KV_WAIT_H
#define KV_WAIT_H

#include "storage/latch.h"

#include "compat.h"

/* ---- wait events ---- */
#define KV_WAIT_WRITE_BUFFER	KV_WAIT_EVENT(kv_wait_write_buffer, "KvfdwWriteBuffer")
#define KV_WAIT_RECOVERY	KV_WAIT_EVENT(kv_wait_recovery, "KvfdwRecovery")
#define KV_WAIT_FLUSH		KV_WAIT_EVENT(kv_wait_flush, "KvfdwFlush")
#define KV_WAIT_COMPACT		KV_WAIT_EVENT(kv_wait_compact, "KvfdwCompaction")
#define KV_WAIT_SPACE		KV_WAIT_EVENT(kv_wait_space, "KvfdwSpace")
#define KV_WAIT_PACE		KV_WAIT_EVENT(kv_wait_pace, "KvfdwPace")
#define KV_WAIT_MEMORY		KV_WAIT_EVENT(kv_wait_memory, "KvfdwMemtableMemory")
#define KV_WAIT_IDLE		KV_WAIT_EVENT(kv_wait_idle, "KvfdwWorkerMain")
#define KV_WAIT_CHECKPOINTER		KV_WAIT_EVENT(kv_wait_checkpointer, "KvfdwCheckpointer")
#define KV_WAIT_SPLIT		KV_WAIT_EVENT(kv_wait_split, "KvfdwSplit")
#define KV_WAIT_RANGE		KV_WAIT_EVENT(kv_wait_range, "KvfdwRangeWindow")
extern uint32 kv_wait_write_buffer, kv_wait_recovery, kv_wait_flush, kv_wait_compact, kv_wait_space,
	kv_wait_pace,
			kv_wait_memory, kv_wait_idle, kv_wait_checkpointer, kv_wait_range, kv_wait_split;

/* kv_interrupts for work that the maintainer does too: if told to exit, raises ERROR. */
extern void kv_maintenance_interrupts(void);
/* CHECK_FOR_INTERRUPTS that also serves the startup process. */
extern void kv_interrupts(void);
/* Sleeps until the process's latch is set, or for so long, and resets the latch. */
extern void kv_nap(long ms, uint32 wait_event);
extern void kv_wake(Latch *latch);	/* a worker's latch; NULL: it does not run, and nothing
									 * happens */
extern void kv_wake_maintainer(void);	/* does nothing while the maintainer does not run */

#endif							/* KV_WAIT_H */
