/*
 * internal.h
 *		Shared by the files of the version log.
 */
#ifndef KV_VERSION_INTERNAL_H
#define KV_VERSION_INTERNAL_H

#include "engine/version/version.h"

#define KV_MAGIC_VERSIONS	0x4b565653	/* "KVVS" */
#define KV_MAGIC_EDIT		0x4b564544	/* "KVED" */

/* Logs of one store at a time: the newest, the one before, and what a crash has left. */
#define KV_VERSION_LOGS		8

/*
 * A note in the head of a log, which is written again after each sync.  It tells of edits that are
 * missing at the end, and of a log that is missing.  It is not synced, so it may be older.
 */
typedef struct KvVersionsNote
{
	uint64		synced;			/* the log was durable up to here */
	uint32		next;			/* number of the log that has replaced it, or 0 */
	uint32		crc;			/* of the log's number, and of all before it */
} KvVersionsNote;

StaticAssertDecl(sizeof(KvVersionsNote) == 16, "version log note size");

#define KV_VERSIONS_NOTE_AT	48	/* offset in the file */

/* ---- log.c ---- */
/* The path of a log.  Lasts and behaves as the paths of format/path.c. */
extern const char *kv_path_versions(const KvStoreKey *key, uint32 number);
/* The numbers of a store's logs, the greatest first. */
extern int	kv_versions_numbers(const KvStoreKey *key, uint32 numbers[KV_VERSION_LOGS]);
/* The note of a log with this number. */
extern KvVersionsNote kv_versions_note(uint32 number, uint64 synced, uint32 next);
/* Bytes of these edits in the file. */
extern Size kv_edit_size(const KvEdit *edits, int n);
/* Make these bytes of an append, for a log with this number, from an offset on. */
extern void kv_edit_put(char *into, const KvEdit *edits, int n, uint32 number, uint32 append,
						uint64 offset, uint64 synced);
/* Are these bytes of a log, from an offset on, edits up to their end? */
extern bool kv_versions_are_edits(const char *bytes, uint64 len, uint64 offset, uint32 number);
/* Write a whole log under its name; durable on return.  Returns its length. */
extern uint64 kv_versions_write(const KvStoreKey *key, uint64 id, uint32 number,
								const KvEdit *edits, int n);

#endif							/* KV_VERSION_INTERNAL_H */
