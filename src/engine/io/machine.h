/*
 * machine.h
 *		The memory that the server may use, and the unused part of it.
 *
 * Locks and errors: none.
 */
#ifndef KV_MACHINE_H
#define KV_MACHINE_H

#define KV_MACHINE_GROUPS	"/proc/self/cgroup"
#define KV_MACHINE_ROOT		"/sys/fs/cgroup"

/* Bytes of memory of the machine, or of the control group that the first of these files names. */
extern uint64 kv_machine_memory(const char *groups_path, const char *root);
/* Bytes of it that are unused at this moment, by processes and by the page cache. */
extern uint64 kv_machine_idle(const char *groups_path, const char *root);

#endif							/* KV_MACHINE_H */
