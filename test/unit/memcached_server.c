/*
 * memcached_server.c
 *		A dictionary that serves memcached clients: memcached_server SOCKET|PORT [auth]
 *
 * For tests that compare it with memcached and for memcached's own tests.  A port
 * is of the loopback interface.  Ends when its standard input does.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "dictionary.h"

#define MOST	64

static Session sessions[MOST];
static struct pollfd polled[MOST + 2];	/* standard input, the listener, clients */
static int	clients;

static void
fail(const char *what)
{
	perror(what);
	exit(1);
}

static int
listen_at(const char *where)
{
	struct sockaddr_un local = {.sun_family = AF_UNIX};
	struct sockaddr_in loopback = {.sin_family = AF_INET};
	bool		is_port = strchr(where, '/') == NULL;
	int			listener = socket(is_port ? AF_INET : AF_UNIX, SOCK_STREAM, 0);
	int			one = 1;

	if (listener < 0)
		fail("socket");
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	loopback.sin_port = htons((uint16_t) atoi(where));
	loopback.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (!is_port && strlen(where) >= sizeof(local.sun_path))
	{
		fprintf(stderr, "%s: too long for a socket's name\n", where);
		exit(1);
	}
	strncpy(local.sun_path, where, sizeof(local.sun_path) - 1);
	if ((is_port ? bind(listener, (struct sockaddr *) &loopback, sizeof(loopback)) :
		 bind(listener, (struct sockaddr *) &local, sizeof(local))) < 0 || listen(listener, 64) < 0)
		fail(where);
	return listener;
}

static void
hang_up(int client)
{
	close(polled[client + 2].fd);
	session_end(&sessions[client]);
	clients--;
	sessions[client] = sessions[clients];
	polled[client + 2] = polled[clients + 2];
}

/* False: the client has gone, or was sent away. */
static bool
serve(int client)
{
	static char bytes[65536];
	Session    *session = &sessions[client];
	struct pollfd *its = &polled[client + 2];
	ssize_t		n;

	if (its->revents & (POLLIN | POLLHUP | POLLERR) && session->out.length == 0)
	{
		n = recv(its->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
		if (n <= 0)
			return n < 0 && (errno == EAGAIN || errno == EINTR);
		session_input(session, bytes, (size_t) n);
	}
	if (session->out.length > 0)
	{
		n = send(its->fd, session->out.at, session->out.length, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0 && errno != EAGAIN && errno != EINTR)
			return false;
		if (n > 0)
		{
			session->out.length -= (size_t) n;
			memmove(session->out.at, session->out.at + n, session->out.length);
		}
	}
	its->events = session->out.length > 0 ? POLLOUT : POLLIN;
	return !session->closed || session->out.length > 0;
}

int
main(int argc, char **argv)
{
	Dictionary *dictionary = dictionary_make();

	if (argc < 2)
	{
		fprintf(stderr, "usage: memcached_server SOCKET|PORT [auth]\n");
		return 1;
	}
	polled[0] = (struct pollfd) {.fd = 0,.events = POLLIN};
	polled[1] = (struct pollfd) {.fd = listen_at(argv[1]),.events = POLLIN};
	printf("ready\n");
	fflush(stdout);
	for (;;)
	{
		char		byte;

		if (poll(polled, (nfds_t) clients + 2, -1) < 0 && errno != EINTR)
			fail("poll");
		if (polled[0].revents && read(0, &byte, 1) <= 0)
			return 0;
		for (int i = clients; i-- > 0;)
			if (polled[i + 2].revents && !serve(i))
				hang_up(i);
		if (polled[1].revents && clients < MOST)
		{
			int			fd = accept(polled[1].fd, NULL, NULL);

			if (fd < 0)
				continue;
			session_begin(&sessions[clients], dictionary);
			sessions[clients].turn = 32;
			sessions[clients].limits.auth = argc > 2;
			polled[clients + 2] = (struct pollfd) {.fd = fd,.events = POLLIN};
			clients++;
		}
	}
}
