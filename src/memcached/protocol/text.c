/*
 * text.c
 *		The text protocol: lines, and the classic commands; and the entry of all parsers.
 *
 * The errors of the text protocol are memcached 1.6's, to the letter.  As in memcached, after
 * some errors the data of a command are read as the next line: after those that are found before
 * the length of the data is known, and those about the key.
 */
#include "memcached/protocol/parse.h"

#define BAD_LINE		"CLIENT_ERROR bad command line format"
#define BAD_EXPTIME		"CLIENT_ERROR invalid exptime argument"

/* ---- lines ---- */

/* The next token of [at, end), which ends at a space; of length 0: there is none. */
static KvMcToken
next_token(const char *at, const char *end)
{
	KvMcToken	token;
	const char *space;

	while (at < end && *at == ' ')
		at++;
	space = memchr(at, ' ', (size_t) (end - at));
	token.at = at;
	token.length = (size_t) ((space ? space : end) - at);
	return token;
}

static void
split(const char *at, KvMcLine *line)
{
	for (line->n = 0; line->n < KV_MC_MAX_TOKENS; line->n++)
	{
		KvMcToken	token = next_token(at, line->end);

		if (token.length == 0)
			return;
		line->tokens[line->n] = token;
		at = token.at + token.length;
	}
	line->tokens[line->n - 1].length = (size_t) (line->end - line->tokens[line->n - 1].at);
}

/* The end of the text of a line that ends with this newline. */
static const char *
text_end(const char *begin, const char *newline)
{
	return newline > begin && newline[-1] == '\r' ? newline - 1 : newline;
}

/* Is a line too long to be read?  Those of gets may be longer, because they have many keys. */
static bool
too_long(const KvMcInput *in, size_t length)
{
	KvMcToken	first;

	if (length <= in->limits->line)
		return false;
	first = next_token(in->at, in->at + in->limits->line);
	return length > in->limits->get_line
		|| !(kv_mc_is(first, "get") || kv_mc_is(first, "gets") || kv_mc_is(first, "gat") ||
			 kv_mc_is(first, "gats"));
}

/* ---- get, gets, gat, gats ---- */

#define EACH_BYTE(byte)	(UINT64_C(0x0101010101010101) * (byte))

/* Find the first byte that is a space or a control character, eight at a time; there is one. */
static const char *
find_low(const char *at, const char *end)
{
	for (; end - at >= 8; at += 8)
	{
		uint64_t	word;
		uint64_t	low;

		/* borrows propagate upwards: the lowest marked byte is right, higher ones may not be */
		memcpy(&word, at, 8);
		low = (word - EACH_BYTE(' ' + 1)) & ~word & EACH_BYTE(0x80);
		if (low != 0)
			return at + __builtin_ctzll(low) / 8;
	}
	while ((unsigned char) *at > ' ')
		at++;
	return at;
}

/* Take the next key of a get's line; there is one. */
static bool
take_key(KvMcInput *in)
{
	KvMcStream *stream = in->stream;
	KvMcRequest *request = in->request;
	const char *at = in->at;

	while (*at == ' ')
		at++;
	request->key = at;
	for (at = find_low(at, in->end);
		 *at != ' ' && *at != '\n' && !(at[0] == '\r' && at[1] == '\n');)
		at = find_low(at + 1, in->end);
	request->key_length = (uint16_t) (at - request->key);
	while (*at == ' ')
		at++;
	if (*at == '\r' && at[1] == '\n')
		at++;
	if (*at == '\n')
	{
		request->last = true;
		at++;
	}
	in->at = at;
	stream->in_get = !request->last;
	request->command = stream->get_touch ? KV_MC_TOUCH : KV_MC_GET;
	request->with_value = true;
	request->with_cas = stream->get_cas;
	request->touch = stream->get_touch;
	request->exptime = stream->get_exptime;
	return true;
}

static bool
parse_get(KvMcInput *in, const KvMcLine *line)
{
	KvMcStream *stream = in->stream;
	KvMcToken	name = line->tokens[0];
	KvMcToken	key = line->tokens[1];
	const char *first;

	stream->get_cas = name.at[name.length - 1] == 's';
	stream->get_touch = kv_mc_is(name, "gat") || kv_mc_is(name, "gats");
	if (stream->get_touch)
	{
		key = next_token(key.at, line->end);	/* the first key, which may be the last of many */
		if (!kv_mc_exptime(key, &stream->get_exptime))
		{
			in->at = line->next;
			return kv_mc_say(in, BAD_EXPTIME);
		}
		key = next_token(key.at + key.length, line->end);
		if (key.length == 0)
		{
			in->at = line->next;
			return kv_mc_say(in, "END");
		}
	}
	first = key.at;
	for (; key.length > 0; key = next_token(key.at + key.length, line->end))
		if (key.length > KV_MC_MAX_KEY)
		{
			in->at = line->next;
			return kv_mc_say(in, BAD_LINE);
		}
	in->at = first;
	return take_key(in);
}

/* ---- the other commands ---- */

/* Take the key of a command: its first argument. */
static bool
take_name(KvMcInput *in, const KvMcLine *line)
{
	if (line->tokens[1].length > KV_MC_MAX_KEY)
		return false;
	in->request->key = line->tokens[1].at;
	in->request->key_length = (uint16_t) line->tokens[1].length;
	return true;
}

static bool
parse_store(KvMcInput *in, const KvMcLine *line)
{
	KvMcRequest *request = in->request;
	const KvMcToken *tokens = line->tokens;
	size_t		length;

	if (!take_name(in, line)
		|| !kv_mc_number32(tokens[2], &request->flags)
		|| !kv_mc_exptime(tokens[3], &request->exptime)
		|| !kv_mc_length(tokens[4], &length)
		|| (request->command == KV_MC_CAS && !kv_mc_number(tokens[5], &request->cas)))
	{
		in->at = line->next;
		return kv_mc_say(in, BAD_LINE);
	}
	request->has_cas = request->command == KV_MC_CAS;
	request->replaces = request->command == KV_MC_SET;
	return kv_mc_take_data(in, line, length);
}

static bool
parse_delete(KvMcInput *in, const KvMcLine *line)
{
	bool		zero = line->n > 2 && kv_mc_is(line->tokens[2], "0");
	bool		noreply = in->request->noreply;

	if ((line->n == 3 && !zero && !noreply) || (line->n == 4 && !(zero && noreply)))
		return kv_mc_say(in, BAD_LINE ".  Usage: delete <key> [noreply]");
	return take_name(in, line) || kv_mc_say(in, BAD_LINE);
}

static bool
parse_arithmetic(KvMcInput *in, const KvMcLine *line)
{
	if (!take_name(in, line))
		return kv_mc_say(in, BAD_LINE);
	return kv_mc_number(line->tokens[2], &in->request->delta)
		|| kv_mc_say(in, "CLIENT_ERROR invalid numeric delta argument");
}

static bool
parse_touch(KvMcInput *in, const KvMcLine *line)
{
	in->request->touch = true;
	if (!take_name(in, line))
		return kv_mc_say(in, BAD_LINE);
	return kv_mc_exptime(line->tokens[2], &in->request->exptime) || kv_mc_say(in, BAD_EXPTIME);
}

static bool
parse_flush(KvMcInput *in, const KvMcLine *line)
{
	if (!in->limits->flush_all)
		return kv_mc_say(in, "CLIENT_ERROR flush_all not allowed");
	return line->n == (in->request->noreply ? 2 : 1)
		|| kv_mc_exptime(line->tokens[1], &in->request->exptime) || kv_mc_say(in, BAD_EXPTIME);
}

static bool
parse_stats(KvMcInput *in, const KvMcLine *line)
{
	KvMcRequest *request = in->request;

	if (line->n == 1)
		return true;
	if (!take_name(in, line))
		return kv_mc_say(in, "ERROR");
	request->value = request->key + request->key_length;
	while (request->value < line->end && *request->value == ' ')
		request->value++;
	request->value_length = (size_t) (line->end - request->value);
	return true;
}

/* Parse cache_memlimit, which has no effect: nothing is evicted to save memory. */
static bool
parse_memlimit(KvMcInput *in, const KvMcLine *line)
{
	uint64_t	number;
	uint32_t	megabytes;

	if (!kv_mc_number(line->tokens[1], &number))
		return kv_mc_say(in, "ERROR");
	megabytes = (uint32_t) number;	/* as memcached truncates it */
	return kv_mc_say(in, megabytes < 8 ? "MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m" :
					 megabytes > 1000000000
					 ? "MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes" : "OK");
}

static bool
parse_verbosity(KvMcInput *in, const KvMcLine *line)
{
	uint64_t	level;

	return kv_mc_say(in, kv_mc_number(line->tokens[1], &level) ? "OK" : BAD_LINE);
}

static bool
parse_version(KvMcInput *in, const KvMcLine *line)
{
	(void) line;
	in->request->value = in->limits->version;
	in->request->value_length = strlen(in->limits->version);
	return true;
}

static bool
parse_quit(KvMcInput *in, const KvMcLine *line)
{
	(void) line;
	return in->request->close = true;
}

static bool
parse_shutdown(KvMcInput *in, const KvMcLine *line)
{
	(void) line;
	return kv_mc_say(in, "ERROR: shutdown not enabled");
}

static bool
parse_watch(KvMcInput *in, const KvMcLine *line)
{
	(void) line;
	return kv_mc_say(in, "CLIENT_ERROR watch commands not allowed");
}

static bool
parse_crawler(KvMcInput *in, const KvMcLine *line)
{
	return kv_mc_say(in, line->n > 2 ? "CLIENT_ERROR lru crawler disabled" : "ERROR");
}

static bool
parse_slabs(KvMcInput *in, const KvMcLine *line)
{
	uint64_t	mode;

	if (line->n == 4 && kv_mc_is(line->tokens[1], "reassign"))
		return kv_mc_say(in, "CLIENT_ERROR slab reassignment disabled");
	if (line->n > 2 && kv_mc_is(line->tokens[1], "automove") &&
		!kv_mc_number(line->tokens[2], &mode))
		return kv_mc_say(in, BAD_LINE);
	return kv_mc_say(in, "ERROR");
}

/* ---- which command it is ---- */

typedef struct Classic
{
	const char *name;
	int			least;			/* least tokens, the name included */
	int			most;			/* most tokens, noreply included */
	KvMcCommand command;
	bool		(*parse) (KvMcInput *in, const KvMcLine *line);
	bool		on_line;		/* the line is the whole command */
} Classic;

#define ANY_TOKENS	KV_MC_MAX_TOKENS

static const Classic classics[] = {
	{"get", 2, ANY_TOKENS, KV_MC_GET, parse_get, false},
	{"set", 5, 6, KV_MC_SET, parse_store, false},
	{"gets", 2, ANY_TOKENS, KV_MC_GET, parse_get, false},
	{"delete", 2, 4, KV_MC_DELETE, parse_delete, true},
	{"incr", 3, 4, KV_MC_INCR, parse_arithmetic, true},
	{"add", 5, 6, KV_MC_ADD, parse_store, false},
	{"cas", 6, 7, KV_MC_CAS, parse_store, false},
	{"decr", 3, 4, KV_MC_DECR, parse_arithmetic, true},
	{"touch", 3, 4, KV_MC_TOUCH, parse_touch, true},
	{"gat", 2, ANY_TOKENS, KV_MC_TOUCH, parse_get, false},
	{"gats", 2, ANY_TOKENS, KV_MC_TOUCH, parse_get, false},
	{"replace", 5, 6, KV_MC_REPLACE, parse_store, false},
	{"append", 5, 6, KV_MC_APPEND, parse_store, false},
	{"prepend", 5, 6, KV_MC_PREPEND, parse_store, false},
	{"stats", 1, ANY_TOKENS, KV_MC_STATS, parse_stats, true},
	{"version", 1, ANY_TOKENS, KV_MC_VERSION, parse_version, true},
	{"quit", 1, ANY_TOKENS, KV_MC_QUIT, parse_quit, true},
	{"flush_all", 1, 3, KV_MC_FLUSH, parse_flush, true},
	{"verbosity", 2, 3, KV_MC_SAY, parse_verbosity, true},
	{"cache_memlimit", 2, 3, KV_MC_SAY, parse_memlimit, true},
	{"bget", 2, ANY_TOKENS, KV_MC_GET, parse_get, false},	/* an old name of get */
	{"shutdown", 1, ANY_TOKENS, KV_MC_SAY, parse_shutdown, true},
	{"watch", 1, ANY_TOKENS, KV_MC_SAY, parse_watch, true},
	{"lru_crawler", 1, ANY_TOKENS, KV_MC_SAY, parse_crawler, true},
	{"slabs", 1, ANY_TOKENS, KV_MC_SAY, parse_slabs, true},
};

static bool
parse_classic(KvMcInput *in, const KvMcLine *line)
{
	KvMcToken	last = line->tokens[line->n - 1];

	for (size_t i = 0; i < sizeof(classics) / sizeof(classics[0]); i++)
	{
		const Classic *classic = &classics[i];

		if (!kv_mc_is(line->tokens[0], classic->name))
			continue;
		if (line->n < classic->least || line->n > classic->most)
			break;
		if (classic->most != ANY_TOKENS)
			in->request->noreply = kv_mc_is(last, "noreply");
		in->request->command = classic->command;
		if (classic->on_line)
			in->at = line->next;
		return classic->parse(in, line);
	}
	in->at = line->next;
	/* a browser that was directed here: nothing that follows is executed */
	if (last.length >= 5 && memcmp(last.at, "HTTP/", 5) == 0)
	{
		in->request->command = KV_MC_QUIT;
		return in->request->close = true;
	}
	return kv_mc_say(in, "ERROR");
}

/* ---- authentication: set KEY FLAGS EXPTIME LENGTH, and "user password" as data ---- */

static bool
parse_auth(KvMcInput *in, const KvMcLine *line)
{
	KvMcRequest *request = in->request;
	KvMcLine	secret;
	uint32_t	length;
	size_t		total;

	if (line->n < 5 || !kv_mc_is(line->tokens[0], "set") ||
		!kv_mc_number32(line->tokens[4], &length))
	{
		in->at = line->next;
		return kv_mc_say(in, "CLIENT_ERROR unauthenticated");
	}
	if (length > KV_MC_MAX_SECRET)
	{
		in->at = line->next;
		in->stream->swallow = (uint64_t) length + 2;
		return kv_mc_say(in, "CLIENT_ERROR auth token too long");
	}
	total = (size_t) (line->next - in->at) + length + 2;
	if ((size_t) (in->end - in->at) < total)
	{
		in->needed = total;
		return false;
	}
	in->at += total;
	secret.end = in->at - 2;
	if (memcmp(secret.end, "\r\n", 2) != 0)
		return kv_mc_say(in, "CLIENT_ERROR bad command line termination");
	split(line->next, &secret);
	if (secret.n < 2)
		return kv_mc_say(in, "CLIENT_ERROR bad authentication token format");
	request->command = KV_MC_AUTH;
	request->user = secret.tokens[0].at;
	request->user_length = secret.tokens[0].length;
	request->password = secret.tokens[1].at;
	request->password_length = secret.tokens[1].length;
	return true;
}

/* Parse a command, from in->at on; returns as kv_mc_parse_binary does. */
static bool
parse_text(KvMcInput *in)
{
	KvMcStream *stream = in->stream;
	size_t		there = (size_t) (in->end - in->at);
	const char *newline;
	KvMcLine	line;

	if (stream->in_get)
		return take_key(in);
	newline = stream->scanned < there
		? memchr(in->at + stream->scanned, '\n', there - stream->scanned) : NULL;
	if (too_long(in, newline ? (size_t) (newline - in->at) : there))
	{
		in->at = in->end;
		in->request->close = true;
		return kv_mc_say(in, "CLIENT_ERROR line too long");
	}
	stream->scanned = newline ? 0 : there;
	if (!newline)
		return false;
	line.next = newline + 1;
	line.end = text_end(in->at, newline);
	split(in->at, &line);
	if (in->limits->auth && !stream->authenticated)
		return parse_auth(in, &line);
	if (line.n == 0 || line.tokens[0].length < 2)
	{
		in->at = line.next;
		return kv_mc_say(in, "ERROR");
	}
	if (line.tokens[0].length == 2 && line.tokens[0].at[0] == 'm')
		return kv_mc_parse_meta(in, &line);
	return parse_classic(in, &line);
}

/* ---- the entry of all parsers ---- */

#define FIRST_OF_A_PACKET	((char) 0x80)

bool
kv_mc_parse(KvMcStream *stream, const KvMcLimits *limits, const char *begin, const char *end,
			KvMcRequest *request, size_t *consumed, size_t *needed)
{
	KvMcInput	in = {.stream = stream,.limits = limits,.at = begin,.end = end,.request = request};
	bool		whole = false;

	*consumed = *needed = 0;
	if (stream->closed || stream->auth_asked)
		return false;
	if (stream->swallow > 0)
	{
		uint64_t	there = (uint64_t) (end - begin);

		if (there > stream->swallow)
			there = stream->swallow;
		stream->swallow -= there;
		in.at += there;
	}
	if (in.at < end)
	{
		memset(request, 0, offsetof(KvMcRequest, decoded));
		request->vivify_exptime = KV_MC_NO_VIVIFY;
		if (stream->protocol == KV_MC_UNKNOWN)
			stream->protocol = *in.at == FIRST_OF_A_PACKET ? KV_MC_BINARY : KV_MC_TEXT;
		whole = stream->protocol == KV_MC_BINARY ? kv_mc_parse_binary(&in) : parse_text(&in);
		if (whole && request->close)
			stream->closed = true;
		if (whole && request->command == KV_MC_AUTH)
			stream->auth_asked = true;
	}
	*consumed = (size_t) (in.at - begin);
	*needed = in.needed;
	return whole;
}

void
kv_mc_authenticated(KvMcStream *stream, bool ok)
{
	stream->auth_asked = false;
	stream->authenticated = ok;
}
