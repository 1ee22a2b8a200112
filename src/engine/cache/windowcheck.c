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

static const char *
find_problem(void)
{
	HASH_SEQ_STATUS status;
	KvSpan	   *span;
	KvPiece    *piece;
	KvWindowBlock *block;
	int			nwindows = kv_window_cache->nwindows;
	/* number of lists that have each window */
	int		   *lists = palloc0(nwindows * sizeof(int));
	uint64		nloading = 0;
	int			n = 0;

	for (int i = kv_window_cache->free_windows; i >= 0 && n <= nwindows; i = kv_windows[i].next)
	{
		lists[i]++;
		n++;
	}
	if (n != kv_window_cache->nfree)
		return psprintf("%d windows are free, %d in the list", kv_window_cache->nfree, n);
	hash_seq_init(&status, kv_span_hash);
	while ((span = hash_seq_search(&status)) != NULL)
	{
		n = 0;
		for (int i = span->windows; i >= 0 && n <= nwindows; i = kv_windows[i].next)
		{
			lists[i]++;
			n++;
			if (memcmp(&kv_windows[i].span, &span->key, sizeof(span->key)) == 0)
				continue;
			hash_seq_term(&status);
			return psprintf("window %d is in another span's list", i);
		}
		if (n != span->nvalid)
		{
			hash_seq_term(&status);
			return psprintf("span %u.%u." UINT64_FORMAT " has %u windows, %d in its list",
							span->key.cache_id, span->key.shard, span->key.segment, span->nvalid,
							n);
		}
		nloading += span->nloading;
	}
	n = 0;
	for (int i = kv_window_cache->block_windows_first; i >= 0 && n <= nwindows;
		 i = kv_windows[i].next)
	{
		bool		loading = pg_atomic_read_u64(&kv_windows[i].sequence) % 2 != 0;

		/* a window that is being loaded belongs to no span */
		lists[i] += !loading;
		nloading += loading;
		if ((kv_windows[i].block_state == KV_BLOCK_WINDOW_LOADED) == loading)
			return psprintf("window %d of blocks is in state %d", i, kv_windows[i].block_state);
		n++;
	}
	if (n != kv_window_cache->nblock_windows)
		return psprintf("%d windows have blocks, %d are in the list",
						kv_window_cache->nblock_windows, n);
	hash_seq_init(&status, kv_block_hash);
	while ((block = hash_seq_search(&status)) != NULL)
	{
		const KvWindow *window = &kv_windows[block->window];

		if (window->block_state != KV_BLOCK_WINDOW_NONE && block->slot < window->nblocks &&
			window->key.cache_id == block->key.cache_id &&
			kv_window_blocks[block->window * KV_WINDOW_BLOCKS + block->slot] == block->key.block)
			continue;
		hash_seq_term(&status);
		return psprintf("block " UINT64_FORMAT " is not in its window", block->key.block);
	}
	hash_seq_init(&status, kv_piece_hash);
	while ((piece = hash_seq_search(&status)) != NULL)
	{
		const KvWindow *window = &kv_windows[piece->window];

		if (memcmp(&window->key, &piece->key, sizeof(piece->key)) == 0)
			continue;
		hash_seq_term(&status);
		return psprintf("piece " UINT64_FORMAT "." UINT64_FORMAT " is not in its window",
						piece->key.cache_id, piece->key.piece);
	}
	for (int i = 0; i < kv_window_cache->nwindows; i++)
	{
		bool		loading = pg_atomic_read_u64(&kv_windows[i].sequence) % 2 != 0;

		if (lists[i] + loading != 1)
			return psprintf("window %d is in %d lists%s", i, lists[i],
							loading ? " and loading" : "");
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
