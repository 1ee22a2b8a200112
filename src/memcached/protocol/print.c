/*
 * print.c
 *		Replies to bytes: classic lines, meta lines, packets.
 */
#include "memcached/protocol/parse.h"

#define HEADER_SIZE		24
#define LONGEST_MESSAGE	800		/* bytes of an ERROR's message; the rest is for what precedes it */

static const char not_numeric[] = "CLIENT_ERROR cannot increment or decrement non-numeric value";

static char *
put(char *to, const char *bytes, size_t length)
{
	memcpy(to, bytes, length);
	return to + length;
}

static char *
put_text(char *to, const char *text)
{
	return put(to, text, strlen(text));
}

/* Put a message in one line, cut to what fits. */
static char *
put_message(char *to, const KvMcReply *reply)
{
	size_t		length = reply->length < LONGEST_MESSAGE ? reply->length : LONGEST_MESSAGE;

	for (size_t i = 0; i < length; i++)
		*to++ = (unsigned char) reply->value[i] < ' ' ? ' ' : reply->value[i];
	return to;
}

static bool
is_error(const KvMcReply *reply)
{
	return reply->outcome == KV_MC_ERROR || reply->outcome == KV_MC_CLIENT_ERROR;
}

/* Finish a line of text that is the whole reply, errors included. */
static void
finish_line(KvMcPieces *pieces, char *head, char *to)
{
	to = put(to, "\r\n", 2);
	pieces->head = head;
	pieces->head_length = (size_t) (to - head);
}

static void
set_tail(KvMcPieces *pieces, const char *tail)
{
	pieces->tail = tail;
	pieces->tail_length = strlen(tail);
}

static void
set_value(KvMcPieces *pieces, const KvMcReply *reply)
{
	pieces->value = reply->value;
	pieces->value_length = reply->length;
}

static void
print_error(const KvMcReply *reply, char *head, KvMcPieces *pieces)
{
	char	   *to = put_text(head,
							  reply->outcome == KV_MC_ERROR ? "SERVER_ERROR " : "CLIENT_ERROR ");

	finish_line(pieces, head, put_message(to, reply));
}

/* ---- classic ---- */

static void
print_classic_value(const KvMcRequest *request, const KvMcReply *reply, char *head,
					KvMcPieces *pieces)
{
	char	   *to = head;

	if (reply->outcome == KV_MC_HIT)
	{
		to = put(to, "VALUE ", 6);
		to = put(to, kv_mc_key(request), request->key_length);
		*to++ = ' ';
		to = kv_mc_put_number(to, reply->flags);
		*to++ = ' ';
		to = kv_mc_put_number(to, reply->length);
		if (request->with_cas)
		{
			*to++ = ' ';
			to = kv_mc_put_number(to, reply->cas);
		}
		finish_line(pieces, head, to);
		set_value(pieces, reply);
		set_tail(pieces, request->last ? "\r\nEND\r\n" : "\r\n");
	}
	else if (request->last)
		set_tail(pieces, "END\r\n");
}

/* The word for the outcome of a command that replies with one word. */
static const char *
classic_word(const KvMcRequest *request, const KvMcReply *reply)
{
	switch (reply->outcome)
	{
		case KV_MC_HIT:
			return "TOUCHED";
		case KV_MC_MISS:
			return request->command == KV_MC_STATS ? "ERROR" : "NOT_FOUND";
		case KV_MC_NOT_STORED:
			return "NOT_STORED";
		case KV_MC_EXISTS:
			return "EXISTS";
		case KV_MC_NOT_NUMERIC:
			return not_numeric;
		case KV_MC_REFUSED:
			return request->command == KV_MC_AUTH ? "CLIENT_ERROR authentication failure" :
				"CLIENT_ERROR flush_all not allowed";
		default:
			break;
	}
	switch (request->command)
	{
		case KV_MC_DELETE:
			return "DELETED";
		case KV_MC_FLUSH:
			return "OK";
		case KV_MC_STATS:
			return "END";
		default:
			return "STORED";
	}
}

static void
print_classic(const KvMcRequest *request, const KvMcReply *reply, bool *silenced, char *head,
			  KvMcPieces *pieces)
{
	bool		of_get = kv_mc_has_item(request) && request->with_value;
	bool		silent = of_get && *silenced;

	if (of_get)
		*silenced = !request->last && (silent || is_error(reply));
	if (silent || request->noreply || request->command == KV_MC_QUIT)
		return;
	if (is_error(reply))
		print_error(reply, head, pieces);
	else if (request->command == KV_MC_SAY || request->command == KV_MC_DISCARD)
		finish_line(pieces, head, put(head, request->value, request->value_length));
	else if (request->command == KV_MC_VERSION)
		finish_line(pieces, head,
					put(put_text(head, "VERSION "), request->value, request->value_length));
	else if (of_get)
		print_classic_value(request, reply, head, pieces);
	else if (reply->outcome == KV_MC_NUMBER || (request->command == KV_MC_STATS && reply->value))
		finish_line(pieces, head, put_message(head, reply));
	else
		finish_line(pieces, head, put_text(head, classic_word(request, reply)));
}

/* ---- meta ---- */

static char *
put_meta_key(char *to, const KvMcRequest *request)
{
	if (request->key_in_base64)
		return kv_mc_base64_encode(request->decoded, request->key_length, to);
	return put(to, request->key, request->key_length);
}

static char *
put_ttl(char *to, int64_t ttl)
{
	return ttl < 0 ? put(to, "-1", 2) : kv_mc_put_number(to, (uint64_t) ttl);
}

/* Put a flag of the reply, if the reply has one for this flag of the request. */
static char *
put_flag(char *to, const KvMcRequest *request, const KvMcReply *reply, const char *flag,
		 size_t length, int64_t ttl)
{
	bool		got = request->command == KV_MC_META_GET && reply->outcome == KV_MC_HIT;
	bool		counted = reply->outcome == KV_MC_NUMBER;
	bool		stores = request->command <= KV_MC_CAS;

	switch (*flag)
	{
		case 'O':
			*to++ = ' ';
			return put(to, flag, length);
		case 'k':
			to = put_meta_key(put(to, " k", 2), request);
			return request->key_in_base64 ? put(to, " b", 2) : to;
		case 'c':
			return got || counted || stores ? kv_mc_put_number(put(to, " c", 2), reply->cas) : to;
		case 't':
			return got || counted ? put_ttl(put(to, " t", 2), ttl) : to;
		case 's':
			return got ? kv_mc_put_number(put(to, " s", 2), reply->length) : to;
		case 'f':
			return got ? kv_mc_put_number(put(to, " f", 2), reply->flags) : to;
		default:
			return to;
	}
}

/* The flags of a reply, in the order of the request's. */
static char *
put_flags(char *to, const KvMcRequest *request, const KvMcReply *reply)
{
	const char *at = request->options_length > 0 ? request->options : "";
	const char *end = at + request->options_length;
	int64_t		ttl = reply->ttl;	/* as the flags so far have set it */

	while (at < end)
	{
		const char *space = memchr(at, ' ', (size_t) (end - at));
		size_t		length = (size_t) ((space ? space : end) - at);

		if (length > 0)
		{
			if (*at == 'T')
				ttl = reply->ttl_touched;
			else if (*at == 'N' && reply->created)
				ttl = reply->ttl_made;
			to = put_flag(to, request, reply, at, length, ttl);
		}
		at += length + 1;
	}
	if (reply->won_before)
		to = put(to, " Z", 2);
	if (reply->stale)
		to = put(to, " X", 2);
	return reply->won ? put(to, " W", 2) : to;
}

/* Is the outcome one that a quiet request does not report? */
static bool
is_usual(const KvMcRequest *request, const KvMcReply *reply)
{
	if (request->command == KV_MC_META_GET)
		return reply->outcome == KV_MC_MISS;
	return reply->outcome == KV_MC_DONE || reply->outcome == KV_MC_NUMBER;
}

static const char *
meta_word(const KvMcRequest *request, const KvMcReply *reply)
{
	switch (reply->outcome)
	{
		case KV_MC_MISS:
			return request->command == KV_MC_META_GET ? "EN" : "NF";
		case KV_MC_NOT_STORED:
			return "NS";
		case KV_MC_EXISTS:
			return "EX";
		default:
			return "HD";
	}
}

static void
print_debug(const KvMcRequest *request, const KvMcReply *reply, char *head, KvMcPieces *pieces)
{
	char	   *to = put(head, "ME ", 3);

	if (reply->outcome != KV_MC_HIT)
	{
		finish_line(pieces, head, put(head, "EN", 2));
		return;
	}
	to = put_ttl(put_text(put_meta_key(to, request), " exp="), reply->ttl);
	to = kv_mc_put_number(put_text(to, " cas="), reply->cas);
	finish_line(pieces, head, kv_mc_put_number(put_text(to, " size="), reply->length));
}

static void
print_meta(const KvMcRequest *request, const KvMcReply *reply, char *head, KvMcPieces *pieces)
{
	bool		valued = request->with_value
		&& (reply->outcome == KV_MC_NUMBER ||
			(reply->outcome == KV_MC_HIT && request->command == KV_MC_META_GET));
	char	   *to;

	if (is_error(reply))
		print_error(reply, head, pieces);
	else if (request->command == KV_MC_SAY || request->command == KV_MC_DISCARD)
		finish_line(pieces, head, put(head, request->value, request->value_length));
	else if (reply->outcome == KV_MC_NOT_NUMERIC)
		finish_line(pieces, head, put_text(head, not_numeric));
	else if (request->command == KV_MC_META_DEBUG)
		print_debug(request, reply, head, pieces);
	else if (!request->quiet || !is_usual(request, reply))
	{
		to = valued ? kv_mc_put_number(put(head, "VA ", 3), reply->length)
			: put_text(head, meta_word(request, reply));
		finish_line(pieces, head, put_flags(to, request, reply));
		if (valued)
		{
			set_value(pieces, reply);
			set_tail(pieces, "\r\n");
		}
	}
}

/* ---- packets ---- */

static char *
put_big(char *to, uint64_t number, int bytes)
{
	for (int i = bytes; i-- > 0;)
		*to++ = (char) (number >> (8 * i));
	return to;
}

/* Put a header, after which the rest of the packet is put. */
static char *
put_header(char *to, const KvMcRequest *request, uint16_t status, uint8_t extras, size_t key,
		   size_t body, uint64_t cas)
{
	*to++ = (char) 0x81;
	*to++ = (char) request->opcode;
	to = put_big(to, key, 2);
	*to++ = (char) extras;
	*to++ = 0;					/* raw bytes */
	to = put_big(to, status, 2);
	to = put_big(to, body, 4);
	to = put(to, (const char *) &request->opaque, 4);
	return put_big(to, cas, 8);
}

static void
finish_packet(KvMcPieces *pieces, char *head, char *to)
{
	pieces->head = head;
	pieces->head_length = (size_t) (to - head);
}

/* Print a packet of a status with a text. */
static void
print_status(const KvMcRequest *request, uint16_t status, const char *text, size_t length,
			 char *head, KvMcPieces *pieces)
{
	char	   *to = put_header(head, request, status, 0, 0, length, 0);

	finish_packet(pieces, head, put(to, text, length));
}

static void
print_packet_error(const KvMcRequest *request, const KvMcReply *reply, char *head,
				   KvMcPieces *pieces)
{
	char	   *to = head + HEADER_SIZE;
	size_t		length = (size_t) (put_message(to, reply) - to);
	uint16_t	status = reply->status ? reply->status :
		reply->outcome == KV_MC_ERROR ? KV_MC_STATUS_INTERNAL : KV_MC_STATUS_INVALID;

	put_header(head, request, status, 0, 0, length, 0);
	finish_packet(pieces, head, to + length);
}

/* The status of a request that failed, and its text. */
static uint16_t
failure(const KvMcRequest *request, const KvMcReply *reply, const char **text)
{
	KvMcOutcome outcome = reply->outcome;

	if (outcome == KV_MC_NOT_STORED && request->command == KV_MC_ADD)
		outcome = KV_MC_EXISTS;
	if (outcome == KV_MC_NOT_STORED && request->command == KV_MC_REPLACE)
		outcome = KV_MC_MISS;
	switch (outcome)
	{
		case KV_MC_MISS:
			*text = "Not found";
			return KV_MC_STATUS_NOT_FOUND;
		case KV_MC_EXISTS:
			*text = "Data exists for key.";
			return KV_MC_STATUS_EXISTS;
		case KV_MC_NOT_NUMERIC:
			*text = "Non-numeric server-side value for incr or decr";
			return KV_MC_STATUS_NOT_NUMERIC;
		case KV_MC_REFUSED:
			*text = "Auth failure.";
			return KV_MC_STATUS_AUTH_ERROR;
		default:
			*text = "Not stored.";
			return KV_MC_STATUS_NOT_STORED;
	}
}

/* Print the reply of a get or a touch. */
static void
print_packet_value(const KvMcRequest *request, const KvMcReply *reply, char *head,
				   KvMcPieces *pieces)
{
	bool		hit = reply->outcome == KV_MC_HIT;
	size_t		key = request->with_key ? request->key_length : 0;
	size_t		value = hit && request->with_value ? reply->length : 0;
	uint8_t		extras = hit ? 4 : 0;
	char	   *to;

	if (!hit && request->quiet)
		return;
	if (!hit && !request->with_key)
	{
		print_status(request, KV_MC_STATUS_NOT_FOUND, "Not found", 9, head, pieces);
		return;
	}
	to = put_header(head, request, hit ? 0 : KV_MC_STATUS_NOT_FOUND, extras, key,
					extras + key + value,
					hit ? reply->cas : 0);
	if (hit)
		to = put_big(to, reply->flags, 4);
	finish_packet(pieces, head, put(to, request->key, key));
	if (value > 0)
		set_value(pieces, reply);
}

static void
print_packet(const KvMcRequest *request, const KvMcReply *reply, char *head, KvMcPieces *pieces)
{
	bool		stored = kv_mc_has_item(request) && request->command != KV_MC_DELETE;
	const char *text;
	uint16_t	status;

	if (is_error(reply))
		print_packet_error(request, reply, head, pieces);
	else if (request->command == KV_MC_SAY || request->command == KV_MC_VERSION ||
			 request->command == KV_MC_DISCARD)
		print_status(request, request->status, request->value, request->value_length, head, pieces);
	else if (request->command == KV_MC_GET || request->command == KV_MC_TOUCH)
		print_packet_value(request, reply, head, pieces);
	else if (reply->outcome == KV_MC_DONE && request->command == KV_MC_AUTH)
		print_status(request, 0, "Authenticated", 13, head, pieces);
	else if (request->command == KV_MC_QUIT || reply->outcome == KV_MC_DONE)
	{
		if (!request->quiet)
			finish_packet(pieces, head,
						  put_header(head, request, 0, 0, 0, 0, stored ? reply->cas : 0));
	}
	else if (reply->outcome == KV_MC_NUMBER)
	{
		if (!request->quiet)
			finish_packet(pieces, head,
						  put_big(put_header(head, request, 0, 0, 0, 8, reply->cas), reply->number,
								  8));
	}
	else
	{
		status = failure(request, reply, &text);
		print_status(request, status, text, strlen(text), head, pieces);
	}
}

/* ---- all ---- */

void
kv_mc_print(const KvMcRequest *request, const KvMcReply *reply, bool *silenced, char *head,
			KvMcPieces *pieces)
{
	memset(pieces, 0, sizeof(KvMcPieces));
	switch (request->form)
	{
		case KV_MC_CLASSIC:
			print_classic(request, reply, silenced, head, pieces);
			break;
		case KV_MC_META:
			print_meta(request, reply, head, pieces);
			break;
		case KV_MC_PACKET:
			print_packet(request, reply, head, pieces);
			break;
	}
}

size_t
kv_mc_print_stat(const KvMcRequest *request, const char *name, const char *value, char *head)
{
	size_t		name_length = strlen(name);
	size_t		value_length = strlen(value);
	char	   *to = head;

	if (name_length > KV_MC_MAX_KEY)
		name_length = KV_MC_MAX_KEY;
	if (value_length > LONGEST_MESSAGE - KV_MC_MAX_KEY)
		value_length = LONGEST_MESSAGE - KV_MC_MAX_KEY;
	if (request->form == KV_MC_PACKET)
	{
		to = put_header(to, request, 0, 0, name_length, name_length + value_length, 0);
		to = put(put(to, name, name_length), value, value_length);
	}
	else
	{
		to = put(put(to, "STAT ", 5), name, name_length);
		*to++ = ' ';
		to = put(put(to, value, value_length), "\r\n", 2);
	}
	return (size_t) (to - head);
}
