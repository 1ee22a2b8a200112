/*
 * mapback.c
 *		Which map of a store counts, and when may the files of the previous one be removed?
 *
 * A change of the map replaces shards by new ones, or gives one's range to another.  The new
 * map is renamed into place and not synced; in memory it counts at once.  From then on its
 * state is
 *
 *	CHANGED		The shards need images that were captured since their bounds changed.  The
 *				map's file is synced before the first of these images is renamed.
 *	IMAGED		All shards have such images, and the file "imaged" says so.  Earlier maps, and
 *				files of shards that are only in those, are removed when no base backup runs.
 *	SETTLED		Nothing is left of earlier maps, durably, and the map may be changed again:
 *				ids of shards are used again (split/shardid.c).
 *
 * So there are at most two maps at a time.  A store that begins at its images takes the newest
 * map all of whose shards have such an image; a shard with which the store was created, and
 * whose bounds never changed, needs none.  If that is the previous map, its shards' images are
 * older than the change or as good.  Later versions are in the WAL, because no checkpoint that
 * began after the change completes before the new map is IMAGED.
 *
 * Other maps, and files of shards that are not in the map, are removed.  Value files do not
 * belong to a shard by name; they are removed by lists.
 */
#include "postgres.h"

#include "utils/timestamp.h"

#include "clock.h"
#include "engine/base/error.h"
#include "engine/base/types.h"
#include "engine/durable/durable.h"
#include "engine/format/format.h"
#include "engine/io/io.h"
#include "engine/shard/shard.h"
#include "engine/buffer/buffer.h"

#define KV_PAUSE_MS	2000		/* after files could not be removed */

/* ---- choosing ---- */

/* Has the map's shard a valid image for this map? */
static bool
shard_is_imaged(const KvStore *store, const KvMap *map, uint32 position, const KvFoundFile *files,
				int n)
{
	uint32		shard_id = kv_map_shards(map)[position];
	uint32		since = kv_map_since(map)[position];
	KvImage		image;
	bool		is;

	if (!kv_image_read_newest(&store->key, shard_id, files, n, ERROR, &image))
		return since == 0;
	is = image.map_number >= since;
	pfree(image.manifest.value_files);
	return is;
}

static bool
all_imaged(const KvStore *store, const KvMap *map)
{
	KvFound		found;
	bool		all = true;

	kv_store_list_files(&store->key, &found);
	for (uint32 i = 0; i < map->nshards && all; i++)
	{
		uint32		shard_id = kv_map_shards(map)[i];
		int			at = kv_found_first(&found, shard_id);

		all = shard_is_imaged(store, map, i, found.files + at,
							  kv_found_of_shard(&found, at, shard_id));
	}
	pfree(found.files);
	return all;
}

KvMap *
kv_map_choose(const KvStore *store, const KvImaged *imaged)
{
	uint32		least = kv_imaged_map(imaged);
	int			n;
	uint32	   *numbers = kv_map_files(&store->key, &n);
	KvMap	   *map;

	for (int i = 0; i < n && numbers[i] >= least; i++)
	{
		map = kv_map_file_load(&store->key, numbers[i]);
		if (numbers[i] == least || all_imaged(store, map))
			return map;
		pfree(map);
	}
	if (least > 0)
		kv_io_raise_missing(kv_path_map(&store->key, least));
	return kv_map_file_read(&store->key, store->shape.nshards);
}

KvMap *
kv_map_newest(const KvStore *store)
{
	int			n;
	uint32	   *numbers = kv_map_files(&store->key, &n);

	return n > 0 ? kv_map_file_load(&store->key, numbers[0]) :
		kv_map_file_read(&store->key, store->shape.nshards);
}

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

		/* until it has an image its logs have all its entries: see needs_log */
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
 * Find, or remove, other maps than this one, and files of shards that are not in it.  False:
 * there are none, or none is left.
 */
static bool
visit_others(const KvStore *store, const KvMap *map, bool remove)
{
	char	   *directory = pstrdup(kv_path_store(&store->key));
	uint32	   *shards = palloc(map->nshards * sizeof(uint32));
	uint32	   *numbers;
	bool		some = false;
	KvFound		found;
	int			n;

	memcpy(shards, kv_map_shards(map), map->nshards * sizeof(uint32));
	qsort(shards, map->nshards, sizeof(uint32), compare_numbers);

	/* without the map its shards are not looked for, so their files are removed first */
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
	numbers = kv_map_files(&store->key, &n);
	for (int i = 0; i < n; i++)
	{
		/* a map's shards are looked for as long as the map exists */
		if (numbers[i] != map->number && !(remove && some))
			some |= !remove || !kv_io_gone(kv_path_map(&store->key, numbers[i]));
	}
	pfree(numbers);
	pfree(found.files);
	pfree(shards);
	pfree(directory);
	return some;
}

/*
 * Remove maps after this one.  While one of them exists its shards must keep their files: a
 * shard without files counts as empty.
 */
static void
remove_later(const KvStore *store, const KvMap *map)
{
	int			n;
	uint32	   *numbers = kv_map_files(&store->key, &n);

	for (int i = 0; i < n; i++)
	{
		const char *path = kv_path_map(&store->key, numbers[i]);
		int			err = numbers[i] > map->number ? kv_io_unlink(path) : 0;

		if (err != 0)
			kv_io_error(ERROR, err, path, "remove");
	}
	kv_io_sync_directory(kv_path_store(&store->key));
	pfree(numbers);
}

void
kv_map_keep_only(const KvStore *store, const KvMap *map)
{
	if (!visit_others(store, map, false))
		return;

	/* the chosen map must be durable */
	if (map->number > 0)
		kv_io_sync_file(kv_path_map(&store->key, map->number));
	kv_io_sync_directory(kv_path_store(&store->key));
	remove_later(store, map);
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

/* ---- while the store is in use ---- */

void
kv_map_sync(KvStore *store, uint32 number)
{
	if (number <= store->images.map)
		return;
	number = pg_atomic_read_u32(&store->map.number);
	kv_io_sync_file(kv_path_map(&store->key, number));
	kv_io_sync_directory(kv_path_store(&store->key));
	store->images.map = number;
}

bool
kv_map_is_imaged(KvStore *store)
{
	kv_each_shard(store, i)
	{
		if (kv_shard(store, i)->durable.map < kv_shard(store, i)->place.bounds_since)
			return false;
	}
	return true;
}

void
kv_map_look(KvStore *store)
{
	static TimestampTz failed_at = 0;	/* when files could not be removed */
	uint32		state = pg_atomic_read_u32(&store->map.state);
	uint32		number = pg_atomic_read_u32(&store->map.number);
	bool		imaged;

	/* of the map with this number, whichever map follows it */
	pg_read_barrier();
	imaged = kv_map_is_imaged(store);
	if (state == KV_MAP_CHANGED && imaged)
	{
		store->images.stale = true;
		kv_map_set_state(store, state = KV_MAP_IMAGED);
	}
	if (store->images.stale && imaged)
		kv_imaged_write(store, number);
	if (state != KV_MAP_IMAGED)
		return;
	KV_STOP_POINT("map_imaged");
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
	if (visit_others(store, kv_map_present(store), true))
	{
		failed_at = kv_clock();
		pg_atomic_fetch_add_u32(&store->images.failed, 1);
		return;
	}
	kv_io_sync_directory(kv_path_store(&store->key));
	KV_STOP_POINT("map_done");
	store->map.tidied_once = true;
	pg_write_barrier();
	kv_map_set_state(store, KV_MAP_DONE);
}
