/*
 * cleaning.c
 *		What it costs to keep value files within their bound, by simulation.
 *
 * usage: cleaning BLOCKS CHUNK TIMES SKEW POWER START STOP
 *
 * A shard of so many live blocks, which are overwritten TIMES times as often to warm up, and as often again to
 * measure, uniformly (SKEW 0) or with zipfian probabilities.  What is written goes to chunks of CHUNK blocks.  Files may
 * have 1.5 times the live blocks; when START of the dead that this allows is there, chunks are emptied until it is
 * STOP, as src/engine/compact/files.c chooses them, but for the power of a chunk's age there: the
 * greatest (1 - u) age^POWER / (1 + u) first.  Prints blocks written for each that was overwritten.
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AMP 1.5
#define PASS_SHARE 10			/* one compaction job moves such a part of the files, at most, or a value file */

typedef struct Chunk
{
	int			used;
	int			live;
	double		score;
	int		   *blocks;			/* that were written to it */
} Chunk;

static int	nblocks,
			chunk_size;
static Chunk **chunks;			/* in the order in which they were made */
static int	nchunks;
static Chunk **home;			/* of each block */
static long taken,				/* blocks that chunks have */
			written;

static void *
get(size_t size)
{
	void	   *p = calloc(1, size);

	if (p == NULL)
		exit(1);
	return p;
}

/* A block's newest value goes behind the last one of that chunk, or of a new one. */
static void
put(Chunk **open, int block)
{
	if (*open == NULL || (*open)->used == chunk_size)
	{
		*open = get(sizeof(Chunk));
		(*open)->blocks = get(chunk_size * sizeof(int));
		chunks = realloc(chunks, (nchunks + 1) * sizeof(Chunk *));
		chunks[nchunks++] = *open;
	}
	if (home[block] != NULL)
		home[block]->live--;
	home[block] = *open;
	(*open)->blocks[(*open)->used++] = block;
	(*open)->live++;
	taken++;
	written++;
}

static int
compare(const void *a, const void *b)
{
	const Chunk *left = *(Chunk *const *) a;
	const Chunk *right = *(Chunk *const *) b;

	return left->score > right->score ? -1 : left->score < right->score;
}

/* What is live in the chunk goes to another. */
static void
empty(Chunk *chunk, Chunk **to)
{
	for (int i = 0; i < chunk->used; i++)
	{
		if (home[chunk->blocks[i]] == chunk)
			put(to, chunk->blocks[i]);
	}
	taken -= chunk->used;
	chunk->used = -1;
}

/* One pass.  False: there is nothing that pays. */
static int
pass(const Chunk *open, double power, long stop)
{
	Chunk	  **by_score = get(nchunks * sizeof(Chunk *));
	Chunk	   *to = NULL;
	long		most = taken / PASS_SHARE > chunk_size ? taken / PASS_SHARE : chunk_size;
	long		moved = 0;
	int			n = 0;
	int			kept = 0;
	int			i;

	for (i = 0; i < nchunks; i++)
	{
		double		u = (double) chunks[i]->live / chunks[i]->used;

		if (chunks[i] == open || chunks[i]->live == chunks[i]->used)
			continue;
		chunks[i]->score = chunks[i]->live == 0 ? INFINITY : (1 - u) * pow(nchunks - i, power) / (1 + u);
		by_score[n++] = chunks[i];
	}
	qsort(by_score, n, sizeof(Chunk *), compare);
	for (i = 0; i < n && (taken > stop || by_score[i]->live == 0) && (i == 0 || moved + by_score[i]->live <= most); i++)
	{
		moved += by_score[i]->live;
		empty(by_score[i], &to);
	}
	for (int j = 0; j < nchunks; j++)
	{
		if (chunks[j]->used >= 0)
			chunks[kept++] = chunks[j];
		else
		{
			free(chunks[j]->blocks);
			free(chunks[j]);
		}
	}
	nchunks = kept;
	free(by_score);
	return i > 0;
}

int
main(int argc, char **argv)
{
	Chunk	   *open = NULL;
	double	   *sums;
	double		skew,
				power;
	long		start,
				stop,
				times;

	if (argc != 8)
	{
		fprintf(stderr, "usage: cleaning BLOCKS CHUNK TIMES SKEW POWER START STOP\n");
		return 2;
	}
	nblocks = atoi(argv[1]);
	chunk_size = atoi(argv[2]);
	times = atol(argv[3]) * nblocks;
	skew = atof(argv[4]);
	power = atof(argv[5]);
	start = nblocks * (1 + (AMP - 1) * atof(argv[6]));
	stop = nblocks * (1 + (AMP - 1) * atof(argv[7]));
	home = get(nblocks * sizeof(Chunk *));
	sums = get((nblocks + 1) * sizeof(double));
	for (int i = 0; i < nblocks; i++)
	{
		put(&open, i);
		sums[i + 1] = sums[i] + pow(i + 1, -skew);
	}
	for (long n = 0; n < 2 * times; n++)
	{
		double		x = drand48() * sums[nblocks];
		int			low = 0;
		int			high = nblocks;

		while (high - low > 1)
		{
			int			middle = (low + high) / 2;

			if (sums[middle] <= x)
				low = middle;
			else
				high = middle;
		}
		if (n == times)
			written = 0;
		put(&open, low);
		if (taken > start)
		{
			while (taken > stop && pass(open, power, stop))
				;
		}
	}
	printf("%.3f\n", (double) written / times);
	return 0;
}
