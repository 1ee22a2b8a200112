/*
 * get.c
 *		Gets rows by key for a caller that serves many requests at once (memcached).
 *
 * Values in memory come first, the others in one batch of reads.  A value that cannot be read is a
 * problem of its row only.
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"

#include "engine/base/key.h"
#include "engine/engine.h"
#include "engine/scan/internal.h"
#include "engine/shard/shard.h"

static void
begin_look(KvScan *scan, KvStore *store, Snapshot snapshot, int n)
{
	memset(scan, 0, sizeof(KvScan));
	scan->store = store;
	scan->view.snapshot = snapshot;
	scan->want_values = scan->points = scan->forgiving = true;
	scan->context = scan->batch_context = CurrentMemoryContext;
	kv_batch_make_rows(scan, n);
}

/* Sets the status of a get from its row: found, failed, or not yet read. */
static void
take_row(KvGet *get, const KvBatchRow *row)
{
	get->problem = row->problem;
	get->row.value = row->value;
	get->status = row->problem != 0 ? KV_GET_FAILED :
		row->value == NULL ? KV_GET_UNREAD : KV_GET_FOUND;
}

/*
 * Finds the rows of the next gets, at most n, and adds them to the scan's.  Returns the number of
 * gets done.
 */
static int
find_rows(KvScan *scan, KvGet *gets, int n, Size *bytes)
{
	KvBatchRow *rows = &scan->rows[scan->nrows];
	KvKey		keys[KV_FOUND_TOGETHER];
	bool		found[KV_FOUND_TOGETHER];
	int			nkeys = 0;
	int			done;
	int			next = 0;

	CHECK_FOR_INTERRUPTS();
	for (int i = 0; i < n; i++)
	{
		if (!gets[i].passed)
			keys[nkeys++] = gets[i].key;
	}
	kv_batch_find_points(scan, keys, nkeys, rows, found);
	for (done = 0; done < n && *bytes > 0; done++)
	{
		KvGet      *get = &gets[done];
		const KvBatchRow *row = &rows[next];

		get->status = KV_GET_NONE;
		get->problem = 0;
		if (get->passed || !found[next++])
			continue;
		get->status = KV_GET_UNREAD;
		get->version = row->version;
		get->row = (KvRow) {
			.key = get->key.data, .keylen = get->key.len,
			.form = KV_LOCATION_FORM(row->version.location), .len = row->version.len
		};
		*bytes -= Min(*bytes, row->version.len);
		if (&scan->rows[scan->nrows] != row)
			scan->rows[scan->nrows] = *row;
		scan->nrows++;
	}
	return done;
}

int
kv_get(KvStore *store, Snapshot snapshot, KvGet *gets, int n, Size *bytes)
{
	KvScan		scan;
	int			done = 0;

	if (n == 0)
		return 0;
	begin_look(&scan, store, snapshot, n);
	while (done < n && *bytes > 0)
		done += find_rows(&scan, &gets[done], Min(n - done, KV_FOUND_TOGETHER), bytes);
	kv_batch_fetch_near(&scan);
	for (int i = 0, row = 0; i < done; i++)
	{
		if (gets[i].status != KV_GET_NONE)
			take_row(&gets[i], &scan.rows[row++]);
	}
	pfree(scan.rows);
	kv_stat_add(store, KV_COUNT_POINT_READS, done);
	kv_stat_add(store, KV_COUNT_ROWS_READ, scan.nrows);
	return done;
}

void
kv_get_read(KvStore *store, KvGet *gets, int n)
{
	KvScan		scan;

	if (n == 0)
		return;
	begin_look(&scan, store, NULL, n);
	for (int i = 0; i < n; i++)
	{
		if (gets[i].status == KV_GET_UNREAD)
			scan.rows[scan.nrows++] = (KvBatchRow) {
				.version = gets[i].version, .key = gets[i].key.data,
				.keylen = gets[i].key.len, .present = true
			};
	}
	if (scan.nrows > 0)
		(void) kv_batch_fetch(&scan);
	for (int i = 0, row = 0; i < n; i++)
	{
		if (gets[i].status == KV_GET_UNREAD)
		{
			/* the value may have moved */
			gets[i].version = scan.rows[row].version;
			take_row(&gets[i], &scan.rows[row++]);
		}
	}
	pfree(scan.rows);
}
