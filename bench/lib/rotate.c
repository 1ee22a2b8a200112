/*
 * rotate.c
 *		Sessions that are served by turns, by a client that needs no admission.
 *
 * usage: rotate SESSIONS AT_ONCE SECONDS STATEMENT... [-- RANGE...]
 *
 * Opens SESSIONS connections; AT_ONCE of them have a request each, and when one is
 * answered, the session whose last answer is oldest gets the next.  A request is one
 * of the statements; $1, $2, … in it stand for random numbers of the ranges: LOW:HIGH, or
 * 1:HIGH~THETA, zipfian, the frequent ones scattered.  Prints requests per second:
 * what a server gives when so many sessions take turns, at best, whoever makes them
 * take turns.  With AT_ONCE = SESSIONS it is a client like others.  Two threads share the
 * sessions, as pgbench's -j 2 does.  The connections come from the usual PG* variables.
 */
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include <libpq-fe.h>

#include "load.h"

#define THREADS 2
#define MAX_RANGES 9
#define MAX_TEXT 16384

typedef struct Range
{
	int64_t		low,
				high;
	double	   *sums;			/* zipfian: of the probabilities of the first numbers; else NULL */
} Range;

typedef struct Work
{
	pthread_t	thread;
	int			sessions,
				at_once;
	uint64_t	random;			/* xorshift64's state */
	uint64_t	requests;		/* answered within the time */
} Work;

static char **statements;
static int	nstatements;
static Range ranges[MAX_RANGES];
static int	nranges;
static double seconds;
static pthread_barrier_t connected;

static void
die(const char *what, const char *why)
{
	fprintf(stderr, "rotate: %s: %s\n", what, why);
	exit(1);
}

static int64_t
number_of(Work *work, const Range *range)
{
	int64_t		size = range->high - range->low + 1;
	int64_t		least = 0;
	int64_t		most = size - 1;
	double		where;

	if (range->sums == NULL)
		return range->low + (int64_t) (random_of(&work->random) % (uint64_t) size);
	where = (random_of(&work->random) >> 11) / 9007199254740992.0 * range->sums[size - 1];
	while (least < most)
	{
		int64_t		middle = (least + most) / 2;

		if (range->sums[middle] > where)
			most = middle;
		else
			least = middle + 1;
	}
	return range->low + (int64_t) ((uint64_t) least * 2654435761u % (uint64_t) size);
}

/* One of the statements with its numbers. */
static void
send_request(Work *work, PGconn *conn)
{
	char		text[MAX_TEXT];
	char	   *to = text;
	int64_t		number[MAX_RANGES];

	for (int i = 0; i < nranges; i++)
		number[i] = number_of(work, &ranges[i]);
	for (const char *from = statements[random_of(&work->random) % nstatements]; *from;)
		if (from[0] == '$' && from[1] >= '1' && from[1] < '1' + nranges)
		{
			to += sprintf(to, "%" PRId64, number[from[1] - '1']);
			from += 2;
		}
		else
			*to++ = *from++;
	*to = 0;
	if (!PQsendQuery(conn, text))
		die("request", PQerrorMessage(conn));
}

/* Takes what has come; whether the answer is complete. */
static bool
answered(PGconn *conn)
{
	if (!PQconsumeInput(conn))
		die("answer", PQerrorMessage(conn));
	while (!PQisBusy(conn))
	{
		PGresult   *result = PQgetResult(conn);

		if (result == NULL)
			return true;
		if (PQresultStatus(result) == PGRES_FATAL_ERROR)
			die("answer", PQresultErrorMessage(result));
		PQclear(result);
	}
	return false;
}

static void *
serve(void *arg)
{
	Work	   *work = arg;
	PGconn	  **conns = calloc(work->sessions, sizeof(PGconn *));
	int			ring = epoll_create1(0);
	int			next = 0;
	double		end;

	for (int i = 0; i < work->sessions; i++)
	{
		struct epoll_event event = {.events = EPOLLIN, .data.u32 = i};

		conns[i] = PQconnectdb("");
		if (PQstatus(conns[i]) != CONNECTION_OK)
			die("connection", PQerrorMessage(conns[i]));
		epoll_ctl(ring, EPOLL_CTL_ADD, PQsocket(conns[i]), &event);
	}
	pthread_barrier_wait(&connected);
	end = now() + seconds;
	for (; next < work->at_once; next++)
		send_request(work, conns[next]);
	next %= work->sessions;
	while (now() < end)
	{
		struct epoll_event events[64];
		int			n = epoll_wait(ring, events, 64, 1000);

		for (int i = 0; i < n; i++)
			if (answered(conns[events[i].data.u32]))
			{
				work->requests++;

				/* who is next may still have a request if it was overtaken: the one after it */
				while (PQtransactionStatus(conns[next]) == PQTRANS_ACTIVE)
					next = (next + 1) % work->sessions;
				send_request(work, conns[next]);
				next = (next + 1) % work->sessions;
			}
	}
	return NULL;				/* the connections end with the process */
}

static void
parse_range(const char *text)
{
	Range	   *range = &ranges[nranges++];
	double		theta = 0;
	int			n = sscanf(text, "%" SCNd64 ":%" SCNd64 "~%lf", &range->low, &range->high, &theta);

	if (n < 2 || range->high < range->low)
		die("range", text);
	if (n < 3)
		return;
	range->sums = malloc((range->high - range->low + 1) * sizeof(double));
	for (int64_t i = 0; i <= range->high - range->low; i++)
		range->sums[i] = (i > 0 ? range->sums[i - 1] : 0) + pow(i + 1, -theta);
}

int
main(int argc, char **argv)
{
	const char *usage = "rotate SESSIONS AT_ONCE SECONDS STATEMENT... [-- RANGE...]";
	Work		works[THREADS];
	uint64_t	requests = 0;
	int			sessions,
				at_once;

	if (argc < 5)
		die("usage", usage);
	sessions = atoi(argv[1]);
	at_once = atoi(argv[2]);
	seconds = atof(argv[3]);
	statements = &argv[4];
	while (4 + nstatements < argc && strcmp(statements[nstatements], "--") != 0)
	{
		if (strlen(statements[nstatements]) > MAX_TEXT / 16)
			die("statement", "too long");
		nstatements++;
	}
	for (int i = 5 + nstatements; i < argc && nranges < MAX_RANGES; i++)
		parse_range(argv[i]);
	if (nstatements == 0 || at_once < THREADS || sessions < at_once || seconds <= 0)
		die("usage", usage);

	pthread_barrier_init(&connected, NULL, THREADS);
	for (int i = 0; i < THREADS; i++)
	{
		works[i] = (Work) {.sessions = (sessions + i) / THREADS, .at_once = (at_once + i) / THREADS, .random = 0x9E3779B97F4A7C15 * (i + 1)};
		if (pthread_create(&works[i].thread, NULL, serve, &works[i]) != 0)
			die("thread", "cannot be made");
	}
	for (int i = 0; i < THREADS; i++)
	{
		pthread_join(works[i].thread, NULL);
		requests += works[i].requests;
	}
	printf("%.0f\n", requests / seconds);
	return 0;
}
