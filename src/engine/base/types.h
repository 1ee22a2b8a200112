/*
 * types.h
 *		Types of all modules of the engine: limits, keys, versions, addresses, locations.
 *
 * Types and arithmetic only; nothing here takes a lock, allocates or raises.
 */
#ifndef KV_TYPES_H
#define KV_TYPES_H

#define KV_FORMAT_VERSION	1	/* of each file but the control file */
#define KV_MAX_UNFROZEN		12	/* unfrozen runs of one shard */

/* Limits, each documented in README.md. */
#define KV_MAX_KEY			2700	/* bytes of an encoded key */
#define KV_MAX_VALUE		((Size) 256 * 1024 * 1024)	/* bytes of a stored value */
#define KV_MAX_SHARDS		65536
#define KV_BLOCK			4096	/* the unit of direct I/O */

/*
 * A shard's id is unique in its store, for ever.  It is independent of the shard's place in key
 * order, which is its position in the map (shard/map.c).
 */
#define KV_SHARD_IDS	0x100000		/* five hexadecimal digits of file names */
#define KV_NO_SHARD			PG_UINT32_MAX

#define KV_MAX_LEAVING		15	/* tablespaces that the values of a store are leaving */

/* The shape of a value, chosen by the SQL side; the engine stores and returns it. */
typedef enum KvForm
{
	KV_FORM_RAW = 0,			/* the payload of the one value column */
	KV_FORM_NULL = 1,			/* that column is NULL; no bytes */
	KV_FORM_TUPLE = 2,			/* a compact tuple (table/tuple.c) */
	KV_FORM_KEY = 3,			/* not a row, but the key to which a deleted row moved */

	/*
	 * With RAW or TUPLE: the value is compressed as a whole (table/compress.c).  This is a bit
	 * of the form, and the uncompressed length is at the beginning of the stored bytes, not in
	 * the version.  So versions, entries, runs and WAL records have the same layout as for any
	 * value; their len and CRC are of the stored bytes, and code that moves, keeps or counts
	 * values is independent of compression.
	 */
	KV_FORM_LZ4 = 8
} KvForm;

/* What a commit survives; these numbers are in files and WAL records. */
typedef enum KvWalLevel
{
	KV_WAL_NONE = 0,			/* SIGKILL */
	KV_WAL_KEYS = 1,			/* and a power loss */
	KV_WAL_FULL = 2				/* and the loss of the server, because there are standbys */
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
	uint32		generation;		/* TRUNCATE creates a new one */
} KvStoreKey;

static inline bool
kv_same_store(const KvStoreKey *a, const KvStoreKey *b)
{
	return memcmp(a, b, sizeof(KvStoreKey)) == 0;
}

/* Properties of a store in its table file, and in its CREATE record. */
typedef struct KvStoreShape
{
	int			nshards;		/* initial number of shards; their ids are 0, 1, … in key order */
	int			key_width;		/* every key's length if 1 to 8, else 0 */
	uint64		creator;		/* full xid of the TRUNCATE that created it, or 0 */
	uint32		creator_incarnation;
	KvWalLevel	wal;
	uint64		id;				/* never repeats, not 0 */
	bool		maps;			/* it may have had maps after the first one */
	/* where its value files are created; InvalidOid: in its own directory */
	Oid			tablespace;
	uint64		moved_lsn;		/* end of the MOVE record of that; 0: there has been none */
	/*
	 * if there has been one: tablespaces that may still have value files, as its own directory
	 * may
	 */
	int			nleaving;
	Oid			leaving[KV_MAX_LEAVING];	/* these tablespaces */
	bool		unusable;		/* its directory has a file with the reason */
} KvStoreShape;

/*
 * Addresses of values: volumes, and their division into files.
 *
 * An address has 63 bits: a volume's number (20) and a byte in it (43).  There is no volume below
 * KV_FIRST_VOLUME, so no value file has address 0, which means none.  Volumes are divided into
 * value files of one size; the volume's number determines the class, and so the size.  So an
 * address alone determines its file, and its offset in that.  Within a volume addresses continue
 * from value file to value file.
 */
typedef uint64 KvAddress;

#define KV_VOLUME_BITS		43
#define KV_FIRST_VOLUME		0x10000
#define KV_LAST_VOLUME		0xFFFFF
#define KV_VALUE_FILE_CLASSES	5
#define KV_CLASS_VOLUMES	0x30000	/* volumes of each class */

/*
 * A value file, identified by the address of its first byte.  A struct, so that the compiler
 * accepts no other number as one.
 */
typedef struct KvFileId
{
	KvAddress	address;
} KvFileId;

static inline bool
kv_same_file(KvFileId a, KvFileId b)
{
	return a.address == b.address;
}

static inline uint32
kv_volume_of(KvAddress address)
{
	return address >> KV_VOLUME_BITS;
}

static inline KvAddress
kv_volume_begin(uint32 volume)
{
	return (uint64) volume << KV_VOLUME_BITS;
}

/* Is the volume one that values can be in? */
static inline bool
kv_address_is_possible(KvAddress address)
{
	uint32		volume = kv_volume_of(address);

	return volume >= KV_FIRST_VOLUME && volume <= KV_LAST_VOLUME;
}

/* The class of a volume; of one below the first, which no value is in, that of the first. */
static inline int
kv_class_of(KvAddress address)
{
	uint32		volume = kv_volume_of(address);

	return volume < KV_FIRST_VOLUME ? 0 : (volume - KV_FIRST_VOLUME) / KV_CLASS_VOLUMES;
}

#ifdef KVFDW_FAULTS
/* the size of the smallest value files, for tests; 0: as in other builds */
extern int	kv_test_value_file_kb;
#endif

/* 4 MB, 16 MB, 64 MB, 256 MB, 1 GB. */
static inline uint64
kv_value_file_size(int class)
{
#ifdef KVFDW_FAULTS
	/* the largest value must fit into a value file of the last class */
	if (kv_test_value_file_kb > 0 && class < KV_VALUE_FILE_CLASSES - 1)
		return (uint64) kv_test_value_file_kb << (10 + 2 * class);
#endif
	return UINT64CONST(1) << (22 + 2 * class);
}

/* Bytes of a file's address range, used or not. */
static inline uint64
kv_file_span(KvFileId file)
{
	return kv_value_file_size(kv_class_of(file.address));
}

/* The file that contains an address. */
static inline KvFileId
kv_file_of(KvAddress address)
{
	KvFileId	whole = {address};

	return (KvFileId) {address & ~(kv_file_span(whole) - 1)};
}

/* The offset of an address in its file. */
static inline uint64
kv_offset_of(KvAddress address)
{
	return address - kv_file_of(address).address;
}

/* The order of two addresses, for qsort and bsearch. */
static inline int
kv_address_compare(const void *a, const void *b)
{
	KvAddress	left = *(const KvAddress *) a;
	KvAddress	right = *(const KvAddress *) b;

	return left < right ? -1 : left > right;
}

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

/* The known final status of a version's transaction. */
typedef enum KvXidStatus
{
	KV_XID_UNKNOWN = 0,
	KV_XID_COMMITTED = 1,
	KV_XID_ABORTED = 2
} KvXidStatus;

/* One version of one key, wherever it is stored. */
typedef struct KvVersion
{
	uint64		xid;			/* full xid; 0 in a frozen run: visible to all */
	KvLocation	location;
	uint32		len;
	uint32		crc;			/* kv_value_crc */
	CommandId	cid;
	uint8		kind;			/* KvVersionKind */
	uint8		status;			/* KvXidStatus */
	/* the value is in a write buffer, and gets another location when that is written */
	bool		moves;
	uint8		pad;
} KvVersion;

#endif							/* KV_TYPES_H */
