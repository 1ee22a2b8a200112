/*
 * crc.c
 *		CRC-32C of long pieces of memory.
 *
 * The processor's CRC instruction takes three cycles, but one can begin in each,
 * so three streams at a time are as fast as one.  The result is COMP_CRC32C's.
 */
#include "postgres.h"

#include "engine/base/crc.h"

static pg_crc32c
crc_plain(pg_crc32c crc, const void *data, Size len)
{
	COMP_CRC32C(crc, data, len);
	return crc;
}

#if defined(__x86_64__) && defined(__GNUC__)

#include <nmmintrin.h>
#include <wmmintrin.h>

#define STREAM		336			/* bytes; four times three are nearly 4 KB */

/* x^(8n - 33) modulo the polynomial, bits reversed; n: bytes of one stream, of two */
#define OVER_ONE	0xA60CE07B
#define OVER_TWO	0xCEC3662E

__attribute__((target("sse4.2,pclmul")))
static pg_crc32c
crc_streams(pg_crc32c crc, const void *data, Size len)
{
	const char *at = data;

	for (; len >= 3 * STREAM; at += 3 * STREAM, len -= 3 * STREAM)
	{
		uint64		a = crc;
		uint64		b = 0;
		uint64		c = 0;
		__m128i		sum;

		for (int i = 0; i < STREAM; i += 8)
		{
			uint64		words[3];

			memcpy(&words[0], at + i, 8);
			memcpy(&words[1], at + STREAM + i, 8);
			memcpy(&words[2], at + 2 * STREAM + i, 8);
			a = _mm_crc32_u64(a, words[0]);
			b = _mm_crc32_u64(b, words[1]);
			c = _mm_crc32_u64(c, words[2]);
		}

		/* each stream counts as if the bytes of the streams behind it were zeros */
		sum = _mm_xor_si128(_mm_clmulepi64_si128(_mm_cvtsi64_si128(a), _mm_cvtsi64_si128(OVER_TWO), 0),
							_mm_clmulepi64_si128(_mm_cvtsi64_si128(b), _mm_cvtsi64_si128(OVER_ONE), 0));
		crc = _mm_crc32_u64(0, _mm_cvtsi128_si64(sum)) ^ c;
	}
	COMP_CRC32C(crc, at, len);
	return crc;
}

static bool
has_streams(void)
{
	return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
}

#else

#define crc_streams		crc_plain
#define has_streams()	false

#endif

static pg_crc32c
crc_choose(pg_crc32c crc, const void *data, Size len)
{
	kv_crc_add = has_streams() ? crc_streams : crc_plain;
	return kv_crc_add(crc, data, len);
}

pg_crc32c	(*kv_crc_add) (pg_crc32c crc, const void *data, Size len) = crc_choose;
