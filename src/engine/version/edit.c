/*
 * edit.c
 *		The bodies of edits: maps, files of a shard, and marks, as bytes.
 *
 * A body has fixed widths and a length that is a multiple of 8.  The edit has its checksum (log.c).
 * Whoever reads a body still verifies that each field is possible, as the checksum says only that
 * the bytes are those that were written.
 */
#include "postgres.h"

#include "engine/base/key.h"
#include "engine/base/types.h"
#include "engine/format/format.h"
#include "engine/version/version.h"

/* Followed by the value files. */
typedef struct KvEditFiles
{
	KvShardFiles files;
	uint64		next_address;
	uint64		open_address;
	uint32		job;
	uint32		nvalue_files;
} KvEditFiles;

StaticAssertDecl(sizeof(KvEditFiles) == 120, "size of an edit's files");

/* Followed by the files. */
typedef struct KvEditMark
{
	uint64		log_tail;
	uint64		covers;
	uint32		last_log;
	uint32		number;
	uint32		map_number;
	uint32		pad;
} KvEditMark;

StaticAssertDecl(sizeof(KvEditMark) == 32, "size of an edit's mark");

/* Followed by all of a KvMap after its head, and zeros. */
typedef struct KvEditMap
{
	uint32		number;
	uint32		nshards;
	uint32		next_shard_id;
	uint32		bytes;			/* that follow, without the zeros */
} KvEditMap;

StaticAssertDecl(sizeof(KvEditMap) == 16, "size of an edit's map");

/* ---- files and marks ---- */

static Size
size_of_files(uint64 nvalue_files)
{
	return sizeof(KvEditFiles) + nvalue_files * sizeof(KvValueFile);
}

static void
put_files(KvEditFiles *body, const KvFileList *listed)
{
	int			nunfrozen = listed->files.nunfrozen;
	KvValueFile *value_files = (KvValueFile *) (body + 1);

	body->files = listed->files;
	memset(&body->files.unfrozen[nunfrozen], 0, (KV_MAX_UNFROZEN - nunfrozen) * sizeof(uint32));
	body->next_address = listed->next_address;
	body->open_address = listed->open_address;
	body->job = listed->job;
	body->nvalue_files = listed->nvalue_files;
	for (int i = 0; i < listed->nvalue_files; i++)
	{
		value_files[i] = listed->value_files[i];
		value_files[i].flags &= KV_VALUE_FILE_ON_DISK;
	}
}

KvEdit
kv_edit_of_files(uint32 shard_id, const KvFileList *listed)
{
	Size		len = size_of_files(listed->nvalue_files);
	char	   *body = palloc0(len);

	put_files((KvEditFiles *) body, listed);
	return (KvEdit) {KV_EDIT_FILES, shard_id, len, body};
}

KvEdit
kv_edit_of_mark(uint32 shard_id, const KvMark *mark)
{
	Size		len = sizeof(KvEditMark) + size_of_files(mark->listed.nvalue_files);
	KvEditMark *body = palloc0(len);

	body->log_tail = mark->log_tail;
	body->covers = mark->covers;
	body->last_log = mark->last_log;
	body->number = mark->number;
	body->map_number = mark->map_number;
	put_files((KvEditFiles *) (body + 1), &mark->listed);
	return (KvEdit) {KV_EDIT_MARK, shard_id, len, (char *) body};
}

/* Is the list valid: in order, and each value file once and with possible fields? */
static bool
value_files_are_sound(const KvValueFile *value_files, uint32 n)
{
	for (uint32 i = 0; i < n; i++)
	{
		KvFileId	file = kv_file_of(value_files[i].address);

		if (!kv_address_is_possible(value_files[i].address) ||
			file.address != value_files[i].address || value_files[i].used > kv_file_span(file) ||
			(i > 0 && value_files[i].address <= value_files[i - 1].address))
			return false;
	}
	return true;
}

static bool
get_files(const KvEditFiles *body, Size len, KvFileList *listed)
{
	const KvValueFile *value_files = (const KvValueFile *) (body + 1);

	if (len < sizeof(KvEditFiles) || len != size_of_files(body->nvalue_files) ||
		body->files.nunfrozen > KV_MAX_UNFROZEN ||
		(body->next_address != 0 && !kv_address_is_possible(body->next_address)) ||
		!value_files_are_sound(value_files, body->nvalue_files))
		return false;
	listed->files = body->files;
	listed->job = body->job;
	listed->next_address = body->next_address;
	listed->open_address = body->open_address;
	listed->nvalue_files = body->nvalue_files;
	listed->value_files = palloc(Max(body->nvalue_files, 1) * sizeof(KvValueFile));
	memcpy(listed->value_files, value_files, body->nvalue_files * sizeof(KvValueFile));
	return true;
}

bool
kv_edit_get_files(const KvEdit *edit, KvFileList *listed)
{
	return edit->kind == KV_EDIT_FILES &&
		get_files((const KvEditFiles *) edit->body, edit->len, listed);
}

bool
kv_edit_get_mark(const KvEdit *edit, KvMark *mark)
{
	const KvEditMark *body = (const KvEditMark *) edit->body;

	if (edit->kind != KV_EDIT_MARK || edit->len < sizeof(KvEditMark) ||
		!get_files((const KvEditFiles *) (body + 1), edit->len - sizeof(KvEditMark),
				   &mark->listed))
		return false;
	mark->last_log = body->last_log;
	mark->number = body->number;
	mark->map_number = body->map_number;
	mark->log_tail = body->log_tail;
	mark->covers = body->covers;
	return true;
}

/* ---- what is carried ---- */

/* Followed by entries and values. */
typedef struct KvEditCarried
{
	uint32		number;
	uint32		map_number;
	uint32		incarnation;
	uint32		pad;
	uint64		base;
	uint32		entry_bytes;	/* a multiple of 8 */
	uint32		value_bytes;	/* zeros follow, up to a multiple of 8 */
} KvEditCarried;

StaticAssertDecl(sizeof(KvEditCarried) == 32, "size of what an edit carries");

KvEdit
kv_edit_of_carried(uint32 shard_id, const KvCarried *carried)
{
	Size		len = sizeof(KvEditCarried) + carried->entry_bytes +
		TYPEALIGN(8, carried->value_bytes);
	KvEditCarried *body = palloc0(len);

	body->number = carried->number;
	body->map_number = carried->map_number;
	body->incarnation = carried->incarnation;
	body->base = carried->base;
	body->entry_bytes = carried->entry_bytes;
	body->value_bytes = carried->value_bytes;
	memcpy(body + 1, carried->entries, carried->entry_bytes);
	memcpy((char *) (body + 1) + carried->entry_bytes, carried->values, carried->value_bytes);
	return (KvEdit) {KV_EDIT_CARRIED, shard_id, len, (char *) body};
}

/* Is each entry whole, and its value among the values? */
static bool
entries_are_sound(const KvCarried *carried)
{
	uint32		at = 0;

	while (at < carried->entry_bytes)
	{
		const KvLogEntry *entry = (const KvLogEntry *) (carried->entries + at);
		uint64		value = carried->entry_bytes - at < sizeof(KvLogEntry) ? 0 :
			KV_LOCATION_ADDRESS(entry->location) - carried->base;

		if (carried->entry_bytes - at < sizeof(KvLogEntry) || entry->keylen > KV_MAX_KEY ||
			KV_LOG_ENTRY_SIZE(entry->keylen) > carried->entry_bytes - at ||
			(entry->len > 0 && (value > carried->value_bytes ||
								entry->len > carried->value_bytes - value)))
			return false;
		at += KV_LOG_ENTRY_SIZE(entry->keylen);
	}
	return true;
}

bool
kv_edit_get_carried(const KvEdit *edit, KvCarried *carried)
{
	const KvEditCarried *body = (const KvEditCarried *) edit->body;

	if (edit->kind != KV_EDIT_CARRIED || edit->len < sizeof(KvEditCarried) ||
		edit->len != sizeof(KvEditCarried) + (Size) body->entry_bytes +
		TYPEALIGN(8, (Size) body->value_bytes) || body->entry_bytes % 8 != 0)
		return false;
	carried->number = body->number;
	carried->map_number = body->map_number;
	carried->incarnation = body->incarnation;
	carried->base = body->base;
	carried->entry_bytes = body->entry_bytes;
	carried->value_bytes = body->value_bytes;
	carried->entries = (const char *) (body + 1);
	carried->values = carried->entries + body->entry_bytes;
	return entries_are_sound(carried);
}

/* ---- maps ---- */

KvEdit
kv_edit_of_map(const KvMap *map)
{
	uint32		bytes = map->bytes - offsetof(KvMap, data);
	Size		len = sizeof(KvEditMap) + TYPEALIGN(8, bytes);
	KvEditMap  *body = palloc0(len);

	body->number = map->number;
	body->nshards = map->nshards;
	body->next_shard_id = map->next_shard_id;
	body->bytes = bytes;
	memcpy(body + 1, map->data, bytes);
	return (KvEdit) {KV_EDIT_MAP, KV_NO_SHARD, len, (char *) body};
}

/* Are the bounds ascending, in the body and as keys? */
static bool
bounds_are_sound(const uint32 *offsets, uint32 nshards, uint32 size)
{
	const uint8 *bytes = (const uint8 *) (offsets + nshards + 1);
	uint64		fixed = sizeof(uint32) * ((uint64) nshards + 1);

	if (size < fixed || offsets[0] != 0 || offsets[nshards] != size - fixed)
		return false;
	for (uint32 i = 1; i <= nshards; i++)
	{
		if (offsets[i] < offsets[i - 1] || offsets[i] - offsets[i - 1] > KV_MAX_KEY)
			return false;
	}
	for (uint32 i = 1; i < nshards; i++)
	{
		if (kv_key_compare(bytes + offsets[i - 1], offsets[i] - offsets[i - 1],
						   bytes + offsets[i], offsets[i + 1] - offsets[i]) >= 0)
			return false;
	}
	return true;
}

/* Is each id valid, and used only once? */
static bool
ids_are_sound(const uint32 *shards, uint32 nshards, uint32 next_shard_id)
{
	uint8	   *there = palloc0(next_shard_id / 8 + 1);
	bool		sound = true;

	for (uint32 i = 0; i < nshards && sound; i++)
	{
		sound = shards[i] < next_shard_id && !(there[shards[i] / 8] & (1 << shards[i] % 8));
		if (sound)
			there[shards[i] / 8] |= 1 << shards[i] % 8;
	}
	pfree(there);
	return sound;
}

bool
kv_edit_get_map(const KvEdit *edit, KvMap **map)
{
	const KvEditMap *body = (const KvEditMap *) edit->body;
	const uint32 *shards = (const uint32 *) (body + 1);
	Size		ids;

	if (edit->kind != KV_EDIT_MAP || edit->len < sizeof(KvEditMap) ||
		edit->len != sizeof(KvEditMap) + TYPEALIGN(8, (Size) body->bytes))
		return false;
	ids = 2 * sizeof(uint32) * (Size) body->nshards;
	if (body->nshards < 1 || body->nshards > KV_SHARD_IDS || body->bytes < ids ||
		body->next_shard_id > KV_SHARD_IDS ||
		!ids_are_sound(shards, body->nshards, body->next_shard_id) ||
		!bounds_are_sound(shards + 2 * body->nshards, body->nshards, body->bytes - ids))
		return false;
	*map = palloc0(offsetof(KvMap, data) + body->bytes);
	(*map)->number = body->number;
	(*map)->nshards = body->nshards;
	(*map)->next_shard_id = body->next_shard_id;
	(*map)->bytes = offsetof(KvMap, data) + body->bytes;
	memcpy((*map)->data, shards, body->bytes);
	return true;
}

KvMap *
kv_map_make(uint32 number, uint32 nshards, const uint32 *shards, const uint32 *since,
			const KvKey *bounds)
{
	Size		bytes = offsetof(KvMap, data) + sizeof(uint32) * (3 * (Size) nshards + 1);
	KvMap	   *map;
	uint32	   *offsets;
	uint8	   *keys;
	uint32		at = 0;

	for (uint32 i = 1; i < nshards; i++)
		bytes += bounds[i].len;
	map = palloc0(bytes);
	map->number = number;
	map->nshards = nshards;
	map->bytes = bytes;
	offsets = map->data + 2 * nshards;
	keys = (uint8 *) (offsets + nshards + 1);
	for (uint32 i = 0; i < nshards; i++)
	{
		map->data[i] = shards != NULL ? shards[i] : i;
		map->data[nshards + i] = since != NULL ? since[i] : 0;
		map->next_shard_id = Max(map->next_shard_id, map->data[i] + 1);
		offsets[i] = at;
		if (i == 0)
			continue;			/* the first shard begins before all keys */
		memcpy(keys + at, bounds[i].data, bounds[i].len);
		at += bounds[i].len;
	}
	offsets[nshards] = at;
	return map;
}
