/*
 * walcheck.c
 *		Verifies a WAL record before it is used.
 *
 * PostgreSQL has verified the record's checksum, so a wrong record was written like that.  Redo
 * and rm_desc follow lengths only in records that have passed.
 */
#include "postgres.h"

#include "access/transam.h"

#include "engine/base/types.h"
#include "engine/engine.h"
#include "engine/format/format.h"
#include "engine/xact/walrecord.h"

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
	if (!kv_wal_names_store(type, data, len))
		return false;
	switch (type)
	{
		case KV_XLOG_PUT:
			return put_is_sound(data, len);
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

	return type != KV_XLOG_DURABLE && len >= sizeof(*key) &&
		OidIsValid(key->dboid) && OidIsValid(key->relid) && key->generation > 0;
}
