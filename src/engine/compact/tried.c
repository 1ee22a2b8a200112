/*
 * tried.c
 *		The compactor's notes about stores and shards, and which of them it leaves alone.
 *
 * If a job has won nothing, its shard is left alone until something has changed there and some time
 * has passed, twice as much each time.  If a job has failed or was given up, the time alone counts.
 * A store is left alone in this way when the disk is full.  The notes belong to the process and are
 * lost when it ends.
 */
#include "postgres.h"

#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "engine/compact/internal.h"
#include "engine/xact/xact.h"

#define KV_IN_VAIN_MS	250		/* delay after a job that has won nothing */

uint32		kv_compact_rounds = 0;

static HTAB *tried_hash = NULL;

KvTried *
kv_tried(const KvStore *store, int32 shard, KvTaskKind kind, bool enter)
{
	KvTriedKey	key = {store->cache_id, shard, kind};
	bool		found;
	KvTried    *tried;

	if (tried_hash == NULL)
	{
		HASHCTL		info = {0};

		info.keysize = sizeof(KvTriedKey);
		info.entrysize = sizeof(KvTried);
		info.hcxt = TopMemoryContext;
		tried_hash = hash_create("kvfdw compactor", 64, &info,
								 HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	}
	tried = hash_search(tried_hash, &key, enter ? HASH_ENTER : HASH_FIND, &found);
	if (tried != NULL && !found)
		memset((char *) tried + sizeof(KvTriedKey), 0, sizeof(KvTried) - sizeof(KvTriedKey));
	if (tried != NULL)
		tried->looked = kv_compact_rounds;
	return tried;
}

void
kv_tried_forget(const KvStore *store, int32 shard, KvTaskKind kind)
{
	KvTriedKey	key = {store->cache_id, shard, kind};

	if (tried_hash != NULL)
		(void) hash_search(tried_hash, &key, HASH_REMOVE, NULL);
}

void
kv_tried_forget_old(uint32 since, bool again)
{
	TimestampTz now = kv_clock();
	HASH_SEQ_STATUS status;
	KvTried    *tried;

	if (tried_hash == NULL)
		return;
	hash_seq_init(&status, tried_hash);
	while ((tried = hash_seq_search(&status)) != NULL)
	{
		if (again)
			tried->retry_ms = 0;
		if (tried->looked < since &&
			(tried->retry_ms == 0 ||
			 TimestampDifferenceExceeds(tried->until, now, KV_RETRY_MOST_MS)))
			(void) hash_search(tried_hash, &tried->key, HASH_REMOVE, NULL);
	}
}

void
kv_leave_alone(const KvTask *task, int32 shard, KvSpaceWait why, const KvShardSpace *then)
{
	KvTried    *tried = kv_tried(task->store, shard, kv_task_kind(task), true);

	if (tried->retry_ms == 0)
		tried->retry_ms = why == KV_SPACE_WAITS_FOR_SNAPSHOT ? KV_IN_VAIN_MS : KV_RETRY_MS;
	else
		tried->retry_ms = Min(tried->retry_ms * 2, KV_RETRY_MOST_MS);
	if (task->result.gave_up)
		tried->retry_ms = Max(tried->retry_ms,
							  Min(task->took_ms, INT_MAX / KV_VAIN_REST) * KV_VAIN_REST);
	tried->until = TimestampTzPlusMilliseconds(kv_clock(), tried->retry_ms);
	tried->why = why;
	tried->then = *then;
	tried->horizon = kv_xid_horizon();
}

bool
kv_tried_any_left_alone(void)
{
	HASH_SEQ_STATUS status;
	KvTried    *tried;
	bool		any = false;

	if (tried_hash == NULL)
		return false;
	hash_seq_init(&status, tried_hash);
	while (!any && (tried = hash_seq_search(&status)) != NULL)
		any = tried->retry_ms > 0 || tried->stuck_ms > 0;
	if (any)
		hash_seq_term(&status);
	return any;
}

bool
kv_is_left_alone(const KvStore *store, uint32 shard, KvTaskKind kind, const KvShardSpace *now,
				 uint64 horizon, TimestampTz *when, KvSpaceWait *why)
{
	KvTried    *tried = kv_tried(store, shard, kind, false);
	bool		changed;

	if (tried == NULL || tried->retry_ms == 0)
		return false;
	changed = tried->why == KV_SPACE_WAITS_FOR_RETRY ||
		now->taken != tried->then.taken || now->to_win != tried->then.to_win ||
		tried->horizon != horizon;

	/* many more bytes are dead than at that time */
	if (changed && tried->why == KV_SPACE_WAITS_FOR_SNAPSHOT &&
		now->to_win > 2 * tried->then.to_win + kv_value_file_size(0))
		return false;
	if (changed && tried->until <= kv_clock())
		return false;
	if (changed)
		*when = Min(*when, tried->until);
	*why = Max(*why, tried->why);
	return true;
}
