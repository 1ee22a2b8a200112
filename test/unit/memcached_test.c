/*
 * memcached_test.c
 *		Promise: the memcached protocols answer as memcached 1.6 does, however a
 *		stream is cut into pieces and however many requests make a batch.
 *
 * A stream is a list of requests, each with its reply.  It runs request by
 * request; then whole, in pieces of 1, 2, 3 and 7 bytes, with one request a batch
 * and with 32, and all of that must have the same replies.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dictionary.h"
#include "memcached_test.h"

#define NOW		INT64_C(1000000000)

static int	tests;
static int	failed;

void
check(bool ok, const char *name)
{
	tests++;
	failed += !ok;
	printf("%s %d - %s\n", ok ? "ok" : "not ok", tests, name);
}

static void
show(const char *what, const char *bytes, size_t length)
{
	printf("# %s \"", what);
	for (size_t i = 0; i < length && i < 400; i++)
	{
		unsigned char byte = (unsigned char) bytes[i];

		if (byte == '\r')
			printf("\\r");
		else if (byte == '\n')
			printf("\\n");
		else if (byte < ' ' || byte > '~')
			printf("\\x%02x", byte);
		else
			putchar(byte);
	}
	printf("\"\n");
}

/* A string of a table, or its bytes where they have zeroes. */
static size_t
length_of(const char *text, size_t length)
{
	return length > 0 ? length : strlen(text);
}

static void
begin(Session *session, const Stream *stream)
{
	session_begin(session, dictionary_make());
	if (stream->item_size)
		session->limits.item_size = stream->item_size;
	if (stream->memory)
		session->limits.memory = stream->memory;
	session->limits.auth = stream->auth;
	session->limits.flush_all = !stream->no_flush;
}

static void
end(Session *session)
{
	dictionary_free(session->dictionary);
	session_end(session);
}

/* Request by request. */
static bool
run_steps(const Stream *stream, Bytes *in, Bytes *out)
{
	Session		session;
	bool		ok = true;

	begin(&session, stream);
	for (const Step *step = stream->steps; step->in; step++)
	{
		size_t		in_length = length_of(step->in, step->in_length);
		size_t		out_length = length_of(step->out, step->out_length);

		session.out.length = 0;
		session_input(&session, step->in, in_length);
		if (session.out.length != out_length
			|| (out_length > 0 && memcmp(session.out.at, step->out, out_length) != 0))
		{
			show("asked ", step->in, in_length);
			show("should", step->out, out_length);
			show("said  ", session.out.at, session.out.length);
			ok = false;
		}
		bytes_put(in, step->in, in_length);
		bytes_put(out, step->out, out_length);
	}
	if (session.closed != stream->closes)
	{
		printf("# the connection %s\n", session.closed ? "was closed" : "stayed");
		ok = false;
	}
	end(&session);
	return ok;
}

static bool
run_pieces(const Stream *stream, const Bytes *in, const Bytes *out, size_t piece, int turn)
{
	Session		session;
	bool		ok;

	begin(&session, stream);
	session.turn = turn;
	for (size_t at = 0; at < in->length; at += piece)
		session_input(&session, in->at + at, in->length - at < piece ? in->length - at : piece);
	ok = session.out.length == out->length && session.closed == stream->closes
		&& (out->length == 0 || memcmp(session.out.at, out->at, out->length) == 0);
	if (!ok)
	{
		printf("# in pieces of %zu bytes, %d requests a turn\n", piece, turn);
		show("should", out->at, out->length);
		show("said  ", session.out.at, session.out.length);
	}
	end(&session);
	return ok;
}

void
run_stream(const Stream *stream)
{
	static const size_t pieces[] = {1, 2, 3, 7, SIZE_MAX};
	Bytes		in = {0};
	Bytes		out = {0};
	bool		ok = run_steps(stream, &in, &out);

	for (size_t i = 0; ok && i < sizeof(pieces) / sizeof(pieces[0]); i++)
	{
		size_t		piece = pieces[i] < in.length ? pieces[i] : in.length;

		ok = run_pieces(stream, &in, &out, piece, 1);
		if (ok && !stream->numbers)
			ok = run_pieces(stream, &in, &out, piece, 32);
	}
	check(ok, stream->name);
	free(in.at);
	free(out.at);
}

int
main(void)
{
	dictionary_now = NOW;
	test_text();
	test_meta();
	test_binary();
	test_parts();
	printf("1..%d\n", tests);
	return failed > 0;
}
