/*
 * writeback.c
 *		What was written is on the device: pages that the kernel writes in its own time.
 *
 * When it fails to, it counts the pages as written, and may drop them; what is read then is
 * what the device has.  It tells of that once: the next who syncs the file, or waits for its
 * pages as is done here, through a descriptor from before, or through the first one since. If
 * nobody
 * has the file open or mapped it may forget the file, and the failure with it. The file system's
 * own note, which syncfs() asks for, outlives that (Linux 5.8), until somebody has asked for it.
 *
 * To wait for pages costs less than fsync(), which has the device flush its cache for each file:
 * who does so wants to know of failures, and is as safe from a loss of power as before.
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

#define WRITE_AND_WAIT	(SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | \
						 SYNC_FILE_RANGE_WAIT_AFTER)

/*
 * Has pages written; 0 or an errno. Of pages that cannot even be given to the device, for they have
 * no place there, the file system may tell nobody later.
 */
int
kv_io_start_pages(int fd, uint64 offset, uint64 len)
{
	int			err;

	if (!enableFsync || sync_file_range(fd, offset, len, SYNC_FILE_RANGE_WRITE) == 0 ||
		errno == ENOSYS)
		return 0;
	err = errno;
	kv_io_sync_failed();
	return err;
}

void
kv_io_start_write_back(const char *path)
{
	int			fd = enableFsync ? OpenTransientFile(path, O_RDONLY | PG_BINARY) : -1;
	int			err;

	/* one that is missing is an error of the sync */
	if (fd < 0)
		return;
	err = kv_io_start_pages(fd, 0, 0);
	CloseTransientFile(fd);
	if (err != 0)
		kv_io_error(data_sync_elevel(ERROR), err, path, "write back");
}

/*
 * 0 or an errno. After a failure its pages are dropped, so that who reads the file finds what the
 * device has.
 */
static int
wait_for_pages(int fd, unsigned int how)
{
	int			err = kv_fault(KV_IO_SYNC, NULL);

	kv_io_wait_start();
	if (err == 0 && sync_file_range(fd, 0, 0, how) != 0 &&
		(errno != ENOSYS || pg_fdatasync(fd) != 0))
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

int
kv_io_start_write_back_file(File file, uint64 offset, uint64 len)
{
	int			fd;

	return kv_io_raw_desc(file, &fd) ? kv_io_start_pages(fd, offset, len) : errno;
}

/*
 * After a failure pages are dropped: ext4 (seen with Linux 6.18) takes blocks of a page that stays
 * for written ones, and when it is written again, says that it is, and has zeros there when it is
 * read from the device.
 */
int
kv_io_wait_written(File file, uint64 offset, uint64 len)
{
	int			fd;
	int			err = 0;

	if (!enableFsync || (FileGetRawFlags(file) & PG_O_DIRECT))
		return 0;
	if (!kv_io_raw_desc(file, &fd))
		return errno;
	kv_io_wait_start();
	if (sync_file_range(fd, offset, len, WRITE_AND_WAIT) != 0 &&
		(errno != ENOSYS || pg_fdatasync(fd) != 0))
		err = errno;
	if (err != 0)
	{
		/*
		 * a failure of before comes first, and nothing is written then: what is dirty would not be
		 * dropped
		 */
		(void) !sync_file_range(fd, 0, 0, WRITE_AND_WAIT);
		(void) posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	}
	kv_io_wait_end();
	return err;
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
	fd = OpenTransientFile(path, O_RDONLY | PG_BINARY);
	if (fd < 0)
		err = walk_waits ? errno : 0;
	else
		err = walk_waits ? wait_for_pages(fd, WRITE_AND_WAIT) : kv_io_start_pages(fd, 0, 0);
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
