/*
 * batch.h
 *		What batch.c and fetch.c share; nobody else includes this.
 */
#ifndef KV_BATCH_H
#define KV_BATCH_H

#include "engine/internal.h"

#define KV_BATCH_BYTES		((Size) 4 * 1024 * 1024)

/* One row of a batch. */
typedef struct KvBatchRow
{
	KvVersion	version;
	int			keylen;
	const uint8 *key;
	const char *value;			/* NULL: not read yet */
	bool		present;
} KvBatchRow;

struct KvScan
{
	KvStore    *store;
	Snapshot	snapshot;
	bool		want_values;
	MemoryContext context;		/* the scan's life */
	MemoryContext batch_context;	/* one batch's keys and values */
	KvScanStats stats;
	KvConflicts conflicts;		/* xids NULL: not SERIALIZABLE */

	/* range mode */
	KvKey		lo;				/* copies; data NULL: unbounded */
	KvKey		hi;
	bool		backward;
	uint32		shardno;		/* where the next batch begins */
	bool		at_end;
	bool		started;
	KvKey		position;		/* the last key returned */
	uint8		position_bytes[KV_MAX_KEY];
	int			batch_rows;

	/* points mode */
	bool		points;
	KvKey	   *keys;
	int			nkeys;
	int			next_key;

	KvBatchRow *rows;			/* room for batch_rows */
	int			rows_room;
	int			nrows;
	int			next_row;
	Size		batch_bytes;
};

extern char *kv_batch_copy_from_slot(KvScan *scan, const KvShard *shard,
									 const KvVersion *version);
extern void kv_batch_fetch(KvScan *scan);

#endif							/* KV_BATCH_H */
