/*
 * value_cache.c
 *		Which blocks the value cache keeps, on streams of reads: beside a clock over the
 *		same sets, beside S3-FIFO with queues of all blocks, which would need locks, and
 *		with nobody else there.
 *
 * The source is included, with the few functions of the server that it calls.  Numbers
 * are drawn by a generator of its own, so each run is the same.
 */
#include "postgres.h"

#include <math.h>

#undef printf
#undef snprintf

#include "engine/cache/block.c"

#define CACHE_MB	8
#define CACHE_BLOCKS	(CACHE_MB * 256)

static int	failed = 0;
static int	tests = 0;

/* ---- what the server and other rooms have ---- */

void
kv_share_define(const char *name, const char *what, const char *more, int eighths,
				int *variable, int flags,
				GucIntCheckHook check)
{
	*variable = CACHE_MB;
}

void
kv_share_check(int *value, const int *variable)
{
}

void *
ShmemInitStruct(const char *name, Size size, bool *foundPtr)
{
	*foundPtr = false;
	return malloc(size);
}

Size
add_size(Size s1, Size s2)
{
	return s1 + s2;
}

uint64
hash_bytes_extended(const unsigned char *k, int keylen, uint64 seed)
{
	uint64		x;

	memcpy(&x, k, sizeof(x));
	x += seed * UINT64CONST(0x9E3779B97F4A7C15);
	x = (x ^ (x >> 30)) * UINT64CONST(0xBF58476D1CE4E5B9);
	x = (x ^ (x >> 27)) * UINT64CONST(0x94D049BB133111EB);
	return x ^ (x >> 31);
}

/* ---- the clock, without probation and ghosts ---- */

static struct
{
	uint64		blockno[KV_BLOCK_WAYS];
	uint32		heat[KV_BLOCK_WAYS];
	uint32		hand;
}		   *clocks;

static bool
clock_takes(uint64 blockno)
{
	uint64		i = set_of(1, blockno);

	for (int way = 0; way < KV_BLOCK_WAYS; way++)
	{
		if (clocks[i].blockno[way] == blockno)
		{
			clocks[i].heat[way] = Min(clocks[i].heat[way] + 1, KV_CACHE_HEAT);
			return true;
		}
	}
	for (;;)
	{
		int			way = clocks[i].hand++ % KV_BLOCK_WAYS;

		if (clocks[i].heat[way] > 0)
		{
			clocks[i].heat[way]--;
			continue;
		}
		clocks[i].blockno[way] = blockno;
		return false;
	}
}

/* ---- S3-FIFO (Yang et al., SOSP 2023): a small queue, the main one, and ghosts ---- */

typedef enum S3Queue
{
	S3_SMALL,
	S3_MAIN,
	S3_GHOSTS,
	S3_QUEUES
} S3Queue;

typedef struct S3Block
{
	uint64		blockno;
	uint32		uses;
	S3Queue		queue;
	struct S3Block *newer;
	struct S3Block *older;
	struct S3Block *next;		/* in its bucket */
} S3Block;

#define S3_BUCKETS	8192
#define S3_SMALL_BLOCKS	(CACHE_BLOCKS / 10)

static S3Block *s3_buckets[S3_BUCKETS];
static S3Block s3_ends[S3_QUEUES];	/* older: the newest; newer: the oldest */
static uint32 s3_n[S3_QUEUES];

static S3Block **
s3_find(uint64 blockno)
{
	S3Block   **at = &s3_buckets[hash_of(1, blockno) % S3_BUCKETS];

	while (*at != NULL && (*at)->blockno != blockno)
		at = &(*at)->next;
	return at;
}

static S3Block *
s3_remove(S3Block *block)
{
	block->newer->older = block->older;
	block->older->newer = block->newer;
	s3_n[block->queue]--;
	return block;
}

static void
s3_put(S3Block *block, S3Queue queue)
{
	block->queue = queue;
	block->newer = &s3_ends[queue];
	block->older = s3_ends[queue].older;
	block->older->newer = s3_ends[queue].older = block;
	s3_n[queue]++;
}

static void
s3_forget(S3Block *block)
{
	*s3_find(block->blockno) = block->next;
	free(block);
}

static void
s3_begin(void)
{
	for (int i = 0; i < S3_QUEUES; i++)
	{
		while (s3_n[i] > 0)
			s3_forget(s3_remove(s3_ends[i].newer));
		s3_ends[i].newer = s3_ends[i].older = &s3_ends[i];
	}
}

static void
s3_evict(void)
{
	bool		small = s3_n[S3_SMALL] >= S3_SMALL_BLOCKS || s3_n[S3_MAIN] == 0;
	S3Block    *block = s3_remove(s3_ends[small ? S3_SMALL : S3_MAIN].newer);

	if (small && block->uses > 1)
	{
		block->uses = 0;
		s3_put(block, S3_MAIN);
	}
	else if (small)
	{
		if (s3_n[S3_GHOSTS] >= CACHE_BLOCKS - S3_SMALL_BLOCKS)
			s3_forget(s3_remove(s3_ends[S3_GHOSTS].newer));
		s3_put(block, S3_GHOSTS);
	}
	else if (block->uses > 0)
	{
		block->uses--;
		s3_put(block, S3_MAIN);
	}
	else
		s3_forget(block);
}

static bool
s3_takes(uint64 blockno)
{
	S3Block   **at = s3_find(blockno);
	S3Block    *block = *at;
	S3Queue		queue = block == NULL ? S3_SMALL : S3_MAIN;

	if (block != NULL && block->queue != S3_GHOSTS)
	{
		block->uses = Min(block->uses + 1, 3);
		return true;
	}
	if (block == NULL)
	{
		block = *at = calloc(1, sizeof(S3Block));
		block->blockno = blockno;
	}
	else
		(void) s3_remove(block);
	block->uses = 0;
	while (s3_n[S3_SMALL] + s3_n[S3_MAIN] >= CACHE_BLOCKS)
		s3_evict();
	s3_put(block, queue);
	return false;
}

/* ---- streams ---- */

static uint64 state;

static uint64
draw(uint64 n)
{
	uint64		x = state += UINT64CONST(0x9E3779B97F4A7C15);

	x = (x ^ (x >> 30)) * UINT64CONST(0xBF58476D1CE4E5B9);
	x = (x ^ (x >> 27)) * UINT64CONST(0x94D049BB133111EB);
	return (x ^ (x >> 31)) % n;
}

/* One of n with a zipfian distribution: cumulated weights, searched. */
static double *weights;
static uint64 nweights;

static void
make_zipf(uint64 n, double skew)
{
	double		sum = 0;

	weights = realloc(weights, n * sizeof(double));
	nweights = n;
	for (uint64 i = 0; i < n; i++)
		weights[i] = sum += 1 / pow(i + 1, skew);
}

static uint64
draw_zipf(void)
{
	double		at = draw(UINT64CONST(1) << 53) / (double) (UINT64CONST(1) << 53) * weights[nweights - 1];
	uint64		low = 0;
	uint64		high = nweights - 1;

	while (low < high)
	{
		uint64		middle = (low + high) / 2;

		if (weights[middle] < at)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Hits of a stream, or of those of its reads that count. */
typedef struct Hits
{
	uint64		reads;
	uint64		cache;
	uint64		clock;
	uint64		s3;
} Hits;

/* Of all reads: so far behind S3-FIFO hits may be, and where nearly all fits, but not each set's share of it. */
#define S3_MARGIN	0.02
#define S3_MARGIN_FULL	0.07

static char buffer[KV_BLOCK];

static void
begin(void)
{
	kv_value_cache.gucs();
	free(sets);
	kv_value_cache.attach();
	clocks = realloc(clocks, set_count() * sizeof(*clocks));
	memset(clocks, 0, set_count() * sizeof(*clocks));
	s3_begin();
	state = 42;
	last_blockno = 0;
}

/* Read one value of so many bytes, of which n lie in a block. */
static bool
cache_takes(uint64 block, uint32 within, uint32 len)
{
	KvLocation	location = KV_LOCATION_MAKE(KV_FORM_RAW, block * KV_BLOCK + within);

	if (kv_block_read(1, location, len, buffer))
		return true;
	memset(buffer, 0, KV_BLOCK);
	memcpy(buffer, &block, sizeof(block));
	kv_block_keep(1, location, len, buffer, false);
	return false;
}

static void
take(Hits *hits, uint64 block)
{
	bool		hit = cache_takes(block, 0, sizeof(block));
	bool		clock_hit = clock_takes(block);

	hits->reads++;
	hits->s3 += s3_takes(block);
	hits->cache += hit;
	hits->clock += clock_hit;
}

static void
say(bool ok, const char *what, Hits hits, double margin)
{
	ok = ok && hits.cache >= hits.s3 - margin * hits.reads;
	failed += !ok;
	printf("%sok %d - %s: hits %.3f, of a clock %.3f, of S3-FIFO %.3f\n", ok ? "" : "not ", ++tests, what,
		   hits.cache / (double) hits.reads, hits.clock / (double) hits.reads, hits.s3 / (double) hits.reads);
}

/* Zipfian reads of a table so many times as large as the cache. */
static void
zipf(double skew, int times, double gain)
{
	Hits		hits = {0};
	char		what[80];

	begin();
	make_zipf(CACHE_BLOCKS * times, skew);
	for (int i = 0; i < 100 * CACHE_BLOCKS; i++)
	{
		if (i == 20 * CACHE_BLOCKS)
			memset(&hits, 0, sizeof(hits));
		take(&hits, 1 + draw_zipf());
	}
	snprintf(what, sizeof(what), "zipf %.2f, the cache is 1/%d of the table", skew, times);
	say(hits.reads - hits.cache <= (hits.reads - hits.clock) * (1 - gain), what, hits, S3_MARGIN);
}

/* Half of the reads are of blocks that are read once. */
static void
one_hit(void)
{
	Hits		hits = {0};

	begin();
	make_zipf(CACHE_BLOCKS * 25, 0.9);
	for (int i = 0; i < 100 * CACHE_BLOCKS; i++)
	{
		if (i == 20 * CACHE_BLOCKS)
			memset(&hits, 0, sizeof(hits));
		take(&hits, i % 2 ? 1 + draw_zipf() : (UINT64CONST(1) << 40) + i);
	}
	say(hits.cache > hits.clock * 1.1, "half of the blocks are read once", hits, S3_MARGIN);
}

/*
 * A hot set that fits, and a scan by key of ten times the cache beside it, block by block,
 * four values of each.  What counts are the hot reads while it goes on.
 */
static void
scan_beside(void)
{
	Hits		alone = {0};
	Hits		beside = {0};
	uint64		scan = UINT64CONST(1) << 40;

	begin();
	make_zipf(CACHE_BLOCKS * 3 / 4, 0.5);
	for (int i = 0; i < 40 * CACHE_BLOCKS; i++)
	{
		if (i == 20 * CACHE_BLOCKS)
			memset(&alone, 0, sizeof(alone));
		take(&alone, 1 + draw_zipf());
	}
	for (int i = 0; i < 10 * CACHE_BLOCKS; i++, scan++)
	{
		for (int n = 0; n < 4; n++)
		{
			(void) cache_takes(scan, n * 1000, 1000);
			(void) clock_takes(scan);
		}
		(void) s3_takes(scan);	/* once, as the value cache counts them */
		take(&beside, 1 + draw_zipf());
	}
	say(alone.cache > 0.95 * alone.reads, "a hot set of three quarters of the cache", alone, S3_MARGIN);
	say(beside.cache / (double) beside.reads > 0.8 * alone.cache / alone.reads,
		"beside a scan by key of ten times the cache", beside, S3_MARGIN_FULL);
}

/* What takes half of the cache is there, though some sets have more than they hold. */
static void
half_full(void)
{
	Hits		hits = {0};

	/* which sets are full is chance: of many caches together it is not */
	for (int cache = 0; cache < 20; cache++)
	{
		Hits		warming = {0};

		begin();
		for (int round = 0; round < 3; round++)
		{
			for (int i = 1; i <= CACHE_BLOCKS / 2; i++)
				take(round < 2 ? &warming : &hits, cache * CACHE_BLOCKS + i);
		}
	}
	say(hits.reads - hits.cache <= hits.reads / 80, "blocks of half of the cache", hits, S3_MARGIN);
}

/* A window of the blocks that are read moves on. */
static void
shifting(double share, double least)
{
	Hits		hits = {0};
	char		what[80];

	begin();
	for (int i = 0; i < 200 * CACHE_BLOCKS; i++)
		take(&hits, 1 + i / 20 + draw((uint64) (CACHE_BLOCKS * share)));
	snprintf(what, sizeof(what), "a window of %.2f of the cache moves on", share);
	say(hits.cache > hits.clock * least, what, hits, share > 0.5 ? S3_MARGIN_FULL : S3_MARGIN);
}

/* Values of several blocks: as a whole, or not at all. */
static void
several(void)
{
	static char blocks[KV_CACHED_BLOCKS * KV_BLOCK];
	static char into[sizeof(blocks)];
	KvLocation	location = KV_LOCATION_MAKE(KV_FORM_RAW, 1000 * KV_BLOCK + 4000);
	uint32		len = sizeof(blocks) - KV_BLOCK;
	bool		ok;

	begin();
	for (int i = 0; i < sizeof(blocks); i++)
		blocks[i] = i / KV_BLOCK + i;
	ok = kv_block_takes(location, len) && !kv_block_takes(location, len + 1) &&
		!kv_block_takes(location, 0);
	ok = ok && !kv_block_has(1, location, len);
	kv_block_keep(1, location, len, blocks, false);
	ok = ok && kv_block_has(1, location, len) && !kv_block_has(2, location, len) &&
		kv_block_read(1, location, len, into) && memcmp(into, blocks + 4000, len) == 0;
	for (int i = 0; i < 100 * CACHE_BLOCKS; i++)
		(void) cache_takes((UINT64CONST(1) << 40) + i, 0, sizeof(uint64));
	ok = ok && kv_block_has(1, location, len) == kv_block_read(1, location, len, into);
	failed += !ok;
	printf("%sok %d - a value of several blocks is there as a whole or not at all\n", ok ? "" : "not ", ++tests);
}

/* The next block behind one that a set has. */
static uint64
block_of_set(uint64 setno, uint64 block)
{
	do
		block++;
	while (set_of(1, block) != setno);
	return block;
}

/* A block that was its neighbour's guest is a ghost of its own set, which is asked for it. */
static void
guest(void)
{
	uint64		own = 4;
	uint64		other = neighbour_of(own);
	uint64		block = 0;
	uint64		beside = 0;
	uint16		tag;
	bool		ok;

	begin();
	for (int i = 0; i <= KV_BLOCK_WAYS; i++)
		(void) cache_takes(block = block_of_set(own, block), 0, sizeof(uint64));
	for (int i = 1; i < KV_BLOCK_WAYS; i++)
		(void) cache_takes(beside = block_of_set(other, beside), 0, sizeof(uint64));
	ok = holds(1, block);
	(void) cache_takes(block_of_set(other, beside), 0, sizeof(uint64));
	tag = tag_of(hash_of(1, block));
	ok = ok && !holds(1, block) && !was_ghost(&sets[other], tag) && was_ghost(&sets[own], tag);
	failed += !ok;
	printf("%sok %d - a guest that goes is known to its own set\n", ok ? "" : "not ", ++tests);
}

/* Uniform reads and updates in turn, of rows that fill half of the cache; an update writes another block.  Percent of hits. */
static double
hits_of_updates(bool replaces)
{
	static uint64 versions[CACHE_BLOCKS / 2];
	uint64		reads = 0;
	uint64		hits = 0;

	begin();
	memset(versions, 0, sizeof(versions));
	for (int i = 0; i < 20 * CACHE_BLOCKS; i++)
	{
		uint64		row = draw(CACHE_BLOCKS / 2);
		uint64		block = versions[row] * CACHE_BLOCKS + row + 1;
		bool		there = cache_takes(block, 0, sizeof(uint64));

		if (i >= 10 * CACHE_BLOCKS)
		{
			reads++;
			hits += there;
		}
		if (i % 2 == 0)
			continue;
		versions[row]++;
		there = kv_block_has(1, KV_LOCATION_MAKE(KV_FORM_RAW, block * KV_BLOCK), KV_BLOCK);
		if (replaces)
			kv_block_replaced(1, KV_LOCATION_MAKE(KV_FORM_RAW, block * KV_BLOCK), KV_BLOCK);
		block += CACHE_BLOCKS;
		kv_block_keep(1, KV_LOCATION_MAKE(KV_FORM_RAW, block * KV_BLOCK), sizeof(uint64), buffer, replaces && there);
	}
	return 100.0 * hits / reads;
}

static void
updated(void)
{
	double		on_probation = hits_of_updates(false);
	double		replacing = hits_of_updates(true);
	bool		ok = replacing >= 85 && replacing > on_probation + 20;

	failed += !ok;
	printf("%sok %d - blocks in place of cached ones stay: %.1f %% hits, %.1f on probation\n", ok ? "" : "not ", ++tests,
		   replacing, on_probation);
}

int
main(void)
{
	zipf(0.70, 100, 0.05);
	zipf(0.70, 25, 0.05);
	zipf(0.90, 25, 0.05);
	zipf(0.99, 100, 0.05);
	zipf(0.99, 25, 0.05);
	one_hit();
	scan_beside();
	half_full();
	shifting(0.5, 0.95);
	shifting(0.9, 0.95);
	several();
	guest();
	updated();
	return failed != 0;
}
