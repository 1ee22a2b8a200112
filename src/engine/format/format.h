/*
 * format.h
 *		Bytes on disk: docs/internals/format.md as types.
 *
 * The table file, and key logs; version/ has the version log, path.h the names of files.
 *
 * Locks:  none; this module knows no shared memory.  Errors: a missing or damaged file is an
 * ERROR (XX001) that names it, unless a function says otherwise.
 */
#ifndef KV_FORMAT_H
#define KV_FORMAT_H

#include "lib/stringinfo.h"
#include "nodes/pg_list.h"

#include "engine/base/types.h"

#define KV_MAGIC_TABLE		0x4b565442	/* "KVTB" */
#define KV_MAGIC_LOG		0x4b564c47	/* "KVLG" */
#define KV_MAGIC_BATCH		0x4b564c42	/* "KVLB" */

/* The kinds of edits in a version log (version/version.h). */
typedef enum KvEditKind
{
	KV_EDIT_MAP = 1,
	KV_EDIT_FILES,
	KV_EDIT_MARK,
	KV_EDIT_CARRIED,
	KV_EDIT_SYNCED
} KvEditKind;

/* The beginning of an edit; its body follows. */
typedef struct KvEditRecord
{
	uint32		magic;
	uint32		crc;			/* of the log's number, of all fields after it, and of the body */
	uint32		len;			/* of the body */
	uint32		kind;			/* KvEditKind */
	uint32		shard;
	uint32		append;			/* never falls: bytes of an append that failed are older */
	uint64		rest;			/* bytes of the append from here on: they count together */
	uint64		offset;			/* in the file */
	uint64		synced;			/* the log was durable up to here when it was written */
} KvEditRecord;

StaticAssertDecl(sizeof(KvEditRecord) == 48, "edit record size");

#define KV_VERSIONS_HEAD	64	/* bytes of a version log before its edits */

/* The beginning of the files of a store. */
typedef struct KvFileHead
{
	uint32		magic;
	uint32		format_version;
	uint64		directory_id;
	KvStoreKey	store;
	uint32		shard;			/* in the table file: the number of shards */
} KvFileHead;

StaticAssertDecl(sizeof(KvFileHead) == 32, "file head size");

/* One index entry in a write buffer and in the key log; 8-byte aligned. */
typedef struct KvLogEntry
{
	uint32		crc;			/* seeded with the write buffer's sequence; stored last */
	uint16		keylen;
	uint8		kind;			/* KvVersionKind */
	uint8		pad;
	uint64		xid;
	KvLocation	location;
	uint32		len;
	uint32		value_crc;
	uint32		cid;
	uint32		pad2;
	/* followed by the key's bytes, zero-padded to 8 */
} KvLogEntry;

StaticAssertDecl(sizeof(KvLogEntry) == 40, "log entry size");

#define KV_LOG_ENTRY_SIZE(keylen)	(sizeof(KvLogEntry) + TYPEALIGN(8, keylen))

/* The version of an entry; its status is not known. */
static inline KvVersion
kv_entry_version(const KvLogEntry *entry)
{
	KvVersion	version = {0};

	version.xid = entry->xid;
	version.location = entry->location;
	version.len = entry->len;
	version.crc = entry->value_crc;
	version.cid = entry->cid;
	version.kind = entry->kind;
	return version;
}

static inline KvKey
kv_entry_key(const KvLogEntry *entry)
{
	KvKey		key = {(const uint8 *) (entry + 1), entry->keylen};

	return key;
}

/* The head of the batch that one sealed write buffer adds to the key log. */
typedef struct KvLogBatch
{
	uint32		magic;
	uint32		crc;			/* of the rest of the head, and the entries */
	uint64		sequence;
	KvStoreKey	store;
	uint32		shard;
	uint32		log_number;
	uint32		incarnation;
	uint32		nentries;
	uint32		entry_bytes;
	uint64		log_offset;
	uint64		pad;
} KvLogBatch;

StaticAssertDecl(sizeof(KvLogBatch) == 64, "log batch size");

typedef struct KvLogHeader
{
	KvFileHead	head;
	uint32		number;
	uint32		crc;
	uint8		pad[64 - 40];
} KvLogHeader;

StaticAssertDecl(sizeof(KvLogHeader) == 64, "log header size");

/*
 * Which shard has which keys?  The head is followed by the shards' ids, for each of them the
 * number of the map that has last changed its bounds, offsets and the bytes of bounds.
 */
typedef struct KvMap
{
	uint32		number;			/* 0: the store was created with it */
	uint32		nshards;
	uint32		next_shard_id;	/* greater than the id of any shard so far */
	uint32		bytes;			/* of the whole struct */
	uint32		data[FLEXIBLE_ARRAY_MEMBER];	/* shard[nshards], since[nshards],
												 * offset[nshards + 1], bytes */
} KvMap;

/* The shards' ids, in key order. */
static inline const uint32 *
kv_map_shards(const KvMap *map)
{
	return map->data;
}

/* For each the number of the map that has last changed its bounds. */
static inline const uint32 *
kv_map_since(const KvMap *map)
{
	return map->data + map->nshards;
}

/* The beginning of a shard's range, by its position; that of the first one is empty. */
static inline KvKey
kv_map_bound(const KvMap *map, uint32 position)
{
	const uint32 *offsets = map->data + 2 * map->nshards;
	const uint8 *bytes = (const uint8 *) (offsets + map->nshards + 1);
	KvKey		bound = {bytes + offsets[position], offsets[position + 1] - offsets[position]};

	return bound;
}

/* Runs and logs of a shard; part of an edit of the version log. */
typedef struct KvShardFiles
{
	uint32		base_run;		/* run numbers; 0: none */
	uint32		nunfrozen;
	uint32		unfrozen[KV_MAX_UNFROZEN];	/* newest first */
	uint32		next_run;
	uint32		first_log;		/* logs from here on are not covered by runs */
	uint32		flags;
	uint32		lost;			/* with SALVAGE: entries that were lost completely */
	uint64		frozen_keys;	/* entries of the base run */
	uint64		unfrozen_entries;
	uint64		oldest_xid;		/* of a version in an unfrozen run, or 0 */
} KvShardFiles;

StaticAssertDecl(sizeof(KvShardFiles) == 96, "size of runs and logs in an edit");

/*
 * KvShardFiles.flags: values after the used part of value files may be damaged, and so may
 * logs.
 */
#define KV_FILES_SALVAGE	1

/* A value file of a shard, as edits of the version log list it. */
typedef struct KvValueFile
{
	KvAddress	address;		/* of its first byte */
	uint64		used;			/* bytes that have or had a value, or may have got one */
	uint64		live;			/* of these, bytes that the runs name; KV_NOT_KNOWN */
	uint32		last_log;		/* no entry of a later log names it */
	uint16		flags;
	uint16		order;			/* of the compaction job that has created it; 0: none */
} KvValueFile;

StaticAssertDecl(sizeof(KvValueFile) == 32, "value file size");

#define KV_NOT_KNOWN		PG_UINT64_MAX

/* KvValueFile.flags */
#define KV_VALUE_FILE_SHARED		0x0001 /* other shards may list it */
#define KV_VALUE_FILE_SORTED		0x0002 /* values are in key order, or stretches of it */
#define KV_VALUE_FILE_ON_DISK	0x00ff /* flags that edits have */
#define KV_VALUE_FILE_SYNCED		0x0100 /* it will not change any more, and is durable */
#define KV_VALUE_FILE_NAMED		0x0200 /* its name is durable */
#define KV_VALUE_FILE_DAMAGED	0x0800 /* a value in it cannot be moved; that was logged */
#define KV_VALUE_FILE_INPUT		0x0400 /* a compaction input: it leaves the list once no entry
									    * names it */
#define KV_VALUE_FILE_UNCERTAIN	0x1000	/* some bytes that count as live may be dead */

/* The files of a shard, as an edit of the version log has them. */
typedef struct KvFileList
{
	KvShardFiles files;
	uint32		job;			/* the last one that has put values in order; 0: none */
	KvAddress	next_address;	/* of the next value file; 0: in a new volume */
	KvAddress	open_address;	/* of the value file that takes new values; 0: none */
	int			nvalue_files;
	KvValueFile *value_files;	/* by address, palloc'd */
} KvFileList;

/* Called for every entry that recovery reads, in order. */
typedef void (*KvApplyEntry) (void *arg, const KvLogEntry *entry, uint32 incarnation);

/* ---- path.c ---- */
/*
 * ERROR 0A000, which names the file and both versions, unless the file has the format version
 * that this library reads.
 */
extern void kv_format_require(const char *path, uint32 has, uint32 reads);
/* Fill in a head, for this directory.  shard: see KvFileHead. */
extern void kv_head_make(KvFileHead *head, uint32 magic, const KvStoreKey *key, uint32 shard);
/* Does the head belong to this directory, store and shard? */
extern bool kv_head_is_of(const KvFileHead *head, const KvStoreKey *key, uint32 shard);

/* ---- keylog.c ---- */
/*
 * Write a batch and the entries after it at the offset that its write buffer reserved; sets its
 * CRC.  The first batch is written with the log's header.  May be repeated.  Returns 0 or an
 * errno; a log that cannot be opened or created is an ERROR.
 */
extern int	kv_log_append(const KvStoreKey *key, uint32 shard, uint32 number,
						  uint64 offset, KvLogBatch *batch);
/* The CRC of an entry in a write buffer with this sequence. */
extern uint32 kv_log_entry_crc(const KvLogEntry *entry, uint64 sequence);
/* Create a log with its header only, whole or not at all; an existing one is left unchanged. */
extern void kv_log_create(const KvStoreKey *key, uint32 shard, uint32 number);
/* Create a log with its header only, or replace an existing one by that. */
extern void kv_log_make_empty(const KvStoreKey *key, uint32 shard, uint32 number);
/*
 * Verify a log that was just synced, through the descriptor that was open before the sync: the
 * bytes from one offset, 0 or where a batch begins, to another, or to its end if that is 0.  The
 * kernel may have failed to write pages, and have forgotten that with the file if no process had
 * it open.  ERROR, or PANIC if data_sync_retry is off, if the bytes have changed.  Other
 * processes may append after the end.  Serves interrupts between batches.
 */
extern void kv_log_verify(const KvStoreKey *key, uint32 shard, uint32 number, uint64 from,
						  uint64 end);
/*
 * Pass every entry of a log to apply, in order, and return where the log ends.  ERROR if the
 * log has another format version (0A000), if anything in it is damaged, if it is missing and
 * required, or if end is not 0 and the log does not end there.  Serves interrupts between
 * batches.
 */
extern uint64 kv_log_replay(const KvStoreKey *key, uint32 shard, uint32 number, bool required,
							uint64 end, KvApplyEntry apply, void *arg);
/*
 * The same for a log of which any part may be missing: skips invalid parts, and adds their
 * bytes to *lost.  Returns an offset after all of it.
 */
extern uint64 kv_log_salvage(const KvStoreKey *key, uint32 shard, uint32 number,
							 KvApplyEntry apply, void *arg, uint64 *lost);
/* How many entries has a log?  Approximate for its invalid parts.  Also in the postmaster. */
extern uint64 kv_log_entries(const KvStoreKey *key, uint32 shard, uint32 number);
/* Report the first damage of a log to which no process appends; false if it is missing. */
extern bool kv_log_check(const KvStoreKey *key, uint32 shard, uint32 number,
						 KvProblemCallback report, void *arg);

/* ---- tablefile.c ---- */
/*
 * Replace a store's table file, atomically and durably.  Once the store is in use the caller
 * holds the registry's lock, exclusive.
 */
extern void kv_table_file_write(const KvStoreKey *key, const KvStoreShape *shape,
								const char *schema, int schema_len,
								uint32 schema_incarnation);
/* Write the table file of a new store, whose directory has this path.  Durable. */
extern void kv_table_file_create(const char *directory, const KvStoreKey *key,
								 const KvStoreShape *shape);
/*
 * Read the table file into *shape; append the schema image to *schema and set the incarnation
 * that wrote it, unless these are NULL.  False if there is no such file.  ERROR 0A000 if it has
 * another format version.
 */
extern bool kv_table_file_read(const KvStoreKey *key, KvStoreShape *shape, StringInfo schema,
							   uint32 *schema_incarnation);
/* Where a store's value files are, as in its table file. */
typedef struct KvWhere
{
	Oid			tablespace;		/* where they are created; InvalidOid: in its own directory */
	uint64		id;				/* of the store */
	bool		moved;	/* others may be in its own directory, and in the tablespaces of leaving */
	int			nleaving;
	Oid			leaving[KV_MAX_LEAVING];	/* tablespaces that value files are leaving */
	bool		logged;			/* the store is at another level than none */
} KvWhere;

/*
 * Read these fields.  All are 0 if there is no such store.  False: the file cannot be read.
 * Never raises or allocates; the file's checksum is not verified.
 */
extern bool kv_table_file_peek(const KvStoreKey *key, KvWhere *where);
/* As kv_table_file_read; ERROR if there is none. */
extern void kv_table_file_require(const KvStoreKey *key, KvStoreShape *shape,
								  StringInfo schema, uint32 *schema_incarnation);
/*
 * Allow maps after the first from now on; durable.  If the store is in shared memory the caller
 * holds the registry's lock, exclusive.
 */
extern void kv_table_file_allow_maps(const KvStoreKey *key);
/*
 * Which store has this table file?  False if it is missing, damaged or without an id.  wal may
 * be NULL.
 */
extern bool kv_table_file_identify(const char *path, KvStoreKey *key, uint64 *id,
								   KvWalLevel *wal);
/* From now on every use of the store is an ERROR with this SQLSTATE and text; durable. */
extern void kv_store_mark_unusable(const KvStoreKey *key, int sqlerrcode, const char *why);
/* The same, because at this wal level its values are not in the WAL. */
extern void kv_store_mark_not_logged(const KvStoreKey *key, KvWalLevel level);
/*
 * The SQLSTATE and text with which it was marked; *not_logged: by kv_store_mark_not_logged.
 * The text must not be pfreed.
 */
extern char *kv_store_why_unusable(const KvStoreKey *key, int *sqlerrcode, bool *not_logged);

#endif							/* KV_FORMAT_H */
