/*
 * fetch.c
 *		Gets the values of a batch of rows from caches or value files (cache/cache.h), and verifies
 *		them; finds a version again whose value may have moved.
 *
 * A reader that has found a version and reads its value later holds nothing in between.  A merge
 * may have moved the value; its value file may have been removed.  So a value may be missing, cut
 * off, or not match its entry.  It is damaged only if the key, looked up again, still has it at the
 * same address (I 16).
 *
 * A scan looks the key up with its snapshot.  kv_version_again is for readers without one.  They
 * find the same version by its xid and command id.  Merges remove these from versions that all
 * snapshots see, so a frozen version matches as well.  No other version can match: while the
 * caller's snapshot or lock exists, no newer version is seen by all.
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "engine/base/shared.h"
#include "engine/base/types.h"
#include "engine/cache/cache.h"
#include "engine/format/format.h"
#include "engine/format/path.h"
#include "engine/index/memtable.h"
#include "engine/index/run.h"
#include "engine/io/io.h"
#include "engine/maintenance.h"
#include "engine/rows.h"
#include "engine/scan/internal.h"
#include "engine/scan/scan.h"
#include "engine/shard/map.h"
#include "engine/shard/shard.h"
#include "engine/value/value.h"

/* ---- a version, again ---- */

/* A wanted version, and the result of the search. */
typedef struct KvSearch
{
	const KvVersion *wanted;
	KvVersion	found;			/* the newest possible match */
	bool		any;			/* found is set */
	bool		same_address;	/* a match has the address of the wanted version */
} KvSearch;

static void
consider(KvSearch *search, const KvVersion *version)
{
	const KvVersion *wanted = search->wanted;

	if (version->kind != wanted->kind || version->len != wanted->len ||
		(version->xid != 0 && (version->xid != wanted->xid || version->cid != wanted->cid)))
		return;
	if (version->location == wanted->location)
		search->same_address = true;
	if (!search->any)
		search->found = *version;
	search->any = true;
}

static void
consider_chain(KvSearch *search, const KvMemtable *memtable, KvKey key)
{
	KvMemtableItem *item = kv_memtable_find(memtable, key.data, key.len);
	dsa_pointer pointer = item ? item->newest : InvalidDsaPointer;

	while (DsaPointerIsValid(pointer))
	{
		KvMemtableVersion *node = kv_address(pointer);

		consider(search, &node->version);
		pointer = node->older;
	}
}

bool
kv_version_again(KvStore *store, KvKey key, KvVersion *version)
{
	KvShard    *shard;
	const KvRunSet *set = kv_key_view(store, key, &shard);
	KvSearch	search = {.wanted = version};
	KvRunVersions walk;
	KvVersion	older;
	uint32		incarnation;

	consider_chain(&search, &shard->active, key);
	consider_chain(&search, &shard->immutable, key);
	LWLockRelease(&shard->lock);
	kv_run_versions_begin(&walk, set, key);
	while (kv_run_versions_next(&walk, &older, &incarnation))
		consider(&search, &older);
	kv_run_trust();
	if (search.any && !search.same_address)
	{
		version->location = search.found.location;
		version->crc = search.found.crc;
		version->moves = search.found.moves;
	}
	return search.any;
}

/* ---- values of a batch ---- */

/*
 * Does the value cache keep the values that this batch reads?  Not those of a large scan, and so
 * only the first rows of a scan that has just begun.
 */
static bool
is_kept(const KvScan *scan)
{
	if (scan->points)
		return true;
	return !scan->shared && !scan->reader.windows &&
		(scan->order == KV_ASCENDING || scan->order == KV_DESCENDING) &&
		scan->steering.rows + scan->nrows <= KV_SMALL_RANGE &&
		scan->limit_hint <= KV_SMALL_RANGE && scan->batch_bytes <= KV_SMALL_RANGE * KV_BLOCK;
}

static KvSource
source_of(KvScan *scan)
{
	return (KvSource) {
		.store = scan->store, .stats = &scan->stats,
		.device_reads = scan->stats.device_reads, .device_bytes = scan->stats.device_bytes,
		.context = scan->batch_context, .lasting = scan->context,
		.buffer = &scan->steering.buffer, .reader = &scan->reader,
		.points = scan->points, .kept = is_kept(scan),
		.explains = scan->explains_misses
	};
}

/* A row's value is missing or wrong.  Returns if the scan is forgiving. */
static void
report_damage(const KvScan *scan, KvBatchRow *row)
{
	const KvVersion *version = &row->version;
	KvAddress	address = KV_LOCATION_ADDRESS(version->location);
	const char *path = kv_path_value(&scan->store->key, kv_file_of(address));
	int			level = scan->forgiving ? LOG : ERROR;

	row->problem = ERRCODE_DATA_CORRUPTED;
	if (row->value != NULL)
		(void) kv_value_verify(&scan->store->key, (KvKey) {row->key, row->keylen}, row->value,
							   version, level);
	else if (row->result < 0)
	{
		row->problem = ERRCODE_IO_ERROR;
		kv_io_error(level, -row->result, path, "read");
	}
	else
		kv_io_report_short(level, path, kv_offset_of(address) + version->len);
}

/* ---- moved values (I 16) ---- */

/*
 * Looks a row up again whose value is missing or wrong.  True: the value has moved, and the row has
 * its new version.  False: the value is damaged, or, *gone, the version does not exist any more.  A
 * forgiving scan notes either as the row's problem; others raise ERROR for damage.
 */
static bool
find_again(KvScan *scan, KvBatchRow *row, bool *gone)
{
	KvKey		key = {row->key, row->keylen};
	KvBatchRow	now = *row;
	bool		found;

	now.value = NULL;
	if (scan->view.snapshot != NULL)
		found = kv_batch_find_point(scan, key, &now);
	else
		found = kv_version_again(scan->store, key, &now.version);
	kv_run_trust();
	if (!found && scan->view.snapshot == NULL)
	{
		if (scan->forgiving)
			row->problem = ERRCODE_T_R_SERIALIZATION_FAILURE;
		else
			*gone = true;
		return false;
	}
	if (!found || now.version.location == row->version.location)
	{
		report_damage(scan, row);
		return false;
	}
	row->version = now.version;
	row->value = now.value;
	row->sole = false;
	row->verified = row->headed = row->no_tier = row->direct = row->wrong_pages = false;
	kv_stat_add(scan->store, KV_COUNT_MOVED_READS, 1);
	return true;
}

/* Verifies every value of the batch (I 4).  True: some have moved, and must be fetched again. */
static bool
have_moved(KvScan *scan, bool *gone)
{
	bool		some = false;

	for (int i = 0; i < scan->nrows && !*gone; i++)
	{
		KvBatchRow *row = &scan->rows[i];
		KvKey		key = {row->key, row->keylen};

		if (!row->verified && row->value != NULL)
			row->verified = kv_value_matches(&scan->store->key, key, row->value, &row->version);
		if (!row->verified && row->problem == 0 && find_again(scan, row, gone))
			some = true;
	}
	return some && !*gone;
}

bool
kv_batch_fetch(KvScan *scan)
{
	KvSource	source = source_of(scan);
	bool		gone = false;

	kv_source_take(&source, scan->rows, scan->nrows, true);
	if (!scan->points && scan->reader.wants_blocks)
		kv_ahead(scan);
	kv_source_take(&source, scan->rows, scan->nrows, false);

	/* values move rarely, so the second round usually is the last one */
	while (have_moved(scan, &gone))
		kv_source_read(&source, scan->rows, scan->nrows);
	return !gone;
}

/* Values that fail verification are left to kv_batch_fetch. */
void
kv_batch_fetch_near(KvScan *scan)
{
	KvSource	source = source_of(scan);

	kv_source_take(&source, scan->rows, scan->nrows, true);
	for (int i = 0; i < scan->nrows; i++)
	{
		KvBatchRow *row = &scan->rows[i];
		KvKey		key = {row->key, row->keylen};

		if (!row->verified && row->value != NULL)
			row->verified = kv_value_matches(&scan->store->key, key, row->value, &row->version);
		if (!row->verified)
			row->value = NULL;
	}
}

/* Reads it as a point, so that the value cache keeps it. */
bool
kv_fetch_version(KvStore *store, KvKey key, const KvVersion *version, KvRow *row)
{
	KvShard    *shard = kv_shard(store, kv_shard_for(store, key.data, key.len));
	KvBatchRow	only = {.version = *version, .key = key.data, .keylen = key.len};
	KvScan		scan = {.store = store, .want_values = true, .points = true, .rows = &only,
	.nrows = 1};
	bool		there;

	scan.batch_context = AllocSetContextCreate(CurrentMemoryContext, "kvfdw scan batch",
											   ALLOCSET_DEFAULT_SIZES);
	LWLockAcquire(&shard->lock, LW_SHARED);
	only.value = kv_batch_copy_from_buffer(&scan, shard, version);
	LWLockRelease(&shard->lock);
	there = kv_batch_fetch(&scan);
	if (there)
	{
		char	   *copy = MemoryContextAllocHuge(CurrentMemoryContext, Max(version->len, 1));

		memcpy(copy, only.value, version->len);
		row->key = key.data;
		row->keylen = key.len;
		row->form = KV_LOCATION_FORM(version->location);
		row->len = version->len;
		row->value = copy;
		row->header = NULL;
	}
	MemoryContextDelete(scan.batch_context);
	return there;
}
