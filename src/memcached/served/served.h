/*
 * served.h
 *		The tables that are served, and items of their rows.
 *
 * Within a transaction; no lock is waited for (M 2).  What a table cannot do is said by the
 * reason it gives, not by an error.
 */
#ifndef KV_MEMCACHED_SERVED_H
#define KV_MEMCACHED_SERVED_H

#include "postgres.h"

#include "utils/acl.h"

#include "memcached/process/process.h"
#include "table/table.h"

/* ---- served.c: the tables ---- */

typedef enum KvMcTableState
{
	KV_MC_TABLE_UNTRIED,		/* in this transaction */
	KV_MC_TABLE_OPEN,
	KV_MC_TABLE_IS_BUSY,
	KV_MC_TABLE_IS_CLOSED,		/* it is being recovered */
	KV_MC_TABLE_UNUSABLE		/* reason says why */
} KvMcTableState;

typedef struct KvMcTable
{
	Oid			relid;
	char	   *prefix;
	int			prefix_length;
	bool		trusted;		/* by its owner: it may serve keys at all */
	bool		checked;		/* since it last changed: all up to reason */
	uint64		changes;		/* that were noticed */
	AttrNumber	key, value, flags, expires; /* 0: there is no such column */
	bool		others;			/* there are more columns */
	bool		text_key, text_value;
	const char *reason;			/* why it cannot be served, with its SQLSTATE; NULL: it can */
	char		reason_text[256];
	bool		watched;		/* compactions know how its rows expire, … */
	/* … if the reaper may delete those that have; it is told of them then */
	bool		reaped;

	int			suspicion;		/* batch.c: of raising errors; 0: there is none */

	/* privileges, as far as is of interest, of the role that was asked for last, … */
	Oid			acl_role;
	AclMode		acl;
	bool		acl_known;
	uint64		acl_changes;	/* … when so many changes were noticed */

	/* this transaction */
	KvMcTableState state;
	bool		to_write;		/* keys.c: some request may write to it */
	KvTable    *table;
	KvStore    *store;			/* NULL: nothing was ever written */
	int			first;			/* keys.c: the first of its keys, or -1 … */
	int			last;			/* … and the last */
	int			looked;			/* keys.c: so many of them were looked up */
} KvMcTable;

/* Once in a process: has it notice changes of tables. */
extern void kv_mc_tables_init(void);
/* At the beginning of a transaction: what was known of tables in the last one is forgotten. */
extern void kv_mc_tables_begin(void);
/* The table with the longest prefix that the key begins with, or NULL. */
extern KvMcTable *kv_mc_table_find(const char *key, int length);
/* Lock and look, without waiting for a lock; writes: rows may be written. */
extern KvMcTableState kv_mc_table_open(KvMcTable *table, bool writes);
extern bool kv_mc_table_allows(KvMcTable *table, Oid role, AclMode mode);
extern int	kv_mc_tables(KvMcTable ***tables);
/* Why it cannot be served, with the SQLSTATE; NULL: it can. */
extern const char *kv_mc_table_reason(KvMcTable *table);
/*
 * TRUNCATE all tables for which the role may, in a transaction; an ERROR if there are none.
 * False: some are locked by others now, and marked (kv_mc_empty_mark); roll back.
 */
extern bool kv_mc_tables_truncate(Oid role);
extern bool kv_mc_tables_may_truncate(Oid role);	/* are there any? */

/* ---- open.c: recovery ---- */

/* False: it has to be recovered first, which another process does; try again. */
extern bool kv_mc_table_ready(Oid relid);
/* The process that recovers one table; arg is its OID. */
extern PGDLLEXPORT void kv_memcached_open_main(Datum arg);

/* ---- expired.c: rows that have expired, as they are met ---- */

extern Size kv_mc_expired_size(void);	/* of shared memory, … */
/* … which begins here, zeroed if it is new */
extern void kv_mc_expired_init(void *memory, bool found);
/*
 * In a batch: the table has a row that has expired; may be said again and again, and of one that is
 * not reaped.
 */
extern void kv_mc_expired_note(const KvMcTable *table, KvKey key, uint32 hash, int64 now);
/* The reaper met a row that had been changed since it was looked at: it will look again. */
extern void kv_mc_expired_again(Oid relid, KvKey key);
/*
 * Compactions are to note such rows of the table, which is open, if it is reaped; again after it
 * was checked.
 */
extern void kv_mc_expired_watch(const KvMcTable *table);
/* Keys of one table that were noted, palloc'd; returns how many. */
extern int	kv_mc_expired_take(Oid *relid, KvKey *keys, int most);

/* ---- row.c: items of rows, rows of items ---- */

/* A row as it was looked up: what of it is kept for when it is written. */
typedef struct KvMcRow
{
	TimestampTz expires;		/* if the item's is rounded; infinity too */
	Datum	   *values;			/* of a table with other columns; NULL: there is no row */
	bool	   *nulls;
} KvMcRow;

/* The key as the engine has it, palloc'd. */
extern KvKey kv_mc_row_key(const KvMcTable *table, const char *key, int length);
/* NULL, or why these bytes cannot be a key, or a value, of the table: CLIENT_ERROR. */
extern const char *kv_mc_row_bad_key(const KvMcTable *table, const char *key, int length);
extern const char *kv_mc_row_bad_value(const KvMcTable *table, const char *value, size_t length);
/*
 * Fills in item, and row if it is to be kept. look is FOUND. There is an item as long as SQL finds
 * that expires > now.  NULL, or why no client can have the item: an error.
 */
extern const char *kv_mc_row_read(const KvMcTable *table, const KvGet *get, TimestampTz now,
								  uint64 number, KvMcItem *item, KvMcRow *row);
/* Seconds of Unix time, rounded down. */
extern int64 kv_mc_unix_time(TimestampTz time);
/* What to store for an item; palloc'd, or the item's own bytes. */
extern void kv_mc_row_write(const KvMcTable *table, const KvMcItem *item, const KvMcRow *row,
							KvPutValue *put);

/* ---- demand.c: what a request needs of its table ---- */

/* A plain mg changes an item that is stale: it marks it. */
static inline bool
kv_mc_may_change(const KvMcRequest *request)
{
	return request->command > KV_MC_GET &&
		(request->command == KV_MC_META_GET || kv_mc_writes(request));
}

/*
 * What it comes with and needs of the table: a value, privileges; NULL, or the reply: columns that
 * are not there.
 */
extern bool kv_mc_has_value(const KvMcRequest *request);
extern AclMode kv_mc_privileges(const KvMcRequest *request, int64 now);
extern const char *kv_mc_lacks_column(const KvMcTable *table, const KvMcRequest *request);
/* Does what it makes of an item depend on nothing that was there? */
extern bool kv_mc_is_blind(const KvMcTable *table, const KvMcRequest *request, int64 now);

#endif							/* KV_MEMCACHED_SERVED_H */
