/*
 * number.c
 *		Numbers and base64 in the protocols.
 */
#include "memcached/protocol/parse.h"

bool
kv_mc_number(KvMcToken token, uint64_t *number)
{
	size_t		i = token.length > 0 && token.at[0] == '+' ? 1 : 0;

	*number = 0;
	if (i == token.length)
		return false;
	for (; i < token.length; i++)
	{
		unsigned	digit = (unsigned char) token.at[i] - '0';

		if (digit > 9 || *number > (UINT64_MAX - digit) / 10)
			return false;
		*number = *number * 10 + digit;
	}
	return true;
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
kv_mc_signed(KvMcToken token, int64_t *number)
{
	bool		negative = token.length > 0 && token.at[0] == '-';
	uint64_t	magnitude;

	if (negative)
	{
		token.at++;
		token.length--;
		if (token.length > 0 && token.at[0] == '+')
			return false;
	}
	if (!kv_mc_number(token, &magnitude) || magnitude > INT64_MAX)
		return false;
	*number = negative ? -(int64_t) magnitude : (int64_t) magnitude;
	return true;
}

bool
kv_mc_value_number(const char *value, size_t length, uint64_t *number)
{
	KvMcToken	token;

	while (length > 0 && value[length - 1] == ' ')
		length--;
	token.at = value;
	token.length = length;
	return kv_mc_number(token, number);
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
	static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

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
