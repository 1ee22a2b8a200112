/*
 * line.c
 *		Shared by the parsers: replies that are known at once, the data after a line, numbers and
 *		base64.
 */
#include "memcached/protocol/parse.h"

/* ---- replies and data ---- */

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

/* ---- numbers and base64 ---- */

/* Read a number of digits alone; false: it is none, or has more than 64 bits. */
static bool
read_digits(const char *at, size_t length, uint64_t *number)
{
	*number = 0;
	for (size_t i = 0; i < length; i++)
	{
		unsigned	digit = (unsigned char) at[i] - '0';

		if (digit > 9 || *number > (UINT64_MAX - digit) / 10)
			return false;
		*number = *number * 10 + digit;
	}
	return length > 0;
}

/* White space, as in the locale C. */
static bool
is_space(char byte)
{
	return byte == ' ' || (byte >= '\t' && byte <= '\r');
}

/*
 * Read a number as memcached does with strtol: white space, a sign, digits, and then nothing or
 * white space, whatever follows that.
 */
static bool
read_number(KvMcToken token, bool *negative, uint64_t *magnitude)
{
	const char *at = token.at;
	const char *end = at + token.length;
	const char *digits;

	while (at < end && is_space(*at))
		at++;
	*negative = at < end && *at == '-';
	if (at < end && (*at == '-' || *at == '+'))
		at++;
	digits = at;
	while (at < end && !is_space(*at))
		at++;
	return read_digits(digits, (size_t) (at - digits), magnitude);
}

bool
kv_mc_number(KvMcToken token, uint64_t *number)
{
	bool		negative;

	if (!read_number(token, &negative, number))
		return false;
	/* memcached refuses a minus only if strtoul's result has the highest bit */
	if (negative)
		*number = -*number;
	return !negative || *number <= INT64_MAX;
}

bool
kv_mc_number32(KvMcToken token, uint32_t *number)
{
	uint64_t	wide;

	if (!kv_mc_number(token, &wide) || wide > UINT32_MAX)
		return false;
	*number = (uint32_t) wide;
	return true;
}

bool
kv_mc_length(KvMcToken token, size_t *length)
{
	bool		negative;
	uint64_t	magnitude;

	if (!read_number(token, &negative, &magnitude) || magnitude > KV_MC_MAX_VALUE
		|| (negative && magnitude > 0))
		return false;
	*length = (size_t) magnitude;
	return true;
}

bool
kv_mc_exptime(KvMcToken token, int64_t *exptime)
{
	bool		negative;
	uint64_t	magnitude;

	if (!read_number(token, &negative, &magnitude)
		|| magnitude > (uint64_t) INT64_MAX + (negative ? 1 : 0))
		return false;
	*exptime = (int32_t) (uint32_t) (negative ? -magnitude : magnitude);
	return true;
}

bool
kv_mc_value_number(const char *value, size_t length, uint64_t *number)
{
	while (length > 0 && value[length - 1] == ' ')
		length--;
	if (length > 0 && *value == '+')
		return read_digits(value + 1, length - 1, number);
	return read_digits(value, length, number);
}

char *
kv_mc_put_number(char *to, uint64_t number)
{
	char		digits[20];
	int			n = 0;

	if (number < 10)
	{
		*to++ = (char) ('0' + number);
		return to;
	}
	do
		digits[n++] = '0' + number % 10;
	while ((number /= 10) > 0);
	while (n > 0)
		*to++ = digits[--n];
	return to;
}

/* The six bits of a letter; -1: it is none. */
static int
base64_bits(char letter)
{
	if (letter >= 'A' && letter <= 'Z')
		return letter - 'A';
	if (letter >= 'a' && letter <= 'z')
		return letter - 'a' + 26;
	if (letter >= '0' && letter <= '9')
		return letter - '0' + 52;
	return letter == '+' ? 62 : letter == '/' ? 63 : -1;
}

size_t
kv_mc_base64_decode(const char *text, size_t length, char *to, size_t room)
{
	size_t		n = 0;
	size_t		padding = 0;
	uint32_t	bits = 0;

	if (length == 0 || length % 4 != 0)
		return 0;
	while (padding < 2 && text[length - 1 - padding] == '=')
		padding++;
	if (length / 4 * 3 - padding > room)
		return 0;
	for (size_t i = 0; i < length - padding; i++)
	{
		int			letter = base64_bits(text[i]);

		if (letter < 0)
			return 0;
		bits = bits << 6 | (uint32_t) letter;
		if (i % 4 > 0)
			to[n++] = (char) (bits >> (6 - i % 4 * 2));
	}
	return n;
}

char *
kv_mc_base64_encode(const char *bytes, size_t length, char *to)
{
	static const char letters[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

	for (size_t i = 0; i < length; i += 3)
	{
		size_t		n = length - i < 3 ? length - i : 3;
		uint32_t	bits = 0;

		for (size_t j = 0; j < 3; j++)
			bits = bits << 8 | (j < n ? (unsigned char) bytes[i + j] : 0);
		for (size_t j = 0; j < 4; j++)
			*to++ = j <= n ? letters[bits >> (18 - 6 * j) & 63] : '=';
	}
	return to;
}
