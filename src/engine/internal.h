/*
 * internal.h
 *		What the engine's rooms share with each other and with nobody else.
 *
 * Lock order, outermost first; nobody takes one on the left while holding one
 * on its right:
 *
 *     KvShared.control_lock  →  KvShard.extend_lock  →  KvShard.lock
 *                            →  KvShared.merge_lock
 *     KvShard.commit_lock    →  KvShard.lock
 *
 * KvShard.lock guards the shard's two deltas, its run list, its slots and its
 * log position.  It is never held across a system call that touches a device
 * (I 7); a write that needs one (a bigger value file, a free slot, room in the
 * delta) lets go, does it, and starts again from the look-up.
 */
#ifndef KV_INTERNAL_H
#define KV_INTERNAL_H

#include "nodes/pg_list.h"
#include "port/atomics.h"
#include "storage/condition_variable.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "storage/spin.h"
#include "utils/dsa.h"
#include "utils/hsearch.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "engine/crc.h"
#include "engine/engine.h"
#include "engine/io.h"
#include "engine/run.h"

#define KV_FORMAT_VERSION	1	/* of a file that does not say otherwise */

#define KV_MAGIC_CONTROL	0x4b564354	/* "KVCT" */
#define KV_MAGIC_TABLE		0x4b565442	/* "KVTB" */
#define KV_MAGIC_MAP		0x4b564d50	/* "KVMP" */
#define KV_MAGIC_MANIFEST	0x4b564d46	/* "KVMF" */
#define KV_MAGIC_IMAGE		0x4b56494d	/* "KVIM" */
#define KV_MAGIC_LOG		0x4b564c47	/* "KVLG" */
#define KV_MAGIC_BATCH		0x4b564c42	/* "KVLB" */
#define KV_MAGIC_MERGE		0x4b564d47	/* "KVMG" */
#define KV_MAGIC_SLOT		0x4b56534c	/* "KVSL" */

/* wait events (worker.c) */
#define KV_WAIT_MERGE_SLOT	KV_WAIT_EVENT(kv_wait_merge_slot, "KvfdwMergeSlot")
#define KV_WAIT_RECOVERY	KV_WAIT_EVENT(kv_wait_recovery, "KvfdwRecovery")
#define KV_WAIT_FREEZE		KV_WAIT_EVENT(kv_wait_freeze, "KvfdwFreeze")
#define KV_WAIT_ROOM		KV_WAIT_EVENT(kv_wait_room, "KvfdwDeltaMemory")
#define KV_WAIT_IDLE		KV_WAIT_EVENT(kv_wait_idle, "KvfdwWorkerMain")
#define KV_WAIT_BARRIER		KV_WAIT_EVENT(kv_wait_barrier, "KvfdwBarrier")
#define KV_WAIT_RANGE		KV_WAIT_EVENT(kv_wait_range, "KvfdwRangeWindow")
extern uint32 kv_wait_merge_slot, kv_wait_recovery, kv_wait_freeze, kv_wait_room, kv_wait_idle,
			kv_wait_barrier, kv_wait_range;

#define KV_MAX_UNFROZEN		12	/* unfrozen runs of one shard */
#define KV_ENTRY_AREA		(32 * 1024)	/* of a merge slot, for its header and entries */

/* ---- identity ---- */
typedef struct KvStoreKey
{
	Oid			dboid;
	Oid			relid;
	uint32		generation;		/* TRUNCATE makes a new one */
} KvStoreKey;

/* ---- the delta (delta.c) ---- */
typedef struct KvDelta
{
	dsa_pointer root;			/* of the B+tree, or InvalidDsaPointer */
	dsa_pointer chunks;			/* all memory it owns, newest first */
	uint32		height;			/* 1: the root is a leaf */
	uint32		nitems;			/* keys */
	uint64		nversions;
	Size		bytes;
} KvDelta;

typedef struct KvDeltaVersion
{
	KvVersion	version;
	dsa_pointer older;
} KvDeltaVersion;

typedef struct KvDeltaItem
{
	dsa_pointer newest;			/* KvDeltaVersion */
	uint16		keylen;
	uint8		key[FLEXIBLE_ARRAY_MEMBER];
} KvDeltaItem;

typedef struct KvDeltaCursor
{
	dsa_pointer leaf;
	int			index;
} KvDeltaCursor;

extern char *kv_area_base;		/* address of dsa_pointer 0 */
#define kv_address(pointer)	((void *) (kv_area_base + (pointer)))

/* Where in the tree a key's item is or belongs; good until something is added. */
#define KV_MAX_HEIGHT	12

typedef struct KvDeltaPlace
{
	KvDeltaItem *item;			/* NULL: the key is not there */
	uint64		prefix;
	int			at;				/* index in the leaf */
	dsa_pointer path[KV_MAX_HEIGHT];	/* nodes, the leaf first */
	int			slots[KV_MAX_HEIGHT];
} KvDeltaPlace;

extern void kv_delta_locate(const KvDelta *delta, const uint8 *key, int keylen,
							KvDeltaPlace *place);
extern KvVersion *kv_delta_add(KvDelta *delta, KvDeltaPlace *place, const uint8 *key,
							   int keylen, const KvVersion *version);
extern KvDeltaItem *kv_delta_find(const KvDelta *delta, const uint8 *key, int keylen);
extern KvDeltaItem *kv_delta_seek(const KvDelta *delta, const uint8 *key, int keylen,
								  KvDeltaCursor *cursor);
extern KvDeltaItem *kv_delta_seek_before(const KvDelta *delta, const uint8 *key, int keylen,
										 KvDeltaCursor *cursor);
extern KvDeltaItem *kv_delta_next(KvDeltaCursor *cursor);
extern KvDeltaItem *kv_delta_prev(KvDeltaCursor *cursor);
extern void kv_delta_free(KvDelta *delta);

/* ---- images (image.c) ---- */

/* The files that an image names. */
typedef struct KvImageFiles
{
	bool		valid;
	int			nunfrozen;
	uint32		base_run;
	uint32		unfrozen[KV_MAX_UNFROZEN];
	uint32		next_run;
	uint32		first_log;
	uint32		last_log;
} KvImageFiles;

typedef enum KvImageSlot
{
	KV_IMAGE_LAST,
	KV_IMAGE_NEXT,				/* being made */
	KV_IMAGES
} KvImageSlot;

/* ---- shards ---- */
typedef struct KvShard
{
	LWLock		lock;
	LWLock		extend_lock;	/* one process at a time grows the value file */
	LWLock		commit_lock;	/* wal level 'keys': the order of WAL records (commit.c) */
	ConditionVariable changed;	/* maintenance ended, a slot was written */

	/* guarded by lock */
	KvDelta		active;			/* new versions go here */
	KvDelta		sealed;			/* being frozen: read-only but for fates */
	uint32		base_run;		/* run numbers; 0: none */
	int			nunfrozen;
	uint32		unfrozen[KV_MAX_UNFROZEN];	/* newest first */
	uint32		next_run;
	uint32		first_log;		/* logs the runs do not cover yet */
	uint32		sealed_log;		/* the last log whose entries are in sealed */
	uint32		log_number;		/* where new batches go */
	uint64		log_tail;
	int			open_slot;		/* slot index or -1 */
	int			sealed_slots;	/* list head: sealed and not yet written, or -1 */
	uint32		value_file;
	uint64		value_tail;		/* where the next slot or extent begins */
	uint64		value_allocated;	/* the file's allocated size */
	int			maintainer;		/* pid of the process freezing it, or 0 */
	uint64		frozen_keys;	/* entries of the base run */
	uint64		unfrozen_entries;
	uint64		oldest_xid;		/* in the unfrozen runs; 0: none */
	uint64		settled_horizon;	/* at the last freeze of all runs */
	uint64		key_share_xid;	/* newest that may have a KEY SHARE lock here, or 0 */
	TimestampTz frozen_at;		/* end of the last freeze, or recovery */
	bool		recovered;
	pg_atomic_uint64 writes;	/* slots written to the value file */
	uint64		writes_synced;	/* of them; guarded by extend_lock */
	uint64		salvage_from;	/* after a power loss: offset of the first value to doubt */

	KvImageFiles images[KV_IMAGES];
	uint32		image_number;	/* of the newest image; 0: there is none */
	bool		leftovers;		/* there are files that only older images name */
	uint32		image_log;		/* where the newest image ends; 0: there is none */
	uint64		image_tail;
	uint32		image_generation;	/* its runs are those of this generation */

	pg_atomic_uint32 generation;	/* of the run list; changes under lock */
} KvShard;

typedef enum KvCounter
{
	KV_COUNT_INSERTS, KV_COUNT_UPDATES, KV_COUNT_DELETES,
	KV_COUNT_POINT_READS, KV_COUNT_RANGE_SCANS, KV_COUNT_ROWS_READ,
	KV_COUNT_DEVICE_READS, KV_COUNT_DEVICE_READ_BYTES,
	KV_COUNT_VALUE_BYTES, KV_COUNT_DEVICE_WRITE_BYTES,
	KV_COUNT_SLOT_HITS, KV_COUNT_CACHE_HITS, KV_COUNT_FREEZES, KV_COUNT_SPILLS,
	KV_COUNT_RECOVERED_ENTRIES, KV_COUNT_RECOVERED_SLOTS, KV_COUNT_RECOVERY_MS,
	KV_COUNT_LOST_ENTRIES, KV_COUNT_LOST_LOG_BYTES,
	KV_COUNTERS
} KvCounter;

typedef enum KvStoreState
{
	KV_STORE_CLOSED,			/* known, not recovered since the start */
	KV_STORE_OPENING,			/* one process recovers it; others wait */
	KV_STORE_OPEN,
	KV_STORE_DROPPED			/* unlinked by the maintainer when unpinned */
} KvStoreState;

struct KvStore
{
	KvStoreKey	key;			/* hash key */
	uint64		creator;		/* full xid of the TRUNCATE that made it, or 0 */
	uint32		creator_incarnation;
	uint64		id;				/* never repeats; 0: written by a library without ids */
	KvWalLevel	wal;
	bool		unusable;		/* its directory has a file that says why */
	bool		behind;			/* its directory has a file that says: it has more than its images */
	pg_atomic_uint32 state;		/* KvStoreState */
	ConditionVariable opened;
	pg_atomic_uint32 pins;		/* workers that hold a pointer without a relation lock */

	/* set while OPENING, constant afterwards */
	int			nshards;
	dsa_pointer shards;			/* KvShard[nshards] */
	dsa_pointer bounds;			/* uint32 offset[nshards + 1], then key bytes:
								 * shard i starts at bound i; bound 0 is empty */
	int			key_width;		/* every key's length if 1 to 8, else 0 */
	uint32		cache_id;		/* in the value cache; of this opening */
	pg_atomic_uint32 next_shard;	/* recovery: the next shard to take */
	pg_atomic_uint32 helpers;	/* recovery helpers at work */
	pg_atomic_uint64 counters[KV_COUNTERS];
};

#define kv_count(store, what, n) \
	pg_atomic_fetch_add_u64(&(store)->counters[what], (n))

/* One table: its generations, newest wins if its creator committed. */
typedef struct KvTableEntry
{
	Oid			dboid;			/* hash key, with relid */
	Oid			relid;
	bool		loaded;			/* the directory has been read */
	uint32		oldest;			/* generations; 0: none */
	uint32		newest;
	uint64		birth;			/* top xid that made the first generation, if
								 * the table was created in that transaction */
} KvTableEntry;

/* ---- merge slots (merge.c) ---- */
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
	Oid			dboid;
	Oid			relid;
	uint32		generation;
	uint32		shard;
	uint32		incarnation;
	uint32		value_file;
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
	int			state;			/* KvSlotState; changes under merge_lock */
	int			next;			/* free list, or its shard's sealed list */
	KvStore    *store;
	uint32		shard;
	uint32		value_file;
	uint64		base;
	uint32		capacity;
	uint32		log_number;
	uint32		value_used;		/* guarded by the shard's lock */
	uint32		entry_used;
	uint32		nentries;
	uint64		sequence;
	uint64		hot;			/* where its hot values are: kv_cache_hot_bit */

	/* commit.c; guarded by the shard's lock */
	uint64		logged[KV_SLOT_MAX_ENTRIES / 64 + 1];	/* bits: entries that a PUT has logged */
	bool		batch_taken;	/* the others are being logged by location */

	int			error;			/* errno of the last failed write */
	bool		by_writer;		/* WRITING: the merge writer has it */
} KvSlot;

/* One index entry in a slot and in the key log; 8-byte aligned. */
typedef struct KvLogEntry
{
	uint32		crc;			/* seeded with the slot's sequence; stored last */
	uint16		keylen;
	uint8		kind;			/* KvVersionKind */
	uint8		pad;
	uint64		xid;
	KvLocation	location;
	uint32		len;
	uint32		value_crc;
	uint32		cid;
	uint32		pad2;
	/* key bytes, zero-padded to 8 */
} KvLogEntry;

StaticAssertDecl(sizeof(KvLogEntry) == 40, "log entry size");

#define KV_LOG_ENTRY_SIZE(keylen)	(sizeof(KvLogEntry) + TYPEALIGN(8, keylen))

/* The version that an entry is of; its fate is not known. */
static inline KvVersion
kv_entry_version(const KvLogEntry *entry)
{
	KvVersion	version = {0};

	version.xid = entry->xid;
	version.location = entry->location;
	version.len = entry->len;
	version.crc = entry->value_crc;
	version.cid = entry->cid;
	version.kind = entry->kind;
	return version;
}

static inline KvKey
kv_entry_key(const KvLogEntry *entry)
{
	KvKey		key = {(const uint8 *) (entry + 1), entry->keylen};

	return key;
}

/* The head of what one sealed slot adds to the key log. */
typedef struct KvLogBatch
{
	uint32		magic;
	uint32		crc;			/* of the rest of the head and the entries */
	uint64		sequence;
	Oid			dboid;
	Oid			relid;
	uint32		generation;
	uint32		shard;
	uint32		log_number;
	uint32		incarnation;
	uint32		nentries;
	uint32		entry_bytes;
	uint64		log_offset;
	uint64		pad;
} KvLogBatch;

StaticAssertDecl(sizeof(KvLogBatch) == 64, "log batch size");

typedef struct KvLogHeader
{
	uint32		magic;
	uint32		format_version;
	uint64		system_identifier;
	Oid			dboid;
	Oid			relid;
	uint32		generation;
	uint32		shard;
	uint32		number;
	uint32		crc;
	uint8		pad[64 - 40];
} KvLogHeader;

StaticAssertDecl(sizeof(KvLogHeader) == 64, "log header size");

/* Where the batch head and the entries start within a slot's entry area. */
#define KV_SLOT_BATCH	sizeof(KvSlotHeader)
#define KV_SLOT_ENTRIES	(sizeof(KvSlotHeader) + sizeof(KvLogBatch))
#define KV_ENTRY_ROOM	(KV_ENTRY_AREA - KV_SLOT_ENTRIES)

/* What a shard consists of: replaced whole, atomically, by every freeze. */
typedef struct KvManifest
{
	uint32		magic;
	uint32		format_version;
	uint64		system_identifier;
	Oid			dboid;
	Oid			relid;
	uint32		generation;
	uint32		shard;
	uint32		base_run;
	uint32		nunfrozen;
	uint32		unfrozen[KV_MAX_UNFROZEN];
	uint32		next_run;
	uint32		first_log;
	uint32		value_file;
	uint32		flags;
	uint64		value_tail;
	uint64		frozen_keys;
	uint64		unfrozen_entries;
	uint64		oldest_xid;		/* of a version in an unfrozen run, or 0 */
	uint32		lost;			/* with SALVAGE: entries that were in merge slots only */
	uint32		crc;
} KvManifest;

StaticAssertDecl(sizeof(KvManifest) == 144, "manifest size");

/* KvManifest.flags: what lies behind value_tail may be damaged, and so may logs. */
#define KV_MANIFEST_SALVAGE	1

/* ---- shared control ---- */
typedef struct KvIncarnation
{
	uint32		number;
	uint32		pad;
	uint64		boundary;		/* entries of it with xid >= this are aborted */
} KvIncarnation;

#define KV_MAX_INCARNATIONS	1024
#define KV_MAX_BACKUPS		16

typedef struct KvShared
{
	int			tranches[2];	/* of the locks here, of the shards' locks */
	LWLock		control_lock;	/* tables, stores */
	LWLock		merge_lock;		/* slot states and the free list */
	uint64		system_identifier;

	/* written before any transaction of this incarnation starts (wal.c) */
	uint64		checkpoint;		/* pg_control's at the start */
	bool		boundary_provisional;
	bool		set_back;		/* stores were, to their images (trust.c) */
	bool		rebuilding;		/* redo applies the engine's records */
	bool		follows;		/* archive recovery or standby: there are restartpoints */
	uint32		incarnation;
	int			nincarnations;	/* dead ones, oldest first */
	KvIncarnation incarnations[KV_MAX_INCARNATIONS];

	/* merge slots */
	int			nslots;
	uint32		slot_size;		/* bytes of a slot's value area */
	int			free_slots;		/* list head or -1 */
	pg_atomic_uint64 sequence;
	ConditionVariable slot_freed;

	/* workers */
	Latch	   *writer_latch;	/* NULL while it does not run */
	Latch	   *maintainer_latch;
	Latch	   *barrier_latch;
	pg_atomic_uint32 write_error;	/* errno of the merge writer's last write, 0 if fine */

	/* delta memory */
	ConditionVariable room_made;
	pg_atomic_uint64 delta_bytes;	/* in use by deltas, of kvfdw.delta_memory */
	pg_atomic_uint32 room_wanted;
	pg_atomic_uint32 drop_counter;
	pg_atomic_uint32 cache_ids;	/* the last KvStore.cache_id given */

	/* the barrier (barrier.c) */
	pg_atomic_uint32 barrier_up;	/* 1: what is logged now is covered by the next one */
	ConditionVariable barrier_raised;
	pg_atomic_uint32 logging;	/* writers between their version and its WAL record */
	uint64		last_redo;		/* pointer for which the last barrier was made */
	pg_atomic_uint32 backups;	/* base backups run, or did at the last barrier */
	int			backup_pids[KV_MAX_BACKUPS];	/* sessions with pg_backup_start, or 0 */
	slock_t		barrier_mutex;
	KvBarrierStats barrier;		/* guarded by barrier_mutex */
} KvShared;

extern KvShared *kv_shared;
extern KvSlot *kv_slots;
extern HTAB *kv_store_hash;
extern HTAB *kv_table_hash;
extern dsa_area *kv_area(void);	/* attached on first call */

/* GUCs */
extern int	kv_merge_size_kb;
extern int	kv_merge_buffers_mb;
extern int	kv_delta_memory_mb;
extern int	kv_value_cache_mb;
extern int	kv_range_cache_kb;
extern int	kv_range_wait_ms;
extern int	kv_prefetch_workers;
extern int	kv_max_tables;
extern int	kv_recovery_workers;
extern int	kv_freeze_delay;

extern int	kv_tranche_shard;	/* LWLock tranche of the shards' locks */

/* ---- rooms ---- */

typedef struct KvFoundFile KvFoundFile;

/* control.c */
extern Size kv_area_size(void);
extern void kv_check_interrupts(void);
extern void kv_wait_interrupts(void);
extern Size kv_delta_limit(void);	/* bytes of one shard's delta that call for a freeze */
extern void kv_wake_writer(void);
extern void kv_wake_maintainer(void);

/* visibility.c */
typedef struct KvConflicts
{
	TransactionId *xids;
	int			n;
	int			room;
} KvConflicts;

extern KvConflicts *kv_conflicts;
extern KvVersionFate kv_xid_fate(uint64 xid, uint32 incarnation);
extern bool kv_version_visible(KvVersion *version, Snapshot snapshot, uint32 incarnation);
extern bool kv_xid_is_mine(uint64 xid);
extern uint64 kv_xid_horizon(void);	/* every snapshot sees what committed before it */
extern uint64 kv_current_xid(bool mark);	/* of this subtransaction */

/* incarnation.c: incarnations, control file */
extern void kv_incarnation_startup(void);	/* in shmem_startup_hook */
extern uint32 kv_writing_incarnation(void);
extern void kv_incarnation_redo_done(void);
extern void kv_incarnation_rebuilt(void);
extern void kv_incarnation_covered(uint64 lsn);

extern bool kv_incarnation_aborted(uint32 incarnation, uint64 xid);
extern void kv_incarnations_settled(void);

/* trust.c: what may be believed after a start */
typedef struct KvIdentity
{
	char		boot_id[40];	/* of the running kernel; "" if unknown */
	uint64		inode;			/* of the directory "kvfdw" */
	int64		birth_sec;		/* its birth time; 0 if unknown */
	uint32		birth_nsec;
	uint32		pad;
} KvIdentity;

extern void kv_trust_identity(KvIdentity *identity);
extern bool kv_trust_same_place(const KvIdentity *a, const KvIdentity *b);

/* What is to be done with every store. */
typedef struct KvReset
{
	bool		set_back;		/* to its image */
	bool		values_lost;	/* those that are not in the WAL */
	bool		images_old;		/* the WAL begins behind them */
	uint64		backup_redo;	/* where the WAL of a copy made by a backup begins, or 0 */
	bool		backup_of_primary;
} KvReset;

extern void kv_trust_read_label(KvReset *reset);
extern bool kv_trust_same_boot(const KvIdentity *a, const KvIdentity *b);
extern bool kv_error_concerns_all(int sqlerrcode);
extern void kv_trust_reset_stores(const KvReset *reset);

/* wal.c: what goes into the WAL */
extern void kv_wal_register(void);
extern void kv_wal_mark_transaction(TransactionId xid);
extern void kv_wal_flush(void);
extern void kv_wal_log_version(const KvStoreKey *store, KvKey key, const KvVersion *version,
							   uint32 crc, const char *value);
extern void kv_wal_log_batch(const KvStoreKey *store, const char *entries, uint32 bytes,
							 uint32 n);
extern void kv_wal_log_create(const KvStore *store, const KvKey *bounds);
extern void kv_wal_log_schema(const KvStore *store, const char *data, int len);
extern void kv_wal_log_gone(const KvStoreKey *key, uint64 id);
extern uint64 kv_wal_log_barrier(const KvBarrierStats *stats, uint64 redo, bool closing);

/* commit.c */
extern void kv_commit_begin(void);
extern bool kv_commit_note_write(KvStore *store, uint32 shardno);
extern void kv_commit_log_batch(int i);
extern void kv_commit_forget(void);

/* redo.c */
struct XLogReaderState;
extern void kv_redo_record(struct XLogReaderState *record);
extern void kv_redo_cleanup(void);

/* image.c */
extern void kv_shard_load_image(KvStore *store, uint32 shardno, const KvFoundFile *files,
								int n, const KvManifest *manifest);
extern void kv_shard_image(KvStore *store, uint32 shardno, uint64 covers,
						   KvBarrierStats *stats);
extern bool kv_store_needs_images(KvStore *store);
extern bool kv_image_names_log(const KvStore *store, const KvShard *shard, uint32 number);
extern bool kv_image_names_run(const KvShard *shard, uint32 number);
extern void kv_shard_reset(const KvStore *store, uint32 shardno, const KvFoundFile *files,
						   int n, const KvReset *reset);

/* barrier.c */
extern void kv_backups_look(void);
extern bool kv_backups_run(void);
extern void kv_barrier_flush(uint64 covers, KvBarrierStats *stats,
							 void (*failed) (const KvStoreKey *key));
extern void kv_forget_error(bool report);
extern void kv_barrier_wait(void);
extern void kv_barrier_replay(uint64 lsn, uint64 redo, bool closing,
							  void (*failed) (const KvStoreKey *key));
extern PGDLLEXPORT void kv_barrier_main(Datum arg);

/* value.c */
extern uint32 kv_value_crc_begin(const KvStoreKey *store, KvKey key,
								 const char *value, Size len);
extern uint32 kv_value_crc_finish(uint32 crc, KvLocation location, uint32 len);
extern File kv_value_file(const KvStoreKey *key, uint32 number, bool create);
extern void kv_value_trim(void);
extern void kv_value_forget(const KvStoreKey *key);
extern void kv_value_extend(KvStore *store, uint32 shardno, Size need);
extern KvLocation kv_value_write_extent(KvStore *store, uint32 shardno, KvForm form,
										const char *value, Size len);
extern bool kv_value_is_intact(const KvStore *store, KvKey key, const KvVersion *version);
extern bool kv_value_matches(const KvStoreKey *store, KvKey key, const char *value,
							 const KvVersion *version);
extern void kv_value_verify(const KvStoreKey *store, KvKey key, const char *value,
							const KvVersion *version);

/* valuecache.c */
extern Size kv_cache_shmem_size(void);
extern void kv_cache_startup(void);
extern bool kv_cache_read(const KvStore *store, KvLocation location, uint32 len, char *into);
extern void kv_cache_keep(const KvStore *store, KvLocation location, uint32 len,
						  const char *block);
extern bool kv_cache_has(const KvStore *store, KvLocation location, uint32 len);
extern uint64 kv_cache_hot_bit(uint32 position);
extern void kv_cache_keep_hot(const KvStore *store, KvLocation base, uint32 capacity,
							  uint64 hot_bits, const char *values);

/* rangecache.c, prefetch.c */
#define KV_MAX_PREFETCH_WORKERS	16

extern int	kv_range_windows(void);
extern Size kv_range_shmem_size(void);
extern void kv_range_startup(void);
extern void kv_range_stats_reset(void);
extern void kv_prefetch_gucs(void);
extern PGDLLEXPORT void kv_prefetch_main(Datum arg);

/* merge.c */
#define KV_MERGE_PATH	"kvfdw/merge"

extern Size kv_merge_shmem_size(void);
extern void kv_merge_startup(void);
extern char *kv_slot_values(int slot);
extern KvSlotHeader *kv_slot_header(int slot);
typedef enum KvPlacing
{
	KV_IN_SLOT,					/* the slot gives the value its place */
	KV_IN_EXTENT,				/* it has its place, … */
	KV_PLACED					/* … and the version's CRC is complete */
} KvPlacing;

extern bool kv_slot_fits(const KvShard *shard, Size len, int keylen);
extern Size kv_slot_capacity(const KvShard *shard, Size len);
extern bool kv_slot_open(KvStore *store, uint32 shardno, Size len);
extern void kv_slot_seal(KvStore *store, uint32 shardno);
extern void kv_slot_put(KvStore *store, KvShard *shard, KvKey key, KvVersion *version,
						KvForm form, const char *value, uint32 crc, KvPlacing placing);
extern const char *kv_slot_find(const KvShard *shard, const KvVersion *version);
extern void kv_slot_mark_hot(const KvShard *shard, KvLocation location);
extern void kv_slot_wait_free(void);
extern void kv_slot_push_free(int slot);

/* slotwrite.c */
extern bool kv_slot_claim(int slot, bool by_writer);
extern bool kv_slot_is_next(int slot);
extern bool kv_slot_unclaim(int slot, int error);
extern void kv_slot_image(int slot, uint64 *offset, uint32 *len, char **buffer);
extern int	kv_slot_finish(int slot);
extern void kv_shard_drain(KvStore *store, uint32 shardno, uint32 log_number,
						   uint64 sequence);
extern char *kv_slot_entries(int slot);
extern KvLogBatch *kv_slot_batch(int slot);
extern uint32 kv_slot_seal_crc(const KvSlotHeader *header);
extern void kv_slot_seal_image(int slot, uint32 value_bytes, uint32 entry_bytes,
							   uint32 nentries, uint64 log_offset);
extern void kv_slot_release(int slot);
extern bool kv_slots_hold(const KvStoreKey *key);
extern void kv_merge_discard(void);
extern uint32 kv_merge_discarded(const KvStoreKey *key, uint32 shardno);
extern bool kv_slots_discard(const KvStoreKey *key);
extern void kv_slots_discard_unknown(void);

/* slotreplay.c; apply gets every entry that recovery reads, in order */
typedef void (*KvApplyEntry) (KvStore *store, uint32 shardno, const KvLogEntry *entry,
							  uint32 incarnation);
extern uint32 kv_slot_count(const KvSlotHeader *header);
extern void kv_slots_replay_sealed(KvStore *store, uint32 shardno);
extern void kv_slots_replay_open(KvStore *store, uint32 shardno, KvApplyEntry apply);

/* mergewriter.c */
extern PGDLLEXPORT void kv_merge_writer_main(Datum arg);

/* keylog.c */
extern int	kv_log_append(const KvStoreKey *key, uint32 shard, uint32 number,
						  uint64 offset, KvLogBatch *batch);
extern uint32 kv_log_entry_crc(const KvLogEntry *entry, uint64 sequence);
extern void kv_log_create(const KvStoreKey *key, uint32 shard, uint32 number);
extern uint64 kv_log_replay(KvStore *store, uint32 shardno, uint32 number, bool required,
							KvApplyEntry apply);
extern uint64 kv_log_salvage(KvStore *store, uint32 shardno, uint32 number,
							 KvApplyEntry apply);
extern bool kv_log_check(const KvStoreKey *key, uint32 shard, uint32 number,
						 KvProblemCallback report, void *arg);

/* shard.c */
typedef struct KvRunSet
{
	uint32		generation;
	int			nruns;			/* newest first; the last may be the base */
	bool		has_base;
	KvRun	   *runs[KV_MAX_UNFROZEN + 1];
} KvRunSet;

#define kv_shard(store, n)	(&((KvShard *) kv_address((store)->shards))[n])

extern uint32 kv_shard_for(const KvStore *store, const uint8 *key, int keylen);
extern KvKey kv_shard_bound(const KvStore *store, uint32 shardno);
extern const KvRunSet *kv_shard_runs(KvStore *store, uint32 shardno);
extern void kv_fetch_version(KvStore *store, KvKey key, const KvVersion *version, KvRow *row);

/* A walk through one key's versions in the runs. */
typedef struct KvRunVersions
{
	const KvRunSet *set;
	KvKey		key;
	int			run;			/* index into set->runs */
	KvRunCursor cursor;
} KvRunVersions;

extern void kv_run_versions_begin(KvRunVersions *walk, const KvRunSet *set, KvKey key);
extern bool kv_run_versions_next(KvRunVersions *walk, KvVersion *version,
								 uint32 *incarnation);
extern bool kv_runset_find(const KvRunSet *set, KvKey key, Snapshot snapshot,
						   KvVersion *version);
extern bool kv_chain_visible(dsa_pointer newest, Snapshot snapshot, KvVersion *version);
extern void kv_runset_forget(const KvStoreKey *key);

/* write.c */
extern void kv_make_room(KvStore *store, uint32 shardno);
extern void kv_write_again(KvStore *store, KvKey key, const KvVersion *version, KvForm form,
						   uint32 crc, const char *value);
extern void kv_write_placed(KvStore *store, KvKey key, const KvVersion *version);

/* compact.c */
typedef enum KvFreezeMode
{
	KV_FREEZE_SPILL,			/* empty the delta, cheaply */
	KV_FREEZE_MERGE,			/* and merge runs of like size */
	KV_FREEZE_ALL				/* and merge all runs */
} KvFreezeMode;

extern void kv_shard_freeze(KvStore *store, uint32 shardno, KvFreezeMode mode);

/* manifest.c */
extern void kv_manifest_describe(const KvShard *shard, KvManifest *manifest);
extern void kv_manifest_seal(const KvStoreKey *key, uint32 shardno, KvManifest *manifest);
extern void kv_manifest_write(const KvStoreKey *key, uint32 shardno, KvManifest *manifest);
extern bool kv_manifest_is_of(const KvStoreKey *key, uint32 shardno, const KvManifest *manifest);
extern bool kv_manifest_read(const KvStoreKey *key, uint32 shardno, KvManifest *manifest);

/* One file of a store's directory, by its name. */
typedef enum KvFileKind
{
	KV_FILE_LOG, KV_FILE_RUN, KV_FILE_IMAGE, KV_FILE_MANIFEST, KV_FILE_TEMPORARY
} KvFileKind;

struct KvFoundFile
{
	uint32		shard;
	uint32		number;			/* of a log, run or image */
	KvFileKind	kind;
	char		name[32];
};

typedef struct KvFound
{
	KvFoundFile *files;			/* ordered by shard */
	int			n;
} KvFound;

extern void kv_store_list_files(const KvStoreKey *key, KvFound *found);
extern int	kv_found_of_shard(const KvFound *found, int at, uint32 shardno);

/* storefile.c: paths (each lasts until the next call) and the small files */
extern List *kv_numbered_entries(const char *path);
extern List *kv_generations(Oid dboid, Oid relid);
extern int	kv_visit_stores(void (*visit) (const KvStoreKey *key, const void *arg),
							const void *arg);
extern const char *kv_path_table_directory(Oid dboid, Oid relid);
extern const char *kv_path_store(const KvStoreKey *key);
extern const char *kv_path_value(const KvStoreKey *key, uint32 file);
extern const char *kv_path_log(const KvStoreKey *key, uint32 shard, uint32 number);
extern const char *kv_path_run(const KvStoreKey *key, uint32 shard, uint32 number);
extern const char *kv_path_manifest(const KvStoreKey *key, uint32 shard);
extern const char *kv_path_image(const KvStoreKey *key, uint32 shard, uint32 number);
extern void kv_store_ids(const KvStore *store, uint32 shard, uint32 number, KvRunIds *ids);
extern void kv_store_settle_creator(KvStore *store);
extern bool kv_table_file_read(KvStore *store, StringInfo schema);
extern bool kv_table_file_identify(const char *path, KvStoreKey *key, uint64 *id);
extern void kv_store_mark_unusable(KvStore *store, int sqlerrcode, const char *why);
extern void kv_store_mark_not_logged(KvStore *store);
extern void kv_store_mark_behind(KvStore *store, bool behind);
extern char *kv_store_why_unusable(const KvStoreKey *key, int *sqlerrcode);
extern char *kv_map_file_read(KvStore *store, Size *bytes);
extern void kv_store_files_create(const KvStore *store, const KvKey *bounds);

/* store.c */
extern KvTableEntry *kv_table_entry(Oid dboid, Oid relid, bool create);
extern void kv_table_settle(Oid dboid, Oid relid);
extern void kv_store_ensure_open(KvStore *store);
extern KvStore *kv_store_find(Oid dboid, Oid relid, uint32 generation);
extern List *kv_stores_pin_state(Oid dboid, KvStoreState state);
extern void kv_stores_unpin(List *stores);

extern bool kv_store_is_known(const KvStoreKey *key);
extern KvStore *kv_store_by_key(const KvStoreKey *key);
extern KvStore *kv_store_make(const KvStoreKey *key, const KvStore *shape,
							  const KvKey *bounds);

/* recover.c */
extern void kv_store_recover(KvStore *store);
extern void kv_store_recover_shards(KvStore *store);

/* drop.c */
typedef enum KvPendingKind
{
	KV_PENDING_CREATE,			/* abort: remove the table's directory */
	KV_PENDING_TRUNCATE,		/* commit: remove older generations; abort: this one */
	KV_PENDING_DROP,			/* commit: remove the table's directory */
	KV_PENDING_DROP_DATABASE
} KvPendingKind;

extern void kv_pending_add(KvPendingKind kind, Oid dboid, Oid relid, uint32 generation,
						   SubTransactionId subid);
extern void kv_table_discard(Oid dboid, Oid relid);
extern void kv_generation_discard(Oid dboid, Oid relid, uint32 generation);
extern void kv_generation_remove(const KvStoreKey *key, uint64 id);
extern void kv_database_discard(Oid dboid);
extern void kv_drop_collect(void);
extern bool kv_store_was_dropped(const KvStoreKey *key);

/* sweep.c */
extern void kv_sweep_databases(void);
extern PGDLLEXPORT void kv_sweep_worker_main(Datum arg);

/* worker.c */
struct BackgroundWorkerHandle;
extern void kv_workers_register(void);
extern bool kv_recovery_worker_start(KvStore *store, struct BackgroundWorkerHandle **handle);
extern bool kv_sweep_worker_start(Oid dboid, struct BackgroundWorkerHandle **handle);
extern PGDLLEXPORT void kv_maintainer_main(Datum arg);
extern PGDLLEXPORT void kv_recovery_worker_main(Datum arg);

#endif							/* KV_INTERNAL_H */
