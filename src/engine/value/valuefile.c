/*
 * valuefile.c
 *		Value files: append-only, written O_DIRECT, and never mapped (I 5).
 *
 * A value's CRC covers its bytes, its key, its store and its location (I 4),
 * so a stale, moved or misdirected block never passes for a live one.
 */
#include "postgres.h"

#include "utils/hsearch.h"
#include "utils/memutils.h"

#include "clock.h"
#include "engine/base/hash.h"
#include "engine/base/shared.h"
#include "engine/base/types.h"
#include "engine/format/format.h"
#include "engine/format/path.h"
#include "engine/io/fault.h"
#include "engine/io/io.h"
#include "engine/value/value.h"

#define KV_SHORT_VALUE	200		/* bytes; kv_crc_add is quicker for longer ones */
#define KV_OPEN_FILES	2048
#define LOOK_US			USECS_PER_SEC	/* time between checks for removed files */

/* The store's key is not part of it: a generation's number may be used again. */
typedef struct KvFileKey
{
	uint32		opening;		/* KvStore.cache_id */
	uint32		cached;			/* through the page cache */
	KvFileId	file;
} KvFileKey;

typedef struct KvOpenFile
{
	KvFileKey	key;
	File		file;
} KvOpenFile;

static HTAB *open_files = NULL;

/* Files whose path was removed.  Not closed at once: a request may be in flight. */
static List *gone_files = NIL;

static uint32 gone_seen = 0;	/* KvBase.values_gone at the last check */
static TimestampTz gone_looked = 0; /* when that was; 0: check at once */

uint32
kv_value_crc_begin(const KvStoreKey *store, KvKey key, const char *value, Size len)
{
	return kv_value_crc_key(kv_value_crc_add(kv_value_crc_start(), value, len), store, key);
}

uint32
kv_value_crc_start(void)
{
	pg_crc32c	crc;

	INIT_CRC32C(crc);
	return crc;
}

uint32
kv_value_crc_add(uint32 crc, const char *bytes, Size len)
{
	return kv_crc_add(crc, bytes, len);
}

uint32
kv_value_crc_key(uint32 crc, const KvStoreKey *store, KvKey key)
{
	COMP_CRC32C(crc, store, sizeof(*store));
	COMP_CRC32C(crc, key.data, key.len);
	return crc;
}

uint32
kv_value_crc_finish(uint32 crc, KvLocation location, uint32 len)
{
	COMP_CRC32C(crc, &location, sizeof(location));
	COMP_CRC32C(crc, &len, sizeof(len));
	FIN_CRC32C(crc);
	return crc;
}

/*
 * A CRC is linear: two messages that differ in the location only have CRCs that differ as much as
 * those of the locations, with whatever before them.
 */
uint32
kv_value_crc_moved(uint32 crc, KvLocation from, KvLocation to, uint32 len)
{
	return crc ^ kv_value_crc_finish(0, from, len) ^ kv_value_crc_finish(0, to, len);
}

bool
kv_value_matches(const KvStoreKey *store, KvKey key, const char *value,
				 const KvVersion *version)
{
	const KvPiece pieces[] = {
		{value, version->len}, {store, sizeof(*store)}, {key.data, key.len},
		{&version->location, sizeof(version->location)}, {&version->len, sizeof(version->len)}
	};
	pg_crc32c	crc;

	/* as kv_value_crc_begin and kv_value_crc_finish, in one call */
	INIT_CRC32C(crc);
	crc = version->len <= KV_SHORT_VALUE ? kv_crc_pieces(crc, pieces, lengthof(pieces)) :
		kv_crc_pieces(kv_crc_add(crc, value, version->len), pieces + 1, lengthof(pieces) - 1);
	FIN_CRC32C(crc);
	return crc == version->crc;
}

const char *
kv_value_problem(const KvStoreKey *store, uint32 opening, KvKey key, const KvVersion *version,
				 int *err)
{
	KvAddress	address = KV_LOCATION_ADDRESS(version->location);
	uint64		offset = kv_offset_of(address);
	uint64		start = TYPEALIGN_DOWN(KV_BLOCK, offset);
	Size		len = TYPEALIGN(KV_BLOCK, offset - start + version->len);
	char       *buffer = kv_io_buffer(KV_IO_BUFFER_CHECK, len);

	*err = 0;
	if (version->len > 0)
	{
		File		file;
		int			got;

		kv_value_trim();
		file = kv_value_file(store, opening, kv_file_of(address), KV_IO_MISSING_OK);
		if (file < 0)
			return "file is missing";
		got = kv_io_try_read(file, buffer, len, start, KV_IO_VALUE_READ);
		*err = Max(-got, 0);
		if (got < (int) (offset - start + version->len))
			return *err != 0 ? "value could not be read" : "value is truncated";
	}
	return kv_value_matches(store, key, buffer + (offset - start), version) ? NULL :
		"value does not match its checksum";
}

bool
kv_value_verify(const KvStoreKey *store, KvKey key, const char *value,
				const KvVersion *version, int level)
{
	char		hex[2 * 32 + 1];
	int			shown = Min(key.len, 32);

	if (kv_value_matches(store, key, value, version))
		return true;
	for (int i = 0; i < shown; i++)
		snprintf(hex + 2 * i, 3, "%02x", key.data[i]);
	hex[2 * shown] = '\0';
	ereport(level,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("value does not match its checksum in file \"%s\"",
					kv_path_value(store, kv_file_of(KV_LOCATION_ADDRESS(version->location)))),
			 errdetail("The value has %u bytes at offset %llu; its encoded key is \\x%s%s.",
					   version->len,
					   (unsigned long long) kv_offset_of(KV_LOCATION_ADDRESS(version->location)),
					   hex, shown < key.len ? "..." : ""),
			 errhint("Run kvfdw_check() for the table to list every damaged value.")));
	return false;
}

static void
forget(KvOpenFile *entry)
{
	kv_io_close(entry->file);
	hash_search(open_files, &entry->key, HASH_REMOVE, NULL);
}

static void
set_aside(KvOpenFile *entry)
{
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);

	gone_files = lappend_int(gone_files, entry->file);
	hash_search(open_files, &entry->key, HASH_REMOVE, NULL);
	MemoryContextSwitchTo(old);
}

static void
close_gone(void)
{
	ListCell   *cell;

	foreach(cell, gone_files)
		kv_io_close(lfirst_int(cell));
	list_free(gone_files);
	gone_files = NIL;
}

/* ---- files that were removed ---- */

void
kv_value_say_gone(void)
{
	pg_atomic_fetch_add_u32(&kv_base->values_gone, 1);
	gone_looked = 0;			/* many of them may be open here */
}

void
kv_value_let_go(void)
{
	uint32		gone;
	HASH_SEQ_STATUS status;
	KvOpenFile *entry;
	TimestampTz now;

	if (kv_base == NULL)
		return;					/* the library is not preloaded */
	gone = pg_atomic_read_u32(&kv_base->values_gone);
	if (gone_seen == gone || kv_io_writes_in_flight() > 0)
		return;
	now = kv_clock();
	if (gone_looked != 0 && now - gone_looked < LOOK_US)
		return;
	gone_looked = now;
	gone_seen = gone;
	pg_read_barrier();
	close_gone();
	if (open_files == NULL)
		return;
	hash_seq_init(&status, open_files);
	while ((entry = hash_seq_search(&status)) != NULL)
	{
		if (!kv_io_has_name(entry->file))
			forget(entry);
	}
}

void
kv_value_trim(void)
{
	HASH_SEQ_STATUS status;
	KvOpenFile *entry;

	close_gone();
	if (open_files == NULL || hash_get_num_entries(open_files) < KV_OPEN_FILES)
		return;
	hash_seq_init(&status, open_files);
	while ((entry = hash_seq_search(&status)) != NULL)
		forget(entry);
}

File
kv_value_make(const KvStoreKey *store, KvFileId id, KvIoKind kind)
{
	for (;;)
	{
		char		path[MAXPGPATH];
		File		file;

		strlcpy(path, kv_path_value(store, id), sizeof(path));
		KV_STOP_POINT("value_make");
		file = kv_io_open(path, KV_IO_DIRECT | KV_IO_CREATE | KV_IO_MISSING_OK, kind);
		if (file >= 0)
			return file;

		/* the store has left this directory in the meantime */
		if (strcmp(path, kv_path_value(store, id)) == 0)
			kv_io_error(ERROR, ENOENT, path, "create");
	}
}

static File
open_file(const KvStoreKey *store, uint32 opening, KvFileId id, bool cached, int flags)
{
	KvFileKey	key = {opening, cached, id};
	KvOpenFile *entry;
	bool		found;
	File		file;

	if (open_files == NULL)
		open_files = kv_hash_create("kvfdw value files", sizeof(KvFileKey), sizeof(KvOpenFile),
									TopMemoryContext);
	Assert(opening != 0);
	entry = hash_search(open_files, &key, HASH_FIND, NULL);
	if (entry != NULL && !kv_io_is_gone(entry->file))
		return entry->file;
	if (entry != NULL)
		set_aside(entry);

	if (flags & KV_IO_CREATE)
		file = kv_value_make(store, id, KV_IO_VALUE_READ);
	else
		file = kv_io_open(kv_path_value(store, id), flags, KV_IO_VALUE_READ);
	if (file < 0)
		return file;
	entry = hash_search(open_files, &key, HASH_ENTER, &found);
	entry->file = file;
	return file;
}

File
kv_value_file(const KvStoreKey *store, uint32 opening, KvFileId id, int flags)
{
	return open_file(store, opening, id, false, KV_IO_DIRECT | flags);
}

File
kv_value_cached_file(const KvStoreKey *store, uint32 opening, KvFileId id)
{
	return open_file(store, opening, id, true, KV_IO_READONLY | KV_IO_MISSING_OK | KV_IO_FAIL_OK);
}

void
kv_value_forget(uint32 opening)
{
	HASH_SEQ_STATUS status;
	KvOpenFile *entry;

	close_gone();
	if (open_files == NULL)
		return;
	hash_seq_init(&status, open_files);
	while ((entry = hash_seq_search(&status)) != NULL)
	{
		if (entry->key.opening == opening)
			forget(entry);
	}
}
