/*
 * share.h
 *		kvfdw.memory, and the settings that have a share of it unless they are set.
 *
 * Modules define theirs in kv_…_gucs, while the library is loaded by the postmaster, or by a
 * session, for which it means nothing.  Takes no lock.
 */
#ifndef KV_SHARE_H
#define KV_SHARE_H

#include "utils/guc.h"

/*
 * Define a setting of so many megabytes (flags GUC_UNIT_MB) or kilobytes (GUC_UNIT_KB),
 * whose default of -1 stands for some eighths of kvfdw.memory.  check: as of any setting,
 * and it calls kv_share_check.
 */
extern void kv_share_define(const char *name, const char *what, const char *more, int eighths,
							int *variable, int flags, GucIntCheckHook check);
/* Of a setting that has its share, -1 in a file that is read again stands for that. */
extern void kv_share_check(int *value, const int *variable);

/*
 * kvfdw.memory; before the others. machine: bytes that the server may use, by which it is less on a
 * small one.
 */
extern void kv_memory_gucs(uint64 machine);
/* Those that are -1 get what that stands for, so that it is shown; when all are defined. */
extern void kv_memory_divide(void);

#endif							/* KV_SHARE_H */
