/*
 * slot.h
 *		Merge slots: where a new value and its entry are until they are in files.
 *
 * The shard's lock guards a slot's contents, KvSlotPool.lock its state and the free
 * list; it comes last.  What opens, fills, seals and finds is called with the
 * shard's lock held; what waits, with none.  While a value file cannot be written,
 * whoever needs a slot gets an ERROR; what is in slots stays readable.
 */
#ifndef KV_SLOT_H
#define KV_SLOT_H

#include "storage/latch.h"

#include "engine/base/types.h"
#include "engine/format/format.h"
#include "engine/shard/shard.h"

#define KV_MAGIC_SLOT_FILE		0x4b564d47	/* "KVMG" */
#define KV_MAGIC_SLOT		0x4b56534c	/* "KVSL" */

#define KV_ENTRY_AREA		(32 * 1024)	/* of a merge slot, for its header and entries */

typedef enum KvSlotState
{
	KV_SLOT_FREE = 0,
	KV_SLOT_OPEN,
	KV_SLOT_SEALED,
	KV_SLOT_WRITING,			/* sealed, and the merge writer is at it */
	KV_SLOT_ORPHAN				/* left by an earlier incarnation; its store's
								 * recovery will replay and free it */
} KvSlotState;

/* Persistent, at the head of a slot's entry area. */
typedef struct KvSlotHeader
{
	uint32		magic;
	uint32		in_use;			/* 0: free; stored last when opening */
	uint64		sequence;		/* never repeats; seeds the entries' CRCs */
	KvStoreKey	store;
	uint32		shard;
	uint32		incarnation;
	KvFileNo	value_file;
	uint64		base;			/* the value area's place in the value file */
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
} KvSlotHeader;

StaticAssertDecl(sizeof(KvSlotHeader) == 128, "slot header size");

#define KV_SLOT_MAX_ENTRIES	(KV_ENTRY_AREA / 40)

/* Shared-memory side of a slot. */
typedef struct KvSlot
{
	int			state;			/* KvSlotState; changes under KvSlotPool.lock */
	int			next;			/* free list, or its shard's sealed list */
	KvStore    *store;
	uint32		shard;
	KvFileNo	value_file;
	uint64		base;
	uint32		capacity;
	uint32		log_number;
	uint32		value_used;		/* guarded by the shard's lock */
	uint32		entry_used;
	uint32		nentries;
	uint64		sequence;
	uint64		hot;			/* where its hot values are: a bit for so many bytes */

	/* slot/commit.c; guarded by the shard's lock */
	uint64		logged[KV_SLOT_MAX_ENTRIES / 64 + 1];	/* bits: entries that a PUT has logged */
	bool		batch_taken;	/* the others are being logged by location */

	int			error;			/* errno of the last failed write */
	bool		by_writer;		/* WRITING: the merge writer has it */
} KvSlot;

/* Where the batch head and the entries start within a slot's entry area. */
#define KV_SLOT_BATCH	sizeof(KvSlotHeader)
#define KV_SLOT_ENTRIES	(sizeof(KvSlotHeader) + sizeof(KvLogBatch))
#define KV_ENTRY_BYTES	(KV_ENTRY_AREA - KV_SLOT_ENTRIES)

#define KV_SLOT_FILE_PATH	KV_DIRECTORY "/merge"

typedef enum KvValueHome
{
	KV_IN_SLOT,					/* the slot gives the value its place */
	KV_IN_EXTENT,				/* it has its place, … */
	KV_PLACED					/* … and the version's CRC is complete */
} KvValueHome;

typedef struct KvSlotPool
{
	LWLock		lock;			/* of slot states and the free list */
	int			nslots;
	uint32		slot_size;		/* bytes of a slot's value area */
	int			first_free;		/* list head or -1 */
	pg_atomic_uint64 sequence;
	ConditionVariable freed;
	Latch	   *writer_latch;	/* NULL while the merge writer does not run */
	pg_atomic_uint32 write_error;	/* errno of its last write, 0 if fine */
} KvSlotPool;

/* ---- mergefile.c ---- */
extern KvSlotPool *kv_slot_pool;
extern KvSlot *kv_slots;
/* What engine/start.c calls: settings, and the pool and its slots in shared memory. */
extern void kv_slots_gucs(void);
extern void kv_slots_init(void);
extern Size kv_slots_memory(void);
extern void kv_slots_attach(void);
extern void kv_slots_start(void);	/* when what a dead server left has been judged */
/* A slot's value area, and the header behind it, in the file that kv_slots_start maps. */
extern char *kv_slot_values(int slot);
extern KvSlotHeader *kv_slot_header(int slot);
/* Put a slot on the free list; KvSlotPool.lock held, or nobody else is there. */
extern void kv_slot_push_free(int slot);
extern char *kv_slot_entries(int slot);	/* in the mapped file, behind the batch head */
extern KvLogBatch *kv_slot_batch(int slot);	/* in the mapped file, behind the header */
/* What open_crc and seal_crc must be; they are not changed. */
extern uint32 kv_slot_open_crc(const KvSlotHeader *header);
extern uint32 kv_slot_seal_crc(const KvSlotHeader *header);
/*
 * Call visit for the header of each slot in the file, free or not, as far as it can be
 * read; the entries lie behind it.  Nothing need be mapped.  In the postmaster.
 */
extern void kv_slots_visit_file(void (*visit) (const KvSlotHeader *slot));
/* Is there a merge file of ours that can be read?  Reads all of it.  In the postmaster. */
extern bool kv_slots_are_sound(void);

/* ---- fill.c ---- */
/* Has the open slot room for one more value and entry? */
extern bool kv_slot_fits(const KvShard *shard, Size len, int keylen);
/* Bytes of the value file that a slot for this shard should cover. */
extern Size kv_slot_capacity(const KvShard *shard, Size len);
/* Shard's lock, exclusive; false: no slot is free. */
extern bool kv_slot_open(KvStore *store, uint32 shardno, Size len);
extern void kv_slot_seal(KvStore *store, uint32 shardno);	/* shard's lock, exclusive */
/* Shard's lock, exclusive; completes the version's location and CRC. */
extern void kv_slot_put(KvStore *store, KvShard *shard, KvKey key, KvVersion *version,
						KvForm form, const char *value, uint32 crc, KvValueHome placing);
/* Shard's lock; NULL: the value is in the value file. */
extern const char *kv_slot_find(const KvShard *shard, const KvVersion *version);
/* Shard's lock: up to where its value file is written. */
extern uint64 kv_shard_written(const KvShard *shard);
/* Shard's lock, exclusive: the value just put is one that is read or written often. */
extern void kv_slot_mark_hot(const KvShard *shard, KvLocation location);
/* The slot is written: its hot values go into the value cache. */
extern void kv_slot_keep_hot(int slot);
/*
 * Complete the slot's value image, batch head and header, and mark it sealed; log_offset
 * is reserved already.  Its state is the caller's.
 */
extern void kv_slot_seal_image(int slot, uint32 value_bytes, uint32 entry_bytes,
							   uint32 nentries, uint64 log_offset);

/* ---- drain.c ---- */
extern void kv_slot_wait_free(void);	/* no lock held; ERROR if slots cannot be written */
/* SEALED to WRITING; false: it is not for the caller. */
extern bool kv_slot_claim(int slot, bool by_writer);
extern bool kv_slot_is_next(int slot);	/* false: an older one of its shard comes first */
/* WRITING to SEALED; false: its store was dropped. */
extern bool kv_slot_unclaim(int slot, int error);
/* What is to be written; len 0: nothing. */
extern void kv_slot_image(int slot, uint64 *offset, uint32 *len, char **buffer);
extern int	kv_slot_finish(int slot);	/* its values are in the file; returns 0 or an errno */
/* No lock held; waits until these slots are in files. */
extern void kv_shard_drain(KvStore *store, uint32 shardno, uint32 log_number,
						   uint64 sequence);
extern void kv_slot_release(int slot);	/* give it free, and wake who waits for one */
/* Of a dropped store; false: one is being written. */
extern bool kv_slots_discard(const KvStoreKey *key);

/* ---- extent.c ---- */
/* No lock held; ERROR (53100) if the disk is full. */
extern void kv_value_extend(KvStore *store, uint32 shardno, Size need);
/*
 * No lock held.  Write a value too large for a slot, and return where it is; without an
 * entry for it the space is dead.  ERROR if it cannot be written.
 */
extern KvLocation kv_value_write_extent(KvStore *store, uint32 shardno, KvForm form,
										const char *value, Size len);

/* ---- replay.c ---- */
extern void kv_slots_forget_file(void);	/* it is not believed; in the postmaster */
/* How many entries a shard had in the file that was forgotten. */
extern uint32 kv_slots_lost(const KvStoreKey *key, uint32 shardno);
/*
 * In a shard's recovery: replay and free what a dead server left.  First, before the key
 * logs are read, its sealed slots, which fill holes in them; after them the open one,
 * whose entries go to apply.  ERROR (XX001) if a slot is damaged.
 */
extern void kv_slots_replay_sealed(KvStore *store, uint32 shardno);
extern void kv_slots_replay_open(KvStore *store, uint32 shardno, KvApplyEntry apply,
								 void *arg);

/* ---- writer.c ---- */
/* The merge writer, a background worker: writes sealed slots.  Does not return. */
extern PGDLLEXPORT void kv_merge_writer_main(Datum arg);

/* ---- commit.c ---- */
/* Before the first write, for what could raise under a lock. */
extern void kv_commit_begin(void);
/* Shard's lock, exclusive; true: log it at once. */
extern bool kv_commit_note_write(KvStore *store, uint32 shardno);
extern void kv_commit_log_batch(int i);	/* what no PUT has logged; its values are in the file */
extern void kv_commit_forget(void);	/* at the end of the transaction, or its PREPARE */

#endif							/* KV_SLOT_H */
