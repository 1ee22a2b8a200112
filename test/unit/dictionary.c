/*
 * dictionary.c
 *		See dictionary.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "dictionary.h"

#define BUCKETS		256
#define MAX_TURN	64
#define FIRST_LATER	(UINT64_C(1) << 61)	/* numbers of what was never a row */

typedef struct Row
{
	struct Row *next;
	size_t		key_length;
	char	   *key;
	bool		there;
	char	   *value;
	size_t		length;
	uint32_t	flags;
	int64_t		expires;
	uint64_t	cas;
	bool		stale;
	bool		won;
	KvMcItem	item;			/* in a turn */
	bool		in_turn;
	struct Row *next_in_turn;
} Row;

struct Dictionary
{
	Row		   *buckets[BUCKETS];
	uint64_t	cas;
	uint64_t	later;
};

/* What a turn has allocated. */
typedef struct Memory
{
	struct Memory *next;
} Memory;

int64_t		dictionary_now;

static void *
need(void *memory)
{
	if (!memory)
		abort();
	return memory;
}

void
bytes_put(Bytes *bytes, const void *from, size_t length)
{
	if (length == 0)
		return;
	if (bytes->length + length > bytes->size)
	{
		bytes->size = (bytes->length + length) * 2;
		bytes->at = need(realloc(bytes->at, bytes->size));
	}
	memcpy(bytes->at + bytes->length, from, length);
	bytes->length += length;
}

static void *
turn_alloc(void *arg, size_t size)
{
	Memory	  **all = arg;
	Memory	   *memory = need(malloc(sizeof(Memory) + size));

	memory->next = *all;
	*all = memory;
	return memory + 1;
}

Dictionary *
dictionary_make(void)
{
	Dictionary *dictionary = need(calloc(1, sizeof(Dictionary)));

	dictionary->later = FIRST_LATER;
	return dictionary;
}

void
dictionary_empty(Dictionary *dictionary)
{
	for (int i = 0; i < BUCKETS; i++)
		while (dictionary->buckets[i])
		{
			Row		   *row = dictionary->buckets[i];

			dictionary->buckets[i] = row->next;
			free(row->key);
			free(row->value);
			free(row);
		}
}

void
dictionary_free(Dictionary *dictionary)
{
	dictionary_empty(dictionary);
	free(dictionary);
}

static Row *
find_row(Dictionary *dictionary, const char *key, size_t length)
{
	uint32_t	hash = 2166136261u;
	Row		  **bucket;
	Row		   *row;

	for (size_t i = 0; i < length; i++)
		hash = (hash ^ (unsigned char) key[i]) * 16777619u;
	bucket = &dictionary->buckets[hash % BUCKETS];
	for (row = *bucket; row; row = row->next)
		if (row->key_length == length && memcmp(row->key, key, length) == 0)
			return row;
	row = need(calloc(1, sizeof(Row)));
	row->key = need(malloc(length + 1));
	memcpy(row->key, key, length);
	row->key_length = length;
	row->next = *bucket;
	*bucket = row;
	return row;
}

static void
write_row(Dictionary *dictionary, Row *row)
{
	const KvMcItem *item = &row->item;
	char	   *value;

	switch (kv_mc_item_write(item))
	{
		case KV_MC_KEEP:
			break;
		case KV_MC_REMOVE:
			row->there = false;
			break;
		case KV_MC_PUT:
			value = need(malloc(item->length + 1));
			memcpy(value, item->value, item->length);
			free(row->value);
			row->value = value;
			row->length = item->length;
			row->flags = item->flags;
			row->expires = item->expires;
			row->stale = item->stale;
			row->won = item->won;
			row->cas = ++dictionary->cas;
			row->there = true;
			break;
	}
	row->in_turn = false;
}

static void
send_reply(Session *session, const KvMcRequest *request, KvMcReply *reply)
{
	char		head[KV_MC_HEAD_SIZE];
	KvMcPieces	pieces;

	kv_mc_print(request, reply, &session->silenced, head, &pieces);
	bytes_put(&session->out, pieces.head, pieces.head_length);
	bytes_put(&session->out, pieces.value, pieces.value_length);
	bytes_put(&session->out, pieces.tail, pieces.tail_length);
	session->closed |= request->close;
}

/* What has no item. */
static void
do_request(Session *session, const KvMcRequest *request, KvMcReply *reply)
{
	char		head[KV_MC_HEAD_SIZE];
	bool		reset;

	memset(reply, 0, sizeof(KvMcReply));
	switch (request->command)
	{
		case KV_MC_AUTH:
			if (request->user_length != 4 || memcmp(request->user, "user", 4) != 0
				|| request->password_length != 6 || memcmp(request->password, "secret", 6) != 0)
				reply->outcome = KV_MC_REFUSED;
			kv_mc_authenticated(&session->stream, reply->outcome == KV_MC_DONE);
			break;
		case KV_MC_FLUSH:
			if (request->exptime <= 0)
				dictionary_empty(session->dictionary);
			break;
		case KV_MC_STATS:
			reset = request->key_length == 5 && memcmp(request->key, "reset", 5) == 0;
			if (reset)
			{
				reply->value = "RESET";
				reply->length = 5;
			}
			else if (request->key_length > 0)
				reply->outcome = KV_MC_MISS;
			else
				bytes_put(&session->out, head, kv_mc_print_stat(request, "pid", "1", head));
			break;
		default:
			break;
	}
}

/* The requests of a turn, in their order. */
static void
do_turn(Session *session, const KvMcRequest *requests, int n)
{
	Dictionary *dictionary = session->dictionary;
	KvMcReply	replies[MAX_TURN];
	Row		   *rows[MAX_TURN] = {NULL};
	Row		   *touched = NULL;
	Memory	   *memory = NULL;
	KvMcFold	fold = {.now = dictionary_now ? dictionary_now : (int64_t) time(NULL),
		.item_size = session->limits.item_size,.next_cas = dictionary->later,
	.alloc = turn_alloc,.arg = &memory};

	for (int i = 0; i < n; i++)
	{
		Row		   *row;

		if (!kv_mc_has_item(&requests[i]))
			continue;
		rows[i] = row = find_row(dictionary, kv_mc_key(&requests[i]), requests[i].key_length);
		if (!row->in_turn)
		{
			memset(&row->item, 0, sizeof(KvMcItem));
			if (row->there)
				kv_mc_item_set(&row->item, fold.now, turn_alloc(&memory, row->length + 1), row->length, row->flags,
							   row->expires, row->cas, row->stale, row->won);
			if (row->there)
				memcpy((char *) row->item.value, row->value, row->length);
			row->in_turn = true;
			row->next_in_turn = touched;
			touched = row;
		}
		kv_mc_apply(&row->item, &requests[i], &fold, &replies[i]);
	}
	dictionary->later = fold.next_cas;
	for (Row *row = touched; row; row = row->next_in_turn)
		write_row(dictionary, row);
	for (int i = 0; i < n; i++)
	{
		if (rows[i] && rows[i]->item.changed && replies[i].cas == rows[i]->item.cas)
			replies[i].cas = rows[i]->cas;
		if (!rows[i])
			do_request(session, &requests[i], &replies[i]);
		send_reply(session, &requests[i], &replies[i]);
	}
	while (memory)
	{
		Memory	   *next = memory->next;

		free(memory);
		memory = next;
	}
}

void
session_begin(Session *session, Dictionary *dictionary)
{
	memset(session, 0, sizeof(Session));
	session->dictionary = dictionary;
	session->turn = 1;
	session->limits = (KvMcLimits) {.item_size = 1024 * 1024,.line = 2048,.get_line = 1024 * 1024,
		.flush_all = true,.version = "1.6.18"};
}

void
session_end(Session *session)
{
	free(session->in.at);
	free(session->out.at);
}

/* What protocol.h says of the buffer that a request needs. */
static size_t
most_needed(const KvMcLimits *limits)
{
	return (limits->item_size > 1024 ? limits->item_size : 1024) + (limits->line > 294 ? limits->line : 294) + 2;
}

void
session_input(Session *session, const char *bytes, size_t length)
{
	static KvMcRequest requests[MAX_TURN];
	size_t		at = 0;
	bool		more = true;
	char	   *exact;			/* so that a sanitizer sees what is read behind it */

	if (session->closed || length == 0)
		return;
	bytes_put(&session->in, bytes, length);
	exact = need(malloc(session->in.length));
	memcpy(exact, session->in.at, session->in.length);
	while (more && !session->closed)
	{
		int			n = 0;

		while (n < session->turn)
		{
			size_t		consumed;
			size_t		needed;

			more = kv_mc_parse(&session->stream, &session->limits, exact + at,
							   exact + session->in.length, &requests[n], &consumed, &needed);
			at += consumed;
			if (at > session->in.length || needed > most_needed(&session->limits))
				abort();
			if (!more)
				break;
			n++;
			/* what concerns all items has a turn to itself */
			if (requests[n - 1].command == KV_MC_FLUSH && n > 1)
			{
				do_turn(session, requests, n - 1);
				requests[0] = requests[n - 1];
				n = 1;
			}
			if (requests[n - 1].command == KV_MC_FLUSH || requests[n - 1].command == KV_MC_AUTH)
				break;
		}
		do_turn(session, requests, n);
	}
	memmove(session->in.at, exact + at, session->in.length - at);
	session->in.length -= at;
	free(exact);
}
