/*
 * xact.h
 *		PostgreSQL's transactions and WAL, as the engine needs them: which version a snapshot
 *		sees (I 1), what is written into the WAL, and when it may be.
 *
 * Locks:  none of the engine's; visibility reads clog and procarray, and may be called with a
 * shard's lock held.  A process that logs a version ensures that a checkpointer counts it
 * (KvGate.logging).  restart/ has redo.
 */
#ifndef KV_XACT_H
#define KV_XACT_H

#include "access/slru.h"
#include "lib/stringinfo.h"
#include "port/atomics.h"
#include "storage/condition_variable.h"
#include "utils/snapshot.h"

#include "engine/base/types.h"
#include "engine/maintenance.h"

/* Clog is truncated by whole segments. */
#define KV_CLOG_SEGMENT	((uint64) BLCKSZ * 4 * SLRU_PAGES_PER_SEGMENT)	/* xids */

#define KV_MAX_INCARNATIONS	1024

typedef struct KvIncarnation
{
	uint32		number;
	uint32		pad;
	uint64		boundary;		/* its entries with xid >= this are aborted */
} KvIncarnation;

/* Written before any transaction of this incarnation starts. */
typedef struct KvIncarnations
{
	uint32		current;
	bool		provisional;	/* the boundary of the last dead one may still increase */
	uint64		run;			/* random, for each start of any server */
	int			ndead;
	KvIncarnation dead[KV_MAX_INCARNATIONS];	/* oldest first */
	pg_atomic_uint64 replayed_horizon;	/* in recovery: every transaction before it has ended */
} KvIncarnations;

extern KvIncarnations *kv_incarnations;

/* The writers that a scan has met and not seen, at SERIALIZABLE. */
typedef struct KvConflicts
{
	TransactionId *xids;
	int			n;
	int			room;
} KvConflicts;

/* The view of a reader. */
typedef struct KvView
{
	Snapshot	snapshot;
	KvConflicts *conflicts;		/* where writers are noted that are not seen, or NULL */
} KvView;

/* ---- visibility.c ---- */
/*
 * The status of a transaction that wrote in this incarnation.  UNKNOWN: it still runs (our own
 * and prepared ones too), or in recovery its end is not replayed.  ERROR (XX001), as from
 * kv_version_visible, if only clog could tell and no longer has it.
 */
extern KvXidStatus kv_xid_status(uint64 xid, uint32 incarnation);
/*
 * Does the view see this version, which that incarnation wrote?  A LOCK is never seen.
 * May set the version's status, in place; readers may do so at the same time.
 */
extern bool kv_version_visible(KvVersion *version, const KvView *view, uint32 incarnation);
/*
 * Does the view see the writes of each committed transaction of these full xids, from first to
 * last, because none of them was in progress when its snapshot was taken?  last 0: there are
 * none.  False also if the snapshot does not tell.
 */
extern bool kv_view_sees_all(const KvView *view, uint64 first, uint64 last);
/* Is it the current transaction, or a subtransaction of it that has not aborted? */
extern bool kv_xid_is_mine(uint64 xid);
/* The same of a version's xid: that of a dead incarnation may have been given out again (I 10). */
extern bool kv_version_is_mine(uint64 xid, uint32 incarnation);
extern uint64 kv_xid_horizon(void);	/* every snapshot sees transactions that committed before it */
extern uint64 kv_xid_ended(void);	/* no transaction before it runs */
/* May clog be read for this xid?  False: it has been truncated.  Takes no lock at all. */
extern bool kv_clog_has(uint64 xid);
/*
 * The current subtransaction's full xid, assigned if necessary.  mark: with a WAL record,
 * because the subtransaction writes none, and PostgreSQL flushes no commit without one.
 */
extern uint64 kv_current_xid(bool mark);

/* ---- wal.c ---- */
struct XLogReaderState;
/* rm_identify: the name of a kind of record, or NULL. */
extern const char *kv_wal_identify(uint8 info);
/* rm_desc: the contents of a record, as text; "damaged" if it is invalid. */
extern void kv_wal_describe(StringInfo buf, struct XLogReaderState *record);
/* Give the current (sub)transaction, whose xid this is, a WAL record of its own. */
extern void kv_wal_mark_transaction(TransactionId xid);
/*
 * Make all WAL inserted so far durable, by any process.  In recovery: the server is not
 * consistent before it has replayed all of this again.
 */
extern void kv_wal_flush(void);
/*
 * Log a version that is in its shard, with its value; not flushed.  Called after the shard's
 * lock was released.  crc: from kv_value_crc_begin.  fed: logical decoding passes it on, unless
 * it is a LOCK.
 */
extern void kv_wal_log_version(const KvStoreKey *store, KvKey key, const KvVersion *version,
							   uint32 crc, const char *value, bool fed);

/* A version that is in its shard, and is to be logged. */
typedef struct KvUnlogged
{
	KvKey		key;
	KvVersion	version;
	uint32		crc;			/* from kv_value_crc_begin */
	const char *value;
} KvUnlogged;

/* The same for n versions of a store.  Small ones of one transaction and command share records. */
extern void kv_wal_log_versions(const KvStoreKey *store, const KvUnlogged *versions, int n,
								bool fed);
/* Log n versions by location, as key log entries; their values are in value files. */
extern void kv_wal_log_batch(const KvStoreKey *store, const char *entries, uint32 bytes,
							 uint32 n);
/* Log a new store, whose directory is durable; flushed on return, before it has rows. */
extern void kv_wal_log_create(const KvStoreKey *key, const KvStoreShape *shape,
							  const KvKey *bounds);
/* Log a schema image, before the table file has it: standbys must have it.  Flushed on return. */
extern void kv_wal_log_schema(const KvStoreKey *key, const char *data, int len);
/*
 * Log that a store's value files are created in another tablespace; flushed on return.  Returns
 * where the record ends.
 */
extern uint64 kv_wal_log_move(const KvStoreKey *key, uint64 id, Oid tablespace);
/* Log that a store is about to be removed, before it is; flushed on return. */
extern void kv_wal_log_gone(const KvStoreKey *key, uint64 id);
/*
 * Log a DURABLE record; not flushed, and no reason for another checkpoint.  ended:
 * kv_xid_ended(). closing: no version is logged until the next one.  Returns where the record
 * ends.
 */
extern uint64 kv_wal_log_durable(const KvCheckpointerStats *stats, uint64 redo, uint64 ended,
								 bool closing);

/* ---- decode.c ---- */
struct LogicalDecodingContext;
struct XLogRecordBuffer;
/* rm_decode: queues the changes of a record for the output plugin, if they are fed. */
extern void kv_wal_decode(struct LogicalDecodingContext *ctx, struct XLogRecordBuffer *buf);

/* ---- the gate (wal.c) ---- */
/*
 * Blocks writers while no checkpointer makes their WAL records durable.  Without the process
 * "kvfdw checkpointer" a checkpoint could discard WAL that no durable mark covers yet.
 */
typedef struct KvGate
{
	pg_atomic_uint32 is_open;		/* 1: the next checkpoint covers what is logged now */
	ConditionVariable opened;
	pg_atomic_uint32 logging;	/* writers that have put a version and not yet logged its WAL
								 * record */
} KvGate;

extern KvGate *kv_gate;

extern void kv_gate_init(void);	/* called once, when kv_gate exists: the gate is closed */
/* Wait until the checkpointer runs; ERROR after a minute.  No lock is held. */
extern void kv_gate_wait(void);

/* ---- incarnations (visibility.c) ---- */
/* Called when shared memory has just been created, zeroed: initialize what is not zero. */
extern void kv_incarnations_init(void);
/* The incarnation of new entries; 0 in recovery. */
extern uint32 kv_writing_incarnation(void);
/*
 * Did this xid of a dead incarnation abort, according to its boundary (I 10)?  False also if
 * the incarnation is the current one or has no boundary.
 */
extern bool kv_incarnation_aborted(uint32 incarnation, uint64 xid);

#endif							/* KV_XACT_H */
