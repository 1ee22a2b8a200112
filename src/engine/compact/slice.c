/*
 * slice.c
 *		Moves as many values at once as fit into memory, and keeps cached ones cached at their new
 *		addresses.
 *
 * A slice is filled in key order, and each value gets its new address at that time.  The output is
 * built as an image in memory, into which values are copied when they have been read.  They are
 * read in the order of their old addresses.  So a slice is equivalent to a sort of that many bytes:
 *
 * - Blocks that are near each other are read by one request; reading the gap between two costs less
 *   than a request of its own.
 * - If a quarter of the blocks between the first and the last value of an input are wanted, all of
 *   them are read.
 * - Values are verified and copied while others are being read.
 *
 * A value is verified against its old address, and the same pass over its bytes gives its checksum
 * for the new one (I 4).  A value that is missing, cut off or does not match its entry stays where
 * it is, together with its input: damage is never copied under a valid checksum.
 *
 * Values that are too large for that are copied piece by piece, through a buffer of the job.
 *
 * Cached values: While the job runs, entries name the old addresses and readers find the values
 * there.  A value in the value cache is also cached at its new address if there is free memory;
 * nothing is evicted for it.  Other blocks are noted.  When entries name the new addresses, the
 * old blocks have left the cache (flush/), and the noted blocks are read.
 *
 * Other caches take whole parts of the output, if they had enough of its values.
 */
#include "postgres.h"

#include "common/pg_prng.h"
#include "miscadmin.h"
#include "utils/guc.h"
#include "utils/memutils.h"

#include "engine/base/key.h"
#include "engine/base/progress.h"
#include "engine/base/types.h"
#include "engine/base/wait.h"
#include "engine/cache/cache.h"
#include "engine/compact/internal.h"
#include "engine/format/format.h"
#include "engine/format/path.h"
#include "engine/io/io.h"
#include "engine/maintenance.h"
#include "engine/shard/shard.h"
#include "engine/shard/valuefiles.h"
#include "engine/value/value.h"

/* The location of a value at its new address. */
static KvLocation
new_location(const KvMoving *value)
{
	return KV_LOCATION_MAKE(KV_LOCATION_FORM(value->from), value->to);
}

/* ---- cached values ---- */

#define KV_KEEP_STEP	4096	/* number of blocks that are read at once */

/* Notes a block to be read; once there are more than the cache can hold, a random sample. */
static void
note(KvKept *kept, KvAddress block)
{
	uint64		i = kept->n;

	if (kept->last == block)
		return;
	kept->last = block;
	kept->seen++;
	if (kept->n == kept->room)
	{
		if (kept->room < kv_source_room())
		{
			kept->room = Min(Max(kept->room * 2, 1024), kv_source_room());
			kept->blocks = kept->blocks == NULL ? palloc(kept->room * sizeof(KvAddress)) :
				repalloc_huge(kept->blocks, kept->room * sizeof(KvAddress));
		}
		else
		{
			i = pg_prng_uint64_range(&pg_global_prng_state, 0, kept->seen - 1);
			if (i >= kept->n)
				return;
		}
	}
	kept->blocks[i] = block;
	kept->n = Max(kept->n, i + 1);
}

/* For a value that has been moved, while its image exists. */
static void
keep_value(KvSlice *slice, const KvMoving *value)
{
	KvAddress	first = TYPEALIGN_DOWN(KV_BLOCK, value->to);

	if (value->at == NULL ||
		kv_source_moved(slice->store->cache_id, value->from, new_location(value), value->len,
						value->at - (value->to - first)))
		return;
	for (KvAddress block = first; block < value->to + value->len; block += KV_BLOCK)
		note(&slice->kept, block);
}

/*
 * The bytes that a cache had of the values from *next on whose new addresses are before the end.
 * Moves *next to the first value after these.  *moved: the bytes of all.
 */
static uint64
bytes_had(const KvSlice *slice, const KvMover *mover, KvAddress end, int *next, uint64 *moved)
{
	uint64		had = 0;

	*moved = 0;
	for (; *next < slice->nvalues && slice->values[*next].to < end; ++*next)
	{
		const KvMoving *value = &slice->values[*next];

		if (!value->moved || (value->at == NULL && mover->at_once > 0))
			continue;
		*moved += value->len;
		if (mover->had(slice->store->cache_id, value->from, value->len))
			had += value->len;
	}
	return had;
}

/* Gives the output to a cache, in parts. */
static void
keep_in(const KvSlice *slice, const KvMover *mover)
{
	int			next = 0;
	uint64		moved = 0;
	uint64		had = 0;

	if (mover->at_once == 0)
		had = bytes_had(slice, mover, PG_UINT64_MAX, &next, &moved);
	for (int i = 0; i < slice->nextents; i++)
	{
		const KvExtentOut *extent = &slice->extents[i];
		KvAddress	end = extent->begin + TYPEALIGN(KV_BLOCK, extent->len);
		KvAddress	part;

		for (KvAddress at = extent->begin; at < end; at = part)
		{
			part = end;
			if (mover->at_once > 0)
			{
				part = Min(end, (at / mover->at_once + 1) * mover->at_once);
				had = bytes_had(slice, mover, part, &next, &moved);
			}
			if (had > 0 &&
				!mover->take(slice->store, at, extent->at + (at - extent->begin), part - at,
							 2 * had > moved))
				return;
		}
	}
}

/* After all values of a slice were moved. */
static void
keep_slice(const KvSlice *slice)
{
	const KvMover *mover;

	for (int n = 0; (mover = kv_source_mover(n)) != NULL; n++)
		keep_in(slice, mover);
}

/* Sorts noted blocks by address. */
static void
sort_kept(KvKept *kept)
{
	qsort(kept->blocks, kept->n, sizeof(KvAddress), kv_address_compare);
	kept->sorted = true;
	kv_progress_done(0);
	kv_progress_total(kept->n * KV_BLOCK);
}

bool
kv_keep_some(KvSlice *slice)
{
	KvKept	   *kept = &slice->kept;
	uint64		end = Min(kept->n, kept->done + KV_KEEP_STEP);
	KvWarming  *warming;

	if (kept->done == kept->n)
		return false;
	if (!kept->sorted)
		sort_kept(kept);
	warming = kv_warming_begin(&slice->store->key, slice->store->cache_id);
	for (; kept->done < end; kept->done++)
		kv_warming_add(warming, kept->blocks[kept->done], false);
	kv_pace(slice->pace, kv_warming_end(warming) * KV_BLOCK);
	return true;
}

/* ---- the slice ---- */

#define KV_STREAM_LEAST	((Size) 1024 * 1024)	/* longer values are streamed */
#define KV_READ_AREA	((Size) 4 * 1024 * 1024)	/* bytes that are read at once */
#define KV_READ_LEN		((Size) 128 * 1024)	/* maximum length of a request for several values */
#define KV_READS		1024	/* requests at once: enough for single blocks */
#define KV_READ_GAP		((uint64) 3 * KV_BLOCK)	/* maximum gap between two values of one request */
#define KV_READ_ALL		4		/* all blocks are read if one in so many is wanted */
#define KV_WRITE_LEN	((Size) 1024 * 1024)

KvMovedHook kv_moved_hook = NULL;

/* ---- filling ---- */

static char *
get_blocks(Size bytes)
{
	char	   *memory = MemoryContextAllocHuge(CurrentMemoryContext, bytes + KV_BLOCK);

	return (char *) TYPEALIGN(KV_BLOCK, (uintptr_t) memory);
}

void
kv_slice_begin(KvSlice *slice, Size memory)
{
	slice->image_size = memory;
	slice->image = get_blocks(memory);
	slice->read = get_blocks(KV_READ_AREA);
	slice->requests = palloc0((KV_READS + 1) * sizeof(KvIoRequest));
	initStringInfo(&slice->keys);
}

int
kv_slice_input(const KvSlice *slice, KvLocation location)
{
	KvAddress	file_address = kv_file_of(KV_LOCATION_ADDRESS(location)).address;
	int			i = kv_first_from(slice->inputs, sizeof(KvValueFile), slice->ninputs, file_address);

	StaticAssertStmt(offsetof(KvValueFile, address) == 0, "an item begins with its place");
	return i < slice->ninputs && slice->inputs[i].address == file_address ? i : -1;
}

/* The memory of the slice, without its image. */
static Size
bookkeeping(const KvSlice *slice)
{
	return slice->nvalues * (sizeof(KvMoving) + sizeof(KvMoving *)) + slice->keys.len;
}

/* Appends space for the value to the image, at its new address. */
static void
add_to_image(KvSlice *slice, KvMoving *value)
{
	KvExtentOut *last = slice->nextents > 0 ? &slice->extents[slice->nextents - 1] : NULL;

	if (last == NULL || !kv_same_file(kv_file_of(value->to), kv_file_of(last->begin)) ||
		value->to - (last->begin + last->len) >= KV_BLOCK)
	{
		if (slice->nextents == slice->extents_capacity)
		{
			slice->extents_capacity = Max(slice->extents_capacity * 2, 16);
			slice->extents = slice->extents == NULL ?
				palloc(slice->extents_capacity * sizeof(KvExtentOut)) :
				repalloc_huge(slice->extents, slice->extents_capacity * sizeof(KvExtentOut));
		}
		Assert(value->to % KV_BLOCK == 0);
		last = &slice->extents[slice->nextents++];
		last->begin = value->to;
		last->len = 0;
		memset(slice->image + slice->image_used, 0,
			   TYPEALIGN(KV_BLOCK, slice->image_used) - slice->image_used);
		slice->image_used = TYPEALIGN(KV_BLOCK, slice->image_used);
		last->at = slice->image + slice->image_used;
	}
	value->at = last->at + (value->to - last->begin);
	memset(last->at + last->len, 0, value->at - (last->at + last->len));
	last->len = value->to - last->begin + value->len;
	slice->image_used = last->at + last->len - slice->image;
}

bool
kv_slice_add(KvSlice *slice, KvKey key, const KvVersion *version)
{
	bool		streamed = version->len > KV_STREAM_LEAST;
	KvMoving   *value;

	if (slice->nvalues > 0 &&
		(slice->streamed > slice->image_size ||
		 bookkeeping(slice) + key.len + slice->image_used + (streamed ? 0 : version->len) +
		 3 * KV_BLOCK > slice->image_size))
		return false;
	if (slice->nvalues == slice->room)
	{
		slice->room = Max(slice->room * 2, 1024);
		slice->values = slice->values == NULL ? palloc(slice->room * sizeof(KvMoving)) :
			repalloc_huge(slice->values, slice->room * sizeof(KvMoving));
		slice->by_address = slice->by_address == NULL ? palloc(slice->room * sizeof(KvMoving *)) :
			repalloc_huge(slice->by_address, slice->room * sizeof(KvMoving *));
	}
	if (slice->nvalues == 0 && slice->output->nvalue_files > 0)
		kv_output_align(slice->output);
	value = &slice->values[slice->nvalues++];
	value->from = version->location;
	value->to = kv_output_address(slice->output, version->len, streamed);
	value->len = version->len;
	value->crc = version->crc;
	value->key = slice->keys.len;
	value->keylen = key.len;
	value->kind = version->kind;
	value->moved = false;
	value->at = NULL;
	appendBinaryStringInfo(&slice->keys, (const char *) key.data, key.len);
	if (streamed)
		slice->streamed += version->len;
	else
		add_to_image(slice, value);
	return true;
}

/* ---- reading ---- */

static KvKey
key_of(const KvSlice *slice, const KvMoving *value)
{
	KvKey		key = {(const uint8 *) slice->keys.data + value->key, value->keylen};

	return key;
}

/*
 * Leaves a value where it is.  Reports that once for each value file, unless nothing names the
 * file.
 */
static void
leave(KvSlice *slice, const KvMoving *value, const char *problem)
{
	int			input = kv_slice_input(slice, value->from);
	KvAddress	address = KV_LOCATION_ADDRESS(value->from);
	KvShard    *shard = kv_shard(slice->store, slice->shard_id);
	bool		listed;

	/* a flush by another process may have found that no entry names it */
	LWLockAcquire(&shard->lock, LW_SHARED);
	listed = kv_value_file_find(shard, address) != NULL;
	LWLockRelease(&shard->lock);
	if (!listed || slice->inputs[input].flags & KV_VALUE_FILE_DAMAGED)
		return;
	slice->inputs[input].flags |= KV_VALUE_FILE_DAMAGED;
	ereport(LOG,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("could not compact value file \"%s\": %s",
					kv_path_value(&slice->store->key, kv_file_of(address)), problem),
			 errdetail("The value has %u bytes at offset %llu.",
					   value->len, (unsigned long long) kv_offset_of(address)),
			 errhint("Run kvfdw_check() for the table to list every damaged value.")));
}

/*
 * Verifies a value by the checksum of its bytes and key, and gives it the one for its new address.
 */
static bool
reseal(KvMoving *value, uint32 crc)
{
	if (kv_value_crc_finish(crc, value->from, value->len) != value->crc)
		return false;
	value->crc = kv_value_crc_finish(crc, new_location(value), value->len);
	value->moved = true;
	return true;
}

/*
 * Handles a failed read.  If the table was dropped the job ends.  A missing file needs no retry.
 * Any other error may not occur next time, so it ends the job.  But a device error that the
 * previous job has met as well counts as permanent, and costs only the space of that value file.
 */
static const char *
unreadable(const KvSlice *slice, const KvMoving *value, int err)
{
	kv_job_interrupts(slice->store);
	if (err != ENOENT &&
		!(err == EIO && kv_shard(slice->store, slice->shard_id)->compact.failed))
		kv_io_error(ERROR, err,
					kv_path_value(&slice->store->key, kv_file_of(KV_LOCATION_ADDRESS(value->from))),
					"read");
	return "value could not be read";
}

/*
 * Copies a value from a completed request, and verifies it.  False: the request does not have it.
 */
static bool
take(KvSlice *slice, KvMoving *value, const KvIoRequest *request)
{
	uint64		at = kv_offset_of(KV_LOCATION_ADDRESS(value->from)) - request->offset;

	if (request->result < 0 || at + value->len > (uint64) request->result)
		return false;
	memcpy(value->at, request->buffer + at, value->len);
	return reseal(value, kv_value_crc_begin(&slice->store->key, key_of(slice, value),
											value->at, value->len));
}

/* Determines why a value could not be taken, and leaves it where it is. */
static void
refuse(KvSlice *slice, KvMoving *value, const KvIoRequest *request)
{
	uint64		at = kv_offset_of(KV_LOCATION_ADDRESS(value->from)) - request->offset;
	const char *problem = "value does not match its checksum";

	if (request->result < 0)
		problem = unreadable(slice, value, -request->result);
	else if (at + value->len > (uint64) request->result)
		problem = "value is truncated";
	memset(value->at, 0, value->len);
	leave(slice, value, problem);
}

static int
compare_addresses(const void *a, const void *b)
{
	KvAddress	left = KV_LOCATION_ADDRESS((*(KvMoving *const *) a)->from);
	KvAddress	right = KV_LOCATION_ADDRESS((*(KvMoving *const *) b)->from);

	return left < right ? -1 : left > right;
}

static KvFileId
file_of(const KvMoving *value)
{
	return kv_file_of(KV_LOCATION_ADDRESS(value->from));
}

/* The blocks of its old address. */
static uint64
first_byte(const KvMoving *value)
{
	return TYPEALIGN_DOWN(KV_BLOCK, kv_offset_of(KV_LOCATION_ADDRESS(value->from)));
}

static uint64
end_byte(const KvMoving *value)
{
	return TYPEALIGN(KV_BLOCK, kv_offset_of(KV_LOCATION_ADDRESS(value->from)) + value->len);
}

/*
 * Finds the end of the values from i on that are in the same file.  Returns the greatest gap that
 * one request of that file may read.
 */
static uint64
choose_gap(const KvSlice *slice, int n, int i, int *after)
{
	uint64		wanted = 0;
	uint64		end = 0;
	uint64		first = first_byte(slice->by_address[i]);
	KvFileId	file = file_of(slice->by_address[i]);

	for (*after = i; *after < n && kv_same_file(file_of(slice->by_address[*after]), file);
		 ++*after)
	{
		const KvMoving *value = slice->by_address[*after];

		wanted += end_byte(value) - Min(Max(first_byte(value), end), end_byte(value));
		end = Max(end, end_byte(value));
	}
	return wanted >= (end - first) / KV_READ_ALL ? KV_READ_LEN : KV_READ_GAP;
}

/*
 * Makes requests for values of one file, as many as are sent at once.  Each is tagged with its
 * first value; one more tag after the last request marks the end.
 */
static int
make_requests(KvSlice *slice, int from, int after, uint64 gap, int *nrequests)
{
	File		file;
	char	   *buffer = slice->read;
	int			n = 0;
	int			i = from;

	kv_value_trim();
	file = kv_value_file(&slice->store->key, slice->store->cache_id,
						 file_of(slice->by_address[from]), KV_IO_MISSING_OK);
	for (; i < after; i++)
	{
		const KvMoving *value = slice->by_address[i];
		KvIoRequest *last = n > 0 ? &slice->requests[n - 1] : NULL;
		uint64		end = end_byte(value);

		if (last != NULL && first_byte(value) <= last->offset + last->len + gap &&
			end - last->offset <= KV_READ_LEN &&
			last->buffer + (end - last->offset) <= slice->read + KV_READ_AREA)
		{
			last->len = Max(last->len, end - last->offset);
			buffer = last->buffer + last->len;
			continue;
		}
		if (n == KV_READS || buffer + (end - first_byte(value)) > slice->read + KV_READ_AREA)
			break;
		last = &slice->requests[n++];
		last->file = file;
		last->offset = first_byte(value);
		last->len = end - last->offset;
		last->buffer = buffer;
		last->result = file < 0 ? -ENOENT : 0;
		last->tag = &slice->by_address[i];
		buffer += last->len;
	}
	slice->requests[n].tag = &slice->by_address[i];
	*nrequests = n;
	return i;
}

/*
 * A KvIoDone callback: takes the values of a request while others are under way.  Failures are
 * handled later.
 */
static void
take_all(KvIoRequest *request, void *arg)
{
	KvMoving  **after = request[1].tag;

	for (KvMoving **value = request->tag; value < after; value++)
		(void) take(arg, *value, request);
}

/* Reads some values of one file.  Returns the index of the first value not read. */
static int
read_some(KvSlice *slice, int from, int after, uint64 gap)
{
	int			n;
	int			end = make_requests(slice, from, after, gap, &n);
	uint64		bytes = 0;

	if (slice->requests[0].file >= 0)
		kv_io_read_batch(slice->requests, n, KV_IO_COMPACT_READ, take_all, slice);
	for (int i = 0; i < n; i++)
	{
		KvMoving  **after_it = slice->requests[i + 1].tag;

		bytes += slice->requests[i].len;
		for (KvMoving **value = slice->requests[i].tag; value < after_it; value++)
		{
			if (!(*value)->moved)
				refuse(slice, *value, &slice->requests[i]);
		}
	}
	kv_pace(slice->pace, bytes);
	return end;
}

static void
read_values(KvSlice *slice)
{
	int			n = 0;
	int			after = 0;
	uint64		gap = 0;

	for (int i = 0; i < slice->nvalues; i++)
	{
		if (slice->values[i].at != NULL)
			slice->by_address[n++] = &slice->values[i];
	}
	qsort(slice->by_address, n, sizeof(KvMoving *), compare_addresses);
	for (int i = 0; i < n;)
	{
		kv_maintenance_interrupts();
		if (i == after)
			gap = choose_gap(slice, n, i, &after);
		i = read_some(slice, i, after, gap);
	}
}

/* ---- writing ---- */

static void
write_image(KvSlice *slice, const KvExtentOut *extent)
{
	Size		len = TYPEALIGN(KV_BLOCK, extent->len);

	memset(extent->at + extent->len, 0, len - extent->len);
	for (Size done = 0; done < len; done += KV_WRITE_LEN)
	{
		kv_maintenance_interrupts();
		kv_output_write(slice->output, extent->begin + done, extent->at + done,
						Min(KV_WRITE_LEN, len - done));
		kv_pace(slice->pace, Min(KV_WRITE_LEN, len - done));
	}
}

/* Copies a value piece by piece. */
static void
stream(KvSlice *slice, KvMoving *value)
{
	uint64		at = kv_offset_of(KV_LOCATION_ADDRESS(value->from));
	char	   *out = slice->read + KV_READ_AREA / 2;
	uint32		crc = kv_value_crc_start();
	File		file;

	StaticAssertStmt(KV_WRITE_LEN + KV_BLOCK <= KV_READ_AREA / 2, "a piece and its block fit");
	for (Size done = 0; done < value->len; done += KV_WRITE_LEN)
	{
		Size		part = Min(KV_WRITE_LEN, value->len - done);
		Size		blocks = TYPEALIGN(KV_BLOCK, part);
		uint64		from = TYPEALIGN_DOWN(KV_BLOCK, at + done);
		Size		skip = at + done - from;
		int			got = -ENOENT;

		kv_maintenance_interrupts();
		kv_value_trim();
		file = kv_value_file(&slice->store->key, slice->store->cache_id, file_of(value),
							 KV_IO_MISSING_OK);
		if (file >= 0)
			got = kv_io_try_read(file, slice->read, TYPEALIGN(KV_BLOCK, skip + part), from,
								 KV_IO_COMPACT_READ);
		if (got < (int) (skip + part))
		{
			const char *problem = got < 0 ? unreadable(slice, value, -got) : "value is truncated";

			/* the output needs a file at this address in any case */
			memset(out, 0, KV_BLOCK);
			if (done == 0)
				kv_output_write(slice->output, value->to, out, KV_BLOCK);
			leave(slice, value, problem);
			return;
		}
		memcpy(out, slice->read + skip, part);
		memset(out + part, 0, blocks - part);
		crc = kv_value_crc_add(crc, out, part);
		kv_output_write(slice->output, value->to + done, out, blocks);
		kv_pace(slice->pace, 2 * blocks);
	}
	if (!reseal(value, kv_value_crc_key(crc, &slice->store->key, key_of(slice, value))))
		leave(slice, value, "value does not match its checksum");
}

/* Writes the image and the streamed values, in the order of addresses. */
static void
write_values(KvSlice *slice)
{
	int			next = 0;

	for (int i = 0; i < slice->nvalues; i++)
	{
		KvMoving   *value = &slice->values[i];

		if (value->at != NULL)
			continue;
		while (next < slice->nextents && slice->extents[next].begin < value->to)
			write_image(slice, &slice->extents[next++]);
		stream(slice, value);
	}
	while (next < slice->nextents)
		write_image(slice, &slice->extents[next++]);
}

static void
tell_moved(const KvSlice *slice, const KvMoving *value)
{
	if (kv_moved_hook != NULL && value->at != NULL && value->kind == KV_VERSION_PUT)
		kv_moved_hook(slice->store->key.dboid, slice->store->key.relid, key_of(slice, value),
					  KV_LOCATION_FORM(value->from), value->at, value->len);
}

static void
note_moved(KvSlice *slice)
{
	for (int i = 0; i < slice->nvalues; i++)
	{
		const KvMoving *value = &slice->values[i];
		KvKey		key = key_of(slice, value);
		KvVersion	version = {0};

		if (!value->moved)
			continue;
		version.xid = value->from;
		version.location = new_location(value);
		version.len = value->len;
		version.crc = value->crc;
		version.kind = value->kind;
		version.status = KV_XID_COMMITTED;
		kv_run_append(slice->relocations, key.data, key.len, &version);
		keep_value(slice, value);
		tell_moved(slice, value);
		slice->moved += value->len;
	}
}

void
kv_slice_write(KvSlice *slice)
{
	read_values(slice);
	write_values(slice);
	note_moved(slice);
	keep_slice(slice);
	slice->nvalues = slice->nextents = 0;
	slice->image_used = slice->streamed = 0;
	resetStringInfo(&slice->keys);
}
