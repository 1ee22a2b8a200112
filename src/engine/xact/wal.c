/*
 * wal.c
 *		The engine's WAL records: writing them, the resource manager, checks of a record before it
 *		is used, and the gate that writers wait at until there is a checkpointer.
 *
 * A store's wal level determines what is logged:
 *
 *	full	every version, with its value (PUT; several small ones of a statement: VERSIONS);
 *			exception: lifecycle/unlogged.c
 *	keys	every version, with its value or by its location (BATCH); buffer/commit.c
 *	none	nothing of it; each writing (sub)transaction inserts one XLOG_NOOP,
 *			because PostgreSQL flushes no commit without WAL
 *
 * At every level: the creation of a store (CREATE), its schema image (SCHEMA), the removal of
 * its directory (GONE), and each checkpoint (DURABLE).  TRUNCATE is logged for logical decoding
 * only (decode.c).
 *
 * At level 'full' a version is logged after it is in its shard and before its statement
 * continues. So a version with a record before a checkpoint's redo pointer is in the
 * checkpoint's marks, and commit records are later in any case.  Two versions of a key have
 * the same order in the WAL as in the shard, because the second writer has waited for the end
 * of the first (I 2).
 *
 * restart/redo.c replays the records.
 *
 * A record is checked before redo or rm_desc follows a length in it.  PostgreSQL has verified its
 * checksum, so a wrong record was written like that.
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "access/xloginsert.h"
#include "access/xlogrecovery.h"
#include "miscadmin.h"

#include "compat.h"
#include "engine/base/types.h"
#include "engine/base/wait.h"
#include "engine/change.h"
#include "engine/format/format.h"
#include "engine/maintenance.h"
#include "engine/xact/walrecord.h"
#include "engine/xact/xact.h"

#define KV_WAL_HINT		((Size) 256 * 1024)
#define KV_PACKED		8000	/* bytes of versions in a record; with larger ones, pages of WAL
								 * would be left partly unused for no gain */
#define KV_PACKED_MOST	(KV_PACKED / 4)	/* a larger version has a record of its own */

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
		case KV_XLOG_VERSIONS:
			return "VERSIONS";
		case KV_XLOG_TRUNCATE:
			return "TRUNCATE";
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
	if ((XLogRecGetInfo(record) & ~XLR_INFO_MASK) == KV_XLOG_TRUNCATE)
	{
		appendStringInfo(buf, "db %u, table %u", ((const KvWalTruncate *) data)->dboid,
						 ((const KvWalTruncate *) data)->relid);
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
				appendStringInfo(buf, "%s, length %u%s", put->keylen > 16 ? "…" : "", put->len,
								 put->flags & KV_WAL_FED ? ", fed" : "");
				break;
			}
		case KV_XLOG_VERSIONS:
			appendStringInfo(buf, "; versions %u, xid %llu, cid %u%s",
							 ((const KvWalVersions *) data)->nversions,
							 (unsigned long long) ((const KvWalVersions *) data)->xid,
							 ((const KvWalVersions *) data)->cid,
							 ((const KvWalVersions *) data)->flags & KV_WAL_FED ? ", fed" : "");
			break;
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
				   uint32 crc, const char *value, bool fed)
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
	put.flags = fed && version->kind != KV_VERSION_LOCK ? KV_WAL_FED : 0;
	XLogBeginInsert();
	if (fed)
		XLogSetRecordFlags(XLOG_INCLUDE_ORIGIN);
	XLogRegisterData((char *) &put, sizeof(put));
	if (key.len > 0)
		XLogRegisterData(unconstify(char *, (const char *) key.data), key.len);
	if (version->len > 0)
		XLogRegisterData(unconstify(char *, value), version->len);
	hint_wal_writer(XLogInsert(KV_RMGR_ID, KV_XLOG_PUT), sizeof(put) + key.len + version->len);
}

/* Log the first n versions, which are in packed with so many bytes; one has a PUT. */
static void
log_packed(const KvStoreKey *store, const KvUnlogged *versions, int n, const char *packed,
		   Size bytes, bool fed)
{
	KvWalVersions head = {.store = *store, .nversions = n};

	if (n == 1)
		kv_wal_log_version(store, versions->key, &versions->version, versions->crc,
						   versions->value, fed);
	if (n <= 1)
		return;
	head.xid = versions->version.xid;
	head.cid = versions->version.cid;
	head.flags = fed ? KV_WAL_FED : 0;
	XLogBeginInsert();
	if (fed)
		XLogSetRecordFlags(XLOG_INCLUDE_ORIGIN);
	XLogRegisterData((char *) &head, sizeof(head));
	XLogRegisterData(unconstify(char *, packed), bytes);
	hint_wal_writer(XLogInsert(KV_RMGR_ID, KV_XLOG_VERSIONS), sizeof(head) + bytes);
}

/* Append a version to others; returns its end. */
static char *
pack(char *into, const KvUnlogged *one)
{
	KvWalVersion packed = {
		.len = one->version.len, .crc = one->crc, .keylen = one->key.len,
		.kind = one->version.kind, .form = KV_LOCATION_FORM(one->version.location)
	};

	memcpy(into, &packed, sizeof(packed));
	into += sizeof(packed);
	memcpy(into, one->key.data, one->key.len);
	into += one->key.len;
	if (one->version.len > 0)
		memcpy(into, one->value, one->version.len);
	return into + one->version.len;
}

void
kv_wal_log_versions(const KvStoreKey *store, const KvUnlogged *versions, int n, bool fed)
{
	char		packed[KV_PACKED];
	char	   *end = packed;
	int			first = 0;		/* of the versions in packed */

	for (int i = 0; i < n; i++)
	{
		const KvUnlogged *one = &versions[i];
		Size		size = sizeof(KvWalVersion) + one->key.len + one->version.len;

		if (i > first &&
			(size > KV_PACKED_MOST || size > packed + KV_PACKED - end ||
			 one->version.xid != versions[first].version.xid ||
			 one->version.cid != versions[first].version.cid))
		{
			log_packed(store, &versions[first], i - first, packed, end - packed, fed);
			end = packed;
			first = i;
		}
		if (size <= KV_PACKED_MOST)
			end = pack(end, one);
		else
		{
			kv_wal_log_version(store, one->key, &one->version, one->crc, one->value, fed);
			first = i + 1;
		}
	}
	log_packed(store, &versions[first], n - first, packed, end - packed, fed);
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

void
kv_wal_log_truncate(Oid dboid, Oid relid)
{
	KvWalTruncate truncate = {.dboid = dboid, .relid = relid};

	if (!XLogLogicalInfoActive())
		return;
	XLogBeginInsert();
	XLogSetRecordFlags(XLOG_INCLUDE_ORIGIN);
	XLogRegisterData((char *) &truncate, sizeof(truncate));
	(void) XLogInsert(KV_RMGR_ID, KV_XLOG_TRUNCATE);
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

/* ---- checks of records ---- */

/* Xids of redo are never far ahead of the next one. */
static bool
xid_is_possible(uint64 xid)
{
	return TransactionIdIsNormal((TransactionId) xid) &&
		xid < U64FromFullTransactionId(ReadNextFullTransactionId()) + (PG_UINT32_MAX >> 1);
}

static bool
form_is_known(uint8 form)
{
	return form <= KV_FORM_KEY || form == (KV_FORM_RAW | KV_FORM_LZ4) ||
		form == (KV_FORM_TUPLE | KV_FORM_LZ4);
}

static bool
kind_is_known(uint8 kind)
{
	return kind == KV_VERSION_PUT || kind == KV_VERSION_DELETE || kind == KV_VERSION_LOCK;
}

static bool
put_is_sound(const char *data, Size len)
{
	const KvWalPut *put = (const KvWalPut *) data;

	return len >= sizeof(*put) && put->keylen <= KV_MAX_KEY && put->len <= KV_MAX_VALUE &&
		len == sizeof(*put) + put->keylen + put->len &&
		kind_is_known(put->kind) && form_is_known(put->form) && xid_is_possible(put->xid);
}

static bool
versions_are_sound(const char *data, Size len)
{
	const KvWalVersions *versions = (const KvWalVersions *) data;
	Size		at = sizeof(*versions);

	if (len < at || !xid_is_possible(versions->xid))
		return false;
	for (uint32 i = 0; i < versions->nversions; i++)
	{
		KvWalVersion version;

		if (len - at < sizeof(version))
			return false;
		memcpy(&version, data + at, sizeof(version));
		at += sizeof(version);
		if (version.keylen > KV_MAX_KEY || version.len > KV_MAX_VALUE ||
			len - at < (Size) version.keylen + version.len ||
			!kind_is_known(version.kind) || !form_is_known(version.form))
			return false;
		at += (Size) version.keylen + version.len;
	}
	return at == len;
}

static bool
batch_is_sound(const char *data, Size len)
{
	const KvWalBatch *batch = (const KvWalBatch *) data;
	Size		at = sizeof(*batch);

	if (len < at)
		return false;
	for (uint32 i = 0; i < batch->nentries; i++)
	{
		const KvLogEntry *entry = (const KvLogEntry *) (data + at);

		if (len - at < sizeof(*entry) || entry->keylen > KV_MAX_KEY ||
			len - at < KV_LOG_ENTRY_SIZE(entry->keylen) || entry->len > KV_MAX_VALUE ||
			!kind_is_known(entry->kind) || !xid_is_possible(entry->xid) ||
			(entry->len > 0 && !kv_address_is_possible(KV_LOCATION_ADDRESS(entry->location))))
			return false;
		at += KV_LOG_ENTRY_SIZE(entry->keylen);
	}
	return at == len;
}

static bool
create_is_sound(const char *data, Size len)
{
	const KvWalCreate *create = (const KvWalCreate *) data;
	const uint8 *before = (const uint8 *) data;
	int			before_len = 0;
	Size		at = sizeof(*create);

	if (len < at || create->nshards < 1 || create->nshards > KV_MAX_SHARDS ||
		create->key_width > 8 || (create->wal & ~KV_WAL_IN_TABLESPACE) > KV_WAL_FULL)
		return false;
	if (create->wal & KV_WAL_IN_TABLESPACE)
	{
		if (len - at < sizeof(Oid))
			return false;
		at += sizeof(Oid);
	}
	for (uint32 i = 1; i < create->nshards; i++)
	{
		uint16		bound_len;

		if (len - at < sizeof(bound_len))
			return false;
		memcpy(&bound_len, data + at, sizeof(bound_len));
		at += sizeof(bound_len);
		if (bound_len > KV_MAX_KEY || len - at < bound_len ||
			kv_key_compare(before, before_len, (const uint8 *) data + at, bound_len) >= 0)
			return false;
		before = (const uint8 *) data + at;
		before_len = bound_len;
		at += bound_len;
	}
	return at == len;
}

bool
kv_wal_is_sound(uint8 type, const char *data, Size len)
{
	if (type == KV_XLOG_DURABLE)
		return len == sizeof(KvWalDurable);
	if (type == KV_XLOG_TRUNCATE)
		return len == sizeof(KvWalTruncate);
	if (!kv_wal_names_store(type, data, len))
		return false;
	switch (type)
	{
		case KV_XLOG_PUT:
			return put_is_sound(data, len);
		case KV_XLOG_VERSIONS:
			return versions_are_sound(data, len);
		case KV_XLOG_BATCH:
			return batch_is_sound(data, len);
		case KV_XLOG_CREATE:
			return create_is_sound(data, len);
		case KV_XLOG_SCHEMA:
			return len > sizeof(KvStoreKey);
		case KV_XLOG_GONE:
			return len == sizeof(KvWalGone);
		case KV_XLOG_MOVE:
			return len == sizeof(KvWalMove);
		default:
			return false;
	}
}

bool
kv_wal_names_store(uint8 type, const char *data, Size len)
{
	const KvStoreKey *key = (const KvStoreKey *) data;

	return type != KV_XLOG_DURABLE && type != KV_XLOG_TRUNCATE && len >= sizeof(*key) &&
		OidIsValid(key->dboid) && OidIsValid(key->relid) && key->generation > 0;
}

/* ---- the gate ---- */

#define KV_GATE_PATIENCE 60		/* seconds */

KvGate	   *kv_gate = NULL;

void
kv_gate_init(void)
{
	pg_atomic_init_u32(&kv_gate->is_open, 0);
	ConditionVariableInit(&kv_gate->opened);
	pg_atomic_init_u32(&kv_gate->logging, 0);
}

void
kv_gate_wait(void)
{
	ConditionVariablePrepareToSleep(&kv_gate->opened);
	for (int i = 0; pg_atomic_read_u32(&kv_gate->is_open) == 0; i++)
	{
		CHECK_FOR_INTERRUPTS();
		if (i == KV_GATE_PATIENCE || !IsUnderPostmaster)
		{
			ConditionVariableCancelSleep();
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("cannot write to kvfdw tables because background worker \"kvfdw "
							"checkpointer\" is not running"),
					 IsUnderPostmaster ?
					 errhint("Check the server log for why it exited, or increase "
							 "\"max_worker_processes\" and restart the server.") :
					 errhint("Start the server in multi-user mode.")));
		}
		ConditionVariableTimedSleep(&kv_gate->opened, 1000, KV_WAIT_CHECKPOINTER);
	}
	ConditionVariableCancelSleep();
}
