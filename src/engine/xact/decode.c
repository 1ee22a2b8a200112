/*
 * decode.c
 *		Logical decoding of the engine's WAL records: fed changes become transactional messages.
 *
 * Core drops changes of foreign tables, so there is no other way.  Messages are delivered at
 * COMMIT, in the order of the WAL, between the changes of heap tables.  Those of transactions
 * and savepoints that were rolled back are not delivered.
 *
 * Core may hold thousands of messages of a transaction in memory, however large they are.  So a
 * large change is passed in parts.
 *
 * A message has the position where its record begins.  Core takes the end for its own messages,
 * where the next record begins, and does not order changes with the same position.
 */
#include "postgres.h"

#include "access/xlog_internal.h"
#include "miscadmin.h"
#include "port/pg_bswap.h"
#include "replication/decode.h"
#include "replication/logical.h"
#include "replication/reorderbuffer.h"
#include "replication/snapbuild.h"
#include "utils/builtins.h"

#include "compat.h"
#include "engine/base/types.h"
#include "engine/change.h"
#include "engine/xact/walrecord.h"
#include "engine/xact/xact.h"

#define PART	8192			/* bytes of a message at most */

KvChangeCheck kv_change_is_trusted = NULL;

const char *
kv_change_trusted_prefix(void)
{
	static char prefix[24] = "";

	if (prefix[0] == '\0')
	{
		uint8		secret[sizeof(prefix) - 1];

		if (!pg_strong_random(secret, sizeof(secret)))
			ereport(ERROR,
					(errcode(ERRCODE_INTERNAL_ERROR),
					 errmsg("could not generate random numbers")));
		for (int i = 0; i < sizeof(secret); i++)
			prefix[i] = secret[i] % 255 + 1;
	}
	return prefix;
}

/* A change that is being passed on, as messages. */
typedef struct Passing
{
	LogicalDecodingContext *ctx;
	TransactionId xid;
	XLogRecPtr	lsn;
	bool		trusted;		/* for our own output plugin */
	bool		as_text;		/* the plugin may pass messages on as text */
	char		part[PART];
} Passing;

/* Queue the first bytes of passing->part. */
static void
queue(Passing *passing, Size bytes)
{
	ReorderBuffer *reorder = passing->ctx->reorder;
	char		hex[PART];

	if (passing->as_text)
	{
		Assert(2 * bytes <= sizeof(hex));
		(void) hex_encode(passing->part, bytes, hex);
	}
	ReorderBufferQueueMessage(reorder, passing->xid, NULL, passing->lsn, true,
							  passing->trusted ? kv_change_trusted_prefix() : KV_CHANGE_PREFIX,
							  passing->as_text ? 2 * bytes : bytes,
							  passing->as_text ? hex : passing->part);
}

static void
pass(Passing *passing, KvChangeKind kind, Oid relid, KvForm form, KvKey key, const char *value,
	 Size len)
{
	KvChangeHead head = {.version = KV_CHANGE_VERSION};
	Size		room = (passing->as_text ? PART / 2 : PART) - sizeof(head);
	Size		total = key.len + len;
	Size		at = 0;

	head.kind = kind;
	head.form = form;
	head.relid = pg_hton32(relid);
	head.keylen = pg_hton32(key.len);
	head.valuelen = pg_hton32(len);
	do
	{
		Size		take = Min(room, total - at);
		Size		of_key = at < key.len ? Min(take, key.len - at) : 0;
		char	   *to = passing->part + sizeof(head);

		CHECK_FOR_INTERRUPTS();
		head.flags = (at > 0 ? KV_CHANGE_CONTINUES : 0) |
			(at + take < total ? KV_CHANGE_HAS_MORE : 0);
		memcpy(passing->part, &head, sizeof(head));
		if (of_key > 0)
			memcpy(to, key.data + at, of_key);
		if (take > of_key)
			memcpy(to + of_key, value + (at + of_key - key.len), take - of_key);
		queue(passing, sizeof(head) + take);
		at += take;
	} while (at < total);
}

/* Its value follows the key.  A LOCK is no change. */
static void
pass_version(Passing *passing, Oid relid, uint8 kind, uint8 form, KvKey key, uint32 len)
{
	if (kind == KV_VERSION_PUT)
		pass(passing, KV_CHANGE_PUT, relid, (KvForm) form, key,
			 (const char *) key.data + key.len, len);
	else if (kind == KV_VERSION_DELETE)
		pass(passing, KV_CHANGE_DELETE, relid, KV_FORM_RAW, key, NULL, 0);
}

static void
pass_put(Passing *passing, const KvWalPut *put)
{
	KvKey		key = {(const uint8 *) (put + 1), put->keylen};

	pass_version(passing, put->store.relid, put->kind, put->form, key, put->len);
}

static void
pass_versions(Passing *passing, const KvWalVersions *versions)
{
	const char *at = (const char *) (versions + 1);

	for (uint32 i = 0; i < versions->nversions; i++)
	{
		KvWalVersion one;
		KvKey		key;

		memcpy(&one, at, sizeof(one));
		key.data = (const uint8 *) at + sizeof(one);
		key.len = one.keylen;
		pass_version(passing, versions->store.relid, one.kind, one.form, key, one.len);
		at += sizeof(one) + one.keylen + one.len;
	}
}

static void
pass_truncate(Passing *passing, const KvWalTruncate *truncate)
{
	KvKey		nothing = {NULL, 0};

	pass(passing, KV_CHANGE_TRUNCATE, truncate->relid, KV_FORM_RAW, nothing, NULL, 0);
}

/* The database of a record with changes to pass on; InvalidOid: there are none. */
static Oid
fed_database(uint8 type, const char *data, Size len)
{
	if (type == KV_XLOG_TRUNCATE && len >= sizeof(KvWalTruncate))
		return ((const KvWalTruncate *) data)->dboid;
	if (type == KV_XLOG_PUT && len >= sizeof(KvWalPut) &&
		(((const KvWalPut *) data)->flags & KV_WAL_FED))
		return ((const KvWalPut *) data)->store.dboid;
	if (type == KV_XLOG_VERSIONS && len >= sizeof(KvWalVersions) &&
		(((const KvWalVersions *) data)->flags & KV_WAL_FED))
		return ((const KvWalVersions *) data)->store.dboid;
	return InvalidOid;
}

void
kv_wal_decode(LogicalDecodingContext *ctx, XLogRecordBuffer *buf)
{
	XLogReaderState *record = buf->record;
	uint8		type = XLogRecGetInfo(record) & ~XLR_INFO_MASK;
	const char *data = XLogRecGetData(record);
	Size		len = XLogRecGetDataLen(record);
	TransactionId xid = XLogRecGetXid(record);
	Oid			database = fed_database(type, data, len);
	Passing		passing;

	ReorderBufferProcessXid(ctx->reorder, xid, buf->origptr);
	if (!OidIsValid(database) || database != ctx->slot->data.database ||
		!TransactionIdIsValid(xid) ||
		SnapBuildCurrentState(ctx->snapshot_builder) < SNAPBUILD_FULL_SNAPSHOT)
		return;
	if (ctx->callbacks.filter_by_origin_cb != NULL &&
		filter_by_origin_cb_wrapper(ctx, XLogRecGetOrigin(record)))
		return;
	if (!SnapBuildProcessChange(ctx->snapshot_builder, xid, buf->origptr) || ctx->fast_forward)
		return;
	if (!kv_wal_is_sound(type, data, len))
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("kvfdw WAL record at %X/%X is damaged",
						LSN_FORMAT_ARGS(buf->origptr))));

	passing.ctx = ctx;
	passing.xid = xid;
	passing.lsn = buf->origptr;
	passing.trusted = kv_change_is_trusted != NULL && kv_change_is_trusted(ctx);
	passing.as_text = !passing.trusted &&
		ctx->options.output_type == OUTPUT_PLUGIN_TEXTUAL_OUTPUT;
	if (type == KV_XLOG_TRUNCATE)
		pass_truncate(&passing, (const KvWalTruncate *) data);
	else if (type == KV_XLOG_VERSIONS)
		pass_versions(&passing, (const KvWalVersions *) data);
	else
		pass_put(&passing, (const KvWalPut *) data);
}
