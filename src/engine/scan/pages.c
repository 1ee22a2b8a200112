/*
 * pages.c
 *		Takes the rows of a batch from whole pages of a run.
 *
 * Mostly the next keys of a scan are in one run only, up to some key of another run or of a
 * memtable.  Up to there its pages are read in one loop, without comparing keys of several sources
 * for each row.  What is not that simple is left to rows.c, key by key: a key with several
 * versions, an invisible version, a deletion, and the last key of a page of unfrozen versions, of
 * which the next page may have more.  Where that is often so, pages are tried less often.
 */
#include "postgres.h"

#include "engine/base/key.h"
#include "engine/base/types.h"
#include "engine/index/run.h"
#include "engine/scan/internal.h"
#include "engine/xact/xact.h"

#define KV_FEW_OF_PAGE	4		/* rows of a page; if it has fewer, keys are read singly */
#define KV_SINGLY		16		/* so many of them */

/* The keys that a page is read up to. */
typedef struct KvPageEnd
{
	KvKey		before;			/* exclusive; data NULL: none */
	KvKey		upto;			/* inclusive; data NULL: none */
} KvPageEnd;

/*
 * The run that alone has the next keys, or NULL.  end: up to where, by the other runs, the
 * memtables and the end of the range.
 */
static KvRunHead *
only_source(KvKeyReader *keys, KvPageEnd *end)
{
	KvRunHead  *first = NULL;
	KvKey		key;

	end->before = keys->bounds.hi;
	end->upto = keys->complete ? (KvKey) {NULL, 0} : keys->limit;
	for (int i = 0; i < keys->runs.nheads; i++)
	{
		KvRunHead  *head = &keys->runs.heads[i];

		if (!head->cursor.valid)
			continue;
		if (first == NULL || kv_key_order(&head->key, &first->key) < 0)
		{
			key = first != NULL ? first->key : (KvKey) {NULL, 0};
			first = head;
		}
		else
			key = head->key;
		if (key.data != NULL && (end->before.data == NULL || kv_key_order(&key, &end->before) < 0))
			end->before = key;
	}
	if (keys->next_row < keys->nrows)
	{
		const KvBatchRow *recent = &keys->rows[keys->next_row];

		key = (KvKey) {recent->key, recent->keylen};
		if (end->before.data == NULL || kv_key_order(&key, &end->before) < 0)
			end->before = key;
	}
	return first;
}

static inline bool
is_before_end(const KvPageEnd *end, KvKey key)
{
	return (end->before.data == NULL || kv_key_order(&key, &end->before) < 0) &&
		(end->upto.data == NULL || kv_key_order(&key, &end->upto) <= 0);
}

/* The key of entry i, in keybuf or in the page.  False: it is out of the page. */
static inline bool
key_of(const KvRunPage *page, int i, uint8 keybuf[8], KvKey *key)
{
	if (page->key_len > 0)
	{
		uint64		prefix = pg_bswap64(page->prefixes[i]);

		memcpy(keybuf, &prefix, sizeof(prefix));
		*key = (KvKey) {keybuf, page->key_len};
	}
	else
	{
		int			begin = page->offsets[i];
		int			end = page->offsets[i + 1];

		*key = (KvKey) {(const uint8 *) page->bytes + begin, end - begin};
		return begin <= end && end <= KV_BLOCK && end - begin <= KV_MAX_KEY;
	}
	return true;
}

/* May entries i and i + 1 of unfrozen ones have the same key? */
static inline bool
may_have_more(const KvRunPage *page, int i)
{
	return page->kinds != NULL &&
		(i + 1 >= page->n || page->prefixes[i + 1] == page->prefixes[i]);
}

/* Memory for the keys of the rows of a page. */
typedef struct KvKeyRoom
{
	uint8	   *into;
	Size		left;
} KvKeyRoom;

static inline const uint8 *
copy_key(KvScan *scan, KvKey key, KvKeyRoom *room)
{
	uint8	   *copy;

	if ((Size) key.len > room->left)
	{
		room->left = Max(KV_BLOCK / 2, key.len);
		room->into = MemoryContextAlloc(scan->batch_context, room->left);
	}
	copy = room->into;
	memcpy(copy, key.data, key.len);
	room->into += key.len;
	room->left -= key.len;
	return copy;
}

/* Takes rows from entry i on; returns the first entry that is not taken. */
static int
take_entries(KvScan *scan, const KvKeyReader *keys, const KvRunHead *head, const KvRunPage *page,
			 int i, const KvPageEnd *end)
{
	uint8		keybuf[8];
	KvKey		key;
	bool		check = !key_of(page, page->n - 1, keybuf, &key) || !is_before_end(end, key);
	uint64		seen_xid = 0;	/* of versions that the snapshot sees */
	KvKeyRoom	room = {NULL, 0};

	for (; i < page->n; i++)
	{
		KvBatchRow *row = &scan->rows[scan->nrows];

		if (scan->nrows >= scan->batch_rows || scan->batch_bytes >= KV_BATCH_BYTES ||
			may_have_more(page, i) || !key_of(page, i, keybuf, &key) ||
			(check && !is_before_end(end, key)))
			break;
		kv_run_page_version(page, i, &row->version);
		if (row->version.kind != KV_VERSION_PUT || row->version.status == KV_XID_ABORTED)
			break;
		if (row->version.xid != 0 && row->version.xid == seen_xid)
			row->version.status = KV_XID_COMMITTED;
		else if (row->version.xid != 0)
		{
			if (!kv_version_visible(&row->version, keys->view, head->incarnation))
				break;
			if (row->version.status == KV_XID_COMMITTED)
				seen_xid = row->version.xid;
		}
		row->key = copy_key(scan, key, &room);
		row->keylen = key.len;
		row->present = true;
		kv_row_reset(row);
		row->sole = row->version.status == KV_XID_COMMITTED;
		if (row->version.len == 0 && scan->want_values)
			row->value = "";
		scan->batch_bytes += row->version.len;
		scan->nrows++;
	}
	return i;
}

bool
kv_keys_take_page(KvScan *scan, KvKeyReader *keys)
{
	int			before = scan->nrows;
	int			left = 0;		/* entries in the page */
	KvRunHead  *head;
	KvPageEnd	end;
	KvRunPage	page;

	if (keys->singly > 0)
	{
		keys->singly--;
		return false;
	}
	head = keys->bounds.backward ? NULL : only_source(keys, &end);
	if (head != NULL)
	{
		kv_run_page(&head->cursor, &page);
		left = page.n - head->cursor.index;
		head->cursor.index = take_entries(scan, keys, head, &page, head->cursor.index, &end);
		if (head->cursor.index >= page.n)
		{
			head->cursor.page++;
			head->cursor.index = 0;
			head->cursor.valid = head->cursor.page < kv_run_header(head->cursor.run)->npages;
		}
		kv_head_load(head);
	}
	if (scan->nrows - before < KV_FEW_OF_PAGE && (head == NULL || left >= KV_FEW_OF_PAGE))
		keys->singly = KV_SINGLY;
	if (scan->nrows > before)
		keys->passed = 0;
	return scan->nrows > before;
}
