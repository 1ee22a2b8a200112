/*
 * share.h
 *		kvfdw.memory, and the settings that by default are a share of it.
 *
 * Modules define their settings in kv_…_gucs, when the library is loaded by the postmaster, or
 * by a session, for which the settings have no meaning.  Locks: none.
 */
#ifndef KV_SHARE_H
#define KV_SHARE_H

#include "utils/guc.h"

/*
 * Define a setting in megabytes (flags GUC_UNIT_MB) or kilobytes (GUC_UNIT_KB), whose default
 * of -1 stands for some eighths of kvfdw.memory.  check is the setting's check hook, and calls
 * kv_share_check.
 */
extern void kv_share_define(const char *name, const char *what, const char *more, int eighths,
							int *variable, int flags, GucIntCheckHook check);
/*
 * In a check hook: if a reloaded file has -1 for a setting that has its share, replace it by
 * the share.
 */
extern void kv_share_check(int *value, const int *variable);

/*
 * Define kvfdw.memory; called before kv_share_define.  machine: bytes that the server may use;
 * on a small machine the default is less.
 */
extern void kv_memory_gucs(uint64 machine);
/*
 * Replace each -1 by the share that it stands for, so that SHOW shows it; called when all
 * settings are defined.
 */
extern void kv_memory_divide(void);

#endif							/* KV_SHARE_H */
