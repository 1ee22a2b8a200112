/*
 * batch.h
 *		Requests are done: many in a batch, which is one transaction (M 3), or one alone.
 *
 * kv_mc_batch_run, kv_mc_do_flush, kv_mc_empty_tables, kv_mc_do_auth and kv_mc_tell_stats begin and
 * end their own transactions.  Errors become replies; what cannot be done now is parked.
 */
#ifndef KV_MEMCACHED_BATCH_H
#define KV_MEMCACHED_BATCH_H

#include "memcached/connection/connection.h"
#include "memcached/served/served.h"

#include "miscadmin.h"

/*
 * Of memory contexts that are reset after each batch: most batches find all that they need in what
 * is kept.
 */
#define KV_MC_BATCH_SIZES	(Size) 64 * 1024, (Size) 64 * 1024, ALLOCSET_DEFAULT_MAXSIZE

/* Whose privileges its requests have; InvalidOid: it has not authenticated. */
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
	KvMcStream	before;			/* to go back to, if it cannot be done now … */
	size_t		at;				/* … which begins here in the input */
	bool		answered;		/* reply is there without looking at a row */
	int			key;			/* number of its key in the batch */
	KvMcRequest request;
	KvMcReply	reply;
} KvMcTask;

typedef struct KvMcBatch
{
	MemoryContext context;		/* reset after each */
	KvMcTask  **tasks;
	int			ntasks;
	int			nclients;		/* connections that they are of … */
	int			nwriters;		/* … and those of them that may write */
	bool		writes;			/* one of them may write … */
	bool		reads;			/* … and one does not, so it need not wait for a flush */
	size_t		bytes;			/* of the values that come with them */
} KvMcBatch;

/* Do them: then each connection is parked, or has its replies said and its input consumed. */
extern void kv_mc_batch_run(KvMcBatch *batch);

/* ---- empty.c: flush_all ---- */

/* False: it cannot have its tables now, and the connection was parked. */
extern bool kv_mc_do_flush(KvMcConnection *conn, const KvMcRequest *request, KvMcReply *reply);
/*
 * NULL, or an error. *done: the tables were there to be had, and no error came. *upto: NULL, or set
 * to what synchronous standbys have yet to have of it, or to invalid; else they are waited for.
 */
extern const char *kv_mc_empty_tables(Oid role, bool *done, XLogRecPtr *upto);
/* Those with a delay that are noted, due or not; a place is free whose due is 0. */
extern void kv_mc_empty_noted(KvMcLater noted[KV_MC_MAX_LATER]);
extern void kv_mc_empty_done(const KvMcLater *done);

/* ---- auth.c ---- */

/* A request that is a transaction of its own. */
extern void kv_mc_do_auth(KvMcConnection *conn, const KvMcRequest *request, KvMcReply *reply);

/* ---- stat.c ---- */

extern const char kv_mc_version[];
/* Count a request by its outcome. */
extern void kv_mc_count_reply(const KvMcRequest *request, const KvMcReply *reply);
/*
 * The lines of the answer to a request for statistics; reply is then for its end.  A transaction of
 * its own where they are to be reset, which needs the privilege on kvfdw_stat_reset().
 */
extern void kv_mc_tell_stats(KvMcConnection *conn, const KvMcRequest *request, KvMcReply *reply);

#endif							/* KV_MEMCACHED_BATCH_H */
