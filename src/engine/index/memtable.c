/*
 * memtable.c
 *		A memtable: recent versions of a shard's keys, in a B+tree in shared memory.
 *
 * Leaves hold items (one per key) in key order; an item is the head of a chain of versions,
 * newest first.  Items and versions are only ever added; all memory is freed at once when a
 * flush has written the contents.  So there is no deletion and no reuse, and a cursor stays
 * good as long as the shard's lock is held (shared to read, exclusive to add).
 *
 * Nodes compare eight bytes of a key, and read the item only to break a tie.  If the first
 * eight bytes do not distinguish all keys of a node, the node stores the common beginning of
 * its keys once and compares the bytes after it.  That is determined when the node is split.
 *
 * Statements mostly write keys one after the other, so a process remembers where it has located the
 * last one (fingers).  The path to a leaf holds until a node is split.
 *
 * Memory comes in chunks from the area, whose size is kvfdw.memtable_memory (I 12).  An
 * addition first reserves all that it may need, so it happens completely or not at all.
 */
#include "postgres.h"

#include "engine/base/shared.h"
#include "engine/base/key.h"
#include "engine/base/types.h"
#include "engine/index/memtable.h"

#define KV_NODE_FANOUT	64
#define KV_NODE_BEGINNING	40	/* such that the prefixes begin a cache line */
#define KV_CHUNK_MIN	((Size) 4096)
#define KV_CHUNK_MAX	((Size) 65536)

typedef struct KvChunk
{
	dsa_pointer next;
	uint32		size;
	uint32		used;
} KvChunk;

/*
 * A leaf's entry i is item[i].  An inner node's entry i is the subtree
 * child[i], whose first key is item[i]'s (entry 0 stands for minus infinity).
 */
typedef struct KvNode
{
	uint16		n;
	uint16		leaf;
	uint32		common;			/* used bytes of beginning */
	dsa_pointer next;			/* leaves only */
	dsa_pointer prev;
	/* the common beginning of the keys of all items; prefixes are taken after it */
	uint8		beginning[KV_NODE_BEGINNING];
	uint64		prefix[KV_NODE_FANOUT];
	dsa_pointer item[KV_NODE_FANOUT];
	dsa_pointer child[FLEXIBLE_ARRAY_MEMBER];	/* inner nodes only */
} KvNode;

#define KV_LEAF_SIZE	offsetof(KvNode, child)
#define KV_INNER_SIZE	(offsetof(KvNode, child) + KV_NODE_FANOUT * sizeof(dsa_pointer))

KvMemtableMemory *kv_memtable_memory = NULL;

void
kv_memtable_memory_init(void)
{
	pg_atomic_init_u64(&kv_memtable_memory->bytes, 0);
	pg_atomic_init_u64(&kv_memtable_memory->numbers, 0);
	ConditionVariableInit(&kv_memtable_memory->freed);
	pg_atomic_init_u64(&kv_memtable_memory->wanted, 0);
}

Size
kv_memtable_limit(void)
{
	return Min((Size) 16 * 1024 * 1024, kv_area_size() / 8);
}

static inline KvNode *
node_at(dsa_pointer pointer)
{
	return (KvNode *) kv_address(pointer);
}

/* The prefix of a key that is, or may be, in the node. */
static inline uint64
node_prefix(const KvNode *node, const uint8 *key, int keylen)
{
	return kv_key_prefix_after(key, keylen, node->common);
}

/* Index of the first entry of the node, from index "from" on, whose key is >= key (or n). */
static int
node_search(const KvNode *node, int from, const uint8 *key, int keylen)
{
	int			side = node->common > 0
		? kv_key_compare_prefix(key, keylen, node->beginning, node->common) : 0;
	uint64		low;
	uint64		high;

	if (unlikely(side != 0))
		return side < 0 ? from : node->n;
	kv_prefixes_equal(&node->prefix[from], node->n - from, node_prefix(node, key, keylen),
					  &low, &high);
	while (low < high)
	{
		uint64		middle = (low + high) / 2;
		const KvMemtableItem *item = kv_address(node->item[from + middle]);

		if (kv_key_compare(item->key, item->keylen, key, keylen) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return from + (int) low;
}

/* Has entry i, which may be n, this key? */
static bool
node_has_key(const KvNode *node, int i, const uint8 *key, int keylen)
{
	const KvMemtableItem *item;

	if (i >= node->n || node->prefix[i] != node_prefix(node, key, keylen))
		return false;
	item = kv_address(node->item[i]);
	return item->keylen == keylen && memcmp(item->key, key, keylen) == 0;
}

/* The child of an inner node that covers key. */
static int
inner_slot(const KvNode *node, const uint8 *key, int keylen)
{
	int			i = node_search(node, 1, key, keylen);

	/* node_search returns the first >= key; an equal separator belongs to its child */
	return node_has_key(node, i, key, keylen) ? i : i - 1;
}

/* Descend to the leaf that covers key, noting nodes and slots on the way. */
static dsa_pointer
descend(const KvMemtable *memtable, const uint8 *key, int keylen, dsa_pointer *path, int *slots)
{
	dsa_pointer	pointer = memtable->root;

	for (uint32 level = memtable->height; level > 1; level--)
	{
		KvNode	   *node = node_at(pointer);
		int			slot = inner_slot(node, key, keylen);

		if (path)
		{
			path[level - 1] = pointer;
			slots[level - 1] = slot;
		}
		pointer = node->child[slot];
		__builtin_prefetch(node_at(pointer));
		kv_prefixes_fetch(node_at(pointer)->prefix, KV_NODE_FANOUT);
	}
	if (path)
		path[0] = pointer;
	return pointer;
}

KvMemtableItem *
kv_memtable_find(const KvMemtable *memtable, const uint8 *key, int keylen)
{
	KvNode	   *leaf;
	int			i;

	if (!DsaPointerIsValid(memtable->root))
		return NULL;
	leaf = node_at(descend(memtable, key, keylen, NULL, NULL));
	i = node_search(leaf, 0, key, keylen);
	if (node_has_key(leaf, i, key, keylen))
		return kv_address(leaf->item[i]);
	return NULL;
}

/* The only entry of a leaf with the key's prefix; n: there is none, -1: there are several. */
static int
leaf_candidate(const KvNode *leaf, KvKey key)
{
	uint64		low;
	uint64		high;

	if (leaf->common > 0 && kv_key_compare_prefix(key.data, key.len, leaf->beginning,
												  leaf->common) != 0)
		return leaf->n;
	kv_prefixes_equal(leaf->prefix, leaf->n, node_prefix(leaf, key.data, key.len), &low, &high);
	return low == high ? leaf->n : high - low == 1 ? (int) low : -1;
}

void
kv_memtable_find_all(const KvMemtable *memtable, const KvKey *keys, int n, KvMemtableItem **items)
{
	const KvNode *leaves[KV_FOUND_TOGETHER];
	int			at[KV_FOUND_TOGETHER];

	Assert(n <= KV_FOUND_TOGETHER);
	memset(items, 0, n * sizeof(KvMemtableItem *));
	if (!DsaPointerIsValid(memtable->root))
		return;
	for (int i = 0; i < n; i++)
		leaves[i] = node_at(descend(memtable, keys[i].data, keys[i].len, NULL, NULL));
	for (int i = 0; i < n; i++)
	{
		at[i] = leaf_candidate(leaves[i], keys[i]);
		if (at[i] >= 0 && at[i] < leaves[i]->n)
			__builtin_prefetch(&leaves[i]->item[at[i]]);
	}
	for (int i = 0; i < n; i++)
	{
		if (at[i] < 0)
			items[i] = kv_memtable_find(memtable, keys[i].data, keys[i].len);
		else if (at[i] < leaves[i]->n)
		{
			items[i] = kv_address(leaves[i]->item[at[i]]);
			__builtin_prefetch(items[i]);
		}
	}
	for (int i = 0; i < n; i++)
	{
		if (items[i] == NULL)
			continue;
		if (items[i]->keylen == keys[i].len &&
			memcmp(items[i]->key, keys[i].data, keys[i].len) == 0)
			__builtin_prefetch(kv_address(items[i]->newest));
		else
			items[i] = NULL;
	}
}

static KvMemtableItem *
cursor_item(KvMemtableCursor *cursor)
{
	return kv_address(node_at(cursor->leaf)->item[cursor->index]);
}

KvMemtableItem *
kv_memtable_seek(const KvMemtable *memtable, const uint8 *key, int keylen, KvMemtableCursor *cursor)
{
	if (!DsaPointerIsValid(memtable->root))
		return NULL;
	cursor->leaf = descend(memtable, key, keylen, NULL, NULL);
	cursor->index = node_search(node_at(cursor->leaf), 0, key, keylen) - 1;
	return kv_memtable_next(cursor);
}

KvMemtableItem *
kv_memtable_seek_before(const KvMemtable *memtable, const uint8 *key, int keylen,
						KvMemtableCursor *cursor)
{
	if (!DsaPointerIsValid(memtable->root))
		return NULL;
	if (key == NULL)
	{
		dsa_pointer	pointer = memtable->root;

		for (uint32 level = memtable->height; level > 1; level--)
		{
			KvNode	   *node = node_at(pointer);

			pointer = node->child[node->n - 1];
		}
		cursor->leaf = pointer;
		cursor->index = node_at(pointer)->n;
	}
	else
	{
		cursor->leaf = descend(memtable, key, keylen, NULL, NULL);
		cursor->index = node_search(node_at(cursor->leaf), 0, key, keylen);
	}
	return kv_memtable_prev(cursor);
}

KvMemtableItem *
kv_memtable_next(KvMemtableCursor *cursor)
{
	cursor->index++;
	while (cursor->index >= node_at(cursor->leaf)->n)
	{
		dsa_pointer next = node_at(cursor->leaf)->next;

		if (!DsaPointerIsValid(next))
			return NULL;
		cursor->leaf = next;
		cursor->index = 0;
	}
	return cursor_item(cursor);
}

KvMemtableItem *
kv_memtable_prev(KvMemtableCursor *cursor)
{
	cursor->index--;
	while (cursor->index < 0)
	{
		dsa_pointer prev = node_at(cursor->leaf)->prev;

		if (!DsaPointerIsValid(prev))
			return NULL;
		cursor->leaf = prev;
		cursor->index = node_at(prev)->n - 1;
	}
	return cursor_item(cursor);
}

/* The share of a subtree's items that are before a key, if all children had the same size. */
static double
share_before(const KvNode *node, uint32 level, KvKey key)
{
	int			slot;

	if (level == 1)
		return (double) node_search(node, 0, key.data, key.len) / node->n;
	slot = inner_slot(node, key.data, key.len);
	return (slot + share_before(node_at(node->child[slot]), level - 1, key)) / node->n;
}

double
kv_memtable_rank(const KvMemtable *memtable, KvKey key)
{
	if (!DsaPointerIsValid(memtable->root))
		return 0;
	if (key.data == NULL)
		return memtable->nitems;
	return memtable->nitems *
		share_before(node_at(memtable->root), memtable->height, key);
}

KvMemtableItem *
kv_memtable_at_share(const KvMemtable *memtable, double share, KvMemtableCursor *cursor)
{
	dsa_pointer	pointer = memtable->root;

	if (!DsaPointerIsValid(pointer))
		return NULL;
	for (uint32 level = memtable->height;; level--)
	{
		const KvNode *node = node_at(pointer);
		int			slot = Min((int) (share * node->n), node->n - 1);

		if (level == 1)
		{
			cursor->leaf = pointer;
			cursor->index = slot;
			return cursor_item(cursor);
		}
		share = share * node->n - slot;
		pointer = node->child[slot];
	}
}

/* Ensure that size bytes can be taken from the newest chunk. */
static bool
reserve(KvMemtable *memtable, Size size)
{
	KvChunk *chunk;
	dsa_pointer pointer;
	Size		want;

	if (DsaPointerIsValid(memtable->chunks))
	{
		chunk = kv_address(memtable->chunks);
		if (chunk->size - chunk->used >= size)
			return true;
	}
	want = memtable->bytes < KV_CHUNK_MAX ? Max(KV_CHUNK_MIN, memtable->bytes)
		: KV_CHUNK_MAX;
	while (want < size + sizeof(KvChunk))
		want *= 2;
	want = TYPEALIGN(KV_CHUNK_MIN, want);
	pointer = dsa_allocate_extended(kv_area(), want, DSA_ALLOC_NO_OOM | DSA_ALLOC_HUGE);
	if (!DsaPointerIsValid(pointer))
		return false;
	chunk = kv_address(pointer);
	chunk->next = memtable->chunks;
	chunk->size = want;
	chunk->used = MAXALIGN(sizeof(KvChunk));
	memtable->chunks = pointer;
	memtable->bytes += want;
	pg_atomic_fetch_add_u64(&kv_memtable_memory->bytes, want);
	return true;
}

static dsa_pointer
take(KvMemtable *memtable, Size size)
{
	KvChunk *chunk = kv_address(memtable->chunks);
	dsa_pointer	pointer = memtable->chunks + chunk->used;

	Assert(chunk->size - chunk->used >= size);
	chunk->used += size;
	return pointer;
}

/* Set the common beginning of the keys to this length. */
static void
node_set_common(KvNode *node, int common)
{
	node->common = common;
	for (int i = 0; i < node->n; i++)
	{
		const KvMemtableItem *item = kv_address(node->item[i]);

		if (i == 0)
			memcpy(node->beginning, item->key, common);
		node->prefix[i] = node_prefix(node, item->key, item->keylen);
	}
}

/* Before a key is put into the node: shorten the beginning to what the key has in common. */
static void
node_make_fit(KvNode *node, const KvMemtableItem *item)
{
	int			common = kv_key_common(node->beginning, node->common, item->key, item->keylen,
									   node->common);

	if (common < node->common)
		node_set_common(node, common);
}

/* After a split: the keys may have a longer beginning in common. */
static void
node_find_common(KvNode *node)
{
	const KvMemtableItem *first = kv_address(node->item[0]);
	const KvMemtableItem *last = kv_address(node->item[node->n - 1]);

	for (int i = 1; i < node->n; i++)
	{
		if (node->prefix[i] == node->prefix[i - 1])
		{
			int			common = kv_key_common(first->key, first->keylen, last->key, last->keylen,
											   KV_NODE_BEGINNING);

			if (common > node->common)
				node_set_common(node, common);
			return;
		}
	}
}

static void
node_insert_at(KvNode *node, int i, dsa_pointer item, dsa_pointer child)
{
	const KvMemtableItem *added = kv_address(item);
	int			move = node->n - i;

	node_make_fit(node, added);
	memmove(&node->prefix[i + 1], &node->prefix[i], move * sizeof(uint64));
	memmove(&node->item[i + 1], &node->item[i], move * sizeof(dsa_pointer));
	node->prefix[i] = node_prefix(node, added->key, added->keylen);
	node->item[i] = item;
	if (!node->leaf)
	{
		memmove(&node->child[i + 1], &node->child[i], move * sizeof(dsa_pointer));
		node->child[i] = child;
	}
	node->n++;
}

/*
 * Split a full node: its upper part moves to a new right neighbour.  An append
 * at the far right moves nothing, so sequential keys fill their leaves.
 */
static dsa_pointer
node_split(KvMemtable *memtable, dsa_pointer left_pointer, int insert_at)
{
	KvNode	   *left = node_at(left_pointer);
	dsa_pointer	right_pointer = take(memtable, left->leaf ? KV_LEAF_SIZE : KV_INNER_SIZE);
	KvNode	   *right = node_at(right_pointer);
	int			keep = (insert_at == left->n) ? left->n - 1 : left->n / 2;

	memtable->splits++;
	right->leaf = left->leaf;
	right->n = left->n - keep;
	right->common = left->common;
	memcpy(right->beginning, left->beginning, left->common);
	memcpy(right->prefix, &left->prefix[keep], right->n * sizeof(uint64));
	memcpy(right->item, &left->item[keep], right->n * sizeof(dsa_pointer));
	if (left->leaf)
	{
		right->prev = left_pointer;
		right->next = left->next;
		if (DsaPointerIsValid(right->next))
			node_at(right->next)->prev = right_pointer;
		left->next = right_pointer;
	}
	else
	{
		right->next = right->prev = InvalidDsaPointer;
		memcpy(right->child, &left->child[keep], right->n * sizeof(dsa_pointer));
	}
	left->n = keep;
	node_find_common(left);
	node_find_common(right);
	return right_pointer;
}

/* Insert into the node at a level of the path, splitting upwards as needed. */
static void
insert_at_level(KvMemtable *memtable, dsa_pointer *path, int *slots, int level, int at,
				dsa_pointer item, dsa_pointer child)
{
	KvNode	   *node = node_at(path[level]);

	if (node->n == KV_NODE_FANOUT)
	{
		dsa_pointer	right_pointer = node_split(memtable, path[level], at);
		KvNode	   *right = node_at(right_pointer);

		if (at > node->n)
			node_insert_at(right, at - node->n, item, child);
		else
			node_insert_at(node, at, item, child);

		if (level + 1 == (int) memtable->height)
		{
			dsa_pointer	root_pointer = take(memtable, KV_INNER_SIZE);
			KvNode	   *root = node_at(root_pointer);

			root->leaf = 0;
			root->n = 2;
			root->next = root->prev = InvalidDsaPointer;
			root->item[0] = node->item[0];
			root->child[0] = path[level];
			root->item[1] = right->item[0];
			root->child[1] = right_pointer;
			node_set_common(root, 0);
			memtable->root = root_pointer;
			memtable->height++;
		}
		else
			insert_at_level(memtable, path, slots, level + 1, slots[level + 1] + 1,
							right->item[0], right_pointer);
	}
	else
		node_insert_at(node, at, item, child);
}

/* Where this process has located the last key of a memtable. */
typedef struct KvFinger
{
	uint64		number;			/* of the memtable; 0: none */
	uint64		splits;			/* its splits then */
	int			at;
	dsa_pointer path[KV_MAX_HEIGHT];
	int			slots[KV_MAX_HEIGHT];
} KvFinger;

static KvFinger fingers[4];

/* Is a key between a leaf's first key and that of the next leaf?  False also if not known. */
static bool
leaf_covers(const KvNode *leaf, const uint8 *key, int keylen)
{
	uint64		prefix = kv_key_prefix(key, keylen);
	const KvMemtableItem *next;

	if (leaf->common > 0 || prefix <= leaf->prefix[0])
		return false;
	if (prefix < leaf->prefix[leaf->n - 1] || !DsaPointerIsValid(leaf->next))
		return true;
	next = kv_address(node_at(leaf->next)->item[0]);
	return kv_key_compare(key, keylen, next->key, next->keylen) < 0;
}

/*
 * node_search of a leaf that covers the key, if the result is the same as the last one or the entry
 * after it; -1: it is not, or equal prefixes leave it open.
 */
static int
search_near(const KvNode *leaf, int at, const uint8 *key, int keylen)
{
	uint64		prefix = kv_key_prefix(key, keylen);

	if (at < leaf->n && leaf->prefix[at] < prefix)
		at++;
	if ((at > 0 && leaf->prefix[at - 1] >= prefix) ||
		(at < leaf->n && (leaf->prefix[at] < prefix ||
						  (leaf->prefix[at] == prefix && at + 1 < leaf->n &&
						   leaf->prefix[at + 1] == prefix))))
		return -1;
	if (at < leaf->n && leaf->prefix[at] == prefix)
	{
		const KvMemtableItem *item = kv_address(leaf->item[at]);

		if (kv_key_compare(item->key, item->keylen, key, keylen) < 0)
			at++;
	}
	return at;
}

void
kv_memtable_locate(const KvMemtable *memtable, const uint8 *key, int keylen,
				   KvMemtablePosition *place)
{
	KvFinger   *finger = &fingers[memtable->number % lengthof(fingers)];
	KvNode	   *leaf;

	place->item = NULL;
	place->at = 0;
	if (!DsaPointerIsValid(memtable->root))
		return;
	leaf = finger->number == memtable->number && finger->splits == memtable->splits ?
		node_at(finger->path[0]) : NULL;
	if (leaf != NULL && leaf_covers(leaf, key, keylen))
		place->at = search_near(leaf, finger->at, key, keylen);
	else
	{
		finger->number = memtable->number;
		finger->splits = memtable->splits;
		leaf = node_at(descend(memtable, key, keylen, finger->path, finger->slots));
		place->at = -1;
	}
	if (place->at < 0)
		place->at = node_search(leaf, 0, key, keylen);
	finger->at = place->at;
	memcpy(place->path, finger->path, memtable->height * sizeof(dsa_pointer));
	memcpy(place->slots, finger->slots, memtable->height * sizeof(int));
	if (node_has_key(leaf, place->at, key, keylen))
		place->item = kv_address(leaf->item[place->at]);
}

/* Is there memory for one more version, and for a new key if there is no item? */
static bool
reserve_for(KvMemtable *memtable, const KvMemtablePosition *place, Size item_size)
{
	Size		need = sizeof(KvMemtableVersion);
	uint32		level = 0;

	if (place->item == NULL)
	{
		need += item_size;
		if (memtable->height == 0)
			need += KV_LEAF_SIZE;
		while (level < memtable->height && node_at(place->path[level])->n == KV_NODE_FANOUT)
			need += (level++ == 0) ? KV_LEAF_SIZE : KV_INNER_SIZE;
		if (level > 0 && level == memtable->height)
			need += KV_INNER_SIZE;
		Assert(memtable->height < KV_MAX_HEIGHT);
	}
	return reserve(memtable, need);
}

KvVersion *
kv_memtable_add(KvMemtable *memtable, KvMemtablePosition *place, const uint8 *key, int keylen,
				const KvVersion *version)
{
	Size		item_size = MAXALIGN(offsetof(KvMemtableItem, key) + keylen);
	KvMemtableItem *item = place->item;
	KvMemtableVersion *node_version;
	dsa_pointer pointer;
	dsa_pointer item_pointer = InvalidDsaPointer;

	if (!reserve_for(memtable, place, item_size))
		return NULL;
	if (!DsaPointerIsValid(memtable->root))
	{
		KvNode	   *root;

		memtable->root = take(memtable, KV_LEAF_SIZE);
		memtable->height = 1;
		memtable->number = pg_atomic_add_fetch_u64(&kv_memtable_memory->numbers, 1);
		root = node_at(memtable->root);
		root->n = 0;
		root->leaf = 1;
		root->common = 0;
		root->next = root->prev = InvalidDsaPointer;
		place->path[0] = memtable->root;
	}
	if (item == NULL)
	{
		item_pointer = take(memtable, item_size);
		item = kv_address(item_pointer);
		item->newest = InvalidDsaPointer;
		item->keylen = keylen;
		memcpy(item->key, key, keylen);
	}
	pointer = take(memtable, sizeof(KvMemtableVersion));
	node_version = kv_address(pointer);
	node_version->version = *version;
	node_version->older = item->newest;
	item->newest = pointer;
	memtable->nversions++;
	memtable->value_bytes += version->len;
	if (version->xid != 0 && (memtable->oldest_xid == 0 || version->xid < memtable->oldest_xid))
		memtable->oldest_xid = version->xid;
	if (DsaPointerIsValid(item_pointer))
	{
		insert_at_level(memtable, place->path, place->slots, 0, place->at, item_pointer,
						InvalidDsaPointer);
		memtable->nitems++;
	}
	return &node_version->version;
}

void
kv_memtable_free(KvMemtable *memtable)
{
	dsa_pointer	pointer = memtable->chunks;
	Size		bytes = memtable->bytes;

	while (DsaPointerIsValid(pointer))
	{
		dsa_pointer	next = ((KvChunk *) kv_address(pointer))->next;

		dsa_free(kv_area(), pointer);
		pointer = next;
	}
	memset(memtable, 0, sizeof(*memtable));
	if (bytes > 0)
	{
		pg_atomic_fetch_sub_u64(&kv_memtable_memory->bytes, bytes);
		ConditionVariableBroadcast(&kv_memtable_memory->freed);
	}
}
