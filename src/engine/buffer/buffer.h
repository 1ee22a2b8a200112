/*
 * buffer.h
 *		Write buffers: they hold new values and their entries until these are in files.  Large
 *		values, and addresses of all values: largevalue.h.
 *
 * Locks: The shard's lock guards the contents of a buffer.  KvBufferPool.lock guards its state, the
 * free units and the list of buffers to be written; it is taken last.  Functions that open, fill,
 * seal and search buffers are called with the shard's lock held, functions that wait with none.
 * Errors: While a value file cannot be written, a process that needs a buffer gets an ERROR.
 * Values in buffers stay readable.
 *
 * Sizes: The buffer file, of size kvfdw.write_buffers, is divided into units of 16 kB for values
 * and 4 kB for entries.  A buffer consists of one or several adjacent units, and has the index of
 * the first.  It gets at least what its first value needs; else the least of
 * - kvfdw.write_buffer_size, and a quarter of the file
 * - a quarter of its shard's values, and the rest of the open value file
 * - its share: three quarters of all units, divided by the number of open buffers
 * - the adjacent part of that
 *
 * So each shard that is being written has a buffer, as long as there are units.  A quarter of the
 * units is left to buffers that are being written to the files.  A value that needs several
 * adjacent units and does not find them becomes a large value (largevalue.c).
 *
 * Reuse: Units are not taken from buffers, except from those of dropped stores.  The maintainer
 * frees these when it removes the store; before that, a process that finds no units does.  Open
 * buffers are sealed before they are full
 * - by processes that find no units while no buffer is being written: a few buffers, continuing
 *   where the previous process has stopped
 * - by the buffer writer, which checks one buffer for each one opened with less than
 *   kvfdw.write_buffer_size and its file would allow.  It seals buffers into which nothing was put
 *   since its last check.  So the shares of shards that are not written any more become free
 *
 * Neither changes durability: a buffer may be sealed at any time.
 *
 * Crash: After a kill at any moment, the file has for each buffer
 *	before in_use is stored		a header that says free: its units are
 *	after that					an open buffer: its entries up to the first without CRC count.
 *								Its units follow from its capacity, which open_crc covers
 *	before sealed is stored		the same
 *	after that					a sealed buffer, which is written again, to the same addresses
 *	after in_use = 0			a header that says free
 *
 * The header of a unit has an address of its own, where no value or entry is ever stored.  The
 * header of a unit in the middle of a buffer says free, as it did when the buffer was opened.
 */
#ifndef KV_BUFFER_H
#define KV_BUFFER_H

#include "storage/latch.h"

#include "engine/base/types.h"
#include "engine/cache/cache.h"
#include "engine/format/format.h"
#include "engine/io/name.h"
#include "engine/maintenance.h"
#include "engine/shard/shard.h"

#define KV_MAGIC_BUFFER_FILE		0x4b564d47 /* "KVMG" */
#define KV_MAGIC_BUFFER		0x4b56534c	/* "KVSL" */

typedef enum KvBufferState
{
	KV_BUFFER_FREE = 0,
	KV_BUFFER_PART,				/* the unit belongs to a buffer that begins before it */
	KV_BUFFER_OPEN,
	KV_BUFFER_SEALED,
	KV_BUFFER_WRITING,			/* sealed, and being written */
	/* left by an earlier incarnation; recovery of its store will replay and free it */
	KV_BUFFER_ORPHAN
} KvBufferState;

/* On disk: each unit has one. */
typedef struct KvBufferHeader
{
	uint32		magic;
	uint32		in_use;			/* 0: free; stored last when a buffer is opened */
	uint64		sequence;		/* unique; seeds the entries' CRCs */
	KvStoreKey	store;
	uint32		shard;
	uint32		incarnation;
	uint32		volume;			/* volume of the value area */
	uint64		base;			/* offset of the value area in the volume */
	uint32		capacity;		/* bytes of the value area */
	uint32		log_number;
	uint32		open_crc;		/* covers the fields above, except magic and in_use */
	uint32		sealed;			/* 1: the fields below are valid; stored last */
	uint64		log_offset;
	uint32		nentries;
	uint32		entry_bytes;
	uint32		value_bytes;
	uint32		seal_crc;
	uint8		pad[128 - 88];
} KvBufferHeader;

StaticAssertDecl(sizeof(KvBufferHeader) == 128, "write buffer header size");

/* The shared memory of a unit, and of the buffer that begins with it. */
typedef struct KvWriteBuffer
{
	/* KvBufferState; it, following and previous change under KvBufferPool.lock */
	int			state;
	int			units;			/* number of units of the buffer or row that begins here; or 0 */
	/* in the list of buffers to be written or of rows of free units; or -1 */
	int			following;
	int			previous;		/* in the same list; or -1 */

	int			next;			/* in its shard's sealed list, or -1 */
	KvStore    *store;
	uint32		shard;
	KvAddress	base;			/* address of the value area */
	uint32		capacity;
	uint32		log_number;
	uint32		value_used;		/* guarded by the shard's lock */
	uint32		entry_used;
	uint32		nentries;
	uint32		last_entry;		/* its offset, if there is one */
	uint64		sequence;
	uint64		log_offset;		/* if sealed: the log offset of its batch */
	/* of each unit: the KvHeat of its blocks, two bits for each */
	uint8		heat;
	bool		hot;			/* some block of the buffer is not KV_COLD */
	uint64		writer;			/* xid of its first entry */
	bool		shared;			/* others have entries in it, too */
	bool		bulk;			/* its writer has written as much as kv_source_bulk says */
	bool		touched;		/* something was put into it since the last check */
	bool		sorts;			/* it is written in the order of keys (sort.c) */
	/* it is in its files, and versions get their new locations: the next attempt sorts as well */
	bool		relocating;
	/* buffer/commit.c: entries that no PUT has logged are being logged by location */
	bool		batch_taken;

	int			error;			/* errno of its last write; 0: none, or to be tried again */
	bool		by_writer;		/* WRITING: the buffer writer has it */
} KvWriteBuffer;

#define KV_UNIT_LISTS		256		/* the last list has rows of so many units and more */

#define KV_BUFFER_FILE_PATH	KV_DIRECTORY "/buffers"

static inline KvAddress
kv_buffer_base(const KvBufferHeader *header)
{
	return kv_volume_begin(header->volume) + header->base;
}

typedef enum KvValueHome
{
	KV_IN_BUFFER,				/* the buffer assigns the value's address */
	KV_IN_LARGE_VALUE,			/* it has an address already */
	KV_PLACED					/* it has an address, and the version's CRC is complete */
} KvValueHome;

typedef struct KvBufferPool
{
	LWLock		lock;	/* guards buffer states, free units and the list of pending buffers */
	int			nunits;
	uint32		unit_values;	/* bytes of a unit's value area */
	uint32		unit_entries;	/* bytes of a unit for batch head and entries */
	uint32		buffer_size;	/* maximum bytes of values in a buffer */
	uint32		largest_value;	/* a larger one is a large value (largevalue.c) */
	int			nfree;			/* number of free units */
	/* units that became part of a buffer since the last reset */
	uint64		entered;
	uint64		used_then;		/* units in use at the last reset */
	/* list heads of rows of free units, by number of units; or -1 */
	int			rows[KV_UNIT_LISTS];
	bool		joined;			/* no two rows are adjacent */
	int			nopen;			/* number of open buffers */
	int			hand;			/* where the search for a buffer to seal continues */
	/* list of buffers that are sealed or being written, in the order of sealing */
	int			first_pending;
	int			last_pending;	/* end of that list; -1: it is empty */
	pg_atomic_uint32 crowded;	/* buffers opened smaller than possible, for lack of units */
	pg_atomic_uint32 drops;		/* number of dropped stores */
	pg_atomic_uint64 sequence;
	ConditionVariable freed;
	Latch      *writer_latch;	/* NULL while the buffer writer does not run */
} KvBufferPool;

/* The counters of units, and their capacity in bytes of values; takes the lock. */
extern void kv_buffers_stats(KvCacheStats *stats);
extern void kv_buffers_stats_reset(void);

/* ---- bufferfile.c: the file ---- */
extern KvBufferPool *kv_buffer_pool;
extern KvWriteBuffer *kv_buffers;
/* For engine/start.c: settings, and the pool and its buffers in shared memory. */
extern void kv_buffers_gucs(void);
extern void kv_buffers_init(void);
extern Size kv_buffers_memory(void);
extern void kv_buffers_attach(void);
/*
 * In the postmaster, after kv_incarnation_startup: makes the file if need be, maps it, and notes
 * buffers of an earlier incarnation.
 */
extern void kv_buffers_start(void);
/* No lock: is there work for the buffer writer? */
extern bool kv_buffers_pending(void);
/* Any lock: there may be work; starts the buffer writer if it does not run. */
extern void kv_buffers_wake_writer(void);
/* A buffer's value area, and its header, in the file that kv_buffers_start maps. */
extern char *kv_buffer_values(int buffer);
extern KvBufferHeader *kv_buffer_header(int buffer);
extern char *kv_buffer_entries(int buffer); /* after the batch head */
/* Is there a buffer file of this server that can be read?  Reads all of it.  In the postmaster. */
extern bool kv_buffers_are_sound(void);

/* ---- fill.c ---- */
/* Does the open buffer have capacity for one more value and entry? */
extern bool kv_buffer_fits(const KvShard *shard, Size len, int keylen);
/* Does a buffer for a value of len need one unit, or are enough adjacent units free? */
extern bool kv_buffer_can_open(const KvStore *store, Size len);
/* The bytes of the value file that a buffer for this shard should cover. */
extern Size kv_buffer_capacity(const KvShard *shard, Size len);
/*
 * Shard's lock, exclusive: gives the shard an open buffer for a value of len.  The caller has
 * allocated as many bytes at the value tail as kv_buffer_capacity has just said.  False: there are
 * no units.
 */
extern bool kv_buffer_open(KvStore *store, uint32 shard_id, Size len);
/* Shard's lock, exclusive: passes its open buffer, even an empty one, to the buffer writer. */
extern void kv_buffer_seal(KvStore *store, uint32 shard_id);
/*
 * Shard's lock, exclusive: puts an entry, and a value without an address, into the open buffer,
 * which has capacity for both.  Completes the version's location, and the CRC that
 * kv_value_crc_begin gave.
 */
extern void kv_buffer_put(KvStore *store, KvShard *shard, KvKey key, KvVersion *version,
						  KvForm form, const char *value, uint32 crc, KvValueHome placing);
/* Shard's lock, as long as the pointer is used; NULL: the value is in its file. */
extern const char *kv_buffer_find(const KvShard *shard, const KvVersion *version);
/*
 * Shard's lock: gets the extents of its written values.  False: there are more than fit; these are
 * the first ones.
 */
extern bool kv_shard_extents(const KvShard *shard, KvExtents *extents);
/* Shard's lock: an extent that has all values in buffers. */
extern KvExtent kv_shard_unwritten(const KvShard *shard);
/* Shard's lock: the heat of a value that is replaced; KV_COLD if it is in no buffer. */
extern KvHeat kv_buffer_heat(const KvShard *shard, const KvVersion *version);
/* Shard's lock, exclusive: sets the heat, other than KV_COLD, of the value just put. */
extern void kv_buffer_mark(const KvShard *shard, KvLocation location, uint32 len, KvHeat heat);

/* ---- drain.c ---- */
/*
 * No lock held.  Waits until there is capacity for a value of len of the store, and frees buffers
 * of dropped stores for it.  ERROR if no buffer can be written: their contents are safe, but no
 * more is accepted.  Except in redo, also ERROR if no buffer became free for long.  False: the
 * value needs adjacent units, and others have taken those that became free.
 */
extern bool kv_buffer_wait_free(const KvStore *store, Size len);
/* Does what leads to that, without waiting or raising errors. */
extern bool kv_buffer_ask_free(const KvStore *store, Size len);
/*
 * No lock held.  Waits until the shard's sealed buffers before sequence, of logs up to log_number,
 * are in files.  ERROR if one cannot be written, or never will be because its table is being
 * dropped.
 */
extern void kv_shard_drain(KvStore *store, uint32 shard_id, uint32 log_number,
						   uint64 sequence);
/* Has the buffer's store been dropped?  Its directory is removed before its buffers are freed. */
extern bool kv_buffer_outlived(const KvBufferHeader *header);
/*
 * Frees all buffers of a dropped store that is being removed (NULL: it is not known).  False, and
 * nothing is changed: one is being written, or the store is pinned.
 */
extern bool kv_buffers_discard(const KvStoreKey *key, const KvStore *store);

/* ---- replay.c ---- */
/* In the postmaster, if the file is not trusted: notes its entries, if it can be read. */
extern void kv_buffers_count_lost(void);
extern void kv_buffers_forget_file(void); /* removes it */
/* The number of entries that a shard had in the untrusted file. */
extern uint32 kv_buffers_lost(const KvStoreKey *key, uint32 shard_id);
/*
 * In a shard's recovery: replays and frees the buffers of a dead server.  Sealed ones come before
 * the key logs are read, because they fill holes in these.  The open one comes after them, because
 * its batch follows theirs: it is sealed, and its entries are passed to apply.  ERROR (XX001) if a
 * buffer is damaged.
 */
extern void kv_buffers_replay_sealed(KvStore *store, uint32 shard_id);
extern void kv_buffers_replay_open(KvStore *store, uint32 shard_id, KvApplyEntry apply,
								   void *arg);

/* ---- writer.c ---- */
/* The buffer writer, a background worker that writes sealed buffers.  Does not return. */
extern PGDLLEXPORT void kv_buffer_writer_main(Datum arg);

/* ---- commit.c ---- */
/* Called before the first write: does what could raise under the shard's lock. */
extern void kv_commit_begin(void);
/*
 * Shard's lock, exclusive: the open buffer's last entry is this transaction's.  True: the caller
 * must log it at once; it is marked as logged.
 */
extern bool kv_commit_note_write(KvStore *store, uint32 shard_id);
extern void kv_commit_forget(void);	/* at the end of the transaction, or at PREPARE */

#endif							/* KV_BUFFER_H */
