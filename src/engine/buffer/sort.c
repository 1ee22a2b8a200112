/*
 * sort.c
 *		The order in which a write buffer is written: values and entries by key.
 *
 * Values are stored in a buffer as they arrive, and readers find them there until it is freed.  A
 * process that writes the buffer makes a second image of both: values in the order of keys, and a
 * batch of entries with their new locations and checksums.  These are written, to the addresses
 * and the log offset of the buffer.  So a scan in key order finds what it reads next in a few
 * extents, one of each buffer.  Versions of the same key keep their order.
 *
 * A buffer whose keys arrived falling is written as it is.  A load in falling order then leaves
 * values whose addresses fall throughout, and a scan reads them backwards in large requests.
 * Sorted, the buffers would be rising extents in falling order, whose direction a scan mistakes.
 *
 * The image fits: a value is padded only as long as all values after it still have room without
 * padding, and without padding it is no longer than in the buffer.  It is a function of the sealed
 * buffer alone.  So a second attempt, of whichever process, writes the same bytes.
 *
 * Afterwards the versions in the memtable get their new locations (kv_sorted_relocate).  That is
 * done in slices, each under the shard's lock.  In between, a reader meets old locations, whose
 * values are in the buffer, and new ones, whose values are in the file.  Both are addresses of the
 * buffer; KvVersion.moves distinguishes them.  A reader that noted an old location and reads the
 * file later gets other bytes.  They do not match the checksum, and the reader looks the key up
 * again (I 16).
 *
 * The number of a version, which memcached clients compare, is made of its location.  So buffers
 * of a store that they use are written as they are (kv_numbers_stay).
 *
 * Crash: The buffer file has values and entries as they arrived.
 *	before in_use = 0	level none: a replay writes both as they arrived, over what was written.
 *						No run names a new location: a flush drains the shard first, and waits
 *						until this buffer has left the shard's list.
 *	after in_use = 0	both files have the sorted image, and nothing writes there again.  The
 *						memtable, relocated or not, is read from the key log.
 *
 * At the other levels buffers of a dead server are not used.  The PUT of a version has no
 * location, and a BATCH has the new one: it is logged when the values are in their file.
 */
#include "postgres.h"

#include "port/pg_bswap.h"
#include "utils/memutils.h"

#include "engine/base/key.h"
#include "engine/base/types.h"
#include "engine/buffer/buffer.h"
#include "engine/buffer/internal.h"
#include "engine/cache/cache.h"
#include "engine/format/format.h"
#include "engine/index/memtable.h"
#include "engine/io/fault.h"
#include "engine/shard/shard.h"
#include "engine/value/value.h"

/* Keys whose versions are relocated under one hold of the shard's lock. */
#define KV_RELOCATED_AT_ONCE	(4 * KV_FOUND_TOGETHER)

/* An entry of the buffer. */
typedef struct KvSortItem
{
	uint64		head;			/* the first bytes of its key, as a number */
	uint32		at;				/* its offset in the entries */
	uint32		n;				/* its number, by arrival */
} KvSortItem;

static uint64
head_of(const KvLogEntry *entry)
{
	uint8		bytes[sizeof(uint64)] = {0};
	uint64		head;

	memcpy(bytes, entry + 1, Min(entry->keylen, sizeof(bytes)));
	memcpy(&head, bytes, sizeof(head));
	return pg_ntoh64(head);
}

static inline const KvLogEntry *
entry_at(const char *entries, const KvSortItem *item)
{
	return (const KvLogEntry *) (entries + item->at);
}

static inline int
compare_items(const KvSortItem *a, const KvSortItem *b, const char *entries)
{
	int			cmp;

	if (a->head != b->head)
		return a->head < b->head ? -1 : 1;
	cmp = kv_key_compare((const uint8 *) (entry_at(entries, a) + 1), entry_at(entries, a)->keylen,
						 (const uint8 *) (entry_at(entries, b) + 1), entry_at(entries, b)->keylen);
	if (cmp != 0)
		return cmp;
	return a->n < b->n ? -1 : a->n > b->n;
}

#define ST_SORT sort_items
#define ST_ELEMENT_TYPE KvSortItem
#define ST_COMPARE(a, b, entries) compare_items(a, b, entries)
#define ST_COMPARE_ARG_TYPE const char
#define ST_SCOPE static
#define ST_DEFINE
#include "lib/sort_template.h"

/* Is the value in the buffer's value area? */
static inline bool
is_inside(const KvWriteBuffer *buffer, const KvLogEntry *entry)
{
	KvAddress	address = KV_LOCATION_ADDRESS(entry->location);

	return entry->len > 0 && address >= buffer->base &&
		address < buffer->base + buffer->value_used;
}

/* ---- making the image ---- */

bool
kv_buffer_has_batch(int i)
{
	const KvWriteBuffer *buffer = &kv_buffers[i];
	const KvBufferHeader *header = kv_buffer_header(i);
	const KvLogBatch *batch = kv_buffer_batch(i);
	const char *entries = kv_buffer_entries(i);
	uint32		at = 0;

	if (header->sequence != buffer->sequence || header->open_crc != kv_buffer_open_crc(header) ||
		batch->sequence != buffer->sequence || batch->incarnation != header->incarnation ||
		batch->magic != KV_MAGIC_BATCH || !kv_same_store(&batch->store, &buffer->store->key) ||
		batch->shard != buffer->shard || batch->log_number != buffer->log_number ||
		batch->log_offset != buffer->log_offset || batch->nentries != buffer->nentries ||
		batch->entry_bytes != buffer->entry_used)
		return false;
	for (uint32 n = 0; n < buffer->nentries; n++)
	{
		const KvLogEntry *entry = (const KvLogEntry *) (entries + at);

		if (entry->keylen > KV_MAX_KEY ||
			at + KV_LOG_ENTRY_SIZE(entry->keylen) > buffer->entry_used ||
			entry->crc != kv_log_entry_crc(entry, buffer->sequence))
			return false;
		at += KV_LOG_ENTRY_SIZE(entry->keylen);
	}
	return at == buffer->entry_used;
}

/* Did the buffer's keys arrive in falling order? */
static bool
arrived_falling(int i)
{
	const KvLogEntry *last = (const KvLogEntry *) kv_buffer_entries(i);
	bool		falls = false;

	for (uint32 n = 1; n < kv_buffers[i].nentries; n++)
	{
		const KvLogEntry *entry =
			(const KvLogEntry *) ((const char *) last + KV_LOG_ENTRY_SIZE(last->keylen));
		int			cmp = kv_key_compare((const uint8 *) (entry + 1), entry->keylen,
										 (const uint8 *) (last + 1), last->keylen);

		if (cmp > 0)
			return false;
		falls = falls || cmp < 0;
		last = entry;
	}
	return falls;
}

/* Fills in the items, by arrival.  Returns the bytes of the buffer's values without padding. */
static Size
list_items(int i, KvSortItem *items)
{
	const KvWriteBuffer *buffer = &kv_buffers[i];
	const char *entries = kv_buffer_entries(i);
	uint32		at = 0;
	Size		bytes = 0;

	for (uint32 n = 0; n < buffer->nentries; n++)
	{
		const KvLogEntry *entry = (const KvLogEntry *) (entries + at);

		items[n] = (KvSortItem) {head_of(entry), at, n};
		if (is_inside(buffer, entry))
			bytes += TYPEALIGN(8, entry->len);
		at += KV_LOG_ENTRY_SIZE(entry->keylen);
	}
	return bytes;
}

/* The heat of the value's blocks in the buffer becomes that of its blocks in the image. */
static void
move_heat(int i, KvSorted *sorted, uint32 from, uint32 to, uint32 len)
{
	KvHeat		heat = KV_COLD;

	for (uint32 at = TYPEALIGN_DOWN(KV_BLOCK, from); at < from + len; at += KV_BLOCK)
		heat = Max(heat, kv_buffer_block_heat(i, at));
	for (uint32 at = TYPEALIGN_DOWN(KV_BLOCK, to); heat != KV_COLD && at < to + len;
		 at += KV_BLOCK)
		sorted->heat[at / KV_BLOCK] = Max(sorted->heat[at / KV_BLOCK], heat);
}

/*
 * Copies values and entries in the order of the items.  spare: bytes that padding may take.
 */
static void
copy_sorted(int i, KvSorted *sorted, Size spare)
{
	const KvWriteBuffer *buffer = &kv_buffers[i];
	const KvSortItem *items = sorted->items;
	const char *entries = kv_buffer_entries(i);
	const char *values = kv_buffer_values(i);
	char	   *out = (char *) (sorted->batch + 1);
	uint32		used = 0;

	memcpy(sorted->batch, kv_buffer_batch(i), sizeof(KvLogBatch));
	for (uint32 n = 0; n < buffer->nentries; n++)
	{
		const KvLogEntry *entry = entry_at(entries, &items[n]);
		KvLogEntry *copy = (KvLogEntry *) out;

		memcpy(copy, entry, KV_LOG_ENTRY_SIZE(entry->keylen));
		out += KV_LOG_ENTRY_SIZE(entry->keylen);
		if (is_inside(buffer, entry))
		{
			uint32		from = KV_LOCATION_ADDRESS(entry->location) - buffer->base;
			uint32		at = TYPEALIGN(8, used);
			uint32		padded = kv_value_position(used, entry->len);

			if (padded - at <= spare)
			{
				spare -= padded - at;
				at = padded;
			}
			memset(sorted->values + used, 0, at - used);
			memcpy(sorted->values + at, values + from, entry->len);
			used = at + entry->len;
			if (sorted->hot)
				move_heat(i, sorted, from, at, entry->len);
			copy->location = KV_LOCATION_MAKE(KV_LOCATION_FORM(entry->location),
											  buffer->base + at);
			copy->value_crc = kv_value_crc_moved(entry->value_crc, entry->location,
												 copy->location, entry->len);
			copy->crc = kv_log_entry_crc(copy, buffer->sequence);
		}
	}
	Assert(used <= sorted->len);
	memset(sorted->values + used, 0, sorted->len - used);
}

void
kv_sorted_make(KvSorted *sorted, int i)
{
	KvWriteBuffer *buffer = &kv_buffers[i];
	Size		len = TYPEALIGN(KV_BLOCK, buffer->value_used);
	Size		batch = TYPEALIGN(8, sizeof(KvLogBatch) + buffer->entry_used);
	Size		bytes;

	memset(sorted, 0, sizeof(*sorted));
	sorted->offset = kv_offset_of(buffer->base);
	sorted->len = len;
	sorted->values = kv_buffer_values(i);
	sorted->batch = kv_buffer_batch(i);
	sorted->hot = kv_buffer_is_hot(i);

	/* a buffer whose versions may have new locations already must be sorted again */
	if (!buffer->relocating && (!buffer->sorts || len == 0 || buffer->nentries < 2))
		return;
	if (!kv_buffer_has_batch(i))
		return;					/* kv_buffer_finish reports it */
	if (arrived_falling(i))
		return;
	sorted->memory = MemoryContextAllocExtended(TopMemoryContext, len + KV_BLOCK + batch +
												buffer->nentries * sizeof(KvSortItem) +
												len / KV_BLOCK, MCXT_ALLOC_HUGE |
												(buffer->relocating ? 0 : MCXT_ALLOC_NO_OOM));
	if (sorted->memory == NULL)
		return;
	sorted->values = (char *) TYPEALIGN(KV_BLOCK, sorted->memory);
	sorted->batch = (KvLogBatch *) (sorted->values + len);
	sorted->items = (KvSortItem *) ((char *) sorted->batch + batch);
	sorted->heat = (uint8 *) (sorted->items + buffer->nentries);
	if (sorted->hot)
		memset(sorted->heat, KV_COLD, len / KV_BLOCK);
	bytes = list_items(i, sorted->items);
	sort_items(sorted->items, buffer->nentries, kv_buffer_entries(i));
	copy_sorted(i, sorted, len - bytes);
}

void
kv_sorted_free(KvSorted *sorted)
{
	if (sorted->memory != NULL)
		pfree(sorted->memory);
	sorted->memory = NULL;
}

uint32
kv_sorted_arrival(const KvSorted *sorted, uint32 n)
{
	return sorted->memory != NULL ? sorted->items[n].n : n;
}

/* The heat of the block at this offset of what is written. */
static KvHeat
block_heat(const KvSorted *sorted, int i, uint32 at)
{
	return !sorted->hot ? KV_COLD :
		sorted->memory != NULL ? sorted->heat[at / KV_BLOCK] : kv_buffer_block_heat(i, at);
}

void
kv_sorted_keep(const KvSorted *sorted, int i)
{
	const KvWriteBuffer *buffer = &kv_buffers[i];
	uint32		cache_id = buffer->store->cache_id;

	for (uint32 at = 0, len; at < sorted->len; at += len)
	{
		KvHeat		heat = block_heat(sorted, i, at);

		/* one call for all adjacent blocks of the same heat */
		len = KV_BLOCK;
		while (at + len < sorted->len && block_heat(sorted, i, at + len) == heat)
			len += KV_BLOCK;
		if (heat != KV_COLD || !buffer->bulk || buffer->shared)
			kv_source_put(cache_id, buffer->base + at, len, sorted->values + at, heat);
	}
}

/* ---- new locations ---- */

/* Entries of one key, in the order of the image. */
typedef struct KvRelocation
{
	KvKey		key;
	uint32		first;			/* the number of the first */
	uint32		n;
	const KvLogEntry *entry;	/* the first, with its new location */
} KvRelocation;

/* The entries of the key that entry n of the image begins with; entry is its place there. */
static KvRelocation
relocation_at(const KvLogEntry *entry, uint32 n, uint32 nentries)
{
	KvRelocation all = {kv_entry_key(entry), n, 0, entry};

	while (n < nentries && kv_key_compare(all.key.data, all.key.len, (const uint8 *) (entry + 1),
										  entry->keylen) == 0)
	{
		n++;
		all.n++;
		entry = (const KvLogEntry *) ((const char *) entry + KV_LOG_ENTRY_SIZE(entry->keylen));
	}
	return all;
}

/*
 * Gives the versions of a key that are in this buffer their new locations.  Versions of a chain
 * are newest first, and the entries oldest first.  The lock is held exclusively.
 */
static void
relocate_key(int i, const KvSorted *sorted, const KvRelocation *all, KvMemtableItem *item)
{
	const KvWriteBuffer *buffer = &kv_buffers[i];
	Size		size = KV_LOG_ENTRY_SIZE(all->key.len);
	dsa_pointer pointer = item != NULL ? item->newest : InvalidDsaPointer;

	for (uint32 n = all->n; n > 0; n--)
	{
		const KvLogEntry *now = (const KvLogEntry *) ((const char *) all->entry + (n - 1) * size);
		const KvLogEntry *before = entry_at(kv_buffer_entries(i),
											&sorted->items[all->first + n - 1]);
		KvVersion  *version = NULL;

		if (!is_inside(buffer, before))
			continue;
		for (; version == NULL && DsaPointerIsValid(pointer);)
		{
			KvMemtableVersion *node = kv_address(pointer);

			/* an attempt that has failed may have relocated it */
			if (node->version.xid == before->xid && node->version.len == before->len &&
				node->version.location == (node->version.moves ? before : now)->location)
				version = &node->version;
			pointer = node->older;
		}
		Assert(version != NULL);
		if (version == NULL)
			return;
		version->location = now->location;
		version->crc = now->value_crc;
		version->moves = false;
	}
}

/* The memtable that has the buffer's versions.  The lock is held. */
static const KvMemtable *
memtable_of(const KvShard *shard, const KvWriteBuffer *buffer)
{
	return buffer->log_number <= shard->log.immutable ? &shard->immutable : &shard->active;
}

/* The lock is held exclusively. */
static void
relocate_keys(int i, const KvSorted *sorted, const KvRelocation *keys, int n)
{
	const KvWriteBuffer *buffer = &kv_buffers[i];
	const KvShard *shard = kv_shard(buffer->store, buffer->shard);
	KvMemtableItem *items[KV_FOUND_TOGETHER];
	KvKey		found[KV_FOUND_TOGETHER];

	for (int k = 0; k < n; k++)
		found[k] = keys[k].key;
	kv_memtable_find_all(memtable_of(shard, buffer), found, n, items);
	for (int k = 0; k < n; k++)
		relocate_key(i, sorted, &keys[k], items[k]);
}

void
kv_sorted_relocate(const KvSorted *sorted, int i)
{
	KvWriteBuffer *buffer = &kv_buffers[i];
	KvShard    *shard = kv_shard(buffer->store, buffer->shard);
	const KvLogEntry *entry = (const KvLogEntry *) (sorted->batch + 1);
	KvRelocation keys[KV_FOUND_TOGETHER];

	if (sorted->memory == NULL)
		return;
	buffer->relocating = true;
	for (uint32 n = 0; n < buffer->nentries;)
	{
		LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
		for (int done = 0; done < KV_RELOCATED_AT_ONCE && n < buffer->nentries;)
		{
			int			nkeys = 0;

			while (nkeys < KV_FOUND_TOGETHER && n < buffer->nentries)
			{
				keys[nkeys] = relocation_at(entry, n, buffer->nentries);
				n += keys[nkeys].n;
				entry = (const KvLogEntry *) ((const char *) entry + keys[nkeys].n *
											  KV_LOG_ENTRY_SIZE(entry->keylen));
				nkeys++;
			}
			relocate_keys(i, sorted, keys, nkeys);
			done += nkeys;
		}
		LWLockRelease(&shard->lock);
		KV_STOP_POINT("buffer_relocating");
	}
}
