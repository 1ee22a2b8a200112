/*
 * largevalue.c
 *		Space for values: value files, and values that no write buffer can hold.
 *
 * Space is allocated in advance, in steps that grow with the shard and end with the value file,
 * under the shard's extend_lock.  Nothing is written twice for it.  A step waits for the direct
 * writes that are under way to the file, so a load into many shards should need few steps.  A small
 * shard grows by its own size, a large one by a quarter.
 *
 * If a buffer or a large value does not fit into the rest of the open value file, the next one is
 * made.  Only then is the open one closed, so a full disk leaves both unchanged.  The next attempt
 * finds the file of a failed one.
 *
 * Values that are larger than a write buffer, or than the adjacent free units, are written here as
 * large values, before any index entry names them (I 3).  Their address is reserved long before
 * there is an entry, and the value file may be closed in between.  So a value file notes the newest
 * transaction that has reserved a large value in it.  While that transaction may be running, a sync
 * of the value file is not its last one.
 */
#include "postgres.h"

#include <unistd.h>

#include "access/xlog.h"
#include "miscadmin.h"

#include "engine/base/error.h"
#include "engine/base/types.h"
#include "engine/buffer/largevalue.h"
#include "engine/cache/cache.h"
#include "engine/format/format.h"
#include "engine/format/path.h"
#include "engine/io/fault.h"
#include "engine/io/io.h"
#include "engine/io/name.h"
#include "engine/maintenance.h"
#include "engine/shard/obsolete.h"
#include "engine/shard/shard.h"
#include "engine/buffer/buffer.h"
#include "engine/shard/valuefiles.h"
#include "engine/value/value.h"
#include "engine/xact/xact.h"

#define KV_EXTEND_MIN	((uint64) 16 * 1024)
#define KV_EXTEND_SMALL	((uint64) 512 * 1024)	/* below this, a shard grows by its own size */
#define KV_EXTEND_MAX	((uint64) 64 * 1024 * 1024)
#define KV_LARGE_VALUE_PART	((Size) 1024 * 1024)

/* The state of a shard that is to get space.  extend_lock is held, so others can only use some. */
typedef struct KvSpace
{
	KvAddress	open;
	KvAddress	tail;
	KvAddress	allocated;
	uint64		step;			/* bytes to allocate in advance */
	Size		need;
	bool		first;			/* the shard has no value file */
	bool		leaving;		/* kv_shard_is_leaving */
	uint32		log;			/* the shard's first valid log */
} KvSpace;

static uint64
next_step(uint64 bytes)
{
	uint64		step = Max(Min(bytes, KV_EXTEND_SMALL), bytes / 4);

	return Max(KV_EXTEND_MIN, Min(KV_EXTEND_MAX, step));
}

static KvSpace
look(KvShard *shard, Size len, bool for_buffer)
{
	KvSpace		space;

	LWLockAcquire(&shard->lock, LW_SHARED);
	space.leaving = kv_shard_is_leaving(shard);
	space.open = shard->values.open;
	space.tail = shard->values.tail;
	space.allocated = shard->values.allocated;
	space.step = next_step(shard->values.bytes);
	space.need = for_buffer ? kv_buffer_capacity(shard, len) : TYPEALIGN(KV_BLOCK, len);
	space.first = shard->values.n == 0;
	space.log = shard->files.first_log;
	LWLockRelease(&shard->lock);
	return space;
}

/*
 * Allocates a file with had bytes up to at least least bytes, or by a step.  Returns its new size.
 * Releases extend_lock and raises ERROR if that is not possible.
 */
static uint64
allocate(KvStore *store, KvShard *shard, KvFileId id, uint64 had, uint64 least, uint64 step)
{
	File		file = kv_value_file(&store->key, store->cache_id, id, KV_IO_CREATE);
	uint64		size = Min(TYPEALIGN(KV_BLOCK, Max(least, had + step)), kv_file_span(id));
	int			err = kv_io_try_extend(file, had, size);

	if (err == ENOSPC && size > TYPEALIGN(KV_BLOCK, least))
	{
		/* no disk space for a whole step: take only what is needed */
		size = TYPEALIGN(KV_BLOCK, least);
		err = kv_io_try_extend(file, had, size);
	}
	if (err != 0)
	{
		LWLockRelease(&shard->extend_lock);
		kv_io_error(ERROR, err, kv_path_value(&store->key, id), "extend");
	}
	return size;
}

/*
 * Removes the file of a failed attempt to make the next value file, if it is not where value files
 * are made now.  No value file is made at its address, because another process may have the file
 * open.  extend_lock held.
 */
static void
leave_address(KvStore *store, KvShard *shard)
{
	KvFileId	id = {shard->values.next};

	if (store->shape.moved_lsn == 0 || id.address == 0 || kv_value_is_in_place(&store->key, id) ||
		access(kv_path_value(&store->key, id), F_OK) != 0)
		return;
	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	shard->values.next = 0;
	LWLockRelease(&shard->lock);
	(void) kv_io_unlink(kv_path_value(&store->key, id));
}

/*
 * Chooses the address of the next value file, which is to hold a value of this length.  Releases
 * extend_lock and raises ERROR if there are no more addresses.
 */
static KvAddress
choose_address(KvStore *store, KvShard *shard, Size len)
{
	KvAddress	before;
	KvAddress	address;
	int			class;

	leave_address(store, shard);
	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	before = shard->values.next;
	class = kv_value_file_next_class(shard, len);
	if (shard->values.next == 0 || kv_class_of(shard->values.next) != class)
	{
		uint32		volume = kv_volume_take(store, class);

		if (volume == 0)
		{
			LWLockRelease(&shard->lock);
			LWLockRelease(&shard->extend_lock);
			ereport(ERROR,
					(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
					 errmsg("%s has used up its value address space",
							kv_table_label(store->key.dboid, store->key.relid)),
					 errdetail("Addresses freed by compaction become available only after a server "
							   "restart."),
					 errhint("Restart the server. If that does not help, copy the rows into a new "
							 "table.")));
		}
		shard->values.next = kv_volume_begin(volume);
	}
	address = shard->values.next;
	LWLockRelease(&shard->lock);

	/* no value file will be made there any more: remove the file of a failed attempt */
	if (before != 0 && before != address)
		(void) kv_io_unlink(kv_path_value(&store->key, (KvFileId) {before}));
	return address;
}

/* Truncates a closed value file to its used bytes. */
void
kv_value_cut(const KvStore *store, KvAddress address, uint64 used)
{
	const char *path = kv_path_value(&store->key, (KvFileId) {address});
	int			err = kv_io_try_cut(path, used);

	/* no harm is done */
	if (err != 0)
		kv_io_error(LOG, err, path, "truncate");
}

/*
 * Ends the use of the open value file.  Returns it and its used bytes; 0: none is open.  Shard's
 * lock, exclusive.
 */
static KvAddress
finish_value_file(KvStore *store, uint32 shard_id, uint64 *used)
{
	const KvShard *shard = kv_shard(store, shard_id);

	if (shard->buffers.open >= 0)
		kv_buffer_seal(store, shard_id);
	*used = shard->values.tail - shard->values.open;
	return shard->values.open;
}

/* Makes the next value file, and closes the open one.  False: there is no memory. */
static bool
open_next(KvStore *store, uint32 shard_id, Size len, const KvSpace *space)
{
	KvShard    *shard = kv_shard(store, shard_id);
	KvAddress	address = choose_address(store, shard, len);
	KvFileId	id = {address};
	KvValueFile	value_file = {.address = address, .live = KV_NOT_KNOWN};
	KvAddress	closed;
	uint64		used;
	uint64		size;

	if (space->first)
		kv_log_create(&store->key, shard_id, space->log);
	size = allocate(store, shard, id, 0, space->need, space->step);

	KV_STOP_POINT("value_file_created");
	if (!kv_value_files_make_room(shard, 1))
		return false;

	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	closed = finish_value_file(store, shard_id, &used);
	kv_value_file_open(shard, kv_value_file_add(shard, &value_file), size);
	shard->values.next = address + kv_file_span(id);
	if (kv_volume_of(shard->values.next) != kv_volume_of(address))
		shard->values.next = 0;
	LWLockRelease(&shard->lock);
	KV_STOP_POINT("value_file_closed");
	if (closed != 0)
		kv_value_cut(store, closed, used);
	return true;
}

KvAddress
kv_addresses_reserve(KvStore *store, uint32 shard_id, Size len, uint32 n, KvAddress *end)
{
	KvShard    *shard = kv_shard(store, shard_id);
	KvAddress	address;
	KvAddress	after;
	uint64		span;

	LWLockAcquire(&shard->extend_lock, LW_EXCLUSIVE);
	address = choose_address(store, shard, len);
	span = kv_file_span((KvFileId) {address});
	after = Min(address + n * span, kv_volume_begin(kv_volume_of(address) + 1));
	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	shard->values.next = after;
	if (kv_volume_of(after) != kv_volume_of(address))
		shard->values.next = 0;
	LWLockRelease(&shard->lock);
	LWLockRelease(&shard->extend_lock);
	*end = after;
	return address;
}

void
kv_addresses_return(KvStore *store, uint32 shard_id, KvAddress begin, KvAddress end)
{
	KvShard    *shard = kv_shard(store, shard_id);

	LWLockAcquire(&shard->extend_lock, LW_EXCLUSIVE);
	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	if (shard->values.next == end)
		shard->values.next = begin;
	LWLockRelease(&shard->lock);
	LWLockRelease(&shard->extend_lock);
}

KvAddress
kv_value_close_uncut(KvStore *store, uint32 shard_id, uint64 *used)
{
	KvShard    *shard = kv_shard(store, shard_id);
	KvAddress	closed;

	Assert(LWLockHeldByMeInMode(&shard->extend_lock, LW_EXCLUSIVE));
	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	closed = finish_value_file(store, shard_id, used);
	kv_value_file_close(shard);
	LWLockRelease(&shard->lock);
	return closed;
}

void
kv_value_close(KvStore *store, uint32 shard_id)
{
	KvShard    *shard = kv_shard(store, shard_id);
	KvAddress	closed;
	uint64		used;

	LWLockAcquire(&shard->extend_lock, LW_EXCLUSIVE);
	closed = kv_value_close_uncut(store, shard_id, &used);
	if (closed != 0)
		kv_value_cut(store, closed, used);
	LWLockRelease(&shard->extend_lock);
}

void
kv_value_leave(KvStore *store, uint32 shard_id)
{
	KvShard    *shard = kv_shard(store, shard_id);
	KvAddress	open;

	LWLockAcquire(&shard->lock, LW_SHARED);
	open = shard->values.open;
	LWLockRelease(&shard->lock);

	/* if another file was opened since, that one is closed, which does no harm */
	if (store->shape.moved_lsn != 0 && open != 0 &&
		!kv_value_is_in_place(&store->key, (KvFileId) {open}))
		kv_value_close(store, shard_id);
	LWLockAcquire(&shard->extend_lock, LW_EXCLUSIVE);
	leave_address(store, shard);
	LWLockRelease(&shard->extend_lock);
}

void
kv_value_end(KvStore *store, uint32 shard_id)
{
	KvShard    *shard = kv_shard(store, shard_id);
	KvFileId	next;

	LWLockAcquire(&shard->extend_lock, LW_EXCLUSIVE);
	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	next.address = shard->values.next;
	shard->values.next = 0;
	LWLockRelease(&shard->lock);
	if (next.address != 0)
		(void) kv_io_gone(kv_path_value(&store->key, next));
	LWLockRelease(&shard->extend_lock);
}

bool
kv_value_extend(KvStore *store, uint32 shard_id, Size len, bool for_buffer)
{
	KvShard    *shard = kv_shard(store, shard_id);
	bool		done = true;

	LWLockAcquire(&shard->extend_lock, LW_EXCLUSIVE);
	while (done)
	{
		KvSpace		space = look(shard, len, for_buffer);
		KvFileId	open = {space.open};
		uint64		size;

		if (space.leaving)
			break;
		if (space.open != 0 && space.tail + space.need <= space.allocated)
			break;
		if (space.open == 0 || space.tail + space.need > space.open + kv_file_span(open))
		{
			done = open_next(store, shard_id, len, &space);
			continue;
		}
		size = allocate(store, shard, open, space.allocated - space.open,
						space.tail + space.need - space.open, space.step);
		LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
		shard->values.allocated = space.open + size;
		LWLockRelease(&shard->lock);
	}
	LWLockRelease(&shard->extend_lock);
	return done;
}

bool
kv_value_write_large(KvStore *store, uint32 shard_id, KvForm form, const char *value, Size len,
					 uint64 xid, KvLocation *location)
{
	KvShard    *shard = kv_shard(store, shard_id);
	Size		size = TYPEALIGN(KV_BLOCK, len);
	char       *memory = kv_io_buffer(KV_IO_BUFFER_WRITE, KV_LARGE_VALUE_PART);
	KvAddress	address;
	KvShardValueFile *value_file;
	File		file;

	for (;;)
	{
		LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
		if (kv_shard_is_leaving(shard))
		{
			LWLockRelease(&shard->lock);
			*location = 0;
			return true;
		}
		if (shard->values.tail + size <= shard->values.allocated)
			break;
		LWLockRelease(&shard->lock);
		if (!kv_value_extend(store, shard_id, len, false))
			return false;
	}
	address = shard->values.tail;
	value_file = kv_value_file_find(shard, address);
	value_file->newest_writer = Max(value_file->newest_writer, xid);
	kv_tail_move(store, shard, size);
	shard->values.written += size;
	LWLockRelease(&shard->lock);
	KV_STOP_POINT("large_value_reserved");

	file = kv_value_file(&store->key, store->cache_id, kv_file_of(address), 0);
	for (Size done = 0; done < size; done += KV_LARGE_VALUE_PART)
	{
		Size		part = Min(KV_LARGE_VALUE_PART, size - done);
		Size		bytes = Min(part, len - done);

		CHECK_FOR_INTERRUPTS();
		memcpy(memory, value + done, bytes);
		memset(memory + bytes, 0, part - bytes);
		kv_io_write(file, memory, part, kv_offset_of(address) + done, KV_IO_VALUE_WRITE);
		if (size <= KV_LARGE_VALUE_PART)
			kv_source_put(store->cache_id, address, part, memory, KV_COLD);
	}
	/* blocks that kvfdw_prewarm has read there before */
	kv_source_forget(store->cache_id, address, size, KV_FORGET_REWRITTEN);
	kv_stat_add(store, KV_COUNT_DEVICE_WRITE_BYTES, size);
	*location = KV_LOCATION_MAKE(form, address);
	return true;
}

/* ---- value files that entries name ---- */

/* Counts the bytes up to end as used, in a listed value file. */
static void
use(KvShard *shard, KvShardValueFile *value_file, KvAddress end)
{
	int64		more;

	if (kv_value_file_is_open(shard, value_file))
	{
		more = (int64) end - shard->values.tail;
		shard->values.tail = Max(shard->values.tail, end);
		shard->values.allocated = Max(shard->values.allocated, shard->values.tail);
	}
	else
	{
		more = (int64) (end - value_file->value_file.address) - (int64) value_file->value_file.used;
		value_file->value_file.used = Max(value_file->value_file.used,
										  end - value_file->value_file.address);
	}
	if (more > 0)
	{
		/* records may name more of it than its mark */
		value_file->value_file.flags &= ~KV_VALUE_FILE_SYNCED;
		kv_value_file_grown(shard, value_file, more);
	}
}

/* The same if the value file is listed and its file is known to extend to end. */
static bool
use_if_listed(KvShard *shard, KvAddress address, KvAddress end)
{
	KvShardValueFile *value_file;
	bool		known;

	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	value_file = kv_value_file_find(shard, address);
	known = value_file != NULL &&
		end <= (kv_value_file_is_open(shard, value_file) ? shard->values.allocated :
				kv_value_file_end(shard, value_file));
	if (known)
		use(shard, value_file, end);
	LWLockRelease(&shard->lock);
	return known;
}

/* In redo: excludes the addresses of this value file from later use. */
static void
keep_address(KvStore *store, KvShard *shard, KvFileId id)
{
	KvAddress	after = id.address + kv_file_span(id);

	kv_volume_note(store, id.address);
	if (shard->values.next != 0 && kv_volume_of(shard->values.next) == kv_volume_of(id.address))
		shard->values.next = kv_volume_of(after) != kv_volume_of(id.address) ? 0 :
			Max(shard->values.next, after);
}

bool
kv_value_claim(KvStore *store, uint32 shard_id, KvAddress address, Size len)
{
	KvShard    *shard = kv_shard(store, shard_id);
	KvFileId	id = kv_file_of(address);
	KvAddress	end = TYPEALIGN(KV_BLOCK, address + len);
	KvShardValueFile *value_file;
	uint64		size;
	File		file;

	if (use_if_listed(shard, address, end))
		return true;
	LWLockAcquire(&shard->extend_lock, LW_EXCLUSIVE);

	/*
	 * Redo meets entries of transactions that never committed; their values, and even the file,
	 * need not exist.  If the transaction did commit, readers of its values find out.
	 */
	file = kv_value_file(&store->key, store->cache_id, id,
						 shard->recovered ? KV_IO_CREATE : KV_IO_MISSING_OK);
	if (file < 0)
	{
		LWLockRelease(&shard->extend_lock);
		kv_io_raise_missing(kv_path_value(&store->key, id));
	}
	size = kv_io_size(file);
	end = Min(end, id.address + size);
	if (!kv_value_files_make_room(shard, 1))
	{
		LWLockRelease(&shard->extend_lock);
		return false;
	}
	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	value_file = kv_value_file_find(shard, address);
	if (value_file == NULL)
	{
		KvValueFile	fresh = {.address = id.address, .live = KV_NOT_KNOWN};

		fresh.used = kv_obsolete_claim(store, shard_id, id.address);
		/* the map may have been another one when the entry was made */
		if (shard->recovered && store->shape.maps)
			fresh.flags |= KV_VALUE_FILE_SHARED;
		value_file = kv_value_file_add(shard, &fresh);

		/* its file may have been missing, so recovery may not know that the address is in use */
		if (shard->recovered)
			keep_address(store, shard, id);

		/* the last value file that the shard made before the crash */
		if (!shard->recovered && id.address > shard->values.open)
			kv_value_file_open(shard, value_file, 0);
	}
	use(shard, value_file, end);
	if (kv_value_file_is_open(shard, value_file))
		shard->values.allocated = Max(shard->values.allocated, id.address + size);
	LWLockRelease(&shard->lock);
	LWLockRelease(&shard->extend_lock);
	return true;
}

/* ---- value files to be synced ---- */

/* Has a sealed buffer values for the value file?  Lock held. */
static bool
is_in_buffers(const KvShard *shard, const KvValueFile *value_file)
{
	for (int i = shard->buffers.sealed; i >= 0; i = kv_buffers[i].next)
	{
		if (kv_file_of(kv_buffers[i].base).address == value_file->address)
			return true;
	}
	return false;
}

int
kv_values_unsynced(KvStore *store, uint32 shard_id, KvUnsynced **files)
{
	KvShard    *shard = kv_shard(store, shard_id);
	uint64		ended = kv_xid_ended();
	KvObsolete *obsolete;
	int			nobsolete;
	int			n = 0;

	LWLockAcquire(&shard->lock, LW_SHARED);
	obsolete = kv_obsolete_copy(store, shard_id, &nobsolete);
	*files = palloc(Max(shard->values.n + nobsolete, 1) * sizeof(KvUnsynced));
	for (int i = 0; i < shard->values.n; i++)
	{
		const KvShardValueFile *value_file = &kv_value_files(shard)[i];

		if (value_file->value_file.flags & KV_VALUE_FILE_SYNCED)
			continue;
		(*files)[n].file.address = value_file->value_file.address;
		(*files)[n].named = (value_file->value_file.flags & KV_VALUE_FILE_NAMED) != 0;
		(*files)[n].for_good = !kv_value_file_is_open(shard, value_file) &&
			value_file->newest_writer < ended && !is_in_buffers(shard, &value_file->value_file);
		n++;
	}

	/* marks in the making, and commits, may still need these (shard/obsolete.c) */
	for (int i = 0; i < nobsolete; i++)
	{
		if (!(obsolete[i].flags & KV_VALUE_FILE_SYNCED))
			(*files)[n++] = (KvUnsynced) {{obsolete[i].address}, true,
										  (obsolete[i].flags & KV_VALUE_FILE_NAMED) != 0};
	}
	LWLockRelease(&shard->lock);
	pfree(obsolete);
	return n;
}

void
kv_values_synced(KvStore *store, uint32 shard_id, const KvUnsynced *files, int n)
{
	KvShard    *shard = kv_shard(store, shard_id);

	for (int i = 0; i < n; i++)
	{
		uint16		flags = KV_VALUE_FILE_NAMED | (files[i].for_good ? KV_VALUE_FILE_SYNCED : 0);
		KvShardValueFile *value_file;

		if (!files[i].for_good && files[i].named)
			continue;
		LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
		value_file = kv_value_file_find(shard, files[i].file.address);
		if (value_file != NULL)
			value_file->value_file.flags |= flags;
		else
			kv_obsolete_synced(store, shard_id, files[i].file.address, flags);
		LWLockRelease(&shard->lock);
	}
}
