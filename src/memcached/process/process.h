/*
 * process.h
 *		What every process of the memcached front end is made of: settings, shared memory,
 *		counters, transactions, the WAL's flush, the marks of a flush_all.
 *
 * It knows no connection and no table.  No lock is held on entry or when these return, but
 * in shared memory KvMcShared.lock guards what says so.  Errors are PostgreSQL's own.
 */
#ifndef KV_MEMCACHED_PROCESS_H
#define KV_MEMCACHED_PROCESS_H

#include "postgres.h"

#include "access/xlogdefs.h"
#include "port/atomics.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "utils/timestamp.h"

#include "engine/engine.h"
#include "memcached/protocol/protocol.h"

#define KV_MC_MAX_WORKERS	64

struct KvMcConnection;

/* ---- setting.c ---- */

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

extern void kv_mc_settings(void);	/* defines them */

/* ---- process.c ---- */

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

/* Written by the process alone, but for the reset. */
typedef struct KvMcWorkerState
{
	int			pid;			/* 0: it does not run */
	bool		listens;		/* guarded by KvMcShared.lock */
	TimestampTz started;
	Latch	   *latch;		/* NULL: it does not run */
	pg_atomic_uint64 wanted;	/* this much of the WAL is to be flushed */
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
	LWLock		lock;			/* of who listens, held while sockets are made; and of later */
	int			tranche;
	pg_atomic_uint32 resets;	/* counters are to be set to 0 */
	pg_atomic_uint32 emptier;	/* pid of the process that does a flush_all, or 0 … */
	pg_atomic_uint32 emptied[KV_MC_MAX_EMPTIED];	/* … and tables that it waits for */
	KvMcLater	later[KV_MC_MAX_LATER];	/* guarded by lock */
	Latch	   *wal_flusher_latch;	/* NULL: it does not run */
	Latch	   *reaper_latch; /* likewise */
	pg_atomic_uint64 flushed;	/* the WAL is on the device, and on standbys, so far */
	pg_atomic_uint32 room_wanted;	/* a batch has found no memory for recent versions */
	KvMcWorkerState workers[KV_MC_MAX_WORKERS + 1];	/* the last one: the reaper */
} KvMcShared;

extern KvMcShared *kv_mc_shared;
extern KvMcWorkerState *kv_mc_me;	/* this process's, in a worker */
extern int	kv_mc_my_number;		/* … and its number, from 0 */

/*
 * In a transaction: FATAL if clients would be superusers without a password, as a role that may do
 * everything is nothing to give to whoever connects; or if this process's role was dropped or has
 * another name.  It starts again with the role that has the name then, if there is one.
 */
extern void kv_mc_check_role(void);
/* Settings that a role or database must not change for these processes. */
extern void kv_mc_set_options(void);

/* ---- count.c ---- */

extern uint64 kv_mc_counts[KV_MC_COUNTERS];	/* of this process; published now and then */
/* Set them to 0 if a reset has come since: before anything is counted that came after it. */
extern void kv_mc_heed_reset(void);
/* Let others see them, likewise. */
extern void kv_mc_publish(void);
/* Set those of all processes to 0: each notices it then. */
extern void kv_mc_reset_counts(void);

/* ---- commit.c ---- */

/*
 * Begin a transaction, now: that of a process which no client sends statements begins else when its
 * last one did.
 */
extern void kv_mc_begin(void);
/* In a PG_CATCH: report the error in the log, where one of a kind per second is enough. */
extern void kv_mc_log_error(const ErrorData *edata);
/* After an ERROR: what has happened, in static memory; the transaction is rolled back. */
extern const char *kv_mc_roll_back(void);
/*
 * Commit; if something was written, as the mode says, and the process ends if it was told to (M 1).
 */
extern void kv_mc_commit_as(KvMcCommit mode, bool wrote);
/* Commit, on this server's device; synchronous standbys are not waited for. */
extern void kv_mc_commit_here(void);
/* The WAL that replies in mode "drain" have run ahead of, or 0. */
extern XLogRecPtr kv_mc_unflushed;
extern void kv_mc_flush_wal(void);

/* ---- flush.c: the process that flushes the WAL for others ---- */

/* Is there a process to flush for others? */
extern bool kv_mc_flusher_runs(void);
/* Are there synchronous standbys to be waited for, by name at least? */
extern bool kv_mc_has_standbys(void);
/* How far the WAL must be flushed for all that can be seen now; invalid: it is. */
extern XLogRecPtr kv_mc_seen_upto(void);
/*
 * Flush the WAL here and wait for synchronous standbys.  False: the wait was broken off, as the
 * process is told to end.
 */
extern bool kv_mc_flush_here(XLogRecPtr upto);
/* Have it flushed, some time soon. */
extern void kv_mc_ask_flush(XLogRecPtr upto);
/* The process "kvfdw memcached flusher".  Does not return. */
extern PGDLLEXPORT void kv_memcached_flusher_main(Datum arg);

/* ---- emptied.c: who empties tables, and which ---- */

/*
 * This process is the one that empties tables, for this connection or the reaper (NULL); false:
 * another one is, or it does that for another connection.
 */
extern bool kv_mc_empty_begin(const struct KvMcConnection *conn);
extern void kv_mc_empty_over(void);	/* … it is done, or given up */
/*
 * The connection is closed, or goes on with this request: a flush_all of it that waits, and is
 * another, is given up.
 */
extern void kv_mc_empty_leave(const struct KvMcConnection *conn, const KvMcRequest *request);
/* Other processes are to leave the table alone, until it is over. */
extern void kv_mc_empty_mark(Oid relid);
extern bool kv_mc_empty_wants(Oid relid);	/* another process has marked it */

/* ---- room.c: memory for recent versions ---- */

/* A batch has found none: the reaper is to look whether the maintainer makes some, … */
extern void kv_mc_want_room(void);
/*
 * … and does this: makes some in its place. Returns µs until it is to be called again, if it is not
 * told before.
 */
extern int64 kv_mc_make_room(void);

/* ---- hash.c ---- */

/*
 * Once in a process, before the next one: draws what its hashes depend on. False: there are no
 * random numbers.
 */
extern bool kv_mc_hash_begin(void);
/* Of a key of up to KV_MC_MAX_KEY bytes, for this process alone. */
extern uint32 kv_mc_hash(const char *key, int length);
/* A batch begins to write. */
extern void kv_mc_begin_writes(void);
/*
 * Was a key of this hash written in the last few batches, so that sessions may be waiting for its
 * row? Notes that it is.
 */
extern bool kv_mc_was_written(uint32 hash);

#endif							/* KV_MEMCACHED_PROCESS_H */
