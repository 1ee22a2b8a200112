/*
 * byaddress.c
 *		Scans of whole tables in the order of the addresses of values.
 *
 * In a scattered shard, the values of neighbouring keys are far apart, in more bytes than fit into
 * the range cache.  A scan in key order would read each value individually.  A scan that may return
 * rows in any order gets them by address, in two steps:
 *
 * 1. Sort: goes through the shard's entries without values, and sorts the visible ones by address,
 *    in work_mem and then in temporary files.
 * 2. Take: returns rows in that order, batch by batch.  If most of a file's bytes are wanted, the
 *    file is read from end to end, segment by segment through windows.  Otherwise the wanted values
 *    are read in large reads.  After a split, a shard may have few of the values in the files that
 *    it shares with others.
 *
 * Step 1 decides visibility, as for any batch, and that does not change.  Addresses may change: if
 * a value has moved since, and is no longer at its address, its key is looked up (fetch.c).
 *
 * If another scan by address is running in a shard, the order begins at its position and wraps
 * around.  Shards that are not scattered are read in key order.
 */
#include "postgres.h"

#include "catalog/pg_operator.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "port/pg_bswap.h"
#include "utils/memutils.h"
#include "utils/tuplesort.h"

#include "compat.h"
#include "engine/base/types.h"
#include "engine/cache/reader.h"
#include "engine/rows.h"
#include "engine/scan/internal.h"
#include "engine/shard/map.h"
#include "engine/shard/shard.h"
#include "engine/buffer/buffer.h"

/* A scan that wants less than this share of a part of a file reads the values individually. */
#define KV_DENSE_SHARE	0.25

/* Maximum number of shards that are examined for the planner. */
#define KV_SHARDS_ASKED	16

/* A scan planned in key order may change to address order after this share of a shard. */
#define KV_TURN_SHARE	16

/* The sorted datum is a bytea with this struct, unaligned, followed by the key. */
typedef struct KvAddressRow
{
	uint64		distance;		/* from the start of the order; big-endian */
	KvLocation	location;		/* with KV_MOVES, if the version moves */
	uint32		len;
	uint32		crc;
} KvAddressRow;

/* No form of a value has this bit of a location. */
#define KV_MOVES	(UINT64CONST(1) << 62)

struct KvAddressOrder
{
	Tuplesortstate *sort;
	uint32		shard;
	KvAddress	begin;			/* start of the order */
	double		bytes_left;		/* bytes of the values that were not yet taken */
};

double
kv_store_scattered(KvStore *store)
{
	uint32		step = 1 + kv_store_nshards(store) / KV_SHARDS_ASKED;
	double		all = 0;
	double		scattered = 0;
	uint32		shard_id;

	for (uint32 at = 0; kv_shard_at(store, at, &shard_id, NULL); at += step)
	{
		double		entries = kv_shard_entries(store, shard_id);

		all += entries;
		if (entries > 0 && kv_shard_scattered(store, shard_id))
			scattered += entries;
	}
	return all > 0 ? scattered / all : 0;
}

double
kv_store_value_width(KvStore *store)
{
	uint32		step = 1 + kv_store_nshards(store) / KV_SHARDS_ASKED;
	double		entries = 0;
	double		bytes = 0;
	uint32		shard_id;

	for (uint32 at = 0; kv_shard_at(store, at, &shard_id, NULL); at += step)
		kv_shard_values(store, shard_id, &entries, &bytes);
	return entries > 0 ? bytes / entries : 0;
}

void
kv_by_address_end(KvScan *scan)
{
	if (scan->by_address == NULL)
		return;
	tuplesort_end(scan->by_address->sort);
	pfree(scan->by_address);
	scan->by_address = NULL;
}

/* ---- step 1 ---- */

static void
put_row(KvAddressOrder *by_address, const KvBatchRow *row, bytea *room)
{
	KvAddressRow placed = {
		.distance = pg_hton64(KV_LOCATION_ADDRESS(row->version.location) - by_address->begin),
		.location = row->version.location | (row->version.moves ? KV_MOVES : 0),
		.len = row->version.len,
		.crc = row->version.crc
	};

	memcpy(VARDATA(room), &placed, sizeof(placed));
	memcpy(VARDATA(room) + sizeof(placed), row->key, row->keylen);
	SET_VARSIZE(room, VARHDRSZ + sizeof(placed) + row->keylen);
	tuplesort_putdatum(by_address->sort, PointerGetDatum(room), false);
	by_address->bytes_left += row->version.len;
}

/* Step 1 for the rest of the current shard; afterwards the scan is at the next shard. */
static void
sort_rest(KvScan *scan)
{
	MemoryContext old = MemoryContextSwitchTo(scan->context);
	KvAddressOrder *by_address = palloc0(sizeof(KvAddressOrder));
	bytea      *room = palloc(VARHDRSZ + sizeof(KvAddressRow) + KV_MAX_KEY);
	uint64		bytes;

	by_address->sort = tuplesort_begin_datum(BYTEAOID, ByteaLessOperator, InvalidOid, false,
											 work_mem, NULL, TUPLESORT_NONE);
	scan->by_address = by_address;
	MemoryContextSwitchTo(old);
	by_address->shard = scan->shard_id;
	by_address->begin = scan->company.shard == scan->shard_id ? scan->company.address : 0;

	kv_reader_leave(&scan->reader);
	kv_batch_make_rows(scan, KV_BATCH_ROWS);
	scan->want_values = false;
	do
	{
		CHECK_FOR_INTERRUPTS();
		kv_batch_clear(scan);
		scan->nrows = 0;
		scan->batch_bytes = 0;
		(void) kv_batch_fill_range(scan, &bytes);
		for (int i = 0; i < scan->nrows; i++)
			put_row(by_address, &scan->rows[i], room);
	} while (scan->started);
	scan->want_values = true;

	scan->nrows = 0;
	scan->batch_bytes = 0;
	pfree(room);
	tuplesort_performsort(by_address->sort);
}

/* ---- step 2 ---- */

/*
 * Copies the values that are still in write buffers.  The rows are of one shard, or of shards into
 * which it was split during step 1.
 */
static void
copy_from_buffers(KvScan *scan)
{
	KvShard    *shard = NULL;
	KvExtent	unwritten;

	for (int i = 0; i < scan->nrows; i++)
	{
		KvBatchRow *row = &scan->rows[i];
		KvAddress	address = KV_LOCATION_ADDRESS(row->version.location);
		KvShard    *of = kv_shard(scan->store, kv_shard_for(scan->store, row->key, row->keylen));

		if (of != shard)
		{
			shard = of;
			LWLockAcquire(&shard->lock, LW_SHARED);
			unwritten = kv_shard_unwritten(shard);
			LWLockRelease(&shard->lock);
		}
		if (row->version.len == 0 || address < unwritten.begin || address >= unwritten.end)
			continue;
		LWLockAcquire(&shard->lock, LW_SHARED);
		row->value = kv_batch_copy_from_buffer(scan, shard, &row->version);
		LWLockRelease(&shard->lock);
	}
}

/* Is most of the part of the file wanted that has the values of the batch? */
static bool
is_dense(const KvScan *scan)
{
	uint64		wanted = 0;
	uint64		pieces = 0;
	KvAddress	piece = PG_UINT64_MAX;
	KvAddress	begin = 0;
	KvAddress	end = 0;

	for (int i = 0; i < scan->nrows; i++)
	{
		const KvVersion *version = &scan->rows[i].version;
		KvAddress	address = KV_LOCATION_ADDRESS(version->location);

		if (version->len == 0)
			continue;
		if (wanted == 0)
			begin = address;
		if (address / KV_WINDOW_SIZE != piece)
			pieces += 1 + version->len / KV_WINDOW_SIZE;
		piece = address / KV_WINDOW_SIZE;
		end = address + version->len;
		wanted += version->len;
	}

	/* values may be far apart: there may be a gap between two files */
	return wanted > 0 && wanted >= KV_DENSE_SHARE * Min(end - begin, pieces * KV_WINDOW_SIZE);
}

/* Step 2: takes the next batch of rows; no row: the shard is finished. */
static void
take(KvScan *scan)
{
	KvAddressOrder *by_address = scan->by_address;
	MemoryContext old = MemoryContextSwitchTo(scan->batch_context);
	uint64		left = by_address->bytes_left;
	Datum		datum;
	bool		isnull;

	while (scan->nrows < scan->batch_rows && scan->batch_bytes < KV_BATCH_BYTES &&
		   kv_tuplesort_getdatum(by_address->sort, &datum, &isnull))
	{
		bytea	   *bytes = (bytea *) DatumGetPointer(datum);
		KvBatchRow *row = &scan->rows[scan->nrows++];
		KvAddressRow placed;

		memcpy(&placed, VARDATA(bytes), sizeof(placed));
		memset(row, 0, sizeof(*row));
		row->key = (uint8 *) VARDATA(bytes) + sizeof(placed);
		row->keylen = VARSIZE(bytes) - VARHDRSZ - sizeof(placed);
		row->version.kind = KV_VERSION_PUT;
		row->version.location = placed.location & ~KV_MOVES;
		row->version.moves = (placed.location & KV_MOVES) != 0;
		row->version.len = placed.len;
		row->version.crc = placed.crc;
		row->present = true;
		row->value = placed.len == 0 ? "" : NULL;
		scan->batch_bytes += placed.len;
	}
	MemoryContextSwitchTo(old);
	by_address->bytes_left -= scan->batch_bytes;
	if (scan->nrows == 0)
	{
		kv_by_address_end(scan);
		kv_reader_leave(&scan->reader);
		return;
	}
	copy_from_buffers(scan);
	if (!is_dense(scan))
		kv_steer_end(scan);
	else
		kv_steer_by_address(scan, by_address->shard,
							KV_LOCATION_ADDRESS(scan->rows[0].version.location),
							by_address->begin, left);
}

/*
 * Should the rest of the shard be read by address?  A scan that was planned in key order, perhaps
 * when the table was small, checks this after a sixteenth of the shard.
 */
static bool
turns_to_addresses(KvScan *scan)
{
	if (!scan->want_values || scan->keyed_shard == scan->shard_id)
		return false;
	if (scan->order == KV_ANY_ORDER &&
		(scan->limit_hint > 0 || scan->reader.windows ||
		 scan->steering.rows < kv_shard_entries(scan->store, scan->shard_id) / KV_TURN_SHARE))
		return false;
	if (kv_shard_scattered(scan->store, scan->shard_id))
		return true;
	scan->keyed_shard = scan->shard_id;
	return false;
}

void
kv_by_address_fill(KvScan *scan)
{
	if (scan->by_address == NULL && turns_to_addresses(scan))
		sort_rest(scan);
	if (scan->by_address != NULL)
		take(scan);
	else
		kv_steer_fill_range(scan);
}
