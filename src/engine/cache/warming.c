/*
 * warming.c
 *		Reads blocks into the value cache or the recent ring before sessions ask for them.
 *
 * Callers add one block at a time; many are read at once.  A few blocks between two added ones are
 * read with them.  Mostly half of a table or more is added, and a device may limit reads rather
 * than bytes.
 */
#include "postgres.h"

#include "miscadmin.h"

#include "engine/base/progress.h"
#include "engine/cache/internal.h"
#include "engine/io/fault.h"
#include "engine/io/io.h"
#include "engine/value/value.h"

#define KV_WARM_READ	(256 * 1024)
#define KV_WARM_READS	16
/* maximum number of unrequested bytes between two blocks of a read */
#define KV_WARM_GAP		(32 * 1024)

struct KvWarming
{
	const KvStoreKey *key;
	uint32		cache_id;
	char	   *buffer;			/* KV_WARM_READS of KV_WARM_READ bytes, aligned */
	char	   *memory;			/* the allocation that has the buffer */
	KvIoRequest reads[KV_WARM_READS];
	KvAddress	addresses[KV_WARM_READS];
	uint64		asked[KV_WARM_READS];	/* a bit for each block of a read that is to be kept */
	int			nreads;
	bool		recent;			/* present blocks are for the recent ring */
	uint64		kept;			/* number of blocks kept */
};

StaticAssertDecl(KV_WARM_READ / KV_BLOCK <= 64, "a bit for each block of a read");

KvWarming *
kv_warming_begin(const KvStoreKey *key, uint32 cache_id)
{
	KvWarming  *warming = palloc0(sizeof(KvWarming));

	warming->key = key;
	warming->cache_id = cache_id;
	warming->memory = palloc(KV_WARM_READS * KV_WARM_READ + KV_BLOCK);
	warming->buffer = (char *) TYPEALIGN(KV_BLOCK, warming->memory);
	return warming;
}

/* Reads the blocks that were added, and keeps them.  Skips those that cannot be read. */
static void
read_added(KvWarming *warming)
{
	CHECK_FOR_INTERRUPTS();
	kv_value_trim();
	for (int i = 0; i < warming->nreads; i++)
		warming->reads[i].file = kv_value_file(warming->key, warming->cache_id,
											   kv_file_of(warming->addresses[i]),
											   KV_IO_MISSING_OK | KV_IO_FAIL_OK);
	kv_io_read_batch(warming->reads, warming->nreads, KV_IO_VALUE_READ, NULL, NULL);
	for (int i = 0; i < warming->nreads; i++)
	{
		const KvIoRequest *read = &warming->reads[i];

		for (int at = 0; at + KV_BLOCK <= read->result; at += KV_BLOCK)
		{
			if ((warming->asked[i] >> (at / KV_BLOCK) & 1) == 0)
				continue;
			if (warming->recent)
				kv_recent_ring.warm(warming->cache_id, warming->addresses[i] + at,
									read->buffer + at);
			else
				kv_value_cache.warm(warming->cache_id, warming->addresses[i] + at,
									read->buffer + at);
			warming->kept++;
		}
		kv_progress_add(read->len);
	}
	warming->nreads = 0;
	KV_STOP_POINT("warm_read");
}

/* Can the last read be extended to a block? */
static bool
reaches(const KvWarming *warming, KvAddress address)
{
	KvAddress	begin = warming->addresses[Max(warming->nreads, 1) - 1];
	KvAddress	end = begin + warming->reads[Max(warming->nreads, 1) - 1].len;

	return warming->nreads > 0 && address >= end && address - end <= KV_WARM_GAP &&
		address + KV_BLOCK - begin <= KV_WARM_READ &&
		kv_same_file(kv_file_of(address), kv_file_of(begin));
}

void
kv_warming_add(KvWarming *warming, KvAddress address, bool recent)
{
	int			i;

	if ((recent ? kv_recent_ring.room() : kv_value_cache.room()) == 0)
		return;
	if (recent != warming->recent)
		read_added(warming);
	warming->recent = recent;
	if (!reaches(warming, address))
	{
		if (warming->nreads == KV_WARM_READS)
			read_added(warming);
		i = warming->nreads++;
		warming->addresses[i] = address;
		warming->asked[i] = 0;
		warming->reads[i] = (KvIoRequest)
		{
			.offset = kv_offset_of(address),
			.buffer = warming->buffer + (Size) i * KV_WARM_READ
		};
	}
	i = warming->nreads - 1;
	warming->reads[i].len = address - warming->addresses[i] + KV_BLOCK;
	warming->asked[i] |= UINT64CONST(1) << (address - warming->addresses[i]) / KV_BLOCK;
}

uint64
kv_warming_end(KvWarming *warming)
{
	uint64		kept;

	read_added(warming);
	kept = warming->kept;
	pfree(warming->memory);
	pfree(warming);
	return kept;
}
