/*
 * walrecord.h
 *		The format of the engine's WAL records (docs/internals/format.md, WAL records).
 */
#ifndef KV_WALRECORD_H
#define KV_WALRECORD_H

#include "engine/base/types.h"

#define KV_RMGR_ID		201		/* of the custom range, 128 to 255 */

#define KV_XLOG_PUT		0x00
#define KV_XLOG_CREATE	0x10
#define KV_XLOG_SCHEMA	0x20
#define KV_XLOG_GONE	0x30
#define KV_XLOG_DURABLE	0x40
#define KV_XLOG_BATCH	0x50
#define KV_XLOG_MOVE	0x60
#define KV_XLOG_VERSIONS 0x70
#define KV_XLOG_TRUNCATE	0x80

/* A version; key and value follow. */
typedef struct KvWalPut
{
	KvStoreKey	store;
	uint32		cid;			/* of a LOCK its mode */
	uint64		xid;
	uint32		len;			/* of the value */
	uint32		crc;			/* of value, store and key: kv_value_crc_begin */
	uint16		keylen;
	uint8		kind;
	uint8		form;
	uint16		flags;			/* KV_WAL_… */
	uint16		pad;
} KvWalPut;

/*
 * Versions of one transaction and command.  Of each follow, without alignment, a KvWalVersion, its
 * key and its value.
 */
typedef struct KvWalVersions
{
	KvStoreKey	store;
	uint32		cid;			/* of LOCKs their mode */
	uint64		xid;
	uint32		nversions;
	uint32		flags;			/* as in KvWalPut */
} KvWalVersions;

typedef struct KvWalVersion
{
	uint32		len;			/* of the value */
	uint32		crc;			/* as in KvWalPut */
	uint16		keylen;
	uint8		kind;
	uint8		form;
} KvWalVersion;

#define KV_WAL_FED		0x0001	/* a change that logical decoding passes on */

/* Versions by location; KvLogEntry and key of each follow, as in a key log. */
typedef struct KvWalBatch
{
	KvStoreKey	store;
	uint32		nentries;
} KvWalBatch;

/* A store; for each shard but the first the length (u16) and bytes of its bound follow. */
typedef struct KvWalCreate
{
	KvStoreKey	store;
	uint32		nshards;
	uint64		id;
	uint64		creator;
	uint32		key_width;
	uint32		wal;			/* KvWalLevel, and KV_WAL_IN_TABLESPACE */
} KvWalCreate;

#define KV_WAL_IN_TABLESPACE	0x100	/* its OID precedes the bounds */

typedef struct KvWalGone
{
	KvStoreKey	store;
	uint32		pad;
	uint64		id;
} KvWalGone;

/*
 * From now on the store's value files are created in this tablespace; each server moves its
 * own.
 */
typedef struct KvWalMove
{
	KvStoreKey	store;
	Oid			tablespace;		/* InvalidOid: in the store's own directory */
	uint64		id;
} KvWalMove;

/* A table whose changes are followed was truncated; for logical decoding, not for redo. */
typedef struct KvWalTruncate
{
	Oid			dboid;
	Oid			relid;
} KvWalTruncate;

/* SCHEMA is a KvStoreKey and the schema image. */

typedef struct KvWalDurable
{
	uint64		number;
	uint64		redo;			/* redo pointer of its checkpoint */
	uint64		shards;
	uint64		files;
	uint64		bytes;
	uint64		closing;		/* no version is logged before the next DURABLE */
	uint64		horizon;		/* every transaction before it had ended */
} KvWalDurable;

StaticAssertDecl(sizeof(KvWalPut) == 40, "PUT record size");
StaticAssertDecl(sizeof(KvWalVersions) == 32, "VERSIONS record size");
StaticAssertDecl(sizeof(KvWalVersion) == 12, "size of a version in it");
StaticAssertDecl(sizeof(KvWalBatch) == 16, "BATCH record size");
StaticAssertDecl(sizeof(KvWalCreate) == 40, "CREATE record size");
StaticAssertDecl(sizeof(KvWalGone) == 24, "GONE record size");
StaticAssertDecl(sizeof(KvWalMove) == 24, "MOVE record size");
StaticAssertDecl(sizeof(KvWalTruncate) == 8, "TRUNCATE record size");
StaticAssertDecl(sizeof(KvWalDurable) == 56, "DURABLE record size");

/* Is this a possible record?  type, KV_XLOG_…, is its info without XLR_INFO_MASK. */
extern bool kv_wal_is_sound(uint8 type, const char *data, Size len);
/* Does the record name a store, whether it is valid or not? */
extern bool kv_wal_names_store(uint8 type, const char *data, Size len);

#endif							/* KV_WALRECORD_H */
