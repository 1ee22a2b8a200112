/*
 * memcached_parts.c
 *		What streams of whole requests do not show: sizes that are announced, long
 *		lines, errors of the server, numbers, growing values.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dictionary.h"
#include "memcached/protocol/parse.h"
#include "memcached_test.h"

static const KvMcLimits limits = {.item_size = 1000,.memory = 600,.line = 2048,.get_line = 8192,
.flush_all = true,.version = "1"};

/* One call for all of a text. */
static bool
parse(KvMcStream *stream, const char *text, KvMcRequest *request, size_t *consumed, size_t *needed)
{
	return kv_mc_parse(stream, &limits, text, text + strlen(text), request, consumed, needed);
}

static void
sizes(void)
{
	KvMcStream	stream = {0};
	KvMcRequest request;
	size_t		consumed;
	size_t		needed;
	bool		ok;

	ok = !parse(&stream, "set a 0 0 50", &request, &consumed, &needed) && consumed == 0 && needed == 0
		&& !parse(&stream, "set a 0 0 500\r\nabc", &request, &consumed, &needed) && consumed == 0 && needed == 517;
	check(ok, "parts: a value says how large a buffer it needs");

	ok = parse(&stream, "set a 0 0 700\r\nabc", &request, &consumed, &needed) && consumed == 15 && stream.swallow == 702
		&& request.command == KV_MC_DISCARD && kv_mc_writes(&request)
		&& !parse(&stream, "abc", &request, &consumed, &needed) && consumed == 3 && stream.swallow == 699;
	check(ok, "parts: a value that has no room is swallowed");
	stream.swallow = 1;
	ok = parse(&stream, "\nget a b\r\n", &request, &consumed, &needed) && consumed == 7 && !request.last
		&& request.key_length == 1 && *request.key == 'a' && stream.in_get
		&& parse(&stream, "b\r\nget", &request, &consumed, &needed) && consumed == 3 && request.last && !stream.in_get;
	check(ok, "parts: the keys of a get come one by one");

	memset(&stream, 0, sizeof(stream));
	ok = !kv_mc_parse(&stream, &limits, &"\200"[0], &"\200"[0] + 1, &request, &consumed, &needed) && needed == 24;
	check(ok, "parts: a packet needs its header");
}

/* Nobody is taken at his word before his password has been looked at. */
static void
asking(void)
{
	static const char packet[24] = {(char) 0x80, 0x21, 0, 5, 0, 0, 0, 0, 0, 1, 0, 5};
	static const char text[] = "set x 0 0 11\r\nuser secret\r\nget a\r\n";
	KvMcLimits	with_auth = limits;
	KvMcStream	stream = {0};
	KvMcRequest request;
	size_t		consumed;
	size_t		needed;
	bool		ok;

	with_auth.auth = true;
	ok = kv_mc_parse(&stream, &with_auth, text, text + sizeof(text) - 1, &request, &consumed, &needed)
		&& request.command == KV_MC_AUTH && request.user_length == 4 && request.password_length == 6 && consumed == 27
		&& !kv_mc_parse(&stream, &with_auth, text + 27, text + sizeof(text) - 1, &request, &consumed, &needed) && consumed == 0;
	kv_mc_authenticated(&stream, true);
	ok = ok && kv_mc_parse(&stream, &with_auth, text + 27, text + sizeof(text) - 1, &request, &consumed, &needed)
		&& request.command == KV_MC_GET;
	check(ok, "parts: what follows a password waits for its answer");

	memset(&stream, 0, sizeof(stream));
	ok = kv_mc_parse(&stream, &with_auth, packet, packet + 24, &request, &consumed, &needed)
		&& request.command == KV_MC_SAY && request.status == KV_MC_STATUS_AUTH_ERROR && stream.swallow == 0x10005;
	check(ok, "parts: a password that is too long is not waited for");
}

static void
lines(void)
{
	Session		session;
	Bytes		line = {0};
	char		key[32];
	bool		ok;

	session_begin(&session, dictionary_make());
	session_input(&session, "set key0 0 0 1\r\nx\r\n", 19);
	for (int i = 0; i < 2000; i++)
		bytes_put(&line, key, (size_t) snprintf(key, sizeof(key), "%s key%d", i == 0 ? "gets" : "", i % 100));
	bytes_put(&line, "\r\n", 2);
	session.turn = 32;
	for (size_t at = 0; at < line.length; at++)
		session_input(&session, line.at + at, 1);
	ok = !session.closed && session.out.length == 8 + 20 * strlen("VALUE key0 0 1 1\r\nx\r\n") + 5;
	check(ok, "parts: a get has as many keys as it likes");
	session.limits.get_line = 4096;
	session_input(&session, line.at, line.length);
	check(session.closed, "parts: up to a limit");
	dictionary_free(session.dictionary);
	session_end(&session);

	memset(line.at, 'x', line.length);
	line.length = 2049;
	for (int newline = 0; newline < 2; newline++)
	{
		session_begin(&session, dictionary_make());
		if (newline)
			bytes_put(&line, "\n", 1);
		session_input(&session, line.at, line.length);
		ok = session.closed && session.out.length == 28 && memcmp(session.out.at, "CLIENT_ERROR line too long\r\n", 28) == 0;
		check(ok, newline ? "parts: other lines end at 2048 bytes" : "parts: and need no end for that");
		dictionary_free(session.dictionary);
		session_end(&session);
	}
	free(line.at);
}

/* What is said of a request if the server has failed with it. */
static bool
says(const char *text, const KvMcReply *reply, bool *silenced, const char *expected)
{
	KvMcStream	stream = {0};
	KvMcRequest request;
	char		head[KV_MC_HEAD_SIZE];
	KvMcPieces	pieces;
	size_t		consumed;
	size_t		needed;
	size_t		length = strlen(expected);

	if (!parse(&stream, text, &request, &consumed, &needed))
		return false;
	kv_mc_print(&request, reply, silenced, head, &pieces);
	return pieces.head_length == length && (length == 0 || memcmp(pieces.head, expected, length) == 0)
		&& pieces.value_length == 0 && pieces.tail_length == 0;
}

static void
failures(void)
{
	KvMcReply	error = {.outcome = KV_MC_ERROR,.value = "55P03 row\nis locked",.length = 19};
	KvMcReply	long_one = {.outcome = KV_MC_ERROR,.length = 5000};
	KvMcReply	miss = {.outcome = KV_MC_MISS};
	KvMcRequest request = {.form = KV_MC_PACKET,.command = KV_MC_SET,.opcode = 1};
	char		head[KV_MC_HEAD_SIZE];
	KvMcPieces	pieces;
	bool		silenced = false;

	check(says("set a 0 0 1\r\nx\r\n", &error, &silenced, "SERVER_ERROR 55P03 row is locked\r\n")
		  && says("set a 0 0 1 noreply\r\nx\r\n", &error, &silenced, "")
		  && says("ms a 1 q\r\nx\r\n", &error, &silenced, "SERVER_ERROR 55P03 row is locked\r\n") && !silenced,
		  "parts: an error of the server is one line");
	error.outcome = KV_MC_CLIENT_ERROR;
	check(says("mg a v\r\n", &error, &silenced, "CLIENT_ERROR 55P03 row is locked\r\n"), "parts: one of the client too");
	error.outcome = KV_MC_ERROR;
	check(says("get a b\r\n", &error, &silenced, "SERVER_ERROR 55P03 row is locked\r\n") && silenced
		  && says("get b c\r\n", &miss, &silenced, "") && silenced
		  && says("get c\r\n", &miss, &silenced, "") && !silenced, "parts: after an error a get says nothing more");

	long_one.value = calloc(1, 5000);
	kv_mc_print(&request, &long_one, &silenced, head, &pieces);
	check(pieces.head_length == 24 + 800 && head[6] == 0 && head[7] == (char) KV_MC_STATUS_INTERNAL
		  && head[10] == 3 && head[11] == 0x20, "parts: a packet's message is cut");
	free((char *) long_one.value);
}

static bool
number_is(const char *text, bool valid, uint64_t number)
{
	KvMcToken	token = {.at = text,.length = strlen(text)};
	uint64_t	got;

	return kv_mc_number(token, &got) == valid && (!valid || got == number);
}

static bool
length_is(const char *text, bool valid, size_t length)
{
	KvMcToken	token = {.at = text,.length = strlen(text)};
	size_t		got;

	return kv_mc_length(token, &got) == valid && (!valid || got == length);
}

static bool
exptime_is(const char *text, bool valid, int64_t exptime)
{
	KvMcToken	token = {.at = text,.length = strlen(text)};
	int64_t		got;

	return kv_mc_exptime(token, &got) == valid && (!valid || got == exptime);
}

static bool
value_is(const char *text, bool valid, uint64_t number)
{
	uint64_t	got;

	return kv_mc_value_number(text, strlen(text), &got) == valid && (!valid || got == number);
}

static void
numbers(void)
{
	char		text[21];

	check(number_is("0", true, 0) && number_is("+5", true, 5) && number_is("18446744073709551615", true, UINT64_MAX)
		  && number_is("00000000000000000000000000001", true, 1) && number_is("18446744073709551616", false, 0)
		  && number_is("99999999999999999999", false, 0) && number_is("", false, 0) && number_is("+", false, 0)
		  && number_is("-1", false, 0) && number_is("1 ", true, 1) && number_is("/", false, 0) && number_is(":", false, 0)
		  && number_is("-0", true, 0) && number_is("-9223372036854775808", false, 0)
		  && number_is("-9223372036854775809", true, INT64_MAX) && number_is("-18446744073709551615", true, 1)
		  && number_is("\t\v\f\r+5\tx", true, 5) && number_is("5x", false, 0) && number_is("+-5", false, 0)
		  && number_is("\t", false, 0), "parts: numbers");
	check(length_is("0", true, 0) && length_is("-0", true, 0) && length_is("2147483645", true, 2147483645)
		  && length_is("2147483646", false, 0) && length_is("4294967297", false, 0) && length_is("-1", false, 0)
		  && length_is("-4294967295", false, 0) && length_is("18446744073709551617", false, 0)
		  && length_is("x", false, 0), "parts: lengths");
	check(exptime_is("-1", true, -1) && exptime_is("2147483647", true, INT32_MAX) && exptime_is("2147483648", true, INT32_MIN)
		  && exptime_is("4294967295", true, -1) && exptime_is("4294967296", true, 0) && exptime_is("-2147483649", true, INT32_MAX)
		  && exptime_is("9223372036854775807", true, -1) && exptime_is("9223372036854775808", false, 0)
		  && exptime_is("-9223372036854775808", true, 0) && exptime_is("-9223372036854775809", false, 0)
		  && exptime_is("-+1", false, 0) && exptime_is("-", false, 0) && exptime_is("--1", false, 0), "parts: times");
	check(value_is("5", true, 5) && value_is("+5", true, 5) && value_is("5  ", true, 5) && value_is(" 5", false, 0)
		  && value_is("5\t", false, 0) && value_is("5 6", false, 0) && value_is("-5", false, 0) && value_is("  ", false, 0)
		  && value_is("18446744073709551615", true, UINT64_MAX) && value_is("", false, 0), "parts: values that are numbers");
	check(kv_mc_put_number(text, UINT64_MAX) == text + 20 && memcmp(text, "18446744073709551615", 20) == 0
		  && kv_mc_put_number(text, 0) == text + 1 && *text == '0', "parts: digits");
	check(kv_mc_expires(0, 100) == 0 && kv_mc_expires(-1, 100) == 1 && kv_mc_expires(INT64_MIN, 100) == 1
		  && kv_mc_expires(2592000, 100) == 2592100 && kv_mc_expires(2592001, 100) == 2592001
		  && kv_mc_expires(UINT32_MAX, 100) == UINT32_MAX, "parts: times of expiry");
}

static void
base64(void)
{
	char		bytes[KV_MC_MAX_KEY];
	char		text[400];
	char		back[KV_MC_MAX_KEY];
	bool		ok = true;

	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (char) (i * 37 + 11);
	for (size_t length = 1; ok && length <= 187; length++)
	{
		char	   *end = kv_mc_base64_encode(bytes, length, text);

		ok = (size_t) (end - text) == (length + 2) / 3 * 4
			&& kv_mc_base64_decode(text, (size_t) (end - text), back, length) == length && memcmp(bytes, back, length) == 0
			&& kv_mc_base64_decode(text, (size_t) (end - text), back, length - 1) == 0;
	}
	check(ok, "parts: base64 there and back");
	check(kv_mc_base64_decode("", 0, back, 9) == 0 && kv_mc_base64_decode("====", 4, back, 9) == 0
		  && kv_mc_base64_decode("A===", 4, back, 9) == 0 && kv_mc_base64_decode("AA=A", 4, back, 9) == 0
		  && kv_mc_base64_decode("AA==AAAA", 8, back, 9) == 0 && kv_mc_base64_decode("AA A", 4, back, 9) == 0,
		  "parts: what is no base64");
}

/* Memory that is taken piece by piece and given back as a whole. */
typedef struct Counted
{
	char		bytes[65536];
	size_t		used;
} Counted;

static void *
counted_alloc(void *arg, size_t size)
{
	Counted    *counted = arg;
	void	   *taken = counted->bytes + counted->used;

	if (size > sizeof(counted->bytes) - counted->used)
		abort();
	counted->used += size;
	return taken;
}

/* Appends and prepends of one turn to one value. */
static void
growing(void)
{
	static Counted memory;
	KvMcFold	fold = {.now = 1,.item_size = 1000000,.next_cas = 7,.alloc = counted_alloc,.arg = &memory};
	KvMcRequest request = {.form = KV_MC_CLASSIC,.command = KV_MC_APPEND,.vivify_exptime = KV_MC_NO_VIVIFY};
	KvMcItem	item;
	KvMcReply	reply;
	KvMcReply	early;
	static char	sent[] = "new!";	/* what is behind the value is another request */
	char	   *expected = malloc(6001);
	size_t		begin = 3000;
	size_t		end = 3001;
	bool		ok;

	kv_mc_item_set(&item, 1, "#", 1, 0, 0, 5, false, false);
	expected[3000] = '#';
	for (int i = 0; i < 3000; i++)
	{
		char		letter = (char) ('a' + i % 26);

		request.command = i / 7 % 2 ? KV_MC_PREPEND : KV_MC_APPEND;
		request.value = &letter;
		request.value_length = 1;
		kv_mc_apply(&item, &request, &fold, &reply);
		expected[request.command == KV_MC_APPEND ? end++ : --begin] = letter;
		if (i == 100)
		{
			request.command = KV_MC_GET;
			kv_mc_apply(&item, &request, &fold, &early);
		}
	}
	ok = item.length == 3001 && memcmp(item.value, expected + begin, 3001) == 0 && reply.cas == item.cas
		&& kv_mc_item_write(&item) == KV_MC_PUT && fold.next_cas == 3007;
	check(ok && memory.used < 40000, "parts: a value grows on both sides, and is not copied each time");
	check(early.length == 102 && memchr(early.value, '#', 102) != NULL, "parts: an earlier reply keeps what it had");
	free(expected);

	request.command = KV_MC_SET;
	request.value = sent;
	request.value_length = 3;
	kv_mc_apply(&item, &request, &fold, &reply);
	request.command = KV_MC_APPEND;
	request.value = "er";
	request.value_length = 2;
	kv_mc_apply(&item, &request, &fold, &reply);
	request.command = KV_MC_PREPEND;
	kv_mc_apply(&item, &request, &fold, &reply);
	check(item.length == 7 && memcmp(item.value, "ernewer", 7) == 0 && strcmp(sent, "new!") == 0,
		  "parts: a value that was sent does not grow in its place");
}

static void
turns(void)
{
	KvMcFold	fold = {.now = 100,.item_size = 100,.next_cas = 7,.alloc = counted_alloc};
	KvMcRequest request = {.command = KV_MC_DELETE,.vivify_exptime = KV_MC_NO_VIVIFY};
	KvMcItem	item = {0};
	KvMcReply	reply;
	bool		ok;

	kv_mc_apply(&item, &request, &fold, &reply);
	ok = reply.outcome == KV_MC_MISS && kv_mc_item_write(&item) == KV_MC_KEEP;
	request.command = KV_MC_SET;
	request.exptime = -1;
	request.value = "";
	kv_mc_apply(&item, &request, &fold, &reply);
	ok = ok && reply.outcome == KV_MC_DONE && kv_mc_item_write(&item) == KV_MC_KEEP;
	check(ok, "parts: what was not there and is gone again is not written");

	kv_mc_item_set(&item, 100, NULL, 0, 0, 100, 5, false, false);
	request.command = KV_MC_GET;
	kv_mc_apply(&item, &request, &fold, &reply);
	ok = reply.outcome == KV_MC_MISS && item.row && kv_mc_item_write(&item) == KV_MC_KEEP;
	request.command = KV_MC_SET;
	kv_mc_apply(&item, &request, &fold, &reply);
	ok = ok && kv_mc_item_write(&item) == KV_MC_REMOVE;
	check(ok, "parts: a row that has expired stays until it is written");

	kv_mc_item_set(&item, 100, "1", 1, 0, 200, 5, false, false);
	item.expires_rounded = true;
	request.command = KV_MC_APPEND;
	kv_mc_apply(&item, &request, &fold, &reply);
	ok = item.changed && item.expires == 200 && item.expires_rounded;
	kv_mc_item_set(&item, 100, "1", 1, 0, 200, 5, false, false);
	request.command = KV_MC_TOUCH;
	request.touch = true;
	request.exptime = 100;
	kv_mc_apply(&item, &request, &fold, &reply);
	ok = ok && !item.changed;
	item.expires_rounded = true;
	kv_mc_apply(&item, &request, &fold, &reply);
	check(ok && item.changed && item.expires == 200 && !item.expires_rounded,
		  "parts: a row's own time stays until another is set, be it the same second");
	request.touch = false;

	kv_mc_item_set(&item, 100, "x", 1, 0, 0, 5, true, false);
	request.command = KV_MC_META_GET;
	fold.read_only = true;
	kv_mc_apply(&item, &request, &fold, &reply);
	ok = reply.stale && !reply.won && !reply.won_before && kv_mc_item_write(&item) == KV_MC_KEEP && !kv_mc_writes(&request);
	check(ok, "parts: mg of a stale item writes nothing where nothing may be written");
}

void
test_parts(void)
{
	sizes();
	asking();
	lines();
	failures();
	numbers();
	base64();
	growing();
	turns();
}
