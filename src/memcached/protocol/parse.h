/*
 * parse.h
 *		What the parsers of the three protocols share.
 */
#ifndef KV_MEMCACHED_PARSE_H
#define KV_MEMCACHED_PARSE_H

#include <string.h>

#include "memcached/protocol/protocol.h"

#define KV_MC_MAX_TOKENS	24		/* of a line; no command but get has as many */
#define KV_MC_MAX_VALUE		(INT32_MAX - 2)
#define KV_MC_MAX_SECRET	1024	/* bytes of a user's name and password */

/* One call of kv_mc_parse. */
typedef struct KvMcInput
{
	KvMcStream *stream;
	const KvMcLimits *limits;
	const char *at;				/* what is not consumed begins here */
	const char *end;
	size_t		needed;
	KvMcRequest *request;		/* all zeroes, but for vivify_exptime */
} KvMcInput;

typedef struct KvMcToken
{
	const char *at;
	size_t		length;
} KvMcToken;

/* A line, and what it is made of. */
typedef struct KvMcLine
{
	const char *end;			/* of its text */
	const char *next;			/* behind its newline */
	int			n;
	KvMcToken	tokens[KV_MC_MAX_TOKENS];	/* what is too much for them is part of the last */
} KvMcLine;

static inline bool
kv_mc_is(KvMcToken token, const char *word)
{
	return token.length == strlen(word) && memcmp(token.at, word, token.length) == 0;
}

/*
 * The parsers, each from in->at on. True: in->request is whole and in->at behind it. False: in->at
 * is where it was, in->needed as kv_mc_parse has it.
 */
extern bool kv_mc_parse_text(KvMcInput *in);
extern bool kv_mc_parse_binary(KvMcInput *in);

/* A line that begins as a meta command does: m and one letter.  As above. */
extern bool kv_mc_parse_meta(KvMcInput *in, const KvMcLine *line);

/* Makes the request one whose reply is known, a line of text; true. */
extern bool kv_mc_say(KvMcInput *in, const char *text);

/*
 * The data of a command of text, after its line: length bytes, which are the request's value, and a
 * line
 * end.  Then as the parsers.  Of a request that replaces the item, data that are too large take the
 * item along (KV_MC_DISCARD).
 */
extern bool kv_mc_take_data(KvMcInput *in, const KvMcLine *line, size_t length);

/*
 * Numbers of a token, which may have white space around and something behind that; false: it is
 * none, or too large.
 */
extern bool kv_mc_number(KvMcToken token, uint64_t *number);
extern bool kv_mc_number32(KvMcToken token, uint32_t *number);

/* The bytes of a value: 0 to KV_MC_MAX_VALUE. */
extern bool kv_mc_length(KvMcToken token, size_t *length);

/*
 * A time of expiry. Too large are numbers over 64 bits; of others memcached has the lowest 32 bits,
 * of which the highest is the sign: a client's -1 that came as 4294967295 is -1.
 */
extern bool kv_mc_exptime(KvMcToken token, int64_t *exptime);

/* The number that a value is; spaces behind it are none of its own. */
extern bool kv_mc_value_number(const char *value, size_t length, uint64_t *number);

/* Writes the digits of a number, at most 20 bytes; returns behind them. */
extern char *kv_mc_put_number(char *to, uint64_t number);

/*
 * Base64 with padding: bytes written, at most 3 for 4; 0: the text is none. At most room of them.
 */
extern size_t kv_mc_base64_decode(const char *text, size_t length, char *to, size_t room);

/* Writes 4 bytes for 3, padded; returns behind them. */
extern char *kv_mc_base64_encode(const char *bytes, size_t length, char *to);

#endif							/* KV_MEMCACHED_PARSE_H */
