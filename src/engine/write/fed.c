/*
 * fed.c
 *		The stores whose changes this transaction passes to logical decoding.
 *
 * The flag belongs to the transaction, not to the store: a transaction that sets the option
 * may be rolled back.  Rewritten rows are no changes, so their store has no flag.
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "engine/change.h"
#include "engine/write/internal.h"

static const KvStore **fed = NULL;	/* ascending */
static int	nfed = 0;
static int	room = 0;

/* Where the store is among those that are fed, or belongs. */
static int
find(const KvStore *store)
{
	int			low = 0;
	int			high = nfed;

	while (low < high)
	{
		int			middle = (low + high) / 2;

		if (fed[middle] < store)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

bool
kv_is_fed(const KvStore *store)
{
	int			at;

	if (likely(nfed == 0))
		return false;
	at = find(store);
	return at < nfed && fed[at] == store;
}

void
kv_store_feed(KvStore *store, bool on)
{
	int			at;

	if (kv_is_fed(store) == on)
		return;
	at = find(store);
	if (!on)
	{
		memmove(&fed[at], &fed[at + 1], sizeof(*fed) * (nfed - at - 1));
		nfed--;
		return;
	}
	if (nfed == room)
	{
		int			more = Max(8, 2 * room);

		fed = room == 0 ? MemoryContextAlloc(TopMemoryContext, sizeof(*fed) * more) :
			repalloc(fed, sizeof(*fed) * more);
		room = more;
	}
	memmove(&fed[at + 1], &fed[at], sizeof(*fed) * (nfed - at));
	fed[at] = store;
	nfed++;
}

void
kv_fed_forget(void)
{
	nfed = 0;
}
