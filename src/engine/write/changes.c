/*
 * changes.c
 *		Counts changed rows of a store since it was last analyzed.
 *
 * As in PostgreSQL's statistics for heap, changes count when their transaction commits, or is
 * prepared.  Until then they are in this process, for a few stores at a time; changes of
 * further stores count at once.
 *
 * A store exists while a transaction that has written to it holds the lock on its table.  A
 * store that the transaction itself has created is removed after its changes were counted, and
 * with its subtransaction after they were dropped.
 */
#include "postgres.h"

#include "access/xact.h"

#include "engine/engine.h"
#include "engine/shard/shard.h"
#include "engine/write/internal.h"

#define MAX_PENDING	32

typedef struct Pending
{
	KvStore    *store;
	SubTransactionId subid;		/* the first one that changed it */
	uint64		n;
} Pending;

static Pending pending[MAX_PENDING];
static int	npending = 0;

void
kv_note_change(KvStore *store)
{
	int			i = npending - 1;

	while (i >= 0 && pending[i].store != store)
		i--;
	if (unlikely(i < 0))
	{
		if (npending == MAX_PENDING)
		{
			pg_atomic_fetch_add_u64(&store->statistics.changes, 1);
			return;
		}
		i = npending++;
		pending[i].store = store;
		pending[i].subid = GetCurrentSubTransactionId();
		pending[i].n = 0;
	}
	pending[i].n++;
}

void
kv_changes_at_end(bool commit)
{
	for (int i = 0; commit && i < npending; i++)
		pg_atomic_fetch_add_u64(&pending[i].store->statistics.changes, pending[i].n);
	npending = 0;
}

/* Subtransactions have ascending numbers. */
void
kv_changes_at_subxact_abort(SubTransactionId subid)
{
	int			kept = 0;

	for (int i = 0; i < npending; i++)
	{
		if (pending[i].subid < subid)
			pending[kept++] = pending[i];
	}
	npending = kept;
}
