/*
 * name.h
 *		Files by name: small ones that are read or written whole, directories, removal, and what
 *		makes bytes and names durable.
 *
 * No descriptor stays open.  These functions work in every process, the postmaster and the startup
 * process included.
 *
 * Pages in the page cache are written to the device later, and that may fail.  The kernel is
 * sure to report the failure only to a descriptor that was open all the time.  So one of three
 * things is done.  The process that has written a file syncs it; that process waits for its
 * pages (file.c); or the file is read and verified after the sync (format/keylog.c).
 *
 * Errors: ERROR, with the file's name, except where a function says that it returns an errno.  A
 * failed sync is an ERROR, or PANIC if data_sync_retry is off.
 */
#ifndef KV_IO_NAME_H
#define KV_IO_NAME_H

#include "storage/fd.h"

#include "engine/io/io.h"

#define KV_DIRECTORY	"kvfdw"	/* in the data directory */
#define KV_WITNESS_PATH KV_DIRECTORY "/witness"

/* ---- small files ---- */
/* Create a small file, or replace its content. */
extern void kv_io_create(const char *path, const void *data, Size len);
/*
 * Replace a small file atomically (temporary + rename); sync: also durably.  ERROR on failure,
 * also of a sync.
 */
extern void kv_io_replace(const char *path, const void *data, Size len, bool sync);
/* Create a small file, whole or not at all; an existing one is left unchanged. */
extern void kv_io_create_new(const char *path, const void *data, Size len, KvIoKind kind);
extern void kv_io_cut(const char *path, uint64 size);	/* truncates an unused file */
extern int	kv_io_try_cut(const char *path, uint64 size);	/* the same; 0 or an errno */
/* Read a piece of a file, and get the file's length; false if it is missing or shorter. */
extern bool kv_io_slurp_piece(const char *path, uint64 offset, void *into, Size bytes, Size *len);
/* Read all of a file, to check that it is readable: 0 or an errno. */
extern int	kv_io_read_through(const char *path, KvIoKind kind);
/* Read the beginning of a file: returns bytes or -errno.  Never raises or allocates. */
extern int	kv_io_peek(const char *path, void *into, Size bytes);
/* Read a whole small file, palloc'd; NULL if it is missing. */
extern char *kv_io_slurp(const char *path, Size *len);

/* These return 0 or an errno and never raise, allocate or log. */
extern int	kv_io_unlink(const char *path);
extern int	kv_io_rename(const char *from, const char *to);

/* Unlink a file.  False, with a WARNING: it still exists. */
extern bool kv_io_gone(const char *path);

extern void kv_io_mkdir(const char *path);	/* with parents, durable; EEXIST is fine */
extern void kv_io_rmtree(const char *path);	/* removes a tree; errors are WARNINGs */
/*
 * Free up to most bytes of an unneeded file, and remove it when it has no more.  in_place: keep
 * the offsets of bytes, because the file may be mapped.  whole: just remove it.  finish: wait
 * for the file system.  Adds to *freed; returns 0 (also if the file is missing) or an errno.
 */
extern int	kv_io_release(const char *path, bool in_place, bool whole, uint64 most,
						  bool finish, uint64 *freed);
/* Wait until the file system has recorded changes of its names; ignores failures. */
extern void kv_io_wait_directory(const char *path);
/* Is little space left, or did a call fail a moment ago because there was none? */
extern bool kv_io_space_is_short(const char *path);
/*
 * Bytes that deferrable work may use for a while; a reserve is left for other work.
 * PG_UINT64_MAX: the file system does not say.
 */
extern uint64 kv_io_space_to_spare(const char *path);
/* Create a file of len zero bytes, really written, without a sync.  ERROR on failure. */
extern void kv_io_create_zeroed(const char *path, Size len, KvIoKind kind);
/* Is the postmaster stopping?  Its pid file says so. */
extern bool kv_io_server_stops(void);
/* Numbers that identify the mounted file system of a path; 0: not known. */
extern void kv_io_identify_mount(const char *path, uint64 *mount, uint64 *superblock);
/* Inode and change time; false if there is no such file. */
extern bool kv_io_identify_file(const char *path, uint64 *inode, int64 *changed_sec,
								uint32 *changed_nsec);

/* ---- durability ---- */
/*
 * Make a file's content durable; ERROR on failure, or PANIC if data_sync_retry is off.  Reports
 * an earlier failure of write-back only until the kernel forgets it.  So this is for files
 * whose pages were waited for, or that this server has not written.
 */
extern void kv_io_sync_file(const char *path);
/*
 * The same for many files, which are synced together, up to kvfdw.io_depth at once.  After the
 * sync of a file synced() is called with its place in paths, while the descriptor is still open
 * that was open before the sync; it may raise.  NULL: nothing is called.  Serves interrupts.
 */
extern void kv_io_sync_files(const char *const *paths, int n, void (*synced) (int i, void *arg),
							 void *arg);
extern void kv_io_sync_directory(const char *path);	/* makes names in it durable */
/* the same; no ERROR if it is missing */
extern void kv_io_sync_directory_if_there(const char *path);
/*
 * A sync has failed: earlier writes cannot be trusted any more.  Removes the file that says
 * that they can (restart/trust.c).  Every failed sync calls this.  Preserves errno, and never
 * raises.
 */
extern void kv_io_sync_failed(void);

/* ---- write-back of pages (file.c) ---- */
/*
 * Start to write these bytes of an open file, without waiting: the process that syncs the file,
 * or waits for its pages, gets the errors.  0 or an errno, of an immediate error.
 */
extern int	kv_io_start_write_back_file(File file, uint64 offset, uint64 len);
/*
 * Write all pages, and wait: of an open file; of the files below a path, if it exists, as far
 * as possible, with a LOG of each error; of the whole file system of a directory.  0 or an
 * errno, also of an earlier failure that was not yet reported.  The result is less durable than
 * after a sync.
 */
extern int	kv_io_try_write_back_file(File file);
extern int	kv_io_try_write_back(const char *path);
extern int	kv_io_try_write_back_all(const char *directory);
/*
 * If the kernel has failed to write pages of a file, and has not reported it: ERROR, or PANIC
 * if data_sync_retry is off.  Starts no writes, but waits for those in progress.
 */
extern void kv_io_require_write_back(const char *path);

#endif							/* KV_IO_NAME_H */
