/*
 * attempt.h
 *		One attempt at some of a batch's requests: what keys.c finds out and batch.c does.
 */
#ifndef KV_MEMCACHED_ATTEMPT_H
#define KV_MEMCACHED_ATTEMPT_H

#include "memcached/batch/batch.h"

/* of values in a batch, also where there is no room for replies */
#define KV_MC_LEAST_BYTES	((Size) 1024 * 1024)

/* A key that requests of the batch are about. */
typedef struct KvMcKey
{
	KvMcTable  *table;
	const char *data;
	int			length;
	int			next;			/* of the same table, or -1 */
	bool		blind;			/* all of its requests store, whatever is there: so nobody looks */
	KvGet      *get;			/* NULL: not looked up */
	const char *problem;		/* why its value cannot be had: an error; NULL: it can */
	int			writes;			/* requests that have changed it */
	uint32		hash;
	bool		retried;		/* a request for it was parked … */
	bool		impatient;		/* … and for long */
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
	bool		alone;			/* one request, be its table suspected or not */
	const KvMcConnection *like; /* a get of this client may be done … */
	const KvMcTable *like_at;	/* … in this table, or NULL: so may its next ones */
	KvMcTable  *at;				/* the table that is being worked at, or NULL */
	KvMcKey    *keys;
	int			nkeys;
	int		   *buckets;		/* numbers of keys, or -1 */
	uint32		mask;
	KvMcFold	fold;
} KvMcAttempt;

/* Is the request one that is to be done still, and with an item? */
static inline bool
kv_mc_is_live(const KvMcAttempt *attempt, int i)
{
	const KvMcTask *task = attempt->tasks[i];

	return i < task->conn->cut && (attempt->alone || i < task->conn->suspect) &&
		!task->answered && kv_mc_has_item(&task->request);
}

/* ---- keys.c ---- */

extern MemoryContext kv_mc_batch_context;	/* of the batch that runs */
/* The request has a reply, which needs no row: an error. */
extern void kv_mc_refuse(KvMcTask *task, const char *message);
extern void kv_mc_deny(KvMcTask *task, const KvMcTable *table);	/* … for lack of a privilege */
/* May its client do that? */
extern bool kv_mc_task_may(const KvMcTask *task, KvMcTable *table, AclMode mode);
/* A request cannot be done now: it and those behind it are for later, or it was too long. */
extern void kv_mc_set_aside(KvMcAttempt *attempt, int i, KvMcObstacle obstacle, TransactionId xid);
/* Find the key of each request, or its reply if nothing can be done. */
extern void kv_mc_route_all(KvMcAttempt *attempt);
/* Look all keys up, as far as there is room for their values; the rest is for the next batch. */
extern void kv_mc_look_at_all(KvMcAttempt *attempt);

#endif							/* KV_MEMCACHED_ATTEMPT_H */
