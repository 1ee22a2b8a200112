/*
 * batch.h
 *		Execution of requests: many in a batch, which is one transaction (M 3), or one alone.
 *
 * kv_mc_batch_run, kv_mc_do_flush, kv_mc_empty_tables, kv_mc_do_auth and kv_mc_tell_stats begin
 * and end their own transactions.  Errors become replies; requests that cannot be executed now
 * are parked.
 */
#ifndef KV_MEMCACHED_BATCH_H
#define KV_MEMCACHED_BATCH_H

#include "memcached/connection/connection.h"
#include "memcached/served/served.h"

#include "miscadmin.h"

/*
 * Block sizes of memory contexts that are reset after each batch: most batches fit into the
 * memory that a reset keeps.
 */
#define KV_MC_BATCH_SIZES	(Size) 64 * 1024, (Size) 64 * 1024, ALLOCSET_DEFAULT_MAXSIZE

/* The role whose privileges the connection's requests have; InvalidOid: not authenticated. */
static inline Oid
kv_mc_role_of(const KvMcConnection *conn)
{
	return kv_mc_auth == KV_MC_AUTH_NONE ? GetUserId() : conn->role;
}

/* ---- batch.c ---- */

/* One request of a batch. */
typedef struct KvMcTask
{
	KvMcConnection *conn;
	KvMcStream	before;			/* state before it, to go back to if it cannot be executed now */
	size_t		at;				/* where it begins in the input */
	bool		answered;		/* the reply is known without looking at a row */
	int			key;			/* number of its key in the batch */
	KvMcRequest request;
	KvMcReply	reply;
} KvMcTask;

typedef struct KvMcBatch
{
	MemoryContext context;		/* reset after each */
	KvMcTask  **tasks;
	int			ntasks;
	int			nclients;		/* connections that have requests in it */
	int			nwriters;		/* those of them that may write */
	bool		writes;			/* some request may write */
	bool		reads;			/* some request does not write, so it need not wait for a flush */
	size_t		bytes;			/* of the values that the requests bring */
} KvMcBatch;

/*
 * Execute the requests.  Then each connection is parked, or its replies are buffered and its
 * input is consumed.
 */
extern void kv_mc_batch_run(KvMcBatch *batch);

/* ---- empty.c: flush_all ---- */

/* Execute a flush_all.  False: its tables cannot be locked now, and the connection was parked. */
extern bool kv_mc_do_flush(KvMcConnection *conn, const KvMcRequest *request, KvMcReply *reply);
/*
 * Empty the tables.  Returns NULL, or an error.  *done: the tables could be locked, and there
 * was no error.  *upto: set to the LSN that synchronous standbys have yet to confirm, or to
 * invalid; if upto is NULL the function waits for them.
 */
extern const char *kv_mc_empty_tables(Oid role, bool *done, XLogRecPtr *upto);
/* The noted flush_alls with a delay, due or not; an entry is free if its due is 0. */
extern void kv_mc_empty_noted(KvMcLater noted[KV_MC_MAX_LATER]);
extern void kv_mc_empty_done(const KvMcLater *done);

/* ---- batch.c ---- */

/* Execute an authentication request, a transaction of its own. */
extern void kv_mc_do_auth(KvMcConnection *conn, const KvMcRequest *request, KvMcReply *reply);

/* ---- stat.c ---- */

extern const char kv_mc_version[];
/* Count a request by its outcome. */
extern void kv_mc_count_reply(const KvMcRequest *request, const KvMcReply *reply);
/*
 * Print the lines of the answer to a request for statistics; reply is then for its end.  If the
 * statistics are to be reset, this is a transaction of its own, and needs the privilege on
 * kvfdw_stat_reset().
 */
extern void kv_mc_tell_stats(KvMcConnection *conn, const KvMcRequest *request, KvMcReply *reply);

#endif							/* KV_MEMCACHED_BATCH_H */
