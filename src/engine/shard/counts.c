/*
 * counts.c
 *		What merges count: live bytes by value file, and which value files leave the list.
 *
 * A merge of all runs counts what it emits, by value file.  A compaction input of which it emits
 * nothing (kv_value_file_may_be_input) leaves the list with that merge: no entry names it, and
 * none ever will (I 14).  It is obsolete then (obsolete.c).
 */
#include "postgres.h"

#include "access/transam.h"

#include "engine/base/types.h"
#include "engine/format/format.h"
#include "engine/shard/counts.h"
#include "engine/shard/map.h"
#include "engine/shard/obsolete.h"
#include "engine/shard/shard.h"
#include "engine/shard/valuefiles.h"
#include "engine/value/value.h"
#include "engine/xact/xact.h"

/* ---- counting ---- */

/* The index of the first count from an address on. */
static int
first_from(const KvCounts *counts, KvAddress file_address)
{
	StaticAssertStmt(offsetof(KvValueFileCount, address) == 0, "an item begins with its place");
	return kv_first_from(counts->value_files, sizeof(KvValueFileCount), counts->n, file_address);
}

KvCounts *
kv_counts_begin(const KvShard *shard)
{
	KvCounts   *counts = palloc0(sizeof(KvCounts));

	counts->uncertain_until = U64FromFullTransactionId(ReadNextFullTransactionId());
	counts->redone = shard->count.redone;
	counts->died = shard->count.dying.sum;
	counts->countings = shard->count.countings;
	counts->n = shard->values.n;
	counts->room = shard->values.n + 8;
	counts->value_files = palloc0(counts->room * sizeof(KvValueFileCount));
	for (int i = 0; i < shard->values.n; i++)
	{
		counts->value_files[i].address = kv_value_files(shard)[i].value_file.address;
		counts->value_files[i].dead_since = kv_value_files(shard)[i].dead_since;
	}
	return counts;
}

KvValueFileCount *
kv_counts_find(const KvCounts *counts, KvAddress address)
{
	KvAddress	file_address = kv_file_of(address).address;
	int			i = first_from(counts, file_address);

	return i < counts->n && counts->value_files[i].address == file_address ? &counts->value_files[i]
		: NULL;
}

void
kv_counts_add(KvCounts *counts, KvLocation location, uint32 len, bool uncertain)
{
	KvAddress	address = kv_file_of(KV_LOCATION_ADDRESS(location)).address;
	uint64		end;
	int			i = counts->last;

	if (len == 0)
		return;
	if (i >= counts->n || counts->value_files[i].address != address)
		i = first_from(counts, address);
	if (i == counts->n || counts->value_files[i].address != address)
	{
		/* it is not in the list yet */
		if (counts->n == counts->room)
		{
			counts->room *= 2;
			counts->value_files = repalloc(counts->value_files,
										   counts->room * sizeof(KvValueFileCount));
		}
		memmove(&counts->value_files[i + 1], &counts->value_files[i],
				(counts->n - i) * sizeof(KvValueFileCount));
		memset(&counts->value_files[i], 0, sizeof(KvValueFileCount));
		counts->value_files[i].address = address;
		counts->n++;
	}
	counts->value_files[i].refs++;
	end = kv_value_position(counts->tail, len) + len;
	counts->value_files[i].live += end - counts->tail;
	counts->tail = end;
	counts->footprint += kv_value_footprint(len);
	if (uncertain)
	{
		counts->uncertain += len;
		counts->value_files[i].uncertain = true;
	}
	counts->last = i;
}

/* ---- leaving the list ---- */

void
kv_counts_reserve(KvCounts *counts, KvStore *store, KvShard *shard)
{
	int			inputs = 0;

	LWLockAcquire(&shard->lock, LW_SHARED);
	for (int i = 0; i < shard->values.n; i++)
		inputs += (kv_value_files(shard)[i].value_file.flags & KV_VALUE_FILE_INPUT) != 0;
	LWLockRelease(&shard->lock);
	if (inputs > 0 && kv_obsolete_reserve(store, inputs))
		counts->may_leave = inputs;
}

void
kv_counts_end(KvCounts *counts, KvStore *store)
{
	kv_obsolete_give_back(store, counts->may_leave);
	counts->may_leave = 0;
}

void
kv_counts_apply(KvCounts *counts, const KvShard *shard, uint64 horizon, KvFileList *listed)
{
	int			room = counts->may_leave;
	int			n = 0;

	Assert(LWLockHeldByMe(unconstify(LWLock *, &shard->lock)));
	for (int i = 0; i < listed->nvalue_files; i++)
	{
		const KvShardValueFile *value_file = kv_value_file_find(shard,
																listed->value_files[i].address);
		KvValueFileCount *count = kv_counts_find(counts, listed->value_files[i].address);

		/* entries in logs that the runs do not cover were not counted */
		if (value_file != NULL && count != NULL && !kv_value_file_is_open(shard, value_file) &&
			value_file->value_file.last_log < listed->files.first_log)
		{
			listed->value_files[i].live = count->uncertain ? KV_NOT_KNOWN : count->live;
			count->leaves = count->refs == 0 &&
				(value_file->value_file.flags & KV_VALUE_FILE_INPUT) &&
				value_file->newest_writer < horizon && room > 0;
			if (count->leaves)
			{
				count->shared = (value_file->value_file.flags & KV_VALUE_FILE_SHARED) != 0;
				count->used = kv_value_file_end(shard, value_file) - value_file->value_file.address;
				room--;
				continue;
			}
		}
		listed->value_files[n++] = listed->value_files[i];
	}
	listed->nvalue_files = n;
}

/* Stores the count in a value file. */
static void
take_count(const KvShard *shard, KvShardValueFile *value_file, const KvValueFileCount *count)
{
	value_file->counted = kv_value_file_taken(shard, value_file);
	value_file->value_file.live = count->live;
	value_file->value_file.flags &= ~KV_VALUE_FILE_UNCERTAIN;
	if (count->uncertain)
		value_file->value_file.flags |= KV_VALUE_FILE_UNCERTAIN;
}

/*
 * Subtracts what had died before counting began, which was not counted as live.  Another count may
 * have done so already.
 */
static void
forget_dead(const KvShard *shard, KvShardValueFile *value_file, const KvCounts *counts,
			const KvValueFileCount *count)
{
	if (shard->count.countings == counts->countings)
		value_file->dead_since -= Min(value_file->dead_since, count->dead_since);
}

/* Stores the sums of a count of the whole shard. */
static void
take_counts(KvShard *shard, const KvCounts *counts)
{
	shard->count.uncertain = counts->uncertain;
	shard->count.uncertain_until = counts->uncertain_until;
	if (shard->count.countings == counts->countings)
		shard->count.redone -= Min(shard->count.redone, counts->redone);
	shard->count.countings++;
	kv_dying_counted(&shard->count.dying, counts->died);
	if (counts->footprint > 0)
		shard->count.padding = Min(counts->tail * 256 / counts->footprint, 65536);
}

void
kv_counts_note(KvShard *shard, const KvCounts *counts, const KvValueFile *value_files, int n)
{
	for (int i = 0; i < n; i++)
	{
		KvShardValueFile *value_file = kv_value_file_find(shard, value_files[i].address);
		const KvValueFileCount *count = kv_counts_find(counts, value_files[i].address);

		if (value_file != NULL && count != NULL)
			take_count(shard, value_file, count);
	}
}

void
kv_counts_note_runs(KvShard *shard, const KvCounts *counts, uint32 first_log)
{
	Assert(LWLockHeldByMeInMode(&shard->lock, LW_EXCLUSIVE));
	for (int i = 0; i < shard->values.n; i++)
	{
		KvShardValueFile *value_file = &kv_value_files(shard)[i];
		const KvValueFileCount *count = kv_counts_find(counts, value_file->value_file.address);

		if (count == NULL || value_file->value_file.last_log >= first_log)
			continue;
		take_count(shard, value_file, count);
		forget_dead(shard, value_file, counts, count);
	}
	take_counts(shard, counts);
}

void
kv_counts_publish(KvCounts *counts, KvStore *store, uint32 shard_id, uint64 lsn)
{
	KvShard    *shard = kv_shard(store, shard_id);
	KvShardValueFile *value_files = kv_value_files(shard);
	int			before = shard->values.n;
	int			n = 0;

	/* a mark in the making may have been captured before */
	uint32		until_mark = shard->durable.number + 1 +
		(shard->durable.marks[KV_MARK_NEXT].valid ? 1 : 0);

	Assert(LWLockHeldByMeInMode(&shard->lock, LW_EXCLUSIVE));
	for (int i = 0; i < before; i++)
	{
		const KvValueFileCount *count = kv_counts_find(counts, value_files[i].value_file.address);
		uint64		taken;

		if (count == NULL || !count->leaves)
		{
			if (count != NULL && !kv_value_file_is_open(shard, &value_files[i]) &&
				value_files[i].value_file.last_log < shard->files.first_log)
			{
				take_count(shard, &value_files[i], count);
				forget_dead(shard, &value_files[i], counts, count);
			}
			value_files[n++] = value_files[i];
			continue;
		}
		taken = kv_value_file_taken(shard, &value_files[i]);
		kv_obsolete_add(store, shard_id, &value_files[i].value_file, taken, until_mark, lsn);
		counts->may_leave--;
		shard->values.bytes -= Min(shard->values.bytes, taken);
	}
	shard->values.n = n;
	take_counts(shard, counts);
}
