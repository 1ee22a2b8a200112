/*
 * io.h
 *		The only door to the file system: every open, read, write, sync, map,
 *		rename and unlink of the engine goes through io.c.
 *
 * Descriptors are PostgreSQL's virtual files (fd.c), so they never run out;
 * FileGetRawDesc() is taken just before each system call.  Value files are
 * opened O_DIRECT where the file system has it (statx DIOALIGN), buffered
 * elsewhere, with one LOG line per process tree and file system.
 *
 * kvfdw.io_method = auto | io_uring | sync.  The ring is private to a process,
 * made at its first batch and never before a fork; where the kernel refuses
 * one, 'auto' falls back to pread/pwrite with one LOG line and 'io_uring' is
 * an ERROR.  A batch is complete when its call returns, on every path: a
 * request is never left in flight behind an ERROR (I 6).
 *
 * Test builds (-DKVFDW_FAULTS) can fail, shorten, delay or kill at the Nth
 * call of a kind: GUC kvfdw.fault, 'kind:N:action[,…]', action one of an errno
 * name (EIO, ENOSPC, …), 'short', 'delay' (100 ms), 'kill' (SIGKILL to self);
 * 'N+' is the Nth and every later call.  Opening a file counts as a call.
 * And named stop points: GUC kvfdw.stop_points 'name=kill,name=wait,…'
 * (fault.c).
 */
#ifndef KV_IO_H
#define KV_IO_H

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
	KV_IO_MERGE_MAP,
	KV_IO_META_READ,			/* control, table, map, manifest */
	KV_IO_META_WRITE,
	KV_IO_UNLINK,
	KV_IO_SYNC,
	KV_IO_KINDS
} KvIoKind;

extern const char *const kv_io_kind_names[KV_IO_KINDS];	/* 'value read', … */

#define KV_IO_DIRECT	0x01	/* O_DIRECT if the file system has it */
#define KV_IO_CREATE	0x02
#define KV_IO_MISSING_OK 0x04	/* return -1 with errno ENOENT instead of ERROR */
#define KV_IO_READONLY	0x08

/* ---- plain files ---- */
extern File kv_io_open(const char *path, int flags, KvIoKind kind);
extern void kv_io_close(File file);
/* Whole request or ERROR; short at end of file only for read (returns bytes). */
extern int	kv_io_read(File file, void *buf, Size len, uint64 offset, KvIoKind kind);
extern void kv_io_write(File file, const void *buf, Size len, uint64 offset, KvIoKind kind);
/* As above, but returns 0 or an errno instead of raising. */
extern int	kv_io_try_write(File file, const void *buf, Size len, uint64 offset, KvIoKind kind);
/* Allocate [0, size): posix_fallocate; on failure cuts back to old_size and returns errno. */
extern int	kv_io_try_extend(File file, uint64 old_size, uint64 size);
extern uint64 kv_io_size(File file);
extern int	kv_io_try_truncate(File file, uint64 size);	/* 0 or errno */
/*
 * Wait until no direct write of a process that is gone is under way on the
 * file, by an operation before which the file system waits for them.
 */
extern void kv_io_settle(File file);

/* Replace a small file atomically (temporary + rename); sync: also durable. */
extern void kv_io_replace(const char *path, const void *data, Size len, bool sync);
/* Make a small file, whole or not at all; one that exists is left alone. */
extern void kv_io_create_new(const char *path, const void *data, Size len, KvIoKind kind);
/* Make a file's content durable; ERROR, or PANIC as data_sync_retry says. */
extern void kv_io_sync_file(const char *path);
extern void kv_io_cut(const char *path, uint64 size);	/* shorten a file nobody uses */
/* Read a whole small file, palloc'd; NULL if missing. */
extern char *kv_io_slurp(const char *path, Size *len);

/* These return 0 or an errno and never raise, allocate or log. */
extern int	kv_io_unlink(const char *path);
extern int	kv_io_rename(const char *from, const char *to);

/* Rename that survives power loss, file contents included; ERROR (PANIC for a failed sync). */
extern void kv_io_durable_rename(const char *from, const char *to);
extern void kv_io_sync_directory(const char *path);	/* makes names created in it durable */
extern void kv_io_mkdir(const char *path);	/* with parents, durable; EEXIST is fine */
extern void kv_io_rmtree(const char *path);	/* WARNING on trouble */
/* What tells a directory from a copy of it: inode and birth time (0 if unknown). */
extern void kv_io_identify(const char *path, uint64 *inode, int64 *birth_sec,
						   uint32 *birth_nsec);

/* ---- memory maps ---- */
/* Map a whole file, read-only (private) or shared read-write.  NULL + errno on failure. */
extern void *kv_io_map(const char *path, bool writable, Size *len, KvIoKind kind);
extern void kv_io_unmap(void *addr, Size len);
/* Create a file of len zero bytes, really written, and sync nothing. ERROR on failure. */
extern void kv_io_create_zeroed(const char *path, Size len, KvIoKind kind);

/* ---- batches of direct I/O ---- */
typedef struct KvIoRequest
{
	File		file;
	uint64		offset;			/* multiple of KV_BLOCK */
	uint32		len;			/* multiple of KV_BLOCK */
	char	   *buffer;			/* aligned to KV_BLOCK; shared or process-lifetime memory */
	int			result;			/* bytes, or -errno; set when the call returns */
	void	   *tag;			/* the caller's */
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
 * Asynchronous writes, for the merge writer only.  submit queues one (in sync
 * mode it writes at once); reap returns a finished one or NULL; wait: block
 * until one finishes if any is in flight.  Requests live in the caller's
 * static memory until reaped.
 */
extern void kv_io_submit_write(KvIoRequest *request, KvIoKind kind);
extern KvIoRequest *kv_io_reap_write(bool wait);
extern int	kv_io_writes_in_flight(void);

/* A page-aligned buffer that lives as long as the process (slot: small integer). */
extern char *kv_io_buffer(int slot, Size size);
#define KV_BUFFER_READ	0		/* scans' and point reads' */
#define KV_BUFFER_WRITE	1		/* large values' */
#define KV_BUFFER_CHECK	2
#define KV_BUFFERS		4

extern bool kv_io_uring_in_use(void);

/* ERROR for a failed call with the right SQLSTATE (53100, 58030, 53300 …). */
extern void kv_io_error(int elevel, int err, const char *path, const char *verb);

/* ---- counters (shared memory, kept by io.c) ---- */
extern Size kv_io_shmem_size(void);
extern void kv_io_shmem_init(bool found);
extern void kv_io_gucs(void);
extern void kv_io_stats_reset(void);

/* ---- stop points ---- */
#ifdef KVFDW_FAULTS
extern void kv_stop_point(const char *name);
#define KV_STOP_POINT(name) kv_stop_point(name)
#else
#define KV_STOP_POINT(name) ((void) 0)
#endif

#endif							/* KV_IO_H */
