/*
 * iofile.c
 *		io.c's other half: files that are read or written whole, and directories.
 *
 * OpenTransientFile works everywhere, the postmaster and the startup process
 * included, and is cleaned up after an ERROR.
 */
#include "postgres.h"

#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/file_perm.h"
#include "engine/engine.h"
#include "engine/fault.h"
#include "engine/io.h"
#include "engine/ioring.h"

char		kv_io_zeros[KV_ZERO_STEP] pg_attribute_aligned(KV_BLOCK);

/* ---- files ---- */

/* write() all of it to a plain descriptor; returns 0 or an errno. */
static int
write_all(int fd, const char *data, Size len)
{
	while (len > 0)
	{
		ssize_t		r;

		errno = 0;
		r = write(fd, data, len);
		if (r < 0 && errno == EINTR)
			continue;
		if (r <= 0)
			return errno != 0 ? errno : ENOSPC;
		data += r;
		len -= r;
	}
	return 0;
}

/* Create path anew with this content, or with len zeros if data is NULL. */
static void
create_whole(const char *path, const char *data, Size len, KvIoKind kind)
{
	Size		first = len;
	int			err = kv_fault(kind, &first);
	int			fd;

	if (err == 0 && unlink(path) != 0 && errno != ENOENT)
		err = errno;
	fd = err == 0 ?
		OpenTransientFile(path, O_CREAT | O_EXCL | O_WRONLY | PG_BINARY) : -1;
	if (fd < 0)
	{
		err = err != 0 ? err : errno;
		kv_io_count(kind, 0, err);
		kv_io_error(ERROR, err, path, "create");
	}

	kv_io_wait_start();
	if (data != NULL)
	{
		/* two calls, so that an injected short write is one */
		err = write_all(fd, data, first);
		if (err == 0)
			err = write_all(fd, data + first, len - first);
	}
	else
	{
		for (Size at = 0; err == 0 && at < len; at += KV_ZERO_STEP)
			err = write_all(fd, kv_io_zeros, Min(KV_ZERO_STEP, len - at));
	}
	kv_io_wait_end();
	if (CloseTransientFile(fd) != 0 && err == 0)
		err = errno;

	kv_io_count(kind, err == 0 ? len : 0, err);
	if (err != 0)
	{
		unlink(path);
		kv_io_error(ERROR, err, path, "write");
	}
}

void
kv_io_create_zeroed(const char *path, Size len, KvIoKind kind)
{
	create_whole(path, NULL, len, kind);
}

void
kv_io_replace(const char *path, const void *data, Size len, bool sync)
{
	char		temporary[MAXPGPATH];
	int			err;

	snprintf(temporary, sizeof(temporary), "%s.tmp", path);
	create_whole(temporary, data, len, KV_IO_META_WRITE);
	if (sync)
		kv_io_durable_rename(temporary, path);
	else if ((err = kv_io_rename(temporary, path)) != 0)
		kv_io_error(ERROR, err, temporary, "rename");
}

void
kv_io_create_new(const char *path, const void *data, Size len, KvIoKind kind)
{
	char		temporary[MAXPGPATH];
	int			err = 0;

	if (access(path, F_OK) == 0)
		return;
	snprintf(temporary, sizeof(temporary), "%s.tmp", path);
	create_whole(temporary, data, len, kind);
	KV_STOP_POINT("create_before_link");
	/* unlike a rename, this cannot replace what another process makes meanwhile */
	if (link(temporary, path) != 0 && errno != EEXIST)
		err = errno;
	unlink(temporary);
	if (err != 0)
		kv_io_error(ERROR, err, path, "create");
}

char *
kv_io_slurp(const char *path, Size *len)
{
	int			err = kv_fault(KV_IO_META_READ, NULL);
	int			fd = err == 0 ? OpenTransientFile(path, O_RDONLY | PG_BINARY) : -1;
	struct stat info;
	char	   *data = NULL;
	Size		done = 0;

	if (err == 0 && fd < 0)
	{
		if (errno == ENOENT)
			return NULL;
		err = errno;
	}
	if (err == 0 && fstat(fd, &info) != 0)
		err = errno;
	if (err == 0)
	{
		data = palloc(info.st_size + 1);
		while (err == 0 && done < (Size) info.st_size)
		{
			ssize_t		r = read(fd, data + done, info.st_size - done);

			if (r == 0)
				break;
			if (r > 0)
				done += r;
			else if (errno != EINTR)
				err = errno;
		}
		data[done] = '\0';
	}
	if (fd >= 0)
		CloseTransientFile(fd);
	kv_io_count(KV_IO_META_READ, done, err);
	if (err != 0)
		kv_io_error(ERROR, err, path, "read");
	*len = done;
	return data;
}

/* Shorten a file that nobody has mapped or open. */
void
kv_io_cut(const char *path, uint64 size)
{
	int			err = kv_fault(KV_IO_META_WRITE, NULL);

	if (err == 0 && truncate(path, size) != 0)
		err = errno;
	kv_io_count(KV_IO_META_WRITE, 0, err);
	if (err != 0)
		kv_io_error(ERROR, err, path, "truncate");
}

int
kv_io_unlink(const char *path)
{
	int			err = kv_fault(KV_IO_UNLINK, NULL);

	if (err == 0 && unlink(path) != 0)
		err = errno;
	kv_io_count(KV_IO_UNLINK, 0, err == ENOENT ? 0 : err);
	return err;
}

int
kv_io_rename(const char *from, const char *to)
{
	int			err = kv_fault(KV_IO_META_WRITE, NULL);

	if (err == 0 && rename(from, to) != 0)
		err = errno;
	kv_io_count(KV_IO_META_WRITE, 0, err);
	return err;
}

void
kv_io_durable_rename(const char *from, const char *to)
{
	int			err = kv_fault(KV_IO_SYNC, NULL);

	kv_io_count(KV_IO_SYNC, 0, err);
	if (err != 0)
		kv_io_error(data_sync_elevel(ERROR), err, from, "fsync");
	kv_io_wait_start();
	(void) durable_rename(from, to, ERROR);
	kv_io_wait_end();
}

/* ---- directories ---- */

void
kv_io_mkdir(const char *path)
{
	char		partial[MAXPGPATH];
	int			err = kv_fault(KV_IO_META_WRITE, NULL);

	/* make every directory on the way that is missing, and its name durable */
	strlcpy(partial, path, sizeof(partial));
	canonicalize_path(partial);
	for (char *p = partial + 1; err == 0; p++)
	{
		char		here = *p;

		if (here != '/' && here != '\0')
			continue;
		*p = '\0';
		if (MakePGDirectory(partial) == 0)
		{
			char		parent[MAXPGPATH];

			strlcpy(parent, partial, sizeof(parent));
			get_parent_directory(parent);
			fsync_fname(parent[0] != '\0' ? parent : ".", true);
		}
		else if (errno != EEXIST)
			err = errno;
		*p = here;
		if (here == '\0')
			break;
	}
	if (err != 0)
	{
		kv_io_count(KV_IO_META_WRITE, 0, err);
		errno = err;
		ereport(ERROR,
				(errcode(err == ENOSPC || err == EDQUOT ?
						 ERRCODE_DISK_FULL : ERRCODE_IO_ERROR),
				 errmsg("could not create directory \"%s\": %m", path)));
	}
}

/* nftw() callback: remove one entry, remember the first trouble in errno. */
static int
remove_entry(const char *path, const struct stat *info, int type, struct FTW *where)
{
	int			err = kv_fault(KV_IO_UNLINK, NULL);
	Size		len = strlen(path);

	/* an idle process may hold a value file open: give its space back now */
	if (err == 0 && len > 4 && strcmp(path + len - 4, ".val") == 0 &&
		truncate(path, 0) != 0 && errno != ENOENT)
		err = errno;
	if (err == 0 && remove(path) != 0 && errno != ENOENT)
		err = errno;
	kv_io_count(KV_IO_UNLINK, 0, err);
	if (err != 0)
	{
		errno = err;
		ereport(WARNING,
				(errcode_for_file_access(),
				 errmsg("could not remove file or directory \"%s\": %m", path)));
	}
	return 0;
}

/*
 * Make the names in a directory durable: files that were created in it and
 * synced themselves survive power loss only after this.
 */
void
kv_io_sync_directory(const char *path)
{
	int			err = kv_fault(KV_IO_SYNC, NULL);

	kv_io_count(KV_IO_SYNC, 0, err);
	if (err != 0)
		kv_io_error(data_sync_elevel(ERROR), err, path, "fsync");
	kv_io_wait_start();
	fsync_fname(path, true);
	kv_io_wait_end();
}

/* Goes on after a failure; a missing path is no trouble. */
void
kv_io_rmtree(const char *path)
{
	if (nftw(path, remove_entry, 8, FTW_DEPTH | FTW_PHYS) != 0 && errno != ENOENT)
		ereport(WARNING,
				(errcode_for_file_access(),
				 errmsg("could not remove directory \"%s\": %m", path)));
}

/*
 * What tells a directory from a copy of it: its inode and its birth time (0
 * where the file system keeps none).
 */
void
kv_io_identify(const char *path, uint64 *inode, int64 *birth_sec, uint32 *birth_nsec)
{
	struct statx info;

	if (statx(AT_FDCWD, path, 0, STATX_INO | STATX_BTIME, &info) != 0)
		kv_io_error(ERROR, errno, path, "stat");
	*inode = info.stx_ino;
	*birth_sec = (info.stx_mask & STATX_BTIME) ? info.stx_btime.tv_sec : 0;
	*birth_nsec = (info.stx_mask & STATX_BTIME) ? info.stx_btime.tv_nsec : 0;
}

/* Make a file's content durable.  ERROR (PANIC, unless data_sync_retry) on failure. */
void
kv_io_sync_file(const char *path)
{
	int			err = kv_fault(KV_IO_SYNC, NULL);
	int			fd = err == 0 ? OpenTransientFile(path, O_RDWR | PG_BINARY) : -1;

	if (err == 0 && fd < 0)
	{
		kv_io_count(KV_IO_SYNC, 0, errno);
		kv_io_error(ERROR, errno, path, "open");
	}
	if (err == 0)
	{
		kv_io_wait_start();
		err = pg_fdatasync(fd) != 0 ? errno : 0;
		kv_io_wait_end();
	}
	if (fd >= 0)
		CloseTransientFile(fd);
	kv_io_count(KV_IO_SYNC, 0, err);
	if (err != 0)
		kv_io_error(data_sync_elevel(ERROR), err, path, "fsync");
}
