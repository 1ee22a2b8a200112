/*
 * plugin.c
 *		The output plugin "kvfdw": one line of JSON for each change, and for the begin and the end
 *		of each transaction that has any.
 *
 * Changes of kvfdw tables arrive as messages (xact/decode.c), those of heap tables as
 * core's changes, all in the order in which they were written.
 *
 * Memory:  the reorder buffer's.  In addition, a change in parts is put together here, and its
 * line is made in the decoding context's buffer.  Both are freed again when they were large.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "port/pg_bswap.h"
#include "replication/logical.h"
#include "replication/origin.h"
#include "replication/output_plugin.h"
#include "replication/reorderbuffer.h"
#include "utils/builtins.h"
#include "utils/datetime.h"
#include "utils/json.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "compat.h"
#include "engine/change.h"
#include "engine/engine.h"
#include "feed/feed.h"

extern PGDLLEXPORT void _PG_output_plugin_init(OutputPluginCallbacks *callbacks);

#define LARGE	((Size) 1024 * 1024)	/* bytes of a buffer that is not kept */

typedef struct KvFeed
{
	MemoryContext context;		/* reset after each change */
	StringInfoData parts;		/* of the change that continues */
	bool		heap;			/* option: show changes of heap tables */
	bool		transactions;	/* option: show begin and commit */
	bool		local;			/* option: leave out what came from another server */
	bool		begun;			/* the current transaction's begin was shown */
} KvFeed;

/* ---- lines ---- */

/* Begin a line, in the memory of this change. */
static StringInfo
begin_line(LogicalDecodingContext *ctx, const char *op)
{
	KvFeed	   *feed = ctx->output_plugin_private;

	OutputPluginPrepareWrite(ctx, true);
	MemoryContextSwitchTo(feed->context);
	appendStringInfo(ctx->out, "{\"op\":\"%s\"", op);
	return ctx->out;
}

/* End it, in the memory that callers had. */
static void
end_line(LogicalDecodingContext *ctx, TransactionId xid, XLogRecPtr lsn, MemoryContext old)
{
	KvFeed	   *feed = ctx->output_plugin_private;

	if (TransactionIdIsValid(xid))
		appendStringInfo(ctx->out, ",\"xid\":%u", xid);
	appendStringInfo(ctx->out, ",\"lsn\":\"%X/%X\"}", LSN_FORMAT_ARGS(lsn));
	MemoryContextSwitchTo(old);
	OutputPluginWrite(ctx, true);
	MemoryContextReset(feed->context);
	if (ctx->out->maxlen > LARGE)
	{
		pfree(ctx->out->data);
		old = MemoryContextSwitchTo(ctx->context);
		initStringInfo(ctx->out);
		MemoryContextSwitchTo(old);
	}
}

static void
put_time(StringInfo out, TimestampTz time)
{
	char		text[MAXDATELEN + 1];

	JsonEncodeDateTime(text, TimestampTzGetDatum(time), TIMESTAMPTZOID, NULL);
	appendStringInfo(out, ",\"time\":\"%s\"", text);
}

/* Show the transaction's begin, before its first change. */
static void
need_begin(LogicalDecodingContext *ctx, ReorderBufferTXN *txn)
{
	KvFeed	   *feed = ctx->output_plugin_private;
	MemoryContext old = CurrentMemoryContext;
	StringInfo	out;

	if (feed->begun)
		return;
	feed->begun = true;
	if (!feed->transactions)
		return;
	out = begin_line(ctx, "begin");
	put_time(out, kv_commit_time(txn));
	end_line(ctx, txn->xid, txn->final_lsn, old);
}

/* ---- rows ---- */

/* Names of columns, as a member of the line if there are any. */
static void
put_names(StringInfo out, const char *member, const KvFeedRelation *relation, const bool *named)
{
	bool		any = false;

	for (int i = 0; i < relation->desc->natts; i++)
	{
		if (!named[i])
			continue;
		if (!any)
			appendStringInfo(out, ",\"%s\":[", member);
		else
			appendStringInfoChar(out, ',');
		appendStringInfoString(out, relation->columns[i].name);
		any = true;
	}
	if (any)
		appendStringInfoChar(out, ']');
}

/* Is it a value that is not in the WAL? */
static bool
is_elsewhere(Form_pg_attribute att, Datum value)
{
	return att->attlen == -1 && VARATT_IS_EXTERNAL_ONDISK(DatumGetPointer(value));
}

/*
 * Columns as an object.  Values that are not there are named in unchanged, those that are too
 * large in omitted.
 */
static void
put_columns(StringInfo out, const char *member, const KvFeedRelation *relation,
			const bool *wanted, const Datum *values, const bool *nulls, bool *unchanged,
			bool *omitted)
{
	bool		any = false;

	appendStringInfo(out, ",\"%s\":{", member);
	for (int i = 0; i < relation->desc->natts; i++)
	{
		KvJsonColumn *column = &relation->columns[i];
		int			begin = out->len;

		if (column->name == NULL || (wanted != NULL && !wanted[i]))
			continue;
		if (!nulls[i] && is_elsewhere(TupleDescAttr(relation->desc, i), values[i]))
		{
			unchanged[i] = true;
			continue;
		}
		if (any)
			appendStringInfoChar(out, ',');
		appendStringInfoString(out, column->name);
		appendStringInfoChar(out, ':');
		if (nulls[i])
			appendStringInfoString(out, "null");
		else if (!kv_json_value(out, column, values[i]))
		{
			omitted[i] = true;
			out->len = begin;
			out->data[begin] = '\0';
			continue;
		}
		any = true;
	}
	appendStringInfoChar(out, '}');
}

static void
put_table(StringInfo out, const KvFeedRelation *relation)
{
	appendStringInfo(out, ",\"table\":%s", relation->name);
}

/* The columns of a row, in palloc'd arrays that have room for all. */
typedef struct Row
{
	Datum	   *values;
	bool	   *nulls;
} Row;

static Row
make_row(const KvFeedRelation *relation)
{
	int			natts = Max(relation->desc->natts, 1);
	Row			row = {palloc0(sizeof(Datum) * natts), palloc(sizeof(bool) * natts)};

	memset(row.nulls, true, sizeof(bool) * natts);
	return row;
}

/* ---- changes of kvfdw tables ---- */

static void
show_change(LogicalDecodingContext *ctx, ReorderBufferTXN *txn, XLogRecPtr lsn,
			const KvChangeHead *head, const char *bytes)
{
	KvChangeKind kind = (KvChangeKind) head->kind;
	KvFeedRelation *relation = kv_feed_relation(pg_ntoh32(head->relid), NULL);
	MemoryContext old = CurrentMemoryContext;
	StringInfo	out;
	KvRow		row = {0};
	Row			columns;
	bool	   *omitted;

	if (relation->table == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("%s is not a kvfdw table", relation->name)));
	need_begin(ctx, txn);
	out = begin_line(ctx, kind == KV_CHANGE_PUT ? "put" :
					 kind == KV_CHANGE_DELETE ? "delete" : "truncate");
	put_table(out, relation);
	if (kind != KV_CHANGE_TRUNCATE)
	{
		row.key = (const uint8 *) bytes;
		row.keylen = pg_ntoh32(head->keylen);
		row.form = (KvForm) head->form;
		row.len = pg_ntoh32(head->valuelen);
		row.value = bytes + row.keylen;
		omitted = palloc0(sizeof(bool) * relation->desc->natts);
		columns = make_row(relation);
		kv_key_decode_equal(relation->table, row.key, row.keylen, columns.values);
		memset(columns.nulls, false, sizeof(bool) * relation->desc->natts);
		put_columns(out, "key", relation, relation->in_key, columns.values, columns.nulls,
					omitted, omitted);
		if (kind == KV_CHANGE_PUT)
		{
			kv_tuple_decode(relation->table, &row, true, columns.values, columns.nulls);
			put_columns(out, "row", relation, NULL, columns.values, columns.nulls, omitted,
						omitted);
			put_names(out, "omitted", relation, omitted);
		}
	}
	end_line(ctx, txn->xid, lsn, old);
}

/* A message of the engine: a change, or a part of one. */
static void
take_change(LogicalDecodingContext *ctx, ReorderBufferTXN *txn, XLogRecPtr lsn, Size size,
			const char *message)
{
	KvFeed	   *feed = ctx->output_plugin_private;
	const KvChangeHead *head = (const KvChangeHead *) message;
	MemoryContext old;

	if ((head->flags & (KV_CHANGE_CONTINUES | KV_CHANGE_HAS_MORE)) == 0)
	{
		show_change(ctx, txn, lsn, head, message + sizeof(*head));
		return;
	}
	if ((head->flags & KV_CHANGE_CONTINUES) == 0)
	{
		if (feed->parts.data == NULL)
		{
			old = MemoryContextSwitchTo(ctx->context);
			initStringInfo(&feed->parts);
			MemoryContextSwitchTo(old);
		}
		resetStringInfo(&feed->parts);
		enlargeStringInfo(&feed->parts, pg_ntoh32(head->keylen) + pg_ntoh32(head->valuelen));
	}
	appendBinaryStringInfo(&feed->parts, message + sizeof(*head), size - sizeof(*head));
	if (head->flags & KV_CHANGE_HAS_MORE)
		return;
	show_change(ctx, txn, lsn, head, feed->parts.data);
	if (feed->parts.maxlen > LARGE)
	{
		pfree(feed->parts.data);
		feed->parts.data = NULL;
	}
}

/* A message that a session has written. */
static void
show_message(LogicalDecodingContext *ctx, ReorderBufferTXN *txn, XLogRecPtr lsn,
			 bool transactional, const char *prefix, Size size, const char *message)
{
	MemoryContext old = CurrentMemoryContext;
	StringInfo	out;

	if (transactional)
		need_begin(ctx, txn);
	out = begin_line(ctx, "message");
	appendStringInfo(out, ",\"transactional\":%s,\"prefix\":", transactional ? "true" : "false");
	kv_json_string(out, prefix, strlen(prefix));
	if (2 * size < KV_JSON_MAX_LINE)
	{
		appendStringInfoString(out, ",\"content\":\"\\\\x");
		enlargeStringInfo(out, 2 * size + 1);
		out->len += hex_encode(message, size, out->data + out->len);
		appendStringInfoCharMacro(out, '"');
	}
	else
		appendStringInfoString(out, ",\"omitted\":[\"content\"]");
	end_line(ctx, transactional ? txn->xid : InvalidTransactionId, lsn, old);
}

static void
message_callback(LogicalDecodingContext *ctx, ReorderBufferTXN *txn, XLogRecPtr lsn,
				 bool transactional, const char *prefix, Size size, const char *message)
{
	if (transactional && strcmp(prefix, kv_change_trusted_prefix()) == 0)
		take_change(ctx, txn, lsn, size, message);
	else
		show_message(ctx, txn, lsn, transactional, prefix, size, message);
}

/* ---- changes of heap tables ---- */

static Row
deform(const KvFeedRelation *relation, HeapTuple tuple)
{
	Row			row = make_row(relation);

	heap_deform_tuple(tuple, relation->desc, row.values, row.nulls);
	return row;
}

/* The key of a row before the change: of the old row if the WAL has it, else of the new one. */
static void
put_heap_key(StringInfo out, const KvFeedRelation *relation, HeapTuple old, HeapTuple new,
			 bool *unchanged, bool *omitted)
{
	Row			row;
	bool	   *wanted;

	if (old == NULL && (new == NULL || !relation->has_key))
		return;
	row = deform(relation, old != NULL ? old : new);
	wanted = palloc(sizeof(bool) * Max(relation->desc->natts, 1));

	/* an old row has the columns of the replica identity, and NULL elsewhere */
	for (int i = 0; i < relation->desc->natts; i++)
		wanted[i] = relation->has_key ? relation->in_key[i] : !row.nulls[i];
	put_columns(out, "key", relation, wanted, row.values, row.nulls, unchanged, omitted);
}

static void
change_callback(LogicalDecodingContext *ctx, ReorderBufferTXN *txn, Relation rel,
				ReorderBufferChange *change)
{
	KvFeed	   *feed = ctx->output_plugin_private;
	MemoryContext context = CurrentMemoryContext;
	KvFeedRelation *relation;
	HeapTuple	old;
	HeapTuple	new;
	StringInfo	out;
	bool	   *unchanged;
	bool	   *omitted;
	const char *op = change->action == REORDER_BUFFER_CHANGE_INSERT ? "insert" :
		change->action == REORDER_BUFFER_CHANGE_UPDATE ? "update" : "delete";

	if (!feed->heap)
		return;
	old = change->data.tp.oldtuple == NULL ? NULL : kv_change_tuple(change->data.tp.oldtuple);
	new = change->data.tp.newtuple == NULL ? NULL : kv_change_tuple(change->data.tp.newtuple);
	relation = kv_feed_relation(RelationGetRelid(rel), rel);
	need_begin(ctx, txn);
	out = begin_line(ctx, op);
	unchanged = palloc0(sizeof(bool) * Max(relation->desc->natts, 1));
	omitted = palloc0(sizeof(bool) * Max(relation->desc->natts, 1));
	put_table(out, relation);
	put_heap_key(out, relation, old, new, unchanged, omitted);
	if (new != NULL)
	{
		Row			row = deform(relation, new);

		put_columns(out, "row", relation, NULL, row.values, row.nulls, unchanged, omitted);
		put_names(out, "unchanged", relation, unchanged);
		put_names(out, "omitted", relation, omitted);
	}
	end_line(ctx, txn->xid, change->lsn, context);
}

static void
truncate_callback(LogicalDecodingContext *ctx, ReorderBufferTXN *txn, int nrelations,
				  Relation relations[], ReorderBufferChange *change)
{
	KvFeed	   *feed = ctx->output_plugin_private;
	MemoryContext old = CurrentMemoryContext;

	if (!feed->heap)
		return;
	for (int i = 0; i < nrelations; i++)
	{
		const KvFeedRelation *relation = kv_feed_relation(RelationGetRelid(relations[i]),
														  relations[i]);

		need_begin(ctx, txn);
		put_table(begin_line(ctx, "truncate"), relation);
		end_line(ctx, txn->xid, change->lsn, old);
	}
}

/* ---- transactions, start and end ---- */

static void
begin_callback(LogicalDecodingContext *ctx, ReorderBufferTXN *txn)
{
	KvFeed	   *feed = ctx->output_plugin_private;

	feed->begun = false;
}

static void
commit_callback(LogicalDecodingContext *ctx, ReorderBufferTXN *txn, XLogRecPtr commit_lsn)
{
	KvFeed	   *feed = ctx->output_plugin_private;
	MemoryContext old = CurrentMemoryContext;

	OutputPluginUpdateProgress(ctx, !feed->begun);
	if (!feed->begun || !feed->transactions)
		return;
	put_time(begin_line(ctx, "commit"), kv_commit_time(txn));
	end_line(ctx, txn->xid, txn->end_lsn, old);
}

static bool
filter_by_origin_callback(LogicalDecodingContext *ctx, KvOriginId origin)
{
	KvFeed	   *feed = ctx->output_plugin_private;

	return feed->local && origin != KV_NO_ORIGIN;
}

static bool
option_is_on(const DefElem *option)
{
	bool		on;

	if (option->arg == NULL)
		return true;
	if (!parse_bool(strVal(option->arg), &on))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid value for option \"%s\": \"%s\"", option->defname,
						strVal(option->arg)),
				 errhint("Valid values are \"on\" and \"off\".")));
	return on;
}

static void
startup_callback(LogicalDecodingContext *ctx, OutputPluginOptions *options, bool is_init)
{
	MemoryContext old = MemoryContextSwitchTo(ctx->context);
	KvFeed	   *feed = palloc0(sizeof(KvFeed));
	ListCell   *cell;

	kv_engine_require();
	feed->context = AllocSetContextCreate(ctx->context, "kvfdw feed", ALLOCSET_DEFAULT_SIZES);
	feed->heap = feed->transactions = true;
	ctx->output_plugin_private = feed;
	options->output_type = OUTPUT_PLUGIN_TEXTUAL_OUTPUT;
	foreach(cell, ctx->output_plugin_options)
	{
		const DefElem *option = lfirst(cell);

		if (strcmp(option->defname, "heap") == 0)
			feed->heap = option_is_on(option);
		else if (strcmp(option->defname, "transactions") == 0)
			feed->transactions = option_is_on(option);
		else if (strcmp(option->defname, "local") == 0)
			feed->local = option_is_on(option);
		else
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("invalid option \"%s\"", option->defname),
					 errhint("Valid options are \"heap\", \"transactions\" and \"local\".")));
	}
	kv_feed_relations_begin();
	MemoryContextSwitchTo(old);
}

static bool
is_ours(const LogicalDecodingContext *ctx)
{
	return ctx->callbacks.message_cb == message_callback;
}

void
_PG_output_plugin_init(OutputPluginCallbacks *callbacks)
{
	callbacks->startup_cb = startup_callback;
	callbacks->begin_cb = begin_callback;
	callbacks->change_cb = change_callback;
	callbacks->truncate_cb = truncate_callback;
	callbacks->commit_cb = commit_callback;
	callbacks->message_cb = message_callback;
	callbacks->filter_by_origin_cb = filter_by_origin_callback;
	kv_change_is_trusted = is_ours;
}
