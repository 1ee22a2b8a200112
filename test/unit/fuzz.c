/*
 * fuzz.c
 *		A target for libFuzzer (make fuzz): bytes as a client's stream.
 *
 * Built once for each protocol, which begins it: KV_FUZZ_TEXT, KV_FUZZ_META or
 * KV_FUZZ_BINARY.  The first byte of the input says how large turns and values
 * are; the rest comes in once as a whole, and once in pieces with one request a
 * turn, which must have the same replies.  Not if turns are larger, because of the
 * cas numbers.
 */
#include <stdlib.h>
#include <string.h>

#include "dictionary.h"

extern int	LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

static void
talk(Session *session, unsigned char how, const char *bytes, size_t length, size_t piece)
{
	session_begin(session, dictionary_make());
	session->limits.item_size = how & 8 ? 10 : 1000;
	session->limits.memory = how & 16 ? 64 : 0;
	session->limits.get_line = 4096;
	session->limits.line = how & 32 ? 40 : 2048;
	session->limits.auth = (how & 64) != 0;
	session->turn = piece == length ? 1 + how % 8 * 8 : 1;
	if (session->turn > 32)
		session->turn = 32;
	for (size_t at = 0; at < length; at += piece)
		session_input(session, bytes + at, length - at < piece ? length - at : piece);
}

int
LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
	Session		whole;
	Session		pieces;
	char	   *bytes;
	size_t		length;
	size_t		piece;

	if (size < 2)
		return 0;
	dictionary_now = 1000000000;
	length = size - 1;
	bytes = malloc(length);
	memcpy(bytes, data + 1, length);
#if defined(KV_FUZZ_BINARY)
	bytes[0] = (char) 0x80;
#elif defined(KV_FUZZ_META)
	bytes[0] = 'm';
#endif
	talk(&whole, data[0], bytes, length, length);
	piece = data[0] % 8 == 7 ? 1 : length / (data[0] % 8 + 2) + 1;
	talk(&pieces, data[0], bytes, length, piece);
	if (whole.closed != pieces.closed || (whole.turn == 1 && (whole.out.length != pieces.out.length
															   || (whole.out.length > 0
																   && memcmp(whole.out.at, pieces.out.at, whole.out.length) != 0))))
		abort();
	dictionary_free(whole.dictionary);
	dictionary_free(pieces.dictionary);
	session_end(&whole);
	session_end(&pieces);
	free(bytes);
	return 0;
}
