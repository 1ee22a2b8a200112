/*
 * moves.c
 *		Applies a compaction's new addresses to the entries of a merge; in test builds, moves of
 *		its own.
 *
 * The values that a compaction job has copied are in a relocation file: a run with an entry for
 * each value, in the order of a merge, with the old location instead of an xid.  The merge
 * reads it together with the runs, key by key.  The merge may drop versions of a key that the
 * compaction job had still copied, so entries of a key are searched by their locations.
 */
#include "postgres.h"

#include "engine/base/key.h"
#include "engine/base/types.h"
#include "engine/buffer/buffer.h"
#include "engine/buffer/largevalue.h"
#include "engine/flush/flush.h"
#include "engine/flush/internal.h"
#include "engine/format/format.h"
#include "engine/index/run.h"
#include "engine/io/io.h"
#include "engine/shard/counts.h"
#include "engine/shard/shard.h"
#include "engine/shard/valuefiles.h"
#include "engine/value/value.h"
#include "engine/xact/xact.h"

/* The old and the new location of a value of the current key. */
typedef struct KvMove
{
	KvLocation	from;
	KvLocation	to;
	uint32		crc;
} KvMove;

struct KvMovesWalk
{
	KvRunMerge	runs;			/* the relocation file alone */
	int			keylen;			/* of the current key; -1: there was none */
	uint8		key[KV_MAX_KEY];
	int			nmoves;			/* number of its moves */
	int			room;
	int			next;			/* the one that is checked first */
	KvMove	   *moves;
};

KvMovesWalk *
kv_moves_begin(const KvMoves *moves)
{
	KvMovesWalk *walk = palloc0(sizeof(KvMovesWalk));
	KvKey		edge = {NULL, 0};

	walk->keylen = -1;
	kv_merge_begin(&walk->runs, false);
	if (moves->run != NULL)
		kv_merge_add(&walk->runs, moves->run, edge, false);
	return walk;
}

/* Take the entries of this key, which is after the previous one. */
static void
go_to(KvMovesWalk *walk, KvKey key)
{
	KvRunHead  *head = &walk->runs.heads[0];

	memcpy(walk->key, key.data, key.len);
	walk->keylen = key.len;
	walk->nmoves = walk->next = 0;
	while (head->cursor.valid &&
		   kv_key_compare(head->key.data, head->key.len, key.data, key.len) < 0)
		kv_head_step(&walk->runs, head);
	for (; kv_head_is_at(head, key); kv_head_step(&walk->runs, head))
	{
		if (walk->nmoves == walk->room)
		{
			walk->room = Max(walk->room * 2, 8);
			walk->moves = walk->moves == NULL ? palloc(walk->room * sizeof(KvMove)) :
				repalloc_huge(walk->moves, walk->room * sizeof(KvMove));
		}
		walk->moves[walk->nmoves++] = (KvMove) {head->version.xid, head->version.location,
		head->version.crc};
	}
}

bool
kv_moves_apply(KvMovesWalk *walk, KvKey key, KvVersion *version)
{
	if (walk->runs.nheads == 0 || version->len == 0)
		return false;
	if (walk->keylen < 0 ||
		kv_key_compare(walk->key, walk->keylen, key.data, key.len) != 0)
		go_to(walk, key);
	for (int i = 0; i < walk->nmoves; i++)
	{
		const KvMove *move = &walk->moves[(walk->next + i) % walk->nmoves];

		if (move->from != version->location)
			continue;
		version->location = move->to;
		version->crc = move->crc;
		walk->next = move - walk->moves + 1;
		return true;
	}
	return false;
}

static int
compare_value_files(const void *a, const void *b)
{
	KvAddress	left = ((const KvValueFile *) a)->address;
	KvAddress	right = ((const KvValueFile *) b)->address;

	return left < right ? -1 : left > right;
}

void
kv_moves_describe(KvMoves *moves, const KvCounts *counts, KvFileList *listed)
{
	int			n = listed->nvalue_files + moves->nvalue_files;

	if (moves->job != 0)
		listed->job = moves->job;
	if (moves->nvalue_files == 0)
		return;
	listed->value_files = repalloc(listed->value_files, n * sizeof(KvValueFile));
	for (int i = 0; i < moves->nvalue_files; i++)
	{
		const KvValueFileCount *count = kv_counts_find(counts, moves->value_files[i].address);
		KvValueFile *value_file = &listed->value_files[listed->nvalue_files + i];

		*value_file = moves->value_files[i];
		value_file->live = count == NULL ? 0 : count->uncertain ? KV_NOT_KNOWN : count->live;
	}
	listed->nvalue_files = n;
	qsort(listed->value_files, n, sizeof(KvValueFile), compare_value_files);
}

void
kv_moves_publish(const KvMoves *moves, const KvFileList *listed, const KvCounts *counts,
				 KvShard *shard)
{
	shard->compact.job = listed->job;
	if (moves->job != 0)
		shard->values.written -= Min(shard->values.written, moves->written);
	for (int i = 0; i < moves->nvalue_files; i++)
	{
		const KvValueFile *value_file = bsearch(&moves->value_files[i], listed->value_files,
												listed->nvalue_files,
												sizeof(KvValueFile), compare_value_files);

		kv_value_file_add(shard, value_file)->value_file.flags |= moves->value_files[i].flags;
	}
	kv_counts_note(shard, counts, moves->value_files, moves->nvalue_files);
	if (moves->nvalue_files > 0)
		shard->values.promised = 0;
}

/* ---- moves in test builds ---- */

/*
 * So all tests and campaigns can run while addresses change and value files are removed.
 */

#ifdef KVFDW_FAULTS

bool		kv_test_compact = false;

void
kv_test_choose(KvShard *shard, uint32 immutable_log)
{
	uint64		horizon = kv_xid_horizon();

	if (!kv_test_compact)
		return;
	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	for (int i = 0; i < shard->values.n; i++)
	{
		KvShardValueFile *value_file = &kv_value_files(shard)[i];

		if (!kv_value_file_is_open(shard, value_file) && value_file->newest_writer < horizon &&
			value_file->value_file.last_log <= immutable_log)
			value_file->value_file.flags |= KV_VALUE_FILE_INPUT;
	}
	LWLockRelease(&shard->lock);
}

void
kv_test_move(KvStore *store, uint32 shard_id, KvKey key, KvVersion *version)
{
	KvShard    *shard = kv_shard(store, shard_id);
	KvAddress	address = KV_LOCATION_ADDRESS(version->location);
	KvShardValueFile *value_file;
	KvLocation	location;
	bool		input;
	char	   *value;
	int			err;

	if (!kv_test_compact || version->len == 0)
		return;
	LWLockAcquire(&shard->lock, LW_SHARED);
	value_file = kv_value_file_find(shard, address);
	input = value_file != NULL && (value_file->value_file.flags & KV_VALUE_FILE_INPUT);
	LWLockRelease(&shard->lock);
	if (!input || kv_value_problem(&store->key, store->cache_id, key, version, &err) != NULL)
		return;
	value = palloc(version->len);
	memcpy(value, kv_io_buffer(KV_IO_BUFFER_CHECK, KV_BLOCK) + address % KV_BLOCK, version->len);
	if (kv_value_write_large(store, shard_id, KV_LOCATION_FORM(version->location), value,
							 version->len, 0, &location))
	{
		version->location = location;
		version->crc = kv_value_crc_finish(kv_value_crc_begin(&store->key, key, value,
															  version->len),
										   location, version->len);
	}
	pfree(value);
}

void
kv_test_chosen(KvShard *shard)
{
	if (!kv_test_compact)
		return;
	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	for (int i = 0; i < shard->values.n; i++)
		kv_value_files(shard)[i].value_file.flags &= ~KV_VALUE_FILE_INPUT;
	LWLockRelease(&shard->lock);
}

#endif
