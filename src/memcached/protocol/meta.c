/*
 * meta.c
 *		The meta commands of the text protocol: mg, ms, md, ma, mn, me.
 *
 * Their flags stay in the line; print.c goes through them once more, because a
 * reply has its flags in the order of the request's.
 */
#include "memcached/protocol/parse.h"

#define BAD_LINE	"CLIENT_ERROR bad command line format"
#define BAD_TOKEN	"CLIENT_ERROR bad token in command line format"
#define MOST_TOKENS	19			/* of a meta command */

static const char invalid_flag[] = "CLIENT_ERROR invalid flag";
static const char unsupported_flag[] = "CLIENT_ERROR unsupported flag";

/* Take the number of seconds that follows a flag. */
static bool
take_exptime(KvMcToken token, int64_t *exptime, const char **wrong)
{
	if (kv_mc_exptime(token, exptime))
		return true;
	*wrong = BAD_TOKEN;
	return false;
}

static bool
take_key_in_base64(KvMcRequest *request, const char **wrong)
{
	size_t		length = kv_mc_base64_decode(request->key, request->key_length, request->decoded,
											 sizeof(request->decoded));

	request->key_in_base64 = true;
	request->key_length = (uint16_t) length;
	if (length > 0)
		return true;
	*wrong = "CLIENT_ERROR error decoding key";
	return false;
}

/*
 * Flags that are checked together when each flag alone is known to be right: memcached reports
 * an error of a single flag before an error of their combination.
 */
typedef struct KvMcLate
{
	bool		has_mode;
	char		mode;			/* the argument of M */
	bool		long_opaque;
} KvMcLate;

/*
 * Set the mode of ms and ma, whose letters differ; the other commands ignore it.  NULL: it is
 * right.
 */
static const char *
set_mode(KvMcRequest *request, const KvMcLate *late)
{
	bool		store = request->command == KV_MC_SET;
	char		mode = late->mode;

	if (!late->has_mode || (!store && request->command != KV_MC_INCR))
		return NULL;
	if (store && mode == 'E')
		request->command = KV_MC_ADD;
	else if (store && mode == 'A')
		request->command = KV_MC_APPEND;
	else if (store && mode == 'P')
		request->command = KV_MC_PREPEND;
	else if (store && mode == 'R')
		request->command = KV_MC_REPLACE;
	else if (!store && (mode == 'D' || mode == '-'))
		request->command = KV_MC_DECR;
	else if (store ? mode != 'S' : mode != 'I' && mode != '+')
		return store ? "CLIENT_ERROR invalid mode for ms M token"
			: "CLIENT_ERROR invalid mode for ma M token";
	return NULL;
}

/* Take a flag with its argument.  A known flag that the command ignores is no error. */
static bool
take_flag(KvMcRequest *request, char flag, KvMcToken token, KvMcLate *late, const char **wrong)
{
	switch (flag)
	{
		case 'b':
			return take_key_in_base64(request, wrong);
		case 'N':
			return take_exptime(token, &request->vivify_exptime, wrong);
		case 'T':
			request->touch = true;
			request->touch_made = request->vivify_exptime != KV_MC_NO_VIVIFY;
			return take_exptime(token, &request->exptime, wrong);
		case 'R':
			request->recache = true;
			request->recache_touched = request->touch;
			return take_exptime(token, &request->recache_exptime, wrong);
		case 'F':
			return kv_mc_number32(token, &request->flags);
		case 'C':
			*wrong = BAD_TOKEN;
			return request->has_cas = kv_mc_number(token, &request->cas);
		case 'M':
			*wrong = "CLIENT_ERROR incorrect length for M token";
			late->has_mode = token.length == 1;
			late->mode = late->has_mode ? *token.at : 0;
			return late->has_mode;
		case 'J':
			*wrong = "CLIENT_ERROR invalid numeric initial value";
			return kv_mc_number(token, &request->initial);
		case 'D':
			*wrong = "CLIENT_ERROR invalid numeric delta value";
			return kv_mc_number(token, &request->delta);
		case 'O':
			late->long_opaque = token.length > KV_MC_MAX_OPAQUE;
			return true;
		case 'I':
			return request->stale = true;
		case 'v':
			return request->with_value = true;
		case 'q':
			return request->quiet = true;
		case 'c':
		case 'f':
		case 'k':
		case 's':
		case 't':
		case 'u':
		case 'L':
		case 'P':
			return true;
		case 'E':
		case 'h':
		case 'l':
			*wrong = unsupported_flag;
			return false;
		default:
			*wrong = invalid_flag;
			return false;
	}
}

/*
 * Take the flags from this token on.  NULL: all are right; else the error of the last wrong
 * one, or of the first that is no flag.
 */
static const char *
take_flags(KvMcRequest *request, const KvMcLine *line, int first, KvMcLate *late)
{
	const char *wrong = NULL;
	bool		seen[128] = {false};

	if (first < line->n)
	{
		request->options = line->tokens[first].at;
		request->options_length = (size_t) (line->end - request->options);
	}
	for (int i = first; i < line->n; i++)
	{
		KvMcToken	token = line->tokens[i];
		unsigned char flag = (unsigned char) *token.at++;
		const char *here = wrong ? wrong : BAD_LINE;

		token.length--;
		if (flag >= 127 || seen[flag])
			return "CLIENT_ERROR duplicate flag";
		seen[flag] = true;
		if (!take_flag(request, (char) flag, token, late, &here))
			wrong = here;
		if (wrong == invalid_flag || wrong == unsupported_flag)
			return wrong;
	}
	return wrong;
}

/* Check the combination of flags; NULL: it is right, else the error. */
static const char *
take_late(KvMcRequest *request, const KvMcLate *late)
{
	const char *wrong = set_mode(request, late);

	return wrong != NULL || !late->long_opaque ? wrong : "CLIENT_ERROR opaque token too long";
}

static bool
parse_set(KvMcInput *in, const KvMcLine *line)
{
	KvMcRequest *request = in->request;
	const char *wrong = NULL;
	KvMcLate	late = {0};
	size_t		length;

	request->command = KV_MC_SET;
	if (line->n > MOST_TOKENS)
		wrong = "CLIENT_ERROR options flags too long";
	else if (line->n < 3 || !kv_mc_length(line->tokens[2], &length))
		wrong = BAD_LINE;
	if (wrong)
	{
		in->at = line->next;
		return kv_mc_say(in, wrong);
	}
	wrong = take_flags(request, line, 3, &late);
	if (wrong == NULL)
		wrong = take_late(request, &late);
	if (wrong)
	{
		in->at = line->next;
		in->stream->swallow = (uint64_t) length + 2;
		return kv_mc_say(in, wrong);
	}
	request->replaces = request->command == KV_MC_SET;
	if (request->has_cas && (request->replaces || request->command == KV_MC_REPLACE))
		request->command = KV_MC_CAS;
	return kv_mc_take_data(in, line, length);
}

/* Parse mg, md and ma, which are complete in their line. */
static bool
parse_line(KvMcInput *in, const KvMcLine *line, KvMcCommand command)
{
	KvMcRequest *request = in->request;
	const char *wrong;
	KvMcLate	late = {0};

	in->at = line->next;
	request->command = command;
	request->delta = 1;
	if (line->n > MOST_TOKENS)
		return kv_mc_say(in, command == KV_MC_META_GET ? "CLIENT_ERROR options flags are too long" :
						 "CLIENT_ERROR options flags too long");
	wrong = take_flags(request, line, 2, &late);
	if (wrong == NULL)
		wrong = take_late(request, &late);
	else if (command != KV_MC_META_GET)
		wrong = "CLIENT_ERROR invalid or duplicate flag";
	if (wrong)
		return kv_mc_say(in, wrong);
	return true;
}

static bool
parse_debug(KvMcInput *in, const KvMcLine *line)
{
	const char *wrong;

	in->at = line->next;
	in->request->command = KV_MC_META_DEBUG;
	if (line->n > 2 && kv_mc_is(line->tokens[2], "b") && !take_key_in_base64(in->request, &wrong))
		return kv_mc_say(in, BAD_LINE);
	return true;
}

bool
kv_mc_parse_meta(KvMcInput *in, const KvMcLine *line)
{
	KvMcRequest *request = in->request;
	char		letter = line->tokens[0].at[1];
	const char *wrong = NULL;

	request->form = KV_MC_META;
	if (letter == 'n')
		wrong = "MN";
	else if (letter != 'g' && letter != 's' && letter != 'd' && letter != 'a' && letter != 'e')
		wrong = "ERROR";
	else if (line->n < 2)
		wrong = letter == 'e' ? BAD_LINE : "ERROR";
	else if (line->tokens[1].length > KV_MC_MAX_KEY)
		wrong = BAD_LINE;
	if (wrong)
	{
		in->at = line->next;
		return kv_mc_say(in, wrong);
	}
	request->key = line->tokens[1].at;
	request->key_length = (uint16_t) line->tokens[1].length;
	switch (letter)
	{
		case 'g':
			return parse_line(in, line, KV_MC_META_GET);
		case 's':
			return parse_set(in, line);
		case 'd':
			return parse_line(in, line, KV_MC_DELETE);
		case 'a':
			return parse_line(in, line, KV_MC_INCR);
		default:
			return parse_debug(in, line);
	}
}
