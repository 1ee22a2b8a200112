/*
 * address.h
 *		Addresses of values: volumes, and their division into files.
 *
 * An address has 63 bits: a volume's number (20) and a byte in it (43).  There is no volume below
 * KV_FIRST_VOLUME, so no value file has address 0, which means none.  Volumes are divided into
 * value files of one size; the volume's number determines the class, and so the size.  So an
 * address alone determines its file, and its offset in that.  Within a volume addresses continue
 * from value file to value file.
 *
 * Arithmetic only; nothing here takes a lock, allocates or raises.
 */
#ifndef KV_ADDRESS_H
#define KV_ADDRESS_H

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
extern int	kv_address_compare(const void *a, const void *b);

#endif							/* KV_ADDRESS_H */
