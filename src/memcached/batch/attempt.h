/*
 * attempt.h
 *		One attempt at some of a batch's requests, as keys.c prepares and batch.c executes it.
 */
#ifndef KV_MEMCACHED_ATTEMPT_H
#define KV_MEMCACHED_ATTEMPT_H

#include "postgres.h"

#include "engine/rows.h"
#include "memcached/batch/batch.h"
#include "memcached/connection/connection.h"

/* bytes of values that a batch may have even where memory for replies is short */
#define KV_MC_LEAST_BYTES	((Size) 1024 * 1024)

/* A key that requests of the batch are about. */
typedef struct KvMcKey
{
	KvMcTable  *table;
	const char *data;
	int			length;
	int			next;			/* of the same table, or -1 */
	bool		blind;		/* all of its requests store unconditionally, so it is not looked up */
	KvGet      *get;			/* NULL: not looked up */
	const char *problem;		/* the error why its value cannot be read; NULL: it can be */
	int			writes;			/* requests that have changed it */
	uint32		hash;
	bool		retried;		/* a request for it was parked */
	bool		impatient;		/* a request for it was parked for long */
	KvMcItem	item;
	KvMcRow		row;
	KvPut		outcome;
	bool		written;
	TransactionId in_the_way;
	uint64		number;			/* of the version that was written */
} KvMcKey;

/* One attempt at some of the batch's requests. */
typedef struct KvMcAttempt
{
	KvMcTask  **tasks;
	int			from;
	int			to;
	int			changed;		/* how often a row has turned out to be changed */
	bool		read_only;
	bool		wrote;
	bool		trouble;		/* to be rolled back */
	bool		alone;			/* one request, which is executed even if its table is suspected */
	const KvMcConnection *like; /* a client whose gets of like_at are permitted */
	const KvMcTable *like_at;	/* the table that the last get of client like may read, so its
								 * next ones may too; or NULL */
	KvMcTable  *at;				/* the table that is being processed, or NULL */
	KvMcKey    *keys;
	int			nkeys;
	int		   *buckets;		/* numbers of keys, or -1 */
	uint32		mask;
	KvMcFold	fold;
} KvMcAttempt;

/* Is the request still to be executed, and about an item? */
static inline bool
kv_mc_is_live(const KvMcAttempt *attempt, int i)
{
	const KvMcTask *task = attempt->tasks[i];

	return i < task->conn->cut && (attempt->alone || i < task->conn->suspect) &&
		!task->answered && kv_mc_has_item(&task->request);
}

/* May the request change an item?  A plain mg marks a stale item. */
static inline bool
kv_mc_may_change(const KvMcRequest *request)
{
	return request->command > KV_MC_GET &&
		(request->command == KV_MC_META_GET || kv_mc_writes(request));
}

/* ---- keys.c ---- */

extern MemoryContext kv_mc_batch_context;	/* memory of the batch that runs */
/* Answer a request, which needs no row, with an error. */
extern void kv_mc_refuse(KvMcTask *task, const char *message);
extern void kv_mc_deny(KvMcTask *task, const KvMcTable *table);	/* refuses for lack of a
																 * privilege */
/* Has the request's client this privilege? */
extern bool kv_mc_task_may(const KvMcTask *task, KvMcTable *table, AclMode mode);
/*
 * A request cannot be executed now: postpone it and the later requests of its connection, or
 * answer it if it has waited too long.
 */
extern void kv_mc_set_aside(KvMcAttempt *attempt, int i, KvMcObstacle obstacle, TransactionId xid);
/* Find the key of each request, or its reply if nothing can be done. */
extern void kv_mc_route_all(KvMcAttempt *attempt);
/*
 * Look up all keys, as far as memory for their values allows; the rest is left for the next
 * batch.
 */
extern void kv_mc_look_at_all(KvMcAttempt *attempt);

#endif							/* KV_MEMCACHED_ATTEMPT_H */
