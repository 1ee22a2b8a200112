/*
 * restart.h
 *		What may be believed after a start, going back to that, and what the WAL adds.
 *
 * Runs in the postmaster and the startup process; no lock is held on entry.  What
 * cannot be decided makes a store unusable rather than raise, except for what concerns
 * all (no memory, no descriptors, a full disk).
 */
#ifndef KV_RESTART_H
#define KV_RESTART_H

#include "engine/base/types.h"
#include "engine/durable/durable.h"

/* What is to be done with the stores. */
typedef struct KvReset
{
	bool		believed;		/* what those at level 'none' have in the page cache */
	bool		values_lost;	/* those that are not in the WAL */
	bool		images_old;		/* the WAL begins behind them */
	bool		history_lost;	/* nobody knows which transactions committed */
	KvBackupLabel backup;
} KvReset;

/* ---- incarnation.c ---- */
extern void kv_incarnation_startup(void);	/* in shmem_startup_hook */

/* ---- trust.c ---- */
/* Is what was written under it still in the page cache? */
extern bool kv_trust_proves(const KvProof *old);
extern void kv_trust_renew(KvProof *proof, bool believed);
extern void kv_trust_read_label(KvBackupLabel *label);
extern void kv_trust_reset_stores(const KvReset *reset);

/* ---- redo.c ---- */
/*
 * Registers the resource manager of our WAL records.  ERROR but while
 * shared_preload_libraries are loaded.
 */
extern void kv_wal_register(void);

#endif							/* KV_RESTART_H */
