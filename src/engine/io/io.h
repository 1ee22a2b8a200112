/*
 * io.h
 *		Access to the file system: every open, read, write, sync, map, rename and unlink of the
 *		engine goes through this module.  This header has open files, and batches of reads and
 *		writes; name.h has files by name, map.h mappings, fault.h faults of test builds.
 *
 * Descriptors are PostgreSQL's virtual files (fd.c), so they never run out; FileGetRawDesc() is
 * called just before each system call.  Value files are opened O_DIRECT where the file system
 * has it (statx DIOALIGN), buffered elsewhere, with one LOG line per process tree and file
 * system.  A buffered write of values waits for its pages.  So in either case the written bytes
 * are on the device, or the writer gets an error.
 *
 * With kvfdw.page_cache value files are opened once more, buffered and for reading only, for
 * values that are read by key and in short ranges.  The page cache and direct I/O to the same
 * file:
 *
 *  - Nothing is written through the page cache, so no page is dirty: a direct write finds none
 *    that it would have to write back or could not drop, and no sync fails because of one.
 *  - The kernel drops the pages of a direct write's range before the write and after it, also
 *    with io_uring.  So a read that begins when the write has ended gets its bytes.  No value
 *    is read before: until then it is in a write buffer, or no entry names it.
 *  - Correctness does not depend on that: every reader compares with the entry's CRC (I 4).
 *    Bytes that are wrong in the page cache, because the file system works differently or
 *    memory is defective, are read from the device before they are called damage.
 *  - Truncating or removing a file drops its pages.  A later file of the same name is another
 *    inode.
 *  - The kernel reads nothing ahead on its own (POSIX_FADV_RANDOM); the request says how much
 *    is read around a value (around).
 *
 * kvfdw.io_method = auto | io_uring | sync.  The ring is private to a process, created at its
 * first batch and never before a fork.  Where the kernel refuses one, 'auto' falls back to
 * pread/pwrite with one LOG line and 'io_uring' is an ERROR.  A batch is complete when its call
 * returns, on every path: no request is ever left in flight after an ERROR (I 6).
 */
#ifndef KV_IO_H
#define KV_IO_H

#include "storage/fd.h"

#include "compat.h"

typedef enum KvIoKind
{
	KV_IO_VALUE_READ,
	KV_IO_VALUE_WRITE,
	KV_IO_VALUE_EXTEND,			/* fallocate */
	KV_IO_LOG_READ,
	KV_IO_LOG_WRITE,
	KV_IO_RUN_MAP,
	KV_IO_RUN_WRITE,
	KV_IO_BUFFER_MAP,
	KV_IO_META_READ,			/* control, table, version log */
	KV_IO_META_WRITE,
	KV_IO_UNLINK,
	KV_IO_SYNC,
	KV_IO_COMPACT_READ,			/* of values that are moved */
	KV_IO_COMPACT_WRITE,
	KV_IO_TIER_READ,
	KV_IO_TIER_WRITE,
	KV_IO_KINDS
} KvIoKind;

extern const char *const kv_io_kind_names[KV_IO_KINDS];	/* 'value read', … */

#define KV_IO_DIRECT	0x01	/* O_DIRECT if the file system has it */
#define KV_IO_CREATE	0x02
#define KV_IO_MISSING_OK 0x04	/* return -1 with errno ENOENT instead of ERROR */
#define KV_IO_READONLY	0x08
#define KV_IO_NOFOLLOW	0x10	/* does not follow a symbolic link */
#define KV_IO_FAIL_OK	0x20	/* return -1 with any errno instead of ERROR */

/* ---- plain files ---- */
/*
 * Open a file; flags: KV_IO_DIRECT, ….  ERROR on failure.  It stays open beyond the
 * transaction, and after an ERROR, until kv_io_close.
 */
extern File kv_io_open(const char *path, int flags, KvIoKind kind);
/*
 * Create a file of so many allocated bytes, with access for this user only; 0 or an errno, also
 * if it exists.
 */
extern int	kv_io_try_make(const char *path, uint64 size, KvIoKind kind);
extern void kv_io_close(File file);
/*
 * Is an open file a plain one of so many bytes, owned and readable by this user only, with one
 * link?
 */
extern bool kv_io_is_private(File file, uint64 size);
typedef struct KvIoInode
{
	uint64		device;
	uint64		number;
} KvIoInode;

/* Has an open file this inode? */
extern bool kv_io_is_inode(File file, const KvIoInode *inode);
/*
 * Lock the file of this name, for as long as this process lives or until kv_io_unlock.  Returns
 * the lock; -1 with errno: EBUSY if another process has it.
 */
extern int	kv_io_try_lock(const char *path, KvIoInode *inode);
extern void kv_io_unlock(int lock);
/* Make an open file durable on which only a cache depends: 0 or an errno. */
extern int	kv_io_try_sync(File file);
/*
 * Is the file of an open descriptor gone?  fd.c closes files to stay within its limit, and
 * opens them again by name.
 */
extern bool kv_io_is_gone(File file);
/*
 * Does the name of an open file still lead to it?  True if that cannot be determined.  Never
 * raises.
 */
extern bool kv_io_has_name(File file);
/*
 * Transfer the whole request or raise ERROR; a read may be short at end of file (returns
 * bytes).
 */
extern int	kv_io_read(File file, void *buf, Size len, uint64 offset, KvIoKind kind);
extern void kv_io_write(File file, const void *buf, Size len, uint64 offset, KvIoKind kind);
/* As these, but return bytes or -errno, 0 or an errno, instead of raising. */
extern int	kv_io_try_read(File file, void *buf, Size len, uint64 offset, KvIoKind kind);
extern int	kv_io_try_write(File file, const void *buf, Size len, uint64 offset, KvIoKind kind);
/* Allocate [0, size), ahead of writes; on failure truncate to old_size and return an errno. */
extern int	kv_io_try_extend(File file, uint64 old_size, uint64 size);
extern uint64 kv_io_size(File file);
/* end of the last byte written; at least from */
extern uint64 kv_io_data_end(File file, uint64 from);
/*
 * Wait for direct writes of dead processes to the file, by an operation before which the file
 * system waits for them.
 */
extern void kv_io_wait(File file);

/* ---- batches of I/O ---- */
/* Are values that are read by key read through the page cache (kvfdw.page_cache)? */
extern bool kv_io_page_cache;
/* Drop this part of a file from the page cache, if it is not in use. */
extern void kv_io_forget_pages(File file, uint64 offset, uint64 len);
/* Have this part read into the page cache, without waiting. */
extern void kv_io_want_pages(File file, uint64 offset, uint64 len);

typedef struct KvIoRequest
{
	File		file;			/* -1: none; the result is -ENOENT */
	uint64		offset;			/* multiple of KV_BLOCK */
	uint32		len;			/* multiple of KV_BLOCK */
	char	   *buffer;			/* aligned to KV_BLOCK; shared or process-lifetime memory */
	int			result;			/* bytes, or -errno; set when the call returns */
	void	   *tag;			/* the caller's */
	bool		cached;			/* the file is not direct */
	/*
	 * of a cached file: blocks of this size, a multiple of KV_BLOCK, that the request touches
	 * are read into the page cache as a whole; 0: only what it asks for
	 */
	uint32		around;
} KvIoRequest;

/* Called for each read that has its result; other reads are in flight, so it must not raise. */
typedef void (*KvIoDone) (KvIoRequest *request, void *arg);

/*
 * Read all requests, kvfdw.io_depth deep.  Returns when every one has a result and was given to
 * done (which may be NULL), in the order in which they finish.  Raises only before the first
 * read starts, and serves no interrupt: callers do, between batches.
 */
extern void kv_io_read_batch(KvIoRequest *requests, int n, KvIoKind kind,
							 KvIoDone done, void *arg);

/*
 * Repeat a failed read block by block; results gets each block's result.  Serves interrupts
 * between two blocks, because a bad device may take seconds for each.  *failures counts
 * failures in a row over several calls.  After too many, or in a worker that is to stop,
 * nothing more is read, and the result is that of the failed read.
 */
extern void kv_io_read_blocks(const KvIoRequest *failed, KvIoKind kind, int *results,
							  int *failures);

/*
 * Asynchronous writes, for the buffer writer only.  submit queues one and raises only before it
 * is queued.  In sync mode it writes at once; with a full ring it waits for one to finish.
 * reap returns a finished one or NULL; wait: block until one finishes if any is in flight.
 * Requests are in the caller's static memory until reaped, and until then count as in flight.
 */
extern void kv_io_submit_write(KvIoRequest *request, KvIoKind kind);
extern KvIoRequest *kv_io_reap_write(bool wait);
extern int	kv_io_writes_in_flight(void);

/*
 * A page-aligned buffer that exists as long as the process (buffer: one of the following
 * numbers).  Its content survives growth, its address may not: no request may be in flight on
 * it when more is asked for.
 */
extern char *kv_io_buffer(int buffer, Size size);
#define KV_IO_BUFFER_READ	0	/* for scans and point reads */
#define KV_IO_BUFFER_WRITE	1	/* for large values */
#define KV_IO_BUFFER_CHECK	2
#define KV_IO_BUFFERS		4

/* Raise an error for a failed call with the right SQLSTATE (53100, 58030, 53300 …). */
extern void kv_io_error(int elevel, int err, const char *path, const char *verb);
/* The same as ERROR, unless err is 0. */
extern void kv_io_require(int err, const char *path, const char *verb);

/* ERROR (XX001): a file that the index names is missing. */
KV_NORETURN extern void kv_io_raise_missing(const char *path);

/* The same for one that ends before the end of what the index names. */
extern void kv_io_report_short(int elevel, const char *path, uint64 end);

/* ---- counters (shared memory, kept by call.c) ---- */
/*
 * Called by engine/start.c: bytes of shared memory, creating or attaching to it, and the
 * settings of this module.
 */
extern Size kv_io_memory(void);
extern void kv_io_attach(void);
extern void kv_io_gucs(void);
/* Set all counters to 0, while other processes may count. */
extern void kv_io_stats_reset(void);

/* ---- the machine (machine.c) ---- */
#define KV_MACHINE_GROUPS	"/proc/self/cgroup"
#define KV_MACHINE_ROOT		"/sys/fs/cgroup"

/* Bytes of memory of the machine, or of the control group that the first of these files names. */
extern uint64 kv_machine_memory(const char *groups_path, const char *root);
/* Bytes of it that are unused at this moment, by processes and by the page cache. */
extern uint64 kv_machine_idle(const char *groups_path, const char *root);

#endif							/* KV_IO_H */
