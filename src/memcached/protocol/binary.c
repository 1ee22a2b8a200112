/*
 * binary.c
 *		The binary protocol: packets with a header of 24 bytes, SASL PLAIN.
 *
 *		 0	magic 0x80		 1	opcode		 2	length of the key (2)
 *		 4	length of extras 5	data type	 6	reserved (2)
 *		 8	length of extras, key and value (4)
 *		12	opaque (4)		16	cas number (8)
 *
 * Numbers are big-endian.  A packet with impossible lengths, or with lengths that do not fit
 * its opcode, ends the connection, because the beginning of the next packet is not known.
 */
#include "memcached/protocol/parse.h"

#define HEADER_SIZE		24

typedef struct Packet
{
	const unsigned char *at;
	size_t		extras_length;
	size_t		key_length;
	size_t		body_length;
} Packet;

/*
 * Properties of an opcode.  The numbers of its extras are: flags, exptime; or delta, initial,
 * exptime.
 */
typedef struct Opcode
{
	uint8_t		opcode;
	uint8_t		quiet;			/* its quiet variant; 0: it has none */
	KvMcCommand command;
	uint8_t		extras;			/* bytes */
	bool		key;			/* there is a key; else none */
	bool		value;			/* there may be a value; else none */
	bool		with_key;		/* the reply has the key */
	bool		with_value;
} Opcode;

enum
{
	OP_VERSION = 0x0b, OP_NOOP = 0x0a, OP_FLUSH = 0x08, OP_FLUSHQ = 0x18, OP_STAT = 0x10,
	OP_SASL_LIST = 0x20, OP_SASL_AUTH = 0x21, OP_SASL_STEP = 0x22
};

static const Opcode opcodes[] = {
	{0x00, 0x09, KV_MC_GET, 0, true, false, false, true},
	{0x0c, 0x0d, KV_MC_GET, 0, true, false, true, true},
	{0x01, 0x11, KV_MC_SET, 8, true, true, false, false},
	{0x02, 0x12, KV_MC_ADD, 8, true, true, false, false},
	{0x03, 0x13, KV_MC_REPLACE, 8, true, true, false, false},
	{0x04, 0x14, KV_MC_DELETE, 0, true, false, false, false},
	{0x05, 0x15, KV_MC_INCR, 20, true, false, false, false},
	{0x06, 0x16, KV_MC_DECR, 20, true, false, false, false},
	{0x0e, 0x19, KV_MC_APPEND, 0, true, true, false, false},
	{0x0f, 0x1a, KV_MC_PREPEND, 0, true, true, false, false},
	{0x1c, 0, KV_MC_TOUCH, 4, true, false, false, false},
	{0x1d, 0x1e, KV_MC_TOUCH, 4, true, false, false, true},
	{0x23, 0x24, KV_MC_TOUCH, 4, true, false, true, true},
	{0x07, 0x17, KV_MC_QUIT, 0, false, false, false, false},
	{OP_VERSION, 0, KV_MC_VERSION, 0, false, false, false, false},
	{OP_NOOP, 0, KV_MC_SAY, 0, false, false, false, false},
};

static uint64_t
number_at(const unsigned char *at, int bytes)
{
	uint64_t	number = 0;

	while (bytes-- > 0)
		number = number << 8 | *at++;
	return number;
}

/* ---- replies that are known ---- */

/* Say an error whose packet is read to its end: left bytes of it are still to be consumed. */
static bool
say_status(KvMcInput *in, uint16_t status, const char *text, uint64_t left)
{
	in->request->status = status;
	in->stream->swallow = left;
	return kv_mc_say(in, text);
}

/* Say an error after which nothing is read. */
static bool
say_and_close(KvMcInput *in, uint16_t status, const char *text)
{
	in->request->close = true;
	in->at = in->end;
	return say_status(in, status, text, 0);
}

static bool
say_invalid(KvMcInput *in)
{
	return say_and_close(in, KV_MC_STATUS_INVALID, "Invalid arguments");
}

/* ---- SASL ---- */

/*
 * Parse PLAIN's message: authorization identity, user, password, with a zero byte between
 * them.  The identity may only be the user's.
 */
static bool
take_plain(KvMcRequest *request, const char *at, size_t length)
{
	const char *end = at + length;
	const char *user = memchr(at, 0, length);
	const char *password = user ? memchr(user + 1, 0, (size_t) (end - user - 1)) : NULL;

	if (!password)
		return false;
	request->user = user + 1;
	request->user_length = (size_t) (password - request->user);
	request->password = password + 1;
	request->password_length = (size_t) (end - request->password);
	return user == at || ((size_t) (user - at) == request->user_length
						  && memcmp(at, request->user, request->user_length) == 0);
}

/* Take the user and the password of a complete packet. */
static bool
take_secret(KvMcInput *in, const Packet *packet)
{
	KvMcStream *stream = in->stream;
	KvMcRequest *request = in->request;
	const char *key = (const char *) packet->at + HEADER_SIZE;
	bool		step = request->opcode == OP_SASL_STEP;
	bool		begun = stream->sasl_begun;
	KvMcToken	mechanism = {.at = key,.length = packet->key_length};
	const char *data = key + packet->key_length;
	size_t		length = packet->body_length - packet->key_length;

	stream->sasl_begun = false;
	stream->authenticated = false;
	if (kv_mc_is(mechanism, "PLAIN") && (!step || begun))
	{
		if (!step && length == 0)
		{
			stream->sasl_begun = true;
			return say_status(in, KV_MC_STATUS_AUTH_CONTINUE, "", 0);
		}
		if (take_plain(request, data, length))
		{
			request->command = KV_MC_AUTH;
			return true;
		}
	}
	return say_status(in, KV_MC_STATUS_AUTH_ERROR, "Auth failure.", 0);
}

/* Parse authentication, where it is required; else its opcodes are unknown. */
static bool
parse_sasl(KvMcInput *in, const Packet *packet)
{
	size_t		total = HEADER_SIZE + packet->body_length;

	if (in->request->opcode == OP_SASL_LIST)
	{
		if (packet->body_length > 0)
			return say_invalid(in);
		in->at += total;
		return say_status(in, 0, "PLAIN", 0);
	}
	if (packet->extras_length > 0 || packet->key_length == 0)
		return say_invalid(in);
	if (packet->body_length > KV_MC_MAX_SECRET)
	{
		in->at += HEADER_SIZE;
		return say_status(in, KV_MC_STATUS_AUTH_ERROR, "Auth failure.", packet->body_length);
	}
	if ((size_t) (in->end - in->at) < total)
	{
		in->needed = total;
		return false;
	}
	in->at += total;
	return take_secret(in, packet);
}

/* ---- commands ---- */

static void
take_extras(KvMcRequest *request, const unsigned char *extras)
{
	switch (request->command)
	{
		case KV_MC_SET:
		case KV_MC_ADD:
		case KV_MC_REPLACE:
			request->flags = (uint32_t) number_at(extras, 4);
			request->exptime = (int64_t) number_at(extras + 4, 4);
			break;
		case KV_MC_INCR:
		case KV_MC_DECR:
			request->delta = number_at(extras, 8);
			request->initial = number_at(extras + 8, 8);
			if (number_at(extras + 16, 4) != UINT32_MAX)
				request->vivify_exptime = (int64_t) number_at(extras + 16, 4);
			break;
		case KV_MC_TOUCH:
			request->touch = true;
			request->exptime = (int64_t) number_at(extras, 4);
			break;
		default:
			break;
	}
}

static bool
parse_opcode(KvMcInput *in, const Packet *packet, const Opcode *opcode)
{
	KvMcRequest *request = in->request;
	size_t		head = HEADER_SIZE + packet->extras_length + packet->key_length;
	size_t		value = packet->body_length - packet->extras_length - packet->key_length;
	size_t		total = HEADER_SIZE + packet->body_length;
	const char *key = (const char *) packet->at + HEADER_SIZE + packet->extras_length;
	bool		too_large = value > in->limits->item_size;

	if (packet->extras_length != opcode->extras || (packet->key_length > 0) != opcode->key
		|| (value > 0 && !opcode->value))
		return say_invalid(in);
	if (too_large || (in->limits->memory > 0 && total > in->limits->memory))
		total = head;
	if ((size_t) (in->end - in->at) < total)
	{
		in->needed = total;
		return false;
	}
	request->command = opcode->command;
	request->quiet = request->opcode == opcode->quiet && opcode->quiet != 0;
	request->with_key = opcode->with_key;
	request->with_value = opcode->with_value;
	request->close = opcode->command == KV_MC_QUIT;
	request->key = key;
	request->key_length = (uint16_t) packet->key_length;
	request->cas = number_at(packet->at + 16, 8);
	request->has_cas = request->cas != 0;
	request->replaces = request->command == KV_MC_SET;
	take_extras(request, packet->at + HEADER_SIZE);
	in->at += total;
	if (total < HEADER_SIZE + packet->body_length)
	{
		in->stream->swallow = value;
		if (too_large)
			kv_mc_discard(request, KV_MC_STATUS_TOO_LARGE, "Too large.");
		else
			kv_mc_discard(request, KV_MC_STATUS_NO_MEMORY, "Out of memory allocating item");
		return true;
	}
	request->value = key + packet->key_length;
	request->value_length = value;
	if (request->command == KV_MC_VERSION)
	{
		request->value = in->limits->version;
		request->value_length = strlen(in->limits->version);
	}
	/* with a cas number, all three are cas */
	if (request->has_cas && (request->command == KV_MC_SET || request->command == KV_MC_ADD
							 || request->command == KV_MC_REPLACE))
		request->command = KV_MC_CAS;
	return true;
}

static bool
parse_flush(KvMcInput *in, const Packet *packet)
{
	KvMcRequest *request = in->request;

	if (packet->key_length > 0 || packet->body_length != packet->extras_length
		|| (packet->extras_length != 0 && packet->extras_length != 4))
		return say_invalid(in);
	if ((size_t) (in->end - in->at) < HEADER_SIZE + packet->body_length)
	{
		in->needed = HEADER_SIZE + packet->body_length;
		return false;
	}
	in->at += HEADER_SIZE + packet->body_length;
	if (!in->limits->flush_all)
		return say_status(in, KV_MC_STATUS_AUTH_ERROR, "Auth failure.", 0);
	request->command = KV_MC_FLUSH;
	request->quiet = request->opcode == OP_FLUSHQ;
	request->exptime = (int64_t) number_at(packet->at + HEADER_SIZE, (int) packet->extras_length);
	return true;
}

static bool
parse_stat(KvMcInput *in, const Packet *packet)
{
	KvMcRequest *request = in->request;
	const char *space;

	if (packet->extras_length > 0 || packet->body_length != packet->key_length)
		return say_invalid(in);
	if ((size_t) (in->end - in->at) < HEADER_SIZE + packet->body_length)
	{
		in->needed = HEADER_SIZE + packet->body_length;
		return false;
	}
	in->at += HEADER_SIZE + packet->body_length;
	request->command = KV_MC_STATS;
	request->key = (const char *) packet->at + HEADER_SIZE;
	request->key_length = (uint16_t) packet->key_length;
	space = memchr(request->key, ' ', request->key_length);
	if (space)
	{
		/* as a text line has it */
		request->value = space + 1;
		request->value_length = (size_t) (request->key + request->key_length - request->value);
		request->key_length = (uint16_t) (space - request->key);
	}
	return true;
}

bool
kv_mc_parse_binary(KvMcInput *in)
{
	KvMcRequest *request = in->request;
	const unsigned char *at = (const unsigned char *) in->at;
	Packet		packet = {.at = at};
	uint8_t		opcode;
	bool		sasl;

	if (in->end - in->at < HEADER_SIZE)
	{
		in->needed = HEADER_SIZE;
		return false;
	}
	packet.key_length = (size_t) number_at(at + 2, 2);
	packet.extras_length = at[4];
	packet.body_length = (size_t) number_at(at + 8, 4);
	request->form = KV_MC_PACKET;
	request->opcode = opcode = at[1];
	memcpy(&request->opaque, at + 12, 4);
	sasl = opcode == OP_SASL_LIST || opcode == OP_SASL_AUTH || opcode == OP_SASL_STEP;

	if (at[0] != 0x80)
	{
		in->at = in->end;
		request->command = KV_MC_QUIT;
		request->quiet = true;
		return request->close = true;
	}
	if (packet.key_length + packet.extras_length > packet.body_length)
		return say_and_close(in, KV_MC_STATUS_UNKNOWN, "Unknown command");
	if (in->limits->auth && !in->stream->authenticated && !sasl && opcode != OP_VERSION)
		return say_and_close(in, KV_MC_STATUS_AUTH_ERROR, "Auth failure.");
	if (packet.key_length > KV_MC_MAX_KEY)
		return say_invalid(in);
	if (sasl && in->limits->auth)
		return parse_sasl(in, &packet);
	if (opcode == OP_FLUSH || opcode == OP_FLUSHQ)
		return parse_flush(in, &packet);
	if (opcode == OP_STAT)
		return parse_stat(in, &packet);
	for (size_t i = 0; i < sizeof(opcodes) / sizeof(opcodes[0]); i++)
		if (opcode == opcodes[i].opcode || (opcode == opcodes[i].quiet && opcode != 0))
			return parse_opcode(in, &packet, &opcodes[i]);
	in->at += HEADER_SIZE;
	return say_status(in, KV_MC_STATUS_UNKNOWN, "Unknown command", packet.body_length);
}
