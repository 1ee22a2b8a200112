/*
 * hash.c
 *		CRC-32C of long pieces of memory.
 *
 * The processor's CRC instruction takes three cycles, but one can begin in each, so three
 * streams at a time take as long as one.  Where the processor can multiply polynomials in
 * registers of 64 bytes, that is faster still.  The result is COMP_CRC32C's.
 */
#include "postgres.h"

#include "engine/base/hash.h"

static pg_crc32c
crc_plain(pg_crc32c crc, const void *data, Size len)
{
	COMP_CRC32C(crc, data, len);
	return crc;
}

static pg_crc32c
pieces_plain(pg_crc32c crc, const KvPiece *pieces, int n)
{
	for (int i = 0; i < n; i++)
		COMP_CRC32C(crc, pieces[i].data, pieces[i].len);
	return crc;
}

#if defined(__x86_64__) && defined(__GNUC__)

#include <immintrin.h>

__attribute__((target("sse4.2")))
static pg_crc32c
pieces_quick(pg_crc32c crc, const KvPiece *pieces, int n)
{
	for (int i = 0; i < n; i++)
	{
		const char *at = pieces[i].data;
		Size		len = pieces[i].len;
		uint64		word;
		uint32		half;
		uint16		two;

		for (; len >= sizeof(word); at += sizeof(word), len -= sizeof(word))
		{
			memcpy(&word, at, sizeof(word));
			crc = _mm_crc32_u64(crc, word);
		}
		if (len & 4)
		{
			memcpy(&half, at, sizeof(half));
			crc = _mm_crc32_u32(crc, half);
			at += sizeof(half);
		}
		if (len & 2)
		{
			memcpy(&two, at, sizeof(two));
			crc = _mm_crc32_u16(crc, two);
			at += sizeof(two);
		}
		if (len & 1)
			crc = _mm_crc32_u8(crc, *(const uint8 *) at);
	}
	return crc;
}

static bool
has_quick(void)
{
	return __builtin_cpu_supports("sse4.2");
}

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

		/* the bytes of later streams count as zeros after each stream */
		sum = _mm_xor_si128(_mm_clmulepi64_si128(_mm_cvtsi64_si128(a), _mm_cvtsi64_si128(OVER_TWO),
												 0),
							_mm_clmulepi64_si128(_mm_cvtsi64_si128(b), _mm_cvtsi64_si128(OVER_ONE),
												 0));
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

#define WIDE	64				/* bytes of a register */

/* x^(8n + 31) and x^(8n - 33) modulo the polynomial, bits reversed; n: distance in bytes */
#define OVER_16		0x493c7d27, 0xf20c0dfe
#define OVER_32		0xba4fc28e, 0x3da6d0cb
#define OVER_48		0xddc0152b, 0x1c291d04
#define OVER_64		0x9e4addf8, 0x740eef02
#define OVER_256	0xb9e02b86, 0xdcb17aa4

#define WIDE_TARGET __attribute__((target("sse4.2,avx512f,vpclmulqdq")))

/* Advance each 16 bytes of sum by the distance, and add the bytes there. */
WIDE_TARGET static inline __m512i
crc_fold(__m512i sum, __m512i over, __m512i there)
{
	return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(sum, over, 0x00),
									 _mm512_clmulepi64_epi128(sum, over, 0x11), there, 0x96);
}

WIDE_TARGET static pg_crc32c
crc_wide(pg_crc32c crc, const void *data, Size len)
{
	const char *at = data;
	__m512i		over = _mm512_set4_epi64(OVER_256, OVER_256);
	__m512i		sum[4];
	__m128i		end;

	if (len < lengthof(sum) * WIDE)
	{
		COMP_CRC32C(crc, data, len);
		return crc;
	}
	for (int i = 0; i < lengthof(sum); i++)
		sum[i] = _mm512_loadu_si512(at + i * WIDE);
	sum[0] = _mm512_xor_si512(sum[0],
							  _mm512_inserti32x4(_mm512_setzero_si512(), _mm_cvtsi32_si128(crc),
												 0));
	for (at += sizeof(sum), len -= sizeof(sum); len >= sizeof(sum);
		 at += sizeof(sum), len -= sizeof(sum))
	{
		for (int i = 0; i < lengthof(sum); i++)
			sum[i] = crc_fold(sum[i], over, _mm512_loadu_si512(at + i * WIDE));
	}
	over = _mm512_set4_epi64(OVER_64, OVER_64);
	for (int i = 1; i < lengthof(sum); i++)
		sum[0] = crc_fold(sum[0], over, sum[i]);
	for (; len >= WIDE; at += WIDE, len -= WIDE)
		sum[0] = crc_fold(sum[0], over, _mm512_loadu_si512(at));

	/* the last 16 bytes stay where they are */
	end = _mm512_extracti32x4_epi32(sum[0], 3);
	over = _mm512_set_epi64(0, 0, OVER_16, OVER_32, OVER_48);
	sum[0] = crc_fold(sum[0], over, _mm512_setzero_si512());
	for (int i = 0; i < 3; i++)
		end = _mm_xor_si128(end, ((__m128i *) sum)[i]);
	crc = _mm_crc32_u64(_mm_crc32_u64(0, _mm_cvtsi128_si64(end)), _mm_extract_epi64(end, 1));
	COMP_CRC32C(crc, at, len);
	return crc;
}

static bool
has_wide(void)
{
	return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("avx512f") &&
		__builtin_cpu_supports("vpclmulqdq");
}

#else

#define pieces_quick	pieces_plain
#define has_quick()		false
#define crc_streams		crc_plain
#define has_streams()	false
#define crc_wide		crc_plain
#define has_wide()		false

#endif

static pg_crc32c
crc_choose(pg_crc32c crc, const void *data, Size len)
{
	kv_crc_add = has_wide() ? crc_wide : has_streams() ? crc_streams : crc_plain;
	return kv_crc_add(crc, data, len);
}

pg_crc32c	(*kv_crc_add) (pg_crc32c crc, const void *data, Size len) = crc_choose;

static pg_crc32c
pieces_choose(pg_crc32c crc, const KvPiece *pieces, int n)
{
	kv_crc_pieces = has_quick() ? pieces_quick : pieces_plain;
	return kv_crc_pieces(crc, pieces, n);
}

pg_crc32c	(*kv_crc_pieces) (pg_crc32c crc, const KvPiece *pieces, int n) = pieces_choose;
