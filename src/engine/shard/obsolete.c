/*
 * obsolete.c
 *		Obsolete value files of a store, the reasons why they still exist, and their removal.
 *
 * A merge of all runs takes a value file off the shard's list when no entry names it, and none ever
 * will (counts.c).  Its file may still be needed:
 *
 * - A mark that was captured before lists it, and a shard that is set back to that mark needs it.
 *   So the file stays until a mark is durable that was captured later.
 * - A shard that has left the map had such a mark.  It counts after a power loss until all shards
 *   of the new map have marks.  So no file is removed while a change of the map is not durable.
 * - A base backup is being taken: its copy begins at an older mark.
 * - At level 'keys' the WAL has BATCH records that name addresses in it.  Redo puts their entries
 *   on top of the mark's, which name the addresses to which the values were moved.  So the file
 *   stays until a checkpoint is complete whose redo pointer is after the end that the WAL had when
 *   the value file left the list.  No redo begins before that.
 * - An open transaction may have put values into it that were moved since.  At level 'keys' the
 *   BATCH of that transaction names the old addresses.  So an obsolete value file is synced like a
 *   listed one, until all of it has been synced.
 * - Another shard lists it.  A split moves no values: each new shard lists the value files of the
 *   old shard that its entries name, and empties them for itself.  At level 'keys' redo may also
 *   put an entry of an older map into a shard that did not list its value file.  So once a store
 *   has had another map than its first, the lists of all shards are read before files are removed.
 *
 * When a file waits for nothing else but is in another list, that shard gets the share of its bytes
 * that counted in this one, and the entry is dropped.  No file comes back into lists: new ones are
 * copied from lists, have new addresses, or are claimed by the process that also removes files.
 *
 * The list is lost when the server ends.  Stores that begin at their marks miss nothing: the files
 * of the mark are in the list, and the others are removed after recovery or redo.  At level 'none'
 * the newest FILES edit counts.  Files that only the newest mark lists are obsolete again, and wait
 * for the next mark.
 *
 * Readers pin nothing.  A reader that finds a value's file removed looks the key up again (I 16).
 */
#include "postgres.h"

#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/shared.h"
#include "engine/base/types.h"
#include "engine/base/wait.h"
#include "engine/format/format.h"
#include "engine/io/fault.h"
#include "engine/io/io.h"
#include "engine/io/name.h"
#include "engine/shard/map.h"
#include "engine/shard/obsolete.h"
#include "engine/shard/shard.h"
#include "engine/shard/space.h"
#include "engine/shard/valuefiles.h"
#include "engine/value/value.h"
#include "engine/xact/xact.h"

#define KV_OBSOLETE_FIRST	4	/* capacity of the first list */

#define entries(store)	((KvObsolete *) kv_address((store)->obsolete.entries))

const char *const kv_obsolete_wait_names[] = {
	[KV_WAITS_FOR_NOTHING] = "nothing",
	[KV_WAITS_FOR_MARK] = "mark",
	[KV_WAITS_FOR_CHECKPOINT] = "checkpoint",
	[KV_WAITS_FOR_BACKUP] = "backup",
};

/* ---- the list ---- */

bool
kv_obsolete_reserve(KvStore *store, int n)
{
	KvObsoleteList *list = &store->obsolete;
	int			need;
	bool		done = true;

	LWLockAcquire(&list->lock, LW_EXCLUSIVE);
	need = list->n + list->reserved + n;
	if (need > list->capacity)
	{
		int			wanted = Max(Max(KV_OBSOLETE_FIRST, need), list->capacity * 2);
		dsa_pointer fresh = dsa_allocate_extended(kv_area(), wanted * sizeof(KvObsolete),
												  DSA_ALLOC_NO_OOM);

		done = DsaPointerIsValid(fresh);
		if (done)
		{
			if (list->n > 0)
				memcpy(kv_address(fresh), entries(store), list->n * sizeof(KvObsolete));
			if (DsaPointerIsValid(list->entries))
				dsa_free(kv_area(), list->entries);
			list->entries = fresh;
			list->capacity = wanted;
		}
	}
	if (done)
		list->reserved += n;
	LWLockRelease(&list->lock);
	return done;
}

void
kv_obsolete_give_back(KvStore *store, int n)
{
	if (n == 0)
		return;
	LWLockAcquire(&store->obsolete.lock, LW_EXCLUSIVE);
	store->obsolete.reserved -= n;
	LWLockRelease(&store->obsolete.lock);
}

void
kv_obsolete_add(KvStore *store, uint32 shard_id, const KvValueFile *value_file, uint64 taken,
				uint32 until_mark, uint64 lsn)
{
	KvObsoleteList *list = &store->obsolete;
	KvShard    *shard = kv_shard(store, shard_id);

	LWLockAcquire(&list->lock, LW_EXCLUSIVE);
	Assert(list->reserved > 0 && list->n < list->capacity);
	list->reserved--;
	entries(store)[list->n++] = (KvObsolete) {
		.address = value_file->address,
		.used = value_file->used,
		.taken = taken,
		.lsn = lsn,
		.number = ++list->added,
		.shard_id = shard_id,
		.until_mark = until_mark,
		.flags = value_file->flags & (KV_VALUE_FILE_SYNCED | KV_VALUE_FILE_NAMED)
	};
	LWLockRelease(&list->lock);
	shard->durable.awaited = Max(shard->durable.awaited, until_mark);
	shard->durable.wanted = true;
	pg_atomic_fetch_add_u32(&kv_registry->obsolete, 1);
	pg_atomic_write_u32(&kv_registry->marks_wanted, 1);
}

bool
kv_obsolete_keep(KvStore *store, uint32 shard_id, const KvValueFile *value_file,
				 uint32 until_mark)
{
	KvShard    *shard = kv_shard(store, shard_id);

	if (!kv_obsolete_reserve(store, 1))
		return false;
	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	kv_obsolete_add(store, shard_id, value_file, value_file->used, until_mark, 0);
	LWLockRelease(&shard->lock);
	return true;
}

/* Drops the entry at an index.  The lock is held exclusively. */
static void
drop(KvStore *store, int i)
{
	Assert(LWLockHeldByMeInMode(&store->obsolete.lock, LW_EXCLUSIVE));
	entries(store)[i] = entries(store)[--store->obsolete.n];
	pg_atomic_fetch_sub_u32(&kv_registry->obsolete, 1);
}

/*
 * The index of the shard's entry with this address, KV_NO_SHARD: of any; -1: there is none.  The
 * lock is held.
 */
static int
find(const KvStore *store, uint32 shard_id, KvAddress address)
{
	for (int i = 0; i < store->obsolete.n; i++)
	{
		if (entries(store)[i].address == address &&
			(shard_id == KV_NO_SHARD || entries(store)[i].shard_id == shard_id))
			return i;
	}
	return -1;
}

bool
kv_obsolete_has(KvStore *store, KvAddress address)
{
	bool		has;

	LWLockAcquire(&store->obsolete.lock, LW_SHARED);
	has = find(store, KV_NO_SHARD, address) >= 0;
	LWLockRelease(&store->obsolete.lock);
	return has;
}

void
kv_obsolete_forget(KvStore *store, uint32 shard_id)
{
	LWLockAcquire(&store->obsolete.lock, LW_EXCLUSIVE);
	for (int i = store->obsolete.n - 1; i >= 0; i--)
	{
		if (entries(store)[i].shard_id == shard_id)
			drop(store, i);
	}
	LWLockRelease(&store->obsolete.lock);
}

uint64
kv_obsolete_claim(KvStore *store, uint32 shard_id, KvAddress address)
{
	uint64		used = 0;

	LWLockAcquire(&store->obsolete.lock, LW_EXCLUSIVE);
	for (int i = store->obsolete.n - 1; i >= 0; i--)
	{
		if (entries(store)[i].address != address)
			continue;
		used = Max(used, entries(store)[i].used);
		if (entries(store)[i].shard_id == shard_id)
			drop(store, i);
	}
	LWLockRelease(&store->obsolete.lock);
	return used;
}

void
kv_obsolete_synced(KvStore *store, uint32 shard_id, KvAddress address, uint16 flags)
{
	int			i;

	LWLockAcquire(&store->obsolete.lock, LW_EXCLUSIVE);
	i = find(store, shard_id, address);
	if (i >= 0)
		entries(store)[i].flags |= flags;
	LWLockRelease(&store->obsolete.lock);
}

KvObsolete *
kv_obsolete_copy(KvStore *store, uint32 shard_id, int *n)
{
	KvObsolete *copy;
	Size		wanted = 1;

	*n = 0;
	LWLockAcquire(&store->obsolete.lock, LW_SHARED);
	for (int i = 0; i < store->obsolete.n; i++)
		wanted += shard_id == KV_NO_SHARD || entries(store)[i].shard_id == shard_id;
	copy = palloc_extended(wanted * sizeof(KvObsolete), MCXT_ALLOC_HUGE);
	for (int i = 0; i < store->obsolete.n; i++)
	{
		if (shard_id == KV_NO_SHARD || entries(store)[i].shard_id == shard_id)
			copy[(*n)++] = entries(store)[i];
	}
	LWLockRelease(&store->obsolete.lock);
	return copy;
}

KvAddress *
kv_value_addresses(KvStore *store, Size *n)
{
	Size		room = 64;
	KvAddress  *addresses = palloc(room * sizeof(KvAddress));
	KvObsolete *obsolete;
	int			nobsolete;

	*n = 0;
	kv_each_shard(store, i)
	{
		KvShard    *shard = kv_shard(store, i);

		LWLockAcquire(&shard->lock, LW_SHARED);
		if (*n + shard->values.n > room)
		{
			room = 2 * (*n + shard->values.n);
			addresses = repalloc_huge(addresses, room * sizeof(KvAddress));
		}
		for (int c = 0; c < shard->values.n; c++)
			addresses[(*n)++] = kv_value_files(shard)[c].value_file.address;
		LWLockRelease(&shard->lock);
	}

	/* after the lists, because files leave those for this one */
	obsolete = kv_obsolete_copy(store, KV_NO_SHARD, &nobsolete);
	addresses = repalloc_huge(addresses, (*n + nobsolete + 1) * sizeof(KvAddress));
	for (int i = 0; i < nobsolete; i++)
		addresses[(*n)++] = obsolete[i].address;
	pfree(obsolete);
	qsort(addresses, *n, sizeof(KvAddress), kv_address_compare);
	return addresses;
}

void
kv_obsolete_free(KvStore *store)
{
	KvObsoleteList *list = &store->obsolete;

	pg_atomic_fetch_sub_u32(&kv_registry->obsolete, list->n);
	if (DsaPointerIsValid(list->entries))
		dsa_free(kv_area(), list->entries);
	list->entries = InvalidDsaPointer;
	list->n = list->capacity = 0;
}

/* ---- reasons to wait ---- */

/* Outdated answers are possible, except in the process that makes marks. */
static KvObsoleteWait
waits_for(KvStore *store, const KvObsolete *entry)
{
	const KvShard *shard = kv_shard(store, entry->shard_id);
	bool		in_map = shard->place.bounds_since != KV_NOT_IN_MAP;

	if (store->shape.wal == KV_WAL_KEYS &&
		pg_atomic_read_u64(&kv_registry->checkpoint) < entry->lsn)
		return KV_WAITS_FOR_CHECKPOINT;
	if (in_map && shard->durable.number < entry->until_mark)
		return KV_WAITS_FOR_MARK;

	/* a shard leaves the map while this is not so */
	pg_read_barrier();
	return store->shape.maps && !kv_map_lets_go(store) ? KV_WAITS_FOR_MARK : KV_WAITS_FOR_NOTHING;
}

uint64
kv_obsolete_last(KvStore *store)
{
	uint64		last;

	LWLockAcquire(&store->obsolete.lock, LW_SHARED);
	last = store->obsolete.added;
	LWLockRelease(&store->obsolete.lock);
	return last;
}

KvObsoleteBytes
kv_obsolete_bytes(KvStore *store, uint64 last)
{
	KvObsoleteBytes sum = {0};
	bool		backup = kv_backups_run();

	LWLockAcquire(&store->obsolete.lock, LW_SHARED);
	for (int i = 0; i < store->obsolete.n; i++)
	{
		const KvObsolete *entry = &entries(store)[i];
		KvObsoleteWait waits = backup ? KV_WAITS_FOR_BACKUP : waits_for(store, entry);

		if (entry->number > last)
			continue;
		sum.n++;
		sum.bytes[waits] += entry->taken;
		sum.all += entry->taken;
		sum.waits = Max(sum.waits, waits);
	}
	LWLockRelease(&store->obsolete.lock);
	return sum;
}

void
kv_obsolete_map_done(KvStore *store)
{
	LWLockAcquire(&store->obsolete.lock, LW_EXCLUSIVE);
	for (int i = 0; i < store->obsolete.n; i++)
	{
		/* the id may be given to a new shard, which counts its marks from 1 on */
		if (kv_shard(store, entries(store)[i].shard_id)->place.bounds_since == KV_NOT_IN_MAP)
			entries(store)[i].until_mark = 0;
	}
	LWLockRelease(&store->obsolete.lock);
}

/* ---- removal ---- */

/*
 * Not below zero: after a restart a standby frees files with names of this incarnation that were
 * not counted in this run of the server.
 */
static void
count_less(pg_atomic_uint64 *counter, uint64 bytes)
{
	uint64		before = pg_atomic_read_u64(counter);

	while (!pg_atomic_compare_exchange_u64(counter, &before, before - Min(before, bytes)))
		;
}

/*
 * Renames the file to a name under which the maintainer frees it step by step (lifecycle/free.c).
 */
int
kv_value_file_discard(KvStore *store, KvAddress address)
{
	const char *path = kv_path_value(&store->key, (KvFileId) {address});
	bool		in_space = strncmp(path, "pg_tblspc/", 10) == 0;
	int			len = in_space ? strrchr(path, '/') - path : strlen(KV_DIRECTORY);
	const char *directory = in_space ? path : KV_DIRECTORY;
	char		target[MAXPGPATH];
	struct stat info;
	bool		known = stat(path, &info) == 0;
	int			err;

	do
	{
		snprintf(target, sizeof(target), "%.*s/dropped.%u.%u.%u.val", len, directory,
				 kv_incarnations->current,
				 pg_atomic_fetch_add_u32(&kv_registry->drop_counter, 1), store->cache_id);
	} while (access(target, F_OK) == 0);
	if (known)
	{
		pg_atomic_fetch_add_u64(&store->space.freeing, info.st_size);
		pg_atomic_fetch_add_u64(&kv_registry->freeing, info.st_size);
	}
	err = kv_io_rename(path, target);
	kv_value_say_gone();
	if (known && err == 0)
		pg_atomic_fetch_add_u64(&store->space.released, info.st_size);
	if (known && err != 0)
	{
		count_less(&store->space.freeing, info.st_size);
		count_less(&kv_registry->freeing, info.st_size);
	}

	/* ENOENT: the table has been dropped */
	return err == ENOENT ? 0 : err;
}

void
kv_value_file_note_freed(const char *name, uint64 bytes)
{
	HASH_SEQ_STATUS status;
	KvStore    *store;
	uint32		incarnation;
	uint32		number;
	uint32		cache_id;

	if (sscanf(name, "dropped.%u.%u.%u.val", &incarnation, &number, &cache_id) != 3 ||
		incarnation != kv_incarnations->current)
		return;
	count_less(&kv_registry->freeing, bytes);
	LWLockAcquire(&kv_registry->lock, LW_SHARED);
	hash_seq_init(&status, kv_store_hash);
	while ((store = hash_seq_search(&status)) != NULL)
	{
		if (store->cache_id != cache_id)
			continue;
		count_less(&store->space.freeing, bytes);
		kv_space_note_freed(store, bytes);
	}
	LWLockRelease(&kv_registry->lock);
}

/* A file that waits for nothing, with all of its entries. */
typedef struct KvCandidate
{
	KvAddress	address;
	KvObsolete *entries;
	int			n;
	uint32		lister;			/* a shard that lists it, or KV_NO_SHARD */
} KvCandidate;

static int
compare_entries(const void *a, const void *b)
{
	return kv_address_compare(&((const KvObsolete *) a)->address,
							  &((const KvObsolete *) b)->address);
}

/* The files of which no entry waits, sorted by address, palloc'd.  Sorts the entries. */
static KvCandidate *
find_candidates(KvStore *store, KvObsolete *all, int nall, int *n)
{
	KvCandidate *candidates = palloc_extended(Max(nall, 1) * sizeof(KvCandidate), MCXT_ALLOC_HUGE);
	int			next;

	*n = 0;
	qsort(all, nall, sizeof(KvObsolete), compare_entries);
	for (int at = 0; at < nall; at = next)
	{
		bool		waits = false;

		for (next = at; next < nall && all[next].address == all[at].address; next++)
			waits |= waits_for(store, &all[next]) != KV_WAITS_FOR_NOTHING;
		if (!waits)
			candidates[(*n)++] = (KvCandidate) {all[at].address, &all[at], next - at, KV_NO_SHARD};
	}
	return candidates;
}

/*
 * Finds out which of them shards in the map list.  last: of the entries that they were found in.
 * False: the map has changed, or there are newer entries; try again later.
 */
static bool
find_listers(KvStore *store, KvCandidate *candidates, int n, uint64 last)
{
	uint32		map = pg_atomic_read_u32(&store->map.number);

	StaticAssertStmt(offsetof(KvCandidate, address) == 0, "an item begins with its place");
	pg_read_barrier();
	if (!kv_map_lets_go(store))
		return false;
	kv_each_shard(store, i)
	{
		KvShard    *shard = kv_shard(store, i);

		LWLockAcquire(&shard->lock, LW_SHARED);
		for (int c = 0; c < shard->values.n; c++)
		{
			KvAddress	address = kv_value_files(shard)[c].value_file.address;
			int			at = kv_first_from(candidates, sizeof(KvCandidate), n, address);

			if (at < n && candidates[at].address == address)
				candidates[at].lister = i;
		}
		LWLockRelease(&shard->lock);
	}

	/*
	 * a shard may have been joined to one that was searched before; and a file may have left a list
	 * before that was searched, and after the entries were copied
	 */
	pg_read_barrier();
	return kv_map_lets_go(store) && pg_atomic_read_u32(&store->map.number) == map &&
		kv_obsolete_last(store) == last;
}

/*
 * Drops an entry of a file that has others.  heir, if it is not NULL, gets its bytes.  extend_lock
 * is held by a commit that is about to sync the file.
 */
static void
drop_one(KvStore *store, const KvObsolete *entry, const KvObsolete *heir)
{
	KvShard    *shard = kv_shard(store, entry->shard_id);
	int			i;

	LWLockAcquire(&shard->extend_lock, LW_EXCLUSIVE);
	LWLockAcquire(&store->obsolete.lock, LW_EXCLUSIVE);
	if (heir != NULL && (i = find(store, heir->shard_id, heir->address)) >= 0)
		entries(store)[i].taken += entry->taken;
	if ((i = find(store, entry->shard_id, entry->address)) >= 0)
		drop(store, i);
	LWLockRelease(&store->obsolete.lock);
	LWLockRelease(&shard->extend_lock);
}

/* The shard that lists the file gets the shares of others.  False: it does not list it any more. */
static bool
hand_on(KvStore *store, const KvCandidate *candidate)
{
	KvShard    *lister = kv_shard(store, candidate->lister);
	KvShardValueFile *value_file;
	uint64		taken = 0;

	for (int i = 0; i < candidate->n; i++)
		taken += candidate->entries[i].taken;
	LWLockAcquire(&lister->lock, LW_EXCLUSIVE);
	value_file = kv_value_file_find(lister, candidate->address);
	if (value_file != NULL && (value_file->value_file.flags & KV_VALUE_FILE_SHARED))
	{
		/* none of these bytes is live in that shard */
		if (value_file->value_file.live == KV_NOT_KNOWN)
			value_file->dead_then += taken;
		kv_value_file_divide(lister, value_file, value_file->share + taken);
	}
	LWLockRelease(&lister->lock);
	return value_file != NULL;
}

/*
 * Commits at level 'keys' may still have to sync value files of shards that have left the map.
 * Excludes this file.
 */
static void
forget_in_left(KvStore *store, KvAddress address)
{
	if (store->shape.wal != KV_WAL_KEYS || !store->shape.maps)
		return;
	kv_each_descriptor(store, i)
	{
		KvShard    *left = kv_shard(store, i);
		KvShardValueFile *value_file;

		if (left->place.bounds_since != KV_NOT_IN_MAP)
			continue;
		LWLockAcquire(&left->extend_lock, LW_EXCLUSIVE);
		LWLockAcquire(&left->lock, LW_EXCLUSIVE);
		value_file = kv_value_file_find(left, address);
		if (value_file != NULL)
			value_file->value_file.flags |= KV_VALUE_FILE_SYNCED | KV_VALUE_FILE_NAMED;
		LWLockRelease(&left->lock);
		LWLockRelease(&left->extend_lock);
	}
}

/* Removes a file that no shard lists, after all of its entries but the last.  False: it fails. */
static bool
remove_file(KvStore *store, const KvCandidate *candidate)
{
	const KvObsolete *last = &candidate->entries[candidate->n - 1];
	KvShard    *shard = kv_shard(store, last->shard_id);
	int			err;

	forget_in_left(store, candidate->address);
	LWLockAcquire(&shard->extend_lock, LW_EXCLUSIVE);
	err = kv_value_file_discard(store, candidate->address);
	if (err == 0)
	{
		LWLockAcquire(&store->obsolete.lock, LW_EXCLUSIVE);
		drop(store, find(store, last->shard_id, candidate->address));
		LWLockRelease(&store->obsolete.lock);
	}
	LWLockRelease(&shard->extend_lock);
	if (err != 0)
		kv_io_error(WARNING, err, kv_path_value(&store->key, (KvFileId) {candidate->address}),
					"rename");
	return err == 0;
}

/* Releases one file.  False: it could not be renamed. */
static bool
release(KvStore *store, const KvCandidate *candidate)
{
	bool		listed = candidate->lister != KV_NO_SHARD;
	int			n = candidate->n - (listed ? 0 : 1);

	if (listed && !hand_on(store, candidate))
		return true;

	/* the last entry stays until its file is gone */
	for (int i = 0; i < n; i++)
		drop_one(store, &candidate->entries[i], listed ? NULL : &candidate->entries[n]);
	return listed || remove_file(store, candidate);
}

void
kv_obsolete_release(KvStore *store)
{
	KvObsolete *all;
	KvCandidate *candidates;
	uint64		last;
	int			nall;
	int			n;

	if (store->obsolete.n == 0)
		return;
	last = kv_obsolete_last(store);
	all = kv_obsolete_copy(store, KV_NO_SHARD, &nall);
	candidates = find_candidates(store, all, nall, &n);
	if (n > 0)
	{
		KV_STOP_POINT("obsolete_found");
		kv_backups_look();
	}
	if (n > 0 && !kv_backups_run() &&
		(!store->shape.maps || find_listers(store, candidates, n, last)))
	{
		for (int i = 0; i < n; i++)
		{
			KV_STOP_POINT("value_file_released");
			if (kv_backups_run() || !release(store, &candidates[i]))
				break;
		}
		kv_wake_maintainer();
	}
	pfree(candidates);
	pfree(all);
}
