/*
 * file.c
 *		Files that stay open, what identifies a file and its file system, and write-back of
 *		pages; io.h and name.h are the contracts.
 *
 * Other files of the module: small.c has files that are read or written whole, and directories;
 * map.c has mapped files; ring.c has batches of direct I/O and their rings; call.c is shared by
 * all of them; machine.c has the memory that the server may use; fault.c injects faults.
 *
 * Descriptors are obtained in three ways, depending on the caller:
 *
 *  - files that stay open are virtual files (kv_io_open): only in processes that called
 *    BaseInit(), so never in the postmaster;
 *  - small files that are read or written whole use OpenTransientFile, which works everywhere,
 *    the postmaster and the startup process included, and is cleaned up after an ERROR;
 *  - maps need a descriptor only while mmap() runs: BasicOpenFile.
 *
 * Keeps I 5.  Nothing here truncates a file that might be mapped: files are replaced, or
 * created under a name that was unlinked first.  Every mapped byte was written before
 * (kv_io_create_zeroed).
 */
#include "postgres.h"

#include <fcntl.h>
#include <ftw.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "common/file_perm.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/fd.h"
#include "storage/shmem.h"

#include "compat.h"
#include "engine/base/types.h"
#include "engine/engine.h"
#include "engine/io/fault.h"
#include "engine/io/internal.h"
#include "engine/io/io.h"
#include "engine/io/name.h"

#ifndef STATX_DIOALIGN
#define STATX_DIOALIGN		0x00002000U
#endif
#define KV_STATX_MNT_ID_UNIQUE	0x4000	/* newer than some headers */

/* Offset of stx_dio_offset_align in statx()'s result; old headers do not name it. */
#define STATX_DIO_MEM_ALIGN_AT		0x98
#define STATX_DIO_OFFSET_ALIGN_AT	0x9c

static struct
{
	char	   *memory;
	Size		size;
}			buffers[KV_IO_BUFFERS];

/* ---- virtual files ---- */

/*
 * Has the file system of this existing file direct I/O in units that divide KV_BLOCK?  If the
 * kernel does not tell, direct I/O is tried on anything but tmpfs (which accepts O_DIRECT and
 * ignores it).
 */
static bool
direct_supported(const char *path, uint64 *device)
{
	struct statx info;
	struct statfs fs;
	uint32		mem_align;
	uint32		offset_align;

	*device = 0;
	memset(&info, 0, sizeof(info));
	if (kv_fault_skips("direct_io"))
		return false;
	if (statx(AT_FDCWD, path, 0, STATX_BASIC_STATS | STATX_DIOALIGN, &info) != 0)
		return false;
	*device = makedev(info.stx_dev_major, info.stx_dev_minor);
	if ((info.stx_mask & STATX_DIOALIGN) == 0)
		return statfs(path, &fs) == 0 && fs.f_type != TMPFS_MAGIC;

	memcpy(&mem_align, (char *) &info + STATX_DIO_MEM_ALIGN_AT, sizeof(uint32));
	memcpy(&offset_align, (char *) &info + STATX_DIO_OFFSET_ALIGN_AT, sizeof(uint32));
	return mem_align > 0 && KV_BLOCK % mem_align == 0 &&
		offset_align > 0 && KV_BLOCK % offset_align == 0;
}

/* Returns -1 with *error if it cannot be opened. */
static File
open_file(const char *path, int flags, KvIoKind kind, int *error)
{
	int			mode = PG_BINARY | ((flags & KV_IO_READONLY) ? O_RDONLY : O_RDWR) |
		((flags & KV_IO_NOFOLLOW) ? O_NOFOLLOW : 0);
	File		file = -1;
	bool		direct = false;
	uint64		device = 0;
	int			err = kv_fault(kind, NULL);

	if (err == 0 && (flags & KV_IO_DIRECT))
	{
		/* statx() needs an existing file */
		if ((flags & KV_IO_CREATE) && access(path, F_OK) != 0)
		{
			file = PathNameOpenFile(path, mode | O_CREAT);
			err = file < 0 ? errno : 0;
			if (err == 0)
				FileClose(file);
			file = -1;
		}
		if (err == 0)
			direct = direct_supported(path, &device);
	}
	if (err == 0 && direct)
	{
		file = PathNameOpenFile(path, mode | PG_O_DIRECT);
		if (file < 0 && errno == EINVAL)
			direct = false;
		else if (file < 0)
			err = errno;
	}
	if (err == 0 && file < 0)
	{
		file = PathNameOpenFile(path, mode | ((flags & KV_IO_CREATE) ? O_CREAT : 0));
		err = file < 0 ? errno : 0;
		if (err == 0 && (flags & KV_IO_DIRECT) && kv_io_first_without_direct(device))
			ereport(LOG,
					(errmsg("kvfdw uses buffered I/O for file \"%s\"", path),
					 errdetail("The file system does not support direct I/O.")));
	}
	*error = err;
	return err == 0 ? file : -1;
}

File
kv_io_open(const char *path, int flags, KvIoKind kind)
{
	int			err;
	File		file = open_file(path, flags, kind, &err);

	bool		missing = err == ENOENT && (flags & KV_IO_MISSING_OK);

	if (err == 0)
		return file;
	kv_io_stat_add(kind, 0, missing ? 0 : err);
	if (!missing && (flags & KV_IO_FAIL_OK) == 0)
		kv_io_error(ERROR, err, path, (flags & KV_IO_CREATE) ? "create" : "open");
	errno = err;
	return -1;
}

int
kv_io_try_make(const char *path, uint64 size, KvIoKind kind)
{
	int			err = kv_fault(kind, NULL);
	int			fd = -1;

	if (err == 0)
	{
		fd = BasicOpenFilePerm(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | PG_BINARY,
							   S_IRUSR | S_IWUSR);
		err = fd < 0 ? errno : posix_fallocate(fd, 0, size);
	}
	if (fd >= 0)
		close(fd);
	if (fd >= 0 && err != 0)
		(void) unlink(path);
	kv_io_stat_add(kind, 0, err);
	return err;
}

bool
kv_io_is_private(File file, uint64 size)
{
	struct stat st;

	return fstat(FileGetRawDesc(file), &st) == 0 && S_ISREG(st.st_mode) && st.st_size == size &&
		st.st_uid == geteuid() && st.st_nlink == 1 && (st.st_mode & (S_IRWXG | S_IRWXO)) == 0;
}

bool
kv_io_is_inode(File file, const KvIoInode *inode)
{
	struct stat st;

	return fstat(FileGetRawDesc(file), &st) == 0 &&
		st.st_dev == inode->device && st.st_ino == inode->number;
}

int
kv_io_try_lock(const char *path, KvIoInode *inode)
{
	/* not a virtual file: fd.c may close those, which would release the lock */
	int			fd = BasicOpenFile(path, O_RDWR | O_NOFOLLOW | O_NONBLOCK | PG_BINARY);
	struct stat st;
	struct stat named;
	int			err = 0;

	if (fd < 0)
		return -1;
	if (flock(fd, LOCK_EX | LOCK_NB) != 0)
		err = errno == EWOULDBLOCK ? EBUSY : errno;
	else if (fstat(fd, &st) != 0 || lstat(path, &named) != 0)
		err = errno;
	else if (st.st_dev != named.st_dev || st.st_ino != named.st_ino)
		err = EBUSY;			/* another process has just created another file */
	if (err != 0)
	{
		close(fd);
		errno = err;
		return -1;
	}
	*inode = (KvIoInode) {st.st_dev, st.st_ino};
	ReserveExternalFD();
	return fd;
}

void
kv_io_unlock(int lock)
{
	close(lock);
	ReleaseExternalFD();
}

int
kv_io_try_sync(File file)
{
	int			err = kv_fault(KV_IO_TIER_WRITE, NULL);

	if (err == 0 && FileSync(file, kv_io_wait_event()) != 0)
		err = errno;
	kv_io_stat_add(KV_IO_TIER_WRITE, 0, err);
	return err;
}

void
kv_io_close(File file)
{
	FileClose(file);
}

/*
 * How much of a short transfer counts as done?  Direct I/O can continue only at a block
 * boundary, and transferring part of a block twice does no harm.
 */
static Size
whole_blocks(Size done, Size len, uint64 offset)
{
	if (len % KV_BLOCK == 0 && offset % KV_BLOCK == 0)
		return done - done % KV_BLOCK;
	return done;
}

int
kv_io_pread(File file, void *buf, Size len, uint64 offset, Size first)
{
	Size		done = 0;		/* where the next call starts */
	Size		most = 0;		/* bytes seen to exist */
	int			r;

	for (;;)
	{
		Size		part = first > 0 ? first : len - done;

		first = 0;
		r = FileRead(file, (char *) buf + done, part, offset + done,
					 kv_io_wait_event());
		if (r < 0)
			return -errno;
		if (done + r >= len)
			return len;

		/* no progress: the end of the file, or of its part of this block */
		if (r == 0 || done + r <= most)
			return most;
		most = done + r;
		done = whole_blocks(most, len, offset);
	}
}

int
kv_io_try_read(File file, void *buf, Size len, uint64 offset, KvIoKind kind)
{
	Size		first = len;
	int			err = kv_fault(kind, &first);
	int			r = err != 0 ? -err : kv_io_pread(file, buf, len, offset, first);

	kv_io_stat_add(kind, Max(r, 0), r < 0 ? -r : 0);
	return r;
}

int
kv_io_read(File file, void *buf, Size len, uint64 offset, KvIoKind kind)
{
	int			r = kv_io_try_read(file, buf, len, offset, kind);

	if (r < 0)
		kv_io_error(ERROR, -r, FilePathName(file), "read");
	return r;
}

int
kv_io_pwrite(File file, const void *buf, Size len, uint64 offset, Size first)
{
	Size		done = 0;
	int			stuck = 0;

	while (done < len)
	{
		Size		part = first > 0 ? first : len - done;
		Size		next;
		int			r;

		first = 0;
		errno = 0;
		r = FileWrite(file, unconstify(char *, (const char *) buf + done), part,
					  offset + done, kv_io_wait_event());
		if (r < 0)
			return errno != 0 ? errno : ENOSPC;
		if (done + r >= len)
			break;

		/* a device that repeatedly accepts less than a block is full */
		next = whole_blocks(done + r, len, offset);
		if (next == done && ++stuck > 2)
			return ENOSPC;
		done = next;
	}
	return 0;
}

int
kv_io_try_write(File file, const void *buf, Size len, uint64 offset, KvIoKind kind)
{
	Size		first = len;
	int			err = kv_fault(kind, &first);

	if (err == 0)
		err = kv_io_pwrite(file, buf, len, offset, first);
	if (err == 0 && (kind == KV_IO_VALUE_WRITE || kind == KV_IO_COMPACT_WRITE))
		err = kv_io_wait_written(file, offset, len);
	kv_io_stat_add(kind, err == 0 ? len : 0, err);
	return err;
}

void
kv_io_write(File file, const void *buf, Size len, uint64 offset, KvIoKind kind)
{
	kv_io_require(kv_io_try_write(file, buf, len, offset, kind), FilePathName(file), "write");
}

/*
 * Was the kernel told recently that the file is read in random order?  It is told once in so
 * many reads: not each time, because that is a system call, and not only once, because fd.c may
 * have opened the file again.
 */
#define ADVISED_FILES	64
#define ADVISED_READS	64

static bool
is_advised(File file, int fd)
{
	static struct
	{
		File		file;
		int			fd;
		int			reads;		/* left */
	}			advised[ADVISED_FILES];
	int			i = file % ADVISED_FILES;

	if (advised[i].file == file && advised[i].fd == fd && advised[i].reads-- > 0)
		return true;
	advised[i].file = file;
	advised[i].fd = fd;
	advised[i].reads = ADVISED_READS;
	return false;
}

void
kv_io_advise(int fd, const KvIoRequest *request)
{
	if (!is_advised(request->file, fd))
		(void) posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
	if (request->around > request->len)
	{
		uint64		begin = request->offset - request->offset % request->around;
		uint64		end = request->offset + request->len + request->around - 1;

		(void) posix_fadvise(fd, begin, end - end % request->around - begin, POSIX_FADV_WILLNEED);
	}
}

void
kv_io_forget_pages(File file, uint64 offset, uint64 len)
{
	int			fd;

	if (kv_io_raw_desc(file, &fd))
		(void) posix_fadvise(fd, offset, len, POSIX_FADV_DONTNEED);
}

void
kv_io_want_pages(File file, uint64 offset, uint64 len)
{
	int			fd;

	if (kv_io_raw_desc(file, &fd))
		(void) posix_fadvise(fd, offset, len, POSIX_FADV_WILLNEED);
}

bool
kv_io_is_gone(File file)
{
	int			fd;

	return !kv_io_raw_desc(file, &fd) && errno == ENOENT;
}

bool
kv_io_has_name(File file)
{
	struct stat named;
	struct stat st;
	int			fd;

	if (stat(FilePathName(file), &named) != 0)
		return errno != ENOENT && errno != ENOTDIR;
	fd = FileGetRawDesc(file);
	return fd < 0 || fstat(fd, &st) != 0 ||
		(st.st_dev == named.st_dev && st.st_ino == named.st_ino);
}

/* The caller guarantees [0, old_size): only bytes after it are allocated. */
int
kv_io_try_extend(File file, uint64 old_size, uint64 size)
{
	int			err = kv_fault(KV_IO_VALUE_EXTEND, NULL);
	int			fd = -1;

	if (err == 0 && !kv_io_raw_desc(file, &fd))
		err = errno;
	if (err == 0)
	{
		kv_io_wait_start();
		do
		{
			err = fallocate(fd, 0, old_size, size - old_size) != 0 ? errno : 0;
		} while (err == EINTR);
		kv_io_wait_end();

		/* not posix_fallocate: its emulation does not work with O_DIRECT */
		if (err == EOPNOTSUPP)
		{
			err = 0;
			for (uint64 at = old_size; err == 0 && at < size; at += KV_ZERO_STEP)
				err = kv_io_pwrite(file, kv_io_zeros, Min(KV_ZERO_STEP, size - at), at, 0);
		}
		if (err != 0)
			(void) FileTruncate(file, old_size, kv_io_wait_event());
	}
	kv_io_stat_add(KV_IO_VALUE_EXTEND, err == 0 ? size - old_size : 0, err);
	return err;
}

void
kv_io_wait(File file)
{
	int			fd = -1;

	/* no change: the first block is allocated already */
	if (kv_io_raw_desc(file, &fd))
		(void) !fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, KV_BLOCK);
}

uint64
kv_io_size(File file)
{
	off_t		size = FileSize(file);

	if (size < 0)
		kv_io_error(ERROR, errno, FilePathName(file), "seek to the end of");
	return size;
}

/* If the file system cannot tell, the file's end. */
uint64
kv_io_data_end(File file, uint64 from)
{
	off_t		end = from;
	int			fd;

	if (!kv_io_raw_desc(file, &fd))
		kv_io_error(ERROR, errno, FilePathName(file), "open");

	for (;;)
	{
		off_t		data = lseek(fd, end, SEEK_DATA);

		if (data < 0)
			return errno == ENXIO ? end : Max(from, kv_io_size(file));
		end = lseek(fd, data, SEEK_HOLE);
		if (end < 0)
			return Max(from, kv_io_size(file));
	}
}

/* ---- identity of a file, and of the mount of its file system ---- */

/*
 * Pages that were written and not synced belong to the mounted file system: they are lost when
 * it is unmounted, shut down by an error, or replaced by a snapshot.  Either of two numbers
 * proves that the file system has been mounted all the time, because a kernel never uses one
 * twice:
 *
 *  - the mount's unique id (Linux 6.8);
 *  - the inode of the file system's directory in sysfs, which is created at each mount (ext4,
 *    xfs, f2fs).  It outlives a container, whose mounts do not.
 *
 * A file is the same if it has its inode and was not changed since: a copy of it, or another
 * file of its name, has another change time.
 */
/* The inode of the mounted file system's directory in sysfs; 0 if there is none. */
static uint64
sysfs_inode(dev_t device)
{
	static const char *const kinds[] = {"ext4", "xfs", "f2fs"};
	char		link[64];
	char		target[MAXPGPATH];
	ssize_t		len;
	const char *name;

	snprintf(link, sizeof(link), "/sys/dev/block/%u:%u", major(device), minor(device));
	len = readlink(link, target, sizeof(target) - 1);
	if (len <= 0)
		return 0;
	target[len] = '\0';
	name = last_dir_separator(target);
	if (name == NULL)
		return 0;
	for (int i = 0; i < lengthof(kinds); i++)
	{
		char		path[MAXPGPATH];
		struct stat info;

		snprintf(path, sizeof(path), "/sys/fs/%s/%s", kinds[i], name + 1);
		if (stat(path, &info) == 0)
			return info.st_ino;
	}
	return 0;
}

void
kv_io_identify_mount(const char *path, uint64 *mount, uint64 *superblock)
{
	struct statx info;

	*mount = *superblock = 0;
	if (statx(AT_FDCWD, path, 0, STATX_BASIC_STATS | KV_STATX_MNT_ID_UNIQUE, &info) != 0)
		kv_io_error(ERROR, errno, path, "stat");
#ifdef STATX_MNT_ID
	if (info.stx_mask & KV_STATX_MNT_ID_UNIQUE)
		*mount = info.stx_mnt_id;
#endif
	*superblock = sysfs_inode(makedev(info.stx_dev_major, info.stx_dev_minor));
}

bool
kv_io_identify_file(const char *path, uint64 *inode, int64 *changed_sec, uint32 *changed_nsec)
{
	struct stat info;

	if (stat(path, &info) != 0)
	{
		if (errno != ENOENT)
			kv_io_error(ERROR, errno, path, "stat");
		return false;
	}
	*inode = info.st_ino;
	*changed_sec = info.st_ctim.tv_sec;
	*changed_nsec = info.st_ctim.tv_nsec;
	return true;
}

/* ---- buffers ---- */

char *
kv_io_buffer(int buffer, Size size)
{
	Size		rounded = TYPEALIGN(KV_BLOCK, Max(size, KV_BLOCK));
	void	   *memory;

	Assert(buffer >= 0 && buffer < KV_IO_BUFFERS);
	if (buffers[buffer].size >= size)
		return buffers[buffer].memory;

	if (buffers[buffer].memory == NULL)
		memory = mmap(NULL, rounded, PROT_READ | PROT_WRITE,
					  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	else
		memory = mremap(buffers[buffer].memory, buffers[buffer].size, rounded,
						MREMAP_MAYMOVE);
	if (memory == MAP_FAILED)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("out of memory"),
				 errdetail("Failed on request of size %zu for an I/O buffer.", size)));
	buffers[buffer].memory = memory;
	buffers[buffer].size = rounded;
	return memory;
}

/* ---- write-back of pages ---- */

/*
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
