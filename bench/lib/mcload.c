/*
 * mcload.c
 *		Load for servers that speak memcached's text protocol, or Redis's: one thread, one epoll
 *		set, many connections in a closed loop.
 *
 *	mcload ADDRESS PORT PROTOCOL KIND CONNECTIONS BATCH KEYS SIZE SECONDS SEED
 *
 * PROTOCOL is memcached or redis.  KIND is fill (each key is set once; SECONDS is not used),
 * set, get, multi (a get of BATCH keys is one request), or mixed: one connection sets, the
 * others get, and only those are counted, but for a latency of the sets.  BATCH requests are
 * sent at once; the next ones when all replies are there.  Each reply is compared with what it must be, but for the bytes
 * of a value behind the first 16.
 *
 * Prints "requests seconds p50 p99 cpu": keys read or written, latencies of a batch in
 * microseconds, and this program's CPU time in microseconds for each request; of mixed the sets' p99 behind it.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "load.h"

#define KEY_LENGTH	16
#define BUCKETS		4096		/* of latencies, 64 for each power of two */

typedef struct Client
{
	int			fd;
	bool		writes;
	char	   *out;
	size_t		out_length;
	size_t		sent;
	char	   *in;
	size_t		got;
	long	   *keys;			/* of the batch */
	double		began;
} Client;

static bool redis, multi;
static int	batch;
static long keys, next_fill;
static size_t size;
static char *value;
static uint64_t state;
static uint64_t counts[BUCKETS], set_counts[BUCKETS];
static size_t get_reply, set_reply;	/* bytes */

static void
die(const char *what)
{
	fprintf(stderr, "mcload: %s: %s\n", what, strerror(errno));
	exit(1);
}

static int
bucket_of(double us)
{
	uint64_t	n = us < 1 ? 1 : (uint64_t) us;
	int			log = 63 - __builtin_clzll(n);
	int			b = log * 64 + (log >= 6 ? (n >> (log - 6)) & 63 : (n << (6 - log)) & 63);

	return b < BUCKETS ? b : BUCKETS - 1;
}

static double
percentile(const uint64_t *of, double share)
{
	uint64_t	total = 0;
	uint64_t	seen = 0;

	for (int i = 0; i < BUCKETS; i++)
		total += of[i];
	for (int i = 0; i < BUCKETS; i++)
	{
		seen += of[i];
		if (seen >= total * share && seen > 0)
			return (double) ((uint64_t) 1 << (i / 64)) * (1 + (i % 64) / 64.0);
	}
	return 0;
}

static size_t
put_get(char *to, long key)
{
	if (redis)
		return sprintf(to, "*2\r\n$3\r\nGET\r\n$%d\r\nk%015ld\r\n", KEY_LENGTH, key);
	return sprintf(to, "get k%015ld\r\n", key);
}

static size_t
put_set(char *to, long key)
{
	size_t		n;

	if (redis)
		n = sprintf(to, "*3\r\n$3\r\nSET\r\n$%d\r\nk%015ld\r\n$%zu\r\n", KEY_LENGTH, key, size);
	else
		n = sprintf(to, "set k%015ld 0 0 %zu\r\n", key, size);
	memcpy(to + n, value, size);
	snprintf(to + n, 17, "%016ld", key);
	to[n + 16] = value[16];
	memcpy(to + n + size, "\r\n", 2);
	return n + size + 2;
}

/* The head of the reply to a get, before the value. */
static size_t
put_head(char *to, long key)
{
	return redis ? sprintf(to, "$%zu\r\n", size) : sprintf(to, "VALUE k%015ld 0 %zu\r\n", key, size);
}

/* Make the next batch.  False: a fill has no more. */
static bool
make_batch(Client *c, bool fills)
{
	int			n = 0;

	c->out_length = c->sent = c->got = 0;
	if (multi && !c->writes)
		c->out_length = sprintf(c->out, "get");
	for (int i = 0; i < batch; i++, n++)
	{
		if (fills && next_fill >= keys)
			break;
		c->keys[i] = fills ? next_fill++ : (long) (random_of(&state) % keys);
		if (c->writes)
			c->out_length += put_set(c->out + c->out_length, c->keys[i]);
		else if (multi)
			c->out_length += sprintf(c->out + c->out_length, " k%015ld", c->keys[i]);
		else
			c->out_length += put_get(c->out + c->out_length, c->keys[i]);
	}
	if (multi && !c->writes)
		c->out_length += sprintf(c->out + c->out_length, "\r\n");
	for (int i = n; i < batch; i++)
		c->keys[i] = -1;
	c->began = now();
	return n > 0;
}

static size_t
batch_reply(const Client *c)
{
	size_t		n = 0;

	while (n < (size_t) batch && c->keys[n] >= 0)
		n++;
	if (c->writes)
		return n * set_reply;
	return multi ? n * (get_reply - 5) + 5 : n * get_reply;
}

static void
check_get(const char *at, long key)
{
	char		head[128];
	size_t		n = put_head(head, key);
	char		first[17];

	snprintf(first, sizeof(first), "%016ld", key);
	if (memcmp(at, head, n) != 0 || memcmp(at + n, first, 16) != 0)
	{
		fprintf(stderr, "mcload: wrong reply: %.60s\n", at);
		exit(1);
	}
}

static void
check_batch(const Client *c)
{
	const char *at = c->in;

	for (int i = 0; i < batch && c->keys[i] >= 0; i++)
	{
		if (c->writes && memcmp(at, redis ? "+OK\r\n" : "STORED\r\n", set_reply) != 0)
		{
			fprintf(stderr, "mcload: wrong reply: %.60s\n", at);
			exit(1);
		}
		if (!c->writes)
			check_get(at, c->keys[i]);
		at += c->writes ? set_reply : multi ? get_reply - 5 : get_reply;
	}
}

static void
send_more(Client *c)
{
	while (c->sent < c->out_length)
	{
		ssize_t		n = send(c->fd, c->out + c->sent, c->out_length - c->sent, MSG_NOSIGNAL);

		if (n < 0 && errno == EAGAIN)
			return;
		if (n < 0)
			die("send");
		c->sent += n;
	}
}

static void
watch(int epoll, Client *c, int how)
{
	struct epoll_event event = {.events = EPOLLIN | (c->sent < c->out_length ? EPOLLOUT : 0), .data.ptr = c};

	if (epoll_ctl(epoll, how, c->fd, &event) != 0)
		die("epoll");
}

static void
start_client(Client *c, const struct sockaddr_in *address, bool writes)
{
	int			one = 1;
	size_t		request = writes ? size + 128 : 64;

	double		until = now() + 10;

	c->writes = writes;
	c->fd = socket(AF_INET, SOCK_STREAM, 0);
	while (connect(c->fd, (const struct sockaddr *) address, sizeof(*address)) != 0)
	{
		if ((errno != EAGAIN && errno != ECONNREFUSED) || now() > until)
			die("connect");
		usleep(10000);
	}
	setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	c->out = malloc(batch * request + 64);
	c->in = malloc(batch * (writes ? 64 : size + 128) + 64);
	c->keys = malloc(batch * sizeof(long));
}

static double
cpu(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return u.ru_utime.tv_sec + u.ru_stime.tv_sec + (u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

/* Take what has come; true: the batch is whole. */
static bool
receive(Client *c)
{
	size_t		need = batch_reply(c);
	ssize_t		n = recv(c->fd, c->in + c->got, need - c->got, MSG_DONTWAIT);

	if (n == 0)
	{
		fprintf(stderr, "mcload: disconnected; %.*s\n", (int) (c->got > 80 ? 80 : c->got), c->in);
		exit(1);
	}
	if (n < 0 && errno != EAGAIN)
		die("recv");
	c->got += n > 0 ? n : 0;
	/* an error is shorter than what was waited for */
	if (c->got >= 13 && memcmp(c->in, "SERVER_ERROR ", 13) == 0)
	{
		fprintf(stderr, "mcload: %.*s\n", (int) (c->got > 100 ? 100 : c->got), c->in);
		exit(1);
	}
	return c->got == need;
}

int
main(int argc, char **argv)
{
	struct sockaddr_in address = {.sin_family = AF_INET};
	const char *kind;
	int			nclients, alive, epoll = epoll_create1(0);
	double		seconds, began, end, cpu_began;
	uint64_t	done = 0;
	bool		fills, mixed;
	Client	   *clients;
	char		head[128];

	if (argc != 11)
	{
		fputs("usage: mcload ADDRESS PORT memcached|redis fill|set|get|multi|mixed CONNECTIONS BATCH KEYS SIZE SECONDS SEED\n", stderr);
		return 2;
	}
	inet_pton(AF_INET, argv[1], &address.sin_addr);
	address.sin_port = htons(atoi(argv[2]));
	redis = strcmp(argv[3], "redis") == 0;
	kind = argv[4];
	fills = strcmp(kind, "fill") == 0;
	multi = strcmp(kind, "multi") == 0;
	mixed = strcmp(kind, "mixed") == 0;
	nclients = atoi(argv[5]);
	batch = atoi(argv[6]);
	keys = atol(argv[7]);
	size = atol(argv[8]);
	seconds = atof(argv[9]);
	state = strtoull(argv[10], NULL, 10) * 0x9E3779B97F4A7C15ULL + 1;
	value = malloc(size + 32);
	for (size_t i = 0; i < size; i++)
		value[i] = 'a' + i * 7 % 26;
	set_reply = redis ? 5 : 8;
	get_reply = put_head(head, 0) + size + 2 + (redis ? 0 : 5);
	clients = calloc(nclients, sizeof(Client));
	for (int i = 0; i < nclients; i++)
		start_client(&clients[i], &address, fills || strcmp(kind, "set") == 0 || (mixed && i == 0));
	began = now();
	end = began + (fills ? 1e9 : seconds);
	cpu_began = cpu();
	alive = nclients;
	for (int i = 0; i < nclients; i++)
	{
		if (!make_batch(&clients[i], fills))
		{
			alive--;
			continue;
		}
		send_more(&clients[i]);
		watch(epoll, &clients[i], EPOLL_CTL_ADD);
	}
	while (alive > 0)
	{
		struct epoll_event events[256];
		int			n = epoll_wait(epoll, events, 256, 10000);
		double		t = now();

		if (n == 0)
		{
			fprintf(stderr, "mcload: no reply for 10 seconds\n");
			return 1;
		}
		for (int i = 0; i < n; i++)
		{
			Client	   *c = events[i].data.ptr;
			bool		waited = c->sent < c->out_length;

			if (waited)
				send_more(c);
			if (receive(c))
			{
				check_batch(c);
				if (mixed && c->writes)
					set_counts[bucket_of((now() - c->began) * 1e6)]++;
				else
				{
					counts[bucket_of((now() - c->began) * 1e6)]++;
					for (int k = 0; k < batch && c->keys[k] >= 0; k++)
						done++;
				}
				if (t >= end || !make_batch(c, fills))
				{
					epoll_ctl(epoll, EPOLL_CTL_DEL, c->fd, NULL);
					close(c->fd);
					alive--;
					continue;
				}
				send_more(c);
				if (waited || c->sent < c->out_length)
					watch(epoll, c, EPOLL_CTL_MOD);
			}
			else if (waited && c->sent == c->out_length)
				watch(epoll, c, EPOLL_CTL_MOD);
		}
	}
	end = now();
	printf("%llu %.3f %.0f %.0f %.2f", (unsigned long long) done, end - began, percentile(counts, 0.5), percentile(counts, 0.99),
		   (cpu() - cpu_began) * 1e6 / (done > 0 ? done : 1));
	if (mixed)
		printf(" %.0f", percentile(set_counts, 0.99));
	printf("\n");
	return 0;
}
