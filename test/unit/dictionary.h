/*
 * dictionary.h
 *		A memcached server that is a dictionary in memory, behind src/memcached's
 *		protocols: what the front end is, without PostgreSQL and the engine.
 *
 * It does what the front end does: takes requests for a turn, looks at each key
 * once, does all requests of the turn to the items, writes what has changed, and
 * only then prints the replies, with the numbers that the rows got.
 */
#ifndef KV_TEST_DICTIONARY_H
#define KV_TEST_DICTIONARY_H

#include "memcached/protocol/protocol.h"

typedef struct Dictionary Dictionary;

/* A growing piece of memory. */
typedef struct Bytes
{
	char	   *at;
	size_t		length;
	size_t		size;
} Bytes;

typedef struct Session
{
	Dictionary *dictionary;
	KvMcLimits	limits;
	KvMcStream	stream;
	int			turn;			/* requests of a turn, at most */
	Bytes		in;
	Bytes		out;
	bool		closed;
	bool		silenced;
} Session;

extern Dictionary *dictionary_make(void);
extern void dictionary_empty(Dictionary *dictionary);
extern void dictionary_free(Dictionary *dictionary);

/* The time of all dictionaries; 0: the clock's. */
extern int64_t dictionary_now;

extern void session_begin(Session *session, Dictionary *dictionary);
extern void session_end(Session *session);

/* The bytes come in; what they are answered is behind session->out. */
extern void session_input(Session *session, const char *bytes, size_t length);

extern void bytes_put(Bytes *bytes, const void *from, size_t length);

#endif							/* KV_TEST_DICTIONARY_H */
