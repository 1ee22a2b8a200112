/*
 * feed.h
 *		The change feed: the output plugin "kvfdw", which shows changes of kvfdw tables and of heap
 *		tables as lines of JSON.
 *
 * The plugin runs in a process that decodes the WAL, under a historic snapshot: catalogs are as
 * they were when the change was written.  So a row is decoded by the definition with which it
 * was written, and no store is opened.  Locks:  none of the engine's.  Errors:  an ERROR ends
 * the decoding; the slot keeps its position.
 */
#ifndef KV_FEED_H
#define KV_FEED_H

#include "access/tupdesc.h"
#include "lib/stringinfo.h"
#include "nodes/bitmapset.h"
#include "utils/relcache.h"

#include "table/table.h"

/* ---- json.c ---- */
/* How a column's values are shown. */
typedef struct KvJsonColumn
{
	char	   *name;			/* as a JSON string; NULL: the column is not shown */
	int			kind;			/* of json.c */
	Oid			typid;			/* of a domain: its base type */
	bool		is_varlena;
	FmgrInfo	output;
	struct KvJsonParts *parts;	/* of an array or a row, while a value is shown; else NULL */
} KvJsonColumn;

/* Bytes that a line may have; a value that does not fit is left out. */
#define KV_JSON_MAX_LINE	((Size) 1000 * 1024 * 1024)

/* Append text, in the encoding of the database, as a JSON string. */
extern void kv_json_string(StringInfo out, const char *text, Size len);
/* Describe a column; its memory is in CurrentMemoryContext. */
extern void kv_json_column_init(KvJsonColumn *column, Form_pg_attribute att);
/* Append a value.  False: it is too large for the line, and nothing was appended. */
extern bool kv_json_value(StringInfo out, KvJsonColumn *column, Datum value);

/* ---- relation.c ---- */
/* A relation as it was when a change was written. */
typedef struct KvFeedRelation
{
	Oid			relid;			/* hash key */
	bool		valid;			/* no invalidation since it was described */
	MemoryContext context;
	char	   *name;			/* with its schema, as a JSON string */
	TupleDesc	desc;
	KvTable    *table;			/* if it is one of ours, else NULL */
	KvJsonColumn *columns;		/* by attnum - 1 */
	bool	   *in_key;			/* by attnum - 1: of ours the key, else of the replica identity */
	bool		has_key;
} KvFeedRelation;

/* Begin to describe relations, in a context below the current one; ends when that is reset. */
extern void kv_feed_relations_begin(void);
/* The description of a relation of the historic snapshot; rel NULL: it is opened. */
extern KvFeedRelation *kv_feed_relation(Oid relid, Relation rel);

#endif							/* KV_FEED_H */
