/*
 * byaddress.c
 *		Scans of whole tables in the order in which their values lie.
 *
 * In a shard that is scattered, the values of neighbouring keys lie far apart in
 * more than fits into the range cache; in key order each costs a read of its own.
 * Who does not care for the order of rows gets them by address instead:
 *
 *   1. gather: go through the shard's entries, without values, and sort those that
 *      the snapshot sees by the place of their value, in work_mem and then in
 *      temporary files;
 *   2. take: batch by batch, in that order; files are read from end to end,
 *      segment by segment through windows, where most of them is wanted, else in large
 *      reads of what is.  A shard that came of a split has few of the values in the files
 *      that it has in common with others.
 *
 * What the snapshot sees is decided by the first step, as in any batch, and does not
 * change.  Places may: a value that was moved since, and is not where it was any more, is
 * looked up by its key (fetch.c).
 *
 * Where another scan by address is under way in a shard, the order begins there and
 * wraps around.  Shards that are not scattered are read in key order.
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
#include "engine/cache/cache.h"
#include "engine/engine.h"
#include "engine/scan/internal.h"
#include "engine/shard/shard.h"
#include "engine/buffer/buffer.h"

/* If a scan wants less than this share of a part of a file, it reads its values by themselves. */
#define KV_DENSE_SHARE	0.25

/* How many shards, at most, are looked at for the planner. */
#define KV_SHARDS_ASKED	16

/* A scan that was planned in key order goes over to places after this share of a shard. */
#define KV_TURN_SHARE	16

/* A bytea of this, unaligned, and then the key, is what is sorted. */
typedef struct KvAddressRow
{
	uint64		distance;		/* from where the order begins; big-endian */
	KvLocation	location;
	uint32		len;
	uint32		crc;
} KvAddressRow;

struct KvAddressOrder
{
	Tuplesortstate *sort;
	uint32		shard;
	KvAddress	begin;			/* where the order begins */
	double		bytes_left;		/* of values that are not taken yet */
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
		.location = row->version.location,
		.len = row->version.len,
		.crc = row->version.crc
	};

	memcpy(VARDATA(room), &placed, sizeof(placed));
	memcpy(VARDATA(room) + sizeof(placed), row->key, row->keylen);
	SET_VARSIZE(room, VARHDRSZ + sizeof(placed) + row->keylen);
	tuplesort_putdatum(by_address->sort, PointerGetDatum(room), false);
	by_address->bytes_left += row->version.len;
}

/* Step 1 for the rest of the current shard; the scan stands at the next one afterwards. */
static void
by_blocks(KvScan *scan)
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
 * Copy the values that are still in write buffers.  The rows are of one shard, or of those
 * that have come of it while it was gone through.
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

/* Is most of the part of the file wanted in which the values of the batch lie? */
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

	/* the next ones need not lie one behind the other: there may be a gap between two files */
	return wanted > 0 && wanted >= KV_DENSE_SHARE * Min(end - begin, pieces * KV_WINDOW_SIZE);
}

/* Step 2: the next batch of rows by address; no row: the shard is finished. */
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
		row->version.location = placed.location;
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
 * Is the rest of the shard to be read by address?  A scan that was planned in key order,
 * maybe when the table was small, is asked when it has read a sixteenth of the shard.
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
		by_blocks(scan);
	if (scan->by_address != NULL)
		take(scan);
	else
		kv_steer_fill_range(scan);
}
