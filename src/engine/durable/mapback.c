/*
 * mapback.c
 *		Which map of a store counts, and when may the files of the previous one be removed?
 *
 * A change of the map replaces shards by new ones, or gives one's range to another.  The new
 * map is an edit of the version log, which is not synced; in memory it counts at once.  From
 * then on its state is
 *
 *	CHANGED		The shards need marks that were captured since their bounds changed.
 *	MARKED		All shards have such marks.  Files of shards that are only in earlier maps are
 *				removed when no base backup runs.
 *	DONE		Nothing is left of earlier maps, durably, and the map may be changed again: ids
 *				of shards are used again (split/shardid.c).
 *
 * So there are at most two maps at a time.  A store that begins at its marks takes the newest
 * map all of whose shards have such a mark; a shard with which the store was created, and
 * whose bounds never changed, needs none.  If that is the previous map, its shards' marks are
 * older than the change or as good.  Later versions are in the WAL, because no checkpoint that
 * began after the change completes before the new map is MARKED.
 *
 * Files of shards that are not in the map are removed.  Value files do not belong to a shard by
 * name; they are removed by lists.
 */
#include "postgres.h"

#include "utils/timestamp.h"

#include "clock.h"
#include "engine/base/error.h"
#include "engine/base/types.h"
#include "engine/durable/durable.h"
#include "engine/format/format.h"
#include "engine/format/path.h"
#include "engine/io/fault.h"
#include "engine/io/name.h"
#include "engine/shard/map.h"
#include "engine/shard/obsolete.h"
#include "engine/shard/shard.h"
#include "engine/buffer/buffer.h"
#include "engine/version/version.h"

#define KV_PAUSE_MS	2000		/* after files could not be removed */

/* ---- the files of other maps ---- */

uint32
kv_map_entries_after(const KvStore *store, const KvMap *map)
{
	KvFound		found;
	uint64		entries = 0;
	uint32		shard = KV_NO_SHARD;

	kv_store_list_files(&store->key, &found);
	for (int i = 0; i < found.n; i++)
	{
		const KvFoundFile *file = &found.files[i];

		if (file->kind == KV_FILE_VALUES || file->shard < map->next_shard_id)
			continue;
		if (file->shard != shard)
			entries += kv_buffers_lost(&store->key, file->shard);
		shard = file->shard;

		/* until it has a mark its logs have all its entries: see needs_log */
		if (file->kind == KV_FILE_LOG)
			entries += kv_log_entries(&store->key, shard, file->number);
	}
	pfree(found.files);
	return Min(entries, PG_UINT32_MAX);
}

static int
compare_numbers(const void *a, const void *b)
{
	uint32		left = *(const uint32 *) a;
	uint32		right = *(const uint32 *) b;

	return left < right ? -1 : left > right;
}

/*
 * Find, or remove, files of shards that are not in this map.  False: there are none, or none is
 * left.
 */
static bool
visit_others(const KvStore *store, const KvMap *map, bool remove)
{
	char	   *directory = pstrdup(kv_path_store(&store->key));
	uint32	   *shards = palloc(map->nshards * sizeof(uint32));
	bool		some = false;
	KvFound		found;

	memcpy(shards, kv_map_shards(map), map->nshards * sizeof(uint32));
	qsort(shards, map->nshards, sizeof(uint32), compare_numbers);
	kv_store_list_files(&store->key, &found);
	for (int i = 0; i < found.n; i++)
	{
		const KvFoundFile *file = &found.files[i];
		char		path[MAXPGPATH];

		if (file->kind == KV_FILE_VALUES ||
			bsearch(&file->shard, shards, map->nshards, sizeof(uint32), compare_numbers) != NULL)
			continue;
		snprintf(path, sizeof(path), "%s/%s", directory, file->name);
		some |= !remove || !kv_io_gone(path);
	}
	pfree(found.files);
	pfree(shards);
	pfree(directory);
	return some;
}

void
kv_map_keep_only(const KvStore *store, const KvMap *map)
{
	if (!visit_others(store, map, false))
		return;
	if (visit_others(store, map, true))
		ereport(ERROR,
				(errcode(ERRCODE_IO_ERROR),
				 errmsg("could not remove files of shards that %s does not have",
						kv_table_label(store->key.dboid, store->key.relid))));
	kv_io_sync_directory(kv_path_store(&store->key));
}

bool
kv_map_has_others(const KvStore *store, const KvMap *map)
{
	return visit_others(store, map, false);
}

KvMap *
kv_map_set_back(KvStore *store, const KvVersions *versions)
{
	KvMap	   *map = kv_versions_durable_map(versions);
	KvMap	   *newest = kv_versions_newest_map(versions);

	if (map->number != newest->number)
	{
		KvEdit	   *edits;
		int			n;

		/* the number of a map that was dropped is not used again: its marks have it */
		map->number = newest->number;
		edits = kv_versions_live(versions, &map, 1, false, &n);
		kv_version_log_replace(store, versions, edits, n);
		pfree(edits);
	}
	KV_STOP_POINT("map_set_back");
	kv_map_keep_only(store, map);
	pfree(newest);
	return map;
}

/* ---- while the store is in use ---- */

bool
kv_map_is_marked(KvStore *store)
{
	kv_each_shard(store, i)
	{
		if (kv_shard(store, i)->durable.map < kv_shard(store, i)->place.bounds_since)
			return false;
	}
	return true;
}

/* Remove files that only the previous map needs, if that is allowed. */
static void
end_change(KvStore *store)
{
	static TimestampTz failed_at = 0;	/* when files could not be removed */

	KV_STOP_POINT("map_marked");
	kv_backups_look();
	if (kv_backups_run())
		return;

	/*
	 * the map is not changed in this state; its shard ids may be used again when all files of
	 * them are durably removed
	 */
	if (failed_at != 0 && kv_clock() >= failed_at &&
		!TimestampDifferenceExceeds(failed_at, kv_clock(), KV_PAUSE_MS))
		return;
	kv_files_want_tidy(store);
	if (!kv_files_tidy(store))
	{
		failed_at = kv_clock();
		pg_atomic_fetch_add_u32(&store->versions.failed, 1);
		return;
	}
	kv_io_sync_directory(kv_path_store(&store->key));
	KV_STOP_POINT("map_done");
	store->map.tidied_once = true;
	kv_obsolete_map_done(store);
	pg_write_barrier();
	kv_map_set_state(store, KV_MAP_DONE);
}

void
kv_map_look(KvStore *store)
{
	uint32		state = pg_atomic_read_u32(&store->map.state);

	/* of this map, whichever follows it */
	pg_read_barrier();
	if (state == KV_MAP_CHANGED && kv_map_is_marked(store))
		kv_map_set_state(store, state = KV_MAP_MARKED);
	if (state == KV_MAP_MARKED)
		end_change(store);
	(void) kv_files_tidy(store);
	kv_obsolete_release(store);
	kv_version_log_look(store);
}
