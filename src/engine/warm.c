/*
 * warm.c
 *		Prewarming: blocks of a table (kvfdw_prewarm), and after a restart the blocks that were
 *		cached when the server stopped.
 *
 * When the server stops the maintainer records which blocks are in the value cache, which in
 * the recent ring, and which frames are in the second tier.  After the start, when the
 * maintainer has opened the stores, a worker re-enters those frames, reads the blocks, in order
 * of address, into the caches where they were, and removes the file.  If the server stops
 * before that, the next record includes the rest.  If the server crashes, the file is not used,
 * because it may have caused the crash.  An address may have other bytes by then, as after a
 * power loss: such a block is of no use, and is evicted when it is met.
 *
 * A standby opens stores as they are used.  So there the worker opens the recorded stores, when
 * the standby is consistent.
 *
 * docs/internals/format.md has the file's grammar.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "tcop/tcopprot.h"
#include "utils/memutils.h"

#include "report.h"
#include "engine/base/error.h"
#include "engine/base/hash.h"
#include "engine/base/progress.h"
#include "engine/base/shared.h"
#include "engine/base/types.h"
#include "engine/base/worker.h"
#include "engine/cache/cache.h"
#include "engine/io/fault.h"
#include "engine/io/name.h"
#include "engine/lifecycle/lifecycle.h"
#include "engine/maintenance.h"
#include "engine/shard/map.h"
#include "engine/shard/shard.h"
#include "engine/buffer/buffer.h"
#include "engine/maintainer.h"
#include "engine/shard/valuefiles.h"

#define KV_WARM_PATH	KV_DIRECTORY "/warm"
#define KV_WARM_USED_PATH	KV_DIRECTORY "/warm.used"	/* exists while the other is used */
#define KV_WARM_MAGIC	0x4b565741	/* "KVWA" */
#define KV_WARM_LEAST	1024	/* memory is allocated for so many */
#define KV_WARM_MOST	(16 * 1024 * 1024)	/* most blocks, or frames, in a record */

#define KV_WARM_STEP	1024	/* blocks that are read between checks for dropped stores */

/* Flag in the number of a block: it was in the recent ring. */
#define KV_WARM_RECENT	(UINT64CONST(1) << 63)

typedef struct KvWarmHead
{
	uint32		magic;
	uint32		format_version;
	uint64		system_identifier;
	uint64		tier_mark;		/* kv_tier_mark(); 0: there are no frames */
	uint32		nstores;
	uint32		crc;			/* of all bytes after the head */
} KvWarmHead;

/*
 * It is followed by the numbers of the store's blocks, 8 bytes each, ascending, so that those
 * in the recent ring are last; and by its frames.
 */
typedef struct KvWarmStore
{
	KvStoreKey	key;
	uint32		nframes;
	uint64		id;
	uint64		nblocks;
} KvWarmStore;

typedef struct KvWarmFrame
{
	uint64		number;			/* address / 64 kB */
	uint32		frame;			/* in the second tier */
	uint32		valid;			/* a bit for each block */
} KvWarmFrame;

StaticAssertDecl(sizeof(KvWarmHead) == 32, "head of the warm file is 32 bytes on disk");
StaticAssertDecl(sizeof(KvWarmStore) == 32, "a store of the warm file is 32 bytes on disk");
StaticAssertDecl(sizeof(KvWarmFrame) == 16, "a frame of the warm file is 16 bytes on disk");

/* ---- a table ---- */

/*
 * The written parts of a shard's value files, the newest value file first; palloc'd.  Returns
 * how many.
 */
static int
written_parts(KvShard *shard, KvExtent **parts)
{
	KvExtent	unwritten;
	int			n = 0;

	LWLockAcquire(&shard->lock, LW_SHARED);
	unwritten = kv_shard_unwritten(shard);
	*parts = palloc(sizeof(KvExtent) * Max(shard->values.n, 1));
	for (int i = shard->values.n - 1; i >= 0; i--)
	{
		const KvShardValueFile *value_file = &kv_value_files(shard)[i];
		KvExtent	part = {value_file->value_file.address, kv_value_file_end(shard, value_file)};

		if (unwritten.begin < part.end && unwritten.end > part.begin)
			part.end = Max(unwritten.begin, part.begin);
		part.end = TYPEALIGN(KV_BLOCK, part.end);
		if (part.begin < part.end)
			(*parts)[n++] = part;
	}
	LWLockRelease(&shard->lock);
	return n;
}

/* Read the store, as far as the cache has free blocks. */
static void
prewarm(KvStore *store, KvWarming *warming, uint64 room)
{
	uint64		asked = 0;

	kv_each_shard(store, shard_id)
	{
		KvExtent   *parts;
		int			nparts = written_parts(kv_shard(store, shard_id), &parts);

		kv_progress_shard(shard_id);
		for (int i = 0; i < nparts && asked < room; i++)
		{
			KvAddress	at = parts[i].begin;

			while (at < parts[i].end && asked < room)
			{
				kv_warming_add(warming, at, false);
				at += KV_BLOCK;
				asked++;
			}
		}
		pfree(parts);
		if (asked >= room)
			break;
	}
}

uint64
kv_store_prewarm(KvStore *store)
{
	uint64		room = kv_source_room();
	uint64		bytes = 0;
	uint64		kept = 0;
	KvProgress	outer;

	kv_each_shard(store, shard_id)
		bytes += kv_shard_value_bytes(kv_shard(store, shard_id));
	kv_progress_begin(&outer, KV_PROGRESS_PREWARM, store->key.dboid, store->key.relid, -1,
					  "reading", Min(bytes, room * KV_BLOCK));
	PG_TRY();
	{
		KvWarming  *warming = kv_warming_begin(&store->key, store->cache_id);

		prewarm(store, warming, room);
		kept = kv_warming_end(warming);
	}
	PG_FINALLY();
	{
		kv_progress_end(&outer);
	}
	PG_END_TRY();
	return kept * KV_BLOCK;
}

/* ---- pins of stores ---- */

static List *pinned = NIL;

static void
unpin_stores(int code, Datum arg)
{
	List	   *stores = pinned;

	pinned = NIL;
	kv_stores_unpin(stores);
}

/* ---- the file ---- */

/* Why the file cannot be used, or NULL. */
static const char *
file_problem(const char *file, Size len)
{
	const KvWarmHead *head = (const KvWarmHead *) file;
	Size		at = sizeof(KvWarmHead);

	if (len < sizeof(KvWarmHead) || head->magic != KV_WARM_MAGIC ||
		head->crc != kv_crc(file + at, len - at))
		return "it is damaged";
	if (head->format_version != KV_FORMAT_VERSION)
		return "it has another version";
	if (head->system_identifier != GetSystemIdentifier())
		return "it belongs to another server";
	for (uint32 i = 0; i < head->nstores; i++)
	{
		const KvWarmStore *entry = (const KvWarmStore *) (file + at);

		if (len - at < sizeof(KvWarmStore))
			return "it is damaged";
		at += sizeof(KvWarmStore);
		if ((len - at) / sizeof(uint64) < entry->nblocks)
			return "it is damaged";
		at += entry->nblocks * sizeof(uint64);
		if ((len - at) / sizeof(KvWarmFrame) < entry->nframes)
			return "it is damaged";
		at += entry->nframes * sizeof(KvWarmFrame);
	}
	return NULL;
}

static const KvWarmFrame *
frames_of(const KvWarmStore *entry)
{
	return (const KvWarmFrame *) ((const uint64 *) (entry + 1) + entry->nblocks);
}

static const KvWarmStore *
entry_after(const KvWarmStore *entry)
{
	return (const KvWarmStore *) (frames_of(entry) + entry->nframes);
}

static KvStore *
noted_store(const KvWarmStore *entry)
{
	ListCell   *cell;

	foreach(cell, pinned)
	{
		KvStore    *store = lfirst(cell);

		if (store != NULL && kv_same_store(&store->key, &entry->key) &&
			store->shape.id == entry->id)
			return store;
	}
	return NULL;
}

/* Call back for each store of the file that is open. */
static void
each_noted(const char *file, void (*each) (KvStore *store, const KvWarmStore *entry, void *arg),
		   void *arg)
{
	const KvWarmStore *entry = (const KvWarmStore *) (file + sizeof(KvWarmHead));

	for (uint32 i = 0; i < ((const KvWarmHead *) file)->nstores; i++, entry = entry_after(entry))
	{
		KvStore    *store = noted_store(entry);

		if (store != NULL)
			each(store, entry, arg);
	}
}

static void
enter_frames(KvStore *store, const KvWarmStore *entry, void *arg)
{
	const KvWarmFrame *frames = frames_of(entry);

	for (uint32 i = 0; i < entry->nframes; i++)
	{
		KvCachedUnit frame = {
			.cache_id = store->cache_id, .number = frames[i].number,
			.frame = frames[i].frame, .valid = frames[i].valid
		};

		kv_tier_enter(&frame);
	}
}

/* ---- recording cached blocks ---- */

typedef struct KvCachedBlock
{
	uint32		cache_id;
	uint64		number;			/* address / KV_BLOCK, and KV_WARM_RECENT */
} KvCachedBlock;

/* The cached blocks and frames; after sorting by store and address. */
typedef struct KvCached
{
	KvCachedBlock *blocks;
	uint64		nblocks;
	uint64		blocks_room;
	uint64		next_block;		/* of blocks, the next one to be written */
	KvCachedUnit *frames;
	uint64		nframes;
	uint64		frames_room;
	uint64		next_frame;
	uint64		tier_mark;
	const char *unused;			/* the existing file that is still to be used; or NULL */
	bool		frames_hold;	/* its frames are valid */
} KvCached;

/* Memory for one more of n items, or NULL: there are as many as a record may have. */
static void *
make_room(void *items, uint64 n, uint64 *room, Size size)
{
	if (n < *room)
		return items;
	if (n >= KV_WARM_MOST)
		return NULL;
	*room = Min(Max(*room * 2, KV_WARM_LEAST), KV_WARM_MOST);
	return items == NULL ? MemoryContextAllocHuge(CurrentMemoryContext, *room * size) :
		repalloc_huge(items, *room * size);
}

static void
note_block(KvCached *cached, uint32 cache_id, uint64 number)
{
	KvCachedBlock *blocks = make_room(cached->blocks, cached->nblocks, &cached->blocks_room,
									  sizeof(KvCachedBlock));

	if (blocks == NULL)
		return;
	cached->blocks = blocks;
	blocks[cached->nblocks++] = (KvCachedBlock) {cache_id, number};
}

static void
note_frame(KvCached *cached, const KvCachedUnit *frame)
{
	KvCachedUnit *frames = make_room(cached->frames, cached->nframes, &cached->frames_room,
									 sizeof(KvCachedUnit));

	if (frames == NULL)
		return;
	cached->frames = frames;
	frames[cached->nframes++] = *frame;
}

static void
note_unit(void *arg, const KvCachedUnit *unit)
{
	KvCached   *cached = arg;

	if (unit->valid == 0)
		note_block(cached, unit->cache_id, unit->number | (unit->recent ? KV_WARM_RECENT : 0));
	else if (cached->tier_mark != 0)
		note_frame(cached, unit);
}

static int
compare_blocks(const void *a, const void *b)
{
	const KvCachedBlock *left = a;
	const KvCachedBlock *right = b;

	if (left->cache_id != right->cache_id)
		return left->cache_id < right->cache_id ? -1 : 1;
	return left->number < right->number ? -1 : left->number > right->number;
}

static int
compare_frames(const void *a, const void *b)
{
	const KvCachedUnit *left = a;
	const KvCachedUnit *right = b;

	if (left->cache_id != right->cache_id)
		return left->cache_id < right->cache_id ? -1 : 1;
	return left->frame < right->frame ? -1 : left->frame > right->frame;
}

static int
compare_stores(const ListCell *a, const ListCell *b)
{
	uint32		left = ((KvStore *) lfirst(a))->cache_id;
	uint32		right = ((KvStore *) lfirst(b))->cache_id;

	return left < right ? -1 : left > right;
}

/* Write the entry of a store, the next one by its cache_id; returns its bytes. */
static Size
make_entry(const KvStore *store, KvCached *cached, char *into)
{
	KvWarmStore *entry = (KvWarmStore *) into;
	uint64	   *numbers = (uint64 *) (entry + 1);
	KvWarmFrame *frames;

	memset(entry, 0, sizeof(*entry));
	entry->key = store->key;
	entry->id = store->shape.id;
	for (; cached->next_block < cached->nblocks; cached->next_block++)
	{
		const KvCachedBlock *block = &cached->blocks[cached->next_block];

		if (block->cache_id > store->cache_id)
			break;
		if (block->cache_id == store->cache_id &&
			(entry->nblocks == 0 || numbers[entry->nblocks - 1] != block->number))
			numbers[entry->nblocks++] = block->number;
	}
	frames = (KvWarmFrame *) (numbers + entry->nblocks);
	for (; cached->next_frame < cached->nframes; cached->next_frame++)
	{
		const KvCachedUnit *frame = &cached->frames[cached->next_frame];

		if (frame->cache_id > store->cache_id)
			break;
		if (frame->cache_id == store->cache_id)
			frames[entry->nframes++] = (KvWarmFrame) {frame->number, frame->frame, frame->valid};
	}
	if (entry->nblocks == 0 && entry->nframes == 0)
		return 0;
	return (char *) (frames + entry->nframes) - into;
}

/* Blocks of an open store in the unused file count as cached. */
static void
note_noted(KvStore *store, const KvWarmStore *entry, void *arg)
{
	const uint64 *numbers = (const uint64 *) (entry + 1);

	for (uint64 i = 0; i < entry->nblocks; i++)
		note_block(arg, store->cache_id, numbers[i]);
}

/*
 * Copy the unused file's entries of stores that are not open, after the others: of two frames
 * with the same place the first one counts.  Returns the bytes.
 */
static Size
copy_noted(const KvCached *cached, char *into, uint32 *nstores)
{
	const KvWarmStore *entry = (const KvWarmStore *) (cached->unused + sizeof(KvWarmHead));
	Size		len = 0;

	for (uint32 i = 0; i < ((const KvWarmHead *) cached->unused)->nstores;
		 i++, entry = entry_after(entry))
	{
		const char *end = cached->frames_hold ? (const char *) entry_after(entry)
			: (const char *) frames_of(entry);

		if (noted_store(entry) != NULL)
			continue;
		memcpy(into + len, entry, end - (const char *) entry);
		if (!cached->frames_hold)
			((KvWarmStore *) (into + len))->nframes = 0;
		len += end - (const char *) entry;
		(*nstores)++;
	}
	return len;
}

/* Make the file's content; returns 0 if nothing is cached. */
static Size
make_file(List *stores, KvCached *cached, char *file)
{
	KvWarmHead *head = (KvWarmHead *) file;
	Size		len = sizeof(KvWarmHead);
	ListCell   *cell;

	memset(head, 0, sizeof(*head));
	list_sort(stores, compare_stores);
	foreach(cell, stores)
	{
		Size		entry = make_entry(lfirst(cell), cached, file + len);

		len += entry;
		head->nstores += entry > 0;
	}
	if (cached->unused != NULL)
		len += copy_noted(cached, file + len, &head->nstores);
	head->magic = KV_WARM_MAGIC;
	head->format_version = KV_FORMAT_VERSION;
	head->system_identifier = GetSystemIdentifier();
	head->tier_mark = cached->tier_mark;
	head->crc = kv_crc(file + sizeof(*head), len - sizeof(*head));
	return head->nstores > 0 ? len : 0;
}

static void
write_file(void *arg)
{
	List	   *stores = *(List **) arg;
	KvCached	cached = {0};
	char	   *file;
	Size		len = 0;
	Size		unused_len = 0;

	/* a maintainer that was terminated is started again: the server continues */
	if (!kv_io_server_stops())
		return;
	(void) kv_io_unlink(KV_WARM_USED_PATH);
	cached.unused = kv_io_slurp(KV_WARM_PATH, &unused_len);
	if (cached.unused != NULL && file_problem(cached.unused, unused_len) != NULL)
		cached.unused = NULL;
	cached.tier_mark = kv_tier_mark();
	if (cached.unused != NULL)
	{
		cached.frames_hold = cached.tier_mark != 0 &&
			kv_tier_was_marked(((const KvWarmHead *) cached.unused)->tier_mark);
		if (cached.frames_hold)
			each_noted(cached.unused, enter_frames, NULL);
	}
	kv_source_each(note_unit, &cached);
	if (cached.unused != NULL)
		each_noted(cached.unused, note_noted, &cached);
	if (cached.nblocks > 0)
		qsort(cached.blocks, cached.nblocks, sizeof(KvCachedBlock), compare_blocks);
	if (cached.nframes > 0)
		qsort(cached.frames, cached.nframes, sizeof(KvCachedUnit), compare_frames);
	file = MemoryContextAllocHuge(CurrentMemoryContext, sizeof(KvWarmHead) +
								  list_length(stores) * sizeof(KvWarmStore) +
								  cached.nblocks * sizeof(uint64) + cached.nframes *
								  sizeof(KvWarmFrame) +
								  (cached.unused != NULL ? unused_len : 0));
	len = make_file(stores, &cached, file);
	if (len > 0)
		kv_io_replace(KV_WARM_PATH, file, len, false);
}

void
kv_warm_note(void)
{
	before_shmem_exit(unpin_stores, 0);
	pinned = kv_stores_pin_state(InvalidOid, KV_STORE_OPEN);
	(void) kv_attempt(write_file, &pinned);
	unpin_stores(0, 0);
}

/* ---- reading the file ---- */

static void
read_blocks(KvStore *store, const KvWarmStore *entry, void *arg)
{
	const uint64 *numbers = (const uint64 *) (entry + 1);
	uint64		first = 0;
	KvWarming  *warming = kv_warming_begin(&store->key, store->cache_id);

	/* blocks of the recent ring first: they are not in the second tier */
	while (first < entry->nblocks && (numbers[first] & KV_WARM_RECENT) == 0)
		first++;
	for (uint64 n = 0; n < entry->nblocks; n++)
	{
		uint64		i = (first + n) % entry->nblocks;
		bool		recent = (numbers[i] & KV_WARM_RECENT) != 0;

		if (n % KV_WARM_STEP == 0)
			kv_stores_unpin_dropped(pinned, store);
		if (pg_atomic_read_u32(&store->state) == KV_STORE_DROPPED || ShutdownRequestPending)
			break;
		kv_warming_add(warming, (numbers[i] & ~KV_WARM_RECENT) * KV_BLOCK, recent);
	}
	(void) kv_warming_end(warming);
	kv_stores_unpin_dropped(pinned, NULL);
}

static void
load_table(void *arg)
{
	(void) kv_store_by_key(arg);
}

static void
open_store(void *arg)
{
	kv_store_ensure_open(arg);
}

/* Open the stores of the file, as far as possible. */
static void
open_noted(const char *file)
{
	uint32		nstores = ((const KvWarmHead *) file)->nstores;
	const KvWarmStore *first = (const KvWarmStore *) (file + sizeof(KvWarmHead));
	const KvWarmStore *entry = first;

	for (uint32 i = 0; i < nstores && !ShutdownRequestPending; i++, entry = entry_after(entry))
		(void) kv_attempt(load_table, unconstify(KvStoreKey *, &entry->key));
	pinned = kv_stores_pin_state(InvalidOid, KV_STORE_CLOSED);
	entry = first;
	for (uint32 i = 0; i < nstores && !ShutdownRequestPending; i++, entry = entry_after(entry))
	{
		KvStore    *store = noted_store(entry);

		CHECK_FOR_INTERRUPTS();
		if (store != NULL && !store->shape.unusable)
			(void) kv_attempt(open_store, store);
		kv_stores_unpin_dropped(pinned, NULL);
	}
	unpin_stores(0, 0);
}

/* arg: bool *, are blocks read, too?  Frames take no time. */
static void
read_file(void *arg)
{
	Size		len;
	char	   *file = kv_io_slurp(KV_WARM_PATH, &len);
	const char *problem = file != NULL ? file_problem(file, len) : NULL;
	bool		frames_hold;

	if (problem != NULL)
		ereport(LOG,
				(errmsg("ignoring file \"%s\": %s", KV_WARM_PATH, problem)));
	if (file == NULL || problem != NULL)
		return;
	kv_io_create(KV_WARM_USED_PATH, "", 0);
	if (RecoveryInProgress())
		open_noted(file);
	/* this waits, so it is called before stores are pinned */
	frames_hold = kv_tier_was_marked(((const KvWarmHead *) file)->tier_mark);
	pinned = kv_stores_pin_state(InvalidOid, KV_STORE_OPEN);
	KV_STOP_POINT("warm_frames");
	if (frames_hold)
		each_noted(file, enter_frames, NULL);
	if (*(const bool *) arg)
		each_noted(file, read_blocks, NULL);
	KV_STOP_POINT("warm_read");
}

/* Read the file, and remove it unless the server stops before that is done. */
static void
use_file(bool blocks)
{
	(void) kv_attempt(read_file, &blocks);
	unpin_stores(0, 0);
	CHECK_FOR_INTERRUPTS();
	if (ShutdownRequestPending)
		return;
	(void) kv_io_unlink(KV_WARM_PATH);
	(void) kv_io_unlink(KV_WARM_USED_PATH);
}

void
kv_warm_worker_main(Datum arg)
{
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	kv_worker_attend();
	before_shmem_exit(unpin_stores, 0);
	use_file(true);
	proc_exit(0);
}

void
kv_warm_start(void)
{
	BackgroundWorkerHandle *handle;

	if (kv_base->warmed)
		return;
	kv_base->warmed = true;
	if (kv_io_unlink(KV_WARM_USED_PATH) == 0 && kv_io_unlink(KV_WARM_PATH) == 0)
		ereport(LOG,
				(errmsg("ignoring file \"%s\": the server crashed while reading it",
						KV_WARM_PATH)));
	if (!kv_io_identify_file(KV_WARM_PATH, &(uint64) {0}, &(int64) {0}, &(uint32) {0}))
		return;
	kv_worker_await_place(KV_PLACE_MS);
	if (kv_worker_start("kvfdw warm", "kv_warm_worker_main", 0, &handle))
		return;

	/* max_worker_processes is exhausted, and the maintainer has other work than reading */
	kv_report_not_started("kvfdw warm", "Caches are not filled in advance.");
	before_shmem_exit(unpin_stores, 0);
	use_file(false);
	cancel_before_shmem_exit(unpin_stores, 0);
}
