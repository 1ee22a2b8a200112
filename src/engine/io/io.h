/*
 * io.h
 *		The only door to the file system: every open, read, write, sync, map,
 *		rename and unlink of the engine goes through file.c.
 *
 * Descriptors are PostgreSQL's virtual files (fd.c), so they never run out;
 * FileGetRawDesc() is taken just before each system call.  Value files are
 * opened O_DIRECT where the file system has it (statx DIOALIGN), buffered
 * elsewhere, with one LOG line per process tree and file system.  There a write of
 * values waits for its pages: either way what is written is on the device, or its
 * writer told.
 *
 * What goes through the page cache is on the device later, or fails to get there, and
 * the kernel is sure to tell only a descriptor that was open all the time.  So a
 * file is synced by the one that has written it, or its pages are waited for by that
 * (writeback.c), or it is read and verified behind the sync (format/keylog.c).
 *
 * With kvfdw.page_cache they are opened once more, buffered and for reading only,
 * for values that are read by key and in short ranges.  Pages of the page cache
 * beside direct I/O:
 *
 *  - nothing is written through them, so none is dirty: a direct write finds
 *    none that it would have to write back or could not drop, and no sync fails
 *    for their sake.
 *  - the kernel drops pages of what is written directly, before the write and
 *    behind it, io_uring's included.  So a read that begins when the write has
 *    ended has its bytes; and no value is read before, for until then it is in
 *    a write buffer or nothing names it.
 *  - nothing hangs on that: whoever reads compares with the entry's CRC (I 4), and
 *    what the page cache has wrong, because the file system does otherwise or memory
 *    has rotted, is read from the device before it is called damage.
 *  - what is truncated or removed takes its pages with it.  A file of the same
 *    name made later is another inode.
 *  - the kernel reads nothing ahead by itself (POSIX_FADV_RANDOM); what is read beside
 *    a value is what the request says (around).
 *
 * kvfdw.io_method = auto | io_uring | sync.  The ring is private to a process,
 * made at its first batch and never before a fork; where the kernel refuses
 * one, 'auto' falls back to pread/pwrite with one LOG line and 'io_uring' is
 * an ERROR.  A batch is complete when its call returns, on every path: a
 * request is never left in flight behind an ERROR (I 6).
 *
 * Test builds (-DKVFDW_FAULTS) can fail, shorten, delay or kill at the Nth
 * call of a kind: GUC kvfdw.fault, 'kind:N:action[,…]', action one of an errno
 * name (EIO, ENOSPC, …), 'short', 'delay' (100 ms), 'kill' (SIGKILL to self), 'rot'
 * (what the page cache gives is wrong; on other calls nothing);
 * 'N+' is the Nth and every later call.  Opening a file counts as a call.
 * And named stop points: GUC kvfdw.stop_points 'name=kill,name=wait,…'
 * (fault.c).
 */
#ifndef KV_IO_H
#define KV_IO_H

#include <signal.h>

#include "storage/fd.h"

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
	KV_IO_META_READ,			/* control, table, map, manifest */
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
#define KV_IO_NOFOLLOW	0x10	/* not by a symbolic link */
#define KV_IO_FAIL_OK	0x20	/* return -1 with errno, whatever it is, instead of ERROR */

/* ---- plain files ---- */
/*
 * Open a file; flags: KV_IO_DIRECT, ….  ERROR if it cannot be.  It stays open beyond
 * the transaction, and after an ERROR, until kv_io_close.
 */
extern File kv_io_open(const char *path, int flags, KvIoKind kind);
/* As above; -1 and errno: it cannot be. */
extern File kv_io_try_open(const char *path, int flags, KvIoKind kind);
/* Make a file of so many allocated bytes, for nobody else; 0 or an errno: so if there is one. */
extern int	kv_io_try_make(const char *path, uint64 size, KvIoKind kind);
extern void kv_io_close(File file);
/* Is an open file a plain one of so many bytes that only this user has, under one name? */
extern bool kv_io_is_private(File file, uint64 size);
typedef struct KvIoInode
{
	uint64		device;
	uint64		number;
} KvIoInode;

/* Is an open file this one? */
extern bool kv_io_is_inode(File file, const KvIoInode *inode);
/*
 * Lock the file that has this name, for as long as this process lives or until kv_io_unlock.
 * Returns the lock; -1 and errno: EBUSY if another process has it.
 */
extern int	kv_io_try_lock(const char *path, KvIoInode *inode);
extern void kv_io_unlock(int lock);
/* Make an open file durable, of which nothing but a cache depends: 0 or an errno. */
extern int	kv_io_try_sync(File file);
/* Does the postmaster stop?  It tells others in its file. */
extern bool kv_io_server_stops(void);
/*
 * Is an open file gone? fd.c closes files to stay within its limit, and opens them again by name.
 */
extern bool kv_io_is_gone(File file);
/*
 * Of one that is open now: does its name still lead to it? True if that cannot be told. Never
 * raises.
 */
extern bool kv_io_has_name(File file);
/* Whole request or ERROR; short at end of file only for read (returns bytes). */
extern int	kv_io_read(File file, void *buf, Size len, uint64 offset, KvIoKind kind);
extern void kv_io_write(File file, const void *buf, Size len, uint64 offset, KvIoKind kind);
/* As above, but return bytes or -errno, 0 or an errno, instead of raising. */
extern int	kv_io_try_read(File file, void *buf, Size len, uint64 offset, KvIoKind kind);
extern int	kv_io_try_write(File file, const void *buf, Size len, uint64 offset, KvIoKind kind);
/* Allocate [0, size), ahead of writes; on failure cuts back to old_size and returns errno. */
extern int	kv_io_try_extend(File file, uint64 old_size, uint64 size);
extern uint64 kv_io_size(File file);
/* end of the last byte written; from at least */
extern uint64 kv_io_data_end(File file, uint64 from);
/*
 * Wait until no direct write of a process that is gone is under way on the
 * file, by an operation before which the file system waits for them.
 */
extern void kv_io_wait(File file);

/* Make a small file, anew if it exists. */
extern void kv_io_create(const char *path, const void *data, Size len);
typedef struct KvIoNew
{
	const char *path;
	const void *data;
	Size		len;
} KvIoNew;

/*
 * Make small files, anew if they exist, with durable content; their names are so with their
 * directory's. Those of a call are
 * written together.  ERROR, or PANIC as data_sync_retry says, of a sync.
 */
extern void kv_io_create_durable(const KvIoNew *files, int n);
/*
 * Replace a small file atomically (temporary + rename); sync: also durable. ERROR, of a sync as
 * well.
 */
extern void kv_io_replace(const char *path, const void *data, Size len, bool sync);
/* Make a small file, whole or not at all; one that exists is left alone. */
extern void kv_io_create_new(const char *path, const void *data, Size len, KvIoKind kind);
/*
 * Make a file's content durable; ERROR, or PANIC as data_sync_retry says. Tells of what could not
 * be written back before only while the kernel has not forgotten it: for files whose pages were
 * waited for, or written by nobody here.
 */
extern void kv_io_sync_file(const char *path);
extern void kv_io_sync_open(File file); /* likewise, of an open file */
extern void kv_io_cut(const char *path, uint64 size);	/* shorten a file nobody uses */
extern int	kv_io_try_cut(const char *path, uint64 size);	/* 0 or an errno */
/* Read a piece of a file, and the file's length; false if it is missing or shorter. */
extern bool kv_io_slurp_piece(const char *path, uint64 offset, void *into, Size bytes, Size *len);
/* Read all of a file, to see that it can be: 0 or an errno. */
extern int	kv_io_read_through(const char *path, KvIoKind kind);
/* Read the beginning of a file: bytes or -errno.  Never raises or allocates. */
extern int	kv_io_peek(const char *path, void *into, Size bytes);
/* Read a whole small file, palloc'd; NULL if missing. */
extern char *kv_io_slurp(const char *path, Size *len);

/* These return 0 or an errno and never raise, allocate or log. */
extern int	kv_io_unlink(const char *path);
extern int	kv_io_rename(const char *from, const char *to);

/* Unlink a file.  False, with a WARNING: it is still there. */
extern bool kv_io_gone(const char *path);

extern void kv_io_sync_directory(const char *path);	/* makes names in it durable */
/* likewise; no ERROR if it is missing */
extern void kv_io_sync_directory_if_there(const char *path);
extern void kv_io_mkdir(const char *path);	/* with parents, durable; EEXIST is fine */
extern void kv_io_rmtree(const char *path);	/* trouble: WARNING, and on */
/*
 * Free up to most bytes of a file that nobody needs, and remove it when it has no more.
 * in_place: bytes keep their places, for it may be mapped; whole: just remove it; finish:
 * wait for the file system.  Adds to *freed; 0 (also if it is missing) or an errno.
 */
extern int	kv_io_release(const char *path, bool in_place, bool whole, uint64 most,
						  bool finish, uint64 *freed);
/* Wait until the file system has noted what happened to its names; ignores failures. */
extern void kv_io_wait_directory(const char *path);
/* Is little space left, or was there none for a call a moment ago? */
extern bool kv_io_space_is_short(const char *path);
/*
 * Bytes that work which can wait may take for a while, with a reserve left for what cannot.
 * PG_UINT64_MAX: the file system does not say.
 */
extern uint64 kv_io_space_to_spare(const char *path);

#define KV_DIRECTORY	"kvfdw"	/* in the data directory */
#define KV_WITNESS_PATH KV_DIRECTORY "/witness"
/*
 * A sync has failed: what was written is not to be trusted any more.  Removes the
 * file that says that it is (restart/trust.c); every failed sync comes by here.
 * Keeps errno, and never raises.
 */
extern void kv_io_sync_failed(void);

/* ---- pages that are written later (writeback.c) ---- */
/*
 * Have a file's content written, or these bytes of an open one, and do not wait: who syncs it, or
 * waits for its pages, is
 * told of failures. Of one that is met at once: ERROR, or PANIC as data_sync_retry says; or 0 or an
 * errno.
 */
extern void kv_io_start_write_back(const char *path);
extern int	kv_io_start_write_back_file(File file, uint64 offset, uint64 len);
/*
 * Have all pages written, and wait: of an open file; of the files below a path, as far as can be,
 * if it is
 * there, with a LOG of each failure; of the whole file system that a directory is in. 0 or an
 * errno, also of a failure before
 * that nobody has been told.  Nothing is as durable as after a sync.
 */
extern int	kv_io_try_write_back_file(File file);
extern int	kv_io_try_write_back(const char *path);
extern int	kv_io_try_write_back_all(const char *directory);
/*
 * If the kernel has failed to write pages of a file, and nobody has been told: ERROR, or PANIC as
 * data_sync_retry
 * says.  Has nothing written, but waits for what is being written.
 */
extern void kv_io_require_write_back(const char *path);

/* ---- what tells a file, and a mount, from another (identity.c) ---- */
/* Numbers of a path's mounted file system that no other has; 0: not known. */
extern void kv_io_identify_mount(const char *path, uint64 *mount, uint64 *superblock);
/* Inode and change time; false if there is no such file. */
extern bool kv_io_identify_file(const char *path, uint64 *inode, int64 *changed_sec,
								uint32 *changed_nsec);

/* ---- memory maps ---- */
/* Map a whole file, read-only (private) or shared read-write.  NULL + errno on failure. */
extern void *kv_io_map(const char *path, bool writable, Size *len, KvIoKind kind);
extern void kv_io_unmap(void *addr, Size len);

/*
 * Guards of mappings against pages that cannot be read (guard.c).  The caller's
 * memory, in place from kv_io_guard to kv_io_unguard.  With kv_io_guard the owner
 * compares kv_io_guard_failures with 0 after it has read, and if it is not looks
 * for the guards that have failed and calls kv_io_guard_reported for each.  The
 * mapping has zeros in place of what could not be read, and must be made anew.
 * With kv_io_guard_file the process panics.
 */
typedef struct KvIoGuard
{
	const char *path;			/* NULL: the owner looks */
	char	   *addr;
	Size		len;
	Size		offset;			/* of the first page that could not be read */
	volatile bool failed;		/* and not reported */
	struct KvIoGuard *previous;
	struct KvIoGuard *next;
} KvIoGuard;

extern volatile sig_atomic_t kv_io_guard_failures;	/* guards that have failed */
/* Begin to guard a mapping, as said above; failures are for the owner to look for. */
extern void kv_io_guard(KvIoGuard *guard, void *addr, Size len);
/* The same; a failure is a PANIC that names path, which must last as long as the guard. */
extern void kv_io_guard_file(KvIoGuard *guard, const char *path, void *addr, Size len);
/* End it, before the mapping is unmapped or made anew; a failure counts as reported. */
extern void kv_io_unguard(KvIoGuard *guard);
/* The owner has dealt with the guard's failure, if it has one. */
extern void kv_io_guard_reported(KvIoGuard *guard);
/* Create a file of len zero bytes, really written, and sync nothing. ERROR on failure. */
extern void kv_io_create_zeroed(const char *path, Size len, KvIoKind kind);

/* ---- batches of I/O ---- */
/* Are values that are read by key read through the page cache (kvfdw.page_cache)? */
extern bool kv_io_page_cache;
/* Have the page cache forget what it has of this part of a file, if nobody is at it. */
extern void kv_io_forget_pages(File file, uint64 offset, uint64 len);
/* Have it read this part, without waiting for that. */
extern void kv_io_want_pages(File file, uint64 offset, uint64 len);

typedef struct KvIoRequest
{
	File		file;			/* -1: there is none; the result is -ENOENT */
	uint64		offset;			/* multiple of KV_BLOCK */
	uint32		len;			/* multiple of KV_BLOCK */
	char	   *buffer;			/* aligned to KV_BLOCK; shared or process-lifetime memory */
	int			result;			/* bytes, or -errno; set when the call returns */
	void	   *tag;			/* the caller's */
	bool		cached;			/* the file is not direct */
	/*
	 * such a one's blocks of this size, a multiple of KV_BLOCK, of which it reads a part are read
	 * into the page cache as a whole; 0: no more than it asks for
	 */
	uint32		around;
} KvIoRequest;

/* What to do with a read that has its result; others are under way, so it must not raise. */
typedef void (*KvIoDone) (KvIoRequest *request, void *arg);

/*
 * Read all requests, kvfdw.io_depth deep; returns when every one has a result
 * and was given to done (which may be NULL), in the order in which they finish.
 * Raises only before the first read starts, and serves no interrupt: callers
 * do, between batches.
 */
extern void kv_io_read_batch(KvIoRequest *requests, int n, KvIoKind kind,
							 KvIoDone done, void *arg);

/*
 * Of a read of whole blocks that has failed, each by itself: what came of it, in results.  Serves
 * interrupts between two, for a bad device may take seconds for each.  *failures, in a row, goes on
 * from call to call: from a device that fails again and again, or in a worker that is to stop, no
 * more is read, and the result is that of the first read.
 */
extern void kv_io_read_blocks(const KvIoRequest *failed, KvIoKind kind, int *results,
							  int *failures);

/*
 * Asynchronous writes, for the buffer writer only.  submit queues one (in sync mode it
 * writes at once; with a full ring it waits for one to finish), and raises only before it
 * is queued; reap returns a finished one or NULL; wait: block until one finishes if any is
 * in flight.  Requests live in the caller's static memory until reaped, and count as in
 * flight.
 */
extern void kv_io_submit_write(KvIoRequest *request, KvIoKind kind);
extern KvIoRequest *kv_io_reap_write(bool wait);
extern int	kv_io_writes_in_flight(void);

/*
 * A page-aligned buffer that lives as long as the process (write buffer: small integer).  Its
 * content survives growth, its address may not: no request may be in flight on it when more
 * is asked for.
 */
extern char *kv_io_buffer(int buffer, Size size);
#define KV_IO_BUFFER_READ	0	/* scans' and point reads' */
#define KV_IO_BUFFER_WRITE	1	/* large values' */
#define KV_IO_BUFFER_CHECK	2
#define KV_IO_BUFFERS		4


/* ERROR for a failed call with the right SQLSTATE (53100, 58030, 53300 …). */
extern void kv_io_error(int elevel, int err, const char *path, const char *verb);

/* ---- counters (shared memory, kept by call.c) ---- */
/*
 * What engine/start.c calls: bytes of shared memory, making or attaching to it, and the
 * settings of all of io/.
 */
extern Size kv_io_memory(void);
extern void kv_io_attach(void);
extern void kv_io_gucs(void);
/* Set all counters to 0, while others may count. */
extern void kv_io_stats_reset(void);

/* ---- stop points ---- */
#ifdef KVFDW_FAULTS
/*
 * What kvfdw.stop_points says for this name: nothing, kill this process, wait, or raise.
 * A wait outside the postmaster serves interrupts.
 */
extern void kv_stop_point(const char *name);
#define KV_STOP_POINT(name) kv_stop_point(name)
#else
#define KV_STOP_POINT(name) ((void) 0)
#endif

#endif							/* KV_IO_H */
