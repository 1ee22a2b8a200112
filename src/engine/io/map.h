/*
 * map.h
 *		Files in memory, and guards of mappings against unreadable pages (map.c).
 *
 * A guard's struct is the caller's memory, and must exist from kv_io_guard to kv_io_unguard.
 *
 * With kv_io_guard the owner compares kv_io_guard_failures with 0 after it has read.  If it is
 * not 0 the owner looks for the failed guards and calls kv_io_guard_reported for each.  Such a
 * mapping has zeros in place of the unreadable pages, and must be mapped again.  With
 * kv_io_guard_file the process panics.
 */
#ifndef KV_IO_MAP_H
#define KV_IO_MAP_H

#include <signal.h>

#include "engine/io/io.h"

/* Map a whole file, read-only (private) or shared read-write.  NULL with errno on failure. */
extern void *kv_io_map(const char *path, bool writable, Size *len, KvIoKind kind);
extern void kv_io_unmap(void *addr, Size len);

typedef struct KvIoGuard
{
	const char *path;			/* NULL: the owner looks for failures */
	char	   *addr;
	Size		len;
	Size		offset;			/* of the first page that could not be read */
	volatile bool failed;		/* not reported yet */
	struct KvIoGuard *previous;
	struct KvIoGuard *next;
} KvIoGuard;

extern volatile sig_atomic_t kv_io_guard_failures;	/* guards that have failed */
/* Begin to guard a mapping; its owner looks for failures. */
extern void kv_io_guard(KvIoGuard *guard, void *addr, Size len);
/*
 * Begin to guard a mapping; a failure is a PANIC that names path, which must last as long as
 * the guard.
 */
extern void kv_io_guard_file(KvIoGuard *guard, const char *path, void *addr, Size len);
/* End a guard, before the mapping is unmapped or mapped again; a failure counts as reported. */
extern void kv_io_unguard(KvIoGuard *guard);
/* The owner has handled the guard's failure, if it has one. */
extern void kv_io_guard_reported(KvIoGuard *guard);

#endif							/* KV_IO_MAP_H */
