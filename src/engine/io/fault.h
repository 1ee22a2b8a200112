/*
 * fault.h
 *		Faults that test builds (-DKVFDW_FAULTS) inject into file.c's calls; in
 *		other builds a call site costs nothing.
 */
#ifndef KV_FAULT_H
#define KV_FAULT_H

#include "engine/io/io.h"

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
extern bool kv_fault_skips(const char *step);
extern const char *kv_fault_boot_id(void);	/* NULL: the kernel's own */
extern int	kv_fault_server_version(void);	/* 0: the server's own */
extern int	kv_fault_buffer_units(void); /* 0: as the settings say */
extern int64 kv_fault_space(void);	/* bytes; -1: as the file system says */

#else

#define kv_fault(kind, len)	(0)
#define kv_fault_rots() false
#define kv_fault_rot(bytes, len) ((void) 0)
#define kv_fault_gucs()		((void) 0)
#define kv_fault_skips(step) false
#define kv_fault_boot_id()	((const char *) NULL)
#define kv_fault_server_version() 0
#define kv_fault_buffer_units() 0
#define kv_fault_space() (-1)

#endif							/* KVFDW_FAULTS */

#endif							/* KV_FAULT_H */
