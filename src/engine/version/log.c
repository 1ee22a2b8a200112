/*
 * log.c
 *		The file of a version log: reading, choosing what counts, and writing a new one.
 *
 * No shared memory: also the postmaster reads logs, before other processes use the stores.
 */
#include "postgres.h"

#include <unistd.h>

#include "storage/fd.h"

#include "engine/base/hash.h"
#include "engine/base/types.h"
#include "engine/format/format.h"
#include "engine/format/path.h"
#include "engine/io/io.h"
#include "engine/io/name.h"
#include "engine/version/internal.h"
#include "engine/version/version.h"

/* The beginning of the file. */
typedef struct KvVersionsHead
{
	KvFileHead	head;
	uint64		id;				/* the store's */
	uint32		number;
	uint32		crc;			/* of all before it */
	KvVersionsNote note;
} KvVersionsHead;

StaticAssertDecl(sizeof(KvVersionsHead) == KV_VERSIONS_HEAD, "version log head size");
StaticAssertDecl(offsetof(KvVersionsHead, note) == KV_VERSIONS_NOTE_AT, "place of the note");

KvVersionsNote
kv_versions_note(uint32 number, uint64 synced, uint32 next)
{
	KvVersionsNote note = {.synced = synced, .next = next};
	pg_crc32c	crc;

	INIT_CRC32C(crc);
	COMP_CRC32C(crc, &number, sizeof(number));
	COMP_CRC32C(crc, &note, offsetof(KvVersionsNote, crc));
	FIN_CRC32C(crc);
	note.crc = crc;
	return note;
}

/* The note in a log's bytes; one that is not valid, because power was lost, says nothing. */
static KvVersionsNote
read_note(const char *bytes, uint32 number)
{
	const KvVersionsNote *note = &((const KvVersionsHead *) bytes)->note;
	KvVersionsNote right = kv_versions_note(number, note->synced, note->next);

	return right.crc == note->crc ? right : kv_versions_note(number, 0, 0);
}

/* ---- edits as records ---- */

static uint32
record_crc(const KvEditRecord *record, uint32 number)
{
	pg_crc32c	crc;

	INIT_CRC32C(crc);
	COMP_CRC32C(crc, &number, sizeof(number));
	crc = kv_crc_add(crc, &record->len, sizeof(KvEditRecord) - offsetof(KvEditRecord, len));
	crc = kv_crc_add(crc, record + 1, record->len);
	FIN_CRC32C(crc);
	return crc;
}

Size
kv_edit_size(const KvEdit *edits, int n)
{
	Size		size = 0;

	for (int i = 0; i < n; i++)
		size += sizeof(KvEditRecord) + edits[i].len;
	return size;
}

void
kv_edit_put(char *into, const KvEdit *edits, int n, uint32 number, uint32 append,
			uint64 offset, uint64 synced)
{
	uint64		end = offset + kv_edit_size(edits, n);

	for (int i = 0; i < n; i++)
	{
		KvEditRecord *record = (KvEditRecord *) into;

		memset(record, 0, sizeof(*record));
		record->magic = KV_MAGIC_EDIT;
		record->len = edits[i].len;
		record->kind = edits[i].kind;
		record->shard = edits[i].shard;
		record->append = append;
		record->rest = end - offset;
		record->offset = offset;
		record->synced = synced;
		if (edits[i].len > 0)
			memcpy(record + 1, edits[i].body, edits[i].len);
		record->crc = record_crc(record, number);
		into += sizeof(KvEditRecord) + edits[i].len;
		offset += sizeof(KvEditRecord) + edits[i].len;
	}
}

/*
 * The record at an offset, of this append or a later one; NULL: there is no valid one.  A failed
 * append leaves bytes that may follow those of the next one.
 */
static const KvEditRecord *
record_at(const char *bytes, uint64 len, uint64 offset, uint32 number, uint32 append)
{
	const KvEditRecord *record = (const KvEditRecord *) (bytes + offset);

	if (len - offset < sizeof(KvEditRecord) || record->magic != KV_MAGIC_EDIT ||
		record->offset != offset || record->append < append || record->len % 8 != 0 ||
		record->len > len - offset - sizeof(KvEditRecord) ||
		record->crc != record_crc(record, number))
		return NULL;
	return record;
}

/* Is all of the append valid that begins at this offset? */
static bool
append_is_whole(const char *bytes, uint64 len, uint64 offset, uint32 number,
				const KvEditRecord *record)
{
	uint64		end = offset + record->rest;
	uint32		append = record->append;

	if (end > len)
		return false;
	while (offset < end)
	{
		record = record_at(bytes, len, offset, number, append);
		if (record == NULL || record->append != append || record->rest != end - offset)
			return false;
		offset += sizeof(KvEditRecord) + record->len;
	}
	return offset == end;
}

/*
 * The offset up to which edits are valid.  *damaged: a valid one follows an invalid one, and strict
 * or the invalid one was durable when it was written.  visit may be NULL.
 */
static uint64
walk(const char *bytes, uint64 len, uint64 offset, uint32 number, bool strict, bool *damaged,
	 void (*visit) (const KvEditRecord *record, void *arg), void *arg)
{
	const KvEditRecord *record;
	uint32		append = 0;
	uint64		whole = offset;	/* appends are whole up to here */

	*damaged = false;
	while (offset < len && (record = record_at(bytes, len, offset, number, append)) != NULL)
	{
		if (offset == whole && !append_is_whole(bytes, len, offset, number, record))
		{
			append = record->append + 1;	/* its other edits are no damage */
			break;
		}
		if (offset == whole)
			whole += record->rest;
		append = record->append;
		if (visit != NULL)
			visit(record, arg);
		offset += sizeof(KvEditRecord) + record->len;
	}
	for (uint64 at = offset + 8; at < len && !*damaged; at += 8)
	{
		record = record_at(bytes, len, at, number, append);
		*damaged = record != NULL && (strict || record->synced > offset);
	}
	return offset;
}

/* ---- logs of a store ---- */

const char *
kv_path_versions(const KvStoreKey *key, uint32 number)
{
	static char path[MAXPGPATH];

	snprintf(path, sizeof(path), "%s/%08x.versions", kv_path_store(key), number);
	return path;
}

int
kv_versions_numbers(const KvStoreKey *key, uint32 numbers[KV_VERSION_LOGS])
{
	char	   *directory = pstrdup(kv_path_store(key));
	DIR		   *dir = AllocateDir(directory);
	struct dirent *de;
	int			n = 0;

	while ((de = ReadDir(dir, directory)) != NULL)
	{
		uint32		number;
		char		right[20];
		int			at;

		if (sscanf(de->d_name, "%8x.versions", &number) != 1)
			continue;
		snprintf(right, sizeof(right), "%08x.versions", number);
		if (strcmp(de->d_name, right) != 0)
			continue;

		/* the greatest come first */
		for (at = n; at > 0 && numbers[at - 1] < number; at--)
		{
			if (at < KV_VERSION_LOGS)
				numbers[at] = numbers[at - 1];
		}
		if (at < KV_VERSION_LOGS)
			numbers[at] = number;
		n = Min(n + 1, KV_VERSION_LOGS);
	}
	FreeDir(dir);
	pfree(directory);
	return n;
}

static bool
head_is_sound(const KvVersionsHead *head, const KvStoreKey *key, uint64 id, uint32 number)
{
	return head->crc == kv_crc(head, offsetof(KvVersionsHead, crc)) &&
		kv_head_is_of(&head->head, key, 0) && head->id == id && head->number == number;
}

/* Why it is no log of this store, or NULL.  A foreign format version is an ERROR, 0A000. */
static const char *
head_problem(const char *path, const char *bytes, uint64 len, const KvStoreKey *key, uint64 id,
			 uint32 number)
{
	const KvVersionsHead *head = (const KvVersionsHead *) bytes;

	if (len < sizeof(KvVersionsHead) || head->head.magic != KV_MAGIC_VERSIONS)
		return "is damaged";
	kv_format_require(path, head->head.format_version, KV_FORMAT_VERSION);
	return head_is_sound(head, key, id, number) ? NULL : "is damaged";
}

void
kv_versions_raise_damaged(const KvStoreKey *key, uint32 number, const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("file \"%s\" is damaged", kv_path_versions(key, number)),
			 errdetail_internal("%s", detail)));
}

static void
add_edit(const KvEditRecord *record, void *arg)
{
	KvVersions *versions = arg;

	versions->appends = record->append;
	versions->synced = Max(versions->synced, record->synced);
	if (versions->n == versions->room)
	{
		versions->room = Max(64, versions->room * 2);
		versions->edits = versions->n == 0 ? palloc(versions->room * sizeof(KvEdit)) :
			repalloc_huge(versions->edits, versions->room * sizeof(KvEdit));
	}
	versions->edits[versions->n++] = (KvEdit) {(KvEditKind) record->kind, record->shard,
											   record->len, (const char *) (record + 1)};
}

/* Add the edits of a log.  newest: no other may have replaced it. */
static void
read_log(KvVersions *versions, uint64 id, uint32 number, bool newest, bool strict, uint64 limit)
{
	char	   *path = pstrdup(kv_path_versions(&versions->key, number));
	Size		len;
	char	   *bytes = kv_io_slurp(path, &len);
	const char *problem;
	KvVersionsNote note;
	bool		damaged;

	if (bytes == NULL)
		kv_io_raise_missing(path);
	versions->bytes = lappend(versions->bytes, bytes);
	if (limit > 0 && limit < len)
		len = limit;
	problem = head_problem(path, bytes, len, &versions->key, id, number);
	if (problem != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("file \"%s\" is damaged", path)));
	note = read_note(bytes, number);
	if (newest && limit == 0 && note.next != 0)
		kv_io_raise_missing(kv_path_versions(&versions->key, note.next));
	versions->number = number;
	versions->synced = 0;
	versions->end = walk(bytes, len, sizeof(KvVersionsHead), number, strict, &damaged, add_edit,
						 versions);
	versions->torn = versions->end < len;
	damaged |= limit == 0 && versions->end < note.synced;
	if (damaged || (limit > 0 && versions->torn))
		kv_versions_raise_damaged(&versions->key, number,
								  psprintf("The edit at byte %llu is not valid.",
										   (unsigned long long) versions->end));
	pfree(path);
}

/* For qsort: which edits are compared. */
static const KvEdit *compared;

static int
compare_edits(const void *a, const void *b)
{
	int			left = *(const int *) a;
	int			right = *(const int *) b;
	const KvEdit *one = &compared[left];
	const KvEdit *other = &compared[right];

	if (one->kind != other->kind)
		return one->kind < other->kind ? -1 : 1;
	if (one->shard != other->shard)
		return one->shard < other->shard ? -1 : 1;
	return left < right ? -1 : left > right;
}

static void
index_edits(KvVersions *versions)
{
	versions->by_shard = palloc(Max(versions->n, 1) * sizeof(int));
	for (int i = 0; i < versions->n; i++)
	{
		if (versions->edits[i].shard != KV_NO_SHARD)
			versions->by_shard[versions->nby_shard++] = i;
	}
	compared = versions->edits;
	qsort(versions->by_shard, versions->nby_shard, sizeof(int), compare_edits);
}

KvVersions *
kv_versions_of(const KvVersions *versions, const KvEdit *edits, int n)
{
	KvVersions *of = palloc0(sizeof(KvVersions));

	of->key = versions->key;
	of->number = versions->number;
	of->edits = palloc(Max(n, 1) * sizeof(KvEdit));
	memcpy(of->edits, edits, n * sizeof(KvEdit));
	of->n = n;
	index_edits(of);
	return of;
}

KvVersions *
kv_versions_read(const KvStoreKey *key, uint64 id, uint32 number, bool all, bool strict,
				 uint64 limit)
{
	KvVersions *versions = palloc0(sizeof(KvVersions));
	uint32		numbers[KV_VERSION_LOGS];
	int			n = kv_versions_numbers(key, numbers);

	versions->key = *key;
	if (number != 0)
		numbers[0] = number;
	else if (n == 0)
		kv_io_raise_missing(kv_path_versions(key, 1));
	for (int i = all ? n - 1 : 0; i >= 0; i--)
		read_log(versions, id, numbers[i], !all, strict, i == 0 ? limit : 0);
	index_edits(versions);
	return versions;
}

void
kv_versions_free(KvVersions *versions)
{
	list_free_deep(versions->bytes);
	if (versions->edits != NULL)
		pfree(versions->edits);
	pfree(versions->by_shard);
	pfree(versions);
}

/* ---- what counts ---- */

/* The index in by_shard after the newest edit of this kind of a shard. */
static int
after_newest(const KvVersions *versions, KvEditKind kind, uint32 shard_id)
{
	int			low = 0;
	int			high = versions->nby_shard;

	while (low < high)
	{
		int			middle = (low + high) / 2;
		const KvEdit *edit = &versions->edits[versions->by_shard[middle]];

		if (edit->kind < kind || (edit->kind == kind && edit->shard <= shard_id))
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* The shard's edit of this kind before the newest ones; NULL: there is none. */
static const KvEdit *
edit_before(const KvVersions *versions, KvEditKind kind, uint32 shard_id, int newer)
{
	int			at = after_newest(versions, kind, shard_id) - 1 - newer;
	const KvEdit *edit = at >= 0 ? &versions->edits[versions->by_shard[at]] : NULL;

	return edit != NULL && edit->kind == kind && edit->shard == shard_id ? edit : NULL;
}

KV_NORETURN static void
raise_unsound(const KvVersions *versions)
{
	kv_versions_raise_damaged(&versions->key, versions->number,
							  "An edit has a value that is not possible.");
}

bool
kv_versions_files(const KvVersions *versions, uint32 shard_id, KvFileList *listed)
{
	const KvEdit *edit = edit_before(versions, KV_EDIT_FILES, shard_id, 0);

	if (edit != NULL && !kv_edit_get_files(edit, listed))
		raise_unsound(versions);
	return edit != NULL;
}

bool
kv_versions_mark_before(const KvVersions *versions, uint32 shard_id, int newer, KvMark *mark)
{
	const KvEdit *edit = edit_before(versions, KV_EDIT_MARK, shard_id, newer);

	if (edit != NULL && !kv_edit_get_mark(edit, mark))
		raise_unsound(versions);
	return edit != NULL;
}

bool
kv_versions_mark(const KvVersions *versions, uint32 shard_id, uint32 since, KvMark *mark)
{
	if (!kv_versions_mark_before(versions, shard_id, 0, mark))
		return false;
	if (mark->number > 0 && mark->map_number >= since)
		return true;
	pfree(mark->listed.value_files);
	return false;
}

const KvEdit *
kv_versions_carrying(const KvVersions *versions, uint32 shard_id, uint32 number,
					 uint32 map_number)
{
	const KvEdit *edit;

	/* a backup's copy is set back to an older mark, and an id may have had another shard */
	for (int newer = 0; (edit = edit_before(versions, KV_EDIT_CARRIED, shard_id, newer)) != NULL;
		 newer++)
	{
		KvCarried	carried;

		if (!kv_edit_get_carried(edit, &carried))
			raise_unsound(versions);
		if (carried.number == number && carried.map_number == map_number)
			return edit;
	}
	return NULL;
}

bool
kv_versions_carried(const KvVersions *versions, uint32 shard_id, uint32 number,
					uint32 map_number, KvCarried *carried)
{
	const KvEdit *edit = kv_versions_carrying(versions, shard_id, number, map_number);

	return edit != NULL && kv_edit_get_carried(edit, carried);
}

uint32
kv_versions_marked(const KvVersions *versions, uint32 shard_id)
{
	int			at = shard_id == 0 ? after_newest(versions, KV_EDIT_MARK - 1, KV_NO_SHARD) :
		after_newest(versions, KV_EDIT_MARK, shard_id - 1);

	if (at == versions->nby_shard || versions->edits[versions->by_shard[at]].kind != KV_EDIT_MARK)
		return KV_NO_SHARD;
	return versions->edits[versions->by_shard[at]].shard;
}

/* The map before so many newer ones, palloc'd; NULL: there is none. */
static KvMap *
map_before(const KvVersions *versions, int newer)
{
	for (int i = versions->n - 1; i >= 0; i--)
	{
		KvMap	   *map;

		if (versions->edits[i].kind != KV_EDIT_MAP || newer-- > 0)
			continue;
		if (!kv_edit_get_map(&versions->edits[i], &map))
			raise_unsound(versions);
		return map;
	}
	return NULL;
}

KvMap *
kv_versions_newest_map(const KvVersions *versions)
{
	KvMap	   *map = map_before(versions, 0);

	if (map == NULL)
		raise_unsound(versions);
	return map;
}

/* Have all shards whose bounds have changed a mark since? */
static bool
is_durable(const KvVersions *versions, const KvMap *map)
{
	for (uint32 i = 0; i < map->nshards; i++)
	{
		uint32		since = kv_map_since(map)[i];
		KvMark		mark;

		if (since == 0)
			continue;
		if (!kv_versions_mark(versions, kv_map_shards(map)[i], since, &mark))
			return false;
		pfree(mark.listed.value_files);
	}
	return true;
}

KvMap *
kv_versions_durable_map(const KvVersions *versions)
{
	KvMap	   *map;

	for (int newer = 0; (map = map_before(versions, newer)) != NULL; newer++)
	{
		if (is_durable(versions, map))
			return map;
		pfree(map);
	}
	raise_unsound(versions);
}

/* Add what is carried of each shard in the map. */
static void
add_carried(const KvVersions *versions, const KvMap *map, KvEdit *edits, int *n)
{
	for (uint32 i = 0; i < map->nshards; i++)
	{
		uint32		shard_id = kv_map_shards(map)[i];
		KvMark		mark = {0};
		const KvEdit *edit;

		if (kv_versions_mark(versions, shard_id, 0, &mark))
			pfree(mark.listed.value_files);
		edit = kv_versions_carrying(versions, shard_id, mark.number, mark.map_number);
		if (edit != NULL)
			edits[(*n)++] = *edit;
	}
}

/* Add the newest edit of this kind of each shard in the map. */
static void
add_live(const KvVersions *versions, KvEditKind kind, const KvMap *map, KvEdit *edits, int *n)
{
	for (uint32 i = 0; i < map->nshards; i++)
	{
		const KvEdit *edit = edit_before(versions, kind, kv_map_shards(map)[i], 0);

		if (edit != NULL)
			edits[(*n)++] = *edit;
	}
}

KvEdit *
kv_versions_live(const KvVersions *versions, KvMap *const *maps, int nmaps, bool with_files,
				 int *n)
{
	Size		room = 0;
	KvEdit	   *edits;

	for (int i = 0; i < nmaps; i++)
		room += 1 + 3 * (Size) maps[i]->nshards;
	edits = MemoryContextAllocHuge(CurrentMemoryContext, room * sizeof(KvEdit));
	*n = 0;
	for (int i = 0; i < nmaps; i++)
	{
		add_live(versions, KV_EDIT_MARK, maps[i], edits, n);
		add_carried(versions, maps[i], edits, n);
		if (with_files)
			add_live(versions, KV_EDIT_FILES, maps[i], edits, n);
		edits[(*n)++] = kv_edit_of_map(maps[i]);
	}
	return edits;
}

KvEdit *
kv_versions_all_live(const KvVersions *versions, bool with_files, int *n)
{
	KvMap	   *maps[2] = {kv_versions_durable_map(versions), kv_versions_newest_map(versions)};
	bool		one = maps[0]->number == maps[1]->number;
	KvEdit	   *edits = kv_versions_live(versions, one ? maps + 1 : maps, one ? 1 : 2,
										 with_files, n);

	pfree(maps[0]);
	pfree(maps[1]);
	return edits;
}

/* ---- writing a log ---- */

/* All bytes of a log, palloc'd. */
static char *
make_log(const KvStoreKey *key, uint64 id, uint32 number, const KvEdit *edits, int n, Size *len)
{
	KvEdit		synced = {KV_EDIT_SYNCED, KV_NO_SHARD, 0, NULL};
	Size		size = sizeof(KvVersionsHead) + kv_edit_size(edits, n);
	char	   *bytes;
	KvVersionsHead *head;

	*len = size + sizeof(KvEditRecord);
	bytes = MemoryContextAllocHuge(CurrentMemoryContext, *len);
	head = (KvVersionsHead *) bytes;
	memset(head, 0, sizeof(*head));
	kv_head_make(&head->head, KV_MAGIC_VERSIONS, key, 0);
	head->id = id;
	head->number = number;
	head->crc = kv_crc(head, offsetof(KvVersionsHead, crc));
	head->note = kv_versions_note(number, *len, 0);

	/* it gets its name when it is durable */
	kv_edit_put(bytes + sizeof(KvVersionsHead), edits, n, number, 0,
				sizeof(KvVersionsHead), *len);
	kv_edit_put(bytes + size, &synced, 1, number, 1, size, *len);
	return bytes;
}

void
kv_versions_create(const char *directory, const KvStoreKey *key, uint64 id, const KvMap *map)
{
	KvEdit		edit = kv_edit_of_map(map);
	Size		len;
	char	   *bytes = make_log(key, id, 1, &edit, 1, &len);

	kv_io_replace(psprintf("%s/%08x.versions", directory, 1), bytes, len, true);
	pfree(bytes);
}

uint64
kv_versions_write(const KvStoreKey *key, uint64 id, uint32 number, const KvEdit *edits, int n)
{
	char	   *path = pstrdup(kv_path_versions(key, number));
	Size		len;
	char	   *bytes = make_log(key, id, number, edits, n, &len);

	kv_io_replace(path, bytes, len, true);
	pfree(bytes);
	pfree(path);
	return len;
}

uint64
kv_versions_replace(const KvVersions *versions, uint64 id, const KvEdit *edits, int n)
{
	const KvStoreKey *key = &versions->key;
	uint64		len = kv_versions_write(key, id, versions->number + 1, edits, n);
	uint32		numbers[KV_VERSION_LOGS];
	int			nlogs = kv_versions_numbers(key, numbers);

	for (int i = 0; i < nlogs; i++)
	{
		if (numbers[i] < versions->number)
			(void) kv_io_unlink(kv_path_versions(key, numbers[i]));
	}
	kv_io_sync_directory(kv_path_store(key));
	return len;
}

bool
kv_versions_are_edits(const char *bytes, uint64 len, uint64 offset, uint32 number)
{
	bool		damaged;

	/* offsets in edits are those of the file */
	return walk(bytes - offset, offset + len, offset, number, true, &damaged, NULL, NULL) ==
		offset + len;
}

void
kv_versions_check(const KvStoreKey *key, uint64 id, KvProblemCallback report, void *arg)
{
	uint32		numbers[KV_VERSION_LOGS];
	int			n = kv_versions_numbers(key, numbers);

	for (int i = 0; i < n; i++)
	{
		char	   *path = pstrdup(kv_path_versions(key, numbers[i]));
		Size		len;
		char	   *bytes = kv_io_slurp(path, &len);
		const char *problem;
		KvVersionsNote note;
		uint64		end;
		bool		damaged;

		if (bytes == NULL)
			continue;			/* replaced since */
		problem = head_problem(path, bytes, len, key, id, numbers[i]);
		if (problem != NULL)
		{
			report(arg, path, 0, problem);
			continue;
		}
		end = walk(bytes, len, sizeof(KvVersionsHead), numbers[i], false, &damaged, NULL, NULL);
		note = read_note(bytes, numbers[i]);

		/* while the log is in use the note may be newer than the length that was read */
		if (damaged || (end < note.synced && note.synced <= len))
			report(arg, path, end, "edit is damaged");
		pfree(bytes);
		pfree(path);
	}
}
