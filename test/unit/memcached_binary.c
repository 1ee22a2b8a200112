/*
 * memcached_binary.c
 *		The binary protocol's packets.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "memcached_test.h"

#define MOST_STEPS	64
#define K50		"kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk"
#define K250	K50 K50 K50 K50 K50

enum
{
	GET, SET, ADD, REPLACE, DELETE, INCR, DECR, QUIT, FLUSH, GETQ, NOOP, VERSION, GETK, GETKQ, APPEND, PREPEND,
	STAT, SETQ, ADDQ, REPLACEQ, DELETEQ, INCRQ, DECRQ, QUITQ, FLUSHQ, APPENDQ, PREPENDQ,
	TOUCH = 0x1c, GAT, GATQ, SASL_LIST = 0x20, SASL_AUTH, SASL_STEP, GATK, GATKQ
};

static Step steps[MOST_STEPS + 1];
static int	n;

/* Appends a packet to a string of a step. */
static void
packet(const char **to, size_t *length, int magic, int opcode, int status, const char *extras, size_t extras_length,
	   const char *key, const char *value, size_t value_length, uint64_t cas)
{
	size_t		key_length = strlen(key);
	size_t		body = extras_length + key_length + value_length;
	char	   *bytes = realloc((char *) *to, *length + 24 + body);
	char	   *at = bytes + *length;

	if (!bytes)
		abort();
	memset(at, 0, 24);
	at[0] = (char) magic;
	at[1] = (char) opcode;
	at[2] = (char) (key_length >> 8);
	at[3] = (char) key_length;
	at[4] = (char) extras_length;
	at[7] = (char) status;
	for (int i = 0; i < 4; i++)
		at[8 + i] = (char) (body >> (24 - 8 * i));
	memcpy(at + 12, "\1opq", 4);
	for (int i = 0; i < 8; i++)
		at[16 + i] = (char) (cas >> (56 - 8 * i));
	memcpy(at + 24, extras, extras_length);
	memcpy(at + 24 + extras_length, key, key_length);
	memcpy(at + 24 + extras_length + key_length, value, value_length);
	*to = bytes;
	*length += 24 + body;
}

/* A request; what it is answered follows by the calls of answer. */
static void
ask(int opcode, const char *extras, size_t extras_length, const char *key, const char *value, uint64_t cas)
{
	if (n == MOST_STEPS)
		abort();
	packet(&steps[n].in, &steps[n].in_length, 0x80, opcode, 0, extras, extras_length, key, value, strlen(value), cas);
	if (!steps[n].out)
		steps[n].out = calloc(1, 1);
	n++;
}

static void
answer(int status, const char *extras, size_t extras_length, const char *key, const char *value, size_t length, uint64_t cas)
{
	Step	   *step = &steps[n - 1];

	packet(&step->out, &step->out_length, 0x81, (unsigned char) step->in[1], status, extras, extras_length, key, value,
		   length, cas);
}

#define ASK(opcode, extras, key, value, cas)	ask(opcode, extras, sizeof(extras) - 1, key, value, cas)
#define OK(cas)			answer(0, "", 0, "", "", 0, cas)
#define HIT(flags, key, value, cas)		answer(0, flags, 4, key, value, strlen(value), cas)
#define NUMBER(bytes, cas)	answer(0, "", 0, "", bytes, 8, cas)
#define FAILS(status, text)	answer(status, "", 0, "", text, strlen(text), 0)
#define NOT_FOUND		FAILS(1, "Not found")
#define EXISTS			FAILS(2, "Data exists for key.")
#define INVALID			FAILS(4, "Invalid arguments")
#define NOT_STORED		FAILS(5, "Not stored.")
#define REFUSED			FAILS(0x20, "Auth failure.")
#define UNKNOWN			FAILS(0x81, "Unknown command")

#define ZERO8	"\0\0\0\0\0\0\0\0"
#define FOR_EVER	"\0\0\0\0"
#define NONE	"\xff\xff\xff\xff"

static void
run(Stream stream)
{
	stream.steps = steps;
	run_stream(&stream);
	for (int i = 0; i < n; i++)
	{
		free((char *) steps[i].in);
		free((char *) steps[i].out);
	}
	memset(steps, 0, sizeof(steps));
	n = 0;
}

static void
storing(void)
{
	ASK(GET, "", "a", "", 0), NOT_FOUND;
	ASK(GETK, "", "a", "", 0), answer(1, "", 0, "a", "", 0, 0);
	ASK(GETQ, "", "a", "", 0);
	ASK(GETKQ, "", "a", "", 0);
	ASK(SET, "\0\0\0\5" FOR_EVER, "a", "one", 0), OK(1);
	ASK(GET, "", "a", "", 0), HIT("\0\0\0\5", "", "one", 1);
	ASK(GETQ, "", "a", "", 0), HIT("\0\0\0\5", "", "one", 1);
	ASK(GETK, "", "a", "", 0), HIT("\0\0\0\5", "a", "one", 1);
	ASK(GETKQ, "", "a", "", 0), HIT("\0\0\0\5", "a", "one", 1);
	ASK(ADD, ZERO8, "a", "two", 0), EXISTS;
	ASK(ADD, ZERO8, "b", "two", 0), OK(2);
	ASK(REPLACE, ZERO8, "c", "two", 0), NOT_FOUND;
	ASK(REPLACE, ZERO8, "b", "", 0), OK(3);
	ASK(GET, "", "b", "", 0), HIT("\0\0\0\0", "", "", 3);
	ASK(SET, ZERO8, "a", "1", 9), EXISTS;
	ASK(SET, ZERO8, "a", "1", 1), OK(4);
	ASK(SET, ZERO8, "c", "1", 1), NOT_FOUND;
	ASK(REPLACE, ZERO8, "a", "1", 9), EXISTS;
	ASK(APPEND, "", "a", "2", 9), EXISTS;
	ASK(APPEND, "", "a", "2", 4), OK(5);
	ASK(PREPEND, "", "a", "0", 0), OK(6);
	ASK(APPEND, "", "c", "2", 0), NOT_STORED;
	ASK(PREPEND, "", "c", "2", 0), NOT_STORED;
	ASK(GET, "", "a", "", 0), HIT("\0\0\0\0", "", "012", 6);
	ASK(SETQ, ZERO8, "a", "x", 0);
	ASK(ADDQ, ZERO8, "a", "x", 0), EXISTS;
	ASK(REPLACEQ, ZERO8, "a", "y", 0);
	ASK(APPENDQ, "", "a", "z", 0);
	ASK(PREPENDQ, "", "c", "z", 0), NOT_STORED;
	ASK(GET, "", "a", "", 0), HIT("\0\0\0\0", "", "yz", 9);
	ASK(DELETE, "", "a", "", 1), EXISTS;
	ASK(DELETE, "", "a", "", 9), OK(0);
	ASK(DELETE, "", "a", "", 0), NOT_FOUND;
	ASK(DELETEQ, "", "a", "", 0), NOT_FOUND;
	ASK(DELETEQ, "", "b", "", 0);
	ASK(SET, "\0\0\0\0\0\0\0\144", K250, "x", 0), OK(10);
	ASK(GET, "", K250, "", 0), HIT("\0\0\0\0", "", "x", 10);
	run((Stream) {.name = "binary: what is stored is got",.numbers = true});
}

static void
counting(void)
{
#define BY1		"\0\0\0\0\0\0\0\1"
	ASK(INCR, BY1 ZERO8 NONE, "n", "", 0), NOT_FOUND;
	ASK(INCRQ, BY1 ZERO8 NONE, "n", "", 0), NOT_FOUND;
	ASK(INCR, BY1 "\0\0\0\0\0\0\0\7" FOR_EVER, "n", "", 0), NUMBER("\0\0\0\0\0\0\0\7", 1);
	ASK(INCR, BY1 "\0\0\0\0\0\0\0\7" FOR_EVER, "n", "", 0), NUMBER("\0\0\0\0\0\0\0\10", 2);
	ASK(DECR, "\0\0\0\0\0\0\0\11" ZERO8 NONE, "n", "", 0), NUMBER(ZERO8, 3);
	ASK(INCR, BY1 ZERO8 NONE, "n", "", 9), EXISTS;
	ASK(INCR, "\xff\xff\xff\xff\xff\xff\xff\xff" ZERO8 NONE, "n", "", 3),
		NUMBER("\xff\xff\xff\xff\xff\xff\xff\xff", 4);
	ASK(INCRQ, BY1 ZERO8 NONE, "n", "", 0);
	ASK(DECRQ, BY1 ZERO8 NONE, "n", "", 0);
	ASK(GET, "", "n", "", 0), HIT("\0\0\0\0", "", "0", 6);
	ASK(SET, ZERO8, "n", "hi", 0), OK(7);
	ASK(INCRQ, BY1 ZERO8 NONE, "n", "", 0), FAILS(6, "Non-numeric server-side value for incr or decr");
	run((Stream) {.name = "binary: increment and decrement",.numbers = true});
}

/* A time has no sign here: as memcached has it, the largest is a time in 2106. */
static void
expiring(void)
{
#define TOP		"\x80\0\0\0"
#define MONTH	"\0\x27\x8d\0"			/* 30 days */
#define PAST	"\0\x27\x8d\1"
	ASK(SET, "\0\0\0\0" NONE, "a", "x", 0), OK(1);
	ASK(GET, "", "a", "", 0), HIT("\0\0\0\0", "", "x", 1);
	ASK(SET, NONE TOP, "a", "x", 0), OK(2);
	ASK(GET, "", "a", "", 0), HIT(NONE, "", "x", 2);
	ASK(GAT, MONTH, "a", "", 0), HIT(NONE, "", "x", 3);
	ASK(GAT, NONE, "a", "", 0), HIT(NONE, "", "x", 4);
	ASK(GAT, PAST, "a", "", 0), HIT(NONE, "", "x", 4);
	ASK(GET, "", "a", "", 0), NOT_FOUND;
	ASK(INCR, BY1 ZERO8 TOP, "n", "", 0), NUMBER(ZERO8, 5);
	ASK(GET, "", "n", "", 0), HIT("\0\0\0\0", "", "0", 5);
	ASK(FLUSH, TOP, "", "", 0), OK(0);
	ASK(GET, "", "n", "", 0), HIT("\0\0\0\0", "", "0", 5);
	ASK(INCR, BY1 ZERO8 PAST, "m", "", 0), NUMBER(ZERO8, 0);
	ASK(GET, "", "m", "", 0), NOT_FOUND;
	run((Stream) {.name = "binary: times of expiry",.numbers = true});
}

static void
touching(void)
{
	ASK(TOUCH, FOR_EVER, "a", "", 0), NOT_FOUND;
	ASK(GAT, FOR_EVER, "a", "", 0), NOT_FOUND;
	ASK(GATK, FOR_EVER, "a", "", 0), answer(1, "", 0, "a", "", 0, 0);
	ASK(GATQ, FOR_EVER, "a", "", 0);
	ASK(GATKQ, FOR_EVER, "a", "", 0);
	ASK(SET, "\0\0\0\5" FOR_EVER, "a", "x", 0), OK(1);
	ASK(TOUCH, "\0\0\0\12", "a", "", 0), HIT("\0\0\0\5", "", "", 2);
	ASK(GAT, "\0\0\0\12", "a", "", 0), HIT("\0\0\0\5", "", "x", 2);
	ASK(GATKQ, "\0\0\0\13", "a", "", 0), HIT("\0\0\0\5", "a", "x", 3);
	ASK(FLUSH, FOR_EVER, "", "", 0), OK(0);
	ASK(GET, "", "a", "", 0), NOT_FOUND;
	ASK(FLUSHQ, "", "", "", 0);
	ASK(NOOP, "", "", "", 0), OK(0);
	ASK(VERSION, "", "", "", 0), answer(0, "", 0, "", "1.6.18", 6, 0);
	ASK(STAT, "", "", "", 0), answer(0, "", 0, "pid", "1", 1, 0), OK(0);
	ASK(STAT, "", "reset", "", 0), OK(0);
	ASK(STAT, "", "reset all", "", 0), OK(0);
	ASK(STAT, "", "nonsense", "", 0), NOT_FOUND;
	ASK(0x7f, "", "", "", 0), UNKNOWN;
	ASK(0x7e, "ex", "key", "value", 0), UNKNOWN;
	ASK(SASL_LIST, "", "", "", 0), UNKNOWN;
	ASK(SASL_AUTH, "", "PLAIN", "xuserxsecret", 0), UNKNOWN;
	ASK(NOOP, "", "", "", 0), OK(0);
	ASK(QUITQ, "", "", "", 0);
	ASK(NOOP, "", "", "", 0);
	run((Stream) {.name = "binary: touch, flush, version, stat, quit",.numbers = true,.closes = true});
	ASK(FLUSH, "", "", "", 0), REFUSED;
	ASK(QUIT, "", "", "", 0), OK(0);
	run((Stream) {.name = "binary: flush where it is not allowed",.no_flush = true,.closes = true});
}

/* Each ends the connection. */
static void
wrong(void)
{
	ASK(GET, "", "", "", 0), INVALID;
	ASK(NOOP, "", "", "", 0);
	run((Stream) {.name = "binary: a get without a key",.closes = true});
	ASK(GET, "", "a", "value", 0), INVALID;
	run((Stream) {.name = "binary: a get with a value",.closes = true});
	ASK(SET, "\0\0\0\0", "a", "x", 0), INVALID;
	run((Stream) {.name = "binary: a set with half its extras",.closes = true});
	ASK(GET, "", K250 "x", "", 0), INVALID;
	run((Stream) {.name = "binary: a key that is too long",.closes = true});
	ASK(NOOP, "", "a", "", 0), INVALID;
	run((Stream) {.name = "binary: a noop with a key",.closes = true});
	ASK(GET, "", "a", "", 0), UNKNOWN;
	((char *) steps[0].in)[4] = 1;
	run((Stream) {.name = "binary: lengths that do not agree",.closes = true});
	ASK(NOOP, "", "", "", 0), OK(0);
	ASK(NOOP, "", "", "", 0);
	((char *) steps[1].in)[0] = 0x7f;
	run((Stream) {.name = "binary: no packet",.closes = true});
	ASK(SET, ZERO8, "a", "1", 0), OK(1);
	ASK(SET, ZERO8, "b", "0123456789x", 0), FAILS(3, "Too large.");
	ASK(APPEND, "", "a", "0123456789", 0), NOT_STORED;
	ASK(ADD, ZERO8, "a", "0123456789x", 0), FAILS(3, "Too large.");
	ASK(GET, "", "a", "", 0), HIT("\0\0\0\0", "", "1", 1);
	ASK(SETQ, ZERO8, "a", "0123456789x", 0), FAILS(3, "Too large.");
	ASK(GET, "", "a", "", 0), NOT_FOUND;
	run((Stream) {.name = "binary: values that are too large",.item_size = 10,.numbers = true});
}

static void
authenticating(void)
{
#define SECRET(text) \
	packet(&steps[n].in, &steps[n].in_length, 0x80, SASL_AUTH, 0, "", 0, "PLAIN", text, sizeof(text) - 1, 0), \
	steps[n].out = calloc(1, 1), n++
	ASK(VERSION, "", "", "", 0), answer(0, "", 0, "", "1.6.18", 6, 0);
	ASK(SASL_LIST, "", "", "", 0), answer(0, "", 0, "", "PLAIN", 5, 0);
	SECRET("\0user\0wrong"), REFUSED;
	SECRET("user\0secret"), REFUSED;
	SECRET("other\0user\0secret"), REFUSED;
	ASK(SASL_AUTH, "", "CRAM-MD5", "", 0), REFUSED;
	ASK(SASL_STEP, "", "PLAIN", "", 0), REFUSED;
	SECRET("\0user\0secret"), ((char *) steps[n - 1].in)[1] = SASL_STEP, REFUSED;
	ASK(SASL_AUTH, "", "PLAIN", "", 0), FAILS(0x21, "");
	SECRET("\0user\0secret"), answer(0, "", 0, "", "Authenticated", 13, 0);
	((char *) steps[n - 1].in)[1] = ((char *) steps[n - 1].out)[1] = SASL_STEP;
	ASK(SET, ZERO8, "a", "1", 0), OK(1);
	SECRET("user\0user\0secret"), answer(0, "", 0, "", "Authenticated", 13, 0);
	ASK(GET, "", "a", "", 0), HIT("\0\0\0\0", "", "1", 1);
	ASK(SASL_AUTH, "", "CRAM-MD5", "", 0), REFUSED;
	ASK(GET, "", "a", "", 0), REFUSED;
	run((Stream) {.name = "binary: SASL PLAIN",.auth = true,.numbers = true,.closes = true});
}

void
test_binary(void)
{
	storing();
	counting();
	expiring();
	touching();
	wrong();
	authenticating();
}
