/*
 * engine.h
 *		The engine's contract with the SQL side: its invariants, its start, and the ends of
 *		transactions.
 *
 * The other parts of the contract: store.h for stores, rows.h for rows, maintenance.h for commands
 * and statistics.
 *
 * Code and tests cite the invariants below as (I 1) … (I 19).  8 and 15 are free: I 14 has both.
 *
 *  I 1  Heap's rules decide visibility.  A version is visible if and only if a
 *       heap tuple with the same xid and command id would be, under the same
 *       snapshot.  No callback publishes anything.
 *  I 2  One writer per key.  A write that meets another transaction's
 *       unfinished version waits for that xid, then looks again.
 *  I 3  Data before index, index before acknowledgement.  An entry becomes
 *       valid (its CRC is stored last) only when the value it names is
 *       readable through its location.
 *  I 4  A location is authoritative once.  An entry's CRC covers key, value,
 *       store, file and offset and is verified on every read.
 *  I 5  An inode is either mmap'd or O_DIRECT, never both; an O_DIRECT file may be
 *       read through the page cache, but is never written so (io.h).  Every mmap'd
 *       byte was written before it was mapped.  Nothing truncates a mapped file.
 *  I 6  A submitted buffer is sealed until its write completes; I/O memory
 *       outlives any ERROR.
 *  I 7  No lock across device I/O, across returning a row, or across waiting
 *       for a client.
 *  I 9  Unlink only after COMMIT.
 *  I 10 Entries of a dead incarnation with xid >= the next xid at the end of
 *       that recovery are aborted, resolved before such an xid is handed out.
 *  I 11 Never wrong bytes, never silence.  Damage is an ERROR (XX001) naming
 *       file, offset and key; other keys keep working.
 *  I 12 Bounded memory: every structure lives inside a GUC-sized budget.
 *  I 13 An address is given out once between two starts of the server, and
 *       never again once an entry names it whose transaction may have committed.
 *  I 14 A file is removed, or a value file cut, only when no live version of a shard names it,
 *       and readers outlive it.  Live are: the present version; the newest mark, and at level
 *       none the logs after it; each mark and map to which a start may go back; while a base
 *       backup runs all that were live when it began; and an output that is being written.
 *       A version names what a key log, a write buffer or the WAL that is still to be read for
 *       it names.  The present version stops naming a value file only by a merge of all runs
 *       that has emitted no entry naming it.  At that time the file is closed, no writer of a
 *       large value in it runs, and all entries naming it are in the merged runs.
 *  I 16 A value that cannot be read or verified is damage only if its key, looked
 *       up again, still has it at the same address.
 *  I 17 Before a shard lists a value file that a compaction has written, every value in it
 *       that an entry will name has been verified, sealed for its new address, and made
 *       durable.
 *  I 18 A process reads or writes a key in a shard only while the map in which it
 *       found the shard still has the shard's bounds.
 *  I 19 A store's value files have at most kvfdw.max_space_amplification times the
 *       bytes of its live values, plus a constant for each shard and one compaction.
 *       Exceptions: a base backup runs, the disk is full, or nothing compacts.  Values
 *       that an older snapshot sees, or a running transaction wrote, are live.
 *
 * All functions here raise ERROR unless they say otherwise.  None holds a lock when it returns.
 */
#ifndef KV_ENGINE_H
#define KV_ENGINE_H

#include "engine/base/error.h"
#include "engine/base/types.h"

/* ---- module start (kvfdw.c calls these) ---- */
extern void kv_engine_gucs(void);	/* defines the engine's GUCs */
extern void kv_engine_preload(void);	/* shmem request, hooks, workers, rmgr */

/* Version of the running server, which may be newer than the one compiled for: 150015, say. */
extern int	kv_server_version(void);

/* ---- transactions (called by kvfdw.c's callbacks) ---- */
extern void kv_engine_before_commit(void);	/* PRE_COMMIT, PRE_PREPARE: may throw */
/* Before that: stores that the transaction has made, and whose versions are not logged. */
extern void kv_engine_before_commit_of_stores(void);
extern void kv_engine_at_prepare(void);	/* as at_commit */
extern void kv_engine_at_commit(void);	/* never throws, allocates or waits */
/* As at_commit: discards the stores that the transaction's CREATE or TRUNCATE has made. */
extern void kv_engine_at_abort(void);
/*
 * Never throws.  On commit the pending work of mine becomes parent's; else as at_abort, for
 * mine.
 */
extern void kv_engine_at_subxact(bool commit, SubTransactionId mine,
								 SubTransactionId parent);
extern bool kv_engine_has_pending_files(void);	/* TRUNCATE or DROP pending */
/*
 * This session begins a backup with pg_backup_start: may throw.  Or it runs none: as at_commit.
 */
extern void kv_engine_note_backup(bool running);

/* Rows count as changed when their transaction has ended.  Called as kv_engine_at_commit. */
extern void kv_changes_at_end(bool commit);
extern void kv_changes_at_subxact_abort(SubTransactionId subid);
/* After an ERROR in kv_insert_many, say: the versions that were put will not be logged. */
extern void kv_many_forget(void);

/* ---- test builds (io/fault.c) ---- */
#ifdef KVFDW_FAULTS
/* Does kvfdw.skip name this step? */
extern bool kv_fault_skips(const char *step);
#else
#define kv_fault_skips(step) false
#endif

#endif							/* KV_ENGINE_H */
