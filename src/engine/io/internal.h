/*
 * internal.h
 *		Shared by the files of this module only.
 */
#ifndef KV_IO_INTERNAL_H
#define KV_IO_INTERNAL_H

#include "engine/io/io.h"

/* Count one call; err is 0 or an errno.  Does nothing without shared memory. */
extern void kv_io_stat_add(KvIoKind kind, Size bytes, int err);

/*
 * True for the one caller in a process tree that is to log, once an hour, that rings are
 * refused.
 */
extern bool kv_io_tells_without_ring(void);
/* True for the one caller in a process tree that is to log that this device has no direct I/O. */
extern bool kv_io_first_without_direct(uint64 device);

/* Zeros are written in steps of this size. */
#define KV_ZERO_STEP	(256 * 1024)
extern char kv_io_zeros[KV_ZERO_STEP];

/*
 * The wait event that is shown during I/O (0 in the postmaster, which shows none), and showing
 * it around a system call that may block.
 */
extern uint32 kv_io_wait_event(void);
extern void kv_io_wait_start(void);
extern void kv_io_wait_end(void);

/*
 * Blocking transfers of a whole request: partial and interrupted ones are continued.  first > 0
 * bounds the first system call (an injected short transfer).  pread returns bytes (less than
 * len only at end of file) or -errno, pwrite 0 or an errno.  They never raise.
 */
extern int	kv_io_pread(File file, void *buf, Size len, uint64 offset, Size first);
extern int	kv_io_pwrite(File file, const void *buf, Size len, uint64 offset, Size first);

/*
 * Start writing these pages of an open file, without waiting; len 0: up to its end.  0 or an
 * errno.
 */
extern int	kv_io_start_pages(int fd, uint64 offset, uint64 len);

/*
 * For a file that is not direct: wait until what was just written to it is on the device, as a
 * direct write does, through the descriptor that has written it.  0 or an errno, also of an
 * earlier failure.
 */
extern int	kv_io_wait_written(File file, uint64 offset, uint64 len);

/*
 * Tell the kernel that a read through the page cache must read no more ahead than the request
 * says.  Called before every such read, because fd.c may have opened the file again.
 */
extern void kv_io_advise(int fd, const KvIoRequest *request);

/*
 * Make the content of many open files durable, kvfdw.io_depth at once: the file system commits
 * once for all that wait together.  errs: 0 or an errno for each.  Never raises, and counts each
 * as a sync.
 */
extern void kv_io_sync_descriptors(const int *fds, int n, int *errs);

/*
 * The descriptor of a virtual file, good until the next operation on any other one.  False with
 * errno set if it cannot be opened again.
 */
extern bool kv_io_raw_desc(File file, int *fd);

/* ---- faults of test builds (fault.h) ---- */
#ifdef KVFDW_FAULTS
/*
 * Count one call of this kind and act on kvfdw.fault.  Returns 0 or the errno
 * with which the call must fail; 'short' halves *len (len may be NULL where a
 * call has no length), 'delay' and 'kill' act at once.  Never raises.
 */
extern int	kv_fault(KvIoKind kind, Size *len);
/* Is the last counted call to find other bytes in the page cache?  Then change them. */
extern bool kv_fault_rots(void);
extern void kv_fault_rot(char *bytes, int len);
extern void kv_fault_gucs(void);
extern int64 kv_fault_space(void);	/* bytes; -1: as the file system says */
#else
#define kv_fault(kind, len)	(0)
#define kv_fault_rots() false
#define kv_fault_rot(bytes, len) ((void) 0)
#define kv_fault_gucs()		((void) 0)
#define kv_fault_space() (-1)
#endif

#endif							/* KV_IO_INTERNAL_H */
