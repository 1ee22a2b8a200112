/*
 * served.h
 *		The tables that are served, and the items of their rows.
 *
 * All functions run within a transaction, and wait for no lock (M 2).  What a table cannot do
 * is returned as a reason, not raised as an error.
 */
#ifndef KV_MEMCACHED_SERVED_H
#define KV_MEMCACHED_SERVED_H

#include "postgres.h"

#include "utils/acl.h"

#include "engine/rows.h"
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
	bool		trusted;		/* through its owner: it may serve keys at all */
	bool		checked;		/* the fields up to reason are valid since its last change */
	uint64		changes;		/* that were noticed */
	AttrNumber	key, value, flags, expires; /* 0: there is no such column */
	bool		others;			/* there are more columns */
	bool		text_key, text_value;
	const char *reason;			/* why it cannot be served, with its SQLSTATE; NULL: it can */
	char		reason_text[256];
	bool		watched;		/* compactions know how its rows expire */
	/* the reaper may delete its expired rows, and is told of them */
	bool		reaped;

	int			suspicion;		/* batch.c: suspected of raising errors, for so many requests; 0:
								 * it is not */

	/* the cached privileges of the role that was checked last */
	Oid			acl_role;
	AclMode		acl;
	bool		acl_known;
	uint64		acl_changes;	/* value of changes when the privileges were cached */

	/* the current transaction */
	KvMcTableState state;
	bool		to_write;		/* keys.c: some request may write to it */
	KvTable    *table;
	KvStore    *store;			/* NULL: nothing was ever written */
	int			first;			/* keys.c: the first of its keys, or -1 */
	int			last;			/* keys.c: the last of its keys */
	int			looked;			/* keys.c: how many of its keys were looked up */
} KvMcTable;

/* Called once in a process: registers the callbacks that notice changes of tables. */
extern void kv_mc_tables_init(void);
/* Called at the beginning of a transaction: forgets the state of tables in the last one. */
extern void kv_mc_tables_begin(void);
/* The table with the longest prefix that the key begins with, or NULL. */
extern KvMcTable *kv_mc_table_find(const char *key, int length);
/* Lock and check the table, without waiting for a lock; writes: rows may be written. */
extern KvMcTableState kv_mc_table_open(KvMcTable *table, bool writes);
extern bool kv_mc_table_allows(KvMcTable *table, Oid role, AclMode mode);
extern int	kv_mc_tables(KvMcTable ***tables);
/* Why the table cannot be served, with the SQLSTATE; NULL: it can. */
extern const char *kv_mc_table_reason(KvMcTable *table);
/*
 * TRUNCATE all tables for which the role has the privilege, in a transaction; an ERROR if there
 * are none.  False: other processes have locked some now, and these are marked
 * (kv_mc_empty_mark); roll back.
 */
extern bool kv_mc_tables_truncate(Oid role);
extern bool kv_mc_tables_may_truncate(Oid role);	/* are there any? */
/* The process that recovers one table before its first use; arg is its OID. */
extern PGDLLEXPORT void kv_memcached_open_main(Datum arg);

/* ---- row.c: expired rows that other processes have met ---- */

extern Size kv_mc_expired_size(void);	/* bytes of shared memory */
/* memory: those bytes, zeroed if they are new */
extern void kv_mc_expired_init(void *memory, bool found);
/*
 * In a batch: note a row that has expired.  May be called repeatedly, and for a table that is
 * not reaped.
 */
extern void kv_mc_expired_note(const KvMcTable *table, KvKey key, uint32 hash, int64 now);
/* The reaper met a row that had been changed since the lookup: it will look again. */
extern void kv_mc_expired_again(Oid relid, KvKey key);
/*
 * Have compactions note expired rows of the table, which is open, if it is reaped; called again
 * after each check of the table.
 */
extern void kv_mc_expired_watch(const KvMcTable *table);
/* Take keys of one table that were noted, palloc'd; returns how many. */
extern int	kv_mc_expired_take(Oid *relid, KvKey *keys, int most);

/* ---- row.c: items of rows, rows of items ---- */

/* A row as it was looked up: the parts that are kept for writing it. */
typedef struct KvMcRow
{
	TimestampTz expires;		/* if the item's is rounded; infinity too */
	Datum	   *values;			/* of a table with other columns; NULL: there is no row */
	bool	   *nulls;
} KvMcRow;

/* The key as the engine has it, palloc'd. */
extern KvKey kv_mc_row_key(const KvMcTable *table, const char *key, int length);
/* Why these bytes cannot be a key, or a value, of the table: CLIENT_ERROR; NULL: they can. */
extern const char *kv_mc_row_bad_key(const KvMcTable *table, const char *key, int length);
extern const char *kv_mc_row_bad_value(const KvMcTable *table, const char *value, size_t length);
/*
 * Fill in item, and row if it is to be kept; the get's outcome is FOUND.  There is an item as
 * long as SQL finds that expires > now.  Returns NULL, or the error why no client can have the
 * item.
 */
extern const char *kv_mc_row_read(const KvMcTable *table, const KvGet *get, TimestampTz now,
								  uint64 number, KvMcItem *item, KvMcRow *row);
/* Seconds of Unix time, rounded down. */
extern int64 kv_mc_unix_time(TimestampTz time);
/* What to store for an item; palloc'd, or the item's own bytes. */
extern void kv_mc_row_write(const KvMcTable *table, const KvMcItem *item, const KvMcRow *row,
							KvPutValue *put);

#endif							/* KV_MEMCACHED_SERVED_H */
