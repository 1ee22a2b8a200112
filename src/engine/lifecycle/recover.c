/*
 * recover.c
 *		Recovers a store at its first use after a start.
 *
 * Each shard is recovered independently of the others, so that several processes share the
 * work.
 *
 * At wal levels 'full' and 'keys' the shard is set back to its mark (durable/markback.c), and
 * its logs are read.  Redo, which may be what opens the store, adds the versions of the WAL.
 *
 * At level 'none' recovery begins at the newest FILES edit; replays sealed write buffers; reads
 * the key logs that the runs do not cover; replays the write buffer that was open; and removes
 * files that the version log does not name.  (A shard that has no such edit has its log number 1:
 * if that is missing while there are other logs or runs, so are edits.)
 *
 * When all shards are recovered, the versions that the version log carries are written again.
 *
 * No value is read, except in a salvage.  Every step is idempotent, so a recovery that was
 * killed is simply repeated.
 *
 * Each entry's status is resolved as it is read: aborted ones are dropped, and so nothing later
 * needs to know from which incarnation they came (I 10).
 */
#include "postgres.h"

#include <sys/stat.h>

#include "access/xlog.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "engine/base/error.h"
#include "engine/base/progress.h"
#include "engine/base/shared.h"
#include "engine/base/types.h"
#include "engine/base/wait.h"
#include "engine/base/worker.h"
#include "engine/buffer/largevalue.h"
#include "engine/durable/durable.h"
#include "engine/format/format.h"
#include "engine/flush/flush.h"
#include "engine/format/path.h"
#include "engine/index/memtable.h"
#include "engine/io/fault.h"
#include "engine/io/io.h"
#include "engine/io/name.h"
#include "engine/lifecycle/lifecycle.h"
#include "engine/maintenance.h"
#include "engine/shard/map.h"
#include "engine/shard/obsolete.h"
#include "engine/shard/shard.h"
#include "engine/buffer/buffer.h"
#include "engine/shard/valuefiles.h"
#include "engine/value/value.h"
#include "engine/version/version.h"
#include "engine/write/write.h"
#include "engine/xact/xact.h"

#define KV_ROOM_TRIES	64		/* seconds, or flushes, to wait for memory for descriptors */

static int	recovery_workers = 2;

void
kv_recovery_gucs(void)
{
	DefineCustomIntVariable("kvfdw.recovery_workers",
							"Sets how many workers help to recover one table after a start.",
							NULL,
							&recovery_workers, 2, 0, 8,
							PGC_SIGHUP, 0, NULL, NULL, NULL);
}

/* The shard that gets the entries. */
typedef struct KvRecovering
{
	KvStore    *store;
	uint32		shard_id;
	uint32		log;			/* from which entries are read */
} KvRecovering;

/*
 * A KvApplyEntry: put the entry into the recovering shard's memtable, unless its
 * transaction aborted.
 */
static void
apply_entry(void *arg, const KvLogEntry *entry, uint32 incarnation)
{
	const KvRecovering *to = arg;
	KvShard    *shard = kv_shard(to->store, to->shard_id);
	const uint8 *key = (const uint8 *) (entry + 1);
	KvMemtablePosition place;
	KvVersion	version = kv_entry_version(entry);

	/* the space is used whether or not the entry counts */
	while (entry->len > 0 && !kv_value_claim(to->store, to->shard_id,
											 KV_LOCATION_ADDRESS(entry->location), entry->len))
		kv_make_memory(to->store, to->shard_id);
	if (entry->len > 0)
	{
		LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
		kv_value_file_note_log(shard, KV_LOCATION_ADDRESS(entry->location), to->log);
		LWLockRelease(&shard->lock);
	}

	version.status = kv_xid_status(entry->xid, incarnation);
	if (version.status == KV_XID_ABORTED ||
		(entry->kind == KV_VERSION_LOCK && version.status != KV_XID_UNKNOWN))
		return;
	for (;;)
	{
		kv_memtable_locate(&shard->active, key, entry->keylen, &place);
		if (kv_memtable_add(&shard->active, &place, key, entry->keylen, &version))
			break;
		kv_make_memory(to->store, to->shard_id); /* this may flush this memtable */
	}
	kv_stat_add(to->store, KV_COUNT_RECOVERED_ENTRIES, 1);
}

/* In a salvage: are these bytes not covered by the mark? */
static bool
is_unverified(const KvShard *shard, KvAddress address)
{
	const KvShardValueFile *value_file = kv_value_file_find(shard, address);

	return value_file == NULL || address - value_file->value_file.address >= value_file->trusted;
}

/*
 * As apply_entry, in a salvage: of values that the mark does not cover, only valid ones are
 * kept.  An entry of another shard was added when this one had been given a neighbor's range,
 * by a map that does not count.
 */
static void
salvage_entry(void *arg, const KvLogEntry *entry, uint32 incarnation)
{
	const KvRecovering *to = arg;
	KvShard    *shard = kv_shard(to->store, to->shard_id);
	KvVersion	version = kv_entry_version(entry);
	int			err = 0;

	if (kv_shard_for(to->store, kv_entry_key(entry).data, entry->keylen) != to->shard_id)
	{
		kv_stat_add(to->store, KV_COUNT_LOST_ENTRIES, 1);
		return;
	}
	if (entry->len > 0 && is_unverified(shard, KV_LOCATION_ADDRESS(entry->location)) &&
		kv_value_problem(&to->store->key, to->store->cache_id, kv_entry_key(entry), &version,
						 &err) != NULL)
	{
		/* a read that fails now may succeed at the next start */
		if (err != 0)
			kv_io_error(ERROR, err,
						kv_path_value(&to->store->key,
									  kv_file_of(KV_LOCATION_ADDRESS(entry->location))),
						"read");
		kv_stat_add(to->store, KV_COUNT_LOST_ENTRIES, 1);
		return;
	}
	apply_entry(arg, entry, incarnation);
}

/*
 * No entry of the logs counts any more: begin a new log, so that nothing refers to the
 * incarnations that wrote the old ones.
 */
static void
leave_logs(KvStore *store, uint32 shard_id)
{
	KvShard    *shard = kv_shard(store, shard_id);
	KvFileList	listed;

	kv_shard_describe(shard, &listed);
	listed.files.first_log = ++shard->log.number;
	kv_log_create(&store->key, shard_id, listed.files.first_log);
	if (store->shape.wal == KV_WAL_NONE)
	{
		KvEdit		edit = kv_edit_of_files(shard_id, &listed);

		kv_version_log_append(store, &edit, 1, false);
	}
	pfree(listed.value_files);
	shard->log.tail = sizeof(KvLogHeader);
	shard->files.first_log = listed.files.first_log;
	shard->log.immutable = listed.files.first_log - 1;
}

/*
 * All that could be salvaged of the shard is in its memtable: make a run of it, and drop the
 * logs with their damaged parts.
 */
static void
end_salvage(KvStore *store, uint32 shard_id)
{
	KvShard    *shard = kv_shard(store, shard_id);

	kv_stat_add(store, KV_COUNT_LOST_ENTRIES, shard->files.lost);
	shard->files.flags &= ~KV_FILES_SALVAGE;
	shard->files.lost = 0;
	if (!DsaPointerIsValid(shard->active.root))
	{
		leave_logs(store, shard_id);
		return;
	}
	shard->flush.ended = kv_clock();
	kv_shard_flush(store, shard_id, KV_FLUSH_MEMORY);
}

/* Where a shard's recovery begins. */
typedef struct KvBeginning
{
	KvFileList	listed;
	bool		used;			/* it has or had files, so its first log must exist */
	uint32		last_log;
	uint64		log_end;		/* of that log; 0: the end of its file */
} KvBeginning;

/* The beginning of a shard of a store at level 'none', from its files. */
static void
find_beginning(const KvStore *store, const KvVersions *versions, uint32 shard_id,
			   const KvFoundFile *files, int n, KvBeginning *begin)
{
	bool		has_index = false;	/* a log or a run */

	begin->used = kv_versions_files(versions, shard_id, &begin->listed);
	for (int i = 0; i < n; i++)
	{
		if (files[i].kind == KV_FILE_LOG)
			begin->last_log = Max(begin->last_log, files[i].number);
		has_index |= files[i].kind == KV_FILE_LOG || files[i].kind == KV_FILE_RUN;
	}
	for (int i = 0; i < n; i++)
	{
		/* numbers are never used twice, not even a swept run's */
		if (files[i].kind == KV_FILE_RUN)
			begin->listed.files.next_run = Max(begin->listed.files.next_run,
											   files[i].number + 1);
	}
	begin->last_log = Max(begin->last_log, begin->listed.files.first_log);
	if (!begin->used && has_index && access(kv_path_log(&store->key, shard_id, 1), F_OK) != 0)
		kv_versions_raise_damaged(&store->key, versions->number,
								  psprintf("It has no files of shard %u.", shard_id));
	begin->used |= has_index;
}

static void
require_value_files(const KvStoreKey *key, const KvFileList *listed)
{
	for (int i = 0; i < listed->nvalue_files; i++)
	{
		const char *path = kv_path_value(key, kv_file_of(listed->value_files[i].address));

		if (access(path, F_OK) != 0)
			kv_io_raise_missing(path);
	}
}

/*
 * Set the shard to the state from which its logs are replayed: that of its mark; at level
 * 'none', or if the shard was never used, that of its files.
 */
static void
begin_shard(KvStore *store, const KvVersions *versions, uint32 shard_id,
			const KvFoundFile *files, int n, KvBeginning *begin)
{
	KvShard    *shard = kv_shard(store, shard_id);
	const KvFileList *listed = &begin->listed;
	KvMark		mark;

	memset(begin, 0, sizeof(*begin));
	begin->listed.files.next_run = 1;
	begin->listed.files.first_log = begin->last_log = 1;
	if (store->shape.wal == KV_WAL_NONE)
		find_beginning(store, versions, shard_id, files, n, begin);
	else if (kv_shard_set_back(store, versions, shard_id, shard->place.bounds_since, files, n,
							   &mark))
	{
		begin->used = true;
		begin->listed = mark.listed;
		begin->last_log = mark.last_log;
		begin->log_end = mark.log_tail;
	}
	shard->files = listed->files;
	shard->log.immutable = listed->files.first_log - 1;
	shard->log.number = begin->last_log;
	kv_obsolete_forget(store, shard_id);	/* an earlier attempt may have had some */
	while (!kv_value_files_load(shard, listed, store->shape.wal != KV_WAL_NONE))
		kv_make_memory(store, shard_id);
	require_value_files(&store->key, listed);
	kv_shard_load_mark(store, versions, shard_id, listed);
}

/*
 * Replay the entries of the shard's key logs, and at level 'none' of write buffers, that its
 * runs do not have.
 */
static void
replay_shard(KvStore *store, uint32 shard_id, const KvBeginning *begin)
{
	KvShard    *shard = kv_shard(store, shard_id);
	bool		salvage = (begin->listed.files.flags & KV_FILES_SALVAGE) != 0;
	KvRecovering to = {store, shard_id, 0};
	uint64		lost = 0;

	kv_buffers_replay_sealed(store, shard_id);
	KV_STOP_POINT("recover_after_sealed");
	shard->log.tail = sizeof(KvLogHeader);
	for (uint32 log = shard->files.first_log; log <= shard->log.number; log++)
	{
		uint64		end = log == begin->last_log ? begin->log_end : 0;

		to.log = log;
		shard->log.tail = salvage ?
			kv_log_salvage(&store->key, shard_id, log, salvage_entry, &to, &lost) :
			kv_log_replay(&store->key, shard_id, log, begin->used, end, apply_entry, &to);
		if (log == shard->durable.log && shard->log.tail < shard->durable.tail && !salvage)
			kv_io_report_short(ERROR, kv_path_log(&store->key, shard_id, log), shard->durable.tail);
	}

	/* a power loss may have left a part of its header, and writes continue in it */
	if (salvage && shard->log.tail == sizeof(KvLogHeader))
		kv_log_make_empty(&store->key, shard_id, shard->log.number);
	kv_stat_add(store, KV_COUNT_LOST_LOG_BYTES, lost);
	KV_STOP_POINT("recover_after_logs");
	to.log = shard->log.number;
	kv_buffers_replay_open(store, shard_id, apply_entry, &to);
}

/* Bytes of a value file.  0 if it is missing: reading a value of it will raise the ERROR. */
static uint64
size_of(const KvStore *store, KvAddress address)
{
	File		file = kv_value_file(&store->key, store->cache_id, kv_file_of(address),
									 KV_IO_MISSING_OK);

	if (file < 0)
		return 0;

	/* its addresses may be written again: no earlier write may still be in progress */
	kv_io_wait(file);
	return kv_io_size(file);
}

/*
 * Determine the open value file: the one that was open, unless another was created since, whose
 * entries have made it the open one.  After a salvage there is none, because it is not known
 * how much was written.
 */
static void
finish_open_value_file(KvStore *store, uint32 shard_id)
{
	KvShard    *shard = kv_shard(store, shard_id);

	if (shard->values.open != 0)
	{
		KvShardValueFile *open = kv_value_file_find(shard, shard->values.open);
		uint64		size = size_of(store, shard->values.open);

		open->value_file.used = shard->values.tail - shard->values.open;
		if (size < open->value_file.used || (shard->files.flags & KV_FILES_SALVAGE))
			kv_value_file_close(shard);
		else
			kv_value_file_open(shard, open, size);
	}

	/*
	 * a write buffer may have returned space that it had reserved when the edit was appended
	 */
	for (int i = 0; i < shard->values.n && !(shard->files.flags & KV_FILES_SALVAGE); i++)
	{
		KvValueFile *value_file = &kv_value_files(shard)[i].value_file;
		struct stat info;

		if (value_file->address == shard->values.open ||
			stat(kv_path_value(&store->key, (KvFileId) {value_file->address}), &info) != 0 ||
			(uint64) info.st_size >= value_file->used)
			continue;
		shard->values.bytes -= value_file->used - info.st_size;
		value_file->used = info.st_size;
	}
}

/*
 * The next value file's address is after all that the shard has created, and after all files of
 * its volume.  At level 'full' files that the mark does not list are not needed.
 */
static void
find_next_address(KvStore *store, uint32 shard_id, const KvFoundFile *value_files, int n)
{
	KvShard    *shard = kv_shard(store, shard_id);

	int			own = shard->values.n;

	/* shared ones were created by other shards */
	while (own > 0 && (kv_value_files(shard)[own - 1].value_file.flags & KV_VALUE_FILE_SHARED))
		own--;
	if (own > 0)
	{
		KvFileId	last = {kv_value_files(shard)[own - 1].value_file.address};

		if (last.address + kv_file_span(last) > shard->values.next)
			shard->values.next = last.address + kv_file_span(last);
		if (kv_volume_of(shard->values.next) != kv_volume_of(last.address) &&
			shard->values.next == last.address + kv_file_span(last))
			shard->values.next = 0;
	}
	for (int i = 0; i < n && shard->values.next != 0; i++)
	{
		KvFileId	file = {kv_found_address(&value_files[i])};

		if (kv_volume_of(file.address) != kv_volume_of(shard->values.next) ||
			file.address < shard->values.next)
			continue;
		if (store->shape.wal != KV_WAL_FULL ||
			kv_io_unlink(kv_path_value(&store->key, file)) != 0)
			shard->values.next = file.address + kv_file_span(file);
	}
}

/* files: of the shard; value_files: of the store. */
static void
recover_shard(KvStore *store, uint32 shard_id, const KvFoundFile *files, int n,
			  const KvFoundFile *value_files, int nvalue_files, const KvVersions *versions)
{
	KvShard    *shard = kv_shard(store, shard_id);
	KvBeginning begin;
	bool		salvage;

	if (shard->recovered)
		return;
	kv_memtable_free(&shard->active); /* of a failed attempt */
	kv_memtable_free(&shard->immutable);
	begin_shard(store, versions, shard_id, files, n, &begin);
	salvage = (shard->files.flags & KV_FILES_SALVAGE) != 0;
	replay_shard(store, shard_id, &begin);
	finish_open_value_file(store, shard_id);
	find_next_address(store, shard_id, value_files, nvalue_files);

	if (salvage)
		end_salvage(store, shard_id);
	else if (!DsaPointerIsValid(shard->active.root) && shard->log.tail > sizeof(KvLogHeader))
		leave_logs(store, shard_id);
	shard->flush.ended = kv_clock();
	/* prepared transactions may hold any lock */
	shard->key_share_xid = U64FromFullTransactionId(ReadNextFullTransactionId()) - 1;
	pg_atomic_fetch_add_u32(&shard->generation, 1);
	pg_write_barrier();
	shard->recovered = true;
}

/*
 * Recover shards of an opening store until none is left.  Run by the opener and by its helpers.
 */
static void
recover_shards(KvStore *store)
{
	KvVersions *versions = kv_version_log_read(store);
	KvFound		found;
	int			first_value_file = 0;
	int			at = 0;

	kv_progress_total(pg_atomic_read_u32(&store->map.shard_ids));
	kv_store_list_files(&store->key, &found);
	while (first_value_file < found.n && found.files[first_value_file].kind != KV_FILE_VALUES)
		first_value_file++;
	for (;;)
	{
		uint32		shard_id = pg_atomic_fetch_add_u32(&store->opening.next_shard, 1);
		int			n;

		if (shard_id >= pg_atomic_read_u32(&store->map.shard_ids))
			break;
		if (kv_shard_from(store, shard_id) != shard_id)
			continue;
		kv_maintenance_interrupts();
		kv_progress_shard(shard_id);
		kv_progress_done(shard_id);
		while (at < found.n && found.files[at].shard < shard_id)
			at++;
		n = kv_found_of_shard(&found, at, shard_id);
		recover_shard(store, shard_id, found.files + at, n, found.files + first_value_file,
					  found.n - first_value_file, versions);
		at += n;
	}
	pfree(found.files);
	kv_versions_free(versions);
}

/* Raise an error: there is no memory for the descriptors of the store's shards. */
static void
raise_no_room(const KvMap *map)
{
	Size		bytes = kv_map_memory(map);
	Size		megabyte = 1024 * 1024;
	HASH_SEQ_STATUS status;
	KvStore    *other;

	LWLockAcquire(&kv_registry->lock, LW_SHARED);
	hash_seq_init(&status, kv_store_hash);
	while ((other = hash_seq_search(&status)) != NULL)
	{
		for (dsa_pointer at = other->map.blocks; DsaPointerIsValid(at);
			 at = ((KvShardBlock *) kv_address(at))->next)
			bytes += sizeof(KvShard) * ((KvShardBlock *) kv_address(at))->n;
	}
	LWLockRelease(&kv_registry->lock);
	ereport(ERROR,
			(errcode(ERRCODE_OUT_OF_MEMORY),
			 errmsg("out of kvfdw memtable memory for %u shards", map->nshards),
			 errdetail("The shards of all tables in use need %zu MB; \"kvfdw.memtable_memory\", "
					   "which also holds recent rows, is %d MB.",
					   bytes / megabyte + 1, kv_memtable_memory_mb),
			 errhint("Set \"kvfdw.memtable_memory\" to %zu MB or more.",
					 Max(bytes + bytes / 4, (Size) kv_memtable_memory_mb * megabyte) / megabyte +
					 16)));
}

/*
 * The map that counts.  At level 'none', where the newest is trusted, files of the previous one
 * are kept until all shards have their marks: *changed.
 */
static KvMap *
find_map(KvStore *store, bool *changed)
{
	KvVersions *versions = kv_version_log_open(store);
	KvMap	   *map;

	*changed = false;
	if (store->shape.wal == KV_WAL_NONE)
	{
		KvMap	   *durable = kv_versions_durable_map(versions);

		map = kv_versions_newest_map(versions);
		*changed = durable->number != map->number || kv_map_has_others(store, map);
		pfree(durable);
	}
	else
		map = kv_map_set_back(store, versions);
	kv_versions_free(versions);
	return map;
}

/* Allocate shared memory for the store's map and shards, unless a failed attempt has. */
static void
allocate_shards(KvStore *store)
{
	KvMap	   *map;
	bool		changed;
	bool		done;

	if (DsaPointerIsValid(store->map.now))
		return;
	LWLockAcquire(&kv_registry->lock, LW_EXCLUSIVE);
	kv_table_file_require(&store->key, &store->shape, NULL, NULL);
	LWLockRelease(&kv_registry->lock);
	map = find_map(store, &changed);
	done = kv_map_begin(store, map);
	for (int tries = 1; !done && tries < KV_ROOM_TRIES && kv_map_memory(map) < kv_area_size() &&
		 kv_make_memory_for_shards(); tries++)
		done = kv_map_begin(store, map);
	if (!done)
		raise_no_room(map);
	if (changed)
		kv_map_set_state(store, KV_MAP_CHANGED);
	pfree(map);
}

static bool
all_recovered(KvStore *store)
{
	kv_each_shard(store, i)
	{
		if (!kv_shard(store, i)->recovered)
			return false;
	}
	return true;
}

/* After a salvage. */
static void
report_losses(KvStore *store)
{
	uint64		entries = pg_atomic_read_u64(&store->counters[KV_COUNT_LOST_ENTRIES]);
	uint64		bytes = pg_atomic_read_u64(&store->counters[KV_COUNT_LOST_LOG_BYTES]);

	if (entries > 0 || bytes > 0)
		ereport(WARNING,
				(errmsg("%s has lost %llu row versions and %llu bytes of key logs",
						kv_table_label(store->key.dboid, store->key.relid),
						(unsigned long long) entries, (unsigned long long) bytes),
				 errdetail("Rows of tables with wal level \"none\" that were not synced before the "
						   "crash are discarded.")));
}

/* ---- value files of all shards ---- */

/*
 * Log a value file before it is removed: at level 'none' only a key log may have named it, and
 * no other file tells that the log is lost.
 */
static void
tell_of_value_file(const KvStore *store, KvAddress address)
{
	const char *path = kv_path_value(&store->key, (KvFileId) {address});
	struct stat info;

	if (stat(path, &info) == 0 && info.st_size > 0)
		ereport(LOG,
				(errmsg("removing value file \"%s\": no shard lists it", path),
				 errdetail("The file has %llu bytes.", (unsigned long long) info.st_size)));
}

/* Is the value file listed by a shard in the map, or obsolete there? */
static bool
is_listed(KvStore *store, KvAddress address)
{
	kv_each_shard(store, i)
	{
		if (kv_value_file_find(kv_shard(store, i), address) != NULL)
			return true;
	}
	return kv_obsolete_has(store, address);
}

/*
 * The change of the map is not complete, which happens at level 'none' only: a power loss may
 * lead back to marks of shards that are not in the map.  The value files of these marks are
 * kept as obsolete until the change is complete.
 */
static void
keep_marked(KvStore *store)
{
	uint32		first = kv_shard_first(store);
	KvVersions *versions = kv_version_log_read(store);

	for (uint32 shard_id = kv_versions_marked(versions, 0); shard_id != KV_NO_SHARD;
		 shard_id = kv_versions_marked(versions, shard_id + 1))
	{
		KvMark		mark;

		if (kv_shard_from(store, shard_id) == shard_id ||
			!kv_versions_mark(versions, shard_id, 0, &mark))
			continue;
		for (int c = 0; c < mark.listed.nvalue_files; c++)
		{
			const KvValueFile *value_file = &mark.listed.value_files[c];
			struct stat info;

			/* a listed one is counted, and released there when the change is complete */
			if (is_listed(store, value_file->address) ||
				stat(kv_path_value(&store->key, kv_file_of(value_file->address)), &info) != 0)
				continue;
			while (!kv_obsolete_keep(store, first, value_file, 0))
				kv_make_memory(store, first);
		}
		pfree(mark.listed.value_files);
	}
	kv_versions_free(versions);
}

void
kv_value_files_sweep(KvStore *store)
{
	KvFound		found;
	KvAddress  *listed;
	Size		n;

	kv_store_list_files(&store->key, &found);
	if (pg_atomic_read_u32(&store->map.state) != KV_MAP_DONE)
		keep_marked(store);
	if (store->shape.maps)
		kv_value_files_find_shared(store);
	listed = kv_value_addresses(store, &n);
	for (int i = 0; i < found.n; i++)
	{
		KvAddress	address;

		if (found.files[i].kind != KV_FILE_VALUES)
			continue;
		address = kv_found_address(&found.files[i]);
		if (bsearch(&address, listed, n, sizeof(KvAddress), kv_address_compare) != NULL)
			continue;
		if (store->shape.wal == KV_WAL_NONE)
			tell_of_value_file(store, address);

		/* redo writes its values again, and needs the space at once on a full disk */
		if (AmStartupProcess())
			(void) kv_io_unlink(kv_path_value(&store->key, (KvFileId) {address}));
		else
			(void) kv_value_file_discard(store, address);
	}
	pfree(listed);
	pfree(found.files);
}

void
kv_value_files_cut(KvStore *store)
{
	kv_each_shard(store, i)
	{
		const KvShard *shard = kv_shard(store, i);

		for (int c = 0; c < shard->values.n; c++)
		{
			const KvShardValueFile *value_file = &kv_value_files(shard)[c];
			uint64		end = Max(value_file->value_file.used, value_file->trusted);
			char       *path =
				pstrdup(kv_path_value(&store->key, (KvFileId) {value_file->value_file.address}));
			struct stat info;
			int			err;

			/* other shards may list more of a shared one */
			if (!kv_value_file_is_open(shard, value_file) &&
				!(value_file->value_file.flags & KV_VALUE_FILE_SHARED) &&
				stat(path, &info) == 0 &&
				(uint64) info.st_size > end && size_of(store, value_file->value_file.address) > end)
			{
				err = kv_io_try_cut(path, end);
				if (err != 0)
					kv_io_error(LOG, err, path, "truncate");
			}
			pfree(path);
		}
	}
}

/* What the version log carries is newer than all that is in files. */
static void
restore_carried(KvStore *store)
{
	KvVersions *versions = kv_version_log_read(store);

	kv_each_shard(store, i)
	{
		const KvShard *shard = kv_shard(store, i);
		KvCarried	carried;

		if (kv_versions_carried(versions, i, shard->durable.number, shard->durable.map, &carried))
			kv_restore_carried(store, i, &carried);
	}
	kv_versions_free(versions);
}

/* ---- helpers ---- */

/* Progress counts shards of the whole store that a process has taken. */
static void
begin_progress(const KvStore *store, KvProgress *outer)
{
	kv_progress_begin(outer, KV_PROGRESS_RECOVERY, store->key.dboid, store->key.relid, -1,
					  "reading", store->shape.nshards);
}

void
kv_recovery_worker_main(Datum arg)
{
	KvStore    *store;
	KvProgress	outer;

	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	kv_worker_attend();

	KV_STOP_POINT("recovery_helper_begins");
	store = kv_helper_join(DatumGetUInt32(arg));
	if (store != NULL)
	{
		begin_progress(store, &outer);
		recover_shards(store);
	}
	proc_exit(0);
}

/*
 * Repeat here what a helper could not do: its error must reach the session that opens the
 * store.
 */
static void
recover_store(KvStore *store)
{
	TimestampTz start = kv_clock();
	int			wanted;
	KvFound		found;
	int			logs = 0;

	/* helpers of a failed attempt may still run */
	kv_helpers_end(store);
	allocate_shards(store);
	kv_space_require(&store->key, true);
	store->cache_id = pg_atomic_add_fetch_u32(&kv_registry->cache_ids, 1);
	pg_atomic_write_u32(&store->opening.next_shard, 0);

	kv_store_list_files(&store->key, &found);
	for (int i = 0; i < found.n; i++)
		logs += found.files[i].kind == KV_FILE_LOG;
	kv_volumes_find(store, &found);
	pfree(found.files);
	wanted = kv_store_nshards(store) > 1 && !RecoveryInProgress() ?
		Min(recovery_workers, logs / 4) : 0;
	kv_helpers_start(store, wanted);

	PG_TRY();
	{
		recover_shards(store);
	}
	PG_CATCH();
	{
		pg_atomic_write_u32(&store->opening.next_shard, pg_atomic_read_u32(&store->map.shard_ids));
		PG_RE_THROW();
	}
	PG_END_TRY();
	kv_helpers_end(store);
	if (!all_recovered(store))
	{
		pg_atomic_write_u32(&store->opening.next_shard, 0);
		recover_shards(store);
	}
	kv_progress_shard(-1);
	kv_progress_done(pg_atomic_read_u32(&store->map.shard_ids));
	kv_progress_phase("sweeping");
	kv_files_want_tidy(store);
	(void) kv_files_tidy(store);
	if (store->shape.wal != KV_WAL_KEYS || !RecoveryInProgress())
	{
		kv_value_files_sweep(store);
		kv_value_files_cut(store);
	}

	/* at level 'keys' redo may still name missing value files */
	if (store->shape.wal != KV_WAL_KEYS || !RecoveryInProgress())
		kv_spaces_tidy(store);

	/* a salvage may have opened files that were removed since; helpers have ended */
	if (store->shape.wal != KV_WAL_KEYS)
		kv_value_forget(store->cache_id);
	kv_each_shard(store, i)
	{
		KvShard    *shard = kv_shard(store, i);

		kv_volume_note(store, shard->values.next);
		if (shard->place.bounds_since > shard->durable.map)
			kv_shard_want_mark(shard);
	}
	restore_carried(store);
	report_losses(store);
	pg_atomic_write_u64(&store->counters[KV_COUNT_RECOVERY_US], kv_clock() - start);
}

void
kv_store_recover(KvStore *store)
{
	KvProgress	outer;

	begin_progress(store, &outer);
	PG_TRY();
	{
		recover_store(store);
	}
	PG_FINALLY();
	{
		kv_progress_end(&outer);
	}
	PG_END_TRY();
}
