/*
 * small.c
 *		Files that are read or written whole, and directories.
 *
 * OpenTransientFile works everywhere, the postmaster and the startup process included, and is
 * cleaned up after an ERROR.
 */
#include "postgres.h"

#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/file_perm.h"
#include "engine/base/types.h"
#include "engine/base/wait.h"
#include "engine/io/fault.h"
#include "engine/io/internal.h"
#include "engine/io/io.h"
#include "engine/io/name.h"
#include "miscadmin.h"
#include "utils/pidfile.h"

/* Holes are punched in multiples of this. */
#define RELEASE_UNIT		(64 * 1024)

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

/*
 * Create path with this content, or with len zeros if data is NULL; replaces an existing file.
 * Returns its descriptor.  A caller that makes the file durable keeps the descriptor open until
 * it has synced the file, because only such a descriptor is sure to get errors of earlier
 * write-back.
 */
static int
write_new(const char *path, const char *data, Size len, KvIoKind kind)
{
	Size		first = len;
	int			err = kv_fault(kind, &first);
	int			flags = O_CREAT | O_EXCL | O_WRONLY | PG_BINARY;
	int			fd = err == 0 ? OpenTransientFile(path, flags) : -1;

	/* a failed attempt may have left one */
	if (err == 0 && fd < 0 && errno == EEXIST && unlink(path) == 0)
		fd = OpenTransientFile(path, flags);
	if (fd < 0)
	{
		err = err != 0 ? err : errno;
		kv_io_stat_add(kind, 0, err);
		kv_io_error(ERROR, err, path, "create");
	}

	kv_io_wait_start();
	if (data != NULL)
	{
		/*
		 * kvfdw.fault 'short' has halved first: then there are two calls, as after a short
		 * write
		 */
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

	kv_io_stat_add(kind, err == 0 ? len : 0, err);
	if (err != 0)
	{
		CloseTransientFile(fd);
		unlink(path);
		kv_io_error(ERROR, err, path, "write");
	}
	return fd;
}

static void
create_whole(const char *path, const char *data, Size len, KvIoKind kind)
{
	int			fd = write_new(path, data, len, kind);

	if (CloseTransientFile(fd) != 0)
	{
		int			err = errno;

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
kv_io_create(const char *path, const void *data, Size len)
{
	create_whole(path, data, len, KV_IO_META_WRITE);
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
	/* unlike a rename, link() cannot replace a file that another process creates concurrently */
	if (link(temporary, path) != 0 && errno != EEXIST)
		err = errno;
	unlink(temporary);
	kv_io_require(err, path, "create");
}

/* read() up to len bytes, as many as there are; returns 0 or an errno */
static int
read_all(int fd, char *into, Size len, Size *done)
{
	*done = 0;
	while (*done < len)
	{
		ssize_t		r = read(fd, into + *done, len - *done);

		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			return errno;
		if (r == 0)
			break;
		*done += r;
	}
	return 0;
}

/* Open a file for reading, and get its length.  -1: it is missing. */
static int
open_to_read(const char *path, Size *len)
{
	int			err = kv_fault(KV_IO_META_READ, NULL);
	int			fd = err == 0 ? OpenTransientFile(path, O_RDONLY | PG_BINARY) : -1;
	struct stat info;

	if (err == 0 && fd < 0)
	{
		if (errno == ENOENT)
			return -1;
		err = errno;
	}
	if (err == 0 && fstat(fd, &info) != 0)
		err = errno;
	if (err != 0)
	{
		if (fd >= 0)
			CloseTransientFile(fd);
		kv_io_stat_add(KV_IO_META_READ, 0, err);
		kv_io_error(ERROR, err, path, "read");
	}
	*len = info.st_size;
	return fd;
}

static void
end_reading(int fd, const char *path, Size bytes, int err)
{
	CloseTransientFile(fd);
	kv_io_stat_add(KV_IO_META_READ, bytes, err);
	kv_io_require(err, path, "read");
}

char *
kv_io_slurp(const char *path, Size *len)
{
	Size		size;
	int			fd = open_to_read(path, &size);
	char	   *data;
	int			err;

	if (fd < 0)
		return NULL;
	data = MemoryContextAllocHuge(CurrentMemoryContext, size + 1);
	err = read_all(fd, data, size, len);
	data[*len] = '\0';
	end_reading(fd, path, *len, err);
	return data;
}

bool
kv_io_slurp_piece(const char *path, uint64 offset, void *into, Size bytes, Size *len)
{
	int			fd = open_to_read(path, len);
	Size		done = 0;
	int			err;

	if (fd < 0)
		return false;
	err = lseek(fd, offset, SEEK_SET) < 0 ? errno : read_all(fd, into, bytes, &done);
	end_reading(fd, path, done, err);
	return done == bytes;
}

int
kv_io_peek(const char *path, void *into, Size bytes)
{
	int			fd = BasicOpenFile(path, O_RDONLY | PG_BINARY);
	Size		done = 0;
	int			err = fd < 0 ? errno : read_all(fd, into, bytes, &done);

	if (fd >= 0)
		close(fd);
	return err != 0 ? -err : (int) done;
}

int
kv_io_read_through(const char *path, KvIoKind kind)
{
	int			err = kv_fault(kind, NULL);
	int			fd = err == 0 ? OpenTransientFile(path, O_RDONLY | PG_BINARY) : -1;
	char	   *buffer = palloc(KV_ZERO_STEP);
	Size		bytes = 0;
	Size		done = 1;

	if (err == 0 && fd < 0)
		err = errno;
	while (err == 0 && done > 0)
	{
		err = read_all(fd, buffer, KV_ZERO_STEP, &done);
		bytes += done;
	}
	if (fd >= 0)
		CloseTransientFile(fd);
	pfree(buffer);
	kv_io_stat_add(kind, bytes, err);
	return err;
}

/* Reads line LOCK_FILE_LINE_PM_STATUS of postmaster.pid. */
bool
kv_io_server_stops(void)
{
	char		text[2 * MAXPGPATH];
	int			len = kv_io_peek("postmaster.pid", text, sizeof(text) - 1);
	char	   *line = text;

	text[Max(len, 0)] = '\0';
	for (int i = 1; line != NULL && i < LOCK_FILE_LINE_PM_STATUS; i++)
	{
		line = strchr(line, '\n');
		line = line != NULL ? line + 1 : NULL;
	}
	return line != NULL && strncmp(line, PM_STATUS_STOPPING, strlen(PM_STATUS_STOPPING)) == 0;
}

int
kv_io_try_cut(const char *path, uint64 size)
{
	int			err = kv_fault(KV_IO_META_WRITE, NULL);

	if (err == 0 && truncate(path, size) != 0)
		err = errno;
	kv_io_stat_add(KV_IO_META_WRITE, 0, err);
	return err;
}

void
kv_io_cut(const char *path, uint64 size)
{
	kv_io_require(kv_io_try_cut(path, size), path, "truncate");
}

int
kv_io_unlink(const char *path)
{
	int			err = kv_fault(KV_IO_UNLINK, NULL);

	if (err == 0 && unlink(path) != 0)
		err = errno;
	kv_io_stat_add(KV_IO_UNLINK, 0, err == ENOENT ? 0 : err);
	return err;
}

bool
kv_io_gone(const char *path)
{
	int			err = kv_io_unlink(path);

	if (err != 0 && err != ENOENT)
		kv_io_error(WARNING, err, path, "remove");
	return err == 0 || err == ENOENT;
}

int
kv_io_rename(const char *from, const char *to)
{
	int			err = kv_fault(KV_IO_META_WRITE, NULL);

	if (err == 0 && rename(from, to) != 0)
		err = errno;
	kv_io_stat_add(KV_IO_META_WRITE, 0, err);
	return err;
}

/* Make an open file's content, or a directory's names, durable: 0 or an errno. */
static int
sync_descriptor(int fd, bool directory)
{
	int			err;

	if (!directory)
	{
		kv_io_sync_descriptors(&fd, 1, &err);
		return err;
	}
	err = kv_fault(KV_IO_SYNC, NULL);
	if (err == 0)
	{
		kv_io_wait_start();
		err = pg_fsync(fd) != 0 ? errno : 0;
		kv_io_wait_end();

		/* some file systems cannot sync directories, and need not */
		if (err == EBADF || err == EINVAL)
			err = 0;
	}
	kv_io_stat_add(KV_IO_SYNC, 0, err);
	if (err != 0)
		kv_io_sync_failed();
	return err;
}

/* The same, by name; *opened is set if a failure is one of the sync. */
static int
sync_path(const char *path, bool directory, bool *opened)
{
	int			fd = OpenTransientFile(path, (directory ? O_RDONLY : O_RDWR) | PG_BINARY);
	int			err = fd < 0 ? errno : 0;

	*opened = fd >= 0;
	if (fd < 0)
	{
		kv_io_stat_add(KV_IO_SYNC, 0, err);
		return err;
	}
	err = sync_descriptor(fd, directory);
	CloseTransientFile(fd);
	return err;
}

/* How many transient files may be open at once: fd.c has a third of all descriptors for them. */
static int
most_open(int n)
{
	return Min(n, Max(max_safe_fds / 6, 1));
}

/* Sync open files, and raise the first error. */
static void
sync_together(const int *fds, const char *const *paths, int n)
{
	int		   *errs = palloc(n * sizeof(int));

	kv_io_sync_descriptors(fds, n, errs);
	for (int i = 0; i < n; i++)
	{
		if (errs[i] != 0)
			kv_io_error(data_sync_elevel(ERROR), errs[i], paths[i], "fsync");
	}
	pfree(errs);
}

void
kv_io_sync_files(const char *const *paths, int n, void (*synced) (int i, void *arg), void *arg)
{
	int			most = most_open(n);
	int		   *fds = palloc(Max(most, 1) * sizeof(int));

	for (int at = 0; at < n; at += most)
	{
		int			part = Min(n - at, most);

		for (int i = 0; i < part; i++)
		{
			fds[i] = OpenTransientFile(paths[at + i], O_RDWR | PG_BINARY);
			if (fds[i] < 0)
			{
				int			err = errno;

				kv_io_stat_add(KV_IO_SYNC, 0, err);
				kv_io_error(ERROR, err, paths[at + i], "open");
			}
		}
		sync_together(fds, paths + at, part);
		for (int i = 0; i < part && synced != NULL; i++)
			synced(at + i, arg);
		for (int i = 0; i < part; i++)
			CloseTransientFile(fds[i]);
		kv_interrupts();
	}
	pfree(fds);
}

/* Rename a whole temporary file; if that fails it is removed. */
static void
put_in_place(const char *temporary, const char *path)
{
	int			err = kv_io_rename(temporary, path);

	if (err != 0)
		(void) kv_io_unlink(temporary);
	kv_io_require(err, temporary, "rename");
}

/* Replace a file such that name and content survive a power loss. */
static void
replace_durably(const char *temporary, const char *path, const void *data, Size len)
{
	char		directory[MAXPGPATH];
	int			fd = write_new(temporary, data, len, KV_IO_META_WRITE);
	int			err;

	KV_STOP_POINT("small_file_written");
	err = sync_descriptor(fd, false);
	CloseTransientFile(fd);

	/* a failed sync is no reason for a PANIC here: the file will be written again */
	kv_io_require(err, temporary, "fsync");
	put_in_place(temporary, path);
	strlcpy(directory, path, sizeof(directory));
	get_parent_directory(directory);
	kv_io_sync_directory(directory[0] != '\0' ? directory : ".");
}

void
kv_io_replace(const char *path, const void *data, Size len, bool sync)
{
	char		temporary[MAXPGPATH];

	snprintf(temporary, sizeof(temporary), "%s.tmp", path);
	if (sync)
	{
		replace_durably(temporary, path, data, len);
		return;
	}
	create_whole(temporary, data, len, KV_IO_META_WRITE);
	put_in_place(temporary, path);
}

/* ---- directories ---- */

void
kv_io_mkdir(const char *path)
{
	char		partial[MAXPGPATH];
	int			err = kv_fault(KV_IO_META_WRITE, NULL);

	/* create every missing directory of the path, and make its name durable */
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
		kv_io_stat_add(KV_IO_META_WRITE, 0, err);
		errno = err;
		ereport(ERROR,
				(errcode(err == ENOSPC || err == EDQUOT ?
						 ERRCODE_DISK_FULL : ERRCODE_IO_ERROR),
				 errmsg("could not create directory \"%s\": %m", path)));
	}
}

/* nftw() callback: remove one entry, keep the first error in errno. */
static int
remove_entry(const char *path, const struct stat *info, int type, struct FTW *where)
{
	int			err = kv_fault(KV_IO_UNLINK, NULL);
	Size		len = strlen(path);

	/* an idle process may have a value file open: free its space now */
	if (err == 0 && len > 4 && strcmp(path + len - 4, ".val") == 0 &&
		truncate(path, 0) != 0 && errno != ENOENT)
		err = errno;
	if (err == 0 && remove(path) != 0 && errno != ENOENT)
		err = errno;
	kv_io_stat_add(KV_IO_UNLINK, 0, err);
	if (err != 0)
	{
		errno = err;
		ereport(WARNING,
				(errcode_for_file_access(),
				 errmsg("could not remove file or directory \"%s\": %m", path)));
	}
	return 0;
}

/* Sync by name, or raise; missing_ok: nothing happens if there is no such name. */
static void
sync_or_raise(const char *path, bool directory, bool missing_ok, const char *verb)
{
	bool		opened;
	int			err = sync_path(path, directory, &opened);

	if (err != 0 && (err != ENOENT || opened || !missing_ok))
		kv_io_error(opened ? data_sync_elevel(ERROR) : ERROR, err, path, opened ? "fsync" : verb);
}

void
kv_io_sync_directory(const char *path)
{
	sync_or_raise(path, true, false, "fsync");
}

void
kv_io_sync_directory_if_there(const char *path)
{
	sync_or_raise(path, true, true, "fsync");
}

void
kv_io_sync_file(const char *path)
{
	sync_or_raise(path, false, false, "open");
}

void
kv_io_rmtree(const char *path)
{
	if (nftw(path, remove_entry, 8, FTW_DEPTH | FTW_PHYS) != 0 && errno != ENOENT)
		ereport(WARNING,
				(errcode_for_file_access(),
				 errmsg("could not remove directory \"%s\": %m", path)));
}

int
kv_io_release(const char *path, bool in_place, bool whole, uint64 most, bool finish,
			  uint64 *freed)
{
	int			err = kv_fault(KV_IO_UNLINK, NULL);
	int			fd = err == 0 ? OpenTransientFile(path, O_RDWR | PG_BINARY) : -1;
	struct stat info;
	uint64		bytes = 0;
	bool		empty = true;

	if (err == 0 && (fd < 0 || fstat(fd, &info) != 0))
		err = errno;
	if (err == 0)
		bytes = Min((uint64) info.st_size, most);
	if (err == 0 && in_place && !whole && info.st_size > most)
	{
		off_t		data = lseek(fd, 0, SEEK_DATA);

		/* if the file system cannot do this, all of it is freed below */
		if (data < 0)
			bytes = 0;
		else if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
						   data, TYPEALIGN(RELEASE_UNIT, most)) == 0)
			empty = lseek(fd, 0, SEEK_DATA) == data;
	}
	else if (err == 0 && !in_place)
	{
		/* an idle process may have it open: free its space nevertheless */
		empty = info.st_size <= most;
		if (ftruncate(fd, info.st_size - bytes) != 0)
			err = errno;
	}
	/* a failed fsync loses nothing that is needed */
	if (err == 0 && finish && !whole && bytes > 0)
		(void) !fsync(fd);
	if (fd >= 0)
		CloseTransientFile(fd);
	if (err == 0 && empty && unlink(path) != 0)
		err = errno;
	err = err == ENOENT ? 0 : err;
	kv_io_stat_add(KV_IO_UNLINK, bytes, err);
	*freed += bytes;
	return err;
}

void
kv_io_wait_directory(const char *path)
{
	int			fd = OpenTransientFile(path, O_RDONLY);

	if (fd < 0)
		return;
	(void) !fsync(fd);
	CloseTransientFile(fd);
}
