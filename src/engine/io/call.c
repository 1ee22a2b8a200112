/*
 * call.c
 *		Shared by all system calls: counters, wait events, errors, and free space of the file
 *		system.
 *
 * The counters are in shared memory and need no lock.  Before shared memory exists nothing is
 * counted.
 */
#include "postgres.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include "clock.h"
#include "compat.h"
#include "engine/base/types.h"
#include "engine/io/internal.h"
#include "engine/io/io.h"
#include "engine/io/name.h"
#include "engine/maintenance.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "port/atomics.h"
#include "storage/shmem.h"
#include "utils/timestamp.h"

/* How many file systems without O_DIRECT are remembered as logged. */
#define LOGGED_DEVICES		8

#define TELL_AGAIN_US		(3600 * USECS_PER_SEC) /* between log messages that rings are refused */

/* Space is short for so long after a call failed for lack of it, or below this part of all. */
#define FULL_MS				10000
#define SHORT_PART			20
#define RESERVE_PART	50		/* part of a file system that is reserved for work that cannot be
								 * deferred, the WAL above all */
#define RESERVE_MOST	(UINT64CONST(1) << 30)	/* the largest reserve */

typedef struct KindCounters
{
	pg_atomic_uint64 calls;
	pg_atomic_uint64 bytes;
	pg_atomic_uint64 errors;
	char		pad[PG_CACHE_LINE_SIZE - 3 * sizeof(pg_atomic_uint64)];
} KindCounters;

typedef struct IoShared
{
	KindCounters kinds[KV_IO_KINDS];
	pg_atomic_uint64 logged_devices[LOGGED_DEVICES];	/* device + 1; 0: free */
	pg_atomic_uint64 told_no_ring;	/* time of the last such log message; 0: none */
	pg_atomic_uint64 full_at;	/* when a call last failed with a full disk or quota */
} IoShared;

const char *const kv_io_kind_names[KV_IO_KINDS] = {
	[KV_IO_VALUE_READ] = "value read",
	[KV_IO_VALUE_WRITE] = "value write",
	[KV_IO_VALUE_EXTEND] = "value extend",
	[KV_IO_LOG_READ] = "key log read",
	[KV_IO_LOG_WRITE] = "key log write",
	[KV_IO_RUN_MAP] = "run map",
	[KV_IO_RUN_WRITE] = "run write",
	[KV_IO_BUFFER_MAP] = "buffer map",
	[KV_IO_META_READ] = "meta read",
	[KV_IO_META_WRITE] = "meta write",
	[KV_IO_UNLINK] = "unlink",
	[KV_IO_SYNC] = "sync",
	[KV_IO_COMPACT_READ] = "compact read",
	[KV_IO_COMPACT_WRITE] = "compact write",
	[KV_IO_TIER_READ] = "tier read",
	[KV_IO_TIER_WRITE] = "tier write",
};

static IoShared *io_shared = NULL;

/* ---- counters ---- */

void
kv_io_stat_add(KvIoKind kind, Size bytes, int err)
{
	KindCounters *counters;

	if (io_shared == NULL)
		return;
	counters = &io_shared->kinds[kind];
	pg_atomic_fetch_add_u64(&counters->calls, 1);
	if (bytes > 0)
		pg_atomic_fetch_add_u64(&counters->bytes, bytes);
	if (err != 0)
		pg_atomic_fetch_add_u64(&counters->errors, 1);
	if (err == ENOSPC || err == EDQUOT)
		pg_atomic_write_u64(&io_shared->full_at, kv_clock());
}

bool
kv_io_space_is_short(const char *path)
{
	struct statvfs info;

	if (kv_clock() - (TimestampTz) pg_atomic_read_u64(&io_shared->full_at) <
		FULL_MS * INT64CONST(1000))
		return true;
	return statvfs(path, &info) == 0 && info.f_bavail < info.f_blocks / SHORT_PART;
}

uint64
kv_io_space_to_spare(const char *path)
{
	struct statvfs info;
	uint64		left;
	uint64		reserve;

	if (kv_fault_space() >= 0)
		return kv_fault_space();
	if (statvfs(path, &info) != 0)
		return PG_UINT64_MAX;
	left = (uint64) info.f_bavail * info.f_frsize;
	reserve = Min((uint64) info.f_blocks * info.f_frsize / RESERVE_PART, RESERVE_MOST);
	return left - Min(left, reserve);
}

bool
kv_io_tells_without_ring(void)
{
	static pg_atomic_uint64 alone;
	pg_atomic_uint64 *told = io_shared != NULL ? &io_shared->told_no_ring : &alone;
	uint64		last = pg_atomic_read_u64(told);
	uint64		now = kv_clock();

	return (last == 0 || now - last >= TELL_AGAIN_US) &&
		pg_atomic_compare_exchange_u64(told, &last, now);
}

bool
kv_io_first_without_direct(uint64 device)
{
	if (io_shared == NULL)
		return true;
	for (int i = 0; i < LOGGED_DEVICES; i++)
	{
		uint64		seen = 0;

		if (pg_atomic_compare_exchange_u64(&io_shared->logged_devices[i],
										   &seen, device + 1))
			return true;
		if (seen == device + 1)
			return false;
	}
	return false;
}

Size
kv_io_memory(void)
{
	return MAXALIGN(sizeof(IoShared));
}

void
kv_io_attach(void)
{
	bool		found;

	io_shared = ShmemInitStruct("kvfdw io", kv_io_memory(), &found);
	if (found)
		return;
	for (int k = 0; k < KV_IO_KINDS; k++)
	{
		pg_atomic_init_u64(&io_shared->kinds[k].calls, 0);
		pg_atomic_init_u64(&io_shared->kinds[k].bytes, 0);
		pg_atomic_init_u64(&io_shared->kinds[k].errors, 0);
	}
	for (int i = 0; i < LOGGED_DEVICES; i++)
		pg_atomic_init_u64(&io_shared->logged_devices[i], 0);
	pg_atomic_init_u64(&io_shared->told_no_ring, 0);
	pg_atomic_init_u64(&io_shared->full_at, 0);
}

int
kv_stat_io(KvIoStats *out, int max)
{
	int			n = Min(max, KV_IO_KINDS);

	for (int k = 0; k < n; k++)
	{
		out[k].kind = kv_io_kind_names[k];
		out[k].calls = out[k].bytes = out[k].errors = 0;
		if (io_shared != NULL)
		{
			out[k].calls = pg_atomic_read_u64(&io_shared->kinds[k].calls);
			out[k].bytes = pg_atomic_read_u64(&io_shared->kinds[k].bytes);
			out[k].errors = pg_atomic_read_u64(&io_shared->kinds[k].errors);
		}
	}
	return n;
}

void
kv_io_stats_reset(void)
{
	if (io_shared == NULL)
		return;
	for (int k = 0; k < KV_IO_KINDS; k++)
	{
		pg_atomic_write_u64(&io_shared->kinds[k].calls, 0);
		pg_atomic_write_u64(&io_shared->kinds[k].bytes, 0);
		pg_atomic_write_u64(&io_shared->kinds[k].errors, 0);
	}
}

/* ---- errors, wait events, descriptors ---- */

void
kv_io_sync_failed(void)
{
	int			save = errno;

	(void) unlink(KV_WITNESS_PATH);
	errno = save;
}

void
kv_io_error(int elevel, int err, const char *path, const char *verb)
{
	int			sqlstate;

	switch (err)
	{
		case ENOSPC:
		case EDQUOT:
			sqlstate = ERRCODE_DISK_FULL;
			break;
		case ENOMEM:
			sqlstate = ERRCODE_OUT_OF_MEMORY;
			break;
		case EMFILE:
		case ENFILE:
			sqlstate = ERRCODE_TOO_MANY_CONNECTIONS;
			break;
		default:
			sqlstate = ERRCODE_IO_ERROR;
			break;
	}
	errno = err;
	ereport(elevel,
			(errcode(sqlstate),
			 errmsg("could not %s file \"%s\": %m", verb, path),
			 sqlstate == ERRCODE_DISK_FULL ?
			 errhint("Check free disk space.") : 0));
}

void
kv_io_require(int err, const char *path, const char *verb)
{
	if (err != 0)
		kv_io_error(ERROR, err, path, verb);
}

void
kv_io_raise_missing(const char *path)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("file \"%s\" is missing", path)));
}

void
kv_io_report_short(int elevel, const char *path, uint64 end)
{
	ereport(elevel,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("file \"%s\" is too short", path),
			 errdetail("The file must have at least %llu bytes.", (unsigned long long) end)));
}

uint32
kv_io_wait_event(void)
{
	static uint32 wait_event = 0;

	/* the postmaster has no entry to show it */
	if (!IsUnderPostmaster)
		return 0;
	return KV_WAIT_EVENT(wait_event, "KvfdwIo");
}

void
kv_io_wait_start(void)
{
	uint32		event = kv_io_wait_event();

	if (event != 0)
		pgstat_report_wait_start(event);
}

void
kv_io_wait_end(void)
{
	if (IsUnderPostmaster)
		pgstat_report_wait_end();
}

bool
kv_io_raw_desc(File file, int *fd)
{
	*fd = FileGetRawDesc(file);
	if (*fd >= 0)
		return true;

	/* FileSize() opens a virtual file that fd.c has closed */
	if (FileSize(file) < 0)
		return false;
	*fd = FileGetRawDesc(file);
	return *fd >= 0;
}
