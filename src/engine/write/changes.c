/*
 * changes.c
 *		How many rows of a store were changed since it was last analyzed.
 *
 * As PostgreSQL's statistics have it for heap, changes count when their transaction
 * commits; one that prepares counts then.  Until then they are in this process, a few
 * stores at a time; what is beyond that counts at once.
 *
 * A store stays while a transaction that has written to it holds the lock on its
 * table.  If it is the transaction's own it goes after its changes were counted, and
 * with its subtransaction after they were forgotten.
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
	SubTransactionId subid;		/* that changed it first */
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
			pg_atomic_fetch_add_u64(&store->changes, 1);
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
		pg_atomic_fetch_add_u64(&pending[i].store->changes, pending[i].n);
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
