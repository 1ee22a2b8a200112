/*
 * writeback.c
 *		Waits until written pages are on the device, which the kernel writes at a time of its
 *		choice.
 *
 * When the kernel fails to write pages it marks them as clean, and may drop them; later reads
 * return the device's old content.  It reports the failure once: to the next process that syncs
 * the file, or waits for its pages as is done here.  The process must have had the file open
 * before, or be the first to open it since.  If no process has the file open or mapped the
 * kernel may forget the file, and the failure with it.  The file system's own record, which
 * syncfs() returns, lasts longer (Linux 5.8), until it was returned once.
 *
 * Waiting for pages costs less than fsync(), which has the device flush its cache for each
 * file.  It reports failures, and is no protection against a power loss.
 */
#include "postgres.h"

#include <fcntl.h>
#include <ftw.h>
#include <unistd.h>

#include "miscadmin.h"
#include "storage/fd.h"

#include "engine/io/internal.h"
#include "engine/io/io.h"
#include "engine/io/name.h"

#define WRITE_AND_WAIT	(SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | \
						 SYNC_FILE_RANGE_WAIT_AFTER)

/*
 * Start to write pages; returns 0 or an errno.  If pages cannot even be given to the device,
 * because they have no blocks there, the file system may not report that later.
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

/*
 * Returns 0 or an errno.  After a failure the pages are dropped, so that readers of the file
 * get the device's content.
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
 * After a failure pages are dropped.  Otherwise ext4 (seen with Linux 6.18) takes the blocks of
 * a remaining page for written ones.  It reports success when the page is written again, and
 * has zeros there when it is read from the device.
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
		 * an earlier failure is reported first, and nothing is written then: dirty pages would
		 * not be dropped
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

/* What the walk of kv_io_try_write_back does, and its error; nftw() has no argument for these. */
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
	/* a file that we may not read is not ours */
	if (err == EACCES)
		return 0;
	if (err != 0)
		kv_io_error(LOG, err, path, "write back");
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
