/*
 * writeback.c
 *		What was written is on the device: pages that the kernel writes in its own time.
 *
 * When it fails to, it counts the pages as written, and may drop them; what is read then is
 * what the device has.  It tells of that once: the next who syncs the file, or waits for its
 * pages as is done here, through a descriptor from before, or through the first one since.  If nobody
 * has the file open or mapped it may forget the file, and the failure with it.  The file system's own note, which
 * syncfs() asks for, outlives that (Linux 5.8), until somebody has asked for it.
 *
 * To wait for pages costs less than fsync(), which has the device flush its cache for each file: who does so
 * wants to know of failures, and is as safe from a loss of power as before.
 */
#include "postgres.h"

#include <fcntl.h>
#include <ftw.h>
#include <unistd.h>

#include "miscadmin.h"
#include "storage/fd.h"

#include "engine/io/internal.h"
#include "engine/io/fault.h"
#include "engine/io/io.h"

#define WRITE_AND_WAIT	(SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER)

void
kv_io_start_sync(const char *path)
{
	int			fd = enableFsync ? OpenTransientFile(path, O_RDWR | PG_BINARY) : -1;

	/* one that is missing is an error of the sync */
	if (fd < 0)
		return;
	pg_flush_data(fd, 0, 0);
	CloseTransientFile(fd);
}

/* 0 or an errno.  After a failure its pages are dropped, so that who reads the file finds what the device has. */
static int
wait_for_pages(int fd, unsigned int how)
{
	int			err = kv_fault(KV_IO_SYNC, NULL);

	kv_io_wait_start();
	if (err == 0 && sync_file_range(fd, 0, 0, how) != 0 && (errno != ENOSYS || pg_fdatasync(fd) != 0))
		err = errno;
	kv_io_wait_end();
	kv_io_stat_add(KV_IO_SYNC, 0, err);
	if (err != 0)
	{
		kv_io_sync_failed();
		(void) posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	}
	return err;
}

void
kv_io_start_write_back(File file, uint64 offset, uint64 len)
{
	int			fd;

	if (enableFsync && kv_io_raw_desc(file, &fd))
		(void) !sync_file_range(fd, offset, len, SYNC_FILE_RANGE_WRITE);
}

int
kv_io_try_write_back_file(File file)
{
	int			fd;

	if (!enableFsync)
		return 0;
	return kv_io_raw_desc(file, &fd) ? wait_for_pages(fd, WRITE_AND_WAIT) : errno;
}

/* What the walk of kv_io_try_write_back does, and what it has met: nftw() hands nothing down. */
static bool walk_waits;
static int	walk_error;

static int
write_back_entry(const char *path, const struct stat *info, int type, struct FTW *walk)
{
	int			fd;
	int			err;

	if (type != FTW_F)
		return 0;
	if (!walk_waits)
	{
		kv_io_start_sync(path);
		return 0;
	}
	fd = OpenTransientFile(path, O_RDONLY | PG_BINARY);
	err = fd < 0 ? errno : wait_for_pages(fd, WRITE_AND_WAIT);
	if (fd >= 0)
		CloseTransientFile(fd);
	/* what we may not read is not ours */
	if (err == EACCES)
		return 0;
	if (err != 0)
		ereport(LOG,
				(errmsg("could not write back file \"%s\": %s", path, strerror(err))));
	walk_error = walk_error != 0 ? walk_error : err;
	return 0;
}

int
kv_io_try_write_back(const char *path)
{
	walk_error = 0;
	for (int pass = 0; enableFsync && pass < 2; pass++)
	{
		walk_waits = pass == 1;
		if (nftw(path, write_back_entry, 8, FTW_PHYS) != 0 && errno != ENOENT)
			return errno;
	}
	return walk_error;
}

int
kv_io_try_write_back_all(const char *directory)
{
	int			err = kv_fault(KV_IO_SYNC, NULL);
	int			fd = enableFsync && err == 0 ? OpenTransientFile(directory, O_RDONLY) : -1;

	if (fd < 0 && enableFsync && err == 0)
		err = errno;
	else if (fd >= 0 && syncfs(fd) != 0 && errno != ENOSYS)
		err = errno;
	if (fd >= 0)
		CloseTransientFile(fd);
	kv_io_stat_add(KV_IO_SYNC, 0, err);
	if (err != 0)
		kv_io_sync_failed();
	return err;
}

void
kv_io_require_write_back(const char *path)
{
	int			fd = enableFsync ? OpenTransientFile(path, O_RDONLY | PG_BINARY) : -1;
	int			err;

	if (!enableFsync)
		return;
	if (fd < 0)
		kv_io_error(ERROR, errno, path, "open");
	err = wait_for_pages(fd, SYNC_FILE_RANGE_WAIT_BEFORE);
	CloseTransientFile(fd);
	if (err != 0)
		kv_io_error(data_sync_elevel(ERROR), err, path, "write back");
}
