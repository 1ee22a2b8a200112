/*
 * buffer.h
 *		Write buffers: where a new value and its entry are until they are in files.
 *
 * The shard's lock guards a buffer's contents, KvBufferPool.lock its state, the free units
 * and the list of buffers that are to be written; it comes last.  What opens, fills, seals
 * and finds is called with the shard's lock held; what waits, with none.  While a value
 * file cannot be written, whoever needs a buffer gets an ERROR; what is in buffers stays
 * readable.
 *
 * Sizes.  The buffer file, of kvfdw.write_buffers, is cut into units of 16 kB for values
 * and 4 kB for entries.  A buffer is one unit or several that lie side by side, and goes by
 * the number of the first.  It gets what its first value needs, at least; else the least of
 *		kvfdw.write_buffer_size;
 *		a quarter of its shard's values, and what is left of the open value file;
 *		its share: three quarters of all units, divided by the open buffers;
 *		what of that lies side by side.
 * So each of the shards that are being written has a buffer, as long as there are units, and
 * a quarter of the units is left to buffers that are on their way to the files.  A value that
 * needs several units, and does not find them side by side, becomes a large value (write.c).
 *
 * Who takes a buffer from whom. Nobody takes units from a buffer, but for those of a dropped store,
 * which are freed by the maintainer
 * when it removes the store, and before that by who finds no units.  Open buffers are sealed
 * before they are full,
 *		by those who find no units while nothing is on its way to the files: a few,
 *		beginning where the one before has ended;
 *		by the buffer writer, one look for each buffer that was opened smaller than
 *		kvfdw.write_buffer_size and its file would have it: those into which nothing was put since
 *		the last look.  So the shares of shards that are not written any more come back.
 * Neither changes what is durable when: a buffer may be sealed at any time.
 *
 * Killed at any moment, the file has, of each buffer,
 *		before in_use is stored		a header that says free: its units are
 *		behind it					an open buffer: its entries up to the first without CRC count.
 *									Its units follow from its capacity, which open_crc covers
 *		before sealed is stored		the same
 *		behind it					a sealed buffer, which is written again, to the same places
 *		behind in_use = 0			a header that says free
 * A unit's header is in a place of its own, where no value or entry is ever stored, and
 * that of a unit in the middle of a buffer says free, as it did when the buffer was opened.
 */
#ifndef KV_BUFFER_H
#define KV_BUFFER_H

#include "storage/latch.h"

#include "engine/base/types.h"
#include "engine/cache/cache.h"
#include "engine/format/format.h"
#include "engine/shard/shard.h"

#define KV_MAGIC_BUFFER_FILE		0x4b564d47 /* "KVMG" */
#define KV_MAGIC_BUFFER		0x4b56534c	/* "KVSL" */

typedef enum KvBufferState
{
	KV_BUFFER_FREE = 0,
	KV_BUFFER_PART,				/* a unit of the buffer that begins before it */
	KV_BUFFER_OPEN,
	KV_BUFFER_SEALED,
	KV_BUFFER_WRITING,			/* sealed, and the buffer writer is at it */
	KV_BUFFER_ORPHAN			/* left by an earlier incarnation; its store's
								 * recovery will replay and free it */
} KvBufferState;

/* Persistent; each unit has one. */
typedef struct KvBufferHeader
{
	uint32		magic;
	uint32		in_use;			/* 0: free; stored last when opening */
	uint64		sequence;		/* never repeats; seeds the entries' CRCs */
	KvStoreKey	store;
	uint32		shard;
	uint32		incarnation;
	uint32		volume;			/* where the value area goes, … */
	uint64		base;			/* … and where in it */
	uint32		capacity;		/* bytes of it that are ours */
	uint32		log_number;
	uint32		open_crc;		/* of all above but in_use */
	uint32		sealed;			/* 1: the fields below hold; stored last */
	uint64		log_offset;
	uint32		nentries;
	uint32		entry_bytes;
	uint32		value_bytes;
	uint32		seal_crc;
	uint8		pad[128 - 88];
} KvBufferHeader;

StaticAssertDecl(sizeof(KvBufferHeader) == 128, "write buffer header size");

/* Shared-memory side of a unit, and of the buffer that begins with it. */
typedef struct KvWriteBuffer
{
	int			state;			/* KvBufferState; changes under KvBufferPool.lock, as do … */
	int			units;			/* how many the buffer or row has that begins here; or 0 */
	int			following;		/* in the list of buffers to be written, or of rows of free … */
	int			previous;		/* … units; or -1 */

	int			next;			/* in its shard's sealed list, or -1 */
	KvStore    *store;
	uint32		shard;
	KvAddress	base;			/* where the value area goes */
	uint32		capacity;
	uint32		log_number;
	uint32		value_used;		/* guarded by the shard's lock */
	uint32		entry_used;
	uint32		nentries;
	uint64		sequence;
	uint64		log_offset;		/* where its batch goes; if sealed */
	/* where its values are that are not KV_COLD: a bit for so many bytes … */
	uint64		hot;
	uint64		cached;			/* … and that are KV_CACHED */
	bool		touched;		/* something was put into it since somebody looked */
	/* buffer/commit.c: what no PUT has logged is being logged by location */
	bool		batch_taken;

	int			error;			/* errno of its last write; 0: fine, or to be tried again */
	bool		by_writer;		/* WRITING: the buffer writer has it */
} KvWriteBuffer;

#define KV_UNIT_LISTS		256		/* the last one: of rows of so many units and more */

#define KV_BUFFER_FILE_PATH	KV_DIRECTORY "/buffers"

static inline KvAddress
kv_buffer_base(const KvBufferHeader *header)
{
	return kv_volume_begin(header->volume) + header->base;
}

typedef enum KvValueHome
{
	KV_IN_BUFFER,				/* the buffer gives the value its place */
	KV_IN_LARGE_VALUE,			/* it has its place, … */
	KV_PLACED					/* … and the version's CRC is complete */
} KvValueHome;

typedef struct KvBufferPool
{
	LWLock		lock;			/* of buffer states, free units and the list of pending buffers */
	int			nunits;
	/* the file is of version 1: a buffer is one unit, whatever it needs */
	bool		whole;
	uint32		unit_values;	/* bytes of a unit's value area */
	uint32		unit_entries;	/* … and of what it has for batch head and entries */
	uint32		buffer_size;	/* bytes of values that a buffer can have */
	int			nfree;			/* units */
	/* units that became part of a buffer, since somebody has set it to 0 … */
	uint64		entered;
	uint64		used_then;		/* … when so many were */
	int			rows[KV_UNIT_LISTS];	/* of free units: lists, by how many they have, or -1 */
	bool		joined;			/* no two rows are neighbours */
	int			nopen;			/* buffers */
	int			hand;			/* where to look for a buffer to seal */
	int			first_pending;	/* buffers that are sealed or being written, by when they … */
	int			last_pending;	/* … were sealed; -1: there is none */
	pg_atomic_uint32 crowded;	/* buffers opened for want of units smaller than they could be */
	pg_atomic_uint32 drops;		/* how often stores were dropped */
	pg_atomic_uint64 sequence;
	ConditionVariable freed;
	Latch      *writer_latch;	/* NULL while the buffer writer does not run */
} KvBufferPool;

/* ---- unit.c: KvBufferPool.lock is held, exclusive but where it is said ---- */
extern Size kv_buffer_share(void);	/* no lock: bytes of values that a buffer opened now may have */
/*
 * How many units the store may not have. At level 'none' what is in buffers is nowhere else, so
 * those that a dead server has left are in use until their store is recovered, which is behind
 * redo; and redo needs buffers for the others.
 */
extern int	kv_units_kept(const KvStore *store);
/* Are there so many units side by side, besides those that are kept? */
extern bool kv_units_are_free(int units, int kept);
/*
 * Make so many units that lie side by side an OPEN buffer; if there are none, fewer, but
 * least at least.  -1: nor are there so many.
 */
extern int	kv_units_take(int wanted, int least, int kept);
/* Give a buffer's units free; it is in no list. */
extern void kv_units_free(int buffer);
/* Make rows of all units that are FREE. */
extern void kv_units_join(void);
/* OPEN to SEALED, behind all that are to be written; and, before it is freed, off that list. */
extern void kv_buffer_queue(int buffer);
extern void kv_buffer_unqueue(int buffer);

/* Counts of units, and how many bytes of values they can have; takes the lock. */
extern void kv_buffers_stats(KvTierRow *row);
extern void kv_buffers_stats_reset(void);

/* ---- bufferfile.c ---- */
extern KvBufferPool *kv_buffer_pool;
extern KvWriteBuffer *kv_buffers;
/* What engine/start.c calls: settings, and the pool and its buffers in shared memory. */
extern void kv_buffers_gucs(void);
extern void kv_buffers_init(void);
extern Size kv_buffers_memory(void);
extern void kv_buffers_attach(void);
/*
 * In the postmaster, after kv_incarnation_startup: maps the file, made if need be, and
 * notes what an earlier incarnation left in it.
 */
extern void kv_buffers_start(void);
/* No lock: is something to be done for the buffer writer? */
extern bool kv_buffers_pending(void);
/* Any lock: there may be something; has it started if it does not run. */
extern void kv_buffers_wake_writer(void);
/* A buffer's value area and its header in the file that kv_buffers_start maps. */
extern char *kv_buffer_values(int buffer);
extern KvBufferHeader *kv_buffer_header(int buffer);
extern KvLogBatch *kv_buffer_batch(int buffer); /* in the mapped file, before its entries */
extern char *kv_buffer_entries(int buffer); /* behind the batch head … */
extern Size kv_buffer_entry_room(int buffer); /* … and how many bytes of them it can have */
/* How many units a buffer of so many bytes of values has. */
extern int	kv_buffer_units(Size capacity);
/* Bits, one per entry: a PUT has logged it (buffer/commit.c).  Guarded by the shard's lock. */
extern uint64 *kv_buffer_logged(int buffer);
/* Set them to 0; the buffer's units are known. */
extern void kv_buffer_clear_logged(int buffer);
/* What open_crc and seal_crc must be; they are not changed. */
extern uint32 kv_buffer_open_crc(const KvBufferHeader *header);
extern uint32 kv_buffer_seal_crc(const KvBufferHeader *header);
/*
 * Call visit for each buffer in the file that is in use and has a sound header, with its
 * entries and the room that they have, as far as that can be read.  Nothing need be
 * mapped.  In the postmaster.
 */
extern void kv_buffers_visit_file(void (*visit) (const KvBufferHeader *buffer, const char *entries,
												 Size room));
/* Is there a buffer file of ours that can be read?  Reads all of it.  In the postmaster. */
extern bool kv_buffers_are_sound(void);

/* ---- fill.c ---- */
/* Has the open buffer room for one more value and entry? */
extern bool kv_buffer_fits(const KvShard *shard, Size len, int keylen);
/* Is a buffer for a value of len one unit, or are there as many side by side as it needs? */
extern bool kv_buffer_can_open(const KvStore *store, Size len);
/* Bytes of the value file that a buffer for this shard should cover. */
extern Size kv_buffer_capacity(const KvShard *shard, Size len);
/*
 * Shard's lock, exclusive: gives it an open buffer for a value of len.  So many bytes as
 * kv_buffer_capacity has just said are allocated behind the value tail.  False: there are no
 * units.
 */
extern bool kv_buffer_open(KvStore *store, uint32 shard_id, Size len);
/* Shard's lock, exclusive: hands its open buffer, even an empty one, to the buffer writer. */
extern void kv_buffer_seal(KvStore *store, uint32 shard_id);
/*
 * Shard's lock, exclusive: puts an entry, and a value that has no place yet, into the open
 * buffer, which fits them.  Completes the version's location and the CRC that
 * kv_value_crc_begin gave.
 */
extern void kv_buffer_put(KvStore *store, KvShard *shard, KvKey key, KvVersion *version,
						  KvForm form, const char *value, uint32 crc, KvValueHome placing);
/*
 * The shard's buffer behind one, open and sealed ones in no order; i < 0: the first. -1: there is
 * none. Lock held.
 */
extern int	kv_shard_buffer(const KvShard *shard, int i);
/* Shard's lock, for as long as the pointer is used; NULL: the value is in its file. */
extern const char *kv_buffer_find(const KvShard *shard, const KvVersion *version);
/*
 * Shard's lock: where its values are written.  False: in more places than there is room
 * for; those then are the first of them.
 */
extern bool kv_shard_extents(const KvShard *shard, KvExtents *extents);
/* Shard's lock: no value in a buffer lies outside of this. */
extern KvExtent kv_shard_unwritten(const KvShard *shard);
/* Shard's lock: what is known of a value as one that is replaced; KV_COLD if it is in no buffer. */
extern KvHeat kv_buffer_heat(const KvShard *shard, const KvVersion *version);
/* Shard's lock, exclusive: that is known of the value just put, and is not KV_COLD. */
extern void kv_buffer_mark(const KvShard *shard, KvLocation location, uint32 len, KvHeat heat);
/*
 * The buffer is written: its values go into the recent ring, or those so marked into the value
 * cache.
 */
extern void kv_buffer_keep(int buffer);
/*
 * Complete the buffer's value image, batch head and header, and mark it sealed; log_offset
 * is reserved already.  Its state is the caller's.
 */
extern void kv_buffer_seal_image(int buffer, uint32 value_bytes, uint32 entry_bytes,
								 uint32 nentries, uint64 log_offset);

/* ---- drain.c ---- */
/*
 * No lock held; until there is room for a value of len of the store's, for which buffers of dropped
 * stores are freed. ERROR if no buffer can be written: what is in them is safe, but no more can be
 * taken in; and, but for redo, if none
 * has become free for long.  False: it needs units side by
 * side, and others have what became free.
 */
extern bool kv_buffer_wait_free(const KvStore *store, Size len);
/* Likewise, but has only done what leads to such room, and neither waits nor raises. */
extern bool kv_buffer_ask_free(const KvStore *store, Size len);
/* SEALED to WRITING; false: it is not for the caller. */
extern bool kv_buffer_claim(int buffer, bool by_writer);
/*
 * The same for the oldest that may be written and has not failed since kv_buffers_retry, for
 * the buffer writer; -1: there is none.
 */
extern int	kv_buffer_claim_next(void);
/* Let those that could not be written be tried again, each of them once. */
extern void kv_buffers_retry(void);
/* No lock held; the buffer writer's look for buffers that nobody fills any more. */
extern void kv_buffers_seal_idle(void);
/* Of a claimed buffer; false: an older one of its shard is to be finished first (commit.c). */
extern bool kv_buffer_is_next(int buffer);
/* WRITING to SEALED; false: its store was dropped with its files, so it is no failure. */
extern bool kv_buffer_unclaim(int buffer, int error);
/* What of a claimed buffer is to be written to its file; len 0: nothing. */
extern void kv_buffer_image(int buffer, uint64 *offset, uint32 *len, char **memory);
/*
 * Its values are in its value file: logs its entries and frees it. Or an errno: it is SEALED again.
 * If the buffer file has other entries than were put into it: PANIC, or EIO as data_sync_retry
 * says.
 */
extern int	kv_buffer_finish(int buffer);
/*
 * No lock held; waits until the shard's sealed buffers before sequence, of logs up to
 * log_number, are in files.  ERROR if one cannot be written, or never will be, its table
 * being dropped.
 */
extern void kv_shard_drain(KvStore *store, uint32 shard_id, uint32 log_number,
						   uint64 sequence);
extern void kv_buffer_release(int buffer); /* give it free, and wake who waits for one */
/* Has the buffer's store been dropped?  Its directory goes before its buffers do. */
extern bool kv_buffer_outlived(const KvBufferHeader *header);
/*
 * Of a dropped store, which goes (NULL: it is not known), all at once; false, and nothing changed:
 * one is being written, or the store is pinned.
 */
extern bool kv_buffers_discard(const KvStoreKey *key, const KvStore *store);

/* ---- largevalue.c; no lock is held ---- */
/*
 * Make sure that a value of this length, or a buffer for it, finds room in the open value file,
 * which may be a new one.  False: there is no shared memory.  ERROR (53100) if the disk is
 * full; then the open value file is the one that it was.
 */
extern bool kv_value_extend(KvStore *store, uint32 shard_id, Size len, bool for_buffer);
/*
 * Write a value too large for a buffer, of the transaction xid; *location: where it is, or 0:
 * the shard is leaving the map, and nothing was written.  On return it is on the device, in
 * the sense of a completed direct write; without an entry for it the space is dead.  False:
 * there is no shared memory.  ERROR if it cannot be written.
 */
extern bool kv_value_write_large(KvStore *store, uint32 shard_id, KvForm form,
								 const char *value, Size len, uint64 xid,
								 KvLocation *location);
/*
 * In recovery and redo: an entry names these bytes, so their value file is the shard's.  False:
 * there is no shared memory.  In recovery it is an ERROR if the value file is not there.
 */
extern bool kv_value_claim(KvStore *store, uint32 shard_id, KvAddress address, Size len);

/*
 * Give the caller places for up to n value files, one behind the other, of which each can hold a
 * value of this length.  Nobody else makes files there.  Returns the first; *end is behind
 * the last.
 */
extern KvAddress kv_addresses_reserve(KvStore *store, uint32 shard_id, Size len, uint32 n,
									  KvAddress *end);
/* No file was ever made in these, the last of those that were reserved. */
extern void kv_addresses_return(KvStore *store, uint32 shard_id, KvAddress begin, KvAddress end);
/* Close the shard's open value file, if it has one; the next value has another made. */
extern void kv_value_close(KvStore *store, uint32 shard_id);
/*
 * In two steps: returns the value file that was closed, and how much of it is used, for the second.
 * extend_lock held.
 */
extern KvAddress kv_value_close_uncut(KvStore *store, uint32 shard_id, uint64 *used);
extern void kv_value_cut(const KvStore *store, KvAddress address, uint64 used);
/* Nothing more goes into what lies elsewhere than where value files are made now (shard/move.c). */
extern void kv_value_leave(KvStore *store, uint32 shard_id);
/*
 * The shard has left the map: what a failed attempt to make its next value file has left goes. No
 * lock held; never raises.
 */
extern void kv_value_end(KvStore *store, uint32 shard_id);

/* A value file that may not be durable. */
typedef struct KvUnsynced
{
	KvFileId	file;
	bool		for_good;		/* nobody will write to it any more */
	bool		named;			/* its name is durable */
	/* … and it may have gone, by another shard that had it (split/split.c) */
	bool		retired;
} KvUnsynced;

/* Those of a shard, palloc'd.  Returns how many. */
extern int	kv_values_unsynced(KvShard *shard, KvUnsynced **files);
/* They have been synced since, and the store's directory, if one was not named. */
extern void kv_values_synced(KvShard *shard, const KvUnsynced *files, int n);

/* ---- replay.c ---- */
/* In the postmaster: the file is not trusted.  Notes how many entries it has, if it can be read. */
extern void kv_buffers_count_lost(void);
extern void kv_buffers_forget_file(void); /* it goes */
/* How many entries a shard had in the file that is not trusted. */
extern uint32 kv_buffers_lost(const KvStoreKey *key, uint32 shard_id);
/*
 * In a shard's recovery: replay and free what a dead server left.  First, before the key
 * logs are read, its sealed buffers, which fill holes in them; after them, for its batch goes
 * behind theirs, the open one, which is sealed, and whose entries go to apply.  ERROR
 * (XX001) if a buffer is damaged.
 */
extern void kv_buffers_replay_sealed(KvStore *store, uint32 shard_id);
extern void kv_buffers_replay_open(KvStore *store, uint32 shard_id, KvApplyEntry apply,
								   void *arg);

/* ---- writer.c ---- */
/* The buffer writer, a background worker: writes sealed buffers.  Does not return. */
extern PGDLLEXPORT void kv_buffer_writer_main(Datum arg);

/* ---- commit.c ---- */
/* Before the first write, for what could raise under the shard's lock. */
extern void kv_commit_begin(void);
/*
 * Shard's lock, exclusive: the open buffer's last entry is ours.  True: log it at once; it is
 * marked so.
 */
extern bool kv_commit_note_write(KvStore *store, uint32 shard_id);
/* what of a buffer no PUT has; its values are in its value file */
extern void kv_commit_log_batch(int i);
extern void kv_commit_forget(void);	/* at the end of the transaction, or its PREPARE */

#endif							/* KV_BUFFER_H */
