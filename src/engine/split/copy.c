/*
 * copy.c
 *		Copies the entries of a shard to runs of the shards that replace it.
 *
 * A run becomes one run of each part that has some of its keys.  The parts have equal weights, in
 * bytes of values and entries.  The first run that is copied decides where parts begin: the base
 * run, or the oldest run if there is none.
 */
#include "postgres.h"

#include "access/transam.h"

#include "engine/base/shared.h"
#include "engine/base/key.h"
#include "engine/base/types.h"
#include "engine/base/wait.h"
#include "engine/format/format.h"
#include "engine/format/path.h"
#include "engine/io/name.h"
#include "engine/shard/shard.h"
#include "engine/split/copy.h"
#include "engine/value/value.h"
#include "engine/xact/xact.h"

/* The run or memtable that is being copied. */
typedef struct KvSource
{
	bool		base;
	uint64		total;			/* weight of all of it; 0: the parts are decided already */
	uint64		before;			/* weight of the entries copied so far */
	int			at;				/* index of the part that gets the next entry */
	bool		begun;
	bool		kept;			/* a version of the current key that is no lock was copied */
	uint8		last[KV_MAX_KEY];	/* the previous key */
	int			last_len;
} KvSource;

void
kv_copy_begin(KvCopy *copy, const KvChange *change, int most)
{
	uint64		next_xid = U64FromFullTransactionId(ReadNextFullTransactionId());

	memset(copy, 0, sizeof(*copy));
	copy->store = change->store;
	copy->shard_id = change->shard_id;
	copy->most = most;
	for (int i = 0; i < most; i++)
	{
		KvPart	   *part = &copy->parts[i];

		part->shard_id = change->shard_ids[i];
		part->counts.room = 16;
		part->counts.uncertain_until = next_xid;
		part->counts.value_files = palloc0(part->counts.room * sizeof(KvValueFileCount));
		if (part->shard_id == KV_NO_SHARD)
			copy->most = Min(copy->most, i);
		else
			kv_shard_id_files(copy->store, part->shard_id, &part->files);
		part->first_run = part->files.next_run;
	}
}

/* The part for a key, which is not less than the previous one. */
static KvPart *
part_for(KvCopy *copy, KvSource *source, KvKey key)
{
	bool		same = source->begun && source->last_len == key.len &&
		memcmp(source->last, key.data, key.len) == 0;

	if (source->total > 0 && !same && copy->nparts < copy->most &&
		source->before * copy->most >= source->total * copy->nparts)
	{
		/* all versions of a key belong to one part */
		KvPart	   *part = &copy->parts[copy->nparts];

		part->lo = kv_key_copy(CurrentMemoryContext, key.data, key.len);
		source->at = copy->nparts++;
	}
	while (source->total == 0 && source->at + 1 < copy->nparts &&
		   kv_key_order(&copy->parts[source->at + 1].lo, &key) <= 0)
		source->at++;
	if (!same)
	{
		memcpy(source->last, key.data, key.len);
		source->last_len = key.len;
		source->begun = true;
		source->kept = false;
	}
	return &copy->parts[source->at];
}

/* Appends an entry to the part for its key.  unfinished: it is not known to be committed. */
static void
put(KvCopy *copy, KvSource *source, KvKey key, const KvVersion *version, bool unfinished)
{
	KvPart	   *part = part_for(copy, source, key);

	if (part->writer == NULL)
	{
		KvRunIds	ids;

		part->number = part->files.next_run++;
		kv_store_ids(copy->store, part->shard_id, part->number, &ids);
		ids.unfrozen = !source->base;
		part->writer = kv_run_create(kv_path_run(&copy->store->key, part->shard_id, part->number),
									 &ids);
		part->entries = part->oldest_xid = 0;
	}
	kv_run_append(part->writer, key.data, key.len, version);
	kv_counts_add(&part->counts, version->location, version->len, source->kept || unfinished);
	source->kept |= version->kind != KV_VERSION_LOCK;
	part->entries++;
	if (version->xid != 0 && (part->oldest_xid == 0 || version->xid < part->oldest_xid))
		part->oldest_xid = version->xid;
	source->before += version->len + KV_ENTRY_WEIGHT;
	if (part->entries % 1024 == 0)
		kv_maintenance_interrupts();
}

/* Completes the runs of the parts. */
static void
finish(KvCopy *copy, const KvSource *source)
{
	for (int i = 0; i < copy->nparts; i++)
	{
		KvPart	   *part = &copy->parts[i];
		KvShardFiles *files = &part->files;

		if (part->writer == NULL)
			continue;
		kv_run_finish(part->writer);
		part->writer = NULL;
		if (source->base)
		{
			files->base_run = part->number;
			files->frozen_keys = part->entries;
			continue;
		}
		if (files->nunfrozen == KV_MAX_UNFROZEN)
			elog(ERROR, "too many runs to split shard %u", copy->shard_id);
		memmove(&files->unfrozen[1], &files->unfrozen[0], files->nunfrozen * sizeof(uint32));
		files->unfrozen[0] = part->number;
		files->nunfrozen++;
		files->unfrozen_entries += part->entries;
		if (part->oldest_xid != 0 &&
			(files->oldest_xid == 0 || part->oldest_xid < files->oldest_xid))
			files->oldest_xid = part->oldest_xid;
	}
}

bool
kv_copy_run(KvCopy *copy, uint32 number, bool base)
{
	KvSource	source = {.base = base};
	KvRunCursor cursor;
	KvRunIds	ids;
	KvRun	   *run;
	uint32		incarnation;

	kv_store_ids(copy->store, copy->shard_id, number, &ids);
	run = kv_run_open(kv_path_run(&copy->store->key, copy->shard_id, number), &ids);
	if (run == NULL)
		return false;
	incarnation = kv_run_header(run)->incarnation;
	if (copy->nparts == 0)
		source.total = kv_run_header(run)->value_bytes +
			kv_run_header(run)->nentries * KV_ENTRY_WEIGHT;
	PG_TRY();
	{
		for (kv_run_first(run, &cursor); cursor.valid; kv_run_next(&cursor))
		{
			uint8		keybuf[8];
			KvVersion	version;
			KvKey		key;

			kv_run_entry(&cursor, keybuf, &key.data, &key.len, &version);

			/* the copy belongs to the present incarnation */
			if (version.xid != 0 && version.status == KV_XID_UNKNOWN &&
				incarnation != kv_writing_incarnation())
				version.status = kv_xid_status(version.xid, incarnation);
			if (version.status != KV_XID_ABORTED)
				put(copy, &source, key, &version, version.status == KV_XID_UNKNOWN);
		}
	}
	PG_FINALLY();
	{
		kv_run_close(run);
	}
	PG_END_TRY();
	finish(copy, &source);
	return true;
}

void
kv_copy_memtable(KvCopy *copy, const KvMemtable *memtable)
{
	KvSource	source = {.base = false};
	KvMemtableCursor cursor;

	for (KvMemtableItem *item = kv_memtable_seek(memtable, (const uint8 *) "", 0, &cursor);
		 item != NULL;
		 item = kv_memtable_next(&cursor))
	{
		KvKey		key = {item->key, item->keylen};

		for (dsa_pointer pointer = item->newest; DsaPointerIsValid(pointer);)
		{
			const KvMemtableVersion *node = kv_address(pointer);
			KvVersion	version = node->version;

			bool		unfinished = version.status == KV_XID_UNKNOWN;

			if (version.status != KV_XID_ABORTED)
			{
				version.status = KV_XID_UNKNOWN;
				put(copy, &source, key, &version, unfinished);
			}
			pointer = node->older;
		}
	}
	finish(copy, &source);
}

bool
kv_copy_discard(KvCopy *copy)
{
	bool		gone = true;

	for (int i = 0; i < copy->most; i++)
	{
		KvPart	   *part = &copy->parts[i];

		if (part->writer != NULL)
			kv_run_discard(part->writer);
		part->writer = NULL;
		for (uint32 number = part->first_run; number < part->files.next_run; number++)
			gone &= kv_io_gone(kv_path_run(&copy->store->key, part->shard_id, number));
	}
	return gone;
}
