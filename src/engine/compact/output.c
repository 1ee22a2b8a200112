/*
 * output.c
 *		The value files that a job writes.
 *
 * Their addresses are reserved together.  So the files are neighbours, whatever files writers make
 * in the meantime, and no other process makes files there: writing them needs no lock.  They are in
 * no list until a flush publishes them.  A failed job renames them, and the maintainer frees them.
 * After a crash no manifest names them (I 14).
 *
 * Each file is made durable when it is full.  So the flush that names the files publishes durable
 * data.  At level 'keys' no COMMIT has to sync a whole shard, and an image need not sync them
 * either.
 */
#include "postgres.h"

#include "engine/base/types.h"
#include "engine/base/wait.h"
#include "engine/compact/internal.h"
#include "engine/io/io.h"
#include "engine/buffer/buffer.h"
#include "engine/value/value.h"

#define KV_OUTPUT_STEP	((uint64) 64 * 1024 * 1024)

void
kv_output_begin(KvOutput *output, KvStore *store, uint32 shard_id)
{
	memset(output, 0, sizeof(*output));
	output->store = store;
	output->shard_id = shard_id;
	output->file = -1;
}

/* Gives back the reserved addresses that have no value file. */
static void
return_addresses(KvOutput *output)
{
	if (output->next != output->end)
		kv_addresses_return(output->store, output->shard_id, output->next, output->end);
	output->next = output->end;
}

/* Reserves an address for a value file that can hold a value of this length. */
static void
reserve(KvOutput *output, Size len)
{
	uint64		span;
	KvFileId	id = {output->next};

	if (output->next != output->end)
	{
		span = kv_file_span(id);
		if (len <= span)
			return;
		return_addresses(output);
	}

	/* the first one tells the size of the files; the others are to follow it */
	output->next = kv_addresses_reserve(output->store, output->shard_id, len, 1, &output->end);
	span = kv_file_span((KvFileId) {output->next});
	if (output->expected > span)
	{
		return_addresses(output);
		output->next = kv_addresses_reserve(output->store, output->shard_id, len,
											output->expected / span + 1 + output->expected / span /
											16,
											&output->end);
	}
}

static KvValueFile *
next_value_file(KvOutput *output, Size len)
{
	KvValueFile *value_file;

	reserve(output, len);
	if (output->nvalue_files == output->room)
	{
		output->room = Max(output->room * 2, 16);
		output->value_files = output->value_files == NULL
			? palloc(output->room * sizeof(KvValueFile)) :
			repalloc_huge(output->value_files, output->room * sizeof(KvValueFile));
	}
	value_file = &output->value_files[output->nvalue_files++];
	memset(value_file, 0, sizeof(*value_file));
	value_file->address = output->next;
	value_file->live = KV_NOT_KNOWN;
	value_file->flags = output->flags;
	value_file->order = output->order;
	output->next += kv_file_span((KvFileId) {value_file->address});
	return value_file;
}

KvAddress
kv_output_address(KvOutput *output, Size len, bool whole)
{
	KvValueFile *value_file = output->nvalue_files > 0
		? &output->value_files[output->nvalue_files - 1] : NULL;
	uint64		at = 0;

	if (value_file != NULL)
	{
		at = whole ? TYPEALIGN(KV_BLOCK, value_file->used)
			: kv_value_position(value_file->used, len);
		if (at + len > kv_file_span((KvFileId) {value_file->address}))
		{
			kv_output_align(output);
			value_file = NULL;
		}
	}
	if (value_file == NULL)
	{
		value_file = next_value_file(output, len);
		at = 0;
	}
	value_file->used = whole ? TYPEALIGN(KV_BLOCK, at + len) : at + len;
	output->expected -= Min(output->expected, len);
	return value_file->address + at;
}

void
kv_output_align(KvOutput *output)
{
	KvValueFile *value_file;

	if (output->nvalue_files == 0)
		return;
	value_file = &output->value_files[output->nvalue_files - 1];
	value_file->used = TYPEALIGN(KV_BLOCK, value_file->used);
}

static const char *
path_of(const KvOutput *output, KvFileId id)
{
	return kv_path_value(&output->store->key, id);
}

/* Allocates the file's space up to at least this offset. */
static void
allocate(KvOutput *output, uint64 least)
{
	uint64		size = Min(Max(least, output->allocated + KV_OUTPUT_STEP),
						   kv_file_span(output->id));
	int			err;

	if (least <= output->allocated)
		return;
	err = kv_io_try_extend(output->file, output->allocated, size);
	if (err == ENOSPC && size > least)
	{
		size = least;
		err = kv_io_try_extend(output->file, output->allocated, size);
	}
	if (err != 0)
		kv_io_error(ERROR, err, path_of(output, output->id), "extend");
	output->allocated = size;
}

/* Closes the value file being written, truncates it to its used bytes, and syncs it. */
static void
close_value_file(KvOutput *output)
{
	const char *path = path_of(output, output->id);
	uint64		used = 0;
	int			err;

	if (output->file < 0)
		return;
	for (int i = 0; i < output->nvalue_files; i++)
	{
		if (output->value_files[i].address == output->id.address)
			used = TYPEALIGN(KV_BLOCK, output->value_files[i].used);
	}
	allocate(output, used);
	kv_io_close(output->file);
	output->file = -1;
	err = output->allocated > used ? kv_io_try_cut(path, used) : 0;
	if (err != 0)
		kv_io_error(LOG, err, path, "truncate");
	if (!kv_fault_skips("data_sync"))
		kv_io_sync_file(path);
}

void
kv_output_write(KvOutput *output, KvAddress address, const char *blocks, Size len)
{
	KvFileId	id = kv_file_of(address);

	if (output->file < 0 || !kv_same_file(id, output->id))
	{
		close_value_file(output);
		output->file = kv_value_make(&output->store->key, id, KV_IO_COMPACT_WRITE);
		output->id = id;
		output->allocated = 0;
	}
	allocate(output, kv_offset_of(address) + len);
	kv_io_write(output->file, blocks, len, kv_offset_of(address), KV_IO_COMPACT_WRITE);
	kv_stat_add(output->store, KV_COUNT_DEVICE_WRITE_BYTES, len);
}

void
kv_output_finish(KvOutput *output)
{
	kv_output_align(output);
	close_value_file(output);
	if (output->nvalue_files > 0 && !kv_fault_skips("data_sync"))
		kv_values_sync_names(&output->store->key);
	for (int i = 0; i < output->nvalue_files; i++)
		output->value_files[i].flags |= KV_VALUE_FILE_SYNCED | KV_VALUE_FILE_NAMED;
	return_addresses(output);
}

void
kv_output_end(KvOutput *output, bool keep)
{
	if (output->file >= 0)
		kv_io_close(output->file);
	output->file = -1;
	for (int i = 0; i < output->nvalue_files && !keep; i++)
	{
		/* freed step by step: a file system that discards much at once may block all I/O */
		KvAddress	address = output->value_files[i].address;

		if (kv_value_file_discard(output->store, address) != 0)
			(void) kv_io_unlink(path_of(output, (KvFileId) {address}));
	}
	if (output->nvalue_files > 0 && !keep)
		kv_wake_maintainer();
	return_addresses(output);
}
