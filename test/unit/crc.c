/*
 * crc.c
 *		Checksums are CRC-32C, by each way that this processor has, whatever the length and the alignment.
 *
 * The source is included, with a COMP_CRC32C in place of the server's.
 */
#include "postgres.h"

#undef printf
#undef snprintf

#include "port/pg_crc32c.h"

static pg_crc32c
by_bits(pg_crc32c crc, const void *data, Size len)
{
	const uint8 *byte = data;

	for (; len > 0; len--)
	{
		crc ^= *byte++;
		for (int bit = 0; bit < 8; bit++)
			crc = (crc & 1) != 0 ? (crc >> 1) ^ 0x82F63B78 : crc >> 1;
	}
	return crc;
}

#undef COMP_CRC32C
#define COMP_CRC32C(crc, data, len) ((crc) = by_bits((crc), (data), (len)))

#include "engine/base/hash.c"

#define MOST	20000

static int	tests = 0;
static int	failed = 0;

static void
test_way(const char *name, bool there, pg_crc32c (*way) (pg_crc32c crc, const void *data, Size len))
{
	uint8	   *bytes = malloc(MOST);
	uint64		random = 1;
	int			wrong = 0;

	for (int i = 0; i < MOST; i++)
		bytes[i] = (random = random * UINT64CONST(6364136223846793005) + 1) >> 56;
	for (Size len = 0; there && len <= MOST; len += len < 2200 ? 1 : 509)
	{
		/* so that a read behind its end is one behind the memory, too */
		const uint8 *from = bytes + MOST - len;

		wrong += way(0xFFFFFFFF, from, len) != by_bits(0xFFFFFFFF, from, len) ||
			way((pg_crc32c) len, from, len) != by_bits((pg_crc32c) len, from, len);
	}
	printf("%sok %d - checksums are CRC-32C, %s%s\n", wrong != 0 ? "not " : "", ++tests, name,
		   there ? "" : " # skip this processor cannot");
	failed += wrong != 0;
	free(bytes);
}

/* Bytes as pieces of many lengths. */
static pg_crc32c
as_pieces(pg_crc32c crc, const void *data, Size len)
{
	const char *from = data;
	KvPiece		pieces[] = {{from, len / 3}, {from + len / 3, 0}, {from + len / 3, len - len / 3}};

	return kv_crc_pieces(crc, pieces, lengthof(pieces));
}

int
main(void)
{
	test_way("by three streams", has_streams(), crc_streams);
	test_way("in wide registers", has_wide(), crc_wide);
	test_way("by the way that is chosen", true, crc_choose);
	test_way("by pieces", true, as_pieces);
	printf("1..%d\n", tests);
	return failed != 0;
}
