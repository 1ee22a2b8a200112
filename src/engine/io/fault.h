/*
 * fault.h
 *		Faults and stop points of test builds (fault.c).  In other builds a call site costs nothing.
 *
 * Test builds (-DKVFDW_FAULTS) can fail, shorten, delay or kill at the Nth call of a kind: GUC
 * kvfdw.fault, 'kind:N:action[,…]'.  The action is an errno name (EIO, ENOSPC, …), 'short',
 * 'delay' (100 ms), 'kill' (SIGKILL to self), or 'rot' (the page cache returns wrong bytes; no
 * effect on other calls).  'N+' is the Nth and every later call.  Opening a file counts as a
 * call.  There are also named stop points: GUC kvfdw.stop_points 'name=kill,name=wait,…'
 * (fault.c).
 */
#ifndef KV_IO_FAULT_H
#define KV_IO_FAULT_H

#include "engine/engine.h"

#ifdef KVFDW_FAULTS
/* Does kvfdw.skip name this step? */
extern bool kv_fault_skips(const char *step);
extern const char *kv_fault_boot_id(void);	/* NULL: the kernel's own */
extern int	kv_fault_server_version(void);	/* 0: the server's own */
extern int	kv_fault_buffer_units(void); /* 0: as the settings say */
/*
 * Do what kvfdw.stop_points says for this name: nothing, kill this process, wait, or raise.  A
 * wait outside the postmaster serves interrupts.
 */
extern void kv_stop_point(const char *name);
#define KV_STOP_POINT(name) kv_stop_point(name)
#else
#define kv_fault_skips(step) false
#define kv_fault_boot_id()	((const char *) NULL)
#define kv_fault_server_version() 0
#define kv_fault_buffer_units() 0
#define KV_STOP_POINT(name) ((void) 0)
#endif

#endif							/* KV_IO_FAULT_H */
