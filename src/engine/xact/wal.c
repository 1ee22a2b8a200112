/*
 * wal.c
 *		The engine's WAL records, and its resource manager.
 *
 * A store's wal level determines what is logged:
 *
 *	full	every version, with its value (PUT)
 *	keys	every version, with its value or by its location (BATCH); buffer/commit.c
 *	none	nothing of it; each writing (sub)transaction inserts one XLOG_NOOP,
 *			because PostgreSQL flushes no commit without WAL
 *
 * At every level: the creation of a store (CREATE), its schema image (SCHEMA), the removal of
 * its directory (GONE), and each checkpoint (DURABLE).
 *
 * At level 'full' a version is logged after it is in its shard and before its statement
 * continues. So a version with a record before a checkpoint's redo pointer is in the
 * checkpoint's images, and commit records are later in any case.  Two versions of a key have
 * the same order in the WAL as in the shard, because the second writer has waited for the end
 * of the first (I 2).
 *
 * restart/redo.c replays the records.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "access/xloginsert.h"
#include "access/xlogrecovery.h"

#include "compat.h"
#include "engine/base/types.h"
#include "engine/engine.h"
#include "engine/xact/walrecord.h"
#include "engine/xact/xact.h"

#define KV_WAL_HINT		((Size) 256 * 1024)

static const char *const kind_names[] = {
	[KV_VERSION_PUT] = "put",
	[KV_VERSION_DELETE] = "delete",
	[KV_VERSION_LOCK] = "lock",
};

const char *
kv_wal_identify(uint8 info)
{
	switch (info & ~XLR_INFO_MASK)
	{
		case KV_XLOG_PUT:
			return "PUT";
		case KV_XLOG_BATCH:
			return "BATCH";
		case KV_XLOG_CREATE:
			return "CREATE";
		case KV_XLOG_SCHEMA:
			return "SCHEMA";
		case KV_XLOG_GONE:
			return "GONE";
		case KV_XLOG_DURABLE:
			return "DURABLE";
		case KV_XLOG_MOVE:
			return "MOVE";
		default:
			return NULL;
	}
}

void
kv_wal_describe(StringInfo buf, XLogReaderState *record)
{
	const char *data = XLogRecGetData(record);
	const KvStoreKey *key = (const KvStoreKey *) data;

	if (!kv_wal_is_sound(XLogRecGetInfo(record) & ~XLR_INFO_MASK, data,
						 XLogRecGetDataLen(record)))
	{
		appendStringInfoString(buf, "damaged");
		return;
	}
	if ((XLogRecGetInfo(record) & ~XLR_INFO_MASK) == KV_XLOG_DURABLE)
	{
		const KvWalDurable *durable = (const KvWalDurable *) data;

		appendStringInfo(buf, "number %llu%s; redo %X/%X, shards %llu, files %llu, bytes %llu",
						 (unsigned long long) durable->number,
						 durable->closing ? ", closing" : "", LSN_FORMAT_ARGS(durable->redo),
						 (unsigned long long) durable->shards,
						 (unsigned long long) durable->files,
						 (unsigned long long) durable->bytes);
		return;
	}
	appendStringInfo(buf, "db %u, table %u, generation %u", key->dboid, key->relid,
					 key->generation);
	switch (XLogRecGetInfo(record) & ~XLR_INFO_MASK)
	{
		case KV_XLOG_PUT:
			{
				const KvWalPut *put = (const KvWalPut *) data;

				appendStringInfo(buf, "; %s, xid %llu, cid %u, key ",
								 put->kind <= KV_VERSION_LOCK && kind_names[put->kind] ?
								 kind_names[put->kind] : "?",
								 (unsigned long long) put->xid, put->cid);
				for (int i = 0; i < Min(put->keylen, 16); i++)
					appendStringInfo(buf, "%02x", ((const uint8 *) (put + 1))[i]);
				appendStringInfo(buf, "%s, length %u", put->keylen > 16 ? "…" : "", put->len);
				break;
			}
		case KV_XLOG_BATCH:
			appendStringInfo(buf, "; entries %u", ((const KvWalBatch *) data)->nentries);
			break;
		case KV_XLOG_CREATE:
			{
				const KvWalCreate *create = (const KvWalCreate *) data;

				appendStringInfo(buf, "; id %llu, shards %u, wal level %u",
								 (unsigned long long) create->id, create->nshards,
								 create->wal & ~KV_WAL_IN_TABLESPACE);
				break;
			}
		case KV_XLOG_GONE:
			appendStringInfo(buf, "; id %llu",
							 (unsigned long long) ((const KvWalGone *) data)->id);
			break;
		case KV_XLOG_MOVE:
			appendStringInfo(buf, "; id %llu, tablespace %u",
							 (unsigned long long) ((const KvWalMove *) data)->id,
							 ((const KvWalMove *) data)->tablespace);
			break;
		default:
			break;
	}
}

/* Insert the smallest record; it carries the current xid, if any. */
static XLogRecPtr
insert_noop(void)
{
	uint8		byte = 0;

	XLogBeginInsert();
	XLogRegisterData((char *) &byte, sizeof(byte));
	return XLogInsert(RM_XLOG_ID, XLOG_NOOP);
}

void
kv_wal_mark_transaction(TransactionId xid)
{
	Assert(TransactionIdIsValid(xid));
	(void) insert_noop();
}

void
kv_wal_flush(void)
{
	/*
	 * the insert position itself may be after a page header that is not written yet; the end of
	 * a record of our own is safe to flush up to
	 */
	XLogFlush(RecoveryInProgress() ? GetXLogReplayRecPtr(NULL) : insert_noop());
}

/*
 * Have the WAL writer begin to write what a long transaction has logged.  Once the WAL buffers
 * are full, each record that needs a page has to write one out itself, one page at a time.  Not
 * while commits flush the WAL: they would have to wait for the WAL writer's flush.
 */
static void
hint_wal_writer(XLogRecPtr end, Size len)
{
	static Size logged = 0;		/* since the last call of the WAL writer */

	logged += len;
	if (logged < KV_WAL_HINT)
		return;
	logged = 0;
	if (end >= GetFlushRecPtr(NULL) + KV_WAL_HINT)
		XLogSetAsyncXactLSN(end);
}

void
kv_wal_log_version(const KvStoreKey *store, KvKey key, const KvVersion *version,
				   uint32 crc, const char *value)
{
	KvWalPut	put = {0};

	put.store = *store;
	put.kind = version->kind;
	put.form = KV_LOCATION_FORM(version->location);
	put.keylen = key.len;
	put.xid = version->xid;
	put.cid = version->cid;
	put.len = version->len;
	put.crc = crc;
	XLogBeginInsert();
	XLogRegisterData((char *) &put, sizeof(put));
	if (key.len > 0)
		XLogRegisterData(unconstify(char *, (const char *) key.data), key.len);
	if (version->len > 0)
		XLogRegisterData(unconstify(char *, value), version->len);
	hint_wal_writer(XLogInsert(KV_RMGR_ID, KV_XLOG_PUT), sizeof(put) + key.len + version->len);
}

void
kv_wal_log_batch(const KvStoreKey *store, const char *entries, uint32 bytes, uint32 n)
{
	KvWalBatch	batch = {.store = *store, .nentries = n};

	XLogBeginInsert();
	XLogRegisterData((char *) &batch, sizeof(batch));
	XLogRegisterData(unconstify(char *, entries), bytes);
	(void) XLogInsert(KV_RMGR_ID, KV_XLOG_BATCH);
}

void
kv_wal_log_create(const KvStoreKey *key, const KvStoreShape *shape, const KvKey *bounds)
{
	KvWalCreate create = {0};
	StringInfoData bytes;

	create.store = *key;
	create.nshards = shape->nshards;
	create.id = shape->id;
	create.creator = shape->creator;
	create.key_width = shape->key_width;
	create.wal = shape->wal;
	initStringInfo(&bytes);
	if (OidIsValid(shape->tablespace))
	{
		create.wal |= KV_WAL_IN_TABLESPACE;
		appendBinaryStringInfo(&bytes, (const char *) &shape->tablespace, sizeof(Oid));
	}
	for (int i = 1; i < shape->nshards; i++)
	{
		uint16		len = bounds[i].len;

		appendBinaryStringInfo(&bytes, (char *) &len, sizeof(len));
		appendBinaryStringInfo(&bytes, (const char *) bounds[i].data, len);
	}
	XLogBeginInsert();
	XLogRegisterData((char *) &create, sizeof(create));
	if (bytes.len > 0)
		XLogRegisterData(bytes.data, bytes.len);
	XLogFlush(XLogInsert(KV_RMGR_ID, KV_XLOG_CREATE));
	pfree(bytes.data);
}

void
kv_wal_log_schema(const KvStoreKey *key, const char *data, int len)
{
	XLogBeginInsert();
	XLogRegisterData((char *) unconstify(KvStoreKey *, key), sizeof(KvStoreKey));
	if (len > 0)
		XLogRegisterData(unconstify(char *, data), len);
	XLogFlush(XLogInsert(KV_RMGR_ID, KV_XLOG_SCHEMA));
}

void
kv_wal_log_gone(const KvStoreKey *key, uint64 id)
{
	KvWalGone	gone = {.store = *key, .id = id};

	XLogBeginInsert();
	XLogRegisterData((char *) &gone, sizeof(gone));
	XLogFlush(XLogInsert(KV_RMGR_ID, KV_XLOG_GONE));
}

uint64
kv_wal_log_durable(const KvCheckpointerStats *stats, uint64 redo, uint64 ended, bool closing)
{
	KvWalDurable durable = {0};

	durable.number = stats->checkpoints;
	durable.redo = redo;
	durable.shards = stats->shards;
	durable.files = stats->files;
	durable.bytes = stats->bytes;
	durable.closing = closing;
	durable.horizon = ended;
	XLogBeginInsert();
	XLogRegisterData((char *) &durable, sizeof(durable));
	XLogSetRecordFlags(XLOG_MARK_UNIMPORTANT);
	return XLogInsert(KV_RMGR_ID, KV_XLOG_DURABLE);
}

uint64
kv_wal_log_move(const KvStoreKey *key, uint64 id, Oid tablespace)
{
	KvWalMove	move = {.store = *key, .tablespace = tablespace, .id = id};
	XLogRecPtr	end;

	XLogBeginInsert();
	XLogRegisterData((char *) &move, sizeof(move));
	end = XLogInsert(KV_RMGR_ID, KV_XLOG_MOVE);
	XLogFlush(end);
	return end;
}
