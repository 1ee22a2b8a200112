/*
 * dying.c
 *		Bytes that have died in a shard, until no snapshot sees them any more.
 *
 * A replaced value is dead at once for new snapshots.  An older snapshot may see it, and while the
 * transaction that has replaced it is open the value is not dead at all.  A compaction can reclaim
 * it only when no such snapshot is left, so until then no writer should wait for a compaction.
 *
 * Bytes are noted in the order of time, and divided into parts.  Each part knows the latest of its
 * transactions.  A few parts suffice: when there is no capacity for one more, the parts that no
 * snapshot sees are dropped.  If there are none, the two neighbors with the least bytes are joined.
 */
#include "postgres.h"

#include "engine/base/types.h"
#include "engine/shard/shard.h"
#include "engine/shard/valuefiles.h"

#define KV_DYING_LEAST	((uint64) 64 * 1024)	/* bytes of a part that has a successor */

static uint64
part_bytes(const KvDying *dying, int i)
{
	return dying->parts[i].end - (i == 0 ? dying->begin : dying->parts[i - 1].end);
}

static void
forget_parts(KvDying *dying, int n)
{
	dying->n -= n;
	memmove(&dying->parts[0], &dying->parts[n], dying->n * sizeof(dying->parts[0]));
}

static void
join_least(KvDying *dying)
{
	int			least = 0;

	for (int i = 1; i + 1 < dying->n; i++)
	{
		if (part_bytes(dying, i) + part_bytes(dying, i + 1) <
			part_bytes(dying, least) + part_bytes(dying, least + 1))
			least = i;
	}
	dying->parts[least].end = dying->parts[least + 1].end;
	dying->parts[least].xid = Max(dying->parts[least].xid, dying->parts[least + 1].xid);
	dying->n--;
	memmove(&dying->parts[least + 1], &dying->parts[least + 2],
			(dying->n - least - 1) * sizeof(dying->parts[0]));
}

/* The number of parts, from the oldest on, that no snapshot sees any more. */
static int
ended_parts(const KvDying *dying, uint64 horizon)
{
	int			n = 0;

	while (n < dying->n && dying->parts[n].xid < horizon)
		n++;
	return n;
}

void
kv_dying_add(KvDying *dying, uint64 bytes, uint64 xid, uint64 horizon)
{
	int			last = dying->n - 1;

	dying->sum += bytes;
	if (last < 0 || (xid > dying->parts[last].xid && part_bytes(dying, last) >= KV_DYING_LEAST))
	{
		int			ended = dying->n < KV_DYING_PARTS ? 0 : ended_parts(dying, horizon);

		if (ended > 0)
		{
			dying->begin = dying->parts[ended - 1].end;
			forget_parts(dying, ended);
		}
		else if (dying->n == KV_DYING_PARTS)
			join_least(dying);
		last = dying->n++;
		dying->parts[last].xid = xid;
	}
	dying->parts[last].end = dying->sum;
	dying->parts[last].xid = Max(dying->parts[last].xid, xid);
}

void
kv_dying_counted(KvDying *dying, uint64 sum)
{
	int			n = 0;

	dying->begin = Max(dying->begin, sum);
	while (n < dying->n && dying->parts[n].end <= dying->begin)
		n++;
	forget_parts(dying, n);
}

uint64
kv_dying_kept(const KvDying *dying, uint64 horizon)
{
	int			n = ended_parts(dying, horizon);

	return dying->sum - (n == 0 ? dying->begin : dying->parts[n - 1].end);
}
