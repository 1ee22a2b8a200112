/*
 * restart.h
 *		Crash recovery: decides which files can be trusted, sets every store back to durable
 *		state, and replays WAL on top.
 *
 * Runs in the postmaster and the startup process; no lock is held on entry.  Errors: a problem
 * of one store makes that store unusable and recovery continues.  Problems that concern all
 * stores (memory, descriptors, disk full) are raised.
 */
#ifndef KV_RESTART_H
#define KV_RESTART_H

#include "catalog/pg_control.h"

#include "engine/base/types.h"
#include "engine/durable/durable.h"

/* What is to be done with the stores. */
typedef struct KvReset
{
	bool		trusted;		/* the page cache of stores at level 'none' is trusted */
	bool		values_lost;	/* values that are not in the WAL */
	bool		marks_old;		/* the WAL begins after them */
	bool		history_lost;	/* it is not known which transactions committed */
	KvBackupLabel backup;
} KvReset;

/* ---- trust.c ---- */
/*
 * In the postmaster, in shmem_startup_hook: begin an incarnation.  FATAL if the directory
 * belongs to another cluster (takeover.c) or is damaged: the operator must decide what to do.
 */
extern void kv_incarnation_startup(void);

/* ---- takeover.c ---- */
extern void kv_take_over_gucs(void); /* defines kvfdw.allow_pg_upgrade */
/*
 * In the postmaster, at a start: FATAL if the directory belongs to another server and may not
 * be taken over; true if it is taken over.  control NULL: there is none.
 */
extern bool kv_take_over(const KvControlFile *control, const ControlFileData *pg_control);
extern void kv_take_over_guard_upgrade(void); /* FATAL if pg_upgrade starts a server with tables */
/* After a crash, when there is no directory: FATAL if there was one. */
extern void kv_take_over_guard_crash(void);
/*
 * When the control file has been written: write the data directory's token for its own
 * directory.
 */
extern void kv_take_over_keep_token(void);

/* ---- takeover.c ---- */
/*
 * In the postmaster, at a start: take the server's ids from the control file, NULL if there is
 * none, and finish what an earlier start has begun.
 */
extern void kv_spaces_begin(const KvControlFile *control);
/*
 * This start makes the server different from others that have the same files: give it an id of
 * its own.
 */
extern void kv_spaces_part(void);
/* When the control file has the new id: rename directories in tablespaces. */
extern void kv_spaces_claim(void);

/* ---- trust.c ---- */
/*
 * Is what was written with this proof still in the page cache?  An unknown value proves
 * nothing.
 */
extern bool kv_trust_proves(const KvProof *old);
/*
 * After a crash: have all bytes that were written to files of stores reached the disk, or do
 * they now?  Called before PostgreSQL syncs the data directory, because the kernel reports each
 * failure once.
 *
 * all: where there are stores at level 'none', also checks files in the directory "kvfdw" that
 * the kernel has forgotten since, unless another process has asked the file system and got the
 * failure.  That takes until all writes of other processes to the file system are done.
 */
extern bool kv_trust_write_back(bool all);
/* Make the proof for the next start; with a new witness unless the present state is trusted. */
extern void kv_trust_renew(KvProof *proof, bool trusted);
/* Read the backup label, if there is one, of which this data directory is a copy. */
extern void kv_trust_read_label(KvBackupLabel *label);
/* Do to all stores what must be done before they are opened. */
extern void kv_trust_reset_stores(const KvReset *reset);

/* ---- redo.c ---- */
/*
 * Register the resource manager of our WAL records.  ERROR unless shared_preload_libraries are
 * being loaded.
 */
extern void kv_wal_register(void);

#endif							/* KV_RESTART_H */
