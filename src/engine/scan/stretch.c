/*
 * stretch.c
 *		Decides which parts of files are loaded as a whole for a scan that looks ahead, and how many
 *		of a stretch together.
 *
 * The next keys of a scan may have their values in many places of the files.  Where several blocks
 * of a part are needed soon, the others probably are needed later: the part is in a stretch of
 * values in key order.  Such a stretch is read in requests as large as possible.  Each stretch has
 * parts in the cache all the time, so their number decides.  If they are too many, or most blocks
 * are in no stretch, only the needed blocks are loaded.
 */
#include "postgres.h"

#include "port/pg_bitutils.h"

#include "engine/cache/reader.h"
#include "engine/scan/internal.h"

/* Least number of blocks that are needed soon of a part that is loaded as a whole. */
#define KV_STRETCH_BLOCKS		4
/* The share of a range that may be in windows for stretches at a time. */
#define KV_STRETCH_SHARE		4

/*
 * How many parts of a stretch are loaded together, if nparts parts in so many stretches are needed
 * next?  All of them and the next ones must fit into the cache.  They must not be much compared
 * with what the scan has read, and with what it still wants.
 */
static int
choose_together(const KvScan *scan, int nparts, int nstretches)
{
	const KvAhead *ahead = &scan->ahead;
	double		come = (scan->steering.rows + scan->nrows) * ahead->mean;
	double		most = Min(come, ahead->wanted / KV_STRETCH_SHARE) / KV_PART_SIZE;
	int			together = KV_WINDOW_PARTS;

	most = Min(most, kv_block_window_parts());
	while (together > 0 && nparts + nstretches * together > most)
		together /= 2;
	return together;
}

void
kv_stretch_choose(KvScan *scan, KvWantedPart *parts, int n, bool all)
{
	int			nstretches = 0;
	int			nwithin = 0;
	int			nblocks = 0;

	for (int i = 0; i < n; i++)
	{
		int			needed = pg_popcount32(parts[i].blocks);

		parts[i].whole = needed >= KV_STRETCH_BLOCKS;
		nblocks += needed;
		nwithin += parts[i].whole ? needed : 0;
		nstretches += i == 0 || parts[i - 1].part + 1 != parts[i].part;
	}
	if (all)
		scan->reader.together = nwithin * 2 >= nblocks && n > 0 ?
			choose_together(scan, n, nstretches) : 0;
}
