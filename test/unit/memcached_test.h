/*
 * memcached_test.h
 *		See memcached_test.c.
 */
#ifndef KV_TEST_MEMCACHED_TEST_H
#define KV_TEST_MEMCACHED_TEST_H

#include <stdbool.h>
#include <stddef.h>

/* A request and its reply; lengths where they have zero bytes. */
typedef struct Step
{
	const char *in;
	const char *out;
	size_t		in_length;
	size_t		out_length;
} Step;

typedef struct Stream
{
	const char *name;
	const Step *steps;			/* ends with {0} */
	bool		closes;			/* the connection at its end */
	bool		numbers;		/* cas numbers are looked at, which depend on the batches */
	bool		auth;
	bool		no_flush;
	size_t		item_size;		/* 0: 1 MB */
	size_t		memory;
} Stream;

/* A test of its own, and a stream as one. */
extern void check(bool ok, const char *name);
extern void run_stream(const Stream *stream);

extern void test_text(void);
extern void test_meta(void);
extern void test_binary(void);
extern void test_parts(void);

#endif							/* KV_TEST_MEMCACHED_TEST_H */
