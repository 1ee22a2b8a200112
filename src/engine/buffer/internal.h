/*
 * internal.h
 *		Units, the parts of a buffer, and the steps in which one is written, as the files of this
 *		module share them.
 *
 * Locks and errors are those of buffer.h.
 */
#ifndef KV_BUFFER_INTERNAL_H
#define KV_BUFFER_INTERNAL_H

#include "engine/base/types.h"
#include "engine/buffer/buffer.h"
#include "engine/cache/cache.h"
#include "engine/format/format.h"
#include "engine/shard/shard.h"

/*
 * ---- bufferfile.c: units ----
 * KvBufferPool.lock is held, exclusively unless a comment says otherwise.
 */
extern Size kv_buffer_share(void);	/* no lock: maximum bytes of values of a buffer opened now */
/*
 * The number of units that the store may not use.  At level 'none' values in buffers are nowhere
 * else, so buffers of a dead server are in use until recovery of their store, which follows redo.
 * Redo needs buffers for the other stores.
 */
extern int	kv_units_kept(const KvStore *store);
/* Are there so many adjacent free units, in addition to those that are kept? */
extern bool kv_units_are_free(int units, int kept);
/*
 * Makes so many adjacent units an OPEN buffer; if there are none, fewer, but at least least.  -1:
 * there are not that many.
 */
extern int	kv_units_take(int wanted, int least, int kept);
/* Frees the units of a buffer that is in no list. */
extern void kv_units_free(int buffer);
/* OPEN to SEALED, at the end of the list to be written; before it is freed, off that list. */
extern void kv_buffer_queue(int buffer);
extern void kv_buffer_unqueue(int buffer);

/* ---- bufferfile.c: the file ---- */
extern KvLogBatch *kv_buffer_batch(int buffer); /* in the mapped file, before its entries */
extern Size kv_buffer_entry_room(int buffer); /* capacity for entries, in bytes */
/* The number of units of a buffer with so many bytes of values. */
extern int	kv_buffer_units(Size capacity);
/* A bit for each entry that a PUT has logged (buffer/commit.c).  Guarded by the shard's lock. */
extern uint64 *kv_buffer_logged(int buffer);
/* Clears these bits; the buffer's units are known. */
extern void kv_buffer_clear_logged(int buffer);
/* The right values of open_crc and seal_crc; they are not stored. */
extern uint32 kv_buffer_open_crc(const KvBufferHeader *header);
extern uint32 kv_buffer_seal_crc(const KvBufferHeader *header);
/*
 * Calls visit for each buffer in the file that is in use and has a sound header.  Passes its
 * entries and their capacity, as far as these can be read.  Needs no mapping.  In the postmaster.
 */
extern void kv_buffers_visit_file(void (*visit) (const KvBufferHeader *buffer, const char *entries,
												 Size room));

/* ---- fill.c ---- */
/*
 * The shard's buffer after one, open and sealed ones in no order; i < 0: the first.  -1: there is
 * none.  Lock held.
 */
extern int	kv_shard_buffer(const KvShard *shard, int i);
/* Has the buffer values that are not KV_COLD?  And the heat of a block at an offset. */
extern bool kv_buffer_is_hot(int buffer);
extern KvHeat kv_buffer_block_heat(int buffer, uint32 at);
/*
 * Completes the buffer's value image, batch head and header, and marks it sealed.  log_offset is
 * reserved already.  The caller changes its state.
 */
extern void kv_buffer_seal_image(int buffer, uint32 value_bytes, uint32 entry_bytes,
								 uint32 nentries, uint64 log_offset);

/*
 * What is written of a buffer: values for the value file and entries for the key log, by key.  If
 * there is no memory, or the buffer is not to be sorted, they are those of the buffer.
 */
typedef struct KvSorted
{
	char	   *values;			/* page-aligned */
	uint32		len;			/* 0: there are no values */
	uint64		offset;			/* in the value file */
	KvLogBatch *batch;
	void	   *memory;			/* of all this; NULL: it is in the buffer */
	struct KvSortItem *items;
	uint8	   *heat;			/* KvHeat of each block */
	bool		hot;			/* some are not KV_COLD */
} KvSorted;

/* ---- sort.c; no lock is held ---- */
/*
 * Of a buffer that the caller has claimed: sorts it, in memory of this process that lasts until
 * kv_sorted_free.  ERROR only if a former attempt has got beyond kv_sorted_relocate's begin, and
 * there is no memory.
 */
extern void kv_sorted_make(KvSorted *sorted, int buffer);
extern void kv_sorted_free(KvSorted *sorted);
/* The number, by arrival, of the nth entry of the batch. */
extern uint32 kv_sorted_arrival(const KvSorted *sorted, uint32 n);
/*
 * Does the buffer file have the batch that was sealed?  Values have CRCs in their entries, which
 * readers check.
 */
extern bool kv_buffer_has_batch(int buffer);
/*
 * After it is written: puts its values into the recent ring or, if so marked, into the value cache.
 * If it is full because of one bulk load, cold values are not put.
 */
extern void kv_sorted_keep(const KvSorted *sorted, int buffer);
/*
 * The values and the batch are in their files: gives the buffer's versions in the memtable their
 * new locations.  Takes the shard's lock.
 */
extern void kv_sorted_relocate(const KvSorted *sorted, int buffer);

/* ---- drain.c ---- */
/*
 * SEALED to WRITING, for the buffer writer: the oldest buffer that may be written and has not
 * failed since kv_buffers_retry; -1: there is none.
 */
extern int	kv_buffer_claim_next(void);
/* Allows one more attempt for each buffer that could not be written. */
extern void kv_buffers_retry(void);
/* No lock held: the buffer writer's check for buffers that no process fills any more. */
extern void kv_buffers_seal_idle(void);
/* Of a claimed buffer; false: an older one of its shard must be finished first (commit.c). */
extern bool kv_buffer_is_next(int buffer);
/* WRITING to SEALED; false: its store was dropped with its files, so it is no failure. */
extern bool kv_buffer_unclaim(int buffer, int error);
/*
 * After the values are in their value file as sorted: logs the buffer's entries and frees it.
 * Returns 0, or an errno: it is SEALED again.  If the buffer file does not have the entries that
 * were put into it: PANIC, or EIO, by data_sync_retry.
 */
extern int	kv_buffer_finish(int buffer, const KvSorted *sorted);
extern void kv_buffer_release(int buffer); /* frees it, and wakes processes that wait for one */

/* ---- commit.c ---- */
/* logs the entries of a buffer that no PUT has; its values are in its value file as sorted */
extern void kv_commit_log_batch(int i, const KvSorted *sorted);

#endif							/* KV_BUFFER_INTERNAL_H */
