/*
 * machine.h
 *		How much memory the server may use, and how much of it lies idle. Takes no lock, raises
 *		nothing.
 */
#ifndef KV_MACHINE_H
#define KV_MACHINE_H

#define KV_MACHINE_GROUPS	"/proc/self/cgroup"
#define KV_MACHINE_ROOT		"/sys/fs/cgroup"

/* Bytes: of the machine, or of the control group that the first of these files names. */
extern uint64 kv_machine_memory(const char *groups_path, const char *root);
/* … of which nothing is in, at this moment: no process has it, nor the page cache. */
extern uint64 kv_machine_idle(const char *groups_path, const char *root);

#endif							/* KV_MACHINE_H */
