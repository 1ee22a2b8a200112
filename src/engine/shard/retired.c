/*
 * retired.c
 *		Value files that have left the list of their shard, until their files can be removed.
 *
 * A merge of all runs counts what it emits, by value file.  A compaction input of which it emits
 * nothing (kv_value_file_may_be_input) leaves the list with that merge: no entry
 * names it, and none ever will (I 14).  It is retired, because its file may still be needed:
 *
 * - A mark that was captured before lists it, and a shard that is set back to that mark needs
 *   it.  So the file stays until a mark is durable that was captured later.
 * - A base backup is being taken: its copy begins at an older mark.
 * - At level 'keys' the WAL has BATCH records that name addresses in it.  Redo puts their entries
 *   on top of the mark's, which name the addresses to which the values were moved.  So the file
 *   stays until a checkpoint is complete whose redo pointer is after the end that the WAL had when
 *   the value file retired.  No redo begins before that.
 * - An open transaction may have put values into it that were moved since.  At level 'keys' the
 *   BATCH of that transaction names the old addresses.  So a retired value file is synced like a
 *   listed one, until all of it has been synced.
 *
 * The list of retired value files is lost when the server ends.  Stores that begin at their marks
 * miss nothing: the files of the mark are in the list, and the others are removed after recovery
 * or redo.  At level 'none' the newest FILES edit counts.  Files that only the newest mark lists
 * are retired again, and wait for the next mark.
 *
 * Readers pin nothing.  A reader that finds a value's file removed looks the key up again (I 16).
 */
#include "postgres.h"

#include "access/transam.h"

#include "engine/base/shared.h"
#include "engine/base/types.h"
#include "engine/format/format.h"
#include "engine/shard/map.h"
#include "engine/shard/retired.h"
#include "engine/shard/shard.h"
#include "engine/shard/valuefiles.h"
#include "engine/value/value.h"
#include "engine/xact/xact.h"

#define KV_RETIRED_FIRST	4		/* capacity of the first list */

const char *const kv_retired_wait_names[] = {
	[KV_WAITS_FOR_NOTHING] = "nothing",
	[KV_WAITS_FOR_MARK] = "mark",
	[KV_WAITS_FOR_CHECKPOINT] = "checkpoint",
	[KV_WAITS_FOR_BACKUP] = "backup",
};

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

/* Grows the list.  Takes the shard's lock; false: there is no memory. */
static bool
grow(KvShard *shard, int room)
{
	return kv_shard_list_grow(shard, &shard->retired.files, sizeof(KvRetired), &shard->retired.n,
							  &shard->retired.capacity, Max(KV_RETIRED_FIRST, room));
}

bool
kv_retired_reserve(KvShard *shard, int n)
{
	int			need;
	int			room;

	LWLockAcquire(&shard->lock, LW_SHARED);
	need = shard->retired.n + n;
	room = shard->retired.capacity;
	LWLockRelease(&shard->lock);
	return need <= room || grow(shard, Max(need, room * 2));
}

bool
kv_retired_make_room(KvShard *shard)
{
	int			inputs = 0;

	LWLockAcquire(&shard->lock, LW_SHARED);
	for (int i = 0; i < shard->values.n; i++)
		inputs += (kv_value_files(shard)[i].value_file.flags & KV_VALUE_FILE_INPUT) != 0;
	LWLockRelease(&shard->lock);
	return kv_retired_reserve(shard, inputs);
}

void
kv_counts_apply(KvCounts *counts, const KvShard *shard, uint64 horizon, KvFileList *listed)
{
	int			room = shard->retired.capacity - shard->retired.n;
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

int
kv_value_files_retire(KvShard *shard, const KvCounts *counts, uint64 lsn)
{
	KvShardValueFile *value_files = kv_value_files(shard);
	int			before = shard->values.n;
	int			n = 0;

	Assert(LWLockHeldByMeInMode(&shard->lock, LW_EXCLUSIVE));
	for (int i = 0; i < before; i++)
	{
		const KvValueFileCount *count = kv_counts_find(counts, value_files[i].value_file.address);
		KvRetired  *retired;

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
		Assert(shard->retired.n < shard->retired.capacity);
		retired = &kv_retired(shard)[shard->retired.n++];
		retired->value_file = value_files[i].value_file;
		retired->value_file.flags &= ~KV_VALUE_FILE_INPUT;

		/* a mark in the making may have been captured before */
		retired->until_mark = shard->durable.number + 1 +
			(shard->durable.marks[KV_MARK_NEXT].valid ? 1 : 0);
		retired->lsn = lsn;
		retired->taken = kv_value_file_taken(shard, &value_files[i]);
		shard->values.bytes -= Min(shard->values.bytes, retired->taken);
	}
	shard->values.n = n;
	take_counts(shard, counts);
	if (n == before)
		return 0;
	shard->durable.wanted = true;
	pg_atomic_write_u32(&kv_registry->marks_wanted, 1);
	pg_atomic_fetch_add_u32(&kv_registry->retired, before - n);
	return before - n;
}

bool
kv_retired_add(KvShard *shard, const KvValueFile *value_file, uint32 until_mark)
{
	if (shard->retired.n == shard->retired.capacity && !grow(shard, shard->retired.capacity * 2))
		return false;
	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	kv_retired(shard)[shard->retired.n++] = (KvRetired) {*value_file, until_mark, 0,
														value_file->used};
	shard->durable.wanted = true;
	LWLockRelease(&shard->lock);
	pg_atomic_fetch_add_u32(&kv_registry->retired, 1);
	pg_atomic_write_u32(&kv_registry->marks_wanted, 1);
	return true;
}

KvRetired *
kv_retired_find(const KvShard *shard, KvAddress address)
{
	KvAddress	file_address = kv_file_of(address).address;

	for (int i = 0; i < shard->retired.n; i++)
	{
		if (kv_retired(shard)[i].value_file.address == file_address)
			return &kv_retired(shard)[i];
	}
	return NULL;
}

void
kv_retired_remove(KvShard *shard, KvAddress address)
{
	KvRetired  *retired = kv_retired_find(shard, address);

	Assert(LWLockHeldByMeInMode(&shard->lock, LW_EXCLUSIVE));
	if (retired == NULL)
		return;
	*retired = kv_retired(shard)[--shard->retired.n];
	pg_atomic_fetch_sub_u32(&kv_registry->retired, 1);
}

void
kv_retired_free(KvShard *shard)
{
	pg_atomic_fetch_sub_u32(&kv_registry->retired, shard->retired.n);
	if (DsaPointerIsValid(shard->retired.files))
		dsa_free(kv_area(), shard->retired.files);
	shard->retired.files = InvalidDsaPointer;
	shard->retired.n = shard->retired.capacity = 0;
}

/* ---- reasons to wait ---- */

void
kv_shard_want_mark(KvShard *shard)
{
	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	shard->durable.wanted = true;
	LWLockRelease(&shard->lock);
	pg_atomic_write_u32(&kv_registry->marks_wanted, 1);
}

KvRetiredWait
kv_retired_waits_for(const KvStore *store, const KvShard *shard, const KvRetired *retired)
{
	if (store->shape.wal == KV_WAL_KEYS &&
		pg_atomic_read_u64(&kv_registry->checkpoint) < retired->lsn)
		return KV_WAITS_FOR_CHECKPOINT;
	/* where the map has changed, marks of other shards count too (shared.c) */
	return shard->durable.number < retired->until_mark ||
		(store->shape.maps && !kv_map_lets_go(store)) ?
		KV_WAITS_FOR_MARK : KV_WAITS_FOR_NOTHING;
}

KvRetiredWait
kv_retired_wait(const KvStore *store, uint32 shard_id, uint32 until_mark, uint64 *bytes)
{
	KvShard    *shard = kv_shard(store, shard_id);
	KvRetiredWait most = KV_WAITS_FOR_NOTHING;

	*bytes = 0;
	if (shard->retired.n == 0)
		return most;
	LWLockAcquire(&shard->lock, LW_SHARED);
	for (int i = 0; i < shard->retired.n; i++)
	{
		const KvRetired *retired = &kv_retired(shard)[i];

		if (retired->until_mark > until_mark)
			continue;
		*bytes += retired->taken;
		most = Max(most, kv_retired_waits_for(store, shard, retired));
	}
	LWLockRelease(&shard->lock);
	return *bytes > 0 && kv_backups_run() ? KV_WAITS_FOR_BACKUP : most;
}

uint32
kv_retired_until(KvShard *shard)
{
	uint32		until = 0;

	LWLockAcquire(&shard->lock, LW_SHARED);
	for (int i = 0; i < shard->retired.n; i++)
		until = Max(until, kv_retired(shard)[i].until_mark);
	LWLockRelease(&shard->lock);
	return until;
}

bool
kv_retired_wants_mark(const KvShard *shard)
{
	for (int i = 0; i < shard->retired.n; i++)
	{
		if (kv_retired(shard)[i].until_mark > shard->durable.number)
			return true;
	}
	return false;
}
