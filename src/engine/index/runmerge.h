/*
 * runmerge.h
 *		Several runs read as one, key by key, in either direction.
 *
 * A returned key points into the merge and is good until the merge moves.  All functions are
 * inline, because they run once for each key of a scan.
 */
#ifndef KV_RUNMERGE_H
#define KV_RUNMERGE_H

#include "engine/base/key.h"
#include "engine/base/types.h"
#include "engine/index/run.h"

typedef struct KvRunHead
{
	KvRunCursor cursor;
	uint32		incarnation;
	uint8		keybuf[8];
	KvKey		key;			/* of the entry at the cursor, if that is valid */
	KvVersion	version;
} KvRunHead;

typedef struct KvRunMerge
{
	bool		backward;
	int			nheads;			/* the newest run first */
	KvRunHead	heads[KV_MAX_UNFROZEN + 1];
} KvRunMerge;

static inline void
kv_head_load(KvRunHead *head)
{
	if (head->cursor.valid)
		kv_run_entry(&head->cursor, head->keybuf, &head->key.data, &head->key.len,
					 &head->version);
}

static inline bool
kv_head_is_at(const KvRunHead *head, KvKey key)
{
	return head->cursor.valid &&
		kv_key_compare(head->key.data, head->key.len, key.data, key.len) == 0;
}

static inline void
kv_head_step(const KvRunMerge *merge, KvRunHead *head)
{
	if (merge->backward)
		kv_run_prev(&head->cursor);
	else
		kv_run_next(&head->cursor);
	kv_head_load(head);
}

static inline void
kv_merge_begin(KvRunMerge *merge, bool backward)
{
	merge->nheads = 0;
	merge->backward = backward;
}

/*
 * Add a run, older than those before, from start on or, backwards, before start; data NULL:
 * from its edge.  The flag excludes start itself.
 */
static inline void
kv_merge_add(KvRunMerge *merge, KvRun *run, KvKey start, bool after)
{
	KvRunHead  *head = &merge->heads[merge->nheads++];

	Assert(merge->nheads <= lengthof(merge->heads));
	head->cursor.run = run;
	head->incarnation = kv_run_header(run)->incarnation;
	if (merge->backward)
		kv_run_seek_before(run, start.data, start.len, &head->cursor);
	else if (start.data == NULL)
		kv_run_first(run, &head->cursor);
	else
		kv_run_seek(run, start.data, start.len, &head->cursor);
	kv_head_load(head);
	while (after && kv_head_is_at(head, start))
		kv_head_step(merge, head);
}

/* The first key of all runs; data NULL: there is none. */
static inline KvKey
kv_merge_first(const KvRunMerge *merge)
{
	KvKey		first = {NULL, 0};

	for (int i = 0; i < merge->nheads; i++)
	{
		const KvRunHead *head = &merge->heads[i];
		int			order;

		if (!head->cursor.valid)
			continue;
		if (first.data != NULL)
		{
			order = kv_key_compare(head->key.data, head->key.len, first.data, first.len);
			if (merge->backward ? order <= 0 : order >= 0)
				continue;
		}
		first = head->key;
	}
	return first;
}

#endif							/* KV_RUNMERGE_H */
