/*
 * restart.h
 *		What may be trusted after a start, going back to that, and what the WAL adds.
 *
 * Runs in the postmaster and the startup process; no lock is held on entry.  What
 * cannot be decided makes a store unusable rather than raise, except for what concerns
 * all (no memory, no descriptors, a full disk).
 */
#ifndef KV_RESTART_H
#define KV_RESTART_H

#include "catalog/pg_control.h"

#include "engine/base/types.h"
#include "engine/durable/durable.h"

/* What is to be done with the stores. */
typedef struct KvReset
{
	bool		trusted;		/* what those at level 'none' have in the page cache */
	bool		values_lost;	/* those that are not in the WAL */
	bool		images_old;		/* the WAL begins behind them */
	bool		history_lost;	/* nobody knows which transactions committed */
	KvBackupLabel backup;
} KvReset;

/* ---- incarnation.c ---- */
/*
 * In the postmaster, in shmem_startup_hook: begins an incarnation.  FATAL if the directory
 * belongs to another cluster (takeover.c) or is damaged: the operator must say what is to become of
 * it.
 */
extern void kv_incarnation_startup(void);

/* ---- takeover.c ---- */
extern void kv_take_over_gucs(void); /* defines kvfdw.allow_pg_upgrade */
/*
 * In the postmaster, at a start: FATAL if the directory is another server's and not to be
 * taken over; true if it is.  control NULL: there is none.
 */
extern bool kv_take_over(const KvControlFile *control, const ControlFileData *pg_control);
extern void kv_take_over_guard_upgrade(void); /* FATAL if pg_upgrade starts a server with tables */
/* After a crash, where there is no directory: FATAL if there was one. */
extern void kv_take_over_guard_crash(void);
/* When the control file has been written: the data directory's note that it is its own. */
extern void kv_take_over_keep_token(void);

/* ---- spaces.c ---- */
/*
 * In the postmaster, at a start: takes the server's ids from the control file, NULL if there is
 * none, and finishes what a start before has begun.
 */
extern void kv_spaces_begin(const KvControlFile *control);
/*
 * This start makes it another server than those that have the same files: it gets an id of its own.
 */
extern void kv_spaces_part(void);
/* When the control file has the ids: so have the names in tablespaces. */
extern void kv_spaces_claim(void);

/* ---- trust.c ---- */
/* Is what was written under it still in the page cache?  What is not known proves nothing. */
extern bool kv_trust_proves(const KvProof *old);
/*
 * After a crash: has all that was written to files of stores reached the disk, or does it now? To
 * be asked before
 * PostgreSQL syncs the data directory, for the kernel tells of each failure once. all: where there
 * are stores at level 'none', also what was written to files in the directory "kvfdw" that the
 * kernel has forgotten since, unless somebody else has asked the file system and been told; it
 * takes as long as all that others have written to the file system does.
 */
extern bool kv_trust_write_back(bool all);
/* The proof for the next start; with a new witness unless what is there is trusted. */
extern void kv_trust_renew(KvProof *proof, bool trusted);
/* What the backup label, if there is one, says about the copy that this is. */
extern void kv_trust_read_label(KvBackupLabel *label);
/* Do to all stores what must be done before they are opened. */
extern void kv_trust_reset_stores(const KvReset *reset);

/* ---- redo.c ---- */
/*
 * Registers the resource manager of our WAL records.  ERROR but while
 * shared_preload_libraries are loaded.
 */
extern void kv_wal_register(void);

#endif							/* KV_RESTART_H */
