/*
 * parse.c
 *		Entry of the parsers: which protocol it is, and bytes to be swallowed.
 */
#include "memcached/protocol/parse.h"

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
		whole = stream->protocol == KV_MC_BINARY ? kv_mc_parse_binary(&in) : kv_mc_parse_text(&in);
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
