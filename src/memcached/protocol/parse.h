/*
 * parse.h
 *		What the parsers of the three protocols share.
 */
#ifndef KV_MEMCACHED_PARSE_H
#define KV_MEMCACHED_PARSE_H

#include <string.h>

#include "memcached/protocol/protocol.h"

#define KV_MC_MAX_TOKENS	24		/* of a line; only get has more */
#define KV_MC_MAX_VALUE		(INT32_MAX - 2)
#define KV_MC_MAX_SECRET	1024	/* bytes of a user's name and password together */

/* One call of kv_mc_parse. */
typedef struct KvMcInput
{
	KvMcStream *stream;
	const KvMcLimits *limits;
	const char *at;				/* where the unconsumed input begins */
	const char *end;
	size_t		needed;
	KvMcRequest *request;		/* all zeroes, except for vivify_exptime */
} KvMcInput;

typedef struct KvMcToken
{
	const char *at;
	size_t		length;
} KvMcToken;

/* A line, and its tokens. */
typedef struct KvMcLine
{
	const char *end;			/* of its text */
	const char *next;			/* after its newline */
	int			n;
	KvMcToken	tokens[KV_MC_MAX_TOKENS];	/* the last one holds the surplus tokens */
} KvMcLine;

static inline bool
kv_mc_is(KvMcToken token, const char *word)
{
	return token.length == strlen(word) && memcmp(token.at, word, token.length) == 0;
}

/*
 * Parse a packet, from in->at on.  True: in->request is complete, and in->at is after it.
 * False: in->at is unchanged, and in->needed is as kv_mc_parse returns it.
 */
extern bool kv_mc_parse_binary(KvMcInput *in);

/*
 * Parse a line that begins as a meta command does: m and one letter.  Returns as the parser of
 * packets does.
 */
extern bool kv_mc_parse_meta(KvMcInput *in, const KvMcLine *line);

/* ---- line.c ---- */

/* Make the request one whose reply is known, a line of text; returns true. */
extern bool kv_mc_say(KvMcInput *in, const char *text);

/*
 * Take the data of a text command, after its line: length bytes, which are the request's value,
 * and a line end.  Returns as the parsers do.  If the data of a request that replaces the item
 * are too large, the item is deleted (KV_MC_DISCARD).
 */
extern bool kv_mc_take_data(KvMcInput *in, const KvMcLine *line, size_t length);

/*
 * Parse the number of a token, which may have white space around it and then other characters;
 * false: it is none, or too large.
 */
extern bool kv_mc_number(KvMcToken token, uint64_t *number);
extern bool kv_mc_number32(KvMcToken token, uint32_t *number);

/* Parse the length of a value: 0 to KV_MC_MAX_VALUE. */
extern bool kv_mc_length(KvMcToken token, size_t *length);

/*
 * Parse a time of expiry.  Numbers over 64 bits are too large.  Of others memcached uses the
 * lowest 32 bits as a signed number: a client's -1 that arrives as 4294967295 is -1.
 */
extern bool kv_mc_exptime(KvMcToken token, int64_t *exptime);

/* Parse the number that a value is; trailing spaces do not belong to it. */
extern bool kv_mc_value_number(const char *value, size_t length, uint64_t *number);

/* Write the digits of a number, at most 20 bytes; returns the address after them. */
extern char *kv_mc_put_number(char *to, uint64_t number);

/*
 * Decode base64 with padding; returns the bytes written, at most 3 for 4 and at most room; 0:
 * the text is no base64.
 */
extern size_t kv_mc_base64_decode(const char *text, size_t length, char *to, size_t room);

/* Write 4 bytes for 3, padded; returns the address after them. */
extern char *kv_mc_base64_encode(const char *bytes, size_t length, char *to);

#endif							/* KV_MEMCACHED_PARSE_H */
