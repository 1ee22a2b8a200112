/*
 * line.c
 *		Shared by classic and meta commands: replies that are known at once, and the data after
 *		a line.
 */
#include "memcached/protocol/parse.h"

#define BAD_DATA		"CLIENT_ERROR bad data chunk"

bool
kv_mc_say(KvMcInput *in, const char *text)
{
	in->request->command = KV_MC_SAY;
	in->request->value = text;
	in->request->value_length = strlen(text);
	return true;
}

void
kv_mc_discard(KvMcRequest *request, uint16_t status, const char *text)
{
	request->command = request->replaces ? KV_MC_DISCARD : KV_MC_SAY;
	request->status = status;
	request->value = text;
	request->value_length = strlen(text);
}

bool
kv_mc_take_data(KvMcInput *in, const KvMcLine *line, size_t length)
{
	KvMcRequest *request = in->request;
	size_t		total = (size_t) (line->next - in->at) + length + 2;
	bool		too_large = length > in->limits->item_size;

	if (too_large || (in->limits->memory > 0 && total > in->limits->memory))
	{
		in->at = line->next;
		in->stream->swallow = length + 2;
		if (too_large)
			kv_mc_discard(request, KV_MC_STATUS_TOO_LARGE,
						  "SERVER_ERROR object too large for cache");
		else
			kv_mc_discard(request, KV_MC_STATUS_NO_MEMORY,
						  "SERVER_ERROR out of memory storing object");
		return true;
	}
	if ((size_t) (in->end - in->at) < total)
	{
		in->needed = total;
		return false;
	}
	in->at += total;
	if (memcmp(in->at - 2, "\r\n", 2) != 0)
		return kv_mc_say(in, BAD_DATA);
	request->value = line->next;
	request->value_length = length;
	return true;
}
