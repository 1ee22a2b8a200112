/*
 * windowcheck.c
 *		Checks that the lists and tables of the range cache agree; in test builds only.
 */
#include "postgres.h"

#ifdef KVFDW_FAULTS

#include "fmgr.h"
#include "utils/builtins.h"

#include "engine/base/types.h"
#include "engine/cache/window.h"

PG_FUNCTION_INFO_V1(kvfdw_range_problem);
PGDLLEXPORT Datum kvfdw_range_problem(PG_FUNCTION_ARGS);

/*
 * Counts the windows of a list, each of which must be in this state and of this span, if not NULL.
 * Returns a problem, or NULL.
 */
static const char *
check_list(dlist_head *list, KvWindowState state, const KvSpanKey *span, int *lists, int expected)
{
	dlist_iter	iter;
	int			n = 0;

	dlist_foreach(iter, list)
	{
		const KvWindow *window = dlist_container(KvWindow, node, iter.cur);
		int			i = kv_window_index(window);

		if (lists[i]++ > 0)
			return psprintf("window %d is in two lists", i);
		if (window->state != state ||
			(span != NULL && memcmp(&window->span, span, sizeof(*span)) != 0))
			return psprintf("window %d of state %d is in a list of state %d", i, window->state,
							state);
		n++;
	}
	if (n != expected)
		return psprintf("%d windows of state %d are expected, %d are in the list", expected, state,
						n);
	return NULL;
}

/* Is what the table has in the window that it says? */
static bool
is_there(const KvWindowEntry *entry)
{
	const KvWindow *window = &kv_windows[entry->place.window];

	return window->state != KV_WINDOW_FREE &&
		window->span.cache_id == entry->key.cache_id && entry->place.slot < window->nblocks &&
		window->unit == entry->key.nblocks &&
		*kv_window_block(entry->place.window, entry->place.slot) == entry->key.block;
}

static const char *
find_problem(void)
{
	HASH_SEQ_STATUS status;
	KvSpan	   *span;
	KvWindowEntry *entry;
	int		   *lists = palloc0(kv_window_cache->nwindows * sizeof(int));
	int64		nloading = kv_window_cache->blocks.nloading;
	const char *problem;

	problem = check_list(&kv_window_cache->free, KV_WINDOW_FREE, NULL, lists,
						 kv_window_cache->nfree);
	if (problem == NULL)
		problem = check_list(&kv_window_cache->queue, KV_WINDOW_QUEUED, NULL, lists,
							 kv_window_cache->nqueued);
	if (problem == NULL)
		problem = check_list(&kv_window_cache->blocks.windows, KV_WINDOW_VALID, NULL, lists,
							 kv_window_cache->blocks.nvalid);
	if (problem != NULL)
		return problem;
	hash_seq_init(&status, kv_span_hash);
	while ((span = hash_seq_search(&status)) != NULL)
	{
		problem = check_list(&span->windows, KV_WINDOW_VALID, &span->key, lists, span->nvalid);
		nloading += span->nloading;
		if (problem == NULL)
			continue;
		hash_seq_term(&status);
		return problem;
	}
	hash_seq_init(&status, kv_window_hash);
	while ((entry = hash_seq_search(&status)) != NULL)
	{
		if (is_there(entry))
			continue;
		hash_seq_term(&status);
		return psprintf("block " UINT64_FORMAT " of %u is not in its window", entry->key.block,
						entry->key.nblocks);
	}
	for (int i = 0; i < kv_window_cache->nwindows; i++)
	{
		KvWindowState state = kv_windows[i].state;
		bool		loading = state == KV_WINDOW_CLAIMED || state == KV_WINDOW_QUEUED;

		if (lists[i] != (state != KV_WINDOW_CLAIMED) ||
			pg_atomic_read_u64(&kv_windows[i].sequence) % 2 != loading)
			return psprintf("window %d of state %d is in %d lists", i, state, lists[i]);
		nloading -= loading;
	}
	return nloading == 0 ? NULL : "spans load other windows";
}

/* Describes a problem of the range cache; NULL: there is none. */
Datum
kvfdw_range_problem(PG_FUNCTION_ARGS)
{
	const char *problem;

	if (kv_window_cache == NULL)
		PG_RETURN_NULL();
	LWLockAcquire(&kv_window_cache->lock, LW_SHARED);
	problem = find_problem();
	LWLockRelease(&kv_window_cache->lock);
	if (problem == NULL)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(problem));
}

#endif							/* KVFDW_FAULTS */
