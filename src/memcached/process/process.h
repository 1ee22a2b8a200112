/*
 * process.h
 *		The base of every process of the memcached front end: settings, shared memory,
 *		counters, transactions, WAL flushes, the marks of a flush_all.
 *
 * This module knows no connection and no table.  Locks: none is held on entry or when these
 * functions return.  KvMcShared.lock guards the fields of shared memory that say so.  Errors:
 * PostgreSQL's own.
 */
#ifndef KV_MEMCACHED_PROCESS_H
#define KV_MEMCACHED_PROCESS_H

#include "postgres.h"

#include "access/xlogdefs.h"
#include "port/atomics.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "utils/timestamp.h"

#include "memcached/protocol/protocol.h"

#define KV_MC_MAX_WORKERS	64

struct KvMcConnection;

/* ---- process.c: settings ---- */

typedef enum KvMcCommit
{
	KV_MC_COMMIT_OFF, KV_MC_COMMIT_DRAIN, KV_MC_COMMIT_ON
} KvMcCommit;

typedef enum KvMcAuth
{
	KV_MC_AUTH_NONE, KV_MC_AUTH_PASSWORD
} KvMcAuth;

extern int	kv_mc_workers;
extern char *kv_mc_database;
extern char *kv_mc_role;
extern char *kv_mc_listen;
extern int	kv_mc_port;
extern char *kv_mc_socket;
extern int	kv_mc_auth;
extern int	kv_mc_commit;
extern int	kv_mc_max_connections;
extern int	kv_mc_memory_kb;
extern int	kv_mc_item_size_kb;
extern int	kv_mc_lock_timeout_ms;
extern int	kv_mc_idle_timeout_s;
extern int	kv_mc_client_timeout_s;
extern int	kv_mc_quota;
extern int	kv_mc_reap_interval_s;
extern int	kv_mc_reap_rate;
extern int	kv_mc_udp_port;
extern bool kv_mc_flush_all;

extern void kv_mc_settings(void);	/* defines the settings */

/* ---- process.c: setup, and the state of all processes ---- */

typedef enum KvMcCount
{
	KV_MC_COUNT_CONNECTIONS, KV_MC_COUNT_REJECTED, KV_MC_COUNT_DROPPED,
	KV_MC_COUNT_GETS, KV_MC_COUNT_HITS, KV_MC_COUNT_MISSES, KV_MC_COUNT_EXPIRED,
	KV_MC_COUNT_SETS, KV_MC_COUNT_TOO_LARGE, KV_MC_COUNT_NO_MEMORY, KV_MC_COUNT_DEBUGS,
	KV_MC_COUNT_CAS_HITS, KV_MC_COUNT_CAS_MISSES, KV_MC_COUNT_CAS_BADVAL,
	KV_MC_COUNT_DELETE_HITS, KV_MC_COUNT_DELETE_MISSES,
	KV_MC_COUNT_INCR_HITS, KV_MC_COUNT_INCR_MISSES,
	KV_MC_COUNT_DECR_HITS, KV_MC_COUNT_DECR_MISSES,
	KV_MC_COUNT_TOUCH_HITS, KV_MC_COUNT_TOUCH_MISSES,
	KV_MC_COUNT_FLUSHES_ALL, KV_MC_COUNT_AUTHS, KV_MC_COUNT_AUTH_FAILURES,
	KV_MC_COUNT_ERRORS, KV_MC_COUNT_BATCHES, KV_MC_COUNT_REPEATED_BATCHES, KV_MC_COUNT_PARKED,
	KV_MC_COUNT_WRITES, KV_MC_COUNT_MERGED_WRITES, KV_MC_COUNT_FLUSHES,
	KV_MC_COUNT_BYTES_IN, KV_MC_COUNT_BYTES_OUT, KV_MC_COUNT_REAPED,
	KV_MC_COUNTERS
} KvMcCount;

/* Written by its process alone, but for the reset. */
typedef struct KvMcWorkerState
{
	int			pid;			/* 0: it does not run */
	bool		listens;		/* guarded by KvMcShared.lock */
	TimestampTz started;
	Latch	   *latch;		/* NULL: it does not run */
	pg_atomic_uint64 wanted;	/* the WAL is to be flushed up to here */
	pg_atomic_uint32 connections;
	pg_atomic_uint64 memory;	/* bytes of buffers */
	pg_atomic_uint64 counts[KV_MC_COUNTERS];
} KvMcWorkerState;

#define KV_MC_MAX_EMPTIED	64
#define KV_MC_MAX_LATER		32

/* A flush_all with a delay. */
typedef struct KvMcLater
{
	Oid			role;
	TimestampTz due;			/* 0: there is none */
} KvMcLater;

typedef struct KvMcShared
{
	LWLock		lock;			/* of listens, held while sockets are made; and of later */
	int			tranche;
	pg_atomic_uint32 resets;	/* counters are to be set to 0 */
	pg_atomic_uint64 stats_since;	/* TimestampTz of the start, or of the last reset */
	pg_atomic_uint32 emptier;	/* pid of the process that executes a flush_all, or 0 */
	pg_atomic_uint32 emptied[KV_MC_MAX_EMPTIED];	/* tables that the flush_all waits for */
	KvMcLater	later[KV_MC_MAX_LATER];	/* guarded by lock */
	Latch	   *wal_flusher_latch;	/* NULL: it does not run */
	Latch	   *reaper_latch; /* NULL: it does not run */
	pg_atomic_uint64 flushed; /* the WAL is on the device and on synchronous standbys up to here */
	pg_atomic_uint32 memtable_wanted;	/* a batch has found no memtable memory */
	KvMcWorkerState workers[KV_MC_MAX_WORKERS + 1];	/* the last one: the reaper */
} KvMcShared;

extern KvMcShared *kv_mc_shared;
extern KvMcWorkerState *kv_mc_me;	/* this process's, in a worker */
extern int	kv_mc_my_number;		/* the number of this process, from 0 */

/*
 * In a transaction: FATAL if clients would be superusers without a password, or if this
 * process's role was dropped or renamed.  In the second case the process starts again with the
 * role that has the name then, if there is one.
 */
extern void kv_mc_check_role(void);
/*
 * The process begins: set the handlers of signals, connect to the database as the role, set
 * what neither may change for these processes, and check the role.
 */
extern void kv_mc_process_begin(void);

/* ---- process.c: counters ---- */

extern uint64 kv_mc_counts[KV_MC_COUNTERS];	/* of this process; published now and then */
/* Set the counters to 0 if there was a reset: call this before anything later is counted. */
extern void kv_mc_heed_reset(void);
/* Publish the counters; sets them to 0 before if there was a reset. */
extern void kv_mc_publish(void);
/* Set the counters of all processes to 0, as of now: each process notices the reset. */
extern void kv_mc_reset_counts(TimestampTz now);

/* ---- process.c: the process that empties tables, and the tables ---- */

/*
 * Become the process that empties tables, for this connection or the reaper (NULL).  False:
 * another process is, or this one is for another connection.
 */
extern bool kv_mc_empty_begin(const struct KvMcConnection *conn);
extern void kv_mc_empty_over(void);	/* the flush_all is done, or given up */
/*
 * The connection is closed, or proceeds with this request: give up a flush_all of it that
 * waits, unless it is this request.
 */
extern void kv_mc_empty_leave(const struct KvMcConnection *conn, const KvMcRequest *request);
/* Mark a table, so that other processes leave it alone until kv_mc_empty_over. */
extern void kv_mc_empty_mark(Oid relid);
extern bool kv_mc_empty_wants(Oid relid);	/* has another process marked it? */

/* ---- process.c: transactions ---- */

/*
 * Begin a transaction, now: a process without a client that sends statements would else use the
 * start time of its last one.
 */
extern void kv_mc_begin(void);
/* In a PG_CATCH: report the error in the log, once per second for each kind. */
extern void kv_mc_log_error(const ErrorData *edata);
/* After an ERROR: roll back the transaction, and return the error's text, in static memory. */
extern const char *kv_mc_roll_back(void);
/*
 * Commit; if something was written, as the mode says.  The process ends if it was told to (M
 * 1).
 */
extern void kv_mc_commit_as(KvMcCommit mode, bool wrote);
/* Commit on this server's device only, without waiting for synchronous standbys. */
extern void kv_mc_commit_here(void);
/* How far replies in mode "drain" have run ahead of the WAL's flush, or 0. */
extern XLogRecPtr kv_mc_unflushed;
extern void kv_mc_flush_wal(void);

/* ---- process.c: the process that flushes the WAL for others ---- */

/* Does the process run that flushes the WAL for the others? */
extern bool kv_mc_flusher_runs(void);
/* Are synchronous standbys configured? */
extern bool kv_mc_has_standbys(void);
/* The LSN up to which the WAL must be flushed for all that can be seen now; invalid: it is. */
extern XLogRecPtr kv_mc_seen_upto(void);
/*
 * Flush the WAL here and wait for synchronous standbys.  False: the wait was broken off,
 * because the process is told to end.
 */
extern bool kv_mc_flush_here(XLogRecPtr upto);
/* Have the flusher flush the WAL up to here. */
extern void kv_mc_ask_flush(XLogRecPtr upto);
/* The process "kvfdw memcached flusher".  Does not return. */
extern PGDLLEXPORT void kv_memcached_flusher_main(Datum arg);

/* ---- hash.c ---- */

/*
 * Called once in a process, before kv_mc_hash: draws the secret numbers of its hashes.  False:
 * there are no random numbers.
 */
extern bool kv_mc_hash_begin(void);
/* The hash of a key of up to KV_MC_MAX_KEY bytes, for this process alone. */
extern uint32 kv_mc_hash(const char *key, int length);
/* A batch begins to write. */
extern void kv_mc_begin_writes(void);
/*
 * Was a key of this hash written in the last few batches, so that sessions may be waiting for
 * its row?  Notes that it is written now.
 */
extern bool kv_mc_was_written(uint32 hash);

#endif							/* KV_MEMCACHED_PROCESS_H */
