/*
 * warm.c
 *		Blocks come into the value cache before anybody asks for them: those of a table
 *		(kvfdw_prewarm), and after a start those that were there when the server stopped.
 *
 * When the server stops the maintainer notes which blocks are in the value cache and in the
 * recent ring.  After the start, when it has opened the stores, a worker reads them, in the
 * order of their places, and removes the file.  A place may have got other bytes since, as
 * after a power loss: then the block is of no use, and is lost when it is met.
 *
 * The file's grammar is in docs/format.md.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/ipc.h"
#include "tcop/tcopprot.h"
#include "utils/memutils.h"

#include "engine/base/attempt.h"
#include "engine/base/crc.h"
#include "engine/base/progress.h"
#include "engine/base/types.h"
#include "engine/base/worker.h"
#include "engine/cache/cache.h"
#include "engine/engine.h"
#include "engine/io/io.h"
#include "engine/shard/shard.h"
#include "engine/slot/slot.h"
#include "engine/value/value.h"
#include "engine/warm.h"

#define KV_WARM_PATH	KV_DIRECTORY "/warm"
#define KV_WARM_MAGIC	0x4b565741	/* "KVWA" */
#define KV_WARM_VERSION	1
#define KV_WARM_MOST	(16 * 1024 * 1024)	/* blocks that are noted */

#define KV_WARM_READ	(256 * 1024)
#define KV_WARM_READS	16

typedef struct KvWarmHead
{
	uint32		magic;
	uint32		format_version;
	uint64		system_identifier;
	uint32		nstores;
	uint32		crc;			/* of all behind */
} KvWarmHead;

/* Behind it are the numbers of its blocks, 8 bytes each, ascending. */
typedef struct KvWarmStore
{
	KvStoreKey	key;
	uint32		pad;
	uint64		id;
	uint64		nblocks;
} KvWarmStore;

StaticAssertDecl(sizeof(KvWarmHead) == 24, "head of the warm file is 24 bytes on disk");
StaticAssertDecl(sizeof(KvWarmStore) == 32, "a store of the warm file is 32 bytes on disk");

/* ---- reading blocks ---- */

typedef struct KvWarming
{
	KvStore    *store;
	char	   *memory;
	char	   *buffer;			/* in it: KV_WARM_READS of KV_WARM_READ, aligned */
	KvIoRequest reads[KV_WARM_READS];
	KvAddress	places[KV_WARM_READS];
	int			nreads;
	uint64		kept;			/* blocks */
} KvWarming;

static void
begin_warming(KvWarming *warming, KvStore *store)
{
	memset(warming, 0, sizeof(*warming));
	warming->store = store;
	warming->memory = palloc(KV_WARM_READS * KV_WARM_READ + KV_BLOCK);
	warming->buffer = (char *) TYPEALIGN(KV_BLOCK, warming->memory);
}

/* Read what has been gathered, and keep it.  What cannot be read is passed by. */
static void
read_gathered(KvWarming *warming)
{
	const KvStore *store = warming->store;

	CHECK_FOR_INTERRUPTS();
	kv_value_trim();
	for (int i = 0; i < warming->nreads; i++)
		warming->reads[i].file = kv_value_file(&store->key, store->cache_id,
											   kv_file_of(warming->places[i]), KV_IO_MISSING_OK);
	kv_io_read_batch(warming->reads, warming->nreads, KV_IO_VALUE_READ, NULL, NULL);
	for (int i = 0; i < warming->nreads; i++)
	{
		const KvIoRequest *read = &warming->reads[i];

		for (int at = 0; at + KV_BLOCK <= read->result; at += KV_BLOCK)
		{
			kv_block_warm(store->cache_id, warming->places[i] + at, read->buffer + at);
			warming->kept++;
		}
		kv_progress_add(read->len);
	}
	warming->nreads = 0;
	KV_STOP_POINT("warm_read");
}

/* Have whole blocks at an address read: a piece of the last read, or of another one. */
static void
gather(KvWarming *warming, KvAddress address, uint32 len)
{
	KvIoRequest *last = warming->nreads > 0 ? &warming->reads[warming->nreads - 1] : NULL;

	if (last != NULL && warming->places[warming->nreads - 1] + last->len == address &&
		last->len + len <= KV_WARM_READ &&
		kv_same_file(kv_file_of(address), kv_file_of(warming->places[warming->nreads - 1])))
	{
		last->len += len;
		return;
	}
	if (warming->nreads == KV_WARM_READS)
		read_gathered(warming);
	warming->places[warming->nreads] = address;
	warming->reads[warming->nreads] = (KvIoRequest)
	{
		.offset = kv_offset_of(address), .len = len,
		.buffer = warming->buffer + (Size) warming->nreads * KV_WARM_READ
	};
	warming->nreads++;
}

/* Returns how many blocks were kept. */
static uint64
end_warming(KvWarming *warming)
{
	read_gathered(warming);
	pfree(warming->memory);
	return warming->kept;
}

/* ---- a table ---- */

/* What of a shard's chunks is in files, the newest chunk first; palloc'd.  Returns how many. */
static int
written_parts(KvShard *shard, KvStretch **parts)
{
	KvStretch	unwritten;
	int			n = 0;

	LWLockAcquire(&shard->lock, LW_SHARED);
	unwritten = kv_shard_unwritten(shard);
	*parts = palloc(sizeof(KvStretch) * Max(shard->nchunks, 1));
	for (int i = shard->nchunks - 1; i >= 0; i--)
	{
		const KvShardChunk *chunk = &kv_chunks(shard)[i];
		KvStretch	part = {chunk->chunk.place, kv_chunk_end(shard, chunk)};

		if (unwritten.begin < part.end && unwritten.end > part.begin)
			part.end = Max(unwritten.begin, part.begin);
		part.end = TYPEALIGN(KV_BLOCK, part.end);
		if (part.begin < part.end)
			(*parts)[n++] = part;
	}
	LWLockRelease(&shard->lock);
	return n;
}

/* Read all of the store that the cache has room for. */
static void
prewarm(KvWarming *warming, uint64 room)
{
	KvStore    *store = warming->store;
	uint64		asked = 0;

	kv_each_shard(store, shardno)
	{
		KvStretch  *parts;
		int			nparts = written_parts(kv_shard(store, shardno), &parts);

		kv_progress_shard(shardno);
		for (int i = 0; i < nparts && asked < room; i++)
		{
			KvAddress	at = parts[i].begin;

			while (at < parts[i].end && asked < room)
			{
				uint64		blocks = Min((parts[i].end - at) / KV_BLOCK, KV_WARM_READ / KV_BLOCK);

				blocks = Min(blocks, room - asked);
				gather(warming, at, blocks * KV_BLOCK);
				at += blocks * KV_BLOCK;
				asked += blocks;
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
	uint64		room = kv_block_room();
	uint64		bytes = 0;
	KvWarming	warming;
	KvProgress	outer;

	kv_each_shard(store, shardno)
		bytes += kv_shard_value_bytes(kv_shard(store, shardno));
	kv_progress_begin(&outer, KV_PROGRESS_PREWARM, store->key.dboid, store->key.relid, -1,
					  "reading", Min(bytes, room * KV_BLOCK));
	PG_TRY();
	{
		begin_warming(&warming, store);
		prewarm(&warming, room);
		read_gathered(&warming);
	}
	PG_FINALLY();
	{
		kv_progress_end(&outer);
	}
	PG_END_TRY();
	return end_warming(&warming) * KV_BLOCK;
}

/* ---- noting what is cached ---- */

typedef struct KvCachedBlock
{
	uint32		cache_id;
	uint64		number;			/* address / KV_BLOCK */
} KvCachedBlock;

typedef struct KvCachedBlocks
{
	KvCachedBlock *blocks;
	uint64		n;
	uint64		room;
} KvCachedBlocks;

static void
note_block(void *arg, uint32 cache_id, uint64 number)
{
	KvCachedBlocks *cached = arg;

	if (cached->n < cached->room)
		cached->blocks[cached->n++] = (KvCachedBlock) {cache_id, number};
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

static KvStore *
store_of(List *stores, uint32 cache_id)
{
	ListCell   *cell;

	foreach(cell, stores)
	{
		if (((KvStore *) lfirst(cell))->cache_id == cache_id)
			return lfirst(cell);
	}
	return NULL;
}

/* The file's content; 0: nothing is cached. */
static Size
make_file(List *stores, const KvCachedBlocks *cached, char *file)
{
	KvWarmHead *head = (KvWarmHead *) file;
	Size		len = sizeof(KvWarmHead);

	memset(head, 0, sizeof(*head));
	for (uint64 i = 0, behind; i < cached->n; i = behind)
	{
		uint32		cache_id = cached->blocks[i].cache_id;
		const KvStore *store = store_of(stores, cache_id);
		KvWarmStore *entry = (KvWarmStore *) (file + len);
		uint64	   *numbers = (uint64 *) (entry + 1);

		for (behind = i; behind < cached->n && cached->blocks[behind].cache_id == cache_id; behind++)
			;
		if (store == NULL)
			continue;
		memset(entry, 0, sizeof(*entry));
		entry->key = store->key;
		entry->id = store->shape.id;
		for (uint64 k = i; k < behind; k++)
		{
			if (k == i || cached->blocks[k].number != cached->blocks[k - 1].number)
				numbers[entry->nblocks++] = cached->blocks[k].number;
		}
		len += sizeof(*entry) + entry->nblocks * sizeof(uint64);
		head->nstores++;
	}
	head->magic = KV_WARM_MAGIC;
	head->format_version = KV_WARM_VERSION;
	head->system_identifier = GetSystemIdentifier();
	head->crc = kv_crc(file + sizeof(*head), len - sizeof(*head));
	return head->nstores > 0 ? len : 0;
}

static void
write_file(void *arg)
{
	List	   *stores = *(List **) arg;
	KvCachedBlocks cached = {.room = Min(kv_block_room() + kv_recent_room(), KV_WARM_MOST)};
	char	   *file;
	Size		len;

	if (kv_io_identify_file(KV_WARM_PATH, &(uint64) {0}, &(int64) {0}, &(uint32) {0}) ||
		cached.room == 0)
		return;
	cached.blocks = MemoryContextAllocHuge(CurrentMemoryContext, cached.room * sizeof(KvCachedBlock));
	kv_block_each(note_block, &cached);
	kv_recent_each(note_block, &cached);
	qsort(cached.blocks, cached.n, sizeof(KvCachedBlock), compare_blocks);
	file = MemoryContextAllocHuge(CurrentMemoryContext, sizeof(KvWarmHead) +
								  list_length(stores) * sizeof(KvWarmStore) + cached.n * sizeof(uint64));
	len = make_file(stores, &cached, file);
	if (len > 0)
		kv_io_replace(KV_WARM_PATH, file, len, false);
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

void
kv_warm_note(void)
{
	/* a standby opens what is used, and would not know when to read it */
	if (RecoveryInProgress())
		return;
	before_shmem_exit(unpin_stores, 0);
	pinned = kv_stores_pin_state(InvalidOid, KV_STORE_OPEN);
	(void) kv_attempt(write_file, &pinned);
	unpin_stores(0, 0);
}

/* ---- reading it again ---- */

/* Why the file is not to be used, or NULL. */
static const char *
file_problem(const char *file, Size len)
{
	const KvWarmHead *head = (const KvWarmHead *) file;
	Size		at = sizeof(KvWarmHead);

	if (len < sizeof(KvWarmHead) || head->magic != KV_WARM_MAGIC ||
		head->crc != kv_crc(file + at, len - at))
		return "it is damaged";
	if (head->format_version != KV_WARM_VERSION)
		return "it has another version";
	if (head->system_identifier != GetSystemIdentifier())
		return "it is of another server";
	for (uint32 i = 0; i < head->nstores; i++)
	{
		const KvWarmStore *entry = (const KvWarmStore *) (file + at);

		if (len - at < sizeof(KvWarmStore) ||
			(len - at - sizeof(KvWarmStore)) / sizeof(uint64) < entry->nblocks)
			return "it is damaged";
		at += sizeof(KvWarmStore) + entry->nblocks * sizeof(uint64);
	}
	return NULL;
}

static KvStore *
noted_store(const KvWarmStore *entry)
{
	ListCell   *cell;

	foreach(cell, pinned)
	{
		KvStore    *store = lfirst(cell);

		if (kv_same_store(&store->key, &entry->key) && store->shape.id == entry->id)
			return store;
	}
	return NULL;
}

static void
read_file(void *arg)
{
	Size		len;
	char	   *file = kv_io_slurp(KV_WARM_PATH, &len);
	const char *problem = file != NULL ? file_problem(file, len) : NULL;
	Size		at = sizeof(KvWarmHead);

	if (problem != NULL)
		ereport(LOG,
				(errmsg("ignoring file \"%s\": %s", KV_WARM_PATH, problem)));
	if (file == NULL || problem != NULL)
		return;
	for (uint32 i = 0; i < ((KvWarmHead *) file)->nstores; i++)
	{
		const KvWarmStore *entry = (const KvWarmStore *) (file + at);
		const uint64 *numbers = (const uint64 *) (entry + 1);
		KvStore    *store = noted_store(entry);
		KvWarming	warming;

		at += sizeof(KvWarmStore) + entry->nblocks * sizeof(uint64);
		if (store == NULL)
			continue;
		begin_warming(&warming, store);
		for (uint64 k = 0; k < entry->nblocks; k++)
		{
			if (pg_atomic_read_u32(&store->state) == KV_STORE_DROPPED)
				break;
			gather(&warming, numbers[k] * KV_BLOCK, KV_BLOCK);
		}
		(void) end_warming(&warming);
	}
	KV_STOP_POINT("warm_read");
}

void
kv_warm_worker_main(Datum arg)
{
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	before_shmem_exit(unpin_stores, 0);
	pinned = kv_stores_pin_state(InvalidOid, KV_STORE_OPEN);
	(void) kv_attempt(read_file, NULL);
	unpin_stores(0, 0);
	(void) kv_io_unlink(KV_WARM_PATH);
	proc_exit(0);
}

void
kv_warm_start(void)
{
	BackgroundWorkerHandle *handle;

	if (kv_io_identify_file(KV_WARM_PATH, &(uint64) {0}, &(int64) {0}, &(uint32) {0}))
	{
		if (!kv_worker_start("kvfdw warm", "kv_warm_worker_main", 0, &handle))
			kv_worker_missed("kvfdw warm", "The cache of values begins empty.");
	}
}
