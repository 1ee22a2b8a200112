/*
 * check.c
 *		kvfdw_check(): reads and verifies all files of a store.
 *
 * It checks
 *
 *  - the CRC of every run page, and the order of every run;
 *  - every batch of the key logs;
 *  - that each key belongs to its shard;
 *  - every value that a run or a memtable names, against its entry's CRC;
 *  - that no two of these values overlap (I 13);
 *  - that value files and lists of value files agree.
 *
 * Problems are reported one by one; the check continues after each.  It takes no lock for
 * longer than copying a few entries, so it may run while writers do.  If a flush replaces a run
 * during the check, that shard is checked again.
 */
#include "postgres.h"

#include <sys/stat.h>
#include <unistd.h>

#include "catalog/pg_operator.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "port/pg_bswap.h"
#include "utils/memutils.h"
#include "utils/tuplesort.h"

#include "compat.h"
#include "engine/base/shared.h"
#include "engine/base/key.h"
#include "engine/base/progress.h"
#include "engine/base/types.h"
#include "engine/format/format.h"
#include "engine/format/path.h"
#include "engine/index/memtable.h"
#include "engine/index/run.h"
#include "engine/io/fault.h"
#include "engine/maintenance.h"
#include "engine/scan/scan.h"
#include "engine/shard/map.h"
#include "engine/shard/obsolete.h"
#include "engine/shard/shard.h"
#include "engine/shard/valuefiles.h"
#include "engine/version/version.h"
#include "engine/buffer/buffer.h"
#include "engine/value/value.h"

#define KV_CHECK_BATCH	256

typedef struct KvCheck
{
	KvStore    *store;
	uint32		shard_id;
	KvKey		lo;				/* its range */
	KvKey		hi;
	uint32		map_number;		/* number of the map that has this range */
	KvProblemCallback report;
	void	   *arg;
	uint64		problems;
	MemoryContext context;		/* one batch of values */
	Tuplesortstate *addresses;	/* KvPlaced, of all shards */
} KvCheck;

/*
 * The address of an entry's value.  A bytea of this struct is sorted, so its fields are
 * big-endian.
 */
typedef struct KvPlaced
{
	uint64		address;
	uint32		len;
	uint32		key_hash;
} KvPlaced;

typedef struct KvCheckEntry
{
	KvVersion	version;
	int			keylen;
	uint8	   *key;
} KvCheckEntry;

/* A KvProblemCallback that counts and passes on. */
static void
report_problem(void *arg, const char *file, int64 offset, const char *problem)
{
	KvCheck    *check = arg;

	check->problems++;
	check->report(check->arg, file, offset, problem);
}

/* Are these bytes within the used part of one of the shard's value files?  Its lock is held. */
static bool
is_used(KvShard *shard, KvAddress address, Size len)
{
	const KvShardValueFile *value_file = kv_value_file_find(shard, address);

	return value_file != NULL && address + len <= kv_value_file_end(shard, value_file);
}

/*
 * Calls is_used for the shard that is being checked.  If that has left the map, uses the shard
 * that has the key now, which may have moved the value.
 */
static bool
is_in_list(KvCheck *check, KvKey key, KvAddress address, Size len)
{
	KvShard    *shard = kv_shard(check->store, check->shard_id);
	bool		is;

	if (len == 0)
		return true;
	LWLockAcquire(&shard->lock, LW_SHARED);
	is = is_used(shard, address, len);
	LWLockRelease(&shard->lock);
	if (!is)
	{
		(void) kv_key_view(check->store, key, &shard);
		is = is_used(shard, address, len);
		LWLockRelease(&shard->lock);
	}
	return is;
}

static void
note_address(KvCheck *check, const KvCheckEntry *entry)
{
	KvPlaced	placed = {
		.address = pg_hton64(KV_LOCATION_ADDRESS(entry->version.location)),
		.len = pg_hton32(entry->version.len),
		.key_hash = hash_bytes(entry->key, entry->keylen)
	};
	union
	{
		int32		aligned;
		char		bytes[VARHDRSZ + sizeof(KvPlaced)];
	}			room;

	if (entry->version.len == 0)
		return;
	SET_VARSIZE(&room, sizeof(room.bytes));
	memcpy(VARDATA(&room), &placed, sizeof(placed));
	tuplesort_putdatum(check->addresses, PointerGetDatum(&room), false);
}

/*
 * Check that no two values overlap.  An address is given out once, whatever is moved during the
 * check; but an entry may have been read twice.
 */
static void
check_addresses(KvCheck *check)
{
	KvPlaced	before = {0};
	uint64		end = 0;		/* of all values so far */
	Datum		datum;
	bool		isnull;

	tuplesort_performsort(check->addresses);
	while (kv_tuplesort_getdatum(check->addresses, &datum, &isnull))
	{
		KvPlaced	placed;
		uint64		address;

		CHECK_FOR_INTERRUPTS();
		memcpy(&placed, VARDATA(DatumGetPointer(datum)), sizeof(placed));
		pfree(DatumGetPointer(datum));
		address = pg_ntoh64(placed.address);
		if (address < end && memcmp(&placed, &before, sizeof(placed)) != 0)
			report_problem(check, kv_path_value(&check->store->key, kv_file_of(address)),
						   kv_offset_of(address), "value overlaps another value");
		end = Max(end, address + pg_ntoh32(placed.len));
		before = placed;
	}
}

/* Read one value and compare it with its entry, which is looked up again if that fails (I 16). */
static void
check_value(KvCheck *check, const KvCheckEntry *entry)
{
	KvStore    *store = check->store;
	KvVersion	version = entry->version;
	KvKey		key = {entry->key, entry->keylen};

	note_address(check, entry);
	for (;;)
	{
		KvLocation	location = version.location;
		KvAddress	address = KV_LOCATION_ADDRESS(location);
		int			err;
		const char *problem = kv_value_problem(&store->key, store->cache_id, key, &version, &err);

		if (problem == NULL && !is_in_list(check, key, address, version.len))
			problem = "value is in no value file of its shard";
		if (problem == NULL)
			return;
		if (!kv_version_again(store, key, &version))
			return;				/* a merge has dropped it */
		if (version.location == location)
		{
			report_problem(check, kv_path_value(&store->key, kv_file_of(address)),
						   kv_offset_of(address), problem);
			return;
		}
	}
}

/*
 * Is the key outside of the shard's range?  If the range has changed since check_runs noted it,
 * nothing can be said of the older runs.
 */
static bool
is_outside(const KvCheck *check, KvKey key)
{
	if (kv_key_order(&key, &check->lo) >= 0 &&
		(check->hi.data == NULL || kv_key_order(&key, &check->hi) < 0))
		return false;
	return kv_shard(check->store, check->shard_id)->place.bounds_since <= check->map_number;
}

/* Check every entry of one run: its key against the shard's range, and its value. */
static void
check_run_entries(KvCheck *check, KvRun *run, const char *path)
{
	KvRunCursor cursor;
	uint64		n = 0;

	for (kv_run_first(run, &cursor); cursor.valid; kv_run_next(&cursor))
	{
		uint8		keybuf[8];
		const uint8 *key;
		KvCheckEntry entry;

		if ((++n & 0xff) == 0)
		{
			CHECK_FOR_INTERRUPTS();
			kv_progress_add(0x100);
		}
		kv_run_entry(&cursor, keybuf, &key, &entry.keylen, &entry.version);
		entry.key = unconstify(uint8 *, key);
		if (is_outside(check, (KvKey) {key, entry.keylen}))
			report_problem(check, path, (int64) (cursor.page + 1) * KV_BLOCK,
						   "key is outside its shard");
		if (entry.version.kind == KV_VERSION_PUT || entry.version.len > 0)
			check_value(check, &entry);
	}
}

/*
 * Open a run; a damaged or unreadable one is reported.  NULL with *missing set if it does not
 * exist.
 */
static KvRun *
open_run(KvCheck *check, const char *path, const KvRunIds *ids, bool *missing)
{
	MemoryContext context = CurrentMemoryContext;
	KvRun	   *volatile run = NULL;

	*missing = false;
	PG_TRY();
	{
		run = kv_run_open(path, ids);
		*missing = run == NULL;
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		if (error->sqlerrcode != ERRCODE_DATA_CORRUPTED &&
			error->sqlerrcode != ERRCODE_IO_ERROR)
			PG_RE_THROW();
		FlushErrorState();
		report_problem(check, path, 0, error->message);
	}
	PG_END_TRY();
	return run;
}

/* Verify one run.  False if it is missing: the caller knows whether it was replaced. */
static bool
check_run(KvCheck *check, uint32 number)
{
	char       *path = pstrdup(kv_path_run(&check->store->key, check->shard_id, number));
	uint64		before = check->problems;
	KvRunIds	ids;
	bool		missing;
	volatile bool gone = false;
	KvRun	   *run;

	kv_store_ids(check->store, check->shard_id, number, &ids);
	run = open_run(check, path, &ids, &missing);
	if (run == NULL)
		return !missing;
	PG_TRY();
	{
		KV_STOP_POINT("check_run_pinned");
		/* the file may have been unlinked after it was opened */
		gone = !kv_run_check(path, &ids, report_problem, check);
		KV_STOP_POINT("check_run_read");
		if (!gone && check->problems == before)
			check_run_entries(check, run, path);
	}
	PG_FINALLY();
	{
		kv_run_close(run);
	}
	PG_END_TRY();
	return !gone;
}

static void
check_runs(KvCheck *check)
{
	KvShard    *shard = kv_shard(check->store, check->shard_id);
	uint32		numbers[KV_MAX_UNFROZEN + 1];
	int			n;
	uint32		generation;

retry:
	n = 0;
	if (!kv_shard_range(check->store, check->shard_id, &check->lo, &check->hi, &check->map_number))
		return;
	LWLockAcquire(&shard->lock, LW_SHARED);
	generation = pg_atomic_read_u32(&shard->generation);
	for (int i = 0; i < shard->files.nunfrozen; i++)
		numbers[n++] = shard->files.unfrozen[i];
	if (shard->files.base_run != 0)
		numbers[n++] = shard->files.base_run;
	LWLockRelease(&shard->lock);

	for (int i = 0; i < n; i++)
	{
		if (check_run(check, numbers[i]))
			continue;
		if (pg_atomic_read_u32(&shard->generation) != generation)
			goto retry;
		report_problem(check, kv_path_run(&check->store->key, check->shard_id, numbers[i]),
					   0, "file is missing");
	}
}

/* Check the values that the memtables name and that are in their value file. */
static void
check_memtables(KvCheck *check)
{
	KvShard    *shard = kv_shard(check->store, check->shard_id);
	uint8		position[KV_MAX_KEY + 1];
	int			position_len = 0;
	bool		more = true;

	while (more)
	{
		KvCheckEntry entries[KV_CHECK_BATCH];
		int			n = 0;

		CHECK_FOR_INTERRUPTS();
		MemoryContextReset(check->context);
		more = false;
		LWLockAcquire(&shard->lock, LW_SHARED);
		for (int d = 0; d < 2; d++)
		{
			const KvMemtable *memtable = d == 0 ? &shard->active : &shard->immutable;
			KvMemtableCursor cursor;
			KvMemtableItem *item = kv_memtable_seek(memtable, position, position_len, &cursor);
			int			from = n;

			for (; item != NULL && n - from < KV_CHECK_BATCH / 2; item = kv_memtable_next(&cursor))
			{
				KvMemtableVersion *node = kv_address(item->newest);

				if ((node->version.kind != KV_VERSION_PUT && node->version.len == 0) ||
					node->version.status == KV_XID_ABORTED ||
					(node->version.len > 0 && kv_buffer_find(shard, &node->version) != NULL))
					continue;
				entries[n].version = node->version;
				entries[n].keylen = item->keylen;
				entries[n].key = MemoryContextAlloc(check->context, Max(item->keylen, 1));
				memcpy(entries[n].key, item->key, item->keylen);
				n++;
			}
			if (item != NULL)
				more = true;
		}
		LWLockRelease(&shard->lock);
		for (int i = 0; i < n; i++)
			check_value(check, &entries[i]);
		kv_progress_add(n);
		if (more)
		{
			/* continue after the lesser of the two memtables' last keys */
			const KvCheckEntry *last = NULL;

			for (int i = 0; i < n; i++)
			{
				bool		ends = i == n - 1 || i == KV_CHECK_BATCH / 2 - 1 ||
					kv_key_compare(entries[i].key, entries[i].keylen,
								   entries[i + 1].key, entries[i + 1].keylen) >= 0;

				if (ends && (last == NULL ||
							 kv_key_compare(entries[i].key, entries[i].keylen,
											last->key, last->keylen) < 0))
					last = &entries[i];
			}
			memcpy(position, last->key, last->keylen);
			position[last->keylen] = 0;
			position_len = last->keylen + 1;
		}
	}
}

static void
check_logs(KvCheck *check)
{
	KvShard    *shard = kv_shard(check->store, check->shard_id);
	uint32		first;
	uint32		last;
	uint32		generation;

	LWLockAcquire(&shard->lock, LW_SHARED);
	first = shard->files.first_log;
	last = shard->log.number;
	generation = pg_atomic_read_u32(&shard->generation);
	if (shard->place.bounds_since == KV_NOT_IN_MAP)
		last = first;			/* its files are being removed */
	LWLockRelease(&shard->lock);
	if (last > first)
		kv_shard_drain(check->store, check->shard_id, last - 1, PG_UINT64_MAX);
	for (uint32 log = first; log < last; log++)
	{
		/* a flush may remove logs during the check */
		if (pg_atomic_read_u32(&shard->generation) != generation)
			break;
		KV_STOP_POINT("check_before_log");
		if (!kv_log_check(&check->store->key, check->shard_id, log, report_problem, check) &&
			pg_atomic_read_u32(&shard->generation) == generation)
			report_problem(check, kv_path_log(&check->store->key, check->shard_id, log),
						   0, "file is missing");
	}
}

/*
 * Is the value file in the list of a shard in the map, and its file shorter than its used
 * part?  A write buffer may just have returned what it had reserved, and the file been cut.
 */
static bool
lacks_bytes(KvShard *shard, KvAddress address, const struct stat *file)
{
	const KvShardValueFile *value_file;
	bool		lacks;

	LWLockAcquire(&shard->lock, LW_SHARED);
	value_file = kv_value_file_find(shard, address);
	lacks = value_file != NULL && shard->place.bounds_since != KV_NOT_IN_MAP &&
		(file == NULL || address + file->st_size < kv_value_file_end(shard, value_file));
	LWLockRelease(&shard->lock);
	return lacks;
}

/* Check that the value files of the shard exist, and are as long as their used parts. */
static void
check_value_files(KvCheck *check)
{
	KvStore    *store = check->store;
	KvShard    *shard = kv_shard(store, check->shard_id);
	KvFileList	now;

	LWLockAcquire(&shard->lock, LW_SHARED);
	kv_shard_describe(shard, &now);
	LWLockRelease(&shard->lock);
	KV_STOP_POINT("check_value_files_listed");
	for (int i = 0; i < now.nvalue_files; i++)
	{
		KvAddress	address = now.value_files[i].address;
		const char *path = kv_path_value(&store->key, kv_file_of(address));
		struct stat info;

		if (stat(path, &info) != 0)
		{
			if (lacks_bytes(shard, address, NULL))
				report_problem(check, path, 0, "file is missing");
		}
		else if (info.st_size < now.value_files[i].used && lacks_bytes(shard, address, &info))
			report_problem(check, path, info.st_size, "file is too short");
	}
	pfree(now.value_files);
}

/*
 * Is the value file in the list of a shard in the map, about to be, or obsolete, or is a
 * compaction job creating value files now?  Looks at all shards, so it is for files that were
 * in no list before.
 */
static bool
is_of_some_shard(KvStore *store, KvAddress address)
{
	bool		found = false;

	kv_each_shard(store, i)
	{
		KvShard    *shard = kv_shard(store, i);

		LWLockAcquire(&shard->lock, LW_SHARED);
		found = address == shard->values.next || shard->roles.compactor != 0 ||
			kv_value_file_find(shard, address) != NULL;
		LWLockRelease(&shard->lock);
		if (found)
			break;
	}
	return found || kv_obsolete_has(store, address);
}

/* Has a shard in the map the file that was found, or had it one at these addresses? */
static bool
is_known(KvStore *store, const KvFoundFile *file, const KvAddress *addresses, Size n)
{
	KvAddress	address;

	if (file->kind != KV_FILE_VALUES)
		return kv_shard_from(store, file->shard) == file->shard;
	address = kv_found_address(file);
	return bsearch(&address, addresses, n, sizeof(KvAddress), kv_address_compare) != NULL ||
		is_of_some_shard(store, address);
}

/*
 * Check that the directory has only value files of the lists, and only files of shards in the
 * map.  While the map changes, files of other shards remain.
 */
static void
check_directory(KvCheck *check)
{
	KvStore    *store = check->store;
	KvAddress  *addresses;
	KvFound		found;
	Size		n;

	kv_store_list_files(&store->key, &found);
	addresses = kv_value_addresses(store, &n);
	for (int i = 0; i < found.n; i++)
	{
		const KvFoundFile *file = &found.files[i];
		uint32		map = pg_atomic_read_u32(&store->map.number);
		char		path[MAXPGPATH];

		CHECK_FOR_INTERRUPTS();
		pg_read_barrier();
		if (!kv_map_is_done(store) || is_known(store, file, addresses, n))
			continue;
		if (file->kind == KV_FILE_VALUES)
			strlcpy(path, kv_path_value(&store->key, kv_file_of(kv_found_address(file))),
					sizeof(path));
		else
			snprintf(path, sizeof(path), "%s/%s", kv_path_store(&store->key), file->name);
		if (access(path, F_OK) != 0)
			continue;
		pg_read_barrier();
		if (kv_map_is_done(store) && map == pg_atomic_read_u32(&store->map.number))
			report_problem(check, path, 0, "file belongs to no shard");
	}
	pfree(addresses);
	pfree(found.files);
}

static void
check_store(KvCheck *check)
{
	kv_each_shard(check->store, shard_id)
	{
		check->shard_id = shard_id;
		kv_progress_shard(shard_id);
		kv_progress_phase("runs and values");
		check_runs(check);
		kv_progress_phase("recent values");
		check_memtables(check);
		kv_progress_phase("logs");
		check_logs(check);
		check_value_files(check);
	}
	kv_progress_shard(-1);
	kv_progress_phase("addresses");
	check_addresses(check);
	kv_progress_phase("directory");
	check_directory(check);
	kv_versions_check(&check->store->key, check->store->shape.id, report_problem, check);
}

void
kv_store_check(KvStore *store, KvProblemCallback report, void *arg)
{
	KvCheck		check = {.store = store, .report = report, .arg = arg};
	KvProgress	outer;

	check.context = AllocSetContextCreate(CurrentMemoryContext, "kvfdw check",
										  ALLOCSET_DEFAULT_SIZES);
	check.addresses = tuplesort_begin_datum(BYTEAOID, ByteaLessOperator, InvalidOid, false,
											maintenance_work_mem, NULL, TUPLESORT_NONE);
	kv_progress_begin(&outer, KV_PROGRESS_CHECK, store->key.dboid, store->key.relid, 0, NULL,
					  kv_store_row_estimate(store));
	PG_TRY();
	{
		check_store(&check);
	}
	PG_FINALLY();
	{
		kv_progress_end(&outer);
	}
	PG_END_TRY();
	tuplesort_end(check.addresses);
	MemoryContextDelete(check.context);
}
