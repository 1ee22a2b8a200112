/*
 * types.h
 *		What all modules of the engine speak of: limits, keys, versions, locations.
 *
 * Types only; nothing here takes a lock, allocates or raises.
 */
#ifndef KV_TYPES_H
#define KV_TYPES_H

#include "engine/base/address.h"

#define KV_FORMAT_VERSION	1	/* of a file that does not say otherwise */
#define KV_MAX_UNFROZEN		12	/* unfrozen runs of one shard */

/* Limits, each documented in README.md. */
#define KV_MAX_KEY			2700	/* bytes of an encoded key */
#define KV_MAX_VALUE		((Size) 256 * 1024 * 1024)	/* bytes of a stored value */
#define KV_MAX_SHARDS		65536
#define KV_BLOCK			4096	/* the unit of direct I/O */

/*
 * A shard goes by a number that no other shard of its store ever has.  It says nothing of
 * where the shard is in the order of keys: that is its position in the map (shard/map.c).
 */
#define KV_SHARD_IDS	0x100000		/* five hexadecimal digits of file names */
#define KV_NO_SHARD			PG_UINT32_MAX

#define KV_MAX_LEAVING		15	/* tablespaces that the values of a store are leaving */

/* How the SQL side shaped a value; the engine stores it and gives it back. */
typedef enum KvForm
{
	KV_FORM_RAW = 0,			/* the payload of the one value column */
	KV_FORM_NULL = 1,			/* that column is NULL; no bytes */
	KV_FORM_TUPLE = 2,			/* a compact tuple (table/tuple.c) */
	KV_FORM_KEY = 3,			/* no row: the key to which a deleted one moved */

	/*
	 * With RAW or TUPLE: compressed as a whole (table/compress.c).  A bit of the form, and the
	 * other length at the beginning of the stored bytes, not in the version: so versions,
	 * entries, runs and WAL records have the layout that they have for any value, their len
	 * and CRC are of the stored bytes, and whoever moves, keeps or counts a value need not
	 * know.  The other length is for who has the bytes already, under the same CRC.
	 */
	KV_FORM_LZ4 = 8
} KvForm;

/* What a commit survives; the numbers are in files and WAL records. */
typedef enum KvWalLevel
{
	KV_WAL_NONE = 0,			/* SIGKILL */
	KV_WAL_KEYS = 1,			/* and power loss */
	KV_WAL_FULL = 2				/* and the loss of the server, for there are standbys */
} KvWalLevel;

typedef struct KvStore KvStore; /* shared memory; stable while its table exists */

typedef struct KvKey
{
	const uint8 *data;
	int			len;
} KvKey;

typedef void (*KvProblemCallback) (void *arg, const char *file, int64 offset,
								   const char *problem);

typedef struct KvStoreKey
{
	Oid			dboid;
	Oid			relid;
	uint32		generation;		/* TRUNCATE makes a new one */
} KvStoreKey;

static inline bool
kv_same_store(const KvStoreKey *a, const KvStoreKey *b)
{
	return memcmp(a, b, sizeof(KvStoreKey)) == 0;
}

/* What its table file, and its CREATE record, say of a store. */
typedef struct KvStoreShape
{
	int			nshards;		/* as many as it was made with: numbers 0, 1, … in order */
	int			key_width;		/* every key's length if 1 to 8, else 0 */
	uint64		creator;		/* full xid of the TRUNCATE that made it, or 0 */
	uint32		creator_incarnation;
	KvWalLevel	wal;
	uint64		id;				/* never repeats; 0: written by a library without ids */
	bool		maps;			/* it may have had other maps than the first */
	/* where its value files are made; InvalidOid: in its own directory */
	Oid			tablespace;
	uint64		moved_lsn;		/* end of the MOVE record that says so; 0: there has been none */
	/* if there has been one, value files may lie in its own directory, too, … */
	int			nleaving;
	Oid			leaving[KV_MAX_LEAVING];	/* … and in these */
	bool		unusable;		/* its directory has a file that says why */
} KvStoreShape;

/* A location: form (4 bits), address / 8 (60). */
typedef uint64 KvLocation;
#define KV_LOCATION_MAKE(form, address) \
	(((uint64) (form) << 60) | ((KvAddress) (address) >> 3))
#define KV_LOCATION_FORM(loc)	((KvForm) ((loc) >> 60))
#define KV_LOCATION_ADDRESS(loc)	((KvAddress) ((loc) & UINT64CONST(0x0FFFFFFFFFFFFFFF)) << 3)

typedef enum KvVersionKind
{
	KV_VERSION_PUT = 1,
	KV_VERSION_DELETE = 2,
	KV_VERSION_LOCK = 3			/* a row lock: never visible */
} KvVersionKind;

/* What is known for good about a version's transaction. */
typedef enum KvXidStatus
{
	KV_XID_UNKNOWN = 0,
	KV_XID_COMMITTED = 1,
	KV_XID_ABORTED = 2
} KvXidStatus;

/* One version of one key, wherever it is kept. */
typedef struct KvVersion
{
	uint64		xid;			/* full xid; 0 in a frozen run: visible to all */
	KvLocation	location;
	uint32		len;
	uint32		crc;			/* kv_value_crc */
	CommandId	cid;
	uint8		kind;			/* KvVersionKind */
	uint8		status;			/* KvXidStatus */
	uint16		pad;
} KvVersion;

#endif							/* KV_TYPES_H */
