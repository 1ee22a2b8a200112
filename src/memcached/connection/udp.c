/*
 * udp.c
 *		Requests in datagrams, from clients on this machine.
 *
 * Off by default, and never beyond the loopback addresses.  A sender's address proves nothing:
 * an attacker could forge one, and have replies sent to others that are larger than the
 * requests.  There is no authentication, so with passwords there are no datagrams.
 *
 * A request is one datagram.  It is served as a connection that sends nothing more and ends
 * with the reply (datagram.c).  The first process has the sockets.
 */
#include "memcached/connection/connection.h"

#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define MOST_RECEIVED	64		/* at once */

char		kv_mc_udp_tag;

static int	sockets[2] = {-1, -1};
static char received[65536];

static void
listen_on(int i, const struct sockaddr *address, socklen_t length, int epoll_fd)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = &kv_mc_udp_tag};
	int			one = 1;
	int			fd = socket(address->sa_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return;					/* this machine may lack the family */
	if ((address->sa_family == AF_INET6 &&
		 setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one)) != 0) ||
		bind(fd, address, length) != 0 || epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0)
	{
		ereport(LOG,
				(errcode_for_socket_access(),
				 errmsg("could not receive memcached datagrams at port %d: %m",
						kv_mc_udp_port)));
		close(fd);
		return;
	}
	sockets[i] = fd;
}

void
kv_mc_udp_listen(int epoll_fd)
{
	struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(kv_mc_udp_port),
	.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(kv_mc_udp_port),
	.sin6_addr = IN6ADDR_LOOPBACK_INIT};

	if (kv_mc_udp_port == 0 || kv_mc_my_number != 0)
		return;
	if (kv_mc_auth != KV_MC_AUTH_NONE)
	{
		ereport(LOG,
				(errmsg("cannot receive memcached datagrams because clients must authenticate"),
				 errhint("Set \"kvfdw.memcached_udp_port\" to 0.")));
		return;
	}
	listen_on(0, (struct sockaddr *) &four, sizeof(four), epoll_fd);
	listen_on(1, (struct sockaddr *) &six, sizeof(six), epoll_fd);
}

/* Receive the datagrams of one socket. */
static void
receive(int fd)
{
	for (int i = 0; i < MOST_RECEIVED; i++)
	{
		KvMcDatagram from = {.sender_length = sizeof(from.sender)};
		ssize_t		got = recvfrom(fd, received, sizeof(received), MSG_DONTWAIT,
								   (struct sockaddr *) &from.sender, &from.sender_length);

		if (got < 0)
			return;
		kv_mc_counts[KV_MC_COUNT_BYTES_IN] += got;
		/* one datagram of several, or not of this protocol */
		if (got <= KV_MC_DATAGRAM_HEAD || received[2] != 0 || received[3] != 0 ||
			received[4] != 0 || received[5] != 1)
			continue;
		memcpy(from.request, received, sizeof(from.request));
		kv_mc_add_datagram(fd, &from, received + KV_MC_DATAGRAM_HEAD, got - KV_MC_DATAGRAM_HEAD);
	}
}

void
kv_mc_udp_read(void)
{
	for (int i = 0; i < lengthof(sockets); i++)
	{
		if (sockets[i] >= 0)
			receive(sockets[i]);
	}
}
